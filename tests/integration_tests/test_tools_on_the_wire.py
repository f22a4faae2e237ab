"""Tools under a budget as they go to providers, and beside LangChain's tool search of these."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
from langchain.agents.middleware import ProviderToolSearchMiddleware
from langchain_anthropic import ChatAnthropic
from langchain_core.tools import BaseTool
from pydantic import BaseModel, SecretStr

from tests.doubles.recount import recount
from tests.doubles.server import calls, says
from tests.doubles.strict_server import StrictServer
from tests.integration_tests import agents
from tests.integration_tests.test_tools_of_agents import QUESTION, TOOLS, many, names

pytestmark = [
    pytest.mark.allow_hosts(["127.0.0.1"]),
    pytest.mark.usefixtures("offline_tiktoken"),
]


def tools_of(request: Mapping[str, Any]) -> str:
    """The tools of a request, byte by byte."""
    return json.dumps(request["tools"])


def names_in(request: Mapping[str, Any]) -> list[str]:
    return [tool.get("function", tool)["name"] for tool in request["tools"]]


class Weather(BaseModel):
    """The weather somewhere."""

    degrees: int


def after_search(body: Mapping[str, Any]) -> Mapping[str, Any]:
    """Searches, calls what was found, and answers in the form that is wanted."""
    match sum(message["role"] == "tool" for message in body["messages"]):
        case 0:
            return calls(("t0", "find_tools", {"query": "a move in a game of chess"}))
        case 1:
            arguments = {"name": "chess_3", "arguments": '{"what": "e4"}'}
            return calls(("t1", "call_tool", arguments))
        case _:
            return says('{"degrees": 3}' if "response_format" in body else "Done.")


def asked_openai(
    response_format: Any = None, model: str = "gpt-4o"
) -> tuple[list[Mapping[str, Any]], dict[str, Any]]:
    """Returns the requests of an agent that calls two tools, and its state."""
    with StrictServer(after_search) as server:
        agent = agents.agent_of(
            agents.openai(server, model), many(), tools=TOOLS, response_format=response_format
        )
        state = agents.ask(agent, QUESTION)
    assert not server.refused
    return list(server.received), state


def test_openai_gets_the_same_list_in_every_call_of_a_loop() -> None:
    requests, _ = asked_openai()
    first, second, third = map(tools_of, requests)
    assert first == second == third


def test_openai_gets_the_result_of_a_tool_that_is_not_bound() -> None:
    requests, _ = asked_openai()
    assert requests[-1]["messages"][-1]["content"] == "answer to e4"


@pytest.mark.parametrize("response_format", [None, Weather])
def test_no_more_is_sent_than_is_counted(response_format: Any) -> None:
    requests, state = asked_openai(response_format)
    tokens = state["ctxbudget_report"]["total_tokens"]
    assert 0.9 * tokens <= recount(requests[-1]) <= tokens


@pytest.mark.slow
def test_an_agent_with_a_response_format_calls_tools_that_are_not_bound() -> None:
    requests, state = asked_openai(Weather)
    assert requests[-1]["messages"][-1]["content"] == "answer to e4"
    assert state["structured_response"] == Weather(degrees=3)


def claude(url: str) -> ChatAnthropic:
    return ChatAnthropic(
        model="claude-opus-4-8", api_key=SecretStr("x"), base_url=url, max_retries=0
    )


def asked_claude(*middleware: Any, turns: int = 2) -> list[Mapping[str, Any]]:
    """Returns the requests of an agent that is asked some times."""
    with StrictServer() as server:
        model = claude(server.url.removesuffix("/v1"))
        # Claude's cache takes no prompts of 4,000 tokens, so these are chosen anew each time.
        agent = agents.agent_of(model, *middleware, many(8_000), tools=TOOLS)
        for number in range(turns):
            agents.ask(agent, ("human", f"Which flights go from Rome to Oslo on day {number}?"))
    assert not server.refused
    return list(server.received)


def test_anthropic_gets_the_same_list_in_every_turn() -> None:
    first, second = asked_claude()
    assert tools_of(first) == tools_of(second)


def test_anthropic_gets_the_tools_that_fit() -> None:
    [request] = asked_claude(turns=1)
    *chosen, find_tools, call_tool = names_in(request)
    assert {name.split("_")[0] for name in chosen} == {"flights"}
    assert [find_tools, call_tool] == ["find_tools", "call_tool"]


# Tools that their provider loads


CHESS = [tool.name for tool in TOOLS if tool.name.startswith("chess")]


def deferred_chess() -> ProviderToolSearchMiddleware:
    return ProviderToolSearchMiddleware(searchable_tools=[*CHESS])


def test_deferred_tools_are_left_to_their_provider() -> None:
    [request] = asked_claude(deferred_chess(), turns=1)
    deferred = [tool["name"] for tool in request["tools"] if tool.get("defer_loading")]
    assert sorted(deferred) == sorted(CHESS)


def test_of_tools_that_are_not_deferred_those_are_chosen_that_fit() -> None:
    [request] = asked_claude(deferred_chess(), turns=1)
    others = {name.split("_")[0] for name in names_in(request)} - {"chess"}
    assert others == {"flights", "find", "call", "tool"}


def test_the_list_stays_beside_deferred_tools() -> None:
    first, second = asked_claude(deferred_chess())
    assert tools_of(first) == tools_of(second)


def marked_as_deferred(tool: BaseTool) -> BaseTool:
    return tool.model_copy(update={"extras": {"defer_loading": True}})


def test_where_nobody_loads_deferred_tools_the_prompt_chooses_among_them() -> None:
    model = agents.scripted()
    agent = agents.agent_of(model, many(), tools=[*map(marked_as_deferred, TOOLS)])
    agents.ask(agent, QUESTION)
    assert len(model.bound[0]) < len(TOOLS)
    assert names(model.bound[0])[-2:] == ["find_tools", "call_tool"]
