"""One conversation for several models: `with_model`, windows in the pipeline, counts that usage corrects."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_openai import ChatOpenAI
from langgraph.store.base import Op, SearchOp
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import ContextPipeline, EstimatingCounter
from langchain_ctxbudget.errors import BudgetTooSmallError, InputError
from langchain_ctxbudget.tokens import CalibratedCounter
from tests.integration_tests import strategies as made
from tests.integration_tests.model_servers import ModelServer, Routes, model_list, ollama, vllm
from tests.integration_tests.openai_server import OpenAIServer, says
from tests.integration_tests.test_promises import check_adds_up, check_floors
from tests.integration_tests.test_saved_settings import WatchedStore

pytestmark = pytest.mark.allow_hosts(["127.0.0.1"])

SCOPE = {"user_id": "ada", "conversation_id": "c1"}
SYSTEM_PROMPT = "You are a careful assistant. <context> stays as it is."
CLAUDE = "claude-sonnet-4-5"
QUESTION = "Where does lamp 7 stand?"

common = settings(deadline=None, suppress_health_check=list(HealthCheck))
quick = settings(common, max_examples=40)
long = settings(common, max_examples=800)

Serve = Callable[..., ModelServer]


def message_reads(store: WatchedStore) -> list[Op]:
    """Reads of the conversation's messages since the last call; what is on top of them is read by id."""
    asked, store.batches = store.batches, []
    searches = [op for ops in asked for op in ops if isinstance(op, SearchOp)]
    return [op for op in searches if len(op.namespace_prefix) > 3]  # not those of all conversations of a user


def chat(exchanges: int, start: int = 0) -> list[BaseMessage]:
    messages: list[BaseMessage] = []
    for number in range(start, start + exchanges):
        messages.append(HumanMessage(f"Where does lamp {number} stand?", id=f"h{number}"))
        answer = f"Lamp {number} stands in room {number % 7}, and it costs {number},50 € in the shop of Zoë."
        messages.append(AIMessage(answer, id=f"a{number}"))
    return messages


def profiled(window: int, answer: int = 0, **rest: Any) -> ChatOpenAI:
    profile: Any = {"max_input_tokens": window, "max_output_tokens": answer}
    return ChatOpenAI(model="gpt-4o", api_key="not-used", profile=profile, **rest)


def pipeline(budget: int = 12_000, **rest: Any) -> ContextPipeline:
    rest.setdefault("store", InMemoryStore())
    return ContextPipeline({"max_context_tokens": budget, "learn": False}, system_prompt=SYSTEM_PROMPT, **rest)


# The same conversation for another model


def test_another_model_does_not_read_the_history_again() -> None:
    store = WatchedStore()
    first = pipeline(store=store)
    first.add_messages(chat(100), **SCOPE)
    first.assemble(QUESTION, **SCOPE)
    message_reads(store)
    for model in (CLAUDE, "gpt-4.1", profiled(2_000)):
        second = first.with_model(model)
        assert len(second.get_messages(**SCOPE)) == 200
        second.assemble(QUESTION, **SCOPE)
    assert message_reads(store) == []


def test_the_prompt_is_that_of_a_pipeline_which_had_the_model_from_the_start() -> None:
    store = InMemoryStore()
    first = pipeline(1_500, store=store)
    first.add_messages(chat(150), **SCOPE)
    for model in (CLAUDE, profiled(1_200, 300)):
        refitted = first.with_model(model).assemble(QUESTION, **SCOPE)
        fresh = pipeline(1_500, store=store, model=model).assemble(QUESTION, **SCOPE)
        assert refitted.messages == fresh.messages
        assert refitted.report.layers == fresh.report.layers


@pytest.mark.parametrize(("window", "answer"), [(800, 100), (2_000, 600), (8_000, 1_000), (100_000, 16_000)])
def test_it_fits_the_window_of_the_other_model(chat_openai: ChatOpenAI, window: int, answer: int) -> None:
    first = pipeline(20_000)
    first.add_messages(chat(150), **SCOPE)
    first.assemble(QUESTION, **SCOPE)
    context = first.with_model(profiled(window, answer)).assemble(QUESTION, **SCOPE)
    counted = chat_openai.get_num_tokens_from_messages(context.messages)
    assert counted == context.report.total_tokens <= min(20_000, window - answer)
    assert (context.report.window_tokens, context.report.window_source) == (window, "profile")
    assert context.report.output_reserve_tokens == answer
    check_adds_up(context)


def test_the_prompts_of_a_model_do_not_depend_on_whom_else_the_conversation_is_for() -> None:
    """P8: the same messages and settings give the same prompts."""

    def prompts(other: bool) -> list[list[BaseMessage]]:
        first = pipeline(3_000)
        first.add_messages(chat(100), **SCOPE)
        second = first.with_model(profiled(1_000))
        result = []
        for number in range(100, 106):
            result.append(first.assemble(QUESTION, **SCOPE).messages)
            if other:
                second.assemble(QUESTION, **SCOPE)
            first.add_messages(chat(1, number), **SCOPE)
        return result

    assert prompts(other=True) == prompts(other=False)


# Windows


@pytest.fixture
def serve() -> Iterator[Serve]:
    with ExitStack() as servers:
        yield lambda routes, **rest: servers.enter_context(ModelServer(routes, **rest))


def served(server: ModelServer, name: str = "m", **rest: Any) -> ChatOpenAI:
    return ChatOpenAI(model=name, base_url=f"{server.url}/v1", api_key="sk-secret", max_retries=0, **rest)


@pytest.mark.parametrize("routes", [vllm("m", window=1_900), ollama("m", trained=1_900)], ids=["vllm", "ollama"])
def test_a_served_model_tells_its_window_once(serve: Serve, routes: Routes) -> None:
    server = serve(routes)
    made_for = pipeline(50_000, model=served(server))
    made_for.add_messages(chat(150), **SCOPE)
    report = made_for.assemble(QUESTION, settings={"window_tokens": 999}, **SCOPE).report
    assert (report.window_tokens, report.window_source, report.failures) == (1_900, "served", ())
    assert report.total_tokens <= report.budget_tokens == 1_900
    asked = len(server.asked)
    for _ in range(3):
        made_for.assemble(QUESTION, **SCOPE)
    assert len(server.asked) == asked


def test_a_server_that_does_not_tell_is_a_failure_and_is_asked_three_times(serve: Serve) -> None:
    server = serve({"GET /v1/models": model_list({"id": "m"})})
    made_for = pipeline(500, model=served(server))
    made_for.add_messages(chat(100), **SCOPE)
    reports = [made_for.assemble(QUESTION, **SCOPE).report for _ in range(6)]
    assert server.lines.count("GET /v1/models") == 3
    for report in reports:
        assert any("did not tell the window of 'm'" in failure for failure in report.failures)
        assert (report.window_source, report.budget_tokens) == ("unknown", 500)
        assert 300 < report.total_tokens <= 500
    assert "sk-secret" not in str(reports)


# Usage that was observed


UNUSABLE: list[Any] = [
    *({"input_tokens": value} for value in (-1, "100", None, 1.5, True, float("nan"))),
    *({}, {"total_tokens": 5}, "100", 100, [("input_tokens", 1)]),
]


def test_usage_that_is_none_is_an_error() -> None:
    made_for = pipeline(model=CLAUDE)
    made_for.assemble("Hi", **SCOPE)
    for usage in UNUSABLE:
        with pytest.raises(InputError, match="input_tokens"):
            made_for.observe_usage(usage)
    assert made_for.observe_usage(None) == 1.0


def test_what_a_real_answer_reports_corrects_the_next_prompt(offline_tiktoken: None) -> None:
    def measure(body: Any) -> int:
        return 3 * sum(len(str(message["content"])) // 4 + 4 for message in body["messages"])

    with OpenAIServer(lambda _: says("In room 3."), measure) as server:
        model = ChatOpenAI(model=CLAUDE, base_url=server.url, api_key="not-used", profile={"max_input_tokens": 4_000})
        made_for = ContextPipeline({"max_context_tokens": 4_000}, model=model, store=InMemoryStore())
        made_for.add_messages(chat(200), **SCOPE)
        for _ in range(3):
            context = made_for.assemble(QUESTION, **SCOPE)
            answer = model.invoke(context.messages)
            assert isinstance(answer, AIMessage)
            made_for.observe_usage(answer.usage_metadata)
        tokens = measure(server.received[-1])
        assert tokens <= context.report.total_tokens <= 4_000
        assert context.report.uncorrected_tokens < context.report.total_tokens


shares = st.floats(0.3, 3.0, allow_nan=False)


@quick
@given(history=made.history, turn=made.turns, budget=made.budgets, share=shares, changes=made.settings)
def test_with_any_correction_it_fits_and_adds_up(
    history: list[BaseMessage], turn: Any, budget: int, share: float, changes: dict[str, Any]
) -> None:
    made_for = ContextPipeline(
        {**changes, "max_context_tokens": budget},
        system_prompt=SYSTEM_PROMPT,
        store=InMemoryStore(),
        token_counter=EstimatingCounter(),
    )
    known = made_for.assemble("word " * 300, settings={"max_context_tokens": 12_000}, **SCOPE).report
    made_for.observe_usage({"input_tokens": max(1, round(known.total_tokens * share))}, report=known)
    made_for.add_messages(history, **SCOPE)
    try:
        context = made_for.assemble(turn, **SCOPE)
    except BudgetTooSmallError as error:
        check_floors(error, budget)
        return
    counter = made_for.token_counter
    if any("with the corrections by observed usage" in failure for failure in context.report.failures):
        assert isinstance(counter, CalibratedCounter)
        counter = counter.inner  # the corrections alone would have refused it
    assert counter.count_messages(context.messages) == context.report.total_tokens <= budget
    check_adds_up(context)
