"""What of a conversation is to be learned from next: new messages only, and again what was changed since.

How far it was read is kept with digests of everything before: where one does not fit, messages were edited or removed,
and the newest that fits is where reading goes on. What came from messages that are no longer there is then dropped.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langgraph.store.base import BaseStore

from langchain_ctxbudget.core.calls import is_user, result_ids
from langchain_ctxbudget.core.text import fold
from langchain_ctxbudget.flow import Flow, batch
from langchain_ctxbudget.history.conversation import Conversation
from langchain_ctxbudget.history.entry import Entry
from langchain_ctxbudget.knowledge import known
from langchain_ctxbudget.knowledge import repositories as repos
from langchain_ctxbudget.knowledge.learned import Said
from langchain_ctxbudget.knowledge.records import ProgressRecord
from langchain_ctxbudget.stores.records import Scope

ARCHIVED = "archived"
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
    """Whether results of tools are to be learned from, too, which only a model does."""

    @property
    def new(self) -> Sequence[Entry]:
        """The messages themselves."""
        return self.entries[self.first :]

    @property
    def said(self) -> list[Said]:
        """What they say, as far as it may be learned from."""
        return as_said(self.new, from_tools=self.from_tools, others=self._others)

    @property
    def before(self) -> list[Said]:
        """What was said right before."""
        entries = self.entries[max(0, self.first - BEFORE_MESSAGES) : self.first]
        return as_said(entries, from_tools=False, others=self._others)

    @property
    def _others(self) -> frozenset[str]:
        return others_in(self.entries, self.scope.user_id)

    @property
    def changed(self) -> bool:
        """Whether messages that were learned from were edited or removed since."""
        return self.there is not None

    def until_said(self, count: int) -> Work:
        """The same, up to the `count`th of the messages that say something; what follows is for the next time."""
        said = self.said
        if count >= len(said):
            return self
        end = next(place for place, entry in enumerate(self.new, self.first) if entry.id == said[count].id)
        return replace(self, entries=self.entries[:end])

    @property
    def done(self) -> ProgressRecord:
        """The progress once they were learned from."""
        if not self.entries:
            return ProgressRecord()
        before = (mark for mark in self.progress.marks if _fits(self.entries, mark))
        return ProgressRecord(
            position=len(self.entries),
            marks=thinned((*before, (len(self.entries), self.entries[-1].digest))),
        )


def take(
    store: BaseStore,
    conversation: Conversation,
    *,
    at_least: int,
    from_tools: bool = False,
) -> Flow[Work | None]:
    """The next messages to learn from; None where there are too few.

    Args:
        store: where progress is kept.
        conversation: up to date.
        at_least: how many new ones there must be.
        from_tools: whether results of tools are learned from, too.
    """
    epoch = known.epoch_of(store, conversation.scope.user_id)
    [item] = yield from batch(store, [repos.progress_read(conversation.scope)])
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
        first=first,
        progress=progress,
        there=still_there(conversation) if changed else None,
        epoch=epoch,
        from_tools=from_tools,
    )


def still_there(conversation: Conversation) -> dict[str, str]:
    """The messages that a conversation has, and a fingerprint of each; `ARCHIVED` for those that are kept aside.

    An agent that takes old messages out of its state has not taken back what they said.
    """
    return dict.fromkeys(conversation.archived, ARCHIVED) | {one.id: one.fingerprint for one in conversation.entries}


def _fits(entries: Sequence[Entry], mark: tuple[int, str]) -> bool:
    position, digest = mark
    return 0 < position <= len(entries) and entries[position - 1].digest == digest


def thinned(marks: Sequence[tuple[int, str]]) -> tuple[tuple[int, str], ...]:
    """At most `MOST_MARKS` marks: the newest half, and of the older ones every other one.

    >>> len(thinned([(n, "") for n in range(100)])) <= MOST_MARKS
    True
    """
    kept = list(marks)
    while len(kept) > MOST_MARKS:
        old = kept[: len(kept) - MOST_MARKS // 2]
        kept = [*old[::2], *kept[len(old) :]]
    return tuple(kept)


def others_in(entries: Sequence[Entry], user_id: str) -> frozenset[str]:
    """The names of those who write beside the user.

    A message without a name is the user's, and so is one whose name is the user's id, or the beginning of it, or begins
    with it, in any case and punctuation. Where nobody writes but under one name, that is the user, whatever it is.
    """
    people = [entry.message for entry in entries if isinstance(entry.message, HumanMessage)]
    names = {message.name for message in people if message.name}
    if not names or (len(names) == 1 and not any(is_user(message) and not message.name for message in people)):
        return frozenset()
    return frozenset(names - _of_user(names, _words(user_id)))


def _of_user(names: Collection[str], user: list[str]) -> set[str]:
    """The names that the user goes by; of several that only resemble the id, none is sure."""
    same = {name for name in names if _words(name) == user}
    alike = {name for name in names if _begins_alike(_words(name), user)}
    return same or (alike if len(alike) == 1 else set())


def _begins_alike(name: list[str], user: list[str]) -> bool:
    size = min(len(name), len(user))
    return size > 0 and name[:size] == user[:size]


def _words(name: str) -> list[str]:
    return _WORD.findall(fold(name))


def as_said(entries: Sequence[Entry], *, from_tools: bool, others: Collection[str] = ()) -> list[Said]:
    """Messages as an extraction reads them, but for those without words.

    Args:
        entries: the messages.
        from_tools: whether what tools gave is read, too.
        others: the names of those who are not the user.
    """
    return [
        Said(
            id=entry.id,
            digest=entry.fingerprint,
            text=entry.text,
            from_user=is_user(entry.message) and entry.message.name not in others,
            from_tool=_is_result(entry.message),
            speaker=entry.speaker,
            at=time_of(entry),
        )
        for entry in entries
        if entry.text and entry.preservation != "drop" and _may_be_read(entry, from_tools=from_tools)
    ]


def _may_be_read(entry: Entry, *, from_tools: bool) -> bool:
    if _is_result(entry.message):
        return from_tools
    return isinstance(entry.message, HumanMessage) or (isinstance(entry.message, AIMessage) and not _only_calls(entry))


def _is_result(message: BaseMessage) -> bool:
    """Whether a message is nothing but what tools gave, in whatever form."""
    return bool(result_ids(message)) and not is_user(message)


def _only_calls(entry: Entry) -> bool:
    return isinstance(entry.message, AIMessage) and bool(entry.message.tool_calls) and not str(entry.message.text)


def time_of(entry: Entry) -> datetime | None:
    """When a message was said, where it tells; UTC where it names no offset."""
    said = entry.message.additional_kwargs.get("created_at")
    if not isinstance(said, str):
        return None
    try:
        at = datetime.fromisoformat(said)
        return at.astimezone(UTC) if at.tzinfo else at.replace(tzinfo=UTC)
    except (ValueError, OverflowError):  # no date, or one that is another day, of no year that there is, in UTC
        return None
