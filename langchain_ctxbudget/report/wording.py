"""The words of a report besides its numbers: for the text chart, the card of a notebook and explanations."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from langchain_ctxbudget.report.palette import messages_of, states_in_words

JOINED = " + "
"""Between the ids of a call and its results, which are one item."""
TIER_MEANS: dict[str, dict[str, str]] = {
    "healthy": {},
    "caution": {"history": "5 messages", "budget": "half of the budget if that suffices"},
    "warning": {
        "knowledge": "3 items",
        "documents": "summaries",
        "history": "2 messages",
        "budget": "a quarter of the budget if that suffices",
    },
    "critical": {
        "knowledge": "1 item",
        "documents": "no documents",
        "history": "the last exchange",
        "budget": "an eighth of the budget if that suffices",
    },
}
"""The most that each tier lets in, under the names of `force_include`."""
_OBEYED = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")
"""Control characters, directions of writing, and halves of characters, which cannot be printed at all."""


def shown(text: str) -> str:
    r"""Returns a text whose control characters are shown, not obeyed.

    >>> shown("red \x1b[31m, C1 \x9b, backwards \u202e")
    'red ␛[31m, C1 \\u009b, backwards \\u202e'
    """
    return _OBEYED.sub(_picture, text)


def _picture(found: re.Match[str]) -> str:
    code = ord(found[0])
    if code < ord(" "):
        return chr(0x2400 + code)
    return "␡" if found[0] == "\x7f" else f"\\u{code:04x}"


def plural(count: int, noun: str) -> str:
    """Returns a number and its noun.

    >>> plural(1, "message"), plural(1_200, "message")
    ('1 message', '1,200 messages')
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def facts(report: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yields labels and their texts, in the order in which they are shown.

    Args:
        report: the data of a report, from `ContextReport.to_dict`.
    """
    if len(report["settings_from"]) > 1:
        yield "Settings", " < ".join(report["settings_from"])
    yield "Strategy", report["allocation_strategy"]
    yield "History", _history(report)
    yield "Stable", _stability(report["stability"])
    how = "exact" if report["count_mode"] == "exact" else "estimated, with a margin"
    yield "Counted", f"{how} ({report['tokenizer']}), {plural(report['tokenizer_calls'], 'new text')}"
    if report["uncorrected_tokens"] != report["total_tokens"]:
        yield "Corrected", f"by observed usage; {report['uncorrected_tokens']:,} without it"
    reserve = f"{report['output_reserve_tokens']:,} tokens kept free for the answer"
    if report["window_tokens"] is not None:
        told_by = report["window_detail"] or report["window_source"]
        yield "Window", f"{report['window_tokens']:,} tokens ({told_by}), {reserve}"
    elif report["output_reserve_tokens"]:
        yield "Reserve", reserve
    if report.get("usage") is not None:
        yield "Usage", usage_words(report["usage"])
    written, waiting = report["summary_lines"], report["summaries_waiting"]
    if waiting or not set(written) <= {"extraction"}:
        parts = [f"{plural(lines, 'line')} by {maker}" for maker, lines in written.items()]
        yield "Summaries", ", ".join([*parts, *([f"{plural(waiting, 'span')} still to be written"] if waiting else [])])
    if report["last_resort"]:
        yield "Squeezed", f"{', '.join(report['last_resort'])}: it did not fit otherwise"
    for repair in report["repairs"]:
        yield "Repaired", f"{repair['kind']} {repair['message_id']}: {repair['detail']}"
    for failure in report["failures"]:
        yield "Failed", failure
    steps = ", ".join(f"{name} {ms:.1f}" for name, ms in report["timings_ms"].items())
    yield "Time", f"{sum(report['timings_ms'].values()):.1f} ms ({steps})"


def usage_words(usage: Mapping[str, Any]) -> str:
    """Returns the tier of a prompt: the share that is left of a limit, and what the tier lets in."""
    cost = usage["limit"].endswith("cost")
    used, allowed = (f"${usage[part]:,.2f}" if cost else f"{usage[part]:,.0f}" for part in ("used", "allowed"))
    means = [words for name, words in TIER_MEANS[usage["tier"]].items() if name not in usage["forced"]]
    forced = f"{', '.join(usage['forced'])} forced" if usage["forced"] else ""
    left = f"{usage['left']:.0%} of {usage['limit']} left ({used} of {allowed} used)"
    return f"{usage['tier']}: {'; '.join(part for part in (left, ', '.join(means), forced) if part)}"


def _history(report: Mapping[str, Any]) -> str:
    counts = messages_of(report)
    if not any(counts.values()):
        return "no messages yet"
    return f"{report['history_strategy']}: {plural(sum(counts.values()), 'message')}: {states_in_words(counts)}"


def _stability(stability: Mapping[str, Any]) -> str:
    zone = f"{stability['stable_zone_tokens']:,} tokens in the stable zone"
    if stability["shared_tokens"] is None:
        return f"{zone}; first prompt of this conversation"
    step = ", a compaction step" if stability["compaction_step"] else ""
    return (
        f"{zone}, {stability['stable_zone_share']:.0%} of it as in the previous prompt "
        f"({stability['prompt_share']:.0%} of the whole){step}"
    )
