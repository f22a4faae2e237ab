"""A deep agent of `deepagents` with and without our middleware: files, a list of things to do, a sub-agent, many turns.

Each turn has a model write a report with a code in it, read it, hand it to a sub-agent or note what is to be done. It
answers with the code that it sees behind the last question, and "?" where it sees none. Prints, as JSON, the answers,
what is in the agent's state at the end, and every prompt of the agent and of its sub-agent.

    python deep_agent.py TURNS BUDGET     (0: without us)
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from typing import Any

from deepagents import create_deep_agent
from langchain.agents.middleware import TodoListMiddleware
from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.checkpoint.memory import InMemorySaver

from langchain_ctxbudget import TiktokenCounter
from langchain_ctxbudget.integrations.middleware import ContextBudgetMiddleware

FILLER = "The room is dry and the shelves are in order. " * 60
COUNTER = TiktokenCounter()
PROMPTS: list[dict[str, Any]] = []


class Scripted(BaseChatModel):
    """Calls the tool that the turn asks for, then answers with the code that its prompt shows after the question."""

    who: str

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> Any:
        return self.bind(tools=tools)

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        tokens = COUNTER.count_messages(messages) + COUNTER.count_tools(kwargs.get("tools") or [])
        PROMPTS.append({"who": self.who, "tokens": tokens, "messages": [[m.type, m.text] for m in messages]})
        return ChatResult(generations=[ChatGeneration(message=self._answer(messages))])

    def _answer(self, messages: list[BaseMessage]) -> AIMessage:
        asked = max((i for i, m in enumerate(messages) if isinstance(m, HumanMessage)), default=-1)
        turn = re.findall(r"TURN (\d+): (\w+)", messages[asked].text)
        if not turn:
            return AIMessage("no question")
        number, task = int(turn[-1][0]), turn[-1][1]
        results = [message.text for message in messages[asked + 1 :] if isinstance(message, ToolMessage)]
        steps = calls(number, task)
        if len(results) < len(steps):
            name, arguments = steps[len(results)]
            call = {"name": name, "args": arguments, "id": f"{self.who}-{number}-{len(results)}", "type": "tool_call"}
            return AIMessage("", tool_calls=[call])
        return AIMessage(f"{number}: " + next(iter(re.findall(r"code-\d+", results[-1] if results else "")), "?"))


def calls(number: int, task: str) -> list[tuple[str, dict[str, Any]]]:
    """What a turn's model calls, one after the other; every last result has the code."""
    path = f"/reports/{number}.md"
    write = ("write_file", {"file_path": path, "content": f"# Report {number}\ncode-{number}\n{FILLER}"})
    read = ("read_file", {"file_path": path})
    if task == "plan":
        return [("write_todos", {"todos": [{"content": f"Check code-{number}", "status": "in_progress"}]})]
    if task == "delegate":
        return [write, ("task", {"description": f"TURN {number}: read", "subagent_type": "reader"})]
    return [read] if task == "read" else [write, read]


def main(turns: int, budget: int) -> None:
    def ours(agent: str | None = None) -> list[Any]:
        settings = {"max_context_tokens": budget}
        return [ContextBudgetMiddleware(settings, default_user="ada", agent=agent)] if budget else []

    reader: Any = {
        "name": "reader",
        "description": "Reads a report.",
        "system_prompt": "You read reports.",
        "model": Scripted(who="reader"),
        "middleware": ours("reader"),
    }
    agent = create_deep_agent(
        Scripted(who="agent"),
        subagents=[reader],
        middleware=[TodoListMiddleware(), *ours()],
        checkpointer=InMemorySaver(),
    )
    who: Any = {"configurable": {"thread_id": "reports"}, "recursion_limit": 50}
    tasks = ("report", "plan", "delegate")
    state: dict[str, Any] = {}
    answers = []
    for number in range(turns):
        asked = HumanMessage(f"TURN {number}: {tasks[number % len(tasks)]}")
        state = agent.invoke({"messages": [asked]}, who)
        answers.append(state["messages"][-1].text)
    kept = {
        "messages": [[message.type, message.text] for message in state["messages"]],
        "files": sorted(state["files"]),
        "todos": state["todos"],
    }
    print(json.dumps({"answers": answers, "state": kept, "prompts": PROMPTS}))  # noqa: T201


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
