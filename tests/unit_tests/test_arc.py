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
FENCE = "Which colour gets the garden fence in spring?"
SHED = "Who repairs the shed roof before winter?"
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


def question(text, position, *, speaker="Ada", day=1):
    return line_of(text, position, label=Label.QUESTION, speaker=speaker, day=day)


def reply(text, position, *, day=1):
    return line_of(text, position, speaker="Bob", day=day)


def open_questions(lines):
    return OpenQuestions().read(lines).alive


def alive(*lines):
    """The texts of the questions that a conversation leaves open."""
    return [question.text for question in open_questions(lines)]


@pytest.mark.parametrize(("question", "answer"), ANSWERED)
def test_a_question_is_answered_by_its_answer(question, answer):
    assert answers(question, answer)


@pytest.mark.parametrize(("question", "text"), NOT_ANSWERED)
def test_a_question_is_answered_by_nothing_else(question, text):
    assert not answers(question, text)


def test_a_question_without_a_reply_stays_open():
    assert alive(question(FENCE, 0), line_of(BIKE, 1, day=2)) == [FENCE]


@pytest.mark.parametrize(
    "later",
    [
        pytest.param([reply("Green.", 1)], id="the reply"),
        pytest.param([reply("Green.", 1, day=2)], id="the reply past midnight"),
        pytest.param([line_of("Green.", 1, speaker="Eve")], id="the reply of another user"),
        pytest.param([line_of(BIKE, 1), reply("Green.", 2)], id="a reply after another message"),
        pytest.param(
            [line_of("The colour of the garden fence is green for the spring.", 1, day=2)],
            id="what the user says later",
        ),
    ],
)
def test_an_answer_closes_a_question(later):
    assert alive(question(FENCE, 0), *later) == []


@pytest.mark.parametrize(
    "later",
    [
        pytest.param([reply("For which garden?", 1)], id="a question in return"),
        pytest.param([line_of("Hm.", 1), reply("Hello!", 2, day=3)], id="a reply on another day"),
        pytest.param([line_of("7 files", 1, speaker="tool count")], id="a tool"),
    ],
)
def test_what_is_no_answer_leaves_a_question_open(later):
    assert alive(question(FENCE, 0), *later) == [FENCE]


def test_a_question_that_is_asked_again_is_open_once():
    again = "In spring, which colour gets the garden fence?"

    assert alive(question(FENCE, 0), question(again, 1, day=2)) == [again]


def test_two_questions_are_open():
    assert alive(question(FENCE, 0), question(SHED, 1, day=2)) == [FENCE, SHED]


@pytest.mark.parametrize("text", ["What?", "What do you think?", "How are you today?"])
def test_a_question_about_nothing_is_not_open(text):
    assert alive(question(text, 0)) == []


def test_what_an_assistant_asks_is_not_open():
    assert alive(reply(FENCE, 0)) == []


def test_only_so_many_questions_stay_open():
    questions = [
        question(f"Who feeds animal{n} at place{n} of farm{n}?", n, day=1 + n % 30)
        for n in range(60)
    ]

    assert len(alive(*questions)) == MOST_QUESTIONS


ALL_TEXTS = [text for pair in ANSWERED + NOT_ANSWERED for text in pair]
MESSAGES = st.tuples(
    st.sampled_from(ALL_TEXTS), st.sampled_from(["Ada", "Bob"]), st.sampled_from([None, *Label])
)


@given(st.lists(MESSAGES), st.integers(0, 10))
def test_reading_in_parts_is_reading_at_once(messages, cut):
    lines = [
        line_of(text, position, label=label, speaker=speaker, day=1 + position // 3)
        for position, (text, speaker, label) in enumerate(messages)
    ]

    at_once = OpenQuestions().read(lines)
    in_parts = OpenQuestions().read(lines[:cut]).read(lines[cut:])

    assert in_parts == at_once
    for question in at_once.alive:
        assert question.kind is Kind.OPEN
        assert question.text in lines[question.position].text


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
        "- [2024-05-03] Ada: Let's go with Stockholm tar for the roof.\n",
    ]


def test_what_an_assistant_decides_is_no_decision():
    assert of(DECISIONS, whole_arc([reply("We decided on oak for the boat, 40 planks.", 0)])) == []


def test_the_arc_says_what_is_open():
    lines = [question(FENCE, 0), line_of(BIKE, 1, day=2)]

    assert of(OPEN, whole_arc(lines)) == [f"- [2024-05-01] Ada: [OPEN] {FENCE}\n"]


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

    earlier, _ = arc(digests_of(lines)[:2], focus=lines[-4:])

    assert of(FOCUS, earlier) == [
        "- [2024-05-03] Ada: I ordered 2 buckets of tar for the roof today.\n"
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
        ("We take 40 planks of oak for the boat.", "So 60 planks of oak for the boat."),
        ("We launch the Mary on 3 October.", "The Mary: launch on 17 October."),
    ],
)
def test_of_decisions_on_one_matter_the_newest_stands(older, newer):
    [line] = of(DECISIONS, whole_arc(decisions(older, newer)))

    assert newer in line


def test_decisions_on_two_matters_both_stand():
    lines = decisions("We take 40 planks of oak for the boat.", "The roof gets Stockholm tar.")

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


MAST = question("Which colour gets the mast in spring?", 12, day=4)
QUESTIONS = open_questions([*LINES, MAST])
QUESTION_TEXTS = {question.text for question in QUESTIONS}


def test_a_models_open_questions_stand_for_its_time():
    chosen, left_open = arc(
        digests_with_question_of_model(), "compacted", questions=QUESTIONS, focus=[MAST]
    )

    assert of(OPEN, chosen) == [
        "- [OPEN] Who steers the boat?\n",
        "- [2024-05-04] Ada: [OPEN] Which colour gets the mast in spring?\n",
    ]
    assert left_open == QUESTION_TEXTS | {"Who steers the boat?"}


def test_a_models_open_question_goes_once_it_was_answered():
    answer = line_of("We decided: Bob steers the boat.", 13, day=5)

    chosen, left_open = arc(
        digests_with_question_of_model(),
        "compacted",
        questions=QUESTIONS,
        focus=LINES[-4:],
        recent=[answer],
    )

    assert of(OPEN, chosen) == [
        "- [2024-05-04] Ada: [OPEN] Which colour gets the mast in spring?\n"
    ]
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
    st.lists(st.tuples(TEXTS, st.sampled_from([None, *Label])), max_size=20),
    st.sampled_from(["windowed", "compacted", "multi_level"]),
    st.integers(-10, 600),
)
def test_an_arc_is_items_in_order_within_its_budget(messages, strategy, budget):
    lines = lines_of(*messages)
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

    lines = decisions(f"We decided on 40 planks of oak {fence} for the boat.")

    assert fence not in of(DECISIONS, whole_arc(lines))[0]
