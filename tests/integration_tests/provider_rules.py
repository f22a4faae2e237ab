"""What providers refuse in a request, judged on the JSON that their LangChain packages send.

OpenAI, Chat Completions: by the rules of `strict_openai_server`. Anthropic, Messages, by those
below: "`tool_use` ids were found without `tool_result` blocks immediately after", "unexpected
`tool_use_id` found in `tool_result` blocks", "`tool_use` ids must be unique", "text content blocks
must be non-empty", "first message must use the 'user' role", "'image' blocks are not permitted
within assistant turns".
"""

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from langchain_anthropic import ChatAnthropic
from langchain_core.messages import BaseMessage
from langchain_openai.chat_models.base import _convert_message_to_dict

from tests.integration_tests.strict_openai_server import chat_problems

Body = Mapping[str, Any]
Problems = Iterator[str]
ANTHROPIC = ChatAnthropic(model="claude-sonnet-4-5", api_key="x")
_NOT_JUDGED = {"assistant": ("reasoning", "web_search_call"), "tool": ("image_url",)}
"""Parts that only Responses reads, which a model that answers with them is asked through."""


def check_openai(messages: Sequence[BaseMessage]) -> list[str]:
    """What Chat Completions refuses in messages; empty for good ones."""
    bodies = [_convert_message_to_dict(message) for message in messages]
    for body in bodies:
        if body["role"] in _NOT_JUDGED and isinstance(body["content"], list):
            body["content"] = _judged_content(body)
    return chat_problems({"model": "gpt-4o", "messages": bodies})


def _judged_content(message: Body) -> Any:
    """The parts of a content that Chat Completions reads, or what stands for none."""
    left_out = _NOT_JUDGED[message["role"]]
    parts = [part for part in message["content"] if part.get("type") not in left_out]
    if parts:
        return [_plain_part(part) for part in parts]
    if message["role"] == "assistant":
        return None
    return ""


def _plain_part(part: Body) -> Body:
    """A part of text without what else LangChain keeps in it."""
    if part.get("type") == "text":
        return {"type": "text", "text": part["text"]}
    return part


def check_anthropic(messages: Sequence[BaseMessage]) -> list[str]:
    """What Anthropic refuses in messages; empty for good ones."""
    try:
        body = ANTHROPIC._get_request_payload(list(messages))
    except (ValueError, TypeError, KeyError, UserWarning) as error:
        return [f"cannot be sent: {error!r}"]
    return anthropic_problems(body)


# -- Anthropic's rules

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_ID = re.compile(r"[a-zA-Z0-9_-]+")
_BLOCKS: Mapping[str, Collection[str]] = {
    "user": {"text", "image", "document", "tool_result"},
    "assistant": {"text", "tool_use", "thinking", "redacted_thinking"},
}
"""The types of blocks that a message may have, by its role."""
_RESULT_BLOCKS = {"text", "image", "document"}
_KEYS = {
    "text": {"type", "text", "cache_control", "citations"},
    "image": {"type", "source", "cache_control"},
    "document": {"type", "source", "cache_control", "citations", "title", "context"},
    "tool_use": {"type", "id", "name", "input", "cache_control"},
    "tool_result": {"type", "tool_use_id", "content", "is_error", "cache_control"},
    "thinking": {"type", "thinking", "signature"},
    "redacted_thinking": {"type", "data"},
}
"""The keys that a block may have, by its type."""


def anthropic_problems(body: Body) -> list[str]:
    """What Anthropic refuses in a request; empty for a good one."""
    messages = body["messages"]
    problems = list(_system(body.get("system")))
    if not messages or messages[0]["role"] != "user":
        problems.append("messages: first message must use the 'user' role")
    for number, message in enumerate(messages):
        problems += _message(message, f"messages[{number}]")
    if problems:
        return problems  # what stands where can be judged of well-formed messages only
    return [*_turns(messages), *_ids(messages)]


def _system(system: object) -> Problems:
    for block in _as_blocks(system):
        if block["type"] != "text" or not block["text"].strip():
            yield f"system: {block!r:.60} is no text"


def _as_blocks(content: Any) -> list[Any]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    if isinstance(content, list):
        return content
    return []


def _blocks(message: Body) -> list[Any]:
    return _as_blocks(message["content"])


def _blocks_of_type(kind: str, messages: Sequence[Body]) -> list[Any]:
    blocks = []
    for message in messages:
        blocks += [block for block in _blocks(message) if block["type"] == kind]
    return blocks


def _message(message: Body, where: str) -> Problems:
    if set(message) != {"role", "content"} or message["role"] not in _BLOCKS:
        yield f"{where}: {sorted(message)} of role {message.get('role')!r}"
        return
    if not _blocks(message):
        yield f"{where}: no content"
    for block in _blocks(message):
        yield from _block(block, _BLOCKS[message["role"]], where)


def _block(block: object, allowed: Collection[str], where: str) -> Problems:
    if not isinstance(block, dict) or block.get("type") not in allowed:
        yield f"{where}: {block!r:.60} is not permitted, only {sorted(allowed)}"
        return
    kind = block["type"]
    unknown_keys = block.keys() - _KEYS[kind]
    if unknown_keys:
        yield f"{where}: unknown keys {sorted(unknown_keys)} of a {kind} block"
    if kind == "text" and not block["text"].strip():
        yield f"{where}: text content blocks must be non-empty"
    if kind == "tool_use":
        yield from _call(block, where)
    if kind == "tool_result":
        yield from _result(block, where)


def _result(block: Body, where: str) -> Problems:
    if isinstance(block["content"], list):
        for part in block["content"]:
            yield from _block(part, _RESULT_BLOCKS, f"{where}.tool_result")


def _call(block: Body, where: str) -> Problems:
    has_id = _ID.fullmatch(block["id"] or "")
    has_name = _NAME.fullmatch(block["name"] or "")
    if not has_id or not has_name:
        yield f"{where}: refused id {block['id']!r} or name {block['name']!r}"
    if not isinstance(block["input"], dict):
        yield f"{where}: an input that is no object"


def _turns(messages: Sequence[Body]) -> Problems:
    """Messages of one role in a row are one turn.

    A turn's calls are answered at the beginning of the next one.
    """
    calls: Counter[str] = Counter()
    for role, group in groupby(messages, lambda message: message["role"]):
        turn = list(group)
        results = _ids_of_blocks("tool_result", "tool_use_id", turn)
        if role == "user" and results != calls:
            yield f"results {results} for calls {calls}"
        if not _begins_with_results(turn, results.total()):
            yield "a result behind other content of the user's turn"
        calls = _ids_of_blocks("tool_use", "id", turn)
    if calls:
        yield f"calls {calls} at the end"


def _ids_of_blocks(kind: str, key: str, messages: Sequence[Body]) -> Counter[str]:
    """The ids that blocks of one type have under a key."""
    return Counter(block[key] for block in _blocks_of_type(kind, messages))


def _begins_with_results(turn: Sequence[Body], number: int) -> bool:
    """Whether the first blocks of a turn are so many results."""
    types: list[str] = []
    for message in turn:
        types += [block["type"] for block in _blocks(message)]
    return types[:number] == ["tool_result"] * number


def _ids(messages: Sequence[Body]) -> Problems:
    for key, number in _ids_of_blocks("tool_use", "id", messages).items():
        if number > 1:
            yield f"`tool_use` ids must be unique: {key!r} {number} times"
