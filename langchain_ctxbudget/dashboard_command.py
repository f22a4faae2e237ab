"""The command `ctxbudget dashboard`: a page on this machine that shows what is in the context of conversations."""

from __future__ import annotations

import argparse
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from rich.console import Console
from rich.text import Text

from langchain_ctxbudget.errors import CtxBudgetError, InvalidSettingsError, StoreError
from langchain_ctxbudget.importing import DEFAULT_USER
from langchain_ctxbudget.pipeline import ContextPipeline
from langchain_ctxbudget.stores.folder import DATABASE_FILE
from langchain_ctxbudget.terminal import printable

HOST, PORT, MOST_PORT = "127.0.0.1", 8642, 65_535
TOKEN_VARIABLE = "CTXBUDGET_DASHBOARD_TOKEN"  # noqa: S105 - the name of a variable


def configure(parser: argparse.ArgumentParser) -> None:
    """Say what the command takes."""
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


def run(options: argparse.Namespace) -> int:
    """Serve the page until the command is stopped.

    Raises:
        CtxBudgetError: the extra `dashboard` is not installed.
        InvalidSettingsError: an address of other machines without a token, a token that could be guessed, or a port
            that cannot be had.
        MissingScopeError: no user.
        StoreError: there is no store in the folder, or another process has it open.
    """
    try:
        import uvicorn  # noqa: PLC0415 - needs the extra

        from langchain_ctxbudget.dashboard import create_app  # noqa: PLC0415 - needs the extra
        from langchain_ctxbudget.dashboard.guard import (  # noqa: PLC0415
            ANY_HOST,
            LOOPBACK,
            is_loopback,
            require_token,
        )
    except ImportError as error:
        raise CtxBudgetError(
            f"The dashboard needs packages that are not installed ({error}): "
            f"pip install 'langchain-ctxbudget[dashboard]'"
        ) from error
    from langchain_ctxbudget.stores.chroma import ChromaStore  # noqa: PLC0415 - loads chromadb

    token = options.token or os.environ.get(TOKEN_VARIABLE) or None
    require_token(token)
    if not is_loopback(options.host) and token is None:
        raise InvalidSettingsError(
            f"--host {options.host} lets other machines in, who could read everything that {options.user!r} has said. "
            f"Give a --token that they must know, or leave --host out to be reached from this machine alone"
        )
    if not (options.store / DATABASE_FILE).is_file():
        raise StoreError(f"There is no store in {options.store}: `ctxbudget import FILE --store FOLDER` makes one")
    settings = {} if options.budget is None else {"max_context_tokens": options.budget}
    with (
        _listener(options.host, options.port) as listener,
        ChromaStore(options.store) as store,
        ContextPipeline(settings, store=store) as pipeline,
    ):
        # With a token any name will do: a page of another site has no cookie under its own name.
        hosts = (*LOOPBACK, options.host) if token is None else (ANY_HOST,)
        app = create_app(pipeline, user_id=options.user, token=token, hosts=hosts)
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning", server_header=False, proxy_headers=False))
        _tell(listener, options, token)
        with suppress(KeyboardInterrupt):  # uvicorn has ended in order before it raises this
            server.run([listener])
    return 0


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


def _tell(listener: socket.socket, options: argparse.Namespace, token: str | None) -> None:
    """Say where the page is."""
    host = f"[{options.host}]" if ":" in options.host else options.host
    address = f"http://{host}:{listener.getsockname()[1]}/"
    console = Console(highlight=False)
    of = f"The dashboard of {options.user!r} is at {address}"
    hint = "" if token is None else " (the first time with ?token=… at its end)"
    console.print(Text(printable(f"{of}{hint}\nCtrl-C ends it.")), soft_wrap=True)
