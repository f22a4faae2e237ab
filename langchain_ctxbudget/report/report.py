"""The account of one prompt as plain data: items with reasons, tokens that add up, and how it is read and shown."""

from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import chain, pairwise
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field, TypeAdapter, ValidationError

from langchain_ctxbudget.budget import Forced, Layer, Reason, Status, TierName, title_of
from langchain_ctxbudget.errors import InputError, checks_names
from langchain_ctxbudget.messages import Repair

LISTED_OMISSIONS = 50
"""Omitted candidates of a layer that are listed one by one; further ones are counted per reason."""
PREVIEW_CHARACTERS = 80

CoverageState = Literal["verbatim", "summarized", "retrieved", "omitted"]
HistoryStrategy = Literal["empty", "full", "windowed", "compacted", "multi_level"]
"""How a history is shown (seed 000): whole; with a summary; with more room for its newer part; with several levels."""

Count: TypeAlias = Annotated[int, Field(ge=0)]
Positive: TypeAlias = Annotated[int, Field(ge=1)]
Number: TypeAlias = Annotated[float, Field(allow_inf_nan=False)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportItem:
    """One candidate for a place in the prompt."""

    id: str
    tokens: Count
    """Its cost in the prompt; of an omitted one, the cost it would have had."""
    status: Status
    reason: Reason
    preview: str = ""
    source: str = ""
    """Of a candidate for retrieval: `messages` (of this conversation), `conversations`, `memories` or `documents`."""
    scores: Mapping[str, Number] = field(default_factory=dict)
    """The parts of a retrieval candidate's ranking; they add up to its relevance and its key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerReport:
    """One layer: the tokens it was given, those it used, and its items."""

    layer: str
    """The short name of a `Layer`, or the name of a custom layer."""
    title: str
    allocated_tokens: Count
    items: tuple[ReportItem, ...]
    overhead_tokens: int
    """Headings and fences of the layer; below 0 where a counter counts the whole below the sum of its parts."""
    used_tokens: int
    more_omitted: dict[Reason, Count] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class CoverageRange:
    """Messages in a row that are in the same state; positions count from 1, both ends included."""

    first: Positive
    last: Positive
    state: CoverageState


@dataclass(frozen=True, slots=True, kw_only=True)
class Stability:
    """The part of this prompt that the conversation's previous one had, in tokens."""

    stable_zone_tokens: Count
    """Everything before the current turn."""
    shared_tokens: Count | None
    """The common prefix with the previous prompt; None where there was none in this process."""
    stable_zone_share: Number | None
    prompt_share: Number | None
    compaction_step: bool
    """True where the stable zone was rewritten: the cut moved, the summary before it was written anew, or a part of it
    had no room in this prompt or the last."""
    effective_tokens: Count = 0
    """The cost of this prompt in new tokens: of those in the common prefix, which a warm cache holds, a tenth."""
    whole_effective_tokens: Count = 0
    """The same for everything that was said so far, sent each time."""
    saved_tokens: Count = 0
    turns_to_step: Count | None = None
    """In about so many turns the prompt has grown to its budget; None where prompts do not grow."""
    step_tokens: Count | None = None
    """About what the step then costs, all of it new."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageState:
    """The usage limit that applied to a prompt, and the tier that followed."""

    tier: TierName
    left: Number
    limit: str
    """The name of that field of `UsageLimits`."""
    used: Number
    allowed: Number
    forced: tuple[Forced, ...] = ()


@checks_names()
@dataclass(frozen=True, kw_only=True)
class ContextReport:
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
    budget_tokens: Positive
    """The most that the request may cost: the setting, or less where the model's window is smaller."""
    window_tokens: Positive | None
    window_source: Literal["profile", "served", "settings", "unknown"]
    """The source of the window: the model's profile, the server that runs it, the settings, or nobody."""
    window_detail: str
    """The same in words, with the server's address."""
    output_reserve_tokens: Count
    total_tokens: Count
    uncorrected_tokens: Count
    """The total before `observe_usage` corrected the counts; the same where nothing was observed."""
    count_mode: Literal["exact", "estimated"]
    tokenizer: str
    settings_from: tuple[str, ...]
    """The layers of settings, each over those before it: `pipeline`, `user`, `persona`, `call`."""
    allocation_strategy: str
    history_strategy: HistoryStrategy
    """The form of the history: whole, or compacted in one of the seed's three ways."""
    layers: tuple[LayerReport, ...]
    overhead_tokens: dict[str, int]
    """Tokens that no layer owns: tool schemas, response format, framing of messages."""
    coverage: tuple[CoverageRange, ...]
    stability: Stability
    repairs: tuple[Repair, ...]
    failures: tuple[str, ...]
    """Parts that failed and were replaced by their fallback."""
    summary_lines: dict[str, Count]
    """Lines of arc and summary by who wrote them: `extraction`, or a model."""
    summaries_waiting: Count
    """Spans in the prompt that the model has not written about yet."""
    last_resort: tuple[str, ...]
    """The steps that were taken because the prompt was over its budget in spite of everything."""
    tokenizer_calls: Count
    """Texts that had to be tokenized for this assembly; all others were known."""
    timings_ms: dict[str, Number]
    """Milliseconds per step. Apart from these, from what had to be tokenized and from what a previous prompt of
    this process shares, equal inputs give equal reports."""
    usage: UsageState | None = None
    topics: tuple[str, ...] = ()
    entities: tuple[str, ...] = ()
    """What the message is about, the surest first; and what was likely to come up, by what is open on the device."""
    predicted: tuple[str, ...] = ()
    cache_hits: dict[str, Count] = field(default_factory=dict)
    """By layer, the texts that were compiled before, and those that were missing or have changed."""
    cache_misses: dict[str, Count] = field(default_factory=dict)
    forecast: bool = False
    """True for the report of another budget: nothing was sent."""
    schema_version: Literal[3] = 3

    def layer(self, layer: Layer | str) -> LayerReport:
        """Returns a layer by its short name, for instance `"L5"`, or by the name of a custom layer."""
        if found := next((part for part in self.layers if part.layer == layer), None):
            return found
        known = ", ".join(part.layer for part in self.layers)
        raise ValueError(f"no layer {str(layer)!r} in this report; it has {known}")

    def coverage_counts(self) -> dict[CoverageState, int]:
        """Returns the number of messages in each state; their sum is the conversation."""
        counts: dict[CoverageState, int] = {"verbatim": 0, "summarized": 0, "retrieved": 0, "omitted": 0}
        for part in self.coverage:
            counts[part.state] += part.last - part.first + 1
        return counts

    def to_dict(self, *, texts: bool = True) -> dict[str, Any]:
        """Returns plain data, ready for JSON; without `texts` nothing that somebody said, wrote or named."""
        data: dict[str, Any] = _adapter().dump_python(self, mode="json")
        if not texts:
            del data["window_detail"]
            data |= {key: len(data[key]) for key in ("repairs", "failures", "topics", "entities", "predicted")}
            for layer in data["layers"]:
                del layer["items"]
        return data

    @classmethod
    def from_dict(cls, data: object) -> "ContextReport":
        """Reads a report from the data of `to_dict`."""
        try:
            return _adapter().validate_python(data)
        except ValidationError as error:
            first = error.errors()[0]
            raise InputError(f"This is no report: {'.'.join(map(str, first['loc']))}: {first['msg']}") from None

    def explain(self, what: str | int) -> str:
        """Says in words what became of an item, or of a message by its position from 1, and why.

        An `InputError` for what this report does not know. Of messages that are neither verbatim nor retrieved it knows
        the positions only; `ContextPipeline.coverage` has their ids.
        """
        from langchain_ctxbudget.report.view import explained  # noqa: PLC0415 - when it is asked for

        if not (lines := explained(self, what)):
            last = self.coverage[-1].last if self.coverage else 0
            raise InputError(f"This report knows no {what!r}: it has messages 1 to {last:,} and the ids of its items")
        return "\n".join(lines)

    def to_text(self, width: int = 80) -> str:
        """Draws a bar chart for terminals and logs, at least 56 columns wide."""
        from langchain_ctxbudget.report.view import render_chart  # noqa: PLC0415 - when it is asked for

        return render_chart(self, width)

    def __str__(self) -> str:
        return self.to_text()

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:  # noqa: ANN401, FBT001, ARG002 - IPython's interface
        printer.text(str(self))

    def _repr_html_(self) -> str:
        from langchain_ctxbudget.report.view import render_html  # noqa: PLC0415 - when it is asked for

        return render_html(self)


def layer_report(
    layer: str, *, allocated: int, items: Iterable[ReportItem], overhead: int, more: Mapping[Reason, int]
) -> LayerReport:
    """Makes a layer's report; beyond `LISTED_OMISSIONS`, omitted candidates become counts, like those of `more`."""
    listed: list[ReportItem] = []
    counts = Counter(more)
    omitted = 0
    for item in items:
        omitted += item.status is Status.OMITTED
        if item.status is Status.OMITTED and omitted > LISTED_OMISSIONS:
            counts[item.reason] += 1
        else:
            listed.append(item)
    return LayerReport(
        layer=layer,
        title=title_of(layer),
        allocated_tokens=allocated,
        items=tuple(listed),
        overhead_tokens=overhead,
        used_tokens=overhead + sum(item.tokens for item in listed if item.status is not Status.OMITTED),
        more_omitted=dict(counts),
    )


def ranges(
    total: int, cut: int, covered: Iterable[tuple[int, int]], marks: Mapping[int, CoverageState]
) -> tuple[CoverageRange, ...]:
    """Returns the coverage of a conversation as ranges; work is bounded by what is given, not by the conversation."""
    spans = deque(sorted((first, min(end, cut)) for first, end in covered if first < min(end, cut)))
    points = {0, cut, total, *chain.from_iterable(spans), *chain.from_iterable((one, one + 1) for one in marks)}
    found: list[CoverageRange] = []
    reached = 0
    for first, end in pairwise(sorted(points)):
        while spans and spans[0][0] <= first:
            reached = max(reached, spans.popleft()[1])
        before: CoverageState = "summarized" if first < reached else "omitted"
        state: CoverageState = marks.get(first, "verbatim" if first >= cut else before)
        start = found.pop().first if found and found[-1].state == state else first + 1
        found.append(CoverageRange(first=start, last=end, state=state))
    return tuple(found)


def preview(text: str) -> str:
    """Returns the beginning of a text on one line."""
    flat = " ".join(text[: PREVIEW_CHARACTERS * 4].split())
    return flat if len(flat) <= PREVIEW_CHARACTERS else flat[: PREVIEW_CHARACTERS - 1] + "…"


@cache
def _adapter() -> TypeAdapter[ContextReport]:
    return TypeAdapter(ContextReport)
