"""Digests that a model wrote, as they are kept in the store under the hash of their content."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from datetime import datetime

from langgraph.store.base import BaseStore, GetOp, Item, PutOp

from langchain_ctxbudget.errors import StoreDataError
from langchain_ctxbudget.flow import Flow, batch
from langchain_ctxbudget.history.digest import Digest, Sentence
from langchain_ctxbudget.history.importance import Kind
from langchain_ctxbudget.history.spans import KnownDigests
from langchain_ctxbudget.messages.text import terms
from langchain_ctxbudget.stores.bulk import read_all
from langchain_ctxbudget.stores.records import Record, Scope

COMPACTIONS = "compactions"
LOOKED_UP_AT_ONCE = 500


class KeptSentence(Record):
    """One sentence of a summary; its position is counted from the first message of the span."""

    text: str
    kind: Kind
    score: float
    date: str | None = None
    speaker: str = ""
    position: int
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
    """The cost of the messages, in tokens."""
    compacted_token_count: int
    """The cost of the summary, in tokens."""
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
    """The time when a model wrote it; an extraction can be made at any time, always the same."""

    @classmethod
    def of(
        cls,
        digest: Digest,
        *,
        key: str,
        conversation_id: str,
        costs: Sequence[int],
        count: Callable[[str], int],
        created_at: datetime | None = None,
    ) -> ConversationCompaction:
        """Returns the record of a digest."""
        original = sum(costs[digest.first : digest.end])
        compacted = sum(count(sentence.text) for sentence in digest.sentences)
        of_kind = {kind: tuple(s.text for s in digest.sentences if s.kind is kind) for kind in Kind}
        return cls(
            id=key,
            conversation_id=conversation_id,
            from_message_index=digest.first,
            to_message_index=digest.end - 1,
            original_token_count=original,
            compacted_token_count=compacted,
            summary="\n".join(sentence.text for sentence in digest.sentences),
            key_decisions=of_kind[Kind.DECISION],
            open_questions=digest.open_questions or of_kind[Kind.OPEN],
            code_artifacts=digest.artifacts,
            compression_ratio=round(original / max(1, compacted), 2),
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
        """Returns the digest, at the place where it was made."""
        first = self.from_message_index
        return Digest(
            first=first,
            end=self.to_message_index + 1,
            level=self.compaction_level,
            sentences=tuple(
                Sentence(
                    first + s.position, s.order, s.speaker, s.date, s.text, s.score, s.kind, frozenset(terms(s.text))
                )
                for s in self.sentences
            ),
            artifacts=self.code_artifacts,
            made_by=self.made_by,
            narrative=self.narrative,
            open_questions=self.open_questions,
            context=self.context,
        )


def look_up(store: BaseStore, scope: Scope, known: KnownDigests, keys: Sequence[str]) -> Flow[bool]:
    """Reads what was written about spans by another run or process, once for each; returns True if anything was.

    A record that cannot be read counts as none: it is made again.
    """
    new = [key for key in keys if key not in known.digests and key not in known.looked_up][:LOOKED_UP_AT_ONCE]
    items = yield from batch(store, [GetOp(scope.namespace(COMPACTIONS), key) for key in new])
    found: dict[str, Digest] = {}
    for key, item in zip(new, items, strict=True):
        if isinstance(item, Item):
            try:
                found[key] = ConversationCompaction.read(item.value, f"compaction {key!r}").to_digest()
            except StoreDataError:
                continue
    known.looked_up.update(new)
    known.digests.update(found)
    return bool(found)


def saving(scope: Scope, compaction: ConversationCompaction) -> PutOp:
    """Returns the write of a compaction."""
    return PutOp(scope.namespace(COMPACTIONS), compaction.id, compaction.to_value(), index=False)


def deleting_besides(store: BaseStore, scope: Scope, contents: Collection[str]) -> Flow[list[PutOp]]:
    """Returns the deletions of everything that was written, but about these contents."""
    items = yield from read_all(store, scope.namespace(COMPACTIONS))
    return [PutOp(item.namespace, item.key, None) for item in items if item.key.partition("-")[0] not in contents]
