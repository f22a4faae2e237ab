"""Which results of a turn are stale, because a later call has looked at or done the same thing."""

import json
from collections.abc import Iterable, Mapping

from langchain_core.messages import AIMessage, ToolCall, ToolMessage

from langchain_ctxbudget.history import extractive, known_files, work_state
from langchain_ctxbudget.messages import Group
from langchain_ctxbudget.settings import ToolKind

DONE_AGAIN: Mapping[ToolKind, str] = {
    "read": "read again",
    "run": "run again",
    "search": "looked up again",
    "todo": "written anew",
    "write": "overwritten",
}
"""What a later call did, by its kind, that made an older result stale."""

Key = tuple[str, ...]
"""Names what a call looks at or does: a file by its path, or a tool with its arguments."""


class StaleResults:
    """The results of a turn's calls, and those among them that are stale."""

    def __init__(self, tool_kinds: Mapping[str, ToolKind]) -> None:
        """Begins without results.

        Args:
            tool_kinds: kinds of tools by name, where arguments do not tell them.
        """
        self.results: dict[str, ToolMessage] = {}
        """All results, by the ids of their calls."""
        self.paths_read: dict[str, str] = {}
        """The files that results show, by the ids of the calls that read them."""
        self.replaced_by: dict[str, tuple[str, str]] = {}
        """The ids of calls whose results are stale: each with the id of the call that came later,
        and what that one did."""
        self._tool_kinds = dict(tool_kinds)
        self._newest_calls: dict[Key, list[str]] = {}
        """The ids of the calls that looked at or did the same thing last."""

    def read(self, group: Group) -> None:
        """Notes what the calls of a round look at or do, which makes older results stale."""
        calling, *others = group.messages
        for message in others:
            if isinstance(message, ToolMessage):
                self.results[message.tool_call_id] = message
        if isinstance(calling, AIMessage):
            for call in calling.tool_calls:
                self._read_call(call)

    def are_all_stale(self, call_ids: Iterable[str]) -> bool:
        """Tells whether there are calls, and all their results are stale."""
        ids = set(call_ids)
        return bool(ids) and ids <= self.replaced_by.keys()

    def _read_call(self, call: ToolCall) -> None:
        call_id = call["id"] or ""
        result = self.results.get(call_id)
        if result is None or result.status == "error":
            return
        use = work_state.ToolUse.of(call["name"], call["args"], self._tool_kinds)
        use = use.as_shown_by(result)
        if use.kind not in DONE_AGAIN:
            return
        if use.kind == "read":
            if extractive.ENGLISH.refused.search(result.text):
                return
            self.paths_read[call_id] = next(iter(use.subjects), "")
        for key in _replaced_keys(call, use):
            for older_id in self._newest_calls.pop(key, ()):
                self.replaced_by.setdefault(older_id, (call_id, DONE_AGAIN[use.kind]))
        for key in _own_keys(call, use):
            self._newest_calls.setdefault(key, []).append(call_id)


def _replaced_keys(call: ToolCall, use: work_state.ToolUse) -> list[Key]:
    """Returns what a call shows or does anew: a whole file, or the same as an equal call before."""
    is_whole_read = use.kind == "read" and not known_files.reads_part(use.args, use.subjects)
    if use.kind == "write" or is_whole_read:
        return _file_keys(use)
    return [_call_key(call, use)]


def _own_keys(call: ToolCall, use: work_state.ToolUse) -> list[Key]:
    """Returns what a later call must look at or do to make the result of this one stale."""
    if use.kind == "write":
        return []
    if use.kind == "read":
        return [_call_key(call, use), *_file_keys(use)]
    return [_call_key(call, use)]


def _file_keys(use: work_state.ToolUse) -> list[Key]:
    return [(path,) for path in use.subjects]


def _call_key(call: ToolCall, use: work_state.ToolUse) -> Key:
    """Returns a key that equal calls share."""
    if use.kind == "todo":
        return ("",)
    if use.kind == "run":  # the same command may be described in other words
        return (call["name"], "", *use.subjects)
    return (call["name"], json.dumps(call["args"], sort_keys=True, default=str))
