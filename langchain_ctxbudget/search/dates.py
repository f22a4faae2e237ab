"""Days and months that a question names, and the texts that are of these days."""

import re
from calendar import monthrange
from collections.abc import Iterable
from datetime import date, timedelta
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from langchain_ctxbudget.messages import vocabulary
from langchain_ctxbudget.search.scores import Numbers, Scores

_ENGLISH = vocabulary("search")
MONTHS = _ENGLISH["months"].split()
WEEKDAYS = _ENGLISH["weekdays"].split()
NEAR_DAYS = 3.0
"""Days from a named day after which a text counts for a third (1 / e) of one of that day."""
_LONGEST_MONTH_DAYS = 31
_LEAP_YEAR = 2024
"""Stands for a year that is not named, so that 29 February exists."""
_SPELLED_OUT = {"between": r"\1to", "day_to_day": r"\1 \3\2", "to_day": r"\1\2\3\1 "}
"""How "between 4 and 6 March", "4 to 6 March" and "March 4 to 6" are written with both months."""


class NamedDate(NamedTuple):
    """A day or a month that a text names; `year` and `day` are 0 where they are left open."""

    year: int
    month: int
    day: int


class DateRange(NamedTuple):
    """The first and the last of some days or months; of one that is named alone, it is both."""

    first: NamedDate
    last: NamedDate

    @property
    def has_days(self) -> bool:
        """Tells whether days are named, and not whole months."""
        return bool(self.first.day)


def day_number(iso_date: str | None) -> int:
    """Returns a date `YYYY-MM-DD` as the number YYYYMMDD; 0 where there is none."""
    if not iso_date:
        return 0
    return int(iso_date.replace("-", ""))


def named_dates(text: str, today: date | None = None) -> tuple[DateRange, ...]:
    """Returns the months and days that a text names, "4 to 6 March" as one range.

    Args:
        text: What somebody asks.
        today: The day from which "yesterday" and "last week" are counted.
    """
    if today:
        text = _with_dates_for_relative_days(text, today)
    text = _with_months_spelled_out(text)

    ranges: list[DateRange] = []
    end_of_last = 0
    for match in _ENGLISH.month.finditer(text):
        named = _date_of(match)
        before = text[end_of_last : match.start()]
        ends_range = bool(ranges) and _ends_range(ranges[-1], named, before)
        if not (ends_range or _is_meant(named, match, before)) or not _exists(named):
            continue
        if ends_range:
            ranges[-1] = _range_between(ranges[-1].first, named)
        else:
            ranges.append(DateRange(named, named))
        end_of_last = match.end()
    return tuple(dict.fromkeys(ranges))


def _with_dates_for_relative_days(text: str, today: date) -> str:
    """Returns a text with dates for "yesterday" and for last week, or for its weekdays."""
    text = _ENGLISH.yesterday.sub(str(today - timedelta(days=1)), text)
    if not _ENGLISH.last_week.search(text):
        return text

    monday = today - timedelta(days=today.weekday() + 7)
    dates = {name: str(monday + timedelta(days=number)) for number, name in enumerate(WEEKDAYS)}
    with_weekdays = _ENGLISH.weekday.sub(lambda match: dates[match[1].lower()], text)
    if with_weekdays != text:
        return with_weekdays
    sunday = monday + timedelta(days=6)
    return _ENGLISH.last_week.sub(f"{monday} to {sunday}", text)


def _with_months_spelled_out(text: str) -> str:
    """Returns a text with "7 May 2023" for ISO dates, and a month at both ends of a range."""

    def in_words(match: re.Match[str]) -> str:
        month = MONTHS[int(match[2]) - 1].title()
        return f"{match[3] or ''} {month} {match[1]}"

    text = _ENGLISH.iso.sub(in_words, text)
    for name, spelled_out in _SPELLED_OUT.items():
        text = re.sub(_ENGLISH[name], spelled_out, text)
    return text


def _date_of(match: re.Match[str]) -> NamedDate:
    """Returns the date that a match of the pattern `month` names."""
    month = MONTHS.index(match["month"].lower()) + 1
    day = int(match["before"] or match["after"] or 0)
    return NamedDate(int(match["year"] or 0), month, day)


def _ends_range(last_range: DateRange, named: NamedDate, before: str) -> bool:
    """Tells whether a date ends the range that the date before it begins: "March to May"."""
    if not _ENGLISH.until.fullmatch(before):
        return False
    return last_range.has_days == bool(named.day)


def _is_meant(named: NamedDate, match: re.Match[str], before: str) -> bool:
    """Tells whether a month is meant, as in "in May", and not a name or a verb, as in "May I?"."""
    if named.day or named.year or match["to"] is not None:
        return True
    return _ENGLISH.of_month.search(before) is not None


def _exists(named: NamedDate) -> bool:
    """Tells whether the month has so many days."""
    return named.day <= monthrange(named.year or _LEAP_YEAR, named.month)[1]


def _range_between(first: NamedDate, last: NamedDate) -> DateRange:
    """Returns the range between two dates; the year of one counts for the other, too."""
    turns_year = (first.month, first.day) > (last.month, last.day)
    if not first.year and last.year:
        first = first._replace(year=max(0, last.year - turns_year))
    elif not last.year and first.year:
        last = last._replace(year=first.year + turns_year)
    return DateRange(first, last)


def dated(day: Numbers, ranges: Iterable[DateRange]) -> Scores:
    """Returns how much texts are of the days that are named.

    Args:
        day: The day of every text as a number YYYYMMDD, 0 where it is not known.
        ranges: The days and months that are named.

    Returns:
        1 for texts of a named month, and up to 1 more on or near a named day; shape `(texts,)`.
    """
    result = np.zeros(len(day))
    for named in ranges:
        result = np.maximum(result, _dated_by(day, named))
    return result


def _dated_by(day: Numbers, named: DateRange) -> NDArray[np.float64]:
    """Returns how much texts are of one range of days or months."""
    first, last = named
    first_month = first.year * 12 + first.month
    last_month = last.year * 12 + last.month
    months = day // 100 % 100
    if first.year:
        months = months + day // 10_000 * 12
    days = months * _LONGEST_MONTH_DAYS + day % 100
    days_before = first_month * _LONGEST_MONTH_DAYS + first.day - days
    days_after = days - last_month * _LONGEST_MONTH_DAYS - last.day

    if not first.year and first_month > last_month:  # from December to January of any year
        is_within = (first_month <= months) | (months <= last_month)
        days_away = np.minimum(days_before, days_after)
    else:
        is_within = (first_month <= months) & (months <= last_month)
        days_away = np.maximum(days_before, days_after)

    worth = is_within.astype(np.float64)
    if named.has_days:
        worth += np.exp(-days_away.clip(0) / NEAR_DAYS)
    return np.where(day > 0, worth, 0.0)
