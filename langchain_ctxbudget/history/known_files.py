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
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from langchain_ctxbudget.messages import Count, cached_until_forgotten, fences

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
"""A line behind the number that a tool has put in front of it."""
PADDING = re.compile(r"(?m)^ +(?=\d+[→\t|])")
_FILE = re.compile(r"(?<![\w.-])[\w.-]+\.[A-Za-z]\w{0,4}\b")
_PLACE = re.compile(r"(?:[:#(]L?|\blines? ~?)(\d{1,5})(?:\s*[-\u2013]\s*(\d{1,5}))?")

# Arguments of tools, by their names: the first line of a part, and its length or end.
_FROM = re.compile(r"(?i)offset|start|from|line|range")
_LENGTH = re.compile(r"(?i)limit|count|length|size|end$|^(?:num|max|head|end|to)")
_NO_PART = re.compile(
    r"(?i)^(?:encoding|description|explanation|reason(?:ing)?|thoughts?|command|action)$"
)
OLD = re.compile(r"(?i)^old|^(?:search|find|target)(?:_(?:text|str|string))?$")
"""The name of an argument with the text that an edit replaces."""
NEW = re.compile(
    r"(?i)^new|^(?:contents?|text|file_text|body|data|replace(?!_?all)\w*|insert_text)$"
)
"""The name of an argument with the text that stands in a file behind an edit."""
_EVERY = re.compile(r"(?i)^(?:replace_?)?all$|^allow_?multiple$|^expected_replacements$")

# Texts to search and replace, as they stand in a reply; hunks of a patch.
_SEARCH_MARK = r"[<-]{5,} ?SEARCH\n"
_MIDDLE_MARK = r"={5,}\n"
_REPLACE_MARK = r"[>+]{5,} ?REPLACE"
_OLD_LINES = rf"((?:(?!{_SEARCH_MARK}|{_MIDDLE_MARK}).*\n)*)"
_NEW_LINES = rf"((?:(?!{_SEARCH_MARK}|{_REPLACE_MARK}).*\n)*)"
_REPLACEMENTS = re.compile(
    rf"(?m)^{_SEARCH_MARK}{_OLD_LINES}{_MIDDLE_MARK}{_NEW_LINES}{_REPLACE_MARK}"
)
_BETWEEN_HUNKS = re.compile(r"(?m)^(?:@@|\*\*\*|---|\+\+\+|diff ).*\n?")

# Commands that show a file, or write one.
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
        """Returns it with a text replaced, where that is known: once, or within every line.

        The lines behind it move.
        """
        if every and old and "\n" not in old + new:
            return self._edited_within_lines(old, new, call)
        whole = "".join(f"{line}\n" for line, _ in self.lines.values())
        begin = whole.find(old) if old else -1
        if begin < 0:
            return self

        # The text is replaced together with the beginning and end of its first and last line.
        ends_line = old.endswith("\n")
        end = begin + len(old)
        if ends_line:
            end -= 1
            new = new.removesuffix("\n")
        first = whole.count("\n", 0, begin)
        last = whole.count("\n", 0, end)
        before = whole[whole.rfind("\n", 0, begin) + 1 : begin]
        behind = whole[end : whole.index("\n", end)]
        text = before + new + behind
        is_deletion = ends_line and not text
        new_lines = [] if is_deletion else text.split("\n")
        return self._with_lines(first, last, new_lines, call)

    def _with_lines(self, first: int, last: int, new_lines: list[str], call: int) -> "KnownFile":
        """Returns it with new lines in place of some known ones, which are counted from 0."""
        numbers = [*self.lines]
        moved = len(new_lines) - (last - first + 1)
        lines = {number: self.lines[number] for number in numbers[:first]}
        for number, line in enumerate(new_lines, numbers[first]):
            lines[number] = (line, call)
        for number in numbers[last + 1 :]:
            lines[number + moved] = self.lines[number]
        return KnownFile(lines)

    def _edited_within_lines(self, old: str, new: str, call: int) -> "KnownFile":
        lines = dict(self.lines)
        for number, (line, _) in self.lines.items():
            edited = line.replace(old, new)
            if edited != line:
                lines[number] = (edited, call)
        return KnownFile(lines)


def read_lines(text: str, args: Mapping[str, Any], paths: Sequence[str]) -> dict[int, str]:
    """Returns the lines of a result by the numbers that the tool gives them, else by counting.

    Nothing where the result is a part that may stand anywhere in its file.
    """
    rows = text[:LONGEST_FILE].splitlines()
    numbered = _numbered_lines(rows)
    if len(numbered) > len(rows) / 2:
        return numbered
    without_lengths = {key: value for key, value in args.items() if not _LENGTH.search(key)}
    first = _first_line(without_lengths)
    if first is None and reads_part(without_lengths, paths):
        return {}
    return dict(enumerate(rows, max(1, first or 1)))


def _numbered_lines(rows: Iterable[str]) -> dict[int, str]:
    """Returns the rows that begin with numbers which rise, without these, by number."""
    lines: dict[int, str] = {}
    last = -1
    for row in rows:
        match = NUMBERED.match(row)
        if match and int(match[1]) > last:
            last = int(match[1])
            lines[last] = match[2]
    return lines


def _first_line(args: Mapping[str, Any]) -> int | None:
    """Returns the number of the first line that a call asks for; None where it names none."""
    for key, value in args.items():
        if _FROM.search(key):
            number = re.match(r"\[?'?(\d{1,9})\b", str(value))
            if number:
                return int(number[1])
    return None


def reads_part(args: Mapping[str, Any], paths: Sequence[str]) -> bool:
    """Returns True if a call may read a part of its files: it has more than paths and switches."""
    for key, value in args.items():
        is_nothing = isinstance(value, bool) or value in (None, "", *paths)
        if not is_nothing and not _NO_PART.match(key):
            return True
    return False


def shown_by(command: str) -> dict[str, Any]:
    """Returns the arguments that a tool would have for what a command shows or writes.

    None for a command that does neither.
    """
    writing = _WRITES.fullmatch(command.strip())
    if writing:
        return {"path": writing[1], "content": writing[4]}
    showing = _SHOWS.fullmatch(command.strip())
    if not showing:
        return {}
    whole, first, path, first_behind_pipe = showing.groups()
    if whole is not None and "|" not in command:
        return {"path": path}
    return {"path": path, "start": int(first or first_behind_pipe or 1)}


def replacements(args: object) -> Iterator[tuple[str, str, bool]]:
    """Yields the old and new texts of an edit, and whether it is of every occurrence.

    They are told by the names of arguments, as hunks of a patch, or as texts to search and replace.
    """
    if isinstance(args, str):
        yield from _replacements_in(args)
    elif isinstance(args, list):
        for item in args:
            yield from replacements(item)
    elif isinstance(args, Mapping):
        old = _first_text(args, OLD)
        if old is not None:
            yield old, _first_text(args, NEW) or "", _is_of_every_occurrence(args)
            return
        for value in args.values():
            yield from replacements(value)


def _first_text(args: Mapping[str, Any], name: re.Pattern[str]) -> str | None:
    for key, value in args.items():
        if isinstance(value, str) and name.search(key):
            return value
    return None


def _is_of_every_occurrence(args: Mapping[str, Any]) -> bool:
    for key, value in args.items():
        is_false = str(value or "false").lower() == "false"
        if not is_false and _EVERY.match(key):
            return True
    return False


def _replacements_in(text: str) -> Iterator[tuple[str, str, bool]]:
    pairs = _REPLACEMENTS.findall(text)
    if pairs:
        for old, new in pairs:
            yield old, new, False
    elif "\n" in text:
        for hunk in _BETWEEN_HUNKS.split(text):
            old = _lines_signed(" -", hunk)
            new = _lines_signed(" +", hunk)
            if old and old != new:
                yield old, new, False


def _lines_signed(signs: str, hunk: str) -> str:
    """Returns the lines of a hunk that begin with one of two signs, or are empty, without it."""
    return "\n".join(line[1:] for line in hunk.splitlines() if line[:1] in signs)


@dataclass(frozen=True, slots=True)
class Focus:
    """The identifiers, files and lines of files that recent messages name."""

    words: Mapping[str, int] = field(default_factory=dict)
    """Identifiers, with the number of kinds of texts that have them."""
    files: Mapping[str, float] = field(default_factory=dict)
    """Names of files without folders, with what a name is worth."""
    places: Mapping[str, Sequence[tuple[int, int]]] = field(default_factory=dict)
    """First and last lines that are named of a file, by its name without folders."""


def focus_of(
    questions: str, earlier: str, answers: str, results: Iterable[str], tasks: str
) -> Focus:
    """Returns what a turn is about.

    It reads the words of the user, those before the turn, the assistant's words and calls, results,
    and open tasks.
    """
    places: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
    for text in (questions, earlier, answers, *results):
        for name, first, last in _places(text):
            places[name].append((first, last))
    words: Counter[str] = Counter()
    for text in (questions, earlier, answers, tasks):
        words.update(identifiers(text))
    files = dict.fromkeys(_FILE.findall(f"{earlier}\n{tasks}"), WEIGHTS.named / 2)
    files |= dict.fromkeys(_FILE.findall(questions), WEIGHTS.named)
    return Focus(words, files, places)


@cached_until_forgotten(4_096)
def _places(text: str) -> list[tuple[str, int, int]]:
    """Returns lines that a text names, each with the file that is named last before it."""
    places = list[tuple[str, int, int]]()
    last_file = ""
    rows_since = 0
    for row in text.splitlines():
        files = [*_FILE.finditer(row[:LONGEST_LINE])]
        rows_since += 1
        if rows_since > NEARBY:
            last_file = ""
        for place in _PLACE.finditer(row[:LONGEST_LINE]):
            name = _file_before(place, files) if files else last_file
            if name:
                first = int(place[1])
                places.append((name, first, max(first, int(place[2] or first))))
        if files:
            last_file = files[-1][0]
            rows_since = 0
    return places


def _file_before(place: re.Match[str], files: Sequence[re.Match[str]]) -> str:
    """Returns the last file that a row names before a place; the empty text where there is none."""
    for file in reversed(files):
        if file.start() < place.start():
            return file[0]
    return ""


@cached_until_forgotten(65_536)
def identifiers(text: str) -> frozenset[str]:
    """Returns the compound names of a text: with an underscore, a digit or a capital within."""
    return frozenset(word for word in _IDENTIFIER.findall(text) if _COMPOUND.search(word))


def worth(files: Mapping[str, KnownFile], focus: Focus, calls: int) -> dict[str, Floats]:
    """Returns how likely the next edits replace each line of some files, as logarithms."""
    talk_of = _talk_near_lines(files, focus)
    values: dict[str, Floats] = {}
    for path, file in files.items():
        name = path.rpartition("/")[2]
        numbers = np.array([*file.lines], float)
        shown = np.array([call for _, call in file.lines.values()])
        value = WEIGHTS.about * np.log1p(talk_of[path])
        value += np.exp(-numbers / SCREEN)
        value += focus.files.get(name, 0.0)
        value -= np.log1p(calls - shown)
        value -= WEIGHTS.length * math.log(len(numbers) + 1)
        named = _times_named(numbers, focus.places.get(name, ()))
        values[path] = value + WEIGHTS.placed * np.log1p(named)
    return values


def _talk_near_lines(files: Mapping[str, KnownFile], focus: Focus) -> dict[str, Floats]:
    """Returns how much of what the talk names stands near each line, the more the rarer."""
    names_of: dict[str, list[frozenset[str]]] = {}
    lines_with: Counter[str] = Counter()
    words = frozenset(focus.words)
    for path, file in files.items():
        names_of[path] = [names & words for names in file.names]
        for names in names_of[path]:
            lines_with.update(names)
    total = sum(len(file.lines) for file in files.values())
    weights = {
        name: focus.words[name] * math.log(total / lines) for name, lines in lines_with.items()
    }

    kernel = 1 - abs(np.arange(-NEARBY, NEARBY + 1)) / (NEARBY + 1)
    talk_of: dict[str, Floats] = {}
    for path, names_of_lines in names_of.items():
        talk = [math.fsum(map(weights.__getitem__, names)) for names in names_of_lines]
        talk_of[path] = np.convolve(talk, kernel)[NEARBY : NEARBY + len(talk)]
    return talk_of


def _times_named(numbers: Floats, places: Iterable[tuple[int, int]]) -> Floats:
    """Returns how often each line is named by its number; less near a place, and in a large one."""
    times = np.zeros(len(numbers))
    for first, last in places:
        away = np.maximum(0, np.maximum(first - numbers, numbers - last))
        times += np.exp(-away / NEARBY) / (1 + (last - first) / SCREEN)
    return times


def worth_of_lines(text: str, file: KnownFile, values: Floats) -> tuple[float, ...]:
    """Returns what the lines of a result are worth that shows a file, in whole or in part."""
    by_number = dict(zip(file.lines, np.exp(values).tolist(), strict=True))
    rows = text.splitlines()
    matches = [NUMBERED.match(row) for row in rows]
    if sum(map(bool, matches)) > len(rows) / 2:
        return tuple(by_number.get(int(match[1]), 0.0) if match else 0.0 for match in matches)
    by_text = {line: by_number[number] for number, (line, _) in file.lines.items()}
    return tuple(by_text.get(row, 0.0) for row in rows)


class _RankedLine(NamedTuple):
    """A line of a file that may be shown; compared by its value first."""

    value: float
    path: str
    number: int
    text: str


def chosen_lines(
    files: Mapping[str, KnownFile],
    values: Mapping[str, Floats],
    count: Count,
    budget_tokens: int,
    said: Mapping[str, Container[str]],
) -> dict[str, str]:
    """Returns the lines of files that are worth most, as many as fit a budget, by paths.

    None that the prompt shows of a file already (`said`). A short line, or one that recurs in its
    file, goes with those around it.
    """
    ranked: list[_RankedLine] = []
    for path, values_of_lines in values.items():
        ranked += _unsaid_lines(path, files[path], values_of_lines, said.get(path, ()))
    ranked.sort(reverse=True)

    def first_lines(most: int) -> dict[str, str]:
        rows_of = defaultdict[str, list[str]](list)
        for line in sorted(ranked[:most], key=attrgetter("number")):
            rows_of[line.path].append(f"{line.number}\t{line.text}\n")
        return {path: fences.as_data("".join(rows)) for path, rows in rows_of.items()}

    def tokens_of(most: int) -> int:
        return sum(count(f"- {path}\n{text}") for path, text in first_lines(most).items())

    most = max(0, min(len(ranked), budget_tokens))
    fitting = bisect_right(range(most + 1), budget_tokens, key=tokens_of)
    return first_lines(max(0, fitting - 1))


def _unsaid_lines(
    path: str, file: KnownFile, values: Floats, said: Container[str]
) -> Iterator[_RankedLine]:
    times = Counter(line for line, _ in file.lines.values())
    is_said = False
    for value, (number, (line, _)) in zip(values.tolist(), file.lines.items(), strict=True):
        if len(line.strip()) > SAYS_SOMETHING and times[line] == 1:
            is_said = line in said
        if not is_said:
            yield _RankedLine(value, path, number, line)


def said_lines(text: str) -> frozenset[str]:
    """Returns the lines of a text, without the numbers that a tool has put in front of them."""
    lines: list[str] = []
    for row in text.splitlines():
        match = NUMBERED.match(row)
        lines.append(match[2] if match else row)
    return frozenset(lines)
