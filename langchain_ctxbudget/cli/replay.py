"""The command `ctxbudget replay`: a conversation turn by turn, with several strategies beside each other."""

from __future__ import annotations

import argparse
import json
import sys
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
from langchain_ctxbudget.tokens import PRICES, Price, load_prices, price_of

DEFAULT_BUDGET = 8_000
PICTURES = (".png", ".svg", ".pdf")


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `replay`."""
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


def run(options: argparse.Namespace) -> None:
    """Replays the conversation, and prints what came of it."""
    if options.plot:
        _require_picture(options.plot)
    strategies, price = parse_strategies(options.compare), _price(options.price, options.prices)
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
            settings={"learn": options.learn},
            price_share=options.price_share,
            price=price,
            min_cached_tokens=options.min_cached,
            on_turn=lambda name, _: progress.update(task, advance=1, description=printable(name)),
        )
    if options.plot:
        _draw(result, options.plot)
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
        strategy: Strategy = rest.partition(",")[0].strip()
        end = rest.find(",") % (len(rest) + 1)
        if rest.startswith("{"):
            try:
                strategy, end = json.JSONDecoder().raw_decode(rest)
            except ValueError as error:
                raise InvalidSettingsError(f"--compare: {rest!r} is not valid JSON: {error}") from error
        rest = rest[end:].lstrip()
        if rest and not rest.startswith(","):
            raise InvalidSettingsError(f"--compare: after {strategy} comes a comma, not {rest!r}")
        found.append(strategy)
        rest = rest.lstrip(", \n")
    return found


def _price(model: str | None, path: Path | None) -> Price | None:
    """Returns the price of a model, from the packaged prices with those of a file laid over them."""
    try:
        prices = PRICES if path is None else load_prices(read_json(path, "--prices"))
    except InvalidSettingsError as error:
        raise InvalidSettingsError(f"--prices: {error}") from error
    found = None if model is None else price_of(model, prices)
    if model is not None and found is None:
        raise InputError(f"--price: no price is known for {model!r}; there are prices for {', '.join(sorted(prices))}")
    return found


def _require_picture(path: Path) -> None:
    """Finds out before the work is done what would stop the picture."""
    if path.suffix.lower() not in PICTURES:
        raise InputError(f"--plot: the name of a picture ends with {', '.join(PICTURES)}, not {path.name!r}")
    if not path.parent.is_dir():
        raise InputError(f"--plot: there is no folder {str(path.parent)!r}")
    try:
        import langchain_ctxbudget.report.plots  # noqa: F401, PLC0415 - loads matplotlib, an extra
    except ImportError as error:
        raise InputError(f"--plot: {error}") from error


def _draw(result: ReplayResult, path: Path) -> None:
    from langchain_ctxbudget.report.plots import plot_replay  # noqa: PLC0415 - loads matplotlib

    try:
        plot_replay(result).savefig(path)
    except OSError as error:
        raise InputError(f"--plot: {path} cannot be written ({error.strerror})") from error
