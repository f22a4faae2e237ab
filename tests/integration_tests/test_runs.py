"""Runs bring a user, a store and a model along: whose it is, and what becomes of what was made for them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from langchain_core.language_models import FakeListChatModel
from langchain_core.messages import HumanMessage
from langchain_openai import ChatOpenAI
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import ContextPipeline, build_context_graph
from langchain_ctxbudget.errors import MissingScopeError
from langchain_ctxbudget.flow import drive
from langchain_ctxbudget.pipeline.runs import run_of
from langchain_ctxbudget.prompt.request import Request
from langchain_ctxbudget.stores.records import Scope
from tests.integration_tests.test_pipeline import chat

SCOPE = {"user_id": "ada", "conversation_id": "t1"}
CONFIG: dict[str, Any] = {"configurable": {"thread_id": "t1", "user_id": "ada"}}


def scope_of(default_user: str | None = None, agent: str | None = None, **configurable: Any) -> Scope:
    return run_of({"configurable": configurable}, default_user, agent=agent).scope


def test_zero_is_an_id() -> None:
    assert scope_of("shared", user_id=0, thread_id=0, session_id="s") == Scope("0", "0")


@pytest.mark.parametrize("blank", ["", "  "])
def test_a_blank_id_names_nobody(blank: str) -> None:
    assert scope_of("shared", user_id=blank, thread_id=blank, session_id="s") == Scope("shared", "s")
    with pytest.raises(MissingScopeError, match="no user"):
        scope_of(None, user_id=blank, thread_id="t")


def test_agents_with_names_have_conversations_of_their_own() -> None:
    scopes = {scope_of("ada", name, thread_id=thread) for name in (None, "a", "b") for thread in ("t", "t/a")}
    assert len(scopes) == 6


def served(store: InMemoryStore, pipeline: ContextPipeline) -> Any:
    graph = StateGraph(MessagesState)
    graph.add_node("context", build_context_graph(pipeline))
    graph.add_edge(START, "context")
    graph.add_edge("context", END)
    return graph.compile(store=store)


def test_erasing_and_clearing_reach_the_stores_of_runs() -> None:
    store, pipeline = InMemoryStore(), ContextPipeline(store=InMemoryStore())
    served(store, pipeline).invoke({"messages": [*chat(3), HumanMessage("And now?")]}, CONFIG)
    assert store.search(())
    pipeline.clear(**SCOPE)
    assert ContextPipeline(store=store).get_messages(**SCOPE) == []
    assert pipeline.erase_user(user_id="ada") > 0
    assert store.search(()) == []


def test_flush_waits_for_summaries_in_the_stores_of_runs() -> None:
    model = FakeListChatModel(responses=["They talked about many subjects."], sleep=0.05)
    pipeline = ContextPipeline({"max_context_tokens": 800, "learn": False}, summary_model=model, store=InMemoryStore())
    store = InMemoryStore()
    served(store, pipeline).invoke({"messages": [*chat(60), HumanMessage("And now?")]}, CONFIG)
    assert pipeline.flush(30)
    made = pipeline.engine.over(store)
    assert drive(made.workspace.compactions(Scope("ada", "t1")))
    pipeline.close()


def of_openai(name: str = "gpt-4o") -> ChatOpenAI:
    return ChatOpenAI(model=name, api_key="x")  # type: ignore[arg-type]


def test_more_models_at_once_than_are_kept_do_not_close_each_other() -> None:
    engine = ContextPipeline({"max_context_tokens": 800}, store=InMemoryStore()).engine

    def ask(number: int) -> int:
        made = engine.for_model(of_openai(f"gpt-4o-{number}"))
        draft = drive(made.answer(Scope("ada", f"t{number}"), chat(3), [HumanMessage("Hi")], Request()))
        assert draft.context is not None
        return draft.context.report.total_tokens

    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(ask, range(48)))) == 1
