"""What retrieval knows of the messages of a conversation; each is read once, when they are first searched."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime

import numpy as np
from numpy.typing import NDArray

from langchain_ctxbudget.history.entry import Entry
from langchain_ctxbudget.messages.calls import is_user
from langchain_ctxbudget.messages.text import terms
from langchain_ctxbudget.search.lexical import LexicalIndex, Piece, pieces
from langchain_ctxbudget.search.ranking import Numbers, Texts, day_number, first_person, is_name
from langchain_ctxbudget.search.vectors import AFTER, CentredVectors, Rows, limit, links, subjects

SESSION_GAP_SECONDS = 4 * 3_600
"""A longer silence ends a session, as the end of a day does."""
EMBEDDED_AT_ONCE = 2_048
"""Texts whose vectors are asked for in one call: vectors as lists take eight times the memory that they are kept in."""

MOST_IN_PIECES = 256


class MessageIndex:
    """Words, vectors and circumstances of messages, in their order."""

    def __init__(self) -> None:
        self.lexical = LexicalIndex()
        self.vectors = CentredVectors()
        self.speakers: dict[str, int] = {}
        """A number for everyone who speaks."""
        self.said: Counter[str] = Counter()
        """How often each text was said."""
        self.elsewhere: dict[bytes, NDArray[np.float32]] = {}
        """Vectors of texts of other conversations that are compared with them, by digests of the texts."""
        self._pieces: dict[str, tuple[Piece, ...]] = {}
        self._session, self._speaker, self._day = (Rows(np.int32) for _ in range(3))
        self._first_person, self._limits, self._links = (Rows(np.float32) for _ in range(3))

    def __len__(self) -> int:
        return len(self._session)

    def read(self, entries: Sequence[Entry]) -> None:
        """Take in the messages that are new at the end of a conversation."""
        start = len(self)
        new = entries[start:]
        if not new:
            return
        self.lexical.extend(terms(searched_text(entry.speaker, entry.text)) for entry in new)
        session = int(self._session.values[-1]) if start else 0
        sessions: list[int] = []
        for position, entry in enumerate(new, start):
            session += bool(position) and _begins_session(entries[position - 1], entry)
            sessions.append(session)
        self._session.extend(sessions)
        self._speaker.extend([self.speakers.setdefault(entry.speaker, len(self.speakers)) for entry in new])
        self._day.extend([day_number(entry.date) for entry in new])
        self._first_person.extend([first_person(entry.text) for entry in new])
        self._limits.extend([limit(entry.text, from_user=is_user(entry.message)) for entry in new])
        self.said.update(entry.text for entry in new)

    def texts(self, costs: Numbers) -> Texts:
        """Returns what is known of every message.

        Args:
            costs: of each, in tokens.
        """
        return Texts(
            session=self.subjects(),
            costs=costs,
            distinct=self.lexical.distinct,
            speaker=self._speaker.values,
            first_person=self._first_person.values,
            day=self._day.values,
        )

    def subjects(self) -> Numbers:
        """The number of the subject of every message: its session, cut where another subject begins."""
        known = len(self.vectors)
        if known > len(self._links):  # the last ones depend on what follows them
            self._links.truncate(max(0, len(self._links) - AFTER + 1))
            self._links.extend(links(self.vectors.units, len(self._links)))
        return subjects(self._session.values, self._links.values, self._limits.values)

    def texts_to_embed(self, entries: Sequence[Entry]) -> list[str]:
        """The first texts that have no vector yet; none where all have one."""
        start = len(self.vectors)
        return [entry.text for entry in entries[start : min(len(entries), start + EMBEDDED_AT_ONCE)]]

    def pieces(self, entry: Entry) -> tuple[Piece, ...]:
        """The sentences of a message; of a few long ones they are remembered."""
        if entry.fingerprint not in self._pieces:
            while len(self._pieces) >= MOST_IN_PIECES:
                self._pieces.pop(next(iter(self._pieces)), None)
            self._pieces[entry.fingerprint] = pieces(entry.text)
        return self._pieces[entry.fingerprint]

    def first(self, length: int) -> MessageIndex:
        """Returns the index of the first messages alone; words are read again, vectors stay."""
        if length >= len(self) and length >= len(self.vectors):
            return self
        other = MessageIndex()
        other.vectors, other._links = self.vectors.copy(), self._links.copy()
        other.vectors.truncate(length)
        other._links.truncate(max(0, length - AFTER + 1))
        return other


def searched_text(speaker: str, text: str) -> str:
    """A text with the name of who said it, where that is a name."""
    return f"{speaker} {text}" if is_name(speaker) else text


def _begins_session(before: Entry, entry: Entry) -> bool:
    if before.date != entry.date:
        return True
    earlier, later = _moment(before), _moment(entry)
    return earlier is not None and later is not None and later - earlier > SESSION_GAP_SECONDS


def _moment(entry: Entry) -> float | None:
    """When a message was said, in seconds; None where that is not known to the second."""
    said = entry.message.additional_kwargs.get("created_at")
    try:
        moment = datetime.fromisoformat(str(said))
    except ValueError:
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
