"""What traces and streams are told of a prompt: metadata on the model's run, and custom events."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from langchain_core.callbacks import BaseCallbackManager
from langchain_core.runnables.config import var_child_runnable_config
from langgraph.runtime import Runtime

from langchain_ctxbudget.integrations.options import ReportInState
from langchain_ctxbudget.prompt import AssembledContext
from langchain_ctxbudget.report import Receipt

EVENT = "ctxbudget"
"""The key of a custom event of a stream that tells of a prompt."""
PREFIX = "ctxbudget_"
"""Stands in front of the names in metadata of runs."""


@contextmanager
def metadata_on_runs(receipt_of: Callable[[], Receipt]) -> Iterator[None]:
    """Gives the numbers of a prompt to the runs that begin inside, as metadata `ctxbudget_...`.

    LangSmith shows them on the model's run. Where no callback handler listens, nothing is made.

    Args:
        receipt_of: returns the numbers of the prompt that the model answers.
    """
    config = var_child_runnable_config.get()
    if config is None or not _is_listened_to(config.get("callbacks")):
        yield
        return
    metadata = {**(config.get("metadata") or {}), **receipt_of().numbers(PREFIX)}
    token = var_child_runnable_config.set({**config, "metadata": metadata})
    try:
        yield
    finally:
        var_child_runnable_config.reset(token)


def _is_listened_to(callbacks: object) -> bool:
    """Tells whether runs have handlers; LangSmith's tracer is one of them."""
    if isinstance(callbacks, BaseCallbackManager):
        return bool(callbacks.handlers)
    return bool(callbacks)


def tell_stream(
    runtime: Runtime[Any] | None, context: AssembledContext, told: ReportInState
) -> None:
    """Writes a custom event of a prompt to the stream of a run, where a report is asked for.

    LangGraph Studio shows it, and so does `stream_mode="custom"`.

    Args:
        runtime: the runtime of the run. A middleware that makes a request anew may leave it out;
            then there is no stream.
        context: the prompt.
        told: what of the report is asked for; with `"texts"` the event has all of it.
    """
    if runtime is None or told == "none":
        return
    report = context.report
    event: dict[str, Any] = {"line": report.to_line(), **report.receipt("")}
    if told == "texts":
        event["report"] = report.to_dict()
    runtime.stream_writer({EVENT: event})
