"""A report as a card for notebooks: no scripts, styles in the elements only, everything that was said escaped.

Colours of texts and backgrounds are the notebook's own, so that it is readable in light and in dark ones. The numbers
stand in `data-` attributes, too, for whoever reads the card with a program.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from html import escape
from typing import TYPE_CHECKING

from langchain_ctxbudget.budget import Status
from langchain_ctxbudget.report.view import (
    FREE,
    LAYER_COLOURS,
    OTHERS,
    STATES,
    TIER_COLOURS,
    Part,
    facts,
    parts_of,
    plural,
    shown,
    states_in_words,
)

if TYPE_CHECKING:
    from langchain_ctxbudget.report.report import ContextReport, CoverageRange, CoverageState, LayerReport

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
        _facts(report),
        _items(report, {part.name: part.colour for part in parts}),
        style=_CARD,
        data_ctxbudget_report=report.schema_version,
        data_budget_tokens=budget,
        data_total_tokens=total,
    )


def render_lines(title: str, lines: Sequence[str]) -> str:
    """Draws a few lines of text below a title; those that begin with spaces belong to the one before."""
    drawn = (
        _tag("div", _text(line.strip()), style="margin-left:1.5em" if line.startswith(" ") else "") for line in lines
    )
    return _tag("div", _tag("b", _text(title)), *drawn, style=_CARD)


def _tag(name: str, *inside: str, style: str = "", **attributes: object) -> str:
    """Returns an element; the values of its attributes are escaped, its content is HTML."""
    given = {"style": style, **attributes} if style else attributes
    written = "".join(f' {key.replace("_", "-")}="{_text(str(value))}"' for key, value in given.items())
    return f"<{name}{written}>{''.join(inside)}</{name}>"


def _text(text: str) -> str:
    return escape(shown(text))


def _table(part: str, titles: Sequence[tuple[str, str]], rows: Sequence[str]) -> str:
    heads = [_tag("th", _text(title), style=f"{style};font-weight:normal;{_FAINT}") for title, style in titles]
    head = _tag("thead", _tag("tr", *heads, style=_ROW)) if heads else ""
    return _tag("table", head, _tag("tbody", *rows), style=_TABLE, data_part=part)


def _row(cells: Sequence[tuple[str, str]], style: str = "", **attributes: object) -> str:
    """Returns a row of cells, each as style and HTML."""
    drawn = (_tag("td", inside, style=look) for look, inside in cells)
    return _tag("tr", *drawn, style=f"{_ROW};{style}" if style else _ROW, **attributes)


def _part(size: float, colour: str, **attributes: object) -> str:
    """Returns a part of a bar; the thinnest can still be seen, and white is left to the notebook."""
    fill = "transparent" if colour == OTHERS[FREE] else colour
    return _tag("div", style=f"flex:{size:.6g} 1 0;min-width:1px;background:{fill};{_EDGE}", **attributes)


def _layers(report: ContextReport, parts: Sequence[Part]) -> str:
    scale = max(report.budget_tokens, *(part.planned or 0 for part in parts))

    def row(part: Part, bar: str, style: str = "", **attributes: object) -> str:
        planned = "" if part.planned is None else f"{part.planned:,}"
        numbers = [(_NUMBER, cell) for cell in (f"{part.tokens:,}", f"{part.share:.1%}", planned)]
        return _row([(f"{_CELL};{_SHORT}", _text(part.label)), (_WORDS, bar), *numbers], style, **attributes)

    rows = [
        row(
            part,
            _planned_bar(part, scale),
            data_layer=layer.layer,
            data_used_tokens=part.tokens,
            data_allocated_tokens=layer.allocated_tokens,
            data_layer_overhead_tokens=layer.overhead_tokens,
        )
        for part, layer in zip(parts, report.layers, strict=False)
    ]
    rows += [
        row(part, _planned_bar(part, scale), data_overhead=part.name, data_used_tokens=part.tokens)
        for part in parts[len(rows) :]
    ]
    total = Part("", "Total", report.total_tokens, report.total_tokens / report.budget_tokens, "")
    rows.append(row(total, "", "font-weight:bold", data_total=total.tokens))
    titles = ("layer", _CELL), ("", _WORDS), ("used", _NUMBER), ("share", _NUMBER), ("planned", _NUMBER)
    return _table("layers", titles, rows)


def _planned_bar(part: Part, scale: int) -> str:
    """Draws used tokens (full) of planned ones (pale)."""
    full = max(0, part.tokens)
    sizes = [(full, _EDGE), ((part.planned or 0) - full, "opacity:0.28")]
    drawn = [
        _tag("div", style=f"width:{100 * size / scale:.3f}%;min-width:2px;background:{part.colour};{style}")
        for size, style in sizes
        if size > 0
    ]
    return _tag("div", *drawn, style=_BAR)


def _facts(report: ContextReport) -> str:
    rows = []
    for label, said in facts(report):
        strip = _strip(report.coverage) if label == "History" and report.coverage else ""
        mark = ""
        if label == "Usage" and report.usage:
            square = "display:inline-block;width:0.7em;height:0.7em;margin-right:0.4em"
            mark = _tag("span", style=f"{square};background:{TIER_COLOURS[report.usage.tier]}")
        rows.append(_row([(f"{_CELL};{_FAINT}", _text(label)), (_WORDS, mark + _text(said) + strip)], data_fact=label))
    return _table("facts", (), rows)


def _strip(coverage: Sequence[CoverageRange]) -> str:
    """Draws the history from its first message to its last, by their states."""
    cells = []
    for first, last, counts in _cells(coverage):
        [(state, _)] = counts.most_common(1)
        span = f"message {first:,}" if first == last else f"messages {first:,}-{last:,}"
        said = STATES[state][0] if len(counts) == 1 else states_in_words(counts)
        numbers = {f"data_{name}": count for name, count in counts.items()}
        size, title = last - first + 1, f"{span}: {said}"
        cells.append(_part(size, STATES[state][1], title=title, data_first=first, data_last=last, **numbers))
    return _tag("div", *cells, style=f"{_BAR};height:0.6em;border:{_LINE}", data_part="history")


def _cells(coverage: Sequence[CoverageRange]) -> Iterator[tuple[int, int, Counter[CoverageState]]]:
    """Yields ranges of messages, with the number of messages in each state."""
    if len(coverage) <= MOST_CELLS:
        yield from ((part.first, part.last, Counter({part.state: part.last - part.first + 1})) for part in coverage)
        return
    total, place = coverage[-1].last, 0
    for number in range(MOST_CELLS):
        begin, end = round(total * number / MOST_CELLS), round(total * (number + 1) / MOST_CELLS)
        counts: Counter[CoverageState] = Counter()
        while place < len(coverage):
            part = coverage[place]
            counts[part.state] += max(0, min(part.last, end) - max(part.first, begin + 1) + 1)
            if part.last > end:
                break
            place += 1
        yield begin + 1, end, +counts


def _items(report: ContextReport, colours: dict[str, str]) -> str:
    count = sum(len(layer.items) for layer in report.layers)
    more = sum(sum(layer.more_omitted.values()) for layer in report.layers)
    rows = [row for layer in report.layers for row in _item_rows(layer, colours[layer.layer])]
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
            _FAINT if item.status is Status.OMITTED else "",
            title=item.id,
            data_item=item.id,
            data_item_layer=layer.layer,
            data_status=item.status,
            data_reason=item.reason,
            data_tokens=item.tokens,
        )
    for reason, count in layer.more_omitted.items():
        words = _text(f"{count:,} more: {reason.replace('_', ' ')}")
        yield _row([mark, (_CELL, "omitted"), (_CELL, words)], _FAINT, data_more=count, data_item_layer=layer.layer)
