"""What Gemini's generateContent refuses, by its published rules, judged on the JSON of a request.

The keys are written by Google's own package, which refuses unknown ones itself. Read in November
2026.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tests.doubles.issued import is_signature_of
from tests.doubles.media import MEGABYTE, Medium
from tests.doubles.schemas import Problems, Rule, problems_by

Body = Mapping[str, Any]

_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,63}")
_DATA = (
    "text",
    "inlineData",
    "fileData",
    "functionCall",
    "functionResponse",
    "executableCode",
    "codeExecutionResult",
    "toolCall",
    "toolResponse",
)
MOST_REQUEST_BYTES = 20 * MEGABYTE
MOST_IMAGES = 3_600
INLINE_TYPES = frozenset(
    {
        *("image/png", "image/jpeg", "image/webp", "image/heic", "image/heif"),
        *("audio/wav", "audio/mp3", "audio/mpeg", "audio/aiff", "audio/aac", "audio/ogg"),
        *("audio/flac", "video/mp4", "video/mpeg", "video/mov", "video/quicktime", "video/webm"),
        *("application/pdf", "text/plain", "text/html", "text/css", "text/csv", "text/markdown"),
    }
)
"""What "Image", "Audio", "Video" and "Document understanding" list as supported."""


def has_contents(body: Body) -> Problems:
    """Refused with "GenerateContentRequest.contents: contents is not specified" (API error)."""
    if not body.get("contents"):
        yield "contents is not specified"


def of_their_roles(body: Body) -> Problems:
    """Refused with "Please use a valid role: user, model."; the user speaks first."""
    for where, content in _placed(body):
        if content.get("role") not in ("user", "model"):
            yield f"{where}: please use a valid role: user, model; not {content.get('role')!r}"
    if body["contents"][0].get("role") != "user":
        yield "contents[0]: first content should be with role 'user'"


def said_something(body: Body) -> Problems:
    """A content has parts, and every part one kind of data.

    "contents.parts must not be empty" (vercel/ai#3775), "parts[0].data: required oneof field 'data'
    must have one initialized field" (CLIProxyAPI#1293, for empty texts as well).
    """
    for where, content in [*_placed(body), *_system(body)]:
        if not content.get("parts"):
            yield f"{where}: contents.parts must not be empty"
        for part in content.get("parts") or ():
            data = [key for key in _DATA if part.get(key) not in (None, "")]
            if len(data) != 1 and not part.get("thoughtSignature"):
                yield f"{where}: required oneof field 'data' must have one initialized field"


def known_names(body: Body) -> Problems:
    """The characters and the length of a function's name.

    "Invalid function name. Must start with a letter or an underscore. Must be alphanumeric (a-z,
    A-Z, 0-9), underscores (_), dots (.), colons (:), or dashes (-), with a maximum length of 64.";
    "function_response.name: Name cannot be empty" (API errors).
    """
    for where, part in _parts(body):
        for key in ("functionCall", "functionResponse"):
            if key in part and not _NAME.fullmatch(part[key].get("name") or ""):
                yield f"{where}.{key}: invalid function name {part[key].get('name')!r}"


def whole_calls(body: Body) -> Problems:
    """Arguments and responses are objects ("Struct" in the API reference)."""
    for where, part in _parts(body):
        if not isinstance(part.get("functionCall", {}).get("args", {}), dict):
            yield f"{where}: functionCall.args is no object"
        if not isinstance(part.get("functionResponse", {}).get("response", {}), dict):
            yield f"{where}: functionResponse.response is no object"


def answered_calls(body: Body) -> Problems:
    """A turn of calls stands behind the user's, and its responses behind it.

    "Please ensure that function call turn comes immediately after a user turn or after a function
    response turn." (gemini-cli#26486), "Please ensure that the number of function response parts is
    equal to the number of function call parts of the function call turn." (gemini-cli#16904),
    "Please ensure that function response turn comes immediately after a function call turn."
    (langchain#27799).
    """
    before: Body = {}
    for where, content in [*_placed(body), ("end", {})]:
        calls = _count(before, "functionCall")
        responses = _count(content, "functionResponse")
        if responses and not calls:
            yield f"{where}: function response turn must come after a function call turn"
        elif calls != responses:
            yield f"{where}: {responses} function responses for {calls} function calls"
        if _count(content, "functionCall") and before.get("role") != "user":
            yield f"{where}: function call turn must come after a user turn"
        before = content


def _count(content: Body, key: str) -> int:
    return sum(key in part for part in content.get("parts") or ())


def responses_of_their_calls(body: Body) -> Problems:
    """A response has the name of its call ("Function calling": the name of the function)."""
    before: Body = {}
    for where, content in _placed(body):
        called = [part["functionCall"]["name"] for part in _with(before, "functionCall")]
        answered = [part["functionResponse"]["name"] for part in _with(content, "functionResponse")]
        if sorted(called) != sorted(answered):
            yield f"{where}: responses of {answered} for calls of {called}"
        before = content


def _with(content: Body, key: str) -> list[Body]:
    return [part for part in content.get("parts") or () if key in part]


def unchanged_signatures(body: Body) -> Problems:
    """The signatures of thoughts are Gemini's own.

    "Corrupted thought signature." (gemini-cli#13467), "Thought signature is not valid"
    (9router#301).
    """
    for where, part in _parts(body):
        signature = part.get("thoughtSignature")
        if signature and not is_signature_of("google", None, signature):
            yield f"{where}: thought signature is not valid"


def signed_calls(body: Body) -> Problems:
    """The first call of each step of the current turn is signed (Gemini 3).

    "Function call is missing a thought_signature in functionCall parts." (5ire#405; "Thought
    signatures": validated for the current turn).
    """
    if not str(body.get("model")).startswith("gemini-3"):
        return
    for where, content in reversed(list(_placed(body))):
        if content["role"] == "user" and not _count(content, "functionResponse"):
            return
        calls = _with(content, "functionCall")
        if calls and not calls[0].get("thoughtSignature"):
            yield f"{where}: function call is missing a thought_signature"


def sendable_media(body: Body) -> Problems:
    """Types and number of media, and the bytes that are in the request.

    "Image understanding": 3,600 images, 20 MB a request with inline data; "Unsupported MIME type".
    """
    images = 0
    size = 0
    for where, part in _parts(body):
        if _media_type(part).startswith("image/"):
            images += 1
        if "inlineData" in part:
            data = part["inlineData"].get("data") or ""
            size += len(data)
            standard = data.replace("-", "+").replace("_", "/")
            yield from Medium(_media_type(part), standard).problems(INLINE_TYPES, where)
        if "fileData" in part and not part["fileData"].get("fileUri"):
            yield f"{where}: fileData without an address"
    if images > MOST_IMAGES:
        yield f"too many images: {images} of {MOST_IMAGES}"
    if size > MOST_REQUEST_BYTES:
        yield f"request payload size exceeds the limit: {size} of {MOST_REQUEST_BYTES} bytes"


def _media_type(part: Body) -> str:
    """The MIME type of a medium; empty for any other part, and where it is not told."""
    medium = part.get("inlineData") or part.get("fileData") or {}
    return medium.get("mimeType") or ""


def _placed(body: Body) -> Iterator[tuple[str, Body]]:
    for position, content in enumerate(body["contents"]):
        yield f"contents[{position}]", content


def _system(body: Body) -> Iterator[tuple[str, Body]]:
    if body.get("systemInstruction") is not None:
        yield "systemInstruction", body["systemInstruction"]


def _parts(body: Body) -> Iterator[tuple[str, Body]]:
    for where, content in _placed(body):
        for number, part in enumerate(content.get("parts") or ()):
            yield f"{where}.parts[{number}]", part


RULES: Sequence[Rule] = (
    has_contents,
    of_their_roles,
    said_something,
    known_names,
    whole_calls,
    answered_calls,
    responses_of_their_calls,
    unchanged_signatures,
    signed_calls,
    sendable_media,
)


def gemini_problems(body: Body) -> list[str]:
    """What Gemini refuses in a request; empty for a good one."""
    return problems_by(RULES, _with_camel_case(body))


_FREE = ("args", "response")
"""Keys under which an application has its own names."""


def _with_camel_case(value: Any) -> Any:
    """JSON with its keys in camel case: `mime_type` is accepted for `mimeType` (protobuf JSON)."""
    if isinstance(value, list):
        return [_with_camel_case(inner) for inner in value]
    if not isinstance(value, dict):
        return value
    written = {}
    for key, inner in value.items():
        first, *others = key.split("_")
        name = first + "".join(word.capitalize() for word in others)
        written[name] = inner if name in _FREE else _with_camel_case(inner)
    return written
