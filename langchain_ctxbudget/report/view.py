"""The numbers, words and colours of a report, as every renderer shows them, and its text chart (seed 000)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.color import ColorSystem
from rich.console import Console
from rich.style import Style
from rich.text import Text

from langchain_ctxbudget.budget import TIERS, title_of

if TYPE_CHECKING:
    from langchain_ctxbudget.report.report import ContextReport, CoverageState, UsageState

LAYER_COLOURS: Mapping[str, str] = {
    "L0": "#555555",
    "L1": "#A375E0",
    "L2": "#428A56",
    "L3": "#EBCD47",
    "L4": "#75CBF0",
    "L5": "#E8702A",
    "L6": "#1F4FA3",
    "L7": "#8A1212",
}
CUSTOM_COLOURS = ("#CC66A5", "#8BB85E", "#31145C")
"""For custom layers, in the order in which they are declared."""
OVERHEAD, RESERVE, FREE = "tools and framing", "kept for the answer", "free"
OTHERS = {OVERHEAD: "#C0C0C0", RESERVE: "#F2F2F2", FREE: "#FFFFFF"}
STATES: dict[CoverageState, tuple[str, str]] = {
    "verbatim": ("verbatim", "#1F4FA3"),
    "retrieved": ("retrieved", "#E8702A"),
    "summarized": ("behind the summary", "#75CBF0"),
    "omitted": ("left out", "#FFFFFF"),
}
"""Words and colour for the state of a message."""
TIER_COLOURS = {"healthy": "#2E8B57", "caution": "#B8A000", "warning": "#D78700", "critical": "#C62828"}
ALARMS = {"Failed": "#D70000", "Squeezed": "#D78700"}
JOINED = " + "
"""Between the ids of a call and its results, which are one item."""
PLAIN_WIDTH, LEAST_WIDTH = 80, 40
"""Columns where there is no terminal, and the fewest that a chart has."""
FULL, EMPTY = "█", "░"
MIN_BAR, MAX_BAR = 8, 60
FACT_INDENT = 11
_SHARES = {0.5: "half", 0.25: "a quarter", 0.125: "an eighth"}
_OBEYED = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")
"""Control characters, directions of writing, and halves of characters, which cannot be printed at all."""


@dataclass(frozen=True, slots=True)
class Part:
    """One row of a chart: a layer, or overhead that no layer owns."""

    name: str
    label: str
    tokens: int
    share: float
    colour: str
    planned: int | None = None
    """None: nothing is planned for overhead."""


def parts_of(report: ContextReport) -> list[Part]:
    """Returns the parts of a prompt, layers first; their tokens add up to its total."""
    budget, colours = report.budget_tokens, colours_of(layer.layer for layer in report.layers)
    layers = (
        Part(name, label_of(name), layer.used_tokens, layer.used_tokens / budget, colours[name], layer.allocated_tokens)
        for layer in report.layers
        for name in [str(layer.layer)]
    )
    overhead = (
        Part(name, name.capitalize(), tokens, tokens / budget, OTHERS[OVERHEAD])
        for name, tokens in report.overhead_tokens.items()
    )
    return [*layers, *overhead]


def label_of(layer: str) -> str:
    """Returns the name of a layer in charts; a custom layer is called by its own."""
    return f"{layer} {title_of(layer)}" if layer in LAYER_COLOURS else layer


def colours_of(names: Iterable[str]) -> dict[str, str]:
    """Returns the colour of every part, those of custom layers in the order in which they come."""
    colours = {**LAYER_COLOURS, **OTHERS}
    custom = [name for name in dict.fromkeys(map(str, names)) if name not in colours]
    return colours | {name: CUSTOM_COLOURS[number % len(CUSTOM_COLOURS)] for number, name in enumerate(custom)}


def states_in_words(counts: Mapping[CoverageState, int]) -> str:
    """Returns the number of messages in each state, without the empty ones.

    >>> states_in_words({"verbatim": 1_200, "omitted": 0, "retrieved": 3})
    '1,200 verbatim, 3 retrieved'
    """
    return ", ".join(f"{counts[state]:,} {said}" for state, (said, _) in STATES.items() if counts.get(state))


def plural(count: int, noun: str) -> str:
    """Returns a number and its noun.

    >>> plural(1, "message"), plural(1_200, "message")
    ('1 message', '1,200 messages')
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def shown(text: str) -> str:
    r"""Returns a text whose control characters are shown, not obeyed.

    >>> shown("red \x1b[31m, C1 \x9b, backwards \u202e")
    'red ␛[31m, C1 \\u009b, backwards \\u202e'
    """

    def picture(found: re.Match[str]) -> str:
        code = ord(found[0])
        if code < ord(" "):
            return chr(0x2400 + code)
        return "␡" if found[0] == "\x7f" else f"\\u{code:04x}"

    return _OBEYED.sub(picture, text)


def facts(report: ContextReport) -> list[tuple[str, str]]:
    """Returns labels and their texts, in the order in which they are shown."""
    stable, counts = report.stability, report.coverage_counts()
    said = f"{report.history_strategy}: {plural(sum(counts.values()), 'message')}: {states_in_words(counts)}"
    zone = f"{stable.stable_zone_tokens:,} tokens in the stable zone"
    shares = (
        f"{stable.stable_zone_share:.0%} of it as in the previous prompt" if stable.shared_tokens is not None else ""
    )
    step = ", a compaction step" if stable.compaction_step else ""
    how = "exact" if report.count_mode == "exact" else "estimated, with a margin"
    corrected = report.uncorrected_tokens != report.total_tokens
    reserve = f"{report.output_reserve_tokens:,} tokens kept free for the answer"
    window = f"{report.window_tokens or 0:,} tokens ({report.window_detail or report.window_source}), {reserve}"
    written = [f"{plural(lines, 'line')} by {maker}" for maker, lines in report.summary_lines.items()]
    if report.summaries_waiting:
        written.append(f"{plural(report.summaries_waiting, 'span')} still to be written")
    by_model = report.summaries_waiting or set(report.summary_lines) - {"extraction"}
    steps = ", ".join(f"{name} {ms:.1f}" for name, ms in report.timings_ms.items())
    found = [
        ("Settings", " < ".join(report.settings_from) if len(report.settings_from) > 1 else ""),
        ("Strategy", report.allocation_strategy),
        ("History", said if any(counts.values()) else "no messages yet"),
        (
            "Stable",
            f"{zone}, {shares} ({stable.prompt_share:.0%} of the whole){step}"
            if shares
            else f"{zone}; first prompt of this conversation",
        ),
        ("Counted", f"{how} ({report.tokenizer}), {plural(report.tokenizer_calls, 'new text')}"),
        ("Corrected", f"by observed usage; {report.uncorrected_tokens:,} without it" if corrected else ""),
        ("Window", window if report.window_tokens else ""),
        ("Reserve", reserve if report.output_reserve_tokens and not report.window_tokens else ""),
        ("Usage", _usage(report.usage) if report.usage else ""),
        ("Summaries", ", ".join(written) if by_model else ""),
        ("Squeezed", f"{', '.join(report.last_resort)}: it did not fit otherwise" if report.last_resort else ""),
        *(("Repaired", f"{repair.kind} {repair.message_id}: {repair.detail}") for repair in report.repairs),
        *(("Failed", failure) for failure in report.failures),
        ("Time", f"{sum(report.timings_ms.values()):.1f} ms ({steps})"),
    ]
    return [(label, text) for label, text in found if text]


def _usage(usage: UsageState) -> str:
    """Returns the tier of a prompt: the share that is left of a limit, and what the tier lets in."""
    cost = usage.limit.endswith("cost")
    used, allowed = (f"${part:,.2f}" if cost else f"{part:,.0f}" for part in (usage.used, usage.allowed))
    means = ", ".join(words for name, words in tier_in_words(usage.tier).items() if name not in usage.forced)
    forced = f"{', '.join(usage.forced)} forced" if usage.forced else ""
    left = f"{usage.left:.0%} of {usage.limit} left ({used} of {allowed} used)"
    return f"{usage.tier}: {'; '.join(filter(None, (left, means, forced)))}"


def tier_in_words(name: str) -> dict[str, str]:
    """Returns the most that a tier lets in, under the names of `force_include`.

    >>> tier_in_words("caution")
    {'history': '5 messages', 'budget': 'half of the budget if that suffices'}
    """
    tier = next(tier for tier in TIERS if tier.name == name)
    words = {}
    if tier.knowledge_items is not None:
        words["knowledge"] = plural(tier.knowledge_items, "item")
    if tier.documents != "full":
        words["documents"] = {"summary": "summaries", "none": "no documents"}[tier.documents]
    if tier.history_messages is not None:
        words["history"] = plural(tier.history_messages, "message") if tier.history_messages else "the last exchange"
    if tier.budget_share in _SHARES:
        words["budget"] = f"{_SHARES[tier.budget_share]} of the budget if that suffices"
    return words


def render_text(report: ContextReport, *, width: int = PLAIN_WIDTH, colour: bool = False) -> str:
    """Draws a bar chart with the facts below it.

    Args:
        report: any report.
        width: columns to use, at least 40. Below 51 columns there is no room for planned tokens.
        colour: True gives bars the colours of their layers, as in the plots; the text is the same.
    """
    budget, total = report.budget_tokens, report.total_tokens
    whole = Part("", "   Total", total, total / budget, "")
    free = f"{budget - total:,}"
    rows = [
        (part, (f"{part.tokens:,}", f"{part.share:.1%}", "" if part.planned is None else f"{part.planned:,}"))
        for part in (*parts_of(report), whole)
    ]
    label_width, bar_width, widths = _columns([*(cells for _, cells in rows), (free, "", "")], width)

    def line(label: str, bar: str, cells: Sequence[str]) -> str:
        numbers = "".join(f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=True) if width)
        return f"{_fitted(shown(label), label_width - 1)} {bar or ' ' * bar_width}{numbers}".rstrip()

    def drawn(part: Part, cells: Sequence[str]) -> str:
        filled = max(0, min(bar_width, round(part.share * bar_width))) or int(part.tokens > 0)
        full = _painted(FULL * filled, part.colour) if colour and part.colour else FULL * filled
        label = part.label if part is whole or part.name in LAYER_COLOURS else f"   {part.label}"
        return line(label, full + EMPTY * (bar_width - filled), cells)

    breadth = label_width + bar_width + sum(widths)
    heading, tokens = f"CONTEXT BUDGET{' (forecast)' if report.forecast else ''}", f"{budget:,} tokens"
    rule = "─" * breadth
    *bars, last = (drawn(part, cells) for part, cells in rows)
    top = [
        f"{_fitted(heading, max(1, breadth - len(tokens) - 1))} {tokens}",
        line("", "", ("used", "share", "planned")),
    ]
    lines = [*top, rule, *bars, rule, last, line("   Free", "", (free, "", "")), ""]
    alarms = ALARMS | ({"Usage": TIER_COLOURS[report.usage.tier]} if report.usage else {})
    for label, text in facts(report):
        name = _painted(label, alarms[label]) if colour and label in alarms else label
        words = Text(shown(" ".join(text.split()))).wrap(Console(), breadth - FACT_INDENT)
        first, *rest = (part.plain.rstrip() for part in words) if words else [""]
        lines.append(f"{name}{' ' * (FACT_INDENT - len(label))}{first}".rstrip())
        lines += [" " * FACT_INDENT + more for more in rest]
    return "\n".join(lines)


def _columns(rows: Sequence[Sequence[str]], width: int) -> tuple[int, int, Sequence[int]]:
    """Returns the widths of label, bar and numbers, the widest that leave room for bars; 0 leaves numbers out."""
    longest = (max(map(len, cells)) + 1 for cells in zip(*rows, strict=True))
    used, share, planned = (max(least, most) for least, most in zip((9, 7, 11), longest, strict=True))
    all_three, without_planned, used_only = (used, share, planned), (used, share, 0), (used, 0, 0)
    layouts = ((21, all_three), (16, all_three), (16, without_planned), (8, without_planned), (8, used_only))
    room = max(LEAST_WIDTH, width)
    fitting = (layout for layout in layouts if room - layout[0] - sum(layout[1]) >= MIN_BAR)
    label, numbers = next(fitting, layouts[-1])
    return label, min(MAX_BAR, max(1, room - label - sum(numbers))), numbers


def _fitted(text: str, columns: int) -> str:
    """Returns a text in exactly so many columns: filled up with spaces, or cut with an ellipsis."""
    fitted = Text(text)
    fitted.truncate(columns, overflow="ellipsis", pad=True)
    return fitted.plain


def _painted(text: str, colour: str) -> str:
    """Returns a text in the nearest colour of a terminal's 256."""
    return Style(color=colour).render(text, color_system=ColorSystem.EIGHT_BIT)
