"""Sealed segments: what is known of older messages is worked out once, also across restarts."""

import json
from base64 import b64decode
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langgraph.store.base import BaseStore, PutOp
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import AssembledContext, ContextPipeline, TiktokenCounter
from langchain_ctxbudget.history import SEGMENTS, Entry, OpenConversation, readings, segments, table
from langchain_ctxbudget.sentences import Said
from langchain_ctxbudget.stores import MessageRecord, Scope
from tests.cases import few_are_quick
from tests.conversations import BagOfWords
from tests.log_contract import Counting, Elsewhere, shown
from tests.stored_segments import Mortal, inflated

pytestmark = pytest.mark.slow

ADA: dict[str, Any] = {"user_id": "ada", "conversation_id": "c1"}
NAMESPACE = Scope("ada", "c1").namespace(SEGMENTS)
SETTINGS = {"max_context_tokens": 1_000, "learn": False}
QUESTION = "Where did Ann put the violet lantern?"
SEGMENT = 32
FOLLOWING = 8
OF_A_DRAWER = "What is in drawer 41?"
WORDS = [f"word{number}" for number in range(60)]


@pytest.fixture(autouse=True)
def _small_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "SEGMENT_MESSAGES", SEGMENT)
    monkeypatch.setattr(segments, "FOLLOWING", FOLLOWING)
    monkeypatch.setattr(table, "MOST_DECODED", SEGMENT)


class Process:
    """A pipeline of its own on a store, and what it counted, embedded and read."""

    def __init__(self, store: BaseStore, writer: str = "w") -> None:
        self.counter = TiktokenCounter()
        self.embeddings = BagOfWords()
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

    def conversation(self) -> OpenConversation:
        [conversation] = self.pipeline.engine.workspace.open_conversations.all().values()
        return conversation

    def subjects(self) -> list[int]:
        """Returns the number of its subject for each message."""
        subjects: list[int] = self.conversation().table.search_index.subjects().tolist()
        return subjects

    def shown(self) -> list[tuple[str, str]]:
        return shown(self.pipeline.get_messages(**ADA))


COLOURS = ("violet", "green", "red")
PRESERVATIONS = ("keep", "drop", "summarize")


def lanterns(first: int, end: int) -> list[BaseMessage]:
    """Returns messages of several speakers and days.

    Some have no ids, some ask to be preserved, and some are not to be shown.
    """
    messages: list[BaseMessage] = []
    for number in range(first, end):
        colour = COLOURS[number % 3]
        text = f"Number {number}: the {colour} lantern is in drawer {number}."
        if number % 10 == 9:
            messages.append(AIMessage("Yes."))
        elif number % 2:
            messages.append(AIMessage(text, id=f"m{number}"))
        else:
            messages.append(question_number(number, text))
    return messages


def question_number(number: int, text: str) -> HumanMessage:
    extra = {"created_at": f"2026-01-{number // 20 % 28 + 1:02}T10:00:00Z"}
    if number % 16 == 0:
        extra["ctxbudget"] = PRESERVATIONS[number % 3]
    name = ("Ann", "Bob")[number % 4 // 2]
    return HumanMessage(text, id=f"m{number}", name=name, additional_kwargs=extra)


def stored(store: BaseStore) -> dict[str, Any]:
    """Returns what is stored of the segments, by key."""
    return {item.key: item.value for item in store.search(NAMESPACE, limit=1_000)}


def filled(count: int = 200) -> InMemoryStore:
    """Returns a store with a conversation of so many messages, and its segments."""
    store = InMemoryStore()
    process = Process(store)
    process.add(*lanterns(0, count))
    process.ask()
    return store


def log_alone(store: InMemoryStore) -> InMemoryStore:
    """Returns a copy of a store without the segments."""
    copy = InMemoryStore()
    for item in store.search((), limit=10_000):
        if item.namespace != NAMESPACE:
            copy.put(item.namespace, item.key, item.value)
    return copy


# -- After a restart


@pytest.mark.parametrize(("count", "tail"), [(200, 8), (400, 16)])
def test_a_restart_works_little_out_again(count: int, tail: int) -> None:
    process = Process(filled(count))

    context = process.ask()

    assert len(process.embeddings.asked) <= tail
    assert process.counter.calls <= 3 * tail + 60
    assert process.store.records_read <= tail + 5 * (count // SEGMENT) + 20
    assert context.report.failures == ()


def test_a_compaction_after_a_restart_reads_no_old_text(monkeypatch: pytest.MonkeyPatch) -> None:
    store = filled(1_100)
    records_decoded = list[MessageRecord]()
    to_message = MessageRecord.to_message

    def counted(record: MessageRecord) -> BaseMessage:
        records_decoded.append(record)
        return to_message(record)

    monkeypatch.setattr(MessageRecord, "to_message", counted)
    in_an_hour = datetime.now(UTC) + timedelta(hours=1)  # no provider's cache is warm any more
    with ContextPipeline(
        SETTINGS, store=store, embeddings=BagOfWords(), clock=lambda: in_an_hour
    ) as pipeline:
        report = pipeline.assemble(QUESTION, **ADA).report

    assert report.stability.compaction_step
    assert len(records_decoded) < 300


@pytest.mark.parametrize(
    "tools", [[], [{"name": "ride", "description": "Rides.", "parameters": {}}]]
)
def test_a_compaction_after_a_restart_decodes_few_messages(
    tools: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = filled(1_100)
    decoded = list[int]()
    decode = table.MessageTable._decode

    def counted(held: table.MessageTable, position: int) -> Entry:
        decoded.append(position)
        return decode(held, position)

    monkeypatch.setattr(table.MessageTable, "_decode", counted)
    in_an_hour = datetime.now(UTC) + timedelta(hours=1)
    with ContextPipeline(
        SETTINGS, store=store, embeddings=BagOfWords(), clock=lambda: in_an_hour
    ) as pipeline:
        pipeline.assemble(QUESTION, tools=tools, **ADA)

    assert len(decoded) < 600


@pytest.mark.slow
def test_prompts_from_segments_are_those_from_the_log() -> None:
    store = filled()
    from_segments = Process(store)
    from_log = Process(log_alone(store))

    for question in (QUESTION, "What is in drawer 17?", "Thanks!"):
        context = from_segments.ask(question)
        expected = from_log.ask(question)

        assert context.messages == expected.messages
        assert context.report.layers == expected.report.layers
        assert context.report.coverage == expected.report.coverage
    assert from_segments.shown() == from_log.shown()


def test_older_messages_are_read_from_segments_once_written() -> None:
    process = Process(log_alone(filled()))

    process.ask(QUESTION)
    process.ask("What is in drawer 17?")
    process.ask("Thanks!")
    process.shown()

    assert len(process.conversation().table.held) == SEGMENT


# -- What the user's sentences are


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The messages whose sentences were read, since the list was cleared last."""
    texts_read: list[str] = []
    read_sentences = readings.read

    def noted(texts: Sequence[str]) -> list[tuple[Said, ...]]:
        texts_read.extend(texts)
        return read_sentences(texts)

    monkeypatch.setattr(readings, "read", noted)
    return texts_read


def filled_by(reader: str, monkeypatch: pytest.MonkeyPatch) -> InMemoryStore:
    """Returns a store whose segments a reader of sentences of some version has filled."""
    with monkeypatch.context() as patched:
        patched.setattr(readings, "reader_version", lambda: reader)
        return filled()


def logs_in(store: BaseStore) -> dict[str, Any]:
    """Returns the parts of segments in which readings stand."""
    return {key: value for key, value in stored(store).items() if key.endswith(" log")}


def of_segments(read: Sequence[str]) -> list[str]:
    """Returns which of the texts stand in segments, and not behind them."""
    behind = {message.text for message in lanterns(200 - FOLLOWING, 200)}
    return [text for text in read if text not in behind]


def test_what_another_reader_has_read_is_read_again(
    read: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = filled_by("another", monkeypatch)
    read.clear()
    Process(store).ask()

    assert len(of_segments(read)) == 96


def test_a_second_opening_reads_nothing_again(
    read: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = filled_by("another", monkeypatch)
    Process(store).ask()
    read.clear()
    context = Process(store).ask()

    assert of_segments(read) == []
    assert context.report.failures == ()


def test_segments_that_are_written_once_more_are_as_others(monkeypatch: pytest.MonkeyPatch) -> None:
    store = filled_by("another", monkeypatch)
    Process(store).ask()

    assert logs_in(store) == logs_in(filled())


# -- Subjects


@pytest.fixture
def short_messages() -> list[BaseMessage]:
    random = Random(7)
    day = {"created_at": "2026-01-01T10:00:00Z"}
    texts = [" ".join(random.choices(WORDS, k=3)) for _ in range(320)]
    return [HumanMessage(text, additional_kwargs=day) for text in texts]


def test_subjects_of_short_messages_are_the_same_after_a_restart(
    short_messages: list[BaseMessage],
) -> None:
    store = InMemoryStore()
    running = Process(store)
    for message in short_messages:
        running.pipeline.add_messages([message], **ADA)
    running.ask()
    restarted = Process(store, writer="w2")
    restarted.ask()
    at_once = Process(InMemoryStore())
    at_once.add(*short_messages)
    at_once.ask()

    subjects = running.subjects()

    assert 1 <= subjects[-1] < 31
    assert restarted.subjects() == subjects
    assert at_once.subjects() == subjects


# -- Changes


def append(pipeline: ContextPipeline) -> None:
    pipeline.add_messages(lanterns(200, 290), **ADA)


def edit(pipeline: ContextPipeline) -> None:
    pipeline.edit_message("m70", HumanMessage("The lantern was sold."), **ADA)


def archive(pipeline: ContextPipeline) -> None:
    pipeline.remove_messages("m101", **ADA)


def forget(pipeline: ContextPipeline) -> None:
    pipeline.remove_messages("m1", on_removal="forget", **ADA)


def pin(pipeline: ContextPipeline) -> None:
    pipeline.pin(["m70", "m101"], **ADA)
    pipeline.add_messages(lanterns(200, 290), **ADA)


def drop(pipeline: ContextPipeline) -> None:
    pipeline.pin("m40", preservation="drop", **ADA)


def sync(pipeline: ContextPipeline) -> None:
    messages = pipeline.get_messages(**ADA)
    pipeline.sync([message for message in messages if message.id != "m50"], **ADA)


@pytest.mark.parametrize(
    "change", few_are_quick([edit, sync, append, archive, forget, pin, drop], 2)
)
def test_a_change_by_whoever_is_there_is_seen_by_all(
    change: Callable[[ContextPipeline], None],
) -> None:
    store = filled()
    opened = Process(store, writer="a")
    writer = Process(store, writer="b")
    opened.ask()
    change(writer.pipeline)
    assert writer.pipeline.flush(30)
    fresh = Process(store, writer="c")
    expected = Process(log_alone(store), writer="d")

    messages = expected.shown()
    assert opened.shown() == messages
    assert writer.shown() == messages
    assert fresh.shown() == messages

    prompt = expected.ask(OF_A_DRAWER).messages
    assert writer.ask(OF_A_DRAWER).messages == prompt
    assert fresh.ask(OF_A_DRAWER).messages == prompt
    assert Process(store).ask(OF_A_DRAWER).messages == prompt

    entries = writer.conversation().table
    numbers = [table.PRESERVATIONS.index(entry.preservation) for entry in entries]
    assert entries.preservations.values.tolist() == numbers


# -- What is forgotten


def packed_texts(data: str) -> bytes:
    """Returns the texts of one segment as they are packed, behind the lengths of their parts."""
    return b64decode(data)[4 * (SEGMENT // table.TEXTS_TOGETHER) :]


def drawers_in_segments(store: BaseStore) -> list[int]:
    """Returns which of the drawers 8, 33 and 70 the segments or their head name."""
    parts = stored(store)
    text = json.dumps(parts[segments.HEAD]).encode()
    for key, value in parts.items():
        if key.endswith(" texts"):
            text += inflated(packed_texts(value["data"]))
    return [number for number in (8, 33, 70) if f"drawer {number}.".encode() in text]


@pytest.fixture
def store_sealed_by_others() -> InMemoryStore:
    return InMemoryStore()


@pytest.fixture
def unaware(store_sealed_by_others: InMemoryStore) -> Process:
    """A process that has never seen the segments that another one has written since."""
    process = Process(store_sealed_by_others)
    process.add(*lanterns(0, 20))
    others = Process(store_sealed_by_others, writer="others")
    others.add(*lanterns(20, 200))
    others.ask()
    assert drawers_in_segments(store_sealed_by_others) == [8, 33, 70]
    return process


def test_what_is_forgotten_is_in_no_segment(
    unaware: Process, store_sealed_by_others: InMemoryStore
) -> None:
    unaware.pipeline.remove_messages(["m33", "m70"], on_removal="forget", **ADA)
    assert drawers_in_segments(store_sealed_by_others) == [8]

    unaware.ask()
    assert drawers_in_segments(store_sealed_by_others) == [8]
    assert len(stored(store_sealed_by_others)) > 10


def test_a_cleared_conversation_has_no_segments(
    unaware: Process, store_sealed_by_others: InMemoryStore
) -> None:
    unaware.pipeline.remove_messages(["m33", "m70"], on_removal="forget", **ADA)
    unaware.ask()

    unaware.pipeline.clear(**ADA)

    assert stored(store_sealed_by_others) == {}


# -- Damage


NO_TEXT = {"data": "?"}
OTHER_TEXT = {"data": "AAAA", "deflated": True, "hash": ""}


@pytest.fixture(scope="module")
def prompt_from_the_log() -> list[BaseMessage]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segments, "SEGMENT_MESSAGES", SEGMENT)
        patch.setattr(segments, "FOLLOWING", FOLLOWING)
        patch.setattr(table, "MOST_DECODED", SEGMENT)
        return Process(log_alone(filled())).ask().messages


DAMAGED_PARTS: list[tuple[str, dict[str, Any] | None]] = [
    ("head", NO_TEXT),
    ("head", OTHER_TEXT),
    ("0 log", None),
    ("0 texts", NO_TEXT),
    ("0 first hash", NO_TEXT),
    ("0 second hash", OTHER_TEXT),
    ("1 log", OTHER_TEXT),
    ("1 texts", None),
    ("1 first hash", None),
    ("1 second hash", NO_TEXT),
    ("2 log", OTHER_TEXT),
    ("2 texts", None),
    ("2 first hash", OTHER_TEXT),
    ("2 second hash", None),
    ("3 log", NO_TEXT),
    ("3 texts", OTHER_TEXT),
    ("3 first hash", NO_TEXT),
    ("3 second hash", OTHER_TEXT),
    ("4 log", None),
    ("4 texts", NO_TEXT),
    ("4 first hash", None),
    ("4 second hash", NO_TEXT),
    ("5 log", OTHER_TEXT),
    ("5 texts", None),
    ("5 first hash", OTHER_TEXT),
    ("5 second hash", None),
]
"""Parts of six segments, each with the number of its segment, and what stands there instead.

The keys of vectors and costs have hashes of who made them.
"""


def key_of(part: str, store: BaseStore) -> str:
    """Returns the key under which a part is stored."""
    number, _, name = part.partition(" ")
    hashed_keys = [
        key
        for key in stored(store)
        if key.startswith(f"{number} ") and not key.endswith(("log", "texts"))
    ]
    if name == "first hash":
        return hashed_keys[0]
    if name == "second hash":
        return hashed_keys[1]
    return part


def damaged(part: str, damage: dict[str, Any] | None) -> InMemoryStore:
    """Returns a store in which a part is another one, or missing."""
    store = filled()
    store.batch([PutOp(NAMESPACE, key_of(part, store), damage)])
    return store


def check_that_it_is_worked_out_again(store: BaseStore, keys: set[str]) -> None:
    """Holds the second prompt after a damage, and that of the next process, to be as ever."""
    assert stored(store).keys() == keys
    restarted = Process(store)
    assert restarted.ask().report.failures == ()
    assert len(restarted.embeddings.asked) <= SEGMENT + FOLLOWING


@pytest.mark.slow
@pytest.mark.parametrize(("part", "damage"), DAMAGED_PARTS)
def test_a_damaged_part_is_made_again_and_reported(
    part: str, damage: dict[str, Any] | None, prompt_from_the_log: list[BaseMessage]
) -> None:
    keys = set(stored(filled()))
    store = damaged(part, damage)
    process = Process(store)

    context = process.ask()

    assert context.messages == prompt_from_the_log
    assert segments.REMADE in context.report.failures
    assert process.ask().report.failures == ()
    check_that_it_is_worked_out_again(store, keys)


@pytest.mark.slow
def test_a_missing_head_is_made_again_in_silence(prompt_from_the_log: list[BaseMessage]) -> None:
    keys = set(stored(filled()))
    store = damaged("head", None)
    process = Process(store)

    context = process.ask()

    assert context.messages == prompt_from_the_log
    assert segments.REMADE not in context.report.failures
    assert process.ask().report.failures == ()
    check_that_it_is_worked_out_again(store, keys)


@pytest.mark.slow
@pytest.mark.parametrize("writes", [0, 1, 2, 3, 4, 5, 6, 7])
def test_a_process_killed_while_it_seals_leaves_a_sound_store(
    writes: int, prompt_from_the_log: list[BaseMessage]
) -> None:
    store = InMemoryStore()
    process = Process(Mortal(store, writes))
    process.add(*lanterns(0, 200))
    process.ask()

    assert Process(store).ask().messages == prompt_from_the_log
