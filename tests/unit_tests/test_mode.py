"""The mode of a prompt in every case, with its cause; and the savings that pay for a rebuild."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_ctxbudget.prompt.mode import Case, Room, decide
from langchain_ctxbudget.prompt.savings import Savings
from langchain_ctxbudget.report import Cause, Mode

CASES = {
    "there is room": (Case(), Mode.EXTENDED, Cause.HAS_ROOM),
    "prompts do not grow": (Case(grows=False), Mode.REBUILT, Cause.NOT_GROWING),
    "there is no last prompt": (Case(without_last=Cause.FIRST), Mode.REBUILT, Cause.FIRST),
    "an edit has ended it": (Case(without_last=Cause.EDITED), Mode.REBUILT, Cause.EDITED),
    "no cache holds it": (Case(is_cold=True), Mode.REBUILT, Cause.COLD),
    "the turn has outgrown its room": (
        Case(turn_goes_on=False),
        Mode.REBUILT,
        Cause.TURN_OUTGROWN,
    ),
    "the provider has compacted": (
        Case(without_last=Cause.COMPACTED),
        Mode.REBUILT,
        Cause.COMPACTED,
    ),
    "another model": (Case(change=Cause.OTHER_MODEL), Mode.REBUILT, Cause.OTHER_MODEL),
    "other tools": (Case(change=Cause.OTHER_TOOLS), Mode.REBUILT, Cause.OTHER_TOOLS),
    "another system prompt": (
        Case(change=Cause.OTHER_SYSTEM_PROMPT),
        Mode.REBUILT,
        Cause.OTHER_SYSTEM_PROMPT,
    ),
    "another beginning than in another process": (
        Case(change=Cause.OTHER_BEGINNING),
        Mode.REBUILT,
        Cause.OTHER_BEGINNING,
    ),
    "another fact": (Case(change=Cause.ABOUT_USER), Mode.REBUILT, Cause.ABOUT_USER),
    "nothing was said": (
        Case(was_something_said=False),
        Mode.REPEATED,
        Cause.NOTHING_SAID,
    ),
    "no room for a background, but a middle can go": (
        Case(room=Room.TIGHT, can_lose_middle=True),
        Mode.SHORTENED,
        Cause.FULL,
    ),
    "over the limit, a middle can go, and a rebuild is paid for": (
        Case(room=Room.OVER, can_lose_middle=True, pays_for_rebuild=True),
        Mode.SHORTENED,
        Cause.FULL,
    ),
    "no room for a background, and a rebuild is not paid for": (
        Case(room=Room.TIGHT),
        Mode.EXTENDED,
        Cause.UNPAID,
    ),
    "no room for a background, and a rebuild is paid for": (
        Case(room=Room.TIGHT, pays_for_rebuild=True),
        Mode.REBUILT,
        Cause.FULL,
    ),
    "over the limit, and a rebuild is not paid for": (
        Case(room=Room.OVER),
        Mode.REBUILT,
        Cause.UNPAID,
    ),
    "over the limit, and a rebuild is paid for": (
        Case(room=Room.OVER, pays_for_rebuild=True),
        Mode.REBUILT,
        Cause.FULL,
    ),
    "over the limit, but not once clipped": (
        Case(room=Room.OVER, room_if_clipped=Room.TIGHT),
        Mode.CLIPPED,
        Cause.FULL,
    ),
    "over the limit, tight once clipped, and a rebuild is paid for": (
        Case(room=Room.OVER, room_if_clipped=Room.TIGHT, pays_for_rebuild=True),
        Mode.REBUILT,
        Cause.FULL,
    ),
    "over the limit, roomy once clipped, and a rebuild is paid for": (
        Case(room=Room.OVER, room_if_clipped=Room.FREE, pays_for_rebuild=True),
        Mode.CLIPPED,
        Cause.FULL,
    ),
    "in a loop, there is room": (Case(is_in_loop=True), Mode.EXTENDED, Cause.HAS_ROOM),
    "in a loop, no room for a background, which needs none": (
        Case(is_in_loop=True, room=Room.TIGHT),
        Mode.EXTENDED,
        Cause.HAS_ROOM,
    ),
    "in a loop, over the limit, but not once clipped": (
        Case(is_in_loop=True, room=Room.OVER, room_if_clipped=Room.TIGHT),
        Mode.CLIPPED,
        Cause.FULL,
    ),
    "in a loop, over the limit": (
        Case(is_in_loop=True, room=Room.OVER),
        Mode.REBUILT,
        Cause.FULL,
    ),
}


@pytest.mark.parametrize(("case", "mode", "cause"), CASES.values(), ids=CASES)
def test_a_case_has_its_mode_and_cause(case: Case, mode: Mode, cause: Cause) -> None:
    assert decide(case) == (mode, cause)


NEVER_EXTENDED = [
    Case(grows=False),
    Case(without_last=Cause.FIRST),
    Case(is_cold=True),
    Case(turn_goes_on=False),
    Case(change=Cause.OTHER_TOOLS),
]
"""A case for each reason not to extend the last prompt, however much room it has."""


@pytest.mark.parametrize("room", Room)
@pytest.mark.parametrize("pays_for_rebuild", [True, False])
@pytest.mark.parametrize("case", NEVER_EXTENDED, ids=lambda case: decide(case)[1])
def test_room_does_not_matter_where_nothing_can_be_extended(
    case: Case, room: Room, pays_for_rebuild: bool
) -> None:
    with_room = replace(
        case,
        room=room,
        can_lose_middle=True,
        room_if_clipped=Room.FREE,
        pays_for_rebuild=pays_for_rebuild,
    )

    assert decide(with_room) == decide(case)


FLAGS = st.booleans()
CHANGES = st.sampled_from(
    [None, Cause.OTHER_MODEL, Cause.OTHER_TOOLS, Cause.OTHER_SYSTEM_PROMPT, Cause.ABOUT_USER]
)
ROOMS = st.sampled_from(list(Room))
ANY_CASE = st.builds(
    Case,
    grows=FLAGS,
    without_last=st.sampled_from([None, Cause.FIRST, Cause.EDITED]),
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
def test_a_prompt_over_its_limit_is_not_extended_as_it_is(case: Case) -> None:
    mode, _ = decide(case)

    if case.was_something_said and case.room is Room.OVER:
        assert mode is not Mode.EXTENDED


@given(ANY_CASE)
def test_a_prompt_that_no_cache_holds_is_rebuilt(case: Case) -> None:
    mode, _ = decide(case)

    if case.is_cold or case.change is not None:
        assert mode is Mode.REBUILT


@given(ANY_CASE)
def test_a_prompt_is_shortened_only_where_a_middle_can_go(case: Case) -> None:
    mode, _ = decide(case)

    if mode is Mode.SHORTENED:
        assert case.can_lose_middle


def test_the_cases_have_every_mode_and_every_cause() -> None:
    decisions = [decide(case) for case, _, _ in CASES.values()]

    assert {mode for mode, _ in decisions} == set(Mode)
    assert {cause for _, cause in decisions} == set(Cause)


@pytest.mark.parametrize("cause", Cause)
def test_every_cause_says_in_words_what_it_means(cause: Cause) -> None:
    assert len(cause.meaning.split()) > 3


# Savings

TOKENS = st.integers(min_value=0, max_value=100_000)
SENT_PROMPTS = st.lists(st.tuples(TOKENS, TOKENS), max_size=20)
"""For each prompt: by how many cached tokens it is shorter than everything; what it adds itself."""


@given(SENT_PROMPTS)
def test_savings_are_what_was_saved_rounded_down(sent_prompts: list[tuple[int, int]]) -> None:
    savings = Savings(0)
    exactly_saved = 0.0
    for shorter_by, extra_tokens in sent_prompts:
        savings = savings.after_prompts(prompts=1, shorter_by=shorter_by, extra_tokens=extra_tokens)
        exactly_saved += 0.1 * shorter_by - extra_tokens

    assert savings.tokens <= exactly_saved + 1e-6
    assert savings.tokens > exactly_saved - 1 - len(sent_prompts)


@given(TOKENS, TOKENS)
def test_a_prompt_that_is_all_new_is_worth_its_full_price(saved: int, total: int) -> None:
    assert Savings(saved).with_price_of(total, new_tokens=total).tokens == saved + total


@given(TOKENS, TOKENS)
def test_a_price_that_savings_pay_leaves_no_debt(saved: int, price: int) -> None:
    savings = Savings(saved)

    if savings.pays(price):
        assert savings.less(price).tokens >= 0
