"""What a report says besides its numbers, in words: for the text chart and for the card of a notebook."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from langchain_ctxbudget.reporting.parts import messages_of, states_in_words

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
"""What each tier lets in at most, by what `force_include` calls it."""


def facts(report: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Labels and what they say, in the order in which they are shown.

    Args:
        report: what `ContextReport.to_dict` gives.
    """
    found: list[tuple[str, str]] = []
    if len(report["settings_from"]) > 1:
        found.append(("Settings", " < ".join(report["settings_from"])))
    found += [
        ("Strategy", report["allocation_strategy"]),
        ("History", _history(report)),
        ("Stable", _stability(report["stability"])),
    ]
    how = "exact" if report["count_mode"] == "exact" else "estimated, with a margin"
    found.append(("Counted", f"{how} ({report['tokenizer']}), {plural(report['tokenizer_calls'], 'new text')}"))
    if report["uncorrected_tokens"] != report["total_tokens"]:
        found.append(("Corrected", f"by observed usage; {report['uncorrected_tokens']:,} without it"))
    reserve = f"{report['output_reserve_tokens']:,} tokens kept free for the answer"
    if report["window_tokens"] is not None:
        told_by = report["window_detail"] or report["window_source"]
        found.append(("Window", f"{report['window_tokens']:,} tokens ({told_by}), {reserve}"))
    elif report["output_reserve_tokens"]:
        found.append(("Reserve", reserve))
    if report.get("usage") is not None:
        found.append(("Usage", usage_words(report["usage"])))
    if summaries := _summaries(report):
        found.append(("Summaries", summaries))
    if report["last_resort"]:
        found.append(("Squeezed", f"{', '.join(report['last_resort'])}: it did not fit otherwise"))
    found += [("Repaired", f"{item['kind']} {item['message_id']}: {item['detail']}") for item in report["repairs"]]
    found += [("Failed", failure) for failure in report["failures"]]
    steps = ", ".join(f"{name} {ms:.1f}" for name, ms in report["timings_ms"].items())
    return [*found, ("Time", f"{sum(report['timings_ms'].values()):.1f} ms ({steps})")]


def plural(count: int, noun: str) -> str:
    """A number and what is counted.

    >>> plural(1, "message"), plural(1_200, "message")
    ('1 message', '1,200 messages')
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def usage_words(usage: Mapping[str, Any]) -> str:
    """The tier of a prompt: what is left of which limit, and what that lets in."""
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


def _summaries(report: Mapping[str, Any]) -> str:
    """Who wrote the lines of summary and arc, where a model has a part in it."""
    written = report["summary_lines"]
    waiting = report["summaries_waiting"]
    if not waiting and set(written) <= {"extraction"}:
        return ""
    parts = [f"{plural(lines, 'line')} by {maker}" for maker, lines in written.items()]
    return ", ".join([*parts, *([f"{plural(waiting, 'span')} still to be written"] if waiting else [])])


def _stability(stability: Mapping[str, Any]) -> str:
    zone = f"{stability['stable_zone_tokens']:,} tokens in the stable zone"
    if stability["shared_tokens"] is None:
        return f"{zone}; first prompt of this conversation"
    step = ", a compaction step" if stability["compaction_step"] else ""
    return (
        f"{zone}, {stability['stable_zone_share']:.0%} of it as in the previous prompt "
        f"({stability['prompt_share']:.0%} of the whole){step}"
    )
