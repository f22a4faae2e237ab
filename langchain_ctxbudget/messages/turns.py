"""Messages as groups that live or die together, and the repairs that make a sequence valid.

A group is one message, or a round: an assistant's message with calls together with all its results.
Every cut falls between groups. A form that a provider would refuse is repaired in what is sent,
never in the store, and reported.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import is_
from typing import NamedTuple

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    ChatMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.messages.function import FunctionMessage

from langchain_ctxbudget.messages import calls
from langchain_ctxbudget.messages.calls import CallPlace, blocks_of
from langchain_ctxbudget.messages.contents import OLD_FORMS, Change, in_readable_form
from langchain_ctxbudget.messages.short_ids import short_id, with_short_ids

NO_RESULT = "[No result was recorded for this call.]"
SYSTEM_NOTE = "[Note from the application]\n"
HELD_MESSAGES = 8
"""Messages besides results that may come in a row without a safe cut; calls still open then count
as unanswered. Of more results in a row before their calls, none is waited for either."""
_ROLES: dict[str, type[HumanMessage | AIMessage | SystemMessage]] = {
    "user": HumanMessage,
    "human": HumanMessage,
    "assistant": AIMessage,
    "ai": AIMessage,
    "system": SystemMessage,
    "developer": SystemMessage,
}


@dataclass(frozen=True, slots=True)
class Repair:
    """One thing that was changed in what is sent so that a provider accepts it."""

    kind: str
    """`orphan_result`, `missing_result`, `empty_message`, `empty_content`, `call_form`, `call_id`,
    `call_name`, `role`, `item_id`, `reasoning`, `media`, `content_form`, `characters`, `name`,
    `first_message` or `system_in_history`."""
    message_id: str
    detail: str


@dataclass(frozen=True, slots=True)
class Group:
    """Messages that stay together, with their positions in the given list."""

    messages: tuple[BaseMessage, ...]
    positions: tuple[int, ...]


Grouped = tuple[list[Group], list[Repair]]
Used = tuple[dict[str, int], set[str]]
"""Ids of calls, with how often each was asked for, and of items: those behind them may not use them
again."""


def is_empty(message: BaseMessage) -> bool:
    """Tells if a message says nothing.

    It has no content beyond white space and thoughts, makes no call and answers none.
    """
    if isinstance(message, ToolMessage | FunctionMessage) or calls.call_ids(message):
        return False
    blocks = [block for block in blocks_of(message) if not calls.is_thought(block)]
    return not any(map(calls.says_something, blocks))


# Where a conversation may be cut


class OpenCalls(NamedTuple):
    """Calls and results that may still belong together, at some place between two messages."""

    waiting: tuple[str, ...] = ()
    """Ids of calls that have no result yet."""
    early: tuple[str, ...] = ()
    """Ids of the results right before this place that answered no call."""
    age: int = 0
    """For how many messages besides results there was no safe cut."""

    def after(self, message: BaseMessage) -> "tuple[bool, OpenCalls]":
        """Tells if a cut right before a message is safe, and which calls are open after it.

        A cut is safe if it keeps calls and results together. A call is waited for until the user
        speaks, and for `HELD_MESSAGES` messages besides results at most.
        """
        if calls.is_user(message):
            return True, OpenCalls()
        if isinstance(message, ToolMessage):
            is_safe = not self.waiting and not self.early
            following = self._after_result(message.tool_call_id)
        else:
            open_before = self if self.age < HELD_MESSAGES else OpenCalls()
            call_ids = calls.call_ids(message)
            is_safe = not open_before.waiting and set(call_ids).isdisjoint(open_before.early)
            following = _open_after_calls(open_before, call_ids)
        if is_safe or not (following.waiting or following.early):
            following = following._replace(age=0)
        return is_safe, following

    def _after_result(self, call_id: str) -> "OpenCalls":
        """Returns what is open after the result of a call."""
        if call_id in self.waiting:
            waiting = list(self.waiting)
            waiting.remove(call_id)
            return self._replace(waiting=tuple(waiting))
        if len(self.early) >= HELD_MESSAGES:
            return self._replace(early=())
        return self._replace(early=(*self.early, call_id))


def _open_after_calls(open_before: OpenCalls, call_ids: Sequence[str]) -> OpenCalls:
    """Returns what is open after a message that makes some calls, or none."""
    unanswered = Counter(call_ids) - Counter(open_before.early)
    return OpenCalls(
        waiting=(*open_before.waiting, *unanswered.elements()), age=open_before.age + 1
    )


def split_turn(messages: Sequence[BaseMessage]) -> tuple[list[BaseMessage], list[BaseMessage]]:
    """Splits an agent's messages into history and current turn.

    The turn starts at the user's last own message.
    """
    for start in reversed(range(len(messages))):
        if calls.is_user(messages[start]):
            return list(messages[:start]), list(messages[start:])
    return [], list(messages)


def is_beginning_of(known: Sequence[object], given: Sequence[object]) -> bool:
    """Tells if a list begins with the very objects of another."""
    return len(known) <= len(given) and all(map(is_, known, given))


def newest_that_fit(costs: Sequence[int], budget_tokens: int) -> int:
    """Returns how many of the last items fit together into a budget."""
    total_tokens = 0
    for count, tokens in enumerate(reversed(costs)):
        total_tokens += tokens
        if total_tokens > budget_tokens:
            return count
    return len(costs)


# Groups


def group(
    messages: Sequence[BaseMessage],
    before: Used | None = None,
    at: int = 0,
    longest: int | None = None,
) -> Grouped:
    """Returns groups that every provider accepts, in order, and the repairs.

    Results move right behind their call, in the order of the calls; what has no call is left out,
    and a stand-in answers for what is missing. An id that is used again is replaced.

    Args:
        messages: What is grouped; it is not changed.
        before: The ids that earlier messages have used; those of these messages are added.
        at: The position of the first message.
        longest: The most characters of an id that replaces another; None: any number.
    """
    parts, repairs = _parts_of(messages, at)
    answers, orphans = calls.answers_of([part.message for part in parts])
    call_counts, item_ids = before or ids_used()
    used = _UsedIds(call_counts, item_ids, longest)

    groups: list[Group] = []
    for place, part in enumerate(parts):
        if isinstance(part.message, ToolMessage):
            continue  # it stands in the group of its call
        if calls.is_text(part.message):
            groups.append(Group((part.message,), (part.position,)))
            continue
        results = _results_of(place, parts, answers)
        round_of_calls, changes = _group_of(part, results, used)
        groups.append(round_of_calls)
        repairs += _repairs_of(part.message, changes)

    for orphan in orphans:
        result = messages[parts[orphan].position - at]
        repairs.append(Repair("orphan_result", result.id or "", "left out: nothing calls for it"))
    return groups, repairs


def with_distinct_ids(
    groups: Sequence[Group], before: Iterable[Group] = (), longest: int | None = None
) -> Grouped:
    """Returns groups in which no id is one of the groups before them, and the repairs.

    An id that replaces another has at most `longest` characters; with None, any number.
    """
    changed, repairs = group(_messages_of(groups), ids_used(before), longest=longest)
    if not repairs:
        return list(groups), []
    in_place = [
        Group(after.messages, original.positions)
        for after, original in zip(changed, groups, strict=True)
    ]
    return in_place, repairs


def ids_used(groups: Iterable[Group] = ()) -> Used:
    """Returns the ids that groups have used."""
    call_counts: dict[str, int] = {}
    item_ids: set[str] = set()
    for message in _messages_of(groups):
        for call in calls.listed_calls(message):
            call_counts[call["id"] or ""] = 1
        item_ids |= calls.item_ids(message)
    return call_counts, item_ids


def _messages_of(groups: Iterable[Group]) -> list[BaseMessage]:
    messages: list[BaseMessage] = []
    for part in groups:
        messages.extend(part.messages)
    return messages


@dataclass(frozen=True, slots=True)
class _Part:
    """A message in the form in which it is sent, and its position in the given list."""

    position: int
    message: BaseMessage


def _parts_of(
    messages: Sequence[BaseMessage], first_position: int
) -> tuple[list[_Part], list[Repair]]:
    """Returns messages in the form in which they are sent, and the repairs."""
    parts: list[_Part] = []
    repairs: list[Repair] = []
    for position, message in enumerate(messages, first_position):
        if _is_plain_text(message):
            parts.append(_Part(position, message))
            continue
        if is_empty(message):
            repairs.append(Repair("empty_message", message.id or "", "left out: it has no content"))
            continue
        in_role = _in_role(message)
        formed, changes = in_readable_form(in_role)
        parts.append(_Part(position, formed))
        repairs += _repairs_of(message, [*_role_changes(message, in_role), *changes])
    return parts, repairs


def _is_plain_text(message: BaseMessage) -> bool:
    """Tells at a glance if a message is a text that is sent as it is, as most are."""
    if not calls.is_text(message) or not str(message.content).strip():
        return False
    return OLD_FORMS.isdisjoint(message.additional_kwargs)


def _repairs_of(message: BaseMessage, changes: Iterable[Change]) -> list[Repair]:
    return [Repair(change.kind, message.id or "", change.detail) for change in changes]


def _results_of(
    place: int, parts: Sequence[_Part], answers: Mapping[CallPlace, int]
) -> list[_Part | None]:
    """Returns the result of every call of a message; None for a call without one."""
    results: list[_Part | None] = []
    for number in range(len(calls.listed_calls(parts[place].message))):
        result_place = answers.get(CallPlace(place, number))
        if result_place is None:
            results.append(None)
        else:
            results.append(parts[result_place])
    return results


def _group_of(
    part: _Part, results: Sequence[_Part | None], used: "_UsedIds"
) -> tuple[Group, list[Change]]:
    """Returns a message with the results of its calls, and what was changed in them."""
    original_ids = [call["id"] or "" for call in calls.listed_calls(part.message)]
    ids = [used.unused_call_id(call_id) for call_id in original_ids]
    message, changes = _with_accepted_calls(part.message, ids)
    message, item_changes = used.with_unused_items(message)
    changes += item_changes

    members = [message]
    positions = [part.position]
    for original_id, call_id, result in zip(original_ids, ids, results, strict=True):
        if result is None:
            members.append(ToolMessage(NO_RESULT, tool_call_id=call_id))
            detail = f"a stand-in answers call {original_id!r}"
            changes.append(Change("missing_result", detail))
        else:
            members.append(_answering(result.message, call_id))
            positions.append(result.position)
    return Group(tuple(members), tuple(positions)), changes


def _with_accepted_calls(message: BaseMessage, ids: list[str]) -> tuple[BaseMessage, list[Change]]:
    """Returns a message whose calls have these ids, and names that every provider accepts."""
    listed = calls.listed_calls(message)
    original_ids = [call["id"] or "" for call in listed]
    original_names = [call["name"] for call in listed]
    names = list(map(calls.call_name, listed))

    changes: list[Change] = []
    if ids != original_ids:
        changes.append(Change("call_id", f"calls {original_ids} are sent as {ids}"))
    if names != original_names:
        detail = f"calls of {original_names} are sent as calls of {names}"
        changes.append(Change("call_name", detail))
    if changes and isinstance(message, AIMessage):
        return calls.with_call_ids(message, ids), changes
    return message, changes


def _answering(result: BaseMessage, call_id: str) -> BaseMessage:
    """Returns a result that answers the call with an id: itself where it does."""
    if isinstance(result, ToolMessage) and result.tool_call_id == call_id:
        return result
    return result.model_copy(update={"tool_call_id": call_id})


@dataclass(frozen=True, slots=True)
class _UsedIds:
    """The ids that earlier messages have used, to which those of further messages are added."""

    call_counts: dict[str, int]
    """How often each id of a call was asked for."""
    item_ids: set[str]
    longest: int | None
    """The most characters of an id that replaces another; None: any number."""

    def unused_call_id(self, call_id: str) -> str:
        """Returns this id if no call has it yet, else one like it."""
        candidate = call_id
        while not candidate or candidate in self.call_counts:
            count = self.call_counts.get(call_id, 0) + 1
            self.call_counts[call_id] = count
            numbered_id = f"{call_id or 'call'}-{count}"
            candidate = short_id(numbered_id, self.longest)
        self.call_counts[candidate] = 1
        return candidate

    def with_unused_items(self, message: BaseMessage) -> tuple[BaseMessage, list[Change]]:
        """Returns a message without items that were sent before."""
        repeated = calls.item_ids(message) & self.item_ids
        changes: list[Change] = []
        if repeated:
            message = calls.without_items(message, self.item_ids)
            detail = f"sent without ids and reasoning: {sorted(repeated)} again"
            changes.append(Change("item_id", detail))
        self.item_ids.update(calls.item_ids(message))
        return message, changes


# Ids that are too long


def with_short_call_ids(
    messages: Sequence[BaseMessage], longest: int | None
) -> tuple[list[BaseMessage], list[Repair]]:
    """Returns messages whose ids of calls have at most `longest` characters, and the repairs.

    With None, ids may have any length.
    """
    if longest is None:
        return list(messages), []
    shortened: list[BaseMessage] = []
    repairs: list[Repair] = []
    for message in messages:
        short = message if calls.is_text(message) else with_short_ids(message, longest)
        shortened.append(short)
        if short is not message and not isinstance(message, ToolMessage):
            ids = list(calls.call_ids(short))
            detail = f"ids of calls over {longest} characters are sent as digests: {ids}"
            repairs.append(Repair("call_id", message.id or "", detail))
    return shortened, repairs


def joined_repairs(earlier: Iterable[Repair], later: Iterable[Repair]) -> list[Repair]:
    """Returns the repairs of two passes in order.

    If both gave a message other ids of calls, the repair of the later pass stands for both.
    """
    later = list(later)
    told_again = Counter(repair.message_id for repair in later if repair.kind == "call_id")
    joined: list[Repair] = []
    for repair in earlier:
        if repair.kind == "call_id" and told_again[repair.message_id] > 0:
            told_again[repair.message_id] -= 1
        else:
            joined.append(repair)
    return joined + later


# Roles


def as_note(message: BaseMessage) -> BaseMessage:
    """Returns a message as it may stand after the first.

    Its role, its calls and its content are in a form that every provider reads.
    """
    formed, _ = in_readable_form(_in_role(message))
    return formed


def _role_changes(message: BaseMessage, in_role: BaseMessage) -> list[Change]:
    """Returns what was changed in the role of a message, or in the form of its calls."""
    if isinstance(message, SystemMessage):
        detail = "sent as a note: only the first message may be system"
        return [Change("system_in_history", detail)]
    if isinstance(message, ChatMessage):
        return [Change("role", f"{message.role!r} is sent as {in_role.type!r}")]
    if in_role is not message:
        detail = "its calls or results are sent in the form that every provider reads"
        return [Change("call_form", detail)]
    return []


def _in_role(message: BaseMessage) -> BaseMessage:
    """Returns a message in a role that is allowed after the first, with its calls in one form."""
    match message:
        case FunctionMessage():  # of 2023, when calls had no ids: it answers none
            call_id = f"function {message.name}"
            return ToolMessage(message.content, tool_call_id=call_id, id=message.id)
        case ChatMessage():
            return _in_role(_in_known_role(message))
        case SystemMessage():
            return HumanMessage(SYSTEM_NOTE + message.text, id=message.id)
        case _:
            return calls.in_one_form(message)


def _in_known_role(message: ChatMessage) -> BaseMessage:
    """Returns a message in a role that LangChain knows: any other becomes a human's name."""
    role = message.role.lower()
    name = message.name
    if not name and role not in _ROLES:
        name = calls.provider_name(message.role)
    kind = _ROLES.get(role, HumanMessage)
    return kind(
        message.content,
        id=message.id,
        name=name or None,
        additional_kwargs=message.additional_kwargs,
    )
