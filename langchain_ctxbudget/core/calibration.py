"""Counts that are corrected by what a provider measured.

A provider reports how many tokens a request had (`usage_metadata["input_tokens"]`). Their ratio to our own count says
how far the tokenizer of the model is from ours, and by how much to correct what is counted next.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil
from typing import Any, NamedTuple

from langchain_core.messages import BaseMessage

from langchain_ctxbudget.core.estimate import text_pieces
from langchain_ctxbudget.core.tokens import TokenCounter
from langchain_ctxbudget.errors import InputError

_STEPS = 20
"""The factor is a multiple of 0.05, so that the counts, and with them the prompt, stay the same most of the time."""
_LOWEST_STEPS = 10
_OBSERVATIONS = 16
"""How many of the latest observations count, of small requests and of others."""
RELIABLE_TOKENS = 500
"""What a provider adds to every request is most of a smaller one."""
_REQUEST_STEP_TOKENS = 16


class Observation(NamedTuple):
    """One request, as we count it and as the provider did."""

    estimated_tokens: int
    measured_tokens: int

    @property
    def steps(self) -> int:
        """Their ratio in multiples of 0.05, rounded up."""
        return -(-self.measured_tokens * _STEPS // self.estimated_tokens)


@dataclass(frozen=True, slots=True)
class Calibration:
    """The difference between our counts and those of a provider: a factor, and what it adds to every request.

    The factor is the largest ratio of the last 16 requests of at least 500 tokens, rounded up to a multiple of 0.05.
    What smaller ones were measured to have beyond that is taken for a fixed part of a request (a hidden system prompt,
    say), as a ratio of theirs would blow up the counts of every other. So a request that was observed is, corrected,
    never counted below what was measured. The factor is at least 0.5, or 1 where our counts are exact: what a provider
    adds unseen is then corrected, but what it leaves out is not.

    Example:
        >>> calibration = Calibration().observe(estimated_tokens=1_000, measured_tokens=1_130)
        >>> calibration.factor
        1.15
        >>> calibration.observe(estimated_tokens=1_000, measured_tokens=900).factor
        1.15
    """

    exact: bool = False
    """Whether our counts are those of the model's own tokenizer (`TokenCounter.mode`)."""
    requests: tuple[Observation, ...] = ()
    """The latest requests of at least 500 tokens, oldest first."""
    small_requests: tuple[Observation, ...] = ()
    """The latest smaller ones."""

    def observe(self, estimated_tokens: int, measured_tokens: int) -> Calibration:
        """The calibration after one more request.

        Args:
            estimated_tokens: what we count for the request, without any correction.
            measured_tokens: what the provider counted for it; 0 is no measurement.
        """
        if estimated_tokens <= 0 or measured_tokens <= 0:
            return self
        seen = Observation(estimated_tokens, measured_tokens)
        if estimated_tokens < RELIABLE_TOKENS:
            return replace(self, small_requests=(*self.small_requests, seen)[-_OBSERVATIONS:])
        return replace(self, requests=(*self.requests, seen)[-_OBSERVATIONS:])

    @property
    def factor(self) -> float:
        """By what counts are multiplied; 1.0 where nothing was observed."""
        return self._factor_steps / _STEPS

    @property
    def request_tokens(self) -> int:
        """What is added to every request, in tokens: a multiple of 16."""
        beyond = (
            seen.measured_tokens - ceil(Fraction(seen.estimated_tokens * self._factor_steps, _STEPS))
            for seen in self.small_requests
        )
        return ceil(max(0, *beyond, 0) / _REQUEST_STEP_TOKENS) * _REQUEST_STEP_TOKENS

    @property
    def _factor_steps(self) -> int:
        lowest = _STEPS if self.exact else _LOWEST_STEPS
        if not self.requests:
            return _STEPS
        return max(lowest, *(seen.steps for seen in self.requests))


class CalibratedCounter(TokenCounter):
    """The counts of another counter times a factor, rounded up.

    Texts, messages, tools and response formats are corrected alike. The other counter counts and caches. Counts of
    texts add up: lines that begin with `-`, `[`, `#` or `<` cost together what they cost one by one.

    Example:
        >>> from langchain_ctxbudget import TiktokenCounter
        >>> CalibratedCounter(TiktokenCounter(), 1.5).count_text("Hello, world!")
        6
    """

    def __init__(self, inner: TokenCounter, factor: float, request_tokens: int = 0) -> None:
        """Correct a counter.

        Args:
            inner: what counts.
            factor: by what its counts are multiplied, above 0; usually `Calibration.factor`.
            request_tokens: what is added to every request; usually `Calibration.request_tokens`.

        Raises:
            InputError: the factor is not a number above 0.
        """
        super().__init__()
        if not 0 < factor < float("inf"):
            raise InputError(f"factor must be a number above 0, not {factor}; 1.0 corrects nothing")
        self.inner = inner
        self.factor = factor
        self.request_tokens = request_tokens
        self.name = inner.name
        self.mode = inner.mode
        self.framing = inner.framing
        self._ratio = Fraction(str(factor))  # as it is written: a float that is above 1.1 would make 11 of 10

    @property
    def calls(self) -> int:
        """Those of the other counter."""
        return self.inner.calls

    def from_memory(self) -> CalibratedCounter:
        """A counter with the same correction that never tokenizes."""
        return CalibratedCounter(self.inner.from_memory(), self.factor, self.request_tokens)

    def count_message(self, message: BaseMessage) -> int:
        """Tokens of a message with its framing, without the priming of the reply."""
        tokens = self.inner.count_message(message)
        texts = _texts(message)
        rest = tokens - sum(map(self.inner.count_text, texts))
        # In parts, so that what is written in a message adds up; whole, where the other counter's parts do not.
        return max(self._corrected(tokens), self._corrected(rest) + sum(map(self.count_text, texts)))

    def count_messages(self, messages: Sequence[BaseMessage]) -> int:
        """Tokens of a request with these messages, the priming of the reply included."""
        every = self._corrected(self.inner.count_messages([])) + self.request_tokens
        return sum(map(self.count_message, messages)) + every

    def count_tools(self, tools: Sequence[Any]) -> int:
        """Tokens of tool schemas as they are sent; 0 for none."""
        return self._corrected(self.inner.count_tools(tools))

    def count_response_format(self, response_format: Any) -> int:  # noqa: ANN401 - schemas come in any type
        """Tokens of a response format as it is sent; 0 for None."""
        return self._corrected(self.inner.count_response_format(response_format))

    def _count(self, text: str) -> int:
        return sum(self._corrected(self.inner.count_text(piece)) for piece in text_pieces(text))

    def _corrected(self, tokens: int) -> int:
        return ceil(tokens * self._ratio)


def _texts(message: BaseMessage) -> list[str]:
    """What is written in the content of a message."""
    blocks = [message.content] if isinstance(message.content, str) else message.content
    return [text for text in map(_text, blocks) if isinstance(text, str)]


def _text(block: str | Mapping[str, Any]) -> Any:  # noqa: ANN401 - a block can hold anything
    if isinstance(block, str):
        return block
    return block.get("text") if block.get("type") == "text" else None
