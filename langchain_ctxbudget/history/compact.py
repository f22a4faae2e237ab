"""The history layer of one prompt: recent messages verbatim, a summary and an arc for what is older."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from langchain_core.messages import BaseMessage, ToolMessage

from langchain_ctxbudget.core import fences
from langchain_ctxbudget.core.assembly import Fragment
from langchain_ctxbudget.core.compaction import Strategy, move_cut, safe_at, stays, strategy_for
from langchain_ctxbudget.core.layers import Layer
from langchain_ctxbudget.core.turns import Group, Repair, group
from langchain_ctxbudget.history.conversation import Conversation
from langchain_ctxbudget.history.digests import arc_line, arc_of, digests_before
from langchain_ctxbudget.history.render import fragments, intro, outro, summary_lines, zones
from langchain_ctxbudget.settings import ContextSettings
from langchain_ctxbudget.stores.records import CutRecord

KEEP_SHARE = 0.25
"""The newest messages stay verbatim whenever they fit this share of the budget; nor may one of them take more."""
RESULT_SHARE = 0.125
"""What one result of a tool may take of the budget."""
CLEARED_TOKENS = 64
"""What is left of an old result: results give way before dialogue does."""
SMALLEST_ITEM_TOKENS = 128
"""No message is clipped below this, old results apart."""
PINNED_SHARE = 0.5
"""What messages that are kept from before the cut may take of the room for verbatim ones."""
MOST_VERBATIM = 0.9
"""What verbatim messages may take of their layer, whatever the trigger: the rest is the summaries'."""
LONGEST_CLIPPED = 1_000
"""Messages of a conversation up to which it may be shown whole but for its largest ones."""
MAX_MOVES = 4
"""Tries to make room for what is kept from before the cut; two are enough."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryView:
    """The history as it goes into one prompt."""

    strategy: Strategy
    cut: int
    """How many messages are not verbatim, but for those that are kept."""
    groups: tuple[Group, ...] = ()
    repairs: tuple[Repair, ...] = ()
    shortened: frozenset[int] = frozenset()
    """Positions of the messages among them that are not sent whole."""
    summary: tuple[Fragment, ...] = ()
    summary_intro: str = ""
    summary_outro: str = ""
    arc: tuple[Fragment, ...] = ()
    step: bool = False
    """Whether the cut moved, is the first one, or what stands for the messages before it was written anew."""
    made_by: dict[str, int] = field(default_factory=dict)
    """Lines of summary and arc by who wrote them."""
    waiting: tuple[str, ...] = ()
    """Hashes of the spans that a model has not written about yet."""
    next_cut: int = 0
    """Where a compaction step would put the cut now; known where a model writes summaries."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one message may cost among others, so that none takes the place of all."""

    message_tokens: int
    result_tokens: int
    cleared: int = 0
    """Results of tools before this position are shown in short."""

    @classmethod
    def of(cls, budget_tokens: int) -> Limits:
        """The limits for a budget; they do not change with the turn, or the prompt would."""
        return cls(
            max(SMALLEST_ITEM_TOKENS, int(budget_tokens * KEEP_SHARE)),
            max(SMALLEST_ITEM_TOKENS, int(budget_tokens * RESULT_SHARE)),
        )

    def shown(self, conversation: Conversation, position: int) -> tuple[BaseMessage, int]:
        """A message within its limit, and what it costs."""
        if not isinstance(conversation.entries[position].message, ToolMessage):
            return conversation.shown(position, self.message_tokens)
        return conversation.shown(position, CLEARED_TOKENS if position < self.cleared else self.result_tokens)


def newest_costs(conversation: Conversation, messages: int, budget_tokens: int) -> list[int]:
    """What the newest messages cost as they would be shown.

    Args:
        conversation: an open conversation.
        messages: how many are wanted.
        budget_tokens: of the whole request.
    """
    limits, end = Limits.of(budget_tokens), len(conversation.entries)
    return [limits.shown(conversation, position)[1] for position in range(max(0, end - messages), end)]


def history_tokens(conversation: Conversation, budget_tokens: int) -> int:
    """What a conversation would cost whole, results of tools that are too large in short.

    Where it fits the budget only with its largest messages in short, what it costs so.

    Args:
        conversation: an open conversation.
        budget_tokens: of the whole request.
    """
    whole, end = conversation.total_tokens, len(conversation.entries)
    if whole <= budget_tokens or end > LONGEST_CLIPPED:
        return whole
    limits = Limits.of(budget_tokens)
    costs = [limits.shown(conversation, position)[1] for position in range(end)]
    if sum(costs) <= budget_tokens:
        return sum(costs)
    results = (at for at in range(end) if isinstance(conversation.entries[at].message, ToolMessage))
    return whole - sum(conversation.costs[at] - costs[at] for at in results)


def pinned_tokens(conversation: Conversation, budget_tokens: int) -> int:
    """What the messages cost that are to be kept, with the calls and results that they cannot be parted from."""
    limits, end = Limits.of(budget_tokens), len(conversation.entries)
    groups = (_group_around(conversation.safe, position, end) for position in conversation.kept)
    return sum(limits.shown(conversation, position)[1] for position in {at for group in groups for at in group})


def view(
    conversation: Conversation,
    settings: ContextSettings,
    *,
    fits_whole: bool,
    made_for: str,
    budget_tokens: int,
    history_tokens: int,
    arc_tokens: int,
    keep: int,
    most: int | None = None,
    renew: bool = False,
) -> HistoryView:
    """Choose what of a conversation is verbatim and what stands for the rest; moves the cut where it must.

    Args:
        conversation: an open conversation; its cut is replaced at a compaction step.
        settings: trigger, target and size of segments.
        fits_whole: whether everything goes in.
        made_for: budget, tokenizer and strategy; each has a cut of its own.
        budget_tokens: of the whole request.
        history_tokens: what summary and verbatim messages may cost together.
        arc_tokens: what the arc may cost.
        keep: the newest messages that stay verbatim.
        most: so many messages may be verbatim, or those that stay in any case; None: as many as there is room for.
        renew: whether what stands for the messages before the cut is written anew in any case.
    """
    if not conversation.entries:
        return HistoryView(strategy="empty", cut=0)
    plan = _Plan(
        conversation, settings, limits=Limits.of(budget_tokens), history_tokens=history_tokens, keep=keep, most=most
    )
    # Where not even the budget has room for all of it, what fits is with its largest messages in short.
    limits = plan.limits if conversation.total_tokens > budget_tokens else None
    if fits_whole and plan.end <= plan.most:
        return _verbatim(conversation, None, limits)
    record = conversation.cuts.get(made_for)
    room = plan.room_tokens * plan.trigger
    cost = plan.cost if limits else conversation.costs.__getitem__
    if record is None and plan.end <= plan.most and stays(cost, 0, plan.end, room):
        return _verbatim(conversation, None, limits)
    step = record is None or renew or plan.is_due(record)
    if record is None or step:
        record = plan.step(record, made_for, arc_tokens)
        conversation.cuts_unsaved = True
    conversation.use(record)
    shown = _verbatim(conversation, record, replace(plan.limits, cleared=record.cleared))
    lines = (*record.summary, *record.arc)
    return replace(
        shown,
        strategy=record.strategy,
        summary=fragments(Layer.HISTORY, record.summary, conversation.counter),
        summary_intro=intro(conversation, record.position),
        summary_outro=outro(conversation, record),
        arc=fragments(Layer.ARC, record.arc, conversation.counter),
        step=step,
        made_by={name: sum(line.made_by == name for line in lines) for name in sorted({x.made_by for x in lines})},
        waiting=record.waiting,
        next_cut=plan.next_cut(record.cleared) if conversation.made.maker else 0,
    )


class _Plan:
    """What one prompt allows its history, and the compaction step that makes the history fit."""

    def __init__(
        self,
        conversation: Conversation,
        settings: ContextSettings,
        *,
        limits: Limits,
        history_tokens: int,
        keep: int,
        most: int | None,
    ) -> None:
        self.conversation, self.settings, self.limits, self.keep = conversation, settings, limits, keep
        self.end = len(conversation.entries)
        self.most = self.end if most is None else max(most, keep)
        self.kept_from = max(0, self.end - keep)
        newest = sum(map(self.cost, range(self.kept_from, self.end)))
        self.newest_tokens = newest
        self.room_tokens = max(history_tokens, newest)
        self.pinned_room_tokens = min(int(self.room_tokens * PINNED_SHARE), self.room_tokens - newest)
        self.trigger = min(settings.compaction_trigger, MOST_VERBATIM)

    def cost(self, position: int) -> int:
        return self.limits.shown(self.conversation, position)[1]

    def is_due(self, record: CutRecord) -> bool:
        """Whether a compaction step is due: too much is verbatim, or what was to stay or to be written has changed."""
        made = self.conversation.made
        written = [key for key in record.waiting if key in made.digests]
        if written and all(key in made.digests or key in made.failures for key in record.waiting):
            return True
        if self._dropped(record.position) != record.dropped:
            return True
        if self._pinned(record.position, record.pinned_room_tokens) != record.kept:
            return True
        full = self.end - record.position > self.most or not self._is_within_trigger(record)
        return full and self._gains(record)

    def _gains(self, record: CutRecord) -> bool:
        """Whether a step would change anything: the newest messages alone may be over the trigger."""
        cut, cleared = self._next(record)
        shown = replace(self.limits, cleared=record.cleared)
        return cut != record.position or any(
            cleared.shown(self.conversation, position) != shown.shown(self.conversation, position)
            for position in range(record.cleared, cleared.cleared)
        )

    def _is_within_trigger(self, record: CutRecord) -> bool:
        limits = replace(self.limits, cleared=record.cleared)
        room = self.room_tokens - sum(map(self.cost, record.kept))

        def cost(position: int) -> int:
            return limits.shown(self.conversation, position)[1]

        return stays(cost, record.position, self.end, room * self.trigger)

    def step(self, record: CutRecord | None, made_for: str, arc_tokens: int) -> CutRecord:
        """A new cut, and what stands for the messages before it."""
        cut, limits = self._next(record)
        return self._written(cut, made_for, arc_tokens, limits.cleared)

    def _next(self, record: CutRecord | None) -> tuple[int, Limits]:
        """Where the cut goes: old results of tools give way first; where that is not enough, the oldest messages."""
        cleared = replace(self.limits, cleared=self.kept_from)
        cut = record.position if record else 0
        full = record is None or not self._is_within_trigger(record)
        most = (self.settings.compaction_target + self.trigger) / 2 if full else self.trigger

        def cost(position: int) -> int:
            return cleared.shown(self.conversation, position)[1]

        for _ in range(MAX_MOVES):  # what is kept from before the cut takes room, and behind a later cut there is more
            room = self.room_tokens - sum(map(self.cost, self._pinned(cut, self.pinned_room_tokens)))
            moved = cut if stays(cost, cut, self.end, room * most) else max(cut, self._moved(cost, room))
            if moved == cut:
                break
            cut = moved
        if self.end - cut > self.most:  # down to those that stay in any case, or every turn would be a step
            cut = max(cut, safe_at(self.conversation.safe, self.kept_from))
        return cut, cleared

    def next_cut(self, cleared: int) -> int:
        """Where a compaction step would put the cut now."""
        limits = replace(self.limits, cleared=cleared)
        return self._moved(lambda position: limits.shown(self.conversation, position)[1], self.room_tokens)

    def _moved(self, cost: Callable[[int], int], room_tokens: int) -> int:
        settings = self.settings
        return move_cut(
            cost,
            self.conversation.safe,
            self.conversation.spans(settings.segment_messages).starts,
            room_tokens=room_tokens,
            trigger=self.trigger,
            target=settings.compaction_target,
            keep=self.keep,
        )

    def _written(self, cut: int, made_for: str, arc_tokens: int, cleared: int) -> CutRecord:
        conversation, settings = self.conversation, self.settings
        strategy = strategy_for(conversation.total_tokens, self.room_tokens + arc_tokens)
        digests, waiting = digests_before(conversation, settings.segment_messages, cut)
        arc, alive = arc_of(conversation, digests, strategy, cut, arc_tokens)
        # Verbatim messages grow up to the trigger; what it leaves of the layer is the summary's.
        grown = max(int(self.room_tokens * self.trigger), self.newest_tokens)
        record = CutRecord(
            position=cut,
            made_for=made_for,
            digest=conversation.entries[max(cut, cleared) - 1].digest if max(cut, cleared) else "",
            strategy=strategy,
            room_tokens=self.room_tokens,
            pinned_room_tokens=self.pinned_room_tokens,
            kept=self._pinned(cut, self.pinned_room_tokens),
            dropped=self._dropped(cut),
            cleared=cleared,
            summary=(),
            arc=tuple(arc_line(line, digests) for line in arc),
            waiting=waiting,
        )
        count = conversation.counter.count_text
        frame = (fences.opening(fences.SUMMARY), fences.closing(fences.SUMMARY), intro(conversation, cut))
        room = self.room_tokens - grown - sum(map(count, (*frame, outro(conversation, record))))
        if not cut or room <= 0:
            return record
        said = [line.text for line in arc]
        shown = zones(strategy, digests, cut)
        return record.model_copy(
            update={"summary": tuple(summary_lines(conversation, shown, room, said, frozenset(alive)))}
        )

    def _dropped(self, cut: int) -> tuple[int, ...]:
        return tuple(self.conversation.dropped[: bisect_left(self.conversation.dropped, cut)])

    def _pinned(self, cut: int, room_tokens: int) -> tuple[int, ...]:
        """Positions before a cut that stay verbatim: whole groups with a message that is kept, the newest first."""
        taken: list[int] = []
        left = room_tokens
        for position in reversed(self.conversation.kept):
            if position >= cut or position in taken:
                continue
            group_of = _group_around(self.conversation.safe, position, cut)
            cost = sum(map(self.cost, group_of))
            if cost <= left:
                left -= cost
                taken += group_of
        return tuple(sorted(taken))


def _group_around(safe: Sequence[bool], position: int, cut: int) -> list[int]:
    """The positions of the messages that cannot be parted from one, before a cut."""
    first, end = safe_at(safe, position), position + 1
    while end < cut and not safe[end]:
        end += 1
    return list(range(first, end))


def _verbatim(conversation: Conversation, record: CutRecord | None, limits: Limits | None = None) -> HistoryView:
    """The messages that are sent as messages: those that are kept, and all from the cut on."""
    cut = record.position if record else 0
    positions = [*(record.kept if record else ()), *range(cut, len(conversation.entries))]
    positions = [i for i in positions if conversation.entries[i].preservation != "drop"]
    entries = [conversation.entries[i] for i in positions]
    sent = [limits.shown(conversation, i)[0] if limits else conversation.entries[i].sent for i in positions]
    groups, repairs = group(sent)
    repairs += [
        Repair("name", entry.id, f"{entry.message.name!r} is sent as {entry.sent.name!r}")
        for entry in entries
        if entry.sent.name != entry.message.name
    ]
    return HistoryView(
        strategy="full",
        cut=cut,
        groups=tuple(Group(g.messages, tuple(positions[i] for i in g.positions)) for g in groups),
        repairs=tuple(repairs),
        shortened=frozenset(
            i
            for i, entry, message in zip(positions, entries, sent, strict=True)
            if message is not entry.sent or entry.preservation == "summarize"
        ),
    )
