"""What was used in a conversation, and by a user in a month, as it is kept.

There is no counter that several processes share and could overwrite. Each has a lane of its own in every place, a
record of what it has counted there; what was used in a place is the sum of its lanes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated, TypeAlias, cast

from langgraph.store.base import BaseStore, Item, PutOp, SearchOp
from pydantic import Field

from langchain_ctxbudget.core.usage import Usage, total
from langchain_ctxbudget.errors import InputError
from langchain_ctxbudget.flow import Flow, batch
from langchain_ctxbudget.stores import bulk
from langchain_ctxbudget.stores.records import ROOT, Record, Scope, label, require_id

SPENT, USAGE = "spent", "usage"
UNKNOWN_MODEL = ""
"""Stands for the model of calls that do not name theirs."""

Place: TypeAlias = tuple[str, ...]
"""A namespace with one item per lane: that of a conversation, or of a user's month."""
Counted: TypeAlias = Mapping[str, Usage]
"""By model."""

_Count = Annotated[int, Field(ge=0, strict=True)]
_MONTH = re.compile(r"[0-9]{4}-(0[1-9]|1[0-2])")


class ModelUsage(Record):
    """What the calls of one model used; see `Usage`."""

    calls: _Count
    input_tokens: _Count
    cached_tokens: _Count
    output_tokens: _Count
    cost: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    unpriced_calls: _Count

    @classmethod
    def of(cls, usage: Usage) -> ModelUsage:
        """The record of a usage."""
        return cls(**asdict(usage))

    def to_usage(self) -> Usage:
        """The usage of a record."""
        return Usage(**dict(self))


class UsageRecord(Record):
    """What one lane has counted.

    Example:
        >>> UsageRecord.of({"gpt-4o": Usage(calls=1, input_tokens=10)}).to_counted()["gpt-4o"].input_tokens
        10
    """

    models: dict[str, ModelUsage]

    @classmethod
    def of(cls, counted: Counted) -> UsageRecord:
        """The record of what was counted."""
        return cls(models={model: ModelUsage.of(usage) for model, usage in counted.items()})

    def to_counted(self) -> dict[str, Usage]:
        """What was counted, by model."""
        return {model: usage.to_usage() for model, usage in self.models.items()}


def month_of(now: datetime) -> str:
    """The calendar month of a moment, in UTC, which a moment without a time zone is taken for.

    >>> month_of(datetime.fromisoformat("2026-12-01T00:30:00+01:00"))
    '2026-11'
    """
    return (now.replace(tzinfo=UTC) if now.tzinfo is None else now.astimezone(UTC)).date().isoformat()[:7]


def of_session(scope: Scope) -> Place:
    """Where it says what was used in a conversation."""
    return scope.namespace(SPENT)


def of_month(user_id: str, month: str) -> Place:
    """Where it says what a user has used in a month, in all conversations.

    A month is no label of a conversation: clearing one called "2026-11" leaves it.

    Raises:
        InputError: the month is none.
        MissingScopeError: no user.
    """
    if not isinstance(month, str) or not _MONTH.fullmatch(month):
        raise InputError(f"month must be a year and a month such as '2026-11', not {month!r}")
    return (*of_user(user_id), USAGE, month)


def of_user(user_id: str) -> Place:
    """What the places of a user begin with.

    Raises:
        MissingScopeError: no user.
    """
    return (ROOT, label(require_id("user_id", user_id)))


def read_lanes(store: BaseStore, places: Sequence[Place]) -> Flow[list[dict[str, UsageRecord]]]:
    """The lanes of each place, by name.

    Raises:
        StoreDataError: one that cannot be read; the message names it.
    """
    results = yield from batch(store, [SearchOp(place, limit=bulk.PAGE) for place in places])
    found: list[dict[str, UsageRecord]] = []
    for place, result in zip(places, results, strict=True):
        items = cast("list[Item]", result)
        if len(items) == bulk.PAGE:
            items = yield from bulk.read_all(store, place)
        # By name: an item that is written while pages are read may stand on two of them.
        lanes = {item.key: item.value for item in items if item.namespace == place}
        found.append(
            {lane: UsageRecord.read(value, f"usage {'/'.join(place)} {lane!r}") for lane, value in lanes.items()}
        )
    return found


def added(*parts: Counted) -> dict[str, Usage]:
    """The sum of what was counted, by model."""
    models = dict.fromkeys(model for part in parts for model in part)
    return {model: total(part[model] for part in parts if model in part) for model in models}


def writing(place: Place, lane: str, counted: Counted) -> PutOp:
    """The write of a lane."""
    return PutOp(place, lane, UsageRecord.of(counted).to_value(), index=False)
