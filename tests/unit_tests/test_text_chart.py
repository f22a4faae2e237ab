"""The chart of a report: rows that add up, within the columns it is given."""

import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from langchain_ctxbudget.core.report import UsageState
from langchain_ctxbudget.core.tiers import TIERS, relaxed
from langchain_ctxbudget.reporting.facts import TIER_MEANS, usage_words
from langchain_ctxbudget.reporting.screen import shown, wrapped
from langchain_ctxbudget.reporting.text import EMPTY, FULL, render_items, render_text
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


def test_layers_with_tokens_have_colours_of_their_own():
    layers = tuple(replace(part, used_tokens=100) for part in example().layers)
    painted = render_text(example(layers=layers).to_dict(), colour=True)
    assert len(set(re.findall(rf"\x1b\[38;5;(\d+)m{FULL}", painted))) == len(layers) + 1


@pytest.mark.parametrize("tokens", [1_234_567, 12_345_678_901, 10**18])
def test_large_numbers_make_room_for_themselves(tokens):
    report = example(total_tokens=tokens, budget_tokens=tokens, overhead_tokens={"framing": tokens - 5})
    lines = render_text(report.to_dict(), width=40).splitlines()
    assert max(map(len, lines)) <= 40
    assert sum(f"{tokens:,}" in line for line in lines) == 2


@pytest.mark.parametrize("width", [40, 80])
def test_a_layer_s_name_in_wide_letters_leaves_the_numbers_in_their_columns(width):
    own = replace(example().layers[0], layer="北京北京北京北京北京北京", title="北京北京北京北京北京北京")
    text = render_text(example(layers=(own,)).to_dict(), width=width)
    first, *others = [line for line in text.splitlines() if FULL in line or EMPTY in line]
    assert {cell_len(line.partition(EMPTY)[0].partition(FULL)[0]) for line in others} == {
        cell_len(first.partition(EMPTY)[0])
    }


@pytest.mark.parametrize("text", ["\x1b[2J", "\x9b2J", "a\rb", "\u202eabc", "\x07", "\x00", "\ud800", "\x7f", "\u2028"])
def test_what_would_steer_the_terminal_is_shown(text):
    own = replace(example().layers[0], layer=text, title=text)
    item = replace(example().layers[6].items[0], id=text, preview=text)
    own = replace(own, items=(item,))
    report = example(layers=(own,), failures=(text,), tokenizer=text, overhead_tokens={text: 15}).to_dict()
    drawn = render_text(report) + render_items(report, layers=[text])
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028-\u202e\ud800-\udfff]", drawn)


@settings(deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_words_and_marks_of_every_language_are_shown_as_they_are(text):
    assert shown(text) == text or any(not char.isprintable() for char in text)


@settings(deadline=None)
@given(st.text(st.sampled_from("ab 北🙂é\t")), st.integers(2, 20))
def test_a_text_in_lines_has_all_its_letters(text, columns):
    lines = wrapped(text, columns)
    assert "".join("".join(lines).split()) == "".join(text.split())
    assert max(map(cell_len, lines)) <= columns


@charts
@given(reports())
def test_there_is_a_row_for_every_layer_and_every_overhead(report):
    assert len(rows(render_text(report.to_dict()))) == len(report.layers) + len(report.overhead_tokens) + 1


@charts
@given(reports())
def test_the_chart_says_what_every_layer_was_given(report):
    given_ = [number(row["given"]) for row in rows(render_text(report.to_dict())) if row["given"]]
    assert given_ == [part.allocated_tokens for part in report.layers]


@charts
@given(reports(), st.sampled_from([60, 80, 120]))
def test_all_bars_are_of_one_length(report, width):
    assert len({len(row["bar"]) for row in rows(render_text(report.to_dict(), width=width))}) == 1


@charts
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


@pytest.mark.parametrize(
    ("width", "label", "planned"), [(80, 21, True), (56, 21, True), (55, 16, True), (51, 16, True), (50, 16, False)]
)
def test_a_narrow_chart_gives_up_long_labels_then_what_was_planned(width, label, planned):
    first = rows(render_text(example().to_dict(), width=width))[0]
    assert (len(first["label"]), first["given"] is not None) == (label, planned)


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


WARNED = "warning: 52% of month_tokens left (48,000 of 100,000 used)"
WARNING = UsageState(tier="warning", left=0.52, limit="month_tokens", used=48_000, allowed=100_000)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {},
            f"{WARNED}; 3 items, summaries, 2 messages, a quarter of the budget if that suffices",
        ),
        (
            {"forced": ("documents", "budget")},
            f"{WARNED}; 3 items, 2 messages; documents, budget forced",
        ),
        ({"tier": "healthy"}, "healthy: 52% of month_tokens left (48,000 of 100,000 used)"),
        (
            {"tier": "healthy", "limit": "session_cost", "used": 0.478, "allowed": 1.0},
            "healthy: 52% of session_cost left ($0.48 of $1.00 used)",
        ),
    ],
)
def test_the_usage_that_applied_is_said_with_what_it_lets_in(changes, words):
    report = example(usage=replace(WARNING, **changes)).to_dict()
    assert usage_words(report["usage"]) == words
    assert words in " ".join(render_text(report).split())


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


@pytest.mark.parametrize("tier", TIERS, ids=lambda tier: tier.name)
def test_every_part_of_a_tier_can_be_forced(tier):
    assert replace(relaxed(tier, TIER_MEANS[tier.name]), name="healthy") == TIERS[0]


@pytest.mark.parametrize(("layers", "count"), [([], 0), (["L6"], 1), (["L5"], 0), (["L5", "L6"], 1)])
def test_the_items_of_the_layers_asked_for_are_listed(layers, count):
    assert len(render_items(example().to_dict(), layers=layers).splitlines()) == count


def test_an_item_is_listed_with_its_reason_and_its_tokens():
    assert render_items(example().to_dict(), layers=["L6"]).split() == ["L6", "included", "recent", "5", "hi"]
