"""The public path of `ContextBudgetMiddleware`; needs the extra `agents`."""

from langchain_ctxbudget.integrations.middleware import ContextBudgetMiddleware, ContextBudgetState
from langchain_ctxbudget.pipeline import RunContext

__all__ = ["ContextBudgetMiddleware", "ContextBudgetState", "RunContext"]
