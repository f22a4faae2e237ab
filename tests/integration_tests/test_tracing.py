"""Reports in traces: on the model's run, on the run that made the prompt, and on no other."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import requests
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import RunnableConfig, RunnableLambda
from langchain_core.tools import tool
from langchain_core.tracers import LangChainTracer
from langgraph.store.memory import InMemoryStore
from langsmith import Client

from langchain_ctxbudget import ContextPipeline, ContextReport, build_context_graph
from langchain_ctxbudget.integrations.middleware import ContextBudgetMiddleware
from langchain_ctxbudget.pipeline import described

TOTAL = "ctxbudget_total_tokens"


def report_of(words: str) -> ContextReport:
    made = ContextPipeline(store=InMemoryStore())
    return made.assemble(words, user_id="ada", conversation_id="c1").report


REPORT = report_of("Where is the lamp?")


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


class Scripted(BaseChatModel):
    """Has the lamp found, and says where it is."""

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        asks = AIMessage("", tool_calls=[{"id": "c1", "name": "find", "args": {"what": "the lamp"}}])
        answer = AIMessage("On the shelf.") if isinstance(messages[-1], ToolMessage) else asks
        return ChatResult(generations=[ChatGeneration(message=answer)])


@tool
def find(what: str) -> str:
    """Find something."""
    return f"{what}: on the shelf"


def agent(*middleware: AgentMiddleware) -> Any:
    return create_agent(Scripted(), tools=[find], middleware=middleware)


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
        self.sent: list[tuple[str, dict[str, Any]]] = []

    def request(self, method: Any, url: Any, *args: Any, data: Any = None, **kwargs: Any) -> requests.Response:
        if data:
            self.sent.append((str(method), json.loads(data)))
        response = requests.Response()
        response.status_code, response._content = 202, b"{}"
        return response


@pytest.fixture
def post() -> Iterator[Post]:
    with Post() as session:
        yield session


@pytest.fixture
def tracer(post: Post) -> LangChainTracer:
    client = Client(
        api_url="http://langsmith.invalid", api_key="not-used", session=post, auto_batch_tracing=False, info={}
    )
    return LangChainTracer(client=client)


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
NODES = ["detect_topics", "compute_budget", "fetch_bundles", "compact_history", "retrieve", "assemble"]


def budgeted() -> Any:
    return agent(ContextBudgetMiddleware(recall_tool=False, store=InMemoryStore()))


def ours(*callbacks: BaseCallbackHandler) -> RunnableConfig:
    return {"callbacks": list(callbacks), "configurable": OURS}


def test_the_middleware_describes_the_runs_of_the_model_and_tells_what_every_step_did() -> None:
    recorder = Recorder()
    events = list(budgeted().stream(ASKED, ours(recorder), stream_mode="custom"))
    assert [event["ctxbudget"]["step"] for event in events] == 2 * NODES
    assert events[-1]["ctxbudget"]["tokens"] <= events[-1]["ctxbudget"]["budget_tokens"]
    assert len(recorder.models) == 2
    assert all(TOTAL in run["metadata"] and "ctxbudget" in run["tags"] for run in recorder.models)


MADE: dict[str, Callable[[], Any]] = {
    "assemble": lambda: build_context_graph(store=InMemoryStore()),
    "context_budget": lambda: ContextPipeline(store=InMemoryStore()).as_runnable(),
}
"""By the name of the run that makes the prompt."""


@pytest.mark.parametrize("name", MADE)
def test_the_posted_run_that_made_the_prompt_is_described_and_has_a_name_and_a_tag(
    name: str, post: Post, tracer: LangChainTracer
) -> None:
    recorder = Recorder()
    asyncio.run(MADE[name]().ainvoke(ASKED, ours(tracer, recorder)))
    assert {body["name"] for _, body in post.sent if TOTAL in body["extra"]["metadata"]} == {name}
    assert next(run["name"] for run in recorder.others if "ctxbudget" in run["tags"]) == "context_budget"
