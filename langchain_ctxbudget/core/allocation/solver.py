"""The one procedure that divides tokens between layers, whatever the strategy wants for each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

from langchain_ctxbudget.core.allocation.model import LayerSpec
from langchain_ctxbudget.core.layers import Layer


def divide(specs: Sequence[LayerSpec], available_tokens: int) -> dict[Layer, int]:
    """Divide tokens between layers, independent of the order in which they are given.

    Floors first, by priority: a layer whose floor does not fit gets nothing. Then every layer grows from
    its floor to its ideal at a speed of `(ideal - min) * priority * (1 - elasticity / 2)`, until the tokens
    are used up (seed 000, second pass, without its dependence on order). What nobody wanted goes to the
    highest priorities, up to their maximum (third pass).

    More budget never means less for a layer (floors permitting), nor does a higher priority or ideal of its own.

    Args:
        specs: what the layers want; of each, `min_tokens <= ideal_tokens <= max_tokens`.
        available_tokens: what they may use together.

    Returns:
        tokens per layer; their sum is at most `available_tokens`.
    """
    ranked = sorted(specs, key=lambda spec: (-spec.priority, spec.layer))
    remaining = max(0, available_tokens)
    tokens: dict[Layer, int] = {}
    growing: list[LayerSpec] = []
    for spec in ranked:
        fits = spec.min_tokens <= remaining
        tokens[spec.layer] = spec.min_tokens if fits else 0
        if fits:
            remaining -= spec.min_tokens
            growing.append(spec)
    wants = {spec.layer: max(0, spec.ideal_tokens - spec.min_tokens) for spec in growing}
    unwanted = remaining - sum(wants.values())
    shares = wants if unwanted >= 0 else _grow(growing, wants, remaining)
    for spec in growing:
        tokens[spec.layer] += shares[spec.layer]
        extra = max(0, min(unwanted, spec.max_tokens - tokens[spec.layer]))
        tokens[spec.layer] += extra
        unwanted -= extra
    return tokens


def _grow(specs: Sequence[LayerSpec], wants: Mapping[Layer, int], tokens: int) -> dict[Layer, int]:
    """Raise layers together until the tokens, fewer than they want, are used up; none past what it wants.

    Computed in fractions and rounded down once, so that no layer ever loses a token to rounding when its
    priority, its ideal or the budget is raised; the few tokens that rounding leaves stay unspent.
    """
    keenness = {spec.layer: max(1, spec.priority) * (1 - Fraction(spec.elasticity) / 2) for spec in specs}
    speeds = {layer: wants[layer] * keenness[layer] for layer in wants}
    left, together = tokens, sum(speeds.values())
    for layer in sorted(wants, key=lambda layer: -keenness[layer]):
        if keenness[layer] * left < together:
            break
        left -= wants[layer]  # it gets all it wants; the rest of its share is for the others
        together -= speeds[layer]
    return {layer: min(wants[layer], int(speeds[layer] * left / together)) for layer in wants}
