"""Which of many named things a message is about."""

import unicodedata

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from langchain_ctxbudget.knowledge.detection import Detectable, Detection, Detector

WORDS = st.sampled_from(
    ["alpha", "Straße", "CAFÉ", "new", "york", "c++", "@sarah", "東京", "हिन्दी", "x1", "node.js"]
)
NAMES = st.lists(WORDS, min_size=1, max_size=3).map(" ".join)
MESSAGES = st.lists(
    WORDS | st.sampled_from(["and", "?", "(", "alphabet", "renew"]), max_size=12
).map(" ".join)


def thing(name, *aliases, importance=0.5):
    return Detectable(id=name, names=(name, *aliases), importance=importance)


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
    ("abc", "a.c", False),
    ("what?", "what?", True),
    ("new\nyork", "New  York", True),
    ("newyork", "New York", False),
    ("Sarah's idea", "Sarah", True),
    ("我们用李子", "李", True),
    ("المشروعات", "المشروع", False),
    ("cafe\u0301", "café", True),
    ("Große Straße", "STRASSE", True),
    ("anything", " ", False),
    # A common word is a name only where it is written as one.
    ("you will see", "Will", False),
    ("Fine. Will you?", "Will", False),
]


def test_a_name_is_whole_words_in_any_case_and_spacing():
    assert [(text, name, named(text, name) == [name]) for text, name, _ in NAMED] == NAMED


def test_of_names_inside_each_other_the_longest_counts():
    assert named("in New York today", "York", "New York", "New") == ["New York"]
    assert named("New York and York", "York", "New York") == ["York", "New York"]
    assert named("New York", "New", "New York Times") == ["New"]


def test_a_thing_is_found_by_all_terms_of_a_name():
    for message, confidence in (("we brewed at home", 0.8), ("I want to go home", None)):
        expected = [] if confidence is None else [Detection("Home brewing", confidence, "terms")]
        assert found(message, thing("Home brewing")) == expected


def test_a_vector_counts_where_it_stands_out():
    eye = np.eye(20, dtype=np.float32)
    same = np.tile(np.asarray([[1.0, 0.0]], np.float32), (20, 1))
    assert Detector(others(20), eye).detect("?", query=eye[3] * 5) == [
        Detection("filler3", 0.7, "similar")
    ]
    far = np.zeros((20, 20), np.float32)
    far[:, 0], far[3] = 1, np.eye(20)[1]
    aside = 0.49 * np.eye(20)[1] + np.sqrt(1 - 0.49**2) * np.eye(20)[2]
    alone = np.zeros((20, 2), np.float32)
    alone[1, 0] = 1
    for vectors, query in (
        (same, same[0]),
        (far, aside),
        (alone, alone[1]),
        (eye, np.zeros(20)),
        (eye, None),
    ):
        assert Detector(others(20), vectors).detect("?", query=query) == []


def test_what_was_named_before_fades():
    sarah = Detectable(id="sarah", names=("Sarah Chen", "Sarah"))
    for recent, confidence in (
        (["Sarah Chen called"], 0.7),
        (["Sarah called"], 0.63),
        (["Sarah Chen called", "ok", "yes", "no"], 0.3584),
        (["Sarah Chen called", "ok", "yes", "no", "so"], None),
        (["Sarah Chen called", "Sarah called"], 0.63),
    ):
        expected = [Detection("sarah", confidence, "salient")] if confidence else []
        assert found("What does she think?", sarah, recent=recent) == expected
    assert found("What does she think?", sarah) == []
    assert found("Sarah?", sarah, recent=["Sarah Chen called"]) == [
        Detection("sarah", 0.9, "alias")
    ]


@given(
    st.lists(NAMES, min_size=1, max_size=8, unique=True),
    MESSAGES,
    st.randoms(use_true_random=False),
)
def test_case_spacing_composition_and_the_order_of_things_do_not_matter(names, message, random):
    things = [thing(name) for name in names]
    detector = Detector(things)
    for form in (
        message.upper(),
        message.replace(" ", " \n\t"),
        unicodedata.normalize("NFD", message),
    ):
        assert detector.named(form) == detector.named(message)
    assert Detector(random.sample(things, len(things))).detect(message) == detector.detect(message)
