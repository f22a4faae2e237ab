"""Tool calls and their results in the form of LangChain that all providers read, and the items of OpenAI's Responses.

| as it is given | as it is sent |
|---|---|
| `invalid_tool_calls` (arguments that are no JSON object, which some servers refuse) | `tool_calls` |
| blocks `custom_tool_call`, which one provider reads, and reads twice | in `tool_calls` alone |
| a block `custom_tool_call_output` in the tool message of its call | its text |
| a block with a call that is not in `tool_calls`, or with a result in place of a `ToolMessage` | its JSON as text |

Responses refuses an id of an item that comes twice, and reasoning that is not followed by the item
that it led to. So a message is sent with the ids of all its items, or without them and without its
reasoning. Reasoning that nothing follows in its message is left out: the answer was cut off. A call
that the provider has run itself (a search, for example) is known by its id alone: a second time, it
is left out.
"""

import json
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any

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


def blocks_of(message: BaseMessage) -> list[Block]:
    """Returns the content of a message as a list of blocks."""
    return [message.content] if isinstance(message.content, str) else message.content


def is_text(message: BaseMessage) -> bool:
    """Tells at a glance if what a user or a model says is a text without calls, as most is."""
    is_answer = type(message) is AIMessage and not (
        message.tool_calls or message.invalid_tool_calls
    )
    return isinstance(message.content, str) and (is_answer or type(message) is HumanMessage)


def block_types(message: BaseMessage) -> set[str]:
    """Returns the types of the blocks of a message."""
    return {_kind(block) for block in blocks_of(message)}


def is_thought(block: Block) -> bool:
    """Tells if a block is reasoning of a model, in any provider's form."""
    return _kind(block) in THOUGHTS


def text_of(block: Block) -> str | None:
    """Returns the text of a block that is text; None for any other."""
    text = (
        block
        if isinstance(block, str)
        else block.get("text")
        if block.get("type") == "text"
        else None
    )
    return text if isinstance(text, str) else None


def without_trailing_thoughts(blocks: Sequence[Block], message: BaseMessage) -> list[Block]:
    """Returns blocks of a content without the thoughts at their end, which lead to nothing.

    Responses refuses reasoning without the item that it led to, and Anthropic a message that ends
    with thinking: an answer was cut off there. Calls that stand in `tool_calls` alone are sent
    behind the content, so they follow.
    """
    in_content = {str(key) for block in blocks for key in _call_keys(block)}
    if not isinstance(message, AIMessage) or not in_content.issuperset(call_ids(message)):
        return list(blocks)
    end = len(blocks)
    while end and is_thought(blocks[end - 1]):
        end -= 1
    return list(blocks[:end])


def _call_keys(block: Block) -> tuple[object, ...]:
    """Returns what a block that is a call may name as the id of that call."""
    inner = opened(block)
    return (inner.get("id"), inner.get("call_id")) if _kind(block) in CALL_BLOCKS else ()


def says_something(block: Block) -> bool:
    """Tells if a content block has anything in it beyond white space."""
    is_text = isinstance(block, str) or block.get("type") == "text"
    return not is_text or bool((text_of(block) or "").strip())


def provider_name(name: str) -> str | None:
    """Returns a name in the form that every provider accepts, or None where nothing of it is left."""
    clean = ENGLISH.refused_in_names.sub("_", name)[:_MAX_NAME_LENGTH]
    return clean if clean.strip("_-") else None


def call_name(call: Mapping[str, Any]) -> str:
    """Returns the name of a call as every provider accepts it."""
    return provider_name(call["name"] or "") or _NO_NAME


def listed_calls(message: BaseMessage) -> list[dict[str, Any]]:
    """Returns the calls of a message that has them in `tool_calls`."""
    return [dict(call) for call in message.tool_calls] if isinstance(message, AIMessage) else []


def call_ids(message: BaseMessage) -> tuple[str, ...]:
    """Returns the ids of the tool calls that a message makes, valid or not.

    Empty for one without an id.
    """
    calls = (
        (*message.tool_calls, *message.invalid_tool_calls) if isinstance(message, AIMessage) else ()
    )
    return tuple(call["id"] or "" for call in calls)


def is_user(message: BaseMessage) -> bool:
    """Tells if the user says a message."""
    return (
        HumanMessage in type(message).__mro__
    )  # many times as fast as what pydantic makes of `isinstance`


def with_calls(message: BaseMessage) -> BaseMessage:
    """Returns a message with all its calls in `tool_calls`, and custom ones there alone.

    Itself where they are.
    """
    if not isinstance(message, AIMessage):
        return message
    if message.invalid_tool_calls:
        invalid = [
            ToolCall(
                name=call["name"] or "",
                args={_UNREADABLE: call["args"] or ""},
                id=call["id"],
                type="tool_call",
            )
            for call in message.invalid_tool_calls
        ]
        message = message.model_copy(
            update={"tool_calls": [*message.tool_calls, *invalid], "invalid_tool_calls": []}
        )
    rest = [
        block
        for block in blocks_of(message)
        if _kind(block) != _CUSTOM_CALL or is_raw(block, message)
    ]
    if len(rest) == len(blocks_of(message)):
        return message
    return without_items(message.model_copy(update={"content": rest}))


def is_raw(block: Block, message: BaseMessage) -> bool:
    """Tells if a block has a call that is not in `tool_calls`, or a result that no `ToolMessage` has."""
    if isinstance(message, ToolMessage) or (kind := _kind(block)) not in (
        *CALL_BLOCKS,
        *_RESULT_BLOCKS,
    ):
        return False
    inner = opened(block)  # OpenAI's blocks have an id of their own besides
    call_id = str(inner.get("call_id" if "call_id" in inner else "id") or "")
    return kind in _RESULT_BLOCKS or call_id not in call_ids(message)


def raw_text(block: Block) -> Block:
    """Returns such a block as a text."""
    return _text_block(opened(block))


def with_text_result(message: ToolMessage) -> ToolMessage:
    """Returns the result of a custom tool as text; any other as it is."""
    if _CUSTOM_RESULT not in block_types(message):
        return message
    blocks = [
        _text_block(opened(block).get("output") or "") if _kind(block) == _CUSTOM_RESULT else block
        for block in blocks_of(message)
    ]
    return message.model_copy(update={"content": blocks})


def _text_block(value: object) -> Block:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return {"type": "text", "text": text}


def renamed(message: AIMessage, ids: Sequence[str]) -> BaseMessage:
    """Gives the calls of a message these ids, and names that providers accept.

    Their blocks and items go.
    """
    called = zip(listed_calls(message), ids, strict=True)
    calls = [{**call, "id": call_id, "name": call_name(call)} for call, call_id in called]
    rest = [block for block in blocks_of(message) if _kind(block) not in CALL_BLOCKS]
    content = message.content if isinstance(message.content, str) else rest or ""
    return without_items(message.model_copy(update={"tool_calls": calls, "content": content}))


def answered(messages: Sequence[BaseMessage]) -> tuple[dict[tuple[int, int], int], list[int]]:
    """Returns the position of the result of every answered call (message, place in it), and results that answer none.

    Ids may repeat: a result answers the newest open call before it, else the first one after it
    that is still open.
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
        if calls := waiting[
            call_id
        ]:  # all after the last of these results, or they would have matched
            answers[calls.pop(calls.index(min(calls)))] = position
        else:
            orphans.append(position)
    return answers, orphans


def opened(block: Block) -> dict[str, Any]:
    """Returns a block without the one in which LangChain wraps a provider's own.

    A text has none.
    """
    if isinstance(block, str):
        return {}
    value = block.get("value") if block.get("type") == "non_standard" else None
    return value if isinstance(value, dict) else block


def _kind(block: Block) -> str:
    return str(opened(block).get("type", ""))


# Items of Responses


def item_ids(message: BaseMessage) -> set[str]:
    """Returns the ids of the items in a message."""
    blocks = () if isinstance(message.content, str) else message.content
    return {item[0] for block in blocks if (item := _item(opened(block)))}


def loses_items(message: BaseMessage, shorter: BaseMessage) -> bool:
    """Tells if a message in short has no longer all ids of items that the message has."""
    return not item_ids(message) <= item_ids(shorter)


def _item(block: Mapping[str, Any]) -> tuple[str, bool] | None:
    """Returns the id of the item that a block is, and whether the provider has run it itself."""
    if (kind := block.get("type")) in _STANDARD_CALLS:
        extras = block.get("extras")
        key = extras.get("item_id") if isinstance(extras, Mapping) else None
    else:
        key = block.get("tool_call_id" if kind == "server_tool_result" else "id")
    begins = ENGLISH.item.match(key) if isinstance(key, str) else None
    return (str(key), bool(begins[1])) if begins else None


def without_items(message: BaseMessage, sent: Collection[str] = ()) -> BaseMessage:
    """Returns a message without ids of items, reasoning, and calls of the provider's under an id sent before."""
    if not item_ids(message):
        return message
    content: list[Block] = []
    for block in blocks_of(message):
        inner = opened(block)
        item = _item(opened(block))
        if item is None or (item[1] and item[0] not in sent):
            content.append(block)
        elif inner["type"] in _STANDARD_CALLS:
            content.append(
                {
                    **inner,
                    "extras": {
                        name: it for name, it in inner["extras"].items() if name != "item_id"
                    },
                }
            )
        elif not item[1] and inner["type"] != "reasoning":
            content.append({name: it for name, it in inner.items() if name != "id"})
    return message.model_copy(
        update={"content": content or ("" if listed_calls(message) else _SAID_BEFORE)}
    )
