"""Personality and response style: the choices, and the instruction for each."""

import pytest

from langchain_ctxbudget.errors import InvalidSettingsError
from langchain_ctxbudget.settings import STYLE_LINES, ContextSettings, Personality, ResponseStyle

PERSONALITIES = (
    "helpful",
    "conversational",
    {"kind": "expert", "domain": " tax\nlaw "},
    {"kind": "custom", "description": " You are a pirate.\nSpeak so. "},
)


def test_every_choice_has_an_instruction_of_its_own():
    said = [ResponseStyle.of({name: value}).lines for name, texts in STYLE_LINES.items() for value in texts]
    assert {len(lines) for lines in said} == {1}
    assert len(set(said)) == len(said) == 18
    assert len({Personality.of(one).text for one in PERSONALITIES}) == 4


def test_instructions_stand_in_the_order_of_the_fields_the_personality_first():
    style = {name: next(iter(texts)) for name, texts in reversed(STYLE_LINES.items())}
    settings = ContextSettings(personality=PERSONALITIES[2], response_style=style)
    expert = "You are an expert in tax law. Answer accurately and in depth."
    assert settings.manner == (expert, *(next(iter(texts.values())) for texts in STYLE_LINES.values()))
    assert ContextSettings(response_style={}).manner == ()
    assert Personality.of(PERSONALITIES[3]).text == "You are a pirate.\nSpeak so."


@pytest.mark.parametrize(
    ("setting", "value", "message"),
    [
        ("personality", "rude", "'helpful', 'expert', 'conversational' or 'custom', not 'rude'"),
        ("personality", "expert", "personality.domain must be a non-empty string for 'expert'"),
        ("response_style", {"style": "rude"}, "'formal', 'professional', 'casual' or 'friendly', not 'rude'"),
        ("response_style", {"links": 1}, "response_style.links must be a valid boolean, not 1"),
    ],
)
def test_a_wrong_value_is_refused_with_the_choices(setting, value, message):
    with pytest.raises(InvalidSettingsError, match=message):
        ContextSettings(**{setting: value})
