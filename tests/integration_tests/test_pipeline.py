"""The whole path, sync and async, over every store."""

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest
from langchain_core.embeddings import Embeddings
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langgraph.store.base import BaseStore, Result
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import ContextPipeline, ContextSettings
from langchain_ctxbudget.budget import Layer
from langchain_ctxbudget.errors import BlockedLoopError, InvalidSettingsError

SCOPE = {"user_id": "ada@example.org", "conversation_id": "c.1"}
FACTS = ["The spare key is under the blue flowerpot.", "Grandma's recipe needs 340 g of rye flour."]


def chat(exchanges: int, facts: dict[int, str] | None = None) -> list[BaseMessage]:
    """A long conversation; some answers state a fact."""
    messages: list[BaseMessage] = []
    for number in range(exchanges):
        day = {"created_at": f"2026-{1 + number // 28 % 12:02d}-{1 + number % 28:02d}T09:00:00"}
        messages.append(
            HumanMessage(
                f"Tell me something about subject {number}.", id=f"h{number}", additional_kwargs=day
            )
        )
        said = (facts or {}).get(
            number, f"Subject {number} is rather broad, but here are {number + 3} remarks on it."
        )
        messages.append(AIMessage(said, id=f"a{number}", additional_kwargs=day))
    return messages


def text_of(messages: list[BaseMessage]) -> str:
    return "\n".join(str(message.text) for message in messages)


def test_a_conversation_that_does_not_exist_yet_has_an_empty_history(store: BaseStore) -> None:
    context = ContextPipeline(store=store).assemble("Hello", **SCOPE)
    assert [message.content for message in context.messages] == ["Hello"]
    assert context.report.history_strategy == "empty"
    assert [part.layer for part in context.report.layers] == list(Layer)
    assert [part.layer for part in context.report.layers if part.used_tokens] == [Layer.MESSAGE]


def test_a_short_conversation_goes_in_whole_with_its_real_roles(store: BaseStore) -> None:
    pipeline = ContextPipeline(store=store, system_prompt="Be kind.")
    pipeline.add_messages(chat(2), **SCOPE)
    context = pipeline.assemble("And now?", **SCOPE)
    assert [message.type for message in context.messages] == [
        "system",
        "human",
        "ai",
        "human",
        "ai",
        "human",
    ]
    assert context.report.history_strategy == "full"


@pytest.mark.parametrize(
    "created_at", [1717243200, 1717243200000, "1717243200", datetime(2024, 6, 1, tzinfo=UTC)]
)
def test_a_prompt_shows_the_day_of_a_message_whatever_its_form(
    store: BaseStore, created_at: object
) -> None:
    pipeline = ContextPipeline(store=store)
    pipeline.add_messages(
        [HumanMessage("My bike is blue.", additional_kwargs={"created_at": created_at})], **SCOPE
    )
    context = pipeline.assemble("And now?", **SCOPE)
    assert context.messages[0].content == "[2024-06-01]\nMy bike is blue."
    assert context.report.failures == ()


def test_a_time_that_cannot_be_read_is_in_the_report(store: BaseStore) -> None:
    pipeline = ContextPipeline(store=store)
    kwargs = {"created_at": "yesterday"}
    pipeline.add_messages(
        [HumanMessage("My bike is blue.", id="m1", additional_kwargs=kwargs)], **SCOPE
    )
    [failure] = pipeline.assemble("And now?", **SCOPE).report.failures
    assert "'m1' ('yesterday')" in failure


def test_a_continuation_without_a_human_message_is_legal(store: BaseStore) -> None:
    pipeline = ContextPipeline({"max_context_tokens": 500}, store=store)
    pipeline.add_messages(chat(60), **SCOPE)
    context = pipeline.assemble([AIMessage("Let me go on: ")], **SCOPE)
    assert context.messages[-1].content == "Let me go on: "
    assert context.report.layer("L5").used_tokens == 0


def test_preferences_topics_and_entities_go_in(store: BaseStore) -> None:
    settings = ContextSettings(
        preferences=["Answer in one sentence."],
        topics=[
            {"label": "Billing", "aliases": ["invoice"], "context": "Invoices go out on the 1st."}
        ],
        entities=[{"name": "Ada", "type": "person", "context": "Ada leads billing."}],
    )
    pipeline = ContextPipeline(settings, store=store, system_prompt="You help.")
    context = pipeline.assemble("Has Ada sent the invoice?", **SCOPE)
    assert context.messages[0].content.startswith(
        "You help.\n\n<user_preferences>\n- Answer in one sentence.\n"
    )
    assert "- Billing: Invoices go out on the 1st." in context.messages[1].content
    assert "- Ada (person): Ada leads billing." in context.messages[1].content
    assert context.messages[1].content.endswith("\n\nHas Ada sent the invoice?")


def test_a_long_and_a_short_message_in_turn_do_not_open_and_close_a_compacted_conversation(
    store: BaseStore,
) -> None:
    messages = chat(60)
    budget = ContextPipeline().token_counter.count_messages(messages) + 100
    pipeline = ContextPipeline({"max_context_tokens": budget}, store=store)
    pipeline.add_messages(messages, **SCOPE)
    questions = ["And now? " * 60, "And now?", "And now? " * 60, "And now?"]
    shown = [pipeline.assemble(question, **SCOPE).report.history_strategy for question in questions]
    assert shown == ["windowed"] * 4


def test_a_system_message_in_the_history_becomes_a_note(store: BaseStore) -> None:
    pipeline = ContextPipeline(store=store, system_prompt="You help.")
    pipeline.add_messages(
        [HumanMessage("a"), SystemMessage("Now be formal."), AIMessage("b")], **SCOPE
    )
    context = pipeline.assemble("c", **SCOPE)
    assert [message.type for message in context.messages].count("system") == 1
    assert "Now be formal." in text_of(context.messages)
    assert [repair.kind for repair in context.report.repairs] == ["system_in_history"]


class BrokenEmbeddings(Embeddings):
    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        raise RuntimeError("no embeddings today")

    def embed_query(self, text: str) -> list[float]:
        raise RuntimeError("no embeddings today")


def test_broken_embeddings_leave_lexical_retrieval_and_are_reported(store: BaseStore) -> None:
    pipeline = ContextPipeline(
        {"max_context_tokens": 600}, store=store, embeddings=BrokenEmbeddings()
    )
    pipeline.add_messages(chat(100, {2: FACTS[0]}), **SCOPE)
    context = pipeline.assemble("Where is the spare key?", **SCOPE)
    assert FACTS[0] in context.messages[-1].text
    assert any("no embeddings today" in failure for failure in context.report.failures)


def test_what_a_caller_does_to_its_messages_afterwards_changes_nothing(store: BaseStore) -> None:
    pipeline = ContextPipeline(store=store)
    mine = HumanMessage("blue", id="1")
    pipeline.add_messages([mine], **SCOPE)
    mine.content = "red"
    pipeline.get_messages(**SCOPE)[0].content = "green"
    pipeline.assemble("Which?", **SCOPE).messages[0].content = "yellow"
    assert pipeline.assemble("Which?", **SCOPE).messages[0].content == "blue"


def test_a_blocking_call_that_would_stop_its_own_event_loop_is_an_error() -> None:
    store = SlowStore()
    pipeline = ContextPipeline(store=store)

    async def both() -> None:
        task = asyncio.create_task(pipeline.aassemble("Hello", **SCOPE))
        await store.asked.wait()
        with pytest.raises(BlockedLoopError, match="aassemble"):
            pipeline.assemble("Hello", **SCOPE)
        await task

    asyncio.run(both())


class SlowStore(InMemoryStore):
    def __init__(self) -> None:
        super().__init__()
        self.asked = asyncio.Event()

    async def abatch(self, ops: Any) -> list[Result]:
        self.asked.set()
        await asyncio.sleep(0.02)
        return super().batch(ops)


def test_what_was_cancelled_before_it_was_written_is_not_there_and_can_be_repeated() -> None:
    store = SlowStore()
    pipeline = ContextPipeline(store=store)

    async def cancelled() -> None:
        await pipeline.aadd_messages([HumanMessage("zero", id="0")], **SCOPE)
        task = asyncio.create_task(pipeline.aadd_messages([HumanMessage("one", id="1")], **SCOPE))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await pipeline.aadd_messages([HumanMessage("two", id="2")], **SCOPE)
        await pipeline.aadd_messages([HumanMessage("one", id="1")], **SCOPE)

    asyncio.run(cancelled())
    for reader in (pipeline, ContextPipeline(store=store)):
        assert [message.content for message in reader.get_messages(**SCOPE)] == [
            "zero",
            "two",
            "one",
        ]


def test_a_call_that_is_never_answered_does_not_empty_the_history(store: BaseStore) -> None:
    messages: list[BaseMessage] = [
        *chat(20),
        AIMessage("", id="x", tool_calls=[{"name": "f", "args": {}, "id": "no"}]),
    ]
    for number in range(40):
        messages.append(
            AIMessage(
                "", id=f"c{number}", tool_calls=[{"name": "f", "args": {}, "id": f"k{number}"}]
            )
        )
        messages.append(
            ToolMessage(
                f"Result {number} of the search.", id=f"r{number}", tool_call_id=f"k{number}"
            )
        )
    pipeline = ContextPipeline({"max_context_tokens": 800}, store=store)
    pipeline.add_messages(messages, **SCOPE)
    report = pipeline.assemble("And now?", **SCOPE).report
    assert report.coverage_counts()["verbatim"] >= 4


@pytest.mark.parametrize("wrong", [0.5, "2026-01-01", None])
def test_a_clock_that_gives_no_datetime_is_told(wrong: Any) -> None:
    pipeline = ContextPipeline(clock=lambda: wrong)  # as `time.time` would
    with pytest.raises(InvalidSettingsError, match="clock must give a datetime"):
        pipeline.assemble("Hello", user_id="ada", conversation_id="c1")
