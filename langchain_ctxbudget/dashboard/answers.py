"""What the API answers: plain data, from which its OpenAPI description is made, too."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from langchain_ctxbudget.core.compaction import Strategy
from langchain_ctxbudget.core.preservation import Preservation
from langchain_ctxbudget.core.report import ContextReport
from langchain_ctxbudget.core.tiers import Documents, Forced, TierName


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSummary:
    """A conversation, as the list of them shows it."""

    session_id: str
    messages: int
    last_updated: datetime | None
    """When the newest snapshot was made, or the newest message was said, where either is known."""
    snapshots: int
    total_tokens: int | None
    """Of the newest snapshot, as everything that follows."""
    budget_tokens: int | None
    budget_percent: float | None
    tier: TierName | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sessions:
    """The conversations of a user, the newest first."""

    user_id: str
    sessions: tuple[SessionSummary, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TierTokens:
    """What a tier of seed 003 has in a prompt."""

    tokens: int
    items: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TierBreakdown:
    """A prompt by the tiers of seed 003; they add up to its total."""

    tier1: TierTokens
    """What is always sent: identity, preferences, the current turn, tools and framing."""
    tier2: TierTokens
    """What is known: topics, entities, facts, the application's own layers."""
    tier3: TierTokens
    """Documents."""
    tier4: TierTokens
    """What was said: history, its summary, messages that were found."""
    total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PruningStrategy:
    """What the usage limits let in (seed 003)."""

    budget_range: str
    """What is left of the most restrictive limit, such as `60-80%`."""
    tier1_messages: int
    tier2_items: int | Literal["all"]
    tier3_mode: Documents
    tier4_messages: int | Literal["as budgeted"]
    """The newest messages that may be verbatim; the last exchange always is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextStatus:
    """What is in the context of a conversation."""

    session_id: str
    source: Literal["snapshot", "preview"]
    """A prompt that was made, or the one that would be made now."""
    current_context: ContextReport
    tier_breakdown: TierBreakdown
    budget_percent: float
    """The share of the budget that is used, in percent."""
    pruning_strategy: PruningStrategy
    last_updated: datetime
    steady_messages: int
    """So many messages, from the first on, are where they were when the prompt was made; positions beyond may be those
    of other messages now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotSummary:
    """A snapshot, as the chart over turns shows it."""

    id: str
    created_at: datetime
    messages: int
    total_tokens: int
    budget_tokens: int
    layers: dict[str, int]
    """Tokens used, by layer."""
    overhead_tokens: int
    tier: TierName | None
    allocation_strategy: str
    history_strategy: Strategy
    compaction_step: bool
    stable_zone_share: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshots:
    """The newest snapshots of a conversation, oldest first."""

    session_id: str
    snapshots: tuple[SnapshotSummary, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SaidMessage:
    """A message of a conversation."""

    position: int
    """From 1, as in a report's coverage."""
    id: str
    role: str
    """`human`, `ai`, `tool` or `system`."""
    name: str | None
    text: str
    """Up to 10,000 characters; a longer one ends with an ellipsis."""
    created_at: str | None
    """As it was given with the message."""
    preservation: Preservation | None
    """What is to become of it: by a pin, else by the message itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Messages:
    """Some messages of a conversation."""

    messages: tuple[SaidMessage, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageTotals:
    """What was used."""

    calls: int
    input_tokens: int
    cached_tokens: int
    output_tokens: int
    total_tokens: int
    cost: float
    """In US dollars."""
    unpriced_calls: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitStanding:
    """The most restrictive limit."""

    limit: str
    used: float
    """In tokens or US dollars, as the limit."""
    allowed: float
    """In the same."""
    left: float
    """A share, from 0 to 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionUsage:
    """What a conversation, and its user in this month, have used."""

    session: UsageTotals
    month: UsageTotals
    standing: LimitStanding | None
    tier: TierName | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Usage limits; null is no limit."""

    session_tokens: int | None
    session_cost: float | None
    """In US dollars."""
    month_tokens: int | None
    month_cost: float | None
    """In US dollars."""
    thresholds: tuple[float, float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings that apply to the user."""

    force_include: tuple[Forced, ...]
    usage_limits: Limits | None
    max_context_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MessagePinned:
    """What is to become of a message from now on."""

    session_id: str
    message_id: str
    preservation: Preservation | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FactPinned:
    """Whether a fact, a topic or an entity is kept whatever happens."""

    fact_id: str
    pinned: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """What is wrong with a request, or with the service."""

    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetProblem:
    """A budget that is too small."""

    error: str
    floors: dict[str, int]
    """What each part needs, in tokens."""
