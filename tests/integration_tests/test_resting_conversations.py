"""Conversations that rest are stored in segments to their last message, once another conversation has searched them."""

import asyncio
import random
import threading
import zlib
from base64 import b64decode
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langgraph.store.base import BaseStore, GetOp, Op, PutOp, Result
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import AssembledContext, ContextPipeline
from langchain_ctxbudget.history import SEGMENTS, log, other_listing, segments, table
from langchain_ctxbudget.search import LocalEmbeddings
from langchain_ctxbudget.stores import Scope
from tests.conversations import BagOfWords
from tests.log_contract import Elsewhere

SETTINGS: dict[str, Any] = {"learn": False, "max_context_tokens": 4_000}
QUESTIONS = (
    "What is in drawer 17?",
    "Where did Ann put the violet lantern?",
    "What about the market in Ghent?",
)
WORDS = "Paris invoice Alice Monday garden market server costs meeting alpha train lunch report window kitchen".split()


class Told(Elsewhere):
    """A store that tells what was read and written, by the kind of its records."""

    def __init__(self, store: BaseStore) -> None:
        super().__init__(store)
        self.read: list[GetOp] = []
        self.written: list[PutOp] = []

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        todo = list(ops)
        self.read += [op for op in todo if isinstance(op, GetOp)]
        self.written += [op for op in todo if isinstance(op, PutOp)]
        return super().batch(todo)

    def messages_read(self, *conversations: str) -> int:
        namespaces = [Scope("ada", one).namespace(log.MESSAGES) for one in conversations]
        return sum(op.namespace in namespaces for op in self.read)

    def heads_written(self, conversation: str) -> int:
        namespace = Scope("ada", conversation).namespace(SEGMENTS)
        return sum(op.namespace == namespace and op.key == segments.HEAD for op in self.written)


class CountingEmbeddings(LocalEmbeddings):
    """Local embeddings that count their texts."""

    def __init__(self) -> None:
        super().__init__()
        self.texts = 0

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        self.texts += len(texts)
        return super().embed_documents(texts)


@pytest.fixture
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "SEGMENT_MESSAGES", 64)
    monkeypatch.setattr(segments, "FOLLOWING", 16)
    monkeypatch.setattr(table, "MOST_DECODED", 64)


def at(conversation: str) -> dict[str, str]:
    return {"user_id": "ada", "conversation_id": conversation}


def new(store: BaseStore, **options: Any) -> ContextPipeline:
    return ContextPipeline(SETTINGS, store=store, **options)


def chatter(first: int, end: int, *, is_dated: bool = True) -> list[BaseMessage]:
    """Returns messages of several speakers, some without ids, some of a day, some repeated or not to be shown."""
    rng = random.Random(first)
    made: list[BaseMessage] = []
    for number in range(first, end):
        text = f"Number {number}: the lantern is in drawer {number}, {' '.join(rng.choices(WORDS, k=8))}."
        if number % 9 == 8:
            made.append(AIMessage("Yes."))
        elif number % 2:
            made.append(AIMessage(text, id=f"m{number}"))
        else:
            extra: dict[str, Any] = {}
            if is_dated and number % 12 == 0:
                extra["created_at"] = f"2026-01-{number // 20 % 28 + 1:02}T10:00:00Z"
            if number % 32 == 30:
                extra["ctxbudget"] = "drop"
            made.append(
                HumanMessage(
                    text,
                    id=f"m{number}",
                    name=("Ann", None)[number % 4 // 2],
                    additional_kwargs=extra,
                )
            )
    return made


LENGTHS = {"c0": 300, "c1": 90, "c2": 33}


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
        found = [pipeline.assemble(question, **at("now")) for question in QUESTIONS]
        assert pipeline.flush(60)
    return found


async def asearch(store: BaseStore) -> list[AssembledContext]:
    pipeline = new(store)
    found = [await pipeline.aassemble(question, **at("now")) for question in QUESTIONS]
    assert await pipeline.aflush(60)
    pipeline.close()
    return found


def results(prompts: Sequence[AssembledContext]) -> list[Any]:
    return [
        (prompt.messages, prompt.report.layers, prompt.report.coverage, prompt.report.failures)
        for prompt in prompts
    ]


def stored(store: BaseStore, conversation: str) -> dict[str, Any]:
    return {
        item.key: item.value
        for item in store.search(Scope("ada", conversation).namespace(SEGMENTS), limit=1_000)
    }


def ends(store: BaseStore, conversation: str) -> list[int]:
    return [segment["end"] for segment in stored(store, conversation)[segments.HEAD]["blocks"]]


def delete_blocks(store: BaseStore, *conversations: str) -> None:
    for conversation in conversations:
        namespace = Scope("ada", conversation).namespace(SEGMENTS)
        store.batch([PutOp(namespace, key, None) for key in stored(store, conversation)])


def texts(store: BaseStore, conversation: str) -> bytes:
    """Returns all texts of segments, also of those that no head names."""
    found = b""
    for key, value in stored(store, conversation).items():
        if key.endswith(" texts"):
            rest = b64decode(value["data"])
            begin = rest.find(b"\x78\x01")  # behind the lengths of its parts
            rest = rest[begin:]
            while rest:
                inflating = zlib.decompressobj()
                found += inflating.decompress(rest)
                rest = inflating.unused_data
    return found


def test_the_next_process_reads_no_message_of_them() -> None:
    store = filled()
    first = Told(store)
    search(first)
    assert first.messages_read(*LENGTHS) >= sum(LENGTHS.values())
    second = Told(store)
    search(second)
    assert second.messages_read(*LENGTHS) == 0


def test_nor_where_there_may_be_more_lanes_than_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(other_listing, "LISTED", 8)  # two records of each of four conversations
    store = filled()
    expected = results(search(store))
    second = Told(store)
    assert results(search(second)) == expected
    assert second.messages_read(*LENGTHS) == 0


def test_the_next_process_embeds_none_of_them() -> None:
    store = filled()
    embeddings = CountingEmbeddings(), CountingEmbeddings()
    for one in embeddings:
        search(store, embeddings=one)
    assert embeddings[0].texts >= sum(LENGTHS.values())
    assert embeddings[1].texts <= 10


def test_who_searches_them_leaves_the_vectors_of_who_talks_there() -> None:
    store = filled()
    mine = BagOfWords()
    with new(store, embeddings=mine) as talking:
        talking.assemble(QUESTIONS[0], settings={"sources": []}, **at("c0"))
        talking.add_messages(chatter(300, 700), **at("c0"))
        talking.assemble(QUESTIONS[0], settings={"sources": []}, **at("c0"))
        assert talking.flush(60)
    search(store)  # with embeddings of its own
    assert ends(store, "c0") == [512, 700]
    with new(store, embeddings=BagOfWords()) as talking:
        report = talking.assemble(QUESTIONS[0], settings={"sources": []}, **at("c0")).report
    assert report.failures == ()


def test_what_is_stored_is_not_written_again() -> None:
    store = filled()
    search(store)
    second = Told(store)
    search(second)
    assert [second.heads_written(conversation) for conversation in LENGTHS] == [0, 0, 0]


@pytest.mark.parametrize("form", ["sync", "async"])
def test_prompts_are_the_same_from_blocks_and_from_the_log(form: str) -> None:
    store = filled()
    with new(store, writer_id="v") as pipeline:
        pipeline.pin("m5", preservation="drop", **at("c1"))
        pipeline.edit_message("m15", HumanMessage("The violin is in drawer 17."), **at("c0"))
    run: Callable[[BaseStore], list[AssembledContext]] = search
    if form == "async":
        run = lambda store: asyncio.run(asearch(store))  # noqa: E731
    from_log = results(run(store))
    assert ends(store, "c0") == [300]
    assert results(run(store)) == from_log
    delete_blocks(store, *LENGTHS)
    assert results(run(store)) == from_log


LENGTHS_AT_REST = [
    65,
    130,
    *(pytest.param(one, marks=pytest.mark.slow) for one in (16, 63, 64, 72, 73, 200)),
]


@pytest.mark.usefixtures("_small_blocks")
@pytest.mark.parametrize("length", LENGTHS_AT_REST)
def test_talk_goes_on_from_them_as_from_the_log(length: int) -> None:
    expected = []
    for is_sealed in (True, False):
        store = filled({"c0": 300, "c1": length})
        search(store)
        assert ends(store, "c1")[-1] == length
        if not is_sealed:
            delete_blocks(store, "c1")
        with new(store, writer_id="v", clock=lambda: datetime(2026, 3, 1, tzinfo=UTC)) as pipeline:
            made: list[Any] = []
            for turn in range(6):
                made += results(
                    [pipeline.assemble(QUESTIONS[turn % 3], settings={"sources": []}, **at("c1"))]
                )
                pipeline.add_messages(
                    chatter(length + 40 * turn, length + 40 * turn + 40), **at("c1")
                )
                assert pipeline.flush(60)
            made.append(pipeline.get_messages(**at("c1")))
            made.append(
                pipeline.engine.workspace.open_conversations.all()[
                    Scope("ada", "c1")
                ].table.digest()
            )
        expected.append(made)
    assert expected[0] == expected[1]


@pytest.mark.usefixtures("_small_blocks")
def test_a_tail_gives_way_to_a_whole_block() -> None:
    store = filled({"c0": 300, "c1": 50})
    search(store)
    assert ends(store, "c1") == [50]
    with new(store, writer_id="v") as pipeline:
        pipeline.add_messages(chatter(50, 150), **at("c1"))
        assert pipeline.flush(60)
    search(store)
    assert ends(store, "c1") == [64, 128, 150]
    third = Told(store)
    search(third)
    assert third.messages_read("c1") == 0


def test_a_tail_that_grows_is_written_few_times() -> None:
    store = filled({"c0": 300, "c1": 20})
    told = Told(store)
    with new(told) as pipeline:
        for number in range(20, 220, 2):
            pipeline.add_messages(chatter(number, number + 2), **at("c1"))
            pipeline.assemble(QUESTIONS[0], **at("now"))
            assert pipeline.flush(60)
    assert 3 <= told.heads_written("c1") <= 7


CHANGES: dict[str, Callable[[ContextPipeline], object]] = {
    "forget": lambda pipeline: pipeline.remove_messages(["m77"], on_removal="forget", **at("c1")),
    "edit": lambda pipeline: pipeline.edit_message("m77", AIMessage("It rains."), **at("c1")),
    "clear": lambda pipeline: pipeline.clear(**at("c1")),
    "erase": lambda pipeline: pipeline.erase_user(user_id="ada"),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize(
    "who",
    [
        "the one that wrote it",
        pytest.param("another one", marks=pytest.mark.slow),
        pytest.param("one that has it open", marks=pytest.mark.slow),
    ],
)
def test_what_is_taken_back_is_in_no_tail(change: str, who: str) -> None:
    store = filled()
    with new(store, writer_id="a") as searching, new(store, writer_id="b") as other:
        if who == "one that has it open":
            other.get_messages(**at("c1"))
        searching.assemble(QUESTIONS[0], **at("now"))
        assert searching.flush(60)
        assert b"drawer 77," in texts(store, "c1")
        CHANGES[change](searching if who == "the one that wrote it" else other)
        assert b"drawer 77," not in texts(store, "c1")
        searching.assemble(QUESTIONS[1], **at("now"))
        assert searching.flush(60)
        assert b"drawer 77," not in texts(store, "c1")


class Slow(Elsewhere):
    """A store whose first write of segments goes on only some time after it has begun."""

    def __init__(self, store: BaseStore) -> None:
        super().__init__(store)
        self.begun, self.goes_on = threading.Event(), threading.Event()

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        todo = list(ops)
        if any(isinstance(op, PutOp) and SEGMENTS in op.namespace and op.value for op in todo):
            self.begun.set()
            assert self.goes_on.wait(30)
        return super().batch(todo)


@pytest.mark.parametrize("change", CHANGES)
def test_a_write_under_way_ends_before_a_deletion(change: str) -> None:
    store = filled({"c1": 90})
    slow = Slow(store)
    with new(slow) as pipeline:
        pipeline.assemble(QUESTIONS[0], **at("now"))
        assert slow.begun.wait(30)
        threading.Timer(0.2, slow.goes_on.set).start()
        CHANGES[change](pipeline)
        assert pipeline.flush(60)
    assert b"drawer 77," not in texts(store, "c1")


@pytest.mark.usefixtures("_small_blocks")
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


DAMAGES: dict[str, dict[str, Any] | None] = {
    "missing": None,
    "no text": {"data": "?"},
    "other text": {"data": "AAAA"},
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize(
    "part",
    [
        "texts",
        "head",
        *(pytest.param(one, marks=pytest.mark.slow) for one in ("log", "times", "vectors")),
    ],
)
def test_a_damaged_tail_is_made_anew(part: str, damage: str) -> None:
    store = filled()
    expected = results(search(store))
    before = stored(store, "c1")
    hashed = {
        "vectors": next(
            key for key in before if key not in {"0 texts", "0 log", "0 times", segments.HEAD}
        )
    }
    key = segments.HEAD if part == "head" else hashed.get(part, f"0 {part}")
    store.batch([PutOp(Scope("ada", "c1").namespace(SEGMENTS), key, DAMAGES[damage])])
    assert results(search(store)) == expected
    assert stored(store, "c1") == before
    again = Told(store)
    search(again)
    assert again.messages_read("c1") == 0


@pytest.mark.parametrize("writes", range(6))
def test_a_process_that_is_killed_while_it_writes_leaves_a_sound_store(writes: int) -> None:
    killed = type("Killed", (BaseException,), {})

    class Mortal(Elsewhere):
        left = writes

        def batch(self, ops: Any) -> Any:
            todo = list(ops)
            if any(isinstance(op, PutOp) and SEGMENTS in op.namespace for op in todo):
                if not self.left:
                    raise killed
                self.left -= 1
            return super().batch(todo)

    store = filled()
    expected = results(search(Mortal(store)))
    assert results(search(store)) == expected
    again = Told(store)
    assert results(search(again)) == expected
    assert again.messages_read(*LENGTHS) == 0


def test_a_part_that_no_head_names_is_forgotten_too() -> None:
    store = filled()
    search(store)
    namespace = Scope("ada", "c1").namespace(SEGMENTS)
    store.batch(
        [PutOp(namespace, "1 texts", stored(store, "c1")["0 texts"])]
    )  # by one that was killed
    with new(store) as pipeline:
        pipeline.remove_messages(["m77"], on_removal="forget", **at("c1"))
        assert pipeline.flush(60)
    assert b"drawer 77," not in texts(store, "c1")


def test_a_head_of_the_version_before_is_read() -> None:
    store = filled()
    search(store)
    head = stored(store, "c0")[segments.HEAD]
    assert head["version"] == 9
    store.batch(
        [PutOp(Scope("ada", "c0").namespace(SEGMENTS), segments.HEAD, {**head, "version": 8})]
    )
    second = Told(store)
    search(second)
    assert second.messages_read("c0") == 0
