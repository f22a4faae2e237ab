"""Holds a turn that grows round by round to its room, and to what it has shown."""

import re
from collections.abc import Callable, Iterator, Sequence

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from langchain_ctxbudget.messages import Group
from langchain_ctxbudget.prompt import group_tokens
from langchain_ctxbudget.prompt.plan import FittedTurn
from langchain_ctxbudget.prompt.turn import (
    TURN_POLICY,
    GrowingTurn,
    ReadTurn,
    TurnLimits,
)
from langchain_ctxbudget.providers import COMMON, grouped
from langchain_ctxbudget.tokens import TiktokenCounter

COUNTER = TiktokenCounter()


def groups_of(*messages: BaseMessage) -> tuple[Group, ...]:
    return tuple(grouped(messages, COMMON)[0])


WORDS = "the plan budget Ada Bonn roof garden ticket Monday price lamp 42,50 error() ".split()
LONG = " ".join(WORDS[number * number % len(WORDS)] + str(number % 7) for number in range(20_000))


def sized_round(number: int, sizes: Sequence[int]) -> list[BaseMessage]:
    """A round whose results have about so many tokens."""
    calls = []
    results = []
    for place, size in enumerate(sizes):
        call_id = f"t{number}-{place}"
        calls.append({"name": "look_up", "args": {}, "id": call_id})
        results.append(ToolMessage(LONG[number : number + 3 * size], tool_call_id=call_id))
    return [AIMessage("", tool_calls=calls), *results]


def turn_of(*parts: str | Sequence[int]) -> list[Group]:
    """Groups of a turn: a human message for a string, a round for sizes of results."""
    messages: list[BaseMessage] = []
    for number, part in enumerate(parts):
        if isinstance(part, str):
            messages.append(HumanMessage(part))
        else:
            messages += sized_round(number, part)
    return grouped(messages, COMMON)[0]


def planned(turn: GrowingTurn, groups: Sequence[Group]) -> FittedTurn:
    plan = turn.fitted(groups)
    assert isinstance(plan, FittedTurn)
    return plan


def fitted(
    groups: Sequence[Group], budget: int, room: int | None = None, *, clip_human: bool = False
) -> FittedTurn:
    rooms = TurnLimits(budget, room or budget, clip_human=clip_human)
    return planned(GrowingTurn(COUNTER, rooms), groups)


def cost(groups: Sequence[Group]) -> int:
    return sum(group_tokens(part, COUNTER) for part in groups)


def first_positions(groups: Sequence[Group]) -> list[int]:
    return [part.positions[0] for part in groups]


def room_of_whole(groups: Sequence[Group]) -> int:
    """The least room in which a turn and its next steps stand whole."""
    whole = cost(groups)
    question = cost(groups[:1])
    room = whole
    while room - TURN_POLICY.next_rounds_tokens([1_000], room - question) < whole:
        room += 1
    return room


def short_of(groups: Sequence[Group], missing_tokens: int) -> FittedTurn:
    """The turn in a room that has so many tokens less than it needs with its next steps."""
    room = room_of_whole(groups) - missing_tokens
    rooms = TurnLimits(room, 10**6, groups_at_rebuild=len(groups))
    return planned(GrowingTurn(COUNTER, rooms, lambda message: message.id), groups)


def test_a_turn_that_fits_is_sent_as_it_is() -> None:
    groups = turn_of("Go on.", *[[1_000]] * 6)

    assert short_of(groups, 0) == FittedTurn(groups=tuple(groups))


def test_one_token_too_few_shortens_the_oldest_results_alone() -> None:
    groups = turn_of("Go on.", *[[1_000]] * 6)

    plan = short_of(groups, 1)

    assert plan.clipped == {groups[1].positions[0]}
    assert plan.left_out == ()
    assert plan.groups[2:] == tuple(groups[2:])


@pytest.mark.parametrize("size", [100, 600])
def test_a_rebuilt_turn_leaves_room_for_rounds_as_large_as_the_last(size: int) -> None:
    groups = turn_of("Go on.", *[[size]] * 60)
    rooms = TurnLimits(12_000, 12_000, groups_at_rebuild=50)
    soon = 50 + TURN_POLICY.next_rounds // 2

    before = planned(GrowingTurn(COUNTER, rooms), groups[:50])
    now = planned(GrowingTurn(COUNTER, rooms), groups[:soon])

    assert now.groups == (*before.groups, *groups[50:soon])


def test_a_new_result_that_is_too_large_is_clipped_before_older_ones() -> None:
    groups = turn_of("Go on.", *[[200]] * 8, [9_000])

    before = fitted(groups[:-1], 4_000)
    now = fitted(groups, 4_000)

    assert now.groups_when_shortened == 0
    assert now.groups[:-1] == before.groups
    assert now.clipped == {groups[-1].positions[0]}


def test_a_result_clipped_again_tells_what_is_left_out_of_all_of_it() -> None:
    groups = turn_of("Go on.", [6_000], *[[400]] * 6)

    shown = fitted(groups, 3_000).groups[1]

    [number] = re.findall(r"\[… ([\d,]+) tokens left out", shown.messages[1].text)
    left_out = int(number.replace(",", ""))
    whole = COUNTER.count_text(groups[1].messages[1].text)
    kept = COUNTER.count_text(shown.messages[1].text)
    assert shown.positions == groups[1].positions
    assert whole - kept <= left_out <= whole - kept + 40


def note_tokens(plan: FittedTurn) -> int:
    if plan.left_out:
        return TURN_POLICY.note_tokens
    return 0


def check_whole_groups(plan: FittedTurn, groups: Sequence[Group], budget: int) -> None:
    """A plan fits, and shows the question, the newest round, and of the others whole groups."""
    sizes = {part.positions: len(part.messages) for part in groups}

    assert sorted(first_positions([*plan.groups, *plan.left_out])) == first_positions(groups)
    assert cost(plan.groups) + note_tokens(plan) <= budget
    assert plan.groups[0] == groups[0]
    assert plan.groups[-1].positions == groups[-1].positions
    assert all(len(part.messages) == sizes[part.positions] for part in plan.groups)


def check_extended(before: FittedTurn, now: FittedTurn, newest: Group, budget: int) -> None:
    """What was shown stays until a turn is rebuilt, and a small round is shown whole."""
    room = budget - cost(before.groups) - note_tokens(before)
    if cost([newest]) <= room * TURN_POLICY.new_share:
        assert now.groups == (*before.groups, newest)
    if now.groups_when_shortened == before.groups_when_shortened:
        assert now.groups[:-1] == before.groups
        assert now.left_out == before.left_out


RESULT_SIZES = st.lists(st.sampled_from([0, 5, 60, 300, 900, 4_000]), min_size=1, max_size=3)


@pytest.mark.slow
@settings(max_examples=15)
@given(
    rounds=st.lists(RESULT_SIZES, min_size=2, max_size=14),
    budget=st.integers(min_value=700, max_value=8_000),
)
def test_a_turn_fits_and_what_was_shown_stays_until_it_is_rebuilt(
    rounds: list[list[int]], budget: int
) -> None:
    turn = GrowingTurn(COUNTER, TurnLimits(budget, budget))
    whole = turn_of("What did we decide about the roof?", *rounds)

    before: FittedTurn | None = None
    for end in range(2, len(whole) + 1):
        groups = whole[:end]
        now = fitted(groups, budget)

        assert turn.fitted(groups) == now, "it goes on as it would begin anew"
        check_whole_groups(now, groups, budget)
        if before:
            check_extended(before, now, groups[-1], budget)
        before = now


def used(number: int, name: str, result: str, **args: str) -> list[BaseMessage]:
    """A round of one call; the result has the id `m<number>`."""
    calls = [{"name": name, "args": args, "id": f"u{number}"}]
    return [
        AIMessage("", tool_calls=calls),
        ToolMessage(result, tool_call_id=f"u{number}", id=f"m{number}"),
    ]


TEXT = LONG[:3_000]


def shown_after(first: list[BaseMessage], second: list[BaseMessage]) -> dict[str | None, str]:
    """The results of a turn in a room that is a little too small, by their ids."""
    groups = groups_of(
        HumanMessage("Go."),
        *used(0, "look", TEXT, about="roof"),
        *first,
        *second,
        *used(3, "look", TEXT, about="garden"),
    )
    texts = {}
    for part in short_of(groups, 40).groups:
        for message in part.messages[1:]:
            texts[message.id] = message.text
    return texts


@pytest.mark.parametrize(
    ("first", "second", "reason"),
    [
        pytest.param(
            used(1, "Read", 2 * TEXT, path="a.py"),
            used(2, "Read", TEXT, path="a.py"),
            "read again",
            id="read again",
        ),
        pytest.param(
            used(1, "Read", 2 * TEXT, path="a.py", offset="9"),
            used(2, "Read", TEXT, path="a.py"),
            "read again",
            id="read again as a whole",
        ),
        pytest.param(
            used(1, "Read", 2 * TEXT, path="a.py"),
            used(2, "Write", TEXT, path="a.py", content="x"),
            "overwritten",
            id="overwritten",
        ),
        pytest.param(
            used(1, "Bash", 2 * TEXT, command="make", why="first"),
            used(2, "Bash", TEXT, command="make", why="again"),
            "run again",
            id="run again",
        ),
        pytest.param(
            used(1, "Grep", 2 * TEXT, pattern="def f"),
            used(2, "Grep", TEXT, pattern="def f"),
            "looked up again",
            id="looked up again",
        ),
    ],
)
def test_a_stale_result_gives_way_first_to_where_the_newer_one_is(
    first: list[BaseMessage], second: list[BaseMessage], reason: str
) -> None:
    texts = shown_after(first, second)

    assert texts["m1"].startswith(f'[… left out: {reason} later, see "m2"; all of it')
    assert texts["m0"] == TEXT


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param(
            used(1, "Read", 2 * TEXT, path="a.py"),
            used(2, "Edit", TEXT, path="a.py", old_string="x", new_string="y"),
            id="edited",
        ),
        pytest.param(
            used(1, "Read", 2 * TEXT, path="a.py", offset="9"),
            used(2, "Read", TEXT, path="a.py", offset="99"),
            id="another part",
        ),
        pytest.param(
            used(1, "Read", 2 * TEXT, path="a.py"),
            used(2, "Read", TEXT, path="a.py", page="2"),
            id="another page",
        ),
        pytest.param(
            used(1, "Read", 2 * TEXT, path="a.py"),
            used(2, "Read", TEXT, path="b.py"),
            id="another file",
        ),
        pytest.param(
            used(1, "shell", 2 * TEXT, command="ls", workdir="/a"),
            used(2, "shell", TEXT, command="ls", workdir="/b"),
            id="another folder",
        ),
        pytest.param(
            used(1, "Read", 2 * TEXT, path="a.py"),
            used(2, "Read", "Error: no such file", path="a.py"),
            id="refused",
        ),
        pytest.param(
            used(1, "next_page", 2 * TEXT), used(2, "next_page", TEXT), id="the next page"
        ),
    ],
)
def test_a_result_that_still_holds_gives_way_in_its_order(
    first: list[BaseMessage], second: list[BaseMessage]
) -> None:
    texts = shown_after(first, second)

    assert "left out: " not in texts["m1"]
    assert texts["m0"] != TEXT


def test_a_newer_call_that_failed_makes_nothing_stale() -> None:
    calling, _ = used(2, "Read", "no such file", path="a.py")
    failed = ToolMessage("no such file", tool_call_id="u2", id="m2", status="error")
    groups = groups_of(
        HumanMessage("Go."),
        *used(1, "Read", TEXT, path="a.py"),
        calling,
        failed,
        *used(3, "look", TEXT),
    )

    result = short_of(groups, 40).groups[1].messages[1]

    assert "tokens left out" in result.text


def keep(_groups: list[Group]) -> None:
    """Changes nothing."""


def replace_a_round(groups: list[Group]) -> None:
    [groups[1]] = groups_of(*used(0, "look", "Short."))


def drop_the_last_round(groups: list[Group]) -> None:
    groups.pop()


@pytest.mark.parametrize("change", [keep, replace_a_round, drop_the_last_round])
def test_a_turn_that_was_changed_is_fitted_anew(change: Callable[[list[Group]], None]) -> None:
    turn = GrowingTurn(COUNTER, TurnLimits(3_000, 3_000))
    groups = turn_of("Go on.", *[[1_000]] * 6)
    turn.fitted(groups)

    change(groups)

    assert turn.fitted(groups) == fitted(groups, 3_000)


@pytest.mark.parametrize("clip_human", [False, True])
def test_words_that_come_after_rounds_stand_in_the_turn(*, clip_human: bool) -> None:
    groups = turn_of("Go on.", [1_000], [3_000], "No, the roof.", [1_000])

    first_messages = [
        part.messages[0] for part in fitted(groups, 900, 1_500, clip_human=clip_human).groups
    ]

    words = [message.text for message in first_messages if message.type == "human"]
    assert words == ["Go on.", "No, the roof."]


KINDS = {
    "call": AIMessage("", tool_calls=[{"name": "f", "args": {}, "id": "a"}]),
    "result": ToolMessage("It is blue.", tool_call_id="a"),
    "answer": AIMessage("Yes."),
    "nothing": HumanMessage(""),
    "question": HumanMessage("And the roof?"),
}


def numbered(kinds: Sequence[str]) -> Iterator[BaseMessage]:
    """Messages of these kinds, with the ids m0, m1, ..."""
    for number, kind in enumerate(kinds):
        yield KINDS[kind].model_copy(update={"id": f"m{number}"})


@given(kinds=st.lists(st.sampled_from(list(KINDS)), max_size=8), ends=st.sets(st.integers(0, 8)))
@example(kinds=["result", "call", "nothing", "result"], ends={1, 2})
@example(kinds=["result", "call", "result"], ends={2})
def test_a_turn_that_is_read_in_parts_is_the_same_as_read_whole(
    kinds: list[str], ends: set[int]
) -> None:
    turn = list(numbered(kinds))

    in_parts = ReadTurn()
    for end in sorted(ends):
        in_parts = in_parts.read(turn[:end], COUNTER)
    in_parts = in_parts.read(turn, COUNTER)

    assert in_parts.given == ReadTurn().read(turn, COUNTER).given
