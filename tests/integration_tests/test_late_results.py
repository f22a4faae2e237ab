"""The newest result of a call counts, wherever it comes; the earlier one is told and stored."""

from collections.abc import Callable
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.language_models import FakeListChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langchain_google_genai import ChatGoogleGenerativeAI
from langgraph.store.memory import InMemoryStore
from pydantic import Field

from langchain_ctxbudget import (
    BudgetedChatMessageHistory,
    ContextBudgetMiddleware,
    ContextPipeline,
    build_context_graph,
)
from langchain_ctxbudget.errors import EmptyMessageError
from langchain_ctxbudget.providers import NO_RESULT
from tests.cases import few_are_quick

SCOPE: dict[str, Any] = {"user_id": "ada", "conversation_id": "c1"}
RUN: RunnableConfig = {"configurable": {"user_id": "ada", "thread_id": "c1"}}
CALL = {"name": "build", "args": {"what": "shed"}, "id": "c1", "type": "tool_call"}
ASKED: list[BaseMessage] = [
    HumanMessage("Build the shed.", id="h1"),
    AIMessage("", tool_calls=[CALL], id="a1"),
]
PENDING: list[BaseMessage] = [
    ToolMessage("pending", tool_call_id="c1", id="t0"),
    AIMessage("It is being built.", id="a2"),
]
LATE: list[BaseMessage] = [
    HumanMessage("And?", id="h2"),
    ToolMessage("The shed stands.", tool_call_id="c1", id="t1"),
]
BUDGETS = few_are_quick([4_000, 16_000, 128_000])


def pipeline_of(budget: int, history: list[BaseMessage]) -> ContextPipeline:
    pipeline = ContextPipeline(store=InMemoryStore(), settings={"max_context_tokens": budget})
    pipeline.add_messages(history, **SCOPE)
    return pipeline


def assembled(
    budget: int, history: list[BaseMessage], turn: list[BaseMessage]
) -> list[BaseMessage]:
    return pipeline_of(budget, history).assemble(turn, **SCOPE).messages


def graphed(budget: int, history: list[BaseMessage], turn: list[BaseMessage]) -> list[BaseMessage]:
    graph = build_context_graph({"max_context_tokens": budget})
    sent: list[BaseMessage] = graph.invoke({"messages": [*history, *turn]}, RUN)[
        "llm_input_messages"
    ]
    return sent


class Listening(FakeListChatModel):
    """Keeps what it was asked."""

    asked: list[list[BaseMessage]] = Field(default_factory=list)

    def _call(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> str:
        self.asked.append(messages)
        return super()._call(messages, *args, **kwargs)


def shown_by_middleware(
    budget: int, history: list[BaseMessage], turn: list[BaseMessage]
) -> list[BaseMessage]:
    model = Listening(responses=["Good."])
    middleware = ContextBudgetMiddleware({"max_context_tokens": budget}, recall_tool=False)
    agent = create_agent(model, middleware=[middleware], store=InMemoryStore())
    agent.invoke({"messages": [*history, *turn]}, RUN)
    return model.asked[-1]


def windowed(budget: int, history: list[BaseMessage], turn: list[BaseMessage]) -> list[BaseMessage]:
    pipeline = pipeline_of(budget, [*history, *turn])
    return BudgetedChatMessageHistory("c1", user_id="ada", pipeline=pipeline).window(budget)


WAYS = {
    "pipeline": assembled,
    "graph": graphed,
    "middleware": shown_by_middleware,
    "window": windowed,
}
EVERY_WAY = pytest.mark.parametrize("way", WAYS.values(), ids=list(WAYS))
Way = Callable[[int, list[BaseMessage], list[BaseMessage]], list[BaseMessage]]


def results_of(messages: list[BaseMessage]) -> list[str]:
    return [str(message.content) for message in messages if isinstance(message, ToolMessage)]


@EVERY_WAY
@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("history", [ASKED, ASKED + PENDING], ids=["open", "pending"])
@pytest.mark.parametrize("turn", [LATE, LATE[::-1]], ids=["behind", "before"])
def test_the_newest_result_stands_behind_its_call(
    way: Way, budget: int, history: list[BaseMessage], turn: list[BaseMessage]
) -> None:
    sent = way(budget, history, turn)

    assert results_of(sent) == ["The shed stands."]
    at = next(number for number, message in enumerate(sent) if isinstance(message, ToolMessage))
    assert [call["id"] for call in sent[at - 1].tool_calls] == ["c1"]  # type: ignore[attr-defined]


RAW = HumanMessage([{"type": "tool_result", "tool_use_id": "c1", "content": "The shed stands."}])


@EVERY_WAY
@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("history", [ASKED, ASKED + PENDING], ids=["open", "pending"])
@pytest.mark.parametrize("result", [LATE[1], RAW], ids=["message", "block"])
def test_a_turn_of_a_result_alone_is_answered_by_its_call(
    way: Way, budget: int, history: list[BaseMessage], result: BaseMessage
) -> None:
    sent = way(budget, history, [result])

    assert results_of(sent) == ["The shed stands."]
    at = next(number for number, message in enumerate(sent) if isinstance(message, ToolMessage))
    assert [call["id"] for call in sent[at - 1].tool_calls] == ["c1"]  # type: ignore[attr-defined]


def test_a_turn_of_results_that_nothing_called_for_is_refused() -> None:
    with pytest.raises(EmptyMessageError, match="answer no call"):
        pipeline_of(4_000, LONG_TALK[:2]).assemble([LATE[1]], **SCOPE)


@pytest.mark.slow
def test_a_result_alone_whose_call_is_cut_off_has_it_once_more() -> None:
    model = ChatGoogleGenerativeAI(model="gemini-2.5-flash", google_api_key="x")
    pipeline = ContextPipeline(
        store=InMemoryStore(), settings={"max_context_tokens": 4_000}, model=model
    )
    pipeline.add_messages([*ASKED, *PENDING, *LONG_TALK], **SCOPE)

    *_, line, call, result = pipeline.assemble([LATE[1]], **SCOPE).messages

    assert line == HumanMessage("[The conversation goes on.]")  # for Gemini, behind an answer
    assert call.tool_calls[0]["name"] == "build"  # type: ignore[attr-defined]
    assert result.content == "The shed stands."


def test_a_late_result_needs_no_repair() -> None:
    context = pipeline_of(4_000, ASKED).assemble(LATE, **SCOPE)

    assert context.report.repairs == ()


def test_an_earlier_result_is_told_and_stays_in_the_store() -> None:
    pipeline = pipeline_of(4_000, ASKED + PENDING)

    context = pipeline.assemble(LATE, **SCOPE)

    assert [(repair.kind, repair.message_id) for repair in context.report.repairs] == [
        ("replaced_result", "t0")
    ]
    stored = pipeline.conversation("c1", user_id="ada").messages()
    assert "pending" in [message.content for message in stored]


def test_a_result_that_another_sync_brings_counts() -> None:
    pipeline = pipeline_of(4_000, ASKED + PENDING)
    pipeline.conversation("c1", user_id="ada").sync([*ASKED, *PENDING, *LATE])

    assert results_of(pipeline.assemble("Thanks", **SCOPE).messages) == ["The shed stands."]


def test_the_turn_goes_on_behind_a_late_result() -> None:
    call = {"name": "paint", "args": {}, "id": "c2", "type": "tool_call"}
    turn = [*LATE, AIMessage("", tool_calls=[call]), ToolMessage("Green.", tool_call_id="c2")]

    sent = pipeline_of(4_000, ASKED).assemble(turn, **SCOPE).messages

    assert results_of(sent) == ["The shed stands.", "Green."]


@pytest.mark.parametrize("way", [assembled, graphed, shown_by_middleware])
@pytest.mark.parametrize("budget", BUDGETS)
def test_a_large_late_result_takes_the_room_of_the_turn(way: Way, budget: int) -> None:
    report = "It stands. " * (budget // 8)
    turn = [LATE[0], ToolMessage(report, tool_call_id="c1", id="t1")]

    sent = way(budget, [*ASKED, AIMessage("It is being built.", id="a2")], turn)

    [shown] = results_of(sent)
    assert shown.startswith("It stands. It stands.")


LONG_TALK: list[BaseMessage] = [
    message
    for number in range(60)
    for message in (
        HumanMessage(f"What about plank {number}? " + "It is long and it is brown. " * 12),
        AIMessage(f"Plank {number} is fine. " + "It will hold for many a year. " * 12),
    )
]


@pytest.mark.parametrize("way", [assembled, graphed])
def test_a_late_result_is_shown_where_its_call_is_not(way: Way) -> None:
    sent = way(4_000, [*ASKED, *LONG_TALK], LATE)

    at = results_of(sent).index("The shed stands.")
    assert results_of(sent)[at] == "The shed stands."
    assert NO_RESULT not in results_of(sent)
    assert sent[-2].tool_calls[0]["name"] == "build"  # type: ignore[attr-defined]


def test_a_late_result_behind_a_cut_is_shown() -> None:
    pipeline = pipeline_of(4_000, [*ASKED, *LONG_TALK, *LATE, AIMessage("It stands.")])

    context = pipeline.assemble("Thanks", **SCOPE)

    assert results_of(context.messages) == ["The shed stands."]
    assert context.report.repairs == ()


def test_a_result_that_nobody_asked_for_is_left_out() -> None:
    context = pipeline_of(4_000, LONG_TALK[:2]).assemble(LATE, **SCOPE)

    assert results_of(context.messages) == []
    assert [repair.kind for repair in context.report.repairs] == ["orphan_result"]


# A round is as new as its newest result


def step(number: int) -> list[BaseMessage]:
    """A round of two calls, one of which only says that it goes on."""
    calls = [
        {"name": "look", "args": {}, "id": f"c{number}", "type": "tool_call"},
        {"name": "build", "args": {}, "id": f"job{number}", "type": "tool_call"},
    ]
    seen = f"Plank {number}. " + f"It is {number} long. " * 60
    return [
        AIMessage("", tool_calls=calls, id=f"a{number}"),
        ToolMessage(seen, tool_call_id=f"c{number}", id=f"t{number}"),
        ToolMessage("pending", tool_call_id=f"job{number}", id=f"j{number}"),
    ]


def finished_job(number: int, size: int) -> ToolMessage:
    text = f"Job {number} is done. " + "All went well. " * size
    return ToolMessage(text, tool_call_id=f"job{number}", id=f"late{number}")


def long_turn(late: list[int], size: int) -> list[BaseMessage]:
    """A turn of many rounds, in which results of old calls come at the end."""
    steps = [message for number in range(40) for message in step(number)]
    jobs = [finished_job(number, size) for number in late]
    return [HumanMessage("Build it all.", id="h0"), *steps, *jobs]


@pytest.mark.parametrize("way", [graphed, shown_by_middleware, assembled])
@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("late", few_are_quick([[1], [1, 20], [0, 1, 2, 3]], 2), ids=str)
@pytest.mark.parametrize("size", few_are_quick([1, 300]))
def test_an_old_round_stays_whose_result_has_just_come(
    way: Way, budget: int, late: list[int], size: int
) -> None:
    text = "\n".join(results_of(way(budget, [], long_turn(late, size))))

    assert [number for number in late if f"Job {number} is done." not in text] == []
    assert "Plank 39." in text


def test_it_gives_way_when_later_rounds_have_come() -> None:
    later = [message for number in range(40, 80) for message in step(number)]
    turn = [*long_turn([1], 1), *later]

    text = "\n".join(results_of(assembled(4_000, [], turn)))

    assert "Job 1 is done." not in text
    assert "Plank 79." in text


def test_rounds_stand_in_their_own_order() -> None:
    sent = assembled(4_000, [], long_turn([1], 1))

    first = next(message for message in sent if isinstance(message, AIMessage))
    assert first.id == "a1"
