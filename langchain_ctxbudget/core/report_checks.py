"""What numbers of a report that is read from data may be: each by itself, and all of them together."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, TypeAlias

from pydantic import Field

from langchain_ctxbudget.core.layers import Status
from langchain_ctxbudget.errors import InputError

if TYPE_CHECKING:
    from langchain_ctxbudget.core.report import ContextReport

_MOST = 10**15
"""Whole numbers up to here are exact in JSON, too, and can be divided by each other."""

Count: TypeAlias = Annotated[int, Field(strict=True, ge=0, le=_MOST)]
Positive: TypeAlias = Annotated[int, Field(strict=True, ge=1, le=_MOST)]
Difference: TypeAlias = Annotated[int, Field(strict=True, ge=-_MOST, le=_MOST)]
"""What is left of a whole without its parts; below 0 where a counter counts the whole below their sum."""
Number: TypeAlias = Annotated[float, Field(strict=True, allow_inf_nan=False)]


def require_sums(report: ContextReport) -> None:
    """Refuse a report that does not add up.

    Raises:
        InputError: layers, the total or the coverage are not what they consist of; says which, and the numbers.
    """
    if problem := next(_problems(report), None):
        raise InputError(f"This is no report: {problem}")


def _problems(report: ContextReport) -> Iterator[str]:
    names = [layer.layer for layer in report.layers]
    yield from (f"there are two layers {name}" for name in names if names.count(name) > 1)
    for layer in report.layers:
        used = layer.overhead_tokens + sum(item.tokens for item in layer.items if item.status is not Status.OMITTED)
        if layer.used_tokens != used:
            yield f"used_tokens of layer {layer.layer} is {layer.used_tokens}, but its items and overhead are {used}"
    total = sum(layer.used_tokens for layer in report.layers) + sum(report.overhead_tokens.values())
    if report.total_tokens != total:
        yield f"total_tokens is {report.total_tokens}, but its layers and overhead_tokens add up to {total}"
    reached = 0
    for part in report.coverage:
        if not reached + 1 == part.first <= part.last:
            yield f"coverage has messages {part.first} to {part.last} behind message {reached}"
        reached = part.last
