"""Holds topics without a model to phrases that recur on several days or in conversations."""

import itertools
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest

from langchain_ctxbudget.knowledge.records import PhraseRecord, ReadMessage
from langchain_ctxbudget.knowledge.recurring_phrases import (
    PHRASE_POLICY,
    Recurring,
    recurring,
)

START = datetime(2026, 1, 1, tzinfo=UTC)
TRAINING = (
    "My marathon training is hard.",
    "Is the marathon training bad for knees?",
    "About the marathon trainings again.",
)


def messages_of(*texts: str, first: int = 1, at_once: bool = False) -> list[ReadMessage]:
    """Messages m1, m2, ... of the user, a day apart or all at once."""
    messages = []
    for number, text in enumerate(texts, first):
        day = START if at_once else START + timedelta(days=number - first)
        messages.append(ReadMessage(id=f"m{number}", digest=f"d{number}", text=text, at=day))
    return messages


def found(*texts: str) -> Recurring:
    return recurring(messages_of(*texts), (), "c1")


def topics(*texts: str) -> list[str]:
    return [topic.label for topic in found(*texts).topics]


def test_a_phrase_on_two_days_is_no_topic() -> None:
    assert topics(*TRAINING[:2]) == []


def test_a_phrase_on_three_days_is_a_topic() -> None:
    [topic] = found(*TRAINING).topics

    assert topic.label == "Marathon training"
    assert topic.message_ids == ("m1", "m2", "m3")
    assert topic.aliases == ("marathon training", "marathon trainings")


def test_a_phrase_three_times_a_day_is_no_topic() -> None:
    assert recurring(messages_of(*TRAINING, at_once=True), (), "c1").topics == ()


def test_a_phrase_in_three_conversations_is_a_topic() -> None:
    phrases: Sequence[PhraseRecord] = ()
    for number, text in enumerate(TRAINING):
        result = recurring(messages_of(text, first=number), phrases, f"c{number}")
        phrases = result.phrases

    assert [topic.message_ids for topic in result.topics] == [("m2",)]


def test_the_longest_phrase_is_the_topic() -> None:
    assert topics(*["My summer marathon training is hard."] * 3) == ["Summer marathon training"]


def test_words_of_others_are_not_counted() -> None:
    answers = [message._replace(from_user=False) for message in messages_of(*TRAINING)]

    assert recurring(answers, (), "c1").topics == ()


TRIPS = messages_of(*["My marathon trip is near."] * 9)


def test_messages_that_are_read_twice_count_once() -> None:
    once = recurring(TRIPS, (), "c1").phrases

    assert recurring(TRIPS, once, "c1").phrases == once


def test_a_phrase_remembers_so_many_sources() -> None:
    [phrase] = recurring(TRIPS, (), "c1").phrases

    assert len(phrase.sources) == PHRASE_POLICY.most_sources


@pytest.mark.parametrize(
    "text",
    [
        "Thanks! I have another question about the same message.",
        "What time is it tomorrow morning?",
        "```python\nthe_sourdough = bake(marathon)\n```",
        "See https://example.com/the-sourdough and `the kayak trip`.",
        "Ich habe heute ein Sourdough gebacken und es ist gut geworden.",
    ],
    ids=["talk", "time", "code", "an address", "German"],
)
def test_what_recurs_and_is_no_phrase_is_no_topic(text: str) -> None:
    assert topics(*[text] * 5) == []


def test_few_phrases_are_remembered() -> None:
    words = [a + b + "ograph" for a, b in itertools.product("bcdfghjklmnpqrst", "aeiou")]
    things = itertools.product(["lamp", "desk", "shelf"], words)

    phrases = found(*(f"My {thing} {word}." for thing, word in things)).phrases

    assert len(phrases) == PHRASE_POLICY.most_kept
