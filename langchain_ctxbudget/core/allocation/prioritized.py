"""The strategy that fills one layer after the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from langchain_ctxbudget.core.allocation import wants
from langchain_ctxbudget.core.allocation.model import Allocation, Situation, share_out
from langchain_ctxbudget.core.allocation.solver import LayerSpec
from langchain_ctxbudget.core.layers import Layer
from langchain_ctxbudget.errors import InvalidSettingsError

ORDER = ("preferences", "history", "topics", "entities", "retrieval")
"""The order of seed 004, its entities as topics and entities; system prompt and current turn always come first."""
NAMES = {
    "preferences": Layer.PREFERENCES,
    "history": Layer.HISTORY,
    "topics": Layer.TOPICS,
    "entities": Layer.ENTITIES,
    "retrieval": Layer.RETRIEVAL,
}
SUMMARY_SHARE = 0.2
"""Of what is left when history has its turn but does not fit, what the arc may take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrioritizedAllocation:
    """Fills layers in a given order, each with all it can use, until the budget is full (seed 004).

    What the order does not name comes after what it names: the rest of the default order, then the application's
    own layers by their priority. The newest messages stay in any order, as `keep_messages` says.

    Raises:
        InvalidSettingsError: something twice, or an empty name.

    Example:
        >>> PrioritizedAllocation(order=("retrieval", "history")).name
        'prioritized: retrieval, history'
    """

    order: Sequence[str] = ORDER
    """`preferences`, `history`, `topics`, `entities`, `retrieval`, or names of layers of the application's own."""

    def __post_init__(self) -> None:
        if isinstance(self.order, str) or not all(isinstance(name, str) and name for name in self.order):
            raise InvalidSettingsError(f"order must be a list of names of layers, not {self.order!r}")
        if len(set(self.order)) < len(self.order):
            raise InvalidSettingsError(f"order names a layer twice: {', '.join(self.order)}")
        object.__setattr__(self, "order", tuple(self.order))

    @property
    def name(self) -> str:
        """`prioritized`, with the order where it is not the default."""
        return "prioritized" if self.order == ORDER else f"prioritized: {', '.join(self.order)}"

    def allocate(self, situation: Situation) -> Allocation:
        """Fill the layers one after the other.

        Raises:
            InvalidSettingsError: the order names a layer that is not there.
        """
        own = {spec.layer: spec for spec in situation.custom}
        if unknown := [name for name in self.order if name not in NAMES and name not in own]:
            known = ", ".join((*NAMES, *own))
            raise InvalidSettingsError(f"order names {', '.join(map(repr, unknown))}; the layers are {known}")
        rest = [name for name in ORDER if name not in self.order]
        others = sorted((name for name in own if name not in self.order), key=lambda name: (-own[name].priority, name))
        order = [*self.order, *rest, *others]
        before = order[: order.index("history")]
        ahead = sum(self._most(name, situation, own, everything=0) for name in before)
        fits_whole = wants.history_fits(situation, situation.free_tokens - ahead)
        specs: list[LayerSpec] = []
        for rank, name in enumerate(order):
            everything = 0 if fits_whole else situation.free_tokens
            most = self._most(name, situation, own, everything=everything)
            layer = NAMES.get(name, name)
            floor = min(most, situation.keep_tokens) if name == "history" else 0
            specs.append(_filled(layer, floor, most, priority=100 - rank))
            if name == "history":
                arc = 0 if fits_whole else min(wants.arc_ideal(situation), int(situation.free_tokens * SUMMARY_SHARE))
                specs.append(_filled(Layer.ARC, 0, arc, priority=100 - rank))
        return share_out(self.name, situation, specs, fits_whole=fits_whole)

    def _most(self, name: str, situation: Situation, own: dict[str, LayerSpec], *, everything: int) -> int:
        """All that a layer can use."""
        match name:
            case "preferences":
                return wants.preferences(situation, situation.free_tokens).ideal_tokens
            case "history":
                return situation.history_tokens
            case "topics":
                return situation.topic_tokens
            case "entities":
                return situation.entity_tokens
            case "retrieval":
                return everything
            case _:
                return own[name].limit_tokens


def _filled(layer: str, floor_tokens: int, most_tokens: int, priority: int) -> LayerSpec:
    """A layer that waits for its turn and then takes all it can use."""
    return LayerSpec(
        layer=layer,
        min_tokens=floor_tokens,
        ideal_tokens=floor_tokens,
        max_tokens=most_tokens,
        priority=priority,
    )
