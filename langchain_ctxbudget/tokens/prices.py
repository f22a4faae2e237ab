"""Prices of models, and the tokens and US dollars that their calls use.

Prices are data: `prices.json` says where its figures come from and how old they are, and an
application may lay its own over them. Of a model that is in neither, only tokens are counted.
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from types import MappingProxyType
from typing import Annotated, Any

from pydantic import Field

from langchain_ctxbudget.budget import NonNegative, Parameters
from langchain_ctxbudget.errors import InputError, InvalidSettingsError, require_count
from langchain_ctxbudget.messages import packaged
from langchain_ctxbudget.providers import CacheTerms

_MOST_TOKENS = 10**9
"""The most that one call can have."""
_MOST_SECONDS = 86_400
"""The longest that one call can take."""
_PROVIDER = re.compile(
    r"(?:anthropic|azure|azure_openai|deepseek|gemini|google|google_genai|google_vertexai|groq|mistral|mistralai|models"
    r"|openai|openrouter|vertex_ai|x-ai|xai)[/:](?=.)"
)
"""A prefix of a model's name that names the provider."""
_SNAPSHOT = re.compile(r"(?:[-@]\d{4}-\d{2}-\d{2}|[-@]\d{8}|-00\d)$")
"""The date or number of a version: `gpt-4o-2024-08-06`, `claude-opus-4-5@20251101`."""
_WRITTEN_PARTS = ("ephemeral_5m_input_tokens", "ephemeral_1h_input_tokens")
"""Anthropic's parts of `cache_creation`, which is 0 where these are given."""
_Dollars = Annotated[float, Field(strict=True, ge=0, le=1_000_000, allow_inf_nan=False)]


class Price(Parameters):
    """The price of a model, in US dollars per million tokens: numbers from 0 to 1,000,000."""

    input: _Dollars
    output: _Dollars
    cached_input: _Dollars | None = None
    """Input that the provider has cached; None: as all input."""
    cache_write: _Dollars | None = None
    """Input that the provider caches now; None: as all input."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """The tokens and dollars that one call used, or several together."""

    calls: NonNegative = 0
    input_tokens: NonNegative = 0
    """The tokens of the prompts, cached ones included."""
    cached_tokens: NonNegative = 0
    output_tokens: NonNegative = 0
    cost: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    """In US dollars, in whole billionths: a sum is the same in any order, up to a million
    dollars."""
    unpriced_calls: NonNegative = 0
    """The calls whose model has no known price: their tokens count, their cost does not."""
    estimated_calls: NonNegative = 0
    """The calls whose provider did not say what they used: their tokens are estimated."""
    timed_calls: NonNegative = 0
    """The calls of which somebody told how long the answer took."""
    seconds: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    """How long those took together, from the call to the end of the answer, with the attempts that
    failed in between. In whole microseconds, for the same reason as `cost`."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "cost", round(float(self.cost), 9))
        object.__setattr__(self, "seconds", round(float(self.seconds), 6))

    def __add__(self, other: "Usage") -> "Usage":
        sums = {
            field.name: getattr(self, field.name) + getattr(other, field.name)
            for field in fields(self)
        }
        return Usage(**sums)

    def since(self, earlier: "Usage") -> "Usage":
        """Returns what was used since it was this; nothing is below 0."""
        differences = {
            field.name: max(0, getattr(self, field.name) - getattr(earlier, field.name))
            for field in fields(self)
        }
        return Usage(**differences)

    @property
    def total_tokens(self) -> int:
        """Input and output."""
        return self.input_tokens + self.output_tokens

    @property
    def seconds_per_call(self) -> float | None:
        """The mean of the timed calls; None where there are none."""
        return self.seconds / self.timed_calls if self.timed_calls else None

    def to_dict(self) -> dict[str, Any]:
        """Returns plain data, with the total and the mean."""
        return {
            **asdict(self),
            "total_tokens": self.total_tokens,
            "seconds_per_call": self.seconds_per_call,
        }


NO_USAGE = Usage()
"""What no call has used."""


def total(usages: Iterable[Usage]) -> Usage:
    """Returns the sum of usages."""
    return sum(usages, NO_USAGE)


def terms_at(price: Price | None, terms: CacheTerms) -> CacheTerms:
    """Returns how a provider caches, at the price of a model; as it is where that is not known."""
    if price is None or not price.input:
        return terms
    read_price = price.input if price.cached_input is None else price.cached_input
    write_price = price.input if price.cache_write is None else price.cache_write
    return replace(
        terms, read_price=read_price / price.input, write_price=write_price / price.input
    )


def load_prices(given: object = None) -> Mapping[str, Price]:
    """Returns the packaged prices with an application's own over them.

    Args:
        given: a mapping of model names to prices, or to their fields.

    Raises:
        InvalidSettingsError: Something of it cannot be used.
    """
    if given is None:
        return PRICES
    if not isinstance(given, Mapping) or not all(
        model and isinstance(model, str) for model in given
    ):
        raise InvalidSettingsError(
            f"prices must be a mapping of model names to prices, not {given!r}"
        )
    prices = {**PRICES}
    for model, value in given.items():
        try:
            prices[model] = Price.of(value)
        except InvalidSettingsError as error:
            raise InvalidSettingsError(
                f"prices[{model!r}] (dollars per million tokens): {error}"
            ) from error
    return MappingProxyType(prices)


def price_of(model: str | None, prices: Mapping[str, Price]) -> Price | None:
    """Returns the price of a model; None where it is not known.

    The exact name comes first, then the name without the provider's prefix, then without the date
    of its version.
    """
    name = model or ""
    while name not in prices:
        prefix = _PROVIDER.match(name)
        if prefix is None:
            break
        name = name[prefix.end() :]
    return prices.get(name) or prices.get(_SNAPSHOT.sub("", name))


def usage_of(
    usage_metadata: Mapping[str, Any], model: str | None, prices: Mapping[str, Price]
) -> Usage:
    """Returns the usage of one call, from the `usage_metadata` of an `AIMessage`.

    Details that are missing or None count as 0, and never exceed the input. Where `output_tokens`
    is missing, it is what `total_tokens` has beyond the input.

    Raises:
        InputError: There are no input tokens, or a number is no whole number from 0 to a billion.
    """
    if not isinstance(usage_metadata, Mapping):
        raise InputError(
            f"usage_metadata must be a mapping with input_tokens, not {usage_metadata!r}"
        )
    inputs = _tokens(usage_metadata, "input_tokens")
    rest = max(0, _tokens(usage_metadata, "total_tokens", inputs) - inputs)
    outputs = _tokens(usage_metadata, "output_tokens", rest)
    details = usage_metadata.get("input_token_details") or {}
    cached = min(inputs, _tokens(details, "cache_read", 0))
    written_parts = sum(_tokens(details, name, 0) for name in _WRITTEN_PARTS)
    written = min(inputs - cached, max(_tokens(details, "cache_creation", 0), written_parts))
    usage = Usage(calls=1, input_tokens=inputs, cached_tokens=cached, output_tokens=outputs)
    price = price_of(model, prices)
    if price is None:
        return replace(usage, unpriced_calls=1)
    cached_price = price.input if price.cached_input is None else price.cached_input
    write_price = price.input if price.cache_write is None else price.cache_write
    cost = (
        (inputs - cached - written) * price.input
        + cached * cached_price
        + written * write_price
        + outputs * price.output
    )
    return replace(usage, cost=cost / 1_000_000)


def with_time(usage: Usage, seconds: float | None) -> Usage:
    """Returns the usage of one call with the time that its answer took; None: nobody knows it.

    Raises:
        InputError: It is no number of seconds from 0 to a day.
    """
    if seconds is None:
        return usage
    is_number = isinstance(seconds, (int, float)) and not isinstance(seconds, bool)
    if not is_number or not 0 <= seconds <= _MOST_SECONDS:
        raise InputError(f"seconds must be a number from 0 to {_MOST_SECONDS:,}, not {seconds!r}")
    return replace(usage, timed_calls=1, seconds=seconds)


def _tokens(counts: Mapping[str, Any], name: str, default: int | None = None) -> int:
    """Returns a number of tokens; the default where it is missing or None."""
    value: Any = counts.get(name)
    if value is None and default is not None:
        return default
    require_count(name, value, 0, _MOST_TOKENS)
    return int(value)


PRICE_LIST: dict[str, Any] = json.loads(packaged("tokens/prices.json"))
PRICES: Mapping[str, Price] = MappingProxyType(
    {name: Price.of(price) for name, price in PRICE_LIST["prices"].items()}
)
"""The packaged prices, by the name of the model."""
PRICES_SOURCE: str = f"{PRICE_LIST['source']}, {PRICE_LIST['as_of']}"
