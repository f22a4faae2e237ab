"""What is known after messages were learned from, and after they are gone: pure."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget.errors import StoreError
from langchain_ctxbudget.flow import drive
from langchain_ctxbudget.knowledge import known
from langchain_ctxbudget.knowledge import repositories as repos
from langchain_ctxbudget.knowledge.bundles import compile_composite
from langchain_ctxbudget.knowledge.forgetting import without
from langchain_ctxbudget.knowledge.learned import Learned, LearnedEntity, LearnedFact, LearnedTopic
from langchain_ctxbudget.knowledge.learning import COMPOSITE, MOST_PROFILES, compiled, remeasured, updated
from langchain_ctxbudget.knowledge.records import (
    BY_RULES,
    BY_USER,
    MOST_SOURCES,
    EntityDetails,
    EntityProfile,
    Fact,
    Highlight,
    KnowledgeMark,
    PhraseRecord,
    ProgressRecord,
    Relation,
    Source,
    TopicConversation,
    TopicProfile,
)
from langchain_ctxbudget.knowledge.state import State, read_state, save
from langchain_ctxbudget.knowledge.taking import Work
from tests.unit_tests.test_taking import SCOPE, conversation

NOW = datetime(2026, 3, 1, tzinfo=UTC)
CUT = {"m0": "d0"}
"""What is left of a conversation."""


def source(message: str, where: str = "c1") -> Source:
    return Source(conversation_id=where, message_id=message, digest=message.replace("m", "d"))


def fact(name: str, *sources: Source, **fields: Any) -> Fact:
    times = {"created_at": NOW, "last_seen": NOW}
    return Fact(**{"id": name, "text": name, "category": "preference", "sources": sources, **times, **fields})


def ended(name: str, by: str, *sources: Source, **fields: Any) -> Fact:
    return fact(name, *sources, ended="superseded", ended_at=NOW, superseded_by=by, valid_until=NOW, **fields)


def names(facts: tuple[Fact, ...]) -> list[str]:
    return [one.id for one in facts]


# Without some messages


def test_what_only_they_said_is_gone() -> None:
    state = State(facts=(fact("a", source("m0")), fact("b", source("m1")), fact("c", source("m0"), source("m1"))))
    after = without(state, "c1", CUT)
    assert names(after.facts) == ["a", "c"]
    assert after.facts[1].sources == (source("m0"),)


def test_what_says_something_else_now_is_gone_too() -> None:
    assert without(State(facts=(fact("a", source("m0")),)), "c1", {"m0": "another"}).facts == ()


def test_other_conversations_are_not_touched() -> None:
    state = State(facts=(fact("a", source("m1", "c2")),), ended=(ended("b", "a", source("m2", "c2")),))
    assert without(state, "c1", {}) == state


@pytest.mark.parametrize("fields", [{"made_by": BY_USER, "sources": (source("m1"),)}, {"sources": ()}])
def test_what_is_said_by_hand_stays(fields: dict[str, Any]) -> None:
    assert names(without(State(facts=(fact("a", **fields),)), "c1", {}).facts) == ["a"]


def test_what_they_superseded_counts_again() -> None:
    state = State(facts=(fact("b", source("m1")),), ended=(ended("a", "b", source("m0")),))
    after = without(state, "c1", CUT)
    assert after.ended == ()
    assert after.facts == (fact("a", source("m0")),)


def test_what_is_gone_between_two_others_hands_on_its_place() -> None:
    state = State(
        facts=(fact("c", source("m0", "c3")),),
        ended=(ended("a", "b", source("m0", "c2")), ended("b", "c", source("m1"))),
    )
    after = without(state, "c1", {})
    assert names(after.facts) == ["c"]
    assert [(one.id, one.superseded_by) for one in after.ended] == [("a", "c")]


def test_where_all_that_came_later_is_gone_the_first_counts_again() -> None:
    state = State(
        facts=(fact("c", source("m2")),), ended=(ended("a", "b", source("m0")), ended("b", "c", source("m1")))
    )
    after = without(state, "c1", CUT)
    assert (names(after.facts), after.ended) == (["a"], ())


def test_what_has_expired_does_not_count_again() -> None:
    old = fact("a", source("m0"), ended="expired", ended_at=NOW)
    assert without(State(facts=(fact("b", source("m1")),), ended=(old,)), "c1", CUT).ended == (old,)


def test_an_entity_that_loses_a_source_loses_its_details() -> None:
    sarah = EntityProfile(
        id="e", name="Sarah", facts=("x",), attributes=(("a", "b"),), sources=(source("m0"), source("m1"))
    )
    [left] = without(State(entities=(sarah,)), "c1", CUT).entities
    assert (left.facts, left.attributes, left.sources, left.is_dirty) == ((), (), (source("m0"),), True)


SAID_BY_HAND = EntityDetails(
    relationship="sister",
    aliases=("Sal",),
    facts=("Plays chess",),
    attributes=(("email", "s@example.org"),),
    relations=(Relation(relation="works at", target="Acme"),),
)
SARAH = EntityProfile(
    id="e",
    name="Sarah",
    relationship="sister",
    aliases=("Sal", "Sarah Chen"),
    compiled_context="Calls on Sundays.",
    facts=("Plays chess", "x"),
    attributes=(("email", "s@example.org"), ("phone", "1")),
    relations=(Relation(relation="works at", target="Acme"), Relation(relation="lives in", target="Rome")),
    sources=(source("m1"),),
    made_by=BY_USER,
    by_hand=SAID_BY_HAND,
)


def test_an_entity_by_hand_keeps_what_is_said_by_hand_and_loses_what_messages_said() -> None:
    [left] = without(State(entities=(SARAH,)), "c1", CUT).entities
    assert {name: getattr(left, name) for name in EntityDetails.model_fields} == dict(SAID_BY_HAND)
    assert (left.sources, left.compiled_context, left.is_dirty) == ((), "Calls on Sundays.", True)


def test_an_entity_with_another_name_by_hand_loses_all_that_messages_said() -> None:
    learned = SARAH.model_copy(update={"by_hand": EntityDetails()})
    [left] = without(State(entities=(learned,)), "c1", CUT).entities
    assert (left.relationship, left.aliases, left.name) == (None, (), "Sarah")


def test_an_entity_of_more_messages_than_it_lists_loses_its_details_with_any_of_them() -> None:
    listed = tuple(source(f"m{number}") for number in range(MOST_SOURCES))
    sarah = EntityProfile(id="e", name="Sarah", facts=("x",), sources=listed)
    there = {f"m{number}": one.digest for number, one in enumerate(listed)}
    links = {("e", "c1"): TopicConversation(topic_id="e", conversation_id="c1", messages=30)}
    [left] = without(State(entities=(sarah,), links=links), "c1", there).entities
    assert (left.facts, left.sources) == ((), listed)


def test_what_a_model_has_written_goes_with_any_message_that_it_comes_from() -> None:
    both = (source("m0"), source("m1"))
    facts = [fact(by, *both, made_by=by) for by in ("a model", BY_RULES)]
    assert [left.id for left in without(State(facts=tuple(facts)), "c1", CUT).facts] == [BY_RULES]


def test_a_topic_loses_what_was_said_about_it() -> None:
    highlights = tuple(Highlight(text=f"said in {one}", source=source(one)) for one in ("m0", "m1"))
    topic = TopicProfile(
        id="t",
        slug="t",
        label="T",
        is_dirty=False,
        highlights=highlights,
        sources=(source("m0"), source("m1")),
        related_acu_ids=("c1/m0", "c1/m1", "c2/m1"),
    )
    [left] = without(State(topics=(topic,)), "c1", CUT).topics
    assert left.highlights == highlights[:1]
    assert left.related_acu_ids == ("c1/m0", "c2/m1")
    assert left.is_dirty


def test_a_topic_that_loses_nothing_is_the_same() -> None:
    topic = TopicProfile(id="t", slug="t", label="T", sources=(source("m0"),), related_acu_ids=("c1/m0",))
    assert without(State(topics=(topic,)), "c1", CUT).topics[0] is topic


def phrase(*sources: Source, **counts: int) -> PhraseRecord:
    return PhraseRecord(phrase="p", label="P", sources=sources, counts=tuple(counts.items()))


@pytest.mark.parametrize(
    ("before", "there", "after"),
    [
        (phrase(source("m1"), c1=1), CUT, None),
        (phrase(source("m0"), source("m1"), c1=2), CUT, phrase(source("m0"), c1=1)),
        (phrase(source("m0"), c1=1), CUT, phrase(source("m0"), c1=1)),
        (phrase(source("m0", "c2"), source("m1"), c1=1, c2=1), CUT, phrase(source("m0", "c2"), c2=1)),
        (phrase(source("m0", "c2"), c1=4, c2=1), {}, phrase(source("m0", "c2"), c2=1)),
        (phrase(source("m1"), source("m2"), source("m3"), c1=9), CUT, None),
        (phrase(source("m1", "c2"), c2=1), {}, phrase(source("m1", "c2"), c2=1)),
    ],
)
def test_a_phrase_is_no_longer_counted_for_them(
    before: PhraseRecord, there: dict[str, str], after: PhraseRecord | None
) -> None:
    assert without(State(phrases=(before,)), "c1", there).phrases == ((after,) if after else ())


# With some messages


def learn(state: State, *texts: str, first: int = 0, **learned: Any) -> State:
    of = conversation(*texts)
    work = Work(scope=SCOPE, entries=of.entries, first=first, progress=ProgressRecord(), there=None, epoch=0)
    return updated(state, work, Learned(**learned), NOW)


SAID = (LearnedFact(text="Favourite colour is amber", category="preference", slot="colour", message_ids=("m0",)),)
AGAIN = (LearnedFact(text="Favourite colour is teal", category="preference", slot="colour", message_ids=("m1",)),)


def test_a_source_is_a_message_that_was_read_and_what_it_said() -> None:
    [one] = learn(State(), "My favourite colour is amber.", facts=SAID).facts
    [entry] = conversation("My favourite colour is amber.").entries
    assert one.sources == (Source(conversation_id="c1", message_id="m0", digest=entry.fingerprint),)


def test_what_names_no_message_that_is_new_is_not_learned() -> None:
    assert learn(State(), "x", "y", first=1, facts=SAID).facts == ()


def test_learning_again_after_a_kill_changes_nothing() -> None:
    once = learn(State(), "amber", "teal", facts=(*SAID, *AGAIN))
    assert learn(once, "amber", "teal", facts=(*SAID, *AGAIN)) == once
    assert [(one.text, one.ended) for one in (*once.facts, *once.ended)] == [
        ("Favourite colour is teal", None),
        ("Favourite colour is amber", "superseded"),
    ]


def test_what_is_said_again_is_another_fact_than_the_one_that_has_ended() -> None:
    once = learn(State(), "amber", "teal", facts=(*SAID, *AGAIN))
    back = (LearnedFact(text="Favourite colour is amber", category="preference", slot="colour", message_ids=("m2",)),)
    after = learn(once, "amber", "teal", "amber", first=2, facts=back)
    every = (*after.facts, *after.ended)
    assert [one.text for one in after.facts] == ["Favourite colour is amber"]
    assert len({one.id for one in every}) == len(every) == 3


def test_what_is_named_is_counted_and_measured() -> None:
    sarah = LearnedEntity(name="Sarah", type="person", message_ids=("m0",))
    beer = LearnedTopic(label="Beer", message_ids=("m0",))
    state = learn(State(), "Beer with Sarah", "Beer", topics=(beer,), entities=(sarah,))
    assert (state.topics[0].total_messages, state.entities[0].mention_count) == (2, 1)
    assert set(state.links) == {("topic/beer", "c1"), ("entity/person/sarah", "c1")}


def test_of_too_many_topics_the_least_important_go() -> None:
    many = tuple(
        TopicProfile(
            id=f"topic/t{n}",
            slug=f"t{n}",
            label=f"T{n}",
            sources=(source("m9", "c9"),),
            last_engaged_at=NOW - timedelta(hours=MOST_PROFILES + 2 - n),
        )
        for n in range(MOST_PROFILES + 2)
    )
    own = tuple(
        one.model_copy(update={"pinned": True} if n else {"made_by": BY_USER}) for n, one in enumerate(many[:2])
    )
    links = {(one.id, "c9"): TopicConversation(topic_id=one.id, conversation_id="c9") for one in many}
    state = learn(State(topics=(*own, *many[2:]), links=links), "x")
    kept = {one.id for one in state.topics}
    assert len(kept) == MOST_PROFILES
    assert {one.id for one in many} - kept == {"topic/t2", "topic/t3"}
    assert {name for name, _ in state.links} == kept


def test_what_nothing_speaks_of_any_more_goes() -> None:
    gone = TopicProfile(id="topic/t", slug="t", label="T")
    own = gone.model_copy(update={"id": "topic/u", "made_by": BY_USER})
    assert [one.id for one in learn(State(topics=(gone, own)), "x").topics] == ["topic/u"]


def test_only_what_was_changed_by_hand_is_measured_again() -> None:
    one, other = (TopicProfile(id=f"topic/{x}", slug=x, label=x, made_by=BY_USER, total_messages=9) for x in "ab")
    pinned = one.model_copy(update={"pinned": True})
    after = remeasured(State(topics=(pinned, other)), State(topics=(one, other)), NOW)
    assert [(t.total_messages, t.importance_score) for t in after.topics] == [(0, 1.0), (9, 0.5)]


# Compiled


def words(text: str) -> int:
    return len(text.split())


TOPIC = TopicProfile(id="topic/t", slug="t", label="Old", compiled_context="Owns a kettle.")


def with_composite(state: State) -> State:
    made = compiled(InMemoryStore(), "ada", state, NOW, words)
    composite = compile_composite([made.bundles["topic/t"]], now=NOW, count=words, cap_tokens=99)
    bundles = {**made.bundles, COMPOSITE: composite}
    return State(facts=made.facts, topics=made.topics, bundles=bundles)


@pytest.mark.parametrize(("changes", "stays"), [({}, True), ({"label": "Other", "is_dirty": True}, False)])
def test_the_text_of_what_is_likely_goes_with_what_it_shows(changes: dict[str, Any], *, stays: bool) -> None:
    before = with_composite(State(topics=(TOPIC,)))
    topics = tuple(topic.model_copy(update=changes) for topic in before.topics)
    after = compiled(InMemoryStore(), "ada", State(topics=topics, bundles=before.bundles), NOW, words)
    assert (COMPOSITE in after.bundles) == stays


def test_the_text_of_what_is_likely_goes_with_a_topic() -> None:
    before = with_composite(State(topics=(TOPIC,)))
    assert compiled(InMemoryStore(), "ada", State(bundles=before.bundles), NOW, words).bundles == {}


def test_uses_are_counted_once() -> None:
    store, state = InMemoryStore(), State(topics=(TopicProfile(id="topic/t", slug="t", label="T"),))
    made = compiled(store, "ada", state, NOW, words)
    known.note_use(store, "ada", ["topic/t"], [])
    for _ in range(2):
        made = compiled(store, "ada", made, NOW, words)
    assert made.bundles["topic/t"].hit_count == 1


def test_of_what_is_said_by_hand_the_text_says_no_more() -> None:
    counted = {"highlights": (Highlight(text="said", source=source("m1")),), "total_conversations": 3}
    topic = TOPIC.model_copy(update={**counted, "made_by": BY_USER, "proficiency_level": "expert"})
    state = compiled(InMemoryStore(), "ada", State(topics=(topic,), entities=(SARAH,)), NOW, words)
    knowledge = known.Knowledge(topics=state.topics, entities=state.entities, bundles=state.bundles)
    texts = {key: bundle.compiled_prompt.splitlines()[1:] for key, bundle in knowledge.by_hand.bundles.items()}
    assert texts["topic/t"] == ["Owns a kettle.", "The user's level: expert"]
    assert texts["e"] == [
        "Calls on Sundays.",
        "sister",
        "email: s@example.org",
        "Related: works at Acme",
        "Plays chess",
    ]


def test_a_level_that_was_learned_is_not_said_by_hand() -> None:
    level = {"proficiency_level": "expert", "proficiency_signals": ("expert: x",), "made_by": BY_USER}
    [topic] = known.Knowledge(topics=(TOPIC.model_copy(update=level),)).by_hand.topics
    assert topic.proficiency_level == "unknown"


# Kept


FULL = State(
    facts=(fact("a", source("m0")),),
    ended=(ended("b", "a", source("m1")),),
    topics=(TopicProfile(id="topic/t", slug="t", label="T"),),
    entities=(EntityProfile(id="entity/person/s", name="S", type="person"),),
    links={("topic/t", "c1"): TopicConversation(topic_id="topic/t", conversation_id="c1")},
    phrases=(phrase(source("m0"), c1=1),),
)


def kept(store: InMemoryStore) -> State:
    known.drop(store, "ada")
    return drive(read_state(store, "ada"))[0]


def saved(store: InMemoryStore, before: State, after: State, **options: Any) -> None:
    mark = drive(read_state(store, "ada"))[1]
    drive(save(store, "ada", before, after, mark, **options))


def test_what_is_saved_is_read_again() -> None:
    store = InMemoryStore()
    saved(store, State(), FULL)
    assert drive(read_state(store, "ada"))[0] == kept(store) == FULL


def test_what_is_no_longer_there_is_deleted() -> None:
    store = InMemoryStore()
    saved(store, State(), FULL)
    saved(store, FULL, State())
    assert kept(store) == State()
    assert store.search(("ctxbudget",), limit=99) == []


def test_what_another_process_writes_in_between_is_read_again() -> None:
    store = InMemoryStore()
    saved(store, State(), FULL)
    before, mark = drive(read_state(store, "ada"))
    store.batch([repos.FACTS.delete("ada", "a"), repos.mark_write("ada", KnowledgeMark(mark="theirs", edited="now"))])
    drive(save(store, "ada", before, State(facts=(*FULL.facts, fact("z")), ended=FULL.ended), mark))
    state, renewed = drive(read_state(store, "ada"))
    assert names(state.facts) == ["z"]
    assert renewed.edited not in (mark.edited, "now")


def test_what_is_written_while_another_process_erases_the_user_is_deleted_again() -> None:
    store = InMemoryStore()
    saved(store, State(), FULL)
    before, mark = drive(read_state(store, "ada"))
    for item in store.search(("ctxbudget",), limit=99):
        store.delete(item.namespace, item.key)
    with pytest.raises(StoreError, match="erased elsewhere"):
        drive(save(store, "ada", before, State(facts=(*FULL.facts, fact("z"))), mark))
    assert store.search(("ctxbudget",), limit=99) == []


def test_without_a_change_nothing_is_written() -> None:
    store = InMemoryStore()
    saved(store, State(), FULL)
    before = store.batch([repos.mark_read("ada")])
    saved(store, FULL, FULL)
    assert store.batch([repos.mark_read("ada")]) == before


@pytest.mark.parametrize("edited", [False, True])
def test_a_change_renews_the_mark_and_one_by_hand_another_too(*, edited: bool) -> None:
    store = InMemoryStore()
    marks: list[KnowledgeMark] = []
    for before, after in ((State(), FULL), (FULL, State(facts=FULL.facts))):
        saved(store, before, after, edited=edited)
        marks.append(drive(read_state(store, "ada"))[1])
    assert marks[0].mark != marks[1].mark
    assert (marks[0].edited != marks[1].edited) == edited


def test_what_is_both_current_and_ended_is_current() -> None:
    store = InMemoryStore()
    saved(store, State(), FULL)
    store.batch([repos.ENDED.put("ada", ended("a", "c", source("m0")))])
    assert names(kept(store).facts) == ["a"]
    assert names(kept(store).ended) == ["b"]


def test_only_the_facts_that_ended_last_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repos, "MOST_ENDED", 2)
    store = InMemoryStore()
    every = tuple(ended(f"f{n}", "a").model_copy(update={"ended_at": NOW + timedelta(hours=n)}) for n in range(4))
    saved(store, State(), State(ended=every))
    assert sorted(names(kept(store).ended)) == ["f2", "f3"]
