"""Conversations and pipelines for the tests that hold the package to its specification."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage

from langchain_ctxbudget import ContextPipeline

NOW = datetime(2026, 3, 2, 18, tzinfo=UTC)
ADA: Any = {"user_id": "ada"}
C1: Any = {"user_id": "ada", "conversation_id": "c1"}


def new_pipeline(clock: Sequence[datetime] = (NOW,), **settings: Any) -> ContextPipeline:
    """A pipeline that learns nothing by itself, at the last time of a clock."""
    return ContextPipeline(
        {"learn": False, **settings}, system_prompt="You help.", clock=lambda: clock[-1]
    )


def talk(exchanges: int) -> list[BaseMessage]:
    """Exchanges of about forty words each, a minute apart."""
    messages: list[BaseMessage] = []
    growth = "They grew well. " * 6
    for number in range(exchanges):
        time = {"created_at": (NOW + timedelta(minutes=number)).isoformat()}
        trees = number * 3
        question = f"In year {number} we planted {trees} pear trees behind barn {number}. {growth}"
        messages.append(HumanMessage(question, additional_kwargs=time))
        messages.append(AIMessage(f"Noted {number}.", additional_kwargs=time))
    return messages
