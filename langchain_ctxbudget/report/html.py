"""A report as a card for notebooks: no scripts, styles in the elements only, everything that was said escaped.

Colours of texts and backgrounds are the notebook's own, so that it is readable in light and in dark ones. The numbers
stand in `data-` attributes, too, for whoever reads the card with a program.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

from langchain_ctxbudget.report.palette import (
    FREE,
    LAYER_COLOURS,
    OTHERS,
    OVERHEAD,
    STATES,
    TIER_COLOURS,
    colours_of,
    label_of,
    share_of_budget,
    states_in_words,
)
from langchain_ctxbudget.report.wording import facts, plural, shown

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


def render_html(report: Mapping[str, Any]) -> str:
    """Draws a report.

    Args:
        report: the data of a report, from `ContextReport.to_dict`.
    """
    budget, total = report["budget_tokens"], report["total_tokens"]
    colours = colours_of(layer["layer"] for layer in report["layers"])
    title = "Context budget (forecast)" if report["forecast"] else "Context budget"
    used = f" {total:,} of {budget:,} tokens ({share_of_budget(total, budget):.1%}), {budget - total:,} free"
    return _tag(
        "div",
        _tag("div", _tag("b", _text(title)), _text(used)),
        _whole(report, colours),
        _layers(report, colours),
        _facts(report),
        _items(report, colours),
        style=_CARD,
        data_ctxbudget_report=report["schema_version"],
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


def _whole(report: Mapping[str, Any], colours: Mapping[str, str]) -> str:
    """Draws all of the budget as one bar."""
    parts = [(label_of(part["layer"]), part["used_tokens"], colours[part["layer"]]) for part in report["layers"]]
    parts += [(name.capitalize(), tokens, colours[OVERHEAD]) for name, tokens in report["overhead_tokens"].items()]
    parts += [("Free", report["budget_tokens"] - report["total_tokens"], colours[FREE])]
    drawn = [_part(n, colour, title=f"{name}: {n:,} tokens") for name, n, colour in parts if n > 0]
    return _tag("div", *drawn, style=f"{_BAR};border:{_LINE}")


def _layers(report: Mapping[str, Any], colours: Mapping[str, str]) -> str:
    budget, total = report["budget_tokens"], report["total_tokens"]
    scale = max([1, budget, *(layer["allocated_tokens"] for layer in report["layers"])])

    def number_row(
        label: str, tokens: int, bar: str = "", planned: str = "", style: str = "", **attributes: object
    ) -> str:
        share = f"{share_of_budget(tokens, budget):.1%}"
        numbers = [(_NUMBER, cell) for cell in (f"{tokens:,}", share, planned)]
        return _row([(f"{_CELL};{_SHORT}", _text(label)), (_WORDS, bar), *numbers], style, **attributes)

    rows = [
        number_row(
            label_of(layer["layer"]),
            used := layer["used_tokens"],
            _planned_bar(used, layer["allocated_tokens"], scale, colours[layer["layer"]]),
            f"{layer['allocated_tokens']:,}",
            data_layer=layer["layer"],
            data_used_tokens=used,
            data_allocated_tokens=layer["allocated_tokens"],
            data_layer_overhead_tokens=layer["overhead_tokens"],
        )
        for layer in report["layers"]
    ]
    for name, tokens in report["overhead_tokens"].items():
        bar = _planned_bar(tokens, 0, scale, colours[OVERHEAD])
        rows.append(number_row(name.capitalize(), tokens, bar, data_overhead=name, data_used_tokens=tokens))
    rows.append(number_row("Total", total, style="font-weight:bold", data_total=total))
    titles = ("layer", _CELL), ("", _WORDS), ("used", _NUMBER), ("share", _NUMBER), ("planned", _NUMBER)
    return _table("layers", titles, rows)


def _planned_bar(used: int, planned: int, scale: int, colour: str) -> str:
    """Draws used tokens (full) of planned ones (pale)."""
    full = max(0, used)
    sizes = [(full, f"background:{colour};{_EDGE}"), (planned - full, f"background:{colour};opacity:0.28")]
    drawn = [
        _tag("div", style=f"width:{100 * size / scale:.3f}%;min-width:2px;{style}") for size, style in sizes if size > 0
    ]
    return _tag("div", *drawn, style=_BAR)


def _facts(report: Mapping[str, Any]) -> str:
    rows = []
    for label, said in facts(report):
        strip = _strip(report["coverage"]) if label == "History" and report["coverage"] else ""
        mark = ""
        if label == "Usage":
            square = "display:inline-block;width:0.7em;height:0.7em;margin-right:0.4em"
            mark = _tag("span", style=f"{square};background:{TIER_COLOURS[report['usage']['tier']]}")
        rows.append(_row([(f"{_CELL};{_FAINT}", _text(label)), (_WORDS, mark + _text(said) + strip)], data_fact=label))
    return _table("facts", (), rows)


def _strip(coverage: Sequence[Mapping[str, Any]]) -> str:
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


def _cells(coverage: Sequence[Mapping[str, Any]]) -> Iterator[tuple[int, int, Counter[str]]]:
    """Yields ranges of messages, with the number of messages in each state."""
    ranges = [(part["first"], part["last"], part["state"]) for part in coverage]
    if len(ranges) <= MOST_CELLS:
        yield from ((first, last, Counter({state: last - first + 1})) for first, last, state in ranges)
        return
    total, place = ranges[-1][1], 0
    for number in range(MOST_CELLS):
        begin, end = round(total * number / MOST_CELLS), round(total * (number + 1) / MOST_CELLS)
        counts: Counter[str] = Counter()
        while place < len(ranges):
            first, last, state = ranges[place]
            counts[state] += max(0, min(last, end) - max(first, begin + 1) + 1)
            if last > end:
                break
            place += 1
        yield begin + 1, end, +counts


def _items(report: Mapping[str, Any], colours: Mapping[str, str]) -> str:
    count = sum(len(layer["items"]) for layer in report["layers"])
    more = sum(sum(layer["more_omitted"].values()) for layer in report["layers"])
    rows = [row for layer in report["layers"] for row in _item_rows(layer, colours[layer["layer"]])]
    titles = ("layer", _CELL), ("", _CELL), ("why", _CELL), ("tokens", _NUMBER), ("", _WORDS)
    label = f"{plural(count, 'item')}{f' and {more:,} more that are left out' if more else ''}"
    return _tag("details", _tag("summary", _text(label), style="cursor:pointer"), _table("items", titles, rows))


def _item_rows(layer: Mapping[str, Any], colour: str) -> Iterator[str]:
    name = layer["layer"] if layer["layer"] in LAYER_COLOURS else layer["title"]
    mark = (f"{_CELL};{_SHORT};border-left:4px solid {colour};padding-left:6px", _text(name))
    for item in layer["items"]:
        why = ", ".join(filter(None, (item["reason"].replace("_", " "), item.get("source", ""))))
        texts = [(_CELL, _text(item["status"])), (_CELL, _text(why)), (_NUMBER, f"{item['tokens']:,}")]
        yield _row(
            [mark, *texts, (_WORDS, _text(item["preview"]))],
            _FAINT if item["status"] == "omitted" else "",
            title=item["id"],
            data_item=item["id"],
            data_item_layer=layer["layer"],
            data_status=item["status"],
            data_reason=item["reason"],
            data_tokens=item["tokens"],
        )
    for reason, count in layer["more_omitted"].items():
        words = _text(f"{count:,} more: {reason.replace('_', ' ')}")
        cells = [mark, (_CELL, "omitted"), (_CELL, words)]
        yield _row(cells, _FAINT, data_more=count, data_item_layer=layer["layer"])
