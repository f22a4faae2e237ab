"""The public path of `ContextBudgetMiddleware`; needs the extra `agents`."""

from langchain_ctxbudget.integrations.middleware import ContextBudgetMiddleware, ContextBudgetState

__all__ = ["ContextBudgetMiddleware", "ContextBudgetState"]
