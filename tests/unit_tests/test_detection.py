"""Holds detection to finding, of many named things, those that a message is about."""

import unicodedata

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_ctxbudget.knowledge.detection import Detectable, Detection, Detector

WORDS = st.sampled_from(
    ["alpha", "Straße", "CAFÉ", "new", "york", "c++", "@sarah", "東京", "हिन्दी", "x1", "node.js"]
)
NAMES = st.lists(WORDS, min_size=1, max_size=3).map(" ".join)
SEVERAL_NAMES = st.lists(NAMES, min_size=1, max_size=8, unique=True)
MESSAGES = st.lists(
    WORDS | st.sampled_from(["and", "?", "(", "alphabet", "renew"]), max_size=12
).map(" ".join)


def thing(name, *aliases, importance=0.5):
    return Detectable(id=name, names=(name, *aliases), importance=importance)


def detect(message, *things, recent=()):
    return Detector(things).detect(message, recent=recent)


def detector_of(names):
    return Detector([thing(name) for name in names])


def named(message, *names):
    return detector_of(names).named_ids(message)


@pytest.mark.parametrize(
    ("message", "name"),
    [
        ("BILLING?", "billing"),
        ("pre-billing", "billing"),
        ("what?", "what?"),
        ("new\nyork", "New  York"),
        ("Sarah's idea", "Sarah"),
        ("我们用李子", "李"),
        ("cafe\u0301", "café"),
        ("Große Straße", "STRASSE"),
    ],
)
def test_a_name_is_found_in_any_case_and_spacing(message, name):
    assert named(message, name) == [name]


@pytest.mark.parametrize(
    ("message", "name"),
    [
        ("rebilling", "billing"),
        ("abc", "a.c"),
        ("newyork", "New York"),
        ("المشروعات", "المشروع"),
        ("anything", " "),
    ],
)
def test_a_name_is_not_found_inside_other_words(message, name):
    assert named(message, name) == []


@pytest.mark.parametrize("message", ["you will see", "Fine. Will you?"])
def test_a_common_word_is_a_name_only_where_it_is_written_as_one(message):
    assert named(message, "Will") == []


@pytest.mark.parametrize(
    ("message", "names", "counted"),
    [
        pytest.param(
            "in New York today", ["York", "New York", "New"], ["New York"], id="the longest"
        ),
        pytest.param(
            "New York and York", ["York", "New York"], ["York", "New York"], id="both, apart"
        ),
        pytest.param("New York", ["New", "New York Times"], ["New"], id="the longest is not whole"),
    ],
)
def test_of_names_inside_each_other_the_longest_counts(message, names, counted):
    assert named(message, *names) == counted


def test_a_thing_is_found_by_all_terms_of_a_name():
    detections = detect("we brewed at home", thing("Home brewing"))

    assert detections == [Detection("Home brewing", 0.8, "terms")]


def test_a_thing_is_not_found_by_some_terms_of_a_name():
    assert detect("I want to go home", thing("Home brewing")) == []


DIMENSIONS = np.eye(20, dtype=np.float32)


def similar(vectors, query):
    """Returns what is found among twenty things with these vectors, by a query's vector."""
    things = [thing(f"filler{number}") for number in range(20)]
    return Detector(things, vectors).detect("?", query=query)


def test_a_vector_counts_where_it_stands_out():
    assert similar(DIMENSIONS, DIMENSIONS[3] * 5) == [Detection("filler3", 0.7, "similar")]


def test_no_vector_stands_out_of_equal_ones():
    same = np.tile(np.asarray([[1.0, 0.0]], np.float32), (20, 1))

    assert similar(same, same[0]) == []


def test_a_vector_stands_out_only_where_it_is_near():
    vectors = np.zeros((20, 20), np.float32)
    vectors[:, 0] = 1
    vectors[3] = DIMENSIONS[1]
    query = 0.49 * DIMENSIONS[1] + np.sqrt(1 - 0.49**2) * DIMENSIONS[2]

    assert similar(vectors, query) == []


def test_a_single_vector_does_not_stand_out():
    vectors = np.zeros((20, 2), np.float32)
    vectors[1, 0] = 1

    assert similar(vectors, vectors[1]) == []


@pytest.mark.parametrize("query", [np.zeros(20), None], ids=["all zero", "none"])
def test_without_a_querys_vector_nothing_is_similar(query):
    assert similar(DIMENSIONS, query) == []


SARAH = Detectable(id="sarah", names=("Sarah Chen", "Sarah"))


@pytest.mark.parametrize(
    ("recent", "confidence"),
    [
        pytest.param(["Sarah Chen called"], 0.7, id="just now"),
        pytest.param(["Sarah called"], 0.63, id="by an alias"),
        pytest.param(["Sarah Chen called", "ok", "yes", "no"], 0.3584, id="four messages ago"),
        pytest.param(["Sarah Chen called", "Sarah called"], 0.63, id="twice"),
    ],
)
def test_what_was_named_before_fades(recent, confidence):
    detections = detect("What does she think?", SARAH, recent=recent)

    assert detections == [Detection("sarah", confidence, "salient")]


@pytest.mark.parametrize(
    "recent",
    [
        pytest.param(["Sarah Chen called", "ok", "yes", "no", "so"], id="five messages ago"),
        pytest.param([], id="never"),
    ],
)
def test_what_was_not_named_of_late_is_not_found(recent):
    assert detect("What does she think?", SARAH, recent=recent) == []


def test_an_alias_in_the_message_counts_more_than_one_before():
    detections = detect("Sarah?", SARAH, recent=["Sarah Chen called"])

    assert detections == [Detection("sarah", 0.9, "alias")]


@given(SEVERAL_NAMES, MESSAGES, st.randoms(use_true_random=False))
def test_neither_writing_nor_the_order_of_things_matters(names, message, random):
    detector = detector_of(names)
    shuffled = detector_of(random.sample(names, len(names)))
    other_spacing = message.replace(" ", " \n\t")
    other_composition = unicodedata.normalize("NFD", message)

    assert detector.named_ids(message.upper()) == detector.named_ids(message)
    assert detector.named_ids(other_spacing) == detector.named_ids(message)
    assert detector.named_ids(other_composition) == detector.named_ids(message)
    assert shuffled.detect(message) == detector.detect(message)


ANNA = thing("Anna", "my mother")
MAX = thing("Max")


@pytest.mark.parametrize(
    ("sentence", "subjects"),
    [
        ("My mother's cat Max is deaf.", ["Max"]),
        ("Anna\u2019s old cat, Max, is deaf.", ["Max"]),
        ("My mother's cat is called Max.", ["Max"]),
        ("Anna's favourite colour is blue.", ["Anna"]),
        ("My mother and Max are well.", ["Anna", "Max"]),
        ("Anna fed Anna's cat Max.", ["Anna", "Max"]),
    ],
)
def test_a_sentence_is_about_what_is_owned(sentence, subjects):
    assert Detector([ANNA, MAX]).subject_ids(sentence) == subjects


def test_what_is_owned_comes_before_its_owner():
    assert [found.id for found in detect("How is Anna's cat Max?", ANNA, MAX)] == ["Max", "Anna"]
