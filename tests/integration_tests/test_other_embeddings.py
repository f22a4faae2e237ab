"""A store whose vectors were made by other embeddings than those that it is opened with.

Words serve until the vectors are made anew.
"""

import copy
from typing import Any

import pytest
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.messages import HumanMessage
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import AssembledContext, ContextPipeline

ADA: Any = {"user_id": "ada"}
SCOPE: Any = {"user_id": "ada", "conversation_id": "c1"}
QUESTION = "How is my home brewing?"
TEXTS = {
    "c1": [
        "I have done home brewing for five years. The home brewing kettle is new.",
        "I have done bike touring for five years. The bike touring tent is new.",
    ],
    "c2": ["Sarah likes my home brewing.", "Sarah likes my bike touring."],
    "c3": ["Today the home brewing went well.", "Today the bike touring went well."],
}


class Named(DeterministicFakeEmbedding):
    model: str


def opened(store: InMemoryStore, model: str) -> ContextPipeline:
    embeddings = Named(model=model, size=16)
    return ContextPipeline({"learn_every": 1}, store=store, embeddings=embeddings)


@pytest.fixture(scope="module")
def learned() -> InMemoryStore:
    """A store in which topics were learned with the embeddings "one"."""
    store = InMemoryStore()
    with opened(store, "one") as pipeline:
        for conversation, texts in TEXTS.items():
            messages = [HumanMessage(text) for text in texts]
            pipeline.add_messages(messages, user_id="ada", conversation_id=conversation)
        assert pipeline.flush(30)

        topics = pipeline.knowledge.list_topics(**ADA)
        assert len(topics) > 1
        assert {len(topic.embedding) for topic in topics} == {16}
    return store


@pytest.fixture
def store(learned: InMemoryStore) -> InMemoryStore:
    return copy.deepcopy(learned)


def failures_of_topics(context: AssembledContext) -> list[str]:
    return [failure for failure in context.report.failures if failure.startswith("topics")]


def learn_again(pipeline: ContextPipeline) -> None:
    for _ in range(4):
        pipeline.add_messages([HumanMessage("Good.")], **SCOPE)
    assert pipeline.flush(30)


def test_words_find_topics_whose_vectors_other_embeddings_made(store: InMemoryStore) -> None:
    with opened(store, "two") as pipeline:
        context = pipeline.assemble(QUESTION, **SCOPE)

    assert any(item.status == "included" for item in context.report.layer("L2").items)


def test_the_report_names_both_embeddings_and_their_dimensions(store: InMemoryStore) -> None:
    with opened(store, "two") as pipeline:
        context = pipeline.assemble(QUESTION, **SCOPE)

    [failure] = failures_of_topics(context)
    assert "one (16 dimensions)" in failure
    assert "two (16 dimensions)" in failure


def test_learning_makes_vectors_of_the_new_embeddings(store: InMemoryStore) -> None:
    with opened(store, "two") as pipeline:
        pipeline.assemble(QUESTION, **SCOPE)
        learn_again(pipeline)
        topics = pipeline.knowledge.list_topics(**ADA)

    assert {(topic.embedding_model, len(topic.embedding)) for topic in topics} == {("two", 16)}


def test_nothing_fails_once_vectors_were_made_anew(store: InMemoryStore) -> None:
    with opened(store, "two") as pipeline:
        pipeline.assemble(QUESTION, **SCOPE)
        learn_again(pipeline)
        context = pipeline.assemble(QUESTION, **SCOPE)

    assert context.report.failures == ()
