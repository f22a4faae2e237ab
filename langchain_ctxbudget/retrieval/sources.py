"""One search over what a user has said, what is known about them, and their documents; and its reranking."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from langchain_core.callbacks import Callbacks
from langchain_core.documents import BaseDocumentCompressor, Document
from langchain_core.embeddings import Embeddings

from langchain_ctxbudget.flow import Call, Flow, T
from langchain_ctxbudget.history import Conversation, OtherConversations, message_reference
from langchain_ctxbudget.retrieval.pool import Named, Pool, Searched, gather
from langchain_ctxbudget.search import Candidate
from langchain_ctxbudget.settings import Source

if TYPE_CHECKING:
    from langchain_ctxbudget.documents import Catalogue

OTHER_MESSAGES, CHUNKS = 200, 50
"""Candidates that a search takes from the user's other conversations, and from documents."""
RERANKED = 50
"""So many of the best texts are given to a reranker."""


@dataclass(frozen=True, slots=True)
class Hit:
    """A text that was found."""

    candidate: Candidate
    score: float
    """Its relevance among what was found for the query; its cost does not count."""
    scores: Mapping[str, float] = field(default_factory=dict)
    """The parts of the ranking; `value` is the worth of a token of it."""


@dataclass(frozen=True, slots=True)
class Sources:
    """Where a search looks besides the open conversation."""

    catalogue: Catalogue
    """The documents of a store, which is searched for messages, too."""
    user_id: str
    names: Collection[Source]
    embeddings: Embeddings | None = None
    without_conversation: str | None = None
    """The open one."""
    memories: Sequence[Candidate] = ()
    summaries_only: bool = False
    """Documents that messages name come as their summaries, and others not at all."""

    def read(
        self, query: str, failures: list[str], *, other_conversations: OtherConversations | None = None
    ) -> Flow[tuple[Candidate, ...]]:
        """Returns what a query may be about; a source that fails is empty."""
        found: list[Candidate] = []
        if "conversations" in self.names:
            said = (other_conversations or OtherConversations()).read(
                self.catalogue.store,
                self.user_id,
                query,
                without_conversation=self.without_conversation,
                limit=OTHER_MESSAGES,
            )
            found += yield from _or_nothing("other conversations", said, failures)
        if "documents" in self.names and not self.summaries_only:
            from langchain_ctxbudget.documents import SHARED, owner_of  # noqa: PLC0415 - where there may be some

            owners = (owner_of(self.user_id), SHARED)
            chunks = self.catalogue.search(owners, query, limit=CHUNKS, embeddings=self.embeddings, failures=failures)
            found += [chunk for chunk, _ in (yield from _or_nothing("documents", chunks, failures))]
        return (*found, *(self.memories if "memories" in self.names else ()))

    def read_named(self, texts: Sequence[str], max_tokens: int, failures: list[str]) -> Flow[tuple[Named, ...]]:
        """Returns the documents that messages name, the one that was named last first.

        One of more than `max_tokens` comes as its summary alone.
        """
        if "documents" not in self.names:
            return ()
        reading = self.catalogue.named(self.user_id, texts, max_tokens=max_tokens)
        found = yield from _or_nothing("documents", reading, failures)
        result = []
        for one, text in found:
            summary = Candidate(
                id=one.id, source="documents", text=one.summary, title=one.title, date=one.date, kind="explicit"
            )
            whole = None if text is None or self.summaries_only else replace(summary, text=text)
            result.append(Named(one.id, whole, summary))
        return tuple(result)


def _or_nothing(name: str, reading: Flow[Sequence[T]] | Flow[list[T]], failures: list[str]) -> Flow[Sequence[T]]:
    try:
        return (yield from reading)
    except Exception as error:  # noqa: BLE001 - an optional layer; the turn goes on without it
        failures.append(f"{name} not searched: {type(error).__name__}: {error}")
        return ()


def search(
    sources: Sources, query: str, limit: int, conversation: Conversation | None = None
) -> Flow[tuple[list[Hit], list[str]]]:
    """Returns the texts that are most relevant to a query, best first, and what failed on the way."""
    failures: list[str] = []
    others = yield from sources.read(query, failures)
    searched = Searched.of(conversation) if conversation else Searched()
    pool, failure = yield from gather(searched, query, sources.embeddings, others)
    failures += [failure] if failure else []
    return [_hit(pool, number, conversation) for number in pool.best(pool.ranking.relevance, limit)], failures


def rerank(
    pool: Pool, query: str, reranker: BaseDocumentCompressor, conversation: Conversation
) -> Flow[tuple[Pool, str | None]]:
    """Puts the best texts of a pool in the order of a reranker, with the keys they had; returns its problem, too."""
    best = pool.best(pool.ranking.keys, RERANKED)
    keys = {number: float(pool.ranking.keys[number]) for number in best}
    hits = [replace(_hit(pool, number, conversation), score=keys[number]) for number in best]
    numbers = {hit.candidate.id: number for hit, number in zip(hits, best, strict=True)}
    ordered, problem = yield from reranked(hits, query, reranker)
    changed = pool.ranking.keys.copy()
    changed[[numbers[hit.candidate.id] for hit in ordered]] = sorted(keys.values(), reverse=True)
    parts = {**pool.ranking.components, "reranker": changed - pool.ranking.keys}
    return replace(pool, ranking=replace(pool.ranking, keys=changed, components=parts)), problem


def _hit(pool: Pool, number: int, conversation: Conversation | None) -> Hit:
    scores = {**pool.scores(number), "value": round(float(pool.ranking.keys[number]), 3)}
    position = pool.position(number)
    if position is None or conversation is None:
        candidate = pool.others[number]
    else:
        entry, name = conversation.entries[position], conversation.scope.conversation_id
        candidate = Candidate(
            id=message_reference(name, entry.id),
            source="conversations",
            text=entry.text,
            title=name,
            place=position,
            speaker=entry.speaker,
            date=entry.date,
        )
    return Hit(candidate, float(pool.ranking.relevance[number]), scores)


def reranked(
    hits: Sequence[Hit], query: str, reranker: BaseDocumentCompressor, *, callbacks: Callbacks = None
) -> Flow[tuple[list[Hit], str | None]]:
    """Returns hits in the order of a reranker, and the problem it had, or None.

    Their scores are handed out anew, highest first; a reranker's own `relevance_score` joins `scores`. What it leaves
    out follows as found. Where it raises, or gives back none, one twice, or one that is new, the order stays.
    """
    given = list(hits)
    if not given:
        return given, None
    name, texts = type(reranker).__name__, [document(hit) for hit in given]
    for said, hit in zip(texts, given, strict=True):  # a question may name who said it
        if hit.candidate.speaker:
            said.page_content = f"{hit.candidate.speaker}: {said.page_content}"
    try:
        answer: Sequence[Document] = yield Call(
            lambda: reranker.compress_documents(texts, query, callbacks=callbacks),
            lambda: reranker.acompress_documents(texts, query, callbacks=callbacks),
        )
        chosen = _chosen(given, answer)
    except Exception as error:  # noqa: BLE001 - whatever a reranker raises, there is an order without it
        return given, f"reranker {name}: {type(error).__name__}: {error}"
    order = [*chosen.values(), *(hit for hit in given if hit.candidate.id not in chosen)]
    scores = sorted((hit.score for hit in given), reverse=True)
    short = f"reranker {name}: gave back {len(chosen)} of {len(given)} documents; the others follow as found"
    ranked = [replace(hit, score=score) for hit, score in zip(order, scores, strict=True)]
    return ranked, short if len(chosen) < len(given) else None


def document(hit: Hit) -> Document:
    """Returns a hit as a LangChain document; a message also names its `conversation_id` and `reference`."""
    candidate = hit.candidate
    given = {name: value for name, value in candidate.metadata.items() if name not in ("source", "title", "date")}
    metadata = {
        "id": candidate.id,
        "found_in": candidate.source,
        "source": candidate.metadata.get("source", candidate.source),
        "title": candidate.title,
        "date": candidate.date or "",
        "speaker": candidate.speaker,
        "score": hit.score,
        "scores": dict(hit.scores),
    }
    if candidate.source == "conversations":
        metadata |= {"conversation_id": candidate.title, "reference": candidate.id.partition("/")[2]}
    from langchain_ctxbudget.documents import beside  # noqa: PLC0415 - where there may be some

    return Document(candidate.text, id=candidate.id, metadata=beside(given, metadata))


def _chosen(hits: Sequence[Hit], answer: object) -> dict[str, Hit]:
    """Returns the hits that a reranker's answer is about, by id, in its order."""
    known = {hit.candidate.id: hit for hit in hits}
    chosen: dict[str, Hit] = {}
    for found in answer if isinstance(answer, Iterable) else [answer]:
        if not isinstance(found, Document):
            raise ValueError(f"gave back a {type(found).__name__} in place of documents")  # noqa: TRY004
        key = found.id if found.id in known else found.metadata.get("id")  # many copy the text and metadata alone
        if not isinstance(key, str) or key not in known:
            raise ValueError("gave back a document that it was not given")
        if key in chosen:
            raise ValueError(f"gave back the document {key!r} twice")
        score = found.metadata.get("relevance_score")
        hit = known[key]
        chosen[key] = hit if score is None else replace(hit, scores={**hit.scores, "reranker": float(score)})
    if not chosen:
        raise ValueError("gave back no documents")
    return chosen
