"""An agent with the package, every way in.

The server accepts every request, and what is kept is what was said.
"""

from functools import cache

import pytest

from tests.integration_tests.scripted_agent import BIG, BIG_RESULT_TOKENS, KINDS, TOOLS, Script
from tests.integration_tests.strict_openai_server import count, recount
from tests.integration_tests.ways_in import WITH_TOOLS, Outcome, WithoutThePackage, outcome_of

pytestmark = pytest.mark.allow_hosts(["127.0.0.1"])

SCRIPT = Script(13)
BUDGET_TOKENS = 5_000
WITHOUT_REPORT = ("window",)
"""A window of a history has no report."""


@cache
def outcome(name: str, script: Script = SCRIPT) -> Outcome:
    return outcome_of(
        WITH_TOOLS[name], script, budget_tokens=BUDGET_TOKENS, tools=TOOLS, durability="exit"
    )


@cache
def expected(script: Script) -> Outcome:
    return outcome_of(
        WithoutThePackage, script, budget_tokens=BUDGET_TOKENS, tools=TOOLS, durability="exit"
    )


@pytest.mark.parametrize("name", WITH_TOOLS)
@pytest.mark.parametrize(
    "script", [SCRIPT, pytest.param(Script(50), marks=pytest.mark.slow)], ids=["short", "long"]
)
def test_requests_are_accepted_reports_are_right_and_what_was_said_is_kept(
    name: str, script: Script
) -> None:
    made = outcome(name, script)
    without = expected(script)
    assert made.refused == []
    counts = [recount(body) for body in made.received]
    totals = [report.total_tokens for report in made.reports]
    assert len(counts) == len(without.received)
    assert len(totals) == (0 if name in WITHOUT_REPORT else len(counts))
    assert all(
        theirs <= ours <= BUDGET_TOKENS for theirs, ours in zip(counts, totals, strict=False)
    )
    assert made.stored == without.stored


def test_the_script_is_worth_the_comparison() -> None:
    assert {turn.kind for turn in SCRIPT.turns} == {*KINDS, BIG}
    results = [message for message in expected(SCRIPT).stored if message["type"] == "tool"]
    assert max(count(message["content"]) for message in results) >= BIG_RESULT_TOKENS
    assert {message["status"] for message in results} == {"success", "error"}
    assert any("yes, please" in message["content"] for message in results)


def test_the_budget_is_so_tight_that_history_is_compacted_results_are_clipped_and_turns_lose_calls() -> (
    None
):
    made = outcome("loop")
    asked = [str(body["messages"]) for body in made.received]
    assert any(report.coverage_counts()["summarized"] for report in made.reports)
    assert any("tokens left out" in text for text in asked)
    chain = next(turn.number for turn in SCRIPT.turns if turn.kind == "chain")
    assert any(
        f"turn{chain}-step5-call0" in text and f"turn{chain}-step0-call0" not in text
        for text in asked
    )
