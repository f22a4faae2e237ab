"""What a user says of a thing takes the place of what they said of it before: another day, number, name or place."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from langchain_ctxbudget.messages import remembering, sentences, terms, vocabulary, without_pasted

MOST_CHARACTERS = 1_000
"""A longer message is a text about many things."""
_ENGLISH = vocabulary("search")


class Statement(NamedTuple):
    """A value that a user tells of a thing."""

    about: str
    subject: frozenset[str]
    kind: str
    value: frozenset[str]
    changes: bool
    """It says that it is new, or a thing has one such value only, as a password."""
    ends: bool
    """It says that the value holds no longer."""

    def replaces(self, older: "Statement") -> bool:
        """Tells whether the older one does not hold any more."""
        is_same = self.value <= older.value or older.value <= self.value
        of_same = (self.subject, self.kind) == (older.subject, older.kind)
        return self.changes and of_same and is_same == self.ends and not older.ends


@remembering(4_096)
def statements(text: str) -> tuple[Statement, ...]:
    """Returns what a message states for sure; nothing of what is asked, supposed, planned, quoted or past."""
    said = sentences(without_pasted(text)) if len(text) <= MOST_CHARACTERS else []
    return tuple(_statement(found) for one in said if not _ENGLISH.unsure.search(one) for found in _stated(one))


def replaced(texts: Mapping[int, str]) -> Iterator[tuple[int, int, str]]:
    """Yields the older and the newest of messages that state a thing differently, by number, and the thing."""
    changed = {at: new for at, text in texts.items() if (new := [s for s in statements(text) if s.changes])}
