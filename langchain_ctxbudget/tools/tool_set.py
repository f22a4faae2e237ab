"""The tools of a call, read once and shared by all calls that give the same ones."""

from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
from langchain_core.embeddings import Embeddings

from langchain_ctxbudget.flow import Flow, embed_query
from langchain_ctxbudget.search import Scores
from langchain_ctxbudget.tokens import (
    TOOLS_END_TOKENS,
    CalibratedCounter,
    TokenCounter,
)
from langchain_ctxbudget.tools.index import ToolIndex, ToolWords, index_of
from langchain_ctxbudget.tools.known import KnownTool, read_tool
from langchain_ctxbudget.tools.own import OwnTool
from langchain_ctxbudget.worker import new_mutex

REMEMBERED_SETS = 16
"""Sets of tools that are kept; each is what one agent has, or one of its steps."""
REMEMBERED_INDEXES = 4
"""Indexes of a set that are kept, each by other embeddings."""
REMEMBERED_QUERIES = 64
"""Queries of a set whose vectors are kept."""
_CHANGEABLE = ("name", "description", "args_schema", "metadata", "extras")
"""What an application may change of a tool object that it has given before."""
_DEPTH = 32
"""How deep a schema is copied in order to notice its changes."""


class ToolSet:
    """The tools of a call in the order given; calls with the same tools share one.

    Example:
        >>> tools = ToolSet.of([{"name": "add", "description": "Adds.", "parameters": {}}])
        >>> tools.named("add").description
        'Adds.'
    """

    def __init__(self, given: Sequence[Any]) -> None:
        self.tools: tuple[KnownTool, ...] = tuple(map(read_tool, given))
        self._tokens: dict[str, tuple[int, ...]] = {}
        self._indexes: OrderedDict[int, tuple[Embeddings, ToolIndex]] = OrderedDict()
        """By the ids of the embeddings, which are kept so that no others get one of the ids."""
        self._queries: OrderedDict[tuple[int, str], tuple[Embeddings, Sequence[float]]] = (
            OrderedDict()
        )
        """By the ids of the embeddings and the words of the query."""
        self.with_search: dict[tuple[str, str], ToolSet] = {}
        """By the names of embeddings and counter: these tools, and those by which a model finds
        and calls them. They are kept so that a list of tools stays the same."""

    @classmethod
    def of(cls, given: Sequence[Any]) -> "ToolSet":
        """Returns the set of some tools, the one of an earlier call where nothing has changed.

        Args:
            given: LangChain tools, functions, classes or schemas.
        """
        return _REMEMBERED.set_of(given)

    def with_given(self, given: Sequence[Any]) -> "ToolSet":
        """Returns this set for other objects that read the same; what is known of it is shared."""
        other = copy(self)
        other.with_search = {}
        pairs = zip(self.tools, given, strict=True)
        other.tools = tuple(replace(tool, given=its_object) for tool, its_object in pairs)
        return other

    def __len__(self) -> int:
        return len(self.tools)

    @cached_property
    def has_deferred(self) -> bool:
        """True if a tool, or one in a namespace of tools, is deferred."""
        return any(tool.has_deferred_part for tool in self.tools)

    @cached_property
    def own(self) -> dict[OwnTool, int]:
        """The places of the package's own tools among all."""
        kinds = {place: tool.own for place, tool in enumerate(self.tools)}
        return {kind: place for place, kind in kinds.items() if kind is not None}

    @cached_property
    def unranked(self) -> Scores:
        """Scores where nothing is known of what tools are for: all of them are equal."""
        return np.zeros(len(self.tools))

    @cached_property
    def servers(self) -> tuple[str, ...]:
        """The servers of the tools, each once, in the order given; "" where none is known."""
        return tuple(dict.fromkeys(tool.server for tool in self.tools))

    @cached_property
    def words(self) -> ToolWords:
        """The words of all tools."""
        return ToolWords.of(self.tools)

    @cached_property
    def _places(self) -> dict[str, int]:
        places: dict[str, int] = {}
        for place, tool in enumerate(self.tools):
            places.setdefault(tool.name, place)
        return places

    def place_of(self, name: str) -> int | None:
        """Returns the place of the first tool of a name among all; None where there is none."""
        return self._places.get(name)

    def named(self, name: str) -> KnownTool | None:
        """Returns the first tool of a name."""
        place = self.place_of(name)
        if place is None:
            return None
        return self.tools[place]

    def tokens(self, counter: TokenCounter) -> tuple[int, ...]:
        """Returns the tokens of every tool as it is sent, without the frame that all share."""
        if isinstance(counter, CalibratedCounter):  # corrections change with every answer
            return tuple(map(counter.corrected, self.tokens(counter.inner)))
        name = counter.identity
        if name not in self._tokens:
            self._tokens[name] = tuple(counter.count_tool(tool.given) for tool in self.tools)
        return self._tokens[name]

    def label_of(self, place: int) -> str:
        """Returns what the tool at a place is called in reports: its name, or else its number."""
        return self.tools[place].name or f"tool {place + 1}"

    def total_tokens(self, places: Sequence[int], counter: TokenCounter) -> int:
        """Returns the tokens of some of the tools together, the frame that they share included."""
        if not places:
            return 0
        if isinstance(counter, CalibratedCounter):
            return counter.corrected(self.total_tokens(places, counter.inner))
        tokens = self.tokens(counter)
        return TOOLS_END_TOKENS + sum(tokens[place] for place in places)

    def index(self, embeddings: Embeddings | None) -> Flow[ToolIndex]:
        """Returns what is searched of the tools: their words, and their vectors.

        Args:
            embeddings: Make the vectors, once for a set; without any, words alone are searched.

        Raises:
            Exception: What the embeddings raise.
        """
        if embeddings is None:
            return ToolIndex(self.words)
        known = self._indexes.get(id(embeddings))
        if known is not None:
            return known[1]
        index = yield from index_of(self.tools, self.words, embeddings)
        self._indexes[id(embeddings)] = (embeddings, index)
        while len(self._indexes) > REMEMBERED_INDEXES:
            self._indexes.popitem(last=False)
        return index

    def vector_of(self, query: str, embeddings: Embeddings) -> Flow[Sequence[float]]:
        """Returns the vector of a query, which every call of an agent's loop asks for again.

        Raises:
            Exception: What the embeddings raise.
        """
        key = (id(embeddings), query)
        known = self._queries.get(key)
        if known is not None:
            return known[1]
        vector = yield from embed_query(embeddings, query)
        self._queries[key] = (embeddings, vector)
        while len(self._queries) > REMEMBERED_QUERIES:
            self._queries.popitem(last=False)
        return vector


class _RememberedSets:
    """The newest sets, found by the identity of their tools; a tool that has changed is noticed."""

    def __init__(self) -> None:
        self._mutex = new_mutex()
        self._sets: OrderedDict[tuple[int, ...], tuple[list[Any], ToolSet]] = OrderedDict()
        """By the ids of the tools as they were given: how these read then, and their set. The set
        holds the tools, so that no other object gets one of the ids."""

    def set_of(self, given: Sequence[Any]) -> ToolSet:
        key = tuple(map(id, given))
        now = list(map(_read_from, given))
        with self._mutex:
            remembered = self._sets.get(key)
            if remembered is not None and remembered[0] == now:
                self._sets.move_to_end(key)
                return remembered[1]
            alike = next((known for then, known in self._sets.values() if then == now), None)
        if alike is None:
            tool_set = ToolSet(given)
        else:
            tool_set = alike.with_given(given)
        with self._mutex:
            self._sets[key] = ([_copied(each, _DEPTH) for each in now], tool_set)
            self._sets.move_to_end(key)
            while len(self._sets) > REMEMBERED_SETS:
                self._sets.popitem(last=False)
        return tool_set


def _read_from(tool: Any) -> Any:  # noqa: ANN401 - tools come in any type
    """Returns that from which a tool is read; where it is equal, it reads the same."""
    if type(tool) is dict or isinstance(tool, Mapping):  # the first is asked in no time
        return tool
    if hasattr(tool, "args_schema"):  # LangChain's class of tools takes long to import
        return [type(tool), *(getattr(tool, name, None) for name in _CHANGEABLE)]
    return tool


def _copied(value: Any, depth: int) -> Any:  # noqa: ANN401
    """Returns a copy of the dictionaries and lists of a value, with the same objects in them."""
    if depth and isinstance(value, Mapping):
        return {key: _copied(each, depth - 1) for key, each in value.items()}
    if depth and isinstance(value, list):
        return [_copied(each, depth - 1) for each in value]
    return value


_REMEMBERED = _RememberedSets()


def ranked(
    tool_set: ToolSet,
    query: str,
    embeddings: Embeddings | None,
    servers: Collection[str] = (),
) -> Flow[Scores]:
    """Returns how well every tool of a set fits a question or a search.

    Args:
        tool_set: The tools.
        query: What is looked for.
        embeddings: Make vectors; without any, words alone are compared.
        servers: Servers of which tools were used already.

    Raises:
        Exception: What the embeddings raise; `ranked_by_words` is what is left then.
    """
    index = yield from tool_set.index(embeddings)
    vector = None
    if embeddings is not None:
        vector = yield from tool_set.vector_of(query, embeddings)
    return index.ranked(query, vector, servers)


def ranked_by_words(tool_set: ToolSet, query: str, servers: Collection[str] = ()) -> Scores:
    """Returns how well the words of every tool of a set fit a question or a search."""
    return ToolIndex(tool_set.words).ranked(query, servers=servers)
