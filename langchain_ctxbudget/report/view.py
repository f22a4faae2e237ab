"""A report as a text chart (seed 000) and as a card for notebooks: the same numbers, words and colours.

The card has no scripts, styles in its elements only, and everything that was said escaped. Colours of texts and
backgrounds are the notebook's own, so that it is readable in light and in dark ones. The numbers stand in `data-`
attributes, too, for whoever reads the card with a program.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from math import ceil
from typing import TYPE_CHECKING

from langchain_ctxbudget.budget import TIERS, Layer, Status, title_of

if TYPE_CHECKING:
    from langchain_ctxbudget.report.report import ContextReport, CoverageRange, CoverageState, LayerReport, UsageState

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
MOST_CELLS = 200
"""Ranges of messages that the strip shows one by one; more of them are drawn in so many cells of equal length."""
_TRACK = "rgba(128,128,128,0.18)"
_LINE = "1px solid rgba(128,128,128,0.35)"
_CARD = "max-width:60em;overflow-x:auto;font-family:system-ui,sans-serif;font-size:13px;line-height:1.45;color:inherit"
_TABLE = "table-layout:auto;border-collapse:collapse;width:100%;margin:6px 0;color:inherit;font-size:inherit"
"""All of it is said here, because notebooks have styles for tables: JupyterLab makes columns of one width."""
_ROW = "background:none"
_CELL = "padding:1px 8px 1px 0;border:none;text-align:left;vertical-align:top;white-space:nowrap"
_WORDS = f"{_CELL};white-space:normal;overflow-wrap:anywhere;width:100%"
_NUMBER = f"{_CELL};text-align:right;font-variant-numeric:tabular-nums"
_EDGE = "box-shadow:inset 0 0 0 1px rgba(128,128,128,0.6)"
_BAR = f"display:flex;height:0.8em;min-width:4em;margin-top:0.3em;background:{_TRACK};overflow:hidden"
_SHORT = "max-width:12em;overflow:hidden;text-overflow:ellipsis"
_FAINT = "opacity:0.7"


@dataclass(frozen=True, slots=True)
class Part:
    """One row of a chart: a layer, or overhead that no layer owns."""

    name: str
    label: str
    tokens: int
    share: float
    colour: str
    layer: LayerReport | None = None
    """None: overhead."""

    @property
    def planned(self) -> str:
        """The planned tokens in words; nothing is planned for overhead."""
        return f"{self.layer.allocated_tokens:,}" if self.layer else ""


def parts_of(report: ContextReport) -> list[Part]:
    """Returns the parts of a prompt, layers first; their tokens add up to its total."""
    budget, colours = report.budget_tokens, colours_of(layer.layer for layer in report.layers)
    layers = (
        Part(one.layer, label_of(one.layer), one.used_tokens, one.used_tokens / budget, colours[one.layer], one)
        for one in report.layers
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
    parts = [*parts_of(report), Part("", "Total", total, total / budget, "")]
    from rich.console import Console  # noqa: PLC0415 - when something is drawn
    from rich.text import Text  # noqa: PLC0415

    rows = [(f"{part.tokens:,}", f"{part.share:.1%}", part.planned) for part in parts]
    free = (f"{budget - total:,}", "", "")
    label_width, bar_width, widths = _columns([*rows, free], width)

    def line(label: str, bar: str, cells: Sequence[str]) -> str:
        numbers = "".join(f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=True) if width)
        return f"{_fitted(shown(label), label_width - 1)} {bar or ' ' * bar_width}{numbers}".rstrip()

    def drawn(part: Part, cells: Sequence[str]) -> str:
        filled = max(0, min(bar_width, round(part.share * bar_width))) or int(part.tokens > 0)
        full = _painted(FULL * filled, part.colour) if colour and part.colour else FULL * filled
        label = part.label if part.name in LAYER_COLOURS else f"   {part.label}"
        return line(label, full + EMPTY * (bar_width - filled), cells)

    breadth = label_width + bar_width + sum(widths)
    heading, tokens = f"CONTEXT BUDGET{' (forecast)' if report.forecast else ''}", f"{budget:,} tokens"
    rule = "─" * breadth
    *bars, last = map(drawn, parts, rows)
    top = f"{_fitted(heading, max(1, breadth - len(tokens) - 1))} {tokens}", line("", "", ("used", "share", "planned"))
    lines = [*top, rule, *bars, rule, last, line("   Free", "", free), ""]
    alarms = ALARMS | ({"Usage": TIER_COLOURS[report.usage.tier]} if report.usage else {})
    for label, text in facts(report):
        name = _painted(label, alarms[label]) if colour and label in alarms else label
        first, *rest = Text(shown(" ".join(text.split()))).wrap(Console(), breadth - FACT_INDENT) or [Text()]
        lines.append(f"{name}{' ' * (FACT_INDENT - len(label))}{first.plain}".rstrip())
        lines += [f"{' ' * FACT_INDENT}{more.plain.rstrip()}" for more in rest]
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
    from rich.text import Text  # noqa: PLC0415 - when something is drawn

    fitted = Text(text)
    fitted.truncate(columns, overflow="ellipsis", pad=True)
    return fitted.plain


def _painted(text: str, colour: str) -> str:
    """Returns a text in the nearest colour of a terminal's 256."""
    from rich.color import ColorSystem  # noqa: PLC0415 - when something is drawn
    from rich.style import Style  # noqa: PLC0415

    return Style(color=colour).render(text, color_system=ColorSystem.EIGHT_BIT)


def render_html(report: ContextReport) -> str:
    """Draws a report: the whole budget as one bar, every layer, the facts, and all items behind a fold."""
    budget, total, parts = report.budget_tokens, report.total_tokens, parts_of(report)
    title = "Context budget (forecast)" if report.forecast else "Context budget"
    used = f" {total:,} of {budget:,} tokens ({total / budget:.1%}), {budget - total:,} free"
    sizes = [(part.label, part.tokens, part.colour) for part in parts] + [("Free", budget - total, OTHERS[FREE])]
    whole = (_part(size, colour, title=f"{name}: {size:,} tokens") for name, size, colour in sizes if size > 0)
    return _tag(
        "div",
        _tag("div", _tag("b", _text(title)), _text(used)),
        _tag("div", *whole, style=f"{_BAR};border:{_LINE}"),
        _layers(report, parts),
        _table("facts", (), (_fact(report, label, said) for label, said in facts(report))),
        _items(report, {part.name: part.colour for part in parts}),
        style=_CARD,
        data_ctxbudget_report=report.schema_version,
        data_budget_tokens=budget,
        data_total_tokens=total,
    )


def render_lines(title: str, lines: Sequence[str]) -> str:
    """Draws a few lines of text below a title; those that begin with spaces belong to the one before."""
    drawn = (_tag("div", _text(line.strip()), style="margin-left:1.5em" * line.startswith(" ")) for line in lines)
    return _tag("div", _tag("b", _text(title)), *drawn, style=_CARD)


def _tag(name: str, *inside: str, **attributes: object) -> str:
    """Returns an element; the values of its attributes are escaped, its content is HTML."""
    given = ((key.replace("_", "-"), _text(str(value))) for key, value in attributes.items() if value != "")
    written = "".join(f' {key}="{value}"' for key, value in given)
    return f"<{name}{written}>{''.join(inside)}</{name}>"


def _text(text: str) -> str:
    return escape(shown(text))


def _table(part: str, titles: Sequence[tuple[str, str]], rows: Iterable[str]) -> str:
    heads = [_tag("th", _text(title), style=f"{style};font-weight:normal;{_FAINT}") for title, style in titles]
    head = _tag("thead", _tag("tr", *heads, style=_ROW)) if heads else ""
    return _tag("table", head, _tag("tbody", *rows), style=_TABLE, data_part=part)


def _row(cells: Iterable[tuple[str, str]], style: str = "", **attributes: object) -> str:
    """Returns a row of cells, each as style and HTML."""
    return _tag("tr", *(_tag("td", inside, style=look) for look, inside in cells), style=_ROW + style, **attributes)


def _part(size: float, colour: str, **attributes: object) -> str:
    """Returns a part of a bar; the thinnest can still be seen, and white is left to the notebook."""
    fill = "transparent" if colour == OTHERS[FREE] else colour
    return _tag("div", style=f"flex:{size:.6g} 1 0;min-width:1px;background:{fill};{_EDGE}", **attributes)


def _layers(report: ContextReport, parts: Sequence[Part]) -> str:
    scale = max(report.budget_tokens, *(layer.allocated_tokens for layer in report.layers))

    def bar(part: Part) -> str:
        """Draws used tokens (full) of planned ones (pale)."""
        full = max(0, part.tokens)
        pale = part.layer.allocated_tokens - full if part.layer else 0
        drawn = (
            _tag("div", style=f"width:{100 * size / scale:.3f}%;min-width:2px;background:{part.colour};{style}")
            for size, style in ((full, _EDGE), (pale, "opacity:0.28"))
            if size > 0
        )
        return _tag("div", *drawn, style=_BAR)

    def row(part: Part, drawn: str, style: str, **attributes: object) -> str:
        numbers = ((_NUMBER, cell) for cell in (f"{part.tokens:,}", f"{part.share:.1%}", part.planned))
        return _row([(f"{_CELL};{_SHORT}", _text(part.label)), (_WORDS, drawn), *numbers], style, **attributes)

    rows = []
    for part in parts:
        kind: dict[str, object] = {"data_layer" if part.layer else "data_overhead": part.name}
        if part.layer:
            kind["data_layer_overhead_tokens"] = part.layer.overhead_tokens
        rows.append(row(part, bar(part), "", data_used_tokens=part.tokens, **kind))
    total = Part("", "Total", report.total_tokens, report.total_tokens / report.budget_tokens, "")
    rows.append(row(total, "", ";font-weight:bold", data_total=total.tokens))
    titles = ("layer", _CELL), ("", _WORDS), ("used", _NUMBER), ("share", _NUMBER), ("planned", _NUMBER)
    return _table("layers", titles, rows)


def _fact(report: ContextReport, label: str, said: str) -> str:
    drawn = _text(said)
    if label == "History" and report.coverage:
        drawn += _strip(report.coverage)
    if label == "Usage" and report.usage:
        square = "display:inline-block;width:0.7em;height:0.7em;margin-right:0.4em"
        drawn = _tag("span", style=f"{square};background:{TIER_COLOURS[report.usage.tier]}") + drawn
    return _row([(f"{_CELL};{_FAINT}", _text(label)), (_WORDS, drawn)], data_fact=label)


def _strip(coverage: Sequence[CoverageRange]) -> str:
    """Draws the history from its first message to its last, by their states; many ranges share a cell."""
    cells, step = [], ceil(len(coverage) / MOST_CELLS)
    for start in range(0, len(coverage), step):
        parts = coverage[start : start + step]
        first, last = parts[0].first, parts[-1].last
        counts: Counter[CoverageState] = Counter()
        for part in parts:
            counts[part.state] += part.last - part.first + 1
        [(state, _)] = counts.most_common(1)
        span = f"message {first:,}" if first == last else f"messages {first:,}-{last:,}"
        title = f"{span}: {STATES[state][0] if len(counts) == 1 else states_in_words(counts)}"
        numbers = {f"data_{name}": count for name, count in counts.items()}
        cells.append(_part(last - first + 1, STATES[state][1], title=title, data_first=first, **numbers))
    return _tag("div", *cells, style=f"{_BAR};height:0.6em;border:{_LINE}", data_part="history")


def _items(report: ContextReport, colours: Mapping[str, str]) -> str:
    count = sum(len(layer.items) for layer in report.layers)
    more = sum(sum(layer.more_omitted.values()) for layer in report.layers)
    rows = (row for layer in report.layers for row in _item_rows(layer, colours[layer.layer]))
    titles = ("layer", _CELL), ("", _CELL), ("why", _CELL), ("tokens", _NUMBER), ("", _WORDS)
    label = f"{plural(count, 'item')}{f' and {more:,} more that are left out' if more else ''}"
    return _tag("details", _tag("summary", _text(label), style="cursor:pointer"), _table("items", titles, rows))


def _item_rows(layer: LayerReport, colour: str) -> Iterator[str]:
    name = layer.layer if layer.layer in LAYER_COLOURS else layer.title
    mark = (f"{_CELL};{_SHORT};border-left:4px solid {colour};padding-left:6px", _text(name))
    for item in layer.items:
        why = ", ".join(filter(None, (item.reason.replace("_", " "), item.source)))
        texts = [(_CELL, _text(item.status)), (_CELL, _text(why)), (_NUMBER, f"{item.tokens:,}")]
        yield _row(
            [mark, *texts, (_WORDS, _text(item.preview))],
            f";{_FAINT}" * (item.status is Status.OMITTED),
            title=item.id,
            data_item_layer=layer.layer,
            data_status=item.status,
            data_tokens=item.tokens,
        )
    for reason, count in layer.more_omitted.items():
        words = _text(f"{count:,} more: {reason.replace('_', ' ')}")
        yield _row([mark, (_CELL, "omitted"), (_CELL, words)], f";{_FAINT}", data_more=count)
