"""Statements of other conversations that no longer hold.

This conversation, or a later one, says otherwise.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from langchain_ctxbudget.history import Conversation, Entry
from langchain_ctxbudget.messages import (
    Statement,
    is_replaced_by,
    statement_key,
    statements,
    words_of_thing,
)
from langchain_ctxbudget.retrieval.pool import Pool
from langchain_ctxbudget.retrieval.searched import Other

MOST_READ = 16
"""Messages about the same thing that are read to find the last word about it."""


def contradiction(other: Other, conversation: Conversation, pool: Pool) -> str:
    """Returns the mark of a user's message of another conversation that no longer holds.

    It says what is otherwise, and since when; it is empty where nothing says otherwise. What this
    conversation says outweighs what any other one says.
    """
    for statement in statements(other.text):
        thing = statement[0]
        here = _last_word_here(other.speaker, statement, conversation, pool)
        if here is not None:
            if is_replaced_by(statement, here):
                return f"superseded in this conversation: {thing}"
            continue
        later = _last_word_elsewhere(other, statement, pool)
        if later is not None and is_replaced_by(statement, later.statement):
            since = f" on {later.when.day}" if later.when.day else ""
            return f"superseded{since}: {thing}"
    return ""


def _last_word_here(
    speaker: str, statement: Statement, conversation: Conversation, pool: Pool
) -> Statement | None:
    """Returns the last statement of this conversation about the same thing; None if it has none."""
    for entry in _newest_entries_about(statement, conversation, pool):
        found = _same_thing(entry.speaker, entry.text, speaker, statement)
        if found is not None:
            return found
    return None


def _newest_entries_about(
    statement: Statement, conversation: Conversation, pool: Pool
) -> Iterator[Entry]:
    """Yields the last messages by humans that may be about a thing, the last one first."""
    words, every = words_of_thing(statement)
    entries = conversation.entries
    is_human = conversation.table.human.values
    read = 0
    for position in reversed(pool.searched.index.lexical.having(words, every=every)):
        if position >= len(entries) or not is_human[position]:
            continue
        if read == MOST_READ:
            return
        read += 1
        yield entries[position]


@dataclass(frozen=True, slots=True)
class _When:
    """When a message was said, and where it stands, by which it is ordered if no time is known."""

    time: datetime | None
    age: int
    """The number of its conversation, the one written to first being 0."""
    position: int

    @property
    def day(self) -> str:
        """The day, empty if it is not known."""
        return self.time.date().isoformat() if self.time else ""

    def is_after(self, other: "_When") -> bool:
        """Tells whether it was said after another message."""
        if self.age == other.age or self.time is None or other.time is None:
            return (self.age, self.position) > (other.age, other.position)
        if self.time == other.time:
            return self.age > other.age
        return self.time > other.time


@dataclass(frozen=True, slots=True)
class _LaterStatement:
    """What another conversation says of a thing, and when."""

    when: _When
    statement: Statement


def _last_word_elsewhere(other: Other, statement: Statement, pool: Pool) -> _LaterStatement | None:
    """Returns what other conversations say of a thing last, if that is later than a message."""
    threads = pool.other_conversations.threads
    titles = [thread.title for thread in threads]
    if other.title not in titles:
        return None
    age_of_message = titles.index(other.title)
    said_at = _When(threads[age_of_message].time_of(other.place), age_of_message, other.place)

    last: _LaterStatement | None = None
    for when, found in _later_statements(other, statement, said_at, pool):
        if last is None or when.is_after(last.when):
            last = _LaterStatement(when, found)
    return last


def _later_statements(
    other: Other, statement: Statement, said_at: _When, pool: Pool
) -> Iterator[tuple[_When, Statement]]:
    """Yields what is said of the same thing after a message, from the newest conversation back."""
    words, every = words_of_thing(statement)
    left = MOST_READ
    threads = pool.other_conversations.threads
    for age in reversed(range(len(threads))):
        thread = threads[age]
        after = other.place if age == said_at.age else -1
        for position in thread.messages_with(words, every=every, after=after, most=left):
            left -= 1
            when = _When(thread.time_of(position), age, position)
            entry = thread.table[position]
            found = _same_thing(entry.speaker, entry.text, other.speaker, statement)
            if found is None or not when.is_after(said_at):
                continue
            # In one conversation, two appointments may be meant, unless a change is spoken of.
            *_, is_change, _ = found
            if age != said_at.age or is_change:
                yield when, found
        if left <= 0:
            return


def _same_thing(
    speaker: str, text: str, speaker_before: str, statement: Statement
) -> Statement | None:
    """Returns the last statement of a text about the thing of an earlier statement."""
    wanted = statement_key(speaker_before, statement)
    in_text: Sequence[Statement] = statements(text)
    for later in reversed(in_text):
        if statement_key(speaker, later) == wanted:
            return later
    return None
