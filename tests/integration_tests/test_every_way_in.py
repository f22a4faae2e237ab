"""An agent with the package, every way in, keeps to the budget and to what was said.

The server accepts every request, and what is kept is what an agent without the package keeps.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any

import pytest

from tests.cases import few_are_quick
from tests.doubles.recount import count, recount
from tests.integration_tests.scripted_agent import BIG, BIG_RESULT_TOKENS, KINDS, TOOLS, Script
from tests.integration_tests.ways_in import WITH_TOOLS, Outcome, WithoutThePackage, outcome_of

pytestmark = pytest.mark.allow_hosts(["127.0.0.1"])

SCRIPT = Script(13)
BUDGET_TOKENS = 5_000
WITHOUT_REPORT = ("window",)
"""A window of a history has no report."""


@cache
def outcome(name: str, script: Script = SCRIPT) -> Outcome:
    return run(WITH_TOOLS[name], script)


@cache
def without_the_package(script: Script = SCRIPT) -> Outcome:
    return run(WithoutThePackage, script)


def run(way_in: Any, script: Script) -> Outcome:
    return outcome_of(way_in, script, budget_tokens=BUDGET_TOKENS, tools=TOOLS, durability="exit")


every_way_in = pytest.mark.parametrize("name", few_are_quick(WITH_TOOLS, 2))
every_script = pytest.mark.parametrize(
    "script", [SCRIPT, pytest.param(Script(50), marks=pytest.mark.slow)], ids=["short", "long"]
)


@pytest.mark.slow
@every_script
@every_way_in
def test_requests_are_accepted_and_counted_and_what_was_said_is_kept(
    name: str, script: Script
) -> None:
    """One test for one run: a run takes seconds, and another worker would make it again."""
    agent = outcome(name, script)
    expected = without_the_package(script)
    assert agent.refused == []
    assert len(agent.received) == len(expected.received)
    assert agent.stored == expected.stored
    if name in WITHOUT_REPORT:
        assert agent.reports == []
    else:
        require_true_totals(agent)


def require_true_totals(agent: Outcome) -> None:
    """The totals of the reports are at least what the server counts, and within the budget."""
    counts = [recount(body) for body in agent.received]
    totals = [report.total_tokens for report in agent.reports]
    assert len(totals) == len(counts)
    pairs = zip(counts, totals, strict=True)
    assert [(counted, total) for counted, total in pairs if counted > total] == []
    assert max(totals) <= BUDGET_TOKENS


# The script is worth the comparison


def results_of_tools() -> list[dict[str, Any]]:
    return [message for message in without_the_package().stored if message["type"] == "tool"]


def test_the_script_has_turns_of_every_kind() -> None:
    assert {turn.kind for turn in SCRIPT.turns} == {*KINDS, BIG}


@pytest.mark.slow
def test_the_script_has_a_big_result() -> None:
    assert max(count(result["content"]) for result in results_of_tools()) >= BIG_RESULT_TOKENS


@pytest.mark.slow
def test_the_script_has_tools_that_succeed_and_fail() -> None:
    assert {result["status"] for result in results_of_tools()} == {"success", "error"}


def test_the_script_has_an_answer_to_an_interrupt() -> None:
    assert any("yes, please" in result["content"] for result in results_of_tools())


# The budget is tight


def requests_of_loop() -> Sequence[str]:
    return [str(body["messages"]) for body in outcome("loop").received]


@pytest.mark.slow
def test_the_budget_is_so_tight_that_history_is_compacted() -> None:
    counts = [report.coverage_counts() for report in outcome("loop").reports]
    assert any(states["summarized"] for states in counts)


@pytest.mark.slow
def test_the_budget_is_so_tight_that_results_are_clipped() -> None:
    assert any("tokens left out" in text for text in requests_of_loop())


@pytest.mark.slow
def test_the_budget_is_so_tight_that_turns_lose_calls() -> None:
    [chain, *_] = [turn.number for turn in SCRIPT.turns if turn.kind == "chain"]
    with_last_call = [text for text in requests_of_loop() if f"turn{chain}-step5-call0" in text]
    assert any(f"turn{chain}-step0-call0" not in text for text in with_last_call)
