"""What single layers want, by the formulas of the seeds; the strategies are made of these."""

from __future__ import annotations

import math

from langchain_ctxbudget.core.allocation.model import Situation
from langchain_ctxbudget.core.allocation.solver import LayerSpec
from langchain_ctxbudget.core.layers import Layer

DEPTH_FACTOR = {"minimal": 0.5, "standard": 1.0, "deep": 1.5}
PRESSURE_WEIGHT = 0.4
"""How much a long conversation takes from topics (the seed's comment says 0.5, its code 0.4)."""
PRESSURE_SHARE = 0.7
"""A conversation presses fully from this share of the budget on."""

TOPIC_SHARE, TOPIC_CAP, TOPIC_FLOOR = 0.12, 0.25, 300
TOPIC_STEP, ENTITY_STEP, MOST_TIMES = 0.3, 0.4, 2.0
ENTITY_SHARE, ENTITY_CAP, ENTITY_FLOOR, TOKENS_PER_ENTITY = 0.06, 0.12, 150, 400
ARC_TOKENS_PER_DOUBLING = 150
RETRIEVAL_FLOOR = 200
MANY_TOPICS = 2

LEARNED_SHARE = 0.02
"""Of the budget, what was learned about the user may take where the conversation does not go in whole: what was said is
worth more there."""
MEMORY_SHARE, MEMORY_MIN, MEMORY_MAX = 0.25, 150, 500
"""Seed 001: what is known about the user gets 25 % of what is left, between 150 and 500 tokens."""

PREFERENCES_PRIORITY, PREFERENCES_SHARE = 95, 1 / 3
REOPEN_SHARE = 0.6
"""A compacted conversation is shown whole again only below this share of the room, or a long and a short
message in turn would rewrite the prompt every time."""


def part(tokens: int, share: float) -> int:
    """A share of tokens, rounded down; 0.3 - 0.1 is a fifth, although in binary it is a little less."""
    return int(tokens * share + 1e-6)


def memory_tokens(left_tokens: int) -> int:
    """What is known about the user may cost this much when `left_tokens` are left (seed 001)."""
    return max(MEMORY_MIN, min(MEMORY_MAX, int(left_tokens * MEMORY_SHARE)))


def preferences(situation: Situation, room_tokens: int, learned_share: float = 1.0) -> LayerSpec:
    """Preferences as they are, and what is known about the user within the rule of seed 001.

    They stand at the beginning of the prompt, so their size must not follow that of the current message: what is left
    is counted without it, and up to a third of the room they do not shrink for others.

    Args:
        situation: what there is.
        room_tokens: what they share with others.
        learned_share: of the budget, for what was learned about the user.
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


def topics(situation: Situation, floor_tokens: int = TOPIC_FLOOR) -> LayerSpec:
    """Topics (seed 000, L2): 12 % of the budget by depth and count, less under a long conversation."""
    budget, count, held = situation.total_tokens, situation.topic_count, situation.topic_tokens
    factor = min(MOST_TIMES, 1.0 + (count - 1) * TOPIC_STEP) if count else 0.0
    wanted = budget * TOPIC_SHARE * DEPTH_FACTOR[situation.depth] * factor
    wanted *= 1 - pressure(situation) * PRESSURE_WEIGHT
    high = min(held, int(budget * TOPIC_CAP))
    low = min(high, floor_tokens)
    return LayerSpec(
        layer=Layer.TOPICS,
        min_tokens=low,
        ideal_tokens=min(high, max(low, int(wanted))),
        max_tokens=high,
        priority=85 if knowledge_heavy(situation) else 70,
        elasticity=0.6,
    )


def entities(situation: Situation, floor_tokens: int = ENTITY_FLOOR) -> LayerSpec:
    """Entities (seed 000, L3): 6 % of the budget by count, at most 400 tokens each."""
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
    """The arc (seed 000, L4) grows with the logarithm of the conversation's length."""
    return int(ARC_TOKENS_PER_DOUBLING * math.log2(situation.message_count + 1) * DEPTH_FACTOR[situation.depth])


def pressure(situation: Situation) -> float:
    """How much of the budget the conversation would fill, up to 1 (seed 000)."""
    return min(1.0, situation.history_tokens / (situation.total_tokens * PRESSURE_SHARE))


def knowledge_heavy(situation: Situation) -> bool:
    """Whether knowledge comes before dialogue (seed 000)."""
    return situation.topic_count >= MANY_TOPICS or situation.depth == "deep"


def rigid(layer: str, tokens: int, priority: int) -> LayerSpec:
    """A layer that wants exactly this, or as much of it as there is."""
    return LayerSpec(layer=layer, min_tokens=0, ideal_tokens=tokens, max_tokens=tokens, priority=priority)


def history_fits(situation: Situation, room_tokens: float) -> bool:
    """Whether the whole conversation goes into a room, with the caution of one that was compacted before."""
    return situation.history_tokens <= room_tokens * (REOPEN_SHARE if situation.compacted else 1.0)
