"""Chat models that answer from a script: with texts, messages, errors, or not at all."""

import threading
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from pydantic import Field


class Scripted(BaseChatModel):
    """Answers from a script, the last entry for ever.

    A text, a message, an error to raise, or a function of both.
    """

    script: list[Any]
    asked: list[list[BaseMessage]] = Field(default_factory=list)
    tags: list[Any] = Field(default_factory=list)
    model_name: str = "scripted-1"

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def _generate(
        self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any
    ) -> ChatResult:
        self.asked.append(messages)
        self.tags.append(run_manager.tags)
        reply = self.script[min(len(self.asked), len(self.script)) - 1]
        if isinstance(reply, BaseException):
            raise reply
        if callable(reply):
            reply = reply()
        message = reply if isinstance(reply, AIMessage) else AIMessage(reply)
        return ChatResult(generations=[ChatGeneration(message=message)])


class Calling(Scripted):
    schemas: list[Any] = Field(default_factory=list)

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        self.schemas.extend(tools)
        return self.bind(bound_to_schema=True)

    def _generate(
        self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any
    ) -> ChatResult:
        self.schemas.append(kwargs.get("bound_to_schema", False))
        return super()._generate(messages, stop, run_manager)


released = threading.Event()
"""A model that hangs goes on when this is set: a test that is over sets it, so that no thread is
left."""


def hang() -> str:
    released.wait(3_600)
    return "too late"
