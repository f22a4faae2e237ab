"""What a line of a shell runs: its parts, each with the folder in which it runs."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

_PIECE = re.compile(r"""'[^']*'|"(?:\\.|[^"\\])*"|\\.|&&|;|[^'"\\;&]+|.""", re.DOTALL)
"""A quoted text, a sign that ends a command, or what stands between them."""
_ENDS = frozenset({"&&", ";"})
_CHANGES_FOLDER = re.compile(r"(?:cd|pushd) +(.+)")
_SHOWS_LESS = re.compile(
    r"(?: *(?:\d?>&\d|\d?> */dev/null|\| *(?:tail|head|cat)(?: +-\S+| +\d+)*))+$"
)
"""What only changes how much of its output a command shows."""


@dataclass(frozen=True, slots=True)
class Command:
    """One command of a line."""

    words: str
    folder: str = ""
    """The folder to which the line has changed before; empty where it has not."""

    def does(self, other: "Command") -> bool:
        """Returns True if it does what another command does, as far as their folders are told."""
        is_there = not self.folder or not other.folder or self.folder == other.folder
        return is_there and self.words == other.words


def commands_in(line: str) -> list[Command]:
    """Returns the commands of a line but for changes of the folder: `make` of `cd x && make`.

    Commands of which the second runs because the first fails stay together.
    """
    commands: list[Command] = []
    folder = ""
    for words in _split(line):
        change = _CHANGES_FOLDER.fullmatch(words)
        if change:
            folder = change[1].strip("\"'")
        elif words:
            commands.append(Command(words, folder))
    return commands


def all_done(line: str, done: Iterable[Command]) -> bool:
    """Returns True if each command of a line is among some that have succeeded."""
    succeeded = list(done)
    wanted = commands_in(line)
    return bool(wanted) and all(
        any(command.does(other) for other in succeeded) for command in wanted
    )


def _split(line: str) -> Iterator[str]:
    """Yields the commands of a line as they are written, but for how much of it they show."""
    words = ""
    for piece in _PIECE.findall(line):
        if piece in _ENDS:
            yield _bare(words)
            words = ""
        else:
            words += piece
    yield _bare(words)


def _bare(words: str) -> str:
    return _SHOWS_LESS.sub("", words.strip()).strip()
