"""One search over a user's messages, the facts about them and their documents.

And its reranking.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from typing import TYPE_CHECKING, Any

import numpy as np
from langchain_core.documents import BaseDocumentCompressor, Document
from langchain_core.embeddings import Embeddings
from numpy.typing import NDArray

from langchain_ctxbudget.flow import Call, Flow, with_fallback
from langchain_ctxbudget.history import (
    NOWHERE,
    Conversation,
    Elsewhere,
    Entry,
    OtherConversations,
    Query,
    message_reference,
)
from langchain_ctxbudget.messages import fold
from langchain_ctxbudget.retrieval.pool import Named, Other, Pool, Searched, gather, without_names
from langchain_ctxbudget.retrieval.selecting import CANDIDATES
from langchain_ctxbudget.search import PRIORITIES, Candidate, Vectors
from langchain_ctxbudget.settings import RetrievalSettings, Source

if TYPE_CHECKING:
    from langchain_ctxbudget.documents import Catalogue

CHUNKS = 50
"""Candidates that a search takes from documents."""
RERANKED = 50
NOT_SEARCHED = "documents not searched"
RECENCY_BOOST = 0.2
NAMES_BOOST = 0.3
YEAR_DAYS = 365


@dataclass(frozen=True, slots=True)
class Sources:
    """Where a search looks besides the open conversation."""

    catalogue: "Catalogue"
    """The documents of a store, which is searched for messages, too."""
    user_id: str
    names: Collection[Source]
    embeddings: Embeddings | None = None
    without_conversation: str | None = None
    memories: Sequence[Candidate] = ()
    summaries_only: bool = False
    """Documents that messages name come as their summaries, and others not at all."""
    vectors: dict[bytes, Vectors] = field(default_factory=dict)
    """Vectors of what was found before, by digests of the texts."""
    others: OtherConversations = field(default_factory=OtherConversations)

    def read(self, query: Query, failures: list[str]) -> Flow[tuple[tuple[Other, ...], Elsewhere]]:
        """Returns what a query may be about, and what is known of other conversations.

        A source that fails is empty.
        """
        found: list[Other] = []
        said = NOWHERE
        if "conversations" in self.names:
            store = self.catalogue.store
            opened = self.without_conversation
            reading = self.others.read(
                store, self.user_id, query, without_conversation=opened, failures=failures
            )
            said = yield from with_fallback(
                reading, NOWHERE, "other conversations not searched", failures
            )
            found += said.candidates
        if "documents" in self.names and not self.summaries_only:
            from langchain_ctxbudget.documents import SHARED, owner_of  # noqa: PLC0415 - where there may be some

            owners = (owner_of(self.user_id), SHARED)
            chunks = self.catalogue.search(
                owners, query.text, limit=CHUNKS, embeddings=self.embeddings, failures=failures
            )
            found += [
                chunk for chunk, _ in (yield from with_fallback(chunks, (), NOT_SEARCHED, failures))
            ]
        return (*found, *(self.memories if "memories" in self.names else ())), said

    def read_named(
        self, texts: Sequence[str], max_tokens: int, failures: list[str]
    ) -> Flow[tuple[Named, ...]]:
        """Returns the documents that messages name, the last one first, whole where they have up to `max_tokens`."""
        if "documents" not in self.names:
            return ()
        reading = self.catalogue.named(self.user_id, texts, max_tokens=max_tokens)
        found = yield from with_fallback(reading, (), NOT_SEARCHED, failures)
        return tuple((None if self.summaries_only else whole, summary) for whole, summary in found)


def search(
    sources: Sources, query: str, limit: int, conversation: Conversation | None = None
) -> Flow[tuple[list[Document], list[str]]]:
    """Returns the texts that are most relevant to a query, best first, and what failed on the way."""
    failures: list[str] = []
    opened = Searched.of(conversation) if conversation else Searched()
    asked = Query(query, sources.embeddings, without_names(query, opened.names))
    others, found = yield from sources.read(asked, failures)
    searched = replace(opened, elsewhere=sources.vectors, asked=asked.embedded)
    pool = yield from gather(searched, query, sources.embeddings, failures, others, found=found)
    return [
        document(pool, number, conversation) for number in pool.best(pool.ranking.relevance, limit)
    ], failures


def boosted(
    pool: Pool, settings: RetrievalSettings, names: Collection[str], today: date | None
) -> Pool:
    """Raises new texts, and texts that name the message's entities, by shares of the distance of keys (seed 004)."""
    if not (settings.recency_weight and today) and not (settings.entity_weight and names):
        return pool
    best = pool.best(pool.ranking.keys, settings.candidates or CANDIDATES)
    boost = np.zeros(len(pool.ranking.keys))
    called = {fold(name) for name in names}
    for number in best:
        text = pool.text(number)
        said = fold(pool.text(number).text) if called else ""
        new = _recency(text.date, today) if text.date and today else 0.0
        shared = sum(name in said for name in called) / max(1, len(called))
        boost[number] = (
            settings.recency_weight * RECENCY_BOOST * new
            + settings.entity_weight * NAMES_BOOST * shared
        )
    distance = float(np.ptp(pool.ranking.keys[best])) if best else 0.0
    return replace(pool, ranking=pool.ranking.with_part("boost", boost * distance))


def weighted(pool: Pool, weights: Sequence[float] | None, today: date | None) -> Pool:
    """Gives the places that memories have in a ranking to these in the order of their weighted parts (seed 002)."""
    at = np.array(
        [number for number, text in enumerate(pool.others) if text.source == "memories"], np.intp
    )
    if weights is None or not len(at := at[pool.meant[at]]):
        return pool
    memories = [pool.others[number] for number in at]
    parts = [
        [one.certainty, _recency(one.date, today), PRIORITIES[one.kind] / 100] for one in memories
    ]
    scores = np.column_stack((pool.likeness[at], parts)) @ weights
    return _in_order(pool, at[np.argsort(-scores, kind="stable")], "memories")


def _in_order(pool: Pool, numbers: NDArray[np.intp], why: str) -> Pool:
    """Gives the values of some texts to these in another order, best first."""
    keys = pool.ranking.keys.copy()
    keys[numbers] = np.sort(keys[numbers])[::-1]
    return replace(pool, ranking=pool.ranking.with_part(why, keys - pool.ranking.keys))


def _recency(said: str | None, today: date | None) -> float:
    """Returns 1 for a text of today or of an unknown day, and 1 / e for one that is a year old."""
    days = (today - date.fromisoformat(said)).days if said and today else 0
    return float(np.exp(-max(0, days) / YEAR_DAYS))


def rerank(
    pool: Pool,
    reranker: BaseDocumentCompressor,
    failures: list[str],
    conversation: Conversation,
    most: int | None,
) -> Flow[Pool]:
    """Puts the best texts of a pool in a reranker's order, what it leaves out after them."""
    best = pool.best(pool.ranking.keys, most or RERANKED)
    if not best:
        return pool
    name = type(reranker).__name__
    query = pool.question.text
    numbers = dict[str, int]()
    texts = list[Document]()
    for number in best:
        texts.append(said := document(pool, number, conversation))
        numbers[said.metadata["id"]] = number
        if speaker := said.metadata["speaker"]:  # a question may name who said it
            said.page_content = f"{speaker}: {said.page_content}"
    try:
        answer: Sequence[Document] = yield Call(
            lambda: reranker.compress_documents(texts, query),
            lambda: reranker.acompress_documents(texts, query),
        )
        given = (
            numbers.get(str(found.metadata.get("id"))) for found in answer
        )  # many copy text and metadata alone
        chosen = list(dict.fromkeys(number for number in given if number is not None))
    except Exception as error:  # noqa: BLE001 - whatever a reranker raises, there is an order without it
        failures.append(f"reranker {name}: {type(error).__name__}: {error}")
        return pool
    if len(chosen) < len(best):
        failures.append(
            f"reranker {name}: gave back {len(chosen)} of {len(best)} documents; others follow as found"
        )
    return _in_order(pool, np.array(list(dict.fromkeys((*chosen, *best))), np.intp), "reranker")


def document(pool: Pool, number: int, conversation: Conversation | None) -> Document:
    """Returns a text as a LangChain document.

    A message also names its `conversation_id` and `reference`.

    Its `score` is its relevance, whatever it costs; `value`, of its `scores`, is the worth of a
    token of it.
    """
    text = pool.text(number)
    if isinstance(text, Entry):
        title = conversation.scope.conversation_id if conversation else ""
        said: dict[str, Any] = {"text": text.text, "speaker": text.speaker, "date": text.date}
        text = Candidate(
            id=message_reference(title, text.id), source="conversations", title=title, **said
        )
    metadata = {
        "id": text.id,
        "found_in": text.source,
        "source": text.metadata.get("source", text.source),
        "title": text.title,
        "date": text.date or "",
        "speaker": text.speaker,
        "score": float(pool.ranking.relevance[number]),
        "scores": {
            **pool.ranking.scores(number),
            "value": round(float(pool.ranking.keys[number]), 3),
        },
    }
    if text.source == "conversations":
        metadata |= {"conversation_id": text.title, "reference": text.id.partition("/")[2]}
    from langchain_ctxbudget.documents import beside  # noqa: PLC0415 - where there may be some

    given = {
        name: value
        for name, value in text.metadata.items()
        if name not in ("source", "title", "date")
    }
    return Document(text.text, id=text.id, metadata=beside(given, metadata))
