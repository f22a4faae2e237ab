"""`BudgetedChatMessageHistory`: a conversation of a pipeline as LangChain's chat message history."""

from __future__ import annotations

from collections.abc import Sequence

from langchain_core.chat_history import BaseChatMessageHistory
from langchain_core.messages import BaseMessage

from langchain_ctxbudget.errors import InputError
from langchain_ctxbudget.flow import adrive, drive
from langchain_ctxbudget.integrations.history_window import window
from langchain_ctxbudget.integrations.options import require_pipeline
from langchain_ctxbudget.pipeline.pipeline import ContextPipeline
from langchain_ctxbudget.stores.records import Scope


class BudgetedChatMessageHistory(BaseChatMessageHistory):
    """A conversation that is kept whole and read within a number of tokens.

    `messages` is everything that was said, as it was given; `window` is the part that stands in a prompt. It may be
    used wherever a `BaseChatMessageHistory` is, for instance in `RunnableWithMessageHistory`. LangChain has deprecated
    both in favour of LangGraph: for new code, see `build_context_graph` and `ContextPipeline`, which also retrieve and
    report.

    It is a view of a conversation in a pipeline, made anew for every request if need be; all share one pipeline, which
    keeps open conversations, tokenizer and store.

    `RunnableWithMessageHistory` reads `messages`, so that the prompt grows for ever. A step in front of the prompt puts
    the window in its place. It logs an error while storing and does not raise it; where that matters, call
    `add_messages` yourself.

        def budgeted(_input, config):
            return config["configurable"]["message_history"].window(4_000)

        async def abudgeted(_input, config):
            return await config["configurable"]["message_history"].awindow(4_000)

        chain = RunnablePassthrough.assign(history=RunnableLambda(budgeted, abudgeted)) | prompt | model

    Example:
        >>> from langchain_core.messages import AIMessage
        >>> from langchain_ctxbudget import ContextPipeline
        >>> pipeline = ContextPipeline()
        >>> history = BudgetedChatMessageHistory("c1", user_id="ada", pipeline=pipeline)
        >>> history.add_user_message("My bike is blue.")
        >>> history.add_messages([AIMessage("Nice!")])
        >>> [message.content for message in history.messages]
        ['My bike is blue.', 'Nice!']
        >>> [message.type for message in history.window(1_000)]
        ['human', 'ai']
    """

    def __init__(self, conversation_id: str, *, user_id: str, pipeline: ContextPipeline) -> None:
        """Names a conversation; nothing is read or written.

        Args:
            conversation_id: the conversation; `session_id` in LangChain's terms.
            user_id: its user.
            pipeline: the pipeline that keeps it; the same for all histories.

        Raises:
            InvalidSettingsError: `pipeline` is something else.
            MissingScopeError: no user or no conversation.
        """
        super().__init__()
        require_pipeline(pipeline, "make one and give it to all histories")
        self.conversation_id, self.user_id, self.pipeline = conversation_id, user_id, pipeline
        self._scope = Scope(user_id, conversation_id)
        self._ids = {"user_id": user_id, "conversation_id": conversation_id}

    @property
    def messages(self) -> list[BaseMessage]:
        """Every message as it was given, chunks of a stream as whole messages; each has an id by now."""
        return self.pipeline.get_messages(**self._ids)

    @messages.setter
    def messages(self, _messages: Sequence[BaseMessage]) -> None:
        raise InputError(
            "messages cannot be assigned: `add_messages` appends, `clear` removes all, and `pipeline.sync` makes a "
            "conversation equal to a list of messages"
        )

    async def aget_messages(self) -> list[BaseMessage]:
        """Returns every message as it was given; see `messages`."""
        return await self.pipeline.aget_messages(**self._ids)

    def add_messages(self, messages: Sequence[BaseMessage]) -> None:
        """Appends messages; those whose id the conversation knows already are left alone.

        A message without an id gets one from its content and its occurrence: a second "yes" is a second message.

        Raises:
            MessageConflictError: an id is known with other content; nothing was written.
            UnsupportedContentError: something that is not a message, or a `RemoveMessage`.
        """
        self.pipeline.add_messages(messages, **self._ids)

    async def aadd_messages(self, messages: Sequence[BaseMessage]) -> None:
        """Appends messages; see `add_messages`."""
        await self.pipeline.aadd_messages(messages, **self._ids)

    def window(self, max_tokens: int) -> list[BaseMessage]:
        """Returns the part of the conversation that stands in a prompt between a system and a human message.

        The newest messages stand in their roles, calls and results together, texts that are too large clipped; one
        human message in front of them has arc and summary of the older ones in fences, or a line that says that they
        are left out. Nothing of it is written to the conversation.

        Give the same number with every turn: for each (the last eight are remembered) the conversation is compacted on
        its own, and between two such steps a window only grows at its end, so that a provider's cache of the prompt
        hits.

        Args:
            max_tokens: the most that the messages cost, counted by `pipeline.token_counter.count_messages`.

        Raises:
            BudgetTooSmallError: there is no room even for a line that says that messages are left out.
            InputError: `max_tokens` is no whole number of at least 1.
        """
        return drive(window(self.pipeline.engine, self._scope, max_tokens))

    async def awindow(self, max_tokens: int) -> list[BaseMessage]:
        """Returns the part of the conversation that stands in a prompt; see `window`."""
        return await adrive(window(self.pipeline.engine, self._scope, max_tokens))

    def clear(self) -> None:
        """Removes the conversation and everything that was derived from it, and nothing else."""
        self.pipeline.clear(**self._ids)

    async def aclear(self) -> None:
        """Removes the conversation; see `clear`."""
        await self.pipeline.aclear(**self._ids)
