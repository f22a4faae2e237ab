"""Just-in-time retrieval: candidates of every kind, ranked, and quoted within their budget."""

from langchain_ctxbudget.retrieval.filling import MIXED_SECTION, OWN_SECTION
from langchain_ctxbudget.retrieval.ordering import Ordering, boosted, in_order, weighted
from langchain_ctxbudget.retrieval.pool import NamedDocument, Pool, gather, pooled
from langchain_ctxbudget.retrieval.recall import (
    USAGE,
    by_query,
    by_reference,
    media_again,
)
from langchain_ctxbudget.retrieval.references import Transcript
from langchain_ctxbudget.retrieval.reranking import rerank
from langchain_ctxbudget.retrieval.searched import Other, Searched, without_names
from langchain_ctxbudget.retrieval.selecting import Retrieved, select
from langchain_ctxbudget.retrieval.sources import Sources, search
