"""`pipeline.knowledge`: what is known is listed, added, edited, deleted, pinned and traced to its messages."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from langchain_core.messages import HumanMessage
from langgraph.store.base import BaseStore
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import ContextPipeline
from langchain_ctxbudget.core.layers import Layer, Status
from langchain_ctxbudget.errors import FactError, InputError, MissingScopeError
from langchain_ctxbudget.knowledge.bundles import LIFETIME
from langchain_ctxbudget.knowledge.control import MOST_CHARACTERS
from langchain_ctxbudget.knowledge.records import BY_USER, Fact
from tests.integration_tests.conftest import Call
from tests.integration_tests.test_learning import (
    ADA,
    CHANGES,
    FILLER,
    HERE,
    NOW,
    STORY,
    THERE,
    human,
    items,
    learn,
    opened,
    restarted,
    system,
    texts,
)

# On every store


def told(pipeline: ContextPipeline, call: Call) -> None:
    call(pipeline, "add_messages", human(*STORY), **HERE)
    assert call(pipeline, "flush", 60)


def fact_about(pipeline: ContextPipeline, call: Call, word: str) -> Fact:
    found: list[Fact] = call(pipeline.knowledge, "list_facts", **ADA)
    return next(fact for fact in found if word in fact.text)


def test_what_is_known_is_listed_added_edited_pinned_and_deleted(store: BaseStore, call: Call) -> None:
    with opened(store) as pipeline:
        told(pipeline, call)
        it = pipeline.knowledge
        home = fact_about(pipeline, call, "Lisbon")
        added = call(it, "add_fact", "Plays the cello", category="identity", **ADA)
        edited = call(it, "edit", home.id, text="Lives in Lisbon, Alfama", **ADA)
        pinned = call(it, "pin", home.id, **ADA)
        assert (edited.text, pinned.pinned, edited.made_by) == ("Lives in Lisbon, Alfama", True, BY_USER)
        facts = call(it, "list_facts", **ADA)
        assert facts[0] == pinned
        assert added in facts
        call(it, "delete", added.id, **ADA)
        assert call(it, "pin", home.id, pinned=False, **ADA) == edited
        assert added not in call(it, "list_facts", include_ended=True, **ADA)
        [topic] = call(it, "list_topics", **ADA)
        entities = call(it, "list_entities", **ADA)
        assert [entity.name for entity in entities] == ["Sarah", "Acme"]
        renamed = call(it, "edit", topic.id, label="Beer at home", **ADA)
        assert call(it, "list_topics", **ADA)[0].label == renamed.label == "Beer at home"
        assert {bundle.id for bundle in call(it, "list_bundles", **ADA)} >= {topic.id, entities[0].id}
        call(it, "delete", topic.id, **ADA)
        call(it, "delete", entities[0].id, **ADA)
        assert call(it, "list_topics", **ADA) == []
        assert [entity.name for entity in call(it, "list_entities", **ADA)] == ["Acme"]
        assert {bundle.id for bundle in call(it, "list_bundles", **ADA)}.isdisjoint({topic.id, entities[0].id})


def test_why_gives_the_messages_that_say_it(store: BaseStore, call: Call) -> None:
    with opened(store) as pipeline:
        told(pipeline, call)
        [source] = call(pipeline.knowledge, "why", fact_about(pipeline, call, "Lisbon").id, **ADA)
        assert (source.conversation_id, source.message_id, source.changed) == ("c1", "m1", False)
        assert source.message.text == STORY[1]
        [topic] = call(pipeline.knowledge, "list_topics", **ADA)
        assert [one.message_id for one in call(pipeline.knowledge, "why", topic.id, **ADA)] == ["m3", "m4", "m5"]


def test_what_a_device_has_open_is_predicted_and_compiled(store: BaseStore, call: Call) -> None:
    with opened(store) as pipeline:
        told(pipeline, call)
        call(pipeline.knowledge, "heartbeat", device_id="phone", active_conversation_id="c1", **ADA)
        assert call(pipeline, "flush", 60)
        [device] = call(pipeline.knowledge, "list_devices", **ADA)
        assert device.predicted_topics == ("topic/home-brewing",)
        assert set(device.predicted_entities) == {"entity/person/sarah", "entity/organization/acme"}
        bundles = {bundle.id: bundle for bundle in call(pipeline.knowledge, "list_bundles", **ADA)}
        assert "Home brewing" in bundles["composite"].compiled_prompt
        prediction = call(pipeline.knowledge, "prewarm", **ADA)
        assert [name for name, _ in prediction.topics] == ["topic/home-brewing"]


# Sources


@pytest.mark.parametrize("on_removal", ["archive", "sync"])
def test_why_says_that_a_message_is_gone_or_changed(call: Call, on_removal: str) -> None:
    with opened(learn_every=100) as pipeline:
        learn(pipeline, human(*STORY))
        pipeline.end_session(**HERE)
        assert pipeline.flush(30)
        added = pipeline.knowledge.list_facts(**ADA)
        home = next(fact for fact in added if "Lisbon" in fact.text)
        # Nobody has learned from the change yet: another process wrote it.
        with opened(pipeline.store, learn=False, learn_every=100) as other:
            if on_removal == "sync":
                other.sync([m if m.id != "m1" else HumanMessage("Hm.", id="m1") for m in human(*STORY)], **HERE)
            else:
                other.remove_messages(["m1"], **HERE)
        [source] = call(pipeline.knowledge, "why", home.id, **ADA)
        if on_removal == "sync":
            assert (source.message.text, source.changed) == ("Hm.", True)
        else:
            assert (source.message, source.changed) == (None, False)


def test_what_was_said_by_hand_comes_from_no_message(call: Call) -> None:
    with opened() as pipeline:
        fact = pipeline.knowledge.add_fact("Plays the cello", **ADA)
        assert call(pipeline.knowledge, "why", fact.id, **ADA) == []


def test_why_goes_for_what_was_superseded_too(call: Call) -> None:
    with opened() as pipeline:
        learn(pipeline, human(*STORY))
        learn(pipeline, human(*CHANGES, first=6))
        old = next(f for f in pipeline.knowledge.list_facts(include_ended=True, **ADA) if "amber" in f.text)
        assert old.ended == "superseded"
        assert [one.message_id for one in call(pipeline.knowledge, "why", old.id, **ADA)] == ["m0"]


def test_messages_that_why_gives_are_copies() -> None:
    with opened() as pipeline:
        learn(pipeline, human(*STORY))
        home = next(fact for fact in pipeline.knowledge.list_facts(**ADA) if "Lisbon" in fact.text)
        [source] = pipeline.knowledge.why(home.id, **ADA)
        assert source.message is not None
        source.message.content = "changed"
        assert pipeline.get_messages(**HERE)[1].text == STORY[1]


# What is refused


@pytest.mark.parametrize(
    ("text", "options", "told"),
    [
        ("", {}, "1 to 2,000 characters, not 0"),
        (" \n", {}, "1 to 2,000 characters, not 2"),
        ("x" * (MOST_CHARACTERS + 1), {}, "1 to 2,000 characters, not 2,001"),
        (None, {}, "1 to 2,000 characters, not None"),
        ("Sings", {"confidence": 0}, "confidence must be above 0 and up to 1, not 0"),
        ("Sings", {"confidence": 1.5}, "confidence must be above 0 and up to 1, not 1.5"),
        ("Sings", {"confidence": True}, "confidence must be above 0 and up to 1, not True"),
        ("Sings", {"category": "hobby"}, "category cannot be 'hobby'.*'project', 'preference' or 'identity'"),
    ],
)
def test_what_cannot_be_a_fact_is_refused(call: Call, text: Any, options: dict[str, Any], told: str) -> None:
    with opened() as pipeline:
        with pytest.raises(InputError, match=told):
            call(pipeline.knowledge, "add_fact", text, **options, **ADA)
        assert texts(pipeline) == []


def test_an_eleventh_pin_is_refused_by_its_limit(call: Call) -> None:
    with opened() as pipeline:
        for number in range(10):
            pipeline.knowledge.add_fact(f"Owns item{number}x", pinned=True, **ADA)
        loose = pipeline.knowledge.add_fact("Plays the cello", **ADA)
        for name, arguments in (("pin", [loose.id]), ("add_fact", ["Sings"])):
            options = {"pinned": True} if name == "add_fact" else {}
            with pytest.raises(FactError, match="At most 10 facts can be pinned, and 10 are: unpin one"):
                call(pipeline.knowledge, name, *arguments, **options, **ADA)
        assert sum(fact.pinned for fact in pipeline.knowledge.list_facts(**ADA)) == 10
        assert "Sings" not in texts(pipeline)


@pytest.mark.parametrize(
    ("name", "options"),
    [("edit", {"text": "x"}), ("delete", {}), ("pin", {}), ("why", {})],
    ids=str,
)
def test_an_unknown_id_is_refused_with_what_to_do(call: Call, name: str, options: dict[str, Any]) -> None:
    with opened() as pipeline:
        pipeline.knowledge.add_fact("Sings", user_id="bob")
        with pytest.raises(InputError, match="Nothing with the id 'fact/none' is known about this user; list facts"):
            call(pipeline.knowledge, name, "fact/none", **options, **ADA)


@pytest.mark.parametrize("changes", [{"sources": ()}, {"id": "x"}, {"mention_count": 9}, {"made_by": "me"}])
def test_what_is_computed_cannot_be_edited(call: Call, changes: dict[str, Any]) -> None:
    with opened() as pipeline:
        fact = pipeline.knowledge.add_fact("Sings", **ADA)
        with pytest.raises(InputError, match=f"{next(iter(changes))} of .* cannot be edited; what can are text, cat"):
            call(pipeline.knowledge, "edit", fact.id, **changes, **ADA)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"text": ""}, "1 to 2,000"),
        ({"confidence": 2}, "up to 1, not 2"),
        ({"category": "hobby"}, "category cannot be 'hobby'"),
        ({"valid_until": "soon"}, "valid_until cannot be 'soon'"),
    ],
)
def test_a_value_that_does_not_fit_is_refused_and_nothing_changes(
    call: Call, changes: dict[str, Any], told: str
) -> None:
    with opened() as pipeline:
        fact = pipeline.knowledge.add_fact("Sings", **ADA)
        with pytest.raises(InputError, match=told):
            call(pipeline.knowledge, "edit", fact.id, **changes, **ADA)
        assert pipeline.knowledge.list_facts(**ADA) == [fact]


@pytest.mark.parametrize("user", ["", None])
@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("list_facts", []),
        ("list_topics", []),
        ("list_entities", []),
        ("list_bundles", []),
        ("list_devices", []),
        ("add_fact", ["Sings"]),
        ("delete", ["fact/x"]),
        ("pin", ["fact/x"]),
        ("edit", ["fact/x"]),
        ("why", ["fact/x"]),
        ("prewarm", []),
    ],
)
def test_without_a_user_nothing_is_told_or_changed(call: Call, name: str, arguments: list[str], user: Any) -> None:
    with opened() as pipeline, pytest.raises(MissingScopeError):
        call(pipeline.knowledge, name, *arguments, user_id=user)


def test_a_heartbeat_without_a_device_is_refused(call: Call) -> None:
    with opened() as pipeline, pytest.raises(InputError, match="device_id must be a non-empty string"):
        call(pipeline.knowledge, "heartbeat", device_id="", **ADA)


# What is said by hand stays


def test_a_fact_by_hand_supersedes_what_was_learned(call: Call) -> None:
    with opened() as pipeline:
        learn(pipeline, human(*STORY))
        new = call(pipeline.knowledge, "add_fact", "Favourite colour is teal", slot="favourite colour", **ADA)
        every = {fact.text: fact for fact in pipeline.knowledge.list_facts(include_ended=True, **ADA)}
        assert every["Favourite colour is amber"].superseded_by == new.id
        assert "amber" not in system(pipeline.assemble("Hi", **HERE))


def test_what_was_said_before_can_be_said_again_by_hand_and_deleted(call: Call) -> None:
    """The one that has ended and the one that counts are two."""
    with opened() as pipeline:
        for colour in ("amber", "teal", "amber"):
            said = {"slot": "favourite colour", **ADA}
            last = call(pipeline.knowledge, "add_fact", f"Favourite colour is {colour}", **said)
        every = pipeline.knowledge.list_facts(include_ended=True, **ADA)
        assert len({fact.id for fact in every}) == len(every) == 3
        call(pipeline.knowledge, "delete", last.id, **ADA)
        assert texts(pipeline) == []
        assert len(pipeline.knowledge.list_facts(include_ended=True, **ADA)) == 2


def test_a_clock_that_is_behind_does_not_make_a_fact_by_hand_an_old_one(call: Call) -> None:
    store = InMemoryStore()
    with ContextPipeline(store=store, clock=lambda: NOW + timedelta(hours=1)) as ahead:
        ahead.knowledge.add_fact("Favourite colour is amber", slot="favourite colour", **ADA)
    with opened(store) as pipeline:
        added = call(pipeline.knowledge, "add_fact", "Favourite colour is teal", slot="favourite colour", **ADA)
        assert added.text == "Favourite colour is teal"
        assert texts(pipeline) == ["Favourite colour is teal"]


def test_a_fact_that_is_given_a_slot_by_hand_supersedes_its_other_value(call: Call) -> None:
    with opened() as pipeline:
        old = pipeline.knowledge.add_fact("Lives in Lisbon", category="identity", slot="home", pinned=True, **ADA)
        new = pipeline.knowledge.add_fact("Based in Porto", category="identity", **ADA)
        edited = call(pipeline.knowledge, "edit", new.id, slot="home", **ADA)
        every = {fact.id: fact for fact in pipeline.knowledge.list_facts(include_ended=True, **ADA)}
        assert (every[old.id].ended, every[old.id].superseded_by) == ("superseded", new.id)
        assert every[new.id] == edited
        assert (edited.slot, edited.pinned) == ("home", True)


def test_a_category_edited_by_hand_outlives_the_next_mention(call: Call) -> None:
    with opened() as pipeline:
        learn(pipeline, human("I like green tea.", *FILLER[:4]))
        [fact] = pipeline.knowledge.list_facts(**ADA)
        call(pipeline.knowledge, "edit", fact.id, category="project", **ADA)
        learn(pipeline, human("I like green tea.", *FILLER[:4], first=5))
        [again] = pipeline.knowledge.list_facts(include_ended=True, **ADA)
        assert (again.id, again.category, len(again.sources)) == (fact.id, "project", 2)


def test_the_same_words_by_hand_in_another_category_are_another_fact(call: Call) -> None:
    with opened() as pipeline:
        for category in ("preference", "identity"):
            call(pipeline.knowledge, "add_fact", "Likes tea", category=category, **ADA)
        assert [fact.category for fact in pipeline.knowledge.list_facts(**ADA)] == ["preference", "identity"]


SOON_TEXT = "Flies to Rome next week"


def test_a_fact_by_hand_about_next_week_has_no_end(call: Call) -> None:
    with opened() as pipeline:
        assert call(pipeline.knowledge, "add_fact", SOON_TEXT, pinned=True, **ADA).valid_until is None


def test_a_fact_whose_text_is_changed_by_hand_loses_the_end_that_nobody_has_said(call: Call) -> None:
    with opened() as pipeline:
        learn(pipeline, human("I'm flying to Rome next week.", *FILLER[:4]))
        [fact] = pipeline.knowledge.list_facts(**ADA)
        edited = call(pipeline.knowledge, "edit", fact.id, text="Has an aunt in Rome", **ADA)
        assert (fact.valid_until is None, edited.valid_until) == (False, None)


def test_a_fact_whose_plan_is_deleted_has_no_end(call: Call) -> None:
    with opened() as pipeline:
        home = pipeline.knowledge.add_fact("Lives in Lisbon", category="identity", slot="home", **ADA)
        plan = pipeline.knowledge.add_fact("Lives in Porto", category="identity", **ADA)
        call(pipeline.knowledge, "edit", plan.id, slot="home", valid_from=NOW + timedelta(days=9), **ADA)
        waits = next(fact for fact in pipeline.knowledge.list_facts(**ADA) if fact.id == home.id)
        call(pipeline.knowledge, "delete", plan.id, **ADA)
        [left] = pipeline.knowledge.list_facts(**ADA)
        assert (waits.valid_until, left) == (NOW + timedelta(days=9), home)


def test_a_fact_by_hand_that_gives_up_a_plan_is_told(call: Call) -> None:
    with opened() as pipeline:
        pipeline.knowledge.add_fact("Lives in Lisbon", category="identity", slot="home", **ADA)
        plan = pipeline.knowledge.add_fact("Moves to Porto", category="identity", **ADA)
        pipeline.knowledge.edit(plan.id, slot="home", valid_from=NOW + timedelta(days=9), **ADA)
        added = call(pipeline.knowledge, "add_fact", "Does not move to Porto", category="identity", **ADA)
        assert added.text == "Does not move to Porto"
        assert texts(pipeline) == ["Does not move to Porto", "Lives in Lisbon"]


def test_a_fact_edited_by_hand_outlives_its_message(call: Call) -> None:
    with opened() as pipeline:
        learn(pipeline, human(*STORY))
        home = next(fact for fact in pipeline.knowledge.list_facts(**ADA) if "Lisbon" in fact.text)
        call(pipeline.knowledge, "edit", home.id, text="Lives in Alfama", **ADA)
        call(pipeline, "clear", **HERE)
        assert texts(pipeline) == ["Lives in Alfama"]


def test_an_entity_edited_by_hand_keeps_what_was_said_of_it(call: Call) -> None:
    with opened() as pipeline:
        learn(pipeline, human(*STORY))
        changes = {"name": "Sally", "relationship": "best friend", "compiled_context": "Never mention her dog."}
        call(pipeline.knowledge, "edit", "entity/person/sarah", **changes, **ADA)
        learn(pipeline, human("Sarah Chen, my sister, works at Globex.", *CHANGES, first=6))
        sarah = next(e for e in pipeline.knowledge.list_entities(**ADA) if e.id == "entity/person/sarah")
        assert {name: getattr(sarah, name) for name in changes} == changes
        assert "Never mention her dog." in pipeline.assemble("What about Sarah?", **THERE).messages[-1].text


def test_a_topic_edited_by_hand_keeps_what_was_said_of_it(call: Call) -> None:
    with opened() as pipeline:
        learn(pipeline, human(*STORY))
        changes = {"label": "Beer", "domain": "business", "proficiency_level": "expert"}
        call(pipeline.knowledge, "edit", "topic/home-brewing", **changes, **ADA)
        learn(pipeline, human("More home brewing.", "The home brewing shop.", *FILLER[:4], first=6))
        [topic] = pipeline.knowledge.list_topics(**ADA)
        assert {name: getattr(topic, name) for name in changes} == changes
        assert topic.total_messages > 3


def test_what_was_deleted_shows_nowhere_any_more(call: Call) -> None:
    with opened() as pipeline:
        learn(pipeline, human(*STORY))
        pipeline.knowledge.prewarm(**ADA)
        for entity in pipeline.knowledge.list_entities(**ADA):
            call(pipeline.knowledge, "delete", entity.id, **ADA)
        bundles = {bundle.id: bundle.compiled_prompt for bundle in pipeline.knowledge.list_bundles(**ADA)}
        assert not any("Acme" in text for text in bundles.values())


def test_a_deleted_fact_is_not_in_the_text_of_what_is_likely() -> None:
    with opened() as pipeline:
        learn(pipeline, human(*STORY))
        added = pipeline.knowledge.add_fact("Sells home brewing kits", category="project", **ADA)
        pipeline.knowledge.prewarm(**ADA)
        before = "".join(bundle.compiled_prompt for bundle in pipeline.knowledge.list_bundles(**ADA))
        pipeline.knowledge.delete(added.id, **ADA)
        after = "".join(bundle.compiled_prompt for bundle in pipeline.knowledge.list_bundles(**ADA))
        assert ("Sells home brewing kits" in before, "Sells home brewing kits" in after) == (True, False)


# Devices


def test_what_is_open_on_the_device_comes_first_of_what_is_named_alike(call: Call) -> None:
    with opened() as pipeline:
        learn(pipeline, human("My colleague Tom is nice.", *FILLER[:4]), {**ADA, "conversation_id": "tom"})
        learn(pipeline, human("My sister Sarah is nice.", *FILLER[:4]), {**ADA, "conversation_id": "sarah"})
        for name in ("tom", "sarah"):
            call(pipeline.knowledge, "heartbeat", device_id="phone", active_conversation_id=name, **ADA)
            assert pipeline.flush(30)
            context = call(pipeline, "assemble", "What about Tom and Sarah?", device_id="phone", **THERE)
            people = [item.id for item in items(context, Layer.ENTITIES) if item.status is Status.INCLUDED]
            assert people[0] == f"entity/person/{name}"
            assert len(people) == 2


def test_prewarming_compiles_what_has_expired(call: Call) -> None:
    store = InMemoryStore()
    with opened(store) as pipeline:
        learn(pipeline, human(*STORY))
        before = {bundle.id: bundle for bundle in pipeline.knowledge.list_bundles(**ADA)}
    later = NOW + LIFETIME + timedelta(seconds=1)
    with ContextPipeline(store=restarted(store), clock=lambda: later) as pipeline:
        context = pipeline.assemble("What about home brewing?", **HERE)
        assert {item.reason.value for item in items(context, Layer.TOPICS) if item.id in before} == {"stale"}
        call(pipeline.knowledge, "heartbeat", device_id="phone", **ADA)
        assert call(pipeline, "flush", 30)
        after = {bundle.id: bundle for bundle in pipeline.knowledge.list_bundles(**ADA)}
        assert after["topic/home-brewing"].compiled_at == later
        context = pipeline.assemble("What about home brewing?", **HERE)
        assert "stale" not in {item.reason.value for item in items(context, Layer.TOPICS)}


def test_what_a_deleted_fact_says_is_in_no_bundle_any_more() -> None:
    with ContextPipeline(store=InMemoryStore()) as pipeline:
        said = [
            "I'm building a home brewing app called Hopster.",
            "My sister Clara is a nurse in Porto.",
            "Home brewing takes patience.",
            "The home brewing app is slow.",
            "How are you?",
        ]
        pipeline.add_messages([HumanMessage(text) for text in said], user_id="ada", conversation_id="c1")
        pipeline.flush(20)
        knowledge = pipeline.knowledge
        assert any("Porto" in bundle.compiled_prompt for bundle in knowledge.list_bundles(user_id="ada"))
        for fact in knowledge.list_facts(user_id="ada"):
            knowledge.delete(fact.id, user_id="ada")
        texts = " ".join(bundle.compiled_prompt for bundle in knowledge.list_bundles(user_id="ada"))
        assert "Porto" not in texts
        assert "building" not in texts


def test_of_several_people_who_write_only_the_user_is_learned_about() -> None:
    with ContextPipeline(store=InMemoryStore()) as pipeline:
        said = [("bob", "I live in Porto."), ("Ada", "I live in Lisbon."), ("bob", "I'm a dentist."), ("bob", "Right.")]
        messages = [HumanMessage(text, name=name) for name, text in (*said, ("Ada", "Well."))]
        pipeline.add_messages(messages, user_id="ada", conversation_id="c1")
        pipeline.flush(20)
        assert [fact.text for fact in pipeline.knowledge.list_facts(user_id="ada")] == ["Lives in Lisbon"]


def test_a_topic_is_no_part_of_itself() -> None:
    with ContextPipeline(store=InMemoryStore()) as pipeline:
        pipeline.add_messages(
            [HumanMessage(f"The marathon training goes on, day {day}.") for day in range(5)],
            user_id="ada",
            conversation_id="c1",
        )
        pipeline.flush(20)
        [topic, *_] = pipeline.knowledge.list_topics(user_id="ada")
        with pytest.raises(InputError, match="part of"):
            pipeline.knowledge.edit(topic.id, user_id="ada", parent_slug=topic.slug)
        with pytest.raises(InputError, match="slug of another topic"):
            pipeline.knowledge.edit(topic.id, user_id="ada", parent_slug="no such topic")


def test_a_fact_about_next_week_says_when_it_was_said_and_ends() -> None:
    said = datetime(2026, 5, 1, 12, tzinfo=UTC)
    with ContextPipeline(store=InMemoryStore(), clock=lambda: said) as pipeline:
        pipeline.add_messages([HumanMessage("I'm flying to Rome next week.")], user_id="ada", conversation_id="c1")
        pipeline.end_session(user_id="ada", conversation_id="c1")
        pipeline.flush(20)
        [fact] = pipeline.knowledge.list_facts(user_id="ada")
        prompt = str(pipeline.assemble("Hello", user_id="ada", conversation_id="c2").messages[0].content)
        assert "(said 2026-05-01)" in prompt
        assert fact.valid_until == said + timedelta(days=30)
