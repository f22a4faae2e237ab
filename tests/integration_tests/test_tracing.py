"""Reports in traces: on the model's run, on the run that made the prompt, and on no other."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import Any
from uuid import UUID

import pytest
import requests
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import RunnableConfig, RunnableLambda
from langchain_core.runnables.config import var_child_runnable_config
from langchain_core.tools import tool
from langchain_core.tracers import LangChainTracer
from langgraph.store.memory import InMemoryStore
from langsmith import Client

from langchain_ctxbudget import ContextPipeline, ContextReport, build_context_graph
from langchain_ctxbudget.middleware import ContextBudgetMiddleware
from langchain_ctxbudget.tracing import describe_run, described

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


class Describing(AgentMiddleware):
    """Calls the model with the report of a prompt."""

    def wrap_model_call(self, request: ModelRequest, handler: Callable[[ModelRequest], ModelResponse]) -> ModelResponse:
        with described(REPORT):
            return handler(request)

    async def awrap_model_call(
        self, request: ModelRequest, handler: Callable[[ModelRequest], Awaitable[ModelResponse]]
    ) -> ModelResponse:
        with described(REPORT):
            return await handler(request)


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


def _astream_events(made: Any, config: RunnableConfig) -> None:
    async def run() -> None:
        events = [event async for event in made.astream_events(ASKED, config, version="v2")]
        started = [event for event in events if event["event"] == "on_chat_model_start"]
        assert [event["metadata"][TOTAL] for event in started] == [REPORT.total_tokens] * 2
        assert all("ctxbudget" in event["tags"] for event in started)

    asyncio.run(run())


WAYS = pytest.mark.parametrize(
    "way", [_invoke, _stream, _ainvoke, _astream_events], ids=lambda way: way.__name__.strip("_")
)
Way = Callable[[Any, RunnableConfig], None]


def traced(way: Way, made: Any) -> Recorder:
    recorder = Recorder()
    way(made, {"callbacks": [recorder], "metadata": {"mine": 1}, "tags": ["my-tag"]})
    return recorder


@WAYS
def test_the_runs_of_the_model_have_the_metadata_and_the_tag(way: Way) -> None:
    models = traced(way, agent(Describing())).models
    assert len(models) == 2
    for run in models:
        assert run["metadata"].items() >= REPORT.to_metadata().items()
        assert "ctxbudget" in run["tags"]


@WAYS
def test_the_runs_of_the_model_keep_their_own_metadata_and_tags(way: Way) -> None:
    for run in traced(way, agent(Describing())).models:
        assert run["metadata"]["mine"] == 1
        assert run["metadata"]["langgraph_node"] == "model"
        assert "my-tag" in run["tags"]


@WAYS
def test_the_runs_of_the_model_stay_children_of_their_node(way: Way) -> None:
    recorder = traced(way, agent(Describing()))
    assert {recorder.names[run["parent_run_id"]] for run in recorder.models} == {"model"}


@WAYS
def test_no_other_run_has_them(way: Way) -> None:
    others = traced(way, agent(Describing())).others
    assert len(others) >= 4
    assert not [run for run in others if TOTAL in run["metadata"] or "ctxbudget" in run["tags"]]


def show(_: object, config: RunnableConfig) -> tuple[bool, bool]:
    return TOTAL in config["metadata"], "ctxbudget" in config["tags"]


SHOW = RunnableLambda(show)


def test_a_run_without_a_parent_has_them() -> None:
    with described(REPORT):
        assert SHOW.invoke(None) == (True, True)


def test_without_a_current_config_there_is_nothing_else_in_it() -> None:
    with described(REPORT):
        assert set(var_child_runnable_config.get() or {}) == {"metadata", "tags"}


def test_a_run_after_it_has_none() -> None:
    with described(REPORT):
        pass
    assert var_child_runnable_config.get() is None
    assert SHOW.invoke(None) == (False, False)


def test_a_run_after_an_error_has_none() -> None:
    with pytest.raises(KeyError), described(REPORT):
        raise KeyError
    assert SHOW.invoke(None) == (False, False)


def test_the_config_around_it_is_not_changed() -> None:
    def body(_: object, config: RunnableConfig) -> tuple[dict[str, Any], list[str]]:
        with described(REPORT):
            pass
        current = var_child_runnable_config.get()
        assert current is not None
        return current["metadata"], current["tags"]

    found = RunnableLambda(body).invoke(None, {"metadata": {"mine": 1}, "tags": ["my-tag"]})
    assert found == ({"mine": 1}, ["my-tag"])


def test_the_metadata_and_tags_around_it_are_there_too() -> None:
    def look(_: object, config: RunnableConfig) -> tuple[int, list[str]]:
        return config["metadata"]["mine"], config["tags"]

    def body(_: object) -> tuple[int, list[str]]:
        with described(REPORT):
            return RunnableLambda(look).invoke(None)

    found = RunnableLambda(body).invoke(None, {"metadata": {"mine": 1}, "tags": ["my-tag"]})
    assert found == (1, ["my-tag", "ctxbudget"])


def test_the_inner_report_is_that_of_the_run() -> None:
    inner = report_of("Something else, which is longer.")

    def look(_: object, config: RunnableConfig) -> tuple[int, list[str]]:
        return config["metadata"][TOTAL], config["tags"]

    with described(REPORT, tags=("outer",)), described(inner, tags=("inner",)):
        found = RunnableLambda(look).invoke(None)
    assert found == (inner.total_tokens, ["outer", "inner"])


def test_tasks_at_once_have_their_own() -> None:
    reports = [report_of("word " * number) for number in range(1, 6)]

    async def main() -> list[int]:
        together = asyncio.Barrier(len(reports))

        async def look(_: object, config: RunnableConfig) -> int:
            await together.wait()
            total: int = config["metadata"][TOTAL]
            return total

        async def task(report: ContextReport) -> int:
            with described(report):
                await together.wait()
                total: int = await RunnableLambda(look).ainvoke(None)
                return total

        return await asyncio.gather(*map(task, reports))

    assert asyncio.run(main()) == [report.total_tokens for report in reports]


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


@pytest.mark.parametrize("way", ["sync", "async"])
def test_the_posted_run_has_the_metadata_and_those_around_it_have_not(
    way: str, post: Post, tracer: LangChainTracer
) -> None:
    def prepare(words: str) -> str:
        describe_run(REPORT)
        return words

    async def aprepare(words: str) -> str:
        describe_run(REPORT)
        return words

    prepared = RunnableLambda(prepare, aprepare, name="prepare")
    chain = (prepared | RunnableLambda(str.upper, name="after")).with_config(run_name="whole")
    config: RunnableConfig = {"callbacks": [tracer]}
    if way == "sync":
        chain.invoke("hello", config)
    else:
        asyncio.run(chain.ainvoke("hello", config))
    assert post.metadata("prepare").items() >= REPORT.to_metadata().items()
    assert TOTAL not in post.metadata("whole")
    assert TOTAL not in post.metadata("after")


@pytest.mark.parametrize("way", [_invoke, _ainvoke], ids=["sync", "async"])
def test_the_posted_run_of_the_model_has_the_metadata(way: Way, post: Post, tracer: LangChainTracer) -> None:
    way(agent(Describing()), {"callbacks": [tracer]})
    assert post.metadata("Scripted").items() >= REPORT.to_metadata().items()
    assert TOTAL not in post.metadata("tools")


def test_without_a_trace_nothing_happens(post: Post) -> None:
    def body(_: object) -> None:
        describe_run(REPORT)

    RunnableLambda(body).invoke(None)
    assert post.sent == []


def test_a_thread_of_its_own_has_no_current_run(post: Post, tracer: LangChainTracer) -> None:
    def body(_: object) -> None:
        thread = threading.Thread(target=describe_run, args=(REPORT,))
        thread.start()
        thread.join()

    RunnableLambda(body, name="body").invoke(None, {"callbacks": [tracer]})
    assert TOTAL not in post.metadata("body")


def test_where_nothing_traces_langsmith_is_not_loaded() -> None:
    code = (
        "import sys\n"
        "from langchain_ctxbudget.tracing import describe_run\n"
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


@pytest.mark.parametrize("way", [_invoke, _ainvoke], ids=["sync", "async"])
@pytest.mark.parametrize("name", MADE)
def test_the_posted_run_that_made_the_prompt_is_described(
    way: Way, name: str, post: Post, tracer: LangChainTracer
) -> None:
    way(MADE[name](), ours(tracer))
    described = {body["name"] for _, body in post.sent if TOTAL in body["extra"]["metadata"]}
    assert described == {name}


@pytest.mark.parametrize("way", [_invoke, _ainvoke], ids=["sync", "async"])
@pytest.mark.parametrize("name", MADE)
def test_its_run_has_a_name_and_a_tag(way: Way, name: str) -> None:
    recorder = Recorder()
    way(MADE[name](), ours(recorder))
    assert next(run["name"] for run in recorder.others if "ctxbudget" in run["tags"]) == "context_budget"
