"""A summary model at work: span after span, each once, applied only where the messages are still the same."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from langgraph.store.base import BaseStore

from langchain_ctxbudget.background import BackgroundWorker, Cancelled
from langchain_ctxbudget.errors import SummaryError
from langchain_ctxbudget.flow import Flow, T, batch, drive
from langchain_ctxbudget.history import log
from langchain_ctxbudget.history.conversation import Conversation
from langchain_ctxbudget.history.digest import Digest, Line, Sentence
from langchain_ctxbudget.history.importance import Kind
from langchain_ctxbudget.history.model_summaries import ChatModelSummarizer, SummaryRequest
from langchain_ctxbudget.history.open import OpenConversation
from langchain_ctxbudget.history.spans import Spans
from langchain_ctxbudget.history.stored_summaries import ConversationCompaction, look_up, saving
from langchain_ctxbudget.history.tree import Node
from langchain_ctxbudget.stores.clock import utc_now
from langchain_ctxbudget.stores.records import EXTRACTION, Scope
from langchain_ctxbudget.tokens.counters import TokenCounter

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel

CAP_TOKENS, CAP_GROWTH_TOKENS = 320, 80
"""The hard cap of a digest: so much at level 1, a little more at levels two and three."""
HIGHEST_CAP_LEVEL = 3
MESSAGES_PER_CALL = 15
"""Messages that are no whole segment yet are written about only while there are so many to a call of the model."""
MOST_FAILURES = 2
"""After so many in a row, a run stops: the model is not to be had; a later one tries again."""


@dataclass(frozen=True, slots=True)
class Job:
    """A span that a model is to write about."""

    node: Node
    key: str
    request: SummaryRequest
    context: str
    """A digest of the messages before it, which the model is told of."""


def wanted(spans: Spans) -> list[tuple[Node, str]]:
    """Returns the spans that a model has not written about, each after its parts, without those it failed at too often.

    Last come the messages behind the cut that are no whole segment yet, where they are asked for.
    """
    known, end = spans.known, len(spans.messages)
    if not known.maker or not known.until:
        return []
    nodes = spans.tree.complete(min(known.until, end))
    rest = spans.rest(min(known.finish, end))
    if rest and (len(known.digests) + 1) * MESSAGES_PER_CALL <= rest.end:
        nodes.append(rest)
    keys = ((node, known.key(spans.content(node))) for node in nodes)
    return [(node, key) for node, key in keys if key not in known.digests and not known.given_up(key)]


def next_job(
    store: BaseStore, scope: Scope, spans: Spans, questions: Sequence[Sentence], tried: Collection[str] = ()
) -> Flow[Job | None]:
    """Returns the next span to write about, or None where there is none."""
    missing = wanted(spans)
    while missing and (yield from look_up(store, scope, spans.known, [key for _, key in missing])):
        missing = wanted(spans)
    for node, key in missing:
        if key not in tried:
            spans.known.looked_up.discard(key)  # another pipeline may have written it since
            if not (yield from look_up(store, scope, spans.known, [key])):
                return job_of(spans, node, key, questions)
    return None


def job_of(spans: Spans, node: Node, key: str, questions: Sequence[Sentence]) -> Job:
    """Returns the request to sum up a span: its messages or parts, with what was before them."""
    if node.level == 1:
        said = (message.as_line(at) for at, message in enumerate(spans.messages[node.first : node.end], node.first))
        lines = tuple(line for line in said if line.text) or (spans.messages[node.first].as_line(node.first),)
    else:
        lines = tuple(_as_line(spans.digest(part)) for part in spans.tree.children(node))
    before = spans.digest(spans.tree.node(node.level, node.index - 1)) if node.index else None
    if before is None or before.made_by == EXTRACTION:
        opened = tuple(question.text for question in questions if question.position < node.first)
    else:
        opened = before.open_questions
    request = SummaryRequest(
        lines=lines,
        first=node.first,
        end=node.end,
        level=node.level,
        prior="\n".join(filter(None, (before.narrative, _text(before)))) if before else "",
        open_questions=opened,
        extracted=tuple(s for s in spans.extracted(node).sentences if s.kind is not Kind.PLAIN),
        cap_tokens=CAP_TOKENS + CAP_GROWTH_TOKENS * (min(node.level, HIGHEST_CAP_LEVEL) - 1),
    )
    return Job(node, key, request, spans.context(node.first))


def _as_line(digest: Digest) -> Line:
    date = next((sentence.date for sentence in digest.sentences if sentence.date), None)
    return Line(position=digest.first, speaker="", date=date, text=_text(digest), from_user=False)


def _text(digest: Digest) -> str:
    return "\n".join(
        f"{f'[{s.date}] ' if s.date else ''}{f'{s.speaker}: ' if s.speaker else ''}{s.text}" for s in digest.sentences
    )


def apply(store: BaseStore, made_at: datetime, job: Job, digest: Digest, conversation: Conversation) -> Flow[bool]:
    """Takes in a digest if its messages, and those before them, are still the same; returns True if they are."""
    known = conversation.made
    spans = conversation.spans(known.segment_messages)
    if job.node.end > len(spans.messages) or known.key(spans.content(job.node)) != job.key:
        return False
    if spans.context(job.node.first) != job.context:
        return False
    known.digests[job.key] = replace(digest, context=job.context)
    known.failures.pop(job.key, None)
    record = _compaction(conversation, known.digests[job.key], job.key, made_at)
    yield from batch(store, [saving(conversation.scope, record)])
    return True


def _compaction(
    conversation: Conversation, digest: Digest, key: str, made_at: datetime | None = None
) -> ConversationCompaction:
    return ConversationCompaction.of(
        digest,
        key=key,
        conversation_id=conversation.scope.conversation_id,
        costs=conversation.costs,
        count=conversation.counter.count_text,
        created_at=made_at,
    )


def compactions(
    store: BaseStore, conversation: Conversation, segment_messages: int, until: int
) -> Flow[list[ConversationCompaction]]:
    """Returns the record of every span before a position: the model's digest, else that of extraction."""
    spans = conversation.spans(segment_messages)
    nodes = [(node, spans.content(node)) for node in spans.tree.complete(until)]
    if spans.known.maker:
        keys = [spans.known.key(content) for _, content in nodes]
        yield from look_up(store, conversation.scope, spans.known, keys)
    records = []
    for node, content in nodes:
        written = spans.written(node)
        key = spans.known.key(content) if written else content
        records.append(_compaction(conversation, written or spans.extracted(node), key))
    return records


Body = Callable[[Conversation], Flow[Any]]
"""Work on a conversation by whoever holds it."""


class Owner(Protocol):
    """The one who has the conversations open."""

    counter: TokenCounter
    """Counts summaries."""

    @property
    def store(self) -> BaseStore:
        """The store of the conversations."""

    def using(self, scope: Scope, body: Callable[[OpenConversation], Flow[T]]) -> Flow[T]:
        """Runs a flow with a conversation's working set, alone."""


class Summarizing:
    """One summary model, and one thread in which it works."""

    def __init__(self, model: BaseChatModel, owner: Owner, clock: Callable[[], datetime] | None = None) -> None:
        """Set up; the thread begins with the first conversation that needs it."""
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
        """Writes about span after span of one conversation; its lock is not held while the model works."""
        store = self._owner.store

        def held(body: Body) -> Flow[Any]:
            def refreshed(conversation: OpenConversation) -> Flow[Any]:
                yield from log.refresh(store, conversation)
                return (yield from body(conversation.seen_with(self._owner.counter)))

            return self._owner.using(scope, refreshed)

        drive(self._write(store, held, cancelled))

    def write_now(self, conversation: Conversation) -> Flow[None]:
        """Writes about everything that is wanted, while whoever holds the conversation waits."""
        return self._write(self._owner.store, lambda body: body(conversation))

    def _write(
        self, store: BaseStore, held: Callable[[Body], Flow[Any]], cancelled: Cancelled | None = None
    ) -> Flow[None]:
        tried: set[str] = set()
        failures = 0

        def find(conversation: Conversation) -> Flow[tuple[Job | None, TokenCounter]]:
            spans = conversation.spans(conversation.made.segment_messages)
            questions = conversation.read_questions(len(conversation.entries)).alive()
            job = yield from next_job(store, conversation.scope, spans, questions, tried)
            return job, conversation.counter

        while failures < MOST_FAILURES and not cancelled:
            job, counter = yield from held(find)
            if job is None:
                return
            tried.add(job.key)
            try:
                digest = yield from self.summarizer.summarize(job.request, counter)
                failures = 0
            except SummaryError as error:
                digest, problem = None, str(error)
                failures += 1
            if cancelled:
                return
            if digest is None:
                yield from held(partial(_note_failure, job, problem))
            else:
                yield from held(partial(apply, store, self.clock(), job, digest))


def _note_failure(job: Job, problem: str, conversation: Conversation) -> Flow[None]:
    conversation.made.failed(job.key, problem)
    yield from ()
