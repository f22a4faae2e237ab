"""What a report says of one message or one item."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from langchain_core.messages import HumanMessage
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import ContextPipeline, create_recall_tool
from langchain_ctxbudget.core.layers import Layer, Reason, Status
from langchain_ctxbudget.core.report import ContextReport, CoverageRange, ReportItem
from langchain_ctxbudget.core.report_explain import REASONS, SCORES, SOURCES, STATE_MEANS
from langchain_ctxbudget.demo import demo_messages
from langchain_ctxbudget.errors import InputError
from langchain_ctxbudget.reporting.parts import STATES
from tests.unit_tests.test_report import example

SCOPE = {"user_id": "ada", "conversation_id": "c1"}
QUOTE = ReportItem(
    id="doc-1",
    tokens=41,
    status=Status.INCLUDED,
    reason=Reason.RELEVANT,
    preview="- Prices of labels",
    source="documents",
    scores={"lexical": 0.5, "dense": 1.75, "length": -2.0, "date": 0.0},
)


def report_with(layer: Layer, *items: ReportItem, **changes: Any) -> ContextReport:
    layers = tuple(replace(part, items=items) if part.layer == layer else part for part in example().layers)
    return example(layers=layers, **changes)


@pytest.mark.parametrize("reason", Reason)
def test_every_reason_has_a_meaning_of_its_own(reason: Reason) -> None:
    assert REASONS[reason]
    assert list(REASONS.values()).count(REASONS[reason]) == 1


def test_every_state_is_explained() -> None:
    assert list(STATE_MEANS) == list(STATES)


def test_an_item_is_explained_with_its_place_its_reason_its_tokens_and_its_scores() -> None:
    assert str(report_with(Layer.RETRIEVAL, QUOTE).explain("doc-1")).splitlines() == [
        "doc-1: item 1 of 1 in L5 Retrieval, from a document, included, 41 tokens",
        "  relevant: found for the current message, and worth its tokens.",
        "  speaks for it: its meaning (+1.75), its words (+0.50)",
        "  speaks against it: its length (-2.00)",
        '  "- Prices of labels"',
    ]


def test_an_item_that_is_left_out_would_have_cost_its_tokens() -> None:
    left_out = replace(QUOTE, status=Status.OMITTED, reason=Reason.RANKED_LOWER, tokens=1)
    lines = report_with(Layer.RETRIEVAL, left_out).explain("doc-1").lines
    assert lines[0].endswith("omitted, it would have cost 1 token")


def test_an_id_in_two_layers_is_explained_twice() -> None:
    report = report_with(Layer.RETRIEVAL, replace(QUOTE, id="m1"))
    assert [place.layer for place in report.explain("m1").places] == ["L5", "L6"]


def test_a_part_of_a_combined_id_is_found() -> None:
    report = report_with(Layer.HISTORY, replace(QUOTE, id="call-1 + result-1 + result-2"))
    for name in ("call-1", "result-2", "call-1 + result-1 + result-2"):
        assert report.explain(name).places[0].item.id == "call-1 + result-1 + result-2"


def test_an_item_with_exactly_the_id_comes_before_one_that_has_it_as_a_part() -> None:
    report = report_with(Layer.HISTORY, replace(QUOTE, id="a + b"), replace(QUOTE, id="b"))
    assert [place.number for place in report.explain("b").places] == [2]


def test_a_part_of_a_word_is_no_part_of_an_id() -> None:
    with pytest.raises(InputError, match="knows no 'call'; nearest are 'call-1'"):
        report_with(Layer.HISTORY, replace(QUOTE, id="call-1 + result-1")).explain("call")


@pytest.mark.parametrize(
    ("position", "line"),
    [
        (1, "message 1 of 40: behind the summary, as are messages 1-30"),
        (30, "message 30 of 40: behind the summary, as are messages 1-30"),
        (31, "message 31 of 40: retrieved"),
        (40, "message 40 of 40: behind the summary, as are messages 32-40"),
    ],
)
def test_a_position_is_explained_by_what_became_of_the_messages_around_it(position: int, line: str) -> None:
    assert example().explain(position).lines[0] == line


@pytest.mark.parametrize("state", ["summarized", "omitted"])
def test_a_message_that_is_not_shown_says_how_to_get_it_back(state: Any) -> None:
    report = example(coverage=(CoverageRange(first=1, last=60, state=state),))
    assert any('reference "41"' in line and "`pipeline.pin`" in line for line in report.explain(41).lines)


def test_what_is_said_of_a_message_behind_a_summary_names_its_messages() -> None:
    assert "a summary of messages 1-30, or a shortened form, stands for it" in example().explain(5).lines[1]


@pytest.mark.parametrize("what", ["message 5", "#5", "5"])
def test_a_position_may_be_written_as_the_recall_tool_and_the_summary_write_it(what: str) -> None:
    assert example().explain(what).position == 5


def test_a_number_that_is_the_id_of_an_item_is_no_position() -> None:
    found = report_with(Layer.RETRIEVAL, replace(QUOTE, id="5")).explain("5")
    assert (found.position, found.coverage, len(found.places)) == (None, None, 1)


def test_the_line_of_a_summary_that_quotes_a_message_is_explained_with_it() -> None:
    line = replace(QUOTE, id="message 5", reason=Reason.SUMMARY)
    for what in (5, "message 5"):
        found = report_with(Layer.HISTORY, line).explain(what)
        assert found.position == 5
        assert [place.item for place in found.places] == [line]


@pytest.mark.parametrize(
    ("what", "message"),
    [
        (0, "knows no message 0: it has messages 1 to 40"),
        (41, "knows no message 41: it has messages 1 to 40"),
        (-1, "knows no message -1"),
        ("41", "knows no '41'.*messages 1 to 40"),
        ("m2", "knows no 'm2'; nearest are 'm1'. It lists 1 ids; it has messages 1 to 40"),
        ("", "knows no ''. It lists"),
        ("9" * 5_000, "It lists 1 ids"),
        (True, "by its id or its position, not by True"),
        (None, "by its id or its position, not by None"),
        (2.0, "by its id or its position, not by 2.0"),
    ],
)
def test_what_is_not_known_is_refused_with_what_is(what: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        example().explain(what)


def test_an_error_about_a_long_id_is_short() -> None:
    with pytest.raises(InputError) as caught:
        example().explain("x" * 100_000)
    assert len(str(caught.value)) < 400


def test_a_conversation_without_messages_says_so() -> None:
    with pytest.raises(InputError, match="its conversation has no messages yet"):
        example(coverage=()).explain(1)


def test_a_hundred_thousand_messages_are_explained_by_their_ranges() -> None:
    report = example(coverage=(CoverageRange(first=1, last=100_000, state="omitted"),))
    assert report.explain(77_777).lines[0] == "message 77,777 of 100,000: left out, as are messages 1-100000"


def test_hostile_names_are_shown_and_not_obeyed() -> None:
    found = report_with(Layer.RETRIEVAL, replace(QUOTE, id="<b>\x1b[2J")).explain("<b>\x1b[2J")
    assert "\x1b" not in str(found) + found._repr_html_()
    assert "<b>␛" not in found._repr_html_()


def long_conversation() -> tuple[ContextPipeline, ContextReport]:
    pipeline = ContextPipeline({"max_context_tokens": 900, "learn": False}, store=InMemoryStore())
    pipeline.add_messages(demo_messages()[:120], **SCOPE)
    return pipeline, pipeline.assemble("Who makes the labels?", **SCOPE).report


def test_every_item_and_every_message_of_a_long_conversation_is_explained() -> None:
    _, report = long_conversation()
    for part in report.layers:
        for one in part.items:
            assert one in [place.item for place in report.explain(one.id).places]
    assert [report.explain(n).coverage.state for n in range(1, 121)] == [  # type: ignore[union-attr]
        part.state for part in report.coverage for _ in range(part.first, part.last + 1)
    ]


def test_every_score_and_source_of_a_real_ranking_has_words() -> None:
    _, report = long_conversation()
    items = report.layer("L5").items
    assert items
    assert {name for one in items for name in one.scores} <= set(SCORES)
    assert {one.source for one in items} <= set(SOURCES)


def test_what_it_says_of_getting_a_message_back_is_true() -> None:
    pipeline, report = long_conversation()
    hidden = next(part.first for part in report.coverage if part.state in ("summarized", "omitted"))
    tool = create_recall_tool(pipeline, default_user="ada")
    reference = next(line for line in report.explain(hidden).lines if "reference" in line).split('"')[1]
    quoted = tool.invoke({"reference": reference}, {"configurable": {"thread_id": "c1"}})
    message = pipeline.get_messages(**SCOPE)[hidden - 1]
    assert message.text[:40] in quoted
    pipeline.pin([message.id], **SCOPE)
    step = {"max_context_tokens": 800}  # another budget compacts anew
    again = pipeline.assemble(HumanMessage("And the price?"), settings=step, **SCOPE).report
    assert again.explain(hidden).coverage.state == "verbatim"  # type: ignore[union-attr]
