"""The application's wish for a message of a long conversation (seed 002, selective context)."""

from __future__ import annotations

from typing import Any, Literal, cast, get_args

from langchain_core.messages import BaseMessage

from langchain_ctxbudget.errors import InputError
from langchain_ctxbudget.messages.calls import CALL_BLOCKS
from langchain_ctxbudget.messages.text import one_line

Preservation = Literal["keep", "summarize", "drop"]
"""Verbatim while it fits; only in short and in summaries; not in prompts at all (the recall tool still finds it)."""

KEY = "ctxbudget"
"""The key in `additional_kwargs`."""
EXCERPT_CHARACTERS = 100
"""The length of an excerpt of a message that is only summarised (seed 002)."""


def require_preservation(value: object, where: str) -> Preservation:
    """Returns a preservation if the value is one.

    Raises:
        InputError: it is none.
    """
    if value not in get_args(Preservation):
        raise InputError(f'{where} must be "keep", "summarize" or "drop", not {value!r}')
    return cast("Preservation", value)


def preservation_of(message: BaseMessage) -> Preservation | None:
    """Returns the wish in a message, or None."""
    value = message.additional_kwargs.get(KEY)
    return cast("Preservation", value) if value in get_args(Preservation) else None


def excerpt(message: BaseMessage) -> BaseMessage:
    """Returns the beginning of a message that is only summarised, and its calls; a short one stays as it is."""
    text = one_line(message.text)
    is_text = isinstance(message.content, str)
    if is_text and len(text) <= EXCERPT_CHARACTERS:
        return message
    short = text if len(text) <= EXCERPT_CHARACTERS else f"[Earlier: {text[:EXCERPT_CHARACTERS].rstrip()}…]"
    if is_text:
        return message.model_copy(update={"content": short})
    calls = [block for block in message.content if isinstance(block, dict) and block.get("type") in CALL_BLOCKS]
    said: list[dict[str, Any]] = [{"type": "text", "text": short or "[Earlier: an attachment]"}]
    return message.model_copy(update={"content": [*said, *calls]})
