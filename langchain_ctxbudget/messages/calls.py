"""Tool calls and their results in LangChain's form, which all providers read, and OpenAI's items.

| as it is given | as it is sent |
|---|---|
| `invalid_tool_calls` (arguments that are no JSON object: some servers refuse it) | `tool_calls` |
| blocks `custom_tool_call`, which one provider reads, and reads twice | in `tool_calls` alone |
| a block `custom_tool_call_output` in the tool message of its call | its text |
| a call that is not in `tool_calls`, a result in place of a `ToolMessage` | its JSON as text |

OpenAI's Responses API refuses an id of an item that comes twice, and reasoning that is not followed
by the item that it led to. So a message is sent with the ids of all its items, or without them and
without its reasoning. Reasoning that nothing follows in its message is left out: the answer was cut
off. A call that the provider has run itself (a search, for example) is known by its id alone: a
second time, it is left out.
"""

import json
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolCall, ToolMessage

from langchain_ctxbudget.messages.text import ENGLISH

Block = str | dict[str, Any]
_CUSTOM_CALL = "custom_tool_call"
_CUSTOM_RESULT = "custom_tool_call_output"
_STANDARD_CALLS = ("tool_call", "invalid_tool_call")
"""LangChain's own blocks have the id of a call as theirs, and that of its item among the extras."""
CALL_BLOCKS = (*_STANDARD_CALLS, "tool_use", "function_call", _CUSTOM_CALL)
"""Types of content blocks that are calls (Anthropic, LangChain, OpenAI)."""
THOUGHTS = frozenset({"thinking", "redacted_thinking", "reasoning", "reasoning_content"})
_RESULT_BLOCKS = ("tool_result", "function_call_output", _CUSTOM_RESULT)
_MAX_NAME_LENGTH = 64
_NO_NAME = "unknown"
_UNREADABLE = "unreadable_arguments"
"""The argument that arguments become which are no JSON object."""
_SAID_BEFORE = "[The same as before.]"


# Blocks


def blocks_of(message: BaseMessage) -> list[Block]:
    """Returns the content of a message as a list of blocks."""
    content = message.content
    return [content] if isinstance(content, str) else content


def text_block(text: str) -> dict[str, Any]:
    """Returns a text as a block that every provider reads."""
    return {"type": "text", "text": text}


def unwrapped(block: Block) -> dict[str, Any]:
    """Returns the fields of a block, of a provider's own without LangChain's wrapping.

    A text has no fields.
    """
    if isinstance(block, str):
        return {}
    if block.get("type") == "non_standard":
        value = block.get("value")
        if isinstance(value, dict):
            return value
    return block


def _kind(block: Block) -> str:
    """Returns the type of a block; empty for a text."""
    return str(unwrapped(block).get("type", ""))


def block_types(message: BaseMessage) -> set[str]:
    """Returns the types of the blocks of a message."""
    return {_kind(block) for block in blocks_of(message)}


def text_of(block: Block) -> str | None:
    """Returns the text of a block that is text; None for any other."""
    if isinstance(block, str):
        return block
    if block.get("type") != "text":
        return None
    text = block.get("text")
    return text if isinstance(text, str) else None


def says_something(block: Block) -> bool:
    """Tells if a content block holds more than white space."""
    if isinstance(block, dict) and block.get("type") != "text":
        return True
    text = text_of(block)
    return text is not None and bool(text.strip())


def is_text(message: BaseMessage) -> bool:
    """Tells if a message is plain text of a user or a model, without calls, as most are.

    It is a quick look: a message of a subclass is not recognised.
    """
    if not isinstance(message.content, str):
        return False
    if type(message) is AIMessage:
        return not (message.tool_calls or message.invalid_tool_calls)
    return type(message) is HumanMessage


def is_user(message: BaseMessage) -> bool:
    """Tells if a message is the user's."""
    # Many times as fast as what pydantic makes of `isinstance`.
    return HumanMessage in type(message).__mro__


def is_thought(block: Block) -> bool:
    """Tells if a block is reasoning of a model, in any provider's form."""
    return _kind(block) in THOUGHTS


def without_trailing_thoughts(blocks: Sequence[Block], message: BaseMessage) -> list[Block]:
    """Returns blocks of a content without the thoughts at their end, which lead to nothing.

    The Responses API refuses reasoning without the item that it led to, and Anthropic a message
    that ends with thinking: an answer was cut off there. Calls that stand in `tool_calls` alone are
    sent behind the content, so they follow.
    """
    if not isinstance(message, AIMessage) or not _all_calls_in(blocks, message):
        return list(blocks)
    end = len(blocks)
    while end and is_thought(blocks[end - 1]):
        end -= 1
    return list(blocks[:end])


def _all_calls_in(blocks: Sequence[Block], message: BaseMessage) -> bool:
    """Tells if every call of a message has a block among these."""
    ids: set[str] = set()
    for block in blocks:
        if _kind(block) in CALL_BLOCKS:
            fields = unwrapped(block)
            ids.add(str(fields.get("id")))
            ids.add(str(fields.get("call_id")))
    return ids.issuperset(call_ids(message))


# Calls


def provider_name(name: str) -> str | None:
    """Returns a name in the form that every provider accepts; None where nothing of it is left."""
    clean = ENGLISH.refused_in_names.sub("_", name)[:_MAX_NAME_LENGTH]
    return clean if clean.strip("_-") else None


def call_name(call: Mapping[str, Any]) -> str:
    """Returns the name of a call as every provider accepts it."""
    return provider_name(call["name"] or "") or _NO_NAME


def listed_calls(message: BaseMessage) -> list[dict[str, Any]]:
    """Returns the valid calls of a message, which LangChain lists in `tool_calls`."""
    if not isinstance(message, AIMessage):
        return []
    return [dict(call) for call in message.tool_calls]


def call_ids(message: BaseMessage) -> tuple[str, ...]:
    """Returns the ids of the tool calls that a message makes, valid or not.

    A call without an id has an empty one.
    """
    if not isinstance(message, AIMessage):
        return ()
    calls = (*message.tool_calls, *message.invalid_tool_calls)
    return tuple(call["id"] or "" for call in calls)


def with_calls(message: BaseMessage) -> BaseMessage:
    """Returns a message with all its calls in `tool_calls`, and custom ones there alone.

    A message that has them there already is returned as it is.
    """
    if not isinstance(message, AIMessage):
        return message
    if message.invalid_tool_calls:
        message = _with_valid_calls(message)
    blocks = blocks_of(message)
    rest = [block for block in blocks if _kind(block) != _CUSTOM_CALL or is_raw(block, message)]
    if len(rest) == len(blocks):
        return message
    return without_items(message.model_copy(update={"content": rest}))


def _with_valid_calls(message: AIMessage) -> AIMessage:
    """Makes the invalid calls of a message valid: their text becomes their only argument."""
    calls = list(message.tool_calls)
    for call in message.invalid_tool_calls:
        arguments = {_UNREADABLE: call["args"] or ""}
        calls.append(
            ToolCall(name=call["name"] or "", args=arguments, id=call["id"], type="tool_call")
        )
    return message.model_copy(update={"tool_calls": calls, "invalid_tool_calls": []})


def is_raw(block: Block, message: BaseMessage) -> bool:
    """Tells if a block is a call that is not in `tool_calls`, or a result in no `ToolMessage`."""
    if isinstance(message, ToolMessage):
        return False
    kind = _kind(block)
    if kind in _RESULT_BLOCKS:
        return True
    if kind not in CALL_BLOCKS:
        return False
    fields = unwrapped(block)
    call_id = fields.get("id")
    if "call_id" in fields:  # OpenAI's blocks have an id of their own, too
        call_id = fields["call_id"]
    return str(call_id or "") not in call_ids(message)


def raw_text(block: Block) -> Block:
    """Returns a block as text: its own text, or its JSON."""
    return _json_block(unwrapped(block))


def with_text_result(message: ToolMessage) -> ToolMessage:
    """Returns the result of a custom tool as text; any other as it is."""
    if _CUSTOM_RESULT not in block_types(message):
        return message
    blocks: list[Block] = []
    for block in blocks_of(message):
        if _kind(block) == _CUSTOM_RESULT:
            output = unwrapped(block).get("output") or ""
            blocks.append(_json_block(output))
        else:
            blocks.append(block)
    return message.model_copy(update={"content": blocks})


def in_one_form(message: BaseMessage) -> BaseMessage:
    """Returns a message with its calls, or its result, in the form that every provider reads."""
    if isinstance(message, ToolMessage):
        return with_text_result(message)
    return with_calls(message)


def _json_block(value: object) -> Block:
    """Returns a text, or another value as JSON, as a block."""
    if isinstance(value, str):
        return text_block(value)
    return text_block(json_text(value))


def json_text(value: object) -> str:
    """Returns a value as JSON for a reader; what JSON cannot hold becomes a text."""
    return json.dumps(value, ensure_ascii=False, default=str)


def with_call_ids(message: AIMessage, ids: Sequence[str]) -> BaseMessage:
    """Returns a message whose calls have these ids, and names that providers accept.

    Blocks and items that still name the former ids are left out.
    """
    calls = [
        {**call, "id": call_id, "name": call_name(call)}
        for call, call_id in zip(listed_calls(message), ids, strict=True)
    ]
    content: str | list[Block] = message.content
    if not isinstance(content, str):
        content = [block for block in content if _kind(block) not in CALL_BLOCKS] or ""
    return without_items(message.model_copy(update={"tool_calls": calls, "content": content}))


# Which result answers which call


class CallPlace(NamedTuple):
    """Where a call stands."""

    message: int
    """The position of its message."""
    number: int
    """Its place among the calls of that message."""


def answers_of(messages: Sequence[BaseMessage]) -> tuple[dict[CallPlace, int], list[int]]:
    """Returns the position of the result of every answered call, and results that answer none.

    Ids may repeat: a result answers the newest open call before it, else the first one after it
    that is still open.
    """
    open_calls: defaultdict[str, list[CallPlace]] = defaultdict(list)
    early_results: list[int] = []
    answers: dict[CallPlace, int] = {}
    for position, message in enumerate(messages):
        if isinstance(message, ToolMessage):
            waiting = open_calls[message.tool_call_id]
            if waiting:
                answers[waiting.pop()] = position
            else:
                early_results.append(position)
        calls = listed_calls(message)
        for number in reversed(range(len(calls))):
            call_id = calls[number]["id"] or ""
            open_calls[call_id].append(CallPlace(position, number))

    orphans: list[int] = []
    for position in early_results:
        waiting = open_calls[_answered_id(messages[position])]
        if waiting:  # all after the last of these results, or they would have matched
            first = min(waiting)
            waiting.remove(first)
            answers[first] = position
        else:
            orphans.append(position)
    return answers, orphans


def _answered_id(message: BaseMessage) -> str:
    """Returns the id of the call that a result answers; empty for any other message."""
    return message.tool_call_id if isinstance(message, ToolMessage) else ""


# Items of the Responses API


class _Item(NamedTuple):
    """An item of the Responses API, which a content block stands for."""

    id: str
    is_run_by_provider: bool
    """True for a call that the provider has run itself, which is known by its id alone."""


def item_ids(message: BaseMessage) -> set[str]:
    """Returns the ids of the items of the Responses API in a message."""
    if isinstance(message.content, str):
        return set()
    items = map(_item_of, message.content)
    return {item.id for item in items if item}


def loses_items(message: BaseMessage, shorter: BaseMessage) -> bool:
    """Tells if the shorter form of a message lacks an item that the message has."""
    return not item_ids(message) <= item_ids(shorter)


def _item_of(block: Block) -> _Item | None:
    """Returns the item that a block stands for; None if it stands for none."""
    item_id = _item_id(unwrapped(block))
    if not isinstance(item_id, str):
        return None
    beginning = ENGLISH.item.match(item_id)
    if beginning is None:
        return None
    return _Item(item_id, is_run_by_provider=bool(beginning[1]))


def _item_id(fields: Mapping[str, Any]) -> object:
    """Returns the value in the place where a block of this type keeps the id of its item."""
    kind = fields.get("type")
    if kind in _STANDARD_CALLS:
        extras = fields.get("extras")
        return extras.get("item_id") if isinstance(extras, Mapping) else None
    if kind == "server_tool_result":
        return fields.get("tool_call_id")
    return fields.get("id")


def without_items(message: BaseMessage, sent: Collection[str] = ()) -> BaseMessage:
    """Returns a message without ids of items, reasoning, and the provider's own calls sent before.

    Args:
        message: Any message; it is not changed.
        sent: Ids of items that were sent before.
    """
    if not item_ids(message):
        return message
    content: list[Block] = []
    for block in blocks_of(message):
        rest = _without_item(block, sent)
        if rest is not None:
            content.append(rest)
    if content:
        return message.model_copy(update={"content": content})
    has_calls = bool(listed_calls(message))
    return message.model_copy(update={"content": "" if has_calls else _SAID_BEFORE})


def _without_item(block: Block, sent: Collection[str]) -> Block | None:
    """Returns a block without the id of its item; None where nothing of it may be sent."""
    item = _item_of(block)
    if item is None:
        return block
    if item.is_run_by_provider and item.id not in sent:
        return block
    fields = unwrapped(block)
    if fields["type"] in _STANDARD_CALLS:
        return {**fields, "extras": _without_key(fields["extras"], "item_id")}
    if item.is_run_by_provider or fields["type"] == "reasoning":
        return None
    return _without_key(fields, "id")


def _without_key(fields: Mapping[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if key != name}
