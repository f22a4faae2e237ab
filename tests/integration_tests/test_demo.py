"""The demo that command, dashboard, notebooks and README share."""

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

TIMED = {"milliseconds"}


@pytest.fixture(scope="module")
def compared() -> SideBySide:
    return side_by_side()


@pytest.fixture(scope="module")
def of_somebody_else() -> ContextReport:
    """The report of the demo's question, as the dashboard of another user has it."""
    with open_demo(user_id="me") as pipeline:
        place = Scope("me", DEMO_SESSION).place(TITLE)
        item = pipeline.store.get(place.namespace, place.key)
        assert item is not None
        assert item.value["text"] == DEMO_TITLE
        return pipeline.conversation(DEMO_SESSION, user_id="me").assemble(DEMO_QUESTION).report


def numbers(report: ContextReport) -> dict[str, object]:
    return {name: value for name, value in report.receipt("").items() if name not in TIMED}


@pytest.mark.slow
def test_everybody_tells_the_same_numbers(
    compared: SideBySide, of_somebody_else: ContextReport
) -> None:
    assert numbers(compared.context.report) == numbers(of_somebody_else)


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
