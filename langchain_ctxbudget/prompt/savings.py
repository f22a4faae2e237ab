"""The account of what prompts have saved, compared with sending everything each time.

It is kept in effective tokens: a token that a cache holds counts for its price. A rebuild, or a
middle that is left out, costs tokens that the cache would have held; the account pays for them.
"""

from dataclasses import dataclass

from langchain_ctxbudget.history import Background
from langchain_ctxbudget.layers import Place, tokens_at
from langchain_ctxbudget.prompt.plan import Plan
from langchain_ctxbudget.prompt.turn_room import framed_tokens
from langchain_ctxbudget.stores import CutRecord
from langchain_ctxbudget.tokens import CACHED_PRICE, effective_tokens


@dataclass(frozen=True, slots=True)
class Savings:
    """What prompts have saved so far, in effective tokens; below 0 if they have cost more."""

    tokens: int

    def after_prompts(self, *, prompts: int, shorter_by: float, extra_tokens: int) -> "Savings":
        """Returns the savings after some prompts more.

        Args:
            prompts: how many prompts were sent since.
            shorter_by: by how many tokens each of them was shorter than sending everything. A
                cache holds these tokens, so each counts for the price of a cached one.
            extra_tokens: what they have sent for the full price and sending everything has not.
        """
        gained_tokens = int(CACHED_PRICE * prompts * shorter_by)
        return Savings(self.tokens + gained_tokens - extra_tokens)

    def with_price_of(self, total_tokens: int, new_tokens: int) -> "Savings":
        """Returns what a prompt may cost that is sent instead of extending the last one.

        It is what was saved, and what the extension would have cost: `total_tokens`, of which a
        cache holds all but `new_tokens`.
        """
        cached_tokens = max(0, total_tokens - new_tokens)
        return Savings(self.tokens + int(effective_tokens(total_tokens, cached_tokens)))

    def pays(self, price: float) -> bool:
        """Tells whether the savings are enough for a price in effective tokens."""
        return self.tokens >= price

    def less(self, price: int) -> "Savings":
        """Returns what is left of the savings once a price is paid."""
        return Savings(self.tokens - price)


def savings_of(plan: Plan, record: CutRecord, total_tokens: int) -> Savings | None:
    """Returns what prompts have saved so far against sending everything.

    None if this prompt sends everything itself; it has `total_tokens`, its background not counted.
    Each earlier prompt since the last count has sent one background, for the full price, and the
    rest for the price of a cache.
    """
    _, left_out_until = record.left_out
    if record.strategy == "full" and not left_out_until:
        return None
    backgrounds = uncounted_backgrounds(plan, record)
    spent_tokens = 0
    for background in backgrounds:
        if background.fragments:
            spent_tokens += framed_tokens(sum(part.tokens for part in background.fragments))
    # On average, those prompts had only half of the backgrounds that this one has.
    return Savings(record.saved_tokens).after_prompts(
        prompts=len(backgrounds),
        shorter_by=whole_tokens(plan) - total_tokens + spent_tokens / 2,
        extra_tokens=spent_tokens,
    )


def uncounted_backgrounds(plan: Plan, record: CutRecord) -> list[Background]:
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
    system_tokens = tokens_at(plan.allocated.tokens, Place.SYSTEM_PROMPT)
    return said_tokens + system_tokens + sum(plan.extras.values())
