"""A prompt that extends the last one: what it costs, and the room that its background has."""

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
    """What a rebuilt prompt fills besides what must be sent, so that the next ones can grow."""
    shortened_share: float = 0.85
    """The most that a full prompt fills once its middle is left out."""
    most_left_out_share: float = 0.5
    """The most that may be left out of the middle once a rebuild is due. Where more would have to
    go, the prompt is rebuilt."""
    background_shares: Mapping[Emphasis, float] = field(
        default_factory=lambda: {"recall": 0.6, "balanced": 0.2, "cache": 0.05}
    )
    """The most that the background of a turn costs between two rebuilds."""
    least_background_tokens: int = 300
    """The same in tokens for a small budget: texts that answer a question are no shorter there."""
    unpaid_share: float = 0.25
    """The part of `background_shares` that a background may cost even if nothing is saved yet,
    because an answer matters more than its price. A prompt with less room than that is full."""
    full_share_for_recall: float = 0.6
    """With `emphasis="recall"`: a prompt is full when less than this part of `background_shares`
    is left for a background."""


GROWTH_POLICY = GrowthPolicy()


@dataclass(frozen=True, slots=True)
class Extension:
    """A prompt that extends the last one, measured before it has a background."""

    plan: Plan
    record: CutRecord
    """The cut of the last prompt."""
    tokens_left: int
    """The tokens to its limit once its turn takes all its room; below 0 if it is over the limit."""
    savings: Savings | None
    """What prompts have saved so far; None if they have sent everything, see `savings_of`."""

    @classmethod
    def of(cls, plan: Plan, record: CutRecord) -> "Extension":
        """Measures a prompt that has its history, but no background yet."""
        tokens_left = -excess_tokens(plan, plan.content)
        savings = savings_of(plan, record, plan.limit_tokens - tokens_left)
        return cls(plan, record, tokens_left, savings)

    @property
    def total_tokens(self) -> int:
        """The tokens of the prompt once its turn takes all its room."""
        return self.plan.limit_tokens - self.tokens_left

    @property
    def room(self) -> Room:
        """How much room the prompt has for a background."""
        least_tokens = _least_background_tokens(self.plan, self.savings)
        if self.tokens_left < 0:
            return Room.OVER
        if self.tokens_left < least_tokens:
            return Room.TIGHT
        return Room.FREE

    @property
    def affordable(self) -> Savings:
        """What a prompt may cost that is sent instead of this one: savings, and its price.

        New in this prompt are the last answer and the turn; a cache holds the rest.
        """
        conversation = self.plan.conversation
        new_tokens = self.plan.turn.tokens
        exchanges = newest_exchanges(conversation)
        if exchanges:
            last = exchanges[0]
            question_tokens = conversation.costs[len(conversation.entries) - last.messages]
            answer_tokens = last.tokens - question_tokens
            new_tokens += answer_tokens
        savings = self.savings or Savings(0, self.plan.request.cache_terms)
        return savings.with_price_of(self.total_tokens, new_tokens)

    def finished(self) -> Plan:
        """Returns the plan, in which the background gets the room that is left."""
        return with_room_for_background(self.plan, self.tokens_left, self.savings)


def with_last_history(plan: Plan) -> Plan:
    """Returns the plan with the history of the last prompt, and what was said since."""
    planned = history_plan(plan)
    return with_history(plan, history_view(planned, choose_cut(planned)))


def turn_tokens(plan: Plan) -> int:
    """Returns the tokens of the turn: all its room if it may still get calls and results."""
    return plan.turn.room_tokens if plan.turn.free_tokens else plan.turn.tokens


def with_room_for_background(plan: Plan, tokens_left: int, savings: Savings | None) -> Plan:
    """Returns the plan with grants for the background that fit the room, and that savings pay for.

    The layers of the background are scaled down together.
    """
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


def _least_background_tokens(plan: Plan, savings: Savings | None) -> float:
    """Returns the tokens for a background without which a prompt counts as full."""
    most_tokens = _most_background_tokens(plan, savings)
    if plan.request.settings.quotes_anew:
        return most_tokens * GROWTH_POLICY.full_share_for_recall
    return most_tokens * GROWTH_POLICY.unpaid_share


def _most_background_tokens(plan: Plan, savings: Savings | None) -> int:
    """Returns the most tokens for the background of a prompt that extends the last one.

    A part of them need not be paid for. The rest must be paid from savings; where savings are None,
    all of it is free.
    """
    settings = plan.request.settings
    depth_factor = DEPTH_FACTOR[settings.depth]
    share_tokens = plan.limit_tokens * GROWTH_POLICY.background_shares[settings.emphasis]
    wanted_tokens = share_tokens
    if settings.emphasis != "cache":
        wanted_tokens = max(share_tokens, GROWTH_POLICY.least_background_tokens)
    most_tokens = int(wanted_tokens * depth_factor)
    if savings is None or settings.quotes_anew:
        return most_tokens
    unpaid_tokens = int(share_tokens * GROWTH_POLICY.unpaid_share * depth_factor)
    return min(most_tokens, max(savings.new_tokens, unpaid_tokens))
