"""The numbers of a replay: what each strategy sent, turn by turn, and what that adds up to."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from langchain_ctxbudget.core.report import CoverageState
from langchain_ctxbudget.errors import InputError
from langchain_ctxbudget.reporting.replay_text import render_replay

STATES: tuple[CoverageState, ...] = ("verbatim", "retrieved", "summarized", "omitted")


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """The prompts of one turn, together."""

    number: int
    """Which turn of the conversation it is, from 1."""
    calls: int
    """Prompts that were made: one for each answer, so several where a model calls tools."""
    tokens: int
    cached_tokens: int
    """Of these, what a prompt has in common with the one before it, from its start."""
    largest_tokens: int
    """The largest of the prompts."""
    messages: Mapping[CoverageState, int]
    """What became of the messages before the turn, in the last of its prompts."""
    compaction_steps: int
    without_question: int
    """Prompts that do not have the message that they are to answer."""
    failures: tuple[str, ...]
    """Why prompts could not be made."""
    evidence: float | None
    """The share of the messages which the turn is about that stand in its last prompt, word by word."""
    ms: float = field(compare=False)
    """What it took to make the prompts and to store the turn, in milliseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Track:
    """What one strategy did with a conversation."""

    name: str
    budget_tokens: int | None
    """What a prompt may cost; None: no limit."""
    price_share: float
    turns: tuple[Turn, ...]
    """Those in which an answer was given."""

    @property
    def calls(self) -> int:
        """Prompts that were made."""
        return sum(turn.calls for turn in self.turns)

    @property
    def tokens(self) -> int:
        """Of all prompts."""
        return sum(turn.tokens for turn in self.turns)

    @property
    def cached_tokens(self) -> int:
        """Of these, what prompts have in common with the ones before them."""
        return sum(turn.cached_tokens for turn in self.turns)

    @property
    def cached_share(self) -> float:
        """The share of all tokens that a provider's cache has."""
        return self.cached_tokens / self.tokens if self.tokens else 0.0

    @property
    def effective_tokens(self) -> float:
        """What is paid for, in tokens that no cache has: a cached one counts `price_share`."""
        return sum(self.costs)

    @property
    def effective_per_prompt(self) -> float | None:
        """The mean over the prompts that were made, as a prompt that could not be made costs nothing; None: of none."""
        return self.effective_tokens / self.calls if self.calls else None

    @property
    def costs(self) -> list[float]:
        """The effective tokens of every turn."""
        return [turn.tokens - (1 - self.price_share) * turn.cached_tokens for turn in self.turns]

    @property
    def largest_tokens(self) -> int:
        """The largest prompt."""
        return max((turn.largest_tokens for turn in self.turns), default=0)

    @property
    def message_shares(self) -> dict[CoverageState, float]:
        """What became of earlier messages, as shares of all of them over all turns; all 0 where there were none."""
        counts = {state: sum(turn.messages.get(state, 0) for turn in self.turns) for state in STATES}
        return {state: count / max(1, sum(counts.values())) for state, count in counts.items()}

    @property
    def compaction_steps(self) -> int:
        """How often what a prompt begins with was rewritten."""
        return sum(turn.compaction_steps for turn in self.turns)

    @property
    def without_question(self) -> int:
        """Prompts that do not have the message that they are to answer."""
        return sum(turn.without_question for turn in self.turns)

    @property
    def failures(self) -> tuple[str, ...]:
        """Why prompts could not be made, one each."""
        return tuple(failure for turn in self.turns for failure in turn.failures)

    @property
    def evidence(self) -> float | None:
        """The mean over the turns for which evidence was named."""
        return (
            statistics.fmean(found) if (found := [t.evidence for t in self.turns if t.evidence is not None]) else None
        )

    @property
    def median_ms(self) -> float:
        """Milliseconds per turn."""
        return statistics.median(turn.ms for turn in self.turns) if self.turns else 0.0

    @property
    def slowest_ms(self) -> float:
        """Milliseconds of the slowest turn."""
        return max((turn.ms for turn in self.turns), default=0.0)

    def to_dict(self) -> dict[str, Any]:
        """Totals and turns as plain data, ready for JSON."""
        return {
            "name": self.name,
            "budget_tokens": self.budget_tokens,
            "calls": self.calls,
            "tokens": self.tokens,
            "cached_tokens": self.cached_tokens,
            "cached_share": self.cached_share,
            "effective_tokens": self.effective_tokens,
            "effective_per_prompt": self.effective_per_prompt,
            "largest_tokens": self.largest_tokens,
            "message_shares": self.message_shares,
            "compaction_steps": self.compaction_steps,
            "without_question": self.without_question,
            "failures": list(self.failures),
            "evidence": self.evidence,
            "median_ms": self.median_ms,
            "slowest_ms": self.slowest_ms,
            "turns": [asdict(turn) | {"failures": list(turn.failures)} for turn in self.turns],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayResult:
    """What several strategies did with one conversation; equal for equal input, timings aside.

    Example:
        >>> from langchain_core.messages import AIMessage, HumanMessage
        >>> from langchain_ctxbudget.replay import replay
        >>> said = [HumanMessage("Hello"), AIMessage("Hello, Ada!"), HumanMessage("Who am I?"), AIMessage("Ada.")]
        >>> result = replay(said, ["full"], budget=1_000)
        >>> [(turn.tokens, turn.cached_tokens) for turn in result.track("full").turns]
        [(8, 0), (24, 5)]
    """

    messages: int
    """How many the conversation has."""
    budget_tokens: int
    price_share: float
    """What a cached token costs, as a share of one that is not."""
    min_cached_tokens: int
    """A shorter common prefix was not counted as cached."""
    tokenizer: str
    count_mode: str
    input_price: float | None
    """US dollars for a million tokens that no cache has; None: not known."""
    tracks: tuple[Track, ...]

    def track(self, name: str) -> Track:
        """What one strategy did.

        Raises:
            InputError: it is not among them.
        """
        if found := next((track for track in self.tracks if track.name == name), None):
            return found
        raise InputError(f"No strategy {name!r} was replayed; there are {', '.join(t.name for t in self.tracks)}")

    def to_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON."""
        return {
            "messages": self.messages,
            "budget_tokens": self.budget_tokens,
            "price_share": self.price_share,
            "min_cached_tokens": self.min_cached_tokens,
            "tokenizer": self.tokenizer,
            "count_mode": self.count_mode,
            "input_price": self.input_price,
            "strategies": [track.to_dict() | {"cost": self.cost_of(track)} for track in self.tracks],
        }

    def cost_of(self, track: Track) -> float | None:
        """What the prompts of a strategy cost, in US dollars; None where no price is known. Answers are not in it."""
        return None if self.input_price is None else track.effective_tokens * self.input_price / 1_000_000

    def to_text(self) -> str:
        """An aligned table."""
        return render_replay(self.to_dict())

    def __str__(self) -> str:
        return self.to_text()
