"""How a budget is divided between the layers: strategies are pure functions of the situation."""

from langchain_ctxbudget.core.allocation.elastic import elastic
from langchain_ctxbudget.core.allocation.model import Allocation, LayerSpec, Situation
from langchain_ctxbudget.core.allocation.solver import divide

__all__ = ["Allocation", "LayerSpec", "Situation", "divide", "elastic"]
