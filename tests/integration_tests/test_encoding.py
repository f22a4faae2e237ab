"""The setting `encoder`: messages are encoded in the background, and words serve until then."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langgraph.store.base import BaseStore
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import AssembledContext, ContextPipeline, KnowledgeBase
from langchain_ctxbudget.pipeline.workspace import Workspace
from langchain_ctxbudget.search import Encoder, encoder

SETTINGS: dict[str, Any] = {"encoder": True, "learn": False, "max_context_tokens": 1_200}
SUBJECTS = {
    "pet": ["puppy", "dog", "vet"],
    "boat": ["ferry", "ship", "harbour"],
    "money": ["invoice", "salary", "euros"],
}
"""Words that mean about the same to the encoder of these tests, and share no letters."""


class Meanings:
    """Stands for the installed encoder: a text is about the subjects whose words it has."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def vector(self, text: str) -> np.ndarray:
        self.texts.append(text)
        vector = np.full(Encoder.dimensions, 0.01)
        for place, words in enumerate(SUBJECTS.values()):
            vector[place] = sum(word in text.lower() for word in words)
        return (vector / np.linalg.norm(vector)).astype(np.float32)


@pytest.fixture
def meanings(monkeypatch: pytest.MonkeyPatch) -> Meanings:
    made = Meanings()
    monkeypatch.setattr(encoder, "encoder_available", lambda: True)
    monkeypatch.setattr(encoder, "_load", lambda: made)
    return made


def chatter(length: int) -> list[BaseMessage]:
    """A conversation about drawers, in which message 8 is about a puppy."""
    messages: list[BaseMessage] = []
    for number in range(length):
        kind = AIMessage if number % 2 else HumanMessage
        messages.append(kind(f"Drawer {number} has {number} brass screws and {number + 1} nails."))
    messages[8] = HumanMessage("Our new puppy chews everything, his name is Bruno.")
    return messages


def pipeline_of(store: BaseStore | None = None, **settings: Any) -> ContextPipeline:
    return ContextPipeline({**SETTINGS, **settings}, store=store)


def asked(pipeline: ContextPipeline, question: str) -> AssembledContext:
    return pipeline.assemble(question, user_id="ada", conversation_id="c1")


def add(pipeline: ContextPipeline, messages: Sequence[BaseMessage]) -> None:
    pipeline.add_messages(messages, user_id="ada", conversation_id="c1")


def without_background(pipeline: ContextPipeline) -> Workspace:
    """Has nothing encoded in the background."""
    workspace = pipeline._workspace
    workspace.workers.encoding.worker.close()
    return workspace


def shown(context: AssembledContext) -> str:
    return "\n".join(str(message.text) for message in context.messages)


def test_what_means_the_same_is_found(meanings: Meanings) -> None:
    pipeline = pipeline_of()
    add(pipeline, chatter(120))
    pipeline.flush()

    assert "Bruno" in shown(asked(pipeline, "When was the dog last at the vet?"))


def test_without_the_setting_nothing_is_encoded(meanings: Meanings) -> None:
    pipeline = pipeline_of(encoder=False)
    add(pipeline, chatter(20))
    pipeline.flush()
    asked(pipeline, "Which dog?")

    assert meanings.texts == []


def test_flush_waits_until_every_message_is_encoded(meanings: Meanings) -> None:
    pipeline = pipeline_of()
    messages = chatter(100)
    add(pipeline, messages)

    assert pipeline.flush()
    assert set(meanings.texts) == {str(message.text) for message in messages}


def test_a_prompt_waits_for_no_import(meanings: Meanings) -> None:
    pipeline = pipeline_of()
    without_background(pipeline)
    add(pipeline, chatter(100))

    context = asked(pipeline, "Which dog?")

    assert meanings.texts == ["Which dog?"]
    assert any("100 messages have no sentence vector yet" in it for it in context.report.failures)


def test_a_prompt_encodes_a_few_messages_itself(meanings: Meanings) -> None:
    pipeline = pipeline_of()
    add(pipeline, chatter(100))
    pipeline.flush()
    without_background(pipeline)
    add(pipeline, [HumanMessage("A ship."), AIMessage("Which?")])

    context = asked(pipeline, "Which ferry was it?")

    assert meanings.texts[100:] == ["A ship.", "Which?", "Which ferry was it?"]
    assert not context.report.failures


def test_after_flush_two_processes_make_one_prompt(meanings: Meanings) -> None:
    prompts: list[str] = []
    for _ in range(2):
        pipeline = pipeline_of()
        add(pipeline, chatter(100))
        pipeline.flush()
        prompts.append(shown(asked(pipeline, "When was the dog last at the vet?")))

    assert prompts[0] == prompts[1]


def test_no_message_is_encoded_twice(meanings: Meanings) -> None:
    pipeline = pipeline_of()
    add(pipeline, chatter(100))
    pipeline.flush()
    asked(pipeline, "Which dog?")
    add(pipeline, [HumanMessage("Which dog?"), AIMessage("Bruno.")])
    pipeline.flush()
    asked(pipeline, "And the ferry?")

    assert len(meanings.texts) == 100 + 2 + 2


def test_an_edited_message_is_encoded_anew(meanings: Meanings) -> None:
    pipeline = pipeline_of()
    add(pipeline, [message.model_copy(update={"id": "m"}) for message in chatter(9)[8:]])
    pipeline.flush()
    chat = pipeline.conversation("c1", user_id="ada")

    chat.edit("m", HumanMessage("The salary came."))
    pipeline.flush()

    assert meanings.texts[-1] == "The salary came."


def test_a_restart_encodes_no_sealed_message_again(meanings: Meanings) -> None:
    store = InMemoryStore()
    before = pipeline_of(store)
    add(before, chatter(600))
    before.flush()
    before.close()
    meanings.texts.clear()

    after = pipeline_of(store)
    asked(after, "Which dog?")
    after.flush()

    assert len([text for text in meanings.texts if text != "Which dog?"]) == 600 - 512


@pytest.mark.slow
def test_vectors_of_another_version_are_made_again(
    meanings: Meanings, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = InMemoryStore()
    before = pipeline_of(store)
    add(before, chatter(600))
    before.flush()
    before.close()
    meanings.texts.clear()
    monkeypatch.setattr(Encoder, "model", "another version")

    after = pipeline_of(store)
    asked(after, "Which dog?")
    after.flush()

    assert len(set(meanings.texts)) == 600 + 1


def test_a_document_is_compared_by_its_meaning(meanings: Meanings) -> None:
    store = InMemoryStore()
    KnowledgeBase(store, user_id="ada").add("The puppy was vaccinated in May.")
    pipeline = pipeline_of(store)
    add(pipeline, chatter(100))
    pipeline.flush()

    asked(pipeline, "When was the dog last at the vet?")

    assert "The puppy was vaccinated in May." in meanings.texts


def test_an_encoder_that_fails_is_told(meanings: Meanings, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: str) -> None:
        raise OSError("the weights are gone")

    monkeypatch.setattr(meanings, "vector", fails)
    pipeline = pipeline_of()
    add(pipeline, chatter(100))
    pipeline.flush()

    context = asked(pipeline, "What is in drawer 7?")

    assert any("the weights are gone" in failure for failure in context.report.failures)
    assert "Drawer 7" in shown(context)
