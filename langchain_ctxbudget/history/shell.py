"""Which commands a line of a shell runs, each with the folder in which it runs."""

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
"""What only changes how much of its output a command shows: `2>&1 | tail -5`."""


@dataclass(frozen=True, slots=True)
class Command:
    """A command of a line."""

    words: str
    """The command as it is written, but for what only shortens its output."""
    folder: str = ""
    """The folder to which the line has changed before it; empty where it has not."""

    def is_same_as(self, other: "Command") -> bool:
        """Returns True if it is another command in the same folder, or in one that is not known."""
        if self.words != other.words:
            return False
        return not self.folder or not other.folder or self.folder == other.folder


def commands_in(line: str) -> list[Command]:
    """Returns the commands of a line without changes of the folder: `make` of `cd x && make`.

    Commands that are joined by `||` or `|` are one.
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
    commands = commands_in(line)
    if not commands:
        return False
    return all(any(command.is_same_as(other) for other in succeeded) for command in commands)


def _split(line: str) -> Iterator[str]:
    """Yields the commands of a line as they are written, without what shortens their output."""
    words = ""
    for piece in _PIECE.findall(line):
        if piece in _ENDS:
            yield _bare(words)
            words = ""
        else:
            words += piece
    yield _bare(words)


def _bare(words: str) -> str:
    """Returns a command without what only shortens its output."""
    return _SHOWS_LESS.sub("", words.strip()).strip()
