"""What the package's own tools cost, and that sending everything is compared without them."""

from collections.abc import Sequence
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.structured_output import ProviderStrategy
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.tools import BaseTool, tool
from pydantic import BaseModel

from langchain_ctxbudget import AssembledContext, ContextPipeline, ContextReport, create_recall_tool
from langchain_ctxbudget.budget import Reason
from langchain_ctxbudget.errors import BudgetTooSmallError
from langchain_ctxbudget.integrations.tools import create_compaction_tool
from langchain_ctxbudget.middleware import ContextBudgetMiddleware
from langchain_ctxbudget.tools import own_kind
from tests.scripted_models import Scripted

SCOPE: Any = {"user_id": "ada", "conversation_id": "c1"}


@tool
def weather(city: str) -> str:
    """Tell the weather."""
    return f"sunny in {city}"


def report_with(*tools: BaseTool, pipeline: ContextPipeline | None = None) -> ContextReport:
    pipeline = pipeline or ContextPipeline()
    return pipeline.assemble("Hello", tools=tools, **SCOPE).report


def own_tools(pipeline: ContextPipeline) -> Sequence[BaseTool]:
    return create_recall_tool(pipeline), create_compaction_tool(pipeline)


@pytest.mark.parametrize("others", [(), (weather,)], ids=["alone", "beside another"])
def test_sending_everything_is_without_our_tools(others: Sequence[BaseTool]) -> None:
    pipeline = ContextPipeline()
    without = report_with(*others, pipeline=pipeline).stability

    report = report_with(*others, *own_tools(pipeline))
    assert report.stability.whole_effective_tokens == without.whole_effective_tokens
    assert report.stability.effective_tokens > without.effective_tokens + 100


def test_what_is_saved_is_without_our_tools() -> None:
    assert report_with(*own_tools(ContextPipeline())).stability.saved_tokens == 0


def test_the_tools_of_the_application_count() -> None:
    with_tool = report_with(weather).stability.whole_effective_tokens
    assert with_tool > report_with().stability.whole_effective_tokens


@pytest.mark.parametrize("create", [create_recall_tool, create_compaction_tool])
def test_our_tools_are_known_by_their_metadata(create: Any) -> None:
    assert own_kind(create(ContextPipeline(), name="other_name")) is not None
    assert own_kind(weather) is None


class Answer(BaseModel):
    """An answer."""

    text: str


class Binding(Scripted):
    """Takes any tools."""

    def bind_tools(self, *_: Any, **__: Any) -> Any:
        return self


def test_our_tools_are_known_beside_a_strict_response_format() -> None:
    middleware = ContextBudgetMiddleware(ContextPipeline(), default_user="ada")
    model = Binding(script=[AIMessage('{"text": "Hello"}')])
    agent: Any = create_agent(
        model, middleware=[middleware], response_format=ProviderStrategy(Answer)
    )
    agent.invoke({"messages": [("human", "Hello")]}, {"configurable": {"thread_id": "c1"}})

    report = middleware.pipeline.last_report(**SCOPE)
    assert report is not None
    [recall] = report.layer("L8").items
    assert recall.reason is Reason.NOT_NEEDED_YET


CALL = {"name": "weather", "args": {"city": "Graz"}, "id": "call-1", "type": "tool_call"}
TURN: Sequence[BaseMessage] = (
    HumanMessage("How is the weather?"),
    AIMessage("", tool_calls=[CALL]),
    ToolMessage("sunny in Graz, " * 2_000, tool_call_id="call-1"),
)


def names_of(context: AssembledContext) -> list[str]:
    return [each.name for each in context.tools]


def tools_of_turn(budget: int) -> list[str]:
    """Returns the names of the tools of a prompt whose turn has a result that is clipped."""
    settings = {"max_context_tokens": budget, "tool_tokens": 5_000}
    pipeline = ContextPipeline(settings)
    tools = [weather, create_recall_tool(pipeline)]
    context = pipeline.assemble([*TURN], tools=tools, **SCOPE)
    return names_of(context)


def least_budget() -> int:
    """Returns the budget of which an error says that the turn needs it."""
    with pytest.raises(BudgetTooSmallError) as raised:
        tools_of_turn(50)
    return sum(raised.value.floors.values())


def test_the_budget_of_which_an_error_tells_is_enough() -> None:
    assert tools_of_turn(least_budget()) == ["weather"]


def test_the_recall_tool_is_bound_where_it_has_room() -> None:
    assert tools_of_turn(1_000) == ["weather", "recall"]


@pytest.fixture
def after_long_turn() -> AssembledContext:
    """Returns the first prompt behind a turn that has outgrown its room."""
    pipeline = ContextPipeline({"max_context_tokens": 4_000, "tool_tokens": 5_000})
    tools = [weather, create_recall_tool(pipeline)]
    result = ToolMessage("sunny in Graz, " * 800, tool_call_id="call-1")
    turn = [*TURN[:2], result]
    context = pipeline.assemble(turn[:1], tools=tools, **SCOPE)
    assert names_of(context) == ["weather"]
    context = pipeline.assemble(turn, tools=tools, **SCOPE)
    assert names_of(context) == ["weather", "recall"]
    pipeline.add_messages([*turn, AIMessage("Sunny.")], **SCOPE)
    return pipeline.assemble("And tomorrow?", tools=tools, **SCOPE)


def test_the_recall_tool_stays_in_the_next_turn(after_long_turn: AssembledContext) -> None:
    assert names_of(after_long_turn) == ["weather", "recall"]


def test_a_prompt_with_other_tools_is_told_as_rebuilt(after_long_turn: AssembledContext) -> None:
    stability = after_long_turn.report.stability
    assert (stability.mode, stability.cause) == ("rebuilt", "other_tools")
