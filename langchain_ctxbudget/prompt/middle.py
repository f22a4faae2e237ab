"""Leaving out the middle of a full prompt, so that it has room again at its end."""

from dataclasses import dataclass, replace

from langchain_core.messages import HumanMessage

from langchain_ctxbudget.history import CutChoice, history_view
from langchain_ctxbudget.layers import group_tokens
from langchain_ctxbudget.messages import Group
from langchain_ctxbudget.prompt.budgeting import history_plan, with_history
from langchain_ctxbudget.prompt.extension import (
    GROWTH_POLICY,
    Extension,
    turn_tokens,
    with_room_for_background,
)
from langchain_ctxbudget.prompt.fitting import excess_tokens
from langchain_ctxbudget.prompt.mode import Mode
from langchain_ctxbudget.prompt.plan import Plan
from langchain_ctxbudget.prompt.savings import Savings
from langchain_ctxbudget.stores import CutRecord
from langchain_ctxbudget.tokens import CACHED_PRICE


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


def without_middle(full: Extension, affordable: Savings, *, is_due: bool) -> Plan | None:
    """Extends a full prompt without the middle of its messages; None where that cannot be.

    The shortest middle is left out whose price is paid for and that makes enough room; the longest
    one, which has the lowest price, even if that is not paid for. Nothing is left out if pinned
    messages would be.

    Args:
        full: the prompt with its middle.
        affordable: what the prompt may cost.
        is_due: True if it is time for a rebuild: then only a share of the budget may be left out.
    """
    most_left_out = full.plan.conversation.total_tokens
    if is_due:
        most_left_out = int(full.plan.limit_tokens * GROWTH_POLICY.most_left_out_share)
    middles = _middles(full)
    for middle in middles:
        is_affordable = affordable.pays(middle.price) or middle is middles[-1]
        if is_affordable and _is_enough(full.plan, middle, most_left_out):
            kept = full.plan.conversation.kept_positions
            if any(middle.start <= position < middle.end for position in kept):
                return None
            return _leaving_out(full, middle, affordable.less(middle.price))
    return None


def _is_enough(plan: Plan, middle: _Middle, most_left_out: int) -> bool:
    """Tells whether a prompt without its middle has room again, and not too much is left out."""
    tokens = middle.tokens_before + middle.tokens_behind
    if middle.end <= middle.start or tokens > plan.limit_tokens * GROWTH_POLICY.shortened_share:
        return False
    left_out_tokens = plan.conversation.cost_column[middle.start : middle.end].sum()
    return bool(left_out_tokens <= most_left_out)


def _middles(full: Extension) -> list[_Middle]:
    """Returns the middles that may be left out of a full prompt, the shortest one first.

    All begin at one place. Each ends in front of a user's message among the newest messages: those
    that a compaction would keep, of which longer middles leave out some. If none of these is a
    user's, the only middle ends in front of the user's newest message.
    """
    plan = full.plan
    start, tokens_before = _beginning(full)
    if not tokens_before:
        return []
    kept_from = history_plan(plan).sizes.kept_from
    costs = plan.conversation.costs
    tokens_behind = turn_tokens(plan)
    middles: list[_Middle] = []
    for group in reversed(plan.history.groups):
        position = group.positions[0]
        tokens_behind += sum(costs[at] for at in group.positions)
        if _may_resume_at(group, full.record) and (position >= kept_from or not middles):
            middles.append(_Middle(start, position, tokens_before, tokens_behind))
    return middles[::-1]


def _beginning(full: Extension) -> tuple[int, int]:
    """Returns where the left-out middle begins, and what the prompt costs up to there.

    The beginning is at least as large as a rebuilt prompt, and ends in front of the first message
    of a user from there on. Where a middle is left out already, the next one begins with it, as
    what is before it stays as it is. 0 tokens where there is no such place.
    """
    plan = full.plan
    start, left_out_until = full.record.left_out
    beginning_tokens = 0
    tokens_before = full.total_tokens - turn_tokens(plan)
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


def _leaving_out(full: Extension, middle: _Middle, savings: Savings) -> Plan:
    """Extends a full prompt without a middle, and notes in its record what is left out.

    `savings` is what is left of them.
    """
    conversation = full.plan.conversation
    planned = history_plan(full.plan)
    record = full.record.model_copy(
        update={
            "left_out": (middle.start, middle.end),
            "digest": conversation.entries[middle.end - 1].digest,
            "preserved": conversation.table.preserved(middle.end),
            "saved_tokens": savings.tokens,
            "saved_until": len(conversation.entries),
        }
    )
    view = history_view(planned, CutChoice(record.position, record.cleared, record=record))
    growth = replace(full.plan.growth, mode=Mode.SHORTENED)
    shorter = with_history(replace(full.plan, growth=growth), view)
    tokens_left = -excess_tokens(shorter, shorter.content)
    return with_room_for_background(shorter, tokens_left, savings)
