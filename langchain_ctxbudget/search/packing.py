"""Candidates for a prompt, and filling a budget with them: what does not fit is skipped, not the end of the list."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from langchain_ctxbudget.messages import sentences
from langchain_ctxbudget.settings import Source

Kind = Literal["core", "explicit", "fact", "project", "experience"]
PRIORITIES: dict[Kind, int] = {"core": 100, "explicit": 90, "fact": 80, "project": 75, "experience": 70}
"""The weight of each kind of text (seed 001)."""
ELLIPSIS = " …"


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A text from outside the open conversation: of another conversation, a memory, a document."""

    id: str
    """Unique among all of a user: `conversation/message`, `document#chunk`."""
    source: Source
    text: str
    title: str = ""
    """A document's title or a conversation's id; parts of one stand under one heading."""
    place: int = 0
    """Its place there, for the order."""
    speaker: str = ""
    """Empty for documents and memories."""
    date: str | None = None
    """`YYYY-MM-DD`, where it is known."""
    kind: Kind = "experience"
    metadata: Mapping[str, Any] = field(default_factory=dict, compare=False)
    """Of a document: what it was given with, and where in it this stands."""


def pack(order: Iterable[int], cost: Callable[[int], int], budget_tokens: int, smallest: int) -> list[int]:
    """Takes items in order as long as they fit, and returns the numbers of those taken, best first.

    The cost of an item is asked once, when its turn comes, and may depend on what was taken. None costs less than
    `smallest`: packing ends when not even that is left.
    """
    taken: list[int] = []
    left = budget_tokens
    for number in order:
        if left < smallest:
            break
        price = cost(number)
        if price <= left:
            taken.append(number)
            left -= price
    return taken


def shrink_to(
    text: str, count: Callable[[str], int], budget_tokens: int, split: Callable[[str], list[str]] = sentences
) -> str | None:
    """Returns the first sentences of a text that fit a budget, or None where not even one does."""
    if budget_tokens <= 0:
        return None  # nothing fits: not worth tokenizing
    if count(text) <= budget_tokens:
        return text
    parts = split(text)

    def first(number: int) -> str:
        return " ".join(parts[:number]) + ELLIPSIS

    fitting = bisect_right(range(1, len(parts) + 1), budget_tokens, key=lambda number: count(first(number)))
    return first(fitting) if fitting else None
