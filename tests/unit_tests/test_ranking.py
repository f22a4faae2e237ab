"""What speaks for a text, added up, and worth per token."""

from dataclasses import fields, replace
from datetime import date

import numpy as np
import pytest

from langchain_ctxbudget.search import (
    Question,
    Texts,
    dated,
    first_person,
    is_small_talk,
    rank,
    says_nothing,
    spelled,
    z_scores,
)
from langchain_ctxbudget.search.dates import named_dates
from langchain_ctxbudget.search.ranking import RankingWeights

ASKED = Question(("bike",))
NO_WEIGHTS = RankingWeights(**{field.name: 0.0 for field in fields(RankingWeights)})


def texts(size, **changed):
    """Texts that are all alike, but for what is changed."""
    alike = Texts(
        session=np.zeros(size, np.int32),
        costs=np.full(size, 20, np.int32),
        distinct_terms=np.full(size, 5, np.int32),
        speaker=np.zeros(size, np.int32),
        first_person=np.zeros(size, np.float32),
        day=np.zeros(size, np.int32),
        place=np.arange(size),
        opens=np.zeros(size, np.bool_),
    )
    columns = {}
    for name, values in changed.items():
        columns[name] = np.asarray(values, getattr(alike, name).dtype)
    differing = replace(alike, **columns)
    return replace(differing, opens=np.diff(differing.session, prepend=-1) != 0)


# Speakers


@pytest.mark.parametrize(
    ("question", "speakers", "named"),
    [
        ("What did Fahim say?", ["Fahim Khan", "Bob"], {0}),
        ("What did Fahim Khan say?", ["Fahim", "Bob"], {0}),
        ("Did ann's annual trip please Bob?", ["Ann", "Bob", "Anna"], {0, 1}),
        ("What did the user say?", ["user", "assistant", "AI", " ", ""], set()),
        ("What did Fahim say?", ["Fahim Khan", "Fahim Ali"], set()),
        ("When will we go?", ["Will Smith", "Bob"], set()),
        ("What did Fahim Khan say?", ["Fahim", "Fahim Khan"], {1}),
        ("What did Fahim say to Fahim Khan?", ["Fahim Khan", "Fahim"], {0, 1}),
    ],
    ids=[
        "first name",
        "full name",
        "small letters",
        "a role names nobody",
        "two have the first name",
        "a verb",
        "the longest name is meant",
        "both",
    ],
)
def test_a_speaker_is_named_in_full_or_by_a_first_name(
    question: str, speakers: list[str], named: set[int]
) -> None:
    assert Question.of(question, speakers).speakers == named


# Dates


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("in May 2023", (2023, 5, 0)),
        ("on 7 May", (0, 5, 7)),
        ("on the 7th of May, 2023", (2023, 5, 7)),
        ("on 2023-05-07", (2023, 5, 7)),
        ("in December", (0, 12, 0)),
        ("between Bob and Ann on 4 March", (0, 3, 4)),
        ("March 4 to 5pm", (0, 3, 4)),
    ],
)
def test_named_dates_are_read_in_english_words_and_as_iso_dates(text, named):
    assert named_dates(text) == ((named, named),)


@pytest.mark.parametrize(
    "text",
    [
        "May I?",
        "Hi Jan, how are you?",
        "Is it version 2025-04?",
        "30 February",
        "2026-02-30",
        "99 March",
        "may I march on?",
        "Maybe Augustus decided",
        "Marching Junes",
        "1999",
        "2023-13-01",
        "",
    ],
)
def test_what_only_looks_like_a_date_is_none(text):
    assert named_dates(text) == ()


TODAY = date(2026, 3, 11)


@pytest.mark.parametrize(
    ("text", "first", "last"),
    [
        ("from 4 to 6 March", (0, 3, 4), (0, 3, 6)),
        ("between the 4th and the 6th of March, 2026", (2026, 3, 4), (2026, 3, 6)),
        ("March 4-6, 2026", (2026, 3, 4), (2026, 3, 6)),
        ("from 28 February until 2026-03-06", (2026, 2, 28), (2026, 3, 6)),
        ("2026-03-04 - 6 March", (2026, 3, 4), (2026, 3, 6)),
        ("from March to May 2026", (2026, 3, 0), (2026, 5, 0)),
        ("between Monday and Thursday last week", (2026, 3, 2), (2026, 3, 5)),
        ("What did we say last week?", (2026, 3, 2), (2026, 3, 8)),
        ("yesterday", (2026, 3, 10), (2026, 3, 10)),
        ("from 30 December to 2 January 2027", (2026, 12, 30), (2027, 1, 2)),
    ],
)
def test_all_days_between_two_dates_are_named(text, first, last):
    assert named_dates(text, TODAY) == ((first, last),)


def test_two_days_alone_are_no_span():
    fourth = (0, 3, 4)
    sixth = (0, 3, 6)

    assert named_dates("on 4 March and 6 March") == ((fourth, fourth), (sixth, sixth))


def test_a_weekday_is_no_day():
    assert named_dates("on Monday", TODAY) == ()


def test_yesterday_is_no_day_where_nobody_knows_today():
    assert named_dates("yesterday") == ()


def test_a_question_names_dates():
    assert len(Question.of("Was it on 5 March?").dates) == 1


def test_a_statement_asks_about_no_dates():
    assert Question.of("I leave on 5 March.").dates == ()


def test_every_day_of_a_span_counts_as_one_that_is_named():
    days = np.array([20260304, 20260312, 20260320], np.int32)

    assert dated(days, named_dates("between 4 and 20 March")).tolist() == [2, 2, 2]


def test_a_day_beside_a_span_counts_by_how_near_it_is():
    days = np.array([20260301, 20260420, 0], np.int32)

    near, far, undated = dated(days, named_dates("between 4 and 20 March"))

    assert 2 > near > 1 > far > 0
    assert undated == 0


def test_a_span_may_go_on_into_the_next_year():
    days = np.array([20260302, 20260421], np.int32)

    assert dated(days, named_dates("from 20 April to 2 March")).tolist() == [2, 2]


# The parts of a value


@pytest.mark.parametrize(
    ("part", "changed", "question", "sign"),
    [
        ("length", {"costs": [20, 20, 20, 20, 90, 20]}, ASKED, -1),
        ("variety", {"distinct_terms": [5, 5, 5, 5, 9, 5]}, ASKED, 1),
        ("first_person", {"first_person": [0, 0, 0, 0, 0.5, 0]}, ASKED, 1),
        ("speaker", {"speaker": [0, 0, 0, 0, 1, 0]}, Question((), frozenset({1})), 1),
        (
            "date",
            {"day": [20230401] * 4 + [20230507, 20230601]},
            Question((), dates=named_dates("in May")),
            1,
        ),
    ],
)
def test_a_part_sets_apart_what_it_knows(part, changed, question, sign):
    """One text, the last but one of six, differs from the others in one way."""
    weights = replace(NO_WEIGHTS, **{part: 1.0})
    six = texts(6, **changed)

    keys = sign * rank(six, question, np.zeros(6), weights=weights).keys

    assert keys.argmax() == 4
    assert np.ptp(np.delete(keys, 4)) == pytest.approx(0), "the others are alike"


def test_neighbours_of_a_hit_gain_within_its_session_only():
    eight = texts(8, session=[0, 0, 0, 0, 1, 1, 1, 1])
    hit = np.array([0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0])

    gains = rank(eight, ASKED, z_scores(hit)).components["neighbours"]

    assert gains[1] == pytest.approx(gains[2])
    assert gains[2] > gains[0]
    assert gains[0] == pytest.approx(gains[4])


def cosines_with_the_mean_of_some(numbers, weights):
    vectors = np.array([[1.0, 0.0], [0.0, 1.0], [0.8, 0.6], [0.0, 1.0]])
    return vectors @ (weights @ vectors[numbers])


def test_what_is_like_the_most_relevant_texts_gains(monkeypatch):
    monkeypatch.setattr("langchain_ctxbudget.search.ranking.FIRST_FOUND", 1)
    four = texts(4, session=range(4))
    relevance = z_scores(np.array([5.0, 0.0, 0.0, 0.0]))

    before = rank(four, ASKED, relevance)
    after = rank(four, ASKED, relevance, alike=cosines_with_the_mean_of_some)

    gains = after.relevance - before.relevance
    assert gains[0] > gains[2] > gains[1]
    assert gains[1] == gains[3]
    assert after.keys[2] > after.keys[1]


# Names that are spelled nearly so


NAMES = ["Melanie Ross", "Bob", "user"]


def test_a_name_that_is_spelled_nearly_so_is_corrected():
    text = "Did Melany and bob swim?"

    assert spelled(text, NAMES, {"swim"}) == "Did Melanie and bob swim?"


@pytest.mark.parametrize(
    "text", ["Did Melany swim?", "Did melany swim?", "Did Melons swim?", "Did Bib swim?"]
)
def test_a_word_that_texts_have_is_no_other_name(text):
    assert spelled(text, NAMES, {"melani"}) == text


def test_a_speaker_whose_name_is_corrected_is_meant():
    question = Question.of(spelled("What did Mellanie say?", NAMES, {}), NAMES)

    assert question.speakers == {0}


# Whom a text is about


@pytest.mark.parametrize(
    ("text", "share"),
    [("I like my job.", 0.5), ("Dogs bark.", 0), ("...", 0), ("`\n" * 50_000, 0)],
    ids=["half", "none", "no words", "code without end"],
)
def test_words_of_the_first_person_are_a_share_of_all(text, share):
    assert first_person(text) == share


# Small talk


@pytest.mark.parametrize(
    "text",
    [
        "Thanks!",
        "Thank you, Bob!",
        "thanks, see you tomorrow!",
        "Nice to meet you",
        "Have a great weekend",
        "ok great",
        "haha yes",
        "Guten Morgen",
        "Vielen Dank!",
        "Merci beaucoup !",
        "¡Muchas gracias!",
        "谢谢。",
    ],
)
def test_courtesies_are_small_talk(text):
    assert is_small_talk(text)


@pytest.mark.parametrize("text", ["ok", "let me know", "it is", "go on", "", "...", "\U0001f44d"])
def test_what_has_no_words_but_stop_words_is_small_talk(text):
    assert is_small_talk(text)


@pytest.mark.parametrize("text", ["see you on Monday", "ok, talk to you at 5 pm", "See you at 5"])
def test_to_agree_on_a_day_or_an_hour_is_small_talk(text):
    assert is_small_talk(text)


@pytest.mark.parametrize(
    "text",
    [
        "Thanks, what was the name of the hotel?",
        "Thanks! The hotel is called Miramar.",
        "Danke! Wie hieß das Hotel nochmal",
        "Thanks!\n```\nprint(total)\n```",
        "Let's talk about Ana",
        "So, who is Bob",
        "is it Monday or Tuesday",
        "should I meet Ana on Friday",
        "week 3",
        "go on, June",
        "and where do I go on Sunday",
        "Please do the same for May",
        "Thanks. And who is she",
        "tell me more",
    ],
)
def test_what_asks_or_tells_something_is_no_small_talk(text):
    assert not is_small_talk(text)


def test_a_long_message_is_no_small_talk():
    assert not is_small_talk("Thank you! " * 60)


@pytest.mark.parametrize(
    "text",
    [
        "How are you?",
        "Vielen Dank!",
        "Noted.",
        "...",
        "Hello Kate. How are you today?",
        "Hi Tom, how's it going?",
        "Thanks Bob! What do you think?",
    ],
)
def test_what_says_nothing_is_not_worth_quoting(text):
    assert says_nothing(text)


@pytest.mark.parametrize(
    "text",
    ["Which hotel?", "Thanks, I have booked the hotel Miramar.", "Hi Kate, the bike is here."],
)
def test_what_says_something_is_worth_quoting(text):
    assert not says_nothing(text)


@pytest.mark.slow
def test_a_text_of_signs_alone_is_read_at_once():
    assert not Question.of(".\n," * 40_000).asks
