"""Clocks of the application or the computer, and sums of times that stay in the calendar."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TypeAlias

from langchain_ctxbudget.errors import InvalidSettingsError

Clock: TypeAlias = Callable[[], datetime]
_FIRST_MOMENT = datetime.min.replace(tzinfo=UTC)
_LAST_MOMENT = datetime.max.replace(tzinfo=UTC)


def utc_now() -> datetime:
    """Returns the time in UTC."""
    return datetime.now(UTC)


def with_offset(clock: Clock) -> Clock:
    """Returns a clock whose times name their offset; those that do not are taken for UTC."""
    if not callable(clock):
        raise InvalidSettingsError(f"clock must be a function that gives the time, not {type(clock).__name__}")

    def now() -> datetime:
        time = clock()
        if not isinstance(time, datetime):
            raise InvalidSettingsError(f"clock must give a datetime, not {time!r}: for instance datetime.now(UTC)")
        return time if time.utcoffset() is not None else time.replace(tzinfo=UTC)

    return now


def utc(time: datetime) -> datetime:
    """Returns a time in UTC, at the edge of the calendar the last one; a time without an offset is UTC already."""
    try:
        return time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC)
    except OverflowError:
        return _FIRST_MOMENT if time.year == 1 else _LAST_MOMENT


def later(time: datetime, span: timedelta) -> datetime:
    """Returns a later time, or the last one of the calendar."""
    try:
        return time + span
    except OverflowError:
        return _LAST_MOMENT
