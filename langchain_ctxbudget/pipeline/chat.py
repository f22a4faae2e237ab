"""A pipeline's methods, bound to one conversation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from langchain_core.messages import BaseMessage

from langchain_ctxbudget.flow import Flow, twins
from langchain_ctxbudget.history import ConversationCompaction, MessagePage, OnRemoval
from langchain_ctxbudget.messages import Preservation
from langchain_ctxbudget.pipeline.workspace import ConversationStatus
from langchain_ctxbudget.prompt import AssembledContext
from langchain_ctxbudget.report import ContextReport, CoverageState
from langchain_ctxbudget.settings import ContextSettings
from langchain_ctxbudget.stores import Scope

if TYPE_CHECKING:
    from langchain_ctxbudget.pipeline.pipeline import ContextPipeline


class Chat:
    """One conversation of a pipeline: its methods without `user_id` and `conversation_id`, in both forms."""

    def __init__(self, pipeline: ContextPipeline, conversation_id: str, *, user_id: str) -> None:
        Scope(user_id, conversation_id)
        self.pipeline, self.conversation_id, self.user_id = pipeline, conversation_id, user_id
        self._ids: Any = {"user_id": user_id, "conversation_id": conversation_id}

    def _assemble(
        self,
        message: str | BaseMessage | Sequence[BaseMessage],
        *,
        tools: Sequence[Any] = (),
        response_format: object = None,
        settings: ContextSettings | Mapping[str, Any] | None = None,
        persona_id: str | None = None,
        device_id: str | None = None,
    ) -> Flow[AssembledContext]:
        """Makes the prompt for the current turn; see `ContextPipeline.assemble`."""
        asked: Any = {"settings": settings, "persona_id": persona_id, "device_id": device_id}
        return self.pipeline._assemble(message, tools=tools, response_format=response_format, **asked, **self._ids)

    def _add(self, *messages: BaseMessage | Sequence[BaseMessage]) -> Flow[list[str]]:
        """Appends messages, one by one or in lists, and returns their ids; see `ContextPipeline.add_messages`."""
        given = [one for part in messages for one in ([part] if isinstance(part, BaseMessage) else part)]
        return self.pipeline._add_messages(given, **self._ids)

    def _sync(self, messages: Sequence[BaseMessage], *, on_removal: OnRemoval = "archive") -> Flow[list[str]]:
        """Makes the conversation equal to an agent's state; see `ContextPipeline.sync`."""
        return self.pipeline._sync(messages, on_removal=on_removal, **self._ids)

    def _messages(self) -> Flow[list[BaseMessage]]:
        """Returns every message as it was given."""
        return self.pipeline._get_messages(**self._ids)

    def _page(self, *, limit: int = 50, before: str | None = None) -> Flow[MessagePage]:
        """Reads the newest messages, or the newest ones before a page (its `before`)."""
        return self.pipeline._get_page(limit=limit, before=before, **self._ids)

    def _edit(self, message_id: str, message: BaseMessage) -> Flow[None]:
        """Puts a message in the place of another; see `ContextPipeline.edit_message`."""
        return self.pipeline._edit_message(message_id, message, **self._ids)

    def _remove(self, message_ids: str | Sequence[str], *, on_removal: OnRemoval = "archive") -> Flow[None]:
        """Takes messages out of the conversation; see `ContextPipeline.remove_messages`."""
        return self.pipeline._remove_messages(message_ids, on_removal=on_removal, **self._ids)

    def _pin(self, message_ids: str | Sequence[str], *, preservation: Preservation | None = "keep") -> Flow[None]:
        """Says what is to become of messages when the conversation is compacted; see `ContextPipeline.pin`."""
        return self.pipeline._pin(message_ids, preservation=preservation, **self._ids)

    def _fork(self, new_conversation_id: str, *, until: str | None = None) -> Flow[Chat]:
        """Begins a new conversation with the messages of this one, up to an id or all, and returns it."""
        yield from self.pipeline._fork(new_conversation_id, until=until, **self._ids)
        return Chat(self.pipeline, new_conversation_id, user_id=self.user_id)

    def _coverage(self) -> Flow[dict[CoverageState, list[str]]]:
        """Returns the ids of its messages by their state in the last prompt; see `ContextPipeline.coverage`."""
        return self.pipeline._coverage(**self._ids)

    def _compactions(self) -> Flow[list[ConversationCompaction]]:
        """Returns the summaries of all spans that are no longer shown whole."""
        return self.pipeline._get_compactions(**self._ids)

    def _end_session(self) -> Flow[bool]:
        """Says that the conversation pauses or ends; returns True if what is new in it is learned from now."""
        return self.pipeline._end_session(**self._ids)

    def _status(self) -> Flow[ConversationStatus]:
        """Returns what goes on in its background, and what was done last."""
        return self.pipeline._status(**self._ids)

    def _clear(self) -> Flow[None]:
        """Deletes the conversation and everything that was derived from it."""
        return self.pipeline._clear(**self._ids)

    def last_report(self) -> ContextReport | None:
        """Returns the report of its last prompt in this process; None where there was none."""
        return self.pipeline.last_report(**self._ids)

    # The public methods: blocking, and awaited

    assemble, aassemble = twins(_assemble)
    add, aadd = twins(_add)
    sync, a_sync = twins(_sync)
    messages, amessages = twins(_messages)
    page, apage = twins(_page)
    edit, aedit = twins(_edit)
    remove, aremove = twins(_remove)
    pin, apin = twins(_pin)
    fork, afork = twins(_fork)
    coverage, acoverage = twins(_coverage)
    compactions, acompactions = twins(_compactions)
    end_session, aend_session = twins(_end_session)
    status, astatus = twins(_status)
    clear, aclear = twins(_clear)
