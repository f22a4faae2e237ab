"""`BudgetedChatMessageHistory`: what LangChain expects of a history, and a window that fits."""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count, pairwise

import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st
from langchain_core._api import suppress_langchain_deprecation_warning
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.runnables import RunnableConfig, RunnableLambda
from langchain_core.runnables.history import RunnableWithMessageHistory
from langgraph.store.base import BaseStore
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import BudgetedChatMessageHistory, ContextPipeline, TiktokenCounter
from langchain_ctxbudget.content import call_ids
from langchain_ctxbudget.demo import demo_messages
from langchain_ctxbudget.errors import BudgetTooSmallError, InputError
from tests.doubles.providers import check_anthropic, check_openai
from tests.integration_tests.test_valid_prompts import TRANSCRIPTS, numbered

Messages = list[BaseMessage]
SETTINGS = {"learn": False}
COUNTER = TiktokenCounter()
SYSTEM = SystemMessage("You are a careful assistant.")
QUESTION = HumanMessage("And now?")


def history_on(store: BaseStore) -> BudgetedChatMessageHistory:
    pipeline = ContextPipeline(SETTINGS, store=store)
    return BudgetedChatMessageHistory("c1", user_id="ada", pipeline=pipeline)


@pytest.fixture
def history() -> BudgetedChatMessageHistory:
    return history_on(InMemoryStore())


# -- with a number of tokens, a chain that reads `messages` sends no more


@dataclass(frozen=True)
class Demo:
    """The history of the demo's conversation, and the same one of a thousand tokens."""

    whole: BudgetedChatMessageHistory
    fitting: BudgetedChatMessageHistory


@pytest.fixture(scope="module")
def demo() -> Demo:
    whole = history_on(InMemoryStore())
    whole.add_messages(demo_messages())
    fitting = BudgetedChatMessageHistory(
        "c1", user_id="ada", pipeline=whole.pipeline, max_tokens=1_000
    )
    return Demo(whole, fitting)


async def test_without_max_tokens_the_messages_are_all_there_are(demo: Demo) -> None:
    assert demo.whole.messages == demo.whole.all_messages
    assert await demo.whole.aget_messages() == demo.whole.all_messages


async def test_with_max_tokens_the_messages_are_the_window(demo: Demo) -> None:
    window = demo.whole.window(1_000)
    assert demo.fitting.messages == window
    assert await demo.fitting.aget_messages() == window


def test_with_max_tokens_the_messages_fit(demo: Demo) -> None:
    tokens = COUNTER.count_messages(demo.fitting.messages)
    assert 0 < tokens <= 1_000


def test_with_max_tokens_all_messages_are_still_there(demo: Demo) -> None:
    assert demo.fitting.all_messages == demo.whole.all_messages
    assert len(demo.fitting.all_messages) == len(demo_messages())


def test_no_tokens_at_all_is_an_error(history: BudgetedChatMessageHistory) -> None:
    with pytest.raises(InputError, match="max_tokens"):
        BudgetedChatMessageHistory("c1", user_id="ada", pipeline=history.pipeline, max_tokens=0)


# -- in a chain


@dataclass(frozen=True)
class Chain:
    """A chain with a history of 500 tokens that was asked twenty questions."""

    sent: list[Messages]
    history: BudgetedChatMessageHistory


def chain_of_questions(*, awaited: bool) -> Chain:
    history = history_on(InMemoryStore())
    sent: list[Messages] = []

    def answer(messages: Messages) -> AIMessage:
        sent.append(messages)
        return AIMessage(f"Answer {len(sent)}: " + "mountains are high " * 20)

    def session(session_id: str) -> BudgetedChatMessageHistory:
        return BudgetedChatMessageHistory(
            session_id, user_id="ada", pipeline=history.pipeline, max_tokens=500
        )

    async def ask_in_turn() -> None:
        for number in range(20):
            question = [HumanMessage(f"Question {number}?")]
            if awaited:
                await chat.ainvoke(question, config)
            else:
                chat.invoke(question, config)

    with suppress_langchain_deprecation_warning():
        chat = RunnableWithMessageHistory(RunnableLambda(answer), session)
    config: RunnableConfig = {"configurable": {"session_id": "c1"}}
    asyncio.run(ask_in_turn())
    return Chain(sent, history)


@pytest.fixture(scope="module", params=[False, True], ids=["blocking", "awaited"])
def chain(request: pytest.FixtureRequest) -> Chain:
    return chain_of_questions(awaited=request.param)


def test_a_chain_that_it_is_swapped_into_sends_what_fits(chain: Chain) -> None:
    tokens = [COUNTER.count_messages(messages[:-1]) for messages in chain.sent]
    assert max(tokens) <= 500


def test_a_chain_that_it_is_swapped_into_stores_everything(chain: Chain) -> None:
    questions = [message.text for message in chain.history.all_messages[::2]]
    assert questions == [f"Question {number}?" for number in range(20)]
    assert len(chain.history.all_messages) == 40


# -- the window


def test_a_window_only_grows_between_compaction_steps(store: BaseStore) -> None:
    """A second pipeline on the same store goes on with the same window."""
    messages = demo_messages()
    histories = [history_on(store), history_on(store)]
    histories[0].add_messages(messages[:160])
    windows = [histories[0].window(1_500)]
    for number, start in enumerate(range(160, len(messages) - 2, 2), start=1):
        history = histories[number % 2]
        history.add_messages(messages[start : start + 2])
        windows.append(history.window(1_500))

    grown = [after[: len(before)] == before for before, after in pairwise(windows)]
    steps = grown.count(False)

    assert steps >= 2
    assert grown.count(True) >= 5 * steps


@pytest.fixture
def large_call(history: BudgetedChatMessageHistory) -> BudgetedChatMessageHistory:
    """A history that ends with a call that cannot be shortened."""
    arguments = {"text": "word " * 5_000}
    call = {"name": "write", "args": arguments, "id": "call-1", "type": "tool_call"}
    history.add_messages(
        [
            HumanMessage("Write it."),
            AIMessage("", tool_calls=[call]),
            ToolMessage("done", tool_call_id="call-1"),
        ]
    )
    return history


@pytest.mark.parametrize("problems_of", [check_openai, check_anthropic])
def test_a_window_with_a_call_that_is_too_large_is_valid(
    large_call: BudgetedChatMessageHistory, problems_of: Callable[[Messages], list[str]]
) -> None:
    assert problems_of([SYSTEM, *large_call.window(300), QUESTION]) == []


def test_a_call_that_is_too_large_does_not_block_the_conversation(
    large_call: BudgetedChatMessageHistory,
) -> None:
    large_call.window(300)
    large_call.add_messages(
        [AIMessage("It is written."), HumanMessage("Thanks."), AIMessage("Welcome.")]
    )
    texts = [message.content for message in large_call.window(300)]
    assert texts[-3:] == ["It is written.", "Thanks.", "Welcome."]


def test_a_message_that_is_shortened_says_so(history: BudgetedChatMessageHistory) -> None:
    history.add_messages([HumanMessage("word " * 5_000), AIMessage("Noted.")])

    window = history.window(300)

    assert window[0].text.startswith("word word")
    assert "tokens left out" in window[0].text
    assert window[1].text == "Noted."


def test_a_window_without_room_is_an_error_with_what_it_needs(
    history: BudgetedChatMessageHistory,
) -> None:
    history.add_messages(demo_messages())
    with pytest.raises(BudgetTooSmallError, match="max_tokens") as caught:
        history.window(5)

    needed = sum(caught.value.floors.values())

    assert 5 < needed <= 20
    assert history.window(needed)


# -- properties

TRANSCRIPTS_WITH_MESSAGES = TRANSCRIPTS.filter(bool)
PICTURE = {"type": "image_url", "image_url": {"url": "https://x.invalid/a.png"}}
BUDGETS = st.sampled_from([16, 32, 64, 100, 150, 256, 512, 1024, 2048, 4096, 8000])
common = settings(deadline=None, suppress_health_check=list(HealthCheck), database=None)


@pytest.fixture(scope="module")
def new_histories() -> Iterator[BudgetedChatMessageHistory]:
    """Histories of one pipeline, each of a conversation of its own."""
    pipeline = ContextPipeline(SETTINGS, store=InMemoryStore())
    return (
        BudgetedChatMessageHistory(f"c{number}", user_id="ada", pipeline=pipeline)
        for number in count()
    )


@settings(common, max_examples=50)
@given(transcript=TRANSCRIPTS, parts=st.integers(1, 4), budget=BUDGETS)
def test_any_conversation_has_a_window_that_fits_and_is_valid(
    new_histories: Iterator[BudgetedChatMessageHistory],
    transcript: Messages,
    parts: int,
    budget: int,
) -> None:
    """After every part of it: a window goes on from the compaction step before."""
    history = next(new_histories)
    messages = numbered(transcript, "m")
    least_tokens = COUNTER.count_messages([])
    ends = [len(messages) * part // parts for part in range(parts + 1)]
    for start, end in pairwise(ends):
        history.add_messages(messages[start:end])
        window = history.window(budget)

        prompt = [SYSTEM, *window, QUESTION]
        assert check_openai(prompt) == []
        assert check_anthropic(prompt) == []
        assert COUNTER.count_messages(window) <= max(budget, least_tokens)
        assert history.all_messages == messages[:end]


@settings(common, max_examples=50)
@given(transcript=TRANSCRIPTS_WITH_MESSAGES, budget=BUDGETS)
@example(transcript=[HumanMessage([PICTURE])], budget=16)
def test_the_newest_messages_stand_at_the_end_of_a_window(
    new_histories: Iterator[BudgetedChatMessageHistory], transcript: Messages, budget: int
) -> None:
    assume(has_one_id_a_call(transcript))
    assume(has_results_behind_calls(transcript))
    history = next(new_histories)
    history.add_messages(numbered(transcript, "m"))

    whole = with_ids(history.window(1_000_000))
    window = with_ids(history.window(budget))
    newest = whole[len(whole) - len(window) :]

    assert [message.id for message in window] == [message.id for message in newest]
    assert changed_texts(window, newest) == []


def with_ids(messages: Messages) -> Messages:
    return [message for message in messages if message.id]


def changed_texts(window: Messages, originals: Messages) -> list[str]:
    """Texts that differ from the originals', and do not say that something is left out."""
    return [
        message.text
        for message, original in zip(window, originals, strict=True)
        if message.text != original.text and "left out" not in message.text
    ]


def has_results_behind_calls(transcript: Messages) -> bool:
    """Tells whether every result comes right behind its call: a late one is as new as it came."""
    called: set[str] = set()
    for message in transcript:
        if isinstance(message, AIMessage):
            called = {call["id"] or "" for call in message.tool_calls}
        elif not isinstance(message, ToolMessage):
            called = set()
        elif message.tool_call_id not in called:
            return False
    return True


def test_a_late_result_is_as_new_as_it_came(
    new_histories: Iterator[BudgetedChatMessageHistory],
) -> None:
    call = {"name": "build", "args": {}, "id": "c1", "type": "tool_call"}
    history = next(new_histories)
    history.add_messages(
        [
            HumanMessage("Build the shed."),
            AIMessage("", tool_calls=[call]),
            HumanMessage("And what does the weather say of the days to come in the valley?"),
            ToolMessage("It stands.", tool_call_id="c1"),
        ]
    )

    *_, calling, result = history.window(40)

    assert call_ids(calling) == ("c1",)
    assert result.text == "It stands."


def has_one_id_a_call(transcript: Messages) -> bool:
    """Else it is a matter of opinion which result answers which call."""
    ids: list[str] = []
    for message in transcript:
        ids += call_ids(message)
    return len(set(ids)) == len(ids)
