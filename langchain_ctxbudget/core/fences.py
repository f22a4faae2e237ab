"""The fences around stored text in a prompt, and the text inside them as data.

Stored text may imitate a fence to break out of its block; such an imitation is neutralised, also one that only looks
like it: spaced, in full-width letters, with invisible characters in it.

Lines inside a fence begin with a mark (`-`, `[`, `#`) and end with a line break: no tokenizer of the tiktoken family
joins tokens across such a border, so the cost of a block is the sum of the costs of its lines. Further lines of a text
are blank, or indented by one space: that is mostly a part of the next word's token.
"""

from __future__ import annotations

import re

CONTEXT = "context"
SUMMARY = "conversation_summary"
ARC = "conversation_arc"
PREFERENCES = "user_preferences"

_INVISIBLE = (
    r"\x00-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f"
    r"\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U000e0000-\U000e0fff"
)
_GAP = rf"[\s{_INVISIBLE}]*+"
_FULL_WIDTH = 0xFEE0
"""How far a full-width character is from the plain one."""


def _like(name: str) -> str:
    """The pattern of a name, however it is spaced, plain or full-width."""
    return _GAP.join(f"[{letter}{chr(ord(letter) + _FULL_WIDTH)}]" for letter in name)


_NAMES = "|".join(map(_like, (CONTEXT, SUMMARY, ARC, PREFERENCES)))
_IMITATION = re.compile(rf"[<\uff1c\ufe64](?={_GAP}(?:[/\\\uff0f]{_GAP})*+(?:{_NAMES})\b)", re.IGNORECASE)


def as_data(text: str) -> str:
    """A text with every imitation of a fence made harmless; any other text as it is."""
    return _IMITATION.sub("\N{SINGLE LEFT-POINTING ANGLE QUOTATION MARK}", text)


def as_item(text: str) -> str:
    """A text as data in one item: further lines are indented, so that none can pass for an item or a heading."""
    first, *more = as_data(text).splitlines() or [""]
    return "\n".join((first, *(f" {line}" if line.strip() else "" for line in more)))


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
