"""The demands of layers that several strategies have in common."""

import math
from dataclasses import dataclass

from langchain_ctxbudget.budget.allocation import Layer, LayerSpec, Situation

DEPTH_FACTOR = {"minimal": 0.5, "standard": 1.0, "deep": 1.5}
"""What topics, the arc and retrieval want by depth, as a share of the standard."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnowledgePolicy:
    """How much topics, or entities, want."""

    budget_share: float
    """The share of the budget that one of them wants."""
    growth: float
    """What every further one wants, as a share of that."""
    cap: float
    """The largest share of the budget."""
    floor_tokens: int
    priority: int
    elasticity: float


TOPICS = KnowledgePolicy(
    budget_share=0.12, growth=0.3, cap=0.25, floor_tokens=300, priority=70, elasticity=0.6
)
ENTITIES = KnowledgePolicy(
    budget_share=0.06, growth=0.4, cap=0.12, floor_tokens=150, priority=65, elasticity=0.7
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DemandPolicy:
    """What topics and entities want together, and what arc, preferences and facts want."""

    most_growth: float = 2.0
    """However many topics or entities there are, they want at most so many times what one wants."""
    pressure_share: float = 0.7
    """From this share of the budget on, a conversation presses on topics as much as it can."""
    pressure_weight: float = 0.4
    """The share that it takes from what topics want then."""
    many_topics: int = 2
    """From so many topics on, they come before retrieval."""
    many_topics_priority: int = 85
    tokens_per_entity: int = 400
    """The most that an entity wants."""
    arc_tokens_per_doubling: int = 150
    """What the arc wants more when the conversation is twice as long, in messages."""
    preferences_priority: int = 95
    preferences_share: float = 1 / 3
    """Up to this share of the room, preferences have to fit as a whole."""
    memory_share: float = 0.25
    """The share of what is left that facts about the user get, within the two bounds below."""
    memory_min: int = 150
    memory_max: int = 500


POLICY = DemandPolicy()
MEMORY_MAX = POLICY.memory_max


def share_of(tokens: int, share: float) -> int:
    """Returns a share of tokens, rounded down.

    0.3 - 0.1 counts as a fifth, although in binary it is a little less.
    """
    return int(tokens * share + 1e-6)


def memory_tokens(left_tokens: int) -> int:
    """Returns the tokens for facts about the user when `left_tokens` are left."""
    return max(POLICY.memory_min, min(POLICY.memory_max, int(left_tokens * POLICY.memory_share)))


def preferences_demand(
    situation: Situation, room_tokens: int, learned_share: float = 1.0, *, taken_tokens: int = 0
) -> LayerSpec:
    """Returns the demand of preferences and facts, whatever the current message costs.

    Args:
        situation: What the budget is divided in.
        room_tokens: The room that preferences share with others.
        learned_share: The largest share of the budget for learned facts.
        taken_tokens: What others take before facts get their share of the rest.
    """
    left_tokens = (
        situation.total_tokens
        - situation.identity_tokens
        - situation.preferences_tokens
        - taken_tokens
    )
    largest_total = max(situation.total_tokens, situation.grown_tokens)
    most_learned = max(POLICY.memory_min, int(largest_total * learned_share))
    given_memories = situation.memory_tokens - situation.learned_tokens
    memories = given_memories + min(situation.learned_tokens, most_learned)
    tokens = situation.preferences_tokens + min(memories, memory_tokens(left_tokens))
    floor = situation.rule_tokens
    if tokens <= room_tokens * POLICY.preferences_share:
        floor = tokens
    return LayerSpec(Layer.PREFERENCES, floor, tokens, tokens, POLICY.preferences_priority)


def topics_demand(situation: Situation, floor_tokens: int = TOPICS.floor_tokens) -> LayerSpec:
    """Returns the demand of topics: 12 % of the budget, by depth and count.

    It is less under a long conversation.
    """
    budget = situation.total_tokens
    pressure = min(1.0, situation.history_tokens / (budget * POLICY.pressure_share))
    wanted = (
        budget
        * TOPICS.budget_share
        * DEPTH_FACTOR[situation.depth]
        * _growth(situation.topic_count, TOPICS.growth)
    )
    wanted_under_pressure = int(wanted * (1 - pressure * POLICY.pressure_weight))
    priority = TOPICS.priority
    if situation.topic_count >= POLICY.many_topics or situation.depth == "deep":
        priority = POLICY.many_topics_priority
    return _knowledge_spec(
        Layer.TOPICS,
        TOPICS,
        held_tokens=situation.topic_tokens,
        most_tokens=int(budget * TOPICS.cap),
        floor_tokens=floor_tokens,
        wanted_tokens=wanted_under_pressure,
        priority=priority,
    )


def entities_demand(situation: Situation, floor_tokens: int = ENTITIES.floor_tokens) -> LayerSpec:
    """Returns the demand of entities: 6 % of the budget by count, at most 400 tokens each."""
    budget = situation.total_tokens
    count = situation.entity_count
    wanted = budget * ENTITIES.budget_share * _growth(count, ENTITIES.growth)
    return _knowledge_spec(
        Layer.ENTITIES,
        ENTITIES,
        held_tokens=situation.entity_tokens,
        most_tokens=int(budget * ENTITIES.cap),
        floor_tokens=floor_tokens,
        wanted_tokens=int(min(wanted, count * POLICY.tokens_per_entity)),
        priority=ENTITIES.priority,
    )


def _knowledge_spec(
    layer: Layer,
    policy: KnowledgePolicy,
    *,
    held_tokens: int,
    most_tokens: int,
    floor_tokens: int,
    wanted_tokens: int,
    priority: int,
) -> LayerSpec:
    """Returns the demand of a layer that never wants more than it holds.

    Of what nobody else wants it takes all that it holds, so that no text is cut beside free room.
    """
    high = min(held_tokens, most_tokens)
    low = min(high, floor_tokens)
    ideal = min(high, max(low, wanted_tokens))
    return LayerSpec(
        layer,
        low,
        ideal,
        high,
        priority,
        elasticity=policy.elasticity,
        usable_tokens=held_tokens,
    )


def _growth(count: int, growth: float) -> float:
    """Returns what so many topics or entities want, as a multiple of what one wants."""
    if not count:
        return 0.0
    return min(POLICY.most_growth, 1.0 + (count - 1) * growth)


def arc_ideal(situation: Situation) -> int:
    """Returns the ideal size of the arc in tokens.

    It grows with the logarithm of the message count.
    """
    doublings = math.log2(situation.message_count + 1)
    return int(POLICY.arc_tokens_per_doubling * doublings * DEPTH_FACTOR[situation.depth])
