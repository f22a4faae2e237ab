"""What a report consists of, and how its parts are made from what a prompt was assembled from."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

from langchain_ctxbudget.core.layers import Reason, Status, title_of
from langchain_ctxbudget.core.report_checks import Count, Difference, Number, Positive
from langchain_ctxbudget.core.tiers import Forced, TierName

LISTED_OMISSIONS = 50
"""Omitted candidates of a layer that are listed one by one; further ones are counted per reason."""
PREVIEW_CHARACTERS = 80
JOINED = " + "
"""Between the ids of a call and its results, which are one item."""

CoverageState = Literal["verbatim", "summarized", "retrieved", "omitted"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportItem:
    """One candidate for a place in the prompt.

    Example:
        >>> from langchain_ctxbudget import ContextPipeline
        >>> context = ContextPipeline().assemble("Hello", user_id="ada", conversation_id="c1")
        >>> [item] = context.report.layer("L7").items
        >>> item.id, item.tokens, str(item.status), str(item.reason), item.preview
        ('human', 5, 'included', 'required', 'Hello')
    """

    id: str
    tokens: Count
    """What it costs in the prompt; for an omitted one, what it would have cost."""
    status: Status
    reason: Reason
    preview: str = ""
    source: str = ""
    """Where a candidate for retrieval comes from: `messages` (of this conversation), `conversations`, `memories` or
    `documents`; empty in the other layers."""
    scores: Mapping[str, Number] = field(default_factory=dict)
    """What every part of the ranking says of a candidate for retrieval; they add up to its relevance and its key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerReport:
    """One layer: what it was given, what it used, and for what.

    Example:
        >>> from langchain_ctxbudget import ContextPipeline
        >>> context = ContextPipeline().assemble("Hello", user_id="ada", conversation_id="c1")
        >>> layer = context.report.layer("L7")
        >>> layer.title, layer.allocated_tokens, layer.used_tokens
        ('Message', 5, 5)
    """

    layer: str
    """The short name of a `Layer`, or the name of a layer of the application's own."""
    title: str
    allocated_tokens: Count
    items: tuple[ReportItem, ...]
    overhead_tokens: Difference
    """Headings and fences of the layer."""
    used_tokens: Difference
    """The included items and the overhead."""
    more_omitted: dict[Reason, Count] = field(default_factory=dict)
    """Omitted candidates beyond those listed, per reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CoverageRange:
    """Messages in a row that are in the same state; positions count from 1, both ends included.

    Example:
        >>> CoverageRange(first=41, last=60, state="summarized").state
        'summarized'
    """

    first: Positive
    last: Positive
    state: CoverageState


@dataclass(frozen=True, slots=True, kw_only=True)
class Stability:
    """How much of this prompt the previous one of the conversation had, in tokens.

    Example:
        >>> from langchain_ctxbudget import ContextPipeline
        >>> context = ContextPipeline().assemble("Hello", user_id="ada", conversation_id="c1")
        >>> context.report.stability.shared_tokens is None  # it was the first prompt
        True
    """

    stable_zone_tokens: Count
    """Everything before the current turn."""
    shared_tokens: Count | None
    """The common prefix with the previous prompt; None where there was none in this process."""
    stable_zone_share: Number | None
    """The share of the stable zone that is in the common prefix."""
    prompt_share: Number | None
    """The share of the whole prompt that is in the common prefix."""
    compaction_step: bool
    """Whether the stable zone was rewritten: the cut between summarised and verbatim history moved, what stands for the
    older messages was written anew, or something of it had no room in this prompt or the last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageState:
    """How much of a usage limit was left when the prompt was made, and what that meant for it.

    Example:
        >>> UsageState(tier="warning", left=0.52, limit="month_tokens", used=48_000, allowed=100_000).tier
        'warning'
    """

    tier: TierName
    left: Number
    """What is left of the most restrictive limit, as a share."""
    limit: str
    """Which one that is: the name of a field of `UsageLimits`."""
    used: Number
    """In tokens or US dollars."""
    allowed: Number
    forced: tuple[Forced, ...] = ()
    """What was let in regardless of the tier."""


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
