"""What the sentences of a conversation's user are; each message is read once."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from langchain_ctxbudget.history.columns import Entry
from langchain_ctxbudget.history.extractive import Line
from langchain_ctxbudget.sentences import Label, Said, read, reader_version

READ_AT_ONCE = 256
"""Messages that are read together."""


class Readings:
    """What the user's sentences are, by the positions of their messages.

    Messages without a sentence that is something are not in it.
    """

    def __init__(self) -> None:
        self.read_until = 0
        """The position behind the last message that was read."""
        self.by_position: dict[int, tuple[Said, ...]] = {}
        """The sentences of each message that are something, in order."""
        self.outdated: set[int] = set()
        """The first positions of those stored segments that another reader has read, or none."""

    def read(self, entries: Sequence[Entry], is_human: NDArray[np.bool_]) -> None:
        """Reads the messages that are new.

        Args:
            entries: All messages.
            is_human: Whether a human says each.
        """
        unread = np.flatnonzero(is_human[self.read_until :]) + self.read_until
        for first in range(0, len(unread), READ_AT_ONCE):
            positions = unread[first : first + READ_AT_ONCE].tolist()
            texts = [entries[position].own_words for position in positions]
            for position, said in zip(positions, read(texts), strict=True):
                if said:
                    self.by_position[position] = said
        self.read_until = max(self.read_until, len(is_human))

    def lines(self, entries: Sequence[Entry], first: int, end: int) -> list[Line]:
        """Returns some messages as a summariser reads them.

        Args:
            entries: All messages.
            first: The position of the first one of them.
            end: The position behind the last one.
        """
        return [
            entry.as_line(position, self.by_position.get(position, ()))
            for position, entry in enumerate(entries[first:end], first)
        ]

    def first(self, length: int) -> "Readings":
        """Returns what was read of the first messages."""
        other = Readings()
        other.read_until = min(self.read_until, length)
        other.by_position = {
            position: said for position, said in self.by_position.items() if position < length
        }
        other.outdated = {position for position in self.outdated if position < length}
        return other

    # As they are stored in a segment

    def packed(self, first: int, end: int) -> dict[str, Any]:
        """Returns what was read of some messages as plain data."""
        rows: list[list[Any]] = []
        for position in range(first, end):
            for said in self.by_position.get(position, ()):
                rows.append([position - first, *said])  # noqa: PERF401 - reads as two loops
        return {"reader": reader_version(), "rows": rows}

    def take(self, data: Mapping[str, Any] | None, first: int, end: int) -> None:
        """Takes in what was packed of the messages that come next.

        What another reader has read is not taken in, so these messages are read again, and so are
        all behind them.
        """
        if data is None or data["reader"] != reader_version():
            self.outdated.add(first)
            return
        if self.read_until != first:
            return
        for position, said in _unpacked(data["rows"], first):
            self.by_position[position] = (*self.by_position.get(position, ()), said)
        self.read_until = end


def _unpacked(rows: Iterable[Sequence[Any]], first: int) -> list[tuple[int, Said]]:
    """Returns packed sentences with the positions of their messages.

    Args:
        rows: Of each sentence, how far its message is from the first one, and its fields.
        first: The position of the first message.
    """
    return [(first + offset, Said(Label(label), *fields)) for offset, label, *fields in rows]
