"""LangChain's `create_agent` with a context budget: one middleware, and nothing else changes.

The five lines marked `# new` are all that it takes. The state keeps every message; the middleware
decides before every call of the model what fits, counts system prompt and tools as they are sent,
and adds a recall tool. Runs offline with a scripted model; with OPENAI_API_KEY set it calls the
real one.

    python examples/middleware_agent.py
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from itertools import count, pairwise
from typing import Any

from langchain.agents import create_agent
from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolCall, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import Runnable, RunnableConfig
from langchain_core.tools import BaseTool, tool
from langgraph.checkpoint.memory import InMemorySaver

from langchain_ctxbudget.middleware import ContextBudgetMiddleware  # new

SYSTEM_PROMPT = "You plan journeys by train. Look things up before you answer."
STAGES = (
    "Lyon",
    "Turin",
    "Milan",
    "Verona",
    "Bolzano",
    "Innsbruck",
    "Munich",
    "Salzburg",
    "Vienna",
    "Graz",
)
QUESTIONS = [
    "We are four, and Ines cannot walk far. Please keep that in mind.",
    *(
        f"How do we get from {here} to {there}, and how will the weather be?"
        for here, there in pairwise(STAGES)
    ),
    "Who of us cannot walk far?",
]


@tool
def trains(start: str, end: str) -> str:
    """The trains of a day."""
    return "\n".join(
        f"{hour:02}:{(hour * 7 + len(start)) % 60:02} {start} - {end}, {2 + hour % 3} hours, {20 + hour} euros, "
        f"{hour % 3} changes, seats {'reserved only' if hour % 2 else 'free'}"
        for hour in range(5, 23)
    )


@tool
def weather(place: str) -> str:
    """The weather of tomorrow."""
    return f"{place}: {'rain' if len(place) % 2 else 'sun'}, {14 + len(place)} degrees."


class ScriptedModel(BaseChatModel):
    """Calls both tools where a user asks for a way, and answers from what stands in its prompt."""

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(
        self,
        tools: Sequence[dict[str, Any] | type | Callable[..., Any] | BaseTool],  # noqa: ARG002 - as the base class has it
        *,
        tool_choice: str | None = None,  # noqa: ARG002
        **_kwargs: Any,
    ) -> Runnable[LanguageModelInput, AIMessage]:
        """It knows its tools already."""
        return self

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,  # noqa: ARG002
        run_manager: CallbackManagerForLLMRun | None = None,  # noqa: ARG002
        **_kwargs: Any,
    ) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=reply(messages))])


call_ids = count(1)


def reply(messages: list[BaseMessage]) -> AIMessage:
    """What the scripted model says."""
    if isinstance(messages[-1], ToolMessage):
        timetable, forecast = (message.text for message in messages[-2:])
        return AIMessage(f"Take this one: {timetable.splitlines()[4]}. Tomorrow in {forecast}")
    asked = messages[-1].text.rpartition("</context>")[
        2
    ]  # what was retrieved for the user's words stands before them
    if way := re.search(r"from (\w+) to (\w+), and", asked):
        calls = [("trains", {"start": way[1], "end": way[2]}), ("weather", {"place": way[2]})]
        return AIMessage(
            "",
            tool_calls=[
                ToolCall(name=name, args=args, id=f"call-{next(call_ids)}") for name, args in calls
            ],
        )
    who = re.search(r"([A-Z]\w+) cannot walk far", "\n".join(message.text for message in messages))
    return AIMessage(f"{who[1]} cannot." if who and "Who" in asked else "I will.")


def make_model() -> BaseChatModel:
    """The real model where there is a key, else the scripted one."""
    if os.environ.get("OPENAI_API_KEY"):
        from langchain_openai import ChatOpenAI  # noqa: PLC0415 - only with a key

        return ChatOpenAI(model="gpt-4o-mini", temperature=0)
    return ScriptedModel()


def main() -> None:
    """A journey in many turns, and what the model saw of it."""
    budget = ContextBudgetMiddleware({"max_context_tokens": 2_500, "emphasis": "recall"})  # new
    agent = create_agent(
        make_model(),
        [trains, weather],
        system_prompt=SYSTEM_PROMPT,
        middleware=[budget],  # new
        checkpointer=InMemorySaver(),
    )
    config: RunnableConfig = {
        "configurable": {"thread_id": "journey", "user_id": "ada"}
    }  # new: the user
    count_messages = budget.pipeline.token_counter.count_messages

    print("    in the state            the turn's last prompt")
    print("messages   tokens  tokens  budget  verbatim  summarized  retrieved  omitted")
    for question in QUESTIONS:
        state = agent.invoke({"messages": [HumanMessage(question)]}, config)
        report = budget.pipeline.last_report(user_id="ada", conversation_id="journey")
        assert report is not None
        shown = report.coverage_counts()
        print(
            f"{len(state['messages']):>8}{count_messages(state['messages']):>9,}{report.total_tokens:>8,}"
            f"{report.total_tokens / report.budget_tokens:>8.0%}{shown['verbatim']:>10}{shown['summarized']:>12}"
            f"{shown['retrieved']:>11}{shown['omitted']:>9}"
        )
    print(f"\n{QUESTIONS[-1]}\n-> {state['messages'][-1].text}\n\n{report}")
    budget.pipeline.close()  # new


if __name__ == "__main__":
    main()
