"""Messages as groups that live or die together, and the repairs that make a sequence valid.

A group is one message, or an AI message with calls together with all its results. Every cut falls
between groups. A form that a provider would refuse is repaired in the view, never in the store, and
reported.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby, takewhile
from operator import is_
from typing import Any, NamedTuple

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
from langchain_ctxbudget.messages.calls import Block, blocks_of
from langchain_ctxbudget.messages.media import left_out
from langchain_ctxbudget.messages.short_ids import short_id, with_short_ids

NO_RESULT = "[No result was recorded for this call.]"
SYSTEM_NOTE = "[Note from the application]\n"
HELD_MESSAGES = 8
"""Messages besides results that may come in a row without a safe cut; calls still open then count
as unanswered. Of more results in a row before their calls, none is waited for either."""
_ROLES: dict[str, type[HumanMessage | AIMessage | SystemMessage]] = {
    **dict.fromkeys(("user", "human"), HumanMessage),
    **dict.fromkeys(("assistant", "ai"), AIMessage),
    **dict.fromkeys(("system", "developer"), SystemMessage),
}


@dataclass(frozen=True, slots=True)
class Repair:
    """One thing that was changed in the view so that a provider accepts it."""

    kind: str
    """`orphan_result`, `missing_result`, `empty_message`, `empty_content`, `call_form`, `call_id`, `call_name`, `role`,
    `item_id`, `reasoning`, `media`, `content_form`, `characters`, `name`, `first_message` or `system_in_history`."""
    message_id: str
    detail: str


@dataclass(frozen=True, slots=True)
class Group:
    """Messages that stay together, with their positions in the given list."""

    messages: tuple[BaseMessage, ...]
    positions: tuple[int, ...]


def is_empty(message: BaseMessage) -> bool:
    """Tells if a message says nothing.

    No content beyond white space and thoughts, no call, no result.
    """
    if isinstance(message, ToolMessage | FunctionMessage) or calls.call_ids(message):
        return False
    said = (block for block in blocks_of(message) if not calls.is_thought(block))
    return not any(map(calls.says_something, said))


class OpenCalls(NamedTuple):
    """Calls and results that may still belong together, at some place between two messages."""

    waiting: tuple[str, ...] = ()
    """Ids of calls that have no result yet."""
    early: tuple[str, ...] = ()
    """Ids of the results right before this place that answered no call."""
    age: int = 0
    """For how many messages besides results there was no safe cut."""

    def after(self, message: BaseMessage) -> "tuple[bool, OpenCalls]":
        """Tells if a cut right before a message keeps calls and results together, and which calls are open after it.

        A call is waited for until the user speaks, and for `HELD_MESSAGES` messages besides results
        at most.
        """
        waiting = list(self.waiting)
        early = list(self.early)
        age = self.age
        if calls.is_user(message):
            return True, OpenCalls()
        if isinstance(message, ToolMessage):
            held = bool(waiting or early)
            if message.tool_call_id in waiting:
                waiting.remove(message.tool_call_id)
            else:
                early = [*early, message.tool_call_id] if len(early) < HELD_MESSAGES else []
        else:
            if age >= HELD_MESSAGES:
                waiting = []
                early = []
            made = Counter(calls.call_ids(message))
            held = bool(waiting) or not made.keys().isdisjoint(early)
            waiting = waiting + list((made - Counter(early)).elements())
            early = []
            age = age + 1
        if not held or not (waiting or early):
            age = 0
        return not held, OpenCalls(tuple(waiting), tuple(early), age)


Grouped = tuple[list[Group], list[Repair]]
Used = tuple[dict[str, int], set[str]]
"""Ids of calls, with how often each was asked for, and of items: those behind them may not use them
again."""


def ids_used(groups: Iterable[Group] = ()) -> Used:
    """Returns the ids that groups have used."""
    sent = [message for part in groups for message in part.messages]
    used = {call["id"] or "": 1 for message in sent for call in calls.listed_calls(message)}
    return used, {key for message in sent for key in calls.item_ids(message)}


def with_short_call_ids(
    messages: Sequence[BaseMessage], longest: int | None
) -> tuple[list[BaseMessage], list[Repair]]:
    """Returns messages whose ids of calls have at most `longest` characters, and the repairs.

    None allows all ids.
    """
    if longest is None:
        return list(messages), []
    sent: list[BaseMessage] = []
    repairs: list[Repair] = []
    for message in messages:
        short = message if calls.is_text(message) else with_short_ids(message, longest)
        sent.append(short)
        if short is not message and not isinstance(message, ToolMessage):
            detail = f"ids of calls over {longest} characters are sent as digests: {list(calls.call_ids(short))}"
            repairs.append(Repair("call_id", message.id or "", detail))
    return sent, repairs


def joined_repairs(earlier: Iterable[Repair], later: Iterable[Repair]) -> list[Repair]:
    """Returns the repairs of two passes in order.

    Where both gave a message other ids of calls, the later one tells.
    """
    second = list(later)
    told_again = Counter(repair.message_id for repair in second if repair.kind == "call_id")
    joined: list[Repair] = []
    for repair in earlier:
        if repair.kind == "call_id" and told_again[repair.message_id] > 0:
            told_again[repair.message_id] -= 1
        else:
            joined.append(repair)
    return joined + second


def group(
    messages: Sequence[BaseMessage],
    before: Used | None = None,
    at: int = 0,
    longest: int | None = None,
) -> Grouped:
    """Returns groups that every provider accepts, in order, and the repairs.

    The first message stands `at` a place.

    Results move right behind their call, in the order of the calls; what has no call is left out,
    and a stand-in answers for what is missing. An id that is used again gets another one of at most
    `longest` characters (None: any number); all ids are added to those `before`.
    """
    parts, repairs = _parts(messages, at)
    answers, orphans = calls.answered([part for _, part in parts])
    used, items = before or ids_used()
    groups: list[Group] = []
    for place, (position, part) in enumerate(parts):
        if isinstance(part, ToolMessage):
            continue
        if calls.is_text(part):
            groups.append(Group((part,), (position,)))
            continue
        made = calls.listed_calls(part)
        given_ids = [call["id"] or "" for call in made]
        names = [call["name"] for call in made]
        ids = [_unused(one, used, longest) for one in given_ids]
        accepted = list(map(calls.call_name, made))
        changed = [("call_id", f"calls {given_ids} are sent as {ids}")] if ids != given_ids else []
        changed += (
            [("call_name", f"calls of {names} are sent as calls of {accepted}")]
            if accepted != names
            else []
        )
        message = calls.renamed(part, ids) if changed and isinstance(part, AIMessage) else part
        if repeated := calls.item_ids(message) & items:
            message = calls.without_items(message, items)
            changed.append(("item_id", f"sent without ids and reasoning: {sorted(repeated)} again"))
        items.update(calls.item_ids(message))
        members = [message]
        positions = [position]
        for number, call_id in enumerate(ids):
            if (found := answers.get((place, number))) is not None:
                stood, result = parts[found]
                same = isinstance(result, ToolMessage) and result.tool_call_id == call_id
                members.append(
                    result if same else result.model_copy(update={"tool_call_id": call_id})
                )
                positions.append(stood)
            else:
                members.append(ToolMessage(NO_RESULT, tool_call_id=call_id))
                changed.append(("missing_result", f"a stand-in answers call {given_ids[number]!r}"))
        groups.append(Group(tuple(members), tuple(positions)))
        repairs += [Repair(kind, part.id or "", detail) for kind, detail in changed]
    unasked = (messages[parts[orphan][0] - at].id or "" for orphan in orphans)
    repairs += (Repair("orphan_result", name, "left out: nothing calls for it") for name in unasked)
    return groups, repairs


def distinct(
    groups: Sequence[Group], before: Iterable[Group] = (), longest: int | None = None
) -> Grouped:
    """Replaces ids that the groups before these use, by at most `longest` characters.

    Also returns the repairs.
    """
    sent = [message for part in groups for message in part.messages]
    changed, repairs = group(sent, ids_used(before), longest=longest)
    same = [Group(new.messages, old.positions) for new, old in zip(changed, groups, strict=True)]
    return (same, repairs) if repairs else (list(groups), [])


def _parts(
    messages: Sequence[BaseMessage], first: int
) -> tuple[list[tuple[int, BaseMessage]], list[Repair]]:
    """Returns messages in the form in which they are sent, with their positions, and the repairs."""
    parts: list[tuple[int, BaseMessage]] = []
    repairs: list[Repair] = []
    for position, message in enumerate(messages, first):
        if (
            calls.is_text(message)
            and str(message.content).strip()
            and _OLD_FORMS.isdisjoint(message.additional_kwargs)
        ):
            parts.append((position, message))
            continue
        if is_empty(message):
            repairs.append(Repair("empty_message", message.id or "", "left out: it has no content"))
            continue
        formed = _in_role(message)
        changes: list[tuple[str, str]] = []
        if isinstance(message, SystemMessage):
            changes = [
                ("system_in_history", "sent as a note: only the first message may be system")
            ]
        elif isinstance(message, ChatMessage):
            changes = [("role", f"{message.role!r} is sent as {formed.type!r}")]
        elif formed is not message:
            changes = [
                ("call_form", "its calls or results are sent in the form that every provider reads")
            ]
        sent, more = _with_contents(formed)
        parts.append((position, sent))
        repairs += [Repair(kind, message.id or "", detail) for kind, detail in (*changes, *more)]
    return parts, repairs


def _unused(call_id: str, used: dict[str, int], longest: int | None) -> str:
    """Returns this id if no call has it yet, else one like it.

    `used` counts how often each was asked for.
    """
    candidate = call_id
    while not candidate or candidate in used:
        used[call_id] = used.get(call_id, 0) + 1
        candidate = short_id(f"{call_id or 'call'}-{used[call_id]}", longest)
    used[candidate] = 1
    return candidate


def as_note(message: BaseMessage) -> BaseMessage:
    """Returns a message as it may stand after the first.

    In a role, a form of calls and a content that all read.
    """
    return _with_contents(_in_role(message))[0]


def _in_role(message: BaseMessage) -> BaseMessage:
    match message:
        case FunctionMessage():  # of 2023, when calls had no ids: it answers none
            return ToolMessage(
                message.content, tool_call_id=f"function {message.name}", id=message.id
            )
        case ChatMessage():  # other roles become the name of a human speaker
            role = message.role.lower()
            more = message.additional_kwargs
            name = message.name or (None if role in _ROLES else calls.provider_name(message.role))
            kind = _ROLES.get(role, HumanMessage)
            return _in_role(kind(message.content, id=message.id, name=name, additional_kwargs=more))
        case SystemMessage():
            return HumanMessage(SYSTEM_NOTE + message.text, id=message.id)
        case ToolMessage():
            return calls.with_text_result(message)
        case _:
            return calls.with_calls(message)


def split_turn(messages: Sequence[BaseMessage]) -> tuple[list[BaseMessage], list[BaseMessage]]:
    """Splits an agent's messages into history and current turn, which starts at the user's last own message."""
    start = next((at for at in range(len(messages) - 1, -1, -1) if calls.is_user(messages[at])), 0)
    return list(messages[:start]), list(messages[start:])


def same_beginning(known: Sequence[object], given: Sequence[object]) -> bool:
    """Tells if a list begins with the very objects of another."""
    return len(known) <= len(given) and all(map(is_, known, given))


def newest_that_fit(costs: Sequence[int], budget_tokens: int) -> int:
    """Returns how many of the last items fit together into a budget."""
    return sum(
        1 for _ in takewhile(lambda tokens: tokens <= budget_tokens, accumulate(reversed(costs)))
    )


# Contents: blocks that providers read, and none that says nothing
#
# OpenAI and Anthropic refuse media of an assistant. Those that a model of Google or the Responses
# API made stay, as these read them again, and so do media in the results of tools.

_MEDIA = frozenset(
    {
        "image",
        "image_url",
        "input_image",
        "audio",
        "input_audio",
        "video",
        "media",
        "file",
        "input_file",
        "document",
    }
    | {"text-plain"}
)
"""Types of blocks with media, of LangChain and of the providers."""
_NOT_SENT = frozenset({"id", "index", "annotations"})
_RESPONSES_IMAGE = "ig_"
_EMPTY = ("empty_content", "sent without the parts of its content that are empty")
_TRAILING_REASONING = ("reasoning", "sent without the reasoning at its end, which leads to nothing")
_OLD_FORMS = frozenset(
    {"function_call", "reasoning", "tool_outputs", "__openai_function_call_ids__"}
)
"""Keys of `additional_kwargs` for calls of 2023, and for items of Responses before version 1 of
langchain-openai."""


def _with_contents(message: BaseMessage) -> tuple[BaseMessage, list[tuple[str, str]]]:
    """Returns a message with blocks that its providers read; kind and detail of every repair."""
    changes: list[tuple[str, str]] = []
    blocks = [block for block in blocks_of(message) if calls.says_something(block)]
    if isinstance(message.content, str):
        if message.content and not blocks and calls.listed_calls(message):
            changes.append(_EMPTY)
            message = message.model_copy(update={"content": ""})
    else:
        if len(blocks) < len(message.content) or (not blocks and isinstance(message, ToolMessage)):
            changes.append(_EMPTY)
        ended = calls.without_trailing_thoughts(blocks, message)
        if len(ended) < len(blocks):
            changes.append(_TRAILING_REASONING)
            blocks = ended
        read = [
            calls.raw_text(block) if calls.is_raw(block, message) else block for block in blocks
        ]
        if read != blocks:
            changes.append(
                ("call_form", "calls and results that stand in its content alone are sent as text")
            )
            blocks = blocks_of(calls.without_items(message.model_copy(update={"content": read})))
        if (shown := [_without_medium(block, message) for block in blocks]) != blocks:
            changes.append(("media", "sent with text in place of its images and other media"))
        if (formed := _as_text_blocks(shown, message)) != shown:
            changes.append(
                ("content_form", "its texts are sent as blocks that every provider reads")
            )
        if changes:
            message = message.model_copy(update={"content": formed or ""})
    if isinstance(message, AIMessage) and not _OLD_FORMS.isdisjoint(message.additional_kwargs):
        changes.append(
            (
                "call_form",
                "sent without calls and items that older versions kept beside the content",
            )
        )
        others = {
            key: value for key, value in message.additional_kwargs.items() if key not in _OLD_FORMS
        }
        message = message.model_copy(update={"additional_kwargs": others})
    return message, changes


def _without_medium(block: Block, message: BaseMessage) -> Block:
    """Puts a text in place of a medium of an assistant: that of a document, else a note."""
    if (
        isinstance(block, str)
        or block.get("type") not in _MEDIA
        or not isinstance(message, AIMessage)
    ):
        return block
    is_google = str(message.response_metadata.get("model_provider")).startswith("google")
    if is_google or str(block.get("id")).startswith(_RESPONSES_IMAGE):
        return block
    text = block.get("text")
    said = text if isinstance(text, str) and text.strip() else left_out(block)
    return {"type": "text", "text": said}


def _as_text_blocks(blocks: Sequence[Block], message: BaseMessage) -> list[Block]:
    """Makes a block of each text.

    Of an assistant joins those in a row, each a message of its own to Responses.
    """
    formed: list[Any] = [
        {"type": "text", "text": block} if isinstance(block, str) else block for block in blocks
    ]
    if isinstance(message, AIMessage):
        joined: list[Block] = []
        for is_plain, run in groupby(formed, lambda block: block.keys() == {"type", "text"}):
            same = list(run)
            joined += (
                [{"type": "text", "text": "\n".join(str(one["text"]) for one in same)}]
                if is_plain
                else same
            )
        return joined
    gone = _NOT_SENT if isinstance(message, HumanMessage) else ()
    return [
        {key: it for key, it in one.items() if one.get("type") != "text" or key not in gone}
        for one in formed
    ]
