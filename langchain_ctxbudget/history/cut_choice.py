"""Choosing where the history of a prompt is cut.

Messages behind the cut are verbatim; a summary and an arc stand for those before it, but for those
that are kept.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from langchain_ctxbudget.history.clipping import Cost, cost_in
from langchain_ctxbudget.history.cutting import fits_behind, group_around, move_cut, safe_at
from langchain_ctxbudget.history.history_plan import HistoryPlan
from langchain_ctxbudget.stores import CutRecord


@dataclass(frozen=True, slots=True)
class CutChoice:
    """How the history of a prompt is cut."""

    cut: int = 0
    """The position of the first message that is verbatim, besides those that are kept before it."""
    cleared: int = 0
    """Tool results before this position are clipped short."""
    whole: bool = False
    """True if all messages are verbatim."""
    media_from: int | None = None
    """The position from which on large messages keep their media; None: it is chosen now."""
    record: CutRecord | None = None
    """The cut that stays; None where another one is made."""


def choose_cut(plan: HistoryPlan) -> CutChoice:
    """Decides where verbatim history begins."""
    record = plan.record
    if record is not None and _stays(plan, record):
        return CutChoice(record.position, record.cleared, record=record)
    messages = plan.sizes.end - plan.sizes.first
    if messages == 0 or (messages <= plan.sizes.most_verbatim and _has_room_for_all(plan, record)):
        return CutChoice(plan.sizes.first, whole=True)
    return CutChoice(_next_cut(plan, record), cleared=plan.sizes.kept_from)


def _stays(plan: HistoryPlan, record: CutRecord) -> bool:
    """Returns whether the cut of the last prompt stays where it is."""
    if plan.continuation.mode.extends_last:
        return True
    return not plan.continuation.grows and not _is_due(plan, record)


def _has_room_for_all(plan: HistoryPlan, record: CutRecord | None) -> bool:
    """Returns whether there is room for all messages verbatim.

    A history that has been cut (`record`) is whole again only if no message need be clipped.
    """
    if plan.room.fits_whole:
        return True
    if record is not None:
        return False
    cost: Cost = plan.conversation.costs.__getitem__
    if plan.clips_whole:
        cost = plan.sizes.cost
    room = plan.sizes.room_tokens * plan.trigger
    return fits_behind(cost, plan.sizes.first, plan.sizes.end, room)


def _is_due(plan: HistoryPlan, record: CutRecord) -> bool:
    """Returns whether a history that has been cut is to be cut anew.

    It is if all of it fits now, if a model has written new summaries, or if too much is
    verbatim and another cut, or shorter tool results, would change that.
    """
    if plan.room.fits_whole and plan.sizes.end - plan.sizes.first <= plan.sizes.most_verbatim:
        return True
    if plan.conversation.table.span_digests.has_news(record.waiting):
        return True
    if plan.sizes.end - record.position <= plan.sizes.most_verbatim and _is_within_trigger(
        plan, record
    ):
        return False
    # The newest messages alone may be too much: then a compaction would change nothing.
    return _next_cut(plan, record) != record.position or _would_clear_more(plan, record)


def _is_within_trigger(plan: HistoryPlan, record: CutRecord) -> bool:
    """Returns whether the messages behind a cut take no more than their share of the room."""
    room = plan.sizes.room_tokens - sum(map(plan.sizes.cost, record.kept))
    cost = cost_as_cut(plan, record)
    return fits_behind(cost, record.position, plan.sizes.end, room * plan.trigger)


def _would_clear_more(plan: HistoryPlan, record: CutRecord) -> bool:
    """Returns whether tool results that a cut shows at length would be clipped short now."""
    cost_before = cost_as_cut(plan, record)
    cost_after = _cost_when_cleared(plan)
    return any(
        cost_after(position) != cost_before(position)
        for position in range(record.cleared, plan.sizes.kept_from)
    )


def cost_as_cut(plan: HistoryPlan, record: CutRecord) -> Cost:
    """Returns what each message costs as a cut shows it."""
    return cost_in(plan.conversation, plan.room.total_tokens, record.cleared, record.media_from)


def _cost_when_cleared(plan: HistoryPlan) -> Cost:
    """Returns what each message costs once old tool results are clipped short."""
    return cost_in(
        plan.conversation, plan.room.total_tokens, plan.sizes.kept_from, plan.sizes.media_from
    )


def _next_cut(plan: HistoryPlan, record: CutRecord | None) -> int:
    """Returns where a compaction would cut.

    Old tool results are clipped short first, and the cut stays where it was if that is enough.
    Else it moves, and the oldest messages give way.
    """
    cut = plan.sizes.first
    is_within_trigger = False
    if record is not None:
        cut = record.position
        is_within_trigger = _is_within_trigger(plan, record)
    share = plan.trigger
    if not is_within_trigger:
        # It is compacted for want of room, and should not be full again at once: clipping results
        # is enough only if that leaves half of what moving the cut would.
        share = (plan.target + plan.trigger) / 2

    cost = _cost_when_cleared(plan)
    kept = kept_positions(plan, plan.sizes.end, important_tokens=0)
    room = plan.sizes.room_tokens - sum(map(plan.sizes.cost, kept))
    room -= min(plan.sizes.important_tokens, plan.sizes.pinned_room_tokens)
    if not fits_behind(cost, cut, plan.sizes.end, room * share):
        cut = max(cut, cut_at_target(plan, cost, room))
    if plan.sizes.end - cut > plan.sizes.most_verbatim:
        # Only the messages that must stay verbatim: with as many as are allowed, the next turn
        # would be over that number again.
        cut = max(cut, safe_at(plan.conversation.safe, plan.sizes.kept_from))
    return cut


def cut_at_target(plan: HistoryPlan, cost: Cost, room_tokens: int) -> int:
    """Returns the cut that leaves about the target of a room verbatim."""
    return move_cut(
        cost,
        plan.conversation.safe,
        plan.conversation.spans(plan.settings.span_messages).tree,
        room=room_tokens,
        trigger=plan.trigger,
        target=plan.target,
        keep=plan.room.keep,
        first=plan.sizes.first,
    )


def kept_positions(plan: HistoryPlan, cut: int, important_tokens: int) -> tuple[int, ...]:
    """Returns the positions of messages before a cut that stay verbatim, in whole groups.

    A provider's own compaction stays in any case. Pinned messages stay as far as their room goes,
    the newest first. What they leave of it goes to important messages, at most `important_tokens`.
    """
    conversation = plan.conversation
    kept = {position for position in conversation.compaction or () if position < cut}
    newest_pins = reversed(conversation.kept_positions)
    tokens_left = _keep_groups(plan, newest_pins, kept, cut, plan.sizes.pinned_room_tokens)
    if important_tokens:
        most_important = conversation.spans(plan.settings.span_messages).important(cut)
        quotable = [
            at for at in most_important if at >= plan.sizes.first and conversation.quotable[at]
        ]
        _keep_groups(plan, quotable, kept, cut, min(tokens_left, important_tokens))
    return tuple(sorted(kept))


def _keep_groups(
    plan: HistoryPlan, positions: Iterable[int], kept: set[int], cut: int, most_tokens: int
) -> int:
    """Adds to `kept` the groups of messages before a cut for which there is room.

    Returns the tokens that are left.
    """
    tokens_left = most_tokens
    for position in positions:
        if position >= cut or position in kept:
            continue
        positions_of_group = group_around(plan.conversation.safe, position, cut)
        tokens = sum(map(plan.sizes.cost, positions_of_group))
        if tokens <= tokens_left:
            tokens_left -= tokens
            kept.update(positions_of_group)
    return tokens_left
