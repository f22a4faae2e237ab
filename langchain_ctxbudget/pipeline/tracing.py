"""What spans tell of prompts and of searches; texts only where a setting asks for them."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from langchain_core.messages import BaseMessage, SystemMessage, ToolMessage

from langchain_ctxbudget.content import listed_calls
from langchain_ctxbudget.flow import Flow, T
from langchain_ctxbudget.messages import plain_text
from langchain_ctxbudget.pipeline.engine import Engine
from langchain_ctxbudget.pipeline.session import Session
from langchain_ctxbudget.receipts import (
    COMPACTED,
    CONVERSATION,
    OPERATION,
    QUERY_TEXT,
    RECORD_COUNT,
    RECORD_ID,
    Attributes,
    mark_as_compacted,
    traced,
)
from langchain_ctxbudget.tokens import price_of

SPAN_OF_PROMPT = "assemble_prompt"
PREFIX = "ctxbudget."
"""Stands in front of attributes that no convention names."""
_ROLES = {"human": "user", "ai": "assistant"}
"""The roles of the conventions, by the types of messages that they call otherwise."""


def with_receipt(
    flow: Flow[T], engine: Engine, conversation_id: str, session_of: Callable[[T], Session]
) -> Flow[T]:
    """Makes a prompt within a span that tells its numbers.

    If the current span is that of a model call, it learns whether the conversation was compacted:
    the application has begun it around both, the prompt and the call.

    Args:
        flow: what makes the prompt.
        engine: the engine that it is made with.
        conversation_id: the id of the conversation.
        session_of: returns the finished session from the result of the flow.
    """
    begun: dict[str, str] = {CONVERSATION: conversation_id}
    if engine.target.model_name:
        begun["gen_ai.request.model"] = engine.target.model_name
    result = yield from traced(
        SPAN_OF_PROMPT, flow, begun, lambda result: _receipt_of(session_of(result), engine)
    )
    if _is_compacted(session_of(result)):
        mark_as_compacted()
    return result


def searched(
    flow: Flow[T],
    engine: Engine,
    conversation_id: str | None,
    count: Callable[[T], int],
    *,
    query: str = "",
    reference: str = "",
) -> Flow[T]:
    """Searches the memory within a span `search_memory`.

    Args:
        flow: the search.
        engine: the engine that searches.
        conversation_id: the id of the conversation that is searched; None: those of a user.
        count: returns the number of messages, facts and documents in the result of the flow.
        query: what is looked for.
        reference: the message that is looked up, where one is.
    """
    begun: dict[str, str] = {OPERATION: "search_memory"}
    if conversation_id is not None:
        begun[CONVERSATION] = conversation_id
    if reference:
        begun[RECORD_ID] = reference
    if query and engine.settings.trace_texts:
        begun[QUERY_TEXT] = query
    return traced("search_memory", flow, begun, lambda result: {RECORD_COUNT: count(result)})


def _receipt_of(session: Session, engine: Engine) -> Attributes:
    """Returns what the span of a finished prompt tells."""
    receipt = session.finished.receipt()
    attributes: dict[str, Any] = receipt.numbers(PREFIX)
    price = price_of(engine.target.model_name, engine.target.prices)
    if price is not None:
        dollars = receipt.stability.effective_tokens * price.input / 1_000_000
        attributes[f"{PREFIX}dollars"] = dollars
    if _is_compacted(session):
        attributes[COMPACTED] = True
    if session.plan.request.settings.trace_texts:
        report = session.finished.report
        attributes["gen_ai.input.messages"] = _as_conventions_write(session.finished.messages)
        attributes[f"{PREFIX}failed"] = report.failures
        attributes[f"{PREFIX}repaired"] = [repair.detail for repair in report.repairs]
        attributes[f"{PREFIX}lost"] = [
            f"{lost.value} ({lost.reference})" for lost in report.lost_values
        ]
    return attributes


def _is_compacted(session: Session) -> bool:
    """Tells whether a prompt shows less than all that was said."""
    return session.plan.history.strategy not in ("empty", "full")


def _as_conventions_write(messages: Sequence[BaseMessage]) -> str:
    """Returns messages as JSON in the form of `gen_ai.input.messages`."""
    return json.dumps([_as_convention_writes(message) for message in messages], default=str)


def _as_convention_writes(message: BaseMessage) -> Mapping[str, Any]:
    """Returns a message with its role and its parts; media are mentioned in the text."""
    role = _ROLES.get(message.type, message.type)
    text = plain_text(message)
    if isinstance(message, SystemMessage):
        return {"role": "system", "parts": [{"type": "text", "content": text}]}
    if isinstance(message, ToolMessage):
        part = {"type": "tool_call_response", "id": message.tool_call_id, "response": text}
        return {"role": "tool", "parts": [part]}
    calls = [
        {"type": "tool_call", "id": call["id"], "name": call["name"], "arguments": call["args"]}
        for call in listed_calls(message)
    ]
    return {"role": role, "parts": [{"type": "text", "content": text}, *calls]}
