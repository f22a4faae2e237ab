"""How a provider caches the beginnings of prompts, and what it charges for that.

All prices are shares of the price of an input token without a cache. So a cost is a number of such
tokens: the `effective tokens` of a report.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple


class LongerLifetime(NamedTuple):
    """A lifetime of cached tokens that is longer than the usual one, and may cost more."""

    seconds: float
    write_price: float
    """The price of a token that is written for so long."""
    ttl: str
    """What a mark says that asks for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheTerms:
    """How a provider caches prompts for a model, and what it charges for that.

    The defaults are for a provider of which nothing is known. Most providers charge a tenth for
    reading. No higher price for writing is assumed, and no smallest prompt: what is not known must
    not change when prompts are rebuilt.
    """

    read_price: float = 0.1
    """The price of a token that is read from the cache."""
    write_price: float = 1.0
    """The price of a new token of a prompt that is cached."""
    lifetime_seconds: float = 300.0
    """For how long the cache holds a prompt that is not sent again."""
    longer_lifetimes: tuple[LongerLifetime, ...] = ()
    """Longer lifetimes that a request can ask for, the shortest one first."""
    smallest_tokens: int = 0
    """The tokens of the smallest prompt that is cached."""
    step_tokens: int = 1
    """A cache holds a multiple of so many tokens."""
    ttl: str = ""
    """What a mark says that asks for this lifetime; empty for the usual one."""
    most_marks: int = 4
    """The most marks that a request may have, which say where a cached beginning ends; 0 where the
    provider refuses or ignores them. A gateway that nothing is known of may pass them on to
    Anthropic, which takes four."""

    @property
    def mark(self) -> dict[str, str]:
        """A mark, as Anthropic has it, that asks for this lifetime."""
        if self.ttl:
            return {"type": "ephemeral", "ttl": self.ttl}
        return {"type": "ephemeral"}

    def read_tokens(self, shared_tokens: int) -> int:
        """Returns how many of the tokens that a prompt shares with an earlier one are read."""
        if shared_tokens < self.smallest_tokens:
            return 0
        return shared_tokens - shared_tokens % self.step_tokens

    def cost(self, tokens: int, shared_tokens: int = 0) -> float:
        """Returns the cost of a prompt in effective tokens.

        Args:
            tokens: the tokens of the prompt.
            shared_tokens: how many of them, from its beginning on, an earlier prompt has as well.
        """
        if tokens < self.smallest_tokens:
            return tokens
        read_tokens = self.read_tokens(shared_tokens)
        return (tokens - read_tokens) * self.write_price + read_tokens * self.read_price

    def lasting(self, seconds: float) -> "CacheTerms":
        """Returns the terms under which a prompt is held for so many seconds.

        Returns these terms where no lifetime is that long: the application may send its prompts
        again in time to keep them in the cache.
        """
        if seconds <= self.lifetime_seconds:
            return self
        for lifetime in self.longer_lifetimes:
            if seconds <= lifetime.seconds:
                return replace(
                    self,
                    lifetime_seconds=lifetime.seconds,
                    write_price=lifetime.write_price,
                    ttl=lifetime.ttl,
                )
        return self


def cache_terms_for(
    model_name: str, terms: CacheTerms, by_family: Mapping[str, CacheTerms]
) -> CacheTerms:
    """Returns the terms for a model: those of its family, or those of the provider.

    Args:
        model_name: the name, perhaps behind prefixes of a gateway or a region, as in
            `us.anthropic.claude-opus-4-5`.
        terms: those of the provider.
        by_family: terms of families of models, by how the names of these begin. The longest
            beginning that fits counts.
    """
    if not by_family:
        return terms
    name = model_name.lower()
    starts = [0]
    starts += [place + 1 for place, character in enumerate(name) if character in "./:"]
    found = ""
    for family in by_family:
        is_of_family = any(name.startswith(family, start) for start in starts)
        if is_of_family and len(family) > len(found):
            found = family
    return by_family.get(found, terms)
