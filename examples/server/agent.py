"""An agent for LangGraph Server: `langgraph dev` in this folder serves it, as `langgraph.json` says.

LangGraph keeps the messages; the pipeline's copy of them, which it compacts and searches, is kept by a Chroma server
where CHROMA_URL names one, else in memory. With OPENAI_API_KEY set it calls the real model, otherwise one that says its
lines.

    python examples/server/agent.py
"""

from __future__ import annotations

import asyncio
import os
from typing import Annotated, Any

from langchain_core.language_models import BaseChatModel, GenericFakeChatModel
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from typing_extensions import TypedDict

from langchain_ctxbudget import ChromaStore, ContextPipeline, build_context_graph


class Question(TypedDict):
    """What a turn begins with."""

    messages: Annotated[list[AnyMessage], add_messages]


class State(Question):
    """An agent's state; the context graph reads `messages` and writes the other two."""

    llm_input_messages: list[AnyMessage]
    report: dict[str, Any]


def make_model() -> BaseChatModel:
    """The real model where there is a key, else one that says its lines."""
    if os.environ.get("OPENAI_API_KEY"):
        from langchain_openai import ChatOpenAI  # noqa: PLC0415 - only with a key

        return ChatOpenAI(model="gpt-4o-mini")
    return GenericFakeChatModel(messages=(AIMessage(f"Answer {number}.") for number in range(1, 1_000)))


url = os.environ.get("CHROMA_URL")
model = make_model()
pipeline = ContextPipeline(
    {"max_context_tokens": 8_000},
    system_prompt="You are a helpful assistant.",
    model=model,
    store=ChromaStore(url=url) if url else None,
)


async def call_model(state: State) -> dict[str, Any]:
    """Ask the model with what fits."""
    return {"messages": [await model.ainvoke(state["llm_input_messages"])]}


builder = StateGraph(State, input_schema=Question)
# The user is who the server has authenticated; while there is no authentication, everybody is one user.
builder.add_node("context", build_context_graph(pipeline, default_user="developer"))
builder.add_node("model", call_model)
builder.add_edge(START, "context")
builder.add_edge("context", "model")
builder.add_edge("model", END)
agent = builder.compile()


async def main() -> None:
    """Two turns, as the server would run them; it brings a checkpointer of its own."""
    config: Any = {"configurable": {"thread_id": "c1"}}
    chat = builder.compile(checkpointer=InMemorySaver())
    for question in ("Hello, I am Ada.", "What is my name?"):
        state = await chat.ainvoke({"messages": [HumanMessage(question)]}, config)
        print(f"{len(state['llm_input_messages'])} messages sent: {state['messages'][-1].text}")


if __name__ == "__main__":
    asyncio.run(main())
