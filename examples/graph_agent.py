"""A LangGraph agent with the context graph as a node.

State keeps every message, the model sees what fits.

Runs offline with a scripted model; with OPENAI_API_KEY set it calls the real one.

    python examples/graph_agent.py
"""

from __future__ import annotations

import os
from typing import Annotated, Any

from langchain_core.language_models import BaseChatModel, FakeListChatModel
from langchain_core.messages import AnyMessage, HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from typing_extensions import TypedDict

from langchain_ctxbudget import ContextPipeline, build_context_graph, build_remember_node


class Question(TypedDict):
    """What a turn begins with."""

    messages: Annotated[list[AnyMessage], add_messages]


class State(Question):
    """An agent's state; the context graph reads `messages` and writes the other two."""

    llm_input_messages: list[AnyMessage]
    context_report: dict[str, Any]


def make_model() -> BaseChatModel:
    """The real model where there is a key, else one that says its lines."""
    if os.environ.get("OPENAI_API_KEY"):
        from langchain_openai import ChatOpenAI  # noqa: PLC0415 - only with a key

        return ChatOpenAI(model="gpt-4o-mini")
    return FakeListChatModel(
        responses=[f"This is answer number {number}." for number in range(1, 31)]
    )


def main() -> None:
    """Thirty turns on one thread; the prompt stops growing, the state does not."""
    model = make_model()
    pipeline = ContextPipeline(
        {"max_context_tokens": 500}, system_prompt="You are a helpful assistant."
    )

    def call_model(state: State) -> dict[str, Any]:
        return {"messages": [model.invoke(state["llm_input_messages"])]}

    graph = StateGraph(State, input_schema=Question)
    graph.add_node("context", build_context_graph(pipeline, report="numbers"))
    graph.add_node("model", call_model)
    graph.add_node("remember", build_remember_node(pipeline))
    graph.add_edge(START, "context")
    graph.add_edge("context", "model")
    graph.add_edge("model", "remember")
    graph.add_edge("remember", END)
    agent = graph.compile(checkpointer=InMemorySaver())

    config: RunnableConfig = {"configurable": {"thread_id": "garden", "user_id": "ada"}}
    print("turn  messages in state  messages sent  tokens")
    for turn in range(1, 31):
        question = (
            f"Question {turn}: what should I plant in bed number {turn}, next to the tomatoes?"
        )
        state = agent.invoke({"messages": [HumanMessage(question)]}, config)
        if turn % 5 == 0:
            sent = len(state["llm_input_messages"])
            tokens = state["context_report"]["total_tokens"]
            print(f"{turn:>4}  {len(state['messages']):>17}  {sent:>13}  {tokens:>6}")
    pipeline.close()


if __name__ == "__main__":
    main()
