"""Conversations, settings and rows for the tests that hold the package to its specification."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage

from langchain_ctxbudget import ContextPipeline
from langchain_ctxbudget.errors import CtxBudgetError

NOW = datetime(2026, 3, 2, 18, tzinfo=UTC)
ADA: Any = {"user_id": "ada"}
C1: Any = {"user_id": "ada", "conversation_id": "c1"}


class Row(NamedTuple):
    """A line of a table."""

    says: str
    call: Callable[[], object]
    expected: object


def pipeline(clock: Sequence[datetime] = (NOW,), **settings: Any) -> ContextPipeline:
    """A pipeline that learns nothing by itself, at the last time of a clock."""
    return ContextPipeline(
        {"learn": False, **settings}, system_prompt="You help.", clock=lambda: clock[-1]
    )


def talk(number: int, words: int = 40, at: datetime = NOW) -> list[BaseMessage]:
    """Exchanges of about so many words each, a minute apart."""
    messages: list[BaseMessage] = []
    growth = "They grew well. " * (words // 6)
    for n in range(number):
        time = {"created_at": (at + timedelta(minutes=n)).isoformat()}
        text = f"In year {n} we planted {n * 3} pear trees behind barn {n}. {growth}"
        messages.append(HumanMessage(text, additional_kwargs=time))
        messages.append(AIMessage(f"Noted {n}.", additional_kwargs=time))
    return messages


def refused(call: Callable[[], object]) -> str:
    """The name of the error that a call is refused with."""
    try:
        call()
    except CtxBudgetError as error:
        return type(error).__name__
    return "none"
