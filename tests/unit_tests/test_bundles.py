"""Holds the texts that are compiled of what is known to what they show, what they cost and when."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget.knowledge import (
    BY_USER,
    ContextBundle,
    EntityProfile,
    Fact,
    Knowledge,
    TopicProfile,
)
from langchain_ctxbudget.knowledge.bundles import CAPS, Compiler
from langchain_ctxbudget.knowledge.known import note_use, take_uses
from langchain_ctxbudget.knowledge.merging import compiled
from langchain_ctxbudget.settings import EntityContext
from langchain_ctxbudget.tokens import estimate_tokens

NOW = datetime(2026, 1, 10, tzinfo=UTC)
LATER = datetime(2026, 1, 10, 1, tzinfo=UTC)
DAY = timedelta(days=1)
COMPILER = Compiler(now=NOW)


def topic(label="Home brewing", **rest):
    return TopicProfile(id=f"topic/{label}", slug=label, label=label, **rest)


def entity(name="Sarah", **rest):
    fields = {"type": "person"} | rest
    return EntityProfile(id=f"entity/person/{name}", name=name, **fields)


def fact(text, category="project", key=None, **rest):
    fields = {"created_at": NOW, "last_seen": NOW} | rest
    return Fact(id=f"fact/{key or text}", text=text, category=category, **fields)


def lines(bundle):
    return bundle.compiled_prompt.split("\n")


def test_a_topic_says_what_it_is_what_is_known_and_when_it_came_up():
    profile = topic(
        compiled_context="Owns a 20 l kettle.",
        proficiency_level="expert",
        total_conversations=3,
        first_engaged_at=NOW - 8 * DAY,
        last_engaged_at=NOW - DAY,
    )

    bundle = COMPILER.topic(profile, [fact("Brews IPA")], topic("Brewing"))

    assert lines(bundle) == [
        "Home brewing (part of Brewing)",
        "Owns a 20 l kettle.",
        "The user's level: expert",
        "Came up in 3 conversations, 2026-01-02 to 2026-01-09",
        "Brews IPA",
    ]


def test_an_entity_is_in_the_order_of_the_seed():
    """Of its attributes five are shown at most, and the newest value of each."""
    profile = entity(
        "Sa\nrah",
        compiled_context="Answers on Mondays.",
        relationship="cofounder",
        attributes=(
            ("hobby", "chess"),
            ("a", "x"),
            ("b", "x"),
            ("c", "x"),
            ("d", "x"),
            ("title", "CTO"),
            ("title", "CEO"),
        ),
        relations=(("works at", "Acme"), ("married to", "Tom")),
        facts=("Has a cat", "Has a cat", "Moved to Lisbon"),
    )

    bundle = COMPILER.entity(profile, [fact("Sings"), fact("Has a cat")])

    assert lines(bundle) == [
        "Sa rah (person)",
        "Answers on Mondays.",
        "cofounder",
        "title: CEO",
        "hobby: chess",
        "a: x",
        "b: x",
        "c: x",
        "Related: works at Acme, married to Tom",
        "Moved to Lisbon",
        "Has a cat",
        "Sings",
    ]


@pytest.mark.parametrize(
    "bundle",
    [
        pytest.param(
            COMPILER.topic(
                topic(total_conversations=3, first_engaged_at=NOW, proficiency_level="expert"),
                (),
                topic("Brewing"),
            ),
            id="topic",
        ),
        pytest.param(COMPILER.entity(entity(total_messages=9)), id="entity"),
    ],
)
def test_where_only_a_name_and_counts_are_known_there_is_no_text(bundle):
    assert bundle.compiled_prompt == ""
    assert bundle.token_count == 0


@pytest.mark.parametrize(
    ("bundle_id", "expected"),
    [
        pytest.param("identity_core", ["Lives in Lisbon", "Is a nurse"], id="who the user is"),
        pytest.param("global_prefs", ["Prefers tea"], id="what they prefer"),
    ],
)
def test_the_other_bundles_say_who_the_user_is_and_what_they_prefer(bundle_id, expected):
    facts = [
        fact("Lives in Lisbon", "identity"),
        fact("Prefers tea", "preference"),
        fact("Is a nurse", "identity"),
    ]

    bundle = COMPILER.of_facts(bundle_id, facts)

    assert bundle.id == bundle_id
    assert lines(bundle) == expected


TEXT = st.text(max_size=400)
PAIR = st.tuples(TEXT, TEXT)
FACTS = st.lists(
    st.builds(fact, TEXT, st.sampled_from(["identity", "preference", "project"])), max_size=4
)
TOPICS = st.builds(
    TopicProfile,
    id=TEXT,
    slug=TEXT,
    label=TEXT,
    total_conversations=st.integers(0, 9),
)
ENTITIES = st.builds(
    EntityProfile,
    id=TEXT,
    name=TEXT,
    relationship=st.none() | TEXT,
    facts=st.lists(TEXT, max_size=3).map(tuple),
    attributes=st.lists(PAIR, max_size=6).map(tuple),
    relations=st.lists(PAIR, max_size=2).map(tuple),
)


@pytest.mark.slow
@settings(deadline=None, max_examples=50)
@given(st.lists(TOPICS, max_size=3), st.lists(ENTITIES, max_size=3), FACTS)
def test_what_was_learned_never_costs_more_than_its_cap(topics, entities, facts):
    bundles = [COMPILER.of_facts("identity_core", facts)]
    bundles += [COMPILER.topic(profile, facts, topics[0]) for profile in topics]
    bundles += [COMPILER.entity(profile, facts) for profile in entities]

    for bundle in bundles:
        text = bundle.compiled_prompt
        assert bundle.token_count <= CAPS[bundle.bundle_type]
        if text:
            assert bundle.token_count == estimate_tokens(text)
        else:
            assert bundle.token_count == 0


LONG = "It is known, and it is blue. " * 60


@pytest.mark.parametrize(
    "bundle",
    [
        pytest.param(COMPILER.topic(topic(compiled_context=LONG)), id="topic"),
        pytest.param(COMPILER.entity(entity(compiled_context=LONG)), id="entity"),
        pytest.param(
            COMPILER.entity(entity(relationship=LONG, made_by=BY_USER)), id="a detail by hand"
        ),
    ],
)
def test_what_is_written_by_hand_stands_whole(bundle):
    assert LONG.strip() in bundle.compiled_prompt


def test_what_was_learned_stands_behind_a_long_text_by_hand():
    bundle = COMPILER.topic(topic(compiled_context=LONG), [fact("Brews IPA")])

    assert lines(bundle)[2:] == ["Brews IPA"]


USED = COMPILER.topic(topic(), [fact("Old")], None).model_copy(
    update={"miss_count": 3, "hit_count": 3, "last_used_at": NOW}
)


def test_a_bundle_that_shows_the_same_is_not_made_again():
    compiler = Compiler(now=LATER, old={USED.id: USED})

    assert compiler.topic(topic(), [fact("Old")], None) is USED


def test_another_text_is_another_version_with_the_old_counts():
    compiler = Compiler(now=NOW, old={USED.id: USED})

    bundle = compiler.topic(topic(), [fact("New")], None)

    assert bundle.version == 2
    assert bundle.miss_count == 3
    assert bundle.hit_count == 3
    assert bundle.last_used_at == NOW


def knowledge_of(uses=None, now=NOW, **parts):
    """What is known, with its texts compiled."""
    return compiled(Knowledge(**parts), uses or {}, now, EntityContext())


SARAH_GROWS = fact("Sarah grows hops", key="f")
SARAH_SELLS = fact("Sarah sells hops", key="f")
LIKES_MALT = fact("Likes malt")
TOM_SELLS = fact("Tom sells malt", created_at=LATER)
TOPIC_PROFILES = (topic("beer"), topic("hops", parent_slug="beer"), topic("malt"))
RENAMED_BEER = topic("beer").model_copy(update={"label": "Brewing"})
BEFORE = knowledge_of(
    topics=TOPIC_PROFILES,
    entities=(entity(), entity("Tom")),
    facts=(SARAH_GROWS, LIKES_MALT),
)


@pytest.mark.parametrize(
    ("topics", "facts", "changed"),
    [
        pytest.param(TOPIC_PROFILES, (SARAH_GROWS, LIKES_MALT), set(), id="nothing is new"),
        pytest.param(
            TOPIC_PROFILES,
            (SARAH_GROWS, LIKES_MALT, TOM_SELLS),
            {"topic/malt", "entity/person/Tom"},
            id="a new fact",
        ),
        pytest.param(
            TOPIC_PROFILES,
            (SARAH_SELLS, LIKES_MALT),
            {"topic/hops", "entity/person/Sarah"},
            id="a changed fact",
        ),
        pytest.param(
            TOPIC_PROFILES,
            (LIKES_MALT,),
            {"topic/hops", "entity/person/Sarah"},
            id="a removed fact",
        ),
        pytest.param(
            (RENAMED_BEER, *TOPIC_PROFILES[1:]),
            (SARAH_GROWS, LIKES_MALT),
            {"topic/hops"},
            id="another name of what a topic is a part of",
        ),
    ],
)
def test_exactly_the_bundles_that_show_something_else_are_made_again(topics, facts, changed):
    after = knowledge_of(
        topics=topics, entities=BEFORE.entities, facts=facts, bundles=BEFORE.bundles, now=LATER
    )

    made_again = {
        bundle_id
        for bundle_id, bundle in after.bundles.items()
        if "/" in bundle_id and bundle is not BEFORE.bundles.get(bundle_id)
    }
    assert made_again == changed


def test_what_is_gone_has_no_bundle():
    other = ContextBundle(
        id="topic/x", bundle_type="topic", compiled_prompt="", token_count=0, compiled_at=NOW
    )

    after = knowledge_of(topics=(topic("hops"),), facts=(SARAH_GROWS,), bundles={"topic/x": other})

    assert "topic/x" not in after.bundles
    assert "topic/hops" in after.bundles


def test_where_nothing_is_known_there_are_no_bundles():
    assert knowledge_of(bundles=BEFORE.bundles).bundles == {}


def test_uses_of_a_bundle_are_counted():
    store = InMemoryStore()
    before = knowledge_of(topics=(topic("hops"),), facts=(SARAH_GROWS,))
    note_use(store, "ada", {"topic/hops": True})
    note_use(store, "ada", {"topic/hops": False, "x": False})

    uses = take_uses(store, "ada")
    after = knowledge_of(uses, topics=before.topics, bundles=before.bundles)

    hops = after.bundles["topic/hops"]
    assert hops.hit_count == 1
    assert hops.miss_count == 1
    assert hops.last_used_at == NOW
