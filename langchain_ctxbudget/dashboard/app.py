"""The dashboard as an ASGI application: its page, and a JSON API with an OpenAPI description, made of one table."""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cached_property, lru_cache
from importlib import resources
from importlib.metadata import version
from inspect import Parameter, signature
from pathlib import PurePath
from typing import Any, Literal, TypeAlias, get_type_hints

from pydantic import TypeAdapter, ValidationError, create_model
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from langchain_ctxbudget.dashboard.api_types import Problem
from langchain_ctxbudget.dashboard.guard import (
    FORBIDDEN,
    LOOPBACK,
    MISDIRECTED,
    NOT_SIGNED_IN,
    Guard,
    is_loopback,
    refusal,
    require_token,
)
from langchain_ctxbudget.dashboard.service import CONFLICT, UNKNOWN, DashboardService, RefusedError
from langchain_ctxbudget.errors import BudgetError, InputError, InvalidSettingsError, MissingScopeError
from langchain_ctxbudget.pipeline.pipeline import ContextPipeline

UserOf: TypeAlias = Callable[[Request], str | None]
PAGE = "page.html"
TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css"}
"""Of the files of the page, by their endings; others are not served."""

_log = logging.getLogger(__name__)
BAD, TOO_LARGE, NO_JSON, UNAVAILABLE = 400, 413, 415, 503
ALWAYS: Mapping[int, str] = {
    NOT_SIGNED_IN: "No token or a wrong one, or nobody is signed in.",
    FORBIDDEN: "The request comes from another site, or from another machine where no token was set.",
    MISDIRECTED: "The request names a host that this dashboard is not.",
    UNAVAILABLE: "The store, or a part of the pipeline, cannot be used; the server's log says why",
}
"""Answers that any operation may give instead of its own."""
SOMETIMES: Mapping[int, str] = {
    BAD: "A parameter is missing, given twice, or outside its range.",
    UNKNOWN: "The user has no such session, snapshot, message or fact.",
    CONFLICT: "It cannot be done as things are.",
    TOO_LARGE: "The body is larger than 64 KiB.",
    NO_JSON: "The body is not sent as application/json.",
}
LARGEST_BODY = 65_536
"""Bytes."""
REFERENCE = "#/components/schemas/{model}"


class Operation:
    """One operation; its name, question, answer and summary are those of the service's method."""

    def __init__(
        self, method: Literal["GET", "POST"], path: str, handler: Callable[..., Awaitable[Any]], *refusals: int
    ) -> None:
        self.method = method
        self.path = path
        self.handler = handler
        self.name = handler.__name__
        self.refusals = refusals  # those of `SOMETIMES` that the handler knows, besides bad questions

    @cached_property
    def question(self) -> TypeAdapter[Any]:
        """Checks what is asked: the parameters of the method, or the body of a change."""
        hints = get_type_hints(self.handler, include_extras=True)
        if self.method == "POST":
            return TypeAdapter(hints["body"])
        _, _, *asked = signature(self.handler).parameters.values()
        fields: dict[str, Any] = {
            one.name: (hints[one.name], ... if one.default is Parameter.empty else one.default) for one in asked
        }
        return TypeAdapter(create_model(self.name, **fields))

    @cached_property
    def answer(self) -> TypeAdapter[Any]:
        """Makes plain data of an answer."""
        return TypeAdapter(get_type_hints(self.handler, include_extras=True)["return"])

    async def answered(self, service: DashboardService, user: str, request: Request) -> bytes:
        """Returns the answer to a request as it is sent: ASCII, as stored texts may hold what UTF-8 cannot.

        Raises:
            RefusedError: it cannot be meant.
        """
        is_post = self.method == "POST"
        given = await _body(request) if is_post else _parameters(request)
        try:
            asked = self.question.validate_python(given)
        except ValidationError as error:
            problems = (
                f"{'.'.join(map(str, one['loc'])) or 'body'}: {one['msg'][:1].lower()}{one['msg'][1:]}"
                for one in error.errors(include_url=False, include_input=False, include_context=False)
            )
            raise RefusedError(BAD, "; ".join(dict.fromkeys(problems))) from error
        found = await (self.handler(service, user, asked) if is_post else self.handler(service, user, **dict(asked)))
        data = self.answer.dump_python(found, mode="json")
        return json.dumps(data, separators=(",", ":"), allow_nan=False).encode()


def _parameters(request: Request) -> dict[str, str]:
    names = [name for name, _ in request.query_params.multi_items()]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise RefusedError(BAD, f"{', '.join(map(ascii, twice))}: given more than once")
    return {**request.query_params, **request.path_params}


async def _body(request: Request) -> Any:  # noqa: ANN401 - JSON can be anything
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


API = "/api/context"
OPERATIONS = (
    Operation("GET", f"{API}/sessions", DashboardService.sessions),
    Operation("GET", f"{API}/status", DashboardService.status, UNKNOWN, CONFLICT),
    Operation("GET", f"{API}/snapshots", DashboardService.snapshots, UNKNOWN),
    Operation("GET", f"{API}/snapshots/{{snapshot_id}}", DashboardService.snapshot, UNKNOWN),
    Operation("GET", f"{API}/preview", DashboardService.preview, UNKNOWN, CONFLICT),
    Operation("GET", f"{API}/messages", DashboardService.messages, UNKNOWN),
    Operation("GET", f"{API}/usage", DashboardService.usage, UNKNOWN),
    Operation("GET", f"{API}/settings", DashboardService.settings),
    Operation("POST", f"{API}/pins", DashboardService.pin, UNKNOWN, CONFLICT),
    Operation("POST", f"{API}/force", DashboardService.force),
)


def create_app(
    pipeline: ContextPipeline,
    *,
    user_id: str | UserOf,
    token: str | None = None,
    hosts: Sequence[str] = LOOPBACK,
) -> Starlette:
    """Returns the page and the API over the conversations of a pipeline.

    Every request is one user's, and nothing of another user can be reached. Without a token, and with one user for
    every request, only this machine is answered. The page works wherever the application is mounted; its address
    ends with a slash.

    Args:
        pipeline: its store is shown; looking and trying out leave no trace in it.
        user_id: the user; or a function of the request that says who is signed in, None for nobody.
        token: a secret of at least 16 characters: `Authorization: Bearer`, or once `?token=` in the page's address.
        hosts: the names that the dashboard goes by, without ports; `"*"` is any name.

    Raises:
        InvalidSettingsError: an argument of another kind, or names of another machine where nobody is asked who they
            are: neither by a token nor by a function.
        MissingScopeError: no user.

    Example:
        >>> from langchain_ctxbudget import ContextPipeline
        >>> from langchain_ctxbudget.dashboard import create_app
        >>> [route.path for route in create_app(ContextPipeline(), user_id="ada").routes][:3]
        ['/', '/assets/{name}', '/openapi.json']
    """
    if not isinstance(pipeline, ContextPipeline):
        raise InvalidSettingsError(f"pipeline must be a ContextPipeline, not {type(pipeline).__name__}")
    if not callable(user_id) and (not isinstance(user_id, str) or not user_id):
        raise MissingScopeError(f"user_id must be a non-empty string or a function of the request, not {user_id!r}")
    require_token(token)
    if isinstance(hosts, str) or not all(isinstance(host, str) and host for host in hosts):
        raise InvalidSettingsError(f"hosts must be a list of names, not {hosts!r}")
    open_to_all = token is None and not callable(user_id)
    if open_to_all and (others := [host for host in hosts if not is_loopback(host)]):
        raise InvalidSettingsError(
            f"The dashboard of one user cannot go by {', '.join(map(repr, others))} without a token: everybody who "
            f"reaches this machine could read it. Give a token, or a function as user_id that says who is signed in"
        )
    service = DashboardService(pipeline)
    operations = (
        Route(one.path, _endpoint(one, service, user_id), methods=[one.method], name=one.name) for one in OPERATIONS
    )
    app = Starlette(
        routes=[
            Route("/", _static),
            Route("/assets/{name}", _static),
            Route("/openapi.json", _description),
            *operations,
        ],
        middleware=[Middleware(Guard, token=token, hosts=hosts, local_only=open_to_all)],
        exception_handlers={HTTPException: _not_routed},
    )
    app.router.redirect_slashes = False  # what is asked for would stand in a header
    return app


def _endpoint(
    operation: Operation, service: DashboardService, user_id: str | UserOf
) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        try:
            user = user_id(request) if callable(user_id) else user_id
            if not isinstance(user, str) or not user:
                return refusal(NOT_SIGNED_IN, "Nobody is signed in")
            return Response(await operation.answered(service, user, request), media_type="application/json")
        except BudgetError as error:
            problem = f"{error.problem.removesuffix(':')}. {error.advice}"
            return JSONResponse({"error": problem, "floors": error.floors}, CONFLICT)
        except RefusedError as error:
            return refusal(error.status, str(error))
        except InputError as error:
            return refusal(BAD, str(error))
        except Exception:  # noqa: BLE001 - a store, embeddings or a user's function raise whatever they like
            _log.exception("The dashboard could not answer %s", operation.name)
            return refusal(UNAVAILABLE, ALWAYS[UNAVAILABLE])

    return answer


@lru_cache
def _file(name: str) -> bytes | None:
    file = resources.files("langchain_ctxbudget.dashboard").joinpath("static", name)
    return file.read_bytes() if file.is_file() else None


async def _static(request: Request) -> Response:
    name = request.path_params.get("name", PAGE)
    kind = TYPES.get(PurePath(name).suffix)
    content = _file(name) if kind and PurePath(name).name == name else None
    return refusal(UNKNOWN, "There is no such file") if content is None else Response(content, media_type=kind)


async def _description(request: Request) -> Response:
    return JSONResponse({**describe(), "servers": [{"url": request.scope.get("root_path", "") or "/"}]})


async def _not_routed(_request: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPException):
        raise error
    return refusal(error.status_code, str(error.detail), error.headers)


@lru_cache
def describe() -> dict[str, Any]:
    """Returns the API as an OpenAPI 3.1 document."""
    adapters: list[tuple[str, Any, TypeAdapter[Any]]] = [
        ("Problem", "serialization", TypeAdapter(Problem)),
        *((one.name, "serialization", one.answer) for one in OPERATIONS),
        *((one.name, "validation", one.question) for one in OPERATIONS if one.method == "POST"),
    ]
    schemas, definitions = TypeAdapter.json_schemas(adapters, ref_template=REFERENCE)
    paths: dict[str, dict[str, Any]] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _described(operation, schemas)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Context budget",
            "version": version("langchain-ctxbudget"),
            "description": "What is in the context of a user's conversations, why, and what it cost.",
        },
        "paths": paths,
        "components": {
            "schemas": definitions["$defs"],
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"token": []}],
    }


def _described(operation: Operation, schemas: Mapping[Any, Any]) -> dict[str, Any]:
    is_post = operation.method == "POST"
    checked = (BAD, TOO_LARGE, NO_JSON) if is_post else (BAD,) if operation.refusals else ()
    reasons = {status: SOMETIMES[status] for status in sorted({*checked, *operation.refusals})} | {**ALWAYS}
    described: dict[str, Any] = {
        "operationId": operation.name,
        "summary": (operation.handler.__doc__ or "").strip().splitlines()[0],
        "responses": {
            "200": _content(schemas[operation.name, "serialization"], description="As asked."),
            **{
                str(status): _content(schemas["Problem", "serialization"], description=why)
                for status, why in reasons.items()
            },
        },
    }
    if is_post:
        return described | {"requestBody": _content(schemas[operation.name, "validation"], required=True)}
    asked = operation.question.json_schema()
    parameters = [
        {
            "name": name,
            "in": "path" if f"{{{name}}}" in operation.path else "query",
            "required": name in asked.get("required", ()),
            "description": schema.pop("description", ""),
            # A parameter that is not given is left out, and not null.
            "schema": next((part for part in schema.get("anyOf", ()) if part != {"type": "null"}), schema),
        }
        for name, schema in asked.get("properties", {}).items()
    ]
    return described | {"parameters": parameters}


def _content(schema: object, **others: object) -> dict[str, Any]:
    return {**others, "content": {"application/json": {"schema": schema}}}
