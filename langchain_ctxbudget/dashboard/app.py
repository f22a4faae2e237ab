"""The dashboard as an ASGI application: its page, a JSON API made of one table, and a guard in front of both.

A page of another site must not reach the dashboard through its visitor's browser. So the host that a request names is
checked (DNS rebinding), requests that a browser marks as another site's are refused, and changes are made by JSON
alone, which no form sends. Whoever is not on this machine needs the token.
"""

from __future__ import annotations

import hmac
import ipaddress
import json
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import cache
from importlib import resources
from inspect import Parameter, signature
from pathlib import PurePath
from typing import Any, TypeAlias, get_type_hints
from urllib.parse import urlsplit

from pydantic import BaseModel, TypeAdapter, ValidationError, create_model
from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from langchain_ctxbudget.dashboard.service import CONFLICT, UNKNOWN, DashboardService, RefusedError
from langchain_ctxbudget.errors import BudgetError, InputError, InvalidSettingsError, MissingScopeError
from langchain_ctxbudget.pipeline import ContextPipeline

UserOf: TypeAlias = Callable[[Request], str | None]
BAD, TOO_LARGE, NO_JSON, UNAVAILABLE = 400, 413, 415, 503
NOT_SIGNED_IN, FORBIDDEN, MISDIRECTED = 401, 403, 421
LOOPBACK = ("localhost", "127.0.0.1", "::1")
ANY_HOST = "*"
LEAST_TOKEN = 16
"""Characters: whoever reaches the dashboard can try one token after the other."""
COOKIE = "ctxbudget_dashboard"
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
"""Of every answer."""
LARGEST_BODY = 65_536
"""Bytes."""
PAGE = "page.html"
TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css"}
"""Of the files of the page, by their endings; others are not served."""
API = "/api/context"
OPERATIONS: tuple[tuple[str, str, Callable[..., Awaitable[Any]]], ...] = (
    ("GET", f"{API}/sessions", DashboardService.sessions),
    ("GET", f"{API}/status", DashboardService.status),
    ("GET", f"{API}/snapshots", DashboardService.snapshots),
    ("GET", f"{API}/snapshots/{{snapshot_id}}", DashboardService.snapshot),
    ("GET", f"{API}/preview", DashboardService.preview),
    ("GET", f"{API}/messages", DashboardService.messages),
    ("GET", f"{API}/usage", DashboardService.usage),
    ("GET", f"{API}/settings", DashboardService.settings),
    ("POST", f"{API}/pins", DashboardService.pin),
    ("POST", f"{API}/force", DashboardService.force),
)
"""What is asked and what is answered is said by the types of the service's methods."""

_log = logging.getLogger(__name__)


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
        ['/', '/assets/{name}', '/api/context/sessions']
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
    app = Starlette(
        routes=[
            Route("/", _static),
            Route("/assets/{name}", _static),
            *(Route(path, _endpoint(handler, service, user_id), methods=[how]) for how, path, handler in OPERATIONS),
        ],
        middleware=[Middleware(Guard, token=token, hosts=hosts, local_only=open_to_all)],
        exception_handlers={HTTPException: _not_routed},
    )
    app.router.redirect_slashes = False  # what is asked for would stand in a header
    return app


def _endpoint(
    handler: Callable[..., Awaitable[Any]], service: DashboardService, user_id: str | UserOf
) -> Callable[[Request], Awaitable[Response]]:
    question, answer = _types(handler)

    async def answered(request: Request) -> Response:
        try:
            user = user_id(request) if callable(user_id) else user_id
            if not isinstance(user, str) or not user:
                return refusal(NOT_SIGNED_IN, "Nobody is signed in")
            given = await _body(request) if "body" in question.model_fields else _parameters(request)
            found = await handler(service, user, **dict(question.model_validate(given)))
            data = json.dumps(answer.dump_python(found, mode="json"), separators=(",", ":"), allow_nan=False)
            return Response(data, media_type="application/json")  # in ASCII: texts may hold what UTF-8 cannot
        except Exception as error:  # noqa: BLE001 - a store, embeddings or a user's function raise whatever they like
            return _refused(error, handler.__name__)

    return answered


@cache
def _types(handler: Callable[..., Awaitable[Any]]) -> tuple[type[BaseModel], TypeAdapter[Any]]:
    """Returns what checks the parameters of a method, and what makes plain data of its answer."""
    hints = get_type_hints(handler, include_extras=True)
    _, _, *asked = signature(handler).parameters.values()
    fields: dict[str, Any] = {
        one.name: (hints[one.name], ... if one.default is Parameter.empty else one.default) for one in asked
    }
    return create_model(handler.__name__, **fields), TypeAdapter(hints["return"])


def _refused(error: Exception, asked: str) -> Response:
    if isinstance(error, ValidationError):
        problems = (
            f"{'.'.join(map(str, one['loc']))}: {one['msg'][:1].lower()}{one['msg'][1:]}"
            for one in error.errors(include_url=False, include_input=False, include_context=False)
        )
        return refusal(BAD, "; ".join(dict.fromkeys(problems)))
    if isinstance(error, BudgetError):
        problem = f"{error.problem.removesuffix(':')}. {error.advice}"
        return JSONResponse({"error": problem, "floors": error.floors}, CONFLICT)
    if isinstance(error, RefusedError | InputError):
        return refusal(getattr(error, "status", BAD), str(error))
    _log.error("The dashboard could not answer %s", asked, exc_info=error)
    return refusal(UNAVAILABLE, "The store, or a part of the pipeline, cannot be used; the server's log says why")


def _parameters(request: Request) -> dict[str, str]:
    names = [name for name, _ in request.query_params.multi_items()]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise RefusedError(BAD, f"{', '.join(map(ascii, twice))}: given more than once")
    return {**request.query_params, **request.path_params}


async def _body(request: Request) -> dict[str, Any]:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":  # a page of another site can send other kinds without being asked for leave
        raise RefusedError(NO_JSON, "Send the body as application/json")
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > LARGEST_BODY:
            raise RefusedError(TOO_LARGE, f"The body is larger than {LARGEST_BODY:,} bytes")
    try:
        return {"body": json.loads(body)}
    except (ValueError, RecursionError) as error:
        raise RefusedError(BAD, f"The body is no JSON that can be read: {type(error).__name__}") from error


@cache
def _file(name: str) -> bytes | None:
    file = resources.files("langchain_ctxbudget.dashboard").joinpath("static", name)
    return file.read_bytes() if file.is_file() else None


async def _static(request: Request) -> Response:
    name = request.path_params.get("name", PAGE)
    kind = TYPES.get(PurePath(name).suffix)
    content = _file(name) if kind and PurePath(name).name == name else None
    return refusal(UNKNOWN, "There is no such file") if content is None else Response(content, media_type=kind)


async def _not_routed(_request: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPException):
        raise error
    return refusal(error.status_code, str(error.detail), error.headers)


def is_loopback(host: str) -> bool:
    """Tells whether a name or an address is this machine's own."""
    try:
        return host.lower() in LOOPBACK or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def require_token(token: object) -> None:
    """Makes sure that a token is one, or that there is none.

    Raises:
        InvalidSettingsError: it is something else, or could be guessed.
    """
    sound = isinstance(token, str) and token.isascii() and token.isprintable() and len(token.strip()) >= LEAST_TOKEN
    if token is not None and not sound:
        raise InvalidSettingsError(
            f"token must be a string of at least {LEAST_TOKEN} printable ASCII characters, or None. "
            f"`openssl rand -hex 16` makes one"
        )


def refusal(status: int, problem: str, headers: Mapping[str, str] | None = None) -> Response:
    """Returns an answer that says what is wrong."""
    return JSONResponse({"error": problem}, status, headers)


class Guard:
    """ASGI middleware that answers only who may ask: by host, by machine, by token, by site."""

    def __init__(self, app: ASGIApp, *, token: str | None, hosts: Collection[str], local_only: bool) -> None:
        self._app = app
        self._token = token
        self._hosts = {host.lower() for host in hosts}
        self._local_only = local_only

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request."""
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def protected(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        await (self._checked(Request(scope)) or self._app)(scope, receive, protected)

    def _checked(self, request: Request) -> Response | None:
        """Returns the refusal; None where nothing is wrong."""
        below = request.scope["path"].removeprefix(request.scope.get("root_path", ""))
        is_page = request.method in ("GET", "HEAD") and below in ("", "/")  # to which other sites may link
        if not self._is_meant(request.headers.getlist("host")):
            return refusal(MISDIRECTED, "This dashboard does not go by that name; see the setting hosts")
        if self._local_only and request.client is not None and not is_loopback(request.client.host):
            return refusal(FORBIDDEN, "Only this machine is answered; set a token to open the dashboard to others")
        if self._token is not None:
            if is_page and "token" in request.query_params:
                return self._sign_in(request, self._token)
            if not self._is_signed_in(request, self._token):
                return refusal(NOT_SIGNED_IN, "The token is missing or wrong", {"WWW-Authenticate": "Bearer"})
        if not is_page and not _is_own(request):
            return refusal(FORBIDDEN, "Requests of another site are not answered")
        return None

    def _is_meant(self, given: list[str]) -> bool:
        try:
            [host] = given
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:  # several hosts, none, or one that is no name
            return False
        return ANY_HOST in self._hosts or name in self._hosts

    def _sign_in(self, request: Request, token: str) -> Response:
        """Gives a browser a cookie for the token that is in the page's address, and take it out of there."""
        if not _same(request.query_params.getlist("token"), token):
            return refusal(NOT_SIGNED_IN, "The token is wrong", {"WWW-Authenticate": "Bearer"})
        answer = RedirectResponse("./", 303)
        secure = request.url.scheme == "https"
        answer.set_cookie(COOKIE, _pass(token), httponly=True, samesite="strict", secure=secure)
        return answer

    def _is_signed_in(self, request: Request, token: str) -> bool:
        kind, _, given = request.headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer":
            return _same([given.strip()], token)
        return _same([request.cookies.get(COOKIE, "")], _pass(token))


def _same(given: list[str], wanted: str) -> bool:
    """Compares in constant time."""
    return len(given) == 1 and hmac.compare_digest(given[0].encode(errors="replace"), wanted.encode())


def _pass(token: str) -> str:
    """The value of the cookie: other services of the same host see it, and must not learn the token."""
    return hmac.new(token.encode(), b"cookie of the ctxbudget dashboard", "sha256").hexdigest()


def _is_own(request: Request) -> bool:
    """The request comes from the dashboard's page, or from no page at all."""
    if request.headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
        return False
    origin = request.headers.get("origin")
    return origin is None or origin.lower().partition("://")[2] == request.headers["host"].lower()
