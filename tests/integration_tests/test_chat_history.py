"""`BudgetedChatMessageHistory`: what LangChain expects of a history, and a window that fits."""

from collections.abc import Iterator
from itertools import count, pairwise

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from langchain_core._api import suppress_langchain_deprecation_warning
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.runnables import RunnableConfig, RunnableLambda
from langchain_core.runnables.history import RunnableWithMessageHistory
from langgraph.store.base import BaseStore
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import BudgetedChatMessageHistory, ContextPipeline, TiktokenCounter
from langchain_ctxbudget.demo import demo_messages
from langchain_ctxbudget.errors import BudgetTooSmallError, InputError
from langchain_ctxbudget.messages import call_ids
from tests.integration_tests.provider_rules import check_anthropic, check_openai
from tests.integration_tests.test_valid_prompts import TRANSCRIPTS, numbered

Messages = list[BaseMessage]
SETTINGS = {"learn": False}
SYSTEM = SystemMessage("You are a careful assistant.")
QUESTION = HumanMessage("And now?")


def histories(store: BaseStore) -> BudgetedChatMessageHistory:
    return BudgetedChatMessageHistory(
        "c1", user_id="ada", pipeline=ContextPipeline(SETTINGS, store=store)
    )


@pytest.fixture
def history() -> BudgetedChatMessageHistory:
    return histories(InMemoryStore())


# -- With a number of tokens, a chain that reads `messages` sends no more


async def test_with_max_tokens_the_messages_are_what_fits(
    history: BudgetedChatMessageHistory,
) -> None:
    history.add_messages(demo_messages())
    assert history.messages == history.all_messages == await history.aget_messages()
    fitting = BudgetedChatMessageHistory(
        "c1", user_id="ada", pipeline=history.pipeline, max_tokens=1_000
    )
    assert fitting.messages == await fitting.aget_messages() == history.window(1_000)
    assert 0 < TiktokenCounter().count_messages(fitting.messages) <= 1_000
    assert fitting.all_messages == history.all_messages
    assert len(fitting.all_messages) == len(demo_messages())
    with pytest.raises(InputError, match="max_tokens"):
        BudgetedChatMessageHistory("c1", user_id="ada", pipeline=history.pipeline, max_tokens=0)


@pytest.mark.parametrize("awaited", [False, True])
async def test_a_chain_that_it_is_swapped_into_sends_what_fits_and_stores_everything(
    history: BudgetedChatMessageHistory, *, awaited: bool
) -> None:
    sent: list[list[BaseMessage]] = []

    def answer(messages: list[BaseMessage]) -> AIMessage:
        sent.append(messages)
        return AIMessage(f"Answer {len(sent)}: " + "mountains are high " * 20)

    def session(session_id: str) -> BudgetedChatMessageHistory:
        return BudgetedChatMessageHistory(
            session_id, user_id="ada", pipeline=history.pipeline, max_tokens=500
        )

    with suppress_langchain_deprecation_warning():
        chat = RunnableWithMessageHistory(RunnableLambda(answer), session)
    config: RunnableConfig = {"configurable": {"session_id": "c1"}}
    for number in range(20):
        question = [HumanMessage(f"Question {number}?")]
        await chat.ainvoke(question, config) if awaited else chat.invoke(question, config)
    assert all(TiktokenCounter().count_messages(messages[:-1]) <= 500 for messages in sent)
    assert [message.text for message in history.all_messages[::2]] == [
        f"Question {number}?" for number in range(20)
    ]
    assert len(history.all_messages) == 40


# -- The window


def test_a_window_only_grows_at_its_end_between_compaction_steps(store: BaseStore) -> None:
    """A second pipeline on the same store goes on with the same window."""
    said = demo_messages()
    first = histories(store)
    second = histories(store)
    grown = steps = 0
    before: Messages = []
    for turn in range(160, len(said), 2):
        one = first if turn % 4 else second
        one.add_messages(said[turn - 2 : turn] if before else said[:turn])
        now = one.window(1_500)
        if before:
            same = now[: len(before)] == before
            grown = grown + same
            steps = steps + (not same)
        before = now
    assert grown >= 5 * steps
    assert steps >= 2


def test_a_call_that_cannot_be_shortened_does_not_block_the_conversation(
    history: BudgetedChatMessageHistory,
) -> None:
    huge = {"name": "write", "args": {"text": "word " * 5_000}, "id": "call-1", "type": "tool_call"}
    history.add_messages(
        [
            HumanMessage("Write it."),
            AIMessage("", tool_calls=[huge]),
            ToolMessage("done", tool_call_id="call-1"),
        ]
    )
    assert check_openai([SYSTEM, *history.window(300), QUESTION]) == []
    assert check_anthropic([SYSTEM, *history.window(300), QUESTION]) == []
    history.add_messages(
        [AIMessage("It is written."), HumanMessage("Thanks."), AIMessage("Welcome.")]
    )
    assert [message.content for message in history.window(300)[-3:]] == [
        "It is written.",
        "Thanks.",
        "Welcome.",
    ]


def test_a_window_without_room_is_an_error_that_says_what_it_needs(
    history: BudgetedChatMessageHistory,
) -> None:
    history.add_messages(demo_messages())
    with pytest.raises(BudgetTooSmallError, match="max_tokens") as caught:
        history.window(5)
    assert 5 < sum(caught.value.floors.values()) <= 20
    assert history.window(sum(caught.value.floors.values()))


# -- Properties

MIXED = TRANSCRIPTS.filter(bool)
BUDGETS = st.sampled_from([16, 32, 64, 100, 150, 256, 512, 1024, 2048, 4096, 8000])
common = settings(deadline=None, suppress_health_check=list(HealthCheck), database=None)


@pytest.fixture(scope="module")
def fresh() -> Iterator[BudgetedChatMessageHistory]:
    """Histories of one pipeline, each of a conversation of its own."""
    pipeline = ContextPipeline(SETTINGS, store=InMemoryStore())
    return (
        BudgetedChatMessageHistory(f"c{number}", user_id="ada", pipeline=pipeline)
        for number in count()
    )


@settings(common, max_examples=50)
@given(transcript=TRANSCRIPTS, parts=st.integers(1, 4), budget=BUDGETS)
def test_any_conversation_has_a_window_that_fits_and_is_valid(
    fresh: Iterator[BudgetedChatMessageHistory], transcript: Messages, parts: int, budget: int
) -> None:
    """After every part of it: a window goes on from the compaction step before."""
    one = next(fresh)
    said = numbered(transcript, "m")
    ends = [len(said) * part // parts for part in range(parts + 1)]
    for start, end in pairwise(ends):
        one.add_messages(said[start:end])
        window = one.window(budget)
        prompt = [SYSTEM, *window, QUESTION]
        assert check_openai(prompt) == []
        assert check_anthropic(prompt) == []
        assert TiktokenCounter().count_messages(window) <= max(
            budget, TiktokenCounter().count_messages([])
        )
        assert one.messages == said[:end]


@settings(common, max_examples=50)
@given(transcript=MIXED, budget=BUDGETS)
def test_the_newest_messages_stand_at_the_end_of_a_window_in_their_order(
    fresh: Iterator[BudgetedChatMessageHistory], transcript: Messages, budget: int
) -> None:
    ids = [call_id for message in transcript for call_id in call_ids(message)]
    assume(
        len(set(ids)) == len(ids)
    )  # else it is a matter of opinion which result answers which call
    one = next(fresh)
    one.add_messages(numbered(transcript, "m"))
    whole = [message for message in one.window(1_000_000) if message.id]
    shown = [message for message in one.window(budget) if message.id]
    newest = whole[len(whole) - len(shown) :]
    assert [message.id for message in shown] == [message.id for message in newest]
    pairs = zip(shown, newest, strict=True)
    assert all(a.text == b.text or "tokens left out" in a.text for a, b in pairs)
