"""The retriever: what it finds, within which limits, whose; alone, in chains, in agents.

Sync and async.
"""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain.agents import create_agent
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import create_retriever_tool
from langgraph.store.base import BaseStore
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import BudgetedRetriever, ContextPipeline, KnowledgeBase
from langchain_ctxbudget.errors import InvalidSettingsError
from langchain_ctxbudget.integrations.retrievers import SEPARATOR
from tests.integration_tests.agents import scripted
from tests.integration_tests.conftest import Invoke

SAID = (
    "My bicycle is blue and stands in the cellar.",
    "The garden needs water twice a week.",
    "I repaired the bicycle's front wheel.",
    "The bicycle lock has the code 7391.",
    "We had soup for lunch.",
    "A bicycle tour along the river takes two days.",
)


def make_pipeline(said: Sequence[str] = SAID) -> ContextPipeline:
    pipeline = ContextPipeline(store=InMemoryStore())
    messages = [HumanMessage(text, id=f"m-{number}") for number, text in enumerate(said, 1)]
    pipeline.add_messages(messages, user_id="ada", conversation_id="c1")
    return pipeline


def make_retriever(pipeline: ContextPipeline | None = None, **fields: Any) -> BudgetedRetriever:
    user = {} if fields.keys() & {"user_id", "default_user"} else {"user_id": "ada"}
    return BudgetedRetriever(pipeline=pipeline or make_pipeline(), **user, **fields)


def texts(documents: Sequence[Document]) -> list[str]:
    return [document.page_content for document in documents]


# What it finds


def test_a_document_keeps_all_metadata_that_it_was_added_with(
    invoke: Invoke, store: BaseStore
) -> None:
    given = {
        "source": "https://example.com/k",
        "title": "Care",
        "date": "2026-01-02",
        "author": {"name": "Bo"},
    }
    theirs = {"tokens": "five", "score": 1, "id": "k7", "page_label": "iv", "page": 3}
    knowledge = KnowledgeBase(store, user_id="ada")
    knowledge.add(Document("A kayak is rinsed after use.", metadata={**given, **theirs}))
    retriever = make_retriever(ContextPipeline(store=store), sources=["documents"])
    for [found] in (invoke(retriever, "kayak"), knowledge.search("kayak")):
        assert found.metadata.items() >= {**given, "page": 3, "page_label": "iv"}.items()
        assert (
            found.metadata.items()
            >= {"given_id": "k7", "given_tokens": "five", "given_score": 1}.items()
        )
        assert found.metadata["id"] == found.id


def test_memories_that_a_persona_has_in_its_saved_settings_are_found_with_it() -> None:
    pipeline = make_pipeline()
    pipeline.save_settings({"memories": ["The boat is green."]}, user_id="ada", persona_id="sailor")
    retrievers = [
        make_retriever(pipeline, persona_id=persona, device_id="phone")
        for persona in ("sailor", None)
    ]
    assert [
        "The boat is green." in texts(retriever.invoke("boat")) for retriever in retrievers
    ] == [True, False]


# How many


@given(
    said=st.lists(
        st.text(max_size=60).map(lambda text: f"bicycle {text}"),
        min_size=1,
        max_size=8,
        unique=True,
    ),
    limit=st.integers(1, 60),
    k=st.one_of(st.none(), st.integers(1, 5)),
)
@settings(max_examples=60, deadline=None)
def test_the_limits_are_never_exceeded(said: list[str], limit: int, k: int | None) -> None:
    pipeline = make_pipeline(said)
    found = texts(make_retriever(pipeline, max_tokens=limit, k=k).invoke("bicycle"))
    assert pipeline.token_counter.count_text(SEPARATOR.join(found)) <= limit
    assert len(found) <= (k or len(said))


# Mistakes


def test_a_wrong_field_is_an_error_that_names_it() -> None:
    pipeline = make_pipeline()
    for name, values in {
        "k": [0, True, "3"],
        "max_tokens": [0, 1.5],
        "sources": [["web"], []],
        "top_k": [3],
    }.items():
        for value in values:
            with pytest.raises(InvalidSettingsError, match=name):
                make_retriever(pipeline, **{name: value})
    with pytest.raises(InvalidSettingsError, match="default_user"):
        make_retriever(pipeline, default_user="bob", user_id="ada")


@pytest.mark.parametrize(("user", "is_found"), [("ada", True), ("eve", False)])
def test_an_agent_searches_as_its_user(invoke: Invoke, user: str, is_found: bool) -> None:
    tool = create_retriever_tool(
        BudgetedRetriever(pipeline=make_pipeline(), k=1), "search", "Search."
    )
    call = AIMessage(
        "", tool_calls=[{"name": "search", "args": {"query": "lock code"}, "id": "call-1"}]
    )
    agent: Any = create_agent(scripted(call, "Done."), tools=[tool])
    config = {"configurable": {"user_id": user, "thread_id": "t9"}}
    state = invoke(agent, {"messages": [HumanMessage("The code?")]}, config)
    [answer] = [
        message.content for message in state["messages"] if isinstance(message, ToolMessage)
    ]
    assert ("7391" in answer) == is_found


# Limits of a call


@pytest.mark.parametrize("name", ["k", "max_tokens"])
@pytest.mark.parametrize("wrong", [0, -1, 1.5, True, "2"])
def test_a_limit_of_a_call_is_a_number_of_at_least_one(
    invoke: Invoke, name: str, wrong: Any
) -> None:
    with pytest.raises(InvalidSettingsError, match=f"{name} must be a whole number"):
        invoke(make_retriever(), "bicycle", **{name: wrong})


def test_a_limit_of_a_call_that_there_is_none_of_is_refused(invoke: Invoke) -> None:
    with pytest.raises(InvalidSettingsError, match="no argument 'top_k'"):
        invoke(make_retriever(), "bicycle", top_k=3)


def test_a_limit_of_a_call_that_is_none_is_that_of_the_retriever(invoke: Invoke) -> None:
    assert len(invoke(make_retriever(k=2), "bicycle", k=None, max_tokens=None)) == 2
