"""Agents of other packages with our middleware or our graph, as the pages say.

Deep Agents, supervisor, swarm.

They are the extra `recipes`, which CI installs for these tests alone; without one, its test is
skipped.
"""

from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import ContextPipeline, build_context_graph
from langchain_ctxbudget.integrations.middleware import ContextBudgetMiddleware
from tests.integration_tests.agents import CONFIG, ask, long_history, look_up, scripted, wants

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::PendingDeprecationWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]
ASKED = {"messages": [*long_history(), HumanMessage("What is in the garden?", id="q")]}


def make_pipeline(tokens: int = 1_500) -> ContextPipeline:
    return ContextPipeline({"max_context_tokens": tokens, "learn": False}, store=InMemoryStore())


def conversations(pipeline: ContextPipeline) -> list[str]:
    return pipeline.list_conversations(user_id="ada")


def test_a_deep_agent_needs_nothing_but_the_middleware() -> None:
    deep = pytest.importorskip("deepagents", reason="deepagents is not installed")
    middleware = ContextBudgetMiddleware({"max_context_tokens": 6_000}, report="numbers")
    model = scripted(
        wants("write_todos", todos=[{"content": "Look", "status": "pending"}]), "Apples."
    )
    agent = deep.create_deep_agent(model, middleware=[middleware], checkpointer=InMemorySaver())
    for number, given in enumerate(
        ({"messages": [*long_history(160), HumanMessage("Well?")]}, HumanMessage("And?"))
    ):
        state = ask(agent, given)
        assert state["ctxbudget_report"]["total_tokens"] <= 6_000, number
    assert len(state["messages"]) > 320
    assert max(map(len, model.seen)) < 320
    assert not any(
        "summary of the conversation" in str(message.content) for message in state["messages"]
    )


def test_sub_agents_of_a_deep_agent_have_conversations_of_their_own() -> None:
    deep = pytest.importorskip("deepagents", reason="deepagents is not installed")
    pipeline = make_pipeline(12_000)
    helper = {
        "name": "gardener",
        "description": "Knows gardens.",
        "system_prompt": "You know gardens.",
        "model": scripted("Apples."),
        "middleware": [ContextBudgetMiddleware(pipeline, agent="gardener")],
    }
    model = scripted(
        wants("task", description="Look.", subagent_type="gardener"), "Apples, they say."
    )
    agent = deep.create_deep_agent(
        model, subagents=[helper], middleware=[ContextBudgetMiddleware(pipeline)]
    )
    assert (
        ask(agent, HumanMessage("What is in the garden?"))["messages"][-1].text
        == "Apples, they say."
    )
    assert conversations(pipeline) == ["c1", "c1 (agent gardener)"]


def test_a_supervisor_and_its_agents_have_prompts_that_fit() -> None:
    team = pytest.importorskip(
        "langgraph_supervisor", reason="langgraph-supervisor is not installed"
    )
    pipeline = make_pipeline()
    expert_model = scripted("Apples.")
    model = scripted(wants("transfer_to_gardener"), "Apples, they say.")
    expert = create_agent(
        expert_model,
        [look_up],
        name="gardener",
        middleware=[ContextBudgetMiddleware(pipeline, agent="gardener")],
    )
    handoff = team.create_handoff_tool(agent_name="gardener")
    hook = build_context_graph(pipeline, prompt="You lead.", tools=[handoff])
    graph = team.create_supervisor(
        [expert], model=model, tools=[handoff], pre_model_hook=hook
    ).compile()
    assert ask(graph, ASKED)["messages"][-1].text == "Apples, they say."
    assert all(request[0].text == "You lead." and len(request) < 80 for request in model.seen)
    assert all(len(request) < 80 for request in expert_model.seen)
    assert conversations(pipeline) == ["c1", "c1 (agent gardener)"]


def test_agents_of_a_swarm_have_prompts_that_fit_and_conversations_of_their_own() -> None:
    swarm = pytest.importorskip("langgraph_swarm", reason="langgraph-swarm is not installed")
    pipeline = make_pipeline()
    models = {"alice": scripted(wants("transfer_to_bob")), "bob": scripted("Apples.", "Pears.")}
    agents: list[Any] = [
        create_agent(
            model,
            [swarm.create_handoff_tool(agent_name=other)],
            name=name,
            middleware=[ContextBudgetMiddleware(pipeline, agent=name)],
        )
        for (name, model), other in zip(models.items(), ("bob", "alice"), strict=True)
    ]
    graph = swarm.create_swarm(agents, default_active_agent="alice").compile(
        checkpointer=InMemorySaver()
    )
    assert ask(graph, ASKED)["messages"][-1].text == "Apples."
    assert ask(graph, HumanMessage("And?"), CONFIG)["messages"][-1].text == "Pears."
    assert all(len(request) < 80 for model in models.values() for request in model.seen)
    assert conversations(pipeline) == ["c1 (agent alice)", "c1 (agent bob)"]
    assert isinstance(
        pipeline.get_messages(user_id="ada", conversation_id="c1 (agent bob)")[-1], AIMessage
    )
