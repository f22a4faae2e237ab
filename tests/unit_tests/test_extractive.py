"""Holds summaries to the conversation's own sentences.

What is kept of messages, what a summary chooses, what a node of the tree keeps.
"""

import os
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_ctxbudget.history import Line, choose, keep_sentences
from langchain_ctxbudget.history.extractive import (
    CHARACTERS_PER_NODE,
    MOST_CANDIDATES,
    MOST_KEPT,
    digest_messages,
    merge,
)
from langchain_ctxbudget.messages import prose_spans
from langchain_ctxbudget.sentences import Label, Said

WORDS = st.sampled_from(
    "bike blue decided Redis 42 open question Berlin main.py the of error".split()
)
TEXTS = st.lists(st.lists(WORDS, max_size=8).map(" ".join), max_size=5).map(". ".join)
SOURCE_AND_TEXTS = st.lists(st.tuples(TEXTS, st.booleans()), max_size=25)


def line(text, position=0, *, from_user=False, label=None, speaker="ada"):
    """A message; every sentence of a user's is what the label says."""
    said = [Said(label, begin, end, 0.9) for begin, end in prose_spans(text) if label is not None]
    return Line(
        position=position,
        speaker=speaker,
        date="2024-05-01",
        text=text,
        from_user=from_user,
        own_words=text if from_user else "",
        said=tuple(said) if from_user else (),
    )


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


def of_user(text, label=None):
    """The texts that are kept of a user's message."""
    return texts_of(keep_sentences([line(text, from_user=True, label=label)]))


@pytest.mark.parametrize(
    ("text", "label"),
    [
        pytest.param("We keep the monolith for another year.", Label.DECISION, id="a decision"),
        pytest.param("my cat is called zoe", Label.STATEMENT, id="a statement without a mark"),
        pytest.param("The train to Leeds was late.", None, id="a name"),
        pytest.param("The rent goes up by 40 euros.", None, id="a number"),
        pytest.param("Please rename it to load_all() everywhere.", None, id="code"),
        pytest.param(
            "How do wind turbines stand still in heavy storms?", Label.QUESTION, id="a question"
        ),
        pytest.param("我们的猫昨天在谷仓里睡了一整天。", None, id="a script without capitals"),
    ],
)
def test_what_tells_something_is_kept(text, label):
    assert of_user(text, label) == [text]


@pytest.mark.parametrize(
    ("text", "label"),
    [
        pytest.param("Thanks to you and to Berlin, see you at 7.", Label.COURTESY, id="courtesy"),
        pytest.param("Never push to Main before 7.", Label.RULE, id="a rule stands elsewhere"),
        pytest.param("Let's do it then.", Label.DECISION, id="a decision about nothing"),
        pytest.param("What do you think?", Label.QUESTION, id="a question about nothing"),
        pytest.param("The soup was a little cold.", None, id="neither a name nor a number"),
        pytest.param("Ready for Phase 2.", None, id="a stub"),
        pytest.param("That is in Berlin, with 7 rooms.", Label.STATEMENT, id="leans on another"),
        pytest.param(",,Rent Berlin,$15.07 ,$18.32 ,$18.32 ,$18.", None, id="a row of a table"),
    ],
)
def test_what_tells_nothing_is_not_kept(text, label):
    assert of_user(text, label) == []


@pytest.mark.parametrize(
    "text",
    [
        "Which room of the Berlin office do you want?",
        "Thank you so much!",
        "I am glad that I could help you.",
    ],
)
def test_fillers_of_an_assistant_are_not_kept(text):
    assert texts_of(keep_sentences([line(text)])) == []


def test_an_assistant_needs_a_number_where_a_person_needs_a_name():
    named = "The train to Leeds leaves in the morning."
    timed = "The train to Leeds leaves at 7:40."
    role = "assistant"

    assert texts_of(keep_sentences([line(named, speaker="Bob")])) == [named]
    assert texts_of(keep_sentences([line(named, speaker=role), line(timed, speaker=role)])) == [
        timed
    ]


def test_who_is_addressed_is_no_name():
    praise = line("Wow Ada, the pictures look great.", speaker="Bob", from_user=True)
    request = line("Send the pictures to Ada.", speaker="Eve", from_user=True)

    assert keep_sentences([praise, line("Yes.", speaker="Ada Lund")]) == ()
    assert texts_of(keep_sentences([request])) == ["Send the pictures to Ada."]


def test_the_middle_of_a_long_message_is_not_kept():
    texts = [f"Room {number} is in Berlin, behind the market." for number in range(7)]

    assert texts_of(keep_sentences([line(" ".join(texts))])) == [*texts[:2], *texts[-2:]]


def test_what_stands_before_a_call_is_not_kept():
    announced = replace(line("Now the tests of Berlin run."), calls_tools=True)

    assert keep_sentences([announced]) == ()


NAMED = line("The train to Leeds was late.", from_user=True)


@pytest.mark.parametrize(
    ("more", "less"),
    [
        pytest.param(
            line("We take the train to Leeds.", from_user=True, label=Label.DECISION),
            line("We take the train to Leeds.", from_user=True, label=Label.STATEMENT),
            id="a decision, then a statement",
        ),
        pytest.param(
            line("We take the train to Leeds.", from_user=True, label=Label.STATEMENT),
            NAMED,
            id="a statement, then a name",
        ),
        pytest.param(NAMED, replace(NAMED, from_user=False), id="a user, then another"),
        pytest.param(
            replace(NAMED, from_user=False),
            replace(NAMED, from_user=False, speaker="tool trains"),
            id="an assistant, then a tool",
        ),
    ],
)
def test_what_matters_weighs_more(more, less):
    [heavier] = keep_sentences([more])
    [lighter] = keep_sentences([less])

    assert heavier.score > lighter.score


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
    kept = keep_sentences(lines_of(["Bob's bike is in Leeds.", "Bob's bike is in Leeds."]))

    assert choose(kept, [5], 100) == [0]


def test_a_choice_skips_what_does_not_fit():
    kept = keep_sentences(lines_of(["We run Redis 7 in main.py.", "The bike is in Leeds."]))

    assert choose(kept, [50, 5], 10) == [1]


def test_a_decision_is_chosen_from_more_than_the_pool_holds():
    texts = [f"I keep token{number} in a box." for number in range(MOST_CANDIDATES)]
    decision = line(
        "We take Redis for the cache.", MOST_CANDIDATES, from_user=True, label=Label.DECISION
    )
    kept = keep_sentences([*lines_of(texts), decision], 10**6)

    assert MOST_CANDIDATES in choose(kept, [1] * len(kept), 5)


def terms_of(sentences):
    terms = set()
    for sentence in sentences:
        terms.update(sentence.terms)
    return terms


@pytest.mark.slow
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


def digests_of(lines):
    """The digests of spans of twenty messages."""
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
    texts[34] = "Read b.py."
    texts[50] = "Read b.py again, please."
    lines = lines_of(texts)
    lines[33] = line("We take Redis for the cache.", 33, from_user=True, label=Label.DECISION)

    nodes = digests_of(lines)
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

    assert "We take Redis for the cache." in texts_of(top.sentences)


def test_a_digest_keeps_names_of_files(levels):
    [top] = levels[-1]

    assert "b.py" in top.artifacts


def test_a_digest_keeps_the_order_of_messages(levels):
    [top] = levels[-1]

    positions = [sentence.position for sentence in top.sentences]
    assert positions == sorted(positions)


SCRIPT = """
from langchain_ctxbudget.history.arc import arc_of
from langchain_ctxbudget.history.extractive import (
    Line, choose, digest_messages, keep_sentences, merge
)
from langchain_ctxbudget.sentences import read

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
    is_user = number % 2 == 0
    own_words = text(number) if is_user else ""
    [said] = read([own_words])
    lines.append(Line(number, "ab"[number % 2], None, text(number), is_user, own_words, said))
digests = []
for first in range(0, 200, 20):
    digests.append(digest_messages(lines[first : first + 20], first, first + 20))

kept = keep_sentences(lines, 10_000)
costs = [1 + number % 3 for number in range(len(kept))]
print(choose(kept, costs, 150))

for sentence in merge(digests[:5]).sentences:
    print(sentence.text)

arc = arc_of(
    digests,
    "multi_level",
    open_questions=(),
    focus=lines[-8:],
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
