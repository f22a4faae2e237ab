"""The command `ctxbudget replay`: a conversation turn by turn, with several strategies beside each other."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from langchain_ctxbudget import demo
from langchain_ctxbudget.cli.formats import read_one
from langchain_ctxbudget.cli.terminal import printable, progress_bar
from langchain_ctxbudget.errors import InputError
from langchain_ctxbudget.replay import DEFAULT_STRATEGIES, NAMES, replay, split_turns
from langchain_ctxbudget.tokens import CACHED_PRICE, PRICES, price_of

DEFAULT_BUDGET = 8_000


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `replay`."""
    help_text = "a conversation, in any format that `assemble` takes (default: the bundled one)"
    parser.add_argument("file", type=Path, nargs="?", metavar="FILE", help=help_text)
    parser.add_argument("--budget", type=int, default=DEFAULT_BUDGET, metavar="N", help="tokens (default: %(default)s)")
    parser.add_argument(
        "--compare",
        default=",".join(DEFAULT_STRATEGIES),
        metavar="NAME,...",
        help=f"of {', '.join(NAMES)}; with another budget: recency@4000 (default: %(default)s)",
    )
    parser.add_argument("--title", help="which conversation, where the file holds several")
    parser.add_argument("--system", default="", metavar="TEXT", help="a system prompt (default: the file's)")
    parser.add_argument("--model", help="count for this model (default: o200k_base)")
    parser.add_argument("--price", metavar="MODEL", help="tell costs in US dollars, at the price of this model")
    parser.add_argument(
        "--price-share",
        type=float,
        metavar="X",
        help=f"what a cached token costs, as a share of another one (default: that of --price, else {CACHED_PRICE})",
    )
    parser.add_argument("--json", action="store_true", help="all numbers of all turns as JSON")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw it, too (.png, .svg, .pdf)")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Replays the conversation, and prints what came of it."""
    strategies, price = options.compare.split(","), price_of(options.price, PRICES) if options.price else None
    if options.price and price is None:
        known = ", ".join(sorted(PRICES))
        raise InputError(f"--price: no price is known for {options.price!r}; there are prices for {known}")
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
            model=options.model,
            price_share=options.price_share,
            price=price,
            on_turn=lambda name, _: progress.update(task, advance=1, description=printable(name)),
        )
    sys.stdout.write(f"{json.dumps(result.to_dict(), indent=2) if options.json else printable(result.to_text())}\n")
    if options.plot:
        try:
            from langchain_ctxbudget.report.plots import plot_replay  # noqa: PLC0415 - loads matplotlib, an extra

            plot_replay(result).savefig(options.plot)
        except (ImportError, OSError, ValueError) as error:
            raise InputError(f"--plot: {error}") from error
