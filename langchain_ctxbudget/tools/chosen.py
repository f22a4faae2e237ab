"""What becomes of the tools of a call: which are bound, and which are left to be found."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from langchain_ctxbudget.budget import Reason
from langchain_ctxbudget.tools.own import OwnTool
from langchain_ctxbudget.tools.tool_set import ToolSet

BOUND_TOOLS = "tool schemas"
LOADED_TOOLS = "loaded tools"
"""Deferred tools that were loaded."""
DEFERRED_TOOLS = "deferred tools"
TOOL_COSTS = (BOUND_TOOLS, LOADED_TOOLS, DEFERRED_TOOLS)
"""The names of what tools cost, in errors."""


@dataclass(frozen=True, kw_only=True)
class ChosenTools:
    """The tools of a call, with what becomes of each and why."""

    known: ToolSet = field(default_factory=lambda: ToolSet.of(()))
    bound: Mapping[int, Reason] = field(default_factory=dict)
    """The tools that are bound, by their positions among the given ones, in this order."""
    left_out: Mapping[int, Reason] = field(default_factory=dict)
    """All others."""
    window_tokens: Sequence[int] = ()
    """What each of all tools costs in the model's window where it is bound; 0 for one that its
    provider loads when it is asked for."""

    @cached_property
    def given(self) -> tuple[Any, ...]:
        """The bound tools, as the application gave them."""
        return tuple(self.known.tools[position].given for position in self.bound)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of the bound tools, in order."""
        return tuple(self.known.tools[position].name for position in self.bound)

    @cached_property
    def to_be_found(self) -> Sequence[int]:
        """The positions of the tools that the model can only find."""
        return [
            position for position, reason in self.left_out.items() if reason is Reason.TO_BE_FOUND
        ]

    def name_of(self, kind: OwnTool) -> str:
        """Returns the name of one of the package's tools; empty if it is not bound."""
        place = self.known.own.get(kind)
        if place is None or place not in self.bound:
            return ""
        return self.known.tools[place].name


NO_TOOLS = ChosenTools()
