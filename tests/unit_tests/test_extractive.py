"""Summaries made of the conversation's own sentences."""

import os
import subprocess
import sys
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from langchain_ctxbudget.core.extractive import (
    KEPT_PER_SEGMENT,
    MAX_SENTENCE_CHARACTERS,
    POOL,
    Line,
    choose,
    keep_sentences,
)
from langchain_ctxbudget.core.importance import Kind

WORDS = st.sampled_from("bike blue decided Redis 42 open question Berlin main.py the of error".split())
TEXTS = st.lists(st.lists(WORDS, max_size=8).map(" ".join), max_size=5).map(". ".join)


def line(text, position=0, *, from_user=False):
    return Line(position=position, speaker="ada", date="2024-05-01", text=text, from_user=from_user)


LINES = st.lists(st.tuples(TEXTS, st.booleans()), max_size=25).map(
    lambda texts: [line(text, i, from_user=user) for i, (text, user) in enumerate(texts)]
)


def test_a_sentence_says_where_it_comes_from():
    [_, second] = keep_sentences([line("Nothing to see here."), line("We decided on Redis.", 7)])
    assert (second.position, second.order, second.speaker, second.date, second.text, second.kind) == (
        7,
        0,
        "ada",
        "2024-05-01",
        "We decided on Redis.",
        Kind.DECISION,
    )


def test_a_sentence_of_two_words_is_not_kept():
    assert keep_sentences([line("Thanks! Sounds good. All right then.")])[0].text == "All right then."


def test_a_sentence_without_spaces_is_kept():
    [kept] = keep_sentences([line("谢谢！我住在柏林的一个小房子里。")])
    assert kept.text == "我住在柏林的一个小房子里。"


def test_the_most_important_sentences_are_kept():
    texts = [line(f"well then so {i}", i) for i in range(40)]
    texts[20] = line("We decided on Redis 7 for the cache.", 20)
    assert 20 in [sentence.position for sentence in keep_sentences(texts, limit=3)]


def test_a_long_sentence_ends_in_an_ellipsis():
    [kept] = keep_sentences([line("word " * 1000)])
    assert len(kept.text) <= MAX_SENTENCE_CHARACTERS
    assert kept.text.endswith("…")


def test_what_was_cut_off_a_sentence_does_not_make_it_important():
    long, cut = "word " * 1000 + "decided " * 500, "word " * 1000
    [first], [second] = keep_sentences([line(long)]), keep_sentences([line(cut)])
    assert first.score == second.score


def test_a_segment_of_one_huge_message_keeps_only_so_many():
    assert len(keep_sentences([line("I like this word. " * 20_000)])) == KEPT_PER_SEGMENT


@settings(deadline=None)
@given(LINES, st.integers(0, 10))
def test_kept_sentences_are_few_and_in_order(lines, limit):
    kept = keep_sentences(lines, limit)
    assert len(kept) <= limit
    assert all((a.position, a.order) < (b.position, b.order) for a, b in pairwise(kept))


@settings(deadline=None)
@given(LINES)
def test_kept_sentences_are_the_messages_own(lines):
    assert all(sentence.text in " ".join(lines[sentence.position].text.split()) for sentence in keep_sentences(lines))


@settings(deadline=None)
@given(LINES)
def test_no_sentence_left_out_scores_higher_than_one_kept(lines):
    everything, kept = keep_sentences(lines, 10_000), keep_sentences(lines, 5)
    left_out = [s for s in everything if s not in kept]
    assert not kept or not left_out or max(s.score for s in left_out) <= min(s.score for s in kept)


@st.composite
def priced(draw):
    kept = keep_sentences(draw(LINES), 10_000)
    costs = draw(st.lists(st.integers(0, 30), min_size=len(kept), max_size=len(kept)))
    return kept, costs


@settings(deadline=None)
@given(priced(), st.integers(-5, 200))
def test_a_choice_is_within_its_budget(sentences, budget):
    kept, costs = sentences
    assert sum(costs[i] for i in choose(kept, costs, budget)) <= max(0, budget)


@settings(deadline=None)
@given(priced(), st.integers(0, 200))
def test_a_choice_is_in_order_and_has_nothing_twice(sentences, budget):
    chosen = choose(*sentences, budget)
    assert chosen == sorted(set(chosen))


@settings(deadline=None)
@given(priced(), st.integers(0, 200))
def test_a_choice_is_the_same_every_time(sentences, budget):
    assert choose(*sentences, budget) == choose(*sentences, budget)


@settings(deadline=None)
@given(priced())
def test_with_room_for_all_every_term_is_covered(sentences):
    kept, costs = sentences
    chosen = choose(kept, costs, sum(costs))
    assert {t for i in chosen for t in kept[i].terms} == {t for s in kept for t in s.terms}


def test_a_sentence_that_says_nothing_new_is_not_chosen():
    kept = keep_sentences([line("My bike is blue."), line("My bike is blue.", 1)])
    assert choose(kept, [5, 5], 100) == [0]


def test_a_sentence_that_does_not_fit_leaves_room_for_others():
    kept = keep_sentences([line("We decided on Redis 7 in main.py."), line("My bike is blue.", 1)])
    assert choose(kept, [50, 5], 10) == [1]


def test_of_more_sentences_than_the_pool_the_most_important_are_chosen_from():
    kept = keep_sentences(
        [line(f"token{i} is here", i) for i in range(POOL)] + [line("We decided on Redis.", POOL)], 10**6
    )
    assert POOL in choose(kept, [1] * len(kept), 5)


SCRIPT = """
from langchain_ctxbudget.core.extractive import Line, choose, keep_sentences
words = [f"w{i * 7919 % 997}x" for i in range(4000)]
lines = [Line(i, "a", None, " ".join(words[i * 9 % 3000 : i * 9 % 3000 + 12]), False) for i in range(300)]
kept = keep_sentences(lines, 10_000)
print(choose(kept, [1 + i % 3 for i in range(len(kept))], 150))
"""


def test_a_choice_does_not_depend_on_the_order_of_sets():
    answers = {
        subprocess.run(
            [sys.executable, "-c", SCRIPT],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(answers) == 1
