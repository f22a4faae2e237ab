"""Learning by rules: facts, names and recurring phrases of the user's own messages."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from langchain_ctxbudget.knowledge.learned import Learned, LearnedTopic, Said
from langchain_ctxbudget.knowledge.records import PhraseRecord
from langchain_ctxbudget.knowledge.rules import MOST_COUNTED, MOST_KEPT, MOST_SOURCES, learn

START = datetime(2026, 1, 1, tzinfo=UTC)


def said(*texts: str, first: int = 1, from_user: bool = True) -> list[Said]:
    """Messages m1, m2, ... a day apart."""
    return [
        Said(id=f"m{first + at}", digest=f"d{first + at}", text=text, from_user=from_user, at=START + timedelta(at))
        for at, text in enumerate(texts)
    ]


def learned(*texts: str) -> Learned:
    return learn(said(*texts), (), "c1")[0]


def topics(*texts: str) -> list[str]:
    return [topic.label for topic in learned(*texts).topics]


def record(phrases: Sequence[PhraseRecord], phrase: str) -> PhraseRecord:
    return next(one for one in phrases if one.phrase == phrase)


def only_topic(what: Learned) -> LearnedTopic:
    (topic,) = what.topics
    return topic


def test_a_statement_about_the_user_is_a_fact_with_its_message() -> None:
    facts = learned("Thanks!", "I live in Lisbon.").facts
    assert [(fact.category, fact.message_ids) for fact in facts] == [("identity", ("m2",))]
    assert "Lisbon" in facts[0].text


def test_what_is_said_twice_is_one_fact_of_both_messages() -> None:
    facts = learned("I live in Lisbon.", "Hi! I live in Lisbon.").facts
    assert [fact.message_ids for fact in facts] == [("m1", "m2")]


def test_what_is_said_again_stands_where_it_was_said_last() -> None:
    facts = learned(*(f"My favourite colour is {colour}." for colour in ("teal", "red", "teal"))).facts
    assert [fact.text for fact in facts] == ["Favourite colour is red", "Favourite colour is teal"]


def test_what_has_ended_is_valid_until_the_message() -> None:
    ended = [fact for fact in learned("I no longer work at Siemens.").facts if fact.valid_until]
    assert [(fact.valid_until, bool(fact.slot)) for fact in ended] == [(START, True)]


def test_what_has_ended_at_an_unknown_time_is_left_out() -> None:
    what, _ = learn([Said(id="m1", digest="", text="I no longer work at Siemens.")], (), "c1")
    assert what.facts == ()


def test_a_name_is_an_entity_of_all_messages_that_have_it() -> None:
    entities = learned("My sister Anna lives in Porto.", "My sister Anna called.").entities
    (anna,) = [entity for entity in entities if entity.name == "Anna"]
    assert (anna.type, anna.relationship, anna.message_ids) == ("person", "sister", ("m1", "m2"))


def test_only_the_user_teaches() -> None:
    texts = ["I live in Lisbon with my sister Anna.", *["My sourdough is dense."] * 3]
    assert learn(said(*texts, from_user=False), (), "c1") == (Learned(), ())


def test_three_messages_make_a_topic() -> None:
    texts = ["My sourdough is dense.", "Should sourdough rise overnight?", "The sourdough is fine now."]
    assert topics(*texts[:2]) == []
    topic = only_topic(learned(*texts))
    assert (topic.label, topic.message_ids) == ("Sourdough", ("m1", "m2", "m3"))


def test_two_conversations_make_a_topic_of_a_compound() -> None:
    _, phrases = learn(said("My tax return is due."), (), "c1")
    what, _ = learn(said("Where do I send the tax return?", first=7), phrases, "c2")
    assert (only_topic(what).label, only_topic(what).message_ids) == ("Tax return", ("m7",))


def test_two_conversations_are_too_few_for_a_single_word() -> None:
    _, phrases = learn(said("The sourdough is dense."), (), "c1")
    what, _ = learn(said("I ate sourdough."), phrases, "c2")
    assert what.topics == ()


def test_a_topic_that_comes_up_again_is_given_with_the_new_messages() -> None:
    _, phrases = learn(said(*["My sourdough is dense."] * 3), (), "c1")
    what, phrases = learn(said("Hi!", "The sourdough again.", first=4), phrases, "c1")
    assert only_topic(what).message_ids == ("m5",)
    assert learn(said("Hello!", first=6), phrases, "c1")[0].topics == ()


def test_learning_a_message_twice_counts_it_once() -> None:
    messages = said("My sourdough is dense.", "Sourdough takes time.")
    _, once = learn(messages, (), "c1")
    what, twice = learn(messages, once, "c1")
    assert (what.topics, twice) == ((), once)
    assert learn(messages + messages, (), "c1")[1] == once


def test_learning_many_messages_twice_counts_them_once() -> None:
    messages = said(*["My sourdough is dense."] * 9)
    _, once = learn(messages, (), "c1")
    assert learn(messages, once, "c1")[1] == once
    assert record(once, "sourdough").counts == (("c1", 9),)


def test_other_forms_are_aliases() -> None:
    topic = only_topic(learned("I like home brewing.", "Home-brewing is fun.", "Where to buy home-brewing kits?"))
    assert (topic.label, topic.aliases) == ("Home brewing", ("Home-brewing",))


def test_a_longer_phrase_stands_for_its_parts() -> None:
    assert topics(*["My marathon training is hard."] * 3, "The marathon is in May.") == ["Marathon training"]


def test_a_part_that_comes_up_much_more_often_is_the_parent() -> None:
    what = learned(*["The marathon is in May."] * 5, *["My marathon training is hard."] * 3)
    assert {(topic.label, topic.parent) for topic in what.topics} == {
        ("Marathon", None),
        ("Marathon training", "Marathon"),
    }


def test_a_name_is_no_topic() -> None:
    assert topics("My sister Anna called.", *["Anna is late."] * 4) == []


def test_a_word_of_an_organisation_s_name_may_be_a_topic() -> None:
    texts = ["I work at Kayak Systems GmbH.", *["Where should I store a kayak?"] * 3]
    assert topics(*texts) == ["Kayak"]


def test_ordinary_talk_has_no_topics() -> None:
    assert topics(*["Thanks! I have another question about the error message."] * 5) == []


def test_the_domain_is_read_off_the_words() -> None:
    def domain(text: str) -> str | None:
        return learned(*[text] * 3).topics[0].domain

    assert domain("The database migration needs a script.") == "engineering"
    assert domain("Our investors want the churn rate.") == "business"
    assert domain("My novel needs a better chapter.") == "creative"
    assert domain("The marathon is for my health.") == "personal"
    assert domain("The gizmograph is odd.") is None


def test_a_phrase_keeps_few_sources_and_conversations() -> None:
    phrases: tuple[PhraseRecord, ...] = ()
    for number in range(MOST_COUNTED + 4):
        _, phrases = learn(said("My sourdough is dense.", first=number), phrases, f"c{number}")
    kept = record(phrases, "sourdough")
    assert (len(kept.sources), len(kept.counts)) == (MOST_SOURCES, MOST_COUNTED)
    assert kept.sources[-1].conversation_id == kept.counts[-1][0] == f"c{MOST_COUNTED + 3}"
    assert kept.sources[-1].digest == f"d{MOST_COUNTED + 3}"


def test_the_least_promising_phrases_are_dropped() -> None:
    letters = "bcdfghklmnprstvw"
    words = [f"k{a}a{b}ok" for a in letters for b in letters]
    _, phrases = learn(said(*["My sourdough is dense."] * 3, "I saw a kayak."), (), "c1")
    _, phrases = learn(said(*(f"I love the {word}." for word in words), first=9), phrases, "c1")
    kept = {phrase.phrase for phrase in phrases}
    assert len(phrases) == MOST_KEPT
    assert {"sourdough", words[-1]} <= kept
    assert "kayak" not in kept


def test_the_last_time_is_that_of_the_newest_message() -> None:
    _, phrases = learn(said("My sourdough is dense.", "Sourdough takes time."), (), "c1")
    assert record(phrases, "sourdough").last_at == START + timedelta(1)
