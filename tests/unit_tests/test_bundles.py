"""The texts that are compiled of what is known: what stands in them, what they may cost, when they are made again."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from langchain_ctxbudget.core.tokens import TiktokenCounter
from langchain_ctxbudget.knowledge.bundle_lines import entity_shown, topic_shown
from langchain_ctxbudget.knowledge.bundles import (
    COMPRESSED_TOKENS,
    LIFETIME,
    TOPIC_TOKENS,
    compile_composite,
    compile_conversation,
    compile_entity,
    compile_identity,
    compile_preferences,
    compile_topic,
    equal_shares,
    is_fresh,
    needs,
    shares,
    used,
)
from langchain_ctxbudget.knowledge.records import (
    ContextBundle,
    EntityProfile,
    Fact,
    Highlight,
    Relation,
    Source,
    TopicProfile,
)

NOW = datetime(2026, 1, 10, tzinfo=UTC)
SOURCE = Source(conversation_id="c", message_id="m")
DAY = timedelta(days=1)


def words(text):
    return len(text.split())


def topic(label="Home brewing", **rest):
    return TopicProfile(id=f"topic/{label}", slug=label, label=label, **rest)


def entity(name="Sarah", **rest):
    return EntityProfile(id=f"entity/person/{name}", name=name, **{"type": "person", **rest})


def fact(text, category="project", **rest):
    return Fact(id=f"fact/{text}", text=text, category=category, created_at=NOW, last_seen=NOW, **rest)


def of_topic(profile, facts=(), parent=None, children=(), *, count=words, cap=1_000, before=None):
    return compile_topic(profile, facts, parent, children, now=NOW, count=count, cap_tokens=cap, before=before)


def of_entity(profile, facts=(), *, count=words, cap=1_000, before=None):
    return compile_entity(profile, facts, now=NOW, count=count, cap_tokens=cap, before=before)


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
    bundle = of_topic(
        profile, [fact("Brews IPA"), fact("Sells at fairs")], topic("Brewing"), [topic("Hops"), topic("Malt")]
    )
    assert lines(bundle) == [
        "Home brewing (part of Brewing)",
        "Owns a 20 l kettle.",
        "The user's level: expert",
        "Came up in 3 conversations, 2026-01-02 to 2026-01-09",
        "Brews IPA",
        "Sells at fairs",
        "Includes: Hops, Malt",
    ]


@pytest.mark.parametrize(
    ("conversations", "first", "last", "line"),
    [
        (0, None, None, None),
        (1, None, None, "Came up in 1 conversation"),
        (1, NOW, NOW, "Came up in 1 conversation, 2026-01-10"),
        (2, NOW, NOW + DAY, "Came up in 2 conversations, 2026-01-10 to 2026-01-11"),
    ],
)
def test_a_topic_says_how_often_it_came_up(conversations, first, last, line):
    profile = topic(total_conversations=conversations, first_engaged_at=first, last_engaged_at=last)
    assert lines(of_topic(profile, [fact("Brews IPA")]))[1:] == [*([line] if line else []), "Brews IPA"]


def test_of_what_no_more_is_known_than_its_name_and_its_counts_there_is_no_text():
    counted = topic(total_conversations=3, first_engaged_at=NOW, proficiency_level="expert")
    for bundle in (of_topic(counted, (), topic("Brewing")), of_entity(entity(mention_count=9))):
        assert (bundle.compiled_prompt, bundle.compressed_prompt, bundle.token_count) == ("", "", 0)


def test_a_topic_shows_what_was_said_about_it_the_newest_first():
    said = [
        Highlight(text=text, date=date, source=SOURCE)
        for text, date in (("I bottled\n it.", None), ("I broke it.", "2026-01-09"))
    ]
    assert lines(of_topic(topic(highlights=said), [fact("Brews IPA")], None, [topic("Hops")])) == [
        "Home brewing",
        "Brews IPA",
        "2026-01-09: I broke it.",
        "I bottled it.",
        "Includes: Hops",
    ]


def test_a_usual_topic_costs_40_to_120_tokens():
    profile = topic(
        compiled_context="Brews 20 l of pale ale twice a month in the garage, with an induction plate and two kegs.",
        total_conversations=7,
        first_engaged_at=NOW - 90 * DAY,
        last_engaged_at=NOW,
    )
    facts = [
        fact("Wants to enter a competition in May"),
        fact("Prefers whole-leaf hops"),
        fact("Ferments at 18 degrees"),
    ]
    bundle = of_topic(profile, facts, topic("Hobbies"), count=TiktokenCounter().count_text, cap=TOPIC_TOKENS)
    assert 40 <= bundle.token_count <= 120
    assert "Ferments at 18 degrees" in lines(bundle)


def test_an_entity_is_in_the_order_of_the_seed():
    profile = entity(
        compiled_context="Answers on Mondays.",
        relationship="cofounder",
        attributes=(("hobby", "chess"), ("location", "Lisbon"), ("title", "CTO"), ("email", "s@x.y")),
        relations=(Relation(relation="works at", target="Acme"), Relation(relation="married to", target="Tom")),
        facts=("Has a cat", "Moved to Lisbon"),
    )
    assert lines(of_entity(profile, [fact("Meets Sarah on Fridays")])) == [
        "Sarah (person)",
        "Answers on Mondays.",
        "cofounder",
        "email: s@x.y",
        "title: CTO",
        "location: Lisbon",
        "hobby: chess",
        "Related: works at Acme, married to Tom",
        "Moved to Lisbon",
        "Has a cat",
        "Meets Sarah on Fridays",
    ]


def test_at_most_five_attributes_are_shown():
    attributes = tuple((name, "x") for name in ("a", "b", "c", "phone", "d", "Department", "e"))
    assert lines(of_entity(entity(attributes=attributes)))[1:] == ["phone: x", "Department: x", "a: x", "b: x", "c: x"]


def test_the_newest_value_of_an_attribute_is_shown():
    assert lines(of_entity(entity(attributes=(("title", "CTO"), ("title", "CEO")))))[1:] == ["title: CEO"]


def test_every_field_stands_on_one_line():
    profile = entity("Sa\nrah", relationship="co\nfounder", attributes=(("ti\ntle", "C\nTO"),), facts=("a\n- b",))
    assert lines(of_entity(profile)) == ["Sa rah (person)", "co founder", "ti tle: C TO", "a - b"]


def test_what_is_said_twice_stands_there_once():
    assert lines(of_entity(entity(facts=("Has a cat", "Has a cat")), [fact("Has a cat")]))[1:] == ["Has a cat"]


def test_a_line_that_does_not_fit_is_skipped_and_a_later_one_taken():
    bundle = of_topic(topic(), [fact("one two three four five six seven"), fact("eight nine ten")], cap=6)
    assert (lines(bundle), bundle.token_count) == (["Home brewing", "eight nine ten"], 5)


def test_a_context_that_does_not_fit_is_cut_after_a_sentence():
    bundle = of_topic(topic(compiled_context="One two. Three four. Five six."), cap=7)
    assert lines(bundle) == ["Home brewing", "One two. Three four. …"]


def test_a_sentence_that_does_not_fit_is_cut_after_a_word():
    bundle = of_topic(topic(compiled_context="one two three four five six"), cap=6)
    assert lines(bundle) == ["Home brewing", "one two three …"]


def test_a_text_without_blanks_is_cut_between_characters():
    assert of_topic(topic("x" * 50, compiled_context="x"), count=len, cap=10).compiled_prompt == "x" * 8 + " …"


def test_nothing_fits_into_nothing():
    bundle = of_topic(topic(compiled_context="Owns a kettle."), cap=0)
    assert (bundle.compiled_prompt, bundle.compressed_prompt, bundle.token_count) == ("", "", 0)


def test_the_short_form_is_one_line_of_what_matters_most():
    profile = topic(compiled_context="Owns a kettle.", total_conversations=1)
    bundle = of_topic(profile, [fact("Brews IPA.")])
    assert bundle.compressed_prompt == "Home brewing: Owns a kettle; Came up in 1 conversation; Brews IPA"


def test_a_bundle_is_made_of_what_it_shows():
    bundle = of_topic(topic(), [fact("Brews IPA"), fact("one two three four five six")], topic("Brewing"), cap=8)
    assert bundle.composition == ("topic/Home brewing", "topic/Brewing", "fact/Brews IPA")


def test_a_bundle_says_whose_it_is():
    first, second = of_topic(topic(importance_score=0.9)), of_entity(entity(importance_score=0.8))
    assert (first.id, first.bundle_type, first.topic_profile_id) == (
        "topic/Home brewing",
        "topic",
        "topic/Home brewing",
    )
    assert (second.id, second.bundle_type, second.entity_profile_id) == (
        ("entity/person/Sarah", "entity", "entity/person/Sarah")
    )
    assert (first.priority, second.priority) == (0.9, 0.8)


@pytest.mark.parametrize(
    "gone",
    [
        {"ended": "superseded"},
        {"valid_until": NOW},
        {"valid_from": NOW + DAY},
    ],
)
def test_a_fact_that_does_not_hold_now_is_left_out(gone):
    facts = [fact("Brews IPA", **gone), fact("Sells at fairs")]
    assert lines(of_topic(topic(), facts)) == ["Home brewing", "Sells at fairs"]


def test_a_bundle_expires_when_its_time_is_over():
    assert of_topic(topic()).expires_at == NOW + LIFETIME


@pytest.mark.parametrize("turn", [{"valid_until": NOW + DAY}, {"valid_from": NOW + DAY}])
def test_a_bundle_expires_when_a_fact_begins_or_ends_to_hold(turn):
    assert of_topic(topic(), [fact("Brews IPA", **turn)]).expires_at == NOW + DAY


def test_a_bundle_with_another_text_is_another_version():
    first = of_topic(topic())
    assert [of_topic(topic(), before=first).version, of_topic(topic(), [fact("New")], before=first).version] == [1, 2]


def test_a_new_version_remembers_its_use():
    first = used(of_topic(topic()), 2, 1, NOW)
    second = of_topic(topic(), [fact("New")], before=first)
    assert (second.use_count, second.hit_count, second.miss_count, second.last_used_at) == (3, 2, 1, NOW)


def test_identity_is_the_facts_about_who_the_user_is():
    facts = [fact("Lives in Lisbon", "identity"), fact("Prefers tea", "preference"), fact("Is a nurse", "identity")]
    bundle = compile_identity(facts, now=NOW, count=words, cap_tokens=50)
    assert (bundle.id, bundle.bundle_type, lines(bundle)) == (
        "identity_core",
        "identity_core",
        ["Lives in Lisbon", "Is a nurse"],
    )
    assert bundle.compressed_prompt == "Lives in Lisbon; Is a nurse"


def test_preferences_are_the_facts_about_what_the_user_prefers():
    facts = [fact("Lives in Lisbon", "identity"), fact("Prefers tea", "preference")]
    bundle = compile_preferences(facts, now=NOW, count=words, cap_tokens=50, persona_id="coach")
    assert (bundle.id, bundle.persona_id, lines(bundle)) == ("global_prefs/coach", "coach", ["Prefers tea"])


def test_of_no_facts_an_empty_bundle_is_made_that_is_not_made_again():
    bundle = compile_identity((), now=NOW, count=words, cap_tokens=50)
    assert (bundle.compiled_prompt, bundle.token_count, needs(bundle, NOW)) == ("", 0, False)


def test_a_conversation_says_what_it_is_about():
    bundle = compile_conversation(
        [topic("Hops"), topic("Malt")], [entity(relationship="cofounder"), entity("Tom")], "c1",
        now=NOW, count=words, cap_tokens=50,
    )  # fmt: skip
    assert lines(bundle) == ["Topics: Hops, Malt", "People and things: Sarah (cofounder), Tom (person)"]
    assert (bundle.id, bundle.conversation_id) == ("conversation/c1", "c1")
    assert bundle.composition == ("topic/Hops", "topic/Malt", "entity/person/Sarah", "entity/person/Tom")


def composite(*parts, cap):
    return compile_composite(parts, now=NOW, count=words, cap_tokens=cap)


def test_a_composite_is_its_parts():
    parts = [of_topic(topic(), [fact("Brews IPA")]), of_topic(topic("Hops")), of_entity(entity(relationship="sister"))]
    bundle = composite(*parts, cap=50)
    assert lines(bundle) == ["Home brewing", "Brews IPA", "Sarah (person)", "sister"]
    assert bundle.composition == ("topic/Home brewing", "entity/person/Sarah")


def test_a_part_that_does_not_fit_into_a_composite_stands_there_in_short():
    long = of_topic(topic(), [fact("one two three four five six")], cap=20).model_copy(
        update={"compressed_prompt": "Home brewing"}
    )
    sarah = of_entity(entity(relationship="sister"))
    assert lines(composite(long, sarah, cap=6)) == ["Home brewing", "Sarah (person)", "sister"]


def test_a_composite_expires_with_its_first_part():
    soon = of_topic(topic(), [fact("Brews IPA", valid_until=NOW + DAY)])
    assert composite(of_entity(entity()), soon, cap=50).expires_at == NOW + DAY


@pytest.mark.parametrize(
    ("change", "fresh"),
    [
        ({}, True),
        ({"is_dirty": True}, False),
        ({"expires_at": NOW}, False),
        ({"expires_at": NOW + DAY}, True),
        ({"expires_at": None}, True),
    ],
)
def test_only_what_is_dirty_or_expired_is_compiled_again(change, fresh):
    bundle = of_topic(topic()).model_copy(update=change)
    assert (is_fresh(bundle, NOW), needs(bundle, NOW)) == (fresh, not fresh)


def test_what_is_not_there_is_compiled():
    assert needs(None, NOW)


def test_use_is_counted():
    bundle = used(used(of_topic(topic()), 1, 0, NOW - DAY), 2, 3, NOW)
    assert (bundle.use_count, bundle.hit_count, bundle.miss_count, bundle.last_used_at) == (6, 3, 3, NOW)


@pytest.mark.parametrize(
    ("budget", "number", "expected"),
    [
        (100, 0, ()),
        (100, 1, (100,)),
        (100, 2, (70, 30)),
        (100, 7, (70, 30)),
        (101, 2, (70, 31)),
        (0, 2, (0, 0)),
        (1_130, 2, (791, 339)),
    ],
)
def test_the_first_topic_gets_70_percent(budget, number, expected):
    assert shares(budget, number) == expected


@pytest.mark.parametrize(
    ("budget", "number", "expected"),
    [
        (100, 0, ()),
        (100, 1, (100,)),
        (100, 2, (50, 50)),
        (100, 3, (33, 33, 33)),
        (100, 9, (33, 33, 33)),
        (2, 3, (0, 0, 0)),
    ],
)
def test_at_most_three_entities_share_equally(budget, number, expected):
    assert equal_shares(budget, number) == expected


TEXT = st.text(max_size=40)
FACTS = st.lists(st.builds(fact, TEXT, st.sampled_from(["identity", "preference", "project"])), max_size=4)
TOPICS = st.builds(
    TopicProfile,
    id=TEXT, slug=TEXT, label=TEXT, compiled_context=st.none() | TEXT, total_conversations=st.integers(0, 9),
    parent_slug=st.none() | TEXT, total_messages=st.integers(0, 9), aliases=st.lists(TEXT, max_size=2).map(tuple),
    importance_score=st.floats(0, 1), proficiency_level=st.sampled_from(["unknown", "expert"]),
)  # fmt: skip
ENTITIES = st.builds(
    EntityProfile,
    id=TEXT, name=TEXT, compiled_context=st.none() | TEXT, relationship=st.none() | TEXT,
    facts=st.lists(TEXT, max_size=3).map(tuple),
    attributes=st.lists(st.tuples(TEXT, TEXT), max_size=6).map(tuple), mention_count=st.integers(0, 9),
    relations=st.lists(st.builds(Relation, relation=TEXT, target=TEXT), max_size=2).map(tuple),
)  # fmt: skip
COUNTS = st.sampled_from([TiktokenCounter().count_text, len, words])


@settings(deadline=None)
@given(st.lists(TOPICS, max_size=3), st.lists(ENTITIES, max_size=3), FACTS, st.integers(-1, 60), COUNTS)
def test_no_bundle_ever_costs_more_than_its_cap(topics, entities, facts, cap, count):
    made: list[ContextBundle] = []
    made += [of_topic(one, facts, topics[0], topics, count=count, cap=cap) for one in topics]
    made += [of_entity(one, facts, count=count, cap=cap) for one in entities]
    made.append(compile_identity(facts, now=NOW, count=count, cap_tokens=cap))
    made.append(compile_preferences(facts, now=NOW, count=count, cap_tokens=cap))
    made.append(compile_conversation(topics, entities, "c", now=NOW, count=count, cap_tokens=cap))
    made.append(compile_composite(made, now=NOW, count=count, cap_tokens=cap))
    for bundle in made:
        assert bundle.token_count == (count(bundle.compiled_prompt) if bundle.compiled_prompt else 0) <= max(cap, 0)
        short = bundle.compressed_prompt
        assert bundle.compressed_token_count == (count(short) if short else 0) <= max(0, min(cap, COMPRESSED_TOKENS))
        assert "\n" not in short


@settings(deadline=None)
@given(TOPICS, TOPICS, FACTS)
def test_a_topic_whose_bundle_would_be_another_shows_something_else(first, second, facts):
    second = second.model_copy(update={"id": first.id, "label": first.label})
    if of_topic(first, facts).compiled_prompt != of_topic(second, facts).compiled_prompt:
        assert topic_shown(first) != topic_shown(second)


@settings(deadline=None)
@given(ENTITIES, st.integers(0, 9), st.floats(0, 1))
def test_what_a_bundle_does_not_show_of_an_entity_is_not_shown(profile, mentions, importance):
    other = profile.model_copy(update={"mention_count": mentions, "importance_score": importance})
    assert entity_shown(other) == entity_shown(profile)
