"""Traces and sessions of Langfuse, downloaded as JSON, and observations of its public API.

The format was read from Langfuse's pages "How do I export a single trace or session?" and
"Observability data model", and from `langfuse-python` (`langfuse/langchain/CallbackHandler.py`),
which writes the calls of LangChain (2026).
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar

from langchain_ctxbudget.readers.base import JsonObject
from langchain_ctxbudget.readers.calls import (
    CallDetails,
    CallReader,
    request_from,
    said_in,
    tool_in,
    unpacked,
    usage_in,
    utc_time,
)
from langchain_ctxbudget.readers.fields import id_at, object_at, objects_in, text_at
from langchain_ctxbudget.readers.growing import Request

CALL = "GENERATION"
"""The type of an observation that is a call of a model."""


class Langfuse(CallReader):
    """Reads calls of models; of a trace without any, its own input and output."""

    name: ClassVar[str] = "langfuse"
    accepts: ClassVar[str] = (
        'traces or sessions of Langfuse: objects with "observations" or "traces", or observations'
    )

    def recognises(self, record: JsonObject) -> bool:
        """Tells if a record is a session, a trace, or an observation."""
        if isinstance(record.get("observations"), list) or _is_session(record):
            return True
        return "traceId" in record and "type" in record

    def calls_in(self, records: Sequence[JsonObject]) -> Iterable[JsonObject]:
        """Returns the calls of models, the earliest first."""
        calls: list[JsonObject] = []
        for trace in _traces_in(records):
            observations = objects_in(trace.get("observations"))
            generations = [each for each in observations if each.get("type") == CALL]
            if not observations and trace.get("type", CALL) != CALL:
                continue
            session = id_at(trace, ("sessionId",))
            calls += [{"sessionId": session} | call for call in generations or [trace]]
        return sorted(calls, key=_order)

    def request_of(self, call: JsonObject) -> Request:
        """Returns the input of a call, and its output."""
        details = CallDetails(
            thread=id_at(call, ("sessionId",)),
            sent_at=utc_time(call.get("startTime") or call.get("timestamp")),
            answered_at=utc_time(call.get("endTime")),
            model=text_at(call, "model", "providedModelName"),
            usage=usage_in(object_at(call, "usageDetails") or object_at(call, "usage")),
            tools=_tools_in(unpacked(call.get("input"))),
        )
        sent = said_in(call.get("input"), "user")
        return request_from(sent, said_in(call.get("output"), "assistant"), details)


def _is_session(record: JsonObject) -> bool:
    traces = objects_in(record.get("traces"))
    return bool(traces) and all("sessionId" in trace or "input" in trace for trace in traces)


def _traces_in(records: Sequence[JsonObject]) -> Iterator[JsonObject]:
    """Yields traces, those of sessions too; an observation on its own counts as one."""
    for record in records:
        if _is_session(record):
            for trace in objects_in(record.get("traces")):
                yield {"sessionId": id_at(record, ("id",))} | trace
        elif isinstance(record.get("trace"), dict):
            # The file of one trace has it beside its observations.
            yield record["trace"] | {"observations": record.get("observations")}
        else:
            yield record


def _order(call: JsonObject) -> str:
    return str(call.get("startTime") or call.get("timestamp"))


def _tools_in(value: Any) -> list[JsonObject]:  # noqa: ANN401 - JSON
    """Returns the tools of a call, beside its messages or among them."""
    if isinstance(value, dict):
        return objects_in(value.get("tools"))
    return [tool for tool in map(tool_in, objects_in(value)) if tool is not None]
