"""Where a history is cut: the messages behind the cut stand in the prompt word for word."""

from collections.abc import Container, Sequence
from dataclasses import dataclass

from langchain_ctxbudget.history.clipping import Cost
from langchain_ctxbudget.report import HistoryStrategy


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionPolicy:
    """When and how far a history is compacted."""

    pinned_share: float = 0.5
    """The share of the room for verbatim messages that pinned ones before the cut may take."""
    verbatim_share: float = 0.9
    """The share of that room that verbatim messages may take, whatever the trigger; summaries get
    the rest."""
    windowed_ratio: float = 2.5
    """Up to so many times its room, a history is windowed."""
    compacted_ratio: float = 8.0
    """Up to so many times its room, a history is compacted; a longer one gets several levels."""


COMPACTION = CompactionPolicy()


def strategy_for(history_tokens: int, room_tokens: int) -> HistoryStrategy:
    """Returns the strategy for a history that is not sent whole, by its ratio to its room.

    The room is that of the history and of the arc.
    """
    ratio = history_tokens / max(1, room_tokens)
    if ratio <= COMPACTION.windowed_ratio:
        return "windowed"
    if ratio <= COMPACTION.compacted_ratio:
        return "compacted"
    return "multi_level"


def safe_at(safe: Sequence[bool], position: int) -> int:
    """Returns the last place up to a position where a cut leaves calls and results together."""
    while 0 < position < len(safe) and not safe[position]:
        position -= 1
    return position


def group_around(safe: Sequence[bool], position: int, end: int) -> range:
    """Returns the positions before `end` whose messages must stay together with a message."""
    behind = position + 1
    while behind < end and not safe[behind]:
        behind += 1
    return range(safe_at(safe, position), behind)


def fits_behind(cost: Cost, cut: int, end: int, limit_tokens: float) -> bool:
    """Returns whether the messages from a cut to an end fit a limit.

    It stops reading once they do not.
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
) -> int:
    """Returns the position of the first message that stays verbatim after a compaction.

    A span ends in front of it: the one that leaves about `target` of the room, and no more than
    half-way from there to the trigger. Where none ends there, it is the oldest safe place that
    leaves at most `target`.

    Args:
        cost: What each message costs; no more of them are read than have room.
        safe: Whether a cut before each message leaves calls and results together.
        span_starts: The positions where a span begins, behind the end of another one.
        room: The room for verbatim messages, in tokens.
        trigger: The share of the room over which a history is compacted.
        target: The share of the room that is to stay verbatim.
        keep: The number of newest messages that stay verbatim in any case.
    """
    end = len(safe)
    kept_from = max(0, end - keep)
    aim = room * target
    most = room * (target + trigger) / 2

    safe_places: list[int] = []
    # Of each place between two spans: how far it is from the aim, in tokens, and its position.
    distances: list[tuple[float, int]] = []
    for position, tokens in _places_for_cut(cost, kept_from, end, most):
        if safe[position] and (tokens <= aim or position >= kept_from):
            safe_places.append(position)
        if position in span_starts and position <= kept_from:
            distances.append((abs(tokens - aim), position))

    oldest_safe = min(safe_places, default=end)
    if distances and oldest_safe > 0:
        return min(distances)[1]
    if safe_places:
        return oldest_safe
    return _cut_without_safe_place(cost, safe, kept_from, room)


def _places_for_cut(
    cost: Cost, kept_from: int, end: int, most_tokens: float
) -> list[tuple[int, int]]:
    """Returns positions for a cut, newest first, each with what the messages from there on cost.

    Beyond the messages that are kept in any case, these cost at most so many tokens.
    """
    places: list[tuple[int, int]] = []
    tokens = 0
    for position in range(end - 1, -1, -1):
        tokens += cost(position)
        if tokens > most_tokens and position < kept_from:
            break
        places.append((position, tokens))
    return places


def _cut_without_safe_place(
    cost: Cost, safe: Sequence[bool], kept_from: int, room_tokens: int
) -> int:
    """Returns the cut where no place among the newest messages is safe.

    It is before their whole group if there is room for it, else before the newest messages alone.
    """
    group_start = safe_at(safe, kept_from)
    group_tokens = sum(cost(position) for position in range(group_start, len(safe)))
    return group_start if group_tokens <= room_tokens else kept_from
