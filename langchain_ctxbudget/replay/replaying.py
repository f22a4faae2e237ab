"""Goes through a conversation turn by turn with several strategies, and counts what each would have sent.

A turn is everything from a message of the user up to the next one. Before every answer in it a prompt is made, as an
application would have made it: from what was said before, and what the turn has so far. Nothing is sent.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from datetime import UTC, datetime
from typing import Any, NamedTuple, TypeAlias

from langchain_core.embeddings import Embeddings
from langchain_core.messages import AIMessage, BaseMessage, SystemMessage, trim_messages
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget.budget import STRATEGIES, strategy_of
from langchain_ctxbudget.errors import BudgetError, EmptyMessageError, InputError, InvalidSettingsError
from langchain_ctxbudget.messages import checked, is_user, one_line, plain_text, split_instructions
from langchain_ctxbudget.pipeline import ContextPipeline
from langchain_ctxbudget.prompt import common_prefix
from langchain_ctxbudget.replay.result import ReplayResult, Track, Turn
from langchain_ctxbudget.report import CoverageState
from langchain_ctxbudget.settings import ContextSettings
from langchain_ctxbudget.tokens import CACHED_PRICE, Price, TokenCounter, counter_for

Strategy: TypeAlias = str | Mapping[str, Any]
"""A name, or settings; see `replay`."""

DEFAULT_STRATEGIES = ("elastic", "recency", "ratio", "prioritized")
WARM_SECONDS = 1e9
"""A replay takes the cache for warm, whatever the time between two messages: so its prompts go on, too."""
RECENCY, FULL = "recency", "full"
EMPHASES = ("recall", "cache")
NAMES = (*STRATEGIES, *EMPHASES, RECENCY, FULL)
SCOPE: Any = {"user_id": "replay", "conversation_id": "replay"}


def replay(
    messages: Sequence[BaseMessage],
    strategies: Sequence[Strategy] = DEFAULT_STRATEGIES,
    *,
    budget: int,
    system_prompt: str = "",
    tools: Sequence[Any] = (),
    model: str | None = None,
    settings: ContextSettings | Mapping[str, Any] | None = None,
    embeddings: Embeddings | None = None,
    price_share: float | None = None,
    price: Price | None = None,
    evidence: Mapping[int, Iterable[str]] | None = None,
    first_turn: int = 1,
    on_turn: Callable[[str, int], None] | None = None,
) -> ReplayResult:
    """Goes through a conversation with each of several strategies, each with a store of its own, and counts.

    Args:
        messages: the conversation, oldest message first.
        strategies: names, or settings. An allocation strategy (`"elastic"`, `"ratio"`, `"fixed"`, `"dynamic"`,
            `"prioritized"`, or a mapping with its parameters); an emphasis (`"recall"`, `"cache"`); `"recency"`
            (LangChain's `trim_messages`, the newest messages that fit); `"full"` (the whole history, no limit); or a
            mapping of any other settings. A number behind a name is another budget: `"recency@4000"`.
        budget: the most that a prompt may cost, in tokens.
        system_prompt: of every prompt; default: the system messages that the conversation begins with.
        tools: sent with every prompt of every strategy.
        model: counts are this model's, prompts are within its window; default: o200k_base, no window.
        settings: of the package's strategies, below their own. Nothing is learned unless they say `"learn": True`.
        embeddings: for retrieval; default: the package's own.
        price_share: the price of a cached token, as a share of one that is not; default: the price's, else 0.1.
        price: of the model, so that costs are told in US dollars, too.
        evidence: ids of the messages that a turn is about, by the turn's number.
        first_turn: prompts are made from this turn on; what comes before it is only stored.
        on_turn: called behind every turn with the strategy's name and the turn's number.

    Raises:
        InputError: nothing to replay, a strategy that is not known or named twice, a share that is none, evidence
            for a turn that does not exist.
    """
    instructions, said = split_instructions(checked(messages, "messages"))
    turns = split_turns(said)
    if not any(map(_answers, turns[max(0, first_turn - 1) :])):
        raise InputError("Nothing to replay: the conversation has no answer of a model that follows a message")
    if price_share is None:
        price_share = _cached_price_share(price)
    if budget < 1 or not 0 <= price_share <= 1:
        raise InputError(f"budget must be at least 1 token and price_share from 0 to 1, not {budget} and {price_share}")
    if unknown := sorted(set(evidence or ()) - set(range(1, len(turns) + 1))):
        raise InputError(f"evidence is for turns {unknown}, but the conversation has turns 1 to {len(turns)}")
    named = {number: set(ids) for number, ids in (evidence or {}).items()}
    options: dict[str, Any] = {"settings": settings, "embeddings": embeddings, "tools": tools, "model": model}
    options["system_prompt"] = system_prompt or "\n\n".join(instructions)
    contenders = [contender(one, budget, **options) for one in strategies]
    names = [one.name for one in contenders]
    if not names or len(set(names)) < len(names):
        raise InputError(f"strategies must be at least one, each of them once, not {names}")
    counter, input_price = counter_for(model), None if price is None else price.input

    def passed(run: _Run, number: int) -> Turn | None:
        turn, made = turns[number - 1], None
        if number < first_turn:
            run.contender.keep(turn)
        else:
            made = run.through(number, turn, [message for message in said if message.id in named.get(number, ())])
        if on_turn:
            on_turn(run.contender.name, number)
        return made

    tracks = []
    for one in contenders:
        with closing(one):
            run = _Run(one, counter, counter.count_tools(tools))
            done = [made for number in range(1, len(turns) + 1) if (made := passed(run, number))]
        tracks.append(Track.of(one.name, one.budget, done, price_share=price_share, input_price=input_price))
    return ReplayResult(
        messages=len(said),
        budget_tokens=budget,
        price_share=price_share,
        tokenizer=counter.name,
        count_mode=counter.mode,
        input_price=input_price,
        tracks=tuple(tracks),
    )


def split_turns(messages: Sequence[BaseMessage]) -> list[list[BaseMessage]]:
    """Splits a conversation into turns, each from a message of the user up to the next; a turn may precede the first.

    >>> from langchain_core.messages import HumanMessage
    >>> [len(turn) for turn in split_turns([AIMessage("Welcome!"), HumanMessage("Hi"), AIMessage("What can I do?")])]
    [1, 2]
    """
    turns: list[list[BaseMessage]] = []
    for message in messages:
        if is_user(message) or not turns:
            turns.append([])
        turns[-1].append(message)
    return turns


def _answers(turn: Sequence[BaseMessage]) -> list[int]:
    """Returns the positions of the answers in a turn; one that the conversation begins with answers nothing."""
    return [place for place, message in enumerate(turn) if place and isinstance(message, AIMessage)]


def _cached_price_share(price: Price | None) -> float:
    if price is None or not price.input:
        return CACHED_PRICE
    return 1.0 if price.cached_input is None else price.cached_input / price.input


class Prompt(NamedTuple):
    """One prompt, and the states of the messages before its turn."""

    messages: Sequence[BaseMessage]
    states: Mapping[CoverageState, int]
    compaction_step: bool


class Assembled:
    """The package, as an application uses it.

    The clock stands at the time of the last message that tells its time, so that equal replays are equal.
    """

    def __init__(self, name: str, settings: ContextSettings, tools: Sequence[Any], **options: Any) -> None:  # noqa: ANN401 - of a `ContextPipeline`
        self.name, self.tools, self.time = name, tools, datetime(2000, 1, 1, tzinfo=UTC)
        self.budget: int | None = settings.max_context_tokens
        own: dict[str, Any] = {"store": InMemoryStore(), "writer_id": "replay", "clock": lambda: self.time}
        self.pipeline = ContextPipeline(settings, **own, **options)

    def prompt(self, turn: Sequence[BaseMessage]) -> Prompt:
        """Assembles the prompt for the turn so far; a `BudgetError` or `EmptyMessageError` says why it cannot."""
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
        with suppress(ValueError):
            said = datetime.fromisoformat(str(message.additional_kwargs.get("created_at")))
            self.time = max(self.time, said if said.tzinfo else said.replace(tzinfo=UTC))

    def close(self) -> None:
        """Closes the pipeline."""
        self.pipeline.close()


class Window:
    """The newest messages that fit, as LangChain's `trim_messages` gives them with an exact counter; or all of them."""

    def __init__(
        self, name: str, budget: int | None, *, system_prompt: str, tools: Sequence[Any], model: str | None
    ) -> None:
        self.name, self.budget, self.counter = name, budget, counter_for(model)
        self.system = [SystemMessage(system_prompt)] if system_prompt else []
        self.history: list[BaseMessage] = []
        self.tools_tokens = self.counter.count_tools(tools)

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

    def close(self) -> None:
        """Holds nothing to give back."""


def contender(
    strategy: Strategy,
    budget: int,
    *,
    settings: ContextSettings | Mapping[str, Any] | None = None,
    embeddings: Embeddings | None = None,
    system_prompt: str = "",
    tools: Sequence[Any] = (),
    model: str | None = None,
) -> Assembled | Window:
    """Returns the maker of a strategy's prompts; the arguments are those of `replay`."""
    common: dict[str, Any] = {"system_prompt": system_prompt, "tools": tools, "model": model}
    own: Mapping[str, Any]
    if isinstance(strategy, Mapping):
        name, own = _label(strategy), {"allocation": strategy} if "strategy" in strategy else strategy
    else:
        base, at, other = strategy.strip().partition("@")
        if at and not (other.isascii() and other.isdecimal() and int(other)):
            raise InvalidSettingsError(f"{strategy!r}: a number of tokens above 0 stands behind the @, not {other!r}")
        if base not in NAMES:
            raise InvalidSettingsError(
                f"There is no strategy {base!r} to replay; there are {', '.join(NAMES)}, each also with another budget "
                f"(recency@4000), and settings"
            )
        budget = int(other) if at else budget
        name, own = f"{base}@{budget}" if at else base, {"emphasis" if base in EMPHASES else "allocation": base}
        if base in (RECENCY, FULL):
            return Window(name, budget if base == RECENCY else None, **common)
    made = (
        ContextSettings(learn=False, cache_lifetime_seconds=WARM_SECONDS)
        .override(settings)
        .override({"max_context_tokens": budget, **own})
    )
    return Assembled(name, made, embeddings=embeddings, **common)


def _label(settings: Mapping[str, Any]) -> str:
    if "strategy" in settings:
        return strategy_of(settings).name
    said = (f"{key}={value if isinstance(value, str) else json.dumps(value)}" for key, value in settings.items())
    return ", ".join(said) or "elastic"


class _Run:
    """One strategy on its way through a conversation."""

    def __init__(self, one: Assembled | Window, counter: TokenCounter, tools: int) -> None:
        self.contender = one
        self.counter = counter  # the strategies have counters of their own, so that none is faster for another's work
        self.tools_tokens = tools
        self.before: Sequence[BaseMessage] = ()
        self.costs: Mapping[int, int] = {}  # of the last prompt's messages, by their identity in memory

    def through(self, number: int, turn: list[BaseMessage], asked: Sequence[BaseMessage]) -> Turn | None:
        """Makes the prompts of a turn, then stores it; None where it has no prompt."""
        seconds, told = 0.0, None
        tokens, failures = list[int](), list[str]()
        cached = steps = 0
        places = _answers(turn)
        for place in places:
            started = time.perf_counter()
            try:
                told = self.contender.prompt(turn[:place])
            except (BudgetError, EmptyMessageError) as error:
                failures.append(f"turn {number}: {type(error).__name__}: {error}")
                continue
            finally:
                seconds += time.perf_counter() - started
            costs = [self.costs.get(id(message)) or self.counter.count_message(message) for message in told.messages]
            shared = common_prefix(told.messages, costs, self.before, self.counter).tokens
            cached += shared + (self.tools_tokens if self.before else 0)
            tokens.append(self.tools_tokens + sum(costs) + self.counter.count_messages([]))
            steps += told.compaction_step
            self.before = told.messages
            self.costs = {id(message): cost for message, cost in zip(told.messages, costs, strict=True)}
        started = time.perf_counter()
        self.contender.keep(turn)
        seconds += time.perf_counter() - started
        if not places:
            return None
        text = one_line("\n".join(message.text for message in told.messages)) if told else ""
        found = sum(one_line(plain_text(message)) in text for message in asked)
        return Turn(
            number=number,
            calls=len(tokens),
            tokens=sum(tokens),
            cached_tokens=cached,
            largest_tokens=max(tokens, default=0),
            messages=told.states if told else {},
            compaction_steps=steps,
            failures=tuple(failures),
            evidence=found / len(asked) if asked else None,
            ms=seconds * 1000,
        )
