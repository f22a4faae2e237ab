"""Holds layer L1 to what it shows of the user, and to the snapshot that a conversation keeps."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_ctxbudget.budget import MEMORY_MAX, Layer, Reason, Status
from langchain_ctxbudget.history import with_headings
from langchain_ctxbudget.knowledge import BY_USER, Fact, Knowledge, Source
from langchain_ctxbudget.knowledge.fact_merging import learn, ranked
from langchain_ctxbudget.knowledge.facts import (
    as_candidates,
    facts_layer_of,
    in_place_of,
    snapshot_of,
)
from langchain_ctxbudget.knowledge.records import KnowledgeMark, LearnedFact, quotation
from langchain_ctxbudget.layers.preferences import (
    fact_fragments,
    facts_tokens,
    left_out,
    memory_fragments,
    preference_fragments,
)
from langchain_ctxbudget.settings import ContextSettings
from langchain_ctxbudget.stores import SnapshotRecord
from langchain_ctxbudget.tokens import TiktokenCounter

NOW = datetime(2026, 6, 1, tzinfo=UTC)
YESTERDAY = NOW - timedelta(days=1)
TIKTOKEN = TiktokenCounter().count_text


def words(text):
    return len(text.split())


def fact(text, category="preference", **rest):
    fields = {
        "id": f"fact/{text}",
        "text": text,
        "category": category,
        "created_at": YESTERDAY,
        "last_seen": YESTERDAY,
    }
    return Fact(**(fields | rest))


def texts(fragments):
    return [fragment.text.removeprefix("- ").removesuffix("\n") for fragment in fragments]


def shown_text(facts, budget=1_000, *, titled=False, count=words):
    fragments, _ = fact_fragments(facts, count, budget, titled=titled)
    return "".join(with_headings(fragments))


CONFIGURED = preference_fragments(
    ContextSettings(
        personality={"kind": "custom", "description": "A <context> pirate"},
        response_style={"bullets": True},
        preferences=["Call me Ann."],
    ),
    words,
)


def test_personality_stands_first_then_style_then_preferences():
    assert texts(CONFIGURED) == [
        "A ‹context> pirate",
        "Write lists as bullet points.",
        "Call me Ann.",
    ]


def test_preferences_give_way_first_then_style_then_personality():
    by_value = sorted(CONFIGURED, key=lambda fragment: fragment.value)

    assert texts(by_value) == [
        "Call me Ann.",
        "Write lists as bullet points.",
        "A ‹context> pirate",
    ]


@pytest.mark.parametrize("fragment", CONFIGURED, ids=["personality", "style", "preference"])
def test_what_is_configured_says_so(fragment):
    assert fragment.layer == Layer.PREFERENCES
    assert fragment.reason == Reason.CONFIGURED


def test_without_settings_there_are_no_preferences():
    assert preference_fragments(ContextSettings(), words) == ()


FACTS = (
    fact("Is a nurse", "identity", confidence=0.9),
    fact("Prefers tea", confidence=0.81),
    fact("Prefers cats", confidence=0.8),
    fact("Builds a boat", "project", confidence=0.2),
    fact("Is called Ann", "identity", confidence=0.1, pinned=True),
)


def test_facts_stand_under_the_headings_of_their_categories():
    assert shown_text(ranked(FACTS)) == (
        "## What you know about this user\n"
        "Current work:\n- Builds a boat\n"
        "Preferences:\n- Prefers tea\n- Prefers cats\n"
        "About user:\n- Is called Ann\n- Is a nurse\n"
    )


def test_a_pinned_fact_is_shown_because_it_is_pinned():
    fragments, _ = fact_fragments(FACTS, words, 1_000, titled=False)

    pinned = [fragment for fragment in fragments if fragment.reason is Reason.PINNED]
    assert texts(pinned) == ["Is called Ann"]


def test_of_a_category_the_last_fact_is_expendable():
    """Seed 001, stage two."""
    fragments, _ = fact_fragments(FACTS, words, 1_000, titled=False)

    expendable = [fragment for fragment in fragments if fragment.expendable]
    assert texts(expendable) == ["Prefers cats", "Is a nurse"]


ORDER = ["project", "preference", "identity"]
WORDS = st.sampled_from(["tea", "Prefers", "42", "東京", "boat\n", "<x>"])
any_facts = st.lists(
    st.builds(
        fact,
        st.lists(WORDS, min_size=1, max_size=9).map(" ".join),
        st.sampled_from(ORDER),
        confidence=st.sampled_from([0.3, 0.8, 0.95]),
        pinned=st.booleans(),
    ),
    max_size=12,
    unique_by=lambda drawn: drawn.id,
)


def check_all_are_shown_for_their_cost(facts, count):
    cost = facts_tokens(facts, count)
    if cost <= MEMORY_MAX:
        _, chosen = fact_fragments(facts, count, cost, titled=False)
        assert set(chosen) == set(facts)


@given(any_facts, st.integers(-5, 150), st.booleans(), st.sampled_from([words, TIKTOKEN, len]))
def test_facts_with_their_headings_never_cost_more_than_their_budget(facts, budget, titled, count):
    text = shown_text(facts, budget, titled=titled, count=count)
    fragments, chosen = fact_fragments(facts, count, budget, titled=titled)

    assert count(text) <= max(0, budget)
    in_order = sorted(chosen, key=lambda fact: ORDER.index(fact.category))
    assert [fragment.id for fragment in fragments] == [fact.id for fact in in_order]
    assert all(fragment.tokens == count(fragment.text) for fragment in fragments)
    check_all_are_shown_for_their_cost(facts, count)


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        ({"since": True}, Reason.NEXT_SNAPSHOT),
        ({"since": False}, Reason.NO_ROOM),
        ({"since": False, "limited": True}, Reason.USAGE_LIMIT),
    ],
)
def test_a_fact_that_is_not_shown_is_reported_with_the_reason(flags, reason):
    fragment = left_out(fact("Prefers tea"), words, **flags)

    assert fragment.status == Status.OMITTED
    assert fragment.reason == reason
    assert fragment.id == "fact/Prefers tea"
    assert fragment.tokens == 3


TEA = fact("Prefers tea")
LATER_TEA = TEA.model_copy(update={"confidence": 0.95, "last_seen": NOW})
BOAT = fact("Builds a boat", "project")
NURSE = fact("Is a nurse", "identity", made_by=BY_USER)
SNAPSHOT_OF_TEA = snapshot_of([TEA], "e1")


def knowing(*facts, edited="e1"):
    return Knowledge(mark=KnowledgeMark(mark="1", edited=edited)).with_facts(facts)


def changed(**changes):
    return TEA.model_copy(update=changes)


def test_a_new_conversation_shows_all_facts():
    layer = facts_layer_of(knowing(TEA, BOAT), None)

    assert layer.is_snapshot_due
    assert set(layer.shown_facts) == {TEA, BOAT}


def test_facts_kept_by_hand_get_room_first_then_those_of_the_more_important_category():
    layer = facts_layer_of(knowing(TEA, BOAT, NURSE), None)

    assert layer.shown_facts == (NURSE, BOAT, TEA)


def test_a_conversation_keeps_what_it_shows_while_facts_are_learned():
    layer = facts_layer_of(knowing(BOAT, LATER_TEA), SNAPSHOT_OF_TEA)

    assert not layer.is_snapshot_due
    assert layer.learned_since == (BOAT,)


def test_a_renewed_snapshot_shows_what_was_learned():
    layer = facts_layer_of(knowing(LATER_TEA, BOAT), SNAPSHOT_OF_TEA).renewed()

    assert layer.is_snapshot_due
    assert layer.shown_facts == (BOAT, LATER_TEA)


def test_while_knowledge_is_unread_no_fact_is_shown():
    layer = facts_layer_of(Knowledge(is_read=False), SNAPSHOT_OF_TEA)

    assert layer.current == ()
    assert not layer.is_snapshot_due
    assert not layer.renewed().is_snapshot_due


@pytest.mark.parametrize(
    "knowledge",
    [
        pytest.param(knowing(TEA, edited="e2"), id="the user changed something by hand"),
        pytest.param(knowing(BOAT), id="erased"),
        pytest.param(knowing(changed(text="Prefers juice")), id="another text"),
        pytest.param(knowing(changed(category="identity")), id="another category"),
    ],
)
def test_a_snapshot_is_renewed_when_what_it_shows_must_not_stand_any_more(knowledge):
    layer = facts_layer_of(knowledge, SNAPSHOT_OF_TEA)

    assert layer.is_snapshot_due
    assert layer.shown_facts == knowledge.facts


@pytest.mark.parametrize(
    "tea",
    [
        pytest.param(changed(confidence=0.99), id="surer"),
        pytest.param(changed(last_seen=NOW), id="said again"),
        pytest.param(changed(pinned=True), id="took over a pin"),
        pytest.param(changed(ended="superseded", ended_at=NOW), id="superseded"),
        pytest.param(changed(ended="expired", ended_at=NOW), id="expired"),
        pytest.param(changed(ended="evicted", ended_at=NOW), id="evicted"),
    ],
)
def test_any_other_change_waits_for_the_next_rebuild(tea):
    layer = facts_layer_of(knowing(BOAT, tea), SNAPSHOT_OF_TEA)

    assert not layer.is_snapshot_due
    assert shown_text(layer.shown_facts) == shown_text([TEA])


def test_a_snapshot_of_an_earlier_version_shows_the_day_that_is_known():
    record = SNAPSHOT_OF_TEA.model_dump(mode="json")
    without_days = {**record, "facts": [fields[:2] for fields in record["facts"]]}

    layer = facts_layer_of(knowing(TEA), SnapshotRecord.read(without_days, "the snapshot"))

    assert layer.shown_facts == (TEA,)


SENTENCES = ("I live in Bonn.", "I prefer tea.", "My sister Ana is a nurse.")
statements = st.builds(
    LearnedFact,
    text=st.sampled_from(SENTENCES).map(quotation),
    category=st.just("identity"),
    confidence=st.sampled_from([0.3, 0.8, 0.95]),
    message_ids=st.tuples(st.sampled_from("mno")),
)


def learned(known, notes, day, conversation):
    sources = {
        name: Source(conversation_id=conversation, message_id=name)
        for note in notes
        for name in note.message_ids
    }
    return knowing(*learn(known, notes, sources, NOW + timedelta(days=day), "rules"))


@given(
    st.lists(statements, min_size=1, max_size=6),
    st.lists(st.tuples(statements, st.integers(0, 9)), max_size=9),
)
def test_what_is_said_again_never_changes_what_stands_there(first, said_again):
    knowledge = learned((), first, 0, "c1")
    shown = facts_layer_of(knowledge, None).shown_facts
    snapshot = snapshot_of(shown, "e1")

    for number, (statement, day) in enumerate(said_again):
        if any(fact.text == statement.text for fact in shown):
            knowledge = learned(knowledge.facts, [statement], day, f"c{number + 2}")

    layer = facts_layer_of(knowledge, snapshot)
    assert not layer.is_snapshot_due
    assert shown_text(layer.shown_facts) == shown_text(shown)


def superseded(text, by):
    return fact(text, ended="superseded", superseded_by=f"fact/{by}")


@pytest.mark.parametrize(
    ("known", "holding"),
    [
        pytest.param([TEA], "Prefers tea", id="it holds itself"),
        pytest.param([superseded("Prefers tea", "B"), fact("B")], "B", id="another one"),
        pytest.param(
            [superseded("Prefers tea", "B"), superseded("B", "C"), fact("C")], "C", id="a third"
        ),
        pytest.param([superseded("Prefers tea", "B")], None, id="one that is erased"),
        pytest.param(
            [superseded("Prefers tea", "B"), superseded("B", "Prefers tea")], None, id="a circle"
        ),
    ],
)
def test_a_fact_holds_in_place_of_one_that_was_superseded(known, holding):
    found = in_place_of(known[0], {fact.id: fact for fact in known})

    assert (None if found is None else found.text) == holding


def test_a_snapshot_has_no_text():
    snapshot = snapshot_of([fact("Prefers secrets", id="fact/1")], "")

    assert "secrets" not in snapshot.model_dump_json()


def candidates(facts):
    return [
        (candidate.text, candidate.kind, candidate.date)
        for candidate in as_candidates((), facts, conversation_id="open")
    ]


def test_retrieval_may_quote_memories_but_no_preferences():
    configured = ContextSettings(preferences=["Be brief."], memories=["Has a dog."])
    fragments = [
        *preference_fragments(configured, words),
        *memory_fragments(configured, words),
    ]

    [memory] = as_candidates(fragments, [], conversation_id="open")

    assert memory.text == "Has a dog."
    assert memory.kind == "fact"
    assert memory.date is None


def from_conversation(name):
    return {"sources": (Source(conversation_id=name, message_id="m1"),)}


@pytest.mark.parametrize(
    ("fact", "kind"),
    [
        pytest.param(
            fact("Builds a boat", "project", **from_conversation("c1")),
            "project",
            id="from another conversation",
        ),
        pytest.param(fact("Is a nurse", "identity", made_by=BY_USER), "explicit", id="by hand"),
        pytest.param(fact("Sings", pinned=True), "core", id="pinned"),
    ],
)
def test_retrieval_may_quote_a_fact_with_its_kind_and_day(fact, kind):
    assert candidates([fact]) == [(fact.text, kind, "2026-05-31")]


def test_retrieval_does_not_quote_a_fact_of_the_open_conversation():
    assert candidates([fact("Prefers tea", **from_conversation("open"))]) == []


def test_quotable_facts_stand_behind_memories_in_their_order():
    [memory] = memory_fragments(ContextSettings(memories=["Has a dog."]), words)
    facts = [BOAT, fact("Is a nurse", "identity"), fact("Sings")]

    found = as_candidates([memory], facts, conversation_id="open")

    assert [candidate.text for candidate in found] == [
        "Has a dog.",
        "Builds a boat",
        "Is a nurse",
        "Sings",
    ]


def test_without_an_open_conversation_a_fact_may_be_quoted():
    here = fact("Prefers tea", **from_conversation("open"))

    [candidate] = as_candidates((), [here])

    assert candidate.kind == "fact"
