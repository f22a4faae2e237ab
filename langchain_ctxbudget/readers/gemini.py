"""Requests to Gemini, alone or with their responses, and prompts that AI Studio has saved.

The format was read from the reference of the Gemini API (`generateContent`: `Content`, `Part`) and
from saved prompts in public repositories (2026); a request may write names with underscores, as
the SDK for Python does.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolCall,
    ToolMessage,
)

from langchain_ctxbudget.readers.base import JsonObject
from langchain_ctxbudget.readers.calls import CallDetails, CallReader, request_from
from langchain_ctxbudget.readers.fields import id_at, object_at, objects_in, text_at, time_at
from langchain_ctxbudget.readers.growing import Request
from langchain_ctxbudget.readers.message_forms import plain_content

TIMES = ("createTime", "create_time", "timestamp")
DRIVE = ("driveDocument", "driveImage", "driveVideo", "driveAudio", "youtubeVideo")
"""What a chunk of AI Studio has in the place of a file that stands elsewhere."""
MEDIA = ("image", "audio", "video")
_OF_PART = (
    "text",
    "inlineData",
    "inlineImage",
    "inlineFile",
    "fileData",
    "functionCall",
    "functionResponse",
    "executableCode",
    "codeExecutionResult",
    *DRIVE,
)
"""Keys of a part, which tell what it is."""


class Gemini(CallReader):
    """Reads requests; those of one growing conversation become one conversation."""

    name: ClassVar[str] = "gemini"
    accepts: ClassVar[str] = (
        'requests to Gemini with "contents", and prompts saved by AI Studio ("chunkedPrompt")'
    )

    def recognises(self, record: JsonObject) -> bool:
        """Tells if a record is a request, or a saved prompt."""
        request = object_at(record, "request") or record
        if isinstance(object_at(request, "chunkedPrompt").get("chunks"), list):
            return True
        contents = request.get("contents")
        return isinstance(contents, list) and any("parts" in one for one in objects_in(contents))

    def calls_in(self, records: Sequence[JsonObject]) -> Iterable[JsonObject]:
        """Returns the requests in the order of the file."""
        return records

    def request_of(self, call: JsonObject) -> Request:
        """Returns what a request was sent with, and the response beside it."""
        request = object_at(call, "request") or call
        response = object_at(call, "response") or call
        collector = _Collector()
        for chunk in objects_in(object_at(request, "chunkedPrompt").get("chunks")):
            collector.add(text_at(chunk, "role"), _parts_of_chunk(chunk), time_at(chunk, TIMES))
        for content in objects_in(request.get("contents")):
            collector.add(text_at(content, "role"), objects_in(content.get("parts")), None)
        for candidate in objects_in(response.get("candidates"))[:1]:
            parts = objects_in(object_at(candidate, "content").get("parts"))
            collector.add("model", parts, None)
        details = CallDetails(
            model=text_at(response, "modelVersion") or text_at(request, "model"),
            tools=_tools_in(request),
        )
        messages = [*_instructions(request), *collector.finish()]
        ends_with_answer = bool(messages) and isinstance(messages[-1], AIMessage)
        sent = messages[:-1] if ends_with_answer else messages
        return request_from(sent, messages[len(sent) :], details)


def _either(fields: JsonObject, key: str) -> Any:  # noqa: ANN401 - JSON
    """Returns what stands under a key, written like `inlineData` or like `inline_data`."""
    if key in fields:
        return fields[key]
    underscored = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in key)
    return fields.get(underscored)


def _instructions(request: JsonObject) -> list[BaseMessage]:
    instruction = _either(request, "systemInstruction")
    if isinstance(instruction, str):
        instruction = {"text": instruction}
    if not isinstance(instruction, dict):
        return []
    parts = objects_in(instruction.get("parts")) or [instruction]
    texts = [text for part in parts if (text := text_at(part, "text")) is not None]
    return [SystemMessage("\n\n".join(texts))] if texts else []


def _tools_in(request: JsonObject) -> list[JsonObject]:
    return [
        declaration
        for tool in objects_in(request.get("tools"))
        for declaration in objects_in(_either(tool, "functionDeclarations"))
    ]


def _parts_of_chunk(chunk: JsonObject) -> list[JsonObject]:
    """Returns the parts of a chunk of AI Studio, which has the text of a single part beside it."""
    parts = objects_in(chunk.get("parts"))
    is_thought = {"thought": True} if chunk.get("isThought") else {}
    if not any(text_at(part, "text") for part in parts) and text_at(chunk, "text") is not None:
        parts = [{"text": chunk["text"]}, *parts]
    others = [key for key in _OF_PART if key != "text" and isinstance(chunk.get(key), dict)]
    parts += [{key: chunk[key]} for key in others if not any(key in part for part in parts)]
    return [is_thought | part for part in parts]


class _Collector:
    """Makes messages of contents. Calls without ids get some, as LangChain needs them."""

    def __init__(self) -> None:
        self._messages: list[BaseMessage] = []
        self._content: list[Any] = []
        self._calls: list[ToolCall] = []
        self._time: str | None = None
        self._numbers: defaultdict[str, int] = defaultdict(int)
        self._open: defaultdict[str, list[str]] = defaultdict(list)

    def add(self, role: str | None, parts: Iterable[JsonObject], time: str | None) -> None:
        """Takes the parts of a content; what the model says in a row is one answer."""
        if role == "model":
            self._time = self._time or time
            for part in parts:
                self._add_of_model(part)
            return
        self._finish_answer()
        kwargs = {} if time is None else {"created_at": time}
        content: list[Any] = []
        for part in parts:
            response = _either(part, "functionResponse")
            if isinstance(response, dict):
                self._messages.append(self._result(response, kwargs))
            else:
                content += _blocks_of(part)
        if content:
            self._messages.append(HumanMessage(plain_content(content), additional_kwargs=kwargs))

    def finish(self) -> list[BaseMessage]:
        """Returns all messages."""
        self._finish_answer()
        return self._messages

    def _add_of_model(self, part: JsonObject) -> None:
        call = _either(part, "functionCall")
        if not isinstance(call, dict):
            self._content += _blocks_of(part)
            return
        name = str(call["name"])
        call_id = id_at(call, ("id",))
        if call_id is None:
            self._numbers[name] += 1
            call_id = f"{name}-{self._numbers[name]}"
        self._open[name].append(call_id)
        args = call.get("args")
        self._calls.append(
            ToolCall(
                type="tool_call",
                name=name,
                args=args if isinstance(args, dict) else {},
                id=call_id,
            )
        )

    def _result(self, response: JsonObject, kwargs: JsonObject) -> ToolMessage:
        """Returns the result of a call: that with its id, else the first open one of its name."""
        name = str(response.get("name"))
        call_id = id_at(response, ("id",))
        waiting = self._open[name]
        if call_id is None:
            call_id = waiting[0] if waiting else name
        if call_id in waiting:
            waiting.remove(call_id)
        value = response.get("response")
        if isinstance(value, dict) and len(value) == 1:
            value = value.get("result", value.get("output", value))
        content = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        return ToolMessage(content, tool_call_id=call_id, name=name, additional_kwargs=kwargs)

    def _finish_answer(self) -> None:
        if self._content or self._calls:
            self._messages.append(
                AIMessage(
                    plain_content(self._content) if self._content else "",
                    tool_calls=self._calls,
                    additional_kwargs={} if self._time is None else {"created_at": self._time},
                    response_metadata={"model_provider": "google_genai"},
                )
            )
        self._content = []
        self._calls = []
        self._time = None


def _blocks_of(part: JsonObject) -> Iterator[JsonObject]:
    """Yields a part as a block of LangChain; one that says nothing has none."""
    text = part.get("text")
    if isinstance(text, str):
        if text and part.get("thought"):
            yield {"type": "reasoning", "reasoning": text}
        elif text:
            yield {"type": "text", "text": text}
        return
    for key in ("inlineData", "inlineImage", "inlineFile", "fileData"):
        data = _either(part, key)
        if isinstance(data, dict):
            yield _medium(data)
            return
    for key in DRIVE:
        if isinstance(part.get(key), dict):
            name = text_at(part[key], "name", "id") or key
            yield {"type": "text", "text": f"[{_words_of(key)}: {name}]"}
            return
    if set(part) - {"thought", "thoughtSignature", "thought_signature"}:
        yield {"type": "non_standard", "value": part}


def _words_of(key: str) -> str:
    """Returns a key like `driveImage` as words."""
    return "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in key)


def _medium(data: JsonObject) -> JsonObject:
    """Returns a file, by its bytes or its address."""
    mime_type = _either(data, "mimeType")
    kind = str(mime_type).partition("/")[0]
    block: JsonObject = {"type": kind if kind in MEDIA else "file", "mime_type": mime_type}
    address = _either(data, "fileUri")
    return block | ({"url": address} if address else {"base64": data.get("data")})
