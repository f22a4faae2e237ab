"""An agent for LangGraph Server.

`langgraph dev` in this folder serves it, as `langgraph.json` says.

The server keeps the messages, and asks the user before the agent books anything. The pipeline's
copy of the messages, which it compacts and searches, is in the store that the server gives to every
run: the one of `store.py`, or the server's own. With OPENAI_API_KEY set it calls the real model,
otherwise a script.

    python examples/server/agent.py
"""

from __future__ import annotations

import asyncio
import os
import re
from typing import Annotated, Any
from uuid import uuid4

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    BaseMessage,
    HumanMessage,
    ToolCall,
    ToolMessage,
)
from langchain_core.runnables import Runnable, RunnableConfig, RunnableLambda
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.pregel import Pregel
from langgraph.types import Command, interrupt
from typing_extensions import TypedDict

from langchain_ctxbudget import (
    ContextPipeline,
    build_context_graph,
    build_remember_node,
    create_recall_tool,
)


def make_model() -> BaseChatModel | None:
    """The real model, where there is a key."""
    if not os.environ.get("OPENAI_API_KEY"):
        return None
    from langchain_openai import ChatOpenAI  # noqa: PLC0415 - only with a key

    return ChatOpenAI(model="gpt-4o-mini")


chat_model = make_model()
pipeline = ContextPipeline(
    {"max_context_tokens": 8_000},
    system_prompt="You are a helpful assistant.",
    model=chat_model,
)
# The user is who the server has authenticated; while there is no authentication, everybody is one
# user.
USER = "developer"


@tool
def book(table_for: int) -> str:
    """Book a table, after the user has agreed."""
    decision = interrupt(f"Book a table for {table_for}?")
    return (
        f"Booked: a table for {table_for}."
        if decision == "yes"
        else f"Not booked; the user says: {decision}"
    )


tools = [book, create_recall_tool(pipeline, default_user=USER)]


class Question(TypedDict):
    """What a turn begins with."""

    messages: Annotated[list[AnyMessage], add_messages]


class State(Question):
    """The agent's state.

    The context graph reads `messages` and `ctxbudget_turn`, and writes the rest.
    """

    ctxbudget_turn: dict[str, Any]
    """What was retrieved for the user's words; the same before and after an interrupt."""
    llm_input_messages: list[AnyMessage]


def scripted_reply(messages: list[BaseMessage]) -> AIMessage:
    """Call the tool where a user wants a table, and answer from what stands in the prompt."""
    last = messages[-1]
    if isinstance(last, ToolMessage):
        return AIMessage(last.text)
    if wanted := re.search(r"table for (\d+)", last.text.rpartition("</context>")[2]):
        call = ToolCall(name="book", args={"table_for": int(wanted[1])}, id=f"call-{uuid4().hex}")
        return AIMessage("", tool_calls=[call])
    name = re.search(r"I am (\w+)", "\n".join(message.text for message in messages))
    return AIMessage(f"You are {name[1]}." if name else "Hello.")


model: Runnable[Any, BaseMessage] = (
    chat_model.bind_tools(tools) if chat_model else RunnableLambda(scripted_reply)
)


async def call_model(state: State) -> dict[str, Any]:
    """Ask the model with what fits."""
    return {"messages": [await model.ainvoke(state["llm_input_messages"])]}


builder = StateGraph(State, input_schema=Question)
builder.add_node("context", build_context_graph(pipeline, tools=tools, default_user=USER))
builder.add_node("model", call_model)
builder.add_node("tools", ToolNode(tools))
builder.add_node("remember", build_remember_node(pipeline, default_user=USER))
builder.add_edge(START, "context")
builder.add_edge("context", "model")
builder.add_conditional_edges("model", tools_condition, {"tools": "tools", END: "remember"})
builder.add_edge("tools", "context")
agent = builder.compile()


async def main() -> None:
    """Three turns, as the server would run them, with a checkpointer and the store of its own."""
    from store import generate_store  # noqa: PLC0415 - the server loads it by its path

    async with generate_store() as store:
        await three_turns(builder.compile(checkpointer=InMemorySaver(), store=store))


async def three_turns(chat: Pregel[Any, Any, Any, Any]) -> None:
    """Ask three questions, and agree to what the agent asks."""
    config: RunnableConfig = {"configurable": {"thread_id": "c1"}}
    for question in ("Hello, I am Ada.", "Please book a table for 4.", "What is my name?"):
        print(f"user:  {question}")
        state = await chat.ainvoke({"messages": [HumanMessage(question)]}, config)
        while "__interrupt__" in state:
            print(f"agent: {state['__interrupt__'][0].value}\nuser:  yes")
            state = await chat.ainvoke(Command(resume="yes"), config)
        report = pipeline.last_report(user_id=USER, conversation_id="c1")
        print(
            f"agent: {state['messages'][-1].text}  [{report.total_tokens if report else 0} tokens sent]"
        )


if __name__ == "__main__":
    asyncio.run(main())
