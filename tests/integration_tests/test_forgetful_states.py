"""A run whose state has nothing of what is stored goes on from the store.

As after a restart without a persistent checkpointer, or from a caller that keeps no ids.
"""

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import pytest
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    RemoveMessage,
    convert_to_messages,
)
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph.message import REMOVE_ALL_MESSAGES
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import ContextPipeline, build_context_graph
from langchain_ctxbudget.middleware import ContextBudgetMiddleware
from tests.integration_tests.agents import ListedState, agent_of, scripted
from tests.integration_tests.conftest import Call
from tests.log_contract import texts

SCOPE = {"user_id": "ada", "conversation_id": "t1"}
CONFIG: dict[str, Any] = {"configurable": {"thread_id": "t1", "user_id": "ada"}}


class Process:
    """A process over a store that outlives it."""

    own_options: Mapping[str, Any] = MappingProxyType({})

    def __init__(self, store: InMemoryStore, saver: InMemorySaver | None = None) -> None:
        self.pipeline = ContextPipeline({"max_context_tokens": 4_000, "learn": False}, store=store)
        checkpointer = saver or InMemorySaver()
        self.options: dict[str, Any] = {"checkpointer": checkpointer, **self.own_options}

    def failures(self) -> list[str]:
        """Returns the failures of the last prompt."""
        report = self.pipeline.last_report(**SCOPE)
        assert report is not None
        return list(report.failures)

    def notes(self) -> list[str]:
        """Returns what the last report says of messages that the state did not have."""
        return [failure for failure in self.failures() if "none of the" in failure]

    def stored(self) -> list[str]:
        return texts(self.pipeline.get_messages(**SCOPE))


class Middleware(Process):
    """An agent with the middleware."""

    def ask(self, question: str, answer: str, *others: BaseMessage) -> list[BaseMessage]:
        model = scripted(answer)
        middleware = ContextBudgetMiddleware(self.pipeline, recall_tool=False)
        agent = agent_of(model, middleware, **self.options)
        agent.invoke({"messages": [*others, HumanMessage(question)]}, CONFIG)
        return model.seen[0]


class WithoutIds(Middleware):
    """An agent whose state gives messages no ids."""

    own_options = MappingProxyType({"state_schema": ListedState})


class NewestAlone(Middleware):
    """An agent without a checkpointer: its state has the newest message alone."""

    own_options = MappingProxyType({"checkpointer": None})


class Synced(Process):
    """A caller that syncs its own list of messages."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.messages: list[BaseMessage] = []

    def ask(self, question: str, answer: str) -> list[BaseMessage]:
        self.pipeline.sync(self.messages, **SCOPE)
        prompt: list[BaseMessage] = self.pipeline.assemble(question, **SCOPE).messages
        self.messages += [HumanMessage(question), AIMessage(answer)]
        self.pipeline.sync(self.messages, **SCOPE)
        return prompt


@pytest.mark.parametrize("way", [Middleware, WithoutIds, NewestAlone, Synced])
def test_a_process_that_has_forgotten_goes_on_from_the_store(way: Any) -> None:
    store = InMemoryStore()
    said = []
    for process in range(3):
        agent = way(store)
        for turn in range(3):
            question = f"Question {process}{turn}?"
            answer = f"Answer {process}{turn}."
            assert texts(agent.ask(question, answer)) == [*said, question]
            said += [question, answer]
            assert agent.stored() == said


def notes_of_two_processes(way: Any) -> list[list[str]]:
    """Returns the notes on four prompts: two of one process, and two of another."""
    store = InMemoryStore()
    notes = []
    for _ in range(2):
        agent = way(store)
        for _ in range(2):
            agent.ask("One?", "Yes.")
            notes.append(agent.notes())
    return notes


@pytest.mark.parametrize(
    ("way", "counts"),
    [
        (Middleware, [0, 0, 1, 0]),
        (WithoutIds, [0, 0, 1, 0]),
        (NewestAlone, [0, 1, 1, 1]),
    ],
)
def test_that_a_run_goes_on_from_the_store_is_in_its_report(way: Any, counts: list[int]) -> None:
    notes = notes_of_two_processes(way)
    assert [len(each) for each in notes] == counts
    assert "none of the 4 messages that are stored" in notes[2][0]


@pytest.mark.parametrize(("way", "count"), [(Middleware, 1), (WithoutIds, 1), (NewestAlone, 2)])
def test_that_a_process_goes_on_from_the_store_is_logged_once(
    way: Any, count: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "langchain_ctxbudget")
    notes_of_two_processes(way)
    infos = [each.getMessage() for each in caplog.records if each.levelno == logging.INFO]
    assert len([message for message in infos if "none of the" in message]) == count


@pytest.mark.parametrize("way", [Middleware, WithoutIds, NewestAlone])
def test_a_restart_that_goes_on_from_the_store_warns_of_nothing(
    way: Any, caplog: pytest.LogCaptureFixture
) -> None:
    store = InMemoryStore()
    way(store).ask("One?", "Yes.")
    way(store).ask("One?", "Yes.")
    warnings = [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]
    assert warnings == []


# -- What a state has lost


def archived(pipeline: ContextPipeline) -> list[str]:
    """Returns the sorted texts of the messages that are archived."""
    values = [json.loads(line)["value"] for line in pipeline.export_user(user_id="ada")]
    return sorted(value["message"]["data"]["content"] for value in values if value.get("archived"))


WITH_IDS = [
    HumanMessage("q0", id="q0"),
    AIMessage("a0", id="a0"),
    HumanMessage("q1", id="q1"),
    AIMessage("a1", id="a1"),
    HumanMessage("q2", id="q2"),
    AIMessage("a2", id="a2"),
]
WITHOUT_IDS = [
    HumanMessage("q0"),
    AIMessage("a0"),
    HumanMessage("q1"),
    AIMessage("a1"),
    HumanMessage("q2"),
    AIMessage("a2"),
]


@pytest.mark.parametrize("state", [WITH_IDS, WITHOUT_IDS], ids=["ids", "no ids"])
def test_what_a_state_has_lost_is_archived(call: Call, state: list[BaseMessage]) -> None:
    pipeline = ContextPipeline({"learn": False}, store=InMemoryStore())
    call(pipeline, "sync", copies(state), **SCOPE)
    call(pipeline, "sync", copies(state[1:4]), **SCOPE)
    assert texts(call(pipeline, "get_messages", **SCOPE)) == ["a0", "q1", "a1"]
    assert archived(pipeline) == ["a2", "q0", "q2"]


def copies(messages: list[BaseMessage]) -> list[BaseMessage]:
    return [message.model_copy() for message in messages]


@dataclass
class Emptied:
    """What an agent sees, keeps and says after its state was emptied."""

    prompt: list[str]
    stored: list[str]
    failures: list[str]
    archived: list[str]


@pytest.fixture(scope="module", params=[False, True], ids=["same process", "restarted"])
def emptied(request: pytest.FixtureRequest) -> Emptied:
    store = InMemoryStore()
    saver = InMemorySaver()
    agent = Middleware(store, saver)
    agent.ask("q0", "a0")
    agent.ask("q1", "a1")
    if request.param:
        agent = Middleware(store, saver)
    prompt = agent.ask("q2", "a2", RemoveMessage(REMOVE_ALL_MESSAGES))
    return Emptied(texts(prompt), agent.stored(), agent.failures(), archived(agent.pipeline))


def test_a_state_that_was_emptied_has_the_new_messages_alone(emptied: Emptied) -> None:
    assert emptied.prompt == ["q2"]
    assert emptied.stored == ["q2", "a2"]


def test_that_a_state_was_emptied_is_no_failure(emptied: Emptied) -> None:
    assert emptied.failures == []


def test_what_an_emptied_state_had_is_archived(emptied: Emptied) -> None:
    assert emptied.archived == ["a0", "a1", "q0", "q1"]


# -- Callers that keep no ids: every turn brings the whole conversation again


def human(number: int) -> dict[str, str]:
    text = f"Tell me something about subject {number}, its makers and its history."
    return {"role": "user", "content": text}


def ai(number: int) -> dict[str, str]:
    text = f"Subject {number} is broad; here are {number + 3} remarks on its makers."
    return {"role": "assistant", "content": text}


def whole(turns: int) -> list[dict[str, str]]:
    """Returns so many turns, and the next question."""
    messages = []
    for number in range(turns):
        messages += [human(number), ai(number)]
    return [*messages, human(turns)]


def with_ids(messages: list[dict[str, str]]) -> list[BaseMessage]:
    converted = convert_to_messages(messages)
    return [
        message.model_copy(update={"id": f"m{number}"}) for number, message in enumerate(converted)
    ]


def small_pipeline() -> ContextPipeline:
    return ContextPipeline({"max_context_tokens": 700, "learn": False}, store=InMemoryStore())


def state_of(pipeline: ContextPipeline, messages: Any) -> dict[str, Any]:
    graph = build_context_graph(pipeline, report="texts")
    return dict(graph.invoke({"messages": messages}, CONFIG))


@dataclass
class TwentyTurns:
    """The states after each turn, of a caller without ids and of one with ids."""

    without_ids: list[dict[str, Any]]
    with_ids: list[dict[str, Any]]


@pytest.fixture(scope="module")
def twenty_turns() -> TwentyTurns:
    first = small_pipeline()
    second = small_pipeline()
    return TwentyTurns(
        [state_of(first, whole(turn)) for turn in range(20)],
        [state_of(second, with_ids(whole(turn))) for turn in range(20)],
    )


@pytest.mark.slow
def test_prompts_are_those_of_messages_with_ids(twenty_turns: TwentyTurns) -> None:
    prompts = [texts(state["llm_input_messages"]) for state in twenty_turns.without_ids]
    assert prompts == [texts(state["llm_input_messages"]) for state in twenty_turns.with_ids]


@pytest.mark.slow
def test_prompts_are_as_stable_as_with_ids(twenty_turns: TwentyTurns) -> None:
    stability = [state["context_report"]["stability"] for state in twenty_turns.without_ids]
    assert stability == [state["context_report"]["stability"] for state in twenty_turns.with_ids]


def edited() -> list[dict[str, str]]:
    """Returns nine turns of which one question is another by now."""
    messages = whole(9)
    messages[8] = {"role": "user", "content": "Forget what I asked there."}
    return messages


BRANCH = [
    *whole(4),
    {"role": "assistant", "content": "Something else."},
    {"role": "user", "content": "And now?"},
]
"""Another way on from the middle."""


@pytest.mark.parametrize("later", [[edited()], [edited(), BRANCH]], ids=["edited", "branched"])
def test_what_was_changed_is_stored_as_it_is_now(later: list[list[dict[str, str]]]) -> None:
    pipeline = small_pipeline()
    state_of(pipeline, whole(9))
    for messages in later:
        state_of(pipeline, messages)
    contents = [message["content"] for message in later[-1][:-1]]
    assert texts(pipeline.get_messages(**SCOPE)) == contents


def test_what_was_not_changed_keeps_its_id() -> None:
    pipeline = small_pipeline()
    state_of(pipeline, whole(9))
    before = pipeline.get_messages(**SCOPE)
    state_of(pipeline, edited())
    state_of(pipeline, BRANCH)
    after = pipeline.get_messages(**SCOPE)
    assert [message.id for message in after[:8]] == [message.id for message in before[:8]]
