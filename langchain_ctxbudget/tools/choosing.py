"""Which tools are bound where not all of them may be."""

from collections.abc import Iterator, Sequence

from langchain_ctxbudget.search import Scores
from langchain_ctxbudget.tools.index import order_of
from langchain_ctxbudget.tools.tool_set import ToolSet


def choose(
    tool_set: ToolSet,
    tokens: Sequence[int],
    scores: Scores,
    *,
    used: Sequence[str],
    most_tokens: int,
    always: Sequence[str] = (),
) -> list[int]:
    """Returns the places of the tools to bind, in the order given.

    Tools that must be bound come first, then those that were used, then the best ones. One for
    which there is no room is left out, and smaller ones after it may still be taken.

    Args:
        tool_set: All tools.
        tokens: The tokens of each.
        scores: How well each fits.
        used: The names of tools that were used, the most recently used first.
        most_tokens: The most tokens that all chosen ones may have.
        always: The names of tools that are bound in any case, even above the limit; those that a
            provider runs are too, as nobody could call them by name.
    """
    chosen: set[int] = {
        place
        for place, tool in enumerate(tool_set.tools)
        if tool.name in always or not tool.is_function
    }
    tokens_left = most_tokens - sum(tokens[place] for place in chosen)
    for place in _by_preference(tool_set, scores, used):
        if place not in chosen and tokens[place] <= tokens_left:
            chosen.add(place)
            tokens_left -= tokens[place]
    return sorted(chosen)


def _by_preference(tool_set: ToolSet, scores: Scores, used: Sequence[str]) -> Iterator[int]:
    """Yields the places of tools: those that were used, then the best; some come twice."""
    for name in used:
        place = tool_set.place_of(name)
        if place is not None:
            yield place
    yield from order_of(scores)
