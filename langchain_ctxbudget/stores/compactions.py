"""What a model has written about the spans of a conversation, kept under the hash of their content."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime

from langgraph.store.base import BaseStore, GetOp, Item, PutOp

from langchain_ctxbudget.core.digest import Digest, Sentence
from langchain_ctxbudget.core.importance import Kind
from langchain_ctxbudget.core.text import terms
from langchain_ctxbudget.errors import StoreDataError
from langchain_ctxbudget.flow import Flow, batch
from langchain_ctxbudget.stores.bulk import read_all
from langchain_ctxbudget.stores.records import Record, Scope

COMPACTIONS = "compactions"


class KeptSentence(Record):
    """One sentence of a summary, with what later choices among them go by."""

    text: str
    kind: Kind
    score: float
    date: str | None = None
    speaker: str = ""
    position: int
    """Its message, counted from the first one of the span."""
    order: int


class ConversationCompaction(Record):
    """A summary of a range of messages (seed 000, `ConversationCompaction`).

    Example:
        >>> from langchain_ctxbudget import ContextPipeline
        >>> ContextPipeline().get_compactions(user_id="ada", conversation_id="c1")
        []
    """

    id: str
    """A hash of the range's content: the same messages are never summarised twice."""
    conversation_id: str
    from_message_index: int
    """The position of the first message, from 0, when the summary was made."""
    to_message_index: int
    """The position of the last message."""
    original_token_count: int
    """What the messages cost, in tokens."""
    compacted_token_count: int
    """What the summary costs, in tokens."""
    summary: str
    key_decisions: tuple[str, ...] = ()
    open_questions: tuple[str, ...] = ()
    code_artifacts: tuple[str, ...] = ()
    compression_ratio: float
    """Original tokens / compacted tokens."""
    compaction_level: int
    """1 for a summary of messages, 2 for one of five summaries, and so on."""
    made_by: str
    """`extraction`, or the name of the model that wrote it."""
    narrative: str = ""
    """The conversation up to its end, by a model."""
    context: str = ""
    """A digest of the messages before the range, of which the model was told."""
    sentences: tuple[KeptSentence, ...] = ()
    created_at: datetime | None = None
    """When a model wrote it; an extraction can be made at any time, always the same."""

    @classmethod
    def of(
        cls,
        digest: Digest,
        *,
        key: str,
        conversation_id: str,
        original_tokens: int,
        compacted_tokens: int,
        created_at: datetime | None = None,
    ) -> ConversationCompaction:
        """The record of a digest.

        Args:
            digest: what is kept of the range.
            key: the hash of its content.
            conversation_id: whose it is.
            original_tokens: what the messages cost.
            compacted_tokens: what the digest's sentences cost.
            created_at: when it was written.
        """
        opens = [sentence.text for sentence in digest.sentences if sentence.kind is Kind.OPEN]
        return cls(
            id=key,
            conversation_id=conversation_id,
            from_message_index=digest.first,
            to_message_index=digest.end - 1,
            original_token_count=original_tokens,
            compacted_token_count=compacted_tokens,
            summary="\n".join(sentence.text for sentence in digest.sentences),
            key_decisions=tuple(s.text for s in digest.sentences if s.kind is Kind.DECISION),
            open_questions=digest.open_questions or tuple(opens),
            code_artifacts=digest.artifacts,
            compression_ratio=round(original_tokens / max(1, compacted_tokens), 2),
            compaction_level=digest.level,
            made_by=digest.made_by,
            narrative=digest.narrative,
            context=digest.context,
            sentences=tuple(
                KeptSentence(
                    text=s.text,
                    kind=s.kind,
                    score=s.score,
                    date=s.date,
                    speaker=s.speaker,
                    position=s.position - digest.first,
                    order=s.order,
                )
                for s in digest.sentences
            ),
            created_at=created_at,
        )

    def to_digest(self) -> Digest:
        """The digest, at the place where it was made."""
        first = self.from_message_index
        return Digest(
            first=first,
            end=self.to_message_index + 1,
            level=self.compaction_level,
            sentences=tuple(
                Sentence(
                    position=first + s.position,
                    order=s.order,
                    speaker=s.speaker,
                    date=s.date,
                    text=s.text,
                    score=s.score,
                    kind=s.kind,
                    terms=frozenset(terms(s.text)),
                )
                for s in self.sentences
            ),
            artifacts=self.code_artifacts,
            made_by=self.made_by,
            narrative=self.narrative,
            open_questions=self.open_questions,
            context=self.context,
        )


def read(store: BaseStore, scope: Scope, keys: Sequence[str]) -> Flow[dict[str, Digest]]:
    """What was written about the spans of these hashes, where anything was; what cannot be read is made again."""
    places = [GetOp(scope.namespace(COMPACTIONS), key) for key in keys]
    items = yield from batch(store, places)
    found: dict[str, Digest] = {}
    for key, item in zip(keys, items, strict=True):
        if isinstance(item, Item):
            try:
                found[key] = ConversationCompaction.read(item.value, f"compaction {key!r}").to_digest()
            except StoreDataError:
                continue
    return found


def saving(scope: Scope, compaction: ConversationCompaction) -> PutOp:
    """The write of a compaction."""
    return PutOp(scope.namespace(COMPACTIONS), compaction.id, compaction.to_value(), index=False)


def written_besides(store: BaseStore, scope: Scope, contents: Collection[str]) -> Flow[list[str]]:
    """The hashes of everything that was written, but about these contents.

    Args:
        store: where to look.
        scope: whose conversation.
        contents: hashes of the contents, without the model's.
    """
    items = yield from read_all(store, scope.namespace(COMPACTIONS))
    return [item.key for item in items if item.key.partition("-")[0] not in contents]


def deleting(scope: Scope, keys: Sequence[str]) -> list[PutOp]:
    """The deletion of compactions."""
    return [PutOp(scope.namespace(COMPACTIONS), key, None) for key in keys]
