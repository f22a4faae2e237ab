"""What a long conversation keeps in memory, counted in objects and bytes."""

import gc
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage

from langchain_ctxbudget import ContextPipeline
from langchain_ctxbudget.history import table, tree
from langchain_ctxbudget.history.table import TEXTS_TOGETHER, MessageTable

ADA: dict[str, Any] = {"user_id": "ada", "conversation_id": "c1"}
SETTINGS = {"max_context_tokens": 600, "learn": False}
QUESTION = "What was in box 7?"
FEW = 16
MANY = 160


def said(first: int, end: int) -> list[BaseMessage]:
    """Returns exchanges about boxes that differ in number and size."""
    messages: list[BaseMessage] = []
    for number in range(first, end):
        kind = (HumanMessage, AIMessage)[number % 2]
        text = f"In box {number} there are {number * 37 % 101} red lamps, and Ann paid for them."
        messages.append(kind(text, id=f"m{number}"))
    return messages


def filled(pipeline: ContextPipeline, count: int, together: int = 20) -> MessageTable:
    """Adds messages, a few together, and returns the conversation's table."""
    for first in range(0, count, together):
        pipeline.add_messages(said(first, first + together), **ADA)
    [conversation] = pipeline.engine.workspace.open_conversations.all().values()
    return conversation.table


@pytest.fixture
def _few_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "MOST_DECODED", FEW)
    monkeypatch.setattr(table, "MOST_UNSEALED", FEW)
    monkeypatch.setattr(table, "MOST_UNREAD", 2 * FEW)
    monkeypatch.setattr(table, "DEFLATED_TOGETHER", FEW)


@pytest.fixture
def pipeline() -> Iterator[ContextPipeline]:
    with ContextPipeline(SETTINGS) as made:
        yield made


@pytest.mark.usefixtures("_few_objects")
@pytest.mark.parametrize("together", [1, 20, MANY])
def test_few_messages_stay_objects_in_memory(pipeline: ContextPipeline, together: int) -> None:
    filled(pipeline, MANY, together)
    pipeline.assemble(QUESTION, **ADA)

    [conversation] = pipeline.engine.workspace.open_conversations.all().values()

    assert len(conversation.table.held) < 3 * FEW + TEXTS_TOGETHER


@pytest.mark.usefixtures("_few_objects")
def test_what_no_prompt_has_read_is_not_deflated(
    pipeline: ContextPipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table, "MOST_UNREAD", MANY)
    held = filled(pipeline, MANY).held
    assert len(held) == MANY

    pipeline.assemble(QUESTION, **ADA)
    pipeline.add_messages(said(MANY, MANY + 1), **ADA)

    assert len(held) < 3 * FEW


@pytest.mark.usefixtures("_few_objects")
def test_messages_that_are_no_objects_are_as_they_were(pipeline: ContextPipeline) -> None:
    filled(pipeline, MANY)
    assert pipeline.get_messages(**ADA) == said(0, MANY)


@pytest.mark.slow
def test_a_prompt_is_the_same_with_few_objects(
    pipeline: ContextPipeline, request: pytest.FixtureRequest
) -> None:
    filled(pipeline, MANY)
    expected = pipeline.assemble(QUESTION, **ADA)
    request.getfixturevalue("_few_objects")
    with ContextPipeline(SETTINGS) as other:
        filled(other, MANY)
        context = other.assemble(QUESTION, **ADA)

    assert context.messages == expected.messages
    assert context.report.layers == expected.report.layers


@pytest.mark.usefixtures("_few_objects")
@pytest.mark.parametrize("changed", ["edit", "remove", "pin"])
def test_a_message_that_is_no_object_changes(pipeline: ContextPipeline, changed: str) -> None:
    filled(pipeline, MANY)
    if changed == "edit":
        pipeline.edit_message("m7", AIMessage("Nothing was in it.", id="m7"), **ADA)
    elif changed == "remove":
        pipeline.remove_messages(["m7"], on_removal="forget", **ADA)
    else:
        pipeline.pin(["m7"], preservation="keep", **ADA)

    texts = [message.text for message in pipeline.assemble(QUESTION, **ADA).messages]

    shows_old = any("In box 7 there are" in text for text in texts)
    assert shows_old == (changed == "pin")


@pytest.mark.slow
def test_few_extractions_of_spans_are_kept(
    pipeline: ContextPipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tree, "MOST_FINE", 4)
    digests = filled(pipeline, 600).span_digests

    levels = [made.level for _, _, made in digests.extracted]

    assert sum(level < tree.COARSE_LEVEL for level in levels) == 4
    assert levels.count(tree.COARSE_LEVEL) == 1


BYTES_BEFORE = 12_000
"""Messages with which everything that does not grow is there."""
BYTES_AFTER = 16_000


@pytest.mark.slow
def test_a_message_takes_few_bytes() -> None:
    """The record in the store in memory is among them."""
    with ContextPipeline(SETTINGS) as pipeline:
        filled(pipeline, BYTES_BEFORE, 400)
        pipeline.assemble(QUESTION, **ADA)
        tracemalloc.start()
        try:
            for first in range(BYTES_BEFORE, BYTES_AFTER, 400):
                pipeline.add_messages(said(first, first + 400), **ADA)
            pipeline.assemble(QUESTION, **ADA)
            gc.collect()
            grown = tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()

    assert grown / (BYTES_AFTER - BYTES_BEFORE) < 6_000
