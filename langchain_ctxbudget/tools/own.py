"""Tools that are no choice of the application's, recognised by a mark beside their schemas."""

from collections.abc import Mapping
from enum import StrEnum

_KEY = "ctxbudget"


class OwnTool(StrEnum):
    """A tool of the package, or one that an agent needs for itself."""

    RECALL = "recall"
    """Quotes messages that a prompt no longer shows."""
    COMPACT = "compact"
    """Has older messages compacted now."""
    FIND = "find_tools"
    """Finds tools that are not bound."""
    CALL = "call_tool"
    """Calls one of these."""
    REQUIRED = "required"
    """Bound in any case: an agent's model gives its structured answer by it, or must call it."""

    @property
    def mark(self) -> dict[str, str]:
        """What stands in the metadata of the tool, or in the extras of its schema."""
        return {_KEY: self.value}


def own_kind(tool: object) -> OwnTool | None:
    """Returns which of the package's tools this is, also as a schema; None if it is none."""
    if isinstance(tool, Mapping):
        notes = tool.get("metadata") or tool.get("extras")
    else:
        notes = getattr(tool, "metadata", None)
    if not isinstance(notes, Mapping):
        return None
    kind = notes.get(_KEY)
    if not isinstance(kind, str) or kind not in {*OwnTool}:
        return None
    return OwnTool(kind)
