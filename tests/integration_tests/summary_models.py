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
    facts = []
    topics = []
    entities = []
    for mark in marks:
        company = f"Company {mark}"
        facts.append({"text": f"Knows {mark}", "category": "project", "messages": [1]})
        topics.append({"label": f"Trains of {mark}", "messages": [1]})
        entities.append({"name": company, "type": "organization", "messages": [1]})
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
        message = AIMessage(self.answer(prompt))
        return ChatResult(generations=[ChatGeneration(message=message)])


WORDS = (
    "river stone cloud garden window letter morning coffee train ticket paper music bridge winter "
    "summer market kitchen blanket mountain harbour lantern forest picture village doctor teacher "
    "engine planet silver copper"
).split()


def words(number: int, count: int) -> str:
    """So many words; another number gives others."""
    first = number * 7
    step = number % 5 + 1
    places = [(first + step * place) % len(WORDS) for place in range(count)]
    return " ".join(WORDS[place] for place in places)


def exchange(number: int, size: int = 20) -> Sequence[BaseMessage]:
    question = f"Sentinel{number:04}q asks about the {words(number, size)}."
    answer = f"Sentinel{number:04}a answers with the {words(number + 3, size * 2)}."
    return [HumanMessage(question, id=f"q{number}"), AIMessage(answer, id=f"a{number}")]


def conversation(exchanges: int, size: int = 20) -> list[BaseMessage]:
    messages: list[BaseMessage] = []
    for number in range(exchanges):
        messages += exchange(number, size)
    return messages
