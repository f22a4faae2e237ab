"""What tool calls have left behind: files and their texts, tasks, and how calls ended.

A kind of tool (`tool_kinds.py`) notes here what its calls have done, and tells it from here.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from langchain_ctxbudget.history import known_files, shell
from langchain_ctxbudget.history.extractive import PATTERNS
from langchain_ctxbudget.history.known_files import KnownFile
from langchain_ctxbudget.messages import clipped
from langchain_ctxbudget.settings import ToolKind
from langchain_ctxbudget.worker import keep_newest

RECENT = 8
"""The newest uses of a name, calls of a turn, texts before it, tasks and calls that count."""
SHORT = 120
"""Characters of an item that is listed, and of an argument that counts as short."""
MOST_OUTCOMES = 400
"""Calls of a kind whose ends are remembered."""

_TITLE_KEYS = ("content", "subject", "title", "step", "task", "text", "description", "name")
_DONE = frozenset(
    {"completed", "complete", "done", "cancelled", "canceled", "deleted", "closed", "true"}
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a file or a call stands."""

    verb: str
    """What was done last: `read`, `made`, `changed`, `run`."""
    times: int = 1
    """How often that succeeded."""
    failed: str | None = None
    """The line that says why the last try failed; None where it did not."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A call that failed."""

    kind: ToolKind
    subject: str
    """What it was about."""
    reason: str
    """The line that says why it failed."""


@dataclass(slots=True, kw_only=True)
class WorkNotes:
    """What calls have left behind, as the kinds of their tools noted it."""

    calls: int = 0
    """The number of calls that were read."""
    files: dict[str, Outcome] = field(default_factory=dict)
    outcomes: dict[ToolKind, dict[str, Outcome]] = field(default_factory=dict)
    """How the newest calls of each kind that lists them ended, the last one at the end."""
    todos: dict[str, tuple[str, str]] = field(default_factory=dict)
    """The titles and states of open tasks, by their ids."""
    error: Failure | None = None
    """What failed last."""
    done_since: tuple[shell.Command, ...] = ()
    """The commands that have succeeded since then."""
    texts: dict[str, KnownFile] = field(default_factory=dict)
    """The newest known texts of files, the one used last at the end."""

    @property
    def commands(self) -> Mapping[str, Outcome]:
        """How the newest commands ended, the last one at the end."""
        return self.outcomes.get("run", {})

    def outcome_of(self, kind: ToolKind, subject: str) -> Outcome | None:
        """Returns how a call of some kind, or a file, stands; None where that is not noted."""
        return self.outcomes.get(kind, self.files).get(subject)

    def note_outcome(self, kind: ToolKind, subject: str, failure: str | None) -> None:
        """Notes how a call ended."""
        outcomes = self.outcomes.setdefault(kind, {})
        keep_newest(outcomes, subject, Outcome("run", failed=failure), MOST_OUTCOMES)
        if failure is None and self.error is not None:
            commands = (*self.done_since, *shell.commands_in(subject))
            self.done_since = tuple(dict.fromkeys(commands))[-MOST_OUTCOMES:]

    def note_error(self, kind: ToolKind, subject: str, reason: str) -> None:
        """Notes what has failed, and why."""
        self.error = Failure(kind, subject, reason)
        self.done_since = ()

    def outcome_lines(self, kind: ToolKind) -> Iterator[str]:
        """Yields how the newest calls of a kind ended, each in a line, the newest first."""
        outcomes = self.outcomes.get(kind, {})
        for subject in list(reversed(outcomes))[:RECENT]:
            failure = outcomes[subject].failed
            ending = "no error"
            if failure is not None:
                ending = f"failed, {failure}"
            yield f"{clipped(subject, SHORT)}: {ending}"

    def note_read(self, path: str, failure: str | None) -> None:
        """Notes that a file was read; one that was changed stays so."""
        before = self.files.get(path)
        if before is None or before.verb == "read":
            self._note_file(path, "read", failure)

    def note_change(self, path: str, failure: str | None, *, is_whole: bool) -> None:
        """Notes that a file was changed, or made where all of it was written for the first time."""
        is_made = is_whole and path not in self.files
        self._note_file(path, "made" if is_made else "changed", failure)

    def _note_file(self, path: str, verb: str, failure: str | None) -> None:
        before = self.files.get(path)
        times = 0
        if before is not None and before.verb == verb:
            times = before.times
        if failure is None:
            times += 1
        self.files[path] = Outcome(verb, times, failure)

    def note_lines_read(
        self, path: str, result: str, args: Mapping[str, Any], subjects: Sequence[str]
    ) -> None:
        """Notes the lines of a file that a result shows, all of it or a part by the arguments."""
        file = self.texts.pop(path, None)
        lines: dict[int, tuple[str, int]] = {}
        if file is not None and known_files.reads_part(args, subjects):
            lines.update(file.lines)
        shown = known_files.read_lines(result, args, subjects)
        for number, line in shown.items():
            lines[number] = (line, self.calls)
        if shown:
            file = KnownFile(dict(sorted(lines.items())))
        self._keep_text(path, file)

    def note_text_written(self, path: str, args: Mapping[str, Any]) -> None:
        """Notes the text that a call writes as all of a file."""
        self.texts.pop(path, None)
        texts = [
            text
            for key, text in args.items()
            if isinstance(text, str) and known_files.NEW.match(key)
        ]
        lines = max(texts, key=len, default="").splitlines()
        file = KnownFile({number: (line, self.calls) for number, line in enumerate(lines, 1)})
        self._keep_text(path, file)

    def note_text_edited(self, path: str, args: Mapping[str, Any]) -> None:
        """Applies the edits of a call to the text of a file, where that is known."""
        file = self.texts.pop(path, None)
        if file is None:
            return
        for old, text, every in known_files.replacements(args):
            file = file.edited(old, text, self.calls, every=every)
        self._keep_text(path, file)

    def _keep_text(self, path: str, file: KnownFile | None) -> None:
        if file is not None and file.lines:
            keep_newest(self.texts, path, file, known_files.MOST_FILES)

    def note_task_list(self, tasks: Iterable[Mapping[str, Any]]) -> None:
        """Notes a list of tasks in place of all that were known, without those that are done."""
        self.todos = {}
        for number, task in enumerate(tasks):
            self._note_task(task, str(number))

    def note_one_task(self, task: Mapping[str, Any], result: str) -> None:
        """Notes a task that is made or changed, or forgets one that is done.

        The result may say the id of a task that was made.
        """
        created = PATTERNS.todo_made.search(result)
        self._note_task(task, created[1] if created else _title_of(task))

    def _note_task(self, task: Mapping[str, Any], default_id: str) -> None:
        task_id = _task_id_of(task, default_id)
        earlier_title, earlier_state = self.todos.pop(task_id, ("", "pending"))
        title = _title_of(task) or earlier_title
        state = str(task.get("status") or earlier_state)
        if title and state.casefold() not in _DONE:
            self.todos[task_id] = (title, state)

    def task_lines(self) -> Iterator[str]:
        """Yields open tasks, each in a line, those that are in progress first."""
        tasks = sorted(self.todos.values(), key=lambda task: task[1] != "in_progress")
        for title, state in tasks[:RECENT]:
            task = title[:SHORT]
            if state == "in_progress":
                task += " (in progress)"
            yield task

    def error_lines(self) -> Iterator[str]:
        """Yields a line that says what failed last, and whether it succeeded since."""
        if self.error is None:
            return
        error = self.error
        outcome = self.outcome_of(error.kind, error.subject)
        is_resolved = outcome is not None and outcome.failed is None
        if error.kind == "run":
            is_resolved |= shell.all_done(error.subject, self.done_since)
        state = "resolved since" if is_resolved else "not resolved yet"
        yield f"{error.subject[:SHORT]}: {error.reason} ({state})"


def _title_of(task: Mapping[str, Any]) -> str:
    for key in _TITLE_KEYS:
        if task.get(key):
            return str(task[key])
    return ""


def _task_id_of(task: Mapping[str, Any], default: str) -> str:
    for key, value in task.items():
        if PATTERNS.todo_id.match(key):
            return str(value)
    return default
