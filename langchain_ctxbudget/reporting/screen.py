"""Texts on a screen that has so many columns and may have colours; nothing that is shown steers it."""

from __future__ import annotations

import os
import re
import shutil
import sys

from rich.cells import cell_len, chop_cells, set_cell_size

PLAIN_WIDTH = 80
"""Columns where there is no terminal."""
_OBEYED = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")
"""Control characters, directions of writing, and halves of characters, which cannot be printed at all."""
_DELETE = 0x7F
_STEPS = (0, 95, 135, 175, 215, 255)
"""Brightness of the steps in a terminal's cube of colours."""


def terminal_width() -> int:
    """Columns of the terminal, 80 where standard output is none."""
    return shutil.get_terminal_size().columns if _is_terminal() else PLAIN_WIDTH


def terminal_colour() -> bool:
    """Whether standard output is a terminal that shows colours; `NO_COLOR` switches them off."""
    return _is_terminal() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _is_terminal() -> bool:
    return sys.stdout is not None and not sys.stdout.closed and sys.stdout.isatty()


def shown(text: str) -> str:
    r"""A text whose control characters are shown, not obeyed.

    >>> shown("red \x1b[31m, C1 \x9b, backwards \u202e")
    'red ␛[31m, C1 \\u009b, backwards \\u202e'
    """
    return _OBEYED.sub(_picture, text)


def _picture(found: re.Match[str]) -> str:
    code = ord(found[0])
    if code < ord(" "):
        return chr(0x2400 + code)
    return "␡" if code == _DELETE else f"\\u{code:04x}"


def fitted(text: str, columns: int) -> str:
    """A text in exactly so many columns: filled up with spaces, or cut with an ellipsis.

    >>> fitted("北京", 6), fitted("Conversation", 6)
    ('北京  ', 'Conve…')
    """
    if cell_len(text) > columns:
        text = f"{set_cell_size(text, columns - 1)}…"
    return set_cell_size(text, columns)


def wrapped(text: str, columns: int) -> list[str]:
    """A text in lines of at most so many columns; white space is one space, a longer word is broken.

    >>> wrapped("two 北京北京北京 words", 9)
    ['two', '北京北京', '北京', 'words']
    """
    lines = [""]
    for word in text.split():
        for piece in chop_cells(word, columns) if cell_len(word) > columns else [word]:
            longer = f"{lines[-1]} {piece}" if lines[-1] else piece
            if cell_len(longer) <= columns:
                lines[-1] = longer
            else:
                lines.append(piece)
    return lines


def painted(text: str, colour: str) -> str:
    r"""A text in the colour of a terminal's cube that is nearest to `#RRGGBB`.

    >>> painted("bar", "#E8702A")
    '\x1b[38;5;166mbar\x1b[0m'
    """
    red, green, blue = (_nearest(int(colour[start : start + 2], 16)) for start in (1, 3, 5))
    return f"\x1b[38;5;{16 + 36 * red + 6 * green + blue}m{text}\x1b[0m"


def _nearest(brightness: int) -> int:
    return min(range(len(_STEPS)), key=lambda step: abs(_STEPS[step] - brightness))
