"""The situation that a budget is divided in, the layers' demands, and the procedure that divides it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, NamedTuple, Protocol, runtime_checkable

from langchain_ctxbudget.budget.layers import Layer

Depth = Literal["minimal", "standard", "deep"]
Emphasis = Literal["recall", "balanced", "cache"]
MOST_EXCHANGES = 10
"""Newest exchanges that a situation lists."""


class Exchange(NamedTuple):
    """A user's message and everything up to the next one."""

    messages: int
    tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerSpec:
    """The demand of one layer (seed 000, `LayerBudget`); all sizes in tokens."""

    layer: str
    """A `Layer`, or the name of a custom layer."""
    min_tokens: int
    """Below this the layer is left out."""
    ideal_tokens: int
    max_tokens: int
    """The most it can use while others want the tokens too."""
    priority: int
    """0 to 100; higher comes first."""
    elasticity: float = 0.0
    """0 (rigid) to 1: how willing it is to shrink."""
    usable_tokens: int | None = None
    """The most it can use of tokens that nobody else wants; None: `max_tokens`."""

    @property
    def limit_tokens(self) -> int:
        """The most it can use, whoever else wants the tokens."""
        return max(self.max_tokens, self.usable_tokens or 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """Everything that an allocation depends on; all sizes in tokens."""

    total_tokens: int
    """The budget of the whole request."""
    overhead_tokens: int
    """Tool schemas, response format, reply priming, fences: what no layer owns."""
    identity_tokens: int
    """The system prompt."""
    preferences_tokens: int
    message_tokens: int
    """The current turn, as far as it must be sent."""
    message_count: int
    """Messages of the conversation so far."""
    history_tokens: int
    """All of them, verbatim."""
    memory_tokens: int = 0
    """Everything known about the user."""
    learned_tokens: int = 0
    """The part of it that was learned from conversations."""
    keep_tokens: int = 0
    """The newest messages that stay verbatim."""
    pinned_tokens: int = 0
    """The messages that the application wants to keep."""
    exchanges: tuple[Exchange, ...] = ()
    """The newest exchanges, newest first, at most `MOST_EXCHANGES`."""
    exchange_tokens: int = 0
    """The average exchange, over the whole conversation."""
    topic_count: int = 0
    topic_tokens: int = 0
    """The text of the detected topics."""
    entity_count: int = 0
    entity_tokens: int = 0
    """The text of the detected entities."""
    custom: tuple[LayerSpec, ...] = ()
    """The demands of the custom layers."""
    reserved_tokens: int = 0
    """Already taken off the budget for the answer, because the model's window is small."""
    compacted: bool = False
    """True where the conversation was compacted before."""
    depth: Depth = "standard"
    prioritize_history: bool = True
    emphasis: Emphasis = "balanced"

    @property
    def free_tokens(self) -> int:
        """The tokens left for layers that can give way."""
        return max(0, self.total_tokens - self.overhead_tokens - self.identity_tokens - self.message_tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """The tokens that every layer may use, and the demands behind them."""

    strategy: str
    total_tokens: int
    tokens: dict[str, int]
    """By layer: a `Layer`, or the name of a custom layer."""
    specs: tuple[LayerSpec, ...]
    fits_whole: bool
    """True where the whole conversation goes in verbatim."""
    reserve_tokens: int = 0
    """Kept free for the answer, within the total."""
    keep_messages: int | None = None
    """The newest messages that stay verbatim; None: as the settings say."""

    def _spec(self, layer: str) -> LayerSpec | None:
        return next((spec for spec in self.specs if spec.layer == layer), None)

    def limit_of(self, layer: str) -> int:
        """Returns the size a layer may grow to with tokens that others leave unspent."""
        return spec.limit_tokens if (spec := self._spec(layer)) else self.tokens.get(layer, 0)

    def floor_of(self, layer: str) -> int:
        """Returns the size below which a layer is left out."""
        return spec.min_tokens if (spec := self._spec(layer)) else 0

    def priority_of(self, layer: str) -> int:
        """Returns a layer's priority; 100 for the system prompt and the current turn, which are not divided."""
        return spec.priority if (spec := self._spec(layer)) else 100


@runtime_checkable
class AllocationStrategy(Protocol):
    """A rule that divides a budget; write your own with `share_out`.

    Example:
        >>> class HistoryFirst:
        ...     name = "history first"
        ...
        ...     def allocate(self, situation):
        ...         most = situation.history_tokens
        ...         history = LayerSpec(
        ...             layer=Layer.HISTORY, min_tokens=0, ideal_tokens=most, max_tokens=most, priority=90
        ...         )
        ...         return share_out(self.name, situation, [history], fits_whole=most <= situation.free_tokens)
    """

    @property
    def name(self) -> str:
        """Its name in reports."""

    def allocate(self, situation: Situation) -> Allocation:
        """Divides the budget; a pure function of the situation."""


def share_out(
    name: str,
    situation: Situation,
    specs: Sequence[LayerSpec],
    *,
    fits_whole: bool,
    reserve_tokens: int = 0,
    keep_messages: int | None = None,
) -> Allocation:
    """Divides the free tokens between layers; a layer that is not named gets nothing.

    A custom layer that would get less than its floor gets nothing, and the others share its tokens.

    Args:
        name: the strategy's name.
        situation: the situation to divide in.
        specs: the layers' demands, in any order.
        fits_whole: True where the whole conversation goes in verbatim.
        reserve_tokens: kept free for the answer.
        keep_messages: the newest messages that stay verbatim; None: as the settings say.
    """
    reserve = min(max(0, reserve_tokens), situation.free_tokens)
    available = situation.free_tokens - reserve
    floors = {spec.layer: spec.min_tokens for spec in situation.custom}
    given = divide(specs, available)
    if short := {layer for layer, tokens in given.items() if tokens < floors.get(layer, 0)}:
        given = dict.fromkeys(short, 0) | divide([spec for spec in specs if spec.layer not in short], available)
    return Allocation(
        strategy=name,
        total_tokens=situation.total_tokens,
        tokens={
            **dict.fromkeys((*Layer, *floors), 0),
            **given,
            Layer.IDENTITY: situation.identity_tokens,
            Layer.MESSAGE: situation.message_tokens,
        },
        specs=tuple(specs),
        fits_whole=fits_whole,
        reserve_tokens=reserve,
        keep_messages=keep_messages,
    )


def divide(specs: Sequence[LayerSpec], available_tokens: int) -> dict[str, int]:
    """Divides tokens between layers, independent of the order in which they are given.

    Floors first, those of the keenest layers (`priority * (1 - elasticity / 2)`) before the others: a layer whose
    floor does not fit gets nothing. Then every layer grows from its floor to its ideal at a speed of
    `(ideal - min) * keenness`, until the tokens are used up (seed 000, second pass, without its dependence on order).
    The rest goes to the highest priorities, up to their maximum (third pass), and then past it, as far as it is usable.

    More budget never means less for a layer (floors permitting), nor does a higher priority or ideal of its own.

    Args:
        specs: the demands; of each, `min_tokens <= ideal_tokens <= max_tokens`.
        available_tokens: the tokens they may use together.

    Returns:
        tokens per layer; their sum is at most `available_tokens`.
    """
    remaining = max(0, available_tokens)
    tokens: dict[str, int] = {}
    growing: list[LayerSpec] = []
    for spec in sorted(specs, key=lambda spec: (-_keenness(spec), spec.layer)):
        fits = spec.min_tokens <= remaining
        tokens[spec.layer] = spec.min_tokens if fits else 0
        if fits:
            remaining -= spec.min_tokens
            growing.append(spec)
    demand = {spec.layer: max(0, spec.ideal_tokens - spec.min_tokens) for spec in growing}
    unwanted = remaining - sum(demand.values())
    if unwanted < 0:
        demand = _grow(growing, demand, remaining)
    for spec in growing:
        tokens[spec.layer] += demand[spec.layer]
    if unwanted > 0:
        ranked = sorted(growing, key=lambda spec: (-spec.priority, spec.layer))
        unwanted = _pour(ranked, tokens, unwanted, lambda spec: spec.max_tokens)
        _pour(ranked, tokens, unwanted, lambda spec: spec.limit_tokens)
    return tokens


def _keenness(spec: LayerSpec) -> Fraction:
    return max(1, spec.priority) * (1 - Fraction(spec.elasticity) / 2)


def _pour(ranked: Sequence[LayerSpec], tokens: dict[str, int], amount: int, limit: Callable[[LayerSpec], int]) -> int:
    """Gives tokens to the layers in turn, each up to its limit, and returns the rest."""
    for spec in ranked:
        extra = max(0, min(amount, limit(spec) - tokens[spec.layer]))
        tokens[spec.layer] += extra
        amount -= extra
    return amount


def _grow(specs: Sequence[LayerSpec], demand: Mapping[str, int], tokens: int) -> dict[str, int]:
    """Raises layers together until the tokens, fewer than they want, are used up; none past its demand.

    Computed in fractions and rounded down once, so that no layer ever loses a token to rounding when its
    priority, its ideal or the budget is raised; the few tokens that rounding leaves stay unspent.
    """
    keenness = {spec.layer: _keenness(spec) for spec in specs}
    speeds = {layer: demand[layer] * keenness[layer] for layer in demand}
    left, together = tokens, sum(speeds.values())
    for layer in sorted(demand, key=lambda layer: -keenness[layer]):
        if keenness[layer] * left < together:
            break
        left -= demand[layer]  # it gets all it wants; the rest of its share is for the others
        together -= speeds[layer]
    return {layer: min(demand[layer], int(speeds[layer] * left / together)) for layer in demand}
