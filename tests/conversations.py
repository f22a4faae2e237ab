"""Conversations in memory, and embeddings to search them with."""

from __future__ import annotations

from collections.abc import Sequence

from langchain_core.embeddings import Embeddings
from langchain_core.messages import BaseMessage, HumanMessage

from langchain_ctxbudget.history import Conversation, editing
from langchain_ctxbudget.stores import Scope
from langchain_ctxbudget.tokens import TiktokenCounter, TokenCounter
from tests.store_contract import embed

TIKTOKEN = TiktokenCounter()


def conversation(messages: Sequence[BaseMessage | str], counter: TokenCounter = TIKTOKEN) -> Conversation:
    """Returns a conversation of messages; a text is a user's message, `m0` where it is the first, and so on."""
    said = [HumanMessage(m, id=f"m{i}") if isinstance(m, str) else m for i, m in enumerate(messages)]
    return editing.detached(Scope("ada", "c1"), said).seen_with(counter)


class BagOfWords(Embeddings):
    """Embeddings that note the texts they are asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        self.asked += texts
        return embed(texts)

    def embed_query(self, text: str) -> list[float]:
        return embed([text])[0]
