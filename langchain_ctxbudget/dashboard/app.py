"""The dashboard as an ASGI application.

Its page, a JSON API made of one table, and a guard in front of both.

A page of another site must not reach the dashboard through its visitor's browser. So requests that
a browser marks as another site's are refused, and changes are made by JSON alone, which no form
sends. The dashboard of one user answers this machine only, by its own names (DNS rebinding).
"""

import ipaddress
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from inspect import isawaitable, signature
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import urlsplit

from pydantic import ConfigDict, TypeAdapter, ValidationError, validate_call
from pydantic_core import to_jsonable_python
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from langchain_ctxbudget.dashboard.service import DashboardService
from langchain_ctxbudget.errors import (
    BudgetError,
    InputError,
    InvalidSettingsError,
    MissingScopeError,
    checks_names,
)
from langchain_ctxbudget.pipeline import ContextPipeline

UserOf: TypeAlias = Callable[[Request], str | Awaitable[str | None] | None]
BAD = 400
NOT_SIGNED_IN = 401
FORBIDDEN = 403
CONFLICT = 409
NO_JSON = 415
MISDIRECTED = 421
UNAVAILABLE = 503
TOO_LARGE = 413
MOST_BODY_BYTES = 256 * 1024
"""The most bytes of a body that are read; the longest text that an operation takes has half as
many, escaped."""
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
STATIC = Path(__file__).parent / "static"
API = "/api/context"
OPERATIONS: tuple[tuple[str, str, Callable[..., Awaitable[Any]]], ...] = (
    ("GET", f"{API}/sessions", DashboardService.sessions),
    ("GET", f"{API}/status", DashboardService.status),
    ("GET", f"{API}/snapshots", DashboardService.snapshots),
    ("GET", f"{API}/snapshots/{{snapshot_id}}", DashboardService.snapshot),
    ("GET", f"{API}/preview", DashboardService.preview),
    ("GET", f"{API}/messages", DashboardService.messages),
    ("POST", f"{API}/messages", DashboardService.pin),
    ("GET", f"{API}/usage", DashboardService.usage),
    ("GET", f"{API}/known", DashboardService.known),
    ("POST", f"{API}/known", DashboardService.change),
    ("POST", f"{API}/known/forget", DashboardService.forget),
    ("GET", f"{API}/known/why", DashboardService.why),
)
"""What is asked is said by the types of the service's methods."""
_log = logging.getLogger(__name__)


@checks_names()
def create_app(pipeline: ContextPipeline, *, user_id: str | UserOf) -> Starlette:
    """Returns the page and the API over the conversations of a pipeline.

    Every request is one user's, and nothing of another user can be reached. With one user for every
    request, only this machine is answered. The page works wherever the application is mounted; its
    address ends with a slash.

    Args:
        pipeline: its store is shown; looking and trying out leave no trace in it.
        user_id: the user; or a function of the request that says who is signed in, None for nobody.
    """
    if not isinstance(pipeline, ContextPipeline):
        raise InvalidSettingsError(
            f"pipeline must be a ContextPipeline, not {type(pipeline).__name__}"
        )
    if not callable(user_id) and (not isinstance(user_id, str) or not user_id):
        raise MissingScopeError(
            f"user_id must be a non-empty string or a function of the request, not {user_id!r}"
        )
    service = DashboardService(pipeline)

    async def page(_request: Request) -> Response:
        return FileResponse(STATIC / "page.html")

    async def guarded(request: Request, call_next: RequestResponseEndpoint) -> Response:
        answer = _refusal(request, local_only=not callable(user_id)) or await call_next(request)
        answer.headers.update(HEADERS)
        return answer

    api = [
        Route(path, _endpoint(how, handler, service, user_id), methods=[how])
        for how, path, handler in OPERATIONS
    ]
    app = Starlette(
        routes=[Route("/", page), Mount("/assets", StaticFiles(directory=STATIC)), *api],
        middleware=[Middleware(BaseHTTPMiddleware, dispatch=guarded)],
        exception_handlers={HTTPException: _not_routed},
    )
    app.router.redirect_slashes = False  # what is asked for would stand in a header
    return app


def _endpoint(
    how: str,
    handler: Callable[..., Awaitable[Any]],
    service: DashboardService,
    user_id: str | UserOf,
) -> Callable[[Request], Awaitable[Response]]:
    _, _, *asked = signature(handler).parameters
    checked = validate_call(config=ConfigDict(arbitrary_types_allowed=True, strict=how == "POST"))(
        handler
    )

    async def answered(request: Request) -> Response:
        try:
            user = await _user_of(request, user_id)
            if not isinstance(user, str) or not user:
                return _told(NOT_SIGNED_IN, "Nobody is signed in")
            if how == "POST":
                if (
                    request.headers.get("content-type", "").partition(";")[0].strip().lower()
                    != "application/json"
                ):
                    return _told(
                        NO_JSON, "Send the body as application/json"
                    )  # other sites can send other kinds
                given = TypeAdapter(dict[str, Any]).validate_json(await _body_of(request))
            else:
                given = {**request.query_params, **request.path_params}
                given = {name: given[name] for name in asked if name in given}
            found = await checked(service, user, **given)
            data = json.dumps(to_jsonable_python(found), separators=(",", ":"), allow_nan=False)
            return Response(
                data, media_type="application/json"
            )  # in ASCII: texts may hold what UTF-8 cannot
        except Exception as error:  # noqa: BLE001 - a store, embeddings or a user's function raise whatever they like
            return _refused(error, handler.__name__)

    return answered


async def _user_of(request: Request, user_id: str | UserOf) -> object:
    """Returns what the application says of who asks; its function may be async."""
    if not callable(user_id):
        return user_id
    user = user_id(request)
    return await user if isawaitable(user) else user


async def _body_of(request: Request) -> bytes:
    """Returns the body of a request.

    Raises an `HTTPException` as soon as it is known to be too large.
    """
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > MOST_BODY_BYTES:
        raise HTTPException(
            TOO_LARGE, f"The body has {int(declared):,} bytes; at most {MOST_BODY_BYTES:,} are read"
        )
    body = bytearray()
    async for chunk in request.stream():  # a chunked body does not say how long it is
        body += chunk
        if len(body) > MOST_BODY_BYTES:
            more = f"The body has {len(body):,} bytes or more; at most {MOST_BODY_BYTES:,} are read"
            raise HTTPException(TOO_LARGE, more)
    return bytes(body)


def _refused(error: Exception, asked: str) -> Response:
    if isinstance(error, ValidationError):
        problems = (
            f"{'.'.join(map(str, one['loc']))}: {one['msg'].lower()}" for one in error.errors()
        )
        return _told(BAD, "; ".join(dict.fromkeys(problems)))
    if isinstance(error, BudgetError):
        return _told(
            CONFLICT, f"{error.problem.removesuffix(':')}. {error.advice}", floors=error.floors
        )
    if isinstance(error, HTTPException):
        return _told(error.status_code, error.detail)
    if isinstance(error, InputError):
        return _told(BAD, str(error))
    _log.error("The dashboard could not answer %s", asked, exc_info=error)
    return _told(
        UNAVAILABLE,
        "The store, or a part of the pipeline, cannot be used; the server's log says why",
    )


async def _not_routed(_request: Request, error: Exception) -> Response:
    return _told(getattr(error, "status_code", UNAVAILABLE), str(getattr(error, "detail", error)))


def _told(status: int, problem: str, **more: object) -> Response:
    return JSONResponse({"error": problem, **more}, status)


def _refusal(request: Request, *, local_only: bool) -> Response | None:
    """Returns why a request is not answered; None where nothing is wrong."""
    if local_only and not _is_loopback(",".join(request.headers.getlist("host"))):
        return _told(
            MISDIRECTED, "This dashboard is this machine's own; it does not go by that name"
        )
    if local_only and request.client is not None and not _is_loopback(request.client.host):
        return _told(FORBIDDEN, "Only this machine is answered")
    below = request.scope["path"].removeprefix(request.scope.get("root_path", ""))
    is_page = request.method in ("GET", "HEAD") and below in (
        "",
        "/",
    )  # to which other sites may link
    host = request.headers.get("host", "")
    origin = request.headers.get("origin")
    is_own = request.headers.get("sec-fetch-site", "none") in ("same-origin", "none")
    is_own = is_own and (origin is None or origin.lower().partition("://")[2] == host.lower())
    return (
        None if is_page or is_own else _told(FORBIDDEN, "Requests of another site are not answered")
    )


def _is_loopback(host: str) -> bool:
    """Tells if a host name or address (with or without a port) is this machine."""
    try:
        name = (
            host if host.count(":") > 1 and "[" not in host else urlsplit(f"//{host}").hostname
        ) or ""
        return name == "localhost" or ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
