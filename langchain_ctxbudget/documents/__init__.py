"""Documents: loaded, split, kept, summed up and searched."""

from __future__ import annotations

from langchain_ctxbudget.documents import find
from langchain_ctxbudget.documents.find import beside, forget
from langchain_ctxbudget.documents.knowledge_base import KnowledgeBase

__all__ = ["KnowledgeBase", "beside", "find", "forget"]
