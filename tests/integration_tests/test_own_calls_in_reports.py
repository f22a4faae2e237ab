"""A report tells what the calls that learn and sum up have cost since the last prompt."""

from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.store.base import BaseStore, SearchOp
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import ContextPipeline, ContextReport
from langchain_ctxbudget.report.wording import facts
from langchain_ctxbudget.tokens import OwnCalls, Purpose, Usage
from tests.integration_tests.learning_models import Reader
from tests.integration_tests.summary_models import USER, conversation, summary
from tests.stores import Failing

USED = {"input_tokens": 700, "output_tokens": 30, "total_tokens": 730}
PRICES = {"scripted": {"input": 1, "output": 10}, "gpt-4o": {"input": 2, "output": 10}}
CALL = Usage(calls=1, input_tokens=700, output_tokens=30, cost=0.001)
ONE_CALL = OwnCalls({Purpose.LEARNING: CALL})
NOTHING = OwnCalls()


class Counting(Reader):
    """Tells its usage with every answer."""

    model_name: str = "scripted"

    def _generate(self, *arguments: Any, **kwargs: Any) -> ChatResult:
        result = super()._generate(*arguments, **kwargs)
        answer = AIMessage(result.generations[0].message.text, usage_metadata=USED)
        return ChatResult(generations=[ChatGeneration(message=answer)])


def opened(model: Reader | None = None, **fields: Any) -> ContextPipeline:
    model = model or Counting()
    return ContextPipeline(summary_model=model, prices=PRICES, model="gpt-4o", **fields)


def learn(pipeline: ContextPipeline, what: str = "tea") -> None:
    pipeline.add_messages([HumanMessage(f"I like {what}.")], **USER)
    pipeline.end_session(**USER)
    assert pipeline.flush(30)


def next_report(pipeline: ContextPipeline) -> ContextReport:
    return pipeline.assemble("What now?", **USER).report


def fact(report: ContextReport, label: str) -> str:
    return dict(facts(report)).get(label, "")


@pytest.fixture(scope="module")
def report() -> ContextReport:
    """The report of a prompt behind one call that learns."""
    with opened() as pipeline:
        learn(pipeline)
        return next_report(pipeline)


def test_the_next_report_tells_a_call_that_learns(report: ContextReport) -> None:
    assert report.own_calls == ONE_CALL


def test_its_dollars_count_as_tokens_of_the_model_of_the_prompt(report: ContextReport) -> None:
    assert report.own_effective_tokens == 500  # a thousandth of a dollar at 2 for a million


def test_it_is_part_of_what_the_turn_costs(report: ContextReport) -> None:
    assert report.turn_effective_tokens == report.stability.effective_tokens + 500


def test_the_words_tell_it(report: ContextReport) -> None:
    assert fact(report, "Own calls") == (
        "1 call since the last prompt (1 for learning): 700 tokens of input, 30 of output, $0.0010"
    )
    paid = f"paid like {report.turn_effective_tokens:,} new ones, 500 of them for own calls;"
    assert paid in fact(report, "Paid")


def test_a_report_in_json_has_it(report: ContextReport) -> None:
    assert ContextReport.from_dict(report.to_dict()).own_calls == report.own_calls
    assert report.to_dict(texts=False)["own_effective_tokens"] == 500


def test_a_call_is_told_once() -> None:
    with opened() as pipeline:
        learn(pipeline)
        next_report(pipeline)

        assert next_report(pipeline).own_calls == NOTHING


def test_without_a_call_no_words_tell_any() -> None:
    with opened() as pipeline:
        report = next_report(pipeline)

    assert fact(report, "Own calls") == ""
    assert "own calls" not in fact(report, "Paid")


def test_a_call_that_sums_up_is_told_apart() -> None:
    model = Counting(answer=lambda _: summary("They talked."))
    with opened(model, settings={"max_context_tokens": 1_500, "learn": False}) as pipeline:
        pipeline.add_messages(conversation(40), **USER)
        next_report(pipeline)
        assert pipeline.flush(30)

        own_calls = next_report(pipeline).own_calls
        assert [*own_calls.by_purpose] == [Purpose.SUMMARY]
        assert own_calls.total.calls == len(model.read) > 0


def test_an_estimate_is_told_as_one() -> None:
    with opened(Reader()) as pipeline:
        learn(pipeline)
        report = next_report(pipeline)

    assert report.own_calls.total.estimated_calls == 1
    assert fact(report, "Own calls").endswith("; 1 estimated")


def test_another_conversation_does_not_tell_it() -> None:
    with opened() as pipeline:
        learn(pipeline)
        other = pipeline.assemble("What now?", user_id="ada", conversation_id="c2").report

    assert other.own_calls == NOTHING


def test_a_later_process_tells_what_was_not_told() -> None:
    store = InMemoryStore()
    with opened(store=store) as pipeline:
        learn(pipeline)

    with opened(store=store) as later:
        assert next_report(later).own_calls == ONE_CALL


def test_a_later_process_does_not_tell_it_again() -> None:
    store = InMemoryStore()
    with opened(store=store) as pipeline:
        learn(pipeline)
        next_report(pipeline)

    with opened(store=store) as later:
        assert next_report(later).own_calls == NOTHING
        learn(later, "coffee")
        assert next_report(later).own_calls.total.calls == 1


def test_a_cleared_conversation_has_nothing_to_tell() -> None:
    with opened() as pipeline:
        learn(pipeline)
        next_report(pipeline)
        pipeline.clear(**USER)
        learn(pipeline)

        assert next_report(pipeline).own_calls == ONE_CALL


def test_usage_has_them_by_purpose() -> None:
    with opened() as pipeline:
        learn(pipeline)
        next_report(pipeline)

        assert pipeline.usage.own_of_session(**USER) == ONE_CALL
        assert pipeline.usage.own_of_month(user_id="ada") == ONE_CALL
        assert pipeline.usage.of_session(**USER) == CALL


def test_calls_of_the_application_are_not_among_them() -> None:
    with opened() as pipeline:
        pipeline.usage.record(USED, **USER)

        assert next_report(pipeline).own_calls == NOTHING


def test_an_export_has_them_and_an_erased_user_has_none() -> None:
    store = InMemoryStore()
    with opened(store=store) as pipeline:
        learn(pipeline)
        next_report(pipeline)
        assert pipeline.flush(30)
        lines = [line for line in pipeline.export_user(user_id="ada") if '"spent"' in line]
        pipeline.erase_user(user_id="ada")

        assert len(lines) == 1
        assert '"told"' in lines[0]
        assert pipeline.usage.own_of_month(user_id="ada") == NOTHING


def test_a_forecast_tells_none() -> None:
    with opened() as pipeline:
        learn(pipeline)
        next_report(pipeline)

        assert pipeline.what_if([2_000])[0].own_calls == NOTHING


def test_where_usage_cannot_be_read_the_report_says_so() -> None:
    store = Failing()
    with opened(store=store) as pipeline:
        learn(pipeline)
        store.fails = lambda op: isinstance(op, SearchOp) and "spent" in op.namespace_prefix
        report = next_report(pipeline)

    assert report.own_calls == NOTHING
    assert any(line.startswith("what own calls have used not read") for line in report.failures)


def test_without_a_summary_model_nothing_is_read_for_it() -> None:
    store = Failing()
    store.fails = lambda op: isinstance(op, SearchOp) and "spent" in op.namespace_prefix
    with ContextPipeline(store=store) as pipeline:
        assert not next_report(pipeline).failures


def test_every_store_keeps_what_was_told(store: BaseStore) -> None:
    with opened(store=store) as pipeline:
        learn(pipeline)
        assert next_report(pipeline).own_calls == ONE_CALL
        assert next_report(pipeline).own_calls == NOTHING
