"""The command `ctxbudget`, also as `python -m langchain_ctxbudget`."""

import argparse
import io
import re
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from importlib import resources
from importlib.metadata import version
from typing import Any

from langchain_ctxbudget.errors import CtxBudgetError

COMMANDS = (
    ("demo", "assemble a prompt from a bundled conversation"),
    ("assemble", "assemble a prompt from a conversation of your own"),
    ("replay", "compare strategies on a conversation, turn by turn"),
    ("check", "check what a policy keeps and costs on your conversations"),
    ("import", "write the conversations of a file into a store"),
    ("inspect", "show what is known about a user, and why"),
    ("sweep", "erase what is older than so many days"),
    ("dashboard", "show what is in the context, in a browser"),
)
BASH = '    {name}) words="{options}" ;;'
FISH = 'complete -c ctxbudget -n "__fish_seen_subcommand_from {name}" -a "{options}"'
SHELLS = {"bash": BASH, "zsh": BASH, "fish": FISH}


class _Command(argparse.ArgumentParser):
    """A command that imports its code only when it is the one to run."""

    name = ""

    def configure(self) -> None:
        """Adds the options."""
        from langchain_ctxbudget.cli import commands  # noqa: PLC0415 - when one is run

        commands.configure(self.name, self)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:  # noqa: ANN401 - as its base
        self.configure()
        return super().parse_known_args(args, namespace)


def _completion(commands: Mapping[str, _Command], shell: str) -> str:
    """Returns a script for the shell that completes the names of commands and of their options."""
    lines: list[str] = []
    for name, command in commands.items():
        command.configure()
        options = dict.fromkeys(re.findall(r"--[a-z-]+", command.format_help()))
        lines.append(SHELLS[shell].format(name=name, options=" ".join(options)))
    file_name = "completion.fish" if shell == "fish" else "completion.bash"
    script = resources.files(__package__).joinpath(file_name).read_text("utf-8")
    return script.replace("COMMANDS", " ".join(commands)).replace("OPTIONS", "\n".join(lines))


def _parser() -> argparse.ArgumentParser:
    """Returns the parser of the options that go before a command."""
    parser = argparse.ArgumentParser(
        prog="ctxbudget",
        usage="%(prog)s COMMAND [OPTIONS]",
        description="Decides what goes into the context window of a model call.",
        epilog=(
            "Try `ctxbudget demo`, then `ctxbudget dashboard --demo`. "
            "`ctxbudget COMMAND --help` has the options."
        ),
        formatter_class=partial(argparse.HelpFormatter, max_help_position=20),
    )
    parser.add_argument(
        "--version", action="version", version=f"%(prog)s {version('langchain-ctxbudget')}"
    )
    parser.add_argument(
        "--completion",
        nargs="?",
        const="bash",
        choices=SHELLS,
        metavar="SHELL",
        help=(
            'bash, zsh: eval "$(%(prog)s --completion)"; fish: %(prog)s --completion fish | source'
        ),
    )
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command, and returns its exit code.

    It is 0, or 1 with a message on standard error. `check` returns 1 for conversations below its
    gate, and 2 for what it cannot use.

    Args:
        arguments: after the command's name; default: those of the shell. Without any, it shows what
            commands there are.
    """
    parser = _parser()
    commands = parser.add_subparsers(
        title="commands", prog="ctxbudget", metavar="COMMAND ...", parser_class=_Command
    )
    for name, help_text in COMMANDS:
        commands.add_parser(name, help=help_text).name = name
    options = parser.parse_args(arguments)
    if options.completion:
        print(_completion(commands.choices, options.completion), end="")  # noqa: T201 - a program's output
        return 0
    if "run" not in options:
        parser.print_help()
        return 0
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A terminal without these characters gets question marks.
            stream.reconfigure(errors="replace")
    code = 0
    try:
        code = options.run(options) or 0
    except CtxBudgetError as error:
        from langchain_ctxbudget.cli.printing import tell  # noqa: PLC0415 - when there is something

        tell(f"{type(error).__name__}: {error}", style="red", stderr=True)
        return int(options.error_code)
    except BrokenPipeError:  # the reader, `head` for instance, has seen enough
        sys.stderr.close()
    return code


if __name__ == "__main__":
    sys.exit(main())
