"""The options of every command, and the settings that they stand for."""

import argparse
import json
import re
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from langchain_ctxbudget.budget import STRATEGIES
from langchain_ctxbudget.demo import DEMO_BUDGET
from langchain_ctxbudget.errors import InvalidSettingsError
from langchain_ctxbudget.replay import DEFAULT_STRATEGIES, NAMES
from langchain_ctxbudget.settings import ContextSettings

REPLAY_BUDGET = 8_000
"""Tokens of the prompts of a replay, where neither option nor settings say."""
HOST = "127.0.0.1"
PORT = 8642
DEFAULT_USER = "me"
KINDS = {"rules": "rule/", "facts": "fact/", "topics": "topic/", "entities": "entity/"}
"""Kinds of what is known, and how their ids begin."""
ACCEPTED = (
    "a file, zip archive or folder: an export of ChatGPT or Claude, messages, traces, sessions"
)
SWEPT_KINDS = ("messages", "facts", "snapshots", "derived")
"""What a sweep can erase, as the fields of a `RetentionPolicy`."""
DEFAULT_SWEPT_KINDS = "messages,facts,snapshots"
KEPT_KINDS = ("pinned", "rules")
"""What a sweep can leave, as the ends of the fields of a `RetentionPolicy`."""
_HOURS = {"h": 1, "d": 24, "w": 168}
_PERIOD = re.compile(r"(\d+(?:\.\d+)?)([hdw])")
_TOKENS = re.compile(r"(\d[\d,]*)(k?)", re.IGNORECASE)


def add_demo_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `ctxbudget demo`."""
    parser.add_argument("--message", help="ask something else than the demo's question")
    parser.add_argument(
        "--budget", type=tokens, default=DEMO_BUDGET, metavar="N", help="tokens (default: 4k)"
    )
    _add_allocation(parser)
    parser.add_argument(
        "--prompt", action="store_true", help="show the report and the whole prompt, too"
    )
    _add_json(parser)


def add_assemble_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `ctxbudget assemble`."""
    parser.add_argument("--conversation", type=Path, required=True, metavar="FILE", help=ACCEPTED)
    parser.add_argument("--message", required=True, metavar="TEXT", help="the user's new message")
    parser.add_argument(
        "--budget",
        type=tokens,
        required=True,
        metavar="N",
        help="tokens, such as 4000 or 4k",
    )
    _add_conversation(parser)
    _add_allocation(parser)
    _add_json(parser)


def add_replay_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `ctxbudget replay`."""
    parser.add_argument(
        "file",
        type=Path,
        nargs="?",
        metavar="FILE",
        help=f"{ACCEPTED} (default: the bundled conversation)",
    )
    parser.add_argument(
        "--budget", type=tokens, metavar="N", help="tokens (default: 8k, or what the settings say)"
    )
    parser.add_argument(
        "--settings",
        type=Path,
        metavar="FILE",
        help="settings below those of the strategies, TOML or JSON",
    )
    parser.add_argument(
        "--compare",
        default=",".join(DEFAULT_STRATEGIES),
        metavar="NAME,...",
        help=f"of {', '.join(NAMES)}; with another budget: recency@4k (default: %(default)s)",
    )
    _add_price(parser)
    _add_summary_model(parser)
    _add_conversation(parser)
    _add_json(parser)


def add_check_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `ctxbudget check`."""
    parser.add_argument("path", type=Path, metavar="PATH", help=ACCEPTED)
    parser.add_argument(
        "--kept",
        type=_percent(100),
        default=95,
        metavar="PERCENT",
        help="the least share of what later steps used (default: %(default)s)",
    )
    parser.add_argument(
        "--cost",
        type=_percent(1_000),
        default=30,
        metavar="PERCENT",
        help="the most, as a share of sending everything (default: %(default)s)",
    )
    parser.add_argument(
        "--strategy",
        default="elastic",
        type=_one_name,
        metavar="NAME",
        help=f"what is checked, of {', '.join(NAMES)} (default: %(default)s)",
    )
    parser.add_argument(
        "--beside", default="", metavar="NAME,...", help="other strategies whose figures are told"
    )
    parser.add_argument(
        "--budget", type=tokens, metavar="N", help="tokens (default: 8k, or what the settings say)"
    )
    parser.add_argument(
        "--settings", type=Path, metavar="FILE", help="settings of the application, TOML or JSON"
    )
    _add_price(parser)
    _add_summary_model(parser)
    _add_conversation(parser)
    parser.add_argument("--junit", type=Path, metavar="FILE", help="write a JUnit report, too")
    _add_json(parser)


def add_import_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `ctxbudget import`."""
    _add_store(parser, required=True)
    parser.add_argument("file", type=Path, metavar="FILE", help=ACCEPTED)
    parser.add_argument("--title", help="only this conversation")
    parser.add_argument(
        "--branches",
        action="store_true",
        help="also what was said on other branches, each as a conversation of its own",
    )
    parser.add_argument(
        "--replace",
        action="store_true",
        help="where a stored conversation differs, the file wins",
    )
    parser.add_argument("--no-learn", action="store_true", help="do not learn about the user now")


def add_inspect_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `ctxbudget inspect`."""
    _add_store(parser, required=True)
    parser.add_argument("kind", nargs="?", choices=KINDS, help="default: all of them")
    parser.add_argument("--json", action="store_true", help="whole records as JSON")
    action = parser.add_mutually_exclusive_group()
    action.add_argument("--text", action="store_true", help="all that is known, as a text to read")
    action.add_argument(
        "--why", metavar="ITEM", help="the messages that a rule, fact, topic or entity is from"
    )
    action.add_argument("--pin", metavar="ITEM", help="keep it whatever happens, and show it first")
    action.add_argument("--unpin", metavar="ITEM", help="take that back")
    action.add_argument(
        "--correct", nargs=2, metavar=("ITEM", "TEXT"), help="say it in other words"
    )
    action.add_argument("--delete", metavar="ITEM", help="forget it, or `all`; the messages stay")
    action.add_argument("--add-rule", metavar="TEXT", help="add a rule to a conversation")
    action.add_argument("--lift-rule", metavar="RULE", help="lift a rule of a conversation")
    parser.add_argument(
        "--conversation", metavar="ID", help="the standing rules in force in this conversation"
    )
    parser.add_argument(
        "--everywhere", action="store_true", help="the rule that is added holds in all of them"
    )


def add_sweep_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `ctxbudget sweep`."""
    parser.add_argument(
        "--store",
        required=True,
        metavar="PLACE",
        help="a folder, the URL of a Chroma server, or postgresql://...",
    )
    parser.add_argument(
        "--older-than",
        type=days,
        required=True,
        metavar="AGE",
        help="90d, 12h or 2w: days, hours or weeks",
    )
    parser.add_argument("--user", help="only this user (default: all)")
    parser.add_argument(
        "--kind",
        type=_names(SWEPT_KINDS),
        default=DEFAULT_SWEPT_KINDS,
        metavar="NAME,...",
        help=f"of {', '.join(SWEPT_KINDS)} (default: %(default)s)",
    )
    parser.add_argument(
        "--keep",
        type=_names(KEPT_KINDS),
        default=(),
        metavar="NAME,...",
        help="pinned: what is pinned stays; rules: messages with rules in force stay",
    )
    parser.add_argument("--dry-run", action="store_true", help="only say what would be erased")
    _add_json(parser)


def add_dashboard_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `ctxbudget dashboard`."""
    _add_store(parser, required=False)
    parser.add_argument(
        "--demo",
        action="store_true",
        help="the bundled conversation, in memory, instead of a store",
    )
    parser.add_argument(
        "--port", type=int, default=PORT, help="0 takes a free one (default: %(default)s)"
    )
    parser.add_argument(
        "--budget", type=tokens, metavar="N", help="tokens of the prompts that are shown"
    )
    parser.add_argument(
        "--settings", type=Path, metavar="FILE", help="settings of the application, TOML or JSON"
    )
    parser.add_argument(
        "--system", default="", metavar="TEXT", help="the system prompt of the application"
    )
    _add_model(parser)


def _add_conversation(parser: argparse.ArgumentParser) -> None:
    """Adds what says which conversation of a file is meant, and for which model."""
    parser.add_argument("--title", help="which conversation, where the file holds several")
    parser.add_argument(
        "--system", default="", metavar="TEXT", help="a system prompt (default: the file's)"
    )
    _add_model(parser)


def _add_model(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--model",
        help="count for this model, within its window (default: o200k_base, no window)",
    )


def _add_price(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--price",
        metavar="MODEL",
        help="take prices and cache terms of this model (default: of --model, else a cached token "
        "counts a tenth); without --model, count for it, too",
    )


def _add_summary_model(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--summary-model",
        metavar="NAME",
        help="the model that `summarization` calls, such as openai:gpt-4o-mini",
    )


def _add_allocation(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--allocation",
        default="elastic",
        choices=STRATEGIES,
        help="how the budget is divided (default: elastic)",
    )


def _add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="everything as JSON")


def _add_store(parser: argparse.ArgumentParser, *, required: bool) -> None:
    parser.add_argument(
        "--store",
        type=Path,
        required=required,
        metavar="FOLDER",
        help="a folder; `import` makes it",
    )
    parser.add_argument(
        "--user", default=DEFAULT_USER, help="whose conversations (default: %(default)s)"
    )


def days(text: str) -> float:
    """Reads an age in days, as an option has it: `90d`, `12h` or `2w`."""
    match = _PERIOD.fullmatch(text.strip().lower())
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no age, such as 90d, 12h or 2w")
    return float(match[1]) * _HOURS[match[2]] / 24


def _names(known: Sequence[str]) -> Callable[[str], tuple[str, ...]]:
    """Returns what reads some of the names that there are, separated by commas."""

    def read(text: str) -> tuple[str, ...]:
        names = tuple(name.strip() for name in text.split(","))
        unknown = [name for name in names if name not in known]
        if unknown:
            raise argparse.ArgumentTypeError(
                f"{', '.join(map(repr, unknown))}: there are {', '.join(known)}"
            )
        return names

    return read


def _one_name(text: str) -> str:
    """Reads the name of one strategy."""
    if "," in text:
        raise argparse.ArgumentTypeError(f"{text!r} names several; the others go to --beside")
    return text


def _percent(most: int) -> Callable[[str], float]:
    """Returns what reads a percentage from 0 to `most`."""

    def read(text: str) -> float:
        try:
            value = float(text.removesuffix("%"))
        except ValueError:
            value = -1.0
        if not 0 <= value <= most:
            raise argparse.ArgumentTypeError(
                f"{text!r} must be a percentage from 0 to {most:,}, such as 80"
            )
        return value

    return read


def tokens(text: str) -> int:
    """Reads a number of tokens, as an option has it: `4000`, `12,000` or `4k`."""
    match = _TOKENS.fullmatch(text.strip())
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of tokens, such as 4000 or 4k")
    number = int(match[1].replace(",", ""))
    if match[2]:
        return number * 1_000
    return number


def file_settings(options: argparse.Namespace) -> dict[str, Any]:
    """Returns the settings in the file that `--settings` names, by their names without groups.

    A `--budget` goes before that of the file.

    Raises:
        InvalidSettingsError: The file cannot be read, or has settings that cannot be used.
    """
    settings: dict[str, Any] = {}
    path: Path | None = options.settings
    if path is not None:
        read = json.loads if path.suffix == ".json" else tomllib.loads
        try:
            settings = _settings_of(read(path.read_text(encoding="utf-8")))
        except OSError as error:
            raise InvalidSettingsError(f"--settings {path}: {error.strerror}") from error
        except ValueError as error:
            raise InvalidSettingsError(f"--settings {path}: {error}") from error
    if options.budget is not None:
        settings["max_context_tokens"] = options.budget
    return settings


def _settings_of(values: object) -> dict[str, Any]:
    """Returns settings that were read, checked, by their names without groups."""
    if not isinstance(values, dict):
        raise InvalidSettingsError(
            f'must be an object of settings, such as {{"max_context_tokens": 4000}}, not {values!r}'
        )
    return dict(ContextSettings().override(values).chosen)


def option_settings(options: argparse.Namespace) -> dict[str, Any]:
    """Returns the settings of a pipeline that learns nothing, so that every run shows the same."""
    return {"max_context_tokens": options.budget, "allocation": options.allocation, "learn": False}
