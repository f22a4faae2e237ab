"""The package's own tools, which are recognised by a mark in their metadata."""

from collections.abc import Mapping
from enum import StrEnum

_KEY = "ctxbudget"


class OwnTool(StrEnum):
    """A tool of the package."""

    RECALL = "recall"
    """Quotes messages that a prompt no longer shows."""
    COMPACT = "compact"
    """Has older messages compacted now."""
    FIND = "find_tools"
    """Finds tools that are not bound."""
    CALL = "call_tool"
    """Calls one of these."""

    @property
    def mark(self) -> dict[str, str]:
        """The metadata by which the tool is recognised, whatever its name is."""
        return {_KEY: self.value}

    @property
    def is_for_what_is_left_out(self) -> bool:
        """True if the tool is of no use while a prompt shows everything that was said."""
        return self in (OwnTool.RECALL, OwnTool.COMPACT)


def own_kind(tool: object) -> OwnTool | None:
    """Returns which of the package's tools this is, also as a schema; None if it is none."""
    if isinstance(tool, Mapping):
        metadata = tool.get("metadata")
    else:
        metadata = getattr(tool, "metadata", None)
    kind = metadata.get(_KEY) if isinstance(metadata, Mapping) else None
    return OwnTool(kind) if isinstance(kind, str) and kind in {*OwnTool} else None
