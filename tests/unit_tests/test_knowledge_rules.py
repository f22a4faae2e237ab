"""Holds learning without a model to statements, names and phrases of the user's own messages."""

import importlib.util
import itertools
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from langchain_ctxbudget.knowledge.records import Learned, LearnedEntity, ReadMessage
from langchain_ctxbudget.knowledge.rules import (
    MOST_CHARACTERS,
    MOST_KEPT,
    MOST_SEEN,
    MOST_STATED,
    learn,
)

START = datetime(2026, 1, 1, tzinfo=UTC)


def messages_of(*texts: str, first: int = 1, at_once: bool = False) -> list[ReadMessage]:
    """Messages m1, m2, ... of the user, a day apart or all at once."""
    messages = []
    for number, text in enumerate(texts, first):
        day = START if at_once else START + timedelta(days=number - first)
        messages.append(ReadMessage(id=f"m{number}", digest=f"d{number}", text=text, at=day))
    return messages


def learned(*texts: str) -> Learned:
    return learn(messages_of(*texts), (), "c1")[0]


def lines_of(name: str) -> list[str]:
    return (Path(__file__).parents[1] / "data" / name).read_text(encoding="utf-8").splitlines()


def facts(text: str) -> list[str]:
    return [fact.text for fact in learned(text).facts]


def topics(*texts: str) -> list[str]:
    return [topic.label for topic in learned(*texts).topics]


def stated() -> list[Any]:
    """Messages with the fact that each teaches, a line: message | text | category | slot."""
    cases = []
    for line in lines_of("stated.txt"):
        message, *fields = [part.strip() for part in line.split("|")]
        expected = [fields] if fields[0] else []
        cases.append(pytest.param(message, expected, id=ascii(message)))
    return cases


@pytest.mark.parametrize(("message", "expected"), stated())
def test_a_plain_statement_is_a_fact_with_its_category_and_slot(
    message: str, expected: list[list[str]]
) -> None:
    facts = learned(message).facts

    assert [[fact.text, fact.category, fact.slot] for fact in facts] == expected


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("I live in Lisbon and I work at Siemens.", ["Lives in Lisbon", "Works at Siemens"]),
        ("I love tea but I hate coffee", ["Loves tea", "Hates coffee"]),
        ("I live in Madrid and want to move.", ['"I live in Madrid and want to move."']),
        ("Thanks! By the way, I moved to Oslo. Is it cold?", ["Moved to Oslo"]),
        ("I've just moved to Oslo.", ["Moved to Oslo"]),
        ("Since I'm allergic to nuts, which bars are safe?", []),
        ("btw, also I live in Rome. Yes, I live in Rome.", ["Lives in Rome"]),
    ],
)
def test_a_message_is_read_clause_by_clause(message: str, expected: list[str]) -> None:
    assert facts(message) == expected


@pytest.mark.parametrize("message", lines_of("limited.txt"))
def test_what_would_lose_a_limit_is_kept_whole(message: str) -> None:
    assert facts(message) == [f'"{message}"']


@pytest.mark.parametrize(
    ("message", "found"),
    [
        ("I live in the U.S. I work at Acme.", ["Lives in the U.S", "Works at Acme"]),
        ("I like vitamin C. I live in Rome.", ["Likes vitamin C", "Lives in Rome"]),
        ("i work at acme inc. my dog is called Rex.", ["Dog is called Rex"]),
    ],
)
def test_a_point_behind_a_short_form_may_end_a_sentence(message: str, found: list[str]) -> None:
    assert facts(message) == found


@pytest.mark.parametrize(
    "wish", ["Never use emojis", "Please keep your answers short!", "My friends call me Lu."]
)
def test_a_wish_is_kept_in_the_users_own_words(wish: str) -> None:
    assert facts(wish) == [f'"{wish}"']


def test_a_sentence_too_long_to_be_kept_whole_teaches_nothing() -> None:
    sentence = f"I live in Paris, but only while {'really ' * 30}nothing else is to be had."

    assert facts(sentence) == []


def test_a_sentence_of_several_statements_is_one_quotation() -> None:
    [fact] = learned("I live in Lisbon, I work as a nurse and I dream of the sea.").facts

    assert fact.category == "identity"
    assert fact.slot == "home, job"


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ("I love tea but I hate coffee.", ["Loves tea", "Hates coffee"]),
        ("By the way, I live in Rome too!", ["Lives in Rome"]),
        ("I love hiking. But is it warm there?", ["Loves hiking"]),
    ],
)
def test_what_loses_nothing_is_told_in_short(message: str, text: list[str]) -> None:
    assert facts(message) == text


@pytest.mark.parametrize("line", lines_of("silent.txt"), ids=ascii)
def test_what_is_asked_quoted_pasted_or_momentary_says_nothing(line: str) -> None:
    assert facts(line.replace("\\n", "\n")) == []


@pytest.mark.parametrize(
    ("message", "text", "slot"),
    [
        ("I no longer work at Acme", "No longer works at Acme", ""),
        ("I don't work at Acme anymore", "Does not work at Acme anymore", ""),
        ("I'm not vegan any more", "Is not vegan any more", ""),
        ("I no longer like coffee", "No longer likes coffee", "prefers:coffe"),
        ("I'm no longer planning a trip to Japan", "Not planning a trip to Japan", ""),
    ],
)
def test_a_statement_may_say_what_is_no_longer_so(message: str, text: str, slot: str) -> None:
    [fact] = learned(message).facts

    assert fact.text == text
    assert fact.slot == slot


def test_a_fact_names_its_message() -> None:
    facts = learned(
        "My favourite colour is teal.", "I live in Rome.", "Hi! My favourite colour is teal."
    ).facts

    assert [(fact.text, fact.message_ids) for fact in facts] == [
        ("Favourite colour is teal", ("m1",)),
        ("Lives in Rome", ("m2",)),
        ("Favourite colour is teal", ("m3",)),
    ]


def named() -> list[Any]:
    """Messages with the names that each introduces, a line: message | name kind relation, ..."""
    cases = []
    for line in lines_of("named.txt"):
        message, _, names = line.partition(" |")
        expected = [name.strip() for name in names.split(",") if name.strip()]
        cases.append(pytest.param(message, expected, id=ascii(message)))
    return cases


def written(entity: LearnedEntity) -> str:
    """An entity as `named.txt` has it: its name, kind and relation, blanks as hyphens."""
    words = [entity.name.replace(" ", "-"), entity.type]
    if entity.relationship:
        words.append(entity.relationship.replace(" ", "-"))
    return " ".join(word for word in words if word)


@pytest.mark.parametrize(("message", "expected"), named())
def test_names_are_learned_where_they_are_introduced(message: str, expected: list[str]) -> None:
    assert [written(entity) for entity in learned(message).entities] == expected


@pytest.mark.parametrize("number", [0, 1])
def test_a_name_that_is_introduced_twice_has_both_messages(number: int) -> None:
    entities = learned("My sister Clara lives in Porto.", "I called my sister Clara.").entities

    assert len(entities) == 2
    assert entities[number].name == "Clara"
    assert entities[number].relationship == "sister"
    assert entities[number].message_ids == (f"m{number + 1}",)


TRAINING = (
    "My marathon training is hard.",
    "Is the marathon training bad for knees?",
    "About the marathon trainings again.",
)


def test_a_compound_that_comes_up_on_two_days_is_no_topic() -> None:
    assert topics(*TRAINING[:2]) == []


def test_a_compound_that_comes_up_on_three_days_is_a_topic() -> None:
    [topic] = learned(*TRAINING).topics

    assert topic.label == "Marathon training"
    assert topic.message_ids == ("m1", "m2", "m3")
    assert topic.aliases == ("marathon training", "marathon trainings")


def test_a_compound_that_comes_up_three_times_a_day_is_no_topic() -> None:
    what, _ = learn(messages_of(*TRAINING, at_once=True), (), "c1")

    assert what.topics == ()


def test_a_compound_that_comes_up_in_three_conversations_is_a_topic() -> None:
    _, phrases = learn(messages_of(*TRAINING[:2], at_once=True), (), "c1")

    after_two, phrases = learn(messages_of(TRAINING[2], first=6), phrases, "c2")
    after_three, phrases = learn(messages_of(TRAINING[2], first=7), phrases, "c3")
    afterwards, _ = learn(messages_of("Hello!", first=8), phrases, "c4")

    [topic] = after_three.topics
    assert after_two.topics == ()
    assert topic.label == "Marathon training"
    assert topic.message_ids == ("m7",)
    assert afterwards.topics == ()


def test_the_longest_compound_is_the_topic() -> None:
    assert topics(*["My summer marathon training is hard."] * 3) == ["Summer marathon training"]


TRIPS = messages_of(*["My marathon trip is near."] * 9)


def test_learning_messages_twice_counts_them_once() -> None:
    _, once = learn(TRIPS, (), "c1")

    assert learn(TRIPS, once, "c1")[1] == once
    assert learn(TRIPS + TRIPS, (), "c1")[1] == once


def test_a_phrase_remembers_so_many_sources() -> None:
    _, [phrase] = learn(TRIPS, (), "c1")

    assert len(phrase.sources) == MOST_SEEN


@pytest.mark.parametrize(
    "text",
    [
        "Thanks! I have another question about the same message.",
        "What time is it tomorrow morning?",
        "I met my sister Anna Petrova.",
        "```python\nthe_sourdough = bake(marathon)\n```",
        "> the sourdough from the other message",
        "See https://example.com/the-sourdough and `the kayak trip`.",
        "Ich habe heute ein Sourdough gebacken und es ist gut geworden.",
    ],
    ids=["talk", "time", "a name", "code", "a quotation", "an address", "German"],
)
def test_what_recurs_and_is_no_compound_of_the_user_is_no_topic(text: str) -> None:
    assert topics(*[text] * 5) == []


def test_few_phrases_are_remembered() -> None:
    words = [a + b + "ograph" for a, b in itertools.product("bcdfghjklmnpqrst", "aeiou")]
    things = itertools.product(["lamp", "desk", "shelf"], words)
    texts = [f"My {thing} {word}." for thing, word in things]

    _, phrases = learn(messages_of(*texts), (), "c")

    assert len(phrases) == MOST_KEPT


@pytest.mark.parametrize(
    "piece",
    [
        "I ",
        "my ",
        "I'm a ",
        "and I ",
        "I like ",
        "a",
        "my dog ",
        '"',
        ", ",
        "I have a ",
        "- I am in Rome\n",
        "Aa ",
    ],
)
def test_hostile_input_takes_little_time(piece: str) -> None:
    longest = ("I " + piece * MOST_CHARACTERS)[:MOST_CHARACTERS]
    too_long = "I " + piece * 20_000

    began = time.process_time()
    learned(longest, too_long)
    seconds = time.process_time() - began

    assert seconds < 5


@given(
    st.text()
    | st.lists(
        st.sampled_from(
            "I my am like live in a and not have , . ? ' Rome the dog is we no longer".split()
        )
    ).map(" ".join)
)
@settings(max_examples=200, deadline=None)
def test_any_text_gives_short_facts_and_names_that_stand_in_it(message: str) -> None:
    what = learned(message)

    for fact in what.facts:
        assert fact.text.strip()
        assert len(fact.text) <= MOST_STATED
    for entity in what.entities:
        assert entity.name in message


BENCHMARK = Path(__file__).resolve().parents[2] / "benchmarks" / "extraction_quality.py"


@pytest.fixture(scope="module")
def figures() -> ModuleType:
    """The module of benchmarks that compares what is learned with what people marked."""
    spec = importlib.util.spec_from_file_location("extraction_quality", BENCHMARK)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_what_is_learned_without_a_model_is_right(figures: ModuleType) -> None:
    quality = figures.measure(figures.read())

    totals = {
        (part, kind): quality.total([part], [kind])
        for part, kind in itertools.product(figures.PARTS, figures.KINDS)
    }
    wrong = {
        name: total for name, total in totals.items() if total.found and total.precision < 0.95
    }
    assert wrong == {}


def test_of_the_marked_chats_half_teach_nothing(figures: ModuleType) -> None:
    chats = figures.read()

    empty = sum(chat.empty for chat in chats)
    rich = sum(chat.rich for chat in chats)
    assert empty >= rich >= 120
