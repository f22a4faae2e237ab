"""What a turn will cost, told before anything is sent."""

from dataclasses import dataclass

from langchain_ctxbudget.errors import checks_names
from langchain_ctxbudget.prompt import Prompt
from langchain_ctxbudget.report import Cause, Mode
from langchain_ctxbudget.tokens import Price


@checks_names()
@dataclass(frozen=True, slots=True, kw_only=True)
class CostForecast:
    """What the prompt of a turn will cost, as its report would tell it; nothing was sent.

    Costs in tokens are effective ones: tokens of input that no cache has to do with. A token that
    a cache holds costs what the provider charges for reading it, and a new one what it charges for
    writing it. Costs in US dollars are those of the prompt, without the answer; they are None where
    the price of the model is not known.

    Example:
        >>> from langchain_core.messages import AIMessage
        >>> from langchain_ctxbudget import ContextPipeline
        >>> chat = ContextPipeline(model="claude-opus-5").conversation("c1", user_id="ada")
        >>> context = chat.assemble("My bike is blue. " * 200)
        >>> ids = chat.add(context.turn, AIMessage("Noted!"))
        >>> forecast = chat.forecast("Which colour is it?")
        >>> print(forecast.mode, forecast.cause)
        extended has_room
        >>> forecast.effective_tokens < forecast.total_tokens < forecast.cold_effective_tokens
        True
    """

    total_tokens: int
    """The tokens of the prompt, with tools and response format."""
    cached_tokens: int
    """How many of them the provider's cache holds, as far as this process knows."""
    effective_tokens: int
    """What the prompt costs, in effective tokens."""
    dollars: float | None
    """The same in US dollars."""
    mode: Mode
    """What the prompt is, compared with the last one, as in `report.stability`."""
    cause: Cause | None
    """Why it has that mode, as in `report.stability`: for instance `cold`."""
    whole_effective_tokens: int
    """What sending everything that was said would cost, in effective tokens."""
    whole_dollars: float | None
    """The same in US dollars."""
    seconds_until_cold: float
    """For how many seconds the cache still holds the last prompt; 0 where none holds it."""
    cold_effective_tokens: int | None
    """What the turn costs once the cache has forgotten the last prompt, in effective tokens; None
    where the lifetime is too long for that."""
    cold_dollars: float | None
    """The same in US dollars."""

    @classmethod
    def of(cls, prompt: Prompt, cold: Prompt | None, price: Price | None) -> "CostForecast":
        """Tells what a prompt that nobody sends would cost.

        Args:
            prompt: the prompt, as it would be sent now.
            cold: the prompt of the same turn, once no cache holds the last one; None where that is
                never the case.
            price: that of the model; None where it is not known.
        """
        stability = prompt.context.report.stability
        cold_tokens = None
        if cold is not None:
            cold_tokens = cold.context.report.stability.effective_tokens
        return cls(
            total_tokens=prompt.context.report.total_tokens,
            cached_tokens=stability.cached_tokens,
            effective_tokens=stability.effective_tokens,
            dollars=_dollars(stability.effective_tokens, price),
            mode=prompt.plan.growth.mode,
            cause=prompt.plan.growth.cause,
            whole_effective_tokens=stability.whole_effective_tokens,
            whole_dollars=_dollars(stability.whole_effective_tokens, price),
            seconds_until_cold=prompt.plan.seconds_until_cold,
            cold_effective_tokens=cold_tokens,
            cold_dollars=_dollars(cold_tokens, price),
        )

    def __str__(self) -> str:
        """Says it in a line for a person."""
        cause = f" ({self.cause.meaning})" if self.cause else ""
        parts = [
            f"{self.mode}{cause}: {self.total_tokens:,} tokens, {self.cached_tokens:,} cached",
            f"paid for: {_cost(self.effective_tokens, self.dollars)}",
            f"sending everything: {_cost(self.whole_effective_tokens, self.whole_dollars)}",
        ]
        if self.seconds_until_cold and self.cold_effective_tokens is not None:
            when = f"cold in {self.seconds_until_cold:,.0f} seconds"
            parts.append(f"{when}, then {_cost(self.cold_effective_tokens, self.cold_dollars)}")
        return "; ".join(parts)


def _dollars(effective_tokens: int | None, price: Price | None) -> float | None:
    """Returns the price of effective tokens in US dollars; None where either is not known."""
    if effective_tokens is None or price is None:
        return None
    return effective_tokens * price.input / 1_000_000


def _cost(effective_tokens: int, dollars: float | None) -> str:
    """Returns a cost in words."""
    in_dollars = "" if dollars is None else f" (${dollars:.4f})"
    return f"{effective_tokens:,}{in_dollars}"
