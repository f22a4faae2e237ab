"""Texts from outside the open conversation, and filling a budget with items of any kind."""

from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from langchain_ctxbudget.messages import sentences
from langchain_ctxbudget.settings import Source

Kind = Literal["core", "explicit", "fact", "project", "experience"]
PRIORITIES: dict[Kind, int] = {
    "core": 100,
    "explicit": 90,
    "fact": 80,
    "project": 75,
    "experience": 70,
}
"""The weight of each kind of text, 0 to 100."""
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
    label: str = ""
    """The title of the conversation, where that has one."""
    place: int = 0
    """Its place in the conversation or document, for the order."""
    speaker: str = ""
    """Empty for documents and memories."""
    from_user: bool = False
    """A human says it."""
    date: str | None = None
    """`YYYY-MM-DD`, where it is known."""
    kind: Kind = "experience"
    certainty: float = 1.0
    """Of a fact about the user, 0 to 1."""
    metadata: Mapping[str, Any] = field(default_factory=dict, compare=False)
    """Of a document: what it was given with, and where in it this stands."""


def pack(costs: Mapping[int, int], budget_tokens: int) -> list[int]:
    """Takes items in order as long as they fit, skips the others, and returns the numbers taken.

    Args:
        costs: The tokens of each item by its number, in the order in which items are taken.
        budget_tokens: What the items may cost together.
    """
    taken: list[int] = []
    for number, cost in costs.items():
        if cost <= budget_tokens:
            taken.append(number)
            budget_tokens -= cost
    return taken


def shrink_to(
    text: str,
    count: Callable[[str], int],
    budget_tokens: int,
    split: Callable[[str], list[str]] = sentences,
) -> str | None:
    """Returns the first sentences of a text that fit a budget, or None where not even one does.

    Args:
        text: The text.
        count: Counts the tokens of a text.
        budget_tokens: What the sentences may cost.
        split: Splits a text into the parts that stay whole.
    """
    if budget_tokens <= 0:
        return None  # nothing fits: not worth tokenizing
    if count(text) <= budget_tokens:
        return text
    parts = split(text)

    def first(number: int) -> str:
        return " ".join(parts[:number]) + ELLIPSIS

    fitting = bisect_right(
        range(1, len(parts) + 1), budget_tokens, key=lambda number: count(first(number))
    )
    return first(fitting) if fitting else None
