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
    if "```" not in text and "~~~" not in text:
        return fences
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


def with_borders(text: str, start: int, end: int) -> str:
    """Returns a part of a text in which no fence of code is open at one end.

    A fence that the part begins or ends in has its first and last line in the part, too. What is
    left out at the beginning and at the end is marked by "…".
    """
    part = text[start:end].rstrip()
    beginning = "… " if start else ""
    ending = "" if end >= len(text) else " …"
    for fence in code_fences(text):
        first_line = text[fence.start : fence.body_start]
        last_line = text[fence.body_end : fence.end]
        if fence.start < start < fence.body_end:
            beginning = f"…\n{first_line}"
        if fence.start < end < fence.body_start:
            part = text[start : fence.start].rstrip()
        elif fence.body_start <= end <= fence.body_end:
            ending = f" …\n{last_line}"
        elif fence.body_end < end < fence.end:
            part = f"{text[start : fence.body_end].rstrip()}\n{last_line}"
    return f"{beginning}{part}{ending}"
