"""What went into a prompt, what did not, why, and what it cost: plain data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from langchain_ctxbudget.core import report_schema
from langchain_ctxbudget.core.compaction import Strategy
from langchain_ctxbudget.core.layers import Layer
from langchain_ctxbudget.core.report_checks import Count, Difference, Number, Positive, require_sums
from langchain_ctxbudget.core.report_diff import ReportDiff, difference
from langchain_ctxbudget.core.report_explain import Explanation, explanation
from langchain_ctxbudget.core.report_parts import (
    LISTED_OMISSIONS,
    PREVIEW_CHARACTERS,
    CoverageRange,
    CoverageState,
    LayerReport,
    ReportItem,
    Stability,
    UsageState,
    layer_report,
    preview,
    ranges,
)
from langchain_ctxbudget.core.report_schema import SCHEMA_VERSION
from langchain_ctxbudget.core.turns import Repair
from langchain_ctxbudget.errors import InputError
from langchain_ctxbudget.reporting.html import render_html
from langchain_ctxbudget.reporting.screen import PLAIN_WIDTH, terminal_colour, terminal_width
from langchain_ctxbudget.reporting.text import render_text

__all__ = [
    "LISTED_OMISSIONS",
    "PREVIEW_CHARACTERS",
    "SCHEMA_VERSION",
    "ContextReport",
    "CoverageRange",
    "CoverageState",
    "Explanation",
    "LayerReport",
    "ReportDiff",
    "ReportItem",
    "Stability",
    "UsageState",
    "layer_report",
    "preview",
    "ranges",
]


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
    budget_tokens: Positive
    """What the request may cost at most: the setting, or less where the model's window is smaller."""
    window_tokens: Positive | None
    """The model's window, where it is known."""
    window_source: Literal["profile", "served", "settings", "unknown"]
    """Who told the window: the model's profile, the server that runs it, the settings, or nobody."""
    window_detail: str
    """The same in words, with the server's address."""
    output_reserve_tokens: Count
    """What is kept free for the answer."""
    total_tokens: Count
    uncorrected_tokens: Count
    """The total before `observe_usage` corrected the counts; the same where nothing was observed."""
    count_mode: Literal["exact", "estimated"]
    tokenizer: str
    settings_from: tuple[str, ...]
    """Where the settings came from, each over those before it: `pipeline`, `user`, `persona`, `call`."""
    allocation_strategy: str
    history_strategy: Strategy
    """How the history is shown: whole, or compacted in one of the seed's three ways."""
    layers: tuple[LayerReport, ...]
    overhead_tokens: dict[str, Difference]
    """What no layer owns: tool schemas, response format, framing of messages."""
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
    """The usage limit that applied; None where none is set."""
    forecast: bool = False
    """Whether this is what another budget would have given: nothing was sent, and texts that were never tokenized
    are estimated."""
    schema_version: int = SCHEMA_VERSION

    def attach_candidates(self, rerun: Callable[[int], ContextReport]) -> ContextReport:
        """Have what `reallocate` runs, which is no part of a report's data; gives the report itself."""
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

        Example:
            >>> from langchain_ctxbudget import ContextPipeline
            >>> context = ContextPipeline().assemble("Hello", user_id="ada", conversation_id="c1")
            >>> context.report.layer("L7").used_tokens
            5
        """
        found = next((part for part in self.layers if part.layer == layer), None)
        if found is None:
            known = ", ".join(part.layer for part in self.layers)
            raise ValueError(f"no layer {str(layer)!r} in this report; it has {known}")
        return found

    def coverage_counts(self) -> dict[CoverageState, int]:
        """How many messages are in each state; their sum is the conversation.

        Example:
            >>> from langchain_ctxbudget import ContextPipeline
            >>> context = ContextPipeline().assemble("Hello", user_id="ada", conversation_id="c1")
            >>> context.report.coverage_counts()
            {'verbatim': 0, 'summarized': 0, 'retrieved': 0, 'omitted': 0}
        """
        counts: dict[CoverageState, int] = {"verbatim": 0, "summarized": 0, "retrieved": 0, "omitted": 0}
        for part in self.coverage:
            counts[part.state] += part.last - part.first + 1
        return counts

    def to_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON; `json_schema` says what it looks like.

        Example:
            >>> from langchain_ctxbudget import ContextPipeline
            >>> context = ContextPipeline().assemble("Hello", user_id="ada", conversation_id="c1")
            >>> context.report.to_dict()["layers"][7]["items"][0]["preview"]
            'Hello'
        """
        return report_schema.write(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> ContextReport:
        """A report from what `to_dict` gave, in this version of the package or an earlier one.

        Raises:
            InputError: another schema version than 2 and 3, data that is no report, or one whose numbers do not add
                up; says what is wrong with it.

        Example:
            >>> from langchain_ctxbudget import ContextPipeline, ContextReport
            >>> report = ContextPipeline().assemble("Hello", user_id="ada", conversation_id="c1").report
            >>> ContextReport.from_dict(report.to_dict()) == report
            True
        """
        report = report_schema.read(cls, data)
        require_sums(report)
        return report

    @classmethod
    def json_schema(cls) -> dict[str, Any]:
        """The JSON schema (draft 2020-12) of what `to_dict` gives; `$id` ends with its version.

        Example:
            >>> from langchain_ctxbudget import ContextReport
            >>> ContextReport.json_schema()["$id"]
            'urn:langchain-ctxbudget:context-report:3'
        """
        return report_schema.json_schema(cls)

    def diff(self, other: ContextReport) -> ReportDiff:
        """What changed from another report of the conversation to this one, in numbers and in words.

        Args:
            other: the earlier one, or what `reallocate` gave.

        Raises:
            InputError: it is no report, or of another user or another conversation.

        Example:
            >>> from langchain_ctxbudget import ContextPipeline
            >>> report = ContextPipeline().assemble("Hello", user_id="ada", conversation_id="c1").report
            >>> print(report.reallocate(500).diff(report))
            Total +0: 8 of 500 tokens
            Budget 12,000 -> 500
            Forecast no -> yes
        """
        if not isinstance(other, ContextReport):
            raise InputError(f"A report is compared with another ContextReport, not with {type(other).__name__}")
        return difference(self, other)

    def explain(self, what: str | int) -> Explanation:
        """What became of a message or of an item, and why.

        Args:
            what: the id of a message or of an item, as in `items`; or the position of a message, from 1.

        Raises:
            InputError: this report does not know it; says what is nearest. Of messages that are neither verbatim nor
                retrieved it knows the positions only; `ContextPipeline.coverage` has their ids.

        Example:
            >>> from langchain_ctxbudget import ContextPipeline
            >>> report = (
            ...     ContextPipeline(system_prompt="Be brief.")
            ...     .assemble("Hello", user_id="ada", conversation_id="c1")
            ...     .report
            ... )
            >>> print(report.explain("system prompt"))
            system prompt: item 1 of 1 in L0 Identity, included, 3 tokens
              required: always sent: system prompt, current message and the newest calls with their results.
              "Be brief."
        """
        return explanation(self, what)

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

    def to_text(self, width: int | None = None, *, colour: bool | None = None) -> str:
        """A bar chart for terminals and logs.

        Args:
            width: columns to use, at least 40; None: those of the terminal, 80 where there is none.
            colour: whether bars have the colours of their layers; None: where standard output is a terminal and
                `NO_COLOR` is not set. Colours change nothing else.

        Example:
            >>> from langchain_ctxbudget import ContextPipeline
            >>> report = ContextPipeline().assemble("Hello", user_id="ada", conversation_id="c1").report
            >>> print(report.to_text(width=60).splitlines()[0])
            CONTEXT BUDGET                                 12,000 tokens
        """
        columns = terminal_width() if width is None else width
        return render_text(self.to_dict(), width=columns, colour=terminal_colour() if colour is None else colour)

    def __str__(self) -> str:
        """The chart in 80 columns and without colours, wherever it is written."""
        return render_text(self.to_dict(), width=PLAIN_WIDTH)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:  # noqa: ANN401, FBT001, ARG002 - IPython's interface
        printer.text(str(self))

    def _repr_html_(self) -> str:
        """A card for notebooks: the layers, what is behind them, and every item."""
        return render_html(self.to_dict())
