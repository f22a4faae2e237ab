"""A summary model at work: span after span, each once, applied only where the messages are still the same.

What it writes is kept in the store under the hash of the span's content.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, Self

from langgraph.store.base import BaseStore, GetOp, Item, PutOp

from langchain_ctxbudget.background import BackgroundWorker, Cancelled
from langchain_ctxbudget.errors import StoreDataError, SummaryError
from langchain_ctxbudget.flow import Flow, T, batch, drive
from langchain_ctxbudget.history.conversation import Conversation, OpenConversation
from langchain_ctxbudget.history.extractive import Digest, Kind, Line
from langchain_ctxbudget.history.model_summaries import ChatModelSummarizer, SummaryRequest
from langchain_ctxbudget.history.tree import KnownDigests, Node, Spans, node_at
from langchain_ctxbudget.stores import EXTRACTION, Record, Scope, utc_now
from langchain_ctxbudget.tokens import TokenCounter

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel

COMPACTIONS = "compactions"
LOOKED_UP_AT_ONCE = 500
CAP_TOKENS, CAP_GROWTH_TOKENS, HIGHEST_CAP_LEVEL = 320, 80, 3
"""The hard cap of a digest: so much at level 1, a little more at levels two and three."""
MESSAGES_PER_CALL = 15
"""Messages that are no whole segment yet are written about only while there are so many to a call of the model."""
MOST_FAILURES = 2
"""After so many in a row, a run stops: the model is not to be had; a later one tries again."""


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
    digest: Digest
    """What it was made of, as its sentences."""
    created_at: datetime | None = None
    """The time when a model wrote it; an extraction can be made at any time, always the same."""

    @classmethod
    def of(cls, digest: Digest, seen: Conversation, key: str, created_at: datetime | None = None) -> Self:
        """Returns the record of a digest."""
        original = sum(seen.costs[digest.first : digest.end])
        compacted = sum(seen.counter.count_text(sentence.text) for sentence in digest.sentences)
        of_kind = {kind: tuple(s.text for s in digest.sentences if s.kind is kind) for kind in Kind}
        return cls(
            id=key,
            conversation_id=seen.scope.conversation_id,
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
            digest=digest,
            created_at=created_at,
        )


def look_up(store: BaseStore, scope: Scope, known: KnownDigests, keys: Sequence[str]) -> Flow[bool]:
    """Reads what was written about spans by another run or process, once for each; returns True if anything was.

    A record that cannot be read counts as none: it is made again.
    """
    new = [key for key in keys if key not in known.digests and key not in known.looked_up][:LOOKED_UP_AT_ONCE]
    items = yield from batch(store, [GetOp(scope.namespace(COMPACTIONS), key) for key in new])
    known.looked_up.update(new)
    before = len(known.digests)
    for key, item in zip(new, items, strict=True):
        if isinstance(item, Item):
            with suppress(StoreDataError):
                known.digests[key] = ConversationCompaction.read(item.value, f"compaction {key!r}").digest
    return len(known.digests) > before


def compactions(
    store: BaseStore, seen: Conversation, segment_messages: int, until: int
) -> Flow[list[ConversationCompaction]]:
    """Returns the record of every span before a position: the model's digest, else that of extraction."""
    spans = seen.spans(segment_messages)
    known = spans.known
    nodes = [(node, spans.content(node)) for node in spans.tree.complete(until)]
    if known.maker:
        yield from look_up(store, seen.scope, known, [known.key(content) for _, content in nodes])
    records = []
    for node, content in nodes:
        written = spans.written(node)
        key = known.key(content) if written else content
        records.append(ConversationCompaction.of(written or spans.extracted(node), seen, key))
    return records


def request_of(seen: Conversation, spans: Spans, node: Node, key: str) -> SummaryRequest:
    """Returns the request to sum up a span: its messages or parts, with what was before them."""
    if node.level == 1:
        said = [entry.as_line(at) for at, entry in enumerate(spans.entries[node.first : node.end], node.first)]
        lines = [line for line in said if line.text] or said[:1]
    else:
        parts = map(spans.digest, spans.tree.children(node))
        lines = [Line(part.first, "", None, _text(part), from_user=False) for part in parts]
    before = spans.digest(node_at(spans.tree.starts, node.level, node.index - 1)) if node.index else None
    opened = before.open_questions if before else ()
    if before is None or before.made_by == EXTRACTION:
        asked = seen.read_questions(len(seen.entries)).alive
        opened = tuple(question.text for question in asked if question.position < node.first)
    return SummaryRequest(
        node=node,
        lines=tuple(lines),
        prior="\n".join(filter(None, (before.narrative, _text(before)))) if before else "",
        open_questions=opened,
        cap_tokens=CAP_TOKENS + CAP_GROWTH_TOKENS * (min(node.level, HIGHEST_CAP_LEVEL) - 1),
        key=key,
        context=spans.context(node.first),
    )


def _text(digest: Digest) -> str:
    return "\n".join(sentence.told for sentence in digest.sentences)


def wanted(spans: Spans) -> list[tuple[Node, str]]:
    """Returns the spans that a model is to write about, each after its parts.

    Last come the messages behind the cut that are no whole segment yet, where they are asked for.
    """
    known, end = spans.known, len(spans.entries)
    nodes = spans.tree.complete(min(known.until, end)) if known.maker else []
    rest = spans.rest(min(known.finish, end)) if known.maker else None
    if rest and (len(known.digests) + 1) * MESSAGES_PER_CALL <= rest.end:
        nodes.append(rest)
    keys = ((node, known.key(spans.content(node))) for node in nodes)
    return [(node, key) for node, key in keys if known.lacks(key)]


Body = Callable[[Conversation], Flow[Any]]
"""Work on a conversation by whoever holds it."""


class Owner(Protocol):
    """The one who has the conversations open."""

    counter: TokenCounter
    """Counts summaries."""

    @property
    def store(self) -> BaseStore:
        """The store of the conversations."""

    def recall(self, scope: Scope, body: Callable[[OpenConversation], Flow[T]]) -> Flow[T]:
        """Runs a flow with a conversation that is up to date, alone."""


class Summarizing:
    """One summary model, and one thread in which it works."""

    def __init__(self, model: BaseChatModel, owner: Owner, clock: Callable[[], datetime] | None = None) -> None:
        """Sets up; the thread begins with the first conversation that needs it."""
        self.model, self.clock = model, clock or utc_now
        self.summarizer = ChatModelSummarizer(model)
        self._owner = owner
        self.worker: BackgroundWorker[Scope] = BackgroundWorker(self._run)

    def submit(self, conversation: OpenConversation, *, step: bool) -> list[str]:
        """Has the spans written about that came behind the cut, or are about to; returns what failed."""
        known = conversation.table.made
        new = conversation.scope.is_kept and (step or known.until > known.asked_until)
        if new and wanted(conversation.seen_with(self._owner.counter).spans(known.segment_messages)):
            if not self.worker.submit(conversation.scope):
                return ["summaries: too many conversations wait for the summary model"]
            known.asked_until = known.until
        return []

    def finish(self, conversations: Iterable[OpenConversation]) -> None:
        """Has the model write also about what is behind the cut of open conversations, but no whole segment yet."""
        for conversation in conversations:
            cut = max((cut.position for cut in list(conversation.cuts.values())), default=0)
            known = conversation.table.made
            if conversation.scope.is_kept and known.until and cut > known.finish:
                known.finish = cut
                self.worker.submit(conversation.scope)

    def _run(self, scope: Scope, cancelled: Cancelled) -> None:
        """Writes about one conversation; its lock is not held while the model works."""

        def held(body: Body) -> Flow[Any]:
            return self._owner.recall(scope, lambda conversation: body(conversation.seen_with(self._owner.counter)))

        drive(self._write(held, cancelled))

    def write_now(self, conversation: Conversation) -> Flow[None]:
        """Writes about everything that is wanted, while whoever holds the conversation waits."""
        return self._write(lambda body: body(conversation))

    def _write(self, held: Callable[[Body], Flow[Any]], cancelled: Cancelled | None = None) -> Flow[None]:
        """Writes about span after span, each once."""
        tried: set[str] = set()
        failures = 0
        while failures < MOST_FAILURES and not cancelled:
            job = yield from held(partial(self._next, tried))
            if job is None:
                return
            tried.add(job.key)
            try:
                made: Digest | str = yield from self.summarizer.summarize(job, self._owner.counter)
                failures = 0
            except SummaryError as error:
                made = str(error)
                failures += 1
            if not cancelled:
                yield from held(partial(self._take, job, made))

    def _next(self, tried: Collection[str], seen: Conversation) -> Flow[SummaryRequest | None]:
        """Returns the next span to write about, or None where there is none."""
        spans = seen.spans(seen.made.segment_messages)
        yield from look_up(self._owner.store, seen.scope, spans.known, [key for _, key in wanted(spans)])
        return next((request_of(seen, spans, node, key) for node, key in wanted(spans) if key not in tried), None)

    def _take(self, job: SummaryRequest, made: Digest | str, seen: Conversation) -> Flow[None]:
        """Takes in a digest if its messages, and those before them, are still the same; or notes why there is none."""
        known, spans = seen.made, seen.spans(seen.made.segment_messages)
        if isinstance(made, str):
            known.failures.setdefault(job.key, []).append(made)
            return
        same = job.node.end <= len(spans.entries) and known.key(spans.content(job.node)) == job.key
        if same and spans.context(job.node.first) == job.context:
            known.digests[job.key] = written = replace(made, context=job.context)
            known.failures.pop(job.key, None)
            record = ConversationCompaction.of(written, seen, job.key, self.clock())
            place = seen.scope.namespace(COMPACTIONS)
            yield from batch(self._owner.store, [PutOp(place, record.id, record.to_value(), index=False)])
