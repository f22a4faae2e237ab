"""The default strategy: layers that stretch and give way with the situation.

Structure and constants are those of seed 000 (`8e3a336c631f9549`, "The Master Budget Algorithm") with the
corrections of the design, in the profile `adaptive`: floors scale with the budget (the seed's alone add up
to 1,150 tokens), and history and retrieval share one pool, because under the seed's caps retrieval gets
10 to 18 %, far too little when a history is many times the budget.
"""

from __future__ import annotations

import math

from langchain_ctxbudget.core.allocation.model import Allocation, LayerSpec, Situation
from langchain_ctxbudget.core.allocation.solver import divide
from langchain_ctxbudget.core.layers import Layer

DEPTH_FACTOR = {"minimal": 0.5, "standard": 1.0, "deep": 1.5}
PRESSURE_WEIGHT = 0.4
"""How much a long conversation takes from topics (the seed's comment says 0.5, its code 0.4)."""

TOPIC_SHARE, TOPIC_CAP, TOPIC_FLOOR = 0.12, 0.25, 300
ENTITY_SHARE, ENTITY_CAP, ENTITY_FLOOR, TOKENS_PER_ENTITY = 0.06, 0.12, 150, 400
ARC_TOKENS_PER_DOUBLING, ARC_SHARE, ARC_CAP, ARC_FLOOR = 150, 0.08, 0.12, 200
RETRIEVAL_FLOOR, HISTORY_FLOOR = 200, 500
FLOOR_SHARE = 0.05
"""A floor is the seed's number or this share of the budget, whichever is less."""

REOPEN_SHARE = 0.6
"""A compacted conversation is shown whole again only below this share of the room, or a long and a short
message in turn would rewrite the prompt every time."""

KEEP_ROOM = 2.0
"""Room for history, as a multiple of the newest messages that must stay: they may not pass the compaction
trigger by themselves, or every turn would compact."""

HISTORY_MIN_SHARE = 0.35
"""What history keeps of the pool that it shares with retrieval, however long it is."""


def history_share(ratio: float) -> float:
    """The share of the pool that goes to history when it is `ratio` times as large as the pool.

    One at ratio 1, a half at 4, `HISTORY_MIN_SHARE` from about 8 on: the longer a conversation, the
    smaller the part of it that its newest messages are, and the more there is to retrieve.
    """
    return max(HISTORY_MIN_SHARE, min(1.0, 1.0 / math.sqrt(max(ratio, 1.0))))


def elastic(situation: Situation) -> Allocation:
    """Divide the budget by the situation (seed 000, profile `adaptive`).

    Args:
        situation: sizes of everything that wants to be in the prompt. What must be sent is taken as it is;
            whether it fits at all is checked before.
    """
    budget = situation.total_tokens
    fixed = situation.overhead_tokens + situation.identity_tokens
    free = max(0, budget - fixed - situation.message_tokens)
    room = free - situation.preferences_tokens - _knowledge_ideal(situation)
    fits_whole = situation.history_tokens <= (room * REOPEN_SHARE if situation.compacted else room)
    specs = (
        _rigid(Layer.PREFERENCES, situation.preferences_tokens, priority=95),
        _topics(situation),
        _entities(situation),
        *(_whole(situation, free) if fits_whole else _compacted(situation, fixed)),
    )
    tokens = divide(specs, free)
    tokens[Layer.IDENTITY] = situation.identity_tokens
    tokens[Layer.MESSAGE] = situation.message_tokens
    return Allocation(strategy="elastic", total_tokens=budget, tokens=tokens, specs=specs, fits_whole=fits_whole)


def _floor(tokens: int, budget: int) -> int:
    return min(tokens, int(budget * FLOOR_SHARE))


def _rigid(layer: Layer, tokens: int, priority: int) -> LayerSpec:
    return LayerSpec(layer=layer, min_tokens=0, ideal_tokens=tokens, max_tokens=tokens, priority=priority)


def _pressure(situation: Situation) -> float:
    return min(1.0, situation.history_tokens / (situation.total_tokens * 0.7))


def _topics(situation: Situation) -> LayerSpec:
    budget, count, held = situation.total_tokens, situation.topic_count, situation.topic_tokens
    factor = min(2.0, 1.0 + (count - 1) * 0.3) if count else 0.0
    wanted = budget * TOPIC_SHARE * DEPTH_FACTOR[situation.depth] * factor
    wanted *= 1 - _pressure(situation) * PRESSURE_WEIGHT
    knowledge_heavy = count >= 2 or situation.depth == "deep"  # noqa: PLR2004 - the seed's number
    low, high = min(held, _floor(TOPIC_FLOOR, budget)), min(held, int(budget * TOPIC_CAP))
    return LayerSpec(
        layer=Layer.TOPICS,
        min_tokens=low,
        ideal_tokens=min(high, max(low, int(wanted))),
        max_tokens=high,
        priority=85 if knowledge_heavy else 70,
        elasticity=0.6,
    )


def _entities(situation: Situation) -> LayerSpec:
    budget, count, held = situation.total_tokens, situation.entity_count, situation.entity_tokens
    factor = min(2.0, 1.0 + (count - 1) * 0.4) if count else 0.0
    wanted = min(budget * ENTITY_SHARE * factor, count * TOKENS_PER_ENTITY)
    low, high = min(held, _floor(ENTITY_FLOOR, budget)), min(held, int(budget * ENTITY_CAP))
    return LayerSpec(
        layer=Layer.ENTITIES,
        min_tokens=low,
        ideal_tokens=min(high, max(low, int(wanted))),
        max_tokens=high,
        priority=65,
        elasticity=0.7,
    )


def _knowledge_ideal(situation: Situation) -> int:
    return _topics(situation).ideal_tokens + _entities(situation).ideal_tokens


def _whole(situation: Situation, free: int) -> tuple[LayerSpec, ...]:
    """Everything that was said goes in: no arc, nothing to retrieve from this conversation."""
    history = situation.history_tokens
    return (
        LayerSpec(layer=Layer.ARC, min_tokens=0, ideal_tokens=0, max_tokens=0, priority=88),
        LayerSpec(layer=Layer.RETRIEVAL, min_tokens=0, ideal_tokens=0, max_tokens=free, priority=75),
        LayerSpec(layer=Layer.HISTORY, min_tokens=history, ideal_tokens=history, max_tokens=history, priority=90),
    )


def _compacted(situation: Situation, fixed: int) -> tuple[LayerSpec, ...]:
    """History and retrieval share a pool that does not depend on this turn, so that history stays put."""
    budget = situation.total_tokens
    depth = DEPTH_FACTOR[situation.depth]
    steady = max(0, budget - fixed - situation.preferences_tokens)
    wanted_arc = ARC_TOKENS_PER_DOUBLING * math.log2(situation.message_count + 1) * depth
    arc = int(min(wanted_arc, steady * ARC_SHARE))
    retrieval = _floor(RETRIEVAL_FLOOR, budget)
    pool = max(0, steady - arc)
    least = max(situation.keep_tokens, _floor(HISTORY_FLOOR, budget))
    share = history_share(situation.history_tokens / max(1, pool))
    history = max(least, int(pool * share), int(situation.keep_tokens * KEEP_ROOM))
    return (
        LayerSpec(
            layer=Layer.ARC,
            min_tokens=min(arc, _floor(ARC_FLOOR, budget)),
            ideal_tokens=arc,
            max_tokens=int(steady * ARC_CAP),
            priority=88 if situation.prioritize_history else 72,
            elasticity=0.3,
        ),
        LayerSpec(
            layer=Layer.RETRIEVAL,
            min_tokens=retrieval,
            ideal_tokens=max(retrieval, pool - history),
            max_tokens=budget,
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
