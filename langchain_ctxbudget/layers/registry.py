"""The layers of prompts, in the order of a report.

A new layer of the package is a module beside this one, and a line here.
"""

from collections.abc import Iterable, Mapping
from operator import attrgetter

from langchain_ctxbudget.layers.arc import ArcLayer
from langchain_ctxbudget.layers.base import Place, PromptLayer
from langchain_ctxbudget.layers.entities import EntitiesLayer
from langchain_ctxbudget.layers.history import HistoryLayer
from langchain_ctxbudget.layers.identity import IdentityLayer
from langchain_ctxbudget.layers.message import MessageLayer
from langchain_ctxbudget.layers.own import OwnLayer
from langchain_ctxbudget.layers.preferences import PreferencesLayer
from langchain_ctxbudget.layers.retrieval import RetrievalLayer
from langchain_ctxbudget.layers.tools import ToolsLayer
from langchain_ctxbudget.layers.topics import TopicsLayer
from langchain_ctxbudget.settings import CustomLayer

LAYERS: list[PromptLayer] = [
    IdentityLayer(),
    PreferencesLayer(),
    TopicsLayer(),
    EntitiesLayer(),
    ArcLayer(),
    RetrievalLayer(),
    HistoryLayer(),
    MessageLayer(),
    ToolsLayer(),
]


def all_layers(declared: Iterable[CustomLayer]) -> list[PromptLayer]:
    """Returns the layers of the package, then those that an application has declared."""
    return [*LAYERS, *map(OwnLayer, declared)]


def place_of(name: str) -> Place:
    """Returns where the items of a layer stand; those of an application's own in the background."""
    for layer in LAYERS:
        if layer.name == name:
            return layer.place
    return Place.BACKGROUND


def name_at(place: Place) -> str:
    """Returns the name of the layer at a place that has one layer alone."""
    return next(layer.name for layer in LAYERS if layer.place is place)


def names_at(*places: Place) -> list[str]:
    """Returns the names of the layers of the package at some places."""
    return [layer.name for layer in LAYERS if layer.place in places]


def is_required(name: str) -> bool:
    """Tells whether a layer is sent whole, whatever else has to give way."""
    return any(layer.is_required for layer in LAYERS if layer.name == name)


def in_order_of_prompt(layers: Iterable[PromptLayer]) -> list[PromptLayer]:
    """Returns layers in the order in which they stand in a prompt."""
    return sorted(layers, key=attrgetter("place"))


def tokens_at(tokens: Mapping[str, int], *places: Place) -> int:
    """Returns the sum of the tokens of all layers that stand in some places."""
    return sum(tokens[name] for name in tokens if place_of(name) in places)
