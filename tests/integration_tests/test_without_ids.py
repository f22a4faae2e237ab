"""Callers that keep no ids: every turn brings the whole conversation again, and each message gets a new id."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any
from uuid import uuid4

import pytest
from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage, convert_to_messages
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.store.memory import InMemoryStore
from pydantic import Field

from langchain_ctxbudget import ContextPipeline, build_context_graph
from langchain_ctxbudget.history.log import MESSAGES
from langchain_ctxbudget.integrations.middleware import ContextBudgetMiddleware
from langchain_ctxbudget.stores.records import Scope
from tests.integration_tests.agents import ListedState, agent_of, scripted
from tests.integration_tests.conftest import Call

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
        state = self.run(build_context_graph(self.pipeline, report="texts"), {"messages": messages})
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


def test_another_way_on_from_the_middle_leaves_what_stands_before_it(service: Service) -> None:
    service.prompt(whole(9))
    before = service.stored()
    branch = [*whole(4), {"role": "assistant", "content": "Something else."}, {"role": "user", "content": "And now?"}]
    service.prompt(branch)
    assert texts(service.stored()) == [message["content"] for message in branch[:-1]]
    assert [message.id for message in service.stored()[:9]] == [message.id for message in before[:9]]


def test_pins_stay(service: Service) -> None:
    service.prompt(whole(9))
    service.pipeline.pin([str(service.stored()[0].id)], **SCOPE)
    for turn in range(10, TURNS):
        prompt, _ = service.prompt(whole(turn))
    assert human(0)["content"] in texts(prompt)


def fresh(*said: str) -> list[BaseMessage]:
    """Messages as an agent's state has them whose caller gave no ids."""
    return [HumanMessage(text, id=str(uuid4())) for text in said]


def synced(call: Call, *states: list[BaseMessage]) -> tuple[ContextPipeline, list[list[str]]]:
    pipeline = ContextPipeline({"learn": False}, store=InMemoryStore())
    return pipeline, [call(pipeline, "sync", state, **SCOPE) for state in states]


def test_what_is_said_again_is_recognized_in_its_order(call: Call) -> None:
    _, (first, second) = synced(call, fresh("ok", "a", "ok", "b"), fresh("a", "ok", "b"))
    assert second == first[1:]


# -- Agents whose state gives no ids


@tool
def number_of(drawer: str) -> str:
    """The number of a drawer."""
    return f"The number of drawer {drawer} is {Random(drawer).randrange(10**6):06d}."


class Clerk(BaseChatModel):
    """Looks up as many drawers as it is asked for, one after the other, and says what it reads in its prompt alone."""

    seen: list[list[BaseMessage]] = Field(default_factory=list)

    @property
    def _llm_type(self) -> str:
        return "clerk"

    def bind_tools(self, *_: Any, **__: Any) -> Any:
        return self

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        self.seen.append(messages)
        return ChatResult(generations=[ChatGeneration(message=self._reply(messages))])

    def _reply(self, messages: list[BaseMessage]) -> AIMessage:
        asked = max((place for place, message in enumerate(messages) if message.type == "human"), default=-1)
        words = messages[asked].text.splitlines()[-1] if asked >= 0 else ""
        drawers = re.findall(r"drawer (\d+-\d+)", words)
        results = [message.text for message in messages[asked + 1 :] if isinstance(message, ToolMessage)]
        if len(results) < len(drawers):
            drawer = drawers[len(results)]
            call = {"name": "number_of", "args": {"drawer": drawer}, "id": f"k{drawer}", "type": "tool_call"}
            return AIMessage("", tool_calls=[call])
        return AIMessage(" ".join(results) if drawers else "What was the question?")


def question(turn: int) -> tuple[str, str]:
    """What the user says in a turn, and the right answer."""
    drawers = [f"{turn}-{n}" for n in range(turn % 3 + 1)]
    asked = " and ".join(f"drawer {drawer}" for drawer in drawers)
    return f"Which number has {asked}? I ask for the archive.", " ".join(map(number_of.invoke, drawers))


WORDS: dict[str, Callable[[str, int], Any]] = {
    "messages without ids": lambda said, _: HumanMessage(said),
    "some with ids": lambda said, turn: HumanMessage(said, id=f"q{turn}" if turn % 2 else None),
    "dicts": lambda said, _: {"role": "user", "content": said},
}


def right_answers(run: Callable[[Any, Any], dict[str, Any]], turns: int, words: str, *, checkpointer: bool) -> int:
    """How many answers are right; no report has anything to tell."""
    ours = ContextBudgetMiddleware({"max_context_tokens": 1_000, "learn": False}, recall_tool=False)
    saver = InMemorySaver() if checkpointer else None
    agent: Any = create_agent(Clerk(), [number_of], middleware=[ours], state_schema=ListedState, checkpointer=saver)
    right, before = 0, []
    for turn in range(turns):
        said, answer = question(turn)
        state = run(agent, {"messages": [*before, WORDS[words](said, turn)]})
        before = [] if checkpointer else state["messages"]
        right += state["messages"][-1].text == answer
        report = ours.pipeline.engine.recent.report
        assert report is not None
        assert report.failures == ()
    assert len(ours.pipeline.get_messages(**SCOPE)) == len(state["messages"])
    return right


kept_by = pytest.mark.parametrize("checkpointer", [True, False], ids=["checkpointer", "caller"])


def test_questions_and_results_without_ids_reach_the_model(service: Service) -> None:
    for checkpointer in (True, False):
        for words in WORDS:
            assert right_answers(service.run, 4, words, checkpointer=checkpointer) == 4


@pytest.mark.slow
@pytest.mark.parametrize("words", WORDS)
def test_sixty_turns_without_ids_have_sixty_right_answers(service: Service, words: str) -> None:
    for checkpointer in (True, False):
        assert right_answers(service.run, 60, words, checkpointer=checkpointer) == 60
