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
from dataclasses import dataclass
from typing import Literal, NamedTuple

from langchain_ctxbudget.core.allocation import wants
from langchain_ctxbudget.core.allocation.model import Allocation, Emphasis, Situation, share_out
from langchain_ctxbudget.core.allocation.solver import LayerSpec
from langchain_ctxbudget.core.layers import Layer
from langchain_ctxbudget.errors import InvalidSettingsError

Profile = Literal["adaptive", "seed"]

ARC_CAP, ARC_FLOOR = 0.12, 200
HISTORY_FLOOR = 500
FLOOR_SHARE = 0.05
"""A floor is the seed's number or this share of the budget, whichever is less."""


class Lean(NamedTuple):
    """How the pool that history and retrieval share is divided: retrieval finds, and history is cached."""

    least_share: float
    """What history keeps of the pool, however long it is."""
    falls: float
    """How fast its share falls: by `1 / ratio ** falls`, for a history `ratio` times as large as the pool."""
    steady_exchanges: int
    """It wants room for so many average exchanges, to grow between two compaction steps: a step rewrites the prompt
    behind the system prompt."""
    steady_share: float
    """For that, it takes at most this share of the pool at a budget of `STEADY_BUDGET_TOKENS`, and in a smaller one
    less by proportion: there, what is not retrieved is not seen at all."""
    growth: int
    """Exchanges by which it may grow beyond the newest messages that must stay, before it compacts."""
    growth_share: float
    """Where the room for that is more than this share of the pool, there is none: every turn compacts."""
    arc_share: float
    """What the arc would like of what system prompt and preferences leave."""


LEANS: dict[Emphasis, Lean] = {
    "recall": Lean(
        least_share=0.0, falls=2.0, steady_exchanges=0, steady_share=0.0, growth=0, growth_share=0.0, arc_share=0.02
    ),
    "balanced": Lean(
        least_share=0.1, falls=2.0, steady_exchanges=8, steady_share=0.3, growth=2, growth_share=0.2, arc_share=0.03
    ),
    "cache": Lean(
        least_share=0.35, falls=0.5, steady_exchanges=40, steady_share=0.65, growth=3, growth_share=0.65, arc_share=0.08
    ),
}
"""By measurement: docs/retrieval.md shows recall against what prompts cost."""

STEADY_BUDGET_TOKENS = 8_192
PINNED_SHARE = 0.25
"""What messages that are kept may take of the pool, beside what history has in any case."""
USED_SHARE = 0.8
"""Of its room, what verbatim history fills before it compacts, by default."""

SEED_PREFERENCES_SHARE, SEED_PREFERENCES_IDEAL, SEED_PREFERENCES_MAX, SEED_PREFERENCES_FLOOR = 0.03, 600, 800, 100
SEED_ARC_SHARE, SEED_ARC_CAP = 0.15, 0.20
SEED_RETRIEVAL_SHARE, SEED_RETRIEVAL_CAP, SEED_LEAST_COVERAGE, SEED_COVERED_SHARE = 0.10, 0.18, 0.3, 0.15
SEED_HISTORY_CAP, SEED_PRIORITIZED, SEED_DIALOGUE_HEAVY, SEED_MANY_MESSAGES = 0.60, 1.3, 1.2, 20
SEED_SMALL_TOKENS = 3_000
SEED_HISTORY_SHARES = ((10_000, 0.35), (50_000, 0.30), (math.inf, 0.25))
"""Up to so many tokens of conversation, history would like that share of the budget."""


@dataclass(frozen=True, slots=True)
class ElasticAllocation:
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

    profile: Profile = "adaptive"

    def __post_init__(self) -> None:
        if self.profile not in ("adaptive", "seed"):
            raise InvalidSettingsError(f"profile must be 'adaptive' or 'seed', not {self.profile!r}")

    @property
    def name(self) -> str:
        """`elastic`, with its profile where that is not the default."""
        return "elastic" if self.profile == "adaptive" else f"elastic ({self.profile})"

    def allocate(self, situation: Situation) -> Allocation:
        """Divide the budget by the situation."""
        if self.profile == "seed":
            return _seed(situation, self.name)
        return _adaptive(situation, self.name)


def history_share(ratio: float, lean: Lean) -> float:
    """The share of the pool that goes to history when it is `ratio` times as large as the pool.

    One at ratio 1, and less the longer a conversation is: the smaller the part of it that its newest messages are, and
    the more there is to retrieve.
    """
    share: float = 1.0 / max(ratio, 1.0) ** lean.falls
    return max(lean.least_share, share)


def steady_share(situation: Situation, pool_tokens: int) -> float:
    """The share of the pool that history needs to stay as it is for most turns.

    Args:
        situation: of which the length of an average exchange and the budget count.
        pool_tokens: what history and retrieval may cost together.
    """
    lean = LEANS[situation.emphasis]
    part = min(1.0, situation.total_tokens / STEADY_BUDGET_TOKENS)
    most = lean.least_share + (lean.steady_share - lean.least_share) * part
    return min(most, lean.steady_exchanges * situation.exchange_tokens / max(1, pool_tokens))


def _adaptive(situation: Situation, name: str) -> Allocation:
    budget, free = situation.total_tokens, situation.free_tokens
    fixed = situation.overhead_tokens + situation.identity_tokens
    preferences = wants.preferences(situation, free)
    knowledge = (
        wants.topics(situation, _floor(wants.TOPIC_FLOOR, budget)),
        wants.entities(situation, _floor(wants.ENTITY_FLOOR, budget)),
        *situation.custom,
    )
    fits_whole = wants.history_fits(situation, free - preferences.ideal_tokens - _wanted(knowledge, situation))
    if not fits_whole:  # the same at every turn from here on
        preferences = wants.preferences(situation, free, wants.LEARNED_SHARE)
    steady = max(0, budget - fixed - preferences.ideal_tokens)
    dialogue = whole_history(situation, free) if fits_whole else _compacted(situation, steady)
    return share_out(name, situation, (preferences, *knowledge, *dialogue), fits_whole=fits_whole)


def _wanted(knowledge: Sequence[LayerSpec], situation: Situation) -> int:
    """What knowledge keeps from a history that would go in whole.

    Of the application's own layers that is the floor: with the ideal, wanting more could compact the conversation, and
    so give a layer less.
    """
    own = {spec.layer for spec in situation.custom}
    return sum(spec.min_tokens if spec.layer in own else spec.ideal_tokens for spec in knowledge)


def _floor(tokens: int, budget: int) -> int:
    return min(tokens, int(budget * FLOOR_SHARE))


def whole_history(situation: Situation, free_tokens: int) -> tuple[LayerSpec, ...]:
    """Everything that was said goes in: no arc, nothing to retrieve from this conversation."""
    history = situation.history_tokens
    return (
        wants.rigid(Layer.ARC, 0, priority=88),
        LayerSpec(layer=Layer.RETRIEVAL, min_tokens=0, ideal_tokens=0, max_tokens=free_tokens, priority=75),
        LayerSpec(layer=Layer.HISTORY, min_tokens=history, ideal_tokens=history, max_tokens=history, priority=90),
    )


def _room_to_grow(situation: Situation, pool_tokens: int) -> int:
    """Room for the newest messages and some more exchanges; none where that is too much."""
    lean = LEANS[situation.emphasis]
    wanted = (situation.keep_tokens + lean.growth * situation.exchange_tokens) / USED_SHARE
    return int(wanted) if wanted <= pool_tokens * lean.growth_share else 0


def _compacted(situation: Situation, steady: int) -> tuple[LayerSpec, ...]:
    """History and retrieval share a pool that does not depend on this turn, so that history stays put."""
    budget, lean = situation.total_tokens, LEANS[situation.emphasis]
    arc = int(min(wants.arc_ideal(situation), steady * lean.arc_share))
    retrieval = _floor(wants.RETRIEVAL_FLOOR, budget)
    pool = max(0, steady - arc)
    held = situation.history_tokens
    least = min(held, max(situation.keep_tokens, _floor(HISTORY_FLOOR, budget)))
    share = max(history_share(situation.history_tokens / max(1, pool), lean), steady_share(situation, pool))
    pinned = min(situation.pinned_tokens, int(pool * PINNED_SHARE))
    history = min(held, pinned + max(least, int(pool * share), _room_to_grow(situation, pool)))
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
    """The seed's own floors and caps; a layer never wants more than it holds, as sizes are known here."""
    knowledge = (_seed_preferences(situation), wants.topics(situation), wants.entities(situation), *situation.custom)
    whole = (*knowledge, *whole_history(situation, situation.free_tokens))
    if wants.history_fits(situation, situation.free_tokens - _wanted(knowledge, situation)):
        return share_out(name, situation, whole, fits_whole=True)
    dialogue = (_seed_arc(situation), _seed_retrieval(situation), _seed_history(situation))
    return share_out(name, situation, (*knowledge, *dialogue), fits_whole=False)


def _seed_preferences(situation: Situation) -> LayerSpec:
    """L1, "non-negotiable" in the seed: here its ideal is its floor, and it has to fit."""
    wanted = wants.preferences(situation, situation.free_tokens)
    held = wanted.ideal_tokens
    share = int(situation.total_tokens * SEED_PREFERENCES_SHARE)
    ideal = max(SEED_PREFERENCES_FLOOR, min(SEED_PREFERENCES_IDEAL, share))
    return LayerSpec(
        layer=Layer.PREFERENCES,
        min_tokens=min(held, ideal if wanted.min_tokens else SEED_PREFERENCES_FLOOR),
        ideal_tokens=min(held, ideal),
        max_tokens=min(held, SEED_PREFERENCES_MAX),
        priority=wants.PREFERENCES_PRIORITY,
        elasticity=0.1,
    )


def _seed_arc(situation: Situation) -> LayerSpec:
    budget = situation.total_tokens
    high = max(ARC_FLOOR, int(budget * SEED_ARC_CAP))
    return LayerSpec(
        layer=Layer.ARC,
        min_tokens=ARC_FLOOR,
        ideal_tokens=max(ARC_FLOOR, min(wants.arc_ideal(situation), int(budget * SEED_ARC_SHARE))),
        max_tokens=high,
        priority=88,
        elasticity=0.3,
    )


def _seed_retrieval(situation: Situation) -> LayerSpec:
    budget = situation.total_tokens
    coverage = 1.0 - min(1.0, situation.topic_tokens / (budget * SEED_COVERED_SHARE))
    ideal = int(
        budget * SEED_RETRIEVAL_SHARE * max(SEED_LEAST_COVERAGE, coverage) * wants.DEPTH_FACTOR[situation.depth]
    )
    high = max(wants.RETRIEVAL_FLOOR, int(budget * SEED_RETRIEVAL_CAP))
    return LayerSpec(
        layer=Layer.RETRIEVAL,
        min_tokens=wants.RETRIEVAL_FLOOR,
        ideal_tokens=min(high, max(wants.RETRIEVAL_FLOOR, ideal)),
        max_tokens=high,
        priority=75,
        elasticity=0.5,
        usable_tokens=budget,
    )


def _seed_history(situation: Situation) -> LayerSpec:
    budget, held = situation.total_tokens, situation.history_tokens
    dialogue_heavy = situation.message_count > SEED_MANY_MESSAGES and situation.prioritize_history
    if held <= SEED_SMALL_TOKENS:
        share = min(1.0, held / budget)
    else:
        share = next(share for most, share in SEED_HISTORY_SHARES if held <= most)
    share *= SEED_PRIORITIZED if situation.prioritize_history else 1.0
    share *= SEED_DIALOGUE_HEAVY if dialogue_heavy else 1.0
    low = min(held, max(HISTORY_FLOOR, situation.keep_tokens))
    high = max(low, min(held, int(budget * SEED_HISTORY_CAP)))
    return LayerSpec(
        layer=Layer.HISTORY,
        min_tokens=low,
        ideal_tokens=min(high, max(low, wants.part(budget, share))),
        max_tokens=high,
        priority=90 if dialogue_heavy else 80,
        elasticity=0.4,
        usable_tokens=held,
    )
