"""The calls of models that the package makes itself, by what they are for."""

from dataclasses import dataclass, fields
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


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnCalls:
    """What the package's own calls have used, by their purpose."""

    summary: Usage = NO_USAGE
    learning: Usage = NO_USAGE
    learning_and_summary: Usage = NO_USAGE

    @classmethod
    def of(cls, purpose: Purpose, usage: Usage) -> "OwnCalls":
        """Returns calls of one purpose."""
        return cls(**{purpose.value: usage})

    def __add__(self, other: "OwnCalls") -> "OwnCalls":
        sums = {
            field.name: getattr(self, field.name) + getattr(other, field.name)
            for field in fields(self)
        }
        return OwnCalls(**sums)

    @property
    def by_purpose(self) -> dict[Purpose, Usage]:
        """What was used for each purpose, without those that no call was made for."""
        usages = {purpose: getattr(self, purpose.value) for purpose in Purpose}
        return {purpose: usage for purpose, usage in usages.items() if usage.calls}

    @property
    def total(self) -> Usage:
        """What all of them have used."""
        return total(getattr(self, field.name) for field in fields(self))

    def since(self, earlier: "OwnCalls") -> "OwnCalls":
        """Returns what was used since there were these."""
        later = {
            field.name: getattr(self, field.name).since(getattr(earlier, field.name))
            for field in fields(self)
        }
        return OwnCalls(**later)

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
