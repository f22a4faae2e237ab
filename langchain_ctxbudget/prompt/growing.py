"""Prompts that only grow: whether a prompt extends the last one or is rebuilt.

While a provider's cache may hold the last prompt, the next one extends it: it is the last prompt,
and more at its end. Where that is full, messages in its middle are left out, or it is rebuilt, and
everything is chosen anew. Both cost tokens that the cache would have held; they are paid for by
what prompts have saved so far, compared with sending everything.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from langchain_core.messages import HumanMessage, ToolMessage

from langchain_ctxbudget.budget import DEPTH_FACTOR, Emphasis, Layer
from langchain_ctxbudget.history import Background, Decision
from langchain_ctxbudget.messages import Group, digest
from langchain_ctxbudget.prompt.assembly import STABLE_LAYERS, group_tokens, system_parts
from langchain_ctxbudget.prompt.budgeting import (
    allocate,
    history_plan,
    newest_exchanges,
    with_history,
)
from langchain_ctxbudget.prompt.fitting import excess_tokens
from langchain_ctxbudget.prompt.plan import Plan
from langchain_ctxbudget.prompt.turn_room import framed_tokens, whole_turn
from langchain_ctxbudget.stores import CutRecord
from langchain_ctxbudget.tokens import CACHED_PRICE, effective_tokens


@dataclass(frozen=True, slots=True)
class GrowthPolicy:
    """When a prompt is full, and what becomes of it then. Shares are of the budget."""

    rebuild_share: float = 0.4
    """What a rebuilt prompt fills, so that the next ones have room to grow."""
    shortened_share: float = 0.85
    """The most that a full prompt fills once its middle is left out."""
    most_left_out_share: float = 0.5
    """The most that may be left out of the middle once a rebuild is due. Where more would have to
    go, the prompt is rebuilt."""
    background_shares: Mapping[Emphasis, float] = field(
        default_factory=lambda: {"balanced": 0.2, "cache": 0.05}
    )
    """What the background of a turn may cost between two rebuilds."""
    least_background_tokens: int = 300
    """What it may cost however small the budget is: answers are not shorter there."""
    unpaid_share: float = 0.25
    """The share of `background_shares` that a background may cost before anything is saved, because
    what answers the message comes first. A prompt that has less room for it is full."""


GROWTH_POLICY = GrowthPolicy()


def divide_budget(plan: Plan) -> Plan:
    """Measures what must be sent, refuses what cannot fit, and divides the rest."""
    settings = plan.request.settings
    window = plan.request.window.tokens
    if window is None:
        room = settings.max_context_tokens
        if reserve := settings.output_reserve_tokens:
            plan = plan.with_failures(
                f"output reserve of {reserve:,} tokens not kept: the model's window is not known "
                "(set window_tokens)"
            )
    else:
        room = max(0, window - plan.request.output_reserve_tokens)
    plan = plan.with_parts(
        limit_tokens=min(settings.max_context_tokens, room), turn=whole_turn(plan)
    )

    is_known_to_be_rebuilt = plan.is_redone and not plan.goes_on
    if plan.grows and not is_known_to_be_rebuilt:
        plan = _extended(plan)
    return plan if plan.goes_on else _rebuilt(allocate(plan))


# Extending the last prompt


def _extended(plan: Plan) -> Plan:
    """Extends the last prompt, if a cache may still hold it and there is room.

    Else returns the plan of a rebuild, whose `goes_on` is False.
    """
    # Not cold as far as is known here: `_rebuilt` finds that out.
    rebuild = plan.with_parts(goes_on=False, cold=plan.is_redone and plan.cold)
    if not plan.conversation.cuts:
        return rebuild
    extended = allocate(rebuild.with_parts(goes_on=True))
    record = history_plan(extended).record
    if record is None or (not plan.is_redone and _is_cold(extended)):
        return rebuild
    if not _turn_goes_on(extended, record):
        return rebuild
    whole = _with_last_history(extended)
    if prefix_of(whole) != record.prefix:
        # What stands before the messages has changed, so nothing of this prompt is cached. (In a
        # loop of calls, the prompt of the last call may be.)
        return rebuild.with_parts(cold=rebuild.cold or not _is_in_loop(plan))
    if record.begun == len(whole.conversation.entries):
        return _repeated_rebuild(whole, record)
    return _extended_where_it_fits(rebuild, extended, _Extension.of(whole, record))


def _turn_goes_on(plan: Plan, record: CutRecord) -> bool:
    """Tells whether the turn can be sent as the last prompt has sent it, and more at its end."""
    turn = plan.turn
    if record.begun == len(plan.conversation.entries):
        # This is the turn of the rebuild: it has outgrown nothing, or still has the room of then.
        as_planned = (turn.stage, turn.room_tokens) == (record.long, record.turn_tokens)
        return not turn.stage or as_planned
    return not turn.stage and not turn.groups_when_shortened


@dataclass(frozen=True, slots=True)
class _Extension:
    """A prompt that extends the last one, measured before it has a background."""

    plan: Plan
    record: CutRecord
    """The cut of the last prompt."""
    tokens_left: int
    """What the prompt leaves of its limit once its turn takes all its room; below 0 if it is over
    the limit."""
    saved_tokens: int | None
    """What prompts have saved so far, see `_saved_tokens`."""

    @classmethod
    def of(cls, plan: Plan, record: CutRecord) -> "_Extension":
        """Measures a prompt."""
        tokens_left = -excess_tokens(plan, plan.content)
        saved_tokens = _saved_tokens(plan, record, plan.limit_tokens - tokens_left)
        return cls(plan, record, tokens_left, saved_tokens)

    @property
    def total_tokens(self) -> int:
        """What it costs once its turn takes all its room."""
        return self.plan.limit_tokens - self.tokens_left

    @property
    def fits(self) -> bool:
        """Tells whether it is within its limit."""
        return self.tokens_left >= 0

    @property
    def has_room(self) -> bool:
        """Tells whether there is room for the background that a message gets at least."""
        most_tokens = _most_background_tokens(self.plan, self.saved_tokens)
        return self.tokens_left >= most_tokens * GROWTH_POLICY.unpaid_share

    def finished(self) -> Plan:
        """Returns its plan, with what it leaves as room for the background."""
        return _with_room_for_background(self.plan, self.tokens_left, self.saved_tokens)


def _is_in_loop(plan: Plan) -> bool:
    """Tells whether the turn has results of calls already."""
    return any(isinstance(message, ToolMessage) for message in plan.request.turn)


def _extended_where_it_fits(rebuild: Plan, extended: Plan, whole: _Extension) -> Plan:
    """Extends the last prompt where that has room; else returns the plan of a rebuild.

    It is extended with all messages, without its middle, or with the messages since its rebuild in
    short, whichever is possible first.

    Args:
        rebuild: the plan of a rebuild, which is the other choice.
        extended: the plan that extends the last prompt, without its history.
        whole: the extension with all of its history.
    """
    if _is_in_loop(extended):  # its background is chosen, so it goes on as long as it fits
        if whole.fits:
            return whole.finished()
        return _shortened(rebuild, extended, whole.record, needs_background=False)
    if whole.has_room:
        return whole.finished()
    when_full = _when_full(rebuild, whole)
    if when_full.goes_on or whole.fits:
        return when_full
    # A rebuild, because the prompt is over its limit. One that is paid for is given up only for an
    # extension that has room for a background.
    is_paid = _is_rebuild_paid(extended, when_full.afforded_tokens)
    return _shortened(when_full, extended, whole.record, needs_background=is_paid)


def _shortened(
    otherwise: Plan, extended: Plan, record: CutRecord, *, needs_background: bool
) -> Plan:
    """Extends the last prompt with large new messages in short, if that fits.

    Else returns `otherwise`.
    """
    shortened = _Extension.of(_with_last_history(extended.with_parts(clips_new=True)), record)
    fits = shortened.has_room if needs_background else shortened.fits
    return shortened.finished() if fits else otherwise


def _with_last_history(plan: Plan) -> Plan:
    """Returns the plan with the history of the last prompt, and what was said since."""
    history = history_plan(plan)
    return with_history(plan, history.view(history.decide()))


def _repeated_rebuild(plan: Plan, record: CutRecord) -> Plan:
    """Returns the plan of the last rebuild again, with what the turn has got since.

    What that rebuild found out is read from its record: its level, whether it was cold, and what it
    could cost, which is what it cost and what was left over.
    """
    level = record.level_tokens
    repeated = plan.with_parts(
        cold=level >= plan.limit_tokens,
        afforded_tokens=record.saved_tokens + level,
        repeats_rebuild=True,
        level_tokens=level,
    )
    return with_history(allocate(repeated), plan.history)


def _is_rebuild_paid(plan: Plan, afforded_tokens: int | None) -> bool:
    """Tells whether `afforded_tokens` pay for a rebuilt prompt."""
    return (afforded_tokens or 0) >= plan.limit_tokens * GROWTH_POLICY.rebuild_share


# Full prompts


def _when_full(rebuild: Plan, full: _Extension) -> Plan:
    """Returns the plan of what follows a full prompt.

    It is the prompt without its middle if that is possible. Else it is a rebuild if that is paid
    for, the full prompt as it is while that fits, and at last an unpaid rebuild.
    """
    afforded_tokens = (full.saved_tokens or 0) + _price_of(full)
    is_paid = _is_rebuild_paid(rebuild, afforded_tokens)
    # No background was sent since savings were counted: a middle was left out right before.
    is_full_again = full.saved_tokens is not None and not _uncounted_backgrounds(
        full.plan, full.record
    )
    is_due = is_paid or is_full_again
    shorter = _without_middle(full, afforded_tokens, is_due=is_due)
    if shorter is not None:
        return shorter
    if full.fits and not is_paid:
        return full.finished()
    return rebuild.with_parts(afforded_tokens=afforded_tokens)


def _price_of(full: _Extension) -> int:
    """Returns what an extension costs, in effective tokens.

    The last answer and the turn are new; a cache holds the rest.
    """
    conversation = full.plan.conversation
    new_tokens = full.plan.turn.tokens
    for exchange in newest_exchanges(conversation)[:1]:
        question = len(conversation.entries) - exchange.messages
        new_tokens += exchange.tokens - conversation.costs[question]
    total_tokens = full.total_tokens
    return int(effective_tokens(total_tokens, max(0, total_tokens - new_tokens)))


@dataclass(frozen=True, slots=True)
class _Middle:
    """Messages in the middle of a full prompt that may be left out."""

    start: int
    """The position of the first of them."""
    end: int
    """The position of the first message behind them, which is one of a user."""
    tokens_before: int
    """What the prompt costs up to there."""
    tokens_behind: int
    """What it costs from the middle's end on, without earlier backgrounds: they go as well."""

    @property
    def price(self) -> int:
        """What the prompt costs without them, in effective tokens: its beginning is cached."""
        return int(self.tokens_behind + self.tokens_before * CACHED_PRICE)


def _without_middle(full: _Extension, afforded_tokens: int, *, is_due: bool) -> Plan | None:
    """Extends a full prompt without the middle of its messages; None where that cannot be.

    The shortest middle is left out whose price is paid for and that makes enough room; the longest
    one, which has the lowest price, even if that is not paid for. Nothing is left out if pinned
    messages would be.

    Args:
        full: the prompt with its middle.
        afforded_tokens: what it may cost, in effective tokens.
        is_due: True if it is time for a rebuild: then only a share of the budget may be left out.
    """
    most_left_out = full.plan.conversation.total_tokens
    if is_due:
        most_left_out = int(full.plan.limit_tokens * GROWTH_POLICY.most_left_out_share)
    middles = _middles(full)
    for middle in middles:
        is_affordable = middle.price <= afforded_tokens or middle is middles[-1]
        if is_affordable and _is_enough(full.plan, middle, most_left_out):
            kept = full.plan.conversation.kept_positions
            if any(middle.start <= position < middle.end for position in kept):
                return None
            return _leaving_out(full, middle, saved_tokens=afforded_tokens - middle.price)
    return None


def _is_enough(plan: Plan, middle: _Middle, most_left_out: int) -> bool:
    """Tells whether a prompt without its middle has room again, and not too much is left out."""
    tokens = middle.tokens_before + middle.tokens_behind
    if middle.end <= middle.start or tokens > plan.limit_tokens * GROWTH_POLICY.shortened_share:
        return False
    left_out_tokens = plan.conversation.cost_column[middle.start : middle.end].sum()
    return bool(left_out_tokens <= most_left_out)


def _middles(full: _Extension) -> list[_Middle]:
    """Returns the middles that may be left out of a full prompt, the shortest one first.

    All begin at one place. Each ends in front of a user's message among the newest messages: those
    that a compaction would keep, of which longer middles leave out some. If none of these is a
    user's, the only middle ends in front of the user's newest message.
    """
    plan = full.plan
    start, tokens_before = _beginning(full)
    if not tokens_before:
        return []
    kept_from = history_plan(plan).kept_from
    costs = plan.conversation.costs
    tokens_behind = _turn_tokens(plan)
    middles: list[_Middle] = []
    for group in reversed(plan.history.groups):
        position = group.positions[0]
        tokens_behind += sum(costs[at] for at in group.positions)
        if _may_resume_at(group, full.record) and (position >= kept_from or not middles):
            middles.append(_Middle(start, position, tokens_before, tokens_behind))
    return middles[::-1]


def _beginning(full: _Extension) -> tuple[int, int]:
    """Returns where the left-out middle begins, and what the prompt costs up to there.

    The beginning is at least as large as a rebuilt prompt, and ends in front of the first message
    of a user from there on. Where a middle is left out already, the next one begins with it, as
    what is before it stays as it is. 0 tokens where there is no such place.
    """
    plan = full.plan
    start, left_out_until = full.record.left_out
    beginning_tokens = 0
    tokens_before = full.total_tokens - _turn_tokens(plan)
    for group in reversed(plan.history.groups):  # the last place that is found is the first one
        tokens_before -= group_tokens(group, plan.counter)
        if not _may_resume_at(group, full.record):
            continue
        if left_out_until:
            beginning_tokens = tokens_before
        elif tokens_before >= plan.limit_tokens * GROWTH_POLICY.rebuild_share:
            start = group.positions[0]
            beginning_tokens = tokens_before
    return start, beginning_tokens


def _may_resume_at(group: Group, record: CutRecord) -> bool:
    """Tells whether a prompt may go on with a group behind a left-out middle.

    It must be a user's message, behind what is left out already. Where the rebuild has summarised
    messages, it must be behind the rebuild, too.
    """
    position = group.positions[0]
    begun = record.begun if record.position else 0
    _, left_out_until = record.left_out
    is_human = isinstance(group.messages[0], HumanMessage)
    return is_human and position > begun and position >= left_out_until


def _turn_tokens(plan: Plan) -> int:
    """Returns what the turn costs: all its room if it may still get calls and results."""
    return plan.turn.room_tokens if plan.turn.free_tokens else plan.turn.tokens


def _leaving_out(full: _Extension, middle: _Middle, *, saved_tokens: int) -> Plan:
    """Extends a full prompt without a middle, and notes in its record what is left out.

    `saved_tokens` is what is left of the savings.
    """
    conversation = full.plan.conversation
    history = history_plan(full.plan)
    record = full.record.model_copy(
        update={
            "left_out": (middle.start, middle.end),
            "digest": conversation.entries[middle.end - 1].digest,
            "preserved": conversation.table.preserved(middle.end),
            "saved_tokens": saved_tokens,
            "saved_until": history.end,
        }
    )
    view = history.view(Decision(record.position, record.cleared, record=record))
    shorter = with_history(full.plan, view)
    tokens_left = -excess_tokens(shorter, shorter.content)
    return _with_room_for_background(shorter, tokens_left, saved_tokens)


# The background


def _with_room_for_background(plan: Plan, tokens_left: int, saved_tokens: int | None) -> Plan:
    """Scales the background's layers down to the room that is left, and to what savings pay for."""
    room = max(0, min(tokens_left, _most_background_tokens(plan, saved_tokens)))
    other_layers = (*STABLE_LAYERS, Layer.IDENTITY, Layer.MESSAGE)
    tokens = dict(plan.allocated.tokens)
    background = [layer for layer in tokens if layer not in other_layers]
    wanted = sum(tokens[layer] for layer in background)
    scale = min(1.0, room / wanted) if wanted else 0.0
    for layer in background:
        tokens[layer] = int(tokens[layer] * scale)
    allocation = replace(plan.allocated, tokens=tokens)
    return plan.with_parts(most_background_tokens=room, allocation=allocation)


def _most_background_tokens(plan: Plan, saved_tokens: int | None) -> int:
    """Returns the most tokens for the background of a prompt that extends the last one.

    What was saved limits it, except that a part is free; with None, nothing limits it.
    """
    settings = plan.request.settings
    depth = DEPTH_FACTOR[settings.depth]
    share_tokens = plan.limit_tokens * GROWTH_POLICY.background_shares[settings.emphasis]
    most = share_tokens
    if settings.emphasis != "cache":
        most = max(share_tokens, GROWTH_POLICY.least_background_tokens)
    if saved_tokens is None:
        return int(most * depth)
    unpaid = share_tokens * GROWTH_POLICY.unpaid_share
    return min(int(most * depth), max(saved_tokens, int(unpaid * depth)))


# Rebuilding


def _rebuilt(plan: Plan) -> Plan:
    """Returns the plan of a rebuild, with the level up to which it fills the prompt.

    A cold one fills all of it; another one leaves room, so that the next prompts can grow.
    """
    if not plan.grows:
        return plan
    is_known = plan.afforded_tokens is not None or plan.is_redone
    is_cold = plan.cold or (not is_known and _is_cold(plan))
    # A turn that has outgrown its room got what it needs to grow: the rest may fill the prompt.
    if is_cold or plan.turn.stage:
        return plan.with_parts(
            cold=True, level_tokens=plan.limit_tokens, afforded_tokens=whole_tokens(plan)
        )
    level = _level_tokens(plan)
    if plan.turn.free_tokens and not _was_asked_for(plan):
        level = max(level, _level_in_loop(plan))
    return allocate(plan.with_parts(level_tokens=level))


def _was_asked_for(plan: Plan) -> bool:
    """Tells whether `compact` has made the last cut, to make room, and no prompt has used it."""
    last = plan.conversation.cuts.get(plan.cut_key)
    return last is not None and not last.prefix


def _level_in_loop(plan: Plan) -> int:
    """Returns what a rebuilt prompt may fill in a loop, whose next calls will all send it again.

    It is half of what sending everything costs. Each call then saves a tenth of the other half, the
    price where it is cached, so that about ten calls pay for the rebuild.
    """
    level = min(plan.limit_tokens - 1, whole_tokens(plan) // 2)
    return level if plan.afforded_tokens is None else min(level, plan.afforded_tokens)


def _level_tokens(plan: Plan) -> int:
    """Returns what a rebuilt prompt fills: what must be sent, and a share of the rest."""
    tokens = plan.allocated.tokens
    required = tokens[Layer.IDENTITY] + tokens[Layer.MESSAGE] + sum(plan.extras.values())
    rest = max(0, plan.limit_tokens - required)
    return required + int(rest * GROWTH_POLICY.rebuild_share)


def next_rebuild(plan: Plan, tokens: int) -> tuple[int, int]:
    """Estimates in how many turns a prompt of `tokens` is full, and what it has once rebuilt."""
    conversation = plan.conversation
    exchange_tokens = conversation.total_tokens / max(1, conversation.exchanges)
    turns = int(max(0, plan.limit_tokens - tokens) / max(1.0, exchange_tokens))
    return turns, _level_tokens(plan)


# The account of what prompts have saved


def _saved_tokens(plan: Plan, record: CutRecord, total_tokens: int) -> int | None:
    """Returns what prompts have saved so far against sending everything, in effective tokens.

    None if this prompt sends everything itself; it has `total_tokens`, its background not counted.
    Each earlier prompt since the last count has sent one background, for the full price, and the
    rest for the price of a cache.
    """
    _, left_out_until = record.left_out
    if record.strategy == "full" and not left_out_until:
        return None
    backgrounds = _uncounted_backgrounds(plan, record)
    spent_tokens = 0
    for background in backgrounds:
        if background.fragments:
            spent_tokens += framed_tokens(sum(part.tokens for part in background.fragments))
    # On average, those prompts had only half of the backgrounds that this one has.
    shorter_by = whole_tokens(plan) - total_tokens + spent_tokens / 2
    saved_tokens = int(CACHED_PRICE * len(backgrounds) * shorter_by)
    return record.saved_tokens + saved_tokens - spent_tokens


def _uncounted_backgrounds(plan: Plan, record: CutRecord) -> list[Background]:
    """Returns the backgrounds of prompts like this that were sent since savings were counted."""
    uncounted = range(record.saved_until, len(plan.conversation.entries))
    key = plan.cut_key
    return [
        background
        for position, background in plan.conversation.backgrounds.items()
        if position in uncounted and background.cut_key == key
    ]


def whole_tokens(plan: Plan) -> int:
    """Returns the tokens of a prompt with all that was said, the system prompt and the tools."""
    said_tokens = plan.conversation.total_tokens + plan.turn.tokens
    return said_tokens + plan.allocated.tokens[Layer.IDENTITY] + sum(plan.extras.values())


# What a provider's cache holds


def _is_cold(plan: Plan) -> bool:
    """Tells from what is stored whether no cache holds the last prompt any more.

    One may within a turn, and where the time is not known.
    """
    if not any(plan.cuts):
        return True
    now = plan.request.now
    last_sent_at = _last_sent_at(plan)
    if plan.fixed is not None or now is None or last_sent_at is None:
        return False
    seconds = (now - last_sent_at).total_seconds()
    return seconds > plan.request.settings.cache_lifetime_seconds


def _last_sent_at(plan: Plan) -> datetime | None:
    """Returns when the last prompt like this was sent, as far as it is stored."""
    conversation = plan.conversation
    times = [cut.at for cut in plan.cuts if cut is not None]
    for position, background in conversation.backgrounds.items():
        if position < len(conversation.entries):
            times.append(background.at)
    return max((time for time in times if time is not None), default=None)


def prefix_of(plan: Plan) -> str:
    """Returns a digest of what stands before a prompt's messages, of its tools and of its model."""
    system = "".join(system_parts(plan.content))
    return digest(repr((system, sorted(plan.extras.items()), plan.request.model))).hex()
