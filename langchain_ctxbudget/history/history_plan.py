"""What one prompt gives to its history, and what follows from it for the history's messages."""

from dataclasses import dataclass
from functools import cached_property

from langchain_ctxbudget.history.clipping import Cost, cost_in, first_with_media
from langchain_ctxbudget.history.conversation import Conversation
from langchain_ctxbudget.history.cutting import COMPACTION, group_around
from langchain_ctxbudget.report import Mode
from langchain_ctxbudget.settings import ContextSettings
from langchain_ctxbudget.stores import CutRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryRoom:
    """The room that one prompt has for its history, in tokens unless it says otherwise."""

    total_tokens: int
    """The budget of the whole prompt."""
    history_tokens: int
    """What verbatim messages and summary get of it."""
    arc_tokens: int
    """What the arc gets of it, without the work state."""
    work_tokens: int = 0
    """The most that the work state may cost, which is told in the arc."""
    summary_tokens: int = 0
    """What the summary may cost even if verbatim messages fill the room."""
    fits_whole: bool
    """True if the budget has room for all messages as they are."""
    keep: int
    """The number of newest messages that stay in any case."""
    most_messages: int | None = None
    """The most messages that may be verbatim, besides those that stay in any case; None: as many as
    fit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Continuation:
    """How a prompt continues the last one."""

    grows: bool = False
    """True if prompts like this only grow between two rebuilds."""
    mode: Mode = Mode.REBUILT
    is_cold: bool = True
    """True if no cache holds the last prompt any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HistorySizes:
    """The messages of a history, measured for one prompt."""

    first: int
    """The position of the first message that the provider reads; see `as_compacted`."""
    end: int
    """The number of messages."""
    kept_from: int
    """The position of the first message that stays in any case."""
    most_verbatim: int
    """The most messages that may be verbatim, with those that stay in any case."""
    media_from: int
    """The position from which on large messages keep their media."""
    cost: Cost
    """What each message costs as this prompt shows it, if no old tool results are clipped short."""
    newest_tokens: int
    """What the messages cost that stay in any case."""
    room_tokens: int
    """The room for verbatim messages, and for a summary of the others."""
    pinned_room_tokens: int
    """The part of it that messages from before the cut may take."""
    important_tokens: int
    """The part of that which important messages may take."""


@dataclass(frozen=True, kw_only=True)
class HistoryPlan:
    """What decides on the history of one prompt.

    `choose_cut` says where it is cut; `history_view` makes what the prompt shows.
    """

    conversation: Conversation
    settings: ContextSettings
    room: HistoryRoom
    continuation: Continuation = Continuation()
    cut_key: str
    """The name of the cut: prompts with another budget, tokenizer or strategy have another one."""
    recall_tool: str = ""
    """The name of the tool by which the model may look messages up; empty where it has none."""

    @property
    def record(self) -> CutRecord | None:
        """The cut of the last prompt like this."""
        return self.conversation.cuts.get(self.cut_key)

    @property
    def trigger(self) -> float:
        """The history is compacted if verbatim messages take more than this share of the room."""
        return min(self.settings.compaction_trigger, COMPACTION.verbatim_share)

    @property
    def target(self) -> float:
        """The share of the room that a compaction leaves verbatim.

        Where prompts grow, they do so behind the room of a rebuilt one, which may be full.
        """
        return self.trigger if self.continuation.grows else self.settings.compaction_target

    @property
    def clips_whole(self) -> bool:
        """Tells whether the largest messages are clipped even if all messages are verbatim."""
        return self.conversation.total_tokens > self.room.total_tokens

    @cached_property
    def sizes(self) -> HistorySizes:
        """The messages, measured for this prompt."""
        room = self.room
        conversation = self.conversation
        end = len(conversation.entries)
        kept_from = max(conversation.first, end - room.keep)
        most_verbatim = end
        if room.most_messages is not None:
            most_verbatim = max(room.most_messages, room.keep)
        media_from = first_with_media(conversation, room.total_tokens)
        cost = cost_in(conversation, room.total_tokens, media_from=media_from)

        newest_tokens = sum(map(cost, range(kept_from, end)))
        room_tokens = max(room.history_tokens, newest_tokens)
        pinned_room_tokens = min(
            int(room_tokens * COMPACTION.pinned_share), room_tokens - newest_tokens
        )
        return HistorySizes(
            first=conversation.first,
            end=end,
            kept_from=kept_from,
            most_verbatim=most_verbatim,
            media_from=media_from,
            cost=cost,
            newest_tokens=newest_tokens,
            room_tokens=room_tokens,
            pinned_room_tokens=pinned_room_tokens,
            important_tokens=int(room.total_tokens * self.settings.keep_important),
        )


def pinned_tokens(conversation: Conversation, budget_tokens: int, important: float) -> int:
    """Returns what pinned and important messages may cost, which stay verbatim before a cut.

    A pinned call counts with its results, and a pinned result with its call.

    Args:
        conversation: The conversation.
        budget_tokens: The budget of the prompt.
        important: The share of the budget that important messages get.
    """
    end = len(conversation.entries)
    positions: set[int] = set()
    for position in conversation.kept_positions:
        positions.update(group_around(conversation.safe, position, end))
    cost = cost_in(conversation, budget_tokens)
    return sum(map(cost, positions)) + int(budget_tokens * important)
