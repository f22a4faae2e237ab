"""Prompts that only grow: whether a prompt continues the last one, and how far down a rebuild goes.

A full prompt goes on without its middle or is a rebuild, where all is chosen anew; what was saved
so far pays for both.
"""

from dataclasses import replace

from langchain_core.messages import HumanMessage, ToolMessage

from langchain_ctxbudget.budget import DEPTH_FACTOR, Emphasis, Layer
from langchain_ctxbudget.history import Background, Decision
from langchain_ctxbudget.messages import digest
from langchain_ctxbudget.prompt import budgeting
from langchain_ctxbudget.prompt.assembly import STABLE_LAYERS, group_tokens, system_parts
from langchain_ctxbudget.prompt.budgeting import allocate, history_plan, whole_turn, with_history
from langchain_ctxbudget.prompt.fitting import excess_tokens
from langchain_ctxbudget.prompt.plan import Plan
from langchain_ctxbudget.stores import CutRecord
from langchain_ctxbudget.tokens import CACHED_PRICE, effective_tokens

REBUILD_SHARE = 0.4
"""A rebuild goes down to this share of the budget."""
SHORTER_LEVEL = 0.85
MOST_LEFT_OUT = 0.5
"""Of a full prompt the beginning stays, as much as at a rebuild, and the newest messages: together
at most the first share of the budget. If more than the second were left out, a rebuild comes
instead."""
NEW_SHARES: dict[Emphasis, float] = {"balanced": 0.2, "cache": 0.05}
"""The share of the budget that a turn's background may cost between two rebuilds."""
BACKGROUND_TOKENS = 300
"""In a small window the background may cost so many tokens: an answer is as long there."""
UNPAID_SHARE = 0.25
"""A background may cost this share before anything is saved: what answers the message comes first.
A prompt is full if it has less room than that."""


def divide_budget(plan: Plan) -> Plan:
    """Measures what must be sent, refuses what cannot fit, and divides the rest."""
    settings = plan.request.settings
    window = plan.request.window.tokens
    if window is None and (reserve := settings.output_reserve_tokens):
        plan = plan.failed(
            f"output reserve of {reserve:,} tokens not kept: the model's window is not known (set window_tokens)"
        )
    room = (
        settings.max_context_tokens
        if window is None
        else max(0, window - plan.request.output_reserve_tokens)
    )
    plan = plan.but(limit_tokens=min(settings.max_context_tokens, room), turn=whole_turn(plan))
    plan = _continued(plan) if plan.grows and (plan.goes_on or not plan.repeats) else plan
    return plan if plan.goes_on else _rebuilt(allocate(plan))


def _continued(plan: Plan) -> Plan:
    """Continues the last prompt, if a cache may still hold it and there is room.

    Else the prompt is a rebuild.
    """
    rebuilt = plan.but(goes_on=False, cold=plan.repeats and plan.cold)
    if not plan.conversation.cuts:
        return rebuilt
    going = allocate(rebuilt.but(goes_on=True))
    record = history_plan(going).record
    turn = going.turn
    if record is None or (not plan.repeats and _is_cold(going)):
        return rebuilt
    if record.begun == len(
        plan.conversation.entries
    ):  # in the turn of a rebuild, what was planned for it stays
        goes_on = not turn.long or (turn.long, turn.room_tokens) == (
            record.long,
            record.turn_tokens,
        )
    else:
        goes_on = not turn.long and not turn.renewed
    return _continued_where_it_fits(rebuilt, going, record) if goes_on else rebuilt


def _continued_where_it_fits(rebuilt: Plan, going: Plan, record: CutRecord) -> Plan:
    """Continues the last prompt, whole or with a shorter new part, if that has room.

    Else returns the rebuild.
    """
    has_results = any(isinstance(message, ToolMessage) for message in going.request.turn)
    otherwise = rebuilt
    for clips_new in (False, True):
        clipped = going.but(clips_new=clips_new)
        history = history_plan(clipped)
        full = with_history(clipped, history.view(history.decide()))
        total = full.limit_tokens + excess_tokens(full, full.content)
        if prefix_of(full) != record.prefix:
            return rebuilt.but(
                cold=rebuilt.cold or not has_results
            )  # nothing of another prompt is cached
        if (
            record.begun == history.end
        ):  # it is the prompt of the rebuild again, and what the turn has got since
            level = record.level_tokens
            same = full.but(
                cold=level >= full.limit_tokens, afforded_tokens=record.saved_tokens + level
            )
            return with_history(allocate(same.but(again=True, level_tokens=level)), full.history)
        saved = _saved_tokens(full, record, total)
        rebuild_is_paid = (otherwise.afforded_tokens or 0) >= full.limit_tokens * REBUILD_SHARE
        least_room = _most_background_tokens(full, saved) * UNPAID_SHARE
        if has_results or (clips_new and not rebuild_is_paid):
            least_room = 0
        if full.limit_tokens - total >= least_room:
            return _with_room_for_background(full, total, saved)
        if not (clips_new or has_results):
            otherwise = _when_full(rebuilt, full, record, total, saved)
            if (
                otherwise.goes_on or total <= full.limit_tokens
            ):  # else it may fit with what is new in short
                return otherwise
    return otherwise


def _when_full(plan: Plan, full: Plan, record: CutRecord, total: int, saved: int | None) -> Plan:
    """Continues a full prompt without its middle.

    Else the prompt is a rebuild, if that is paid for or nothing fits.
    """
    end = len(full.conversation.entries)
    costs = full.conversation.costs
    answer = sum(
        one.tokens - costs[end - one.messages]
        for one in budgeting.newest_exchanges(full.conversation)[:1]
    )
    afforded = (saved or 0) + int(
        effective_tokens(total, max(0, total - full.turn.tokens - answer))
    )
    pays = afforded >= plan.limit_tokens * REBUILD_SHARE
    due = pays or not (saved is None or _uncounted_backgrounds(full, record))
    if shorter := _without_middle(full, record, total, afforded, due=due):
        return shorter
    goes_on = total <= full.limit_tokens and not pays
    return (
        _with_room_for_background(full, total, saved)
        if goes_on
        else plan.but(afforded_tokens=afforded)
    )


def _without_middle(
    full: Plan, record: CutRecord, total: int, afforded: int, *, due: bool
) -> Plan | None:
    """Continues a full prompt without the middle of what was said, if that is enough and what was saved pays for it."""
    limit = full.limit_tokens
    history = history_plan(full)
    conversation = full.conversation
    begun = record.begun if record.position else 0
    start, left_out_until = record.left_out
    sent_tokens = bare_tokens = full.turn.room_tokens if full.turn.free_tokens else full.turn.tokens
    beginning_tokens = 0
    ends = list[tuple[int, int]]()
    for part in reversed(
        full.history.groups
    ):  # counted from here on: as it was sent, and without the backgrounds
        at = part.positions[0]
        sent_tokens += group_tokens(part, full.counter)
        bare_tokens += sum(conversation.costs[position] for position in part.positions)
        if not isinstance(part.messages[0], HumanMessage) or at <= begun or at < left_out_until:
            continue
        if at >= history.kept_from or not ends:
            ends.append((at, bare_tokens))
        if left_out_until or total - sent_tokens >= limit * REBUILD_SHARE:
            start = start if left_out_until else at
            beginning_tokens = total - sent_tokens
    most_gone = limit * MOST_LEFT_OUT if due else conversation.total_tokens
    for end, tokens in reversed(ends):
        cost = int(tokens + beginning_tokens * CACHED_PRICE)
        too_much = tokens + beginning_tokens > limit * SHORTER_LEVEL or (
            cost > afforded and end != ends[0][0]
        )
        if (
            not beginning_tokens
            or end <= start
            or too_much
            or conversation.cost_column[start:end].sum() > most_gone
        ):
            continue
        if any(start <= at < end for at in conversation.kept):
            return None
        said = {
            "digest": conversation.entries[end - 1].digest,
            "preserved": conversation.table.preserved(end),
        }
        saved = {"saved_tokens": afforded - cost, "saved_until": history.end}
        without = record.model_copy(update={"left_out": (start, end), **said, **saved})
        shorter = with_history(
            full, history.view(Decision(record.position, record.cleared, record=without))
        )
        return _with_room_for_background(
            shorter, limit + excess_tokens(shorter, shorter.content), afforded - cost
        )
    return None


def _with_room_for_background(plan: Plan, total: int, saved: int | None) -> Plan:
    """Scales the background's layers to the room that is left, and to what earlier savings pay for."""
    new = max(0, min(plan.limit_tokens - total, _most_background_tokens(plan, saved)))
    background = [
        name
        for name in plan.allocated.tokens
        if name not in (*STABLE_LAYERS, Layer.IDENTITY, Layer.MESSAGE)
    ]
    wanted = sum(plan.allocated.tokens[name] for name in background)
    scale = min(1.0, new / wanted) if wanted else 0.0
    tokens = {
        name: int(own * scale) if name in background else own
        for name, own in plan.allocated.tokens.items()
    }
    return plan.but(new_tokens=new, allocation=replace(plan.allocated, tokens=tokens))


def _most_background_tokens(plan: Plan, saved: int | None = None) -> int:
    """Returns the most tokens for the background of a prompt that continues the last one.

    Savings limit it, where given.
    """
    settings = plan.request.settings
    limit = plan.limit_tokens
    floor = 0 if settings.emphasis == "cache" else BACKGROUND_TOKENS
    share = limit * NEW_SHARES[settings.emphasis]
    most, unpaid = (
        int(one * DEPTH_FACTOR[settings.depth]) for one in (max(share, floor), share * UNPAID_SHARE)
    )
    return most if saved is None else min(most, max(saved, unpaid))


def _rebuilt(plan: Plan) -> Plan:
    """Lets the prompt be written anew, down to a level from which the next ones can grow."""
    if not plan.grows:
        return plan
    is_cold = plan.cold or (plan.afforded_tokens is None and not plan.repeats and _is_cold(plan))
    if is_cold or plan.turn.long:  # a long turn has its room already, so nothing else grows
        return plan.but(
            cold=True, level_tokens=plan.limit_tokens, afforded_tokens=whole_tokens(plan)
        )
    level = _level_tokens(plan)
    last = plan.conversation.cuts.get(plan.cut_key)
    if plan.turn.free_tokens and (
        last is None or last.prefix
    ):  # ten calls pay for it; where it was asked for, room is
        level = max(level, min(plan.limit_tokens - 1, whole_tokens(plan) // 2))
    afforded = level if plan.afforded_tokens is None else plan.afforded_tokens
    return allocate(plan.but(level_tokens=min(level, max(_level_tokens(plan), afforded))))


def _level_tokens(plan: Plan) -> int:
    """Returns what a rebuild goes down to: what must be sent, and a share of the rest."""
    allocated = plan.allocated.tokens
    required = allocated[Layer.IDENTITY] + allocated[Layer.MESSAGE] + sum(plan.extras.values())
    return required + int(max(0, plan.limit_tokens - required) * REBUILD_SHARE)


def _saved_tokens(plan: Plan, record: CutRecord, total: int) -> int | None:
    """Returns what prompts have saved, compared with sending all, if this one has no background.

    None if it sends all.
    """
    if record.strategy == "full" and not record.left_out[1]:
        return None
    backgrounds = _uncounted_backgrounds(plan, record)
    sizes = [
        sum(part.tokens for part in background.fragments)
        for background in backgrounds
        if background.fragments
    ]
    spent = sum(int(budgeting.FRAMED * size) for size in sizes)
    less = whole_tokens(plan) - total + spent / 2
    return record.saved_tokens + int(CACHED_PRICE * len(backgrounds) * less) - spent


def _uncounted_backgrounds(plan: Plan, record: CutRecord) -> list[Background]:
    """Returns the backgrounds whose savings are not counted yet.

    None if the messages in front of them are not stored.
    """
    since = range(record.saved_until, len(plan.conversation.entries))
    key = plan.cut_key
    return [
        background
        for at, background in plan.conversation.sent.items()
        if at in since and background.cut_key == key
    ]


def whole_tokens(plan: Plan) -> int:
    """Returns what it would cost to send everything that was said so far, with the system prompt and the tools."""
    said = plan.conversation.total_tokens + plan.turn.tokens
    return said + plan.allocated.tokens[Layer.IDENTITY] + sum(plan.extras.values())


def next_rebuild(plan: Plan, tokens: int) -> tuple[int, int]:
    """Estimates in how many turns a prompt of `tokens` reaches its limit, and the tokens after a rebuild."""
    exchange = plan.conversation.total_tokens / max(1, plan.conversation.exchanges)
    return int(max(0, plan.limit_tokens - tokens) / max(1.0, exchange)), _level_tokens(plan)


def _is_cold(plan: Plan) -> bool:
    """Tells from what is stored whether no cache holds the last prompt any more.

    Within a turn one may.
    """
    now = plan.request.now
    times = [cut.at for cut in plan.cuts if cut is not None]
    if not times:
        return True
    times += [
        background.at
        for at, background in plan.conversation.sent.items()
        if at < len(plan.conversation.entries)
    ]
    newest = max((at for at in times if at is not None), default=None)
    if plan.fixed is not None or now is None or newest is None:
        return False
    return (now - newest).total_seconds() > plan.request.settings.cache_lifetime_seconds


def prefix_of(plan: Plan) -> str:
    """Returns a digest of what stands before a prompt's messages, of its tools and of its model."""
    said = "".join(system_parts(plan.content)), sorted(plan.extras.items()), plan.request.model
    return digest(repr(said)).hex()
