"""One conversation for several models: `with_model`, windows in the pipeline, counts that usage corrects."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_openai import ChatOpenAI
from langgraph.store.base import Op, PutOp, Result, SearchOp
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import ChromaStore, ContextPipeline, EstimatingCounter, TiktokenCounter
from langchain_ctxbudget.errors import BudgetTooSmallError, CtxBudgetError, InputError, StoreError
from tests.integration_tests import strategies as made
from tests.integration_tests.conftest import Call
from tests.integration_tests.model_servers import ModelServer, Routes, as_json, model_list, ollama, vllm
from tests.integration_tests.openai_server import OpenAIServer, says
from tests.integration_tests.test_promises import check_adds_up, check_floors

pytestmark = pytest.mark.allow_hosts(["127.0.0.1"])

SCOPE = {"user_id": "ada", "conversation_id": "c1"}
SYSTEM_PROMPT = "You are a careful assistant. <context> stays as it is."
CLAUDE = "claude-sonnet-4-5"
QUESTION = "Where does lamp 7 stand?"

common = settings(deadline=None, suppress_health_check=list(HealthCheck))
quick = settings(common, max_examples=60)
long = settings(common, max_examples=800)

Serve = Callable[..., ModelServer]


class WatchedStore(InMemoryStore):
    """Remembers the operations it was asked for; fails where it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[list[Op]] = []
        self.fails: Callable[[Op], bool] = lambda _: False

    def _note(self, ops: Iterable[Op]) -> list[Op]:
        given_ops = list(ops)
        self.asked.append(given_ops)
        if any(map(self.fails, given_ops)):
            raise OSError("the disk is gone")
        return given_ops

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        return super().batch(self._note(ops))

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        return await super().abatch(self._note(ops))

    def message_reads(self) -> list[Op]:
        """Reads of the conversation's messages since the last call; what is on top of them is read by id."""
        asked, self.asked = self.asked, []
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


def test_another_model_does_not_read_the_history_again(call: Call) -> None:
    store = WatchedStore()
    first = pipeline(store=store)
    call(first, "add_messages", chat(100), **SCOPE)
    call(first, "assemble", QUESTION, **SCOPE)
    store.message_reads()
    for model in (CLAUDE, "gpt-4.1", profiled(2_000)):
        second = first.with_model(model)
        assert len(call(second, "get_messages", **SCOPE)) == 200
        call(second, "assemble", QUESTION, **SCOPE)
    assert store.message_reads() == []


def test_a_conversation_that_is_not_open_is_read_once(call: Call) -> None:
    store = WatchedStore()
    call(pipeline(store=store), "add_messages", chat(10), **SCOPE)
    second = pipeline(store=store).with_model(CLAUDE)
    store.message_reads()
    assert len(call(second, "get_messages", **SCOPE)) == 20
    assert len(store.message_reads()) > 0
    call(second, "assemble", QUESTION, **SCOPE)
    assert store.message_reads() == []


def test_the_counts_are_those_of_the_other_tokenizer(call: Call) -> None:
    first = pipeline()
    call(first, "add_messages", chat(20), **SCOPE)
    exact = call(first, "assemble", QUESTION, **SCOPE).report
    other = call(first.with_model(CLAUDE), "assemble", QUESTION, **SCOPE)
    assert (exact.count_mode, other.report.count_mode) == ("exact", "estimated")
    assert other.report.total_tokens == EstimatingCounter().count_messages(other.messages) > exact.total_tokens


def test_the_prompt_is_that_of_a_pipeline_which_had_the_model_from_the_start(call: Call) -> None:
    store = InMemoryStore()
    first = pipeline(1_500, store=store)
    call(first, "add_messages", chat(150), **SCOPE)
    for model in (CLAUDE, profiled(1_200, 300)):
        refitted = call(first.with_model(model), "assemble", QUESTION, **SCOPE)
        fresh = call(pipeline(1_500, store=store, model=model), "assemble", QUESTION, **SCOPE)
        assert refitted.messages == fresh.messages
        assert refitted.report.layers == fresh.report.layers


@pytest.mark.parametrize(("window", "answer"), [(800, 100), (2_000, 600), (8_000, 1_000), (100_000, 16_000)])
def test_it_fits_the_window_of_the_other_model(call: Call, chat_openai: ChatOpenAI, window: int, answer: int) -> None:
    first = pipeline(20_000)
    call(first, "add_messages", chat(150), **SCOPE)
    call(first, "assemble", QUESTION, **SCOPE)
    context = call(first.with_model(profiled(window, answer)), "assemble", QUESTION, **SCOPE)
    counted = chat_openai.get_num_tokens_from_messages(context.messages)
    assert counted == context.report.total_tokens <= min(20_000, window - answer)
    assert (context.report.window_tokens, context.report.window_source) == (window, "profile")
    assert context.report.output_reserve_tokens == answer
    check_adds_up(context)


def test_both_see_what_the_other_appends(call: Call) -> None:
    first = pipeline()
    call(first, "add_messages", chat(2), **SCOPE)
    second = first.with_model(CLAUDE)
    third = second.with_model(profiled(4_000))
    expected = [message.id for message in chat(2)]
    for number in range(12):
        writer = (first, second, third)[number % 3]
        call(writer, "add_messages", [HumanMessage(f"by {number}", id=f"n{number}")], **SCOPE)
        expected.append(f"n{number}")
        for reader in (first, second, third):
            assert [message.id for message in call(reader, "get_messages", **SCOPE)] == expected
            assert call(reader, "assemble", "And?", **SCOPE).messages[-2].content == f"by {number}"


def test_an_edit_by_one_is_an_edit_for_the_other(call: Call) -> None:
    first = pipeline(1_000)
    messages = chat(60)
    call(first, "add_messages", messages, **SCOPE)
    call(first, "assemble", QUESTION, **SCOPE)
    second = first.with_model(CLAUDE)
    call(second, "assemble", QUESTION, **SCOPE)
    messages[15] = AIMessage("Lamp 7 was SOLD.", id="a7")
    call(first, "sync", messages, **SCOPE)
    assert "SOLD" in str(call(second, "assemble", QUESTION, **SCOPE).messages)
    del messages[14:16]
    call(second, "sync", messages, **SCOPE)
    assert "SOLD" not in str(call(first, "assemble", QUESTION, **SCOPE).messages)


def test_two_models_with_different_windows_in_turn_do_not_compact_at_every_turn(call: Call) -> None:
    """As where a small model routes and a large one answers: the prompt of each stays stable."""
    store = WatchedStore()
    settings = {"max_context_tokens": 3_000, "emphasis": "cache"}
    large = ContextPipeline(settings, system_prompt=SYSTEM_PROMPT, store=store)
    call(large, "add_messages", chat(150), **SCOPE)
    small = large.with_model(profiled(1_500))
    reports = {"large": [], "small": []}
    for number in range(300, 306):
        reports["large"].append(call(large, "assemble", QUESTION, **SCOPE).report)
        reports["small"].append(call(small, "assemble", QUESTION, **SCOPE).report)
        call(large, "add_messages", chat(1, number), **SCOPE)
    for name, of_model in reports.items():
        steps = [report.stability.compaction_step for report in of_model[1:]]
        assert sum(steps) <= 1, f"compaction steps of the {name} one: {steps}"


def test_the_prompts_of_a_model_do_not_depend_on_whom_else_the_conversation_is_for(call: Call) -> None:
    """P8: the same messages and settings give the same prompts."""

    def prompts(other: bool) -> list[list[BaseMessage]]:
        first = pipeline(3_000)
        call(first, "add_messages", chat(100), **SCOPE)
        second = first.with_model(profiled(1_000))
        result = []
        for number in range(100, 106):
            result.append(call(first, "assemble", QUESTION, **SCOPE).messages)
            if other:
                call(second, "assemble", QUESTION, **SCOPE)
            call(first, "add_messages", chat(1, number), **SCOPE)
        return result

    assert prompts(other=True) == prompts(other=False)


def test_a_model_may_be_changed_for_every_turn(call: Call) -> None:
    current = pipeline()
    call(current, "add_messages", chat(5), **SCOPE)
    for number in range(1_200):
        current = current.with_model((CLAUDE, None)[number % 2])
    assert len(call(current, "get_messages", **SCOPE)) == 10
    assert call(current, "get_messages", **{**SCOPE, "conversation_id": "c2"}) == []


def test_a_failed_write_of_the_twin_loses_nothing(call: Call) -> None:
    store = WatchedStore()
    first = pipeline(store=store)
    call(first, "add_messages", chat(2), **SCOPE)
    second = first.with_model(CLAUDE)
    call(second, "get_messages", **SCOPE)
    store.fails = lambda op: isinstance(op, PutOp) and "lanes" in op.namespace
    with pytest.raises(OSError, match="the disk is gone"):
        call(second, "add_messages", [HumanMessage("half written", id="x1")], **SCOPE)
    store.fails = lambda _: False
    call(second, "add_messages", [HumanMessage("half written", id="x1"), AIMessage("answer", id="x2")], **SCOPE)
    ids = [*(message.id for message in chat(2)), "x1", "x2"]
    for reader in (first, second, pipeline(store=store)):
        assert [message.id for message in call(reader, "get_messages", **SCOPE)] == ids


def test_threads_use_both_at_once() -> None:
    first = pipeline()
    first.add_messages(chat(5), **SCOPE)
    second = first.with_model(CLAUDE)
    failures: list[BaseException] = []

    def work(mine: ContextPipeline, name: str) -> None:
        try:
            for number in range(15):
                mine.add_messages([HumanMessage(f"{name} {number}", id=f"{name}{number}")], **SCOPE)
                mine.assemble("And?", **SCOPE)
        except BaseException as error:  # noqa: BLE001 - shown by the test
            failures.append(error)

    threads = [threading.Thread(target=work, args=pair) for pair in ((first, "f"), (second, "s"), (first, "t"))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    ids = [[message.id for message in reader.get_messages(**SCOPE)] for reader in (first, second)]
    assert ids[0] == ids[1]
    assert len(ids[0]) == 10 + 45


def test_tasks_use_both_at_once() -> None:
    first = pipeline()

    async def work(mine: ContextPipeline, name: str) -> None:
        for number in range(10):
            await mine.aadd_messages([HumanMessage(f"{name} {number}", id=f"{name}{number}")], **SCOPE)
            await mine.aassemble("And?", **SCOPE)

    async def both() -> None:
        await first.aadd_messages(chat(5), **SCOPE)
        second = first.with_model(CLAUDE)
        await asyncio.gather(work(first, "f"), work(second, "s"))
        assert await first.aget_messages(**SCOPE) == await second.aget_messages(**SCOPE)

    asyncio.run(both())


def test_closing_the_twin_leaves_the_store_open(call: Call) -> None:
    with ContextPipeline() as first:
        call(first, "add_messages", chat(2), **SCOPE)
        second = first.with_model(CLAUDE)
        second.close()
        with pytest.raises(StoreError, match="closed"):
            call(second, "get_messages", **SCOPE)
        assert len(call(first, "get_messages", **SCOPE)) == 4


def test_after_the_owner_is_closed_the_twin_says_so(call: Call) -> None:
    first = ContextPipeline()
    call(first, "add_messages", chat(2), **SCOPE)
    second = first.with_model(CLAUDE)
    first.close()
    with pytest.raises(StoreError, match="closed"):
        call(second, "assemble", QUESTION, **SCOPE)
    with pytest.raises(StoreError, match="closed"):
        first.with_model(CLAUDE)


def test_a_counter_that_is_none_is_refused_as_by_the_constructor() -> None:
    wrong: Any = "o200k_base"
    with pytest.raises(CtxBudgetError, match="token_counter"):
        ContextPipeline(token_counter=wrong)
    with pytest.raises(CtxBudgetError, match="token_counter"):
        pipeline().with_model(CLAUDE, token_counter=wrong)


def test_chroma_serves_both(call: Call) -> None:
    with ChromaStore() as store:
        first = pipeline(1_000, store=store)
        call(first, "add_messages", chat(60), **SCOPE)
        second = first.with_model(CLAUDE)
        call(second, "add_messages", [HumanMessage("Lamp 7 is BROKEN.", id="x")], **SCOPE)
        assert "BROKEN" in str(call(first, "assemble", QUESTION, **SCOPE).messages)
        assert call(second, "assemble", QUESTION, **SCOPE).report.total_tokens <= 1_000


# Windows


@pytest.fixture
def serve() -> Iterator[Serve]:
    with ExitStack() as servers:
        yield lambda routes, **rest: servers.enter_context(ModelServer(routes, **rest))


def served(server: ModelServer, name: str = "m", **rest: Any) -> ChatOpenAI:
    return ChatOpenAI(model=name, base_url=f"{server.url}/v1", api_key="sk-secret", max_retries=0, **rest)


def test_the_profile_comes_first_and_the_server_is_not_asked(call: Call, serve: Serve) -> None:
    server = serve(vllm("m", window=4_096))
    made_for = pipeline(store=InMemoryStore(), model=served(server, profile={"max_input_tokens": 2_048}))
    report = call(made_for, "assemble", "Hi", settings={"window_tokens": 1_024}, **SCOPE).report
    assert (report.window_tokens, report.window_source, server.asked) == (2_048, "profile", [])


@pytest.mark.parametrize("routes", [vllm("m", window=1_900), ollama("m", trained=1_900)], ids=["vllm", "ollama"])
def test_a_served_model_tells_its_window_once(call: Call, serve: Serve, routes: Routes) -> None:
    server = serve(routes)
    made_for = pipeline(50_000, model=served(server))
    call(made_for, "add_messages", chat(150), **SCOPE)
    report = call(made_for, "assemble", QUESTION, settings={"window_tokens": 999}, **SCOPE).report
    assert (report.window_tokens, report.window_source, report.failures) == (1_900, "served", ())
    assert report.total_tokens <= report.budget_tokens == 1_900
    asked = len(server.asked)
    for _ in range(3):
        call(made_for, "assemble", QUESTION, **SCOPE)
    assert len(server.asked) == asked


def test_the_setting_comes_last(call: Call) -> None:
    made_for = pipeline(50_000, model=CLAUDE)
    call(made_for, "add_messages", chat(150), **SCOPE)
    unknown = call(made_for, "assemble", QUESTION, **SCOPE).report
    assert (unknown.window_tokens, unknown.window_source) == (None, "unknown")
    report = call(made_for, "assemble", QUESTION, settings={"window_tokens": 3_000}, **SCOPE).report
    assert (report.window_tokens, report.window_source) == (3_000, "settings")
    assert report.total_tokens <= 3_000


def test_the_window_of_the_setting_is_not_remembered_for_other_calls(call: Call) -> None:
    made_for = pipeline(model=CLAUDE)
    sizes = [call(made_for, "assemble", "Hi", settings={"window_tokens": size}, **SCOPE).report for size in (300, 900)]
    assert [report.window_tokens for report in sizes] == [300, 900]


def test_a_server_that_does_not_tell_is_a_failure_and_is_asked_three_times(call: Call, serve: Serve) -> None:
    server = serve({"GET /v1/models": model_list({"id": "m"})})
    made_for = pipeline(500, model=served(server))
    call(made_for, "add_messages", chat(100), **SCOPE)
    reports = [call(made_for, "assemble", QUESTION, **SCOPE).report for _ in range(6)]
    assert server.lines.count("GET /v1/models") == 3
    for report in reports:
        assert any("did not tell the window of 'm'" in failure for failure in report.failures)
        assert (report.window_source, report.budget_tokens) == ("unknown", 500)
        assert 300 < report.total_tokens <= 500
    assert "sk-secret" not in str(reports)


def test_conversations_that_begin_at_once_do_not_ask_more_often(serve: Serve) -> None:
    server = serve({"GET /v1/models": model_list({"id": "m"})})
    made_for = pipeline(model=served(server))

    async def at_once() -> None:
        await asyncio.gather(*(made_for.aassemble("Hi", user_id="ada", conversation_id=f"c{n}") for n in range(10)))

    asyncio.run(at_once())
    assert server.lines.count("GET /v1/models") <= 3


def test_a_server_that_comes_up_later_is_found(call: Call, serve: Serve) -> None:
    server = serve({"GET /v1/models": as_json({"error": "loading"}, 503)})
    made_for = pipeline(model=served(server))
    assert call(made_for, "assemble", "Hi", **SCOPE).report.window_tokens is None
    server.routes = vllm("m", window=4_096)
    report = call(made_for, "assemble", "Hi", **SCOPE).report
    assert (report.window_tokens, report.window_source, report.failures) == (4_096, "served", ())


def test_a_dead_server_leaves_the_turn_alone(call: Call) -> None:
    with ModelServer({}) as gone:
        model = served(gone)
    made_for = pipeline(500, model=model)
    call(made_for, "add_messages", chat(100), **SCOPE)
    report = call(made_for, "assemble", QUESTION, settings={"window_tokens": 400}, **SCOPE).report
    assert any("could not connect" in failure for failure in report.failures)
    assert (report.window_tokens, report.window_source) == (400, "settings")
    assert report.total_tokens <= 400


def test_a_window_smaller_than_the_floors_names_the_window(call: Call, serve: Serve) -> None:
    made_for = ContextPipeline(model=served(serve(vllm("m", window=60))), store=InMemoryStore())
    with pytest.raises(BudgetTooSmallError, match="window of 60 tokens"):
        call(made_for, "assemble", "A question. " * 40, **SCOPE)


# Usage that was observed


def provider(share: float, hidden: int = 0) -> Callable[[list[BaseMessage]], int]:
    """A provider whose tokenizer makes so many times the tokens of o200k_base, and adds some of its own."""
    exact = TiktokenCounter()
    return lambda messages: round(exact.count_messages(messages) * share) + hidden


def converse(
    made_for: ContextPipeline, true_tokens: Callable[[list[BaseMessage]], int], turns: int
) -> list[tuple[Any, int]]:
    """Turns of a conversation; of each the report and what was measured for its prompt."""
    measured: list[tuple[Any, int]] = []
    for number in range(turns):
        question = HumanMessage(f"Question {number}: where does lamp {number * 3} stand, and what does it cost?")
        context = made_for.assemble(question, **SCOPE)
        tokens = true_tokens(context.messages)
        measured.append((context, tokens))
        made_for.observe_usage({"input_tokens": tokens, "output_tokens": 7, "total_tokens": tokens + 7})
        made_for.add_messages([question, AIMessage(f"In room {number}. " * 12)], **SCOPE)
    return measured


@pytest.mark.parametrize("share", [0.7, 1.0, 1.3, 1.8])
def test_after_a_few_turns_the_totals_are_close_to_what_the_provider_measures(share: float) -> None:
    made_for = pipeline(3_000, model=CLAUDE)
    made_for.add_messages(chat(200), **SCOPE)
    turns = converse(made_for, provider(share), 30)
    for context, tokens in turns[3:]:
        assert tokens <= context.report.total_tokens <= 1.25 * tokens
        assert context.report.total_tokens <= 3_000
        check_adds_up(context)


@pytest.mark.parametrize(("share", "hidden"), [(0.7, 0), (1.3, 0), (1.3, 350), (2.5, 40)])
def test_a_prompt_never_counts_as_less_than_was_measured_for_it(share: float, hidden: int) -> None:
    made_for = pipeline(3_000, model=CLAUDE)
    made_for.add_messages(chat(100), **SCOPE)
    for context, tokens in converse(made_for, provider(share, hidden), 12):
        assert made_for.token_counter.count_messages(context.messages) >= tokens


@pytest.mark.parametrize("share", [0.5, 0.9, 1.0])
def test_an_exact_count_is_never_lowered(chat_openai: ChatOpenAI, share: float) -> None:
    made_for = pipeline(3_000, model="gpt-4o")
    made_for.add_messages(chat(100), **SCOPE)
    for context, _ in converse(made_for, provider(share), 8):
        assert context.report.total_tokens == chat_openai.get_num_tokens_from_messages(context.messages)


def test_conversations_that_are_open_are_counted_again(call: Call) -> None:
    made_for = pipeline(2_000, model=CLAUDE)
    for name in ("c1", "c2"):
        call(made_for, "add_messages", chat(100), user_id="ada", conversation_id=name)
    before = call(made_for, "assemble", QUESTION, user_id="ada", conversation_id="c2")
    first = call(made_for, "assemble", QUESTION, **SCOPE)
    factor = made_for.observe_usage({"input_tokens": 2 * first.report.total_tokens})
    assert factor >= 2
    after = call(made_for, "assemble", QUESTION, user_id="ada", conversation_id="c2")
    assert after.report.total_tokens <= 2_000
    assert after.report.uncorrected_tokens <= 1_000 < before.report.uncorrected_tokens
    assert after.report.layer("L6").used_tokens + after.report.layer("L5").used_tokens > 1_000
    check_adds_up(after)


def test_a_correction_reads_nothing_again(call: Call) -> None:
    store = WatchedStore()
    made_for = pipeline(2_000, model=CLAUDE, store=store)
    call(made_for, "add_messages", chat(100), **SCOPE)
    report = call(made_for, "assemble", QUESTION, **SCOPE).report
    made_for.observe_usage({"input_tokens": 3_000}, report=report)
    store.message_reads()
    calls = made_for.token_counter.calls
    again = call(made_for, "assemble", QUESTION, **SCOPE).report
    assert store.message_reads() == []
    assert again.tokenizer_calls == made_for.token_counter.calls - calls < 60


def test_usage_that_varies_a_little_does_not_move_the_cut() -> None:
    def steps(*shares: float) -> int:
        made_for = pipeline(3_000, model=CLAUDE)
        made_for.add_messages(chat(150), **SCOPE)
        count = 0
        for number in range(32):
            [(context, _)] = converse(made_for, provider(shares[number % len(shares)]), 1)
            count += context.report.stability.compaction_step
        return count

    assert steps(1.21, 1.24, 1.2, 1.23, 1.215, 1.245, 1.22, 1.232) <= steps(1.22) + 2


def test_the_twin_begins_without_the_correction_of_another_tokenizer(call: Call) -> None:
    made_for = pipeline(model=CLAUDE)
    report = call(made_for, "assemble", "Tell me more. " * 100, **SCOPE).report
    made_for.observe_usage({"input_tokens": 3 * report.total_tokens}, report=report)
    assert made_for.with_model("gpt-4o").observe_usage(None) == 1.0


def test_no_usage_changes_nothing() -> None:
    made_for = pipeline(model=CLAUDE)
    assert made_for.observe_usage(None) == 1.0
    made_for.assemble("Hi", **SCOPE)
    assert made_for.observe_usage(None) == 1.0
    assert made_for.observe_usage({"input_tokens": 0}) == 1.0


UNUSABLE: list[Any] = [
    *({"input_tokens": value} for value in (-1, "100", None, 1.5, True, float("nan"))),
    *({}, {"total_tokens": 5}, "100", 100, [("input_tokens", 1)]),
]


@pytest.mark.parametrize("usage", UNUSABLE, ids=str)
def test_usage_that_is_none_is_an_error(usage: Any) -> None:
    made_for = pipeline(model=CLAUDE)
    made_for.assemble("Hi", **SCOPE)
    with pytest.raises(InputError, match="input_tokens"):
        made_for.observe_usage(usage)
    assert made_for.observe_usage(None) == 1.0


def test_usage_before_any_prompt_is_an_error() -> None:
    with pytest.raises(InputError, match="Nothing was assembled"):
        pipeline(model=CLAUDE).observe_usage({"input_tokens": 100})


@pytest.mark.parametrize("report", ["x", 5, {"total_tokens": 3}], ids=str)
def test_usage_of_something_that_is_no_report_is_an_error(report: Any) -> None:
    with pytest.raises(InputError):
        pipeline(model=CLAUDE).observe_usage({"input_tokens": 100}, report=report)


def test_a_wrong_measurement_is_refused_and_stops_no_turn_after_it() -> None:
    """As when usage is summed up over the ten calls of an agent's run."""
    made_for = ContextPipeline(
        {"max_context_tokens": 2_000}, system_prompt="Rule: be kind. " * 50, model=CLAUDE, store=InMemoryStore()
    )
    report = made_for.assemble(QUESTION, **SCOPE).report
    with pytest.raises(InputError, match="or of several calls"):
        made_for.observe_usage({"input_tokens": 10 * report.total_tokens}, report=report)
    assert made_for.assemble(QUESTION, **SCOPE).report.total_tokens <= 2_000


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


def check_corrected(history: list[BaseMessage], turn: Any, budget: int, share: float, changes: dict[str, Any]) -> None:
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
    assert made_for.token_counter.count_messages(context.messages) == context.report.total_tokens <= budget
    check_adds_up(context)


shares = st.floats(0.3, 3.0, allow_nan=False)


@quick
@given(history=made.history, turn=made.turns, budget=made.budgets, share=shares, changes=made.settings)
def test_with_any_correction_it_fits_and_adds_up(
    history: list[BaseMessage], turn: Any, budget: int, share: float, changes: dict[str, Any]
) -> None:
    check_corrected(history, turn, budget, share, changes)


@pytest.mark.slow
@long
@given(history=made.history, turn=made.turns, budget=made.budgets, share=shares, changes=made.settings)
def test_with_many_more_corrections_it_fits_and_adds_up(
    history: list[BaseMessage], turn: Any, budget: int, share: float, changes: dict[str, Any]
) -> None:
    check_corrected(history, turn, budget, share, changes)


def test_more_of_the_same_usage_changes_nothing() -> None:
    made_for = pipeline(model=CLAUDE)
    report = made_for.assemble("Tell me more. " * 100, **SCOPE).report
    factors = [made_for.observe_usage({"input_tokens": 600}, report=report) for _ in range(20)]
    assert all(before == after for before, after in pairwise(factors))
