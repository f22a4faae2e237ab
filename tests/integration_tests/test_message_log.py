"""The message log on every store.

Its contract, every order in which writers can meet, and what it costs.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import BaseMessage, HumanMessage
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import ChromaStore, ContextPipeline
from langchain_ctxbudget.flow import Flow
from langchain_ctxbudget.history import log
from langchain_ctxbudget.pipeline import StoredConversation
from tests import log_contract
from tests.cases import few_are_quick
from tests.integration_tests.conftest import Call

Act = Callable[[ContextPipeline], Flow[Any]]


class TestMessageLog(log_contract.LogContract):
    """On every store, blocking and awaited."""


def plainly(pipeline: ContextPipeline, name: str, *args: Any, **kwargs: Any) -> Any:
    return getattr(pipeline, name)(*args, **kwargs)


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_three_pipelines_show_what_a_list_would(seed: int) -> None:
    log_contract.play(InMemoryStore(), plainly, seed, turns=40)


# -- writers that meet: many orders of their store operations


SCOPE = log_contract.ADAS


def stored(pipeline: ContextPipeline) -> StoredConversation:
    return StoredConversation(pipeline.engine.workspace, SCOPE)


def add(*messages: BaseMessage) -> Act:
    return lambda pipeline: stored(pipeline).add(list(messages))


def edit(key: str, text: str) -> Act:
    return lambda pipeline: stored(pipeline).edit(key, HumanMessage(text))


def remove(*keys: str, on_removal: Any = "archive") -> Act:
    return lambda pipeline: stored(pipeline).remove(list(keys), on_removal)


def sync(*messages: BaseMessage) -> Act:
    return lambda pipeline: stored(pipeline).sync(list(messages), "archive")


def clear(pipeline: ContextPipeline) -> Flow[None]:
    return stored(pipeline).clear()


def read(pipeline: ContextPipeline) -> Flow[list[BaseMessage]]:
    return stored(pipeline).messages()


class World:
    def __init__(
        self,
        acts: Sequence[Act],
        *,
        before: Sequence[BaseMessage],
        opened: bool,
        joined: bool = False,
    ) -> None:
        self.store = InMemoryStore()
        self.pipelines = [self.another(writer_id=f"w{number}") for number in range(len(acts))]
        self.observer = self.another()
        self.observer.get_messages(**log_contract.ADA)
        if before:
            self.pipelines[0].add_messages(before, **log_contract.ADA)
        for number, pipeline in enumerate(self.pipelines):
            if joined:
                pipeline.add_messages(log_contract.said(f"hello {number}"), **log_contract.ADA)
        for pipeline in [*self.pipelines, self.observer] if opened else []:
            pipeline.get_messages(**log_contract.ADA)
        self.flows = [
            log_contract.ByHand(act(pipeline))
            for act, pipeline in zip(acts, self.pipelines, strict=True)
        ]

    def another(self, writer_id: str | None = None) -> ContextPipeline:
        store = log_contract.Elsewhere(self.store)
        return ContextPipeline(
            {"learn": False}, store=store, writer_id=writer_id, token_counter=log_contract.COUNTER
        )

    def views(self) -> list[list[tuple[str, str]]]:
        readers = [*self.pipelines, self.observer, self.another()]
        return [log_contract.shown(reader.get_messages(**log_contract.ADA)) for reader in readers]


@pytest.fixture(params=[60, pytest.param(100, marks=pytest.mark.slow)])
def orders(request: pytest.FixtureRequest) -> int:
    """How many orders are tried.

    What is broken shows in a few, what is subtle is for the long suite.
    """
    return int(request.param)


def some_orders(world: Callable[[], World], count: int) -> Iterator[World]:
    """The world after so many random orders."""
    rng = random.Random(0)
    for _ in range(count):
        made = world()
        while pending := [flow for flow in made.flows if not flow.done]:
            flow = rng.choice(pending)
            for _ in range(rng.choice([1, 1, 2, 4])):
                if not flow.done:
                    flow.step()
        yield made


def agreed(world: World) -> list[tuple[str, str]]:
    views = world.views()
    assert all(view == views[0] for view in views), views
    assert len({key for key, _ in views[0]}) == len(views[0])
    return views[0]


@pytest.mark.slow
def test_two_writers_that_join_in_any_order_see_each_other(orders: int) -> None:
    seen = set()
    for world in some_orders(
        lambda: World(
            [add(*log_contract.said("a")), add(*log_contract.said("b"))], before=(), opened=True
        ),
        orders,
    ):
        seen.add(tuple(agreed(world)))
    assert seen == {(("a", "a"), ("b", "b")), (("b", "b"), ("a", "a"))}


MEETINGS: dict[str, tuple[list[Act], list[str]]] = {
    "one word": ([add(HumanMessage("yes")), add(HumanMessage("yes"))], ["yes", "yes"]),
    "two words": ([add(HumanMessage("yes")), add(HumanMessage("no"))], ["no", "yes"]),
    "one message": (
        [add(*log_contract.said("a", "b")), add(*log_contract.said("b", "c"))],
        ["a", "b", "c"],
    ),
    "a reader, too": (
        [add(*log_contract.said("a")), add(*log_contract.said("b"), HumanMessage("yes")), read],
        ["a", "b", "yes"],
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("opened", few_are_quick([True, False]))
@pytest.mark.parametrize("name", MEETINGS)
def test_nothing_that_writers_say_at_once_is_lost_or_doubled(
    name: str, opened: bool, orders: int
) -> None:
    acts, expected = MEETINGS[name]
    for made in some_orders(lambda: World(acts, before=(), opened=opened), orders):
        assert sorted(text for _, text in agreed(made)) == expected
        pages = log_contract.all_pages(plainly, made.observer, [1, 2] * 5, **log_contract.ADA)
        assert log_contract.shown(pages) == log_contract.shown(
            made.observer.get_messages(**log_contract.ADA)
        )


CHANGES: dict[str, list[Act]] = {
    "edit": [edit("b", "B"), add(*log_contract.said("new"))],
    "archive": [remove("b"), add(*log_contract.said("new"))],
    "forget": [remove("b", on_removal="forget"), add(*log_contract.said("new"))],
    "sync": [sync(*log_contract.said("c", "b", "a")), add(*log_contract.said("new"))],
    "clear": [clear, add(*log_contract.said("new"))],
    "edits": [edit("b", "one"), edit("b", "two")],
    "edit and forget": [edit("b", "one"), remove("b", on_removal="forget")],
    "edit and archive": [edit("b", "one"), remove("b")],
    "syncs": [sync(*log_contract.said("c", "b", "a")), sync(*log_contract.said("b", "c", "d"))],
    "sync and edit": [sync(*log_contract.said("c", "b", "a")), edit("b", "one")],
}


QUICK_CHANGES = ["archive", "edits"]
"""One that takes a message away, and one that changes a message twice."""
SLOW_CHANGES = [
    pytest.param(name, marks=pytest.mark.slow) for name in CHANGES if name not in QUICK_CHANGES
]


@pytest.mark.parametrize("joined", [pytest.param(True, marks=pytest.mark.slow), False])
@pytest.mark.parametrize("name", [*QUICK_CHANGES, *SLOW_CHANGES])
def test_whoever_changes_while_another_writes_agrees_with_every_reader(
    name: str, joined: bool, orders: int
) -> None:
    for made in some_orders(
        lambda: World(
            CHANGES[name], before=log_contract.said("a", "b", "c"), opened=True, joined=joined
        ),
        orders,
    ):
        agreed(made)


# -- more writers than a reader asks for each time


@pytest.mark.slow
@pytest.mark.parametrize("writers", [2, 3])
def test_more_writers_than_are_polled_that_meet_see_each_other(
    monkeypatch: pytest.MonkeyPatch, writers: int, orders: int
) -> None:
    monkeypatch.setattr(log, "POLLED", 2)
    acts = [add(*log_contract.said(f"new {n}")) for n in range(writers)]
    for made in some_orders(
        lambda: World([*acts, read], before=(), opened=True, joined=True), orders
    ):
        seen = [text for _, text in agreed(made)]
        assert {f"new {n}" for n in range(writers)} <= set(seen)


# -- what it costs


@pytest.fixture(params=["memory", "chroma"])
def counting(request: pytest.FixtureRequest) -> Iterator[log_contract.Counting]:
    if request.param == "memory":
        yield log_contract.Counting(InMemoryStore())
        return
    with ChromaStore() as store:
        yield log_contract.Counting(store)


def test_a_reader_behind_reads_what_is_new_and_not_the_rest(
    counting: log_contract.Counting, call: Call
) -> None:
    with log_contract.pipelines(counting, 2) as (writer, reader):
        call(
            writer,
            "add_messages",
            log_contract.said(*(str(number) for number in range(300))),
            **log_contract.ADA,
        )
        call(reader, "get_messages", **log_contract.ADA)
        call(writer, "add_messages", log_contract.said("a", "b", "c", "d", "e"), **log_contract.ADA)
        counting.reset()
        assert len(call(reader, "get_messages", **log_contract.ADA)) == 305
        assert (counting.records_read, counting.batches, counting.searches) == (5 + 2, 2, 0)
        counting.reset()
        call(reader, "get_messages", **log_contract.ADA)
        assert (counting.records_read, counting.batches, counting.searches) == (2, 1, 0)
