"""All bundles of a user brought up to date: exactly those that show something that has changed."""

from datetime import UTC, datetime, timedelta

import pytest

from langchain_ctxbudget.knowledge.bundles import LIFETIME
from langchain_ctxbudget.knowledge.compiling import MOST_FACTS, compile_all
from langchain_ctxbudget.knowledge.records import ContextBundle, EntityProfile, Fact, TopicProfile

NOW = datetime(2026, 1, 10, tzinfo=UTC)
LATER = NOW + timedelta(hours=1)


def words(text):
    return len(text.split())


def topic(slug, label=None, **rest):
    return TopicProfile(id=f"topic/{slug}", slug=slug, label=label or slug, **rest)


def entity(name, **rest):
    return EntityProfile(id=f"entity/person/{name}", name=name, type="person", **rest)


def fact(text, key=None, **rest):
    return Fact(id=key or text, text=text, category="project", **{"created_at": NOW, "last_seen": NOW, **rest})


def compiled(topics=(), entities=(), facts=(), old=None, now=NOW):
    return compile_all(topics, entities, facts, old or {}, now, words, topic_cap=60, entity_cap=60)


def again(before, *, topics=None, entities=None, facts=(), now=LATER):
    """What is compiled again, by id."""
    after = compiled(
        before.topics if topics is None else topics,
        before.entities if entities is None else entities,
        facts,
        before.bundles,
        now,
    )
    return {key for key, bundle in after.bundles.items() if bundle is not before.bundles.get(key)}


def test_everything_is_compiled_once_and_then_clean():
    after = compiled([topic("hops", compiled_context="Green.")], [entity("Sarah", relationship="sister")])
    assert {key: bundle.compiled_prompt for key, bundle in after.bundles.items()} == {
        "topic/hops": "hops\nGreen.",
        "entity/person/Sarah": "Sarah (person)\nsister",
    }
    assert [(one.is_dirty, one.context_version) for one in (*after.topics, *after.entities)] == [(False, 1)] * 2


def test_of_what_no_more_is_known_than_its_name_an_empty_text_is_compiled_once():
    before = compiled([topic("hops")], [entity("Sarah")])
    assert {key: bundle.compiled_prompt for key, bundle in before.bundles.items()} == {
        "topic/hops": "",
        "entity/person/Sarah": "",
    }
    assert not any(one.is_dirty for one in (*before.topics, *before.entities))
    assert again(before) == set()


def test_what_is_clean_is_not_compiled_again():
    facts = [fact("Sarah grows hops"), fact("Likes malt")]
    before = compiled([topic("beer"), topic("hops", parent_slug="beer")], [entity("Sarah")], facts)
    assert again(before, facts=facts) == set()


def test_only_what_is_dirty_is_compiled_again():
    before = compiled([topic("hops"), topic("malt")], [entity("Sarah")])
    dirty = before.topics[0].model_copy(update={"is_dirty": True, "compiled_context": "Green."})
    after = compiled((dirty, before.topics[1]), before.entities, (), before.bundles, LATER)
    changed = {key for key, bundle in after.bundles.items() if bundle is not before.bundles[key]}
    assert (changed, after.topics[0].context_version, after.topics[0].is_dirty) == ({"topic/hops"}, 2, False)


def test_a_fact_that_speaks_of_days_says_when_it_was_said():
    after = compiled([topic("hops")], [entity("Sarah")], [fact("Sells hops to Sarah next week")])
    said = "Sells hops to Sarah next week (said 2026-01-10)"
    assert [bundle.compiled_prompt for bundle in after.bundles.values()] == [f"hops\n{said}", f"Sarah (person)\n{said}"]
    assert again(after, facts=[fact("Sells hops to Sarah next week")]) == set()


def test_a_fact_goes_to_what_it_names():
    after = compiled([topic("hops"), topic("malt")], [entity("Sarah")], [fact("Sarah grows hops")])
    assert after.bundles["topic/hops"].compiled_prompt == "hops\nSarah grows hops"
    assert after.bundles["entity/person/Sarah"].compiled_prompt == "Sarah (person)\nSarah grows hops"
    assert after.bundles["topic/malt"].compiled_prompt == ""
    assert [one.related_memory_ids for one in after.topics] == [("Sarah grows hops",), ()]


def test_a_new_fact_makes_exactly_what_it_names_again():
    before = compiled([topic("hops"), topic("malt")], [entity("Sarah"), entity("Tom")])
    new = fact("Sarah grows hops", created_at=LATER)
    assert again(before, facts=[new]) == {"topic/hops", "entity/person/Sarah"}


def test_a_fact_that_says_something_else_makes_it_again():
    before = compiled([topic("hops")], [entity("Sarah")], [fact("Sarah grows hops", "f")])
    assert again(before, facts=[fact("Sarah sells hops", "f")]) == {"topic/hops", "entity/person/Sarah"}


@pytest.mark.parametrize("gone", [{"ended": "superseded"}, {"valid_until": LATER}])
def test_a_fact_that_is_gone_makes_it_again(gone):
    before = compiled([topic("hops")], [entity("Sarah")], [fact("Sarah grows hops")])
    assert again(before, facts=[fact("Sarah grows hops", **gone)]) == {"topic/hops", "entity/person/Sarah"}


def test_another_name_of_the_parent_makes_it_again():
    before = compiled([topic("beer"), topic("hops", parent_slug="beer", compiled_context="Green.")])
    renamed = topic("beer", "Brewing", is_dirty=True)
    assert again(before, topics=(renamed, before.topics[1])) == {"topic/beer", "topic/hops"}


def test_a_new_child_makes_its_parent_again():
    before = compiled([topic("beer"), topic("malt")])
    assert again(before, topics=(*before.topics, topic("hops", parent_slug="beer"))) == {"topic/beer", "topic/hops"}


def test_a_clean_child_that_does_not_fit_does_not_make_its_parent_again():
    before = compiled([topic("beer"), topic("hops", "hops " * 80, parent_slug="beer")])
    assert "topic/hops" not in before.bundles["topic/beer"].composition
    assert again(before) == set()


def test_what_has_expired_is_compiled_again():
    before = compiled([topic("hops")], [entity("Sarah")])
    assert again(before, now=NOW + LIFETIME) == {"topic/hops", "entity/person/Sarah"}


def test_what_is_no_longer_known_has_no_bundle():
    before = compiled([topic("hops")], [entity("Sarah")])
    assert compiled((), (), (), before.bundles).bundles == {}


def test_bundles_of_another_type_stay():
    other = ContextBundle(id="x", bundle_type="identity_core", compiled_prompt="", token_count=0, compiled_at=NOW)
    assert compiled(old={"x": other}).bundles == {"x": other}


def test_a_bundle_is_offered_the_pinned_then_the_surest_facts():
    facts = [fact(f"hops {number}", confidence=number / 100) for number in range(1, 20)]
    facts.append(fact("hops pinned", pinned=True, confidence=0.001))
    [after] = compiled([topic("hops")], (), facts).topics
    assert after.related_memory_ids[:3] == ("hops pinned", "hops 19", "hops 18")
    assert len(after.related_memory_ids) == MOST_FACTS


def test_facts_of_one_rank_have_one_order():
    facts = [fact("hops b"), fact("hops a")]
    assert compiled([topic("hops")], (), facts).bundles == compiled([topic("hops")], (), facts[::-1]).bundles
