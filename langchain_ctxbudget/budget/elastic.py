"""The default strategy, of layers that stretch and give way with the situation, and the demands that all share.

Structure and constants are those of seed 000 (`8e3a336c631f9549`, "The Master Budget Algorithm") with the
corrections of the design. The profile `seed` has the seed's floors and caps; only history may pass its cap with what
no one else wants. In the profile `adaptive` floors scale with the budget (the seed's alone add up to 1,150 tokens),
and history and retrieval share one pool, because under the seed's caps retrieval gets 10 to 18 %, far too little when
a history is many times the budget.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Literal, NamedTuple

from langchain_ctxbudget.budget.allocation import Allocation, Emphasis, Layer, LayerSpec, Situation, share_out
from langchain_ctxbudget.budget.parameters import Parameters

DEPTH_FACTOR = {"minimal": 0.5, "standard": 1.0, "deep": 1.5}
PRESSURE_WEIGHT = 0.4
"""The share that a long conversation takes from topics (the seed's comment says 0.5, its code 0.4)."""
PRESSURE_SHARE = 0.7
"""A conversation presses fully from this share of the budget on."""
TOPIC_SHARE, TOPIC_STEP, TOPIC_CAP, TOPIC_FLOOR, MANY_TOPICS = 0.12, 0.3, 0.25, 300, 2
ENTITY_SHARE, ENTITY_STEP, ENTITY_CAP, ENTITY_FLOOR, TOKENS_PER_ENTITY = 0.06, 0.4, 0.12, 150, 400
MOST_TIMES = 2.0
ARC_TOKENS_PER_DOUBLING, ARC_FLOOR, ARC_CAP = 150, 200, 0.12
RETRIEVAL_FLOOR, HISTORY_FLOOR = 200, 500
MEMORY_SHARE, MEMORY_MIN, MEMORY_MAX = 0.25, 150, 500
"""Seed 001: facts about the user get 25 % of what is left, between 150 and 500 tokens."""
LEARNED_SHARE = 0.02
"""Of the budget, for learned facts where the conversation does not go in whole: its own words are worth more there."""
PREFERENCES_PRIORITY, PREFERENCES_SHARE = 95, 1 / 3
FLOOR_SHARE = 0.05
"""A floor is the seed's number or this share of the budget, whichever is less."""
ARC_FROM_TOKENS = 2_048
"""A budget up to this has no arc: there, what is not retrieved is not seen at all."""
PINNED_SHARE = 0.25
"""The share of the pool for pinned messages, beside the rest of the history."""
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
    arc_share: float
    """The arc's ideal share of what system prompt and preferences leave."""


LEANS: dict[Emphasis, Lean] = {
    "recall": Lean(0.0, 2.0, arc_share=0.02),
    "balanced": Lean(0.1, 2.0, arc_share=0.03),
    "cache": Lean(0.35, 0.5, arc_share=0.08),
}
"""By measurement: docs/internals/retrieval.md shows recall against what prompts cost."""


class ElasticAllocation(Parameters):
    """Layers with floor, ideal, maximum, priority and elasticity, computed from the situation (seed 000)."""

    profile: Literal["adaptive", "seed"] = "adaptive"

    @property
    def name(self) -> str:
        """`elastic`, with its profile where that is not the default."""
        return "elastic" if self.profile == "adaptive" else f"elastic ({self.profile})"

    def allocate(self, situation: Situation) -> Allocation:
        """Divides the budget by the situation; in the profile `seed`, by the seed's own floors and caps."""
        s, seed = situation, self.profile == "seed"
        preferences = _seed_preferences(s) if seed else preferences_demand(s, s.free_tokens)
        topics = topics_demand(s, TOPIC_FLOOR if seed else _floor(TOPIC_FLOOR, s))
        entities = entities_demand(s, ENTITY_FLOOR if seed else _floor(ENTITY_FLOOR, s))
        # Of a custom layer only the floor is kept from a history that would go in whole: with the ideal, wanting more
        # could compact the conversation, and so give a layer less.
        kept = sum(spec.ideal_tokens for spec in (preferences, topics, entities))
        fits_whole = s.history_tokens <= s.free_tokens - kept - sum(spec.min_tokens for spec in s.custom)
        if not fits_whole and not seed:  # the same at every turn from here on
            preferences = preferences_demand(s, s.free_tokens, LEARNED_SHARE)
        if fits_whole:
            dialogue = _whole(s)
        elif seed:
            dialogue = _seed_dialogue(s)
        else:
            fixed = s.overhead_tokens + s.identity_tokens + preferences.ideal_tokens
            dialogue = _compacted(s, max(0, s.total_tokens - fixed))
        specs = (preferences, topics, entities, *s.custom, *dialogue)
        return share_out(self.name, situation, specs, fits_whole=fits_whole)


def _floor(tokens: int, situation: Situation) -> int:
    return min(tokens, int(situation.total_tokens * FLOOR_SHARE))


def _whole(situation: Situation) -> Iterable[LayerSpec]:
    history = situation.history_tokens
    return (
        LayerSpec(Layer.ARC, 0, 0, 0, priority=88),
        LayerSpec(Layer.RETRIEVAL, 0, 0, situation.free_tokens, priority=75),
        LayerSpec(Layer.HISTORY, history, history, history, priority=90),
    )


def _compacted(situation: Situation, steady: int) -> Iterable[LayerSpec]:
    """Returns the demands of history and retrieval, from a pool that does not depend on this turn."""
    budget, held, lean = situation.total_tokens, situation.history_tokens, LEANS[situation.emphasis]
    arc = int(min(arc_ideal(situation), steady * lean.arc_share)) if budget > ARC_FROM_TOKENS else 0
    retrieval = _floor(RETRIEVAL_FLOOR, situation)
    pool = max(0, steady - arc)
    least = min(held, max(situation.keep_tokens, _floor(HISTORY_FLOOR, situation)))
    share = max(lean.least_share, 1.0 / max(held / max(1, pool), 1.0) ** lean.falls)  # less of a longer one
    share /= max(1.0, DEPTH_FACTOR[situation.depth])
    pinned = min(situation.pinned_tokens, int(pool * PINNED_SHARE))
    history = min(held, pinned + max(least, int(pool * share)))
    is_minimal = situation.depth == "minimal"  # what is left stays empty
    wanted = max(retrieval, int((pool - history) * min(1.0, DEPTH_FACTOR[situation.depth])))
    retrieval_most = wanted if is_minimal else max(wanted, budget)
    arc_priority, history_priority, elasticity = (88, 90, 0.4) if situation.prioritize_history else (72, 78, 0.6)
    arc_floor = min(arc, _floor(ARC_FLOOR, situation))
    arc_most = max(arc, int(steady * ARC_CAP)) if arc and not is_minimal else arc
    return (
        LayerSpec(Layer.ARC, arc_floor, arc, arc_most, arc_priority, elasticity=0.3),
        LayerSpec(Layer.RETRIEVAL, retrieval, wanted, retrieval_most, 75, 0.5),
        LayerSpec(Layer.HISTORY, least, history, history, history_priority, elasticity),
    )


def _seed_preferences(situation: Situation) -> LayerSpec:
    """Returns the demand of L1, "non-negotiable" in the seed: its ideal is its floor, and it has to fit."""
    wanted = preferences_demand(situation, situation.free_tokens)
    held = wanted.ideal_tokens
    share = int(situation.total_tokens * SEED_PREFERENCES_SHARE)
    ideal = max(SEED_PREFERENCES_FLOOR, min(SEED_PREFERENCES_IDEAL, share))
    least = min(held, ideal if wanted.min_tokens else SEED_PREFERENCES_FLOOR)
    most = min(held, SEED_PREFERENCES_MAX)
    return LayerSpec(Layer.PREFERENCES, least, min(held, ideal), most, PREFERENCES_PRIORITY, elasticity=0.1)


def _seed_dialogue(situation: Situation) -> Iterable[LayerSpec]:
    """Returns the seed's demands; a layer never wants more than it holds, as sizes are known here."""
    budget, held = situation.total_tokens, situation.history_tokens
    arc = max(ARC_FLOOR, min(arc_ideal(situation), int(budget * SEED_ARC_SHARE)))
    arc_most = max(ARC_FLOOR, int(budget * SEED_ARC_CAP))
    coverage = max(SEED_LEAST_COVERAGE, 1.0 - min(1.0, situation.topic_tokens / (budget * SEED_COVERED_SHARE)))
    retrieval = int(budget * SEED_RETRIEVAL_SHARE * coverage * DEPTH_FACTOR[situation.depth])
    retrieval_most = max(RETRIEVAL_FLOOR, int(budget * SEED_RETRIEVAL_CAP))
    retrieval = min(retrieval_most, max(RETRIEVAL_FLOOR, retrieval))
    dialogue_heavy = situation.message_count > SEED_MANY_MESSAGES and situation.prioritize_history
    if held <= SEED_SMALL_TOKENS:
        share = min(1.0, held / budget)
    else:
        share = next(share for most, share in SEED_HISTORY_SHARES if held <= most)
    share *= SEED_PRIORITIZED if situation.prioritize_history else 1.0
    share *= SEED_DIALOGUE_HEAVY if dialogue_heavy else 1.0
    low = min(held, max(HISTORY_FLOOR, situation.keep_tokens))
    high = max(low, min(held, int(budget * SEED_HISTORY_CAP)))
    ideal = min(high, max(low, share_of(budget, share)))
    return (
        LayerSpec(Layer.ARC, ARC_FLOOR, arc, arc_most, priority=88, elasticity=0.3),
        LayerSpec(Layer.RETRIEVAL, RETRIEVAL_FLOOR, retrieval, retrieval_most, 75, 0.5),
        LayerSpec(Layer.HISTORY, low, ideal, high, 90 if dialogue_heavy else 80, 0.4, usable_tokens=held),
    )


# Demands of single layers


def share_of(tokens: int, share: float) -> int:
    """Returns a share of tokens, rounded down; 0.3 - 0.1 is a fifth, although in binary it is a little less."""
    return int(tokens * share + 1e-6)


def memory_tokens(left_tokens: int) -> int:
    """Returns the tokens for facts about the user when `left_tokens` are left (seed 001)."""
    return max(MEMORY_MIN, min(MEMORY_MAX, int(left_tokens * MEMORY_SHARE)))


def preferences_demand(situation: Situation, room_tokens: int, learned_share: float = 1.0) -> LayerSpec:
    """Returns the demand of preferences as they are, and of facts about the user within the rule of seed 001.

    They stand at the beginning of the prompt, so their size must not follow that of the current message: it is not
    taken off, and up to a third of the room they do not shrink for others.
    """
    left = situation.total_tokens - situation.identity_tokens - situation.preferences_tokens
    learned = min(situation.learned_tokens, int(situation.total_tokens * learned_share))
    memories = situation.memory_tokens - situation.learned_tokens + learned
    tokens = situation.preferences_tokens + min(memories, memory_tokens(left))
    floor = tokens if tokens <= room_tokens * PREFERENCES_SHARE else 0
    return LayerSpec(Layer.PREFERENCES, floor, tokens, tokens, PREFERENCES_PRIORITY)


def topics_demand(situation: Situation, floor_tokens: int = TOPIC_FLOOR) -> LayerSpec:
    """Returns the demand of topics (seed 000, L2): 12 % by depth and count, less under a long conversation."""
    budget = situation.total_tokens
    pressure = min(1.0, situation.history_tokens / (budget * PRESSURE_SHARE))
    wanted = budget * TOPIC_SHARE * DEPTH_FACTOR[situation.depth] * _times(situation.topic_count, TOPIC_STEP)
    high = min(situation.topic_tokens, int(budget * TOPIC_CAP))
    low = min(high, floor_tokens)
    ideal = min(high, max(low, int(wanted * (1 - pressure * PRESSURE_WEIGHT))))
    return LayerSpec(Layer.TOPICS, low, ideal, high, 85 if is_knowledge_heavy(situation) else 70, elasticity=0.6)


def entities_demand(situation: Situation, floor_tokens: int = ENTITY_FLOOR) -> LayerSpec:
    """Returns the demand of entities (seed 000, L3): 6 % of the budget by count, at most 400 tokens each."""
    budget, count = situation.total_tokens, situation.entity_count
    wanted = min(budget * ENTITY_SHARE * _times(count, ENTITY_STEP), count * TOKENS_PER_ENTITY)
    high = min(situation.entity_tokens, int(budget * ENTITY_CAP))
    low = min(high, floor_tokens)
    return LayerSpec(Layer.ENTITIES, low, min(high, max(low, int(wanted))), high, priority=65, elasticity=0.7)


def _times(count: int, step: float) -> float:
    return min(MOST_TIMES, 1.0 + (count - 1) * step) if count else 0.0


def arc_ideal(situation: Situation) -> int:
    """Returns the ideal size of the arc (seed 000, L4): it grows with the logarithm of the message count."""
    return int(ARC_TOKENS_PER_DOUBLING * math.log2(situation.message_count + 1) * DEPTH_FACTOR[situation.depth])


def is_knowledge_heavy(situation: Situation) -> bool:
    """Returns True where knowledge comes before dialogue (seed 000)."""
    return situation.topic_count >= MANY_TOPICS or situation.depth == "deep"
