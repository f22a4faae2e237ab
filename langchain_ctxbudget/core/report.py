"""What went into a prompt, what did not, why, and what it cost: plain data."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from html import escape
from itertools import pairwise
from typing import Any, Literal

from pydantic import TypeAdapter

from langchain_ctxbudget.core.compaction import Strategy
from langchain_ctxbudget.core.layers import Layer, Reason, Status, title_of
from langchain_ctxbudget.core.turns import Repair
from langchain_ctxbudget.errors import InputError
from langchain_ctxbudget.reporting.text import render_text

SCHEMA_VERSION = 2
LISTED_OMISSIONS = 50
"""Omitted candidates of a layer that are listed one by one; further ones are counted per reason."""
PREVIEW_CHARACTERS = 80

CoverageState = Literal["verbatim", "summarized", "retrieved", "omitted"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportItem:
    """One candidate for a place in the prompt."""

    id: str
    tokens: int
    """What it costs in the prompt; for an omitted one, what it would have cost."""
    status: Status
    reason: Reason
    preview: str = ""
    scores: Mapping[str, float] = field(default_factory=dict)
    """What every part of the ranking says of a candidate for retrieval; they add up to its relevance and its key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerReport:
    """One layer: what it was given, what it used, and for what."""

    layer: str
    """The short name of a `Layer`, or the name of a layer of the application's own."""
    title: str
    allocated_tokens: int
    items: tuple[ReportItem, ...]
    overhead_tokens: int
    """Headings and fences of the layer."""
    used_tokens: int
    """The included items and the overhead."""
    more_omitted: dict[Reason, int] = field(default_factory=dict)
    """Omitted candidates beyond those listed, per reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CoverageRange:
    """Messages in a row that are in the same state; positions count from 1, both ends included."""

    first: int
    last: int
    state: CoverageState


@dataclass(frozen=True, slots=True, kw_only=True)
class Stability:
    """How much of this prompt the previous one of the conversation had, in tokens."""

    stable_zone_tokens: int
    """Everything before the current turn."""
    shared_tokens: int | None
    """The common prefix with the previous prompt; None where there was none in this process."""
    stable_zone_share: float | None
    """The share of the stable zone that is in the common prefix."""
    prompt_share: float | None
    """The share of the whole prompt that is in the common prefix."""
    compaction_step: bool
    """Whether the stable zone was rewritten: the cut between summarised and verbatim history moved, what stands for the
    older messages was written anew, or something of it had no room in this prompt or the last."""


class _WithCandidates:
    """A place beside the data of a report."""

    __slots__ = ("_rerun",)


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextReport(_WithCandidates):
    """The account of one assembly: numbers that add up, and a reason for every item.

    `sum(layer.used_tokens) + sum(overhead_tokens.values()) == total_tokens`, and the total is an independent
    count of the finished messages, tool schemas and response format.

    Example:
        >>> from langchain_ctxbudget import ContextPipeline
        >>> context = ContextPipeline().assemble("Hello", user_id="ada", conversation_id="c1")
        >>> context.report.total_tokens
        8
    """

    user_id: str
    conversation_id: str
    budget_tokens: int
    """What the request may cost at most: the setting, or less where the model's window is smaller."""
    window_tokens: int | None
    """The model's window, where it is known."""
    window_source: Literal["profile", "served", "settings", "unknown"]
    """Who told the window: the model's profile, the server that runs it, the settings, or nobody."""
    window_detail: str
    """The same in words, with the server's address."""
    output_reserve_tokens: int
    """What is kept free for the answer."""
    total_tokens: int
    uncorrected_tokens: int
    """The total before `observe_usage` corrected the counts; the same where nothing was observed."""
    count_mode: Literal["exact", "estimated"]
    tokenizer: str
    settings_from: tuple[str, ...]
    """Where the settings came from, each over those before it: `pipeline`, `user`, `persona`, `call`."""
    allocation_strategy: str
    history_strategy: Strategy
    """How the history is shown: whole, or compacted in one of the seed's three ways."""
    layers: tuple[LayerReport, ...]
    overhead_tokens: dict[str, int]
    """What no layer owns: tool schemas, response format, framing of messages."""
    coverage: tuple[CoverageRange, ...]
    stability: Stability
    repairs: tuple[Repair, ...]
    failures: tuple[str, ...]
    """Parts that failed and were replaced by their fallback."""
    summary_lines: dict[str, int]
    """Lines of arc and summary by who wrote them: `extraction`, or a model."""
    summaries_waiting: int
    """Spans in the prompt that the model has not written about yet."""
    last_resort: tuple[str, ...]
    """The steps that were taken because the prompt was over its budget in spite of everything."""
    tokenizer_calls: int
    """Texts that had to be tokenized for this assembly; all others were known."""
    timings_ms: dict[str, float]
    """Milliseconds per step. Apart from these, from what had to be tokenized and from what a previous prompt of
    this process shares, equal inputs give equal reports."""
    forecast: bool = False
    """Whether this is what another budget would have given: nothing was sent, and texts that were never tokenized
    are estimated."""
    schema_version: int = SCHEMA_VERSION

    def with_candidates(self, rerun: Callable[[int], ContextReport]) -> ContextReport:
        """This report with what `reallocate` runs, which is no part of its data."""
        object.__setattr__(self, "_rerun", rerun)
        return self

    def reallocate(self, budget: int) -> ContextReport:
        """What another budget would have given: allocation and selection run again on the same candidates.

        Nothing is read or written, no text is tokenized and no model is called. Messages that would be compacted at
        the other budget, but were verbatim, are ranked by their words alone.

        Args:
            budget: the budget of the whole request, in tokens.

        Raises:
            BudgetTooSmallError: what must be sent does not fit into it.
            InputError: this report was read from data, so its candidates are gone, or the conversation has
                been edited since.

        Example:
            >>> from langchain_ctxbudget import ContextPipeline
            >>> context = ContextPipeline().assemble("Hello", user_id="ada", conversation_id="c1")
            >>> context.report.reallocate(budget=500).budget_tokens
            500
        """
        rerun: Callable[[int], ContextReport] | None = getattr(self, "_rerun", None)
        if rerun is None:
            raise InputError(
                "This report was read from data, which has no candidates; ask the report that assemble returned, or "
                "ContextPipeline.what_if"
            )
        return rerun(budget)

    def layer(self, layer: Layer | str) -> LayerReport:
        """One layer by its short name, for instance `"L5"`, or by the name of one of the application's own.

        Raises:
            ValueError: there is no such layer.
        """
        found = next((part for part in self.layers if part.layer == layer), None)
        if found is None:
            known = ", ".join(part.layer for part in self.layers)
            raise ValueError(f"no layer {str(layer)!r} in this report; it has {known}")
        return found

    def coverage_counts(self) -> dict[CoverageState, int]:
        """How many messages are in each state; their sum is the conversation."""
        counts: dict[CoverageState, int] = {"verbatim": 0, "summarized": 0, "retrieved": 0, "omitted": 0}
        for part in self.coverage:
            counts[part.state] += part.last - part.first + 1
        return counts

    def to_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON."""
        data: dict[str, Any] = _schema().dump_python(self, mode="json")
        return data

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> ContextReport:
        """A report from what `to_dict` gave."""
        return _schema().validate_python(data)

    def to_metadata(self) -> dict[str, str | int | float | bool]:
        """The numbers of the report for a trace: 25 flat keys at most, nothing that anybody said, no ids.

        What the layers do not use of the total is the application's own layers and `overhead_tokens`. What is not
        known is left out.

        Example:
            >>> from langchain_ctxbudget import ContextPipeline
            >>> context = ContextPipeline().assemble("Hello", user_id="ada", conversation_id="c1")
            >>> context.report.to_metadata()["ctxbudget_total_tokens"]
            8
        """
        used = {part.layer: part.used_tokens for part in self.layers}
        values: dict[str, str | int | float | bool | None] = {
            "total_tokens": self.total_tokens,
            "budget_tokens": self.budget_tokens,
            "window_tokens": self.window_tokens,
            "output_reserve_tokens": self.output_reserve_tokens,
            "count_mode": self.count_mode,
            "tokenizer": self.tokenizer,
            "allocation_strategy": self.allocation_strategy,
            "history_strategy": self.history_strategy,
            **{f"tokens_{layer}": used.get(layer) for layer in Layer},
            "stable_zone_share": self.stability.stable_zone_share,
            "compaction_step": self.stability.compaction_step,
            **{f"messages_{state}": count for state, count in self.coverage_counts().items()},
            "repairs": len(self.repairs),
            "failures": len(self.failures),
            "total_ms": round(sum(self.timings_ms.values()), 3),
        }
        return {f"ctxbudget_{name}": value for name, value in values.items() if value is not None}

    def to_text(self, width: int = 80) -> str:
        """A bar chart for terminals and logs.

        Args:
            width: columns to use.
        """
        return render_text(self.to_dict(), width=width)

    def __str__(self) -> str:
        return self.to_text()

    def _repr_html_(self) -> str:
        """The chart, for notebooks."""
        return f"<pre>{escape(self.to_text(width=100))}</pre>"


@lru_cache(maxsize=1)
def _schema() -> TypeAdapter[ContextReport]:
    return TypeAdapter(ContextReport)


def layer_report(
    layer: str, *, allocated: int, items: Iterable[ReportItem], overhead: int, more: Mapping[Reason, int]
) -> LayerReport:
    """A layer's report; beyond `LISTED_OMISSIONS`, omitted candidates become counts.

    Args:
        layer: which layer.
        allocated: tokens it was given.
        items: its candidates.
        overhead: tokens of its headings and fences.
        more: omitted candidates that `items` does not have, per reason.
    """
    listed: list[ReportItem] = []
    counts = dict(more)
    omitted = used = 0
    for item in items:
        if item.status is not Status.OMITTED:
            used += item.tokens
        else:
            omitted += 1
            if omitted > LISTED_OMISSIONS:
                counts[item.reason] = counts.get(item.reason, 0) + 1
                continue
        listed.append(item)
    return LayerReport(
        layer=layer,
        title=title_of(layer),
        allocated_tokens=allocated,
        items=tuple(listed),
        overhead_tokens=overhead,
        used_tokens=used + overhead,
        more_omitted=counts,
    )


def ranges(
    total: int, cut: int, covered: Iterable[tuple[int, int]], marks: Mapping[int, CoverageState]
) -> tuple[CoverageRange, ...]:
    """The coverage of a conversation as ranges; work is bounded by what is given, not by the conversation.

    Args:
        total: messages in the conversation.
        cut: the position of the first verbatim message.
        covered: spans before it that a summary stands for, each with the position of its first message and that behind
            its last; the others are left out.
        marks: the messages that are in another state than their surroundings, by position.
    """
    spans = sorted((first, min(end, cut)) for first, end in covered if first < min(end, cut))
    points = {0, cut, total, *(point for span in spans for point in span)}
    points |= {point for position in marks for point in (position, position + 1)}
    found: list[CoverageRange] = []
    reached = 0
    waiting = deque(spans)
    for first, end in pairwise(sorted(points)):
        while waiting and waiting[0][0] <= first:
            reached = max(reached, waiting.popleft()[1])
        before: CoverageState = "summarized" if first < reached else "omitted"
        state: CoverageState = marks.get(first, "verbatim" if first >= cut else before)
        if found and found[-1].state == state:
            found[-1] = CoverageRange(first=found[-1].first, last=end, state=state)
        else:
            found.append(CoverageRange(first=first + 1, last=end, state=state))
    return tuple(found)


def preview(text: str) -> str:
    """The beginning of a text on one line."""
    flat = " ".join(text[: PREVIEW_CHARACTERS * 4].split())
    return flat if len(flat) <= PREVIEW_CHARACTERS else flat[: PREVIEW_CHARACTERS - 1] + "…"
