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
    MOST_QUESTIONS,
    NARRATIVE,
    OPEN,
    SECTIONS,
    OpenQuestions,
    answers,
    arc_of,
)
from langchain_ctxbudget.history.extractive import Kind, digest_messages
from langchain_ctxbudget.messages import fences

ANSWERED = [
    (
        "[OPEN] Which venue do we book for the meetup?",
        "We booked the Kulturbrauerei as the venue for the meetup.",
    ),
    (
        "Which database should the billing service use?",
        "We decided on Postgres for the billing service.",
    ),
    (
        "When is the summer release?",
        "Hello. My bike is blue. The summer release is on 3 May. See you.",
    ),
    ("Still to be decided: the launch date.", "New launch date: Saturday 17 October."),
    ("What is the budget for the offsite?", "The budget for the offsite is 4,000 EUR."),
    ("We still need to decide on the name of the cat.", "The cat is called Miso, that's the name."),
    ("TBD: who pays for the catering?", "It's settled, Nadia pays for the catering."),
    (
        "[OPEN] Owen to confirm the Christmas closure.",
        "Owen confirmed the Christmas closure: 21 December.",
    ),
    ("[OPEN] 会议的地点是哪里？", "会议的地点在柏林。"),
]
NOT_ANSWERED = [
    (
        "[OPEN] Which venue do we book for the meetup?",
        "I talked to Ada about the venue for the meetup.",
    ),
    ("Open question: which database?", "Is the database Redis?"),
    ("When is the release?", "The release depends on the translators."),
    ("Still to be decided: the launch date.", "The launch date is still open."),
    ("We still need to decide on the name of the cat.", "The cat slept on the sofa."),
    (
        "[OPEN] Owen to confirm the Christmas closure.",
        "Owen has not confirmed the Christmas closure.",
    ),
]
OAK = "[OPEN] Which oak?"


def lines_of(*texts, speakers=("Ada", "assistant")):
    """Lines of speakers who take turns, four a day; the first speaker is the user."""
    lines = []
    for position, text in enumerate(texts):
        turn = position % len(speakers)
        day = f"2024-05-{1 + position // 4:02}"
        lines.append(Line(position, speakers[turn], day, text, from_user=turn == 0))
    return lines


def open_questions(lines):
    return OpenQuestions().read(lines).alive


def alive(*texts, speakers=("Ada", "Bob")):
    """The texts of the questions that a conversation leaves open."""
    return [question.text for question in open_questions(lines_of(*texts, speakers=speakers))]


@pytest.mark.parametrize(("question", "answer"), ANSWERED)
def test_a_question_is_answered_by_its_answer(question, answer):
    assert answers(question, answer)


@pytest.mark.parametrize(("question", "text"), NOT_ANSWERED)
def test_a_question_is_answered_by_nothing_else(question, text):
    assert not answers(question, text)


@pytest.mark.parametrize(
    ("texts", "left_open"),
    [
        pytest.param(
            ["[OPEN] Which database?", "My bike is blue.", "The database: we decided on Redis."],
            [],
            id="answered later",
        ),
        pytest.param(["We decided on oak.", OAK], [OAK], id="asked after the answer"),
        pytest.param(
            [OAK, "Hm.", "Decided: green for the logo."], [OAK], id="another matter decided"
        ),
        pytest.param([OAK, "Let's go with the red one."], [], id="a direct reply"),
        pytest.param([OAK, "We decided to postpone that until May."], [OAK], id="postponed"),
        pytest.param(
            ["[OPEN] Which database? [OPEN] Which logo?", "Let's go with green for the logo."],
            ["[OPEN] Which database?"],
            id="one of two answered",
        ),
        pytest.param(
            ["[OPEN] Which tar for billing?", OAK, "Hm.", "Decided: billing tar: coal."],
            [OAK],
            id="the older one answered",
        ),
        pytest.param(
            [OAK, "Hm.", "Open question: which oak?"],
            ["Open question: which oak?"],
            id="asked again",
        ),
        pytest.param(
            [
                "Open question: R. Dunne has nine tools.",
                "Hm.",
                "R. Dunne has moved with nine tools.",
                "That closes it.",
            ],
            [],
            id="closed in two sentences",
        ),
    ],
)
def test_what_a_conversation_leaves_open(texts, left_open):
    assert alive(*texts) == left_open


def test_who_asked_does_not_reply_to_the_question():
    assert alive(OAK, "Let's go with pizza.", speakers=["Ada"]) == [OAK]


def test_only_so_many_questions_stay_open():
    questions = [f"[OPEN] Who feeds animal{number} at place{number}?" for number in range(60)]

    assert len(alive(*questions)) == MOST_QUESTIONS


ALL_TEXTS = [text for pair in ANSWERED + NOT_ANSWERED for text in pair]


@given(st.lists(st.sampled_from(ALL_TEXTS)), st.integers(0, 10))
def test_reading_in_parts_is_reading_at_once(texts, cut):
    lines = lines_of(*texts)

    at_once = OpenQuestions().read(lines)
    in_parts = OpenQuestions().read(lines[:cut]).read(lines[cut:])

    assert in_parts == at_once
    for question in at_once.alive:
        assert question.kind is Kind.OPEN
        assert question.text in texts[question.position]


TALK = (
    "We want to build a boat in the old barn near Oxford.",
    "Which wood do you have for the boat?",
    "We decided on oak for the boat, 40 planks.",
    "Noted. [OPEN] Who pays for the sails?",
    "The plan of the boat is in `plans/hull.md`, see draw_hull().",
    "Good, the hull needs 12 ribs of oak.",
    "The barn has a leaking roof above the boat.",
    "The roof can be fixed with tar before winter comes.",
    "Let's go with tar for the roof.",
    "Tar it is then, two buckets for the roof.",
    "I ordered two buckets of tar for the roof today.",
    "The tar arrives on Friday at the barn.",
)


def digests_of(lines):
    """The digests of spans of four messages."""
    return [
        digest_messages(lines[first : first + 4], first, min(len(lines), first + 4))
        for first in range(0, len(lines), 4)
    ]


def arc(digests, strategy="multi_level", *, questions=(), focus=(), recent=(), budget=10**6):
    return arc_of(
        digests,
        strategy,
        open_questions=questions,
        focus=focus,
        recent=recent,
        count=len,
        budget_tokens=budget,
    )


def whole_arc(lines, strategy="multi_level"):
    """The lines of the arc of a conversation, whatever they cost."""
    chosen, _ = arc(digests_of(lines), strategy, questions=open_questions(lines), focus=lines[-4:])
    return chosen


def of(section, lines):
    """The texts of a section, in the order of their messages."""
    in_order = sorted(lines, key=lambda line: line.position)
    return [line.text for line in in_order if line.heading == section]


ARC_OF_TALK = whole_arc(lines_of(*TALK))


def test_the_arc_says_what_was_decided():
    assert of(DECISIONS, ARC_OF_TALK) == [
        "- [2024-05-01] Ada: We decided on oak for the boat, 40 planks.\n",
        "- [2024-05-03] Ada: Let's go with tar for the roof.\n",
    ]


def test_the_arc_says_what_is_open():
    assert of(OPEN, ARC_OF_TALK) == ["- [2024-05-01] assistant: [OPEN] Who pays for the sails?\n"]


def test_the_arc_names_files_and_functions():
    [line] = of(ARTIFACTS, ARC_OF_TALK)

    names = line.removeprefix("- ").removesuffix("\n").split(", ")
    assert sorted(names) == ["draw_hull()", "plans/hull.md"]


def test_the_story_of_an_arc_is_told_in_words_of_the_conversation():
    [line] = of(NARRATIVE, ARC_OF_TALK)

    endings = tuple(f": {text}\n" for text in TALK)
    assert line.endswith(endings)


def test_the_focus_of_an_arc_is_not_what_its_story_says():
    lines = lines_of(*TALK)

    earlier, _ = arc(digests_of(lines)[:2], focus=lines[-4:])

    assert of(FOCUS, earlier) == [
        "- [2024-05-03] Ada: I ordered two buckets of tar for the roof today.\n"
    ]


def decision_with(word, lines):
    [line] = [line for line in lines if line.heading == DECISIONS and word in line.text]
    return line


def test_a_decision_stands_for_its_message():
    decision = decision_with("40 planks", ARC_OF_TALK)

    assert decision.position == 2
    assert decision.first == 2
    assert decision.end == 3


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("We decided on oak for the boat.", "So we decided: oak for the boat."),
        (
            "We decided to launch the boat on 3 October.",
            "New launch date: Saturday 17 October for the boat.",
        ),
        (
            "We decided on a red sail for the boat.",
            "Reversed: the boat gets a white sail, not the red one.",
        ),
    ],
)
def test_of_decisions_on_one_matter_the_newest_stands(older, newer):
    [line] = of(DECISIONS, whole_arc(lines_of(older, newer, speakers=("Ada",))))

    assert newer in line


def test_decisions_on_two_matters_both_stand():
    lines = lines_of("We decided on oak for the boat.", "", "We decided on tar for the roof.")

    assert len(of(DECISIONS, whole_arc(lines))) == 2


LINES = lines_of(*TALK)


@pytest.fixture(scope="module")
def arc_with_overview():
    """The arc where a model has written the digest of the first four messages."""
    digests = digests_of(LINES)
    own = [replace(sentence, speaker="", date=None) for sentence in digests[0].sentences]
    overview = replace(own[0], text="Ada builds a boat of oak in Oxford.", kind=Kind.PLAIN)
    sentences = [replace(sentence, order=order) for order, sentence in enumerate([overview, *own])]
    digests[0] = replace(digests[0], made_by="model", sentences=tuple(sentences))

    chosen, _ = arc(digests)
    return chosen


def test_a_models_overview_tells_the_story(arc_with_overview):
    first, _ = [line for line in arc_with_overview if line.heading == NARRATIVE]

    assert first.text == "- Ada builds a boat of oak in Oxford.\n"
    assert first.made_by == "model"


def test_a_models_decision_stands_for_its_span(arc_with_overview):
    decision = decision_with("oak", arc_with_overview)

    assert decision.text == "- We decided on oak for the boat, 40 planks.\n"
    assert decision.first == 0
    assert decision.end == 4


def digests_with_question_of_model():
    """The digests where a model has written the last, with a question that is open."""
    digests = digests_of(LINES)
    digests[-1] = replace(digests[-1], made_by="model", open_questions=("Who steers the boat?",))
    return digests


MAST = Line(12, "Ada", None, "[OPEN] Which colour gets the mast?", from_user=True)
QUESTIONS = open_questions([*LINES, MAST])
QUESTION_TEXTS = {question.text for question in QUESTIONS}


def test_a_models_open_questions_stand_for_its_time():
    chosen, left_open = arc(
        digests_with_question_of_model(), "compacted", questions=QUESTIONS, focus=[MAST]
    )

    assert of(OPEN, chosen) == [
        "- [OPEN] Who steers the boat?\n",
        "- Ada: [OPEN] Which colour gets the mast?\n",
    ]
    assert left_open == QUESTION_TEXTS | {"Who steers the boat?"}


def test_a_models_open_question_goes_once_it_was_answered():
    answer = Line(13, "Ada", None, "We decided: Bob steers the boat.", from_user=True)

    chosen, left_open = arc(
        digests_with_question_of_model(),
        "compacted",
        questions=QUESTIONS,
        focus=LINES[-4:],
        recent=[answer],
    )

    assert of(OPEN, chosen) == ["- Ada: [OPEN] Which colour gets the mast?\n"]
    assert left_open == QUESTION_TEXTS


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


@given(
    st.lists(TEXTS, max_size=20),
    st.sampled_from(["windowed", "compacted", "multi_level"]),
    st.integers(-10, 600),
)
def test_an_arc_is_items_in_order_within_its_budget(texts, strategy, budget):
    lines = lines_of(*texts)
    whole = whole_arc(lines, strategy)
    chosen, _ = arc(
        digests_of(lines),
        strategy,
        questions=open_questions(lines),
        focus=lines[-4:],
        budget=budget,
    )

    check_items(whole, len(lines))
    assert cost_of(chosen) <= max(0, budget)
    order = [(list(SECTIONS).index(line.heading), line.position) for line in whole]
    assert order == sorted(order)


def test_a_fence_in_a_line_is_neutralised():
    fence = fences.closing(fences.ARC).strip()

    lines = lines_of(f"We decided on oak {fence} for the boat.")

    assert fence not in of(DECISIONS, whole_arc(lines))[0]
