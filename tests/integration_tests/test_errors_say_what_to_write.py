"""Errors of first uses name what is wrong, and what to write instead."""

from typing import Any, NoReturn

import pytest
from langchain_core.messages import HumanMessage
from langchain_core.tools import tool
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import (
    ContextPipeline,
    build_context_graph,
    build_remember_node,
    create_recall_tool,
)
from langchain_ctxbudget.budget import Situation
from langchain_ctxbudget.errors import (
    BudgetTooSmallError,
    InputError,
    InvalidSettingsError,
    StrategyError,
)
from langchain_ctxbudget.middleware import ContextBudgetMiddleware
from langchain_ctxbudget.report import ContextReport
from tests.integration_tests.agents import agent_of, scripted

SCOPE = {"user_id": "ada", "conversation_id": "c1"}
WAYS_IN: list[Any] = [
    ContextBudgetMiddleware,
    build_context_graph,
    build_remember_node,
    create_recall_tool,
]


@tool
def add(a: int, b: int) -> str:
    """Adds two numbers."""
    return str(a + b)


@tool
def explore(what: str) -> str:
    """Explores."""
    return what


explore.description = "Explores one thing after the other. " * 500


class Failing:
    """A strategy that fails."""

    name = "half each"

    def allocate(self, situation: Situation) -> NoReturn:
        raise KeyError("L9")


def report_of(**settings: Any) -> ContextReport:
    """Returns the report of a prompt with a small and a large tool."""
    pipeline = ContextPipeline(settings)
    return pipeline.assemble("Hello", tools=[add, explore], **SCOPE).report


@pytest.mark.parametrize("make", WAYS_IN, ids=lambda make: str(make.__name__))
def test_what_belongs_to_the_pipeline_is_said_to(make: Any) -> None:
    wanted = rf"{make.__name__}\(ContextPipeline\({{...}}, store=...\)\)"
    with pytest.raises(InvalidSettingsError, match=wanted):
        make({"max_context_tokens": 8_000}, store=InMemoryStore())


def test_a_folder_s_name_is_no_store() -> None:
    with pytest.raises(InvalidSettingsError, match=r'pass ChromaStore\("memory"\)'):
        ContextPipeline(store="memory")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "args", "wanted"),
    [
        ("erase_user", ["ada"], r"write erase_user\(user_id=...\)"),
        ("list_conversations", ["ada"], r"write list_conversations\(user_id=...\)"),
        ("get_messages", ["ada", "c1"], r"\(user_id=..., conversation_id=...\)"),
        ("conversation", ["c1", "ada"], r"write conversation\(..., user_id=...\)"),
        ("assemble", ["Hi", "ada", "c1"], r"assemble\(..., user_id=..., conversation_id=...\)"),
    ],
)
def test_ids_are_given_by_name(name: str, args: list[str], wanted: str) -> None:
    with pytest.raises(InputError, match=wanted):
        getattr(ContextPipeline(), name)(*args)


@pytest.mark.parametrize("default_user", [None, "me"])
def test_a_run_that_misspells_the_user_gets_a_hint(default_user: str | None) -> None:
    middleware = ContextBudgetMiddleware(default_user=default_user)
    run: Any = {"configurable": {"thread_id": "t", "userid": "ada"}}
    with pytest.raises(InvalidSettingsError, match=r"'userid' .is 'user_id' meant"):
        agent_of(scripted(), middleware).invoke({"messages": [HumanMessage("Hi")]}, run)


def test_a_required_tool_that_is_not_there_is_told() -> None:
    failures = report_of(tool_tokens=500, required_tools=["explor"]).failures
    assert failures == ("required_tools: no tool is named 'explor' (is 'explore' meant?)",)


def test_a_limit_without_room_for_a_tool_is_told() -> None:
    [failure] = report_of(tool_tokens=50).failures
    assert failure.startswith("tool_tokens is 50, but find_tools and call_tool take ")


@pytest.mark.parametrize("settings", [{}, {"tool_tokens": 500}, {"tool_tokens": 10_000}], ids=str)
def test_a_limit_that_works_is_not_told_of(settings: dict[str, Any]) -> None:
    assert report_of(**settings).failures == ()


def test_the_limit_that_is_told_has_room_for_a_tool() -> None:
    [failure] = report_of(tool_tokens=50).failures
    least = int(failure.rpartition("at least ")[2].partition(",")[0])
    assert report_of(tool_tokens=least).failures == ()


def test_tools_that_do_not_fit_can_be_left_to_be_found() -> None:
    with pytest.raises(BudgetTooSmallError, match=r"tool schemas(.|\n)*tool_tokens=\.\.\."):
        report_of(max_context_tokens=2_000)


def test_without_tools_the_error_tells_nothing_of_them() -> None:
    pipeline = ContextPipeline({"max_context_tokens": 20})
    with pytest.raises(BudgetTooSmallError) as raised:
        pipeline.assemble("Hello there. " * 30, **SCOPE)
    assert "tool_tokens" not in str(raised.value)


def test_a_strategy_that_fails_is_named() -> None:
    wanted = r"'half each' \(Failing.allocate\) failed with KeyError: 'L9'"
    with pytest.raises(StrategyError, match=wanted) as raised:
        report_of(allocation=Failing())
    assert isinstance(raised.value.__cause__, KeyError)


def test_a_report_without_messages_says_so() -> None:
    with pytest.raises(InputError, match="had no messages before this turn"):
        report_of().explain(99)
