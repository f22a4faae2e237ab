"""Holds facts about the user to how long they last, how many stay, and how they are learned."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from langchain_ctxbudget.knowledge import BY_USER, Fact, Source
from langchain_ctxbudget.knowledge.fact_merging import FACT_POLICY, is_expired, learn, pruned
from langchain_ctxbudget.knowledge.records import LearnedFact
from langchain_ctxbudget.messages import says_the_same

NOW = datetime(2026, 6, 1, tzinfo=UTC)
CATEGORIES = ["project", "preference", "identity"]


def ago(days):
    return NOW - timedelta(days=days)


def fact(fact_id="f", text="Likes tea", category="preference", *, days=0.0, **rest):
    fields = {
        "id": fact_id,
        "text": text,
        "category": category,
        "created_at": ago(days),
        "last_seen": ago(days),
    }
    return Fact(**(fields | rest))


def many(count, **rest):
    return [fact(f"f{number:03}", **rest) for number in range(count)]


def ids(facts):
    return [fact.id for fact in facts]


def is_current(fact):
    return fact.is_current


def is_pinned(fact):
    return fact.pinned


DAYS_OF_CATEGORIES = pytest.mark.parametrize(
    ("category", "days"), [("project", 60), ("preference", 180), ("identity", 365)]
)


@DAYS_OF_CATEGORIES
def test_a_fact_lasts_for_the_days_of_its_category(category, days):
    assert not is_expired(fact(category=category, days=days), NOW)


@DAYS_OF_CATEGORIES
def test_a_fact_expires_past_the_days_of_its_category(category, days):
    assert is_expired(fact(category=category, days=days + 0.001), NOW)


@pytest.mark.parametrize("category", CATEGORIES)
def test_a_pinned_fact_never_expires(category):
    assert not is_expired(fact(category=category, days=9_999, pinned=True), NOW)


facts_of_any_kind = st.lists(
    st.builds(
        fact,
        st.integers(0, 10**6).map(str),
        category=st.sampled_from(CATEGORIES),
        days=st.integers(0, 400),
        confidence=st.sampled_from([0.1, 0.5, 0.9]),
        pinned=st.booleans(),
    ),
    max_size=220,
    unique_by=lambda drawn: drawn.id,
)


@settings(max_examples=50)
@given(facts_of_any_kind)
def test_pruning_leaves_at_most_150_and_every_pinned_fact(facts):
    after = pruned(facts, NOW)

    kept = ids(filter(is_current, after))
    pinned = ids(filter(is_pinned, facts))
    assert set(pinned) <= set(kept)
    assert len(kept) <= max(150, len(pinned))
    if "evicted" in [fact.ended for fact in after]:
        assert len(kept) == max(120, len(pinned))
    assert ids(after) == ids(facts)


LONG = "Works as a senior backend engineer in the payments platform team at the Berlin office of"


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("Likes tea", "likes  TEA."),
        ("Has 2 cats", "Has two cats"),
        ("Earns 10,000 a month", "Earns 10000 a month"),
        ("Doesn’t eat meat", "Does not eat meat anymore"),
        ("Cannot swim", "Can't swim"),
        ("東京に住んでいる", "東京に住んでいる"),
    ],
)
def test_what_is_only_written_otherwise_says_the_same(first, second):
    assert says_the_same(first, second) is True
    assert says_the_same(second, first) is True


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("Has 2 cats", "Has 3 cats"),
        (f"{LONG} a bank with 20 people", f"{LONG} a bank with 30 people"),
        ("Likes tea", "Does not like tea"),
        (f"{LONG} Acme", f"{LONG} Globex"),
        ("Prefers tabs over spaces", "Prefers spaces over tabs"),
        ("東京に住んでいる", "大阪に住んでいる"),
    ],
)
def test_what_means_something_else_does_not_say_the_same(first, second):
    assert says_the_same(first, second) is False
    assert says_the_same(second, first) is False


SOURCES = {
    f"m{number}": Source(conversation_id="c", message_id=f"m{number}", digest="d")
    for number in range(60)
}
TIMES = {f"m{number}": ago(30 - number / 100) for number in range(60)}


def says(text, *numbers, category="preference", **rest):
    """What is learned from the messages of these numbers."""
    message_ids = tuple(f"m{number}" for number in numbers)
    return LearnedFact(text=text, category=category, message_ids=message_ids, **rest)


def home(place, *numbers):
    return says(f"Lives in {place}", *numbers, category="identity", slot="home")


def facts_after(*learned, before=(), said_at=TIMES):
    return learn(before, learned, SOURCES, NOW, "rules", said_at=said_at)


def test_a_new_fact_has_its_sources_and_when_it_was_said():
    (new,) = facts_after(says(" Likes\ntea ", 3, 4, confidence=0.7))

    assert new == fact(
        new.id,
        text="Likes tea",
        confidence=0.7,
        sources=(SOURCES["m3"], SOURCES["m4"]),
        created_at=NOW,
        last_seen=TIMES["m4"],
    )


def test_saying_it_again_makes_it_surer_and_newer():
    (new,) = facts_after(says("Likes tea", 1, confidence=0.5), says("likes tea", 5, confidence=0.6))

    assert new.confidence == pytest.approx(0.8)  # 1 - 0.5 * 0.4
    assert new.text == "Likes tea"
    assert new.last_seen == TIMES["m5"]
    assert new.sources == (SOURCES["m1"], SOURCES["m5"])


@pytest.mark.parametrize(
    ("text", "more_precise"),
    [
        pytest.param(
            "Writes TypeScript with minimal abstraction",
            "Writes TypeScript with minimal abstraction",
            id="the new text",
        ),
        pytest.param("TypeScript", "Uses TypeScript", id="the old text"),
    ],
)
def test_same_as_merges_facts_and_takes_the_more_precise_text(text, more_precise):
    (merged,) = facts_after(says(text, 1, same_as="k"), before=[fact("k", "Uses TypeScript")])

    assert merged.id == "k"
    assert merged.text == more_precise
    assert len(merged.sources) == 1


def test_another_value_for_a_slot_supersedes_the_old_one():
    old, new = facts_after(home("Lisbon", 1), home("Porto", 9))

    assert old.ended == "superseded"
    assert old.ended_at == NOW
    assert old.superseded_by == new.id
    assert new.is_current


def test_what_was_going_to_be_and_now_is_stands_once():
    plan, move = facts_after(
        says("Moving to Oslo in May", 1, slot="next Home"), says("Moved to Oslo", 9, slot="Home")
    )

    assert plan.superseded_by == move.id
    assert move.text == "Moved to Oslo"
    assert move.is_current


def test_older_news_never_supersedes_newer():
    newer, older = facts_after(home("Porto", 9), home("Lisbon", 1))

    assert newer.is_current
    assert older.superseded_by == newer.id


def test_a_pin_is_handed_on():
    lisbon = fact("k", "Lives in Lisbon", "identity", days=90, slot="home", pinned=True)

    old, new = facts_after(home("Porto", 1), before=[lisbon])

    assert not old.pinned
    assert new.pinned


learned_facts = st.lists(
    st.builds(
        says,
        st.sampled_from(
            [
                "Likes tea",
                "Does not like tea",
                "likes tea.",
                "Has 2 cats",
                "Has 3 cats",
                "Lives in Lisbon",
            ]
        ),
        st.integers(0, 9),
        category=st.sampled_from(["preference", "identity"]),
        slot=st.sampled_from(["", "home", "pets"]),
        confidence=st.floats(0.1, 1.0),
    ),
    max_size=8,
)


def current_slots(facts):
    return [fact.slot for fact in facts if fact.is_current and fact.slot]


def check_distinct(values):
    assert len(set(values)) == len(values)


@pytest.mark.slow
@settings(max_examples=100)
@given(learned_facts, learned_facts, st.sampled_from([TIMES, None]))
def test_learning_again_changes_nothing_and_a_slot_has_one_value(earlier, learned, said_at):
    before = facts_after(*earlier, said_at=said_at)
    once = facts_after(*learned, before=before, said_at=said_at)
    twice = facts_after(*learned, before=once, said_at=said_at)

    ended = [fact for fact in once if fact.ended]
    assert twice == once
    check_distinct(current_slots(once))
    check_distinct(ids(once))
    assert all(0 < fact.confidence <= 1 for fact in once)
    assert {fact.superseded_by for fact in ended} <= set(ids(once))


def test_an_item_that_names_many_facts_ends_none_of_them():
    before = many(FACT_POLICY.most_superseded + 1, days=90)

    facts = facts_after(says("Said hello", 1, supersedes=tuple(ids(before))), before=before)

    assert all(fact.is_current for fact in facts)


@pytest.mark.parametrize(
    "kept", [{"pinned": True}, {"made_by": BY_USER}], ids=["pinned", "by hand"]
)
def test_what_is_kept_by_hand_does_not_end_because_an_item_names_it(kept):
    vegan = fact("k", "Is vegan", days=90, **kept)

    first, second = facts_after(says("Said hello", 1, supersedes=("k",)), before=[vegan])

    assert first == vegan
    assert not second.pinned


def test_a_quotation_is_shown_with_its_day():
    quotation = fact(
        text='"Never use tables, except for budgets."',
        created_at=datetime(2026, 3, 2, tzinfo=UTC),
        last_seen=datetime(2026, 3, 2, tzinfo=UTC),
    )

    assert quotation.shown == '"Never use tables, except for budgets." (said 2026-03-02)'
