"""The one procedure that divides tokens between layers, whatever the strategy wants for each."""

from __future__ import annotations

from collections.abc import Sequence

from langchain_ctxbudget.core.allocation.model import LayerSpec
from langchain_ctxbudget.core.layers import Layer


def divide(specs: Sequence[LayerSpec], available_tokens: int) -> dict[Layer, int]:
    """Divide tokens between layers, independent of the order in which they are given.

    Floors first, by priority: a layer whose floor does not fit gets nothing. Then every layer grows from
    its floor to its ideal at a speed of `(ideal - min) * priority * (1 - elasticity / 2)`, until the tokens
    are used up (seed 000, second pass, without its dependence on order). What nobody wanted goes to the
    highest priorities, up to their maximum (third pass).

    Args:
        specs: what the layers want.
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
    for layer, share in _grow(growing, remaining).items():
        tokens[layer] += share
        remaining -= share
    for spec in growing:
        extra = min(remaining, max(0, spec.max_tokens - tokens[spec.layer]))
        tokens[spec.layer] += extra
        remaining -= extra
    return tokens


def _grow(specs: Sequence[LayerSpec], tokens: int) -> dict[Layer, int]:
    """Raise layers from floor to ideal together; each at its own speed, none past its ideal."""
    wants = {spec.layer: spec.ideal_tokens - spec.min_tokens for spec in specs if spec.ideal_tokens > spec.min_tokens}
    speeds = {
        spec.layer: wants[spec.layer] * spec.priority * (1 - spec.elasticity / 2)
        for spec in specs
        if spec.layer in wants
    }
    if sum(wants.values()) <= tokens:
        return wants
    shares: dict[Layer, int] = {}
    left = tokens
    # Whoever is full first (least want per speed) frees the rest of its share for the others.
    for layer in sorted(
        wants, key=lambda layer: (wants[layer] / speeds[layer] if speeds[layer] else float("inf"), layer)
    ):
        speed_left = sum(speeds[other] for other in wants if other not in shares)
        fair = int(left * speeds[layer] / speed_left) if speed_left else 0
        shares[layer] = min(wants[layer], fair)
        left -= shares[layer]
    return shares
