"""Fences of code in a text: what stands between two lines of backticks or tildes."""

import re
from dataclasses import dataclass

_BORDER = re.compile(r"^[ \t]*(?P<marks>`{3,}|~{3,})(?P<rest>[^\n]*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class CodeFence:
    """A fence of code in a text, as positions in it."""

    start: int
    """Where its first line begins."""
    body_start: int
    """Where its code begins."""
    body_end: int
    """Where its last line begins."""
    end: int
    """Where its last line ends, before the line break."""

    def around(self, text: str, code: str) -> str:
        """Returns some of its code between its first and its last line, given the whole text."""
        first_line = text[self.start : self.body_start]
        return f"{first_line}{code.rstrip()}\n{text[self.body_end : self.end]}"


def code_fences(text: str) -> list[CodeFence]:
    """Returns the fences of code in a text, in order; one that is never closed is none."""
    fences: list[CodeFence] = []
    opening: re.Match[str] | None = None
    for border in _BORDER.finditer(text):
        if opening is None:
            opening = border if _may_open(border) else None
        elif _closes(border, opening):
            fences.append(
                CodeFence(
                    start=opening.start(),
                    body_start=min(opening.end() + 1, border.start()),
                    body_end=border.start(),
                    end=border.end(),
                )
            )
            opening = None
    return fences


def _may_open(border: re.Match[str]) -> bool:
    """Tells whether a line opens a fence; a line with more backticks in it is code in a line."""
    return border["marks"][0] != "`" or "`" not in border["rest"]


def _closes(border: re.Match[str], opening: re.Match[str]) -> bool:
    """Tells whether a line closes a fence: it has at least its marks, and nothing else."""
    return border["marks"].startswith(opening["marks"]) and not border["rest"].strip()
