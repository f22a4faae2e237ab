"""Files, folders and archives: the texts in them, and the JSON records of a text."""

import json
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

from langchain_ctxbudget.readers.base import READING_ERRORS, JsonObject, Skipped, reason_of

ZIP_MAGIC = b"PK\x03\x04"
"""How an archive begins."""
JSON_BEGINNINGS = ("{", "[")
"""How a file with records begins. Pictures and pages in a folder or an archive begin otherwise."""
LOOKED_AT_BYTES = 1_000
"""So much of a file tells how it begins, white space aside."""
ZIP_ERRORS = (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, NotImplementedError)
"""What an archive causes that is cut off, encrypted, or packed in a way that Python cannot read."""


@dataclass(frozen=True, slots=True)
class Source:
    """The bytes of one file."""

    name: str
    data: bytes


def sources_at(path: Path) -> Iterator[Source | Skipped]:
    """Yields the files at a path: the file, what an archive holds, or all JSON of a folder.

    Raises:
        OSError: The path cannot be opened.
    """
    if not path.is_dir():
        yield from sources_of(str(path), path.read_bytes())
        return
    for file in sorted(path.rglob("*")):
        if not file.is_file():
            continue
        name = file.relative_to(path).as_posix()
        with file.open("rb") as opened:
            beginning = opened.read(LOOKED_AT_BYTES)
        if beginning.startswith(ZIP_MAGIC) or _may_hold_records(beginning):
            yield from sources_of(name, file.read_bytes())


def sources_of(name: str, data: bytes) -> Iterator[Source | Skipped]:
    """Yields a file, or the JSON files that an archive holds."""
    if not data.startswith(ZIP_MAGIC):
        yield Source(name, data)
        return
    try:
        with zipfile.ZipFile(BytesIO(data)) as archive:
            yield from _sources_in(archive)
    except ZIP_ERRORS as error:
        yield Skipped(name, f"the archive cannot be read: {reason_of(error)}")


def _sources_in(archive: zipfile.ZipFile) -> Iterator[Source | Skipped]:
    """Yields the JSON files of an archive in the order of their names, as shards have them."""
    for name in sorted(archive.namelist()):
        try:
            with archive.open(name) as member:
                beginning = member.read(LOOKED_AT_BYTES)
                if beginning.startswith(ZIP_MAGIC):
                    yield Skipped(name, "is an archive in an archive: unpack it first")
                elif _may_hold_records(beginning):
                    yield Source(name, beginning + member.read())
        except (*ZIP_ERRORS, *READING_ERRORS) as error:
            yield Skipped(name, reason_of(error))


def _may_hold_records(beginning: bytes) -> bool:
    text = beginning.decode(json.detect_encoding(beginning), "ignore")
    return text.lstrip().startswith(JSON_BEGINNINGS)


def records_of(source: Source) -> tuple[list[JsonObject], list[Skipped]]:
    """Returns the records of a file: items of a list, lines of JSONL, or the one object.

    Lines that are no JSON, and records that are no objects, are skipped. A list in a list is the
    messages of one conversation.

    Raises:
        ValueError: The bytes are no UTF-8, UTF-16 or UTF-32, or no JSON at all.
        RecursionError: The JSON is nested too deeply.
    """
    text = source.data.decode(json.detect_encoding(source.data))
    values, skipped = _values_of(text)
    records: list[JsonObject] = []
    for place, value in values:
        if isinstance(value, list):
            records.append({"messages": value})
        elif isinstance(value, dict):
            records.append(value)
        else:
            skipped.append(Skipped(place, "is no JSON object"))
    return records, skipped


def _values_of(text: str) -> tuple[list[tuple[str, object]], list[Skipped]]:
    """Returns the JSON values of a text with their places, and the lines that are none."""
    try:
        value = json.loads(text, strict=False)
    except json.JSONDecodeError as error:
        if error.msg != "Extra data":
            raise
        return _values_of_lines(text)
    if isinstance(value, list):
        return [(f"record {number}", item) for number, item in enumerate(value, 1)], []
    return [("the file", value)], []


def _values_of_lines(text: str) -> tuple[list[tuple[str, object]], list[Skipped]]:
    values: list[tuple[str, object]] = []
    skipped: list[Skipped] = []
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        place = f"line {number}"
        try:
            values.append((place, json.loads(line, strict=False)))
        except (ValueError, RecursionError) as error:
            skipped.append(Skipped(place, reason_of(error)))
    return values, skipped
