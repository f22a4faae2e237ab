"""Texts without the blanks that say nothing."""

from __future__ import annotations

import re

_CODE = re.compile(r"(?P<fence>`{3,}).*?(?:(?P=fence)|\Z)", re.DOTALL)
_TRAILING_BLANKS = re.compile(r"(?<![^\S\n])[^\S\n]++(?=\n)")
_BLANK_LINES = re.compile(r"\n{3,}")
_INNER_BLANKS = re.compile(r"(?<=\S)[^\S\n]{2,}")


def collapsed(text: str) -> str:
    """A text without blanks at the ends of lines, runs of blanks within them and of blank lines between them.

    Indentation means something, so it stays, and so does everything in a code fence.
    """
    parts: list[str] = []
    end = 0
    for code in _CODE.finditer(text):
        parts += [_without_blanks(text[end : code.start()]), code.group()]
        end = code.end()
    return "".join([*parts, _without_blanks(text[end:])])


def _without_blanks(text: str) -> str:
    return _INNER_BLANKS.sub(" ", _BLANK_LINES.sub("\n\n", _TRAILING_BLANKS.sub("", text)))
