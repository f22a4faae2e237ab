"""One search over a user's messages, facts and documents, and the reranking of its results."""

from collections.abc import Collection, Iterable, Sequence
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
from langchain_ctxbudget.retrieval.pool import NamedDocument, Pool, gather
from langchain_ctxbudget.retrieval.searched import Other, Searched, without_names
from langchain_ctxbudget.retrieval.selecting import SELECTION
from langchain_ctxbudget.search import PRIORITIES, Candidate, Vectors
from langchain_ctxbudget.settings import RetrievalSettings, Source

if TYPE_CHECKING:
    from langchain_ctxbudget.documents import Catalogue

MOST_DOCUMENTS = 50
"""Parts of documents that a search takes, and texts that a reranker is given."""
NOT_SEARCHED = "documents not searched"
_YEAR_DAYS = 365


@dataclass(frozen=True, slots=True)
class BoostPolicy:
    """What texts gain at most, as shares of the distance between the best key and the last."""

    recency: float = 0.2
    """For a text of today."""
    names: float = 0.3
    """For a text with all entities of the message."""


BOOST = BoostPolicy()


@dataclass(frozen=True, slots=True)
class Sources:
    """Where a search looks besides the open conversation."""

    catalogue: "Catalogue"
    """The documents of a store, which is searched for messages, too."""
    user_id: str
    names: Collection[Source]
    """The sources that are searched."""
    embeddings: Embeddings | None = None
    without_conversation: str | None = None
    """The conversation that is open."""
    memories: Sequence[Candidate] = ()
    summaries_only: bool = False
    """Documents that messages name come as their summaries, and others not at all."""
    vectors: dict[bytes, Vectors] = field(default_factory=dict)
    """Vectors of what was found before, by digests of the texts."""
    others: OtherConversations = field(default_factory=OtherConversations)

    def read(self, query: Query, failures: list[str]) -> Flow[tuple[tuple[Other, ...], Elsewhere]]:
        """Returns what a query may be about, and what is known of other conversations.

        Args:
            query: What is asked.
            failures: Gets a line for each source that fails; it is empty then.
        """
        conversations = yield from self._read_conversations(query, failures)
        chunks = yield from self._read_documents(query, failures)
        memories = self.memories if "memories" in self.names else ()
        return (*conversations.candidates, *chunks, *memories), conversations

    def _read_conversations(self, query: Query, failures: list[str]) -> Flow[Elsewhere]:
        """Returns what may be meant in other conversations."""
        if "conversations" not in self.names:
            return NOWHERE
        reading = self.others.read(
            self.catalogue.store,
            self.user_id,
            query,
            without_conversation=self.without_conversation,
            failures=failures,
        )
        what_failed = "other conversations not searched"
        return (yield from with_fallback(reading, NOWHERE, what_failed, failures))

    def _read_documents(self, query: Query, failures: list[str]) -> Flow[list[Candidate]]:
        """Returns the parts of documents that may be meant."""
        if "documents" not in self.names or self.summaries_only:
            return []
        from langchain_ctxbudget.documents import SHARED, owner_of  # noqa: PLC0415 - where there may be some

        searching = self.catalogue.search(
            (owner_of(self.user_id), SHARED),
            query.text,
            limit=MOST_DOCUMENTS,
            embeddings=self.embeddings,
            failures=failures,
        )
        scored_chunks = yield from with_fallback(searching, (), NOT_SEARCHED, failures)
        return [chunk for chunk, _ in scored_chunks]

    def read_named(
        self, texts: Sequence[str], max_tokens: int, failures: list[str]
    ) -> Flow[tuple[NamedDocument, ...]]:
        """Returns the documents that messages name, the last one first.

        Args:
            texts: The messages, the oldest first.
            max_tokens: A document comes whole where it has no more.
            failures: Gets a line if documents cannot be read.
        """
        if "documents" not in self.names:
            return ()
        reading = self.catalogue.named_documents(self.user_id, texts, max_tokens=max_tokens)
        documents = yield from with_fallback(reading, (), NOT_SEARCHED, failures)
        if self.summaries_only:
            return tuple((None, summary) for _, summary in documents)
        return tuple(documents)


def search(
    sources: Sources, query: str, limit: int, conversation: Conversation | None = None
) -> Flow[tuple[list[Document], list[str]]]:
    """Returns the texts that are most relevant to a query, best first, and what failed."""
    failures: list[str] = []
    opened = Searched.of(conversation) if conversation else Searched()
    parsed = Query(query, sources.embeddings, without_names(query, opened.names))
    others, found = yield from sources.read(parsed, failures)
    searched = replace(opened, elsewhere=sources.vectors, embedded_query=parsed.embedded)
    pool = yield from gather(searched, query, sources.embeddings, failures, others, found=found)
    best = pool.best(pool.ranking.relevance, limit)
    return [document(pool, number, conversation) for number in best], failures


def boosted(
    pool: Pool, settings: RetrievalSettings, names: Collection[str], today: date | None
) -> Pool:
    """Raises new texts, and texts with the message's entities, as far as the settings say.

    Args:
        pool: All texts, ranked.
        settings: The weights of both.
        names: The names of the entities of the message.
        today: The day on which the message is written.
    """
    raises_new = bool(settings.recency_weight and today)
    raises_named = bool(settings.entity_weight and names)
    if not raises_new and not raises_named:
        return pool
    best = pool.best(pool.ranking.keys, settings.candidates or SELECTION.candidates)
    folded_names = {fold(name) for name in names}
    boost = np.zeros(len(pool.ranking.keys))
    for number in best:
        boost[number] = _boost_of(pool.text(number), settings, folded_names, today)
    distance = float(np.ptp(pool.ranking.keys[best])) if best else 0.0
    return replace(pool, ranking=pool.ranking.with_part("boost", boost * distance))


def _boost_of(
    text: Other | Entry,
    settings: RetrievalSettings,
    folded_names: Collection[str],
    today: date | None,
) -> float:
    """Returns by how much a text is raised, as a share of the distance of keys."""
    recency = 0.0
    if text.date and today:
        recency = _recency(text.date, today)
    share_of_names = _share_of_names(text.text, folded_names)
    for_recency = settings.recency_weight * BOOST.recency * recency
    return for_recency + settings.entity_weight * BOOST.names * share_of_names


def _share_of_names(text: str, folded_names: Collection[str]) -> float:
    """Returns the share of some names that a text has, 0 to 1."""
    if not folded_names:
        return 0.0
    folded = fold(text)
    return sum(name in folded for name in folded_names) / len(folded_names)


def weighted(pool: Pool, weights: Sequence[float] | None, today: date | None) -> Pool:
    """Puts memories into the order of their weighted parts, at the places that they have.

    Args:
        pool: All texts, ranked.
        weights: The weights of likeness, certainty, recency and importance; None leaves the order.
        today: The day on which the message is written.
    """
    if weights is None:
        return pool
    numbers = [
        number
        for number, text in enumerate(pool.others)
        if text.source == "memories" and pool.may_be_quoted[number]
    ]
    if not numbers:
        return pool
    at = np.array(numbers, np.intp)
    parts = [_parts_of_memory(pool.others[number], today) for number in numbers]
    scores = np.column_stack((pool.likeness[at], parts)) @ weights
    return _in_order(pool, at[np.argsort(-scores, kind="stable")], "memories")


def _parts_of_memory(memory: Other, today: date | None) -> list[float]:
    """Returns the certainty, the recency and the importance of a memory, 0 to 1 each."""
    return [memory.certainty, _recency(memory.date, today), PRIORITIES[memory.kind] / 100]


def _in_order(pool: Pool, numbers: NDArray[np.intp], why: str) -> Pool:
    """Gives the values of some texts to these in another order, best first."""
    keys = pool.ranking.keys.copy()
    keys[numbers] = np.sort(keys[numbers])[::-1]
    return replace(pool, ranking=pool.ranking.with_part(why, keys - pool.ranking.keys))


def _recency(day: str | None, today: date | None) -> float:
    """Returns 1 for a text of today or of an unknown day, and 1 / e for one that is a year old."""
    days = 0
    if day and today:
        days = max(0, (today - date.fromisoformat(day)).days)
    return float(np.exp(-days / _YEAR_DAYS))


def rerank(
    pool: Pool,
    reranker: BaseDocumentCompressor,
    failures: list[str],
    conversation: Conversation,
    most: int | None,
) -> Flow[Pool]:
    """Puts the best texts of a pool in a reranker's order, what it leaves out after them.

    Args:
        pool: All texts, ranked.
        reranker: Orders documents by a query.
        failures: Gets a line if the reranker fails, or gives back fewer documents.
        conversation: The conversation that is open.
        most: How many texts it is given at most.
    """
    best = pool.best(pool.ranking.keys, most or MOST_DOCUMENTS)
    if not best:
        return pool
    name = type(reranker).__name__
    query = pool.question.text
    documents = [_for_reranker(document(pool, number, conversation)) for number in best]
    numbers = {text.metadata["id"]: number for text, number in zip(documents, best, strict=True)}
    try:
        answer: Sequence[Document] = yield Call(
            lambda: reranker.compress_documents(documents, query),
            lambda: reranker.acompress_documents(documents, query),
        )
        chosen = _numbers_in_answer(answer, numbers)
    except Exception as error:  # noqa: BLE001 - whatever a reranker raises, there is an order without it
        failures.append(f"reranker {name}: {type(error).__name__}: {error}")
        return pool
    if len(chosen) < len(best):
        failures.append(
            f"reranker {name}: gave back {len(chosen)} of {len(best)} documents; "
            "others follow as found"
        )
    order = list(dict.fromkeys((*chosen, *best)))
    return _in_order(pool, np.array(order, np.intp), "reranker")


def _for_reranker(text: Document) -> Document:
    """Returns a document with the name of who said it in its text: a question may name them."""
    speaker = text.metadata["speaker"]
    if speaker:
        text.page_content = f"{speaker}: {text.page_content}"
    return text


def _numbers_in_answer(answer: Iterable[Document], numbers: dict[str, int]) -> list[int]:
    """Returns the numbers of the documents that a reranker gave back, each once.

    Many rerankers copy text and metadata alone, so documents are known by an id in their metadata.
    """
    ids = [str(text.metadata.get("id")) for text in answer]
    return list(dict.fromkeys(numbers[text_id] for text_id in ids if text_id in numbers))


def document(pool: Pool, number: int, conversation: Conversation | None) -> Document:
    """Returns a text as a LangChain document.

    A message also names its `conversation_id` and `reference`. Its `score` is its relevance,
    whatever it costs; `value`, of its `scores`, is the worth of a token of it.
    """
    text = pool.text(number)
    if isinstance(text, Entry):
        text = _as_candidate(text, conversation)
    parts = pool.ranking.scores(number)
    metadata: dict[str, Any] = {
        "id": text.id,
        "found_in": text.source,
        "source": text.metadata.get("source", text.source),
        "title": text.title,
        "date": text.date or "",
        "speaker": text.speaker,
        "score": float(pool.ranking.relevance[number]),
        "scores": {**parts, "value": round(float(pool.ranking.keys[number]), 3)},
    }
    if text.source == "conversations":
        metadata["conversation_id"] = text.title
        metadata["reference"] = text.id.partition("/")[2]
    from langchain_ctxbudget.documents import beside  # noqa: PLC0415 - where there may be some

    shown_already = ("source", "title", "date")
    given = {name: value for name, value in text.metadata.items() if name not in shown_already}
    return Document(text.text, id=text.id, metadata=beside(given, metadata))


def _as_candidate(entry: Entry, conversation: Conversation | None) -> Candidate:
    """Returns a message of the open conversation as if it were of another one."""
    title = conversation.scope.conversation_id if conversation else ""
    return Candidate(
        id=message_reference(title, entry.id),
        source="conversations",
        title=title,
        text=entry.text,
        speaker=entry.speaker,
        date=entry.date,
    )
