"""The account of one prompt as plain data: items with reasons, and tokens that add up.

It is shown with bars, as text and as a card for notebooks (`chart.py`), and in words
(`wording.py`).
"""

from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from pydantic import Field, TypeAdapter, ValidationError

from langchain_ctxbudget.budget import (
    Citation,
    Forced,
    Layer,
    NonNegative,
    Positive,
    Reason,
    Status,
    TierName,
)
from langchain_ctxbudget.errors import InputError, checks_names
from langchain_ctxbudget.messages import ValueKind, clipped
from langchain_ctxbudget.providers import Repair
from langchain_ctxbudget.report.chart import render_html, render_terminal, render_text
from langchain_ctxbudget.report.colours import CoverageState
from langchain_ctxbudget.report.receipt import receipt_of
from langchain_ctxbudget.report.wording import explained, in_a_line
from langchain_ctxbudget.tokens import NO_OWN_CALLS, OwnCalls

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions
    from rich.text import Text

LISTED_OMISSIONS = 50
"""Omitted candidates of a layer that are listed one by one; further ones are counted per reason."""
PREVIEW_CHARACTERS = 80
"""Length of the beginning of an item that a report shows."""
HistoryStrategy = Literal["empty", "full", "windowed", "compacted", "multi_level"]
"""How a history is shown: not at all; whole; its newest part; with a summary; with summaries of
several levels."""
Number: TypeAlias = Annotated[float, Field(allow_inf_nan=False)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportItem:
    """One candidate for a place in the prompt."""

    id: str
    tokens: NonNegative
    """Its cost in the prompt; of an omitted one, the cost it would have had."""
    status: Status
    reason: Reason
    preview: str = ""
    source: str = ""
    """Of a candidate for retrieval: `messages` (of this conversation), `conversations`, `memories`
    or `documents`."""
    citation: Citation | None = None
    """Of a part of a document: its title, its source and its number."""
    scores: Mapping[str, Number] = field(default_factory=dict)
    """The parts of a retrieval candidate's ranking; they add up to its relevance and its key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerReport:
    """One layer: the tokens it was given, those it used, and its items."""

    layer: str
    """The short name of a `Layer`, or the name of a custom layer."""
    title: str
    allocated_tokens: NonNegative
    """As planned; it may use more, of what other layers leave."""
    items: tuple[ReportItem, ...]
    overhead_tokens: int
    """Headings and fences of the layer; below 0 where a counter counts the whole below the sum of
    its parts."""
    used_tokens: int
    more_omitted: dict[Reason, NonNegative] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class CoverageRange:
    """Messages in a row that are in the same state; positions count from 1, both ends included."""

    first: Positive
    last: Positive
    state: CoverageState


@dataclass(frozen=True, slots=True, kw_only=True)
class Stability:
    """The part of this prompt that the conversation's previous one had, in tokens."""

    stable_zone_tokens: NonNegative
    """Everything before the current turn."""
    shared_tokens: NonNegative | None
    """The common prefix with the previous prompt; None where there was none in this process."""
    stable_zone_share: Number | None
    prompt_share: Number | None
    compaction_step: bool
    """True where the prompt was rewritten: the cut moved, the summary before it was written anew, a
    part of the stable zone had no room in this prompt or the last, older steps of a long turn gave
    way, or quotes that are shown once."""
    cached_tokens: NonNegative = 0
    """The part of this prompt that is read from a cache, as far as this process knows; 0 where
    the prompt or that part is too small for the provider to cache it."""
    effective_tokens: NonNegative = 0
    """The cost of this prompt in tokens of input that no cache has to do with: those that a warm
    cache holds cost what the provider charges for reading them, mostly a tenth, and new ones what
    it charges for writing, with Anthropic 1.25."""
    whole_effective_tokens: NonNegative = 0
    """The same for everything that was said so far, sent each time."""
    saved_tokens: NonNegative = 0
    turns_to_step: NonNegative | None = None
    """In about so many turns the prompt has grown to its budget; None where prompts do not grow."""
    step_tokens: NonNegative | None = None
    """About what the step then costs, all of it new."""
    mode: str = ""
    """What the prompt is, compared with the last one: `extended`, `repeated`, `shortened` (its
    middle is left out), `clipped` (large messages are in short) or `rebuilt`; empty in older
    reports."""
    cause: str = ""
    """Why: `has_room`, `nothing_said`, `full`, `unpaid`, `not_growing`, `first`, `cold`,
    `turn_outgrown`, `other_model`, `other_tools`, `compacted` or `edited`."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class LostValue:
    """A value that the last prompt named, that this one does not, and that may matter.

    The recall tool quotes its message by `reference`.
    """

    value: str
    """The value as it was written, such as `ORD-12345`; empty in a kept report, which quotes
    nothing."""
    kind: ValueKind
    message: Positive
    """The position from 1 of the message that it was lost with."""
    message_id: str
    speaker: str
    state: CoverageState
    """What has become of the message: why the value went."""

    @property
    def reference(self) -> str:
        """The reference of the message, as the recall tool takes it."""
        return f"#{self.message}"


@checks_names()
@dataclass(frozen=True, kw_only=True)
class ContextReport:
    """The account of one assembly: numbers that add up, and a reason for every item.

    `sum(layer.used_tokens) + sum(overhead_tokens.values()) == total_tokens`, and the total is an
    independent count of the finished messages, tool schemas and response format.

    Example:
        >>> from langchain_ctxbudget import ContextPipeline
        >>> context = ContextPipeline().assemble("Hello", user_id="ada", conversation_id="c1")
        >>> context.report.total_tokens
        8
    """

    user_id: str
    conversation_id: str
    budget_tokens: Positive
    """The most that the request may cost: the setting, or less where the model's window is
    smaller."""
    window_tokens: Positive | None
    window_source: Literal["profile", "served", "settings", "unknown"]
    """The source of the window: the model's profile, the server that runs it, the settings, or
    nobody."""
    window_detail: str
    """The same in words, with the server's address."""
    output_reserve_tokens: NonNegative
    total_tokens: NonNegative
    uncorrected_tokens: NonNegative
    """The total before `observe_usage` corrected the counts; the same where nothing was
    observed."""
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
    summary_lines: dict[str, NonNegative]
    """Lines of arc and summary by who wrote them: `extraction`, or a model."""
    summaries_waiting: NonNegative
    """Spans in the prompt that the model has not written about yet."""
    last_resort: tuple[str, ...]
    """The steps that were taken because the prompt was over its budget in spite of everything."""
    tokenizer_calls: NonNegative
    """Texts that had to be tokenized for this assembly; all others were known."""
    timings_ms: dict[str, Number]
    """Milliseconds per step. Apart from these, from what had to be tokenized and from what a
    previous prompt of this process shares, equal inputs give equal reports."""
    usage: UsageState | None = None
    own_calls: OwnCalls = NO_OWN_CALLS
    """The calls that learn and sum up, made since the conversation's last prompt."""
    own_effective_tokens: NonNegative = 0
    """What these have cost, in the tokens of `stability.effective_tokens`: by the prices of both
    models where they are known, else as if both were one model."""
    topics: tuple[str, ...] = ()
    entities: tuple[str, ...] = ()
    """What the message is about, surest first; and what was predicted from what is open on the
    device."""
    predicted: tuple[str, ...] = ()
    cache_hits: dict[str, NonNegative] = field(default_factory=dict)
    """By layer, the texts that were compiled before, and those that were missing or have
    changed."""
    cache_misses: dict[str, NonNegative] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    """What the user may want to know and is no failure, such as messages that teach nothing."""
    lost_values: tuple[LostValue, ...] = ()
    """Values that the last prompt of this process named and this one does not, as far as they may
    matter: the user's own first. There are none where the prompt extends the last one."""
    more_lost_values: NonNegative = 0
    """How many there are beyond those that are listed."""
    forecast: bool = False
    """True for the report of another budget: nothing was sent."""
    schema_version: Literal[3] = 3

    def layer(self, layer: Layer | str) -> LayerReport:
        """Returns a layer by its short name, such as `"L5"`, or by the name of a custom layer."""
        for layer_report in self.layers:
            if layer_report.layer == layer:
                return layer_report
        names = ", ".join(layer_report.layer for layer_report in self.layers)
        raise ValueError(f"no layer {str(layer)!r} in this report; it has {names}")

    @property
    def turn_effective_tokens(self) -> int:
        """What the turn costs, in new tokens of input: the prompt, and the package's own calls."""
        return self.stability.effective_tokens + self.own_effective_tokens

    def coverage_counts(self) -> dict[CoverageState, int]:
        """Returns the number of messages in each state; their sum is the conversation."""
        counts: dict[CoverageState, int] = {
            "verbatim": 0,
            "summarized": 0,
            "retrieved": 0,
            "omitted": 0,
        }
        for messages in self.coverage:
            counts[messages.state] += messages.last - messages.first + 1
        return counts

    def to_dict(self, *, texts: bool = True) -> dict[str, Any]:
        """Returns plain data, ready for JSON.

        Args:
            texts: False leaves out everything that somebody said, wrote or named; of lists of such
                texts their lengths remain.
        """
        data: dict[str, Any] = _adapter().dump_python(self, mode="json")
        if texts:
            return data
        del data["window_detail"]
        for key in (
            "repairs",
            "failures",
            "notes",
            "topics",
            "entities",
            "predicted",
            "lost_values",
        ):
            data[key] = len(data[key])
        for layer in data["layers"]:
            del layer["items"]
        return data

    @classmethod
    def from_dict(cls, data: object) -> "ContextReport":
        """Reads a report from the data of `to_dict`."""
        try:
            return _adapter().validate_python(data)
        except ValidationError as error:
            problem = error.errors()[0]
            place = ".".join(map(str, problem["loc"]))
            raise InputError(f"This is no report: {place}: {problem['msg']}") from None

    def _explainable(self) -> str:
        """Returns which messages the report can explain, as the beginning of a sentence."""
        if not self.coverage:
            return "its conversation had no messages before this turn, so it knows only"
        return f"it has messages 1 to {self.coverage[-1].last:,} and"

    def explain(self, what: str | int) -> str:
        """Says in words what became of an item, or of a message by its position from 1, and why.

        Of messages that are neither verbatim nor retrieved a report has the positions only;
        `ContextPipeline.coverage` has their ids.

        Raises:
            InputError: The report does not know the item or the message.
        """
        lines = explained(self, what)
        if not lines:
            raise InputError(
                f"This report knows no {what!r}: {self._explainable()} the ids of its items, in "
                "`report.layers`"
            )
        return "\n".join(lines)

    def receipt(self, prefix: str = "ctxbudget_") -> dict[str, str | int | float]:
        """Returns the numbers of the prompt under flat names, for traces: no texts, no user.

        `layer_..._tokens` and `overhead_tokens` add up to `total_tokens`, and so do `cached_tokens`
        and `new_tokens`. Costs are in tokens of input that no cache has to do with, those of own
        calls also in US dollars.

        Args:
            prefix: what stands in front of every name: `"ctxbudget_"` for metadata of runs in
                LangSmith.
        """
        return receipt_of(self).numbers(prefix)

    def to_line(self) -> str:
        """Says in a line what the prompt is, for logs and streams: without texts."""
        return in_a_line(self)

    def to_text(self, width: int = 80) -> str:
        """Draws the report for logs: a sentence, bars and facts, at least 56 columns wide."""
        return render_text(self, width)

    def __rich_console__(self, console: "Console", options: "ConsoleOptions") -> Iterator["Text"]:
        """Lets `rich` print the report in colour, as wide as its terminal."""
        yield render_terminal(self, options.max_width)

    def __str__(self) -> str:
        return self.to_text()

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:  # noqa: ANN401, FBT001, ARG002 - IPython's interface
        printer.text(str(self))

    def _repr_html_(self) -> str:
        return render_html(self)


def layer_report(
    layer: str,
    *,
    title: str,
    allocated: int,
    items: Iterable[ReportItem],
    overhead: int,
    more: Mapping[Reason, int],
) -> LayerReport:
    """Makes the report of a layer.

    Args:
        layer: its short name, or the name of a custom layer.
        title: its title.
        allocated: tokens that were planned for it.
        items: its candidates; beyond `LISTED_OMISSIONS`, omitted ones are only counted.
        overhead: tokens of its headings and fences.
        more: omitted candidates per reason that are not among the items.
    """
    listed: list[ReportItem] = []
    counts = Counter(more)
    omitted = 0
    item_tokens = 0
    for item in items:
        if item.status is not Status.OMITTED:
            listed.append(item)
            item_tokens += item.tokens
            continue
        omitted += 1
        if omitted > LISTED_OMISSIONS:
            counts[item.reason] += 1
        else:
            listed.append(item)
    return LayerReport(
        layer=layer,
        title=title,
        allocated_tokens=allocated,
        items=tuple(listed),
        overhead_tokens=overhead,
        used_tokens=overhead + item_tokens,
        more_omitted=dict(counts),
    )


def ranges(
    total: int, cut: int, covered: Iterable[tuple[int, int]], marks: Mapping[int, CoverageState]
) -> tuple[CoverageRange, ...]:
    """Returns the coverage of a conversation as ranges.

    The work is bounded by what is given, not by the length of the conversation.

    Args:
        total: messages of the conversation.
        cut: the position behind which messages are verbatim.
        covered: the positions, end excluded, that lines of a summary stand for.
        marks: the states of single messages, by position from 0, where they differ.
    """
    spans = deque(sorted((first, min(end, cut)) for first, end in covered if first < min(end, cut)))
    edges = {0, cut, total, *chain.from_iterable(spans)}
    for position in marks:
        edges.update((position, position + 1))
    coverage: list[CoverageRange] = []
    covered_until = 0
    for first, end in pairwise(sorted(edges)):
        while spans and spans[0][0] <= first:
            covered_until = max(covered_until, spans.popleft()[1])
        state = marks.get(first) or _state_of(first, cut, is_covered=first < covered_until)
        start = first + 1
        if coverage and coverage[-1].state == state:
            start = coverage.pop().first
        coverage.append(CoverageRange(first=start, last=end, state=state))
    return tuple(coverage)


def coverage_counts(
    total: int, cut: int, covered: Iterable[tuple[int, int]], marks: Mapping[int, CoverageState]
) -> dict[CoverageState, int]:
    """Returns the number of messages in each state, as `ranges` of the same arguments have them."""
    spans = _joined(covered, cut)
    summarized = sum(end - first for first, end in spans)
    counts: dict[CoverageState, int] = {
        "verbatim": total - cut,
        "summarized": summarized,
        "retrieved": 0,
        "omitted": cut - summarized,
    }
    for position, state in marks.items():
        before = bisect_right(spans, (position, total)) - 1
        is_covered = before >= 0 and position < spans[before][1]
        counts[_state_of(position, cut, is_covered=is_covered)] -= 1
        counts[state] += 1
    return counts


def _joined(covered: Iterable[tuple[int, int]], cut: int) -> list[tuple[int, int]]:
    """Returns spans before a cut in order, those that overlap as one."""
    joined: list[tuple[int, int]] = []
    for first, end in sorted((first, min(end, cut)) for first, end in covered):
        start = max(first, joined[-1][1]) if joined else first
        if start < end:
            joined.append((start, end))
    return joined


def _state_of(position: int, cut: int, *, is_covered: bool) -> CoverageState:
    if position >= cut:
        return "verbatim"
    return "summarized" if is_covered else "omitted"


def preview(text: str) -> str:
    """Returns the beginning of a text on one line."""
    return clipped(text, PREVIEW_CHARACTERS)


@cache
def _adapter() -> TypeAdapter[ContextReport]:
    return TypeAdapter(ContextReport)
