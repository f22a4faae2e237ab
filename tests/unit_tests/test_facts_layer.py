"""L1.

Personality and preferences, what is known about the user, and the snapshot that a conversation
keeps of it.
"""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from langchain_ctxbudget.budget import MEMORY_MAX, Layer, Reason, Status
from langchain_ctxbudget.history import with_headings
from langchain_ctxbudget.knowledge import BY_USER, Fact, FactsLayer, Knowledge, Source
from langchain_ctxbudget.knowledge.facts import (
    as_candidates,
    fact_fragments,
    facts_of,
    facts_tokens,
    left_out,
    memory_fragments,
    preference_fragments,
    snapshot_of,
)
from langchain_ctxbudget.knowledge.records import KnowledgeMark
from langchain_ctxbudget.settings import ContextSettings
from langchain_ctxbudget.tokens import TiktokenCounter

NOW = datetime(2026, 6, 1, tzinfo=UTC)
DAY = timedelta(days=1)
TITLE = "## What you know about this user\n"
TIKTOKEN = TiktokenCounter().count_text


def words(text):
    return len(text.split())


def fact(text, category="preference", **rest):
    at = {"created_at": NOW - DAY, "last_seen": NOW - DAY}
    return Fact(**{"id": f"fact/{text}", "text": text, "category": category} | at | rest)


def texts(fragments):
    return [fragment.text.removeprefix("- ").removesuffix("\n") for fragment in fragments]


def shown_text(facts, budget=1_000, *, titled=False, count=words):
    return "".join(with_headings(fact_fragments(facts, count, budget, titled=titled)[0]))


def test_personality_stands_first_then_style_then_preferences_which_give_way_first():
    polite = ContextSettings(
        personality={"kind": "custom", "description": "A <context> pirate"},
        response_style={"bullets": True},
        preferences=["Call me Ann."],
    )
    fragments = preference_fragments(polite, words)
    assert texts(fragments) == [
        "A ‹context> pirate",
        "Write lists as bullet points.",
        "Call me Ann.",
    ]
    assert texts(sorted(fragments, key=lambda one: one.value)) == texts(fragments)[::-1]
    assert {(one.layer, one.reason) for one in fragments} == {
        (Layer.PREFERENCES, Reason.CONFIGURED)
    }
    assert preference_fragments(ContextSettings(), words) == ()


FACTS = (
    fact("Is a nurse", "identity", confidence=0.9),
    fact("Prefers tea", confidence=0.81),
    fact("Prefers cats", confidence=0.8),
    fact("Builds a boat", "project", confidence=0.2),
    fact("Is called Ann", "identity", confidence=0.1, pinned=True),
)


def test_facts_stand_under_the_headings_of_their_categories():
    text = shown_text(FACTS)
    assert text == (
        f"{TITLE}Current work:\n- Builds a boat\nPreferences:\n- Prefers tea\n- Prefers cats\n"
        "About user:\n- Is called Ann\n- Is a nurse\n"
    )
    fragments = fact_fragments(FACTS, words, 1_000, titled=False)[0]
    assert {one.text for one in fragments if one.reason is Reason.PINNED} == {"- Is called Ann\n"}
    assert texts(f for f in fragments if f.expendable) == [
        "Prefers cats",
        "Is a nurse",
    ]  # seed 001, stage two


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
    unique_by=lambda one: one.id,
)


@given(any_facts, st.integers(-5, 150), st.booleans(), st.sampled_from([words, TIKTOKEN, len]))
def test_facts_with_their_headings_never_cost_more_than_their_budget(facts, budget, titled, count):
    assert count(shown_text(facts, budget, titled=titled, count=count)) <= max(0, budget)
    fragments, chosen = fact_fragments(facts, count, budget, titled=titled)
    assert [f.id for f in fragments] == [
        one.id for one in sorted(chosen, key=lambda one: ORDER.index(one.category))
    ]
    assert all(f.tokens == count(f.text) for f in fragments)
    cost = facts_tokens(facts, count)
    assert cost > MEMORY_MAX or set(fact_fragments(facts, count, cost, titled=False)[1]) == set(
        facts
    )


def test_a_fact_that_is_not_shown_is_reported_with_the_reason():
    for flags, reason in (
        ({"since": True}, Reason.NEXT_SNAPSHOT),
        ({"since": False}, Reason.NO_ROOM),
        ({"since": False, "limited": True}, Reason.USAGE_LIMIT),
    ):
        part = left_out(fact("Prefers tea"), words, **flags)
        assert (part.status, part.reason, part.id, part.tokens) == (
            Status.OMITTED,
            reason,
            "fact/Prefers tea",
            3,
        )


TEA = fact("Prefers tea")
BOAT = fact("Builds a boat", "project")
KEPT = snapshot_of([TEA], "e1")


def knowing(*facts, edited="e1"):
    return Knowledge(mark=KnowledgeMark(mark="1", edited=edited), facts=facts)


def test_a_conversation_keeps_what_it_shows_while_facts_are_learned():
    assert facts_of(knowing(TEA, BOAT), None) == FactsLayer(
        shown=(TEA, BOAT), due=True, edited="e1"
    )
    surer = TEA.model_copy(update={"confidence": 0.95, "last_seen": NOW})
    found = facts_of(knowing(BOAT, surer), KEPT)
    assert found == FactsLayer(shown=(surer,), learned_since=(BOAT,), due=False, edited="e1")
    assert found.renewed() == FactsLayer(shown=(surer, BOAT), due=True, edited="e1")
    unread = facts_of(Knowledge(is_read=False), KEPT)
    assert (unread.all, unread.due, unread.renewed().due) == ((), False, False)


def test_the_snapshot_is_renewed_when_what_it_shows_is_no_longer_so():
    changes = ({"text": "Prefers juice"}, {"category": "identity"}, {"pinned": True})
    for knowledge in (
        knowing(TEA, BOAT, edited="e2"),  # the user changed something by hand
        knowing(BOAT),  # a fact was deleted or superseded
        *(knowing(TEA.model_copy(update=change), BOAT) for change in changes),
    ):
        found = facts_of(knowledge, KEPT)
        assert (found.due, BOAT in found.shown, found.learned_since) == (True, True, ())
        assert TEA not in found.shown or knowledge.mark.edited == "e2"


def test_a_snapshot_has_no_text():
    assert (
        "secrets" not in snapshot_of([fact("Prefers secrets", id="fact/1")], "").model_dump_json()
    )


def test_what_retrieval_may_quote():
    here = fact("Prefers tea", sources=(Source(conversation_id="open", message_id="m2"),))
    there = fact(
        "Builds a boat", "project", sources=(Source(conversation_id="c1", message_id="m1"),)
    )
    by_hand = fact("Is a nurse", "identity", made_by=BY_USER)
    pinned = fact("Sings", pinned=True)
    given_ = ContextSettings(preferences=["Be brief."], memories=["Has a dog."])
    parts = [*preference_fragments(given_, words), *memory_fragments(given_, words)]
    found = as_candidates(parts, [here, there, by_hand, pinned], conversation_id="open")
    assert [(one.text, one.kind, one.date) for one in found] == [
        ("Has a dog.", "fact", None),
        ("Builds a boat", "project", "2026-05-31"),
        ("Is a nurse", "explicit", "2026-05-31"),
        ("Sings", "core", "2026-05-31"),
    ]
    assert [one.kind for one in as_candidates((), [here])] == ["fact"]
