"""Which of many named things a message is about."""

import unicodedata

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from langchain_ctxbudget.core.detection import MIN_CONFIDENCE, Detection, Detector, Named
from langchain_ctxbudget.errors import InputError

WORDS = st.sampled_from(["alpha", "Straße", "CAFÉ", "new", "york", "c++", "@sarah", "東京", "हिन्दी", "x1", "node.js"])
NAMES = st.lists(WORDS, min_size=1, max_size=3).map(" ".join)
MESSAGES = st.lists(WORDS | st.sampled_from(["and", "?", "(", "alphabet", "renew"]), max_size=12).map(" ".join)


def thing(name, *aliases, text="", importance=0.5):
    return Named(id=name, names=(name, *aliases), text=text, importance=importance)


def found(message, *things, **rest):
    return Detector(things).detect(message, **rest)


def ids(message, *things, **rest):
    return [one.id for one in found(message, *things, **rest)]


def others(number):
    return [thing(f"filler{n}") for n in range(number)]


@pytest.mark.parametrize(
    ("text", "name", "named"),
    [
        ("About billing, please", "Billing", True),
        ("BILLING?", "billing", True),
        ("rebilling", "billing", False),
        ("pre-billing", "billing", True),
        ("billing_id", "billing", False),
        ("C++ or C#", "C++", True),
        ("C++ or C#", "C", True),
        ("abc", "a.c", False),
        ("a. c", "a.c", False),
        ("what?", "what?", True),
        ("(", "(", True),
        ("new\nyork", "New  York", True),
        ("newyork", "New York", False),
        ("Sarah's idea", "Sarah", True),
        ("我们用李子", "李", True),
        ("東京タワーへ", "東京", True),
        ("Reactを使う", "React", True),
        ("المشروعات", "المشروع", False),
        ("हिन्दीभाषा", "हिन्दी", False),
        ("हिन्दी भाषा", "हिन्दी", True),
        ("ＢＩＫＥ", "bike", True),
        ("cafe\u0301", "café", True),
        ("anything", " ", False),
        ("", "billing", False),
    ],
)
def test_a_name_is_whole_words(text, name, named):
    assert Detector([thing(name)]).named(text) == ([name] if named else [])


def test_a_label_is_certain():
    assert found("about billing", thing("Billing")) == [Detection("Billing", 1.0, "name")]


def test_an_alias_is_nearly_certain():
    assert found("about invoices", thing("Billing", "invoices")) == [Detection("Billing", 0.9, "alias")]


def test_a_label_counts_before_an_alias():
    assert found("invoices and billing", thing("Billing", "invoices")) == [Detection("Billing", 1.0, "name")]


def test_an_alias_that_is_the_label_in_another_case_is_the_label():
    assert found("BILLING", thing("Billing", "billing"))[0].how == "name"


def test_the_longest_name_wins_over_one_inside_it():
    assert Detector([thing("York"), thing("New York"), thing("New")]).named("in New York today") == ["New York"]


def test_a_name_that_stands_alone_as_well_is_found_beside_the_longer_one():
    assert Detector([thing("York"), thing("New York")]).named("New York and York") == ["York", "New York"]


def test_names_that_overlap_are_both_found():
    assert set(Detector([thing("New York"), thing("York Times")]).named("New York Times")) == {"New York", "York Times"}


def test_a_longer_name_that_does_not_end_leaves_the_shorter_one():
    assert Detector([thing("New"), thing("New York Times")]).named("New York") == ["New"]


def test_two_things_of_one_name_are_both_found():
    twins = [Named(id=number, names=("Sarah",)) for number in ("b", "a")]
    assert [one.id for one in Detector(twins).detect("Sarah")] == ["a", "b"]


def test_what_is_named_more_often_comes_first():
    assert ids("beta, alpha, beta", thing("alpha", importance=1.0), thing("beta")) == ["beta", "alpha"]


def test_of_things_as_sure_the_more_important_one_comes_first():
    assert ids("alpha beta", thing("alpha"), thing("beta", importance=0.6)) == ["beta", "alpha"]


@pytest.mark.parametrize("alias", ["she", "her", "it", "will"])
def test_a_word_that_says_nothing_is_no_name(alias):
    detector = Detector([thing("Clara", alias)])
    assert detector.named(f"How do I deploy {alias} with docker?") == []
    assert detector.named(f"{alias.capitalize()} runs.") == []


@pytest.mark.parametrize(
    ("message", "named"),
    [("you will see", []), ("I met Will today", ["Will"]), ("Will you come?", []), ("Fine. Will you?", [])],
)
def test_a_name_that_is_a_common_word_must_be_written_as_a_name(message, named):
    assert Detector([thing("Will")]).named(message) == named


def test_an_acronym_that_is_a_common_word_may_begin_a_sentence():
    assert Detector([thing("WHO")]).named("WHO said so") == ["WHO"]


def test_two_of_two_terms_are_most_that_terms_can_give():
    assert found("we brewed at home", thing("Home brewing")) == [Detection("Home brewing", 0.8, "terms")]


def test_half_of_the_terms_of_a_name_are_half_as_much():
    expected = Detection("Cluster autoscaling", 0.4, "terms")
    assert found("the cluster grew", thing("Cluster autoscaling"), *others(9)) == [expected]


def test_a_term_is_not_rare_among_few_things():
    assert found("I want to go home", thing("Home brewing"), *others(8)) == []


def test_another_form_of_a_whole_name_is_enough():
    assert found("we brewed", thing("Brewing")) == [Detection("Brewing", 0.8, "terms")]


def test_a_term_that_several_have_is_not_enough_alone():
    assert found("the cluster grew", thing("Cluster autoscaling"), thing("Cluster backups"), *others(9)) == []


def test_half_of_a_name_that_two_have_is_not_enough():
    assert found("the cluster grew", thing("Cluster backups"), thing("Backups, cluster"), *others(9)) == []


def test_a_rare_term_weighs_more_than_a_common_one():
    things = [thing("Cluster autoscaling"), thing("Cluster backups"), *others(8)]
    # idf: log(1 + 9.5 / 1.5) = 1.992 for one of ten, log(1 + 8.5 / 2.5) = 1.482 for two
    [one] = found("autoscaled", *things)
    assert one.id == "Cluster autoscaling"
    assert one.confidence == pytest.approx(0.8 * 1.9924 / (1.9924 + 1.4816), abs=1e-3)


def test_three_terms_of_a_long_text_are_enough():
    brewing = thing(
        "Brewing", text="Uses Citra hops, a Speidel fermenter, Maris Otter malt, a chiller, kegs and a pump."
    )
    assert ids("my fermenter, my hops, my malt", brewing) == ["Brewing"]


def test_two_terms_of_a_long_text_are_not_enough():
    brewing = thing(
        "Brewing", text="Uses Citra hops, a Speidel fermenter, Maris Otter malt, a chiller, kegs and a pump."
    )
    assert ids("my fermenter, my hops", brewing) == []


def test_a_longer_text_does_not_make_a_thing_harder_to_find():
    text = "hops fermenter malt chiller keg"
    longer = f"{text} pump kettle yeast tube bottle"
    [short], [long] = (found("hops fermenter malt", thing("Brewing", text=one)) for one in (text, longer))
    assert short.confidence == long.confidence


def test_a_vector_that_stands_out_is_found():
    vectors = np.eye(20, dtype=np.float32)
    detector = Detector(others(20), vectors)
    assert detector.detect("?", query=vectors[3] * 5) == [Detection("filler3", 0.7, "similar")]


def test_a_near_vector_among_near_ones_does_not_stand_out():
    vectors = np.tile(np.asarray([[1.0, 0.0]], np.float32), (20, 1))
    assert Detector(others(20), vectors).detect("?", query=vectors[0]) == []


def test_a_vector_that_stands_out_but_is_far_is_not_found():
    vectors = np.zeros((20, 20), np.float32)
    vectors[:, 0] = 1
    vectors[3] = np.eye(20)[1]
    query = 0.49 * np.eye(20)[1] + np.sqrt(1 - 0.49**2) * np.eye(20)[2]
    assert Detector(others(20), vectors).detect("?", query=query) == []


def test_one_vector_alone_cannot_stand_out():
    vectors = np.zeros((3, 2), np.float32)
    vectors[1, 0] = 1
    assert Detector(others(3), vectors).detect("?", query=vectors[1]) == []


def test_a_query_without_length_is_near_to_nothing():
    vectors = np.eye(5, dtype=np.float32)
    assert Detector(others(5), vectors).detect("?", query=np.zeros(5)) == []


def test_vectors_without_a_query_are_not_compared():
    assert Detector(others(5), np.eye(5, dtype=np.float32)).detect("?") == []


def test_vectors_that_are_not_one_per_thing_are_an_error():
    with pytest.raises(InputError, match="2 vectors for 3 things"):
        Detector(others(3), np.eye(2, dtype=np.float32))


SARAH = Named(id="sarah", names=("Sarah Chen", "Sarah"))


@pytest.mark.parametrize(
    ("recent", "confidence"),
    [
        (["Sarah Chen called"], 0.7),
        (["Sarah called"], 0.63),
        (["Sarah Chen called", "ok"], 0.56),
        (["Sarah Chen called", "ok", "yes"], 0.448),
        (["Sarah Chen called", "ok", "yes", "no"], 0.3584),
        (["Sarah Chen called", "ok", "yes", "no", "so"], None),
        (["Sarah called", "ok", "yes", "no"], None),
        (["Sarah Chen called", "Sarah called"], 0.63),
        (["the call"], None),
    ],
)
def test_what_was_named_before_fades(recent, confidence):
    expected = [Detection("sarah", confidence, "salient")] if confidence else []
    assert found("What does she think?", SARAH, recent=recent, salience=True) == expected


def test_what_was_named_before_does_not_count_unless_asked_for():
    assert found("What does she think?", SARAH, recent=["Sarah called"]) == []


def test_what_is_named_now_is_not_only_salient():
    assert found("Sarah?", SARAH, recent=["Sarah Chen called"], salience=True) == [Detection("sarah", 0.9, "alias")]


def test_nothing_known_is_nothing_found():
    assert Detector([]).detect("anything", recent=["x"], salience=True) == []


@settings(deadline=None)
@given(st.lists(NAMES, min_size=1, max_size=6, unique=True), MESSAGES)
def test_case_spacing_and_composition_do_not_matter(names, message):
    detector = Detector([thing(name) for name in names])
    plain = detector.named(message)
    assert detector.named(message.upper()) == plain
    assert detector.named(message.replace(" ", " \n\t")) == plain
    assert detector.named(unicodedata.normalize("NFD", message)) == plain


@settings(deadline=None)
@given(st.from_regex(r"[a-zäß]{1,8}", fullmatch=True), st.from_regex(r"[a-zäß0-9_]{1,3}", fullmatch=True))
def test_a_name_inside_a_word_is_never_found(name, more):
    name = f"q{name}"  # no stop word
    assert Detector([thing(name)]).named(f"x {name}{more} {more}{name} y") == []


@settings(deadline=None)
@given(st.lists(NAMES, min_size=1, max_size=8, unique=True), MESSAGES, st.randoms(use_true_random=False))
def test_the_order_of_things_does_not_matter(names, message, random):
    things = [thing(name, text=f"{name} and more") for name in names]
    shuffled = random.sample(things, len(things))
    assert Detector(shuffled).detect(message) == Detector(things).detect(message)


@settings(deadline=None)
@given(st.lists(st.text(max_size=10), max_size=5, unique=True), st.text(max_size=60))
def test_any_text_can_be_asked_and_confidences_are_sorted_shares(names, message):
    confidences = [one.confidence for one in found(message, *map(thing, names), recent=[message], salience=True)]
    assert all(MIN_CONFIDENCE <= confidence <= 1 for confidence in confidences)
    assert confidences == sorted(confidences, reverse=True)


@settings(deadline=None)
@given(NAMES, MESSAGES, MESSAGES)
def test_a_name_between_blanks_is_always_found(name, before, after):
    assert Detector([thing(name)]).named(f"{before} {name} {after}") == [name]
