"""Goes through a conversation turn by turn with several strategies, and counts what each would have sent.

A turn is everything from a message of the user up to the next one. Before every answer in it a
prompt is made, as an application would have made it: from what was said before, and what the turn
has so far. Nothing is sent.
"""

import json
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from itertools import chain
from typing import Any, NamedTuple, TypeAlias

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
    checked,
    is_user,
    one_line,
    plain_text,
    split_instructions,
    time_of,
)
from langchain_ctxbudget.pipeline import ContextPipeline
from langchain_ctxbudget.prompt import common_prefix
from langchain_ctxbudget.report import STATES, CoverageState
from langchain_ctxbudget.settings import ContextSettings
from langchain_ctxbudget.tokens import (
    CACHED_PRICE,
    Price,
    TokenCounter,
    counter_for,
    effective_tokens,
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
        on_turn: called behind every turn with the strategy's name and the turn's number.

    Raises:
        InputError: nothing to replay, or an argument that cannot be.
    """
    instructions, said = split_instructions(checked(messages, "messages"))
    turns = split_turns(said)
    if not any(map(_answers, turns)):
        raise InputError(
            "Nothing to replay: the conversation has no answer of a model that follows a message"
        )
    if type(budget) is not int or budget < 1:
        raise InputError(f"budget must be at least 1 token, not {budget!r}")
    if unknown := sorted(set(evidence or ()) - set(range(1, len(turns) + 1))):
        raise InputError(
            f"evidence is for turns {unknown}, but the conversation has turns 1 to {len(turns)}"
        )
    options: dict[str, Any] = {
        "settings": settings,
        "embeddings": embeddings,
        "tools": tools,
        "model": model,
    }
    options["system_prompt"] = system_prompt or "\n\n".join(instructions)
    contenders = [contender(one, budget, **options) for one in strategies]
    names = [one.name for one in contenders]
    if not names or len(set(names)) < len(names):
        raise InputError(f"strategies must be at least one, each of them once, not {names}")
    counter = counter_for(model)
    texts = {message.id: one_line(plain_text(message)) for message in said}
    named = {
        number: [texts[one] for one in ids if one in texts]
        for number, ids in (evidence or {}).items()
    }
    share = CACHED_PRICE
    if price is not None and price.input:
        share = 1.0 if price.cached_input is None else price.cached_input / price.input
    tracks: list[Track] = []
    for one in contenders:
        with closing(one):
            tracks.append(
                _track(one.name, [*_turns(one, turns, named, counter, on_turn)], share, price)
            )
    return ReplayResult(
        messages=len(said),
        budget_tokens=budget,
        tracks=tuple(tracks),
        tokenizer=counter.name,
        count_mode=counter.mode,
        price_share=share,
    )


def split_turns(messages: Sequence[BaseMessage]) -> list[list[BaseMessage]]:
    """Splits a conversation into turns, each from a message of the user up to the next.

    One may precede these.
    """
    turns: list[list[BaseMessage]] = []
    for message in messages:
        if is_user(message) or not turns:
            turns.append([])
        turns[-1].append(message)
    return turns


def _answers(turn: Sequence[BaseMessage]) -> list[int]:
    """Returns the positions of the answers in a turn.

    One that the conversation begins with answers nothing.
    """
    return [place for place, message in enumerate(turn) if place and isinstance(message, AIMessage)]


class ReplayedPrompt(NamedTuple):
    """One prompt, and the states of the messages before its turn."""

    messages: Sequence[BaseMessage]
    states: Mapping[CoverageState, int]
    compaction_step: bool = False


class Assembled:
    """The package, as an application uses it.

    The clock stands at the time of the last message that tells its time, so that equal replays are
    equal.
    """

    def __init__(
        self,
        name: str,
        settings: ContextSettings,
        tools: Sequence[Any],
        **options: Any,  # noqa: ANN401
    ) -> None:
        self.name = name
        self.tools = tools
        self.time = datetime(2000, 1, 1, tzinfo=UTC)
        self.stored = 0
        own: dict[str, Any] = {
            "store": InMemoryStore(),
            "writer_id": "replay",
            "clock": lambda: self.time,
        }
        self.pipeline = ContextPipeline(settings, **own, **options)
        self.close = self.pipeline.close

    def prompt(self, history: Sequence[BaseMessage], turn: Sequence[BaseMessage]) -> ReplayedPrompt:
        """Stores the new part of the history, and assembles a prompt for the turn so far.

        A `BudgetError` or `EmptyMessageError` says why it cannot.
        """
        new = history[self.stored :]
        self.stored = len(history)
        self.time = max([self.time, *filter(None, map(time_of, (*new, turn[0])))])
        self.pipeline.add_messages(new, **SCOPE)
        if new and self.pipeline.settings.learn:
            self.pipeline.flush()  # or what is learned by now is a matter of luck
        context = self.pipeline.assemble(turn, tools=self.tools, **SCOPE)
        report = context.report
        return ReplayedPrompt(
            context.messages, report.coverage_counts(), report.stability.compaction_step
        )


class NewestMessages:
    """The newest messages that fit, as LangChain's `trim_messages` gives them with an exact counter; or all of them."""

    def __init__(
        self,
        name: str,
        budget: int | None,
        *,
        system_prompt: str,
        tools: Sequence[Any],
        model: str | None,
    ) -> None:
        self.name, self.tools, self.counter = name, tools, counter_for(model)
        self.room = None if budget is None else max(0, budget - self.counter.count_tools(tools))
        self.system = [SystemMessage(system_prompt)] if system_prompt else []

    def prompt(self, history: Sequence[BaseMessage], turn: Sequence[BaseMessage]) -> ReplayedPrompt:
        """Returns as much as fits of everything so far."""
        messages: list[BaseMessage] = [*self.system, *history, *turn]
        if self.room is not None:
            messages = trim_messages(
                messages,
                max_tokens=self.room,
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
) -> Assembled | NewestMessages:
    """Returns the maker of a strategy's prompts; the arguments are those of `replay`."""
    common: dict[str, Any] = {"system_prompt": system_prompt, "tools": tools, "model": model}
    own: Mapping[str, Any]
    if isinstance(strategy, Mapping):
        said = (
            f"{key}={value if isinstance(value, str) else json.dumps(value)}"
            for key, value in strategy.items()
        )
        is_allocation = "strategy" in strategy
        name = strategy_of(strategy).name if is_allocation else ", ".join(said) or "elastic"
        own = {"allocation": strategy} if is_allocation else strategy
    else:
        base, at, other = strategy.strip().partition("@")
        if base not in NAMES or (at and not other.isdecimal()):
            known = (
                f"{', '.join(NAMES)}, each also with another budget (recency@4000), and settings"
            )
            raise InvalidSettingsError(
                f"There is no strategy {strategy!r} to replay; there are {known}"
            )
        budget = int(other) if at else budget
        name = f"{base}@{budget}" if at else base
        own = {"emphasis" if base in EMPHASES else "allocation": base}
        if base in (RECENCY, FULL):
            return NewestMessages(name, budget if base == RECENCY else None, **common)
    asked = (
        settings.chosen if isinstance(settings, ContextSettings) else settings
    )  # its defaults are not a replay's
    below = ContextSettings(learn=False, cache_lifetime_seconds=WARM_SECONDS).override(asked)
    return Assembled(
        name, below.override({"max_context_tokens": budget, **own}), embeddings=embeddings, **common
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """The prompts that were sent: for one answer, in one turn, or in all of them."""

    calls: int = 0
    """Prompts that were made: one for each answer, so several in a turn where a model calls
    tools."""
    tokens: int = 0
    cached_tokens: int = 0
    """The part of them that a prompt has in common with the one before it, from its start."""
    largest_tokens: int = 0
    compaction_steps: int = 0
    """The number of times that the beginning of the prompt was rewritten."""
    failures: tuple[str, ...] = ()


def _together(parts: Sequence[Sent]) -> dict[str, Any]:
    """Returns the fields of everything that was sent."""
    summed = ("calls", "tokens", "cached_tokens", "compaction_steps")
    return {
        **{name: sum(getattr(part, name) for part in parts) for name in summed},
        "largest_tokens": max(part.largest_tokens for part in parts),
        "failures": tuple(chain.from_iterable(part.failures for part in parts)),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn(Sent):
    """The prompts of one turn, together."""

    number: int
    messages: Mapping[CoverageState, int]
    """States of the messages before the turn, in the last of its prompts."""
    evidence: float | None
    """The share of the named messages that stand in its last prompt, word by word."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Track(Sent):
    """The way of one strategy through a conversation.

    The turns in which an answer was given, and their totals.
    """

    name: str
    turns: tuple[Turn, ...]
    cached_share: float
    effective_tokens: float
    """The tokens that are paid for; a cached one counts the price share."""
    cost: float | None
    """The price of all prompts in US dollars, without answers; None where it is not known."""
    message_shares: Mapping[CoverageState, float]
    """The states of earlier messages, as shares of all of them over all turns; all 0 where there
    were none."""
    evidence: float | None
    """The mean over the turns for which evidence was named."""


def _turns(
    one: Assembled | NewestMessages,
    turns: Iterable[Sequence[BaseMessage]],
    named: Mapping[int, Sequence[str]],
    counter: TokenCounter,
    on_turn: Callable[[str, int], None] | None,
) -> Iterator[Turn]:
    """Makes a prompt for every answer, and yields the turns that have answers."""
    tools_tokens = counter.count_tools(one.tools)
    history: list[BaseMessage] = []
    before: Sequence[BaseMessage] = ()
    for number, turn in enumerate(turns, 1):
        sent: list[Sent] = []
        prompt = ReplayedPrompt((), {})
        for place in _answers(turn):
            try:
                prompt = one.prompt(history, turn[:place])
            except (BudgetError, EmptyMessageError) as error:
                sent.append(Sent(failures=(f"turn {number}: {type(error).__name__}: {error}",)))
                continue
            costs = [counter.count_message(message) for message in prompt.messages]
            tokens = tools_tokens + sum(costs) + counter.count_messages([])
            shared, _ = common_prefix(prompt.messages, costs, before, counter)
            cached = shared + (tools_tokens if before else 0)
            steps = int(prompt.compaction_step)
            sent += [
                Sent(
                    calls=1,
                    tokens=tokens,
                    cached_tokens=cached,
                    largest_tokens=tokens,
                    compaction_steps=steps,
                )
            ]
            before = prompt.messages
        if sent:
            asked = named.get(number)
            text = one_line("\n".join(message.text for message in prompt.messages))
            evidence = sum(said in text for said in asked) / len(asked) if asked else None
            yield Turn(**_together(sent), number=number, messages=prompt.states, evidence=evidence)
        history += turn
        if on_turn:
            on_turn(one.name, number)


def _track(name: str, turns: Sequence[Turn], price_share: float, price: Price | None) -> Track:
    sent = Sent(**_together(turns))
    effective = effective_tokens(sent.tokens, sent.cached_tokens, price_share)
    states = {state: sum(turn.messages.get(state, 0) for turn in turns) for state in STATES}
    evidence = [turn.evidence for turn in turns if turn.evidence is not None]
    return Track(
        **asdict(sent),
        name=name,
        turns=tuple(turns),
        cached_share=sent.cached_tokens / max(1, sent.tokens),
        effective_tokens=effective,
        cost=None if price is None else effective * price.input / 1_000_000,
        message_shares={
            state: count / max(1, sum(states.values())) for state, count in states.items()
        },
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
        raise InputError(
            f"No strategy {name!r} was replayed; there are {', '.join(t.name for t in self.tracks)}"
        )

    def to_dict(self) -> dict[str, Any]:
        """Returns plain data, ready for JSON, with the totals of every strategy."""
        data = asdict(self)
        return {**data, "strategies": data.pop("tracks")}

    def to_text(self) -> str:
        """Draws an aligned table.

        What each strategy sent and costs, and what became of earlier messages.
        """
        rows = [_row(track) for track in self.tracks]
        columns = [heading for heading in rows[0] if any(row[heading] for row in rows)]
        table = [columns, *([row[heading] for heading in columns] for row in rows)]
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        drawn = [
            "  ".join(
                f"{cell:{'>' if place else '<'}{widths[place]}}" for place, cell in enumerate(line)
            )
            for line in table
        ]
        counts = f"{self.count_mode} counts ({self.tokenizer})"
        lines = [
            f"{self.messages:,} messages, {self.budget_tokens:,} tokens for a prompt; {counts}",
            f"cached: as in the prompt before, at {self.price_share:g} of the price",
            *("", drawn[0], "-" * len(drawn[0]), *drawn[1:]),
        ]
        for track in self.tracks:
            if track.failures:
                missing = f"{len(track.failures):,} prompts could not be made, and cost nothing here; the first:"
                lines += ["", f"{track.name}: {missing}", track.failures[0]]
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.to_text()


def _row(track: Track) -> dict[str, str]:
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
