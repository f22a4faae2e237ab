"""Decides what goes into the context window of every model call, for LangChain and LangGraph."""

from importlib import import_module, metadata
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from langchain_ctxbudget.documents import KnowledgeBase
    from langchain_ctxbudget.integrations.chat_history import BudgetedChatMessageHistory
    from langchain_ctxbudget.integrations.graph import build_context_graph
    from langchain_ctxbudget.integrations.memory import BudgetedMemory
    from langchain_ctxbudget.integrations.middleware import ContextBudgetMiddleware
    from langchain_ctxbudget.integrations.remembering import build_remember_node
    from langchain_ctxbudget.integrations.retrievers import BudgetedRetriever
    from langchain_ctxbudget.integrations.tools import create_recall_tool, create_tool_search
    from langchain_ctxbudget.pipeline import ContextPipeline, CostForecast, SweepResult
    from langchain_ctxbudget.prompt import AssembledContext
    from langchain_ctxbudget.report import ContextReport
    from langchain_ctxbudget.search import LocalEmbeddings
    from langchain_ctxbudget.settings import ContextSettings, RetentionPolicy
    from langchain_ctxbudget.stores.chroma import ChromaStore
    from langchain_ctxbudget.tokens import (
        EstimatingCounter,
        HuggingFaceCounter,
        ModelCounter,
        TiktokenCounter,
        TokenCounter,
    )

__all__ = [
    "AssembledContext",
    "BudgetedChatMessageHistory",
    "BudgetedMemory",
    "BudgetedRetriever",
    "ChromaStore",
    "ContextBudgetMiddleware",
    "ContextPipeline",
    "ContextReport",
    "ContextSettings",
    "CostForecast",
    "EstimatingCounter",
    "HuggingFaceCounter",
    "KnowledgeBase",
    "LocalEmbeddings",
    "ModelCounter",
    "RetentionPolicy",
    "SweepResult",
    "TiktokenCounter",
    "TokenCounter",
    "__version__",
    "build_context_graph",
    "build_remember_node",
    "create_recall_tool",
    "create_tool_search",
]

for _name, _package in (
    ("ContextBudgetMiddleware", "langchain"),
    ("BudgetedMemory", "langchain_classic"),
):
    if find_spec(_package) is None:  # `import *` gives what is installed
        __all__.remove(_name)  # noqa: PYI056 - checkers read the whole list

__version__ = metadata.version("langchain-ctxbudget")

# Loaded when first used: Chroma alone takes longer to import than a prompt takes to assemble.
_HOMES = {
    "AssembledContext": "prompt.plan",
    "BudgetedChatMessageHistory": "integrations.chat_history",
    "BudgetedMemory": "integrations.memory",
    "BudgetedRetriever": "integrations.retrievers",
    "ChromaStore": "stores.chroma",
    "ContextBudgetMiddleware": "integrations.middleware",
    "ContextPipeline": "pipeline.pipeline",
    "ContextReport": "report.report",
    "ContextSettings": "settings",
    "CostForecast": "pipeline.forecast",
    "EstimatingCounter": "tokens.counters",
    "HuggingFaceCounter": "tokens.counters",
    "KnowledgeBase": "documents.knowledge_base",
    "LocalEmbeddings": "search.vectors",
    "ModelCounter": "tokens.counters",
    "RetentionPolicy": "settings",
    "SweepResult": "pipeline.retention",
    "TiktokenCounter": "tokens.counters",
    "TokenCounter": "tokens.counters",
    "build_context_graph": "integrations.graph",
    "build_remember_node": "integrations.remembering",
    "create_recall_tool": "integrations.tools",
    "create_tool_search": "integrations.tools",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
