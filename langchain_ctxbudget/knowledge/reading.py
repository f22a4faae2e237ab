"""Where reading of a conversation goes on, and whether there is enough new in it to learn from."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from langchain_ctxbudget import stores
from langchain_ctxbudget.flow import Flow, batch
from langchain_ctxbudget.history import (
    Beginning,
    Entry,
    MessageTable,
    OpenConversation,
    Owner,
    editing,
)
from langchain_ctxbudget.knowledge import (
    corrected_statements,
    games,
    known,
    own_statements,
    records,
    standing_rules,
)
from langchain_ctxbudget.knowledge.outages import Outages
from langchain_ctxbudget.knowledge.work import LEARNING_POLICY, Work, fits, still_there, words_of
from langchain_ctxbudget.messages import is_user, word_count
from langchain_ctxbudget.settings import ContextSettings
from langchain_ctxbudget.stores import Scope, put_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Threshold:
    """How much news of a conversation is worth reading."""

    messages: int = 1
    """The fewest new messages."""
    words: int = 0
    """The fewest words of the user in them, unless there are as many as are read at once."""
    words_for_model: int = 1
    """The fewest words of the user for which a model is asked; rules read what has fewer."""


EVERYTHING = Threshold()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Position:
    """Where reading of a conversation goes on."""

    first: int
    """The first message that is to be read."""
    is_changed: bool = False
    """Messages have changed that were learned from."""
    is_ahead: bool = False
    """The model cannot be reached: rules go on, and the model reads the same later."""
    is_retry: bool = False
    """The model has failed on these messages before, and is asked again now."""


class Reader:
    """Reads conversations a few messages at a time, and keeps how far each was read."""

    def __init__(self, owner: Owner, outages: Outages) -> None:
        self._owner = owner
        self._outages = outages

    # Progress

    def progress(self, scope: Scope) -> Flow[records.ProgressRecord]:
        """Reads how far a conversation was learned from, and when that was."""
        [item] = yield from batch(self._owner.store, [scope.place(records.LEARNING)])
        return records.ProgressRecord.of_item(item) or records.ProgressRecord()

    def pass_over(self, conversation: OpenConversation) -> Flow[None]:
        """Notes that the messages which a conversation has now are not learned from any more."""
        scope = conversation.scope
        conversation.learned = (len(conversation.table), conversation.table.digest())
        before = yield from self.progress(scope)
        marks = (*before.marks, conversation.learned)[-LEARNING_POLICY.most_marks :]
        done = records.ProgressRecord(at=before.at, marks=marks, passage=before.passage)
        yield from batch(self._owner.store, [put_of(scope.place(records.LEARNING), done)])

    # Rules

    def rule_events(
        self, conversation: OpenConversation, *, most_messages: int | None
    ) -> Flow[tuple[standing_rules.RuleEvent, ...] | None]:
        """Returns what the user has said about rules in a conversation, whose lock the caller has.

        None where more messages are new than may be read.

        Args:
            conversation: The conversation.
            most_messages: The most new messages that are read; None for all.
        """
        yield from editing.refresh(self._owner.store, conversation)
        table = conversation.table
        if most_messages is not None and table.unread > most_messages:
            return None
        not_own = yield from stores.guests.read(self._owner.store, conversation.scope)
        events = standing_rules.events_of(table, conversation.scope)
        return standing_rules.own_events(events, not_own)

    # What is read next

    def next_work(
        self,
        threshold: Threshold,
        conversation: OpenConversation,
        *,
        by_model: bool,
        until: int | None = None,
    ) -> Flow[Work | None]:
        """Returns the next messages to learn from; None where they do not reach the threshold.

        Args:
            threshold: How much news is worth reading.
            conversation: The conversation, whose lock the caller holds.
            by_model: Whether a model reads.
            until: The position behind the last message that may be read; None for all.
        """
        store = self._owner.store
        scope = conversation.scope
        yield from editing.refresh(store, conversation)
        entries = conversation.table  # a new one, where it was erased elsewhere
        kept = known.kept_of(store, scope.user_id)
        progress = yield from self.progress(scope)
        position = self._position_in(conversation, progress, by_model=by_model)

        if position.is_ahead:
            threshold = replace(threshold, words=0)
        elif position.is_retry:
            threshold = EVERYTHING
        stop = len(entries) if until is None else min(len(entries), max(until, position.first))
        readable = Beginning(entries, stop)
        if not position.is_changed and not _is_worth_reading(readable, position.first, threshold):
            yield from self._note_nothing_to_read(scope, progress, position, len(entries))
            return None

        yield from self._reveal_snapshot(conversation)
        end = min(stop, position.first + LEARNING_POLICY.most_messages)
        read_ahead: frozenset[str] = frozenset()
        if progress.meanwhile is not None and not position.is_ahead:
            read_ahead = frozenset(entries.ids[position.first :])
        there = still_there(conversation) if position.is_changed else None
        not_own = yield from stores.guests.read(store, scope)
        positions = range(position.first, end)
        suspended = games.suspended_in(entries, scope, position.first, end)
        return Work(
            scope=scope,
            entries=Beginning(entries, end),
            costs=entries.costs(self._owner.counter).column.values[:end].tolist(),
            first=position.first,
            progress=progress,
            there=there,
            kept_before=kept,
            is_ahead=position.is_ahead,
            is_retry=position.is_retry,
            not_own=not_own,
            statements=_statements_in(entries, scope, positions, not_own, suspended),
            suspended=suspended,
            read_ahead=read_ahead,
        )

    def _position_in(
        self, conversation: OpenConversation, progress: records.ProgressRecord, *, by_model: bool
    ) -> _Position:
        """Returns where reading of a conversation goes on, and notes that in it.

        That is behind the newest mark before which nothing has changed. While the model cannot be
        reached, it is behind what rules have read meanwhile.
        """
        entries = conversation.table
        fitting = [mark for mark in progress.marks if fits(entries, mark)]
        newest_mark = fitting[-1] if fitting else (0, "")
        conversation.learned = newest_mark
        first, _ = newest_mark
        position = _Position(
            first=first,
            is_changed=bool(progress.marks) and newest_mark != progress.marks[-1],
        )
        if not self._waits_for_model(conversation.scope, progress, first, by_model=by_model):
            is_retry = by_model and progress.waits_until is not None
            return replace(position, is_retry=is_retry)

        position = replace(position, is_ahead=True)
        meanwhile = progress.meanwhile
        if meanwhile is None:
            return position
        if not fits(entries, meanwhile.mark):
            return replace(position, is_changed=True)
        first, _ = meanwhile.mark
        return replace(position, first=first)

    def _waits_for_model(
        self, scope: Scope, progress: records.ProgressRecord, first: int, *, by_model: bool
    ) -> bool:
        """Returns whether a conversation waits for its model, and remembers until when."""
        until = progress.waits_until
        if not by_model or until is None or until <= self._owner.clock():
            self._outages.end(scope)
            return False
        self._outages.go_on(scope, until, first)
        return True

    def _note_nothing_to_read(
        self, scope: Scope, progress: records.ProgressRecord, position: _Position, length: int
    ) -> Flow[None]:
        """Writes the progress in a conversation of some length in which nothing is read now.

        That is to be done where a later process must take it up, and where the messages are gone
        that the model has failed on.
        """
        has_begun = bool(progress.marks)
        if length > position.first and not has_begun:
            to_write = progress
        elif position.is_retry:
            to_write = records.ProgressRecord(
                at=progress.at, marks=progress.marks, passage=progress.passage
            )
        else:
            return
        yield from batch(self._owner.store, [put_of(scope.place(records.LEARNING), to_write)])

    def _reveal_snapshot(self, conversation: OpenConversation) -> Flow[None]:
        """Writes the snapshot of a conversation, so that others know what its prompts show."""
        if conversation.snapshot_unsaved and conversation.table:
            place = conversation.scope.place(records.SNAPSHOT)
            yield from batch(self._owner.store, [put_of(place, conversation.snapshot)])
            conversation.snapshot_unsaved = False


def threshold_of(
    settings: ContextSettings, words_at_end: int | None, *, by_model: bool
) -> Threshold:
    """Returns how much news is worth reading.

    Args:
        settings: The settings of the user.
        words_at_end: The words for which a model is asked if the session has ended, else None.
        by_model: Whether a model reads, which waits for more words than rules do.
    """
    if words_at_end is not None:
        return Threshold(words_for_model=words_at_end)
    if by_model and settings.learn_every > 1:
        return Threshold(messages=settings.learn_every, words=LEARNING_POLICY.least_words)
    return Threshold(messages=settings.learn_every)


def _statements_in(
    entries: MessageTable,
    scope: Scope,
    positions: range,
    not_own: Collection[str],
    suspended: Collection[int],
) -> tuple[records.LearnedFact, ...]:
    """Returns what the user says of themselves at some positions, in the order of the messages.

    Args:
        entries: The conversation.
        scope: Whose it is.
        positions: The positions, one after the other.
        not_own: The ids of messages that others have said in the user's thread.
        suspended: The positions of messages from which nothing is learned.
    """
    span = (positions.start, positions.stop)
    notes = [
        *own_statements.statements_of(entries, scope, *span),
        *corrected_statements.corrections_of(entries, scope, *span, not_own),
    ]
    learned = [note for note in notes if _position_of(note, entries) not in suspended]
    return tuple(sorted(learned, key=lambda note: _position_of(note, entries)))


def _position_of(note: records.LearnedFact, entries: MessageTable) -> int:
    """Returns where the message of a note stands."""
    return entries.positions[note.message_ids[0]]


def _is_worth_reading(entries: Sequence[Entry], first: int, threshold: Threshold) -> bool:
    """Returns whether the messages from a position on reach a threshold."""
    new = len(entries) - first
    if new < threshold.messages:
        return False
    if new >= LEARNING_POLICY.most_messages or not threshold.words:
        return True
    own = [entry for entry in entries[first:] if is_user(entry.message)]
    return sum(word_count(words_of(entry)) for entry in own) >= threshold.words
