"""What calls of a model used, in tokens and US dollars.

Prices are data: `data/prices.json` says where its figures come from and how old they are, and an application may lay
its own over them. What is not in either is counted in tokens only.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from importlib import resources
from types import MappingProxyType
from typing import Any, Self

from langchain_ctxbudget.errors import InputError, InvalidSettingsError

_PER = 1_000_000
"""Prices are for so many tokens."""
_DECIMALS = 9
"""Costs are whole billionths of a dollar: their sum is the same in any order, up to a million dollars."""
_MOST_PRICE = 1_000_000
_MOST_TOKENS = 10**9
"""Of one call."""
_PROVIDERS = frozenset(
    {
        *("anthropic", "azure", "azure_openai", "deepseek", "gemini", "google", "google_genai", "google_vertexai"),
        *("groq", "mistral", "mistralai", "models", "openai", "openrouter", "vertex_ai", "x-ai", "xai"),
    }
)
"""Prefixes of a model's name that say who runs it, and at whose prices."""
_PREFIX = re.compile(r"([a-z_-]+)[/:](.+)")
_SNAPSHOT = re.compile(r"(.+?)(?:[-@]\d{4}-\d{2}-\d{2}|[-@]\d{8}|-00\d)")
"""A model with the date or number of one of its versions: `gpt-4o-2024-08-06`, `claude-opus-4-5@20251101`."""

_READ = ("cache_read", "priority_cache_read", "flex_cache_read")
_WRITTEN = ("cache_creation", "priority_cache_creation", "flex_cache_creation")
_WRITTEN_FOR = ("ephemeral_5m_input_tokens", "ephemeral_1h_input_tokens")
"""Anthropic's parts of `cache_creation`, which is 0 where these are given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """What a model costs, in US dollars per million tokens.

    Raises:
        InvalidSettingsError: a price that is not a number from 0 to 1,000,000.

    Example:
        >>> Price(input=2.5, output=10).cached_input is None
        True
    """

    input: float
    output: float
    cached_input: float | None = None
    """Input that the provider has cached; None: as all input."""
    cache_write: float | None = None
    """Input that the provider caches now; None: as all input."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value is None and field.name in ("cached_input", "cache_write"):
                continue
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if not number or not 0 <= value <= _MOST_PRICE:
                raise InvalidSettingsError(
                    f"The price {field.name} must be a number from 0 to {_MOST_PRICE:,}, in US dollars per million "
                    f"tokens, not {value!r}"
                )

    @classmethod
    def of(cls, value: object) -> Self:
        """A price from a mapping of its fields.

        Raises:
            InvalidSettingsError: it is something else, or lacks a field, or has unknown ones.
        """
        if isinstance(value, cls):
            return value
        if not isinstance(value, Mapping):
            raise InvalidSettingsError(f"A price must be a mapping such as {_EXAMPLE}, not {value!r}")
        names = [field.name for field in fields(cls)]
        if unknown := sorted(map(str, set(value) - set(names))):
            raise InvalidSettingsError(f"A price has no {', '.join(unknown)}; its fields are {', '.join(names)}")
        if missing := [name for name in ("input", "output") if name not in value]:
            raise InvalidSettingsError(f"A price needs {' and '.join(missing)}: give a mapping such as {_EXAMPLE}")
        return cls(**value)


_EXAMPLE = "{'input': 2.5, 'output': 10}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What one call used, or several together.

    Example:
        >>> call = Usage(calls=1, input_tokens=1_000, output_tokens=20, cost=0.0027)
        >>> (call + call).total_tokens, (call + call).cost
        (2040, 0.0054)
    """

    calls: int = 0
    input_tokens: int = 0
    """Of the prompts, with those that were cached."""
    cached_tokens: int = 0
    """Those of the input that the provider had cached."""
    output_tokens: int = 0
    cost: float = 0.0
    """In US dollars, kept in whole billionths of one."""
    unpriced_calls: int = 0
    """Of the calls, those whose model has no known price: their tokens count, their cost does not."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "cost", round(float(self.cost), _DECIMALS))

    def __add__(self, other: Usage) -> Usage:
        if not isinstance(other, Usage):
            return NotImplemented
        return Usage(
            calls=self.calls + other.calls,
            input_tokens=self.input_tokens + other.input_tokens,
            cached_tokens=self.cached_tokens + other.cached_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cost=self.cost + other.cost,
            unpriced_calls=self.unpriced_calls + other.unpriced_calls,
        )

    @property
    def total_tokens(self) -> int:
        """Input and output."""
        return self.input_tokens + self.output_tokens

    def to_dict(self) -> dict[str, Any]:
        """Plain data, with the total."""
        return {**asdict(self), "total_tokens": self.total_tokens}


NO_USAGE = Usage()


def total(usages: Iterable[Usage]) -> Usage:
    """The sum of usages."""
    return sum(usages, NO_USAGE)


def load_prices(given: object = None) -> Mapping[str, Price]:
    """The packaged prices, with others laid over them.

    Args:
        given: a mapping of model names to prices, or to mappings of their fields; None: the packaged ones alone.

    Raises:
        InvalidSettingsError: it is something else, or a price in it is none; names the model.

    Example:
        >>> load_prices({"my-model": {"input": 0.2, "output": 0.4}})["my-model"].output
        0.4
    """
    if given is None:
        return PRICES
    if not isinstance(given, Mapping):
        raise InvalidSettingsError(f"prices must be a mapping of model names to prices, not {given!r}")
    over = {}
    for model, value in given.items():
        if not isinstance(model, str) or not model:
            raise InvalidSettingsError(f"prices must be by the name of the model, not by {model!r}")
        try:
            over[model] = Price.of(value)
        except InvalidSettingsError as error:
            raise InvalidSettingsError(f"prices[{model!r}]: {error}") from error
    return MappingProxyType({**PRICES, **over})


def price_of(model: str | None, prices: Mapping[str, Price]) -> Price | None:
    """What a model costs; None where that is not known.

    The exact name comes first, then the name without the provider's prefix, then without the date of its version.

    Args:
        model: as the provider or LangChain names it.
        prices: by the name of the model.

    Example:
        >>> price_of("openai/gpt-4o-2024-08-06", PRICES) == PRICES["gpt-4o"]
        True
        >>> price_of("a-model-of-my-own", PRICES) is None
        True
    """
    name = model or ""
    while name:
        if name in prices:
            return prices[name]
        prefixed = _PREFIX.fullmatch(name)
        if prefixed is None or prefixed[1] not in _PROVIDERS:
            break
        name = prefixed[2]
    dated = _SNAPSHOT.fullmatch(name)
    return prices.get(dated[1]) if dated else None


def usage_of(usage_metadata: Mapping[str, Any], model: str | None, prices: Mapping[str, Price]) -> Usage:
    """What one call used.

    Cached input costs `cached_input`, what was cached by the call `cache_write`, all other input `input`. Details that
    are missing or None count as 0, and they never exceed the input: what is over is left out. Where `output_tokens` is
    missing, it is what `total_tokens` has beyond the input.

    Args:
        usage_metadata: of an `AIMessage`.
        model: that was called; None where it is not known.
        prices: by the name of the model.

    Raises:
        InputError: there are no input tokens, or a number of tokens is not a whole number from 0 to a billion.

    Example:
        >>> read = {"cache_read": 900}
        >>> metadata = {"input_tokens": 1_000, "output_tokens": 100, "total_tokens": 1_100, "input_token_details": read}
        >>> usage_of(metadata, "gpt-4o", {"gpt-4o": Price(input=2.5, cached_input=1.25, output=10)}).cost
        0.002375
    """
    if not isinstance(usage_metadata, Mapping):
        raise InputError(f"usage_metadata must be a mapping with input_tokens, not {usage_metadata!r}")
    given = _tokens(usage_metadata, "input_tokens", None)
    made = _tokens(usage_metadata, "output_tokens", max(0, _tokens(usage_metadata, "total_tokens", given) - given))
    details = usage_metadata.get("input_token_details") or {}
    if not isinstance(details, Mapping):
        raise InputError(f"input_token_details must be a mapping of token counts, not {details!r}")
    cached = min(given, sum(_tokens(details, name, 0) for name in _READ))
    in_parts = sum(_tokens(details, name, 0) for name in _WRITTEN_FOR)
    written = min(given - cached, max(in_parts, sum(_tokens(details, name, 0) for name in _WRITTEN)))
    price = price_of(model, prices)
    return Usage(
        calls=1,
        input_tokens=given,
        cached_tokens=cached,
        output_tokens=made,
        cost=0.0 if price is None else _cost(price, given - cached - written, cached, written, made),
        unpriced_calls=int(price is None),
    )


def _cost(price: Price, plain: int, cached: int, written: int, made: int) -> float:
    of_cached = price.input if price.cached_input is None else price.cached_input
    of_written = price.input if price.cache_write is None else price.cache_write
    return (plain * price.input + cached * of_cached + written * of_written + made * price.output) / _PER


def _tokens(counts: Mapping[str, Any], name: str, default: int | None) -> int:
    """A number of tokens; the default where it is missing or None."""
    value = counts.get(name)
    if value is None and default is not None:
        return default
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _MOST_TOKENS:
        raise InputError(
            f"{name} must be a whole number of tokens from 0 to {_MOST_TOKENS:,}, not {value!r}: "
            f"give the usage of one call as it was reported"
        )
    return value


_FILE: dict[str, Any] = json.loads(
    resources.files("langchain_ctxbudget").joinpath("data/prices.json").read_text(encoding="utf-8")
)
PRICES: Mapping[str, Price] = MappingProxyType({name: Price.of(price) for name, price in _FILE["prices"].items()})
"""The packaged prices, by the name of the model."""
PRICES_SOURCE: str = f"{_FILE['source']}, {_FILE['as_of']}"
"""Where they come from, and the day that they are of."""
