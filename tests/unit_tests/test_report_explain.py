"""What a report says of one message or one item."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import ContextPipeline
from langchain_ctxbudget.budget.layers import Layer, Reason, Status
from langchain_ctxbudget.demo import demo_messages
from langchain_ctxbudget.errors import InputError
from langchain_ctxbudget.report.report import ContextReport, ReportItem
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


def test_an_item_is_explained_with_its_place_its_reason_its_tokens_and_its_scores() -> None:
    assert str(report_with(Layer.RETRIEVAL, QUOTE).explain("doc-1")).splitlines() == [
        "doc-1: item 1 of 1 in L5 Retrieval, from a document, included, 41 tokens",
        "  relevant: found for the current message, and worth its tokens.",
        "  speaks for it: its meaning (+1.75), its words (+0.50)",
        "  speaks against it: its length (-2.00)",
        '  "- Prices of labels"',
    ]


def test_a_part_of_a_combined_id_is_found() -> None:
    report = report_with(Layer.HISTORY, replace(QUOTE, id="call-1 + result-1 + result-2"))
    for name in ("call-1", "result-2", "call-1 + result-1 + result-2"):
        assert report.explain(name).places[0].item.id == "call-1 + result-1 + result-2"


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


@pytest.mark.parametrize("what", ["message 5", "#5", "5"])
def test_a_position_may_be_written_as_the_recall_tool_and_the_summary_write_it(what: str) -> None:
    assert example().explain(what).position == 5


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
