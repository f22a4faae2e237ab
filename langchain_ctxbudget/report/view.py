"""A report as a text chart (seed 000), as a card for notebooks, and in words: the same numbers, words and colours."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING

from langchain_ctxbudget.budget import Layer, Status, title_of

if TYPE_CHECKING:
    from langchain_ctxbudget.report.report import ContextReport, CoverageState, UsageState

_COLOURS = ("#555555", "#A375E0", "#428A56", "#EBCD47", "#75CBF0", "#E8702A", "#1F4FA3", "#8A1212")
LAYER_COLOURS: Mapping[str, str] = dict(zip(map(str, Layer), _COLOURS, strict=True))
CUSTOM_COLOURS = ("#CC66A5", "#8BB85E", "#31145C")
"""For custom layers, in the order in which they are declared."""
OVERHEAD, FREE = "tools and framing", "free"
OTHERS = {OVERHEAD: "#C0C0C0", FREE: "#FFFFFF"}
STATES: "dict[CoverageState, tuple[str, str]]" = {
    "verbatim": ("verbatim", "#1F4FA3"),
    "retrieved": ("retrieved", "#E8702A"),
    "summarized": ("behind the summary", "#75CBF0"),
    "omitted": ("left out", "#FFFFFF"),
}
"""Words and colour for the state of a message."""
STATE_MEANS = {
    "verbatim": "It is sent word for word, in L6.",
    "retrieved": "It was found for the current message and is quoted in L5.",
    "summarized": "A summary or a shortened form stands for it; the recall tool quotes it word for word.",
    "omitted": "Nothing in this prompt stands for it. It is still stored, and the recall tool quotes it.",
}
JOINED = " + "
"""Between the ids of a call and its results, which are one item."""
FULL, EMPTY = "█", "░"
LABEL, MIN_BAR, MAX_BAR, NUMBERS = 21, 8, 60, (9, 7, 11)
"""Columns of a chart: its labels, its bars, and its numbers."""
FAR_STEP = 20
"""A compaction step that is more turns away is not worth a word."""
FACT_INDENT = 11
LEAST_SCORE = 0.005
_OBEYED = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")
"""Control characters, directions of writing, and halves of characters, which cannot be printed at all."""
CARD_COLUMNS = 100
_CARD = "overflow-x:auto;white-space:pre;color:inherit;background:none;font-size:12px;line-height:1.35"


def label_of(layer: str) -> str:
    """Returns the name of a layer in charts; a custom layer is called by its own."""
    return f"{layer} {title_of(layer)}" if layer in LAYER_COLOURS else layer


def colours_of(names: Iterable[str]) -> dict[str, str]:
    """Returns the colour of every part, those of custom layers in the order in which they come."""
    colours = {**LAYER_COLOURS, **OTHERS}
    custom = [name for name in dict.fromkeys(map(str, names)) if name not in colours]
    return colours | {name: CUSTOM_COLOURS[number % len(CUSTOM_COLOURS)] for number, name in enumerate(custom)}


def plural(count: int, noun: str) -> str:
    """Returns a number and its noun, such as `1 message`, `1,200 messages` and `2 entities`."""
    return f"{count:,} {noun if count == 1 else f'{noun}s'.replace('tys', 'ties')}"


def shown(text: str) -> str:
    r"""Returns a text whose control characters are shown, not obeyed: an escape as `␛`, a C1 one as `\u009b`."""

    def picture(found: re.Match[str]) -> str:
        code = ord(found[0])
        if code < ord(" "):
            return chr(0x2400 + code)
        return "␡" if found[0] == "\x7f" else f"\\u{code:04x}"

    return _OBEYED.sub(picture, text)


def facts(report: "ContextReport") -> list[tuple[str, str]]:
    """Returns labels and their texts, in the order in which they are shown."""
    stable, counts = report.stability, report.coverage_counts()
    states = ", ".join(f"{counts[state]:,} {said}" for state, (said, _) in STATES.items() if counts[state])
    history = f"{report.history_strategy}: {plural(sum(counts.values()), 'message')}: {states}"
    cost = f"{stable.effective_tokens:,} effective tokens, {stable.whole_effective_tokens:,} for sending everything"
    if (turns := stable.turns_to_step) is not None and turns <= FAR_STEP:
        when = f"in about {plural(turns, 'turn')}" if turns else "next"
        cost += f"; {when} a step of about {stable.step_tokens:,}"
    zone = f"{stable.stable_zone_tokens:,} tokens in the stable zone"
    if stable.shared_tokens is None:
        zone += "; first prompt of this conversation"
    else:
        zone += f", {stable.stable_zone_share:.0%} of it as in the previous prompt"
        zone += f" ({stable.prompt_share:.0%} of the whole){', a compaction step' if stable.compaction_step else ''}"
    how = "exact" if report.count_mode == "exact" else "estimated, with a margin"
    corrected = report.uncorrected_tokens != report.total_tokens
    reserve = f"{report.output_reserve_tokens:,} tokens kept free for the answer"
    window = f"{report.window_tokens or 0:,} tokens ({report.window_detail or report.window_source}), {reserve}"
    written = [f"{plural(lines, 'line')} by {maker}" for maker, lines in report.summary_lines.items()]
    if report.summaries_waiting:
        written.append(f"{plural(report.summaries_waiting, 'span')} still to be written")
    by_model = report.summaries_waiting or set(report.summary_lines) - {"extraction"}
    steps = ", ".join(f"{name} {ms:.1f}" for name, ms in report.timings_ms.items())
    came_up = {*report.topics, *report.entities}.intersection(report.predicted)
    ready = [f"{hits} of {hits + report.cache_misses[layer]} in {layer}" for layer, hits in report.cache_hits.items()]
    found = [
        ("Topics", ", ".join(report.topics)),
        ("Entities", ", ".join(report.entities)),
        ("Predicted", f"{', '.join(report.predicted)}; {len(came_up)} came up" if report.predicted else ""),
        ("Ready", ", ".join(ready)),
        ("Settings", " < ".join(report.settings_from) if len(report.settings_from) > 1 else ""),
        ("Strategy", report.allocation_strategy),
        ("History", history if report.coverage else "no messages yet"),
        ("Stable", zone),
        ("Cost", cost),
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


def _usage(usage: "UsageState") -> str:
    money = "$" if usage.limit.endswith("cost") else ""
    used, allowed = (f"{money}{part:,.{2 if money else 0}f}" for part in (usage.used, usage.allowed))
    forced = f"; {', '.join(usage.forced)} forced" if usage.forced else ""
    return f"{usage.tier}: {usage.left:.0%} of {usage.limit} left ({used} of {allowed} used){forced}"


def explained(report: "ContextReport", what: str | int) -> list[str]:
    """Returns lines about a message or an item; none where the report does not know it."""
    lines: list[str] = []
    name = f"message {what}" if isinstance(what, int) else what
    for around in report.coverage:
        if isinstance(what, int) and around.first <= what <= around.last:
            span = f", as are messages {around.first}-{around.last}" if around.first < around.last else ""
            lines.append(f"{name} of {report.coverage[-1].last:,}: {STATES[around.state][0]}{span}")
            lines.append(f"  {STATE_MEANS[around.state]}")
    for layer in report.layers:
        for item in layer.items:
            if name in (item.id, *item.id.split(JOINED)):  # results are one item with their call
                would = "it would have cost " if item.status is Status.OMITTED else ""
                where = ", ".join(filter(None, (label_of(layer.layer), item.source, item.status)))
                lines.append(f"{item.id}: {where}, {would}{plural(item.tokens, 'token')}")
                lines.append(f"  {item.reason}: {item.reason.meaning}.")
                scores = sorted(item.scores.items(), key=lambda score: -abs(score[1]))
                parts = ", ".join(f"{part} {score:+.2f}" for part, score in scores if abs(score) >= LEAST_SCORE)
                lines += [f"  ranked by: {parts}"] if parts else []
                lines += [f'  "{item.preview}"'] if item.preview else []
    return list(map(shown, lines))


def render_html(report: "ContextReport") -> str:
    """Draws the same chart in colour, with all items behind a fold; preformatted, it is alike in every notebook."""
    label = plural(sum(len(layer.items) for layer in report.layers), "item")
    if further := sum(sum(layer.more_omitted.values()) for layer in report.layers):
        label += f" and {further:,} more that are left out"
    fold = f"<summary style='cursor:pointer'>{label}</summary>{''.join(_items(report))}"
    return f"<pre style='{_CARD}'>{render_chart(report, CARD_COLUMNS, _coloured)}\n<details>{fold}</details></pre>"


def render_chart(
    report: "ContextReport", width: int, draw: Callable[[str, str], str] = lambda text, _colour: text
) -> str:
    """Draws a bar chart with the facts below it; `draw` writes a text in a colour, or in none."""
    from rich.console import Console  # noqa: PLC0415 - when something is drawn
    from rich.text import Text  # noqa: PLC0415

    bar_width = max(MIN_BAR, min(MAX_BAR, width - LABEL - sum(NUMBERS)))
    breadth = LABEL + bar_width + sum(NUMBERS)
    budget = report.budget_tokens

    def line(label: str, bar: str, cells: Sequence[str], colour: str = "") -> str:
        numbers = "".join(f"{cell:>{room}}" for cell, room in zip(cells, NUMBERS, strict=True))
        pieces = (f"{_fitted(label, LABEL - 1)} ", ""), (bar or " " * bar_width, colour), (numbers.rstrip(), "")
        return "".join(draw(*piece) for piece in pieces)

    def row(name: str, tokens: int, colour: str, planned: str = "") -> str:
        label = label_of(name) if name in LAYER_COLOURS else f"   {name}"
        share = tokens / budget
        filled = max(0, min(bar_width, round(share * bar_width))) or int(tokens > 0)
        bar = FULL * filled + EMPTY * (bar_width - filled)
        return line(label, bar, (f"{tokens:,}", f"{share:.1%}", planned), colour)

    colours = colours_of(layer.layer for layer in report.layers)
    rows = [row(one.layer, one.used_tokens, colours[one.layer], f"{one.allocated_tokens:,}") for one in report.layers]
    rows += [row(name.capitalize(), n, OTHERS[OVERHEAD]) for name, n in report.overhead_tokens.items()]
    tokens = f"{budget:,} tokens"
    heading = _fitted(f"CONTEXT BUDGET{' (forecast)' if report.forecast else ''}", breadth - len(tokens) - 1)
    rule = "─" * breadth
    lines = [f"{heading} {tokens}", line("", "", ("used", "share", "planned")), rule, *rows, rule]
    free = line("   Free", "", (f"{budget - report.total_tokens:,}", "", ""))
    lines += [row("Total", report.total_tokens, ""), free, ""]
    for label, text in facts(report):
        wrapped = Text(shown(" ".join(text.split()))).wrap(Console(), breadth - FACT_INDENT)
        labels = [label, *[""] * len(wrapped)]
        said = (f"{label:<{FACT_INDENT}}{part.plain}" for label, part in zip(labels, wrapped, strict=False))
        lines += [draw(part.rstrip(), "") for part in said]
    return "\n".join(lines)


def _fitted(text: str, columns: int) -> str:
    from rich.text import Text  # noqa: PLC0415 - when something is drawn

    label = Text(shown(text))
    label.truncate(columns, overflow="ellipsis", pad=True)
    return label.plain


def _coloured(text: str, colour: str) -> str:
    mixed = f"color-mix(in srgb,{colour} 75%,currentColor)"  # darker on a light page, lighter on a dark one
    return f"<span style='color:{mixed}'>{escape(text)}</span>" if colour else escape(text)


def _items(report: "ContextReport") -> Iterator[str]:
    """Yields a line for every item, and for those of each reason that are only counted."""
    colours = colours_of(layer.layer for layer in report.layers)
    for layer in report.layers:
        mark = _coloured(FULL, colours[layer.layer]) + escape(_fitted(f" {layer.layer}", LABEL // 2))
        for item in layer.items:
            why = _fitted(", ".join(filter(None, (item.reason.replace("_", " "), item.source))), LABEL)
            cells = f"{item.status:<9}{why}{item.tokens:>7,}  {shown(item.preview)}"
            yield f"<div title='{escape(shown(item.id))}'>{mark}{escape(cells)}</div>"
        for reason, more in layer.more_omitted.items():
            yield f"<div>{mark}omitted  {more:,} more: {reason.replace('_', ' ')}</div>"
