"""A chain with history: every message is kept, and every prompt fits, for several users at once.

`RunnableWithMessageHistory` stores what was said; `pipeline.as_runnable()` makes the prompt of it: recent messages, a
summary of older ones, and what the question is about. Where a prompt template has a place for the history alone,
`history.window(max_tokens)` gives what stands there. LangChain has deprecated this class in favour of LangGraph: see
graph_agent.py. Runs offline with a scripted model; with OPENAI_API_KEY set it calls the real one.

    python examples/chain_with_history.py
"""

from __future__ import annotations

import os
import re
from operator import itemgetter
from typing import Any

from langchain_core._api import suppress_langchain_deprecation_warning
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.runnables import ConfigurableFieldSpec, Runnable, RunnableConfig, RunnableLambda
from langchain_core.runnables.history import RunnableWithMessageHistory

from langchain_ctxbudget import BudgetedChatMessageHistory, ContextPipeline

BUDGET_TOKENS = 500
QUESTIONS = [
    "My locker at the climbing hall is number 214. Please remember that.",
    *(f"Tell me one thing about mountain number {number}, please." for number in range(1, 40)),
    "What is the number of my locker?",
]
pipeline = ContextPipeline(
    {"max_context_tokens": BUDGET_TOKENS}, system_prompt="You are a friendly assistant."
)


def make_model() -> Runnable[Any, BaseMessage]:
    """The real model where there is a key, else the script below."""
    if os.environ.get("OPENAI_API_KEY"):
        from langchain_openai import ChatOpenAI  # noqa: PLC0415 - only with a key

        return ChatOpenAI(model="gpt-4o-mini")
    return RunnableLambda(scripted_reply)


def scripted_reply(messages: list[BaseMessage]) -> AIMessage:
    """Answer from what stands in the prompt."""
    asked = messages[-1].text.rpartition("</context>")[
        2
    ]  # what was retrieved for the user's words stands before them
    if mountain := re.search(r"mountain number \d+", asked):
        return AIMessage(f"{mountain[0].capitalize()} is worth a long day out.")
    locker = re.search(
        r"locker at the climbing hall is number (\d+)",
        "\n".join(message.text for message in messages),
    )
    return AIMessage(f"Number {locker[1]}." if locker else "I do not know.")


def session(user_id: str, session_id: str) -> BudgetedChatMessageHistory:
    """The history of one conversation.

    Made for every request, kept by the pipeline that all share.
    """
    return BudgetedChatMessageHistory(session_id, user_id=user_id, pipeline=pipeline)


def main() -> None:
    """Talk until the first message is long gone from the newest ones, ask for it, and show the last prompt."""
    prompt = pipeline.as_runnable()
    with suppress_langchain_deprecation_warning():
        chat = RunnableWithMessageHistory(
            itemgetter("question") | prompt | make_model(),
            session,
            input_messages_key="question",
            # not used by the chain; the pipeline reads what it needs
            history_messages_key="history",
            history_factory_config=[
                ConfigurableFieldSpec(id="user_id", annotation=str),
                ConfigurableFieldSpec(id="session_id", annotation=str),
            ],
        )
    config: RunnableConfig = {"configurable": {"user_id": "ada", "session_id": "climbing"}}
    count_messages = pipeline.token_counter.count_messages
    print("stored           sent")
    print("messages  tokens  messages  tokens")
    for number, question in enumerate(QUESTIONS, 1):
        stored = session("ada", "climbing").messages
        sent = prompt.invoke(question, config)
        if number % 8 == 1:
            print(
                f"{len(stored):>8}{count_messages(stored):>8,}{len(sent):>10}{count_messages(sent):>8,}"
            )
        answer = chat.invoke({"question": question}, config)
    print(f"\n{sent[-1].text}\n-> {answer.text}")
    pipeline.close()


if __name__ == "__main__":
    main()
