"""Strategies by name, so that settings can come from JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from langchain_ctxbudget.core.allocation.elastic import ElasticAllocation
from langchain_ctxbudget.core.allocation.model import AllocationStrategy
from langchain_ctxbudget.core.allocation.prioritized import PrioritizedAllocation
from langchain_ctxbudget.core.allocation.shares import DynamicAllocation, FixedAllocation, RatioAllocation
from langchain_ctxbudget.errors import InvalidSettingsError

STRATEGIES: dict[str, type[Any]] = {
    "elastic": ElasticAllocation,
    "ratio": RatioAllocation,
    "fixed": FixedAllocation,
    "dynamic": DynamicAllocation,
    "prioritized": PrioritizedAllocation,
}


def strategy_of(value: object) -> AllocationStrategy:
    """A strategy from its name, from a mapping with its name and parameters, or itself.

    Args:
        value: for instance `"ratio"`, `{"strategy": "ratio", "memory": 0.35, "history": 0.35}`, or any object with
            a `name` and an `allocate`.

    Raises:
        InvalidSettingsError: an unknown name or parameter.

    Example:
        >>> strategy_of({"strategy": "elastic", "profile": "seed"})
        ElasticAllocation(profile='seed')
    """
    if isinstance(value, str):
        value = {"strategy": value}
    if isinstance(value, Mapping):
        parameters = dict(value)
        name = parameters.pop("strategy", None)
        if not isinstance(name, str) or name not in STRATEGIES:
            raise InvalidSettingsError(f"allocation must name one of {', '.join(STRATEGIES)}, not {name!r}")
        known = [field.name for field in fields(STRATEGIES[name])]
        if unknown := [str(parameter) for parameter in parameters if parameter not in known]:
            raise InvalidSettingsError(f"allocation {name!r} has no {', '.join(unknown)}; it has {', '.join(known)}")
        try:
            strategy: AllocationStrategy = STRATEGIES[name](**parameters)
        except TypeError as error:
            raise InvalidSettingsError(f"allocation {name!r}: {error}") from error
        return strategy
    if isinstance(value, type) or not isinstance(value, AllocationStrategy):
        raise InvalidSettingsError(
            f"allocation must be the name of a strategy ({', '.join(STRATEGIES)}), a mapping with its parameters, or "
            f"an object with a name and an allocate method, not {value!r}"
        )
    return value
