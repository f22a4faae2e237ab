"""How far a model's tokenizer is from ours, by what its provider measured.

The ratio of the `input_tokens` of a usage to our own count corrects what is counted next.
"""

from dataclasses import dataclass, replace

from langchain_core.messages import BaseMessage

from langchain_ctxbudget.content import parts_of

STEPS_OF_ONE = 20
"""The factor is a multiple of 1/20, so that the counts, and with them the prompt, stay the same
most of the time."""
_LOWEST_STEPS = STEPS_OF_ONE // 2
_FIRST_STEPS = 2 * STEPS_OF_ONE
"""The largest factor that follows from one observation."""
_OBSERVATIONS = 16
_CONFIRMING_SHARE = 4
"""One observation in so many, and at least a second one, makes a ratio more than an accident."""
_BAND = 1.5
"""A usage further above a confirmed ratio is not that of one call, but of several summed up."""
RELIABLE_TOKENS = 500
"""A smaller request consists mostly of tokens that the provider adds to every request."""


def is_of_one_call(answer: BaseMessage) -> bool:
    """Tells whether the usage of an answer covers its prompt alone.

    It does not if the provider ran tools in between.
    """
    if any(part.is_run_by_provider for part in parts_of(answer)):
        return False
    # Some providers do not count as input what came from a cache.
    usage = getattr(answer, "usage_metadata", None) or {}
    details = usage.get("input_token_details") or {}
    return bool(details.get("cache_read", 0) <= usage.get("input_tokens", 0))


@dataclass(frozen=True, slots=True)
class Calibration:
    """The factor between our counts and a provider's: at least 0.5, or 1 where ours are exact.

    It is the largest ratio of the last 16 requests, rounded up to a multiple of 0.05, that is not
    more than half above one that a quarter of them, and at least two, reach. Exact counts are an
    observation of their own.
    """

    exact: bool = False
    """True where our counts are those of the model's own tokenizer (`TokenCounter.mode`)."""
    requests: tuple[tuple[int, int], ...] = ()
    """The latest requests, oldest first: tokens as we count them, and as the provider did."""

    def observe(self, counted_tokens: int, measured_tokens: int) -> "Calibration":
        """Returns the calibration after one more request."""
        if counted_tokens < RELIABLE_TOKENS or measured_tokens <= 0:
            return self
        requests = (*self.requests, (counted_tokens, measured_tokens))
        return replace(self, requests=requests[-_OBSERVATIONS:])

    @property
    def factor(self) -> float:
        """The number that counts are multiplied by; 1.0 where nothing was observed."""
        ratios = self._ratios()
        if len(ratios) == 1:
            return min(ratios[0], _FIRST_STEPS) / STEPS_OF_ONE
        confirming = max(2, len(ratios) // _CONFIRMING_SHARE)
        confirmed = sorted(ratios, reverse=True)[confirming - 1]
        highest = max(STEPS_OF_ONE, confirmed * _BAND)
        return max(ratio for ratio in ratios if ratio <= highest) / STEPS_OF_ONE

    def _ratios(self) -> list[int]:
        """Returns the ratios of the requests in twentieths, rounded up; at least one."""
        lowest = STEPS_OF_ONE if self.exact else _LOWEST_STEPS
        ratios = []
        for counted, measured in self.requests:
            rounded_up = -(-measured * STEPS_OF_ONE // counted)
            ratios.append(max(lowest, rounded_up))
        if self.exact or not ratios:
            ratios.append(STEPS_OF_ONE)
        return ratios
