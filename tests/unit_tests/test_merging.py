"""Topics and entities that were learned are taken into those that are known: updated, and not added again."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from langchain_ctxbudget.knowledge.learned import Learned, LearnedEntity, LearnedTopic
from langchain_ctxbudget.knowledge.merging import (
    MOST_ALIASES,
    MOST_ATTRIBUTES,
    MOST_CHARACTERS,
    MOST_FACTS,
    MOST_RELATED_MESSAGES,
    MOST_SIGNALS,
    merge_entities,
    merge_topics,
)

from langchain_ctxbudget.knowledge.records import BY_USER, MOST_SOURCES, EntityProfile, Source, TopicProfile

NOW = datetime(2026, 3, 1, tzinfo=UTC)
MANY = 40
SOURCES = {f"m{n}": Source(conversation_id="c1", message_id=f"m{n}", digest=f"d{n}") for n in range(MANY)}


def topics(known: tuple[TopicProfile, ...], *labels: str, **fields: Any) -> tuple[TopicProfile, ...]:
    new = tuple(LearnedTopic(label=label, **{"message_ids": ("m0",), **fields}) for label in labels)
    return merge_topics(known, Learned(topics=new), SOURCES, NOW)


def entities(known: tuple[EntityProfile, ...], *names: str, **fields: Any) -> tuple[EntityProfile, ...]:
    new = tuple(LearnedEntity(name=name, **{"type": "person", "message_ids": ("m0",), **fields}) for name in names)
    return merge_entities(known, Learned(entities=new), SOURCES, NOW)


# Topics


@pytest.mark.parametrize("label", ["home brewing", "HOME  Brewing", "Brewing home", "home brewings"])
def test_a_topic_in_another_form_is_the_same(label: str) -> None:
    [topic] = topics(topics((), "Home brewing"), label)
    assert (topic.id, topic.label) == ("topic/home-brewing", "Home brewing")


def test_learning_a_topic_again_from_the_same_messages_changes_nothing() -> None:
    fields = {"proficiency": "expert", "domain": "creative", "aliases": ("x",), "parent": "Beer"}
    first = topics(topics((), "Beer"), "Home brewing", **fields)
    assert topics(first, "Home brewing", **fields) == first
    assert first[1].proficiency_signals == ("expert",)


def test_nothing_is_a_part_of_itself() -> None:
    known = topics(topics((), "A one"), "B two", parent="A one")
    known = topics(known, "C three", parent="B two")
    known = topics(known, "A one", parent="C three")
    assert {topic.label: topic.parent_slug for topic in known} == {"A one": None, "B two": "a-one", "C three": "b-two"}


@pytest.mark.parametrize("field", ["aliases", "proficiency_signals", "related_acu_ids", "sources"])
def test_a_topic_does_not_grow_for_ever(field: str) -> None:
    known: tuple[TopicProfile, ...] = ()
    for number in range(MANY):
        known = topics(known, "Beer", aliases=(f"alias {number}",), proficiency="expert", message_ids=(f"m{number}",))
    bounds = {
        "aliases": MOST_ALIASES,
        "proficiency_signals": MOST_SIGNALS,
        "related_acu_ids": MOST_RELATED_MESSAGES,
        "sources": MOST_SOURCES,
    }
    assert len(getattr(known[0], field)) == bounds[field]


def test_what_the_user_said_of_a_topic_stays() -> None:
    changes = {"made_by": BY_USER, "domain": "business", "label": "Ale"}
    own = topics((), "Beer")[0].model_copy(update=changes)
    [topic] = topics((own,), "Beer", domain="creative", proficiency="expert", message_ids=("m1",))
    assert (topic.label, topic.domain, topic.proficiency_signals) == ("Ale", "business", ())
    assert [source.message_id for source in topic.sources] == ["m0", "m1"]


# Entities


def test_a_full_name_completes_a_first_name() -> None:
    [sarah] = entities(entities((), "Sarah"), "Sarah Chen")
    assert (sarah.id, sarah.name, sarah.aliases) == ("entity/person/sarah", "Sarah Chen", ("Sarah",))


def test_a_first_name_that_two_have_is_nobodys() -> None:
    known = entities((), "Sarah Chen", "Sarah Lee")
    assert len(known) == 2
    assert len(entities(known, "Sarah")) == 3


def test_a_concept_becomes_what_it_turns_out_to_be() -> None:
    [entity] = entities(entities((), "Acme", type="concept"), "Acme", type="organization")
    assert (entity.type, entity.id) == ("organization", "entity/concept/acme")


def test_learning_an_entity_again_from_the_same_messages_changes_nothing() -> None:
    fields = {
        "relationship": "sister",
        "attributes": (("age", "7"),),
        "relations": (("works at", "Acme"),),
        "facts": ("Plays the cello",),
        "aliases": ("Sal",),
    }
    first = entities((), "Sarah", **fields)
    assert entities(first, "Sarah", **fields) == first


@pytest.mark.parametrize(
    ("field", "most"),
    [("facts", MOST_FACTS), ("attributes", MOST_ATTRIBUTES), ("aliases", MOST_ALIASES), ("sources", MOST_SOURCES)],
)
def test_an_entity_does_not_grow_for_ever(field: str, most: int) -> None:
    known: tuple[EntityProfile, ...] = ()
    for number in range(MANY):
        fields = {
            "facts": (f"fact {number} " + "x" * 500,),
            "attributes": ((f"a{number}", "v" * 500),),
            "aliases": (f"alias {number}",),
        }
        known = entities(known, "Sarah", **fields, message_ids=(f"m{number}",))
    assert len(getattr(known[0], field)) == most
    assert max(map(len, known[0].facts)) == len(known[0].attributes[0][1]) == MOST_CHARACTERS


def test_what_the_user_said_of_an_entity_stays() -> None:
    changes = {"made_by": BY_USER, "name": "Sally", "relationship": "friend", "attributes": (("age", "7"),)}
    own = entities((), "Sarah")[0].model_copy(update={**changes, "aliases": ("Sarah",), "type": "concept"})
    learned = {"relationship": "wife", "attributes": (("age", "8"), ("eyes", "brown")), "aliases": ("Sarah",)}
    [sally] = entities((own,), "Sarah Chen", **learned)
    assert (sally.name, sally.type, sally.relationship) == ("Sally", "concept", "friend")
    assert dict(sally.attributes) == {"age": "7", "eyes": "brown"}
