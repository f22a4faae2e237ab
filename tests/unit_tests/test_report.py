"""The report: plain data that adds up, and a schema with a version."""

import copy
import json
import pickle
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import ContextPipeline
from langchain_ctxbudget.budget import Layer, Reason, Status
from langchain_ctxbudget.errors import InputError
from langchain_ctxbudget.messages import Repair
from langchain_ctxbudget.report import (
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
    Repair,
    st.sampled_from(["orphan_result", "empty_message"]),
    st.text(max_size=4),
    st.text(max_size=9),
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
            stable_zone_tokens=5,
            shared_tokens=None,
            stable_zone_share=None,
            prompt_share=None,
            compaction_step=False,
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


@st.composite
def reports(draw):
    layers = tuple(
        layer(
            which,
            draw(ITEMS),
            draw(st.integers(0, 50)),
            {Reason.SUMMARIZED: 3},
            draw(st.integers(0, 5_000)),
        )
        for which in Layer
    )
    overhead = draw(
        st.dictionaries(st.sampled_from(["framing", "tool schemas"]), st.integers(0, 2_000))
    )
    total = sum(part.used_tokens for part in layers) + sum(overhead.values())
    share = draw(st.none() | st.floats(0, 1))
    return example(
        user_id=draw(st.text(max_size=5)),
        budget_tokens=max(1, total + draw(st.integers(0, 5 * 10**6))),
        window_tokens=draw(st.none() | st.integers(1, 10**7)),
        output_reserve_tokens=draw(st.integers(0, 10**6)),
        total_tokens=total,
        uncorrected_tokens=total,
        count_mode=draw(st.sampled_from(["exact", "estimated"])),
        history_strategy=draw(
            st.sampled_from(["empty", "full", "windowed", "compacted", "multi_level"])
        ),
        layers=layers,
        overhead_tokens=overhead,
        coverage=ranges(*draw(coverages())),
        stability=Stability(
            stable_zone_tokens=draw(st.integers(0, 10**7)),
            shared_tokens=None if share is None else 7,
            stable_zone_share=share,
            prompt_share=share,
            compaction_step=draw(st.booleans()),
        ),
        summary_lines=draw(
            st.dictionaries(st.sampled_from(["extraction", "gpt-4o"]), st.integers(1, 99))
        ),
        last_resort=draw(st.sampled_from([(), ("light",), ("light", "medium")])),
        repairs=tuple(draw(st.lists(REPAIRS, max_size=2))),
        failures=tuple(draw(st.lists(st.text(max_size=300), max_size=2))),
        timings_ms=draw(st.dictionaries(st.sampled_from(["open", "assemble"]), st.floats(0, 1e6))),
        usage=draw(USAGE),
        forecast=draw(st.booleans()),
    )


@given(st.integers(0, 120), st.integers(0, 120), st.integers(0, 20))
def test_every_candidate_is_listed_or_counted(omitted, included, more):
    items = [item(status=Status.OMITTED)] * omitted + [item()] * included
    part = layer(items=items, more={Reason.RECENT: more})
    assert part.more_omitted[Reason.RECENT] == more + max(0, omitted - LISTED_OMISSIONS)
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


@settings(max_examples=200)
@given(coverages())
def test_ranges_put_every_message_in_its_state_and_are_as_few_as_can_be(coverage):
    total, cut, covered, marks = coverage
    parts = ranges(total, cut, covered, marks)
    found = [part.state for part in parts for _ in range(part.first, part.last + 1)]
    assert found == [state(position, cut, covered, marks) for position in range(total)]
    assert all(a.state != b.state for a, b in pairwise(parts))


DATA = example().to_dict()


@settings(max_examples=30)
@given(reports())
def test_a_report_comes_back_from_json_as_it_was(report):
    assert ContextReport.from_dict(json.loads(json.dumps(report.to_dict()))) == report


def test_what_is_no_report_is_refused_with_what_is_wrong():
    cases = [
        ({"schema_version": 2}, r"no report: schema_version: Input should be 3$"),
        ({"total_tokens": "many"}, "no report: total_tokens: Input should"),
        ({"layers": [{"layer": "L0"}]}, r"layers\.0\.title: Field required$"),
    ]
    for change, message in cases:
        with pytest.raises(InputError, match=message):
            ContextReport.from_dict({**DATA, **change})


def test_a_report_is_checkpointed_and_its_copies_are_equal():
    pipeline = ContextPipeline({"max_context_tokens": 600}, store=InMemoryStore())
    who = ("ada", "c1")
    report = pipeline.assemble("Which plan?", user_id=who[0], conversation_id=who[1]).report
    kind, data = JsonPlusSerializer(allowed_msgpack_modules=True).dumps_typed(report)
    assert (kind, len(data) < 10_000) == ("msgpack", True)
    for twin in (copy.copy(report), copy.deepcopy(report), pickle.loads(pickle.dumps(report))):
        assert twin == report
