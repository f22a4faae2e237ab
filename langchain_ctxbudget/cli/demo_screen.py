"""The screen of `ctxbudget demo`: two prompts for one question, side by side."""

from collections.abc import Sequence
from itertools import cycle

from rich.console import Console
from rich.table import Table
from rich.text import Text

from langchain_ctxbudget.budget import Layer
from langchain_ctxbudget.cli.printing import printable
from langchain_ctxbudget.demo import Cost, SideBySide
from langchain_ctxbudget.installing import install_command
from langchain_ctxbudget.report import Part, on_dark, parts_of, percent

MOST_COLUMNS = 100
LABEL_COLUMNS = 13
GAP = 3
"""Columns between two columns of the table."""
GLYPHS = "█▓▒░▚▤◆▥◇▦"
"""The parts of a bar in turn, so that they stand apart where there are no colours: one for each
layer that may have tokens in the demo, and one for the framing."""
OURS = "ctxbudget"
TRIMMED = "trim_messages"


def print_side_by_side(compared: SideBySide) -> None:
    """Prints a question, what two prompts have of its answer, and what they cost."""
    console = Console(highlight=False)
    columns = min(MOST_COLUMNS, console.width)
    report = compared.context.report
    parts = parts_of(report)
    glyphs = dict(zip([part.name for part in parts], cycle(GLYPHS), strict=False))
    console.print(
        f"A chat of {compared.messages:,} messages ({compared.conversation_tokens:,} tokens), "
        f"and room for {report.budget_tokens:,}. The next message:",
        width=columns,
    )
    console.print(Text(printable(compared.question), style="bold"), width=columns)
    console.print()
    bar_columns = (columns - LABEL_COLUMNS - 2 * GAP) // 2
    console.print(_table(compared, parts, glyphs, bar_columns), width=columns)
    console.print()
    console.print(_legend(parts, glyphs, columns), width=columns)
    console.print()
    hint = (
        "The prompt and its report: ctxbudget demo --prompt. In a browser: "
        f"{install_command('dashboard')}, then ctxbudget dashboard --demo"
    )
    console.print(Text(hint, style="dim"), width=columns)


def _table(
    compared: SideBySide, parts: Sequence[Part], glyphs: dict[str, str], bar_columns: int
) -> Table:
    """Returns the rows of both prompts below their names."""
    report = compared.context.report
    trimmed = compared.trimmed
    counts = report.coverage_counts()
    trimmed_parts = [
        _part(Layer.IDENTITY, trimmed.system_tokens),
        _part(Layer.HISTORY, trimmed.history_tokens),
        _part(Layer.MESSAGE, trimmed.question_tokens),
    ]
    budget = report.budget_tokens
    table = Table.grid(padding=(0, GAP, 0, 0))
    table.add_column(width=LABEL_COLUMNS)
    table.add_column(width=bar_columns)
    table.add_column(width=bar_columns)
    table.add_row("", Text(TRIMMED, style="bold"), Text(OURS, style="bold"))
    table.add_row(
        "The prompt",
        _bar(trimmed_parts, glyphs, budget, bar_columns),
        _bar(parts, glyphs, budget, bar_columns),
    )
    table.add_row(
        "Messages",
        f"the {trimmed.messages:,} newest",
        f"the {counts['verbatim']:,} newest, {counts['retrieved']:,} looked up",
    )
    heading = "The answer"
    for evidence in compared.evidence:
        place = f"message {evidence.position} of {compared.messages:,}"
        table.add_row(
            heading,
            _found(place, evidence.text, is_there=evidence.trimmed),
            _found(place, evidence.text, is_there=evidence.ours),
        )
        heading = ""
    table.add_row("Sent", f"{trimmed.total_tokens:,} tokens", f"{report.total_tokens:,} tokens")
    table.add_row(f"Last {compared.cost.turns} turns", _cost(trimmed.cost), _cost(compared.cost))
    return table


def _part(layer: Layer, tokens: int) -> Part:
    return Part(layer.full_name, tokens, layer.colour)


def _bar(parts: Sequence[Part], glyphs: dict[str, str], budget: int, columns: int) -> Text:
    """Returns a bar of parts beside each other; the whole width is the budget."""
    bar = Text()
    reached = 0
    for part in parts:
        before = round(reached * columns / budget)
        reached += part.tokens
        width = round(reached * columns / budget) - before
        bar.append(glyphs.get(part.name, GLYPHS[0]) * width, style=on_dark(part.colour))
    return bar


def _legend(parts: Sequence[Part], glyphs: dict[str, str], columns: int) -> Text:
    """Returns the names of all parts with their tokens, on lines of at most so many columns."""
    legend = Text()
    reached = 0
    for part in parts:
        entry = f" {printable(part.name)} {part.tokens:,}   "
        if reached + len(entry) > columns:
            legend.append("\n")
            reached = 0
        legend.append(glyphs[part.name], style=on_dark(part.colour)).append(entry)
        reached += 1 + len(entry)
    return legend


def _found(place: str, text: str, *, is_there: bool) -> Text:
    if not is_there:
        return Text("not found", style="red")
    quoted = Text(f"found in {place}:", style="green")
    return quoted.append(f'\n"{printable(text)}"', style="default")


def _cost(cost: Cost) -> str:
    cached = percent(cost.cached_share)
    mean = f"{cost.mean_effective_tokens:,} new tokens a turn"
    return f"{cached} cached, paid like {mean} ({cost.effective_tokens:,} in all)"
