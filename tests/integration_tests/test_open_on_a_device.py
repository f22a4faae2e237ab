"""What is open on the device that asks counts as mentioned."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from langchain_ctxbudget import ContextPipeline
from langchain_ctxbudget.settings import Topic

ADA: Any = {"user_id": "ada"}
HERE: Any = {"user_id": "ada", "conversation_id": "c1"}
START = datetime(2026, 3, 1, 12, tzinfo=UTC)
VERSION = "Version 5, with Postgres."


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def pipeline(clock: Callable[[], datetime]) -> ContextPipeline:
    """A pipeline that knows of Prisma, of Django and of Sarah."""
    pipeline = ContextPipeline(settings={"max_context_tokens": 4_000}, clock=clock)
    pipeline.knowledge.add_topic("Prisma", compiled_context=VERSION, **ADA)
    pipeline.knowledge.add_topic("Django", compiled_context="A framework.", **ADA)
    pipeline.knowledge.add_entity("Sarah", type="person", relationship="cofounder", **ADA)
    return pipeline


def topics_of(pipeline: ContextPipeline, question: str, device: str = "phone") -> tuple[str, ...]:
    return pipeline.assemble(question, **HERE, device_id=device).report.topics


def test_a_question_is_about_the_page_that_is_open(pipeline: ContextPipeline) -> None:
    pipeline.knowledge.heartbeat(device_id="phone", path="/docs/prisma", **ADA)

    context = pipeline.assemble("How do I upgrade it?", **HERE, device_id="phone")

    assert VERSION in context.messages[-1].text


def test_a_question_is_about_the_person_whose_page_is_open(pipeline: ContextPipeline) -> None:
    pipeline.knowledge.heartbeat(device_id="phone", path="/people/sarah", **ADA)

    context = pipeline.assemble("When did we meet last?", **HERE, device_id="phone")

    assert context.report.entities == ("Sarah",)


def test_a_page_shows_what_the_application_declares(pipeline: ContextPipeline) -> None:
    pipeline.knowledge.heartbeat(device_id="phone", path="/docs/kafka", **ADA)
    declared: Any = {"topics": [Topic(label="Kafka", context="Three brokers.")]}

    context = pipeline.assemble("How many?", **HERE, device_id="phone", settings=declared)

    assert context.report.topics == ("Kafka",)


def test_what_the_message_names_comes_before_what_is_open(pipeline: ContextPipeline) -> None:
    pipeline.knowledge.heartbeat(device_id="phone", path="/docs/prisma", **ADA)

    assert topics_of(pipeline, "Does Django do that, too?") == ("Django", "Prisma")


@pytest.mark.parametrize("question", ["Thank you!", "ok", "Vielen Dank!"])
def test_a_courtesy_is_not_about_the_page_that_is_open(
    pipeline: ContextPipeline, question: str
) -> None:
    pipeline.knowledge.heartbeat(device_id="phone", path="/docs/prisma", **ADA)

    assert topics_of(pipeline, question) == ()


def test_a_question_without_a_telling_word_is_about_the_page(pipeline: ContextPipeline) -> None:
    pipeline.knowledge.heartbeat(device_id="phone", path="/docs/prisma", **ADA)

    assert topics_of(pipeline, "What is this?") == ("Prisma",)


def test_another_device_does_not_count(pipeline: ContextPipeline) -> None:
    pipeline.knowledge.heartbeat(device_id="phone", path="/docs/prisma", **ADA)

    assert topics_of(pipeline, "How do I upgrade it?", device="laptop") == ()


def test_another_page_does_not_count(pipeline: ContextPipeline) -> None:
    pipeline.knowledge.heartbeat(device_id="phone", path="/docs/prisma", **ADA)
    pipeline.knowledge.heartbeat(device_id="phone", path="/home", **ADA)

    assert topics_of(pipeline, "How do I upgrade it?") == ()


def test_a_device_that_has_gone_silent_does_not_count(
    pipeline: ContextPipeline, clock: Clock
) -> None:
    pipeline.knowledge.heartbeat(device_id="phone", path="/docs/prisma", **ADA)
    clock.now += timedelta(minutes=3)

    assert topics_of(pipeline, "How do I upgrade it?") == ()
