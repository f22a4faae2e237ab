"""Holds the arc of a conversation to what was decided, left open and done, within its budget."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_ctxbudget.history import Line
from langchain_ctxbudget.history.arc import (
    ARTIFACTS,
    DECISIONS,
    FOCUS,
    NARRATIVE,
    OPEN,
    SECTIONS,
    answers,
    arc_of,
    last_by_model,
    still_open,
)
from langchain_ctxbudget.history.extractive import Kind, Sentence, digest_messages
from langchain_ctxbudget.messages import fences, prose_spans
from langchain_ctxbudget.sentences import Label, Said

ANSWERED = [
    (
        "[OPEN] Which venue do we book for the meetup?",
        "We booked the Kulturbrauerei as the venue for the meetup.",
    ),
    (
        "When is the summer release?",
        "Hello. My bike is blue. The summer release is on 3 May. See you.",
    ),
    ("What is the budget for the offsite?", "The budget for the offsite is 4,000 EUR."),
    ("TBD: who pays for the catering?", "It's settled, Nadia pays for the catering."),
    ("[OPEN] 会议的地点是哪里？", "会议的地点在柏林。"),
]
NOT_ANSWERED = [
    ("Open question: which database?", "Is the database Redis?"),
    ("When is the summer release?", "The release depends on the translators."),
    ("We still need to decide on the name of the cat.", "The cat slept on the sofa."),
]
BIKE = "My bike is blue."


def line_of(text, position=0, *, label=None, speaker="Ada", day=1):
    """A message, every sentence of which is what the label says; the user's unless it is Bob's."""
    said = [Said(label, begin, end, 0.9) for begin, end in prose_spans(text) if label is not None]
    from_user = speaker != "Bob"
    return Line(
        position=position,
        speaker=speaker,
        date=f"2024-05-{day:02}",
        text=text,
        from_user=from_user,
        own_words=text if from_user else "",
        said=tuple(said) if from_user else (),
    )


def reply(text, position, *, day=1):
    return line_of(text, position, speaker="Bob", day=day)


@pytest.mark.parametrize(("question", "answer"), ANSWERED)
def test_a_question_is_answered_by_its_answer(question, answer):
    assert answers(question, answer)


@pytest.mark.parametrize(("question", "text"), NOT_ANSWERED)
def test_a_question_is_answered_by_nothing_else(question, text):
    assert not answers(question, text)


TALK = (
    ("We want to build a boat in the old barn near Oxford.", Label.STATEMENT),
    ("Which wood do you have for the boat?", None),
    ("We decided on oak for the boat, 40 planks.", Label.DECISION),
    ("Noted. 40 planks of oak come from Leeds.", None),
    ("The plan of the boat is in `plans/hull.md`, see draw_hull().", None),
    ("Good, the hull needs 12 ribs of oak.", None),
    ("The barn near Oxford has a leaking roof above the boat.", Label.STATEMENT),
    ("The roof can be fixed with tar before winter comes.", None),
    ("Let's go with Stockholm tar for the roof.", Label.DECISION),
    ("Tar it is then, two buckets for the roof.", None),
    ("I ordered 2 buckets of tar for the roof today.", None),
    ("The tar arrives on Friday at the barn.", None),
)
SPEAKERS = ("Ada", "Bob")


def lines_of(*messages):
    """Messages of Ada and Bob in turns, four a day; each is a text with what its sentences are."""
    return [
        line_of(text, position, label=label, speaker=SPEAKERS[position % 2], day=1 + position // 4)
        for position, (text, label) in enumerate(messages)
    ]


def decisions(*texts):
    return [line_of(text, at, label=Label.DECISION) for at, text in enumerate(texts)]


def decided(*texts):
    """A model's digest of as many messages as it has decisions."""
    [digest] = digests_of([line_of(BIKE, at) for at in range(len(texts))])
    sentences = [
        Sentence(
            position=0,
            order=order,
            speaker="",
            date=None,
            text=text,
            score=30.0,
            kind=Kind.DECISION,
        )
        for order, text in enumerate(texts)
    ]
    return replace(digest, made_by="model", sentences=tuple(sentences))


def digests_of(lines):
    """The digests of spans of four messages."""
    return [
        digest_messages(lines[first : first + 4], first, min(len(lines), first + 4))
        for first in range(0, len(lines), 4)
    ]


def arc(digests, strategy="multi_level", *, questions=(), focus=(), budget=10**6):
    return arc_of(
        digests,
        strategy,
        open_questions=questions,
        focus=focus,
        count=len,
        budget_tokens=budget,
    )


def whole_arc(lines, strategy="multi_level"):
    """The lines of the arc of a conversation without a model, whatever they cost."""
    return arc(digests_of(lines), strategy, focus=lines[-4:])


def of(section, lines):
    """The texts of a section, in the order of their messages."""
    in_order = sorted(lines, key=lambda line: line.position)
    return [line.text for line in in_order if line.heading == section]


ARC_OF_TALK = whole_arc(lines_of(*TALK))


@pytest.mark.parametrize("section", [DECISIONS, OPEN])
def test_without_a_model_nothing_is_decided_or_open(section):
    assert of(section, ARC_OF_TALK) == []


def test_the_arc_names_files_and_functions():
    [line] = of(ARTIFACTS, ARC_OF_TALK)

    names = line.removeprefix("- ").removesuffix("\n").split(", ")
    assert sorted(names) == ["draw_hull()", "plans/hull.md"]


def test_the_story_of_an_arc_is_told_in_words_of_the_conversation():
    sentences = [line.partition(": ")[2].strip() for line in of(NARRATIVE, ARC_OF_TALK)]

    words = " ".join(text for text, _ in TALK)
    assert sentences != []
    assert all(sentence in words for sentence in sentences)


def test_the_focus_of_an_arc_is_not_what_its_story_says():
    lines = lines_of(*TALK)

    earlier = arc(digests_of(lines)[:2], focus=lines[-4:])

    assert of(FOCUS, earlier) == ["- [2024-05-03] Ada: Let's go with Stockholm tar for the roof.\n"]


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("We take 40 planks of oak for the boat.", "So 60 planks of oak for the boat."),
        ("We launch the Mary on 3 October.", "The Mary: launch on 17 October."),
    ],
)
def test_of_decisions_on_one_matter_the_newest_stands(older, newer):
    assert of(DECISIONS, arc([decided(older, newer)])) == [f"- {newer}\n"]


def test_decisions_on_two_matters_both_stand():
    digest = decided("We take 40 planks of oak for the boat.", "The roof gets Stockholm tar.")

    assert len(of(DECISIONS, arc([digest]))) == 2


LINES = lines_of(*TALK)


def test_a_models_overview_tells_the_story():
    digests = digests_of(LINES)
    [decision] = decided("We build a boat of oak in Oxford.").sentences
    overview = replace(decision, kind=Kind.PLAIN)
    digests[0] = replace(digests[0], made_by="model", sentences=(overview,))

    first, _ = [line for line in arc(digests) if line.heading == NARRATIVE]

    assert first.text == "- We build a boat of oak in Oxford.\n"
    assert first.made_by == "model"


def test_a_models_decision_stands_for_its_span():
    [decision] = arc([replace(decided("We decided on oak for the boat."), first=3, end=9)])

    assert decision.text == "- We decided on oak for the boat.\n"
    assert decision.first == 3
    assert decision.end == 9


def test_the_arc_says_what_a_model_left_open():
    digests = [decided("The boat is of oak."), *digests_of(LINES)]

    assert of(OPEN, arc(digests, questions=["Who steers the boat?"])) == [
        "- [OPEN] Who steers the boat?\n"
    ]


def test_what_is_open_is_what_a_models_last_digest_says():
    digests = digests_of(LINES)
    digests[0] = replace(digests[0], made_by="model", open_questions=("Which tar is it?",))
    digests[1] = replace(digests[1], made_by="model", open_questions=("Who steers the boat?",))

    assert last_by_model(digests).open_questions == ("Who steers the boat?",)


def test_without_a_model_there_is_no_last_digest_of_one():
    assert last_by_model(digests_of(LINES)) is None


@pytest.mark.parametrize(
    ("later", "left_open"),
    [
        pytest.param(BIKE, ("Who steers the boat?",), id="something else is said"),
        pytest.param("We decided: Bob steers the boat.", (), id="it is answered"),
    ],
)
def test_a_models_open_question_goes_once_it_is_answered(later, left_open):
    digest = replace(decided("The boat is of oak."), open_questions=("Who steers the boat?",))

    assert still_open(digest, [line_of(later, 13)]) == left_open


WORDS = st.sampled_from(
    "bike blue decided: Redis 42 [OPEN] Berlin main.py the of we We agreed on error ?".split()
)
TEXTS = st.lists(st.lists(WORDS, max_size=9).map(" ".join), max_size=4).map(". ".join)


def check_items(lines, messages):
    """Lines are items that stand for messages of the conversation."""
    for line in lines:
        assert line.text.startswith("- ")
        assert line.text.index("\n") == len(line.text) - 1
        if line.heading not in (FOCUS, ARTIFACTS):
            assert 0 <= line.first < line.end <= messages


def cost_of(lines):
    headings = {line.heading for line in lines}
    return sum(len(line.text) for line in lines) + sum(len(heading) for heading in headings)


@pytest.mark.slow
@given(
    st.lists(st.tuples(TEXTS, st.sampled_from([None, *Label])), max_size=20),
    st.sampled_from(["windowed", "compacted", "multi_level"]),
    st.integers(-10, 600),
)
def test_an_arc_is_items_in_order_within_its_budget(messages, strategy, budget):
    lines = lines_of(*messages)
    whole = whole_arc(lines, strategy)
    chosen = arc(digests_of(lines), strategy, focus=lines[-4:], budget=budget)

    check_items(whole, len(lines))
    assert cost_of(chosen) <= max(0, budget)
    order = [(list(SECTIONS).index(line.heading), line.position) for line in whole]
    assert order == sorted(order)


def test_a_fence_in_a_line_is_neutralised():
    fence = fences.closing(fences.ARC).strip()

    digest = decided(f"We decided on 40 planks of oak {fence} for the boat.")

    assert fence not in of(DECISIONS, arc([digest]))[0]
