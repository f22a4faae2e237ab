"""What the reader takes sentences for; how well it does is measured by `training/train.py`."""

import numpy as np
import pytest

from langchain_ctxbudget.sentences import Label, Said, likeness, read
from langchain_ctxbudget.sentences.features import features_of, placed
from langchain_ctxbudget.sentences.reader import (
    BUCKETS,
    LABELS,
    Weights,
    packaged_weights,
    probabilities,
)

RULES = [
    "Never push to main without asking me first.",
    "Please always answer in bullet points from now on.",
    "Frag mich immer, bevor du etwas löschst.",
    "Ne supprime jamais rien sans me demander.",
    "以后都用中文回答。",
]


POLITE_RULES = [
    "Please never suggest a moving company.",
    "Please do not email my boss.",
    "Could you please always answer in German?",
    "You must never call my landlord.",
    "You must not call my landlord.",
    "And please don't use emojis.",
    "S'il te plaît, ne me tutoie jamais.",
    "Por favor, responde siempre en español.",
]


def labels_of(text: str) -> list[Label]:
    [said] = read([text])
    return [one.label for one in said]


@pytest.mark.parametrize("text", [*RULES, *POLITE_RULES])
def test_a_rule_is_read_as_one(text: str) -> None:
    [label] = labels_of(text)

    assert label in (Label.RULE, Label.USER_RULE)


@pytest.mark.parametrize(
    "text",
    [
        "Please translate this into German.",
        "Could you help me write a letter to my landlord?",
        "I'd like you to write a poem about autumn.",
        "You should see the look on her face!",
        "You have to enter the PIN twice.",
        "You may not enter without a badge.",
        "Can you always see the stars there?",
    ],
)
def test_a_polite_request_for_once_is_no_rule(text: str) -> None:
    assert not {Label.RULE, Label.USER_RULE}.intersection(labels_of(text))


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("Which of the two is cheaper?", Label.QUESTION),
        ("Thanks a lot, that helps!", Label.COURTESY),
        ("I work as a nurse at a hospital in Porto.", Label.STATEMENT),
        ("Okay, let's go with Postgres.", Label.DECISION),
        ("You may delete files again.", Label.LIFTING),
        ("You no longer have to answer in German, in any chat.", Label.LIFTING),
    ],
)
def test_a_sentence_is_read_as_what_it_is(text: str, label: Label) -> None:
    assert labels_of(text) == [label]


@pytest.mark.parametrize(
    "text",
    [
        'Bob wrote: "You may delete files again."',
        "The page says 'You may delete files again.', is that so?",
        "“You may delete files again. No need to ask.” is what Bob wrote.",
        "「You may delete files again.」",
        'Bob wrote: "You may delete files\nagain."',
        'Bob wrote: "You may delete files again. No need\nto ask for it."',
    ],
)
def test_what_is_quoted_takes_nothing_back(text: str) -> None:
    assert Label.LIFTING not in labels_of(text)


def test_a_quoted_word_leaves_a_lifting() -> None:
    assert labels_of('You may delete "files" again.') == [Label.LIFTING]


def test_a_quotation_of_two_sentences_is_no_rule() -> None:
    text = (
        "Meine Mutter schreibt mir: „Ruf mich immer sonntags an und erzähl Papa nie von dem Auto. "
        "Ich wohne jetzt in Fulda.“ Was antworte ich?"
    )

    assert labels_of(text) == [Label.QUESTION]


def test_a_rule_may_quote_two_sentences() -> None:
    assert labels_of('Always end mails with "Best regards. Ada"') == [Label.RULE]


def test_a_rule_has_its_condition_in_the_next_line() -> None:
    text = "Never deploy on Fridays\nunless I say so."

    [said] = read([text])

    assert [one.words_in(text) for one in said] == [text]
    assert said[0].label in (Label.RULE, Label.USER_RULE)


def test_an_ordinary_request_is_nothing() -> None:
    assert labels_of("Write a test for the parser.") == []


def test_a_sentence_is_where_it_says() -> None:
    text = "The parser looks right.\n\nNever push to main without asking me first. Next one."

    [said] = read([text])

    assert [one.words_in(text) for one in said if one.label is Label.RULE] == [
        "Never push to main without asking me first."
    ]


@pytest.mark.parametrize(
    "text",
    [
        "```\nNever push to main without asking me first.\n```",
        '{"rule": "Never push to main without asking me first."}',
        "| Never push to main without asking me first. | yes |",
    ],
    ids=["code", "JSON", "table"],
)
def test_what_is_no_prose_says_nothing(text: str) -> None:
    assert labels_of(text) == []


@pytest.mark.parametrize("text", ["", " ", "\n\n", "...", "!!!", "\ud83d\ude00", "\x00", "\ud800"])
def test_a_text_without_sentences_says_nothing(text: str) -> None:
    assert labels_of(text) == []


def test_many_texts_are_read_as_each_alone() -> None:
    together = read([*RULES, "", "Thanks!"])

    assert together == [said for text in [*RULES, "", "Thanks!"] for said in read([text])]


def test_a_number_is_read_as_any_other() -> None:
    assert labels_of("Never spend more than 40 euros.") == labels_of(
        "Never spend more than 97 euros."
    )


def test_the_weights_of_a_sentence_have_at_most_length_1() -> None:
    sentences = placed(RULES)
    rarity = (packaged_weights().rarity / 255).astype(np.float32)

    features = features_of(sentences)
    scaled = features.scaled(rarity, packaged_weights().marks)

    lengths = np.bincount(features.owners, scaled * scaled)
    assert np.all(lengths > 0.1)
    assert np.all(lengths < 1 + 1e-5)


def test_of_unknown_words_nothing_is_said() -> None:
    [said] = read(["Xqzv wkjrt pfgh blzq mnvxc qwrtz."])

    assert said == ()


def test_probabilities_add_up_to_1() -> None:
    found = probabilities(placed(RULES), packaged_weights())

    assert found.shape == (len(RULES), len(LABELS))
    assert found.sum(axis=1) == pytest.approx(np.ones(len(RULES)), abs=1e-5)


def test_the_weights_are_small() -> None:
    weights = packaged_weights()

    assert weights.by_bucket.shape == (BUCKETS, len(LABELS))
    assert len(weights.to_bytes()) < 1_000_000


def test_weights_are_written_alike() -> None:
    stored = packaged_weights().to_bytes()

    assert Weights.of_bytes(stored).to_bytes() == stored


def test_what_was_read_can_be_stored() -> None:
    [said] = read([RULES[0]])

    assert [Said(Label(label), *rest) for label, *rest in map(list, said)] == list(said)


@pytest.mark.parametrize(
    ("rule", "lifting"),
    [
        ("Stay off the billing/ package.", "You can edit billing/ again, the freeze is over."),
        ("Kein Fleisch unter der Woche.", "Fleisch ist ab heute wieder erlaubt."),
    ],
)
def test_a_rule_is_like_what_lifts_it(rule: str, lifting: str) -> None:
    others = [likeness(other, lifting) for other in RULES]

    assert likeness(rule, lifting) > 3 * max(others)


def test_a_sentence_is_like_itself() -> None:
    assert likeness(RULES[0], RULES[0]) == pytest.approx(1.0)


def test_an_empty_text_is_like_nothing() -> None:
    assert likeness("", RULES[0]) == 0


def test_other_weights_have_another_version() -> None:
    weights = packaged_weights()

    assert weights._replace(step=2 * weights.step).version != weights.version
    assert Weights.of_bytes(weights.to_bytes()).version == weights.version
