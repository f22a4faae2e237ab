"""The retriever twice: in a chain that feeds a prompt, and as a tool that an agent calls.

Ada has talked about many things in two conversations. Her questions in new ones are answered from
what she said then, within 60 tokens; Bo, who asks the same retriever, finds nothing of hers. Runs
offline: the model follows a script, the search is real.

    python examples/retriever_chain.py
"""

from __future__ import annotations

from operator import itemgetter
from typing import Any

from langchain_core.documents import Document
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langchain_core.prompt_values import PromptValue
from langchain_core.prompts import ChatPromptTemplate, PromptTemplate
from langchain_core.runnables import Runnable, RunnableConfig, RunnableLambda
from langchain_core.tools import create_retriever_tool
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import MessagesState
from langgraph.prebuilt import ToolNode, tools_condition

from langchain_ctxbudget import BudgetedRetriever, ContextPipeline

SAID = {
    "climbing": [
        "My locker at the climbing hall is number 214.",
        *(f"Route {number} has {number * 3 % 7 + 2} holds too few." for number in range(1, 40)),
    ],
    "garden": [
        *(f"Bed {number} was watered in the morning." for number in range(1, 40)),
        "The plumber for the garden hose is Ines Halm, and she comes on Tuesdays.",
    ],
}
LINE = PromptTemplate.from_template("- {speaker}: {page_content}")


def make_pipeline() -> ContextPipeline:
    """Two conversations of one user, as any of the package's ways in would have stored them."""
    pipeline = ContextPipeline()
    for conversation_id, said in SAID.items():
        pipeline.add_messages(
            [HumanMessage(text) for text in said], user_id="ada", conversation_id=conversation_id
        )
    return pipeline


def as_lines(documents: list[Document]) -> str:
    """What was found, as the prompt shows it."""
    return (
        "\n".join(
            LINE.format(page_content=found.page_content, **found.metadata) for found in documents
        )
        or "nothing"
    )


def reply(prompt: PromptValue) -> str:
    """The model's part: the first line of what was found."""
    found = prompt.to_messages()[0].text.splitlines()[1]
    return f"You said: {found.removeprefix('- user: ')}" if found != "nothing" else "I do not know."


def make_chain(retriever: BudgetedRetriever) -> Runnable[Any, str]:
    """Retrieve, fill the prompt, answer."""
    prompt = ChatPromptTemplate(
        [("system", "What the user said before:\n{found}"), ("human", "{question}")]
    )
    found = itemgetter("question") | retriever | as_lines
    return {"found": found, "question": itemgetter("question")} | prompt | RunnableLambda(reply)


def make_agent(retriever: BudgetedRetriever) -> Any:
    """A model and its tool; whose conversations are searched says the run, never the model."""
    tool = create_retriever_tool(
        retriever, "search_memory", "Search what the user said in any conversation."
    )

    def call_model(state: MessagesState) -> dict[str, list[AnyMessage]]:
        last = state["messages"][-1]
        if isinstance(last, HumanMessage):
            call = {"name": "search_memory", "args": {"query": last.text}, "id": "call-1"}
            return {
                "messages": [AIMessage("", tool_calls=[call])]
            }  # a real model: model.bind_tools([tool])
        return {
            "messages": [
                AIMessage(
                    f"You said: {last.text.splitlines()[0]}" if last.text else "I do not know."
                )
            ]
        }

    graph = StateGraph(MessagesState)
    graph.add_node("model", call_model)
    graph.add_node("tools", ToolNode([tool]))
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", tools_condition, {"tools": "tools", END: END})
    graph.add_edge("tools", "model")
    return graph.compile()


def main() -> None:
    """One question through the chain, one through the agent, for two users."""
    with make_pipeline() as pipeline:
        retriever = BudgetedRetriever(pipeline=pipeline, k=3, max_tokens=60)
        chain = make_chain(retriever)
        agent = make_agent(retriever)
        for user in ("ada", "bo"):
            config: RunnableConfig = {"configurable": {"user_id": user}}
            locker = "What is the number of my locker?"
            plumber = "Who is the plumber, and when does she come?"
            print(f"{user}, chain: {locker}\n-> {chain.invoke({'question': locker}, config)}")
            state = agent.invoke({"messages": [HumanMessage(plumber)]}, config)
            print(f"{user}, agent: {plumber}\n-> {state['messages'][-1].text}")
            for found in retriever.invoke(plumber, config, k=1):
                print("   found in {found_in}, {title}: {tokens} tokens".format(**found.metadata))


if __name__ == "__main__":
    main()
