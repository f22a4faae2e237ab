"""The command `ctxbudget replay`: a conversation turn by turn, with several strategies beside each other."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from langchain_core.messages import BaseMessage
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from langchain_ctxbudget.core.messages import split_instructions
from langchain_ctxbudget.core.usage import PRICES, Price, load_prices, price_of
from langchain_ctxbudget.errors import InputError, InvalidSettingsError
from langchain_ctxbudget.formats import pick_conversation, read_conversations
from langchain_ctxbudget.replay import DEFAULT_STRATEGIES, PRICE_SHARE, ReplayResult, replay, split_turns
from langchain_ctxbudget.replay_strategies import NAMES, Strategy
from langchain_ctxbudget.terminal import printable

DEFAULT_BUDGET = 8_000
PICTURES = (".png", ".svg", ".pdf")


def configure(parser: argparse.ArgumentParser) -> None:
    """Say what the command takes."""
    parser.add_argument(
        "file",
        type=Path,
        nargs="?",
        metavar="FILE",
        help="a conversation, in any format that `assemble` takes (default: the bundled one)",
    )
    parser.add_argument("--budget", type=int, default=DEFAULT_BUDGET, metavar="N", help="tokens (default: %(default)s)")
    parser.add_argument(
        "--compare",
        default=",".join(DEFAULT_STRATEGIES),
        metavar="NAME,...",
        help=f"of {', '.join(NAMES)}; with another budget: recency@4000; or settings as JSON, for instance "
        """'{"strategy": "ratio", "borrow": true}' or '{"keep_messages": 2}' (default: %(default)s)""",
    )
    parser.add_argument("--title", help="which conversation, where the file holds several")
    parser.add_argument("--system", default="", metavar="TEXT", help="a system prompt (default: the file's)")
    parser.add_argument("--tools", type=Path, metavar="FILE", help="what an agent's model is bound to: a JSON list")
    parser.add_argument("--model", help="count for this model (default: o200k_base)")
    parser.add_argument("--learn", action="store_true", help="learn about the user on the way, as an application does")
    parser.add_argument("--price", metavar="MODEL", help="tell costs in US dollars, at the price of this model")
    parser.add_argument(
        "--prices",
        type=Path,
        metavar="FILE",
        help="prices over the packaged ones, as JSON; see `prices` of a pipeline",
    )
    parser.add_argument(
        "--price-share",
        type=float,
        metavar="X",
        help=f"what a cached token costs, as a share of another one (default: that of --price, else {PRICE_SHARE})",
    )
    parser.add_argument(
        "--min-cached",
        type=int,
        default=0,
        metavar="N",
        help="a common prefix of fewer tokens is not cached; OpenAI's minimum is 1024 (default: %(default)s)",
    )
    parser.add_argument("--json", action="store_true", help="all numbers of all turns as JSON")
    parser.add_argument("--plot", type=Path, metavar="FILE", help=f"draw it, too ({', '.join(PICTURES)})")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Replay, and tell what came of it."""
    if options.plot:
        _require_picture(options.plot)
    strategies, price = parse_strategies(options.compare), _price(options.price, _prices(options.prices))
    messages, system_prompt = _conversation(options)
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
    ) as progress:
        task = progress.add_task("turns", total=len(split_turns(messages)) * len(strategies))
        result = replay(
            messages,
            strategies,
            budget=options.budget,
            system_prompt=system_prompt,
            tools=_tools(options.tools),
            model=options.model,
            settings={"learn": options.learn},
            price_share=options.price_share,
            price=price,
            min_cached_tokens=options.min_cached,
            on_turn=lambda name, _: progress.update(task, advance=1, description=printable(name)),
        )
    if options.plot:
        _draw(result, options.plot)
    text = json.dumps(result.to_dict(), indent=2) if options.json else printable(result.to_text())
    sys.stdout.write(f"{text}\n")
    return 0


def parse_strategies(text: str) -> list[Strategy]:
    """The strategies of a list: names with commas between them, and JSON objects.

    Raises:
        InvalidSettingsError: JSON that cannot be read, or that is no object.

    >>> parse_strategies('recency@2000, {"strategy": "ratio", "borrow": true},full')
    ['recency@2000', {'strategy': 'ratio', 'borrow': True}, 'full']
    """
    found: list[Strategy] = []
    rest = text.strip().strip(",").lstrip()
    while rest:
        if rest.startswith("{"):
            try:
                strategy, end = json.JSONDecoder().raw_decode(rest)
            except ValueError as error:
                raise InvalidSettingsError(f"--compare: {rest!r} is not valid JSON: {error}") from error
            found.append(strategy)
            rest = rest[end:].lstrip()
            if rest and not rest.startswith(","):
                raise InvalidSettingsError(f"--compare: after {strategy} comes a comma, not {rest!r}")
        else:
            name, comma, behind = rest.partition(",")
            found.append(name.strip())
            rest = comma + behind
        rest = rest.removeprefix(",").lstrip()
    return found


def _conversation(options: argparse.Namespace) -> tuple[Sequence[BaseMessage], str]:
    """Messages without instructions, and the system prompt."""
    if options.file is None:
        from langchain_ctxbudget import demo  # noqa: PLC0415 - only read where it is asked for

        return demo.demo_messages(), options.system or demo.DEMO_SYSTEM_PROMPT
    found = pick_conversation(read_conversations(options.file), title=options.title)
    instructions, messages = split_instructions(found.messages)
    return messages, options.system or "\n\n".join(instructions)


def _tools(path: Path | None) -> list[Any]:
    """Schemas of tools.

    Raises:
        InputError: the file cannot be read, or holds something else.
    """
    if path is None:
        return []
    tools = _read_json(path, "--tools")
    if not isinstance(tools, list):
        raise InputError(f"--tools: {path} holds no list of schemas, such as OpenAI's")
    return tools


def _prices(path: Path | None) -> Mapping[str, Price]:
    """The packaged prices, with those of a file laid over them.

    Raises:
        InputError: the file cannot be read.
        InvalidSettingsError: it holds something else.
    """
    if path is None:
        return PRICES
    try:
        return load_prices(_read_json(path, "--prices"))
    except InvalidSettingsError as error:
        raise InvalidSettingsError(f"--prices: {error}") from error


def _read_json(path: Path, option: str) -> Any:  # noqa: ANN401 - JSON
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{option}: {path} cannot be read ({error})") from error


def _price(model: str | None, prices: Mapping[str, Price]) -> Price | None:
    """The price of a model.

    Raises:
        InputError: it is not known.
    """
    if model is None:
        return None
    if found := price_of(model, prices):
        return found
    raise InputError(f"--price: no price is known for {model!r}; there are prices for {', '.join(sorted(prices))}")


def _require_picture(path: Path) -> None:
    """Find out before the work is done what would stop the picture.

    Raises:
        InputError: it cannot be drawn.
    """
    if path.suffix.lower() not in PICTURES:
        raise InputError(f"--plot: the name of a picture ends with {', '.join(PICTURES)}, not {path.name!r}")
    if not path.parent.is_dir():
        raise InputError(f"--plot: there is no folder {str(path.parent)!r}")
    try:
        import langchain_ctxbudget.reporting.plots  # noqa: F401, PLC0415 - loads matplotlib, an extra
    except ImportError as error:
        raise InputError(f"--plot: {error}") from error


def _draw(result: ReplayResult, path: Path) -> None:
    from langchain_ctxbudget.reporting.plots import plot_replay  # noqa: PLC0415

    try:
        plot_replay(result).savefig(path)
    except OSError as error:
        raise InputError(f"--plot: {path} cannot be written ({error.strerror})") from error
