"""Reports in traces: on the model's run, on the run that made the prompt, and on no other."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

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
from langchain_ctxbudget.pipeline.runs import described

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
        self.names: dict[UUID, str] = {}

    def on_chain_start(self, serialized: Any, inputs: Any, *, run_id: UUID, **kwargs: Any) -> None:
        self.names[run_id] = kwargs["name"]
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


def _invoke(made: Any, config: RunnableConfig) -> None:
    made.invoke(ASKED, config)


def _stream(made: Any, config: RunnableConfig) -> None:
    list(made.stream(ASKED, config, stream_mode="messages"))


def _ainvoke(made: Any, config: RunnableConfig) -> None:
    asyncio.run(made.ainvoke(ASKED, config))


Way = Callable[[Any, RunnableConfig], None]


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

    def metadata(self, name: str) -> dict[str, Any]:
        """Of a run as it was last sent."""
        bodies = [body for _, body in self.sent if body["name"] == name]
        assert bodies
        found: dict[str, Any] = bodies[-1]["extra"]["metadata"]
        return found


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


@pytest.mark.parametrize("way", [_invoke, _stream, _ainvoke], ids=["invoke", "stream", "ainvoke"])
def test_the_middleware_describes_the_runs_of_the_model(way: Way) -> None:
    recorder = Recorder()
    way(budgeted(), ours(recorder))
    assert len(recorder.models) == 2
    assert all(TOTAL in run["metadata"] and "ctxbudget" in run["tags"] for run in recorder.models)


@pytest.mark.parametrize("way", ["sync", "async"])
def test_the_middleware_tells_what_every_step_did(way: str) -> None:
    async def streamed() -> list[Any]:
        return [event async for event in budgeted().astream(ASKED, ours(), stream_mode="custom")]

    sync = way == "sync"
    events = list(budgeted().stream(ASKED, ours(), stream_mode="custom")) if sync else asyncio.run(streamed())
    assert [event["ctxbudget"]["step"] for event in events] == 2 * NODES
    assert events[-1]["ctxbudget"]["tokens"] <= events[-1]["ctxbudget"]["budget_tokens"]


MADE: dict[str, Callable[[], Any]] = {
    "assemble": lambda: build_context_graph(store=InMemoryStore()),
    "context_budget": lambda: ContextPipeline(store=InMemoryStore()).as_runnable(),
}
"""By the name of the run that makes the prompt."""


@pytest.mark.parametrize("way", [_ainvoke], ids=["async"])
@pytest.mark.parametrize("name", MADE)
def test_the_posted_run_that_made_the_prompt_is_described(
    way: Way, name: str, post: Post, tracer: LangChainTracer
) -> None:
    way(MADE[name](), ours(tracer))
    described = {body["name"] for _, body in post.sent if TOTAL in body["extra"]["metadata"]}
    assert described == {name}


@pytest.mark.parametrize("way", [_ainvoke], ids=["async"])
@pytest.mark.parametrize("name", MADE)
def test_its_run_has_a_name_and_a_tag(way: Way, name: str) -> None:
    recorder = Recorder()
    way(MADE[name](), ours(recorder))
    assert next(run["name"] for run in recorder.others if "ctxbudget" in run["tags"]) == "context_budget"
