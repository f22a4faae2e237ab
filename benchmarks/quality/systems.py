"""The systems: this package, a window of recent messages, and turns in the order of a ranking."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from functools import lru_cache
from importlib import import_module
from itertools import groupby
from typing import Any, ClassVar

import numpy as np
from langchain_core.messages import BaseMessage, HumanMessage, SystemMessage, trim_messages
from numpy.typing import NDArray

from langchain_ctxbudget import ContextPipeline, LocalEmbeddings
from langchain_ctxbudget.messages import terms
from quality.data import Turn
from quality.scoring import count

SYSTEM_PROMPT = "You are a helpful assistant."
USER = "benchmark"
UNDATED = "undated"
RRF = 60
"""The usual constant of reciprocal rank fusion."""


class System(ABC):
    """What puts a prompt together for one conversation, at every budget that is asked for."""

    name: ClassVar[str]
    install: ClassVar[str] = ""
    """What `pip install` needs for it, beyond this package."""

    def __init__(self, budgets: Sequence[int]) -> None:
        self.budgets = budgets

    @abstractmethod
    def add(self, turns: Sequence[Turn]) -> None:
        """Take the next turns of the conversation."""

    @abstractmethod
    def assemble(self, question: str, budget: int) -> Sequence[BaseMessage]:
        """A prompt for the question of at most `budget` tokens."""

    def close(self) -> None:  # noqa: B027 - most have nothing to release
        """Release what it holds."""


class CtxBudget(System):
    """This package with its defaults, asked after a pause.

    No system's prompts go on where the last one ended.
    """

    name = "ctxbudget"

    def __init__(self, budgets: Sequence[int]) -> None:
        super().__init__(budgets)
        self.pipelines = {
            budget: ContextPipeline(
                {"max_context_tokens": budget, "cache_lifetime_seconds": 0},
                system_prompt=SYSTEM_PROMPT,
            )
            for budget in budgets
        }

    def add(self, turns: Sequence[Turn]) -> None:
        for pipeline in self.pipelines.values():
            pipeline.add_messages(
                [turn.message for turn in turns], user_id=USER, conversation_id=USER
            )

    def assemble(self, question: str, budget: int) -> Sequence[BaseMessage]:
        return (
            self.pipelines[budget].assemble(question, user_id=USER, conversation_id=USER).messages
        )

    def close(self) -> None:
        for pipeline in self.pipelines.values():
            pipeline.close()


class Recency(System):
    """`trim_messages` with an exact counter; counts are kept, so that it is faster than usual."""

    name = "trim_messages"

    def __init__(self, budgets: Sequence[int]) -> None:
        super().__init__(budgets)
        self.messages: list[BaseMessage] = [SystemMessage(SYSTEM_PROMPT)]

    def add(self, turns: Sequence[Turn]) -> None:
        self.messages += [turn.message for turn in turns]

    def assemble(self, question: str, budget: int) -> Sequence[BaseMessage]:
        return trim_messages(
            [*self.messages, HumanMessage(question)],
            max_tokens=budget,
            token_counter=counted,
            strategy="last",
            start_on="human",
            include_system=True,
        )


def counted(messages: list[BaseMessage]) -> int:
    """The same as `count`: a prompt costs the sum of its messages and what it costs by itself."""
    empty = count([])
    return empty + sum(
        _message_tokens(type(message), message.text, message.name) - empty for message in messages
    )


@lru_cache(maxsize=50_000)
def _message_tokens(kind: type[BaseMessage], text: str, name: str | None) -> int:
    return count([kind(content=text, name=name)])


class Snippets(System):
    """Whole turns under their dates, best first, skipping what does not fit.

    A budget filled as well as it can be.

    A subclass only ranks.
    """

    def __init__(self, budgets: Sequence[int]) -> None:
        super().__init__(budgets)
        self.turns: list[Turn] = []

    def add(self, turns: Sequence[Turn]) -> None:
        self.turns += turns
        self.index(turns)

    @abstractmethod
    def index(self, turns: Sequence[Turn]) -> None:
        """Take the next turns into the index; they are the last ones of `self.turns`."""

    @abstractmethod
    def ranked(self, question: str, limit: int) -> Iterable[int]:
        """Places of turns, best first; `limit` are more than fit."""

    def assemble(self, question: str, budget: int) -> Sequence[BaseMessage]:
        left = budget - count(_prompt(question, []))
        chosen: list[int] = []
        dates: set[str] = set()
        for place in self.ranked(question, min(len(self.turns), max(50, budget // 8))):
            turn = self.turns[place]
            tokens = _line_tokens(turn.line) + (
                0 if turn.date in dates else _line_tokens(f"[{turn.date or UNDATED}]")
            )
            if tokens <= left:
                chosen.append(place)
                dates.add(turn.date)
                left -= tokens
        while chosen and count(prompt := _prompt(question, self.lines(chosen))) > budget:
            chosen.pop()  # tokens may join across lines
        return prompt if chosen else _prompt(question, [])

    def lines(self, chosen: Sequence[int]) -> list[str]:
        """Turns in the order of time, each day's under its date."""
        days = groupby(
            (self.turns[place] for place in sorted(chosen)), key=lambda turn: turn.date or UNDATED
        )
        return [
            line for date, turns in days for line in (f"[{date}]", *(turn.line for turn in turns))
        ]


def _prompt(question: str, lines: Sequence[str]) -> list[BaseMessage]:
    return [
        SystemMessage("\n".join([SYSTEM_PROMPT, "", "Relevant messages from the past:", *lines])),
        HumanMessage(question),
    ]


@lru_cache(maxsize=50_000)
def _line_tokens(line: str) -> int:
    return count([HumanMessage(f"{line}\n")]) - count([HumanMessage("")])


class Bm25(Snippets):
    """Okapi BM25 over stemmed words, without stop words."""

    name = "bm25"
    install = "rank-bm25>=0.2.2,<1"

    def __init__(self, budgets: Sequence[int]) -> None:
        super().__init__(budgets)
        self.okapi = import_module("rank_bm25").BM25Okapi
        self.terms: list[list[str]] = []
        self.fitted: Any = None

    def index(self, turns: Sequence[Turn]) -> None:
        self.terms += [terms(turn.line) for turn in turns]
        self.fitted = self.okapi(self.terms)

    def ranked(self, question: str, limit: int) -> Iterable[int]:
        return map(int, np.argsort(-self.fitted.get_scores(terms(question)), kind="stable")[:limit])


class Dense(Snippets):
    """The nearest turns by the cosine of `LocalEmbeddings`."""

    name = "dense"

    def __init__(self, budgets: Sequence[int]) -> None:
        super().__init__(budgets)
        self.embeddings = LocalEmbeddings()
        self.vectors = np.zeros((0, self.embeddings.dimensions))

    def index(self, turns: Sequence[Turn]) -> None:
        new = self.embeddings.embed_documents([turn.line for turn in turns])
        self.vectors = np.vstack([self.vectors, new])

    def ranked(self, question: str, limit: int) -> Iterable[int]:
        scores = self.vectors @ np.array(self.embeddings.embed_query(question))
        return map(int, np.argsort(-scores, kind="stable")[:limit])


class Fused(Snippets):
    """BM25 and dense, by reciprocal rank fusion."""

    name = "bm25+dense"
    install = Bm25.install

    def __init__(self, budgets: Sequence[int]) -> None:
        super().__init__(budgets)
        self.parts = (Bm25(budgets), Dense(budgets))

    def index(self, turns: Sequence[Turn]) -> None:
        for part in self.parts:
            part.add(turns)

    def scores(self, question: str) -> NDArray[np.float64]:
        """What every turn is worth."""
        scores = np.zeros(len(self.turns))
        for part in self.parts:
            scores[[*part.ranked(question, len(self.turns))]] += 1 / (
                RRF + 1 + np.arange(len(self.turns))
            )
        return scores

    def ranked(self, question: str, limit: int) -> Iterable[int]:
        return map(int, np.argsort(-self.scores(question), kind="stable")[:limit])


class FusedPerCost(Fused):
    """The same, divided by the square root of what a turn costs.

    The plainest that knows of a budget.
    """

    name = "bm25+dense / sqrt(cost)"

    def scores(self, question: str) -> NDArray[np.float64]:
        return super().scores(question) / np.sqrt([_line_tokens(turn.line) for turn in self.turns])
