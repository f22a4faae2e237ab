"""Agents whose messages the application keeps: a loop around the pipeline, its runnable, or its chat history."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    SystemMessage,
)

from langchain_ctxbudget import BudgetedChatMessageHistory
from langchain_ctxbudget.flow import Call, Flow
from tests.integration_tests.agents import (
    USER,
    Agent,
    Parts,
    invoke,
    room_without,
    stored_messages,
)
from tests.integration_tests.scripted_agent import SYSTEM_PROMPT, Turn, book


class Loop(Agent):
    """The model is asked until it calls nothing more; before a booking the user decides."""

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
        self.said: list[BaseMessage] = []
        """The turn so far."""

    def prompt(self) -> Flow[list[BaseMessage]]:
        """What is sent for the turn so far."""
        raise NotImplementedError

    def end(self) -> Flow[None]:
        """The turn is done."""
        raise NotImplementedError

    def begin(self, turn: Turn) -> Flow[bool]:
        self.said = [turn.message]
        return (yield from self._go_on(turn))

    def _go_on(self, turn: Turn) -> Flow[bool]:
        while True:
            messages = yield from self.prompt()
            reply: AIMessage = yield from invoke(self.parts.bound, messages)
            self.said.append(reply)
            if not reply.tool_calls:
                yield from self.end()
                return False
            if any(call["name"] == book.name for call in reply.tool_calls):
                return True
            self.said += self.parts.results(reply.tool_calls, turn.decision)

    def resume(self, turn: Turn) -> Flow[None]:
        asked = self.said[-1]
        assert isinstance(asked, AIMessage)
        self.said += self.parts.results(asked.tool_calls, turn.decision)
        waits = yield from self._go_on(turn)
        assert not waits

    def saved(self) -> Any:
        return self.said

    def restore(self, saved: Any) -> None:
        self.said = saved


class PlainLoop(Loop):
    """`pipeline.assemble` with the turn so far, and `add_messages` when it is done."""

    def prompt(self) -> Flow[list[BaseMessage]]:
        pipeline, given = self.parts.pipeline, {**self.parts.scope, "tools": self.parts.tools}
        said = list(self.said)
        context = yield Call(lambda: pipeline.assemble(said, **given), lambda: pipeline.aassemble(said, **given))
        messages: list[BaseMessage] = context.messages
        return messages

    def end(self) -> Flow[None]:
        yield from self.take_over(self.said)

    def take_over(self, messages: Sequence[BaseMessage]) -> Flow[None]:
        pipeline, scope = self.parts.pipeline, self.parts.scope
        yield Call(lambda: pipeline.add_messages(messages, **scope), lambda: pipeline.aadd_messages(messages, **scope))

    def messages(self) -> Flow[list[BaseMessage]]:
        return (yield from stored_messages(self.parts))

    def edit(self, message: BaseMessage) -> Flow[None]:
        pipeline, given = self.parts.pipeline, (message.id or "", message)
        scope = self.parts.scope
        yield Call(lambda: pipeline.edit_message(*given, **scope), lambda: pipeline.aedit_message(*given, **scope))

    def rewind(self, kept: Sequence[BaseMessage]) -> Flow[None]:
        pipeline, scope = self.parts.pipeline, self.parts.scope
        yield Call(lambda: pipeline.sync(kept, **scope), lambda: pipeline.a_sync(kept, **scope))


class RunnableInALoop(Loop):
    """`pipeline.as_runnable` with the messages of an application that keeps its own."""

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
        self.runnable = parts.pipeline.as_runnable(tools=parts.tools)
        self.state: list[BaseMessage] = []

    def prompt(self) -> Flow[list[BaseMessage]]:
        state = {"messages": [*self.state, *self.said]}
        messages: list[BaseMessage] = yield from invoke(self.runnable, state, self.parts.config)
        return messages

    def end(self) -> Flow[None]:
        yield from self.take_over(self.said)

    def take_over(self, messages: Sequence[BaseMessage]) -> Flow[None]:
        yield from ()
        self.state += messages

    def messages(self) -> Flow[list[BaseMessage]]:
        yield from ()
        return self.state

    def edit(self, message: BaseMessage) -> Flow[None]:
        yield from ()
        self.state = [message if known.id == message.id else known for known in self.state]

    def rewind(self, kept: Sequence[BaseMessage]) -> Flow[None]:
        yield from ()
        self.state = list(kept)

    def saved(self) -> Any:
        return self.state, self.said

    def restore(self, saved: Any) -> None:
        self.state, self.said = saved


class WindowInALoop(Loop):
    """A chat history that is written at once; the prompt is its window behind a system message."""

    ROOM_FOR_SYSTEM_AND_TOOLS = 600
    """In tokens."""

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
        self.history = BudgetedChatMessageHistory(parts.thread, user_id=USER, pipeline=parts.pipeline)
        self.written: list[BaseMessage] = []

    def prompt(self) -> Flow[list[BaseMessage]]:
        yield from self.end()
        history, room = self.history, room_without(self.parts, self.ROOM_FOR_SYSTEM_AND_TOOLS)
        window = yield Call(lambda: history.window(room), lambda: history.awindow(room))
        return [SystemMessage(SYSTEM_PROMPT), *window]

    def end(self) -> Flow[None]:
        """Append what the turn has brought since the last time."""
        new = [message for message in self.said if not any(message is known for known in self.written)]
        self.written = list(self.said)
        yield Call(lambda: self.history.add_messages(new), lambda: self.history.aadd_messages(new))

    def messages(self) -> Flow[list[BaseMessage]]:
        def blocking() -> list[BaseMessage]:
            return self.history.messages

        messages: list[BaseMessage] = yield Call(blocking, self.history.aget_messages)
        return messages
