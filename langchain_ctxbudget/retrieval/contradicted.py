"""Statements of other conversations that no longer hold.

This conversation, or a later one, says otherwise.
"""

from collections.abc import Iterator
from datetime import datetime
from itertools import islice
from typing import NamedTuple

from langchain_ctxbudget.history import Conversation
from langchain_ctxbudget.messages import (
    Statement,
    is_replaced_by,
    statement_key,
    statements,
    words_of_thing,
)
from langchain_ctxbudget.retrieval.pool import Other, Pool

MOST_READ = 16
"""Messages about the same thing that are read to find the last word about it."""


def contradiction(other: Other, conversation: Conversation, pool: Pool) -> str:
    """Returns a mark for a user's message of another conversation.

    What is otherwise, and since when.

    It is empty where nothing says otherwise. What this conversation says outweighs what any other
    one says.
    """
    for statement in statements(other.text):
        thing = statement[0]
        mine = _said_here(other.speaker, statement, conversation, pool)
        if mine is not None:
            if is_replaced_by(statement, mine):
                return f"superseded in this conversation: {thing}"
            continue
        later = _said_later(other, statement, pool)
        if later is not None and is_replaced_by(statement, later[1]):
            day = f" on {later[0]}" if later[0] else ""
            return f"superseded{day}: {thing}"
    return ""


def _said_here(
    speaker: str, statement: Statement, conversation: Conversation, pool: Pool
) -> Statement | None:
    """Returns the last word of this conversation about the thing of a statement.

    None where it says nothing of it.
    """
    words, every = words_of_thing(statement)
    entries = conversation.entries
    human = conversation.table.human.values
    about = reversed(pool.searched.index.lexical.having(words, every=every))
    by_humans = (position for position in about if position < len(entries) and human[position])
    for position in islice(by_humans, MOST_READ):
        entry = entries[position]
        if found := _same_thing(entry.speaker, entry.text, speaker, statement):
            return found
    return None


def _said_later(other: Other, statement: Statement, pool: Pool) -> tuple[str, Statement] | None:
    """Returns the last word of other conversations about a thing, and its day, where it is later than a message."""
    words, every = words_of_thing(statement)
    threads = pool.found.threads
    own = next((age for age, thread in enumerate(threads) if thread.title == other.title), None)
    if own is None:
        return None
    before = _When(threads[own].time_of(other.place), own, other.place)
    last: tuple[_When, Statement] | None = None
    left = MOST_READ
    for age, thread in reversed([*enumerate(threads)]):
        after = other.place if age == own else -1
        for position in thread.messages_with(words, every=every, after=after, most=left):
            left -= 1
            when = _When(thread.time_of(position), age, position)
            entry = thread.table[position]
            found = _same_thing(entry.speaker, entry.text, other.speaker, statement)
            if (
                found is None
                or not when.is_after(before)
                or (last is not None and not when.is_after(last[0]))
            ):
                continue
            *_, is_change, _ = found
            if age != own or is_change:  # in one conversation, two appointments may be meant
                last = when, found
        if left <= 0:
            break
    return None if last is None else (last[0].day, last[1])


class _When(NamedTuple):
    """When a message was said, and where it stands, by which it is ordered if no time is known."""

    time: datetime | None
    age: int
    position: int

    @property
    def day(self) -> str:
        """The day, empty if it is not known."""
        return self.time.date().isoformat() if self.time else ""

    def is_after(self, other: "_When") -> bool:
        """Tells whether it was said after another message."""
        if (
            self.age != other.age
            and self.time is not None
            and other.time is not None
            and self.time != other.time
        ):
            return self.time > other.time
        return (self.age, self.position) > (other.age, other.position)


def _same_thing(
    speaker: str, text: str, speaker_before: str, statement: Statement
) -> Statement | None:
    """Returns the last statement of a text about the same thing as a statement that somebody made before."""
    wanted = statement_key(speaker_before, statement)
    same: Iterator[Statement] = (
        one for one in reversed(statements(text)) if statement_key(speaker, one) == wanted
    )
    return next(same, None)
