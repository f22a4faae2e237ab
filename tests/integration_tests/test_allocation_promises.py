"""The promises of the budget under every strategy, from the settings to the prompt that is sent."""

import asyncio
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langchain_core.messages import BaseMessage, HumanMessage
from langchain_openai import ChatOpenAI
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import AssembledContext, ContextPipeline
from langchain_ctxbudget.budget import Allocation, Reason, Situation, Status, share_out
from langchain_ctxbudget.errors import (
    BudgetTooSmallError,
    InvalidAllocationError,
    SystemPromptTooLargeError,
)
from langchain_ctxbudget.settings import CustomLayer, LayerRequest
from tests.integration_tests import strategies as made
from tests.integration_tests.test_pipeline import chat
from tests.integration_tests.test_promises import SCOPE, SYSTEM_PROMPT, check_adds_up, check_floors

COMMON = settings(deadline=None, suppress_health_check=list(HealthCheck))
QUICK = settings(COMMON, max_examples=6)


@pytest.mark.slow
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
        check_system_prompt_is_too_large(error, limit)
        return
    counted = chat_openai.get_num_tokens_from_messages(context.messages)
    assert context.report.total_tokens == counted
    assert counted <= limit
    check_adds_up(context)


def check_system_prompt_is_too_large(error: SystemPromptTooLargeError, limit: int) -> None:
    assert error.floors["system prompt"] > error.budget_tokens
    assert error.budget_tokens >= limit


# -- strategies of the application's own


class Generous:
    name = "generous"

    def allocate(self, situation: Situation) -> Allocation:
        allocation = share_out(self.name, situation, [], fits_whole=True)
        return replace(allocation, tokens={**allocation.tokens, "L6": 700, "L2": 500})


@pytest.fixture(scope="module")
def generous_error() -> InvalidAllocationError:
    """The error of a strategy that gives away more than there is."""
    settings = {"max_context_tokens": 1_000, "allocation": Generous()}
    pipeline = ContextPipeline(settings, store=InMemoryStore())
    with pytest.raises(InvalidAllocationError) as caught:
        pipeline.assemble("Hello", **SCOPE)
    return caught.value


def test_a_strategy_that_gives_more_than_there_is_is_an_error(
    generous_error: InvalidAllocationError,
) -> None:
    assert "The strategy 'generous' gave 1,200 tokens" in str(generous_error)


@pytest.mark.parametrize(("layer", "tokens"), [("L6", 700), ("L2", 500)])
def test_the_error_has_what_every_layer_was_given(
    generous_error: InvalidAllocationError, layer: str, tokens: int
) -> None:
    assert generous_error.floors[layer] == tokens


# -- layers of the application's own


def pipeline_with(items: Any, **changes: Any) -> ContextPipeline:
    layer = CustomLayer(name="open files", items=items, ideal_tokens=200)
    settings = {"max_context_tokens": 1_000, "layers": [layer], **changes}
    return ContextPipeline(settings, store=InMemoryStore())


@dataclass(frozen=True)
class OwnLayer:
    """A prompt with the application's own layer, and what the layer was asked for."""

    requests: list[LayerRequest]
    context: AssembledContext


@pytest.fixture(scope="module", params=["elastic", "ratio", "fixed", "dynamic", "prioritized"])
def own_layer(request: pytest.FixtureRequest) -> OwnLayer:
    requests: list[LayerRequest] = []

    def look(request: LayerRequest) -> list[str]:
        requests.append(request)
        return ["main.py: prints", "test.py: tests"]

    pipeline = pipeline_with(look, allocation=request.param)
    return OwnLayer(requests, pipeline.assemble("What is open?", **SCOPE))


def test_an_own_layer_is_asked_once_with_the_question(own_layer: OwnLayer) -> None:
    [request] = own_layer.requests
    assert request.query == "What is open?"
    assert request.user_id == "ada"
    assert request.conversation_id == "c1"


def test_an_own_layer_is_told_the_budget(own_layer: OwnLayer) -> None:
    [request] = own_layer.requests
    assert request.budget_tokens > 0
    assert request.left_tokens == 0, "without tools nothing is kept for calls"


def test_the_items_of_an_own_layer_stand_in_the_prompt(own_layer: OwnLayer) -> None:
    section = "## open files\n- main.py: prints\n- test.py: tests\n"
    assert section in own_layer.context.messages[-1].text


def test_the_items_of_an_own_layer_stand_in_the_report(own_layer: OwnLayer) -> None:
    layer = own_layer.context.report.layer("open files")
    assert [(item.id, item.status, item.reason) for item in layer.items] == [
        ("open files 1", Status.INCLUDED, Reason.CONFIGURED),
        ("open files 2", Status.INCLUDED, Reason.CONFIGURED),
    ]


def test_an_own_layer_uses_what_it_was_given(own_layer: OwnLayer) -> None:
    layer = own_layer.context.report.layer("open files")
    assert layer.title == "open files"
    assert layer.used_tokens > 0
    assert layer.allocated_tokens >= layer.used_tokens


def test_a_report_with_an_own_layer_adds_up(own_layer: OwnLayer) -> None:
    check_adds_up(own_layer.context)


# -- what does not change with the current message


@pytest.mark.parametrize(
    "allocation",
    ["elastic", {"strategy": "elastic", "profile": "seed"}, "ratio", "prioritized"],
    ids=["elastic", "elastic (seed)", "ratio", "prioritized"],
)
def test_what_is_known_of_the_user_is_the_same_for_any_message(allocation: Any) -> None:
    memories = [f"Ada likes the number {number} very much." for number in range(60)]
    pipeline = ContextPipeline(
        {"max_context_tokens": 3_000, "memories": memories, "allocation": allocation},
        store=InMemoryStore(),
    )
    pipeline.add_messages(chat(6), **SCOPE)
    turns = ["Hi", "Hi " + "word " * 300, "Hi there", "Hi " + "word " * 500]

    first_messages = {pipeline.assemble(turn, **SCOPE).messages[0].text for turn in turns}

    assert len(first_messages) == 1


# -- what the functions of an application's own layers may do, and what becomes of the turn when
# they do worse


def raises_stop_iteration(_: LayerRequest) -> list[str]:
    return next(iter(()))


def divides_by_zero(_: LayerRequest) -> list[str]:
    return ["x" * (1 // 0)]


async def is_async(_: LayerRequest) -> list[str]:
    return []


@pytest.mark.parametrize(
    ("items", "failure"),
    [
        pytest.param(raises_stop_iteration, "StopIteration", id="ends an iteration"),
        pytest.param(lambda _: ["ok", None], "None, not a string", id="nothing in a list"),
        pytest.param(lambda _: b"", "b'', not a string", id="bytes"),
        pytest.param(lambda _: 5, "TypeError", id="a number"),
        pytest.param(divides_by_zero, "ZeroDivisionError", id="divides by zero"),
        pytest.param(is_async, "is async", id="is async"),
    ],
)
def test_a_function_that_fails_leaves_its_layer_empty_and_is_reported(
    items: Any, failure: str
) -> None:
    report = pipeline_with(items).assemble("Hello", **SCOPE).report

    [reported] = [text for text in report.failures if "layer 'open files'" in text]
    assert failure in reported
    assert report.layer("open files").used_tokens == 0


def test_a_function_may_give_a_generator() -> None:
    pipeline = pipeline_with(lambda _: (text for text in ["main.py: prints"]))
    context = pipeline.assemble("Hello", **SCOPE)
    assert "- main.py: prints\n" in context.messages[-1].text


@pytest.fixture
def pipeline_that_asks_itself() -> ContextPipeline:
    """A pipeline whose layer reads the conversation that is being assembled."""

    def items(request: LayerRequest) -> list[str]:
        scope = {"user_id": request.user_id, "conversation_id": request.conversation_id}
        return [message.text for message in pipeline.get_messages(**scope)]

    pipeline = pipeline_with(items)
    return pipeline


def test_a_function_does_not_wait_for_the_conversation_it_is_part_of(
    pipeline_that_asks_itself: ContextPipeline,
) -> None:
    report = pipeline_that_asks_itself.assemble("Hello", **SCOPE).report
    assert any("BlockedLoopError" in failure for failure in report.failures)


def test_a_conversation_goes_on_after_a_function_that_asked_for_it(
    pipeline_that_asks_itself: ContextPipeline,
) -> None:
    pipeline_that_asks_itself.assemble("Hello", **SCOPE)
    message = HumanMessage("Still there.", id="m1")
    assert pipeline_that_asks_itself.add_messages([message], **SCOPE) == ["m1"]


def test_a_function_is_called_in_a_worker_thread_under_async() -> None:
    def items(_: LayerRequest) -> list[str]:
        with pytest.raises(RuntimeError):
            asyncio.get_running_loop()
        return ["fine"]

    report = asyncio.run(pipeline_with(items).aassemble("Hello", **SCOPE)).report
    assert report.failures == ()
