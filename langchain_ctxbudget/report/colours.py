"""Words and colours of layers, states and sources: the same in texts, cards, plots and the page.

A layer of the package is named and coloured in `Layer`; what stands here is everything else.
"""

from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple

from langchain_ctxbudget.budget import TITLES, Layer, Status

CoverageState = Literal["verbatim", "summarized", "retrieved", "omitted"]

LAYER_COLOURS: Mapping[str, str] = {layer.value: layer.colour for layer in Layer}
"""The colour of every layer of the package on a light ground, by its short name."""
CUSTOM_COLOURS = ("#CC66A5", "#8BB85E", "#31145C")
"""For custom layers on a light ground, in the order in which they are declared."""
CUSTOM_COLOURS_ON_DARK = ("#DC85BA", "#A3CF77", "#9A78D1")
OVERHEAD = "framing"
FREE = "free"
OTHERS = {OVERHEAD: "#C0C0C0", FREE: "#FFFFFF"}
"""The colours of what no layer owns."""
_ON_DARK: Mapping[str, str] = {
    **{layer.colour: layer.colour_on_dark for layer in Layer},
    **dict(zip(CUSTOM_COLOURS, CUSTOM_COLOURS_ON_DARK, strict=True)),
}


class StateStyle(NamedTuple):
    """How the state of a message is named, drawn and explained."""

    words: str
    colour: str
    meaning: str


STATES: dict[CoverageState, StateStyle] = {
    "verbatim": StateStyle(
        "word for word", Layer.HISTORY.colour, "It is sent as one of the messages, word for word."
    ),
    "retrieved": StateStyle(
        "looked up", Layer.RETRIEVAL.colour, "It was looked up for this prompt and is quoted in it."
    ),
    "summarized": StateStyle(
        "summed up",
        Layer.ARC.colour,
        "A summary or an excerpt stands for it; the recall tool quotes it.",
    ),
    "omitted": StateStyle(
        "left out",
        "#FFFFFF",
        "Nothing in this prompt stands for it. It is stored; the recall tool quotes it.",
    ),
}
SOURCES: Mapping[str, str] = {
    "messages": "said in this conversation",
    "conversations": "said in another conversation",
    "memories": "a memory",
    "documents": "a document",
}
"""Where something that was looked up comes from, in words."""
STATUSES: Mapping[Status, str] = {
    Status.INCLUDED: "sent",
    Status.SHRUNK: "sent in short",
    Status.OMITTED: "left out",
}
"""What became of an item, in words."""


def label_of(layer: str) -> str:
    """Returns the name of a layer for readers; a custom layer is called by its own name."""
    return TITLES.get(layer, layer)


def colours_of(names: Iterable[str]) -> dict[str, str]:
    """Returns the colour of every part; custom layers get theirs in the order of `names`."""
    colours = {**LAYER_COLOURS, **OTHERS}
    custom_names = [name for name in dict.fromkeys(map(str, names)) if name not in colours]
    for number, name in enumerate(custom_names):
        colours[name] = CUSTOM_COLOURS[number % len(CUSTOM_COLOURS)]
    return colours


def on_dark(colour: str) -> str:
    """Returns the same hue for a dark ground, such as that of a terminal."""
    return _ON_DARK.get(colour, colour)
