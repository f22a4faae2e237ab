"""Which of many named things a message is about."""

import unicodedata

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from langchain_ctxbudget.knowledge.detection import MIN_CONFIDENCE, Detection, Detector, Named

WORDS = st.sampled_from(["alpha", "Straße", "CAFÉ", "new", "york", "c++", "@sarah", "東京", "हिन्दी", "x1", "node.js"])
NAMES = st.lists(WORDS, min_size=1, max_size=3).map(" ".join)
MESSAGES = st.lists(WORDS | st.sampled_from(["and", "?", "(", "alphabet", "renew"]), max_size=12).map(" ".join)


def thing(name, *aliases, text="", importance=0.5):
    return Named(id=name, names=(name, *aliases), text=text, importance=importance)


def found(message, *things, **rest):
    return Detector(things).detect(message, **rest)


def named(message, *names):
    return Detector([thing(name) for name in names]).named(message)


def others(number):
    return [thing(f"filler{n}") for n in range(number)]


NAMED = [
    ("BILLING?", "billing", True),
    ("rebilling", "billing", False),
    ("pre-billing", "billing", True),
    ("billing_id", "billing", False),
    ("C++ or C#", "C++", True),
    ("C++ or C#", "C", True),
    ("abc", "a.c", False),
    ("what?", "what?", True),
    ("(", "(", True),
    ("new\nyork", "New  York", True),
    ("newyork", "New York", False),
    ("Sarah's idea", "Sarah", True),
    ("我们用李子", "李", True),
    ("Reactを使う", "React", True),
    ("المشروعات", "المشروع", False),
    ("हिन्दीभाषा", "हिन्दी", False),
    ("ＢＩＫＥ", "bike", True),
    ("cafe\u0301", "café", True),
    ("Große Straße", "STRASSE", True),
    ("🚀🚀", "🚀", True),
    ("\ud800 x", "x", True),
    ("anything", " ", False),
    ("", "billing", False),
    # A common word is a name only where it is written as one.
    ("you will see", "Will", False),
    ("I met Will today", "Will", True),
    ("Will you come?", "Will", False),
    ("Fine. Will you?", "Will", False),
    ("WHO said so", "WHO", True),
    ("Deploy it.", "it", False),
    ("It runs.", "it", False),
]


def test_a_name_is_whole_words_in_any_case_and_spacing():
    assert [(text, name, named(text, name) == [name]) for text, name, _ in NAMED] == NAMED


def test_of_names_inside_each_other_the_longest_counts():
    assert named("in New York today", "York", "New York", "New") == ["New York"]
    assert named("New York and York", "York", "New York") == ["York", "New York"]
    assert named("New York Times", "New York", "York Times") == ["New York", "York Times"]
    assert named("New York", "New", "New York Times") == ["New"]


def test_a_label_is_certain_an_alias_nearly():
    billing = thing("Billing", "invoices", "billing")
    assert found("about BILLING", billing) == [Detection("Billing", 1.0, "name")]
    assert found("about invoices", billing) == [Detection("Billing", 0.9, "alias")]
    assert found("invoices and billing", billing) == [Detection("Billing", 1.0, "name")]


def test_of_things_as_sure_the_one_named_more_often_then_the_more_important_then_the_first_id_comes_first():
    assert next(one.id for one in found("beta, alpha, beta", thing("alpha", importance=1.0), thing("beta"))) == "beta"
    assert next(one.id for one in found("alpha beta", thing("alpha"), thing("beta", importance=0.6))) == "beta"
    twins = [Named(id=name, names=("Sarah",)) for name in ("b", "a")]
    assert [one.id for one in found("Sarah", *twins)] == ["a", "b"]


GEAR = "Uses Citra hops, a Speidel fermenter, Maris Otter malt, a chiller, kegs and a pump."


@pytest.mark.parametrize(
    ("message", "things", "confidence"),
    [
        ("we brewed at home", [thing("Home brewing")], 0.8),  # all of its terms
        ("we brewed", [thing("Brewing")], 0.8),
        ("the cluster grew", [thing("Cluster autoscaling"), *others(9)], 0.4),  # one that only it has
        ("I want to go home", [thing("Home brewing"), *others(8)], None),  # none is rare among so few
        ("the cluster grew", [thing("Cluster autoscaling"), thing("Cluster backups"), *others(9)], None),
        # idf: log(1 + 9.5 / 1.5) = 1.992 for one of ten, log(1 + 8.5 / 2.5) = 1.482 for two
        ("autoscaled", [thing("Cluster autoscaling"), thing("Cluster backups"), *others(8)], 0.8 * 1.9924 / 3.474),
        ("my fermenter, my hops, my malt", [thing("Brewing", text=GEAR)], 0.48),  # three of its five strongest
        ("my fermenter, my hops", [thing("Brewing", text=GEAR)], None),
    ],
)
def test_a_thing_is_found_by_its_terms(message, things, confidence):
    expected = [] if confidence is None else [(things[0].id, pytest.approx(confidence, abs=1e-3), "terms")]
    assert [(one.id, one.confidence, one.how) for one in found(message, *things)] == expected


def test_a_vector_counts_where_it_stands_out():
    eye, same = np.eye(20, dtype=np.float32), np.tile(np.asarray([[1.0, 0.0]], np.float32), (20, 1))
    assert Detector(others(20), eye).detect("?", query=eye[3] * 5) == [Detection("filler3", 0.7, "similar")]
    far = np.zeros((20, 20), np.float32)
    far[:, 0], far[3] = 1, np.eye(20)[1]
    aside = 0.49 * np.eye(20)[1] + np.sqrt(1 - 0.49**2) * np.eye(20)[2]
    alone = np.zeros((20, 2), np.float32)
    alone[1, 0] = 1
    for vectors, query in ((same, same[0]), (far, aside), (alone, alone[1]), (eye, np.zeros(20)), (eye, None)):
        assert Detector(others(20), vectors).detect("?", query=query) == []


SARAH = Named(id="sarah", names=("Sarah Chen", "Sarah"))


def test_what_was_named_before_fades():
    cases = [
        (["Sarah Chen called"], 0.7),
        (["Sarah called"], 0.63),
        (["Sarah Chen called", "ok", "yes", "no"], 0.3584),
        (["Sarah Chen called", "ok", "yes", "no", "so"], None),
        (["Sarah called", "ok", "yes", "no"], None),
        (["Sarah Chen called", "Sarah called"], 0.63),
        (["the call"], None),
    ]
    for recent, confidence in cases:
        expected = [Detection("sarah", confidence, "salient")] if confidence else []
        assert found("What does she think?", SARAH, recent=recent, salience=True) == expected
    assert found("What does she think?", SARAH, recent=["Sarah called"]) == []
    assert found("Sarah?", SARAH, recent=["Sarah Chen called"], salience=True) == [Detection("sarah", 0.9, "alias")]
    assert Detector([]).detect("anything", recent=["x"], salience=True) == []


@settings(deadline=None)
@given(st.lists(NAMES, min_size=1, max_size=8, unique=True), MESSAGES, st.randoms(use_true_random=False))
def test_case_spacing_composition_and_the_order_of_things_do_not_matter(names, message, random):
    things = [thing(name, text=f"{name} and more") for name in names]
    detector = Detector(things)
    plain = detector.named(message)
    for form in (message.upper(), message.replace(" ", " \n\t"), unicodedata.normalize("NFD", message)):
        assert detector.named(form) == plain
    assert Detector(random.sample(things, len(things))).detect(message) == detector.detect(message)


@settings(deadline=None)
@given(st.from_regex(r"[a-zäß]{1,8}", fullmatch=True), st.from_regex(r"[a-zäß0-9_]{1,3}", fullmatch=True), MESSAGES)
def test_a_name_is_found_between_blanks_and_never_inside_a_word(name, more, message):
    name = f"q{name}"  # no stop word
    assert named(f"x {name}{more} {more}{name} y", name) == []
    assert named(f"{message} {name} {message}", name) == [name]


@settings(deadline=None)
@given(st.lists(st.text(max_size=10), max_size=5, unique=True), st.text(max_size=60))
def test_any_text_can_be_asked_and_confidences_are_sorted_shares(names, message):
    confidences = [one.confidence for one in found(message, *map(thing, names), recent=[message], salience=True)]
    assert all(MIN_CONFIDENCE <= confidence <= 1 for confidence in confidences)
    assert confidences == sorted(confidences, reverse=True)
