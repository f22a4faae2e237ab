"""A conversation turn by turn with several strategies: what is counted, and nothing else."""

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache
from typing import Any

import pytest
from langchain_core.language_models import FakeListChatModel
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
    trim_messages,
)
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import (
    ContextPipeline,
    ContextReport,
    ContextSettings,
    TiktokenCounter,
)
from langchain_ctxbudget.errors import InputError
from langchain_ctxbudget.replay import (
    DEFAULT_STRATEGIES,
    NAMES,
    ReplayResult,
    Turn,
    replay,
    split_turns,
)
from langchain_ctxbudget.tokens import Price
from tests.cases import few_are_quick

SYSTEM = "You know a tool library."
COUNTER = TiktokenCounter()
BUDGET = 500
TURNS = 24
WITHIN_BUDGET = [name for name in NAMES if name not in ("full", "summarization")]
"""Summarization keeps its newest messages, however large they are."""


def chat(turns: int) -> list[BaseMessage]:
    """A chat of so many questions with their answers, every one about something else."""
    messages: list[BaseMessage] = []
    for number in range(turns):
        day = number % 28 + 1
        time = {"created_at": f"2026-03-{day:02}T09:00:00"}
        question = f"Who borrowed the drill number {number}, and when is it due back at the desk?"
        member = f"Member {number * 7} has it; it is due on day {day}."
        answer = f"{member} The deposit was {number} pounds."
        messages.append(HumanMessage(question, id=f"q{number}", additional_kwargs=time))
        messages.append(AIMessage(answer, id=f"a{number}", additional_kwargs=time))
    return messages


LONG = chat(TURNS)


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
    model = FakeListChatModel(responses=["They talked about drills."])
    return turns_of(LONG, name, system_prompt=SYSTEM, summary_model=model)


def turns_of(
    messages: Sequence[BaseMessage], strategy: Any, budget: int = BUDGET, **options: Any
) -> tuple[Turn, ...]:
    [track] = replay(messages, [strategy], budget=budget, **options).tracks
    return track.turns


# What is counted


def test_a_tiny_conversation_counts_as_by_hand() -> None:
    # A message is 4 tokens and its words; a request 3 more. Two words and a full stop: 3 tokens.
    messages = [
        HumanMessage("Hello there."),
        AIMessage("Hello there."),
        HumanMessage("Hello there."),
        AIMessage("Bye"),
    ]

    price = Price(input=4, output=1, cached_input=1)
    [track] = replay(messages, ["full"], budget=1, price=price).tracks

    assert [turn.tokens for turn in track.turns] == [10, 24]
    assert [turn.cached_tokens for turn in track.turns] == [0, 7]
    assert track.tokens == 34
    assert track.cached_share == 7 / 34
    assert track.effective_tokens == 28.75  # 27, and a quarter of 7


@cache
def trimmed_prompts() -> list[list[BaseMessage]]:
    """What `trim_messages` sends for every answer of the long chat."""
    prompts = []
    for place, message in enumerate(LONG):
        if message.type == "ai":
            prompt = trim_messages(
                [SystemMessage(SYSTEM), *LONG[:place]],
                max_tokens=BUDGET,
                token_counter=costs,
                strategy="last",
                start_on="human",
                include_system=True,
            )
            prompts.append(prompt)
    return prompts


def test_recency_costs_what_trim_messages_sends() -> None:
    assert [turn.tokens for turn in of_long("recency")] == list(map(costs, trimmed_prompts()))


def test_recency_has_the_messages_that_trim_messages_keeps() -> None:
    kept = [len(prompt) - 2 for prompt in trimmed_prompts()]  # without system and question

    assert [turn.messages["verbatim"] for turn in of_long("recency")] == kept
    assert kept[-1] < len(LONG) - 2, "it does trim"


@cache
def reports_of_an_application() -> list[ContextReport]:
    """The reports of the long chat in an application, each turn at its own time."""
    now = [datetime(2026, 1, 1, tzinfo=UTC)]
    ids: Any = {"user_id": "ada", "conversation_id": "c"}
    reports = []
    with ContextPipeline(
        {"max_context_tokens": BUDGET, "learn": False, "cache_lifetime_seconds": 1e9},
        system_prompt=SYSTEM,
        store=InMemoryStore(),
        clock=lambda: now[0],
    ) as pipeline:
        for turn in split_turns(LONG):
            time = datetime.fromisoformat(turn[0].additional_kwargs["created_at"])
            now[0] = time.replace(tzinfo=UTC)
            reports.append(pipeline.assemble(turn[:1], **ids).report)
            pipeline.add_messages(turn, **ids)
    return reports


@pytest.mark.slow
def test_a_replay_counts_the_tokens_of_an_application() -> None:
    tokens = [report.total_tokens for report in reports_of_an_application()]

    assert [turn.tokens for turn in of_long("elastic")] == tokens


@pytest.mark.slow
def test_a_replay_counts_the_cached_tokens_of_an_application() -> None:
    shared = [report.stability.shared_tokens or 0 for report in reports_of_an_application()]

    assert [turn.cached_tokens for turn in of_long("elastic")] == shared


def test_a_replay_compacts_when_an_application_does() -> None:
    steps = [report.stability.compaction_step for report in reports_of_an_application()]

    assert [turn.compaction_steps for turn in of_long("elastic")] == steps
    assert any(steps)


def test_a_replay_shows_the_messages_that_an_application_does() -> None:
    counts = [report.coverage_counts() for report in reports_of_an_application()]

    assert [turn.messages for turn in of_long("elastic")] == counts


@pytest.mark.slow
@pytest.mark.parametrize("name", few_are_quick(NAMES, 2))
def test_every_message_before_a_turn_is_somewhere(name: str) -> None:
    counts = [sum(turn.messages.values()) for turn in of_long(name)]

    assert counts == list(range(0, 2 * TURNS, 2))


@pytest.mark.slow
@pytest.mark.parametrize("name", WITHIN_BUDGET)
def test_no_prompt_is_over_its_budget(name: str) -> None:
    assert 0 < max(turn.largest_tokens for turn in of_long(name)) <= BUDGET


NAMED_EVIDENCE = {2: ["q0"], 23: ["q1", "a1", "a22"], 24: ["a22"]}
"""Turn 24 is the last one; answer 22 comes after turn 23."""


def test_evidence_is_what_stands_in_the_prompt_word_by_word() -> None:
    turns = turns_of(LONG, "full", evidence=NAMED_EVIDENCE)

    shares = {turn.number: turn.evidence for turn in turns if turn.evidence is not None}
    assert shares == {2: 1, 23: 2 / 3, 24: 1}


def test_evidence_that_was_trimmed_is_not_there() -> None:
    turns = turns_of(LONG, "recency", evidence=NAMED_EVIDENCE)

    assert [turn.evidence for turn in turns[-2:]] == [0, 1]


# Loops


def test_every_call_of_a_loop_is_counted() -> None:
    first, second = turns_of(LOOP, "full")

    assert first.calls == 3
    assert second.calls == 1


def test_every_call_of_a_loop_counts_what_it_has_so_far() -> None:
    first, _ = turns_of(LOOP, "full")

    assert first.tokens == costs(LOOP[:1]) + costs(LOOP[:3]) + costs(LOOP[:5])
    assert first.largest_tokens == costs(LOOP[:5])


def test_what_a_call_of_a_loop_had_is_cached_for_the_next() -> None:
    first, _ = turns_of(LOOP, "full")
    of_a_request = costs([])

    assert first.cached_tokens == costs(LOOP[:1]) + costs(LOOP[:3]) - 2 * of_a_request


# Strategies and settings


@pytest.mark.slow
def test_two_replays_are_equal() -> None:
    first = replay(LONG, DEFAULT_STRATEGIES, budget=BUDGET, system_prompt=SYSTEM)
    second = replay(LONG, DEFAULT_STRATEGIES, budget=BUDGET, system_prompt=SYSTEM)

    assert first == second


@cache
def elastic_turns() -> tuple[Turn, ...]:
    return turns_of(LONG, "elastic")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("strategy", "name"),
    [
        ({"strategy": "ratio", "memory": 0.5, "history": 0.2}, "ratio 50/20/30"),
        ({"emphasis": "recall", "keep_messages": 2}, "emphasis=recall, keep_messages=2"),
    ],
    ids=["ratio", "emphasis"],
)
def test_settings_are_a_strategy(strategy: dict[str, Any], name: str) -> None:
    [track] = replay(LONG, [strategy], budget=BUDGET).tracks

    assert track.name == name
    assert track.turns != elastic_turns()


@cache
def replay_with_four_messages() -> dict[str, Any]:
    settings = {"keep_messages": 4}
    return replay(LONG, ["elastic"], budget=BUDGET, settings=settings).to_dict()


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [ContextSettings(keep_messages=4), ContextSettings().override({"keep_messages": 4})],
    ids=["an object", "overridden"],
)
def test_settings_may_be_a_mapping_or_an_object(settings: ContextSettings) -> None:
    result = replay(LONG, ["elastic"], budget=BUDGET, settings=settings)

    assert result.to_dict() == replay_with_four_messages()


@pytest.mark.slow
def test_most_of_a_prompt_is_cached() -> None:
    assert replay_with_four_messages()["strategies"][0]["cached_share"] > 0.5


# What goes wrong


@pytest.fixture(scope="module")
def replay_with_a_huge_message() -> ReplayResult:
    huge = HumanMessage("drill " * 1_000, id="big")
    messages = [huge, AIMessage("That is long.", id="b"), *LONG[:4]]
    return replay(messages, ["elastic", "recency"], budget=BUDGET)


def test_after_a_message_that_does_not_fit_the_next_turn_goes_on(
    replay_with_a_huge_message: ReplayResult,
) -> None:
    package, _ = replay_with_a_huge_message.tracks

    assert [turn.calls for turn in package.turns] == [0, 1, 1]


def test_a_message_that_does_not_fit_is_told(replay_with_a_huge_message: ReplayResult) -> None:
    package, window = replay_with_a_huge_message.tracks

    [failure] = package.failures
    assert failure.startswith("turn 1: BudgetTooSmallError")
    assert window.failures == ()
    assert "elastic: 1 prompt could not be made" in str(replay_with_a_huge_message)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"budget": 0}, "budget must be at least 1"),
        ({"budget": "4k"}, "budget must be at least 1 token, not '4k'"),
        ({"budget": BUDGET, "evidence": {25: ["q0"]}}, "turns 1 to 24"),
    ],
    ids=["no budget", "a word", "evidence of no turn"],
)
def test_numbers_out_of_range_are_an_error(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        replay(LONG, ["full"], **options)
