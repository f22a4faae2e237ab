"""Summaries made of the conversation's own sentences.

What is kept, what a summary chooses, what a node keeps.
"""

import os
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_ctxbudget.history import Line, choose, keep_sentences
from langchain_ctxbudget.history.extractive import (
    CHARACTERS_PER_NODE,
    MOST_KEPT,
    POOL,
    digest_messages,
    kind_of,
    merge,
)

WORDS = st.sampled_from(
    "bike blue decided Redis 42 open question Berlin main.py the of error".split()
)
TEXTS = st.lists(st.lists(WORDS, max_size=8).map(" ".join), max_size=5).map(". ".join)


def line(text, position=0, *, from_user=False):
    return Line(position=position, speaker="ada", date="2024-05-01", text=text, from_user=from_user)


def messages(*texts):
    return [line(text, i) for i, text in enumerate(texts)]


LINES = st.lists(st.tuples(TEXTS, st.booleans()), max_size=25).map(
    lambda texts: [line(text, i, from_user=user) for i, (text, user) in enumerate(texts)]
)

KINDS = (Path(__file__).parents[1] / "data/kinds.txt").read_text(encoding="utf-8").splitlines()


def test_a_sentence_decides_leaves_open_or_is_plain():
    for line in KINDS:
        kind, _, text = line.partition(" | ")
        assert kind_of(text) == kind, text


def test_small_talk_is_not_kept_and_what_matters_weighs_more():
    for said in [
        "Hello there, my friend!",
        "Thank you so much!",
        "Let me know if there is anything else.",
        "Oh no.",
    ]:
        assert [kept.text for kept in keep_sentences([line(f"{said} My bike is blue.")])] == [
            "My bike is blue."
        ]
    assert [kept.text for kept in keep_sentences([line("Agreed: Friday.")])] == ["Agreed: Friday."]
    for more, less in [
        (line("My bike is blue as ever."), line("It is blue as ever, my bike.")),
        (line("My bike is blue."), replace(line("My bike is blue."), speaker="tool paint")),
    ]:
        [first], [second] = keep_sentences([more]), keep_sentences([less])
        assert first.score > second.score, (more.text, less.text)


def test_whole_sentences_of_other_languages_and_without_capitals_are_kept():
    for text in ["Ich wohne jetzt in Bonn.", "我的猫叫汤姆，住在谷仓里。", "my cat is called zoe"]:
        assert [kept.text for kept in keep_sentences([line(text, from_user=True)])] == [text]


@given(LINES, st.integers(0, 10))
def test_kept_sentences_are_the_best_of_the_messages_own_in_order(lines, limit):
    everything = keep_sentences(lines, 10_000)
    kept = keep_sentences(lines, limit)
    assert len(kept) <= limit
    assert all((a.position, a.order) < (b.position, b.order) for a, b in pairwise(kept))
    assert all(
        sentence.text in " ".join(lines[sentence.position].text.split()) for sentence in kept
    )
    left_out = [s.score for s in everything if s not in kept]
    assert not kept or not left_out or max(left_out) <= min(s.score for s in kept)


def test_a_choice_says_nothing_twice_and_skips_what_does_not_fit():
    assert choose(keep_sentences(messages("My bike is blue.", "My bike is blue.")), [5], 100) == [0]
    assert choose(
        keep_sentences(messages("We decided on Redis 7 in main.py.", "My bike is blue.")),
        [50, 5],
        10,
    ) == [1]
    many = [line(f"I keep token{i} in a box.", i) for i in range(POOL)]
    kept = keep_sentences([*many, line("We decided on Redis.", POOL)], 10**6)
    assert POOL in choose(kept, [1] * len(kept), 5)


@given(LINES, st.lists(st.integers(0, 30), min_size=200, max_size=200), st.integers(-5, 200))
def test_a_choice_is_within_its_budget_in_order_and_covers_all_it_can(lines, costs, budget):
    kept = keep_sentences(lines, 200)
    costs = costs[: len(kept)]
    chosen = choose(kept, costs, budget)
    assert sum(costs[i] for i in chosen) <= max(0, budget)
    assert chosen == sorted(set(chosen)) == choose(kept, costs, budget)
    everything = choose(kept, costs, sum(costs))
    assert {t for i in everything for t in kept[i].terms} == {t for s in kept for t in s.terms}


def digests(texts, size=5):
    lines = messages(*texts)
    return [digest_messages(lines[i : i + size], i, i + size) for i in range(0, len(lines), size)]


def test_a_digest_is_no_larger_at_any_level_and_keeps_decisions_and_names():
    texts = [f"The oak{i} of street {i} costs {i} pounds in oak{i + 1} town." for i in range(500)]
    texts[33], texts[34], texts[50] = (
        "We decided on Redis.",
        "Read b.py.",
        "Read b.py again, please.",
    )
    level = digests(texts, size=20)
    while len(level) > 1:
        level = [merge(level[i : i + 5]) for i in range(0, len(level), 5)]
        assert all(len(node.sentences) <= MOST_KEPT for node in level)
        assert all(
            sum(len(s.text) for s in node.sentences) <= CHARACTERS_PER_NODE for node in level
        )
    [top] = level
    assert (top.first, top.end, top.level) == (0, 500, 3)
    assert "We decided on Redis." in [sentence.text for sentence in top.sentences]
    assert "b.py" in top.artifacts
    assert [s.position for s in top.sentences] == sorted(s.position for s in top.sentences)


SCRIPT = """
from langchain_ctxbudget.history.arc import OpenQuestions, arc_of
from langchain_ctxbudget.history.extractive import Line, choose, digest_messages, keep_sentences, merge
words = [f"w{i * 7919 % 997}x" for i in range(4000)]
def text(i):
    said = " ".join(words[i * 9 % 3000 : i * 9 % 3000 + 12])
    return f"We decided on {said}. {said}, {said}. [OPEN] Which {words[i * 13 % 4000]} of {words[i * 17 % 4000]}?"
lines = [Line(i, "ab"[i % 2], None, text(i), i % 2 == 0) for i in range(200)]
digests = [digest_messages(lines[i : i + 20], i, i + 20) for i in range(0, 200, 20)]
kept = keep_sentences(lines, 10_000)
print(choose(kept, [1 + i % 3 for i in range(len(kept))], 150), [s.text for s in merge(digests[:5]).sentences])
given = {"open_questions": OpenQuestions().read(lines).alive, "focus": lines[-8:], "recent": ()}
print(arc_of(digests, "multi_level", **given, count=len, budget_tokens=10**6)[0])
"""


@pytest.mark.slow
def test_neither_summary_nor_arc_depends_on_the_order_of_sets():
    def printed(seed):
        env = {**os.environ, "PYTHONHASHSEED": seed}
        return subprocess.run(
            [sys.executable, "-c", SCRIPT], env=env, capture_output=True, text=True, check=True
        ).stdout

    assert printed("1") == printed("2") != ""
