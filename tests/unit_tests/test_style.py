"""Personality and response style: what may be said, and the instruction for it."""

import json

import pytest

from langchain_ctxbudget.core.style import Personality, ResponseStyle
from langchain_ctxbudget.errors import InvalidSettingsError

PERSONALITIES = [
    Personality(),
    Personality("expert", domain="tax law"),
    Personality("conversational"),
    Personality("custom", description="You are a pirate."),
]
CHOICES = {
    "style": ["formal", "professional", "casual", "friendly"],
    "verbosity": ["concise", "moderate", "detailed"],
    "technical_level": ["beginner", "intermediate", "expert"],
    "bullets": [True, False],
    "numbered_lists": [True, False],
    "code_blocks": [True, False],
    "links": [True, False],
}
SAID = [(name, value) for name, values in CHOICES.items() for value in values]


def test_every_personality_has_a_text_of_its_own():
    assert len({personality.text for personality in PERSONALITIES}) == 4


def test_an_expert_names_its_domain():
    assert "tax law" in Personality("expert", domain=" tax\nlaw ").text


def test_a_custom_personality_is_its_description():
    assert Personality("custom", description=" You are a pirate.\nSpeak so. ").text == "You are a pirate.\nSpeak so."


@pytest.mark.parametrize("personality", PERSONALITIES)
def test_a_personality_comes_back_from_its_saved_form(personality):
    assert Personality.of(json.loads(json.dumps(personality.to_dict()))) == personality


def test_a_personality_can_be_given_as_itself_or_as_a_kind():
    assert Personality.of("conversational") == Personality("conversational")
    assert Personality.of(PERSONALITIES[1]) is PERSONALITIES[1]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("rude", "'helpful', 'expert', 'conversational' or 'custom', not 'rude'"),
        ({"kind": ["expert"]}, "'helpful', 'expert', 'conversational' or 'custom', not"),
        ("expert", "personality.domain must be a non-empty string for 'expert', not ''"),
        ({"kind": "custom", "description": " "}, "personality.description must be a non-empty string for 'custom'"),
        ({"domain": 3}, "personality.domain must be a string, not 3"),
        ({"name": "Bob"}, "personality has no name; its fields are kind, domain, description"),
        (7, "personality must be a Personality or a mapping of its fields, not int"),
    ],
)
def test_a_wrong_personality_is_refused_with_the_choices(value, message):
    with pytest.raises(InvalidSettingsError, match=message):
        Personality.of(value)


@pytest.mark.parametrize(("name", "value"), SAID)
def test_everything_that_is_said_gives_one_line(name, value):
    assert len(ResponseStyle.of({name: value}).lines) == 1


def test_no_two_choices_have_the_same_line():
    assert len({ResponseStyle.of({name: value}).lines for name, value in SAID}) == len(SAID)


def test_what_is_not_said_gives_no_line():
    assert ResponseStyle().lines == ()


def test_lines_stand_in_the_order_of_the_fields():
    style = {name: values[-1] for name, values in CHOICES.items()}
    assert ResponseStyle.of(style).lines == tuple(
        line for name, value in style.items() for line in ResponseStyle.of({name: value}).lines
    )


@pytest.mark.parametrize(("name", "value"), SAID)
def test_a_style_comes_back_from_its_saved_form(name, value):
    style = ResponseStyle.of({name: value})
    assert style.to_dict() == {name: value}
    assert ResponseStyle.of(json.loads(json.dumps(style.to_dict()))) == style


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"style": "rude"}, "style must be 'formal', 'professional', 'casual', 'friendly' or None, not 'rude'"),
        ({"verbosity": 2}, "response_style.verbosity must be 'concise', 'moderate', 'detailed' or None, not 2"),
        ({"links": 1}, "response_style.links must be True, False or None, not 1"),
        ({"bullets": "yes"}, "response_style.bullets must be True, False or None, not 'yes'"),
        ({"tone": "formal"}, "response_style has no tone; its fields are style, verbosity"),
        ("formal", "response_style must be a ResponseStyle or a mapping of its fields, not str"),
    ],
)
def test_a_wrong_style_is_refused_with_the_choices(value, message):
    with pytest.raises(InvalidSettingsError, match=message):
        ResponseStyle.of(value)
