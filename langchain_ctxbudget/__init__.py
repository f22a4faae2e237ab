"""Decides what goes into the context window of every model call, for LangChain and LangGraph."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from langchain_ctxbudget.chat_history import BudgetedChatMessageHistory
    from langchain_ctxbudget.core.report import ContextReport
    from langchain_ctxbudget.core.tokens import EstimatingCounter, TiktokenCounter, TokenCounter
    from langchain_ctxbudget.counters import HuggingFaceCounter, ModelCounter
    from langchain_ctxbudget.draft import AssembledContext
    from langchain_ctxbudget.embeddings import LocalEmbeddings
    from langchain_ctxbudget.graph import build_context_graph
    from langchain_ctxbudget.knowledge_base import KnowledgeBase
    from langchain_ctxbudget.pipeline import ContextPipeline
    from langchain_ctxbudget.retrievers import BudgetedRetriever
    from langchain_ctxbudget.settings import ContextSettings
    from langchain_ctxbudget.stores.chroma import ChromaStore
    from langchain_ctxbudget.tools import create_recall_tool

__all__ = [
    "AssembledContext",
    "BudgetedChatMessageHistory",
    "BudgetedRetriever",
    "ChromaStore",
    "ContextPipeline",
    "ContextReport",
    "ContextSettings",
    "EstimatingCounter",
    "HuggingFaceCounter",
    "KnowledgeBase",
    "LocalEmbeddings",
    "ModelCounter",
    "TiktokenCounter",
    "TokenCounter",
    "build_context_graph",
    "create_recall_tool",
]

# Loaded when first used: Chroma alone takes longer to import than a prompt takes to assemble.
_HOMES = {
    "AssembledContext": "draft",
    "BudgetedChatMessageHistory": "chat_history",
    "BudgetedRetriever": "retrievers",
    "ChromaStore": "stores.chroma",
    "ContextPipeline": "pipeline",
    "ContextReport": "core.report",
    "ContextSettings": "settings",
    "EstimatingCounter": "core.tokens",
    "HuggingFaceCounter": "counters",
    "KnowledgeBase": "knowledge_base",
    "LocalEmbeddings": "embeddings",
    "ModelCounter": "counters",
    "TiktokenCounter": "core.tokens",
    "TokenCounter": "core.tokens",
    "build_context_graph": "graph",
    "create_recall_tool": "tools",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
