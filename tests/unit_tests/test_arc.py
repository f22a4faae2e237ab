"""The arc of a conversation: its sections, what stands in them, and the choice within a budget."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from langchain_ctxbudget.history import Line
from langchain_ctxbudget.history.arc import (
    ARTIFACTS,
    DECISIONS,
    FOCUS,
    LIGHT_ITEMS,
    NARRATIVE,
    OPEN,
    SECTIONS,
    WHO,
    arc_lines,
    arc_of,
    choose_arc,
)
from langchain_ctxbudget.history.extractive import digest_messages
from langchain_ctxbudget.history.open_questions import OpenQuestions
from langchain_ctxbudget.messages import fences
from langchain_ctxbudget.stores import SummaryLine

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


def lines_of(*texts, speakers=("Ada", "assistant")):
    return [
        Line(i, speakers[i % len(speakers)], f"2024-05-{1 + i // 4:02}", text, from_user=i % len(speakers) == 0)
        for i, text in enumerate(texts)
    ]


def digests_of(lines, size=4):
    return [digest_messages(lines[i : i + size], i, min(len(lines), i + size)) for i in range(0, len(lines), size)]


def made(lines, density):
    asked = OpenQuestions().read(lines).alive()
    return arc_lines(digests_of(lines), density, open_questions=asked, focus=lines[-4:])


def arc(*texts, density="dense", speakers=("Ada", "assistant")):
    return made(lines_of(*texts, speakers=speakers), density)


def of(section, lines):
    return [line.text for line in sorted(lines, key=lambda line: line.position) if line.heading == section]


def test_every_section_says_its_part():
    lines = arc(*TALK)
    assert "- [2024-05-01] Ada: We decided on oak for the boat, 40 planks.\n" in of(DECISIONS, lines)
    assert of(OPEN, lines) == ["- [2024-05-01] assistant: [OPEN] Who pays for the sails?\n"]
    assert set(of(ARTIFACTS, lines)[0][2:-1].split(", ")) == {"plans/hull.md", "draw_hull()"}
    assert of(WHO, lines) == ["- Ada (2 decisions), assistant\n"]
    terms, said = of(FOCUS, lines)
    assert [word in terms for word in ("tar", "buckets", "boat")] == [True, True, False]
    assert said == "- Ada: I ordered two buckets of tar for the roof today.\n"
    first, *_, last = of(NARRATIVE, lines)
    assert first.startswith("- [2024-05-01] Topics: ")
    assert "boat" in first
    assert last.startswith("- [2024-05-03] Topics: ")
    assert "tar" in last
    [line] = [line for line in lines if "40 planks" in line.text and line.heading == DECISIONS]
    assert (line.position, line.first, line.end) == (2, 2, 3)
    assert "Topics: " in of(NARRATIVE, arc("我们在柏林造一条木船。", "木船需要橡木和焦油。", "木船在柏林的谷仓里。"))[0]


def test_a_density_has_its_sections_and_its_length():
    sections = {"light": {NARRATIVE, DECISIONS, OPEN}, "rich": set(SECTIONS) - {WHO}, "dense": set(SECTIONS)}
    for density, story in [("light", 1), ("rich", 3), ("dense", 5)]:
        lines = arc(*TALK, *TALK[:8], density=density)
        assert {line.heading for line in lines} == sections[density]
        assert len(of(NARRATIVE, lines)) == story
    words = "oak tar roof sail hull rope mast deck keel anchor".split()
    texts = [f"We decided on {word} from {word}ville." for word in words]
    counts = [len(of(DECISIONS, arc(*texts, density=density))) for density in ("light", "rich")]
    assert counts == [LIGHT_ITEMS, len(words)]


def test_of_decisions_on_one_matter_the_newest_stands():
    for older, newer in [
        ("We decided on oak for the boat.", "So we decided: oak for the boat."),
        ("We decided to launch the boat on 3 October.", "New launch date: Saturday 17 October for the boat."),
        ("We agreed on no late fees.", "Note it as final: no late fees, no deposits, suspension after 14 days."),
        ("We decided on a red sail for the boat.", "Reversed: the boat gets a white sail, not the red one."),
    ]:
        [line] = of(DECISIONS, arc(older, newer, speakers=("Ada",)))
        assert newer in line
    assert len(of(DECISIONS, arc("We decided on oak for the boat.", "We decided on tar for the roof."))) == 2
    assert of(DECISIONS, arc("We decided on that now.")) == []


def modelled(lines, at=-1, **changes):
    digests = digests_of(lines)
    digests[at] = replace(digests[at], made_by="model", **changes)
    return digests


def test_a_models_narrative_is_the_story_and_extraction_goes_on():
    digests = modelled(lines_of(*TALK), 0, narrative="Ada builds\na boat.")
    story = [line for line in arc_lines(digests, "dense", open_questions=(), focus=()) if line.heading == NARRATIVE]
    story.sort(key=lambda line: line.position)
    assert (story[0].text, story[0].made_by, len(story)) == ("- Ada builds a boat.\n", "model", 3)


def test_a_models_open_questions_stand_for_its_time_unless_they_were_answered():
    lines = lines_of(*TALK)
    digests = modelled(lines, narrative="Ada builds a boat.", open_questions=("Who steers the boat?",))
    later = Line(12, "Ada", None, "[OPEN] Which colour gets the mast?", from_user=True)
    asked = OpenQuestions().read([*lines, later]).alive()
    found = arc_lines(digests, "rich", open_questions=asked, focus=[later])
    assert of(OPEN, found) == ["- [OPEN] Who steers the boat?\n", "- Ada: [OPEN] Which colour gets the mast?\n"]
    answer = Line(13, "Ada", None, "We decided: Bob steers the boat.", from_user=True)
    chosen, alive = arc_of(
        digests, "compacted", open_questions=asked, focus=lines[-4:], recent=[answer], count=len, budget_tokens=10**6
    )
    assert of(OPEN, chosen) == ["- Ada: [OPEN] Which colour gets the mast?\n"]
    assert alive == {question.text for question in asked}


def test_a_models_decision_stands_for_its_span():
    lines = lines_of(*TALK)
    said = tuple(replace(s, speaker="", date=None) for s in digests_of(lines)[0].sentences)
    found = arc_lines(modelled(lines, 0, sentences=said), "rich", open_questions=(), focus=())
    [line] = [line for line in found if "oak" in line.text and line.heading == DECISIONS]
    assert (line.text, line.first, line.end) == ("- We decided on oak for the boat, 40 planks.\n", 0, 4)


WORDS = st.sampled_from(
    "bike blue decided: Redis 42 [OPEN] Berlin main.py the of we We agreed on <context> error ?".split()
)
TEXTS = st.lists(st.lists(WORDS, max_size=9).map(" ".join), max_size=4).map(". ".join)
CONVERSATIONS = st.lists(TEXTS, max_size=20).map(lambda texts: lines_of(*texts))


@settings(deadline=None)
@given(CONVERSATIONS, st.sampled_from(["light", "rich", "dense"]), st.integers(-10, 600))
def test_lines_are_items_by_value_and_a_choice_is_within_its_budget_in_order(lines, density, budget):
    found = made(lines, density)
    for line in found:
        assert line.text.startswith("- ")
        assert line.text.count("\n") == 1 == len(line.text) - line.text.index("\n")
        assert "<context>" not in line.text
        assert 0 <= line.first < line.end <= len(lines) or line.heading in (FOCUS, ARTIFACTS, WHO)
    assert [line.value for line in found] == sorted((line.value for line in found), reverse=True)
    chosen = choose_arc(found, len, budget)
    assert sum(len(line.text) for line in chosen) + sum(map(len, {line.heading for line in chosen})) <= max(0, budget)
    everything = choose_arc(found, len, 10**6)
    order = [(SECTIONS.index(line.heading), line.position) for line in everything]
    assert order == sorted(order)
    assert len(everything) == len(found)


def test_a_line_that_does_not_fit_leaves_room_and_a_heading_is_paid_once():
    long, *short = (
        SummaryLine(position=i, heading=DECISIONS, text=text)
        for i, text in enumerate([f"- {'oak ' * 20}\n", *["- tar\n"] * 3])
    )
    assert choose_arc([long, *short], len, len(DECISIONS) + 3 * len("- tar\n")) == short
    fence = fences.closing(fences.ARC).strip()
    assert fence not in of(DECISIONS, arc(f"We decided on oak {fence} for the boat."))[0]
