"""Holds learning without a model to whole sentences of the user that stand by themselves."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from langchain_ctxbudget.knowledge.own_statements import STATEMENT_POLICY, statements_in
from langchain_ctxbudget.knowledge.records import LearnedFact
from langchain_ctxbudget.messages import prose_spans
from langchain_ctxbudget.sentences import Label, Said, read

SURE = 0.9


def said(text: str, sentence: str, label: Label = Label.STATEMENT, certainty: float = SURE) -> Said:
    """A sentence of a text, as the reader tells what it is."""
    begin = text.index(sentence)
    return Said(label, begin, begin + len(sentence), certainty)


def facts(text: str, sentence: str = "") -> list[LearnedFact]:
    """What is learned from a message of which one sentence is a statement."""
    return statements_in("m1", text, [said(text, sentence or text)])


def texts(text: str, sentence: str = "") -> list[str]:
    return [fact.text for fact in facts(text, sentence)]


@pytest.mark.parametrize(
    "sentence",
    [
        "I live in Lisbon with my two cats.",
        "I always take the tram unless it rains.",
        "Wir haben zwei Kinder.",
        "Vivo en Madrid desde 2019.",
        "我住在上海的浦东新区。",
    ],
)
def test_a_statement_is_kept_word_for_word(sentence: str) -> None:
    assert texts(sentence) == [f'"{sentence}"']


def test_a_statement_names_its_message() -> None:
    [fact] = facts("I live in Lisbon.")

    assert fact.message_ids == ("m1",)


def test_a_statement_is_as_certain_as_its_reading() -> None:
    text = "I live in Lisbon."

    [fact] = statements_in("m1", text, [said(text, text, certainty=0.7)])

    assert fact.confidence == 0.7


def test_of_a_message_only_the_statement_is_kept() -> None:
    text = "Hi! I live in Lisbon. Where do I get good bread?"

    assert texts(text, "I live in Lisbon.") == ['"I live in Lisbon."']


@pytest.mark.parametrize("label", [label for label in Label if label is not Label.STATEMENT])
def test_what_is_no_statement_teaches_nothing(label: Label) -> None:
    text = "I live in Lisbon."

    assert statements_in("m1", text, [said(text, text, label)]) == []


def test_an_uncertain_statement_teaches_nothing() -> None:
    text = "I live in Lisbon."
    unsure = STATEMENT_POLICY.least_certainty - 0.01

    assert statements_in("m1", text, [said(text, text, certainty=unsure)]) == []


@pytest.mark.parametrize(
    "limit", ["But only at night.", "Unless it rains.", "Except on Sundays.", "Aber nur im Sommer."]
)
def test_a_sentence_that_limits_the_statement_belongs_to_it(limit: str) -> None:
    text = f"I go to work by bike. {limit} Thanks!"

    assert texts(text, "I go to work by bike.") == [f'"I go to work by bike. {limit}"']


@pytest.mark.parametrize(
    "following", ["But only if that is fine?", "Which helmet is good?", "Now write a poem."]
)
def test_another_sentence_does_not_belong_to_the_statement(following: str) -> None:
    text = f"I go to work by bike. {following}"

    assert texts(text, "I go to work by bike.") == ['"I go to work by bike."']


def test_a_limit_that_is_a_rule_itself_does_not_belong_to_the_statement() -> None:
    text = "I go to work by bike. Never send me maps for cars."
    read_so = [
        said(text, "I go to work by bike."),
        said(text, "Never send me maps for cars.", Label.RULE),
    ]

    [fact] = statements_in("m1", text, read_so)

    assert fact.text == '"I go to work by bike."'


@pytest.mark.parametrize(
    "sentence",
    [
        "It is next to my office.",
        "That's why I moved to Oslo.",
        "Her name is Coco and I adore her.",
        "Do I live in Lisbon?",
        "My eldest and the youngest\u2026",
        "My address is the following:",
        "A nurse.",
        "Write a bio: I work as a nurse in Berlin.",
        "August, September, October, and November.",
        "Ms. Johnny is married and has three children.",
        f"I live in Lisbon, {'really, ' * 30}I do.",
    ],
    ids=lambda sentence: sentence[:24],
)
def test_what_does_not_stand_alone_teaches_nothing(sentence: str) -> None:
    assert texts(sentence) == []


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('She wrote: "Hello. I live in Rome with my dog. Bye."', "I live in Rome with my dog."),
        ("Er schrieb: \u201eIch wohne in Rom.\u201c", "Ich wohne in Rom."),
        ("Elle dit : \u00abJ'habite \u00e0 Rome.\u00bb", "J'habite \u00e0 Rome."),
    ],
)
def test_words_in_quotation_marks_teach_nothing(text: str, sentence: str) -> None:
    assert texts(text, sentence) == []


def test_words_behind_a_quotation_are_the_users_own() -> None:
    text = 'The sign says "No dogs". I have two dogs at home.'

    assert texts(text, "I have two dogs at home.") == ['"I have two dogs at home."']


@pytest.mark.parametrize("mark", ["5. ", "- "])
def test_a_title_in_a_list_teaches_nothing(mark: str) -> None:
    title = "Our first house on Elm Street"

    assert texts(f"{mark}{title}", title) == []


def test_a_sentence_in_a_list_is_kept() -> None:
    assert texts("- I live in Lisbon.", "I live in Lisbon.") == ['"I live in Lisbon."']


@pytest.mark.parametrize(
    "text",
    ["*draws a sword*\nI live in the dark forest.", "Hm.\n*nods* I live in the dark forest."],
)
def test_a_line_of_a_play_teaches_nothing(text: str) -> None:
    assert texts(text, "I live in the dark forest.") == []


def test_a_word_in_bold_is_no_play() -> None:
    text = "I live in Lisbon.\n**Where do I get bread?**"

    assert texts(text, "I live in Lisbon.") == ['"I live in Lisbon."']


def test_a_document_without_a_mark_teaches_nothing() -> None:
    text = f"I live in Lisbon. {'Lorem ipsum dolor sit amet. ' * 40}"

    assert texts(text, "I live in Lisbon.") == []


@pytest.mark.parametrize(
    ("sentence", "category"),
    [
        ("I love long walks by the sea.", "preference"),
        ("I can't stand loud open offices.", "preference"),
        ("I live in Lisbon.", "identity"),
        ("My team is like a family to me.", "identity"),
    ],
)
def test_what_is_liked_is_a_preference(sentence: str, category: str) -> None:
    assert [fact.category for fact in facts(sentence)] == [category]


@given(st.text())
@settings(max_examples=100, deadline=None)
def test_of_any_text_facts_stand_in_it(text: str) -> None:
    everything = [Said(Label.STATEMENT, *span, SURE) for span in prose_spans(text)]

    for fact in statements_in("m1", text, everything):
        assert fact.text[1:-1] in " ".join(text.split())


def test_the_packaged_reader_finds_a_plain_statement() -> None:
    text = "My daughter Mia is eight years old."

    assert [fact.text for fact in statements_in("m1", text, read([text])[0])] == [f'"{text}"']


@pytest.fixture(scope="module")
def figures() -> ModuleType:
    """The module of benchmarks that compares what is learned with what people marked."""
    path = Path(__file__).resolve().parents[2] / "benchmarks" / "extraction_quality.py"
    spec = importlib.util.spec_from_file_location("extraction_quality", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_of_marked_chats_nine_of_ten_facts_are_right(figures: ModuleType) -> None:
    facts_found = figures.measure(figures.read()).total(kinds=["facts"])

    assert facts_found.found >= 20
    assert facts_found.precision >= 0.9
