"""The numbers of a replay, by strategy and turn, and the table that shows them."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from langchain_ctxbudget.errors import InputError
from langchain_ctxbudget.report import STATES, CoverageState
from langchain_ctxbudget.tokens import effective_tokens

LONGEST_NAME = 24
"""Characters; a longer name is cut."""
MOST_FAILURES = 3
"""Prompts that could not be made of which the reason is told, per strategy."""
MISSING = "* Prompts are missing, which cost nothing: compare what a prompt that was made costs."


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """The prompts of one turn, together."""

    number: int
    """Its place in the conversation, from 1."""
    calls: int
    """Prompts that were made: one for each answer, so several where a model calls tools."""
    tokens: int
    cached_tokens: int
    """The part of them that a prompt has in common with the one before it, from its start."""
    largest_tokens: int
    """The largest of the prompts."""
    messages: Mapping[CoverageState, int]
    """States of the messages before the turn, in the last of its prompts."""
    compaction_steps: int
    failures: tuple[str, ...]
    """The reasons of prompts that could not be made."""
    evidence: float | None
    """The share of the named messages that stand in its last prompt, word by word."""
    ms: float = field(compare=False)
    """The time to make the prompts and to store the turn, in milliseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Track:
    """The way of one strategy through a conversation: its turns, and their totals."""

    name: str
    budget_tokens: int | None
    """The most that a prompt may cost; None: no limit."""
    turns: tuple[Turn, ...]
    """Those in which an answer was given."""
    calls: int
    """Prompts that were made."""
    tokens: int
    cached_tokens: int
    cached_share: float
    """The share of all tokens that a provider's cache has."""
    effective_tokens: float
    """The tokens that are paid for; a cached one counts `price_share`."""
    effective_per_prompt: float | None
    """The mean over the prompts that were made; None: of none."""
    largest_tokens: int
    """The largest prompt."""
    message_shares: Mapping[CoverageState, float]
    """The states of earlier messages, as shares of all of them over all turns; all 0 where there were none."""
    compaction_steps: int
    """The number of times that the beginning of the prompt was rewritten."""
    failures: tuple[str, ...]
    evidence: float | None
    """The mean over the turns for which evidence was named."""
    median_ms: float = field(compare=False)
    """Milliseconds per turn."""
    cost: float | None
    """The price of all prompts in US dollars, without answers; None where it is not known."""

    @classmethod
    def of(
        cls, name: str, budget: int | None, turns: Sequence[Turn], *, price_share: float, input_price: float | None
    ) -> Track:
        """Adds up the turns of a strategy; `input_price` is US dollars for a million tokens that no cache has."""
        tokens, cached = sum(turn.tokens for turn in turns), sum(turn.cached_tokens for turn in turns)
        calls, effective = sum(turn.calls for turn in turns), effective_tokens(tokens, cached, price_share)
        counts = {state: sum(turn.messages.get(state, 0) for turn in turns) for state in STATES}
        evidence = [turn.evidence for turn in turns if turn.evidence is not None]
        return cls(
            name=name,
            budget_tokens=budget,
            turns=tuple(turns),
            calls=calls,
            tokens=tokens,
            cached_tokens=cached,
            cached_share=cached / max(1, tokens),
            effective_tokens=effective,
            effective_per_prompt=effective / calls if calls else None,
            largest_tokens=max((turn.largest_tokens for turn in turns), default=0),
            message_shares={state: count / max(1, sum(counts.values())) for state, count in counts.items()},
            compaction_steps=sum(turn.compaction_steps for turn in turns),
            failures=tuple(failure for turn in turns for failure in turn.failures),
            evidence=statistics.fmean(evidence) if evidence else None,
            median_ms=statistics.median(turn.ms for turn in turns) if turns else 0.0,
            cost=None if input_price is None else effective * input_price / 1_000_000,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayResult:
    """The numbers of several strategies over one conversation; equal for equal input, timings aside.

    Example:
        >>> from langchain_core.messages import AIMessage, HumanMessage
        >>> from langchain_ctxbudget.replay import replay
        >>> said = [HumanMessage("Hello"), AIMessage("Hello, Ada!"), HumanMessage("Who am I?"), AIMessage("Ada.")]
        >>> result = replay(said, ["full"], budget=1_000)
        >>> [(turn.tokens, turn.cached_tokens) for turn in result.track("full").turns]
        [(8, 0), (24, 5)]
    """

    messages: int
    """The number of messages in the conversation."""
    budget_tokens: int
    price_share: float
    """The price of a cached token, as a share of one that is not."""
    tokenizer: str
    count_mode: str
    input_price: float | None
    """US dollars for a million tokens that no cache has; None: not known."""
    tracks: tuple[Track, ...]

    def track(self, name: str) -> Track:
        """Returns the track of one strategy."""
        if found := next((track for track in self.tracks if track.name == name), None):
            return found
        raise InputError(f"No strategy {name!r} was replayed; there are {', '.join(t.name for t in self.tracks)}")

    def to_dict(self) -> dict[str, Any]:
        """Returns plain data, ready for JSON."""
        data = asdict(self)
        return {**data, "strategies": data.pop("tracks")}

    def to_text(self) -> str:
        """Draws an aligned table: what each strategy sent and costs, and what became of earlier messages."""
        columns: dict[str, list[str]] = {
            "strategy": [f"{_short(t.name)}{'*' if t.failures else ''}" for t in self.tracks],
            "prompts": [f"{t.calls:,}" for t in self.tracks],
            "tokens": [f"{t.tokens:,}" for t in self.tracks],
            "cached": [f"{t.cached_share:.0%}" for t in self.tracks],
            "effective": [f"{t.effective_tokens:,.0f}" for t in self.tracks],
            "a prompt": [f"{t.effective_per_prompt:,.0f}" if t.effective_per_prompt else "-" for t in self.tracks],
            "US $": [f"{t.cost:,.4f}" if t.cost is not None else "" for t in self.tracks],
            "steps": [f"{t.compaction_steps:,}" for t in self.tracks],
            "left out": [f"{t.message_shares['omitted']:.0%}" for t in self.tracks],
            "evidence": [f"{t.evidence:.0%}" if t.evidence is not None else "" for t in self.tracks],
            "ms": [f"{t.median_ms:,.0f}" for t in self.tracks],
        }
        notes = [MISSING] if any(track.failures for track in self.tracks) else []
        notes += [note for track in self.tracks for note in _notes(track)]
        counts = f"{self.count_mode} counts ({self.tokenizer})"
        lines = [
            f"{self.messages:,} messages, {self.budget_tokens:,} tokens for a prompt; {counts}",
            f"cached: as in the prompt before, at {self.price_share:g} of the price; ms: of a turn, the median",
            "",
            *_table({title: cells for title, cells in columns.items() if any(cells)}),
        ]
        return "\n".join([*lines, *(["", *notes] if notes else [])])

    def __str__(self) -> str:
        return self.to_text()


def _table(columns: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Yields aligned lines: names at the left, numbers at the right."""
    widths = [max(map(len, (title, *cells))) for title, cells in columns.items()]
    for number, (name, *cells) in enumerate([tuple(columns), *zip(*columns.values(), strict=True)]):
        numbers = (cell.rjust(width) for cell, width in zip(cells, widths[1:], strict=True))
        line = "  ".join([name.ljust(widths[0]), *numbers])
        yield from [line] if number else [line, "-" * len(line)]


def _short(name: str) -> str:
    flat = " ".join(name.split())
    return flat if len(flat) <= LONGEST_NAME else f"{flat[: LONGEST_NAME - 1]}…"


def _notes(track: Track) -> Iterator[str]:
    if failures := track.failures:
        yield f"{_short(track.name)}: {len(failures):,} prompts could not be made."
        yield from (f"  {line}" for failure in failures[:MOST_FAILURES] for line in failure.splitlines())
