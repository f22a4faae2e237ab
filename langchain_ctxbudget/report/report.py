"""The account of one prompt as plain data.

Items with reasons, tokens that add up, and how it is read and shown.

It is shown as a text chart (seed 000), as a card for notebooks, and in words: the same numbers,
words and colours.
"""

import re
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from html import escape
from itertools import chain, pairwise
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field, TypeAdapter, ValidationError

from langchain_ctxbudget.budget import (
    Forced,
    Layer,
    NonNegative,
    Positive,
    Reason,
    Status,
    TierName,
    title_of,
)
from langchain_ctxbudget.errors import InputError, checks_names
from langchain_ctxbudget.messages import Repair, clipped

LISTED_OMISSIONS = 50
"""Omitted candidates of a layer that are listed one by one; further ones are counted per reason."""
PREVIEW_CHARACTERS = 80
CoverageState = Literal["verbatim", "summarized", "retrieved", "omitted"]
HistoryStrategy = Literal["empty", "full", "windowed", "compacted", "multi_level"]
"""How a history is shown (seed 000): whole; with a summary; with more room for its newer part; with
several levels."""
Number: TypeAlias = Annotated[float, Field(allow_inf_nan=False)]

_COLOURS = ("#555555", "#A375E0", "#428A56", "#EBCD47", "#75CBF0", "#E8702A", "#1F4FA3", "#8A1212")
LAYER_COLOURS: Mapping[str, str] = dict(zip(map(str, Layer), _COLOURS, strict=True))
CUSTOM_COLOURS = ("#CC66A5", "#8BB85E", "#31145C")
"""For custom layers, in the order in which they are declared."""
OVERHEAD = "tools and framing"
FREE = "free"
OTHERS = {OVERHEAD: "#C0C0C0", FREE: "#FFFFFF"}
STATES: dict[CoverageState, tuple[str, str, str]] = {
    "verbatim": ("verbatim", "#1F4FA3", "It is sent word for word, in L6."),
    "retrieved": (
        "retrieved",
        "#E8702A",
        "It was found for the current message and is quoted in L5.",
    ),
    "summarized": (
        "behind the summary",
        "#75CBF0",
        "A summary or excerpt stands for it; the recall tool quotes it.",
    ),
    "omitted": (
        "left out",
        "#FFFFFF",
        "Nothing in this prompt stands for it. It is stored; the recall tool has it.",
    ),
}
"""Words and colour for the state of a message, and what it means."""
JOINED = " + "
"""Between the ids of a call and its results, which are one item."""
FULL = "█"
EMPTY = "░"
LABEL = 21
MIN_BAR = 8
MAX_BAR = 60
NUMBERS = (9, 7, 11)
"""Columns of a chart: its labels, its bars, and its numbers."""
FAR_STEP = 20
"""A compaction step that is more turns away is not worth a word."""
FACT_INDENT = 11
LEAST_SCORE = 0.005
_OBEYED = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)
"""Control characters, directions of writing, and halves of characters, which cannot be printed at
all."""
_PICTURES = {"\x7f": "␡"} | {chr(code): chr(0x2400 + code) for code in range(ord(" "))}
CARD_COLUMNS = 100
_CARD = (
    "overflow-x:auto;white-space:pre;color:inherit;background:none;font-size:12px;line-height:1.35"
)


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
    effective_tokens: NonNegative = 0
    """The cost of this prompt in new tokens: of those in the common prefix, which a warm cache
    holds, a tenth."""
    whole_effective_tokens: NonNegative = 0
    """The same for everything that was said so far, sent each time."""
    saved_tokens: NonNegative = 0
    turns_to_step: NonNegative | None = None
    """In about so many turns the prompt has grown to its budget; None where prompts do not grow."""
    step_tokens: NonNegative | None = None
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
    topics: tuple[str, ...] = ()
    entities: tuple[str, ...] = ()
    """What the message is about, surest first; and what was predicted from what is open on the
    device."""
    predicted: tuple[str, ...] = ()
    cache_hits: dict[str, NonNegative] = field(default_factory=dict)
    """By layer, the texts that were compiled before, and those that were missing or have
    changed."""
    cache_misses: dict[str, NonNegative] = field(default_factory=dict)
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
        counts: dict[CoverageState, int] = {
            "verbatim": 0,
            "summarized": 0,
            "retrieved": 0,
            "omitted": 0,
        }
        for part in self.coverage:
            counts[part.state] += part.last - part.first + 1
        return counts

    def to_dict(self, *, texts: bool = True) -> dict[str, Any]:
        """Returns plain data, ready for JSON.

        Without `texts` nothing that somebody said, wrote or named.
        """
        data: dict[str, Any] = _adapter().dump_python(self, mode="json")
        if not texts:
            del data["window_detail"]
            data |= {
                key: len(data[key])
                for key in ("repairs", "failures", "topics", "entities", "predicted")
            }
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
            raise InputError(
                f"This is no report: {'.'.join(map(str, first['loc']))}: {first['msg']}"
            ) from None

    def explain(self, what: str | int) -> str:
        """Says in words what became of an item, or of a message by its position from 1, and why.

        An `InputError` for what this report does not know. Of messages that are neither verbatim
        nor retrieved it knows the positions only; `ContextPipeline.coverage` has their ids.
        """
        if not (lines := explained(self, what)):
            last = self.coverage[-1].last if self.coverage else 0
            raise InputError(
                f"This report knows no {what!r}: it has messages 1 to {last:,} and the ids of its items"
            )
        return "\n".join(lines)

    def to_text(self, width: int = 80) -> str:
        """Draws a bar chart for terminals and logs, at least 56 columns wide."""
        return render_chart(self, width)

    def __str__(self) -> str:
        return self.to_text()

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:  # noqa: ANN401, FBT001, ARG002 - IPython's interface
        printer.text(str(self))

    def _repr_html_(self) -> str:
        return render_html(self)


def layer_report(
    layer: str,
    *,
    allocated: int,
    items: Iterable[ReportItem],
    overhead: int,
    more: Mapping[Reason, int],
) -> LayerReport:
    """Makes a layer's report.

    Beyond `LISTED_OMISSIONS`, omitted candidates become counts, like those of `more`.
    """
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
        used_tokens=overhead
        + sum(item.tokens for item in listed if item.status is not Status.OMITTED),
        more_omitted=dict(counts),
    )


def ranges(
    total: int, cut: int, covered: Iterable[tuple[int, int]], marks: Mapping[int, CoverageState]
) -> tuple[CoverageRange, ...]:
    """Returns the coverage of a conversation as ranges.

    Work is bounded by what is given, not by the conversation.
    """
    spans = deque(sorted((first, min(end, cut)) for first, end in covered if first < min(end, cut)))
    points = {
        0,
        cut,
        total,
        *chain.from_iterable(spans),
        *chain.from_iterable((one, one + 1) for one in marks),
    }
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
    return clipped(text, PREVIEW_CHARACTERS)


@cache
def _adapter() -> TypeAdapter[ContextReport]:
    return TypeAdapter(ContextReport)


def label_of(layer: str) -> str:
    """Returns the name of a layer in charts; a custom layer is called by its own."""
    return f"{layer} {title_of(layer)}" if layer in LAYER_COLOURS else layer


def colours_of(names: Iterable[str]) -> dict[str, str]:
    """Returns the colour of every part, those of custom layers in the order in which they come."""
    colours = {**LAYER_COLOURS, **OTHERS}
    custom = [name for name in dict.fromkeys(map(str, names)) if name not in colours]
    return colours | {
        name: CUSTOM_COLOURS[number % len(CUSTOM_COLOURS)] for number, name in enumerate(custom)
    }


def plural(count: int, noun: str) -> str:
    """Returns a number and its noun, such as `1 message`, `1,200 messages` and `2 entities`."""
    return f"{count:,} {noun if count == 1 else f'{noun}s'.replace('tys', 'ties')}"


def shown(text: str) -> str:
    r"""Returns a text whose control characters are shown, not obeyed: an escape as `␛`, a C1 one as `\u009b`."""
    return _OBEYED.sub(lambda found: _PICTURES.get(found[0], f"\\u{ord(found[0]):04x}"), text)


def facts(report: ContextReport) -> list[tuple[str, str]]:
    """Returns labels and their texts, in the order in which they are shown."""
    counts = report.coverage_counts()
    states = ", ".join(
        f"{counts[state]:,} {said}" for state, (said, *_) in STATES.items() if counts[state]
    )
    history = f"{report.history_strategy}: {plural(sum(counts.values()), 'message')}: {states}"
    how = "exact" if report.count_mode == "exact" else "estimated, with a margin"
    corrected = report.uncorrected_tokens != report.total_tokens
    reserve = f"{report.output_reserve_tokens:,} tokens kept free for the answer"
    window = f"{report.window_tokens or 0:,} tokens ({report.window_detail or report.window_source}), {reserve}"
    written = [
        f"{plural(lines, 'line')} by {maker}" for maker, lines in report.summary_lines.items()
    ]
    if report.summaries_waiting:
        written.append(f"{plural(report.summaries_waiting, 'span')} still to be written")
    by_model = report.summaries_waiting or set(report.summary_lines) - {"extraction"}
    steps = ", ".join(f"{name} {ms:.1f}" for name, ms in report.timings_ms.items())
    came_up = {*report.topics, *report.entities}.intersection(report.predicted)
    ready = [
        f"{hits} of {hits + report.cache_misses[layer]} in {layer}"
        for layer, hits in report.cache_hits.items()
    ]
    found = [
        ("Topics", ", ".join(report.topics)),
        ("Entities", ", ".join(report.entities)),
        (
            "Predicted",
            f"{', '.join(report.predicted)}; {len(came_up)} came up" if report.predicted else "",
        ),
        ("Ready", ", ".join(ready)),
        ("Settings", " < ".join(report.settings_from) if len(report.settings_from) > 1 else ""),
        ("Strategy", report.allocation_strategy),
        ("History", history if report.coverage else "no messages yet"),
        ("Stable", _stable_zone(report.stability)),
        ("Cost", _cost(report.stability)),
        ("Counted", f"{how} ({report.tokenizer}), {plural(report.tokenizer_calls, 'new text')}"),
        (
            "Corrected",
            f"by observed usage; {report.uncorrected_tokens:,} without it" if corrected else "",
        ),
        ("Window", window if report.window_tokens else ""),
        ("Reserve", reserve if report.output_reserve_tokens and not report.window_tokens else ""),
        ("Usage", _usage(report.usage) if report.usage else ""),
        ("Summaries", ", ".join(written) if by_model else ""),
        (
            "Squeezed",
            f"{', '.join(report.last_resort)}: it did not fit otherwise"
            if report.last_resort
            else "",
        ),
        *(
            ("Repaired", f"{repair.kind} {repair.message_id}: {repair.detail}")
            for repair in report.repairs
        ),
        *(("Failed", failure) for failure in report.failures),
        ("Time", f"{sum(report.timings_ms.values()):.1f} ms ({steps})"),
    ]
    return [(label, text) for label, text in found if text]


def _stable_zone(stable: Stability) -> str:
    zone = f"{stable.stable_zone_tokens:,} tokens in the stable zone"
    if stable.shared_tokens is None:
        return f"{zone}; first prompt of this conversation"
    shared = f"{stable.stable_zone_share:.0%} of it as in the previous prompt ({stable.prompt_share:.0%} of the whole)"
    return f"{zone}, {shared}{', a compaction step' if stable.compaction_step else ''}"


def _cost(stable: Stability) -> str:
    cost = f"{stable.effective_tokens:,} effective tokens, {stable.whole_effective_tokens:,} for sending everything"
    turns = stable.turns_to_step
    if turns is None or turns > FAR_STEP:
        return cost
    when = f"in about {plural(turns, 'turn')}" if turns else "next"
    return f"{cost}; {when} a step of about {stable.step_tokens:,}"


def _usage(usage: UsageState) -> str:
    money = "$" if usage.limit.endswith("cost") else ""
    used, allowed = (
        f"{money}{part:,.{2 if money else 0}f}" for part in (usage.used, usage.allowed)
    )
    forced = f"; {', '.join(usage.forced)} forced" if usage.forced else ""
    return (
        f"{usage.tier}: {usage.left:.0%} of {usage.limit} left ({used} of {allowed} used){forced}"
    )


def explained(report: ContextReport, what: str | int) -> list[str]:
    """Returns lines about a message or an item; none where the report does not know it."""
    lines: list[str] = []
    name = f"message {what}" if isinstance(what, int) else what
    for around in report.coverage:
        if isinstance(what, int) and around.first <= what <= around.last:
            span = (
                f", as are messages {around.first}-{around.last}"
                if around.first < around.last
                else ""
            )
            lines.append(f"{name} of {report.coverage[-1].last:,}: {STATES[around.state][0]}{span}")
            lines.append(f"  {STATES[around.state][2]}")
    for layer in report.layers:
        for item in layer.items:
            if name in (item.id, *item.id.split(JOINED)):  # results are one item with their call
                would = "it would have cost " if item.status is Status.OMITTED else ""
                where = ", ".join(filter(None, (label_of(layer.layer), item.source, item.status)))
                lines.append(f"{item.id}: {where}, {would}{plural(item.tokens, 'token')}")
                lines.append(f"  {item.reason}: {item.reason.meaning}.")
                scores = sorted(item.scores.items(), key=lambda score: -abs(score[1]))
                parts = ", ".join(
                    f"{part} {score:+.2f}" for part, score in scores if abs(score) >= LEAST_SCORE
                )
                lines += [f"  ranked by: {parts}"] if parts else []
                lines += [f'  "{item.preview}"'] if item.preview else []
    return list(map(shown, lines))


def render_html(report: ContextReport) -> str:
    """Draws the same chart in colour, with all items behind a fold.

    Preformatted, it is alike in every notebook.
    """
    label = plural(sum(len(layer.items) for layer in report.layers), "item")
    if further := sum(sum(layer.more_omitted.values()) for layer in report.layers):
        label += f" and {further:,} more that are left out"
    fold = f"<summary style='cursor:pointer'>{label}</summary>{''.join(_items(report))}"
    return f"<pre style='{_CARD}'>{render_chart(report, CARD_COLUMNS, _coloured)}\n<details>{fold}</details></pre>"


def render_chart(
    report: ContextReport, width: int, draw: Callable[[str, str], str] = lambda text, _: text
) -> str:
    """Draws a bar chart with the facts below it; `draw` writes a text in a colour, or in none."""
    from rich.console import Console  # noqa: PLC0415 - when something is drawn
    from rich.text import Text  # noqa: PLC0415

    bar_width = max(MIN_BAR, min(MAX_BAR, width - LABEL - sum(NUMBERS)))
    breadth = LABEL + bar_width + sum(NUMBERS)
    budget = report.budget_tokens

    def line(label: str, bar: str, cells: Sequence[str], colour: str = "") -> str:
        numbers = "".join(f"{cell:>{room}}" for cell, room in zip(cells, NUMBERS, strict=True))
        pieces = (
            (f"{_fitted(label, LABEL - 1)} ", ""),
            (bar or " " * bar_width, colour),
            (numbers.rstrip(), ""),
        )
        return "".join(draw(*piece) for piece in pieces)

    def row(name: str, tokens: int, colour: str, planned: str = "") -> str:
        label = label_of(name) if name in LAYER_COLOURS else f"   {name}"
        share = tokens / budget
        filled = max(0, min(bar_width, round(share * bar_width))) or int(tokens > 0)
        bar = FULL * filled + EMPTY * (bar_width - filled)
        return line(label, bar, (f"{tokens:,}", f"{share:.1%}", planned), colour)

    colours = colours_of(layer.layer for layer in report.layers)
    rows = [
        row(one.layer, one.used_tokens, colours[one.layer], f"{one.allocated_tokens:,}")
        for one in report.layers
    ]
    rows += [
        row(name.capitalize(), n, OTHERS[OVERHEAD]) for name, n in report.overhead_tokens.items()
    ]
    tokens = f"{budget:,} tokens"
    heading = _fitted(
        f"CONTEXT BUDGET{' (forecast)' if report.forecast else ''}", breadth - len(tokens) - 1
    )
    rule = "─" * breadth
    lines = [f"{heading} {tokens}", line("", "", ("used", "share", "planned")), rule, *rows, rule]
    free = line("   Free", "", (f"{budget - report.total_tokens:,}", "", ""))
    lines += [row("Total", report.total_tokens, ""), free, ""]
    for label, text in facts(report):
        wrapped = Text(shown(" ".join(text.split()))).wrap(Console(), breadth - FACT_INDENT)
        labels = [label, *[""] * len(wrapped)]
        said = (
            f"{label:<{FACT_INDENT}}{part.plain}"
            for label, part in zip(labels, wrapped, strict=False)
        )
        lines += [draw(part.rstrip(), "") for part in said]
    return "\n".join(lines)


def _fitted(text: str, columns: int) -> str:
    from rich.text import Text  # noqa: PLC0415 - when something is drawn

    label = Text(shown(text))
    label.truncate(columns, overflow="ellipsis", pad=True)
    return label.plain


def _coloured(text: str, colour: str) -> str:
    # darker on a light page, lighter on a dark one
    mixed = f"color-mix(in srgb,{colour} 62%,currentColor)"
    return f"<span style='color:{mixed}'>{escape(text)}</span>" if colour else escape(text)


def _items(report: ContextReport) -> Iterator[str]:
    """Yields a line for every item, and for those of each reason that are only counted."""
    colours = colours_of(layer.layer for layer in report.layers)
    for layer in report.layers:
        mark = _coloured(FULL, colours[layer.layer]) + escape(
            _fitted(f" {layer.layer}", LABEL // 2)
        )
        for item in layer.items:
            why = _fitted(
                ", ".join(filter(None, (item.reason.replace("_", " "), item.source))), LABEL
            )
            cells = f"{item.status:<9}{why}{item.tokens:>7,}  {shown(item.preview)}"
            yield f"<div title='{escape(shown(item.id))}'>{mark}{escape(cells)}</div>"
        for reason, more in layer.more_omitted.items():
            yield f"<div>{mark}omitted  {more:,} more: {reason.replace('_', ' ')}</div>"
