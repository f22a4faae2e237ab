"""A turn that grows step by step in its room, and the steps that are taken when a prompt is over its budget."""

import re
from collections.abc import Sequence
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from langchain_ctxbudget.budget import Fragment, Layer, Reason
from langchain_ctxbudget.messages import Group, group
from langchain_ctxbudget.prompt import Content, group_tokens
from langchain_ctxbudget.prompt.assembly import build
from langchain_ctxbudget.prompt.fitting import LADDER, reduce
from langchain_ctxbudget.prompt.plan import PlannedTurn
from langchain_ctxbudget.prompt.turn import TURN_POLICY, GrowingTurn, ReadTurn, TurnLimits
from langchain_ctxbudget.tokens import TiktokenCounter
from tests.unit_tests.test_assembly import CONTENTS

COUNTER = TiktokenCounter()
NAMES = list(LADDER)


def fragment(
    text: str, layer: str = Layer.RETRIEVAL, value: float = 0.0, name: str = "m1", **rest: bool
) -> Fragment:
    line = text if text.endswith("\n") else f"- {text}\n"
    tokens = COUNTER.count_text(line)
    return Fragment(
        layer=layer, id=name, text=line, tokens=tokens, reason=Reason.RELEVANT, value=value, **rest
    )


def ranked(layer: str, number: int, **rest: str) -> tuple[Fragment, ...]:
    """Items in order, the first one worth the most."""
    return tuple(fragment(f"{layer} item {i}", layer, -float(i), **rest) for i in range(number))


def groups_of(*messages: BaseMessage) -> tuple[Group, ...]:
    return tuple(group(messages)[0])


def call(number: int, result: str = "found") -> list[BaseMessage]:
    calls = [{"name": "look_up", "args": {"q": "a  b"}, "id": f"c{number}"}]
    return [AIMessage("", tool_calls=calls), ToolMessage(result, tool_call_id=f"c{number}")]


TURN = groups_of(HumanMessage("And  now?"))


def after(last: str, **parts: Any) -> Content:
    """A content after the steps up to one, each taken as far as it goes."""
    left = iter([1_000] * (NAMES.index(last) + 1))
    return reduce(Content(turn=TURN, asked=0, **parts), COUNTER, lambda _: next(left, 0))[0]


def prompt_cost(content: Content) -> int:
    return COUNTER.count_messages(build(content).messages)


@settings(max_examples=80)
@given(CONTENTS, st.integers(0, 400))
def test_steps_are_taken_in_order_as_far_as_needed_and_all_that_goes_is_named(
    content: Content, limit: int
) -> None:
    left, taken, gone = reduce(content, COUNTER, lambda one: prompt_cost(one) - limit)
    assert list(taken) == [name for name in NAMES if name in taken]
    assert (taken == ()) == (left == content)
    assert prompt_cost(left) <= prompt_cost(content)
    if prompt_cost(content) <= limit:
        assert left == content
    out = {*map(id, gone)}
    assert [*map(id, left.fragments)] == [
        id(one) for one in content.fragments if id(one) not in out
    ]
    assert (left.system_prompt, left.turn) == (content.system_prompt, content.turn)
    positions = [part.positions for part in left.history]
    assert positions == [part.positions for part in content.history if part.positions in positions]
    assert bool(left.history) == bool(content.history)
    if prompt_cost(left) <= limit:
        assert reduce(left, COUNTER, lambda one: prompt_cost(one) - limit) == (left, (), ())


def test_blanks_collapse_where_they_mean_nothing() -> None:
    for text, expected in [
        ("  a  b   \n\n\n\nc", "  a b\n\nc"),
        ("x  y\n```\nlet  a\n\n\n\n```\nz  z", "x  y\n```\nlet  a\n\n\n\n```\nz  z"),
    ]:
        [question, step] = after(
            "light", history=groups_of(HumanMessage(text, id="h1"), *call(1, text))
        ).history
        assert (question.messages[0].content, question.messages[0].id) == (expected, "h1")
        assert step.messages[1].content == text, "results of tools are data"


def test_of_items_that_say_the_same_one_stays() -> None:
    entity = fragment("Ada likes tea", Layer.ENTITIES, -5.0)
    items = (
        entity,
        fragment("ada  likes tea", value=1.0),
        fragment("Tea", value=1.0),
        fragment("tea", value=2.0),
    )
    assert after("light", fragments=items).fragments == (entity, items[3])


def test_fewer_and_fewer_items_and_entities_stay() -> None:
    volatile = (*ranked(Layer.ENTITIES, 5), *ranked(Layer.RETRIEVAL, 5))
    for last, entities, items in (("medium", 5, 3), ("heavy", 3, 2), ("extreme", 1, 1)):
        left = after(last, fragments=volatile).fragments
        assert left == volatile[:entities] + volatile[5 : 5 + items]


def test_the_more_valuable_half_of_the_summary_stays() -> None:
    lines = (fragment("first", Layer.HISTORY, value=1.0), fragment("second", Layer.HISTORY))
    assert after("heavy", fragments=lines).summary == lines[:1]


def test_of_the_arc_as_much_goes_as_must_after_the_history_and_a_quarter_stays() -> None:
    arc = ranked(Layer.ARC, 8)
    assert after("extreme", fragments=arc).fragments == arc
    assert after("middle-out", fragments=arc).fragments == arc[:2]
    over = iter([1] * (NAMES.index("middle-out") + 1))
    assert (
        reduce(Content(turn=TURN, asked=0, fragments=arc), COUNTER, lambda _: next(over, 0))[
            0
        ].fragments
        == arc[:7]
    )


def test_the_first_two_and_the_last_six_messages_stay_as_whole_groups() -> None:
    history = groups_of(HumanMessage("Go."), *(message for i in range(8) for message in call(i)))
    assert after("middle-out", history=history).history == (*history[:2], *history[-3:])


def test_of_memories_expendable_ones_go_first_then_all() -> None:
    given_ones = tuple(
        fragment(f"memory {i}", Layer.PREFERENCES, -float(i), f"memory {i}") for i in range(3)
    )
    facts = (
        fragment("Is a nurse", Layer.PREFERENCES, 0, "fact/1", expendable=True),
        fragment("Tea", Layer.PREFERENCES, name="fact/2"),
    )
    asked = fragment("Be brief.", Layer.PREFERENCES, 0, "preference")
    known = (asked, *given_ones, *facts)
    assert after("memory reduction", fragments=known).fragments == (
        asked,
        *given_ones[:2],
        facts[1],
    )
    assert after("memories left out", fragments=known).fragments == (asked,)


WORDS = "the plan budget Ada Bonn roof garden ticket Monday price lamp 42,50 error() ".split()
LONG = " ".join(WORDS[n * n % len(WORDS)] + str(n % 7) for n in range(20_000))


def step(number: int, *sizes: int, words: str = "") -> list[BaseMessage]:
    """An AI message with calls, and their results of about so many tokens."""
    calls = [{"name": "look_up", "args": {}, "id": f"t{number}-{n}"} for n in range(len(sizes))]
    results = [
        ToolMessage(LONG[number : number + 3 * size], tool_call_id=f"t{number}-{n}")
        for n, size in enumerate(sizes)
    ]
    return [AIMessage(words, tool_calls=calls), *results]


def turn_of(*parts: str | Sequence[int]) -> list[Group]:
    """Groups of a turn: a human message for a string, a step for sizes of results."""
    messages: list[BaseMessage] = []
    for number, part in enumerate(parts):
        messages += [HumanMessage(part)] if isinstance(part, str) else step(number, *part)
    return group(messages)[0]


def fitted(
    groups: Sequence[Group], budget: int, room: int | None = None, *, clip_human: bool = False
) -> PlannedTurn:
    result = GrowingTurn(COUNTER, TurnLimits(budget, room or budget, clip_human=clip_human)).fitted(
        groups
    )
    assert isinstance(result, PlannedTurn)
    return result


def cost(groups: Sequence[Group]) -> int:
    return sum(group_tokens(part, COUNTER) for part in groups)


def positions(groups: Sequence[Group]) -> list[int]:
    return [part.positions[0] for part in groups]


def at_once(groups: Sequence[Group], missing: int) -> PlannedTurn:
    """The turn at a step whose room has so many tokens less than the turn and its next steps need."""
    whole = cost(groups)
    said = cost(groups[:1])
    room = next(
        room
        for room in range(whole, 10**6)
        if room - TURN_POLICY.next_rounds_tokens([1_000], room - said) >= whole
    )
    rooms = TurnLimits(room - missing, 10**6, groups_at_rebuild=len(groups))
    result = GrowingTurn(COUNTER, rooms, lambda message: message.id).fitted(groups)
    assert isinstance(result, PlannedTurn)
    return result


def test_a_turn_that_fits_is_sent_as_it_is_and_one_token_too_few_shortens_the_oldest_results_alone() -> (
    None
):
    groups = turn_of("Go on.", *[[1_000]] * 6)
    assert at_once(groups, 0) == PlannedTurn(whole=tuple(groups), groups=tuple(groups))
    result = at_once(groups, 1)
    assert result.clipped == set(positions(groups[1:2]))
    assert result.left_out == ()
    assert result.groups[2:] == tuple(groups[2:])


def test_a_step_leaves_room_for_the_next_ones_as_large_as_the_last() -> None:
    for size in (100, 600):
        steps = turn_of("Go on.", *[[size]] * 60)
        rooms = TurnLimits(12_000, 12_000, groups_at_rebuild=50)
        before, now = (
            GrowingTurn(COUNTER, rooms).fitted(steps[:end])
            for end in (50, 50 + TURN_POLICY.next_rounds // 2)
        )
        assert isinstance(before, PlannedTurn)
        assert isinstance(now, PlannedTurn)
        assert now.groups == (*before.groups, *steps[50 : 50 + TURN_POLICY.next_rounds // 2])


def test_a_new_result_that_is_too_large_is_shown_in_short_before_older_steps_give_way() -> None:
    groups = turn_of("Go on.", *[[200]] * 8, [9_000])
    before = fitted(groups[:-1], 4_000)
    now = fitted(groups, 4_000)
    assert (now.groups_when_shortened, now.groups[:-1]) == (0, before.groups)
    assert now.clipped == {groups[-1].positions[0]}


def test_a_result_that_is_shortened_again_tells_what_is_left_out_of_all_of_it() -> None:
    groups = turn_of("Go on.", [6_000], *[[400]] * 6)
    result = fitted(groups, 3_000)
    clipped = result.groups[1].messages[1]
    assert result.groups[1].positions == groups[1].positions
    [left_out] = re.findall(r"\[… ([\d,]+) tokens left out", clipped.text)
    whole = COUNTER.count_text(groups[1].messages[1].text)
    kept = COUNTER.count_text(clipped.text)
    assert whole - kept <= int(left_out.replace(",", "")) <= whole - kept + 40


sizes = st.lists(st.sampled_from([0, 5, 60, 300, 900, 4_000]), min_size=1, max_size=3)
grown = st.lists(sizes, min_size=2, max_size=14)
rooms = st.integers(min_value=700, max_value=8_000)


@settings(max_examples=40)
@given(parts=grown, budget=rooms)
def test_every_step_fits_and_what_was_shown_stays_until_the_next_one(
    parts: list[list[int]], budget: int
) -> None:
    before: PlannedTurn | None = None
    turn = GrowingTurn(COUNTER, TurnLimits(budget, budget))
    whole = turn_of("What did we decide about the roof?", *parts)
    for end in range(2, len(whole) + 1):
        groups = whole[:end]
        now = fitted(whole[:end], budget)
        assert turn.fitted(groups) == now, "it goes on as it would begin anew"
        assert sorted(positions([*now.groups, *now.left_out])) == positions(groups)
        assert cost(now.groups) + (TURN_POLICY.note_tokens if now.left_out else 0) <= budget
        assert now.groups[0] == groups[0]
        assert now.groups[-1].positions == groups[-1].positions
        sizes = {part.positions: len(part.messages) for part in groups}
        assert all(len(part.messages) == sizes[part.positions] for part in now.groups)
        note = TURN_POLICY.note_tokens if before and before.left_out else 0
        if (
            before
            and cost(groups[-1:]) <= (budget - cost(before.groups) - note) * TURN_POLICY.new_share
        ):
            assert now.groups == (*before.groups, groups[-1])
        if before and now.groups_when_shortened == before.groups_when_shortened:
            assert now.groups[:-1] == before.groups
            assert now.left_out == before.left_out
        before = now


def used(number: int, name: str, result: str, **args: str) -> list[BaseMessage]:
    calls = [{"name": name, "args": args, "id": f"u{number}"}]
    return [
        AIMessage("", tool_calls=calls),
        ToolMessage(result, tool_call_id=f"u{number}", id=f"m{number}"),
    ]


TEXT = LONG[:3_000]
STALE = {
    "read again": ("Read", {"path": "a.py"}, "Read", {"path": "a.py"}),
    "read again as a whole": ("Read", {"path": "a.py", "offset": "9"}, "Read", {"path": "a.py"}),
    "overwritten": ("Read", {"path": "a.py"}, "Write", {"path": "a.py", "content": "x"}),
    "run again": (
        "Bash",
        {"command": "make", "why": "first"},
        "Bash",
        {"command": "make", "why": "again"},
    ),
    "looked up again": ("Grep", {"pattern": "def f"}, "Grep", {"pattern": "def f"}),
}
NOT_STALE = {
    "edited": (
        "Read",
        {"path": "a.py"},
        "Edit",
        {"path": "a.py", "old_string": "x", "new_string": "y"},
    ),
    "another part": (
        "Read",
        {"path": "a.py", "offset": "9"},
        "Read",
        {"path": "a.py", "offset": "99"},
    ),
    "another page": ("Read", {"path": "a.py"}, "Read", {"path": "a.py", "page": "2"}),
    "another file": ("Read", {"path": "a.py"}, "Read", {"path": "b.py"}),
    "the next page": ("next_page", {}, "next_page", {}),
}


def test_a_result_that_a_later_call_made_stale_gives_way_first_to_a_line_that_says_where_the_newer_one_is() -> (
    None
):
    for name, (first, its, then, args) in {**STALE, **NOT_STALE}.items():
        messages = [
            *used(0, "look", TEXT, about="roof"),
            *used(1, first, 2 * TEXT, **its),
            *used(2, then, TEXT, **args),
            *used(3, "look", TEXT, about="garden"),
        ]
        groups = groups_of(HumanMessage("Go."), *messages)
        result = at_once(groups, 40)
        said = {message.id: message.text for part in result.groups for message in part.messages[1:]}
        assert (said["m0"] == TEXT, "left out: " in said["m1"]) == (name in STALE, name in STALE), (
            name
        )
        if name in STALE:
            assert said["m1"].startswith(
                f'[… left out: {name.removesuffix(" as a whole")} later, see "m2"; all of it'
            )


def test_a_newer_call_that_failed_makes_nothing_stale() -> None:
    failed = used(2, "Read", "no such file", path="a.py")
    failed[1] = ToolMessage("no such file", tool_call_id="u2", id="m2", status="error")
    groups = groups_of(
        HumanMessage("Go."), *used(1, "Read", TEXT, path="a.py"), *failed, *used(3, "look", TEXT)
    )
    assert "tokens left out" in at_once(groups, 40).groups[1].messages[1].text


def test_a_turn_that_was_changed_is_fitted_anew() -> None:
    turn = GrowingTurn(COUNTER, TurnLimits(3_000, 3_000))
    for change in (
        lambda _: None,
        lambda turn: turn.__setitem__(1, groups_of(*used(0, "look", "Short."))[0]),
        lambda turn: turn.pop(),
    ):
        groups = turn_of("Go on.", *[[1_000]] * 6)
        turn.fitted(groups)
        change(groups)
        assert turn.fitted(groups) == GrowingTurn(COUNTER, TurnLimits(3_000, 3_000)).fitted(groups)


def test_words_that_come_after_steps_count_from_the_first_step_on() -> None:
    groups = turn_of("Go on.", [1_000], [3_000], "No, the roof.", [1_000])
    for clip_human in (False, True):
        result = fitted(groups, 900, 1_500, clip_human=clip_human)
        said = [part.messages[0].text for part in result.groups if part.messages[0].type == "human"]
        assert said == ["Go on.", "No, the roof."]


SAID = {
    "call": AIMessage("", tool_calls=[{"name": "f", "args": {}, "id": "a"}]),
    "result": ToolMessage("It is blue.", tool_call_id="a"),
}
SAID |= {
    "answer": AIMessage("Yes."),
    "": HumanMessage(""),
    "question": HumanMessage("And the roof?"),
}


@given(kinds=st.lists(st.sampled_from([*SAID]), max_size=8), parts=st.sets(st.integers(0, 8)))
@example(kinds=["result", "call", "", "result"], parts={1, 2})
@example(kinds=["result", "call", "result"], parts={2})
def test_a_turn_that_is_read_in_parts_is_the_same_as_read_whole(
    kinds: list[str], parts: set[int]
) -> None:
    turn = [SAID[kind].model_copy(update={"id": f"m{at}"}) for at, kind in enumerate(kinds)]
    read = ReadTurn()
    for end in sorted({*parts, len(turn)}):
        read = read.read(turn[:end], COUNTER)
    assert read.planned == ReadTurn().read(turn, COUNTER).planned
