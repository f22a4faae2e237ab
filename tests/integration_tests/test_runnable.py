"""The pipeline as a step of a chain."""

from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.prompts import ChatPromptTemplate
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import ContextPipeline
from langchain_ctxbudget.errors import InputError, UnsupportedContentError
from tests.integration_tests.test_pipeline import chat

SCOPE = {"user_id": "ada", "conversation_id": "t1"}
CONFIG: dict[str, Any] = {"configurable": {"thread_id": "t1", "user_id": "ada"}}


@pytest.fixture
def pipeline() -> ContextPipeline:
    made = ContextPipeline(
        {"max_context_tokens": 800}, system_prompt="You help.", store=InMemoryStore()
    )
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
def test_it_gives_what_assemble_gives(pipeline: ContextPipeline, given: Any) -> None:
    expected = pipeline.assemble("And now?", **SCOPE).messages
    step = pipeline.as_runnable()
    chain = given | step if isinstance(given, ChatPromptTemplate) else step
    sent = chain.invoke({} if isinstance(given, ChatPromptTemplate) else given, CONFIG)
    assert contents(sent) == contents(expected)


def test_it_gives_what_assemble_gives_for_an_agent_s_state(pipeline: ContextPipeline) -> None:
    expected = pipeline.assemble("And now?", **SCOPE).messages
    fresh = ContextPipeline(
        {"max_context_tokens": 800}, system_prompt="You help.", store=InMemoryStore()
    )
    sent = fresh.as_runnable().invoke({"messages": [*chat(60), HumanMessage("And now?")]}, CONFIG)
    assert contents(sent) == contents(expected)
    assert fresh.get_messages(**SCOPE) == chat(60)


def test_a_history_in_front_of_a_turn_is_an_error(pipeline: ContextPipeline) -> None:
    with pytest.raises(InputError, match="2 messages stand before the current turn"):
        pipeline.as_runnable().invoke([*chat(1), HumanMessage("And now?")], CONFIG)
    assert pipeline.get_messages(**SCOPE) == chat(60)


def test_what_no_model_takes_is_an_error(pipeline: ContextPipeline) -> None:
    for given in [[7], [{"content": "And now?"}], [("nobody", "And now?")]]:
        for wrapped in [False, True]:
            with pytest.raises(UnsupportedContentError, match="messages"):
                pipeline.as_runnable().invoke({"messages": given} if wrapped else given, CONFIG)


def test_the_block_of_the_state_stands_in_the_prompt(pipeline: ContextPipeline) -> None:
    question = HumanMessage("What did you say of subject 7?", id="q")
    call = AIMessage("", id="c", tool_calls=[{"name": "look", "args": {}, "id": "1"}])
    turn = [question, call, ToolMessage("nothing", id="r", tool_call_id="1")]
    context = pipeline.assemble(question, **SCOPE)
    chosen = pipeline.engine.over(None).workspace.open_conversations.all()
    [conversation] = chosen.values()
    assert conversation.last is not None
    assert conversation.last.background is not None
    block = conversation.last.background.to_dict()
    block["fragments"] = [{**block["fragments"][0], "text": "- chosen before\n"}]
    fresh = ContextPipeline(
        {"max_context_tokens": 800}, system_prompt="You help.", store=InMemoryStore()
    )
    sent = fresh.as_runnable().invoke(
        {"messages": [*chat(60), *turn], "ctxbudget_turn": block}, CONFIG
    )
    assert "- chosen before\n" in sent[-3].text
    assert "- chosen before\n" not in context.messages[-1].text


def test_leading_system_messages_of_a_state_are_not_stored(pipeline: ContextPipeline) -> None:
    state = {"messages": [SystemMessage("Be brief."), *chat(60), HumanMessage("And now?")]}
    assert pipeline.as_runnable().invoke(state, CONFIG)[0].text.startswith("You help.\n\nBe brief.")
    assert pipeline.get_messages(**SCOPE) == chat(60)
