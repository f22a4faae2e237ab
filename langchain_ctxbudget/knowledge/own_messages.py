"""The messages that a conversation's user says, with what the reader takes their sentences for."""

from collections.abc import Container, Iterable, Iterator
from typing import NamedTuple

from langchain_ctxbudget.history import Entry, MessageTable
from langchain_ctxbudget.messages import fold, is_user
from langchain_ctxbudget.sentences import Label, Said
from langchain_ctxbudget.stores import Scope


class OwnMessage(NamedTuple):
    """A message of the user in which a sentence is something."""

    position: int
    entry: Entry
    text: str
    """What the user says in it, in their own words."""
    sentences: tuple[Said, ...]
    """The sentences that are something, in order."""


def own_messages(
    table: MessageTable, scope: Scope, positions: Iterable[int], labels: frozenset[Label]
) -> Iterator[OwnMessage]:
    """Yields the user's messages that have a sentence with one of some labels, in order.

    Messages that an application drops are left out. Those of guests in the user's thread are not:
    their ids are stored elsewhere.

    Args:
        table: The conversation.
        scope: Whose it is.
        positions: The positions that are looked at.
        labels: The labels.
    """
    readings = table.readings.by_position
    names = names_of_user(table, scope)
    for position in positions:
        sentences = readings.get(position, ())
        if labels.isdisjoint(said.label for said in sentences):
            continue
        entry = table[position]
        if _is_of_user(entry, names):
            yield OwnMessage(position, entry, entry.own_words, sentences)


def all_own_messages(
    table: MessageTable, scope: Scope, positions: Iterable[int]
) -> Iterator[OwnMessage]:
    """Yields the same of all the user's messages, also of those in which no sentence is anything.

    Args:
        table: The conversation.
        scope: Whose it is.
        positions: The positions that are looked at.
    """
    readings = table.readings.by_position
    names = names_of_user(table, scope)
    for position in positions:
        entry = table[position]
        if is_user(entry.message) and _is_of_user(entry, names):
            sentences = readings.get(position, ())
            yield OwnMessage(position, entry, entry.own_words, sentences)


def names_of_user(table: MessageTable, scope: Scope) -> frozenset[str]:
    """Returns the names under which the user writes, folded: the user's id, or the only name."""
    names = {fold(scope.user_id)}
    if table.only_speaker is not None:
        names.add(fold(table.only_speaker))
    return frozenset(names)


def _is_of_user(entry: Entry, names: Container[str]) -> bool:
    """Tells whether the user says a message that is kept, and nobody else in the conversation.

    Args:
        entry: The message.
        names: The names under which the user writes; without a name, it is the user.
    """
    if entry.preservation == "drop":
        return False
    name = entry.message.name
    return not name or fold(name) in names
