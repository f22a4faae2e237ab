"""What is known of a user is kept by user, given back equal, and written so that a kill does no harm."""

import copy
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from langgraph.store.base import Op, PutOp, Result
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget.errors import StoreDataError, StoreError
from langchain_ctxbudget.flow import drive
from langchain_ctxbudget.knowledge import (
    NOTHING,
    ClientPresence,
    ContextBundle,
    EntityProfile,
    Fact,
    Knowledge,
    Source,
    TopicProfile,
    known,
    records,
)
from langchain_ctxbudget.knowledge.records import PhraseRecord, Repository, TopicConversation
from langchain_ctxbudget.stores import bulk

NOW = datetime(2026, 3, 29, 0, 59, 59, 999_999, tzinfo=UTC)
TEXTS = (
    "plain",
    "",
    "nul \0",
    "only half \ud800",
    "\U0001f642 e\u0301 \u202e",
    "two\r\nlines",
    '{"json": "{}"}',
)
IDS = (
    "topic/cycling",
    "topic/cyclin",
    "..",
    "a.b",
    "a/b",
    "%",
    "a%",
    "_",
    "~",
    "mark",
    " ",
    "nul \0",
    "long " * 2_000,
)


def fact(name: str, text: str = "text") -> Fact:
    source = Source(conversation_id=name, message_id=text, digest=text)
    return Fact(
        id=name,
        text=text,
        category="identity",
        slot=text,
        sources=(source,),
        created_at=NOW,
        last_seen=NOW,
    )


def ended(number: int) -> Fact:
    return fact(f"{number:04}").model_copy(
        update={"ended": "expired", "ended_at": NOW + timedelta(seconds=number)}
    )


def topic(name: str, text: str = "text") -> TopicProfile:
    return TopicProfile(
        id=name,
        slug=text,
        label=text,
        aliases=(text, text),
        embedding=(0.1, -1e-30),
        updated_at=NOW,
    )


def entity(name: str, text: str = "text") -> EntityProfile:
    details = {"aliases": (text,), "attributes": ((text, text),), "relations": ((text, text),)}
    return EntityProfile(id=name, name=text, **details)


def link(name: str, text: str = "text") -> TopicConversation:
    return TopicConversation(
        topic_id=name, conversation_id=text, hours=(0,) * 24, days=("2026-01-01",)
    )


def bundle(name: str, text: str = "text") -> ContextBundle:
    return ContextBundle(
        id=name, bundle_type="topic", compiled_prompt=text, token_count=3, compiled_at=NOW
    )


def device(name: str, text: str = "text") -> ClientPresence:
    opened = {"navigation_history": ((text, NOW),), "predicted_topics": (text,)}
    return ClientPresence(device_id=name, session_started_at=NOW, last_heartbeat_at=NOW, **opened)


def phrase(name: str, text: str = "text") -> PhraseRecord:
    source = Source(conversation_id=text, message_id=name, day=text)
    return PhraseRecord(phrase=name, label=text, sources=(source,))


KINDS: list[tuple[Repository[Any], Any]] = [
    *((records.FACTS, fact), (records.TOPICS, topic), (records.ENTITIES, entity)),
    *(
        (records.LINKS, link),
        (records.BUNDLES, bundle),
        (records.PRESENCE, device),
        (records.PHRASES, phrase),
    ),
]


def write(store: InMemoryStore, *puts: PutOp) -> None:
    drive(bulk.write(store, puts))


def test_a_record_is_given_back_whatever_it_says_and_is_called() -> None:
    for repository, make in KINDS:
        store = InMemoryStore()
        saved = [make(name) for name in IDS] + [
            make(f"{n} {text}", text) for n, text in enumerate(TEXTS)
        ]
        write(store, *repository.changes("ada", (), saved))
        assert drive(repository.all(store, "ada")) == sorted(saved, key=repository.key)
        write(store, *repository.changes("ada", saved, saved[:1]))
        assert drive(repository.all(store, "ada")) == saved[:1]


def test_what_cannot_be_read_is_named() -> None:
    for repository, make in KINDS:
        store = InMemoryStore()
        at = repository.place("ada", "broken")
        write(
            store,
            *repository.changes("ada", (), [make("x", "y")]),
            PutOp(at.namespace, at.key, {"odd": 1}),
        )
        with pytest.raises(
            StoreDataError,
            match=rf"'broken~' in ctxbudget/ada~/knowledge/{repository.kind} is not a ",
        ):
            drive(repository.all(store, "ada"))


STATE = Knowledge(
    facts=(fact("f"),),
    topics=(topic("t"),),
    entities=(entity("e"),),
    bundles={"t": bundle("t")},
    ended=(ended(1),),
    links={("t", "c1"): link("t", "c1")},
    phrases=(phrase("p"),),
)


class Counted(InMemoryStore):
    """Counts the batches, and breaks off before the n-th write."""

    batches = 0
    left = 10_000

    def batch(self, ops: Any) -> list[Result]:
        todo: list[Op] = list(ops)
        self.batches += 1
        puts = [op for op in todo if isinstance(op, PutOp)]
        if len(puts) > self.left:
            super().batch(puts[: self.left])
            self.left = 0
            raise OSError("gone")
        self.left -= len(puts)
        return super().batch(todo)


def parts(knowledge: Knowledge) -> Knowledge:
    return replace(knowledge, mark=NOTHING.mark)


def save(store: InMemoryStore, after: Knowledge, **rest: Any) -> Knowledge:
    drive(known.save(store, "ada", drive(known.read(store, "ada")), after, **rest))
    return drive(known.read(store, "ada"))


def test_what_is_saved_is_read_again_here_and_in_another_process() -> None:
    store = Counted()
    saved = save(store, STATE)
    assert parts(saved) == parts(drive(known.read(copy.copy(store), "ada"))) == STATE
    store.batches = 0
    assert drive(known.read(store, "ada")) is saved  # one look at the mark
    assert save(store, saved) is saved  # nothing is written where nothing has changed
    assert store.batches == 3  # the mark, and nothing to write
    assert save(store, replace(saved, facts=()), edited=True).mark.edited != saved.mark.edited
    assert parts(save(store, NOTHING)) == NOTHING


@pytest.mark.parametrize("writes", range(12))
def test_a_kill_at_any_write_loses_no_fact_and_leaves_what_can_be_saved_again(writes: int) -> None:
    store = Counted()
    before = save(store, STATE)
    new = Fact(
        id="new", text="new", category="identity", created_at=NOW, last_seen=NOW, pinned=True
    )
    gone = fact("f").model_copy(update={"ended": "superseded", "superseded_by": "new"})
    after = replace(
        before, facts=(new,), ended=(*before.ended, gone), topics=(), bundles={}, links={}
    )
    store.left = writes
    try:
        drive(known.save(store, "ada", before, after))
    except OSError:
        store.left = 10_000
    found = drive(known.read(copy.copy(store), "ada"))
    assert "f" in {one.id for one in (*found.facts, *found.ended)}
    assert not {one.id for one in found.facts} & {one.id for one in found.ended}
    assert {one.id for one in found.facts} != {
        "f",
        "new",
    }  # what supersedes comes after what it supersedes is gone
    assert parts(save(copy.copy(store), replace(after, mark=found.mark))) == parts(after)


def test_another_process_that_writes_at_the_same_time_makes_both_read_again() -> None:
    here = Counted()
    mine = save(here, STATE)
    there = copy.copy(here)
    theirs = drive(known.read(there, "ada"))
    drive(
        known.save(
            there,
            "ada",
            theirs,
            replace(theirs, facts=(*theirs.facts, fact("theirs"))),
            edited=True,
        )
    )
    drive(known.save(here, "ada", mine, replace(mine, facts=(*mine.facts, fact("mine")))))
    for store in (here, there):
        found = drive(known.read(store, "ada"))
        assert {one.id for one in found.facts} == {"f", "theirs", "mine"}
        assert found.mark.edited != mine.mark.edited  # what was changed by hand is shown at once


class Erased(Counted):
    """Loses everything right after facts were written, once."""

    armed = False

    def batch(self, ops: Any) -> list[Result]:
        todo: list[Op] = list(ops)
        result = super().batch(todo)
        if self.armed and any(isinstance(op, PutOp) and op.namespace[-1] == "facts" for op in todo):
            self.armed = False
            self._data.clear()
        return result


@pytest.mark.parametrize("while_it_is_written", [False, True])
def test_where_another_process_erases_the_user_nothing_is_kept(
    *, while_it_is_written: bool
) -> None:
    store = Erased()
    mine = save(store, STATE)
    store.armed = while_it_is_written
    if not while_it_is_written:
        store._data.clear()
    with pytest.raises(StoreError, match="erased elsewhere"):
        drive(known.save(store, "ada", mine, replace(mine, facts=(fact("mine"),))))
    assert drive(known.read(store, "ada")) == NOTHING
    assert store.search(("ctxbudget",)) == []


def test_users_share_a_lock_with_themselves_alone() -> None:
    stores = InMemoryStore(), InMemoryStore()
    locks = {
        (place, number): known.lock_of(stores[place], f"user {number}")
        for place in (0, 1)
        for number in range(600)
    }
    assert len({*map(id, locks.values())}) == len(locks)
    assert known.lock_of(stores[1], "user 7") is locks[1, 7]
