"""What the calls of a loop remember of their turn, so that each reads and fits only what is new.

It lives as long as the counted messages of its conversation: where these are forgotten, so is this.
Whoever makes a prompt holds the conversation's lock.
"""

from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

from langchain_ctxbudget.history import Conversation, Costs
from langchain_ctxbudget.prompt.large_media import KeptForms
from langchain_ctxbudget.prompt.turn import TURN_POLICY, GrowingTurn, ReadTurn, TurnLimits
from langchain_ctxbudget.worker import keep_newest

TurnState = tuple[TurnLimits, int]
"""The limits of a turn, and the number of messages stored before it."""


@dataclass(slots=True)
class TurnMemory:
    """The turn of a conversation as earlier calls have read and fitted it, for one counter."""

    read: ReadTurn = field(default_factory=ReadTurn)
    """The turn as it was read last."""
    without_media: KeptForms = field(default_factory=KeptForms)
    """Its groups as they are shown without media for which there is no room."""
    _fitted: dict[TurnState, GrowingTurn] = field(default_factory=dict)

    def take(self, state: TurnState) -> GrowingTurn | None:
        """Takes a turn out, so that nobody else goes on with it; None if it is not there."""
        return self._fitted.pop(state, None)

    def keep(self, state: TurnState, turn: GrowingTurn) -> None:
        """Keeps a turn for the next call; of several states, the newest ones are kept."""
        keep_newest(self._fitted, state, turn, TURN_POLICY.kept_turns)


_MEMORIES: WeakKeyDictionary[Costs, TurnMemory] = WeakKeyDictionary()


def memory_of(conversation: Conversation) -> TurnMemory:
    """Returns what is remembered of the turn of a conversation."""
    return _MEMORIES.setdefault(conversation.columns, TurnMemory())
