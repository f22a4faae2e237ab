"""The model that prompts are made for: how its tokens are counted and corrected, and how large its window is."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil
from typing import TYPE_CHECKING, Any, TypeAlias

from langchain_core.messages import BaseMessage

from langchain_ctxbudget.background import new_mutex
from langchain_ctxbudget.errors import InputError, InvalidSettingsError, TokenizerUnavailableError
from langchain_ctxbudget.flow import Flow, Lock, locked
from langchain_ctxbudget.messages import blocks_of, text_of
from langchain_ctxbudget.tokens.counters import (
    TokenCounter,
    counter_for,
    model_names,
    text_pieces,
    unwrapped,
)
from langchain_ctxbudget.tokens.windows import Window, find_window

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel  # takes 0.2 s to import

MOST_TIMES, MOST_HIDDEN_TOKENS = 5, 1_000
"""A usage of more than so many times our count, and so many tokens that a provider adds unseen, is of another call."""
WINDOW_ATTEMPTS = 3
"""Times that a server which does not tell its model's window is asked."""
_SERVERS = ("openai_api_base", "base_url", "azure_endpoint", "endpoint", "anthropic_api_url")
"""Attributes of models that name the server that runs them."""

Model: TypeAlias = "BaseChatModel | str | None"


def kind_of(model: BaseChatModel) -> tuple[object, ...]:
    """Returns all that counting for a model and its window depend on: objects of one kind are the same target."""
    inner = unwrapped(model)
    profile = getattr(inner, "profile", None) or {}
    return (*_identity(inner), profile.get("max_input_tokens"), profile.get("max_output_tokens"))


def _identity(inner: BaseChatModel) -> tuple[object, ...]:
    server = next((url for name in _SERVERS if (url := getattr(inner, name, None))), None)
    return (type(inner), *model_names(inner), str(server))


def _is_usable(model: object) -> bool:
    if model is None or isinstance(model, str):
        return model is None or bool(model.strip())
    from langchain_core.language_models import BaseLanguageModel  # noqa: PLC0415 - takes 0.2 s

    return isinstance(unwrapped(model), BaseLanguageModel)


class ModelTarget:
    """A model as a pipeline sees it; shared by threads and tasks."""

    def __init__(self, model: Model, token_counter: TokenCounter | None) -> None:
        """Choose how to count; the window is found when it is first needed.

        Raises:
            InvalidSettingsError: one of them is something else.
        """
        if token_counter is not None and not isinstance(token_counter, TokenCounter):
            raise InvalidSettingsError(f"token_counter must be a TokenCounter, not {type(token_counter).__name__}")
        if not _is_usable(model):
            raise InvalidSettingsError(
                f"model must be a chat model, also a bound one, its name, or None, not {model!r}; of a chain pass its "
                f"model"
            )
        self.model, self.given_counter = model, token_counter
        self.tokenizer = token_counter or counter_for(model)
        self.counter = self.tokenizer
        """Counts with the corrections that are known."""
        self.calibration = Calibration(exact=self.tokenizer.mode == "exact")
        """The corrections in force."""
        self._mutex = new_mutex()
        self._window: Window | None = None
        self._window_attempts = 0
        self._window_lock = Lock()

    @property
    def model_name(self) -> str | None:
        """The name of the model; None where it is not known."""
        return None if self.model is None else next(model_names(self.model), None)

    @property
    def identity(self) -> str:
        """Tells the counts for this model, at its server and with its tokenizer, from those for others."""
        model = self.model
        kind = (model or "",) if model is None or isinstance(model, str) else _identity(unwrapped(model))
        named = [f"{part.__module__}.{part.__qualname__}" if isinstance(part, type) else part for part in kind if part]
        return json.dumps([*named, self.tokenizer.name])

    @property
    def factor(self) -> float:
        """The number that counts are multiplied by."""
        return self.calibration.factor

    def load(self) -> None:
        """Loads what counting needs; where it cannot be had, whoever counts says so."""
        with suppress(TokenizerUnavailableError):
            self.tokenizer.load()

    def observe(self, input_tokens: int, counted_tokens: int) -> None:
        """Corrects the counts by what a provider measured for a prompt.

        Raises:
            InputError: the number is not a count, or cannot be that of this prompt.
        """
        if not isinstance(input_tokens, int) or isinstance(input_tokens, bool) or input_tokens < 0:
            raise InputError(f"input_tokens must be a whole number of at least 0, not {input_tokens!r}")
        if input_tokens > (most := counted_tokens * MOST_TIMES + MOST_HIDDEN_TOKENS):
            raise InputError(
                f"The provider measured {input_tokens:,} tokens for a prompt that counts {counted_tokens:,}. More than "
                f"{most:,} cannot be its usage, but that of another prompt or of several calls: pass the usage of one "
                f"call, and the report of its prompt"
            )
        with self._mutex:
            self.calibration = self.calibration.observe(counted_tokens, input_tokens)
            self._correct()

    def resume(self, calibration: Calibration) -> None:
        """Goes on with corrections that were kept, where none are known yet."""
        with self._mutex:
            if not self.calibration.requests:
                self.calibration = calibration
            self._correct()

    def _correct(self) -> None:
        factor = self.factor
        if factor != (self.counter.factor if isinstance(self.counter, CalibratedCounter) else 1.0):
            self.counter = self.tokenizer if factor == 1.0 else CalibratedCounter(self.tokenizer, factor)

    def find_window(self) -> Flow[Window]:
        """Finds the model's window; a server that does not tell is asked again a few times."""

        def ask() -> Flow[Window]:
            if not self._window or (self._window.failure and self._window_attempts < WINDOW_ATTEMPTS):
                self._window_attempts += 1
                self._window = yield from find_window(self.model)
            return self._window

        if self._window and not self._window.failure:
            return self._window
        return (yield from locked(self._window_lock, ask()))


# Calibration: the ratio of what a provider measured for a request (`usage_metadata["input_tokens"]`) to our own count
# tells how far the model's tokenizer is from ours, and corrects what is counted next

_STEPS = 20
"""The factor is a multiple of 0.05, so that the counts, and with them the prompt, stay the same most of the time."""
_LOWEST_STEPS = 10
_FIRST_STEPS = 2 * _STEPS
"""The largest factor that follows from one observation."""
_OBSERVATIONS = 16
_CONFIRMING_SHARE = 4
"""One observation in so many, and at least a second one, makes a ratio more than an accident."""
_BAND = 1.5
"""A usage further above a confirmed ratio is not that of one call, but of several summed up."""
RELIABLE_TOKENS = 500
"""A smaller request consists mostly of tokens that the provider adds to every request."""

_CLIENT_CALLS = {"tool_call", "function_call", "custom_tool_call", "invalid_tool_call", "computer_call", "shell_call"}
_CLIENT_CALLS |= {"local_shell_call", "apply_patch_call"}
"""Calls that the application runs: its model is called once for each answer."""
_SERVER_BLOCKS = ("_call", "_tool_result", "_tool_use", "mcp_list_tools", "executable_code")
"""Ends of the types of blocks that tell of tools which the provider runs itself."""


def is_of_one_call(answer: BaseMessage) -> bool:
    """Tells if the usage of an answer can be that of its prompt alone.

    Where the provider itself has run tools (a search, code, an MCP server), the model was called several times. Where
    less was read than came from a cache, the cached part is not counted.
    """
    extra, metadata = answer.additional_kwargs, answer.response_metadata
    blocks = [block for block in (*blocks_of(answer), *(extra.get("tool_outputs") or ())) if isinstance(block, Mapping)]
    inner = [block["value"] for block in blocks if isinstance(block.get("value"), Mapping)]  # of `non_standard` ones
    types = {str(block.get("type", "")) for block in (*blocks, *inner)} - _CLIENT_CALLS
    reported = metadata.get("usage") or metadata.get("token_usage")
    ran = reported.get("server_tool_use") if isinstance(reported, Mapping) else None
    ran_tools = extra.get("executed_tools") or (isinstance(ran, Mapping) and any(ran.values()))
    if ran_tools or any(one.endswith(_SERVER_BLOCKS) for one in types):
        return False
    usage = getattr(answer, "usage_metadata", None) or {}
    return bool((usage.get("input_token_details") or {}).get("cache_read", 0) <= usage.get("input_tokens", 0))


@dataclass(frozen=True, slots=True)
class Calibration:
    """The factor between our counts and a provider's.

    It is the largest ratio of the last 16 requests of at least 500 tokens that is no accident, rounded up to a multiple
    of 0.05: not more than half above a ratio that a quarter of them, and at least two, reach. One observation alone
    doubles counts at most. The factor is at least 0.5, or 1 where our counts are exact; exact counts are an observation
    of their own.
    """

    exact: bool = False
    """True where our counts are those of the model's own tokenizer (`TokenCounter.mode`)."""
    requests: tuple[tuple[int, int], ...] = ()
    """The latest requests, oldest first: tokens as we count them, and as the provider did."""

    def observe(self, counted_tokens: int, measured_tokens: int) -> Calibration:
        """Returns the calibration after one more request."""
        if counted_tokens < RELIABLE_TOKENS or measured_tokens <= 0:
            return self
        return replace(self, requests=(*self.requests, (counted_tokens, measured_tokens))[-_OBSERVATIONS:])

    @property
    def factor(self) -> float:
        """The number that counts are multiplied by; 1.0 where nothing was observed."""
        lowest = _STEPS if self.exact else _LOWEST_STEPS
        ratios = [max(lowest, -(-measured * _STEPS // counted)) for counted, measured in self.requests]
        ratios += [_STEPS] if self.exact or not ratios else []
        if len(ratios) == 1:
            return min(ratios[0], _FIRST_STEPS) / _STEPS
        confirmed = sorted(ratios, reverse=True)[max(2, len(ratios) // _CONFIRMING_SHARE) - 1]
        return max(ratio for ratio in ratios if ratio <= max(_STEPS, confirmed * _BAND)) / _STEPS


class CalibratedCounter(TokenCounter):
    """Multiplies the counts of another counter by a factor, rounded up.

    Texts, messages, tools and response formats are corrected alike. Counts of texts add up: lines that begin with `-`,
    `[`, `#` or `<` cost together what they cost one by one.
    """

    def __init__(self, inner: TokenCounter, factor: float) -> None:
        """Correct a counter.

        Raises:
            InputError: the factor is not a number above 0.
        """
        super().__init__()
        if not 0 < factor < float("inf"):
            raise InputError(f"factor must be a number above 0, not {factor}; 1.0 corrects nothing")
        self.inner, self.factor = inner, factor
        self.name, self.mode, self.framing = inner.name, inner.mode, inner.framing
        self._ratio = Fraction(str(factor))  # as it is written: a float that is above 1.1 would make 11 of 10

    @property
    def identity(self) -> str:
        """Tells its counts from those of others, also after a restart."""
        return f"{self.inner.identity} x {self.factor}"

    @property
    def calls(self) -> int:
        """Texts that the other counter has tokenized."""
        return self.inner.calls

    def count_message(self, message: BaseMessage) -> int:
        """Returns the tokens of a message with its framing, without the priming of the reply."""
        tokens = self.inner.count_message(message)
        texts = [text for block in blocks_of(message) if (text := text_of(block)) is not None]
        rest = tokens - sum(map(self.inner.count_text, texts))
        # In parts, so that what is written in a message adds up; whole, where the other counter's parts do not.
        return max(self._corrected(tokens), self._corrected(rest) + sum(map(self.count_text, texts)))

    def count_messages(self, messages: Sequence[BaseMessage]) -> int:
        """Returns the tokens of a request with these messages, the priming of the reply included."""
        return sum(map(self.count_message, messages)) + self._corrected(self.inner.count_messages([]))

    def count_tools(self, tools: Sequence[Any]) -> int:
        """Returns the tokens of tool schemas as they are sent; 0 for none."""
        return self._corrected(self.inner.count_tools(tools))

    def count_response_format(self, response_format: Any) -> int:  # noqa: ANN401 - schemas come in any type
        """Returns the tokens of a response format as it is sent; 0 for None."""
        return self._corrected(self.inner.count_response_format(response_format))

    def _count(self, text: str) -> int:
        return sum(self._corrected(self.inner.count_text(piece)) for piece in text_pieces(text))

    def _corrected(self, tokens: int) -> int:
        return ceil(tokens * self._ratio)
