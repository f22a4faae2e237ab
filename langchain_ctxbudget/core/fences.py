"""The fences around stored text in a prompt, and the text inside them as data.

Stored text may imitate a fence to break out of its block; such an imitation is neutralised. Lines inside a
fence begin with a mark (`-`, `[`, `#`) and end with a line break: no tokenizer of the tiktoken family joins
tokens across such a border, so the cost of a block is the sum of the costs of its lines.
"""

from __future__ import annotations

import re

CONTEXT = "context"
SUMMARY = "conversation_summary"
ARC = "conversation_arc"
PREFERENCES = "user_preferences"

_IMITATION = re.compile(rf"<(?=\s*+(?:/\s*+)?(?:{CONTEXT}|{SUMMARY}|{ARC}|{PREFERENCES})\b)", re.IGNORECASE)


def as_data(text: str) -> str:
    """A text with every imitation of a fence made harmless; any other text as it is."""
    return _IMITATION.sub("\N{SINGLE LEFT-POINTING ANGLE QUOTATION MARK}", text)


def as_item(text: str) -> str:
    """A text as data in one item: further lines are indented, so that none can pass for an item or a heading."""
    return "\n  ".join(as_data(text).splitlines())


def opening(name: str) -> str:
    """The line that opens a fence."""
    return f"<{name}>\n"


def marks() -> tuple[str, ...]:
    """Every line that opens or closes a fence, in the forms in which it may stand in a prompt."""
    names = (CONTEXT, SUMMARY, ARC, PREFERENCES)
    return tuple(mark for name in names for mark in (opening(name), closing(name), f"</{name}>"))


def closing(name: str) -> str:
    """The line that closes a fence."""
    return f"</{name}>\n"
