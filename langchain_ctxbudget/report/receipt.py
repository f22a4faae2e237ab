"""The numbers of a prompt, as spans, runs of traces and streams take them: no texts, no user."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from langchain_ctxbudget.report.colours import CoverageState
from langchain_ctxbudget.tokens import NO_OWN_CALLS, OwnCalls

if TYPE_CHECKING:
    from langchain_ctxbudget.report.report import ContextReport, Stability


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """What of a report is numbers. It is made without one, in far less time."""

    conversation_id: str
    allocation_strategy: str
    count_mode: str
    budget_tokens: int
    total_tokens: int
    overhead_tokens: int
    layer_tokens: Mapping[str, int]
    """What each layer uses, by its short name."""
    messages: Mapping[CoverageState, int]
    """How many messages of the conversation are in each state."""
    stability: "Stability"
    failures: tuple[str, ...]
    repairs: int
    last_resorts: int
    lost_values: int
    own_calls: OwnCalls = NO_OWN_CALLS
    own_effective_tokens: int = 0
    timings_ms: Mapping[str, float] = field(default_factory=dict)

    def numbers(self, prefix: str) -> dict[str, str | int | float]:
        """Returns the numbers under flat names, with a prefix in front of each."""
        stability = self.stability
        own_calls = self.own_calls.total
        numbers: dict[str, str | int | float] = {
            "conversation": self.conversation_id,
            "mode": stability.mode,
            "cause": stability.cause,
            "strategy": self.allocation_strategy,
            "count_mode": self.count_mode,
            "budget_tokens": self.budget_tokens,
            "total_tokens": self.total_tokens,
            "overhead_tokens": self.overhead_tokens,
            "cached_tokens": stability.cached_tokens,
            "new_tokens": self.total_tokens - stability.cached_tokens,
            "cached_share": round(stability.cached_tokens / max(1, self.total_tokens), 4),
            "effective_tokens": stability.effective_tokens,
            "whole_effective_tokens": stability.whole_effective_tokens,
            "saved_tokens": stability.saved_tokens,
            "own_calls": own_calls.calls,
            "own_input_tokens": own_calls.input_tokens,
            "own_output_tokens": own_calls.output_tokens,
            "own_effective_tokens": self.own_effective_tokens,
            "own_dollars": own_calls.cost,
            "repairs": self.repairs,
            "failures": len(self.failures),
            "last_resorts": self.last_resorts,
            "lost_values": self.lost_values,
            "milliseconds": round(sum(self.timings_ms.values()), 3),
        }
        for layer, tokens in self.layer_tokens.items():
            numbers[f"layer_{layer}_tokens"] = tokens
        for state, messages in self.messages.items():
            numbers[f"messages_{state}"] = messages
        return {f"{prefix}{name}": number for name, number in numbers.items()}


def receipt_of(report: "ContextReport") -> Receipt:
    """Returns the numbers of a report."""
    return Receipt(
        conversation_id=report.conversation_id,
        allocation_strategy=report.allocation_strategy,
        count_mode=report.count_mode,
        budget_tokens=report.budget_tokens,
        total_tokens=report.total_tokens,
        overhead_tokens=sum(report.overhead_tokens.values()),
        layer_tokens={layer.layer: layer.used_tokens for layer in report.layers},
        messages=report.coverage_counts(),
        stability=report.stability,
        failures=report.failures,
        repairs=len(report.repairs),
        last_resorts=len(report.last_resort),
        lost_values=len(report.lost_values) + report.more_lost_values,
        own_calls=report.own_calls,
        own_effective_tokens=report.own_effective_tokens,
        timings_ms=report.timings_ms,
    )
