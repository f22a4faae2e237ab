"""Tests conversations that are put together from requests."""

import cProfile
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage

from langchain_ctxbudget.readers.growing import Request, grown

Q1, A1 = HumanMessage("Which flour?"), AIMessage("Rye.")
Q2, A2 = HumanMessage("How much?"), AIMessage("500 g.")
Q3, A3 = HumanMessage("How long?"), AIMessage("An hour.")
KIND, TERSE = SystemMessage("Be kind."), SystemMessage("Give a title.")
CALL = AIMessage("", tool_calls=[{"name": "find", "args": {"q": "rye"}, "id": "c1"}])
RESULT = ToolMessage("Rye 1200, 30 shelves of it", tool_call_id="c1")
CLIPPED = ToolMessage("Rye 1200 ...", tool_call_id="c1")


def told(*requests: list[BaseMessage], thread: str | None = None) -> list[list[BaseMessage]]:
    """The messages of the conversations that requests make."""
    conversations = grown(Request(messages=request, thread=thread) for request in requests)
    return [conversation.messages for conversation in conversations]


@pytest.mark.parametrize(
    "requests",
    [
        pytest.param([[Q1, A1], [Q1, A1, Q2, A2], [Q1, A1, Q2, A2, Q3, A3]], id="in order"),
        pytest.param([[Q1, A1, Q2, A2, Q3, A3], [Q1, A1], [Q1]], id="the longest first"),
        pytest.param([[Q1], [Q1, A1, Q2], [Q1, A1, Q2, A2, Q3], [Q3, A3]], id="no answers"),
        pytest.param([[Q1, A1, Q2, A2], [Q2, A2, Q3, A3]], id="the oldest left out"),
        pytest.param(
            [[Q1, A1, Q2, A2], [HumanMessage("A summary."), Q2, A2, Q3, A3]], id="summarised"
        ),
        pytest.param([[KIND, Q1, A1], [TERSE, Q1, A1, Q2, A2, Q3, A3]], id="other instructions"),
    ],
)
def test_requests_of_a_growing_conversation_are_one(requests: list[list[BaseMessage]]) -> None:
    assert told(*requests) == [[Q1, A1, Q2, A2, Q3, A3]]


def calls_of_functions(work: Callable[[], object]) -> int:
    """How many functions are called: work that does not depend on the machine."""
    profile = cProfile.Profile()
    profile.runcall(work)
    return sum(entry.callcount for entry in profile.getstats())


@pytest.mark.parametrize("same", ["the beginning", "the end"])
def test_conversations_with_much_the_same_cost_no_more_each(same: str) -> None:
    requests: list[list[BaseMessage]] = [
        [HumanMessage(f"Is {number} even?"), AIMessage("Yes.")]
        if same == "the end"
        else [Q1, AIMessage(f"Rye {number}.")]
        for number in range(200)
    ]

    work = calls_of_functions(lambda: told(*requests))
    half = calls_of_functions(lambda: told(*requests[:100]))

    assert len(told(*requests)) == 200
    assert work < 2.2 * half


def test_a_result_stands_as_it_was_before_it_was_clipped() -> None:
    requests = [[Q1, CALL], [Q1, CALL, RESULT, A1], [Q1, CALL, CLIPPED, A1, Q2, A2]]

    assert told(*requests) == [[Q1, CALL, RESULT, A1, Q2, A2]]


@pytest.mark.parametrize(
    "again",
    [
        AIMessage("  Rye.\n"),
        AIMessage([{"type": "text", "text": "Rye."}]),
        AIMessage([{"type": "thinking", "thinking": "Hm."}, {"type": "text", "text": "Rye."}]),
    ],
)
def test_an_answer_is_known_in_another_form(again: AIMessage) -> None:
    assert told([Q1, A1], [Q1, again, Q2, A2]) == [[Q1, A1, Q2, A2]]


def test_conversations_that_begin_alike_stay_apart() -> None:
    assert told([Q1, A1, Q2, A2], [Q1, A1, Q3, A3]) == [[Q1, A1, Q2, A2], [Q1, A1, Q3, A3]]


def test_one_message_in_common_joins_nothing() -> None:
    thanks = HumanMessage("Thanks")

    assert len(told([Q1, A1, thanks], [Q2, A2, thanks, A3])) == 2


def test_threads_stay_apart() -> None:
    requests = [Request(messages=[Q1, A1], thread=thread) for thread in ("one", "two", "one")]

    assert [conversation.requests for conversation in grown(requests)] == [[0, 2], [1]]


def test_turns_of_a_thread_that_are_sent_without_history_are_one() -> None:
    assert told([KIND, Q1, A1], [KIND, Q2, A2], thread="t") == [[Q1, A1, Q2, A2]]


def test_another_agent_of_a_thread_is_another_conversation() -> None:
    assert told([KIND, Q1, A1], [TERSE, Q2, A2], thread="t") == [[Q1, A1], [Q2, A2]]


def test_of_two_last_answers_the_later_stands() -> None:
    assert told([Q1, A1], [Q1, A2, Q3, A3], thread="t") == [[Q1, A2, Q3, A3]]


def test_the_last_instructions_and_tools_are_kept() -> None:
    tools: list[list[dict[str, Any]]] = [[{"name": "find"}], [{"name": "ask"}]]
    [conversation] = grown(
        [
            Request(messages=[KIND, Q1, A1], tools=tools[0]),
            Request(messages=[TERSE, Q1, A1, Q2, A2], tools=tools[1]),
        ]
    )

    assert conversation.with_instructions() == [TERSE, Q1, A1, Q2, A2]
    assert conversation.tools == tools[1]


def test_nothing_makes_no_conversation() -> None:
    assert told([], [KIND]) == []


@given(
    st.lists(st.integers(1, 4), min_size=1, max_size=6),
    st.integers(0, 6),
    st.sampled_from([None, "t"]),
)
def test_every_message_comes_back_once(steps: list[int], left_out: int, thread: str | None) -> None:
    messages: list[BaseMessage] = [
        HumanMessage(f"Question {number}") if number % 2 == 0 else AIMessage(f"Answer {number}")
        for number in range(sum(steps))
    ]
    requests: list[list[BaseMessage]] = []
    end = 0
    for step in steps:
        begin = max(0, end - 2 - left_out) if left_out else 0
        end += step
        requests.append(messages[begin:end])

    assert told(*requests, thread=thread) == [messages]
