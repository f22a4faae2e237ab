"""Clocks, whose times always have an offset from UTC."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import TypeAlias

from langchain_ctxbudget.errors import InvalidSettingsError

Clock: TypeAlias = Callable[[], datetime]


def utc_now() -> datetime:
    """Returns the time in UTC."""
    return datetime.now(UTC)


def with_offset(clock: Clock) -> Clock:
    """Returns a clock whose times have an offset; times without one are taken as UTC.

    Raises:
        InvalidSettingsError: it is no function, or later, when it is called, it gives no time.
    """
    if not callable(clock):
        raise InvalidSettingsError(f"clock must be a function that gives the time, not {clock!r}")

    def now() -> datetime:
        time = clock()
        if not isinstance(time, datetime):
            raise InvalidSettingsError(
                f"clock must give a datetime, not {time!r}: for instance datetime.now(UTC)"
            )
        if time.utcoffset() is None:
            return time.replace(tzinfo=UTC)
        return time

    return now


def utc(time: datetime) -> datetime:
    """Returns a time in UTC; one without an offset is UTC already."""
    if time.tzinfo:
        return time.astimezone(UTC)
    return time.replace(tzinfo=UTC)
