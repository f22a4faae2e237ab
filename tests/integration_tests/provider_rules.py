"""What providers refuse in a request with some messages, judged on the JSON that their LangChain packages send.

OpenAI, Chat Completions: by the rules of `strict_openai_server`. Anthropic, Messages, by those
below: "`tool_use` ids were found without `tool_result` blocks immediately after", "unexpected
`tool_use_id` found in `tool_result` blocks", "`tool_use` ids must be unique", "text content blocks
must be non-empty", "first message must use the 'user' role", "'image' blocks are not permitted
within assistant turns".
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from langchain_anthropic import ChatAnthropic
from langchain_core.messages import BaseMessage
from langchain_openai.chat_models.base import _convert_message_to_dict

from tests.integration_tests.strict_openai_server import chat_problems

Body = Mapping[str, Any]
ANTHROPIC = ChatAnthropic(model="claude-sonnet-4-5", api_key="x")
_NOT_JUDGED = {"assistant": ("reasoning", "web_search_call"), "tool": ("image_url",)}
"""Parts that only Responses reads, which a model that answers with them is asked through."""


def check_openai(messages: Sequence[BaseMessage]) -> list[str]:
    sent = [_convert_message_to_dict(message) for message in messages]
    for message in sent:
        if message["role"] in _NOT_JUDGED and isinstance(message["content"], list):
            kept = [
                part
                for part in message["content"]
                if part.get("type") not in _NOT_JUDGED[message["role"]]
            ]
            texts = [
                {"type": "text", "text": part["text"]} if part.get("type") == "text" else part
                for part in kept
            ]
            message["content"] = texts or (None if message["role"] == "assistant" else "")
    return chat_problems({"model": "gpt-4o", "messages": sent})


def check_anthropic(messages: Sequence[BaseMessage]) -> list[str]:
    try:
        body = ANTHROPIC._get_request_payload(list(messages))
    except (ValueError, TypeError, KeyError, UserWarning) as error:
        return [f"cannot be sent: {error!r}"]
    return anthropic_problems(body)


# -- Anthropic's rules

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_ID = re.compile(r"[a-zA-Z0-9_-]+")
_TEXT = {"text"}
_RESULT = {"tool_result"}
_MEDIA = {"image", "document"}
_BLOCKS = {
    "user": _TEXT | _RESULT | _MEDIA,
    "assistant": _TEXT | {"tool_use", "thinking", "redacted_thinking"},
}
_KEYS = {
    "text": {"type", "text", "cache_control", "citations"},
    "image": {"type", "source", "cache_control"},
    "document": {"type", "source", "cache_control", "citations", "title", "context"},
    "tool_use": {"type", "id", "name", "input", "cache_control"},
    "tool_result": {"type", "tool_use_id", "content", "is_error", "cache_control"},
    "thinking": {"type", "thinking", "signature"},
    "redacted_thinking": {"type", "data"},
}


def anthropic_problems(body: Body) -> list[str]:
    messages = body["messages"]
    found = [*_system(body.get("system"))]
    if not messages or messages[0]["role"] != "user":
        found.append("messages: first message must use the 'user' role")
    found += [
        told
        for number, message in enumerate(messages)
        for told in _message(message, f"messages[{number}]")
    ]
    return found or [*_turns(messages), *_ids(messages)]


def _system(system: object) -> Iterator[str]:
    blocks = [{"type": "text", "text": system}] if isinstance(system, str) else system
    for block in blocks if isinstance(blocks, list) else ():
        if block["type"] != "text" or not block["text"].strip():
            yield f"system: {block!r:.60} is no text"


def _blocks(message: Body) -> list[Any]:
    content = message["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _message(message: Body, where: str) -> Iterator[str]:
    if set(message) != {"role", "content"} or message["role"] not in _BLOCKS:
        yield f"{where}: {sorted(message)} of role {message.get('role')!r}"
        return
    if not _blocks(message):
        yield f"{where}: no content"
    for block in _blocks(message):
        yield from _block(block, _BLOCKS[message["role"]], where)


def _block(block: object, allowed: set[str], where: str) -> Iterator[str]:
    kind = block.get("type") if isinstance(block, dict) else None
    if not isinstance(block, dict) or kind not in allowed:
        yield f"{where}: {kind!r} blocks are not permitted, only {sorted(allowed)}"
        return
    if unknown := block.keys() - _KEYS[kind]:
        yield f"{where}: unknown keys {sorted(unknown)} of a {kind} block"
    match kind:
        case "text" if not block["text"].strip():
            yield f"{where}: text content blocks must be non-empty"
        case "tool_use":
            if not _ID.fullmatch(block["id"] or "") or not _NAME.fullmatch(block["name"] or ""):
                yield f"{where}: refused id {block['id']!r} or name {block['name']!r}"
            if not isinstance(block["input"], dict):
                yield f"{where}: an input that is no object"
        case "tool_result" if isinstance(block["content"], list):
            for part in block["content"]:
                yield from _block(part, _TEXT | _MEDIA, f"{where}.tool_result")
        case _:
            pass


def _turns(messages: Sequence[Body]) -> Iterator[str]:
    """Messages of one role in a row are one turn.

    A turn's calls are answered at the beginning of the next one.
    """
    calls: Counter[str] = Counter()
    for role, said in groupby(messages, lambda message: message["role"]):
        blocks = [block for message in said for block in _blocks(message)]
        results = Counter(
            block["tool_use_id"] for block in blocks if block["type"] == "tool_result"
        )
        if role == "user" and results != calls:
            yield f"results {results} for calls {calls}"
        if any(block["type"] != "tool_result" for block in blocks[: results.total()]):
            yield "a result behind other content of the user's turn"
        calls = Counter(block["id"] for block in blocks if block["type"] == "tool_use")
    if calls:
        yield f"calls {calls} at the end"


def _ids(messages: Sequence[Body]) -> Iterator[str]:
    counts = Counter(
        block["id"]
        for message in messages
        for block in _blocks(message)
        if block["type"] == "tool_use"
    )
    yield from (
        f"`tool_use` ids must be unique: {key!r} {number} times"
        for key, number in counts.items()
        if number > 1
    )
