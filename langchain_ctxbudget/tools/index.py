"""What is searched of a set of tools: words by BM25, and vectors of any embeddings."""

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from langchain_core.embeddings import Embeddings

from langchain_ctxbudget import search
from langchain_ctxbudget.flow import Flow, embed
from langchain_ctxbudget.messages import terms
from langchain_ctxbudget.tools.known import KnownTool
from langchain_ctxbudget.tools.signatures import object_within, properties_of


@dataclass(frozen=True, slots=True)
class ToolSearchPolicy:
    """How tools are ranked for a question or a search."""

    name_weight: int = 3
    """How often the words of a name, and of its server, count among those of its tool."""
    description_weight: int = 2
    parameters_weight: int = 1
    words: float = 2.0
    """The share of a query's words that a tool has, 0 to 1, counts so much beside its cosine."""
    server_in_use: float = 0.3
    """Added to the tools of a server of which a tool was used: half of a fair score."""


TOOL_SEARCH = ToolSearchPolicy()
_WORDS_IN_NAME = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|[_\-./:]+")
"""Where a name in camel case or snake case is cut into words."""
MOST_DEPTH = 3
"""How deep parameters of parameters are read."""
EMBEDDED_CHARACTERS = 2_000
"""Characters of a tool that are embedded, from its name on."""


@dataclass(frozen=True, slots=True)
class ToolWords:
    """The words of every tool."""

    servers: tuple[str, ...]
    """The server of every tool."""
    index: search.LexicalIndex

    @classmethod
    def of(cls, tools: Sequence[KnownTool]) -> "ToolWords":
        """Reads the words of tools: those of names count more than those of parameters."""
        index = search.LexicalIndex()
        for tool in tools:
            counts: Counter[str] = Counter()
            for text, weight in _weighted_texts(tool):
                for term in terms(text):
                    counts[term] += weight
            index.extend([counts])
        return cls(tuple(tool.server for tool in tools), index)

    def shares(self, query: str) -> search.Scores:
        """Returns for every tool the share of a query's words that it has, 0 to 1.

        It is BM25 of what BM25 can be at most, so that it compares between queries.
        """
        query_terms = terms(words_of_name(query))
        most = sum(self.index.rarities(query_terms).values()) * (search.BM25_K1 + 1)
        return self.index.scores(query_terms) / max(most, 1e-9)


@dataclass(frozen=True, slots=True)
class ToolIndex:
    """What is searched of a set of tools."""

    words: ToolWords
    compared: search.Compared | None = None
    """A vector for every tool; None where words alone are searched."""
    width: int = 0
    """The number of values of a vector."""

    def ranked(
        self,
        query: str,
        vector: Sequence[float] | None = None,
        servers: Collection[str] = (),
    ) -> search.Scores:
        """Returns how well every tool fits: below 0.4 hardly, from 1 on well; 3 is the most.

        Args:
            query: A question, or the words of a search.
            vector: The vector of the query, by the embeddings of this index.
            servers: Servers of which tools were used in this conversation.
        """
        shares = self.words.shares(query)
        cosines = shares  # without vectors, words stand for the meaning, so that scores compare
        if vector is not None and self.compared is not None:
            cosines = self.compared.cosines(search.as_query(vector, self.width))
        scores = TOOL_SEARCH.words * shares + cosines
        if servers:
            in_use = np.array([server in servers for server in self.words.servers])
            scores = scores + TOOL_SEARCH.server_in_use * in_use
        return scores


def order_of(scores: search.Scores) -> list[int]:
    """Returns the places of tools, the best first; of equal ones the first given."""
    return [int(place) for place in np.argsort(-scores, kind="stable")]


def index_of(
    tools: Sequence[KnownTool], words: ToolWords, embeddings: Embeddings
) -> Flow[ToolIndex]:
    """Embeds tools, each as one text, and returns what is searched of them."""
    rows = yield from embed(embeddings, [text_of(tool) for tool in tools])
    width = len(rows[0]) if rows else 0
    vectors = search.CentredVectors()
    vectors.extend(search.comparable(rows, width))
    return ToolIndex(words, vectors.compared(), width)


def text_of(tool: KnownTool) -> str:
    """Returns a tool as one text, what matters most first."""
    texts = [text for text, _ in _weighted_texts(tool)]
    return "\n".join(texts)[:EMBEDDED_CHARACTERS]


def words_of_name(name: str) -> str:
    """Returns a name as words: `searchPapers` and `search_papers` are both "search Papers"."""
    return _WORDS_IN_NAME.sub(" ", name)


def _weighted_texts(tool: KnownTool) -> Iterator[tuple[str, int]]:
    """Yields the texts of a tool, each with how often its words count."""
    yield words_of_name(tool.name), TOOL_SEARCH.name_weight
    yield words_of_name(tool.server), TOOL_SEARCH.name_weight
    yield tool.description, TOOL_SEARCH.description_weight
    parameters = _parameter_texts(tool.parameters, tool.parameters, MOST_DEPTH)
    yield "\n".join(parameters), TOOL_SEARCH.parameters_weight


def _parameter_texts(
    schema: Mapping[str, Any], root: Mapping[str, Any], depth: int
) -> Iterator[str]:
    """Yields the name and the description of every parameter, and of those within it."""
    for name, parameter in properties_of(schema, root).items():
        yield f"{words_of_name(name)} {parameter.get('description') or ''}"
        if depth:
            yield from _parameter_texts(object_within(parameter, root), root, depth - 1)
