"""Settings that pydantic checks, and among them usage limits with what follows from them.

What pydantic refuses becomes this package's error with field, value and limit.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from reprlib import repr as short_repr
from typing import Annotated, Any, ClassVar, Literal, Self, TypeAlias

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import ErrorDetails

from langchain_ctxbudget.errors import InvalidSettingsError, suggestion_for


def _require_text(text: str) -> str:
    if not text.strip():
        raise ValueError("must be a non-empty string")
    return text


NonNegative: TypeAlias = Annotated[int, Field(strict=True, ge=0)]
Positive: TypeAlias = Annotated[int, Field(strict=True, ge=1)]
Share: TypeAlias = Annotated[float, Field(strict=True, gt=0, le=1)]
ShareOrNone: TypeAlias = Annotated[float, Field(strict=True, ge=0, le=1)]
Flag: TypeAlias = Annotated[bool, Field(strict=True)]
Text: TypeAlias = Annotated[str, Field(strict=True), AfterValidator(_require_text)]


class Parameters(BaseModel):
    """A frozen value whose fields are checked when it is made."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", arbitrary_types_allowed=True, defer_build=True
    )
    setting: ClassVar[str] = ""
    """The setting that it is a value of, for errors."""

    def __init__(self, **values: object) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise InvalidSettingsError("; ".join(_problems(error, type(self)))) from None

    @classmethod
    def of(cls, value: object) -> Self:
        """Returns the value itself, or makes one from a mapping of its fields."""
        if isinstance(value, cls):
            return value
        if not isinstance(value, Mapping):
            raise InvalidSettingsError(
                f"{cls.setting or 'settings'} must be a {cls.__name__} or a dict of its fields, "
                f"not {type(value).__name__}"
            )
        return cls(**{str(name): field for name, field in value.items()})


def _problems(error: ValidationError, kind: type[Parameters]) -> Iterator[str]:
    """Words each problem as `field must be ..., not value`."""
    for problem in error.errors(include_url=False):
        place = _place_of(problem, kind)
        message = _message_of(problem, kind)
        if message.startswith(place):
            yield message
        elif message.startswith(("must", "is ")):
            yield f"{place} {message}"
        else:
            yield f"{place}: {message}"


def _place_of(problem: ErrorDetails, kind: type[Parameters]) -> str:
    """Returns where a problem is, such as `allocation.order[1]`."""
    place = kind.setting
    for part in problem["loc"]:
        if isinstance(part, int):
            place += f"[{part}]"
        elif part:
            place += f".{part}"
    return place.lstrip(".")


def _message_of(problem: ErrorDetails, kind: type[Parameters]) -> str:
    """Returns what is wrong, with the value that was given or the names that there are."""
    if problem["type"] == "extra_forbidden":
        nearest = suggestion_for(str(problem["loc"][-1]), kind.model_fields)
        names = ", ".join(sorted(kind.model_fields))
        return f"is no setting of {kind.__name__}{nearest or f'; known are {names}'}"
    message = problem["msg"].removeprefix("Value error, ").replace("Input should", "must")
    if problem["type"] == "int_type":
        message = "must be a whole number"
        thousands = re.fullmatch(r"\s*(\d+)\s*k\s*", str(problem["input"]), re.IGNORECASE)
        if thousands:
            message = f"must be a whole number, such as {thousands[1]}_000"
    if message.startswith("must") and ", not " not in message:
        return f"{message}, not {short_repr(problem['input'])}"
    return message


# Usage limits, and how much a prompt may hold when little of them is left

TierName = Literal["healthy", "caution", "warning", "critical"]
Forced = Literal["knowledge", "documents", "history", "budget"]
THRESHOLDS = (0.8, 0.6, 0.4)
"""Shares of a limit that are left, below which caution, warning and critical begin."""
LIMITS = ("session_tokens", "session_cost", "month_tokens", "month_cost")
_MOST = 10**15
"""Whole numbers up to here are exact in JSON, too."""
_Tokens = Annotated[int, Field(strict=True, gt=0, le=_MOST)]
_Dollars = Annotated[float, Field(strict=True, gt=0, le=_MOST)]


class UsageLimits(Parameters):
    """The most that a session, and a user in a calendar month (UTC), may use; None is no limit."""

    session_tokens: _Tokens | None = None
    """Input and output together; so in a month, of all conversations of the user."""
    session_cost: _Dollars | None = None
    month_tokens: _Tokens | None = None
    month_cost: _Dollars | None = None
    thresholds: tuple[ShareOrNone, ShareOrNone, ShareOrNone] = THRESHOLDS
    """Shares that are left, below which caution, warning and critical begin."""

    @model_validator(mode="after")
    def _require_falling(self) -> Self:
        first, second, third = self.thresholds
        if not first > second > third:
            raise ValueError(
                f"thresholds must be three falling shares, such as {THRESHOLDS}, "
                f"not {self.thresholds}"
            )
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """The rest of the most restrictive limit."""

    limit: str
    used: float
    allowed: float

    @property
    def left(self) -> float:
        """The share that is left, from 0 to 1, rounded.

        0.2 of a dollar, not 0.19999999999999996.
        """
        share = (self.allowed - self.used) / self.allowed
        return min(1.0, max(0.0, round(share, 12)))


def tightest_limit(limits: UsageLimits, used: Mapping[str, float]) -> Standing | None:
    """Returns the limit with the smallest share left; None where none is set."""
    standings: list[Standing] = []
    for name in LIMITS:
        allowed = getattr(limits, name)
        if allowed:
            standings.append(Standing(limit=name, used=used.get(name, 0), allowed=allowed))
    return min(standings, key=lambda rest: rest.left, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tier:
    """The most that a prompt may hold near a usage limit."""

    name: TierName
    knowledge_items: int | None = None
    """Topics, entities and facts together, the most relevant first; None: all."""
    documents: Literal["full", "summary", "none"] = "full"
    history_messages: int | None = None
    """The newest messages that may be verbatim; the last exchange always is. None: as budgeted."""
    budget_share: float = 1.0
    """The share of the budget that may be used. With the whole budget, summary and retrieval would
    take the room that fewer messages leave, and nothing would be saved."""


HEALTHY = Tier(name="healthy")
TIERS: tuple[Tier, ...] = (
    HEALTHY,
    Tier(name="caution", history_messages=5, budget_share=0.5),
    Tier(
        name="warning",
        knowledge_items=3,
        documents="summary",
        history_messages=2,
        budget_share=0.25,
    ),
    Tier(
        name="critical", knowledge_items=1, documents="none", history_messages=0, budget_share=0.125
    ),
)
"""From most to least that is left."""


def tier_of(left: float, thresholds: tuple[float, float, float] = THRESHOLDS) -> Tier:
    """Returns the tier for the share that is left."""
    passed = sum(left < threshold for threshold in thresholds)
    return TIERS[passed]


_FIELDS_OF_FORCED: Mapping[Forced, str] = {
    "knowledge": "knowledge_items",
    "documents": "documents",
    "history": "history_messages",
    "budget": "budget_share",
}
"""The field of a tier that each `force_include` opens."""


def without_forced_limits(tier: Tier, forced: Collection[Forced]) -> Tier:
    """Returns a tier without the limits that are forced open."""
    changes: dict[str, Any] = {}
    for name in forced:
        field = _FIELDS_OF_FORCED[name]
        changes[field] = getattr(HEALTHY, field)
    return replace(tier, **changes)
