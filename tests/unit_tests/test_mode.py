"""The mode of a prompt: every case, and why."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_ctxbudget.prompt.mode import Case, Cause, Mode, Room, decide
from langchain_ctxbudget.prompt.savings import Savings

CASES = {
    "there is room": (Case(), Mode.EXTENDED, Cause.HAS_ROOM),
    "prompts do not grow": (Case(grows=False), Mode.REBUILT, Cause.NOT_GROWING),
    "there is no last prompt": (Case(has_last=False), Mode.REBUILT, Cause.FIRST),
    "no cache holds it": (Case(is_cold=True), Mode.REBUILT, Cause.COLD),
    "its turn has outgrown its room": (
        Case(turn_goes_on=False),
        Mode.REBUILT,
        Cause.TURN_OUTGROWN,
    ),
    "another model": (Case(change=Cause.OTHER_MODEL), Mode.REBUILT, Cause.OTHER_MODEL),
    "other tools": (Case(change=Cause.OTHER_TOOLS), Mode.REBUILT, Cause.OTHER_TOOLS),
    "another system prompt": (Case(change=Cause.EDITED), Mode.REBUILT, Cause.EDITED),
    "nothing was said": (
        Case(was_something_said=False),
        Mode.REPEATED,
        Cause.NOTHING_SAID,
    ),
    "a middle can go": (
        Case(room=Room.TIGHT, can_lose_middle=True),
        Mode.SHORTENED,
        Cause.FULL,
    ),
    "a middle can go, and a rebuild is paid for": (
        Case(room=Room.OVER, can_lose_middle=True, pays_for_rebuild=True),
        Mode.SHORTENED,
        Cause.FULL,
    ),
    "no middle can go, and nothing is paid for": (
        Case(room=Room.TIGHT),
        Mode.EXTENDED,
        Cause.UNPAID,
    ),
    "no middle can go, and a rebuild is paid for": (
        Case(room=Room.TIGHT, pays_for_rebuild=True),
        Mode.REBUILT,
        Cause.FULL,
    ),
    "over the limit, and nothing is paid for": (
        Case(room=Room.OVER),
        Mode.REBUILT,
        Cause.UNPAID,
    ),
    "over the limit, and a rebuild is paid for": (
        Case(room=Room.OVER, pays_for_rebuild=True),
        Mode.REBUILT,
        Cause.FULL,
    ),
    "over the limit, but not in short": (
        Case(room=Room.OVER, room_if_clipped=Room.TIGHT),
        Mode.CLIPPED,
        Cause.FULL,
    ),
    "over the limit, tight in short, and a rebuild is paid for": (
        Case(room=Room.OVER, room_if_clipped=Room.TIGHT, pays_for_rebuild=True),
        Mode.REBUILT,
        Cause.FULL,
    ),
    "over the limit, roomy in short, and a rebuild is paid for": (
        Case(room=Room.OVER, room_if_clipped=Room.FREE, pays_for_rebuild=True),
        Mode.CLIPPED,
        Cause.FULL,
    ),
    "in a loop there is room": (Case(is_in_loop=True), Mode.EXTENDED, Cause.HAS_ROOM),
    "in a loop there is room for no background": (
        Case(is_in_loop=True, room=Room.TIGHT),
        Mode.EXTENDED,
        Cause.HAS_ROOM,
    ),
    "in a loop over the limit, but not in short": (
        Case(is_in_loop=True, room=Room.OVER, room_if_clipped=Room.TIGHT),
        Mode.CLIPPED,
        Cause.FULL,
    ),
    "in a loop over the limit": (
        Case(is_in_loop=True, room=Room.OVER),
        Mode.REBUILT,
        Cause.FULL,
    ),
}


@pytest.mark.parametrize(("case", "mode", "cause"), CASES.values(), ids=CASES)
def test_a_case_has_its_mode_and_cause(case: Case, mode: Mode, cause: Cause) -> None:
    assert decide(case) == (mode, cause)


# What rules an extension out, in the order in which it is told

RULED_OUT = [
    Case(grows=False),
    Case(has_last=False),
    Case(is_cold=True),
    Case(turn_goes_on=False),
    Case(change=Cause.OTHER_TOOLS),
]


@pytest.mark.parametrize("room", Room)
@pytest.mark.parametrize("pays", [True, False])
@pytest.mark.parametrize("case", RULED_OUT, ids=lambda case: decide(case)[1])
def test_room_does_not_bring_back_what_is_ruled_out(case: Case, room: Room, pays: bool) -> None:
    with_room = Case(
        grows=case.grows,
        has_last=case.has_last,
        is_cold=case.is_cold,
        turn_goes_on=case.turn_goes_on,
        change=case.change,
        room=room,
        can_lose_middle=True,
        room_if_clipped=Room.FREE,
        pays_for_rebuild=pays,
    )

    assert decide(with_room) == decide(case)


FLAGS = st.booleans()
CHANGES = st.sampled_from([None, Cause.OTHER_MODEL, Cause.OTHER_TOOLS, Cause.EDITED])
ROOMS = st.sampled_from(list(Room))
ANY_CASE = st.builds(
    Case,
    grows=FLAGS,
    has_last=FLAGS,
    is_cold=FLAGS,
    turn_goes_on=FLAGS,
    change=CHANGES,
    was_something_said=FLAGS,
    is_in_loop=FLAGS,
    room=ROOMS,
    pays_for_rebuild=FLAGS,
    can_lose_middle=FLAGS,
    room_if_clipped=ROOMS,
)


@given(ANY_CASE)
def test_a_prompt_over_its_limit_is_never_extended_as_it_is(case: Case) -> None:
    mode, _ = decide(case)

    assert not (case.was_something_said and case.room is Room.OVER and mode is Mode.EXTENDED)


@given(ANY_CASE)
def test_what_a_cache_has_lost_is_rebuilt(case: Case) -> None:
    mode, _ = decide(case)

    if case.is_cold or case.change is not None:
        assert mode is Mode.REBUILT


@given(ANY_CASE)
def test_a_middle_is_left_out_only_where_one_can_be(case: Case) -> None:
    mode, _ = decide(case)

    if mode is Mode.SHORTENED:
        assert case.can_lose_middle


def test_every_mode_and_every_cause_comes_up() -> None:
    decisions = [decide(case) for case, _, _ in CASES.values()]

    assert {mode for mode, _ in decisions} == set(Mode)
    assert {cause for _, cause in decisions} == set(Cause)


@pytest.mark.parametrize("cause", Cause)
def test_a_cause_says_what_it_means(cause: Cause) -> None:
    assert len(cause.meaning.split()) > 3


# The account of what was saved

TOKENS = st.integers(min_value=0, max_value=100_000)
SENT = st.lists(st.tuples(TOKENS, TOKENS), max_size=20)
"""Prompts: by how many cached tokens each is shorter than everything, and what it adds."""


@given(SENT)
def test_savings_are_never_more_than_was_really_saved(sent: list[tuple[int, int]]) -> None:
    savings = Savings(0)
    really_saved = 0.0
    for shorter_by, extra_tokens in sent:
        savings = savings.after_prompts(prompts=1, shorter_by=shorter_by, extra_tokens=extra_tokens)
        really_saved += 0.1 * shorter_by - extra_tokens

    assert savings.tokens <= really_saved + 1e-6
    assert savings.tokens > really_saved - 1 - len(sent)


@given(TOKENS, TOKENS, TOKENS)
def test_what_is_paid_for_leaves_savings_of_at_least_nothing(
    saved: int, total: int, price: int
) -> None:
    affordable = Savings(saved).with_price_of(total, new_tokens=total)

    assert affordable.tokens == saved + total
    if affordable.pays(price):
        assert affordable.less(price).tokens >= 0
