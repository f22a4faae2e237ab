"""The methods of `ContextPipeline` that read and change what it keeps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from langchain_core.messages import BaseMessage

from langchain_ctxbudget.errors import InputError
from langchain_ctxbudget.flow import Flow, twins
from langchain_ctxbudget.history.log import OnRemoval
from langchain_ctxbudget.history.message_pages import MessagePage
from langchain_ctxbudget.history.stored_summaries import ConversationCompaction
from langchain_ctxbudget.messages.preservation import Preservation, require_preservation
from langchain_ctxbudget.pipeline.engine import Engine
from langchain_ctxbudget.report.report import ContextReport, CoverageState
from langchain_ctxbudget.stores.records import Scope


class ConversationMethods:
    """The methods of a pipeline that read and change conversations and saved settings; each has an async twin."""

    engine: Engine

    def _add_messages(self, messages: Sequence[BaseMessage], *, user_id: str, conversation_id: str) -> Flow[list[str]]:
        """Append messages to a conversation; those whose id it knows already are left alone.

        A message without an id gets one from its content and from how often the conversation has it: a second
        "yes" is a second message. The id of a message that was removed is free again.

        Returns:
            the ids of the given messages, in order.

        Raises:
            MessageConflictError: an id is known with other content; nothing was written.
            MissingScopeError: no user or no conversation.
            UnsupportedContentError: something that is not a message.
        """
        return self.engine.workspace.add(messages, Scope(user_id, conversation_id))

    add_messages, aadd_messages = twins(_add_messages)

    def _sync(
        self,
        messages: Sequence[BaseMessage],
        *,
        user_id: str,
        conversation_id: str,
        on_removal: OnRemoval = "archive",
    ) -> Flow[list[str]]:
        """Make a conversation equal to an agent's state, by id and content.

        New messages are appended, an edited one replaces its predecessor, and what was derived from it is made
        again; one that is no longer there is kept aside or deleted. A state that has none of the stored messages has
        forgotten them, as after a restart without a persistent checkpointer: they stay, and the given ones follow them.

        Args:
            messages: the whole conversation as it should be.
            user_id: whose conversation it is.
            conversation_id: which one.
            on_removal: `"archive"` keeps removed messages aside, `"forget"` deletes them. Removed is what the same
                state once had; to delete all of a conversation, call `clear`.

        Returns:
            the ids of the given messages, in order.

        Raises:
            MessageConflictError: two of the messages have one id and other content.
            MissingScopeError: no user or no conversation.
            UnsupportedContentError: something that is not a message.
        """
        return self.engine.workspace.sync(messages, Scope(user_id, conversation_id), on_removal)

    sync, a_sync = twins(_sync)

    def _get_messages(self, *, user_id: str, conversation_id: str) -> Flow[list[BaseMessage]]:
        """Every message of a conversation as it was given; none for one that does not exist yet.

        Raises:
            MissingScopeError: no user or no conversation.
        """
        return self.engine.workspace.get(Scope(user_id, conversation_id))

    get_messages, aget_messages = twins(_get_messages)

    def _list_conversations(self, *, user_id: str) -> Flow[list[str]]:
        """The ids of a user's conversations, sorted.

        Raises:
            MissingScopeError: no user.
        """
        return self.engine.workspace.conversations(user_id)

    list_conversations, alist_conversations = twins(_list_conversations)

    def end_session(self, *, user_id: str, conversation_id: str) -> bool:
        """Say that a conversation pauses or ends: what is new in it is learned from in the background, however little.

        Returns:
            whether that is going to happen: not where the setting `learn` is off, or too many conversations wait.

        Raises:
            MissingScopeError: no user or no conversation.
        """
        return self.engine.learning.end_session(Scope(user_id, conversation_id))

    async def aend_session(self, *, user_id: str, conversation_id: str) -> bool:
        """Say that a conversation pauses or ends; see `end_session`."""
        return self.end_session(user_id=user_id, conversation_id=conversation_id)

    def _get_page(
        self,
        *,
        user_id: str,
        conversation_id: str,
        limit: int = 50,
        before: str | None = None,
        after: str | None = None,
    ) -> Flow[MessagePage]:
        """A part of a conversation, read from the store without the rest of it: its newest messages, older, or newer.

        A page that has a `before` has something before it, if only messages that were removed, and then the next one
        may be empty. Polling with `after` gives new messages only; when there are none and the page's `after` is
        another, something was changed, and what is shown is to be read again.

        Args:
            user_id: whose conversation it is.
            conversation_id: which one.
            limit: how many messages at most; not for `after`.
            before: a page's `before`, for the messages before that page.
            after: a page's `after`, for everything that was said since.

        Raises:
            InputError: a limit below 1, no bookmark, or two of them.
            MissingScopeError: no user or no conversation.
        """
        return self.engine.workspace.page(Scope(user_id, conversation_id), limit, before, after)

    get_page, aget_page = twins(_get_page)

    def _edit_message(self, message_id: str, message: BaseMessage, *, user_id: str, conversation_id: str) -> Flow[None]:
        """Put a message in the place of another; what was derived from the old one is deleted, nothing else.

        Args:
            message_id: the message that is replaced.
            message: what it is to be; it gets the same id.
            user_id: whose conversation it is.
            conversation_id: which one.

        Raises:
            InputError: the conversation has no such message, or the new one has another id.
            MissingScopeError: no user or no conversation.
            UnsupportedContentError: something that is not a message.
        """
        return self.engine.workspace.edit(message_id, message, Scope(user_id, conversation_id))

    edit_message, aedit_message = twins(_edit_message)

    def _remove_messages(
        self,
        message_ids: str | Sequence[str],
        *,
        user_id: str,
        conversation_id: str,
        on_removal: OnRemoval = "archive",
    ) -> Flow[None]:
        """Take messages out of a conversation.

        Args:
            message_ids: one id or several.
            user_id: whose conversation it is.
            conversation_id: which one.
            on_removal: `"archive"` keeps them aside: no prompt and no reader shows them, an export does; `"forget"`
                deletes them and what was derived from them, also where they were archived before.

        Raises:
            InputError: the conversation has no such message.
            MissingScopeError: no user or no conversation.
        """
        return self.engine.workspace.remove(_ids(message_ids), Scope(user_id, conversation_id), on_removal)

    remove_messages, aremove_messages = twins(_remove_messages)

    def _fork(
        self, new_conversation_id: str, *, user_id: str, conversation_id: str, until: str | None = None
    ) -> Flow[list[str]]:
        """Begin a conversation with the messages of another one, which stays as it is.

        Args:
            new_conversation_id: the id of the new one.
            user_id: whose conversations they are.
            conversation_id: the one to begin with.
            until: the id of the last message that the new one has; default: all.

        Returns:
            the ids of its messages: those that they have in the other one.

        Raises:
            InputError: there is no such message, or the new conversation exists already.
            MissingScopeError: no user or no conversation.
        """
        new = Scope(user_id, new_conversation_id)
        return self.engine.workspace.fork(Scope(user_id, conversation_id), new, until)

    fork, afork = twins(_fork)

    def _clear(self, *, user_id: str, conversation_id: str) -> Flow[None]:
        """Delete a conversation and everything that was derived from it, and nothing else.

        Raises:
            MissingScopeError: no user or no conversation.
        """
        return self.engine.clear(Scope(user_id, conversation_id))

    clear, aclear = twins(_clear)

    def _export_user(self, *, user_id: str) -> Flow[list[str]]:
        """Everything that is stored of a user, a line of JSON for each record; joined by line breaks, a JSONL file.

        A line has `namespace`, `key`, `value`, `created_at` and `updated_at`; archived messages and summaries are
        among them.

        Raises:
            MissingScopeError: no user.
        """
        return self.engine.workspace.export(user_id)

    export_user, aexport_user = twins(_export_user)

    def _erase_user(self, *, user_id: str) -> Flow[int]:
        """Delete every record of a user, and everything that was derived from them.

        What a database keeps on its disk of deleted records is its own: `docs/scaling.md` says how to clean it.

        Returns:
            how many records there were.

        Raises:
            MissingScopeError: no user.
        """
        return self.engine.erase(user_id)

    erase_user, aerase_user = twins(_erase_user)

    def _pin(
        self,
        message_ids: str | Sequence[str],
        *,
        user_id: str,
        conversation_id: str,
        preservation: Preservation | None = "keep",
    ) -> Flow[None]:
        """Say what is to become of messages when their conversation is compacted, whatever they say themselves.

        Args:
            message_ids: one id or several.
            user_id: whose conversation it is.
            conversation_id: which one.
            preservation: `"keep"`: verbatim while it fits; `"summarize"`: in short only; `"drop"`: left out of prompts,
                still found by the recall tool; None takes back what was said before.

        Raises:
            InputError: the conversation has no such message, or there is no such preservation.
            MissingScopeError: no user or no conversation.
        """
        return self.engine.workspace.pin(
            _ids(message_ids), Scope(user_id, conversation_id), _preservation(preservation)
        )

    pin, apin = twins(_pin)

    def _coverage(self, *, user_id: str, conversation_id: str) -> Flow[dict[CoverageState, list[str]]]:
        """The ledger of a whole conversation: the ids of its messages by their state in its last prompt, in order.

        Every message is in exactly one state: `verbatim`, `summarized` (a line of summary or arc stands for it, or a
        shortened form of it), `retrieved`, or `omitted` (and found by the recall tool). What came after the last prompt
        counts as verbatim.

        Raises:
            MissingScopeError: no user or no conversation.
        """
        return self.engine.workspace.coverage(Scope(user_id, conversation_id))

    coverage, acoverage = twins(_coverage)

    def last_report(self, *, user_id: str, conversation_id: str) -> ContextReport | None:
        """The report of the newest prompt of a conversation, also where a graph or an agent has made it.

        It is in memory, so there is no async twin. Those of the latest 64 prompts of the pipeline are kept, until their
        conversation is cleared or their user erased.

        Args:
            user_id: whose conversation it is.
            conversation_id: which one.

        Returns:
            the report, or None where there is none any more.

        Raises:
            MissingScopeError: no user or no conversation.

        Example:
            >>> from langchain_ctxbudget import ContextPipeline
            >>> pipeline = ContextPipeline()
            >>> context = pipeline.assemble("Hello", user_id="ada", conversation_id="c1")
            >>> pipeline.last_report(user_id="ada", conversation_id="c1") == context.report
            True
        """
        return self.engine.recent.last_of(Scope(user_id, conversation_id))

    def _get_compactions(self, *, user_id: str, conversation_id: str) -> Flow[list[ConversationCompaction]]:
        """The summaries of all spans that are no longer shown whole, each after those that it sums up.

        Raises:
            MissingScopeError: no user or no conversation.
        """
        return self.engine.workspace.compactions(Scope(user_id, conversation_id))

    get_compactions, aget_compactions = twins(_get_compactions)

    def _save_settings(self, settings: Mapping[str, Any], *, user_id: str, persona_id: str | None = None) -> Flow[None]:
        """Keep settings of a user, or of a persona of theirs, in place of those kept before.

        They lie over the pipeline's: first the user's, then the persona's, then the call's own.

        Args:
            settings: plain data by setting, for instance `{"allocation": {"strategy": "ratio", "memory": 0.35,
                "history": 0.35}}`; an empty mapping removes what was kept.
            user_id: whose settings.
            persona_id: which persona's, where they are not for all.

        Raises:
            InvalidSettingsError: an unknown setting, a value outside its range, or something that is not plain data.
            MissingScopeError: no user.
        """
        return self.engine.workspace.save_settings(settings, user_id, persona_id)

    save_settings, asave_settings = twins(_save_settings)

    def _get_settings(self, *, user_id: str, persona_id: str | None = None) -> Flow[dict[str, Any]]:
        """What was saved for a user, or for a persona of theirs; nothing where nothing was.

        Raises:
            MissingScopeError: no user.
        """
        return self.engine.workspace.saved_settings(user_id, persona_id)

    get_settings, aget_settings = twins(_get_settings)


def _ids(message_ids: str | Sequence[str]) -> list[str]:
    """Message ids as a list.

    Raises:
        InputError: they are something else.
    """
    ids = [message_ids] if isinstance(message_ids, str) else message_ids
    if not isinstance(ids, Sequence) or not all(isinstance(key, str) for key in ids):
        raise InputError(
            f"message_ids must be an id or a list of ids, as `add_messages` returns them, not {message_ids!r}"
        )
    return list(ids)


def _preservation(value: Preservation | None) -> Preservation | None:
    return None if value is None else require_preservation(value, "preservation")
