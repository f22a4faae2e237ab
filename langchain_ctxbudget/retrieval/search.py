"""One search over what a user has said, what is known about them, and their documents."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from langchain_core.documents import BaseDocumentCompressor
from langchain_core.embeddings import Embeddings
from langgraph.store.base import BaseStore

from langchain_ctxbudget.documents import find as documents
from langchain_ctxbudget.flow import Flow, T
from langchain_ctxbudget.history.conversation import Conversation
from langchain_ctxbudget.history.other_conversations import OtherConversations, message_reference
from langchain_ctxbudget.retrieval.pool import Named, Pool, Searched, gather
from langchain_ctxbudget.retrieval.reranking import reranked
from langchain_ctxbudget.search.packing import Candidate
from langchain_ctxbudget.settings import Source

OTHER_MESSAGES, CHUNKS = 200, 50
"""Candidates that a search takes from the user's other conversations, and from documents."""
RERANKED = 50
"""So many of the best texts are given to a reranker."""


@dataclass(frozen=True, slots=True)
class Hit:
    """A text that was found."""

    candidate: Candidate
    score: float
    """How relevant it is, among what was found for the query; what it costs does not count."""
    scores: Mapping[str, float] = field(default_factory=dict)
    """What the parts of the ranking say; `value` is what a token of it is worth."""


@dataclass(frozen=True, slots=True)
class Sources:
    """Where a search looks besides the open conversation."""

    store: BaseStore
    user_id: str
    names: Collection[Source]
    embeddings: Embeddings | None = None
    without_conversation: str | None = None
    """The open one."""
    memories: Sequence[Candidate] = ()
    """What is known about the user."""
    summaries_only: bool = False
    """Whether documents that messages name come as their summaries, and others not at all."""

    def read(
        self, query: str, failures: list[str], *, other_conversations: OtherConversations | None = None
    ) -> Flow[tuple[Candidate, ...]]:
        """What a query may be about; a source that fails is empty.

        Args:
            query: what is asked.
            failures: what is to be reported; appended to.
            other_conversations: what was read before, where that may still hold.
        """
        found: list[Candidate] = []
        if "conversations" in self.names:
            said = (other_conversations or OtherConversations()).read(
                self.store,
                self.user_id,
                query,
                without_conversation=self.without_conversation,
                limit=OTHER_MESSAGES,
            )
            found += yield from _or_nothing("other conversations", said, failures)
        if "documents" in self.names and not self.summaries_only:
            chunks = documents.candidates(
                self.store, self.user_id, query, limit=CHUNKS, embeddings=self.embeddings, failures=failures
            )
            found += yield from _or_nothing("documents", chunks, failures)
        if "memories" in self.names:
            found += self.memories
        return tuple(found)

    def read_named(self, texts: Sequence[str], max_tokens: int, failures: list[str]) -> Flow[tuple[Named, ...]]:
        """The documents that messages name, the one that was named last first.

        Args:
            texts: the messages, oldest first.
            max_tokens: a larger document comes as its summary.
            failures: what is to be reported; appended to.
        """
        if "documents" not in self.names:
            return ()
        reading = documents.named(self.store, self.user_id, texts, max_tokens=max_tokens)
        found: Sequence[documents.NamedDocument] = yield from _or_nothing("documents", reading, failures)
        return tuple(
            Named(
                it.id,
                None if it.text is None or self.summaries_only else _of_document(it, it.text),
                _of_document(it, it.summary),
            )
            for it in found
        )


def _of_document(document: documents.NamedDocument, text: str) -> Candidate:
    return Candidate(
        id=document.id, source="documents", text=text, title=document.title, date=document.date, kind="explicit"
    )


def _or_nothing(name: str, reading: Flow[Sequence[T]] | Flow[list[T]], failures: list[str]) -> Flow[Sequence[T]]:
    try:
        return (yield from reading)
    except Exception as error:  # noqa: BLE001 - an optional layer; the turn goes on without it
        failures.append(f"{name} not searched: {type(error).__name__}: {error}")
        return ()


def search(
    sources: Sources, query: str, limit: int, conversation: Conversation | None = None
) -> Flow[tuple[list[Hit], list[str]]]:
    """The texts that are most relevant to a query, best first, and what failed on the way.

    Args:
        sources: where to look.
        query: what is asked.
        limit: how many texts at most.
        conversation: whose messages are searched, too.
    """
    failures: list[str] = []
    others = yield from sources.read(query, failures)
    searched = Searched.of(conversation) if conversation else Searched()
    pool, failure = yield from gather(searched, query, sources.embeddings, others)
    failures += [failure] if failure else []
    order = np.argsort(-pool.ranking.relevance, kind="stable")
    best = order[pool.meant[order]][:limit].tolist()
    return [_hit(pool, number, conversation) for number in best], failures


def rerank(
    pool: Pool, query: str, reranker: BaseDocumentCompressor, conversation: Conversation
) -> Flow[tuple[Pool, str | None]]:
    """A pool whose best texts are in the order of a reranker, and what went wrong with it.

    The best by value get the keys that they had among them, in the new order: which of them are taken first changes,
    and not what a token of theirs may be worth.
    """
    order = np.argsort(-pool.ranking.keys, kind="stable")
    best = order[pool.meant[order]][:RERANKED].tolist()
    keys = {number: float(pool.ranking.keys[number]) for number in best}
    hits = [replace(_hit(pool, number, conversation), score=keys[number]) for number in best]
    numbers = {hit.candidate.id: number for hit, number in zip(hits, best, strict=True)}
    ordered, problem = yield from reranked(hits, query, reranker)
    changed = pool.ranking.keys.copy()
    changed[[numbers[hit.candidate.id] for hit in ordered]] = sorted(keys.values(), reverse=True)
    reranking = {"reranker": changed - pool.ranking.keys}
    ranking = replace(pool.ranking, keys=changed, components={**pool.ranking.components, **reranking})
    return replace(pool, ranking=ranking), problem


def _hit(pool: Pool, number: int, conversation: Conversation | None) -> Hit:
    value = {"value": round(float(pool.ranking.keys[number]), 3)}
    relevance = float(pool.ranking.relevance[number])
    return Hit(_candidate(pool, number, conversation), relevance, pool.scores(number) | value)


def _candidate(pool: Pool, number: int, conversation: Conversation | None) -> Candidate:
    position = pool.position(number)
    if position is None or conversation is None:
        return pool.others[number]
    entry, name = conversation.entries[position], conversation.scope.conversation_id
    return Candidate(
        id=message_reference(name, entry.id),
        source="conversations",
        text=entry.text,
        title=name,
        place=position,
        speaker=entry.speaker,
        date=entry.date,
    )
