"""The commands `ctxbudget demo` and `ctxbudget assemble`: one prompt and its report."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from langchain_core.messages import messages_to_dict
from rich.console import Console
from rich.text import Text

from langchain_ctxbudget import demo
from langchain_ctxbudget.budget import STRATEGIES
from langchain_ctxbudget.cli.formats import read_one
from langchain_ctxbudget.cli.terminal import DEFAULT_USER, Row, print_table, printable, tell
from langchain_ctxbudget.messages import plain_text, split_turn
from langchain_ctxbudget.pipeline import ContextPipeline
from langchain_ctxbudget.prompt import AssembledContext

DEMO_BUDGET = 4_000
PREVIEW_LINES, PREVIEW_WIDTH = 14, 160
ROLE_STYLES = {"system": "magenta", "human": "green", "ai": "cyan", "tool": "yellow"}


def configure_demo(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `demo`."""
    parser.add_argument("--message", help="ask something else than the demo's question")
    parser.add_argument("--budget", type=int, default=DEMO_BUDGET, help="tokens (default: %(default)s)")
    _configure_both(parser)
    parser.set_defaults(run=run_demo)


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `assemble`."""
    formats = "OpenAI or LangChain messages, an export of ChatGPT or Claude, or the evaluation format"
    parser.add_argument("--conversation", type=Path, required=True, metavar="FILE", help=formats)
    parser.add_argument("--message", required=True, metavar="TEXT", help="the user's new message")
    parser.add_argument("--budget", type=int, required=True, metavar="N", help="tokens")
    parser.add_argument("--title", help="which conversation, where the file holds several")
    parser.add_argument("--system", default="", metavar="TEXT", help="a system prompt (default: the file's)")
    parser.add_argument("--model", help="count for this model, within its window (default: o200k_base, no window)")
    _configure_both(parser)
    parser.set_defaults(run=run)


def _configure_both(parser: argparse.ArgumentParser) -> None:
    help_text = "how the budget is divided (default: %(default)s)"
    parser.add_argument("--allocation", default="elastic", choices=STRATEGIES, help=help_text)
    parser.add_argument("--items", action="store_true", help="list every item with its reason")
    parser.add_argument("--json", action="store_true", help="messages and report as JSON")


def _settings(options: argparse.Namespace) -> dict[str, Any]:
    """Returns the settings of the pipeline; nothing is learned, or every run would show something else."""
    return {"max_context_tokens": options.budget, "allocation": options.allocation, "learn": False}


def run_demo(options: argparse.Namespace) -> None:
    """Assembles and shows the prompt for a question about the bundled conversation."""
    known = {"preferences": demo.DEMO_PREFERENCES, "topics": demo.DEMO_TOPICS, "entities": demo.DEMO_ENTITIES}
    messages = demo.demo_messages()
    history, turn = split_turn(messages)
    with ContextPipeline({**_settings(options), **known}, system_prompt=demo.DEMO_SYSTEM_PROMPT) as pipeline:
        # The turn before the question as well, as an application would: the report then tells what both share.
        pipeline.add_messages(history, user_id="maya", conversation_id="demo")
        pipeline.assemble(turn[:1], user_id="maya", conversation_id="demo")
        pipeline.add_messages(turn, user_id="maya", conversation_id="demo")
        question = options.message or demo.DEMO_QUESTION
        context = pipeline.assemble(question, user_id="maya", conversation_id="demo")
        _show(context, options)
    if not (options.json or options.message):
        prompt = "\n".join(message.text for message in context.messages)
        print()
        for number, message in enumerate(messages, 1):
            if message.id in demo.DEMO_EVIDENCE_IDS:
                found = message.text in prompt
                state = "stands in the prompt word for word." if found else "is not in this prompt word for word."
                where = f"Message {number} of {len(messages)}, which holds the answer,"
                tell(f"{where} {state}", style="green" if found else "red")


def run(options: argparse.Namespace) -> None:
    """Assembles and shows the prompt for a message in a conversation of a file."""
    key, instructions, messages = read_one(options.conversation, options.title)
    system_prompt = options.system or instructions
    with ContextPipeline(_settings(options), system_prompt=system_prompt, model=options.model) as pipeline:
        pipeline.add_messages(messages, user_id=DEFAULT_USER, conversation_id=key)
        _show(pipeline.assemble(options.message, user_id=DEFAULT_USER, conversation_id=key), options)


def _show(context: AssembledContext, options: argparse.Namespace) -> None:
    report = context.report
    if options.json:
        data = {"messages": messages_to_dict(context.messages), "report": report.to_dict()}
        sys.stdout.write(json.dumps(data, indent=2) + "\n")
        return
    console = Console(highlight=False)
    console.rule("[bold]the prompt")
    for number, message in enumerate(context.messages, 1):
        heading = " ".join(filter(None, (f"{number:>3}", message.type, message.name)))
        console.print(Text(heading, style=f"bold {ROLE_STYLES.get(message.type, 'white')}"))
        text = printable(plain_text(message))
        console.print(Text(text if number == len(context.messages) else _shortened(text)), soft_wrap=True)
    console.print()
    console.rule("[bold]the report")
    console.print(Text(report.to_text(console.width)), soft_wrap=True)
    if options.items:
        rows: list[Row] = []
        for layer in report.layers:
            rows += [(layer.layer, one.status, one.reason, one.preview, f"{one.tokens:,}") for one in layer.items]
            rows += [(layer.layer, "omitted", why, f"{n:,} more", "") for why, n in layer.more_omitted.items()]
        headings = ("layer", "outcome", "why", "item", "tokens")
        print_table("every item and its reason", headings, rows, numbers=1)


def _shortened(text: str) -> str:
    lines = text.splitlines()
    shown = [line if len(line) <= PREVIEW_WIDTH else line[: PREVIEW_WIDTH - 1] + "…" for line in lines[:PREVIEW_LINES]]
    if len(lines) > PREVIEW_LINES:
        shown.append(f"… {len(lines) - PREVIEW_LINES} more lines (--json has them)")
    return "\n".join(shown)
