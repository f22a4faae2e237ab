"""A chain whose history is kept whole and sent within a budget, for several users at once.

`RunnableWithMessageHistory` stores what was said; a step in front of the prompt puts a window of it in. LangChain has
deprecated this class in favour of LangGraph: see graph_agent.py. Runs offline with a scripted model; with
OPENAI_API_KEY set it calls the real one.

    python examples/chain_with_history.py
"""

from __future__ import annotations

import os
import warnings

from langchain_core._api import LangChainDeprecationWarning
from langchain_core.language_models import BaseChatModel, FakeListChatModel
from langchain_core.messages import BaseMessage
from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder
from langchain_core.runnables import ConfigurableFieldSpec, RunnableConfig, RunnableLambda, RunnablePassthrough
from langchain_core.runnables.history import RunnableWithMessageHistory

from langchain_ctxbudget import BudgetedChatMessageHistory, ContextPipeline

HISTORY_TOKENS = 500
QUESTIONS = [
    "My locker at the climbing hall is number 214. Please remember that.",
    *(f"Tell me one thing about mountain number {number}, please." for number in range(1, 40)),
    "Which mountain did we speak of last?",
]
pipeline = ContextPipeline()


def make_model() -> BaseChatModel:
    """The real model where there is a key, else one that says its lines."""
    if os.environ.get("OPENAI_API_KEY"):
        from langchain_openai import ChatOpenAI  # noqa: PLC0415 - only with a key

        return ChatOpenAI(model="gpt-4o-mini")
    remarks = [f"Mountain number {number} is worth a long day out." for number in range(1, 40)]
    return FakeListChatModel(responses=["Noted.", *remarks, "Of number 39."])


def session(user_id: str, conversation_id: str) -> BudgetedChatMessageHistory:
    """The history of one conversation: made for every request, kept by the pipeline that all share."""
    return BudgetedChatMessageHistory(conversation_id, user_id=user_id, pipeline=pipeline)


def budgeted(_input: object, config: RunnableConfig) -> list[BaseMessage]:
    """What of this request's history stands in the prompt."""
    history: BudgetedChatMessageHistory = config["configurable"]["message_history"]
    return history.window(HISTORY_TOKENS)


async def abudgeted(_input: object, config: RunnableConfig) -> list[BaseMessage]:
    """What of this request's history stands in the prompt; for `ainvoke` and `astream`."""
    history: BudgetedChatMessageHistory = config["configurable"]["message_history"]
    return await history.awindow(HISTORY_TOKENS)


def main() -> None:
    """Talk for longer than the window is, and show what the last prompt would have been."""
    prompt = ChatPromptTemplate(
        [("system", "You are a friendly assistant."), MessagesPlaceholder("history"), ("human", "{question}")]
    )
    chain = RunnablePassthrough.assign(history=RunnableLambda(budgeted, abudgeted)) | prompt | make_model()
    warnings.simplefilter("ignore", LangChainDeprecationWarning)
    chat = RunnableWithMessageHistory(
        chain,
        session,
        input_messages_key="question",
        history_messages_key="history",
        history_factory_config=[
            ConfigurableFieldSpec(id="user_id", annotation=str),
            ConfigurableFieldSpec(id="conversation_id", annotation=str),
        ],
    )
    for question in QUESTIONS:
        answer = chat.invoke(
            {"question": question}, {"configurable": {"user_id": "ada", "conversation_id": "climbing"}}
        )
    history = session("ada", "climbing")
    window = history.window(HISTORY_TOKENS)
    for message in window:
        print(f"{message.type}: {message.text}")
    print()
    print(f"assistant: {answer.text}")
    count_messages = pipeline.token_counter.count_messages
    stored = history.messages
    print(f"stored: {len(stored)} messages of {count_messages(stored):,} tokens")
    print(f"window: {len(window)} messages of {count_messages(window):,} tokens")
    pipeline.close()


if __name__ == "__main__":
    main()
