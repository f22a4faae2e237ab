"""What prompts have saved, compared with sending everything each time.

Savings are effective tokens: a token that a cache holds counts only as much as it costs. They pay
for what the cache does not hold: the new part of a prompt that is rebuilt or has lost its middle.
"""

from dataclasses import dataclass, field, replace
from math import ceil

from langchain_ctxbudget.history import Background
from langchain_ctxbudget.layers import Place, tokens_at
from langchain_ctxbudget.prompt.plan import Plan
from langchain_ctxbudget.prompt.tools import tokens_of_application
from langchain_ctxbudget.prompt.turn_room import framed_tokens
from langchain_ctxbudget.prompt.unsendable_media import unsendable_media_tokens
from langchain_ctxbudget.providers import CacheTerms
from langchain_ctxbudget.stores import CutRecord


@dataclass(frozen=True, slots=True)
class Savings:
    """What prompts have saved so far, or may cost because of that."""

    tokens: int
    """In effective tokens; below 0 if the prompts have cost more than sending everything."""
    terms: CacheTerms = field(default_factory=CacheTerms)
    """What tokens cost that a cache holds, or takes in."""

    @property
    def new_tokens(self) -> int:
        """How many new tokens the savings pay for."""
        return int(self.tokens / self.terms.write_price)

    def after_prompts(
        self, *, prompts: int, shorter_by: float, extra_tokens: int, uncached_tokens: int = 0
    ) -> "Savings":
        """Returns the savings after more prompts.

        Args:
            prompts: the number of these prompts.
            shorter_by: by how many tokens each of them was shorter than everything. A cache would
                hold these tokens, so they count for the price of cached ones.
            extra_tokens: the new tokens that they have sent, and that sending everything would not
                have.
            uncached_tokens: the tokens of each that a cache would hold if the prompt were not too
                small for it.
        """
        terms = self.terms
        gained_tokens = int(terms.read_price * prompts * shorter_by)
        lost_tokens = terms.write_price * extra_tokens
        lost_tokens += (1 - terms.read_price) * prompts * uncached_tokens
        return replace(self, tokens=self.tokens + gained_tokens - ceil(lost_tokens))

    def with_price_of(self, total_tokens: int, new_tokens: int) -> "Savings":
        """Returns what a prompt may cost that is sent instead of one with `total_tokens`.

        That is the savings and the price of the other prompt, of which a cache holds all but
        `new_tokens`.
        """
        price = int(self.terms.cost(total_tokens, max(0, total_tokens - new_tokens)))
        return replace(self, tokens=self.tokens + price)

    def pays(self, price: float) -> bool:
        """Tells whether the savings are enough for a price in effective tokens."""
        return self.tokens >= price

    def less(self, price: int) -> "Savings":
        """Returns what is left of the savings when a price is paid."""
        return replace(self, tokens=self.tokens - price)


def savings_of(plan: Plan, record: CutRecord, total_tokens: int) -> Savings | None:
    """Returns what prompts have saved up to this one, compared with sending everything.

    Returns None if nothing was summarised or left out, so that everything is sent anyway.

    Each prompt since savings were counted last has sent its own background for the full price, and
    the rest for the price of cached tokens.

    Args:
        plan: this prompt.
        record: the cut of the last prompt, with the savings that were counted then.
        total_tokens: the tokens of this prompt without a new background.
    """
    _, left_out_until = record.left_out
    if record.strategy == "full" and not left_out_until:
        return None
    backgrounds = uncounted_backgrounds(plan, record)
    background_tokens = 0
    for background in backgrounds:
        background_tokens += framed_tokens(sum(part.tokens for part in background.fragments))
    # This prompt has all of these backgrounds. The prompts before it had half of them on average.
    own_tokens = total_tokens - background_tokens / 2
    terms = plan.request.cache_terms
    return Savings(record.saved_tokens, terms).after_prompts(
        prompts=len(backgrounds),
        shorter_by=whole_tokens_with_bound_tools(plan) - own_tokens,
        extra_tokens=background_tokens,
        uncached_tokens=int(own_tokens) if own_tokens < terms.smallest_tokens else 0,
    )


def uncounted_backgrounds(plan: Plan, record: CutRecord) -> list[Background]:
    """Returns the backgrounds of prompts like this one that savings do not count yet."""
    uncounted = range(record.saved_until, len(plan.conversation.entries))
    key = plan.cut_key
    return [
        background
        for position, background in plan.conversation.backgrounds.items()
        if position in uncounted and background.cut_key == key
    ]


def whole_tokens(plan: Plan) -> int:
    """Returns the tokens of sending everything: system prompt, all tools, and all that was said.

    Without what nobody could send, and without the package's own tools, which nobody would need.
    """
    return _said_tokens(plan) + tokens_of_application(plan)


def whole_tokens_with_bound_tools(plan: Plan) -> int:
    """Returns the same for the tools that are bound: those that are not pay for no quotes."""
    return _said_tokens(plan) + tokens_of_application(plan, only_bound=True)


def _said_tokens(plan: Plan) -> int:
    said_tokens = plan.conversation.total_tokens + plan.turn.tokens - unsendable_media_tokens(plan)
    system_tokens = tokens_at(plan.allocated.tokens, Place.SYSTEM_PROMPT)
    return said_tokens + system_tokens + sum(plan.extras_beside_tools.values())
