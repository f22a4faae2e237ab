"""Facts about the user: how they last, what is shown, how they are learned."""

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


def ago(days, seconds=0):
    return NOW - timedelta(days=days, seconds=seconds)


def fact(fact_id="f", text="Likes tea", category="preference", *, days=0.0, **rest):
    at = ago(days)
    return Fact(
        **{"id": fact_id, "text": text, "category": category, "created_at": at, "last_seen": at}
        | rest
    )


def many(count, *, start=0, **rest):
    return [fact(f"f{number:03}", **rest) for number in range(start, start + count)]


def ids(facts):
    return [fact.id for fact in facts]


def test_a_fact_expires_past_the_days_of_its_category():
    for category, days in (("project", 60), ("preference", 180), ("identity", 365)):
        assert not is_expired(fact(category=category, days=days), NOW)
        assert is_expired(fact(category=category, days=days + 0.001), NOW)
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
    unique_by=lambda each: each.id,
)


@settings(max_examples=50)
@given(facts_of_any_kind)
def test_pruning_leaves_at_most_150_and_every_pinned_fact(facts):
    after = pruned(facts, NOW)
    kept = [each for each in after if each.is_current]
    pinned = [each for each in facts if each.pinned]
    assert set(ids(pinned)) <= set(ids(kept))
    assert len(kept) <= max(150, len(pinned))
    if any(each.ended == "evicted" for each in after):
        assert len(kept) == max(120, len(pinned))
    assert ids(after) == ids(facts)


LONG = "Works as a senior backend engineer in the payments platform team at the Berlin office of"
SAME = {
    "Likes tea": "likes  TEA.",
    "Has 2 cats": "Has two cats",
    "Earns 10,000 a month": "Earns 10000 a month",
    "Doesn’t eat meat": "Does not eat meat anymore",
    "Cannot swim": "Can't swim",
    "東京に住んでいる": "東京に住んでいる",
}
DIFFERENT = {
    "Has 2 cats": "Has 3 cats",
    f"{LONG} a bank with 20 people": f"{LONG} a bank with 30 people",
    "Likes tea": "Does not like tea",
    f"{LONG} Acme": f"{LONG} Globex",
    "Prefers tabs over spaces": "Prefers spaces over tabs",
    "東京に住んでいる": "大阪に住んでいる",
}


def test_what_says_the_same_and_what_does_not():
    for pairs, same in ((SAME, True), (DIFFERENT, False)):
        for one, other in pairs.items():
            assert says_the_same(one, other) is says_the_same(other, one) is same, (one, other)


SOURCES = {
    f"m{number}": Source(conversation_id="c", message_id=f"m{number}", digest="d")
    for number in range(60)
}
TIMES = {f"m{number}": ago(30 - number / 100) for number in range(60)}


def says(text, *numbers, category="preference", **rest):
    return LearnedFact(
        text=text, category=category, message_ids=tuple(f"m{number}" for number in numbers), **rest
    )


def home(place, *numbers, **rest):
    return says(f"Lives in {place}", *numbers, category="identity", slot="home", **rest)


def taught(*learned, known=(), now=NOW, said_at=TIMES):
    return learn(known, learned, SOURCES, now, "rules", said_at=said_at)


def test_a_new_fact_has_its_sources_and_when_it_was_said():
    (learned,) = taught(says(" Likes\ntea ", 3, 4, confidence=0.7))
    times = {"created_at": NOW, "last_seen": TIMES["m4"]}
    assert learned == fact(
        learned.id, confidence=0.7, sources=(SOURCES["m3"], SOURCES["m4"]), **times
    )


def test_saying_it_again_makes_it_surer_and_newer():
    (learned,) = taught(says("Likes tea", 1, confidence=0.5), says("likes tea", 5, confidence=0.6))
    assert learned.confidence == pytest.approx(0.8)  # 1 - 0.5 * 0.4
    sources = (SOURCES["m1"], SOURCES["m5"])
    assert (learned.text, learned.last_seen, learned.sources) == ("Likes tea", TIMES["m5"], sources)


def test_same_as_merges_what_reads_differently_and_takes_the_more_precise_text():
    known = fact("k", "Uses TypeScript")
    (learned,) = taught(
        says("Writes TypeScript with minimal abstraction", 1, same_as="k"), known=[known]
    )
    assert (learned.id, learned.text) == ("k", "Writes TypeScript with minimal abstraction")
    (learned,) = taught(says("TypeScript", 1, same_as="k"), known=[known])
    assert (learned.id, learned.text, len(learned.sources)) == ("k", "Uses TypeScript", 1)


def test_another_value_for_a_slot_supersedes_the_old_one():
    old, new = taught(home("Lisbon", 1), home("Porto", 9))
    assert (old.ended, old.ended_at, old.superseded_by) == ("superseded", NOW, new.id)
    assert new.is_current


def test_what_was_going_to_be_and_now_is_stands_once():
    old, new = taught(
        says("Moving to Oslo in May", 1, slot="next Home"), says("Moved to Oslo", 9, slot="Home")
    )
    assert (old.superseded_by, new.text, new.is_current) == (new.id, "Moved to Oslo", True)


def test_older_news_never_supersedes_newer():
    newer, older = taught(home("Porto", 9), home("Lisbon", 1))
    assert (newer.is_current, older.superseded_by) == (True, newer.id)


def test_a_pin_is_handed_on():
    old, new = taught(
        home("Porto", 1),
        known=[fact("k", "Lives in Lisbon", "identity", days=90, slot="home", pinned=True)],
    )
    assert (old.pinned, new.pinned) == (False, True)


TEXTS = [
    "Likes tea",
    "Does not like tea",
    "likes tea.",
    "Has 2 cats",
    "Has 3 cats",
    "Lives in Lisbon",
]
learned_facts = st.lists(
    st.builds(
        says,
        st.sampled_from(TEXTS),
        st.integers(0, 9),
        category=st.sampled_from(["preference", "identity"]),
        slot=st.sampled_from(["", "home", "pets"]),
        confidence=st.floats(0.1, 1.0),
    ),
    max_size=8,
)


@settings(max_examples=100)
@given(learned_facts, learned_facts, st.sampled_from([TIMES, None]))
def test_learning_again_changes_nothing_and_no_slot_has_two_current_values(
    before, learned, said_at
):
    known = taught(*before, said_at=said_at)
    once = taught(*learned, known=known, said_at=said_at)
    assert taught(*learned, known=once, said_at=said_at) == once
    slots = [each.slot for each in once if each.is_current and each.slot]
    assert len(set(slots)) == len(slots)
    assert len(set(ids(once))) == len(once)
    assert all(0 < each.confidence <= 1 for each in once)
    assert all(each.superseded_by in ids(once) for each in once if each.ended)


def test_an_item_that_names_many_facts_ends_none_of_them():
    known = many(FACT_POLICY.most_superseded + 1, days=90)
    facts = taught(says("Said hello", 1, supersedes=tuple(ids(known))), known=known)
    assert [each.id for each in facts if not each.is_current] == []


def test_what_is_kept_by_hand_does_not_end_because_an_item_names_it():
    for kept in ({"pinned": True}, {"made_by": BY_USER}):
        known = fact("k", "Is vegan", days=90, **kept)
        facts = taught(says("Said hello", 1, supersedes=("k",)), known=[known])
        assert (facts[0], facts[1].pinned) == (known, False)


def test_a_quotation_is_shown_with_its_day() -> None:
    now = datetime(2026, 3, 2, tzinfo=UTC)
    text = '"Never use tables, except for budgets."'
    fact = Fact(id="f", text=text, category="preference", created_at=now, last_seen=now)
    assert fact.shown == f"{text} (said 2026-03-02)"
