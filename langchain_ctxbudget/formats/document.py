"""Bytes as JSON values that know where they stand, so that every complaint can name the place."""

from __future__ import annotations

import gzip
import json
import math
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pydantic import ValidationError

from langchain_ctxbudget.errors import ConversationFormatError

MAX_DEPTH = 100
"""How many objects and lists deep a message may be; models take far less."""

_GZIP_MAGIC = b"\x1f\x8b"
_ZIP_MAGIC = b"PK\x03\x04"
_MILLISECONDS_FROM = 1e11  # as seconds this is the year 5138, as milliseconds 1973
_SEEN_LENGTH = 40
_BEGUN_FRACTION = re.compile(r"\.|(\.\d+)?[eE][+-]?")


@dataclass(frozen=True, slots=True)
class Node:
    """A JSON value and its place in the file; a key that is absent reads as null.

    Example:
        ```python
        Node({"role": 7}, "chat.json: messages[2]").get("role").text()
        # ConversationFormatError: chat.json: messages[2].role: expected a string, saw 7
        ```
    """

    value: Any
    place: str

    def error(self, expected: str) -> ConversationFormatError:
        """The complaint that something else was expected here."""
        return self.complaint(f"expected {expected}, saw {seen(self.value)}")

    def complaint(self, text: str) -> ConversationFormatError:
        """A complaint about this place."""
        return ConversationFormatError(f"{self.place.rstrip(': ')}: {text}. Nothing was imported.")

    @contextmanager
    def building(self, what: str) -> Iterator[None]:
        """Turns what LangChain's and pydantic's validators raise into a complaint about this place."""
        try:
            yield
        except ValidationError as error:
            first = error.errors()[0]
            field = ".".join(map(str, first["loc"][:2]))
            raise self.complaint(f"not a {what}: {field}: {first['msg']}") from error
        except KeyError as error:
            raise self.complaint(f"not a {what}: {error} is missing") from error
        except (TypeError, ValueError, AttributeError) as error:
            raise self.complaint(f"not a {what}: {error}") from error

    def fields(self) -> dict[str, Any]:
        """The value as an object.

        Raises:
            ConversationFormatError: it is something else.
        """
        if not isinstance(self.value, dict):
            raise self.error("an object")
        return self.value

    def get(self, key: str) -> Node:
        """The value under a key of this object."""
        between = "" if self.place.endswith(": ") else "."
        return Node(self.fields().get(key), f"{self.place}{between}{key}")

    def entry(self, key: str) -> Node:
        """The value under a key that is data, not a field name."""
        return Node(self.fields().get(key), f"{self.place}[{json.dumps(key)}]")

    def items(self) -> Iterator[Node]:
        """The values of this list; null is an empty one.

        Raises:
            ConversationFormatError: it is something else.
        """
        if not isinstance(self.value, list | None):
            raise self.error("a list")
        for index, item in enumerate(self.value or ()):
            yield Node(item, f"{self.place}[{index}]")

    def text(self) -> str:
        """The value as a string of valid Unicode.

        Raises:
            ConversationFormatError: it is something else.
        """
        if not isinstance(self.value, str):
            raise self.error("a string")
        return _valid_unicode(self.value)

    def optional_text(self) -> str | None:
        """The value as a string, None where it is null or empty."""
        return None if self.value is None else self.text() or None

    def identifier(self) -> str | None:
        """The value as an id: a string or a whole number, None where it is null or empty."""
        if isinstance(self.value, int) and not isinstance(self.value, bool):
            return str(self.value)
        return self.optional_text()

    def time(self) -> str | None:
        """The value as an ISO 8601 time, None where it is null or empty.

        Unix times, in seconds or milliseconds, are converted to UTC; ISO 8601 strings stay as written.

        Raises:
            ConversationFormatError: it is neither, or a time outside the calendar.
        """
        value = self.value
        if value is None or value == "":
            return None
        try:
            if isinstance(value, str):
                datetime.fromisoformat(value)
                return value
            if isinstance(value, int | float) and not isinstance(value, bool):
                seconds = value / 1000 if abs(value) >= _MILLISECONDS_FROM else value
                return datetime.fromtimestamp(seconds, UTC).isoformat()
        except (ValueError, OverflowError, OSError):
            pass
        raise self.error("an ISO 8601 time or unix seconds")

    def plain(self) -> Any:  # noqa: ANN401 - JSON is what it is
        """The value with valid Unicode throughout.

        Raises:
            ConversationFormatError: it is nested deeper than `MAX_DEPTH`.
        """
        return self._plain(self.value, MAX_DEPTH)

    def _plain(self, value: Any, depth: int) -> Any:  # noqa: ANN401
        if isinstance(value, str):
            return _valid_unicode(value)
        if not isinstance(value, dict | list):
            return value
        if not depth:
            raise self.complaint(f"nested deeper than {MAX_DEPTH} levels")
        if isinstance(value, list):
            return [self._plain(item, depth - 1) for item in value]
        return {_valid_unicode(key): self._plain(item, depth - 1) for key, item in value.items()}


@dataclass(frozen=True, slots=True)
class Document:
    """The records of a file: the items of a JSON list, the lines of JSONL, or one JSON object."""

    name: str
    records: list[Any]
    places: list[str]  # of each record, with "{noun}" where the kind of record is to be named

    def nodes(self, noun: str) -> list[Node]:
        """The records with their places, for instance `messages[2]`."""
        return [
            Node(record, f"{self.name}: {place.format(noun=noun)}")
            for record, place in zip(self.records, self.places, strict=True)
        ]


def load(data: bytes, name: str) -> Document:
    """Reads JSON or JSONL, gzipped or not.

    Args:
        data: the bytes of the file.
        name: what to call the file in errors.

    Raises:
        ConversationFormatError: the bytes are neither, not UTF-8, empty or cut off.
    """
    text = _decode(data, name)
    if not text.strip():
        raise ConversationFormatError(f"{name}: the file is empty. Nothing was imported.")
    try:
        value = loads(text)
    except json.JSONDecodeError as error:
        if error.msg == "Extra data":  # one value ended and another begins
            return _load_lines(text, name)
        raise ConversationFormatError(_syntax(name, text, error, error.lineno)) from error
    except (ValueError, RecursionError) as error:
        raise ConversationFormatError(_limits(name, error)) from error
    if isinstance(value, list):
        return Document(name, value, [f"{{noun}}[{index}]" for index in range(len(value))])
    return Document(name, [value], [""])


def loads(text: str) -> Any:  # noqa: ANN401
    """`json.loads` in which NaN and Infinity, which JSON does not have, are null.

    Raises:
        ValueError: not JSON, or a number too large for its type.
        RecursionError: nested too deeply to be read.
    """
    return json.loads(text, strict=False, parse_constant=lambda _: None, parse_float=_finite)


def seen(value: object) -> str:
    """A value in a few words."""
    match value:
        case None:
            return "nothing"
        case dict():
            keys = ", ".join(json.dumps(key)[:_SEEN_LENGTH] for key in list(value)[:6])
            return f"an object with {keys}{', ...' if len(value) > 6 else ''}" if value else "an empty object"  # noqa: PLR2004
        case list():
            return f"a list of {len(value)}"
        case _:
            text = json.dumps(value)
            return text if len(text) <= _SEEN_LENGTH else f"{text[:_SEEN_LENGTH]}..."


def _decode(data: bytes, name: str) -> str:
    if data.startswith(_GZIP_MAGIC):
        try:
            data = gzip.decompress(data)
        except EOFError as error:
            raise ConversationFormatError(
                f"{name}: the gzip data is cut off. Nothing was imported; copy the file again."
            ) from error
        except (OSError, zlib.error) as error:
            raise ConversationFormatError(f"{name}: damaged gzip data ({error}). Nothing was imported.") from error
    if data.startswith(_ZIP_MAGIC):
        raise ConversationFormatError(
            f"{name}: a zip archive. Unpack it and give the conversations.json in it. Nothing was imported."
        )
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConversationFormatError(
            f"{name}: line {line}: byte {error.start:,} (0x{data[error.start]:02x}) is not UTF-8 text. "
            f"Nothing was imported; save the file as UTF-8."
        ) from error


def _load_lines(text: str, name: str) -> Document:
    # Only "\n" ends a line: JSON strings may hold the other separators.
    lines = [(number, line) for number, line in enumerate(text.split("\n"), start=1) if line.strip()]
    records: list[Any] = []
    for number, line in lines:
        try:
            records.append(loads(line))
        except json.JSONDecodeError as error:
            raise ConversationFormatError(_syntax(name, line, error, number)) from error
        except (ValueError, RecursionError) as error:
            raise ConversationFormatError(_limits(f"{name}: line {number}", error)) from error
    return Document(name, records, [f"line {number}: " for number, _ in lines])


def _syntax(name: str, text: str, error: json.JSONDecodeError, line: int) -> str:
    place = f"{name}: line {line}, column {error.colno}"
    if _is_cut_off(text, error):
        return f"{place}: the file ends here, in the middle of a value. Nothing was imported; copy it again."
    return (
        f"{place}: not JSON or JSONL ({error.msg}), saw {seen(text[error.pos : error.pos + 20])}. Nothing was imported."
    )


def _is_cut_off(text: str, error: json.JSONDecodeError) -> bool:
    rest = text[error.pos :].strip()
    if error.msg.startswith(("Unterminated string", "Invalid \\uXXXX escape")):
        return '"' not in rest[1:]
    if _BEGUN_FRACTION.fullmatch(rest):
        return True
    return any(word.startswith(rest) for word in ("true", "false", "null", "NaN", "Infinity", "-Infinity"))


def _limits(place: str, error: Exception) -> str:
    if isinstance(error, RecursionError):
        return f"{place}: nested too deeply. Nothing was imported."
    return f"{place}: {error}. Nothing was imported."


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"the number {text[:_SEEN_LENGTH]} is too large")
    return number


def _valid_unicode(text: str) -> str:
    """The text with lone surrogates, which no encoding can write, replaced."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text
