"""Just-in-time retrieval: candidates of every kind, ranked, and quoted within their budget."""

from langchain_ctxbudget.retrieval.pool import (
    Named,
    Other,
    Pool,
    Searched,
    gather,
    pooled,
    without_names,
)
from langchain_ctxbudget.retrieval.recall import (
    IS_RECALL, USAGE, Transcript, by_query, by_reference, media_again, recall_tool,
)  # fmt: skip
from langchain_ctxbudget.retrieval.selecting import MIXED_SECTION, OWN_SECTION, Retrieved, select
from langchain_ctxbudget.retrieval.sources import Sources, boosted, rerank, search, weighted
