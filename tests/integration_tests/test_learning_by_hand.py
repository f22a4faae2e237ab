"""`pipeline.knowledge`.

What is known is listed, changed by hand, traced to its messages, and shown.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
from langchain_core.messages import HumanMessage
from langgraph.store.base import BaseStore
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import ContextPipeline
from langchain_ctxbudget.budget import Layer, Status
from langchain_ctxbudget.errors import InputError
from langchain_ctxbudget.flow import drive
from langchain_ctxbudget.knowledge import (
    BY_USER,
    NOTHING,
    EntityProfile,
    Fact,
    Knowledge,
    Source,
    TopicProfile,
    known,
)
from langchain_ctxbudget.knowledge.records import TopicConversation
from langchain_ctxbudget.messages import fingerprint
from tests.conversations import BagOfWords
from tests.integration_tests.conftest import Call
from tests.integration_tests.test_learning import system

ADA: Any = {"user_id": "ada"}
HERE: Any = {"user_id": "ada", "conversation_id": "c1"}
THERE: Any = {"user_id": "ada", "conversation_id": "c2"}
NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
SAID = [
    HumanMessage("I live in Lisbon.", id="m0"),
    HumanMessage("My sister Sarah works at Acme.", id="m1"),
    HumanMessage("Sarah likes my home brewing.", id="m2"),
    HumanMessage("I'm visiting Sarah next week.", id="m3"),
]
SOURCES = [
    Source(conversation_id="c1", message_id=str(one.id), digest=fingerprint(one)) for one in SAID
]
SARAH = "entity/person/sarah"
BREWING = "topic/home-brewing"


def fact(text: str, source: int, **rest: Any) -> Fact:
    made: dict[str, Any] = {
        "category": "identity",
        "created_at": NOW,
        "last_seen": NOW,
        "sources": (SOURCES[source],),
    }
    return Fact(id=f"fact/{source}", text=text, **(made | rest))


def link(name: str, messages: int) -> TopicConversation:
    share = messages / len(SAID)
    return TopicConversation(
        topic_id=name,
        conversation_id="c1",
        messages=messages,
        relevance_score=share,
        last_at=NOW,
        until=len(SAID),
    )


LEARNED = Knowledge(
    facts=(
        fact("Lives in Lisbon", 0, slot="home"),
        fact("Visits Sarah next week", 3, category="project"),
    ),
    topics=(
        TopicProfile(
            id=BREWING,
            slug="home-brewing",
            label="Home brewing",
            sources=(SOURCES[2],),
            last_engaged_at=NOW,
        ),
    ),
    entities=(
        EntityProfile(
            id=SARAH,
            name="Sarah",
            type="person",
            relationship="sister",
            relations=(("works at", "Acme"),),
            sources=tuple(SOURCES[1:]),
            last_engaged_at=NOW,
        ),
    ),
    links={(BREWING, "c1"): link(BREWING, 1), (SARAH, "c1"): link(SARAH, 3)},
)


@contextmanager
def opened(
    store: BaseStore | None = None, now: datetime = NOW, **settings: Any
) -> Iterator[ContextPipeline]:
    settings = {"learn_every": 1_000, "sources": [], **settings}
    with ContextPipeline(
        settings, store=InMemoryStore() if store is None else store, clock=lambda: now
    ) as pipeline:
        yield pipeline


@contextmanager
def knowing(store: BaseStore | None = None) -> Iterator[ContextPipeline]:
    with opened(store) as pipeline:
        pipeline.add_messages(SAID, **HERE)
        drive(known.save(pipeline.store, "ada", NOTHING, LEARNED))
        pipeline.knowledge.heartbeat(device_id="laptop", **ADA)  # it compiles what is missing
        yield pipeline


def texts(pipeline: ContextPipeline) -> list[str]:
    return sorted(one.text for one in pipeline.knowledge.list_facts(**ADA))


def bundles(pipeline: ContextPipeline) -> dict[str, str]:
    return {one.id: one.compiled_prompt for one in pipeline.knowledge.list_bundles(**ADA)}


# Look at it, change it


def test_what_is_known_is_listed_added_edited_pinned_and_deleted(call: Call) -> None:
    with knowing() as pipeline:
        it = pipeline.knowledge
        added = call(it, "add_fact", "Plays the cello", category="identity", **ADA)
        edited = call(it, "edit", "fact/0", text="Lives in Lisbon, Alfama", **ADA)
        pinned = call(it, "pin", "fact/0", **ADA)
        assert (edited.text, pinned.pinned, edited.made_by) == (
            "Lives in Lisbon, Alfama",
            True,
            BY_USER,
        )
        facts = call(it, "list_facts", **ADA)
        assert (facts[0], added in facts) == (pinned, True)
        call(it, "delete", added.id, **ADA)
        assert call(it, "pin", "fact/0", pinned=False, **ADA) == edited
        assert added not in call(it, "list_facts", include_ended=True, **ADA)
        renamed = call(it, "edit", BREWING, label="Beer at home", **ADA)
        assert renamed.names == (
            "Beer at home",
            "Home brewing",
        )  # users go on saying what they used to
        assert [one.label for one in call(it, "list_topics", **ADA)] == ["Beer at home"]
        assert [one.name for one in call(it, "list_entities", **ADA)] == ["Sarah"]
        assert {one.id for one in call(it, "list_bundles", **ADA)} >= {
            BREWING,
            SARAH,
            "identity_core",
        }
        assert sum("Visits Sarah" in text for text in bundles(pipeline).values()) == 1
        call(it, "delete", "fact/3", **ADA)
        assert not any("Visits Sarah" in text for text in bundles(pipeline).values())
        call(it, "delete", BREWING, **ADA)
        call(it, "delete", SARAH, **ADA)
        assert call(it, "list_topics", **ADA) == call(it, "list_entities", **ADA) == []
        assert bundles(pipeline).keys().isdisjoint({BREWING, SARAH})
        assert not any("Acme" in text for text in bundles(pipeline).values())


def test_why_gives_the_messages_that_say_it_and_tells_of_changed_and_lost_ones(call: Call) -> None:
    with knowing() as pipeline:
        found = call(pipeline.knowledge, "why", SARAH, **ADA)
        assert [(one.message_id, one.changed) for one in found] == [
            ("m1", False),
            ("m2", False),
            ("m3", False),
        ]
        assert [one.message.text for one in found] == [one.text for one in SAID[1:]]
        found[0].message.content = "changed"
        assert pipeline.get_messages(**HERE)[1].text == SAID[1].text  # it was a copy
        by_hand = pipeline.knowledge.add_fact("Sings", **ADA)
        assert call(pipeline.knowledge, "why", by_hand.id, **ADA) == []
        now = drive(known.read(pipeline.store, "ada"))
        other = SOURCES[1].model_copy(update={"digest": "of another text"})
        lost = Source(conversation_id="c1", message_id="gone")
        changed = now.facts[0].model_copy(
            update={"sources": (other, lost), "id": "fact/old", "ended": "expired"}
        )
        drive(
            known.save(
                pipeline.store, "ada", now, Knowledge(**{**vars_of(now), "ended": (changed,)})
            )
        )
        edited, gone = call(
            pipeline.knowledge, "why", "fact/old", **ADA
        )  # also of a fact that has ended
        assert (edited.changed, gone.changed, gone.message) == (True, False, None)


def vars_of(knowledge: Knowledge) -> dict[str, Any]:
    names = ("mark", "facts", "topics", "entities", "bundles", "links", "phrases")
    return {name: getattr(knowledge, name) for name in names}


# What is refused

BEATS: list[tuple[str, Any]] = [
    *(("device_id", value) for value in ("", None, "d" * 2_001)),
    *(
        ("visible_conversation_ids", value)
        for value in ("c1", ["c1", 5], ["c"] * 101, ["c" * 2_001])
    ),
    *(("active_notebook_id", 5), ("path", "/" * 2_001), ("idle", "no"), ("battery", 5)),
    *(("local_time", "2026-01-01"), ("local_time", datetime(2026, 1, 1))),
]


@pytest.mark.parametrize(
    ("name", "arguments", "changes", "told"),
    [
        ("add_fact", [""], {}, "text cannot be ''"),
        ("add_fact", [" \n"], {}, "must not be blank"),
        ("add_fact", ["x" * 2_001], {}, "at most 2000 characters"),
        ("add_fact", [None], {}, "text cannot be None"),
        *(
            ("add_fact", ["Sings"], {"confidence": value}, "confidence cannot be")
            for value in (0, 1.5, True, "high")
        ),
        ("add_fact", ["Sings"], {"category": "hobby"}, "'project', 'preference' or 'identity'"),
        ("edit", ["fact/0"], {"confidence": 2}, "confidence cannot be 2"),
        (
            "edit",
            ["fact/0"],
            {"sources": ()},
            "sources cannot be edited; the fields that can are text, category",
        ),
        ("edit", [BREWING], {"total_messages": 9}, "total_messages cannot be edited"),
        ("edit", [SARAH], {"compiled_context": " "}, "must not be blank"),
        *(
            (name, ["fact/none"], {}, "Nothing with the id 'fact/none'")
            for name in ("edit", "delete", "pin", "why")
        ),
        *(("heartbeat", [], {"device_id": "d", name: value}, name) for name, value in BEATS),
    ],
)
def test_what_does_not_fit_is_refused_and_nothing_changes(
    call: Call, name: str, arguments: list[Any], changes: dict[str, Any], told: str
) -> None:
    with knowing() as pipeline:
        before = drive(known.read(pipeline.store, "ada"))
        with pytest.raises(InputError, match=told):
            call(pipeline.knowledge, name, *arguments, **changes, **ADA)
        assert drive(known.read(pipeline.store, "ada")) is before


# What is said by hand counts


def test_a_fact_by_hand_supersedes_the_other_value_of_its_slot(call: Call) -> None:
    with knowing() as pipeline:
        assert "Lisbon" in system(pipeline.assemble("Hi", **THERE))
        new = call(
            pipeline.knowledge,
            "add_fact",
            "Lives in Porto",
            category="identity",
            slot="home",
            **ADA,
        )
        every = {one.id: one for one in pipeline.knowledge.list_facts(include_ended=True, **ADA)}
        assert every["fact/0"].superseded_by == new.id
        assert "Lisbon" not in system(pipeline.assemble("Hi", **THERE))  # at the next turn


def test_what_was_said_by_hand_outlives_the_messages(call: Call) -> None:
    with knowing() as pipeline:
        details = {
            "facts": ("Plays chess",),
            "attributes": (("email", "s@example.org"),),
            "aliases": ("Sal",),
        }
        call(pipeline.knowledge, "edit", SARAH, name="Sally", **details, **ADA)
        call(pipeline.knowledge, "edit", "fact/0", text="Lives in Alfama", **ADA)
        call(pipeline, "clear", **HERE)
        [sally] = call(pipeline.knowledge, "list_entities", **ADA)
        assert {name: getattr(sally, name) for name in details} == details
        assert (sally.name, sally.relationship) == ("Sally", "sister")  # it stays as it was written
        assert (texts(pipeline), pipeline.knowledge.list_topics(**ADA)) == (["Lives in Alfama"], [])


# What prompts show


def test_where_learning_is_off_only_facts_that_were_said_by_hand_are_shown(call: Call) -> None:
    store = InMemoryStore()
    with knowing(store) as pipeline:
        pipeline.knowledge.add_fact("Sings", **ADA)
        call(pipeline.knowledge, "edit", SARAH, compiled_context="Calls on Sundays.", **ADA)
    with opened(store, learn=False) as pipeline:
        context = call(pipeline, "assemble", "Does Sarah like home brewing?", **THERE)
    shown = system(context) + context.messages[-1].text
    assert [
        word
        for word in ("Sings", "Calls on Sundays.", "Lisbon", "Acme", "likes my")
        if word in shown
    ] == ["Sings"]


def test_a_conversation_keeps_its_snapshot_until_something_is_changed_by_hand(call: Call) -> None:
    with knowing() as pipeline:
        before = system(call(pipeline, "assemble", "Hi", **THERE))
        now = drive(known.read(pipeline.store, "ada"))
        learned = fact("Works as a nurse", 1)
        drive(
            known.save(
                pipeline.store,
                "ada",
                now,
                Knowledge(**vars_of(now) | {"facts": (*now.facts, learned)}),
            )
        )
        context = call(pipeline, "assemble", "Hi", **THERE)
        assert system(context) == before
        assert {one.id: one.reason for one in context.report.layer("L1").items}[
            "fact/1"
        ] == "next_snapshot"
        call(pipeline.knowledge, "pin", "fact/0", **ADA)
        assert "Works as a nurse" in system(call(pipeline, "assemble", "Hi", **THERE))


# Devices


def test_what_a_device_has_open_is_predicted_compiled_and_preferred(call: Call) -> None:
    with knowing() as pipeline:
        state = drive(known.read(pipeline.store, "ada"))
        tom = EntityProfile(
            id="entity/person/tom",
            name="Tom",
            type="person",
            relationship="boss",
            sources=SOURCES[:1],
        )
        there = link(tom.id, 3).model_copy(update={"conversation_id": "work"})
        added = {
            "entities": (*state.entities, tom),
            "links": {**state.links, (tom.id, "work"): there},
        }
        drive(known.save(pipeline.store, "ada", state, Knowledge(**vars_of(state) | added)))
        for where, expected in (("work", tom.id), ("c1", SARAH)):
            call(
                pipeline.knowledge,
                "heartbeat",
                device_id="phone",
                active_conversation_id=where,
                **ADA,
            )
            [_, device] = call(pipeline.knowledge, "list_devices", **ADA)
            assert device.predicted_entities[0] == expected
            context = call(
                pipeline, "assemble", "What about Tom and Sarah?", device_id="phone", **THERE
            )
            people = [
                one.id
                for one in context.report.layer(Layer.ENTITIES).items
                if one.status is not Status.OMITTED
            ]
            assert (people[0], len(people)) == (expected, 2)
        assert device.predicted_topics == (BREWING,)
        hits = {one.id: one.hit_count for one in call(pipeline.knowledge, "list_bundles", **ADA)}
        assert (hits[SARAH], hits[BREWING]) == (2, 0)


def test_a_conversation_in_front_is_read_ahead_with_what_others_say_of_what_is_predicted(
    call: Call,
) -> None:
    store = InMemoryStore()
    other = "Sarah sent hops for the home brewing."
    with knowing(store) as pipeline:
        pipeline.add_messages([HumanMessage(other)], **THERE)
    every = {other, *(one.text for one in SAID)}
    for in_front, ahead in (("c1", every), (None, set())):
        embeddings = BagOfWords()
        with ContextPipeline(
            {"learn": False}, store=store, embeddings=embeddings, clock=lambda: NOW
        ) as pipeline:
            call(
                pipeline.knowledge,
                "heartbeat",
                device_id="phone",
                active_conversation_id=in_front,
                **ADA,
            )
            assert pipeline.flush(10)
            assert set(embeddings.asked) == ahead
            call(pipeline, "assemble", "What of Sarah's brewing?", device_id="phone", **HERE)
            assert sorted(embeddings.asked) == sorted(every)  # each once
