"""Prompts that only grow: whether one goes on where the last one ended, and how far down a step goes.

A prompt goes on while a provider's cache may hold the last one, nothing before its messages has changed, and there is
room. Otherwise it is a step: everything is chosen anew, down to a level from which the next ones can grow.
"""

from __future__ import annotations

from dataclasses import replace
from hashlib import blake2b

from langchain_core.messages import ToolMessage

from langchain_ctxbudget.budget import DEPTH_FACTOR, Emphasis, Layer
from langchain_ctxbudget.prompt.assembly import STABLE_LAYERS, system_parts
from langchain_ctxbudget.prompt.budgeting import history_plan, whole_turn, with_history, within
from langchain_ctxbudget.prompt.fitting import excess_tokens
from langchain_ctxbudget.prompt.plan import Plan
from langchain_ctxbudget.tokens import CACHED_PRICE

STEP_LEVELS: dict[Emphasis, float] = {"balanced": 0.55, "cache": 0.5}
"""A step goes down to this share of what system prompt, tools and turn leave, and fills all where no cache is warm."""
NEW_SHARES: dict[Emphasis, float] = {"balanced": 0.2, "cache": 0.05}
"""The share of the budget that a turn's block may cost between two steps."""
LOWER_LEVELS = (0.5, 0.4, 0.3)
"""Where a step does not pay for itself, it goes down to the first of these at which it does, or to the last."""
TYPICAL_BLOCK_SHARE = 0.03
"""A turn's block, as a share of the budget."""


def divided(plan: Plan) -> Plan:
    """Measures what must be sent, refuses what cannot fit, and divides the rest."""
    settings, window = plan.request.settings, plan.request.window.tokens
    if window is None and (reserve := settings.output_reserve_tokens):
        plan = plan.failed(
            f"output reserve of {reserve:,} tokens not kept: the model's window is not known (set window_tokens)"
        )
    room = settings.max_context_tokens if window is None else max(0, window - plan.request.output_reserve_tokens)
    plan = plan.but(limit_tokens=min(settings.max_context_tokens, room), turn=whole_turn(plan))
    may_go_on = plan.grows and (plan.goes_on or not plan.repeats)
    return (_going_on(plan) if may_go_on else None) or _step(within(plan.but(goes_on=False)))


def _going_on(plan: Plan) -> Plan | None:
    """Lets the prompt go on where the last one ended, if a cache may hold that and there is room; else None."""
    called = any(isinstance(message, ToolMessage) for message in plan.request.turn)
    for may_be_long in (False, True) if called else (False,):
        going = within(plan.but(goes_on=True, may_be_long=may_be_long))
        record = history_plan(going).record
        if record is None or (not plan.repeats and _is_cold(going)):
            continue
        begins = record.begun == len(plan.conversation.entries)
        if begins and called and not may_be_long:
            continue  # a process that does not know the step yet must come to the same prompt
        going = going.but(cold=plan.repeats and plan.cold)
        for clips_new in (False, True):
            going = going.but(clips_new=clips_new)
            history = history_plan(going)
            going = with_history(going, history.view(history.decide()))
            left = -excess_tokens(going, going.content)
            if prefix_of(going) != record.prefix:
                break
            if begins:
                level = record.level_tokens
                same = within(going.but(again=True, cold=level >= plan.limit_tokens, level_tokens=level))
                return with_history(same, going.history)
            if left >= 0:
                settings = plan.request.settings
                share = NEW_SHARES[settings.emphasis] * DEPTH_FACTOR[settings.depth]
                new = min(left, int(plan.limit_tokens * share))
                return _with_less(going.but(new_tokens=new))
    return None


def _step(plan: Plan) -> Plan:
    """Lets the prompt be written anew, down to a level from which the next ones can grow."""
    if not plan.grows:
        return plan
    plan = plan.but(cold=plan.cold if plan.repeats else _is_cold(plan))
    return plan.but(level_tokens=plan.limit_tokens) if plan.cold else within(plan.but(level_tokens=_level_tokens(plan)))


def _level_tokens(plan: Plan) -> int:
    """Returns what a step goes down to: its level, or less where it would not pay for itself until the next step."""
    limit, allocated, whole = plan.limit_tokens, plan.allocated, whole_tokens(plan)
    required = allocated.tokens[Layer.IDENTITY] + allocated.tokens[Layer.MESSAGE] + sum(plan.extras.values())
    exchange, block = _typical_turn(plan)

    def pays(level: int) -> bool:
        turns = (limit - level) / max(1, exchange + block)
        rewritten = level - exchange - (whole - exchange) * CACHED_PRICE + turns * block
        return rewritten <= turns * CACHED_PRICE * (whole + turns * exchange / 2 - (level + limit) / 2)

    shares = (STEP_LEVELS[plan.request.settings.emphasis], *LOWER_LEVELS)
    levels = [required + int(max(0, limit - required) * share) for share in shares]
    return next(filter(pays, levels), levels[-1])


def whole_tokens(plan: Plan) -> int:
    """Returns what everything that was said so far would cost, with the system prompt and the tools."""
    identity = plan.allocated.tokens[Layer.IDENTITY]
    return plan.conversation.total_tokens + plan.turn.tokens + identity + sum(plan.extras.values())


def next_step(plan: Plan, tokens: int) -> tuple[int, int]:
    """Returns in about how many turns a prompt of so many tokens has grown to its limit, and what the step costs."""
    return int(max(0, plan.limit_tokens - tokens) / max(1, sum(_typical_turn(plan)))), _level_tokens(plan)


def _typical_turn(plan: Plan) -> tuple[float, float]:
    exchange = plan.conversation.total_tokens / max(1, plan.conversation.exchanges)
    return exchange, plan.limit_tokens * TYPICAL_BLOCK_SHARE


def _is_cold(plan: Plan) -> bool:
    """Tells whether no cache holds the last prompt any more; in the middle of a turn it always may.

    Only what is stored says so: every process must come to the same prompt.
    """
    now, conversation = plan.request.now, plan.conversation
    record, stored = conversation.cuts.get(plan.cut_key), len(conversation.entries)
    if record is None:
        return True
    times = [record.at, *(block.at for at, block in conversation.sent.items() if at < stored)]
    newest = max((at for at in times if at is not None), default=None)
    if plan.fixed is not None or now is None or newest is None:
        return False
    return (now - newest).total_seconds() > plan.request.settings.cache_lifetime_seconds


def prefix_of(plan: Plan) -> str:
    """Returns a digest of what stands before the messages of a prompt, of its tools and its model."""
    said = "".join(system_parts(plan.content)), sorted(plan.extras.items()), plan.request.model
    return blake2b(repr(said).encode(errors="surrogatepass"), digest_size=8).hexdigest()


def _with_less(plan: Plan) -> Plan:
    """Returns a plan whose layers of the block share what is new."""
    block = [name for name in plan.allocated.tokens if name not in (*STABLE_LAYERS, Layer.IDENTITY, Layer.MESSAGE)]
    wanted = sum(plan.allocated.tokens[name] for name in block)
    scale = min(1.0, plan.new_tokens / wanted) if wanted else 0.0
    tokens = {name: int(own * scale) if name in block else own for name, own in plan.allocated.tokens.items()}
    return plan.but(allocation=replace(plan.allocated, tokens=tokens))
