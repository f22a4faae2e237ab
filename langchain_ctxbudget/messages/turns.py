"""Messages as groups that live or die together, and the repairs that make a sequence valid.

A group is one message, or an AI message with calls together with all its results. Every cut falls between groups. A
form that a provider would refuse is repaired in the view, never in the store, and reported.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, groupby, takewhile
from typing import Any, NamedTuple

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)

from langchain_ctxbudget.messages.calls import (
    answered,
    call_ids,
    call_name,
    is_user,
    item_ids,
    listed_calls,
    provider_name,
    renamed,
    repeated_items,
    result_ids,
    says_something,
    split_results,
    with_calls,
    with_text_result,
    without_items,
)
from langchain_ctxbudget.messages.clipping import Block, left_out

NO_RESULT = "[No result was recorded for this call.]"
SYSTEM_NOTE = "[Note from the application]\n"
HELD_MESSAGES = 8
"""Messages besides results that may come in a row without a safe cut; what is not answered by then is given up."""
MOST_EARLY_RESULTS = 16
"""Results in a row that may answer calls after them; more than these answer none."""

_ROLES: dict[str, type[HumanMessage | AIMessage | SystemMessage]] = {
    "user": HumanMessage,
    "human": HumanMessage,
    "assistant": AIMessage,
    "ai": AIMessage,
    "system": SystemMessage,
    "developer": SystemMessage,
}
_THOUGHTS = frozenset({"thinking", "redacted_thinking", "reasoning", "reasoning_content"})


@dataclass(frozen=True, slots=True)
class Repair:
    """One thing that was changed in the view so that a provider accepts it."""

    kind: str
    """`orphan_result`, `missing_result`, `empty_message`, `empty_content`, `call_form`, `call_id`, `call_name`, `role`,
    `item_id`, `media`, `content_form`, `name`, `first_message` or `system_in_history`."""
    message_id: str
    detail: str


@dataclass(frozen=True, slots=True)
class Group:
    """Messages that stay together; `positions` says where they stood in what was given."""

    messages: tuple[BaseMessage, ...]
    positions: tuple[int, ...]


def is_empty(message: BaseMessage) -> bool:
    """Tells if a message says nothing: no content beyond white space and thoughts, no call, no result."""
    if isinstance(message, ToolMessage | FunctionMessage) or call_ids(message):
        return False
    if isinstance(message.content, str):
        return not message.content.strip()
    return not any(
        says_something(block) and (isinstance(block, str) or block.get("type") not in _THOUGHTS)
        for block in message.content
    )


def safe_cuts(messages: Iterable[BaseMessage], open_calls: set[str] | None = None) -> list[bool]:
    """Tells for every message if a cut right before it leaves calls and results together.

    A call is waited for until the user speaks, and for at most `HELD_MESSAGES` messages besides results: one that is
    never answered must not hold everything back for ever. Results that come first belong to a call right behind them.
    What is open before and after these messages is kept in `open_calls`, as strings of how long no cut was safe, how
    many results a call lacks (below 0: has too many), and its id.
    """
    still_open = _Open()
    for text in open_calls or ():
        age, count, call_id = text.split(":", 2)
        still_open.age = int(age)
        (still_open.waiting if int(count) > 0 else still_open.early)[call_id] = abs(int(count))
    safe = [still_open.take_in(message) for message in messages]
    if open_calls is not None:
        counts = [*still_open.waiting.items(), *((call_id, -count) for call_id, count in still_open.early.items())]
        open_calls.clear()
        open_calls.update(f"{still_open.age}:{count}:{call_id}" for call_id, count in counts)
    return safe


@dataclass(slots=True)
class _Open:
    """Calls and results that may still belong together, at some place between two messages."""

    age: int = 0
    """For how many messages besides results there was no safe cut."""
    waiting: Counter[str] = field(default_factory=Counter)
    """Calls that have no result yet, by their ids."""
    early: Counter[str] = field(default_factory=Counter)
    """The results right before this place that answered no call."""

    def take_in(self, message: BaseMessage) -> bool:
        """Goes past a message; tells if a cut right before it is safe."""
        results, speaks = result_ids(message), is_user(message)
        if results and not speaks:
            held = bool(self.waiting or self.early)
            self.early.update([call_id for call_id in results if not _take(self.waiting, call_id)])
            if len(self.early) > MOST_EARLY_RESULTS:
                self.early.clear()
        else:
            if self.age >= HELD_MESSAGES:
                self.waiting, self.early = Counter(), Counter()
            if speaks:
                held = any(self.waiting[call_id] for call_id in results)
                self.waiting.clear()
            else:
                calls = call_ids(message)
                held = bool(self.waiting) or any(self.early[call_id] for call_id in calls)
                self.waiting.update([call_id for call_id in calls if not _take(self.early, call_id)])
            self.early.clear()
            self.age += 1
        if not held or not (self.waiting or self.early):
            self.age = 0
        return not held


def _take(counts: Counter[str], key: str) -> bool:
    """Takes one away of a key, if there is one."""
    found = counts[key] > 0
    counts[key] -= found
    if not counts[key]:
        del counts[key]
    return found


def group(messages: Sequence[BaseMessage]) -> tuple[list[Group], list[Repair]]:
    """Returns groups that every provider accepts, in order, and the repairs.

    Calls, results and contents are brought into one form (see `calls`, and below). Results move right behind their
    call in the order of the calls; a call without a result gets a stand-in; a result without a call, and a message with
    nothing in it, is left out; a call id that is missing or used before, and a name that is refused, is replaced; an id
    of an item that was sent before (see `calls`) is left out; a system message in the middle becomes a note.

    A human message with words and results in it stands in its own group; its results are in those of their calls, which
    have its position, too.
    """
    parts, repairs = _parts(messages)
    answers, orphans = answered([part for _, part in parts])
    used: dict[str, int] = {}
    items: set[str] = set()
    groups: list[Group] = []
    for place, (position, part) in enumerate(parts):
        if isinstance(part, ToolMessage):
            continue
        calls = listed_calls(part)
        ids = [call["id"] or "" for call in calls]
        unique = [_unused(call_id, used) for call_id in ids]
        accepted, changes = _with_accepted_ids(part, calls, unique, items)
        members = [accepted]
        repairs += changes
        positions = [position]
        for number, (given, call_id) in enumerate(zip(ids, unique, strict=True)):
            if (found := answers.get((place, number))) is not None:
                stood, result = parts[found]
                members.append(_answering(result, call_id))
                positions.append(stood)
            else:
                members.append(ToolMessage(NO_RESULT, tool_call_id=call_id))
                repairs.append(Repair("missing_result", part.id or "", f"a stand-in answers call {given!r}"))
        groups.append(Group(tuple(members), tuple(dict.fromkeys(positions))))
    for orphan in orphans:
        message_id = messages[parts[orphan][0]].id or ""
        repairs.append(Repair("orphan_result", message_id, "left out: nothing calls for it"))
    return groups, repairs


def _answering(result: BaseMessage, call_id: str) -> BaseMessage:
    same = not isinstance(result, ToolMessage) or result.tool_call_id == call_id
    return result if same else result.model_copy(update={"tool_call_id": call_id})


def distinct(groups: Sequence[Group], before: Iterable[Group]) -> tuple[list[Group], list[Repair]]:
    """Replaces ids of calls and items that the groups before these use; returns the groups and the repairs.

    History and current turn are grouped by themselves and sent together.
    """
    sent = [message for part in before for message in part.messages]
    used = {call["id"] or "": 1 for message in sent for call in listed_calls(message)}
    items = {key for message in sent for key in item_ids(message)}
    changed: list[Group] = []
    repairs: list[Repair] = []
    for part in groups:
        first, *results = part.messages  # the results stand in the order of the calls
        calls = listed_calls(first)
        ids = [_unused(call["id"] or "", used) for call in calls]
        accepted, changes = _with_accepted_ids(first, calls, ids, items)
        answers = [_answering(result, call_id) for result, call_id in zip(results, ids, strict=True)]
        changed.append(Group((accepted, *answers), part.positions) if changes else part)
        repairs += changes
    return changed, repairs


def _parts(messages: Sequence[BaseMessage]) -> tuple[list[tuple[int, BaseMessage]], list[Repair]]:
    """Returns messages in the form in which they are sent, with their positions, and the repairs.

    A human message with results in it becomes several.
    """
    parts: list[tuple[int, BaseMessage]] = []
    repairs: list[Repair] = []
    for position, message in enumerate(messages):
        results, rest = split_results(message)
        formed = [*results, *([] if rest is None or is_empty(rest) else [_in_role(rest)])]
        parts.extend((position, sendable(part)) for part in formed)
        if not formed:
            change = ("empty_message", "left out: it has no content")
        elif results:
            change = ("call_form", "its results are sent as tool messages")
        elif isinstance(message, SystemMessage):
            change = ("system_in_history", "sent as a note: only the first message may be system")
        elif isinstance(message, ChatMessage):
            change = ("role", f"{message.role!r} is sent as {formed[0].type!r}")
        elif formed[0] is not message:
            change = ("call_form", "its calls or results are sent in the form that every provider reads")
        else:
            change = None
        changes = dict.fromkeys([*([change] if change else []), *(c for part in formed for c in content_changes(part))])
        repairs += [Repair(kind, message.id or "", detail) for kind, detail in changes]
    return parts, repairs


def _with_accepted_ids(
    message: BaseMessage, calls: Sequence[Mapping[str, Any]], ids: Sequence[str], items: set[str]
) -> tuple[BaseMessage, list[Repair]]:
    """Gives the calls of a message these ids and accepted names, and takes out ids of items that were sent before.

    The ids of the items that the message is sent with are added to `items`.
    """
    given_ids = [call["id"] or "" for call in calls]
    given, names = [call["name"] for call in calls], [call_name(call) for call in calls]
    repairs: list[Repair] = []
    if list(ids) != given_ids:
        repairs.append(Repair("call_id", message.id or "", f"calls {given_ids} are sent as {list(ids)}"))
    if names != given:
        repairs.append(Repair("call_name", message.id or "", f"calls of {given} are sent as calls of {names}"))
    if repairs and isinstance(message, AIMessage):
        message = renamed(message, ids)
    if repeated := repeated_items(message, items):
        message = without_items(message, items)
        repairs.append(Repair("item_id", message.id or "", f"sent without ids and reasoning: {sorted(repeated)} again"))
    items |= item_ids(message)
    return message, repairs


def _unused(call_id: str, used: dict[str, int]) -> str:
    """Returns this id if no call has it yet, else one like it; `used` counts how often each was asked for."""
    candidate = call_id
    while not candidate or candidate in used:
        used[call_id] = used.get(call_id, 0) + 1
        candidate = f"{call_id or 'call'}-{used[call_id]}"
    used[candidate] = 1
    return candidate


def as_note(message: BaseMessage) -> BaseMessage:
    """Returns a message as it may stand after the first: in a role, a form of calls and a content that all read."""
    return sendable(_in_role(message))


def _in_role(message: BaseMessage) -> BaseMessage:
    match message:
        case FunctionMessage():
            return split_results(message)[0][0]
        case ChatMessage():
            return _in_role(_with_role(message))
        case SystemMessage():
            return HumanMessage(SYSTEM_NOTE + message.text, id=message.id)
        case ToolMessage():
            return with_text_result(message)
        case _:
            return with_calls(message)


def _with_role(message: ChatMessage) -> BaseMessage:
    """Gives a message one of the roles that every provider has; others become the name of a human speaker."""
    kind = _ROLES.get(message.role.lower(), HumanMessage)
    name = message.name or (None if message.role.lower() in _ROLES else provider_name(message.role))
    return kind(message.content, id=message.id, name=name, additional_kwargs=message.additional_kwargs)


def split_turn(messages: Sequence[BaseMessage]) -> tuple[list[BaseMessage], list[BaseMessage]]:
    """Splits an agent's messages into history and current turn, which starts at the user's last own message."""
    for position in range(len(messages) - 1, -1, -1):
        if is_user(messages[position]):
            return list(messages[:position]), list(messages[position:])
    return [], list(messages)


def newest_that_fit(costs: Sequence[int], budget_tokens: int) -> int:
    """Returns how many of the last items fit together into a budget."""
    used = accumulate(reversed(costs))
    return sum(1 for _ in takewhile(lambda tokens: tokens <= budget_tokens, used))


# Contents: blocks that providers read, and none that says nothing
#
# OpenAI and Anthropic refuse media of an assistant. Those that a model of Google or the Responses API made stay, as
# these read them again, and so do media in the results of tools.

_IMAGES = frozenset({"image", "image_url", "input_image"})
_MEDIA = _IMAGES | {"audio", "input_audio", "video", "media", "file", "input_file", "document", "text-plain"}
"""Types of blocks with media, of LangChain and of the providers."""
_NOT_SENT = frozenset({"id", "index", "annotations"})
_RESPONSES_IMAGE = "ig_"
_READS_ITS_OWN_MEDIA = "google"


class Change(NamedTuple):
    """A repair of a content: its kind, and what to say of it."""

    kind: str
    detail: str


def sendable(message: BaseMessage) -> BaseMessage:
    """Returns a message with its content as it is sent; the message itself where nothing changes."""
    for _, form in _FORMS:
        message = form(message)
    return message


def content_changes(message: BaseMessage) -> Iterator[Change]:
    """Yields the changes that `sendable` makes in a message."""
    for change, form in _FORMS:
        formed = form(message)
        if formed is not message:
            yield change
        message = formed


def _without_blanks(message: BaseMessage) -> BaseMessage:
    """Takes out texts that are white space, where a message has something else."""
    content = message.content
    if not isinstance(content, str):
        kept = [block for block in content if says_something(block)]
        if len(kept) == len(content) and (kept or not isinstance(message, ToolMessage)):
            return message
        return message.model_copy(update={"content": kept or ""})
    if content and not content.strip() and listed_calls(message):
        return message.model_copy(update={"content": ""})
    return message


def _without_media(message: BaseMessage) -> BaseMessage:
    """Puts text in place of media in an AI message."""
    if not isinstance(message, AIMessage):
        return message
    if str(message.response_metadata.get("model_provider")).startswith(_READS_ITS_OWN_MEDIA):
        return message
    return _with_each(message, lambda block: _as_text(block) if _is_foreign_media(block) else block)


def _is_foreign_media(block: Block) -> bool:
    return (
        isinstance(block, dict)
        and block.get("type") in _MEDIA
        and not str(block.get("id")).startswith(_RESPONSES_IMAGE)
    )


def _as_text(block: dict[str, Any]) -> Block:
    """Returns a document that is text as that text, else a note."""
    text = block.get("text")
    return {"type": "text", "text": text} if isinstance(text, str) and text.strip() else left_out(block)


def _with_text_blocks(message: BaseMessage) -> BaseMessage:
    def formed(block: Block) -> Block:
        if isinstance(block, str):
            return {"type": "text", "text": block}
        if isinstance(message, HumanMessage) and block.get("type") == "text" and not _NOT_SENT.isdisjoint(block):
            return {key: value for key, value in block.items() if key not in _NOT_SENT}
        return block

    return _with_joined_texts(_with_each(message, formed))


def _with_joined_texts(message: BaseMessage) -> BaseMessage:
    """Joins plain texts that follow each other: each would be a message of its own to Responses."""
    if not isinstance(message, AIMessage) or isinstance(message.content, str):
        return message
    content: list[Any] = message.content
    blocks: list[Any] = []
    for is_plain, run in groupby(content, _is_plain_text):
        same = list(run)
        joined = is_plain and len(same) > 1
        blocks += [{"type": "text", "text": "\n".join(block["text"] for block in same)}] if joined else same
    return message if len(blocks) == len(message.content) else message.model_copy(update={"content": blocks})


def _is_plain_text(block: Mapping[str, Any]) -> bool:
    return block.keys() == {"type", "text"} and block["type"] == "text" and isinstance(block["text"], str)


def _with_each(message: BaseMessage, change: Callable[[Any], Block]) -> BaseMessage:
    """Changes each block of a message; returns the message itself where nothing changes."""
    if isinstance(message.content, str):
        return message
    blocks = [change(block) for block in message.content]
    same = all(one is other for one, other in zip(blocks, message.content, strict=True))
    return message if same else message.model_copy(update={"content": blocks})


_FORMS: tuple[tuple[Change, Callable[[BaseMessage], BaseMessage]], ...] = (
    (Change("empty_content", "sent without the parts of its content that are empty"), _without_blanks),
    (Change("media", "sent with text in place of its images and other media"), _without_media),
    (Change("content_form", "its texts are sent as blocks that every provider reads"), _with_text_blocks),
)
