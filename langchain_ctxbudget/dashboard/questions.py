"""What the API can be asked: checked by these models, and described by them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, TypeAlias

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag

from langchain_ctxbudget.core.preservation import Preservation
from langchain_ctxbudget.core.tiers import Forced

LONGEST_ID, LONGEST_MESSAGE = 2_000, 10_000
"""Characters."""
MOST_TOKENS, MOST_POSITION = 100_000_000, 2**31 - 1
MOST_SNAPSHOTS, MOST_MESSAGES = 1_000, 200
"""Of one answer."""

Id: TypeAlias = Annotated[str, Field(min_length=1, max_length=LONGEST_ID)]
Position: TypeAlias = Annotated[int, Field(ge=1, le=MOST_POSITION)]


class Question(BaseModel):
    """The base of every question."""

    model_config = ConfigDict(frozen=True)


class Nothing(Question):
    """No parameters."""


class OfSession(Question):
    """One conversation."""

    session_id: Id = Field(description="Which conversation.")


class OfSnapshots(OfSession):
    """The latest snapshots of a conversation."""

    limit: Annotated[int, Field(ge=1, le=MOST_SNAPSHOTS)] = Field(
        default=100, description="How many of the newest snapshots at most."
    )


class OfSnapshot(OfSession):
    """One snapshot of a conversation."""

    snapshot_id: Annotated[str, Field(pattern=r"^[!-~]+$", max_length=200)] = Field(description="As the list gives it.")


class OfPreview(OfSession):
    """The next prompt of a conversation."""

    budget: Annotated[int, Field(ge=1, le=MOST_TOKENS)] | None = Field(
        default=None, description="Of the whole request, in tokens; default: that of the settings."
    )
    message: Annotated[str, Field(min_length=1, max_length=LONGEST_MESSAGE, pattern=r"\S")] | None = Field(
        default=None, description="What the user says next; default: the last that they said."
    )


class OfMessages(OfSession):
    """Some messages of a conversation."""

    first: Position = Field(default=1, description="The position of the first one, from 1.")
    last: Position | None = Field(
        default=None, description=f"The position of the last one; at most {MOST_MESSAGES} are given."
    )


class Body(BaseModel):
    """The base of what is sent as JSON; nothing else may be in it."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class MessagePin(Body):
    """What is to become of a message when its conversation is compacted."""

    session_id: Id
    message_id: Id
    preservation: Preservation | None = Field(description="null takes back what was said before.")


class FactPin(Body):
    """Whether a fact, a topic or an entity is kept whatever happens."""

    fact_id: Id
    pinned: bool


def _kind(given: object) -> str:
    """Which of the two a body is meant to be."""
    return "fact" if isinstance(given, FactPin) or (isinstance(given, Mapping) and "fact_id" in given) else "message"


Pin: TypeAlias = Annotated[
    Annotated[MessagePin, Tag("message")] | Annotated[FactPin, Tag("fact")], Discriminator(_kind)
]


class Force(Body):
    """What goes into prompts however little of a usage limit is left."""

    force_include: Annotated[list[Forced], Field(max_length=16)]
