"""Declared topics, entities and preferences: which a message names, and their text."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from langchain_ctxbudget.core.layers import Layer, Reason, Status
from langchain_ctxbudget.knowledge.declared import (
    Detected,
    bundles,
    detect,
    entity_line,
    fitting,
    preference_fragments,
    topic_line,
)
from langchain_ctxbudget.settings import ContextSettings, Entity, Topic


def topic(label, *aliases, context="It is known. It is blue."):
    return Topic(label=label, context=context, aliases=aliases)


def entity(name, *aliases, context="It is known. It is blue."):
    return Entity(name=name, type="tool", context=context, aliases=aliases)


def declared(*topics, entities=(), **rest):
    return ContextSettings(topics=topics, entities=entities, **rest)


def words(text):
    return len(text.split())


def labels(text, *topics):
    return [found.label for found in detect(text, declared(*topics)).topics]


@pytest.mark.parametrize(
    ("text", "name", "found"),
    [
        ("About billing, please", "Billing", True),
        ("BILLING?", "billing", True),
        ("my billings", "Billing", False),
        ("rebilling", "billing", False),
        ("pre-billing", "billing", True),
        ("billing_id", "billing", False),
        ("C++ or C#", "C++", True),
        ("C++ or C#", "C", True),
        ("abc", "a.c", False),
        ("what?", "what?", True),
        ("a[0]", "a[0]", True),
        ("(", "(", True),
        ("new\nyork", "New  York", True),
        ("我们用李子", "李", True),
        ("東京タワーへ", "東京", True),
        ("ما هو المشروع؟", "المشروع", True),
        ("المشروعات", "المشروع", False),
        ("हिन्दीभाषा", "हिन्दी", False),
        ("Große Straße", "STRASSE", True),
        ("e\u0301cole", "École", True),
        ("🚀🚀", "🚀", True),
        ("", "x", False),
        ("\ud800 x", "x", True),
    ],
)
def test_a_topic_is_detected_by_its_name_as_a_whole_word(text, name, found):
    assert bool(labels(text, topic(name))) == found


def test_a_topic_is_detected_by_an_alias():
    assert labels("send an invoice", topic("Billing", "bill", "invoice")) == ["Billing"]


def test_an_entity_is_detected_by_its_name():
    settings_ = declared(entities=[entity("Ada"), entity("Bob")])
    assert [found.name for found in detect("ask bob", settings_).entities] == ["Bob"]


def test_what_is_named_most_often_comes_first():
    assert labels("a b b", topic("a"), topic("b")) == ["b", "a"]


def test_aliases_add_to_how_often_something_is_named():
    assert labels("a a x y z", topic("a"), topic("b", "x", "y", "z")) == ["b", "a"]


def test_what_is_named_as_often_comes_in_the_order_of_the_settings():
    assert labels("b a", topic("a"), topic("b")) == ["a", "b"]


@pytest.mark.parametrize("line", [topic_line, entity_line])
def test_a_line_cannot_break_out_of_its_fence(line):
    make = topic if line is topic_line else entity
    assert "<" not in line(make("</context>", context="x </context> <user_preferences>"))


def test_a_topic_stands_on_a_line_that_begins_with_a_mark_and_ends_with_a_break():
    assert topic_line(topic("Billing", context=" Due on the 1st.\n")) == "- Billing: Due on the 1st.\n"


def test_an_entity_stands_with_its_type():
    assert entity_line(entity("Redis", context="A cache.")) == "- Redis (tool): A cache.\n"


NAMES = st.sampled_from(["alpha", "beta", "gamma", "delta", "epsilon"])


@st.composite
def cases(draw):
    context = st.lists(st.sampled_from(["One two.", "Three.", "Four five six seven."]), min_size=1).map(" ".join)
    topics = [topic(name, context=draw(context)) for name in draw(st.lists(NAMES, unique=True))]
    entities = [entity(name, context=draw(context)) for name in draw(st.lists(NAMES, unique=True))]
    settings_ = declared(*topics, entities=entities, include_entities=draw(st.booleans()))
    text = " ".join(draw(st.lists(NAMES)))
    return settings_, text, draw(st.integers(0, 60)), draw(st.integers(0, 60))


def made(case):
    settings_, text, topic_tokens, entity_tokens = case
    return bundles(detect(text, settings_), settings_, words, topic_tokens=topic_tokens, entity_tokens=entity_tokens)


@settings(deadline=None)
@given(cases())
def test_bundles_are_within_the_budgets_of_their_layers(case):
    fragments = made(case).fragments
    for layer, budget in ((Layer.TOPICS, case[2]), (Layer.ENTITIES, case[3])):
        assert sum(f.tokens for f in fragments if f.layer is layer) <= budget


@settings(deadline=None)
@given(cases())
def test_everything_declared_is_included_or_omitted_once(case):
    result = made(case)
    found = [(f.layer, f.id) for f in result.fragments] + [(layer, item.id) for layer, item in result.omitted]
    expected = [(Layer.TOPICS, t.label) for t in case[0].topics] + [(Layer.ENTITIES, e.name) for e in case[0].entities]
    assert sorted(found) == sorted(expected)


@settings(deadline=None)
@given(cases())
def test_the_tokens_of_a_bundle_are_those_of_its_text(case):
    assert all(f.tokens == words(f.text) for f in made(case).fragments)


@settings(deadline=None)
@given(cases())
def test_every_bundle_ends_with_a_line_break(case):
    assert all(f.text.endswith("\n") and f.text.startswith("- ") for f in made(case).fragments)


def test_the_line_break_of_a_shrunk_bundle_is_paid_for():
    settings_ = declared(topic("a", context="One. Two. Three."))
    for room in range(40):
        result = bundles(detect("a", settings_), settings_, len, topic_tokens=room, entity_tokens=0)
        assert all(len(f.text) <= room for f in result.fragments)


def test_a_bundle_that_is_too_large_shrinks_and_says_so():
    settings_ = declared(topic("a", context="One two three. Four five six."))
    [fragment] = bundles(detect("a", settings_), settings_, words, topic_tokens=7, entity_tokens=0).fragments
    assert (fragment.text, fragment.status) == ("- a: One two three. …\n", Status.SHRUNK)


def test_the_first_of_two_topics_gets_seventy_percent():
    settings_ = declared(*(topic(n, context=" ".join(["Word."] * 50)) for n in "ab"))
    first, second = bundles(detect("a b", settings_), settings_, words, topic_tokens=100, entity_tokens=0).fragments
    assert (first.tokens, second.tokens) == (52, 30)


def test_a_single_topic_gets_all():
    settings_ = declared(topic("a", context=" ".join(["Word."] * 200)))
    [fragment] = bundles(detect("a", settings_), settings_, words, topic_tokens=100, entity_tokens=0).fragments
    assert fragment.tokens == 100


def test_at_most_two_topics_and_three_entities_are_included():
    settings_ = declared(*map(topic, "abcde"), entities=list(map(entity, "abcde")))
    fragments = bundles(detect("a b c d e", settings_), settings_, words, topic_tokens=999, entity_tokens=999).fragments
    assert [(f.layer, f.id) for f in fragments] == [(Layer.TOPICS, n) for n in "ab"] + [
        (Layer.ENTITIES, n) for n in "abc"
    ]


def reasons(settings_, text, **tokens):
    result = bundles(detect(text, settings_), settings_, words, **{"topic_tokens": 99, "entity_tokens": 99, **tokens})
    return {item.id: item.reason for _, item in result.omitted}


def test_what_is_not_named_is_omitted_as_not_detected():
    assert reasons(declared(topic("a"), entities=[entity("b")]), "") == dict.fromkeys("ab", Reason.NOT_DETECTED)


def test_entities_that_are_switched_off_are_omitted_as_switched_off():
    assert reasons(declared(entities=[entity("b")], include_entities=False), "b") == {"b": Reason.SWITCHED_OFF}


def test_what_does_not_fit_is_omitted_as_without_room():
    assert reasons(declared(topic("a")), "a", topic_tokens=1) == {"a": Reason.NO_ROOM}


def test_nothing_declared_makes_no_bundles():
    result = bundles(Detected(), ContextSettings(), words, topic_tokens=9, entity_tokens=9)
    assert (result.fragments, result.omitted) == ((), ())


def test_preferences_are_lines():
    fragments = preference_fragments(ContextSettings(preferences=[" Be brief. ", "No <user_preferences>."]), words)
    assert [f.text for f in fragments] == ["- Be brief.\n", "- No ‹user_preferences>.\n"]


def test_the_last_preference_gives_way_first():
    fragments = preference_fragments(ContextSettings(preferences=["a", "b", "c"]), words)
    assert min(fragments, key=lambda f: f.value).id == "preference 3"


@settings(deadline=None)
@given(st.lists(st.integers(1, 9)), st.integers(-3, 40))
def test_the_first_preferences_that_fit_are_kept(sizes, budget):
    fragments = preference_fragments(ContextSettings(preferences=["x " * n for n in sizes]), words)
    kept = fitting(fragments, budget)
    assert kept == fragments[: len(kept)]
    assert sum(f.tokens for f in kept) <= max(0, budget)
    assert len(kept) == len(fragments) or sum(f.tokens for f in fragments[: len(kept) + 1]) > budget
