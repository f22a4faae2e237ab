"""Deferred tools: what stands in the model's window counts, and nothing else."""

from typing import Any

import pytest
from langchain.agents.middleware import ProviderToolSearchMiddleware
from langchain_anthropic import ChatAnthropic
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.tools import BaseTool, StructuredTool
from langchain_openai import ChatOpenAI
from langgraph.store.memory import InMemoryStore
from pydantic import SecretStr

from langchain_ctxbudget import AssembledContext, ContextPipeline, ContextReport
from langchain_ctxbudget.budget import Layer, Reason
from langchain_ctxbudget.providers import DeferredTools
from langchain_ctxbudget.report import ReportItem
from langchain_ctxbudget.tokens import TiktokenCounter, ToolsInWindow
from tests.cases import few_are_quick
from tests.integration_tests import agents

SCOPE: dict[str, Any] = {"user_id": "ada", "conversation_id": "c1"}
CLAUDE = ChatAnthropic(model="claude-opus-4-8", api_key=SecretStr("x"))
GPT = ChatOpenAI(model="gpt-5.5", api_key=SecretStr("x"))
SEARCH = {"type": "tool_search_tool_bm25_20251119", "name": "tool_search_tool_bm25"}


def run(order: str, comment: str = "", days: int = 30) -> str:
    return order


def tool_named(name: str, *, deferred: bool = True) -> BaseTool:
    extras = {"defer_loading": True} if deferred else None
    description = f"Does what {name} does, for an order of the last days. " * 6
    return StructuredTool.from_function(run, name=name, description=description, extras=extras)


DEFERRED = [tool_named(f"tool_{number}") for number in range(40)]
ALWAYS = tool_named("always", deferred=False)


def prompt(model: Any, tools: list[Any], *, budget: int = 8_000) -> AssembledContext:
    pipeline = ContextPipeline({"max_context_tokens": budget}, model=model, store=InMemoryStore())
    return pipeline.assemble("Hi", tools=tools, **SCOPE)


def cost_of_tools(model: Any, tools: list[Any]) -> int:
    return prompt(model, tools).report.layer(Layer.TOOLS).used_tokens


def items_by_name(report: ContextReport) -> dict[str, ReportItem]:
    return {item.id: item for item in report.layer(Layer.TOOLS).items}


def loaded_by_provider(report: ContextReport) -> list[str]:
    items = report.layer(Layer.TOOLS).items
    return [item.id for item in items if item.reason is Reason.LOADED_BY_PROVIDER]


@pytest.mark.parametrize("budget", few_are_quick([4_000, 8_000, 32_000, 128_000]))
def test_claude_does_not_see_deferred_tools(budget: int) -> None:
    with_deferred = prompt(CLAUDE, [*DEFERRED, ALWAYS, SEARCH], budget=budget).report
    without = prompt(CLAUDE, [ALWAYS, SEARCH], budget=budget).report

    assert with_deferred.total_tokens == without.total_tokens
    assert loaded_by_provider(with_deferred) == [tool.name for tool in DEFERRED]


def test_openai_shows_names_and_descriptions_of_deferred_tools() -> None:
    report = prompt(GPT, [*DEFERRED, ALWAYS, {"type": "tool_search"}]).report
    costs = [items_by_name(report)[tool.name].tokens for tool in DEFERRED]

    counter = TiktokenCounter("gpt-5.5")
    in_short = [{"name": tool.name, "description": tool.description} for tool in DEFERRED]
    assert costs == [counter.count_tool(tool) for tool in in_short]
    assert sum(costs) < counter.count_tools(DEFERRED)


def test_a_provider_that_nothing_is_known_of_gets_them_whole() -> None:
    whole = [tool_named(tool.name, deferred=False) for tool in DEFERRED]

    assert cost_of_tools(None, DEFERRED[:9]) == cost_of_tools(None, whole[:9])


def test_the_key_that_defers_a_tool_costs_nothing() -> None:
    counter = TiktokenCounter()
    whole = {"name": "x", "description": "y", "parameters": {}}
    deferred = {**whole, "defer_loading": True}

    assert counter.count_tools([deferred]) == counter.count_tools([whole])


@pytest.mark.parametrize(
    "tool",
    [
        {"name": "x", "description": "y", "input_schema": {}, "defer_loading": True},
        {"type": "function", "name": "x", "parameters": {}, "defer_loading": True},
        {"type": "function", "function": {"name": "x"}, "defer_loading": True},
        {"type": "function", "function": {"name": "x", "defer_loading": True}},
        {"type": "function", "function": {"name": "x"}, "extras": {"defer_loading": True}},
    ],
    ids=[
        "Anthropic's",
        "Responses'",
        "Chat Completions'",
        "Chat Completions', inside",
        "Chat Completions', in extras",
    ],
)
def test_a_tool_is_deferred_in_any_form(tool: dict[str, Any]) -> None:
    assert ToolsInWindow.of([tool], DeferredTools.HIDDEN).whole == []


def test_a_namespace_shows_no_deferred_members() -> None:
    members = [{"name": "a", "defer_loading": True}, {"name": "b"}]
    namespace = {"type": "namespace", "name": "crm", "description": "Orders.", "tools": members}

    [shown] = ToolsInWindow.of([namespace], DeferredTools.NAMED).whole

    assert shown == {**namespace, "tools": [{"name": "b"}]}


# Loaded by a tool search

REFERENCE = {"type": "tool_reference", "tool_name": "tool_7"}
FOUND = {"type": "tool_search_tool_search_result", "tool_references": [REFERENCE]}
SEARCH_OF_ANTHROPIC: list[BaseMessage] = [
    AIMessage(
        [
            {"type": "server_tool_use", "id": "s1", "name": SEARCH["name"], "input": {}},
            {"type": "tool_search_tool_result", "tool_use_id": "s1", "content": FOUND},
            {"type": "text", "text": "I have a tool for that."},
        ]
    )
]
CALL = {"name": "find_tools", "args": {}, "id": "c1"}
ROUND_OF_OWN_SEARCH: list[BaseMessage] = [
    AIMessage("", tool_calls=[CALL]),
    ToolMessage([REFERENCE], tool_call_id="c1"),
]
OWN_SEARCH = [*ROUND_OF_OWN_SEARCH, AIMessage("I have a tool for that.")]


@pytest.mark.parametrize(
    "answer", [SEARCH_OF_ANTHROPIC, OWN_SEARCH], ids=["Anthropic's", "one's own"]
)
def test_a_tool_counts_once_a_search_has_loaded_it(answer: list[BaseMessage]) -> None:
    pipeline = ContextPipeline({"max_context_tokens": 8_000}, model=CLAUDE, store=InMemoryStore())
    tools = [*DEFERRED, ALWAYS, SEARCH]

    first = pipeline.assemble("Find it.", tools=tools, **SCOPE).report
    pipeline.add_messages([HumanMessage("Find it."), *answer], **SCOPE)
    second = pipeline.assemble("And?", tools=tools, **SCOPE).report

    counter = pipeline.engine.target.counter
    assert "tool_7" in loaded_by_provider(first)
    assert items_by_name(second)["tool_7"].tokens == counter.count_tool(DEFERRED[7])
    assert second.stability.mode == "extended"


def test_a_tool_counts_that_was_loaded_within_the_turn() -> None:
    pipeline = ContextPipeline({"max_context_tokens": 8_000}, model=CLAUDE, store=InMemoryStore())
    turn = [HumanMessage("Find it."), *ROUND_OF_OWN_SEARCH]

    report = pipeline.assemble(turn, tools=[*DEFERRED, ALWAYS], **SCOPE).report

    assert items_by_name(report)["tool_7"].tokens > 0


class ScriptedClaude(agents.Scripted):
    """A scripted model that tells that it is Claude."""

    def _get_ls_params(self, *_: Any, **__: Any) -> Any:
        return {"ls_provider": "anthropic", "ls_model_name": "claude-opus-4-8"}


@pytest.mark.slow
def test_langchains_tool_search_in_front_of_our_middleware() -> None:
    names = [tool.name for tool in DEFERRED]
    whole = [tool_named(name, deferred=False) for name in names]
    search = ProviderToolSearchMiddleware(searchable_tools=names)
    model = ScriptedClaude(responses=[AIMessage("Yes.")])
    agent = agents.agent_of(model, search, agents.budget(4_000), tools=[*whole, ALWAYS])

    data = agents.ask(agent, HumanMessage("Hi"))["ctxbudget_report"]

    report = ContextReport.from_dict(data)
    assert loaded_by_provider(report) == names
    assert report.total_tokens < 600
