"""The report of a prompt, its renderers and its plots.

They read its plain data and nothing else.
"""

from langchain_ctxbudget.report.report import (
    JOINED, LISTED_OMISSIONS, STATES, ContextReport, CoverageRange, CoverageState, HistoryStrategy, LayerReport,
    ReportItem, Stability, UsageState, layer_report, plural, preview, ranges, shown,
)  # fmt: skip
