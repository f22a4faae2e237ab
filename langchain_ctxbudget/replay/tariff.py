"""What the tokens of a replay cost, and whose prices these are."""

from dataclasses import dataclass

from langchain_ctxbudget.errors import InputError
from langchain_ctxbudget.providers import CacheTerms, profile_of
from langchain_ctxbudget.tokens import PRICES, Price, price_of, terms_at


@dataclass(frozen=True, slots=True, kw_only=True)
class Tariff:
    """The price of tokens and of cached tokens, and the model whose terms these are."""

    model: str | None
    """None where no model was named: then a cached token is assumed to cost a tenth."""
    input_price: float | None
    """US dollars for a million new tokens; None where no price is known."""
    read_share: float
    """The price of a cached token, as a share of one that no cache has to do with."""
    write_share: float
    """The same for a new token, which the cache takes in."""
    smallest_tokens: int
    """The tokens of the smallest prompt that the provider caches."""

    @classmethod
    def of(cls, model: str | None, price: Price | None, terms: CacheTerms) -> "Tariff":
        """Returns the tariff of a model with a price, under the terms of its provider."""
        return cls(
            model=model,
            input_price=None if price is None else price.input,
            read_share=terms.read_price,
            write_share=terms.write_price,
            smallest_tokens=terms.smallest_tokens,
        )

    def to_text(self) -> str:
        """Returns a line on what cached tokens cost, and by whose terms."""
        parts = [f"cached tokens at {self.read_share:g} of the price"]
        if self.write_share != 1:
            parts.append(f"writing them at {self.write_share:g}")
        if self.smallest_tokens:
            parts.append(f"prompts from {self.smallest_tokens:,} tokens on")
        return f"{', '.join(parts)}: {self._origin()}"

    def _origin(self) -> str:
        """Returns whose terms these are."""
        if self.model is None and self.input_price is None:
            return "assumed, as no model is named"
        if self.input_price is None:
            return f"the provider of {self.model}, for which no price is known"
        source = self.model or "the price given"
        return f"{source}, ${self.input_price:g} a million tokens"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pricing:
    """For which model a replay counts, and what it charges."""

    counted_model: str | None
    """The model whose tokens are counted, within its window."""
    price: Price | None
    terms: CacheTerms
    tariff: Tariff

    @classmethod
    def of(cls, model: str | None, price: Price | str | None) -> "Pricing":
        """Reads a model and a price, which may be the name of a model.

        Where only one model is named, it is both: that of the counts, and that of the prices.

        Raises:
            InputError: No price is known for the model that is named as a price.
        """
        if isinstance(price, str):
            priced_model: str | None = price
            own_price = price_of(price, PRICES)
            if own_price is None:
                models = ", ".join(sorted(PRICES))
                raise InputError(
                    f"price: no price is known for {price!r}; give a Price, or one of {models}"
                )
        else:
            priced_model = model
            own_price = price or price_of(model, PRICES)
        provider_terms = profile_of(priced_model).cache_terms_for(priced_model or "")
        terms = terms_at(own_price, provider_terms)
        return cls(
            counted_model=model or priced_model,
            price=own_price,
            terms=terms,
            tariff=Tariff.of(priced_model, own_price, terms),
        )
