"""`ctxbudget replay`, as a user runs it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from langchain_ctxbudget.cli import main
from langchain_ctxbudget.core.tokens import TiktokenCounter
from langchain_ctxbudget.core.usage import PRICES
from langchain_ctxbudget.demo import DEMO_SYSTEM_PROMPT, demo_messages
from langchain_ctxbudget.errors import InvalidSettingsError
from langchain_ctxbudget.replay import DEFAULT_STRATEGIES, replay, split_turns
from langchain_ctxbudget.replay_command import parse_strategies
from langchain_ctxbudget.replay_strategies import NAMES

TURNS = 12
CHAT = [{"role": "system", "content": "You know a tool library."}] + [
    part
    for number in range(TURNS)
    for part in (
        {"role": "user", "content": f"Who has drill {number}, and until when?", "id": f"q{number}"},
        {"role": "assistant", "content": f"Member {number} has it until day {number + 3}.", "id": f"a{number}"},
    )
]


@pytest.fixture
def chat_file(tmp_path: Path) -> Path:
    path = tmp_path / "chat.json"
    path.write_text(json.dumps(CHAT), encoding="utf-8")
    return path


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    code = main(["replay", *(str(argument) for argument in arguments)])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def as_json(capsys: pytest.CaptureFixture[str], *arguments: object) -> dict[str, Any]:
    code, out, err = run(capsys, *arguments, "--json")
    assert code == 0, err
    data: dict[str, Any] = json.loads(out)
    return data


def test_it_compares_four_strategies(capsys: pytest.CaptureFixture[str], chat_file: Path) -> None:
    code, out, err = run(capsys, chat_file, "--budget", 300)
    assert code == 0
    lines = out.splitlines()
    assert [sum(line.startswith(name) for line in lines) for name in DEFAULT_STRATEGIES] == [2, 2, 2, 2]
    assert lines[0].startswith(f"{2 * TURNS} messages, 300 tokens for a prompt; exact counts (o200k_base)")
    assert f"{4 * TURNS}/{4 * TURNS}" in err  # the progress is not in what may be piped on


def test_json_has_the_numbers_of_every_turn(capsys: pytest.CaptureFixture[str], chat_file: Path) -> None:
    data = as_json(capsys, chat_file, "--budget", 300, "--compare", "recency,full")
    assert [track["name"] for track in data["strategies"]] == ["recency", "full"]
    for track in data["strategies"]:
        assert [turn["number"] for turn in track["turns"]] == list(range(1, TURNS + 1))
        assert sum(turn["tokens"] for turn in track["turns"]) == track["tokens"]


def test_the_files_system_message_is_the_system_prompt(capsys: pytest.CaptureFixture[str], chat_file: Path) -> None:
    [track] = as_json(capsys, chat_file, "--compare", "full")["strategies"]
    [other] = as_json(capsys, chat_file, "--compare", "full", "--system", "You know it.")["strategies"]
    count = TiktokenCounter().count_text
    assert track["tokens"] - other["tokens"] == TURNS * (count("You know a tool library.") - count("You know it."))


def test_strategies_may_be_json(capsys: pytest.CaptureFixture[str], chat_file: Path) -> None:
    given = '{"strategy": "ratio", "borrow": true}, recency@200,{"keep_messages": 2}'
    data = as_json(capsys, chat_file, "--budget", 300, "--compare", given)
    assert [track["name"] for track in data["strategies"]] == [
        "ratio 30/40/30, borrowing",
        "recency@200",
        "keep_messages=2",
    ]


def test_prices_are_told_in_dollars(capsys: pytest.CaptureFixture[str], chat_file: Path) -> None:
    data = as_json(capsys, chat_file, "--compare", "full", "--price", "gpt-4o")
    [track], price = data["strategies"], PRICES["gpt-4o"]
    assert price.cached_input is not None
    assert data["price_share"] == price.cached_input / price.input
    assert track["cost"] == pytest.approx(track["effective_tokens"] * price.input / 1_000_000)
    own = as_json(capsys, chat_file, "--compare", "full", "--price", "gpt-4o", "--price-share", 0.5)
    assert own["price_share"] == 0.5
    assert "US $" in run(capsys, chat_file, "--compare", "full", "--price", "gpt-4o")[1]


def test_prices_of_ones_own_lie_over_the_packaged_ones(
    capsys: pytest.CaptureFixture[str], chat_file: Path, tmp_path: Path
) -> None:
    path = tmp_path / "prices.json"
    path.write_text(json.dumps({"a-model-of-mine": {"input": 4, "output": 8, "cached_input": 1}}), encoding="utf-8")
    data = as_json(capsys, chat_file, "--compare", "full", "--prices", path, "--price", "a-model-of-mine")
    assert (data["input_price"], data["price_share"]) == (4, 0.25)
    assert as_json(capsys, chat_file, "--compare", "full", "--prices", path, "--price", "gpt-4o")["input_price"]


@pytest.mark.parametrize(
    ("content", "problem"),
    [(None, "cannot be read"), ("{", "cannot be read"), ("[]", "must be a mapping"), ('{"m": {"input": 1}}', "m")],
)
def test_prices_that_cannot_be_are_an_error(
    capsys: pytest.CaptureFixture[str], chat_file: Path, tmp_path: Path, content: str | None, problem: str
) -> None:
    path = tmp_path / "prices.json"
    if content is not None:
        path.write_text(content, encoding="utf-8")
    code, out, err = run(capsys, chat_file, "--prices", path, "--price", "m")
    assert (code, out) == (1, "")
    assert "--prices" in err
    assert problem in err


def test_a_short_prefix_is_not_cached_where_that_is_said(capsys: pytest.CaptureFixture[str], chat_file: Path) -> None:
    code, out, _ = run(capsys, chat_file, "--compare", "full", "--min-cached", 1024)
    assert code == 0
    assert "from 1,024 tokens on" in out
    assert as_json(capsys, chat_file, "--compare", "full", "--min-cached", 1024)["strategies"][0]["cached_tokens"] == 0


def test_tools_count(capsys: pytest.CaptureFixture[str], chat_file: Path, tmp_path: Path) -> None:
    tools = [{"type": "function", "function": {"name": "look_up", "parameters": {"type": "object"}}}]
    path = tmp_path / "tools.json"
    path.write_text(json.dumps(tools), encoding="utf-8")
    [track] = as_json(capsys, chat_file, "--compare", "full", "--tools", path)["strategies"]
    [other] = as_json(capsys, chat_file, "--compare", "full")["strategies"]
    assert track["tokens"] - other["tokens"] == TURNS * TiktokenCounter().count_tools(tools)


def test_what_is_learned_is_shown(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    told = [{"role": "user", "content": "My name is Ada and I live in Porto."}, {"role": "assistant", "content": "OK."}]
    path = tmp_path / "told.json"
    path.write_text(json.dumps([*told, *CHAT[1:]]), encoding="utf-8")
    arguments = (path, "--budget", 220, "--compare", "elastic")
    assert (
        as_json(capsys, *arguments)["strategies"][0]["tokens"]
        != (as_json(capsys, *arguments, "--learn")["strategies"][0]["tokens"])
    )


@pytest.mark.parametrize(("name", "begin"), [("a.png", b"\x89PNG"), ("a.svg", b"<?xml")])
def test_it_is_drawn(
    capsys: pytest.CaptureFixture[str], chat_file: Path, tmp_path: Path, name: str, begin: bytes
) -> None:
    code, out, _ = run(capsys, chat_file, "--compare", "recency,full", "--plot", tmp_path / name)
    assert code == 0
    assert "recency" in out
    assert (tmp_path / name).read_bytes().startswith(begin)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--plot", "a.bmp"], "InputError: --plot: the name of a picture ends with .png, .svg, .pdf"),
        (["--plot", "no/such/folder/a.png"], "InputError: --plot: there is no folder"),
        (["--price", "a-model-of-mine"], "InputError: --price: no price is known for 'a-model-of-mine'"),
        (["--price-share", "2"], "InputError: price_share must be from 0 to 1"),
        (["--compare", "elastc"], "InvalidSettingsError: There is no strategy 'elastc' to replay; there are elastic"),
        (["--compare", ""], "InputError: strategies must be at least one"),
        (["--compare", '{"strategy"'], "InvalidSettingsError: --compare"),
        (["--budget", "0"], "InputError: budget must be at least 1 token"),
        (["--tools", "no-such-file.json"], "InputError: --tools: no-such-file.json cannot be read"),
    ],
)
def test_what_cannot_be_is_an_error_before_any_work(
    capsys: pytest.CaptureFixture[str], chat_file: Path, arguments: list[str], problem: str
) -> None:
    code, out, err = run(capsys, chat_file, *arguments)
    assert (code, out) == (1, "")
    assert problem in err


def test_an_unknown_strategy_is_an_error_that_lists_them(capsys: pytest.CaptureFixture[str], chat_file: Path) -> None:
    _, _, err = run(capsys, chat_file, "--compare", "elastic,best")
    assert all(name in err for name in NAMES)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("", "ConversationFormatError"),
        ("[]", "an empty list"),
        ('[{"role": "user", "content": "Hi"}]', "Nothing to replay"),
    ],
)
def test_a_file_without_a_conversation_is_an_error(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, content: str, problem: str
) -> None:
    path = tmp_path / "chat.json"
    path.write_text(content, encoding="utf-8")
    code, out, err = run(capsys, path)
    assert (code, out) == (1, "")
    assert problem in err


# The list of strategies


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("elastic", ["elastic"]),
        (" elastic , recency ", ["elastic", "recency"]),
        ('{"strategy": "prioritized", "order": ["history"]}', [{"strategy": "prioritized", "order": ["history"]}]),
        ('full,{"a": "b,c"},cache', ["full", {"a": "b,c"}, "cache"]),
        ("", []),
    ],
)
def test_names_and_objects_are_told_apart(text: str, found: list[Any]) -> None:
    assert parse_strategies(text) == found


@pytest.mark.parametrize("text", ['{"a": 1} full', '{"a": ', "{a}"])
def test_what_is_no_list_is_an_error(text: str) -> None:
    with pytest.raises(InvalidSettingsError, match="--compare"):
        parse_strategies(text)


# The bundled conversation


def test_without_a_file_it_takes_the_bundled_conversation(capsys: pytest.CaptureFixture[str]) -> None:
    data = as_json(capsys, "--compare", "recency")
    assert (data["messages"], data["budget_tokens"]) == (len(demo_messages()), 8_000)
    [track] = data["strategies"]
    assert len(track["turns"]) == len(split_turns(demo_messages()))


@pytest.mark.slow
def test_four_strategies_go_through_the_bundled_conversation(capsys: pytest.CaptureFixture[str]) -> None:
    data = as_json(capsys, "--budget", 4_000)
    turns = len(split_turns(demo_messages()))
    assert [track["calls"] for track in data["strategies"]] == [turns] * 4
    assert all(track["failures"] == [] and track["without_question"] == 0 for track in data["strategies"])
    assert max(track["largest_tokens"] for track in data["strategies"]) <= 4_000
    result = replay(demo_messages(), DEFAULT_STRATEGIES, budget=4_000, system_prompt=DEMO_SYSTEM_PROMPT)
    for track, same in zip(data["strategies"], result.tracks, strict=True):
        for name in ("tokens", "cached_tokens", "message_shares", "compaction_steps"):
            assert track[name] == pytest.approx(getattr(same, name))
