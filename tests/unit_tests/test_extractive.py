"""Holds summaries to the conversation's own sentences.

What is kept of messages, what a summary chooses, what a node of the tree keeps.
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
SOURCE_AND_TEXTS = st.lists(st.tuples(TEXTS, st.booleans()), max_size=25)


def line(text, position=0, *, from_user=False):
    return Line(position=position, speaker="ada", date="2024-05-01", text=text, from_user=from_user)


def lines_of(texts):
    return [line(text, position) for position, text in enumerate(texts)]


@st.composite
def drawn_lines(draw):
    texts = draw(SOURCE_AND_TEXTS)
    return [
        line(text, position, from_user=from_user)
        for position, (text, from_user) in enumerate(texts)
    ]


def texts_of(sentences):
    return [sentence.text for sentence in sentences]


def kinds_of_sentences():
    """Pairs of a kind and a sentence of that kind."""
    file = Path(__file__).parents[1] / "data/kinds.txt"
    cases = []
    for number, row in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        kind, _, sentence = row.partition(" | ")
        cases.append(pytest.param(kind, sentence, id=f"line {number}"))
    return cases


@pytest.mark.parametrize(("kind", "sentence"), kinds_of_sentences())
def test_a_sentence_decides_leaves_open_or_is_plain(kind, sentence):
    assert kind_of(sentence) == kind


@pytest.mark.parametrize(
    "small_talk",
    [
        "Hello there, my friend!",
        "Thank you so much!",
        "Let me know if there is anything else.",
        "Oh no.",
    ],
)
def test_small_talk_is_not_kept(small_talk):
    kept = keep_sentences([line(f"{small_talk} My bike is blue.")])

    assert texts_of(kept) == ["My bike is blue."]


def test_a_short_agreement_is_kept():
    assert texts_of(keep_sentences([line("Agreed: Friday.")])) == ["Agreed: Friday."]


BLUE_BIKE = line("My bike is blue.")


@pytest.mark.parametrize(
    ("more", "less"),
    [
        pytest.param(
            line("My bike is blue as ever."),
            line("It is blue as ever, my bike."),
            id="a sentence that stands alone",
        ),
        pytest.param(BLUE_BIKE, replace(BLUE_BIKE, speaker="tool paint"), id="not a tool's"),
    ],
)
def test_what_matters_weighs_more(more, less):
    [heavier] = keep_sentences([more])
    [lighter] = keep_sentences([less])

    assert heavier.score > lighter.score


@pytest.mark.parametrize(
    "sentence",
    ["Ich wohne jetzt in Bonn.", "我的猫叫汤姆，住在谷仓里。", "my cat is called zoe"],
    ids=["German", "Chinese", "no capitals"],
)
def test_sentences_of_other_languages_and_without_capitals_are_kept(sentence):
    assert texts_of(keep_sentences([line(sentence, from_user=True)])) == [sentence]


def check_scores(kept, everything):
    """No sentence that is left out scores more than one that is kept."""
    scores = [sentence.score for sentence in kept]
    scores_left_out = [sentence.score for sentence in everything if sentence not in kept]
    if scores and scores_left_out:
        assert max(scores_left_out) <= min(scores)


@given(drawn_lines(), st.integers(0, 10))
def test_kept_sentences_are_the_best_of_the_messages_own_in_order(lines, limit):
    kept = keep_sentences(lines, limit)
    everything = keep_sentences(lines, 10_000)

    assert len(kept) <= limit
    assert all(
        (first.position, first.order) < (second.position, second.order)
        for first, second in pairwise(kept)
    )
    for sentence in kept:
        assert sentence.text in " ".join(lines[sentence.position].text.split())
    check_scores(kept, everything)


def test_a_choice_says_nothing_twice():
    kept = keep_sentences(lines_of(["My bike is blue.", "My bike is blue."]))

    assert choose(kept, [5], 100) == [0]


def test_a_choice_skips_what_does_not_fit():
    kept = keep_sentences(lines_of(["We decided on Redis 7 in main.py.", "My bike is blue."]))

    assert choose(kept, [50, 5], 10) == [1]


def test_a_decision_is_chosen_from_more_than_the_pool_holds():
    texts = [f"I keep token{number} in a box." for number in range(POOL)]
    kept = keep_sentences(lines_of([*texts, "We decided on Redis."]), 10**6)

    assert POOL in choose(kept, [1] * len(kept), 5)


def terms_of(sentences):
    terms = set()
    for sentence in sentences:
        terms.update(sentence.terms)
    return terms


@given(
    drawn_lines(), st.lists(st.integers(0, 30), min_size=200, max_size=200), st.integers(-5, 200)
)
def test_a_choice_is_within_its_budget_and_covers_all_it_can(lines, drawn_costs, budget):
    kept = keep_sentences(lines, 200)
    costs = drawn_costs[: len(kept)]

    chosen = choose(kept, costs, budget)
    chosen_with_room = choose(kept, costs, sum(costs))

    assert sum(costs[number] for number in chosen) <= max(0, budget)
    assert chosen == sorted(set(chosen))
    assert chosen == choose(kept, costs, budget)
    assert terms_of([kept[number] for number in chosen_with_room]) == terms_of(kept)


def digests_of(texts):
    """The digests of spans of twenty messages."""
    lines = lines_of(texts)
    return [
        digest_messages(lines[first : first + 20], first, first + 20)
        for first in range(0, len(lines), 20)
    ]


def merged_by_five(nodes):
    return [merge(nodes[first : first + 5]) for first in range(0, len(nodes), 5)]


@pytest.fixture(scope="module")
def levels():
    """The levels of digests of 500 messages, from the spans to one node."""
    texts = [
        f"The oak{number} of street {number} costs {number} pounds in oak{number + 1} town."
        for number in range(500)
    ]
    texts[33] = "We decided on Redis."
    texts[34] = "Read b.py."
    texts[50] = "Read b.py again, please."

    nodes = digests_of(texts)
    levels = [nodes]
    while len(nodes) > 1:
        nodes = merged_by_five(nodes)
        levels.append(nodes)
    return levels


@pytest.mark.parametrize("level", [1, 2])
def test_a_digest_is_no_larger_at_any_level(levels, level):
    for node in levels[level]:
        assert len(node.sentences) <= MOST_KEPT
        assert sum(len(sentence.text) for sentence in node.sentences) <= CHARACTERS_PER_NODE


def test_a_digest_of_25_spans_stands_for_all_their_messages(levels):
    [top] = levels[2]

    assert top.first == 0
    assert top.end == 500
    assert top.level == 3


def test_a_digest_keeps_a_decision(levels):
    [top] = levels[-1]

    assert "We decided on Redis." in texts_of(top.sentences)


def test_a_digest_keeps_names_of_files(levels):
    [top] = levels[-1]

    assert "b.py" in top.artifacts


def test_a_digest_keeps_the_order_of_messages(levels):
    [top] = levels[-1]

    positions = [sentence.position for sentence in top.sentences]
    assert positions == sorted(positions)


SCRIPT = """
from langchain_ctxbudget.history.arc import OpenQuestions, arc_of
from langchain_ctxbudget.history.extractive import (
    Line, choose, digest_messages, keep_sentences, merge
)

words = [f"w{number * 7919 % 997}x" for number in range(4000)]

def text(number):
    start = number * 9 % 3000
    words_of_message = " ".join(words[start : start + 12])
    subject = words[number * 13 % 4000]
    place = words[number * 17 % 4000]
    return (
        f"We decided on {words_of_message}. {words_of_message}, {words_of_message}. "
        f"[OPEN] Which {subject} of {place}?"
    )

lines = []
for number in range(200):
    speaker = "ab"[number % 2]
    lines.append(Line(number, speaker, None, text(number), number % 2 == 0))
digests = []
for first in range(0, 200, 20):
    digests.append(digest_messages(lines[first : first + 20], first, first + 20))

kept = keep_sentences(lines, 10_000)
costs = [1 + number % 3 for number in range(len(kept))]
print(choose(kept, costs, 150))

for sentence in merge(digests[:5]).sentences:
    print(sentence.text)

arc, _ = arc_of(
    digests,
    "multi_level",
    open_questions=OpenQuestions().read(lines).alive,
    focus=lines[-8:],
    recent=(),
    count=len,
    budget_tokens=10**6,
)
print(arc)
"""


def printed(seed):
    """What the script prints where sets are ordered by this seed."""
    return subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env={**os.environ, "PYTHONHASHSEED": seed},
        capture_output=True,
        text=True,
        check=True,
    ).stdout


@pytest.mark.slow
def test_neither_summary_nor_arc_depends_on_the_order_of_sets():
    output = printed("1")

    assert output != ""
    assert output == printed("2")
