"""What is sent for an agent's messages, by each way out, whatever the model."""

from collections.abc import Callable, Sequence
from typing import Any

from langchain.agents.middleware import ModelRequest
from langchain.agents.middleware.types import ModelResponse
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.runnables import RunnableConfig, RunnableLambda
from langgraph.runtime import Runtime

from langchain_ctxbudget import ContextPipeline, build_context_graph
from langchain_ctxbudget.messages import split_turn
from langchain_ctxbudget.middleware import ContextBudgetMiddleware

SCOPE: dict[str, Any] = {"user_id": "ada", "conversation_id": "c1"}
RUN: RunnableConfig = {"configurable": {"user_id": "ada", "thread_id": "c1"}}


def sent_by_pipeline(
    pipeline: ContextPipeline, messages: Sequence[BaseMessage]
) -> list[BaseMessage]:
    history, turn = split_turn(messages)
    pipeline.sync(history, **SCOPE)
    return pipeline.assemble(turn, **SCOPE).messages


def sent_by_graph(pipeline: ContextPipeline, messages: Sequence[BaseMessage]) -> list[BaseMessage]:
    graph = build_context_graph(pipeline, runtime_store=False)
    sent: list[BaseMessage] = graph.invoke({"messages": list(messages)}, RUN)["llm_input_messages"]
    return sent


def sent_by_middleware(
    pipeline: ContextPipeline, messages: Sequence[BaseMessage]
) -> list[BaseMessage]:
    middleware = ContextBudgetMiddleware(pipeline, recall_tool=False, runtime_store=False)
    sent: list[BaseMessage] = []

    def answer(request: ModelRequest[Any]) -> ModelResponse[Any]:
        sent.extend(request.messages)
        return ModelResponse(result=[AIMessage("Done.")])

    request: ModelRequest[Any] = ModelRequest(
        model=pipeline.engine.target.model,  # type: ignore[arg-type]
        messages=list(messages),
        state={"messages": list(messages)},
        runtime=Runtime(),
    )
    # As a step of a run, since the middleware asks which run it is in.
    RunnableLambda(lambda _: middleware.wrap_model_call(request, answer)).invoke(None, RUN)
    return sent


WAYS: dict[str, Callable[[ContextPipeline, Sequence[BaseMessage]], list[BaseMessage]]] = {
    "pipeline": sent_by_pipeline,
    "graph": sent_by_graph,
    "middleware": sent_by_middleware,
}
