"""`BudgetedChatMessageHistory`: what LangChain expects of a history, and a window that fits."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from itertools import count, pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from langchain_core.language_models import FakeListChatModel
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder
from langchain_core.runnables import ConfigurableFieldSpec, Runnable, RunnableLambda, RunnablePassthrough
from langchain_core.runnables.history import RunnableWithMessageHistory
from langgraph.store.base import BaseStore, PutOp
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import BudgetedChatMessageHistory, ContextPipeline, TiktokenCounter
from langchain_ctxbudget.core.calls import call_ids
from langchain_ctxbudget.demo import demo_messages
from langchain_ctxbudget.errors import (
    BudgetTooSmallError,
    InputError,
    InvalidSettingsError,
    MessageConflictError,
    MissingScopeError,
    UnsupportedContentError,
)
from tests.integration_tests.conftest import Call
from tests.integration_tests.provider_rules import check_anthropic, check_openai
from tests.integration_tests.summary_models import Scripted, summary
from tests.integration_tests.test_valid_prompts import SAID, TRANSCRIPTS, numbered, rounds

Messages = list[BaseMessage]
SETTINGS = {"learn": False}
SYSTEM, QUESTION = SystemMessage("You are a careful assistant."), HumanMessage("And now?")
CALL = {"name": "search", "args": {"query": "pump", "page": 1}, "id": "call-1", "type": "tool_call"}
INVALID = {"name": "search", "args": "{", "id": "call-2", "error": "cut off", "type": "invalid_tool_call"}
USAGE = {
    "input_tokens": 12,
    "output_tokens": 5,
    "total_tokens": 17,
    "input_token_details": {"cache_read": 8},
    "output_token_details": {"reasoning": 2},
}
MULTIMODAL: list[str | dict[Any, Any]] = [
    {"type": "text", "text": "What is on these?"},
    {"type": "image_url", "image_url": {"url": "https://x.invalid/a.png", "detail": "low"}},
    {"type": "image", "base64": "aGVsbG8=", "mime_type": "image/png"},
    {"type": "audio", "base64": "aGVsbG8=", "mime_type": "audio/wav"},
    {"type": "file", "file_id": "file-1", "extras": {"pages": [1, 2]}},
    "a bare string",
]
EVERY_KIND: Messages = [
    HumanMessage("Hello", id="human", name="Ada Lovelace", additional_kwargs={"created_at": "2026-03-01T08:00:00"}),
    HumanMessage(MULTIMODAL, id="multimodal"),
    AIMessage(
        "Let me see.",
        id="ai",
        name="assistant-1",
        tool_calls=[CALL],
        invalid_tool_calls=[INVALID],
        usage_metadata=USAGE,
        response_metadata={"model_name": "m", "finish_reason": "tool_calls", "logprobs": None},
        additional_kwargs={"refusal": None, "nested": {"list": [1, 2.5, True]}},
    ),
    ToolMessage(
        "3 found",
        id="tool",
        tool_call_id="call-1",
        name="search",
        status="error",
        artifact={"rows": [{"id": 1}], "total": 3},
    ),
    AIMessage([{"type": "reasoning", "reasoning": "hm"}, {"type": "text", "text": "So:"}], id="blocks"),
    SystemMessage("Be brief.", id="system"),
    FunctionMessage("42", id="function", name="search"),
    ChatMessage("As a critic I object.", id="chat", role="critic"),
    HumanMessage("Zoë 田中 \U0001f6b2 e\u0301 \u202eabc", id="unicode 🚲/a.b"),
    HumanMessage("before\0after", id="nul"),
    HumanMessage("half a character: \ud83d.", id="surrogate"),
    HumanMessage("", id="empty"),
]


def histories(store: BaseStore) -> BudgetedChatMessageHistory:
    return BudgetedChatMessageHistory("c1", user_id="ada", pipeline=ContextPipeline(SETTINGS, store=store))


def read(call: Call, history: BudgetedChatMessageHistory) -> Messages:
    """`messages` in its blocking or its async form."""
    reader = SimpleNamespace(get_messages=lambda: history.messages, aget_messages=history.aget_messages)
    return call(reader, "get_messages")


@pytest.fixture
def history() -> BudgetedChatMessageHistory:
    return histories(InMemoryStore())


# -- What LangChain expects of a history


def test_every_kind_of_message_comes_back_as_it_was_given(store: BaseStore, call: Call) -> None:
    call(histories(store), "add_messages", EVERY_KIND)
    assert read(call, histories(store)) == EVERY_KIND


def test_a_chunk_of_a_stream_comes_back_as_a_whole_message(history: BudgetedChatMessageHistory) -> None:
    history.add_message(AIMessageChunk("Hello", id="a", tool_call_chunks=[], usage_metadata=USAGE))
    assert history.messages == [AIMessage("Hello", id="a", usage_metadata=USAGE)]


def test_a_message_without_an_id_comes_back_with_the_same_one_everywhere(call: Call) -> None:
    first, second = histories(InMemoryStore()), histories(InMemoryStore())
    for one in (first, second):
        call(one, "add_messages", [HumanMessage("yes"), AIMessage("sure"), HumanMessage("yes")])
    ids = [message.id for message in read(call, first)]
    assert all(ids)
    assert len(set(ids)) == 3
    assert ids == [message.id for message in read(call, second)]


def test_a_message_whose_id_is_known_is_left_alone(store: BaseStore, call: Call) -> None:
    for _ in range(2):
        call(histories(store), "add_messages", EVERY_KIND[:3])
    assert read(call, histories(store)) == EVERY_KIND[:3]


def test_other_content_under_a_known_id_is_refused(history: BudgetedChatMessageHistory, call: Call) -> None:
    call(history, "add_messages", [HumanMessage("blue", id="m1")])
    with pytest.raises(MessageConflictError, match="m1"):
        call(history, "add_messages", [HumanMessage("red", id="m1")])
    assert read(call, history) == [HumanMessage("blue", id="m1")]


def test_the_short_forms_of_the_base_class_add_messages(history: BudgetedChatMessageHistory) -> None:
    history.add_user_message("Hi")
    history.add_user_message(HumanMessage("Hi", id="m2"))
    history.add_ai_message("Hello")
    history.add_message(SystemMessage("Be brief."))
    assert [(m.type, m.content) for m in history.messages] == [
        ("human", "Hi"),
        ("human", "Hi"),
        ("ai", "Hello"),
        ("system", "Be brief."),
    ]


def test_it_prints_as_other_histories_do(history: BudgetedChatMessageHistory) -> None:
    history.add_messages([HumanMessage("Hi"), AIMessage("Hello")])
    assert str(history) == "Human: Hi\nAI: Hello"


def test_an_instruction_to_remove_is_no_content(history: BudgetedChatMessageHistory, call: Call) -> None:
    with pytest.raises(UnsupportedContentError, match="RemoveMessage"):
        call(history, "add_messages", [HumanMessage("Hi"), RemoveMessage(id="m1")])
    assert read(call, history) == []


def test_messages_cannot_be_assigned(history: BudgetedChatMessageHistory) -> None:
    with pytest.raises(InputError, match="add_messages"):
        history.messages = [HumanMessage("Hi")]
    assert history.messages == []


def test_what_is_done_to_the_messages_that_were_read_changes_nothing(history: BudgetedChatMessageHistory) -> None:
    history.add_messages(EVERY_KIND)
    given = history.messages
    given[2].response_metadata["model_name"] = "other"
    given.pop()
    assert history.messages == EVERY_KIND


@pytest.mark.parametrize(("user", "conversation"), [("", "c1"), (None, "c1"), ("ada", ""), ("ada", None), ("ada", 7)])
def test_a_missing_scope_is_refused_at_once(user: Any, conversation: Any) -> None:
    with pytest.raises(MissingScopeError):
        BudgetedChatMessageHistory(conversation, user_id=user, pipeline=ContextPipeline())


@pytest.mark.parametrize("pipeline", [None, InMemoryStore(), "pipeline"])
def test_a_history_needs_a_pipeline(pipeline: Any) -> None:
    with pytest.raises(InvalidSettingsError, match="ContextPipeline"):
        BudgetedChatMessageHistory("c1", user_id="ada", pipeline=pipeline)


def test_users_and_conversations_do_not_see_each_other(store: BaseStore, call: Call) -> None:
    pipeline = ContextPipeline(SETTINGS, store=store)
    scopes = [("ada", "c1"), ("ada", "c2"), ("bob", "c1")]
    for user, conversation in scopes:
        one = BudgetedChatMessageHistory(conversation, user_id=user, pipeline=pipeline)
        call(one, "add_messages", [HumanMessage(f"{user} in {conversation}", id="m1")])
    for user, conversation in scopes:
        one = BudgetedChatMessageHistory(conversation, user_id=user, pipeline=pipeline)
        assert [m.content for m in read(call, one)] == [f"{user} in {conversation}"]
        assert [m.content for m in call(one, "window", 200)] == [f"{user} in {conversation}"]


# -- clear


def test_clear_removes_the_conversation_and_no_other(store: BaseStore, call: Call) -> None:
    pipeline = ContextPipeline(SETTINGS, store=store)
    mine = BudgetedChatMessageHistory("c1", user_id="ada", pipeline=pipeline)
    others = [
        BudgetedChatMessageHistory("c2", user_id="ada", pipeline=pipeline),
        BudgetedChatMessageHistory("c1", user_id="bob", pipeline=pipeline),
    ]
    for one in (mine, *others):
        call(one, "add_messages", demo_messages())
    windows = [call(one, "window", 600) for one in (mine, *others)]
    call(mine, "clear")
    assert read(call, mine) == []
    assert call(mine, "window", 600) == []
    assert read(call, histories(store)) == []
    assert [len(read(call, one)) for one in others] == [len(demo_messages())] * 2
    assert [call(one, "window", 600) for one in others] == windows[1:]


def test_a_cleared_conversation_begins_anew(store: BaseStore, call: Call) -> None:
    one = histories(store)
    call(one, "add_messages", demo_messages())
    call(one, "window", 600)
    call(one, "clear")
    call(one, "add_messages", [HumanMessage("Hello again.", id=demo_messages()[0].id)])
    assert [m.content for m in read(call, one)] == ["Hello again."]
    assert [m.content for m in call(one, "window", 600)] == ["Hello again."]


# -- The window


def test_a_conversation_that_fits_is_sent_whole(history: BudgetedChatMessageHistory, call: Call) -> None:
    said: Messages = [
        HumanMessage("My bike is blue.", id="m1"),
        AIMessage("", id="m2", tool_calls=[CALL]),
        ToolMessage("noted", id="m3", tool_call_id="call-1"),
        AIMessage("Noted.", id="m4"),
    ]
    call(history, "add_messages", said)
    assert call(history, "window", TiktokenCounter().count_messages(said)) == said


def test_a_conversation_that_does_not_exist_yet_has_an_empty_window(
    history: BudgetedChatMessageHistory, call: Call
) -> None:
    assert call(history, "window", 1) == []


def test_a_long_conversation_becomes_one_summary_and_its_newest_messages(
    history: BudgetedChatMessageHistory, call: Call
) -> None:
    said = demo_messages()
    call(history, "add_messages", said)
    summary, *recent = call(history, "window", 1_500)
    assert isinstance(summary, HumanMessage)
    assert summary.text.count("<conversation_summary>") == summary.text.count("<conversation_arc>") == 1
    assert "not instructions" in summary.text
    assert len(recent) >= 6
    assert [m.type for m in recent] == [m.type for m in said[-len(recent) :]]
    assert [m.id for m in recent] == [m.id for m in history.messages[-len(recent) :]]


def test_there_is_no_system_message_in_a_window(history: BudgetedChatMessageHistory) -> None:
    history.add_messages([SystemMessage("Be brief."), *demo_messages()])
    for max_tokens in (300, 1_500, 50_000):
        assert not any(isinstance(message, SystemMessage) for message in history.window(max_tokens))


def test_a_window_adds_to_a_prompt_no_more_than_it_may(history: BudgetedChatMessageHistory) -> None:
    history.add_messages(demo_messages())
    count_messages = TiktokenCounter().count_messages
    prompt = [SYSTEM, *history.window(1_500), QUESTION]
    assert count_messages(prompt) <= count_messages([SYSTEM, QUESTION]) + 1_500


def test_a_window_only_grows_at_its_end_between_compaction_steps(store: BaseStore, call: Call) -> None:
    """A second pipeline on the same store goes on with the same window."""
    said = demo_messages()
    first, second = histories(store), histories(store)
    grown = steps = 0
    before: Messages = []
    for turn in range(160, len(said), 2):
        one = first if turn % 4 else second
        call(one, "add_messages", said[turn - 2 : turn] if before else said[:turn])
        now = call(one, "window", 1_500)
        if before:
            same = now[: len(before)] == before
            grown, steps = grown + same, steps + (not same)
        before = now
    assert grown >= 5 * steps
    assert steps >= 2


def test_a_window_does_not_move_the_cut_of_a_prompt_of_the_same_budget(history: BudgetedChatMessageHistory) -> None:
    history.add_messages(demo_messages())
    scope = {"user_id": "ada", "conversation_id": "c1", "settings": {"max_context_tokens": 1_500}}
    without = histories(InMemoryStore())
    without.add_messages(demo_messages())
    history.window(1_500)
    assert (
        history.pipeline.assemble("And now?", **scope).messages
        == without.pipeline.assemble("And now?", **scope).messages
    )
    before = history.window(1_500)
    assert history.window(1_500) == before


def test_a_window_writes_nothing_to_the_conversation(store: BaseStore, call: Call) -> None:
    one = histories(store)
    call(one, "add_messages", demo_messages())
    before = read(call, one)
    for max_tokens in (300, 1_500):
        call(one, "window", max_tokens)
    assert read(call, one) == before
    assert read(call, histories(store)) == before


def test_what_is_done_to_a_window_changes_nothing(history: BudgetedChatMessageHistory) -> None:
    history.add_messages([HumanMessage("My bike is blue.", additional_kwargs={"a": {"b": 1}})])
    given = history.window(200)
    given[0].additional_kwargs["a"]["b"] = 2
    given[0].content = "red"
    assert history.window(200)[0].content == "My bike is blue."
    assert history.window(200)[0].additional_kwargs["a"]["b"] == 1


def test_a_large_message_is_clipped_with_a_mark(history: BudgetedChatMessageHistory) -> None:
    history.add_messages([HumanMessage("Read this."), AIMessage("word " * 5_000), HumanMessage("Short one.")])
    window = history.window(500)
    assert "tokens left out" in window[-2].text
    assert window[-1].content == "Short one."


def test_the_newest_message_is_clipped_where_nothing_else_fits(history: BudgetedChatMessageHistory) -> None:
    history.add_messages([HumanMessage("Go on."), AIMessage("first " * 500 + " last" * 500)])
    window = history.window(90)
    assert window[-1].text.startswith("first")
    assert window[-1].text.endswith("last")


@pytest.mark.parametrize("max_tokens", [20, 60])
def test_what_a_small_window_leaves_out_is_said(history: BudgetedChatMessageHistory, max_tokens: int) -> None:
    history.add_messages(demo_messages())
    assert "left out" in history.window(max_tokens)[0].text


def test_messages_that_give_way_to_repairs_are_said_to_be_left_out(history: BudgetedChatMessageHistory) -> None:
    """A call that nothing answers gets an answer in the window, which costs more than what is stored."""
    calls = [AIMessage("", tool_calls=[{**CALL, "id": f"call-{number}"}]) for number in range(10)]
    said = [HumanMessage("Go on."), *calls, HumanMessage("Stop.")]
    history.add_messages(said)
    max_tokens = TiktokenCounter().count_messages(said) + 20
    window = history.window(max_tokens)
    assert "left out" in window[0].text
    assert window[-1].text == "Stop."
    assert TiktokenCounter().count_messages(window) <= max_tokens


def test_a_call_that_cannot_be_shortened_does_not_block_the_conversation(history: BudgetedChatMessageHistory) -> None:
    huge = {"name": "write", "args": {"text": "word " * 5_000}, "id": "call-1", "type": "tool_call"}
    history.add_messages(
        [HumanMessage("Write it."), AIMessage("", tool_calls=[huge]), ToolMessage("done", tool_call_id="call-1")]
    )
    assert check_openai([SYSTEM, *history.window(300), QUESTION]) == []
    assert check_anthropic([SYSTEM, *history.window(300), QUESTION]) == []
    history.add_messages([AIMessage("It is written."), HumanMessage("Thanks."), AIMessage("Welcome.")])
    assert [message.content for message in history.window(300)[-3:]] == ["It is written.", "Thanks.", "Welcome."]


def test_a_window_with_room_for_nothing_is_an_error_that_says_what_it_needs(
    history: BudgetedChatMessageHistory, call: Call
) -> None:
    call(history, "add_messages", demo_messages())
    with pytest.raises(BudgetTooSmallError, match="max_tokens") as caught:
        call(history, "window", 5)
    assert 5 < sum(caught.value.floors.values()) <= 20
    assert call(history, "window", sum(caught.value.floors.values()))


@pytest.mark.parametrize("max_tokens", [0, -1, True, 4_000.0, "4000", None])
def test_a_window_of_no_tokens_is_refused(history: BudgetedChatMessageHistory, call: Call, max_tokens: Any) -> None:
    with pytest.raises(InputError, match="max_tokens"):
        call(history, "window", max_tokens)


def test_settings_of_the_pipeline_and_of_the_user_hold_for_windows(history: BudgetedChatMessageHistory) -> None:
    history.add_messages(demo_messages())
    before = history.window(1_500)
    history.pipeline.save_settings({"compaction_target": 0.7, "segment_messages": 4}, user_id="ada")
    assert len(history.window(1_500)) > len(before)


def test_a_store_that_cannot_keep_the_cut_costs_no_window(caplog: pytest.LogCaptureFixture) -> None:
    class Forgetful(InMemoryStore):
        broken = False

        def batch(self, ops: Any) -> Any:
            ops = list(ops)
            if self.broken and any(isinstance(op, PutOp) and "cuts" in op.namespace for op in ops):
                raise OSError("disk full")
            return super().batch(ops)

    store = Forgetful()
    one = histories(store)
    one.add_messages(demo_messages())
    store.broken = True
    with caplog.at_level(logging.WARNING):
        assert one.window(1_500)
    assert "disk full" in caplog.text


@pytest.mark.parametrize("background", [True, False])
def test_what_a_model_has_written_stands_in_the_window(call: Call, background: bool) -> None:
    model = Scripted(answer=lambda _: summary("- They spoke of the zeppelin."))
    changes = {**SETTINGS, "summarize_in_background": background}
    with ContextPipeline(changes, store=InMemoryStore(), summary_model=model) as pipeline:
        one = BudgetedChatMessageHistory("c1", user_id="ada", pipeline=pipeline)
        call(one, "add_messages", demo_messages())
        first = call(one, "window", 1_500)
        assert ("zeppelin" in first[0].text) is not background
        assert pipeline.engine.summarizing
        assert pipeline.engine.summarizing.worker.flush(30)
        second = call(one, "window", 1_500)
        assert "zeppelin" in second[0].text
        assert second[1:] == first[1:]
        assert TiktokenCounter().count_messages(second) <= 1_500


# -- Properties

MIXED = st.lists(
    st.builds(lambda text: [HumanMessage(text)], SAID) | st.builds(lambda text: [AIMessage(text)], SAID) | rounds(),
    min_size=1,
    max_size=16,
).map(lambda pieces: [message for piece in pieces for message in piece])
BUDGETS = st.sampled_from([16, 32, 64, 100, 150, 256, 512, 1024, 2048, 4096, 8000])
common = settings(deadline=None, suppress_health_check=list(HealthCheck), database=None)


@pytest.fixture(scope="module")
def fresh() -> Iterator[BudgetedChatMessageHistory]:
    """Histories of one pipeline, each of a conversation of its own."""
    pipeline = ContextPipeline(SETTINGS, store=InMemoryStore())
    return (BudgetedChatMessageHistory(f"c{number}", user_id="ada", pipeline=pipeline) for number in count())


@settings(common, max_examples=150)
@given(transcript=TRANSCRIPTS, parts=st.integers(1, 4), budget=BUDGETS)
def test_any_conversation_has_a_window_that_fits_and_is_valid(
    fresh: Iterator[BudgetedChatMessageHistory], transcript: Messages, parts: int, budget: int
) -> None:
    """After every part of it: a window goes on from the compaction step before."""
    one, said = next(fresh), numbered(transcript, "m")
    ends = [len(said) * part // parts for part in range(parts + 1)]
    for start, end in pairwise(ends):
        one.add_messages(said[start:end])
        window = one.window(budget)
        prompt = [SYSTEM, *window, QUESTION]
        assert check_openai(prompt) == []
        assert check_anthropic(prompt) == []
        assert TiktokenCounter().count_messages(window) <= max(budget, TiktokenCounter().count_messages([]))
        assert one.messages == said[:end]


@settings(common, max_examples=150)
@given(transcript=MIXED, budget=BUDGETS)
def test_the_newest_messages_stand_at_the_end_of_a_window_in_their_order(
    fresh: Iterator[BudgetedChatMessageHistory], transcript: Messages, budget: int
) -> None:
    ids = [call_id for message in transcript for call_id in call_ids(message)]
    assume(len(set(ids)) == len(ids))  # else it is a matter of opinion which result answers which call
    one = next(fresh)
    one.add_messages(numbered(transcript, "m"))
    whole = [message for message in one.window(1_000_000) if message.id]
    shown = [message for message in one.window(budget) if message.id]
    newest = whole[len(whole) - len(shown) :]
    assert [message.id for message in shown] == [message.id for message in newest]
    pairs = zip(shown, newest, strict=True)
    assert all(a.text == b.text or "tokens left out" in a.text for a, b in pairs)


@settings(common, max_examples=100)
@given(transcript=MIXED, budget=st.sampled_from([512, 1024, 4096]))
def test_the_newest_message_of_a_window_of_some_size_is_whole(
    fresh: Iterator[BudgetedChatMessageHistory], transcript: Messages, budget: int
) -> None:
    one = next(fresh)
    one.add_messages([*numbered(transcript, "m"), HumanMessage("The newest one, short as most are.", id="newest")])
    assert one.window(budget)[-1] == HumanMessage("The newest one, short as most are.", id="newest")


# -- In a chain

PROMPT = ChatPromptTemplate(
    [SYSTEM, MessagesPlaceholder("history"), ("human", "{question}")],
)
ROOM = 400


def _windowed(_input: Any, config: Any) -> Messages:
    return config["configurable"]["message_history"].window(ROOM)


async def _awindowed(_input: Any, config: Any) -> Messages:
    return await config["configurable"]["message_history"].awindow(ROOM)


class Chain:
    """A chain whose prompt has a window for its history, and what was sent with it."""

    def __init__(self, **wrapping: Any) -> None:
        self.sent: list[Messages] = []
        self.pipeline = ContextPipeline(SETTINGS, store=InMemoryStore())
        model = FakeListChatModel(responses=[f"Answer {number}. " + "It is so. " * 20 for number in range(40)])
        steps: Runnable[Any, Any] = (
            RunnablePassthrough.assign(history=RunnableLambda(_windowed, _awindowed))
            | PROMPT
            | RunnablePassthrough(lambda prompt: self.sent.append(prompt.to_messages()))
            | model
        )
        with pytest.warns(match="RunnableWithMessageHistory is deprecated"):
            self.runnable = RunnableWithMessageHistory(
                steps, input_messages_key="question", history_messages_key="history", **wrapping
            )


@pytest.fixture
def chain() -> Chain:
    def session(user_id: str, conversation_id: str) -> BudgetedChatMessageHistory:
        return BudgetedChatMessageHistory(conversation_id, user_id=user_id, pipeline=made.pipeline)

    made = Chain(
        get_session_history=session,
        history_factory_config=[
            ConfigurableFieldSpec(id="user_id", annotation=str),
            ConfigurableFieldSpec(id="conversation_id", annotation=str),
        ],
    )
    return made


def config_of(user: str, conversation: str = "c1") -> dict[str, Any]:
    return {"configurable": {"user_id": user, "conversation_id": conversation}}


async def _ask(chain: Chain, how: str, question: str, user: str) -> str:
    given = ({"question": question}, config_of(user))
    match how:
        case "invoke":
            return chain.runnable.invoke(*given).content
        case "ainvoke":
            return (await chain.runnable.ainvoke(*given)).content
        case "stream":
            return "".join(part.content for part in chain.runnable.stream(*given))
        case _:
            return "".join([part.content async for part in chain.runnable.astream(*given)])


@pytest.fixture(params=["invoke", "ainvoke", "stream", "astream"])
def how(request: pytest.FixtureRequest) -> str:
    return request.param


async def test_a_chain_stores_what_was_asked_and_answered(chain: Chain, how: str) -> None:
    answers = [await _ask(chain, how, f"Question {number}?", "ada") for number in range(3)]
    said = await chain.pipeline.aget_messages(user_id="ada", conversation_id="c1")
    assert [message.type for message in said] == ["human", "ai"] * 3
    assert [message.content for message in said[::2]] == [f"Question {number}?" for number in range(3)]
    assert [message.content for message in said[1::2]] == answers
    assert {type(message) for message in said} == {HumanMessage, AIMessage}


async def test_the_prompt_of_a_chain_fits_however_long_the_conversation_is(chain: Chain, how: str) -> None:
    for number in range(30):
        await _ask(chain, how, f"Question {number}?", "ada")
    count_messages = TiktokenCounter().count_messages
    sizes = [count_messages(prompt) for prompt in chain.sent]
    assert max(sizes) <= ROOM + count_messages([SYSTEM, HumanMessage("Question 29?")])
    assert "<conversation_summary>" in chain.sent[-1][1].text
    assert "Answer 28." in chain.sent[-1][-2].text


async def test_a_chain_keeps_users_apart(chain: Chain, how: str) -> None:
    for user in ("ada", "bob"):
        await _ask(chain, how, f"I am {user}.", user)
    await _ask(chain, how, "Who am I?", "ada")
    assert [message.content for message in chain.sent[-1]][1] == "I am ada."
    assert len(chain.sent[-1]) == 4


def test_a_chain_without_a_user_is_refused(chain: Chain) -> None:
    with pytest.raises(MissingScopeError):
        chain.runnable.invoke({"question": "Hi?"}, config_of(""))


def test_a_chain_of_a_model_alone_reads_and_writes_the_history() -> None:
    pipeline = ContextPipeline(SETTINGS, store=InMemoryStore())

    def session(session_id: str) -> BudgetedChatMessageHistory:
        return BudgetedChatMessageHistory(session_id, user_id="ada", pipeline=pipeline)

    with pytest.warns(match="RunnableWithMessageHistory is deprecated"):
        chain = RunnableWithMessageHistory(FakeListChatModel(responses=["Hello.", "Again."]), session)
    for question in ("Hi", "Hi"):
        chain.invoke(question, {"configurable": {"session_id": "c1"}})
    assert [message.content for message in session("c1").messages] == ["Hi", "Hello.", "Hi", "Again."]


def test_a_chain_goes_on_where_storing_fails_and_langchain_logs_it(caplog: pytest.LogCaptureFixture) -> None:
    """The docstring says so, because this package has no say in it."""

    class Full(InMemoryStore):
        def batch(self, ops: Any) -> Any:
            ops = list(ops)
            if any(isinstance(op, PutOp) for op in ops):
                raise OSError("disk full")
            return super().batch(ops)

    pipeline = ContextPipeline(store=Full())
    with pytest.warns(match="RunnableWithMessageHistory is deprecated"):
        chain = RunnableWithMessageHistory(
            FakeListChatModel(responses=["Hello."]),
            lambda session_id: BudgetedChatMessageHistory(session_id, user_id="ada", pipeline=pipeline),
        )
    assert chain.invoke("Hi", {"configurable": {"session_id": "c1"}}).content == "Hello."
    assert "disk full" in caplog.text
