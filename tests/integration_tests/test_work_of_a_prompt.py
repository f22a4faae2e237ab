"""What a prompt asks of tokenizer, embeddings and store does not grow with the conversation.

What is changed in place is read again nevertheless.
"""

import random
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np
import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolCall, ToolMessage
from langgraph.store.base import Op
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import ContextPipeline, TiktokenCounter
from langchain_ctxbudget.history import other_threads
from tests.conversations import BagOfWords

SCOPE: dict[str, Any] = {"user_id": "ada", "conversation_id": "c1"}
PROMPTS = 5
MOST_TOKENIZED = 32
"""Of a prompt: the new messages and the lines that quote them, the question, the background, and
some passages."""


class Counting(InMemoryStore):
    """A store that counts what turns ask for, and how many characters go there and back."""

    def __init__(self) -> None:
        super().__init__()
        self.reset()

    def reset(self) -> None:
        self.operations = 0
        self.characters = 0

    def batch(self, ops: Iterable[Op]) -> list[Any]:
        operations = list(ops)
        results = super().batch(operations)
        # What the background seals is no turn's work.
        if threading.current_thread() is threading.main_thread():
            self.operations += len(operations)
            self.characters += len(repr(operations)) + len(repr(results))
        return results


@dataclass(frozen=True)
class Work:
    """What a turn has asked for."""

    tokenized: int
    """Texts."""
    embedded: int
    """Texts."""
    operations: int
    """Of the store."""
    characters: int
    """Of what the store got and gave."""


class LongConversation:
    """A conversation of so many messages of twelve words each."""

    def __init__(self, length: int) -> None:
        self._rng = random.Random(length)
        self._words = [f"w{number}" for number in range(500)]
        self._length = 0
        self.store = Counting()
        self.embeddings = BagOfWords()
        self.pipeline = ContextPipeline(
            {"max_context_tokens": 4_096, "learn": False},
            store=self.store,
            embeddings=self.embeddings,
        )
        self.add(length)

    def add(self, count: int) -> None:
        messages: list[BaseMessage] = []
        for number in range(self._length, self._length + count):
            text = " ".join(self._rng.choices(self._words, k=12))
            if number % 2 == 0:
                messages.append(HumanMessage(text, id=f"m{number}"))
            else:
                messages.append(AIMessage(text, id=f"m{number}"))
        self.pipeline.add_messages(messages, **SCOPE)
        self._length += count

    def work_of_turn(self, number: int) -> Work:
        """Adds an exchange, and asks a question."""
        self.store.reset()
        self.embeddings.asked = []
        self.add(2)
        context = self.pipeline.assemble(f"What of w{number} and w{number + 9}?", **SCOPE)
        return Work(
            tokenized=context.report.tokenizer_calls,
            embedded=len(self.embeddings.asked),
            operations=self.store.operations,
            characters=self.store.characters,
        )


def work_of_turns(length: int) -> list[Work]:
    """The work of some turns behind the first one, which reads the conversation."""
    conversation = LongConversation(length)
    with conversation.pipeline:
        conversation.work_of_turn(0)
        return [conversation.work_of_turn(number) for number in range(1, PROMPTS + 1)]


@dataclass(frozen=True)
class ShortAndLong:
    """The work of turns in a short and in a long conversation."""

    short: list[Work]
    long: list[Work]


@pytest.fixture(
    scope="module",
    params=[(300, 1_500), pytest.param((1_000, 20_000), marks=pytest.mark.slow)],
    ids=["1,500 messages", "20,000 messages"],
)
def work(request: pytest.FixtureRequest) -> ShortAndLong:
    short, long = request.param
    return ShortAndLong(work_of_turns(short), work_of_turns(long))


def test_a_prompt_tokenizes_a_few_texts(work: ShortAndLong) -> None:
    assert max(turn.tokenized for turn in work.short) <= MOST_TOKENIZED
    assert max(turn.tokenized for turn in work.long) <= MOST_TOKENIZED


# Medians, as a prompt that is rebuilt writes its cut.


def test_a_long_conversation_tokenizes_as_many_texts(work: ShortAndLong) -> None:
    short = median(turn.tokenized for turn in work.short)

    assert median(turn.tokenized for turn in work.long) == short


def test_a_long_conversation_embeds_as_many_texts(work: ShortAndLong) -> None:
    short = median(turn.embedded for turn in work.short)

    assert median(turn.embedded for turn in work.long) == short


def test_a_long_conversation_asks_the_store_as_often(work: ShortAndLong) -> None:
    short = median(turn.operations for turn in work.short)

    assert median(turn.operations for turn in work.long) == short


def test_a_long_conversation_moves_as_many_characters(work: ShortAndLong) -> None:
    """But for numbers, which are longer in it."""
    short = median(turn.characters for turn in work.short)

    assert median(turn.characters for turn in work.long) <= 1.1 * short


# -- an agent's long turn


class CountingCounter(TiktokenCounter):
    counted = 0

    def count_message(self, message: BaseMessage) -> int:
        type(self).counted += 1
        return super().count_message(message)


def turn_of(calls: int) -> list[BaseMessage]:
    """A job, and so many calls with their results."""
    turn: list[BaseMessage] = [HumanMessage("Find the leak.", id="job")]
    for number in range(calls):
        call = ToolCall(name="look", args={"at": number}, id=f"t{number}")
        result = f"Valve {number} is shut, " * 8
        turn.append(AIMessage("", id=f"c{number}", tool_calls=[call]))
        turn.append(ToolMessage(result, id=f"r{number}", tool_call_id=f"t{number}"))
    return turn


def messages_counted(pipeline: ContextPipeline, turn: list[BaseMessage], calls: range) -> int:
    """The messages that are counted for some calls of a model, one after the other."""
    tools = [{"name": "look", "description": "Looks."}]
    CountingCounter.counted = 0
    for number in calls:
        pipeline.assemble(turn[: 1 + 2 * number], tools=tools, **SCOPE)
    return CountingCounter.counted


@pytest.mark.slow
def test_a_call_late_in_a_turn_counts_no_more_than_an_early_one() -> None:
    turn = turn_of(400)
    with ContextPipeline(
        {"max_context_tokens": 4_096, "learn": False}, token_counter=CountingCounter()
    ) as pipeline:
        messages_counted(pipeline, turn, range(99, 100))
        early = messages_counted(pipeline, turn, range(100, 200))
        messages_counted(pipeline, turn, range(299, 300))
        late = messages_counted(pipeline, turn, range(300, 400))

    assert 0 < late <= 1.05 * early


# -- messages that are changed in place


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


EVERY_CHANGE = pytest.mark.parametrize(
    "change",
    [
        change_content,
        change_block,
        change_calls,
        change_args,
        change_name,
        change_mark,
        change_status,
    ],
)


def turn_with_blocks() -> list[BaseMessage]:
    turn = turn_of(6)
    turn[8].content = [
        {"type": "image", "url": "https://valves.example/3.png"},
        {"type": "text", "text": "It is shut."},
    ]
    return turn


def prompts_after(
    change: Callable[[list[BaseMessage]], None], *, assembled_before: bool
) -> list[tuple[list[BaseMessage], int]]:
    """The messages and tokens of two prompts of a turn that was changed in place."""
    turn = turn_with_blocks()
    with ContextPipeline({"max_context_tokens": 4_096, "learn": False}) as pipeline:
        if assembled_before:
            pipeline.assemble(turn, **SCOPE)
        change(turn)
        contexts = [pipeline.assemble(turn, **SCOPE) for _ in range(2)]
    return [(context.messages, context.report.total_tokens) for context in contexts]


@EVERY_CHANGE
def test_a_message_of_the_turn_is_read_again_after_a_change(
    change: Callable[[list[BaseMessage]], None],
) -> None:
    expected = prompts_after(change, assembled_before=False)

    assert prompts_after(change, assembled_before=True) == expected


@EVERY_CHANGE
def test_a_message_of_an_agents_history_is_stored_as_changed(
    change: Callable[[list[BaseMessage]], None],
) -> None:
    history = turn_with_blocks()
    with ContextPipeline({"learn": False}) as pipeline:
        pipeline.sync(history, **SCOPE)
        pipeline.sync(history, **SCOPE)
        change(history)
        pipeline.sync(history, **SCOPE)

        assert pipeline.get_messages(**SCOPE) == history


@pytest.fixture
def history() -> list[BaseMessage]:
    return [HumanMessage("My bike is blue.", id="a"), AIMessage("Noted.", id="b")]


@pytest.fixture
def synced(history: list[BaseMessage]) -> Iterator[ContextPipeline]:
    """A pipeline that has stored the history."""
    with ContextPipeline({"learn": False}) as pipeline:
        pipeline.sync(history, **SCOPE)
        yield pipeline


def test_a_text_that_is_changed_in_place_is_an_edit(
    history: list[BaseMessage], synced: ContextPipeline
) -> None:
    assert synced.get_messages(**SCOPE)[0].text == "My bike is blue."

    history[0].content = "My bike is red."
    synced.sync(history, **SCOPE)

    [message, _] = synced.get_messages(**SCOPE)
    assert message.content == "My bike is red."
    assert message.additional_kwargs.get("ctxbudget") is None


def test_a_mark_that_is_set_in_place_is_an_edit(
    history: list[BaseMessage], synced: ContextPipeline
) -> None:
    history[0].content = "My bike is red."
    synced.sync(history, **SCOPE)

    history[0].additional_kwargs["ctxbudget"] = "keep"
    synced.sync(history, **SCOPE)

    [message, _] = synced.get_messages(**SCOPE)
    assert message.content == "My bike is red."
    assert message.additional_kwargs.get("ctxbudget") == "keep"


def test_what_cannot_say_whether_it_is_equal_counts_as_changed() -> None:
    vector = np.array([1.0, 2.0])
    question = HumanMessage("Hi", id="q", additional_kwargs={"vector": vector})
    with ContextPipeline({"learn": False}) as pipeline:
        first_turn = [question, AIMessage("One.", id="a")]
        first = pipeline.assemble(first_turn, **SCOPE)
        pipeline.sync(first_turn, user_id="ada", conversation_id="state")
        second_turn = [question, AIMessage("Two.", id="b")]
        second = pipeline.assemble(second_turn, **SCOPE)
        pipeline.sync(second_turn, user_id="ada", conversation_id="state")

    assert first.messages[-1].text == "One."
    assert second.messages[-1].text == "Two."


# -- messages of other conversations


def test_messages_of_other_conversations_are_made_candidates_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    places: list[int] = []
    other_message = other_threads.OtherMessage

    def counted(**fields: Any) -> object:
        places.append(fields["place"])
        return other_message(**fields)

    monkeypatch.setattr(other_threads, "OtherMessage", counted)
    pipeline = ContextPipeline({"learn": False})
    old = pipeline.conversation("old", user_id="ada")
    old.add(HumanMessage("My bike is blue."), HumanMessage("My car is red."))
    new = pipeline.conversation("new", user_id="ada")

    new.assemble("Which colour is my bike?")
    new.assemble("Which colour is my car?")

    assert sorted(places) == [0, 1]
