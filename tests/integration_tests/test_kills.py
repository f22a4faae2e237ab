"""A writer is killed at a random point, again and again.

What it was told is there stays there, and work goes on.
"""

import random
import signal
import time
from collections.abc import Iterable, Sequence
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
SETTINGS = {"max_context_tokens": 700, "span_messages": 4, "keep_messages": 4, "learn": False}
KILL_WITHIN_SECONDS = 0.3
"""After the first thing that a writer has done."""
SETTLE_SECONDS = 0.2
"""What a server has been sent is done by then, also when the sender is gone."""

DONE = "done"
"""What the writer tells when it has done what it told of before."""

Shown = tuple[str, str]
"""A message's id and text."""


class Doing(NamedTuple):
    name: str
    new: Sequence[Shown] = ()
    edited: Sequence[Shown] = ()
    removed: Sequence[str] = ()
    moved: Sequence[str] = ()


def outcomes(shown: Sequence[Shown], doing: Doing) -> list[list[Shown]]:
    """What the conversation may be when it is interrupted.

    The last one is what it is when it is done.

    Only `sync` does several things: each of them is done or not.
    """

    def after(*, appends: bool, moves: bool, edits: bool, removes: bool) -> list[Shown]:
        edited = dict(doing.edited) if edits else {}
        gone = set(doing.removed) if removes else set()
        last = doing.moved if moves else ()
        texts = {key: edited.get(key, text) for key, text in shown if key not in gone}
        stay = [(key, text) for key, text in texts.items() if key not in last]
        return [*stay, *((key, texts[key]) for key in last), *(doing.new if appends else ())]

    names = ("appends", "moves", "edits", "removes")
    return [
        after(**dict(zip(names, each, strict=True)))
        for each in product([False, True], repeat=len(names))
    ]


# The writer


def opened(kind: str, place: str) -> AbstractContextManager[BaseStore]:
    if kind == "postgres":
        return PostgresStore.from_conn_string(place)
    url, _, database = place.partition(" ")
    return (
        ChromaStore(url=url, database=database) if kind == "chroma-server" else ChromaStore(place)
    )


def new_pipeline(store: BaseStore) -> ContextPipeline:
    model = Scripted(answer=lambda prompt: summary(f"They talked for {len(prompt)} characters."))
    return ContextPipeline(SETTINGS, store=store, summary_model=model)


def said(pairs: Sequence[Shown]) -> list[BaseMessage]:
    return [
        AIMessage(text, id=key) if key.startswith("a") else HumanMessage(text, id=key)
        for key, text in pairs
    ]


def exchange(number: int) -> list[Shown]:
    return [
        (f"q{number}", f"Question {number}: {words(number, 20)}"),
        (f"a{number}", f"Answer {words(number, 40)}"),
    ]


def chosen(rng: random.Random, known: Sequence[Shown], number: int) -> Doing:
    """What the writer does next; mostly it appends an exchange."""
    name = rng.choices(
        ("add", "edit", "forget", "archive", "sync", "assemble"), (8, 2, 1, 1, 2, 2)
    )[0]
    if name == "add" or len(known) < 6:
        return Doing("add", new=exchange(number))
    one, two, three = (key for key, _ in rng.sample(known, 3))
    if name == "edit":
        return Doing(name, edited=[(one, f"Edited to {number}.")])
    if name in ("forget", "archive"):
        return Doing(name, removed=[one])
    if name == "sync":
        edited = [(two, f"Made equal to {number}.")]
        return Doing(
            name,
            new=exchange(number),
            edited=edited,
            removed=[one],
            moved=[three] if number % 2 else [],
        )
    return Doing(name)


def do(pipeline: ContextPipeline, known: Sequence[Shown], doing: Doing) -> None:
    if doing.name == "add":
        pipeline.add_messages(said(doing.new), **SCOPE)
    elif doing.name == "edit":
        [(key, text)] = doing.edited
        pipeline.edit_message(key, said([(key, text)])[0], **SCOPE)
    elif doing.name == "forget":
        pipeline.remove_messages(doing.removed, on_removal="forget", **SCOPE)
    elif doing.name == "archive":
        pipeline.remove_messages(doing.removed, on_removal="archive", **SCOPE)
    elif doing.name == "sync":
        pipeline.sync(said(outcomes(known, doing)[-1]), on_removal="forget", **SCOPE)
    else:
        pipeline.assemble("What did we say?", **SCOPE)


def write(kind: str, place: str, seed: int, told: Connection) -> None:
    """Write without end.

    Tells what it finds, then what it does, one thing after another, and that it is done.
    """
    rng = random.Random(seed)
    with opened(kind, place) as store, new_pipeline(store) as pipeline:
        known = shown(pipeline.get_messages(**SCOPE))
        told.send(known)
        number = seed * 10_000
        while True:
            doing = chosen(rng, known, number := number + 1)
            told.send(doing)
            do(pipeline, known, doing)
            known = outcomes(known, doing)[-1]
            told.send(DONE)


# The killer


def killed(
    kind: str, place: str, seed: int, after_seconds: float
) -> tuple[list[Shown], list[Doing | str]]:
    """Let a process write, and kill it so long after the first thing that it did.

    What it found, and what it told.
    """
    told, tells = FORKED.Pipe(duplex=False)
    with told:
        process = FORKED.Process(target=write, args=(kind, place, seed, tells))
        process.start()
        tells.close()  # the end of what it tells is its end
        found, *lines = told.recv(), told.recv(), told.recv()
        time.sleep(after_seconds)
        process.kill()
        with suppress(EOFError):
            while True:
                lines.append(told.recv())
    process.join()
    assert process.exitcode == -signal.SIGKILL, f"the writer ended by itself after {lines[-2:]}"
    return found, lines


def possible(known: Sequence[Shown], lines: Sequence[Doing | str]) -> list[list[Shown]]:
    now = [list(known)]
    for line in lines:
        now = outcomes(now[-1], line) if isinstance(line, Doing) else now[-1:]
    return now


def check_works(store: BaseStore) -> list[Shown]:
    """Every way to read the conversation gives the same, a prompt can be made, and what is derived can be read."""
    with new_pipeline(store) as pipeline:
        found = shown(pipeline.get_messages(**SCOPE))
        assert len({key for key, _ in found}) == len(found)
        assert set(shown(pipeline.get_page(limit=40, **SCOPE).messages)) <= set(found)
        report = pipeline.assemble("What did we say?", **SCOPE).report
        assert report.failures == ()
        assert report.total_tokens <= SETTINGS["max_context_tokens"]
        covered = [key for keys in pipeline.coverage(**SCOPE).values() for key in keys]
        assert sorted(covered) == sorted(key for key, _ in found)
        for record in pipeline.get_compactions(**SCOPE):
            assert record.original_token_count
        assert pipeline.flush(30)
        assert pipeline.assemble("What did we say?", **SCOPE).report.failures == ()
    return found


def kill_again_and_again(kind: str, place: str, kills: int, seed: int) -> None:
    rng = random.Random(seed)
    known: list[Shown] = []
    for kill in range(1, kills + 1):
        begun, lines = killed(kind, place, seed * 1_000 + kill, rng.uniform(0, KILL_WITHIN_SECONDS))
        time.sleep(0 if kind == "chroma-folder" else SETTLE_SECONDS)
        assert begun == known
        with opened(kind, place) as store:
            found = check_works(store)
        assert found in possible(known, lines), f"kill {kill} of seed {seed}: {lines[-2:]}"
        known = found


def test_a_writer_of_a_folder_is_killed_again_and_again(tmp_path: Path) -> None:
    kill_again_and_again("chroma-folder", str(tmp_path), 6, 2)


def test_a_writer_to_postgres_is_killed_again_and_again(postgres: str) -> None:
    with new_postgres_schema(postgres) as dsn:
        with PostgresStore.from_conn_string(dsn) as store:
            store.setup()
        kill_again_and_again("postgres", dsn, 4, 5)


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
        every = list(ops)
        puts = [[op] for op in every if isinstance(op, PutOp) and op.value is not None]
        deletions = [op for op in every if isinstance(op, PutOp) and op.value is None]
        for write in [deletions, *puts] if self.deletes_first else [*puts, deletions]:
            if write and not self.writes_left:
                raise Killed
            self.writes_left -= bool(write)
            super().batch(write)
        return super().batch([op for op in every if not isinstance(op, PutOp)]) or [None] * len(
            every
        )


BEGUN = [pair for number in range(6) for pair in exchange(number)]
DOINGS = {
    "append": Doing("add", new=exchange(100)),
    "edit": Doing("edit", edited=[("q2", "Edited.")]),
    "forget": Doing("forget", removed=["q2"]),
    "archive": Doing("archive", removed=["q2"]),
    "sync edits, removes and appends": Doing(
        "sync", new=exchange(100), edited=[("q3", "Edited.")], removed=["q2"]
    ),
    "sync moves and edits": Doing("sync", edited=[("q3", "Edited.")], moved=["q2"]),
}


def cut_short(doing: Doing, writes: int, *, deletes_first: bool) -> tuple[Mortal, bool]:
    """A store whose writer died after so many writes, and whether it had something left to do."""
    store = Mortal()
    with new_pipeline(store) as pipeline:
        pipeline.add_messages(said(BEGUN), **SCOPE)
        pipeline.assemble("What did we say?", **SCOPE)
        pipeline.flush()
        store.writes_left = writes
        store.deletes_first = deletes_first
        try:
            do(pipeline, BEGUN, doing)
        except Killed:
            return store, True
        finally:
            store.writes_left = float("inf")
        return store, False


@pytest.mark.parametrize("name", DOINGS)
def test_cut_short_after_every_write_it_is_whole_pages_agree_and_it_can_be_done_again(
    name: str,
) -> None:
    doing = DOINGS[name]
    for deletes_first in (False, True):
        for writes in count():
            store, killed = cut_short(doing, writes, deletes_first=deletes_first)
            found = check_works(store)
            where = f"after {writes} writes, {deletes_first=}"
            assert found in (outcomes(BEGUN, doing) if killed else outcomes(BEGUN, doing)[-1:]), (
                where
            )
            if not killed:
                break
            with (
                new_pipeline(store) as pipeline,
                suppress(InputError),
            ):  # what is removed already cannot be removed
                do(pipeline, BEGUN, doing)
            assert check_works(store) == outcomes(BEGUN, doing)[-1], where
            if deletes_first:
                continue
            store, _ = cut_short(doing, writes, deletes_first=False)
            with new_pipeline(
                store
            ) as pipeline:  # a page shows no message twice after the next write
                pipeline.add_messages([HumanMessage("and now?")], **SCOPE)
                page = pipeline.get_page(limit=4, **SCOPE)
                pages = list(page.messages)
                while page.before:
                    page = pipeline.get_page(limit=4, before=page.before, **SCOPE)
                    pages[:0] = page.messages
                assert shown(pages) == shown(pipeline.get_messages(**SCOPE)), where
        assert writes > 1


@pytest.mark.parametrize("method", ["clear", "erase_user"])
def test_a_deletion_that_was_cut_short_can_be_done_again(method: str) -> None:
    scope = SCOPE if method == "clear" else {"user_id": SCOPE["user_id"]}
    for writes in count():
        store = Mortal()
        with new_pipeline(store) as pipeline:
            pipeline.add_messages(said(BEGUN), **SCOPE)
            pipeline.assemble("What did we say?", **SCOPE)
            pipeline.flush()
            store.writes_left = writes
            with suppress(Killed):
                getattr(pipeline, method)(**scope)
            killed = not store.writes_left
            store.writes_left = float("inf")
        assert set(check_works(store)) <= set(BEGUN)
        with new_pipeline(store) as pipeline:
            getattr(pipeline, method)(**scope)
            assert not store.search(())
            pipeline.add_messages(said(exchange(100)), **SCOPE)
        assert check_works(store) == exchange(100)
        if not killed:
            break
