"""Conversations in memory only, made from messages, and embeddings to search them with."""

from collections.abc import Sequence
from dataclasses import replace

from langchain_core.embeddings import Embeddings
from langchain_core.messages import BaseMessage, HumanMessage

from langchain_ctxbudget.history import (
    Conversation,
    LastPrompt,
    OpenConversation,
    SentWith,
    editing,
)
from langchain_ctxbudget.settings import ContextSettings
from langchain_ctxbudget.stores import Scope
from langchain_ctxbudget.tokens import TiktokenCounter, TokenCounter
from tests.stores import embed

SCOPE = Scope("ada", "c1")
COUNTER = TiktokenCounter()
NO_PROMPT = LastPrompt(
    messages=(),
    costs=(),
    stable=0,
    turn_state=(0, 0),
    squeezed=False,
    turn=(),
    background=None,
    settings=ContextSettings(),
    coverage=None,
    sent_with=SentWith(model="", system_prompt="", tools=()),
)


def opened(*messages: BaseMessage | str) -> OpenConversation:
    """An open conversation; texts become messages of the user with the ids m0, m1, ..."""
    held: list[BaseMessage] = []
    for number, message in enumerate(messages):
        if isinstance(message, str):
            held.append(HumanMessage(message, id=f"m{number}"))
        else:
            held.append(message)
    conversation = OpenConversation(SCOPE)
    editing.hold(conversation, held)
    return conversation


def conversation(
    messages: Sequence[BaseMessage | str],
    counter: TokenCounter = COUNTER,
    turn: Sequence[BaseMessage] = (),
) -> Conversation:
    conversation = opened(*messages)
    conversation.last = replace(NO_PROMPT, turn=turn)
    return conversation.seen_with(counter)


class BagOfWords(Embeddings):
    def __init__(self) -> None:
        self.asked: list[str] = []

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        self.asked += texts
        return embed(texts)

    def embed_query(self, text: str) -> list[float]:
        return embed([text])[0]
