"""A report as a bar chart for terminals and logs (the chart of seed 000; this one adds up)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from textwrap import wrap
from typing import Any

FULL, EMPTY = "█", "░"
LABEL_WIDTH = 21
NUMBERS_WIDTH = 27
MIN_BAR, MAX_BAR = 8, 60
FACT_INDENT = " " * 11
COVERAGE_WORDS = {
    "verbatim": "verbatim",
    "retrieved": "retrieved",
    "summarized": "behind the summary",
    "omitted": "left out",
}


def render_text(report: Mapping[str, Any], *, width: int = 80) -> str:
    """Draw a report.

    Args:
        report: what `ContextReport.to_dict` gives.
        width: columns to use; at least what labels and numbers need.
    """
    budget, total = report["budget_tokens"], report["total_tokens"]
    bar = max(MIN_BAR, min(MAX_BAR, width - LABEL_WIDTH - NUMBERS_WIDTH))
    columns = LABEL_WIDTH + bar + NUMBERS_WIDTH
    line = "─" * columns
    heading = "CONTEXT BUDGET (forecast)" if report["forecast"] else "CONTEXT BUDGET"
    rows = [
        _row(_label(layer), layer["used_tokens"], budget, bar, layer["allocated_tokens"]) for layer in report["layers"]
    ]
    rows += [_row(f"   {name.capitalize()}", tokens, budget, bar) for name, tokens in report["overhead_tokens"].items()]
    return "\n".join(
        [
            f"{heading:<{LABEL_WIDTH + bar}}{f'{budget:,} tokens':>{NUMBERS_WIDTH}}",
            f"{'':<{LABEL_WIDTH + bar}}{'used':>9} {'share':>6} {'planned':>10}",
            line,
            *rows,
            line,
            _row("   Total", total, budget, bar),
            f"{'   Free':<{LABEL_WIDTH}}{'':<{bar}}{budget - total:>9,}",
            "",
            *(row for fact in _facts(report) for row in wrap(fact, columns, subsequent_indent=FACT_INDENT)),
        ]
    )


def _label(layer: Mapping[str, Any]) -> str:
    """Short name and title; of a layer of the application's own, its name, as far as there is room."""
    if layer["layer"] != layer["title"]:
        return f"{layer['layer']} {layer['title']}"
    name = f"   {layer['title']}"
    return name if len(name) < LABEL_WIDTH else f"{name[: LABEL_WIDTH - 2]}…"


def _row(label: str, tokens: int, budget: int, bar: int, planned: int | None = None) -> str:
    share = tokens / budget if budget else 0.0
    filled = max(0, min(bar, round(share * bar))) or (1 if tokens > 0 else 0)
    drawn = FULL * filled + EMPTY * (bar - filled)
    allowed = "" if planned is None else f"{planned:>10,}"
    return f"{label:<{LABEL_WIDTH}}{drawn}{tokens:>9,} {share:>6.1%} {allowed}".rstrip()


def _facts(report: Mapping[str, Any]) -> list[str]:
    facts = [f"Strategy   {report['allocation_strategy']}", _history(report), _stability(report["stability"])]
    if len(report["settings_from"]) > 1:
        facts.insert(0, f"Settings   {' < '.join(report['settings_from'])}")
    how = "exact" if report["count_mode"] == "exact" else "estimated, with a margin"
    facts.append(f"Counted    {how} ({report['tokenizer']}), {_plural(report['tokenizer_calls'], 'new text')}")
    if report["uncorrected_tokens"] != report["total_tokens"]:
        facts.append(f"Corrected  by observed usage; {report['uncorrected_tokens']:,} without it")
    reserve = f"{report['output_reserve_tokens']:,} tokens kept free for the answer"
    if report["window_tokens"] is not None:
        told_by = report["window_detail"] or report["window_source"]
        facts.append(f"Window     {report['window_tokens']:,} tokens ({told_by}), {reserve}")
    elif report["output_reserve_tokens"]:
        facts.append(f"Reserve    {reserve}")
    if summaries := _summaries(report):
        facts.append(f"Summaries  {summaries}")
    if report["last_resort"]:
        facts.append(f"Squeezed   {', '.join(report['last_resort'])}: it did not fit otherwise")
    facts.extend(f"Repaired   {item['kind']} {item['message_id']}: {item['detail']}" for item in report["repairs"])
    facts.extend(f"Failed     {failure}" for failure in report["failures"])
    steps = ", ".join(f"{name} {ms:.1f}" for name, ms in report["timings_ms"].items())
    facts.append(f"Time       {sum(report['timings_ms'].values()):.1f} ms ({steps})")
    return facts


def _history(report: Mapping[str, Any]) -> str:
    counts = dict.fromkeys(COVERAGE_WORDS, 0)
    for part in report["coverage"]:
        counts[part["state"]] += part["last"] - part["first"] + 1
    if not any(counts.values()):
        return "History    no messages yet"
    parts = [f"{counts[state]:,} {words}" for state, words in COVERAGE_WORDS.items() if counts[state]]
    total = _plural(sum(counts.values()), "message")
    return f"History    {report['history_strategy']}: {total}: {', '.join(parts)}"


def _summaries(report: Mapping[str, Any]) -> str:
    """Who wrote the lines of summary and arc, where a model has a part in it."""
    written = report["summary_lines"]
    waiting = report["summaries_waiting"]
    if not waiting and set(written) <= {"extraction"}:
        return ""
    parts = [f"{_plural(lines, 'line')} by {maker}" for maker, lines in written.items()]
    return ", ".join([*parts, *([f"{_plural(waiting, 'span')} still to be written"] if waiting else [])])


def _stability(stability: Mapping[str, Any]) -> str:
    zone = f"{stability['stable_zone_tokens']:,} tokens in the stable zone"
    if stability["shared_tokens"] is None:
        return f"Stable     {zone}; first prompt of this conversation"
    step = ", a compaction step" if stability["compaction_step"] else ""
    return (
        f"Stable     {zone}, {stability['stable_zone_share']:.0%} of it as in the previous prompt "
        f"({stability['prompt_share']:.0%} of the whole){step}"
    )


def _plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def render_items(report: Mapping[str, Any], *, layers: Sequence[str], width: int = 100) -> str:
    """The items of some layers, one per line, with their reasons."""
    lines: list[str] = []
    for layer in report["layers"]:
        if layer["layer"] not in layers:
            continue
        for item in layer["items"]:
            head = f"{layer['layer']} {item['status']:<8} {item['reason']:<14} {item['tokens']:>6,}  "
            lines.append(f"{head}{item['preview'][: max(10, width - len(head))]}")
        lines.extend(
            f"{layer['layer']} omitted  {reason:<14} {count:>6,} more"
            for reason, count in layer["more_omitted"].items()
        )
    return "\n".join(lines)
