"""Takes the next messages of a conversation to learn from: new ones, and again those that were changed since.

Progress is kept with digests of everything before: where one does not fit, messages were edited or removed, and reading
goes on from the newest that fits. What came from messages that are no longer there is then dropped.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from langchain_core.messages import AIMessage, HumanMessage
from langgraph.store.base import BaseStore

from langchain_ctxbudget.flow import Flow, batch
from langchain_ctxbudget.history.entry import Entry
from langchain_ctxbudget.history.open import OpenConversation
from langchain_ctxbudget.knowledge import known
from langchain_ctxbudget.knowledge import repositories as repos
from langchain_ctxbudget.knowledge.records import ProgressRecord, Said
from langchain_ctxbudget.messages.calls import is_user, result_ids
from langchain_ctxbudget.messages.messages import own_words
from langchain_ctxbudget.messages.text import fold
from langchain_ctxbudget.stores.records import Scope
from langchain_ctxbudget.tokens.counters import TokenCounter

MOST_MARKS = 32
BEFORE_MESSAGES = 4
"""Messages before the new ones that a model is shown, to understand them."""
MOST_MESSAGES = 200
"""The most that are read at once."""

_WORD = re.compile(r"[^\W_]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """Messages that are to be learned from."""

    scope: Scope
    entries: Sequence[Entry]
    """The conversation from its beginning to the last of them."""
    costs: Sequence[int]
    """What each of these costs, in tokens."""
    first: int
    """The position of the first of them."""
    progress: ProgressRecord
    """As it was found."""
    there: Mapping[str, str] | None
    """All messages of the conversation, and what each says, as a fingerprint; None: those that were learned from have
    not changed."""
    epoch: int
    """Of the user's knowledge when they were taken up."""
    from_tools: bool = False
    """True: a model learns from results of tools, too."""

    @property
    def said(self) -> list[Said]:
        """The words in them that may be learned from."""
        others = others_in(self.entries, self.scope.user_id)
        return as_said(self.entries[self.first :], from_tools=self.from_tools, others=others)

    @property
    def before(self) -> list[Said]:
        """The messages right before them."""
        entries = self.entries[max(0, self.first - BEFORE_MESSAGES) : self.first]
        return as_said(entries, from_tools=False, others=others_in(self.entries, self.scope.user_id))

    def until_said(self, count: int) -> Work:
        """The same, up to the `count`th of the messages that say something; what follows is for the next time."""
        said = self.said
        if count >= len(said):
            return self
        places = range(self.first, len(self.entries))
        end = next(place for place in places if self.entries[place].id == said[count].id)
        return replace(self, entries=self.entries[:end])

    @property
    def done(self) -> ProgressRecord:
        """The progress once they were learned from."""
        before = (mark for mark in self.progress.marks if _fits(self.entries, mark))
        marks = thinned((*before, (len(self.entries), self.entries[-1].digest)))
        return ProgressRecord(position=len(self.entries), marks=marks)


def take(
    store: BaseStore, conversation: OpenConversation, counter: TokenCounter, *, at_least: int, from_tools: bool = False
) -> Flow[Work | None]:
    """Returns the next messages to learn from; None where there are too few new ones."""
    epoch = known.epoch_of(store, conversation.scope.user_id)
    [item] = yield from batch(store, [repos.progress_place(conversation.scope)])
    progress = repos.found(ProgressRecord, item) or ProgressRecord()
    entries = conversation.entries
    last = next((mark for mark in reversed(progress.marks) if _fits(entries, mark)), (0, ""))
    first = last[0]
    changed = first < progress.position
    conversation.learned = last
    new = len(entries) - first
    if not changed and (not new or new < at_least):
        return None
    end = min(len(entries), first + MOST_MESSAGES)
    return Work(
        scope=conversation.scope,
        entries=entries[:end],
        costs=conversation.table.costs(counter).tokens[:end],
        first=first,
        progress=progress,
        there=still_there(conversation) if changed else None,
        epoch=epoch,
        from_tools=from_tools,
    )


def still_there(conversation: OpenConversation) -> dict[str, str]:
    """Returns the messages of a conversation with their fingerprints; archived ones are not among them."""
    return {one.id: one.fingerprint for one in conversation.entries}


def _fits(entries: Sequence[Entry], mark: tuple[int, str]) -> bool:
    position, digest = mark
    return 0 < position <= len(entries) and entries[position - 1].digest == digest


def thinned(marks: Sequence[tuple[int, str]]) -> tuple[tuple[int, str], ...]:
    """Returns at most `MOST_MARKS` marks: the newest half, and every other one of the older ones.

    >>> len(thinned([(n, "") for n in range(100)])) <= MOST_MARKS
    True
    """
    kept = list(marks)
    while len(kept) > MOST_MARKS:
        old = kept[: len(kept) - MOST_MARKS // 2]
        kept = [*old[::2], *kept[len(old) :]]
    return tuple(kept)


def others_in(entries: Sequence[Entry], user_id: str) -> frozenset[str]:
    """Returns the names of those who write beside the user.

    A message without a name is the user's, and so is one whose name is the user's id, or the beginning of it, or begins
    with it, in any case and punctuation. Where nobody writes but under one name, that is the user, whatever it is.
    """
    people = [entry.message for entry in entries if isinstance(entry.message, HumanMessage)]
    names = {message.name for message in people if message.name}
    if not names or (len(names) == 1 and not any(is_user(message) and not message.name for message in people)):
        return frozenset()
    user = _WORD.findall(fold(user_id))
    words = {name: _WORD.findall(fold(name)) for name in names}
    same = {name for name in names if words[name] == user}
    sizes = {name: min(len(words[name]), len(user)) for name in names}
    alike = {name for name, size in sizes.items() if size > 0 and words[name][:size] == user[:size]}
    return frozenset(names - (same or (alike if len(alike) == 1 else set())))


def as_said(entries: Sequence[Entry], *, from_tools: bool, others: Collection[str] = ()) -> list[Said]:
    """Returns messages as an extraction reads them, but for those without words."""
    read: list[Said] = []
    for entry in entries:
        message = entry.message
        is_result = bool(result_ids(message)) and not is_user(message)
        text = ""
        if is_result:
            text = entry.text if from_tools else ""
        elif isinstance(message, HumanMessage | AIMessage):
            text = own_words(message)
        if text and entry.preservation != "drop":
            one = Said(
                id=entry.id,
                digest=entry.fingerprint,
                text=text,
                from_user=is_user(message) and message.name not in others,
                from_tool=is_result,
                speaker=entry.speaker,
                at=time_of(entry),
            )
            read.append(one)
    return read


def time_of(entry: Entry) -> datetime | None:
    """Returns the time of a message that tells it; UTC where it names no offset."""
    said = entry.message.additional_kwargs.get("created_at")
    if not isinstance(said, str):
        return None
    try:
        at = datetime.fromisoformat(said)
        return at.astimezone(UTC) if at.tzinfo else at.replace(tzinfo=UTC)
    except (ValueError, OverflowError):  # no date, or one that is another day, of no year that there is, in UTC
        return None
