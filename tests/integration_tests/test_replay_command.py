"""`ctxbudget replay`, as a user runs it."""

import json
from pathlib import Path
from typing import Any

import pytest

from langchain_ctxbudget.demo import demo_messages
from langchain_ctxbudget.replay import DEFAULT_STRATEGIES, split_turns
from langchain_ctxbudget.tokens import PRICES
from tests.integration_tests import test_cli
from tests.integration_tests.test_cli import Run


def drill_chat() -> list[dict[str, str]]:
    """Returns twelve exchanges about drills, behind a system message."""
    chat = [{"role": "system", "content": "You know a tool library."}]
    for number in range(12):
        question = f"Who has drill {number}, and until when?"
        answer = f"Member {number} has it until day {number + 3}."
        chat.append({"role": "user", "content": question, "id": f"q{number}"})
        chat.append({"role": "assistant", "content": answer, "id": f"a{number}"})
    return chat


CHAT = drill_chat()
"""What the fixture `chat_file` writes."""


def run(*arguments: object) -> Run:
    return test_cli.run("replay", *arguments)


def as_json(*arguments: object) -> dict[str, Any]:
    outcome = run(*arguments, "--json")
    assert outcome.code == 0, outcome.err
    data: dict[str, Any] = json.loads(outcome.out)
    return data


def rows_of(name: str, lines: list[str]) -> int:
    """Returns how many lines of a table are about a strategy."""
    return sum(line.startswith(name) for line in lines)


@pytest.mark.slow
def test_it_compares_four_strategies(chat_file: Path) -> None:
    outcome = run(chat_file, "--budget", 300)

    assert outcome.code == 0
    lines = outcome.out.splitlines()
    assert [rows_of(name, lines) for name in DEFAULT_STRATEGIES] == [1, 1, 1, 1]


def test_it_says_what_it_compares(chat_file: Path) -> None:
    outcome = run(chat_file, "--budget", 300)

    heading = "24 messages, 300 tokens for a prompt; exact counts (o200k_base)"
    assert outcome.out.startswith(heading)


@pytest.mark.slow
def test_its_progress_is_not_piped_on(chat_file: Path) -> None:
    outcome = run(chat_file, "--budget", 300)

    assert "48/48" in outcome.err
    assert "48/48" not in outcome.out


def test_a_price_weighs_what_is_cached(chat_file: Path) -> None:
    data = as_json(chat_file, "--compare", "full", "--price", "gpt-4o")

    price = PRICES["gpt-4o"]
    assert price.cached_input is not None
    assert data["tariff"]["read_share"] == price.cached_input / price.input


def test_a_price_makes_costs_of_tokens(chat_file: Path) -> None:
    data = as_json(chat_file, "--compare", "full", "--price", "gpt-4o")

    [track] = data["strategies"]
    dollars = track["effective_tokens"] * PRICES["gpt-4o"].input / 1_000_000
    assert track["cost"] == pytest.approx(dollars)


def test_costs_are_in_dollars(chat_file: Path) -> None:
    outcome = run(chat_file, "--compare", "full", "--price", "gpt-4o")

    assert "US $" in outcome.out


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (
            ["--price", "a-model-of-mine"],
            "InputError: price: no price is known for 'a-model-of-mine'",
        ),
        (
            ["--compare", "elastc"],
            "InvalidSettingsError: There is no strategy 'elastc' to replay; there are elastic",
        ),
        (["--budget", "0"], "InputError: budget must be at least 1 token"),
    ],
)
def test_what_cannot_be_is_an_error_before_any_work(
    chat_file: Path, arguments: list[str], problem: str
) -> None:
    outcome = run(chat_file, *arguments)

    assert outcome.code == 1
    assert outcome.out == ""
    assert problem in outcome.err


@pytest.fixture(scope="module")
def too_small(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Returns a replay with a budget that has room for the prompts of one of two strategies."""
    path = tmp_path_factory.mktemp("chats") / "chat.json"
    path.write_text(json.dumps(CHAT), "utf-8")
    return run(path, "--budget", 10, "--compare", "elastic,full")


def test_the_table_says_that_no_prompt_fits(too_small: Run) -> None:
    [row] = [line for line in too_small.out.splitlines() if line.startswith("elastic  ")]

    assert row.split() == ["elastic", "0", "no", "prompt", "fits"]


def test_an_error_names_the_option_for_the_budget(too_small: Run) -> None:
    assert "--budget 10: no prompt fits for elastic" in too_small.err


def test_it_succeeds_if_one_strategy_makes_prompts(too_small: Run) -> None:
    assert too_small.code == 0


def test_it_fails_if_no_strategy_makes_a_prompt(chat_file: Path) -> None:
    assert run(chat_file, "--budget", 10, "--compare", "elastic").code == 1


@pytest.mark.slow
def test_without_a_file_it_takes_the_bundled_conversation() -> None:
    data = as_json("--compare", "recency")

    [track] = data["strategies"]
    assert data["messages"] == len(demo_messages())
    assert len(track["turns"]) == len(split_turns(demo_messages()))
    assert data["budget_tokens"] == 8_000
