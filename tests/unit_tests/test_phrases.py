"""Key phrases: what a message may be about."""

from __future__ import annotations

import time

import pytest

from langchain_ctxbudget.core.rules.phrases import MOST_PHRASES, MOST_WORDS, is_topic, key, key_phrases


def labels(text: str) -> list[str]:
    return [phrase.label for phrase in key_phrases(text)]


def keys(text: str) -> set[str]:
    return {phrase.key for phrase in key_phrases(text)}


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("My sourdough is too dense.", "Sourdough"),
        ("My marathon training starts soon.", "Marathon training"),
        ("We need to finish the database migration.", "Database migration"),
        ("Is the tax return due in July?", "Tax return"),
        ("Can you help me with the Lisbon trip?", "Lisbon trip"),
        ("I took up gardening.", "Gardening"),
        ("My Spanish is still bad, how do I learn Spanish?", "Spanish"),
        ("We have a problem with SEO here.", "SEO"),
        ("can you review our pricing page?", "Pricing page"),
        ("I'm just home from a night shift", "Night shift"),
        ("could you sketch the steps of the migration?", "Migration"),
        ("now the build fails:", "Build"),
        ("My knee hurts.", "Knee"),
        ("How long does honey keep?", "Honey"),
        ("Will the investors like it?", "Investors"),
        ("Please rewrite my cover letter.", "Cover letter"),
        ("My last night shift was hard.", "Night shift"),
        ("I run the Porto Marathon.", "Marathon"),
        ("The hive smells.", "Hive"),
    ],
)
def test_a_subject_is_found(text: str, label: str) -> None:
    assert label in labels(text)


def test_all_forms_of_a_phrase_have_one_key() -> None:
    forms = ["I've been home brewing since May.", "Home-brewing is fun.", "My home brews are too sweet."]
    assert set.intersection(*map(keys, forms)) == {"home brew"}
    assert {key("Home-brewing"), key("home brews"), key("HOME BREWING")} == {"home brew"}


def test_the_label_is_as_written_and_begins_with_a_capital() -> None:
    assert labels("I love home-brewing.") == ["Home-brewing"]
    assert labels("The Prisma codemods fail.") == ["Prisma codemods", "Codemods"]


def test_a_phrase_comes_once_and_in_order() -> None:
    found = labels("The pottery class is near the chess club, and I like the chess club.")
    assert found == [*dict.fromkeys(found)]
    assert found.index("Pottery class") < found.index("Chess club")


def test_a_trip_to_a_place_is_the_trip_of_that_name() -> None:
    assert keys("We plan a trip to Lisbon.") == keys("Our Lisbon trip!") == {"lisbon trip"}


@pytest.mark.parametrize(
    "text",
    [
        "Hello, how are you today?",
        "Thanks a lot for your help!",
        "Can you give me another example?",
        "I have a question about the error message.",
        "That is a good way to do things.",
        "What time is it tomorrow morning?",
        "Tell me more about it, please.",
        "There are many people and a lot of stuff.",
        "I went there, bought three of them and really enjoyed it.",
        "My sister Anna called me yesterday.",
        "Woohoo! Zoinks, I did it. Splendiferous!",
        "I got home last night and slept.",
        "We cover it, and they build and crash.",
        "",
        "?!",
    ],
)
def test_ordinary_talk_is_about_nothing(text: str) -> None:
    assert labels(text) == []


@pytest.mark.parametrize(
    "text",
    [
        "```python\nsourdough = bake(marathon)\n```",
        '{"sourdough": "marathon", "kayak": 3}',
        "> the sourdough from the other message",
        "| sourdough | kayak |\n|---|---|\n| 1 | 2 |",
        "See https://example.com/sourdough and `kayak` and src/kayak.py.",
    ],
)
def test_code_json_tables_quotes_and_addresses_are_not_read(text: str) -> None:
    assert labels(text) == []


@pytest.mark.parametrize(
    "text",
    [
        "Ich habe heute ein Brot gebacken und es ist gut geworden.",
        "Je voudrais apprendre la guitare avec mon frère.",
        "Hoy quiero hablar de mi viaje con la familia.",
        "今日はパンを焼きました。",
        "Сегодня я пеку хлеб дома.",
        "Dziś piekłem chleb razem mojej rodziny domu.",
    ],
)
def test_other_languages_give_nothing_instead_of_noise(text: str) -> None:
    assert labels(text) == []


def test_a_verb_is_no_phrase_where_its_place_says_so() -> None:
    assert "refactor" not in keys("I refactor the kayak shed.")
    assert labels("Can you proofread my novel?") == ["Novel"]
    assert labels("I'm kayaking.") == []
    assert labels("Kayaking is fun.") == ["Kayaking"]


def test_a_name_alone_is_no_phrase_but_part_of_one() -> None:
    assert labels("We stayed in Lisbon.") == []
    assert labels("We enjoyed the Lisbon marathon.") == ["Lisbon marathon", "Marathon"]


def test_a_word_that_acts_as_a_person_at_the_beginning_of_a_sentence_is_a_name() -> None:
    assert labels("Marcus wants it. Mira, come here!") == []
    assert labels("Sourdough is fine.") == ["Sourdough"]


def test_the_subject_of_a_question_is_no_verb() -> None:
    assert labels("Should sourdough rise overnight?") == ["Sourdough"]


def test_a_general_noun_needs_company() -> None:
    assert labels("The plan and the trip and the meeting.") == []
    assert labels("The job interview went well.") == ["Job interview"]


def test_phrases_have_at_most_three_words() -> None:
    assert max(len(one.split()) for one in keys("The marathon kayak pottery chess sourdough club.")) == MOST_WORDS


def test_the_number_of_phrases_of_a_text_is_bounded() -> None:
    letters = "bcdfghklmnprstvw"
    text = " ".join(f"I love the k{a}a{b}ok." for a in letters for b in letters)
    assert len(key_phrases(text)) == MOST_PHRASES


@pytest.mark.parametrize("part", ["a", "bread ", "a-", "s'", "[", "`", "a.b", "/", "trip to the ", "> \n", "[a"])
def test_hostile_input_takes_time_in_proportion(part: str) -> None:
    text = part * (100_000 // len(part))
    key_phrases(text)
    started = time.process_time()
    key_phrases(text)
    assert time.process_time() - started < 0.5


@pytest.mark.parametrize(
    ("messages", "conversations", "expected"),
    [(1, 1, False), (2, 1, False), (3, 1, True), (2, 2, True), (9, 4, True)],
)
def test_three_messages_or_two_conversations_make_a_topic(messages: int, conversations: int, *, expected: bool) -> None:
    assert is_topic(messages, conversations) is expected
