"""The command `ctxbudget dashboard`: a page on this machine that shows what is in the context of conversations."""

from __future__ import annotations

import argparse
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from langchain_ctxbudget.cli.terminal import DEFAULT_USER, require_store, tell
from langchain_ctxbudget.errors import CtxBudgetError, InvalidSettingsError
from langchain_ctxbudget.pipeline import ContextPipeline

HOST, PORT, MOST_PORT = "127.0.0.1", 8642, 65_535
TOKEN_VARIABLE = "CTXBUDGET_DASHBOARD_TOKEN"  # noqa: S105 - the name of a variable


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `dashboard`."""
    parser.add_argument("--store", type=Path, required=True, metavar="FOLDER", help="as given to `import`")
    parser.add_argument("--user", default=DEFAULT_USER, help="whose conversations (default: %(default)s)")
    parser.add_argument("--host", default=HOST, help="where to listen (default: %(default)s, this machine alone)")
    parser.add_argument("--port", type=int, default=PORT, help="0 takes a free one (default: %(default)s)")
    parser.add_argument(
        "--token",
        help=f"what a browser must know, 16 characters or more; needed for other machines (default: ${TOKEN_VARIABLE})",
    )
    parser.add_argument("--budget", type=int, metavar="N", help="tokens of the prompts that are previewed")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Serves the page until the command is stopped."""
    try:
        import uvicorn  # noqa: PLC0415 - needs the extra

        from langchain_ctxbudget.dashboard import app as dashboard  # noqa: PLC0415 - needs the extra
    except ImportError as error:
        raise CtxBudgetError(
            f"The dashboard needs packages that are not installed ({error}): "
            f"pip install 'langchain-ctxbudget[dashboard]'"
        ) from error
    from langchain_ctxbudget.stores.chroma import ChromaStore  # noqa: PLC0415 - loads chromadb

    token = options.token or os.environ.get(TOKEN_VARIABLE) or None
    dashboard.require_token(token)
    if not dashboard.is_loopback(options.host) and token is None:
        raise InvalidSettingsError(
            f"--host {options.host} lets other machines in, who could read everything that {options.user!r} has said. "
            f"Give a --token that they must know, or leave --host out to be reached from this machine alone"
        )
    require_store(options.store)
    settings = {} if options.budget is None else {"max_context_tokens": options.budget}
    with (
        _listener(options.host, options.port) as listener,
        ChromaStore(options.store) as store,
        ContextPipeline(settings, store=store) as pipeline,
    ):
        # With a token any name will do: a page of another site has no cookie under its own name.
        hosts = (*dashboard.LOOPBACK, options.host) if token is None else (dashboard.ANY_HOST,)
        app = dashboard.create_app(pipeline, user_id=options.user, token=token, hosts=hosts)
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning", server_header=False, proxy_headers=False))
        name = f"[{options.host}]" if ":" in options.host else options.host
        address = f"http://{name}:{listener.getsockname()[1]}/"
        hint = "" if token is None else " (the first time with ?token=… at its end)"
        tell(f"The dashboard of {options.user!r} is at {address}{hint}\nCtrl-C ends it.")
        with suppress(KeyboardInterrupt):  # uvicorn has ended in order before it raises this
            server.run([listener])


@contextmanager
def _listener(host: str, port: int) -> Iterator[socket.socket]:
    """A socket that listens; who connects before the server has started waits in it.

    Raises:
        InvalidSettingsError: the address cannot be had.
    """
    if not 0 <= port <= MOST_PORT:
        raise InvalidSettingsError(f"--port must be from 0 to {MOST_PORT:,}, not {port}")
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listener = socket.create_server((host, port), family=family)
    except OSError as error:
        raise InvalidSettingsError(
            f"Cannot listen on {host}, port {port}: {error.strerror or error}. --port 0 takes a port that is free"
        ) from error
    with listener:
        yield listener
