"""The one procedure that divides tokens between layers, whatever the strategy wants for each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerSpec:
    """What one layer wants (seed 000, `LayerBudget`); all sizes in tokens."""

    layer: str
    """A `Layer`, or the name of a layer of the application's own."""
    min_tokens: int
    """Below this the layer is left out."""
    ideal_tokens: int
    """What it would like."""
    max_tokens: int
    """What it can use at most while others want the tokens too."""
    priority: int
    """0 to 100; higher comes first."""
    elasticity: float = 0.0
    """0 (rigid) to 1: how willing it is to shrink."""
    usable_tokens: int | None = None
    """What it can use of tokens that nobody else wants; None: not more than `max_tokens`."""

    @property
    def limit_tokens(self) -> int:
        """What it can use at most, whoever else wants the tokens."""
        return max(self.max_tokens, self.usable_tokens or 0)


def divide(specs: Sequence[LayerSpec], available_tokens: int) -> dict[str, int]:
    """Divide tokens between layers, independent of the order in which they are given.

    Floors first, those of the keenest layers (`priority * (1 - elasticity / 2)`) before the others: a layer whose
    floor does not fit gets nothing. Then every layer grows from its floor to its ideal at a speed of
    `(ideal - min) * keenness`, until the tokens are used up (seed 000, second pass, without its dependence on order).
    What nobody wanted goes to the highest priorities, up to their maximum (third pass), and what is then still left
    past it, as far as it is usable.

    More budget never means less for a layer (floors permitting), nor does a higher priority or ideal of its own.

    Args:
        specs: what the layers want; of each, `min_tokens <= ideal_tokens <= max_tokens`.
        available_tokens: what they may use together.

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
    wants = {spec.layer: max(0, spec.ideal_tokens - spec.min_tokens) for spec in growing}
    unwanted = remaining - sum(wants.values())
    if unwanted < 0:
        wants = _grow(growing, wants, remaining)
    for spec in growing:
        tokens[spec.layer] += wants[spec.layer]
    if unwanted > 0:
        ranked = sorted(growing, key=lambda spec: (-spec.priority, spec.layer))
        unwanted = _pour(ranked, tokens, unwanted, lambda spec: spec.max_tokens)
        _pour(ranked, tokens, unwanted, lambda spec: spec.limit_tokens)
    return tokens


def _keenness(spec: LayerSpec) -> Fraction:
    return max(1, spec.priority) * (1 - Fraction(spec.elasticity) / 2)


def _pour(ranked: Sequence[LayerSpec], tokens: dict[str, int], amount: int, limit: Callable[[LayerSpec], int]) -> int:
    """Give tokens to the layers in turn, each up to its limit; what is left."""
    for spec in ranked:
        extra = max(0, min(amount, limit(spec) - tokens[spec.layer]))
        tokens[spec.layer] += extra
        amount -= extra
    return amount


def _grow(specs: Sequence[LayerSpec], wants: Mapping[str, int], tokens: int) -> dict[str, int]:
    """Raise layers together until the tokens, fewer than they want, are used up; none past what it wants.

    Computed in fractions and rounded down once, so that no layer ever loses a token to rounding when its
    priority, its ideal or the budget is raised; the few tokens that rounding leaves stay unspent.
    """
    keenness = {spec.layer: _keenness(spec) for spec in specs}
    speeds = {layer: wants[layer] * keenness[layer] for layer in wants}
    left, together = tokens, sum(speeds.values())
    for layer in sorted(wants, key=lambda layer: -keenness[layer]):
        if keenness[layer] * left < together:
            break
        left -= wants[layer]  # it gets all it wants; the rest of its share is for the others
        together -= speeds[layer]
    return {layer: min(wants[layer], int(speeds[layer] * left / together)) for layer in wants}
