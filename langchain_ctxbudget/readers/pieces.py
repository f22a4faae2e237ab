"""Pieces of messages that several readers make."""

from typing import Any

from langchain_ctxbudget.readers.base import JsonObject


def beside(message_id: str | None, time: str | None) -> dict[str, Any]:
    """Returns the id of a message and its time (ISO 8601), as arguments of a LangChain message."""
    return {"id": message_id, "additional_kwargs": {} if time is None else {"created_at": time}}


def document(text: str, title: str | None) -> JsonObject:
    """Returns a block with a text that somebody has pasted or attached, and not said themselves."""
    block = {"type": "text-plain", "text": text, "mime_type": "text/plain"}
    return block if title is None else block | {"title": title}


def file_line(kind: str, *details: str | None) -> str:
    """Returns the line for a file that an export names only, such as `[image: cat.png]`."""
    known = ", ".join(filter(None, details)) or "without a name"
    return f"[{kind}: {known}]"
