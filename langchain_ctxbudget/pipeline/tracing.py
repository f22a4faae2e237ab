"""Puts the numbers of a report on the runs of a trace, where LangSmith and callback handlers find them."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from langchain_core.runnables.config import RunnableConfig, var_child_runnable_config

from langchain_ctxbudget.report.report import ContextReport


def describe_run(report: ContextReport) -> None:
    """Puts a report's metadata on the current LangSmith run, where there is one."""
    if "langsmith.run_helpers" not in sys.modules:  # then no run can be current, and loading it takes its time
        return
    from langsmith.run_helpers import get_current_run_tree  # noqa: PLC0415

    if (run := get_current_run_tree()) is not None:
        run.add_metadata(report.to_metadata())


@contextmanager
def described(report: ContextReport, tags: Sequence[str] = ("ctxbudget",)) -> Iterator[None]:
    """Gives the runs that are started inside, above all the model's, a report's metadata and tags.

    They stay children of the current run. A call with metadata or tags in a config of its own has those instead, which
    is LangChain's rule. Do not `yield` inside: whoever drives the generator would go on with the same config.

    Example:
        >>> from langchain_core.runnables import RunnableConfig, RunnableLambda
        >>> from langchain_ctxbudget import ContextPipeline
        >>> def show(_: str, config: RunnableConfig) -> list[str]:
        ...     return config["tags"]
        >>> context = ContextPipeline().assemble("Hello", user_id="ada", conversation_id="c1")
        >>> with described(context.report):
        ...     RunnableLambda(show).invoke("")
        ['ctxbudget']
    """
    current = var_child_runnable_config.get() or RunnableConfig()
    metadata = {**(current.get("metadata") or {}), **report.to_metadata()}
    all_tags = [*(current.get("tags") or ()), *tags]
    token = var_child_runnable_config.set({**current, "metadata": metadata, "tags": all_tags})
    try:
        yield
    finally:
        var_child_runnable_config.reset(token)
