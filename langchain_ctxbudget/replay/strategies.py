"""The strategies of a replay by name: the package with some settings, a window of recent messages, all of them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from types import TracebackType
from typing import Any, NamedTuple, TypeAlias

from langchain_core.embeddings import Embeddings
from langchain_core.messages import BaseMessage, SystemMessage, trim_messages
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget.budget import STRATEGIES, strategy_of
from langchain_ctxbudget.budget.tiers import THRESHOLDS, TIERS
from langchain_ctxbudget.errors import InvalidSettingsError
from langchain_ctxbudget.pipeline.pipeline import ContextPipeline
from langchain_ctxbudget.report.report import CoverageState
from langchain_ctxbudget.settings import ContextSettings
from langchain_ctxbudget.tokens.counters import counter_for

Strategy: TypeAlias = str | Mapping[str, Any]
"""A name, or settings; see `replay`."""

RECENCY, FULL = "recency", "full"
EMPHASES = ("recall", "cache")
TIER_LEFT: dict[str, float] = {
    tier.name: sum(bounds) / 2 for tier, bounds in zip(TIERS[1:], pairwise((*THRESHOLDS, 0.0)), strict=True)
}
"""The share of a limit that is left in the middle of each tier but the first."""
NAMES = (*STRATEGIES, *EMPHASES, RECENCY, FULL, *TIER_LEFT)
ALLOWED_TOKENS = 1_000_000
"""The usage limit of which a tier's share is left."""
SCOPE: Any = {"user_id": "replay", "conversation_id": "replay"}


class Prompt(NamedTuple):
    """One prompt, and the states of the messages before its turn."""

    messages: Sequence[BaseMessage]
    states: Mapping[CoverageState, int]
    compaction_step: bool


@dataclass(frozen=True, slots=True)
class Options:
    """The options that all strategies have in common; see `replay`."""

    system_prompt: str
    tools: Sequence[Any] = ()
    model: str | None = None
    settings: ContextSettings | Mapping[str, Any] | None = None
    embeddings: Embeddings | None = None


class Assembled(AbstractContextManager["Assembled"]):
    """The package, as an application uses it.

    The clock stands at the time of the last message that tells its time, so that equal replays are equal.
    """

    def __init__(self, name: str, settings: ContextSettings, options: Options, left: float | None) -> None:
        """Begins a conversation, with a share of a usage limit left all the time, or no limit."""
        self.name = name
        self.budget: int | None = settings.max_context_tokens
        self.tools = options.tools
        self.time = datetime(2000, 1, 1, tzinfo=UTC)
        self.pipeline = ContextPipeline(
            settings,
            system_prompt=options.system_prompt,
            model=options.model,
            store=InMemoryStore(),
            embeddings=options.embeddings,
            writer_id="replay",
            clock=lambda: self.time,
        )
        if left is not None:
            used = round(ALLOWED_TOKENS * (1 - left))
            usage = {"input_tokens": used, "output_tokens": 0, "total_tokens": used}
            self.pipeline.usage.record(usage, **SCOPE)

    def prompt(self, turn: Sequence[BaseMessage]) -> Prompt:
        """Assembles the prompt for the turn so far.

        Raises:
            BudgetError: it cannot be brought within the budget.
            EmptyMessageError: there is nothing to answer.
        """
        self._pass_by(turn[0])
        context = self.pipeline.assemble(turn, tools=self.tools, **SCOPE)
        return Prompt(context.messages, context.report.coverage_counts(), context.report.stability.compaction_step)

    def keep(self, turn: Sequence[BaseMessage]) -> None:
        """Stores a finished turn, and learns from it where that is asked."""
        for message in turn:
            self._pass_by(message)
        self.pipeline.add_messages(turn, **SCOPE)
        if self.pipeline.settings.learn:
            self.pipeline.flush()  # or what is learned by the next turn is a matter of luck

    def _pass_by(self, message: BaseMessage) -> None:
        try:
            said = datetime.fromisoformat(str(message.additional_kwargs.get("created_at")))
        except ValueError:
            return
        self.time = max(self.time, said if said.tzinfo else said.replace(tzinfo=UTC))

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        """Closes the pipeline."""
        self.pipeline.close()


class Window(AbstractContextManager["Window"]):
    """The newest messages that fit, as LangChain's `trim_messages` gives them with an exact counter; or all of them."""

    def __init__(self, name: str, budget: int | None, options: Options) -> None:
        """Begins a conversation; without a budget everything is sent."""
        self.name = name
        self.budget = budget
        self.system = [SystemMessage(options.system_prompt)] if options.system_prompt else []
        self.history: list[BaseMessage] = []
        self.counter = counter_for(options.model)
        self.tools_tokens = self.counter.count_tools(options.tools)

    def prompt(self, turn: Sequence[BaseMessage]) -> Prompt:
        """Returns as much as fits of everything so far."""
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
        return Prompt(messages, {"verbatim": shown, "omitted": len(self.history) - shown}, compaction_step=False)

    def keep(self, turn: Sequence[BaseMessage]) -> None:
        """Keeps a finished turn in memory."""
        self.history += turn

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        """Holds nothing to give back."""


def contender(strategy: Strategy, budget: int, options: Options) -> Assembled | Window:
    """Returns the maker of a strategy's prompts.

    Raises:
        InvalidSettingsError: there is no such strategy, or one of its parameters or settings is none.
    """
    if isinstance(strategy, Mapping):
        base, name, own = "", _label(strategy), {"allocation": strategy} if "strategy" in strategy else strategy
    else:
        base, at, other = strategy.strip().partition("@")
        if at:
            if not (other.isascii() and other.isdecimal()) or not int(other):
                raise InvalidSettingsError(
                    f"{strategy!r}: a number of tokens above 0 stands behind the @, not {other!r}"
                )
            budget = int(other)
        name = f"{base}@{budget}" if at else base
        if base in (RECENCY, FULL):
            return Window(name, budget if base == RECENCY else None, options)
        own = _named(base)
    settings = ContextSettings(learn=False).override(options.settings).override({"max_context_tokens": budget, **own})
    return Assembled(name, settings, options, TIER_LEFT.get(base))


def _named(name: str) -> Mapping[str, Any]:
    if name in EMPHASES:
        return {"emphasis": name}
    if name in TIER_LEFT:
        return {"usage_limits": {"session_tokens": ALLOWED_TOKENS}}
    if name in STRATEGIES:
        return {"allocation": name}
    raise InvalidSettingsError(
        f"There is no strategy {name!r} to replay; there are {', '.join(NAMES)}, each also with another budget "
        f"(recency@4000), and settings as JSON"
    )


def _label(settings: Mapping[str, Any]) -> str:
    if "strategy" in settings:
        return strategy_of(settings).name
    said = (f"{key}={value if isinstance(value, str) else json.dumps(value)}" for key, value in settings.items())
    return ", ".join(said) or "elastic"
