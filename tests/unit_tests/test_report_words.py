"""A report in words: what changed since another one, and why a message or an item is, or is not, in a prompt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings

from langchain_ctxbudget.budget import Layer, Reason, Status
from langchain_ctxbudget.errors import InputError
from langchain_ctxbudget.report import ContextReport, CoverageRange, ReportItem, layer_report
from tests.unit_tests.test_report import example, reports

everything = settings(deadline=None, max_examples=25)


def item(name: str, tokens: int = 10, **changes: Any) -> ReportItem:
    base = ReportItem(id=name, tokens=tokens, status=Status.INCLUDED, reason=Reason.RELEVANT, preview=name)
    return replace(base, **changes)


def report_with(items: dict[str, Sequence[ReportItem]], **changes: Any) -> ContextReport:
    """A report with these items in these layers, whose numbers add up."""
    layers = tuple(
        layer_report(name, allocated=100, items=items.get(name, ()), overhead=0, more={})
        for name in dict.fromkeys([*map(str, Layer), *items])
    )
    total = sum(part.used_tokens for part in layers) + 10
    return example(layers=layers, total_tokens=total, uncorrected_tokens=total, **{"coverage": (), **changes})


def covered(*parts: tuple[int, int, str]) -> tuple[CoverageRange, ...]:
    return tuple(CoverageRange(first=first, last=last, state=state) for first, last, state in parts)  # type: ignore[arg-type]


@everything
@given(reports(), reports())
def test_the_changes_of_all_parts_add_up_to_that_of_the_total(after: ContextReport, before: ContextReport) -> None:
    before = replace(before, user_id=after.user_id)
    found = after.diff(before)
    assert sum(part.change for part in (*found.layers, *found.overhead)) == found.total_change
    assert found.total_change == after.total_tokens - before.total_tokens


def test_reports_of_others_are_refused() -> None:
    for changes, message in [
        ({"conversation_id": "c2"}, "of one conversation can be compared; these are of 'c1' and of 'c2'"),
        ({"user_id": "bob"}, "of one user can be compared; these are of 'ada' and of 'bob'"),
    ]:
        with pytest.raises(InputError, match=message):
            example().diff(example(**changes))


FOUND = [item("d1", source="documents"), item("d2", source="documents"), item("m1", source="messages")]
CAME_AND_WENT: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({}, {"L5": FOUND}, "L5 +30: 2 documents came, 1 past message came"),
    ({"L5": FOUND[:1]}, {"L5": FOUND[1:2]}, "L5 +0: 1 document came, 1 document went"),
    ({}, {"L3": [item("e"), item("g")]}, "L3 +20: 2 entities came"),
    ({"open files": [item("a")]}, {}, "open files -10: 1 item went"),
    ({"L7": [item("human")]}, {"L7": [item("human", preview="another")]}, "L7 +0: 1 message changed"),
    ({"L5": FOUND[:1]}, {"L5": [replace(FOUND[0], tokens=4, status=Status.SHRUNK)]}, "L5 -6: 1 document changed"),
    ({}, {"L4": [item("heading", reason=Reason.SUMMARY)] * 2}, "L4 +20: 2 summary lines came"),
]


def test_a_layer_says_what_came_and_went() -> None:
    for before, after, line in CAME_AND_WENT:
        found = report_with(after).diff(report_with(before))
        assert [said for said in found.lines if not said.startswith("Total")] == [line]


def test_the_history_says_which_messages_changed_their_state_and_tells_a_compaction_step() -> None:
    every_other = covered(*((n, n, "omitted" if n % 2 else "verbatim") for n in range(1, 13)))
    for before, after, words in [
        (covered((1, 2, "verbatim")), covered((1, 4, "verbatim")), "messages 3-4: new, verbatim"),
        (covered((1, 4, "verbatim")), covered((1, 3, "verbatim")), "message 4: verbatim -> gone"),
        (covered((1, 12, "verbatim")), every_other, "messages 1, 3, 5, 7 and 2 more: verbatim -> left out"),
        ((), covered((1, 1, "retrieved")), "message 1: new, retrieved"),
    ]:
        assert report_with({}, coverage=after).diff(report_with({}, coverage=before)).lines[1] == f"L6 +0: {words}"
    step = replace(example().stability, compaction_step=True)
    old = report_with({"L6": [item("m41", 1_200, reason=Reason.RECENT)]}, coverage=covered((1, 60, "verbatim")))
    new = report_with(
        {"L6": [item("heading", 100, reason=Reason.SUMMARY)]},
        coverage=covered((1, 40, "verbatim"), (41, 60, "summarized")),
        stability=step,
    )
    assert new.diff(old).lines[1] == (
        "L6 -1,100: compaction step; 1 summary line came; messages 41-60: verbatim -> behind the summary"
    )


QUOTE = ReportItem(
    id="doc-1",
    tokens=41,
    status=Status.INCLUDED,
    reason=Reason.RELEVANT,
    preview="- Prices of labels",
    source="documents",
    scores={"lexical": 0.5, "dense": 1.75, "length": -2.0, "date": 0.0},
)


def one_layer(layer: Layer, *items: ReportItem, **changes: Any) -> ContextReport:
    layers = tuple(replace(part, items=items) if part.layer == layer else part for part in example().layers)
    return example(layers=layers, **changes)


def test_an_item_is_explained_with_its_place_its_reason_its_tokens_and_its_scores() -> None:
    assert str(one_layer(Layer.RETRIEVAL, QUOTE).explain("doc-1")).splitlines() == [
        "doc-1: item 1 of 1 in L5 Retrieval, from a document, included, 41 tokens",
        "  relevant: found for the current message, and worth its tokens.",
        "  speaks for it: its meaning (+1.75), its words (+0.50)",
        "  speaks against it: its length (-2.00)",
        '  "- Prices of labels"',
    ]


def test_a_position_is_explained_by_what_became_of_the_messages_around_it() -> None:
    for position, line in [
        (30, "message 30 of 40: behind the summary, as are messages 1-30"),
        (31, "message 31 of 40: retrieved"),
        (40, "message 40 of 40: behind the summary, as are messages 32-40"),
    ]:
        assert example().explain(position).lines[0] == line
    for what in ("message 5", "#5", "5"):  # as the recall tool and the summary write it
        assert example().explain(what).position == 5


def test_what_is_not_known_is_refused_with_what_is() -> None:
    unknown: list[tuple[Any, str]] = [
        (0, "knows no message 0: it has messages 1 to 40"),
        ("41", "knows no '41'.*messages 1 to 40"),
        ("m2", "knows no 'm2'; nearest are 'm1'. It lists 1 ids; it has messages 1 to 40"),
        (True, "by its id or its position, not by True"),
    ]
    for what, message in unknown:
        with pytest.raises(InputError, match=message):
            example().explain(what)


def test_hostile_names_are_shown_and_not_obeyed() -> None:
    found = one_layer(Layer.RETRIEVAL, replace(QUOTE, id="<b>\x1b[2J")).explain("<b>\x1b[2J")
    assert "\x1b" not in str(found) + found._repr_html_()
    assert "<b>␛" not in found._repr_html_()
