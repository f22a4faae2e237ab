"""The first layer: how the user wants to be answered, and the facts that a conversation shows."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget.core.allocation.wants import MEMORY_MAX
from langchain_ctxbudget.core.assembly import with_headings
from langchain_ctxbudget.core.layers import Layer, Reason, Status
from langchain_ctxbudget.core.tokens import TiktokenCounter
from langchain_ctxbudget.flow import batch, drive
from langchain_ctxbudget.knowledge import repositories
from langchain_ctxbudget.knowledge.known import Knowledge
from langchain_ctxbudget.knowledge.records import BY_USER, Fact, KnowledgeMark, Source
from langchain_ctxbudget.knowledge.remembered import (
    Remembered,
    all_candidates,
    as_candidates,
    fact_fragments,
    facts_tokens,
    fitting,
    left_out,
    memory_fragments,
    packed,
    preference_fragments,
    remembered,
    snapshot_of,
)
from langchain_ctxbudget.settings import ContextSettings

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


# Personality, style, preferences

POLITE = ContextSettings(
    personality={"kind": "expert", "domain": "tax law"},
    response_style={"verbosity": "concise", "bullets": True},
    preferences=["Use metric units.", "Call me Ann."],
)


def test_personality_stands_first_then_style_then_preferences():
    assert texts(preference_fragments(POLITE, words)) == [
        "You are an expert in tax law. Answer accurately and in depth.",
        "Answer briefly and leave out what was not asked for.",
        "Write lists as bullet points.",
        "Use metric units.",
        "Call me Ann.",
    ]


def test_preferences_give_way_before_personality():
    fragments = preference_fragments(POLITE, words)
    personality = fragments[0]
    assert [texts(fitting(fragments, budget)) for budget in (personality.tokens, personality.tokens - 1)] == [
        texts([personality]),
        [],
    ]
    by_value = sorted(fragments, key=lambda one: one.value)
    assert texts(by_value) == texts(fragments)[::-1]


def test_what_was_not_said_makes_no_lines():
    assert preference_fragments(ContextSettings(), words) == ()


def test_preferences_are_lines_that_cannot_break_out_of_their_fence():
    given_ = ContextSettings(
        personality={"kind": "custom", "description": "A <context> pirate"}, preferences=[" Be brief. "]
    )
    fragments = preference_fragments(given_, words)
    assert [f.text for f in fragments] == ["- A ‹context> pirate\n", "- Be brief.\n"]
    assert {(f.layer, f.reason) for f in fragments} == {(Layer.PREFERENCES, Reason.CONFIGURED)}


@settings(deadline=None)
@given(st.lists(st.integers(1, 9)), st.integers(-3, 40))
def test_the_first_preferences_that_fit_are_kept(sizes, budget):
    fragments = preference_fragments(ContextSettings(preferences=["x " * n for n in sizes]), words)
    kept = fitting(fragments, budget)
    assert kept == fragments[: len(kept)]
    assert sum(f.tokens for f in kept) <= max(0, budget)
    assert len(kept) == len(fragments) or sum(f.tokens for f in fragments[: len(kept) + 1]) > budget


# What settings say about the user


def test_memories_are_worth_less_than_any_preference():
    given_ = ContextSettings(preferences=["x"] * 50, memories=["Has a dog."])
    [memory] = memory_fragments(given_, words)
    assert memory.value < min(f.value for f in preference_fragments(given_, words))
    assert (memory.text, memory.heading, memory.reason) == ("- Has a dog.\n", TITLE, Reason.CONFIGURED)


def test_a_memory_that_is_too_large_is_skipped_and_the_heading_is_paid_for():
    memories = memory_fragments(ContextSettings(memories=["a b c", "one two three four five six", "d e f"]), words)
    assert texts(packed(memories, words, words(TITLE) + 8)) == ["a b c", "d e f"]
    assert texts(packed(memories, words, words(TITLE) + 7)) == ["a b c"]


# Facts as text

FACTS = (
    fact("Is a nurse", "identity", confidence=0.9),
    fact("Prefers tea", confidence=0.81),
    fact("Prefers cats", confidence=0.8),
    fact("Builds a boat", "project", confidence=0.2),
    fact("Is called Ann", "identity", confidence=0.1, pinned=True),
)


def test_facts_stand_under_the_headings_of_their_categories():
    assert shown_text(FACTS) == (
        "## What you know about this user\n"
        "Current work:\n"
        "- Builds a boat\n"
        "Preferences:\n"
        "- Prefers tea\n"
        "- Prefers cats\n"
        "About user:\n"
        "- Is called Ann\n"
        "- Is a nurse\n"
    )


def test_a_title_that_stands_there_already_is_not_repeated():
    assert shown_text(FACTS, titled=True) == shown_text(FACTS).removeprefix(TITLE)


def test_headings_without_facts_are_left_out():
    assert shown_text([fact("Prefers tea")]) == f"{TITLE}Preferences:\n- Prefers tea\n"


def test_where_not_all_fit_pinned_ones_stay_then_work():
    headings = words(TITLE) + words("Current work: Preferences: About user:")
    costs = [words("- Is called Ann"), words("- Builds a boat"), words("- Prefers tea")]
    chosen = [fact_fragments(FACTS, words, headings + sum(costs[:n]), titled=False)[1] for n in (1, 2, 3)]
    assert [{one.text for one in facts} for facts in chosen] == [
        {"Is called Ann"},
        {"Is called Ann", "Builds a boat"},
        {"Is called Ann", "Builds a boat", "Prefers tea"},
    ]


def test_pinned_facts_say_so_in_the_account():
    reasons = {one.text: one.reason for one in fact_fragments(FACTS, words, 1_000, titled=False)[0]}
    assert reasons.pop("- Is called Ann\n") is Reason.PINNED
    assert set(reasons.values()) == {Reason.REMEMBERED}


def test_what_the_seed_keeps_where_the_window_is_tight_is_not_expendable():
    fragments = fact_fragments(FACTS, words, 1_000, titled=False)[0]
    assert texts(f for f in fragments if f.expendable) == ["Prefers cats", "Is a nurse"]


def test_facts_are_worth_less_than_what_the_settings_say_the_first_ones_more():
    given_ = ContextSettings(preferences=["x"], memories=["y"] * 500)
    values = [f.value for f in (*memory_fragments(given_, words), *fact_fragments(FACTS, words, 99, titled=True)[0])]
    assert values == sorted(values, reverse=True)


def test_a_fact_cannot_break_out_of_its_fence():
    text = shown_text([fact("x\n## Rules\n</user_preferences>", "project")])
    assert "<" not in text
    assert "\n##" not in text.removeprefix(TITLE)


@pytest.mark.parametrize("budget", [0, -1, words(TITLE)])
def test_no_room_shows_no_facts_and_no_heading(budget):
    assert fact_fragments(FACTS, words, budget, titled=False) == ((), ())


def test_no_facts_make_no_heading():
    assert fact_fragments((), words, 99, titled=False) == ((), ())


ORDER = ["project", "preference", "identity"]
any_facts = st.lists(
    st.builds(
        fact,
        st.lists(st.sampled_from(["tea", "Prefers", "42", "東京", "boat\n", "<x>"]), min_size=1, max_size=9).map(
            " ".join
        ),
        st.sampled_from(ORDER),
        confidence=st.sampled_from([0.3, 0.8, 0.95]),
        pinned=st.booleans(),
    ),
    max_size=12,
    unique_by=lambda one: one.id,
)


@settings(deadline=None)
@given(any_facts, st.integers(-5, 150), st.booleans(), st.sampled_from([words, TIKTOKEN, len]))
def test_facts_with_their_headings_never_cost_more_than_their_budget(facts, budget, titled, count):
    text = shown_text(facts, budget, titled=titled, count=count)
    assert count(text) <= max(0, budget)
    fragments, chosen = fact_fragments(facts, count, budget, titled=titled)
    assert [f.id for f in fragments] == [one.id for one in sorted(chosen, key=lambda one: ORDER.index(one.category))]
    assert all(f.tokens == count(f.text) for f in fragments)


@settings(deadline=None)
@given(any_facts)
def test_what_facts_cost_is_enough_to_show_them_all(facts):
    cost = facts_tokens(facts, TIKTOKEN)
    shown = fact_fragments(facts, TIKTOKEN, cost, titled=False)[1]
    assert cost > MEMORY_MAX or set(shown) == set(facts)


def test_no_more_is_counted_than_facts_may_cost():
    counted = []

    def count(text):
        counted.append(text)
        return words(text)

    assert facts_tokens([fact(f"Likes number {n}") for n in range(1_000)], count) > MEMORY_MAX
    assert len(counted) < 200


@pytest.mark.parametrize(("since", "reason"), [(True, Reason.NEXT_SNAPSHOT), (False, Reason.NO_ROOM)])
def test_a_fact_that_is_not_shown_is_reported_with_why(since, reason):
    part = left_out(fact("Prefers tea"), words, since=since)
    assert (part.status, part.reason, part.id, part.tokens) == (Status.OMITTED, reason, "fact/Prefers tea", 3)


# The snapshot

TEA, BOAT = fact("Prefers tea", valid_until=NOW + DAY), fact("Builds a boat", "project")


def knowing(*facts, edited="e1", mark="1"):
    return Knowledge(mark=KnowledgeMark(mark=mark, edited=edited), facts=facts)


def first_seen(*facts):
    return snapshot_of(facts, "e1")


def test_a_new_conversation_shows_all_facts_and_a_snapshot_is_due():
    found = remembered(knowing(TEA, BOAT), None, NOW)
    assert found == Remembered(shown=(TEA, BOAT), learned_since=(), due=True, edited="e1")


def test_a_conversation_keeps_what_it_shows_while_facts_are_learned():
    found = remembered(knowing(BOAT, TEA, mark="2"), first_seen(TEA), NOW)
    assert found == Remembered(shown=(TEA,), learned_since=(BOAT,), due=False, edited="e1")


def test_what_a_fact_was_learned_from_and_how_sure_it_is_does_not_renew_the_snapshot():
    surer = TEA.model_copy(update={"confidence": 0.95, "last_seen": NOW, "sources": (source("c", "m2"),)})
    assert remembered(knowing(surer, BOAT), first_seen(TEA), NOW).shown == (surer,)


@pytest.mark.parametrize(
    ("knowledge", "now"),
    [
        pytest.param(knowing(TEA, BOAT, edited="e2"), NOW, id="the user changed something by hand"),
        pytest.param(knowing(BOAT), NOW, id="a fact was deleted or superseded"),
        pytest.param(knowing(TEA, BOAT), NOW + DAY, id="a fact is no longer valid"),
        pytest.param(knowing(TEA.model_copy(update={"text": "Prefers green tea"}), BOAT), NOW, id="reworded"),
        pytest.param(knowing(TEA.model_copy(update={"category": "identity"}), BOAT), NOW, id="in another place"),
        pytest.param(knowing(TEA.model_copy(update={"pinned": True}), BOAT), NOW, id="pinned"),
        pytest.param(
            knowing(TEA.model_copy(update={"ended": "superseded", "ended_at": NOW}), BOAT), NOW, id="marked as ended"
        ),
    ],
)
def test_the_snapshot_is_renewed_when_what_it_shows_is_no_longer_so(knowledge, now):
    found = remembered(knowledge, first_seen(TEA), now)
    assert found.due
    assert BOAT in found.shown
    assert found.learned_since == ()
    assert TEA not in found.shown or knowledge.mark.edited == "e2"


def test_nothing_known_any_more_shows_nothing():
    assert remembered(Knowledge(), first_seen(TEA), NOW).all == ()


def test_what_could_not_be_read_shows_nothing_and_never_becomes_the_snapshot():
    found = remembered(Knowledge(is_read=False), first_seen(TEA), NOW)
    assert (found.all, found.due, found.renewed().due) == ((), False, False)


def test_a_fact_that_does_not_hold_yet_is_not_shown():
    later = fact("Lives in Porto", "identity", valid_from=NOW + DAY)
    assert remembered(knowing(later), None, NOW).shown == ()
    assert remembered(knowing(later), None, NOW + DAY).shown == (later,)


def test_a_renewed_snapshot_shows_what_was_learned_since():
    found = remembered(knowing(TEA, BOAT), first_seen(TEA), NOW)
    assert found.renewed() == Remembered(shown=(TEA, BOAT), due=True, edited="e1")
    assert found.either == ((TEA,), (TEA, BOAT))


def test_a_snapshot_has_no_text_of_a_fact():
    saved = snapshot_of([TEA, fact("Prefers secrets", id="fact/1")], "e1").model_dump_json()
    assert "secrets" not in saved
    assert "fact/1" in saved


@settings(deadline=None)
@given(any_facts)
def test_a_snapshot_of_what_is_shown_shows_the_same(facts):
    found = remembered(knowing(*facts), None, NOW)
    again = remembered(knowing(*facts), snapshot_of(found.shown, found.edited), NOW)
    assert (again.shown, again.learned_since, again.due) == (found.shown, (), False)


# What retrieval may quote


def source(conversation, message):
    return Source(conversation_id=conversation, message_id=message)


def test_facts_of_the_open_conversation_are_not_candidates():
    here = fact("Prefers tea", sources=(source("c1", "m1"), source("open", "m2")))
    there = fact("Builds a boat", "project", sources=(source("c1", "m1"),))
    by_hand = fact("Is a nurse", "identity", made_by=BY_USER)
    found = as_candidates((), [here, there, by_hand], conversation_id="open")
    assert [one.text for one in found] == ["Builds a boat", "Is a nurse"]
    assert len(as_candidates((), [here, there, by_hand])) == 3


def test_of_what_the_settings_say_memories_are_candidates_and_preferences_are_not():
    given_ = ContextSettings(preferences=["Be brief."], memories=["Has a dog."])
    parts = [*preference_fragments(given_, words), *memory_fragments(given_, words)]
    found = as_candidates(parts, [fact("Prefers tea")])
    assert [(one.text, one.source, one.place) for one in found] == [
        ("Has a dog.", "memories", 0),
        ("Prefers tea", "memories", 1),
    ]


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"pinned": True, "category": "project"}, "core"),
        ({"made_by": BY_USER, "category": "project"}, "explicit"),
        ({"category": "project"}, "project"),
        ({}, "fact"),
    ],
)
def test_a_candidate_has_a_date_and_says_what_kind_of_memory_it_is(changes, kind):
    [found] = as_candidates((), [fact("Prefers tea", **changes)])
    assert (found.kind, found.date, found.id) == (kind, "2026-05-31", "fact/Prefers tea")


@pytest.mark.parametrize(("learn", "expected"), [(True, ["Prefers tea", "Is a nurse"]), (False, ["Is a nurse"])])
def test_where_nothing_is_to_be_learned_only_what_was_said_by_hand_is_known(learn, expected):
    store = InMemoryStore()
    facts = [TEA, fact("Is a nurse", made_by=BY_USER), fact("Used Vim", valid_until=NOW)]
    puts = [repositories.FACTS.put("ada", one) for one in facts]
    drive(batch(store, [*puts, repositories.mark_write("ada", KnowledgeMark(mark="1"))]))
    found = drive(all_candidates(store, "ada", ContextSettings(learn=learn), NOW, words))
    assert sorted(one.text for one in found) == sorted(expected)
