"""Calibration: never below what was measured, steady, forgetful; and the counter that is corrected by it."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool

from langchain_ctxbudget.core.calibration import CalibratedCounter, Calibration
from langchain_ctxbudget.core.tokens import EstimatingCounter, TiktokenCounter, TokenCounter
from langchain_ctxbudget.errors import InputError

EXACT, ESTIMATE = TiktokenCounter(), EstimatingCounter()
TOKENS = st.integers(1, 1_000_000)
OBSERVATIONS = st.lists(st.tuples(TOKENS, TOKENS), max_size=40)
FACTORS = st.integers(10, 90).map(lambda steps: steps / 20)


def observed(observations: list[tuple[int, int]], *, exact: bool = False) -> Calibration:
    calibration = Calibration(exact=exact)
    for estimated, measured in observations:
        calibration = calibration.observe(estimated, measured)
    return calibration


@tool
def find_flight(city: str, day: str) -> str:
    """Finds flights.

    Args:
        city: where to.
        day: when, as YYYY-MM-DD.
    """
    return city + day


TEXT = st.text(max_size=60) | st.lists(st.sampled_from(["- one\n", "[a] two\n", "## three\n", "word "])).map("".join)
MESSAGE = st.one_of(
    st.builds(HumanMessage, TEXT, name=st.none() | st.just("ada")),
    st.builds(SystemMessage, TEXT),
    st.builds(HumanMessage, st.lists(st.fixed_dictionaries({"type": st.just("text"), "text": TEXT}), max_size=3)),
    st.builds(ToolMessage, TEXT, tool_call_id=st.just("c1")),
    st.builds(AIMessage, TEXT, tool_calls=st.just([{"id": "c1", "name": "find", "args": {"city": "Köln"}}])),
)


# -- the factor


def test_nothing_observed_corrects_nothing() -> None:
    assert Calibration().factor == 1.0


@settings(deadline=None)
@given(OBSERVATIONS, TOKENS, TOKENS, st.booleans())
def test_what_was_just_measured_is_not_counted_below(
    before: list[tuple[int, int]], estimated: int, measured: int, exact: bool
) -> None:
    calibration = observed([*before, (estimated, measured)], exact=exact)
    counter = CalibratedCounter(Fixed(estimated), calibration.factor, calibration.request_tokens)
    assert counter.count_text("any") + counter.request_tokens >= measured


@given(OBSERVATIONS, TOKENS, TOKENS, st.integers(0, 1_000_000))
def test_a_higher_measurement_never_gives_a_lower_factor(
    before: list[tuple[int, int]], estimated: int, measured: int, more: int
) -> None:
    calibration = observed(before)
    assert calibration.observe(estimated, measured + more).factor >= calibration.observe(estimated, measured).factor


@given(OBSERVATIONS)
def test_the_factor_is_a_multiple_of_a_twentieth_and_at_least_a_half(observations: list[tuple[int, int]]) -> None:
    factor = observed(observations).factor
    assert factor >= 0.5
    assert factor * 20 == pytest.approx(round(factor * 20))


@given(OBSERVATIONS)
def test_an_exact_counter_is_never_corrected_downwards(observations: list[tuple[int, int]]) -> None:
    assert observed(observations, exact=True).factor >= 1


@given(
    st.lists(st.tuples(st.integers(500, 10_000), TOKENS), max_size=30),
    st.lists(st.tuples(st.integers(500, 10_000), TOKENS), min_size=16, max_size=16),
)
def test_only_the_last_16_observations_count(old: list[tuple[int, int]], recent: list[tuple[int, int]]) -> None:
    assert observed([*old, *recent]) == observed(recent)


def test_the_order_of_the_observations_that_count_does_not_matter() -> None:
    orders = permutations([(1_000, 900), (1_000, 1_310), (1_000, 1_100), (1_000, 700)])
    assert {observed(list(order)).factor for order in orders} == {1.35}


def test_the_largest_ratio_counts() -> None:
    assert observed([(1_000, 1_200), (1_000, 800)]).factor == 1.2


def test_a_counter_that_estimates_too_much_is_corrected_downwards() -> None:
    assert observed([(1_000, 760)]).factor == 0.8


def test_a_small_request_does_not_lower_the_factor() -> None:
    assert observed([(499, 100)]).factor == 1.0
    assert observed([(500, 100)]).factor == 0.5


def test_what_a_provider_adds_to_a_small_request_is_added_to_every_request() -> None:
    calibration = observed([(20, 366)])
    assert (calibration.factor, calibration.request_tokens) == (1.0, 352)


def test_what_a_provider_adds_to_every_request_does_not_blow_up_the_factor() -> None:
    calibration = observed([(50, 50 + 346), (2_000, 2_346), (4_000, 4_346)])
    assert calibration.factor == 1.2
    assert calibration.request_tokens == 336


@given(OBSERVATIONS, st.lists(st.tuples(st.integers(1, 199), TOKENS), max_size=40))
def test_small_requests_never_change_the_factor(before: list[tuple[int, int]], small: list[tuple[int, int]]) -> None:
    assert observed([*before, *small]).factor == observed(before).factor


@settings(deadline=None)
@given(st.lists(MESSAGE, max_size=4), st.integers(0, 500))
def test_what_every_request_has_is_added_once(messages: list[BaseMessage], extra: int) -> None:
    with_extra = CalibratedCounter(EXACT, 1.25, extra).count_messages(messages)
    assert with_extra == CalibratedCounter(EXACT, 1.25).count_messages(messages) + extra


def test_a_ratio_that_is_met_exactly_is_not_rounded_up() -> None:
    assert observed([(1_000, 1_050)]).factor == 1.05
    assert observed([(1_000, 1_051)]).factor == 1.1


@pytest.mark.parametrize(("estimated", "measured"), [(1_000, 0), (0, 1_000), (-5, 10)])
def test_what_is_no_measurement_changes_nothing(estimated: int, measured: int) -> None:
    assert Calibration().observe(estimated, measured) == Calibration()


def test_observing_leaves_the_calibration_as_it_was() -> None:
    calibration = Calibration()
    calibration.observe(1_000, 1_500)
    assert calibration.factor == 1.0


# -- the counter


class Fixed(TokenCounter):
    """Any text has the same count."""

    name, mode = "fixed", "estimated"

    def __init__(self, tokens: int) -> None:
        super().__init__()
        self.tokens = tokens

    def _count(self, text: str) -> int:
        return self.tokens


def test_its_name_mode_and_framing_are_those_of_the_other_counter() -> None:
    counter = CalibratedCounter(ESTIMATE, 1.2)
    assert (counter.name, counter.mode, counter.framing) == (ESTIMATE.name, ESTIMATE.mode, ESTIMATE.framing)


@pytest.mark.parametrize("factor", [0, -1.0, float("nan"), float("inf")])
def test_a_factor_that_is_no_number_above_0_is_refused(factor: float) -> None:
    with pytest.raises(InputError, match="factor must be a number above 0"):
        CalibratedCounter(ESTIMATE, factor)


@pytest.mark.parametrize(("factor", "tokens", "expected"), [(1.1, 10, 11), (1.15, 20, 23), (0.55, 20, 11), (1.1, 1, 2)])
def test_a_count_is_rounded_up_from_the_factor_as_it_is_written(factor: float, tokens: int, expected: int) -> None:
    assert CalibratedCounter(Fixed(tokens), factor).count_text("any") == expected


@settings(deadline=None)
@given(st.lists(MESSAGE, max_size=4), FACTORS)
def test_a_request_is_never_corrected_to_less_than_its_share(messages: list[BaseMessage], factor: float) -> None:
    for inner in (EXACT, ESTIMATE):
        counter = CalibratedCounter(inner, factor)
        assert counter.count_messages(messages) >= inner.count_messages(messages) * factor - 1e-6


@settings(deadline=None)
@given(MESSAGE)
def test_a_factor_of_1_changes_no_count(message: BaseMessage) -> None:
    for inner in (EXACT, ESTIMATE):
        assert CalibratedCounter(inner, 1.0).count_messages([message]) == inner.count_messages([message])


@settings(deadline=None)
@given(MESSAGE, FACTORS)
def test_a_message_costs_at_most_two_tokens_and_one_per_line_more_than_its_share(
    message: BaseMessage, factor: float
) -> None:
    lines = sum(text.count("\n") + 1 for text in [message.text, *(["x"] * len(message.content))])
    corrected = CalibratedCounter(EXACT, factor).count_message(message)
    assert corrected <= EXACT.count_message(message) * factor + 2 + lines


@pytest.mark.parametrize("tools", [[], [find_flight], [find_flight, {"type": "web_search"}]])
def test_tools_are_corrected_alike(tools: list[Any]) -> None:
    assert CalibratedCounter(EXACT, 2.0).count_tools(tools) == 2 * EXACT.count_tools(tools)


@pytest.mark.parametrize("response_format", [None, {"type": "json_object"}])
def test_response_formats_are_corrected_alike(response_format: Any) -> None:
    corrected = CalibratedCounter(EXACT, 2.0).count_response_format(response_format)
    assert corrected == 2 * EXACT.count_response_format(response_format)


def test_what_the_other_counter_knows_is_not_tokenized_again() -> None:
    inner = TiktokenCounter()
    message = HumanMessage("When did I book the flight to Lisbon?")
    inner.count_messages([message])
    inner.count_tools([find_flight])
    before = inner.calls
    counter = CalibratedCounter(inner, 1.3)
    counter.count_messages([message])
    counter.count_tools([find_flight])
    assert counter.calls == inner.calls == before


LINE = st.tuples(st.sampled_from("-[#<"), st.text(max_size=30), st.sampled_from(["\n", "\n\n"])).map("".join)


@settings(deadline=None, max_examples=300)
@given(st.lists(LINE, max_size=12), FACTORS)
def test_lines_cost_together_what_they_cost_one_by_one(lines: list[str], factor: float) -> None:
    for inner in (EXACT, ESTIMATE):
        counter = CalibratedCounter(inner, factor)
        assert counter.count_text("".join(lines)) == sum(map(counter.count_text, lines))


@settings(deadline=None)
@given(st.lists(LINE, min_size=1, max_size=8), st.text(max_size=30).map("<".__add__), FACTORS)
def test_a_block_in_front_of_a_message_adds_what_its_lines_cost(lines: list[str], said: str, factor: float) -> None:
    counter = CalibratedCounter(EXACT, factor)
    block = sum(map(counter.count_text, lines))
    alone, together = (counter.count_message(HumanMessage(text)) for text in (said, "".join(lines) + said))
    assert together == alone + block
