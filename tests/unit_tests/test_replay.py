"""A conversation turn by turn with several strategies.

What is counted, and that nothing else is.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache
from typing import Any

import pytest
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
    trim_messages,
)
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import ContextPipeline, ContextSettings, TiktokenCounter
from langchain_ctxbudget.errors import InputError
from langchain_ctxbudget.replay import DEFAULT_STRATEGIES, NAMES, Turn, replay, split_turns
from langchain_ctxbudget.tokens import Price

SYSTEM = "You know a tool library."
COUNTER = TiktokenCounter()
BUDGET = 500
TURNS = 24


def said(count: int) -> list[BaseMessage]:
    """A chat of so many questions, each with its answer, every one of them about something else."""
    messages: list[BaseMessage] = []
    for number in range(count):
        at = {"created_at": f"2026-03-{number % 28 + 1:02}T09:00:00"}
        question = f"Who borrowed the drill number {number}, and when is it due back at the desk?"
        answer = f"Member {number * 7} has it; it is due on day {number % 28 + 1}. The deposit was {number} pounds."
        messages.append(HumanMessage(question, id=f"q{number}", additional_kwargs=at))
        messages.append(AIMessage(answer, id=f"a{number}", additional_kwargs=at))
    return messages


LONG = said(TURNS)


def call(number: int) -> AIMessage:
    return AIMessage(
        "",
        id=f"call{number}",
        tool_calls=[{"name": "look_up", "args": {"tool": number}, "id": f"t{number}"}],
    )


LOOP: list[BaseMessage] = [
    HumanMessage("Which drills are in?", id="loop-q"),
    call(1),
    ToolMessage("Drill 1 is in.", tool_call_id="t1", id="r1"),
    call(2),
    ToolMessage("Drill 2 is out.", tool_call_id="t2", id="r2"),
    AIMessage("Only drill 1.", id="loop-a"),
    HumanMessage("Thank you", id="loop-q2"),
    AIMessage("You are welcome.", id="loop-a2"),
]


def costs(messages: Sequence[BaseMessage]) -> int:
    return COUNTER.count_messages(messages)


@cache
def of_long(name: str) -> tuple[Turn, ...]:
    """The turns of the long chat with one strategy."""
    return turns_of(LONG, name, system_prompt=SYSTEM)


def turns_of(
    messages: Sequence[BaseMessage], strategy: Any, budget: int = BUDGET, **options: Any
) -> tuple[Turn, ...]:
    [track] = replay(messages, [strategy], budget=budget, **options).tracks
    return track.turns


def test_a_tiny_conversation_counts_as_by_hand() -> None:
    # A message is 4 tokens and its words; a request 3 more. Two words and a full stop: 3 tokens.
    messages = [
        HumanMessage("Hello there."),
        AIMessage("Hello there."),
        HumanMessage("Hello there."),
        AIMessage("Bye"),
    ]
    result = replay(messages, ["full"], budget=1, price=Price(input=4, output=1, cached_input=1))
    [track] = result.tracks
    assert [(turn.tokens, turn.cached_tokens) for turn in track.turns] == [
        (7 + 3, 0),
        (3 * 7 + 3, 7),
    ]
    assert track.tokens == 34
    assert track.cached_share == 7 / 34
    assert track.effective_tokens == (34 - 7) + 0.25 * 7


def test_recency_is_what_trim_messages_gives() -> None:
    sent = []
    for place, part in enumerate(LONG):
        if part.type == "ai":
            prompt = trim_messages(
                [SystemMessage(SYSTEM), *LONG[:place]],
                max_tokens=BUDGET,
                token_counter=costs,
                strategy="last",
                start_on="human",
                include_system=True,
            )
            sent.append((costs(prompt), len(prompt) - 2))
    assert [(turn.tokens, turn.messages["verbatim"]) for turn in of_long("recency")] == sent
    assert sent[-1][1] < len(LONG) - 2  # it does trim


def test_the_package_is_replayed_as_an_application_uses_it() -> None:
    now = [datetime(2026, 1, 1, tzinfo=UTC)]
    options: Any = {"system_prompt": SYSTEM, "store": InMemoryStore(), "clock": lambda: now[0]}
    with ContextPipeline(
        {"max_context_tokens": BUDGET, "learn": False, "cache_lifetime_seconds": 1e9}, **options
    ) as pipeline:
        who: Any = {"user_id": "ada", "conversation_id": "c"}
        reports = []
        for turn in split_turns(LONG):
            now[0] = datetime.fromisoformat(turn[0].additional_kwargs["created_at"]).replace(
                tzinfo=UTC
            )
            reports.append(pipeline.assemble(turn[:1], **who).report)
            pipeline.add_messages(turn, **who)
    turns = of_long("elastic")
    assert [turn.tokens for turn in turns] == [report.total_tokens for report in reports]
    assert [turn.cached_tokens for turn in turns] == [
        report.stability.shared_tokens or 0 for report in reports
    ]
    assert [turn.compaction_steps for turn in turns] == [
        report.stability.compaction_step for report in reports
    ]
    assert [turn.messages for turn in turns] == [report.coverage_counts() for report in reports]
    assert sum(turn.compaction_steps for turn in turns)


@pytest.mark.parametrize("name", NAMES)
def test_every_message_before_a_turn_is_somewhere_and_no_prompt_is_over_its_budget(
    name: str,
) -> None:
    turns = of_long(name)
    assert [sum(turn.messages.values()) for turn in turns] == list(range(0, len(LONG), 2))
    if name != "full":
        assert 0 < max(turn.largest_tokens for turn in turns) <= BUDGET


def test_evidence_is_what_stands_in_the_prompt_word_by_word() -> None:
    named = {2: ["q0"], TURNS - 1: ["q1", "a1", "a22"], TURNS: ["a22"]}
    whole = turns_of(LONG, "full", evidence=named)
    window = turns_of(LONG, "recency", evidence=named)
    # The last answer but one comes after the last turn but one.
    assert {turn.number: turn.evidence for turn in whole if turn.evidence is not None} == {
        2: 1,
        23: 2 / 3,
        24: 1,
    }
    assert [turn.evidence for turn in window][-2:] == [0, 1]


def test_every_call_of_a_loop_is_counted_with_what_it_has_so_far() -> None:
    first, second = turns_of(LOOP, "full")
    places = [1, 3, 5]
    assert first.calls == len(places)
    assert first.tokens == sum(costs(LOOP[:place]) for place in places)
    assert first.cached_tokens == sum(costs(LOOP[:place]) - costs([]) for place in places[:-1])
    assert first.largest_tokens == costs(LOOP[:5])
    assert second.calls == 1


def test_two_replays_are_equal() -> None:
    first, second = (
        replay(LONG, DEFAULT_STRATEGIES, budget=BUDGET, system_prompt=SYSTEM) for _ in range(2)
    )
    assert first == second


def test_settings_are_a_strategy() -> None:
    for strategy, name in (
        ({"strategy": "ratio", "memory": 0.5, "history": 0.2}, "ratio 50/20/30"),
        ({"emphasis": "recall", "keep_messages": 2}, "emphasis=recall, keep_messages=2"),
    ):
        [track] = replay(LONG, [strategy], budget=BUDGET).tracks
        assert track.name == name
        assert track.turns != turns_of(LONG, "elastic")


def test_a_message_that_does_not_fit_is_told_and_the_next_turn_goes_on() -> None:
    messages = [
        HumanMessage("drill " * 1_000, id="big"),
        AIMessage("That is long.", id="b"),
        *LONG[:4],
    ]
    package, window = replay(messages, ["elastic", "recency"], budget=BUDGET).tracks
    assert [turn.calls for turn in package.turns] == [0, 1, 1]
    [failure] = package.failures
    assert failure.startswith("turn 1: BudgetTooSmallError")
    assert window.failures == ()
    text = str(replay(messages, ["elastic", "recency"], budget=BUDGET))
    assert "elastic: 1 prompts could not be made" in text


def test_numbers_out_of_range_are_an_error() -> None:
    for options, problem in (
        ({"budget": 0}, "budget must be at least 1"),
        ({"budget": "4k"}, "budget must be at least 1 token, not '4k'"),
        ({"evidence": {TURNS + 1: ["q0"]}}, "turns 1 to 24"),
    ):
        with pytest.raises(InputError, match=problem):
            replay(LONG, ["full"], **{"budget": BUDGET, **options})


def test_settings_are_those_that_were_said_whether_as_an_object_or_as_a_mapping() -> None:
    said: dict[str, Any] = {"keep_messages": 4}
    given = [said, ContextSettings(**said), ContextSettings().override(said)]
    first, *others = [
        replay(LONG, ["elastic"], budget=BUDGET, settings=one).to_dict() for one in given
    ]
    assert others == [first, first]
    assert first["strategies"][0]["cached_share"] > 0.5
