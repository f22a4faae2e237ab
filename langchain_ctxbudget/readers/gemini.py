"""Requests to Gemini, alone or with their responses, and prompts that AI Studio has saved.

The format was read from the reference of the Gemini API (`generateContent`: `Content`, `Part`) and
from saved prompts in public repositories (2026); a request may write names with underscores, as
the SDK for Python does.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import chain
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
from langchain_ctxbudget.readers.fields import (
    id_at,
    object_at,
    objects_in,
    text_at,
    texts_at,
    time_at,
)
from langchain_ctxbudget.readers.growing import Request
from langchain_ctxbudget.readers.message_forms import content_from, plain_content
from langchain_ctxbudget.readers.pieces import text_of_result, time_kwargs

TIMES = ("createTime", "create_time", "timestamp")
DRIVE = ("driveDocument", "driveImage", "driveVideo", "driveAudio", "youtubeVideo")
"""What a chunk of AI Studio has in the place of a file that stands elsewhere."""
MEDIA = ("image", "audio", "video")
INLINE = ("inlineData", "inlineImage", "inlineFile", "fileData")
"""What a part has that is a file, by its bytes or its address."""
BESIDE_PARTS = frozenset({"thought", "thoughtSignature", "thought_signature"})
"""Keys that say something of a part, and are none of its content."""
_OF_PART = (
    *INLINE,
    "functionCall",
    "functionResponse",
    "executableCode",
    "codeExecutionResult",
    *DRIVE,
)
"""Keys of a part that is no text, which tell what it is."""


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
        return isinstance(contents, list) and any("parts" in each for each in objects_in(contents))

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
        sent = [*_instructions(request), *collector.finish()]
        answer: list[BaseMessage] = []
        if sent and isinstance(sent[-1], AIMessage):
            answer.append(sent.pop())
        return request_from(sent, answer, details)


def _either(fields: JsonObject, key: str) -> Any:  # noqa: ANN401 - JSON
    """Returns what stands under a key, written like `inlineData` or like `inline_data`."""
    if key in fields:
        return fields[key]
    return fields.get(_in_lower_case(key, "_"))


def _in_lower_case(key: str, separator: str) -> str:
    """Returns a key like `driveImage` with its words in lower case and a separator between them."""
    return re.sub("[A-Z]", lambda match: f"{separator}{match[0].lower()}", key)


def _instructions(request: JsonObject) -> list[BaseMessage]:
    instruction = _either(request, "systemInstruction")
    if isinstance(instruction, str):
        instruction = {"text": instruction}
    if not isinstance(instruction, dict):
        return []
    parts = objects_in(instruction.get("parts")) or [instruction]
    texts: list[str] = []
    for part in parts:
        texts += texts_at(part, "text")
    return [SystemMessage("\n\n".join(texts))] if texts else []


def _tools_in(request: JsonObject) -> list[JsonObject]:
    declarations: list[JsonObject] = []
    for tool in objects_in(request.get("tools")):
        declarations += objects_in(_either(tool, "functionDeclarations"))
    return declarations


def _parts_of_chunk(chunk: JsonObject) -> list[JsonObject]:
    """Returns the parts of a chunk of AI Studio, which has the text of a single part beside it."""
    parts = objects_in(chunk.get("parts"))
    text = text_at(chunk, "text")
    if text is not None and not any(text_at(part, "text") for part in parts):
        parts.insert(0, {"text": text})
    parts += _parts_beside(parts, chunk)
    if chunk.get("isThought"):
        return [{"thought": True} | part for part in parts]
    return parts


def _parts_beside(parts: Sequence[JsonObject], chunk: JsonObject) -> list[JsonObject]:
    """Returns what a chunk has beside its parts, but for what they have as well."""
    in_parts = set(chain.from_iterable(parts))
    beside = [key for key in _OF_PART if key not in in_parts]
    return [{key: chunk[key]} for key in beside if isinstance(chunk.get(key), dict)]


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
        kwargs = time_kwargs(time)
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
        args = object_at(call, "args")
        self._calls.append(ToolCall(type="tool_call", name=name, args=args, id=call_id))

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
        return ToolMessage(
            text_of_result(value), tool_call_id=call_id, name=name, additional_kwargs=kwargs
        )

    def _finish_answer(self) -> None:
        if self._content or self._calls:
            self._messages.append(
                AIMessage(
                    content_from(self._content),
                    tool_calls=self._calls,
                    additional_kwargs=time_kwargs(self._time),
                    response_metadata={"model_provider": "google_genai"},
                )
            )
        self._content = []
        self._calls = []
        self._time = None


def _blocks_of(part: JsonObject) -> list[JsonObject]:
    """Returns a part as a block of LangChain; none for one that says nothing."""
    text = part.get("text")
    if isinstance(text, str) and (text or not _has_more_than_text(part)):
        return _blocks_of_text(text, is_thought=bool(part.get("thought")))
    for key in INLINE:
        data = _either(part, key)
        if isinstance(data, dict):
            return [_medium(data)]
    for key in DRIVE:
        if isinstance(part.get(key), dict):
            name = text_at(part[key], "name", "id") or key
            return [{"type": "text", "text": f"[{_in_lower_case(key, ' ')}: {name}]"}]
    if set(part) - BESIDE_PARTS:
        return [{"type": "non_standard", "value": part}]
    return []


def _has_more_than_text(part: JsonObject) -> bool:
    """Tells if a part, whose text is empty then, says something besides."""
    return bool(set(part) - BESIDE_PARTS - {"text"})


def _blocks_of_text(text: str, *, is_thought: bool) -> list[JsonObject]:
    if not text:
        return []
    if is_thought:
        return [{"type": "reasoning", "reasoning": text}]
    return [{"type": "text", "text": text}]


def _medium(data: JsonObject) -> JsonObject:
    """Returns a file, by its bytes or its address."""
    mime_type = _either(data, "mimeType")
    kind = str(mime_type).partition("/")[0]
    if kind not in MEDIA:
        kind = "file"
    block: JsonObject = {"type": kind, "mime_type": mime_type}
    address = _either(data, "fileUri")
    if address:
        block["url"] = address
    else:
        block["base64"] = data.get("data")
    return block
