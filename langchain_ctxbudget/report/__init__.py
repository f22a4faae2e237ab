"""The report of a prompt, its renderers and its plots; they read its plain data and nothing else."""

from langchain_ctxbudget.report.report import (
    LISTED_OMISSIONS, ContextReport, CoverageRange, CoverageState, HistoryStrategy, LayerReport, ReportItem,
    Stability, UsageState, layer_report, preview, ranges,
)  # fmt: skip
from langchain_ctxbudget.report.view import JOINED, STATES, plural, shown
