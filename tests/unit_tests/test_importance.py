"""How important a text is, and what kind of sentence it is."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from langchain_ctxbudget.core.importance import (
    _DECIDES,
    _DECIDES_PARTS,
    _OPEN,
    _OPEN_PARTS,
    Kind,
    _has_any,
    importance,
    is_filler,
    is_question,
    kind_of,
)


def score(text):
    return importance(text, from_user=False)


DECISIONS = [
    "We decided on Redis.",
    "Let's go with blue.",
    "AGREED: Friday.",
    "Link it is.",
    "Two years it is, and no addresses.",
    "New launch date: Saturday 17 October.",
    "Note it as final: no late fees.",
    "Then they voted: no late fees.",
    "Recorded: launch on 17 October.",
    "Decided.",
]
OPEN = [
    "[OPEN] Which database?",
    "Still to be decided: the colour.",
    "The date is TBD.",
    "Write it down as open.",
    "It's an open question, not a no.",
    "Put R. Dunne on the open list.",
    "We haven't decided yet.",
    "Mark it open: Owen to confirm the closure.",
    "Open questions:",
]
PLAIN = [
    "What's still open?",
    "That closes the oldest open question on the list.",
    "The shop is open on Sunday.",
    "Should we open on Sundays as well?",
    "That's how it is.",
    "You should not order before the numbering is settled.",
    "Ask me if they agreed to it.",
    "It's no longer open.",
]


@pytest.mark.parametrize("text", DECISIONS)
def test_a_decision_is_recognised(text):
    assert kind_of(text) is Kind.DECISION


@pytest.mark.parametrize("text", OPEN)
def test_an_open_question_is_recognised(text):
    assert kind_of(text) is Kind.OPEN


def test_an_open_question_about_a_decision_is_open():
    assert kind_of("We still need to decide on the final colour.") is Kind.OPEN


@pytest.mark.parametrize("text", ["Have we decided?", "Have we decided？", "My bike is blue.", "", *PLAIN])
def test_a_question_or_a_plain_sentence_is_plain(text):
    assert kind_of(text) is Kind.PLAIN


PIECES = st.sampled_from(" ".join([*DECISIONS, *OPEN, *PLAIN]).split())


@settings(deadline=None)
@given(st.lists(PIECES, max_size=8).map(" ".join))
def test_looking_for_parts_first_finds_no_less(text):
    assert _has_any(text, _OPEN_PARTS) or not _OPEN.search(text)
    assert _has_any(text, _DECIDES_PARTS) or not _DECIDES.search(text)


@pytest.mark.parametrize("text", ["Hello there!", "Thank you, all the best.", "Sure, let me look at it."])
def test_a_greeting_is_filler(text):
    assert is_filler(text)


@pytest.mark.parametrize(
    "text", ["Thanks, we sold 40 of them.", "Sure, ask Nadia about it.", "Hey, it crashed.", "My bike."]
)
def test_a_greeting_that_says_something_is_no_filler(text):
    assert not is_filler(text)


@pytest.mark.parametrize(
    ("text", "asks"), [("Why?", True), ('"Why?"', True), ("为什么？", True), ("Why.", False), ("", False)]
)
def test_a_question_ends_in_its_mark(text, asks):
    assert is_question(text) is asks


def test_a_number_of_words_that_is_known_is_taken():
    assert importance("one two three", from_user=False, words=3) == score("one two three")


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
