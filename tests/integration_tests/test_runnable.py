"""The pipeline as a step of a chain."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from operator import itemgetter
from typing import Any

import pytest
from langchain_core.language_models import FakeListChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.prompts import ChatPromptTemplate
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import ContextPipeline
from langchain_ctxbudget.errors import EmptyMessageError, InputError, MissingScopeError, UnsupportedContentError
from tests.integration_tests.test_pipeline import chat

SCOPE = {"user_id": "ada", "conversation_id": "t1"}
CONFIG: dict[str, Any] = {"configurable": {"thread_id": "t1", "user_id": "ada"}}
Invoke = Callable[..., Any]


@pytest.fixture(params=["sync", "async"])
def invoke(request: pytest.FixtureRequest) -> Invoke:
    def asynchronous(step: Any, *args: Any) -> Any:
        return asyncio.run(step.ainvoke(*args))

    return (lambda step, *args: step.invoke(*args)) if request.param == "sync" else asynchronous


@pytest.fixture
def pipeline() -> ContextPipeline:
    made = ContextPipeline({"max_context_tokens": 800}, system_prompt="You help.", store=InMemoryStore())
    made.add_messages(chat(60), **SCOPE)
    return made


def contents(messages: list[BaseMessage]) -> list[Any]:
    return [(message.type, message.content) for message in messages]


@pytest.mark.parametrize(
    "given",
    [
        "And now?",
        HumanMessage("And now?"),
        [HumanMessage("And now?")],
        [("human", "And now?")],
        [{"role": "user", "content": "And now?"}],
        ChatPromptTemplate([("human", "And now?")]),
    ],
    ids=["text", "message", "turn", "tuples", "dicts", "prompt value"],
)
def test_it_gives_what_assemble_gives(pipeline: ContextPipeline, invoke: Invoke, given: Any) -> None:
    expected = pipeline.assemble("And now?", **SCOPE).messages
    step = pipeline.as_runnable()
    chain = given | step if isinstance(given, ChatPromptTemplate) else step
    sent = invoke(chain, {} if isinstance(given, ChatPromptTemplate) else given, CONFIG)
    assert contents(sent) == contents(expected)


def test_it_gives_what_assemble_gives_for_an_agent_s_state(pipeline: ContextPipeline, invoke: Invoke) -> None:
    expected = pipeline.assemble("And now?", **SCOPE).messages
    fresh = ContextPipeline({"max_context_tokens": 800}, system_prompt="You help.", store=InMemoryStore())
    sent = invoke(fresh.as_runnable(), {"messages": [*chat(60), HumanMessage("And now?")]}, CONFIG)
    assert contents(sent) == contents(expected)
    assert fresh.get_messages(**SCOPE) == chat(60)


def test_a_turn_stores_nothing(pipeline: ContextPipeline, invoke: Invoke) -> None:
    invoke(pipeline.as_runnable(), "And now?", CONFIG)
    assert pipeline.get_messages(**SCOPE) == chat(60)


def test_system_messages_in_front_of_a_turn_join_the_system_prompt(pipeline: ContextPipeline, invoke: Invoke) -> None:
    prompt = ChatPromptTemplate([("system", "You are a {what}."), ("human", "{question}")])
    sent = invoke(prompt | pipeline.as_runnable(), {"what": "pirate", "question": "And now?"}, CONFIG)
    assert sent[0].text.startswith("You help.\n\nYou are a pirate.")
    assert pipeline.get_messages(**SCOPE) == chat(60)


def test_a_history_in_front_of_a_turn_is_an_error(pipeline: ContextPipeline, invoke: Invoke) -> None:
    with pytest.raises(InputError, match="2 messages stand before the current turn"):
        invoke(pipeline.as_runnable(), [*chat(1), HumanMessage("And now?")], CONFIG)
    assert pipeline.get_messages(**SCOPE) == chat(60)


def test_a_mapping_without_messages_is_an_error(pipeline: ContextPipeline, invoke: Invoke) -> None:
    with pytest.raises(InputError, match=r"it has \['question'\]"):
        invoke(pipeline.as_runnable(), {"question": "And now?"}, CONFIG)


@pytest.mark.parametrize("given", [[7], [{"content": "And now?"}], [("nobody", "And now?")]])
@pytest.mark.parametrize("wrapped", [False, True], ids=["turn", "state"])
def test_what_no_model_takes_is_an_error(
    pipeline: ContextPipeline, invoke: Invoke, given: Any, *, wrapped: bool
) -> None:
    with pytest.raises(UnsupportedContentError, match="messages"):
        invoke(pipeline.as_runnable(), {"messages": given} if wrapped else given, CONFIG)


def test_nothing_to_answer_is_an_error(pipeline: ContextPipeline, invoke: Invoke) -> None:
    with pytest.raises(EmptyMessageError):
        invoke(pipeline.as_runnable(), [], CONFIG)


def test_no_scope_is_an_error(pipeline: ContextPipeline, invoke: Invoke) -> None:
    with pytest.raises(MissingScopeError, match="no user"):
        invoke(pipeline.as_runnable(), "And now?", {"configurable": {"thread_id": "t1"}})
    with pytest.raises(MissingScopeError, match="no conversation"):
        invoke(pipeline.as_runnable(default_user="ada"), "And now?", {})


def test_a_session_is_a_conversation(pipeline: ContextPipeline, invoke: Invoke) -> None:
    sent = invoke(pipeline.as_runnable(default_user="ada"), "And now?", {"configurable": {"session_id": "t1"}})
    assert contents(sent) == contents(pipeline.assemble("And now?", **SCOPE).messages)


def test_it_stands_between_other_steps(pipeline: ContextPipeline, invoke: Invoke) -> None:
    chain = itemgetter("question") | pipeline.as_runnable() | FakeListChatModel(responses=["Fine."])
    assert invoke(chain, {"question": "How are you?"}, CONFIG).content == "Fine."


def test_the_block_of_the_state_stands_in_the_prompt(pipeline: ContextPipeline, invoke: Invoke) -> None:
    question = HumanMessage("And now?", id="q")
    call = AIMessage("", id="c", tool_calls=[{"name": "look", "args": {}, "id": "1"}])
    turn = [question, call, ToolMessage("nothing", id="r", tool_call_id="1")]
    context = pipeline.assemble(question, **SCOPE)
    chosen = pipeline.engine.over(None).open_conversations.working_sets()
    [conversation] = chosen.values()
    assert conversation.chosen is not None
    block = conversation.chosen[0].to_dict()
    block["fragments"] = [{**block["fragments"][0], "text": "- chosen before\n"}]
    fresh = ContextPipeline({"max_context_tokens": 800}, system_prompt="You help.", store=InMemoryStore())
    sent = invoke(fresh.as_runnable(), {"messages": [*chat(60), *turn], "ctxbudget_turn": block}, CONFIG)
    assert "- chosen before\n" in sent[-3].text
    assert "- chosen before\n" not in context.messages[-1].text


def test_in_a_graph_the_store_of_the_run_outweighs_the_pipeline_s(invoke: Invoke) -> None:
    own, of_the_run = InMemoryStore(), InMemoryStore()
    for preferred, used in ((True, of_the_run), (False, own)):
        step = ContextPipeline(store=own).as_runnable(runtime_store=preferred)
        graph = StateGraph(MessagesState)
        graph.add_node("context", step | (lambda _: {}))
        graph.add_edge(START, "context")
        graph.add_edge("context", END)
        state = {"messages": [*chat(2), HumanMessage("Hi", id="q")]}
        invoke(graph.compile(store=of_the_run), state, CONFIG)
        assert ContextPipeline(store=used).get_messages(**SCOPE) == chat(2)


def test_leading_system_messages_of_a_state_are_not_stored(pipeline: ContextPipeline, invoke: Invoke) -> None:
    state = {"messages": [SystemMessage("Be brief."), *chat(60), HumanMessage("And now?")]}
    sent = invoke(pipeline.as_runnable(), state, CONFIG)
    assert sent[0].text.startswith("You help.\n\nBe brief.")
    assert pipeline.get_messages(**SCOPE) == chat(60)
