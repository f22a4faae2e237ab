"""What the models of every provider reply, as their LangChain packages return it.

A reply is written as the JSON of the provider's API, and read by the package's own converter.
"""

import base64
import json
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from anthropic.types.beta import BetaMessage
from google.genai.types import Candidate
from langchain_anthropic import ChatAnthropic
from langchain_core.language_models._utils import _update_message_content_to_blocks
from langchain_core.messages import AIMessage
from langchain_google_genai.chat_models import _parse_response_candidate
from langchain_openai import ChatOpenAI
from langchain_openai.chat_models.base import _construct_lc_result_from_responses_api
from openai.types.responses import Response

from tests.doubles.issued import item_id, signature
from tests.fuzz import samples

Json = dict[str, Any]
OPENAI = ChatOpenAI(model="gpt-4o", api_key="x")
CLAUDE = ChatAnthropic(model="claude-sonnet-4-5", api_key="x")


@dataclass(frozen=True)
class Voice:
    """A provider's model, and the form in which its package returns replies."""

    provider: str
    """`chat`, `responses`, `anthropic`, `google`, `mistral` or `ollama`."""
    output_version: str = "v0"

    def __str__(self) -> str:
        return f"{self.provider} {self.output_version}"


VOICES = (
    Voice("chat"),
    Voice("chat", "v1"),
    Voice("responses"),
    Voice("responses", "responses/v1"),
    Voice("responses", "v1"),
    Voice("anthropic"),
    Voice("anthropic", "v1"),
    Voice("google"),
    Voice("google", "v1"),
    Voice("mistral"),
    Voice("ollama"),
)


@dataclass(frozen=True)
class Call:
    """A call of an application's tool."""

    call_id: str
    name: str = "look_up"
    arguments: str = '{"page": 1}'


class Reply:
    """A reply under way: what the model does, in order."""

    def __init__(self, voice: Voice, key: str, random: Random) -> None:
        self.voice = voice
        self.key = key
        self.random = random
        self.parts: list[Json] = []
        self.calls: list[Call] = []
        self.reasoning_id = ""
        self.extra: Json = {}
        self._numbers = 0

    def number(self) -> str:
        """A number of its own for everything that has an id."""
        self._numbers += 1
        return f"{self.key}{self._numbers}"

    def message(self) -> AIMessage:
        """The reply as LangChain's package returns it."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            message = _READERS[self.voice.provider](self)
        if self.voice.output_version == "v1":
            message = _update_message_content_to_blocks(message, "v1")
        return message.model_copy(update={"id": f"ai{self.key}"})

    # -- what a model does

    def think(self, text: str) -> None:
        _THINKS[self.voice.provider](self, text)

    def say(self, text: str) -> None:
        _SAYS[self.voice.provider](self, text)

    def call(self, call: Call) -> None:
        self.calls.append(call)
        _CALLS[self.voice.provider](self, call)

    def serve(self, tool: str) -> None:
        """Uses a tool of the provider's own, if it has that."""
        serve = _SERVED.get(self.voice.provider, {}).get(tool)
        if serve is not None:
            serve(self)


# -- OpenAI, Chat Completions


def _read_chat(reply: Reply) -> AIMessage:
    text = "".join(part["text"] for part in reply.parts) or None
    message: Json = {"role": "assistant", "content": text, **reply.extra}
    if reply.calls:
        message["tool_calls"] = [
            {
                "id": call.call_id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for call in reply.calls
        ]
    answer = {
        "id": f"chatcmpl-{reply.key}",
        "object": "chat.completion",
        "created": 0,
        "model": "gpt-4o",
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
    }
    read = OPENAI._create_chat_result(answer).generations[0].message
    assert isinstance(read, AIMessage)
    read.response_metadata["model_provider"] = "openai"  # as `invoke` does
    return read


def _chat_text(reply: Reply, text: str) -> None:
    reply.parts.append({"text": text})


def _chat_refusal(reply: Reply) -> None:
    reply.extra["refusal"] = "I cannot help with that."


def _chat_audio(reply: Reply) -> None:
    reply.extra["audio"] = {
        "id": f"audio_{reply.number()}",
        "data": samples.sound(),
        "expires_at": 1,
        "transcript": "The spoken answer is forty two.",
    }


# -- OpenAI, Responses


def _read_responses(reply: Reply) -> AIMessage:
    response = Response.model_validate(
        {
            "id": f"resp_{reply.key}",
            "created_at": 0,
            "model": "gpt-5",
            "object": "response",
            "output": reply.parts,
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
            "status": "completed",
        }
    )
    version = reply.voice.output_version
    if version == "v1":
        version = "responses/v1"
    result = _construct_lc_result_from_responses_api(response, output_version=version)
    message = result.generations[0].message
    assert isinstance(message, AIMessage)
    return message


def add_item(reply: Reply, prefix: str, **item: Any) -> None:
    """Adds an item, which needs the reasoning that came before it, if any did."""
    identifier = item_id(prefix, reply.number(), reply.reasoning_id)
    reply.parts.append({"id": identifier, "status": "completed", **item})
    reply.reasoning_id = ""


def _responses_thought(reply: Reply, text: str) -> None:
    reply.reasoning_id = item_id("rs_", reply.number())
    reply.parts.append(
        {
            "type": "reasoning",
            "id": reply.reasoning_id,
            "summary": [{"type": "summary_text", "text": text}],
            "encrypted_content": signature("openai", text),
        }
    )


def _responses_text(reply: Reply, text: str) -> None:
    annotations = []
    if reply.random.random() < 0.3:
        annotations.append(
            {
                "type": "url_citation",
                "url": "https://example.org",
                "title": "A page",
                "start_index": 0,
                "end_index": 3,
            }
        )
    content = [{"type": "output_text", "text": text, "annotations": annotations}]
    add_item(reply, "msg_", type="message", role="assistant", content=content)


def _responses_call(reply: Reply, call: Call) -> None:
    item = {"call_id": call.call_id, "name": call.name, "arguments": call.arguments}
    add_item(reply, "fc_", type="function_call", **item)


def _responses_refusal(reply: Reply) -> None:
    content = [{"type": "refusal", "refusal": "I cannot help with that."}]
    add_item(reply, "msg_", type="message", role="assistant", content=content)


def _responses_search(reply: Reply) -> None:
    add_item(reply, "ws_", type="web_search_call", action={"type": "search", "query": "the plan"})


def _responses_files(reply: Reply) -> None:
    found = {
        "file_id": "file-1",
        "filename": "plan.txt",
        "score": 0.5,
        "text": "The plan is green.",
    }
    add_item(reply, "fs_", type="file_search_call", queries=["plan"], results=[found])


def _responses_code(reply: Reply) -> None:
    outputs = [{"type": "logs", "logs": "42"}]
    add_item(
        reply,
        "ci_",
        type="code_interpreter_call",
        code="print(6 * 7)",
        container_id="cntr_1",
        outputs=outputs,
    )


def _responses_picture(reply: Reply) -> None:
    size = reply.random.choice([(64, 48), (256, 192)])
    result = samples.picture(*size, is_noise=True)
    add_item(reply, "ig_", type="image_generation_call", result=result)


def _responses_mcp(reply: Reply) -> None:
    item = {"arguments": "{}", "name": "ask", "server_label": "wiki", "output": "It is green."}
    listed = {"input_schema": {"type": "object"}, "name": "ask"}
    identifier = item_id("mcpl_", reply.number(), reply.reasoning_id)
    reply.reasoning_id = ""
    reply.parts.append(
        {"type": "mcp_list_tools", "id": identifier, "server_label": "wiki", "tools": [listed]}
    )
    identifier = item_id("mcp_", reply.number())
    reply.parts.append({"type": "mcp_call", "id": identifier, **item})


def _responses_compaction(reply: Reply) -> None:
    content = signature("openai", "all of it")
    identifier = item_id("cmp_", reply.number())
    reply.parts.insert(0, {"type": "compaction", "id": identifier, "encrypted_content": content})


# -- Anthropic


def _read_anthropic(reply: Reply) -> AIMessage:
    message = BetaMessage.model_validate(
        {
            "id": f"msg_{reply.key}",
            "type": "message",
            "role": "assistant",
            "model": "claude-sonnet-4-5",
            "content": reply.parts,
            "stop_reason": "end_turn",
            "usage": {"input_tokens": 1, "output_tokens": 1},
        }
    )
    read = CLAUDE._format_output(message).generations[0].message
    assert isinstance(read, AIMessage)
    return read


def _anthropic_thought(reply: Reply, text: str) -> None:
    if reply.random.random() < 0.2:
        data = signature("anthropic", "redacted")
        reply.parts.append({"type": "redacted_thinking", "data": data})
        return
    mark = signature("anthropic", text)
    reply.parts.append({"type": "thinking", "thinking": text, "signature": mark})


def _anthropic_text(reply: Reply, text: str) -> None:
    part: Json = {"type": "text", "text": text}
    if reply.random.random() < 0.3:
        part["citations"] = [
            {
                "type": "web_search_result_location",
                "cited_text": "The plan is green.",
                "encrypted_index": "x",
                "title": "A page",
                "url": "https://example.org",
            }
        ]
    reply.parts.append(part)


def _anthropic_call(reply: Reply, call: Call) -> None:
    part = {"type": "tool_use", "id": call.call_id, "name": call.name}
    reply.parts.append({**part, "input": _object(call.arguments)})


def _object(arguments: str) -> Any:
    try:
        return json.loads(arguments)
    except ValueError:
        return {}


def _served_by_anthropic(reply: Reply, name: str, inputs: Json, result: Any) -> None:
    call_id = f"srvtoolu_{reply.number()}"
    reply.parts.append({"type": "server_tool_use", "id": call_id, "name": name, "input": inputs})
    reply.parts.append({"type": f"{name}_tool_result", "tool_use_id": call_id, "content": result})


def _anthropic_search(reply: Reply) -> None:
    page = {
        "type": "web_search_result",
        "url": "https://example.org",
        "title": "A page",
        "encrypted_content": "eA" * 200,
        "page_age": None,
    }
    pages = [page] * reply.random.randint(1, 12)
    _served_by_anthropic(reply, "web_search", {"query": "the plan"}, pages)


def _anthropic_fetch(reply: Reply) -> None:
    source = {"type": "text", "media_type": "text/plain", "data": "The plan is green. " * 30}
    document = {"type": "document", "source": source, "title": "A page", "citations": None}
    result = {
        "type": "web_fetch_result",
        "url": "https://example.org",
        "content": document,
        "retrieved_at": "2026-11-28T00:00:00Z",
    }
    _served_by_anthropic(reply, "web_fetch", {"url": "https://example.org"}, result)


def _anthropic_code(reply: Reply) -> None:
    result = {
        "type": "bash_code_execution_result",
        "stdout": "42",
        "stderr": "",
        "return_code": 0,
        "content": [],
    }
    _served_by_anthropic(reply, "bash_code_execution", {"command": "echo 42"}, result)


def _anthropic_mcp(reply: Reply) -> None:
    call_id = f"mcptoolu_{reply.number()}"
    call = {"name": "ask", "input": {}, "server_name": "wiki"}
    reply.parts.append({"type": "mcp_tool_use", "id": call_id, **call})
    content = [{"type": "text", "text": "It is green.", "citations": None}]
    result = {"tool_use_id": call_id, "content": content, "is_error": False}
    reply.parts.append({"type": "mcp_tool_result", **result})


def _anthropic_compaction(reply: Reply) -> None:
    reply.parts.insert(0, {"type": "compaction", "content": "Summary: the plan is green."})


# -- Google


def _read_google(reply: Reply) -> AIMessage:
    candidate = Candidate.model_validate({"content": {"role": "model", "parts": reply.parts}})
    message = _parse_response_candidate(candidate, model_name="gemini-3-pro-preview")
    if isinstance(message.content, list):
        for number, block in enumerate(message.content):
            if isinstance(block, dict) and block.get("type") == "executable_code":
                block["id"] = f"code-{reply.key}-{number}"  # else a random one
    return message


def _google_thought(reply: Reply, text: str) -> None:
    reply.parts.append({"text": text, "thought": True})


def _google_text(reply: Reply, text: str) -> None:
    part: Json = {"text": text}
    if reply.random.random() < 0.5:
        part["thought_signature"] = _google_signature()
    reply.parts.append(part)


def _google_signature() -> bytes:
    return base64.b64decode(signature("google", ""))


def _google_call(reply: Reply, call: Call) -> None:
    function = {"id": call.call_id, "name": call.name, "args": _object(call.arguments)}
    part: Json = {"function_call": function}
    if len(reply.calls) == 1:
        part["thought_signature"] = _google_signature()
    reply.parts.append(part)


def _google_code(reply: Reply) -> None:
    reply.parts.append({"executable_code": {"language": "PYTHON", "code": "print(6 * 7)"}})
    result = {"outcome": "OUTCOME_OK", "output": "42\n"}
    reply.parts.append({"code_execution_result": result})


def _google_picture(reply: Reply) -> None:
    blob = {"mime_type": "image/png", "data": samples.picture(64, 48)}
    reply.parts.append({"inline_data": blob})


# -- Mistral and Ollama, as their packages read replies (`langchain_mistralai` 1.1.6, which leaves
# thoughts as they come, and `langchain_ollama` 1.1.0, which has them beside the content)


def _read_mistral(reply: Reply) -> AIMessage:
    return _read_other(reply, reply.parts or "", "mistralai")


def _read_ollama(reply: Reply) -> AIMessage:
    text = "".join(part["text"] for part in reply.parts)
    return _read_other(reply, text, "ollama")


def _read_other(reply: Reply, content: Any, provider: str) -> AIMessage:
    calls = [
        {"name": call.name, "args": _object(call.arguments), "id": call.call_id}
        for call in reply.calls
    ]
    return AIMessage(
        content,
        tool_calls=calls,
        additional_kwargs=reply.extra,
        response_metadata={"model_provider": provider},
    )


def _mistral_thought(reply: Reply, text: str) -> None:
    thought = [{"type": "text", "text": text}]
    reply.parts.append({"type": "thinking", "thinking": thought, "closed": True})


def _mistral_text(reply: Reply, text: str) -> None:
    part: Json = {"type": "text", "text": text}
    if reply.random.random() < 0.3:
        part["reference"] = {"reference_ids": [1]}
    reply.parts.append(part)


def _ollama_thought(reply: Reply, text: str) -> None:
    reply.extra["reasoning_content"] = text


def _ignored(_reply: Reply, _text: str) -> None:
    """A model that does not think aloud."""


def _ignored_call(_reply: Reply, _call: Call) -> None:
    """A model whose calls stand beside the content."""


_READERS: Mapping[str, Callable[[Reply], AIMessage]] = {
    "chat": _read_chat,
    "responses": _read_responses,
    "anthropic": _read_anthropic,
    "google": _read_google,
    "mistral": _read_mistral,
    "ollama": _read_ollama,
}
_THINKS: Mapping[str, Callable[[Reply, str], None]] = {
    "chat": _ignored,
    "responses": _responses_thought,
    "anthropic": _anthropic_thought,
    "google": _google_thought,
    "mistral": _mistral_thought,
    "ollama": _ollama_thought,
}
_SAYS: Mapping[str, Callable[[Reply, str], None]] = {
    "chat": _chat_text,
    "responses": _responses_text,
    "anthropic": _anthropic_text,
    "google": _google_text,
    "mistral": _mistral_text,
    "ollama": _chat_text,
}
_CALLS: Mapping[str, Callable[[Reply, Call], None]] = {
    "chat": _ignored_call,
    "responses": _responses_call,
    "anthropic": _anthropic_call,
    "google": _google_call,
    "mistral": _ignored_call,
    "ollama": _ignored_call,
}
_SERVED: Mapping[str, Mapping[str, Callable[[Reply], None]]] = {
    "chat": {"refusal": _chat_refusal, "audio": _chat_audio},
    "responses": {
        "refusal": _responses_refusal,
        "search": _responses_search,
        "fetch": _responses_files,
        "code": _responses_code,
        "picture": _responses_picture,
        "mcp": _responses_mcp,
        "compaction": _responses_compaction,
    },
    "anthropic": {
        "search": _anthropic_search,
        "fetch": _anthropic_fetch,
        "code": _anthropic_code,
        "mcp": _anthropic_mcp,
        "compaction": _anthropic_compaction,
    },
    "google": {"code": _google_code, "picture": _google_picture},
}
SERVED: Sequence[str] = sorted({name for served in _SERVED.values() for name in served})
