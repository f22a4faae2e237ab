"""The steps that are taken when a prompt is still over its budget."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from langchain_ctxbudget.budget.layers import Fragment, Layer, Reason
from langchain_ctxbudget.messages.turns import Group, group
from langchain_ctxbudget.prompt.assembly import Content, build
from langchain_ctxbudget.prompt.last_resort import CLIPPED_RESULT_TOKENS, LADDER, collapsed, reduce
from langchain_ctxbudget.tokens.counters import TiktokenCounter

COUNTER = TiktokenCounter()
NAMES = [step.name for step in LADDER]


def fragment(text: str, layer: str = Layer.RETRIEVAL, value: float = 0.0, name: str = "m1", **rest: bool) -> Fragment:
    line = text if text.endswith("\n") else f"- {text}\n"
    tokens = COUNTER.count_text(line)
    return Fragment(layer=layer, id=name, text=line, tokens=tokens, reason=Reason.RELEVANT, value=value, **rest)


def ranked(layer: str, number: int, **rest: str) -> tuple[Fragment, ...]:
    """Items in order, the first one worth the most."""
    return tuple(fragment(f"{layer} item {i}", layer, -float(i), **rest) for i in range(number))


def groups_of(*messages: BaseMessage) -> tuple[Group, ...]:
    return tuple(group(messages)[0])


def call(number: int, result: str = "found") -> list[BaseMessage]:
    calls = [{"name": "look_up", "args": {"q": "a  b"}, "id": f"c{number}"}]
    return [AIMessage("", tool_calls=calls), ToolMessage(result, tool_call_id=f"c{number}")]


TURN = groups_of(HumanMessage("And  now?"))


def after(last: str, **parts: tuple[object, ...]) -> Content:
    """A content after the steps up to one."""
    left = iter([1] * (NAMES.index(last) + 1))
    return reduce(Content(turn=TURN, **parts), COUNTER, lambda _: next(left, 0))[0]


def texts(fragments: tuple[Fragment, ...]) -> list[str]:
    return [part.text.removeprefix("- ").removesuffix("\n") for part in fragments]


def cost(content: Content) -> int:
    return COUNTER.count_messages(build(content).messages)


# -- any content

SAID = st.sampled_from(
    ["Blue.", "A bike  is blue.", "  No.\n\n\n\nYes.", "It is late, and it rains.  \n```\na  b\n```"]
)
EXCHANGES = st.one_of(
    SAID.map(lambda text: [HumanMessage(text)]),
    SAID.map(lambda text: [AIMessage(text)]),
    st.builds(call, st.integers(0, 9), st.one_of(SAID, st.just("row 1 of the result\n" * 40))),
)


def some(layer: str, lines: st.SearchStrategy[str]) -> st.SearchStrategy[tuple[Fragment, ...]]:
    return st.lists(st.builds(fragment, lines, st.just(layer), st.floats(-9, 9)), max_size=6).map(tuple)


SUMMARY = st.one_of(SAID.map("user: ".__add__), st.sampled_from(["# Messages 1-20\n", "[… 3 messages left out …]\n"]))
CONTENTS = st.builds(
    Content,
    system_prompt=st.just("Be  kind."),
    arc=some(Layer.ARC, SAID),
    summary=some(Layer.HISTORY, SUMMARY),
    history=st.lists(EXCHANGES, max_size=8).map(lambda parts: groups_of(*(one for part in parts for one in part))),
    volatile=st.builds(tuple.__add__, some(Layer.ENTITIES, SAID), some(Layer.RETRIEVAL, SAID)),
    turn=st.just(TURN),
)


@settings(deadline=None, max_examples=150)
@given(CONTENTS, st.integers(0, 400))
def test_steps_are_taken_in_order_as_far_as_needed_and_all_that_goes_is_named(content: Content, limit: int) -> None:
    left, taken, gone = reduce(content, COUNTER, lambda one: cost(one) - limit)
    assert list(taken) == [name for name in NAMES if name in taken]
    assert (taken == ()) == (left == content)
    assert cost(left) <= cost(content)
    if cost(content) <= limit:
        assert left == content
    for field in ("arc", "summary", "volatile"):
        before, stays = ([*map(id, getattr(one, field))] for one in (content, left))
        out = {*map(id, gone)}
        assert stays == [one for one in before if one not in out]
    assert (left.system_prompt, left.turn) == (content.system_prompt, content.turn)
    positions = [part.positions for part in left.history]
    assert positions == [part.positions for part in content.history if part.positions in positions]
    assert bool(left.history) == bool(content.history)
    if cost(left) <= limit:
        assert reduce(left, COUNTER, lambda one: cost(one) - limit) == (left, (), ())


# -- each step


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a  b   \n\n\n\nc", "a b\n\nc"),
        ("  indented\t\tline", "  indented line"),
        ("x  y\n```\nlet  a\n\n\n\n```\nz  z", "x y\n```\nlet  a\n\n\n\n```\nz z"),
    ],
)
def test_blanks_collapse_where_they_mean_nothing(text: str, expected: str) -> None:
    assert collapsed(text) == expected
    [question, step] = after("light", history=groups_of(HumanMessage(text, id="h1"), *call(1, text))).history
    assert (question.messages[0].content, question.messages[0].id) == (expected, "h1")
    assert step.messages[1].content == text, "results of tools are data"


def test_of_items_that_say_the_same_one_stays() -> None:
    entity = fragment("Ada likes tea", Layer.ENTITIES, -5.0)
    items = (entity, fragment("ada  likes tea", value=1.0), fragment("Tea", value=1.0), fragment("tea", value=2.0))
    assert after("light", volatile=items).volatile == (entity, items[3])


def test_fewer_and_fewer_items_and_entities_stay() -> None:
    volatile = (*ranked(Layer.ENTITIES, 5), *ranked(Layer.RETRIEVAL, 5))
    for last, entities, items in (("medium", 5, 3), ("heavy", 3, 2), ("extreme", 1, 1)):
        left = after(last, volatile=volatile).volatile
        assert left == volatile[:entities] + volatile[5 : 5 + items]


def test_the_newer_half_of_the_history_stays_then_the_last_exchange() -> None:
    history = groups_of(*(m for i in range(4) for m in (HumanMessage(f"Question {i}"), AIMessage(f"Answer {i}"))))
    assert after("medium", history=history).history == history[4:]
    assert after("heavy", history=history).history == history[6:]
    unasked = groups_of(*(AIMessage(f"Answer {i}") for i in range(4)))
    assert after("heavy", history=unasked).history == unasked


def test_the_more_valuable_half_of_the_summary_stays_without_bare_titles_and_gaps() -> None:
    lines = (
        fragment("# Messages 1-20\n"),
        fragment("first", value=1.0),
        fragment("[… 3 messages left out …]\n"),
        fragment("# Messages 21-40\n"),
        fragment("second"),
    )
    assert texts(after("heavy", summary=lines).summary) == ["# Messages 1-20", "first"]
    assert len(after("extreme", arc=ranked(Layer.ARC, 8)).arc) == 2


def test_results_in_the_last_exchange_are_clipped_and_name_what_recalls_them() -> None:
    calling, result = call(1, "row of the result\n" * 200)
    [_, step] = after(
        "extreme", history=groups_of(HumanMessage("Look."), calling, result.model_copy(update={"id": "r1"}))
    ).history
    assert COUNTER.count_message(step.messages[1]) <= CLIPPED_RESULT_TOKENS
    assert '"r1"' in step.messages[1].text


def test_the_first_two_and_the_last_six_messages_stay_as_whole_groups() -> None:
    history = groups_of(HumanMessage("Go."), *(message for i in range(8) for message in call(i)))
    left = after("middle-out", history=history).history
    assert left == (*history[:2], *history[-3:])


def test_of_memories_expendable_ones_go_first_then_all() -> None:
    given_ones = tuple(fragment(f"memory {i}", Layer.PREFERENCES, -float(i), f"memory {i}") for i in range(3))
    facts = (fragment("Is a nurse", Layer.PREFERENCES, 0, "fact/1", expendable=True), fragment("Tea", name="fact/2"))
    asked = fragment("Be brief.", Layer.PREFERENCES, 0, "preference")
    known = (asked, *given_ones, *facts)
    assert after("memory reduction", preferences=known).preferences == (asked, *given_ones[:2], facts[1])
    assert after("memories left out", preferences=known).preferences == (asked,)
