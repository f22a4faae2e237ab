"""The command `ctxbudget dashboard`: a page on this machine that shows what is in the context of conversations."""

from __future__ import annotations

import argparse
import socket
from contextlib import suppress
from pathlib import Path

from langchain_ctxbudget.cli.terminal import DEFAULT_USER, require_store, tell
from langchain_ctxbudget.errors import CtxBudgetError, InvalidSettingsError
from langchain_ctxbudget.pipeline import ContextPipeline

HOST, PORT = "127.0.0.1", 8642


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `dashboard`."""
    parser.add_argument("--store", type=Path, required=True, metavar="FOLDER", help="as given to `import`")
    parser.add_argument("--user", default=DEFAULT_USER, help="whose conversations (default: %(default)s)")
    parser.add_argument("--port", type=int, default=PORT, help="0 takes a free one (default: %(default)s)")
    parser.add_argument("--budget", type=int, metavar="N", help="tokens of the prompts that are previewed")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Serves the page until the command is stopped."""
    try:
        import uvicorn  # noqa: PLC0415 - needs the extra

        from langchain_ctxbudget.dashboard import create_app  # noqa: PLC0415 - needs the extra
    except ImportError as error:
        raise CtxBudgetError(
            f"The dashboard needs packages that are not installed ({error}): "
            f"pip install 'langchain-ctxbudget[dashboard]'"
        ) from error
    from langchain_ctxbudget.stores.chroma import ChromaStore  # noqa: PLC0415 - loads chromadb

    require_store(options.store)
    settings = {} if options.budget is None else {"max_context_tokens": options.budget}
    try:
        listener = socket.create_server((HOST, options.port))
    except (OSError, OverflowError) as error:
        raise InvalidSettingsError(f"--port {options.port}: {error}; 0 takes a free one") from error
    with listener, ChromaStore(options.store) as store, ContextPipeline(settings, store=store) as pipeline:
        app = create_app(pipeline, user_id=options.user)
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning", server_header=False, proxy_headers=False))
        tell(f"The dashboard of {options.user!r} is at http://{HOST}:{listener.getsockname()[1]}/\nCtrl-C ends it.")
        with suppress(KeyboardInterrupt):  # uvicorn has ended in order before it raises this
            server.run([listener])
