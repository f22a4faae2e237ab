"""The kinds of tools, each with all that the work state and stale results need to know of it.

Nobody knows the tools beforehand: a call is of the first kind in `KINDS` that fits its arguments,
where the application does not say it. Whoever adds a kind adds its object to `KINDS` and its name
to `ToolKind` in the settings; what tells its calls by their arguments stands in `tool_calls.py`,
with its patterns in `history_patterns.toml`.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from langchain_core.messages import ToolMessage

from langchain_ctxbudget.history import known_files
from langchain_ctxbudget.history.extractive import PATTERNS
from langchain_ctxbudget.history.tool_calls import CallArguments
from langchain_ctxbudget.history.work_notes import SHORT, WorkNotes
from langchain_ctxbudget.messages import clipped, one_line
from langchain_ctxbudget.settings import ToolKind

ENDS = 2_000
"""Characters at each end of a result that show how a command ended."""
NO_MESSAGE = "an error without a message"
"""The words for a failure whose result says nothing."""

Key = tuple[str, ...]
"""Names what a call looks at or does: a file by its path, or a tool with its arguments."""
PLAN: Key = ("",)
"""The key of the list of tasks, of which an agent has one."""


# One call


@dataclass(frozen=True, slots=True)
class ToolUse:
    """One call of a tool, as far as it tells of the work."""

    rules: "ToolKindRules"
    """The rules of its kind."""
    call: CallArguments
    """The call as it was made."""
    subjects: tuple[str, ...]
    """The files that it is about, or the call in one line; tasks have none."""
    args: Mapping[str, Any]
    """Its arguments; of a command that shows or writes a file, those that a tool for files would
    have."""
    command: str = ""
    """The command that shows or writes a file."""

    @classmethod
    def of(cls, name: str, args: Mapping[str, Any], kinds: Mapping[str, ToolKind]) -> "ToolUse":
        """Reads a call by its arguments; `kinds` says what the application says of its tools."""
        call = CallArguments(name, args)
        if name in kinds:
            rules = rules_of(kinds[name])
            return cls(rules, call, rules.subjects(call), args)
        rules = next(rules for rules in KINDS if rules.fits(call))
        if rules is RUN:
            file_args = known_files.shown_by(call.command)
            if file_args:
                rules = WRITE if "content" in file_args else READ
                return cls(rules, call, (file_args["path"],), file_args, one_line(call.command))
        return cls(rules, call, rules.subjects(call), args)

    @property
    def kind(self) -> ToolKind:
        """The kind of the call."""
        return self.rules.kind

    @property
    def subject(self) -> str:
        """What the call is about first: a file or the call in one line, else the tool."""
        return self.subjects[0] if self.subjects else self.call.tool

    def as_shown_by(self, result: ToolMessage) -> "ToolUse":
        """Returns the use as its result shows it.

        A command that failed to write a file is a command, and no write.
        """
        if self.rules is not WRITE or not self.command:
            return self
        # `tee` repeats the text that it writes.
        output = result.text.removeprefix(str(self.args.get("content")).rstrip())
        if result.status == "error" or PATTERNS.failed.search(output[: 2 * ENDS]):
            return ToolUse(RUN, self.call, (self.command,), self.call.args)
        return self


@dataclass(frozen=True, slots=True)
class FinishedCall:
    """One call of a tool with its result."""

    use: ToolUse
    text: str
    """The text of the result."""
    failure: str | None
    """The line that says why the call failed; None where it did not."""


# What a kind of tool is


@dataclass(frozen=True, slots=True)
class Section:
    """A heading of the work state, and what stands below it."""

    heading: str
    value: float
    """The value of its first line, beside those of the arc: what is worth less gives way first."""
    lines: Callable[[WorkNotes], Iterable[str]] = lambda _: ()
    """Returns what stands below it; files are told among the names that are used instead."""
    is_in_order_of_time: bool = False
    """True if its lines, of which the newest come first where there is little room, stand in order
    of time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Staleness:
    """When a call makes an older result stale, and the words for it."""

    done_again: str
    """What the later call did: `read again`."""
    replaces: Callable[[ToolUse], list[Key]]
    """Returns what a call shows or does anew."""
    looks_at: Callable[[ToolUse], list[Key]]
    """Returns what a later call must show or do to make the result of this one stale."""
    needs_success: bool = False
    """True if a call neither makes results stale nor becomes so where its result tells a failure.
    No call does whose result is marked as an error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolKindRules:
    """All that is particular to one kind of tool."""

    kind: ToolKind
    fits: Callable[[CallArguments], bool]
    """Tells if a call is of this kind, where no kind before it in `KINDS` fits."""
    subjects: Callable[[CallArguments], tuple[str, ...]]
    """Returns the files that a call is about, or the call in one line."""
    failure: Callable[[ToolMessage], str | None]
    """Returns the line of a result that says why the call failed; None where it did not."""
    note: Callable[[WorkNotes, FinishedCall], None]
    """Notes what a call has done."""
    section: Section | None
    """Where that is told; None where it is not."""
    staleness: Staleness | None
    """What makes results stale; None where calls of this kind neither make nor become so."""
    shows_files: bool = False
    """True if its results show files, unless they refuse to."""
    is_about_files: bool = False
    """True if its subjects are files."""


# What calls are about, and how they fail


def _summary(call: CallArguments) -> tuple[str, ...]:
    return (call.summary,)


def _files(call: CallArguments) -> tuple[str, ...]:
    return call.files


def shown_failure(result: ToolMessage) -> str | None:
    """Returns the first line at the ends of a result that looks like an error.

    Where none does, it is the beginning of a result that is marked as an error.
    """
    found = PATTERNS.failed.search(_ends_of(result.text))
    if found is not None:
        return clipped(found.group(), SHORT)
    return _beginning_of(result) if result.status == "error" else None


def marked_failure(result: ToolMessage) -> str | None:
    """Returns the failure of a result that is marked as an error.

    What a search finds, and what a task is called, may look like an error.
    """
    return shown_failure(result) if result.status == "error" else None


def refusal(result: ToolMessage) -> str | None:
    """Returns the beginning of a result that refuses to show or change a file."""
    if result.status == "error" or PATTERNS.refused.search(_ends_of(result.text)):
        return _beginning_of(result)
    return None


def _beginning_of(result: ToolMessage) -> str:
    return clipped(result.text[:SHORT], SHORT) or NO_MESSAGE


def _ends_of(text: str) -> str:
    if len(text) <= 2 * ENDS:
        return text
    return f"{text[:ENDS]}\n{text[-ENDS:]}"


# What is noted


def note_nothing(notes: WorkNotes, finished: FinishedCall) -> None:
    """Leaves the notes as they are."""


def note_outcome(notes: WorkNotes, finished: FinishedCall) -> None:
    """Notes how a call ended; `WorkNotes.outcome_lines` tells it."""
    notes.note_outcome(finished.use.kind, finished.use.subject, finished.failure)


def _note_command(notes: WorkNotes, finished: FinishedCall) -> None:
    note_outcome(notes, finished)
    for path in PATTERNS.redirected.findall(finished.use.subject):
        notes.texts.pop(path, None)


def _note_tasks(notes: WorkNotes, finished: FinishedCall) -> None:
    use = finished.use
    if finished.failure is not None:
        return
    if use.call.tasks or not use.args:
        notes.note_task_list(use.call.tasks)
    else:
        notes.note_one_task(use.args, finished.text)


def _note_read(notes: WorkNotes, finished: FinishedCall) -> None:
    use = finished.use
    for path in use.subjects:
        notes.note_read(path, finished.failure)
        if finished.failure is None:
            notes.note_lines_read(path, finished.text, use.args, use.subjects)


def _note_edit(notes: WorkNotes, finished: FinishedCall) -> None:
    for path in finished.use.subjects:
        notes.note_change(path, finished.failure, is_whole=False)
        if finished.failure is None:
            notes.note_text_edited(path, finished.use.args)


def _note_write(notes: WorkNotes, finished: FinishedCall) -> None:
    for path in finished.use.subjects:
        notes.note_change(path, finished.failure, is_whole=True)
        if finished.failure is None:
            notes.note_text_written(path, finished.use.args)


# What is stale


def equal_calls(use: ToolUse) -> list[Key]:
    """Returns a key that calls of a tool with equal arguments share."""
    return [(use.call.tool, json.dumps(use.call.args, sort_keys=True, default=str))]


def _equal_commands(use: ToolUse) -> list[Key]:
    # The same command may be described in other words.
    return [(use.call.tool, use.call.folder, *use.subjects)]


def _its_files(use: ToolUse) -> list[Key]:
    return [(path,) for path in use.subjects]


def _whole_files_or_part(use: ToolUse) -> list[Key]:
    """Returns the files that are read whole, else what reads the same part of them."""
    if known_files.reads_part(use.args, use.subjects):
        return equal_calls(use)
    return _its_files(use)


def _files_and_part(use: ToolUse) -> list[Key]:
    return [*equal_calls(use), *_its_files(use)]


# The kinds

TASKS = Section("# To do\n", 89.0, WorkNotes.task_lines)
CHANGED = Section("# Files made or changed\n", 85.0)
COMMANDS = Section(
    "# Commands, in order of time\n",
    76.0,
    partial(WorkNotes.outcome_lines, kind="run"),
    is_in_order_of_time=True,
)
FILES_READ = Section("# Files read\n", 84.0)
FIRST_SECTIONS = (TASKS, CHANGED, COMMANDS, FILES_READ)
"""The sections that stand first, in this order; any other stands behind them, as in `KINDS`."""

TODO = ToolKindRules(
    kind="todo",
    fits=lambda call: call.plans,
    subjects=lambda _: (),
    failure=marked_failure,
    note=_note_tasks,
    section=TASKS,
    staleness=Staleness(
        done_again="written anew", replaces=lambda _: [PLAN], looks_at=lambda _: [PLAN]
    ),
)

EDIT = ToolKindRules(
    kind="edit",
    fits=lambda call: call.edits_a_file,
    subjects=_files,
    failure=refusal,
    note=_note_edit,
    section=CHANGED,
    staleness=None,  # the next edits need what was read before
    is_about_files=True,
)

WRITE = ToolKindRules(
    kind="write",
    fits=lambda call: call.writes_a_file,
    subjects=_files,
    failure=refusal,
    note=_note_write,
    section=CHANGED,
    staleness=Staleness(done_again="overwritten", replaces=_its_files, looks_at=lambda _: []),
    is_about_files=True,
)

SEARCH = ToolKindRules(
    kind="search",
    fits=lambda call: bool(call.pattern),
    subjects=_summary,
    failure=marked_failure,
    note=note_nothing,
    section=None,
    staleness=Staleness(done_again="looked up again", replaces=equal_calls, looks_at=equal_calls),
)

RUN = ToolKindRules(
    kind="run",
    fits=lambda call: call.runs_a_command,
    subjects=_summary,
    failure=shown_failure,
    note=_note_command,
    section=COMMANDS,
    staleness=Staleness(done_again="run again", replaces=_equal_commands, looks_at=_equal_commands),
)

READ = ToolKindRules(
    kind="read",
    fits=lambda call: bool(call.paths),
    subjects=_files,
    failure=refusal,
    note=_note_read,
    section=FILES_READ,
    staleness=Staleness(
        done_again="read again",
        replaces=_whole_files_or_part,
        looks_at=_files_and_part,
        needs_success=True,
    ),
    shows_files=True,
    is_about_files=True,
)

OTHER = ToolKindRules(
    kind="other",
    fits=lambda _: True,
    subjects=_summary,
    failure=shown_failure,
    note=note_nothing,
    section=None,
    staleness=None,
)

KINDS: tuple[ToolKindRules, ...] = (TODO, EDIT, WRITE, SEARCH, RUN, READ, OTHER)
"""Every kind, in the order in which they are tried."""


def rules_of(kind: ToolKind) -> ToolKindRules:
    """Returns the rules of a kind."""
    return next(rules for rules in KINDS if rules.kind == kind)
