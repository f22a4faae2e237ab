"""Leaves out the middle of a full prompt, so that there is room at its end again."""

from dataclasses import dataclass, replace

from langchain_core.messages import HumanMessage

from langchain_ctxbudget.history import CutChoice, history_view
from langchain_ctxbudget.layers import group_tokens, rule_line
from langchain_ctxbudget.messages import Group
from langchain_ctxbudget.prompt.budgeting import history_plan, with_history
from langchain_ctxbudget.prompt.extension import (
    GROWTH_POLICY,
    Extension,
    turn_tokens,
    with_room_for_background,
)
from langchain_ctxbudget.prompt.fitting import excess_tokens
from langchain_ctxbudget.prompt.plan import Plan
from langchain_ctxbudget.prompt.savings import Savings
from langchain_ctxbudget.providers import CacheTerms
from langchain_ctxbudget.report import Mode
from langchain_ctxbudget.stores import CutRecord


@dataclass(frozen=True, slots=True)
class _Middle:
    """Messages in the middle of a full prompt that may be left out."""

    start: int
    """The position of the first of them."""
    end: int
    """The position of the first message behind them, which is a user's."""
    tokens_before: int
    """The tokens of the prompt before them."""
    tokens_behind: int
    """The tokens of the prompt behind them, without earlier backgrounds, which are left out too."""
    rules: tuple[str, ...] = ()
    """The lines of the rules that they state, which stand in the prompt instead of them."""
    rules_tokens: int = 0
    """The tokens of these lines."""

    @property
    def total_tokens(self) -> int:
        """The tokens of the prompt without them."""
        return self.tokens_before + self.rules_tokens + self.tokens_behind

    def price(self, terms: CacheTerms) -> int:
        """Returns the effective tokens of the prompt without them, whose beginning is cached."""
        return int(terms.cost(self.total_tokens, self.tokens_before))


def without_middle(full: Extension, affordable: Savings, *, is_due: bool) -> Plan | None:
    """Returns the plan that extends a full prompt without the middle of its messages.

    The shortest middle is left out that makes enough room and whose price is affordable. The
    longest one has the lowest price, and may be left out even if that is not affordable. Returns
    None if there is no such middle, or if messages in it are kept. The rules that the middle states
    stay.

    Args:
        full: The prompt with its middle.
        affordable: What the prompt may cost.
        is_due: True if it is time for a rebuild: then only a share of the budget may be left out.
    """
    conversation = full.plan.conversation
    most_left_out_tokens = conversation.total_tokens
    if is_due:
        most_left_out_tokens = int(full.plan.limit_tokens * GROWTH_POLICY.most_left_out_share)
    middles = _middles(full)
    for middle in middles:
        price = middle.price(affordable.terms)
        is_affordable = affordable.pays(price) or middle is middles[-1]
        if is_affordable and _makes_room(full.plan, middle, most_left_out_tokens):
            kept = conversation.kept_positions
            if any(middle.start <= position < middle.end for position in kept):
                return None
            return _plan_without(full, middle, affordable.less(price))
    return None


def _makes_room(plan: Plan, middle: _Middle, most_left_out_tokens: int) -> bool:
    """Tells whether leaving out a middle makes enough room, and does not leave out too much."""
    if middle.end <= middle.start:
        return False
    if middle.total_tokens > plan.limit_tokens * GROWTH_POLICY.shortened_share:
        return False
    left_out_tokens = plan.conversation.cost_column[middle.start : middle.end].sum()
    return bool(left_out_tokens <= most_left_out_tokens)


def _middles(full: Extension) -> list[_Middle]:
    """Returns the middles that may be left out of a full prompt, the shortest one first.

    All begin at the same place. Each ends before a user's message among the newest messages, which
    a compaction would keep. If none of those is a user's, there is one middle, which ends before
    the user's newest message.
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
        position = group.start
        tokens_behind += sum(costs[at] for at in group.positions)
        if _may_begin_or_end_at(group, full.record) and (position >= kept_from or not middles):
            rules = _rules_within(plan, start, position)
            middles.append(
                _Middle(
                    start=start,
                    end=position,
                    tokens_before=tokens_before,
                    tokens_behind=tokens_behind,
                    rules=rules,
                    rules_tokens=sum(map(plan.counter.count_text, rules)),
                )
            )
    return middles[::-1]


def _rules_within(plan: Plan, start: int, end: int) -> tuple[str, ...]:
    """Returns the lines of what is laid down or taken back from `start` up to `end`."""
    return tuple(map(rule_line, plan.request.user.rules.said_between(start, end)))


def _beginning(full: Extension) -> tuple[int, int]:
    """Returns the position at which the middle begins, and the tokens of the prompt before it.

    What stands before the middle has at least the size of a rebuilt prompt, and ends before the
    first message of a user from there on. If a middle was left out already, the next one begins at
    the same place. The tokens are 0 if there is no such place.
    """
    plan = full.plan
    start, left_out_until = full.record.left_out
    beginning_tokens = 0
    tokens_before = full.total_tokens - turn_tokens(plan)
    # From the end to the beginning, because the prompt's total is known: the last match is the
    # first place.
    for group in reversed(plan.history.groups):
        tokens_before -= group_tokens(group, plan.counter)
        if not _may_begin_or_end_at(group, full.record):
            continue
        if left_out_until:
            beginning_tokens = tokens_before
        elif tokens_before >= plan.limit_tokens * GROWTH_POLICY.rebuild_share:
            start = group.start
            beginning_tokens = tokens_before
    return start, beginning_tokens


def _may_begin_or_end_at(group: Group, record: CutRecord) -> bool:
    """Tells whether a middle may begin or end right before a group of messages.

    It must be a user's message, behind what is left out already. If the last rebuild has summarised
    messages, it must have been said after that.
    """
    if not isinstance(group.messages[0], HumanMessage):
        return False
    position = group.start
    _, left_out_until = record.left_out
    rebuilt_at = record.begun if record.position else 0
    return position > rebuilt_at and position >= left_out_until


def _plan_without(full: Extension, middle: _Middle, savings: Savings) -> Plan:
    """Returns the plan that extends a full prompt without a middle.

    Its cut says what is left out, and which savings are left.
    """
    conversation = full.plan.conversation
    planned = history_plan(full.plan)
    record = full.record.model_copy(
        update={
            "left_out": (middle.start, middle.end),
            "rules_within": middle.rules,
            "digest": conversation.entries[middle.end - 1].digest,
            "preserved": conversation.table.preserved(middle.end),
            "saved_tokens": savings.tokens,
            "saved_until": len(conversation.entries),
        }
    )
    view = history_view(planned, CutChoice(record.position, record.cleared, record=record))
    growth = replace(full.plan.growth, mode=Mode.SHORTENED)
    shortened = with_history(replace(full.plan, growth=growth), view)
    tokens_left = -excess_tokens(shortened, shortened.content)
    return with_room_for_background(shortened, tokens_left, savings)
