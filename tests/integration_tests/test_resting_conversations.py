"""Conversations that rest are stored in segments to their last message.

That is, once another conversation has searched them.
"""

import asyncio
import random
import threading
from base64 import b64decode
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langgraph.store.base import BaseStore, GetOp, Op, PutOp, Result
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import AssembledContext, ContextPipeline
from langchain_ctxbudget.history import SEGMENTS, log, other_listing, readings, segments, table
from langchain_ctxbudget.search import LocalEmbeddings
from langchain_ctxbudget.sentences import Said
from langchain_ctxbudget.stores import Scope
from tests.cases import few_are_quick
from tests.conversations import BagOfWords
from tests.log_contract import Elsewhere
from tests.stored_segments import Mortal, inflated, seals

pytestmark = pytest.mark.slow

SETTINGS: dict[str, Any] = {"learn": False, "max_context_tokens": 4_000}
NO_SOURCES: dict[str, Any] = {"sources": []}
QUESTIONS = (
    "What is in drawer 17?",
    "Where did Ann put the violet lantern?",
    "What about the market in Ghent?",
)
WORDS = [
    *["Paris", "invoice", "Alice", "Monday", "garden", "market", "server", "costs", "meeting"],
    *["alpha", "train", "lunch", "report", "window", "kitchen"],
]
LENGTHS = {"c0": 300, "c1": 90, "c2": 33}
"""Messages of each conversation that rests."""
ALL_MESSAGES = 423


# -- Stores


class Recording(Elsewhere):
    """A store that keeps what it is asked for, by the kind of its records."""

    def __init__(self, store: BaseStore) -> None:
        super().__init__(store)
        self.reads: list[GetOp] = []
        self.writes: list[PutOp] = []

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        operations = list(ops)
        self.reads += [op for op in operations if isinstance(op, GetOp)]
        self.writes += [op for op in operations if isinstance(op, PutOp)]
        return super().batch(operations)

    def messages_read(self, *conversations: str) -> int:
        namespaces = [Scope("ada", key).namespace(log.MESSAGES) for key in conversations]
        return sum(op.namespace in namespaces for op in self.reads)

    def heads_written(self, conversation: str) -> int:
        namespace = segments_of(conversation)
        return sum(op.namespace == namespace and op.key == segments.HEAD for op in self.writes)


class Slow(Elsewhere):
    """A store whose first write of segments goes on only some time after it has begun."""

    def __init__(self, store: BaseStore) -> None:
        super().__init__(store)
        self.begun = threading.Event()
        self.goes_on = threading.Event()

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        operations = list(ops)
        if any(isinstance(op, PutOp) and seals(op) and op.value for op in operations):
            self.begun.set()
            assert self.goes_on.wait(30)
        return super().batch(operations)


class CountingEmbeddings(LocalEmbeddings):
    """Local embeddings that count their texts."""

    def __init__(self) -> None:
        super().__init__()
        self.texts = 0

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        self.texts += len(texts)
        return super().embed_documents(texts)


# -- Conversations


@pytest.fixture
def _small_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "SEGMENT_MESSAGES", 64)
    monkeypatch.setattr(segments, "FOLLOWING", 16)
    monkeypatch.setattr(table, "MOST_DECODED", 64)


def at(conversation: str) -> dict[str, str]:
    return {"user_id": "ada", "conversation_id": conversation}


def segments_of(conversation: str) -> tuple[str, ...]:
    """Returns the namespace of the segments of a conversation."""
    return Scope("ada", conversation).namespace(SEGMENTS)


def new(store: BaseStore, **options: Any) -> ContextPipeline:
    return ContextPipeline(SETTINGS, store=store, **options)


def chatter(first: int, end: int, *, is_dated: bool = True) -> list[BaseMessage]:
    """Returns messages of several speakers.

    Some have no ids, some a day; some are repeated, and some are not to be shown.
    """
    rng = random.Random(first)
    messages: list[BaseMessage] = []
    for number in range(first, end):
        words = " ".join(rng.choices(WORDS, k=8))
        text = f"Number {number}: the lantern is in drawer {number}, {words}."
        if number % 9 == 8:
            messages.append(AIMessage("Yes."))
        elif number % 2:
            messages.append(AIMessage(text, id=f"m{number}"))
        else:
            messages.append(question_number(number, text, is_dated=is_dated))
    return messages


def question_number(number: int, text: str, *, is_dated: bool) -> HumanMessage:
    extra: dict[str, Any] = {}
    if is_dated and number % 12 == 0:
        extra["created_at"] = f"2026-01-{number // 20 % 28 + 1:02}T10:00:00Z"
    if number % 32 == 30:
        extra["ctxbudget"] = "drop"
    name = ("Ann", None)[number % 4 // 2]
    return HumanMessage(text, id=f"m{number}", name=name, additional_kwargs=extra)


def filled(lengths: dict[str, int] = LENGTHS) -> InMemoryStore:
    """Returns a store with conversations that nobody has searched yet."""
    store = InMemoryStore()
    with new(store, writer_id="w") as pipeline:
        for number, (conversation, length) in enumerate(lengths.items()):
            pipeline.add_messages(chatter(0, length, is_dated=number != 1), **at(conversation))
        pipeline.add_messages([HumanMessage("Hello."), AIMessage("Hello!")], **at("now"))
        assert pipeline.flush(60)
    return store


def search(store: BaseStore, **options: Any) -> list[AssembledContext]:
    """Returns prompts of a new process, which ends after what it does in the background."""
    with new(store, **options) as pipeline:
        prompts = [pipeline.assemble(question, **at("now")) for question in QUESTIONS]
        assert pipeline.flush(60)
    return prompts


def open_alone(store: BaseStore, conversation: str) -> None:
    """Has a new process make a prompt of a conversation."""
    with new(store) as pipeline:
        pipeline.assemble(QUESTIONS[0], **at(conversation), settings=NO_SOURCES)
        assert pipeline.flush(60)


def search_awaited(store: BaseStore) -> list[AssembledContext]:
    """Returns the same of a process that awaits what it asks for."""
    return asyncio.run(asearch(store))


async def asearch(store: BaseStore) -> list[AssembledContext]:
    pipeline = new(store)
    prompts = [await pipeline.aassemble(question, **at("now")) for question in QUESTIONS]
    assert await pipeline.aflush(60)
    pipeline.close()
    return prompts


def results(prompts: Sequence[AssembledContext]) -> list[Any]:
    return [
        (prompt.messages, prompt.report.layers, prompt.report.coverage, prompt.report.failures)
        for prompt in prompts
    ]


def stored(store: BaseStore, conversation: str) -> dict[str, Any]:
    """Returns what is stored of the segments of a conversation, by key."""
    items = store.search(segments_of(conversation), limit=1_000)
    return {item.key: item.value for item in items}


def ends(store: BaseStore, conversation: str) -> list[int]:
    """Returns up to which message each segment of a conversation reaches."""
    return [segment["end"] for segment in stored(store, conversation)[segments.HEAD]["blocks"]]


def delete_segments(store: BaseStore, *conversations: str) -> None:
    for conversation in conversations:
        for key in stored(store, conversation):
            store.delete(segments_of(conversation), key)


def texts(store: BaseStore, conversation: str) -> bytes:
    """Returns all texts of segments, also of those that no head names."""
    return b"".join(
        inflated(packed_texts(value["data"]))
        for key, value in stored(store, conversation).items()
        if key.endswith(" texts")
    )


def packed_texts(data: str) -> bytes:
    """Returns the texts of one segment as they are packed, behind the lengths of their parts."""
    packed = b64decode(data)
    return packed[packed.find(b"\x78\x01") :]


# -- What the next process does not do again


def test_the_first_process_reads_every_message() -> None:
    store = Recording(filled())

    search(store)

    assert store.messages_read(*LENGTHS) >= ALL_MESSAGES


def test_the_next_process_reads_no_message_of_them() -> None:
    store = filled()
    search(store)

    recording = Recording(store)
    search(recording)

    assert recording.messages_read(*LENGTHS) == 0


@pytest.fixture
def read_by_another(monkeypatch: pytest.MonkeyPatch) -> InMemoryStore:
    """A store whose segments were filled by another reader of sentences."""
    store = filled()
    with monkeypatch.context() as patched:
        patched.setattr(readings, "reader_version", lambda: "another")
        search(store)
    return store


def test_a_second_opening_reads_no_sentence(
    read_by_another: InMemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts_read: list[str] = []

    def find_nothing(texts: Sequence[str]) -> list[tuple[Said, ...]]:
        texts_read.extend(texts)
        return [()] * len(texts)

    monkeypatch.setattr(readings, "read", find_nothing)
    open_alone(read_by_another, "c2")
    in_first_opening = len(texts_read)
    open_alone(read_by_another, "c2")

    assert in_first_opening > 0
    assert len(texts_read) == in_first_opening


def test_who_searches_writes_nothing_for_the_reader_of_sentences(
    read_by_another: InMemoryStore,
) -> None:
    recording = Recording(read_by_another)
    search(recording)

    assert [recording.heads_written(name) for name in LENGTHS] == [0, 0, 0]


@pytest.fixture
def _few_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(other_listing, "PAGE", 8)  # two records of each of four conversations


@pytest.mark.usefixtures("_few_listed")
def test_more_lanes_than_are_listed_are_not_read_either() -> None:
    store = filled()
    from_log = results(search(store))

    recording = Recording(store)
    from_segments = results(search(recording))

    assert from_segments == from_log
    assert recording.messages_read(*LENGTHS) == 0


def test_the_next_process_embeds_none_of_them() -> None:
    store = filled()
    first = CountingEmbeddings()
    second = CountingEmbeddings()

    search(store, embeddings=first)
    search(store, embeddings=second)

    assert first.texts >= ALL_MESSAGES
    assert second.texts <= 10


@pytest.mark.slow
def test_a_search_leaves_the_vectors_of_who_talks_there() -> None:
    store = filled()
    with new(store, embeddings=BagOfWords()) as talking:
        talking.assemble(QUESTIONS[0], settings=NO_SOURCES, **at("c0"))
        talking.add_messages(chatter(300, 700), **at("c0"))
        talking.assemble(QUESTIONS[0], settings=NO_SOURCES, **at("c0"))
        assert talking.flush(60)

    search(store)  # with embeddings of its own

    assert ends(store, "c0") == [512, 700]
    with new(store, embeddings=BagOfWords()) as talking:
        report = talking.assemble(QUESTIONS[0], settings=NO_SOURCES, **at("c0")).report
    assert report.failures == ()


def test_what_is_stored_is_not_written_again() -> None:
    store = filled()
    search(store)

    recording = Recording(store)
    search(recording)

    assert recording.heads_written("c0") == 0
    assert recording.heads_written("c1") == 0
    assert recording.heads_written("c2") == 0


# -- The same from segments as from the log


@pytest.mark.parametrize("search", [search, search_awaited], ids=["sync", "async"])
def test_prompts_are_the_same_from_segments_and_from_the_log(
    search: Callable[[BaseStore], list[AssembledContext]],
) -> None:
    store = filled()
    with new(store, writer_id="v") as pipeline:
        pipeline.pin("m5", preservation="drop", **at("c1"))
        pipeline.edit_message("m15", HumanMessage("The violin is in drawer 17."), **at("c0"))

    from_log = results(search(store))
    assert ends(store, "c0") == [300]
    from_segments = results(search(store))
    delete_segments(store, *LENGTHS)
    from_log_again = results(search(store))

    assert from_segments == from_log
    assert from_log_again == from_log


def on_the_first_of_march() -> datetime:
    return datetime(2026, 3, 1, tzinfo=UTC)


def talk(store: BaseStore, length: int) -> list[Any]:
    """Returns six prompts of a conversation that goes on, its messages and its digest."""
    with new(store, writer_id="v", clock=on_the_first_of_march) as pipeline:
        prompts: list[AssembledContext] = []
        for turn in range(6):
            question = QUESTIONS[turn % 3]
            prompts.append(pipeline.assemble(question, settings=NO_SOURCES, **at("c1")))
            first = length + 40 * turn
            pipeline.add_messages(chatter(first, first + 40), **at("c1"))
            assert pipeline.flush(60)
        messages = pipeline.get_messages(**at("c1"))
        conversations = pipeline.engine.workspace.open_conversations.all()
        digest = conversations[Scope("ada", "c1")].table.digest()
    return [results(prompts), messages, digest]


LENGTHS_AT_REST = [
    65,
    pytest.param(130, marks=pytest.mark.slow),
    pytest.param(16, marks=pytest.mark.slow),
    pytest.param(63, marks=pytest.mark.slow),
    pytest.param(64, marks=pytest.mark.slow),
    pytest.param(72, marks=pytest.mark.slow),
    pytest.param(73, marks=pytest.mark.slow),
    pytest.param(200, marks=pytest.mark.slow),
]


@pytest.mark.usefixtures("_small_segments")
@pytest.mark.parametrize("length", LENGTHS_AT_REST)
def test_talk_goes_on_from_segments_as_from_the_log(length: int) -> None:
    sealed = filled({"c0": 300, "c1": length})
    search(sealed)
    assert ends(sealed, "c1")[-1] == length
    log_alone = filled({"c0": 300, "c1": length})
    search(log_alone)
    assert ends(log_alone, "c1")[-1] == length
    delete_segments(log_alone, "c1")

    assert talk(sealed, length) == talk(log_alone, length)


# -- Tails


@pytest.fixture
def store_with_a_tail(_small_segments: None) -> InMemoryStore:
    """A store in which a conversation of 50 messages rests."""
    store = filled({"c0": 300, "c1": 50})
    search(store)
    return store


def test_a_short_conversation_is_a_tail_alone(store_with_a_tail: InMemoryStore) -> None:
    assert ends(store_with_a_tail, "c1") == [50]


def test_a_tail_gives_way_to_a_whole_segment(store_with_a_tail: InMemoryStore) -> None:
    with new(store_with_a_tail, writer_id="v") as pipeline:
        pipeline.add_messages(chatter(50, 150), **at("c1"))
        assert pipeline.flush(60)
    search(store_with_a_tail)

    assert ends(store_with_a_tail, "c1") == [64, 128, 150]
    recording = Recording(store_with_a_tail)
    search(recording)
    assert recording.messages_read("c1") == 0


@pytest.mark.slow
def test_a_tail_that_grows_is_written_few_times() -> None:
    store = Recording(filled({"c0": 300, "c1": 20}))

    with new(store) as pipeline:
        for number in range(20, 220, 2):
            pipeline.add_messages(chatter(number, number + 2), **at("c1"))
            pipeline.assemble(QUESTIONS[0], **at("now"))
            assert pipeline.flush(60)

    assert 3 <= store.heads_written("c1") <= 7


@pytest.mark.usefixtures("_small_segments")
def test_no_part_is_left_that_no_head_names() -> None:
    store = filled({"c0": 300, "c1": 100})
    with new(store, writer_id="b") as talking, new(store, writer_id="c") as searching:
        talking.assemble(QUESTIONS[0], **at("c1"))
        assert talking.flush(60)
        searching.assemble(QUESTIONS[0], **at("now"))
        assert searching.flush(60)
        assert ends(store, "c1") == [64, 100]
        talking.add_messages(chatter(100, 180), **at("c1"))  # it has not seen the tail
        assert talking.flush(60)

    head = segments.Head.read(stored(store, "c1")[segments.HEAD], "the head")

    assert [segment.end for segment in head.segments] == [64, 128]
    parts = sum(len(segment.parts) for segment in head.segments)
    assert len(stored(store, "c1")) == parts + 1


# -- What is taken back


def forget(pipeline: ContextPipeline) -> None:
    pipeline.remove_messages(["m77"], on_removal="forget", **at("c1"))


def edit(pipeline: ContextPipeline) -> None:
    pipeline.edit_message("m77", AIMessage("It rains."), **at("c1"))


def clear(pipeline: ContextPipeline) -> None:
    pipeline.clear(**at("c1"))


def erase(pipeline: ContextPipeline) -> None:
    pipeline.erase_user(user_id="ada")


EVERY_CHANGE = [forget, edit, clear, erase]
Change = Callable[[ContextPipeline], None]


@pytest.mark.parametrize("change", few_are_quick(EVERY_CHANGE, 2))
@pytest.mark.parametrize(
    "writer",
    [
        "the one that wrote it",
        pytest.param("another one", marks=pytest.mark.slow),
        pytest.param("one that has it open", marks=pytest.mark.slow),
    ],
)
def test_what_is_taken_back_is_in_no_tail(change: Change, writer: str) -> None:
    store = filled()
    with new(store, writer_id="a") as searching, new(store, writer_id="b") as other:
        if writer == "one that has it open":
            other.get_messages(**at("c1"))
        searching.assemble(QUESTIONS[0], **at("now"))
        assert searching.flush(60)
        assert b"drawer 77," in texts(store, "c1")

        if writer == "the one that wrote it":
            change(searching)
        else:
            change(other)

        assert b"drawer 77," not in texts(store, "c1")
        searching.assemble(QUESTIONS[1], **at("now"))
        assert searching.flush(60)
        assert b"drawer 77," not in texts(store, "c1")


@pytest.mark.parametrize("change", few_are_quick(EVERY_CHANGE))
def test_a_write_under_way_ends_before_a_deletion(change: Change) -> None:
    store = filled({"c1": 90})
    slow = Slow(store)
    with new(slow) as pipeline:
        pipeline.assemble(QUESTIONS[0], **at("now"))
        assert slow.begun.wait(30)
        threading.Timer(0.2, slow.goes_on.set).start()

        change(pipeline)

        assert pipeline.flush(60)
    assert b"drawer 77," not in texts(store, "c1")


def test_a_part_that_no_head_names_is_forgotten_too() -> None:
    store = filled()
    search(store)
    left_by_a_killed_process = stored(store, "c1")["0 texts"]
    store.put(segments_of("c1"), "1 texts", left_by_a_killed_process)

    with new(store) as pipeline:
        forget(pipeline)
        assert pipeline.flush(60)

    assert b"drawer 77," not in texts(store, "c1")


# -- Damage


KEYS = {"texts": "0 texts", "head": segments.HEAD, "log": "0 log", "times": "0 times"}
DAMAGES: dict[str, dict[str, Any] | None] = {
    "missing": None,
    "no text": {"data": "?"},
    "other text": {"data": "AAAA"},
}


def key_of(part: str, store: BaseStore) -> str:
    """Returns the key of a part; that of the vectors has a hash, and no other key is left."""
    if part in KEYS:
        return KEYS[part]
    return next(key for key in stored(store, "c1") if key not in KEYS.values())


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
@pytest.mark.parametrize(
    "part",
    [
        "texts",
        "head",
        pytest.param("log", marks=pytest.mark.slow),
        pytest.param("times", marks=pytest.mark.slow),
        pytest.param("vectors", marks=pytest.mark.slow),
    ],
)
def test_a_damaged_tail_is_made_anew(part: str, damage: dict[str, Any] | None) -> None:
    store = filled()
    expected = results(search(store))
    before = stored(store, "c1")
    store.batch([PutOp(segments_of("c1"), key_of(part, store), damage)])

    assert results(search(store)) == expected
    assert stored(store, "c1") == before
    recording = Recording(store)
    search(recording)
    assert recording.messages_read("c1") == 0


@pytest.mark.slow
@pytest.mark.parametrize("writes", [0, 1, 2, 3, 4, 5])
def test_a_process_killed_while_it_writes_leaves_a_sound_store(writes: int) -> None:
    store = filled()
    expected = results(search(Mortal(store, writes)))

    assert results(search(store)) == expected
    recording = Recording(store)
    assert results(search(recording)) == expected
    assert recording.messages_read(*LENGTHS) == 0


def test_a_head_of_the_version_before_is_read() -> None:
    store = filled()
    search(store)
    head = stored(store, "c0")[segments.HEAD]
    assert head["version"] == 9
    store.put(
        segments_of("c0"), segments.HEAD, {**head, "version": 8, "questions": {"read_until": 40}}
    )

    recording = Recording(store)
    search(recording)

    assert recording.messages_read("c0") == 0
