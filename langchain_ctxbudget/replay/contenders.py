"""Who makes the prompts of a replay: this package, or what applications do without it."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol, TypeAlias, cast
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.embeddings import Embeddings
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import (
    BaseMessage,
    SystemMessage,
    convert_to_messages,
    trim_messages,
)
from langchain_core.outputs import LLMResult
from langchain_core.runnables import Runnable, RunnableLambda
from langgraph.graph.message import Messages, add_messages
from langgraph.runtime import Runtime
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget.budget import STRATEGIES, strategy_of
from langchain_ctxbudget.errors import InputError, InvalidSettingsError
from langchain_ctxbudget.installing import install_command
from langchain_ctxbudget.messages import time_of
from langchain_ctxbudget.pipeline import ContextPipeline
from langchain_ctxbudget.providers import CacheTerms, profile_of
from langchain_ctxbudget.report import CoverageState
from langchain_ctxbudget.settings import ContextSettings
from langchain_ctxbudget.tokens import (
    OUTPUT_PRICE,
    TokenCounter,
    ToolsInWindow,
    counter_for,
)

Strategy: TypeAlias = str | Mapping[str, Any]
DEFAULT_STRATEGIES = ("elastic", "recency", "ratio", "prioritized")
WARM_SECONDS = 1e9
"""A replay assumes that the cache is warm, however much time is between two messages."""
RECENCY = "recency"
FULL = "full"
SUMMARIZATION = "summarization"
EMPHASES = ("recall", "cache")
NAMES = (*STRATEGIES, *EMPHASES, RECENCY, FULL, SUMMARIZATION)
SCOPE: Any = {"user_id": "replay", "conversation_id": "replay"}


def tools_tokens(counter: TokenCounter, model: str | None, tools: Sequence[Any]) -> int:
    """Returns the tokens of tools, as far as they stand in a model's window."""
    in_window = ToolsInWindow.of(tools, profile_of(model).deferred_tools)
    tokens = counter.count_tools(in_window.whole)
    if in_window.named:
        tokens += counter.count_tools(in_window.named)
    return tokens


@dataclass(frozen=True, slots=True)
class ReplayedPrompt:
    """One prompt, and how many of the messages before its turn are in each state."""

    messages: Sequence[BaseMessage]
    states: Mapping[CoverageState, int]
    compaction_step: bool = False
    own_effective_tokens: float = 0
    """What the maker's own calls of models have cost since the prompt before."""


class PromptMaker(Protocol):
    """Whoever makes the prompts of one strategy, turn after turn."""

    name: str
    tools: Sequence[Any]

    def prompt(self, history: Sequence[BaseMessage], turn: Sequence[BaseMessage]) -> ReplayedPrompt:
        """Returns the prompt for the turn so far, behind the messages before it."""
        ...

    def close(self) -> None:
        """Ends what the maker has begun."""
        ...


class Assembled:
    """Prompts of this package, made as an application makes them.

    The clock stands at the time of the last message that has one, so that equal replays are equal.
    """

    def __init__(
        self,
        name: str,
        settings: ContextSettings,
        tools: Sequence[Any],
        terms: CacheTerms | None = None,
        **options: Any,  # noqa: ANN401
    ) -> None:
        """Sets up a pipeline over a store of its own.

        Args:
            name: of the strategy.
            settings: of the pipeline.
            tools: sent with every prompt.
            terms: what cached tokens cost, in place of what the model's provider charges.
            options: of the pipeline, for instance its model.
        """
        self.name = name
        self.tools = tools
        self.time = datetime(2000, 1, 1, tzinfo=UTC)
        self.stored = 0
        self.pipeline = ContextPipeline(
            settings,
            store=InMemoryStore(),
            writer_id="replay",
            clock=lambda: self.time,
            **options,
        )
        if terms is not None:
            self.pipeline.engine.target.cache = terms
        self.close = self.pipeline.close

    def prompt(self, history: Sequence[BaseMessage], turn: Sequence[BaseMessage]) -> ReplayedPrompt:
        """Stores the new part of the history, and assembles a prompt for the turn so far.

        Raises:
            BudgetError: The turn does not fit.
            EmptyMessageError: The turn says nothing.
        """
        new_messages = history[self.stored :]
        self.stored = len(history)
        for message in (*new_messages, turn[0]):
            self.time = max(self.time, time_of(message) or self.time)
        self.pipeline.add_messages(new_messages, **SCOPE)
        if new_messages and self.pipeline.settings.learn:
            # Without waiting, it would be a matter of luck what is learned by now.
            self.pipeline.flush()
        context = self.pipeline.assemble(turn, tools=self.tools, **SCOPE)
        report = context.report
        return ReplayedPrompt(
            context.messages,
            report.coverage_counts(),
            report.stability.compaction_step,
            report.own_effective_tokens,
        )


class NewestMessages:
    """The newest messages that fit, as LangChain's `trim_messages` gives them, or all messages.

    The messages are counted exactly. Without a budget all of them are sent.
    """

    def __init__(
        self,
        name: str,
        budget: int | None,
        *,
        system_prompt: str,
        tools: Sequence[Any],
        model: str | None,
    ) -> None:
        self.name = name
        self.tools = tools
        self.counter = counter_for(model)
        self.room_tokens: int | None = None
        if budget is not None:
            self.room_tokens = max(0, budget - tools_tokens(self.counter, model, tools))
        self.system = [SystemMessage(system_prompt)] if system_prompt else []

    def prompt(self, history: Sequence[BaseMessage], turn: Sequence[BaseMessage]) -> ReplayedPrompt:
        """Returns as much as fits of everything so far."""
        messages: list[BaseMessage] = [*self.system, *history, *turn]
        if self.room_tokens is not None:
            messages = trim_messages(
                messages,
                max_tokens=self.room_tokens,
                token_counter=self.counter.count_messages,
                strategy="last",
                start_on="human",
                include_system=True,
            )
        shown = max(0, len(messages) - len(self.system) - len(turn))
        return ReplayedPrompt(messages, {"verbatim": shown, "omitted": len(history) - shown})

    def close(self) -> None:
        """Does nothing: there is nothing to close."""


class Summarized:
    """Prompts of an agent that has LangChain's `SummarizationMiddleware`.

    The middleware keeps its state over the turns, as a checkpointer would. It sums up once the
    messages reach the budget, and keeps as many of them as it does by default. Its own calls count:
    their prompts as new tokens, what the model writes at the price of output.
    """

    def __init__(
        self,
        name: str,
        budget: int,
        *,
        summary_model: str | BaseChatModel,
        system_prompt: str,
        tools: Sequence[Any],
        model: str | None,
    ) -> None:
        """Sets up the middleware.

        Raises:
            ImportError: The extra `agents` is not installed.
        """
        try:
            from langchain.agents.middleware import SummarizationMiddleware  # noqa: PLC0415 - an extra
        except ImportError as error:
            raise ImportError(
                f"summarization needs langchain: {install_command('agents')}"
            ) from error
        self.name = name
        self.tools = tools
        counter = counter_for(model)
        self.system = [SystemMessage(system_prompt)] if system_prompt else []
        around = counter.count_messages(self.system) + tools_tokens(counter, model, tools)
        self.middleware = SummarizationMiddleware(
            summary_model,
            trigger=("tokens", max(1, budget - around)),
            token_counter=lambda messages: counter.count_messages(convert_to_messages(messages)),
        )
        self.usage = _CallUsage(counter)
        self.step: Runnable[Any, Any] = RunnableLambda(self._before_model)
        self.state: list[BaseMessage] = []
        self.seen = 0

    def prompt(self, history: Sequence[BaseMessage], turn: Sequence[BaseMessage]) -> ReplayedPrompt:
        """Adds what is new to the state, and sums it up where the middleware does."""
        messages = [*history, *turn]
        # The middleware gives messages ids; those of the conversation stay as they are.
        self.state += [message.model_copy() for message in messages[self.seen :]]
        self.seen = len(messages)
        used_before = self.usage.effective_tokens
        update = self.step.invoke({"messages": self.state}, config={"callbacks": [self.usage]})
        if update is not None:
            updated = add_messages(cast("Messages", self.state), update["messages"])
            self.state = convert_to_messages(cast("list[BaseMessage]", updated))
        originals = [message for message in self.state if not _is_summary(message)]
        shown = max(0, len(originals) - len(turn))
        return ReplayedPrompt(
            [*self.system, *self.state],
            {"verbatim": shown, "summarized": len(history) - shown},
            compaction_step=update is not None,
            own_effective_tokens=self.usage.effective_tokens - used_before,
        )

    def _before_model(self, state: Any) -> dict[str, Any] | None:  # noqa: ANN401 - LangChain's
        """Asks the middleware what changes before the model is called."""
        return self.middleware.before_model(state, Runtime())

    def close(self) -> None:
        """Does nothing: there is nothing to close."""


def _is_summary(message: BaseMessage) -> bool:
    """Tells if a message is a summary that the middleware wrote."""
    return message.additional_kwargs.get("lc_source") == "summarization"


class _CallUsage(BaseCallbackHandler):
    """Counts what calls of a model cost, in new tokens of input."""

    def __init__(self, counter: TokenCounter) -> None:
        super().__init__()
        self.counter = counter
        self.effective_tokens = 0.0

    def on_chat_model_start(
        self,
        serialized: dict[str, Any],  # noqa: ARG002 - as its base
        messages: list[list[BaseMessage]],
        *,
        run_id: UUID,  # noqa: ARG002
        **options: Any,  # noqa: ANN401, ARG002
    ) -> None:
        """Counts the prompts."""
        for prompt in messages:
            self.effective_tokens += self.counter.count_messages(prompt)

    def on_llm_end(
        self,
        response: LLMResult,
        *,
        run_id: UUID,  # noqa: ARG002
        **options: Any,  # noqa: ANN401, ARG002
    ) -> None:
        """Counts what the model has written."""
        for generations in response.generations:
            for generation in generations:
                tokens = self.counter.count_text(generation.text)
                self.effective_tokens += tokens * OUTPUT_PRICE


def contender(
    strategy: Strategy,
    budget: int,
    *,
    settings: ContextSettings | Mapping[str, Any] | None = None,
    embeddings: Embeddings | None = None,
    system_prompt: str = "",
    tools: Sequence[Any] = (),
    model: str | None = None,
    terms: CacheTerms | None = None,
    summary_model: str | BaseChatModel | None = None,
) -> PromptMaker:
    """Returns the maker of a strategy's prompts; the arguments are those of `replay`."""
    if isinstance(strategy, Mapping):
        name, changes = _settings_strategy(strategy)
    else:
        base, other_budget = _named_strategy(strategy)
        name = base
        if other_budget is not None:
            budget = other_budget
            name = f"{base}@{budget}"
        if base in (RECENCY, FULL):
            return NewestMessages(
                name,
                budget if base == RECENCY else None,
                system_prompt=system_prompt,
                tools=tools,
                model=model,
            )
        if base == SUMMARIZATION:
            if summary_model is None:
                raise InputError(
                    "summarization needs a model that sums up: name it as `summary_model`"
                )
            return Summarized(
                name,
                budget,
                summary_model=summary_model,
                system_prompt=system_prompt,
                tools=tools,
                model=model,
            )
        changes = {"allocation": base}
        if base in EMPHASES:
            changes = {"emphasis": base}

    # The defaults of the application's settings are not those of a replay.
    chosen = settings
    if isinstance(settings, ContextSettings):
        chosen = settings.chosen
    defaults = ContextSettings(learn=False, cache_lifetime_seconds=WARM_SECONDS)
    return Assembled(
        name,
        defaults.override(chosen).override({"max_context_tokens": budget, **changes}),
        tools,
        terms,
        embeddings=embeddings,
        system_prompt=system_prompt,
        model=model,
    )


def _settings_strategy(strategy: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """Returns the name and the settings of a strategy that is a mapping."""
    if "strategy" in strategy:
        return strategy_of(strategy).name, {"allocation": strategy}
    parts = []
    for key, value in strategy.items():
        text = value if isinstance(value, str) else json.dumps(value)
        parts.append(f"{key}={text}")
    return ", ".join(parts) or "elastic", strategy


def _named_strategy(strategy: str) -> tuple[str, int | None]:
    """Returns the name of a strategy, and its budget where one stands behind the name."""
    base, separator, budget = strategy.strip().partition("@")
    has_budget = budget.isdecimal() and int(budget) > 0
    if base not in NAMES or (separator and not has_budget):
        accepted = f"{', '.join(NAMES)}, each also with another budget (recency@4000), and settings"
        raise InvalidSettingsError(
            f"There is no strategy {strategy!r} to replay; there are {accepted}"
        )
    return base, int(budget) if separator else None
