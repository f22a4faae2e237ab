"""The API's questions, which pydantic checks, and the shapes of its answers, which are plain dicts."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Literal, NotRequired, TypeAlias

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag
from typing_extensions import TypedDict

from langchain_ctxbudget.budget.tiers import Documents, Forced, TierName, UsageLimits
from langchain_ctxbudget.messages.messages import Preservation
from langchain_ctxbudget.report.report import ContextReport, HistoryStrategy

LONGEST_ID, LONGEST_MESSAGE = 2_000, 10_000
"""Characters."""
MOST_POSITION = 2**31 - 1
MOST_MESSAGES = 200
"""In one answer."""

Id: TypeAlias = Annotated[str, Field(min_length=1, max_length=LONGEST_ID)]
Words: TypeAlias = Annotated[str, Field(min_length=1, max_length=LONGEST_MESSAGE, pattern=r"\S")]
Source: TypeAlias = Literal["snapshot", "preview"]
_Position: TypeAlias = Annotated[int, Field(ge=1, le=MOST_POSITION)]

# The parameters of the operations.
SessionId: TypeAlias = Annotated[Id, Field(description="The conversation.")]
SnapshotId: TypeAlias = Annotated[str, Field(pattern=r"^[!-~]+$", max_length=200, description="As the list gives it.")]
Limit: TypeAlias = Annotated[int, Field(ge=1, le=1_000, description="At most so many of the newest snapshots.")]
Budget: TypeAlias = Annotated[
    Annotated[int, Field(ge=1, le=100_000_000)] | None,
    Field(description="Of the whole request; default: that of the settings."),
]
Message: TypeAlias = Annotated[Words | None, Field(description="The user's next message; default: their last one.")]
First: TypeAlias = Annotated[_Position, Field(description="The position of the first one, from 1.")]
Last: TypeAlias = Annotated[
    _Position | None, Field(description=f"The position of the last one; at most {MOST_MESSAGES} are given.")
]


class Body(BaseModel):
    """A change, sent as JSON; nothing else may be in it."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class MessagePin(Body):
    """The fate of a message when its conversation is compacted."""

    session_id: Id
    message_id: Id
    preservation: Preservation | None = Field(description="null takes back an earlier wish.")


class FactPin(Body):
    """A fact, a topic or an entity that is kept whatever happens, or no longer."""

    fact_id: Id
    pinned: bool


def _kind_of_pin(given: object) -> str:
    return "fact" if isinstance(given, FactPin) or (isinstance(given, Mapping) and "fact_id" in given) else "message"


Pin: TypeAlias = Annotated[
    Annotated[MessagePin, Tag("message")] | Annotated[FactPin, Tag("fact")], Discriminator(_kind_of_pin)
]


class Force(Body):
    """Parts of a prompt that are let in however little of a usage limit is left."""

    force_include: Annotated[list[Forced], Field(max_length=16)]


class SessionSummary(TypedDict):
    """A conversation in the list; tokens and tier are those of its newest snapshot."""

    session_id: str
    messages: int
    last_updated: datetime | None
    snapshots: int
    total_tokens: int | None
    budget_tokens: int | None
    budget_percent: float | None
    tier: TierName | None


class Sessions(TypedDict):
    """The conversations of a user, the newest first."""

    user_id: str
    sessions: list[SessionSummary]


class TierBreakdown(TypedDict):
    """Tokens and items of what is always sent, of what is known, of documents and of what was said (seed 003)."""

    tier1: dict[str, int]
    tier2: dict[str, int]
    tier3: dict[str, int]
    tier4: dict[str, int]
    total: int


class PruningStrategy(TypedDict):
    """The parts that the usage limits let in (seed 003); `budget_range` is what is left, such as `60-80%`."""

    budget_range: str
    tier1_messages: int
    tier2_items: int | Literal["all"]
    tier3_mode: Documents
    tier4_messages: int | Literal["as budgeted"]


class ContextStatus(TypedDict):
    """The prompt of a conversation: one that was made, or the one that would be made now.

    The first `steady_messages` messages are where they were when it was made; later positions may be those of others.
    """

    session_id: str
    source: Source
    current_context: ContextReport
    tier_breakdown: TierBreakdown
    budget_percent: float
    pruning_strategy: PruningStrategy
    last_updated: datetime
    steady_messages: int


class SnapshotSummary(TypedDict):
    """A snapshot in numbers; `layers` are tokens used, by layer."""

    id: str
    created_at: datetime
    messages: int
    total_tokens: int
    budget_tokens: int
    layers: dict[str, int]
    overhead_tokens: int
    tier: TierName | None
    allocation_strategy: str
    history_strategy: HistoryStrategy
    compaction_step: bool
    stable_zone_share: float | None


class Snapshots(TypedDict):
    """The newest snapshots of a conversation, oldest first."""

    session_id: str
    snapshots: list[SnapshotSummary]


class SaidMessage(TypedDict):
    """A message of a conversation; its position counts from 1, and a long text ends with an ellipsis."""

    position: int
    id: str
    role: str
    name: str | None
    text: str
    created_at: str | None
    preservation: Preservation | None


class Messages(TypedDict):
    """Some messages of a conversation."""

    messages: list[SaidMessage]


class SessionUsage(TypedDict):
    """The use of a conversation, and of its user in this month: calls, tokens, cost in US dollars.

    `standing` is the most restrictive limit with what is used, allowed and left of it.
    """

    session: dict[str, float]
    month: dict[str, float]
    standing: dict[str, str | int | float] | None
    tier: TierName | None


class Settings(TypedDict):
    """The settings that apply to the user."""

    force_include: list[Forced]
    usage_limits: UsageLimits | None
    max_context_tokens: int


class Problem(TypedDict):
    """A reason for not answering; of a budget that is too small, also the tokens that each part needs."""

    error: str
    floors: NotRequired[dict[str, int]]
