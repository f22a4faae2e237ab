"""Documents: loaded, split, kept, summed up and searched."""

from __future__ import annotations

from langchain_ctxbudget.documents.knowledge_base import KnowledgeBase
from langchain_ctxbudget.documents.library import SHARED, Library, beside, owner_of

__all__ = ["SHARED", "KnowledgeBase", "Library", "beside", "owner_of"]
