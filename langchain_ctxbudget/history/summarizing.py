"""Digests by a summary model.

Span after span, each once, applied only where the messages are still the same.

Everything that is summed up is data, and stands in fences. A reply that is late, empty or
unreadable is asked for once more; then extraction stands.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple, Protocol, Self

from langgraph.store.base import BaseStore

from langchain_ctxbudget import llm, messages
from langchain_ctxbudget.errors import ModelReplyError, StoreDataError
from langchain_ctxbudget.flow import Flow, T, drive
from langchain_ctxbudget.history.conversation import Conversation, OpenConversation
from langchain_ctxbudget.history.derived import Change, DerivedKind, digest_in
from langchain_ctxbudget.history.extractive import (
    PATTERNS,
    WORTH,
    Digest,
    Kind,
    Line,
    Sentence,
    choose,
    worth_of,
)
from langchain_ctxbudget.history.tree import KnownDigests, Node, Spans, node_at
from langchain_ctxbudget.messages import (
    CHARACTERS_PER_TOKEN,
    CONTEXT,
    SUMMARY,
    encodable,
    fences,
    fold,
    one_line,
    sentences,
    terms,
)
from langchain_ctxbudget.stores import Clock, Record, Scope
from langchain_ctxbudget.tokens import ChatModel, Purpose, TokenCounter, estimate_tokens
from langchain_ctxbudget.worker import Cancelled, Worker

COMPACTIONS = "compactions"
CAP_TOKENS = 400
"""The hard cap of a digest."""


class ListLimits(NamedTuple):
    """How much is read of a list in a model's reply."""

    items: int
    characters: int
    """Of one item."""


LISTS = {
    "key_decisions": ListLimits(32, 400),
    "open_questions": ListLimits(8, 200),
    "code_artifacts": ListLimits(12, 80),
}
"""The lists of a reply."""
STATEMENTS_READ = 200
"""The rest of a longer summary is not looked at."""
REPLY_EXTRA_TOKENS = 700
"""A reply needs so much beyond its summary: for the lists and the format."""
LEAST_ROOM_TOKENS = 256
"""The least room for the lines of a span; a model whose window leaves less is not asked."""
_SHOWN_CHARACTERS = 120
"""Characters of a reply that an error shows."""
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

    It is the JSON that was asked for, or a summary alone. Its most important sentences within the
    cap are kept, in order.

    Raises:
        ValueError: It is neither; the text says what it is.
    """
    fields, shown = _fields_of(reply)
    statements = _statements_in(fields.get("summary"))
    if not statements or llm.is_refusal(statements[0]):
        _require_no_refusal(reply, fields, shown)
        raise ValueError(f"a reply without a summary: {shown}")
    questions = _listed("open_questions", fields.get("open_questions"))
    if fields.get("open_questions") is None:  # what was open still is, as far as one knows
        marked = [text for text in statements if "[OPEN]" in text]
        questions = _listed("open_questions", [*request.open_questions, *marked])
    earlier_questions = set(map(_bare, request.open_questions))  # these are in an earlier digest
    kinds = _kinds_of(
        statements,
        decisions=_listed("key_decisions", fields.get("key_decisions")),
        questions=[text for text in questions if _bare(text) not in earlier_questions],
    )
    node = request.node
    candidates = _sentences_of(kinds, node.first, _common_date(request.lines))
    costs = [counter.count_text(sentence.text) for sentence in candidates]
    return Digest(
        first=node.first,
        end=node.end,
        level=node.level,
        sentences=tuple(candidates[at] for at in choose(candidates, costs, request.cap_tokens)),
        artifacts=_listed("code_artifacts", fields.get("code_artifacts")),
        made_by=made_by,
        open_questions=questions,
    )


def _require_no_refusal(
    reply: str | Mapping[str, Any], fields: Mapping[str, Any], shown: str
) -> None:
    """Raises a `ValueError` with a reply in short where it is a refusal."""
    try:
        llm.require_no_refusal(reply, fields)
    except ValueError as error:
        raise ValueError(f"{error}: {shown}") from None


def _statements_in(summary: object) -> tuple[str, ...]:
    """Returns the sentences of a model's summary that say something, each once."""
    lines: list[str] = []
    for part in _strings(summary):
        lines += encodable(part).splitlines()
    statements: list[str] = []
    for line in lines:
        in_line = [one_line(sentence) for sentence in sentences(_without_bullet(line))]
        statements += [sentence for sentence in in_line if not sentence.endswith(":")]
    most = messages.MAX_SENTENCE_CHARACTERS
    return _unique([messages.clipped(text, most) for text in statements], STATEMENTS_READ)


def _kinds_of(
    statements: Iterable[str], *, decisions: Iterable[str], questions: Iterable[str]
) -> dict[str, Kind]:
    """Returns all that a reply says with its kind: statements first, then what they do not say.

    Where a statement says the same as an item of a list, it stands for it.
    """
    texts: dict[str, str] = {}
    kinds: dict[str, Kind] = {}
    for text in statements:
        texts[_bare(text)] = text
        kinds[_bare(text)] = Kind.OPEN if "[OPEN]" in text else Kind.PLAIN
    for kind, items in ((Kind.DECISION, decisions), (Kind.OPEN, questions)):
        for item in items:
            texts.setdefault(_bare(item), item)
            kinds[_bare(item)] = kind
    return {text: kinds[bare] for bare, text in texts.items()}


def _sentences_of(kinds: Mapping[str, Kind], position: int, date: str | None) -> list[Sentence]:
    """Returns what a reply says as sentences; the first one is its overview."""
    scored: list[Sentence] = []
    for order, (text, kind) in enumerate(kinds.items()):
        score = worth_of(text) + WORTH.of_model
        if order == 0:
            score += WORTH.told_first
        if kind is not Kind.PLAIN:
            score += WORTH.told_first
        scored.append(
            Sentence(
                position=position,
                order=order,
                speaker="",
                date=date,
                text=text,
                score=score,
                kind=kind,
            )
        )
    return scored


def _common_date(lines: Iterable[Line]) -> str | None:
    """Returns the day of some messages; None for several, of which the model itself says which."""
    dates = {line.date for line in lines}
    return dates.pop() if len(dates) == 1 else None


def _fields_of(reply: str | Mapping[str, Any]) -> tuple[Mapping[str, Any], str]:
    """Returns the fields of a model's answer, and the answer in short for errors."""
    text = str(reply) if isinstance(reply, Mapping) else llm.without_thoughts(reply)
    shown = repr(messages.clipped(text, _SHOWN_CHARACTERS))
    is_prose = isinstance(reply, str) and bool(text) and not PATTERNS.json.search(text)
    if not is_prose or len(text) > llm.MOST_REPLY_CHARACTERS:
        try:
            return llm.reply_object(reply, tuple(_FIELDS)), shown
        except ValueError as error:
            raise ValueError(f"{error}: {shown}" if text else str(error)) from None
    if llm.is_refusal(text):
        raise ValueError(f"a refusal: {shown}")
    return {"summary": text}, shown


def _strings(value: object) -> list[str]:
    items = value if isinstance(value, list) else [value]
    return [item for item in items if isinstance(item, str)]


def _listed(name: str, value: object) -> tuple[str, ...]:
    """Returns the strings of a list, one line each, without marks that are added when shown."""
    limits = LISTS[name]
    texts: list[str] = []
    for item in _strings(value):
        text = _without_bullet(item[: 4 * limits.characters]).replace("[OPEN]", "")
        if not llm.is_refusal(text):
            texts.append(messages.clipped(encodable(text), limits.characters))
    return _unique(texts, limits.items)


def _unique(texts: Iterable[str], most: int) -> tuple[str, ...]:
    """Returns the first texts that have words, each once, whatever its capitals."""
    unique: dict[str, str] = {}
    for text in texts:
        if terms(text):
            unique.setdefault(fold(text), text)
    return tuple(unique.values())[:most]


def _without_bullet(line: str) -> str:
    return PATTERNS.bullet.sub("", line.strip()).replace("**", "")


def _bare(text: str) -> str:
    return fold(text.replace("[OPEN]", "")).strip()


class ChatModelSummarizer:
    """Makes digests with any chat model."""

    schema = SCHEMA

    def __init__(self, model: ChatModel) -> None:
        self.model = llm.StructuredModel(
            model,
            SCHEMA,
            purpose=Purpose.SUMMARY,
            names=("summarize_history", "summarization"),
            quotes=True,
            reply_tokens=2 * CAP_TOKENS + REPLY_EXTRA_TOKENS,
        )

    @property
    def fingerprint(self) -> str:
        """Another one for every model and every wording of the prompt.

        Digests of one are not those of another.
        """
        return f"{self.model.kind}/{VERSION}"

    def summarize(
        self,
        request: SummaryRequest,
        counter: TokenCounter,
        book: Callable[[llm.AnsweredCall], None] | None = None,
    ) -> Digest:
        """Sums up a span; `counter` measures the cap, `book` gets every call that was answered.

        A `ModelReplyError` says why there is no summary.
        """
        instructions = self.instructions(request)
        data = self._data(request, estimate_tokens(instructions))
        read = partial(self.read, request, counter)
        failed = f"gave no summary of messages {request.node.first} to {request.node.end}"
        return self.model.ask(instructions, _AS_JSON, data, read, failed=failed, book=book)

    def instructions(self, request: SummaryRequest) -> str:
        """Returns what a model is told to do with a span."""
        limits = {
            "tokens": request.cap_tokens,
            "characters": request.cap_tokens * CHARACTERS_PER_TOKEN,
        }
        fields = "".join(f"\n- {name}: {text}" for name, text in _FIELDS.items())
        return _WORDING.format(**limits, fields=fields, CONTEXT=CONTEXT, SUMMARY=SUMMARY)

    def before(self, request: SummaryRequest) -> str:
        """Returns what came before a span, as a model reads it."""
        items = [f"- {fences.as_item(question)}\n" for question in request.open_questions]
        before = self._earlier("The conversation before this segment", request.prior)
        return before + self._earlier("Questions that were open before it", "".join(items))

    def read(
        self, request: SummaryRequest, counter: TokenCounter, reply: str | Mapping[str, Any]
    ) -> Digest:
        """Reads a reply as the digest of a span; a `ValueError` says why it is none."""
        return read_reply(request, self.model.name, counter, reply)

    def _data(self, request: SummaryRequest, taken: int) -> str:
        """Returns the text to read.

        What came before the span, then its lines, the largest of them clipped.
        """
        window = self.model.window_tokens
        before = self.before(request)
        before += f"The span:\n{fences.opening(CONTEXT).strip()}"
        behind = fences.closing(CONTEXT)

        for text in (_AS_JSON, before, behind):
            taken += estimate_tokens(text)
        taken += llm.FRAMING_TOKENS
        taken += self.model.reply_tokens
        room = window - taken
        if room < LEAST_ROOM_TOKENS:
            raise self.model.too_small(room)
        lines = [_rendered(line) for line in request.lines]
        most = messages.water_level([estimate_tokens(line) for line in lines], room)
        return "\n".join([before, *(_within(line, most) for line in lines), behind])

    def _earlier(self, heading: str, text: str) -> str:
        """Returns what came before the span, in fences; the empty text where it is empty."""
        most_tokens = self.model.window_tokens // 8
        shown = _within(fences.as_data(encodable(text)), most_tokens).strip()
        if not shown:
            return ""
        return f"{heading}:\n{fences.opening(SUMMARY)}{shown}\n{fences.closing(SUMMARY)}\n"


def _within(text: str, most_tokens: int) -> str:
    shortened = messages.clip_text(text, estimate_tokens, most_tokens)
    return shortened or messages.clipped(text, most_tokens)


def _rendered(line: Line) -> str:
    """Returns a line of a span as the model reads it."""
    date = f"[{line.date}] " if line.date else ""
    speaker = fences.as_data(messages.clipped(encodable(line.speaker), llm.SPEAKER_CHARACTERS))
    if speaker:
        speaker += ": "
    return f"- {date}{speaker}{fences.as_item(encodable(line.text))}"


class ConversationCompaction(Record):
    """A summary of a range of messages, as `get_compactions` returns it."""

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
    """What a model calls so; extraction tells of none, nor of open questions."""
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
        cls,
        digest: Digest,
        conversation: Conversation,
        key: str,
        created_at: datetime | None = None,
    ) -> Self:
        """Returns the record of a digest."""
        count = conversation.counter.count_text
        original = sum(conversation.costs[digest.first : digest.end])
        compacted = sum(count(sentence.text) for sentence in digest.sentences)
        decisions = tuple(s.text for s in digest.sentences if s.kind is Kind.DECISION)
        return cls(
            id=key,
            conversation_id=conversation.scope.conversation_id,
            from_message_index=digest.first,
            to_message_index=digest.end - 1,
            original_token_count=original,
            compacted_token_count=compacted,
            summary="\n".join(sentence.text for sentence in digest.sentences),
            key_decisions=decisions,
            open_questions=digest.open_questions,
            code_artifacts=digest.artifacts,
            compression_ratio=round(original / max(1, compacted), 2),
            compaction_level=digest.level,
            made_by=digest.made_by,
            digest=digest,
            created_at=created_at,
        )


class Summaries(DerivedKind):
    """What a model wrote of spans.

    By the digest of what a span says, and the version of model and wording.
    """

    name = COMPACTIONS
    is_remade = False  # a model is paid for it

    def forget_changed(self, store: BaseStore, change: Change) -> Flow[None]:
        """Deletes what was written of spans behind the first message that is forgotten.

        Where a message may still be told of, all stays: what it says of others serves on.
        """
        if not change.is_forgotten:
            return
        keys = yield from self.keys(store, change.scope)
        behind = [key for key in keys if digest_in(key) not in change.intact_spans]
        yield from self.forget(store, change.scope, behind)


_SUMMARIES = Summaries()


def look_up(store: BaseStore, scope: Scope, known: KnownDigests, keys: Sequence[str]) -> Flow[bool]:
    """Reads summaries that other runs or processes have written, once for each span.

    Returns True if there is any.
    """
    new = [key for key in keys if key not in known.digests and key not in known.looked_up]
    values = yield from _SUMMARIES.get(store, scope, new)
    known.looked_up.update(new)
    before = len(known.digests)
    for key, value in zip(new, values, strict=True):
        if value is not None:
            with suppress(StoreDataError):  # made again
                known.digests[key] = ConversationCompaction.read(value, "a summary").digest
    return len(known.digests) > before


def compactions(
    store: BaseStore, seen: Conversation, span_messages: int, until: int
) -> Flow[list[ConversationCompaction]]:
    """Returns the record of every span before a position.

    The model's digest, else that of extraction.
    """
    spans = seen.spans(span_messages)
    nodes = spans.tree.complete(until)
    if spans.span_digests.maker:
        yield from look_up(store, seen.scope, spans.span_digests, [*map(spans.key, nodes)])
    records: list[ConversationCompaction] = []
    for node in nodes:
        key = spans.key(node) if spans.model_digest(node) else spans.tree.key(node)
        records.append(ConversationCompaction.of(spans.digest(node), seen, key))
    return records


def request_of(spans: Spans, node: Node, key: str) -> SummaryRequest:
    """Returns the request to summarise a span: its messages or parts, and what came before them."""
    before: Digest | None = None
    if node.index:
        before = spans.digest(node_at(spans.tree.starts, node.level, node.index - 1))
    return SummaryRequest(
        node=node,
        lines=_lines_of(spans, node),
        prior=_text(before) if before else "",
        open_questions=before.open_questions if before else (),
        cap_tokens=CAP_TOKENS,
        key=key,
        digest=spans.entries[node.end - 1].digest,
    )


def _lines_of(spans: Spans, node: Node) -> tuple[Line, ...]:
    """Returns the messages of a span that say something, or the digests of its parts."""
    if node.level == 1:
        lines = spans.lines(node)
        return tuple(line for line in lines if line.text) or tuple(lines[:1])
    parts = map(spans.digest, spans.tree.children(node))
    return tuple(Line(part.first, "", None, _text(part), from_user=False) for part in parts)


def _text(digest: Digest) -> str:
    return "\n".join(sentence.attributed for sentence in digest.sentences)


def wanted(spans: Spans) -> list[tuple[Node, str]]:
    """Returns the spans that a model is to write about, each after its parts."""
    known = spans.span_digests
    if not known.maker:
        return []
    nodes = spans.tree.complete(min(known.until, len(spans.entries)))
    keys = [(node, spans.key(node)) for node in nodes]
    return [(node, key) for node, key in keys if known.lacks(key)]


class Owner(Protocol):
    """The object that holds the open conversations."""

    counter: TokenCounter
    clock: Clock

    @property
    def store(self) -> BaseStore:
        """The store of the conversations."""

    def note_call(self, scope: Scope, call: llm.AnsweredCall) -> None:
        """Counts a call of the model as usage."""

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
        known = conversation.table.span_digests
        is_waiting = known.waits_until is not None
        is_due = known.waits_until is not None and known.waits_until <= self._owner.clock()
        if not conversation.scope.is_kept or (is_waiting and not is_due):
            return
        has_news = is_rebuilt or is_due or known.until > known.asked_until
        if has_news and wanted(self._spans_of(conversation)):
            self.worker.submit(conversation.scope)
            known.asked_until = known.until

    def due_at(self, scope: Scope, position: int) -> Flow[SummaryRequest | None]:
        """Returns the request to sum up the span in which a message stands, once it has ended.

        None also where a model has written about it, or the conversation is not summed up yet.
        """
        return self._owner.recall(scope, partial(self._due_at, position))

    def keep(self, scope: Scope, request: SummaryRequest, digest: Digest) -> Flow[None]:
        """Stores what somebody else has had a model write, unless it is written already."""
        return self._owner.recall(scope, partial(self._keep, request, digest))

    def _due_at(self, position: int, conversation: OpenConversation) -> Flow[SummaryRequest | None]:
        known = conversation.table.span_digests
        if known.until <= 0 or known.waits_until is not None or not conversation.scope.is_kept:
            return None
        seen, spans = self._seen(conversation)
        nodes = [node for node in spans.tree.complete(len(spans.entries)) if node.level == 1]
        here = [node for node in nodes if node.first <= position < node.end]
        if not here:
            return None
        key = spans.key(here[0])
        yield from look_up(self._owner.store, seen.scope, known, [key])
        if not known.lacks(key) or key in known.failures:
            return None
        return request_of(spans, here[0], key)

    def _keep(
        self, request: SummaryRequest, digest: Digest, conversation: OpenConversation
    ) -> Flow[None]:
        if conversation.table.span_digests.lacks(request.key):
            yield from self._store(request, digest, conversation)

    def _seen(self, conversation: OpenConversation) -> tuple[Conversation, Spans]:
        seen = conversation.seen_with(self._owner.counter)
        return seen, seen.spans(seen.table.span_digests.span_messages)

    def _spans_of(self, conversation: OpenConversation) -> Spans:
        _, spans = self._seen(conversation)
        return spans

    def _run(self, scope: Scope, cancelled: Cancelled) -> Flow[None]:
        """Writes about span after span of one conversation.

        Its lock is not held while the model works.
        """
        while not cancelled:
            request = yield from self._owner.recall(scope, self._next)
            if request is None:
                return
            calls: list[llm.AnsweredCall] = []
            try:
                digest = self.summarizer.summarize(request, self._owner.counter, calls.append)
            except ModelReplyError as error:
                yield from self._owner.recall(scope, partial(self._book, calls))
                if not cancelled:
                    noting = partial(self._note_failure, request, error)
                    yield from self._owner.recall(scope, noting)
                return  # a later run tries again
            yield from self._owner.recall(scope, partial(self._book, calls))
            if not cancelled:
                yield from self._owner.recall(scope, partial(self._store, request, digest))

    def _book(
        self, calls: Sequence[llm.AnsweredCall], conversation: OpenConversation
    ) -> Flow[None]:
        """Counts calls of the model as usage, unless the conversation was cleared meanwhile."""
        yield from ()
        if conversation.table:
            for call in calls:
                self._owner.note_call(conversation.scope, call)

    def _next(self, conversation: OpenConversation) -> Flow[SummaryRequest | None]:
        """Returns the next request, once it is known what others have written."""
        seen, spans = self._seen(conversation)
        keys = [key for _, key in wanted(spans)]
        yield from look_up(self._owner.store, seen.scope, spans.span_digests, keys)
        for node, key in wanted(spans):
            return request_of(spans, node, key)
        return None

    def _note_failure(
        self, request: SummaryRequest, error: ModelReplyError, conversation: OpenConversation
    ) -> Flow[None]:
        """Notes why there is no digest, and how long the model is not asked."""
        yield from ()
        known = self._spans_of(conversation).span_digests
        if not error.is_passing:
            known.refusals[request.key] = known.refusals.get(request.key, 0) + 1
        known.failed += 1
        known.waits_until = self._owner.clock() + llm.wait_after(known.failed)
        failure = str(error)
        if known.lacks(request.key):
            failure += f"; it is asked again, not before {llm.time_text(known.waits_until)}"
        known.failures[request.key] = failure

    def _store(
        self, request: SummaryRequest, digest: Digest, conversation: OpenConversation
    ) -> Flow[None]:
        """Stores a digest if all messages up to its end are unchanged.

        It may tell of anything that was said before.
        """
        seen, spans = self._seen(conversation)
        known = spans.span_digests
        known.failed = 0
        known.waits_until = None
        end = request.node.end
        if end > len(spans.entries) or spans.entries[end - 1].digest != request.digest:
            return
        if spans.key(request.node) != request.key:
            return
        known.digests[request.key] = digest
        known.failures.pop(request.key, None)
        record = ConversationCompaction.of(digest, seen, request.key, self._owner.clock())
        summaries = {record.id: record.to_value()}
        yield from _SUMMARIES.put(self._owner.store, seen.scope, summaries)
