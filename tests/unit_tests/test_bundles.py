"""The texts that are compiled of what is known.

What stands in them, what they may cost, when they are made again.
"""

from datetime import UTC, datetime, timedelta

from hypothesis import given, settings
from hypothesis import strategies as st
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget.knowledge import (
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
DAY = timedelta(days=1)
LATER = NOW + timedelta(hours=1)


COMPILER = Compiler(now=NOW)


def topic(label="Home brewing", **rest):
    return TopicProfile(id=f"topic/{label}", slug=label, label=label, **rest)


def entity(name="Sarah", **rest):
    return EntityProfile(id=f"entity/person/{name}", name=name, **{"type": "person", **rest})


def fact(text, category="project", key=None, **rest):
    times = {"created_at": NOW, "last_seen": NOW, **rest}
    return Fact(id=f"fact/{key or text}", text=text, category=category, **times)


def of_topic(profile, facts=(), parent=None, *, before=None, now=NOW):
    compiler = Compiler(now=now, old={before.id: before} if before else {})
    return compiler.topic(profile, facts, parent)


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
    bundle = of_topic(profile, [fact("Brews IPA")], topic("Brewing"))
    assert lines(bundle) == [
        "Home brewing (part of Brewing)",
        "Owns a 20 l kettle.",
        "The user's level: expert",
        "Came up in 3 conversations, 2026-01-02 to 2026-01-09",
        "Brews IPA",
    ]


def test_an_entity_is_in_the_order_of_the_seed():
    profile = entity(
        "Sa\nrah",
        compiled_context="Answers on Mondays.",
        relationship="cofounder",
        attributes=(
            ("hobby", "chess"),
            *((n, "x") for n in "abcd"),
            *(("title", "CTO"), ("title", "CEO")),
        ),
        relations=(("works at", "Acme"), ("married to", "Tom")),
        facts=("Has a cat", "Has a cat", "Moved to Lisbon"),
    )
    assert lines(COMPILER.entity(profile, [fact("Sings"), fact("Has a cat")])) == [
        "Sa rah (person)",
        "Answers on Mondays.",
        "cofounder",
        *(
            "title: CEO",
            "hobby: chess",
            "a: x",
            "b: x",
            "c: x",
        ),  # at most five, the newest value of each
        "Related: works at Acme, married to Tom",
        "Moved to Lisbon",
        "Has a cat",
        "Sings",
    ]


def test_of_what_no_more_is_known_than_its_name_and_its_counts_there_is_no_text():
    counted = topic(total_conversations=3, first_engaged_at=NOW, proficiency_level="expert")
    for bundle in (
        of_topic(counted, (), topic("Brewing")),
        COMPILER.entity(entity(total_messages=9)),
    ):
        assert (bundle.compiled_prompt, bundle.token_count) == ("", 0)


def test_the_other_bundles_say_who_the_user_is_and_what_they_prefer():
    facts = [
        fact("Lives in Lisbon", "identity"),
        fact("Prefers tea", "preference"),
        fact("Is a nurse", "identity"),
    ]
    who = COMPILER.of_facts("identity_core", facts)
    assert (who.id, lines(who)) == ("identity_core", ["Lives in Lisbon", "Is a nurse"])
    likes = COMPILER.of_facts("global_prefs", facts)
    assert (likes.id, lines(likes)) == ("global_prefs", ["Prefers tea"])


TEXT = st.text(max_size=400)
FACTS = st.lists(
    st.builds(fact, TEXT, st.sampled_from(["identity", "preference", "project"])), max_size=4
)
TOPICS = st.builds(
    TopicProfile,
    id=TEXT, slug=TEXT, label=TEXT, compiled_context=st.none() | TEXT, total_conversations=st.integers(0, 9),
)  # fmt: skip
ENTITIES = st.builds(
    EntityProfile,
    id=TEXT, name=TEXT, compiled_context=st.none() | TEXT, relationship=st.none() | TEXT,
    facts=st.lists(TEXT, max_size=3).map(tuple),
    attributes=st.lists(st.tuples(TEXT, TEXT), max_size=6).map(tuple),
    relations=st.lists(st.tuples(TEXT, TEXT), max_size=2).map(tuple),
)  # fmt: skip


@settings(deadline=None, max_examples=50)
@given(st.lists(TOPICS, max_size=3), st.lists(ENTITIES, max_size=3), FACTS)
def test_no_bundle_ever_costs_more_than_its_cap(topics, entities, facts):
    made = [COMPILER.topic(one, facts, topics[0]) for one in topics]
    made += [COMPILER.entity(one, facts) for one in entities]
    made.append(COMPILER.of_facts("identity_core", facts))
    for bundle in made:
        text = bundle.compiled_prompt
        assert (
            bundle.token_count == (estimate_tokens(text) if text else 0) <= CAPS[bundle.bundle_type]
        )


def test_a_bundle_is_made_again_where_it_shows_something_else_and_another_text_is_another_version() -> (
    None
):
    first = of_topic(topic(), [fact("Old")]).model_copy(
        update={"miss_count": 3, "hit_count": 3, "last_used_at": NOW}
    )
    assert of_topic(topic(), [fact("Old")], before=first, now=LATER) is first
    new = of_topic(topic(), [fact("New")], before=first)
    assert (new.version, new.miss_count, new.hit_count, new.last_used_at) == (2, 3, 3, NOW)


STORE = InMemoryStore()


def made(topics=(), entities=(), facts=(), old=None, now=NOW):
    state = Knowledge(
        topics=tuple(topics), entities=tuple(entities), facts=tuple(facts), bundles=old or {}
    )
    return compiled(state, take_uses(STORE, "ada"), now, EntityContext())


def again(before, facts, *, topics=None):
    """The ids of the texts of topics and entities that are compiled again."""
    after = made(
        before.topics if topics is None else topics, before.entities, facts, before.bundles, LATER
    ).bundles
    return {
        key for key, text in after.items() if "/" in key and text is not before.bundles.get(key)
    }


def test_of_all_bundles_exactly_those_are_made_again_that_show_something_else():
    grows = fact("Sarah grows hops", key="f")
    malt = fact("Likes malt")
    new = fact("Tom sells malt", created_at=LATER)
    parts = [topic("beer"), topic("hops", parent_slug="beer"), topic("malt")]
    before = made(parts, [entity(), entity("Tom")], [grows, malt])
    both = {"topic/hops", "entity/person/Sarah"}
    assert again(before, [grows, malt]) == set()
    assert again(before, [grows, malt, new]) == {"topic/malt", "entity/person/Tom"}
    assert again(before, [fact("Sarah sells hops", key="f"), malt]) == both
    assert again(before, [malt]) == both
    renamed = topic("beer").model_copy(update={"label": "Brewing"})
    assert again(before, [grows, malt], topics=(renamed, *before.topics[1:])) == {
        "topic/hops"
    }  # it is a part of it


def test_what_is_gone_has_no_bundle_and_uses_are_counted():
    other = ContextBundle(
        id="topic/x", bundle_type="topic", compiled_prompt="", token_count=0, compiled_at=NOW
    )
    after = made([topic("hops")], [entity()], [fact("Sarah grows hops")], {"topic/x": other})
    assert "topic/x" not in after.bundles
    assert made(old=after.bundles).bundles == {}
    note_use(STORE, "ada", {"topic/hops": True})
    note_use(STORE, "ada", {"topic/hops": False, "x": False})
    hops = made(after.topics, old=after.bundles).bundles["topic/hops"]
    assert (hops.hit_count, hops.miss_count, hops.last_used_at) == (1, 1, NOW)
