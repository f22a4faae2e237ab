"""What a turn asks of the tokenizer, the embeddings and the store does not grow with the conversation."""

import random
import threading
from collections.abc import Callable, Iterable
from statistics import median
from typing import Any

import numpy as np
import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langgraph.store.base import Op
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import ContextPipeline, TiktokenCounter
from langchain_ctxbudget.history import other_threads
from tests.conversations import BagOfWords

SCOPE = {"user_id": "ada", "conversation_id": "c1"}
PROMPTS = 5
MOST_TOKENIZED = 32
"""Of a prompt: the new messages and the lines that quote them, the question, the block, and some
passages."""


class Counting(InMemoryStore):
    def __init__(self) -> None:
        super().__init__()
        self.operations = self.characters = 0

    def batch(self, ops: Iterable[Op]) -> list[Any]:
        asked = list(ops)
        found = super().batch(asked)
        if (
            threading.current_thread() is threading.main_thread()
        ):  # sealing in the background is no turn's work
            self.operations += len(asked)
            self.characters += len(repr(asked)) + len(repr(found))
        return found


def work(length: int) -> tuple[list[int], ...]:
    """Returns the texts tokenized and embedded, the store operations and their characters of each of a few turns."""
    rng = random.Random(length)
    words = [f"w{number}" for number in range(500)]

    def said(number: int) -> BaseMessage:
        return (HumanMessage, AIMessage)[number % 2](
            " ".join(rng.choices(words, k=12)), id=f"m{number}"
        )

    store = Counting()
    embeddings = BagOfWords()
    tokenized = []
    embedded = []
    operations = []
    characters = []
    with ContextPipeline(
        {"max_context_tokens": 4_096, "learn": False}, store=store, embeddings=embeddings
    ) as pipeline:
        pipeline.add_messages([said(number) for number in range(length)], **SCOPE)
        for prompt in range(PROMPTS + 1):
            store.operations = 0
            store.characters = 0
            embeddings.asked = []
            pipeline.add_messages(
                [said(length + 2 * prompt), said(length + 2 * prompt + 1)], **SCOPE
            )
            context = pipeline.assemble(f"What of w{prompt} and w{prompt + 9}?", **SCOPE)
            tokenized.append(context.report.tokenizer_calls)
            embedded.append(len(embeddings.asked))
            operations.append(store.operations)
            characters.append(store.characters)
    return tokenized[1:], embedded[1:], operations[1:], characters[1:]


@pytest.mark.parametrize(
    "lengths", [(300, 5_000), pytest.param((1_000, 50_000), marks=pytest.mark.slow)]
)
def test_it_is_the_same_in_a_short_and_in_a_long_conversation(lengths: tuple[int, int]) -> None:
    short, long = map(work, lengths)
    assert max(*short[0], *long[0]) <= MOST_TOKENIZED
    *short_counts, short_size = [
        median(each) for each in short
    ]  # a step of compaction writes its cut
    *long_counts, long_size = [median(each) for each in long]
    assert short_counts == long_counts
    assert long_size <= 1.1 * short_size  # numbers are longer


class CountingCounter(TiktokenCounter):
    counted = 0

    def count_message(self, message: BaseMessage) -> int:
        type(self).counted += 1
        return super().count_message(message)


def turn_of(calls: int) -> list[BaseMessage]:
    turn: list[BaseMessage] = [HumanMessage("Find the leak.", id="job")]
    for n in range(calls):
        turn.append(
            AIMessage(
                "", id=f"c{n}", tool_calls=[{"name": "look", "args": {"at": n}, "id": f"t{n}"}]
            )
        )
        turn.append(ToolMessage(f"Valve {n} is shut, " * 8, id=f"r{n}", tool_call_id=f"t{n}"))
    return turn


def test_a_call_of_an_agent_counts_no_more_messages_late_in_its_turn_than_early() -> None:
    turn = turn_of(400)
    counted = {}
    with ContextPipeline(
        {"max_context_tokens": 4_096, "learn": False}, token_counter=CountingCounter()
    ) as pipeline:
        for calls in range(401):
            CountingCounter.counted = 0
            pipeline.assemble(
                turn[: 1 + 2 * calls], tools=[{"name": "look", "description": "Looks."}], **SCOPE
            )
            counted[calls] = CountingCounter.counted
    early, late = ([counted[calls] for calls in range(end - 100, end)] for end in (200, 400))
    assert sum(late) <= 1.05 * sum(early)


def change_content(turn: list[BaseMessage]) -> None:
    turn[8].content = "Valve 3 is open."


def change_block(turn: list[BaseMessage]) -> None:
    turn[8].content[1]["text"] = "Valve 3 is open. " * 900  # type: ignore[index]


def change_calls(turn: list[BaseMessage]) -> None:
    turn[7].tool_calls = []  # type: ignore[attr-defined]


def change_args(turn: list[BaseMessage]) -> None:
    turn[7].tool_calls[0]["args"]["at"] = "the second floor " * 100  # type: ignore[attr-defined]


def change_name(turn: list[BaseMessage]) -> None:
    turn[0].name = "Bob of the second floor"


def change_mark(turn: list[BaseMessage]) -> None:
    turn[0].additional_kwargs["function_call"] = {"name": "look", "arguments": "{}"}


def change_status(turn: list[BaseMessage]) -> None:
    turn[8].status = "error"  # type: ignore[attr-defined]


CHANGES = [
    change_content,
    change_block,
    change_calls,
    change_args,
    change_name,
    change_mark,
    change_status,
]


def turn_with_blocks() -> list[BaseMessage]:
    turn = turn_of(6)
    turn[8].content = [
        {"type": "image", "url": "https://valves.example/3.png"},
        {"type": "text", "text": "It is shut."},
    ]
    return turn


@pytest.mark.parametrize("change", CHANGES)
def test_a_message_of_the_turn_that_is_changed_in_place_is_read_again(
    change: Callable[[list[BaseMessage]], None],
) -> None:
    def prompts(*, known: bool) -> list[tuple[list[BaseMessage], int]]:
        turn = turn_with_blocks()
        with ContextPipeline({"max_context_tokens": 4_096, "learn": False}) as pipeline:
            if known:
                pipeline.assemble(turn, **SCOPE)
            change(turn)
            contexts = [pipeline.assemble(turn, **SCOPE) for _ in range(2)]
        return [(context.messages, context.report.total_tokens) for context in contexts]

    assert prompts(known=True) == prompts(known=False)


@pytest.mark.parametrize("change", CHANGES)
def test_a_message_of_an_agents_history_is_stored_as_it_is_changed_in_place(
    change: Callable[[list[BaseMessage]], None],
) -> None:
    history = turn_with_blocks()
    with ContextPipeline({"learn": False}) as pipeline:
        for _ in range(2):
            pipeline.sync(history, **SCOPE)
        change(history)
        pipeline.sync(history, **SCOPE)
        assert pipeline.get_messages(**SCOPE) == history


def test_a_message_of_an_agents_history_that_is_changed_in_place_is_an_edit() -> None:
    history: list[BaseMessage] = [
        HumanMessage("My bike is blue.", id="a"),
        AIMessage("Noted.", id="b"),
    ]
    with ContextPipeline({"learn": False}) as pipeline:
        for text, mark in (
            ("My bike is blue.", None),
            ("My bike is red.", None),
            ("My bike is red.", "keep"),
        ):
            history[0].content = text
            history[0].additional_kwargs.update({"ctxbudget": mark} if mark else {})
            pipeline.sync(history, **SCOPE)
            stored = pipeline.get_messages(**SCOPE)[0]
            assert (stored.content, stored.additional_kwargs.get("ctxbudget")) == (text, mark)


def test_what_cannot_say_whether_it_is_equal_is_taken_for_changed() -> None:
    asked = HumanMessage("Hi", id="q", additional_kwargs={"vector": np.array([1.0, 2.0])})
    with ContextPipeline({"learn": False}) as pipeline:
        for answer in (AIMessage("One.", id="a"), AIMessage("Two.", id="b")):
            assert pipeline.assemble([asked, answer], **SCOPE).messages[-1].text == answer.text
            pipeline.sync([asked, answer], user_id="ada", conversation_id="state")


def test_messages_of_other_conversations_are_made_candidates_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[object] = []
    real = other_threads.OtherMessage

    def counted(**given: Any) -> object:
        made.append(given["place"])
        return real(**given)

    monkeypatch.setattr(other_threads, "OtherMessage", counted)
    pipeline = ContextPipeline({"learn": False})
    pipeline.conversation("old", user_id="ada").add(
        HumanMessage("My bike is blue."), HumanMessage("My car is red.")
    )
    chat = pipeline.conversation("new", user_id="ada")
    for question in ("Which colour is my bike?", "Which colour is my car?"):
        chat.assemble(question)
    assert sorted(made) == [0, 1]
