"""What providers refuse, written from their documentation and from what their LangChain packages send.

This is what the prompts of `langchain_ctxbudget` are judged by.

OpenAI, Chat Completions: by the rules of `strict_openai_server`, on what `langchain-openai` sends.

Anthropic, Messages, through `langchain-anthropic`: "`tool_use` ids were found without `tool_result` blocks immediately
after"; "unexpected `tool_use_id` found in `tool_result` blocks"; "`tool_use` ids must be unique"; "each tool_use must
have a single result"; "text content blocks must be non-empty"; "messages: first message must use the 'user' role".
Messages of one role in a row are one turn, in which results stand before anything else.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    FunctionMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_openai.chat_models.base import _convert_message_to_dict

from tests.integration_tests.strict_openai_server import chat_problems

_NOT_JUDGED = {"assistant": ("reasoning", "web_search_call"), "tool": ("image_url",)}
"""Parts that only Responses reads, which a model that answers with them is asked through."""
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


def check_openai(messages: Sequence[BaseMessage]) -> list[str]:
    """What OpenAI's Chat Completions would refuse in a request with these messages."""
    sent = [_convert_message_to_dict(message) for message in messages]
    for message in sent:
        if message["role"] in _NOT_JUDGED and isinstance(message["content"], list):
            kept = [part for part in message["content"] if part.get("type") not in _NOT_JUDGED[message["role"]]]
            texts = [{"type": "text", "text": part["text"]} if part.get("type") == "text" else part for part in kept]
            message["content"] = texts or (None if message["role"] == "assistant" else "")
    return chat_problems({"model": "gpt-4o", "messages": sent})


def check_anthropic(messages: Sequence[BaseMessage]) -> list[str]:
    """What Anthropic's Messages would refuse in a request with these messages."""
    found = [*_system_first(messages), *_anthropic_roles(messages), *_anthropic_turns(messages)]
    found += _anthropic_contents(messages)
    found += _names(messages)
    return found + _ids(messages)


def _system_first(messages: Sequence[BaseMessage]) -> Iterator[str]:
    for position, message in enumerate(messages):
        if isinstance(message, SystemMessage) and position:
            yield f"{position}: a system message that is not the first"


def _names(messages: Sequence[BaseMessage]) -> list[str]:
    found = []
    for position, message in enumerate(messages):
        if message.name is not None and not isinstance(message, ToolMessage) and not _NAME.fullmatch(message.name):
            found.append(f"{position}: refused name {message.name!r}")
        found += [
            f"{position}: refused name {name!r} of a call"
            for _, name in _anthropic_calls(message)
            if not _NAME.fullmatch(name or "")
        ]
    return found


def _ids(messages: Sequence[BaseMessage]) -> list[str]:
    counts = Counter(call_id for message in messages for call_id, _ in _anthropic_calls(message))
    return [
        f"call id {call_id!r} used {count} times" if call_id else f"{count} calls without an id"
        for call_id, count in counts.items()
        if count > 1 or not call_id
    ]


def _blocks(message: BaseMessage) -> list[Any]:
    """The blocks of a message, a string as one of text."""
    blocks = [message.content] if isinstance(message.content, str) else message.content
    return [{"type": "text", "text": block} if isinstance(block, str) else block for block in blocks]


# -- Anthropic


def _anthropic_calls(message: BaseMessage) -> list[tuple[str, str]]:
    """Id and name of the calls that are sent: `tool_calls`, and blocks that are not among them, but no invalid ones."""
    if not isinstance(message, AIMessage):
        return []
    calls = [(call["id"] or "", call["name"] or "") for call in message.tool_calls]
    known = {call_id for call_id, _ in calls}
    blocks = [block for block in _blocks(message) if block.get("type") == "tool_use"]
    raw = [(block.get("id") or "", block.get("name") or "") for block in blocks]
    return calls + [call for call in raw if call[0] not in known]


def _anthropic_user_blocks(message: BaseMessage) -> list[str | None]:
    """The blocks of a user's message in order: the id of its call for a result, None for anything else."""
    blocks = _blocks(message)
    results = [block.get("tool_use_id") or "" for block in blocks if block.get("type") == "tool_result"]
    if isinstance(message, ToolMessage):  # its content is sent inside one result, unless it is results already
        return [*results] if results and len(results) == len(blocks) else [message.tool_call_id]
    return [(block.get("tool_use_id") or "") if block.get("type") == "tool_result" else None for block in blocks]


def _anthropic_roles(messages: Sequence[BaseMessage]) -> Iterator[str]:
    for position, message in enumerate(messages):
        if isinstance(message, FunctionMessage) or message.type == "chat":
            yield f"{position}: a {message.type} message, which cannot be sent"
    first = next((message for message in messages if not isinstance(message, SystemMessage)), None)
    if first is None or isinstance(first, AIMessage):
        yield "the first message is not the user's"


def _anthropic_turns(messages: Sequence[BaseMessage]) -> Iterator[str]:
    """All calls of an assistant's turn are answered in the user's turn behind it, once each, before anything else."""
    calls: list[str] = []
    results: list[str] = []
    said = False
    for position, message in enumerate([*messages, AIMessage("end")]):
        if isinstance(message, SystemMessage):
            continue
        if not isinstance(message, AIMessage):
            for call_id in _anthropic_user_blocks(message):
                if call_id is None:
                    said = True
                    continue
                if said:
                    yield f"{position}: a result behind other content of the user's turn"
                results.append(call_id)
            continue
        if results or said:
            yield from _differences(position, calls, results)
            calls, results, said = [], [], False
        calls += [call_id for call_id, _ in _anthropic_calls(message)]
    if calls:
        yield f"end: calls {calls} without a result in the next turn"


def _differences(position: int, calls: list[str], results: list[str]) -> Iterator[str]:
    if missing := list((Counter(calls) - Counter(results)).elements()):
        yield f"before {position}: calls {missing} without a result in the next turn"
    if surplus := list((Counter(results) - Counter(calls)).elements()):
        yield f"before {position}: results {surplus} of no call in the turn before"


def _anthropic_contents(messages: Sequence[BaseMessage]) -> Iterator[str]:
    for position, message in enumerate(messages):
        blocks = [] if message.content == "" and _anthropic_calls(message) else _blocks(message)
        texts = [block.get("text") or "" for block in blocks if block.get("type") == "text"]
        if isinstance(message, AIMessage) and any(block.get("type") == "tool_result" for block in blocks):
            yield f"{position}: a result in an assistant message"
        if message.type == "human" and any(block.get("type") == "function_call_output" for block in blocks):
            yield f"{position}: a block of another provider"
        if isinstance(message, ToolMessage):
            if isinstance(message.content, list) and not all(text.strip() for text in texts):
                yield f"{position}: an empty text block"
        elif not all(text.strip() for text in texts):
            yield f"{position}: an empty text block"
        elif not blocks and not _anthropic_calls(message):
            yield f"{position}: no content"
