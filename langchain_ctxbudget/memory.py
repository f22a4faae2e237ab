"""The public path of `BudgetedMemory`; needs the extra `classic`."""

from langchain_ctxbudget.integrations.memory import BudgetedMemory

__all__ = ["BudgetedMemory"]
