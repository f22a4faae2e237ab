"""An agent with the package, every way in: the server accepts every request, and what is kept is what was said."""

from __future__ import annotations

from functools import cache

import pytest

from tests.integration_tests.agents import Agent
from tests.integration_tests.graph_agents import WithoutThePackage
from tests.integration_tests.scripted_agent import BIG, BIG_RESULT_TOKENS, KINDS, TOOLS, Script
from tests.integration_tests.strict_openai_server import count, recount
from tests.integration_tests.ways_in import (
    RUNS,
    WITH_TOOLS,
    WITHOUT_TOOLS,
    Outcome,
    outcome_of,
)

pytestmark = pytest.mark.allow_hosts(["127.0.0.1"])

SCRIPT = Script(16)
BUDGET_TOKENS = 5_000
MEMORIES = [name for name in WITHOUT_TOOLS if name.startswith("memory")]
REPORTING = [name for name in (*WITH_TOOLS, *WITHOUT_TOOLS) if name not in ("window", "chain", "memory")]
"""A window of a history has no report."""


def way_of(name: str) -> tuple[type[Agent], tuple[object, ...]]:
    """What a way in is, and the tools that it has."""
    return (WITH_TOOLS[name], TOOLS) if name in WITH_TOOLS else (WITHOUT_TOOLS[name], ())


@cache
def outcome(name: str, run: str) -> Outcome:
    way, tools = way_of(name)
    return outcome_of(way, run, SCRIPT, budget_tokens=BUDGET_TOKENS, tools=tools)


@cache
def expected(name: str) -> Outcome:
    _, tools = way_of(name)
    return outcome_of(WithoutThePackage, "async", SCRIPT, budget_tokens=BUDGET_TOKENS, tools=tools)


every_way = pytest.mark.parametrize("name", [*WITH_TOOLS, *WITHOUT_TOOLS])
sync_and_async = pytest.mark.parametrize("run", RUNS)


@every_way
@sync_and_async
def test_the_server_refuses_no_request(name: str, run: str) -> None:
    assert outcome(name, run).refused == []
    assert len(outcome(name, run).received) == len(expected(name).received)


@pytest.mark.parametrize("name", [name for name in (*WITH_TOOLS, *WITHOUT_TOOLS) if name not in MEMORIES])
@sync_and_async
def test_what_is_kept_is_what_an_agent_without_the_package_keeps(name: str, run: str) -> None:
    assert outcome(name, run).stored == expected(name).stored


@pytest.mark.parametrize("name", MEMORIES)
@sync_and_async
def test_a_memory_keeps_the_words_of_which_a_chain_tells_it(name: str, run: str) -> None:
    def words(made: Outcome) -> list[tuple[str, str]]:
        return [(message["type"], message["content"]) for message in made.stored]

    assert words(outcome(name, run)) == words(expected(name))


@sync_and_async
@pytest.mark.parametrize("name", REPORTING)
def test_every_report_is_within_the_budget_and_not_below_the_server_s_count(name: str, run: str) -> None:
    made = outcome(name, run)
    counts = [recount(body) for body in made.received]
    totals = [report.total_tokens for report in made.reports]
    assert len(totals) == len(counts)
    assert all(theirs <= ours <= BUDGET_TOKENS for theirs, ours in zip(counts, totals, strict=True))


def test_the_script_has_every_kind_of_turn() -> None:
    assert {turn.kind for turn in SCRIPT.turns} == {*KINDS, BIG}


def test_the_agent_without_the_package_keeps_big_results_errors_and_decisions() -> None:
    results = [message for message in expected("loop").stored if message["type"] == "tool"]
    assert max(count(message["content"]) for message in results) >= BIG_RESULT_TOKENS
    assert {message["status"] for message in results} == {"success", "error"}
    assert any("yes, please" in message["content"] for message in results)


def test_the_budget_is_so_tight_that_history_is_compacted_results_are_clipped_and_turns_lose_calls() -> None:
    made = outcome("loop", "async")
    asked = [str(body["messages"]) for body in made.received]
    assert any(report.coverage_counts()["summarized"] for report in made.reports)
    assert any("tokens left out" in text for text in asked)
    chain = next(turn.number for turn in SCRIPT.turns if turn.kind == "chain")
    assert any(f"turn{chain}-step5-call0" in text and f"turn{chain}-step0-call0" not in text for text in asked)
