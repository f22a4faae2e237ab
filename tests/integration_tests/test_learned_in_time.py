"""What a prompt shows of what was learned does not depend on how far the background has come."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage

from langchain_ctxbudget import AssembledContext, ContextPipeline
from langchain_ctxbudget.knowledge import learning
from langchain_ctxbudget.report import ContextReport
from tests.integration_tests.learning_models import Reader
from tests.integration_tests.plain_reader import reading_plainly

HERE: dict[str, Any] = {"user_id": "ada", "conversation_id": "c1"}
THERE: dict[str, Any] = {"user_id": "ada", "conversation_id": "c2"}
SAID = (
    "My favourite colour is amber.",
    "I live in Lisbon.",
    "I like papaya.",
    "My favourite colour is green.",
    "I live in Porto.",
    "I am learning home brewing.",
    "I like home brewing.",
)
QUESTION = "What do you know about me?"
BEHIND = "messages before this one are still being learned from, in the background"
Background = Callable[[ContextPipeline], None]
"""What happens in the background between two calls."""


@pytest.fixture(scope="module", autouse=True)
def plain_reader() -> Iterator[None]:
    with reading_plainly():
        yield


def does_everything(pipeline: ContextPipeline) -> None:
    assert pipeline.flush(30)


def does_nothing(pipeline: ContextPipeline) -> None:
    worker = pipeline.engine.workspace.workers.learning.worker
    worker.submit = lambda key: True  # type: ignore[method-assign]


def messages() -> list[BaseMessage]:
    said: list[BaseMessage] = []
    for number, text in enumerate(SAID):
        said += [HumanMessage(text, id=f"h{number}"), AIMessage("Noted.", id=f"a{number}")]
    return said


def without_times(report: ContextReport) -> ContextReport:
    return replace(report, timings_ms={})


def conversed(background: Background, model: Reader | None = None) -> list[AssembledContext]:
    """The prompts of a conversation, an hour apart, with other calls of the background each."""
    start = datetime(2026, 3, 1, tzinfo=UTC)
    contexts: list[AssembledContext] = []
    pipeline = ContextPipeline(
        summary_model=model, clock=lambda: start + timedelta(hours=len(contexts))
    )
    background(pipeline)
    for message in messages():
        if isinstance(message, HumanMessage):
            contexts.append(pipeline.assemble(message.text, **HERE))
        pipeline.add_messages([message], **HERE)
        background(pipeline)
    contexts.append(pipeline.assemble(QUESTION, **THERE))
    return contexts


def imported(background: Background, model: Reader | None = None) -> AssembledContext:
    """The first prompt behind messages that were added at once."""
    pipeline = ContextPipeline(summary_model=model)
    background(pipeline)
    pipeline.add_messages(messages(), **HERE)
    background(pipeline)
    return pipeline.assemble(QUESTION, **THERE)


def text(context: AssembledContext) -> str:
    return "\n".join(message.text for message in context.messages)


def test_prompts_are_the_same_however_far_the_background_has_come() -> None:
    in_time = conversed(does_everything)
    late = conversed(does_nothing)

    assert [context.messages for context in late] == [context.messages for context in in_time]


def test_reports_are_the_same_however_far_the_background_has_come() -> None:
    in_time = conversed(does_everything)
    late = conversed(does_nothing)

    reports = [without_times(context.report) for context in in_time]
    assert [without_times(context.report) for context in late] == reports


def test_a_prompt_shows_what_was_said_just_before_elsewhere() -> None:
    assert "I live in Porto." in text(imported(does_nothing))


def test_a_prompt_does_not_wait_for_a_model() -> None:
    assert "I live in Porto." not in text(imported(does_nothing, Reader()))


def test_a_prompt_behind_a_long_import_says_that_it_does_not_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(learning, "MOST_CAUGHT_UP", 5)

    failures = imported(does_nothing).report.failures

    assert f"learning about the user: {BEHIND}" in failures


def test_what_fails_to_be_learned_is_told_and_holds_up_no_prompt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(learning.merging, "with_work", lambda *_: 1 / 0)

    context = imported(does_nothing)

    [failure] = context.report.failures
    assert "what was said before was not learned from: ZeroDivisionError" in failure
