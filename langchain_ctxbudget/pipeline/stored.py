"""One stored conversation: what applications and agents read of it, and change."""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import NamedTuple

from langchain_core.messages import BaseMessage, MessageLikeRepresentation
from langgraph.store.base import PutOp

from langchain_ctxbudget import history, stores
from langchain_ctxbudget.errors import InputError, require_count
from langchain_ctxbudget.flow import Flow, T, batch
from langchain_ctxbudget.messages import (
    Preservation,
    checked_messages,
    preservation_of,
    require_preservation,
    split_instructions,
)
from langchain_ctxbudget.pipeline.rules import carry_into_fork, messages_in_force
from langchain_ctxbudget.pipeline.workspace import Workspace
from langchain_ctxbudget.report import CoverageState
from langchain_ctxbudget.settings import RetentionPolicy

_log = logging.getLogger(__name__)


class ConversationStatus(NamedTuple):
    """The background work on a conversation, and the form and savings of its last prompt."""

    is_extracting: bool
    last_extraction: datetime | None
    is_compacting: bool
    compaction_stage: str
    saved_tokens: int
    extraction_waits_until: datetime | None = None
    """The time before which a model that has failed is not asked again; None: nothing waits for
    it."""
    suspended: tuple[tuple[int, int], ...] = ()
    """Where the user's messages stand in the conversation from which nothing was learned without a
    model, as positions begin and end: they belong to a game, a story or a supposition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OldMessages:
    """The messages of a conversation that a retention policy no longer keeps."""

    keys: Sequence[str]
    """The keys of their records, also of archived ones."""
    count: int
    """How many messages they are: several writers may have stored one."""
    there: Mapping[str, str]
    """The fingerprints of the other messages by id, without archived ones."""
    is_all: bool
    """True if no message is left without them."""
    oldest_left: datetime | None
    """The time of the oldest of the others."""


@dataclass(frozen=True, slots=True)
class StoredConversation:
    """One conversation of a workspace; every method returns the flow of one operation."""

    workspace: Workspace
    scope: stores.Scope

    # How it is reached

    def read(self, body: Callable[[history.OpenConversation], Flow[T]]) -> Flow[T]:
        """Runs a flow with the conversation, up to date, alone."""
        return self.workspace.recall(self.scope, body)

    def _change(
        self,
        change: Callable[[history.Editor], Flow[T]],
        on_removal: history.OnRemoval | None = None,
        *,
        surely: bool = True,
    ) -> Flow[T]:
        """Changes the conversation, and has it learned from in the background.

        Args:
            change: what is done by an editor.
            on_removal: what happens to messages that go; None where none can.
            surely: False where it is only known afterwards whether something has gone.
        """
        if on_removal not in (None, "archive", "forget"):
            raise InputError(f"on_removal must be 'archive' or 'forget', not {on_removal!r}")
        workspace = self.workspace

        def body(conversation: history.OpenConversation) -> Flow[T]:
            table = conversation.table
            table.tree(workspace.settings.span_messages)  # it tells what was derived from what
            length = len(table)
            digest = table.digest()
            result = yield from change(self._editor(conversation, on_removal or "forget"))
            table = conversation.table
            is_only_extended = table.holds(length, digest)
            if not is_only_extended:  # what was edited or removed must not live on there
                yield from workspace.libraries.forget(self.scope)
            if on_removal is not None and (surely or not is_only_extended):
                yield from workspace.workers.learning.forget(self.scope, conversation)
                if on_removal == "forget":
                    workspace.forget_by_text()
            table.read_ahead(length, workspace.settings.span_messages)
            workspace.workers.learning.note(conversation)
            workspace.workers.sealing.note(conversation)
            workspace.workers.encoding.note(conversation, workspace.settings)
            return result

        return self.read(body)

    def _editor(
        self, conversation: history.OpenConversation, on_removal: history.OnRemoval = "forget"
    ) -> history.Editor:
        workspace = self.workspace
        return history.Editor(workspace.store, conversation, workspace.writer_id, on_removal)

    # What changes it

    def add(self, messages: Sequence[MessageLikeRepresentation]) -> Flow[list[str]]:
        """Appends messages, and returns their ids."""
        checked = checked_messages(messages, "messages")
        return self._change(lambda editor: editor.add(checked))

    def sync(
        self, messages: Sequence[MessageLikeRepresentation], on_removal: history.OnRemoval
    ) -> Flow[list[str]]:
        """Makes the conversation equal to an agent's state; see `Editor.sync`."""
        state = checked_messages(messages, "messages")
        return self._change(lambda editor: editor.sync(state), on_removal, surely=False)

    def copy_state(
        self,
        messages: Sequence[MessageLikeRepresentation],
        *,
        thread_id: str | None,
        task: bool = False,
    ) -> Flow[None]:
        """Copies an agent's state into the store, unless its thread is another user's.

        Where that fails, the next prompt does it, or says that it cannot.
        """
        _, state = split_instructions(checked_messages(messages, "messages"))

        def copy(editor: history.Editor) -> Flow[None]:
            thread = self.workspace.thread_of_run(thread_id)
            if thread is not None:
                conversation = yield from thread.conversation_of_run(editor.conversation)
                if conversation is not editor.conversation:
                    return
                yield from thread.keep_guests(conversation, state)
            yield from editor.sync(state, task=task)

        try:
            yield from self._change(copy, "archive", surely=False)
        except Exception as error:  # noqa: BLE001 - the state is the truth; the copy is tried again
            _log.warning(
                "conversation %r not copied to the store: %s", self.scope.conversation_id, error
            )

    def edit(self, message_id: str, message: MessageLikeRepresentation) -> Flow[None]:
        """Replaces a message, and deletes what was derived from the old one."""
        [checked] = checked_messages([message], "message")
        yield from self._change(lambda editor: editor.edit(message_id, checked), "forget")

    def remove(self, message_ids: str | Sequence[str], on_removal: history.OnRemoval) -> Flow[None]:
        """Archives or forgets messages."""
        ids = _list_of_ids(message_ids)
        yield from self._change(lambda editor: editor.remove(ids), on_removal)

    def fork(self, new_conversation_id: str, until: str | None) -> Flow[list[str]]:
        """Begins a conversation with the messages of this one, and returns their ids."""
        workspace = self.workspace
        new_scope = stores.Scope(self.scope.user_id, new_conversation_id)

        def beginning(
            conversation: history.OpenConversation,
        ) -> Flow[tuple[list[BaseMessage], dict[str, Preservation]]]:
            if not conversation.table:
                raise InputError(
                    f"There is no conversation {self.scope.conversation_id!r} to begin with"
                )
            history.require_known(conversation, [] if until is None else [until])
            yield from workspace.read_marks(conversation)
            return _beginning_of(conversation, until)

        # One after the other: with one lock inside the other, two forks could wait for each other
        # for ever.
        messages, pins = yield from self.read(beginning)
        guests = yield from stores.guests.read_record(workspace.store, self.scope)
        beside = []
        if guests:
            beside.append(stores.put_of(new_scope.place(stores.owners.GUESTS), guests))
        ids = yield from StoredConversation(workspace, new_scope).begin(messages, pins, beside)
        yield from carry_into_fork(workspace, self.scope, new_conversation_id)
        return ids

    def begin(
        self,
        messages: Sequence[BaseMessage],
        pins: Mapping[str, Preservation],
        beside: Sequence[PutOp],
    ) -> Flow[list[str]]:
        """Begins the conversation with messages of another one, and returns their ids.

        Args:
            messages: the messages, which have ids.
            pins: how compaction treats some of them, by id.
            beside: what else is written with them.
        """
        return self.read(
            lambda conversation: self._editor(conversation).begin_with(messages, pins, beside)
        )

    def pin(
        self, message_ids: str | Sequence[str], preservation: Preservation | None
    ) -> Flow[None]:
        """Sets how compaction treats messages; None takes back what was said before."""
        if preservation is not None:
            require_preservation(preservation, "preservation")
        ids = _list_of_ids(message_ids)

        def body(conversation: history.OpenConversation) -> Flow[None]:
            history.require_known(conversation, ids)
            yield from self.workspace.read_marks(conversation)
            there = {*conversation.table.ids, *conversation.archived.values()}
            others = there.difference(ids)
            pins = {key: pinned for key, pinned in conversation.pins.items() if key in others}
            if preservation is not None:
                pins |= dict.fromkeys(ids, preservation)

            record = stores.PinsRecord(pins=pins) if pins else None
            put = stores.put_of(self.scope.place(history.PINS), record)
            yield from batch(self.workspace.store, [put])
            conversation.pin(pins)

        return self.read(body)

    def ask_for_rebuild(self, thread_id: str | None) -> Flow[None]:
        """Has the next prompt written anew, with older messages compacted."""

        def body(conversation: history.OpenConversation) -> Flow[None]:
            thread = self.workspace.thread_of_run(thread_id)
            if thread is not None:
                conversation = yield from thread.conversation_of_run(conversation, claims=False)
            if conversation.scope.is_kept:
                yield from self.workspace.read_marks(conversation)
            cuts = conversation.cuts.items()
            conversation.cuts = {key: cut.model_copy(update={"prefix": ""}) for key, cut in cuts}
            conversation.cuts_unsaved = True

        return self.read(body)

    def clear(self) -> Flow[None]:
        """Deletes the conversation and everything that was derived from it.

        Also in the stores that runs brought along.
        """
        yield from self.workspace.everywhere(
            lambda place: StoredConversation(place, self.scope).clear_here()
        )

    def clear_here(self) -> Flow[None]:
        """Deletes the conversation in the workspace's own store alone."""
        workspace = self.workspace
        workspace.workers.bookkeeping.ledger.forget(self.scope)
        yield from workspace.using(self.scope, self._cleared)
        yield from workspace.forget_apart(
            lambda other: other.conversation_id == self.scope.conversation_id
        )

    def _cleared(self, conversation: history.OpenConversation) -> Flow[None]:
        workspace = self.workspace
        yield from workspace.workers.learning.forget(self.scope)
        yield from stores.owners.release(workspace.store, self.scope)
        yield from workspace.libraries.forget(self.scope)
        try:
            yield from history.clear_derived(workspace.store, self.scope)
            yield from stores.bulk.delete_below(
                workspace.store, self.scope.path, history.LANES, history.JOINED
            )
        finally:
            # Wherever it ends, what is left is read again; nothing may wait for a lock here.
            yield from workspace.forget(conversation)
            workspace.forget_by_text()
        # A prompt of another conversation may have read it meanwhile.
        yield from workspace.libraries.forget(self.scope)

    # What retention does with it

    def old_messages(self, before: datetime, policy: RetentionPolicy) -> Flow[OldMessages]:
        """Returns the messages that a policy no longer keeps; they stay."""
        return self.read(lambda conversation: self._old_messages(conversation, before, policy))

    def erase_old(
        self, before: datetime, policy: RetentionPolicy, written_at: datetime
    ) -> Flow[OldMessages]:
        """Forgets the messages that a policy no longer keeps, and what was made of them.

        Args:
            before: older ones go.
            policy: which of them stay nevertheless.
            written_at: when somebody wrote to the conversation last.
        """

        def erase(editor: history.Editor) -> Flow[OldMessages]:
            conversation = editor.conversation
            heads = conversation.heads or history.log.Heads()
            old = yield from self._old_messages(conversation, before, policy)
            yield from editor.erase(old.keys)
            known = history.ages.AgesRecord(lanes=dict(heads.lanes), oldest=old.oldest_left)
            yield from self._note_ages(editor, known, written_at)
            return old

        return self._change(erase, "forget", surely=False)

    def _note_ages(
        self, editor: history.Editor, known: history.ages.AgesRecord, written_at: datetime
    ) -> Flow[None]:
        """Notes the ages of a conversation's messages once a sweep has erased some of them.

        What others have appended meanwhile is read, as it may be old, too.

        Args:
            editor: Who has erased them.
            known: The ages of the messages that were there, without those that are erased.
            written_at: When somebody wrote to the conversation last before.
        """
        store = self.workspace.store
        heads = editor.conversation.heads or history.log.Heads()
        ages = yield from history.ages.brought_up_to_date(store, self.scope, heads, known)
        others_before = {name: head for name, head in known.lanes.items() if name != editor.lane}
        others = {name: head for name, head in heads.lanes.items() if name != editor.lane}
        if others == others_before:
            ages = ages.model_copy(update={"written_at": written_at})
        yield from history.ages.note(store, self.scope, ages)

    def _old_messages(
        self, conversation: history.OpenConversation, before: datetime, policy: RetentionPolicy
    ) -> Flow[OldMessages]:
        """Returns the messages of an open conversation that a policy no longer keeps."""
        nothing_known = history.log.Heads()
        heads = conversation.heads or nothing_known
        news = yield from history.log.read_new(
            self.workspace.store, self.scope, nothing_known, heads
        )
        times = history.ages.times_of(news)
        if policy.keep_pinned:
            yield from self.workspace.read_marks(conversation)
        kept_ids: frozenset[str] = frozenset()
        if policy.keep_rules:
            kept_ids = yield from messages_in_force(self.workspace, conversation)

        def is_kept(message_id: str, wanted: Preservation | None) -> bool:
            return message_id in kept_ids or (policy.keep_pinned and wanted == "keep")

        table = conversation.table
        keys_of = conversation.keys_by_message()
        old_keys: list[str] = []
        there: dict[str, str] = {}
        for position, message_id in enumerate(table.ids):
            keys = keys_of[message_id]
            is_old = any(times.get(key, before) < before for key in keys)
            if is_old and not is_kept(message_id, table[position].preservation):
                old_keys += keys
            else:
                there[message_id] = table.fingerprint(position)

        archived: list[str] = []
        for record in news.messages:
            key = record.place.key
            archived_id = conversation.archived.get(key)
            if archived_id is None or times[key] >= before:
                continue
            pinned = conversation.pins.get(archived_id)
            if not is_kept(archived_id, pinned or preservation_of(record.to_message())):
                archived.append(key)
        left = times.keys() - {*old_keys, *archived}
        return OldMessages(
            keys=[*old_keys, *archived],
            count=len(table) - len(there) + len(archived),
            there=there,
            is_all=not left,
            oldest_left=history.ages.oldest_of(times[key] for key in left),
        )

    def dissolve(self) -> Flow[bool]:
        """Deletes what is left of the conversation where it has no messages any more.

        Returns False where it has some, or gets one at this moment.
        """
        workspace = self.workspace

        def body(conversation: history.OpenConversation) -> Flow[bool]:
            is_deserted = yield from history.editing.is_deserted(workspace.store, conversation)
            if not is_deserted:
                return False
            workspace.workers.bookkeeping.ledger.forget(self.scope)
            yield from workspace.workers.learning.forget(self.scope)
            yield from stores.owners.release(workspace.store, self.scope)
            yield from workspace.libraries.forget(self.scope)
            try:
                return (yield from history.editing.dissolve(workspace.store, conversation))
            finally:
                yield from workspace.forget(conversation)

        return self.read(body)

    def forget_backgrounds(self) -> Flow[None]:
        """Forgets what was shown beside the messages: it may quote what is erased elsewhere."""
        workspace = self.workspace

        def forget(conversation: history.OpenConversation) -> Flow[None]:
            conversation.backgrounds.clear()
            conversation.last = None
            yield from history.clear_backgrounds(workspace.store, self.scope)

        return workspace.using(self.scope, forget)

    # What is read of it

    def messages(self) -> Flow[list[BaseMessage]]:
        """Returns copies of all messages."""

        def body(conversation: history.OpenConversation) -> Flow[list[BaseMessage]]:
            yield from ()
            return _copies(conversation.page().messages)

        return self.read(body)

    def page(self, limit: int, before: str | None) -> Flow[history.MessagePage]:
        """Returns copies of the newest messages, or of the newest ones before a page."""
        require_count("limit", limit)

        def body(conversation: history.OpenConversation) -> Flow[history.MessagePage]:
            yield from ()
            page = conversation.page(limit, before)
            return replace(page, messages=_copies(page.messages))

        return self.read(body)

    def coverage(self) -> Flow[dict[CoverageState, list[str]]]:
        """Returns the ids of all messages by their state in the last prompt."""

        def body(conversation: history.OpenConversation) -> Flow[dict[CoverageState, list[str]]]:
            if conversation.last is None or conversation.last.coverage is None:
                yield from self.workspace.read_marks(conversation)
            return conversation.seen_with(self.workspace.counter).ledger()

        return self.read(body)

    def compactions(self) -> Flow[list[history.ConversationCompaction]]:
        """Returns the summaries of all spans before the furthest cut."""
        workspace = self.workspace

        def body(
            conversation: history.OpenConversation,
        ) -> Flow[list[history.ConversationCompaction]]:
            yield from workspace.read_marks(conversation)
            until = max((cut.position for cut in conversation.cuts.values()), default=0)
            return (
                yield from history.compactions(
                    workspace.store,
                    conversation.seen_with(workspace.counter),
                    workspace.settings.span_messages,
                    until,
                )
            )

        return self.read(body)

    def status(self) -> Flow[ConversationStatus]:
        """Returns what is under way for the conversation, and the outcome of its last prompt."""
        learning = self.workspace.workers.learning
        summarizing = self.workspace.workers.summarizing
        progress = yield from learning.reader.progress(self.scope)
        report = self.workspace.recent.report_of(self.scope)
        return ConversationStatus(
            is_extracting=learning.worker.has(self.scope),
            last_extraction=progress.at,
            is_compacting=summarizing is not None and summarizing.worker.has(self.scope),
            compaction_stage=report.history_strategy if report else "empty",
            saved_tokens=report.stability.saved_tokens if report else 0,
            extraction_waits_until=progress.waits_until,
            suspended=progress.suspended,
        )


def _copies(messages: Iterable[BaseMessage]) -> list[BaseMessage]:
    """Returns messages that an application may change."""
    return [message.model_copy(deep=True) for message in messages]


def _beginning_of(
    conversation: history.OpenConversation, until: str | None
) -> tuple[list[BaseMessage], dict[str, Preservation]]:
    """Returns the messages up to an id, or all of them, and their pins."""
    end = len(conversation.table)
    if until is not None:
        end = conversation.table.positions[until] + 1
    messages = [entry.message for entry in conversation.table[:end]]
    ids = [str(message.id) for message in messages if message.id in conversation.pins]
    return messages, {message_id: conversation.pins[message_id] for message_id in ids}


def _list_of_ids(message_ids: str | Sequence[str]) -> list[str]:
    ids = [message_ids] if isinstance(message_ids, str) else message_ids
    if not isinstance(ids, Sequence) or not all(isinstance(key, str) for key in ids):
        raise InputError(f"message_ids must be an id or a list of ids, not {message_ids!r}")
    return list(ids)
