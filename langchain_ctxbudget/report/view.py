"""A report as a text chart (seed 000), as a card for notebooks, and in words: the same numbers, words and colours."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from langchain_ctxbudget.budget import Layer, Status, title_of

if TYPE_CHECKING:
    from langchain_ctxbudget.report.report import ContextReport, CoverageState, LayerReport, Stability, UsageState

_COLOURS = ("#555555", "#A375E0", "#428A56", "#EBCD47", "#75CBF0", "#E8702A", "#1F4FA3", "#8A1212")
LAYER_COLOURS: Mapping[str, str] = dict(zip(map(str, Layer), _COLOURS, strict=True))
CUSTOM_COLOURS = ("#CC66A5", "#8BB85E", "#31145C")
"""For custom layers, in the order in which they are declared."""
OVERHEAD, FREE = "tools and framing", "free"
OTHERS = {OVERHEAD: "#C0C0C0", FREE: "#FFFFFF"}
STATES: dict[CoverageState, tuple[str, str]] = {
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
FACT_INDENT = 11
LEAST_SCORE = 0.005
_OBEYED = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")
"""Control characters, directions of writing, and halves of characters, which cannot be printed at all."""
_TRACK = "rgba(128,128,128,0.18)"
_LINE = "1px solid rgba(128,128,128,0.35)"
_CARD = "max-width:60em;overflow-x:auto;font-family:system-ui,sans-serif;font-size:13px;line-height:1.45;color:inherit"
_TABLE = "table-layout:auto;border-collapse:collapse;width:100%;margin:6px 0;color:inherit;font-size:inherit"
"""All of it is said here, because notebooks have styles for tables: JupyterLab makes columns of one width."""
_CELL = "padding:1px 8px 1px 0;border:none;text-align:left;vertical-align:top;white-space:nowrap"
_WORDS = f"{_CELL};white-space:normal;overflow-wrap:anywhere;width:100%"
_NUMBER = f"{_CELL};text-align:right;font-variant-numeric:tabular-nums"
_EDGE = "box-shadow:inset 0 0 0 1px rgba(128,128,128,0.6)"
_BAR = f"display:flex;height:0.8em;min-width:4em;margin-top:0.3em;background:{_TRACK};overflow:hidden"
_NAME = f"{_CELL};max-width:12em;overflow:hidden;text-overflow:ellipsis"
_FAINT = "opacity:0.7"


@dataclass(frozen=True, slots=True)
class Slice:
    """One row of a chart: a layer, overhead that no layer owns, or the total."""

    name: str
    label: str
    tokens: int
    share: float
    colour: str
    layer: LayerReport | None = None
    """None: no layer, and nothing was planned for it."""

    @property
    def cells(self) -> tuple[str, str, str]:
        """What stands below `used`, `share` and `planned`."""
        return f"{self.tokens:,}", f"{self.share:.1%}", f"{self.layer.allocated_tokens:,}" if self.layer else ""


def parts_of(report: ContextReport) -> list[Slice]:
    """Returns the parts of a prompt, layers first; the last one is their total."""
    colours = colours_of(layer.layer for layer in report.layers)
    found = [(one.layer, label_of(one.layer), one.used_tokens, colours[one.layer], one) for one in report.layers]
    overhead = [(name, name.capitalize(), n, OTHERS[OVERHEAD], None) for name, n in report.overhead_tokens.items()]
    return [
        Slice(name, label, tokens, tokens / report.budget_tokens, colour, layer)
        for name, label, tokens, colour, layer in (*found, *overhead, ("", "Total", report.total_tokens, "", None))
    ]


def label_of(layer: str) -> str:
    """Returns the name of a layer in charts; a custom layer is called by its own."""
    return f"{layer} {title_of(layer)}" if layer in LAYER_COLOURS else layer


def colours_of(names: Iterable[str]) -> dict[str, str]:
    """Returns the colour of every part, those of custom layers in the order in which they come."""
    colours = {**LAYER_COLOURS, **OTHERS}
    custom = [name for name in dict.fromkeys(map(str, names)) if name not in colours]
    return colours | {name: CUSTOM_COLOURS[number % len(CUSTOM_COLOURS)] for number, name in enumerate(custom)}


def states_in_words(counts: Mapping[CoverageState, int]) -> str:
    """Returns the number of messages in each state, without the empty ones."""
    return ", ".join(f"{counts[state]:,} {said}" for state, (said, _) in STATES.items() if counts.get(state))


def plural(count: int, noun: str) -> str:
    """Returns a number and its noun, such as `1 message` and `1,200 messages`."""
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


FAR_STEP = 20
"""A compaction step that is more turns away is not worth a word."""


def cost_in_words(stable: Stability) -> str:
    """Returns what a prompt costs against sending everything, and when the next step is due."""
    said = f"{stable.effective_tokens:,} effective tokens, {stable.whole_effective_tokens:,} for sending everything"
    if stable.turns_to_step is None or stable.turns_to_step > FAR_STEP:
        return said
    when = f"in about {plural(stable.turns_to_step, 'turn')}" if stable.turns_to_step else "next"
    return f"{said}; {when} a step of about {stable.step_tokens:,}"


def facts(report: ContextReport) -> list[tuple[str, str]]:
    """Returns labels and their texts, in the order in which they are shown."""
    stable, counts = report.stability, report.coverage_counts()
    history = f"{report.history_strategy}: {plural(sum(counts.values()), 'message')}: {states_in_words(counts)}"
    zone = f"{stable.stable_zone_tokens:,} tokens in the stable zone"
    if stable.shared_tokens is None:
        zone += "; first prompt of this conversation"
    else:
        share, step = f"{stable.stable_zone_share:.0%}", ", a compaction step" if stable.compaction_step else ""
        zone += f", {share} of it as in the previous prompt ({stable.prompt_share:.0%} of the whole){step}"
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
        ("History", history if report.coverage else "no messages yet"),
        ("Stable", zone),
        ("Cost", cost_in_words(stable)),
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
    money = "$" if usage.limit.endswith("cost") else ""
    used, allowed = (f"{money}{part:,.{2 if money else 0}f}" for part in (usage.used, usage.allowed))
    forced = f"; {', '.join(usage.forced)} forced" if usage.forced else ""
    return f"{usage.tier}: {usage.left:.0%} of {usage.limit} left ({used} of {allowed} used){forced}"


def explained(report: ContextReport, what: str | int) -> list[str]:
    """Returns lines about a message or an item; none where the report does not know it."""
    lines, name = list[str](), f"message {what}" if isinstance(what, int) else what
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


def render_text(report: ContextReport, width: int) -> str:
    """Draws a bar chart with the facts below it; `ContextReport.to_text` says how wide."""
    from rich.console import Console  # noqa: PLC0415 - when something is drawn
    from rich.text import Text  # noqa: PLC0415

    budget, parts = report.budget_tokens, parts_of(report)
    bar_width = max(MIN_BAR, min(MAX_BAR, width - LABEL - sum(NUMBERS)))
    breadth = LABEL + bar_width + sum(NUMBERS)

    def fitted(text: str, columns: int) -> str:
        label = Text(shown(text))
        label.truncate(columns, overflow="ellipsis", pad=True)
        return label.plain

    def line(label: str, bar: str, cells: Sequence[str]) -> str:
        numbers = "".join(f"{cell:>{room}}" for cell, room in zip(cells, NUMBERS, strict=True))
        return f"{fitted(label, LABEL - 1)} {bar or ' ' * bar_width}{numbers}".rstrip()

    def drawn(part: Slice) -> str:
        filled = max(0, min(bar_width, round(part.share * bar_width))) or int(part.tokens > 0)
        label = part.label if part.name in LAYER_COLOURS else f"   {part.label}"
        return line(label, FULL * filled + EMPTY * (bar_width - filled), part.cells)

    heading, tokens = f"CONTEXT BUDGET{' (forecast)' if report.forecast else ''}", f"{budget:,} tokens"
    rule, (*bars, total) = "─" * breadth, map(drawn, parts)
    top = f"{fitted(heading, breadth - len(tokens) - 1)} {tokens}", line("", "", ("used", "share", "planned"))
    lines = [*top, rule, *bars, rule, total, line("   Free", "", (f"{budget - report.total_tokens:,}", "", "")), ""]
    for label, text in facts(report):
        wrapped = Text(shown(" ".join(text.split()))).wrap(Console(), breadth - FACT_INDENT)
        labels = [label, *[""] * len(wrapped)]
        lines += [f"{label:<{FACT_INDENT}}{part.plain}".rstrip() for label, part in zip(labels, wrapped, strict=False)]
    return "\n".join(lines)


def render_html(report: ContextReport) -> str:
    """Draws a report: the whole budget as one bar, every layer, the facts, and all items behind a fold."""
    budget, total, parts = report.budget_tokens, report.total_tokens, parts_of(report)
    title = "Context budget (forecast)" if report.forecast else "Context budget"
    used = f" {total:,} of {budget:,} tokens ({total / budget:.1%}), {budget - total:,} free"
    sizes = [*((one.label, one.tokens, one.colour) for one in parts[:-1]), ("Free", budget - total, OTHERS[FREE])]
    whole = (_segment(size, colour, f"{name}: {size:,} tokens") for name, size, colour in sizes if size > 0)
    return _tag(
        "div",
        _tag("div", _tag("b", _text(title)), _text(used)),
        _tag("div", *whole, style=f"{_BAR};border:{_LINE}"),
        _layers(report, parts),
        _table((), (_fact(label, said) for label, said in facts(report))),
        _items(report, {part.name: part.colour for part in parts}),
        style=_CARD,
    )


def _tag(name: str, *inside: str, **attributes: str) -> str:
    written = "".join(f' {key}="{_text(value)}"' for key, value in attributes.items() if value)
    return f"<{name}{written}>{''.join(inside)}</{name}>"


def _text(text: str) -> str:
    return escape(shown(text))


def _table(titles: Sequence[tuple[str, str]], rows: Iterable[str]) -> str:
    heads = [_tag("th", _text(title), style=f"{style};font-weight:normal;{_FAINT}") for title, style in titles]
    head = _tag("thead", _tag("tr", *heads, style="background:none")) if heads else ""
    return _tag("table", head, _tag("tbody", *rows), style=_TABLE)


def _row(*cells: tuple[str, str], style: str = "", title: str = "") -> str:
    drawn = (_tag("td", inside, style=look) for look, inside in cells)
    return _tag("tr", *drawn, style=f"background:none;{style}", title=title)


def _segment(size: float, colour: str, title: str) -> str:
    """Returns a part of a bar; the thinnest can still be seen, and white is left to the notebook."""
    fill = "transparent" if colour == OTHERS[FREE] else colour
    return _tag("div", style=f"flex:{size:.6g} 1 0;min-width:1px;background:{fill};{_EDGE}", title=title)


def _layers(report: ContextReport, parts: Sequence[Slice]) -> str:
    scale = max(report.budget_tokens, *(layer.allocated_tokens for layer in report.layers))
    rows = []
    for part in parts:
        full = max(0, part.tokens)
        pale = part.layer.allocated_tokens - full if part.layer else 0
        bar = [
            _tag("div", style=f"width:{100 * size / scale:.3f}%;min-width:2px;background:{part.colour};{style}")
            for size, style in ((full, _EDGE), (pale, "opacity:0.28"))
            if size > 0 and part.colour
        ]
        drawn = _WORDS, _tag("div", *bar, style=_BAR if part.name else "")
        numbers = ((_NUMBER, cell) for cell in part.cells)
        rows.append(_row((_NAME, _text(part.label)), drawn, *numbers, style="" if part.name else "font-weight:bold"))
    titles = ("layer", _CELL), ("", _WORDS), ("used", _NUMBER), ("share", _NUMBER), ("planned", _NUMBER)
    return _table(titles, rows)


def _fact(label: str, said: str) -> str:
    return _row((f"{_CELL};{_FAINT}", _text(label)), (_WORDS, _text(said)))


def _items(report: ContextReport, colours: Mapping[str, str]) -> str:
    rows, count, further = [], 0, 0
    for layer in report.layers:
        mark = f"{_NAME};border-left:4px solid {colours[layer.layer]};padding-left:6px", _text(layer.layer)
        for item in layer.items:
            why = ", ".join(filter(None, (item.reason.replace("_", " "), item.source)))
            cells = (_CELL, _text(item.status)), (_CELL, _text(why)), (_NUMBER, f"{item.tokens:,}")
            faint = _FAINT if item.status is Status.OMITTED else ""
            rows.append(_row(mark, *cells, (_WORDS, _text(item.preview)), style=faint, title=item.id))
        for reason, more in layer.more_omitted.items():
            rows.append(
                _row(mark, (_CELL, "omitted"), (_CELL, f"{more:,} more: {reason.replace('_', ' ')}"), style=_FAINT)
            )
            further += more
        count += len(layer.items)
    titles = ("layer", _CELL), ("", _CELL), ("why", _CELL), ("tokens", _NUMBER), ("", _WORDS)
    label = f"{plural(count, 'item')}{f' and {further:,} more that are left out' if further else ''}"
    return _tag("details", _tag("summary", _text(label), style="cursor:pointer"), _table(titles, rows))
