"""The layer of the conversation's thread: story, decisions, open questions, an agent's work state.

Its lines are written where the history is cut, see `history/arc.py` and `history/work_state.py`.
"""

from collections.abc import Mapping, Sequence

from langchain_ctxbudget.budget import Fragment, Layer
from langchain_ctxbudget.history import fragments
from langchain_ctxbudget.layers.base import (
    Chosen,
    Place,
    PromptLayer,
    Rung,
    Staying,
    TurnView,
    View,
)
from langchain_ctxbudget.messages import Count, fences
from langchain_ctxbudget.stores import SummaryLine

LEAST_SHARE = 0.25
"""The share of the arc that stays in any case."""


class ArcLayer(PromptLayer):
    """What stands for the course of a conversation that is not sent word for word."""

    name = Layer.ARC
    title = Layer.ARC.full_name
    place = Place.STABLE
    fence = fences.ARC

    def granted_tokens(self, tokens: int, turn: TurnView) -> int:
        """Returns the arc's grant, with both work states.

        A strategy sees that of the stored messages as overhead, and that of the turn as free room
        of the turn.
        """
        return tokens + turn.work_tokens + turn.own_work_tokens

    def items(self, view: View, _tokens: int) -> Chosen:
        """Returns the lines that were written for the cut of the history."""
        return Chosen(fragments=view.history.arc)

    def staying(self, rung: Rung) -> Sequence[Staying]:
        """Returns how many lines stay when a rung of the last resort is taken."""
        return [Staying(share=LEAST_SHARE)] if rung is Rung.MIDDLE_OUT else ()


def lines_tokens(granted_tokens: Mapping[str, int], turn: TurnView) -> int:
    """Returns the tokens for the lines of the arc itself, without work states."""
    work_tokens = turn.work_tokens + turn.own_work_tokens
    return granted_tokens[ArcLayer.name] - work_tokens


def work_items(lines: Sequence[SummaryLine], count: Count) -> tuple[Fragment, ...]:
    """Returns the lines of a turn's work state as items."""
    return fragments(ArcLayer.name, lines, count)
