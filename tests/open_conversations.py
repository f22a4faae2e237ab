"""Conversations in memory only, made from messages."""

from __future__ import annotations

from collections.abc import Sequence

from langchain_core.messages import BaseMessage, HumanMessage

from langchain_ctxbudget.history import Conversation, LastPrompt, OpenConversation, editing
from langchain_ctxbudget.settings import ContextSettings
from langchain_ctxbudget.stores import Scope
from langchain_ctxbudget.tokens import TiktokenCounter, TokenCounter

SCOPE = Scope("ada", "c1")
COUNTER = TiktokenCounter()


def opened(*messages: BaseMessage | str) -> OpenConversation:
    """Returns an open conversation; a text is the user's, with an id of its position: m0, m1, and so on."""
    return editing.detached(
        SCOPE, [HumanMessage(it, id=f"m{number}") if isinstance(it, str) else it for number, it in enumerate(messages)]
    )


def conversation(
    messages: Sequence[BaseMessage], counter: TokenCounter = COUNTER, turn: Sequence[BaseMessage] = ()
) -> Conversation:
    """Returns a conversation as a prompt sees it, after a prompt for a turn."""
    made = opened(*messages)
    made.last = LastPrompt(
        messages=(),
        costs=(),
        stable=0,
        long_turn=0,
        squeezed=False,
        turn=turn,
        block=None,
        settings=ContextSettings(),
        coverage=None,
    )
    return made.seen_with(counter)
