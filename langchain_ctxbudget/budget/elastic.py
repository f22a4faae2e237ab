"""The default strategy: layers that stretch and give way with the situation.

Structure and constants are those of seed 000 (`8e3a336c631f9549`, "The Master Budget Algorithm") with the
corrections of the design. The profile `seed` has the seed's floors and caps; what no one else wants may flow past
the cap of history. In the profile `adaptive` floors scale with the budget (the seed's alone add up to 1,150 tokens),
and history and retrieval share one pool, because under the seed's caps retrieval gets 10 to 18 %, far too little when
a history is many times the budget.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

from langchain_ctxbudget.budget import layer_demand as demand
from langchain_ctxbudget.budget.allocation import Allocation, Emphasis, LayerSpec, Situation, share_out
from langchain_ctxbudget.budget.layers import Layer
from langchain_ctxbudget.budget.parameters import Parameters

ARC_CAP, ARC_FLOOR = 0.12, 200
HISTORY_FLOOR = 500
FLOOR_SHARE = 0.05
"""A floor is the seed's number or this share of the budget, whichever is less."""
STEADY_BUDGET_TOKENS = 8_192
PINNED_SHARE = 0.25
"""The share of the pool for pinned messages, beside the rest of the history."""
USED_SHARE = 0.8
"""The share of its room that verbatim history fills before it compacts, by default."""

SEED_PREFERENCES_SHARE, SEED_PREFERENCES_IDEAL, SEED_PREFERENCES_MAX, SEED_PREFERENCES_FLOOR = 0.03, 600, 800, 100
SEED_ARC_SHARE, SEED_ARC_CAP = 0.15, 0.20
SEED_RETRIEVAL_SHARE, SEED_RETRIEVAL_CAP, SEED_LEAST_COVERAGE, SEED_COVERED_SHARE = 0.10, 0.18, 0.3, 0.15
SEED_HISTORY_CAP, SEED_PRIORITIZED, SEED_DIALOGUE_HEAVY, SEED_MANY_MESSAGES = 0.60, 1.3, 1.2, 20
SEED_SMALL_TOKENS = 3_000
SEED_HISTORY_SHARES = ((10_000, 0.35), (50_000, 0.30), (math.inf, 0.25))
"""Up to so many tokens of conversation, the ideal of history is that share of the budget."""


class Lean(NamedTuple):
    """The division of the pool that history and retrieval share: retrieval finds, and history is cached."""

    least_share: float
    """The share of the pool that history keeps, however long it is."""
    falls: float
    """Its share falls by `1 / ratio ** falls`, for a history `ratio` times as large as the pool."""
    steady_exchanges: int
    """It wants room for so many average exchanges, to grow between two compaction steps: a step rewrites the prompt
    behind the system prompt."""
    steady_share: float
    """For that, it takes at most this share of the pool at a budget of `STEADY_BUDGET_TOKENS`, and in a smaller one
    less by proportion: there, what is not retrieved is not seen at all."""
    growth: int
    """Exchanges by which it may grow beyond the newest messages that must stay, before it compacts."""
    growth_share: float
    """If the room for that is more than this share of the pool, there is none: every turn compacts."""
    arc_share: float
    """The arc's ideal share of what system prompt and preferences leave."""


LEANS: dict[Emphasis, Lean] = {
    "recall": Lean(0.0, 2.0, 0, 0.0, 0, 0.0, arc_share=0.02),
    "balanced": Lean(0.1, 2.0, 8, 0.3, 2, 0.2, arc_share=0.03),
    "cache": Lean(0.35, 0.5, 40, 0.65, 3, 0.65, arc_share=0.08),
}
"""By measurement: docs/retrieval.md shows recall against what prompts cost."""


class ElasticAllocation(Parameters):
    """Layers with floor, ideal, maximum, priority and elasticity, computed from the situation (seed 000).

    Raises:
        InvalidSettingsError: an unknown profile.

    Example:
        >>> situation = Situation(
        ...     total_tokens=4_000,
        ...     overhead_tokens=20,
        ...     identity_tokens=100,
        ...     preferences_tokens=0,
        ...     message_tokens=30,
        ...     message_count=200,
        ...     history_tokens=40_000,
        ... )
        >>> ElasticAllocation().allocate(situation).fits_whole
        False
    """

    profile: Literal["adaptive", "seed"] = "adaptive"

    @property
    def name(self) -> str:
        """`elastic`, with its profile where that is not the default."""
        return "elastic" if self.profile == "adaptive" else f"elastic ({self.profile})"

    def allocate(self, situation: Situation) -> Allocation:
        """Divides the budget by the situation."""
        divided = _adaptive if self.profile == "adaptive" else _seed
        return divided(situation, self.name)


def history_share(ratio: float, lean: Lean) -> float:
    """Returns the share of the pool for a history that is `ratio` times as large as the pool.

    One at ratio 1, and less the longer a conversation is: its newest messages are a smaller part of it, and there is
    more to retrieve.
    """
    share: float = 1.0 / max(ratio, 1.0) ** lean.falls
    return max(lean.least_share, share)


def _steady_share(situation: Situation, pool_tokens: int) -> float:
    """Returns the share of the pool that history needs to stay as it is for most turns."""
    lean = LEANS[situation.emphasis]
    part = min(1.0, situation.total_tokens / STEADY_BUDGET_TOKENS)
    most = lean.least_share + (lean.steady_share - lean.least_share) * part
    return min(most, lean.steady_exchanges * situation.exchange_tokens / max(1, pool_tokens))


def _adaptive(situation: Situation, name: str) -> Allocation:
    budget, free = situation.total_tokens, situation.free_tokens
    preferences = demand.preferences_demand(situation, free)
    knowledge = (
        demand.topics_demand(situation, _floor(demand.TOPIC_FLOOR, budget)),
        demand.entities_demand(situation, _floor(demand.ENTITY_FLOOR, budget)),
        *situation.custom,
    )
    fits_whole = demand.history_fits(situation, free - preferences.ideal_tokens - _kept_for(knowledge, situation))
    if not fits_whole:  # the same at every turn from here on
        preferences = demand.preferences_demand(situation, free, demand.LEARNED_SHARE)
    fixed = situation.overhead_tokens + situation.identity_tokens + preferences.ideal_tokens
    dialogue = _whole(situation) if fits_whole else _compacted(situation, max(0, budget - fixed))
    return share_out(name, situation, (preferences, *knowledge, *dialogue), fits_whole=fits_whole)


def _kept_for(knowledge: Sequence[LayerSpec], situation: Situation) -> int:
    """Returns the tokens that knowledge keeps from a history that would go in whole.

    Of a custom layer that is the floor: with the ideal, wanting more could compact the conversation, and so give a
    layer less.
    """
    custom = {spec.layer for spec in situation.custom}
    return sum(spec.min_tokens if spec.layer in custom else spec.ideal_tokens for spec in knowledge)


def _floor(tokens: int, budget: int) -> int:
    return min(tokens, int(budget * FLOOR_SHARE))


def _whole(situation: Situation) -> tuple[LayerSpec, ...]:
    """Returns the demands where everything goes in: no arc, nothing to retrieve from this conversation."""
    history = situation.history_tokens
    return (
        demand.rigid_demand(Layer.ARC, 0, priority=88),
        LayerSpec(layer=Layer.RETRIEVAL, min_tokens=0, ideal_tokens=0, max_tokens=situation.free_tokens, priority=75),
        demand.rigid_demand(Layer.HISTORY, history, priority=90, floor_tokens=history),
    )


def _compacted(situation: Situation, steady: int) -> tuple[LayerSpec, ...]:
    """Returns the demands of history and retrieval, from a pool that does not depend on this turn."""
    budget, held, lean = situation.total_tokens, situation.history_tokens, LEANS[situation.emphasis]
    arc = int(min(demand.arc_ideal(situation), steady * lean.arc_share))
    retrieval = _floor(demand.RETRIEVAL_FLOOR, budget)
    pool = max(0, steady - arc)
    least = min(held, max(situation.keep_tokens, _floor(HISTORY_FLOOR, budget)))
    share = max(history_share(held / max(1, pool), lean), _steady_share(situation, pool))
    growth = (situation.keep_tokens + lean.growth * situation.exchange_tokens) / USED_SHARE
    growth = int(growth) if growth <= pool * lean.growth_share else 0
    pinned = min(situation.pinned_tokens, int(pool * PINNED_SHARE))
    history = min(held, pinned + max(least, int(pool * share), growth))
    return (
        LayerSpec(
            layer=Layer.ARC,
            min_tokens=min(arc, _floor(ARC_FLOOR, budget)),
            ideal_tokens=arc,
            max_tokens=max(arc, int(steady * ARC_CAP)),
            priority=88 if situation.prioritize_history else 72,
            elasticity=0.3,
        ),
        LayerSpec(
            layer=Layer.RETRIEVAL,
            min_tokens=retrieval,
            ideal_tokens=max(retrieval, pool - history),
            max_tokens=max(budget, retrieval),
            priority=75,
            elasticity=0.5,
        ),
        LayerSpec(
            layer=Layer.HISTORY,
            min_tokens=least,
            ideal_tokens=history,
            max_tokens=history,
            priority=90 if situation.prioritize_history else 78,
            elasticity=0.4 if situation.prioritize_history else 0.6,
        ),
    )


def _seed(situation: Situation, name: str) -> Allocation:
    """Divides by the seed's own floors and caps; a layer never wants more than it holds, as sizes are known here."""
    knowledge = (
        _seed_preferences(situation),
        demand.topics_demand(situation),
        demand.entities_demand(situation),
        *situation.custom,
    )
    fits_whole = demand.history_fits(situation, situation.free_tokens - _kept_for(knowledge, situation))
    dialogue = _whole(situation) if fits_whole else _seed_dialogue(situation)
    return share_out(name, situation, (*knowledge, *dialogue), fits_whole=fits_whole)


def _seed_preferences(situation: Situation) -> LayerSpec:
    """Returns the demand of L1, "non-negotiable" in the seed: its ideal is its floor, and it has to fit."""
    wanted = demand.preferences_demand(situation, situation.free_tokens)
    held = wanted.ideal_tokens
    share = int(situation.total_tokens * SEED_PREFERENCES_SHARE)
    ideal = max(SEED_PREFERENCES_FLOOR, min(SEED_PREFERENCES_IDEAL, share))
    return LayerSpec(
        layer=Layer.PREFERENCES,
        min_tokens=min(held, ideal if wanted.min_tokens else SEED_PREFERENCES_FLOOR),
        ideal_tokens=min(held, ideal),
        max_tokens=min(held, SEED_PREFERENCES_MAX),
        priority=demand.PREFERENCES_PRIORITY,
        elasticity=0.1,
    )


def _seed_dialogue(situation: Situation) -> tuple[LayerSpec, ...]:
    budget, held = situation.total_tokens, situation.history_tokens
    arc = max(ARC_FLOOR, min(demand.arc_ideal(situation), int(budget * SEED_ARC_SHARE)))
    coverage = max(SEED_LEAST_COVERAGE, 1.0 - min(1.0, situation.topic_tokens / (budget * SEED_COVERED_SHARE)))
    retrieval = int(budget * SEED_RETRIEVAL_SHARE * coverage * demand.DEPTH_FACTOR[situation.depth])
    retrieval_cap = max(demand.RETRIEVAL_FLOOR, int(budget * SEED_RETRIEVAL_CAP))
    dialogue_heavy = situation.message_count > SEED_MANY_MESSAGES and situation.prioritize_history
    if held <= SEED_SMALL_TOKENS:
        share = min(1.0, held / budget)
    else:
        share = next(share for most, share in SEED_HISTORY_SHARES if held <= most)
    share *= SEED_PRIORITIZED if situation.prioritize_history else 1.0
    share *= SEED_DIALOGUE_HEAVY if dialogue_heavy else 1.0
    low = min(held, max(HISTORY_FLOOR, situation.keep_tokens))
    high = max(low, min(held, int(budget * SEED_HISTORY_CAP)))
    return (
        LayerSpec(
            layer=Layer.ARC,
            min_tokens=ARC_FLOOR,
            ideal_tokens=arc,
            max_tokens=max(ARC_FLOOR, int(budget * SEED_ARC_CAP)),
            priority=88,
            elasticity=0.3,
        ),
        LayerSpec(
            layer=Layer.RETRIEVAL,
            min_tokens=demand.RETRIEVAL_FLOOR,
            ideal_tokens=min(retrieval_cap, max(demand.RETRIEVAL_FLOOR, retrieval)),
            max_tokens=retrieval_cap,
            priority=75,
            elasticity=0.5,
            usable_tokens=budget,
        ),
        LayerSpec(
            layer=Layer.HISTORY,
            min_tokens=low,
            ideal_tokens=min(high, max(low, demand.share_of(budget, share))),
            max_tokens=high,
            priority=90 if dialogue_heavy else 80,
            elasticity=0.4,
            usable_tokens=held,
        ),
    )
