"""Nobody and nothing is taken for its owner: "my mother's cat Max" is a cat."""

import pytest

from langchain_ctxbudget.knowledge.kinship import with_stated_relationships
from langchain_ctxbudget.knowledge.records import Learned, LearnedEntity, ReadMessage


def stated(relationship: str, text: str, name: str = "Max") -> LearnedEntity:
    """What is learned of a person by a model that has read a text."""
    person = LearnedEntity(name=name, type="person", relationship=relationship, message_ids=("m1",))
    message = ReadMessage(id="m1", digest="d1", text=text)
    [entity] = with_stated_relationships(Learned(entities=(person,)), [message]).entities
    return entity


@pytest.mark.parametrize("relationship", ["mother", "my mother", "the user's mother"])
@pytest.mark.parametrize(
    "text",
    [
        "My mother's cat Max is deaf.",
        "My mother's cat, Max, is deaf.",
        "My mother's cat is called Max.",
    ],
)
def test_a_cat_is_not_the_mother(relationship: str, text: str) -> None:
    cat = stated(relationship, text)

    assert (cat.relationship, cat.type) == ("mother's cat", "concept")


def test_a_relationship_is_written_as_it_stands_in_the_text() -> None:
    assert stated("mother", "My Mother\u2019s cat Max is deaf.").relationship == "Mother\u2019s cat"


def test_a_dog_is_not_the_parents() -> None:
    assert stated("parents", "Our parents' old dog Rex barks.", "Rex").relationship == (
        "parents' old dog"
    )


@pytest.mark.parametrize(
    ("relationship", "text"),
    [
        ("mother", "My mother Max is deaf."),
        ("brother", "My mother's cat likes my brother Max."),
        ("mother's friend", "My mother's friend Max is deaf."),
        ("", "My mother's cat Max is deaf."),
    ],
)
def test_what_a_text_states_stays(relationship: str, text: str) -> None:
    person = stated(relationship, text)

    assert (person.relationship, person.type) == (relationship, "person")
