"""Counts that are corrected by what a provider measured.

A provider reports how many tokens a request had (`usage_metadata["input_tokens"]`). Their ratio to our own count tells
how far the model's tokenizer is from ours, and corrects what is counted next.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil
from typing import Any, NamedTuple

from langchain_core.messages import BaseMessage

from langchain_ctxbudget.errors import InputError
from langchain_ctxbudget.tokens.counters import TokenCounter
from langchain_ctxbudget.tokens.estimate import text_pieces

_STEPS = 20
"""The factor is a multiple of 0.05, so that the counts, and with them the prompt, stay the same most of the time."""
_LOWEST_STEPS = 10
_OBSERVATIONS = 16
"""The number of the latest observations that count, of small requests and of others."""
_CONFIRMING_SHARE = 4
"""One observation in so many, and at least a second one, makes a ratio more than an accident."""
_BAND = 1.5
"""A usage further above a confirmed ratio is not that of one call, but of several summed up."""
_FIRST_STEPS = 2 * _STEPS
"""The largest factor that follows from one observation."""
_SMALL_BAND_TOKENS = 64
RELIABLE_TOKENS = 500
"""A smaller request consists mostly of tokens that the provider adds to every request."""
_REQUEST_STEP_TOKENS = 16

_CLIENT_CALLS = frozenset(
    {"tool_call", "function_call", "custom_tool_call", "computer_call", "local_shell_call", "shell_call"}
    | {"apply_patch_call", "invalid_tool_call"}
)
"""Calls that the application runs: its model is called once for each answer."""
_SERVER_BLOCKS = ("_call", "_tool_result", "_tool_use", "server_tool_result", "mcp_list_tools", "executable_code")
"""Ends of the types of blocks that tell of tools which the provider runs itself."""


def is_of_one_call(answer: BaseMessage) -> bool:
    """Tells if the usage of an answer can be that of its prompt alone.

    Where the provider itself has run tools (a search, code, an MCP server), the model was called several times. Where
    less was read than came from a cache, the cached part is not counted.
    """
    outputs = answer.additional_kwargs.get("tool_outputs")
    blocks = [*(answer.content if isinstance(answer.content, list) else ()), *(outputs or ())]
    blocks += [block.get("value") for block in blocks if isinstance(block, Mapping)]  # of a `non_standard` one
    types = {str(block.get("type", "")) for block in blocks if isinstance(block, Mapping)} - _CLIENT_CALLS
    if answer.additional_kwargs.get("executed_tools") or any(one.endswith(_SERVER_BLOCKS) for one in types):
        return False
    reported = answer.response_metadata.get("usage") or answer.response_metadata.get("token_usage")
    used = reported.get("server_tool_use") if isinstance(reported, Mapping) else None
    if isinstance(used, Mapping) and any(used.values()):
        return False
    usage = getattr(answer, "usage_metadata", None) or {}
    return bool((usage.get("input_token_details") or {}).get("cache_read", 0) <= usage.get("input_tokens", 0))


class Observation(NamedTuple):
    """One request, as we count it and as the provider did."""

    estimated_tokens: int
    measured_tokens: int


@dataclass(frozen=True, slots=True)
class Calibration:
    """The difference between our counts and a provider's: a factor, and tokens that it adds to every request.

    The factor is the largest ratio of the last 16 requests of at least 500 tokens that is no accident, rounded up to a
    multiple of 0.05: not more than half above a ratio that a quarter of them, and at least two, reach. One observation
    alone doubles counts at most. The factor is at least 0.5, or 1 where our counts are exact; exact counts are an
    observation of their own. Smaller requests tell the fixed part (a hidden system prompt, say) instead.

    Example:
        >>> calibration = Calibration().observe(estimated_tokens=1_000, measured_tokens=1_130)
        >>> calibration.factor
        1.15
        >>> calibration.observe(estimated_tokens=1_000, measured_tokens=900).factor
        1.15
    """

    exact: bool = False
    """True where our counts are those of the model's own tokenizer (`TokenCounter.mode`)."""
    requests: tuple[Observation, ...] = ()
    """The latest requests of at least 500 tokens, oldest first."""
    small_requests: tuple[Observation, ...] = ()
    """The latest smaller ones."""

    def observe(self, estimated_tokens: int, measured_tokens: int) -> Calibration:
        """Returns the calibration after one more request.

        Args:
            estimated_tokens: our count of the request, without any correction.
            measured_tokens: the provider's; 0 is no measurement.
        """
        if estimated_tokens <= 0 or measured_tokens <= 0:
            return self
        seen = Observation(estimated_tokens, measured_tokens)
        if estimated_tokens < RELIABLE_TOKENS:
            return replace(self, small_requests=(*self.small_requests, seen)[-_OBSERVATIONS:])
        return replace(self, requests=(*self.requests, seen)[-_OBSERVATIONS:])

    @property
    def factor(self) -> float:
        """The number that counts are multiplied by; 1.0 where nothing was observed."""
        return self._factor_steps / _STEPS

    @property
    def request_tokens(self) -> int:
        """The tokens that are added to every request: a multiple of 16."""
        factor = Fraction(self._factor_steps, _STEPS)
        beyond = [max(0, measured - ceil(counted * factor)) for counted, measured in self.small_requests]
        most = _believed([0, *beyond] if self.exact else beyond, _SMALL_BAND_TOKENS)
        return ceil(most / _REQUEST_STEP_TOKENS) * _REQUEST_STEP_TOKENS

    @property
    def _factor_steps(self) -> int:
        if not self.requests:
            return _STEPS
        lowest = _STEPS if self.exact else _LOWEST_STEPS
        ratios = [max(lowest, -(-measured * _STEPS // counted)) for counted, measured in self.requests]
        if self.exact:
            ratios.append(_STEPS)
        return min(ratios[0], _FIRST_STEPS) if len(ratios) == 1 else _believed(ratios, 0, _STEPS)


def _believed(measured: Sequence[int], slack: int, always: int = 0) -> int:
    """Returns the largest measurement that is no accident; 0 of none.

    Args:
        measured: all measurements.
        slack: how far one may be above the band.
        always: up to this, a measurement is believed in any case.
    """
    if not measured:
        return 0
    confirming = min(len(measured), max(2, len(measured) // _CONFIRMING_SHARE))
    confirmed = sorted(measured, reverse=True)[confirming - 1]
    most = max(always, confirmed * _BAND + slack)
    return max(one for one in measured if one <= most)


class CalibratedCounter(TokenCounter):
    """Multiplies the counts of another counter by a factor, rounded up.

    Texts, messages, tools and response formats are corrected alike. Counts of texts add up: lines that begin with `-`,
    `[`, `#` or `<` cost together what they cost one by one.

    Example:
        >>> from langchain_ctxbudget import TiktokenCounter
        >>> CalibratedCounter(TiktokenCounter(), 1.5).count_text("Hello, world!")
        6
    """

    def __init__(self, inner: TokenCounter, factor: float, request_tokens: int = 0) -> None:
        """Correct a counter.

        Args:
            inner: counts and caches.
            factor: a number above 0; usually `Calibration.factor`.
            request_tokens: added to every request; usually `Calibration.request_tokens`.

        Raises:
            InputError: the factor is not a number above 0.
        """
        super().__init__()
        if not 0 < factor < float("inf"):
            raise InputError(f"factor must be a number above 0, not {factor}; 1.0 corrects nothing")
        self.inner = inner
        self.factor, self.request_tokens = factor, request_tokens
        self.name, self.mode, self.framing = inner.name, inner.mode, inner.framing
        self._ratio = Fraction(str(factor))  # as it is written: a float that is above 1.1 would make 11 of 10

    @property
    def calls(self) -> int:
        """Texts that the other counter has tokenized."""
        return self.inner.calls

    def count_message(self, message: BaseMessage) -> int:
        """Returns the tokens of a message with its framing, without the priming of the reply."""
        tokens = self.inner.count_message(message)
        texts = _texts(message)
        rest = tokens - sum(map(self.inner.count_text, texts))
        # In parts, so that what is written in a message adds up; whole, where the other counter's parts do not.
        return max(self._corrected(tokens), self._corrected(rest) + sum(map(self.count_text, texts)))

    def count_messages(self, messages: Sequence[BaseMessage]) -> int:
        """Returns the tokens of a request with these messages, the priming of the reply included."""
        every = self._corrected(self.inner.count_messages([])) + self.request_tokens
        return sum(map(self.count_message, messages)) + every

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


def _texts(message: BaseMessage) -> list[str]:
    """Returns the texts in the content of a message."""
    if isinstance(message.content, str):
        return [message.content]
    texts = (
        block if isinstance(block, str) else block.get("text") if block.get("type") == "text" else None
        for block in message.content
    )
    return [text for text in texts if isinstance(text, str)]
