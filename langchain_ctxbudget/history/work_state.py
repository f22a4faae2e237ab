"""The work state of an agent.

What its calls before the cut have left behind, made from calls and results alone.

Nobody knows the tools beforehand: the kind of a call follows from its arguments, and `tool_kinds`
says it where that is not enough. A name is as likely to be used again as its past uses make it: the
sum of `1 / (1 + age)` over them, the age counted in calls (Anderson's law of memory), more for what
a call was given than for what was said. What a result says is one use that all its names share: one
of three files that a search found is likely to be opened, one of 300 names in a file is not.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

from langchain_ctxbudget.history import known_files
from langchain_ctxbudget.history.extractive import ENGLISH
from langchain_ctxbudget.history.known_files import KnownFile
from langchain_ctxbudget.messages import Count, clipped, fences, is_user, one_line, remembering
from langchain_ctxbudget.settings import ToolKind
from langchain_ctxbudget.stores import SummaryLine
from langchain_ctxbudget.worker import keep_newest

VALUES = {"# Last error\n": 90.0, "# To do\n": 89.0, "# Files made or changed\n": 85.0}
VALUES |= {"# Commands, the newest first\n": 76.0, "# Files read\n": 84.0, "# Names used\n": 83.0}
VALUES |= {"# Lines of these files, as last seen\n": 54.0}
"""The headings in the order in which they stand, and what their first lines are worth, beside those
of the arc."""
ERROR, TODO, CHANGED, COMMANDS, READ, NAMES, CODE = VALUES
MOST_MESSAGES = 2_000
"""Messages that are read for the work state."""
MOST_NAMES = 2 * MOST_MESSAGES
"""Names that are remembered."""
RECENT = 8
"""The newest uses of a name, calls of a turn, texts before it, tasks and commands that count."""
SHORT = 120
"""Characters of an item that is listed, and of an argument that counts as short."""
LONG_PATH = SHORT // 2
"""Characters of a path from which on it is told below a root."""
BELOW = "relative paths are below "
LONGEST_TEXT = 60_000
"""Characters of a text that are read for names."""
ENDS = 2_000
"""Characters at both ends of a result that tell how a command ended."""


@dataclass(frozen=True, slots=True)
class WorkStatePolicy:
    """What the work state may cost, and what a use of a name counts.

    A use counts 1 in what somebody said; all names of a result share 1.
    """

    least_tokens: int = 800
    """Tokens that it may cost, beside a share of the budget."""
    more_share: float = 0.05
    most_share: float = 0.25
    """The share of the budget that it may cost at most."""
    tokens_per_call: int = 80
    facts_share: float = 0.25
    """The share of its tokens for error, tasks and commands; files and names get the rest."""
    given: float = 4.0
    """A use as a short argument of a call; all names of a long one share as much."""
    member: float = 0.1
    """The factor of a name that is the member of another one."""


POLICY = WorkStatePolicy()

NAME_LENGTHS = range(5, 160)

_TITLE_KEYS = ("content", "subject", "title", "step", "task", "text", "description", "name")
_DONE = frozenset(
    {"completed", "complete", "done", "cancelled", "canceled", "deleted", "closed", "true"}
)


@remembering(4_096)
def names_in(text: str) -> Mapping[str, int]:
    """Returns the identifiers of a text, and how often it has them.

    Paths, symbols, hashes, ids, URLs.
    """
    every = (
        said.rstrip("./:-@~+").removeprefix("./")
        for said in ENGLISH.used_name.findall(text[:LONGEST_TEXT])
    )
    names = (
        name for said in every if len(name := ENGLISH.line_number.sub(r"\1", said)) in NAME_LENGTHS
    )
    signs = (ENGLISH.suffix.search, ENGLISH.symbol.search, ENGLISH.mixed.match)
    return Counter(
        n
        for n in names
        if not ENGLISH.time.match(n) and ("/" in n or any(sign(n) for sign in signs))
    )


def texts_of(value: object) -> Iterator[str]:
    """Returns all texts in an argument of a call, however deep."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | Sequence):
        inner = value.values() if isinstance(value, Mapping) else value
        yield from (text for one in inner for text in texts_of(one))


def told_by(messages: Iterable[BaseMessage]) -> str:
    """Returns all that messages say, the arguments of their calls included."""
    calls = ((message.text, getattr(message, "tool_calls", ())) for message in messages)
    return "\n".join(
        text for said, made in calls for text in (said, *texts_of([call["args"] for call in made]))
    )


@dataclass(frozen=True, slots=True)
class ToolUse:
    """A call as far as it tells of the work."""

    kind: ToolKind
    name: str
    subjects: tuple[str, ...] = ()
    todos: tuple[Mapping[str, Any], ...] = ()
    args: Mapping[str, Any] = field(default_factory=dict)
    """Those of a call that reads or changes a file, or one to-do; for a command, as a tool that
    reads has them."""
    command: str = ""
    """The one that shows or writes a file."""

    @classmethod
    def of(cls, name: str, args: Mapping[str, Any], kinds: Mapping[str, ToolKind]) -> "ToolUse":
        """Reads a call by its arguments; what the application says of its tool comes first."""
        texts = {key: value for key, value in args.items() if isinstance(value, str)}
        lists = (value for value in args.values() if isinstance(value, list))
        listed = next(
            (v for v in lists if v and all(isinstance(i, Mapping) and "status" in i for i in v)),
            None,
        )
        paths = tuple(
            value
            for key, value in texts.items()
            if ENGLISH.path_key.search(key) and value and "\n" not in value
        )
        commands = [
            value for key, value in args.items() if ENGLISH.command_key.match(key) and value
        ]
        command = (
            str(commands[0][-1] if isinstance(commands[0], list) else commands[0])
            if commands
            else ""
        )
        pattern = next((value for key, value in texts.items() if ENGLISH.search_key.match(key)), "")
        given = [key for key, value in args.items() if value is not None]
        replaces, is_new = (
            any(map(kind.match, given)) for kind in (known_files.OLD, known_files.NEW)
        )
        patches = () if paths and is_new else (value for value in texts.values() if "\n" in value)
        patched = tuple(path for value in patches for path in ENGLISH.patched.findall(value))
        shapes: dict[ToolKind, object] = {
            "todo": listed or (args and ENGLISH.todo_tool.match(name)),
            "edit": patched
            or (paths and (any(map(ENGLISH.patch_key.match, given)) or (is_new and replaces))),
            "write": paths and is_new,
            "search": pattern,
            "run": command
            and not (paths and command.isidentifier()),  # an editor's `view` runs nothing
            "read": paths,
        }
        seen: ToolKind = next((kind for kind, found in shapes.items() if found), "other")
        if seen == "run" and name not in kinds and (shown := known_files.shown_by(command)):
            return cls(
                "write" if "content" in shown else "read",
                name,
                (shown["path"],),
                (),
                shown,
                one_line(command),
            )
        kind = kinds.get(name, seen)
        if kind == "todo":
            return cls(kind, name, (), tuple(listed or (args,)), {} if listed else args)
        if kind in ("read", "edit", "write"):
            return cls(kind, name, paths or patched or tuple(texts.values())[:1], args=args)
        said = json.dumps(args, sort_keys=True, default=str) if args else ""
        subject = command or pattern or f"{name} {said}".strip()
        return cls(kind, name, (one_line(f"{subject} {' '.join(paths)}" if pattern else subject),))

    def ended(self, result: ToolMessage) -> "ToolUse":
        """Returns it as its result shows it.

        A here-document that failed is a command that did, and no write.
        """
        said = result.text.removeprefix(str(self.args.get("content")).rstrip())[
            : 2 * ENDS
        ]  # `tee` says what it writes
        failed = (
            self.kind == "write"
            and self.command
            and (result.status == "error" or ENGLISH.failed.search(said))
        )
        return ToolUse("run", self.name, (self.command,)) if failed else self


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a file or a command stands."""

    verb: str
    """What was done last: `read`, `made`, `changed`, `run`."""
    times: int = 1
    failed: str = ""
    """The line that says why the last try failed."""


@dataclass(slots=True)
class WorkState:
    """What tool calls have left behind, read message by message.

    Continue with a `copy` to keep this one unchanged.
    """

    kinds: Mapping[str, ToolKind] = field(default_factory=dict)
    read_until: int = 0
    calls: int = 0
    uses: dict[str, tuple[tuple[int, float], ...]] = field(default_factory=dict)
    """The newest uses of every name: number of the call, weight."""
    files: dict[str, Outcome] = field(default_factory=dict)
    commands: dict[str, Outcome] = field(default_factory=dict)
    todos: dict[str, tuple[str, str]] = field(default_factory=dict)
    """The titles and states of open to-dos, by their ids."""
    error: tuple[str, str] | None = None
    texts: dict[str, KnownFile] = field(default_factory=dict)
    """The newest known texts of files, the one used last at the end."""
    _open: dict[str, ToolUse] = field(default_factory=dict)
    """Calls that wait for their results, by id."""

    def copy(self) -> "WorkState":
        """Returns one that can read on."""
        own = ("uses", "files", "commands", "todos", "texts", "_open")
        return replace(self, **{name: getattr(self, name).copy() for name in own})

    def read(self, messages: Iterable[tuple[int, BaseMessage]]) -> "WorkState":
        """Reads the next messages, which begin at `read_until`, with their positions."""
        for position, message in messages:
            self.read_until = position + 1
            if isinstance(message, ToolMessage):
                if (call := self._open.pop(message.tool_call_id, None)) is not None:
                    self._ended(call, message)
                self._use(message.text, 1.0, shared=True)
                continue
            self._use(message.text, 1.0)
            for made in message.tool_calls if isinstance(message, AIMessage) else ():
                self.calls += 1
                self._open[made["id"] or ""] = ToolUse.of(made["name"], made["args"], self.kinds)
                for text in texts_of(made["args"]):
                    short = len(text) <= SHORT and "\n" not in text
                    self._use(text, POLICY.given, shared=not short)
        if len(self.uses) > MOST_NAMES:
            kept = sorted(self.uses, key=self.activation)[len(self.uses) - MOST_NAMES // 2 :]
            self.uses = {name: self.uses[name] for name in kept}
        return self

    def _use(self, text: str, weight: float, *, shared: bool = False) -> None:
        names = names_in(text)
        total = sum(names.values())
        for name, times in names.items():
            use = (self.calls, weight * times / total if shared else weight)
            self.uses[name] = (*self.uses.get(name, ())[1 - RECENT :], use)

    def _ended(self, call: ToolUse, result: ToolMessage) -> None:
        text = result.text
        call = call.ended(result)
        ends = text if len(text) <= 2 * ENDS else f"{text[:ENDS]}\n{text[-ENDS:]}"
        has_file = call.kind in ("read", "edit", "write")
        found = (ENGLISH.refused if has_file else ENGLISH.failed).search(ends)
        failed = result.status == "error" or (
            found is not None and call.kind not in ("search", "todo")
        )
        why = (
            clipped(text[:SHORT] if has_file or not found else found.group(), SHORT)
            if failed
            else ""
        )
        subject = call.subjects[0] if call.subjects else call.name
        self.error = (subject, why) if failed else self.error
        if call.kind == "todo" and not failed:
            self._plan(call, text)
        elif call.kind == "run":
            keep_newest(self.commands, subject, Outcome("run", failed=why), MOST_NAMES // 10)
            for path in ENGLISH.redirected.findall(subject):
                self.texts.pop(path, None)
        for path in call.subjects if has_file else ():
            before = self.files.get(path)
            verb = (
                "read"
                if call.kind == "read"
                else "made"
                if call.kind == "write" and not before
                else "changed"
            )
            if (
                verb != "read" or before is None or before.verb == "read"
            ):  # what was changed stays so when read
                times = before.times if before is not None and before.verb == verb else 0
                self.files[path] = Outcome(verb, times + (not failed), why)
            if not failed:
                self._know(path, call, text)

    def _plan(self, call: ToolUse, result: str) -> None:
        """Takes in a list of to-dos, or one that is made or changed; what is done is forgotten."""
        made = ENGLISH.todo_made.search(result)
        self.todos = self.todos if call.args else {}
        for number, item in enumerate(call.todos):
            title = next((str(item[key]) for key in _TITLE_KEYS if item.get(key)), "")
            ids = (str(value) for key, value in item.items() if ENGLISH.todo_id.match(key))
            key = next(ids, str(number) if not call.args else made[1] if made else title)
            before, state = self.todos.pop(key, ("", "pending"))
            title = title or before
            state = str(item.get("status") or state)
            if title and state.casefold() not in _DONE:
                self.todos[key] = (title, state)

    def _know(self, path: str, call: ToolUse, result: str) -> None:
        """Takes in what a call shows or makes of the text of a file."""
        known = self.texts.pop(path, None)
        is_part = known_files.reads_part(call.args, call.subjects)
        if call.kind == "read" and (
            lines := known_files.read_lines(result, call.args, call.subjects)
        ):
            before = known.lines if known is not None and is_part else {}
            shown = {number: (line, self.calls) for number, line in lines.items()}
            known = KnownFile(dict(sorted({**before, **shown}.items())))
        elif call.kind == "write":
            new = (
                text
                for key, text in call.args.items()
                if known_files.NEW.match(key) and isinstance(text, str)
            )
            written = max(new, key=len, default="").splitlines()
            known = KnownFile(
                {number: (line, self.calls) for number, line in enumerate(written, 1)}
            )
        elif call.kind == "edit" and known is not None:
            for old, text, every in known_files.replacements(call.args):
                known = known.edited(old, text, self.calls, every=every)
        if known is not None and known.lines:
            keep_newest(self.texts, path, known, known_files.MOST_FILES)

    def activation(self, name: str) -> float:
        """Returns how likely a name is used again."""
        uses = sum(weight / (1 + self.calls - call) for call, weight in self.uses.get(name, ()))
        return uses * POLICY.member if ENGLISH.member.match(name) else uses

    def lines(
        self, count: Count, budget_tokens: int, said: str, step: "TurnWorkState | None" = None
    ) -> list[SummaryLine]:
        """Returns the work state in lines that fit a budget, without anything that the prompt says already (`said`).

        Lines of files that a step of the turn has chosen have a budget of their own.
        """
        page = _Page(
            count, budget_tokens + (step.code_tokens if step else 0), said, self.read_until - 1
        )
        ranked = sorted(self.uses, key=lambda name: (-self.activation(name), name))
        for path, text in step.code.items() if step else ():
            page.add(CODE, path, text)
        for heading, text in self._facts():
            page.add(heading, text, keep=int(budget_tokens * (1 - POLICY.facts_share)))
        self._add_names(page, ranked)
        return [line for heading in VALUES for line in page.sections[heading]]

    def _add_names(self, page: "_Page", ranked: Sequence[str]) -> None:
        root = self._root()
        bases = Counter(path.rpartition("/")[2] for path in self.files)
        told = {f"{BELOW}{root}": NAMES} if root else dict[str, str]()
        left = page.left_tokens - sum(map(page.count, (CHANGED, READ, NAMES, *told)))
        page.said += f"\n{root}"
        for name in ranked:
            file = self.files.get(name)
            base = name.rpartition("/")[2]
            is_said = _has(page.said, name, ENGLISH.path_goes_on if file else ENGLISH.name_goes_on)
            heading = (
                CHANGED if file and file.verb != "read" else READ if file and file.times else NAMES
            )
            if is_said and heading != CHANGED:
                continue
            text = base if is_said and bases[base] == 1 else name
            text = text.removeprefix(f"{root}/") if root and len(text) > LONG_PATH else text
            text += f": {_told(file)}" if file and heading == CHANGED else ""
            ends = [
                at for at, sign in enumerate(f" {text} ") if not ENGLISH.name_goes_on.match(sign)
            ]
            # Only files are told beside a text that has them in it.
            within = {
                one for at in ends for to in ends[1:] if told.get(one := text[at : to - 1]) == NAMES
            }
            left -= page.count(f", {text}") - sum(page.count(f", {shorter}") for shorter in within)
            if left < 0:
                break
            for shorter in within:
                del told[shorter]
            told[text] = heading
            page.said += f"\n{text}"
        for heading in (CHANGED, READ, NAMES):
            names = [text for text, own in told.items() if own == heading]
            for first in range(0, len(names), RECENT):
                row = names[first : first + RECENT]
                while row and not page.add(heading, ", ".join(row)):
                    row.pop()

    def _root(self) -> str:
        """Returns the only directory below which paths may be told in short.

        One that commands change to, if any do.
        """
        long = [name for name in self.uses if len(name) > LONG_PATH and name.startswith("/")]
        ends = (
            (name[:at], name[at + 1 :])
            for name in long
            for at, sign in enumerate(name)
            if sign == "/"
        )
        roots = Counter(root for root, end in ends if "/" in end and end in self.uses)
        goes_to = {
            to.rstrip("/")
            for command in self.commands
            for to in ENGLISH.changes_to.findall(command)
        }
        found = [
            root for root, times in roots.items() if times > 1 and (not goes_to or root in goes_to)
        ]
        return found[0] if len(found) == 1 else ""

    def worth(
        self, before: Sequence[BaseMessage], turn: Sequence[BaseMessage]
    ) -> dict[str, known_files.Floats]:
        """Returns how likely the next edits replace each line of the files, judging by the newest messages."""
        asked = [message for message in turn if is_user(message)]
        answers = [message for message in turn if isinstance(message, AIMessage)][-RECENT:]
        earlier = [one for one in before if not isinstance(one, ToolMessage) and one.text.strip()][
            -RECENT:
        ]
        found = [message.text[: 2 * ENDS] for message in turn if isinstance(message, ToolMessage)][
            -RECENT:
        ]
        todos = "\n".join(text for text, _ in self.todos.values())
        focus = known_files.focus_of(
            told_by(asked), told_by(earlier), told_by(answers), found, todos
        )
        return known_files.worth(self.texts, focus, self.calls)

    def _facts(self) -> Iterator[tuple[str, str]]:
        if self.error is not None:
            subject, why = self.error
            now = self.commands.get(subject) or self.files.get(subject)
            ended = "resolved since" if now is not None and not now.failed else "not resolved yet"
            yield ERROR, f"{subject[:SHORT]}: {why} ({ended})"
        for text, state in sorted(self.todos.values(), key=lambda item: item[1] != "in_progress")[
            :RECENT
        ]:
            yield TODO, f"{text[:SHORT]}{' (in progress)' if state == 'in_progress' else ''}"
        for command, ran in list(reversed(self.commands.items()))[:RECENT]:
            yield (
                COMMANDS,
                f"{clipped(command, SHORT)}: {f'failed, {ran.failed}' if ran.failed else 'no error'}",
            )


@dataclass(slots=True)
class TurnWorkState:
    """The work state of a turn as it was when steps of it gave way last, which is told until they do again."""

    state: WorkState
    code_tokens: int
    code: Mapping[str, str]
    """Lines of files, and what they may cost."""
    key: object = None
    """What its lines were written for."""
    lines: list[SummaryLine] = field(default_factory=list)


@dataclass(slots=True)
class _Page:
    """Lines under their headings, as many as a budget has room for."""

    count: Count
    left_tokens: int
    said: str
    """What stands in the prompt already, and in these lines."""
    position: int
    sections: dict[str, list[SummaryLine]] = field(
        default_factory=lambda: {heading: [] for heading in VALUES}
    )

    def add(self, heading: str, text: str, more: str = "", keep: int = 0) -> bool:
        """Adds a line, and more lines below it, where at least `keep` tokens are left behind it."""
        own = self.sections[heading]
        line = f"- {fences.as_data(one_line(text))}\n{more}"
        cost = self.count(line) + (0 if own else self.count(heading))
        if cost > self.left_tokens - keep:
            return False
        self.left_tokens -= cost
        self.said += line
        value = VALUES[heading] - len(own) / 100
        own.append(
            SummaryLine(
                position=self.position, order=len(own), heading=heading, text=line, value=value
            )
        )
        return True


def _told(file: Outcome) -> str:
    times = f"{file.verb} {file.times} times" if file.times > 1 else file.verb * file.times
    return ", ".join(
        filter(None, (times, f"the last change failed ({file.failed})" if file.failed else ""))
    )


def _has(text: str, name: str, goes_on: re.Pattern[str]) -> bool:
    """Tells whether a text has a name as a whole one, which goes on at neither end."""
    at = text.find(name)
    while at >= 0 and ((at and goes_on.match(text, at - 1)) or goes_on.match(text, at + len(name))):
        at = text.find(name, at + 1)
    return at >= 0


def most_tokens(calls: int, budget_tokens: int) -> int:
    """Returns the most tokens for the work state of a number of calls.

    It grows only when the calls have doubled.
    """
    doubled = POLICY.tokens_per_call << (calls.bit_length() - 1) if calls else 0
    return min(
        POLICY.least_tokens + int(budget_tokens * POLICY.more_share),
        int(budget_tokens * POLICY.most_share),
        doubled,
    )
