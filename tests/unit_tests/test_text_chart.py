"""The chart of a report: rows that add up, within the columns it is given."""

import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from langchain_ctxbudget.reporting.text import EMPTY, FULL, render_items, render_text
from tests.unit_tests.test_report import example, reports

ROW = re.compile(
    rf"^(?P<label>.{{21}})(?P<bar>[{FULL}{EMPTY}]+) +(?P<used>-?[\d,]+) +-?[\d.]+%(?: +(?P<given>[\d,]+))?$"
)


def rows(text):
    return [match for line in text.splitlines() if (match := ROW.match(line))]


def number(text):
    return int(text.replace(",", ""))


@settings(deadline=None)
@given(reports(), st.sampled_from([60, 80, 120]))
def test_the_rows_of_a_chart_add_up_to_its_total(report, width):
    *parts, total = rows(render_text(report.to_dict(), width=width))
    assert total["label"].strip() == "Total"
    assert sum(number(row["used"]) for row in parts) == number(total["used"]) == report.total_tokens


@settings(deadline=None)
@given(reports(), st.sampled_from([60, 80, 120]))
def test_no_line_is_wider_than_the_chart_may_be(report, width):
    assert max(map(len, render_text(report.to_dict(), width=width).split("\n"))) <= width


@settings(deadline=None)
@given(reports())
def test_there_is_a_row_for_every_layer_and_every_overhead(report):
    assert len(rows(render_text(report.to_dict()))) == len(report.layers) + len(report.overhead_tokens) + 1


@settings(deadline=None)
@given(reports())
def test_the_chart_says_what_every_layer_was_given(report):
    given_ = [number(row["given"]) for row in rows(render_text(report.to_dict())) if row["given"]]
    assert given_ == [part.allocated_tokens for part in report.layers]


@settings(deadline=None)
@given(reports(), st.sampled_from([60, 80, 120]))
def test_all_bars_are_of_one_length(report, width):
    assert len({len(row["bar"]) for row in rows(render_text(report.to_dict(), width=width))}) == 1


@settings(deadline=None)
@given(reports())
def test_whatever_costs_tokens_has_a_visible_bar(report):
    assert all((FULL in row["bar"]) == (number(row["used"]) > 0) for row in rows(render_text(report.to_dict())))


def test_a_negative_number_has_an_empty_bar():
    text = render_text(example(overhead_tokens={"framing": -500}, total_tokens=-495).to_dict())
    assert {len(row["bar"]) for row in rows(text)} == {32}


def test_the_free_tokens_are_what_the_budget_leaves():
    assert re.search(r"Free +985$", render_text(example().to_dict()), re.MULTILINE)


def test_a_layer_of_the_application_s_own_stands_under_its_name():
    own = replace(example().layers[0], layer="open files of the editor", title="open files of the editor")
    text = render_text(example(layers=(*example().layers, own)).to_dict())
    assert "\n   open files of th… ░" in text


def test_a_narrow_chart_still_has_bars():
    assert len(rows(render_text(example().to_dict(), width=1))[0]["bar"]) == 8


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({}, "History    full: 40 messages: 1 retrieved, 39 behind the summary"),
        ({"coverage": ()}, "History    no messages yet"),
        ({}, "Stable     5 tokens in the stable zone; first prompt of this conversation"),
        ({}, "Counted    exact (o200k_base), 1 new text"),
        (
            {"count_mode": "estimated", "tokenizer_calls": 2},
            "Counted    estimated, with a margin (o200k_base), 2 new texts",
        ),
        (
            {"window_tokens": 8_000, "window_source": "served", "window_detail": "vLLM", "output_reserve_tokens": 5},
            "Window     8,000 tokens (vLLM), 5 tokens kept free for the answer",
        ),
        ({"output_reserve_tokens": 500}, "Reserve    500 tokens kept free for the answer"),
        ({}, "Strategy   elastic"),
        ({"settings_from": ("pipeline", "user", "call")}, "Settings   pipeline < user < call"),
        ({"uncorrected_tokens": 12}, "Corrected  by observed usage; 12 without it"),
        ({"forecast": True}, f"{'CONTEXT BUDGET (forecast)':<53}{'1,000 tokens':>27}"),
        ({"failures": ("embeddings: gone",)}, "Failed     embeddings: gone"),
        ({"timings_ms": {"open": 1.0, "assemble": 2.5}}, "Time       3.5 ms (open 1.0, assemble 2.5)"),
    ],
)
def test_the_chart_says_what_happened(changes, line):
    assert line in render_text(example(**changes).to_dict()).splitlines()


@pytest.mark.parametrize(("layers", "count"), [([], 0), (["L6"], 1), (["L5"], 0), (["L5", "L6"], 1)])
def test_the_items_of_the_layers_asked_for_are_listed(layers, count):
    assert len(render_items(example().to_dict(), layers=layers).splitlines()) == count


def test_an_item_is_listed_with_its_reason_and_its_tokens():
    assert render_items(example().to_dict(), layers=["L6"]).split() == ["L6", "included", "recent", "5", "hi"]
