"""Holds what a user says later to taking the place of what it contradicts, and of nothing else."""

from collections.abc import Collection
from datetime import UTC, datetime, timedelta

import pytest

from langchain_ctxbudget.knowledge.fact_merging import learn
from langchain_ctxbudget.knowledge.records import LearnedFact, Source, quotation

NOW = datetime(2026, 3, 1, tzinfo=UTC)


def standing(*sentences: str, uncertain: Collection[str] = ()) -> list[str]:
    """What counts once some sentences were said, a day apart, without quotation marks."""
    sources = {}
    said_at = {}
    notes = []
    for number, sentence in enumerate(sentences):
        key = f"m{number}"
        sources[key] = Source(conversation_id="c1", message_id=key, digest=key)
        said_at[key] = NOW - timedelta(days=len(sentences) - number)
        note = LearnedFact(text=quotation(sentence), category="identity", message_ids=(key,))
        notes.append(note._replace(is_uncertain=sentence in uncertain))
    facts = learn((), notes, sources, NOW, "rules", said_at=said_at)
    return [fact.text[1:-1] for fact in facts if fact.is_current]


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        ("I love Chinese food.", "I hate Chinese food now."),
        ("I hate Chinese food.", "I love Chinese food."),
        ("I love coffee.", "I don't like coffee anymore."),
        ("I can't stand coffee.", "I enjoy coffee."),
        ("I like coffee only at night.", "I hate coffee."),
        ("I prefer window seats on trains.", "I no longer prefer window seats."),
        ("I'm allergic to nuts.", "I'm not allergic to nuts."),
        ("I don't drive.", "I drive."),
        ("My name is Ada.", "Sorry, my name is Li Guosong."),
        ("I live in Lisbon.", "I moved to Porto."),
        ("I live in Paris until June.", "I don't live in Paris."),
        ("I work at Acme.", "I work at Siemens now."),
        ("My favourite colour is blue.", "My favourite colour is green."),
        ("My time zone is CET.", "My time zone is EST."),
        ("I'm 34 years old.", "I'm 35 years old."),
        ("My eldest is nine.", "My eldest is ten."),
        ("I live in San Francisco.", "I moved to Berlin last month, I live in Berlin now."),
        ("I work as a teacher.", "I don't work as a teacher any more, I drive a bus now."),
        ("My name is Carlos Mendoza.", "Sorry, I write it wrong, my name is Carlos Mendez."),
        ("Meine Frau heißt Anna.", "Entschuldigung, meine Frau heißt Hanna."),
        ("Ich wohne in Hamburg.", "Ich bin umgezogen, ich wohne jetzt in Köln."),
        ("Ich esse Fleisch.", "Ich esse kein Fleisch mehr."),
        ("Mi número de teléfono es 612 345 678.", "Mi número de teléfono es ahora 699 111 222."),
        ("Me gusta el café.", "No me gusta el café."),
        ("J'habite à Lyon.", "J'habite maintenant à Paris."),
        ("Teraz mieszkam w Krakowie.", "Teraz mieszkam w Gdańsku."),
        ("我喜欢吃辣的菜。", "我不喜欢吃辣的菜。"),
        ("我叫李明。", "对不起，我叫李敏。"),
    ],
)
def test_of_statements_that_exclude_each_other_the_later_stands(earlier: str, later: str) -> None:
    assert standing(earlier, later) == [later]


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        ("I live in San Francisco.", "I live in a dorm."),
        ("I live in Lisbon.", "I live with my parents."),
        ("I live in Lisbon.", "I live in Paris until June."),
        ("I love coffee.", "I like coffee only at night."),
        ("I love coffee.", "I don't like coffee at night."),
        ("I love sushi.", "I love pizza."),
        ("I speak French.", "I speak German."),
        ("My wife is called Anna.", "My husband is called Tom."),
        ("I have 2 sisters.", "I have 3 brothers."),
        ("My mother is called Ana.", "My mother's cat is called Max."),
        ("I speak French.", "I speak German now."),
        ("I am allergic to peanuts.", "I am not allergic to milk."),
        ("I love Chinese food.", "I don't like the Chinese restaurant in our street."),
        ("I live in Rome.", "If I lived in Oslo, I wouldn't live in Rome."),
        ("My phone number is 555-1234.", "My office phone number is 555-9876."),
        ("I run 5 km on Mondays.", "I run 10 km on Sundays."),
        ("Ich habe einen Hund.", "Ich habe jetzt eine Katze."),
        ("Ich wohne in Hamburg.", "Meine Eltern wohnen jetzt in Köln."),
        ("Soy vegetariana.", "Mi marido no es vegetariano."),
        ("我喜欢喝茶。", "我不喜欢喝咖啡。"),
    ],
)
def test_statements_that_may_both_be_true_both_stand(earlier: str, later: str) -> None:
    assert standing(earlier, later) == [earlier, later]


def test_an_uncertain_note_is_learned_where_it_replaces_a_fact() -> None:
    assert standing("I love coffee.", "I hate coffee.", uncertain=["I hate coffee."]) == [
        "I hate coffee."
    ]


def test_an_uncertain_note_that_replaces_nothing_is_not_learned() -> None:
    assert standing("I love coffee.", "I hate tea.", uncertain=["I hate tea."]) == [
        "I love coffee."
    ]


def test_an_uncertain_note_does_not_replace_what_was_said_later() -> None:
    assert standing("I hate coffee.", "I love coffee.", uncertain=["I hate coffee."]) == [
        "I love coffee."
    ]


def test_what_is_said_again_is_known_once() -> None:
    assert standing("I live in Lisbon.", "I live in Lisbon!") == ["I live in Lisbon."]


def test_what_was_taken_back_may_be_said_again() -> None:
    sentences = ("I love coffee.", "I hate coffee.", "I love coffee.")

    assert standing(*sentences) == ["I love coffee."]
