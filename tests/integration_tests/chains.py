"""Chains that answer without tools: with a chat history, and with a memory."""

from __future__ import annotations

import warnings
from typing import Any

from langchain_core.messages import (
    BaseMessage,
    SystemMessage,
)
from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder
from langchain_core.runnables import RunnableConfig, RunnableLambda, RunnablePassthrough
from langchain_core.runnables.history import RunnableWithMessageHistory

from langchain_ctxbudget import BudgetedChatMessageHistory
from langchain_ctxbudget.flow import Flow
from tests.integration_tests.agents import (
    USER,
    Agent,
    Parts,
    invoke,
    room_without,
    stored_messages,
)
from tests.integration_tests.scripted_agent import SYSTEM_PROMPT, Turn

ROOM_FOR_SYSTEM_AND_QUESTION = 400
"""In tokens."""


def _window_prompt() -> ChatPromptTemplate:
    return ChatPromptTemplate(
        [SystemMessage(SYSTEM_PROMPT), MessagesPlaceholder("history"), MessagesPlaceholder("question")]
    )


class ChainWithHistory(Agent):
    """A chat history in `RunnableWithMessageHistory`."""

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
        assert not parts.tools
        room = room_without(parts, ROOM_FOR_SYSTEM_AND_QUESTION)

        def window(_given: object, config: RunnableConfig) -> list[BaseMessage]:
            history: BudgetedChatMessageHistory = config["configurable"]["message_history"]
            return history.window(room)

        async def awindow(_given: object, config: RunnableConfig) -> list[BaseMessage]:
            history: BudgetedChatMessageHistory = config["configurable"]["message_history"]
            return await history.awindow(room)

        chain = RunnablePassthrough.assign(history=RunnableLambda(window, awindow)) | _window_prompt() | parts.model
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            self.chain: Any = RunnableWithMessageHistory(
                chain, self._history, input_messages_key="question", history_messages_key="history"
            )

    def _history(self, session_id: str) -> BudgetedChatMessageHistory:
        return BudgetedChatMessageHistory(session_id, user_id=USER, pipeline=self.parts.pipeline)

    def begin(self, turn: Turn) -> Flow[bool]:
        config = {"configurable": {"session_id": self.parts.thread}}
        yield from invoke(self.chain, {"question": [turn.message]}, config)
        return False

    def messages(self) -> Flow[list[BaseMessage]]:
        return (yield from stored_messages(self.parts))


class ChainWithMemory(Agent):
    """A memory in a chain of langchain-classic, which keeps strings."""

    whole_prompt = False

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
        assert not parts.tools
        from langchain_classic.chains import LLMChain  # noqa: PLC0415

        from langchain_ctxbudget.integrations.memory import BudgetedMemory  # noqa: PLC0415

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            room = None if self.whole_prompt else room_without(parts, ROOM_FOR_SYSTEM_AND_QUESTION)
            memory = BudgetedMemory(
                pipeline=parts.pipeline, **parts.scope, max_tokens=room, whole_prompt=self.whole_prompt
            )
            prompt = _window_prompt() if not self.whole_prompt else ChatPromptTemplate([MessagesPlaceholder("history")])
            self.chain: Any = LLMChain(llm=parts.model, prompt=prompt, memory=memory)

    def begin(self, turn: Turn) -> Flow[bool]:
        yield from invoke(self.chain, {"question": [turn.message]})
        return False

    def messages(self) -> Flow[list[BaseMessage]]:
        return (yield from stored_messages(self.parts))


class ChainWithWholePrompts(ChainWithMemory):
    """A memory that gives the whole prompt."""

    whole_prompt = True
