"""Callers that keep no ids: every turn brings the whole conversation again, and each message gets a new id."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
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
from langchain_ctxbudget.stores import Scope
from tests.integration_tests.agents import SCOPE, ListedState, agent_of, ask, scripted

TURNS = 20


def human(number: int) -> dict[str, str]:
    return {"role": "user", "content": f"Tell me something about subject {number}, its makers and its history."}


def ai(number: int) -> dict[str, str]:
    return {"role": "assistant", "content": f"Subject {number} is broad; here are {number + 3} remarks on its makers."}


def whole(turns: int) -> list[dict[str, str]]:
    """Everything up to a turn's question."""
    return [message for n in range(turns) for message in (human(n), ai(n))] + [human(turns)]


@pytest.fixture
def pipeline() -> ContextPipeline:
    return ContextPipeline({"max_context_tokens": 700, "learn": False}, store=InMemoryStore())


def prompt(pipeline: ContextPipeline, messages: Any) -> tuple[list[BaseMessage], dict[str, Any]]:
    state = ask(build_context_graph(pipeline, report="texts"), {"messages": messages})
    return state["llm_input_messages"], state["report"]


def stored(pipeline: ContextPipeline) -> list[BaseMessage]:
    return pipeline.get_messages(**SCOPE)


def texts(messages: Sequence[BaseMessage]) -> list[str]:
    return [message.text for message in messages]


def test_the_middleware_stores_every_message_once(pipeline: ContextPipeline) -> None:
    middleware = ContextBudgetMiddleware(pipeline, recall_tool=False)
    for turn in range(TURNS):
        ask(agent_of(scripted(ai(turn)["content"]), middleware, checkpointer=None), {"messages": whole(turn)})
    records = pipeline.store.search(Scope("ada", "c1").namespace(MESSAGES), limit=10_000)
    assert len(records) == len(stored(pipeline)) == 2 * TURNS


def test_prompts_are_those_of_messages_with_ids(pipeline: ContextPipeline) -> None:
    other = ContextPipeline(pipeline.settings, store=InMemoryStore())
    for turn in range(TURNS):
        named = [m.model_copy(update={"id": f"m{n}"}) for n, m in enumerate(convert_to_messages(whole(turn)))]
        (without, report), (with_ids, expected) = prompt(pipeline, whole(turn)), prompt(other, named)
        assert texts(without) == texts(with_ids)
        assert report["stability"] == expected["stability"]


def test_an_edit_and_another_way_on_from_the_middle_are_stored_as_they_are_now(pipeline: ContextPipeline) -> None:
    prompt(pipeline, whole(9))
    before, changed = stored(pipeline), whole(9)
    changed[8] = {"role": "user", "content": "Forget what I asked there."}
    branch = [*whole(4), {"role": "assistant", "content": "Something else."}, {"role": "user", "content": "And now?"}]
    for now in (changed, branch):
        prompt(pipeline, now)
        assert texts(stored(pipeline)) == [message["content"] for message in now[:-1]]
    assert [message.id for message in stored(pipeline)[:8]] == [message.id for message in before[:8]]


def test_what_is_said_again_is_recognized_in_its_order(pipeline: ContextPipeline) -> None:
    def fresh(*said: str) -> list[str]:
        return pipeline.sync([HumanMessage(text, id=str(uuid4())) for text in said], **SCOPE)

    first = fresh("ok", "a", "ok", "b")
    assert fresh("a", "ok", "b") == first[1:]


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


@pytest.mark.parametrize("checkpointer", [True, False], ids=["checkpointer", "caller"])
@pytest.mark.parametrize("words", WORDS)
@pytest.mark.parametrize("turns", [4, pytest.param(30, marks=pytest.mark.slow)])
def test_questions_and_results_without_ids_reach_the_model(turns: int, words: str, *, checkpointer: bool) -> None:
    """Every answer is right, and no report has anything to tell."""
    ours = ContextBudgetMiddleware({"max_context_tokens": 1_000, "learn": False}, recall_tool=False)
    saver = InMemorySaver() if checkpointer else None
    agent: Any = create_agent(Clerk(), [number_of], middleware=[ours], state_schema=ListedState, checkpointer=saver)
    before: list[Any] = []
    for turn in range(turns):
        said, answer = question(turn)
        state = ask(agent, {"messages": [*before, WORDS[words](said, turn)]})
        before = [] if checkpointer else state["messages"]
        assert state["messages"][-1].text == answer
        report = ours.pipeline.last_report(**SCOPE)
        assert report is not None
        assert report.failures == ()
    assert len(stored(ours.pipeline)) == len(state["messages"])
