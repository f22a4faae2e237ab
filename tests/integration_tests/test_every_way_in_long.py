"""200 turns through every way in: the server accepts every request, and what is kept is what was said."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from tests.integration_tests.graph_agents import WithoutThePackage
from tests.integration_tests.scripted_agent import TOOLS, Script
from tests.integration_tests.ways_in import RUNS, WITH_TOOLS, WITHOUT_TOOLS, Outcome, outcome_of

pytestmark = [pytest.mark.slow, pytest.mark.allow_hosts(["127.0.0.1"])]

SCRIPT = Script(200)
SHORT = {"node and turn", "window", "memory, whole prompt"}
"""Other forms of a way in that has the whole script; 60 turns for these."""
BUDGET_TOKENS = 6_000
# Every step of every turn in a checkpoint of its own would be gigabytes.
PARTS: dict[str, Any] = {"budget_tokens": BUDGET_TOKENS, "durability": "exit"}

sync_and_async = pytest.mark.parametrize("run", RUNS)


def script_of(name: str) -> Script:
    return Script(60) if name in SHORT else SCRIPT


@cache
def expected(script: Script, *, tools: bool) -> Outcome:
    return outcome_of(WithoutThePackage, "async", script, tools=TOOLS if tools else (), **PARTS)


@sync_and_async
@pytest.mark.parametrize("name", WITH_TOOLS)
def test_hundreds_of_turns_with_tools_are_accepted_within_the_budget_and_kept_as_they_were(name: str, run: str) -> None:
    script = script_of(name)
    made = outcome_of(WITH_TOOLS[name], run, script, tools=TOOLS, recall_tool=True, **PARTS)
    assert made.refused == []
    assert max((report.total_tokens for report in made.reports), default=0) <= BUDGET_TOKENS
    assert made.stored == expected(script, tools=True).stored


@sync_and_async
@pytest.mark.parametrize("name", WITHOUT_TOOLS)
def test_hundreds_of_turns_of_a_chain_are_accepted_within_the_budget_and_kept_as_they_were(name: str, run: str) -> None:
    script = script_of(name)
    made = outcome_of(WITHOUT_TOOLS[name], run, script, **PARTS)
    assert made.refused == []
    assert max((report.total_tokens for report in made.reports), default=0) <= BUDGET_TOKENS
    assert words(made) == words(expected(script, tools=False))


def words(made: Outcome) -> list[tuple[str, str]]:
    """What of messages also a memory keeps, which is told words only."""
    return [(message["type"], message["content"]) for message in made.stored]
