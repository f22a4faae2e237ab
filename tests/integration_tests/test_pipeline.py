"""The whole path: what goes into a prompt, what its report says, and what a caller may not do."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from langchain_core.embeddings import Embeddings
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langgraph.store.base import BaseStore, Result
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import AssembledContext, ContextPipeline, ContextSettings
from langchain_ctxbudget.budget import Layer
from langchain_ctxbudget.errors import BlockedLoopError, InvalidSettingsError

SCOPE = {"user_id": "ada@example.org", "conversation_id": "c.1"}
SPARE_KEY = "The spare key is under the blue flowerpot."


def chat(exchanges: int, facts: dict[int, str] | None = None) -> list[BaseMessage]:
    """A long conversation; some answers state a fact."""
    answers = facts or {}
    messages: list[BaseMessage] = []
    for number in range(exchanges):
        remarks = f"Subject {number} is rather broad, but here are {number + 3} remarks on it."
        day = {"created_at": f"2026-{1 + number // 28 % 12:02d}-{1 + number % 28:02d}T09:00:00"}
        question = HumanMessage(
            f"Tell me something about subject {number}.", id=f"h{number}", additional_kwargs=day
        )
        answer = AIMessage(answers.get(number, remarks), id=f"a{number}", additional_kwargs=day)
        messages += [question, answer]
    return messages


def types_of(messages: Sequence[BaseMessage]) -> list[str]:
    return [message.type for message in messages]


def texts_of(messages: Sequence[BaseMessage]) -> list[str]:
    return [message.text for message in messages]


# The history


def test_a_conversation_that_does_not_exist_yet_has_no_history(store: BaseStore) -> None:
    context = ContextPipeline(store=store).assemble("Hello", **SCOPE)

    assert [message.content for message in context.messages] == ["Hello"]
    assert context.report.history_strategy == "empty"


def test_a_report_has_every_layer_also_unused_ones(store: BaseStore) -> None:
    layers = ContextPipeline(store=store).assemble("Hello", **SCOPE).report.layers

    assert [part.layer for part in layers] == list(Layer)
    assert [part.layer for part in layers if part.used_tokens] == [Layer.MESSAGE]


def test_a_short_conversation_goes_in_whole_with_its_real_roles(store: BaseStore) -> None:
    pipeline = ContextPipeline(store=store, system_prompt="Be kind.")
    pipeline.add_messages(chat(2), **SCOPE)

    context = pipeline.assemble("And now?", **SCOPE)

    assert types_of(context.messages) == ["system", "human", "ai", "human", "ai", "human"]
    assert context.report.history_strategy == "full"


def test_a_continuation_without_a_human_message_is_legal(store: BaseStore) -> None:
    pipeline = ContextPipeline({"max_context_tokens": 500}, store=store)
    pipeline.add_messages(chat(60), **SCOPE)

    context = pipeline.assemble([AIMessage("Let me go on: ")], **SCOPE)

    assert context.messages[-1].content == "Let me go on: "
    assert context.report.layer("L5").used_tokens == 0


def test_short_messages_do_not_open_a_compacted_conversation(store: BaseStore) -> None:
    """Nor do long ones close it again: the conversation just fits beside a short one."""
    messages = chat(60)
    budget = ContextPipeline().token_counter.count_messages(messages) + 100
    pipeline = ContextPipeline({"max_context_tokens": budget}, store=store)
    pipeline.add_messages(messages, **SCOPE)

    strategies = [
        pipeline.assemble(question, **SCOPE).report.history_strategy
        for question in ["And now? " * 60, "And now?", "And now? " * 60, "And now?"]
    ]

    assert strategies == ["windowed", "windowed", "windowed", "windowed"]


def test_a_call_that_is_never_answered_does_not_empty_the_history(store: BaseStore) -> None:
    unanswered = AIMessage("", id="x", tool_calls=[{"name": "f", "args": {}, "id": "no"}])
    messages = [*chat(20), unanswered]
    for number in range(40):
        call = {"name": "f", "args": {}, "id": f"k{number}"}
        messages += [
            AIMessage("", id=f"c{number}", tool_calls=[call]),
            ToolMessage(
                f"Result {number} of the search.", id=f"r{number}", tool_call_id=f"k{number}"
            ),
        ]
    pipeline = ContextPipeline({"max_context_tokens": 800}, store=store)
    pipeline.add_messages(messages, **SCOPE)

    report = pipeline.assemble("And now?", **SCOPE).report

    assert report.coverage_counts()["verbatim"] >= 4


class TestASystemMessageInTheHistory:
    """It becomes a note."""

    @pytest.fixture
    def context(self, store: BaseStore) -> AssembledContext:
        pipeline = ContextPipeline(store=store, system_prompt="You help.")
        history = [HumanMessage("a"), SystemMessage("Now be formal."), AIMessage("b")]
        pipeline.add_messages(history, **SCOPE)
        return pipeline.assemble("c", **SCOPE)

    def test_it_is_no_second_system_message(self, context: AssembledContext) -> None:
        assert types_of(context.messages).count("system") == 1

    def test_its_words_are_in_the_prompt(self, context: AssembledContext) -> None:
        assert any("Now be formal." in message.text for message in context.messages)

    def test_it_is_a_repair_of_the_report(self, context: AssembledContext) -> None:
        assert [repair.kind for repair in context.report.repairs] == ["system_in_history"]


# Times of messages


@pytest.mark.parametrize(
    "created_at",
    [1717243200, 1717243200000, "1717243200", datetime(2024, 6, 1, tzinfo=UTC)],
    ids=["seconds", "milliseconds", "text", "datetime"],
)
def test_a_prompt_shows_the_day_of_a_message_whatever_its_form(
    store: BaseStore, created_at: object
) -> None:
    pipeline = ContextPipeline(store=store)
    message = HumanMessage("My bike is blue.", additional_kwargs={"created_at": created_at})
    pipeline.add_messages([message], **SCOPE)

    context = pipeline.assemble("And now?", **SCOPE)

    assert context.messages[0].content == "[2024-06-01]\nMy bike is blue."
    assert context.report.failures == ()


def test_a_time_that_cannot_be_read_is_in_the_report(store: BaseStore) -> None:
    pipeline = ContextPipeline(store=store)
    message = HumanMessage(
        "My bike is blue.", id="m1", additional_kwargs={"created_at": "yesterday"}
    )
    pipeline.add_messages([message], **SCOPE)

    [failure] = pipeline.assemble("And now?", **SCOPE).report.failures

    assert "'m1' ('yesterday')" in failure


@pytest.mark.parametrize("wrong", [0.5, "2026-01-01", None])
def test_a_clock_that_gives_no_datetime_is_told(wrong: Any) -> None:
    pipeline = ContextPipeline(clock=lambda: wrong)  # as `time.time` would

    with pytest.raises(InvalidSettingsError, match="clock must give a datetime"):
        pipeline.assemble("Hello", user_id="ada", conversation_id="c1")


# What settings know


class TestWhatSettingsKnow:
    """A preference, a topic and an entity that the question names."""

    @pytest.fixture
    def messages(self, store: BaseStore) -> Sequence[BaseMessage]:
        billing = {
            "label": "Billing",
            "aliases": ["invoice"],
            "context": "Invoices go out on the 1st.",
        }
        settings = ContextSettings(
            preferences=["Answer in one sentence."],
            topics=[billing],
            entities=[{"name": "Ada", "type": "person", "context": "Ada leads billing."}],
        )
        pipeline = ContextPipeline(settings, store=store, system_prompt="You help.")
        return pipeline.assemble("Has Ada sent the invoice?", **SCOPE).messages

    def test_preferences_stand_behind_the_system_prompt(
        self, messages: Sequence[BaseMessage]
    ) -> None:
        beginning = "You help.\n\n<user_preferences>\n- Answer in one sentence.\n"
        assert messages[0].text.startswith(beginning)

    def test_the_topic_is_in_the_background(self, messages: Sequence[BaseMessage]) -> None:
        assert "- Billing: Invoices go out on the 1st." in messages[1].text

    def test_the_entity_is_in_the_background(self, messages: Sequence[BaseMessage]) -> None:
        assert "- Ada (person): Ada leads billing." in messages[1].text

    def test_the_question_stands_behind_the_background(
        self, messages: Sequence[BaseMessage]
    ) -> None:
        assert messages[1].text.endswith("\n\nHas Ada sent the invoice?")


# What fails


class BrokenEmbeddings(Embeddings):
    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        raise RuntimeError("no embeddings today")

    def embed_query(self, text: str) -> list[float]:
        raise RuntimeError("no embeddings today")


class TestBrokenEmbeddings:
    @pytest.fixture(scope="class")
    @classmethod
    def context(cls) -> AssembledContext:
        pipeline = ContextPipeline(
            {"max_context_tokens": 600}, store=InMemoryStore(), embeddings=BrokenEmbeddings()
        )
        pipeline.add_messages(chat(100, {2: SPARE_KEY}), **SCOPE)
        return pipeline.assemble("Where is the spare key?", **SCOPE)

    def test_words_are_found_without_them(self, context: AssembledContext) -> None:
        assert SPARE_KEY in context.messages[-1].text

    def test_their_error_is_in_the_report(self, context: AssembledContext) -> None:
        assert any("no embeddings today" in failure for failure in context.report.failures)


# What callers do


class TestACallersOwnMessages:
    """What becomes of them afterwards changes nothing that is stored."""

    @pytest.fixture
    def pipeline(self, store: BaseStore) -> ContextPipeline:
        return ContextPipeline(store=store)

    @pytest.fixture
    def added(self, pipeline: ContextPipeline) -> HumanMessage:
        message = HumanMessage("blue", id="1")
        pipeline.add_messages([message], **SCOPE)
        return message

    def test_added_ones_were_copied(self, pipeline: ContextPipeline, added: HumanMessage) -> None:
        added.content = "red"

        assert pipeline.assemble("Which?", **SCOPE).messages[0].content == "blue"

    @pytest.mark.usefixtures("added")
    def test_messages_of_the_log_are_copies(self, pipeline: ContextPipeline) -> None:
        pipeline.get_messages(**SCOPE)[0].content = "green"

        assert pipeline.assemble("Which?", **SCOPE).messages[0].content == "blue"

    @pytest.mark.usefixtures("added")
    def test_messages_of_a_prompt_are_copies(self, pipeline: ContextPipeline) -> None:
        pipeline.assemble("Which?", **SCOPE).messages[0].content = "yellow"

        assert pipeline.assemble("Which?", **SCOPE).messages[0].content == "blue"


class SlowStore(InMemoryStore):
    """Sets an event when it is asked, and answers a little later."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = asyncio.Event()

    async def abatch(self, ops: Any) -> list[Result]:
        self.asked.set()
        await asyncio.sleep(0.02)
        return super().batch(ops)


async def test_a_blocking_call_that_would_stop_its_event_loop_is_an_error() -> None:
    store = SlowStore()
    pipeline = ContextPipeline(store=store)
    task = asyncio.create_task(pipeline.aassemble("Hello", **SCOPE))
    await store.asked.wait()

    with pytest.raises(BlockedLoopError, match="aassemble"):
        pipeline.assemble("Hello", **SCOPE)

    await task


async def test_a_cancelled_write_is_not_there_and_can_be_repeated() -> None:
    pipeline = ContextPipeline(store=SlowStore())
    await pipeline.aadd_messages([HumanMessage("zero", id="0")], **SCOPE)
    task = asyncio.create_task(pipeline.aadd_messages([HumanMessage("one", id="1")], **SCOPE))
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await pipeline.aadd_messages([HumanMessage("two", id="2")], **SCOPE)
    await pipeline.aadd_messages([HumanMessage("one", id="1")], **SCOPE)

    new_pipeline = ContextPipeline(store=pipeline.store)
    assert texts_of(await pipeline.aget_messages(**SCOPE)) == ["zero", "two", "one"]
    assert texts_of(await new_pipeline.aget_messages(**SCOPE)) == ["zero", "two", "one"]


def test_words_of_both_sides_are_added_without_classes_of_messages() -> None:
    chat = ContextPipeline({"learn": False}).conversation("c1", user_id="ada")
    chat.add("My bike is blue.", ("assistant", "Noted!"))
    chat.add([{"role": "user", "content": "My car is red."}, AIMessage("Fine.")])
    chat.add((HumanMessage("Bye."), AIMessage("Bye!")))

    said = [(message.type, message.text) for message in chat.messages()]
    assert said == [
        ("human", "My bike is blue."),
        ("ai", "Noted!"),
        ("human", "My car is red."),
        ("ai", "Fine."),
        ("human", "Bye."),
        ("ai", "Bye!"),
    ]


def test_a_state_of_dicts_is_the_state_of_their_messages() -> None:
    chat = ContextPipeline({"learn": False}).conversation("c1", user_id="ada")
    ids = chat.sync([("user", "Hi"), {"role": "assistant", "content": "Hello"}])

    assert chat.sync([HumanMessage("Hi"), AIMessage("Hello")]) == ids


@pytest.mark.parametrize(
    "turn",
    ["Hi", ("user", "Hi"), {"role": "user", "content": "Hi"}, {"messages": [("user", "Hi")]}],
)
def test_a_step_of_a_chain_takes_a_message_in_every_form(turn: Any) -> None:
    step = ContextPipeline({"learn": False}).as_runnable(default_user="ada")

    sent = step.invoke(turn, {"configurable": {"thread_id": "c1"}})
    assert [message.text for message in sent] == ["Hi"]
