"""Chat models that write summaries by a script, and conversations for them to write about."""

import json
import threading
from collections.abc import Callable, Sequence
from typing import Any

from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from pydantic import ConfigDict, Field, PrivateAttr

USER = {"user_id": "ada", "conversation_id": "c1"}


def summary(text: str, **fields: object) -> str:
    lists: dict[str, object] = {"key_decisions": [], "open_questions": [], "code_artifacts": []}
    return json.dumps({"summary": text, **lists, **fields})


def learned(*marks: str) -> str:
    facts = [{"text": f"Knows {mark}", "category": "project", "messages": [1]} for mark in marks]
    topics = [{"label": f"Trains of {mark}", "messages": [1]} for mark in marks]
    entities = [
        {"name": f"Company {mark}", "type": "organization", "messages": [1]} for mark in marks
    ]
    return json.dumps({"facts": facts, "topics": topics, "entities": entities})


class Scripted(BaseChatModel):
    """Answers by a function of what it is asked; remembers everything that it read."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    answer: Callable[[str], str] = Field(default=lambda _: summary("They talked."))
    _read: list[str] = PrivateAttr(default_factory=list)
    _mutex: Any = PrivateAttr(default_factory=threading.Lock)

    @property
    def _llm_type(self) -> str:
        return "scripted"

    @property
    def read(self) -> list[str]:
        return self._read

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        prompt = "\n".join(message.text for message in messages)
        with self._mutex:
            self._read.append(prompt)
        return ChatResult(generations=[ChatGeneration(message=AIMessage(self.answer(prompt)))])


WORDS = (
    "river stone cloud garden window letter morning coffee train ticket paper music bridge winter summer market "
    "kitchen blanket mountain harbour lantern forest picture village doctor teacher engine planet silver copper"
).split()


def words(number: int, count: int) -> str:
    return " ".join(
        WORDS[(number * 7 + place * (number % 5 + 1)) % len(WORDS)] for place in range(count)
    )


def exchange(number: int, size: int = 20) -> Sequence[BaseMessage]:
    return [
        HumanMessage(
            f"Sentinel{number:04}q asks about the {words(number, size)}.", id=f"q{number}"
        ),
        AIMessage(
            f"Sentinel{number:04}a answers with the {words(number + 3, size * 2)}.", id=f"a{number}"
        ),
    ]


def conversation(exchanges: int, size: int = 20) -> list[BaseMessage]:
    return [message for number in range(exchanges) for message in exchange(number, size)]
