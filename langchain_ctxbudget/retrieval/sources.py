"""One search over a user's messages, facts and documents."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings

from langchain_ctxbudget.flow import Flow, with_fallback
from langchain_ctxbudget.history import NOWHERE, Conversation, Elsewhere, OtherConversations, Query
from langchain_ctxbudget.retrieval.found_documents import document
from langchain_ctxbudget.retrieval.ordering import Ordering, in_order
from langchain_ctxbudget.retrieval.pool import NamedDocument
from langchain_ctxbudget.retrieval.searched import Other, Searched, without_names
from langchain_ctxbudget.search import Candidate, Encoder, Vectors
from langchain_ctxbudget.settings import Source

if TYPE_CHECKING:
    from langchain_ctxbudget.documents import Catalogue

MOST_DOCUMENTS = 50
"""Parts of documents that a search takes."""
NOT_SEARCHED = "documents not searched"


@dataclass(frozen=True, slots=True)
class Sources:
    """Where a search looks besides the open conversation."""

    catalogue: "Catalogue"
    """The documents of a store, which is searched for messages, too."""
    user_id: str
    names: Collection[Source]
    """The sources that are searched."""
    embeddings: Embeddings | None = None
    encoder: Encoder | None = None
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
    sources: Sources,
    query: str,
    limit: int,
    conversation: Conversation | None = None,
    ordering: Ordering | None = None,
) -> Flow[tuple[list[Document], list[str]]]:
    """Returns the texts that prompts would take first for a query, best first, and what failed."""
    failures: list[str] = []
    opened = Searched.of(conversation) if conversation else Searched()
    parsed = Query(query, sources.embeddings, without_names(query, opened.names))
    others, found = yield from sources.read(parsed, failures)
    searched = replace(
        opened,
        elsewhere=sources.vectors,
        embedded_query=parsed.embedded,
        encoder=sources.encoder,
    )
    pool = yield from in_order(
        searched,
        query,
        sources.embeddings,
        failures,
        others=others,
        found=found,
        conversation=conversation,
        ordering=ordering or Ordering(),
    )
    best = pool.best(pool.ranking.keys, limit)
    return [document(pool, number, conversation) for number in best], failures
