"""The report of a prompt, its renderers and its plots.

They read its plain data and nothing else.
"""

from langchain_ctxbudget.report.chart import Part, parts_of
from langchain_ctxbudget.report.colours import (
    CUSTOM_COLOURS,
    LAYER_COLOURS,
    SOURCES,
    STATES,
    CoverageState,
    on_dark,
)
from langchain_ctxbudget.report.modes import Cause, Mode
from langchain_ctxbudget.report.receipt import Receipt
from langchain_ctxbudget.report.report import (
    LISTED_OMISSIONS,
    ContextReport,
    CoverageRange,
    HistoryStrategy,
    LayerReport,
    LostValue,
    ReportItem,
    Stability,
    UsageState,
    coverage_counts,
    layer_report,
    preview,
    ranges,
)
from langchain_ctxbudget.report.wording import (
    JOINED,
    percent,
    plural,
    summed_up,
    with_visible_controls,
)
