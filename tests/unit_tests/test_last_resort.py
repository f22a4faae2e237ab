"""What gives way when a prompt is still over its budget."""

from collections import Counter
from datetime import UTC, datetime
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

from langchain_ctxbudget.core.assembly import Content, Fragment, build
from langchain_ctxbudget.core.fences import as_item
from langchain_ctxbudget.core.last_resort import CLIPPED_RESULT_TOKENS, LADDER, reduce
from langchain_ctxbudget.core.layers import Layer, Reason, Status
from langchain_ctxbudget.core.messages import as_sent
from langchain_ctxbudget.core.tokens import TiktokenCounter
from langchain_ctxbudget.core.turns import group
from langchain_ctxbudget.knowledge.records import Fact
from langchain_ctxbudget.knowledge.remembered import fact_fragments, memory_fragments, preference_fragments
from langchain_ctxbudget.settings import ContextSettings

COUNTER = TiktokenCounter()
STEPS = {step.name: step for step in LADDER}
SECTIONS = {Layer.ENTITIES: "## People and things\n", Layer.RETRIEVAL: "## Said earlier in this conversation\n"}


def fragment(text, layer=Layer.RETRIEVAL, value=0.0, name="m1", heading=""):
    line = text if text.endswith("\n") else f"- {as_item(text)}\n"
    return Fragment(
        layer=layer,
        id=name,
        text=line,
        tokens=COUNTER.count_text(line),
        reason=Reason.RELEVANT,
        section=SECTIONS.get(layer, ""),
        heading=heading,
        value=value,
    )


def entity(text, value=0.0):
    return fragment(text, Layer.ENTITIES, value)


def line(text, value=0.0):
    return fragment(text, Layer.HISTORY, value)


def ranked(make, number, prefix="item"):
    """Items in order, the first one worth the most."""
    return tuple(make(f"{prefix} {i}", -float(i)) for i in range(number))


def retrieved(text, value=0.0):
    return fragment(text, Layer.RETRIEVAL, value)


def decided(text, value=0.0):
    return fragment(text, Layer.ARC, value)


def groups_of(*messages):
    return tuple(group(messages)[0])


def call(number, result="found"):
    return (
        AIMessage("", tool_calls=[{"name": "look  up", "args": {"q": "a  b"}, "id": f"c{number}"}]),
        ToolMessage(result, tool_call_id=f"c{number}"),
    )


def loop(number, result="found"):
    return [message for i in range(number) for message in call(i, result)]


TURN = groups_of(HumanMessage("And  now?"))
KNOWN = ContextSettings(preferences=("Be brief.",), memories=("Has a dog.", "Likes tea.", "Lives in Oslo."))


def fact(category, text, confidence=0.9, **rest):
    said = {"created_at": datetime(2026, 1, 1, tzinfo=UTC), "last_seen": datetime(2026, 1, 1, tzinfo=UTC)}
    return Fact(id=f"fact/{text}", text=text, category=category, confidence=confidence, **said, **rest)


FACTS = (
    fact("project", "Builds a boat"),
    fact("preference", "Prefers tea", 0.81),
    fact("preference", "Prefers cats", 0.8),
    fact("identity", "Is a nurse"),
    fact("identity", "Is called Ann", pinned=True),
)


def preferences(known=KNOWN, facts=FACTS):
    count = COUNTER.count_text
    given = (*preference_fragments(known, count), *memory_fragments(known, count))
    return given + fact_fragments(facts, count, 500, titled=bool(known.memories))[0]


def after(step, **parts):
    return STEPS[step].apply(Content(turn=TURN, **parts), COUNTER)


def texts(fragments):
    return [part.text.removeprefix("- ").removesuffix("\n") for part in fragments]


def said(groups):
    return [message.content for part in groups for message in part.messages]


# Any content


WORDS = st.text("ab .\n`", max_size=40)
SENTENCES = st.lists(st.sampled_from(["Blue.", "A bike is blue.", "  No.\n\n\n\nYes.", "It is late, and it rains."]))
SAID = st.one_of(SENTENCES.map(" ".join), WORDS).filter(str.strip)
VALUES = st.floats(-9, 9)
HEADINGS = st.sampled_from(["", "[2024-05-01]\n", "[2024-05-02]\n"])


def some(layer, lines, largest=6):
    made = st.builds(fragment, lines, st.just(layer), VALUES, st.sampled_from("abc"), HEADINGS)
    return st.lists(made, max_size=largest).map(tuple)


RETRIEVED_LINES = st.builds("{}: {}".format, st.sampled_from(["user", "Ada"]), SAID)
ENTITY_LINES = st.builds("Ada (person): {}".format, SAID)
SUMMARY_LINES = st.one_of(
    RETRIEVED_LINES, st.sampled_from(["# Messages 1-20\n", "[… 3 messages left out …]\n", "# Key messages of 21-40\n"])
)
EXCHANGES = st.one_of(
    SAID.map(lambda text: [HumanMessage(text)]),
    SAID.map(lambda text: [HumanMessage(text, name="Ada")]),
    SAID.map(lambda text: [HumanMessage([{"type": "text", "text": text}])]),
    SAID.map(lambda text: [AIMessage(text)]),
    st.builds(call, st.integers(0, 9), st.one_of(SAID, st.just("row 1 of the result\n" * 40))),
)
HISTORIES = st.lists(EXCHANGES, max_size=20).map(lambda parts: groups_of(*(m for part in parts for m in part)))
CONTENTS = st.builds(
    Content,
    system_prompt=st.sampled_from(["", "Be  kind.\n\n\n"]),
    preferences=st.sampled_from([(), preferences()]),
    arc=some(Layer.ARC, RETRIEVED_LINES),
    summary=some(Layer.HISTORY, SUMMARY_LINES, 9),
    summary_intro=st.just("[From the first 40 messages.]\n"),
    summary_outro=st.sampled_from(["", "[The conversation goes on.]"]),
    history=HISTORIES,
    volatile=st.tuples(
        some(Layer.TOPICS, SAID), some(Layer.ENTITIES, ENTITY_LINES), some(Layer.RETRIEVAL, RETRIEVED_LINES)
    ).map(lambda parts: tuple(part for own in parts for part in own)),
    turn=st.sampled_from([TURN, groups_of(HumanMessage("Look  it up"), *call(0))]),
)
ANY_STEP = st.sampled_from(LADDER)
ANY = settings(deadline=None)


def tokens(content):
    return COUNTER.count_messages(build(content).messages)


def over(limit_tokens):
    return lambda content: tokens(content) - limit_tokens


def everything(content):
    return [*content.preferences, *content.arc, *content.summary, *content.volatile]


def is_in_order(part, whole):
    rest = iter(whole)
    return all(item in rest for item in part)


@ANY
@given(ANY_STEP, CONTENTS)
def test_no_step_makes_a_prompt_larger(step, content):
    assert tokens(step.apply(content, COUNTER).content) <= tokens(content)


@ANY
@given(ANY_STEP, CONTENTS)
def test_a_step_that_changes_something_makes_the_prompt_smaller(step, content):
    smaller = step.apply(content, COUNTER).content
    assert smaller == content or tokens(smaller) < tokens(content)


@ANY
@given(ANY_STEP, CONTENTS)
def test_no_step_touches_the_system_prompt_and_the_turn(step, content):
    smaller = step.apply(content, COUNTER).content
    assert smaller.system_prompt == content.system_prompt
    assert smaller.turn is content.turn


@ANY
@given(ANY_STEP, CONTENTS)
def test_a_fragment_stays_or_is_among_those_gone(step, content):
    reduced = step.apply(content, COUNTER)
    left = Counter((f.layer, f.id) for f in [*everything(reduced.content), *reduced.gone])
    assert left == Counter((f.layer, f.id) for f in everything(content))


@ANY
@given(ANY_STEP, CONTENTS)
def test_what_stays_of_the_fragments_is_in_order(step, content):
    smaller = step.apply(content, COUNTER).content
    for field in ("preferences", "arc", "summary", "volatile"):
        names = [[(f.layer, f.id) for f in getattr(each, field)] for each in (smaller, content)]
        assert is_in_order(*names)


@ANY
@given(ANY_STEP, CONTENTS)
def test_what_stays_of_the_history_are_whole_groups_in_order(step, content):
    kept = step.apply(content, COUNTER).content.history
    was = {part.positions: [m.type for m in part.messages] for part in content.history}
    assert is_in_order([part.positions for part in kept], was)
    assert all([m.type for m in part.messages] == was[part.positions] for part in kept)


@ANY
@given(ANY_STEP, CONTENTS)
def test_calls_are_never_changed(step, content):
    kept = step.apply(content, COUNTER).content.history
    calls = {part.positions: [getattr(m, "tool_calls", None) for m in part.messages] for part in content.history}
    assert all([getattr(m, "tool_calls", None) for m in part.messages] == calls[part.positions] for part in kept)


@ANY
@given(ANY_STEP, CONTENTS)
def test_no_step_leaves_a_history_of_nothing(step, content):
    assert bool(step.apply(content, COUNTER).content.history) == bool(content.history)


@ANY
@given(ANY_STEP, CONTENTS)
def test_fragments_cost_what_they_say(step, content):
    kept = everything(step.apply(content, COUNTER).content)
    assert all(part.tokens == COUNTER.count_text(part.text) for part in kept)


@ANY
@given(ANY_STEP, CONTENTS)
def test_the_given_messages_are_not_changed(step, content):
    before = [m.model_copy(deep=True) for part in content.history for m in part.messages]
    step.apply(content, COUNTER)
    assert [m for part in content.history for m in part.messages] == before


@ANY
@given(st.sampled_from(["light", "middle-out", "memories left out"]), CONTENTS)
def test_a_step_that_takes_no_share_does_nothing_more_the_second_time(name, content):
    once = STEPS[name].apply(content, COUNTER).content
    assert STEPS[name].apply(once, COUNTER).content == once


@ANY
@given(CONTENTS, st.integers(0, 800))
def test_reducing_what_was_reduced_enough_changes_nothing(content, limit):
    smaller = reduce(content, COUNTER, over(limit)).content
    if tokens(smaller) <= limit:
        assert reduce(smaller, COUNTER, over(limit)) == (smaller, (), ())


@ANY
@given(CONTENTS)
def test_the_whole_ladder_comes_to_an_end(content):
    for _ in range(10):
        content, steps, _gone = reduce(content, COUNTER, over(0))
    assert steps == ()


@ANY
@given(CONTENTS, st.integers(0, 800))
def test_steps_are_taken_in_order_and_only_as_far_as_needed(content, limit):
    names = list(STEPS)
    steps = reduce(content, COUNTER, over(limit)).steps
    assert is_in_order(steps, names)
    so_far = content
    for name in steps:
        assert tokens(so_far) > limit
        so_far = STEPS[name].apply(so_far, COUNTER).content


@ANY
@given(CONTENTS, st.integers(0, 800))
def test_what_the_ladder_takes_out_is_what_is_missing(content, limit):
    smaller, _, gone = reduce(content, COUNTER, over(limit))
    left = Counter((f.layer, f.id) for f in [*everything(smaller), *gone])
    assert left == Counter((f.layer, f.id) for f in everything(content))


@ANY
@given(CONTENTS, st.integers(0, 800))
def test_a_prompt_is_measured_at_most_once_per_step(content, limit):
    asked = []

    def measure(given):
        asked.append(given)
        return over(limit)(given)

    reduce(content, COUNTER, measure)
    assert len(asked) <= len(LADDER)
    assert all(before != later for before, later in pairwise(asked))


def test_what_fits_stays_as_it_is():
    content = Content(history=groups_of(HumanMessage("a  b")), turn=TURN)
    assert reduce(content, COUNTER, lambda _: 0) == (content, (), ())


def test_steps_that_change_nothing_are_not_named():
    content = Content(preferences=preferences(), turn=TURN)
    assert reduce(content, COUNTER, lambda _: 1).steps == ("memory reduction", "memories left out")


def test_every_step_can_have_an_effect_in_turn():
    content = Content(
        preferences=preferences(),
        arc=ranked(decided, 8),
        summary=ranked(line, 8),
        history=groups_of(*[HumanMessage("Why  so?"), AIMessage("Because.")] * 8, HumanMessage("Go"), *loop(9)),
        volatile=(*ranked(entity, 5), *ranked(retrieved, 5)),
        turn=TURN,
    )
    assert reduce(content, COUNTER, lambda _: 1).steps == tuple(STEPS)


# Light


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("one   two\t\tthree", "one two three"),
        ("one  \n\n\n  \n\ntwo   \nthree", "one\n\ntwo\nthree"),
        ("one   \r\n   \r\n   \r\ntwo", "one\n\ntwo"),
        ("- a\n    - b  c", "- a\n    - b c"),
        (
            "so:  x\n\n\n\n```\nif  x:\n\n\n\n    y  = 1\n```\n\n\n\nyes",
            "so: x\n\n```\nif  x:\n\n\n\n    y  = 1\n```\n\nyes",
        ),
        ("a    b ```never  closed", "a b ```never  closed"),
        ("a    b\n````\n```\nx  y\n```\n````", "a b\n````\n```\nx  y\n```\n````"),
    ],
)
def test_blanks_collapse_where_they_mean_nothing(text, expected):
    assert said(after("light", history=groups_of(HumanMessage(text))).content.history) == [expected]


def test_a_message_that_is_made_simpler_keeps_its_id():
    [kept] = after("light", history=groups_of(AIMessage("a    b    c", id="m7"))).content.history
    assert (kept.messages[0].id, kept.messages[0].content) == ("m7", "a b c")


def test_plain_text_blocks_are_made_simpler_and_others_are_not():
    image = {"type": "image_url", "image_url": {"url": "https://x.invalid/a  b"}}
    cited = {"type": "text", "text": "a    b    c", "citations": [{"start": 5}]}
    message = HumanMessage([{"type": "text", "text": "a    b    c"}, image, cited])
    [content] = said(after("light", history=groups_of(message)).content.history)
    assert content == [{"type": "text", "text": "a b c"}, image, cited]


def test_results_of_tools_keep_their_blanks():
    history = groups_of(*call(0, "a    b\n\n\n\n\nc"))
    assert after("light", history=history).content.history == history


def test_a_history_without_superfluous_blanks_stays_the_same_objects():
    history = groups_of(HumanMessage("a b"), AIMessage("c"))
    assert all(new is old for new, old in zip(after("light", history=history).content.history, history, strict=True))


def test_of_items_that_say_the_same_the_most_valuable_stays():
    items = (retrieved("Ada: A  blue bike", 1), retrieved("Ada: a blue BIKE", 2), retrieved("Bob: a blue bike", 0))
    reduced = after("light", volatile=items)
    assert (reduced.content.volatile, reduced.gone) == (items[1:], items[:1])


def test_a_retrieved_item_gives_way_to_an_equal_one_of_another_layer():
    items = (entity("Ada: a blue bike", -1), retrieved("Ada: a blue bike", 9))
    assert after("light", volatile=items).content.volatile == items[:1]


@pytest.mark.parametrize(
    ("message", "item"),
    [
        (HumanMessage("A blue  bike"), "user: a blue bike"),
        (AIMessage("a blue\nbike"), "assistant: a blue\nbike"),
        (HumanMessage("a blue bike", name="Ada Lovelace"), "Ada Lovelace: a blue bike"),
        (call(0, "a blue bike"), "tool: a blue bike"),
    ],
)
def test_a_retrieved_item_that_a_message_says_goes(message, item):
    history = groups_of(*(map(as_sent, message if isinstance(message, tuple) else [message])))
    assert after("light", history=history, volatile=(retrieved(item),)).content.volatile == ()


def test_a_retrieved_item_that_a_message_says_under_its_date_goes():
    history = groups_of(as_sent(HumanMessage("a blue bike"), heading="[2024-05-01]"))
    assert after("light", history=history, volatile=(retrieved("user: a blue bike"),)).content.volatile == ()


def test_the_same_words_of_another_speaker_stay():
    item = retrieved("Ada: yes")
    assert after("light", history=groups_of(AIMessage("Yes")), volatile=(item,)).content.volatile == (item,)


# Medium


def test_the_newer_half_of_the_history_stays_from_a_question_on():
    history = groups_of(*[HumanMessage("Why so?"), AIMessage("Because.")] * 5)
    assert after("medium", history=history).content.history == history[6:]


def test_an_exchange_that_is_more_than_half_stays_whole():
    history = groups_of(HumanMessage("a"), AIMessage("b"), HumanMessage("c"), AIMessage("long " * 50))
    assert after("medium", history=history).content.history == history[2:]


@pytest.mark.parametrize("step", ["medium", "heavy"])
def test_a_history_without_a_question_stays(step):
    history = groups_of(*loop(3))
    assert after(step, history=history).content.history == history


WHO = entity("Dr. Who (person): Travels in time. Has two hearts. Likes tea.")


def test_an_entity_is_reduced_to_a_sentence():
    assert texts(after("medium", volatile=(WHO,)).content.volatile) == ["Dr. Who (person): Travels in time. …"]


def test_an_entity_that_was_reduced_is_reported_as_shrunk():
    [kept] = after("medium", volatile=(WHO,)).content.volatile
    assert (kept.id, kept.status, kept.reason) == (WHO.id, Status.SHRUNK, Reason.COMPRESSED)


def test_an_entity_is_reduced_to_its_first_line():
    item = entity("Ada (person): Has a dog\nand a cat\nand more than one can count")
    assert texts(after("medium", volatile=(item,)).content.volatile) == ["Ada (person): Has a dog …"]


@pytest.mark.parametrize("text", ["Ada (person): Has a dog.", "Ada (person): Has a dog. …", "Ada (person): "])
def test_an_entity_of_one_sentence_stays(text):
    assert after("medium", volatile=(entity(text),)).content.volatile == (entity(text),)


def test_three_retrieved_items_stay_the_most_valuable_ones():
    reduced = after("medium", volatile=(*ranked(retrieved, 5)[::-1], fragment("own", "own layer")))
    assert texts(reduced.content.volatile) == ["item 2", "item 1", "item 0", "own"]
    assert texts(reduced.gone) == ["item 4", "item 3"]


# Heavy


def test_the_last_exchange_stays():
    history = groups_of(HumanMessage("a"), AIMessage("b"), HumanMessage("c"), *loop(2), AIMessage("d"))
    assert after("heavy", history=history).content.history == history[2:]


def test_three_entities_and_two_retrieved_items_stay():
    kept = after("heavy", volatile=(*ranked(entity, 5, "entity"), *ranked(retrieved, 5))).content.volatile
    assert texts(kept) == ["entity 0", "entity 1", "entity 2", "item 0", "item 1"]


def test_the_more_valuable_half_of_the_summary_stays():
    reduced = after("heavy", summary=(line("a", 1), line("b", 3), line("c", 2), line("d", 1), line("e", 5)))
    assert texts(reduced.content.summary) == ["b", "c", "e"]
    assert texts(reduced.gone) == ["a", "d"]


def test_titles_of_nothing_and_marks_of_gaps_leave_the_summary_with_its_lines():
    best = float("inf")
    older, newer = line("# Messages 1-20\n", best), line("# Key messages of 21-40\n", best)
    gap = line("[… 3 messages left out …]\n")
    reduced = after("heavy", summary=(older, line("a", 1), newer, gap, line("b", 2), gap))
    assert reduced.content.summary == (newer, line("b", 2))
    assert Counter(reduced.gone) == Counter([older, line("a", 1), gap, gap])


# Extreme


def test_results_in_the_last_exchange_are_clipped():
    history = groups_of(HumanMessage("Look"), *call(0, "row of the result\n" * 200), AIMessage("word " * 200))
    _, found, answer = after("extreme", history=history).content.history
    assert COUNTER.count_message(found.messages[1]) <= CLIPPED_RESULT_TOKENS
    assert "tokens left out" in found.messages[1].content
    assert (found.messages[0], answer) == (history[1].messages[0], history[2])


def test_a_clipped_result_says_how_to_recall_it():
    result = ToolMessage("row of the result\n" * 200, tool_call_id="c0", id="m7")
    [_, found] = after("extreme", history=groups_of(HumanMessage("Look"), call(0)[0], result)).content.history
    assert 'reference "m7"' in found.messages[1].content


def test_only_the_essential_stays():
    content = after(
        "extreme",
        arc=ranked(decided, 8),
        summary=ranked(line, 8),
        volatile=(*ranked(entity, 3, "entity"), *ranked(retrieved, 3)),
    ).content
    assert texts(content.arc) == ["item 0", "item 1"]
    assert texts(content.summary) == ["item 0"]
    assert texts(content.volatile) == ["entity 0", "item 0"]


def test_no_arc_is_too_short_to_stay():
    assert texts(after("extreme", arc=ranked(decided, 3)).content.arc) == ["item 0"]


# Middle-out


def test_the_first_two_and_the_last_six_messages_stay():
    history = groups_of(*(HumanMessage(str(i)) for i in range(20)))
    assert said(after("middle-out", history=history).content.history) == ["0", "1", *map(str, range(14, 20))]


def test_groups_at_the_edges_of_the_middle_stay_whole():
    history = groups_of(HumanMessage("Go"), *loop(9), AIMessage("Done"))
    kept = after("middle-out", history=history).content.history
    assert kept == (*history[:2], *history[-4:])


def test_eight_messages_have_no_middle():
    history = groups_of(*(HumanMessage(str(i)) for i in range(8)))
    assert after("middle-out", history=history).content.history == history


def test_of_a_long_last_exchange_the_question_and_the_newest_results_stay():
    content = Content(history=groups_of(HumanMessage("Go"), *loop(9)), turn=TURN)
    smaller, steps, _ = reduce(content, COUNTER, lambda _: 1)
    assert steps == ("middle-out",)
    assert [part.positions[0] for part in smaller.history] == [0, 1, 13, 15, 17]


# Memories


def test_the_less_valuable_half_of_the_memories_that_settings_give_goes():
    reduced = after("memory reduction", preferences=preferences(facts=()))
    assert texts(reduced.content.preferences) == ["Be brief.", "Has a dog.", "Likes tea."]
    assert texts(reduced.gone) == ["Lives in Oslo."]


def test_of_facts_work_and_sure_preferences_and_pinned_ones_stay():
    reduced = after("memory reduction", preferences=preferences(ContextSettings()))
    assert texts(reduced.content.preferences) == ["Builds a boat", "Prefers tea", "Is called Ann"]
    assert sorted(texts(reduced.gone)) == ["Is a nurse", "Prefers cats"]


def test_a_heading_goes_with_the_last_fact_below_it():
    facts = [fact("preference", "Prefers cats", 0.5), fact("project", "Builds a boat")]
    content = after("memory reduction", preferences=preferences(ContextSettings(), facts)).content
    [system] = [m.content for m in build(content).messages if m.type == "system"]
    assert "Current work:\n- Builds a boat" in system
    assert "Preferences:" not in system


def test_preferences_stay_when_everything_that_is_known_is_left_out():
    reduced = after("memories left out", preferences=preferences())
    assert reduced.content.preferences == preference_fragments(KNOWN, COUNTER.count_text)
    assert len(reduced.gone) == len(KNOWN.memories) + len(FACTS)
