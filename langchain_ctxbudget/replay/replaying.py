"""Goes through a conversation turn by turn with several strategies, and counts what each would have sent.

A turn is everything from a message of the user up to the next one. Before every answer in it a prompt is made, as an
application would have made it: from what was said before, and what the turn has so far. Nothing is sent.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from langchain_core.embeddings import Embeddings
from langchain_core.messages import AIMessage, BaseMessage

from langchain_ctxbudget.errors import BudgetError, EmptyMessageError, InputError
from langchain_ctxbudget.messages.calls import is_user
from langchain_ctxbudget.messages.messages import checked, plain_text, split_instructions
from langchain_ctxbudget.messages.text import one_line
from langchain_ctxbudget.prompt.prefix import common_prefix
from langchain_ctxbudget.replay.result import ReplayResult, Track, Turn
from langchain_ctxbudget.replay.strategies import Assembled, Options, Prompt, Strategy, Window, contender
from langchain_ctxbudget.settings import ContextSettings
from langchain_ctxbudget.tokens.counters import TokenCounter, counter_for
from langchain_ctxbudget.tokens.prices import Price

DEFAULT_STRATEGIES = ("elastic", "recency", "ratio", "prioritized")
PRICE_SHARE = 0.1
"""The price of a cached token at a provider, as a share of one that it reads."""

OnTurn = Callable[[str, int], None]
"""Told the strategy and the number of the turn that it has just gone through."""


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
    min_cached_tokens: int = 0,
    evidence: Mapping[int, Iterable[str]] | None = None,
    first_turn: int = 1,
    on_turn: OnTurn | None = None,
) -> ReplayResult:
    """Goes through a conversation with each of several strategies, each with a store of its own, and count.

    Args:
        messages: the conversation, oldest message first.
        strategies: names, or settings. An allocation strategy (`"elastic"`, `"ratio"`, `"fixed"`, `"dynamic"`,
            `"prioritized"`, or a mapping such as `{"strategy": "ratio", "borrow": True}`); an emphasis (`"recall"`,
            `"cache"`); a usage tier (`"caution"`, `"warning"`, `"critical"`); `"recency"` (LangChain's `trim_messages`,
            the newest messages that fit); `"full"` (the whole history, no limit); or a mapping of any other settings.
            A number behind a name is another budget: `"recency@4000"`.
        budget: the most that a prompt may cost, in tokens.
        system_prompt: of every prompt; default: the system messages that the conversation begins with.
        tools: sent with every prompt of every strategy.
        model: counts are this model's, prompts are within its window; default: o200k_base, no window.
        settings: of the package's strategies, below their own. Nothing is learned unless they say `"learn": True`.
        embeddings: for retrieval; default: the package's own.
        price_share: the price of a cached token, as a share of one that is not; default: the price's, else 0.1.
        price: of the model, so that costs are told in US dollars, too.
        min_cached_tokens: a common prefix below this counts as not cached (OpenAI caches from 1,024 on).
        evidence: ids of the messages that a turn is about, by the turn's number.
        first_turn: prompts are made from this turn on; what comes before it is only stored.
        on_turn: called behind every turn with the strategy's name and the turn's number.

    Raises:
        InputError: nothing to replay, a strategy that is not known or named twice, a share that is none, evidence
            for a turn or with a message that does not exist.
    """
    instructions, said = split_instructions(checked(messages, "messages"))
    turns = split_turns(said)
    if not any(map(_answers, turns[max(0, first_turn - 1) :])):
        raise InputError("Nothing to replay: the conversation has no answer of a model that follows a message")
    if price_share is None:
        price_share = _cached_price_share(price)
    _require_numbers(budget, price_share, min_cached_tokens)
    named = _evidence(evidence or {}, said, len(turns))
    prompt = system_prompt or "\n\n".join(instructions)
    options = Options(prompt, tools=tools, model=model, settings=settings, embeddings=embeddings)
    contenders = [contender(one, budget, options) for one in strategies]
    names = [one.name for one in contenders]
    if not names or len(set(names)) < len(names):
        raise InputError(f"strategies must be at least one, each of them once, not {names}")
    counter = counter_for(model)
    tracks: list[Track] = []
    for one in contenders:
        run = _Run(one, counter, counter.count_tools(tools), min_cached_tokens)
        done: list[Turn] = []
        with one:
            for number, turn in enumerate(turns, start=1):
                if number < first_turn:
                    one.keep(turn)
                elif gone := run.through(number, turn, named.get(number)):
                    done.append(gone)
                if on_turn:
                    on_turn(one.name, number)
        tracks.append(Track(name=one.name, budget_tokens=one.budget, price_share=price_share, turns=tuple(done)))
    return ReplayResult(
        messages=len(said),
        budget_tokens=budget,
        price_share=price_share,
        min_cached_tokens=min_cached_tokens,
        tokenizer=counter.name,
        count_mode=counter.mode,
        input_price=None if price is None else price.input,
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


@dataclass(slots=True)
class _Run:
    """One strategy on its way through a conversation."""

    contender: Assembled | Window
    counter: TokenCounter
    """Counts what is sent; the strategies have counters of their own, so that none is faster for another's work."""
    tools_tokens: int
    """The cost of everything before the messages of every prompt."""
    min_cached_tokens: int
    before: Sequence[BaseMessage] = ()
    """The last prompt."""
    costs: Mapping[int, int] = field(default_factory=dict)
    """Tokens of its messages by their identity in memory: a long history is not counted again."""

    def through(self, number: int, turn: list[BaseMessage], asked: Sequence[BaseMessage] | None) -> Turn | None:
        """Makes the prompts of a turn, then stores it; None where it has no prompt."""
        started, counting_time = time.perf_counter(), 0.0
        told: Prompt | None = None
        tokens: list[int] = []
        failures: list[str] = []
        cached = steps = without = 0
        places = _answers(turn)
        for place in places:
            so_far = turn[:place]
            try:
                told = self.contender.prompt(so_far)
            except (BudgetError, EmptyMessageError) as error:
                failures.append(f"turn {number}: {type(error).__name__}: {error}")
                continue
            counting = time.perf_counter()
            costs = [self.costs.get(id(message)) or self.counter.count_message(message) for message in told.messages]
            shared = common_prefix(told.messages, costs, self.before, self.counter).tokens
            shared += self.tools_tokens if self.before else 0
            cached += shared if shared >= self.min_cached_tokens else 0
            tokens.append(self.tools_tokens + sum(costs) + self.counter.count_messages([]))
            steps += told.compaction_step
            without += not _has(told.messages, so_far)
            self.before = told.messages
            self.costs = {id(message): cost for message, cost in zip(told.messages, costs, strict=True)}
            counting_time += time.perf_counter() - counting
        self.contender.keep(turn)
        ms = (time.perf_counter() - started - counting_time) * 1000
        if not places:
            return None
        return Turn(
            number=number,
            calls=len(tokens),
            tokens=sum(tokens),
            cached_tokens=cached,
            largest_tokens=max(tokens, default=0),
            messages=told.states if told else {},
            compaction_steps=steps,
            without_question=without,
            failures=tuple(failures),
            evidence=_found(told.messages if told else (), asked) if asked is not None else None,
            ms=ms,
        )


def _has(prompt: Sequence[BaseMessage], turn: Sequence[BaseMessage]) -> bool:
    """Returns True where a prompt has the first message of its turn, among its last, with or without context."""
    question = turn[0].text if turn else ""
    return not question or any(question in message.text for message in prompt[-len(turn) :])


def _found(prompt: Sequence[BaseMessage], asked: Sequence[BaseMessage]) -> float | None:
    """Returns the share of messages that stand in a prompt word by word, white space aside."""
    if not asked:
        return None
    text = one_line("\n".join(message.text for message in prompt))
    return sum(one_line(plain_text(message)) in text for message in asked) / len(asked)


def _cached_price_share(price: Price | None) -> float:
    if price is None or not price.input:
        return PRICE_SHARE
    return 1.0 if price.cached_input is None else price.cached_input / price.input


def _evidence(
    evidence: Mapping[int, Iterable[str]], messages: Sequence[BaseMessage], turns: int
) -> dict[int, list[BaseMessage]]:
    """Returns the messages that each turn is about."""
    if unknown := sorted(set(evidence) - set(range(1, turns + 1))):
        raise InputError(f"evidence is for turns {unknown}, but the conversation has turns 1 to {turns}")
    named = {number: tuple(ids) for number, ids in evidence.items()}
    known = {message.id for message in messages}
    if strangers := dict.fromkeys(one for ids in named.values() for one in ids if one not in known):
        raise InputError(f"evidence: the conversation has no messages {', '.join(map(repr, strangers))}")
    return {number: [message for message in messages if message.id in ids] for number, ids in named.items()}


def _require_numbers(budget: int, price_share: float, min_cached_tokens: int) -> None:
    for rule, value, sound in (
        ("budget must be at least 1 token", budget, budget >= 1),
        ("price_share must be from 0 to 1", price_share, 0 <= price_share <= 1),
        ("min_cached_tokens must be at least 0", min_cached_tokens, min_cached_tokens >= 0),
    ):
        if not sound:
            raise InputError(f"{rule}, not {value!r}")
