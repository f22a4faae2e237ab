"""Callers that keep no ids: every turn brings the whole conversation again, and each message gets a new id."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from langchain_core.messages import BaseMessage, convert_to_messages
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import ContextPipeline, build_context_graph
from tests.integration_tests.agents import SCOPE, ask

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


# -- Agents whose state gives no ids
