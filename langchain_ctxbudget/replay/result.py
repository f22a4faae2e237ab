"""The numbers of a replay, by strategy and turn, and the tables that show them."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from langchain_ctxbudget.errors import InputError
from langchain_ctxbudget.report import STATES, CoverageState

LONGEST_NAME = 34
"""Characters; a longer name is cut."""
MOST_FAILURES = 3
"""Prompts that could not be made of which the reason is told, per strategy."""
MISSING = "* Prompts are missing, which cost nothing: compare what a prompt that was made costs, in effective tokens."


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
    without_question: int
    """Prompts that do not have the message that they are to answer."""
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
    without_question: int
    failures: tuple[str, ...]
    evidence: float | None
    """The mean over the turns for which evidence was named."""
    median_ms: float = field(compare=False)
    """Milliseconds per turn."""
    slowest_ms: float = field(compare=False)
    cost: float | None
    """The price of all prompts in US dollars, without answers; None where it is not known."""

    @classmethod
    def of(
        cls, name: str, budget: int | None, turns: Sequence[Turn], *, price_share: float, input_price: float | None
    ) -> Track:
        """Adds up the turns of a strategy.

        Args:
            name: of the strategy.
            budget: the most that a prompt may cost, in tokens; None: no limit.
            turns: those in which an answer was given.
            price_share: the price of a cached token, as a share of one that is not.
            input_price: US dollars for a million tokens that no cache has; None: not known.
        """
        tokens, cached = sum(turn.tokens for turn in turns), sum(turn.cached_tokens for turn in turns)
        calls, effective = sum(turn.calls for turn in turns), tokens - (1 - price_share) * cached
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
            without_question=sum(turn.without_question for turn in turns),
            failures=tuple(failure for turn in turns for failure in turn.failures),
            evidence=statistics.fmean(evidence) if evidence else None,
            median_ms=statistics.median(turn.ms for turn in turns) if turns else 0.0,
            slowest_ms=max((turn.ms for turn in turns), default=0.0),
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
    min_cached_tokens: int
    """A shorter common prefix was not counted as cached."""
    tokenizer: str
    count_mode: str
    input_price: float | None
    """US dollars for a million tokens that no cache has; None: not known."""
    tracks: tuple[Track, ...]

    def track(self, name: str) -> Track:
        """Returns the track of one strategy.

        Raises:
            InputError: it is not among them.
        """
        if found := next((track for track in self.tracks if track.name == name), None):
            return found
        raise InputError(f"No strategy {name!r} was replayed; there are {', '.join(t.name for t in self.tracks)}")

    def to_dict(self) -> dict[str, Any]:
        """Returns plain data, ready for JSON."""
        data = asdict(self)
        return {**data, "strategies": data.pop("tracks")}

    def to_text(self) -> str:
        """Draws aligned tables: sent tokens and their cost, then the states of earlier messages."""
        tracks = self.tracks
        missing = any(track.failures for track in tracks)
        columns = {
            "strategy": (names := [f"{_short(t.name)}{'*' if t.failures else ''}" for t in tracks]),
            "prompts": [f"{t.calls:,}" for t in tracks],
            "tokens": [f"{t.tokens:,}" for t in tracks],
            "largest": [f"{t.largest_tokens:,}" for t in tracks],
            "cached": [f"{t.cached_share:.0%}" for t in tracks],
            "effective": [f"{t.effective_tokens:,.0f}" for t in tracks],
        }
        if missing:
            per_prompt = [t.effective_per_prompt for t in tracks]
            columns["a prompt"] = [f"{mean:,.1f}" if mean else "-" for mean in per_prompt]
        if self.input_price is not None:
            columns["US $"] = [f"{t.cost:,.4f}" for t in tracks]
        columns |= {"ms": [f"{t.median_ms:,.1f}" for t in tracks], "slowest": [f"{t.slowest_ms:,.0f}" for t in tracks]}
        became = {"strategy": names}
        for state in STATES:
            title = {"summarized": "summary", "omitted": "left out"}.get(state, state)
            became[title] = [f"{t.message_shares[state]:.1%}" for t in tracks]
        became["steps"] = [f"{t.compaction_steps:,}" for t in tracks]
        if any(t.evidence is not None for t in tracks):
            became["evidence"] = [f"{t.evidence:.1%}" if t.evidence is not None else "-" for t in tracks]
        notes = [*([MISSING] if missing else []), *(note for track in tracks for note in _notes(track))]
        least = f", from {self.min_cached_tokens:,} tokens on" if self.min_cached_tokens else ""
        counts = f"{self.count_mode} counts ({self.tokenizer})"
        lines = [
            f"{self.messages:,} messages, {self.budget_tokens:,} tokens for a prompt; {counts}",
            f"cached: as in the prompt before, at {self.price_share:g} of the price{least}",
            "ms: of a turn, median and slowest",
            "",
            *_table(columns),
            "",
            "Earlier messages, over all turns:",
            *_table(became),
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
    name, failures = _short(track.name), track.failures
    if track.without_question:
        yield f"{name}: {track.without_question:,} prompts do not have the message that they are to answer."
    if failures:
        yield f"{name}: {len(failures):,} prompts could not be made."
        yield from (f"  {line}" for failure in failures[:MOST_FAILURES] for line in failure.splitlines())
        if len(failures) > MOST_FAILURES:
            yield f"  ... and {len(failures) - MOST_FAILURES:,} more"
