"""Messages as units that live or die together, and the repairs that make a sequence valid.

A group is one message, or an AI message with calls together with all its results. Every cut falls between
groups. What a provider would refuse is repaired in the view, never in the store, and reported.
"""

from __future__ import annotations

import re
from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)

NO_RESULT = "[No result was recorded for this call.]"
SYSTEM_NOTE = "[Note from the application]\n"
CALL_BLOCKS = ("tool_use", "tool_call")
"""Types of content blocks in which a message repeats its calls (Anthropic, LangChain)."""

_REFUSED_IN_NAMES = re.compile(r"[^a-zA-Z0-9_-]+")
_MAX_NAME_LENGTH = 64


@dataclass(frozen=True, slots=True)
class Repair:
    """One thing that was changed in the view so that a provider accepts it."""

    kind: str
    """`orphan_result`, `missing_result`, `empty_message`, `call_id`, `name`, `first_message` or `system_in_history`."""
    message_id: str
    detail: str


@dataclass(frozen=True, slots=True)
class Group:
    """Messages that stay together; `positions` says where they stood in what was given."""

    messages: tuple[BaseMessage, ...]
    positions: tuple[int, ...]


def call_ids(message: BaseMessage) -> tuple[str, ...]:
    """The ids of the tool calls that a message makes, valid or not, as a provider will be sent them."""
    if not isinstance(message, AIMessage):
        return ()
    calls = [*message.tool_calls, *message.invalid_tool_calls]
    return tuple(call["id"] or "" for call in calls)


def is_empty(message: BaseMessage) -> bool:
    """Whether a message has nothing to say: no content beyond white space, and no call."""
    if isinstance(message, ToolMessage) or call_ids(message) or "function_call" in message.additional_kwargs:
        return False
    if isinstance(message.content, str):
        return not message.content.strip()
    return not any(
        block.strip() if isinstance(block, str) else block.get("type") != "text" or str(block.get("text") or "").strip()
        for block in message.content
    )


def provider_name(name: str) -> str | None:
    """A speaker's name in the form that every provider accepts, or None where nothing of it is left."""
    clean = _REFUSED_IN_NAMES.sub("_", name)[:_MAX_NAME_LENGTH]
    return clean if clean.strip("_-") else None


def safe_cuts(messages: Iterable[BaseMessage], open_calls: set[str] | None = None) -> list[bool]:
    """For every message, whether a cut right before it leaves calls and results together.

    Args:
        messages: messages in order.
        open_calls: ids of calls made before these messages and not answered yet; updated in place.
    """
    waiting = set() if open_calls is None else open_calls
    safe: list[bool] = []
    for message in messages:
        if isinstance(message, ToolMessage):
            safe.append(False)
            waiting.discard(message.tool_call_id)
            continue
        if isinstance(message, HumanMessage):
            waiting.clear()  # a call that was never answered holds nothing back
        safe.append(not waiting)
        waiting.update(call_ids(message))
    return safe


def group(messages: Sequence[BaseMessage]) -> tuple[list[Group], list[Repair]]:
    """Groups that every provider accepts, in order, and what had to be repaired.

    Results are moved right behind their call in the order of the calls; a call without a result gets a
    stand-in; a result without a call, and a message with nothing in it, is left out; a call id that is missing
    or used before is replaced; a system message in the middle becomes a note, because only the first message
    may be one.
    """
    answers, orphans = _answers(messages)
    used: dict[str, int] = {}
    groups: list[Group] = []
    repairs: list[Repair] = []
    for position, message in enumerate(messages):
        if isinstance(message, ToolMessage):
            continue
        if is_empty(message):
            repairs.append(Repair("empty_message", message.id or "", "left out: it has no content"))
            continue
        ids = call_ids(message)
        unique = [_unused(call_id, used) for call_id in ids]
        members: list[BaseMessage] = [as_note(message)]
        if isinstance(message, SystemMessage):
            detail = "sent as a note: only the first message may be system"
            repairs.append(Repair("system_in_history", message.id or "", detail))
        if isinstance(message, AIMessage) and unique != list(ids):
            repairs.append(Repair("call_id", message.id or "", f"calls {list(ids)} are sent as {unique}"))
            members = [_with_call_ids(message, unique)]
        positions = [position]
        for place, (given, call_id) in enumerate(zip(ids, unique, strict=True)):
            if (found := answers.get((position, place))) is not None:
                result = messages[found]
                members.append(result if given == call_id else result.model_copy(update={"tool_call_id": call_id}))
                positions.append(found)
            else:
                members.append(ToolMessage(NO_RESULT, tool_call_id=call_id))
                repairs.append(Repair("missing_result", message.id or "", f"a stand-in answers call {given!r}"))
        groups.append(Group(tuple(members), tuple(positions)))
    repairs.extend(Repair("orphan_result", messages[i].id or "", "left out: nothing calls for it") for i in orphans)
    return groups, repairs


def _answers(messages: Sequence[BaseMessage]) -> tuple[dict[tuple[int, int], int], list[int]]:
    """For every answered call, as (message, place in it), where its result stands; and results that answer none.

    Ids may repeat: a result answers the newest open call before it, else the first one after it that nothing
    else answers. So a call that was never answered does not take the results of later ones.
    """
    waiting: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
    early: defaultdict[str, list[int]] = defaultdict(list)
    answers: dict[tuple[int, int], int] = {}
    for position, message in enumerate(messages):
        if isinstance(message, ToolMessage):
            if waiting[message.tool_call_id]:
                answers[waiting[message.tool_call_id].pop()] = position
            else:
                early[message.tool_call_id].append(position)
        for place, call_id in reversed(list(enumerate(call_ids(message)))):
            waiting[call_id].append((position, place))
    orphans: list[int] = []
    for call_id, positions in early.items():
        calls = iter(sorted(waiting[call_id]))  # all after the last of these results, or they would have matched
        for position in positions:
            later = next(calls, None)
            if later is None:
                orphans.append(position)
            else:
                answers[later] = position
    return answers, sorted(orphans)


def _unused(call_id: str, used: dict[str, int]) -> str:
    """This id if no call has it yet, else one like it; `used` counts how often each was asked for."""
    candidate = call_id
    while not candidate or candidate in used:
        used[call_id] = used.get(call_id, 0) + 1
        candidate = f"{call_id or 'call'}-{used[call_id]}"
    used[candidate] = 1
    return candidate


def _with_call_ids(message: AIMessage, ids: Sequence[str]) -> AIMessage:
    """A message whose calls have these ids, also where its content repeats the calls."""
    calls = [*message.tool_calls, *message.invalid_tool_calls]
    renamed = [{**call, "id": call_id} for call, call_id in zip(calls, ids, strict=True)]
    left: defaultdict[str, deque[str]] = defaultdict(deque)
    for call, call_id in zip(calls, ids, strict=True):
        left[str(call["id"])].append(call_id)
    changes: dict[str, Any] = {
        "tool_calls": renamed[: len(message.tool_calls)],
        "invalid_tool_calls": renamed[len(message.tool_calls) :],
    }
    if not isinstance(message.content, str):
        changes["content"] = [
            {**block, "id": left[str(block.get("id"))].popleft()}
            if isinstance(block, dict) and block.get("type") in CALL_BLOCKS and left[str(block.get("id"))]
            else block
            for block in message.content
        ]
    return message.model_copy(update=changes)


def as_note(message: BaseMessage) -> BaseMessage:
    """A message as it may stand after the first: a system message becomes a note, any other stays as it is."""
    if isinstance(message, SystemMessage):
        return HumanMessage(SYSTEM_NOTE + message.text, id=message.id)
    return message


def split_turn(messages: Sequence[BaseMessage]) -> tuple[list[BaseMessage], list[BaseMessage]]:
    """An agent's messages as history and current turn; the turn starts at the last human message."""
    for position in range(len(messages) - 1, -1, -1):
        if isinstance(messages[position], HumanMessage):
            return list(messages[:position]), list(messages[position:])
    return [], list(messages)


def newest_that_fit(costs: Sequence[int], budget_tokens: int) -> int:
    """How many of the last items fit together into a budget, counting from the end.

    Args:
        costs: what each item costs, in tokens, oldest first.
        budget_tokens: what they may cost together.
    """
    used = count = 0
    for cost in reversed(costs):
        used += cost
        if used > budget_tokens:
            break
        count += 1
    return count
