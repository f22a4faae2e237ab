"""The numbers of a report under flat names, as spans and runs of traces take them."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from langchain_ctxbudget.report.report import ContextReport


def numbers_of(report: "ContextReport") -> dict[str, str | int | float]:
    """Returns the numbers of a prompt, its mode and the conversation; no texts and no user."""
    stability = report.stability
    own_calls = report.own_calls.total
    counts = report.coverage_counts()
    numbers: dict[str, str | int | float] = {
        "conversation": report.conversation_id,
        "mode": stability.mode,
        "cause": stability.cause,
        "strategy": report.allocation_strategy,
        "count_mode": report.count_mode,
        "budget_tokens": report.budget_tokens,
        "total_tokens": report.total_tokens,
        "overhead_tokens": sum(report.overhead_tokens.values()),
        "cached_tokens": stability.cached_tokens,
        "new_tokens": report.total_tokens - stability.cached_tokens,
        "cached_share": round(stability.cached_tokens / max(1, report.total_tokens), 4),
        "effective_tokens": stability.effective_tokens,
        "whole_effective_tokens": stability.whole_effective_tokens,
        "saved_tokens": stability.saved_tokens,
        "own_calls": own_calls.calls,
        "own_input_tokens": own_calls.input_tokens,
        "own_output_tokens": own_calls.output_tokens,
        "own_effective_tokens": report.own_effective_tokens,
        "own_dollars": own_calls.cost,
        "repairs": len(report.repairs),
        "failures": len(report.failures),
        "last_resorts": len(report.last_resort),
        "lost_values": len(report.lost_values) + report.more_lost_values,
        "milliseconds": round(sum(report.timings_ms.values()), 3),
    }
    for layer in report.layers:
        numbers[f"layer_{layer.layer}_tokens"] = layer.used_tokens
    for state, messages in counts.items():
        numbers[f"messages_{state}"] = messages
    return numbers
