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
CONFIG: Any = {"configurable": {"thread_id": "t1", "user_id": "ada"}}


def new_pipeline() -> ContextPipeline:
    return ContextPipeline(
        {"max_context_tokens": 800}, system_prompt="You help.", store=InMemoryStore()
    )


@pytest.fixture
def pipeline() -> ContextPipeline:
    """A pipeline with a conversation of 120 messages."""
    pipeline = new_pipeline()
    pipeline.add_messages(chat(60), **SCOPE)
    return pipeline


def contents(messages: list[BaseMessage]) -> list[tuple[str, Any]]:
    return [(message.type, message.content) for message in messages]


@pytest.mark.parametrize(
    "question",
    [
        "And now?",
        HumanMessage("And now?"),
        [HumanMessage("And now?")],
        [("human", "And now?")],
        [{"role": "user", "content": "And now?"}],
    ],
    ids=["text", "message", "turn", "tuples", "dicts"],
)
def test_it_gives_what_assemble_gives(pipeline: ContextPipeline, question: Any) -> None:
    expected = pipeline.assemble("And now?", **SCOPE).messages

    sent = pipeline.as_runnable().invoke(question, CONFIG)

    assert contents(sent) == contents(expected)


def test_it_stands_behind_a_prompt_template(pipeline: ContextPipeline) -> None:
    expected = pipeline.assemble("And now?", **SCOPE).messages
    template = ChatPromptTemplate([("human", "And now?")])

    sent = (template | pipeline.as_runnable()).invoke({}, CONFIG)

    assert contents(sent) == contents(expected)


def test_an_agent_s_state_gives_what_assemble_gives(pipeline: ContextPipeline) -> None:
    expected = pipeline.assemble("And now?", **SCOPE).messages
    state = {"messages": [*chat(60), HumanMessage("And now?")]}

    sent = new_pipeline().as_runnable().invoke(state, CONFIG)

    assert contents(sent) == contents(expected)


def test_the_history_of_an_agent_s_state_is_stored() -> None:
    pipeline = new_pipeline()
    state = {"messages": [*chat(60), HumanMessage("And now?")]}

    pipeline.as_runnable().invoke(state, CONFIG)

    assert pipeline.get_messages(**SCOPE) == chat(60)


def test_a_history_in_front_of_a_turn_is_an_error(pipeline: ContextPipeline) -> None:
    with pytest.raises(InputError, match="2 messages stand before the current turn"):
        pipeline.as_runnable().invoke([*chat(1), HumanMessage("And now?")], CONFIG)
    assert pipeline.get_messages(**SCOPE) == chat(60)


def as_a_turn(messages: list[Any]) -> list[Any]:
    return messages


def as_a_state(messages: list[Any]) -> dict[str, Any]:
    return {"messages": messages}


@pytest.mark.parametrize("wrapped", [as_a_turn, as_a_state])
@pytest.mark.parametrize(
    "messages",
    [[7], [{"content": "And now?"}], [("nobody", "And now?")]],
    ids=["a number", "no role", "unknown role"],
)
def test_what_no_model_takes_is_an_error(
    pipeline: ContextPipeline, messages: list[Any], wrapped: Any
) -> None:
    step = pipeline.as_runnable()

    with pytest.raises(UnsupportedContentError, match="messages"):
        step.invoke(wrapped(messages), CONFIG)


QUESTION = HumanMessage("What did you say of subject 7?", id="q")
CALL = AIMessage("", id="c", tool_calls=[{"name": "look", "args": {}, "id": "1"}])
RESULT = ToolMessage("nothing", id="r", tool_call_id="1")


def background_of_the_last_prompt(pipeline: ContextPipeline) -> dict[str, Any]:
    """Returns the background as an agent's state holds it."""
    [conversation] = pipeline.engine.over_store(None).workspace.open_conversations.all().values()
    assert conversation.last is not None
    assert conversation.last.background is not None
    return conversation.last.background.to_dict()


def test_the_background_of_a_state_stands_in_the_prompt(pipeline: ContextPipeline) -> None:
    chosen_anew = pipeline.assemble(QUESTION, **SCOPE).messages
    background = background_of_the_last_prompt(pipeline)
    fragment = background["fragments"][0]
    background["fragments"] = [{**fragment, "text": "- chosen before\n"}]
    state = {
        "messages": [*chat(60), QUESTION, CALL, RESULT],
        "ctxbudget_turn": background,
    }

    sent = new_pipeline().as_runnable().invoke(state, CONFIG)

    assert "- chosen before\n" in sent[-3].text
    assert "- chosen before\n" not in chosen_anew[-1].text


@pytest.fixture
def state_with_a_system_message() -> dict[str, Any]:
    return {"messages": [SystemMessage("Be brief."), *chat(60), HumanMessage("And now?")]}


def test_a_state_s_system_message_follows_the_pipeline_s(
    pipeline: ContextPipeline, state_with_a_system_message: dict[str, Any]
) -> None:
    sent = pipeline.as_runnable().invoke(state_with_a_system_message, CONFIG)

    assert sent[0].text.startswith("You help.\n\nBe brief.")


def test_a_state_s_system_message_is_not_stored(
    pipeline: ContextPipeline, state_with_a_system_message: dict[str, Any]
) -> None:
    pipeline.as_runnable().invoke(state_with_a_system_message, CONFIG)

    assert pipeline.get_messages(**SCOPE) == chat(60)
