"""`ctxbudget replay`, as a user runs it."""

import json
from pathlib import Path
from typing import Any

import pytest

from langchain_ctxbudget.demo import demo_messages
from langchain_ctxbudget.replay import DEFAULT_STRATEGIES, split_turns
from langchain_ctxbudget.tokens import PRICES
from tests.integration_tests import test_cli

TURNS = 12
CHAT = [{"role": "system", "content": "You know a tool library."}] + [
    part
    for number in range(TURNS)
    for part in (
        {"role": "user", "content": f"Who has drill {number}, and until when?", "id": f"q{number}"},
        {
            "role": "assistant",
            "content": f"Member {number} has it until day {number + 3}.",
            "id": f"a{number}",
        },
    )
]


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    return test_cli.run(capsys, "replay", *arguments)


def as_json(capsys: pytest.CaptureFixture[str], *arguments: object) -> dict[str, Any]:
    code, out, err = run(capsys, *arguments, "--json")
    assert code == 0, err
    data: dict[str, Any] = json.loads(out)
    return data


def test_it_compares_four_strategies(capsys: pytest.CaptureFixture[str], chat_file: Path) -> None:
    code, out, err = run(capsys, chat_file, "--budget", 300)
    assert code == 0
    lines = out.splitlines()
    assert [sum(line.startswith(name) for line in lines) for name in DEFAULT_STRATEGIES] == [
        1,
        1,
        1,
        1,
    ]
    assert lines[0].startswith(
        f"{2 * TURNS} messages, 300 tokens for a prompt; exact counts (o200k_base)"
    )
    assert f"{4 * TURNS}/{4 * TURNS}" in err  # the progress is not in what may be piped on


def test_prices_are_told_in_dollars(capsys: pytest.CaptureFixture[str], chat_file: Path) -> None:
    data = as_json(capsys, chat_file, "--compare", "full", "--price", "gpt-4o")
    [track], price = data["strategies"], PRICES["gpt-4o"]
    assert price.cached_input is not None
    assert data["price_share"] == price.cached_input / price.input
    assert track["cost"] == pytest.approx(track["effective_tokens"] * price.input / 1_000_000)
    assert "US $" in run(capsys, chat_file, "--compare", "full", "--price", "gpt-4o")[1]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (
            ["--price", "a-model-of-mine"],
            "InputError: --price: no price is known for 'a-model-of-mine'",
        ),
        (
            ["--compare", "elastc"],
            "InvalidSettingsError: There is no strategy 'elastc' to replay; there are elastic",
        ),
        (["--budget", "0"], "InputError: budget must be at least 1 token"),
    ],
)
def test_what_cannot_be_is_an_error_before_any_work(
    capsys: pytest.CaptureFixture[str], chat_file: Path, arguments: list[str], problem: str
) -> None:
    code, out, err = run(capsys, chat_file, *arguments)
    assert (code, out) == (1, "")
    assert problem in err


def test_without_a_file_it_takes_the_bundled_conversation(
    capsys: pytest.CaptureFixture[str],
) -> None:
    data = as_json(capsys, "--compare", "recency")
    assert (data["messages"], data["budget_tokens"]) == (len(demo_messages()), 8_000)
    [track] = data["strategies"]
    assert len(track["turns"]) == len(split_turns(demo_messages()))
