"""What is searched: the messages of a conversation, and texts from elsewhere."""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from langchain_ctxbudget import search
from langchain_ctxbudget.history import (
    Conversation,
    Entry,
    MessageIndex,
    OtherMessage,
    saying,
    searched_text,
    short_digest,
)
from langchain_ctxbudget.messages import CHARACTERS_PER_TOKEN, cached_until_forgotten, terms

REMEMBERED_TEXTS = 4_096
"""Texts from elsewhere whose terms and vectors are kept, so that no turn reads them again."""
MOST_CHARACTERS_PER_TOKEN = 16
"""A text with more characters for each token of room is not tokenized: it is far too long."""
_first_person = cached_until_forgotten(REMEMBERED_TEXTS)(search.first_person)
_saying = cached_until_forgotten(REMEMBERED_TEXTS)(saying)

Other: TypeAlias = search.Candidate | OtherMessage
"""A text from elsewhere."""


@dataclass(frozen=True, slots=True)
class Searched:
    """The messages of a conversation that are searched; none where no conversation is open."""

    index: MessageIndex = field(default_factory=MessageIndex)
    entries: Sequence[Entry] = ()
    costs: search.Numbers = field(default_factory=lambda: np.zeros(0, np.int32))
    """The tokens of every message."""
    quotable: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, np.bool_))
    """True for every message that may be quoted."""
    names: Collection[str] = ()
    """Of those who speak."""
    embedded_query: tuple[str, Sequence[float]] | None = None
    """The words of the query that were embedded before, and their vector."""
    today: date | None = None
    elsewhere: dict[bytes, search.Vectors] = field(default_factory=dict)
    """Vectors of texts from elsewhere, by digests of the texts; shared by searches, also those of
    other threads."""
    encoder: search.Encoder | None = None

    @classmethod
    def of(cls, conversation: Conversation, index: MessageIndex | None = None) -> "Searched":
        """Reads the messages that are new into an index.

        Args:
            conversation: The conversation that is open.
            index: The index to use; callers without the conversation's lock pass one of their own.
        """
        if index is None:
            is_newest = conversation.is_newest
            index = conversation.table.search_index if is_newest else MessageIndex()
        index.read(conversation.entries)
        return cls(
            index=index,
            entries=conversation.entries,
            costs=conversation.columns.column.values[: len(conversation.entries)],
            quotable=conversation.quotable,
            names=conversation.names,
        )


def question_of(searched: Searched, query: str) -> search.Question:
    """Returns a message as it is understood in a conversation."""
    speakers = list(searched.index.speakers)
    text = search.spelled(query, speakers, searched.index.lexical.postings)
    return search.Question.of(text, speakers, searched.today)


def spoken_query(searched: Searched, query: str) -> str:
    """Returns what is embedded of a query: it without the names of those who speak."""
    index = searched.index
    text = search.spelled(query, list(index.speakers), index.lexical.postings)
    return without_names(text, searched.names)


def without_names(query: str, names: Iterable[str]) -> str:
    """Returns a query without the speakers' names; the query itself where nothing else is in it."""
    all_names = list(names)
    forms = set(all_names)
    for forms_of_name in search.called(all_names):
        forms.update(forms_of_name)
    pattern = "|".join(map(re.escape, sorted(forms, key=len, reverse=True)))
    if not pattern:
        return query
    rest = re.sub(rf"(?<!\w)(?:{pattern})(?:['’]s)?(?!\w)", "", query)  # noqa: RUF001
    return rest if rest.strip() else query


@cached_until_forgotten(REMEMBERED_TEXTS)
def terms_of_text(text: str) -> Counter[str]:
    """Returns how often a text from elsewhere has each of its terms."""
    return Counter(terms(text))


def digest_of(other: Other) -> int:
    """Returns a number that stands for what a text says."""
    return other.digest if isinstance(other, OtherMessage) else short_digest(other.text)


def saying_of(other: Other) -> tuple[int, int]:
    """Returns digests of who says what in a text, and of what it says."""
    return other.saying if isinstance(other, OtherMessage) else _saying(other.speaker, other.text)


def tokens_of(other: Other) -> int:
    """Returns about the tokens of a text."""
    if isinstance(other, OtherMessage):
        return other.tokens
    return len(other.text) // CHARACTERS_PER_TOKEN + 1


def first_person_of(other: Other) -> float:
    """Returns the share of words of the first person in a text."""
    return other.first_person if isinstance(other, OtherMessage) else _first_person(other.text)


def document_of(other: Other) -> str:
    """Returns the id of the document that a text is a chunk of; empty where it is none."""
    return other.id.rpartition("#")[0] if other.source == "documents" else ""


def stands_for_others(other: Other) -> bool:
    """Tells whether a text stands for others, too; those chosen for their words stand for none."""
    if isinstance(other, OtherMessage):
        return other.is_typical
    return other.source != "conversations"


def counts_of(other: search.Candidate) -> Counter[str]:
    """Returns how often a text has each of its terms, its speaker's name among them."""
    return terms_of_text(searched_text(other.speaker, other.text))
