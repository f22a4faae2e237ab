"""The promises of the budget under every strategy, from the settings to the prompt that is sent."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langchain_core.messages import BaseMessage, HumanMessage
from langchain_openai import ChatOpenAI
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import ContextPipeline
from langchain_ctxbudget.budget import Allocation, Reason, Situation, Status, share_out
from langchain_ctxbudget.errors import (
    BudgetTooSmallError,
    InvalidAllocationError,
    SystemPromptTooLargeError,
)
from langchain_ctxbudget.settings import CustomLayer, LayerRequest
from tests.integration_tests import strategies as made
from tests.integration_tests.conftest import Call
from tests.integration_tests.test_pipeline import chat
from tests.integration_tests.test_promises import SCOPE, SYSTEM_PROMPT, check_adds_up, check_floors

KINDS = tuple(made.allocations())
COMMON = settings(deadline=None, suppress_health_check=list(HealthCheck))
QUICK = settings(COMMON, max_examples=15)


@QUICK
@given(
    history=made.history,
    turn=made.turns,
    changes=made.settings,
    room=st.tuples(st.integers(1, 3_000), st.integers(0, 1_000)),
)
def test_prompt_and_output_reserve_fit_the_window(
    chat_openai: ChatOpenAI,
    history: list[BaseMessage],
    turn: Any,
    changes: dict[str, Any],
    room: tuple[int, int],
) -> None:
    window, reserve = room
    limits = {"max_system_share": 1.0, "window_tokens": window, "output_reserve_tokens": reserve}
    settings = {**changes, "max_context_tokens": 2_500, **limits}
    pipeline = ContextPipeline(settings, system_prompt=SYSTEM_PROMPT, store=InMemoryStore())
    pipeline.add_messages(history, **SCOPE)
    limit = min(2_500, max(0, window - reserve))
    try:
        context = pipeline.assemble(turn, **SCOPE)
    except BudgetTooSmallError as error:
        check_floors(error, limit)
        return
    except SystemPromptTooLargeError as error:
        assert error.floors["L0 system prompt"] > error.budget_tokens >= limit  # noqa: PT017 - allowed, not expected
        return
    assert (
        chat_openai.get_num_tokens_from_messages(context.messages)
        == context.report.total_tokens
        <= limit
    )
    check_adds_up(context)


# Strategies of the application's own


class Generous:
    name = "generous"

    def allocate(self, situation: Situation) -> Allocation:
        allocation = share_out(self.name, situation, [], fits_whole=True)
        return replace(allocation, tokens={**allocation.tokens, "L6": 700, "L2": 500})


def test_a_strategy_that_gives_away_more_than_there_is_is_an_error_with_the_table() -> None:
    pipeline = ContextPipeline(
        {"max_context_tokens": 1_000, "allocation": Generous()}, store=InMemoryStore()
    )
    with pytest.raises(
        InvalidAllocationError, match=r"The strategy 'generous' gave 1,200 tokens"
    ) as caught:
        pipeline.assemble("Hello", **SCOPE)
    assert (caught.value.floors["L6"], caught.value.floors["L2"]) == (700, 500)


# Layers of the application's own


def pipeline_with(items: Any, **changes: Any) -> ContextPipeline:
    layer = CustomLayer(name="open files", items=items, ideal_tokens=200)
    return ContextPipeline(
        {"max_context_tokens": 1_000, "layers": [layer], **changes}, store=InMemoryStore()
    )


@pytest.mark.parametrize("allocation", KINDS[:1] + KINDS[2:])
def test_the_items_of_an_own_layer_stand_in_the_prompt_and_in_the_report(
    call: Call, allocation: str
) -> None:
    asked: list[LayerRequest] = []

    def look(request: LayerRequest) -> list[str]:
        asked.append(request)
        return ["main.py: prints", "test.py: tests"]

    context = call(pipeline_with(look, allocation=allocation), "assemble", "What is open?", **SCOPE)
    [request] = asked
    assert (request.query, request.user_id, request.conversation_id) == (
        "What is open?",
        "ada",
        "c1",
    )
    assert request.budget_tokens > request.left_tokens == 0, (
        "without tools nothing is kept for calls"
    )
    assert "## open files\n- main.py: prints\n- test.py: tests\n" in context.messages[-1].text
    part = context.report.layer("open files")
    assert [(item.id, item.status, item.reason) for item in part.items] == [
        ("open files 1", Status.INCLUDED, Reason.CONFIGURED),
        ("open files 2", Status.INCLUDED, Reason.CONFIGURED),
    ]
    assert (part.title, part.allocated_tokens >= part.used_tokens > 0) == ("open files", True)
    check_adds_up(context)


# What does not change with the current message, and what is not lost


@pytest.mark.parametrize(
    "allocation", ["elastic", {"strategy": "elastic", "profile": "seed"}, "ratio", "prioritized"]
)
def test_what_is_known_about_the_user_does_not_change_with_the_message(allocation: Any) -> None:
    memories = [f"Ada likes the number {number} very much." for number in range(60)]
    pipeline = ContextPipeline(
        {"max_context_tokens": 3_000, "memories": memories, "allocation": allocation},
        store=InMemoryStore(),
    )
    pipeline.add_messages(chat(6), **SCOPE)
    turns = ["Hi", "Hi " + "word " * 300, "Hi there", "Hi " + "word " * 500]
    assert len({pipeline.assemble(turn, **SCOPE).messages[0].text for turn in turns}) == 1


# -- What the functions of an application's own layers may do, and what becomes of the turn when
# they do worse


async def awaited(_: LayerRequest) -> list[str]:
    return []


def test_a_function_that_fails_leaves_its_layer_empty_and_is_reported(call: Call) -> None:
    for items, why in (
        (lambda _: next(iter(())), "StopIteration"),
        (lambda _: ["ok", None], "None, not a string"),
        (lambda _: b"", "b'', not a string"),
        (lambda _: 5, "TypeError"),
        (lambda _: 1 / 0, "ZeroDivisionError"),
        (awaited, "is async"),
    ):
        report = call(pipeline_with(items), "assemble", "Hello", **SCOPE).report
        assert [
            failure
            for failure in report.failures
            if "layer 'open files'" in failure and why in failure
        ]
        assert report.layer("open files").used_tokens == 0
    context = call(
        pipeline_with(lambda _: (text for text in ["main.py: prints"])),
        "assemble",
        "Hello",
        **SCOPE,
    )
    assert "- main.py: prints\n" in context.messages[-1].text


def test_a_function_that_uses_the_conversation_that_is_assembled_does_not_wait_for_itself(
    call: Call,
) -> None:
    def items(request: LayerRequest) -> list[str]:
        scope = {"user_id": request.user_id, "conversation_id": request.conversation_id}
        return [message.text for message in pipeline.get_messages(**scope)]

    pipeline = pipeline_with(items)
    report = call(pipeline, "assemble", "Hello", **SCOPE).report
    assert any("BlockedLoopError" in failure for failure in report.failures)
    assert call(pipeline, "add_messages", [HumanMessage("Still there.", id="m1")], **SCOPE) == [
        "m1"
    ]


def test_a_function_is_called_in_a_worker_thread_under_async() -> None:
    def items(_: LayerRequest) -> list[str]:
        with pytest.raises(RuntimeError):
            asyncio.get_running_loop()
        return ["fine"]

    report = asyncio.run(pipeline_with(items).aassemble("Hello", **SCOPE)).report
    assert report.failures == ()
