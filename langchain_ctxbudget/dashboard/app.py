"""The dashboard as an ASGI application: its page, a JSON API, and a guard in front of both.

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

from langchain_ctxbudget.dashboard.colours import stylesheet
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
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
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
    ("GET", f"{API}/rules", DashboardService.rules),
    ("POST", f"{API}/rules", DashboardService.add_rule),
    ("POST", f"{API}/rules/lift", DashboardService.lift_rule),
)
"""Method, path and operation; the parameters of an operation are those of the service's method."""
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

    async def colours(_request: Request) -> Response:
        return Response(stylesheet(), media_type="text/css")

    async def guarded(request: Request, call_next: RequestResponseEndpoint) -> Response:
        refusal = _refusal(request, local_only=not callable(user_id))
        answer = refusal or await call_next(request)
        answer.headers.update(HEADERS)
        return answer

    api = [
        Route(path, _endpoint(method, operation, service, user_id), methods=[method])
        for method, path, operation in OPERATIONS
    ]
    app = Starlette(
        routes=[
            Route("/", page),
            Route("/assets/colours.css", colours),
            Mount("/assets", StaticFiles(directory=STATIC)),
            *api,
        ],
        middleware=[Middleware(BaseHTTPMiddleware, dispatch=guarded)],
        exception_handlers={HTTPException: _not_routed},
    )
    # A redirect would put the path that was asked for into a header.
    app.router.redirect_slashes = False
    return app


def _endpoint(
    method: str,
    operation: Callable[..., Awaitable[Any]],
    service: DashboardService,
    user_id: str | UserOf,
) -> Callable[[Request], Awaitable[Response]]:
    """Returns the function that answers the requests of an operation."""
    _, _, *parameters = signature(operation).parameters
    config = ConfigDict(arbitrary_types_allowed=True, strict=method == "POST")
    checked_operation = validate_call(config=config)(operation)

    async def answer(request: Request) -> Response:
        user = await _user_of(request, user_id)
        if not isinstance(user, str) or not user:
            return _problem(NOT_SIGNED_IN, "Nobody is signed in")
        if method == "POST":
            # A form of another site can send other types, but not this one.
            if _media_type(request) != "application/json":
                return _problem(NO_JSON, "Send the body as application/json")
            arguments = TypeAdapter(dict[str, Any]).validate_json(await _body_of(request))
        else:
            given = {**request.query_params, **request.path_params}
            arguments = {name: given[name] for name in parameters if name in given}
        result = to_jsonable_python(await checked_operation(service, user, **arguments))
        # JSON in ASCII: texts may hold what UTF-8 cannot.
        data = json.dumps(result, separators=(",", ":"), allow_nan=False)
        return Response(data, media_type="application/json")

    async def endpoint(request: Request) -> Response:
        try:
            return await answer(request)
        # A store, embeddings or the application's function raise whatever they like.
        except Exception as error:  # noqa: BLE001
            return _refused(error, operation.__name__)

    return endpoint


def _media_type(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


async def _user_of(request: Request, user_id: str | UserOf) -> object:
    """Returns the user of a request as the application gives it; its function may be async."""
    if not callable(user_id):
        return user_id
    user = user_id(request)
    if isawaitable(user):
        return await user
    return user


async def _body_of(request: Request) -> bytes:
    """Returns the body of a request.

    Raises:
        HTTPException: The body is too large, as soon as that is known.
    """
    limit = f"at most {MOST_BODY_BYTES:,} are read"
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > MOST_BODY_BYTES:
        raise HTTPException(TOO_LARGE, f"The body has {int(declared):,} bytes; {limit}")
    body = bytearray()
    # A chunked body does not say how long it is.
    async for chunk in request.stream():
        body += chunk
        if len(body) > MOST_BODY_BYTES:
            raise HTTPException(TOO_LARGE, f"The body has {len(body):,} bytes or more; {limit}")
    return bytes(body)


def _refused(error: Exception, operation: str) -> Response:
    """Returns the answer to a request that failed; what the caller did not cause is logged."""
    if isinstance(error, ValidationError):
        problems = [
            f"{'.'.join(map(str, problem['loc']))}: {problem['msg'].lower()}"
            for problem in error.errors()
        ]
        return _problem(BAD, "; ".join(dict.fromkeys(problems)))
    if isinstance(error, BudgetError):
        text = f"{error.problem.removesuffix(':')}. {error.advice}"
        return _problem(CONFLICT, text, floors=error.floors)
    if isinstance(error, HTTPException):
        return _problem(error.status_code, error.detail)
    if isinstance(error, InputError):
        return _problem(BAD, str(error))
    _log.error("The dashboard could not answer %s", operation, exc_info=error)
    return _problem(
        UNAVAILABLE,
        "The store, or a part of the pipeline, cannot be used; the server's log says why",
    )


async def _not_routed(_request: Request, error: Exception) -> Response:
    return _problem(
        getattr(error, "status_code", UNAVAILABLE), str(getattr(error, "detail", error))
    )


def _problem(status: int, text: str, **more: object) -> Response:
    return JSONResponse({"error": text, **more}, status)


def _refusal(request: Request, *, local_only: bool) -> Response | None:
    """Returns why a request is not answered; None where nothing is wrong."""
    if local_only and not _is_loopback(",".join(request.headers.getlist("host"))):
        return _problem(
            MISDIRECTED, "This dashboard is this machine's own; it does not go by that name"
        )
    if local_only and request.client is not None and not _is_loopback(request.client.host):
        return _problem(FORBIDDEN, "Only this machine is answered")
    if _is_page(request) or _is_of_own_site(request):
        return None
    return _problem(FORBIDDEN, "Requests of another site are not answered")


def _is_page(request: Request) -> bool:
    """Tells whether a request is for the page, to which other sites may link."""
    path = request.scope["path"].removeprefix(request.scope.get("root_path", ""))
    return request.method in ("GET", "HEAD") and path in ("", "/")


def _is_of_own_site(request: Request) -> bool:
    """Tells whether a browser marks a request as this site's, or nothing marks it."""
    if request.headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
        return False
    origin = request.headers.get("origin")
    if origin is None:
        return True
    host = request.headers.get("host", "")
    return origin.lower().partition("://")[2] == host.lower()


def _is_loopback(host: str) -> bool:
    """Tells whether a host name or address, with or without a port, is this machine."""
    try:
        name = _host_name(host)
        return name == "localhost" or ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def _host_name(host: str) -> str:
    """Returns a host without its port; an IPv6 address with one stands in brackets."""
    is_bare_ipv6 = host.count(":") > 1 and "[" not in host
    if is_bare_ipv6:
        return host
    return urlsplit(f"//{host}").hostname or ""
