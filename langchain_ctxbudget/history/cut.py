"""Where verbatim history begins: a cut that stays put between compaction steps."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence

from langchain_ctxbudget.report.report import HistoryStrategy

WINDOWED_RATIO, COMPACTED_RATIO = 2.5, 8.0
"""Up to so many times its room, a history is windowed, or compacted (seed 000)."""


def strategy_for(history_tokens: int, room_tokens: int) -> HistoryStrategy:
    """The seed's strategy for a history that is not sent whole, by its compression ratio (seed 000).

    Args:
        history_tokens: what all of it would cost.
        room_tokens: what arc and history (L4 and L6) may cost.
    """
    ratio = history_tokens / max(1, room_tokens)
    if ratio <= WINDOWED_RATIO:
        return "windowed"
    return "compacted" if ratio <= COMPACTED_RATIO else "multi_level"


def stays(cost: Callable[[int], int], cut: int, end: int, limit_tokens: float) -> bool:
    """Whether everything behind a cut costs at most so much; reads no more messages than that takes.

    Args:
        cost: what the message at a position costs, in tokens.
        cut: the position of the first verbatim message.
        end: the position behind the last one.
        limit_tokens: what they may cost together.
    """
    used = 0
    for position in range(end - 1, cut - 1, -1):
        used += cost(position)
        if used > limit_tokens:
            return False
    return True


def safe_at(safe: Sequence[bool], position: int) -> int:
    """The last place up to a position where a cut leaves calls and results together.

    >>> safe_at([True, False, False, True], 2)
    0
    """
    while 0 < position < len(safe) and not safe[position]:
        position -= 1
    return position


def move_cut(
    cost: Callable[[int], int],
    safe: Sequence[bool],
    starts: Container[int],
    *,
    room_tokens: int,
    trigger: float,
    target: float,
    keep: int,
) -> int:
    """The position of the first message that stays verbatim after a compaction step.

    It is the end of a segment, the one that leaves about `target` of the room; no more than half-way to the trigger,
    or the next step would come too soon. Where no segment ends there, as in a small room, it is the oldest safe place
    that leaves at most `target`. Work is bounded by the room, not by the length of the conversation.

    Args:
        cost: what the message at a position costs, in tokens.
        safe: whether a cut right before that message leaves calls and results together.
        starts: positions where segments begin.
        room_tokens: what verbatim messages may cost together.
        trigger: the share of the room at which the next step comes.
        target: the share of the room to compact to.
        keep: the newest messages that stay verbatim.
    """
    end = len(safe)
    kept_from = max(0, end - keep)
    aim, most = room_tokens * target, room_tokens * (target + trigger) / 2
    best = end
    aligned: tuple[float, int] | None = None
    used = 0
    for position in range(end - 1, -1, -1):
        used += cost(position)
        if used > most and position < kept_from:
            break
        if safe[position] and (used <= aim or position >= kept_from):
            best = position
        if position in starts and position <= kept_from:
            found = (abs(used - aim), position)
            aligned = found if aligned is None else min(aligned, found)
    if aligned is not None and best:
        return aligned[1]
    if best < end:
        return best
    # Nowhere safe among the newest messages: keep the whole group where there is room for it, and otherwise, as behind
    # a call that is never answered, keep them all the same.
    whole, used = kept_from, sum(map(cost, range(kept_from, end)))
    while 0 < whole < end and not safe[whole] and (used := used + cost(whole - 1)) <= room_tokens:
        whole -= 1
    return whole if whole < end and safe[whole] else kept_from
