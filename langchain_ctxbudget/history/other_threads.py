"""Another conversation than the open one: what was read of it, and its messages as candidates."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np
from langgraph.store.base import BaseStore, Item
from numpy.typing import NDArray

from langchain_ctxbudget import search, stores
from langchain_ctxbudget.flow import Flow
from langchain_ctxbudget.history import editing, log, segments
from langchain_ctxbudget.history.columns import MessageIndex
from langchain_ctxbudget.history.conversation import OpenConversation
from langchain_ctxbudget.history.log import message_reference
from langchain_ctxbudget.history.other_listing import ListedConversation
from langchain_ctxbudget.history.table import MessageTable
from langchain_ctxbudget.messages import CHARACTERS_PER_TOKEN, time_of
from langchain_ctxbudget.search import Kind
from langchain_ctxbudget.settings import Source

MEASURED = 16
"""The first messages of a conversation, by which the tokens of its others are estimated."""
FEWEST_TERMS = 3
"""A message with more different terms is worth quoting; the speaker's name is one of them."""


@dataclass(slots=True)
class OtherThread:
    """Another conversation as it was read last."""

    conversation: OpenConversation
    state: object = None
    """Its heads and pins when it was read; None before."""
    signs: search.Rows = field(default_factory=lambda: search.Rows(np.uint64))
    """The signs of every vector's values, by which those that are near to a query are found."""
    stored_at: list[datetime | None] = field(default_factory=list)
    """The time at which every message was stored, where it is known: not all segments tell."""
    not_own: frozenset[str] = frozenset()
    """The ids of what other users have said in it, which is never quoted as the user's."""
    sealed_for: object = None
    """Its contents when something new to be stored in segments was looked for last."""
    measured: int = 0
    """The number of messages by which `_tokens_per_term` was measured."""
    last_candidates: dict[int, "OtherMessage"] = field(default_factory=dict)
    """The candidates of the last prompt, by their positions; none where its messages were read
    since."""
    _tokens_per_term: float = 1.0

    @property
    def table(self) -> MessageTable:
        """Its messages."""
        return self.conversation.table

    @property
    def index(self) -> MessageIndex:
        """Their words and vectors."""
        return self.conversation.table.search_index

    def refresh(self, store: BaseStore, listed: ListedConversation) -> Flow[None]:
        """Reads what is new in the conversation, and what is to be known of its messages."""
        table_before = self.table
        heads = log.heads_in(listed.lane_items)
        yield from editing.read_until(store, self.conversation, heads)
        pinned = stores.PinsRecord.of_item(listed.pins)
        self.conversation.pin(pinned.pins if pinned else {})
        self.index.read(self.table)
        if self.table is not table_before:  # messages were changed or removed
            self.measured = 0
            self.signs = search.Rows(np.uint64)
            self.stored_at = self.stored_at[: _common_length(table_before, self.table)]
        self.note_times()
        self.tokens_per_term()

    def note_guests(self, stored: Item | None) -> None:
        """Notes which of its messages other users have said."""
        record = stores.guests.GuestsRecord.of_item(stored)
        user = stores.label(self.conversation.scope.user_id)
        self.not_own = record.ids_for(user) if record else frozenset()

    def note_times(self) -> None:
        """Notes when new messages were stored."""
        if not self.stored_at:
            self.stored_at = [*self.conversation.times]
        new_times = self.conversation.stored_at or {}
        for position in range(len(self.stored_at), len(self.table)):
            self.stored_at.append(new_times.get(self.table.place(position).key))
        self.conversation.stored_at = {}
        self.conversation.times = self.stored_at

    def note_signs(self) -> None:
        """Notes the signs of the vectors that are new."""
        vectors = self.index.vectors
        if len(self.signs) > len(vectors):
            self.signs = search.Rows(np.uint64)
        first = len(self.signs)
        if first < len(vectors):
            self.signs.extend(search.signs(vectors.rows.values[first:] > 0))

    def may_come(self) -> NDArray[np.bool_]:
        """Returns of every message whether it may be quoted."""
        quotable = self.table.quotable
        positions = self.table.positions
        places = [positions[name] for name in self.not_own if name in positions]
        if places:
            quotable = quotable.copy()
            quotable[places] = False
        return quotable

    @property
    def contents(self) -> object:
        """What it consists of; equal to an earlier one where there is nothing new to store."""
        return id(self.table), len(self.table), self.index.vectors_by, len(self.index.vectors)

    def takes_news(self) -> bool:
        """Returns True if there may be something new to be stored in segments.

        Of the same contents, only once.
        """
        if self.sealed_for == self.contents:
            return False
        self.sealed_for = self.contents
        if len(self.index.links) < len(self.index.vectors) or None in self.stored_at:
            return True
        return next(segments.lacking(self.conversation, rests=True), None) is not None

    def day(self, position: int) -> str | None:
        """Returns the day of a message: its own, that of those before it, or that of storing it."""
        day = self.table.day(position)
        stored_at = self.stored_at[position]
        if day is None and stored_at is not None:
            return stored_at.date().isoformat()
        return day

    def tokens_per_term(self) -> float:
        """Returns about how many tokens a text has for each of its terms."""
        size = min(MEASURED, len(self.table))
        if self.measured != size:
            characters = sum(len(entry.text) for entry in self.table[:size])
            terms = int(self.index.lexical.lengths[:size].sum())
            self._tokens_per_term = characters / CHARACTERS_PER_TOKEN / max(1, terms)
            self.measured = size
        return self._tokens_per_term

    def says_nothing(self, position: int) -> bool:
        """Returns True if a message would be quoted for nothing, such as a courtesy."""
        if self.index.lexical.distinct_terms[position] > FEWEST_TERMS:
            return False
        return search.says_nothing(self.table[position].text)

    def as_read(self) -> "ReadThread":
        """Returns its messages as they are now."""
        return ReadThread(
            title=self.conversation.scope.conversation_id,
            table=self.table,
            lexical=self.index.lexical,
            stored_at=self.stored_at,
            size=len(self.table),
            not_own=self.not_own,
        )

    def candidate(
        self,
        position: int,
        *,
        label: str,
        age: int,
        is_typical: bool,
        vector: search.Vectors | None,
    ) -> "OtherMessage":
        """Returns a message as a candidate, that of the last prompt where it is the same."""
        index = self.index
        earlier = self.last_candidates.get(position)
        if earlier is not None and earlier.is_known_as(
            label=label,
            age=age,
            is_typical=is_typical,
            vector=vector,
            vectors_by=index.vectors_by,
        ):
            return earlier

        length = int(index.lexical.lengths[position])
        digest, saying, folded, first_person = index.known_of(position)
        return OtherMessage(
            title=self.conversation.scope.conversation_id,
            label=label,
            place=position,
            date=self.day(position),
            stored_at=self.stored_at[position],
            age=age,
            length=length,
            distinct_terms=int(index.lexical.distinct_terms[position]),
            tokens=int(length * self.tokens_per_term()) + 1,
            digest=digest,
            saying=(saying, folded),
            first_person=first_person,
            speaker=index.speaker_of(position),
            from_user=bool(self.table.human.values[position]),
            is_typical=is_typical,
            vector=vector,
            vectors_by=index.vectors_by,
            table=self.table,
            lexical=index.lexical,
        )


@dataclass(frozen=True, eq=False)
class OtherMessage:
    """A message of another conversation as a candidate; its text is read when somebody looks."""

    source: ClassVar[Source] = "conversations"
    kind: ClassVar[Kind] = "experience"
    certainty: ClassVar[float] = 1.0
    metadata: ClassVar[Mapping[str, Any]] = {}

    title: str
    """The id of its conversation."""
    label: str
    """The title of its conversation, where that has one."""
    place: int
    """Its position there."""
    date: str | None
    stored_at: datetime | None
    age: int
    """The number of its conversation among those of the user, from the one that was written to
    first."""
    length: int
    """The number of its terms."""
    distinct_terms: int
    """The number of its different terms."""
    tokens: int
    """About its tokens."""
    digest: int
    """A digest of its text."""
    saying: tuple[int, int]
    """Digests of who says what, and of what in one form."""
    first_person: float
    """Words of the first person, as a share of all."""
    speaker: str
    """The name of who says it, else the role."""
    from_user: bool
    """True where a human says it."""
    is_typical: bool
    """True for one of those that stand for all."""
    vector: search.Vectors | None = field(repr=False)
    """Its vector, where it is known."""
    vectors_by: str
    """The name of the embeddings."""
    table: MessageTable = field(repr=False)
    lexical: search.LexicalIndex = field(repr=False)

    def is_known_as(
        self,
        *,
        label: str,
        age: int,
        is_typical: bool,
        vector: search.Vectors | None,
        vectors_by: str,
    ) -> bool:
        """Returns True if a candidate of another prompt is the one that this prompt needs."""
        is_same_place = self.label == label and self.age == age and self.is_typical == is_typical
        is_same_vector = self.vectors_by == vectors_by and (self.vector is None) == (vector is None)
        return is_same_place and is_same_vector

    @property
    def id(self) -> str:
        """Its id among all messages of the user."""
        return message_reference(self.title, self.table.ids[self.place])

    @cached_property
    def text(self) -> str:
        """Its words."""
        return self.table[self.place].text


class ReadThread(NamedTuple):
    """The messages of another conversation as they were when a prompt was made."""

    title: str
    """The id of the conversation."""
    table: MessageTable
    lexical: search.LexicalIndex
    stored_at: Sequence[datetime | None]
    size: int
    """The number of its messages then."""
    not_own: frozenset[str] = frozenset()
    """The ids of what other users have said in it."""

    def time_of(self, position: int) -> datetime | None:
        """Returns when a message was said, else when it was stored; None where neither is known."""
        said_at = time_of(self.table[position].message)
        return stores.utc(said_at) if said_at else self.stored_at[position]

    def messages_with(
        self, words: Iterable[str], *, every: bool, after: int, most: int
    ) -> list[int]:
        """Returns the last few messages of humans behind one that have some words, last first."""
        positions: list[int] = []
        for position in reversed(self.lexical.having(words, every=every)):
            if position <= after or len(positions) == most:
                break
            is_of_human = position < self.size and self.table.human.values[position]
            if is_of_human and self.table.ids[position] not in self.not_own:
                positions.append(position)
        return positions


def _common_length(first: MessageTable, second: MessageTable) -> int:
    """Returns how many messages at the beginning of two tables are the same."""
    length = min(len(first), len(second))
    differing = np.flatnonzero(first.digests.values[:length] != second.digests.values[:length])
    return int(differing[0]) if len(differing) else length
