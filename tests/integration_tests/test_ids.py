"""One rule for what a user and a conversation may be called, whichever way in.

Any text but an empty one.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import pytest
from langchain.agents import create_agent
from langchain_core.messages import HumanMessage
from langchain_core.runnables import Runnable, RunnableConfig
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import (
    BudgetedChatMessageHistory,
    BudgetedMemory,
    BudgetedRetriever,
    ContextPipeline,
    KnowledgeBase,
    build_context_graph,
    create_recall_tool,
)
from langchain_ctxbudget.errors import InvalidSettingsError, MissingScopeError
from langchain_ctxbudget.integrations.tools import create_compaction_tool
from langchain_ctxbudget.middleware import ContextBudgetMiddleware, RunContext
from langchain_ctxbudget.pipeline import run_of
from langchain_ctxbudget.stores import Scope
from tests.integration_tests.agents import scripted

FACT = "My boat is called Aurora."
QUESTION = "What is my boat called?"
BLANK_IDS = ["\n", " ", "\t", "\u00a0", "\u200b"]
ODD_IDS = [*BLANK_IDS, "\0", "\ud800", " ada", "ada\n", "..", "/", "~", "%0A", "ada@example.com"]

Way = Callable[[ContextPipeline, str], Any]
"""From a pipeline and an id of both the user and the conversation to what is seen of them."""


def config_of(id_: str) -> RunnableConfig:
    return {"configurable": {"user_id": id_, "thread_id": id_}}


def ask(runnable: Runnable[Any, Any], config: RunnableConfig, **options: Any) -> Any:
    state = {"messages": [HumanMessage(FACT, id="m1"), HumanMessage(QUESTION, id="m2")]}
    return runnable.invoke(state, config, **options)


def by_prompt(pipeline: ContextPipeline, id_: str) -> Any:
    return pipeline.assemble(QUESTION, user_id=id_, conversation_id=id_).messages


def by_conversation(pipeline: ContextPipeline, id_: str) -> Any:
    return pipeline.conversation(id_, user_id=id_).messages()


def by_retriever(pipeline: ContextPipeline, id_: str) -> Any:
    return BudgetedRetriever(pipeline=pipeline, user_id=id_, conversation_id=id_).invoke(QUESTION)


def by_default_user(pipeline: ContextPipeline, id_: str) -> Any:
    return BudgetedRetriever(pipeline=pipeline, default_user=id_).invoke(QUESTION)


def by_run(pipeline: ContextPipeline, id_: str) -> Any:
    return BudgetedRetriever(pipeline=pipeline).invoke(QUESTION, config_of(id_))


def by_both(pipeline: ContextPipeline, id_: str) -> Any:
    return BudgetedRetriever(pipeline=pipeline, user_id=id_).invoke(QUESTION, config_of(id_))


def by_history(pipeline: ContextPipeline, id_: str) -> Any:
    return BudgetedChatMessageHistory(id_, user_id=id_, pipeline=pipeline).messages


def by_memory(pipeline: ContextPipeline, id_: str) -> Any:
    memory = BudgetedMemory(pipeline=pipeline, user_id=id_, conversation_id=id_)
    return memory.load_memory_variables({})


def by_recall_tool(pipeline: ContextPipeline, id_: str) -> Any:
    return create_recall_tool(pipeline).invoke({"query": "boat"}, config_of(id_))


def by_runnable(pipeline: ContextPipeline, id_: str) -> Any:
    return pipeline.as_runnable().invoke(QUESTION, config_of(id_))


def by_graph(pipeline: ContextPipeline, id_: str) -> Any:
    ask(build_context_graph(pipeline), config_of(id_))
    return pipeline.get_messages(user_id=id_, conversation_id=id_)


def by_middleware(pipeline: ContextPipeline, id_: str) -> Any:
    model = scripted("Fine.")
    ask(create_agent(model, middleware=[ContextBudgetMiddleware(pipeline)]), config_of(id_))
    return model.seen


def by_context(pipeline: ContextPipeline, id_: str) -> Any:
    model = scripted("Fine.")
    agent = create_agent(
        model, middleware=[ContextBudgetMiddleware(pipeline)], context_schema=RunContext
    )
    ask(agent, {}, context=RunContext(user_id=id_, conversation_id=id_))
    return model.seen


def by_documents(pipeline: ContextPipeline, id_: str) -> Any:
    knowledge = KnowledgeBase(pipeline.store, user_id=id_)
    knowledge.add(FACT)
    return knowledge.search(QUESTION)


def by_knowledge(pipeline: ContextPipeline, id_: str) -> Any:
    pipeline.knowledge.add_fact(FACT, user_id=id_, category="identity")
    return pipeline.knowledge.describe(user_id=id_)


def by_export(pipeline: ContextPipeline, id_: str) -> Any:
    return list(pipeline.export_user(user_id=id_))


WAYS: list[Way] = [
    by_prompt,
    by_conversation,
    by_retriever,
    by_default_user,
    by_run,
    by_both,
    by_history,
    by_memory,
    by_recall_tool,
    by_runnable,
    by_graph,
    by_middleware,
    by_context,
    by_documents,
    by_knowledge,
    by_export,
]


def filled(id_: str) -> ContextPipeline:
    pipeline = ContextPipeline({"learn": False}, store=InMemoryStore())
    pipeline.add_messages([HumanMessage(FACT, id="m1")], user_id=id_, conversation_id=id_)
    return pipeline


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("id_", ODD_IDS, ids=ascii)
def test_an_id_that_messages_are_added_under_is_taken(way: Way, id_: str) -> None:
    assert "Aurora" in str(way(filled(id_), id_))


@pytest.mark.parametrize("id_", ODD_IDS, ids=ascii)
def test_a_conversation_with_an_odd_id_is_listed(id_: str) -> None:
    assert filled(id_).list_conversations(user_id=id_) == [id_]


@pytest.fixture
def erased(id_: str) -> ContextPipeline:
    """A pipeline of two users, of whom the one with this id was erased."""
    pipeline = filled("ada")
    pipeline.add_messages([HumanMessage(FACT)], user_id=id_, conversation_id=id_)
    pipeline.erase_user(user_id=id_)
    return pipeline


@pytest.mark.parametrize("id_", ODD_IDS, ids=ascii)
def test_a_user_with_an_odd_id_is_erased(erased: ContextPipeline, id_: str) -> None:
    assert erased.list_conversations(user_id=id_) == []


@pytest.mark.parametrize("id_", ODD_IDS, ids=ascii)
def test_nobody_else_is_erased_with_an_odd_id(erased: ContextPipeline, id_: str) -> None:
    assert erased.list_conversations(user_id="ada") == ["ada"]


@pytest.mark.parametrize("way", WAYS)
def test_an_empty_id_is_refused(way: Way) -> None:
    pipeline = filled("ada")
    with pytest.raises(MissingScopeError):
        way(pipeline, "")


def test_conversations_of_an_empty_id_are_not_listed() -> None:
    pipeline = filled("ada")
    with pytest.raises(MissingScopeError):
        pipeline.list_conversations(user_id="")


def test_a_blank_user_of_a_run_is_not_the_default_user() -> None:
    assert run_of(config_of(" "), default_user="ada").scope == Scope(" ", " ")


MAKERS: list[Callable[[ContextPipeline, Any], Any]] = [
    lambda pipeline, user: pipeline.as_runnable(default_user=user),
    lambda pipeline, user: build_context_graph(pipeline, default_user=user),
    lambda pipeline, user: ContextBudgetMiddleware(pipeline, default_user=user),
    lambda pipeline, user: create_recall_tool(pipeline, default_user=user),
    lambda pipeline, user: create_compaction_tool(pipeline, default_user=user),
    lambda pipeline, user: BudgetedRetriever(pipeline=pipeline, default_user=user),
]


@pytest.mark.parametrize(
    "make", MAKERS, ids=["runnable", "graph", "middleware", "recall", "compaction", "retriever"]
)
@pytest.mark.parametrize("wrong", ["", 5, b"ada"])
def test_a_default_user_is_checked_where_it_is_given(
    make: Callable[[ContextPipeline, Any], Any], wrong: Any
) -> None:
    with pytest.raises(MissingScopeError, match="default_user must be a non-empty string"):
        make(ContextPipeline(), wrong)


@dataclass
class Account:
    name: str = "ada"


class Plain:
    pass


@pytest.mark.parametrize(
    "wrong", [True, 1.5, ["ada"], {"id": "ada"}, b"ada", Account(), Plain(), str]
)
@pytest.mark.parametrize("name", ["user_id", "thread_id"])
def test_an_id_of_a_run_whose_text_may_change_is_refused(name: str, wrong: Any) -> None:
    configurable = {"user_id": "ada", "thread_id": "c1", name: wrong}
    with pytest.raises(InvalidSettingsError, match="must be text"):
        run_of({"configurable": configurable}, None)


@pytest.mark.parametrize(
    ("id_", "text"),
    [
        (5, "5"),
        (0, "0"),
        (UUID("12345678-1234-5678-1234-567812345678"), "12345678-1234-5678-1234-567812345678"),
    ],
)
def test_numbers_and_uuids_are_ids_of_runs(id_: Any, text: str) -> None:
    scope = run_of({"configurable": {"user_id": id_, "thread_id": id_}}, None).scope
    assert scope == Scope(text, text)


@pytest.mark.parametrize("wrong", ["", 5])
def test_a_device_is_a_text(wrong: Any) -> None:
    with pytest.raises(MissingScopeError, match="device_id must be a non-empty string"):
        ContextPipeline().assemble(QUESTION, user_id="ada", conversation_id="c1", device_id=wrong)


def test_a_writer_is_a_text() -> None:
    with pytest.raises(InvalidSettingsError, match="writer_id must be a str"):
        ContextPipeline(writer_id=5)  # type: ignore[arg-type]
