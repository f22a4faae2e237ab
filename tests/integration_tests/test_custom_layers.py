"""What the functions of an application's own layers may do, and what becomes of the turn when they do worse."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from langchain_core.messages import HumanMessage
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import ContextPipeline
from langchain_ctxbudget.settings import CustomLayer, LayerRequest
from tests.integration_tests.conftest import Call

SCOPE = {"user_id": "ada", "conversation_id": "c1"}


def pipeline_with(items: Any) -> ContextPipeline:
    layer = CustomLayer(name="open files", items=items, ideal_tokens=200)
    return ContextPipeline({"layers": [layer]}, store=InMemoryStore())


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
        assert [failure for failure in report.failures if "layer 'open files'" in failure and why in failure]
        assert report.layer("open files").used_tokens == 0
    context = call(pipeline_with(lambda _: (text for text in ["main.py: prints"])), "assemble", "Hello", **SCOPE)
    assert "- main.py: prints\n" in context.messages[-1].text


def test_a_function_that_uses_the_conversation_that_is_assembled_does_not_wait_for_itself(call: Call) -> None:
    def items(request: LayerRequest) -> list[str]:
        scope = {"user_id": request.user_id, "conversation_id": request.conversation_id}
        return [message.text for message in pipeline.get_messages(**scope)]

    pipeline = pipeline_with(items)
    report = call(pipeline, "assemble", "Hello", **SCOPE).report
    assert any("BlockedLoopError" in failure for failure in report.failures)
    assert call(pipeline, "add_messages", [HumanMessage("Still there.", id="m1")], **SCOPE) == ["m1"]


def test_a_function_is_called_in_a_worker_thread_under_async() -> None:
    def items(_: LayerRequest) -> list[str]:
        with pytest.raises(RuntimeError):
            asyncio.get_running_loop()
        return ["fine"]

    report = asyncio.run(pipeline_with(items).aassemble("Hello", **SCOPE)).report
    assert report.failures == ()
