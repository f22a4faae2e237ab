"""What can be replayed, by name: the package with some settings, a window of recent messages, the whole history."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from types import TracebackType
from typing import Any, NamedTuple, Self, TypeAlias

from langchain_core.embeddings import Embeddings
from langchain_core.messages import BaseMessage, SystemMessage, trim_messages
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget.core.allocation.catalogue import STRATEGIES, strategy_of
from langchain_ctxbudget.core.report import CoverageState
from langchain_ctxbudget.core.tiers import THRESHOLDS, TIERS
from langchain_ctxbudget.core.tokens import counter_for
from langchain_ctxbudget.errors import InvalidSettingsError
from langchain_ctxbudget.pipeline import ContextPipeline
from langchain_ctxbudget.settings import ContextSettings

Strategy: TypeAlias = str | Mapping[str, Any]
"""A name, or settings; see `replay`."""

RECENCY, FULL = "recency", "full"
EMPHASES = ("recall", "cache")
_BOUNDS = (1.0, *THRESHOLDS, 0.0)
TIER_LEFT: dict[str, float] = {
    tier.name: sum(bounds) / 2 for tier, bounds in zip(TIERS[1:], list(pairwise(_BOUNDS))[1:], strict=True)
}
"""What is left of a limit in the middle of each tier but the first, as a share."""
NAMES = (*STRATEGIES, *EMPHASES, RECENCY, FULL, *TIER_LEFT)
ALLOWED_TOKENS = 1_000_000
"""The usage limit of which a tier's share is left."""
SCOPE: Any = {"user_id": "replay", "conversation_id": "replay"}
LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)
"""The time where messages do not tell theirs: any, but always the same."""


class Told(NamedTuple):
    """One prompt."""

    messages: Sequence[BaseMessage]
    states: Mapping[CoverageState, int]
    """What became of the messages before the turn."""
    compaction_step: bool


class Contender(ABC):
    """Makes the prompts of one conversation."""

    def __init__(self, name: str, budget: int | None) -> None:
        self.name = name
        self.budget = budget

    @abstractmethod
    def prompt(self, turn: Sequence[BaseMessage]) -> Told:
        """The prompt for the turn so far.

        Raises:
            BudgetError: it cannot be brought within the budget.
            EmptyMessageError: there is nothing to answer.
        """

    @abstractmethod
    def keep(self, turn: Sequence[BaseMessage]) -> None:
        """Take a finished turn into the history."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        """Give back what it holds."""
        self.close()

    def close(self) -> None:  # noqa: B027 - most hold nothing
        """Give back what it holds."""


@dataclass(frozen=True, slots=True)
class Options:
    """What all strategies have in common; see `replay`."""

    system_prompt: str
    tools: Sequence[Any] = ()
    model: str | None = None
    settings: ContextSettings | Mapping[str, Any] | None = None
    embeddings: Embeddings | None = None


def contender(strategy: Strategy, budget: int, options: Options) -> Contender:
    """What replays a strategy.

    Raises:
        InvalidSettingsError: there is no such strategy, or one of its parameters or settings is none.
    """
    if isinstance(strategy, str):
        base, at, other = strategy.strip().partition("@")
        budget = _budget(other, strategy) if at else budget
        name = f"{base}@{budget}" if at else base
    else:
        base, name = "", _label(strategy)
    if base in (RECENCY, FULL):
        return Window(name, budget if base == RECENCY else None, options)
    own = {"max_context_tokens": budget, **_settings(base or strategy)}
    pipeline = ContextPipeline(
        ContextSettings(learn=False).override(options.settings).override(own),
        system_prompt=options.system_prompt,
        model=options.model,
        store=InMemoryStore(),
        embeddings=options.embeddings,
        writer_id="replay",
        clock=(clock := Clock()).now,
    )
    return Assembled(name, pipeline, clock, tools=options.tools, left=TIER_LEFT.get(base))


def _settings(strategy: Strategy) -> Mapping[str, Any]:
    """The settings of a strategy of the package.

    Raises:
        InvalidSettingsError: there is no such strategy.
    """
    if isinstance(strategy, Mapping):
        return {"allocation": strategy} if "strategy" in strategy else strategy
    if strategy in EMPHASES:
        return {"emphasis": strategy}
    if strategy in TIER_LEFT:
        return {"usage_limits": {"session_tokens": ALLOWED_TOKENS}}
    if strategy in STRATEGIES:
        return {"allocation": strategy}
    raise InvalidSettingsError(
        f"There is no strategy {strategy!r} to replay; there are {', '.join(NAMES)}, each also with another budget "
        f"(recency@4000), and settings as JSON"
    )


def _label(strategy: Mapping[str, Any]) -> str:
    """What settings are called."""
    if "strategy" in strategy:
        return strategy_of(strategy).name
    said = (f"{key}={value if isinstance(value, str) else json.dumps(value)}" for key, value in strategy.items())
    return ", ".join(said) or "elastic"


def _budget(text: str, strategy: str) -> int:
    if not (text.isascii() and text.isdecimal()) or not int(text):
        raise InvalidSettingsError(f"{strategy!r}: a number of tokens above 0 stands behind the @, not {text!r}")
    return int(text)


class Clock:
    """Stands at the time of the last message that tells its time."""

    def __init__(self) -> None:
        self.time = LONG_AGO

    def now(self) -> datetime:
        """The time."""
        return self.time

    def pass_by(self, message: BaseMessage) -> None:
        """Go on to when a message was said."""
        try:
            said = datetime.fromisoformat(str(message.additional_kwargs.get("created_at")))
        except ValueError:
            return
        self.time = max(self.time, said if said.tzinfo else said.replace(tzinfo=UTC))


class Assembled(Contender):
    """The package, as an application uses it."""

    def __init__(
        self, name: str, pipeline: ContextPipeline, clock: Clock, *, tools: Sequence[Any], left: float | None
    ) -> None:
        """Begin a conversation.

        Args:
            name: what the strategy is called.
            pipeline: with its settings, and an empty store of its own.
            clock: the pipeline's.
            tools: sent with every prompt.
            left: the share of a usage limit that is left all the time; None: there is none.
        """
        super().__init__(name, pipeline.settings.max_context_tokens)
        self.pipeline = pipeline
        self.clock = clock
        self.tools = tools
        if left is not None:
            used = round(ALLOWED_TOKENS * (1 - left))
            usage = {"input_tokens": used, "output_tokens": 0, "total_tokens": used}
            pipeline.usage.record(usage, **SCOPE)

    def prompt(self, turn: Sequence[BaseMessage]) -> Told:
        """The prompt that `assemble` makes."""
        self.clock.pass_by(turn[0])
        context = self.pipeline.assemble(turn, tools=self.tools, **SCOPE)
        report = context.report
        return Told(context.messages, report.coverage_counts(), report.stability.compaction_step)

    def keep(self, turn: Sequence[BaseMessage]) -> None:
        """Store it, and learn from it where that is asked."""
        for message in turn:
            self.clock.pass_by(message)
        self.pipeline.add_messages(turn, **SCOPE)
        if self.pipeline.settings.learn:
            self.pipeline.flush()  # or what is learned by the next turn is a matter of luck

    def close(self) -> None:
        """Close the pipeline."""
        self.pipeline.close()


class Window(Contender):
    """The newest messages that fit, as LangChain's `trim_messages` gives them with an exact counter; or all of them."""

    def __init__(self, name: str, budget: int | None, options: Options) -> None:
        super().__init__(name, budget)
        self.system = [SystemMessage(options.system_prompt)] if options.system_prompt else []
        self.history: list[BaseMessage] = []
        self.counter = counter_for(options.model)
        self.tools_tokens = self.counter.count_tools(options.tools)

    def prompt(self, turn: Sequence[BaseMessage]) -> Told:
        """What fits of everything so far."""
        messages: list[BaseMessage] = [*self.system, *self.history, *turn]
        if self.budget is not None:
            messages = trim_messages(
                messages,
                max_tokens=max(0, self.budget - self.tools_tokens),
                token_counter=self.counter.count_messages,
                strategy="last",
                start_on="human",
                include_system=True,
            )
        shown = max(0, len(messages) - len(self.system) - len(turn))
        return Told(messages, {"verbatim": shown, "omitted": len(self.history) - shown}, compaction_step=False)

    def keep(self, turn: Sequence[BaseMessage]) -> None:
        """Keep it in memory."""
        self.history += turn
