"""A ReAct agent.

A context node in front of the model, tools behind it, and a result of 30,000 tokens.

The state keeps every message as the tools gave it. The context node decides before every call of
the model what fits, and says how much of the prompt is as it was at the call before, which is what
providers cache. What the prompt no longer shows, the agent looks up with the recall tool. Runs
offline with a scripted model; with OPENAI_API_KEY set it calls the real one.

    python examples/react_agent.py
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from itertools import count
from typing import Annotated, Any

from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    BaseMessage,
    HumanMessage,
    ToolCall,
    ToolMessage,
)
from langchain_core.runnables import Runnable, RunnableConfig, RunnableLambda
from langchain_core.tools import BaseTool, tool
from langgraph.channels.untracked_value import UntrackedValue
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
    create_recall_tool,
)

BUDGET_TOKENS = 4_000
SHOWN = 56
"""Characters of a message in the table."""
QUESTIONS = [
    "Get the list of all parts, please, and tell me how many there are.",
    "Order 20 of P-0004 and 5 of P-1002.",
    "Thanks. The drill press was serviced on Monday; its next service is in May.",
    "Order 12 of P-0640.",
    "The new apprentice is called Noor and starts on the 3rd.",
    "When is the next service of the drill press?",
    "And on which shelf is P-0617?",
]


@tool
def list_parts() -> str:
    """Every part of the workshop: number, name, shelf, stock."""
    kinds = ("hex bolt", "washer", "bearing", "spring", "gasket", "flange", "coupling", "seal")
    return "\n".join(
        f"P-{n:04} {kinds[n % 8]} {4 + n * 37 % 90} mm, shelf {1 + n * 11 % 40}-{'ABCDEF'[n % 6]}, "
        f"{n * 53 % 97} in stock"
        for n in range(1, 1_561)
    )


@tool
def order(part: str, quantity: int) -> str:
    """Order a part."""
    return f"Ordered: {quantity} x {part}, here on Friday."


TOOLS = [list_parts, order]


class Question(TypedDict):
    """What a turn begins with."""

    messages: Annotated[list[AnyMessage], add_messages]


class State(Question):
    """The agent's state.

    The context node reads `messages` and `ctxbudget_turn`, and writes all but `messages`.
    """

    ctxbudget_turn: dict[str, Any]
    """What was retrieved for the user's words; the same for every call of the turn, also after an
    interrupt."""
    llm_input_messages: list[AnyMessage]
    context_report: Annotated[dict[str, Any], UntrackedValue]
    """Of the newest prompt; not worth a checkpoint."""


def make_model(tools: list[BaseTool]) -> Runnable[Any, BaseMessage]:
    """The real model where there is a key, else the script below."""
    if os.environ.get("OPENAI_API_KEY"):
        from langchain_openai import ChatOpenAI  # noqa: PLC0415 - only with a key

        return ChatOpenAI(model="gpt-4o-mini", temperature=0).bind_tools(tools)
    return RunnableLambda(scripted_reply)


def scripted_reply(messages: list[BaseMessage]) -> AIMessage:
    """Call a tool where the user's words ask for one, and answer from what stands in the prompt."""
    asked = next(m for m in reversed(messages) if isinstance(m, HumanMessage)).text.rpartition(
        "</context>"
    )[2]
    seen = "\n".join(message.text for message in messages[1:])
    shelf_of = re.search(r"shelf is (P-\d+)", asked)
    if shelf_of and (line := re.search(rf"{shelf_of[1]} .*shelf (\S+),", seen)):
        return AIMessage(f"On shelf {line[1]}.")
    last = messages[-1]
    if isinstance(last, ToolMessage):
        return AIMessage(
            f"There are 1,560 parts. The first: {last.text[:40]}..."
            if "list" in asked
            else last.text
        )
    if "list of all parts" in asked:
        return called("list_parts")
    if "Order" in asked:
        orders = re.findall(r"(\d+) of (P-\d+)", asked)
        return called(
            "order", *({"part": part, "quantity": int(quantity)} for quantity, part in orders)
        )
    if shelf_of:
        return called("recall", {"query": shelf_of[1]})
    service = re.search(r"its next service is (in \w+)", seen)
    return AIMessage(f"The drill press: {service[1]}." if service and "when" in asked else "Noted.")


_call_ids = count(1)


def called(name: str, *arguments: dict[str, Any]) -> AIMessage:
    """A message that calls a tool, as often as there are arguments, and at least once."""
    calls = [
        ToolCall(name=name, args=args, id=f"call-{next(_call_ids)}") for args in arguments or ({},)
    ]
    return AIMessage("", tool_calls=calls)


def make_agent(
    pipeline: ContextPipeline, watch: Callable[[State], None]
) -> CompiledStateGraph[State, None, Question, State]:
    """Context, model, tools, and back to context; what was said is stored as the turn ends.

    Every call of the model gets a prompt that fits.
    """
    tools = [*TOOLS, create_recall_tool(pipeline, max_tokens=800)]
    model = make_model(tools)

    def call_model(state: State) -> dict[str, Any]:
        watch(state)
        return {"messages": [model.invoke(state["llm_input_messages"])]}

    graph = StateGraph(State, input_schema=Question)
    graph.add_node("context", build_context_graph(pipeline, tools=tools, report="numbers"))
    graph.add_node("model", call_model)
    graph.add_node("tools", ToolNode(tools))
    graph.add_node("remember", build_remember_node(pipeline))
    graph.add_edge(START, "context")
    graph.add_edge("context", "model")
    graph.add_conditional_edges("model", tools_condition, {"tools": "tools", END: "remember"})
    graph.add_edge("tools", "context")
    return graph.compile(checkpointer=InMemorySaver())


def main() -> None:
    """A few turns on one thread, each with as many calls of the model as it needs."""
    config: RunnableConfig = {"configurable": {"thread_id": "workshop", "user_id": "ada"}}
    sent: list[int] = []
    with ContextPipeline(
        {"max_context_tokens": BUDGET_TOKENS}, system_prompt="You run a workshop."
    ) as pipeline:

        def watch(state: State) -> None:
            messages = state["messages"]
            report = state["context_report"]
            sent.append(report["total_tokens"])
            same = report["stability"]["prompt_share"]
            what = messages[-1].text.replace("\n", " ")
            print(
                f"{len(messages):>8}{pipeline.token_counter.count_messages(messages):>9,}{sent[-1]:>8,}"
                f"{sent[-1] / report['budget_tokens']:>8.0%}{'-' if same is None else f'{same:.0%}':>8}"
                f"  {messages[-1].type:>5}: {what if len(what) <= SHOWN else what[: SHOWN - 3] + '...'}"
            )

        agent = make_agent(pipeline, watch)
        print("    in the state            sent to the model")
        print("messages   tokens  tokens  budget  as last  in reply to")
        for question in QUESTIONS:
            said = agent.invoke({"messages": [HumanMessage(question)]}, config)["messages"]
        print(
            f"\n{len(sent)} calls of the model; the largest prompt has {max(sent):,} tokens of {BUDGET_TOKENS:,}.\n"
        )
        for message in said[max(n for n, m in enumerate(said) if isinstance(m, HumanMessage)) :]:
            calls = ", ".join(
                f"{call['name']}({call['args']})" for call in getattr(message, "tool_calls", ())
            )
            print(f"{message.type + ':':<7}{message.text.strip() or calls}")


if __name__ == "__main__":
    main()
