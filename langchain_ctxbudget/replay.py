"""Replays a conversation turn by turn with several strategies, and counts what each would send.

A turn is everything from a message of the user up to the next one. Before every answer in it a
prompt is made, as an application would have made it: from the messages before the turn, and from
those that the turn has so far. Nothing is sent.
"""

import json
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from itertools import chain
from typing import Any, TypeAlias

from langchain_core.embeddings import Embeddings
from langchain_core.messages import AIMessage, BaseMessage, SystemMessage, trim_messages
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget.budget import STRATEGIES, strategy_of
from langchain_ctxbudget.errors import (
    BudgetError,
    EmptyMessageError,
    InputError,
    InvalidSettingsError,
    checks_names,
)
from langchain_ctxbudget.messages import (
    checked_messages,
    is_user,
    one_line,
    plain_text,
    split_instructions,
    time_of,
)
from langchain_ctxbudget.pipeline import ContextPipeline
from langchain_ctxbudget.prompt import common_prefix
from langchain_ctxbudget.providers import CacheTerms, profile_of
from langchain_ctxbudget.report import STATES, CoverageState
from langchain_ctxbudget.settings import ContextSettings
from langchain_ctxbudget.tokens import (
    PRICES,
    Price,
    TokenCounter,
    ToolsInWindow,
    counter_for,
    price_of,
    terms_at,
)

Strategy: TypeAlias = str | Mapping[str, Any]
DEFAULT_STRATEGIES = ("elastic", "recency", "ratio", "prioritized")
WARM_SECONDS = 1e9
"""A replay assumes that the cache is warm, however much time is between two messages."""
RECENCY = "recency"
FULL = "full"
EMPHASES = ("recall", "cache")
NAMES = (*STRATEGIES, *EMPHASES, RECENCY, FULL)
SCOPE: Any = {"user_id": "replay", "conversation_id": "replay"}


@checks_names(ContextSettings.model_fields)
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
    price: Price | None = None,
    evidence: Mapping[int, Iterable[str]] | None = None,
    on_turn: Callable[[str, int], None] | None = None,
) -> "ReplayResult":
    """Replays a conversation with each of several strategies, each of which has a store of its own.

    Args:
        messages: the conversation, oldest message first.
        strategies: names, or settings. An allocation strategy (`"elastic"`, `"ratio"`, `"fixed"`,
            `"dynamic"`, `"prioritized"`, or a mapping with its parameters); an emphasis
            (`"recall"`, `"cache"`); `"recency"` (LangChain's `trim_messages`, the newest messages
            that fit); `"full"` (the whole history, no limit); or a mapping of any other settings. A
            number behind a name is another budget: `"recency@4000"`.
        budget: the most that a prompt may cost, in tokens.
        system_prompt: of every prompt; default: the system messages that the conversation begins
            with.
        tools: sent with every prompt of every strategy.
        model: counts are this model's, prompts are within its window; default: o200k_base, no
            window.
        settings: of the package's strategies, below their own. Nothing is learned unless they say
            `"learn": True`.
        embeddings: for retrieval; default: the package's own.
        price: of the model, so that costs are told in US dollars, too. It says what cached tokens
            cost; without one, that is what the model's provider charges, or a tenth where no model
            is named.
        evidence: ids of the messages that a turn is about, by the turn's number.
        on_turn: called behind every turn with the strategy's name and the turn's number.

    Raises:
        InputError: The conversation has nothing to replay, or an argument is out of range.
    """
    instructions, dialogue = split_instructions(checked_messages(messages, "messages"))
    turns = split_turns(dialogue)
    _require_replayable(turns, budget, evidence or {})
    terms = _cache_terms(model, price)
    contenders = [
        contender(
            strategy,
            budget,
            settings=settings,
            embeddings=embeddings,
            system_prompt=system_prompt or "\n\n".join(instructions),
            tools=tools,
            model=model,
            terms=terms,
        )
        for strategy in strategies
    ]
    names = [maker.name for maker in contenders]
    if not names or len(set(names)) < len(names):
        raise InputError(f"strategies must be at least one, each of them once, not {names}")

    counter = counter_for(model)
    evidence_texts = _evidence_texts(dialogue, evidence or {})
    tracks: list[Track] = []
    for maker in contenders:
        with closing(maker):
            replayed = [
                *_turns(maker, turns, evidence_texts, Meter(counter, terms, model), on_turn)
            ]
        tracks.append(_track(maker.name, replayed, price))
    return ReplayResult(
        messages=len(dialogue),
        budget_tokens=budget,
        tracks=tuple(tracks),
        tokenizer=counter.name,
        count_mode=counter.mode,
        price_share=terms.read_price,
        write_share=terms.write_price,
    )


def tools_tokens(counter: TokenCounter, model: str | None, tools: Sequence[Any]) -> int:
    """Returns the tokens of tools, as far as they stand in a model's window."""
    in_window = ToolsInWindow.of(tools, profile_of(model).deferred_tools)
    tokens = counter.count_tools(in_window.whole)
    if in_window.named:
        tokens += counter.count_tools(in_window.named)
    return tokens


def _require_replayable(
    turns: Sequence[Sequence[BaseMessage]], budget: int, evidence: Mapping[int, Iterable[str]]
) -> None:
    """Raises an `InputError` for what cannot be replayed."""
    if not any(map(_answers, turns)):
        raise InputError(
            "Nothing to replay: the conversation has no answer of a model that follows a message"
        )
    if type(budget) is not int or budget < 1:
        raise InputError(f"budget must be at least 1 token, not {budget!r}")
    unknown = sorted(set(evidence) - set(range(1, len(turns) + 1)))
    if unknown:
        raise InputError(
            f"evidence is for turns {unknown}, but the conversation has turns 1 to {len(turns)}"
        )


def _cache_terms(model: str | None, price: Price | None) -> CacheTerms:
    """Returns how a model's provider charges for cached tokens: at a given price, or its own."""
    terms = profile_of(model).cache_terms_for(model or "")
    return terms_at(price or price_of(model, PRICES), terms)


def _evidence_texts(
    messages: Iterable[BaseMessage], evidence: Mapping[int, Iterable[str]]
) -> dict[int, list[str]]:
    """Returns the texts of the messages that each turn is about, by the turn's number."""
    texts = {message.id: one_line(plain_text(message)) for message in messages}
    return {
        number: [texts[message_id] for message_id in message_ids if message_id in texts]
        for number, message_ids in evidence.items()
    }


def split_turns(messages: Sequence[BaseMessage]) -> list[list[BaseMessage]]:
    """Splits a conversation into turns, each from a message of the user up to the next.

    Messages before the first one of the user are a turn of their own.
    """
    turns: list[list[BaseMessage]] = []
    for message in messages:
        if is_user(message) or not turns:
            turns.append([])
        turns[-1].append(message)
    return turns


def _answers(turn: Sequence[BaseMessage]) -> list[int]:
    """Returns the positions of the answers in a turn.

    A message of the model at the beginning of the conversation answers nothing.
    """
    return [place for place, message in enumerate(turn) if place and isinstance(message, AIMessage)]


@dataclass(frozen=True, slots=True)
class ReplayedPrompt:
    """One prompt, and how many of the messages before its turn are in each state."""

    messages: Sequence[BaseMessage]
    states: Mapping[CoverageState, int]
    compaction_step: bool = False


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
            context.messages, report.coverage_counts(), report.stability.compaction_step
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
) -> Assembled | NewestMessages:
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
        changes = {"emphasis" if base in EMPHASES else "allocation": base}

    # The defaults of the application's settings are not those of a replay.
    chosen = settings.chosen if isinstance(settings, ContextSettings) else settings
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
    if base not in NAMES or (separator and not budget.isdecimal()):
        accepted = f"{', '.join(NAMES)}, each also with another budget (recency@4000), and settings"
        raise InvalidSettingsError(
            f"There is no strategy {strategy!r} to replay; there are {accepted}"
        )
    return base, int(budget) if separator else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """The prompts that were sent: for one answer, in one turn, or in all of them."""

    calls: int = 0
    """Prompts that were made: one for each answer, so several in a turn whose model calls tools."""
    tokens: int = 0
    cached_tokens: int = 0
    """The part of them that a provider's cache holds, as a prompt has them in common with the one
    before it, from its start."""
    effective_tokens: float = 0.0
    """What they cost in new tokens that no cache takes in: a cached one has its price share."""
    largest_tokens: int = 0
    compaction_steps: int = 0
    """The number of times that the beginning of the prompt was rewritten."""
    failures: tuple[str, ...] = ()


def _together(parts: Sequence[Sent]) -> dict[str, Any]:
    """Returns the fields of a `Sent` that stands for all parts."""
    return {
        "calls": sum(part.calls for part in parts),
        "tokens": sum(part.tokens for part in parts),
        "cached_tokens": sum(part.cached_tokens for part in parts),
        "effective_tokens": round(sum(part.effective_tokens for part in parts), 3),
        "compaction_steps": sum(part.compaction_steps for part in parts),
        "largest_tokens": max(part.largest_tokens for part in parts),
        "failures": tuple(chain.from_iterable(part.failures for part in parts)),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn(Sent):
    """The prompts of one turn, together."""

    number: int
    messages: Mapping[CoverageState, int]
    """How many of the messages before the turn are in each state, in the last of its prompts."""
    evidence: float | None
    """The share of the messages it is about that stand in its last prompt, word for word."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Track(Sent):
    """What one strategy sent in a conversation: the turns that have answers, and their totals."""

    name: str
    turns: tuple[Turn, ...]
    cached_share: float
    cost: float | None
    """The price of all prompts in US dollars, without answers; None where it is not known."""
    message_shares: Mapping[CoverageState, float]
    """The states of earlier messages, as shares of all of them over all turns; all 0 where there
    were none."""
    evidence: float | None
    """The mean over the turns for which evidence was named."""


@dataclass(frozen=True, slots=True)
class Meter:
    """Counts prompts, and what they cost."""

    counter: TokenCounter
    terms: CacheTerms
    model: str | None = None


def _turns(
    maker: Assembled | NewestMessages,
    turns: Iterable[Sequence[BaseMessage]],
    evidence_texts: Mapping[int, Sequence[str]],
    meter: Meter,
    on_turn: Callable[[str, int], None] | None,
) -> Iterator[Turn]:
    """Makes a prompt for every answer, and yields the turns that have answers."""
    tools_cost = tools_tokens(meter.counter, meter.model, maker.tools)
    history: list[BaseMessage] = []
    previous: Sequence[BaseMessage] = ()
    for number, turn in enumerate(turns, 1):
        sent: list[Sent] = []
        prompt = ReplayedPrompt((), {})
        for position in _answers(turn):
            try:
                prompt = maker.prompt(history, turn[:position])
            except (BudgetError, EmptyMessageError) as error:
                failure = f"turn {number}: {type(error).__name__}: {error}"
                sent.append(Sent(failures=(failure,)))
                continue
            sent.append(_sent(prompt, previous, tools_cost, meter))
            previous = prompt.messages
        if sent:
            yield Turn(
                **_together(sent),
                number=number,
                messages=prompt.states,
                evidence=_evidence_share(prompt, evidence_texts.get(number, ())),
            )
        history += turn
        if on_turn:
            on_turn(maker.name, number)


def _sent(
    prompt: ReplayedPrompt,
    previous: Sequence[BaseMessage],
    tools_cost: int,
    meter: Meter,
) -> Sent:
    """Counts a prompt, and what of it the previous one has already."""
    counter = meter.counter
    costs = [counter.count_message(message) for message in prompt.messages]
    tokens = tools_cost + sum(costs) + counter.count_messages([])
    shared_tokens, _ = common_prefix(prompt.messages, costs, previous, counter)
    if previous:
        shared_tokens += tools_cost
    return Sent(
        calls=1,
        tokens=tokens,
        cached_tokens=meter.terms.read_tokens(shared_tokens),
        effective_tokens=meter.terms.cost(tokens, shared_tokens),
        largest_tokens=tokens,
        compaction_steps=int(prompt.compaction_step),
    )


def _evidence_share(prompt: ReplayedPrompt, texts: Sequence[str]) -> float | None:
    """Returns the share of some texts that stand in a prompt; None for no texts."""
    if not texts:
        return None
    prompt_text = one_line("\n".join(message.text for message in prompt.messages))
    return sum(text in prompt_text for text in texts) / len(texts)


def _track(name: str, turns: Sequence[Turn], price: Price | None) -> Track:
    """Adds up the turns of one strategy."""
    sent = Sent(**_together(turns))
    evidence = [turn.evidence for turn in turns if turn.evidence is not None]
    return Track(
        **asdict(sent),
        name=name,
        turns=tuple(turns),
        cached_share=sent.cached_tokens / max(1, sent.tokens),
        cost=None if price is None else sent.effective_tokens * price.input / 1_000_000,
        message_shares=_message_shares(turns),
        evidence=statistics.fmean(evidence) if evidence else None,
    )


def _message_shares(turns: Sequence[Turn]) -> dict[CoverageState, float]:
    """Returns the states of earlier messages over all turns, as shares of all of them."""
    counts = {state: sum(turn.messages.get(state, 0) for turn in turns) for state in STATES}
    total = max(1, sum(counts.values()))
    return {state: count / total for state, count in counts.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayResult:
    """The numbers of several strategies over one conversation; equal for equal input."""

    messages: int
    budget_tokens: int
    price_share: float
    """The price of a cached token, as a share of one that no cache has to do with."""
    tokenizer: str
    count_mode: str
    tracks: tuple[Track, ...]
    write_share: float = 1.0
    """The same for a new token, which the cache takes in."""

    def track(self, name: str) -> Track:
        """Returns the track of one strategy."""
        for track in self.tracks:
            if track.name == name:
                return track
        names = ", ".join(track.name for track in self.tracks)
        raise InputError(f"No strategy {name!r} was replayed; there are {names}")

    def to_dict(self) -> dict[str, Any]:
        """Returns plain data, ready for JSON, with the totals of every strategy."""
        data = asdict(self)
        return {**data, "strategies": data.pop("tracks")}

    def to_text(self) -> str:
        """Draws a table: what each strategy sent and cost, and what became of earlier messages."""
        heading, *rows = _table([_row(track) for track in self.tracks])
        counts = f"{self.count_mode} counts ({self.tokenizer})"
        new = ""
        if self.write_share != 1:
            new = f"; new ones, which are cached, at {self.write_share:g}"
        lines = [
            f"{self.messages:,} messages, {self.budget_tokens:,} tokens for a prompt; {counts}",
            f"cached: as in the prompt before, at {self.price_share:g} of the price{new}",
            "",
            heading,
            "-" * len(heading),
            *rows,
        ]
        for track in self.tracks:
            if track.failures:
                missing = f"{len(track.failures):,} prompts could not be made"
                lines += [
                    "",
                    f"{track.name}: {missing}, and cost nothing here; the first:",
                    track.failures[0],
                ]
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.to_text()


def _table(rows: Sequence[Mapping[str, str]]) -> list[str]:
    """Returns the lines of an aligned table; columns that are empty in every row are left out."""
    headings = [heading for heading in rows[0] if any(row[heading] for row in rows)]
    lines = [headings]
    lines.extend([row[heading] for heading in headings] for row in rows)
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return ["  ".join(_aligned(line, widths)) for line in lines]


def _aligned(cells: Sequence[str], widths: Sequence[int]) -> list[str]:
    """Returns cells that are as wide as their columns, the first one to the left."""
    first, *numbers = cells
    columns = zip(numbers, widths[1:], strict=True)
    return [first.ljust(widths[0]), *(cell.rjust(width) for cell, width in columns)]


def _row(track: Track) -> dict[str, str]:
    """Returns the cells of a strategy by the headings of their columns."""
    return {
        "strategy": track.name,
        "prompts": f"{track.calls:,}",
        "tokens": f"{track.tokens:,}",
        "cached": f"{track.cached_share:.0%}",
        "effective": f"{track.effective_tokens:,.0f}",
        "US $": "" if track.cost is None else f"{track.cost:,.4f}",
        "steps": f"{track.compaction_steps:,}",
        "left out": f"{track.message_shares['omitted']:.0%}",
        "evidence": "" if track.evidence is None else f"{track.evidence:.0%}",
    }
