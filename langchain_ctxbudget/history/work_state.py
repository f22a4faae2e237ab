"""The work state of an agent.

What its calls before the cut have left behind, made from calls and results alone.

Nobody knows the tools beforehand: the kind of a call follows from its arguments, and `tool_kinds`
says it where that is not enough. A name is as likely to be used again as its past uses make it: the
sum of `1 / (1 + age)` over them, the age counted in calls (Anderson's law of memory), more for what
a call was given than for what was said. A result is one use that all its names share: one of three
files that a search found is likely to be opened, one of 300 names in a file is not.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

from langchain_ctxbudget.history import known_files
from langchain_ctxbudget.history.extractive import ENGLISH
from langchain_ctxbudget.history.known_files import KnownFile
from langchain_ctxbudget.history.tool_calls import CallArguments
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
from langchain_ctxbudget.worker import keep_newest

ERROR = "# Last error\n"
TODO = "# To do\n"
CHANGED = "# Files made or changed\n"
COMMANDS = "# Commands, the newest first\n"
READ = "# Files read\n"
NAMES = "# Names used\n"
CODE = "# Lines of these files, as last seen\n"

SECTION_VALUES = {
    ERROR: 90.0,
    TODO: 89.0,
    CHANGED: 85.0,
    COMMANDS: 76.0,
    READ: 84.0,
    NAMES: 83.0,
    CODE: 54.0,
}
"""The headings in the order in which they stand, and the values of their first lines, beside those
of the arc."""

BELOW = "relative paths are below "
MOST_MESSAGES = 2_000
"""Messages that are read for the work state."""
MOST_NAMES = 2 * MOST_MESSAGES
"""Names that are remembered."""
RECENT = 8
"""The newest uses of a name, calls of a turn, texts before it, tasks and commands that count."""
SHORT = 120
"""Characters of an item that is listed, and of an argument that counts as short."""
LONG_PATH = SHORT // 2
"""A path of more characters is shown relative to the root, where there is one."""
LONGEST_TEXT = 60_000
"""Characters of a text that are read for names."""
ENDS = 2_000
"""Characters at each end of a result that show how a command ended."""
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
    member: float = 0.1
    """The factor of a name that is the member of another one."""


POLICY = WorkStatePolicy()

_FILE_KINDS = ("read", "edit", "write")
_TITLE_KEYS = ("content", "subject", "title", "step", "task", "text", "description", "name")
_DONE = frozenset(
    {"completed", "complete", "done", "cancelled", "canceled", "deleted", "closed", "true"}
)


@cached_until_forgotten(4_096)
def names_in(text: str) -> Mapping[str, int]:
    """Returns how often each name stands in a text: paths, symbols, hashes, ids, URLs."""
    names: list[str] = []
    for word in ENGLISH.used_name.findall(text[:LONGEST_TEXT]):
        name = word.rstrip("./:-@~+").removeprefix("./")
        name = ENGLISH.line_number.sub(r"\1", name)
        if len(name) in NAME_LENGTHS and _looks_like_a_name(name):
            names.append(name)
    return Counter(names)


def _looks_like_a_name(word: str) -> bool:
    if ENGLISH.time.match(word):
        return False
    if "/" in word or ENGLISH.suffix.search(word) or ENGLISH.symbol.search(word):
        return True
    return ENGLISH.mixed.match(word) is not None


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
class ToolUse:
    """One call of a tool, as far as it tells of the work."""

    kind: ToolKind
    name: str
    """The name of the tool."""
    subjects: tuple[str, ...] = ()
    """The files that it is about, else the call in one line."""
    todos: tuple[Mapping[str, Any], ...] = ()
    """The tasks that it lists, makes or changes."""
    args: Mapping[str, Any] = field(default_factory=dict)
    """The arguments of a call that is about files or one task; of a command that shows or writes a
    file, those that a tool for files would have."""
    command: str = ""
    """The command that shows or writes a file."""

    @classmethod
    def of(cls, name: str, args: Mapping[str, Any], kinds: Mapping[str, ToolKind]) -> "ToolUse":
        """Reads a call by its arguments; `kinds` says what the application says of its tools."""
        call = CallArguments(name, args)
        guess = call.kind
        if guess == "run" and name not in kinds:
            file_args = known_files.shown_by(call.command)
            if file_args:
                return cls._of_file_command(name, call.command, file_args)
        kind = kinds.get(name, guess)
        if kind == "todo":
            if call.tasks:
                return cls(kind, name, todos=tuple(call.tasks))
            return cls(kind, name, todos=(args,), args=args)
        if kind in _FILE_KINDS:
            return cls(kind, name, call.files, args=args)
        return cls(kind, name, (call.summary,))

    @classmethod
    def _of_file_command(cls, name: str, command: str, file_args: Mapping[str, Any]) -> "ToolUse":
        kind: ToolKind = "write" if "content" in file_args else "read"
        return cls(kind, name, (file_args["path"],), args=file_args, command=one_line(command))

    def as_shown_by(self, result: ToolMessage) -> "ToolUse":
        """Returns the use as its result shows it.

        A command that failed to write a file is a command, and no write.
        """
        if self.kind != "write" or not self.command:
            return self
        # `tee` repeats the text that it writes.
        output = result.text.removeprefix(str(self.args.get("content")).rstrip())
        if result.status == "error" or ENGLISH.failed.search(output[: 2 * ENDS]):
            return ToolUse("run", self.name, (self.command,))
        return self


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a file or a command stands."""

    verb: str
    """What was done last: `read`, `made`, `changed`, `run`."""
    times: int = 1
    """How often that succeeded."""
    failed: str = ""
    """The line that says why the last try failed."""


@dataclass(slots=True)
class WorkState:
    """What tool calls have left behind, read message by message.

    Continue with a `copy` to keep this one unchanged.
    """

    kinds: Mapping[str, ToolKind] = field(default_factory=dict)
    """The kinds of the tools of which the application says it."""
    read_until: int = 0
    """The position behind the last message that was read."""
    calls: int = 0
    """The number of calls that were read."""
    uses: dict[str, tuple[tuple[int, float], ...]] = field(default_factory=dict)
    """The newest uses of every name: number of the call, weight."""
    files: dict[str, Outcome] = field(default_factory=dict)
    commands: dict[str, Outcome] = field(default_factory=dict)
    """The newest commands, the last one at the end."""
    todos: dict[str, tuple[str, str]] = field(default_factory=dict)
    """The titles and states of open tasks, by their ids."""
    error: tuple[str, str] | None = None
    """What failed last, and the line that says why."""
    texts: dict[str, KnownFile] = field(default_factory=dict)
    """The newest known texts of files, the one used last at the end."""
    _open: dict[str, ToolUse] = field(default_factory=dict)
    """Calls that wait for their results, by id."""

    def copy(self) -> "WorkState":
        """Returns one that can read on without changing this one."""
        return replace(
            self,
            uses=self.uses.copy(),
            files=self.files.copy(),
            commands=self.commands.copy(),
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
            if isinstance(message, AIMessage):
                for call in message.tool_calls:
                    self._read_call(call["id"] or "", call["name"], call["args"])
        if len(self.uses) > MOST_NAMES:
            likely = sorted(self.uses, key=self.activation)[-(MOST_NAMES // 2) :]
            self.uses = {name: self.uses[name] for name in likely}
        return self

    def _read_call(self, call_id: str, tool: str, args: Mapping[str, Any]) -> None:
        self.calls += 1
        self._open[call_id] = ToolUse.of(tool, args, self.kinds)
        for text in texts_of(args):
            is_short = len(text) <= SHORT and "\n" not in text
            self._note_names(text, POLICY.given, shared=not is_short)

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
        self._note_names(result.text, 1.0, shared=True)

    def _note_result(self, call: ToolUse, result: ToolMessage) -> None:
        subject = call.subjects[0] if call.subjects else call.name
        failure = _failure_of(call, result)
        if failure is not None:
            self.error = (subject, failure)

        if call.kind == "run":
            self._note_command(subject, failure)
        elif call.kind == "todo" and failure is None:
            self._note_tasks(call, result.text)
        elif call.kind in _FILE_KINDS:
            for path in call.subjects:
                self._note_file(path, call, failure)
                if failure is None:
                    self._note_text(path, call, result.text)

    def _note_command(self, command: str, failure: str | None) -> None:
        outcome = Outcome("run", failed=failure or "")
        keep_newest(self.commands, command, outcome, MOST_NAMES // 10)
        for path in ENGLISH.redirected.findall(command):
            self.texts.pop(path, None)

    def _note_file(self, path: str, call: ToolUse, failure: str | None) -> None:
        before = self.files.get(path)
        if call.kind == "read":
            if before is not None and before.verb != "read":
                return  # a file that was changed stays so when it is read
            verb = "read"
        else:
            verb = "made" if call.kind == "write" and before is None else "changed"
        times = 0
        if before is not None and before.verb == verb:
            times = before.times
        if failure is None:
            times += 1
        self.files[path] = Outcome(verb, times, failure or "")

    def _note_tasks(self, call: ToolUse, result: str) -> None:
        """Notes a list of tasks, or one that is made or changed; forgets those that are done."""
        is_list = not call.args
        if is_list:
            self.todos = {}
        created = ENGLISH.todo_made.search(result)
        for number, item in enumerate(call.todos):
            title = _title_of(item)
            default_id = str(number) if is_list else title
            if created and not is_list:
                default_id = created[1]
            task_id = _task_id_of(item, default_id)

            earlier_title, earlier_state = self.todos.pop(task_id, ("", "pending"))
            title = title or earlier_title
            state = str(item.get("status") or earlier_state)
            if title and state.casefold() not in _DONE:
                self.todos[task_id] = (title, state)

    def _note_text(self, path: str, call: ToolUse, result: str) -> None:
        """Notes what a call shows or makes of the text of a file."""
        file = self.texts.pop(path, None)
        if call.kind == "read":
            file = self._file_as_read(file, call, result)
        elif call.kind == "write":
            file = self._file_as_written(call)
        elif file is not None:
            for old, text, every in known_files.replacements(call.args):
                file = file.edited(old, text, self.calls, every=every)
        if file is not None and file.lines:
            keep_newest(self.texts, path, file, known_files.MOST_FILES)

    def _file_as_read(self, file: KnownFile | None, call: ToolUse, result: str) -> KnownFile | None:
        shown = known_files.read_lines(result, call.args, call.subjects)
        if not shown:
            return file
        lines: dict[int, tuple[str, int]] = {}
        if file is not None and known_files.reads_part(call.args, call.subjects):
            lines.update(file.lines)
        for number, line in shown.items():
            lines[number] = (line, self.calls)
        return KnownFile(dict(sorted(lines.items())))

    def _file_as_written(self, call: ToolUse) -> KnownFile:
        texts = [
            text
            for key, text in call.args.items()
            if isinstance(text, str) and known_files.NEW.match(key)
        ]
        lines = max(texts, key=len, default="").splitlines()
        return KnownFile({number: (line, self.calls) for number, line in enumerate(lines, 1)})

    def activation(self, name: str) -> float:
        """Returns how likely a name is used again."""
        likely = sum(weight / (1 + self.calls - call) for call, weight in self.uses.get(name, ()))
        if ENGLISH.member.match(name):
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
        for heading, text in self._facts():
            page.add(heading, text, kept_tokens=kept_tokens)
        self._add_names(page)

        lines: list[SummaryLine] = []
        for section in page.sections.values():
            lines += section
        return lines

    def _facts(self) -> Iterator[tuple[str, str]]:
        """Yields the last error, open tasks and the newest commands, each behind its heading."""
        if self.error is not None:
            subject, failure = self.error
            outcome = self.commands.get(subject) or self.files.get(subject)
            is_resolved = outcome is not None and not outcome.failed
            state = "resolved since" if is_resolved else "not resolved yet"
            yield ERROR, f"{subject[:SHORT]}: {failure} ({state})"

        tasks = sorted(self.todos.values(), key=lambda task: task[1] != "in_progress")
        for title, state in tasks[:RECENT]:
            task = title[:SHORT]
            if state == "in_progress":
                task += " (in progress)"
            yield TODO, task

        for command in list(reversed(self.commands))[:RECENT]:
            failure = self.commands[command].failed
            ending = "no error"
            if failure:
                ending = f"failed, {failure}"
            yield COMMANDS, f"{clipped(command, SHORT)}: {ending}"

    def _add_names(self, page: "_Page") -> None:
        """Adds the names that are likely to be used again, the most likely first."""
        root = self._root()
        rows = _NameRows(page, root)
        times_of_base = Counter(map(_base_of, self.files))
        for name in self._ranked_names():
            file = self.files.get(name)
            heading = _heading_of(file)
            is_said = _has(page.said, name, is_path=file is not None)
            if is_said and heading != CHANGED:
                continue

            text = name
            if is_said and times_of_base[_base_of(name)] == 1:
                text = _base_of(name)
            if root and len(text) > LONG_PATH:
                text = text.removeprefix(f"{root}/")
            if heading == CHANGED:
                text += f": {_state_of(self.files[name])}"
            if not rows.add(heading, text):
                break
        rows.write()

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
            folders.update(folder.rstrip("/") for folder in ENGLISH.changes_to.findall(command))
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
    sections: dict[str, list[SummaryLine]] = field(
        default_factory=lambda: {heading: [] for heading in SECTION_VALUES}
    )

    def add(self, heading: str, text: str, more: str = "", kept_tokens: int = 0) -> bool:
        """Adds a line, and `more` lines below it, where that leaves at least `kept_tokens`."""
        section = self.sections[heading]
        line = f"- {fences.as_data(one_line(text))}\n{more}"
        cost = self.count(line)
        if not section:
            cost += self.count(heading)
        if cost > self.left_tokens - kept_tokens:
            return False

        self.left_tokens -= cost
        self.said += line
        section.append(
            SummaryLine(
                position=self.position,
                order=len(section),
                heading=heading,
                text=line,
                value=SECTION_VALUES[heading] - len(section) / 100,
            )
        )
        return True


class _NameRows:
    """Names of files and other names that are to be added to a page, several in a line."""

    def __init__(self, page: _Page, root: str) -> None:
        self.page = page
        self.headings: dict[str, str] = {}
        """The heading of each name, in the order in which they were added."""
        count = page.count
        self.left_tokens = page.left_tokens - count(CHANGED) - count(READ) - count(NAMES)
        if root:
            text = f"{BELOW}{root}"
            self.headings[text] = NAMES
            self.left_tokens -= count(text)
        page.said += f"\n{root}"

    def add(self, heading: str, text: str) -> bool:
        """Adds a name, and removes those that it contains; returns False where no room is left."""
        contained = self._names_within(text)
        self.left_tokens -= self.page.count(f", {text}")
        for name in contained:
            self.left_tokens += self.page.count(f", {name}")
        if self.left_tokens < 0:
            return False

        for name in contained:
            del self.headings[name]
        self.headings[text] = heading
        self.page.said += f"\n{text}"
        return True

    def _names_within(self, text: str) -> set[str]:
        """Returns the names that a text contains as whole ones, but for those of files."""
        padded = f" {text} "
        ends = [at for at, sign in enumerate(padded) if not ENGLISH.name_goes_on.match(sign)]
        parts = (text[start : end - 1] for start, end in combinations(ends, 2))
        return {part for part in parts if self.headings.get(part) == NAMES}

    def write(self) -> None:
        """Puts the names on the page; of a line that does not fit, as many as do."""
        for heading in (CHANGED, READ, NAMES):
            names = [name for name, of_heading in self.headings.items() if of_heading == heading]
            for first in range(0, len(names), RECENT):
                row = names[first : first + RECENT]
                while row and not self.page.add(heading, ", ".join(row)):
                    row.pop()


def _failure_of(call: ToolUse, result: ToolMessage) -> str | None:
    """Returns the line that says why a call failed; None where it did not."""
    text = result.text
    is_of_file = call.kind in _FILE_KINDS
    pattern = ENGLISH.refused if is_of_file else ENGLISH.failed
    found = pattern.search(_ends_of(text))
    # What a search finds, and what a task is called, may look like an error.
    may_tell = call.kind not in ("search", "todo")
    if result.status != "error" and not (found and may_tell):
        return None
    if found is None or is_of_file:
        return clipped(text[:SHORT], SHORT)
    return clipped(found.group(), SHORT)


def _ends_of(text: str) -> str:
    if len(text) <= 2 * ENDS:
        return text
    return f"{text[:ENDS]}\n{text[-ENDS:]}"


def _is_talk(message: BaseMessage) -> bool:
    return not isinstance(message, ToolMessage) and bool(message.text.strip())


def _title_of(task: Mapping[str, Any]) -> str:
    for key in _TITLE_KEYS:
        if task.get(key):
            return str(task[key])
    return ""


def _task_id_of(task: Mapping[str, Any], default: str) -> str:
    for key, value in task.items():
        if ENGLISH.todo_id.match(key):
            return str(value)
    return default


def _base_of(path: str) -> str:
    return path.rpartition("/")[2]


def _heading_of(file: Outcome | None) -> str:
    """Returns the heading below which a name stands that is a file or none."""
    if file is None:
        return NAMES
    if file.verb != "read":
        return CHANGED
    if file.times:
        return READ
    return NAMES


def _state_of(file: Outcome) -> str:
    """Returns what was done to a file, and whether the last change failed."""
    states: list[str] = []
    if file.times > 1:
        states.append(f"{file.verb} {file.times} times")
    elif file.times:
        states.append(file.verb)
    if file.failed:
        states.append(f"the last change failed ({file.failed})")
    return ", ".join(states)


def _has(text: str, name: str, *, is_path: bool) -> bool:
    """Returns True if a text contains a name that does not go on at either end."""
    goes_on = ENGLISH.path_goes_on if is_path else ENGLISH.name_goes_on
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
