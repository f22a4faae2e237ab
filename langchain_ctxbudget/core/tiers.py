"""Usage limits, and what a prompt may hold when little of them is left (seed 003's context tiers).

The seed computes what is *used* and compares it as if it were what is *left*; here it is what is left.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, Self, get_args

from langchain_ctxbudget.errors import InvalidSettingsError

TierName = Literal["healthy", "caution", "warning", "critical"]
Forced = Literal["knowledge", "documents", "history", "budget"]
Documents = Literal["full", "summary", "none"]

THRESHOLDS = (0.8, 0.6, 0.4)
"""Shares that are left, below which the next tier begins (seed 003)."""
_DECIMALS = 12
"""Of what is left: of a dollar of which 80 cents are used 0.2 is left, not 0.19999999999999996."""
MOST_ALLOWED = 10**15
"""Tokens or US dollars of a limit; whole numbers up to here are exact in JSON, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageLimits:
    """What a session, and a user in a calendar month (UTC), may use; None is no limit.

    Raises:
        InvalidSettingsError: a limit that is not above 0, or thresholds that do not fall.

    Example:
        >>> UsageLimits(month_tokens=1_000_000, session_cost=0.5).thresholds
        (0.8, 0.6, 0.4)
    """

    session_tokens: int | None = None
    """Input and output together, in tokens."""
    session_cost: float | None = None
    """US dollars."""
    month_tokens: int | None = None
    """Input and output together, of all conversations of the user, in tokens."""
    month_cost: float | None = None
    """Of all conversations of the user, in US dollars."""
    thresholds: tuple[float, float, float] = THRESHOLDS
    """Shares that are left, below which caution, warning and critical begin."""

    def __post_init__(self) -> None:
        for name in LIMITS:
            value, whole = getattr(self, name), name.endswith("tokens")
            if value is None:
                continue
            sound = isinstance(value, int if whole else (int, float)) and not isinstance(value, bool)
            if not sound or not 0 < value <= MOST_ALLOWED:
                kind = "a whole number of tokens" if whole else "a number of US dollars"
                raise InvalidSettingsError(
                    f"usage_limits.{name} must be {kind} above 0, up to {MOST_ALLOWED:.0e}, or None, not {value!r}"
                )
        given = self.thresholds
        if isinstance(given, str | bytes) or not isinstance(given, Iterable):
            raise InvalidSettingsError(f"usage_limits.thresholds must be three shares, not {given!r}")
        shares = tuple(given)
        sound = all(isinstance(share, int | float) and not isinstance(share, bool) for share in shares)
        if len(shares) != len(THRESHOLDS) or not sound or not 1 >= shares[0] > shares[1] > shares[2] >= 0:
            raise InvalidSettingsError(
                f"usage_limits.thresholds must be three falling shares from 1 to 0, such as {THRESHOLDS}, not {given!r}"
            )
        object.__setattr__(self, "thresholds", shares)

    @classmethod
    def of(cls, value: object) -> Self:
        """Limits from a mapping of their fields.

        Raises:
            InvalidSettingsError: it is something else, or has unknown fields.
        """
        if isinstance(value, cls):
            return value
        if not isinstance(value, Mapping):
            raise InvalidSettingsError(
                f"usage_limits must be UsageLimits or a mapping of its fields, not {type(value).__name__}"
            )
        known = [field.name for field in fields(cls)]
        if unknown := sorted(map(str, set(value) - set(known))):
            raise InvalidSettingsError(f"Unknown usage limits {', '.join(unknown)}; known are {', '.join(known)}")
        return cls(**value)

    @property
    def given(self) -> dict[str, float]:
        """The limits that are set."""
        return {name: value for name in LIMITS if (value := getattr(self, name)) is not None}


LIMITS = ("session_tokens", "session_cost", "month_tokens", "month_cost")


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """How much is left of the most restrictive limit.

    Example:
        >>> Standing(limit="month_tokens", used=250, allowed=1_000).left
        0.75
    """

    limit: str
    """A field of `UsageLimits`."""
    used: float
    """In tokens or US dollars."""
    allowed: float

    @property
    def left(self) -> float:
        """The share that is left, from 0 to 1."""
        return min(1.0, max(0.0, round((self.allowed - self.used) / self.allowed, _DECIMALS)))


def standing(limits: UsageLimits, used: Mapping[str, float]) -> Standing | None:
    """The limit of which the smallest share is left; None where none is set.

    Args:
        limits: that apply.
        used: by the name of the limit.

    Example:
        >>> standing(UsageLimits(session_tokens=100, month_tokens=1_000), {"session_tokens": 50, "month_tokens": 600})
        Standing(limit='month_tokens', used=600, allowed=1000)
    """
    found = [Standing(limit=name, used=used.get(name, 0), allowed=allowed) for name, allowed in limits.given.items()]
    return min(found, key=lambda one: one.left, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tier:
    """What a prompt may hold (seed 003: its pruning strategy).

    Example:
        >>> Tier(name="warning", knowledge_items=3).documents
        'full'
    """

    name: TierName
    knowledge_items: int | None = None
    """Topics, entities and facts together, the most relevant first; None: all (the seed's tier 2)."""
    documents: Documents = "full"
    """The seed's tier 3."""
    history_messages: int | None = None
    """The newest messages that may be verbatim; the last exchange always is. None: as budgeted (the seed's tier 4)."""
    budget_share: float = 1.0
    """The share of the budget that may be used. The seed has none: its history ends with the verbatim messages, while
    here summary and retrieval would take the room that they leave, and nothing would be saved."""


HEALTHY = Tier(name="healthy")
TIERS: tuple[Tier, ...] = (
    HEALTHY,
    Tier(name="caution", history_messages=5, budget_share=0.5),
    Tier(name="warning", knowledge_items=3, documents="summary", history_messages=2, budget_share=0.25),
    Tier(name="critical", knowledge_items=1, documents="none", history_messages=0, budget_share=0.125),
)
"""From most to least that is left."""


def tier_of(left: float, thresholds: tuple[float, float, float] = THRESHOLDS) -> Tier:
    """The tier for what is left.

    Args:
        left: a share, from 0 to 1.
        thresholds: below which caution, warning and critical begin.

    Example:
        >>> [tier_of(left).name for left in (1.0, 0.81, 0.7, 0.5, 0.4, 0.39)]
        ['healthy', 'healthy', 'caution', 'warning', 'warning', 'critical']
    """
    return TIERS[sum(left < threshold for threshold in thresholds)]


def relaxed(tier: Tier, forced: Collection[Forced]) -> Tier:
    """A tier that lets in what is forced.

    >>> relaxed(TIERS[3], ["documents"]).documents
    'full'
    """
    free: dict[Forced, dict[str, Any]] = {
        "knowledge": {"knowledge_items": None},
        "documents": {"documents": "full"},
        "history": {"history_messages": None},
        "budget": {"budget_share": 1.0},
    }
    changes: dict[str, Any] = {}
    for name in forced:
        changes |= free[name]
    return replace(tier, **changes)


def require_forced(values: object) -> tuple[Forced, ...]:
    """Names of what is let in regardless of the tier.

    Raises:
        InvalidSettingsError: something else.
    """
    known = get_args(Forced)
    given = tuple(values) if isinstance(values, Iterable) and not isinstance(values, str | bytes | Mapping) else None
    if given is None or any(value not in known for value in given):
        raise InvalidSettingsError(f"force_include must be a list of {', '.join(map(repr, known))}, not {values!r}")
    return given
