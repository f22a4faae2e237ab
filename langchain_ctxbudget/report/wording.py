"""What a report says in words: the facts below its chart, and the explanation of one item."""

import re
from typing import TYPE_CHECKING

from langchain_ctxbudget.budget import Status
from langchain_ctxbudget.report.colours import STATES, label_of
from langchain_ctxbudget.report.modes import Cause, Mode

if TYPE_CHECKING:
    from langchain_ctxbudget.report.report import (
        ContextReport,
        LayerReport,
        ReportItem,
        Stability,
        UsageState,
    )

JOINED = " + "
"""Stands between the ids of a call and its results, which are one item."""
MOST_TURNS_AHEAD = 20
"""Turns; a rebuild that is further away is not mentioned."""
LEAST_SCORE = 0.005
"""A part of a candidate's ranking that is smaller, in either direction, is not mentioned."""
_UNPRINTABLE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)
"""Control characters, directions of writing, and halves of characters, which no output prints."""
_PICTURES = {"\x7f": "␡"} | {chr(code): chr(0x2400 + code) for code in range(ord(" "))}


def plural(count: int, noun: str) -> str:
    """Returns a number and its noun, such as `1 message`, `1,200 messages` and `2 entities`."""
    if count == 1:
        return f"{count:,} {noun}"
    nouns = f"{noun}s".replace("tys", "ties")
    return f"{count:,} {nouns}"


def with_visible_controls(text: str) -> str:
    r"""Returns a text with its control characters made visible, an escape as `␛` for instance."""
    return _UNPRINTABLE.sub(lambda match: _PICTURES.get(match[0], f"\\u{ord(match[0]):04x}"), text)


def facts(report: "ContextReport") -> list[tuple[str, str]]:
    """Returns the labels and texts that stand below a chart, in order."""
    lines = [
        ("Topics", ", ".join(report.topics)),
        ("Entities", ", ".join(report.entities)),
        ("Predicted", _prediction(report)),
        ("Ready", _readiness(report)),
        ("Settings", _settings(report)),
        ("Strategy", report.allocation_strategy),
        ("History", _history(report)),
        ("Stable", _stable_zone(report.stability)),
        ("Cost", _cost(report)),
        ("Own calls", _own_calls(report)),
        ("Counted", _counting(report)),
        ("Corrected", _correction(report)),
        ("Window", _window(report)),
        ("Reserve", _reserve_without_window(report)),
        ("Usage", _usage(report.usage)),
        ("Summaries", _summaries(report)),
        ("Squeezed", _last_resort(report)),
    ]
    lines += [
        ("Repaired", f"{repair.kind} {repair.message_id}: {repair.detail}")
        for repair in report.repairs
    ]
    lines += [("Failed", failure) for failure in report.failures]
    lines += [("Note", note) for note in report.notes]
    lines.append(("Lost", _lost(report)))
    lines.append(("Time", _timings(report)))
    return [(label, text) for label, text in lines if text]


def _prediction(report: "ContextReport") -> str:
    if not report.predicted:
        return ""
    confirmed = {*report.topics, *report.entities}.intersection(report.predicted)
    return f"{', '.join(report.predicted)}; {len(confirmed)} came up"


def _readiness(report: "ContextReport") -> str:
    parts = []
    for layer, hits in report.cache_hits.items():
        parts.append(f"{hits} of {hits + report.cache_misses[layer]} in {layer}")
    return ", ".join(parts)


def _settings(report: "ContextReport") -> str:
    if len(report.settings_from) == 1:
        return ""
    return " < ".join(report.settings_from)


def _history(report: "ContextReport") -> str:
    if not report.coverage:
        return "no messages yet"
    counts = report.coverage_counts()
    states = [
        f"{counts[state]:,} {style.words}" for state, style in STATES.items() if counts[state]
    ]
    messages = plural(sum(counts.values()), "message")
    return f"{report.history_strategy}: {messages}: {', '.join(states)}"


def _stable_zone(stability: "Stability") -> str:
    zone = f"{stability.stable_zone_tokens:,} tokens in the stable zone"
    if stability.shared_tokens is None:
        return f"{zone}; first prompt of this conversation"
    shared = f"{stability.stable_zone_share:.0%} of it as in the previous prompt"
    text = f"{zone}, {shared} ({stability.prompt_share:.0%} of the whole)"
    if stability.compaction_step:
        is_extended = stability.mode not in ("", Mode.REBUILT)
        text += ", part of it written anew" if is_extended else ", a compaction step"
    for cause in Cause:
        if cause == stability.cause:
            text += f"; {stability.mode}: {cause.meaning}"
    return text


def _cost(report: "ContextReport") -> str:
    stability = report.stability
    cost = f"{report.turn_effective_tokens:,} effective tokens"
    if report.own_effective_tokens:
        cost += f", {report.own_effective_tokens:,} of them for own calls"
    cost += f", {stability.whole_effective_tokens:,} for sending everything"
    turns = stability.turns_to_step
    if turns is None or turns > MOST_TURNS_AHEAD:
        return cost
    when = f"in about {plural(turns, 'turn')}" if turns else "next"
    return f"{cost}; {when} a step of about {stability.step_tokens:,}"


def _own_calls(report: "ContextReport") -> str:
    """Tells what the calls that learn and sum up have used since the last prompt."""
    used = report.own_calls.total
    if not used.calls:
        return ""
    purposes = [
        f"{usage.calls:,} for {purpose.replace('_', ' ')}"
        for purpose, usage in report.own_calls.by_purpose.items()
    ]
    text = f"{plural(used.calls, 'call')} since the last prompt ({', '.join(purposes)}): "
    text += f"{used.input_tokens:,} tokens of input, {used.output_tokens:,} of output"
    if used.unpriced_calls < used.calls:
        text += f", ${used.cost:,.4f}"
    if used.estimated_calls:
        text += f"; {used.estimated_calls:,} estimated"
    return text


def _counting(report: "ContextReport") -> str:
    how = "exact" if report.count_mode == "exact" else "estimated, with a margin"
    return f"{how} ({report.tokenizer}), {plural(report.tokenizer_calls, 'new text')}"


def _correction(report: "ContextReport") -> str:
    if report.uncorrected_tokens == report.total_tokens:
        return ""
    return f"by observed usage; {report.uncorrected_tokens:,} without it"


def _window(report: "ContextReport") -> str:
    if not report.window_tokens:
        return ""
    source = report.window_detail or report.window_source
    return f"{report.window_tokens:,} tokens ({source}), {_reserve(report)}"


def _reserve(report: "ContextReport") -> str:
    return f"{report.output_reserve_tokens:,} tokens kept free for the answer"


def _reserve_without_window(report: "ContextReport") -> str:
    if report.window_tokens or not report.output_reserve_tokens:
        return ""
    return _reserve(report)


def _usage(usage: "UsageState | None") -> str:
    if usage is None:
        return ""
    used = _amount(usage.used, usage.limit)
    allowed = _amount(usage.allowed, usage.limit)
    text = f"{usage.tier}: {usage.left:.0%} of {usage.limit} left ({used} of {allowed} used)"
    if usage.forced:
        text += f"; {', '.join(usage.forced)} forced"
    return text


def _amount(value: float, limit: str) -> str:
    """Returns a number of tokens, or of dollars where the limit is one on costs."""
    if limit.endswith("cost"):
        return f"${value:,.2f}"
    return f"{value:,.0f}"


def _summaries(report: "ContextReport") -> str:
    """Tells who wrote the lines of arc and summary, where a model writes some of them."""
    by_model = set(report.summary_lines) - {"extraction"}
    if not by_model and not report.summaries_waiting:
        return ""
    parts = [
        f"{plural(lines, 'line')} by {author}" for author, lines in report.summary_lines.items()
    ]
    if report.summaries_waiting:
        parts.append(f"{plural(report.summaries_waiting, 'span')} still to be written")
    return ", ".join(parts)


def _last_resort(report: "ContextReport") -> str:
    if not report.last_resort:
        return ""
    return f"{', '.join(report.last_resort)}: it did not fit otherwise"


def _lost(report: "ContextReport") -> str:
    """Names the values that the last prompt had, and the messages that the recall tool quotes."""
    if not report.lost_values:
        return ""
    values = [f"{lost.value or lost.kind} ({lost.reference})" for lost in report.lost_values]
    if report.more_lost_values:
        values.append(f"and {report.more_lost_values:,} more")
    return f"{', '.join(values)}; the last prompt had them, recall quotes the messages"


def in_a_line(report: "ContextReport") -> str:
    """Returns a line about the size of a prompt, its mode, its cache, and what it leaves out."""
    stability = report.stability
    parts = [f"{report.total_tokens:,} of {report.budget_tokens:,} tokens"]
    if stability.mode:
        parts[0] += f", {stability.mode}"
    for cause in Cause:
        if cause == stability.cause:
            parts[0] += f": {cause.meaning}"
    parts.append(f"{stability.cached_tokens:,} cached")
    omitted = report.coverage_counts()["omitted"]
    if omitted:
        parts.append(f"{plural(omitted, 'message')} left out")
    lost = len(report.lost_values) + report.more_lost_values
    if lost:
        parts.append(f"{plural(lost, 'value')} lost")
    if report.failures:
        parts.append(plural(len(report.failures), "failure"))
    return "; ".join(parts)


def _timings(report: "ContextReport") -> str:
    steps = ", ".join(f"{name} {ms:.1f}" for name, ms in report.timings_ms.items())
    return f"{sum(report.timings_ms.values()):.1f} ms ({steps})"


def explained(report: "ContextReport", subject: str | int) -> list[str]:
    """Returns lines about an item, or about a message by its position from 1.

    There are none where the report does not know it.
    """
    lines: list[str] = []
    if isinstance(subject, int):
        lines += _message_lines(report, subject)
    item_name = f"message {subject}" if isinstance(subject, int) else subject
    for layer in report.layers:
        for item in layer.items:
            # The results of a call are one item with it, so an item may have several ids.
            if item_name in (item.id, *item.id.split(JOINED)):
                lines += _item_lines(layer, item)
    return [with_visible_controls(line) for line in lines]


def _message_lines(report: "ContextReport", position: int) -> list[str]:
    """Says in which state a message is, and which messages around it are in the same state."""
    for around in report.coverage:
        if around.first <= position <= around.last:
            style = STATES[around.state]
            text = f"message {position} of {report.coverage[-1].last:,}: {style.words}"
            if around.first < around.last:
                text += f", as are messages {around.first}-{around.last}"
            return [text, f"  {style.meaning}"]
    return []


def _item_lines(layer: "LayerReport", item: "ReportItem") -> list[str]:
    place = ", ".join(filter(None, (label_of(layer.layer), item.source, item.status)))
    cost = plural(item.tokens, "token")
    if item.status is Status.OMITTED:
        cost = f"it would have cost {cost}"
    lines = [f"{item.id}: {place}, {cost}", f"  {item.reason}: {item.reason.meaning}."]
    if item.citation is not None:
        lines.append(f"  from {item.citation.text}")
    scores = _score_text(item)
    if scores:
        lines.append(f"  ranked by: {scores}")
    if item.preview:
        lines.append(f'  "{item.preview}"')
    return lines


def _score_text(item: "ReportItem") -> str:
    """Returns the parts of a candidate's ranking, the strongest first."""
    scores = sorted(item.scores.items(), key=lambda score: -abs(score[1]))
    return ", ".join(f"{name} {value:+.2f}" for name, value in scores if abs(value) >= LEAST_SCORE)
