"""The chart of a report: rows that add up, within the columns it is given."""

import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from langchain_ctxbudget.budget.tiers import TIERS
from langchain_ctxbudget.report.chart import EMPTY, FULL, render_items, render_text
from langchain_ctxbudget.report.wording import TIER_MEANS
from tests.unit_tests.test_report import example, reports

ROW = re.compile(
    rf"^(?P<label>[^{FULL}{EMPTY}]+)(?P<bar>[{FULL}{EMPTY}]+) +(?P<used>-?[\d,]+) +-?[\d.]+%(?: +(?P<given>[\d,]+))?$"
)

charts = settings(deadline=None, max_examples=40)


def rows(text):
    return [match for line in text.splitlines() if (match := ROW.match(line))]


def number(text):
    return int(text.replace(",", ""))


@charts
@given(reports(), st.sampled_from([60, 80, 120]))
def test_the_rows_of_a_chart_add_up_to_its_total(report, width):
    *parts, total = rows(render_text(report.to_dict(), width=width))
    assert total["label"].strip() == "Total"
    assert sum(number(row["used"]) for row in parts) == number(total["used"]) == report.total_tokens


@charts
@given(reports(), st.integers(40, 140))
def test_no_line_is_wider_than_the_chart_may_be(report, width):
    assert max(map(cell_len, render_text(report.to_dict(), width=width).split("\n"))) <= width


@charts
@given(reports(), st.integers(40, 140))
def test_the_numbers_stand_below_each_other_at_every_width(report, width):
    chart = rows(render_text(report.to_dict(), width=width))
    assert len({row.end("used") for row in chart}) == 1
    assert len({row.end("given") for row in chart if row["given"]}) <= 1


@charts
@given(reports(), st.integers(40, 120))
def test_colours_change_nothing_but_colours(report, width):
    plain, coloured = (render_text(report.to_dict(), width=width, colour=colour) for colour in (False, True))
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == plain


@pytest.mark.parametrize("tokens", [1_234_567, 12_345_678_901, 10**18])
def test_large_numbers_make_room_for_themselves(tokens):
    report = example(total_tokens=tokens, budget_tokens=tokens, overhead_tokens={"framing": tokens - 5})
    lines = render_text(report.to_dict(), width=40).splitlines()
    assert max(map(len, lines)) <= 40
    assert sum(f"{tokens:,}" in line for line in lines) == 2


@pytest.mark.parametrize("text", ["\x1b[2J", "\x9b2J", "a\rb", "\u202eabc", "\x07", "\x00", "\ud800", "\x7f", "\u2028"])
def test_what_would_steer_the_terminal_is_shown(text):
    own = replace(example().layers[0], layer=text, title=text)
    item = replace(example().layers[6].items[0], id=text, preview=text)
    own = replace(own, items=(item,))
    report = example(layers=(own,), failures=(text,), tokenizer=text, overhead_tokens={text: 15}).to_dict()
    drawn = render_text(report) + render_items(report, layers=[text])
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028-\u202e\ud800-\udfff]", drawn)


@pytest.mark.parametrize(
    ("width", "label", "planned"), [(80, 21, True), (56, 21, True), (55, 16, True), (51, 16, True), (50, 16, False)]
)
def test_a_narrow_chart_gives_up_long_labels_then_what_was_planned(width, label, planned):
    first = rows(render_text(example().to_dict(), width=width))[0]
    assert (len(first["label"]), first["given"] is not None) == (label, planned)


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


@pytest.mark.parametrize("tier", TIERS, ids=lambda tier: tier.name)
def test_the_words_for_a_tier_say_what_it_lets_in(tier):
    documents = {"full": None, "summary": "summaries", "none": "no documents"}[tier.documents]
    items, messages, share = tier.knowledge_items, tier.history_messages, tier.budget_share
    said = {
        "knowledge": None if items is None else f"{items} item{'' if items == 1 else 's'}",
        "documents": documents,
        "history": "the last exchange" if messages == 0 else None if messages is None else f"{messages} messages",
        "budget": {
            1: None,
            0.5: "half of the budget if that suffices",
            0.25: "a quarter of the budget if that suffices",
            0.125: "an eighth of the budget if that suffices",
        }[share],
    }
    assert TIER_MEANS[tier.name] == {name: words for name, words in said.items() if words}


def test_an_item_is_listed_with_its_reason_and_its_tokens():
    assert render_items(example().to_dict(), layers=["L6"]).split() == ["L6", "included", "recent", "5", "hi"]
