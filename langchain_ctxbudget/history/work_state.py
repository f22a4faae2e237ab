"""The work state of an agent.

What its calls before the cut have left behind, made from calls and results alone.

Nobody knows the tools beforehand: the kind of a call follows from its arguments, and the setting
`tool_kinds` says it where that is not enough. What a kind of tool notes and tells is its own
(`tool_kinds.py`).

A name is as likely to be used again as its past uses make it: the sum of `1 / (1 + age)` over them,
the age counted in calls (Anderson's law of memory), more for what a call was given than for what
was said. A result is one use that all its names share: one of three
files that a search found is likely to be opened, one of 300 names in a file is not.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

from langchain_ctxbudget.history import known_files, tool_kinds
from langchain_ctxbudget.history.extractive import PATTERNS
from langchain_ctxbudget.history.tool_kinds import (
    CHANGED,
    ENDS,
    FILES_READ,
    FinishedCall,
    Section,
    ToolUse,
)
from langchain_ctxbudget.history.work_notes import RECENT, SHORT, Outcome, WorkNotes
from langchain_ctxbudget.messages import (
    Count,
    cached_until_forgotten,
    clipped,
    fences,
    is_user,
    one_line,
)
from langchain_ctxbudget.settings import ToolKind
from langchain_ctxbudget.stores import SummaryLine

ERROR = Section("# Last error\n", 90.0, WorkNotes.error_lines)
NAMES = Section("# Names, with where they stand\n", 83.0)
CODE = Section("# Lines of these files, as last seen\n", 54.0)
SECTIONS_OF_NAMES = (CHANGED, FILES_READ, NAMES)
"""The sections of files and of other names."""

BELOW = "relative paths are below "
MOST_MESSAGES = 2_000
"""Messages that are read for the work state."""
MOST_NAMES = 2 * MOST_MESSAGES
"""Names that are remembered."""
LONG_PATH = SHORT // 2
"""A path of more characters is shown relative to the root, where there is one."""
LONGEST_TEXT = 60_000
"""Characters of a text that are read for names."""
NAME_LENGTHS = range(5, 160)
"""Characters of a name that is remembered."""


@dataclass(frozen=True, slots=True)
class WorkStatePolicy:
    """What the work state may cost, and what a use of a name counts.

    A use counts 1 in what somebody said; all names of a result share 1.
    """

    least_tokens: int = 800
    """Tokens that it may cost, beside a share of the budget."""
    more_share: float = 0.05
    """That share of the budget."""
    most_share: float = 0.25
    """The share of the budget that it may cost at most."""
    tokens_per_call: int = 80
    """Tokens that it may cost for each call."""
    facts_share: float = 0.25
    """The share of its tokens for error, tasks and commands; files and names get the rest."""
    given: float = 4.0
    """A use as a short argument of a call; all names of a long one share as much."""
    least_likely: float = 1 / 512
    """A name is told only if it is at least as likely to be used again as this says (measured: of
    those below it one in forty is, of the others one in five)."""
    label_characters: int = 40
    """Characters of a command that is told with the names in it."""
    most_names_of_call: int = 8
    """Names that are told to stand in the results of one command or tool: a long listing tells
    none of its names apart, and is there to be made again."""
    member: float = 0.1
    """The factor of a name that is the member of another one."""


POLICY = WorkStatePolicy()


def sections() -> tuple[Section, ...]:
    """Returns the sections of a work state in the order in which they stand."""
    of_kinds = [rules.section for rules in tool_kinds.KINDS if rules.section is not None]
    return (ERROR, *dict.fromkeys([*tool_kinds.FIRST_SECTIONS, *of_kinds]), NAMES, CODE)


def headings() -> frozenset[str]:
    """Returns the headings of a work state."""
    return frozenset(section.heading for section in sections())


@cached_until_forgotten(4_096)
def names_in(text: str) -> Mapping[str, int]:
    """Returns how often each name stands in a text: paths, symbols, hashes, ids, URLs."""
    names: list[str] = []
    # JSON writes line breaks as signs, which would begin the names behind them.
    plain = text[:LONGEST_TEXT].replace("\\n", "\n").replace("\\t", "\t")
    for word in PATTERNS.used_name.findall(plain):
        name = word.rstrip("./:-@~+").removeprefix("./")
        name = PATTERNS.line_number.sub(r"\1", name)
        if len(name) in NAME_LENGTHS and _looks_like_a_name(name):
            names.append(name)
    return Counter(names)


def _looks_like_a_name(word: str) -> bool:
    if PATTERNS.time.match(word):
        return False
    if word.startswith(".") and "/" not in word:  # a file such as `.env.json`, and not a field
        return PATTERNS.code.search(word) is not None
    if "/" in word or PATTERNS.suffix.search(word) or PATTERNS.symbol.search(word):
        return True
    return PATTERNS.mixed.match(word) is not None


def texts_of(value: object) -> Iterator[str]:
    """Yields all texts in an argument of a call, however deep."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from texts_of(item)
    elif isinstance(value, Sequence):
        for item in value:
            yield from texts_of(item)


def text_with_calls(messages: Iterable[BaseMessage]) -> str:
    """Returns all that messages say, with the arguments of their calls."""
    texts: list[str] = []
    for message in messages:
        texts.append(message.text)
        for call in getattr(message, "tool_calls", ()):
            texts += texts_of(call["args"])
    return "\n".join(texts)


@dataclass(frozen=True, slots=True)
class Home:
    """What a name stands in: a file, a command, or what the user says."""

    text: str
    is_file: bool = False
    is_call: bool = False
    """True if it is a command or a tool, and names stand in its results."""

    @classmethod
    def of(cls, use: ToolUse) -> "Home":
        """Returns what the names in a call and its result stand in."""
        if use.rules is tool_kinds.OTHER:
            return cls(use.call.tool, is_call=True)
        is_file = use.rules.is_about_files
        return cls(use.subject, is_file, is_call=not is_file)

    def label(self, root: str, times_of_base: Mapping[str, int]) -> str:
        """Returns how it is told.

        Args:
            root: The directory to which long paths are shown relative.
            times_of_base: How many files have each base name.
        """
        if not self.is_file:
            return clipped(one_line(self.text), POLICY.label_characters)
        base = _base_of(self.text)
        if times_of_base.get(base, 0) < 2:  # noqa: PLR2004 - one alone needs no folder
            return base
        return self.text.removeprefix(f"{root}/") if root else self.text


OF_USER = Home("said by the user")
SEEN_FILES = Home("files seen")


@dataclass(slots=True)
class WorkState(WorkNotes):
    """What tool calls have left behind, read message by message.

    Continue with a `copy` to keep this one unchanged.
    """

    kinds: Mapping[str, ToolKind] = field(default_factory=dict)
    """The kinds of the tools of which the application says it."""
    read_until: int = 0
    """The position behind the last message that was read."""
    uses: dict[str, tuple[tuple[int, float], ...]] = field(default_factory=dict)
    """The newest uses of every name: number of the call, weight."""
    homes: dict[str, Home] = field(default_factory=dict)
    """Where names stand; those that only an assistant has said stand nowhere."""
    _open: dict[str, ToolUse] = field(default_factory=dict)
    """Calls that wait for their results, by id."""

    def copy(self) -> "WorkState":
        """Returns one that can read on without changing this one."""
        return replace(
            self,
            uses=self.uses.copy(),
            homes=self.homes.copy(),
            files=self.files.copy(),
            outcomes={kind: ends.copy() for kind, ends in self.outcomes.items()},
            todos=self.todos.copy(),
            texts=self.texts.copy(),
            _open=self._open.copy(),
        )

    def read(self, messages: Iterable[tuple[int, BaseMessage]]) -> "WorkState":
        """Reads the next messages, which begin at `read_until`, with their positions."""
        for position, message in messages:
            self.read_until = position + 1
            if isinstance(message, ToolMessage):
                self._read_result(message)
                continue
            self._note_names(message.text, 1.0)
            if is_user(message):
                self._note_homes(message.text, OF_USER)
            if isinstance(message, AIMessage):
                for call in message.tool_calls:
                    self._read_call(call["id"] or "", call["name"], call["args"])
        if len(self.uses) > MOST_NAMES:
            likely = sorted(self.uses, key=self.activation)[-(MOST_NAMES // 2) :]
            self.uses = {name: self.uses[name] for name in likely}
            self.homes = {name: self.homes[name] for name in likely if name in self.homes}
        return self

    def _read_call(self, call_id: str, tool: str, args: Mapping[str, Any]) -> None:
        self.calls += 1
        use = ToolUse.of(tool, args, self.kinds)
        self._open[call_id] = use
        for text in texts_of(args):
            is_short = len(text) <= SHORT and "\n" not in text
            self._note_names(text, POLICY.given, shared=not is_short)
            self._note_homes(text, Home.of(use))

    def _note_homes(self, text: str, home: Home) -> None:
        """Notes that the names of a text stand somewhere; a file is told rather than a command."""
        for name in names_in(text):
            known = self.homes.get(name)
            is_itself = home.is_file and name == home.text
            is_better = known is None or home.is_file or not known.is_file
            if is_better and not is_itself:
                self.homes[name] = home

    def _note_names(self, text: str, weight: float, *, shared: bool = False) -> None:
        """Notes a use of each name of a text; all of them share the weight, or each one has it."""
        names = names_in(text)
        total = sum(names.values())
        for name, times in names.items():
            own_weight = weight * times / total if shared else weight
            newest_uses = self.uses.get(name, ())[1 - RECENT :]
            self.uses[name] = (*newest_uses, (self.calls, own_weight))

    def _read_result(self, result: ToolMessage) -> None:
        call = self._open.pop(result.tool_call_id, None)
        if call is not None:
            self._note_result(call.as_shown_by(result), result)
            self._note_homes(result.text, Home.of(call))
            for path, lines in _hits_in(result.text).items():
                self._note_homes("\n".join(lines), Home(path, is_file=True))
        self._note_names(result.text, 1.0, shared=True)

    def _note_result(self, use: ToolUse, result: ToolMessage) -> None:
        failure = use.rules.failure(result)
        if failure is not None:
            self.note_error(use.kind, use.subject, failure)
        use.rules.note(self, FinishedCall(use, result.text, failure))

    def activation(self, name: str) -> float:
        """Returns how likely a name is used again."""
        likely = sum(weight / (1 + self.calls - call) for call, weight in self.uses.get(name, ()))
        if PATTERNS.member.match(name):
            likely *= POLICY.member
        return likely

    def lines(
        self, count: Count, budget_tokens: int, said: str, turn: "TurnWorkState | None" = None
    ) -> list[SummaryLine]:
        """Returns the lines of the work state that fit a budget.

        What the prompt says already (`said`) is left out. Lines of files that were chosen for a
        turn have a budget of their own.
        """
        page = _Page(count, budget_tokens, said, self.read_until - 1)
        if turn is not None:
            page.left_tokens += turn.code_tokens
            for path, text in turn.code.items():
                page.add(CODE, path, text)
        kept_tokens = int(budget_tokens * (1 - POLICY.facts_share))
        for section in sections():
            for text in section.lines(self):
                page.add(section, text, kept_tokens=kept_tokens)
        self._add_names(page)

        lines: list[SummaryLine] = []
        for section, section_lines in page.lines.items():
            lines += _as_they_stand(section, section_lines)
        return lines

    def _add_names(self, page: "_Page") -> None:
        """Adds the names that are likely to be used again, the most likely first."""
        root = self._root()
        rows = _NameRows(page, root)
        times_of_base = Counter(map(_base_of, self.files))
        names_of_calls: Counter[Home] = Counter()
        for name in self._ranked_names():
            file = self.files.get(name)
            section = _section_of(file)
            is_said = _has(page.said, name, is_path=file is not None)
            if is_said and section != CHANGED:
                continue

            text = name
            if is_said and times_of_base[_base_of(name)] == 1:
                text = _base_of(name)
            if root and len(text) > LONG_PATH:
                text = text.removeprefix(f"{root}/")
            if section == CHANGED:
                text += f": {_state_of(self.files[name])}"
            label = ""
            if section == NAMES:
                home = self._home_to_tell(name)
                if home is None or names_of_calls[home] >= POLICY.most_names_of_call:
                    continue
                if home.is_call:
                    names_of_calls[home] += 1
                label = home.label(root, times_of_base)
            if not rows.add(section, text, label):
                break
        rows.write()

    def _home_to_tell(self, name: str) -> Home | None:
        """Returns what a name is told to stand in; None for one that is not told."""
        if self.activation(name) < POLICY.least_likely:
            return None
        return self._home_of(name)

    def _home_of(self, name: str) -> Home | None:
        """Returns what a name stands in; None where only an assistant has said it."""
        if "/" in name and PATTERNS.suffix.search(name):
            return SEEN_FILES
        return self.homes.get(name)

    def _ranked_names(self) -> list[str]:
        return sorted(self.uses, key=lambda name: (-self.activation(name), name))

    def _root(self) -> str:
        """Returns the directory to which long paths are shown relative.

        Where commands change to directories, it is one of these. Where several could be it, it is
        none: the empty text.
        """
        roots: Counter[str] = Counter()
        for path in self.uses:
            if len(path) > LONG_PATH and path.startswith("/"):
                roots.update(self._possible_roots(path))
        likely = {root for root, times in roots.items() if times > 1}
        visited = self._visited()
        if visited:
            likely &= visited
        return likely.pop() if len(likely) == 1 else ""

    def _visited(self) -> set[str]:
        """Returns the directories to which commands change."""
        folders: set[str] = set()
        for command in self.commands:
            folders.update(folder.rstrip("/") for folder in PATTERNS.changes_to.findall(command))
        return folders

    def _possible_roots(self, path: str) -> Iterator[str]:
        """Yields the directories above a path below which it is used as a relative path, too."""
        for at, sign in enumerate(path):
            if sign == "/":
                relative = path[at + 1 :]
                if "/" in relative and relative in self.uses:
                    yield path[:at]

    def worth(
        self, before: Sequence[BaseMessage], turn: Sequence[BaseMessage]
    ) -> dict[str, known_files.Floats]:
        """Returns how likely the next edits replace each line of the known files.

        It judges by the newest messages of the turn and of those before it.
        """
        answers = [message for message in turn if isinstance(message, AIMessage)]
        results = [message for message in turn if isinstance(message, ToolMessage)]
        focus = known_files.focus_of(
            text_with_calls(filter(is_user, turn)),
            text_with_calls([*filter(_is_talk, before)][-RECENT:]),
            text_with_calls(answers[-RECENT:]),
            [message.text[: 2 * ENDS] for message in results[-RECENT:]],
            "\n".join(title for title, _ in self.todos.values()),
        )
        return known_files.worth(self.texts, focus, self.calls)


@dataclass(slots=True)
class TurnWorkState:
    """The work state of a turn as it was when rounds of it gave way last.

    It is shown until rounds give way again.
    """

    state: WorkState
    code_tokens: int
    """Tokens that the lines of files may cost."""
    code: Mapping[str, str]
    """Lines of files, by path."""
    key: object = None
    """What `lines` were written for."""
    lines: list[SummaryLine] = field(default_factory=list)


@dataclass(slots=True)
class _Page:
    """Lines under their headings, as many as a budget has room for."""

    count: Count
    left_tokens: int
    said: str
    """What stands in the prompt already, and in these lines."""
    position: int
    """The position of the last message that they tell of."""
    lines: dict[Section, list[SummaryLine]] = field(
        default_factory=lambda: {section: [] for section in sections()}
    )

    def add(self, section: Section, text: str, more: str = "", kept_tokens: int = 0) -> bool:
        """Adds a line, and `more` lines below it, where that leaves at least `kept_tokens`."""
        lines = self.lines[section]
        line = f"- {fences.as_data(one_line(text))}\n{more}"
        cost = self.count(line)
        if not lines:
            cost += self.count(section.heading)
        if cost > self.left_tokens - kept_tokens:
            return False

        self.left_tokens -= cost
        self.said += line
        lines.append(
            SummaryLine(
                position=self.position,
                order=len(lines),
                heading=section.heading,
                text=line,
                value=section.value - len(lines) / 100,
            )
        )
        return True


class _NameRows:
    """Names of files, and other names with where they stand, that are to be added to a page."""

    def __init__(self, page: _Page, root: str) -> None:
        self.page = page
        self.rows: dict[str, tuple[Section, str]] = {}
        """The section of each name, and what it stands in, in the order in which they were added.

        Names of files stand in nothing."""
        count = page.count
        self.left_tokens = page.left_tokens
        for section in SECTIONS_OF_NAMES:
            self.left_tokens -= count(section.heading)
        if root:
            text = f"{BELOW}{root}"
            self.rows[text] = NAMES, ""
            self.left_tokens -= count(text)
        page.said += f"\n{root}"

    def add(self, section: Section, text: str, label: str = "") -> bool:
        """Adds a name, and removes those that it contains; returns False where no room is left.

        Args:
            section: Its section.
            text: The name.
            label: What it stands in.
        """
        is_told = (section, label) in self.rows.values()
        if _has(label, text, is_path=False):
            if is_told:
                return True
            text = label
        contained = self._names_within(text)
        cost = self.page.count(f", {text}")
        if label and not is_told:
            cost = self.page.count(f"- {label}\n" if text == label else f"- {label}: {text}\n")
        cost -= sum(self.page.count(f", {name}") for name in contained)
        if cost > self.left_tokens:
            return False

        self.left_tokens -= cost
        for name in contained:
            del self.rows[name]
        self.rows[text] = section, label
        self.page.said += f"\n{text}"
        return True

    def _names_within(self, text: str) -> set[str]:
        """Returns the names that a text contains as whole ones, but for those of files."""
        padded = f" {text} "
        ends = [at for at, sign in enumerate(padded) if not PATTERNS.name_goes_on.match(sign)]
        parts = (text[start : end - 1] for start, end in combinations(ends, 2))
        return {part for part in parts if part in self.rows and self.rows[part][0] == NAMES}

    def write(self) -> None:
        """Puts the names on the page, those that stand in one thing together.

        Of a line that does not fit, as many names stand there as do.
        """
        names_by_row: defaultdict[tuple[Section, str], list[str]] = defaultdict(list)
        for name, (section, label) in self.rows.items():
            names_by_row[section, label].append(name)
        for section in SECTIONS_OF_NAMES:
            for (its_section, label), names in names_by_row.items():
                if its_section == section:
                    self._write_row(section, label, names)

    def _write_row(self, section: Section, label: str, names: Sequence[str]) -> None:
        if not label:
            for first in range(0, len(names), RECENT):
                self._write_line(section, "", names[first : first + RECENT])
            return
        others = [name for name in names if name != label]
        if not self._write_line(section, f"{label}: ", others):
            self.page.add(section, label)

    def _write_line(self, section: Section, beginning: str, names: Sequence[str]) -> bool:
        """Puts as many names in a line as fit; returns False where none does."""
        for number in range(len(names), 0, -1):
            if self.page.add(section, beginning + ", ".join(names[:number])):
                return True
        return False


def _hits_in(text: str) -> Mapping[str, Sequence[str]]:
    """Returns the lines of the hits of a search that a text shows, by the files they stand in."""
    hits: defaultdict[str, list[str]] = defaultdict(list)
    for path, line in PATTERNS.hit.findall(text[:LONGEST_TEXT]):
        hits[path].append(line)
    return hits


def _as_they_stand(section: Section, lines: Sequence[SummaryLine]) -> list[SummaryLine]:
    """Returns lines of a section, of which the most important come first, as they stand there."""
    if not section.is_in_order_of_time:
        return list(lines)
    return [line.model_copy(update={"order": order}) for order, line in enumerate(reversed(lines))]


def _is_talk(message: BaseMessage) -> bool:
    return not isinstance(message, ToolMessage) and bool(message.text.strip())


def _base_of(path: str) -> str:
    return path.rpartition("/")[2]


def _section_of(file: Outcome | None) -> Section:
    """Returns the section of a name that is a file or none."""
    if file is None:
        return NAMES
    if file.verb != "read":
        return CHANGED
    if file.times:
        return FILES_READ
    return NAMES


def _state_of(file: Outcome) -> str:
    """Returns what was done to a file, and whether the last change failed."""
    states: list[str] = []
    if file.times > 1:
        states.append(f"{file.verb} {file.times} times")
    elif file.times:
        states.append(file.verb)
    if file.failed is not None:
        states.append(f"the last change failed ({file.failed})")
    return ", ".join(states)


def _has(text: str, name: str, *, is_path: bool) -> bool:
    """Returns True if a text contains a name that does not go on at either end."""
    goes_on = PATTERNS.path_goes_on if is_path else PATTERNS.name_goes_on
    at = text.find(name)
    while at >= 0:
        is_longer_before = at > 0 and goes_on.match(text, at - 1)
        if not is_longer_before and not goes_on.match(text, at + len(name)):
            return True
        at = text.find(name, at + 1)
    return False


def most_tokens(calls: int, budget_tokens: int) -> int:
    """Returns the most tokens for the work state of a number of calls.

    It grows only when the calls have doubled.
    """
    if not calls:
        return 0
    calls_floor = 1 << (calls.bit_length() - 1)
    return min(
        POLICY.least_tokens + int(budget_tokens * POLICY.more_share),
        int(budget_tokens * POLICY.most_share),
        POLICY.tokens_per_call * calls_floor,
    )
