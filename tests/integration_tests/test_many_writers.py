"""Many processes, threads and tasks append to one conversation at once.

Nothing lost or doubled, one order.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from threading import Barrier as ThreadBarrier
from typing import Any

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

Address = tuple[str, ...]
"""The kind of a store on a server, and where it is."""


def message(writer: int, number: int) -> BaseMessage:
    return (
        HumanMessage("yes")
        if number % 10 == 9
        else HumanMessage(f"{writer} {number}", id=f"{writer}.{number}")
    )


def spoken(writers: int, each: int) -> list[str]:
    return sorted(
        message(writer, number).text for writer in range(writers) for number in range(each)
    )


@contextmanager
def connected(address: Address) -> Iterator[BaseStore]:
    if address[0] == "postgres":
        with PostgresStore.from_conn_string(address[1]) as store:
            yield store
    else:
        with ChromaStore(url=address[1], database=address[2]) as store:
            yield store


def write(address: Address, writer: int, each: int, start: Any) -> None:
    with connected(address) as store, ContextPipeline(SETTINGS, store=store) as pipeline:
        start.wait(120)
        for number in range(each):
            pipeline.add_messages([message(writer, number)], **ADA)
        in_order(pipeline.get_messages(**ADA), writer)


def in_order(messages: Sequence[BaseMessage], writer: int) -> None:
    own = [int(m.text.split()[1]) for m in messages if m.text.startswith(f"{writer} ")]
    assert own == sorted(own)


def check(views: Sequence[Sequence[BaseMessage]], writers: int, each: int) -> None:
    first = shown(views[0])
    assert sorted(texts(views[0])) == spoken(writers, each)
    assert len({key for key, _ in first}) == writers * each
    assert all(shown(view) == first for view in views)
    for writer in range(writers):
        in_order(views[0], writer)


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


def test_eight_processes_append_to_one_conversation(address: Address) -> None:
    writers = 8
    each = 10
    start = FORKED.Barrier(writers + 1)
    processes = [
        FORKED.Process(target=write, args=(address, writer, each, start))
        for writer in range(writers)
    ]
    with connected(address) as store, connected(address) as another:
        before = ContextPipeline(SETTINGS, store=store)
        during = ContextPipeline(SETTINGS, store=another)
        assert before.get_messages(**ADA) == []
        for process in processes:
            process.start()
        start.wait(120)
        reads = 0
        seen: set[str] = set()
        while any(process.is_alive() for process in processes):
            begun = time.monotonic()
            now = {str(m.id) for m in during.get_messages(**ADA) if m.text != "yes"}
            assert seen <= now
            seen = now
            reads += 1
            time.sleep(4 * (time.monotonic() - begun))  # time is for those who write
        for process in processes:
            process.join(60)
        assert [process.exitcode for process in processes] == [0] * writers
        assert reads > 2
        new = ContextPipeline(SETTINGS, store=Elsewhere(store))
        check([pipeline.get_messages(**ADA) for pipeline in (before, during, new)], writers, each)


def ask(address: Address, first: int, end: int) -> tuple[int, tuple[str, ...]]:
    """Appends messages and asks; returns how many texts were embedded for it, and what failed."""
    embeddings = BagOfWords()
    settings = {**SETTINGS, "max_context_tokens": 1_000}
    with (
        connected(address) as store,
        ContextPipeline(settings, store=store, embeddings=embeddings) as pipeline,
    ):
        pipeline.add_messages([message(0, number) for number in range(first, end)], **ADA)
        context = pipeline.assemble("What of 7?", **ADA)
        assert pipeline.flush(60)
    return len(embeddings.asked), context.report.failures


def test_processes_read_the_blocks_that_others_have_written(address: Address) -> None:
    with FORKED.Pool(1, maxtasksperchild=1) as processes:  # each a new one
        asked = [
            processes.apply(ask, (address, *part))
            for part in ((0, 700), (700, 1_300), (1_300, 1_302))
        ]
    (embedded, then, last), failures = zip(*asked, strict=True)
    assert failures == ((), (), ())
    assert embedded >= 700
    assert then <= 1_300 - SEGMENT_MESSAGES
    assert last <= 1_302 - 2 * SEGMENT_MESSAGES


def pipelines_of(
    kind: str, store: BaseStore, count: int, settings: Mapping[str, Any] | None = None
) -> list[ContextPipeline]:
    if kind == "one pipeline":
        return [ContextPipeline(settings, store=store)] * count
    return [
        ContextPipeline(settings, store=store if kind == "one store" else Elsewhere(store))
        for _ in range(count)
    ]


@pytest.mark.parametrize(
    ("kind", "shared"),
    [("memory", "one pipeline"), ("memory", "no locks"), ("chroma-folder", "one store")],
)
async def test_eight_threads_append_to_one_conversation(
    request: pytest.FixtureRequest, kind: str, shared: str
) -> None:
    each = 20
    async with new_stores(kind, request) as new:
        store = new()
        known = pipelines_of(shared, store, 8, SETTINGS)
        start = ThreadBarrier(8)

        def work(writer: int) -> None:
            start.wait()
            for number in range(each):
                known[writer].add_messages([message(writer, number)], **ADA)

        with ThreadPoolExecutor(8) as threads:
            list(threads.map(work, range(8)))
        readers = [*known, ContextPipeline(SETTINGS, store=Elsewhere(store))]
        check([pipeline.get_messages(**ADA) for pipeline in readers], 8, each)
