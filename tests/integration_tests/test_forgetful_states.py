"""Runs whose state has nothing of what is stored, as after a restart without a persistent checkpointer."""

import json
import logging
from collections.abc import Callable, Mapping
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
from tests.log_contract import texts as words

SCOPE = {"user_id": "ada", "conversation_id": "t1"}
CONFIG: dict[str, Any] = {"configurable": {"thread_id": "t1", "user_id": "ada"}}


class Process:
    own: Mapping[str, Any] = MappingProxyType({})

    def __init__(self, store: InMemoryStore, saver: InMemorySaver | None = None) -> None:
        self.pipeline = ContextPipeline({"max_context_tokens": 4_000, "learn": False}, store=store)
        self.options: dict[str, Any] = {"checkpointer": saver or InMemorySaver(), **self.own}

    def failures(self) -> list[str]:
        report = self.pipeline.engine.recent.last.report()
        assert report is not None
        return list(report.failures)

    def stored(self) -> list[str]:
        return words(self.pipeline.get_messages(**SCOPE))


class Middleware(Process):
    def ask(self, said: str, answer: str, *others: BaseMessage) -> list[BaseMessage]:
        model = scripted(answer)
        middleware = ContextBudgetMiddleware(self.pipeline, recall_tool=False)
        agent = agent_of(model, middleware, **self.options)
        agent.invoke({"messages": [*others, HumanMessage(said)]}, CONFIG)
        return model.seen[0]


class WithoutIds(Middleware):
    own = MappingProxyType({"state_schema": ListedState})


class NewestAlone(Middleware):
    own = MappingProxyType({"checkpointer": None})


class Synced(Process):
    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.messages: list[BaseMessage] = []

    def ask(self, said: str, answer: str) -> list[BaseMessage]:
        self.pipeline.sync(self.messages, **SCOPE)
        context = self.pipeline.assemble(said, **SCOPE)
        self.messages += [HumanMessage(said), AIMessage(answer)]
        self.pipeline.sync(self.messages, **SCOPE)
        seen: list[BaseMessage] = context.messages
        return seen


WAYS: dict[str, Callable[..., Any]] = {
    "middleware": Middleware,
    "middleware, no ids": WithoutIds,
    "middleware, newest message alone": NewestAlone,
    "sync": Synced,
}
every_way = pytest.mark.parametrize("way", WAYS.values(), ids=list(WAYS))
REPORTING = [way for name, way in WAYS.items() if name != "sync"]


@every_way
def test_a_process_that_has_forgotten_goes_on_from_the_store(way: Callable[..., Any]) -> None:
    store = InMemoryStore()
    said = list[str]()
    for process in range(3):
        agent = way(store)
        for turn in range(3):
            exchange = [f"Question {process}{turn}?", f"Answer {process}{turn}."]
            assert words(agent.ask(*exchange)) == [*said, exchange[0]]
            said += exchange
            assert agent.stored() == said


@pytest.mark.parametrize("way", REPORTING)
def test_that_it_goes_on_from_the_store_is_in_the_report_and_once_in_the_log(
    way: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "langchain_ctxbudget")
    store = InMemoryStore()
    first = way(store)
    told = []
    for agent in (first, first, second := way(store), second):
        agent.ask("One?", "Yes.")
        told.append([text for text in agent.failures() if "none of the" in text])
    newest_alone = way is NewestAlone
    assert [len(texts) for texts in told] == [0, newest_alone, 1, newest_alone]
    assert "none of the 4 messages that are stored" in told[2][0]
    logged = [
        r for r in caplog.records if r.levelno == logging.INFO and "none of the" in r.getMessage()
    ]
    assert len(logged) == 1 + newest_alone


@pytest.mark.parametrize("way", REPORTING)
def test_a_restart_that_goes_on_from_the_store_warns_of_nothing(
    way: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    store = InMemoryStore()
    for _ in range(2):
        way(store).ask("One?", "Yes.")
    assert [
        record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING
    ] == []


# -- What a state has lost


def archived(pipeline: ContextPipeline) -> list[str]:
    values = [json.loads(line)["value"] for line in pipeline.export_user(user_id="ada")]
    return sorted(value["message"]["data"]["content"] for value in values if value.get("archived"))


def state(*numbers: int, ids: bool = True) -> list[BaseMessage]:
    kinds: tuple[type[BaseMessage], ...] = (HumanMessage, AIMessage)
    return [
        kind(
            f"{kind.__name__[0].lower().replace('h', 'q')}{n}",
            id=f"{kind.__name__}{n}" if ids else None,
        )
        for n in numbers
        for kind in kinds
    ]


def test_what_a_state_has_lost_is_archived_the_first_message_too(call: Call) -> None:
    for ids in (True, False):
        pipeline = ContextPipeline({"learn": False}, store=InMemoryStore())
        call(pipeline, "sync", state(0, 1, 2, ids=ids), **SCOPE)
        call(pipeline, "sync", state(0, 1, 2, ids=ids)[1:4], **SCOPE)
        assert words(call(pipeline, "get_messages", **SCOPE)) == ["a0", "q1", "a1"]
        assert archived(pipeline) == ["a2", "q0", "q2"]


@pytest.mark.parametrize("restarted", [False, True])
def test_an_agent_s_state_that_was_emptied_has_lost_its_messages(*, restarted: bool) -> None:
    store = InMemoryStore()
    saver = InMemorySaver()
    agent = Middleware(store, saver)
    agent.ask("q0", "a0")
    agent.ask("q1", "a1")
    agent = Middleware(store, saver) if restarted else agent
    assert words(agent.ask("q2", "a2", RemoveMessage(REMOVE_ALL_MESSAGES))) == ["q2"]
    assert agent.stored() == ["q2", "a2"]
    assert agent.failures() == []
    assert archived(agent.pipeline) == ["a0", "a1", "q0", "q1"]


# -- Callers that keep no ids: every turn brings the whole conversation again


def human(number: int) -> dict[str, str]:
    return {
        "role": "user",
        "content": f"Tell me something about subject {number}, its makers and its history.",
    }


def ai(number: int) -> dict[str, str]:
    return {
        "role": "assistant",
        "content": f"Subject {number} is broad; here are {number + 3} remarks on its makers.",
    }


def whole(turns: int) -> list[dict[str, str]]:
    return [message for n in range(turns) for message in (human(n), ai(n))] + [human(turns)]


def unnamed() -> ContextPipeline:
    return ContextPipeline({"max_context_tokens": 700, "learn": False}, store=InMemoryStore())


def prompt(pipeline: ContextPipeline, messages: Any) -> tuple[list[BaseMessage], dict[str, Any]]:
    state = build_context_graph(pipeline, report="texts").invoke({"messages": messages}, CONFIG)
    return state["llm_input_messages"], state["context_report"]


def test_prompts_are_those_of_messages_with_ids() -> None:
    pipeline = unnamed()
    other = ContextPipeline(pipeline.settings, store=InMemoryStore())
    for turn in range(20):
        named = [
            m.model_copy(update={"id": f"m{n}"})
            for n, m in enumerate(convert_to_messages(whole(turn)))
        ]
        (without, report), (with_ids, expected) = (
            prompt(pipeline, whole(turn)),
            prompt(other, named),
        )
        assert words(without) == words(with_ids)
        assert report["stability"] == expected["stability"]


def test_an_edit_and_another_way_on_from_the_middle_are_stored_as_they_are_now() -> None:
    pipeline = unnamed()
    prompt(pipeline, whole(9))
    before = pipeline.get_messages(**SCOPE)
    changed = whole(9)
    changed[8] = {"role": "user", "content": "Forget what I asked there."}
    branch = [
        *whole(4),
        {"role": "assistant", "content": "Something else."},
        {"role": "user", "content": "And now?"},
    ]
    for now in (changed, branch):
        prompt(pipeline, now)
        assert words(pipeline.get_messages(**SCOPE)) == [message["content"] for message in now[:-1]]
    assert [message.id for message in pipeline.get_messages(**SCOPE)[:8]] == [
        message.id for message in before[:8]
    ]
