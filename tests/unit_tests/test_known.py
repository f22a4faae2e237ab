"""Holds what is known of a user to being given back equal, whatever is killed meanwhile."""

import contextlib
import copy
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
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
    return EntityProfile(
        id=name,
        name=text,
        aliases=(text,),
        attributes=((text, text),),
        relations=((text, text),),
    )


def link(name: str, text: str = "text") -> TopicConversation:
    return TopicConversation(
        topic_id=name, conversation_id=text, hours=(0,) * 24, days=("2026-01-01",)
    )


def bundle(name: str, text: str = "text") -> ContextBundle:
    return ContextBundle(
        id=name, bundle_type="topic", compiled_prompt=text, token_count=3, compiled_at=NOW
    )


def device(name: str, text: str = "text") -> ClientPresence:
    return ClientPresence(
        device_id=name,
        session_started_at=NOW,
        last_heartbeat_at=NOW,
        navigation_history=((text, NOW),),
        predicted_topics=(text,),
    )


def phrase(name: str, text: str = "text") -> PhraseRecord:
    source = Source(conversation_id=text, message_id=name, day=text)
    return PhraseRecord(phrase=name, label=text, sources=(source,))


EVERY_KIND = pytest.mark.parametrize(
    ("repository", "make"),
    [
        pytest.param(records.FACTS, fact, id="facts"),
        pytest.param(records.TOPICS, topic, id="topics"),
        pytest.param(records.ENTITIES, entity, id="entities"),
        pytest.param(records.LINKS, link, id="links"),
        pytest.param(records.BUNDLES, bundle, id="bundles"),
        pytest.param(records.PRESENCE, device, id="presence"),
        pytest.param(records.PHRASES, phrase, id="phrases"),
    ],
)


def write(store: InMemoryStore, *puts: PutOp) -> None:
    drive(bulk.write(store, puts))


def strange(make: Callable[..., Any]) -> list[Any]:
    """Records with every id and every text that may go wrong."""
    with_ids = [make(name) for name in IDS]
    with_texts = [make(f"{number} {text}", text) for number, text in enumerate(TEXTS)]
    return with_ids + with_texts


@EVERY_KIND
def test_a_record_is_given_back_whatever_it_says_and_is_called(
    repository: Repository[Any], make: Callable[..., Any]
) -> None:
    store = InMemoryStore()
    saved = strange(make)

    write(store, *repository.changes("ada", (), saved))

    assert drive(repository.all(store, "ada")) == sorted(saved, key=repository.key)


@EVERY_KIND
def test_only_the_records_that_are_left_are_given_back(
    repository: Repository[Any], make: Callable[..., Any]
) -> None:
    store = InMemoryStore()
    saved = strange(make)
    write(store, *repository.changes("ada", (), saved))

    write(store, *repository.changes("ada", saved, saved[:1]))

    assert drive(repository.all(store, "ada")) == saved[:1]


@EVERY_KIND
def test_what_cannot_be_read_is_named(
    repository: Repository[Any], make: Callable[..., Any]
) -> None:
    store = InMemoryStore()
    place = repository.place("ada", "broken")
    write(store, *repository.changes("ada", (), [make("x", "y")]))
    write(store, PutOp(place.namespace, place.key, {"odd": 1}))
    complaint = f"'broken~' in ctxbudget/ada~/knowledge/{repository.kind} is not a "

    with pytest.raises(StoreDataError, match=complaint):
        drive(repository.all(store, "ada"))


STATE = Knowledge(
    facts=(fact("f"),),
    topics=(topic("t"),),
    entities=(entity("e"),),
    bundles={"t": bundle("t")},
    ended_facts=(ended(1),),
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


def without_mark(knowledge: Knowledge) -> Knowledge:
    """What is known, but for the mark of its version."""
    return replace(knowledge, mark=NOTHING.mark)


def read(store: InMemoryStore) -> Knowledge:
    return drive(known.read(store, "ada"))


def read_elsewhere(store: InMemoryStore) -> Knowledge:
    """What another process reads."""
    return read(copy.copy(store))


def save(store: InMemoryStore, after: Knowledge, **rest: Any) -> Knowledge:
    drive(known.save(store, "ada", read(store), after, **rest))
    return read(store)


def ids(facts: Iterable[Fact]) -> set[str]:
    return {fact.id for fact in facts}


def test_what_is_saved_is_read_again_here_and_in_another_process() -> None:
    store = Counted()

    saved = save(store, STATE)

    assert without_mark(saved) == STATE
    assert without_mark(read_elsewhere(store)) == STATE


def test_what_has_not_changed_is_neither_read_nor_written_again() -> None:
    """Three batches look at the mark: to read, and, to save, before and after."""
    store = Counted()
    saved = save(store, STATE)
    store.batches = 0

    assert read(store) is saved
    assert save(store, saved) is saved
    assert store.batches == 3


def test_an_edit_has_a_new_mark() -> None:
    store = Counted()
    saved = save(store, STATE)

    edited = save(store, replace(saved, facts=()), edited=True)

    assert edited.mark.edited != saved.mark.edited


def test_everything_that_is_known_can_go() -> None:
    store = Counted()
    save(store, STATE)

    assert without_mark(save(store, NOTHING)) == NOTHING


NEW_FACT = Fact(
    id="new", text="new", category="identity", created_at=NOW, last_seen=NOW, pinned=True
)
SUPERSEDED_FACT = fact("f").model_copy(update={"ended": "superseded", "superseded_by": "new"})


@dataclass
class Killed:
    """A store whose process was killed while it saved something."""

    store: Counted
    after: Knowledge
    """What was to be saved."""


@pytest.fixture(params=range(12))
def killed(request: pytest.FixtureRequest) -> Killed:
    """A fact was superseded, and all else but ended facts was to go."""
    store = Counted()
    before = save(store, STATE)
    after = replace(
        before,
        facts=(NEW_FACT,),
        ended_facts=(*before.ended_facts, SUPERSEDED_FACT),
        topics=(),
        bundles={},
        links={},
    )
    store.left = request.param
    with contextlib.suppress(OSError):
        drive(known.save(store, "ada", before, after))
    store.left = 10_000
    return Killed(store, after)


def test_a_kill_at_any_write_loses_no_fact(killed: Killed) -> None:
    """A fact that supersedes another comes only after that one is gone."""
    knowledge = read_elsewhere(killed.store)

    assert "f" in ids(knowledge.facts) | ids(knowledge.ended_facts)
    assert not ids(knowledge.facts) & ids(knowledge.ended_facts)
    assert ids(knowledge.facts) != {"f", "new"}


def test_what_a_kill_leaves_can_be_saved_again(killed: Killed) -> None:
    knowledge = read_elsewhere(killed.store)
    after = replace(killed.after, mark=knowledge.mark)

    saved = save(copy.copy(killed.store), after)

    assert without_mark(saved) == without_mark(after)


def test_two_processes_that_write_at_the_same_time_read_again() -> None:
    """What was changed by hand is shown at once: the mark of edits is a new one."""
    here = Counted()
    mine = save(here, STATE)
    there = copy.copy(here)
    theirs = read(there)

    more_there = replace(theirs, facts=(*theirs.facts, fact("theirs")))
    drive(known.save(there, "ada", theirs, more_there, edited=True))
    more_here = replace(mine, facts=(*mine.facts, fact("mine")))
    drive(known.save(here, "ada", mine, more_here))

    assert ids(read(here).facts) == {"f", "theirs", "mine"}
    assert ids(read(there).facts) == {"f", "theirs", "mine"}
    assert read(here).mark.edited != mine.mark.edited
    assert read(there).mark.edited != mine.mark.edited


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


def check_nothing_is_kept(store: Erased, mine: Knowledge) -> None:
    after = replace(mine, facts=(fact("mine"),))

    with pytest.raises(StoreError, match="erased elsewhere"):
        drive(known.save(store, "ada", mine, after))

    assert read(store) == NOTHING
    assert store.search(("ctxbudget",)) == []


def test_where_the_user_was_erased_elsewhere_nothing_is_kept() -> None:
    store = Erased()
    mine = save(store, STATE)
    store._data.clear()

    check_nothing_is_kept(store, mine)


def test_where_the_user_is_erased_while_it_is_written_nothing_is_kept() -> None:
    store = Erased()
    mine = save(store, STATE)
    store.armed = True

    check_nothing_is_kept(store, mine)


def locks_of(store: InMemoryStore) -> list[object]:
    return [known.lock_of(store, f"user {number}") for number in range(600)]


def test_users_share_a_lock_with_themselves_alone() -> None:
    first = InMemoryStore()
    second = InMemoryStore()

    locks_of_first = locks_of(first)
    locks_of_second = locks_of(second)

    assert len(set(map(id, locks_of_first + locks_of_second))) == 1_200
    assert known.lock_of(second, "user 7") is locks_of_second[7]
