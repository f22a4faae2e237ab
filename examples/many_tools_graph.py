"""A LangGraph agent with 24 tools, of which its model gets those that fit the message.

The model calls one that is not bound: the graph runs it all the same. Runs offline: the model
follows a script, the tools are real.

    python examples/many_tools_graph.py
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Self

from langchain_core.language_models import BaseChatModel, GenericFakeChatModel
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, StructuredTool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.graph.state import CompiledStateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from typing_extensions import TypedDict

from langchain_ctxbudget import (
    ContextPipeline,
    build_context_graph,
    build_remember_node,
    create_tool_search,
)

VERBS = {
    "files": ["read", "write", "move", "delete", "compare", "compress", "search", "rename"],
    "calendar": ["create", "cancel", "shift", "invite", "list", "accept", "decline", "remind"],
    "shop": ["order", "refund", "cancel", "track", "restock", "price", "review", "discount"],
}
"""What the tools of each server do."""


class ScriptedModel(GenericFakeChatModel):
    """Stands for a real model, and prints which tools it gets."""

    def bind_tools(self, tools: Sequence[Any], **_kwargs: Any) -> Self:
        """Binds nothing."""
        print("bound:", ", ".join(tool.name for tool in tools))
        return self


class Question(TypedDict):
    """What a turn begins with."""

    messages: Annotated[list[AnyMessage], add_messages]


class State(Question):
    """An agent's state.

    The context graph reads `messages` and `ctxbudget_turn`, and writes all but `messages`.
    """

    ctxbudget_turn: dict[str, Any]
    """What was found for the user's words; the same for every call of the turn."""
    llm_input_messages: list[AnyMessage]
    llm_input_tools: list[str]
    """The names of the tools to bind."""


def run(what: str) -> str:
    """Stands for what a server does."""
    return f"done: {what}"


def make_tools() -> list[BaseTool]:
    """The tools of all servers, as an MCP client would give them."""
    tools: list[BaseTool] = []
    for server, verbs in VERBS.items():
        for verb in verbs:
            tool = StructuredTool.from_function(
                run,
                name=f"{server}__{verb}",
                description=f"{verb.title()} something in the {server}.",
                metadata={"server": server},
            )
            tools.append(tool)
    return tools


def make_agent(
    pipeline: ContextPipeline, model: BaseChatModel, tools: list[BaseTool]
) -> CompiledStateGraph[State, None, Question, State]:
    """Context, model, tools, and back to context."""
    search = create_tool_search(pipeline, tools)

    def call_model(state: State) -> dict[str, Any]:
        bound = model.bind_tools(search.bound(state["llm_input_tools"]))
        return {"messages": [bound.invoke(state["llm_input_messages"])]}

    tool_node = ToolNode(
        [*tools, *search.tools],
        wrap_tool_call=search.wrap_tool_call,
        awrap_tool_call=search.awrap_tool_call,
    )
    graph = StateGraph(State, input_schema=Question)
    graph.add_node("context", build_context_graph(pipeline, tools=tools))
    graph.add_node("model", call_model)
    graph.add_node("tools", tool_node)
    graph.add_node("remember", build_remember_node(pipeline))
    graph.add_edge(START, "context")
    graph.add_edge("context", "model")
    graph.add_conditional_edges("model", tools_condition, {"tools": "tools", END: "remember"})
    graph.add_edge("tools", "context")
    return graph.compile(checkpointer=InMemorySaver())


def main() -> None:
    """One turn: a tool that is not bound is searched, called and answered from."""
    search = {"query": "give money back for an order in the shop"}
    refund = {"name": "shop__refund", "arguments": '{"what": "order 4471"}'}
    answers = [
        AIMessage("", tool_calls=[{"name": "find_tools", "args": search, "id": "call-1"}]),
        AIMessage("", tool_calls=[{"name": "call_tool", "args": refund, "id": "call-2"}]),
        AIMessage("The money is on its way."),
    ]
    model = ScriptedModel(messages=iter(answers))
    config: RunnableConfig = {"configurable": {"thread_id": "shop", "user_id": "ada"}}
    question = "Cancel my order 4471, please, and then see to the rest."
    with ContextPipeline({"tool_tokens": 400}) as pipeline:
        agent = make_agent(pipeline, model, make_tools())
        state = agent.invoke({"messages": [HumanMessage(question)]}, config)
    for message in state["messages"]:
        print(f"\n{message.type}: {message.text or message.tool_calls[0]['args']}")


if __name__ == "__main__":
    main()
