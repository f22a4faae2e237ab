"""Tools that a tool search has loaded: what its results refer to."""

from collections.abc import Iterator, Mapping
from typing import Any

from langchain_core.messages import BaseMessage

from langchain_ctxbudget.content.blocks import blocks_of

_REFERENCE = "tool_reference"
_DEPTH = 4
"""How deep a reference may stand: among those of a search, in a result, in a message."""


def referenced_tools(message: BaseMessage) -> frozenset[str]:
    """Returns the names of the tools whose definitions stand in a message by reference.

    Anthropic puts the whole definition there: "the definition is appended inline as a
    `tool_reference` block" ("Tool use with prompt caching", read in November 2026).
    """
    if isinstance(message.content, str):
        return frozenset()
    return frozenset(_references_in(blocks_of(message), _DEPTH))


def _references_in(value: Any, depth: int) -> Iterator[str]:  # noqa: ANN401 - whatever a block holds
    if depth < 0:
        return
    if isinstance(value, list):
        for each in value:
            yield from _references_in(each, depth)
    if isinstance(value, Mapping):
        name = value.get("tool_name")
        if value.get("type") == _REFERENCE and isinstance(name, str):
            yield name
        for each in value.values():
            if isinstance(each, list | Mapping):
                yield from _references_in(each, depth - 1)
