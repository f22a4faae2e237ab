"""The API's one table of operations: its routes, what it accepts and its OpenAPI description are all made of it."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, get_type_hints

from pydantic import TypeAdapter, ValidationError
from starlette.requests import Request

from langchain_ctxbudget.dashboard.answers import BudgetProblem, Problem
from langchain_ctxbudget.dashboard.refusals import (
    ALWAYS,
    BAD,
    CONFLICT,
    NO_JSON,
    SOMETIMES,
    TOO_LARGE,
    UNKNOWN,
    RefusedError,
)
from langchain_ctxbudget.dashboard.service import DashboardService as Service

LARGEST_BODY = 65_536
"""Bytes."""


@dataclass(frozen=True)
class Operation:
    """One thing that the API does."""

    method: Literal["GET", "POST"]
    path: str
    handler: Callable[[Service, str, Any], Awaitable[Any]]
    refusals: tuple[int, ...] = ()
    """Those of `SOMETIMES` that its handler knows, besides bad questions."""
    conflict: type[Problem | BudgetProblem] = Problem

    @cached_property
    def _hints(self) -> dict[str, Any]:
        return get_type_hints(self.handler, include_extras=True)

    @cached_property
    def question(self) -> TypeAdapter[Any]:
        """What it can be asked."""
        return TypeAdapter(next(hint for name, hint in self._hints.items() if name.endswith("asked")))

    @cached_property
    def answer(self) -> TypeAdapter[Any]:
        """What it answers."""
        return TypeAdapter(self._hints["return"])

    @property
    def name(self) -> str:
        """What it is called."""
        return self.handler.__name__

    @property
    def summary(self) -> str:
        """What it does, in a sentence."""
        return (self.handler.__doc__ or "").strip().splitlines()[0]

    @property
    def every_refusal(self) -> dict[int, str]:
        """What else it may be answered with, and why."""
        checked = (BAD, TOO_LARGE, NO_JSON) if self.method == "POST" else (BAD,) if self.refusals else ()
        return {**{status: SOMETIMES[status] for status in sorted({*checked, *self.refusals})}, **ALWAYS}

    async def asked(self, request: Request) -> Any:  # noqa: ANN401 - any of the questions
        """What a request asks.

        Raises:
            RefusedError: it cannot be meant.
        """
        given = await _body(request) if self.method == "POST" else _parameters(request)
        try:
            return self.question.validate_python(given)
        except ValidationError as error:
            raise RefusedError(BAD, _in_words(error)) from error

    def as_json(self, answer: object) -> bytes:
        """An answer as it is sent: ASCII, as stored texts may hold what UTF-8 cannot."""
        data = self.answer.dump_python(answer, mode="json")
        return json.dumps(data, separators=(",", ":"), allow_nan=False).encode()


def _parameters(request: Request) -> dict[str, str]:
    """The parameters of a request, in its path and its query.

    Raises:
        RefusedError: one is given twice.
    """
    given = request.query_params.multi_items()
    names = [name for name, _ in given]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise RefusedError(BAD, f"{', '.join(map(ascii, twice))}: given more than once")
    return {**dict(given), **request.path_params}


async def _body(request: Request) -> Any:  # noqa: ANN401 - JSON can be anything
    """What was sent, as plain data.

    Raises:
        RefusedError: it is no JSON, or too much.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":  # a page of another site can send other kinds without being asked for leave
        raise RefusedError(NO_JSON, "Send the body as application/json")
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > LARGEST_BODY:
            raise RefusedError(TOO_LARGE, f"The body is larger than {LARGEST_BODY:,} bytes")
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise RefusedError(BAD, f"The body is no JSON that can be read: {type(error).__name__}") from error


def _in_words(error: ValidationError) -> str:
    """What is wrong with a question, without repeating what was asked."""
    problems = (
        f"{'.'.join(str(part) for part in one['loc']) or 'body'}: {one['msg'][:1].lower()}{one['msg'][1:]}"
        for one in error.errors(include_url=False, include_input=False, include_context=False)
    )
    return "; ".join(dict.fromkeys(problems))


_API = "/api/context"
_OF_SESSION = (UNKNOWN,)
_FORECAST = (UNKNOWN, CONFLICT)
OPERATIONS: tuple[Operation, ...] = (
    Operation("GET", f"{_API}/sessions", Service.sessions),
    Operation("GET", f"{_API}/status", Service.status, _FORECAST, BudgetProblem),
    Operation("GET", f"{_API}/snapshots", Service.snapshots, _OF_SESSION),
    Operation("GET", f"{_API}/snapshots/{{snapshot_id}}", Service.snapshot, _OF_SESSION),
    Operation("GET", f"{_API}/preview", Service.preview, _FORECAST, BudgetProblem),
    Operation("GET", f"{_API}/messages", Service.messages, _OF_SESSION),
    Operation("GET", f"{_API}/usage", Service.usage, _OF_SESSION),
    Operation("GET", f"{_API}/settings", Service.settings),
    Operation("POST", f"{_API}/pins", Service.pin, (UNKNOWN, CONFLICT)),
    Operation("POST", f"{_API}/force", Service.force),
)
