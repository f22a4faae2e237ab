"""Ids of calls that OpenAI refuses, of more than 40 characters.

Digests on every way out, in every form of a call.
"""

import json
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langchain.agents import create_agent
from langchain_core.language_models import FakeListChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langchain_openai import AzureChatOpenAI, ChatOpenAI
from langgraph.store.memory import InMemoryStore
from pydantic import Field

from langchain_ctxbudget import (
    AssembledContext,
    BudgetedChatMessageHistory,
    BudgetedMemory,
    ContextBudgetMiddleware,
    ContextPipeline,
    build_context_graph,
)
from langchain_ctxbudget.errors import BudgetTooSmallError, MessageConflictError
from tests.doubles.openai_chat import chat_problems
from tests.doubles.openai_responses import responses_problems

LONGEST = 40
LONG = "call_" + "L" * 61
SCOPE: dict[str, Any] = {"user_id": "ada", "conversation_id": "c1"}
RUN: RunnableConfig = {"configurable": {"user_id": "ada", "thread_id": "c1"}}
AZURE = AzureChatOpenAI(
    azure_deployment="our-assistant",
    azure_endpoint="https://x.invalid",
    api_version="2025-01-01",
    api_key="x",
)
RESPONSES = ChatOpenAI(model="gpt-5", api_key="x", use_responses_api=True)
CALL = {"name": "look", "args": {"place": "shed"}, "id": LONG}
HISTORY: list[BaseMessage] = [
    HumanMessage("How long is it?", id="h1"),
    AIMessage("", tool_calls=[CALL], id="a1"),
    ToolMessage("5 m.", tool_call_id=LONG, id="t1"),
    AIMessage("It is 5 m long.", id="a2"),
]
QUESTION = HumanMessage("And how wide?", id="h2")


def ids_of(messages: Sequence[BaseMessage]) -> list[str]:
    """All ids of calls that Chat Completions is sent with these messages."""
    body = AZURE._get_request_payload(list(messages))
    ids: list[str] = []
    for message in body["messages"]:
        ids += [call["id"] for call in message.get("tool_calls") or ()]
        if "tool_call_id" in message:
            ids.append(message["tool_call_id"])
    return ids


def check_short(messages: Sequence[BaseMessage]) -> None:
    """One call and its result have the same id, which is short enough."""
    id_of_call, id_of_result = ids_of(messages)
    assert id_of_call == id_of_result
    assert len(id_of_call) <= LONGEST


def pipeline_with_history(model: Any) -> ContextPipeline:
    pipeline = ContextPipeline(model=model, store=InMemoryStore())
    pipeline.add_messages(HISTORY, **SCOPE)
    return pipeline


def chat_history(model: Any) -> BudgetedChatMessageHistory:
    return BudgetedChatMessageHistory("c1", user_id="ada", pipeline=pipeline_with_history(model))


# Ways out


def assembled(model: Any) -> list[BaseMessage]:
    return pipeline_with_history(model).assemble(QUESTION, **SCOPE).messages


def window(model: Any) -> list[BaseMessage]:
    return chat_history(model).window(1_000)


def whole_history(model: Any) -> list[BaseMessage]:
    return chat_history(model).messages


def memory(model: Any) -> list[BaseMessage]:
    memory = BudgetedMemory(
        pipeline=pipeline_with_history(model),
        user_id="ada",
        conversation_id="c1",
        max_tokens=1_000,
    )
    messages: list[BaseMessage] = memory.load_memory_variables({})["history"]
    return messages


def runnable(model: Any) -> list[BaseMessage]:
    pipeline = ContextPipeline(model=model, store=InMemoryStore())
    return pipeline.as_runnable().invoke({"messages": [*HISTORY, QUESTION]}, RUN)


def graph(model: Any) -> list[BaseMessage]:
    graph = build_context_graph(ContextPipeline(model=model, store=InMemoryStore()))
    state = graph.invoke({"messages": [*HISTORY, QUESTION]}, RUN)
    messages: list[BaseMessage] = state["llm_input_messages"]
    return messages


WAYS_OUT: list[Callable[[Any], list[BaseMessage]]] = [
    assembled,
    window,
    whole_history,
    memory,
    runnable,
    graph,
]


@pytest.mark.parametrize("model", [AZURE, "gpt-4o"], ids=["azure", "name"])
@pytest.mark.parametrize("way_out", WAYS_OUT)
def test_every_way_out_sends_short_ids(
    way_out: Callable[[Any], list[BaseMessage]], model: Any
) -> None:
    check_short(way_out(model))


class Seeing(FakeListChatModel):
    """A model of the application's own under a name of OpenAI's; keeps what it is sent."""

    responses: list[str] = Field(default_factory=lambda: ["2 m."])
    model_name: str = "gpt-4o"
    seen: list[BaseMessage] = Field(default_factory=list)

    def _call(self, messages: list[BaseMessage], *args: Any, **rest: Any) -> str:
        self.seen[:] = messages
        return super()._call(messages, *args, **rest)


def test_the_middleware_sends_short_ids_to_the_model_of_the_run() -> None:
    model = Seeing()
    middleware = ContextBudgetMiddleware({"learn": False}, recall_tool=False)

    create_agent(model, middleware=[middleware]).invoke({"messages": [*HISTORY, QUESTION]}, RUN)

    check_short(model.seen)


async def test_a_whole_history_read_async_is_the_same() -> None:
    history = chat_history("gpt-4o")

    assert await history.aget_messages() == history.messages


def test_a_whole_history_does_not_have_the_long_id() -> None:
    assert LONG not in ids_of(chat_history("gpt-4o").messages)


def test_without_a_known_model_ids_are_such_as_every_provider_takes() -> None:
    assert LONG not in ids_of(assembled(None))


# Forecast and report


def test_a_forecast_tells_of_short_ids_and_counts_them() -> None:
    pipeline = pipeline_with_history("gpt-4o")
    report = pipeline.assemble(QUESTION, **SCOPE).report

    [forecast] = pipeline.what_if([pipeline.settings.max_context_tokens])

    assert [repair.kind for repair in forecast.repairs] == ["call_id"]
    assert forecast.total_tokens == report.total_tokens


def test_the_report_tells_which_message_was_repaired() -> None:
    another_call = HISTORY[1].model_copy(update={"id": "a3"})

    context = pipeline_with_history("gpt-4o").assemble([QUESTION, another_call], **SCOPE)

    repairs = [repair for repair in context.report.repairs if repair.kind == "call_id"]
    assert [repair.message_id for repair in repairs[:2]] == ["a1", "a3"]


# What is stored


def test_the_stored_messages_keep_their_ids() -> None:
    pipeline = pipeline_with_history("gpt-4o")
    pipeline.assemble(QUESTION, **SCOPE)

    assert pipeline.get_messages(**SCOPE) == HISTORY


def test_all_messages_of_a_history_keep_their_ids() -> None:
    assert chat_history("gpt-4o").all_messages == HISTORY


@pytest.mark.parametrize("way_out", [whole_history, window])
def test_what_a_history_gave_is_known_when_it_is_added(
    way_out: Callable[[Any], list[BaseMessage]],
) -> None:
    pipeline = pipeline_with_history("gpt-4o")

    pipeline.add_messages([*way_out("gpt-4o"), QUESTION], **SCOPE)

    assert pipeline.get_messages(**SCOPE) == [*HISTORY, QUESTION]


def test_another_call_under_the_id_of_a_message_is_refused() -> None:
    another_call = {**CALL, "id": "call_" + "M" * 61}
    message = HISTORY[1].model_copy(update={"tool_calls": [another_call]})

    with pytest.raises(MessageConflictError):
        pipeline_with_history("gpt-4o").add_messages([message], **SCOPE)


# Forms of a call


def function_call() -> dict[str, Any]:
    return {
        "type": "function_call",
        "id": "fc_1",
        "call_id": LONG,
        "name": "look",
        "arguments": "{}",
    }


FORMS: dict[str, AIMessage] = {
    "tool_use": AIMessage(
        [{"type": "tool_use", "id": LONG, "name": "look", "input": {}}], tool_calls=[CALL]
    ),
    "function_call": AIMessage([function_call()], tool_calls=[CALL]),
    "tool_call": AIMessage(
        [{"type": "tool_call", "id": LONG, "name": "look", "args": {}}], tool_calls=[CALL]
    ),
    "non_standard": AIMessage(
        [{"type": "non_standard", "value": function_call()}], tool_calls=[CALL]
    ),
    "invalid": AIMessage(
        "", invalid_tool_calls=[{"name": "look", "args": "{", "id": LONG, "error": "broken"}]
    ),
    "raw": AIMessage(
        "",
        additional_kwargs={
            "tool_calls": [
                {"id": LONG, "type": "function", "function": {"name": "look", "arguments": "{}"}}
            ]
        },
    ),
}


@pytest.fixture(scope="module", params=FORMS)
def context_of_form(request: pytest.FixtureRequest) -> AssembledContext:
    turn = [QUESTION, FORMS[request.param], ToolMessage("2 m.", tool_call_id=LONG)]
    return ContextPipeline(model="gpt-4o", store=InMemoryStore()).assemble(turn, **SCOPE)


@pytest.mark.slow
def test_no_form_of_a_call_is_sent_with_its_long_id(context_of_form: AssembledContext) -> None:
    assert LONG not in str([vars(message) for message in context_of_form.messages])


@pytest.mark.parametrize(
    "context_of_form",
    ["tool_use", "function_call", "tool_call", "invalid", "raw"],  # Responses alone reads the other
    indirect=True,
)
def test_chat_completions_accepts_every_form_of_a_call(context_of_form: AssembledContext) -> None:
    payload = AZURE._get_request_payload(context_of_form.messages)

    assert not chat_problems(payload)


def test_responses_accepts_every_form_of_a_call(context_of_form: AssembledContext) -> None:
    payload = RESPONSES._get_request_payload(context_of_form.messages)

    assert not responses_problems(json.loads(json.dumps(payload)))


def test_the_report_tells_of_every_form_of_a_call(context_of_form: AssembledContext) -> None:
    assert context_of_form.report.repairs[0].kind == "call_id"


def test_the_id_of_a_computer_call_is_short() -> None:
    call = {
        "type": "computer_call",
        "id": "cu_1",
        "call_id": LONG,
        "action": {"type": "screenshot"},
    }

    shown = [{"type": "input_image", "image_url": "https://x.invalid/screen.png"}]
    screen = ToolMessage(
        shown, tool_call_id=LONG, additional_kwargs={"type": "computer_call_output"}
    )
    turn = [QUESTION, AIMessage([call]), screen]

    context = ContextPipeline(model="gpt-4o").assemble(turn, **SCOPE)

    check_short(context.messages)


def test_an_id_of_40_characters_that_comes_twice_gets_a_short_one() -> None:
    call = {**CALL, "id": "L" * 40}
    round_ = [AIMessage("", tool_calls=[call]), ToolMessage("2 m.", tool_call_id="L" * 40)]
    turn = [QUESTION, *round_, *round_, *round_]

    ids = ids_of(ContextPipeline(model="gpt-4o").assemble(turn, **SCOPE).messages)

    ids_of_calls = ids[::2]
    assert ids_of_calls == ids[1::2]
    assert len(set(ids_of_calls)) == 3
    assert max(len(key) for key in ids) <= LONGEST


class TestAnAgentsTurn:
    """It is read on, and not anew, at each of three rounds."""

    @pytest.fixture(scope="class")
    @classmethod
    def context(cls) -> AssembledContext:
        pipeline = ContextPipeline(model="gpt-4o", store=InMemoryStore())
        turn: list[BaseMessage] = [QUESTION]
        for number in range(3):
            key = f"{number}{LONG}"
            turn += [
                AIMessage("", tool_calls=[{**CALL, "id": key}], id=f"a{number}"),
                ToolMessage("2 m.", tool_call_id=key),
            ]
            context = pipeline.assemble(turn, **SCOPE)
        return context

    def test_each_call_was_repaired(self, context: AssembledContext) -> None:
        repaired = [repair.message_id for repair in context.report.repairs]
        assert repaired == ["a0", "a1", "a2"]

    def test_every_call_and_result_is_there(self, context: AssembledContext) -> None:
        assert len(ids_of(context.messages)) == 6


# -- totals, and what is sent, on generated conversations

WORDS = "Paris invoice Alice Monday garden market server bike costs meeting blue alpha".split()
texts = st.lists(st.sampled_from(WORDS), min_size=1, max_size=60).map(" ".join)
id_lengths = st.integers(1, 200)


@st.composite
def rounds(draw: st.DrawFn) -> list[BaseMessage]:
    """An assistant's message with up to three calls, and most of their results."""
    calls: list[dict[str, Any]] = []
    results: list[BaseMessage] = []
    for number in range(draw(st.integers(1, 3))):
        key = f"{draw(st.integers(0, 10**6))}_{number}_" + "L" * draw(id_lengths)
        calls.append({"name": "search", "args": {"q": draw(texts)}, "id": key})
        if draw(st.booleans()):
            results.append(ToolMessage(draw(texts), tool_call_id=key))
    text = draw(st.just("") | texts)
    return [AIMessage(text, tool_calls=calls), *results]


answers = texts.map(lambda text: [AIMessage(text)]) | rounds()
turns = st.builds(
    lambda text, parts: [HumanMessage(text), *chain.from_iterable(parts)],
    texts,
    st.lists(answers, max_size=4),
)
histories = st.lists(turns, max_size=8).map(lambda parts: list(chain.from_iterable(parts)))


@pytest.mark.slow
@settings(
    max_examples=150, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)
@given(
    history=histories,
    turn=turns,
    budget=st.sampled_from([250, 660, 1_500, 20_000]),
    model=st.sampled_from(["gpt-4o", None]),
)
def test_totals_are_those_of_an_independent_count(
    chat_openai: ChatOpenAI,
    history: list[BaseMessage],
    turn: list[BaseMessage],
    budget: int,
    model: str | None,
) -> None:
    pipeline = ContextPipeline({"learn": False}, model=model, store=InMemoryStore())
    conversation = pipeline.conversation("c", user_id="u")
    conversation.add(*history)
    try:
        context = conversation.assemble(turn, settings={"max_context_tokens": budget})
    except BudgetTooSmallError:
        return

    counted = chat_openai.get_num_tokens_from_messages(context.messages)
    assert context.report.total_tokens == counted <= budget
    assert not any("made again" in failure for failure in context.report.failures)
    if model is not None:
        assert all(len(key) <= LONGEST for key in ids_of(context.messages))
