"""The content of one message of a ChatGPT export as a text."""

from collections.abc import Iterator
from typing import Any

from langchain_ctxbudget.readers.base import JsonObject
from langchain_ctxbudget.readers.citations import without_marks
from langchain_ctxbudget.readers.fields import object_at, objects_in, text_at, texts_at
from langchain_ctxbudget.readers.pieces import file_line

THOUGHTS = ("thoughts", "reasoning_recap")
"""Types of content that a model thought, and did not say."""
INSTRUCTIONS = ("user_editable_context", "model_editable_context")
"""Types of content that the user or ChatGPT's memory lays down for the conversation."""
INSTRUCTION_KEYS = ("user_profile", "user_instructions", "model_set_context")
VOICE = ("audio_asset_pointer", "real_time_user_audio_video_asset_pointer")
"""Types of recordings; what was said in them is a part of its own, `audio_transcription`."""
TRANSCRIPT = "audio_transcription"
WORD_KEYS = ("title", "url", "summary", "result", "text", "output_str", "content")
"""Where content that has no parts has its words, in the order in which they are read."""


def text_of(message: JsonObject) -> str:
    """Returns what a message says: words, transcripts, code, pages, and the names of its files."""
    content = object_at(message, "content")
    metadata = object_at(message, "metadata")
    attachments = objects_in(metadata.get("attachments"))
    has_transcript = _has_transcript(content)
    parts = _parts_of(content)
    lines = [_line_of(part, attachments, has_transcript=has_transcript) for part in parts]
    shown = "\n".join(lines)
    lines += [
        _file_line(attachment) for attachment in attachments if not _is_shown(attachment, shown)
    ]
    text = "\n".join(filter(str.strip, lines))
    if object_at(message, "author").get("role") == "user":
        return text
    return without_marks(text, metadata)


def instructions_in(content: JsonObject) -> str:
    """Returns what the user or ChatGPT's memory lays down; empty if that is nothing."""
    return "\n\n".join(texts_at(content, *INSTRUCTION_KEYS))


def _parts_of(content: JsonObject) -> Iterator[Any]:
    parts = content.get("parts")
    if isinstance(parts, list):
        yield from parts
        return
    for key in WORD_KEYS:
        if isinstance(content.get(key), str):
            yield content[key]


def _has_transcript(content: JsonObject) -> bool:
    parts = objects_in(content.get("parts"))
    return any(part.get("content_type") == TRANSCRIPT for part in parts)


def _line_of(part: Any, attachments: list[JsonObject], *, has_transcript: bool) -> str:  # noqa: ANN401 - JSON
    """Returns a part as a text; of a picture or a recording, its kind and name."""
    if isinstance(part, str):
        return part
    if not isinstance(part, dict):
        return ""
    kind = str(part.get("content_type") or "file")
    if kind in VOICE and has_transcript:
        return ""
    pointer = _pointer_of(part)
    if pointer is None:
        return "\n".join(texts_at(part, *WORD_KEYS))
    name = _name_of(pointer, attachments)
    if kind in VOICE:
        return file_line("audio", name)
    return file_line(kind.removesuffix("_asset_pointer"), name)


def _pointer_of(part: JsonObject) -> str | None:
    """Returns the address of a picture or a recording inside the export."""
    return text_at(part, "asset_pointer") or text_at(
        object_at(part, "audio_asset_pointer"), "asset_pointer"
    )


def _name_of(pointer: str, attachments: list[JsonObject]) -> str:
    """Returns the name of a file; one that is not attached has its id only."""
    file_id = pointer.rpartition("/")[2]
    for attachment in attachments:
        if attachment.get("id") == file_id:
            return text_at(attachment, "name") or file_id
    return file_id


def _is_shown(attachment: JsonObject, shown: str) -> bool:
    name = text_at(attachment, "name", "id")
    return name is None or f": {name}]" in shown


def _file_line(attachment: JsonObject) -> str:
    mime_type = text_at(attachment, "mime_type", "mimeType")
    return file_line("file", text_at(attachment, "name", "id"), mime_type)
