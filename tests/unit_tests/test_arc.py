"""The arc of a conversation.

Open questions and what answers them, its sections, the choice within a budget.
"""

from dataclasses import replace

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
STORIES = [
    (["[OPEN] Which database?", "My bike is blue.", "The database: we decided on Redis."], []),
    (["We decided on oak.", OAK], [OAK]),
    ([OAK, "Hm.", "Decided: green for the logo."], [OAK]),
    ([OAK, "Let's go with the red one."], []),  # a direct reply
    ([OAK, "We decided to postpone that until May."], [OAK]),
    (["[OPEN] Which database? [OPEN] Which logo?", "Let's go with green for the logo."], ["[OPEN] Which database?"]),
    (["[OPEN] Which tar for billing?", OAK, "Hm.", "Decided: billing tar: coal."], [OAK]),
    ([OAK, "Hm.", "Open question: which oak?"], ["Open question: which oak?"]),
    (["Open question: R. Dunne has nine tools.", "Hm.", "R. Dunne has moved with nine tools.", "That closes it."], []),
]  # fmt: skip


def lines_of(*texts, speakers=("Ada", "assistant")):
    return [
        Line(
            i,
            speakers[i % len(speakers)],
            f"2024-05-{1 + i // 4:02}",
            text,
            from_user=i % len(speakers) == 0,
        )
        for i, text in enumerate(texts)
    ]


def alive(*texts, speakers=("Ada", "Bob")):
    return [
        question.text
        for question in OpenQuestions().read(lines_of(*texts, speakers=speakers)).alive
    ]


def test_a_question_is_answered_by_its_answer_and_by_nothing_else():
    assert [pair for pair in ANSWERED if not answers(*pair)] == []
    assert [pair for pair in NOT_ANSWERED if answers(*pair)] == []


def test_what_a_conversation_leaves_open():
    assert [(texts, alive(*texts)) for texts, left in STORIES if alive(*texts) != left] == []
    assert len(alive(OAK, "Let's go with pizza.", speakers=["Ada"])) == 1  # nobody has replied
    assert (
        len(alive(*(f"[OPEN] Who feeds animal{i} at place{i}?" for i in range(60))))
        == MOST_QUESTIONS
    )


@given(
    st.lists(st.sampled_from([text for pair in ANSWERED + NOT_ANSWERED for text in pair])),
    st.integers(0, 10),
)
def test_reading_in_parts_is_reading_at_once(texts, cut):
    lines = lines_of(*texts)
    read = OpenQuestions().read(lines)
    assert OpenQuestions().read(lines[:cut]).read(lines[cut:]) == read
    assert all(
        question.kind is Kind.OPEN and question.text in texts[question.position]
        for question in read.alive
    )


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


def digests_of(lines, size=4):
    return [
        digest_messages(lines[i : i + size], i, min(len(lines), i + size))
        for i in range(0, len(lines), size)
    ]


def arc(digests, strategy="multi_level", *, asked=(), focus=(), recent=(), budget=10**6):
    given = {
        "open_questions": asked,
        "focus": focus,
        "recent": recent,
        "count": len,
        "budget_tokens": budget,
    }
    return arc_of(digests, strategy, **given)


def made(lines, strategy="multi_level"):
    return arc(
        digests_of(lines), strategy, asked=OpenQuestions().read(lines).alive, focus=lines[-4:]
    )[0]


def of(section, lines):
    return [
        line.text
        for line in sorted(lines, key=lambda line: line.position)
        if line.heading == section
    ]


def test_every_section_says_its_part_in_words_that_were_said():
    lines = made(lines_of(*TALK))
    assert of(DECISIONS, lines) == [
        "- [2024-05-01] Ada: We decided on oak for the boat, 40 planks.\n",
        "- [2024-05-03] Ada: Let's go with tar for the roof.\n",
    ]
    assert of(OPEN, lines) == ["- [2024-05-01] assistant: [OPEN] Who pays for the sails?\n"]
    assert set(of(ARTIFACTS, lines)[0][2:-1].split(", ")) == {"plans/hull.md", "draw_hull()"}
    earlier, _ = arc(
        digests_of(lines_of(*TALK))[:2], focus=lines_of(*TALK)[-4:]
    )  # what the story says is not repeated
    assert of(FOCUS, earlier) == [
        "- [2024-05-03] Ada: I ordered two buckets of tar for the roof today.\n"
    ]
    assert [
        any(text.endswith(f": {said}\n") for said in TALK) for text in of(NARRATIVE, lines)
    ] == [True]
    [line] = [line for line in lines if "40 planks" in line.text and line.heading == DECISIONS]
    assert (line.position, line.first, line.end) == (2, 2, 3)


def test_of_decisions_on_one_matter_the_newest_stands():
    for older, newer in [
        ("We decided on oak for the boat.", "So we decided: oak for the boat."),
        (
            "We decided to launch the boat on 3 October.",
            "New launch date: Saturday 17 October for the boat.",
        ),
        (
            "We decided on a red sail for the boat.",
            "Reversed: the boat gets a white sail, not the red one.",
        ),
    ]:
        [line] = of(DECISIONS, made(lines_of(older, newer, speakers=("Ada",))))
        assert newer in line
    assert (
        len(
            of(
                DECISIONS,
                made(
                    lines_of(
                        "We decided on oak for the boat.", "", "We decided on tar for the roof."
                    )
                ),
            )
        )
        == 2
    )


def modelled(lines, at=-1, **changes):
    digests = digests_of(lines)
    digests[at] = replace(digests[at], made_by="model", **changes)
    return digests


def test_a_models_overview_tells_the_story_and_its_decision_stands_for_its_span():
    lines = lines_of(*TALK)
    said = tuple(replace(s, speaker="", date=None) for s in digests_of(lines)[0].sentences)
    overview = replace(
        said[0], order=0, text="Ada builds a boat of oak in Oxford.", kind=Kind.PLAIN
    )
    digests = modelled(
        lines, 0, sentences=(overview, *(replace(s, order=i) for i, s in enumerate(said, 1)))
    )
    found, _ = arc(digests)
    story = [line for line in found if line.heading == NARRATIVE]
    assert (story[0].text, story[0].made_by, len(story)) == (
        "- Ada builds a boat of oak in Oxford.\n",
        "model",
        2,
    )
    [line] = [line for line in found if "oak" in line.text and line.heading == DECISIONS]
    assert (line.text, line.first, line.end) == (
        "- We decided on oak for the boat, 40 planks.\n",
        0,
        4,
    )


def test_a_models_open_questions_stand_for_its_time_unless_they_were_answered():
    lines = lines_of(*TALK)
    digests = modelled(lines, open_questions=("Who steers the boat?",))
    later = Line(12, "Ada", None, "[OPEN] Which colour gets the mast?", from_user=True)
    asked = OpenQuestions().read([*lines, later]).alive
    found, left = arc(digests, "compacted", asked=asked, focus=[later])
    assert of(OPEN, found) == [
        "- [OPEN] Who steers the boat?\n",
        "- Ada: [OPEN] Which colour gets the mast?\n",
    ]
    assert left == {question.text for question in asked} | {"Who steers the boat?"}
    answer = Line(13, "Ada", None, "We decided: Bob steers the boat.", from_user=True)
    chosen, left = arc(digests, "compacted", asked=asked, focus=lines[-4:], recent=[answer])
    assert of(OPEN, chosen) == ["- Ada: [OPEN] Which colour gets the mast?\n"]
    assert left == {question.text for question in asked}


WORDS = st.sampled_from(
    "bike blue decided: Redis 42 [OPEN] Berlin main.py the of we We agreed on error ?".split()
)
TEXTS = st.lists(st.lists(WORDS, max_size=9).map(" ".join), max_size=4).map(". ".join)


@given(
    st.lists(TEXTS, max_size=20),
    st.sampled_from(["windowed", "compacted", "multi_level"]),
    st.integers(-10, 600),
)
def test_lines_are_items_by_value_and_a_choice_is_within_its_budget_in_order(
    texts, strategy, budget
):
    lines = lines_of(*texts)
    found = made(lines, strategy)
    for line in found:
        assert line.text.startswith("- ")
        assert line.text.index("\n") == len(line.text) - 1
        assert 0 <= line.first < line.end <= len(lines) or line.heading in (FOCUS, ARTIFACTS)
    asked = OpenQuestions().read(lines).alive
    chosen, _ = arc(digests_of(lines), strategy, asked=asked, focus=lines[-4:], budget=budget)
    assert sum(len(line.text) for line in chosen) + sum(
        map(len, {line.heading for line in chosen})
    ) <= max(0, budget)
    order = [([*SECTIONS].index(line.heading), line.position) for line in found]
    assert order == sorted(order)


def test_a_fence_in_a_line_is_neutralised():
    fence = fences.closing(fences.ARC).strip()
    assert fence not in of(DECISIONS, made(lines_of(f"We decided on oak {fence} for the boat.")))[0]
