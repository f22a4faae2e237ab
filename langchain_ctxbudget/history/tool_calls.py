"""What the arguments of a tool call tell of a tool that nobody knows.

The names of the arguments and the form of their values say whether a call reads a file, changes
one, runs a command, searches, or plans; `tool_kinds.py` says which of these counts first.
"""

import json
from collections.abc import Mapping
from functools import cached_property
from typing import Any

from langchain_ctxbudget.history import known_files
from langchain_ctxbudget.history.extractive import PATTERNS
from langchain_ctxbudget.messages import one_line


class CallArguments:
    """The arguments of one call, with what each of them is likely to be."""

    def __init__(self, tool: str, args: Mapping[str, Any]) -> None:
        self.tool = tool
        self.args = args
        self.texts = {key: value for key, value in args.items() if isinstance(value, str)}

    @property
    def plans(self) -> bool:
        """True if the call gives a list of tasks, or its tool makes or changes one."""
        if self.tasks:
            return True
        return bool(self.args) and PATTERNS.todo_tool.match(self.tool) is not None

    @property
    def edits_a_file(self) -> bool:
        """True if the call replaces a part of a file."""
        return bool(self.patched_paths) or self._replaces_text_of_a_file()

    @property
    def writes_a_file(self) -> bool:
        """True if the call gives the text of a file."""
        return bool(self.paths) and self._has_new_text

    @property
    def runs_a_command(self) -> bool:
        """True if the call runs a command."""
        # `{"command": "view", "path": ...}` is an editor's: it runs nothing.
        is_of_editor = self.paths and self.command.isidentifier()
        return bool(self.command) and not is_of_editor

    @cached_property
    def tasks(self) -> list[Mapping[str, Any]]:
        """The tasks of a list that the call gives; empty where it gives none."""
        for value in self.args.values():
            if isinstance(value, list) and value and all(map(_is_task, value)):
                return value
        return []

    @cached_property
    def paths(self) -> tuple[str, ...]:
        """The files that the call names."""
        return tuple(
            text
            for key, text in self.texts.items()
            if text and "\n" not in text and PATTERNS.path_key.search(key)
        )

    @cached_property
    def patched_paths(self) -> tuple[str, ...]:
        """The files that a patch among the arguments changes."""
        if self.writes_a_file:  # the text of a file may look like a patch
            return ()
        paths: list[str] = []
        for text in self.texts.values():
            if "\n" in text:
                paths += PATTERNS.patched.findall(text)
        return tuple(paths)

    @cached_property
    def command(self) -> str:
        """The command that the call runs; of `["bash", "-lc", "make"]` the last part."""
        for key, value in self.args.items():
            if value and PATTERNS.command_key.match(key):
                return str(value[-1] if isinstance(value, list) else value)
        return ""

    @cached_property
    def folder(self) -> str:
        """The folder in which the call runs its command; empty where it names none."""
        for key, text in self.texts.items():
            if PATTERNS.folder_key.match(key):
                return text
        return ""

    @cached_property
    def pattern(self) -> str:
        """The text or pattern that the call searches for."""
        for key, text in self.texts.items():
            if PATTERNS.search_key.match(key):
                return text
        return ""

    @property
    def files(self) -> tuple[str, ...]:
        """The files that the call is about, else its first text."""
        return self.paths or self.patched_paths or tuple(self.texts.values())[:1]

    @property
    def summary(self) -> str:
        """The call in one line: its command, what it searches, or its name and arguments."""
        if self.pattern:
            return one_line(f"{self.command or self.pattern} {' '.join(self.paths)}")
        if self.command:
            return one_line(self.command)
        args = json.dumps(self.args, sort_keys=True, default=str) if self.args else ""
        return one_line(f"{self.tool} {args}".strip())

    @cached_property
    def _given_keys(self) -> list[str]:
        return [key for key, value in self.args.items() if value is not None]

    @cached_property
    def _has_new_text(self) -> bool:
        return any(map(known_files.NEW.match, self._given_keys))

    def _replaces_text_of_a_file(self) -> bool:
        if not self.paths:
            return False
        if any(map(PATTERNS.patch_key.match, self._given_keys)):
            return True
        return self._has_new_text and any(map(known_files.OLD.match, self._given_keys))


def _is_task(item: object) -> bool:
    return isinstance(item, Mapping) and "status" in item
