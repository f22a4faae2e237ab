"""Strategies that give shares or fill in order, predictable and tuned by readable numbers; and strategies by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Self, TypeAlias

from pydantic import AfterValidator, Field, model_validator

from langchain_ctxbudget.budget import elastic
from langchain_ctxbudget.budget.allocation import (
    MOST_EXCHANGES,
    Allocation,
    AllocationStrategy,
    Layer,
    LayerSpec,
    Situation,
    divide,
    share_out,
)
from langchain_ctxbudget.budget.elastic import ElasticAllocation, share_of
from langchain_ctxbudget.budget.parameters import Parameters, ShareOrNone, Text
from langchain_ctxbudget.errors import InvalidSettingsError, SystemPromptTooLargeError
from langchain_ctxbudget.messages import newest_that_fit

ARC_SHARE = 0.2
"""The most that the arc may take of the room for history."""
HISTORY_PRIORITY, ARC_PRIORITY, RETRIEVAL_PRIORITY = 90, 88, 75
SUM_TOLERANCE = 0.05
"""Ratios may add up to this much more or less than 1 (seed 002)."""
SEED_WINDOW = 4_096
"""The window that the defaults of seed 004 are made for."""
DYNAMIC_SYSTEM_TOKENS = 400
DYNAMIC_SHARES = ((3, (15, 15, 60)), (10, (30, 20, 40)), (None, (40, 25, 25)))
"""Up to so many messages: history, entities and retrieval in percent of what message and overhead leave."""
MANY_ENTITIES, MANY_ENTITIES_FACTOR = 10, 1.3
ORDER = ("preferences", "history", "topics", "entities", "retrieval")
"""The order of seed 004, its entities as topics and entities; system prompt and current turn always come first."""

Buckets: TypeAlias = Mapping[str, int]
"""Tokens for groups of layers: `preferences` (and facts about the user), `history` (arc, summary, messages),
`knowledge` (topics, entities), `retrieval` (retrieved items, custom layers), and `memory`, all of them but history."""


class RatioAllocation(Parameters):
    """Memory, history and reserve as ratios of what system prompt, message and tools leave (seed 002).

    Memory is everything known: preferences, topics, entities, custom layers, retrieval. The reserve stays free.
    """

    memory: ShareOrNone = 0.30
    history: ShareOrNone = 0.40
    reserve: ShareOrNone = 0.30
    min_exchanges: Annotated[int, Field(strict=True, ge=0, le=MOST_EXCHANGES)] = 3
    """The newest exchanges that stay, even where they are more than the share of history; knowledge gives way, then
    the reserve."""
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
        shares = "/".join(f"{share * 100:.0f}" for share in (self.memory, self.history, self.reserve))
        return f"ratio {shares}"

    def allocate(self, situation: Situation) -> Allocation:
        """Divides the budget by the ratios; raises a `SystemPromptTooLargeError` over `max_system_share`."""
        most = situation.total_tokens * self.max_system_share
        if situation.identity_tokens > most:
            share = f"{self.max_system_share:.0%} of the budget"
            setting = "max_system_share of the strategy"
            raise SystemPromptTooLargeError(situation.identity_tokens, int(most), share, setting)
        free = situation.free_tokens
        memory, history = share_of(free, self.memory), share_of(free, self.history)
        if memory + history > free:  # ratios may add up to a little more than 1
            memory, history = (part * free // (memory + history) for part in (memory, history))
        newest = situation.exchanges[: self.min_exchanges]
        kept = newest[: newest_that_fit([exchange.tokens for exchange in reversed(newest)], free)]
        exchanges = sum(exchange.tokens for exchange in kept)
        over = max(0, exchanges - history)
        memory, history = max(0, memory - over), history + over
        return _divided(
            self.name,
            situation,
            {"history": history, "memory": memory},
            kept_tokens=exchanges,
            reserve_tokens=free - memory - history,
            keep_messages=sum(exchange.messages for exchange in kept),
        )


class FixedAllocation(Parameters):
    """Fixed shares of the whole budget (seed 004); the defaults are those of its 4,096-token window.

    System prompt and current turn are sent as they are: where they are more than their share, the others shrink
    together; where they are less, the rest stays free.
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
            raise ValueError(f"the shares of a fixed allocation must be at most 1 together, not {total:.2f}")
        return self

    def allocate(self, situation: Situation) -> Allocation:
        """Divides the budget by the shares."""
        system, *others = (
            share_of(situation.total_tokens, share)
            for share in (self.system, self.history, self.entities, self.retrieval)
        )
        buckets = _with_kept(situation, max(0, system - situation.identity_tokens), *others)
        return _divided(self.name, situation, buckets)


class DynamicAllocation(Parameters):
    """Shares that follow the conversation: its length, its entities, what there is to retrieve (seed 004).

    A turn of the seed is one speaker's, so turns are messages here. The seed's margin of 100 tokens for the query is
    replaced by the counted cost of framing and tools.
    """

    name: ClassVar[str] = "dynamic"

    def allocate(self, situation: Situation) -> Allocation:
        """Divides the budget by the conversation."""
        identity = situation.identity_tokens
        remaining = max(0, situation.total_tokens - situation.overhead_tokens - situation.message_tokens)
        percent = next(p for most, p in DYNAMIC_SHARES if most is None or situation.message_count <= most)
        history, entities, retrieval = (remaining * share // 100 for share in percent)
        system = max(DYNAMIC_SYSTEM_TOKENS, identity)
        if situation.entity_count > MANY_ENTITIES:
            entities = int(entities * MANY_ENTITIES_FACTOR)
            retrieval = max(0, remaining - system - history - entities)

        def buckets(history: int, entities: int, retrieval: int) -> Buckets:
            rest = max(identity, min(system, remaining - history - entities - retrieval))
            return _with_kept(situation, rest - identity, history, entities, retrieval)

        chosen = buckets(history, entities, retrieval)
        if not situation.custom:
            without_chunks = buckets(history + retrieval // 2, entities + retrieval // 2, 0)
            if situation.history_tokens <= without_chunks["history"]:
                chosen = without_chunks
        return _divided(self.name, situation, chosen)


def _different(names: tuple[str, ...]) -> tuple[str, ...]:
    if len(set(names)) < len(names):
        raise ValueError(f"names a layer twice: {', '.join(names)}")
    return names


class PrioritizedAllocation(Parameters):
    """Fills layers in a given order, each with all it can use, until the budget is full (seed 004).

    Layers that the order does not name follow: the rest of the default order, then custom layers by their priority.
    The newest messages stay in any order, as `keep_messages` says.
    """

    order: Annotated[tuple[Text, ...], AfterValidator(_different)] = ORDER
    """`preferences`, `history`, `topics`, `entities`, `retrieval`, or names of custom layers."""

    @property
    def name(self) -> str:
        """`prioritized`, with the order where it is not the default."""
        return "prioritized" if self.order == ORDER else f"prioritized: {', '.join(self.order)}"

    def allocate(self, situation: Situation) -> Allocation:
        """Fills the layers one after the other; raises where the order names a layer that is not there."""
        free = situation.free_tokens
        custom = {spec.layer: spec for spec in situation.custom}
        most = {
            "preferences": elastic.preferences_demand(situation, free).ideal_tokens,
            "history": situation.history_tokens,
            "topics": situation.topic_tokens,
            "entities": situation.entity_tokens,
            "retrieval": 0,
            **{name: spec.limit_tokens for name, spec in custom.items()},
        }
        if unknown := [name for name in self.order if name not in most]:
            raise InvalidSettingsError(f"order names {', '.join(map(repr, unknown))}; the layers are {', '.join(most)}")
        order = dict.fromkeys((*self.order, *ORDER, *sorted(custom, key=lambda name: (-custom[name].priority, name))))
        ahead = sum(most[name] for name in list(order)[: list(order).index("history")])
        fits_whole = situation.history_tokens <= free - ahead
        if not fits_whole:
            most["retrieval"] = free
        arc = 0 if fits_whole else min(elastic.arc_ideal(situation), int(free * ARC_SHARE))
        specs: list[LayerSpec] = []
        for priority, name in zip(range(100, 0, -1), order, strict=False):
            layer = name if name in custom else Layer[name.upper()]
            # Every layer waits for its turn and then takes all it can use; only the newest messages have a floor.
            floor = min(most[name], situation.keep_tokens) if name == "history" else 0
            specs.append(LayerSpec(layer, floor, floor, most[name], priority))
            if name == "history":
                specs.append(LayerSpec(Layer.ARC, 0, 0, arc, priority))
        return share_out(self.name, situation, specs, fits_whole=fits_whole)


STRATEGIES: dict[str, type[Any]] = {
    "elastic": ElasticAllocation,
    "ratio": RatioAllocation,
    "fixed": FixedAllocation,
    "dynamic": DynamicAllocation,
    "prioritized": PrioritizedAllocation,
}


def strategy_of(value: object) -> AllocationStrategy:
    """Returns a strategy from its name, from a mapping with its name and parameters, or itself."""
    names = ", ".join(STRATEGIES)
    if isinstance(value, str | Mapping):
        parameters = {"strategy": value} if isinstance(value, str) else dict(value)
        name = parameters.pop("strategy", None)
        if not isinstance(name, str) or name not in STRATEGIES:
            raise InvalidSettingsError(f"allocation must name one of {names}, not {name!r}")
        strategy: AllocationStrategy = STRATEGIES[name].of(parameters)
        return strategy
    if isinstance(value, type) or not isinstance(value, AllocationStrategy):
        raise InvalidSettingsError(
            f"allocation must be the name of a strategy ({names}), a mapping with its parameters, or an object with a "
            f"name and an allocate method, not {value!r}"
        )
    return value


def _with_kept(situation: Situation, preferences: int, history: int, knowledge: int, retrieval: int) -> Buckets:
    """Returns buckets that fit together, history with room for the newest messages that stay."""
    free = situation.free_tokens
    others = {"preferences": preferences, "knowledge": knowledge, "retrieval": retrieval}
    history = min(free, max(_scaled({"history": history, **others}, free)["history"], situation.keep_tokens))
    return {"history": history, **_scaled(others, free - history)}


def _scaled(buckets: Buckets, tokens: int) -> Buckets:
    total = sum(buckets.values())
    return {name: part if total <= tokens else part * tokens // total for name, part in buckets.items()}


def _divided(
    name: str,
    situation: Situation,
    buckets: Buckets,
    *,
    kept_tokens: int | None = None,
    reserve_tokens: int = 0,
    keep_messages: int | None = None,
) -> Allocation:
    """Divides every bucket, together at most what is free, between its layers; the newest messages come first."""
    fits_whole = situation.history_tokens <= buckets["history"]
    kept = situation.keep_tokens if kept_tokens is None else kept_tokens
    specs: list[LayerSpec] = []
    for bucket, tokens in buckets.items():
        if bucket == "history":
            wanted = _dialogue(situation, tokens, kept, fits_whole=fits_whole)
        else:
            wanted = _knowledge(bucket, situation, tokens, fits_whole=fits_whole)
        given = divide(wanted, tokens)
        specs += (LayerSpec(it.layer, 0, given[it.layer], given[it.layer], it.priority) for it in wanted)
    return share_out(
        name, situation, specs, fits_whole=fits_whole, reserve_tokens=reserve_tokens, keep_messages=keep_messages
    )


def _dialogue(situation: Situation, tokens: int, kept_tokens: int, *, fits_whole: bool) -> list[LayerSpec]:
    held = situation.history_tokens
    most = max(0, min(int(tokens * ARC_SHARE), tokens - kept_tokens))  # the newest messages come first
    arc = 0 if fits_whole else min(elastic.arc_ideal(situation), most)
    history = held if fits_whole else max(0, tokens - arc)
    return [
        LayerSpec(Layer.ARC, 0, arc, arc, ARC_PRIORITY),
        LayerSpec(Layer.HISTORY, 0, history, history, HISTORY_PRIORITY, usable_tokens=held),
    ]


def _knowledge(bucket: str, situation: Situation, tokens: int, *, fits_whole: bool) -> list[LayerSpec]:
    specs: list[LayerSpec] = []
    if bucket in ("preferences", "memory"):
        specs.append(elastic.preferences_demand(situation, tokens))
    if bucket in ("knowledge", "memory"):
        topics, entities = elastic.topics_demand(situation), elastic.entities_demand(situation)
        if bucket == "knowledge":  # nobody else wants the bucket: as much as they hold
            topics = replace(topics, usable_tokens=situation.topic_tokens)
            entities = replace(entities, usable_tokens=situation.entity_tokens)
        specs += [topics, entities]
    if bucket in ("retrieval", "memory"):
        specs += situation.custom
        # It wants what the others' ideals leave: past those, topics would take all of a bucket up to their caps.
        left = max(min(tokens, elastic.RETRIEVAL_FLOOR), tokens - sum(spec.ideal_tokens for spec in specs))
        wanted, everything = (0, 0) if fits_whole else (left, situation.free_tokens)
        specs.append(LayerSpec(Layer.RETRIEVAL, 0, wanted, wanted, RETRIEVAL_PRIORITY, usable_tokens=everything))
    return specs
