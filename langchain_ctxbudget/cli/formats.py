"""Conversations from files: JSON or JSONL, gzipped or not, in any of the accepted formats.

The content tells the format, never the file's name. A file is read as a whole or not at all, and every error names the
file and the record.
"""

from __future__ import annotations

import gzip
import io
import json
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage

from langchain_ctxbudget.cli.conversation_records import (
    ACCEPTED,
    ConversationFile,
    is_message,
    placed,
    read_conversation,
    read_message,
)
from langchain_ctxbudget.errors import ConversationFormatError
from langchain_ctxbudget.messages.messages import fingerprint, split_instructions

__all__ = ["ConversationFile", "parse_conversations", "pick_conversation", "read_conversations", "read_one"]

MOST_LISTED = 20
MAX_BYTES = 512 * 2**20
"""The largest file that is read, packed or not: as Python objects it takes several times as much."""
MAX_UNPACKED, MAX_RATIO = 16 * 2**20, 30
"""Bytes that a gzip file may always hold, and how many times its own size above that; more is made to fill memory."""


def read_conversations(path: Path | str) -> list[ConversationFile]:
    """Reads every conversation of a file.

    Raises:
        ConversationFormatError: the file cannot be opened, is too large (512 MiB; gzipped, 16 MiB or 30 times its own
            size when unpacked), or is not of an accepted format; it says where.
    """
    try:
        size = Path(path).stat().st_size
        data = Path(path).read_bytes() if size <= MAX_BYTES else b""
    except (OSError, ValueError) as error:
        raise ConversationFormatError(f"{path}: cannot be read ({getattr(error, 'strerror', error)})") from error
    if size > MAX_BYTES:
        raise ConversationFormatError(
            f"{path}: {size:,} bytes, more than the {MAX_BYTES:,} that are read of one file. Nothing was imported; "
            f"split it into several files"
        )
    return parse_conversations(data, name=str(path))


def parse_conversations(data: bytes, *, name: str) -> list[ConversationFile]:
    """Reads the conversations in the bytes of a file; `name` is its name in errors.

    Raises:
        ConversationFormatError: the bytes are not of an accepted format; it says where.
    """
    try:
        with placed(name):
            return _with_ids(_conversations(list(_records(_text(data)))))
    except RecursionError as error:
        raise ConversationFormatError(f"{name}: nested too deeply. Nothing was imported.") from error
    except ConversationFormatError as error:
        problem, *accepted = str(error).split("\n", 1)
        raise ConversationFormatError("\n".join([f"{problem}. Nothing was imported.", *accepted])) from error


def pick_conversation(conversations: Sequence[ConversationFile], *, title: str | None = None) -> ConversationFile:
    """Returns the one conversation, or the one with a title.

    Args:
        conversations: of one file.
        title: the title or the id, or a part of it that no other has; upper and lower case are the same.

    Raises:
        ConversationFormatError: none fits, or several do; the error lists the titles.
    """
    fitting = list(conversations)
    if title is not None:
        wanted = title.casefold()
        fitting = [c for c in conversations if wanted in (c.label.casefold(), c.conversation_id.casefold())]
        fitting = fitting or [c for c in conversations if wanted in c.label.casefold()]
    if len(fitting) == 1:
        return fitting[0]
    found = f"{len(fitting)} conversations" if title is None else f"{title!r} fits {len(fitting)} conversations"
    listed = fitting or conversations
    lines = [f"  {c.label}  ({c.conversation_id}, {len(c.messages)} messages)" for c in listed[:MOST_LISTED]]
    more = [f"  and {len(listed) - MOST_LISTED:,} more"] if len(listed) > MOST_LISTED else []
    raise ConversationFormatError("\n".join([f"{found}: choose one by its title or id", *lines, *more]))


def read_one(path: Path, title: str | None) -> tuple[str, str, list[BaseMessage]]:
    """Returns the id, the instructions and the other messages of the one conversation that is chosen of a file."""
    chosen = pick_conversation(read_conversations(path), title=title)
    instructions, messages = split_instructions(chosen.messages)
    return chosen.conversation_id, "\n\n".join(instructions), messages


def _text(data: bytes) -> str:
    if data.startswith(b"PK\x03\x04"):
        raise ConversationFormatError("a zip archive; unpack it and give the conversations.json in it")
    if data.startswith(b"\x1f\x8b"):
        data = _unpacked(data)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConversationFormatError(f"line {line}: byte {error.start:,} is not UTF-8 text") from error


def _unpacked(data: bytes) -> bytes:
    limit = min(MAX_BYTES, max(MAX_UNPACKED, MAX_RATIO * len(data)))
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as stream:
            found = stream.read(limit + 1)
    except (EOFError, OSError, zlib.error) as error:
        raise ConversationFormatError(f"damaged gzip data ({error}); copy the file again") from error
    if len(found) > limit:
        raise ConversationFormatError(
            f"{len(data):,} bytes of gzip data hold more than {limit:,} bytes, the most that is unpacked of them; "
            f"where you trust the file, unpack it (gunzip) and give the unpacked one"
        )
    return found


def _records(text: str) -> Iterator[tuple[str, Any]]:
    """The items of a JSON list, the lines of JSONL, or one JSON value, each with its place."""
    if not text.strip():
        raise ConversationFormatError("the file is empty")
    try:
        value = _loads(text)
    except json.JSONDecodeError as error:
        if error.msg != "Extra data":
            raise _syntax(text, error, error.lineno) from error
    else:
        if isinstance(value, list):
            yield from ((f"[{number}]", item) for number, item in enumerate(value))
        else:
            yield "", value
        return
    for number, line in enumerate(text.split("\n"), 1):  # strings in JSON may hold the other separators
        if line.strip():
            try:
                yield f"line {number}", _loads(line)
            except json.JSONDecodeError as error:
                raise _syntax(line, error, number) from error


def _loads(text: str) -> Any:  # noqa: ANN401 - JSON
    """Reads JSON in which NaN and Infinity, which JSON does not have, are null."""
    return json.loads(text, strict=False, parse_constant=lambda _: None)


def _syntax(text: str, error: json.JSONDecodeError, line: int) -> ConversationFormatError:
    place = f"line {line}, column {error.colno}"
    if not text[error.pos :].strip() or error.msg.startswith("Unterminated string"):
        return ConversationFormatError(f"{place}: the file ends here, in the middle of a value; copy it again")
    return ConversationFormatError(f"{place}: not JSON or JSONL ({error.msg}), saw {text[error.pos :][:20]!r}")


def _conversations(records: Sequence[tuple[str, Any]]) -> list[ConversationFile]:
    if not records:
        raise ConversationFormatError(f"an empty list\n{ACCEPTED}")
    are_messages = is_message(records[0][1])
    noun, read = ("messages", read_message) if are_messages else ("conversations", read_conversation)
    found: list[Any] = []
    for place, value in records:
        with placed(f"{noun}{place}" if place.startswith("[") else place):
            found.append(read(value))
    return [ConversationFile(conversation_id="", title=None, messages=found)] if are_messages else found


def _with_ids(conversations: Sequence[ConversationFile]) -> list[ConversationFile]:
    """Gives every conversation and message an id of its own, the same ones every time.

    A conversation without one is named after its messages up to the first answer, so that it keeps its id when it goes
    on; a message after its conversation and position.
    """
    keys = _unique([found.conversation_id or _opening_id(found.messages) for found in conversations])
    named = []
    for key, found in zip(keys, conversations, strict=True):
        ids = _unique([message.id or f"{key}-{number}" for number, message in enumerate(found.messages, 1)])
        messages = [message.model_copy(update={"id": own}) for message, own in zip(found.messages, ids, strict=True)]
        named.append(replace(found, conversation_id=key, messages=messages))
    return named


def _opening_id(messages: Sequence[BaseMessage]) -> str:
    answer = next((place for place, message in enumerate(messages) if isinstance(message, AIMessage)), len(messages))
    opening = "".join(fingerprint(message) for message in messages[: answer + 1])
    return f"conversation-{blake2b(opening.encode(), digest_size=8).hexdigest()}"


def _unique(ids: Sequence[str]) -> list[str]:
    """The ids with a number behind every repetition; no first occurrence changes."""
    taken, used, repetitions = set(ids), set[str](), Counter[str]()
    result = []
    for wanted in ids:
        given = wanted
        while given in used or (given != wanted and given in taken):
            repetitions[wanted] += 1
            given = f"{wanted}-{repetitions[wanted] + 1}"
        used.add(given)
        result.append(given)
    return result
