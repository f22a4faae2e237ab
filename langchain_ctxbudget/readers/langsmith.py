"""Runs of LangSmith, as `Client.list_runs` returns them or `langsmith` writes them to JSON(L).

The format was read from LangSmith's page "Run (span) data format" and from `langsmith` 0.15
(`wrappers`) and `langchain-core` 1.8 (`tracers`), which write runs (2026).
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import ClassVar

from langchain_ctxbudget.readers.base import JsonObject
from langchain_ctxbudget.readers.calls import (
    THREAD_KEYS,
    CallDetails,
    CallReader,
    request_from,
    said_in,
    usage_in,
    utc_time,
)
from langchain_ctxbudget.readers.fields import id_at, object_at, objects_in, text_at
from langchain_ctxbudget.readers.growing import Request

CALLS = ("llm", "chat_model")
"""The types of runs that are calls of models; LangChain's own tracers write the second."""


class LangSmith(CallReader):
    """Reads calls of models; of a trace without any, the chain that it begins with."""

    name: ClassVar[str] = "langsmith"
    accepts: ClassVar[str] = 'runs of LangSmith: objects with "run_type" and "inputs"'

    def recognises(self, record: JsonObject) -> bool:
        """Tells if a record is a run."""
        return isinstance(record.get("run_type"), str) and "inputs" in record

    def calls_in(self, records: Sequence[JsonObject]) -> Iterable[JsonObject]:
        """Returns the calls of models, the earliest first."""
        traces: defaultdict[str, list[JsonObject]] = defaultdict(list)
        for run in _with_children(records):
            traces[id_at(run, ("trace_id", "id")) or ""].append(run)
        calls: list[JsonObject] = []
        for runs in traces.values():
            calls += _calls_of(runs)
        return sorted(calls, key=_order)

    def request_of(self, call: JsonObject) -> Request:
        """Returns what a run was sent, and its outputs."""
        extra = object_at(call, "extra")
        parameters = object_at(extra, "invocation_params")
        metadata = object_at(extra, "metadata") | object_at(call, "metadata")
        outputs = object_at(call, "outputs")
        details = CallDetails(
            thread=id_at(metadata, THREAD_KEYS) or id_at(call, ("thread_id",)),
            sent_at=utc_time(call.get("start_time")),
            answered_at=utc_time(call.get("end_time")),
            model=text_at(metadata, "ls_model_name") or text_at(parameters, "model", "model_name"),
            usage=usage_in(object_at(outputs, "usage_metadata") or object_at(outputs, "usage")),
            tools=objects_in(parameters.get("tools") or object_at(call, "inputs").get("tools")),
        )
        sent = said_in(call.get("inputs"), "user")
        return request_from(sent, said_in(call.get("outputs"), "assistant"), details)


def _with_children(runs: Iterable[JsonObject]) -> Iterator[JsonObject]:
    """Yields runs, and those that stand inside of them."""
    waiting = list(runs)
    while waiting:
        run = waiting.pop()
        yield run
        waiting += objects_in(run.get("child_runs"))


def _calls_of(runs: Sequence[JsonObject]) -> list[JsonObject]:
    """Returns the calls of models in a trace; without any, the chain that it begins with."""
    calls = [run for run in runs if run.get("run_type") in CALLS]
    if calls:
        return calls
    roots = [run for run in runs if run.get("run_type") == "chain" and not run.get("parent_run_id")]
    return sorted(roots, key=_order)[:1]


def _order(run: JsonObject) -> str:
    """Returns what runs are ordered by: LangSmith's own order, else the time."""
    return text_at(run, "dotted_order") or str(run.get("start_time"))
