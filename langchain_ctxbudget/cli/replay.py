"""The command `ctxbudget replay`: a conversation turn by turn, with several strategies beside each other."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path

from langchain_ctxbudget import demo
from langchain_ctxbudget.cli.formats import read_one
from langchain_ctxbudget.cli.terminal import printable, progress_bar, read_json
from langchain_ctxbudget.errors import InputError, InvalidSettingsError
from langchain_ctxbudget.replay import (
    DEFAULT_STRATEGIES,
    NAMES,
    PRICE_SHARE,
    ReplayResult,
    Strategy,
    replay,
    split_turns,
)
from langchain_ctxbudget.tokens import PRICES, price_of

DEFAULT_BUDGET = 8_000
PICTURES = (".png", ".svg", ".pdf")


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `replay`."""
    help_text = "a conversation, in any format that `assemble` takes (default: the bundled one)"
    parser.add_argument("file", type=Path, nargs="?", metavar="FILE", help=help_text)
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
    parser.add_argument("--price", metavar="MODEL", help="tell costs in US dollars, at the price of this model")
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


def run(options: argparse.Namespace) -> None:
    """Replays the conversation, and prints what came of it."""
    draw = _drawing(options.plot) if options.plot else None
    strategies, price = parse_strategies(options.compare), price_of(options.price, PRICES) if options.price else None
    if options.price and price is None:
        known = ", ".join(sorted(PRICES))
        raise InputError(f"--price: no price is known for {options.price!r}; there are prices for {known}")
    tools = [] if options.tools is None else read_json(options.tools, "--tools")
    if not isinstance(tools, list):
        raise InputError(f"--tools: {options.tools} holds no list of schemas, such as OpenAI's")
    if options.file is None:
        system_prompt, messages = demo.DEMO_SYSTEM_PROMPT, demo.demo_messages()
    else:
        _, system_prompt, messages = read_one(options.file, options.title)
    with progress_bar() as progress:
        task = progress.add_task("turns", total=len(split_turns(messages)) * len(strategies))
        result = replay(
            messages,
            strategies,
            budget=options.budget,
            system_prompt=options.system or system_prompt,
            tools=tools,
            model=options.model,
            price_share=options.price_share,
            price=price,
            min_cached_tokens=options.min_cached,
            on_turn=lambda name, _: progress.update(task, advance=1, description=printable(name)),
        )
    if draw:
        draw(result)
    sys.stdout.write(f"{json.dumps(result.to_dict(), indent=2) if options.json else printable(result.to_text())}\n")


def parse_strategies(text: str) -> list[Strategy]:
    """Reads a list of strategies: names with commas between them, and JSON objects.

    Raises:
        InvalidSettingsError: JSON that cannot be read, or that is no object.

    >>> parse_strategies('recency@2000, {"strategy": "ratio", "borrow": true},full')
    ['recency@2000', {'strategy': 'ratio', 'borrow': True}, 'full']
    """
    found: list[Strategy] = []
    rest = text.strip(", \n")
    while rest:
        if rest.startswith("{"):
            try:
                strategy, end = json.JSONDecoder().raw_decode(rest)
            except ValueError as error:
                raise InvalidSettingsError(f"--compare: {rest!r} is not valid JSON: {error}") from error
            if rest[end:].lstrip()[:1] not in ("", ","):
                raise InvalidSettingsError(f"--compare: after {strategy} comes a comma, not {rest[end:]!r}")
            found.append(strategy)
            rest = rest[end:]
        else:
            name, _, rest = rest.partition(",")
            found.append(name.strip())
        rest = rest.lstrip(", \n")
    return found


def _drawing(path: Path) -> Callable[[ReplayResult], None]:
    """Returns what draws a result; what would stop it is found out before the work is done."""
    if path.suffix.lower() not in PICTURES:
        raise InputError(f"--plot: the name of a picture ends with {', '.join(PICTURES)}, not {path.name!r}")
    if not path.parent.is_dir():
        raise InputError(f"--plot: there is no folder {str(path.parent)!r}")
    try:
        from langchain_ctxbudget.report.plots import plot_replay  # noqa: PLC0415 - loads matplotlib, an extra
    except ImportError as error:
        raise InputError(f"--plot: {error}") from error
    return lambda result: plot_replay(result).savefig(path)
