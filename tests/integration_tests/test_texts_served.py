"""The compiled texts that a prompt shows: none of what has ended, and of what is said by hand no more than that."""

from __future__ import annotations

from datetime import timedelta

import pytest
from langchain_core.messages import HumanMessage
from langgraph.store.base import BaseStore
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import ContextPipeline
from langchain_ctxbudget.chat_history import BudgetedChatMessageHistory
from langchain_ctxbudget.learning import Learning
from tests.integration_tests.conftest import Call
from tests.integration_tests.test_learning import ADA, FILLER, HERE, NOW, STORY, THERE, human, learn, opened, restarted


def visiting(store: BaseStore) -> None:
    """Have it known that the user is going to visit their sister soon."""
    with opened(store) as pipeline:
        learn(
            pipeline, human("My sister Clara lives in Porto.", "I'm visiting my sister Clara next week.", *FILLER[:3])
        )


@pytest.mark.parametrize(("days", "shown"), [(1, True), (40, False)])
def test_a_text_shows_no_fact_that_holds_no_more(call: Call, days: int, *, shown: bool) -> None:
    store = InMemoryStore()
    visiting(store)
    with ContextPipeline({"sources": []}, store=restarted(store), clock=lambda: NOW + timedelta(days=days)) as pipeline:
        text = call(pipeline, "assemble", "What do you know of Clara?", **THERE).messages[-1].text
    assert "Porto" in text
    assert ("next week (said 2026-02-28)" in text) is shown


def test_texts_that_have_expired_are_compiled_at_the_next_message_and_once(monkeypatch: pytest.MonkeyPatch) -> None:
    store, later = InMemoryStore(), NOW + timedelta(days=40)
    jobs: list[str] = []
    prewarm = Learning.prewarm

    def counted(self: Learning, user_id: str) -> None:
        jobs.append(user_id)
        prewarm(self, user_id)

    visiting(store)
    monkeypatch.setattr(Learning, "prewarm", counted)
    with ContextPipeline(store=restarted(store), clock=lambda: later) as pipeline:
        pipeline.assemble("What about Clara?", **THERE)
        before = {bundle.id: bundle.compiled_prompt for bundle in pipeline.knowledge.list_bundles(**ADA)}
        for text in FILLER[:4]:
            pipeline.add_messages([HumanMessage(text)], **THERE)
            assert pipeline.flush(30)
        [clara] = [one for one in pipeline.knowledge.list_bundles(**ADA) if one.id == "entity/person/clara"]
    assert ("next week" in before["entity/person/clara"], "next week" in clara.compiled_prompt) == (True, False)
    assert jobs == ["ada"]


def test_where_learning_is_off_an_edited_item_shows_only_what_was_said_by_hand(call: Call) -> None:
    store = InMemoryStore()
    with opened(store) as pipeline:
        learn(pipeline, human(*STORY))
        call(pipeline.knowledge, "edit", "entity/person/sarah", compiled_context="Calls on Sundays.", **ADA)
        call(pipeline.knowledge, "edit", "topic/home-brewing", compiled_context="Owns two kettles.", **ADA)
    with opened(store, learn=False, sources=[]) as pipeline:
        shown = call(pipeline, "assemble", "Does Sarah like home brewing?", **THERE).messages[-1].text
        assert [word for word in ("Calls on Sundays.", "Owns two kettles.") if word not in shown] == []
        assert [word for word in ("Acme", "sister", "Today", "Came up", "kettle is new") if word in shown] == []


def test_what_came_up_long_ago_is_listed_after_what_came_up_since(call: Call) -> None:
    store, later = InMemoryStore(), NOW + timedelta(days=800)
    with opened(store) as pipeline:
        learn(pipeline, human(*STORY))
    with ContextPipeline(store=store, clock=lambda: later) as pipeline:
        said = ["My colleague Tom is nice.", *FILLER[:4]]
        learn(
            pipeline, [HumanMessage(text, additional_kwargs={"created_at": later.isoformat()}) for text in said], THERE
        )
        names = [(one.name, round(one.importance_score, 2)) for one in call(pipeline.knowledge, "list_entities", **ADA)]
    assert names == [("Tom", 0.48), ("Sarah", 0.11), ("Acme", 0.08)]


def test_where_a_user_has_switched_learning_off_a_heartbeat_compiles_nothing(call: Call) -> None:
    store = InMemoryStore()
    with opened(store) as pipeline:
        learn(pipeline, human(*STORY))
        pipeline.save_settings({"learn": False}, **ADA)
        before = pipeline.knowledge.list_bundles(**ADA)
        call(pipeline.knowledge, "heartbeat", device_id="phone", active_conversation_id="c1", **ADA)
        assert pipeline.flush(30)
        [device] = pipeline.knowledge.list_devices(**ADA)
        assert (device.predicted_topics, pipeline.knowledge.list_bundles(**ADA)) == ((), before)


def test_a_clock_without_an_offset_tells_utc(call: Call) -> None:
    with ContextPipeline(store=InMemoryStore(), clock=lambda: NOW.replace(tzinfo=None)) as pipeline:
        learn(pipeline, human(*STORY))
        assert call(pipeline, "assemble", "What about home brewing?", **THERE).report.failures == ()
        assert {fact.created_at for fact in call(pipeline.knowledge, "list_facts", **ADA)} == {NOW}


def test_what_is_said_of_an_entity_by_hand_outlives_the_messages_and_what_they_said_does_not(call: Call) -> None:
    with opened() as pipeline:
        learn(pipeline, human(*STORY))
        details = {"attributes": (("email", "s@example.org"),), "facts": ("Plays chess",), "aliases": ("Sal",)}
        call(pipeline.knowledge, "edit", "entity/person/sarah", name="Sally", **details, **ADA)
        call(pipeline, "clear", **HERE)
        [sally] = call(pipeline.knowledge, "list_entities", **ADA)
        assert {name: getattr(sally, name) for name in details} == details
        assert (sally.name, sally.relationship, sally.relations) == ("Sally", None, ())


def test_an_entity_that_is_renamed_by_hand_is_found_by_its_old_name_where_learning_is_off(call: Call) -> None:
    store = InMemoryStore()
    with opened(store) as pipeline:
        learn(pipeline, human(*STORY))
        call(pipeline.knowledge, "edit", "entity/person/sarah", name="Sally", relationship="best friend", **ADA)
    with opened(store, learn=False, sources=[]) as pipeline:
        shown = call(pipeline, "assemble", "Where does Sarah work?", **THERE).messages[-1].text
        assert ("best friend" in shown, "Acme" in shown) == (True, False)


def test_a_window_in_between_takes_nothing_from_what_a_conversation_shows(call: Call) -> None:
    with opened() as pipeline:
        learn(pipeline, human(*STORY))
        pipeline.add_messages([HumanMessage(f"Something else, number {n}. " * 20) for n in range(40)], **THERE)
        before = call(pipeline, "assemble", "Hello", **THERE).messages[0].text
        call(
            BudgetedChatMessageHistory(THERE["conversation_id"], user_id=THERE["user_id"], pipeline=pipeline),
            "window",
            400,
        )
        after = call(pipeline, "assemble", "Hello", **THERE).messages[0].text
    shown = before.partition("</user_preferences>")[0]
    assert "amber" in shown
    assert after.startswith(shown)
