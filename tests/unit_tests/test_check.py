"""The gate over conversations: what a policy keeps and costs, and the worst cases."""

from functools import cache
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from langchain_core.language_models import FakeListChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage

from langchain_ctxbudget.errors import InputError
from langchain_ctxbudget.replay import CheckResult, check, replay

BUDGET = 300


def long_chat(turns: int) -> list[BaseMessage]:
    """A chat that begins with a code, and whose last answer has it again."""
    messages: list[BaseMessage] = [
        HumanMessage("The locker code is QX-771-B, on the left."),
        AIMessage("Noted."),
    ]
    for number in range(turns):
        messages.append(HumanMessage(f"Who has the drill of row {number}, and until which day?"))
        messages.append(AIMessage("A member, and it is due at the end of the week, as always."))
    messages.append(HumanMessage("How do I open it?"))
    messages.append(AIMessage("With QX-771-B."))
    return messages


CHAT = long_chat(20)
SHORT = CHAT[:4]


@cache
def checked() -> CheckResult:
    return check({"lockers": CHAT, "short": SHORT}, "recency", budget=BUDGET, beside=["full"])


def test_what_was_trimmed_is_not_kept() -> None:
    figures = checked().total[0]

    assert figures.strategy == "recency"
    assert figures.kept_percent == 0


def test_everything_keeps_everything_at_its_own_cost() -> None:
    figures = checked().total[1]

    assert (figures.strategy, figures.kept_percent, figures.cost_percent) == ("full", 100, 100)


def test_the_worst_case_says_what_was_lost() -> None:
    [case] = checked().worst

    assert case.conversation == "lockers"
    assert case.loss.turn == 22
    assert case.loss.message == 1
    assert case.loss.sentence == "The locker code is QX-771-B, on the left."
    assert case.loss.items == ("QX-771-B",)


def test_the_worst_case_is_printed() -> None:
    text = str(checked())

    assert "1. lockers, turn 22: the answer used message 1:" in text
    assert "   “The locker code is QX-771-B, on the left.”\n   not in its prompt: QX-771-B" in text
    assert "recency keeps 0.0 % of what later steps used" in text


@pytest.mark.parametrize(
    ("gate", "passes"),
    [
        ({"kept": 0, "cost": 1_000}, True),
        ({"kept": 1, "cost": 1_000}, False),
        ({"kept": 0, "cost": 10}, False),
    ],
    ids=["open", "keeps too little", "costs too much"],
)
def test_a_gate_asks_for_both(gate: dict[str, Any], passes: bool) -> None:
    result = check({"lockers": CHAT}, "recency", budget=BUDGET, **gate)

    assert result.passes is passes


def test_a_prompt_that_cannot_be_made_closes_the_gate() -> None:
    huge = [HumanMessage("drill " * 1_000), AIMessage("That is long."), *SHORT]
    result = check({"huge": huge}, budget=BUDGET, kept=0, cost=1_000)

    [problem] = result.problems
    assert problem.startswith("1 prompt could not be made; the first: turn 1: BudgetTooSmallError")


HALF_TOO_LONG = [
    *SHORT,
    HumanMessage("drill " * 1_000),
    AIMessage("That is long."),
]


def test_cost_is_over_the_prompts_that_both_could_make() -> None:
    [whole, *_] = check({"short": SHORT}, budget=BUDGET).total
    [half, *_] = check({"half": HALF_TOO_LONG}, budget=BUDGET).total

    assert half.failures
    assert half.cost_percent == whole.cost_percent == 100


def test_no_prompt_that_could_be_made_has_no_cost() -> None:
    result = check({"huge": HALF_TOO_LONG[4:]}, budget=BUDGET)

    assert result.total[0].cost_percent is None
    assert "no prompt made" in result.to_junit()
    [row] = [line for line in str(result).splitlines() if line.startswith("huge")]
    assert row.split()[-1] == "-"


def test_figures_are_rounded_as_they_are_printed() -> None:
    figures = check({"lockers": CHAT}, budget=BUDGET).total[0]

    assert figures.cost_percent == round(figures.cost_percent or 0, 1)
    assert f" {figures.cost_percent} %" in str(check({"lockers": CHAT}, budget=BUDGET))


def test_a_conversation_without_an_answer_is_skipped_and_named() -> None:
    result = check({"lockers": SHORT, "empty": [HumanMessage("Hello?")]}, budget=BUDGET)

    assert result.skipped == ("empty",)
    assert "Skipped, as it has no answer: empty" in str(result)


def test_nothing_with_an_answer_is_an_error() -> None:
    with pytest.raises(InputError, match="none of 1 conversations has an answer"):
        check({"empty": [HumanMessage("Hello?")]}, budget=BUDGET)


@pytest.mark.parametrize("gate", [{"kept": 101}, {"kept": -1}, {"cost": float("nan")}])
def test_a_gate_is_in_percent(gate: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="must be a percentage"):
        check({"lockers": SHORT}, budget=BUDGET, **gate)


def junit(result: CheckResult) -> ET.Element:
    return ET.fromstring(result.to_junit())


def test_a_junit_report_says_what_is_gated() -> None:
    suite = junit(checked())

    assert [case.get("name") for case in suite.findall("testcase")] == [
        "gate: keeps at least 95 % of what later steps used",
        "gate: costs at most 30 % of sending everything",
        "gate: makes every prompt",
        "not gated: lockers",
        "not gated: short",
    ]
    assert suite.get("tests") == "5"
    assert suite.get("failures") == "2"


def test_a_junit_report_has_the_total_and_its_prices() -> None:
    properties = {one.get("name"): one.get("value") for one in junit(checked()).iter("property")}

    assert (properties["total"] or "").startswith("recency: 0.0 % kept, ")
    assert (properties["prices"] or "").startswith("cached tokens at 0.1 of the price: assumed")


def test_a_conversation_below_the_gate_is_skipped_in_a_junit_report() -> None:
    skipped = junit(checked()).findall("testcase/skipped")

    [message] = [one.get("message") or "" for one in skipped]
    assert message.startswith("keeps 0.0 %, less than 95 %")


def test_the_cases_to_read_stand_below_what_is_kept_too_little() -> None:
    kept, cost = junit(checked()).findall("testcase/failure")

    assert "QX-771-B" in (kept.text or "")
    assert not cost.text


def test_a_junit_report_has_no_character_that_xml_refuses() -> None:
    result = check({"a\x00b\x1b": SHORT}, budget=BUDGET)

    assert "not gated: a b " in [case.get("name") for case in junit(result).iter("testcase")]


# Conversations that fit


def test_the_gate_allows_the_cost_of_everything_where_all_fit() -> None:
    result = check({"short": SHORT}, budget=BUDGET, cost=30)

    assert result.passes
    assert "All conversations fit into 300 tokens" in str(result)


@pytest.mark.slow
def test_a_longer_conversation_is_held_to_the_cost_beside_those_that_fit() -> None:
    result = check({"lockers": CHAT, "short": SHORT}, budget=BUDGET, kept=0, cost=30)

    assert not result.passes
    assert "1 of 2 conversations fit into 300 tokens" in str(result)


def test_a_strategy_that_leaves_something_out_does_not_let_a_conversation_fit() -> None:
    result = check({"short": SHORT}, "recency@30", budget=BUDGET, kept=0)

    assert [conversation.fits for conversation in result.conversations] == [False]


# Prices


@pytest.mark.slow
@pytest.mark.parametrize(
    "named", [{"price": "gpt-4o"}, {"model": "gpt-4o"}], ids=["price", "model"]
)
def test_one_named_model_is_counted_for_and_priced(named: dict[str, str]) -> None:
    both = check({"lockers": CHAT}, budget=BUDGET, price="gpt-4o", model="gpt-4o")

    assert check({"lockers": CHAT}, budget=BUDGET, **named).to_dict() == both.to_dict()


@pytest.mark.slow
def test_a_result_says_whose_prices_were_used() -> None:
    text = str(check({"lockers": CHAT}, budget=BUDGET, price="claude-sonnet-4-5"))

    assert "writing them at 1.25, prompts from" in text
    assert ": claude-sonnet-4-5, $3 a million tokens" in text


def test_a_price_of_an_unknown_model_is_an_error() -> None:
    with pytest.raises(InputError, match="no price is known for 'mine'"):
        check({"lockers": SHORT}, budget=BUDGET, price="mine")


# LangChain's summarization


def summaries() -> FakeListChatModel:
    return FakeListChatModel(responses=["They talked about drills."])


def test_summarization_keeps_its_state_over_turns() -> None:
    [track] = replay(
        long_chat(40), ["summarization"], budget=BUDGET, summary_model=summaries()
    ).tracks

    assert 1 < track.compaction_steps < track.calls
    assert track.failures == ()


def test_the_calls_that_sum_up_cost() -> None:
    [track] = replay(
        long_chat(40), ["summarization"], budget=BUDGET, summary_model=summaries()
    ).tracks

    assert 0 < track.own_effective_tokens < track.effective_tokens


def test_summarization_leaves_the_conversation_alone() -> None:
    messages = long_chat(30)
    before = [message.model_copy(deep=True) for message in messages]
    replay(messages, ["summarization"], budget=BUDGET, summary_model=summaries())

    assert messages == before


def test_summarization_without_a_model_is_an_error() -> None:
    with pytest.raises(InputError, match="needs a model that sums up"):
        replay(CHAT, ["summarization"], budget=BUDGET)
