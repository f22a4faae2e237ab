"""An application says whose rules hold, whatever the model is."""

from dataclasses import replace
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_openai import ChatOpenAI
from langgraph.store.memory import InMemoryStore
from pydantic import Field

from langchain_ctxbudget import (
    BudgetedChatMessageHistory,
    ContextBudgetMiddleware,
    ContextPipeline,
    build_context_graph,
)
from langchain_ctxbudget.errors import InvalidSettingsError
from langchain_ctxbudget.providers import PROFILES, CallIds, Profile

SCOPE: dict[str, Any] = {"user_id": "ada", "conversation_id": "c1"}
RUN: Any = {"configurable": {"thread_id": "c1"}}
CALL = {"name": "tides", "args": {}, "id": "call_number_1", "type": "tool_call"}
HISTORY: list[BaseMessage] = [
    HumanMessage("When?", id="h1"),
    AIMessage("", tool_calls=[CALL], id="a1"),
    ToolMessage("18:04", tool_call_id="call_number_1", id="t1"),
    AIMessage("At 18:04.", id="a2"),
]
QUESTION = HumanMessage("And low water?", id="h2")
CHOICES = [
    pytest.param("mistral", 9, id="a name"),
    pytest.param("mistralai", 9, id="what LangChain calls it"),
    pytest.param(replace(PROFILES["openai"], call_ids=CallIds(longest=12)), 12, id="a profile"),
]
choices = pytest.mark.parametrize(("provider", "length"), CHOICES)


class Watched(GenericFakeChatModel):
    """A model that notes what it is sent."""

    seen: list[BaseMessage] = Field(default_factory=list)

    def _generate(self, messages: list[BaseMessage], *args: Any, **options: Any) -> Any:
        self.seen.extend(messages)
        return super()._generate(messages, *args, **options)


def pipeline_for(provider: Profile | str, model: str | None = "gpt-4o") -> ContextPipeline:
    return ContextPipeline(model=model, provider=provider, store=InMemoryStore())


def lengths(messages: list[BaseMessage]) -> set[int]:
    return {len(message.tool_call_id) for message in messages if isinstance(message, ToolMessage)}


@choices
def test_a_prompt_follows_it(provider: Profile | str, length: int) -> None:
    pipeline = pipeline_for(provider)
    pipeline.add_messages(HISTORY, **SCOPE)

    assert lengths(pipeline.assemble(QUESTION, **SCOPE).messages) == {length}


@choices
def test_a_graph_follows_it(provider: Profile | str, length: int) -> None:
    graph = build_context_graph(pipeline_for(provider), default_user="ada")
    sent = graph.invoke({"messages": [*HISTORY, QUESTION]}, RUN)["llm_input_messages"]

    assert lengths(sent) == {length}


@choices
def test_middleware_follows_it_for_every_model(provider: Profile | str, length: int) -> None:
    model = Watched(messages=iter([AIMessage("At noon.")]))
    budget = ContextBudgetMiddleware(pipeline_for(provider), default_user="ada", recall_tool=False)
    create_agent(model, middleware=[budget]).invoke({"messages": [*HISTORY, QUESTION]}, RUN)

    assert lengths(model.seen) == {length}


@pytest.mark.parametrize("most", [None, 2_000])
@choices
def test_a_history_follows_it(provider: Profile | str, length: int, most: int | None) -> None:
    history = BudgetedChatMessageHistory(
        "c1", user_id="ada", pipeline=pipeline_for(provider), max_tokens=most
    )
    history.add_messages(HISTORY)

    assert lengths(history.messages) == {length}


@pytest.mark.parametrize("provider", ["claude", "", 7])
def test_an_unknown_one_is_an_error_that_names_the_known(provider: Any) -> None:
    with pytest.raises(InvalidSettingsError, match=r"Known are: anthropic, .*unknown"):
        ContextPipeline(provider=provider)


# OpenAI's two APIs

SEARCHED = AIMessage(
    [
        {"type": "web_search_call", "id": "ws_1", "status": "completed"},
        {"type": "text", "text": "At 18:04.", "id": "msg_1"},
    ],
    id="a1",
    response_metadata={"model_provider": "openai"},
)


@pytest.mark.parametrize(
    ("tools", "first_type"),
    [([], "text"), ([{"type": "web_search"}], "web_search_call")],
    ids=["chat completions", "responses"],
)
def test_the_tools_of_a_call_choose_the_api(tools: list[Any], first_type: str) -> None:
    pipeline = ContextPipeline(model=ChatOpenAI(model="gpt-4o", api_key="x"), store=InMemoryStore())
    pipeline.add_messages([HumanMessage("When?", id="h1"), SEARCHED], **SCOPE)

    context = pipeline.assemble(QUESTION, tools=tools, **SCOPE)

    [answer] = [message for message in context.messages if isinstance(message, AIMessage)]
    assert answer.content[0]["type"] == first_type  # type: ignore[index]
