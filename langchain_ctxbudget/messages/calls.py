"""Tool calls and their results, brought from every form into LangChain's own, and the items of OpenAI's Responses.

| as it is given | as it is sent |
|---|---|
| blocks `tool_use`, `function_call`, not in `tool_calls` | in `tool_calls`, too |
| blocks `custom_tool_call`, which one provider reads | in `tool_calls` alone |
| `invalid_tool_calls` (arguments that are no JSON object, which some servers refuse) | `tool_calls` |
| blocks `tool_result`, `function_call_output`, `custom_tool_call_output` in a human message | a `ToolMessage` each |
| a block `custom_tool_call_output` in the tool message of its call | its text |

In LangChain's own form all packages send all calls, and each of them once: a block whose id is in `tool_calls` is not
sent again. The block of a custom call is, so it goes.

Responses refuses an id of an item that comes twice, and reasoning that is not followed by the item that it led to. So
a message is sent with the ids of all its items, or without them and without its reasoning. A call that the provider has
run itself (a search, for example) is known by its id alone: a second time, it is left out.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, FunctionMessage, HumanMessage, ToolMessage

Block = str | dict[str, Any]
Call = dict[str, Any]

_CUSTOM_CALL, _CUSTOM_RESULT = "custom_tool_call", "custom_tool_call_output"
_CUSTOM_ARGUMENT = "__arg1"
"""As langchain-openai names the text that a custom tool is called with."""
_STANDARD_CALLS = ("tool_call", "invalid_tool_call")
"""LangChain's own blocks have the id of a call as theirs, and that of its item among the extras."""
CALL_BLOCKS = (*_STANDARD_CALLS, "tool_use", "function_call", _CUSTOM_CALL)
"""Types of content blocks that are calls (Anthropic, LangChain, OpenAI)."""
RESULT_BLOCKS = {
    "tool_result": ("tool_use_id", "content"),
    "function_call_output": ("call_id", "output"),
    _CUSTOM_RESULT: ("call_id", "output"),
}
"""Types of content blocks that are results, and where each has the id of its call and what came of it."""

_REFUSED_IN_NAMES = re.compile(r"[^a-zA-Z0-9_-]+")
_MAX_NAME_LENGTH = 64
_NO_NAME = "unknown"
_UNREADABLE = "unreadable_arguments"
"""The argument that arguments become which are no JSON object."""
_ITEM = re.compile(r"(?:msg|rs|fc|ctc|(ws|fs|ci|ig|cmp|mcp[a-z]?|ts[a-z]?))_")
"""Beginnings of the ids of items; in the group, of those that the provider has run itself."""
_SAID_BEFORE = "[The same as before.]"


def blocks_of(message: BaseMessage) -> list[Block]:
    """Returns the content of a message as a list of blocks."""
    return [message.content] if isinstance(message.content, str) else message.content


def block_types(message: BaseMessage) -> set[str]:
    """Returns the types of the blocks of a message."""
    return {_kind(block) for block in blocks_of(message)}


def text_of(block: Block) -> str | None:
    """Returns the text of a block that is text; None for any other."""
    text = block if isinstance(block, str) else block.get("text") if block.get("type") == "text" else None
    return text if isinstance(text, str) else None


def says_something(block: Block) -> bool:
    """Tells if a content block has anything in it beyond white space."""
    is_text = isinstance(block, str) or block.get("type") == "text"
    return not is_text or bool((text_of(block) or "").strip())


def provider_name(name: str) -> str | None:
    """Returns a name in the form that every provider accepts, or None where nothing of it is left."""
    clean = _REFUSED_IN_NAMES.sub("_", name)[:_MAX_NAME_LENGTH]
    return clean if clean.strip("_-") else None


def call_name(call: Mapping[str, Any]) -> str:
    """Returns the name of a call as every provider accepts it."""
    return provider_name(call["name"] or "") or _NO_NAME


def listed_calls(message: BaseMessage) -> list[Call]:
    """Returns the calls of a message that has them in `tool_calls`."""
    return [dict(call) for call in message.tool_calls] if isinstance(message, AIMessage) else []


def call_ids(message: BaseMessage) -> tuple[str, ...]:
    """Returns the ids of the tool calls that a message makes, valid or not; empty for one without an id."""
    return tuple(call["id"] or "" for call in listed_calls(with_calls(message)))


def result_ids(message: BaseMessage) -> tuple[str, ...]:
    """Returns the ids of the calls that a message answers."""
    results, rest = split_results(message)
    return tuple(result.tool_call_id for result in (*results, rest) if isinstance(result, ToolMessage))


def is_user(message: BaseMessage) -> bool:
    """Tells if a human message says something of its own, besides results of calls."""
    return isinstance(message, HumanMessage) and split_results(message)[1] is not None


def with_calls(message: BaseMessage) -> BaseMessage:
    """Returns a message with all its calls in `tool_calls`; the message itself where they are."""
    if not isinstance(message, AIMessage):
        return message
    found = [_call(call["id"], call["name"], call["args"]) for call in message.invalid_tool_calls]
    listed = Counter(call["id"] or "" for call in (*message.tool_calls, *found))
    for block in _blocks(message, CALL_BLOCKS):
        if listed[block_id := _block_id(block)]:
            listed[block_id] -= 1
        else:
            arguments = next((block[key] for key in ("input", "args", "arguments") if key in block), None)
            is_custom = block["type"] == _CUSTOM_CALL
            found.append(_call(block_id, block.get("name"), {_CUSTOM_ARGUMENT: arguments} if is_custom else arguments))
    if found:
        calls = [*message.tool_calls, *found]
        message = message.model_copy(update={"tool_calls": calls, "invalid_tool_calls": []})
    if not _blocks(message, (_CUSTOM_CALL,)):
        return message
    rest = [block for block in message.content if _kind(block) != _CUSTOM_CALL]
    return without_items(message.model_copy(update={"content": rest}))


def _call(call_id: object, name: object, arguments: object) -> Call:
    read = arguments
    if isinstance(arguments, str):
        try:
            read = json.loads(arguments or "{}")
        except ValueError:
            read = None
    if not isinstance(read, dict):
        read = {_UNREADABLE: arguments if isinstance(arguments, str) else json.dumps(arguments, default=str)}
    return {"name": str(name or ""), "args": read, "id": str(call_id or ""), "type": "tool_call"}


def split_results(message: BaseMessage) -> tuple[list[ToolMessage], BaseMessage | None]:
    """Returns the results that a message carries as blocks, each as a message, and the rest of it, if anything."""
    if isinstance(message, FunctionMessage):  # of 2023, when calls had no ids: it answers none
        return [ToolMessage(message.content, tool_call_id=f"function {message.name}", id=message.id)], None
    if not isinstance(message, HumanMessage) or not (blocks := _blocks(message, RESULT_BLOCKS)):
        return [], message
    rest = [block for block in message.content if _kind(block) not in RESULT_BLOCKS]
    spoken = message.model_copy(update={"content": rest}) if any(map(says_something, rest)) else None
    return list(map(_result_of, blocks)), spoken


def _result_of(block: Mapping[str, Any]) -> ToolMessage:
    id_key, content_key = RESULT_BLOCKS[block["type"]]
    content = block.get(content_key)
    return ToolMessage(
        content if isinstance(content, str | list) else "" if content is None else json.dumps(content, default=str),
        tool_call_id=str(block.get(id_key) or ""),
        status="error" if block.get("is_error") else "success",
    )


def with_text_result(message: ToolMessage) -> ToolMessage:
    """Returns the result of a custom tool as text; any other as it is."""
    if not _blocks(message, (_CUSTOM_RESULT,)):
        return message
    blocks = [
        {"type": "text", "text": _result_of(_opened(block)).text} if _kind(block) == _CUSTOM_RESULT else block
        for block in blocks_of(message)
    ]
    return message.model_copy(update={"content": blocks})


def renamed(message: AIMessage, ids: Sequence[str]) -> BaseMessage:
    """Gives the calls of a message these ids, and names that providers accept; their blocks and items go."""
    calls = [
        {**call, "id": call_id, "name": call_name(call)}
        for call, call_id in zip(listed_calls(message), ids, strict=True)
    ]
    rest = [block for block in blocks_of(message) if _kind(block) not in CALL_BLOCKS]
    content = message.content if isinstance(message.content, str) else rest or ""
    return without_items(message.model_copy(update={"tool_calls": calls, "content": content}))


def answered(messages: Sequence[BaseMessage]) -> tuple[dict[tuple[int, int], int], list[int]]:
    """Returns the position of the result of every answered call (message, place in it), and results that answer none.

    Ids may repeat: a result answers the newest open call before it, else the first one after it that nothing else
    answers. So a call that was never answered does not take the results of later ones.
    """
    waiting: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
    early: list[tuple[str, int]] = []
    answers: dict[tuple[int, int], int] = {}
    for position, message in enumerate(messages):
        if isinstance(message, ToolMessage):
            if waiting[message.tool_call_id]:
                answers[waiting[message.tool_call_id].pop()] = position
            else:
                early.append((message.tool_call_id, position))
        for place, call in reversed(list(enumerate(listed_calls(message)))):
            waiting[call["id"] or ""].append((position, place))
    orphans: list[int] = []
    for call_id, position in early:
        if calls := waiting[call_id]:  # all after the last of these results, or they would have matched
            answers[calls.pop(calls.index(min(calls)))] = position
        else:
            orphans.append(position)
    return answers, orphans


def _blocks(message: BaseMessage, kinds: Collection[str]) -> list[dict[str, Any]]:
    return [_opened(block) for block in blocks_of(message) if _kind(block) in kinds]


def _opened(block: Block) -> dict[str, Any]:
    """Returns a block without the one in which LangChain wraps a provider's own; a text has none."""
    if isinstance(block, str):
        return {}
    value = block.get("value") if block.get("type") == "non_standard" else None
    return value if isinstance(value, dict) else block


def _kind(block: Block) -> str:
    return str(_opened(block).get("type", ""))


def _block_id(block: Mapping[str, Any]) -> str:
    """Returns the id of a block's call: OpenAI's blocks have one of their own besides."""
    return str(block.get("call_id" if "call_id" in block else "id") or "")


# Items of Responses


def item_ids(message: BaseMessage) -> set[str]:
    """Returns the ids of the items in a message."""
    return {item[0] for block in blocks_of(message) if (item := _item(_opened(block)))}


def _item(block: Mapping[str, Any]) -> tuple[str, bool] | None:
    """Returns the id of the item that a block is, and whether the provider has run it itself."""
    if (kind := block.get("type")) in _STANDARD_CALLS:
        extras = block.get("extras")
        key = extras.get("item_id") if isinstance(extras, Mapping) else None
    else:
        key = block.get("tool_call_id" if kind == "server_tool_result" else "id")
    begins = _ITEM.match(key) if isinstance(key, str) else None
    return (str(key), bool(begins[1])) if begins else None


def without_items(message: BaseMessage, sent: Collection[str] = ()) -> BaseMessage:
    """Returns a message without the ids of items and without reasoning; itself if it has none.

    A call of the provider's under an id that was sent before is left out.
    """
    if not item_ids(message):
        return message
    content: list[Block] = []
    for block in blocks_of(message):
        inner, item = _opened(block), _item(_opened(block))
        if item is None or (item[1] and item[0] not in sent):
            content.append(block)
        elif inner["type"] in _STANDARD_CALLS:
            content.append({**inner, "extras": {name: it for name, it in inner["extras"].items() if name != "item_id"}})
        elif not item[1] and inner["type"] != "reasoning":
            content.append({name: it for name, it in inner.items() if name != "id"})
    return message.model_copy(update={"content": content or ("" if listed_calls(message) else _SAID_BEFORE)})
