"""The report: plain data that adds up."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from langchain_ctxbudget.budget.layers import Layer, Reason, Status
from langchain_ctxbudget.messages.turns import Repair
from langchain_ctxbudget.report.report import (
    LISTED_OMISSIONS,
    ContextReport,
    CoverageRange,
    ReportItem,
    Stability,
    UsageState,
    layer_report,
    ranges,
)


def item(tokens=5, status=Status.INCLUDED, reason=Reason.RECENT, name="m1"):
    return ReportItem(id=name, tokens=tokens, status=status, reason=reason, preview="hi")


def layer(which=Layer.HISTORY, items=(), overhead=0, more=None, allocated=100):
    return layer_report(which, allocated=allocated, items=items, overhead=overhead, more=more or {})


ITEMS = st.lists(
    st.builds(
        ReportItem,
        id=st.text(max_size=4),
        tokens=st.integers(0, 500),
        status=st.sampled_from(Status),
        reason=st.sampled_from(Reason),
        preview=st.text(max_size=8),
        source=st.sampled_from(["", "messages", "documents"]),
    ),
    max_size=6,
)
USAGE = st.none() | st.builds(
    UsageState,
    tier=st.sampled_from(["healthy", "caution", "warning", "critical"]),
    left=st.floats(0, 1),
    limit=st.sampled_from(["session_tokens", "month_cost"]),
    used=st.floats(0, 1e9),
    allowed=st.floats(0.01, 1e9),
    forced=st.sampled_from([(), ("documents",), ("knowledge", "history", "budget")]),
)
REPAIRS = st.builds(
    Repair, st.sampled_from(["orphan_result", "empty_message"]), st.text(max_size=4), st.text(max_size=9)
)


@st.composite
def reports(draw):
    layers = tuple(
        layer(which, draw(ITEMS), draw(st.integers(0, 50)), {Reason.SUMMARIZED: 3}, draw(st.integers(0, 5_000)))
        for which in Layer
    )
    overhead = draw(st.dictionaries(st.sampled_from(["framing", "tool schemas"]), st.integers(0, 2_000)))
    total = sum(part.used_tokens for part in layers) + sum(overhead.values())
    first = draw(st.booleans())
    share = None if first else draw(st.floats(0, 1))
    return ContextReport(
        user_id=draw(st.text(max_size=5)),
        conversation_id="c1",
        budget_tokens=max(1, total + draw(st.integers(0, 5 * 10**6))),
        window_tokens=draw(st.none() | st.integers(1, 10**7)),
        output_reserve_tokens=draw(st.integers(0, 10**6)),
        window_source="profile",
        window_detail="the profile of FakeModel",
        total_tokens=total,
        uncorrected_tokens=total,
        settings_from=("pipeline", "user"),
        count_mode=draw(st.sampled_from(["exact", "estimated"])),
        tokenizer="o200k_base",
        allocation_strategy="elastic",
        history_strategy=draw(st.sampled_from(["empty", "full", "windowed", "compacted", "multi_level"])),
        layers=layers,
        overhead_tokens=overhead,
        coverage=ranges(*draw(coverages())),
        stability=Stability(
            stable_zone_tokens=draw(st.integers(0, 10**7)),
            shared_tokens=None if first else 7,
            stable_zone_share=share,
            prompt_share=share,
            compaction_step=draw(st.booleans()),
        ),
        summary_lines=draw(st.dictionaries(st.sampled_from(["extraction", "gpt-4o"]), st.integers(1, 99))),
        summaries_waiting=draw(st.integers(0, 9)),
        last_resort=draw(st.sampled_from([(), ("light",), ("light", "medium")])),
        repairs=tuple(draw(st.lists(REPAIRS, max_size=2))),
        failures=tuple(draw(st.lists(st.text(max_size=300), max_size=2))),
        tokenizer_calls=draw(st.integers(0, 9)),
        timings_ms=draw(st.dictionaries(st.sampled_from(["open", "assemble"]), st.floats(0, 1e6))),
        usage=draw(USAGE),
        forecast=draw(st.booleans()),
    )


def example(**changes):
    base = ContextReport(
        user_id="ada",
        conversation_id="c1",
        budget_tokens=1_000,
        window_tokens=None,
        output_reserve_tokens=0,
        window_source="unknown",
        window_detail="",
        total_tokens=15,
        uncorrected_tokens=15,
        settings_from=("pipeline",),
        count_mode="exact",
        tokenizer="o200k_base",
        allocation_strategy="elastic",
        history_strategy="full",
        layers=tuple(layer(which, [item()] if which is Layer.HISTORY else []) for which in Layer),
        overhead_tokens={"framing": 10},
        coverage=(
            CoverageRange(first=1, last=30, state="summarized"),
            CoverageRange(first=31, last=31, state="retrieved"),
            CoverageRange(first=32, last=40, state="summarized"),
        ),
        stability=Stability(
            stable_zone_tokens=5, shared_tokens=None, stable_zone_share=None, prompt_share=None, compaction_step=False
        ),
        repairs=(),
        failures=(),
        summary_lines={},
        summaries_waiting=0,
        last_resort=(),
        tokenizer_calls=1,
        timings_ms={},
    )
    return replace(base, **changes)


def test_coverage_counts_add_up_to_the_conversation():
    assert example().coverage_counts() == {"verbatim": 0, "summarized": 39, "retrieved": 1, "omitted": 0}


def terminal(monkeypatch, columns, **environment):
    """Have standard output be a terminal of so many columns."""
    for name in ("NO_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"COLUMNS": str(columns), **environment}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)


def test_a_chart_for_no_terminal_has_80_columns_and_no_colours(monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    assert example().to_text() == example().to_text(width=80, colour=False)


@pytest.mark.parametrize(
    ("environment", "colours"),
    [({}, True), ({"NO_COLOR": "1"}, False), ({"NO_COLOR": ""}, True), ({"TERM": "dumb"}, False)],
)
def test_a_terminal_gets_colours_unless_it_does_not_want_them(monkeypatch, environment, colours):
    terminal(monkeypatch, 80, **environment)
    assert example().to_text() == example().to_text(width=80, colour=colours)
    assert ("\x1b" in example().to_text()) == colours


def test_omissions_beyond_those_listed_are_counted_per_reason():
    many = [item(status=Status.OMITTED, reason=Reason.NO_ROOM)] * (LISTED_OMISSIONS + 3)
    part = layer(items=[*many, item(status=Status.OMITTED, reason=Reason.PRUNED), item()], more={Reason.NO_ROOM: 2})
    assert part.more_omitted == {Reason.NO_ROOM: 5, Reason.PRUNED: 1}


@settings(deadline=None)
@given(st.integers(0, 120), st.integers(0, 120), st.integers(0, 20))
def test_every_candidate_is_listed_or_counted(omitted, included, more):
    items = [item(status=Status.OMITTED)] * omitted + [item()] * included
    part = layer(items=items, more={Reason.SUMMARIZED: more})
    assert len(part.items) + sum(part.more_omitted.values()) == omitted + included + more


STATES = st.sampled_from(["verbatim", "summarized", "retrieved", "omitted"])


@st.composite
def coverages(draw):
    total = draw(st.integers(0, 40))
    cut = draw(st.integers(0, total))
    span = st.tuples(st.integers(0, 40), st.integers(0, 40)).map(sorted).map(tuple)
    marks = draw(st.dictionaries(st.integers(0, total - 1), STATES)) if total else {}
    return total, cut, draw(st.lists(span, max_size=6)), marks


def state(position, cut, covered, marks):
    before = "summarized" if any(first <= position < end for first, end in covered) else "omitted"
    return marks.get(position, before if position < cut else "verbatim")


@settings(deadline=None, max_examples=500)
@given(coverages())
def test_ranges_put_every_message_in_its_state(coverage):
    total, cut, covered, marks = coverage
    found = [part.state for part in ranges(total, cut, covered, marks) for _ in range(part.first, part.last + 1)]
    assert found == [state(position, cut, covered, marks) for position in range(total)]


@settings(deadline=None)
@given(coverages())
def test_ranges_are_as_few_as_can_be(coverage):
    states = [part.state for part in ranges(*coverage)]
    assert all(a != b for a, b in pairwise(states))
