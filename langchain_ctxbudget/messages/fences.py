"""The fences around stored text in a prompt, and the text inside them as data.

Stored text may imitate a fence to break out of it; such an imitation is neutralised, also one that
only looks like it: spaced, with invisible characters in it, or in full-width or mathematical
letters.

Lines inside a fence begin with a mark (`-`, `[`, `#`) and end with a line break, so what is fenced
costs the sum of its lines. Further lines of a text are blank, or indented by one space.
"""

import re
import unicodedata
from functools import cache

CONTEXT = "context"
SUMMARY = "conversation_summary"
ARC = "conversation_arc"
PREFERENCES = "user_preferences"
OTHER_TOOLS = "other_tools"
_INVISIBLE = (
    r"\x00-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f"
    r"\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U000e0000-\U000e0fff"
)
_GAP = rf"[\s{_INVISIBLE}]*+"
_HARMLESS_BRACKET = "\N{SINGLE LEFT-POINTING ANGLE QUOTATION MARK}"


class _PlainCharacters(dict[int, str]):
    """The plain character for each compatibility form of one (full-width, mathematical)."""

    def __missing__(self, code: int) -> str:
        plain = unicodedata.normalize("NFKC", chr(code))
        if len(plain) != 1:
            plain = chr(code)
        self[code] = plain
        return plain


_PLAIN_CHARACTERS = _PlainCharacters({ord("\\"): "/"})


@cache
def _imitation() -> re.Pattern[str]:
    """Returns the pattern of the bracket with which an imitation of a fence begins."""
    spaced_names = [_GAP.join(name) for name in (CONTEXT, SUMMARY, ARC, PREFERENCES, OTHER_TOOLS)]
    names = "|".join(spaced_names)
    return re.compile(rf"<(?={_GAP}(?:/{_GAP})*+(?:{names})\b)", re.IGNORECASE)


def as_data(text: str) -> str:
    """Returns a text in which every imitation of a fence is harmless."""
    plain = text.translate(_PLAIN_CHARACTERS)  # as long as the text
    brackets = [match.start() for match in _imitation().finditer(plain)]
    if not brackets:
        return text
    parts: list[str] = []
    start = 0
    for bracket in brackets:
        parts.append(text[start:bracket])
        start = bracket + 1
    parts.append(text[start:])
    return _HARMLESS_BRACKET.join(parts)


def as_item(text: str) -> str:
    """Returns a text as data in one item.

    Further lines are indented, so that none passes for an item or a heading.
    """
    lines = as_data(text).splitlines()
    return "\n".join([*lines[:1], *map(_indented, lines[1:])])


def _indented(line: str) -> str:
    """Returns a line behind a space; one of white space alone becomes empty."""
    return f" {line}" if line.strip() else ""


def item(speaker: str, text: str, reference: str = "") -> str:
    """Returns the line of an item that quotes somebody.

    `reference` is what it may be looked up by.
    """
    beginning = f"{reference}{speaker}"
    if speaker:
        beginning += ": "
    return f"- {beginning}{as_item(text)}\n"


def opening(name: str) -> str:
    """Returns the line that opens a fence."""
    return f"<{name}>\n"


def closing(name: str) -> str:
    """Returns the line that closes a fence."""
    return f"</{name}>\n"
