"""The whole path, sync and async, over every store."""

from __future__ import annotations

import asyncio
import threading
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from langchain_core.embeddings import Embeddings
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langgraph.store.base import BaseStore, Op, Result
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import ChromaStore, ContextPipeline, ContextSettings
from langchain_ctxbudget.budget.layers import Layer, Reason, Status
from langchain_ctxbudget.errors import BlockedLoopError, MessageConflictError, MissingScopeError
from tests.integration_tests.conftest import Call

SCOPE = {"user_id": "ada@example.org", "conversation_id": "c.1"}
FACTS = ["The spare key is under the blue flowerpot.", "Grandma's recipe needs 340 g of rye flour."]


def chat(exchanges: int, facts: dict[int, str] | None = None) -> list[BaseMessage]:
    """A long conversation; some answers state a fact."""
    messages: list[BaseMessage] = []
    for number in range(exchanges):
        day = {"created_at": f"2026-{1 + number // 28 % 12:02d}-{1 + number % 28:02d}T09:00:00"}
        messages.append(
            HumanMessage(f"Tell me something about subject {number}.", id=f"h{number}", additional_kwargs=day)
        )
        said = (facts or {}).get(number, f"Subject {number} is rather broad, but here are {number + 3} remarks on it.")
        messages.append(AIMessage(said, id=f"a{number}", additional_kwargs=day))
    return messages


def text_of(messages: list[BaseMessage]) -> str:
    return "\n".join(str(message.text) for message in messages)


def test_a_conversation_that_does_not_exist_yet_has_an_empty_history(store: BaseStore, call: Call) -> None:
    context = call(ContextPipeline(store=store), "assemble", "Hello", **SCOPE)
    assert [message.content for message in context.messages] == ["Hello"]
    assert context.report.history_strategy == "empty"


def test_a_short_conversation_goes_in_whole_with_its_real_roles(store: BaseStore, call: Call) -> None:
    pipeline = ContextPipeline(store=store, system_prompt="Be kind.")
    call(pipeline, "add_messages", chat(2), **SCOPE)
    context = call(pipeline, "assemble", "And now?", **SCOPE)
    assert [message.type for message in context.messages] == ["system", "human", "ai", "human", "ai", "human"]
    assert context.report.history_strategy == "full"


def test_something_said_at_the_start_is_found_again(store: BaseStore, call: Call) -> None:
    pipeline = ContextPipeline({"max_context_tokens": 600}, store=store)
    call(pipeline, "add_messages", chat(150, {2: FACTS[0], 90: FACTS[1]}), **SCOPE)
    context = call(pipeline, "assemble", "Where is the spare key?", **SCOPE)
    assert FACTS[0] in context.messages[-1].text
    assert context.report.layer("L5").items[0].status is Status.INCLUDED


def test_the_newest_messages_are_verbatim(store: BaseStore, call: Call) -> None:
    messages = chat(150)
    pipeline = ContextPipeline({"max_context_tokens": 1000}, store=store)
    call(pipeline, "add_messages", messages, **SCOPE)
    context = call(pipeline, "assemble", "And now?", **SCOPE)
    shown = [message for message in context.messages if message.id]
    assert [message.id for message in shown[-6:]] == [message.id for message in messages[-6:]]


def test_assembling_stores_nothing_that_was_said(store: BaseStore, call: Call) -> None:
    pipeline = ContextPipeline({"max_context_tokens": 600}, store=store)
    call(pipeline, "add_messages", chat(60), **SCOPE)
    before = call(pipeline, "get_messages", **SCOPE)
    for _ in range(3):
        call(pipeline, "assemble", "And now?", **SCOPE)
    assert call(ContextPipeline(store=store), "get_messages", **SCOPE) == before == chat(60)


def test_adding_messages_again_adds_nothing(store: BaseStore, call: Call) -> None:
    pipeline = ContextPipeline(store=store)
    ids = call(pipeline, "add_messages", chat(3), **SCOPE)
    assert call(pipeline, "add_messages", chat(3), **SCOPE) == ids
    assert call(pipeline, "get_messages", **SCOPE) == chat(3)


def test_a_second_yes_is_a_second_message(store: BaseStore, call: Call) -> None:
    pipeline = ContextPipeline(store=store)
    first = call(pipeline, "add_messages", [HumanMessage("yes")], **SCOPE)
    second = call(pipeline, "add_messages", [HumanMessage("yes")], **SCOPE)
    assert first != second
    assert [message.content for message in call(pipeline, "get_messages", **SCOPE)] == ["yes", "yes"]


def test_a_known_id_with_other_content_points_to_sync_and_writes_nothing(store: BaseStore, call: Call) -> None:
    pipeline = ContextPipeline(store=store)
    call(pipeline, "add_messages", chat(2), **SCOPE)
    with pytest.raises(MessageConflictError, match="call `sync`"):
        call(pipeline, "add_messages", [HumanMessage("new", id="n1"), HumanMessage("other", id="h0")], **SCOPE)
    assert call(pipeline, "get_messages", **SCOPE) == chat(2)
    assert call(ContextPipeline(store=store), "get_messages", **SCOPE) == chat(2)


@pytest.mark.parametrize("missing", ["user_id", "conversation_id"])
def test_a_missing_scope_is_an_error(store: BaseStore, call: Call, missing: str) -> None:
    scope = {**SCOPE, missing: ""}
    with pytest.raises(MissingScopeError, match=missing):
        call(ContextPipeline(store=store), "assemble", "Hello", **scope)


def test_another_user_sees_nothing(store: BaseStore, call: Call) -> None:
    pipeline = ContextPipeline(store=store)
    call(pipeline, "add_messages", chat(3, {1: FACTS[0]}), **SCOPE)
    other = {**SCOPE, "user_id": "ada@example"}
    assert call(pipeline, "get_messages", **other) == []
    assert FACTS[0] not in text_of(call(pipeline, "assemble", "Where is the spare key?", **other).messages)


def test_two_pipelines_on_one_store_see_each_other(store: BaseStore, call: Call) -> None:
    first, second = ContextPipeline(store=store), ContextPipeline(store=store)
    call(first, "add_messages", chat(2), **SCOPE)
    call(second, "add_messages", [HumanMessage("from the second", id="s1")], **SCOPE)
    call(first, "add_messages", [AIMessage("from the first", id="f1")], **SCOPE)
    ids = [message.id for message in chat(2)] + ["s1", "f1"]
    for pipeline in (first, second, ContextPipeline(store=store)):
        assert [message.id for message in call(pipeline, "get_messages", **SCOPE)] == ids


def test_a_restart_goes_on_with_the_same_prompt(tmp_path: Path, call: Call) -> None:
    def prompt_after_restart(restart: bool) -> list[Any]:
        folder = tmp_path / f"store-{restart}"
        with ChromaStore(folder) as opened:
            pipeline = ContextPipeline({"max_context_tokens": 700}, store=opened, writer_id="w")
            call(pipeline, "add_messages", chat(80, {3: FACTS[0]}), **SCOPE)
            call(pipeline, "assemble", "Where is the key?", **SCOPE)
            call(pipeline, "add_messages", chat(81)[160:], **SCOPE)
            if not restart:
                return call(pipeline, "assemble", "Where is the spare key?", **SCOPE).messages
        with ChromaStore(folder) as opened:
            pipeline = ContextPipeline({"max_context_tokens": 700}, store=opened, writer_id="w")
            return call(pipeline, "assemble", "Where is the spare key?", **SCOPE).messages

    assert prompt_after_restart(restart=True) == prompt_after_restart(restart=False)


def test_sync_appends_edits_and_removes(store: BaseStore, call: Call) -> None:
    pipeline = ContextPipeline(store=store)
    call(pipeline, "sync", chat(3), **SCOPE)
    edited = chat(4)
    edited[2] = HumanMessage("Something else instead.", id="h1")
    del edited[0]
    call(pipeline, "sync", edited, **SCOPE)
    assert call(pipeline, "get_messages", **SCOPE) == edited
    assert call(ContextPipeline(store=store), "get_messages", **SCOPE) == edited


def test_sync_takes_any_new_order(store: BaseStore, call: Call) -> None:
    pipeline = ContextPipeline(store=store)
    call(pipeline, "sync", chat(3), **SCOPE)
    turned = [*chat(3)[2:], HumanMessage("in between", id="x"), *chat(3)[:2]]
    call(pipeline, "sync", turned, **SCOPE)
    assert call(ContextPipeline(store=store), "get_messages", **SCOPE) == turned


def test_an_edit_before_the_cut_renews_the_summary(store: BaseStore, call: Call) -> None:
    pipeline = ContextPipeline({"max_context_tokens": 500}, store=store)
    before = chat(60, {1: "We decided to rent the Zeppelin in Friedrichshafen for 9,000 euros."})
    call(pipeline, "sync", before, **SCOPE)
    assert "Zeppelin" in text_of(call(pipeline, "assemble", "And now?", **SCOPE).messages)
    call(pipeline, "sync", chat(60, {1: "We decided to stay at home after all."}), **SCOPE)
    assert "Zeppelin" not in text_of(call(pipeline, "assemble", "And now?", **SCOPE).messages)


def test_a_tool_turn_keeps_calls_and_results_together(store: BaseStore, call: Call) -> None:
    pipeline = ContextPipeline(store=store)
    turn = [
        HumanMessage("What is the weather?"),
        AIMessage("", tool_calls=[{"name": "weather", "args": {"city": "Bonn"}, "id": "1"}]),
        ToolMessage("rain", tool_call_id="1"),
    ]
    context = call(pipeline, "assemble", turn, **SCOPE)
    assert [message.type for message in context.messages] == ["human", "ai", "tool"]


def test_old_call_groups_of_a_long_turn_give_way(store: BaseStore, call: Call) -> None:
    turn: list[BaseMessage] = [HumanMessage("Look it all up.")]
    for number in range(60):
        turn.append(AIMessage("", tool_calls=[{"name": "look", "args": {"page": number}, "id": str(number)}]))
        turn.append(ToolMessage(f"Page {number} says: " + "nothing much. " * 10, tool_call_id=str(number)))
    context = call(ContextPipeline({"max_context_tokens": 800}, store=store), "assemble", turn, **SCOPE)
    assert context.messages[0].text.startswith("[Left out: the first ")
    assert context.messages[0].text.endswith("]\nLook it all up.")
    assert context.messages[-1] == turn[-1]
    left_out = [item for item in context.report.layer("L7").items if item.status is Status.OMITTED]
    assert left_out
    assert {item.reason for item in left_out} == {Reason.NO_ROOM}


def test_a_continuation_without_a_human_message_is_legal(store: BaseStore, call: Call) -> None:
    pipeline = ContextPipeline({"max_context_tokens": 500}, store=store)
    call(pipeline, "add_messages", chat(60), **SCOPE)
    context = call(pipeline, "assemble", [AIMessage("Let me go on: ")], **SCOPE)
    assert context.messages[-1].content == "Let me go on: "
    assert context.report.layer("L5").used_tokens == 0


def test_preferences_topics_and_entities_go_in(store: BaseStore, call: Call) -> None:
    settings = ContextSettings(
        preferences=["Answer in one sentence."],
        topics=[{"label": "Billing", "aliases": ["invoice"], "context": "Invoices go out on the 1st."}],
        entities=[{"name": "Ada", "type": "person", "context": "Ada leads billing."}],
    )
    pipeline = ContextPipeline(settings, store=store, system_prompt="You help.")
    context = call(pipeline, "assemble", "Has Ada sent the invoice?", **SCOPE)
    assert context.messages[0].content.startswith("You help.\n\n<user_preferences>\n- Answer in one sentence.\n")
    assert "- Billing: Invoices go out on the 1st." in context.messages[1].content
    assert "- Ada (person): Ada leads billing." in context.messages[1].content
    assert context.messages[1].content.endswith("\n\nHas Ada sent the invoice?")


def test_entities_can_be_switched_off(store: BaseStore, call: Call) -> None:
    settings = {"entities": [{"name": "Ada", "context": "Ada leads billing."}], "include_entities": False}
    context = call(ContextPipeline(settings, store=store), "assemble", "Ask Ada.", **SCOPE)
    assert "leads billing" not in text_of(context.messages)
    assert [item.reason for item in context.report.layer("L3").items] == [Reason.SWITCHED_OFF]


def test_the_call_s_settings_win(store: BaseStore, call: Call) -> None:
    pipeline = ContextPipeline({"max_context_tokens": 5000}, store=store)
    context = call(pipeline, "assemble", "Hello", settings={"max_context_tokens": 100}, **SCOPE)
    assert context.report.budget_tokens == 100


def test_what_is_stored_between_turns_leaves_the_stable_zone_as_it_was(store: BaseStore, call: Call) -> None:
    pipeline = ContextPipeline({"max_context_tokens": 2000}, store=store, system_prompt="You help.")
    messages = chat(120)
    zones: list[tuple[bool, list[BaseMessage]]] = []
    call(pipeline, "add_messages", messages[:100], **SCOPE)
    for number in range(50, 80):
        context = call(pipeline, "assemble", messages[2 * number].content, **SCOPE)
        zones.append((context.report.stability.compaction_step, context.messages[:-1]))
        call(pipeline, "add_messages", messages[2 * number : 2 * number + 2], **SCOPE)
    quiet = [(a, b) for (_, a), (step, b) in pairwise(zones) if not step]
    assert len(quiet) > 20
    assert all(later[: len(earlier)] == earlier for earlier, later in quiet)


def test_a_larger_budget_shows_a_compacted_conversation_whole_again(store: BaseStore, call: Call) -> None:
    pipeline = ContextPipeline({"max_context_tokens": 1000}, store=store)
    call(pipeline, "add_messages", chat(60), **SCOPE)
    assert call(pipeline, "assemble", "And now?", **SCOPE).report.history_strategy == "multi_level"
    whole = pipeline.token_counter.count_messages(chat(60)) + 1000
    context = call(pipeline, "assemble", "And now?", settings={"max_context_tokens": whole}, **SCOPE)
    assert context.report.history_strategy == "full"


def test_a_larger_budget_gets_a_larger_summary_of_its_own(store: BaseStore, call: Call) -> None:
    def summary_tokens(pipeline: ContextPipeline, budget: int) -> int:
        context = call(pipeline, "assemble", "And now?", settings={"max_context_tokens": budget}, **SCOPE)
        assert context.report.total_tokens <= budget
        return sum(item.tokens for item in context.report.layer("L6").items if item.reason is Reason.SUMMARY)

    pipeline = ContextPipeline({"emphasis": "cache"}, store=store)
    call(pipeline, "add_messages", chat(300), **SCOPE)
    small, large, small_again = (summary_tokens(pipeline, budget) for budget in (1500, 4000, 1500))
    assert small == small_again < large


def test_a_long_and_a_short_message_in_turn_do_not_open_and_close_a_compacted_conversation(
    store: BaseStore, call: Call
) -> None:
    messages = chat(60)
    budget = ContextPipeline().token_counter.count_messages(messages) + 100
    pipeline = ContextPipeline({"max_context_tokens": budget}, store=store)
    call(pipeline, "add_messages", messages, **SCOPE)
    questions = ["And now? " * 60, "And now?", "And now? " * 60, "And now?"]
    shown = [call(pipeline, "assemble", question, **SCOPE).report.history_strategy for question in questions]
    assert shown == ["windowed"] * 4


def test_a_new_turn_tokenizes_only_what_is_new(store: BaseStore, call: Call) -> None:
    pipeline = ContextPipeline({"max_context_tokens": 2000}, store=store)
    call(pipeline, "add_messages", chat(200), **SCOPE)
    call(pipeline, "assemble", "Tell me about subject 7.", **SCOPE)
    before = pipeline.token_counter.calls
    call(pipeline, "assemble", "Tell me about subject 7.", **SCOPE)
    assert pipeline.token_counter.calls - before <= 3


def test_a_conversation_that_begins_with_an_answer_gets_a_note_in_front(store: BaseStore, call: Call) -> None:
    pipeline = ContextPipeline(store=store)
    call(pipeline, "add_messages", [AIMessage("Welcome!")], **SCOPE)
    context = call(pipeline, "assemble", "Hello", **SCOPE)
    assert [message.type for message in context.messages] == ["human", "ai", "human"]
    assert [repair.kind for repair in context.report.repairs] == ["first_message"]


def test_what_is_left_out_without_a_summary_is_dated(store: BaseStore, call: Call) -> None:
    pipeline = ContextPipeline({"max_context_tokens": 200}, store=store)
    call(pipeline, "add_messages", chat(60), **SCOPE)
    context = call(pipeline, "assemble", "And now?", **SCOPE)
    assert not any(item.reason is Reason.SUMMARY for item in context.report.layer("L6").items)
    said = [message.text for message in context.messages]
    position = said.index("[The conversation goes on, 2026-03-03.]")
    assert said[position + 1].startswith("[2026-03-04]\n")  # the next day says so itself


def test_a_system_message_in_the_history_becomes_a_note(store: BaseStore, call: Call) -> None:
    pipeline = ContextPipeline(store=store, system_prompt="You help.")
    call(pipeline, "add_messages", [HumanMessage("a"), SystemMessage("Now be formal."), AIMessage("b")], **SCOPE)
    context = call(pipeline, "assemble", "c", **SCOPE)
    assert [message.type for message in context.messages].count("system") == 1
    assert "Now be formal." in text_of(context.messages)
    assert [repair.kind for repair in context.report.repairs] == ["system_in_history"]


def test_the_coverage_puts_every_message_in_one_state(store: BaseStore, call: Call) -> None:
    pipeline = ContextPipeline({"max_context_tokens": 1500, "emphasis": "cache"}, store=store)
    call(pipeline, "add_messages", chat(100, {2: FACTS[0]}), **SCOPE)
    report = call(pipeline, "assemble", "Where is the spare key?", **SCOPE).report
    covered = [position for part in report.coverage for position in range(part.first, part.last + 1)]
    assert covered == list(range(1, 201))
    assert all(count > 0 for state, count in report.coverage_counts().items() if state != "omitted")


class BrokenEmbeddings(Embeddings):
    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        raise RuntimeError("no embeddings today")

    def embed_query(self, text: str) -> list[float]:
        raise RuntimeError("no embeddings today")


def test_broken_embeddings_leave_lexical_retrieval_and_are_reported(store: BaseStore, call: Call) -> None:
    pipeline = ContextPipeline({"max_context_tokens": 600}, store=store, embeddings=BrokenEmbeddings())
    call(pipeline, "add_messages", chat(100, {2: FACTS[0]}), **SCOPE)
    context = call(pipeline, "assemble", "Where is the spare key?", **SCOPE)
    assert FACTS[0] in context.messages[-1].text
    assert any("no embeddings today" in failure for failure in context.report.failures)


class FailingStore(InMemoryStore):
    """Fails on writes into namespaces of one kind."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind

    def batch(self, ops: Any) -> list[Result]:
        todo: list[Op] = list(ops)
        if any(hasattr(op, "value") and self.kind in op.namespace for op in todo):
            raise OSError("disk full")
        return super().batch(todo)

    async def abatch(self, ops: Any) -> list[Result]:
        return self.batch(ops)


def test_a_cut_that_cannot_be_saved_is_reported_and_the_turn_goes_on(call: Call) -> None:
    pipeline = ContextPipeline({"max_context_tokens": 600}, store=FailingStore("cuts"))
    call(pipeline, "add_messages", chat(100), **SCOPE)
    report = call(pipeline, "assemble", "And now?", **SCOPE).report
    assert report.failures == ("compaction cuts not saved: OSError: disk full",)


def test_a_failed_write_of_messages_is_an_error_and_can_be_tried_again(call: Call) -> None:
    store = FailingStore("messages")
    pipeline = ContextPipeline(store=store)
    with pytest.raises(OSError, match="disk full"):
        call(pipeline, "add_messages", chat(2), **SCOPE)
    store.kind = "nothing"
    call(pipeline, "add_messages", chat(2), **SCOPE)
    assert call(pipeline, "get_messages", **SCOPE) == chat(2)


def test_the_same_words_from_several_pipelines_at_once_are_all_kept(store: BaseStore) -> None:
    pipelines = [ContextPipeline(store=store) for _ in range(4)]

    def work(pipeline: ContextPipeline) -> None:
        for _ in range(5):
            pipeline.add_messages([HumanMessage("yes")], **SCOPE)

    threads = [threading.Thread(target=work, args=(pipeline,)) for pipeline in pipelines]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(ContextPipeline(store=store).get_messages(**SCOPE)) == 20


def test_what_a_caller_does_to_its_messages_afterwards_changes_nothing(store: BaseStore, call: Call) -> None:
    pipeline = ContextPipeline(store=store)
    mine = HumanMessage("blue", id="1")
    call(pipeline, "add_messages", [mine], **SCOPE)
    mine.content = "red"
    call(pipeline, "get_messages", **SCOPE)[0].content = "green"
    call(pipeline, "assemble", "Which?", **SCOPE).messages[0].content = "yellow"
    assert call(pipeline, "assemble", "Which?", **SCOPE).messages[0].content == "blue"


def test_values_that_are_not_json_are_kept_as_text(store: BaseStore, call: Call) -> None:
    pipeline = ContextPipeline(store=store)
    call(pipeline, "add_messages", [ToolMessage("x", tool_call_id="1", artifact={"v": float("nan")})], **SCOPE)
    assert call(pipeline, "get_messages", **SCOPE)[0].artifact == {"v": "NaN"}


@pytest.mark.parametrize("text", [5, ["x"], True, None])
def test_a_text_block_without_text_does_not_break_the_conversation(store: BaseStore, call: Call, text: Any) -> None:
    pipeline = ContextPipeline(store=store)
    call(pipeline, "add_messages", [HumanMessage([{"type": "text", "text": text}], id="1")], **SCOPE)
    assert call(pipeline, "assemble", "Hello", **SCOPE).messages[-1].content == "Hello"


def test_a_blocking_call_that_would_stop_its_own_event_loop_is_an_error() -> None:
    pipeline = ContextPipeline(store=SlowStore())

    async def both() -> None:
        task = asyncio.create_task(pipeline.aassemble("Hello", **SCOPE))
        await asyncio.sleep(0.02)
        with pytest.raises(BlockedLoopError, match="aassemble"):
            pipeline.assemble("Hello", **SCOPE)
        await task

    asyncio.run(both())


class SlowStore(InMemoryStore):
    async def abatch(self, ops: Any) -> list[Result]:
        await asyncio.sleep(0.2)
        return super().batch(ops)


def test_an_id_of_a_removed_message_is_not_given_to_a_living_one(store: BaseStore, call: Call) -> None:
    pipeline = ContextPipeline(store=store)
    call(pipeline, "add_messages", [HumanMessage("yes"), HumanMessage("yes")], **SCOPE)
    second = call(pipeline, "get_messages", **SCOPE)[1]
    call(pipeline, "sync", [second], **SCOPE)
    call(pipeline, "add_messages", [HumanMessage("yes")], **SCOPE)
    assert len(call(pipeline, "get_messages", **SCOPE)) == 2


def test_forgetting_leaves_no_trace_in_the_store(store: BaseStore, call: Call) -> None:
    pipeline = ContextPipeline({"max_context_tokens": 1500}, store=store)
    messages = chat(60, {1: "We decided to rent the Zeppelin in Friedrichshafen for 9,000 euros."})
    call(pipeline, "sync", messages, **SCOPE)
    call(pipeline, "assemble", "And now?", **SCOPE)
    call(pipeline, "sync", messages[4:], on_removal="forget", **SCOPE)
    assert "Zeppelin" not in str([item.value for item in store.search((), limit=10_000)])


def test_a_write_that_was_cancelled_half_way_is_not_there_and_can_be_repeated() -> None:
    store = SlowStore()
    pipeline = ContextPipeline(store=store)

    async def cancelled() -> None:
        await pipeline.aadd_messages([HumanMessage("zero", id="0")], **SCOPE)
        task = asyncio.create_task(pipeline.aadd_messages([HumanMessage("one", id="1")], **SCOPE))
        await asyncio.sleep(0.3)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await pipeline.aadd_messages([HumanMessage("two", id="2")], **SCOPE)
        await pipeline.aadd_messages([HumanMessage("one", id="1")], **SCOPE)

    asyncio.run(cancelled())
    for reader in (pipeline, ContextPipeline(store=store)):
        assert [message.content for message in reader.get_messages(**SCOPE)] == ["zero", "two", "one"]


def test_a_write_that_failed_half_way_is_not_there_and_can_be_repeated(call: Call) -> None:
    store = FailingStore("lanes")
    pipeline = ContextPipeline(store=store)
    with pytest.raises(OSError, match="disk full"):
        call(pipeline, "add_messages", [HumanMessage("one", id="1")], **SCOPE)
    store.kind = "nothing"
    call(pipeline, "add_messages", [HumanMessage("two", id="2")], **SCOPE)
    for reader in (pipeline, ContextPipeline(store=store)):
        assert [message.content for message in call(reader, "get_messages", **SCOPE)] == ["two"]
    call(pipeline, "add_messages", [HumanMessage("one", id="1")], **SCOPE)
    for reader in (pipeline, ContextPipeline(store=store)):
        assert [message.content for message in call(reader, "get_messages", **SCOPE)] == ["two", "one"]


def test_two_pipelines_go_on_from_one_cut(store: BaseStore, call: Call) -> None:
    first, second = (ContextPipeline({"max_context_tokens": 800}, store=store) for _ in range(2))
    call(second, "assemble", "Hello", **SCOPE)
    call(first, "add_messages", chat(60), **SCOPE)
    call(first, "assemble", "And now?", **SCOPE)
    call(first, "add_messages", [HumanMessage("More", id="m"), AIMessage("Here.", id="n")], **SCOPE)
    prompts = [call(pipeline, "assemble", "And now?", **SCOPE).messages for pipeline in (first, second)]
    assert prompts[0] == prompts[1]


def test_a_call_that_is_never_answered_does_not_empty_the_history(store: BaseStore, call: Call) -> None:
    messages: list[BaseMessage] = [*chat(20), AIMessage("", id="x", tool_calls=[{"name": "f", "args": {}, "id": "no"}])]
    for number in range(40):
        messages.append(AIMessage("", id=f"c{number}", tool_calls=[{"name": "f", "args": {}, "id": f"k{number}"}]))
        messages.append(ToolMessage(f"Result {number} of the search.", id=f"r{number}", tool_call_id=f"k{number}"))
    pipeline = ContextPipeline({"max_context_tokens": 800}, store=store)
    call(pipeline, "add_messages", messages, **SCOPE)
    report = call(pipeline, "assemble", "And now?", **SCOPE).report
    assert report.coverage_counts()["verbatim"] >= 4


def test_a_message_left_out_by_a_repair_is_in_the_report(store: BaseStore, call: Call) -> None:
    pipeline = ContextPipeline(store=store)
    call(
        pipeline, "add_messages", [HumanMessage("a", id="1"), ToolMessage("orphan", id="2", tool_call_id="x")], **SCOPE
    )
    items = call(pipeline, "assemble", "b", **SCOPE).report.layer("L6").items
    assert [(item.id, item.reason) for item in items] == [("1", Reason.RECENT), ("2", Reason.REPAIRED)]


def test_threads_may_share_a_conversation(store: BaseStore) -> None:
    pipeline = ContextPipeline({"max_context_tokens": 500}, store=store)
    failures: list[Exception] = []

    def work(number: int) -> None:
        try:
            for turn in range(10):
                pipeline.add_messages([HumanMessage(f"{number}/{turn}", id=f"{number}/{turn}")], **SCOPE)
                pipeline.assemble("And now?", **SCOPE)
        except Exception as error:  # noqa: BLE001 - shown below
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    seen = [str(message.content) for message in ContextPipeline(store=store).get_messages(**SCOPE)]
    assert sorted(seen) == sorted(f"{number}/{turn}" for number in range(4) for turn in range(10))
    for number in range(4):
        own = [text for text in seen if text.startswith(f"{number}/")]
        assert own == [f"{number}/{turn}" for turn in range(10)]


def test_every_layer_is_in_the_report_and_only_the_used_one_costs(store: BaseStore) -> None:
    report = ContextPipeline(store=store).assemble("Hello", **SCOPE).report
    assert [part.layer for part in report.layers] == list(Layer)
    assert [part.layer for part in report.layers if part.used_tokens] == [Layer.MESSAGE]
