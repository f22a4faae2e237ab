"""Ids of calls that OpenAI refuses, of more than 40 characters.

Digests on every way out, in every form of a call.
"""

import json
from collections.abc import Callable, Sequence
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
    BudgetedChatMessageHistory,
    BudgetedMemory,
    ContextBudgetMiddleware,
    ContextPipeline,
    build_context_graph,
)  # fmt: skip
from langchain_ctxbudget.errors import BudgetTooSmallError, MessageConflictError
from tests.integration_tests.strict_openai_server import chat_problems, responses_problems

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
SAID: list[BaseMessage] = [
    HumanMessage("How long is it?", id="h1"),
    AIMessage("", tool_calls=[CALL], id="a1"),
    ToolMessage("5 m.", tool_call_id=LONG, id="t1"),
    AIMessage("It is 5 m long.", id="a2"),
]
ASKED = HumanMessage("And how wide?", id="h2")


def ids_of(messages: Sequence[BaseMessage]) -> list[str]:
    """All ids of calls that Chat Completions is sent with these messages."""
    body = AZURE._get_request_payload(list(messages))
    ids: list[str] = []
    for message in body["messages"]:
        ids += [call["id"] for call in message.get("tool_calls") or ()]
        ids += [message["tool_call_id"]] if "tool_call_id" in message else []
    return ids


def with_history(model: Any) -> ContextPipeline:
    pipeline = ContextPipeline(model=model, store=InMemoryStore())
    pipeline.add_messages(SAID, **SCOPE)
    return pipeline


def assembled(model: Any) -> list[BaseMessage]:
    return with_history(model).assemble(ASKED, **SCOPE).messages


def window(model: Any) -> list[BaseMessage]:
    return BudgetedChatMessageHistory("c1", user_id="ada", pipeline=with_history(model)).window(
        1_000
    )


def whole_history(model: Any) -> list[BaseMessage]:
    return BudgetedChatMessageHistory("c1", user_id="ada", pipeline=with_history(model)).messages


def memory(model: Any) -> list[BaseMessage]:
    kept = BudgetedMemory(
        pipeline=with_history(model), user_id="ada", conversation_id="c1", max_tokens=1_000
    )
    messages: list[BaseMessage] = kept.load_memory_variables({})["history"]
    return messages


def runnable(model: Any) -> list[BaseMessage]:
    state = {"messages": [*SAID, ASKED]}
    return ContextPipeline(model=model, store=InMemoryStore()).as_runnable().invoke(state, RUN)


def graph(model: Any) -> list[BaseMessage]:
    built = build_context_graph(ContextPipeline(model=model, store=InMemoryStore()))
    messages: list[BaseMessage] = built.invoke({"messages": [*SAID, ASKED]}, RUN)[
        "llm_input_messages"
    ]
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
    called, answered = ids_of(way_out(model))
    assert called == answered
    assert len(called) <= LONGEST


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
    budget = ContextBudgetMiddleware({"learn": False}, recall_tool=False)
    create_agent(model, middleware=[budget]).invoke({"messages": [*SAID, ASKED]}, RUN)
    called, answered = ids_of(model.seen)
    assert called == answered
    assert len(called) <= LONGEST


def test_a_forecast_has_short_ids_too() -> None:
    pipeline = with_history("gpt-4o")
    total = pipeline.assemble(ASKED, **SCOPE).report.total_tokens
    [other] = pipeline.what_if([pipeline.settings.max_context_tokens])
    assert ([it.kind for it in other.repairs], other.total_tokens) == (["call_id"], total)


def test_the_report_tells_which_message_was_repaired() -> None:
    context = with_history("gpt-4o").assemble(
        [ASKED, SAID[1].model_copy(update={"id": "a3"})], **SCOPE
    )
    repaired = [it.message_id for it in context.report.repairs if it.kind == "call_id"]
    assert repaired[:2] == ["a1", "a3"]


def test_the_stored_messages_keep_their_ids() -> None:
    pipeline = with_history("gpt-4o")
    pipeline.assemble(ASKED, **SCOPE)
    assert pipeline.get_messages(**SCOPE) == SAID


async def test_a_whole_history_read_async_has_short_ids() -> None:
    history = BudgetedChatMessageHistory("c1", user_id="ada", pipeline=with_history("gpt-4o"))
    assert await history.aget_messages() == history.messages
    assert LONG not in ids_of(history.messages)


def test_all_messages_of_a_history_keep_their_ids() -> None:
    history = BudgetedChatMessageHistory("c1", user_id="ada", pipeline=with_history("gpt-4o"))
    assert history.all_messages == SAID


@pytest.mark.parametrize("way_out", [whole_history, window])
def test_what_a_history_gave_is_known_when_it_is_added(
    way_out: Callable[[Any], list[BaseMessage]],
) -> None:
    pipeline = with_history("gpt-4o")
    pipeline.add_messages([*way_out("gpt-4o"), ASKED], **SCOPE)
    assert pipeline.get_messages(**SCOPE) == [*SAID, ASKED]


def test_another_call_under_the_id_of_a_message_is_refused() -> None:
    other = SAID[1].model_copy(update={"tool_calls": [{**CALL, "id": "call_" + "M" * 61}]})
    with pytest.raises(MessageConflictError):
        with_history("gpt-4o").add_messages([other], **SCOPE)


def test_without_a_known_model_ids_stay_as_they_are() -> None:
    assert ids_of(assembled(None)) == [LONG, LONG]


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


@pytest.mark.parametrize("form", FORMS)
def test_ids_are_short_in_every_form_of_a_call(form: str) -> None:
    turn = [ASKED, FORMS[form], ToolMessage("2 m.", tool_call_id=LONG)]
    context = ContextPipeline(model="gpt-4o", store=InMemoryStore()).assemble(turn, **SCOPE)
    sent = str([vars(message) for message in context.messages])
    assert LONG not in sent
    if form != "non_standard":  # which Responses alone reads
        assert not chat_problems(AZURE._get_request_payload(context.messages))
    assert not responses_problems(
        json.loads(json.dumps(RESPONSES._get_request_payload(context.messages)))
    )
    assert [it.kind for it in context.report.repairs][:1] == ["call_id"]


def test_the_id_of_a_computer_call_is_short() -> None:
    call = {
        "type": "computer_call",
        "id": "cu_1",
        "call_id": LONG,
        "action": {"type": "screenshot"},
    }
    context = ContextPipeline(model="gpt-4o").assemble([ASKED, AIMessage([call])], **SCOPE)
    [block] = context.messages[-1].content
    assert isinstance(block, dict)
    assert len(block["call_id"]) <= LONGEST


def test_an_id_of_40_characters_that_comes_twice_gets_a_short_one() -> None:
    call = {**CALL, "id": "L" * LONGEST}
    turn = [
        ASKED,
        *[AIMessage("", tool_calls=[call]), ToolMessage("2 m.", tool_call_id=call["id"])] * 3,
    ]
    ids = ids_of(ContextPipeline(model="gpt-4o").assemble(turn, **SCOPE).messages)
    assert ids[::2] == ids[1::2]
    assert len({*ids[::2]}) == len(turn) // 2
    assert max(map(len, ids)) <= LONGEST


def test_an_agents_turn_is_read_on_and_not_anew_at_each_step() -> None:
    pipeline = ContextPipeline(model="gpt-4o", store=InMemoryStore())
    turn: list[BaseMessage] = [ASKED]
    for step in range(3):
        call = {**CALL, "id": f"{step}{LONG}"}
        turn += [
            AIMessage("", tool_calls=[call], id=f"a{step}"),
            ToolMessage("2 m.", tool_call_id=call["id"]),
        ]
        context = pipeline.assemble(turn, **SCOPE)
    assert [it.message_id for it in context.report.repairs] == ["a0", "a1", "a2"]
    assert len(ids_of(context.messages)) == len(turn) - 1


# -- totals, and what is sent, on generated conversations

WORDS = "Paris invoice Alice Monday garden market server bike costs meeting blue alpha".split()
texts = st.lists(st.sampled_from(WORDS), min_size=1, max_size=60).map(" ".join)
id_lengths = st.integers(1, 200)


@st.composite
def rounds(draw: st.DrawFn) -> list[BaseMessage]:
    """An assistant's message with up to three calls, and most of their results."""
    lengths = draw(st.lists(id_lengths, min_size=1, max_size=3))
    tags = [f"{draw(st.integers(0, 10**6))}_{number}_" for number in range(len(lengths))]
    ids = [tag + "L" * length for tag, length in zip(tags, lengths, strict=True)]
    calls = [{"name": "search", "args": {"q": draw(texts)}, "id": key} for key in ids]
    answers = [ToolMessage(draw(texts), tool_call_id=key) for key in ids if draw(st.booleans())]
    return [AIMessage(draw(st.one_of(st.just(""), texts)), tool_calls=calls), *answers]


answers = st.one_of(texts.map(lambda text: [AIMessage(text)]), rounds())
turns = st.builds(
    lambda text, parts: [HumanMessage(text), *(message for part in parts for message in part)],
    texts,
    st.lists(answers, max_size=4),
)
histories = st.lists(turns, max_size=8).map(
    lambda parts: [message for part in parts for message in part]
)


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
    chat = ContextPipeline({"learn": False}, model=model, store=InMemoryStore()).conversation(
        "c", user_id="u"
    )
    chat.add(*history)
    try:
        context = chat.assemble(turn, settings={"max_context_tokens": budget})
    except BudgetTooSmallError:
        return
    counted = chat_openai.get_num_tokens_from_messages(context.messages)
    assert context.report.total_tokens == counted <= budget
    assert not [line for line in context.report.failures if "made again" in line]
    ids = ids_of(context.messages)
    assert model is None or all(len(key) <= LONGEST for key in ids)
