"""The commands `ctxbudget demo`, `assemble` and `replay`: prompts of a conversation in a file."""

import argparse
import re
import sys
from pathlib import Path
from typing import Any

from langchain_core.messages import messages_to_dict
from rich.console import Console
from rich.text import Text

from langchain_ctxbudget import demo
from langchain_ctxbudget.budget import STRATEGIES
from langchain_ctxbudget.cli import terminal
from langchain_ctxbudget.cli.formats import read_one
from langchain_ctxbudget.errors import InputError
from langchain_ctxbudget.messages import plain_text
from langchain_ctxbudget.pipeline import ContextPipeline, replay_last_turns
from langchain_ctxbudget.prompt import AssembledContext
from langchain_ctxbudget.replay import DEFAULT_STRATEGIES, NAMES, contender, replay, split_turns
from langchain_ctxbudget.report import plural
from langchain_ctxbudget.stores import Scope
from langchain_ctxbudget.tokens import PRICES, price_of

DEMO_BUDGET, REPLAY_BUDGET = 4_000, 8_000
PREVIEW_LINES, PREVIEW_WIDTH = 14, 160


def configure(command: str, parser: argparse.ArgumentParser) -> None:
    """Adds the options of a command."""
    add = parser.add_argument
    formats = "OpenAI or LangChain messages, or an export of ChatGPT or Claude"
    if command == "demo":
        add("--message", help="ask something else than the demo's question")
        add("--budget", type=terminal.tokens, default=DEMO_BUDGET, metavar="N", help="tokens (default: 4k)")
    elif command == "assemble":
        add("--conversation", type=Path, required=True, metavar="FILE", help=formats)
        add("--message", required=True, metavar="TEXT", help="the user's new message")
        add("--budget", type=terminal.tokens, required=True, metavar="N", help="tokens, such as 4000 or 4k")
    else:
        add("file", type=Path, nargs="?", metavar="FILE", help=f"{formats} (default: the bundled conversation)")
        add("--budget", type=terminal.tokens, metavar="N", help="tokens (default: 8k, or what the settings say)")
        add("--settings", type=Path, metavar="FILE", help="settings below those of the strategies, TOML or JSON")
        names = f"of {', '.join(NAMES)}; with another budget: recency@4k (default: %(default)s)"
        add("--compare", default=",".join(DEFAULT_STRATEGIES), metavar="NAME,...", help=names)
        add("--price", metavar="MODEL", help="tell costs in US dollars, at the price of this model")
    if command != "demo":
        add("--title", help="which conversation, where the file holds several")
        add("--system", default="", metavar="TEXT", help="a system prompt (default: the file's)")
        add("--model", help="count for this model, within its window (default: o200k_base, no window)")
    if command != "replay":
        add("--allocation", default="elastic", choices=STRATEGIES, help="how the budget is divided (default: elastic)")
    add("--json", action="store_true", help="everything as JSON")
    parser.set_defaults(run={"demo": run_demo, "assemble": run_assemble, "replay": run_replay}[command])


def _settings(options: argparse.Namespace) -> dict[str, Any]:
    """Returns the settings of the pipeline; nothing is learned, or every run would show something else."""
    return {"max_context_tokens": options.budget, "allocation": options.allocation, "learn": False}


def run_demo(options: argparse.Namespace) -> None:
    """Assembles and shows the prompt for a question about the bundled conversation."""
    messages, system_prompt = demo.demo_messages(), demo.DEMO_SYSTEM_PROMPT
    with ContextPipeline({**_settings(options), **demo.DEMO_SETTINGS}, system_prompt=system_prompt) as pipeline:
        # The turns before the question as well, as an application would: the report tells what their prompts share.
        replay_last_turns(pipeline, messages, Scope("maya", "demo"))
        context = pipeline.assemble(options.message or demo.DEMO_QUESTION, user_id="maya", conversation_id="demo")
    _show(context, options)
    if not (options.json or options.message):
        newest = contender("recency", options.budget, system_prompt=system_prompt).prompt(messages, context.turn)
        prompt, trimmed = ("\n".join(one.text for one in made) for made in (context.messages, newest.messages))
        terminal.tell("")
        for number, message in enumerate(messages, 1):
            if message.id in demo.DEMO_EVIDENCE_IDS:
                found = message.text in prompt
                state = "stands in the prompt word for word" if found else "is not in this prompt word for word"
                other = "has" if message.text in trimmed else "does not have"
                where = f"Message {number} of {len(messages)}, which holds the answer,"
                terminal.tell(f"{where} {state}; trim_messages {other} it.", style="green" if found else "red")


def run_assemble(options: argparse.Namespace) -> None:
    """Assembles and shows the prompt for a message in a conversation of a file."""
    key, instructions, messages = read_one(options.conversation, options.title)
    system_prompt = options.system or instructions
    with ContextPipeline(_settings(options), system_prompt=system_prompt, model=options.model) as pipeline:
        pipeline.add_messages(messages, user_id=terminal.DEFAULT_USER, conversation_id=key)
        _show(pipeline.assemble(options.message, user_id=terminal.DEFAULT_USER, conversation_id=key), options)


def _show(context: AssembledContext, options: argparse.Namespace) -> None:
    report = context.report
    if options.json:
        terminal.print_json({"messages": messages_to_dict(context.messages), "report": report.to_dict()})
        return
    counts = report.coverage_counts()
    messages = f"{counts['verbatim']:,} of {plural(sum(counts.values()), 'message')} word for word"
    took = f"{counts['retrieved']:,} looked up, in {sum(report.timings_ms.values()):,.0f} ms and without a model"
    terminal.tell(f"{report.total_tokens:,} of {report.budget_tokens:,} tokens: {messages}, {took}", style="bold")
    console = Console(highlight=False)
    console.print(Text(report.to_text(console.width)), soft_wrap=True)
    console.print()
    console.rule("[bold]the prompt")
    for number, message in enumerate(context.messages, 1):
        console.print(Text(" ".join(filter(None, (f"{number:>3}", message.type, message.name))), style="bold cyan"))
        text = terminal.printable(plain_text(message))
        console.print(Text(text if number == len(context.messages) else _shortened(text)), soft_wrap=True)


def _shortened(text: str) -> str:
    lines = text.splitlines()
    shown = [line if len(line) <= PREVIEW_WIDTH else line[: PREVIEW_WIDTH - 1] + "…" for line in lines[:PREVIEW_LINES]]
    if len(lines) > PREVIEW_LINES:
        shown.append(f"… {len(lines) - PREVIEW_LINES} more lines (--json has them)")
    return "\n".join(shown)


def run_replay(options: argparse.Namespace) -> None:
    """Replays the conversation, and prints what came of it."""
    strategies = re.sub(r"(@\d+)k\b", r"\g<1>000", options.compare).split(",")
    price = price_of(options.price, PRICES) if options.price else None
    if options.price and price is None:
        known = ", ".join(sorted(PRICES))
        raise InputError(f"--price: no price is known for {options.price!r}; there are prices for {known}")
    system_prompt, messages = demo.DEMO_SYSTEM_PROMPT, demo.demo_messages()
    if options.file is not None:
        _, system_prompt, messages = read_one(options.file, options.title)
    settings = {"max_context_tokens": REPLAY_BUDGET, **terminal.settings_of(options)}
    with terminal.progress_bar() as progress:
        task = progress.add_task("turns", total=len(split_turns(messages)) * len(strategies))
        result = replay(
            messages,
            strategies,
            budget=settings["max_context_tokens"],
            settings=settings,
            system_prompt=options.system or system_prompt,
            model=options.model,
            price=price,
            on_turn=lambda name, _: progress.update(task, advance=1, description=terminal.printable(name)),
        )
    if options.json:
        terminal.print_json(result.to_dict())
    else:
        sys.stdout.write(terminal.printable(f"{result.to_text()}\n"))
