"""The messages of a conversation that are to be learned from, and the progress once they were.

Progress is kept with digests of everything before: where messages were edited or removed, reading
goes on from the newest mark that fits.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from langchain_core.messages import AIMessage, HumanMessage

from langchain_ctxbudget import llm
from langchain_ctxbudget.errors import ModelReplyError
from langchain_ctxbudget.history import Beginning, Entry, OpenConversation
from langchain_ctxbudget.knowledge import known, records
from langchain_ctxbudget.knowledge.records import ENGLISH
from langchain_ctxbudget.messages import fold, is_user, time_of, word_count
from langchain_ctxbudget.stores import Scope


@dataclass(frozen=True, slots=True, kw_only=True)
class LearningPolicy:
    """How many messages are learned from at once, and when a model is asked about them."""

    most_messages: int = 30
    """Messages that are read at once."""
    messages_before: int = 4
    """Messages before them that a model is shown, so that it understands them."""
    look_back: int = 1_000
    """Messages before them that tell who else writes in the conversation."""
    least_words: int = 100
    """Words of the user for which a model is asked before the session ends."""
    most_refusals: int = 6
    """How often in a row a model is asked about the same messages while its server refuses, or its
    replies are of no use."""
    most_marks: int = 32
    """Marks of progress that are kept of a conversation: the newest."""


LEARNING_POLICY = LearningPolicy()


@dataclass(frozen=True, kw_only=True)
class Work:
    """Messages that are to be learned from."""

    scope: Scope
    entries: Sequence[Entry]
    """The conversation from its beginning to the last of the messages."""
    costs: Sequence[int]
    """The tokens of each of these entries."""
    first: int
    """The position of the first of the messages."""
    progress: records.ProgressRecord
    """The progress as it was found."""
    there: Mapping[str, str] | None
    """The fingerprints of all messages by id; None: those that were learned from have not
    changed."""
    kept_before: known.KeptKnowledge
    """What was kept of the user when they were taken up."""
    is_ahead: bool = False
    """The model cannot be reached: rules read them now, and the model later."""
    is_retry: bool = False
    """The model has failed on them before."""
    not_own: frozenset[str] = frozenset()
    """The ids of messages that others have said in the user's thread."""
    statements: tuple[records.LearnedFact, ...] = ()
    """What the user says of themselves in these messages, as it is learned without a model."""
    suspended: tuple[int, ...] = ()
    """The positions of those of these messages that belong to a game or a supposition, so that
    nothing is learned from them without a model."""
    read_ahead: frozenset[str] = frozenset()
    """The ids of messages, these and later ones, where rules have learned from some of them in
    place of the model."""

    def messages_read(self) -> list[records.ReadMessage]:
        """Returns the messages as an extraction reads them."""
        return self._as_read(self.entries[self.first :])

    def messages_to_learn_from(self) -> list[records.ReadMessage]:
        """Returns the messages that are learned from without a model."""
        suspended = {self.entries[position].id for position in self.suspended}
        return [message for message in self.messages_read() if message.id not in suspended]

    def messages_before(self) -> list[records.ReadMessage]:
        """Returns the few messages right before them, which are not learned from."""
        start = max(0, self.first - LEARNING_POLICY.messages_before)
        return self._as_read(self.entries[start : self.first])

    def _as_read(self, entries: Sequence[Entry]) -> list[records.ReadMessage]:
        start = max(0, self.first - LEARNING_POLICY.look_back)
        others = others_in(self.entries[start:], self.scope.user_id)
        return as_read_messages(
            [entry for entry in entries if entry.id not in self.not_own], others
        )

    def with_end(self, end: int) -> "Work":
        """Returns the same up to an earlier position."""
        ids = {entry.id for entry in self.entries[self.first : end]}
        statements = [note for note in self.statements if ids.issuperset(note.message_ids)]
        return replace(
            self,
            entries=Beginning(self.entries, end),
            costs=self.costs[:end],
            statements=tuple(statements),
            suspended=tuple(position for position in self.suspended if position < end),
        )

    def is_read_whole(self, first: int) -> bool:
        """Returns whether an extraction reads the messages from a position on as they stand.

        It does not read results of tools and what was pasted.
        """
        entries = self.entries[first:]
        texts = [message.text for message in self._as_read(entries)]
        return texts == [entry.text for entry in entries]

    def read_between(self, first: int, end: int) -> list[records.ReadMessage]:
        """Returns messages before those to learn from, as an extraction reads them."""
        return self._as_read(self.entries[first:end])

    def own_words(self) -> int:
        """Returns the number of the user's words in them."""
        return sum(
            word_count(message.text) for message in self.messages_read() if message.from_user
        )

    def done(self, now: datetime, *, by_model: bool) -> records.ProgressRecord | None:
        """Returns the progress once they were learned from; None where no message is left.

        Args:
            now: The time at which they were.
            by_model: Whether the model has read them, and not the rules.
        """
        if not self.entries:
            return None
        here = (len(self.entries), self.entries[-1].digest)
        marks = tuple(mark for mark in self.progress.marks if fits(self.entries, mark))
        if self.is_ahead:
            changes = {"at": now, "marks": marks, "meanwhile": records.ReadAhead(mark=here)}
            return self.progress.model_copy(update=changes)

        meanwhile = self.progress.meanwhile
        if meanwhile is not None:
            position, _ = meanwhile.mark
            if by_model or position <= len(self.entries):
                meanwhile = None
        newest_marks = (*marks, here)[-LEARNING_POLICY.most_marks :]
        return records.ProgressRecord(
            at=now,
            marks=newest_marks,
            meanwhile=meanwhile,
            passage=records.Passage(spans=self._suspended_spans(by_model=by_model)),
        )

    def _suspended_spans(self, *, by_model: bool) -> tuple[tuple[int, int], ...]:
        """Returns where nothing was learned up to their end, as positions begin and end.

        Args:
            by_model: Whether the model has read them: it tells a game by itself.
        """
        earlier = [span for span in self.progress.suspended if span[1] <= self.first]
        here: list[tuple[int, int]] = []
        if not by_model:
            here = [(position, position + 1) for position in self.suspended]
        return (*earlier, *here)

    def put_off(self, error: ModelReplyError, now: datetime) -> records.ProgressRecord | None:
        """Returns the progress once the model has failed on them.

        None where that was the last time, and rules learn from them instead.
        """
        refusals = self.progress.refusals
        if not error.is_passing:
            refusals += 1
        if refusals >= LEARNING_POLICY.most_refusals:
            return None
        failures = self.progress.failures + 1
        waits_until = now + llm.wait_after(failures)
        changes = {"failures": failures, "refusals": refusals, "waits_until": waits_until}
        return self.progress.model_copy(update=changes)


def fits(entries: Sequence[Entry], mark: tuple[int, str]) -> bool:
    """Returns whether nothing before a mark of progress has changed since."""
    position, digest = mark
    return 0 < position <= len(entries) and entries[position - 1].digest == digest


def others_in(entries: Sequence[Entry], user_id: str) -> frozenset[str]:
    """Returns the names of those who write beside the user.

    The user writes without a name, or with the user's id as the name, or is the only one who
    writes.
    """
    names: set[str] = set()
    writes_unnamed = False
    for entry in entries:
        if isinstance(entry.message, HumanMessage):
            if entry.message.name:
                names.add(entry.message.name)
            elif is_user(entry.message):
                writes_unnamed = True
    if len(names) == 1 and not writes_unnamed:
        return frozenset()
    user_words = ENGLISH.word.findall(fold(user_id))
    return frozenset(name for name in names if ENGLISH.word.findall(fold(name)) != user_words)


def as_read_messages(
    entries: Sequence[Entry], others: Collection[str] = ()
) -> list[records.ReadMessage]:
    """Returns messages as an extraction reads them: words of people and of the assistant alone.

    Args:
        entries: The messages.
        others: The names of those who write beside the user.
    """
    said = []
    for entry in entries:
        text = words_of(entry)
        if not text or entry.preservation == "drop":
            continue
        said.append(
            records.ReadMessage(
                id=entry.id,
                digest=entry.fingerprint,
                text=text,
                from_user=is_user(entry.message) and entry.message.name not in others,
                speaker=entry.speaker,
                at=time_of(entry.message),
            )
        )
    return said


def words_of(entry: Entry) -> str:
    """Returns what a message of a person or the assistant says; empty for any other."""
    if not isinstance(entry.message, HumanMessage | AIMessage):
        return ""
    return entry.own_words


def still_there(conversation: OpenConversation) -> dict[str, str]:
    """Returns the fingerprints of a conversation's messages by id, without archived ones."""
    table = conversation.table
    return {key: table.fingerprint(position) for position, key in enumerate(table.ids)}
