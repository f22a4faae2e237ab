"""A replay as aligned tables for terminals and logs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from langchain_ctxbudget.reporting.parts import STATES

_GAP = "  "
LONGEST_NAME = 34
"""Characters; a longer name is cut."""
MOST_FAILURES = 3
"""Prompts that could not be made of which the reason is told, per strategy."""
MISSING = "* Prompts are missing, which cost nothing: compare what a prompt that was made costs, in effective tokens."


def render_replay(data: Mapping[str, Any]) -> str:
    """What strategies sent and what it costs, then what became of earlier messages.

    Args:
        data: what `ReplayResult.to_dict` gives.
    """
    tracks: Sequence[Mapping[str, Any]] = data["strategies"]
    priced = data["input_price"] is not None
    asked = any(track["evidence"] is not None for track in tracks)
    missing = any(track["failures"] for track in tracks)
    sent = [
        (
            "strategy",
            "prompts",
            "tokens",
            "largest",
            "cached",
            "effective",
            *(["a prompt"] if missing else []),
            *(["US $"] if priced else []),
            "ms",
            "slowest",
        ),
        *(
            (
                _named(track),
                f"{track['calls']:,}",
                f"{track['tokens']:,}",
                f"{track['largest_tokens']:,}",
                f"{track['cached_share']:.0%}",
                f"{track['effective_tokens']:,.0f}",
                *([_per_prompt(track)] if missing else []),
                *([f"{track['cost']:,.4f}"] if priced else []),
                f"{track['median_ms']:,.1f}",
                f"{track['slowest_ms']:,.0f}",
            )
            for track in tracks
        ),
    ]
    became = [
        ("strategy", "verbatim", "retrieved", "summary", "left out", "steps", *(["evidence"] if asked else [])),
        *(
            (
                _named(track),
                *(f"{track['message_shares'][state]:.1%}" for state in STATES),
                f"{track['compaction_steps']:,}",
                *(["-" if track["evidence"] is None else f"{track['evidence']:.1%}"] if asked else []),
            )
            for track in tracks
        ),
    ]
    parts = [_heading(data), "", *_table(sent), "", "Earlier messages, over all turns:", *_table(became)]
    notes = [*([MISSING] if missing else []), *(note for track in tracks for note in _notes(track))]
    return "\n".join([*parts, *(["", *notes] if notes else [])])


def _heading(data: Mapping[str, Any]) -> str:
    least = f", from {data['min_cached_tokens']:,} tokens on" if data["min_cached_tokens"] else ""
    return (
        f"{data['messages']:,} messages, {data['budget_tokens']:,} tokens for a prompt; {data['count_mode']} counts "
        f"({data['tokenizer']})\n"
        f"cached: as in the prompt before, at {data['price_share']:g} of the price{least}\n"
        f"ms: of a turn, median and slowest"
    )


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows with their first column at the left, numbers at the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        _GAP.join([name.ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(cells, widths[1:], strict=True))])
        for name, *cells in rows
    ]
    return [lines[0], "-" * len(lines[0]), *lines[1:]]


def _named(track: Mapping[str, Any]) -> str:
    return f"{_cut(track['name'])}{'*' if track['failures'] else ''}"


def _per_prompt(track: Mapping[str, Any]) -> str:
    mean = track["effective_per_prompt"]
    return "-" if mean is None else f"{mean:,.1f}"


def _cut(name: str) -> str:
    flat = " ".join(name.split())
    return flat if len(flat) <= LONGEST_NAME else f"{flat[: LONGEST_NAME - 1]}…"


def _notes(track: Mapping[str, Any]) -> list[str]:
    """What a strategy could not do."""
    name, notes = _cut(track["name"]), []
    if track["without_question"]:
        notes.append(f"{name}: {track['without_question']:,} prompts do not have the message that they are to answer.")
    failures = track["failures"]
    if failures:
        notes.append(f"{name}: {len(failures):,} prompts could not be made.")
        notes += [f"  {line}" for failure in failures[:MOST_FAILURES] for line in failure.splitlines()]
        notes += [f"  ... and {len(failures) - MOST_FAILURES:,} more"] if len(failures) > MOST_FAILURES else []
    return notes
