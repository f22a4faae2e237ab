"""What OpenAI refuses, by its published rules, for both of its endpoints.

And a server that does so.

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
from typing import Any

from langchain_ctxbudget.tokens import vocab
from tests.integration_tests.openai_server import Answer, Measure, OpenAIServer, says

Body = Mapping[str, Any]
Problems = Iterator[str]

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_SYSTEM_ROLES = ("system", "developer")

# -- what a request may hold, by OpenAI's API reference

_SAID = {"role", "content", "name"}
_MESSAGE_KEYS: Mapping[str, Collection[str]] = {
    **dict.fromkeys(("system", "developer", "user", "function"), _SAID),
    "assistant": _SAID | {"tool_calls", "function_call", "refusal", "audio"},
    "tool": {"role", "content", "tool_call_id"},
}
Parts = Mapping[str, Collection[str]]
"""Keys of the parts of a content by their type."""
_TEXT_PARTS: Parts = {"text": {"type", "text"}}
_PARTS: Mapping[str, Parts] = {
    "user": {
        **_TEXT_PARTS,
        **{kind: {"type", kind} for kind in ("image_url", "input_audio", "file")},
    },
    "assistant": {**_TEXT_PARTS, "refusal": {"type", "refusal"}},
}
"""By role; every other role has parts of text only."""
_ITEMS = frozenset(
    "message function_call function_call_output reasoning item_reference web_search_call file_search_call compaction "
    "code_interpreter_call image_generation_call custom_tool_call custom_tool_call_output mcp_call mcp_list_tools "
    "mcp_approval_request mcp_approval_response".split()
)
_ID_PREFIXES = {"message": "msg_", "function_call": "fc_", "reasoning": "rs_"}
# -- what both endpoints share


def _known_keys(value: Body, known: Collection[str], where: str) -> Problems:
    yield from (f"{where}: unknown parameter {key!r}" for key in value if key not in known)


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
        yield f"{where}: arguments {function.get('arguments')!r:.60} are not the text of a JSON object"


def _system_first(roles: Sequence[object], where: str) -> Problems:
    for position, role in enumerate(roles):
        if role in _SYSTEM_ROLES and position:
            yield f"{where}[{position}]: a {role} message that is not the first"


def _contents(content: object, parts: Parts, where: str, *, may_be_empty: bool) -> Problems:
    """A text, or a list of known parts."""
    if isinstance(content, str):
        if not may_be_empty and not content.strip():
            yield f"{where}: an empty text"
        return
    if not isinstance(content, list) or not content:
        yield f"{where}: expected a string or a list with at least one part, got {content!r:.60}"
        return
    for number, part in enumerate(content):
        place = f"{where}[{number}]"
        kind = part.get("type") if isinstance(part, Mapping) else None
        if not isinstance(kind, str) or kind not in parts:
            yield f"{place}: no part of type {kind!r} is allowed here, only {sorted(parts)}"
            continue
        yield from _known_keys(part, parts[kind], place)
        if kind == "text" and (
            not isinstance(part.get("text"), str) or not (may_be_empty or _is_text(part["text"]))
        ):
            yield f"{place}: an empty text"
        if kind == "image_url":
            yield from _known_keys(part[kind], ("url", "detail"), f"{place}.image_url")
            if not _is_text(part[kind].get("url")):
                yield f"{place}.image_url: no url"


# -- Chat Completions


def chat_problems(body: Body) -> list[str]:
    """What Chat Completions refuses in a request; empty for a good one."""
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        return [f"messages: expected a list with at least one message, got {messages!r:.60}"]
    shapes = [
        problem
        for number, message in enumerate(messages)
        for problem in _message(message, f"messages[{number}]")
    ]
    if shapes:
        return shapes  # what stands where can be judged of well-formed messages only
    return [
        *_system_first([message["role"] for message in messages], "messages"),
        *_answers(messages),
    ]


def _message(message: Body, where: str) -> Problems:
    """The form of one message."""
    role = message.get("role")
    if role not in _MESSAGE_KEYS:
        yield f"{where}: unknown role {role!r}"
        return
    yield from _known_keys(message, _MESSAGE_KEYS[role], where)
    if "name" in message or role == "function":
        yield from _name(message.get("name"), where)
    if role == "tool" and not _is_text(message.get("tool_call_id")):
        yield f"{where}: a tool message needs a tool_call_id"
    content = message.get("content")
    does = any(
        message.get(key) is not None for key in ("tool_calls", "function_call", "refusal", "audio")
    )
    if role == "assistant":
        yield from _calls(message, where)
        if content is None and not does:
            yield f"{where}: an assistant message without content or tool_calls"
    if content is not None or role != "assistant":
        parts = _PARTS.get(role, _TEXT_PARTS)
        yield from _contents(
            content, parts, f"{where}.content", may_be_empty=does or role in ("tool", "function")
        )


def _calls(message: Body, where: str) -> Problems:
    """The form of the calls of an assistant's message."""
    if "tool_calls" in message and "function_call" in message:
        yield f"{where}: tool_calls and function_call at once"
    if message.get("function_call") is not None:
        yield from _function(message["function_call"], f"{where}.function_call")
    calls = message.get("tool_calls", [None])
    if not calls:
        yield f"{where}.tool_calls: expected a list with at least one call, got {calls!r:.60}"
    for number, call in enumerate(calls):
        if call is not None:
            place = f"{where}.tool_calls[{number}]"
            yield from _known_keys(call, ("id", "type", "function"), place)
            if not _is_text(call.get("id")):
                yield f"{place}: a call needs an id"
            if call.get("type") != "function":
                yield f"{place}: unknown type {call.get('type')!r}"
            yield from _function(call["function"], f"{place}.function")


def _answers(messages: Sequence[Body]) -> Problems:
    """Right behind a message with calls stands one result for each of them.

    No result stands anywhere else.
    """
    waiting: list[str] = []
    called: Counter[str] = Counter()
    function: str | None = None
    for position, message in enumerate(messages):
        where = f"messages[{position}]"
        if message["role"] == "tool":
            if message["tool_call_id"] in waiting:
                waiting.remove(message["tool_call_id"])
            else:
                yield f"{where}: a tool message must be a response to a preceding message with tool_calls"
            continue
        if waiting:
            yield f"{where}: tool_call_ids without a response message before it: {waiting}"
        if message["role"] == "function" and message["name"] != function:
            yield f"{where}: a function message must follow the call of its function"
        waiting = [call["id"] for call in message.get("tool_calls") or ()]
        called.update(waiting)
        function = (message.get("function_call") or {}).get("name")
    if waiting:
        yield f"messages: tool_call_ids without a response message at the end: {waiting}"
    yield from (
        f"messages: tool call id {call_id!r} {count} times"
        for call_id, count in called.items()
        if count > 1
    )


# -- Responses


def responses_problems(body: Body) -> list[str]:
    """What Responses refuses in a request made of items; empty for a good one."""
    found = []
    if body.get("previous_response_id") is not None:
        found.append(
            f"previous_response_id: {body['previous_response_id']!r} not found, nothing is stored here"
        )
    items = body["input"]
    for number, item in enumerate(items):
        kind = item.get("type", "message")
        if kind not in _ITEMS:
            found.append(f"input[{number}]: unknown item type {kind!r}")
        prefix = _ID_PREFIXES.get(kind, "")
        if "id" in item and not str(item["id"]).startswith(prefix):
            found.append(
                f"input[{number}]: expected an id that begins with {prefix!r}, got {item['id']!r}"
            )
        if kind == "reasoning" and not isinstance(item.get("summary"), list):
            found.append(f"input[{number}]: reasoning needs a summary")
    roles = [item.get("role") for item in items]
    found += _system_first([*(["system"] if body.get("instructions") else []), *roles], "input")
    return [*found, *_followed(items), *_outputs(items)]


def _followed(items: Sequence[Body]) -> Problems:
    """An assistant says something, or calls in the next item.

    Reasoning leads to something that is said or done.
    """
    for position, (item, following) in enumerate(
        zip(items, [*items[1:], {"role": "user"}], strict=True)
    ):
        if item.get("role") == "assistant":
            content = item["content"]
            texts = (
                [content]
                if isinstance(content, str)
                else [part.get("text") for part in content if "text" in part]
            )
            if texts and not any(map(_is_text, texts)) and following.get("type") != "function_call":
                yield f"input[{position}]: an assistant message without content or calls"
        is_last = following.get("type") == "function_call_output" or following.get("role") not in (
            None,
            "assistant",
        )
        if item.get("type") == "reasoning" and is_last:
            yield f"input[{position}]: reasoning without its required following item"


def _outputs(items: Sequence[Body]) -> Problems:
    """Every call has one output, which stands behind it; no item stands there twice."""
    called: Counter[str] = Counter()
    answered: set[str] = set()
    for position, item in enumerate(items):
        if item.get("type") == "function_call":
            called[item["call_id"]] += 1
        if item.get("type") == "function_call_output":
            if item["call_id"] not in called:
                yield f"input[{position}]: no tool call found for function call output {item['call_id']!r}"
            if item["call_id"] in answered:
                yield f"input[{position}]: a second function call output for {item['call_id']!r}"
            answered.add(item["call_id"])
    yield from (
        f"input: call_id {key!r} of {count} function calls"
        for key, count in called.items()
        if count > 1
    )
    if missing := called.keys() - answered:
        yield f"input: no tool output found for function calls {sorted(missing)}"
    ids = Counter(
        item["id"] for item in items if item.get("type") != "item_reference" and item.get("id")
    )
    yield from (
        f"input: duplicate item id {item_id!r}" for item_id, count in ids.items() if count > 1
    )


# -- sizes


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


@cache
def count(text: str) -> int:
    return len(vocab.encoding().encode_ordinary(text))


LOW_DETAIL_TOKENS = 85
LEAST_IMAGE_TOKENS = 85 + 170
"""An image of one tile."""


def recount(body: Body) -> int:
    """Input tokens of a request, by OpenAI's cookbook, "How to count tokens with tiktoken".

    It has 3 tokens per message, its role and content, a name and one more, and 3 for the reply.
    Tools are counted by its section 7 and not below their compact JSON, as a response format is;
    calls as `langchain-openai` does, by name and arguments, an image as the smallest one.
    """
    tools = [tool for tool in body.get("tools") or () if "function" in tool]
    tokens = 3 + sum(map(_message_tokens, body["messages"]))
    tokens += max(_tool_tokens(tools), sum(count(_json(tool)) for tool in tools))
    answer_format = body.get("response_format")
    return tokens + (count(_json(answer_format)) if answer_format else 0)


def _tool_tokens(tools: Sequence[Mapping[str, Any]]) -> int:
    """OpenAI's cookbook, "How to count tokens with tiktoken", section 7, with the constants of gpt-4o."""

    def described(schema: Mapping[str, Any]) -> str:
        description = str(schema.get("description", ""))
        return description.removesuffix(".")

    tokens = 0
    for function in (given["function"] for given in tools):
        tokens += 7 + count(f"{function['name']}:{described(function)}")
        properties = function.get("parameters", {}).get("properties", {})
        tokens += 3 if properties else 0
        for key, schema in properties.items():
            tokens += 3
            if "enum" in schema:
                tokens += -3 + sum(3 + count(str(item)) for item in schema["enum"])
            tokens += count(f"{key}:{schema.get('type', '')}:{described(schema)}")
    return tokens + 12 if tools else 0


def _message_tokens(message: Body) -> int:
    tokens = 3 + count(message["role"])
    if "name" in message:
        tokens += 1 + count(message["name"])
    functions = [call["function"] for call in message.get("tool_calls") or ()]
    functions += [legacy] if (legacy := message.get("function_call")) else []
    tokens += sum(count(function["name"]) + count(function["arguments"]) for function in functions)
    content = message.get("content") or ""
    return tokens + (
        count(content) if isinstance(content, str) else sum(map(_part_tokens, content))
    )


def _part_tokens(part: Body) -> int:
    if part["type"] == "text":
        return count(part["text"])
    if part["type"] == "image_url":
        return LOW_DETAIL_TOKENS if part["image_url"].get("detail") == "low" else LEAST_IMAGE_TOKENS
    return count(_json(part))


# -- the server


class StrictOpenAIServer(OpenAIServer):
    """Answers good requests to Chat Completions, and refuses all others with status 400.

    `received` has the bodies as they came. Requests of more than `max_tokens` input tokens are refused.
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
        told = "; ".join(chat_problems(body))
        code = None
        if (
            not told
            and self.max_tokens is not None
            and (tokens := self.measure(body)) > self.max_tokens
        ):
            code = "context_length_exceeded"
            told = f"Input tokens exceed the configured limit of {self.max_tokens} tokens. Yours are {tokens} tokens."
        if not told:
            return super().reply(path, body)
        self.refused.append(told)
        return 400, {
            "error": {"message": told, "type": "invalid_request_error", "param": None, "code": code}
        }
