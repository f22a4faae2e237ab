"""Tool calls and their results, brought from every form into LangChain's own, and the items of OpenAI's Responses.

| as it is given | as it is sent |
|---|---|
| blocks `tool_use`, `function_call`, not in `tool_calls` | in `tool_calls`, too |
| blocks `custom_tool_call`, which one provider reads | in `tool_calls` alone |
| `invalid_tool_calls` (arguments that are no JSON object, which some servers refuse) | `tool_calls` |
| `additional_kwargs["tool_calls"]` or `["function_call"]` that LangChain did not read | `tool_calls` |
| `FunctionMessage` | `ToolMessage` |
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
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, FunctionMessage, HumanMessage, ToolMessage

Block = str | dict[str, Any]
Call = dict[str, Any]

CALL_BLOCKS = ("tool_use", "tool_call", "invalid_tool_call", "function_call", "custom_tool_call")
"""Types of content blocks that are calls (Anthropic, LangChain, OpenAI)."""
RESULT_BLOCKS = {
    "tool_result": ("tool_use_id", "content"),
    "function_call_output": ("call_id", "output"),
    "custom_tool_call_output": ("call_id", "output"),
}
"""Types of content blocks that are results, and where each has the id of its call and what came of it."""

_REFUSED_IN_NAMES = re.compile(r"[^a-zA-Z0-9_-]+")
_MAX_NAME_LENGTH = 64
_NO_NAME = "unknown"
_LEGACY_ID_LENGTH = 30
_RAW_CALLS = ("tool_calls", "function_call")
_UNREADABLE = "unreadable_arguments"
"""The argument that arguments become which are no JSON object."""
_CUSTOM_CALL, _CUSTOM_RESULT = "custom_tool_call", "custom_tool_call_output"
_CUSTOM_ARGUMENT = "__arg1"
"""As langchain-openai names the text that a custom tool is called with."""
_PREFIXES = {"text": "msg_", "output_text": "msg_", "refusal": "msg_", "reasoning": "rs_"}
_STANDARD_CALLS = ("tool_call", "invalid_tool_call")
"""LangChain's own blocks have the id of a call as theirs, and that of its item among the extras."""
_RUN_BY_PROVIDER = (
    *("compaction", "web_search_call", "file_search_call", "code_interpreter_call", "image_generation_call"),
    *("mcp_call", "mcp_list_tools", "mcp_approval_request", "tool_search_call", "tool_search_output"),
    *("server_tool_call", "server_tool_result"),
)
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
    if not found and not message.tool_calls:
        found = list(_raw_calls(message.additional_kwargs))
    listed = Counter(call["id"] or "" for call in (*message.tool_calls, *found))
    for block in _blocks(message, CALL_BLOCKS):
        if listed[block_id := _block_id(block)]:
            listed[block_id] -= 1
        else:
            arguments = next((block[key] for key in ("input", "args", "arguments") if key in block), None)
            is_custom = block["type"] == _CUSTOM_CALL
            found.append(_call(block_id, block.get("name"), {_CUSTOM_ARGUMENT: arguments} if is_custom else arguments))
    if found:
        others = {key: value for key, value in message.additional_kwargs.items() if key not in _RAW_CALLS}
        calls = [*message.tool_calls, *found]
        changes = {"tool_calls": calls, "invalid_tool_calls": [], "additional_kwargs": others}
        message = message.model_copy(update=changes)
    if not _blocks(message, (_CUSTOM_CALL,)):
        return message
    rest = [block for block in message.content if _kind(block) != _CUSTOM_CALL]
    return without_items(message.model_copy(update={"content": rest}))


def _raw_calls(extra: Mapping[str, Any]) -> Iterator[Call]:
    """Yields the calls in OpenAI's forms, which are sent where a message has none in LangChain's."""
    raw, legacy = (extra.get(key) for key in _RAW_CALLS)
    calls = [call for call in raw if isinstance(call, Mapping)] if isinstance(raw, list) else []
    for call in calls:
        inner: Mapping[str, Any] = next(
            (call[key] for key in ("custom", "function") if isinstance(call.get(key), Mapping)), {}
        )
        arguments = {_CUSTOM_ARGUMENT: inner["input"]} if "input" in inner else inner.get("arguments")
        yield _call(call.get("id"), inner.get("name"), arguments)
    if not calls and isinstance(legacy, Mapping) and legacy:  # OpenAI until 2023
        name = str(legacy.get("name") or "")
        yield _call(_legacy_id(name), name, legacy.get("arguments"))


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


def _legacy_id(name: str) -> str:
    """Returns an id for a call that has only a name: its result has the same one."""
    return f"function_{(provider_name(name) or _NO_NAME)[:_LEGACY_ID_LENGTH]}"


def split_results(message: BaseMessage) -> tuple[list[ToolMessage], BaseMessage | None]:
    """Returns the results that a message carries as blocks, each as a message, and the rest of it, if anything."""
    if isinstance(message, FunctionMessage):
        return [ToolMessage(message.content, tool_call_id=_legacy_id(message.name), id=message.id)], None
    if not isinstance(message, HumanMessage | ToolMessage) or isinstance(message.content, str):
        return [], message
    # A tool message answers its own call with the block of a custom tool.
    kinds = [kind for kind in RESULT_BLOCKS if kind != _CUSTOM_RESULT or isinstance(message, HumanMessage)]
    blocks = _blocks(message, kinds)
    if not blocks:
        return [], message
    rest = [block for block in message.content if _kind(block) not in kinds]
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
        {"type": "text", "text": _result_of(_opened(block)).text}
        if isinstance(block, dict) and _kind(block) == _CUSTOM_RESULT
        else block
        for block in message.content
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
    return [_opened(block) for block in blocks_of(message) if isinstance(block, dict) and _kind(block) in kinds]


def _opened(block: dict[str, Any]) -> dict[str, Any]:
    """Returns a block without the one in which LangChain wraps a provider's own."""
    value = block.get("value") if block.get("type") == "non_standard" else None
    return value if isinstance(value, dict) else block


def _kind(block: Block) -> str:
    return "" if isinstance(block, str) else str(_opened(block).get("type"))


def _block_id(block: Mapping[str, Any]) -> str:
    """Returns the id of a block's call: OpenAI's blocks have one of their own besides."""
    return str(block.get("call_id" if "call_id" in block else "id") or "")


# Items of Responses


def item_ids(message: BaseMessage) -> set[str]:
    """Returns the ids of the items in a message."""
    return {key for block in blocks_of(message) if isinstance(block, dict) and (key := _item_id(_opened(block)))}


def _item_id(block: Mapping[str, Any]) -> str:
    kind = block.get("type")
    if kind in _STANDARD_CALLS:
        extras = block.get("extras")
        key = extras.get("item_id") if isinstance(extras, Mapping) else None
    else:
        key = block.get("tool_call_id" if kind == "server_tool_result" else "id")
    if not isinstance(key, str):
        return ""
    prefix = _PREFIXES.get(str(kind))
    is_item = kind in (*_RUN_BY_PROVIDER, *_STANDARD_CALLS) or "call_id" in block
    return key if is_item or (prefix and key.startswith(prefix)) else ""


def without_items(message: BaseMessage, sent: Collection[str] = ()) -> BaseMessage:
    """Returns a message without the ids of items and without reasoning; itself if it has none.

    A call of the provider's under an id that was sent before is left out.
    """
    if not item_ids(message):
        return message
    content: list[Block] = []
    for block in blocks_of(message):
        inner = _opened(block) if isinstance(block, dict) else {}
        key, kind = _item_id(inner), inner.get("type")
        if not key or (kind in _RUN_BY_PROVIDER and key not in sent):
            content.append(block)
        elif kind in _STANDARD_CALLS:
            content.append({**inner, "extras": {name: it for name, it in inner["extras"].items() if name != "item_id"}})
        elif kind not in (*_RUN_BY_PROVIDER, "reasoning"):
            content.append({name: it for name, it in inner.items() if name != "id"})
    return message.model_copy(update={"content": content or ("" if listed_calls(message) else _SAID_BEFORE)})
