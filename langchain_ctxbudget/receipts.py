"""Spans of OpenTelemetry for prompts, searches and learning, where the application traces.

Names follow the GenAI semantic conventions (open-telemetry/semantic-conventions-genai, read in
September 2026 at commit 7e7e4e76): `search_memory`, `upsert_memory` and `retrieval` are theirs.
They have no name for putting a prompt together, so that span is `assemble_prompt`, with attributes
of our own under `ctxbudget`.

An application that traces has imported OpenTelemetry's API and set a provider. Where it has not,
a flow runs as it is: nothing is imported, and nothing is computed.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias

from langchain_ctxbudget.flow import Flow, T

if TYPE_CHECKING:
    from opentelemetry.trace import Span, Tracer, TracerProvider

Attributes: TypeAlias = Mapping[str, str | bool | int | float | Sequence[str]]
"""What a span tells."""
COMPACTED = "gen_ai.conversation.compacted"
"""True on the span of a model call whose conversation was compacted; never false, by the
conventions."""
CONVERSATION = "gen_ai.conversation.id"
OPERATION = "gen_ai.operation.name"
QUERY_TEXT = "gen_ai.memory.query.text"
RECORD_COUNT = "gen_ai.memory.record.count"
RECORD_ID = "gen_ai.memory.record.id"
_INFERENCE = ("chat", "generate_content", "text_completion")
"""The operations that are calls of a model."""


def traced(name: str, flow: Flow[T], begun: Attributes, done: Callable[[T], Attributes]) -> Flow[T]:
    """Runs a flow within a span, which is the current one meanwhile.

    Args:
        name: the name of the span.
        flow: the work.
        begun: what the span tells from its beginning.
        done: returns what it tells of the result; called only if the span is recorded.
    """
    tracer = _tracer()
    if tracer is None:
        return (yield from flow)
    from opentelemetry.trace import StatusCode, use_span  # noqa: PLC0415 - the application has it

    span = tracer.start_span(name, attributes=begun)
    # What an error says may quote somebody, so the span has its type alone.
    with use_span(span, end_on_exit=True, record_exception=False, set_status_on_exception=False):
        try:
            result = yield from flow
        except Exception as error:
            span.set_attribute("error.type", type(error).__name__)
            span.set_status(StatusCode.ERROR)
            raise
        if span.is_recording():
            span.set_attributes(done(result))
    return result


def mark_as_compacted() -> None:
    """Tells the span of a model call that the conversation was compacted, if one is current."""
    if _tracer() is None:
        return
    from opentelemetry.trace import get_current_span  # noqa: PLC0415 - the application has it

    span = get_current_span()
    if span.is_recording() and _is_inference(span):
        span.set_attribute(COMPACTED, value=True)


def _is_inference(span: "Span") -> bool:
    """Tells whether a span is that of a model call, by its attributes, which an SDK lets read."""
    attributes = getattr(span, "attributes", None) or {}
    return attributes.get(OPERATION) in _INFERENCE


def _tracer() -> "Tracer | None":
    """Returns the tracer of the application's provider; None where it has set none."""
    api = sys.modules.get("opentelemetry.trace")
    if api is None:
        return None
    provider = api.get_tracer_provider()
    if isinstance(provider, api.ProxyTracerProvider | api.NoOpTracerProvider):
        return None
    return _tracer_of(provider)


@lru_cache(maxsize=1)
def _tracer_of(provider: "TracerProvider") -> "Tracer":
    return provider.get_tracer("langchain_ctxbudget")
