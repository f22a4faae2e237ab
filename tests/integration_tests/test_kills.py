"""A writer is killed at a random point, again and again.

What was written before stays, what it was doing is done or not, and work goes on.
"""

import random
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from itertools import count, product
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langgraph.store.base import BaseStore, Op, PutOp, Result
from langgraph.store.memory import InMemoryStore
from langgraph.store.postgres import PostgresStore

from langchain_ctxbudget import ChromaStore, ContextPipeline
from langchain_ctxbudget.errors import InputError
from tests.integration_tests.summary_models import Scripted, summary, words
from tests.log_contract import shown
from tests.processes import FORKED
from tests.servers import new_postgres_schema

SCOPE: Any = {"user_id": "ada", "conversation_id": "c1"}
MAX_TOKENS = 700
SETTINGS = {
    "max_context_tokens": MAX_TOKENS,
    "span_messages": 4,
    "keep_messages": 4,
    "learn": False,
}
QUESTION = "What did we say?"
KILL_WITHIN_SECONDS = 0.3
"""After the first change of a writer."""
SETTLE_SECONDS = 0.2
"""What a server has been sent is done by then, also when the sender is gone."""

DONE = "done"
"""What the writer sends when it has done the change that it sent before."""

Shown = tuple[str, str]
"""A message's id and text."""


class Change(NamedTuple):
    """A method that the writer calls, and what the call is to do with the conversation."""

    method: str
    new: Sequence[Shown] = ()
    edited: Sequence[Shown] = ()
    removed: Sequence[str] = ()
    moved: Sequence[str] = ()
    """Ids of messages that go to the end."""


def outcome(
    before: Sequence[Shown],
    change: Change,
    *,
    appends: bool = True,
    moves: bool = True,
    edits: bool = True,
    removes: bool = True,
) -> list[Shown]:
    """The conversation after a change of which some parts were done."""
    texts = dict(before)
    if edits:
        texts.update(change.edited)
    if removes:
        for key in change.removed:
            del texts[key]
    if moves:
        for key in change.moved:
            texts[key] = texts.pop(key)

    conversation = list(texts.items())
    if appends:
        conversation += change.new
    return conversation


def outcomes(before: Sequence[Shown], change: Change) -> list[list[Shown]]:
    """What the conversation may be when a change is interrupted.

    Only `sync` does several things: each of them is done or not.
    """
    return [
        outcome(before, change, appends=appends, moves=moves, edits=edits, removes=removes)
        for appends, moves, edits, removes in product([False, True], repeat=4)
    ]


# The writer


def opened(kind: str, place: str) -> AbstractContextManager[BaseStore]:
    """Opens a store: in a folder, or on a server at an address (with Chroma, and a database)."""
    if kind == "postgres":
        return PostgresStore.from_conn_string(place)
    if kind == "chroma-server":
        url, _, database = place.partition(" ")
        return ChromaStore(url=url, database=database)
    return ChromaStore(place)


def new_pipeline(store: BaseStore) -> ContextPipeline:
    model = Scripted(answer=lambda prompt: summary(f"They talked for {len(prompt)} characters."))
    return ContextPipeline(SETTINGS, store=store, summary_model=model)


def message(key: str, text: str) -> BaseMessage:
    if key.startswith("a"):
        return AIMessage(text, id=key)
    return HumanMessage(text, id=key)


def messages(conversation: Sequence[Shown]) -> list[BaseMessage]:
    return [message(key, text) for key, text in conversation]


def exchange(number: int) -> list[Shown]:
    return [
        (f"q{number}", f"Question {number}: {words(number, 20)}"),
        (f"a{number}", f"Answer {words(number, 40)}"),
    ]


def next_change(rng: random.Random, conversation: Sequence[Shown], number: int) -> Change:
    """What the writer does next; mostly it appends an exchange."""
    methods = ("add", "edit", "forget", "archive", "sync", "assemble")
    [method] = rng.choices(methods, (8, 2, 1, 1, 2, 2))
    if method == "add" or len(conversation) < 6:
        return Change("add", new=exchange(number))

    first, second, third = (key for key, _ in rng.sample(conversation, 3))
    if method == "edit":
        return Change("edit", edited=[(first, f"Edited to {number}.")])
    if method in ("forget", "archive"):
        return Change(method, removed=[first])
    if method == "sync":
        moved = [third] if number % 2 else []
        return Change(
            "sync",
            new=exchange(number),
            edited=[(second, f"Made equal to {number}.")],
            removed=[first],
            moved=moved,
        )
    return Change("assemble")


def make(pipeline: ContextPipeline, before: Sequence[Shown], change: Change) -> None:
    """Makes a change in the conversation as it was before."""
    if change.method == "add":
        pipeline.add_messages(messages(change.new), **SCOPE)
    elif change.method == "edit":
        [(key, text)] = change.edited
        pipeline.edit_message(key, message(key, text), **SCOPE)
    elif change.method in ("forget", "archive"):
        how: Any = change.method
        pipeline.remove_messages(change.removed, on_removal=how, **SCOPE)
    elif change.method == "sync":
        pipeline.sync(messages(outcome(before, change)), on_removal="forget", **SCOPE)
    else:
        pipeline.assemble(QUESTION, **SCOPE)


def write(kind: str, place: str, seed: int, pipe: Connection) -> None:
    """Writes without end.

    Sends the conversation as it finds it, then each change before it makes it, and `DONE` after.
    """
    rng = random.Random(seed)
    with opened(kind, place) as store, new_pipeline(store) as pipeline:
        conversation = shown(pipeline.get_messages(**SCOPE))
        pipe.send(conversation)
        for number in count(seed * 10_000 + 1):
            change = next_change(rng, conversation, number)
            pipe.send(change)
            make(pipeline, conversation, change)
            conversation = outcome(conversation, change)
            pipe.send(DONE)


# The killer


class LastWords(NamedTuple):
    """What a writer sent until it was killed."""

    found: list[Shown]
    lines: list[Change | str]
    """Each change, and `DONE` after those that were done."""

    def possible_ends(self) -> list[list[Shown]]:
        """What the conversation may be now."""
        ends = [self.found]
        for line in self.lines:
            last = ends[-1]
            ends = outcomes(last, line) if isinstance(line, Change) else [last]
        return ends


def killed_writer(kind: str, place: str, seed: int, after_seconds: float) -> LastWords:
    """Lets a process write, and kills it so long after its first change."""
    receiver, sender = FORKED.Pipe(duplex=False)
    with receiver:
        process = FORKED.Process(target=write, args=(kind, place, seed, sender))
        process.start()
        sender.close()  # the end of what the process sends is its end
        found = receiver.recv()
        lines = [receiver.recv(), receiver.recv()]
        time.sleep(after_seconds)
        process.kill()
        with suppress(EOFError):
            while True:
                lines.append(receiver.recv())
    process.join()

    assert process.exitcode == -signal.SIGKILL, f"the writer ended by itself after {lines[-2:]}"
    return LastWords(found, lines)


def check_prompt(pipeline: ContextPipeline) -> None:
    report = pipeline.assemble(QUESTION, **SCOPE).report
    assert report.failures == ()
    assert report.total_tokens <= MAX_TOKENS


def check_works(store: BaseStore) -> list[Shown]:
    """Returns the conversation, which every way to read it gives, and of which prompts are made."""
    with new_pipeline(store) as pipeline:
        conversation = shown(pipeline.get_messages(**SCOPE))
        ids = [key for key, _ in conversation]
        assert len(set(ids)) == len(ids)
        page = pipeline.get_page(limit=40, **SCOPE)
        assert set(shown(page.messages)) <= set(conversation)
        check_prompt(pipeline)

        coverage = pipeline.coverage(**SCOPE)
        assert sorted(key for keys in coverage.values() for key in keys) == sorted(ids)
        compactions = pipeline.get_compactions(**SCOPE)
        assert all(record.original_token_count for record in compactions)

        assert pipeline.flush(30)
        check_prompt(pipeline)
    return conversation


def kill_again_and_again(kind: str, place: str, kills: int, seed: int) -> None:
    rng = random.Random(seed)
    conversation: list[Shown] = []
    for kill in range(1, kills + 1):
        after_seconds = rng.uniform(0, KILL_WITHIN_SECONDS)
        last_words = killed_writer(kind, place, seed * 1_000 + kill, after_seconds)
        if kind != "chroma-folder":
            time.sleep(SETTLE_SECONDS)

        assert last_words.found == conversation
        with opened(kind, place) as store:
            conversation = check_works(store)
        where = f"kill {kill} of seed {seed}: {last_words.lines[-2:]}"
        assert conversation in last_words.possible_ends(), where


def test_a_writer_of_a_folder_is_killed_again_and_again(tmp_path: Path) -> None:
    kill_again_and_again("chroma-folder", str(tmp_path), kills=6, seed=2)


def test_a_writer_to_postgres_is_killed_again_and_again(postgres: str) -> None:
    with new_postgres_schema(postgres) as dsn:
        with PostgresStore.from_conn_string(dsn) as store:
            store.setup()
        kill_again_and_again("postgres", dsn, kills=4, seed=5)


# The same without a process: cut short after every single write


class Killed(BaseException):
    """What the store's owner sees of its end."""


class Mortal(InMemoryStore):
    """Dies when it has made so many writes.

    The deletions of a batch are one of them, as in `ChromaStore` and Postgres: before what is
    written, or after it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.writes_left: float = float("inf")
        self.deletes_first = False

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        operations = list(ops)
        for write in self._writes(operations):
            if not self.writes_left:
                raise Killed
            self.writes_left -= 1
            super().batch(write)

        reads = [op for op in operations if not isinstance(op, PutOp)]
        return super().batch(reads) or [None] * len(operations)

    def _writes(self, operations: Sequence[Op]) -> list[list[Op]]:
        puts = [op for op in operations if isinstance(op, PutOp)]
        writes: list[list[Op]] = [[op] for op in puts if op.value is not None]
        deletions: list[Op] = [op for op in puts if op.value is None]
        if not deletions:
            return writes
        return [deletions, *writes] if self.deletes_first else [*writes, deletions]


BEFORE = [
    *exchange(0),
    *exchange(1),
    *exchange(2),
    *exchange(3),
    *exchange(4),
    *exchange(5),
]
CHANGES = {
    "append": Change("add", new=exchange(100)),
    "edit": Change("edit", edited=[("q2", "Edited.")]),
    "forget": Change("forget", removed=["q2"]),
    "archive": Change("archive", removed=["q2"]),
    "sync edits, removes and appends": Change(
        "sync", new=exchange(100), edited=[("q3", "Edited.")], removed=["q2"]
    ),
    "sync moves and edits": Change("sync", edited=[("q3", "Edited.")], moved=["q2"]),
}


class Interruption(NamedTuple):
    """A store whose writer died after so many writes, or came to its end."""

    store: Mortal
    writes: int
    killed: bool
    """Whether the writer had something left to do."""


def interrupted(
    work: Callable[[ContextPipeline], object], writes: int, *, deletes_first: bool = False
) -> Interruption:
    store = Mortal()
    with new_pipeline(store) as pipeline:
        pipeline.add_messages(messages(BEFORE), **SCOPE)
        pipeline.assemble(QUESTION, **SCOPE)
        pipeline.flush()

        store.writes_left = writes
        store.deletes_first = deletes_first
        killed = False
        try:
            work(pipeline)
        except Killed:
            killed = True
        store.writes_left = float("inf")
    return Interruption(store, writes, killed)


def interruptions(
    work: Callable[[ContextPipeline], object], *, deletes_first: bool = False
) -> Iterator[Interruption]:
    """One after no write, one after the first, and so on; the last one came to its end."""
    for writes in count():
        interruption = interrupted(work, writes, deletes_first=deletes_first)
        yield interruption
        if not interruption.killed:
            assert writes > 1
            return


def interrupted_changes(change: Change, *, deletes_first: bool) -> Iterator[Interruption]:
    return interruptions(
        lambda pipeline: make(pipeline, BEFORE, change), deletes_first=deletes_first
    )


every_change = pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
both_orders = pytest.mark.parametrize(
    "deletes_first", [False, True], ids=["deletions last", "deletions first"]
)


@both_orders
@every_change
def test_each_part_of_a_change_cut_short_is_done_or_not(
    change: Change, deletes_first: bool
) -> None:
    for store, writes, killed in interrupted_changes(change, deletes_first=deletes_first):
        possible = outcomes(BEFORE, change) if killed else [outcome(BEFORE, change)]
        assert check_works(store) in possible, f"after {writes} writes"


@both_orders
@every_change
def test_a_change_that_was_cut_short_can_be_done_again(change: Change, deletes_first: bool) -> None:
    for store, writes, killed in interrupted_changes(change, deletes_first=deletes_first):
        if not killed:
            continue
        check_works(store)

        # What is removed already cannot be removed.
        with new_pipeline(store) as pipeline, suppress(InputError):
            make(pipeline, BEFORE, change)

        assert check_works(store) == outcome(BEFORE, change), f"after {writes} writes"


@every_change
def test_pages_show_no_message_twice_after_a_change_cut_short(change: Change) -> None:
    for store, writes, _ in interrupted_changes(change, deletes_first=False):
        with new_pipeline(store) as pipeline:
            pipeline.add_messages([HumanMessage("and now?")], **SCOPE)

            pages = shown(all_pages(pipeline))
            assert pages == shown(pipeline.get_messages(**SCOPE)), f"after {writes} writes"


def all_pages(pipeline: ContextPipeline) -> list[BaseMessage]:
    page = pipeline.get_page(limit=4, **SCOPE)
    conversation = list(page.messages)
    while page.before:
        page = pipeline.get_page(limit=4, before=page.before, **SCOPE)
        conversation = [*page.messages, *conversation]
    return conversation


def clear(pipeline: ContextPipeline) -> None:
    pipeline.clear(**SCOPE)


def erase_user(pipeline: ContextPipeline) -> None:
    pipeline.erase_user(user_id="ada")


KEPT_BY: Mapping[Callable[[ContextPipeline], None], set[str]] = {
    clear: {"usage"},
    erase_user: set(),
}
"""What a deletion leaves: the user's month outlives a conversation."""


@pytest.mark.parametrize("delete", [clear, erase_user])
def test_a_deletion_that_was_cut_short_can_be_done_again(
    delete: Callable[[ContextPipeline], None],
) -> None:
    for store, _, _ in interruptions(delete):
        assert set(check_works(store)) <= set(BEFORE)

        with new_pipeline(store) as pipeline:
            delete(pipeline)
            left = [item.namespace[2] for item in store.search(())]
            assert set(left) <= KEPT_BY[delete]
            pipeline.add_messages(messages(exchange(100)), **SCOPE)

        assert check_works(store) == exchange(100)
