"""The report: plain data that adds up, and a schema with a version."""

import copy
import json
import pickle
from dataclasses import dataclass, replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import ContextPipeline
from langchain_ctxbudget.budget import Layer, Reason, Status
from langchain_ctxbudget.errors import InputError
from langchain_ctxbudget.providers import Repair
from langchain_ctxbudget.report import (
    LISTED_OMISSIONS,
    ContextReport,
    CoverageRange,
    ReportItem,
    Stability,
    UsageState,
    coverage_counts,
    layer_report,
    ranges,
)


def item(status=Status.INCLUDED):
    return ReportItem(id="m1", tokens=5, status=status, reason=Reason.RECENT, preview="hi")


def layer(which=Layer.HISTORY, items=(), overhead=0, more=None, allocated=100):
    return layer_report(
        which,
        title=which,
        allocated=allocated,
        items=items,
        overhead=overhead,
        more=more or {},
    )


def layers_with_one_item():
    """All layers, of which the history has an item of 5 tokens."""
    layers = {which: layer(which) for which in Layer}
    layers[Layer.HISTORY] = layer(Layer.HISTORY, [item()])
    return tuple(layers.values())


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
        layers=layers_with_one_item(),
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


SUMMARIZED = {Reason.SUMMARIZED: 3}
LAYERS = st.tuples(
    *(
        st.builds(
            layer,
            st.just(which),
            ITEMS,
            st.integers(0, 50),
            st.just(SUMMARIZED),
            st.integers(0, 5_000),
        )
        for which in Layer
    )
)
OVERHEADS = st.dictionaries(st.sampled_from(["framing", "tool schemas"]), st.integers(0, 2_000))
HISTORIES = st.sampled_from(["empty", "full", "windowed", "compacted", "multi_level"])
SUMMARY_LINES = st.dictionaries(st.sampled_from(["extraction", "gpt-4o"]), st.integers(1, 99))
LAST_RESORTS = st.sampled_from([(), ("light",), ("light", "medium")])
TIMINGS = st.dictionaries(st.sampled_from(["open", "assemble"]), st.floats(0, 1e6))
FIRST_PROMPTS = st.builds(
    Stability,
    stable_zone_tokens=st.integers(0, 10**7),
    shared_tokens=st.none(),
    stable_zone_share=st.none(),
    prompt_share=st.none(),
    compaction_step=st.booleans(),
)


def later_prompt(stable_zone_tokens, share, compaction_step):
    return Stability(
        stable_zone_tokens=stable_zone_tokens,
        shared_tokens=7,
        stable_zone_share=share,
        prompt_share=share,
        compaction_step=compaction_step,
    )


LATER_PROMPTS = st.builds(later_prompt, st.integers(0, 10**7), st.floats(0, 1), st.booleans())
STATES = st.sampled_from(["verbatim", "summarized", "retrieved", "omitted"])
SPANS = st.tuples(st.integers(0, 40), st.integers(0, 40)).map(sorted).map(tuple)


@dataclass
class Coverage:
    """How many messages there are, where the cut is, the spans behind it, and those marked."""

    total: int
    cut: int
    covered: list[tuple[int, int]]
    marks: dict[int, str]

    def ranges(self):
        return ranges(self.total, self.cut, self.covered, self.marks)

    def state(self, position):
        if position in self.marks:
            return self.marks[position]
        if position >= self.cut:
            return "verbatim"
        if any(first <= position < end for first, end in self.covered):
            return "summarized"
        return "omitted"


@st.composite
def coverages(draw):
    total = draw(st.integers(0, 40))
    cut = draw(st.integers(0, total))
    marks = {}
    if total:
        marks = draw(st.dictionaries(st.integers(0, total - 1), STATES))
    return Coverage(total, cut, draw(st.lists(SPANS, max_size=6)), marks)


@st.composite
def reports(draw):
    layers = draw(LAYERS)
    overhead = draw(OVERHEADS)
    total = sum(part.used_tokens for part in layers) + sum(overhead.values())
    return example(
        user_id=draw(st.text(max_size=5)),
        budget_tokens=max(1, total + draw(st.integers(0, 5 * 10**6))),
        window_tokens=draw(st.none() | st.integers(1, 10**7)),
        output_reserve_tokens=draw(st.integers(0, 10**6)),
        total_tokens=total,
        uncorrected_tokens=total,
        count_mode=draw(st.sampled_from(["exact", "estimated"])),
        history_strategy=draw(HISTORIES),
        layers=layers,
        overhead_tokens=overhead,
        coverage=draw(coverages()).ranges(),
        stability=draw(FIRST_PROMPTS | LATER_PROMPTS),
        summary_lines=draw(SUMMARY_LINES),
        last_resort=draw(LAST_RESORTS),
        repairs=tuple(draw(st.lists(REPAIRS, max_size=2))),
        failures=tuple(draw(st.lists(st.text(max_size=300), max_size=2))),
        timings_ms=draw(TIMINGS),
        usage=draw(USAGE),
        forecast=draw(st.booleans()),
    )


# Layers and coverage


@given(st.integers(0, 120), st.integers(0, 120), st.integers(0, 20))
def test_every_candidate_is_listed_or_counted(omitted, included, more):
    items = [item(Status.OMITTED)] * omitted + [item()] * included

    part = layer(items=items, more={Reason.RECENT: more})

    assert part.more_omitted[Reason.RECENT] == more + max(0, omitted - LISTED_OMISSIONS)
    assert len(part.items) + sum(part.more_omitted.values()) == omitted + included + more


def states_of_messages(parts):
    states = []
    for part in parts:
        states += [part.state] * (part.last - part.first + 1)
    return states


@given(coverages())
def test_ranges_put_every_message_in_its_state_and_are_few(coverage):
    parts = coverage.ranges()

    expected = [coverage.state(position) for position in range(coverage.total)]
    assert states_of_messages(parts) == expected
    for before, after in pairwise(parts):
        assert before.state != after.state


@given(coverages())
def test_messages_are_counted_as_ranges_have_them(coverage):
    counts = coverage_counts(coverage.total, coverage.cut, coverage.covered, coverage.marks)

    assert counts == replace(example(), coverage=coverage.ranges()).coverage_counts()


# A report as data


DATA = example().to_dict()


@pytest.mark.slow
@settings(max_examples=30)
@given(reports())
def test_a_report_comes_back_from_json_as_it_was(report):
    assert ContextReport.from_dict(json.loads(json.dumps(report.to_dict()))) == report


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema_version": 2}, r"no report: schema_version: Input should be 3$"),
        ({"total_tokens": "many"}, "no report: total_tokens: Input should"),
        ({"layers": [{"layer": "L0"}]}, r"layers\.0\.title: Field required$"),
    ],
    ids=["version", "type", "missing field"],
)
def test_what_is_no_report_is_refused_with_what_is_wrong(change, message):
    with pytest.raises(InputError, match=message):
        ContextReport.from_dict({**DATA, **change})


@pytest.fixture(scope="module")
def report():
    pipeline = ContextPipeline({"max_context_tokens": 600}, store=InMemoryStore())
    return pipeline.assemble("Which plan?", user_id="ada", conversation_id="c1").report


def test_a_report_is_checkpointed_in_little_space(report):
    kind, data = JsonPlusSerializer(allowed_msgpack_modules=True).dumps_typed(report)

    assert kind == "msgpack"
    assert len(data) < 10_000


def pickled_and_read(report):
    return pickle.loads(pickle.dumps(report))


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickled_and_read])
def test_a_copy_of_a_report_is_equal(report, copied):
    assert copied(report) == report
