"""A model that is not to be had for a while.

It reads every message once it is back, and nothing else waits for it.
"""

import copy
import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from langchain_core.messages import HumanMessage
from langchain_openai import ChatOpenAI
from langgraph.store.base import BaseStore
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import ContextPipeline
from tests.doubles.server import Fault, OpenAIServer, refuses, says
from tests.integration_tests.learning_models import Reader, asks_to_learn, new_messages, read
from tests.integration_tests.plain_reader import reading_plainly

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", autouse=True)
def plain_reader() -> Iterator[None]:
    with reading_plainly():
        yield


ADA: Any = {"user_id": "ada"}
HERE: Any = {"user_id": "ada", "conversation_id": "c1"}
THERE: Any = {"user_id": "ada", "conversation_id": "c2"}
NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
FIRST_RETRY = "everything from message 1 on again, not before 2026-03-01 12:01:00+00:00"
PADDING = " It is good." * 10


class RefusedError(Exception):
    status_code = 400


class World:
    """A clock and a model that can be switched off, over one store."""

    def __init__(self) -> None:
        self.now = NOW
        self.store = InMemoryStore()
        self.fault: Exception | str | None = ConnectionError("no route")
        self.model = Reader(answer=self.answer)
        self.understood: list[str] = []
        """The new messages of every prompt that the model has answered, in order."""
        self.attempts = 0

    def answer(self, prompt: str) -> str:
        if not asks_to_learn(prompt):
            return read(prompt)
        self.attempts += 1
        if isinstance(self.fault, Exception):
            raise self.fault
        if self.fault is not None:
            return self.fault
        self.understood += [text for _, text in new_messages(prompt)]
        return read(prompt)

    @contextmanager
    def opened(self, store: BaseStore | None = None, **settings: Any) -> Iterator[ContextPipeline]:
        pipeline = ContextPipeline(
            settings, store=store or self.store, summary_model=self.model, clock=lambda: self.now
        )
        with pipeline:
            yield pipeline

    def recover(self, after: timedelta = HOUR) -> None:
        """Lets time pass; the model is to be had again."""
        self.fault = None
        self.now += after

    def failures(self, pipeline: ContextPipeline) -> str:
        return "\n".join(pipeline.assemble("Hi", **HERE).report.failures)


def statement(number: int) -> str:
    return f"I like thing{number}.{PADDING}"


def statements(numbers: Iterable[int]) -> list[str]:
    return [statement(number) for number in numbers]


def add(pipeline: ContextPipeline, numbers: Iterable[int], where: Any = HERE) -> None:
    """Adds a statement after the other, and waits for what is learned from each."""
    for number in numbers:
        message = HumanMessage(statement(number), id=f"m{number}")
        pipeline.add_messages([message], **where)
        assert pipeline.flush(30)


def ask(pipeline: ContextPipeline, where: Any = HERE) -> None:
    """Makes a prompt, and waits for what is learned at its occasion."""
    pipeline.assemble("Hi", **where)
    assert pipeline.flush(30)


def end_session(pipeline: ContextPipeline) -> None:
    pipeline.end_session(**HERE)
    assert pipeline.flush(30)


def texts(pipeline: ContextPipeline) -> set[str]:
    return {fact.text for fact in pipeline.knowledge.list_facts(**ADA)}


def by_model(pipeline: ContextPipeline) -> set[str]:
    return {fact.text for fact in pipeline.knowledge.list_facts(**ADA) if fact.made_by != "rules"}


@pytest.fixture
def world() -> World:
    return World()


def test_what_a_model_could_not_read_is_read_later_in_order(world: World) -> None:
    with world.opened() as pipeline:
        add(pipeline, range(10))
        world.recover(after=5 * HOUR)
        add(pipeline, [10])

    assert world.understood == statements(range(11))


def test_rules_learn_while_the_model_is_not_to_be_had(world: World) -> None:
    with world.opened() as pipeline:
        pipeline.add_messages([HumanMessage("I live in Lisbon.")], **HERE)
        add(pipeline, range(9))
        assert '"I live in Lisbon."' in texts(pipeline)
        assert by_model(pipeline) == set()


def test_what_rules_learned_meanwhile_goes_when_the_model_has_read(world: World) -> None:
    with world.opened() as pipeline:
        home = HumanMessage("I live in Lisbon.")
        colour = HumanMessage("My favourite colour is red.")
        pipeline.add_messages([home, colour], **HERE)
        add(pipeline, range(8))
        world.recover()
        add(pipeline, [8])
        assert '"I live in Lisbon."' not in texts(pipeline)
        assert "Favourite colour is red" in by_model(pipeline)
        assert texts(pipeline) == by_model(pipeline)


def test_a_fact_kept_by_hand_outlives_the_models_reading(world: World) -> None:
    with world.opened() as pipeline:
        pipeline.add_messages([HumanMessage("I live in Lisbon.")], **HERE)
        add(pipeline, range(9))
        [home] = [fact for fact in pipeline.knowledge.list_facts(**ADA) if "Lisbon" in fact.text]
        pipeline.knowledge.pin(home.id, **ADA)
        world.recover()
        add(pipeline, [9])
        assert '"I live in Lisbon."' in texts(pipeline)


def test_an_outage_of_hours_costs_few_requests(world: World) -> None:
    with world.opened() as pipeline:
        for number in range(300):
            add(pipeline, [number])
            world.now += MINUTE

    # Two each time: after 1, 2, 4, 8, 16 and 32 minutes, then every hour of five.
    assert world.attempts // 2 <= 11


def test_a_long_outage_is_caught_up_with_a_few_messages_at_a_time(world: World) -> None:
    with world.opened() as pipeline:
        add(pipeline, range(100))
        world.recover(after=2 * HOUR)
        before = world.attempts

        add(pipeline, [100])

    assert world.understood == statements(range(101))
    assert world.attempts - before == 4, "of 30, 30, 30 and 11 messages"


def test_an_outage_in_the_middle_of_catching_up_goes_on_from_there(world: World) -> None:
    def answer_once(prompt: str) -> str:
        world.fault = None
        if asks_to_learn(prompt):
            world.model.answer = answer_no_more
        return world.answer(prompt)

    def answer_no_more(prompt: str) -> str:
        world.fault = ConnectionError("no route")
        return world.answer(prompt)

    with world.opened() as pipeline:
        add(pipeline, range(80))
        world.now += 2 * HOUR
        world.model.answer = answer_once
        add(pipeline, [80])
        assert world.understood == statements(range(30))

        world.model.answer = world.answer
        world.recover(after=2 * HOUR)
        add(pipeline, [81])

    assert world.understood == statements(range(82))


@pytest.mark.parametrize(
    ("waits", "at_once"), [(timedelta(0), False), (5 * HOUR, True)], ids=["at once", "hours later"]
)
def test_a_new_process_reads_what_the_old_one_could_not(
    world: World, waits: timedelta, at_once: bool
) -> None:
    with world.opened() as pipeline:
        add(pipeline, range(10))
    world.recover(after=waits)

    with world.opened(copy.deepcopy(world.store)) as new_process:
        add(new_process, [10])
        assert bool(world.understood) is at_once
        world.now += HOUR
        add(new_process, range(11, 16))
        end_session(new_process)

    assert world.understood == statements(range(16))


def test_the_first_prompt_of_a_new_process_tells_what_waits(world: World) -> None:
    with world.opened() as pipeline:
        add(pipeline, range(10))
    with world.opened(copy.deepcopy(world.store)) as new_process:
        assert FIRST_RETRY in world.failures(new_process)


def test_a_prompt_of_a_new_process_is_enough_to_read_it(world: World) -> None:
    with world.opened() as pipeline:
        add(pipeline, range(10))
    world.recover()
    with world.opened(copy.deepcopy(world.store)) as new_process:
        ask(new_process)
        assert world.failures(new_process) == ""

    assert world.understood == statements(range(10))


def test_a_second_pipeline_tells_what_waits_and_when_it_is_over(world: World) -> None:
    with world.opened() as pipeline, world.opened() as other:
        add(pipeline, range(10))
        assert "again, not before" in world.failures(other)
        world.recover()
        add(pipeline, [10])
        assert world.failures(other) == ""

    assert world.understood == statements(range(11))


def test_a_new_process_reads_it_when_the_user_speaks_elsewhere(world: World) -> None:
    with world.opened() as pipeline:
        add(pipeline, range(10))
    world.recover()
    with world.opened(copy.deepcopy(world.store)) as new_process:
        add(new_process, [50], THERE)
        assert new_process.flush(30)

    assert world.understood == statements(range(10))


def test_a_prompt_of_another_conversation_is_enough_to_read_it(world: World) -> None:
    with world.opened() as pipeline:
        add(pipeline, range(10))
        world.recover()
        ask(pipeline, THERE)

    assert world.understood == statements(range(10))


def test_a_short_session_that_ended_in_an_outage_is_read(world: World) -> None:
    with world.opened() as pipeline:
        add(pipeline, range(2))
        end_session(pipeline)
        assert world.attempts == 2
        world.recover()
        ask(pipeline, THERE)

    assert world.understood == statements([0, 1])


def test_the_end_of_a_session_does_not_ask_before_its_time(world: World) -> None:
    with world.opened() as pipeline:
        add(pipeline, range(10))
        before = world.attempts
        for _ in range(5):
            end_session(pipeline)
        assert world.attempts == before


def test_the_report_says_what_failed_and_until_when_it_waits(world: World) -> None:
    with world.opened() as pipeline:
        add(pipeline, range(10))

        failures = world.failures(pipeline)

    assert "ConnectionError" in failures
    assert FIRST_RETRY in failures


def test_the_status_says_until_when_it_waits(world: World) -> None:
    with world.opened() as pipeline:
        add(pipeline, range(10))

        assert pipeline.status(**HERE).extraction_waits_until == NOW + MINUTE


def test_nothing_is_told_of_an_outage_that_is_over(world: World) -> None:
    with world.opened() as pipeline:
        add(pipeline, range(10))
        assert world.failures(pipeline) != ""
        world.recover()
        add(pipeline, [10])

        assert pipeline.status(**HERE).extraction_waits_until is None
        assert world.failures(pipeline) == ""


# What the model never can read


def fail_until_given_up(world: World, pipeline: ContextPipeline) -> str:
    """Returns the failures of the prompt that tells of it, or of the last one."""
    add(pipeline, range(10))
    for number in range(10, 16):
        world.now += HOUR
        add(pipeline, [number])
        failures = world.failures(pipeline)
        if "given up" in failures:
            break
    return failures


every_fault = pytest.mark.parametrize(
    "fault", ["no JSON", RefusedError()], ids=["a useless reply", "a refusal"]
)


@every_fault
def test_what_the_model_never_can_read_is_given_up_and_told(
    world: World, fault: Exception | str
) -> None:
    world.fault = fault
    with world.opened() as pipeline:
        failures = fail_until_given_up(world, pipeline)

    assert "given up after 6 times, and rules have learned instead" in failures


@every_fault
def test_what_was_given_up_is_not_read_but_what_comes_later(
    world: World, fault: Exception | str
) -> None:
    world.fault = fault
    with world.opened() as pipeline:
        fail_until_given_up(world, pipeline)
        world.recover()
        add(pipeline, range(30, 40))

    assert world.understood[-1] == statement(39)
    assert statement(0) not in world.understood


def test_what_passes_is_never_given_up(world: World) -> None:
    with world.opened() as pipeline:
        add(pipeline, range(10))
        for _ in range(18):  # three times as often as what is given up
            world.now += HOUR
            ask(pipeline)
        world.recover()
        ask(pipeline)

    assert world.understood == statements(range(10))


def test_an_edit_while_it_waits_is_what_the_model_reads(world: World) -> None:
    with world.opened() as pipeline:
        pipeline.add_messages([HumanMessage("My favourite colour is red.", id="colour")], **HERE)
        add(pipeline, range(9))
        edited = HumanMessage("My favourite colour is teal.", id="colour")
        pipeline.edit_message("colour", edited, **HERE)
        assert pipeline.flush(30)
        assert "Favourite colour is red" not in texts(pipeline)
        world.recover()
        add(pipeline, [9])
        assert "Favourite colour is teal" in by_model(pipeline)
        assert len(world.understood) == 11


def test_nothing_waits_once_what_was_unread_is_removed(world: World) -> None:
    world.fault = None
    with world.opened() as pipeline:
        add(pipeline, range(10))
        world.fault = ConnectionError("no route")
        add(pipeline, range(10, 15))
        unread = ["m10", "m11", "m12", "m13", "m14"]
        pipeline.remove_messages(unread, on_removal="forget", **HERE)
        world.recover()
        ask(pipeline)
        assert pipeline.status(**HERE).extraction_waits_until is None
        assert by_model(pipeline) == {f"Likes thing{number}" for number in range(10)}


def test_what_was_forgotten_is_not_read_again(world: World) -> None:
    with world.opened() as pipeline:
        add(pipeline, range(10))
        pipeline.knowledge.clear(**ADA)
        world.recover()
        ask(pipeline)
        assert pipeline.status(**HERE).extraction_waits_until is None

    assert world.understood == []


def test_where_rules_take_over_they_read_what_the_model_did_not(world: World) -> None:
    with world.opened() as pipeline:
        pipeline.add_messages([HumanMessage("I live in Lisbon.")], **HERE)
        add(pipeline, range(9))
    with world.opened(copy.deepcopy(world.store), learn="rules") as new_process:
        add(new_process, range(9, 14))
        assert '"I live in Lisbon."' in texts(new_process)
        assert new_process.status(**HERE).extraction_waits_until is None
        assert "learning" not in world.failures(new_process)


@pytest.mark.allow_hosts(["127.0.0.1"])
def test_two_server_errors_within_milliseconds_lose_nothing(world: World) -> None:
    understood: list[str] = []

    def answer(body: Any) -> Any:
        prompt = "\n".join(str(message["content"]) for message in body["messages"])
        understood.extend(text for _, text in new_messages(prompt))
        return says(json.dumps({"facts": [], "topics": [], "entities": []}))

    with OpenAIServer(answer) as server:
        server.fault = refuses(500)
        model = ChatOpenAI(
            model="gpt-4o-mini", base_url=server.url, api_key="not-used", max_retries=0
        )
        with ContextPipeline(
            store=world.store, summary_model=model, clock=lambda: world.now
        ) as pipeline:
            add(pipeline, range(10))
            understood.clear()  # it was asked, and failed
            server.fault = Fault()
            world.now += 5 * HOUR
            add(pipeline, [10])

    assert understood == statements(range(11))
