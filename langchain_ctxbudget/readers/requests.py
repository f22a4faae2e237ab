"""Requests to models of OpenAI and Anthropic, with or without the responses.

The forms are those of OpenAI's Chat Completions, Responses and Batch APIs and of Anthropic's
Messages and Message Batches APIs, as their references define them (2026).
"""

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

from langchain_core.messages import BaseMessage

from langchain_ctxbudget.readers.base import JsonObject
from langchain_ctxbudget.readers.calls import (
    THREAD_KEYS,
    CallDetails,
    CallReader,
    request_from,
    said_in,
    usage_in,
)
from langchain_ctxbudget.readers.fields import id_at, object_at, objects_in, text_at, time_at
from langchain_ctxbudget.readers.growing import Request

BODY_KEYS = ("request", "body", "params")
"""Where a log or a batch has a request: beside its id, method or response."""
SENT_KEYS = ("messages", "input")
INSTRUCTION_KEYS = ("system", "instructions")
RESPONSE_KEYS = ("response", "result")
ANSWER_KEYS = ("choices", "output")
"""Where a response of OpenAI has its answer."""


class Requests(CallReader):
    """Reads requests. Those of one growing conversation become one conversation."""

    name: ClassVar[str] = "requests"
    accepts: ClassVar[str] = (
        'requests to OpenAI or Anthropic: objects with "model" and "messages" or "input"'
    )

    def recognises(self, record: JsonObject) -> bool:
        """Tells if a record is a request, or has one."""
        body = _body_of(record)
        has_messages = isinstance(body.get("messages"), list)
        return "model" in body and (has_messages or isinstance(body.get("input"), list | str))

    def calls_in(self, records: Sequence[JsonObject]) -> Iterable[JsonObject]:
        """Returns the requests, each with all that the model was sent.

        A request that names an earlier response (`previous_response_id`) has only what is new.
        What stood before it is taken from the earlier request, if that is in the file.
        """
        known: dict[str, list[Any]] = {}
        for record in records:
            body = _body_of(record)
            response = _response_of(record)
            before = known.get(id_at(body, ("previous_response_id",)) or "")
            sent = _items_of(body.get("input"))
            if before is not None:
                sent = [*before, *sent]
            response_id = id_at(response, ("id",))
            if response_id is not None and isinstance(response.get("output"), list):
                known[response_id] = [*sent, *response["output"]]
            if before is None:
                yield record
            else:
                yield record | {"request": body | {"input": sent}}

    def request_of(self, call: JsonObject) -> Request:
        """Returns what a request sends, and the response's answer where it stands beside it."""
        body = _body_of(call)
        response = _response_of(call)
        details = CallDetails(
            thread=id_at(call, THREAD_KEYS) or id_at(body, THREAD_KEYS),
            sent_at=time_at(call),
            answered_at=time_at(response),
            model=text_at(response, "model") or text_at(body, "model"),
            usage=usage_in(object_at(response, "usage")),
            tools=objects_in(body.get("tools")),
        )
        sent: list[BaseMessage] = []
        for key in INSTRUCTION_KEYS:
            sent += said_in(body.get(key), "system")
        for key in SENT_KEYS:
            sent += said_in(body.get(key), "user")
        return request_from(sent, _answer_in(response), details)


def _body_of(record: JsonObject) -> JsonObject:
    """Returns the request of a record: what is under one of `BODY_KEYS`, else the record."""
    for key in BODY_KEYS:
        body = record.get(key)
        if isinstance(body, dict):
            return _body_of(body) if key == "request" else body
    return record


def _items_of(sent: Any) -> list[Any]:  # noqa: ANN401 - JSON
    """Returns the items of an input of the Responses API; a text is a message of the user."""
    if isinstance(sent, str):
        return [{"role": "user", "content": sent}]
    if isinstance(sent, list):
        return sent
    return []


def _response_of(record: JsonObject) -> JsonObject:
    """Returns the response in a record; empty where there is none."""
    for key in RESPONSE_KEYS:
        response = object_at(record, key)
        if response:
            return object_at(response, "body") or object_at(response, "message") or response
    if any(key in record for key in ANSWER_KEYS):
        return record
    return {}


def _answer_in(response: JsonObject) -> list[BaseMessage]:
    content = response.get("content")
    if content:
        return said_in({"role": "assistant", "content": content}, "assistant")
    answers = {key: response[key] for key in ANSWER_KEYS if response.get(key)}
    return said_in(answers, "assistant")
