"""Fitting a turn into its room: the human message and the newest step stay, older steps give way as old history does.

A step is an AI message with all its results. What is shown of a step changes only where the turn would not fit any
more: then it is brought down to `TARGET_SHARE` of its room at once, so that between two such moments a growing turn
only grows at its end, and a provider's cache hits. It follows from the steps alone, so a process that goes on with a
turn shows of it what the one before showed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from langchain_core.messages import BaseMessage, HumanMessage, ToolMessage

from langchain_ctxbudget.messages.calls import call_ids
from langchain_ctxbudget.messages.clipping import clip_message, water_level
from langchain_ctxbudget.messages.turns import Group
from langchain_ctxbudget.prompt.assembly import group_tokens
from langchain_ctxbudget.tokens.counters import TokenCounter

NEWEST_SHARE = 0.75
"""The newest step's share of the room that the human message leaves, where not all steps fit."""
TARGET_SHARE = 0.7
"""A turn that is too large goes down to this share at once; beside a large newest step the older ones keep half of the
rest."""
WORDS_SHARE = 0.5
"""The share of the turn's budget for human messages that may be clipped and leave no room for a step."""
OLD_RESULT_TOKENS = 256
"""The size of an older result before its whole step gives way."""
SMALLEST_CLIP_TOKENS = 64
"""A message that is clipped keeps about this much."""
NOTE_TOKENS = 40
"""The most that the line about steps that are left out costs."""

Kinds = tuple[type[BaseMessage], ...]
Name = Callable[[BaseMessage], str | None]
"""Returns the reference under which the recall tool gives a message."""


def _unnamed(_message: BaseMessage) -> None:
    return None


@dataclass(frozen=True, slots=True)
class FittedTurn:
    """A turn as it is sent."""

    groups: tuple[Group, ...]
    left_out: tuple[Group, ...] = ()
    clipped: frozenset[int] = frozenset()
    """Positions of the groups that are not sent whole."""


@dataclass(slots=True)
class _Shown:
    """The shown part of a turn that grows step by step."""

    whole: Sequence[Group]
    """The turn as it is."""
    groups: dict[int, Group] = field(default_factory=dict)
    costs: dict[int, int] = field(default_factory=dict)
    total: int = 0
    dropped: bool = False
    """True where steps are left out, which a line will tell."""
    name: Name = _unnamed
    shortest: set[int] = field(default_factory=set)
    """Steps that cannot be shortened any more."""

    def put(self, number: int, group: Group, tokens: int) -> None:
        self.total += tokens - self.costs.get(number, 0)
        self.groups[number], self.costs[number] = group, tokens

    def drop(self, number: int) -> None:
        self.total -= self.costs.pop(number)
        del self.groups[number]
        self.dropped = True


def fit_turn(
    groups: Sequence[Group],
    counter: TokenCounter,
    *,
    budget_tokens: int,
    room_tokens: int,
    clip_human: bool = False,
    name: Name = _unnamed,
) -> FittedTurn | int:
    """Returns the part of a turn that is sent.

    Args:
        groups: the turn.
        counter: how tokens are counted.
        budget_tokens: what it should cost at most.
        room_tokens: what it can cost at most: what must be sent may take more than its budget.
        clip_human: whether a human message that does not fit may be clipped.
        name: under which reference the recall tool gives a message that is clipped.

    Returns:
        the turn, or what it needs at least, in tokens, where that is more than the room.
    """
    costs = [group_tokens(part, counter) for part in groups]
    human = [i for i, part in enumerate(groups) if any(isinstance(message, HumanMessage) for message in part.messages)]
    shown = _Shown(groups, name=name)
    for number in human:
        shown.put(number, groups[number], costs[number])
    for number in (i for i in range(len(groups)) if i not in human):
        shown.put(number, groups[number], costs[number])
        _make_room(shown, number, human, counter, budget_tokens)
        if shown.total > room_tokens and clip_human:
            _shorten_words(shown, human, counter, int(budget_tokens * WORDS_SHARE))
            shown.put(number, groups[number], costs[number])
            _make_room(shown, number, human, counter, budget_tokens)
    if shown.total > room_tokens:
        needed = {i: groups[i] for i in sorted({*human, *_newest(groups, range(len(groups)))})}
        kinds: Kinds = (ToolMessage, HumanMessage) if clip_human else (ToolMessage,)
        least = sum(group_tokens(part, counter) for part in clipped(needed, counter, 0, kinds, name=name).values())
        if least > room_tokens:
            return least
        room = min(room_tokens, max(least, budget_tokens))
        shown = _Shown(groups, clipped(needed, counter, room, kinds, name=name))
    return FittedTurn(
        groups=tuple(shown.groups[i] for i in sorted(shown.groups)),
        left_out=tuple(part for i, part in enumerate(groups) if i not in shown.groups),
        clipped=frozenset(part.positions[0] for i, part in enumerate(groups) if shown.groups.get(i, part) != part),
    )


def _newest(groups: Mapping[int, Group] | Sequence[Group], numbers: Sequence[int]) -> set[int]:
    """The last of some groups, and the last of them that has calls."""
    return {*numbers[-1:], *[i for i in numbers if call_ids(groups[i].messages[0])][-1:]}


def _make_room(shown: _Shown, newest: int, human: Sequence[int], counter: TokenCounter, budget_tokens: int) -> None:
    """Bring a turn that is too large down to its target: the oldest results first, then the oldest whole steps."""
    if shown.total + (NOTE_TOKENS if shown.dropped else 0) <= budget_tokens:
        return
    older = sorted(i for i in shown.groups if i != newest and i not in human)
    budget_tokens -= NOTE_TOKENS if older or shown.dropped else 0
    said = sum(shown.costs[i] for i in human)
    most = int((budget_tokens - said) * NEWEST_SHARE)
    if shown.costs[newest] > most:
        _shorten(shown, newest, counter, max(0, most), SMALLEST_CLIP_TOKENS)
    needed = said + shown.costs[newest]
    target = max(int(budget_tokens * TARGET_SHARE), needed, (needed + budget_tokens) // 2)
    for number in older:
        if shown.total <= target:
            return
        if number not in shown.shortest:
            _shorten(shown, number, counter, shown.costs[number] - (shown.total - target), OLD_RESULT_TOKENS)
    for number in sorted(set(older) - _newest(shown.groups, [*older, newest])):
        if shown.total <= target:
            return
        shown.drop(number)


def _shorten_words(shown: _Shown, human: Sequence[int], counter: TokenCounter, budget_tokens: int) -> None:
    said = {number: shown.whole[number] for number in human}
    for number, part in clipped(said, counter, budget_tokens, (HumanMessage,), name=shown.name).items():
        shown.put(number, part, group_tokens(part, counter))


def _shorten(shown: _Shown, number: int, counter: TokenCounter, budget_tokens: int, smallest_tokens: int) -> None:
    if shown.costs[number] > smallest_tokens:
        whole = {number: shown.whole[number]}
        part = clipped(whole, counter, budget_tokens, (ToolMessage,), smallest_tokens, name=shown.name)[number]
        tokens = group_tokens(part, counter)
        if tokens < shown.costs[number]:
            shown.put(number, part, tokens)
    if shown.costs[number] > budget_tokens:
        shown.shortest.add(number)


def clipped(
    groups: dict[int, Group],
    counter: TokenCounter,
    budget_tokens: int,
    kinds: Kinds,
    smallest_tokens: int = SMALLEST_CLIP_TOKENS,
    *,
    name: Name = _unnamed,
) -> dict[int, Group]:
    """Groups whose largest messages of some kinds are clipped, so that together they fit a budget if they can.

    Args:
        groups: by number.
        counter: how tokens are counted.
        budget_tokens: what they may cost together; none of them is clipped below `smallest_tokens` for it.
        kinds: which messages may be clipped.
        smallest_tokens: what a clipped message may cost in any case.
        name: under which reference the recall tool gives a message that is clipped.
    """
    places = [(number, place) for number, part in groups.items() for place in range(len(part.messages))]
    messages = {at: groups[at[0]].messages[at[1]] for at in places}
    costs = {at: counter.count_message(message) for at, message in messages.items()}
    shortest = {
        at: shorter
        for at, message in messages.items()
        if isinstance(message, kinds) and (shorter := _shortest(message, counter, smallest_tokens, name)) is not message
    }
    least = {at: counter.count_message(message) for at, message in shortest.items()}
    left = budget_tokens - sum(cost for at, cost in costs.items() if at not in shortest)
    open_places = list(shortest)
    while open_places:
        most = water_level([costs[at] for at in open_places], left)
        stuck = [at for at in open_places if least[at] >= min(most, costs[at])]
        if not stuck:
            break
        left -= sum(least[at] for at in stuck)
        open_places = [at for at in open_places if at not in stuck]
    sent = {**messages, **shortest}
    for at in open_places:
        sent[at] = _clip(messages[at], counter, most, name) or shortest[at]
    return {
        number: Group(tuple(sent[number, place] for place in range(len(part.messages))), part.positions)
        for number, part in groups.items()
    }


def _shortest(message: BaseMessage, counter: TokenCounter, smallest_tokens: int, name: Name) -> BaseMessage:
    """A message with as little text as it may be left with; itself where it cannot be shorter."""
    others_tokens = 0
    if not isinstance(message, ToolMessage) and not isinstance(message.content, str):
        others = [block for block in message.content if isinstance(block, dict) and block.get("type") != "text"]
        others_tokens = counter.count_message(message.model_copy(update={"content": others}))
    for times in (1, 2, 4):  # characters of many tokens may leave too little at first
        least = others_tokens + smallest_tokens * times
        if shorter := _clip(message, counter, least, name):
            return shorter
    return message


def _clip(message: BaseMessage, counter: TokenCounter, most_tokens: int, name: Name) -> BaseMessage | None:
    return clip_message(message, counter.count_message, counter.count_text, most_tokens, reference=name(message))
