"""From reports to what the API shows of them: pure functions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Literal

from langchain_ctxbudget.core.layers import Layer
from langchain_ctxbudget.core.layers import Status as ItemStatus
from langchain_ctxbudget.core.report import ContextReport, LayerReport, ReportItem
from langchain_ctxbudget.core.tiers import HEALTHY, THRESHOLDS, TIERS, Standing, TierName, UsageLimits, relaxed
from langchain_ctxbudget.core.usage import Usage
from langchain_ctxbudget.dashboard.answers import (
    ContextStatus,
    Limits,
    LimitStanding,
    PruningStrategy,
    Settings,
    SnapshotSummary,
    TierBreakdown,
    TierTokens,
    UsageTotals,
)
from langchain_ctxbudget.settings import ContextSettings
from langchain_ctxbudget.stores.snapshots import ContextSnapshot

SeedTier = Literal["tier1", "tier2", "tier3", "tier4"]
_OF_LAYER: dict[str, SeedTier] = {
    Layer.IDENTITY: "tier1",
    Layer.PREFERENCES: "tier1",
    Layer.TOPICS: "tier2",
    Layer.ENTITIES: "tier2",
    Layer.ARC: "tier4",
    Layer.RETRIEVAL: "tier1",
    Layer.HISTORY: "tier4",
    Layer.MESSAGE: "tier1",
}
"""Where what a layer costs besides its items counts; of the mixed layers, L1 and L5, that is framing."""
_OF_SOURCE: dict[str, SeedTier] = {"memories": "tier2", "documents": "tier3"}
_OWN: SeedTier = "tier2"
"""Layers of the application's own are knowledge."""
_INSTRUCTIONS = ("manner ", "preference ")
"""What items of the first layer are called that say how to answer, and not what is known."""


def tier_breakdown(report: ContextReport) -> TierBreakdown:
    """A prompt by the tiers of seed 003.

    Args:
        report: of the prompt.
    """
    tokens: Counter[SeedTier] = Counter()
    items: Counter[SeedTier] = Counter()
    for layer in report.layers:
        tokens[_OF_LAYER.get(layer.layer, _OWN)] += layer.overhead_tokens
        for item in layer.items:
            if item.status is not ItemStatus.OMITTED:
                tier = _tier(layer, item)
                tokens[tier] += item.tokens
                items[tier] += 1
    tokens["tier1"] += sum(report.overhead_tokens.values())
    return TierBreakdown(
        tier1=TierTokens(tokens=tokens["tier1"], items=items["tier1"]),
        tier2=TierTokens(tokens=tokens["tier2"], items=items["tier2"]),
        tier3=TierTokens(tokens=tokens["tier3"], items=items["tier3"]),
        tier4=TierTokens(tokens=tokens["tier4"], items=items["tier4"]),
        total=report.total_tokens,
    )


def _tier(layer: LayerReport, item: ReportItem) -> SeedTier:
    if layer.layer == Layer.PREFERENCES:
        return "tier1" if item.id.startswith(_INSTRUCTIONS) else "tier2"
    if layer.layer == Layer.RETRIEVAL:
        return _OF_SOURCE.get(item.source, "tier4")
    return _OF_LAYER.get(layer.layer, _OWN)


def pruning_strategy(report: ContextReport, thresholds: Sequence[float] = THRESHOLDS) -> PruningStrategy:
    """What the usage limits let into a prompt; everything where none is set.

    Args:
        report: of the prompt.
        thresholds: shares that are left, below which the next tier begins.
    """
    usage = report.usage
    place = 0 if usage is None else next(n for n, tier in enumerate(TIERS) if tier.name == usage.tier)
    tier = HEALTHY if usage is None else relaxed(TIERS[place], usage.forced)
    return PruningStrategy(
        budget_range=_range(place, thresholds),
        tier1_messages=1,
        tier2_items="all" if tier.knowledge_items is None else tier.knowledge_items,
        tier3_mode=tier.documents,
        tier4_messages="as budgeted" if tier.history_messages is None else tier.history_messages,
    )


def _range(place: int, thresholds: Sequence[float]) -> str:
    """What is left in a tier, as the seed writes it."""
    percent = [f"{share * 100:g}" for share in thresholds]
    if place == 0:
        return f">{percent[0]}%"
    return f"<{percent[-1]}%" if place == len(percent) else f"{percent[place]}-{percent[place - 1]}%"


def budget_percent(report: ContextReport) -> float:
    """The share of the budget that a prompt uses, in percent."""
    return round(100 * report.total_tokens / report.budget_tokens, 1)


def tier_name(report: ContextReport) -> TierName | None:
    """The tier of a prompt; None where no limit is set."""
    return report.usage.tier if report.usage else None


def status(
    session_id: str,
    source: Literal["snapshot", "preview"],
    report: ContextReport,
    at: datetime,
    thresholds: Sequence[float] = THRESHOLDS,
    *,
    steady: int,
) -> ContextStatus:
    """A report as the status of its conversation.

    Args:
        session_id: the conversation.
        source: where the report comes from.
        report: with its previews.
        at: when the prompt was made.
        thresholds: of the usage limits.
        steady: how many messages, from the first on, are still where the report says.
    """
    return ContextStatus(
        session_id=session_id,
        source=source,
        current_context=report,
        tier_breakdown=tier_breakdown(report),
        budget_percent=budget_percent(report),
        pruning_strategy=pruning_strategy(report, thresholds),
        last_updated=at,
        steady_messages=steady,
    )


def snapshot_summary(snapshot: ContextSnapshot) -> SnapshotSummary:
    """A snapshot in numbers."""
    report = snapshot.report
    return SnapshotSummary(
        id=snapshot.id,
        created_at=snapshot.created_at,
        messages=snapshot.messages,
        total_tokens=report.total_tokens,
        budget_tokens=report.budget_tokens,
        layers={layer.layer: layer.used_tokens for layer in report.layers},
        overhead_tokens=sum(report.overhead_tokens.values()),
        tier=tier_name(report),
        allocation_strategy=report.allocation_strategy,
        history_strategy=report.history_strategy,
        compaction_step=report.stability.compaction_step,
        stable_zone_share=report.stability.stable_zone_share,
    )


def usage_totals(usage: Usage) -> UsageTotals:
    """What was used, with its sum."""
    return UsageTotals(**usage.to_dict())


def limit_standing(standing: Standing) -> LimitStanding:
    """The most restrictive limit."""
    return LimitStanding(limit=standing.limit, used=standing.used, allowed=standing.allowed, left=standing.left)


def settings(applied: ContextSettings) -> Settings:
    """The settings that the dashboard shows."""
    limits = None if applied.usage_limits is None else Limits(**asdict(UsageLimits.of(applied.usage_limits)))
    return Settings(
        force_include=tuple(applied.force_include),
        usage_limits=limits,
        max_context_tokens=applied.max_context_tokens,
    )


def moment(text: str | None) -> datetime | None:
    """A time as messages give it, taken for UTC where it does not say; None where it is none."""
    try:
        at = datetime.fromisoformat(text or "")
    except ValueError:
        return None
    return at if at.tzinfo else at.replace(tzinfo=UTC)
