"""Many processes, threads and tasks append to one conversation at once.

Nothing lost or doubled, one order.
"""

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from threading import Barrier as ThreadBarrier
from typing import Any, NamedTuple

import pytest
from langchain_core.messages import BaseMessage, HumanMessage
from langgraph.store.base import BaseStore
from langgraph.store.postgres import PostgresStore

from langchain_ctxbudget import ChromaStore, ContextPipeline
from langchain_ctxbudget.history.segments import SEGMENT_MESSAGES
from tests.conversations import BagOfWords
from tests.log_contract import ADA, Elsewhere, shown, texts
from tests.processes import FORKED
from tests.servers import LOOPBACK, new_chroma_database, new_postgres_schema
from tests.stores import new_stores

SETTINGS = {"learn": False}
"""Of thousands of messages: eight that learn from all of them take longer than all that is looked
at here."""
WRITERS = 8
LONGEST_SECONDS = 120

Address = tuple[str, ...]
"""The kind of a store on a server, and where it is."""


def message(writer: int, number: int) -> BaseMessage:
    """A message with an id; every tenth says the same as others, without one."""
    if number % 10 == 9:
        return HumanMessage("yes")
    return HumanMessage(f"{writer} {number}", id=f"{writer}.{number}")


def all_texts(each: int) -> list[str]:
    """What the writers say when each writes so many messages, sorted."""
    written: list[BaseMessage] = []
    for writer in range(WRITERS):
        written += [message(writer, number) for number in range(each)]
    return sorted(texts(written))


def check_order(messages: Sequence[BaseMessage], writer: int) -> None:
    """The numbered messages of a writer stand in their order."""
    own = [message for message in messages if message.text.startswith(f"{writer} ")]
    numbers = [int(message.text.split()[1]) for message in own]
    assert numbers == sorted(numbers)


def check_views(views: Sequence[Sequence[BaseMessage]], each: int) -> None:
    """All views are the same, and have what every writer wrote, once and in its order."""
    first = views[0]
    pairs = shown(first)
    assert sorted(texts(first)) == all_texts(each)
    assert len({key for key, _ in pairs}) == WRITERS * each
    assert all(shown(view) == pairs for view in views)
    for writer in range(WRITERS):
        check_order(first, writer)


# Processes


@contextmanager
def connected(address: Address) -> Iterator[BaseStore]:
    if address[0] == "postgres":
        with PostgresStore.from_conn_string(address[1]) as store:
            yield store
    else:
        with ChromaStore(url=address[1], database=address[2]) as store:
            yield store


@pytest.fixture(params=[pytest.param("chroma-server", marks=LOOPBACK), "postgres"])
def address(request: pytest.FixtureRequest) -> Iterator[Address]:
    with ExitStack() as stack:
        if request.param == "postgres":
            dsn = stack.enter_context(new_postgres_schema(request.getfixturevalue("postgres")))
            with PostgresStore.from_conn_string(dsn) as store:
                store.setup()
            yield ("postgres", dsn)
        else:
            url = request.getfixturevalue("chroma_server")
            yield ("chroma-server", url, stack.enter_context(new_chroma_database(url)))


def write(address: Address, writer: int, each: int, start: Any) -> None:
    with connected(address) as store, ContextPipeline(SETTINGS, store=store) as pipeline:
        start.wait(LONGEST_SECONDS)
        for number in range(each):
            pipeline.add_messages([message(writer, number)], **ADA)
        check_order(pipeline.get_messages(**ADA), writer)


def read_while_alive(pipeline: ContextPipeline, processes: Sequence[Any]) -> int:
    """Reads until all processes have ended; returns how often. What was seen is never lost."""
    reads = 0
    seen: set[str] = set()
    while any(process.is_alive() for process in processes):
        begun = time.monotonic()
        messages = pipeline.get_messages(**ADA)
        ids = {str(message.id) for message in messages if message.text != "yes"}
        assert seen <= ids
        seen = ids
        reads += 1
        time.sleep(4 * (time.monotonic() - begun))  # time is for those who write
    return reads


def test_eight_processes_append_to_one_conversation(address: Address) -> None:
    each = 10
    start = FORKED.Barrier(WRITERS + 1)
    processes = [
        FORKED.Process(target=write, args=(address, writer, each, start))
        for writer in range(WRITERS)
    ]
    with connected(address) as store, connected(address) as another_store:
        early = ContextPipeline(SETTINGS, store=store)
        meanwhile = ContextPipeline(SETTINGS, store=another_store)
        assert early.get_messages(**ADA) == []

        for process in processes:
            process.start()
        start.wait(LONGEST_SECONDS)
        reads = read_while_alive(meanwhile, processes)
        for process in processes:
            process.join(60)

        assert [process.exitcode for process in processes] == [0, 0, 0, 0, 0, 0, 0, 0]
        assert reads > 2
        late = ContextPipeline(SETTINGS, store=Elsewhere(store))
        views = [pipeline.get_messages(**ADA) for pipeline in (early, meanwhile, late)]
        check_views(views, each)


class Prompt(NamedTuple):
    """How many texts were embedded for a prompt, and what failed."""

    embedded: int
    failures: tuple[str, ...]


def add_and_ask(address: Address, first: int, end: int) -> Prompt:
    """Appends the messages of these numbers and makes a prompt."""
    embeddings = BagOfWords()
    settings = {**SETTINGS, "max_context_tokens": 1_000}
    with (
        connected(address) as store,
        ContextPipeline(settings, store=store, embeddings=embeddings) as pipeline,
    ):
        pipeline.add_messages([message(0, number) for number in range(first, end)], **ADA)
        context = pipeline.assemble("What of 7?", **ADA)
        assert pipeline.flush(60)
    return Prompt(len(embeddings.asked), context.report.failures)


def test_processes_read_the_segments_that_others_have_written(address: Address) -> None:
    with FORKED.Pool(1, maxtasksperchild=1) as processes:  # each a new one
        first = processes.apply(add_and_ask, (address, 0, 700))
        second = processes.apply(add_and_ask, (address, 700, 1_300))
        third = processes.apply(add_and_ask, (address, 1_300, 1_302))

    assert first.failures == second.failures == third.failures == ()
    assert first.embedded >= 700
    assert second.embedded <= 1_300 - SEGMENT_MESSAGES
    assert third.embedded <= 1_302 - 2 * SEGMENT_MESSAGES


# Threads


def pipelines_of(shared: str, store: BaseStore) -> list[ContextPipeline]:
    """A pipeline for each writer, of which all are the same, or have one store, or none of it."""
    if shared == "one pipeline":
        return [ContextPipeline(SETTINGS, store=store)] * WRITERS
    if shared == "one store":
        return [ContextPipeline(SETTINGS, store=store) for _ in range(WRITERS)]
    return [ContextPipeline(SETTINGS, store=Elsewhere(store)) for _ in range(WRITERS)]


@pytest.mark.parametrize(
    ("kind", "shared"),
    [("memory", "one pipeline"), ("memory", "no locks"), ("chroma-folder", "one store")],
)
async def test_eight_threads_append_to_one_conversation(
    request: pytest.FixtureRequest, kind: str, shared: str
) -> None:
    each = 20
    async with new_stores(kind, request) as new_store:
        store = new_store()
        pipelines = pipelines_of(shared, store)
        start = ThreadBarrier(WRITERS)

        def work(writer: int) -> None:
            start.wait()
            for number in range(each):
                pipelines[writer].add_messages([message(writer, number)], **ADA)

        with ThreadPoolExecutor(WRITERS) as threads:
            list(threads.map(work, range(WRITERS)))

        readers = [*pipelines, ContextPipeline(SETTINGS, store=Elsewhere(store))]
        check_views([pipeline.get_messages(**ADA) for pipeline in readers], each)
