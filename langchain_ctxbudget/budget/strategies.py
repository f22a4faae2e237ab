"""The strategies (elastic layers, shares, a fixed order) and the demands that they have in common.

Structure and constants of `elastic` are those of seed 000. In the profile `adaptive` floors scale
with the budget, and history and retrieval share one pool. `fixed`, `dynamic` and `ratio` divide it
into buckets, and these between layers.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self, TypeAlias

from pydantic import Field, model_validator

from langchain_ctxbudget.budget import allocation
from langchain_ctxbudget.budget.allocation import (
    Allocation,
    AllocationStrategy,
    Layer,
    LayerSpec,
    Situation,
)
from langchain_ctxbudget.budget.parameters import Parameters, ShareOrNone, Text
from langchain_ctxbudget.errors import InvalidSettingsError, SystemPromptTooLargeError
from langchain_ctxbudget.messages import newest_that_fit

DEPTH_FACTOR = {"minimal": 0.5, "standard": 1.0, "deep": 1.5}
PRESSURE_WEIGHT = 0.4
"""The share that a long conversation takes from topics (the seed's comment says 0.5, its code
0.4)."""
PRESSURE_SHARE = 0.7
"""From this share of the budget on, a conversation takes all of that."""
TOPIC_SHARE = 0.12
TOPIC_STEP = 0.3
TOPIC_CAP = 0.25
TOPIC_FLOOR = 300
MANY_TOPICS = 2
ENTITY_SHARE = 0.06
ENTITY_STEP = 0.4
ENTITY_CAP = 0.12
ENTITY_FLOOR = 150
TOKENS_PER_ENTITY = 400
MOST_TIMES = 2.0
ARC_TOKENS_PER_DOUBLING = 150
ARC_FLOOR = 200
ARC_CAP = 0.12
RETRIEVAL_FLOOR = 200
HISTORY_FLOOR = 500
MEMORY_SHARE = 0.25
MEMORY_MIN = 150
MEMORY_MAX = 500
"""Seed 001: facts about the user get 25 % of what is left, between 150 and 500 tokens."""
LEARNED_SHARE = 0.02
LEARNED_MIN = 40
"""The share of the budget for learned facts once the conversation does not go in whole, because its
own words are worth more then; and the tokens that they get in any case."""
PREFERENCES_PRIORITY = 95
PREFERENCES_SHARE = 1 / 3
FLOOR_SHARE = 0.05
"""A floor is the seed's number or this share of the budget, whichever is less."""
ARC_FROM_TOKENS = 2_048
"""A budget up to this has no arc: there, what is not retrieved is not seen at all."""
PINNED_SHARE = 0.25
"""The share of the pool for pinned messages, beside the rest of the history."""
SEED_PREFERENCES_SHARE = 0.03
SEED_PREFERENCES_IDEAL = 600
SEED_PREFERENCES_MAX = 800
SEED_PREFERENCES_FLOOR = 100
SEED_ARC_SHARE = 0.15
SEED_ARC_CAP = 0.20
SEED_RETRIEVAL_SHARE = 0.10
SEED_RETRIEVAL_CAP = 0.18
SEED_LEAST_COVERAGE = 0.3
SEED_COVERED_SHARE = 0.15
SEED_HISTORY_CAP = 0.60
SEED_PRIORITIZED = 1.3
SEED_DIALOGUE_HEAVY = 1.2
SEED_MANY_MESSAGES = 20
SEED_SMALL_TOKENS = 3_000
SEED_HISTORY_SHARES = ((10_000, 0.35), (50_000, 0.30), (math.inf, 0.25))
"""Up to so many tokens of conversation, the ideal of history is that share of the budget."""


class Lean(NamedTuple):
    """The division of the pool that history and retrieval share.

    Retrieval finds, and history is cached.
    """

    least_share: float
    """The share of the pool that history keeps, however long it is."""
    falls: float
    """Its share falls by `1 / ratio ** falls`, for a history `ratio` times as large as the pool."""
    arc_share: float
    """The arc's ideal share of what system prompt and preferences leave."""


LEANS: dict[allocation.Emphasis, Lean] = {
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
        """Divides the budget by the situation.

        In the profile `seed`, by the seed's own floors and caps.
        """
        free = situation.free_tokens
        held = situation.history_tokens
        by_seed = self.profile == "seed"
        preferences = (
            _seed_preferences(situation) if by_seed else preferences_demand(situation, free)
        )
        topics = topics_demand(
            situation, TOPIC_FLOOR if by_seed else _floor(TOPIC_FLOOR, situation)
        )
        entities = entities_demand(
            situation, ENTITY_FLOOR if by_seed else _floor(ENTITY_FLOOR, situation)
        )
        # Of a custom layer only the floor is kept from a history that would go in whole: with the
        # ideal, wanting more could compact the conversation, and so give a layer less.
        wanted = sum(spec.ideal_tokens for spec in (preferences, topics, entities))
        fits_whole = held <= free - wanted - sum(spec.min_tokens for spec in situation.custom)
        if fits_whole:
            dialogue: Iterable[LayerSpec] = (
                LayerSpec(Layer.RETRIEVAL, 0, 0, free, priority=75),
                LayerSpec(Layer.HISTORY, held, held, held, priority=90),
            )
        elif by_seed:
            preferences = _seed_preferences(situation, held)
            dialogue = _seed_dialogue(situation)
        else:  # the same at every turn from here on
            preferences = preferences_demand(situation, free, LEARNED_SHARE)
            fixed = situation.overhead_tokens + situation.identity_tokens + preferences.ideal_tokens
            dialogue = _compacted(situation, max(0, situation.total_tokens - fixed))
        specs = (preferences, topics, entities, *situation.custom, *dialogue)
        return allocation.share_out(self.name, situation, specs, fits_whole=fits_whole)


def _floor(tokens: int, situation: Situation) -> int:
    return min(tokens, int(situation.total_tokens * FLOOR_SHARE))


def _compacted(situation: Situation, steady: int) -> Iterable[LayerSpec]:
    """Returns the demands of history and retrieval, from a pool that does not depend on this turn."""
    budget = situation.total_tokens
    held = situation.history_tokens
    lean = LEANS[situation.emphasis]
    grown = max(1, budget, situation.grown_tokens)  # the arc stands while the prompt grows
    arc_share = lean.arc_share * grown / max(1, budget)
    arc = int(min(arc_ideal(situation), steady * arc_share)) if grown > ARC_FROM_TOKENS else 0
    retrieval = _floor(RETRIEVAL_FLOOR, situation)
    pool = max(0, steady - arc)
    least = min(held, max(situation.keep_tokens, _floor(HISTORY_FLOOR, situation)))
    share = max(
        lean.least_share, 1.0 / max(held / max(1, pool), 1.0) ** lean.falls
    )  # less of a longer one
    share /= max(1.0, DEPTH_FACTOR[situation.depth])
    history = min(
        held, min(situation.pinned_tokens, int(pool * PINNED_SHARE)) + max(least, int(pool * share))
    )
    is_minimal = situation.depth == "minimal"  # what is left stays empty
    wanted = max(retrieval, int((pool - history) * min(1.0, DEPTH_FACTOR[situation.depth])))
    retrieval_most = wanted if is_minimal else max(wanted, budget)
    arc_priority, history_priority, elasticity = (
        (88, 90, 0.4) if situation.prioritize_history else (72, 78, 0.6)
    )
    arc_floor = min(arc, _floor(ARC_FLOOR, situation))
    arc_most = max(arc, int(steady * ARC_CAP)) if arc and not is_minimal else arc
    return (
        LayerSpec(Layer.ARC, arc_floor, arc, arc_most, arc_priority, elasticity=0.3),
        LayerSpec(Layer.RETRIEVAL, retrieval, wanted, retrieval_most, 75, 0.5),
        LayerSpec(Layer.HISTORY, least, history, history, history_priority, elasticity),
    )


def _seed_preferences(situation: Situation, conversation_tokens: int = 0) -> LayerSpec:
    """Returns the demand of L1, "non-negotiable" in the seed.

    Its ideal is its floor, and it has to fit.
    """
    wanted = preferences_demand(situation, situation.free_tokens, taken_tokens=conversation_tokens)
    held = wanted.ideal_tokens
    share = int(situation.total_tokens * SEED_PREFERENCES_SHARE)
    ideal = max(SEED_PREFERENCES_FLOOR, min(SEED_PREFERENCES_IDEAL, share))
    least = min(held, ideal if wanted.min_tokens else SEED_PREFERENCES_FLOOR)
    most = min(held, SEED_PREFERENCES_MAX)
    return LayerSpec(
        Layer.PREFERENCES, least, min(held, ideal), most, PREFERENCES_PRIORITY, elasticity=0.1
    )


def _seed_dialogue(situation: Situation) -> Iterable[LayerSpec]:
    """Returns the seed's demands.

    A layer never wants more than it holds, as sizes are known here.
    """
    budget = situation.total_tokens
    held = situation.history_tokens
    arc = max(ARC_FLOOR, min(arc_ideal(situation), int(budget * SEED_ARC_SHARE)))
    arc_most = max(ARC_FLOOR, int(budget * SEED_ARC_CAP))
    coverage = max(
        SEED_LEAST_COVERAGE, 1.0 - min(1.0, situation.topic_tokens / (budget * SEED_COVERED_SHARE))
    )
    retrieval = int(budget * SEED_RETRIEVAL_SHARE * coverage * DEPTH_FACTOR[situation.depth])
    retrieval_most = max(RETRIEVAL_FLOOR, int(budget * SEED_RETRIEVAL_CAP))
    retrieval = min(retrieval_most, max(RETRIEVAL_FLOOR, retrieval))
    dialogue_heavy = situation.message_count > SEED_MANY_MESSAGES and situation.prioritize_history
    of_large = next(share for most, share in SEED_HISTORY_SHARES if held <= most)
    share = min(1.0, held / budget) if held <= SEED_SMALL_TOKENS else of_large
    share *= SEED_PRIORITIZED if situation.prioritize_history else 1.0
    share *= SEED_DIALOGUE_HEAVY if dialogue_heavy else 1.0
    low = min(held, max(HISTORY_FLOOR, situation.keep_tokens))
    high = max(low, min(held, int(budget * SEED_HISTORY_CAP)))
    ideal = min(high, max(low, share_of(budget, share)))
    return (
        LayerSpec(Layer.ARC, ARC_FLOOR, arc, arc_most, priority=88, elasticity=0.3),
        LayerSpec(Layer.RETRIEVAL, RETRIEVAL_FLOOR, retrieval, retrieval_most, 75, 0.5),
        LayerSpec(
            Layer.HISTORY, low, ideal, high, 90 if dialogue_heavy else 80, 0.4, usable_tokens=held
        ),
    )


def share_of(tokens: int, share: float) -> int:
    """Returns a share of tokens, rounded down.

    0.3 - 0.1 is a fifth, although in binary it is a little less.
    """
    return int(tokens * share + 1e-6)


def memory_tokens(left_tokens: int) -> int:
    """Returns the tokens for facts about the user when `left_tokens` are left (seed 001)."""
    return max(MEMORY_MIN, min(MEMORY_MAX, int(left_tokens * MEMORY_SHARE)))


def preferences_demand(
    situation: Situation, room_tokens: int, learned_share: float = 1.0, *, taken_tokens: int = 0
) -> LayerSpec:
    """Returns the demand of preferences, and of facts by seed 001's rule, whatever the current message costs."""
    left = (
        situation.total_tokens
        - situation.identity_tokens
        - situation.preferences_tokens
        - taken_tokens
    )
    total = max(situation.total_tokens, situation.grown_tokens)
    learned = min(situation.learned_tokens, max(LEARNED_MIN, int(total * learned_share)))
    memories = situation.memory_tokens - situation.learned_tokens + learned
    tokens = situation.preferences_tokens + min(memories, memory_tokens(left))
    floor = tokens if tokens <= room_tokens * PREFERENCES_SHARE else 0
    return LayerSpec(Layer.PREFERENCES, floor, tokens, tokens, PREFERENCES_PRIORITY)


def topics_demand(situation: Situation, floor_tokens: int = TOPIC_FLOOR) -> LayerSpec:
    """Returns the demand of topics (seed 000, L2).

    12 % by depth and count, less under a long conversation.
    """
    budget = situation.total_tokens
    pressure = min(1.0, situation.history_tokens / (budget * PRESSURE_SHARE))
    wanted = (
        budget
        * TOPIC_SHARE
        * DEPTH_FACTOR[situation.depth]
        * _growth(situation.topic_count, TOPIC_STEP)
    )
    high = min(situation.topic_tokens, int(budget * TOPIC_CAP))
    low = min(high, floor_tokens)
    ideal = min(high, max(low, int(wanted * (1 - pressure * PRESSURE_WEIGHT))))
    is_knowledge_heavy = situation.topic_count >= MANY_TOPICS or situation.depth == "deep"
    return LayerSpec(
        Layer.TOPICS, low, ideal, high, 85 if is_knowledge_heavy else 70, elasticity=0.6
    )


def entities_demand(situation: Situation, floor_tokens: int = ENTITY_FLOOR) -> LayerSpec:
    """Returns the demand of entities (seed 000, L3).

    6 % of the budget by count, at most 400 tokens each.
    """
    budget = situation.total_tokens
    count = situation.entity_count
    wanted = min(budget * ENTITY_SHARE * _growth(count, ENTITY_STEP), count * TOKENS_PER_ENTITY)
    high = min(situation.entity_tokens, int(budget * ENTITY_CAP))
    low = min(high, floor_tokens)
    return LayerSpec(
        Layer.ENTITIES, low, min(high, max(low, int(wanted))), high, priority=65, elasticity=0.7
    )


def _growth(count: int, step: float) -> float:
    return min(MOST_TIMES, 1.0 + (count - 1) * step) if count else 0.0


def arc_ideal(situation: Situation) -> int:
    """Returns the ideal size of the arc (seed 000, L4).

    It grows with the logarithm of the message count.
    """
    return int(
        ARC_TOKENS_PER_DOUBLING
        * math.log2(situation.message_count + 1)
        * DEPTH_FACTOR[situation.depth]
    )


# Shares, and an order

ARC_SHARE = 0.2
"""The most that the arc may take of the room for history."""
HISTORY_PRIORITY = 90
ARC_PRIORITY = 88
RETRIEVAL_PRIORITY = 75
SUM_TOLERANCE = 0.05
"""Ratios may add up to this much more or less than 1 (seed 002)."""
SEED_WINDOW = 4_096
"""The window that the defaults of seed 004 are made for."""
DYNAMIC_SYSTEM_TOKENS = 400
DYNAMIC_SHARES = ((3, (15, 15, 60)), (10, (30, 20, 40)), (None, (40, 25, 25)))
"""Up to so many messages: history, entities and retrieval in percent of what message and overhead
leave."""
MANY_ENTITIES = 10
MANY_ENTITIES_FACTOR = 1.3
ORDER = ("preferences", "history", "topics", "entities", "retrieval")
"""The order of seed 004, its entities as topics and entities; system prompt and current turn always
come first."""
Buckets: TypeAlias = Mapping[str, int]
"""Tokens for groups of layers: `preferences` (and facts about the user), `history` (arc, summary, messages),
`knowledge` (topics, entities), `retrieval` (retrieved items, custom layers), and `memory`, all of them but history."""


class RatioAllocation(Parameters):
    """Memory (all that is known or found), history and reserve as ratios of what must be sent leaves (seed 002)."""

    memory: ShareOrNone = 0.30
    history: ShareOrNone = 0.40
    reserve: ShareOrNone = 0.30
    min_exchanges: Annotated[int, Field(strict=True, ge=0, le=allocation.MOST_EXCHANGES)] = 3
    """The newest exchanges that stay, even where they are more than the share of history; knowledge
    gives way, then the reserve."""
    max_system_share: ShareOrNone = 0.25
    """The largest share of the budget for the system prompt; more is an error."""

    @model_validator(mode="after")
    def _require_sum(self) -> Self:
        total = self.memory + self.history + self.reserve
        if abs(total - 1) > SUM_TOLERANCE + 1e-9:
            raise ValueError(
                f"memory ({self.memory}), history ({self.history}) and reserve ({self.reserve}) must add up to 1, "
                f"give or take {SUM_TOLERANCE}, not {total:.2f}"
            )
        return self

    @property
    def name(self) -> str:
        """`ratio` with its percentages."""
        return f"ratio {self.memory * 100:.0f}/{self.history * 100:.0f}/{self.reserve * 100:.0f}"

    def allocate(self, situation: Situation) -> Allocation:
        """Divides the budget by the ratios.

        Raises a `SystemPromptTooLargeError` over `max_system_share`.
        """
        identity = situation.identity_tokens
        most = situation.total_tokens * self.max_system_share
        if identity > most:
            share = f"{self.max_system_share:.0%} of the budget"
            raise SystemPromptTooLargeError(
                identity, int(most), share, "max_system_share of the strategy"
            )
        free = situation.free_tokens
        memory = share_of(free, self.memory)
        history = share_of(free, self.history)
        if memory + history > free:  # ratios may add up to a little more than 1
            memory, history = (part * free // (memory + history) for part in (memory, history))
        newest = situation.exchanges[: self.min_exchanges]
        kept = newest[: newest_that_fit([exchange.tokens for exchange in reversed(newest)], free)]
        exchanges = sum(exchange.tokens for exchange in kept)
        over = max(0, exchanges - history)
        memory = max(0, memory - over)
        history = history + over
        others = {
            "reserve_tokens": free - memory - history,
            "keep_messages": sum(one.messages for one in kept),
        }
        return _divide_buckets(
            self.name, situation, {"history": history, "memory": memory}, exchanges, **others
        )


class FixedAllocation(Parameters):
    """Fixed shares of the whole budget (seed 004).

    The defaults are those of its 4,096-token window.

    System prompt and current turn are sent as they are: where they are more than their share, the
    others shrink together; where they are less, the rest stays free.
    """

    name: ClassVar[str] = "fixed"
    system: ShareOrNone = 500 / SEED_WINDOW
    """System prompt and preferences."""
    history: ShareOrNone = 1_000 / SEED_WINDOW
    entities: ShareOrNone = 500 / SEED_WINDOW
    retrieval: ShareOrNone = 1_500 / SEED_WINDOW
    query: ShareOrNone = 596 / SEED_WINDOW
    """The current turn, tool schemas and framing."""

    @model_validator(mode="after")
    def _require_sum(self) -> Self:
        total = self.system + self.history + self.entities + self.retrieval + self.query
        if total > 1 + 1e-9:
            raise ValueError(
                f"the shares of a fixed allocation must be at most 1 together, not {total:.2f}"
            )
        return self

    def allocate(self, situation: Situation) -> Allocation:
        """Divides the budget by the shares."""
        shares = self.system, self.history, self.entities, self.retrieval
        system, *others = (share_of(situation.total_tokens, share) for share in shares)
        buckets = _fitted_buckets(situation, max(0, system - situation.identity_tokens), *others)
        return _divide_buckets(self.name, situation, buckets, situation.keep_tokens)


class DynamicAllocation(Parameters):
    """Shares that follow the conversation.

    Its messages (the seed's turns), its entities, what is there (seed 004).
    """

    name: ClassVar[str] = "dynamic"

    def allocate(self, situation: Situation) -> Allocation:
        """Divides the budget by the conversation."""
        identity = situation.identity_tokens
        remaining = max(
            0, situation.total_tokens - situation.overhead_tokens - situation.message_tokens
        )
        percent = next(
            p for most, p in DYNAMIC_SHARES if most is None or situation.message_count <= most
        )
        history, entities, retrieval = (remaining * share // 100 for share in percent)
        system = max(DYNAMIC_SYSTEM_TOKENS, identity)
        if situation.entity_count > MANY_ENTITIES:
            entities = int(entities * MANY_ENTITIES_FACTOR)
            retrieval = max(0, remaining - system - history - entities)

        def buckets(history: int, entities: int, retrieval: int) -> Buckets:
            rest = max(identity, min(system, remaining - history - entities - retrieval))
            return _fitted_buckets(situation, rest - identity, history, entities, retrieval)

        chosen = buckets(history, entities, retrieval)
        if not situation.custom:
            without_chunks = buckets(history + retrieval // 2, entities + retrieval // 2, 0)
            if situation.history_tokens <= without_chunks["history"]:
                chosen = without_chunks
        return _divide_buckets(self.name, situation, chosen, situation.keep_tokens)


class PrioritizedAllocation(Parameters):
    """Fills layers in a given order, each with all it can use (seed 004).

    Others follow, custom ones by priority.
    """

    order: tuple[Text, ...] = ORDER
    """`preferences`, `history`, `topics`, `entities`, `retrieval`, or names of custom layers."""

    @property
    def name(self) -> str:
        """`prioritized`, with the order where it is not the default."""
        return "prioritized" if self.order == ORDER else f"prioritized: {', '.join(self.order)}"

    def allocate(self, situation: Situation) -> Allocation:
        """Fills the layers one after the other.

        Raises where the order names a layer that is not there.
        """
        free = situation.free_tokens
        custom = {spec.layer: spec for spec in situation.custom}
        most = {
            "preferences": preferences_demand(situation, free).ideal_tokens,
            "history": situation.history_tokens,
            "topics": situation.topic_tokens,
            "entities": situation.entity_tokens,
            "retrieval": 0,
            **{name: spec.limit_tokens for name, spec in custom.items()},
        }
        if unknown := [name for name in self.order if name not in most]:
            raise InvalidSettingsError(
                f"order names {', '.join(map(repr, unknown))}; the layers are {', '.join(most)}"
            )
        order = dict.fromkeys(
            (*self.order, *ORDER, *sorted(custom, key=lambda name: (-custom[name].priority, name)))
        )
        ahead = sum(most[name] for name in list(order)[: list(order).index("history")])
        fits_whole = situation.history_tokens <= free - ahead
        if not fits_whole:
            most["retrieval"] = free
        arc = 0 if fits_whole else min(arc_ideal(situation), int(free * ARC_SHARE))
        specs: list[LayerSpec] = []
        for priority, name in zip(range(100, 0, -1), order, strict=False):
            layer = name if name in custom else Layer[name.upper()]
            # Every layer waits for its turn and then takes all it can use; only the newest messages
            # have a floor.
            floor = min(most[name], situation.keep_tokens) if name == "history" else 0
            specs.append(LayerSpec(layer, floor, floor, most[name], priority))
            if name == "history":
                specs.append(LayerSpec(Layer.ARC, 0, 0, arc, priority))
        return allocation.share_out(self.name, situation, specs, fits_whole=fits_whole)


STRATEGIES: dict[str, type[Any]] = {
    "elastic": ElasticAllocation,
    "ratio": RatioAllocation,
    "fixed": FixedAllocation,
    "dynamic": DynamicAllocation,
    "prioritized": PrioritizedAllocation,
}


def strategy_of(value: object) -> AllocationStrategy:
    """Returns a strategy from its name, from a mapping with its name and parameters, or itself."""
    if isinstance(value, str | Mapping):
        parameters = {"strategy": value} if isinstance(value, str) else dict(value)
        if kind := STRATEGIES.get(str(parameters.pop("strategy", None))):
            strategy: AllocationStrategy = kind.of(parameters)
            return strategy
    elif isinstance(value, AllocationStrategy) and not isinstance(value, type):
        return value
    raise InvalidSettingsError(
        f"allocation must name one of {', '.join(STRATEGIES)}, alone or in a mapping as `strategy` beside its "
        f"parameters, or be an object with a name and an allocate method, not {value!r}"
    )


def _fitted_buckets(
    situation: Situation, preferences: int, history: int, knowledge: int, retrieval: int
) -> Buckets:
    """Returns buckets that fit together, history with room for the newest messages that stay."""
    free = situation.free_tokens
    others = {"preferences": preferences, "knowledge": knowledge, "retrieval": retrieval}
    history = min(
        free, max(_scaled({"history": history, **others}, free)["history"], situation.keep_tokens)
    )
    return {"history": history, **_scaled(others, free - history)}


def _scaled(buckets: Buckets, tokens: int) -> Buckets:
    total = sum(buckets.values())
    return {
        name: part if total <= tokens else part * tokens // total for name, part in buckets.items()
    }


def _divide_buckets(
    name: str, situation: Situation, buckets: Buckets, kept_tokens: int, **more: int
) -> Allocation:
    """Divides every bucket, together at most what is free, between its layers.

    The newest messages come first.
    """
    held = situation.history_tokens
    room = buckets["history"]
    fits_whole = held <= room
    arc = (
        0
        if fits_whole
        else max(0, min(arc_ideal(situation), int(room * ARC_SHARE), room - kept_tokens))
    )
    sizes = {
        Layer.ARC: (arc, ARC_PRIORITY),
        Layer.HISTORY: (held if fits_whole else room - arc, HISTORY_PRIORITY),
    }
    specs = [
        LayerSpec(layer, 0, tokens, tokens, priority) for layer, (tokens, priority) in sizes.items()
    ]
    for bucket, tokens in buckets.items():
        wanted = _demands_of(bucket, situation, tokens, fits_whole=fits_whole)
        given = allocation.divide(wanted, tokens)
        specs += (
            LayerSpec(it.layer, 0, given[it.layer], given[it.layer], it.priority) for it in wanted
        )
    return allocation.share_out(name, situation, specs, fits_whole=fits_whole, **more)


def _demands_of(
    bucket: str, situation: Situation, tokens: int, *, fits_whole: bool
) -> list[LayerSpec]:
    """Returns the demands of a bucket's layers; that of history has none."""
    specs: list[LayerSpec] = []
    if bucket in ("preferences", "memory"):
        specs.append(preferences_demand(situation, tokens))
    if bucket in ("knowledge", "memory"):
        topics = topics_demand(situation)
        entities = entities_demand(situation)
        if bucket == "knowledge":  # nobody else wants the bucket: as much as they hold
            topics = replace(topics, usable_tokens=situation.topic_tokens)
            entities = replace(entities, usable_tokens=situation.entity_tokens)
        specs += [topics, entities]
    if bucket in ("retrieval", "memory"):
        specs += situation.custom
        # It wants what the others' ideals leave: past those, topics would take all of a bucket up
        # to their caps.
        left = max(min(tokens, RETRIEVAL_FLOOR), tokens - sum(spec.ideal_tokens for spec in specs))
        wanted, everything = (0, 0) if fits_whole else (left, situation.free_tokens)
        specs.append(
            LayerSpec(
                Layer.RETRIEVAL, 0, wanted, wanted, RETRIEVAL_PRIORITY, usable_tokens=everything
            )
        )
    return specs
