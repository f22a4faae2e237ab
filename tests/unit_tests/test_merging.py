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


@pytest.mark.parametrize(("one", "other"), [("C", "C++"), ("C++", "C#"), ("net", ".NET"), ("Beer", "Brewing")])
def test_other_topics_stay_apart(one: str, other: str) -> None:
    assert len(topics((), one, other)) == 2


def test_a_topic_is_known_by_its_aliases() -> None:
    [topic] = topics(topics((), "Home brewing", aliases=("making beer",)), "Making beer")
    assert topic.aliases == ("making beer",)


def test_what_came_from_no_message_that_was_read_is_not_taken_in() -> None:
    for unknown in ((), ("m99",)):
        assert topics((), "Beer", message_ids=unknown) == ()
        assert entities((), "Sarah", message_ids=unknown) == ()


@pytest.mark.parametrize("label", ["", "  ", "\n"])
def test_what_has_no_name_is_not_taken_in(label: str) -> None:
    assert topics((), label) == ()
    assert entities((), label) == ()


def test_learning_a_topic_again_from_the_same_messages_changes_nothing() -> None:
    fields = {"proficiency": "expert", "domain": "creative", "aliases": ("x",), "parent": "Beer"}
    first = topics(topics((), "Beer"), "Home brewing", **fields)
    assert topics(first, "Home brewing", **fields) == first
    assert first[1].proficiency_signals == ("expert",)


def test_another_message_signals_again() -> None:
    first = topics((), "Beer", proficiency="beginner")
    [topic] = topics(first, "Beer", proficiency="expert", message_ids=("m1",))
    assert topic.proficiency_signals == ("beginner", "expert")


def test_a_part_stands_under_its_whole() -> None:
    found = {topic.slug: topic.parent_slug for topic in topics(topics((), "Beer"), "Hops", parent="beer")}
    assert found == {"beer": None, "hops": "beer"}


def test_nothing_is_a_part_of_itself() -> None:
    known = topics(topics((), "A one"), "B two", parent="A one")
    known = topics(known, "C three", parent="B two")
    known = topics(known, "A one", parent="C three")
    assert {topic.label: topic.parent_slug for topic in known} == {"A one": None, "B two": "a-one", "C three": "b-two"}


def test_a_part_of_what_is_not_known_stands_alone() -> None:
    assert topics((), "Hops", parent="Beer")[0].parent_slug is None


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


def test_of_many_sources_the_first_and_the_newest_stay() -> None:
    known: tuple[TopicProfile, ...] = ()
    for number in range(MANY):
        known = topics(known, "Beer", message_ids=(f"m{number}",))
    assert [source.message_id for source in known[0].sources] == [
        "m0",
        *(f"m{number}" for number in range(MANY - MOST_SOURCES + 1, MANY)),
    ]


def test_a_long_label_is_cut() -> None:
    assert len(topics((), "beer " * 100)[0].label) == MOST_CHARACTERS


def test_only_what_a_bundle_shows_makes_it_dirty() -> None:
    clean = topics((), "Beer")[0].model_copy(update={"is_dirty": False})
    assert not topics((clean,), "Beer", message_ids=("m1",))[0].is_dirty
    assert topics((clean,), "Beer", domain="creative")[0].is_dirty


def test_what_the_user_said_of_a_topic_stays() -> None:
    changes = {"made_by": BY_USER, "domain": "business", "label": "Ale"}
    own = topics((), "Beer")[0].model_copy(update=changes)
    [topic] = topics((own,), "Beer", domain="creative", proficiency="expert", message_ids=("m1",))
    assert (topic.label, topic.domain, topic.proficiency_signals) == ("Ale", "business", ())
    assert [source.message_id for source in topic.sources] == ["m0", "m1"]


# Entities


@pytest.mark.parametrize("name", ["Sarah", "SARAH", " sarah "])
def test_a_name_in_another_form_is_the_same_entity(name: str) -> None:
    assert len(entities(entities((), "Sarah"), name)) == 1


def test_a_first_name_is_the_person_who_has_it() -> None:
    [sarah] = entities(entities((), "Sarah Chen"), "Sarah")
    assert (sarah.name, sarah.aliases) == ("Sarah Chen", ("Sarah",))


def test_a_full_name_completes_a_first_name() -> None:
    [sarah] = entities(entities((), "Sarah"), "Sarah Chen")
    assert (sarah.id, sarah.name, sarah.aliases) == ("entity/person/sarah", "Sarah Chen", ("Sarah",))


def test_a_first_name_that_two_have_is_nobodys() -> None:
    known = entities((), "Sarah Chen", "Sarah Lee")
    assert len(known) == 2
    assert len(entities(known, "Sarah")) == 3


def test_the_same_name_of_another_type_is_another_one() -> None:
    known = entities((), "Mercury", type="tool")
    assert [entity.type for entity in entities(known, "Mercury", type="person")] == ["tool", "person"]


def test_a_concept_becomes_what_it_turns_out_to_be() -> None:
    [entity] = entities(entities((), "Acme", type="concept"), "Acme", type="organization")
    assert (entity.type, entity.id) == ("organization", "entity/concept/acme")


def test_an_organisation_is_not_known_by_its_first_word() -> None:
    assert len(entities(entities((), "Acme Corporation", type="organization"), "Acme", type="organization")) == 2


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


def test_a_newer_value_replaces_the_old_one() -> None:
    first = entities((), "Sarah", attributes=(("age", "7"), ("eyes", "brown")), relationship="friend")
    [sarah] = entities(first, "Sarah", attributes=(("age", "8"),), relationship="wife")
    assert (sarah.attributes, sarah.relationship) == ((("age", "8"), ("eyes", "brown")), "wife")


def test_what_is_not_said_again_stays() -> None:
    first = entities((), "Sarah", relationship="friend", facts=("Plays the cello",))
    [sarah] = entities(first, "Sarah", message_ids=("m1",))
    assert (sarah.relationship, sarah.facts) == ("friend", ("Plays the cello",))


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


def test_one_that_the_user_renamed_is_not_replaced() -> None:
    own = entities((), "Sarah")[0].model_copy(update={"made_by": BY_USER, "name": "Sally"})
    [sally] = entities((own,), "Sarah", message_ids=("m1",))
    assert (sally.id, sally.name, sally.aliases) == ("entity/person/sarah", "Sally", ("Sarah",))


@pytest.mark.parametrize("name", ["\ud800", "e\u0301cole", "李", "🚀", "x" * 500, "</context>"])
def test_any_name_is_one_entity(name: str) -> None:
    assert len(entities(entities((), name), name)) == 1
