"""A turn that grows step by step, in its room."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from langchain_ctxbudget import TiktokenCounter
from langchain_ctxbudget.messages.turns import Group, group
from langchain_ctxbudget.prompt.assembly import group_tokens
from langchain_ctxbudget.prompt.turn_fit import (
    NEWEST_SHARE,
    NOTE_TOKENS,
    WORDS_SHARE,
    FittedTurn,
    fit_turn,
)

COUNTER = TiktokenCounter()
WORDS = "the plan budget Ada Bonn roof garden ticket Monday price lamp 42,50 error() ".split()
LONG = " ".join(WORDS[n * n % len(WORDS)] + str(n % 7) for n in range(20_000))


def step(number: int, *sizes: int, words: str = "") -> list[BaseMessage]:
    """An AI message with calls, and their results of about so many tokens."""
    calls = [{"name": "look_up", "args": {}, "id": f"t{number}-{n}"} for n in range(len(sizes))]
    results = [
        ToolMessage(LONG[number : number + 3 * size], tool_call_id=f"t{number}-{n}") for n, size in enumerate(sizes)
    ]
    return [AIMessage(words, tool_calls=calls), *results]


def turn_of(*parts: str | Sequence[int]) -> list[Group]:
    """Groups of a turn: a human message for a string, a step for sizes of results."""
    messages: list[BaseMessage] = []
    for number, part in enumerate(parts):
        messages += [HumanMessage(part)] if isinstance(part, str) else step(number, *part)
    return group(messages)[0]


def fitted(groups: Sequence[Group], budget: int, room: int | None = None, *, clip_human: bool = False) -> FittedTurn:
    result = fit_turn(groups, COUNTER, budget_tokens=budget, room_tokens=room or budget, clip_human=clip_human)
    assert isinstance(result, FittedTurn)
    return result


def cost(groups: Sequence[Group]) -> int:
    return sum(group_tokens(part, COUNTER) for part in groups)


def positions(groups: Sequence[Group]) -> list[int]:
    return [part.positions[0] for part in groups]


def test_a_turn_that_fits_is_sent_as_it_is() -> None:
    groups = turn_of("Go on.", [50, 50], [100])
    assert fitted(groups, cost(groups)) == FittedTurn(groups=tuple(groups))


def test_one_token_too_few_shortens_the_oldest_results_alone() -> None:
    groups = turn_of("Go on.", *[[1_000]] * 6)
    result = fitted(groups, cost(groups) - 1)
    assert result.clipped == set(positions(groups[1:4]))
    assert result.left_out == ()
    assert result.groups[4:] == tuple(groups[4:])


def test_a_large_newest_step_leaves_older_ones_a_quarter() -> None:
    groups = turn_of("Go on.", [100], [100], [20_000, 20_000])
    result = fitted(groups, 2_000)
    said = cost(groups[:1])
    assert cost(result.groups[-1:]) <= (2_000 - said) * NEWEST_SHARE
    assert result.groups[:-1] == tuple(groups[:-1])


def test_of_parallel_results_the_largest_gives_way() -> None:
    groups = turn_of("Go on.", [100, 20_000, 100])
    result = fitted(groups, 2_000)
    first, _, second = result.groups[-1].messages[1:]
    assert (first, second) == (groups[1].messages[1], groups[1].messages[3])


def test_what_cannot_be_cut_tells_what_it_needs() -> None:
    groups = turn_of(LONG[:3_000], [50])
    least = fit_turn(groups, COUNTER, budget_tokens=100, room_tokens=100)
    assert isinstance(least, int)
    assert least > 100
    assert fit_turn(groups, COUNTER, budget_tokens=100, room_tokens=least - 1) == least
    assert cost(fitted(groups, 100, least).groups) <= least


def test_words_that_may_be_clipped_leave_room_for_steps() -> None:
    groups = turn_of(LONG[:40_000], [400])
    result = fitted(groups, 2_000, clip_human=True)
    assert cost(result.groups[:1]) <= 2_000 * WORDS_SHARE
    assert result.groups[1] == groups[1]


def test_a_result_that_is_shortened_again_tells_what_is_left_out_of_all_of_it() -> None:
    groups = turn_of("Go on.", [6_000], *[[400]] * 6)
    result = fitted(groups, 3_000)
    clipped = result.groups[1].messages[1]
    assert result.groups[1].positions == groups[1].positions
    [left_out] = re.findall(r"\[… ([\d,]+) tokens left out", clipped.text)
    whole, kept = COUNTER.count_text(groups[1].messages[1].text), COUNTER.count_text(clipped.text)
    assert whole - kept <= int(left_out.replace(",", "")) <= whole - kept + 40


# -- while it grows

sizes = st.lists(st.sampled_from([0, 5, 60, 300, 900, 4_000]), min_size=1, max_size=3)
grown = st.lists(sizes, min_size=2, max_size=14)
rooms = st.integers(min_value=700, max_value=8_000)


def _calls(parts: Sequence[Sequence[int]], budget: int) -> list[tuple[list[Group], FittedTurn]]:
    groups = turn_of("What did we decide about the roof?", *parts)
    return [(groups[:end], fitted(groups[:end], budget)) for end in range(2, len(groups) + 1)]


@settings(deadline=None, max_examples=30)
@given(parts=grown, budget=rooms)
def test_every_step_is_shown_or_left_out_within_the_budget(parts: list[list[int]], budget: int) -> None:
    for groups, result in _calls(parts, budget):
        assert sorted(positions([*result.groups, *result.left_out])) == positions(groups)
        note = NOTE_TOKENS if result.left_out else 0
        assert cost(result.groups) + note <= budget
        assert result.groups[0] == groups[0]
        assert result.groups[-1].positions == groups[-1].positions
        assert [len(part.messages) for part in result.groups] == [
            len(part.messages) for part in groups if part.positions[0] in positions(result.groups)
        ]


@settings(deadline=None, max_examples=30)
@given(parts=grown, budget=rooms)
def test_what_was_shown_stays_until_the_next_step_would_not_fit(parts: list[list[int]], budget: int) -> None:
    for (_, before), (groups, now) in pairwise(_calls(parts, budget)):
        note = NOTE_TOKENS if before.left_out else 0
        if cost(before.groups) + cost(groups[-1:]) + note <= budget:
            assert now.groups == (*before.groups, groups[-1])
            assert now.left_out == before.left_out
