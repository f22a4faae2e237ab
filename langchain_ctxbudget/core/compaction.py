"""Where verbatim history begins: a cut that stays put between compaction steps."""

from __future__ import annotations

from collections.abc import Sequence

SLACK = 0.5
"""Below this share of the target, the cut moves back: the budget has grown."""


def plan_cut(
    costs: Sequence[int],
    safe: Sequence[bool],
    *,
    cut: int,
    room_tokens: int,
    trigger: float,
    target: float,
    keep: int,
) -> int:
    """The position of the first message that stays verbatim.

    The cut stays where it is while what is behind it is at most `trigger` of the room, so that the prompt only
    grows at its end; then it moves to the oldest safe place where that is at most `target` of the room.
    Work is bounded by the room, not by the length of the conversation.

    Args:
        costs: what each message costs, in tokens, oldest first.
        safe: whether a cut right before that message leaves calls and results together.
        cut: the cut so far.
        room_tokens: what verbatim messages may cost together.
        trigger: the share of the room at which to compact.
        target: the share of the room to compact to.
        keep: the newest messages that stay verbatim.
    """
    end = len(costs)
    verbatim = 0
    for position in range(end - 1, cut - 1, -1):
        verbatim += costs[position]
        if verbatim > room_tokens:
            break
    grown = cut > 0 and verbatim < room_tokens * target * SLACK
    if cut <= end and verbatim <= room_tokens * trigger and not grown:
        return cut
    kept_from = max(0, end - keep)
    best, used = end, 0
    for position in range(end - 1, -1, -1):
        used += costs[position]
        if used > room_tokens * target and position < kept_from:
            break
        if safe[position]:
            best = position
    # Nowhere safe among the newest messages, as behind a call that is never answered: keep them all the same.
    return best if best < end else kept_from
