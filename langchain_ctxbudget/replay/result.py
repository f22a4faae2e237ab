"""What a replay has counted: for each strategy, for each turn, and in a table."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from typing import Any

from langchain_ctxbudget.errors import InputError
from langchain_ctxbudget.replay.tariff import Tariff
from langchain_ctxbudget.report import STATES, CoverageState, plural
from langchain_ctxbudget.tokens import Price

NO_PROMPT = "no prompt fits"
"""Stands in a table in place of the cost of a strategy that could make no prompt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """Something that an answer used of an earlier message, and that its prompt did not have."""

    turn: int
    """The number of the turn."""
    items: tuple[str, ...]
    """What the answer used and no line of the prompt has together with the rest: whole values of
    the sentence, such as a date or a path, and its words."""
    message: int
    """The position of the earlier message in the conversation, from 1 on."""
    sentence: str
    """The sentence of the earlier message."""
    weight: float
    """The weight of what was lost: the rarer, the higher."""


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
    """What they cost in new tokens that no cache takes in: a cached one has its price share. The
    strategy's own calls of models are included."""
    own_effective_tokens: float = 0.0
    """What these own calls cost, in the same tokens."""
    prompt_costs: tuple[float | None, ...] = ()
    """The effective tokens of each prompt; None for one that could not be made."""
    used_weight: float = 0.0
    """The weight of what the answers used of earlier messages."""
    kept_weight: float = 0.0
    """The weight of what of it stands in the prompts."""
    largest_tokens: int = 0
    compaction_steps: int = 0
    """The number of times that the beginning of the prompt was rewritten."""
    losses: tuple[Loss, ...] = ()
    """Of each prompt the weightiest loss."""
    failures: tuple[str, ...] = ()

    @property
    def kept(self) -> float | None:
        """The share of what the answers used that stood in their prompts; None if nothing was."""
        return self.kept_weight / self.used_weight if self.used_weight else None


def together(parts: Sequence[Sent]) -> dict[str, Any]:
    """Returns the fields of a `Sent` that stands for all parts."""
    return {
        **_prompts_together(parts),
        **_uses_together(parts),
        "failures": tuple(chain.from_iterable(part.failures for part in parts)),
    }


def _prompts_together(parts: Sequence[Sent]) -> dict[str, Any]:
    """Returns the fields of a `Sent` that say what the prompts of all parts were and cost."""
    return {
        "calls": sum(part.calls for part in parts),
        "tokens": sum(part.tokens for part in parts),
        "cached_tokens": sum(part.cached_tokens for part in parts),
        "effective_tokens": round(sum(part.effective_tokens for part in parts), 3),
        "own_effective_tokens": round(sum(part.own_effective_tokens for part in parts), 3),
        "prompt_costs": tuple(chain.from_iterable(part.prompt_costs for part in parts)),
        "compaction_steps": sum(part.compaction_steps for part in parts),
        "largest_tokens": max(part.largest_tokens for part in parts),
    }


def _uses_together(parts: Sequence[Sent]) -> dict[str, Any]:
    """Returns the fields of a `Sent` that say what answers used of earlier messages."""
    return {
        "used_weight": round(sum(part.used_weight for part in parts), 6),
        "kept_weight": round(sum(part.kept_weight for part in parts), 6),
        "losses": tuple(chain.from_iterable(part.losses for part in parts)),
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


def track_of(name: str, turns: Sequence[Turn], price: Price | None) -> Track:
    """Adds up the turns of one strategy."""
    sent = Sent(**together(turns))
    evidence = [turn.evidence for turn in turns if turn.evidence is not None]
    return Track(
        **together(turns),
        name=name,
        turns=tuple(turns),
        cached_share=sent.cached_tokens / max(1, sent.tokens),
        cost=None if price is None else sent.effective_tokens * price.input / 1_000_000,
        message_shares=_message_shares(turns),
        evidence=statistics.fmean(evidence) if evidence else None,
    )


def _message_shares(turns: Sequence[Turn]) -> dict[CoverageState, float]:
    """Returns the states of earlier messages over all turns, as shares of all of them."""
    counts: dict[CoverageState, int] = dict.fromkeys(STATES, 0)
    for turn in turns:
        for state in STATES:
            counts[state] += turn.messages.get(state, 0)
    total = max(1, sum(counts.values()))
    return {state: count / total for state, count in counts.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayResult:
    """The numbers of several strategies over one conversation; equal for equal input."""

    messages: int
    budget_tokens: int
    tariff: Tariff
    """What tokens cost, and whose prices these are."""
    tokenizer: str
    count_mode: str
    tracks: tuple[Track, ...]

    @property
    def without_prompts(self) -> tuple[str, ...]:
        """The names of the strategies that could make no prompt at all."""
        return tuple(track.name for track in self.tracks if not track.calls)

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
        for plain, track in zip(data["tracks"], self.tracks, strict=True):
            plain["kept"] = track.kept
        return {**data, "strategies": data.pop("tracks")}

    def to_text(self) -> str:
        """Draws a table: what each strategy sent and cost, and what became of earlier messages."""
        heading, *rows = aligned_table([_row(track) for track in self.tracks])
        counts = f"{self.count_mode} counts ({self.tokenizer})"
        lines = [
            f"{self.messages:,} messages, {self.budget_tokens:,} tokens for a prompt; {counts}",
            self.tariff.to_text(),
            "",
            heading,
            "-" * len(heading),
            *rows,
        ]
        for track in self.tracks:
            if track.failures:
                missing = f"{plural(len(track.failures), 'prompt')} could not be made"
                lines += [
                    "",
                    f"{track.name}: {missing}, and cost nothing here; the first:",
                    track.failures[0],
                ]
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.to_text()


def aligned_table(rows: Sequence[Mapping[str, str]]) -> list[str]:
    """Returns the lines of an aligned table; columns that are empty in every row are left out."""
    headings = [heading for heading in rows[0] if _is_filled(heading, rows)]
    cells = [_cells(headings, row) for row in rows]
    lines = [headings, *cells]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return ["  ".join(_aligned(line, widths)) for line in lines]


def _is_filled(heading: str, rows: Sequence[Mapping[str, str]]) -> bool:
    """Tells if a column has a text in any row."""
    return any(row[heading] for row in rows)


def _cells(headings: Sequence[str], row: Mapping[str, str]) -> list[str]:
    """Returns the cells of a row in the order of their headings."""
    return [row[heading] for heading in headings]


def _aligned(cells: Sequence[str], widths: Sequence[int]) -> list[str]:
    """Returns cells that are as wide as their columns, the first one to the left."""
    first, *numbers = cells
    columns = zip(numbers, widths[1:], strict=True)
    return [first.ljust(widths[0]), *(cell.rjust(width) for cell, width in columns)]


def _row(track: Track) -> dict[str, str]:
    """Returns the cells of a strategy by the headings of their columns."""
    if not track.calls:
        return {
            "strategy": track.name,
            "prompts": "0",
            "tokens": "",
            "cached": "",
            "effective": NO_PROMPT,
            "US $": "",
            "steps": "",
            "left out": "",
            "kept": "",
            "evidence": "",
        }
    return {
        "strategy": track.name,
        "prompts": f"{track.calls:,}",
        "tokens": f"{track.tokens:,}",
        "cached": f"{track.cached_share:.0%}",
        "effective": f"{track.effective_tokens:,.0f}",
        "US $": "" if track.cost is None else f"{track.cost:,.4f}",
        "steps": f"{track.compaction_steps:,}",
        "left out": f"{track.message_shares['omitted']:.0%}",
        "kept": _percent(track.kept),
        "evidence": _percent(track.evidence),
    }


def _percent(share: float | None) -> str:
    """Returns the cell of a share; empty where it is not known."""
    if share is None:
        return ""
    return f"{share:.0%}"
