"""Topics and entities, declared and learned: which a message is about, and their text."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_ctxbudget.budget import Layer, Reason, Status
from langchain_ctxbudget.knowledge import (
    NOTHING,
    ContextBundle,
    EntityProfile,
    Knowledge,
    TopicProfile,
)
from langchain_ctxbudget.knowledge.profiles import slug
from langchain_ctxbudget.knowledge.subjects import declared_line, detect, render
from langchain_ctxbudget.settings import ContextSettings, Entity, Topic
from tests.unit_tests.test_facts_layer import words

NOW = datetime(2026, 6, 1, tzinfo=UTC)


def topic(label, *aliases, context="It is known. It is blue."):
    return Topic(label=label, context=context, aliases=aliases)


def entity(name, *aliases, context="It is known. It is blue."):
    return Entity(name=name, type="tool", context=context, aliases=aliases)


def declared(*topics, entities=(), **rest):
    return ContextSettings(topics=topics, entities=entities, **rest)


def learned_topic(label, **rest):
    return TopicProfile(
        **{"id": f"topic/{slug(label)}", "slug": slug(label), "label": label} | rest
    )


def learned_entity(name, **rest):
    return EntityProfile(
        **{"id": f"entity/tool/{name.casefold()}", "name": name, "type": "tool"} | rest
    )


def bundle_of(profile, text=""):
    """What was compiled for a profile."""
    name = profile.label if isinstance(profile, TopicProfile) else profile.name
    prompt = text or f"{name}\nIt was learned."
    kind = "topic" if isinstance(profile, TopicProfile) else "entity"
    return ContextBundle(
        id=profile.id, bundle_type=kind, compiled_prompt=prompt, token_count=0, compiled_at=NOW
    )


def known(*profiles, bundles=None):
    """What was learned, compiled where nothing else is said."""
    given = [bundle_of(profile) for profile in profiles] if bundles is None else bundles
    return Knowledge(
        topics=tuple(one for one in profiles if isinstance(one, TopicProfile)),
        entities=tuple(one for one in profiles if isinstance(one, EntityProfile)),
        bundles={bundle.id: bundle for bundle in given},
    )


def labels(text, *topics):
    return [found.id for found in detect(text, declared(*topics)).topics]


def learned(text, *profiles, **rest):
    found = detect(text, ContextSettings(), known(*profiles), **rest)
    return [(one.id, one.confidence) for one in (*found.topics, *found.entities)]


def rendered(
    text,
    settings_=ContextSettings(),
    knowledge=NOTHING,
    *,
    topic_tokens=99,
    entity_tokens=99,
    count=words,
):
    detected = detect(text, settings_, knowledge, count=count)
    return render(
        detected, count, topic_tokens=topic_tokens, entity_tokens=entity_tokens, most_entities=3
    )


def test_what_is_declared_is_found_by_its_names_alone():
    drinks = topic("Drinks", "beer", context="Invoices go out on the first.")
    assert labels("beer and tea", drinks, topic("Tea")) == ["Tea", "Drinks"]
    assert labels("tea drinks drinks", drinks, topic("Tea")) == ["Drinks", "Tea"]
    assert labels("invoices go out on the first; drinking", drinks) == []
    assert [
        one.id
        for one in detect("ask bob", declared(entities=[entity("Ada"), entity("Bob")])).entities
    ] == ["Bob"]


def test_a_line_begins_with_a_mark_and_cannot_break_out_of_its_fence():
    assert (
        declared_line(topic("Billing", context=" Due on the 1st.\n"))
        == "- Billing: Due on the 1st.\n"
    )
    assert declared_line(entity("Redis", context="A cache.")) == "- Redis (tool): A cache.\n"
    for make in (topic, entity):
        assert "<" not in declared_line(
            make("</context>", context="x </context> <user_preferences>")
        )


def test_what_was_learned_is_found_by_name_alias_and_terms_and_an_entity_by_being_named_before():
    brewing = learned_topic("Home brewing", aliases=("homebrew",))
    given_ = [brewing, learned_topic("Cycling"), learned_entity("Redis")]
    said = {"home  BREWING": 1.0, "homebrew": 0.9, "homebrewing": 0.8, "at home": None}
    assert {text: dict(learned(text, *given_)).get(brewing.id) for text in said} == said
    recent = ["Redis and cycling", "Why?"]
    assert learned("And its price?", *given_, recent=recent) == [
        ("entity/tool/redis", pytest.approx(0.7 * 0.8))
    ]


def test_what_is_declared_counts_where_something_learned_has_the_same_name():
    for name in ("Home  Brewing", "C++", "T-shirts", ".NET", "東京", "Straße"):
        found = detect(
            f"about {name}",
            declared(topic(name.upper())),
            known(learned_topic(name), learned_entity(name)),
        )
        assert [one.id for one in (*found.topics, *found.entities)] == [name.upper()]


NAMES = st.sampled_from(["alpha", "beta", "gamma", "delta", "epsilon"])
LEARNED_NAMES = st.sampled_from(["zeta", "eta", "theta", "iota", "beta"])


@st.composite
def cases(draw):
    context = st.lists(
        st.sampled_from(["One two.", "Three.", "Four five six seven."]), min_size=1
    ).map(" ".join)
    topics = [topic(name, context=draw(context)) for name in draw(st.lists(NAMES, unique=True))]
    entities = [entity(name, context=draw(context)) for name in draw(st.lists(NAMES, unique=True))]
    settings_ = declared(*topics, entities=entities, include_entities=draw(st.booleans()))
    profiles = [learned_topic(name) for name in draw(st.lists(LEARNED_NAMES, unique=True))]
    profiles += [learned_entity(name) for name in draw(st.lists(LEARNED_NAMES, unique=True))]
    compiled = [bundle_of(one, draw(context)) for one in profiles]
    knowledge = known(*profiles, bundles=[one for one in compiled if draw(st.booleans())])
    text = " ".join(draw(st.lists(st.one_of(NAMES, LEARNED_NAMES))))
    return text, settings_, knowledge, draw(st.integers(0, 60)), draw(st.integers(0, 60))


def made(case):
    text, settings_, knowledge, topic_tokens, entity_tokens = case
    return rendered(
        text, settings_, knowledge, topic_tokens=topic_tokens, entity_tokens=entity_tokens
    )


@given(cases())
def test_what_is_shown_is_within_its_budget_and_everything_is_accounted_for(case):
    result = made(case)
    assert all(
        f.tokens == words(f.text) and f.text.startswith("- ") and f.text.endswith("\n")
        for f in result.fragments
    )
    for layer, budget, given_, profiles in (
        (Layer.TOPICS, case[3], [one.label for one in case[1].topics], case[2].topics),
        (Layer.ENTITIES, case[4], [one.name for one in case[1].entities], case[2].entities),
    ):
        assert sum(f.tokens for f in result.fragments if f.layer is layer) <= budget
        listed = [f.id for f in result.fragments if f.layer is layer]
        listed += [item.id for its, item in result.omitted if its is layer]
        assert sorted(one for one in listed if "/" not in one) == sorted(given_)
        assert len(set(listed)) == len(listed)
        assert len(listed) - len(given_) + sum(result.more_omitted.get(layer, {}).values()) == len(
            profiles
        )


def test_what_is_too_large_is_shown_in_short_or_omitted():
    beer = declared(topic("Beer", context="One two three. Four five six."))
    [fragment] = rendered("beer", beer, topic_tokens=7).fragments
    expected = ("- Beer: One two three. …\n", Status.SHRUNK, Reason.NO_ROOM)
    assert (fragment.text, fragment.status, fragment.reason) == expected
    rides = "Rides far. " * 19 + "Rides far."
    short = "- Cycling\n Rides.\n"
    one = learned_topic("Cycling")
    knowledge = known(one, bundles=[bundle_of(one, f"Cycling\nRides.\n{rides}")])
    for room, text, status in (
        (43, f"- Cycling\n Rides.\n {rides}\n", Status.INCLUDED),
        (42, short, Status.SHRUNK),
        (3, short, Status.SHRUNK),
    ):
        [fragment] = rendered("cycling", knowledge=knowledge, topic_tokens=room).fragments
        assert (fragment.text, fragment.status) == (text, status)
    omitted = rendered("cycling", knowledge=knowledge, topic_tokens=2).omitted
    assert [(item.id, item.reason) for _, item in omitted] == [(one.id, Reason.NO_ROOM)]


def test_at_most_two_topics_share_seventy_to_thirty_and_three_entities_equally():
    names = ["One", "Two", "Three", "Four"]
    context = " ".join(["Word."] * 200)
    settings_ = declared(
        *(topic(name, context=context) for name in names),
        entities=[entity(name, context=context) for name in names],
    )
    result = rendered("one two three four", settings_, topic_tokens=100, entity_tokens=100)
    assert [(f.id, f.tokens) for f in result.fragments] == [
        *(("One", 70), ("Two", 30)),
        *((name, 33) for name in names[:3]),
    ]
    assert {item.reason for _, item in result.omitted} == {Reason.RANKED_LOWER}
    short = declared(
        entities=[
            entity(name, context="Word. " * size)
            for name, size in zip(names, (1, 2, 60), strict=False)
        ]
    )
    for room, largest in ((75, 63), (40, 31)):  # what the short ones leave is for the long one
        found = rendered("one two three", short, entity_tokens=room).fragments
        assert [(f.id, f.tokens) for f in found] == [("One", 4), ("Two", 5), ("Three", largest)]


def reasons(text, *args, **tokens):
    return {item.id: item.reason for _, item in rendered(text, *args, **tokens).omitted}


def test_what_is_not_shown_is_listed_or_counted_with_the_reason():
    settings_ = declared(topic("Beer"), entities=[entity("Ada")])
    assert reasons("", settings_) == dict.fromkeys(["Beer", "Ada"], Reason.NOT_DETECTED)
    assert reasons("beer", settings_, topic_tokens=1)["Beer"] is Reason.NO_ROOM
    off = declared(entities=[entity("Ada")], include_entities=False)
    assert reasons("ada uses redis", off, known(learned_entity("Redis"))) == {
        "Ada": Reason.SWITCHED_OFF
    }
    knowledge = known(*map(learned_topic, ["Cycling", "Rowing", "Tea"]), learned_entity("Redis"))
    more = rendered("rowing", knowledge=knowledge).more_omitted
    assert more == {
        Layer.TOPICS: {Reason.NOT_DETECTED: 2},
        Layer.ENTITIES: {Reason.NOT_DETECTED: 1},
    }


def test_a_text_that_is_there_is_a_hit_and_one_that_is_not_is_a_miss():
    for make in (learned_topic, learned_entity):
        one = make("Redis")
        found = detect("redis", ContextSettings(), known(one))
        assert found.compiled["L2"] | found.compiled["L3"] == {one.id: True}
        uncompiled = known(one, bundles=[])
        assert reasons("redis", ContextSettings(), uncompiled) == {one.id: Reason.NOT_COMPILED}
        assert {one.id: False} in detect("redis", ContextSettings(), uncompiled).compiled.values()
