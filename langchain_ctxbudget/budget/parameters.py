"""Settings that pydantic checks, and among them usage limits with what follows from them (seed 003's context tiers).

What pydantic refuses becomes this package's error with field, value and limit.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from reprlib import repr as short_repr
from typing import Annotated, Any, ClassVar, Literal, Self, TypeAlias

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from langchain_ctxbudget.errors import InvalidSettingsError, meant


def _not_blank(text: str) -> str:
    if not text.strip():
        raise ValueError("must be a non-empty string")
    return text


NonNegative: TypeAlias = Annotated[int, Field(strict=True, ge=0)]
Positive: TypeAlias = Annotated[int, Field(strict=True, ge=1)]
Share: TypeAlias = Annotated[float, Field(strict=True, gt=0, le=1)]
ShareOrNone: TypeAlias = Annotated[float, Field(strict=True, ge=0, le=1)]
Flag: TypeAlias = Annotated[bool, Field(strict=True)]
Text: TypeAlias = Annotated[str, Field(strict=True), AfterValidator(_not_blank)]


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
                f"{cls.__name__} is made from a mapping of fields, not {type(value).__name__}"
            )
        return cls(**{str(name): given for name, given in value.items()})


def _problems(error: ValidationError, kind: type[Parameters]) -> Iterator[str]:
    """Words each problem as `field must be ..., not value`."""
    for problem in error.errors(include_url=False):
        parts = (part for part in (kind.setting, *problem["loc"]) if part != "")
        place = "".join(
            f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts
        ).lstrip(".")
        said = problem["msg"].removeprefix("Value error, ").replace("Input should", "must")
        if problem["type"] == "extra_forbidden":
            near = meant(str(problem["loc"][-1]), kind.model_fields)
            said = f"is no setting of {kind.__name__}{near}; known are {', '.join(sorted(kind.model_fields))}"
        elif said.startswith("must") and ", not " not in said:
            said = f"{said}, not {short_repr(problem['input'])}"
        yield (
            said
            if said.startswith(place)
            else f"{place}{' ' if said.startswith(('must', 'is ')) else ': '}{said}"
        )


# Usage limits, and how much a prompt may hold when little of them is left

TierName = Literal["healthy", "caution", "warning", "critical"]
Forced = Literal["knowledge", "documents", "history", "budget"]
THRESHOLDS = (0.8, 0.6, 0.4)
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
    """Shares that are left, below which caution, warning and critical begin (seed 003)."""

    @model_validator(mode="after")
    def _require_falling(self) -> Self:
        first, second, third = self.thresholds
        if not first > second > third:
            raise ValueError(
                f"thresholds must be three falling shares, such as {THRESHOLDS}, not {self.thresholds}"
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
        return min(1.0, max(0.0, round((self.allowed - self.used) / self.allowed, 12)))


def standing(limits: UsageLimits, used: Mapping[str, float]) -> Standing | None:
    """Returns the limit with the smallest share left; None where none is set."""
    allowed = ((name, getattr(limits, name)) for name in LIMITS)
    found = [
        Standing(limit=name, used=used.get(name, 0), allowed=most) for name, most in allowed if most
    ]
    return min(found, key=lambda one: one.left, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tier:
    """The most that a prompt may hold (seed 003: its pruning strategy)."""

    name: TierName
    knowledge_items: int | None = None
    """Topics, entities and facts together, the most relevant first; None: all (the seed's tier
    2)."""
    documents: Literal["full", "summary", "none"] = "full"
    history_messages: int | None = None
    """The newest messages that may be verbatim; the last exchange always is. None: as budgeted (the
    seed's tier 4)."""
    budget_share: float = 1.0
    """The share of the budget that may be used. The seed has none: its history ends with the
    verbatim messages, while here summary and retrieval would take the room that they leave, and
    nothing would be saved."""


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
    return TIERS[sum(left < threshold for threshold in thresholds)]


def relaxed(tier: Tier, forced: Collection[Forced]) -> Tier:
    """Returns a tier without the limits that are forced open."""
    fields = {
        "knowledge": "knowledge_items",
        "history": "history_messages",
        "budget": "budget_share",
    }
    changes: dict[str, Any] = {
        name: getattr(HEALTHY, name) for name in (fields.get(one, one) for one in forced)
    }
    return replace(tier, **changes)
