"""Callers that keep no ids: every turn brings the whole conversation again, and each message gets a new id."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, convert_to_messages
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import ContextPipeline, build_context_graph
from langchain_ctxbudget.middleware import ContextBudgetMiddleware
from langchain_ctxbudget.stores.message_log import MESSAGES
from langchain_ctxbudget.stores.records import Scope
from tests.integration_tests.conftest import Call
from tests.integration_tests.test_middleware import agent_of, scripted

SCOPE = {"user_id": "ada", "conversation_id": "t1"}
CONFIG: dict[str, Any] = {"configurable": {"thread_id": "t1", "user_id": "ada"}}
TURNS = 20
Given = Sequence[dict[str, str]]


def human(number: int) -> dict[str, str]:
    return {"role": "user", "content": f"Tell me something about subject {number}, its makers and its history."}


def ai(number: int) -> dict[str, str]:
    return {"role": "assistant", "content": f"Subject {number} is broad; here are {number + 3} remarks on its makers."}


def whole(turns: int) -> list[dict[str, str]]:
    """Everything up to a turn's question."""
    return [message for n in range(turns) for message in (human(n), ai(n))] + [human(turns)]


@dataclass
class Service:
    """An agent without a memory of its own."""

    run: Callable[[Any, Any], dict[str, Any]]
    store: InMemoryStore = field(default_factory=InMemoryStore)
    pipeline: ContextPipeline = field(init=False)

    def __post_init__(self) -> None:
        self.pipeline = ContextPipeline({"max_context_tokens": 700, "learn": False}, store=self.store)

    def prompt(self, messages: Any) -> tuple[list[BaseMessage], dict[str, Any]]:
        state = self.run(build_context_graph(self.pipeline), {"messages": messages})
        return state["llm_input_messages"], state["report"]

    def answer(self, messages: Given, answer: dict[str, str]) -> dict[str, Any]:
        middleware = ContextBudgetMiddleware(self.pipeline, recall_tool=False)
        return self.run(agent_of(scripted(answer["content"]), middleware, checkpointer=None), {"messages": messages})

    def records(self) -> int:
        return len(self.store.search(Scope("ada", "t1").namespace(MESSAGES), limit=10_000))

    def stored(self) -> list[BaseMessage]:
        return self.pipeline.get_messages(**SCOPE)


@pytest.fixture(params=["sync", "async"])
def service(request: pytest.FixtureRequest) -> Service:
    def asynchronous(agent: Any, given: Any) -> dict[str, Any]:
        return dict(asyncio.run(agent.ainvoke(given, CONFIG)))

    def synchronous(agent: Any, given: Any) -> dict[str, Any]:
        return dict(agent.invoke(given, CONFIG))

    return Service(synchronous if request.param == "sync" else asynchronous)


def texts(messages: Sequence[BaseMessage]) -> list[str]:
    return [message.text for message in messages]


def test_the_graph_stores_every_message_once(service: Service) -> None:
    for turn in range(TURNS):
        service.prompt(whole(turn))
    assert service.records() == len(service.stored()) == 2 * (TURNS - 1)


def test_the_middleware_stores_every_message_once(service: Service) -> None:
    for turn in range(TURNS):
        service.answer(whole(turn), ai(turn))
    assert service.records() == len(service.stored()) == 2 * TURNS


def test_prompts_are_those_of_messages_with_ids(service: Service) -> None:
    other = Service(service.run)
    for turn in range(TURNS):
        named = [m.model_copy(update={"id": f"m{n}"}) for n, m in enumerate(convert_to_messages(whole(turn)))]
        (without, report), (with_ids, expected) = service.prompt(whole(turn)), other.prompt(named)
        assert texts(without) == texts(with_ids)
        assert report["stability"] == expected["stability"]


def test_what_was_edited_in_the_middle_is_stored_as_it_is_now(service: Service) -> None:
    service.prompt(whole(9))
    changed = whole(9)
    changed[8] = {"role": "user", "content": "Forget what I asked there."}
    service.prompt(changed)
    assert texts(service.stored()) == [message["content"] for message in changed[:-1]]


def test_an_edit_in_the_middle_leaves_what_stands_before_it(service: Service) -> None:
    service.prompt(whole(9))
    before = service.stored()
    changed = whole(9)
    changed[8] = {"role": "user", "content": "Forget what I asked there."}
    service.prompt(changed)
    assert [message.id for message in service.stored()[:8]] == [message.id for message in before[:8]]


def test_another_way_on_from_the_middle_leaves_what_stands_before_it(service: Service) -> None:
    service.prompt(whole(9))
    before = service.stored()
    branch = [*whole(4), {"role": "assistant", "content": "Something else."}, {"role": "user", "content": "And now?"}]
    service.prompt(branch)
    assert texts(service.stored()) == [message["content"] for message in branch[:-1]]
    assert [message.id for message in service.stored()[:9]] == [message.id for message in before[:9]]


def test_a_fork_is_recognized_as_well(service: Service) -> None:
    service.prompt(whole(9))
    service.pipeline.fork(**SCOPE, new_conversation_id="t2")
    fork = {"configurable": {"thread_id": "t2", "user_id": "ada"}}
    build_context_graph(service.pipeline).invoke({"messages": whole(9)}, fork)
    assert [m.id for m in service.pipeline.get_messages(user_id="ada", conversation_id="t2")] == [
        m.id for m in service.stored()
    ]


def test_pins_stay(service: Service) -> None:
    service.prompt(whole(9))
    service.pipeline.pin([str(service.stored()[0].id)], **SCOPE)
    for turn in range(10, TURNS):
        prompt, _ = service.prompt(whole(turn))
    assert human(0)["content"] in texts(prompt)


def test_a_message_that_is_left_out_is_the_only_one_that_goes(service: Service) -> None:
    service.prompt(whole(9))
    kept = [message.id for place, message in enumerate(service.stored()) if place not in (4, 5)]
    service.prompt([message for place, message in enumerate(whole(9)) if place not in (4, 5)])
    assert [message.id for message in service.stored()] == kept


def fresh(*said: str) -> list[BaseMessage]:
    """Messages as an agent's state has them whose caller gave no ids."""
    return [HumanMessage(text, id=str(uuid4())) for text in said]


def synced(call: Call, *states: list[BaseMessage]) -> tuple[ContextPipeline, list[list[str]]]:
    pipeline = ContextPipeline({"learn": False}, store=InMemoryStore())
    return pipeline, [call(pipeline, "sync", state, **SCOPE) for state in states]


def test_sync_tells_the_ids_that_messages_go_by(call: Call) -> None:
    pipeline, (first, second) = synced(call, fresh("a", "b"), fresh("a", "b", "c"))
    assert second[:2] == first
    assert second == [message.id for message in pipeline.get_messages(**SCOPE)]


def test_what_is_said_again_is_recognized_in_its_order(call: Call) -> None:
    _, (first, second) = synced(call, fresh("ok", "a", "ok", "b"), fresh("a", "ok", "b"))
    assert second == first[1:]


def test_what_is_said_more_often_than_before_is_new(call: Call) -> None:
    _, (first, second) = synced(call, fresh("ok"), fresh("ok", "ok"))
    assert second[0] == first[0]
    assert second[1] != first[0]


def test_the_same_words_of_somebody_else_are_another_message(call: Call) -> None:
    _, (first, second) = synced(call, [HumanMessage("ok", id="h")], [AIMessage("ok", id="a")])
    assert (first, second) == (["h"], ["a"])


def test_messages_with_known_ids_stay_what_they_are(call: Call) -> None:
    old, new = fresh("a", "b", "c"), fresh("a", "b")
    _, (first, second) = synced(call, old, [new[0], old[1], *new[1:], old[2]])
    assert second == [first[0], first[1], new[1].id, first[2]]


def test_an_id_that_was_exchanged_for_another_place_is_no_earlier_message(call: Call) -> None:
    old, new = fresh("a", "b"), fresh("a")
    _, (first, second) = synced(call, old, [old[1], *new])
    assert second == [first[1], new[0].id]
