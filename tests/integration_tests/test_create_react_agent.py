"""`create_react_agent` with the context graph as its hook: what the hook was given is counted, and stands once."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import pytest
from langchain_core.messages import HumanMessage, SystemMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import ContextPipeline, build_context_graph
from langchain_ctxbudget.errors import InvalidSettingsError
from tests.integration_tests.conftest import Call
from tests.integration_tests.openai_server import OpenAIServer, calls, says
from tests.integration_tests.strict_openai_server import StrictOpenAIServer, recount

pytestmark = [pytest.mark.allow_hosts(["127.0.0.1"]), pytest.mark.usefixtures("offline_tiktoken")]

CONFIG: dict[str, Any] = {"configurable": {"thread_id": "t1", "user_id": "ada"}}
BUDGET_TOKENS = 800
PROMPT = "You are the supervisor. Hand gardens to the gardener, and everything else to the mason. " * 5


@tool
def transfer_to_gardener() -> str:
    """Ask the agent 'gardener' for help with trees, beds, lawns, hedges and whatever else grows."""
    return "The tree is an oak. " * 20


def answer(body: Mapping[str, Any]) -> Mapping[str, Any]:
    if body["messages"][-1]["role"] == "tool":
        return says("An oak it is, planted behind the shed. " * 6)
    return calls((f"call_{len(body['messages'])}", "transfer_to_gardener", {}))


def turns(call: Call, hook: Any, server: OpenAIServer, count: int = 6, **agent: Any) -> list[dict[str, Any]]:
    """The states of an agent after some turns."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        from langgraph.prebuilt import create_react_agent  # noqa: PLC0415

        model = ChatOpenAI(model="gpt-4o", base_url=server.url, api_key="not-used", max_retries=0)
        react = create_react_agent(
            model, [transfer_to_gardener], pre_model_hook=hook, checkpointer=InMemorySaver(), **agent
        )
    asked = [HumanMessage(f"Question {number}: which tree is it? " * 4) for number in range(count)]
    return [call(react, "invoke", {"messages": [question]}, CONFIG) for question in asked]


def pipeline(**rest: Any) -> ContextPipeline:
    settings = {"max_context_tokens": BUDGET_TOKENS, "preferences": ["Answers are short."]}
    return ContextPipeline(settings, system_prompt="House rules: be kind.", store=InMemoryStore(), **rest)


@pytest.mark.parametrize("prompt", [PROMPT, SystemMessage(PROMPT)], ids=["text", "message"])
def test_a_prompt_and_tools_that_the_hook_was_given_are_counted_and_stand_once(call: Call, prompt: Any) -> None:
    hook = build_context_graph(pipeline(), prompt=prompt, tools=[transfer_to_gardener])
    with StrictOpenAIServer(answer, max_tokens=BUDGET_TOKENS) as server:
        turns(call, hook, server)
    assert server.refused == []
    assert len(server.received) == 12
    assert max(map(recount, server.received)) > 0.7 * BUDGET_TOKENS, "it was a matter of room"
    for body in server.received:
        [system] = [message["content"] for message in body["messages"] if message["role"] == "system"]
        assert system.count(PROMPT.strip()) == system.count("House rules") == 1


def test_a_prompt_that_is_no_text_is_refused() -> None:
    wrong: Any = lambda state: state["messages"]  # noqa: E731
    with pytest.raises(InvalidSettingsError, match="prompt must be a string"):
        build_context_graph(pipeline(), prompt=wrong)
