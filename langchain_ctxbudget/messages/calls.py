"""Tool calls and their results, brought from every form into LangChain's own, and the items of OpenAI's Responses.

| as it is given | as it is sent |
|---|---|
| blocks `tool_use`, `function_call`, not in `tool_calls` | in `tool_calls`, too |
| blocks `custom_tool_call`, which one provider reads | in `tool_calls` alone |
| `invalid_tool_calls` (arguments that are no JSON object, which some servers refuse) | `tool_calls` |
| `additional_kwargs["tool_calls"]` that LangChain could not read | `tool_calls` |
| `additional_kwargs["function_call"]` (OpenAI until 2023) | `tool_calls` |
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
from collections import Counter, defaultdict, deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, FunctionMessage, HumanMessage, ToolMessage

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
_RUN_RESULT = "server_tool_result"
_RUN_BY_PROVIDER = (
    *("compaction", "web_search_call", "file_search_call", "code_interpreter_call", "image_generation_call"),
    *("mcp_call", "mcp_list_tools", "mcp_approval_request", "tool_search_call", "tool_search_output"),
    *("server_tool_call", _RUN_RESULT),
)
_REASONING, _OUTPUTS, _CALLS = "reasoning", "tool_outputs", "__openai_function_call_ids__"
"""Keys of `additional_kwargs` in which langchain-openai kept items until output version 1."""
_SAID_BEFORE = "[The same as before.]"

Call = dict[str, Any]


def provider_name(name: str) -> str | None:
    """Returns a name in the form that every provider accepts, or None where nothing of it is left."""
    clean = _REFUSED_IN_NAMES.sub("_", name)[:_MAX_NAME_LENGTH]
    return clean if clean.strip("_-") else None


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
    listed = _listed(message)
    if not _blocks(message, (_CUSTOM_CALL,)):
        return listed
    others = [block for block in message.content if _kind(block) != _CUSTOM_CALL]
    return without_items(listed.model_copy(update={"content": others}))


def _listed(message: AIMessage) -> AIMessage:
    found = [_call(call["id"] or "", call["name"], call["args"]) for call in message.invalid_tool_calls]
    if not found and not message.tool_calls:
        found = list(_raw_calls(message))
    listed = Counter(call["id"] or "" for call in (*message.tool_calls, *found))
    for block in _blocks(message, CALL_BLOCKS):
        if listed[_block_id(block)]:
            listed[_block_id(block)] -= 1
        else:
            found.append(_call_of(block))
    legacy = message.additional_kwargs.get("function_call")
    if not found and not message.tool_calls and isinstance(legacy, Mapping) and legacy:
        name = str(legacy.get("name") or "")
        found = [_call(_legacy_id(name), name, legacy.get("arguments"))]
    if not found:
        return message
    others = {key: value for key, value in message.additional_kwargs.items() if key not in _RAW_CALLS}
    calls = [*message.tool_calls, *found]
    return message.model_copy(update={"tool_calls": calls, "invalid_tool_calls": [], "additional_kwargs": others})


def split_results(message: BaseMessage) -> tuple[list[ToolMessage], BaseMessage | None]:
    """Returns the results that a message carries as blocks, each as a message, and the rest of it, if anything."""
    if isinstance(message, FunctionMessage):
        return [ToolMessage(message.content, tool_call_id=_legacy_id(message.name), id=message.id)], None
    kinds = set(RESULT_BLOCKS) if isinstance(message, HumanMessage | ToolMessage) else set()
    if isinstance(message, ToolMessage):  # it answers its own call with that block
        kinds.remove(_CUSTOM_RESULT)
    blocks = _blocks(message, kinds)
    if not blocks:
        return [], message
    results = [_result_of(block) for block in blocks]
    rest = [block for block in message.content if _kind(block) not in kinds]
    return results, message.model_copy(update={"content": rest}) if any(map(says_something, rest)) else None


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
    """Gives the calls of a message these ids, and names that providers accept, also where its content repeats them.

    Where an id changes, the ids of items go: the same message was most often sent before.
    """
    given = listed_calls(message)
    calls = [{**call, "id": call_id, "name": call_name(call)} for call, call_id in zip(given, ids, strict=True)]
    changes: dict[str, Any] = {"tool_calls": calls}
    left: defaultdict[str, deque[Call]] = defaultdict(deque)
    for before, call in zip(given, calls, strict=True):
        left[before["id"] or ""].append(call)
    if not isinstance(message.content, str):
        changes["content"] = [
            {**block, _id_key(block): call["id"], "name": call["name"]}
            if isinstance(block, dict)
            and block.get("type") in CALL_BLOCKS
            and (waiting := left[_block_id(block)])
            and (call := waiting.popleft())
            else block
            for block in message.content
        ]
    changed = message.model_copy(update=changes)
    return changed if [call["id"] or "" for call in given] == list(ids) else without_items(changed)


def answered(messages: Sequence[BaseMessage]) -> tuple[dict[tuple[int, int], int], list[int]]:
    """Returns the position of the result of every answered call (message, place in it), and results that answer none.

    Ids may repeat: a result answers the newest open call before it, else the first one after it that nothing else
    answers. So a call that was never answered does not take the results of later ones.
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
        for place, call in reversed(list(enumerate(listed_calls(message)))):
            waiting[call["id"] or ""].append((position, place))
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


def call_name(call: Mapping[str, Any]) -> str:
    """Returns the name of a call as every provider accepts it."""
    return provider_name(call["name"] or "") or _NO_NAME


def says_something(block: str | dict[str, Any]) -> bool:
    """Tells if a content block has anything in it beyond white space."""
    if isinstance(block, str):
        return bool(block.strip())
    return block.get("type") != "text" or bool(str(block.get("text") or "").strip())


def listed_calls(message: BaseMessage) -> list[Call]:
    """Returns the calls of a message that has them in `tool_calls`."""
    return [dict(call) for call in message.tool_calls] if isinstance(message, AIMessage) else []


def _blocks(message: BaseMessage, kinds: Collection[str]) -> list[dict[str, Any]]:
    if isinstance(message.content, str):
        return []
    return [_opened(block) for block in message.content if isinstance(block, dict) and _kind(block) in kinds]


def _kind(block: str | dict[str, Any]) -> str:
    return "" if isinstance(block, str) else str(_opened(block).get("type"))


def _id_key(block: Mapping[str, Any]) -> str:
    """Returns the key of the call's id: OpenAI's blocks have one of their own besides."""
    return "call_id" if "call_id" in block else "id"


def _block_id(block: Mapping[str, Any]) -> str:
    return str(block.get(_id_key(block)) or "")


def _call_of(block: Mapping[str, Any]) -> Call:
    arguments = next((block[key] for key in ("input", "args", "arguments") if key in block), None)
    if block["type"] == _CUSTOM_CALL:
        arguments = {_CUSTOM_ARGUMENT: arguments}
    return _call(_block_id(block), block.get("name"), arguments)


def _raw_calls(message: AIMessage) -> Iterator[Call]:
    """Yields the calls in OpenAI's form, which are sent where a message has none in LangChain's."""
    raw = message.additional_kwargs.get("tool_calls")
    for call in raw if isinstance(raw, list) else []:
        if isinstance(call, Mapping):
            custom = call.get("custom")
            function = custom if isinstance(custom, Mapping) else call.get("function")
            inner = function if isinstance(function, Mapping) else {}
            arguments = inner.get("arguments") if inner is not custom else {_CUSTOM_ARGUMENT: inner.get("input")}
            yield _call(str(call.get("id") or ""), inner.get("name"), arguments)


def _call(call_id: str, name: object, arguments: object) -> Call:
    read = arguments
    if isinstance(arguments, str):
        try:
            read = json.loads(arguments or "{}")
        except ValueError:
            read = None
    if not isinstance(read, dict):
        read = {_UNREADABLE: arguments if isinstance(arguments, str) else json.dumps(arguments, default=str)}
    return {"name": str(name or ""), "args": read, "id": call_id, "type": "tool_call"}


def _legacy_id(name: str) -> str:
    """Returns an id for a call that has only a name: its result has the same one."""
    return f"function_{(provider_name(name) or _NO_NAME)[:_LEGACY_ID_LENGTH]}"


def _result_of(block: Mapping[str, Any]) -> ToolMessage:
    id_key, content_key = RESULT_BLOCKS[block["type"]]
    content = block.get(content_key)
    return ToolMessage(
        content if isinstance(content, str | list) else "" if content is None else json.dumps(content, default=str),
        tool_call_id=str(block.get(id_key) or ""),
        status="error" if block.get("is_error") else "success",
    )


# Items of Responses


def item_ids(message: BaseMessage) -> set[str]:
    """Returns the ids of the items in a message."""
    return {key for key, _ in _items(message)}


def repeated_items(message: BaseMessage, sent: Collection[str]) -> set[str]:
    """Returns the ids of items in a message that were sent before, or stand in it twice.

    Parts of one text, of one thought, or of a call and its result by the provider have one id rightly.
    """
    repeated = item_ids(message).intersection(sent)
    own: set[str] = set()
    before = None
    for key, block in _items(message):
        kind = block.get("type")
        is_part = kind == _RUN_RESULT or _PREFIXES.get(str(kind)) == "msg_"
        goes_on = kind == _REASONING and key == before and "summary" not in block
        if key in own and not is_part and not goes_on:
            repeated.add(key)
        before = None if is_part else key
        if not is_part:
            own.add(key)
    return repeated


def without_items(message: BaseMessage, sent: Collection[str] = ()) -> BaseMessage:
    """Returns a message without the ids of items and without reasoning; itself if it has none.

    A call of the provider's under an id that was sent before is left out.
    """
    if not item_ids(message):
        return message
    here: set[tuple[str, bool]] = set()

    def kept(block: Any) -> Any:  # noqa: ANN401 - a block can hold anything
        """Returns a block without its id; None for reasoning, and for a repeated call of the provider's."""
        inner = _opened(block) if isinstance(block, dict) else {}
        if not (key := _item_id(inner)):
            return block
        kind = inner.get("type")
        if kind not in _RUN_BY_PROVIDER:
            return None if kind == _REASONING else _without_id(inner)
        part = (key, kind == _RUN_RESULT)  # a call and its result have one id
        if key in sent or part in here:
            return None
        here.add(part)
        return block

    changes: dict[str, Any] = {}
    if not isinstance(message.content, str):
        has_calls = isinstance(message, AIMessage) and message.tool_calls
        changes["content"] = [*filter(None, map(kept, message.content))] or ("" if has_calls else _SAID_BEFORE)
    if isinstance(message, AIMessage):
        others = {key: value for key, value in message.additional_kwargs.items() if key not in (_REASONING, _CALLS)}
        if isinstance(outputs := others.get(_OUTPUTS), list):
            others[_OUTPUTS] = [*filter(None, map(kept, outputs))]
        changes["additional_kwargs"] = others
    return message.model_copy(update=changes)


def _items(message: BaseMessage) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yields everything that is an item in a message, with its id, also in the older form of langchain-openai."""
    blocks: list[Any] = [] if isinstance(message.content, str) else message.content
    if isinstance(message, AIMessage):
        extra = message.additional_kwargs
        called, thought, outputs = extra.get(_CALLS), extra.get(_REASONING), extra.get(_OUTPUTS)
        older = [{"call_id": "", "id": str(key)} for key in called.values()] if isinstance(called, Mapping) else []
        older += [{"type": _REASONING, **thought}] if isinstance(thought, Mapping) else []
        blocks = [*older, *(outputs if isinstance(outputs, list) else ()), *blocks]
    for block in blocks:
        if isinstance(block, dict) and (key := _item_id(_opened(block))):
            yield key, _opened(block)


def _opened(block: dict[str, Any]) -> dict[str, Any]:
    """Returns a block without the one in which LangChain wraps a provider's own."""
    value = block.get("value") if block.get("type") == "non_standard" else None
    return value if isinstance(value, dict) else block


def _item_id(block: Mapping[str, Any]) -> str | None:
    kind = block.get("type")
    if kind in _STANDARD_CALLS:
        extras = block.get("extras")
        key = extras.get("item_id") if isinstance(extras, Mapping) else None
        return key if isinstance(key, str) else None
    key = block.get("tool_call_id" if kind == _RUN_RESULT else "id")
    if not isinstance(key, str) or not key:
        return None
    prefix = _PREFIXES.get(str(kind))
    return key if kind in _RUN_BY_PROVIDER or "call_id" in block or (prefix and key.startswith(prefix)) else None


def _without_id(block: Mapping[str, Any]) -> dict[str, Any]:
    if block.get("type") in _STANDARD_CALLS:
        return {**block, "extras": {key: value for key, value in block["extras"].items() if key != "item_id"}}
    return {key: value for key, value in block.items() if key != "id"}
