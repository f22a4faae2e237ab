"""Words and colours of layers and states: the same in charts, cards, plots and the dashboard."""

from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple

from langchain_ctxbudget.budget import TITLES, Layer

CoverageState = Literal["verbatim", "summarized", "retrieved", "omitted"]

LAYER_COLOURS: Mapping[str, str] = {layer.value: layer.colour for layer in Layer}
"""The colour of every layer of the package, by its short name."""
CUSTOM_COLOURS = ("#CC66A5", "#8BB85E", "#31145C")
"""For custom layers, in the order in which they are declared."""
OVERHEAD = "tools and framing"
FREE = "free"
OTHERS = {OVERHEAD: "#C0C0C0", FREE: "#FFFFFF"}
"""The colours of what no layer owns."""


class StateStyle(NamedTuple):
    """How the state of a message is named, drawn and explained."""

    words: str
    colour: str
    meaning: str


STATES: dict[CoverageState, StateStyle] = {
    "verbatim": StateStyle("verbatim", "#1F4FA3", "It is sent word for word, in L6."),
    "retrieved": StateStyle(
        "retrieved",
        "#E8702A",
        "It was found for the current message and is quoted in L5.",
    ),
    "summarized": StateStyle(
        "behind the summary",
        "#75CBF0",
        "A summary or excerpt stands for it; the recall tool quotes it.",
    ),
    "omitted": StateStyle(
        "left out",
        "#FFFFFF",
        "Nothing in this prompt stands for it. It is stored; the recall tool has it.",
    ),
}


def label_of(layer: str) -> str:
    """Returns the name of a layer in charts; a custom layer is called by its own name."""
    if layer in TITLES:
        return f"{layer} {TITLES[layer]}"
    return layer


def colours_of(names: Iterable[str]) -> dict[str, str]:
    """Returns the colour of every part; custom layers get theirs in the order of `names`."""
    colours = {**LAYER_COLOURS, **OTHERS}
    custom_names = [name for name in dict.fromkeys(map(str, names)) if name not in colours]
    for number, name in enumerate(custom_names):
        colours[name] = CUSTOM_COLOURS[number % len(CUSTOM_COLOURS)]
    return colours
