"""Sealed segments: what is known of older messages is worked out once, also across restarts."""

import json
import zlib
from base64 import b64decode
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import cycle
from random import Random
from typing import Any

import pytest
from langchain_core.embeddings import Embeddings
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langgraph.store.base import BaseStore, PutOp
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import AssembledContext, ContextPipeline, TiktokenCounter
from langchain_ctxbudget.history import SEGMENTS, segments, table
from langchain_ctxbudget.stores import MessageRecord, Scope
from tests.conversations import BagOfWords
from tests.log_contract import Counting, Elsewhere, shown

ADA: dict[str, Any] = {"user_id": "ada", "conversation_id": "c1"}
NAMESPACE = Scope("ada", "c1").namespace(SEGMENTS)
SETTINGS = {"max_context_tokens": 1_000, "learn": False}
QUESTION = "Where did Ann put the violet lantern?"
SEGMENT = 32
FOLLOWING = 8
WORDS = [f"word{number}" for number in range(60)]


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "SEGMENT_MESSAGES", SEGMENT)
    monkeypatch.setattr(segments, "FOLLOWING", FOLLOWING)
    monkeypatch.setattr(table, "MOST_DECODED", SEGMENT)


class Process:
    def __init__(
        self, store: BaseStore, embeddings: Embeddings | None = None, writer: str = "w"
    ) -> None:
        self.counter, self.embeddings = TiktokenCounter(), embeddings or BagOfWords()
        self.store = Counting(Elsewhere(store))
        self.pipeline = ContextPipeline(
            SETTINGS,
            store=self.store,
            embeddings=self.embeddings,
            token_counter=self.counter,
            writer_id=writer,
        )

    def ask(self, question: str = QUESTION) -> AssembledContext:
        context = self.pipeline.assemble(question, **ADA)
        assert self.pipeline.flush(30)
        return context

    def add(self, *messages: BaseMessage) -> None:
        self.pipeline.add_messages(messages, **ADA)
        assert self.pipeline.flush(30)

    def subjects(self) -> list[int]:
        conversation = self.pipeline.engine.workspace.open_conversations.all()[Scope("ada", "c1")]
        subjects: list[int] = conversation.table.search_index.subjects().tolist()
        return subjects

    def shown(self) -> list[tuple[str, str]]:
        return shown(self.pipeline.get_messages(**ADA))


def said(first: int, end: int) -> list[BaseMessage]:
    """Messages of several speakers and days, some without ids, some with calls, some that are not to be shown."""
    messages: list[BaseMessage] = []
    for number in range(first, end):
        day = {"created_at": f"2026-01-{number // 20 % 28 + 1:02}T10:00:00Z"}
        text = f"Number {number}: the {('violet', 'green', 'red')[number % 3]} lantern is in drawer {number}."
        if number % 10 == 9:
            messages.append(AIMessage("Yes."))
        elif number % 2:
            messages.append(AIMessage(text, id=f"m{number}"))
        else:
            asked = (
                {"ctxbudget": ("keep", "drop", "summarize")[number % 3]} if number % 16 == 0 else {}
            )
            name = ("Ann", "Bob")[number % 4 // 2]
            messages.append(
                HumanMessage(text, id=f"m{number}", name=name, additional_kwargs={**day, **asked})
            )
    return messages


def stored(store: BaseStore) -> dict[str, Any]:
    return {item.key: item.value for item in store.search(NAMESPACE, limit=1_000)}


def filled(count: int = 200) -> InMemoryStore:
    store = InMemoryStore()
    process = Process(store)
    process.add(*said(0, count))
    process.ask()
    return store


def log_alone(store: InMemoryStore) -> InMemoryStore:
    items = store.search((), limit=10_000)
    other = InMemoryStore()
    other.batch(
        [
            PutOp(item.namespace, item.key, item.value)
            for item in items
            if item.namespace != NAMESPACE
        ]
    )
    return other


def test_after_a_restart_no_old_text_is_tokenized_or_embedded_and_few_records_are_read() -> None:
    for count in (200, 400):
        process = Process(filled(count))
        context = process.ask()
        assert isinstance(process.embeddings, BagOfWords)
        tail = count - (count - FOLLOWING) // SEGMENT * SEGMENT
        assert len(process.embeddings.asked) <= tail
        assert process.counter.calls <= 3 * tail + 60
        assert process.store.records_read <= tail + 5 * (count // SEGMENT) + 20
        assert context.report.failures == ()


def test_a_step_after_a_restart_reads_no_old_text(monkeypatch: pytest.MonkeyPatch) -> None:
    store = filled(1_100)
    read = list[MessageRecord]()
    decoded = MessageRecord.to_message

    def counted(record: MessageRecord) -> BaseMessage:
        read.append(record)
        return decoded(record)

    monkeypatch.setattr(MessageRecord, "to_message", counted)
    later = datetime.now(UTC) + timedelta(hours=1)  # no provider's cache is warm any more
    with ContextPipeline(
        SETTINGS, store=store, embeddings=BagOfWords(), clock=lambda: later
    ) as pipeline:
        assert pipeline.assemble(QUESTION, **ADA).report.stability.compaction_step
    assert len(read) < 300


def test_a_process_that_opens_blocks_has_the_prompts_of_one_that_reads_the_log() -> None:
    store = filled()
    mine = Process(store)
    other = Process(log_alone(store))
    for question in (QUESTION, "What is in drawer 17?", "Thanks!"):
        one = mine.ask(question)
        two = other.ask(question)
        assert one.messages == two.messages
        assert one.report.layers == two.report.layers
        assert one.report.coverage == two.report.coverage
    assert mine.shown() == other.shown()
    [opened] = other.pipeline.engine.workspace.open_conversations.all().values()
    assert len(opened.table.decoded) == SEGMENT, (
        "older messages are read from the segments, once these are written"
    )


CHANGES: dict[str, Callable[[ContextPipeline], Any]] = {
    "append": lambda pipeline: pipeline.add_messages(said(200, 290), **ADA),
    "edit": lambda pipeline: pipeline.edit_message(
        "m70", HumanMessage("The lantern was sold."), **ADA
    ),
    "archive": lambda pipeline: pipeline.remove_messages("m101", **ADA),
    "forget": lambda pipeline: pipeline.remove_messages("m1", on_removal="forget", **ADA),
    "pin": lambda pipeline: (
        pipeline.pin(["m70", "m101"], **ADA),
        pipeline.add_messages(said(200, 290), **ADA),
    ),
    "drop": lambda pipeline: pipeline.pin("m40", preservation="drop", **ADA),
    "sync": lambda pipeline: pipeline.sync(
        [m for m in pipeline.get_messages(**ADA) if m.id != "m50"], **ADA
    ),
}


def test_subjects_of_short_messages_are_the_same_after_a_restart() -> None:
    store = InMemoryStore()
    random = Random(7)
    day = {"created_at": "2026-01-01T10:00:00Z"}
    texts = [" ".join(random.choices(WORDS, k=3)) for _ in range(10 * SEGMENT)]
    messages = [HumanMessage(text, additional_kwargs=day) for text in texts]
    running = Process(store)
    for message in messages:
        running.pipeline.add_messages([message], **ADA)
    running.ask()
    restarted = Process(store, writer="w2")
    at_once = Process(InMemoryStore())
    restarted.ask()
    at_once.add(*messages)
    at_once.ask()
    assert 1 < running.subjects()[-1] + 1 < len(messages) // 10
    assert restarted.subjects() == running.subjects() == at_once.subjects()


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_by_whoever_has_the_conversation_open_is_seen_by_all(name: str) -> None:
    store = filled()
    opened = Process(store, writer="a")
    writer = Process(store, writer="b")
    opened.ask()
    CHANGES[name](writer.pipeline)
    assert writer.pipeline.flush(30)
    fresh = Process(store, writer="c")
    expected = Process(log_alone(store), writer="d")
    for process in (opened, writer, fresh):
        assert process.shown() == expected.shown()
    prompt = expected.ask("What is in drawer 41?").messages
    assert [
        one.ask("What is in drawer 41?").messages for one in (writer, fresh, Process(store))
    ] == [prompt] * 3
    [it] = writer.pipeline.engine.workspace.open_conversations.all().values()
    assert [
        table.PRESERVATIONS.index(one.preservation) for one in it.table
    ] == it.table.preservations.values.tolist()


def texts(data: str) -> bytes:
    text = b""
    rest = b64decode(data)[4 * (SEGMENT // table.TEXTS_TOGETHER) :]
    while rest:
        text = text + (inflating := zlib.decompressobj()).decompress(rest)
        rest = inflating.unused_data
    return text


def test_what_is_forgotten_is_in_no_block() -> None:
    store = InMemoryStore()
    process = Process(store)
    process.add(*said(0, 20))
    others = Process(store, writer="others")
    others.add(*said(20, 200))
    others.ask()

    def told() -> list[bool]:
        text = b"".join(
            texts(value["data"]) for key, value in stored(store).items() if key.endswith(" texts")
        )
        text += json.dumps(stored(store)[segments.HEAD]).encode()
        return [f"drawer {number}.".encode() in text for number in (8, 33, 70)]

    assert told() == [True, True, True]
    process.pipeline.remove_messages(
        ["m33", "m70"], on_removal="forget", **ADA
    )  # it has never seen the segments
    assert told() == [True, False, False]
    process.ask()
    assert told() == [True, False, False]
    assert len(stored(store)) > 10
    process.pipeline.clear(**ADA)
    assert stored(store) == {}


@pytest.mark.slow
def test_what_is_missing_damaged_or_of_another_version_is_made_again_and_told() -> None:
    expected = Process(log_alone(filled())).ask().messages
    damages: list[dict[str, Any] | None] = [
        None,
        {"data": "?"},
        {"data": "AAAA", "deflated": True, "hash": ""},
    ]
    of_the_head = [(segments.HEAD, damage) for damage in damages]
    for key, damage in (*of_the_head, *zip(stored(filled()), cycle(damages), strict=False)):
        store = filled()
        before = stored(store)
        store.batch([PutOp(NAMESPACE, key, damage)])
        process = Process(store)
        context = process.ask()
        assert context.messages == expected, key
        told = [text for text in context.report.failures if text == segments.REMADE]
        assert bool(told) is not (key == segments.HEAD and damage is None), (key, damage)
        assert process.ask().report.failures == ()
        assert stored(store).keys() == before.keys()
        again = Process(store)
        assert again.ask().report.failures == ()
        assert isinstance(again.embeddings, BagOfWords)
        assert len(again.embeddings.asked) <= SEGMENT + FOLLOWING


def test_a_process_that_is_killed_while_it_seals_leaves_what_can_be_opened() -> None:
    killed = type("Killed", (BaseException,), {})

    class Mortal(Elsewhere):
        left = 0

        def batch(self, ops: Any) -> Any:
            todo = list(ops)
            seals = any(isinstance(op, PutOp) and op.namespace == NAMESPACE for op in todo)
            if seals and not self.left:
                raise killed
            self.left -= seals
            return super().batch(todo)

    expected = Process(log_alone(filled())).ask().messages
    for writes in range(8):
        store = InMemoryStore()
        mortal = Mortal(store)
        mortal.left = writes
        process = Process(mortal)
        process.add(*said(0, 200))
        process.ask()
        assert Process(store).ask().messages == expected
