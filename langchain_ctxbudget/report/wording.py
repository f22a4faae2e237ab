"""What a report says in words: one sentence, the facts below its bars, one item explained."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from langchain_ctxbudget.budget import Layer, Reason, Status
from langchain_ctxbudget.report.colours import SOURCES, STATES, STATUSES, label_of
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
REMEDIES: Mapping[Reason, str] = {
    Reason.NO_ROOM: "a larger `max_context_tokens` has room for it",
    Reason.OVER_IDEAL: "a larger `ideal_tokens` of the layer has room for it",
    Reason.RANKED_LOWER: "a larger `max_context_tokens` has room for it",
    Reason.NOT_COMPILED: "its text is still compiled; `flush` waits for it",
    Reason.NEXT_SNAPSHOT: "the next rebuilt prompt shows it",
    Reason.USAGE_LIMIT: "little of a usage limit is left; `force_include` lets it in",
    Reason.TO_BE_FOUND: "`find_tools` finds it; a larger `tool_tokens` binds more",
    Reason.COMPRESSED: "a larger `max_context_tokens` has room for it",
    Reason.PRUNED: "a larger `max_context_tokens` has room for it",
}
"""How something that was left out can be had, by the reason for which it was."""
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


def percent(share: float) -> str:
    """Returns a share in whole percent, such as `91 %`; a part is neither `0 %` nor `100 %`."""
    whole = round(share * 100)
    if share < 1:
        whole = min(whole, 99)
    if share > 0 and whole == 0:
        return "<1 %"
    return f"{whole} %"


def summed_up(report: "ContextReport") -> str:
    """Returns one sentence about a prompt: its size, its messages, its cache, and its cost."""
    size = f"{report.total_tokens:,} of {report.budget_tokens:,} tokens"
    if report.forecast:
        size = f"Forecast: {size}"
    parts = [*_messages_sent(report), _cached(report.stability, report.total_tokens)]
    parts.append(f"paid like {report.turn_effective_tokens:,}")
    return f"{size}: {', '.join(parts)}"


def _messages_sent(report: "ContextReport") -> Iterator[str]:
    """Yields which messages of the conversation are in the prompt, in words."""
    counts = report.coverage_counts()
    verbatim = counts["verbatim"]
    if verbatim and verbatim == sum(counts.values()):
        yield f"{plural(verbatim, 'message')} so far, all word for word"
        return
    if counts["retrieved"]:
        yield f"{plural(counts['retrieved'], 'old message')} looked up"
    if verbatim:
        yield f"{verbatim:,} newest word for word"


def _cached(stability: "Stability", total_tokens: int) -> str:
    if not stability.cached_tokens:
        return "nothing cached"
    return f"{percent(stability.cached_tokens / total_tokens)} cached"


def facts(report: "ContextReport") -> list[tuple[str, str]]:
    """Returns the labels and texts that stand below the bars, in order."""
    lines = [
        ("About", ", ".join((*report.topics, *report.entities))),
        ("Expected", _prediction(report)),
        ("Messages", _messages(report)),
        ("Left out", _left_out_messages(report)),
        *(("Left out", text) for text in _left_out_items(report)),
        ("Lost", _lost(report)),
        ("Prompt", _mode(report.stability)),
        ("Paid", _cost(report)),
        ("Next", _next_rebuild(report.stability)),
        ("Own calls", _own_calls(report)),
        ("Counted", _counting(report)),
        ("Window", _window(report)),
        ("Answer", _reserve_without_window(report)),
        ("Limit", _usage(report.usage)),
        ("Summaries", _summaries(report)),
        ("Compiled", _compiled(report)),
        ("Allocation", report.allocation_strategy),
        ("Settings", _settings(report)),
        ("Squeezed", _last_resort(report)),
    ]
    lines += [
        ("Repaired", f"{repair.kind} {repair.message_id}: {repair.detail}")
        for repair in report.repairs
    ]
    lines += [("Failed", failure) for failure in report.failures]
    lines += [("Note", note) for note in report.notes]
    lines.append(("Time", _timings(report)))
    return [(label, text) for label, text in lines if text]


def _prediction(report: "ContextReport") -> str:
    if not report.predicted:
        return ""
    confirmed = {*report.topics, *report.entities}.intersection(report.predicted)
    return f"{', '.join(report.predicted)}, by what is open; {len(confirmed)} came up"


def _compiled(report: "ContextReport") -> str:
    """Tells of how many texts about the user were ready before the message came."""
    parts = []
    for layer, hits in report.cache_hits.items():
        parts.append(f"{hits} of {hits + report.cache_misses[layer]} for {label_of(layer)}")
    if not parts:
        return ""
    return f"texts that were ready: {', '.join(parts)}"


def _settings(report: "ContextReport") -> str:
    if len(report.settings_from) == 1:
        return ""
    return f"from {', then '.join(report.settings_from)}; a later one wins"


def _messages(report: "ContextReport") -> str:
    if not report.coverage:
        return "none before this turn"
    counts = report.coverage_counts()
    states = [
        f"{counts[state]:,} {style.words}" for state, style in STATES.items() if counts[state]
    ]
    return f"{plural(sum(counts.values()), 'message')}: {', '.join(states)}"


def _left_out_messages(report: "ContextReport") -> str:
    """Says how the messages that are not in the prompt can be had."""
    counts = report.coverage_counts()
    if not counts["omitted"] + counts["summarized"]:
        return ""
    return (
        "the recall tool quotes every message; `pin` keeps one in; "
        "a larger `max_context_tokens` sends more"
    )


def _left_out_items(report: "ContextReport") -> Iterator[str]:
    """Yields what else is left out, and how it can be had; messages are told of by themselves."""
    for layer in report.layers:
        if layer.layer in (Layer.HISTORY, Layer.RETRIEVAL):
            continue
        counts = Counter(layer.more_omitted)
        counts.update(item.reason for item in layer.items if item.status is Status.OMITTED)
        for reason, remedy in REMEDIES.items():
            if counts[reason]:
                yield f"{counts[reason]:,} of {label_of(layer.layer)}: {remedy}"


def _mode(stability: "Stability") -> str:
    """Says whether the prompt extends the last one, and why; empty in older reports."""
    meanings = {str(code): code.meaning for code in (*Mode, *Cause)}
    if not {stability.mode, stability.cause} <= meanings.keys():
        return ""
    return f"{meanings[stability.mode]}, because {meanings[stability.cause]}"


def _cost(report: "ContextReport") -> str:
    """Says what is cached, what is new, and what both cost together."""
    stability = report.stability
    new_tokens = report.total_tokens - stability.cached_tokens
    cost = f"{stability.cached_tokens:,} tokens cached, {new_tokens:,} new: "
    cost += f"paid like {report.turn_effective_tokens:,} new ones"
    if report.own_effective_tokens:
        cost += f", {report.own_effective_tokens:,} of them for own calls"
    return f"{cost}; every message: {stability.whole_effective_tokens:,}"


def _next_rebuild(stability: "Stability") -> str:
    turns = stability.turns_to_step
    if turns is None or turns > MOST_TURNS_AHEAD:
        return ""
    when = f"in about {plural(turns, 'turn')}" if turns else "next turn"
    return f"rebuilt {when}, with about {stability.step_tokens:,} new tokens"


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
    how = "exactly" if report.count_mode == "exact" else "estimated, with a margin,"
    text = f"{how} with {report.tokenizer}"
    if report.uncorrected_tokens == report.total_tokens:
        return text
    return f"{text}; {report.uncorrected_tokens:,} tokens before the reported usage corrected it"


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
    text = f"{usage.tier}: {percent(usage.left)} of {usage.limit} left ({used} of {allowed} used)"
    if usage.forced:
        text += f"; `force_include` lets in {', '.join(usage.forced)}"
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
        parts.append(f"{plural(report.summaries_waiting, 'span')} of messages not summed up yet")
    return ", ".join(parts)


def _last_resort(report: "ContextReport") -> str:
    if not report.last_resort:
        return ""
    return f"{', '.join(report.last_resort)}; without that it would be over its budget"


def _lost(report: "ContextReport") -> str:
    """Names the values that the last prompt had, and the messages that the recall tool quotes."""
    if not report.lost_values:
        return ""
    values = [f"{lost.value or lost.kind} ({lost.reference})" for lost in report.lost_values]
    if report.more_lost_values:
        values.append(f"and {report.more_lost_values:,} more")
    return f"{', '.join(values)}: in the last prompt, not in this one; the recall tool quotes them"


def in_a_line(report: "ContextReport") -> str:
    """Returns one line about a prompt: its sentence, its mode, and what is missing in it."""
    parts = [summed_up(report), _mode(report.stability)]
    omitted = report.coverage_counts()["omitted"]
    if omitted:
        parts.append(f"{plural(omitted, 'message')} left out")
    lost = len(report.lost_values) + report.more_lost_values
    if lost:
        parts.append(f"{plural(lost, 'value')} lost")
    if report.failures:
        parts.append(plural(len(report.failures), "failure"))
    return "; ".join(filter(None, parts))


def _timings(report: "ContextReport") -> str:
    if not report.timings_ms:
        return ""
    steps = ", ".join(f"{name} {ms:.1f}" for name, ms in report.timings_ms.items())
    return f"{sum(report.timings_ms.values()):.1f} ms ({steps.replace('_', ' ')})"


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
    source = SOURCES.get(item.source, item.source)
    place = ", ".join(filter(None, (label_of(layer.layer), source, STATUSES[item.status])))
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
