"""Every way into the package, each to run a scripted conversation."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import BaseMessage
from langchain_openai import ChatOpenAI
from langgraph.store.base import BaseStore
from langgraph.store.memory import InMemoryStore
from pydantic import SecretStr

from langchain_ctxbudget import ContextPipeline
from langchain_ctxbudget.flow import Flow, adrive
from langchain_ctxbudget.report.report import ContextReport
from tests.integration_tests.agents import Agent, Parts
from tests.integration_tests.chains import ChainWithHistory, ChainWithMemory, ChainWithWholePrompts
from tests.integration_tests.graph_agents import (
    Middleware,
    NodeOfAGraph,
    NodeOfAGraphWithTurn,
    PreModelHook,
    WithoutThePackage,
)
from tests.integration_tests.loop_agents import PlainLoop, RunnableInALoop, WindowInALoop
from tests.integration_tests.scripted_agent import SYSTEM_PROMPT, Script, Turn, as_stored
from tests.integration_tests.strict_openai_server import StrictOpenAIServer

WITH_TOOLS: dict[str, type[Agent]] = {
    "node": NodeOfAGraph,
    "node and turn": NodeOfAGraphWithTurn,
    "hook": PreModelHook,
    "middleware": Middleware,
    "loop": PlainLoop,
    "runnable": RunnableInALoop,
    "window": WindowInALoop,
}
WITHOUT_TOOLS: dict[str, type[Agent]] = {
    "chain": ChainWithHistory,
    "memory": ChainWithMemory,
    "memory, whole prompt": ChainWithWholePrompts,
}


RUNS: dict[str, Callable[[Flow[Any]], Any]] = {"async": lambda flow: asyncio.run(adrive(flow))}
"""One form: that the other gives the same is what `test_both_forms` says."""


def model_at(url: str) -> ChatOpenAI:
    """A real client for a server on this machine."""
    return ChatOpenAI(model="gpt-4o", base_url=url, api_key=SecretStr("not-used"), max_retries=0)


def make_pipeline(budget_tokens: int, store: BaseStore | None = None) -> ContextPipeline:
    settings = {"max_context_tokens": budget_tokens, "learn": False}
    return ContextPipeline(settings, system_prompt=SYSTEM_PROMPT, store=store or InMemoryStore())


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a conversation."""

    stored: list[dict[str, Any]]
    refused: list[str]
    received: list[Mapping[str, Any]]
    reports: list[ContextReport]
    """As many as requests, where the way in makes reports."""


def outcome_of(way: type[Agent], run: str, script: Script, *, budget_tokens: int, **parts: Any) -> Outcome:
    """Run a conversation one way, against a server that refuses more than the budget.

    Args:
        way: into the package.
        run: "sync" or "async".
        script: what is said.
        budget_tokens: of the pipeline, and of the server unless the package is not used.
        parts: what else the agent is made of.
    """
    reports: list[ContextReport] = []
    limit = None if way is WithoutThePackage else budget_tokens
    with StrictOpenAIServer(max_tokens=limit) as server, make_pipeline(budget_tokens) as pipeline:

        def answer(body: Mapping[str, Any]) -> Mapping[str, Any]:
            if (report := pipeline.engine.recent.report) is not None:
                reports.append(report)
            return script.answer(body)

        server.answer = answer
        model = model_at(server.url)
        stored = RUNS[run](converse(way(Parts(model=model, pipeline=pipeline, **parts)), script.turns))
        return Outcome([as_stored(message) for message in stored], server.refused, list(server.received), reports)


def converse(agent: Agent, turns: Sequence[Turn]) -> Flow[list[BaseMessage]]:
    """Say everything, and tell what is kept of it."""
    for turn in turns:
        yield from agent.say(turn)
    return (yield from agent.messages())
