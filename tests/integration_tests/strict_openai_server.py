"""What OpenAI refuses, by its published rules, for both of its endpoints; and a server like it.

The rules are written on the JSON of a request and use nothing of `langchain_ctxbudget` but the
vocabulary file: a prompt is judged by what is sent, not by what the package or LangChain means by
it.

Where OpenAI lets something pass that its reference does not allow, or that has no use, the rules
here are stricter: arguments must be JSON, there is one system message, texts are not empty.
Parameters beside the messages are not judged.
"""

import json
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache
from itertools import pairwise
from typing import Any

from langchain_ctxbudget.tokens import vocab
from tests.integration_tests.openai_server import Answer, Measure, OpenAIServer, says

Body = Mapping[str, Any]
Problems = Iterator[str]

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_SYSTEM_ROLES = ("system", "developer")

# -- what a request may hold, by OpenAI's API reference

_PLAIN_KEYS = {"role", "content", "name"}
_MESSAGE_KEYS: Mapping[str, Collection[str]] = {
    "system": _PLAIN_KEYS,
    "developer": _PLAIN_KEYS,
    "user": _PLAIN_KEYS,
    "function": _PLAIN_KEYS,
    "assistant": _PLAIN_KEYS | {"tool_calls", "function_call", "refusal", "audio"},
    "tool": {"role", "content", "tool_call_id"},
}
Parts = Mapping[str, Collection[str]]
"""Keys of the parts of a content by their type."""
_TEXT_PARTS: Parts = {"text": {"type", "text"}}
_PARTS: Mapping[str, Parts] = {
    "user": {
        "text": {"type", "text"},
        "image_url": {"type", "image_url"},
        "input_audio": {"type", "input_audio"},
        "file": {"type", "file"},
    },
    "assistant": {"text": {"type", "text"}, "refusal": {"type", "refusal"}},
}
"""By role; every other role has parts of text only."""
_ITEMS = frozenset(
    {
        "code_interpreter_call",
        "compaction",
        "custom_tool_call",
        "custom_tool_call_output",
        "file_search_call",
        "function_call",
        "function_call_output",
        "image_generation_call",
        "item_reference",
        "mcp_approval_request",
        "mcp_approval_response",
        "mcp_call",
        "mcp_list_tools",
        "message",
        "reasoning",
        "web_search_call",
    }
)
_ID_PREFIXES = {"message": "msg_", "function_call": "fc_", "reasoning": "rs_"}


# -- what both endpoints share


def _known_keys(value: Body, known: Collection[str], where: str) -> Problems:
    for key in value:
        if key not in known:
            yield f"{where}: unknown parameter {key!r}"


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _name(value: object, where: str) -> Problems:
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        yield f"{where}: refused name {value!r}"


def _function(function: Body, where: str) -> Problems:
    yield from _known_keys(function, ("name", "arguments"), where)
    yield from _name(function.get("name"), where)
    try:
        arguments = json.loads(function["arguments"])
    except (KeyError, TypeError, ValueError):
        arguments = None
    if not isinstance(arguments, dict):
        text = f"{function.get('arguments')!r:.60}"
        yield f"{where}: arguments {text} are not the text of a JSON object"


def _system_first(roles: Sequence[object], where: str) -> Problems:
    for position, role in enumerate(roles):
        if role in _SYSTEM_ROLES and position > 0:
            yield f"{where}[{position}]: a {role} message that is not the first"


def _contents(content: object, parts: Parts, where: str, *, may_be_empty: bool) -> Problems:
    """What is wrong with a content: a text, or a list of parts of these types."""
    if isinstance(content, str):
        if not may_be_empty and not content.strip():
            yield f"{where}: an empty text"
        return
    if not isinstance(content, list) or not content:
        yield f"{where}: expected a string or a list with at least one part, got {content!r:.60}"
        return
    for number, part in enumerate(content):
        yield from _part(part, parts, f"{where}[{number}]", may_be_empty=may_be_empty)


def _part(part: object, parts: Parts, where: str, *, may_be_empty: bool) -> Problems:
    kind = part.get("type") if isinstance(part, Mapping) else None
    if not isinstance(part, Mapping) or not isinstance(kind, str) or kind not in parts:
        yield f"{where}: no part of type {kind!r} is allowed here, only {sorted(parts)}"
        return
    yield from _known_keys(part, parts[kind], where)
    if kind == "text":
        yield from _text_part(part, where, may_be_empty=may_be_empty)
    if kind == "image_url":
        yield from _image_part(part, where)


def _text_part(part: Body, where: str, *, may_be_empty: bool) -> Problems:
    text = part.get("text")
    if not isinstance(text, str) or (not may_be_empty and not text.strip()):
        yield f"{where}: an empty text"


def _image_part(part: Body, where: str) -> Problems:
    image = part["image_url"]
    yield from _known_keys(image, ("url", "detail"), f"{where}.image_url")
    if not _is_text(image.get("url")):
        yield f"{where}.image_url: no url"


# -- Chat Completions


def chat_problems(body: Body) -> list[str]:
    """What Chat Completions refuses in a request; empty for a good one."""
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        return [f"messages: expected a list with at least one message, got {messages!r:.60}"]
    problems: list[str] = []
    for number, message in enumerate(messages):
        problems += _message(message, f"messages[{number}]")
    if problems:
        return problems  # what stands where can be judged of well-formed messages only
    roles = [message["role"] for message in messages]
    return [*_system_first(roles, "messages"), *_answers(messages), *_call_ids(messages)]


def _message(message: Body, where: str) -> Problems:
    """What is wrong with the form of one message."""
    role = message.get("role")
    if role not in _MESSAGE_KEYS:
        yield f"{where}: unknown role {role!r}"
        return
    yield from _known_keys(message, _MESSAGE_KEYS[role], where)
    if "name" in message or role == "function":
        yield from _name(message.get("name"), where)
    if role == "tool" and not _is_text(message.get("tool_call_id")):
        yield f"{where}: a tool message needs a tool_call_id"
    if role == "assistant":
        yield from _assistant(message, where)
        return
    may_be_empty = role in ("tool", "function")
    parts = _PARTS.get(role, _TEXT_PARTS)
    content = message.get("content")
    yield from _contents(content, parts, f"{where}.content", may_be_empty=may_be_empty)


def _assistant(message: Body, where: str) -> Problems:
    yield from _calls(message, where)
    has_more = any(
        message.get(key) is not None for key in ("tool_calls", "function_call", "refusal", "audio")
    )
    content = message.get("content")
    if content is not None:
        parts = _PARTS["assistant"]
        yield from _contents(content, parts, f"{where}.content", may_be_empty=has_more)
    elif not has_more:
        yield f"{where}: an assistant message without content or tool_calls"


def _calls(message: Body, where: str) -> Problems:
    """What is wrong with the form of the calls of an assistant's message."""
    if "tool_calls" in message and "function_call" in message:
        yield f"{where}: tool_calls and function_call at once"
    if message.get("function_call") is not None:
        yield from _function(message["function_call"], f"{where}.function_call")
    if "tool_calls" not in message:
        return
    calls = message["tool_calls"]
    if not calls:
        yield f"{where}.tool_calls: expected a list with at least one call, got {calls!r:.60}"
        return
    for number, call in enumerate(calls):
        if call is not None:
            yield from _call(call, f"{where}.tool_calls[{number}]")


def _call(call: Body, where: str) -> Problems:
    yield from _known_keys(call, ("id", "type", "function"), where)
    if not _is_text(call.get("id")):
        yield f"{where}: a call needs an id"
    if call.get("type") != "function":
        yield f"{where}: unknown type {call.get('type')!r}"
    yield from _function(call["function"], f"{where}.function")


def _answers(messages: Sequence[Body]) -> Problems:
    """Right behind a message with calls stands one result for each of them.

    No result stands anywhere else.
    """
    unanswered: list[str] = []
    function: str | None = None
    for position, message in enumerate(messages):
        where = f"messages[{position}]"
        if message["role"] == "tool":
            if message["tool_call_id"] in unanswered:
                unanswered.remove(message["tool_call_id"])
            else:
                yield (
                    f"{where}: a tool message must be a response to a preceding message with "
                    "tool_calls"
                )
            continue
        if unanswered:
            yield f"{where}: tool_call_ids without a response message before it: {unanswered}"
        if message["role"] == "function" and message["name"] != function:
            yield f"{where}: a function message must follow the call of its function"
        unanswered = _ids_of_calls(message)
        function = (message.get("function_call") or {}).get("name")
    if unanswered:
        yield f"messages: tool_call_ids without a response message at the end: {unanswered}"


def _ids_of_calls(message: Body) -> list[str]:
    return [call["id"] for call in message.get("tool_calls") or ()]


def _call_ids(messages: Sequence[Body]) -> Problems:
    """The id of a call belongs to it alone."""
    counts: Counter[str] = Counter()
    for message in messages:
        counts.update(_ids_of_calls(message))
    for call_id, number in counts.items():
        if number > 1:
            yield f"messages: tool call id {call_id!r} {number} times"


# -- Responses


def responses_problems(body: Body) -> list[str]:
    """What Responses refuses in a request made of items; empty for a good one."""
    problems: list[str] = []
    previous = body.get("previous_response_id")
    if previous is not None:
        problems.append(f"previous_response_id: {previous!r} not found, nothing is stored here")
    items = body["input"]
    for number, item in enumerate(items):
        problems += _item(item, f"input[{number}]")
    roles = [item.get("role") for item in items]
    if body.get("instructions"):
        roles.insert(0, "system")
    problems += _system_first(roles, "input")
    problems += _answered_items(items)
    problems += _followed(items)
    problems += _outputs(items)
    problems += _item_ids(items)
    return problems


def _item(item: Body, where: str) -> Problems:
    """What is wrong with the form of one item."""
    kind = item.get("type", "message")
    if kind not in _ITEMS:
        yield f"{where}: unknown item type {kind!r}"
    prefix = _ID_PREFIXES.get(kind, "")
    if "id" in item and not str(item["id"]).startswith(prefix):
        yield f"{where}: expected an id that begins with {prefix!r}, got {item['id']!r}"
    if kind == "reasoning" and not isinstance(item.get("summary"), list):
        yield f"{where}: reasoning needs a summary"


_END: Body = {"role": "user"}
"""What stands for the item behind the last one: the user goes on."""


def _answered_items(items: Sequence[Body]) -> Problems:
    """An assistant says something, or calls in the next item."""
    for position, (item, following) in enumerate(pairwise([*items, _END])):
        is_empty = item.get("role") == "assistant" and _has_only_empty_texts(item["content"])
        if is_empty and following.get("type") != "function_call":
            yield f"input[{position}]: an assistant message without content or calls"


def _has_only_empty_texts(content: Any) -> bool:
    if isinstance(content, str):
        return not content.strip()
    texts = [part.get("text") for part in content if "text" in part]
    return bool(texts) and not any(_is_text(text) for text in texts)


def _followed(items: Sequence[Body]) -> Problems:
    """Reasoning leads to something that is said or done."""
    for position, (item, following) in enumerate(pairwise([*items, _END])):
        is_output = following.get("type") == "function_call_output"
        is_of_others = following.get("role") not in (None, "assistant")
        if item.get("type") == "reasoning" and (is_output or is_of_others):
            yield f"input[{position}]: reasoning without its required following item"


def _outputs(items: Sequence[Body]) -> Problems:
    """Every call has one output, which stands behind it."""
    counts: Counter[str] = Counter()
    answered: set[str] = set()
    for position, item in enumerate(items):
        where = f"input[{position}]"
        if item.get("type") == "function_call":
            counts[item["call_id"]] += 1
        if item.get("type") == "function_call_output":
            call_id = item["call_id"]
            if call_id not in counts:
                yield f"{where}: no tool call found for function call output {call_id!r}"
            if call_id in answered:
                yield f"{where}: a second function call output for {call_id!r}"
            answered.add(call_id)
    for call_id, number in counts.items():
        if number > 1:
            yield f"input: call_id {call_id!r} of {number} function calls"
    missing = counts.keys() - answered
    if missing:
        yield f"input: no tool output found for function calls {sorted(missing)}"


def _item_ids(items: Sequence[Body]) -> Problems:
    """No item stands there twice, but for references."""
    own = [item for item in items if item.get("type") != "item_reference"]
    counts = Counter(item["id"] for item in own if item.get("id"))
    for item_id, number in counts.items():
        if number > 1:
            yield f"input: duplicate item id {item_id!r}"


# -- sizes


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


@cache
def count(text: str) -> int:
    return len(vocab.encoding().encode_ordinary(text))


LOW_DETAIL_TOKENS = 85
LEAST_IMAGE_TOKENS = 255
"""An image of one tile: 85 tokens, and 170 for the tile."""


def recount(body: Body) -> int:
    """Input tokens of a request, by OpenAI's cookbook, "How to count tokens with tiktoken".

    It has 3 tokens per message, its role and content, a name and one more, and 3 for the reply.
    Tools are counted by its section 7 and not below their compact JSON, as a response format is;
    calls as `langchain-openai` does, by name and arguments, an image as the smallest one.
    """
    tokens = 3 + sum(_message_tokens(message) for message in body["messages"])
    tools = [tool for tool in body.get("tools") or () if "function" in tool]
    json_tokens = sum(count(_json(tool)) for tool in tools)
    tokens += max(_tool_tokens(tools), json_tokens)
    response_format = body.get("response_format")
    if response_format:
        tokens += count(_json(response_format))
    return tokens


def _tool_tokens(tools: Sequence[Body]) -> int:
    """The cookbook's section 7, with the constants of gpt-4o."""
    if not tools:
        return 0
    return 12 + sum(_function_tokens(tool["function"]) for tool in tools)


def _function_tokens(function: Body) -> int:
    tokens = 7 + count(f"{function['name']}:{_description(function)}")
    properties = function.get("parameters", {}).get("properties", {})
    if properties:
        tokens += 3
    for name, schema in properties.items():
        tokens += _property_tokens(name, schema)
    return tokens


def _property_tokens(name: str, schema: Body) -> int:
    tokens = 3 + count(f"{name}:{schema.get('type', '')}:{_description(schema)}")
    if "enum" in schema:
        tokens -= 3
        tokens += sum(3 + count(str(value)) for value in schema["enum"])
    return tokens


def _description(schema: Body) -> str:
    return str(schema.get("description", "")).removesuffix(".")


def _message_tokens(message: Body) -> int:
    tokens = 3 + count(message["role"])
    if "name" in message:
        tokens += 1 + count(message["name"])
    functions = [call["function"] for call in message.get("tool_calls") or ()]
    if message.get("function_call"):
        functions.append(message["function_call"])
    for function in functions:
        tokens += count(function["name"]) + count(function["arguments"])
    content = message.get("content") or ""
    if isinstance(content, str):
        return tokens + count(content)
    return tokens + sum(_part_tokens(part) for part in content)


def _part_tokens(part: Body) -> int:
    if part["type"] == "text":
        return count(part["text"])
    if part["type"] != "image_url":
        return count(_json(part))
    if part["image_url"].get("detail") == "low":
        return LOW_DETAIL_TOKENS
    return LEAST_IMAGE_TOKENS


# -- the server


class StrictOpenAIServer(OpenAIServer):
    """Answers good requests to Chat Completions, and refuses all others with status 400.

    `received` has the bodies as they came. Requests of more than `max_tokens` input tokens are
    refused.
    """

    def __init__(
        self,
        answer: Answer = lambda _: says("Done."),
        *,
        max_tokens: int | None = None,
        measure: Measure = recount,
    ) -> None:
        super().__init__(answer, measure)
        self.max_tokens = max_tokens
        self.refused: list[str] = []

    def reply(self, path: str, body: Body) -> tuple[int, Body]:
        problems = chat_problems(body)
        if problems:
            return self.refuse("; ".join(problems), code=None)
        if self.max_tokens is not None:
            tokens = self.measure(body)
            if tokens > self.max_tokens:
                message = (
                    f"Input tokens exceed the configured limit of {self.max_tokens} tokens. "
                    f"Yours are {tokens} tokens."
                )
                return self.refuse(message, code="context_length_exceeded")
        return super().reply(path, body)

    def refuse(self, message: str, code: str | None) -> tuple[int, Body]:
        self.refused.append(message)
        error = {
            "message": message,
            "type": "invalid_request_error",
            "param": None,
            "code": code,
        }
        return 400, {"error": error}
