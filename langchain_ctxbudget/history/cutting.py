"""Where a history is cut: the messages behind the cut stand in the prompt word for word."""

from collections.abc import Container, Sequence
from dataclasses import dataclass

from langchain_ctxbudget.history.clipping import Cost
from langchain_ctxbudget.report import HistoryStrategy


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionPolicy:
    """When and how far a history is compacted."""

    pinned_share: float = 0.5
    """The share of the history's room that pinned messages before the cut may take."""
    verbatim_share: float = 0.9
    """The largest share of the history's room for verbatim messages, if the setting
    `compaction_trigger` is not lower; the summary gets the rest."""
    windowed_ratio: float = 2.5
    """A history of up to so many times its room has the strategy `windowed`."""
    compacted_ratio: float = 8.0
    """A history of up to so many times its room has the strategy `compacted`, a longer one
    `multi_level`."""


COMPACTION = CompactionPolicy()


def strategy_for(history_tokens: int, room_tokens: int) -> HistoryStrategy:
    """Returns the strategy for a history that is not sent whole, by its ratio to its room.

    The room is that of verbatim messages, summary and arc together.
    """
    ratio = history_tokens / max(1, room_tokens)
    if ratio <= COMPACTION.windowed_ratio:
        return "windowed"
    if ratio <= COMPACTION.compacted_ratio:
        return "compacted"
    return "multi_level"


def safe_at(safe: Sequence[bool], position: int) -> int:
    """Returns the last position up to a given one at which a cut is safe.

    A cut is safe if it parts no call from its results.
    """
    while 0 < position < len(safe) and not safe[position]:
        position -= 1
    return position


def group_around(safe: Sequence[bool], position: int, end: int) -> range:
    """Returns the positions of a message and of those that must stay with it, all before `end`."""
    group_end = position + 1
    while group_end < end and not safe[group_end]:
        group_end += 1
    return range(safe_at(safe, position), group_end)


def fits_behind(cost: Cost, cut: int, end: int, limit_tokens: float) -> bool:
    """Returns whether the messages from `cut` to `end` cost no more than a limit.

    It reads from the newest one, and stops once they cost more.
    """
    tokens = 0
    for position in range(end - 1, cut - 1, -1):
        tokens += cost(position)
        if tokens > limit_tokens:
            return False
    return True


def move_cut(
    cost: Cost,
    safe: Sequence[bool],
    span_starts: Container[int],
    *,
    room: int,
    trigger: float,
    target: float,
    keep: int,
    first: int = 0,
) -> int:
    """Returns the position of the first message that stays verbatim after a compaction.

    It is the beginning of a span, the one that leaves verbatim what is nearest to `target` of the
    room, and at most half-way from `target` to `trigger`. Where no span begins there, it is the
    oldest safe position that leaves at most `target`.

    Args:
        cost: What each message costs; no more of them are read than have room.
        safe: Whether a cut before each message is safe, see `safe_at`.
        span_starts: The positions where a span begins.
        room: The room for verbatim messages, in tokens.
        trigger: The share of the room over which a history is compacted.
        target: The share of the room that is to stay verbatim.
        keep: The number of newest messages that stay verbatim in any case.
        first: The earliest position for a cut.
    """
    end = len(safe)
    kept_from = max(first, end - keep)
    aim = room * target
    most = room * (target + trigger) / 2

    safe_places: list[int] = []
    # Of each beginning of a span: how far from the aim it is, in tokens, and its position.
    distances: list[tuple[float, int]] = []
    for position, tokens in _places_for_cut(cost, range(first, end), kept_from, most):
        if safe[position] and (tokens <= aim or position >= kept_from):
            safe_places.append(position)
        if position in span_starts and position <= kept_from:
            distances.append((abs(tokens - aim), position))

    oldest_safe = min(safe_places, default=end)
    if distances and oldest_safe > first:
        return min(distances)[1]
    if safe_places:
        return oldest_safe
    return _cut_without_safe_place(cost, safe, kept_from, room)


def _places_for_cut(
    cost: Cost, positions: range, kept_from: int, most_tokens: float
) -> list[tuple[int, int]]:
    """Returns positions for a cut, newest first, each with what the messages from there on cost.

    Positions before `kept_from` are among them only while that is at most `most_tokens`.
    """
    places: list[tuple[int, int]] = []
    tokens = 0
    for position in reversed(positions):
        tokens += cost(position)
        if tokens > most_tokens and position < kept_from:
            break
        places.append((position, tokens))
    return places


def _cut_without_safe_place(
    cost: Cost, safe: Sequence[bool], kept_from: int, room_tokens: int
) -> int:
    """Returns the cut if no position is safe that leaves few enough messages.

    The group is kept whole to which the first message belongs that stays in any case, if there is
    room for it. Else the cut is in the middle of that group.
    """
    group_start = safe_at(safe, kept_from)
    group_tokens = sum(cost(position) for position in range(group_start, len(safe)))
    return group_start if group_tokens <= room_tokens else kept_from
