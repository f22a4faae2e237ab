"""Holds the steps that shorten a prompt over its budget to their order, and to what they leave."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from langchain_ctxbudget.budget import Fragment, Layer, Reason
from langchain_ctxbudget.layers import Rung
from langchain_ctxbudget.messages import Group
from langchain_ctxbudget.prompt import Content
from langchain_ctxbudget.prompt.assembly import build
from langchain_ctxbudget.prompt.fitting import reduce
from langchain_ctxbudget.providers import COMMON, grouped
from langchain_ctxbudget.tokens import TiktokenCounter
from tests.unit_tests.test_assembly import CONTENTS

COUNTER = TiktokenCounter()
STEPS = [rung.value for rung in Rung]


def fragment(
    text: str, layer: str = Layer.RETRIEVAL, value: float = 0.0, name: str = "m1", **rest: bool
) -> Fragment:
    line = f"- {text}\n"
    return Fragment(
        layer=layer,
        id=name,
        text=line,
        tokens=COUNTER.count_text(line),
        reason=Reason.RELEVANT,
        value=value,
        **rest,
    )


def ranked(layer: str, count: int) -> tuple[Fragment, ...]:
    """Items in order, the first one worth the most."""
    return tuple(
        fragment(f"{layer} item {number}", layer, -float(number)) for number in range(count)
    )


def groups_of(*messages: BaseMessage) -> tuple[Group, ...]:
    return tuple(grouped(messages, COMMON)[0])


def call(number: int, result: str = "found") -> list[BaseMessage]:
    calls = [{"name": "look_up", "args": {"q": "a  b"}, "id": f"c{number}"}]
    return [AIMessage("", tool_calls=calls), ToolMessage(result, tool_call_id=f"c{number}")]


TURN = groups_of(HumanMessage("And  now?"))


def after(last: str, excess_tokens: int = 1_000, **parts: Any) -> Content:
    """A content after the steps up to one, while it is over its budget by some tokens."""
    excesses = iter([excess_tokens] * (STEPS.index(last) + 1))
    content = Content(turn=TURN, question_position=0, **parts)
    return reduce(content, COUNTER, lambda _: next(excesses, 0))[0]


def prompt_cost(content: Content) -> int:
    return COUNTER.count_messages(build(content).messages)


def is_part_in_order(parts: Sequence[object], whole: Sequence[object]) -> bool:
    remaining = iter(whole)
    return all(part in remaining for part in parts)


@pytest.mark.slow
@given(CONTENTS, st.integers(0, 400))
def test_steps_are_taken_in_order_as_far_as_needed(content: Content, limit: int) -> None:
    def excess(content: Content) -> int:
        return prompt_cost(content) - limit

    smaller, steps, _ = reduce(content, COUNTER, excess)

    assert is_part_in_order(steps, STEPS)
    assert (steps == ()) == (smaller == content)
    assert prompt_cost(smaller) <= prompt_cost(content)
    if excess(content) <= 0:
        assert smaller == content
    if excess(smaller) <= 0:
        assert reduce(smaller, COUNTER, excess) == (smaller, (), ())


@pytest.mark.slow
@given(CONTENTS, st.integers(0, 400))
def test_what_stays_keeps_its_order_and_all_that_goes_is_named(
    content: Content, limit: int
) -> None:
    smaller, _, gone = reduce(content, COUNTER, lambda content: prompt_cost(content) - limit)

    gone_objects = set(map(id, gone))
    expected = [id(item) for item in content.fragments if id(item) not in gone_objects]
    assert list(map(id, smaller.fragments)) == expected
    assert is_part_in_order(positions_of(smaller.history), positions_of(content.history))
    assert bool(smaller.history) == bool(content.history)
    assert smaller.system_prompt == content.system_prompt
    assert smaller.turn == content.turn


def positions_of(groups: Sequence[Group]) -> list[tuple[int, ...]]:
    return [part.positions for part in groups]


WIDE_WORDS = "  a  b   \n\n\n\nc"
CODE = "x  y\n```\nlet  a\n\n\n\n```\nz  z"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(WIDE_WORDS, "  a b\n\nc", id="words"),
        pytest.param(CODE, CODE, id="code"),
    ],
)
def test_blanks_collapse_where_they_mean_nothing(text: str, expected: str) -> None:
    [question] = after("light", history=groups_of(HumanMessage(text, id="h1"))).history

    assert question.messages[0].content == expected
    assert question.messages[0].id == "h1"


@pytest.mark.parametrize("text", [WIDE_WORDS, CODE], ids=["words", "code"])
def test_results_of_tools_are_data_and_keep_their_blanks(text: str) -> None:
    history = groups_of(HumanMessage("Go."), *call(1, text))

    [_, round_] = after("light", history=history).history

    assert round_.messages[1].content == text


def test_of_items_that_say_the_same_one_stays() -> None:
    entity = fragment("Ada likes tea", Layer.ENTITIES, -5.0)
    repeated = fragment("ada  likes tea", value=1.0)
    less = fragment("Tea", value=1.0)
    more = fragment("tea", value=2.0)

    left = after("light", fragments=(entity, repeated, less, more)).fragments

    assert left == (entity, more)


@pytest.mark.parametrize(
    ("step", "entities", "items"), [("medium", 5, 3), ("heavy", 3, 2), ("extreme", 1, 1)]
)
def test_fewer_and_fewer_items_and_entities_stay(step: str, entities: int, items: int) -> None:
    all_entities = ranked(Layer.ENTITIES, 5)
    all_items = ranked(Layer.RETRIEVAL, 5)

    left = after(step, fragments=(*all_entities, *all_items)).fragments

    assert left == (*all_entities[:entities], *all_items[:items])


def test_the_more_valuable_half_of_the_summary_stays() -> None:
    first = fragment("first", Layer.HISTORY, value=1.0)
    second = fragment("second", Layer.HISTORY)

    assert after("heavy", fragments=(first, second)).summary == (first,)


@pytest.mark.parametrize(
    ("step", "excess_tokens", "lines"),
    [
        pytest.param("extreme", 1_000, 8, id="all before the history is cut"),
        pytest.param("middle-out", 1_000, 2, id="a quarter at least"),
        pytest.param("middle-out", 1, 7, id="no more goes than must"),
    ],
)
def test_the_arc_gives_way_after_the_history(step: str, excess_tokens: int, lines: int) -> None:
    arc = ranked(Layer.ARC, 8)

    assert after(step, excess_tokens, fragments=arc).fragments == arc[:lines]


def test_the_first_two_and_the_last_six_messages_stay_as_whole_groups() -> None:
    rounds = [message for number in range(8) for message in call(number)]
    history = groups_of(HumanMessage("Go."), *rounds)

    left = after("middle-out", history=history).history

    assert left == (*history[:2], *history[-3:])


CONFIGURED = fragment("Be brief.", Layer.PREFERENCES, 0, "preference")
MEMORIES = (
    fragment("memory 0", Layer.PREFERENCES, 0, "memory 0"),
    fragment("memory 1", Layer.PREFERENCES, -1, "memory 1"),
    fragment("memory 2", Layer.PREFERENCES, -2, "memory 2"),
)
EXPENDABLE = fragment("Is a nurse", Layer.PREFERENCES, 0, "fact/1", expendable=True)
FACT = fragment("Tea", Layer.PREFERENCES, name="fact/2")


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        ("memory reduction", (CONFIGURED, MEMORIES[0], MEMORIES[1], FACT)),
        ("memories left out", (CONFIGURED,)),
    ],
)
def test_expendable_memories_go_first_then_all(step: str, expected: tuple[Fragment, ...]) -> None:
    remembered = (CONFIGURED, *MEMORIES, EXPENDABLE, FACT)

    assert after(step, fragments=remembered).fragments == expected
