"""The checks of every request, and the headers of every answer.

A page of another site must not reach the dashboard through its visitor's browser. So the host that a request names is
checked (DNS rebinding), requests that a browser marks as another site's are refused, and changes are made by JSON
alone, which no form sends. Whoever is not on this machine needs the token.
"""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Collection, Mapping
from urllib.parse import urlsplit

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from langchain_ctxbudget.errors import InvalidSettingsError

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
    if token is None:
        return
    if not isinstance(token, str) or not (
        token.isascii() and token.isprintable() and len(token.strip()) >= LEAST_TOKEN
    ):
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
