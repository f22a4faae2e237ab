"""Which results of a turn are stale, because a later call has looked at or done the same thing."""

from collections.abc import Iterable, Mapping

from langchain_core.messages import AIMessage, ToolCall, ToolMessage

from langchain_ctxbudget.history import Key, ToolUse
from langchain_ctxbudget.messages import Group
from langchain_ctxbudget.settings import ToolKind


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
        use = ToolUse.of(call["name"], call["args"], self._tool_kinds).as_shown_by(result)
        staleness = use.rules.staleness
        if staleness is None:
            return
        if staleness.needs_success and use.rules.failure(result) is not None:
            return
        if use.rules.shows_files:
            self.paths_read[call_id] = next(iter(use.subjects), "")
        for key in staleness.replaces(use):
            for older_id in self._newest_calls.pop(key, ()):
                self.replaced_by.setdefault(older_id, (call_id, staleness.done_again))
        for key in staleness.looks_at(use):
            self._newest_calls.setdefault(key, []).append(call_id)
