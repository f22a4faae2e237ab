"""The numbers of a replay, by strategy and turn, and the tables that show them."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from langchain_ctxbudget.errors import InputError
from langchain_ctxbudget.report.report import CoverageState
from langchain_ctxbudget.report.view import STATES

LONGEST_NAME = 34
"""Characters; a longer name is cut."""
MOST_FAILURES = 3
"""Prompts that could not be made of which the reason is told, per strategy."""
MISSING = "* Prompts are missing, which cost nothing: compare what a prompt that was made costs, in effective tokens."
TOTALS = (
    "name",
    "budget_tokens",
    "calls",
    "tokens",
    "cached_tokens",
    "cached_share",
    "effective_tokens",
    "effective_per_prompt",
    "largest_tokens",
    "message_shares",
    "compaction_steps",
    "without_question",
    "evidence",
    "median_ms",
    "slowest_ms",
)


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
    """The way of one strategy through a conversation."""

    name: str
    budget_tokens: int | None
    """The most that a prompt may cost; None: no limit."""
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
        """The part of them that prompts have in common with the ones before them."""
        return sum(turn.cached_tokens for turn in self.turns)

    @property
    def cached_share(self) -> float:
        """The share of all tokens that a provider's cache has."""
        return self.cached_tokens / self.tokens if self.tokens else 0.0

    @property
    def effective_tokens(self) -> float:
        """The tokens that are paid for; a cached one counts `price_share`."""
        return sum(turn.tokens - (1 - self.price_share) * turn.cached_tokens for turn in self.turns)

    @property
    def effective_per_prompt(self) -> float | None:
        """The mean over the prompts that were made, as a prompt that could not be made costs nothing; None: of none."""
        return self.effective_tokens / self.calls if self.calls else None

    @property
    def largest_tokens(self) -> int:
        """The largest prompt."""
        return max((turn.largest_tokens for turn in self.turns), default=0)

    @property
    def message_shares(self) -> dict[str, float]:
        """The states of earlier messages, as shares of all of them over all turns; all 0 where there were none."""
        counts = dict.fromkeys(STATES, 0)
        for turn in self.turns:
            for state, count in turn.messages.items():
                counts[state] += count
        return {state: count / max(1, sum(counts.values())) for state, count in counts.items()}

    @property
    def compaction_steps(self) -> int:
        """The number of times that the beginning of the prompt was rewritten."""
        return sum(turn.compaction_steps for turn in self.turns)

    @property
    def without_question(self) -> int:
        """Prompts that do not have the message that they are to answer."""
        return sum(turn.without_question for turn in self.turns)

    @property
    def failures(self) -> tuple[str, ...]:
        """The reasons of prompts that could not be made, one each."""
        return tuple(failure for turn in self.turns for failure in turn.failures)

    @property
    def evidence(self) -> float | None:
        """The mean over the turns for which evidence was named."""
        found = [turn.evidence for turn in self.turns if turn.evidence is not None]
        return statistics.fmean(found) if found else None

    @property
    def median_ms(self) -> float:
        """Milliseconds per turn."""
        return statistics.median(turn.ms for turn in self.turns) if self.turns else 0.0

    @property
    def slowest_ms(self) -> float:
        """Milliseconds of the slowest turn."""
        return max((turn.ms for turn in self.turns), default=0.0)

    def to_dict(self) -> dict[str, Any]:
        """Returns totals and turns as plain data, ready for JSON."""
        turns = [asdict(turn) | {"failures": list(turn.failures)} for turn in self.turns]
        return {name: getattr(self, name) for name in TOTALS} | {"failures": list(self.failures), "turns": turns}


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
        """Returns the price of a strategy's prompts in US dollars, without answers; None where it is not known."""
        return None if self.input_price is None else track.effective_tokens * self.input_price / 1_000_000

    def to_text(self) -> str:
        """Draws aligned tables: sent tokens and their cost, then the states of earlier messages."""
        columns: list[tuple[str, list[str]]] = [
            ("strategy", names := [f"{_short(t.name)}{'*' if t.failures else ''}" for t in self.tracks]),
            ("prompts", [f"{t.calls:,}" for t in self.tracks]),
            ("tokens", [f"{t.tokens:,}" for t in self.tracks]),
            ("largest", [f"{t.largest_tokens:,}" for t in self.tracks]),
            ("cached", [f"{t.cached_share:.0%}" for t in self.tracks]),
            ("effective", [f"{t.effective_tokens:,.0f}" for t in self.tracks]),
        ]
        missing = any(track.failures for track in self.tracks)
        if missing:
            means = (track.effective_per_prompt for track in self.tracks)
            columns.append(("a prompt", ["-" if mean is None else f"{mean:,.1f}" for mean in means]))
        if self.input_price is not None:
            columns.append(("US $", [f"{self.cost_of(track):,.4f}" for track in self.tracks]))
        columns.append(("ms", [f"{track.median_ms:,.1f}" for track in self.tracks]))
        columns.append(("slowest", [f"{track.slowest_ms:,.0f}" for track in self.tracks]))
        became: list[tuple[str, list[str]]] = [("strategy", names)]
        for state, title in zip(STATES, ("verbatim", "retrieved", "summary", "left out"), strict=True):
            became.append((title, [f"{track.message_shares[state]:.1%}" for track in self.tracks]))
        became.append(("steps", [f"{track.compaction_steps:,}" for track in self.tracks]))
        evidence = [track.evidence for track in self.tracks]
        if any(share is not None for share in evidence):
            became.append(("evidence", ["-" if share is None else f"{share:.1%}" for share in evidence]))
        notes = [*([MISSING] if missing else []), *(note for track in self.tracks for note in _notes(track))]
        counts = f"{self.count_mode} counts ({self.tokenizer})"
        least = f", from {self.min_cached_tokens:,} tokens on" if self.min_cached_tokens else ""
        return "\n".join(
            [
                f"{self.messages:,} messages, {self.budget_tokens:,} tokens for a prompt; {counts}",
                f"cached: as in the prompt before, at {self.price_share:g} of the price{least}",
                "ms: of a turn, median and slowest",
                "",
                *_table(columns),
                "",
                "Earlier messages, over all turns:",
                *_table(became),
                *(["", *notes] if notes else []),
            ]
        )

    def __str__(self) -> str:
        return self.to_text()


def _table(columns: Sequence[tuple[str, Sequence[str]]]) -> Iterator[str]:
    """Yields aligned lines: names at the left, numbers at the right."""
    widths = [max(map(len, (title, *cells))) for title, cells in columns]
    titles, *rows = zip(*((title, *cells) for title, cells in columns), strict=True)
    for name, *cells in (titles, *rows):
        numbers = (cell.rjust(width) for cell, width in zip(cells, widths[1:], strict=True))
        line = "  ".join([name.ljust(widths[0]), *numbers])
        yield line
        if name == titles[0] and cells == list(titles[1:]):
            yield "-" * len(line)


def _short(name: str) -> str:
    flat = " ".join(name.split())
    return flat if len(flat) <= LONGEST_NAME else f"{flat[: LONGEST_NAME - 1]}…"


def _notes(track: Track) -> Iterator[str]:
    name, failures = _short(track.name), track.failures
    if track.without_question:
        yield f"{name}: {track.without_question:,} prompts do not have the message that they are to answer."
    if failures:
        yield f"{name}: {len(failures):,} prompts could not be made."
        for failure in failures[:MOST_FAILURES]:
            yield from (f"  {line}" for line in failure.splitlines())
        if len(failures) > MOST_FAILURES:
            yield f"  ... and {len(failures) - MOST_FAILURES:,} more"
