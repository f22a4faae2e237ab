"""Goes through a conversation turn by turn with several strategies, and counts what each would have sent.

A turn is everything from a message of the user up to the next one. Before every answer in it a prompt is made, as an
application would have made it: from what was said before, and what the turn has so far. Nothing is sent.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple, TypeAlias

from langchain_core.embeddings import Embeddings
from langchain_core.messages import AIMessage, BaseMessage, SystemMessage, trim_messages
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget.budget import STRATEGIES, strategy_of
from langchain_ctxbudget.errors import BudgetError, EmptyMessageError, InputError, InvalidSettingsError
from langchain_ctxbudget.messages import checked, is_user, one_line, plain_text, split_instructions, time_of
from langchain_ctxbudget.pipeline import ContextPipeline
from langchain_ctxbudget.prompt import common_prefix
from langchain_ctxbudget.report import STATES, CoverageState
from langchain_ctxbudget.settings import ContextSettings
from langchain_ctxbudget.tokens import CACHED_PRICE, Price, TokenCounter, counter_for, effective_tokens

Strategy: TypeAlias = str | Mapping[str, Any]
"""A name, or settings; see `replay`."""

DEFAULT_STRATEGIES = ("elastic", "recency", "ratio", "prioritized")
WARM_SECONDS = 1e9
"""A replay takes the cache for warm, whatever the time between two messages: so its prompts go on, too."""
RECENCY, FULL = "recency", "full"
EMPHASES = ("recall", "cache")
NAMES = (*STRATEGIES, *EMPHASES, RECENCY, FULL)
SCOPE: Any = {"user_id": "replay", "conversation_id": "replay"}


LONGEST_NAME = 24
"""Characters; a longer name is cut."""
HEADINGS = ("strategy", "prompts", "tokens", "cached", "effective", "US $", "steps", "left out", "evidence")
MOST_FAILURES = 3
"""Prompts that could not be made of which the reason is told, per strategy."""


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
        price: of the model, so that costs are told in US dollars, too; without one, a cached token costs a tenth.
        evidence: ids of the messages that a turn is about, by the turn's number.
        first_turn: prompts are made from this turn on; what comes before it is only stored.
        on_turn: called behind every turn with the strategy's name and the turn's number.

    Raises:
        InputError: nothing to replay, a strategy that is not known or named twice, evidence for a turn that does not
            exist.
    """
    instructions, said = split_instructions(checked(messages, "messages"))
    turns = split_turns(said)
    if not any(map(_answers, turns[max(0, first_turn - 1) :])):
        raise InputError("Nothing to replay: the conversation has no answer of a model that follows a message")
    if budget < 1:
        raise InputError(f"budget must be at least 1 token, not {budget}")
    if unknown := sorted(set(evidence or ()) - set(range(1, len(turns) + 1))):
        raise InputError(f"evidence is for turns {unknown}, but the conversation has turns 1 to {len(turns)}")
    options: dict[str, Any] = {"settings": settings, "embeddings": embeddings, "tools": tools, "model": model}
    options["system_prompt"] = system_prompt or "\n\n".join(instructions)
    contenders = [contender(one, budget, **options) for one in strategies]
    names = [one.name for one in contenders]
    if not names or len(set(names)) < len(names):
        raise InputError(f"strategies must be at least one, each of them once, not {names}")
    counter, texts = counter_for(model), {message.id: plain_text(message) for message in said}
    named = {number: [texts[one] for one in ids if one in texts] for number, ids in (evidence or {}).items()}
    share = CACHED_PRICE
    if price is not None and price.input:
        share = 1.0 if price.cached_input is None else price.cached_input / price.input
    tracks: list[Track] = []
    for one in contenders:
        done: list[Turn] = []
        before: Sequence[BaseMessage] = ()
        with closing(one):
            for number, turn in enumerate(turns, 1):
                if number >= first_turn and _answers(turn):
                    asked = named.get(number, ())
                    made, before = _made(one, turn, before, number=number, counter=counter, tools=tools, asked=asked)
                    done.append(made)
                one.keep(turn)
                if on_turn:
                    on_turn(one.name, number)
        tracks.append(_track(one, done, share, None if price is None else price.input))
    return ReplayResult(
        messages=len(said),
        budget_tokens=budget,
        tracks=tuple(tracks),
        tokenizer=counter.name,
        count_mode=counter.mode,
        price_share=share,
    )


def split_turns(messages: Sequence[BaseMessage]) -> list[list[BaseMessage]]:
    """Splits a conversation into turns, each from a message of the user up to the next; one may precede these."""
    turns: list[list[BaseMessage]] = []
    for message in messages:
        if is_user(message) or not turns:
            turns.append([])
        turns[-1].append(message)
    return turns


def _answers(turn: Sequence[BaseMessage]) -> list[int]:
    """Returns the positions of the answers in a turn; one that the conversation begins with answers nothing."""
    return [place for place, message in enumerate(turn) if place and isinstance(message, AIMessage)]


class ReplayedPrompt(NamedTuple):
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

    def prompt(self, turn: Sequence[BaseMessage]) -> ReplayedPrompt:
        """Assembles the prompt for the turn so far; a `BudgetError` or `EmptyMessageError` says why it cannot."""
        self._pass_by(turn[0])
        context = self.pipeline.assemble(turn, tools=self.tools, **SCOPE)
        return ReplayedPrompt(
            context.messages, context.report.coverage_counts(), context.report.stability.compaction_step
        )

    def keep(self, turn: Sequence[BaseMessage]) -> None:
        """Stores a finished turn, and learns from it where that is asked."""
        for message in turn:
            self._pass_by(message)
        self.pipeline.add_messages(turn, **SCOPE)
        if self.pipeline.settings.learn:
            self.pipeline.flush()  # or what is learned by the next turn is a matter of luck

    def _pass_by(self, message: BaseMessage) -> None:
        self.time = max(self.time, time_of(message) or self.time)

    def close(self) -> None:
        """Closes the pipeline."""
        self.pipeline.close()


class NewestMessages:
    """The newest messages that fit, as LangChain's `trim_messages` gives them with an exact counter; or all of them."""

    def __init__(
        self, name: str, budget: int | None, *, system_prompt: str, tools: Sequence[Any], model: str | None
    ) -> None:
        self.name, self.budget, self.counter = name, budget, counter_for(model)
        self.system = [SystemMessage(system_prompt)] if system_prompt else []
        self.history: list[BaseMessage] = []
        self.tools_tokens = self.counter.count_tools(tools)

    def prompt(self, turn: Sequence[BaseMessage]) -> ReplayedPrompt:
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
        return ReplayedPrompt(
            messages, {"verbatim": shown, "omitted": len(self.history) - shown}, compaction_step=False
        )

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
) -> Assembled | NewestMessages:
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
            return NewestMessages(name, budget if base == RECENCY else None, **common)
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


def _made(
    one: Assembled | NewestMessages,
    turn: list[BaseMessage],
    before: Sequence[BaseMessage],
    *,
    number: int,
    counter: TokenCounter,
    tools: Sequence[Any],
    asked: Sequence[str],
) -> tuple[Turn, Sequence[BaseMessage]]:
    """Makes a prompt for each answer of a turn; returns their numbers, and the last prompt, which the next follows."""
    tools_tokens = counter.count_tools(tools)
    prompts, failures, costs, cached = list[ReplayedPrompt](), list[str](), list[int](), 0
    for place in _answers(turn):
        try:
            prompt = one.prompt(turn[:place])
        except (BudgetError, EmptyMessageError) as error:
            failures.append(f"turn {number}: {type(error).__name__}: {error}")
            continue
        parts = [counter.count_message(message) for message in prompt.messages]
        costs.append(tools_tokens + sum(parts) + counter.count_messages([]))
        cached += common_prefix(prompt.messages, parts, before, counter).tokens + (tools_tokens if before else 0)
        prompts.append(prompt)
        before = prompt.messages
    text = one_line("\n".join(message.text for message in before)) if prompts else ""
    numbers = Turn(
        number=number,
        calls=len(prompts),
        tokens=sum(costs),
        cached_tokens=cached,
        largest_tokens=max(costs, default=0),
        messages=prompts[-1].states if prompts else {},
        compaction_steps=sum(prompt.compaction_step for prompt in prompts),
        failures=tuple(failures),
        evidence=sum(one_line(said) in text for said in asked) / len(asked) if asked else None,
    )
    return numbers, before


# The numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """The prompts of one turn, together."""

    number: int
    calls: int
    """Prompts that were made: one for each answer, so several where a model calls tools."""
    tokens: int
    cached_tokens: int
    """The part of them that a prompt has in common with the one before it, from its start."""
    largest_tokens: int
    messages: Mapping[CoverageState, int]
    """States of the messages before the turn, in the last of its prompts."""
    compaction_steps: int
    failures: tuple[str, ...]
    evidence: float | None
    """The share of the named messages that stand in its last prompt, word by word."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Track:
    """The way of one strategy through a conversation: its turns, and their totals."""

    name: str
    budget_tokens: int | None
    """The most that a prompt may cost; None: no limit."""
    turns: tuple[Turn, ...]
    """Those in which an answer was given."""
    calls: int
    tokens: int
    cached_tokens: int
    cached_share: float
    effective_tokens: float
    """The tokens that are paid for; a cached one counts the price share."""
    cost: float | None
    """The price of all prompts in US dollars, without answers; None where it is not known."""
    message_shares: Mapping[CoverageState, float]
    """The states of earlier messages, as shares of all of them over all turns; all 0 where there were none."""
    compaction_steps: int
    """The number of times that the beginning of the prompt was rewritten."""
    largest_tokens: int
    failures: tuple[str, ...]
    evidence: float | None
    """The mean over the turns for which evidence was named."""


def _track(
    one: Assembled | NewestMessages, turns: Sequence[Turn], price_share: float, input_price: float | None
) -> Track:
    tokens, cached = sum(turn.tokens for turn in turns), sum(turn.cached_tokens for turn in turns)
    effective = effective_tokens(tokens, cached, price_share)
    states = {state: sum(turn.messages.get(state, 0) for turn in turns) for state in STATES}
    evidence = [turn.evidence for turn in turns if turn.evidence is not None]
    return Track(
        name=one.name,
        budget_tokens=one.budget,
        turns=tuple(turns),
        calls=sum(turn.calls for turn in turns),
        tokens=tokens,
        cached_tokens=cached,
        cached_share=cached / max(1, tokens),
        effective_tokens=effective,
        cost=None if input_price is None else effective * input_price / 1_000_000,
        message_shares={state: count / max(1, sum(states.values())) for state, count in states.items()},
        compaction_steps=sum(turn.compaction_steps for turn in turns),
        largest_tokens=max((turn.largest_tokens for turn in turns), default=0),
        failures=tuple(failure for turn in turns for failure in turn.failures),
        evidence=statistics.fmean(evidence) if evidence else None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayResult:
    """The numbers of several strategies over one conversation; equal for equal input."""

    messages: int
    budget_tokens: int
    price_share: float
    """The price of a cached token, as a share of one that is not."""
    tokenizer: str
    count_mode: str
    tracks: tuple[Track, ...]

    def track(self, name: str) -> Track:
        """Returns the track of one strategy."""
        if found := next((track for track in self.tracks if track.name == name), None):
            return found
        raise InputError(f"No strategy {name!r} was replayed; there are {', '.join(t.name for t in self.tracks)}")

    def to_dict(self) -> dict[str, Any]:
        """Returns plain data, ready for JSON, with the totals of every strategy."""
        data = asdict(self)
        return {**data, "strategies": data.pop("tracks")}

    def to_text(self) -> str:
        """Draws an aligned table: what each strategy sent and costs, and what became of earlier messages."""
        rows = [HEADINGS, *map(_cells, self.tracks)]
        shown = [place for place in range(len(HEADINGS)) if any(cells[place] for cells in rows[1:])]
        widths = [max(len(cells[place]) for cells in rows) for place in shown]
        sides = ["<", *">" * len(shown)]
        table = [
            "  ".join(f"{cells[at]:{side}{room}}" for at, room, side in zip(shown, widths, sides, strict=False))
            for cells in rows
        ]
        counts = f"{self.count_mode} counts ({self.tokenizer})"
        lines = [
            f"{self.messages:,} messages, {self.budget_tokens:,} tokens for a prompt; {counts}",
            f"cached: as in the prompt before, at {self.price_share:g} of the price",
            *("", table[0], "-" * len(table[0]), *table[1:]),
        ]
        for track in self.tracks:
            if failures := track.failures:
                told = (f"  {line}" for failure in failures[:MOST_FAILURES] for line in failure.splitlines())
                lines += [
                    "",
                    f"{_short(track.name)}: {len(failures):,} prompts could not be made, and cost nothing here.",
                ]
                lines += told
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.to_text()


def _cells(track: Track) -> list[str]:
    return [
        _short(track.name),
        f"{track.calls:,}",
        f"{track.tokens:,}",
        f"{track.cached_share:.0%}",
        f"{track.effective_tokens:,.0f}",
        "" if track.cost is None else f"{track.cost:,.4f}",
        f"{track.compaction_steps:,}",
        f"{track.message_shares['omitted']:.0%}",
        "" if track.evidence is None else f"{track.evidence:.0%}",
    ]


def _short(name: str) -> str:
    flat = " ".join(name.split())
    return flat if len(flat) <= LONGEST_NAME else f"{flat[: LONGEST_NAME - 1]}…"
