"""How what is too large gives way: one item after the other, until the excess is gone.

Whatever shortens a prompt goes through `give_way`: layers that are pruned, the rungs of the last
resort and what goes with each, large messages of the history, older rounds of a turn. Each says
what its items are, in which order they give way, and what shrinking one of them does.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Yielding:
    """An item that may give way."""

    priority: Any
    """The item with the least one gives way first; all of a list can be compared."""
    shrink: Callable[[int], int]
    """Makes the item smaller by up to so many tokens, and returns by how many it is smaller now.

    It may be more, where the item can only go whole, or less, where no more can be spared."""
    goes_anyway: bool = False
    """True if it goes even where nothing is over the limit any more."""


def give_way(items: Iterable[Yielding], excess_tokens: int) -> int:
    """Lets items give way, the least important first, until an excess is gone.

    Returns:
        What is left of the excess: above 0 where all items together cannot free as much.
    """
    for item in sorted(items, key=lambda item: item.priority):
        if excess_tokens > 0 or item.goes_anyway:
            excess_tokens -= item.shrink(excess_tokens)
    return excess_tokens
