"""Fields of JSON objects: titles, ids, times, texts. None of them is sure to be there."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from langchain_ctxbudget.readers.base import JsonObject

TIME_KEYS = ("created_at", "create_time", "timestamp")
ID_KEYS = ("conversation_id", "thread_id", "id", "uuid")
TITLE_KEYS = ("title", "name")
LEAST_MILLISECONDS = 1e11
"""A number this large is a time in milliseconds (1973 at least); as seconds it is the year 5138."""


def objects_in(value: Any) -> list[JsonObject]:  # noqa: ANN401 - JSON
    """Returns the objects of a list; of anything else, none."""
    if not isinstance(value, list):
        return []
    return [item for item in value if isinstance(item, dict)]


def object_at(record: JsonObject, key: str) -> JsonObject:
    """Returns the object under a key; an empty one where there is none."""
    value = record.get(key)
    return value if isinstance(value, dict) else {}


def text_at(record: JsonObject, *keys: str) -> str | None:
    """Returns the first text under one of some keys that is more than white space."""
    for key in keys:
        value = record.get(key)
        if isinstance(value, str) and value.strip():
            return value
    return None


def texts_at(record: JsonObject, *keys: str) -> list[str]:
    """Returns the texts under some keys that are more than white space, in the order of keys."""
    texts = [text_at(record, key) for key in keys]
    return [text for text in texts if text is not None]


def id_at(record: JsonObject, keys: Sequence[str] = ID_KEYS) -> str | None:
    """Returns the first id under one of some keys; a number is one as well."""
    for key in keys:
        value = record.get(key)
        if value and isinstance(value, str | int):
            return str(value)
    return None


def time_at(record: JsonObject, keys: Sequence[str] = TIME_KEYS) -> str | None:
    """Returns the first time under one of some keys as ISO 8601; see `iso_time`."""
    for key in keys:
        time = iso_time(record.get(key))
        if time is not None:
            return time
    return None


def iso_time(value: Any) -> str | None:  # noqa: ANN401 - JSON
    """Returns a time as ISO 8601: a text of that form, or Unix seconds or milliseconds.

    What is no time is None: a message without a date is better than none.
    """
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _iso_time_of_number(value)
    if not isinstance(value, str):
        return None
    try:
        datetime.fromisoformat(value)
    except ValueError:
        return None
    return value


def _iso_time_of_number(number: float) -> str | None:
    """Returns a time in Unix seconds or milliseconds as ISO 8601; None for one beyond all dates."""
    try:
        seconds = number
        if abs(number) >= LEAST_MILLISECONDS:
            seconds = number / 1000
        return datetime.fromtimestamp(seconds, UTC).isoformat()
    except (OSError, OverflowError, ValueError):
        return None


def seconds_at(record: JsonObject, key: str) -> float:
    """Returns the time under a key in Unix seconds; 0 where there is none."""
    time = iso_time(record.get(key))
    if time is None:
        return 0.0
    try:
        return datetime.fromisoformat(time).timestamp()
    except (OSError, OverflowError, ValueError):
        return 0.0
