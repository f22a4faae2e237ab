"""The command `ctxbudget`, also as `python -m langchain_ctxbudget.cli`."""

from __future__ import annotations

import argparse
import io
import sys
from collections.abc import Sequence
from importlib.metadata import version

from langchain_ctxbudget.cli import assembling, dashboard, importing, inspecting, replay
from langchain_ctxbudget.cli.terminal import tell
from langchain_ctxbudget.errors import CtxBudgetError


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; its exit code is 0, or 1 with a message on standard error.

    Args:
        arguments: after the command's name; default: those of the shell.
    """
    parser = argparse.ArgumentParser(
        prog="ctxbudget", description="Decides what goes into the context window of a model call."
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {version('langchain-ctxbudget')}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for name, help_text, configure in (
        ("demo", "assemble a prompt from a bundled conversation of over 200 messages", assembling.configure_demo),
        ("assemble", "assemble a prompt from a conversation of your own", assembling.configure),
        ("replay", "compare strategies on a conversation, turn by turn", replay.configure),
        ("import", "write the conversations of a file into a store", importing.configure),
        ("inspect", "show and change what is known about a user", inspecting.configure),
        ("dashboard", "show what is in the context, in a browser", dashboard.configure),
    ):
        configure(commands.add_parser(name, help=help_text))
    options = parser.parse_args(arguments)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without these characters gets question marks
    try:
        options.run(options)
    except CtxBudgetError as error:
        tell(f"{type(error).__name__}: {error}", style="red", stderr=True)
        return 1
    except BrokenPipeError:  # the reader, `head` for instance, has seen enough
        sys.stderr.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
