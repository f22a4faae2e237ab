"""Calibration: never below what was measured, steady, forgetful; and the counter that is corrected by it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage

from langchain_ctxbudget.tokens import CalibratedCounter, Calibration, EstimatingCounter, TiktokenCounter, TokenCounter

EXACT, ESTIMATE = TiktokenCounter(), EstimatingCounter()
TOKENS = st.integers(1, 1_000_000)
OBSERVATIONS = st.lists(st.tuples(TOKENS, TOKENS), max_size=40)
FACTORS = st.integers(10, 90).map(lambda steps: steps / 20)


def observed(observations: list[tuple[int, int]], *, exact: bool = False) -> Calibration:
    calibration = Calibration(exact=exact)
    for estimated, measured in observations:
        calibration = calibration.observe(estimated, measured)
    return calibration


TEXT = st.text(max_size=60) | st.lists(st.sampled_from(["- one\n", "[a] two\n", "## three\n", "word "])).map("".join)
MESSAGE = st.one_of(
    st.builds(HumanMessage, TEXT, name=st.none() | st.just("ada")),
    st.builds(SystemMessage, TEXT),
    st.builds(HumanMessage, st.lists(st.fixed_dictionaries({"type": st.just("text"), "text": TEXT}), max_size=3)),
    st.builds(ToolMessage, TEXT, tool_call_id=st.just("c1")),
    st.builds(AIMessage, TEXT, tool_calls=st.just([{"id": "c1", "name": "find", "args": {"city": "Köln"}}])),
)


@settings(deadline=None)
@given(OBSERVATIONS, st.integers(500, 1_000_000), TOKENS, st.booleans())
def test_what_was_measured_again_and_again_is_not_counted_below(
    before: list[tuple[int, int]], estimated: int, measured: int, exact: bool
) -> None:
    calibration = observed([*before, *[(estimated, measured)] * 4], exact=exact)
    counter = CalibratedCounter(Fixed(estimated), calibration.factor)
    assert counter.count_text("any") >= measured


@given(
    st.lists(st.integers(600, 1_400), min_size=3, max_size=15),
    st.lists(st.integers(2_200, 20_000), min_size=1, max_size=3),
    st.booleans(),
    st.data(),
)
def test_accidents_change_no_factor(usual: list[int], sums: list[int], exact: bool, data: st.DataObject) -> None:
    few = sums[: max(1, (len(usual) + 1) // 4 - 1)]
    mixed = data.draw(st.permutations([*usual, *few]))
    counted = [(1_000, measured) for measured in mixed]
    assert observed(counted, exact=exact).factor <= max(1.0, -(-max(usual) // 50) * 0.05) + 1e-9


def test_one_measurement_alone_doubles_an_estimate_at_most_and_moves_an_exact_count_by_half() -> None:
    assert [observed([(1_000, measured)]).factor for measured in (1_900, 3_400)] == [1.9, 2.0]
    assert [observed([(1_000, measured)], exact=True).factor for measured in (1_450, 1_600)] == [1.45, 1.0]


@given(OBSERVATIONS)
def test_the_factor_is_a_multiple_of_a_twentieth_and_at_least_a_half(observations: list[tuple[int, int]]) -> None:
    factor = observed(observations).factor
    assert observed(observations, exact=True).factor >= 1, "an exact count is never corrected downwards"
    assert factor >= 0.5
    assert factor * 20 == pytest.approx(round(factor * 20))


class Fixed(TokenCounter):
    """Any text has the same count."""

    name, mode = "fixed", "estimated"

    def __init__(self, tokens: int) -> None:
        super().__init__()
        self.tokens = tokens

    def _count(self, text: str) -> int:
        return self.tokens


@pytest.mark.parametrize(("factor", "tokens", "expected"), [(1.1, 10, 11), (1.15, 20, 23), (0.55, 20, 11), (1.1, 1, 2)])
def test_a_count_is_rounded_up_from_the_factor_as_it_is_written(factor: float, tokens: int, expected: int) -> None:
    assert CalibratedCounter(Fixed(tokens), factor).count_text("any") == expected


@settings(deadline=None)
@given(st.lists(MESSAGE, max_size=4), FACTORS)
def test_a_request_is_never_corrected_to_less_than_its_share(messages: list[BaseMessage], factor: float) -> None:
    for inner in (EXACT, ESTIMATE):
        counter = CalibratedCounter(inner, factor)
        assert counter.count_messages(messages) >= inner.count_messages(messages) * factor - 1e-6


LINE = st.tuples(st.sampled_from("-[#<"), st.text(max_size=30), st.sampled_from(["\n", "\n\n"])).map("".join)


@settings(deadline=None, max_examples=80)
@given(st.lists(LINE, max_size=12), FACTORS)
def test_lines_cost_together_what_they_cost_one_by_one(lines: list[str], factor: float) -> None:
    for inner in (EXACT, ESTIMATE):
        counter = CalibratedCounter(inner, factor)
        assert counter.count_text("".join(lines)) == sum(map(counter.count_text, lines))
