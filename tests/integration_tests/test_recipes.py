"""Agents of other packages with our middleware or our graph, as the pages say.

The packages are Deep Agents, MCP adapters, supervisor and swarm.

They are the extra `recipes`, which CI installs for these tests alone; without one, its test is
skipped.
"""

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import ContextPipeline, build_context_graph
from langchain_ctxbudget.integrations.middleware import ContextBudgetMiddleware
from tests.integration_tests.agents import CONFIG, ask, long_history, look_up, scripted, wants
from tests.integration_tests.test_tools_of_agents import TOOLS

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::PendingDeprecationWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]
STATE = {"messages": [*long_history(), HumanMessage("What is in the garden?", id="q")]}


def make_pipeline(tokens: int = 1_500) -> ContextPipeline:
    return ContextPipeline({"max_context_tokens": tokens, "learn": False}, store=InMemoryStore())


def conversations(pipeline: ContextPipeline) -> list[str]:
    return pipeline.list_conversations(user_id="ada")


def has_short_prompts(model: Any, most_messages: int) -> bool:
    """Whether each request to a model had fewer messages than that."""
    return max(map(len, model.seen)) < most_messages


@pytest.fixture
def deepagents() -> Any:
    return pytest.importorskip("deepagents", reason="deepagents is not installed")


def test_a_deep_agent_needs_nothing_but_the_middleware(deepagents: Any) -> None:
    middleware = ContextBudgetMiddleware({"max_context_tokens": 6_000}, report="numbers")
    todos = wants("write_todos", todos=[{"content": "Look", "status": "pending"}])
    model = scripted(todos, "Apples.")
    agent = deepagents.create_deep_agent(
        model, middleware=[middleware], checkpointer=InMemorySaver()
    )

    first = ask(agent, {"messages": [*long_history(160), HumanMessage("Well?")]})
    second = ask(agent, HumanMessage("And?"))

    assert first["ctxbudget_report"]["total_tokens"] <= 6_000
    assert second["ctxbudget_report"]["total_tokens"] <= 6_000
    assert len(second["messages"]) > 320
    assert has_short_prompts(model, 320)
    texts = "\n".join(str(message.content) for message in second["messages"])
    assert "summary of the conversation" not in texts


def test_a_deep_agent_calls_tools_that_are_not_bound(deepagents: Any) -> None:
    settings = {"max_context_tokens": 9_000, "tool_tokens": 1_500}
    model = scripted(
        wants("write_file", key="w", file_path="/a.md", content="Apples."),
        wants("call_tool", key="c", name="read_file", arguments='{"file_path": "/a.md"}'),
        "Apples.",
    )
    agent = deepagents.create_deep_agent(
        model,
        tools=TOOLS,
        middleware=[ContextBudgetMiddleware(settings, default_user="ada")],
        checkpointer=InMemorySaver(),
    )

    state = ask(agent, HumanMessage("Write a note about apples."))

    assert "Apples." in state["messages"][-2].text
    assert len(model.bound[0]) < len(TOOLS)


@pytest.fixture
def mcp_tools() -> list[Any]:
    """The tools of a small MCP server, over stdio."""
    mcp = pytest.importorskip(
        "langchain_mcp_adapters.client", reason="langchain-mcp-adapters is not installed"
    )
    server = Path(__file__).parents[1] / "mcp_server.py"
    connection = {"command": sys.executable, "args": [str(server)], "transport": "stdio"}
    client = mcp.MultiServerMCPClient({"notes": connection})
    return list(asyncio.run(client.get_tools()))


def test_tools_of_an_mcp_server_are_found_and_called(mcp_tools: list[Any]) -> None:
    settings = {"max_context_tokens": 4_000, "tool_tokens": 600}
    model = scripted(
        wants("find_tools", key="f", query="read note number 33"),
        wants("call_tool", key="c", name="note_33", arguments='{"topic": "roses"}'),
        "Roses.",
    )
    middleware = ContextBudgetMiddleware(settings, default_user="ada")
    agent = create_agent(model, mcp_tools, middleware=[middleware], checkpointer=InMemorySaver())

    state = ask(agent, HumanMessage("What do my notes say about roses?"))

    texts = [message.text for message in state["messages"]]
    assert "- topic (string, required)" in texts[2]
    assert texts[4] == "note 33 about roses"
    assert len(model.bound[0]) < len(mcp_tools)


def test_sub_agents_of_a_deep_agent_have_conversations_of_their_own(deepagents: Any) -> None:
    pipeline = make_pipeline(12_000)
    gardener = {
        "name": "gardener",
        "description": "Knows gardens.",
        "system_prompt": "You know gardens.",
        "model": scripted("Apples."),
        "middleware": [ContextBudgetMiddleware(pipeline, agent="gardener")],
    }
    delegates = wants("task", description="Look.", subagent_type="gardener")
    agent = deepagents.create_deep_agent(
        scripted(delegates, "Apples, they say."),
        subagents=[gardener],
        middleware=[ContextBudgetMiddleware(pipeline)],
    )

    state = ask(agent, HumanMessage("What is in the garden?"))

    assert state["messages"][-1].text == "Apples, they say."
    assert conversations(pipeline) == ["c1", "c1 (agent gardener)"]


def test_a_supervisor_and_its_agents_have_prompts_that_fit() -> None:
    team = pytest.importorskip(
        "langgraph_supervisor", reason="langgraph-supervisor is not installed"
    )
    pipeline = make_pipeline()
    gardener_model = scripted("Apples.")
    gardener = create_agent(
        gardener_model,
        [look_up],
        name="gardener",
        middleware=[ContextBudgetMiddleware(pipeline, agent="gardener")],
    )
    handoff = team.create_handoff_tool(agent_name="gardener")
    model = scripted(wants("transfer_to_gardener"), "Apples, they say.")
    supervisor = team.create_supervisor(
        [gardener],
        model=model,
        tools=[handoff],
        pre_model_hook=build_context_graph(pipeline, prompt="You lead.", tools=[handoff]),
    )

    state = ask(supervisor.compile(), STATE)

    assert state["messages"][-1].text == "Apples, they say."
    assert {request[0].text for request in model.seen} == {"You lead."}
    assert has_short_prompts(model, 80)
    assert has_short_prompts(gardener_model, 80)
    assert conversations(pipeline) == ["c1", "c1 (agent gardener)"]


def test_agents_of_a_swarm_have_prompts_that_fit() -> None:
    swarm = pytest.importorskip("langgraph_swarm", reason="langgraph-swarm is not installed")
    pipeline = make_pipeline()

    def member(name: str, other: str, model: Any) -> Any:
        handoff = swarm.create_handoff_tool(agent_name=other)
        middleware = ContextBudgetMiddleware(pipeline, agent=name)
        return create_agent(model, [handoff], name=name, middleware=[middleware])

    alice_model = scripted(wants("transfer_to_bob"))
    bob_model = scripted("Apples.", "Pears.")
    members = [member("alice", "bob", alice_model), member("bob", "alice", bob_model)]
    graph = swarm.create_swarm(members, default_active_agent="alice")
    agent = graph.compile(checkpointer=InMemorySaver())

    first = ask(agent, STATE)
    second = ask(agent, HumanMessage("And?"), CONFIG)

    assert first["messages"][-1].text == "Apples."
    assert second["messages"][-1].text == "Pears."
    assert has_short_prompts(alice_model, 80)
    assert has_short_prompts(bob_model, 80)
    assert conversations(pipeline) == ["c1 (agent alice)", "c1 (agent bob)"]
    messages = pipeline.get_messages(user_id="ada", conversation_id="c1 (agent bob)")
    assert isinstance(messages[-1], AIMessage)
