"""Facts about the user: how they last, what is shown, how they are learned."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from langchain_ctxbudget.core.sameness import says_the_opposite, says_the_same
from langchain_ctxbudget.errors import FactError, InputError
from langchain_ctxbudget.knowledge.bundle_lines import holding
from langchain_ctxbudget.knowledge.facts import (
    eviction_score,
    grouped,
    is_expired,
    learn,
    pin,
    prune,
    reduced,
    select,
    sole,
    unpin,
)
from langchain_ctxbudget.knowledge.learned import LearnedFact
from langchain_ctxbudget.knowledge.news import MOST_NAMED, SOON
from langchain_ctxbudget.knowledge.records import BY_USER, MOST_SOURCES, Fact, Source

NOW = datetime(2026, 6, 1, tzinfo=UTC)
CATEGORIES = ["project", "preference", "identity"]


def ago(days, seconds=0):
    return NOW - timedelta(days=days, seconds=seconds)


def fact(fact_id="f", text="Likes tea", category="preference", *, days=0.0, **rest):
    at = ago(days)
    return Fact(**{"id": fact_id, "text": text, "category": category, "created_at": at, "last_seen": at} | rest)


def many(count, *, start=0, **rest):
    return [fact(f"f{number:03}", **rest) for number in range(start, start + count)]


def ids(facts):
    return [fact.id for fact in facts]


# Scores, expiry, pruning


@pytest.mark.parametrize(
    ("category", "days", "confidence", "score"),
    [
        ("project", 10, 0.5, 16.0),  # 10 * 0.8 / 0.5
        ("project", 10, 1.0, 8.0),
        ("preference", 10, 0.5, 6.0),  # 10 * 0.3 / 0.5
        ("identity", 10, 0.5, 10.0),  # 10 * 0.5 / 0.5
        ("identity", 0.5, 0.25, 1.0),
        ("project", 0, 0.1, 0.0),
    ],
)
def test_the_eviction_score_is_age_by_weight_by_confidence(category, days, confidence, score):
    assert eviction_score(fact(category=category, days=days, confidence=confidence), NOW) == pytest.approx(score)


def test_a_fact_without_confidence_has_a_score():
    assert eviction_score(fact(days=1, confidence=0.0), NOW) == pytest.approx(30.0)


@pytest.mark.parametrize(("category", "days"), [("project", 60), ("preference", 180), ("identity", 365)])
def test_a_fact_expires_past_the_days_of_its_category(category, days):
    assert not is_expired(fact(category=category, days=days), NOW)
    assert is_expired(fact(category=category, days=days + 0.001), NOW)
    assert not is_expired(fact(category=category, days=9_999, pinned=True), NOW)


def test_a_fact_is_expired_when_it_is_no_longer_valid():
    assert is_expired(fact(valid_until=NOW), NOW)
    assert not is_expired(fact(valid_until=NOW + timedelta(seconds=1)), NOW)


def test_up_to_120_facts_not_even_expired_ones_end():
    facts = many(120, days=9_999)
    assert prune(facts, NOW).kept == tuple(facts)


def test_above_120_facts_expired_ones_end():
    pruned = prune([*many(119), *many(2, start=119, days=181)], NOW)
    assert (len(pruned.kept), ids(pruned.ended)) == (119, ["f119", "f120"])
    assert {(end.ended, end.ended_at) for end in pruned.ended} == {("expired", NOW)}


@pytest.mark.parametrize(("count", "kept"), [(121, 121), (150, 150), (151, 120), (200, 120)])
def test_above_150_facts_are_evicted_down_to_120(count, kept):
    pruned = prune(many(count, days=1), NOW)
    assert len(pruned.kept) == kept
    assert {(end.ended, end.ended_at) for end in pruned.ended} <= {("evicted", NOW)}


def test_facts_are_evicted_only_if_150_are_not_enough_after_expiry():
    pruned = prune([*many(150), *many(10, start=150, days=400)], NOW)
    assert (len(pruned.kept), {end.ended for end in pruned.ended}) == (150, {"expired"})


def test_the_highest_scores_are_evicted():
    facts = [fact(f"f{days:03}", days=days) for days in range(151)]
    assert sorted(ids(prune(facts, NOW).ended)) == [f"f{days:03}" for days in range(120, 151)]


def test_equal_scores_are_evicted_by_id():
    facts = many(151, days=1)
    assert ids(prune(facts, NOW).ended) == ids(prune(facts[::-1], NOW).ended) == ids(facts[:31])


def test_facts_that_ended_before_do_not_count():
    pruned = prune([*many(120, days=9_999), *many(50, start=120, ended="evicted", ended_at=NOW)], NOW)
    assert (len(pruned.kept), pruned.ended) == (120, ())


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


@settings(deadline=None, max_examples=50)
@given(facts_of_any_kind)
def test_pruning_leaves_at_most_150_and_every_pinned_fact(facts):
    pruned = prune(facts, NOW)
    pinned = [each for each in facts if each.pinned]
    assert set(ids(pinned)) <= set(ids(pruned.kept))
    assert len(pruned.kept) <= max(150, len(pinned))
    if any(end.ended == "evicted" for end in pruned.ended):
        assert len(pruned.kept) == max(120, len(pinned))
    assert sorted(ids([*pruned.kept, *pruned.ended])) == sorted(ids(facts))


# Pins


def test_a_fact_can_be_pinned_and_unpinned():
    pinned = pin([fact()], "f", NOW)
    assert pinned == fact(pinned=True)
    assert unpin([pinned], "f") == fact()


def test_an_eleventh_pin_is_refused_with_the_numbers():
    facts = [*many(10, pinned=True), fact("one more")]
    with pytest.raises(FactError, match="At most 10 facts can be pinned, and 10 are: unpin one") as raised:
        pin(facts, "one more", NOW)
    assert isinstance(raised.value, InputError)


def test_a_tenth_pin_is_allowed_and_pins_of_ended_facts_do_not_count():
    ended = many(5, start=20, pinned=True, ended="superseded", ended_at=NOW)
    assert pin([*many(9, pinned=True), *ended, fact("one more")], "one more", NOW).pinned


def test_a_pinned_fact_can_be_pinned_again():
    assert pin(many(10, pinned=True), "f003", NOW).pinned


@pytest.mark.parametrize("change", [lambda facts, fact_id: pin(facts, fact_id, NOW), unpin], ids=["pin", "unpin"])
def test_only_current_facts_can_be_pinned_or_unpinned(change):
    with pytest.raises(FactError, match="'f' is none of the 1 current facts"):
        change([fact("g"), fact(ended="expired", ended_at=NOW)], "f")


# What is shown


def test_facts_are_selected_by_pin_category_confidence_recency_and_id():
    order = [
        fact("1", category="identity", pinned=True, confidence=0.1, days=99),
        fact("2", category="project", confidence=0.5),
        fact("3", category="preference", confidence=0.9),
        fact("4", category="preference", confidence=0.5, days=1),
        fact("5", category="preference", confidence=0.5, days=2),
        fact("6", category="identity", confidence=0.9),
        fact("7", category="identity", confidence=0.9),
    ]
    assert list(select(order[::-1], lambda _: 1, 100)) == order


def test_a_fact_that_does_not_fit_is_skipped():
    costs = {"a": 6, "b": 5, "c": 4}
    assert ids(select(map(fact, costs), lambda each: costs[each.id], 10)) == ["a", "c"]


def test_the_budget_is_used_to_the_last_token():
    assert len(select(many(3), lambda _: 50, 150)) == 3


def test_facts_that_ended_are_not_selected():
    assert select([fact(ended="evicted", ended_at=NOW)], lambda _: 1, 100) == ()


@settings(deadline=None, max_examples=50)
@given(facts_of_any_kind, st.randoms(use_true_random=False), st.integers(0, 300))
def test_the_selection_does_not_depend_on_the_given_order(facts, random, budget):
    shuffled = random.sample(facts, len(facts))
    assert select(shuffled, lambda _: 7, budget) == select(facts, lambda _: 7, budget)


def test_facts_are_grouped_under_the_headings_that_have_some():
    identity, first, second = (
        fact("a", category="identity"),
        fact("z", category="project"),
        fact("b", category="project"),
    )
    assert grouped([identity, first, second]) == (("Current work:", (first, second)), ("About user:", (identity,)))
    assert [heading for heading, _ in grouped(fact(kind, category=kind) for kind in CATEGORIES[::-1])] == [
        "Current work:",
        "Preferences:",
        "About user:",
    ]


@pytest.mark.parametrize(
    ("category", "confidence", "pinned", "stays"),
    [
        ("project", 0.1, False, True),
        ("preference", 0.81, False, True),
        ("preference", 0.8, False, False),
        ("preference", 0.1, True, True),
        ("identity", 1.0, False, False),
        ("identity", 0.1, True, True),
    ],
)
def test_a_tight_window_keeps_work_sure_preferences_and_pins(category, confidence, pinned, stays):
    facts = (fact(category=category, confidence=confidence, pinned=pinned),)
    assert reduced(facts) == (facts if stays else ())


# Near-duplicates


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Likes tea", "likes  TEA."),
        ("Has 2 cats", "Has two cats"),
        ("Earns 10,000 a month", "Earns 10000 a month"),
        ("Does not like tea", "Doesn't like tea"),
        ("Doesn’t eat meat", "Does not eat meat anymore"),
        ("Cannot swim", "Can't swim"),
        ("Likes cats and dogs", "Likes dogs and cats"),
        ("Is building a small weather app in Rust for farmers", "Building a small Rust weather app for farmers"),
        ("Is it", "is it"),
        ("東京に住んでいる", "東京に住んでいる"),
    ],
)
def test_these_say_the_same(one, other):
    assert says_the_same(one, other)
    assert says_the_same(other, one)


LONG = "Works as a senior backend engineer in the payments platform team at the Berlin office of"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Has 2 cats", "Has 3 cats"),
        ("Has two cats", "Has three cats"),
        (f"{LONG} a bank with 20 people", f"{LONG} a bank with 30 people"),
        ("Likes tea", "Does not like tea"),
        ("Likes tea", "Never liked tea"),
        ("Likes cats, not dogs", "Does not like cats or dogs"),
        (f"{LONG} a bank, remotely", f"{LONG} a bank, not remotely"),
        (f"{LONG} Acme", f"{LONG} Globex"),
        ("Prefers tabs over spaces", "Prefers spaces over tabs"),
        ("Moved from Porto to Lisbon", "Moved from Lisbon to Porto"),
        ("Lives in Lisbon", "Lives in Porto"),
        ("Is it", "Is me"),
        ("東京に住んでいる", "大阪に住んでいる"),
    ],
)
def test_these_do_not_say_the_same(one, other):
    assert not says_the_same(one, other)
    assert not says_the_same(other, one)


@pytest.mark.parametrize(
    ("one", "other", "opposite"),
    [
        ("Likes tea", "Does not like tea", True),
        ("Works at Acme", "No longer works at Acme", True),
        ("Is allergic to nuts", "Isn't allergic to nuts", True),
        ("Likes tea", "Likes tea", False),
        ("Does not like tea", "Never liked tea", False),
        ("Likes tea", "Does not like coffee", False),
        ("Has 2 cats", "Does not have 3 cats", False),
        ("Likes cats, not dogs", "Likes cats and dogs", False),
    ],
)
def test_opposites_are_one_text_negated(one, other, opposite):
    assert says_the_opposite(one, other) is says_the_opposite(other, one) is opposite


# Learning


SOURCES = {f"m{number}": Source(conversation_id="c", message_id=f"m{number}", digest="d") for number in range(60)}
TIMES = {f"m{number}": ago(30 - number / 100) for number in range(60)}


def says(text, *numbers, category="preference", **rest):
    return LearnedFact(text=text, category=category, message_ids=tuple(f"m{number}" for number in numbers), **rest)


def home(place, *numbers, **rest):
    return says(f"Lives in {place}", *numbers, category="identity", slot="home", **rest)


def taught(*learned, known=(), now=NOW, said_at=TIMES):
    return learn(known, learned, SOURCES, now, "rules", said_at=said_at)


def current(facts):
    return [fact.text for fact in facts if fact.is_current]


def test_a_new_fact_has_its_sources_and_when_it_was_said():
    (learned,) = taught(says(" Likes\ntea ", 3, 4, confidence=0.7))
    assert learned == fact(
        learned.id,
        confidence=0.7,
        sources=(SOURCES["m3"], SOURCES["m4"]),
        made_by="rules",
        created_at=NOW,
        last_seen=TIMES["m4"],
    )


def test_a_fact_without_times_was_said_now():
    assert taught(says("Likes tea", 3), said_at=None)[0].last_seen == NOW


def test_nothing_was_said_in_the_future():
    assert taught(says("Likes tea", 3), said_at={"m3": NOW + timedelta(days=9)})[0].last_seen == NOW


def test_the_id_is_that_of_what_is_said():
    same = [taught(says(text, number))[0].id for number, text in enumerate(["Likes tea", "likes TEA."])]
    other = [taught(says("Likes coffee", 1))[0].id, taught(says("Likes tea", 1, category="identity"))[0].id]
    assert (len(set(same)), len({*same, *other})) == (1, 3)


@pytest.mark.parametrize(("given", "kept"), [(0.0, 0.01), (-3, 0.01), (float("nan"), 0.01), (1.7, 1.0), (0.4, 0.4)])
def test_confidence_is_brought_between_0_and_1(given, kept):
    assert taught(says("Likes tea", 1, confidence=given))[0].confidence == kept


def test_a_fact_from_unknown_messages_is_not_learned():
    assert taught(LearnedFact(text="Likes tea", category="preference", message_ids=("none",))) == []


def test_a_fact_without_text_is_not_learned():
    assert taught(says(" \n", 1)) == []


def test_saying_it_again_makes_it_surer_and_newer():
    (learned,) = taught(says("Likes tea", 1, confidence=0.5), says("likes tea", 5, confidence=0.6))
    assert learned.confidence == pytest.approx(0.8)  # 1 - 0.5 * 0.4
    assert (learned.text, learned.last_seen, learned.sources) == (
        "Likes tea",
        TIMES["m5"],
        (SOURCES["m1"], SOURCES["m5"]),
    )


def test_merging_goes_up_to_99_percent():
    (learned,) = taught(*(says("Likes tea", number, confidence=0.9) for number in range(4)))
    assert learned.confidence == 0.99


def test_merging_never_makes_less_sure():
    (learned,) = taught(says("Likes tea", 1), known=[fact(confidence=1.0)])
    assert learned.confidence == 1.0


def test_the_same_message_counts_once():
    once = taught(says("Likes tea", 1))
    assert taught(says("Likes tea", 1), known=once, now=NOW + timedelta(days=3)) == once


def test_an_edited_message_is_no_second_source():
    (known,) = taught(says("Likes tea", 1, confidence=0.5))
    edited = {"m1": SOURCES["m1"].model_copy(update={"digest": "other"})}
    (learned,) = learn([known], [says("Likes tea", 1)], edited, NOW, "rules", said_at=TIMES)
    assert (learned.sources, learned.confidence) == ((edited["m1"],), 0.5)


def test_of_many_sources_the_first_and_the_newest_are_kept():
    (learned,) = taught(*(says("Likes tea", number) for number in range(30)))
    assert [source.message_id for source in learned.sources] == ["m0", *(f"m{number}" for number in range(11, 30))]
    assert len(learned.sources) == MOST_SOURCES


def test_the_same_words_in_another_category_are_another_fact():
    assert len(taught(says("Likes tea", 1), says("Likes tea", 2, category="identity"))) == 2


def test_same_as_merges_what_reads_differently_and_takes_the_more_precise_text():
    known = fact("k", "Uses TypeScript")
    (learned,) = taught(says("Writes TypeScript with minimal abstraction", 1, same_as="k"), known=[known])
    assert (learned.id, learned.text) == ("k", "Writes TypeScript with minimal abstraction")
    (learned,) = taught(says("TypeScript", 1, same_as="k"), known=[known])
    assert (learned.id, learned.text, len(learned.sources)) == ("k", "Uses TypeScript", 1)


def test_the_users_own_words_are_not_replaced():
    known = fact("k", "Uses TypeScript", made_by=BY_USER)
    assert (
        taught(says("Writes TypeScript with minimal abstraction", 1, same_as="k"), known=[known])[0].text == known.text
    )


@pytest.mark.parametrize("same_as", ["unknown", "gone"])
def test_same_as_what_is_not_current_is_a_fact_of_its_own(same_as):
    gone = fact("gone", "Uses Java", ended="evicted", ended_at=NOW)
    assert current(taught(says("Uses TypeScript", 1, same_as=same_as), known=[gone])) == ["Uses TypeScript"]


def test_another_value_for_a_slot_supersedes_the_old_one():
    old, new = taught(home("Lisbon", 1), home("Porto", 9))
    assert (old.ended, old.ended_at, old.superseded_by, old.valid_until) == ("superseded", NOW, new.id, TIMES["m9"])
    assert new.is_current


def test_a_slot_is_compared_without_case():
    assert current(taught(home("Lisbon", 1), says("Lives in Porto", 2, category="identity", slot="Home"))) == [
        "Lives in Porto"
    ]


def test_facts_without_a_slot_stand_side_by_side():
    assert len(current(taught(says("Likes tea", 1), says("Likes cocoa", 2)))) == 2


def test_older_news_never_supersedes_newer():
    newer, older = taught(home("Porto", 9), home("Lisbon", 1))
    assert newer.is_current
    assert (older.ended, older.superseded_by, older.valid_until) == ("superseded", newer.id, TIMES["m9"])


def test_supersedes_ends_the_facts_that_are_named_if_they_are_older():
    known = [fact("old", "Uses Vim", days=40), fact("newer", "Uses Emacs", days=1), fact("other", "Likes tea")]
    facts = taught(says("Uses Helix", 1, supersedes=("old", "nonsense")), known=known)
    assert current(facts) == ["Uses Emacs", "Likes tea", "Uses Helix"]
    assert "Uses Emacs" in current(taught(says("Uses Helix", 1, supersedes=("newer",)), known=known))


def test_the_opposite_supersedes():
    assert current(taught(says("Likes tea", 1), says("Does not like tea anymore", 2))) == ["Does not like tea anymore"]


def test_a_pin_is_handed_on():
    old, new = taught(
        home("Porto", 1), known=[fact("k", "Lives in Lisbon", "identity", days=90, slot="home", pinned=True)]
    )
    assert (old.pinned, new.pinned) == (False, True)


def test_a_slot_that_is_only_ended_leaves_a_fact_that_says_so():
    job = says("Works at Acme", 1, category="identity", slot="employer")
    end = says("Left the job", 5, category="identity", slot="employer", valid_until=ago(29.99))
    old, new = taught(job, end)
    assert (old.ended, old.superseded_by, old.valid_until) == ("superseded", new.id, ago(29.99))
    assert (new.is_current, new.slot, new.valid_from, new.valid_until) == (True, "", ago(29.99), None)


def test_a_new_job_does_not_supersede_that_the_old_one_ended():
    job = says("Works at Acme", 1, category="identity", slot="employer")
    end = says("Left the job", 5, category="identity", slot="employer", valid_until=ago(29.99))
    new = says("Works at Globex", 6, category="identity", slot="employer")
    assert current(taught(job, end, new)) == ["Left the job", "Works at Globex"]


def test_the_end_of_one_value_does_not_end_another():
    job = says("Works at Globex", 1, category="identity", slot="employer")
    end = says("No longer works at Acme", 5, category="identity", slot="employer", valid_until=ago(29.99))
    assert current(taught(job, end)) == ["Works at Globex", "No longer works at Acme"]


def test_a_value_with_an_end_to_come_is_a_value():
    end = NOW + timedelta(days=30)
    (learned,) = taught(says("Works at Acme", 1, category="identity", slot="employer", valid_until=end))
    assert (learned.slot, learned.valid_until) == ("employer", end)


def test_what_is_true_again_is_a_new_fact_with_an_id_of_its_own():
    first, second, third = taught(home("Lisbon", 1), home("Porto", 2), home("Lisbon", 3))
    assert [each.is_current for each in (first, second, third)] == [False, False, True]
    assert third.id == f"{first.id}-2"


def test_learning_an_old_message_again_does_not_bring_back_what_ended():
    facts = taught(home("Lisbon", 1), home("Porto", 2))
    assert taught(home("Lisbon", 1), known=facts, said_at=None) == facts


def test_what_is_said_again_after_its_end_has_no_end():
    known = fact("k", days=40, valid_until=ago(35))
    assert taught(says("Likes tea", 1), known=[known])[0].valid_until is None


TEXTS = [
    "Likes tea",
    "Does not like tea",
    "likes tea.",
    "Has 2 cats",
    "Has 3 cats",
    "Lives in Lisbon",
    "Lives in Porto",
]
learned_facts = st.lists(
    st.builds(
        lambda text, category, numbers, slot, over, confidence: says(
            text, *numbers, category=category, slot=slot, valid_until=ago(29) if over else None, confidence=confidence
        ),
        st.sampled_from(TEXTS),
        st.sampled_from(["preference", "identity"]),
        st.lists(st.integers(0, 9), min_size=1, max_size=3),
        st.sampled_from(["", "home", "pets"]),
        st.booleans(),
        st.floats(0.1, 1.0),
    ),
    max_size=8,
)


@settings(deadline=None, max_examples=300)
@given(learned_facts, learned_facts, st.sampled_from([TIMES, None]))
def test_learning_again_changes_nothing(before, learned, said_at):
    known = taught(*before, said_at=said_at)
    once = taught(*learned, known=known, said_at=said_at)
    assert taught(*learned, known=once, said_at=said_at) == once


@settings(deadline=None, max_examples=200)
@given(learned_facts, learned_facts)
def test_no_slot_has_two_current_values_and_no_id_two_facts(before, learned):
    facts = taught(*learned, known=taught(*before))
    slots = [each.slot for each in facts if each.is_current and each.slot]
    assert len(set(slots)) == len(slots)
    assert len(set(ids(facts))) == len(facts)
    assert all(0 < each.confidence <= 1 for each in facts)
    assert all(each.superseded_by in ids(facts) for each in facts if each.ended)


def test_a_message_does_not_bring_back_the_words_that_the_user_changed():
    (learned,) = taught(says("Likes tea", 1))
    edited = learned.model_copy(update={"text": "Likes cocoa", "made_by": BY_USER})
    assert taught(says("Likes tea", 1), known=[edited]) == [edited]


def test_a_message_does_not_bring_back_what_was_merged_by_same_as_and_ended():
    known = fact("k", "Lives in Lisbon", "identity", days=90, slot="home")
    based = says("Based in Alfama", 1, category="identity", same_as="k")
    facts = taught(says("Lives in Lisbon", 1, category="identity"), home("Porto", 5), known=[known])
    assert taught(based, known=facts) == facts


def test_a_fact_with_a_full_list_of_sources_is_not_made_surer():
    known = fact("k", confidence=0.5, sources=tuple(SOURCES[f"m{number}"] for number in range(MOST_SOURCES)))
    (learned,) = taught(says("Likes tea", 30), known=[known])
    assert (learned.confidence, learned.sources[-1]) == (0.5, SOURCES["m30"])


# What one item may end


def test_an_item_that_names_many_facts_ends_none_of_them():
    known = many(MOST_NAMED + 1, days=90)
    facts = taught(says("Said hello", 1, supersedes=tuple(ids(known))), known=known)
    assert [each.id for each in facts if not each.is_current] == []


def test_an_item_ends_as_many_facts_as_it_may_name():
    known = [fact(f"f{number}", f"Uses editor {number}", days=90) for number in range(MOST_NAMED)]
    facts = taught(says("Gave up on editors", 1, supersedes=tuple(ids(known))), known=known)
    assert current(facts) == ["Gave up on editors"]


@pytest.mark.parametrize("kept", [{"pinned": True}, {"made_by": BY_USER}], ids=["pinned", "by hand"])
def test_what_is_kept_by_hand_does_not_end_because_an_item_names_it(kept):
    known = fact("k", "Is vegan", days=90, **kept)
    facts = taught(says("Said hello", 1, supersedes=("k",)), known=[known])
    assert facts[0] == known
    assert not facts[1].pinned


@pytest.mark.parametrize("kept", [{"pinned": True}, {"made_by": BY_USER}], ids=["pinned", "by hand"])
def test_what_is_kept_by_hand_ends_by_another_value_of_its_slot_or_by_the_opposite(kept):
    lives = fact("k", "Lives in Lisbon", "identity", days=90, slot="home", **kept)
    assert current(taught(home("Porto", 1), known=[lives])) == ["Lives in Porto"]
    likes = fact("k", "Likes tea", days=90, **kept)
    assert current(taught(says("Does not like tea", 1), known=[likes])) == ["Does not like tea"]


# What begins later


LATER = NOW + timedelta(days=20)


def moves(place, number, begin=LATER, **rest):
    return home(place, number, valid_from=begin, **rest)


def test_what_is_true_until_something_else_begins_ends_then_and_not_before():
    lisbon, porto = taught(home("Lisbon", 1), moves("Porto", 5))
    assert (lisbon.ended, lisbon.valid_until, lisbon.superseded_by) == (None, LATER, porto.id)
    assert (porto.ended, porto.valid_from) == (None, LATER)


@pytest.mark.parametrize("day", [0, 19.9, 20, 90])
def test_of_a_present_and_a_future_value_one_holds_at_any_time(day):
    facts = taught(home("Lisbon", 1), moves("Porto", 5))
    assert len(holding(facts, NOW + timedelta(days=day))) == 1


def test_a_named_fact_ends_when_what_names_it_begins():
    known = fact("k", "Commutes by car", days=90)
    old, new = taught(says("Commutes by train", 1, supersedes=("k",), valid_from=LATER), known=[known])
    assert (old.ended, old.valid_until, old.superseded_by) == (None, LATER, new.id)


def test_saying_the_present_again_changes_no_plan():
    facts = taught(home("Lisbon", 1), moves("Porto", 5), home("Lisbon", 9))
    assert [(each.ended, each.valid_from, each.valid_until) for each in facts] == [
        (None, None, LATER),
        (None, LATER, None),
    ]


def test_another_present_lasts_until_the_plan_begins():
    lisbon, porto, sintra = taught(home("Lisbon", 1), moves("Porto", 5), home("Sintra", 9))
    assert (lisbon.superseded_by, porto.ended) == (sintra.id, None)
    assert (sintra.ended, sintra.valid_until) == (None, LATER)


def test_another_plan_supersedes_the_plan():
    plan = LATER + timedelta(days=10)
    lisbon, porto, berlin = taught(home("Lisbon", 1), moves("Porto", 5), moves("Berlin", 9, plan))
    assert (porto.ended, porto.superseded_by) == ("superseded", berlin.id)
    assert (lisbon.ended, lisbon.valid_until, lisbon.superseded_by) == (None, plan, berlin.id)


def test_a_plan_that_is_given_up_ends_nothing():
    moving = says("Moves to Porto", 5, category="identity", slot="home", valid_from=LATER)
    staying = says("Does not move to Porto", 9, category="identity")
    lisbon, plan, _ = taught(home("Lisbon", 1), moving, staying)
    assert (plan.ended, lisbon.valid_until, lisbon.superseded_by) == ("superseded", None, None)


def test_what_goes_on_after_the_plan_was_to_begin_has_superseded_it():
    facts = taught(home("Lisbon", 1), moves("Porto", 5))
    after = LATER + timedelta(days=30)
    lisbon, porto = taught(home("Lisbon", 9), known=facts, now=after, said_at={"m9": after})
    assert (lisbon.ended, lisbon.valid_until, lisbon.superseded_by) == (None, None, None)
    assert porto.superseded_by == lisbon.id


def test_the_end_of_what_has_begun_does_not_bring_back_what_was_before():
    facts = taught(home("Lisbon", 1), moves("Porto", 5))
    after = LATER + timedelta(days=30)
    gone = home("nowhere", 9, valid_until=after)
    facts = taught(replace(gone, text="No longer lives in Porto"), known=facts, now=after, said_at={"m9": after})
    assert [each.text for each in holding(facts, after)] == ["No longer lives in Porto"]


plans = st.lists(
    st.builds(
        lambda place, number, begin: home(place, number, valid_from=begin),
        st.sampled_from(["Lisbon", "Porto", "Berlin"]),
        st.integers(0, 9),
        st.sampled_from([None, LATER, LATER + timedelta(days=10)]),
    ),
    max_size=6,
)


@settings(deadline=None, max_examples=200)
@given(plans, plans)
def test_learning_plans_again_changes_nothing(before, learned):
    once = taught(*learned, known=taught(*before))
    assert taught(*learned, known=once) == once


@settings(deadline=None, max_examples=200)
@given(plans, st.integers(0, 40))
def test_of_a_slot_with_plans_at_most_one_value_holds_at_any_time(learned, day):
    assert len(holding(taught(*learned), NOW + timedelta(days=day))) <= 1


def test_what_has_begun_since_it_was_said_ends_the_old_value_when_it_began():
    begin = ago(10)
    old, _ = taught(home("Lisbon", 1), moves("Porto", 5, begin))
    assert (old.ended, old.valid_until) == ("superseded", begin)


# Ends that nobody has said


SOON_TEXT = "Flies to Rome next week"


def test_what_is_said_of_days_near_ends_after_30_days():
    (learned,) = taught(says(SOON_TEXT, 1))
    assert learned.valid_until == TIMES["m1"] + SOON


def test_what_is_said_by_hand_has_no_end_that_nobody_has_said():
    (written,) = learn([], [says(SOON_TEXT)], {}, NOW, BY_USER)
    assert written.valid_until is None


def test_a_fact_that_is_said_again_by_hand_loses_the_end_that_nobody_has_said():
    (written,) = learn(taught(says(SOON_TEXT, 1)), [says(SOON_TEXT)], {}, NOW, BY_USER)
    assert written.valid_until is None


def test_a_fact_that_is_pinned_loses_the_end_that_nobody_has_said():
    (learned,) = taught(says(SOON_TEXT, 1))
    assert pin([learned], learned.id, NOW).valid_until is None


def test_a_fact_that_is_pinned_keeps_the_end_that_was_said():
    (learned,) = taught(says(SOON_TEXT, 1, valid_until=LATER))
    assert pin([learned], learned.id, NOW).valid_until == LATER


@pytest.mark.parametrize("kept", [{"pinned": True}, {"made_by": BY_USER}], ids=["pinned", "by hand"])
def test_what_is_kept_by_hand_gets_no_end_by_being_said_again(kept):
    (learned,) = taught(says(SOON_TEXT, 1), known=[fact("k", SOON_TEXT, days=90, **kept)])
    assert learned.valid_until is None


def test_pins_of_what_is_over_do_not_count():
    over = many(10, pinned=True, valid_until=NOW)
    assert pin([*over, fact("one more")], "one more", NOW).pinned


# What is changed by hand


def test_a_category_that_was_changed_by_hand_stays_when_it_is_said_again():
    (learned,) = taught(says("Likes tea", 1, slot="prefers:tea"))
    edited = learned.model_copy(update={"category": "project"})
    (again,) = taught(says("likes tea!", 5, slot="prefers:tea"), known=[edited])
    assert (again.id, again.category, len(again.sources)) == (learned.id, "project", 2)


def test_a_fact_that_gets_a_slot_by_hand_is_its_only_value():
    rival, other = fact("a", "Lives in Lisbon", "identity", slot="Home", pinned=True), fact("b", "Likes tea")
    value = fact("c", "Based in Porto", "identity", days=90, slot="home")
    facts = {each.id: each for each in sole([rival, other, value], value, NOW)}
    assert (facts["a"].ended, facts["a"].superseded_by, facts["b"]) == ("superseded", "c", other)
    assert (facts["c"].is_current, facts["c"].pinned) == (True, True)


def test_facts_without_a_slot_are_no_rivals_when_one_is_changed_by_hand():
    facts = [fact("a", "Likes cocoa"), fact("b", "Likes tea")]
    assert sole(facts, facts[1], NOW) == facts
