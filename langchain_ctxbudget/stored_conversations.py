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
from langchain_ctxbudget.stores.records import Scope


class StoredConversations:
    """What a pipeline does with conversations apart from making prompts of them; every method has an async twin."""

    engine: Engine

    def add_messages(self, messages: Sequence[BaseMessage], *, user_id: str, conversation_id: str) -> list[str]:
        """Append messages to a conversation; those whose id it knows already are left alone.

        A message without an id gets one from its content and from how often the conversation has it: a second
        "yes" is a second message.

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
