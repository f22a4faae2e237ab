"""What a prompt may quote from outside the open conversation: other conversations, memories, documents."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from langchain_ctxbudget.settings import Source

Kind = Literal["core", "explicit", "fact", "project", "experience"]
PRIORITIES: dict[Kind, int] = {"core": 100, "explicit": 90, "fact": 80, "project": 75, "experience": 70}
"""How much the kind of a text counts (seed 001)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A text from outside the open conversation."""

    id: str
    """Unique among all of a user: `conversation/message`, `document#chunk`."""
    source: Source
    text: str
    title: str = ""
    """What it is a part of: a document's title, a conversation's id. Parts of one stand under one heading."""
    place: int = 0
    """Where in that it stands, for the order."""
    speaker: str = ""
    """Who said it; empty for documents and memories."""
    date: str | None = None
    """`YYYY-MM-DD`, where it is known."""
    kind: Kind = "experience"
    metadata: Mapping[str, Any] = field(default_factory=dict, compare=False)
    """Of a document: what it was given with, and where in it this stands."""
