"""The command `ctxbudget`, also as `python -m langchain_ctxbudget.cli`."""

from __future__ import annotations

import argparse
import io
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import version
from typing import Any

from langchain_ctxbudget.errors import CtxBudgetError

COMMANDS = (
    ("demo", "assemble a prompt from a bundled conversation of over 200 messages", "assembling", "configure_demo"),
    ("assemble", "assemble a prompt from a conversation of your own", "assembling", "configure"),
    ("replay", "compare strategies on a conversation, turn by turn", "replay", "configure"),
    ("import", "write the conversations of a file into a store", "stored", "configure_import"),
    ("inspect", "show what is known about a user, and why", "stored", "configure_inspect"),
    ("dashboard", "show what is in the context, in a browser", "dashboard", "configure"),
)
"""Name, help, module, and the function there that adds the options."""


class _Command(argparse.ArgumentParser):
    """Imports its module when it is the command that was given."""

    module, configure = "", ""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:  # noqa: ANN401 - as its base
        getattr(import_module(f"langchain_ctxbudget.cli.{self.module}"), self.configure)(self)
        return super().parse_known_args(args, namespace)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; its exit code is 0, or 1 with a message on standard error.

    Args:
        arguments: after the command's name; default: those of the shell.
    """
    parser = argparse.ArgumentParser(
        prog="ctxbudget", description="Decides what goes into the context window of a model call."
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {version('langchain-ctxbudget')}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND", parser_class=_Command)
    for name, help_text, module, configure in COMMANDS:
        command = commands.add_parser(name, help=help_text)
        command.module, command.configure = module, configure
    options = parser.parse_args(arguments)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without these characters gets question marks
    try:
        options.run(options)
    except CtxBudgetError as error:
        from langchain_ctxbudget.cli.terminal import tell  # noqa: PLC0415 - when there is something to tell

        tell(f"{type(error).__name__}: {error}", style="red", stderr=True)
        return 1
    except BrokenPipeError:  # the reader, `head` for instance, has seen enough
        sys.stderr.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
