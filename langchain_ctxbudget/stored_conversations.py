"""The conversations that a pipeline keeps: append, make equal, read, say what is to stay, see what became of it."""

from __future__ import annotations

from collections.abc import Sequence

from langchain_core.messages import BaseMessage

from langchain_ctxbudget.core.preservation import Preservation, require_preservation
from langchain_ctxbudget.core.report import CoverageState
from langchain_ctxbudget.engine import Engine
from langchain_ctxbudget.errors import InputError
from langchain_ctxbudget.flow import adrive, drive
from langchain_ctxbudget.history.log import OnRemoval
from langchain_ctxbudget.stores.compactions import ConversationCompaction
from langchain_ctxbudget.stores.message_pages import MessagePage
from langchain_ctxbudget.stores.records import Scope


class StoredConversations:
    """What a pipeline does with conversations apart from making prompts of them; every method has an async twin."""

    engine: Engine

    def add_messages(self, messages: Sequence[BaseMessage], *, user_id: str, conversation_id: str) -> list[str]:
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
        return drive(self.engine.add(messages, Scope(user_id, conversation_id)))

    async def aadd_messages(self, messages: Sequence[BaseMessage], *, user_id: str, conversation_id: str) -> list[str]:
        """Append messages to a conversation; see `add_messages`."""
        return await adrive(self.engine.add(messages, Scope(user_id, conversation_id)))

    def sync(
        self,
        messages: Sequence[BaseMessage],
        *,
        user_id: str,
        conversation_id: str,
        on_removal: OnRemoval = "archive",
    ) -> list[str]:
        """Make a conversation equal to an agent's state, by id and content.

        New messages are appended, an edited one replaces its predecessor, and what was derived from it is made
        again; one that is no longer there is kept aside or deleted.

        Args:
            messages: the whole conversation as it should be.
            user_id: whose conversation it is.
            conversation_id: which one.
            on_removal: `"archive"` keeps removed messages aside, `"forget"` deletes them.

        Returns:
            the ids of the given messages, in order.

        Raises:
            MessageConflictError: two of the messages have one id and other content.
            MissingScopeError: no user or no conversation.
            UnsupportedContentError: something that is not a message.
        """
        return drive(self.engine.sync(messages, Scope(user_id, conversation_id), on_removal))

    async def a_sync(
        self,
        messages: Sequence[BaseMessage],
        *,
        user_id: str,
        conversation_id: str,
        on_removal: OnRemoval = "archive",
    ) -> list[str]:
        """Make a conversation equal to an agent's state; see `sync` (`async` is a keyword)."""
        return await adrive(self.engine.sync(messages, Scope(user_id, conversation_id), on_removal))

    def get_messages(self, *, user_id: str, conversation_id: str) -> list[BaseMessage]:
        """Every message of a conversation as it was given; none for one that does not exist yet.

        Raises:
            MissingScopeError: no user or no conversation.
        """
        return drive(self.engine.get(Scope(user_id, conversation_id)))

    async def aget_messages(self, *, user_id: str, conversation_id: str) -> list[BaseMessage]:
        """Every message of a conversation; see `get_messages`."""
        return await adrive(self.engine.get(Scope(user_id, conversation_id)))

    def list_conversations(self, *, user_id: str) -> list[str]:
        """The ids of a user's conversations, sorted.

        Raises:
            MissingScopeError: no user.
        """
        return drive(self.engine.conversations(user_id))

    async def alist_conversations(self, *, user_id: str) -> list[str]:
        """The ids of a user's conversations, sorted."""
        return await adrive(self.engine.conversations(user_id))

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
        return self.engine.learning.end_session(Scope(user_id, conversation_id))

    def get_page(
        self,
        *,
        user_id: str,
        conversation_id: str,
        limit: int = 50,
        before: str | None = None,
        after: str | None = None,
    ) -> MessagePage:
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
        return drive(self.engine.page(Scope(user_id, conversation_id), limit, before, after))

    async def aget_page(
        self,
        *,
        user_id: str,
        conversation_id: str,
        limit: int = 50,
        before: str | None = None,
        after: str | None = None,
    ) -> MessagePage:
        """A part of a conversation; see `get_page`."""
        return await adrive(self.engine.page(Scope(user_id, conversation_id), limit, before, after))

    def edit_message(self, message_id: str, message: BaseMessage, *, user_id: str, conversation_id: str) -> None:
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
        drive(self.engine.edit(message_id, message, Scope(user_id, conversation_id)))

    async def aedit_message(self, message_id: str, message: BaseMessage, *, user_id: str, conversation_id: str) -> None:
        """Put a message in the place of another; see `edit_message`."""
        await adrive(self.engine.edit(message_id, message, Scope(user_id, conversation_id)))

    def remove_messages(
        self,
        message_ids: str | Sequence[str],
        *,
        user_id: str,
        conversation_id: str,
        on_removal: OnRemoval = "archive",
    ) -> None:
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
        drive(self.engine.remove(_ids(message_ids), Scope(user_id, conversation_id), on_removal))

    async def aremove_messages(
        self,
        message_ids: str | Sequence[str],
        *,
        user_id: str,
        conversation_id: str,
        on_removal: OnRemoval = "archive",
    ) -> None:
        """Take messages out of a conversation; see `remove_messages`."""
        await adrive(self.engine.remove(_ids(message_ids), Scope(user_id, conversation_id), on_removal))

    def fork(
        self, new_conversation_id: str, *, user_id: str, conversation_id: str, until: str | None = None
    ) -> list[str]:
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
        return drive(self.engine.fork(Scope(user_id, conversation_id), new, until))

    async def afork(
        self, new_conversation_id: str, *, user_id: str, conversation_id: str, until: str | None = None
    ) -> list[str]:
        """Begin a conversation with the messages of another one; see `fork`."""
        new = Scope(user_id, new_conversation_id)
        return await adrive(self.engine.fork(Scope(user_id, conversation_id), new, until))

    def clear(self, *, user_id: str, conversation_id: str) -> None:
        """Delete a conversation and everything that was derived from it, and nothing else.

        Raises:
            MissingScopeError: no user or no conversation.
        """
        drive(self.engine.clear(Scope(user_id, conversation_id)))

    async def aclear(self, *, user_id: str, conversation_id: str) -> None:
        """Delete a conversation and everything that was derived from it; see `clear`."""
        await adrive(self.engine.clear(Scope(user_id, conversation_id)))

    def export_user(self, *, user_id: str) -> list[str]:
        """Everything that is stored of a user, a line of JSON for each record; joined by line breaks, a JSONL file.

        A line has `namespace`, `key`, `value`, `created_at` and `updated_at`; archived messages and summaries are
        among them.

        Raises:
            MissingScopeError: no user.
        """
        return drive(self.engine.export(user_id))

    async def aexport_user(self, *, user_id: str) -> list[str]:
        """Everything that is stored of a user; see `export_user`."""
        return await adrive(self.engine.export(user_id))

    def erase_user(self, *, user_id: str) -> int:
        """Delete every record of a user, and everything that was derived from them.

        What a database keeps on its disk of deleted records is its own: `docs/scaling.md` says how to clean it.

        Returns:
            how many records there were.

        Raises:
            MissingScopeError: no user.
        """
        return drive(self.engine.erase(user_id))

    async def aerase_user(self, *, user_id: str) -> int:
        """Delete every record of a user; see `erase_user`."""
        return await adrive(self.engine.erase(user_id))

    def pin(
        self,
        message_ids: str | Sequence[str],
        *,
        user_id: str,
        conversation_id: str,
        preservation: Preservation | None = "keep",
    ) -> None:
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
        drive(self.engine.pin(_ids(message_ids), Scope(user_id, conversation_id), _preservation(preservation)))

    async def apin(
        self,
        message_ids: str | Sequence[str],
        *,
        user_id: str,
        conversation_id: str,
        preservation: Preservation | None = "keep",
    ) -> None:
        """Say what is to become of messages when their conversation is compacted; see `pin`."""
        scope = Scope(user_id, conversation_id)
        await adrive(self.engine.pin(_ids(message_ids), scope, _preservation(preservation)))

    def coverage(self, *, user_id: str, conversation_id: str) -> dict[CoverageState, list[str]]:
        """The ledger of a whole conversation: the ids of its messages by their state in its last prompt, in order.

        Every message is in exactly one state: `verbatim`, `summarized` (a line of summary or arc stands for it, or a
        shortened form of it), `retrieved`, or `omitted` (and found by the recall tool). What came after the last prompt
        counts as verbatim.

        Raises:
            MissingScopeError: no user or no conversation.
        """
        return drive(self.engine.coverage(Scope(user_id, conversation_id)))

    async def acoverage(self, *, user_id: str, conversation_id: str) -> dict[CoverageState, list[str]]:
        """The ledger of a whole conversation; see `coverage`."""
        return await adrive(self.engine.coverage(Scope(user_id, conversation_id)))

    def get_compactions(self, *, user_id: str, conversation_id: str) -> list[ConversationCompaction]:
        """The summaries of all spans that are no longer shown whole, each after those that it sums up.

        Raises:
            MissingScopeError: no user or no conversation.
        """
        return drive(self.engine.compactions(Scope(user_id, conversation_id)))

    async def aget_compactions(self, *, user_id: str, conversation_id: str) -> list[ConversationCompaction]:
        """The summaries of all spans that are no longer shown whole; see `get_compactions`."""
        return await adrive(self.engine.compactions(Scope(user_id, conversation_id)))


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
