"""Counts that are corrected by what a provider measured.

A provider reports how many tokens a request had (`usage_metadata["input_tokens"]`). Their ratio to our own count says
how far the tokenizer of the model is from ours, and by how much to correct what is counted next.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil
from typing import Any

from langchain_core.messages import BaseMessage

from langchain_ctxbudget.core.estimate import text_pieces
from langchain_ctxbudget.core.tokens import TokenCounter
from langchain_ctxbudget.errors import InputError

_STEPS = 20
"""The factor is a multiple of 0.05, so that the counts, and with them the prompt, stay the same most of the time."""
_LOWEST_STEPS = 10
_OBSERVATIONS = 16
"""How many of the latest observations count."""
_RELIABLE_TOKENS = 200
"""What a provider adds to every request is most of a smaller one."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """The factor between our counts and those of a provider.

    It is the largest ratio of the last 16 observations, rounded up to a multiple of 0.05: a request that was observed
    among them is, corrected, never counted below what was measured. It is at least 0.5, or 1 where our counts are
    exact (what a provider adds unseen is then corrected, but what it leaves out is not); both raise counts only. There
    is no upper bound, as one would bring counts below what was measured. Requests of fewer than 200 tokens raise the
    factor, but never lower it.

    Example:
        >>> calibration = Calibration().observe(estimated_tokens=1_000, measured_tokens=1_130)
        >>> calibration.factor
        1.15
        >>> calibration.observe(estimated_tokens=1_000, measured_tokens=900).factor
        1.15
    """

    exact: bool = False
    """Whether our counts are those of the model's own tokenizer (`TokenCounter.mode`)."""
    ratios: tuple[int, ...] = ()
    """The latest observations, oldest first, as multiples of 0.05 that are not below what was measured."""

    def observe(self, estimated_tokens: int, measured_tokens: int) -> Calibration:
        """The calibration after one more request.

        Args:
            estimated_tokens: what we count for the request, without any correction.
            measured_tokens: what the provider counted for it; 0 is no measurement.
        """
        if estimated_tokens <= 0 or measured_tokens <= 0:
            return self
        steps = -(-measured_tokens * _STEPS // estimated_tokens)
        if estimated_tokens < _RELIABLE_TOKENS and steps <= self._steps:
            return self
        return replace(self, ratios=(*self.ratios, steps)[-_OBSERVATIONS:])

    @property
    def factor(self) -> float:
        """By what counts are multiplied; 1.0 where nothing was observed."""
        return self._steps / _STEPS

    @property
    def _steps(self) -> int:
        return max(_STEPS if self.exact else _LOWEST_STEPS, max(self.ratios, default=_STEPS))


class CalibratedCounter(TokenCounter):
    """The counts of another counter times a factor, rounded up.

    Texts, messages, tools and response formats are corrected alike. The other counter counts and caches. Counts of
    texts add up: lines that begin with `-`, `[`, `#` or `<` cost together what they cost one by one.

    Example:
        >>> from langchain_ctxbudget import TiktokenCounter
        >>> CalibratedCounter(TiktokenCounter(), 1.5).count_text("Hello, world!")
        6
    """

    def __init__(self, inner: TokenCounter, factor: float) -> None:
        """Correct a counter.

        Args:
            inner: what counts.
            factor: by what its counts are multiplied, above 0; usually `Calibration.factor`.

        Raises:
            InputError: the factor is not a number above 0.
        """
        super().__init__()
        if not 0 < factor < float("inf"):
            raise InputError(f"factor must be a number above 0, not {factor}; 1.0 corrects nothing")
        self.inner = inner
        self.factor = factor
        self.name = inner.name
        self.mode = inner.mode
        self.framing = inner.framing
        self._ratio = Fraction(str(factor))  # as it is written: a float that is above 1.1 would make 11 of 10

    @property
    def calls(self) -> int:
        """Those of the other counter."""
        return self.inner.calls

    def count_message(self, message: BaseMessage) -> int:
        """Tokens of a message with its framing, without the priming of the reply."""
        tokens = self.inner.count_message(message)
        texts = _texts(message)
        rest = tokens - sum(map(self.inner.count_text, texts))
        # In parts, so that what is written in a message adds up; whole, where the other counter's parts do not.
        return max(self._corrected(tokens), self._corrected(rest) + sum(map(self.count_text, texts)))

    def count_messages(self, messages: Sequence[BaseMessage]) -> int:
        """Tokens of a request with these messages, the priming of the reply included."""
        return sum(map(self.count_message, messages)) + self._corrected(self.inner.count_messages([]))

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
