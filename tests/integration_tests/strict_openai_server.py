"""An OpenAI-compatible server that refuses what OpenAI refuses, by its published rules.

The rules are written on the JSON of a request and use nothing of `langchain_ctxbudget` but the vocabulary file: a
prompt is judged by what is sent, not by what the package or LangChain means by it.

Where OpenAI lets something pass that its reference does not allow, or that has no use, the rules here are stricter:
arguments must be JSON, there is one system message, texts are not empty.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from langchain_ctxbudget.tokens import vocab
from tests.integration_tests.openai_server import CHAT_COMPLETIONS, Answer, Measure, OpenAIServer, pieces_of, says

RESPONSES = "/v1/responses"

Body = Mapping[str, Any]
Problems = Iterator[str]

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_SYSTEM_ROLES = ("system", "developer")

# -- what a request may hold, by OpenAI's API reference

_CHAT_KEYS = frozenset(
    "model messages audio frequency_penalty function_call functions logit_bias logprobs max_completion_tokens "
    "max_tokens metadata modalities n parallel_tool_calls prediction presence_penalty prompt_cache_key "
    "prompt_cache_retention reasoning_effort response_format safety_identifier seed service_tier stop store stream "
    "stream_options temperature tool_choice tools top_logprobs top_p user verbosity web_search_options".split()
)
_RESPONSES_KEYS = frozenset(
    "model input background context_management conversation include instructions max_output_tokens max_tool_calls "
    "metadata parallel_tool_calls previous_response_id prompt prompt_cache_key prompt_cache_retention reasoning "
    "safety_identifier service_tier store stream stream_options temperature text tool_choice tools top_logprobs top_p "
    "truncation user".split()
)
_MESSAGE_KEYS: Mapping[str, frozenset[str]] = {
    "system": frozenset({"role", "content", "name"}),
    "developer": frozenset({"role", "content", "name"}),
    "user": frozenset({"role", "content", "name"}),
    "assistant": frozenset({"role", "content", "name", "tool_calls", "function_call", "refusal", "audio"}),
    "tool": frozenset({"role", "content", "tool_call_id"}),
    "function": frozenset({"role", "content", "name"}),
}
_TEXT_PARTS: Mapping[str, frozenset[str]] = {"text": frozenset({"type", "text"})}
_PARTS: Mapping[str, Mapping[str, frozenset[str]]] = {
    "user": {
        **_TEXT_PARTS,
        "image_url": frozenset({"type", "image_url"}),
        "input_audio": frozenset({"type", "input_audio"}),
        "file": frozenset({"type", "file"}),
    },
    "assistant": {**_TEXT_PARTS, "refusal": frozenset({"type", "refusal"})},
}
"""Keys of the parts of a content, by role and type; every other role has parts of text only."""
_INPUT_PARTS: Mapping[str, frozenset[str]] = {
    "input_text": frozenset({"type", "text"}),
    "input_image": frozenset({"type", "image_url", "file_id", "detail"}),
    "input_file": frozenset({"type", "file_id", "file_url", "file_data", "filename", "detail"}),
}
_OUTPUT_PARTS: Mapping[str, frozenset[str]] = {
    "output_text": frozenset({"type", "text", "annotations", "logprobs"}),
    "refusal": frozenset({"type", "refusal"}),
}
_ITEM_KEYS: Mapping[str, frozenset[str]] = {
    "message": frozenset({"type", "role", "content", "id", "status", "phase"}),
    "function_call": frozenset({"type", "id", "call_id", "name", "arguments", "status"}),
    "function_call_output": frozenset({"type", "id", "call_id", "output", "status"}),
    "reasoning": frozenset({"type", "id", "summary", "content", "encrypted_content", "status"}),
    "item_reference": frozenset({"type", "id"}),
}
_BUILT_IN_ITEMS = frozenset(
    "web_search_call file_search_call computer_call computer_call_output code_interpreter_call image_generation_call "
    "custom_tool_call custom_tool_call_output mcp_call mcp_list_tools mcp_approval_request mcp_approval_response "
    "compaction local_shell_call local_shell_call_output".split()
)
"""Known, and not looked into."""
_ID_PREFIXES = {"message": "msg_", "function_call": "fc_", "reasoning": "rs_"}
_TEXT_TYPES = frozenset({"text", "input_text", "output_text"})

# -- what both endpoints share


def _has_known_keys(value: object, known: Iterable[str], where: str) -> Problems:
    if not isinstance(value, Mapping):
        yield f"{where}: expected an object, got {type(value).__name__}"
        return
    for key in value:
        if key not in known:
            yield f"{where}: unknown parameter {key!r}"


def _is_name(value: object) -> bool:
    return isinstance(value, str) and bool(_NAME.fullmatch(value))


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _is_json_object(value: object) -> bool:
    if not isinstance(value, str):
        return False
    try:
        return isinstance(json.loads(value), dict)
    except ValueError:
        return False


def _system_first(roles: Sequence[object], where: str) -> Problems:
    for position, role in enumerate(roles):
        if role in _SYSTEM_ROLES and position:
            yield f"{where}[{position}]: a {role} message that is not the first"


def _contents(content: object, parts: Mapping[str, frozenset[str]], where: str, *, may_be_empty: bool) -> Problems:
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
        yield from _has_known_keys(part, parts[kind], place)
        if kind in _TEXT_TYPES and not _is_text(part.get("text")) and not may_be_empty:
            yield f"{place}: an empty text"
        elif kind in _TEXT_TYPES and not isinstance(part.get("text"), str):
            yield f"{place}: text must be a string"
        elif kind == "image_url":
            yield from _image_urls(part.get("image_url"), place)


def _image_urls(image: object, where: str) -> Problems:
    yield from _has_known_keys(image, ("url", "detail"), f"{where}.image_url")
    if isinstance(image, Mapping):
        if not _is_text(image.get("url")):
            yield f"{where}.image_url: no url"
        if image.get("detail", "auto") not in ("auto", "low", "high", "original"):
            yield f"{where}.image_url: unknown detail {image['detail']!r}"


def _functions(tools: object, choice: object, function_of: Callable[[Body], object]) -> Problems:
    """The tools of a request.

    Args:
        tools: `tools` of the request.
        choice: its `tool_choice`.
        function_of: where a tool, or a choice, holds its function.
    """
    if tools is None:
        if choice not in (None, "none"):
            yield "tool_choice: only allowed when tools are given"
        return
    if not isinstance(tools, list) or not tools:
        yield f"tools: expected a list with at least one tool, got {tools!r:.60}"
        return
    names = []
    for number, tool in enumerate(tools):
        where = f"tools[{number}]"
        if not isinstance(tool, Mapping) or not isinstance(tool.get("type"), str):
            yield f"{where}: a tool has a type"
        elif tool["type"] == "function":
            function = function_of(tool)
            yield from _schemas(function, where)
            names.append(function.get("name") if isinstance(function, Mapping) else None)
    yield from (f"tools: {count} tools named {name!r}" for name, count in Counter(names).items() if count > 1)
    if isinstance(choice, Mapping) and choice.get("type") == "function":
        chosen = function_of(choice)
        if not isinstance(chosen, Mapping) or chosen.get("name") not in names:
            yield f"tool_choice: {choice!r:.80} is not among the tools"


def _schemas(function: object, where: str) -> Problems:
    yield from _has_known_keys(function, ("name", "description", "parameters", "strict"), where)
    if not isinstance(function, Mapping):
        return
    if not _is_name(function.get("name")):
        yield f"{where}: refused name {function.get('name')!r}"
    if not isinstance(function.get("description", ""), str):
        yield f"{where}: the description is no string"
    parameters = function.get("parameters")
    if parameters is not None and not (isinstance(parameters, Mapping) and parameters.get("type") == "object"):
        yield f"{where}: parameters must be the schema of an object"


# -- Chat Completions


def chat_problems(body: Body) -> list[str]:
    """What Chat Completions refuses in a request; empty for a good one."""
    messages = body.get("messages")
    found = [*_has_known_keys(body, _CHAT_KEYS, "body")]
    if not _is_text(body.get("model")):
        found.append("model: you must provide one")
    found += _chat_functions(body)
    if not isinstance(messages, list) or not messages:
        return [*found, f"messages: expected a list with at least one message, got {messages!r:.60}"]
    shapes = [
        problem for number, message in enumerate(messages) for problem in _message(message, f"messages[{number}]")
    ]
    if shapes:
        return [*found, *shapes]  # what stands where can be judged of well-formed messages only
    found += _system_first([message["role"] for message in messages], "messages")
    return [*found, *_answers(messages), *_call_ids(messages)]


def _chat_functions(body: Body) -> Problems:
    tools = body.get("tools")
    yield from _functions(tools, body.get("tool_choice"), lambda tool: tool.get("function"))
    for number, tool in enumerate(tools if isinstance(tools, list) else ()):
        if isinstance(tool, Mapping):
            yield from _has_known_keys(tool, ("type", "function", "custom"), f"tools[{number}]")


def _message(message: object, where: str) -> Problems:
    """The form of one message."""
    role = message.get("role") if isinstance(message, Mapping) else None
    if not isinstance(message, Mapping) or not isinstance(role, str) or role not in _MESSAGE_KEYS:
        yield f"{where}: unknown role {role!r}"
        return
    yield from _has_known_keys(message, _MESSAGE_KEYS[role], where)
    if "name" in message and not _is_name(message["name"]):
        yield f"{where}: refused name {message['name']!r}"
    if role == "function" and "name" not in message:
        yield f"{where}: a function message needs the name of its function"
    if role == "tool" and not _is_text(message.get("tool_call_id")):
        yield f"{where}: a tool message needs a tool_call_id"
    content = message.get("content")
    does = False
    if role == "assistant":
        yield from _calls(message, where)
        does = any(message.get(key) is not None for key in ("tool_calls", "function_call", "refusal", "audio"))
        if content is None and not does:
            yield f"{where}: an assistant message without content or tool_calls"
    if content is not None or role != "assistant":
        parts = _PARTS.get(role, _TEXT_PARTS)
        yield from _contents(content, parts, f"{where}.content", may_be_empty=does or role in ("tool", "function"))


def _calls(message: Body, where: str) -> Problems:
    """The form of the calls of an assistant's message."""
    if "tool_calls" in message and "function_call" in message:
        yield f"{where}: tool_calls and function_call at once"
    if message.get("function_call") is not None:
        yield from _function(message["function_call"], f"{where}.function_call")
    if "tool_calls" not in message:
        return
    calls = message["tool_calls"]
    if not isinstance(calls, list) or not calls:
        yield f"{where}.tool_calls: expected a list with at least one call, got {calls!r:.60}"
        return
    for number, call in enumerate(calls):
        place = f"{where}.tool_calls[{number}]"
        yield from _has_known_keys(call, ("id", "type", "function"), place)
        if isinstance(call, Mapping):
            if not _is_text(call.get("id")):
                yield f"{place}: a call needs an id"
            if call.get("type") != "function":
                yield f"{place}: unknown type {call.get('type')!r}"
            yield from _function(call.get("function"), f"{place}.function")


def _function(function: object, where: str) -> Problems:
    """A function that is called: its name, and its arguments as the text of a JSON object."""
    yield from _has_known_keys(function, ("name", "arguments"), where)
    if isinstance(function, Mapping):
        if not _is_name(function.get("name")):
            yield f"{where}: refused name {function.get('name')!r}"
        if not _is_json_object(function.get("arguments")):
            yield f"{where}: arguments {function.get('arguments')!r:.60} are not the text of a JSON object"


def _ids_of(message: Body) -> list[str]:
    return [call["id"] for call in message.get("tool_calls") or ()]


def _answers(messages: Sequence[Body]) -> Problems:
    """Right behind a message with calls stands one result for each of them; no result stands anywhere else."""
    waiting: list[str] = []
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
        waiting = _ids_of(message)
        function = (message.get("function_call") or {}).get("name")
    if waiting:
        yield f"messages: tool_call_ids without a response message at the end: {waiting}"


def _call_ids(messages: Sequence[Body]) -> Problems:
    counts = Counter(call_id for message in messages for call_id in _ids_of(message))
    yield from (f"messages: tool call id {call_id!r} {count} times" for call_id, count in counts.items() if count > 1)


# -- Responses


def responses_problems(body: Body) -> list[str]:
    """What Responses refuses in a request; empty for a good one."""
    items = body.get("input")
    found = [*_has_known_keys(body, _RESPONSES_KEYS, "body")]
    if not _is_text(body.get("model")):
        found.append("model: you must provide one")
    if body.get("previous_response_id") is not None:
        found.append(f"previous_response_id: {body['previous_response_id']!r} not found, nothing is stored here")
    found += _functions(body.get("tools"), body.get("tool_choice"), _flat_function)
    if isinstance(items, str):
        return [*found, *([] if items.strip() else ["input: an empty text"])]
    if not isinstance(items, list) or not items:
        return [*found, f"input: expected a string or a list with at least one item, got {items!r:.60}"]
    shapes = [problem for number, item in enumerate(items) for problem in _item(item, f"input[{number}]")]
    if shapes:
        return [*found, *shapes]
    found += _system_first([*(["system"] if body.get("instructions") else []), *map(_item_role, items)], "input")
    return [*found, *_said(items), *_thoughts(items), *_outputs(items), *_item_ids(items)]


def _flat_function(tool: Body) -> Mapping[str, Any]:
    return {key: value for key, value in tool.items() if key != "type"}


def _item_type(item: Body) -> Any:
    return item.get("type", "message" if "role" in item else None)


def _item_role(item: Body) -> Any:
    return item.get("role")


def _item(item: object, where: str) -> Problems:
    """The form of one item."""
    kind = _item_type(item) if isinstance(item, Mapping) else None
    if not isinstance(item, Mapping) or not isinstance(kind, str) or kind not in _ITEM_KEYS.keys() | _BUILT_IN_ITEMS:
        yield f"{where}: unknown item type {kind!r}"
        return
    if kind in _BUILT_IN_ITEMS:
        return
    yield from _has_known_keys(item, _ITEM_KEYS[kind], where)
    prefix = _ID_PREFIXES.get(kind, "")
    if "id" in item and not str(item["id"]).startswith(prefix):
        yield f"{where}: expected an id that begins with {prefix!r}, got {item['id']!r}"
    match kind:
        case "message":
            yield from _message_item(item, where)
        case "function_call":
            yield from _function({key: item[key] for key in ("name", "arguments") if key in item}, where)
        case "function_call_output":
            yield from _contents(item.get("output"), _INPUT_PARTS, f"{where}.output", may_be_empty=True)
        case "reasoning" if not isinstance(item.get("summary"), list):
            yield f"{where}: reasoning needs a summary"
        case _:
            pass
    if kind in ("function_call", "function_call_output") and not _is_text(item.get("call_id")):
        yield f"{where}: a {kind} needs a call_id"


def _message_item(item: Body, where: str) -> Problems:
    role = item.get("role")
    if role not in ("user", "assistant", *_SYSTEM_ROLES):
        yield f"{where}: unknown role {role!r}"
        return
    parts = _OUTPUT_PARTS if role == "assistant" else _INPUT_PARTS
    # Of an assistant that only calls, there may be an item that says nothing; where it stands is judged by `_said`.
    yield from _contents(item.get("content"), parts, f"{where}.content", may_be_empty=role == "assistant")


def _said(items: Sequence[Body]) -> Problems:
    """An assistant says something, or calls in the next item."""
    for position, item in enumerate(items):
        if _item_role(item) != "assistant":
            continue
        content = item["content"]
        texts = [content] if isinstance(content, str) else [part.get("text") for part in content if "text" in part]
        following = items[position + 1].get("type") if position + 1 < len(items) else None
        if texts and not any(map(_is_text, texts)) and following != "function_call":
            yield f"input[{position}]: an assistant message without content or calls"


def _thoughts(items: Sequence[Body]) -> Problems:
    """Reasoning leads to something that the assistant says or does."""
    for position, item in enumerate(items):
        following = items[position + 1] if position + 1 < len(items) else {"role": "user"}
        is_last = following.get("type") == "function_call_output" or _item_role(following) not in (None, "assistant")
        if item.get("type") == "reasoning" and is_last:
            yield f"input[{position}]: reasoning without its required following item"


def _outputs(items: Sequence[Body]) -> Problems:
    """Every call has one output, which stands behind it."""
    counts = Counter(item["call_id"] for item in items if item.get("type") == "function_call")
    yield from (
        f"input: call_id {call_id!r} of {count} function calls" for call_id, count in counts.items() if count > 1
    )
    called: set[str] = set()
    answered: set[str] = set()
    for position, item in enumerate(items):
        match item.get("type"):
            case "function_call":
                called.add(item["call_id"])
            case "function_call_output":
                if item["call_id"] not in called:
                    yield f"input[{position}]: no tool call found for function call output {item['call_id']!r}"
                if item["call_id"] in answered:
                    yield f"input[{position}]: a second function call output for {item['call_id']!r}"
                answered.add(item["call_id"])
            case _:
                pass
    if missing := called - answered:
        yield f"input: no tool output found for function calls {sorted(missing)}"


def _item_ids(items: Sequence[Body]) -> Problems:
    counts = Counter(item["id"] for item in items if item.get("type") != "item_reference" and item.get("id"))
    yield from (f"input: duplicate item id {item_id!r}" for item_id, count in counts.items() if count > 1)


# -- sizes


def chat_form(body: Body) -> Body:
    """A request with its messages as Chat Completions has them, whichever endpoint it was made for."""
    if "input" not in body:
        return body
    messages: list[dict[str, Any]] = []
    if body.get("instructions"):
        messages.append({"role": "system", "content": body["instructions"]})
    given = body["input"]
    items = [{"role": "user", "content": given}] if isinstance(given, str) else given
    for item in items:
        match _item_type(item):
            case "message":
                messages.append({"role": item["role"], "content": _chat_content(item["content"])})
            case "function_call":
                if not messages or messages[-1]["role"] != "assistant":
                    messages.append({"role": "assistant", "content": None})
                function = {"name": item["name"], "arguments": item["arguments"]}
                call = {"id": item["call_id"], "type": "function", "function": function}
                messages[-1].setdefault("tool_calls", []).append(call)
            case "function_call_output":
                output = _chat_content(item["output"])
                messages.append({"role": "tool", "tool_call_id": item["call_id"], "content": output})
            case _:
                messages.append({"role": "assistant", "content": _json(item)})
    return {**body, "messages": messages}


def _chat_content(content: str | Sequence[Body]) -> str | list[Body]:
    if isinstance(content, str):
        return content
    return [{**part, "type": "text"} if part["type"] in _TEXT_TYPES else part for part in content]


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


@cache
def count(text: str) -> int:
    """Tokens of a text in o200k_base."""
    return len(vocab.encoding().encode_ordinary(text))


LOW_DETAIL_TOKENS = 85
LEAST_IMAGE_TOKENS = 85 + 170
"""An image of one tile."""


def recount(body: Body, *, call_tokens: Callable[[Body], int] | None = None) -> int:
    """Input tokens of a request, by OpenAI's cookbook, "How to count tokens with tiktoken".

    It has 3 tokens per message, its role and content, a name and one more, and 3 for the reply. Tools and a response
    format are counted as compact JSON. Calls are counted as `langchain-openai` does, by name and arguments, unless
    another rule is given. An image is counted as the smallest one.

    Args:
        body: a request to either endpoint.
        call_tokens: from a call of `tool_calls` to its tokens.
    """
    tokens = 3 + sum(_message_tokens(message, call_tokens or _call_tokens) for message in chat_form(body)["messages"])
    tokens += sum(count(_json(tool)) for tool in body.get("tools") or ())
    answer_format = body.get("response_format") or (body.get("text") or {}).get("format")
    return tokens + (count(_json(answer_format)) if answer_format else 0)


def json_call_tokens(call: Body) -> int:
    """A call as the whole of its compact JSON, which is more than any published rule says."""
    return count(_json(call))


def _call_tokens(call: Body) -> int:
    return count(call["function"]["name"]) + count(call["function"]["arguments"])


def _message_tokens(message: Body, call_tokens: Callable[[Body], int]) -> int:
    tokens = 3 + count(message["role"])
    if "name" in message:
        tokens += 1 + count(message["name"])
    tokens += sum(map(call_tokens, message.get("tool_calls") or ()))
    if message.get("function_call"):
        tokens += call_tokens({"function": message["function_call"]})
    content = message.get("content") or ""
    return tokens + (count(content) if isinstance(content, str) else sum(map(_part_tokens, content)))


def _part_tokens(part: Body) -> int:
    if part["type"] == "text":
        return count(part["text"])
    if part["type"] in ("image_url", "input_image"):
        image = part if part["type"] == "input_image" else part["image_url"]
        return LOW_DETAIL_TOKENS if image.get("detail") == "low" else LEAST_IMAGE_TOKENS
    return count(_json(part))


# -- the server


class StrictOpenAIServer(OpenAIServer):
    """Answers good requests to Chat Completions and to Responses, and refuses all others with status 400.

    An answer is made from the request in the form of Chat Completions, so one script serves both endpoints. `received`
    has the bodies as they came.
    """

    def __init__(
        self,
        answer: Answer = lambda _: says("Done."),
        *,
        max_tokens: int | None = None,
        measure: Measure = recount,
    ) -> None:
        """Make a server, which runs in a `with` block.

        Args:
            answer: from a good request to the message of its answer.
            max_tokens: requests of more input tokens are refused.
            measure: how input tokens are counted.
        """
        super().__init__(lambda body: answer(chat_form(body)), measure)
        self.max_tokens = max_tokens
        self.refused: list[str] = []

    def reply(self, path: str, body: Mapping[str, Any]) -> tuple[int, Mapping[str, Any]]:
        """Judge a request, and answer it if it is good."""
        if path not in (CHAT_COMPLETIONS, RESPONSES):
            return 404, _error(f"Invalid URL (POST {path})", None)
        problems = chat_problems(body) if path == CHAT_COMPLETIONS else responses_problems(body)
        if problems:
            return self._refuse("; ".join(problems), None)
        tokens = self.measure(body)
        if self.max_tokens is not None and tokens > self.max_tokens:
            told = f"Input tokens exceed the configured limit of {self.max_tokens} tokens. Yours are {tokens} tokens."
            return self._refuse(told, "context_length_exceeded")
        completion = self.complete(body)
        return 200, completion if path == CHAT_COMPLETIONS else _response(completion)

    def _refuse(self, told: str, code: str | None) -> tuple[int, Mapping[str, Any]]:
        self.refused.append(told)
        return 400, _error(told, code)

    def events(self, reply: Mapping[str, Any], body: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
        """An answer as the events of the stream of its endpoint."""
        if reply["object"] != "response":
            return super().events(reply, body)
        return ({**event, "sequence_number": number} for number, event in enumerate(_response_events(reply)))


def _error(told: str, code: str | None) -> Mapping[str, Any]:
    return {"error": {"message": told, "type": "invalid_request_error", "param": None, "code": code}}


def _response(completion: Mapping[str, Any]) -> Mapping[str, Any]:
    """A completion as Responses answers it."""
    [choice] = completion["choices"]
    key = completion["id"].removeprefix("chatcmpl-")
    output: list[dict[str, Any]] = []
    if text := choice["message"].get("content"):
        part = {"type": "output_text", "text": text, "annotations": []}
        output.append(
            {"type": "message", "id": f"msg_{key}", "role": "assistant", "status": "completed", "content": [part]}
        )
    for number, call in enumerate(choice["message"].get("tool_calls") or ()):
        item = {"type": "function_call", "id": f"fc_{key}_{number}", "call_id": call["id"], "status": "completed"}
        output.append({**item, **call["function"]})
    usage = completion["usage"]
    return {
        "id": f"resp_{key}",
        "object": "response",
        "created_at": completion["created"],
        "model": completion["model"],
        "status": "completed",
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "parallel_tool_calls": True,
        "temperature": 1.0,
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
        "output": output,
        "usage": {
            "input_tokens": usage["prompt_tokens"],
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": usage["completion_tokens"],
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": usage["total_tokens"],
        },
    }


def _response_events(response: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield {"type": "response.created", "response": {**response, "status": "in_progress", "output": [], "usage": None}}
    for index, item in enumerate(response["output"]):
        place = {"output_index": index, "item_id": item["id"]}
        begun: dict[str, Any] = {"content": []} if item["type"] == "message" else {"arguments": ""}
        added = {**item, **begun, "status": "in_progress"}
        yield {"type": "response.output_item.added", "output_index": index, "item": added}
        if item["type"] == "message":
            [part] = item["content"]
            inside = {**place, "content_index": 0}
            yield {"type": "response.content_part.added", **inside, "part": {**part, "text": ""}}
            for piece in pieces_of(part["text"]):
                yield {"type": "response.output_text.delta", **inside, "delta": piece, "logprobs": []}
            yield {"type": "response.output_text.done", **inside, "text": part["text"], "logprobs": []}
            yield {"type": "response.content_part.done", **inside, "part": part}
        else:
            for piece in pieces_of(item["arguments"]):
                yield {"type": "response.function_call_arguments.delta", **place, "delta": piece}
            done = {"arguments": item["arguments"], "name": item["name"]}
            yield {"type": "response.function_call_arguments.done", **place, **done}
        yield {"type": "response.output_item.done", "output_index": index, "item": item}
    yield {"type": "response.completed", "response": response}
