"""What OpenAI's Chat Completions refuses, by its published rules, judged on the JSON of a request.

Where OpenAI lets something pass that its reference does not allow, or that has no use, the rules
here are stricter: arguments must be JSON, there is one system message, texts are not empty.
Parameters beside the messages are not judged. Read in November 2026.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from openai.types.chat import ChatCompletionMessageParam

from tests.doubles.media import MEGABYTE, Medium
from tests.doubles.schemas import Problems, Rule, problems_by, problems_of_form

Body = Mapping[str, Any]

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
LONGEST_CALL_ID = 40
_SYSTEM_ROLES = ("system", "developer")
IMAGE_TYPES = frozenset({"image/png", "image/jpeg", "image/webp", "image/gif"})
MOST_IMAGES = 500
MOST_IMAGE_BYTES = 50 * MEGABYTE


def has_messages(body: Body) -> Problems:
    """[] is too short - 'messages' (the API's error for an empty list)."""
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        yield f"messages: expected a list with at least one message, got {messages!r:.60}"


def known_form(body: Body) -> Problems:
    """Unknown roles, types of parts and keys: "Invalid value: 'x'. Supported values are: ...".

    The schema also has the media where they may be: "Image URLs are only allowed for messages with
    role 'user', but this message with role 'tool' contains an image URL" (OpenHands#7700).
    """
    yield from problems_of_form(
        body["messages"],
        Iterable[ChatCompletionMessageParam],
        "messages",
        may_lack=("assistant.content", "tool.content"),
    )


def known_names(body: Body) -> Problems:
    """Names have the characters ^[a-zA-Z0-9_-]+$ and at most 64 of them (API reference)."""
    for where, message in _placed(body):
        if "name" in message or message["role"] == "function":
            yield from name_problems(message.get("name"), where)


def name_problems(value: object, where: str) -> Problems:
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        yield f"{where}: refused name {value!r}"


def whole_calls(body: Body) -> Problems:
    """A call has an id of at most 40 characters, a name, and arguments that are JSON.

    "Invalid 'messages[1].tool_calls[0].id': string too long. Expected a string with maximum length
    40" (langchain#31325 and others).
    """
    for where, message in _placed(body):
        if message.get("function_call") is not None:
            yield from function_problems(message["function_call"], f"{where}.function_call")
        if message.get("tool_calls") is None:
            continue
        if not message["tool_calls"]:
            yield f"{where}.tool_calls: expected a list with at least one call, got []"
        if message.get("function_call") is not None:
            yield f"{where}: tool_calls and function_call at once"
        for number, call in enumerate(message["tool_calls"]):
            yield from _call_problems(call, f"{where}.tool_calls[{number}]")


def _call_problems(call: Body, where: str) -> Problems:
    yield from call_id_problems(call.get("id"), where)
    if call["type"] == "function":
        yield from function_problems(call["function"], f"{where}.function")


def call_id_problems(call_id: object, where: str) -> Problems:
    if not isinstance(call_id, str) or not call_id.strip():
        yield f"{where}: a call needs an id"
    elif len(call_id) > LONGEST_CALL_ID:
        yield f"{where}: id: string too long: {len(call_id)} of {LONGEST_CALL_ID} characters"


def function_problems(function: Body, where: str) -> Problems:
    yield from name_problems(function.get("name"), where)
    try:
        arguments = json.loads(function["arguments"])
    except (KeyError, TypeError, ValueError):
        arguments = None
    if not isinstance(arguments, dict):
        text = f"{function.get('arguments')!r:.60}"
        yield f"{where}: arguments {text} are not the text of a JSON object"


def said_something(body: Body) -> Problems:
    """Texts are not empty, and an assistant says or calls something.

    "Invalid value for 'content': expected a string, got null."
    """
    for where, message in _placed(body):
        may_be_empty = message["role"] in ("tool", "function") or _has_more(message)
        content = message.get("content")
        if content is None and not may_be_empty:
            yield f"{where}: an assistant message without content or tool_calls"
        if content == []:
            yield f"{where}.content: expected a string or a list with at least one part, got []"
        if not may_be_empty and any(not text.strip() for text in _texts(content)):
            yield f"{where}.content: an empty text"


def _has_more(message: Body) -> bool:
    keys = ("tool_calls", "function_call", "refusal", "audio")
    return any(message.get(key) is not None for key in keys)


def _texts(content: Any) -> list[str]:
    if isinstance(content, str):
        return [content]
    return [part["text"] for part in content or () if part.get("type") == "text"]


def system_first(body: Body) -> Problems:
    """One system message, in front of all others (stricter than OpenAI)."""
    for position, message in enumerate(body["messages"]):
        if message["role"] in _SYSTEM_ROLES and position > 0:
            yield f"messages[{position}]: a {message['role']} message that is not the first"


def answered_calls(body: Body) -> Problems:
    """Right behind a message with calls stands one result for each; none stands elsewhere.

    "An assistant message with 'tool_calls' must be followed by tool messages responding to each
    'tool_call_id'"; "messages with role 'tool' must be a response to a preceding message with
    'tool_calls'" (API errors).
    """
    unanswered: list[str] = []
    function: str | None = None
    for where, message in _placed(body):
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


def own_call_ids(body: Body) -> Problems:
    """The id of a call belongs to it alone ("Duplicate value for 'tool_call_id'")."""
    counts: Counter[str] = Counter()
    for message in body["messages"]:
        counts.update(_ids_of_calls(message))
    for call_id, number in counts.items():
        if number > 1:
            yield f"messages: tool call id {call_id!r} {number} times"


def sendable_images(body: Body) -> Problems:
    """Types, number and bytes of images ("Images and vision": 500 images, 50 MB a request)."""
    images: list[Medium | None] = []
    for where, message in _placed(body):
        content = message.get("content")
        for part in content if isinstance(content, list) else ():
            if part["type"] == "image_url":
                images.append(Medium.in_url(part["image_url"]["url"]))
                yield from image_url_problems(part["image_url"]["url"], where)
            if part["type"] == "file":
                yield from file_problems(part["file"], where)
    yield from image_limits(images)


def image_url_problems(url: str, where: str) -> Problems:
    """Refused with "Invalid image URL", "unsupported image" (API errors)."""
    medium = Medium.in_url(url)
    if medium is not None:
        yield from medium.problems(IMAGE_TYPES, where)
    elif not url.startswith(("http://", "https://")):
        yield f"{where}: failed to download image from {url!r:.40}: unsupported scheme"


def file_problems(file: Body, where: str) -> Problems:
    """A file has an id, or its data with a name ("PDF files": file_data with filename)."""
    if file.get("file_id"):
        return
    if not file.get("file_data") and not file.get("file_url"):
        yield f"{where}: missing required parameter 'file_id'"
    if file.get("file_data"):
        if not file.get("filename"):
            yield f"{where}: missing required parameter 'filename'"
        medium = Medium.in_url(file["file_data"])
        if medium is None:
            yield f"{where}: file_data is no data URL: {file['file_data']!r:.30}"
        else:
            yield from medium.problems({medium.media_type}, where)


def image_limits(images: Sequence[Medium | None]) -> Problems:
    """The number of images, and the bytes of those that are in the request."""
    if len(images) > MOST_IMAGES:
        yield f"too many images: {len(images)} of {MOST_IMAGES}"
    size = sum(len(image.content or b"") for image in images if image is not None)
    if size > MOST_IMAGE_BYTES:
        yield f"total image size is {size} bytes, of {MOST_IMAGE_BYTES}"


def _placed(body: Body) -> Iterator[tuple[str, Body]]:
    for position, message in enumerate(body["messages"]):
        yield f"messages[{position}]", message


RULES: Sequence[Rule] = (
    has_messages,
    known_form,
    known_names,
    whole_calls,
    said_something,
    system_first,
    answered_calls,
    own_call_ids,
    sendable_images,
)


def chat_problems(body: Body) -> list[str]:
    """What Chat Completions refuses in a request; empty for a good one."""
    return problems_by(RULES, body)
