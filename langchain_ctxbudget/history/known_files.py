"""The files that an agent works on.

Their newest known text, and the lines that its next edits are likely to replace.

The text of a file is what was read of it, with later edits applied. How much a line is worth
follows from real sessions of coding agents: most by its number being named, then by being shown or
written lately; also in a named or short file, at a head, and near identifiers of the talk, the more
the rarer.
"""

import math
import re
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from langchain_ctxbudget.messages import Count, fences, remembering

MOST_FILES = 40
"""Files whose texts are known."""
LONGEST_FILE = 400_000
"""Characters of a file that are read."""
LONGEST_LINE = 2_000
"""Characters of a line that are searched for places."""
SAYS_SOMETHING = 12
"""Characters of a line that is not the same elsewhere by chance."""
NEARBY = 8
"""Lines over which a place and the talk fade, and after which a named file is no more meant."""
SCREEN = 20
"""Lines over which the head of a file fades, and after which a named place is a large one."""


@dataclass(frozen=True, slots=True)
class LineWeights:
    """Powers of what tells that a line is likely to be edited next.

    The calls since it was shown and the head of its file count 1.
    """

    length: float = 0.5
    """Of the lines of its file."""
    placed: float = 10.0
    """Of the times that its number was named."""
    about: float = 0.2
    """Of the rare identifiers of the talk near it."""
    named: float = 1.5
    """Of its file being named in the turn; half of it before the turn."""


WEIGHTS = LineWeights()

_IDENTIFIER = re.compile(r"[A-Za-z_]\w{3,}")
_COMPOUND = re.compile(r"[a-z][A-Z]|_|\d")
NUMBERED = re.compile(r"\s*(\d{1,9})(?:→|\t|\||: ?)(.*)")
PADDING = re.compile(r"(?m)^ +(?=\d+[→\t|])")
_FILE = re.compile(r"(?<![\w.-])[\w.-]+\.[A-Za-z]\w{0,4}\b")
_PLACE = re.compile(r"(?:[:#(]L?|\blines? ~?)(\d{1,5})(?:\s*[-\u2013]\s*(\d{1,5}))?")
_FROM = re.compile(r"(?i)offset|start|from|line|range")
_LENGTH = re.compile(r"(?i)limit|count|length|size|end$|^(?:num|max|head|end|to)")
"""Names of arguments with the first line of a part, and with its length or end."""
_NO_PART = re.compile(
    r"(?i)^(?:encoding|description|explanation|reason(?:ing)?|thoughts?|command|action)$"
)
OLD = re.compile(r"(?i)^old|^(?:search|find|target)(?:_(?:text|str|string))?$")
NEW = re.compile(
    r"(?i)^new|^(?:contents?|text|file_text|body|data|replace(?!_?all)\w*|insert_text)$"
)
"""Names of arguments with the text that an edit replaces, and with the one that stands there
then."""
_EVERY = re.compile(r"(?i)^(?:replace_?)?all$|^allow_?multiple$|^expected_replacements$")
_OLD_LINES, _NEW_LINES = (
    rf"((?:(?![<-]{{5,}} ?SEARCH\n|{end}).*\n)*)" for end in (r"={5,}\n", r"[>+]{5,} ?REPLACE")
)
_BLOCKS = re.compile(
    rf"(?m)^[<-]{{5,}} ?SEARCH\n{_OLD_LINES}={{5,}}\n{_NEW_LINES}[>+]{{5,}} ?REPLACE"
)
_LINES = r"(?:head(?: -n)? -?\d+|sed -n ['\"]?(\d{1,9}),\d+p['\"]?)"
_PATH = r"(?!-|/dev/)([\w./~@+-]*\w)"
_SHOWS = re.compile(rf"(?:cd \S+ && )?(?:(cat(?: -n)?|nl -ba)|{_LINES}) {_PATH}(?: \| {_LINES})?")
_WRITES = re.compile(
    rf"(?:cat > ?|tee ){_PATH}(?: > ?/dev/null)? ?<< ?(['\"])(\w+)\2\n((?:(?!\3\n).*\n)*)\3"
)

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class KnownFile:
    """A file as far as it is known; it never changes, an edit makes another one."""

    lines: Mapping[int, tuple[str, int]]
    """Its lines by their numbers, in order, each with the number of the call that showed or wrote
    it last."""

    @cached_property
    def names(self) -> list[frozenset[str]]:
        """The compound names in each of its lines."""
        return [identifiers(line) for line, _ in self.lines.values()]

    def edited(self, old: str, new: str, call: int, *, every: bool = False) -> "KnownFile":
        """Returns it with a text replaced, where that is known, once or within every line.

        The lines behind it move.
        """
        if every and old and "\n" not in old + new:
            rows = (
                (at, line, shown, line.replace(old, new))
                for at, (line, shown) in self.lines.items()
            )
            return KnownFile(
                {at: (now, shown if now == line else call) for at, line, shown, now in rows}
            )
        whole = "".join(f"{line}\n" for line, _ in self.lines.values())
        numbers = [*self.lines]
        if not old or (at := whole.find(old)) < 0:
            return self
        ends_line = old.endswith("\n")
        behind = at + len(old) - ends_line
        tail = whole[behind : whole.index("\n", behind)]
        text = whole[whole.rfind("\n", 0, at) + 1 : at] + new.removesuffix("\n" * ends_line) + tail
        made = [(line, call) for line in text.split("\n")] if text or not ends_line else []
        first = whole.count("\n", 0, at)
        last = whole.count("\n", 0, behind)
        moved = len(made) - (last - first + 1)
        lines = {number: self.lines[number] for number in numbers[:first]}
        lines |= dict(enumerate(made, numbers[first]))
        lines |= {number + moved: self.lines[number] for number in numbers[last + 1 :]}
        return KnownFile(lines)


def read_lines(text: str, args: Mapping[str, Any], paths: Sequence[str]) -> dict[int, str]:
    """Returns the lines of a result by the tool's numbers, else counted.

    None of a part that may stand anywhere.
    """
    lines: dict[int, str] = {}
    every = text[:LONGEST_FILE].splitlines()
    for line in every:
        if (found := NUMBERED.match(line)) and int(found[1]) > next(reversed(lines), -1):
            lines[int(found[1])] = found[2]
    if len(lines) > len(every) / 2:
        return lines
    where = {key: value for key, value in args.items() if not _LENGTH.search(key)}
    given = (
        re.match(r"\[?'?(\d{1,9})\b", str(value))
        for key, value in where.items()
        if _FROM.search(key)
    )
    first = next((int(found[1]) for found in given if found), None)
    if first is None and reads_part(where, paths):
        return {}
    return dict(enumerate(every, max(1, first or 1)))


def reads_part(args: Mapping[str, Any], paths: Sequence[str]) -> bool:
    """Tells whether a read may be of a part of its files.

    It is given more than paths and switches.
    """
    given = ((key, value) for key, value in args.items() if not isinstance(value, bool))
    return any(value not in (None, "", *paths) and not _NO_PART.match(key) for key, value in given)


def shown_by(command: str) -> dict[str, Any]:
    """Returns a command that shows or writes a file as the arguments of a tool that does.

    Nothing of another one.
    """
    if wrote := _WRITES.fullmatch(command.strip()):
        return {"path": wrote[1], "content": wrote[4]}
    if not (found := _SHOWS.fullmatch(command.strip())):
        return {}
    whole, first, path, then = found.groups()
    is_part = whole is None or "|" in command
    return {"path": path, "start": int(first or then or 1)} if is_part else {"path": path}


def replacements(args: object) -> Iterator[tuple[str, str, bool]]:
    """Returns the old and new texts of an edit, and whether it is of every occurrence.

    They are told by the names of arguments, as hunks of a patch, or as blocks to search and
    replace.
    """
    if isinstance(args, Mapping):
        texts = {key: value for key, value in args.items() if isinstance(value, str)}
        old, new = (
            next((v for k, v in texts.items() if kind.search(k)), None) for kind in (OLD, NEW)
        )
        if old is not None:
            yield (
                old,
                new or "",
                any(
                    str(v or "false").lower() != "false" and _EVERY.match(k)
                    for k, v in args.items()
                ),
            )
            return
    if isinstance(args, Mapping | list):
        for value in args.values() if isinstance(args, Mapping) else args:
            yield from replacements(value)
    elif isinstance(args, str) and (blocks := _BLOCKS.findall(args)):
        yield from ((old, new, False) for old, new in blocks)
    elif isinstance(args, str) and "\n" in args:
        for hunk in re.split(r"(?m)^(?:@@|\*\*\*|---|\+\+\+|diff ).*\n?", args):
            lines = hunk.splitlines()
            old, new = (
                "\n".join(line[1:] for line in lines if line[:1] in signs) for signs in (" -", " +")
            )
            if old and old != new:
                yield old, new, False


@dataclass(frozen=True, slots=True)
class Focus:
    """The identifiers, files and lines of files that recent messages name."""

    words: Mapping[str, int] = field(default_factory=dict)
    """Identifiers, with the number of kinds of texts that have them."""
    files: Mapping[str, float] = field(default_factory=dict)
    places: Mapping[str, Sequence[tuple[int, int]]] = field(default_factory=dict)
    """First and last lines that are named of a file, by its name without folders."""


def focus_of(asked: str, before: str, told: str, found: Iterable[str], todos: str) -> Focus:
    """Reads what a turn is about.

    By the words of the user, those before, calls, results and plans.
    """
    places: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
    for text in (asked, before, told, *found):
        for name, first, last in _places(text):
            places[name].append((first, last))
    words = Counter(word for text in (asked, before, told, todos) for word in identifiers(text))
    files = dict.fromkeys(_FILE.findall(f"{before}\n{todos}"), WEIGHTS.named / 2) | dict.fromkeys(
        _FILE.findall(asked), WEIGHTS.named
    )
    return Focus(words, files, places)


@remembering(4_096)
def _places(text: str) -> list[tuple[str, int, int]]:
    """Returns lines that a text names, with the file that is named last before them."""
    places = list[tuple[str, int, int]]()
    name = ""
    age = 0
    for line in text.splitlines():
        files = [*_FILE.finditer(line[:LONGEST_LINE])]
        age = age + 1
        for found in _PLACE.finditer(line[:LONGEST_LINE]):
            said = next(
                (file[0] for file in reversed(files) if file.start() < found.start()),
                "" if files else name,
            )
            if said and (files or age <= NEARBY):
                first = int(found[1])
                last = int(found[2] or found[1])
                places.append((said, first, max(first, last)))
        if files:
            name = files[-1][0]
            age = 0
    return places


@remembering(65_536)
def identifiers(text: str) -> frozenset[str]:
    """Returns the compound names of a text.

    Those with an underscore, a digit or a capital within.
    """
    return frozenset(word for word in _IDENTIFIER.findall(text) if _COMPOUND.search(word))


def worth(files: Mapping[str, KnownFile], focus: Focus, calls: int) -> dict[str, Floats]:
    """Returns how likely the next edits replace each line of some files, as logarithms."""
    words = focus.words
    known = focus.words.keys()
    having = [
        [names & known if names else names for names in file.names] for file in files.values()
    ]
    often = Counter(word for lines in having for line in lines for word in line)
    total = sum(len(file.lines) for file in files.values())
    kernel = 1 - abs(np.arange(-NEARBY, NEARBY + 1)) / (NEARBY + 1)
    said = (
        [math.fsum(words[w] * math.log(total / often[w]) for w in line) for line in lines]
        for lines in having
    )
    about = [np.convolve(own, kernel)[NEARBY : NEARBY + len(own)] for own in said]
    made: dict[str, Floats] = {}
    for (path, file), near in zip(files.items(), about, strict=True):
        numbers = np.array([*file.lines], float)
        name = path.rpartition("/")[2]
        value = (
            WEIGHTS.about * np.log1p(near) + np.exp(-numbers / SCREEN) + focus.files.get(name, 0.0)
        )
        value -= np.log1p(calls - np.array([shown for _, shown in file.lines.values()]))
        value -= WEIGHTS.length * math.log(len(numbers) + 1)
        placed = np.zeros(len(numbers))
        for first, last in focus.places.get(name, ()):
            away = np.maximum(0, np.maximum(first - numbers, numbers - last))
            placed += np.exp(-away / NEARBY) / (1 + (last - first) / SCREEN)
        made[path] = value + WEIGHTS.placed * np.log1p(placed)
    return made


def worth_of_lines(text: str, file: KnownFile, values: Floats) -> tuple[float, ...]:
    """Returns what the lines of a result are worth in which a file stands, in whole or in part."""
    by_number = dict(zip(file.lines, np.exp(values).tolist(), strict=True))
    every = text.splitlines()
    found = [NUMBERED.match(line) for line in every]
    if sum(map(bool, found)) > len(every) / 2:
        return tuple(by_number.get(int(line[1]), 0.0) if line else 0.0 for line in found)
    by_text = {line: by_number[number] for number, (line, _) in file.lines.items()}
    return tuple(by_text.get(line, 0.0) for line in every)


def chosen_lines(
    files: Mapping[str, KnownFile],
    values: Mapping[str, Floats],
    count: Count,
    budget_tokens: int,
    said: Mapping[str, Container[str]],
) -> dict[str, str]:
    """Returns the lines of files that are worth most, as many as fit a budget, by paths.

    None that is `said` of one.

    A short line, or one that recurs in its file, goes with those around it.
    """
    every = list[tuple[float, str, int, str]]()
    for path, own in values.items():
        lines = files[path].lines
        is_said = False
        times = Counter(line for line, _ in lines.values())
        for value, (number, (line, _)) in zip(own.tolist(), lines.items(), strict=True):
            if len(line.strip()) > SAYS_SOMETHING and times[line] == 1:
                is_said = line in said.get(path, ())
            every += [] if is_said else [(value, path, number, line)]
    every.sort(reverse=True)

    def shown(most: int) -> dict[str, str]:
        chosen = defaultdict[str, list[str]](list)
        for _, path, number, line in sorted(every[:most], key=itemgetter(2)):
            chosen[path].append(f"{number}\t{line}\n")
        return {path: fences.as_data("".join(lines)) for path, lines in chosen.items()}

    def tokens(most: int) -> int:
        return sum(count(f"- {path}\n{text}") for path, text in shown(most).items())

    fitting = bisect_right(
        range(max(0, min(len(every), budget_tokens)) + 1), budget_tokens, key=tokens
    )
    return shown(max(0, fitting - 1))


def said_lines(text: str) -> frozenset[str]:
    """Returns the lines of a text, without the numbers that a tool has put in front of them."""
    return frozenset(
        found[2] if (found := NUMBERED.match(line)) else line for line in text.splitlines()
    )
