"""The model that prompts are made for: how its tokens are counted and corrected, and its window."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TypeAlias

from langchain_ctxbudget.errors import (
    InputError,
    InvalidSettingsError,
    TokenizerUnavailableError,
    require_count,
)
from langchain_ctxbudget.flow import Flow
from langchain_ctxbudget.providers import (
    Profile,
    as_asked_to_think,
    model_names,
    profile_named,
    profile_of,
    shows_media_behind,
    unwrapped,
)
from langchain_ctxbudget.tokens import counters
from langchain_ctxbudget.tokens.calibration import Calibration
from langchain_ctxbudget.tokens.prices import PRICES, Price, price_of, terms_at
from langchain_ctxbudget.tokens.window import Window, find_window
from langchain_ctxbudget.worker import new_mutex

MOST_TIMES = 5
"""A usage of more than this many times our count is that of another call."""
MOST_HIDDEN_TOKENS = 1_000
"""Tokens that a provider may add to a prompt besides."""
Model: TypeAlias = "counters.ChatModel | str | None"


def target_key(model: "counters.ChatModel | str") -> tuple[object, ...]:
    """Returns all that a model's counts, its window and its provider depend on.

    Models for which it is equal share a target.
    """
    inner = unwrapped(model)
    profile = getattr(inner, "profile", None) or {}
    window = (profile.get("max_input_tokens"), profile.get("max_output_tokens"))
    # Only what is set is looked at: to ask for more could make a client.
    values = getattr(inner, "__dict__", {}).values()
    addresses = [value for value in values if isinstance(value, str) and ":" in value]
    of_model = profile_of(model)
    rules = (of_model.name, of_model.binds_thoughts)
    return (type(inner), *rules, *model_names(inner), *addresses, *window)


class ModelTarget:
    """A model as a pipeline sees it; shared by threads and tasks."""

    def __init__(
        self,
        model: Model,
        token_counter: counters.TokenCounter | None,
        provider: str | Profile | None = None,
        *,
        prices: Mapping[str, Price] = PRICES,
    ) -> None:
        """Chooses how to count; the window is found when it is first needed.

        Args:
            model: The model, or its name.
            token_counter: What counts; by default what suits the model.
            provider: The profile that holds, or its name; by default the model tells it.
            prices: What models cost, by their names; by default the package's list.

        Raises:
            InvalidSettingsError: The model or the counter is of another kind, or there is no
                profile of that name.
        """
        _require_counter(token_counter)
        _require_model(model)
        self.model = model
        self.given_counter = token_counter
        self.given_profile = _chosen_profile(provider, model)
        """The profile that the application has chosen; None where the model tells it."""
        self.profile = self.given_profile or profile_of(model)
        """What the model's provider accepts, refuses, counts and charges."""
        self.tokenizer = token_counter or counters.counter_for(model)
        if model is not None or provider is not None:
            rates = self.profile.media.rates_for(self.model_name or "")
            self.tokenizer = self.tokenizer.with_media(
                rates, behind_results=shows_media_behind(self.profile)
            )
        self.counter = self.tokenizer
        """Counts with the corrections that are known."""
        self.calibration = Calibration(exact=self.tokenizer.mode == "exact")
        """The corrections in force."""
        self.prices = prices
        """What models cost, by their names."""
        family_terms = self.profile.cache_terms_for(self.model_name or "")
        self.cache = terms_at(price_of(self.model_name, prices), family_terms)
        """How the provider caches prompts for the model, and what it charges for that."""
        self._mutex = new_mutex()
        self._window: Window | None = None

    @property
    def model_name(self) -> str | None:
        """The name of the model; None where it is not known."""
        if self.model is None:
            return None
        return next(model_names(self.model), None)

    def profile_for(self, tools: Sequence[object]) -> Profile:
        """Returns the profile for a call with some tools: they may choose among OpenAI's APIs."""
        if self.given_profile is not None or not tools:
            return self.profile
        return profile_of(self.model, tools)

    def load(self) -> None:
        """Loads the tokenizer; if it is not available, the first count raises."""
        if self.tokenizer.is_local:
            with suppress(TokenizerUnavailableError):
                self.tokenizer.count_text("a")

    def observe(self, input_tokens: int, counted_tokens: int) -> None:
        """Corrects the counts by what a provider measured for a prompt.

        Raises:
            InputError: The measured tokens cannot be those of this prompt.
        """
        require_count("input_tokens", input_tokens, 0)
        most = counted_tokens * MOST_TIMES + MOST_HIDDEN_TOKENS
        if input_tokens > most:
            raise InputError(
                f"The provider measured {input_tokens:,} tokens for a prompt that counts "
                f"{counted_tokens:,}. More than {most:,} cannot be its usage, but that of another "
                "prompt or of several calls: pass the usage of one call, and the report of its "
                "prompt"
            )
        with self._mutex:
            self.calibration = self.calibration.observe(counted_tokens, input_tokens)
            self._correct(self.calibration.factor)

    def _correct(self, factor: float) -> None:
        """Takes another counter where the factor has changed."""
        current = 1.0
        if isinstance(self.counter, counters.CalibratedCounter):
            current = self.counter.factor
        if factor == current:
            return
        if factor == 1.0:
            self.counter = self.tokenizer
        else:
            self.counter = counters.CalibratedCounter(self.tokenizer, factor)

    def find_window(self) -> "Flow[Window]":
        """Finds the model's window, once."""
        if self._window is None:
            self._window = yield from find_window(self.model)
        return self._window


def _require_counter(token_counter: object) -> None:
    """Raises an error if something that is given is no counter."""
    if token_counter is not None and not isinstance(token_counter, counters.TokenCounter):
        raise InvalidSettingsError(
            f"token_counter must be a TokenCounter, not {type(token_counter).__name__}"
        )


def _require_model(model: Model) -> None:
    """Raises an error if this is no chat model, nor a bound one, nor its name, nor None."""
    if not _is_model(model):
        raise InvalidSettingsError(
            f"model must be a chat model, also a bound one, its name, or None, not {model!r}; "
            "of a chain pass its model"
        )


def _is_model(model: Model) -> bool:
    """Tells whether this is a chat model, also a bound one, its name, or None."""
    if model is None:
        return True
    if isinstance(model, str):
        return bool(model.strip())
    return hasattr(unwrapped(model), "get_num_tokens")


def _chosen_profile(provider: str | Profile | None, model: Model) -> Profile | None:
    """Returns the profile that an application has chosen, or the one of that name."""
    if provider is None or isinstance(provider, Profile):
        return provider
    return as_asked_to_think(profile_named(provider), model)
