"""A LangGraph agent that looks up what its prompt no longer shows.

On the first turn a tool returns a log that is six times the budget. Thirty turns later the user
asks for one line of it. The prompt has no more of the log than a few lines of a summary; the stored
conversation has all of it, and the recall tool finds the line. Runs offline: the model follows a
script, the tools are real.

    python examples/recall_agent.py
"""

from __future__ import annotations

import re
from typing import Annotated, Any

from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import tool
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

BUDGET_TOKENS = 3_000
WANTED = "photos/7100.jpg"


@tool
def read_log() -> str:
    """The log of last night's backup."""
    return "\n".join(
        f"03:{i // 60:02}:{i % 60:02} INFO copied photos/{i * 7919 % 10_000:04}.jpg"
        for i in range(1_500)
    )


class ScriptedModel(BaseChatModel):
    """Calls a tool where a user's words ask for one, and answers from its result."""

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,  # noqa: ARG002 - as the base class has it
        run_manager: CallbackManagerForLLMRun | None = None,  # noqa: ARG002
        **_kwargs: Any,
    ) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=self._answer(messages[-1]))])

    @staticmethod
    def _answer(last: BaseMessage) -> AIMessage:
        if isinstance(last, ToolMessage):
            found = re.search(rf"\S+ INFO .*{re.escape(WANTED)}", last.text)
            return AIMessage(f"Yes: {found[0]}" if found else "It went well, as far as I can see.")
        asked = last.text.rpartition("</context>")[
            2
        ]  # the user's words stand behind what was retrieved for them
        if "read the log" in asked:
            return AIMessage(
                "",
                tool_calls=[
                    {"name": "read_log", "args": {}, "id": "call-log", "type": "tool_call"}
                ],
            )
        if WANTED in asked:
            arguments = {"query": WANTED}
            return AIMessage(
                "", tool_calls=[{"name": "recall", "args": arguments, "id": "call-recall"}]
            )
        return AIMessage("Noted.")


class Question(TypedDict):
    """What a turn begins with."""

    messages: Annotated[list[AnyMessage], add_messages]


class State(Question):
    """An agent's state.

    The context graph reads `messages` and `ctxbudget_turn`, and writes all but `messages`.
    """

    ctxbudget_turn: dict[str, Any]
    """What was retrieved for the user's words; the same for every call of the turn."""
    llm_input_messages: list[AnyMessage]
    context_report: dict[str, Any]


def make_agent(
    pipeline: ContextPipeline, model: BaseChatModel
) -> CompiledStateGraph[State, None, Question, State]:
    """Context, model, tools, and back to context; what was said is stored as the turn ends.

    Every call of the model gets a prompt that fits.
    """
    tools = [read_log, create_recall_tool(pipeline, max_tokens=600)]

    def call_model(state: State) -> dict[str, Any]:
        return {
            "messages": [model.invoke(state["llm_input_messages"])]
        }  # a real model: model.bind_tools(tools)

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


def show(turn: int, state: dict[str, Any]) -> None:
    """What the model was sent on a turn, of what there is."""
    shown = {"verbatim": 0, "summarized": 0, "retrieved": 0, "omitted": 0}
    for part in state["context_report"]["coverage"]:
        shown[part["state"]] += part["last"] - part["first"] + 1
    counts = "".join(f"{count:>12}" for count in shown.values())
    print(
        f"{turn:>4}{len(state['messages']):>10}{counts}{state['context_report']['total_tokens']:>9,}"
    )


def main() -> None:
    """Thirty-two turns on one thread."""
    config: RunnableConfig = {"configurable": {"thread_id": "backup", "user_id": "ada"}}
    with ContextPipeline(
        {"max_context_tokens": BUDGET_TOKENS}, system_prompt="You look after a backup."
    ) as pipeline:
        agent = make_agent(pipeline, ScriptedModel())
        questions = [
            "Please read the log of last night's backup.",
            *(
                f"Note for shelf {number}: the tapes of {1990 + number} are complete."
                for number in range(1, 31)
            ),
            f"Was {WANTED} copied last night, and when?",
        ]
        print(
            "turn  messages"
            + "".join(
                f"{state:>12}" for state in ("verbatim", "summarized", "retrieved", "omitted")
            )
        )
        for turn, question in enumerate(questions, 1):
            state = agent.invoke({"messages": [HumanMessage(question)]}, config)
            if turn % 8 == 0 or turn == 1:
                show(turn, state)
        log = next(message for message in state["messages"] if isinstance(message, ToolMessage))
        _, call, result, answer = state["messages"][-4:]
        print(
            f"\nThe log has {pipeline.token_counter.count_text(log.text):,} tokens; the budget is {BUDGET_TOKENS:,}."
        )
        print(
            f"\n{questions[-1]}\n-> recall({call.tool_calls[0]['args']})\n{result.text.strip()}\n-> {answer.text}"
        )


if __name__ == "__main__":
    main()
