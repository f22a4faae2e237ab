"""Digests by a summary model.

Span after span, each once, applied only where the messages are still the same.

The wording follows `compactMessages` and `compactText` of seed 000. Everything that is summed up is
data, and stands in fences. A reply that is late, empty or unreadable is asked for once more; then
extraction stands.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, Protocol, Self

from langgraph.store.base import BaseStore, GetOp

from langchain_ctxbudget import llm, messages
from langchain_ctxbudget.errors import ModelReplyError, StoreDataError
from langchain_ctxbudget.flow import Flow, T, batch, drive
from langchain_ctxbudget.history.conversation import Conversation, OpenConversation
from langchain_ctxbudget.history.extractive import (
    CHARACTERS_PER_TOKEN,
    ENGLISH,
    Digest,
    Kind,
    Line,
    Sentence,
    choose,
    importance,
    kind_of,
)
from langchain_ctxbudget.history.log import read_items
from langchain_ctxbudget.history.tree import KnownDigests, Node, Spans, node_at
from langchain_ctxbudget.messages import CONTEXT, SUMMARY, fences, fold, one_line, sentences, terms
from langchain_ctxbudget.stores import EXTRACTION, Clock, Record, Scope, written
from langchain_ctxbudget.tokens import ChatModel, TokenCounter, encodable, estimate_tokens
from langchain_ctxbudget.worker import Cancelled, Worker

COMPACTIONS = "compactions"
CAP_TOKENS = 400
"""The hard cap of a digest."""
LISTS = {"key_decisions": (32, 400), "open_questions": (8, 200), "code_artifacts": (12, 80)}
"""The items that are read of a list, and the characters of one."""
STATEMENTS_READ = 200
"""The rest of a longer summary is not looked at."""
REPLY_EXTRA_TOKENS = 700
"""A reply needs so much beyond its summary: for the lists and the format."""
LEAST_ROOM_TOKENS = 256
_BONUS = 10.0
"""Points for what the model itself calls a decision or open, and for its overview."""
_SHOWN_CHARACTERS = 120
_WORDING = messages.packaged("history/summarizing.md").strip()
SCHEMA: dict[str, Any] = json.loads(messages.packaged("history/summarizing.json"))
"""The reply as JSON schema; a dict, because a pydantic class makes some clients refuse prose
unseen."""
_FIELDS = {name: field["description"] for name, field in SCHEMA["properties"].items()}
_SAMPLE = json.dumps({name: [] if name in LISTS else "" for name in _FIELDS})
_AS_JSON = f"\n\nReply with one JSON object of exactly these fields and nothing else:\n{_SAMPLE}"
VERSION = messages.digest(repr((_WORDING, _AS_JSON, SCHEMA)), 6).hex()
"""Another one with every change of the wording."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryRequest:
    """A span of a conversation to summarise, with a summary of what came before it."""

    node: Node
    lines: tuple[Line, ...]
    """At level 1 the messages, at higher levels one line for each child's digest; at least one."""
    prior: str
    open_questions: tuple[str, ...]
    cap_tokens: int
    key: str = ""
    digest: str = ""


def read_reply(
    request: SummaryRequest, made_by: str, counter: TokenCounter, reply: str | Mapping[str, Any]
) -> Digest:
    """Reads a model's answer as the digest of a span.

    Its most important sentences within the cap, in order.

    It is the JSON that was asked for, or a summary alone; else a `ValueError` says what it is.
    """
    fields, shown = _fields_of(reply)
    lines = (
        line for part in _strings(fields.get("summary")) for line in encodable(part).splitlines()
    )
    said = (one_line(sentence) for line in lines for sentence in sentences(_without_bullet(line)))
    told = (
        messages.clipped(one, messages.MAX_SENTENCE_CHARACTERS) for one in said if one[-1:] != ":"
    )
    statements = _unique(told, STATEMENTS_READ)
    if not statements:
        raise ValueError(f"a reply without a summary: {shown}")
    decisions, questions, artifacts = (_listed(name, fields.get(name)) for name in LISTS)
    if fields.get("open_questions") is None:  # what was open still is, as far as one knows
        marked = (text for text in statements if "[OPEN]" in text)
        questions = _listed("open_questions", [*request.open_questions, *marked])
    before = set(map(_bare, request.open_questions))  # those stand in an earlier digest already
    new_questions = [question for question in questions if _bare(question) not in before]
    kinds = {_bare(text): (text, kind_of(text)) for text in statements}
    for kind, items in ((Kind.DECISION, decisions), (Kind.OPEN, new_questions)):
        for item in items:  # where a statement says the same, that stands for it
            text, _ = kinds.get(_bare(item), (item, kind))
            kinds[_bare(item)] = text, kind
    node = request.node
    dates = {line.date for line in request.lines}
    date = (
        next(iter(dates)) if len(dates) == 1 else None
    )  # of several days, the model says itself which
    made = []
    for order, (text, kind) in enumerate(kinds.values()):
        bonus = (_BONUS if not order else 0) + (0 if kind is Kind.PLAIN else _BONUS)
        made.append(
            Sentence(
                node.first, order, "", date, text, importance(text, from_user=False) + bonus, kind
            )
        )
    kept = choose(
        made, [counter.count_text(sentence.text) for sentence in made], request.cap_tokens
    )
    return Digest(
        first=node.first,
        end=node.end,
        level=node.level,
        sentences=tuple(made[at] for at in kept),
        artifacts=artifacts,
        made_by=made_by,
        open_questions=questions,
    )


def _fields_of(reply: str | Mapping[str, Any]) -> tuple[Mapping[str, Any], str]:
    """Returns the fields of a model's answer, and the answer in short for errors."""
    text = str(reply) if isinstance(reply, Mapping) else llm.without_thoughts(reply)
    shown = repr(messages.clipped(text, _SHOWN_CHARACTERS))
    if (
        isinstance(reply, Mapping)
        or not text
        or ENGLISH.json.search(text)
        or len(text) > llm.MOST_REPLY_CHARACTERS
    ):
        try:
            return llm.reply_object(reply, tuple(_FIELDS)), shown
        except ValueError as error:
            raise ValueError(f"{error}: {shown}" if text else str(error)) from None
    if ENGLISH.refuses.match(text):
        raise ValueError(f"a refusal: {shown}")
    return {"summary": text}, shown


def _strings(value: object) -> list[str]:
    return [
        item for item in (value if isinstance(value, list) else [value]) if isinstance(item, str)
    ]


def _listed(name: str, value: object) -> tuple[str, ...]:
    """Returns the strings of a list, one line each, without the marks that are added where they are shown."""
    most, characters = LISTS[name]
    texts = (
        _without_bullet(text[: 4 * characters]).replace("[OPEN]", "") for text in _strings(value)
    )
    return _unique((messages.clipped(encodable(text), characters) for text in texts), most)


def _unique(texts: Iterable[str], most: int) -> tuple[str, ...]:
    found: dict[str, str] = {}
    for text in texts:
        if terms(text):
            found.setdefault(fold(text), text)
    return tuple(found.values())[:most]


def _without_bullet(line: str) -> str:
    return ENGLISH.bullet.sub("", line.strip()).replace("**", "")


def _bare(text: str) -> str:
    return fold(text.replace("[OPEN]", "")).strip()


class ChatModelSummarizer:
    """Makes digests with any chat model."""

    def __init__(self, model: ChatModel) -> None:
        self.model = llm.StructuredModel(
            model, SCHEMA, names=("summarize_history", "summarization"), quotes=True
        )

    @property
    def fingerprint(self) -> str:
        """Another one for every model and every wording of the prompt.

        Digests of one are not those of another.
        """
        return f"{self.model.kind}/{VERSION}"

    def summarize(self, request: SummaryRequest, counter: TokenCounter) -> Digest:
        """Sums up a span; `counter` measures the cap.

        A `ModelReplyError` says why there is no summary.
        """
        limits = {
            "tokens": request.cap_tokens,
            "characters": request.cap_tokens * CHARACTERS_PER_TOKEN,
        }
        fields = "".join(f"\n- {name}: {text}" for name, text in _FIELDS.items())
        instructions = _WORDING.format(**limits, fields=fields, CONTEXT=CONTEXT, SUMMARY=SUMMARY)
        data = self._data(request, estimate_tokens(instructions))
        read = partial(read_reply, request, self.model.name, counter)
        failed = f"gave no summary of messages {request.node.first} to {request.node.end}"
        return self.model.ask(instructions, _AS_JSON, data, read, failed=failed)

    def _data(self, request: SummaryRequest, taken: int) -> str:
        """Returns the text to read.

        What came before the span, then its lines, the largest of them clipped.
        """
        window = self.model.window_tokens
        questions = "".join(
            f"- {fences.as_item(question)}\n" for question in request.open_questions
        )
        told = {
            "The conversation before this segment": request.prior,
            "Questions that were open before it": questions,
        }
        before = ""
        for heading, text in told.items():
            shown = _within(fences.as_data(encodable(text)), window // 8).strip()
            before += (
                f"{heading}:\n{fences.opening(SUMMARY)}{shown}\n{fences.closing(SUMMARY)}\n"
                if shown
                else ""
            )
        before += f"The span:\n{fences.opening(CONTEXT).strip()}"
        taken += (
            sum(map(estimate_tokens, (_AS_JSON, before, fences.closing(CONTEXT))))
            + llm.FRAMING_TOKENS
        )
        taken += min(2 * request.cap_tokens + REPLY_EXTRA_TOKENS, window // 3)
        if window - taken < LEAST_ROOM_TOKENS:
            raise self.model.too_small(window - taken)
        lines = [_rendered(line) for line in request.lines]
        most = messages.water_level([estimate_tokens(line) for line in lines], window - taken)
        return "\n".join(
            [before, *(_within(line, most) for line in lines), fences.closing(CONTEXT)]
        )


def _within(text: str, most_tokens: int) -> str:
    return messages.clip_text(text, estimate_tokens, most_tokens) or messages.clipped(
        text, most_tokens
    )


def _rendered(line: Line) -> str:
    date = f"[{line.date}] " if line.date else ""
    speaker = messages.clipped(encodable(line.speaker), llm.SPEAKER_CHARACTERS)
    return f"- {date}{fences.as_data(speaker)}{': ' if speaker else ''}{fences.as_item(encodable(line.text))}"


class ConversationCompaction(Record):
    """A summary of a range of messages (seed 000, `ConversationCompaction`), as `get_compactions` returns it."""

    id: str
    """A hash of the range's content: the same messages are never summarised twice."""
    conversation_id: str
    from_message_index: int
    """The position of the first message, from 0, when the summary was made."""
    to_message_index: int
    original_token_count: int
    compacted_token_count: int
    summary: str
    key_decisions: tuple[str, ...] = ()
    open_questions: tuple[str, ...] = ()
    code_artifacts: tuple[str, ...] = ()
    compression_ratio: float
    compaction_level: int
    """1 for a summary of messages, 2 for one of five summaries, and so on."""
    made_by: str
    digest: Digest
    created_at: datetime | None = None
    """When a model wrote it; None for an extraction."""

    @classmethod
    def of(
        cls, digest: Digest, seen: Conversation, key: str, created_at: datetime | None = None
    ) -> Self:
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
    """Reads summaries that other runs or processes have written, once for each span.

    Returns True if there is any.
    """
    new = [key for key in keys if key not in known.digests and key not in known.looked_up]
    items = yield from read_items(store, [GetOp(scope.namespace(COMPACTIONS), key) for key in new])
    known.looked_up.update(new)
    before = len(known.digests)
    for key, item in zip(new, items, strict=True):
        with suppress(StoreDataError):  # made again
            if compaction := ConversationCompaction.found(item):
                known.digests[key] = compaction.digest
    return len(known.digests) > before


def compactions(
    store: BaseStore, seen: Conversation, span_messages: int, until: int
) -> Flow[list[ConversationCompaction]]:
    """Returns the record of every span before a position.

    The model's digest, else that of extraction.
    """
    spans = seen.spans(span_messages)
    nodes = spans.tree.complete(until)
    if spans.known.maker:
        yield from look_up(store, seen.scope, spans.known, [*map(spans.key, nodes)])
    keys = (spans.key(node) if spans.written(node) else spans.tree.key(node) for node in nodes)
    return [
        ConversationCompaction.of(spans.digest(node), seen, key)
        for node, key in zip(nodes, keys, strict=True)
    ]


def request_of(seen: Conversation, spans: Spans, node: Node, key: str) -> SummaryRequest:
    """Returns the request to summarise a span: its messages or parts, and what came before them."""
    if node.level == 1:
        said = spans.lines(node)
        lines = [line for line in said if line.text] or said[:1]
    else:
        parts = map(spans.digest, spans.tree.children(node))
        lines = [Line(part.first, "", None, _text(part), from_user=False) for part in parts]
    before = (
        spans.digest(node_at(spans.tree.starts, node.level, node.index - 1)) if node.index else None
    )
    opened = before.open_questions if before else ()
    if before is None or before.made_by == EXTRACTION:
        asked = seen.read_questions(len(seen.entries)).alive
        opened = tuple(question.text for question in asked if question.position < node.first)
    return SummaryRequest(
        node=node,
        lines=tuple(lines),
        prior=_text(before) if before else "",
        open_questions=opened,
        cap_tokens=CAP_TOKENS,
        key=key,
        digest=spans.entries[node.end - 1].digest,
    )


def _text(digest: Digest) -> str:
    return "\n".join(sentence.attributed for sentence in digest.sentences)


def wanted(spans: Spans) -> list[tuple[Node, str]]:
    """Returns the spans that a model is to write about, each after its parts."""
    known = spans.known
    nodes = spans.tree.complete(min(known.until, len(spans.entries))) if known.maker else []
    return [(node, key) for node in nodes if known.lacks(key := spans.key(node))]


class Owner(Protocol):
    """The object that holds the open conversations."""

    counter: TokenCounter
    clock: Clock

    @property
    def store(self) -> BaseStore:
        """The store of the conversations."""

    def recall(self, scope: Scope, body: Callable[[OpenConversation], Flow[T]]) -> Flow[T]:
        """Runs a flow with a conversation that is up to date, alone."""


class Summarizing:
    """One summary model, and one thread in which it works."""

    def __init__(self, model: ChatModel, owner: Owner) -> None:
        self.summarizer = ChatModelSummarizer(model)
        self._owner = owner
        self.worker: Worker[Scope] = Worker(lambda *job: drive(self._run(*job)))

    def submit(self, conversation: OpenConversation, *, is_rebuilt: bool) -> None:
        """Has the spans written about that came behind the cut, or are about to.

        Once the model has failed, that waits; then it is asked about all that it has not written
        about.
        """
        known = conversation.table.made
        is_due = known.waits_until is not None and known.waits_until <= self._owner.clock()
        if known.waits_until is not None and not is_due:
            return
        new = conversation.scope.is_kept and (
            is_rebuilt or is_due or known.until > known.asked_until
        )
        if new and wanted(self._seen(conversation)[1]):
            self.worker.submit(conversation.scope)
            known.asked_until = known.until

    def _seen(self, conversation: OpenConversation) -> tuple[Conversation, Spans]:
        seen = conversation.seen_with(self._owner.counter)
        return seen, seen.spans(seen.table.made.span_messages)

    def _run(self, scope: Scope, cancelled: Cancelled) -> Flow[None]:
        """Writes about span after span of one conversation.

        Its lock is not held while the model works.
        """
        while not cancelled and (job := (yield from self._owner.recall(scope, self._next))):
            try:
                made: Digest | ModelReplyError = self.summarizer.summarize(job, self._owner.counter)
            except ModelReplyError as error:
                made = error
            if not cancelled:
                yield from self._owner.recall(scope, partial(self._take, job, made))
            if isinstance(made, ModelReplyError):  # a later run tries again
                return

    def _next(self, conversation: OpenConversation) -> Flow[SummaryRequest | None]:
        seen, spans = self._seen(conversation)
        yield from look_up(
            self._owner.store, seen.scope, spans.known, [key for _, key in wanted(spans)]
        )
        return next((request_of(seen, spans, node, key) for node, key in wanted(spans)), None)

    def _take(
        self, job: SummaryRequest, made: Digest | ModelReplyError, conversation: OpenConversation
    ) -> Flow[None]:
        """Stores a digest if all messages up to its end are unchanged.

        Or notes why there is none.
        """
        seen, spans = self._seen(conversation)
        known = spans.known
        if isinstance(made, ModelReplyError):
            if not made.is_passing:
                known.refusals[job.key] = known.refusals.get(job.key, 0) + 1
            known.failed += 1
            known.waits_until = self._owner.clock() + llm.wait_after(known.failed)
            again = (
                f"; it is asked again, not before {llm.told(known.waits_until)}"
                if known.lacks(job.key)
                else ""
            )
            known.failures[job.key] = f"{made}{again}"
            return
        known.failed = 0
        known.waits_until = None
        end = job.node.end  # the reply may tell of anything that was said before
        same = end <= len(spans.entries) and spans.entries[end - 1].digest == job.digest
        if same and spans.key(job.node) == job.key:
            known.digests[job.key] = made
            known.failures.pop(job.key, None)
            record = ConversationCompaction.of(made, seen, job.key, self._owner.clock())
            yield from batch(
                self._owner.store,
                [written(GetOp(seen.scope.namespace(COMPACTIONS), record.id), record)],
            )
