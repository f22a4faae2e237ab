"""Stored conversations, read and changed on behalf of an application."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import NamedTuple

from langchain_core.messages import BaseMessage

from langchain_ctxbudget import history, stores
from langchain_ctxbudget.errors import InputError
from langchain_ctxbudget.flow import Flow, batch
from langchain_ctxbudget.messages import Preservation, checked_messages, require_preservation
from langchain_ctxbudget.pipeline.workspace import Workspace
from langchain_ctxbudget.report import CoverageState


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
    """The passages from which rules do not learn, as a part is played there: first and last
    message, counted from 1."""


class Conversations:
    """The stored conversations of a workspace: every method returns the flow of one operation."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace

    def add(self, scope: stores.Scope, messages: Sequence[BaseMessage]) -> Flow[list[str]]:
        """Appends messages, and returns their ids."""
        messages = checked_messages(messages, "messages")
        return self._workspace.change(scope, lambda editor: editor.add(messages))

    def ids_of(self, user_id: str) -> Flow[list[str]]:
        """Returns the ids of a user's conversations, sorted."""
        user_id = stores.require_id("user_id", user_id)
        return history.log.read_conversations(self._workspace.store, user_id)

    def messages(self, scope: stores.Scope) -> Flow[list[BaseMessage]]:
        """Returns copies of all messages."""
        page = yield from self.page(scope)
        return page.messages

    def page(
        self, scope: stores.Scope, limit: int | None = None, before: str | None = None
    ) -> Flow[history.MessagePage]:
        """Returns copies of the newest messages, or of the newest ones before a page."""

        def body(conversation: history.OpenConversation) -> Flow[history.MessagePage]:
            yield from ()
            page = conversation.page(limit, before)
            copies = [message.model_copy(deep=True) for message in page.messages]
            return replace(page, messages=copies)

        return self._workspace.recall(scope, body)

    def edit(self, scope: stores.Scope, message_id: str, message: BaseMessage) -> Flow[None]:
        """Replaces a message, and deletes what was derived from the old one."""
        [checked_message] = checked_messages([message], "message")
        yield from self._workspace.change(
            scope, lambda editor: editor.edit(message_id, checked_message), "forget"
        )

    def remove(
        self,
        scope: stores.Scope,
        message_ids: str | Sequence[str],
        on_removal: history.OnRemoval,
    ) -> Flow[None]:
        """Archives or forgets messages."""
        ids = _list_of_ids(message_ids)
        yield from self._workspace.change(
            scope, lambda editor: editor.remove(ids, on_removal), on_removal
        )

    def fork(
        self, scope: stores.Scope, new_scope: stores.Scope, until: str | None
    ) -> Flow[list[str]]:
        """Begins a conversation with the messages of another one, and returns their ids."""

        def read(
            conversation: history.OpenConversation,
        ) -> Flow[tuple[list[BaseMessage], dict[str, Preservation]]]:
            if not conversation.table:
                raise InputError(
                    f"There is no conversation {scope.conversation_id!r} to begin with"
                )
            history.require_known(conversation, [] if until is None else [until])
            yield from self._workspace.read_marks(conversation)
            return _beginning_of(conversation, until)

        def write(conversation: history.OpenConversation) -> Flow[list[str]]:
            editor = history.Editor(self._workspace.store, conversation, self._workspace.writer_id)
            beside = []
            if guests:
                beside.append(stores.put_of(new_scope.place(stores.owners.GUESTS), guests))
            return editor.begin_with(messages, pins, beside)

        # One after the other: with one lock inside the other, two forks could wait for each other
        # for ever.
        messages, pins = yield from self._workspace.recall(scope, read)
        guests = yield from stores.guests.read_record(self._workspace.store, scope)
        return (yield from self._workspace.recall(new_scope, write))

    def pin(
        self,
        scope: stores.Scope,
        message_ids: str | Sequence[str],
        preservation: Preservation | None,
    ) -> Flow[None]:
        """Sets how compaction treats messages; None takes back what was said before."""
        if preservation is not None:
            require_preservation(preservation, "preservation")
        ids = _list_of_ids(message_ids)

        def body(conversation: history.OpenConversation) -> Flow[None]:
            history.require_known(conversation, ids)
            yield from self._workspace.read_marks(conversation)
            others = conversation.table.positions.keys() - set(ids)
            pins = {key: pinned for key, pinned in conversation.pins.items() if key in others}
            if preservation is not None:
                pins |= dict.fromkeys(ids, preservation)

            record = stores.PinsRecord(pins=pins) if pins else None
            put = stores.put_of(scope.place(history.PINS), record)
            yield from batch(self._workspace.store, [put])
            conversation.pin(pins)

        return self._workspace.recall(scope, body)

    def coverage(self, scope: stores.Scope) -> Flow[dict[CoverageState, list[str]]]:
        """Returns the ids of all messages by their state in the last prompt."""

        def body(conversation: history.OpenConversation) -> Flow[dict[CoverageState, list[str]]]:
            if conversation.last is None or conversation.last.coverage is None:
                yield from self._workspace.read_marks(conversation)
            return conversation.seen_with(self._workspace.counter).ledger()

        return self._workspace.recall(scope, body)

    def compactions(self, scope: stores.Scope) -> Flow[list[history.ConversationCompaction]]:
        """Returns the summaries of all spans before the furthest cut."""

        def body(
            conversation: history.OpenConversation,
        ) -> Flow[list[history.ConversationCompaction]]:
            yield from self._workspace.read_marks(conversation)
            until = max((cut.position for cut in conversation.cuts.values()), default=0)
            return (
                yield from history.compactions(
                    self._workspace.store,
                    conversation.seen_with(self._workspace.counter),
                    self._workspace.settings.span_messages,
                    until,
                )
            )

        return self._workspace.recall(scope, body)

    def status(self, scope: stores.Scope) -> Flow[ConversationStatus]:
        """Returns what is under way for a conversation, and the outcome of its last prompt."""
        learning = self._workspace.learning
        summarizing = self._workspace.summarizing
        progress = yield from learning.progress(scope)
        report = self._workspace.recent.report_of(scope)
        return ConversationStatus(
            is_extracting=learning.worker.has(scope),
            last_extraction=progress.at,
            is_compacting=summarizing is not None and summarizing.worker.has(scope),
            compaction_stage=report.history_strategy if report else "empty",
            saved_tokens=report.stability.saved_tokens if report else 0,
            extraction_waits_until=progress.waits_until,
            suspended=(progress.meanwhile or progress).passage.spans,
        )


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
