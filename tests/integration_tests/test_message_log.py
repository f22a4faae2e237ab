"""The message log on every store: its contract, writers that meet in any order, and its cost."""

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import BaseMessage, HumanMessage
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import ChromaStore, ContextPipeline
from langchain_ctxbudget.flow import Flow
from langchain_ctxbudget.history import log
from tests import log_contract

ADA = log_contract.ADA
Act = Callable[[ContextPipeline], Flow[Any]]
"""What a writer does; a flow can be taken on one store operation at a time."""
Shown = tuple[str, str]
"""A message's id and text."""


class TestMessageLog(log_contract.LogContract):
    """On every store, blocking and awaited."""


def call_by_name(pipeline: ContextPipeline, name: str, *args: Any, **kwargs: Any) -> Any:
    return getattr(pipeline, name)(*args, **kwargs)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_three_pipelines_show_what_a_list_would(seed: int) -> None:
    log_contract.play(InMemoryStore(), call_by_name, seed, turns=40)


# -- writers that meet: many orders of their store operations


def messages(*texts: str) -> list[BaseMessage]:
    """Messages of the user whose ids are their texts."""
    return [HumanMessage(text, id=text) for text in texts]


def add(*new: BaseMessage) -> Act:
    return lambda pipeline: pipeline._add_messages(list(new), **ADA)


def edit(key: str, text: str) -> Act:
    return lambda pipeline: pipeline._edit_message(key, HumanMessage(text), **ADA)


def archive(key: str) -> Act:
    return lambda pipeline: pipeline._remove_messages([key], on_removal="archive", **ADA)


def forget(key: str) -> Act:
    return lambda pipeline: pipeline._remove_messages([key], on_removal="forget", **ADA)


def sync(*state: BaseMessage) -> Act:
    return lambda pipeline: pipeline._sync(list(state), **ADA)


def clear(pipeline: ContextPipeline) -> Flow[None]:
    return pipeline._clear(**ADA)


def read(pipeline: ContextPipeline) -> Flow[list[BaseMessage]]:
    return pipeline._get_messages(**ADA)


class World:
    """A store, a pipeline for each act, and an observer.

    Args:
        acts: what the pipelines do, one each.
        before: what the conversation has before.
        opened: whether every pipeline has read the conversation before it acts.
        joined: whether every pipeline has written to the conversation before it acts.
    """

    def __init__(
        self,
        acts: Sequence[Act],
        *,
        before: Sequence[BaseMessage] = (),
        opened: bool,
        joined: bool = False,
    ) -> None:
        self.store = InMemoryStore()
        self.pipelines = [self.new_pipeline(f"w{number}") for number in range(len(acts))]
        self.observer = self.new_pipeline()
        self.observer.get_messages(**ADA)

        if before:
            self.pipelines[0].add_messages(before, **ADA)
        if joined:
            for number, pipeline in enumerate(self.pipelines):
                pipeline.add_messages(messages(f"hello {number}"), **ADA)
        if opened:
            for pipeline in [*self.pipelines, self.observer]:
                pipeline.get_messages(**ADA)

        self.flows = [
            log_contract.ByHand(act(pipeline))
            for act, pipeline in zip(acts, self.pipelines, strict=True)
        ]

    def new_pipeline(self, writer_id: str | None = None) -> ContextPipeline:
        return ContextPipeline(
            {"learn": False},
            store=log_contract.Elsewhere(self.store),
            writer_id=writer_id,
            token_counter=log_contract.COUNTER,
        )

    def views(self) -> list[list[Shown]]:
        """What each pipeline shows, and what a new one shows."""
        readers = [*self.pipelines, self.observer, self.new_pipeline()]
        return [log_contract.shown(reader.get_messages(**ADA)) for reader in readers]

    def run(self, rng: random.Random) -> None:
        """Takes the flows on to their ends, a few operations of one, then of another."""
        while pending := [flow for flow in self.flows if not flow.done]:
            flow = rng.choice(pending)
            for _ in range(rng.choice([1, 1, 2, 4])):
                flow.step()


@pytest.fixture(params=[60, pytest.param(100, marks=pytest.mark.slow)])
def orders(request: pytest.FixtureRequest) -> int:
    """How many orders are tried.

    What is broken shows in a few, what is subtle is for the long suite.
    """
    return int(request.param)


def worlds_in_random_orders(new_world: Callable[[], World], orders: int) -> Iterator[World]:
    """New worlds, each after its acts were done in an order of its own."""
    rng = random.Random(0)
    for _ in range(orders):
        world = new_world()
        world.run(rng)
        yield world


def agreed_view(world: World) -> list[Shown]:
    """What every pipeline shows, each message once."""
    views = world.views()
    first = views[0]

    assert all(view == first for view in views), views
    assert len({key for key, _ in first}) == len(first)
    return first


def test_two_writers_that_join_in_any_order_see_each_other(orders: int) -> None:
    acts = [add(*messages("a")), add(*messages("b"))]
    worlds = worlds_in_random_orders(lambda: World(acts, opened=True), orders)

    views = {tuple(agreed_view(world)) for world in worlds}

    assert views == {(("a", "a"), ("b", "b")), (("b", "b"), ("a", "a"))}


class Meeting(NamedTuple):
    """What is done at once, and the texts that are there afterwards, sorted."""

    acts: list[Act]
    texts: list[str]


MEETINGS = {
    "one word": Meeting(
        acts=[add(HumanMessage("yes")), add(HumanMessage("yes"))],
        texts=["yes", "yes"],
    ),
    "two words": Meeting(
        acts=[add(HumanMessage("yes")), add(HumanMessage("no"))],
        texts=["no", "yes"],
    ),
    "one message": Meeting(
        acts=[add(*messages("a", "b")), add(*messages("b", "c"))],
        texts=["a", "b", "c"],
    ),
    "a reader, too": Meeting(
        acts=[add(*messages("a")), add(*messages("b"), HumanMessage("yes")), read],
        texts=["a", "b", "yes"],
    ),
}


@pytest.mark.parametrize("opened", [True, False])
@pytest.mark.parametrize("meeting", MEETINGS.values(), ids=MEETINGS)
def test_nothing_that_writers_say_at_once_is_lost_or_doubled(
    meeting: Meeting, opened: bool, orders: int
) -> None:
    for world in worlds_in_random_orders(lambda: World(meeting.acts, opened=opened), orders):
        view = agreed_view(world)
        pages = log_contract.all_pages(call_by_name, world.observer, [1, 2] * 5, **ADA)

        assert sorted(text for _, text in view) == meeting.texts
        assert log_contract.shown(pages) == view


NEW = messages("new")
CHANGES: dict[str, list[Act]] = {
    "edit": [edit("b", "B"), add(*NEW)],
    "archive": [archive("b"), add(*NEW)],
    "forget": [forget("b"), add(*NEW)],
    "sync": [sync(*messages("c", "b", "a")), add(*NEW)],
    "clear": [clear, add(*NEW)],
    "edits": [edit("b", "one"), edit("b", "two")],
    "edit and forget": [edit("b", "one"), forget("b")],
    "edit and archive": [edit("b", "one"), archive("b")],
    "syncs": [sync(*messages("c", "b", "a")), sync(*messages("b", "c", "d"))],
    "sync and edit": [sync(*messages("c", "b", "a")), edit("b", "one")],
}


@pytest.mark.parametrize("joined", [pytest.param(True, marks=pytest.mark.slow), False])
@pytest.mark.parametrize("acts", CHANGES.values(), ids=CHANGES)
def test_whoever_changes_while_another_writes_agrees_with_readers(
    acts: list[Act], joined: bool, orders: int
) -> None:
    before = messages("a", "b", "c")

    def new_world() -> World:
        return World(acts, before=before, opened=True, joined=joined)

    for world in worlds_in_random_orders(new_world, orders):
        agreed_view(world)


# -- more writers than a reader asks for each time


@pytest.mark.parametrize(
    "texts", [{"new 0", "new 1"}, {"new 0", "new 1", "new 2"}], ids=["two", "three"]
)
def test_more_writers_than_are_polled_see_each_other(
    monkeypatch: pytest.MonkeyPatch, texts: set[str], orders: int
) -> None:
    monkeypatch.setattr(log, "POLLED", 2)
    acts = [*(add(*messages(text)) for text in sorted(texts)), read]

    for world in worlds_in_random_orders(lambda: World(acts, opened=True, joined=True), orders):
        view = agreed_view(world)
        assert texts <= {text for _, text in view}


# -- what it costs


class Reading(NamedTuple):
    """How many messages a reader got, and what it asked the store for."""

    messages: int
    records_read: int
    batches: int
    searches: int


class Readings(NamedTuple):
    behind: Reading
    up_to_date: Reading


def reading(reader: ContextPipeline, counting: log_contract.Counting) -> Reading:
    counting.reset()
    found = reader.get_messages(**ADA)
    return Reading(
        messages=len(found),
        records_read=counting.records_read,
        batches=counting.batches,
        searches=counting.searches,
    )


def readings_of_305_messages(counting: log_contract.Counting) -> Readings:
    """What it costs to read five messages after 300, and to read once more."""
    with log_contract.pipelines(counting, 2) as (writer, reader):
        writer.add_messages(messages(*map(str, range(300))), **ADA)
        reader.get_messages(**ADA)
        writer.add_messages(messages("a", "b", "c", "d", "e"), **ADA)
        return Readings(behind=reading(reader, counting), up_to_date=reading(reader, counting))


@pytest.fixture(scope="module", params=["memory", "chroma"])
def readings(request: pytest.FixtureRequest) -> Readings:
    if request.param == "memory":
        return readings_of_305_messages(log_contract.Counting(InMemoryStore()))
    with ChromaStore() as store:
        return readings_of_305_messages(log_contract.Counting(store))


def test_a_reader_behind_reads_what_is_new_and_not_the_rest(readings: Readings) -> None:
    assert readings.behind == Reading(messages=305, records_read=7, batches=2, searches=0)


def test_a_reader_that_is_up_to_date_reads_two_records(readings: Readings) -> None:
    assert readings.up_to_date == Reading(messages=305, records_read=2, batches=1, searches=0)
