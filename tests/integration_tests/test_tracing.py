"""Reports in traces: on the model's run, on the run that made the prompt, and on no other."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import requests
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import BaseMessage, HumanMessage
from langchain_core.runnables import RunnableConfig, RunnableLambda
from langchain_core.tracers import LangChainTracer
from langgraph.store.memory import InMemoryStore
from langsmith import Client

from langchain_ctxbudget import ContextPipeline, build_context_graph
from langchain_ctxbudget.integrations.middleware import ContextBudgetMiddleware
from langchain_ctxbudget.pipeline import described
from tests.integration_tests.agents import look_up, scripted, wants

TOTAL = "ctxbudget_total_tokens"


REPORT = ContextPipeline(store=InMemoryStore()).assemble("Hi", user_id="ada", conversation_id="c1").report


class Recorder(BaseCallbackHandler):
    """Keeps what every run was started with."""

    def __init__(self) -> None:
        self.models: list[dict[str, Any]] = []
        self.others: list[dict[str, Any]] = []

    def on_chain_start(self, serialized: Any, inputs: Any, **kwargs: Any) -> None:
        self.others.append(kwargs)

    def on_tool_start(self, serialized: Any, input_str: str, **kwargs: Any) -> None:
        self.others.append(kwargs)

    def on_chat_model_start(self, serialized: Any, messages: list[list[BaseMessage]], **kwargs: Any) -> None:
        self.models.append(kwargs)


def agent(*middleware: AgentMiddleware) -> Any:
    return create_agent(scripted(wants("look_up", topic="lamp"), "Here."), tools=[look_up], middleware=middleware)


ASKED = {"messages": [HumanMessage("Where is the lamp?")]}


def test_the_metadata_and_tags_around_it_are_there_too() -> None:
    def look(_: object, config: RunnableConfig) -> tuple[int, list[str]]:
        return config["metadata"]["mine"], config["tags"]

    def body(_: object) -> tuple[int, list[str]]:
        with described(REPORT):
            return RunnableLambda(look).invoke(None)

    found = RunnableLambda(body).invoke(None, {"metadata": {"mine": 1}, "tags": ["my-tag"]})
    assert found == (1, ["my-tag", "ctxbudget"])


class Post(requests.Session):
    """Keeps what would be sent to LangSmith."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[dict[str, Any]] = []

    def request(self, *_: Any, data: Any = None, **__: Any) -> requests.Response:
        self.sent += [json.loads(data)] if data else []
        response = requests.Response()
        response.status_code, response._content = 202, b"{}"
        return response


def test_where_nothing_traces_langsmith_is_not_loaded() -> None:
    code = (
        "import sys\n"
        "from langchain_ctxbudget.pipeline.runs import describe_run\n"
        "describe_run(None)\n"
        "sys.exit('langsmith.run_helpers' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# -- the package's own ways in

OURS = {"thread_id": "c1", "user_id": "ada"}


def ours(*callbacks: BaseCallbackHandler) -> RunnableConfig:
    return {"callbacks": list(callbacks), "configurable": OURS}


def test_the_middleware_describes_the_runs_of_the_model() -> None:
    recorder = Recorder()
    agent(ContextBudgetMiddleware(recall_tool=False)).invoke(ASKED, ours(recorder))
    assert len(recorder.models) == 2
    assert all(TOTAL in run["metadata"] and "ctxbudget" in run["tags"] for run in recorder.models)


MADE: dict[str, Callable[[], Any]] = {
    "assemble": build_context_graph,
    "context_budget": lambda: ContextPipeline(store=InMemoryStore()).as_runnable(),
}
"""By the name of the run that makes the prompt."""


@pytest.mark.parametrize("name", MADE)
def test_the_posted_run_that_made_the_prompt_is_described_and_has_a_name_and_a_tag(name: str) -> None:
    recorder = Recorder()
    with Post() as post:
        where: Any = {"api_url": "http://langsmith.invalid", "api_key": "not-used", "info": {}}
        tracer = LangChainTracer(client=Client(**where, session=post, auto_batch_tracing=False))
        asyncio.run(MADE[name]().ainvoke(ASKED, ours(tracer, recorder)))
    assert {body["name"] for body in post.sent if TOTAL in body["extra"]["metadata"]} == {name}
    assert next(run["name"] for run in recorder.others if "ctxbudget" in run["tags"]) == "context_budget"
