"""A report as a card for notebooks: no scripts, styles in the elements only, everything that was said escaped.

Colours of texts and backgrounds are the notebook's own, so that it is readable in light and in dark ones. The numbers
stand in `data-` attributes, too, for whoever reads the card with a program.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from itertools import pairwise
from typing import Any

from langchain_ctxbudget.reporting.facts import facts, plural
from langchain_ctxbudget.reporting.parts import (
    FREE,
    LAYERS,
    OTHERS,
    OVERHEAD,
    STATES,
    colours_of,
    share_of,
    states_in_words,
)
from langchain_ctxbudget.reporting.screen import shown

MOST_CELLS = 200
"""Ranges of messages that the strip shows one by one; more of them are drawn in so many cells of equal length."""
_TRACK = "rgba(128,128,128,0.18)"
_LINE = "1px solid rgba(128,128,128,0.35)"
_CARD = "max-width:60em;overflow-x:auto;font-family:system-ui,sans-serif;font-size:13px;line-height:1.45;color:inherit"
_TABLE = "border-collapse:collapse;width:100%;margin:6px 0;color:inherit;font-size:inherit"
_ROW = "background:none"
_CELL = "padding:1px 8px 1px 0;border:none;text-align:left;vertical-align:top;white-space:nowrap"
_WORDS = f"{_CELL};white-space:normal;overflow-wrap:anywhere;width:100%"
_NUMBER = f"{_CELL};text-align:right;font-variant-numeric:tabular-nums"
_EDGE = "box-shadow:inset 0 0 0 1px rgba(128,128,128,0.6)"
_BAR = f"display:flex;height:0.8em;min-width:4em;margin-top:0.3em;background:{_TRACK};overflow:hidden"
_SHORT = "max-width:12em;overflow:hidden;text-overflow:ellipsis"
_FAINT = "opacity:0.7"
_TIERS = {"healthy": "#2E8B57", "caution": "#B8A000", "warning": "#D78700", "critical": "#C62828"}


def render_html(report: Mapping[str, Any]) -> str:
    """Draw a report.

    Args:
        report: what `ContextReport.to_dict` gives.
    """
    budget, total = report["budget_tokens"], report["total_tokens"]
    title = "Context budget (forecast)" if report["forecast"] else "Context budget"
    used = f" {total:,} of {budget:,} tokens ({share_of(total, budget):.1%}), {budget - total:,} free"
    return _tag(
        "div",
        _tag("div", _tag("b", _text(title)), _text(used)),
        _whole(report),
        _layers(report),
        _facts(report),
        _items(report),
        style=_CARD,
        data_ctxbudget_report=report["schema_version"],
        data_budget_tokens=budget,
        data_total_tokens=total,
    )


def render_lines(title: str, lines: Sequence[str]) -> str:
    """A few lines of text below a title.

    Args:
        title: what they are about.
        lines: those that begin with spaces belong to the one before.
    """
    drawn = (
        _tag("div", _text(line.strip()), style="margin-left:1.5em" if line.startswith(" ") else "") for line in lines
    )
    return _tag("div", _tag("b", _text(title)), *drawn, style=_CARD)


def _tag(name: str, *inside: str, style: str = "", **attributes: object) -> str:
    """An element; the values of its attributes are escaped, what is inside is HTML."""
    given = {"style": style, **attributes} if style else attributes
    written = "".join(f' {key.replace("_", "-")}="{_text(str(value))}"' for key, value in given.items())
    return f"<{name}{written}>{''.join(inside)}</{name}>"


def _text(text: str) -> str:
    return escape(shown(text))


def _colour(name: str, colours: Mapping[str, str]) -> str:
    """White is what the notebook shows: nothing."""
    return "transparent" if colours[name] == OTHERS[FREE] else colours[name]


def _part(size: float, colour: str, **attributes: object) -> str:
    """A part of a bar; the thinnest can still be seen."""
    return _tag("div", style=f"flex:{size:.6g} 1 0;min-width:1px;background:{colour};{_EDGE}", **attributes)


def _whole(report: Mapping[str, Any]) -> str:
    """All of the budget as one bar."""
    colours = _colours(report)
    parts = [(_title(layer), layer["used_tokens"], colours[layer["layer"]]) for layer in report["layers"]]
    parts += [(name.capitalize(), tokens, colours[OVERHEAD]) for name, tokens in report["overhead_tokens"].items()]
    parts += [("Free", report["budget_tokens"] - report["total_tokens"], "transparent")]
    drawn = [_part(n, colour, title=f"{name}: {n:,} tokens") for name, n, colour in parts if n > 0]
    return _tag("div", *drawn, style=f"{_BAR};border:{_LINE}")


def _colours(report: Mapping[str, Any]) -> dict[str, str]:
    return colours_of(layer["layer"] for layer in report["layers"])


def _title(layer: Mapping[str, Any]) -> str:
    return layer["title"] if layer["layer"] == layer["title"] else f"{layer['layer']} {layer['title']}"


def _layers(report: Mapping[str, Any]) -> str:
    budget, colours = report["budget_tokens"], _colours(report)
    scale = max([1, budget, *(layer["allocated_tokens"] for layer in report["layers"])])
    rows = [
        _number_row(
            _title(layer),
            layer["used_tokens"],
            report,
            bar=_planned_bar(layer["used_tokens"], layer["allocated_tokens"], scale, colours[layer["layer"]]),
            planned=f"{layer['allocated_tokens']:,}",
            data_layer=layer["layer"],
            data_used_tokens=layer["used_tokens"],
            data_allocated_tokens=layer["allocated_tokens"],
            data_layer_overhead_tokens=layer["overhead_tokens"],
        )
        for layer in report["layers"]
    ]
    rows += [
        _number_row(
            name.capitalize(),
            tokens,
            report,
            bar=_planned_bar(tokens, 0, scale, colours[OVERHEAD]),
            data_overhead=name,
            data_used_tokens=tokens,
        )
        for name, tokens in report["overhead_tokens"].items()
    ]
    rows.append(_number_row("Total", report["total_tokens"], report, weight="bold", data_total=report["total_tokens"]))
    titles = ("layer", _CELL), ("", _WORDS), ("used", _NUMBER), ("share", _NUMBER), ("planned", _NUMBER)
    heads = [_tag("th", _text(title), style=f"{style};font-weight:normal;{_FAINT}") for title, style in titles]
    return _tag(
        "table", _tag("thead", _tag("tr", *heads, style=_ROW)), _tag("tbody", *rows), style=_TABLE, data_part="layers"
    )


def _number_row(
    label: str,
    tokens: int,
    report: Mapping[str, Any],
    *,
    bar: str = "",
    planned: str = "",
    weight: str = "normal",
    **attributes: object,
) -> str:
    share = f"{share_of(tokens, report['budget_tokens']):.1%}"
    return _tag(
        "tr",
        _tag("td", _text(label), style=f"{_CELL};{_SHORT}"),
        _tag("td", bar, style=_WORDS),
        *(_tag("td", cell, style=_NUMBER) for cell in (f"{tokens:,}", share, planned)),
        style=f"{_ROW};font-weight:{weight}",
        **attributes,
    )


def _planned_bar(used: int, planned: int, scale: int, colour: str) -> str:
    """What was used (full) of what was planned (pale)."""
    full = max(0, used)
    pale = max(0, planned - full)
    sizes = [(full, f"background:{colour};{_EDGE}"), (pale, f"background:{colour};opacity:0.28")]
    drawn = [
        _tag("div", style=f"width:{100 * size / scale:.3f}%;min-width:2px;{style}") for size, style in sizes if size
    ]
    return _tag("div", *drawn, style=_BAR)


def _facts(report: Mapping[str, Any]) -> str:
    rows = []
    for label, said in facts(report):
        strip = _strip(report) if label == "History" and report["coverage"] else ""
        mark = _tier_mark(report) if label == "Usage" else ""
        rows.append(
            _tag(
                "tr",
                _tag("td", _text(label), style=f"{_CELL};{_FAINT}"),
                _tag("td", mark, _text(said), strip, style=_WORDS),
                style=_ROW,
                data_fact=label,
            )
        )
    return _tag("table", _tag("tbody", *rows), style=_TABLE, data_part="facts")


def _tier_mark(report: Mapping[str, Any]) -> str:
    colour = _TIERS[report["usage"]["tier"]]
    return _tag("span", style=f"display:inline-block;width:0.7em;height:0.7em;margin-right:0.4em;background:{colour}")


def _strip(report: Mapping[str, Any]) -> str:
    """The history from its first message to its last, by what became of them."""
    colours = {state: colour for state, (_, colour) in STATES.items()}
    cells = [
        _part(
            last - first + 1,
            _colour(max(counts, key=lambda state: counts[state]), colours),
            title=f"{'message' if first == last else 'messages'} {_span(first, last)}: {_states(counts)}",
            data_first=first,
            data_last=last,
            **{f"data_{state}": count for state, count in counts.items()},
        )
        for first, last, counts in _cells(report["coverage"])
    ]
    return _tag("div", *cells, style=f"{_BAR};height:0.6em;border:{_LINE}", data_part="history")


def _span(first: int, last: int) -> str:
    return f"{first:,}" if first == last else f"{first:,}-{last:,}"


def _states(counts: Mapping[str, int]) -> str:
    if len(counts) == 1:
        return STATES[next(iter(counts))][0]
    return states_in_words(counts)


def _cells(coverage: Sequence[Mapping[str, Any]]) -> Iterator[tuple[int, int, Counter[str]]]:
    """Ranges of messages, with how many are in which state."""
    ranges = [(part["first"], part["last"], part["state"]) for part in coverage]
    if len(ranges) <= MOST_CELLS:
        yield from ((first, last, Counter({state: last - first + 1})) for first, last, state in ranges)
        return
    total, firsts = ranges[-1][1], [first for first, _, _ in ranges]
    edges = sorted({round(total * number / MOST_CELLS) for number in range(MOST_CELLS + 1)})
    for before, last in pairwise(edges):
        counts: Counter[str] = Counter()
        number = max(0, bisect_right(firsts, before + 1) - 1)
        while number < len(ranges) and ranges[number][0] <= last:
            first, end, state = ranges[number]
            counts[state] += min(end, last) - max(first, before + 1) + 1
            number += 1
        yield before + 1, last, counts


def _items(report: Mapping[str, Any]) -> str:
    colours = _colours(report)
    count = sum(len(layer["items"]) for layer in report["layers"])
    more = sum(sum(layer["more_omitted"].values()) for layer in report["layers"])
    rows = [row for layer in report["layers"] for row in _item_rows(layer, colours[layer["layer"]])]
    titles = ("layer", _CELL), ("", _CELL), ("why", _CELL), ("tokens", _NUMBER), ("", _WORDS)
    heads = [_tag("th", _text(title), style=f"{style};font-weight:normal;{_FAINT}") for title, style in titles]
    table = _tag(
        "table", _tag("thead", _tag("tr", *heads, style=_ROW)), _tag("tbody", *rows), style=_TABLE, data_part="items"
    )
    label = f"{plural(count, 'item')}{f' and {more:,} more that are left out' if more else ''}"
    return _tag("details", _tag("summary", _text(label), style="cursor:pointer"), table)


def _item_rows(layer: Mapping[str, Any], colour: str) -> Iterator[str]:
    name = layer["layer"] if layer["layer"] in LAYERS else layer["title"]
    mark = _tag("td", _text(name), style=f"{_CELL};{_SHORT};border-left:4px solid {colour};padding-left:6px")
    for item in layer["items"]:
        cells = (
            _tag("td", _text(item["status"]), style=_CELL),
            _tag(
                "td",
                _text(", ".join(filter(None, (item["reason"].replace("_", " "), item.get("source", ""))))),
                style=_CELL,
            ),
            _tag("td", f"{item['tokens']:,}", style=_NUMBER),
            _tag("td", _text(item["preview"]), style=_WORDS),
        )
        yield _tag(
            "tr",
            mark,
            *cells,
            style=f"{_ROW};{_FAINT}" if item["status"] == "omitted" else _ROW,
            title=item["id"],
            data_item=item["id"],
            data_item_layer=layer["layer"],
            data_status=item["status"],
            data_reason=item["reason"],
            data_tokens=item["tokens"],
        )
    for reason, count in layer["more_omitted"].items():
        words = _tag("td", _text(f"{count:,} more: {reason.replace('_', ' ')}"), style=_WORDS, colspan=4)
        yield _tag("tr", mark, words, style=f"{_ROW};{_FAINT}", data_more=count, data_item_layer=layer["layer"])
