"""The demo that command, dashboard, notebooks and README share."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from langchain_ctxbudget.demo import (
    DEMO_BUDGET,
    DEMO_QUESTION,
    DEMO_SESSION,
    DEMO_TITLE,
    SideBySide,
    open_demo,
    side_by_side,
)
from langchain_ctxbudget.report import ContextReport
from langchain_ctxbudget.stores import TITLE, Scope
from tests.integration_tests.dashboard import API, served

ROOT = Path(__file__).parents[2]
TIMED = {"milliseconds"}


@pytest.fixture(scope="module")
def compared() -> SideBySide:
    return side_by_side()


@pytest.fixture(scope="module")
def of_somebody_else() -> tuple[ContextReport, list[dict[str, Any]]]:
    """The report of the demo's question and its last turns, as another user's dashboard has it."""
    with open_demo(user_id="me") as pipeline:
        place = Scope("me", DEMO_SESSION).place(TITLE)
        item = pipeline.store.get(place.namespace, place.key)
        assert item is not None
        assert item.value["text"] == DEMO_TITLE
        pipeline.flush()

        async def turns() -> list[dict[str, Any]]:
            async with served(pipeline, user_id="me") as client:
                answer = await client.get(f"{API}/snapshots", params={"session_id": DEMO_SESSION})
                snapshots: list[dict[str, Any]] = answer.json()["snapshots"]
                return snapshots

        shown = asyncio.run(turns())
        chat = pipeline.conversation(DEMO_SESSION, user_id="me")
        return chat.assemble(DEMO_QUESTION).report, shown


def numbers(report: ContextReport) -> dict[str, object]:
    return {name: value for name, value in report.receipt("").items() if name not in TIMED}


@pytest.mark.slow
def test_everybody_tells_the_same_numbers(
    compared: SideBySide, of_somebody_else: tuple[ContextReport, list[dict[str, Any]]]
) -> None:
    report, _ = of_somebody_else
    assert numbers(compared.context.report) == numbers(report)


@pytest.mark.slow
def test_the_dashboard_shows_what_the_command_says_is_paid(
    compared: SideBySide, of_somebody_else: tuple[ContextReport, list[dict[str, Any]]]
) -> None:
    _, turns = of_somebody_else
    paid = sum(turn["effective_tokens"] + turn["own_effective_tokens"] for turn in turns)
    assert (compared.cost.turns, compared.cost.effective_tokens) == (len(turns), paid)


@pytest.mark.slow
def test_the_prompt_has_the_whole_answer(compared: SideBySide) -> None:
    assert [evidence.ours for evidence in compared.evidence] == [True, True]


def test_the_newest_messages_have_none_of_it(compared: SideBySide) -> None:
    assert [evidence.trimmed for evidence in compared.evidence] == [False, False]


def test_both_prompts_fit_the_same_budget(compared: SideBySide) -> None:
    assert compared.trimmed.total_tokens <= DEMO_BUDGET
    assert compared.context.report.total_tokens <= DEMO_BUDGET


def test_both_costs_are_of_the_same_turns(compared: SideBySide) -> None:
    assert compared.cost.turns == compared.trimmed.cost.turns == 24


def test_the_readme_tells_the_numbers_of_the_demo(compared: SideBySide) -> None:
    readme = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    counts = compared.context.report.coverage_counts()

    assert f"the {compared.trimmed.messages} newest messages" in readme
    ours = f"the {counts['verbatim']} newest, and {counts['retrieved']} old ones"
    assert ours in readme
