"""What an allocation is made from, and what it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol, runtime_checkable

from langchain_ctxbudget.core.allocation.solver import LayerSpec, divide
from langchain_ctxbudget.core.layers import Layer

Depth = Literal["minimal", "standard", "deep"]
Emphasis = Literal["recall", "balanced", "cache"]


MOST_EXCHANGES = 10
"""Newest exchanges that a situation lists."""


class Exchange(NamedTuple):
    """A user's message and everything up to the next one."""

    messages: int
    tokens: int


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
    """All preferences."""
    message_tokens: int
    """The current turn, as far as it must be sent."""
    message_count: int
    """Messages of the conversation so far."""
    history_tokens: int
    """All of them, verbatim."""
    memory_tokens: int = 0
    """What is known about the user, all of it."""
    learned_tokens: int = 0
    """Of that, what was learned from conversations."""
    keep_tokens: int = 0
    """The newest messages that stay verbatim."""
    pinned_tokens: int = 0
    """The messages that the application wants to keep."""
    exchanges: tuple[Exchange, ...] = ()
    """The newest exchanges, newest first, at most `MOST_EXCHANGES`."""
    exchange_tokens: int = 0
    """What an exchange costs on average, over the whole conversation."""
    topic_count: int = 0
    topic_tokens: int = 0
    """What the detected topics hold."""
    entity_count: int = 0
    entity_tokens: int = 0
    """What the detected entities hold."""
    custom: tuple[LayerSpec, ...] = ()
    """What the application's own layers want."""
    reserved_tokens: int = 0
    """What the output reserve has already taken off the budget, because the model's window is small."""
    compacted: bool = False
    """Whether the conversation was compacted before."""
    depth: Depth = "standard"
    prioritize_history: bool = True
    emphasis: Emphasis = "balanced"

    @property
    def free_tokens(self) -> int:
        """What is left for layers that can give way."""
        return max(0, self.total_tokens - self.overhead_tokens - self.identity_tokens - self.message_tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """What every layer may use, in tokens, and why."""

    strategy: str
    total_tokens: int
    tokens: dict[str, int]
    """By layer: a `Layer`, or the name of a layer of the application's own."""
    specs: tuple[LayerSpec, ...]
    fits_whole: bool
    """Whether the whole conversation goes in verbatim."""
    reserve_tokens: int = 0
    """What the strategy keeps free for the answer, within the total."""
    keep_messages: int | None = None
    """The newest messages that stay verbatim; None: as the settings say."""

    def limit_of(self, layer: str) -> int:
        """What a layer may grow to with tokens that others leave unspent."""
        return next((spec.limit_tokens for spec in self.specs if spec.layer == layer), self.tokens.get(layer, 0))

    def floor_of(self, layer: str) -> int:
        """Below this a layer is left out."""
        return next((spec.min_tokens for spec in self.specs if spec.layer == layer), 0)

    def priority_of(self, layer: str) -> int:
        """A layer's priority; 100 for what is not up for division (system prompt, current turn)."""
        return next((spec.priority for spec in self.specs if spec.layer == layer), 100)


@runtime_checkable
class AllocationStrategy(Protocol):
    """A rule by which a budget is divided; write your own with `share_out`.

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
        """What the report calls it."""

    def allocate(self, situation: Situation) -> Allocation:
        """Divide the budget; a pure function of the situation."""


def share_out(
    name: str,
    situation: Situation,
    specs: Sequence[LayerSpec],
    *,
    fits_whole: bool,
    reserve_tokens: int = 0,
    keep_messages: int | None = None,
) -> Allocation:
    """Divide what is free between layers; a layer that is not named gets nothing.

    Args:
        name: the strategy's name.
        situation: what there is to divide.
        specs: what the layers want, in any order.
        fits_whole: whether the whole conversation goes in verbatim.
        reserve_tokens: what stays free for the answer.
        keep_messages: the newest messages that stay verbatim; None: as the settings say.
    """
    reserve = min(max(0, reserve_tokens), situation.free_tokens)
    tokens: dict[str, int] = dict.fromkeys((*Layer, *(spec.layer for spec in situation.custom)), 0)
    tokens.update(_divided(specs, situation.free_tokens - reserve, situation.custom))
    tokens[Layer.IDENTITY] = situation.identity_tokens
    tokens[Layer.MESSAGE] = situation.message_tokens
    return Allocation(
        strategy=name,
        total_tokens=situation.total_tokens,
        tokens=tokens,
        specs=tuple(specs),
        fits_whole=fits_whole,
        reserve_tokens=reserve,
        keep_messages=keep_messages,
    )


def _divided(specs: Sequence[LayerSpec], available_tokens: int, custom: Sequence[LayerSpec]) -> dict[str, int]:
    """Tokens per layer; what would be below the floor of an own layer, whatever the strategy, is for the others."""
    floors = {spec.layer: spec.min_tokens for spec in custom}
    given = divide(specs, available_tokens)
    short = {layer for layer, tokens in given.items() if tokens < floors.get(layer, 0)}
    if not short:
        return given
    rest = divide([spec for spec in specs if spec.layer not in short], available_tokens)
    return {**dict.fromkeys(short, 0), **rest}
