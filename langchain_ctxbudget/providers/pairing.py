"""Pairs calls with results: each result stands right behind its call, and no id is used twice."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

from langchain_ctxbudget.content import (
    ids_of_sent_calls,
    is_text,
    item_ids,
    listed_calls,
    with_calls_as,
    without_items,
)
from langchain_ctxbudget.providers.call_ids import with_thoughts_of_calls
from langchain_ctxbudget.providers.names import name_of_call
from langchain_ctxbudget.providers.profile import Profile
from langchain_ctxbudget.providers.result_media import with_name_to_show
from langchain_ctxbudget.providers.stretch import Change, Placed, Repair, Stretch, UsedIds

REPLACED_RESULT = "replaced_result"
"""The kind of the repair of a result that a newer one of the same call stands in place of."""
_ORPHAN = Change("orphan_result", "left out: nothing calls for it")
_REPLACED = Change(REPLACED_RESULT, "left out: the call has a newer result")
NO_RESULT = "[No result was recorded for this call.]"


class _CallPlace(NamedTuple):
    """Where a call stands."""

    message: int
    """The position of its message."""
    number: int
    """Its place among the calls of that message."""


def with_own_results(stretch: Stretch, profile: Profile) -> tuple[Stretch, list[Repair]]:
    """Returns messages in which the results of calls stand right behind these, in their order.

    A result without a call is left out, and a stand-in answers a call without a result. An id that
    was used before is replaced.
    """
    pairs = _pairs_in(stretch.messages)
    sent: list[Placed] = []
    repairs: list[Repair] = []
    for place, placed in enumerate(stretch.placed):
        if isinstance(placed.message, ToolMessage):
            continue  # it is sent behind its call
        if is_text(placed.message):
            sent.append(placed)
            continue
        results = _results_of(place, stretch.placed, pairs.answers)
        round_of_calls, changes = _round_of(placed, results, stretch.used, profile)
        sent += round_of_calls
        repairs += [change.repair_of(placed.message) for change in changes]

    messages = stretch.messages
    repairs += [_ORPHAN.repair_of(messages[place]) for place in pairs.orphans]
    repairs += [_REPLACED.repair_of(messages[place]) for place in pairs.replaced]
    return Stretch(sent, stretch.used), repairs


def _results_of(
    place: int, placed: Sequence[Placed], answers: Mapping[_CallPlace, int]
) -> list[Placed | None]:
    """Returns the result of every call of a message; None for a call without one."""
    results: list[Placed | None] = []
    for number in range(len(ids_of_sent_calls(placed[place].message))):
        result_place = answers.get(_CallPlace(place, number))
        results.append(None if result_place is None else placed[result_place])
    return results


def _round_of(
    placed: Placed, results: Sequence[Placed | None], used: UsedIds, profile: Profile
) -> tuple[list[Placed], list[Change]]:
    """Returns a message with the results of its calls, and what was changed in them."""
    original_ids = ids_of_sent_calls(placed.message)
    ids = [_unused_call_id(call_id, used, profile) for call_id in original_ids]
    items = original_ids[len(listed_calls(placed.message)) :]
    message, changes = _with_accepted_calls(placed.message, ids, profile)
    message, item_changes = _with_unused_items(message, used)
    changes += item_changes

    names = {call["id"]: call["name"] for call in listed_calls(message)}
    round_of_calls = [Placed(message, placed.position)]
    for original_id, call_id, result in zip(original_ids, ids, results, strict=True):
        if result is None and original_id in items:
            continue  # an item in a message of its own answers it
        if result is None:
            round_of_calls.append(Placed(ToolMessage(NO_RESULT, tool_call_id=call_id)))
            detail = f"a stand-in answers call {original_id!r}"
            changes.append(Change("missing_result", detail))
        else:
            answer = _answering(result.message, call_id)
            named = with_name_to_show(answer, names.get(call_id, ""), profile)
            round_of_calls.append(Placed(named, result.position))
    return round_of_calls, changes


def _with_accepted_calls(
    message: BaseMessage, ids: list[str], profile: Profile
) -> tuple[BaseMessage, list[Change]]:
    """Returns a message whose calls have these ids, and names that the provider accepts."""
    listed = listed_calls(message)
    original_ids = ids_of_sent_calls(message)
    original_names = [call["name"] for call in listed]
    names = [name_of_call(call, profile) for call in listed]

    changes: list[Change] = []
    if ids != original_ids:
        changes.append(Change("call_id", f"calls {original_ids} are sent as {ids}"))
    if names != original_names:
        detail = f"calls of {original_names} are sent as calls of {names}"
        changes.append(Change("call_name", detail))
    if changes and isinstance(message, AIMessage):
        renamed = with_calls_as(message, ids, names)
        return with_thoughts_of_calls(renamed, dict(zip(ids, original_ids, strict=True))), changes
    return message, changes


def _answering(result: BaseMessage, call_id: str) -> BaseMessage:
    """Returns a result that answers the call with an id: itself where it does."""
    if isinstance(result, ToolMessage) and result.tool_call_id == call_id:
        return result
    return result.model_copy(update={"tool_call_id": call_id})


def _unused_call_id(call_id: str, used: UsedIds, profile: Profile) -> str:
    """Returns this id if no call has it yet, else one like it; it is used from now on."""
    candidate = call_id
    while not candidate or candidate in used.call_counts:
        count = used.call_counts.get(call_id, 0) + 1
        used.call_counts[call_id] = count
        candidate = profile.call_ids.numbered(call_id, count)
    used.call_counts[candidate] = 1
    return candidate


def _with_unused_items(message: BaseMessage, used: UsedIds) -> tuple[BaseMessage, list[Change]]:
    """Returns a message without items that were sent before; its items are used from now on."""
    repeated = item_ids(message) & used.item_ids
    changes: list[Change] = []
    if repeated:
        message = without_items(message, used.item_ids)
        detail = f"sent without ids and reasoning: {sorted(repeated)} again"
        changes.append(Change("item_id", detail))
    used.item_ids.update(item_ids(message))
    return message, changes


# Which result answers which call


class _Pairs(NamedTuple):
    """Which result answers which call."""

    answers: dict[_CallPlace, int]
    """The position of the result of every answered call."""
    orphans: list[int]
    """The positions of results that answer none."""
    replaced: list[int]
    """The positions of results in whose place a newer one of the same call counts."""


def _pairs_in(messages: Sequence[BaseMessage]) -> _Pairs:
    """Returns which result answers which call.

    Ids may repeat. A result answers the newest open call before it. Without one, it replaces the
    last result with its id. If there is none either, it answers the first call behind it that is
    still open.
    """
    if all(map(is_text, messages)):
        return _Pairs({}, [], [])
    pairing = _Pairing()
    for position, message in enumerate(messages):
        if isinstance(message, ToolMessage):
            pairing.add_result(message.tool_call_id, position)
        else:
            pairing.add_calls(ids_of_sent_calls(message), position)
    orphans = pairing.add_early_results()
    return _Pairs(pairing.answers, orphans, pairing.replaced)


class _Pairing:
    """Pairs results with calls, while it goes through messages in order."""

    def __init__(self) -> None:
        self.answers: dict[_CallPlace, int] = {}
        self.replaced: list[int] = []
        self._open_calls: defaultdict[str, list[_CallPlace]] = defaultdict(list)
        """The calls without a result so far, by their ids; the one that is answered next, last."""
        self._answered_last: dict[str, _CallPlace] = {}
        """The call of each id that was answered last."""
        self._early_results: list[_EarlyResult] = []

    def add_calls(self, call_ids: Sequence[str], position: int) -> None:
        """Adds the calls of the message at a position.

        Of two calls of it with one id, a result answers the first one first.
        """
        for number in reversed(range(len(call_ids))):
            self._open_calls[call_ids[number]].append(_CallPlace(position, number))

    def add_result(self, call_id: str, position: int) -> None:
        """Adds the result at a position: it answers a call before it, or waits for another."""
        if self._open_calls[call_id]:
            call = self._open_calls[call_id].pop()
            self._answered_last[call_id] = call
            self.answers[call] = position
        elif call_id in self._answered_last:
            call = self._answered_last[call_id]
            self.replaced.append(self.answers[call])
            self.answers[call] = position
        else:
            self._early_results.append(_EarlyResult(call_id, position))

    def add_early_results(self) -> list[int]:
        """Pairs results that stand before their calls, and returns the positions of the others."""
        orphans: list[int] = []
        for result in self._early_results:
            waiting = self._open_calls[result.call_id]
            if waiting:  # all behind the last of these results, or they would have been paired
                first = min(waiting)
                waiting.remove(first)
                self.answers[first] = result.position
            else:
                orphans.append(result.position)
        return orphans


class _EarlyResult(NamedTuple):
    """A result without a call before it."""

    call_id: str
    position: int
