"""Pieces of messages that several readers make."""

import json
from collections.abc import Sequence
from typing import Any

from langchain_core.messages import BaseMessage

from langchain_ctxbudget.readers.base import JsonObject


def beside(message_id: str | None, time: str | None) -> dict[str, Any]:
    """Returns the id of a message and its time (ISO 8601), as arguments of a LangChain message."""
    return {"id": message_id, "additional_kwargs": time_kwargs(time)}


def time_kwargs(time: str | None) -> JsonObject:
    """Returns the additional arguments of a message that was said at a time (ISO 8601)."""
    if time is None:
        return {}
    return {"created_at": time}


def marked_with_source(message: BaseMessage, source: str) -> BaseMessage:
    """Returns a message with its `lc_source`, the program that wrote it in the user's name."""
    kwargs = message.additional_kwargs | {"lc_source": source}
    return message.model_copy(update={"additional_kwargs": kwargs})


def text_of_result(result: Any) -> str:  # noqa: ANN401 - JSON
    """Returns what a tool has returned as a text; what is none, as JSON; nothing as no text."""
    if result is None:
        return ""
    if isinstance(result, str):
        return result
    return json.dumps(result, ensure_ascii=False)


def document(text: str, title: str | None) -> JsonObject:
    """Returns a block with a text that somebody has pasted or attached, and not said themselves."""
    block = {"type": "text-plain", "text": text, "mime_type": "text/plain"}
    if title is not None:
        block["title"] = title
    return block


def words_with_documents(words: str, documents: Sequence[JsonObject]) -> str | list[Any]:
    """Returns the content of a message: its words, and the documents that came with them."""
    if not documents:
        return words
    blocks = list(documents)
    if words:
        blocks.insert(0, {"type": "text", "text": words})
    return blocks


def file_line(kind: str, *details: str | None) -> str:
    """Returns the line for a file that an export names only, such as `[image: cat.png]`."""
    known = ", ".join(filter(None, details)) or "without a name"
    return f"[{kind}: {known}]"
