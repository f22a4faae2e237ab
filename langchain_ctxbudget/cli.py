"""The command `ctxbudget`."""

from __future__ import annotations

import argparse
import io
import json
import sys
from collections.abc import Callable, Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from langchain_core.messages import BaseMessage, messages_to_dict
from rich.console import Console
from rich.table import Table
from rich.text import Text

from langchain_ctxbudget import dashboard_command, importing, inspecting, replay_command
from langchain_ctxbudget.core.allocation.catalogue import STRATEGIES
from langchain_ctxbudget.core.layers import Layer
from langchain_ctxbudget.core.messages import plain_text, split_instructions
from langchain_ctxbudget.core.report import ContextReport
from langchain_ctxbudget.core.turns import split_turn
from langchain_ctxbudget.draft import AssembledContext
from langchain_ctxbudget.errors import BudgetTooSmallError, CtxBudgetError, InvalidSettingsError
from langchain_ctxbudget.formats import pick_conversation, read_conversations
from langchain_ctxbudget.importing import DEFAULT_USER
from langchain_ctxbudget.pipeline import ContextPipeline
from langchain_ctxbudget.reporting.text import render_items
from langchain_ctxbudget.terminal import printable

DEMO_BUDGET = 4_000
ROLE_STYLES = {"system": "magenta", "human": "green", "ai": "cyan", "tool": "yellow"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; its exit code is 0, or 1 with a message on standard error.

    Args:
        arguments: what follows the command's name; default: what the shell gave.
    """
    options = _parser().parse_args(arguments)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without these characters gets question marks
    try:
        code: int = options.run(options)
    except CtxBudgetError as error:
        text = Text(printable(f"{type(error).__name__}: {error}"), style="red")
        Console(stderr=True, highlight=False).print(text, soft_wrap=True)
        return 1
    except BrokenPipeError:  # the reader, `head` for instance, has seen enough
        sys.stderr.close()
        return 0
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="ctxbudget", description="Decides what goes into the context window of a model call."
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {version('langchain-ctxbudget')}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    demo = commands.add_parser("demo", help="assemble a prompt from a bundled conversation of over 200 messages")
    demo.add_argument("--message", help="ask something else than the demo's question")
    demo.add_argument("--budget", type=int, default=DEMO_BUDGET, help="tokens (default: %(default)s)")
    _division(demo)
    _output(demo)
    demo.set_defaults(run=_demo)

    assemble = commands.add_parser("assemble", help="assemble a prompt from a conversation of your own")
    assemble.add_argument(
        "--conversation",
        type=Path,
        required=True,
        metavar="FILE",
        help="OpenAI or LangChain messages, a ChatGPT export, a LangGraph state, or the evaluation format",
    )
    assemble.add_argument("--message", required=True, metavar="TEXT", help="the user's new message")
    assemble.add_argument("--budget", type=int, required=True, metavar="N", help="tokens")
    assemble.add_argument("--title", help="which conversation, where the file holds several")
    assemble.add_argument("--system", default="", metavar="TEXT", help="a system prompt (default: the file's)")
    assemble.add_argument("--model", help="count for this model, within its window (default: o200k_base, no window)")
    _division(assemble)
    _output(assemble)
    assemble.set_defaults(run=_assemble)

    replay_command.configure(commands.add_parser("replay", help="compare strategies on a conversation, turn by turn"))
    importing.configure(commands.add_parser("import", help="write the conversations of a file into a store"))
    inspecting.configure(commands.add_parser("inspect", help="show and change what is known about a user"))
    dashboard_command.configure(commands.add_parser("dashboard", help="show what is in the context, in a browser"))
    return parser


def _division(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--allocation",
        default="elastic",
        metavar="STRATEGY",
        help=f"how the budget is divided: {', '.join(STRATEGIES)}, or JSON with parameters, for instance "
        """'{"strategy": "ratio", "borrow": true}' (default: %(default)s)""",
    )
    parser.add_argument(
        "--what-if",
        type=_budgets,
        default=(),
        metavar="N,N,...",
        help="also tell what these budgets would have given, without assembling again",
    )


def _budgets(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"not a list of whole numbers: {text!r}") from error


def _allocation(text: str) -> str | dict[str, Any]:
    """A strategy's name, or its parameters as JSON.

    Raises:
        InvalidSettingsError: JSON that cannot be read.
    """
    if not text.lstrip().startswith("{"):
        return text
    try:
        parameters: dict[str, Any] = json.loads(text)
    except ValueError as error:
        raise InvalidSettingsError(f"--allocation is not valid JSON: {error}") from error
    return parameters


def _output(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="messages and report as JSON")
    parser.add_argument("--items", action="store_true", help="list every item with its reason")
    parser.add_argument("--full", action="store_true", help="print long messages whole")


def _demo(options: argparse.Namespace) -> int:
    from langchain_ctxbudget import demo  # noqa: PLC0415 - only this command reads the conversation

    pipeline = ContextPipeline(
        {
            "max_context_tokens": options.budget,
            "allocation": _allocation(options.allocation),
            "preferences": demo.DEMO_PREFERENCES,
            "topics": demo.DEMO_TOPICS,
            "entities": demo.DEMO_ENTITIES,
            "learn": False,  # in the background, so that every run would show something else
        },
        system_prompt=demo.DEMO_SYSTEM_PROMPT,
    )
    messages = demo.demo_messages()
    question = options.message or demo.DEMO_QUESTION
    history, turn = split_turn(messages)
    with pipeline:
        # The turn before the question as well, as an application would: the report then tells what both share.
        pipeline.add_messages(history, user_id="maya", conversation_id="demo")
        pipeline.flush()  # what it learns is part of what is shown
        pipeline.assemble(turn[:1], user_id="maya", conversation_id="demo")
        pipeline.add_messages(turn, user_id="maya", conversation_id="demo")
        context = pipeline.assemble(question, user_id="maya", conversation_id="demo")
    if options.json:
        return _print_json(context, options.what_if)
    console = Console(highlight=False)
    _print_prompt(console, context, full=options.full)
    _print_report(console, context, items=options.items)
    _print_what_if(console, context, options.what_if)
    if not options.message:
        _print_evidence(console, context, messages, demo.DEMO_EVIDENCE_IDS)
    return 0


def _assemble(options: argparse.Namespace) -> int:
    conversation = pick_conversation(read_conversations(options.conversation), title=options.title)
    instructions, messages = split_instructions(conversation.messages)
    pipeline = ContextPipeline(
        {"max_context_tokens": options.budget, "allocation": _allocation(options.allocation), "learn": False},
        system_prompt=options.system or "\n\n".join(instructions),
        model=options.model,
    )
    key = conversation.conversation_id
    with pipeline:
        pipeline.add_messages(messages, user_id=DEFAULT_USER, conversation_id=key)
        pipeline.flush()  # what it learns is part of what is shown
        context = pipeline.assemble(options.message, user_id=DEFAULT_USER, conversation_id=key)
    if options.json:
        return _print_json(context, options.what_if)
    console = Console(highlight=False)
    _print_prompt(console, context, full=options.full)
    _print_report(console, context, items=options.items)
    _print_what_if(console, context, options.what_if)
    return 0


def _print_json(context: AssembledContext, budgets: Sequence[int]) -> int:
    data: dict[str, Any] = {
        "messages": messages_to_dict(context.messages),
        "report": context.report.to_dict(),
    }
    if budgets:
        forecasts = {budget: _reallocated(context, budget) for budget in budgets}
        data["what_if"] = {budget: report and report.to_dict() for budget, report in forecasts.items()}
    print(json.dumps(data, indent=2))
    return 0


PREVIEW_LINES, PREVIEW_WIDTH = 14, 160


def _print_prompt(console: Console, context: AssembledContext, *, full: bool) -> None:
    console.rule("[bold]the prompt")
    for number, message in enumerate(context.messages, 1):
        name = f" {message.name}" if message.name else ""
        style = ROLE_STYLES.get(message.type, "white")
        text = printable(plain_text(message))
        said_before = message.id is not None and number < len(context.messages)
        body = _shortened(text) if said_before and not full else text
        console.print(Text(f"{number:>3} {message.type}{name}", style=f"bold {style}"))
        console.print(Text(body), soft_wrap=True)
    console.print()


def _shortened(text: str) -> str:
    lines = text.splitlines()
    shown = [line if len(line) <= PREVIEW_WIDTH else line[: PREVIEW_WIDTH - 1] + "…" for line in lines[:PREVIEW_LINES]]
    if len(lines) > PREVIEW_LINES:
        shown.append(f"… {len(lines) - PREVIEW_LINES} more lines (--full prints them)")
    return "\n".join(shown)


def _print_report(console: Console, context: AssembledContext, *, items: bool) -> None:
    console.rule("[bold]the report")
    console.print(Text.from_ansi(context.report.to_text(width=console.width)), soft_wrap=True)
    if items:
        console.print()
        listed = printable(render_items(context.report.to_dict(), layers=list(Layer), width=console.width))
        console.print(Text(listed), soft_wrap=True)


def _print_what_if(console: Console, context: AssembledContext, budgets: Sequence[int]) -> None:
    if not budgets:
        return
    reports = [context.report, *(_reallocated(context, budget) for budget in budgets)]
    table = Table("layer", title="what other budgets would have given, in tokens")
    for budget in (context.report.budget_tokens, *budgets):
        table.add_column(f"{budget:,}", justify="right")

    def row(name: str, tokens: Callable[[ContextReport], int]) -> None:
        table.add_row(name, *("too small" if report is None else f"{tokens(report):,}" for report in reports))

    for layer in context.report.layers:
        row(printable(layer.title), partial(_used_tokens, layer=layer.layer))
    row("tools and framing", lambda report: sum(report.overhead_tokens.values()))
    table.add_section()
    row("total", lambda report: report.total_tokens)
    row("messages verbatim", lambda report: report.coverage_counts()["verbatim"])
    row("messages retrieved", lambda report: report.coverage_counts()["retrieved"])
    console.print()
    console.print(table)


def _used_tokens(report: ContextReport, layer: str) -> int:
    return report.layer(layer).used_tokens


def _reallocated(context: AssembledContext, budget: int) -> ContextReport | None:
    """The forecast for a budget; None where what must be sent does not fit."""
    try:
        return context.report.reallocate(budget)
    except BudgetTooSmallError:
        return None


def _print_evidence(
    console: Console, context: AssembledContext, messages: Sequence[BaseMessage], ids: Sequence[str]
) -> None:
    prompt = "\n".join(message.text for message in context.messages)
    console.print()
    for number, message in enumerate(messages, 1):
        if message.id in ids:
            found = message.text in prompt
            where = f"Message {number} of {len(messages)}, which holds the answer,"
            state = "stands in the prompt word for word." if found else "is not in this prompt word for word."
            console.print(Text(f"{where} {state}", style="green" if found else "red"))


if __name__ == "__main__":
    sys.exit(main())
