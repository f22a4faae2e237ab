"""What speaks for a text, added up, and worth per token."""

from dataclasses import fields, replace
from datetime import date

import numpy as np
import pytest

from langchain_ctxbudget.search import Question, Texts, dated, first_person, rank, spelled, z_scores
from langchain_ctxbudget.search.dates import named_dates
from langchain_ctxbudget.search.ranking import RankingWeights

ASKED = Question(("bike",))
NOTHING = RankingWeights(**{field.name: 0.0 for field in fields(RankingWeights)})


def texts(size, **changed):
    """Texts that are all alike, but for what is changed."""
    alike = Texts(
        session=np.zeros(size, np.int32),
        costs=np.full(size, 20, np.int32),
        distinct=np.full(size, 5, np.int32),
        speaker=np.zeros(size, np.int32),
        first_person=np.zeros(size, np.float32),
        day=np.zeros(size, np.int32),
        place=np.arange(size),
        opens=np.zeros(size, np.bool_),
    )
    found = replace(
        alike,
        **{name: np.asarray(value, getattr(alike, name).dtype) for name, value in changed.items()},
    )
    return replace(found, opens=np.diff(found.session, prepend=-1) != 0)


def one_hot(size, place):
    return np.eye(size)[place]


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
)
def test_a_speaker_is_named_in_full_or_by_a_first_name_of_nobody_else_and_the_longest_name_is_meant(
    question: str, speakers: list[str], named: set[int]
) -> None:
    assert Question.of(question, speakers).speakers == named


def test_named_dates_are_read_in_english_words_and_as_iso_dates():
    for text, named in [
        ("in May 2023", (2023, 5, 0)),
        ("on 7 May", (0, 5, 7)),
        ("on the 7th of May, 2023", (2023, 5, 7)),
        ("on 2023-05-07", (2023, 5, 7)),
        ("in December", (0, 12, 0)),
        ("between Bob and Ann on 4 March", (0, 3, 4)),
        ("March 4 to 5pm", (0, 3, 4)),
    ]:
        assert named_dates(text) == ((named, named),), text
    nowhere = (
        "May I?",
        "Hi Jan, how are you?",
        "Is it version 2025-04?",
        "30 February",
        "2026-02-30",
        "99 March",
    )
    for text in (
        *nowhere,
        "may I march on?",
        "Maybe Augustus decided",
        "Marching Junes",
        "1999",
        "2023-13-01",
        "",
    ):
        assert named_dates(text) == (), text


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
def test_the_days_between_two_dates_are_named_and_those_of_last_week_as_seen_from_today(
    text, first, last
):
    assert named_dates(text, date(2026, 3, 11)) == ((first, last),)


def test_two_days_alone_are_no_span_a_weekday_is_no_day_and_nor_is_one_where_nothing_is_asked():
    assert named_dates("on 4 March and 6 March") == (((0, 3, 4),) * 2, ((0, 3, 6),) * 2)
    assert named_dates("on Monday", date(2026, 3, 11)) == named_dates("yesterday") == ()
    assert (
        len(Question.of("Was it on 5 March?").dates),
        Question.of("I leave on 5 March.").dates,
    ) == (1, ())


def test_every_day_of_a_span_counts_as_one_that_is_named():
    days = np.array([20260301, 20260304, 20260312, 20260320, 20260420, 0], np.int32)
    worth = dated(days, named_dates("between 4 and 20 March"))
    assert worth[1:4].tolist() == [2, 2, 2]
    assert 2 > worth[0] > 1 > worth[4] > worth[5] == 0
    assert dated(days + 1, named_dates("from 20 April to 2 March")).tolist()[::4] == [2, 2]


# One text, the last but one of six, differs in one way; the part that knows this way must set it
# apart.
@pytest.mark.parametrize(
    ("part", "changed", "question", "sign"),
    [
        ("length", {"costs": [20, 20, 20, 20, 90, 20]}, ASKED, -1),
        ("variety", {"distinct": [5, 5, 5, 5, 9, 5]}, ASKED, 1),
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
    weights = replace(NOTHING, **{part: 1.0})
    keys = sign * rank(texts(6, **changed), question, np.zeros(6), weights=weights).keys
    assert keys.argmax() == 4
    assert np.ptp(np.delete(keys, 4)) == pytest.approx(0)


def test_neighbours_of_a_hit_gain_within_its_session_only():
    known = texts(8, session=[0, 0, 0, 0, 1, 1, 1, 1])
    lent = rank(known, ASKED, z_scores(one_hot(8, 3))).components["neighbours"]
    assert lent[1] == pytest.approx(lent[2])
    assert lent[2] > lent[0] == pytest.approx(lent[4])


def like(vectors):
    """Cosines of all vectors with the weighted mean of some."""
    return lambda numbers, weights: vectors @ (weights @ vectors[numbers])


def test_what_is_like_the_most_relevant_texts_gains(monkeypatch):
    monkeypatch.setattr("langchain_ctxbudget.search.ranking.FIRST_FOUND", 1)
    vectors = np.array([[1.0, 0.0], [0.0, 1.0], [0.8, 0.6], [0.0, 1.0]])
    asked = (texts(4, session=range(4)), ASKED, z_scores(np.array([5.0, 0.0, 0.0, 0.0])))
    plain = rank(*asked)
    fed = rank(*asked, alike=like(vectors))
    gains = fed.relevance - plain.relevance
    assert gains[0] > gains[2] > gains[1] == gains[3]
    assert fed.keys[2] > fed.keys[1]


def test_a_name_that_is_spelled_nearly_so_is_meant_where_the_word_is_no_other() -> None:
    names = ["Melanie Ross", "Bob", "user"]
    assert spelled("Did Melany and bob swim?", names, {"swim"}) == "Did Melanie and bob swim?"
    for text in ("Did Melany swim?", "Did melany swim?", "Did Melons swim?", "Did Bib swim?"):
        assert spelled(text, names, {"melani"}) == text
    assert Question.of(spelled("What did Mellanie say?", names, {}), names).speakers == {0}


def test_a_users_instruction_that_is_to_hold_from_now_on_tells_of_the_user() -> None:
    for text in (
        "Thanks! Always give me dates.",
        "Whenever I ask about prices, use euros.",
        "From now on be brief.",
    ):
        assert first_person(text, from_user=True) == 1, text
        assert first_person(text) < 0.5
    for text in (
        "We always go there.",
        "Never mind.",
        "When I was ten, it rained.",
        "`\n" * 50_000,
    ):
        assert first_person(text, from_user=True) < 1, text


def test_only_what_asks_nothing_and_names_nobody_is_small_talk():
    talk = "ok; thanks, see you tomorrow!; no problem, see you at 5; Nice to meet you; Have a great weekend; let me know"
    wanted = (
        "Let's talk about Ana; So, who is Bob; is it Monday or Tuesday; should I meet Ana on Friday; week 3; it is;"
        " why not; go on, June; and where do I go on Sunday; Please do the same for May; Thanks. And who is she"
    )
    for said, is_small_talk in ((talk, True), (wanted, False)):
        for words in said.split(";"):
            assert (
                Question.of(words, ("Ana", "Bob", "June", "user")).is_small_talk == is_small_talk
            ), words


def test_who_asks_about_the_speakers_or_a_thing_that_they_know_refers_to_what_was_said():
    theirs = "Which day do I fly out?; What did you suggest?; Is it in the hopper?; Where do we eat?; What is my job?"
    general = (
        "How do I boil an egg?; Can you tell me the price of oil?; Who wrote the Iliad?; I clean the hopper daily; "
        "Why do we yawn?; Did you sleep well?; What is the hopper car?; How do they make glass?; Write to my boss, ok?"
    )
    for said, refers in ((theirs, True), (general, False)):
        for words in said.split(";"):
            assert Question.of(words).refers_to({"hopper", "price"}) is refers, words
    assert not Question.of(".\n," * 40_000).refers_to(())  # at once
