"""The calls of models that the package makes itself, by what they are for."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from langchain_ctxbudget.providers import CacheTerms
from langchain_ctxbudget.tokens.prices import NO_USAGE, Price, Usage, total

OUTPUT_PRICE = 5.0
"""What a token of output costs, in tokens of input, where no price is known: the median of the
packaged prices."""


class Purpose(StrEnum):
    """What the package calls a model for."""

    SUMMARY = "summary"
    LEARNING = "learning"
    LEARNING_AND_SUMMARY = "learning_and_summary"
    """Both in one call, where both are due."""


@dataclass(frozen=True, slots=True)
class OwnCalls:
    """What the package's own calls have used, by their purpose."""

    by_purpose: Mapping[Purpose, Usage] = field(default_factory=dict)
    """Without those that no call was made for."""

    def __add__(self, other: "OwnCalls") -> "OwnCalls":
        purposes = sorted({*self.by_purpose, *other.by_purpose})
        return OwnCalls({it: self.used_for(it) + other.used_for(it) for it in purposes})

    @property
    def total(self) -> Usage:
        """What all of them have used."""
        return total(self.by_purpose.values())

    def used_for(self, purpose: Purpose) -> Usage:
        """Returns what the calls of a purpose have used."""
        return self.by_purpose.get(purpose, NO_USAGE)

    def since(self, earlier: "OwnCalls") -> "OwnCalls":
        """Returns what was used since there were these."""
        later: dict[Purpose, Usage] = {}
        for purpose, used in self.by_purpose.items():
            difference = used.since(earlier.used_for(purpose))
            if difference.calls:
                later[purpose] = difference
        return OwnCalls(later)

    def effective_tokens(self, price: Price | None, terms: CacheTerms) -> int:
        """Returns what they cost, in new tokens of input of the model that prompts are made for.

        Where the prices of both models are known, dollars are compared. Else tokens are, as if it
        were the same model.

        Args:
            price: the price of the model that prompts are made for; None where it is not known.
            terms: what its provider charges for tokens that a cache holds.
        """
        used = self.total
        if price is not None and price.input and not used.unpriced_calls:
            return round(used.cost / price.input * 1_000_000)
        new_tokens = used.input_tokens - used.cached_tokens
        cached_cost = used.cached_tokens * terms.read_price
        return round(new_tokens + cached_cost + used.output_tokens * OUTPUT_PRICE)


NO_OWN_CALLS = OwnCalls()
"""No call was made."""
