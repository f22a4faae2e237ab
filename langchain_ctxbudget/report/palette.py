"""The parts of a prompt and their colours, as every chart, card and plot shows them: plain data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from langchain_ctxbudget.budget.layers import title_of

LAYER_COLOURS = {
    "L0": "#555555",
    "L1": "#A375E0",
    "L2": "#428A56",
    "L3": "#EBCD47",
    "L4": "#75CBF0",
    "L5": "#E8702A",
    "L6": "#1F4FA3",
    "L7": "#8A1212",
}
CUSTOM_COLOURS = ("#CC66A5", "#8BB85E", "#31145C")
"""For custom layers, in the order in which they are declared."""
OVERHEAD, RESERVE, FREE = "tools and framing", "kept for the answer", "free"
OTHERS = {OVERHEAD: "#C0C0C0", RESERVE: "#F2F2F2", FREE: "#FFFFFF"}
STATES = {
    "verbatim": ("verbatim", "#1F4FA3"),
    "retrieved": ("retrieved", "#E8702A"),
    "summarized": ("behind the summary", "#75CBF0"),
    "omitted": ("left out", "#FFFFFF"),
}
"""Words and colour for the state of a message."""
TIER_COLOURS = {"healthy": "#2E8B57", "caution": "#B8A000", "warning": "#D78700", "critical": "#C62828"}

Parts: TypeAlias = dict[str, int]
"""Tokens by part of the request (layers, overhead, reserve, free), or messages by state."""


def label_of(layer: str) -> str:
    """Returns the name of a layer in charts; a custom layer is called by its own."""
    return f"{layer} {title_of(layer)}" if layer in LAYER_COLOURS else layer


def colours_of(names: Iterable[str]) -> dict[str, str]:
    """Returns the colour of every part, those of custom layers in the order in which they come."""
    colours = {**LAYER_COLOURS, **OTHERS}
    custom = [name for name in dict.fromkeys(map(str, names)) if name not in colours]
    return colours | {name: CUSTOM_COLOURS[number % len(CUSTOM_COLOURS)] for number, name in enumerate(custom)}


def share_of_budget(tokens: int, budget: int) -> float:
    """Returns a part's share of the budget; 0 where there is none."""
    return tokens / budget if budget else 0.0


def messages_of(data: Mapping[str, Any]) -> Parts:
    """Returns the number of messages in each state."""
    counts = dict.fromkeys(STATES, 0)
    for part in data["coverage"]:
        counts[part["state"]] += part["last"] - part["first"] + 1
    return counts


def states_in_words(counts: Mapping[str, int]) -> str:
    """Returns the number of messages in each state, without the empty ones.

    >>> states_in_words({"verbatim": 1_200, "omitted": 0, "retrieved": 3})
    '1,200 verbatim, 3 retrieved'
    """
    return ", ".join(f"{counts[state]:,} {said}" for state, (said, _) in STATES.items() if counts.get(state))
