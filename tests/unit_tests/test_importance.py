"""How important a text is, and what kind of sentence it is."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from langchain_ctxbudget.core.importance import Kind, importance, kind_of


def score(text):
    return importance(text, from_user=False)


@pytest.mark.parametrize("text", ["We decided on Redis.", "Let's go with blue.", "AGREED: Friday."])
def test_a_decision_is_recognised(text):
    assert kind_of(text) is Kind.DECISION


@pytest.mark.parametrize("text", ["[OPEN] Which database?", "Still to be decided: the colour.", "The date is TBD."])
def test_an_open_question_is_recognised(text):
    assert kind_of(text) is Kind.OPEN


def test_an_open_question_about_a_decision_is_open():
    assert kind_of("We still need to decide on the final colour.") is Kind.OPEN


@pytest.mark.parametrize("text", ["Have we decided?", "Have we decided？", "My bike is blue.", ""])
def test_a_question_or_a_plain_sentence_is_plain(text):
    assert kind_of(text) is Kind.PLAIN


@pytest.mark.parametrize(
    ("more", "less"),
    [
        ("one two three four", "one two"),
        ("it is red?", "it is red."),
        ("it is red？", "it is red."),
        ("We decided on it.", "We dreamed on it."),
        ("Broken is the thing.", "Lovely is the thing."),
        ("it is 5 now", "it is so now"),
        ("and then Berlin came", "and then summer came"),
        ("see main.py for it", "see mainpy for it"),
        ("call run() for it", "call run for it"),
        ("use `x` for it", "use x for it"),
        ("- one\n- two", "one\ntwo"),
        ("to be decided now", "to be painted now"),
        ("```\nx y\n```", "\nx y\n"),
        ("我住在柏林的一个小房子里", "我住"),
    ],
)
def test_what_a_summary_must_not_lose_counts(more, less):
    assert score(more) > score(less)


def test_the_users_own_words_count_more():
    assert importance("My bike is blue", from_user=True) == score("My bike is blue") + 5


@settings(deadline=None)
@given(st.text())
def test_a_score_is_never_negative(text):
    assert score(text) >= 0


@pytest.mark.parametrize("text", ["a", "a-", "a/b", "\n", " ", "\n ", "`", "` ", "_", "a_-/", "(", "A", "a A"])
def test_a_long_run_is_scored_in_one_pass(text):
    assert score(text * (1_000_000 // len(text))) >= 0  # quadratic time would take hours here
