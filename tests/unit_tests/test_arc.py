"""The arc of a conversation as lines to choose from."""

import os
import subprocess
import sys
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from langchain_ctxbudget.core import fences
from langchain_ctxbudget.core.arc import (
    ARTIFACTS,
    DECISIONS,
    FOCUS,
    LIGHT_ITEMS,
    NARRATIVE,
    OPEN,
    SECTIONS,
    WHO,
    ArcLine,
    arc_lines,
    choose_arc,
)
from langchain_ctxbudget.core.digest import Line
from langchain_ctxbudget.core.extractive import digest_messages
from langchain_ctxbudget.core.questions import OpenQuestions

WORDS = st.sampled_from(
    "bike blue decided: Redis 42 [OPEN] Berlin main.py the of we We agreed on <context> error ?".split()
)
TEXTS = st.lists(st.lists(WORDS, max_size=9).map(" ".join), max_size=4).map(". ".join)


def lines_of(*texts, speakers=("Ada", "assistant")):
    return [
        Line(i, speakers[i % len(speakers)], f"2024-05-{1 + i // 4:02}", text, from_user=i % len(speakers) == 0)
        for i, text in enumerate(texts)
    ]


def digests_of(lines, size=4):
    return [digest_messages(lines[i : i + size], i, min(len(lines), i + size)) for i in range(0, len(lines), size)]


def open_after(lines):
    ledger = OpenQuestions()
    ledger.read(lines)
    return ledger.alive()


def arc(*texts, density="dense", speakers=("Ada", "assistant")):
    lines = lines_of(*texts, speakers=speakers)
    return arc_lines(digests_of(lines), density, open_questions=open_after(lines), focus=lines[-4:])


def of(section, lines):
    return [line.text for line in sorted(lines, key=lambda line: line.position) if line.section == section]


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


def test_a_decision_is_dated_and_attributed():
    assert "- [2024-05-01] Ada: We decided on oak for the boat, 40 planks.\n" in of(DECISIONS, arc(*TALK))


def test_an_open_question_is_marked():
    assert of(OPEN, arc(*TALK)) == ["- [2024-05-01] assistant: [OPEN] Who pays for the sails?\n"]


def test_an_open_question_without_a_mark_gets_one():
    [line] = of(OPEN, arc("Open question: which boat?"))
    assert line == "- [2024-05-01] Ada: [OPEN] Open question: which boat?\n"


def test_artifacts_are_names_only():
    [line] = of(ARTIFACTS, arc(*TALK))
    assert set(line[2:-1].split(", ")) == {"plans/hull.md", "draw_hull()"}


def test_who_took_part_is_named_with_the_decisions():
    assert of(WHO, arc(*TALK)) == ["- Ada (2 decisions), assistant\n"]


def test_the_focus_is_what_the_newest_messages_are_about():
    terms, said = of(FOCUS, arc(*TALK))
    assert "tar" in terms
    assert "buckets" in terms
    assert "boat" not in terms
    assert said == "- Ada: I ordered two buckets of tar for the roof today.\n"


@pytest.mark.parametrize(
    ("density", "sections"),
    [("light", {NARRATIVE, DECISIONS, OPEN}), ("rich", set(SECTIONS) - {WHO}), ("dense", set(SECTIONS))],
)
def test_a_density_has_its_sections(density, sections):
    assert {line.section for line in arc(*TALK, density=density)} == sections


@pytest.mark.parametrize(("density", "count"), [("light", 1), ("rich", 3), ("dense", 5)])
def test_the_story_has_as_many_lines_as_the_density_says(density, count):
    assert len(of(NARRATIVE, arc(*TALK, *TALK[:8], density=density))) == count


def test_the_story_is_told_oldest_first_with_its_topics():
    first, *_, last = of(NARRATIVE, arc(*TALK))
    assert first.startswith("- [2024-05-01] Topics: ")
    assert "boat" in first
    assert last.startswith("- [2024-05-03] Topics: ")
    assert "tar" in last


def test_a_light_arc_has_the_key_decisions_only():
    words = "oak tar roof sail hull rope mast deck keel anchor".split()
    texts = [f"We decided on {word} from {word}ville." for word in words]
    assert len(of(DECISIONS, arc(*texts, density="light"))) == LIGHT_ITEMS
    assert len(of(DECISIONS, arc(*texts, density="rich"))) == len(words)


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("We decided on oak for the boat.", "So we decided: oak for the boat."),
        ("We decided to launch the boat on 3 October.", "New launch date: Saturday 17 October for the boat."),
        ("We agreed on no late fees.", "Note it as final: no late fees, no deposits, suspension after 14 days."),
        ("We decided on a red sail for the boat.", "Reversed: the boat gets a white sail, not the red one."),
    ],
)
def test_the_newest_decision_on_a_matter_stands(older, newer):
    [line] = of(DECISIONS, arc(older, newer, speakers=("Ada",)))
    assert newer in line


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("We decided on oak for the boat.", "We decided on tar for the roof."),
        ("We decided on Redis for the cache.", "We decided on Postgres for the invoices."),
    ],
)
def test_decisions_on_two_matters_are_two(one, other):
    assert len(of(DECISIONS, arc(one, other))) == 2


def test_a_decision_that_names_nothing_is_left_out():
    assert of(DECISIONS, arc("We decided on that now.")) == []


def modelled(lines, **changes):
    *older, newest = digests_of(lines)
    return [*older, replace(newest, made_by="model", **changes)]


def test_a_models_narrative_is_the_story():
    digests = modelled(lines_of(*TALK), narrative="Ada builds\na boat.")
    assert of(NARRATIVE, arc_lines(digests, "rich", open_questions=(), focus=())) == ["- Ada builds a boat.\n"]


def test_after_a_models_narrative_extraction_goes_on():
    first, *rest = digests_of(lines_of(*TALK))
    told = replace(first, made_by="model", narrative="Ada builds a boat.")
    story = of(NARRATIVE, arc_lines([told, *rest], "dense", open_questions=(), focus=()))
    assert story[0] == "- Ada builds a boat.\n"
    assert len(story) == 3


def test_a_models_open_questions_take_the_place_of_those_found():
    lines = lines_of(*TALK)
    digests = modelled(lines, narrative="Ada builds a boat.", open_questions=("Who steers the boat?",))
    made = arc_lines(digests, "rich", open_questions=open_after(lines), focus=lines[-2:])
    assert of(OPEN, made) == ["- [OPEN] Who steers the boat?\n"]


def test_a_models_open_question_that_was_answered_since_is_closed():
    lines = lines_of(*TALK)
    digests = modelled(lines, narrative="Ada builds a boat.", open_questions=("Who steers the boat?",))
    later = [Line(12, "Ada", None, "We decided: Bob steers the boat.", from_user=True)]
    assert of(OPEN, arc_lines(digests, "rich", open_questions=(), focus=later)) == []


def test_a_question_opened_after_the_models_digest_is_there_too():
    lines = lines_of(*TALK)
    later = [Line(12, "Ada", None, "[OPEN] Which colour gets the mast?", from_user=True)]
    digests = modelled(lines, narrative="Ada builds a boat.", open_questions=("Who steers the boat?",))
    made = arc_lines(digests, "rich", open_questions=open_after([*lines, *later]), focus=later)
    assert of(OPEN, made) == ["- [OPEN] Who steers the boat?\n", "- Ada: [OPEN] Which colour gets the mast?\n"]


def test_a_models_decision_stands_for_its_span():
    lines = lines_of(*TALK)
    digests = digests_of(lines)
    said = [replace(s, speaker="", date=None) for s in digests[0].sentences]
    written = replace(digests[0], made_by="model", sentences=tuple(said))
    made = arc_lines([written, *digests[1:]], "rich", open_questions=(), focus=())
    [line] = [line for line in made if "oak" in line.text and line.section == DECISIONS]
    assert (line.text, line.first, line.end) == ("- We decided on oak for the boat, 40 planks.\n", 0, 4)


def test_an_extracted_decision_stands_for_its_message():
    [line] = [line for line in arc(*TALK) if "40 planks" in line.text and line.section == DECISIONS]
    assert (line.position, line.first, line.end) == (2, 2, 3)


def test_a_fence_in_a_text_is_made_harmless():
    [line] = of(DECISIONS, arc(f"We decided on oak {fences.closing(fences.ARC)} for the boat."))
    assert fences.closing(fences.ARC).strip() not in line


def test_a_conversation_without_digests_has_no_arc():
    assert arc_lines([], "dense", open_questions=(), focus=()) == []


def test_spans_of_empty_digests_have_no_story():
    assert arc_lines([digest_messages([], 0, 4)], "dense", open_questions=(), focus=()) == []


def test_a_script_without_spaces_has_topics():
    [line, *_] = of(NARRATIVE, arc("我们在柏林造一条木船。", "木船需要橡木和焦油。", "木船在柏林的谷仓里。"))
    assert "Topics: " in line


CONVERSATIONS = st.lists(TEXTS, max_size=20).map(lambda texts: lines_of(*texts))
DENSITIES = st.sampled_from(["light", "rich", "dense"])


def made(lines, density):
    return arc_lines(digests_of(lines), density, open_questions=open_after(lines), focus=lines[-3:])


@settings(deadline=None)
@given(CONVERSATIONS, DENSITIES)
def test_every_line_is_one_item_of_a_section_and_of_a_span(lines, density):
    for line in made(lines, density):
        assert line.section in SECTIONS
        assert line.text.startswith("- ")
        assert line.text.endswith("\n")
        assert line.text.count("\n") == 1
        assert "<context>" not in line.text
        assert 0 <= line.first < line.end <= len(lines)


@settings(deadline=None)
@given(CONVERSATIONS, DENSITIES)
def test_the_most_valuable_line_is_the_first(lines, density):
    values = [line.value for line in made(lines, density)]
    assert values == sorted(values, reverse=True)


@settings(deadline=None)
@given(CONVERSATIONS, DENSITIES, st.integers(-10, 600))
def test_a_chosen_arc_with_its_headings_is_within_its_budget(lines, density, budget):
    chosen = choose_arc(made(lines, density), len, budget)
    assert sum(len(line.text) for line in chosen) + sum(map(len, {line.section for line in chosen})) <= max(0, budget)


@settings(deadline=None)
@given(CONVERSATIONS, DENSITIES)
def test_a_chosen_arc_is_in_the_order_of_sections_and_positions(lines, density):
    order = [(SECTIONS.index(line.section), line.position) for line in choose_arc(made(lines, density), len, 2000)]
    assert order == sorted(order)


@settings(deadline=None)
@given(CONVERSATIONS, DENSITIES)
def test_with_room_for_all_every_line_is_chosen(lines, density):
    everything = made(lines, density)
    assert len(choose_arc(everything, len, 10**6)) == len(everything)


def test_a_line_that_does_not_fit_leaves_room_for_others():
    long = ArcLine(DECISIONS, f"- {'oak ' * 20}\n", 1, 1, 2, 2.0)
    short = ArcLine(DECISIONS, "- tar\n", 2, 2, 3, 1.0)
    assert choose_arc([long, short], len, 30) == [short]


def test_a_heading_is_paid_once():
    items = [ArcLine(DECISIONS, "- tar\n", i, i, i + 1, 1.0) for i in range(3)]
    assert len(choose_arc(items, len, len(DECISIONS) + 3 * len("- tar\n"))) == 3


SCRIPT = """
from langchain_ctxbudget.core.arc import arc_lines
from langchain_ctxbudget.core.digest import Line
from langchain_ctxbudget.core.extractive import digest_messages, merge
from langchain_ctxbudget.core.questions import OpenQuestions
words = [f"w{i * 7919 % 997}x" for i in range(4000)]
def text(i):
    said = " ".join(words[i * 9 % 3000 : i * 9 % 3000 + 12])
    return f"We decided on {said}. {said}, {said}. [OPEN] Which {words[i * 13 % 4000]} of {words[i * 17 % 4000]}?"
lines = [Line(i, "ab"[i % 2], None, text(i), i % 2 == 0) for i in range(200)]
digests = [digest_messages(lines[i : i + 20], i, i + 20) for i in range(0, 200, 20)]
ledger = OpenQuestions()
ledger.read(lines)
print([s.text for s in merge(digests[:5]).sentences])
for density in ("light", "rich", "dense"):
    print(arc_lines([merge(digests[:5]), *digests[5:]], density, open_questions=ledger.alive(), focus=lines[-8:]))
"""


def test_an_arc_does_not_depend_on_the_order_of_sets():
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
