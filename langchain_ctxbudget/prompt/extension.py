"""A prompt that extends the last one, measured: what it costs, and what room its background has."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from langchain_ctxbudget.budget import DEPTH_FACTOR, Emphasis
from langchain_ctxbudget.history import choose_cut, history_view
from langchain_ctxbudget.layers import place_of
from langchain_ctxbudget.prompt.budgeting import history_plan, newest_exchanges, with_history
from langchain_ctxbudget.prompt.fitting import excess_tokens
from langchain_ctxbudget.prompt.mode import Room
from langchain_ctxbudget.prompt.plan import Plan
from langchain_ctxbudget.prompt.savings import Savings, savings_of
from langchain_ctxbudget.stores import CutRecord


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


@dataclass(frozen=True, slots=True)
class Extension:
    """A prompt that extends the last one, measured before it has a background."""

    plan: Plan
    record: CutRecord
    """The cut of the last prompt."""
    tokens_left: int
    """What the prompt leaves of its limit once its turn takes all its room; below 0 if it is over
    the limit."""
    savings: Savings | None
    """What prompts have saved so far, see `savings_of`."""

    @classmethod
    def of(cls, plan: Plan, record: CutRecord) -> "Extension":
        """Measures a prompt that has its history."""
        tokens_left = -excess_tokens(plan, plan.content)
        savings = savings_of(plan, record, plan.limit_tokens - tokens_left)
        return cls(plan, record, tokens_left, savings)

    @property
    def total_tokens(self) -> int:
        """What it costs once its turn takes all its room."""
        return self.plan.limit_tokens - self.tokens_left

    @property
    def room(self) -> Room:
        """How much room it leaves."""
        least_tokens = _most_background_tokens(self.plan, self.savings) * GROWTH_POLICY.unpaid_share
        if self.tokens_left < 0:
            return Room.OVER
        if self.tokens_left < least_tokens:
            return Room.TIGHT
        return Room.FREE

    @property
    def affordable(self) -> Savings:
        """What a prompt may cost that is sent instead of this one, in effective tokens.

        The last answer and the turn are new in this one; a cache holds the rest.
        """
        conversation = self.plan.conversation
        new_tokens = self.plan.turn.tokens
        for exchange in newest_exchanges(conversation)[:1]:
            question = len(conversation.entries) - exchange.messages
            new_tokens += exchange.tokens - conversation.costs[question]
        savings = self.savings or Savings(0)
        return savings.with_price_of(self.total_tokens, new_tokens)

    def finished(self) -> Plan:
        """Returns its plan, with what it leaves as room for the background."""
        return with_room_for_background(self.plan, self.tokens_left, self.savings)


def with_last_history(plan: Plan) -> Plan:
    """Returns the plan with the history of the last prompt, and what was said since."""
    planned = history_plan(plan)
    return with_history(plan, history_view(planned, choose_cut(planned)))


def turn_tokens(plan: Plan) -> int:
    """Returns what the turn costs: all its room if it may still get calls and results."""
    return plan.turn.room_tokens if plan.turn.free_tokens else plan.turn.tokens


def with_room_for_background(plan: Plan, tokens_left: int, savings: Savings | None) -> Plan:
    """Scales the background's layers down to the room that is left, and to what savings pay for."""
    room = max(0, min(tokens_left, _most_background_tokens(plan, savings)))
    tokens = dict(plan.allocated.tokens)
    background = [layer for layer in tokens if place_of(layer).is_in_background]
    wanted = sum(tokens[layer] for layer in background)
    scale = min(1.0, room / wanted) if wanted else 0.0
    for layer in background:
        tokens[layer] = int(tokens[layer] * scale)
    return replace(
        plan,
        growth=replace(plan.growth, most_background_tokens=room),
        allocation=replace(plan.allocated, tokens=tokens),
    )


def _most_background_tokens(plan: Plan, savings: Savings | None) -> int:
    """Returns the most tokens for the background of a prompt that extends the last one.

    What was saved limits it, except that a part is free; with None, nothing limits it.
    """
    settings = plan.request.settings
    depth = DEPTH_FACTOR[settings.depth]
    share_tokens = plan.limit_tokens * GROWTH_POLICY.background_shares[settings.emphasis]
    most = share_tokens
    if settings.emphasis != "cache":
        most = max(share_tokens, GROWTH_POLICY.least_background_tokens)
    if savings is None:
        return int(most * depth)
    unpaid = share_tokens * GROWTH_POLICY.unpaid_share
    return min(int(most * depth), max(savings.tokens, int(unpaid * depth)))
