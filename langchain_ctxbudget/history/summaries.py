"""What a model is to write about a conversation: span after span, each once, applied only where it still holds."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from langgraph.store.base import BaseStore

from langchain_ctxbudget.core import tree
from langchain_ctxbudget.core.digest import EXTRACTION, Digest, Line, Sentence
from langchain_ctxbudget.core.importance import Kind
from langchain_ctxbudget.core.tree import Node
from langchain_ctxbudget.flow import Flow, batch
from langchain_ctxbudget.history.conversation import Conversation
from langchain_ctxbudget.history.spans import content_key, extraction
from langchain_ctxbudget.history.summarizer import SummaryRequest
from langchain_ctxbudget.stores import compactions
from langchain_ctxbudget.stores.compactions import ConversationCompaction

CAP_TOKENS, CAP_GROWTH_TOKENS = 320, 80
"""The hard cap of what is kept of a span: so much at level 1, a little more at levels two and three."""
HIGHEST_CAP_LEVEL = 3
LOOKED_UP_AT_ONCE = 500
MESSAGES_PER_CALL = 15
"""What is no whole segment yet is written about only while there are so many messages to a call of the model."""


@dataclass(frozen=True, slots=True)
class Job:
    """A span that a model is to write about."""

    node: Node
    key: str
    request: SummaryRequest
    context: str
    """A digest of the messages before it, which the model is told of."""


def wanted(conversation: Conversation) -> list[tuple[Node, str]]:
    """The spans that a model has not written about, each after its parts; those it was asked for too often left out."""
    made = conversation.made
    if not made.maker or not made.until:
        return []
    spans = conversation.spans(made.segment_messages)
    nodes = spans.complete(min(made.until, len(conversation.entries)), spans.written)
    keys = [(node, made.key(spans.key(node, conversation.entries))) for node in nodes]
    missing = [(node, key) for node, key in keys if key not in made.digests and not made.given_up(key)]
    if not missing:
        spans.written = spans.segments_until(made.until)
    return missing + _rest(conversation)


def _rest(conversation: Conversation) -> list[tuple[Node, str]]:
    """The messages behind the cut that are no whole segment yet, where they are asked for."""
    made = conversation.made
    spans = conversation.spans(made.segment_messages)
    end = min(made.finish, len(conversation.entries))
    first = spans.boundaries[spans.segments_until(end)]
    if first >= end or (len(made.digests) + 1) * MESSAGES_PER_CALL > end:
        return []
    node = Node(first, end, 1, spans.segments_until(end))
    key = made.key(content_key(conversation.entries, first, end))
    return [] if key in made.digests or made.given_up(key) else [(node, key)]


def look_up(store: BaseStore, conversation: Conversation, keys: Sequence[str]) -> Flow[bool]:
    """Read what was written about spans by another run or process, once for each; whether anything was found."""
    made = conversation.made
    new = [key for key in keys if key not in made.digests and key not in made.looked_up][:LOOKED_UP_AT_ONCE]
    found = yield from compactions.read(store, conversation.scope, new)
    made.looked_up.update(new)
    made.digests.update(found)
    return bool(found)


def next_job(store: BaseStore, conversation: Conversation, tried: Collection[str] = ()) -> Flow[Job | None]:
    """The next span to write about, or None where there is none.

    Args:
        store: where others may have written about it.
        conversation: an open conversation.
        tried: keys that are not to be tried again now.
    """
    missing = wanted(conversation)
    while missing and (yield from look_up(store, conversation, [key for _, key in missing])):
        missing = wanted(conversation)
    for node, key in missing:
        if key not in tried:
            conversation.made.looked_up.discard(key)  # another pipeline may have written it since
            if not (yield from look_up(store, conversation, [key])):
                return _job(conversation, node, key)
    return None


def _job(conversation: Conversation, node: Node, key: str) -> Job:
    spans, entries = conversation.spans(conversation.made.segment_messages), conversation.entries
    if node.level == 1:
        lines = tuple(line for line in conversation.lines(node.first, node.end) if line.text)
    else:
        parts = [spans.child(node, index) for index in tree.children(node)]
        lines = tuple(_as_line(_digest(conversation, part)) for part in parts)
    before = _digest(conversation, tree.node(spans.boundaries, node.level, node.index - 1)) if node.index else None
    if before is None or before.made_by == EXTRACTION:
        alive = conversation.read_questions(len(entries)).alive()
        opened = tuple(question.text for question in alive if question.position < node.first)
    else:
        opened = before.open_questions
    own = (
        spans.extraction(node, entries)
        if spans.find(node.level, node.index) == node
        else extraction(entries, node.first, node.end)
    )
    request = SummaryRequest(
        lines=lines or (entries[node.first].as_line(node.first),),
        first=node.first,
        end=node.end,
        level=node.level,
        prior="\n".join(filter(None, (before.narrative, _text(before)))) if before else "",
        open_questions=opened,
        extracted=tuple(s for s in own.sentences if s.kind is not Kind.PLAIN),
        cap_tokens=CAP_TOKENS + CAP_GROWTH_TOKENS * (min(node.level, HIGHEST_CAP_LEVEL) - 1),
    )
    return Job(node, key, request, conversation.digest_before(node.first))


def _digest(conversation: Conversation, node: Node) -> Digest:
    """What is known of a span: the model's words, else extraction."""
    spans, made = conversation.spans(conversation.made.segment_messages), conversation.made
    content = spans.key(node, conversation.entries)
    written = made.about(content, node.first, conversation.digest_before(node.first))
    return written or spans.extraction(node, conversation.entries)


def _as_line(digest: Digest) -> Line:
    date = next((sentence.date for sentence in digest.sentences if sentence.date), None)
    return Line(position=digest.first, speaker="", date=date, text=_text(digest), from_user=False)


def _text(digest: Digest) -> str:
    return "\n".join(map(_said, digest.sentences))


def _said(sentence: Sentence) -> str:
    date = f"[{sentence.date}] " if sentence.date else ""
    speaker = f"{sentence.speaker}: " if sentence.speaker else ""
    return f"{date}{speaker}{sentence.text}"


def apply(
    store: BaseStore, conversation: Conversation, job: Job, digest: Digest, made_at: datetime | None
) -> Flow[bool]:
    """Take in what a model wrote, if its messages are still the same; whether they are."""
    made = conversation.made
    if _key_now(conversation, job.node) != job.key or conversation.digest_before(job.node.first) != job.context:
        return False
    digest = replace(digest, context=job.context)
    made.digests[job.key] = digest
    made.failures.pop(job.key, None)
    record = compaction(conversation, digest, job.key, made_at)
    yield from batch(store, [compactions.saving(conversation.scope, record)])
    return True


def _key_now(conversation: Conversation, node: Node) -> str | None:
    """The hash of what stands where a span was, or None where there is no such span any more."""
    made, entries = conversation.made, conversation.entries
    spans = conversation.spans(made.segment_messages)
    if spans.find(node.level, node.index) == node:
        return made.key(spans.key(node, entries))
    if node.level > 1 or node.end > len(entries):
        return None
    return made.key(content_key(entries, node.first, node.end))


def compaction(
    conversation: Conversation, digest: Digest, key: str, made_at: datetime | None = None
) -> ConversationCompaction:
    """The record of a digest, with what its messages and its sentences cost."""
    count = conversation.counter.count_text
    return ConversationCompaction.of(
        digest,
        key=key,
        conversation_id=conversation.scope.conversation_id,
        original_tokens=sum(conversation.costs[digest.first : digest.end]),
        compacted_tokens=sum(count(sentence.text) for sentence in digest.sentences),
        created_at=made_at,
    )


def known(
    store: BaseStore, conversation: Conversation, segment_messages: int, until: int
) -> Flow[list[ConversationCompaction]]:
    """The record of every span before a position: what a model wrote, else what extraction keeps."""
    spans, made = conversation.spans(segment_messages), conversation.made
    keys = [(node, spans.key(node, conversation.entries)) for node in spans.complete(until)]
    if made.maker:
        yield from look_up(store, conversation, [made.key(content) for _, content in keys])
    records = []
    for node, content in keys:
        written = made.about(content, node.first, conversation.digest_before(node.first))
        shown = written or spans.extraction(node, conversation.entries)
        records.append(compaction(conversation, shown, made.key(content) if written else content))
    return records
