"""What a turn asks of the tokenizer, the embeddings and the store does not grow with the conversation."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterable
from statistics import median
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langgraph.store.base import Op
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import ContextPipeline
from tests.conversations import BagOfWords

SCOPE = {"user_id": "ada", "conversation_id": "c1"}
PROMPTS, MOST_TOKENIZED = 5, 32
"""Of a prompt: the new messages and the lines that quote them, the question, the block, and some passages."""


class Counting(InMemoryStore):
    def __init__(self) -> None:
        super().__init__()
        self.operations = self.characters = 0

    def batch(self, ops: Iterable[Op]) -> list[Any]:
        asked = list(ops)
        found = super().batch(asked)
        if threading.current_thread() is threading.main_thread():  # sealing in the background is no turn's work
            self.operations += len(asked)
            self.characters += len(repr(asked)) + len(repr(found))
        return found


def work(length: int) -> tuple[list[int], ...]:
    """Returns the texts tokenized and embedded, the store operations and their characters of each of a few turns."""
    rng = random.Random(length)
    words = [f"w{number}" for number in range(500)]

    def said(number: int) -> BaseMessage:
        return (HumanMessage, AIMessage)[number % 2](" ".join(rng.choices(words, k=12)), id=f"m{number}")

    store, embeddings = Counting(), BagOfWords()
    tokenized, embedded, operations, characters = [], [], [], []
    with ContextPipeline({"max_context_tokens": 4_096, "learn": False}, store=store, embeddings=embeddings) as pipeline:
        pipeline.add_messages([said(number) for number in range(length)], **SCOPE)
        for prompt in range(PROMPTS + 1):
            store.operations, store.characters, embeddings.asked = 0, 0, []
            pipeline.add_messages([said(length + 2 * prompt), said(length + 2 * prompt + 1)], **SCOPE)
            context = pipeline.assemble(f"What of w{prompt} and w{prompt + 9}?", **SCOPE)
            tokenized.append(context.report.tokenizer_calls)
            embedded.append(len(embeddings.asked))
            operations.append(store.operations)
            characters.append(store.characters)
    return tokenized[1:], embedded[1:], operations[1:], characters[1:]


@pytest.mark.parametrize("lengths", [(300, 5_000), pytest.param((1_000, 50_000), marks=pytest.mark.slow)])
def test_it_is_the_same_in_a_short_and_in_a_long_conversation(lengths: tuple[int, int]) -> None:
    short, long = map(work, lengths)
    assert max(*short[0], *long[0]) <= MOST_TOKENIZED
    *short_counts, short_size = [median(each) for each in short]  # a step of compaction writes its cut
    *long_counts, long_size = [median(each) for each in long]
    assert short_counts == long_counts
    assert long_size <= 1.1 * short_size  # numbers are longer
