"""The retriever: what it finds, within which limits, and whose; alone and in agents."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain.agents import create_agent
from langchain_core.documents import BaseDocumentCompressor, Document
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import create_retriever_tool
from langgraph.store.base import BaseStore
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import BudgetedRetriever, ContextPipeline, KnowledgeBase
from langchain_ctxbudget.errors import InvalidSettingsError
from langchain_ctxbudget.integrations.retrievers import SEPARATOR
from tests.integration_tests.agents import scripted
from tests.integration_tests.conftest import Invoke

TEXTS = (
    "My bicycle is blue and stands in the cellar.",
    "The garden needs water twice a week.",
    "I repaired the bicycle's front wheel.",
    "The bicycle lock has the code 7391.",
    "We had soup for lunch.",
    "A bicycle tour along the river takes two days.",
)


def make_pipeline(texts: Sequence[str] = TEXTS) -> ContextPipeline:
    pipeline = ContextPipeline(store=InMemoryStore())
    messages = [HumanMessage(text, id=f"m-{number}") for number, text in enumerate(texts, 1)]
    pipeline.add_messages(messages, user_id="ada", conversation_id="c1")
    return pipeline


def make_retriever(pipeline: ContextPipeline | None = None, **fields: Any) -> BudgetedRetriever:
    """Returns a retriever of Ada's."""
    return BudgetedRetriever(pipeline=pipeline or make_pipeline(), user_id="ada", **fields)


def texts(documents: Sequence[Document]) -> list[str]:
    return [document.page_content for document in documents]


# -- What it finds


METADATA = {
    "source": "https://example.com/k",
    "title": "Care",
    "date": "2026-01-02",
    "author": {"name": "Bo"},
    "page_label": "iv",
    "page": 3,
}
METADATA_WITH_OUR_NAMES = {"tokens": "five", "score": 1, "id": "k7"}


def by_retriever(store: BaseStore, invoke: Invoke) -> Any:
    retriever = make_retriever(ContextPipeline(store=store), sources=["documents"])
    return invoke(retriever, "kayak")


def by_knowledge(store: BaseStore, invoke: Invoke) -> Any:
    return KnowledgeBase(store, user_id="ada").search("kayak")


@pytest.mark.parametrize("search", [by_retriever, by_knowledge])
def test_a_document_keeps_all_metadata_that_it_was_added_with(
    invoke: Invoke, store: BaseStore, search: Any
) -> None:
    metadata = {**METADATA, **METADATA_WITH_OUR_NAMES}
    kayak = Document("A kayak is rinsed after use.", metadata=metadata)
    KnowledgeBase(store, user_id="ada").add(kayak)

    [document] = search(store, invoke)

    renamed = {"given_id": "k7", "given_tokens": "five", "given_score": 1}
    assert document.metadata.items() >= METADATA.items()
    assert document.metadata.items() >= renamed.items()
    assert document.metadata["id"] == document.id


@pytest.mark.parametrize(("persona", "is_found"), [("sailor", True), (None, False)])
def test_memories_of_a_persona_are_found_with_it(persona: str | None, is_found: bool) -> None:
    pipeline = make_pipeline()
    pipeline.save_settings({"memories": ["The boat is green."]}, user_id="ada", persona_id="sailor")
    retriever = make_retriever(pipeline, persona_id=persona, device_id="phone")

    documents = retriever.invoke("boat")

    assert ("The boat is green." in texts(documents)) == is_found


class Lunch(BaseDocumentCompressor):
    """A reranker that scores what was said about lunch."""

    def compress_documents(
        self, documents: Sequence[Document], query: str, callbacks: Any = None
    ) -> list[Document]:
        for document in documents:
            document.metadata["relevance_score"] = float("soup" in document.page_content)
        return list(documents)


def test_a_reranker_of_the_pipeline_has_a_say_in_what_is_found(invoke: Invoke) -> None:
    pipeline = ContextPipeline(store=make_pipeline().store, reranker=Lunch())

    found = invoke(make_retriever(pipeline, conversation_id="c1", k=None), "bicycle")

    added = {text.page_content: text.metadata["scores"]["reranker"] for text in found}
    assert [text for text in added if added[text] > 0] == ["We had soup for lunch."]


# -- How many


@pytest.mark.slow
@given(
    sayings=st.lists(
        st.text(max_size=60).map(lambda text: f"bicycle {text}"),
        min_size=1,
        max_size=8,
        unique=True,
    ),
    limit=st.integers(1, 60),
    k=st.one_of(st.none(), st.integers(1, 5)),
)
@settings(max_examples=60, deadline=None)
def test_the_limits_are_never_exceeded(sayings: list[str], limit: int, k: int | None) -> None:
    pipeline = make_pipeline(sayings)

    documents = make_retriever(pipeline, max_tokens=limit, k=k).invoke("bicycle")

    text = SEPARATOR.join(texts(documents))
    assert pipeline.token_counter.count_text(text) <= limit
    assert len(documents) <= (k or len(sayings))


# -- Mistakes


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("k", 0),
        ("k", True),
        ("k", "3"),
        ("max_tokens", 0),
        ("max_tokens", 1.5),
        ("sources", ["web"]),
        ("sources", []),
        ("top_k", 3),
    ],
)
def test_a_wrong_field_is_an_error_that_names_it(name: str, value: Any) -> None:
    pipeline = make_pipeline()
    with pytest.raises(InvalidSettingsError, match=rf"\b{name}\b"):
        make_retriever(pipeline, **{name: value})


def test_a_user_and_a_default_user_are_an_error() -> None:
    with pytest.raises(InvalidSettingsError, match="default_user"):
        make_retriever(default_user="bob")


# -- In an agent


@pytest.mark.parametrize(("user", "is_found"), [("ada", True), ("eve", False)])
def test_an_agent_searches_as_its_user(invoke: Invoke, user: str, is_found: bool) -> None:
    retriever = BudgetedRetriever(pipeline=make_pipeline(), k=1)
    tool = create_retriever_tool(retriever, "search", "Search.")
    search = {"name": "search", "args": {"query": "lock code"}, "id": "call-1"}
    agent: Any = create_agent(scripted(AIMessage("", tool_calls=[search]), "Done."), tools=[tool])
    config = {"configurable": {"user_id": user, "thread_id": "t9"}}

    state = invoke(agent, {"messages": [HumanMessage("The code?")]}, config)

    [result] = [message for message in state["messages"] if isinstance(message, ToolMessage)]
    assert ("7391" in result.content) == is_found


# -- Limits of a call


@pytest.mark.parametrize("name", ["k", "max_tokens"])
@pytest.mark.parametrize("wrong", [0, -1, 1.5, True, "2"])
def test_a_limit_of_a_call_is_a_number_of_at_least_one(
    invoke: Invoke, name: str, wrong: Any
) -> None:
    with pytest.raises(InvalidSettingsError, match=f"{name} must be a whole number"):
        invoke(make_retriever(), "bicycle", **{name: wrong})


def test_an_unknown_limit_of_a_call_is_refused(invoke: Invoke) -> None:
    with pytest.raises(InvalidSettingsError, match="no argument 'top_k'"):
        invoke(make_retriever(), "bicycle", top_k=3)


def test_a_call_without_limits_has_those_of_the_retriever(invoke: Invoke) -> None:
    assert len(invoke(make_retriever(k=2), "bicycle", k=None, max_tokens=None)) == 2
