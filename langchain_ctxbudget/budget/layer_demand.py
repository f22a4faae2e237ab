"""The demands of single layers, by the formulas of the seeds; the strategies are made of these."""

from __future__ import annotations

import math

from langchain_ctxbudget.budget.allocation import LayerSpec, Situation
from langchain_ctxbudget.budget.layers import Layer

DEPTH_FACTOR = {"minimal": 0.5, "standard": 1.0, "deep": 1.5}
PRESSURE_WEIGHT = 0.4
"""The share that a long conversation takes from topics (the seed's comment says 0.5, its code 0.4)."""
PRESSURE_SHARE = 0.7
"""A conversation presses fully from this share of the budget on."""
TOPIC_SHARE, TOPIC_CAP, TOPIC_FLOOR = 0.12, 0.25, 300
ENTITY_SHARE, ENTITY_CAP, ENTITY_FLOOR, TOKENS_PER_ENTITY = 0.06, 0.12, 150, 400
TOPIC_STEP, ENTITY_STEP, MOST_TIMES = 0.3, 0.4, 2.0
MANY_TOPICS = 2
ARC_TOKENS_PER_DOUBLING = 150
RETRIEVAL_FLOOR = 200
MEMORY_SHARE, MEMORY_MIN, MEMORY_MAX = 0.25, 150, 500
"""Seed 001: facts about the user get 25 % of what is left, between 150 and 500 tokens."""
LEARNED_SHARE = 0.02
"""Of the budget, for learned facts where the conversation does not go in whole: its own words are worth more there."""
PREFERENCES_PRIORITY, PREFERENCES_SHARE = 95, 1 / 3
REOPEN_SHARE = 0.6
"""A compacted conversation is shown whole again only below this share of the room, or a long and a short
message in turn would rewrite the prompt every time."""


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

    Args:
        situation: the situation to divide in.
        room_tokens: the room that they share with others.
        learned_share: of the budget, for learned facts.
    """
    left = situation.total_tokens - situation.identity_tokens - situation.preferences_tokens
    learned = min(situation.learned_tokens, int(situation.total_tokens * learned_share))
    memories = situation.memory_tokens - situation.learned_tokens + learned
    tokens = situation.preferences_tokens + min(memories, memory_tokens(left))
    return LayerSpec(
        layer=Layer.PREFERENCES,
        min_tokens=tokens if tokens <= room_tokens * PREFERENCES_SHARE else 0,
        ideal_tokens=tokens,
        max_tokens=tokens,
        priority=PREFERENCES_PRIORITY,
    )


def topics_demand(situation: Situation, floor_tokens: int = TOPIC_FLOOR) -> LayerSpec:
    """Returns the demand of topics (seed 000, L2): 12 % by depth and count, less under a long conversation."""
    budget, count, held = situation.total_tokens, situation.topic_count, situation.topic_tokens
    pressure = min(1.0, situation.history_tokens / (budget * PRESSURE_SHARE))
    factor = min(MOST_TIMES, 1.0 + (count - 1) * TOPIC_STEP) if count else 0.0
    wanted = budget * TOPIC_SHARE * DEPTH_FACTOR[situation.depth] * factor * (1 - pressure * PRESSURE_WEIGHT)
    high = min(held, int(budget * TOPIC_CAP))
    low = min(high, floor_tokens)
    return LayerSpec(
        layer=Layer.TOPICS,
        min_tokens=low,
        ideal_tokens=min(high, max(low, int(wanted))),
        max_tokens=high,
        priority=85 if is_knowledge_heavy(situation) else 70,
        elasticity=0.6,
    )


def entities_demand(situation: Situation, floor_tokens: int = ENTITY_FLOOR) -> LayerSpec:
    """Returns the demand of entities (seed 000, L3): 6 % of the budget by count, at most 400 tokens each."""
    budget, count, held = situation.total_tokens, situation.entity_count, situation.entity_tokens
    factor = min(MOST_TIMES, 1.0 + (count - 1) * ENTITY_STEP) if count else 0.0
    wanted = min(budget * ENTITY_SHARE * factor, count * TOKENS_PER_ENTITY)
    high = min(held, int(budget * ENTITY_CAP))
    low = min(high, floor_tokens)
    return LayerSpec(
        layer=Layer.ENTITIES,
        min_tokens=low,
        ideal_tokens=min(high, max(low, int(wanted))),
        max_tokens=high,
        priority=65,
        elasticity=0.7,
    )


def arc_ideal(situation: Situation) -> int:
    """Returns the ideal size of the arc (seed 000, L4): it grows with the logarithm of the message count."""
    return int(ARC_TOKENS_PER_DOUBLING * math.log2(situation.message_count + 1) * DEPTH_FACTOR[situation.depth])


def is_knowledge_heavy(situation: Situation) -> bool:
    """Returns True where knowledge comes before dialogue (seed 000)."""
    return situation.topic_count >= MANY_TOPICS or situation.depth == "deep"


def history_fits(situation: Situation, room_tokens: float) -> bool:
    """Returns True where the whole conversation goes into a room; one that was compacted needs more of it."""
    return situation.history_tokens <= room_tokens * (REOPEN_SHARE if situation.compacted else 1.0)


def rigid_demand(
    layer: str, tokens: int, priority: int, *, floor_tokens: int = 0, usable_tokens: int | None = None
) -> LayerSpec:
    """Returns a demand for exactly so many tokens, or as many of them as there are."""
    return LayerSpec(
        layer=layer,
        min_tokens=floor_tokens,
        ideal_tokens=tokens,
        max_tokens=tokens,
        priority=priority,
        usable_tokens=usable_tokens,
    )
