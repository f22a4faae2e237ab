"""The strategies that divide a budget by shares or in a fixed order, and all strategies by name.

`ratio`, `fixed` and `dynamic` divide it into buckets, and these between layers. `prioritized` fills
one layer after the other. `elastic` has a file of its own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from langchain_ctxbudget.budget import allocation
from langchain_ctxbudget.budget.allocation import (
    Allocation,
    AllocationStrategy,
    Layer,
    LayerSpec,
    Situation,
)
from langchain_ctxbudget.budget.demands import (
    arc_ideal,
    entities_demand,
    preferences_demand,
    share_of,
    topics_demand,
)
from langchain_ctxbudget.budget.elastic import ELASTIC, ElasticAllocation
from langchain_ctxbudget.budget.parameters import Parameters, ShareOrNone, Text
from langchain_ctxbudget.errors import InvalidSettingsError, SystemPromptTooLargeError
from langchain_ctxbudget.messages import newest_that_fit

ARC_SHARE = 0.2
"""The most that the arc may take of the room for history."""
SUM_TOLERANCE = 0.05
"""Ratios may add up to this much more or less than 1."""
ROUNDING = 1e-9
"""A sum of shares may be so much more than it should, as 0.1 + 0.2 is more than 0.3."""


class RatioAllocation(Parameters):
    """Memory, history and reserve as ratios of what must be sent leaves.

    Memory is all that is known or found.
    """

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
        if abs(total - 1) > SUM_TOLERANCE + ROUNDING:
            raise ValueError(
                f"memory ({self.memory}), history ({self.history}) and reserve ({self.reserve}) "
                f"must add up to 1, give or take {SUM_TOLERANCE}, not {total:.2f}"
            )
        return self

    @property
    def name(self) -> str:
        """`ratio` with its percentages."""
        return f"ratio {self.memory * 100:.0f}/{self.history * 100:.0f}/{self.reserve * 100:.0f}"

    def allocate(self, situation: Situation) -> Allocation:
        """Divides the budget by the ratios.

        Raises:
            SystemPromptTooLargeError: The system prompt is over `max_system_share`.
        """
        self._require_small_system_prompt(situation)
        free = situation.free_tokens
        memory = share_of(free, self.memory)
        history = share_of(free, self.history)
        both = memory + history
        if both > free:  # ratios may add up to a little more than 1
            memory = memory * free // both
            history = history * free // both

        newest = situation.exchanges[: self.min_exchanges]
        oldest_first = [exchange.tokens for exchange in reversed(newest)]
        kept = newest[: newest_that_fit(oldest_first, free)]
        kept_tokens = sum(exchange.tokens for exchange in kept)
        excess = max(0, kept_tokens - history)
        memory = max(0, memory - excess)
        history += excess
        return _divide_buckets(
            self.name,
            situation,
            _Buckets(history, {"memory": memory}),
            kept_tokens=kept_tokens,
            reserve_tokens=free - memory - history,
            keep_messages=sum(exchange.messages for exchange in kept),
        )

    def _require_small_system_prompt(self, situation: Situation) -> None:
        identity = situation.identity_tokens
        most = situation.total_tokens * self.max_system_share
        if identity > most:
            share = f"{self.max_system_share:.0%} of the budget"
            raise SystemPromptTooLargeError(
                identity, int(most), share, "max_system_share of the strategy"
            )


_DEFAULT_WINDOW = 4_096
"""The window in tokens that the default shares of `FixedAllocation` are made for."""


class FixedAllocation(Parameters):
    """Fixed shares of the whole budget; the defaults are made for a window of 4,096 tokens.

    System prompt and current turn are sent as they are: where they are more than their share, the
    others shrink together; where they are less, the rest stays free.
    """

    name: ClassVar[str] = "fixed"
    system: ShareOrNone = 500 / _DEFAULT_WINDOW
    """System prompt and preferences."""
    history: ShareOrNone = 1_000 / _DEFAULT_WINDOW
    entities: ShareOrNone = 500 / _DEFAULT_WINDOW
    retrieval: ShareOrNone = 1_500 / _DEFAULT_WINDOW
    query: ShareOrNone = 596 / _DEFAULT_WINDOW
    """The current turn, tool schemas and framing."""

    @model_validator(mode="after")
    def _require_sum(self) -> Self:
        total = self.system + self.history + self.entities + self.retrieval + self.query
        if total > 1 + ROUNDING:
            raise ValueError(
                f"the shares of a fixed allocation must be at most 1 together, not {total:.2f}"
            )
        return self

    def allocate(self, situation: Situation) -> Allocation:
        """Divides the budget by the shares."""
        budget = situation.total_tokens
        buckets = _fitted_buckets(
            situation,
            preferences=max(0, share_of(budget, self.system) - situation.identity_tokens),
            history=share_of(budget, self.history),
            knowledge=share_of(budget, self.entities),
            retrieval=share_of(budget, self.retrieval),
        )
        return _divide_buckets(self.name, situation, buckets, kept_tokens=situation.keep_tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class DynamicShares:
    """Percent of what message and overhead leave, in a conversation of some length."""

    history: int
    entities: int
    retrieval: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DynamicPolicy:
    """The numbers of `DynamicAllocation`."""

    short_messages: int = 3
    """The most messages of a short conversation."""
    short: DynamicShares = DynamicShares(history=15, entities=15, retrieval=60)
    medium_messages: int = 10
    """The most messages of a medium conversation."""
    medium: DynamicShares = DynamicShares(history=30, entities=20, retrieval=40)
    long: DynamicShares = DynamicShares(history=40, entities=25, retrieval=25)
    system_tokens: int = 400
    """The room for system prompt and preferences, or more where the system prompt needs it."""
    many_entities: int = 10
    many_entities_factor: float = 1.3
    """What more entities than these get, as a factor; retrieval gets the less."""

    def shares_for(self, message_count: int) -> DynamicShares:
        """Returns the shares in a conversation of so many messages."""
        if message_count <= self.short_messages:
            return self.short
        return self.medium if message_count <= self.medium_messages else self.long


DYNAMIC = DynamicPolicy()


class DynamicAllocation(Parameters):
    """Shares that follow the conversation: its length, its entities, what is there."""

    name: ClassVar[str] = "dynamic"

    def allocate(self, situation: Situation) -> Allocation:
        """Divides the budget by the conversation."""
        sent_tokens = situation.overhead_tokens + situation.message_tokens
        remaining = max(0, situation.total_tokens - sent_tokens)
        shares = DYNAMIC.shares_for(situation.message_count)
        history = remaining * shares.history // 100
        entities = remaining * shares.entities // 100
        retrieval = remaining * shares.retrieval // 100
        if situation.entity_count > DYNAMIC.many_entities:
            system = max(DYNAMIC.system_tokens, situation.identity_tokens)
            entities = int(entities * DYNAMIC.many_entities_factor)
            retrieval = max(0, remaining - system - history - entities)

        buckets = self._buckets(situation, remaining, history, entities, retrieval)
        # Where all of the history fits in half of what retrieval has, nothing need be retrieved.
        custom = min(retrieval, sum(spec.limit_tokens for spec in situation.custom))
        half = (retrieval - custom) // 2
        without_retrieval = self._buckets(
            situation, remaining, history + half, entities + half, retrieval=custom
        )
        if situation.history_tokens <= without_retrieval.history:
            buckets = without_retrieval
        return _divide_buckets(self.name, situation, buckets, kept_tokens=situation.keep_tokens)

    @staticmethod
    def _buckets(
        situation: Situation, remaining: int, history: int, entities: int, retrieval: int
    ) -> "_Buckets":
        """Returns buckets that fit together; preferences get what is left of the system's room."""
        identity = situation.identity_tokens
        system = max(DYNAMIC.system_tokens, identity)
        rest = max(identity, min(system, remaining - history - entities - retrieval))
        return _fitted_buckets(
            situation,
            preferences=rest - identity,
            history=history,
            knowledge=entities,
            retrieval=retrieval,
        )


# Buckets: tokens for groups of layers

Bucket = Literal["preferences", "knowledge", "retrieval", "memory"]
"""A group of layers: preferences with facts about the user; topics and entities; what is retrieved
with the application's own layers; all of these."""


@dataclass(frozen=True, slots=True)
class _Buckets:
    """Tokens for groups of layers, together at most what is free."""

    history: int
    """For arc, summary and messages."""
    others: Mapping[Bucket, int]


def _fitted_buckets(
    situation: Situation, *, preferences: int, history: int, knowledge: int, retrieval: int
) -> _Buckets:
    """Returns buckets that fit together, history with room for the newest messages that stay."""
    free = situation.free_tokens
    others: dict[Bucket, int] = {
        "preferences": preferences,
        "knowledge": knowledge,
        "retrieval": retrieval,
    }
    total = history + sum(others.values())
    shrunk_history = history if total <= free else history * free // total
    fitted_history = min(free, max(shrunk_history, situation.keep_tokens))
    return _Buckets(fitted_history, _shrunk(others, free - fitted_history))


def _shrunk(buckets: Mapping[Bucket, int], tokens: int) -> dict[Bucket, int]:
    """Returns buckets that fit into so many tokens; all of them shrink by the same factor."""
    total = sum(buckets.values())
    if total <= tokens:
        return dict(buckets)
    return {name: part * tokens // total for name, part in buckets.items()}


def _divide_buckets(
    name: str,
    situation: Situation,
    buckets: _Buckets,
    *,
    kept_tokens: int,
    reserve_tokens: int = 0,
    keep_messages: int | None = None,
) -> Allocation:
    """Divides every bucket between its layers.

    Args:
        name: The strategy's name.
        situation: What the budget is divided in.
        buckets: Together at most what is free.
        kept_tokens: The newest messages, which come first in the room for history.
        reserve_tokens: What stays free.
        keep_messages: The newest messages that stay verbatim; None: as the settings say.
    """
    fits_whole = situation.history_tokens <= buckets.history
    arc = 0
    history = situation.history_tokens
    if not fits_whole:
        most_for_arc = min(int(buckets.history * ARC_SHARE), buckets.history - kept_tokens)
        arc = max(0, min(arc_ideal(situation), most_for_arc))
        history = buckets.history - arc

    specs = [
        _exactly(Layer.ARC, arc, ELASTIC.arc_priority),
        _exactly(Layer.HISTORY, history, ELASTIC.history_priority),
    ]
    for bucket, tokens in buckets.others.items():
        demands = _demands_of(bucket, situation, tokens, fits_whole=fits_whole)
        grants = allocation.divide(demands, tokens)
        specs += [_exactly(spec.layer, grants[spec.layer], spec.priority) for spec in demands]
    return allocation.share_out(
        name,
        situation,
        specs,
        fits_whole=fits_whole,
        reserve_tokens=reserve_tokens,
        keep_messages=keep_messages,
    )


def _exactly(layer: str, tokens: int, priority: int) -> LayerSpec:
    """Returns the demand of a layer that wants exactly so many tokens."""
    return LayerSpec(layer, 0, tokens, tokens, priority)


def _demands_of(
    bucket: Bucket, situation: Situation, tokens: int, *, fits_whole: bool
) -> list[LayerSpec]:
    """Returns the demands of the layers that share a bucket."""
    topics = topics_demand(situation)
    entities = entities_demand(situation)
    specs: list[LayerSpec]
    match bucket:
        case "preferences":
            return [preferences_demand(situation, tokens)]
        case "knowledge":
            return [topics, entities]
        case "retrieval":
            specs = [*situation.custom]
        case "memory":
            preferences = preferences_demand(situation, tokens)
            specs = [preferences, topics, entities, *situation.custom]
    retrieval = _retrieval_demand(situation, specs, tokens, fits_whole=fits_whole)
    return [*specs, retrieval]


def _retrieval_demand(
    situation: Situation, others: Sequence[LayerSpec], tokens: int, *, fits_whole: bool
) -> LayerSpec:
    """Returns the demand of retrieval beside the other layers of a bucket.

    It wants what their ideals leave: past those, topics would take all of a bucket up to their
    caps.
    """
    if fits_whole:  # there is nothing to find that is not sent
        return LayerSpec(Layer.RETRIEVAL, 0, 0, 0, ELASTIC.retrieval_priority, usable_tokens=0)
    left = tokens - sum(spec.ideal_tokens for spec in others)
    wanted = max(min(tokens, ELASTIC.retrieval_floor), left)
    return LayerSpec(
        Layer.RETRIEVAL,
        0,
        wanted,
        wanted,
        ELASTIC.retrieval_priority,
        usable_tokens=situation.free_tokens,
    )


# An order

ORDER = ("preferences", "history", "topics", "entities", "retrieval")
"""The default order; system prompt and current turn always come first."""


class PrioritizedAllocation(Parameters):
    """Fills layers in a given order, each with all it can use.

    The layers that the order does not name follow, custom ones by priority.
    """

    order: tuple[Text, ...] = ORDER
    """`preferences`, `history`, `topics`, `entities`, `retrieval`, or names of custom layers."""

    @property
    def name(self) -> str:
        """`prioritized`, with the order where it is not the default."""
        if self.order == ORDER:
            return "prioritized"
        return f"prioritized: {', '.join(self.order)}"

    def allocate(self, situation: Situation) -> Allocation:
        """Fills the layers one after the other.

        Raises:
            InvalidSettingsError: The order names a layer that is not there.
        """
        free = situation.free_tokens
        usable = _usable_tokens(situation)
        order = self._whole_order(situation, usable)
        layers_ahead = order[: order.index("history")]
        tokens_ahead = sum(usable[name] for name in layers_ahead)
        fits_whole = situation.history_tokens <= free - tokens_ahead
        arc = 0
        if not fits_whole:
            usable["retrieval"] = free
            arc = min(arc_ideal(situation), int(free * ARC_SHARE))

        custom_names = {spec.layer for spec in situation.custom}
        specs: list[LayerSpec] = []
        for priority, name in zip(range(100, 0, -1), order, strict=False):
            layer = name if name in custom_names else Layer[name.upper()]
            # Every layer waits for its turn and then takes all it can use; only the newest messages
            # have a floor.
            floor = min(usable[name], situation.keep_tokens) if name == "history" else 0
            specs.append(LayerSpec(layer, floor, floor, usable[name], priority))
            if name == "history":
                specs.append(LayerSpec(Layer.ARC, 0, 0, arc, priority))
        return allocation.share_out(self.name, situation, specs, fits_whole=fits_whole)

    def _whole_order(self, situation: Situation, names: Mapping[str, int]) -> list[str]:
        """Returns the order of all layers: the given one, then the others."""
        unknown = [name for name in self.order if name not in names]
        if unknown:
            raise InvalidSettingsError(
                f"order names {', '.join(map(repr, unknown))}; the layers are {', '.join(names)}"
            )
        custom = sorted(situation.custom, key=lambda spec: (-spec.priority, spec.layer))
        custom_names = [spec.layer for spec in custom]
        return list(dict.fromkeys((*self.order, *ORDER, *custom_names)))


def _usable_tokens(situation: Situation) -> dict[str, int]:
    """Returns what each layer can use; retrieval nothing, as if the history went in whole."""
    preferences = preferences_demand(situation, situation.free_tokens)
    return {
        "preferences": preferences.ideal_tokens,
        "history": situation.history_tokens,
        "topics": situation.topic_tokens,
        "entities": situation.entity_tokens,
        "retrieval": 0,
        **{spec.layer: spec.limit_tokens for spec in situation.custom},
    }


# Strategies by name

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
        kind = STRATEGIES.get(str(parameters.pop("strategy", None)))
        if kind:
            strategy: AllocationStrategy = kind.of(parameters)
            return strategy
    elif isinstance(value, AllocationStrategy) and not isinstance(value, type):
        return value
    raise InvalidSettingsError(
        f"allocation must name one of {', '.join(STRATEGIES)}, alone or in a mapping as `strategy` "
        f"beside its parameters, or be an object with a name and an allocate method, not {value!r}"
    )
