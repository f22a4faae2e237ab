"""The dashboard as an ASGI application, to be served by itself or mounted into another one."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import lru_cache
from importlib import resources
from typing import Any, TypeAlias

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from langchain_ctxbudget.dashboard.guard import LOOPBACK, Guard, is_loopback, refusal, require_token
from langchain_ctxbudget.dashboard.openapi import describe
from langchain_ctxbudget.dashboard.operations import OPERATIONS, Operation
from langchain_ctxbudget.dashboard.refusals import BAD, CONFLICT, NOT_SIGNED_IN, UNAVAILABLE, UNKNOWN, RefusedError
from langchain_ctxbudget.dashboard.service import DashboardService
from langchain_ctxbudget.errors import BudgetError, InputError, InvalidSettingsError, MissingScopeError
from langchain_ctxbudget.pipeline import ContextPipeline

UserOf: TypeAlias = Callable[[Request], str | None]
Endpoint: TypeAlias = Callable[[Request], Awaitable[Response]]
PAGE = "page.html"
TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css"}
"""Of the files of the page, by their endings; others are not served."""

_log = logging.getLogger(__name__)


def create_app(
    pipeline: ContextPipeline,
    *,
    user_id: str | UserOf,
    token: str | None = None,
    hosts: Sequence[str] = LOOPBACK,
) -> Starlette:
    """The page and the API over the conversations of a pipeline.

    Every request is one user's, and nothing of another user can be reached. Without a token, and with one user for
    every request, only this machine is answered. The page works wherever the application is mounted; its address
    ends with a slash.

    Args:
        pipeline: whose store is shown; looking, and what is tried out, leaves no trace in it.
        user_id: whose conversations; or a function of the request that says who is signed in, None for nobody.
        token: what whoever asks must know, of at least 16 characters: `Authorization: Bearer`, or once `?token=` in the
            page's address.
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
    user_of: UserOf = user_id if callable(user_id) else lambda _request: user_id

    app = Starlette(
        routes=[
            Route("/", _page),
            Route("/assets/{name}", _asset),
            Route("/openapi.json", _description),
            *(
                Route(one.path, _endpoint(one, service, user_of), methods=[one.method], name=one.name)
                for one in OPERATIONS
            ),
        ],
        middleware=[Middleware(Guard, token=token, hosts=hosts, local_only=open_to_all)],
        exception_handlers={HTTPException: _not_routed},
    )
    app.router.redirect_slashes = False  # what is asked for would stand in a header
    return app


def _endpoint(operation: Operation, service: DashboardService, user_of: UserOf) -> Endpoint:
    async def answer(request: Request) -> Response:
        try:
            user = user_of(request)
            if not isinstance(user, str) or not user:
                return refusal(NOT_SIGNED_IN, "Nobody is signed in")
            found = await operation.handler(service, user, await operation.asked(request))
            return Response(operation.as_json(found), media_type="application/json")
        except Exception as error:  # noqa: BLE001 - a store, embeddings or a user's function raise whatever they like
            return _refused(operation, error)

    return answer


def _refused(operation: Operation, error: Exception) -> Response:
    """What is answered where something went wrong."""
    if isinstance(error, BudgetError):
        problem = f"{error.problem.removesuffix(':')}. {error.advice}"
        return JSONResponse({"error": problem, "floors": error.floors}, CONFLICT)
    if isinstance(error, RefusedError):
        return refusal(error.status, str(error))
    if isinstance(error, InputError):
        return refusal(BAD, str(error))
    _log.error("The dashboard could not answer %s", operation.name, exc_info=error)
    return refusal(UNAVAILABLE, "The store, or a part of the pipeline, cannot be used; the server's log says why")


@lru_cache(maxsize=1)
def _files() -> dict[str, tuple[bytes, str]]:
    """The files of the page with their types, by name."""
    folder = resources.files("langchain_ctxbudget.dashboard").joinpath("static")
    kinds = {file.name: TYPES.get(f".{file.name.rpartition('.')[2]}") for file in folder.iterdir()}
    return {name: (folder.joinpath(name).read_bytes(), kind) for name, kind in kinds.items() if kind}


async def _page(_request: Request) -> Response:
    return _file(PAGE)


async def _asset(request: Request) -> Response:
    name = request.path_params["name"]
    return refusal(UNKNOWN, "There is no such file") if name == PAGE or name not in _files() else _file(name)


def _file(name: str) -> Response:
    content, kind = _files()[name]
    return Response(content, media_type=kind)


async def _description(request: Request) -> Response:
    return JSONResponse({**_openapi(), "servers": [{"url": request.scope.get("root_path", "") or "/"}]})


@lru_cache(maxsize=1)
def _openapi() -> dict[str, Any]:
    return describe()


async def _not_routed(_request: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPException):
        raise error
    return refusal(error.status_code, str(error.detail), error.headers)
