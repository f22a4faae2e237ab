"""Learning without a model: statements, names and recurring phrases of the user's own messages."""

import importlib.util
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from langchain_ctxbudget.knowledge.records import Learned, Said
from langchain_ctxbudget.knowledge.rules import (
    MOST_CHARACTERS,
    MOST_KEPT,
    MOST_SEEN,
    MOST_STATED,
    learn,
)

START = datetime(2026, 1, 1, tzinfo=UTC)


def said(*texts: str, first: int = 1, from_user: bool = True) -> list[Said]:
    """Messages m1, m2, ... a day apart."""
    return [
        Said(
            id=f"m{first + at}",
            digest=f"d{first + at}",
            text=text,
            from_user=from_user,
            at=START + timedelta(at),
        )
        for at, text in enumerate(texts)
    ]


def learned(*texts: str) -> Learned:
    return learn(said(*texts), (), "c1")[0]


def said_in(name: str) -> list[str]:
    return (Path(__file__).parents[1] / "data" / name).read_text(encoding="utf-8").splitlines()


def facts(text: str) -> list[str]:
    return [fact.text for fact in learned(text).facts]


def topics(*texts: str) -> list[str]:
    return [topic.label for topic in learned(*texts).topics]


# message | text of the fact | category | slot
STATED = said_in("stated.txt")


def test_a_plain_statement_is_a_fact_with_its_category_and_slot() -> None:
    for line in STATED:
        message, *expected = (part.strip() for part in line.split("|"))
        found = [[fact.text, fact.category, fact.slot] for fact in learned(message).facts]
        assert found == ([expected] if expected[0] else []), message


def test_a_message_is_read_clause_by_clause() -> None:
    for message, found in (
        ("I live in Lisbon and I work at Siemens.", ["Lives in Lisbon", "Works at Siemens"]),
        ("I love tea but I hate coffee", ["Loves tea", "Hates coffee"]),
        ("I live in Madrid and want to move.", ['"I live in Madrid and want to move."']),
        ("Thanks! By the way, I moved to Oslo. Is it cold?", ["Moved to Oslo"]),
        ("I've just moved to Oslo.", ["Moved to Oslo"]),
        ("Since I'm allergic to nuts, which bars are safe?", []),
        ("btw, also I live in Rome. Yes, I live in Rome.", ["Lives in Rome"]),
    ):
        assert facts(message) == found, message


@pytest.mark.parametrize("message", said_in("limited.txt"))
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
    assert (
        facts(f"I live in Paris, but only while {'really ' * 30}nothing else is to be had.") == []
    )


def test_a_sentence_of_several_statements_is_one_quotation() -> None:
    [fact] = learned("I live in Lisbon, I work as a nurse and I dream of the sea.").facts
    assert (fact.category, fact.slot) == ("identity", "home, job")


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


# What teaches nothing, whatever it looks like.
SILENT = said_in("silent.txt")


def test_what_is_asked_supposed_quoted_pasted_played_or_momentary_says_nothing() -> None:
    for line in SILENT:
        assert facts(line.replace("\\n", "\n")) == [], line


def test_a_statement_may_say_what_is_no_longer_so() -> None:
    for message, text, slot in (
        ("I no longer work at Acme", "No longer works at Acme", ""),
        ("I don't work at Acme anymore", "Does not work at Acme anymore", ""),
        ("I'm not vegan any more", "Is not vegan any more", ""),
        ("I no longer like coffee", "No longer likes coffee", "prefers:coffe"),
        ("I'm no longer planning a trip to Japan", "Not planning a trip to Japan", ""),
    ):
        assert [(fact.text, fact.slot) for fact in learned(message).facts] == [(text, slot)], (
            message
        )


def test_a_fact_names_its_message() -> None:
    found = learned(
        "My favourite colour is teal.", "I live in Rome.", "Hi! My favourite colour is teal."
    ).facts
    assert [(fact.text, fact.message_ids) for fact in found] == [
        ("Favourite colour is teal", ("m1",)),
        ("Lives in Rome", ("m2",)),
        ("Favourite colour is teal", ("m3",)),
    ]


# message | names with their kinds
NAMED = said_in("named.txt")


def test_names_are_learned_where_they_are_introduced() -> None:
    for line in NAMED:
        message, _, names = line.partition(" |")
        found = [
            " ".join(
                filter(
                    None,
                    (
                        one.name.replace(" ", "-"),
                        one.type,
                        (one.relationship or "").replace(" ", "-"),
                    ),
                )
            )
            for one in learned(message).entities
        ]
        assert found == [name.strip() for name in names.split(",") if name.strip()], message
    found = learned("My sister Clara lives in Porto.", "I called my sister Clara.").entities
    assert [(one.name, one.relationship, one.message_ids) for one in found] == [
        ("Clara", "sister", ("m1",)),
        ("Clara", "sister", ("m2",)),
    ]


def test_a_compound_that_comes_up_on_three_days_or_in_three_conversations_is_a_topic() -> None:
    texts = [
        "My marathon training is hard.",
        "Is the marathon training bad for knees?",
        "About the marathon trainings again.",
    ]
    assert topics(*texts[:2]) == []
    [topic] = learned(*texts).topics
    assert (topic.label, topic.message_ids) == ("Marathon training", ("m1", "m2", "m3"))
    assert topic.aliases == ("marathon training", "marathon trainings")
    once = [one._replace(at=START) for one in said(*texts)]
    assert learn(once, (), "c1")[0].topics == ()
    _, phrases = learn(once[:2], (), "c1")
    what, phrases = learn([once[2]._replace(id="m6")], phrases, "c2")
    assert what.topics == ()
    what, phrases = learn([once[2]._replace(id="m7")], phrases, "c3")
    assert [(one.label, one.message_ids) for one in what.topics] == [("Marathon training", ("m7",))]
    assert learn(said("Hello!", first=8), phrases, "c4")[0].topics == ()
    assert topics(*["My summer marathon training is hard."] * 3) == ["Summer marathon training"]


def test_learning_messages_twice_counts_them_once() -> None:
    messages = said(*["My marathon trip is near."] * 9)
    _, once = learn(messages, (), "c1")
    assert learn(messages, once, "c1")[1] == once
    assert learn(messages + messages, (), "c1")[1] == once
    [phrase] = once
    assert len(phrase.sources) == MOST_SEEN


def test_ordinary_talk_names_code_quotations_and_other_languages_are_no_topics() -> None:
    for text in (
        "Thanks! I have another question about the same message.",
        "What time is it tomorrow morning?",
        "I met my sister Anna Petrova.",
        "```python\nthe_sourdough = bake(marathon)\n```",
        "> the sourdough from the other message",
        "See https://example.com/the-sourdough and `the kayak trip`.",
        "Ich habe heute ein Sourdough gebacken und es ist gut geworden.",
    ):
        assert topics(*[text] * 5) == [], text


def test_few_phrases_are_remembered() -> None:
    words = [f"{a}{b}ograph" for a in "bcdfghjklmnpqrst" for b in "aeiou"]
    _, phrases = learn(
        said(*(f"My {thing} {word}." for thing in ("lamp", "desk", "shelf") for word in words)),
        (),
        "c",
    )
    assert len(phrases) == MOST_KEPT


PIECES = [
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
]


def test_hostile_input_takes_little_time() -> None:
    for piece in PIECES:
        began = time.process_time()
        learned(("I " + piece * MOST_CHARACTERS)[:MOST_CHARACTERS], "I " + piece * 20_000)
        assert time.process_time() - began < 5, piece


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
    assert all(fact.text.strip() and len(fact.text) <= MOST_STATED for fact in what.facts)
    assert all(entity.name in message for entity in what.entities)


BENCHMARK = Path(__file__).resolve().parents[2] / "benchmarks" / "extraction_quality.py"


def test_what_is_learned_without_a_model_is_right_and_half_of_what_is_said_teaches_nothing():
    spec = importlib.util.spec_from_file_location("extraction_quality", BENCHMARK)
    figures = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(figures)
    chats = figures.read()
    quality = figures.measure(chats)
    for part in figures.PARTS:
        for kind in figures.KINDS:
            total = quality.total([part], [kind])
            assert total.precision >= 0.95 or not total.found, (part, kind, total)
    assert sum(chat.empty for chat in chats) >= sum(chat.rich for chat in chats) >= 120
