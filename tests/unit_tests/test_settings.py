"""Settings, style and prices of limits are checked when they are made.

Errors say what is wrong with numbers.
"""

import copy
import inspect
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.exceptions import LangChainException

from langchain_ctxbudget import errors
from langchain_ctxbudget.budget import TIERS, UsageLimits, standing, tier_of
from langchain_ctxbudget.budget.parameters import LIMITS
from langchain_ctxbudget.errors import BudgetTooSmallError, CtxBudgetError, InvalidSettingsError
from langchain_ctxbudget.settings import (
    STYLES,
    ContextSettings,
    HistoryFormat,
    HistorySettings,
    Personality,
    inputs,
)
from langchain_ctxbudget.settings.groups import GROUPS

TOPIC = {"label": "Billing", "context": "Invoices go out on the 1st."}
FILES = {"name": "files", "items": ["a.py"], "ideal_tokens": 10}
REFUSED: dict[str, dict[str, Any]] = {
    "max_context_tokens must be greater than or equal to 1, not 0": {"max_context_tokens": 0},
    "max_context_tokens must be a valid integer, not True": {"max_context_tokens": True},
    "max_system_share must be greater than 0, not 0": {"max_system_share": 0},
    "compaction_target .0.9. must be below compaction_trigger .0.8.": {"compaction_target": 0.9},
    r"sources\[1\] must be 'conversations', 'memories' or 'documents', not 'web'": {
        "sources": ["memories", "web"]
    },
    r"topics\[0\]: colour is no setting of Topic; known are aliases, context": {
        "topics": [{**TOPIC, "colour": "red"}]
    },
    r"layers\[0\]: items must be a list of non-empty strings, or a function": {
        "layers": [{**FILES, "items": [""]}]
    },
    r"layers\[0\]: name 'L3' is a layer of the package": {"layers": [{**FILES, "name": "L3"}]},
    r"layers\[0\]: layer 'files' needs min_tokens <= .* not 20 and 10": {
        "layers": [{**FILES, "min_tokens": 20}]
    },
    "layers must have different names, not files, files": {"layers": [FILES, FILES]},
    "allocation must name one of elastic, ratio, .* not 'greedy'": {"allocation": "greedy"},
    "allocation: profile must be 'adaptive' or 'seed', not 'generous'": {
        "allocation": {"strategy": "elastic", "profile": "generous"}
    },
    "allocation: retrieval is no setting of RatioAllocation; known are .*memory": {
        "allocation": {"strategy": "ratio", "retrieval": 0.3}
    },
    "usage_limits: month_tokens must be greater than 0, not 0": {
        "usage_limits": {"month_tokens": 0}
    },
    "usage_limits: thresholds must be three falling": {
        "usage_limits": {"thresholds": (0.4, 0.6, 0.8)}
    },
    r"force_include\[0\] must be 'knowledge', .* not 'everything'": {
        "force_include": ["everything"]
    },
    "max_tokens is no setting of ContextSettings .is 'max_context_tokens' meant..; known are .*window_tokens": {
        "max_tokens": 5
    },
}


def test_what_is_no_setting_is_refused_with_field_limit_and_value() -> None:
    for message, changes in REFUSED.items():
        with pytest.raises(InvalidSettingsError, match=message):
            ContextSettings().override(changes)


def test_an_override_changes_what_it_names() -> None:
    settings = ContextSettings(keep_messages=3)
    assert settings.override({"depth": "deep"}) == ContextSettings(keep_messages=3, depth="deep")
    assert settings.override(ContextSettings()) == ContextSettings()
    assert settings.override(None) is settings


def test_the_tier_is_that_of_what_is_left_and_not_of_what_is_used() -> None:
    for name, *shares in (
        ("healthy", 1, 0.8),
        ("caution", 0.79, 0.6),
        ("warning", 0.59, 0.4),
        ("critical", 0.39, 0),
    ):
        assert {tier_of(left).name for left in shares} == {name}
    assert [tier_of(left, (0.5, 0.3, 0.1)).name for left in (0.5, 0.4, 0.2, 0.05)] == [
        tier.name for tier in TIERS
    ]


def test_the_tiers_are_those_of_the_seed() -> None:
    shown = [
        (tier.name, tier.knowledge_items, tier.documents, tier.history_messages) for tier in TIERS
    ]
    assert shown == [
        ("healthy", None, "full", None),
        ("caution", None, "full", 5),
        ("warning", 3, "summary", 2),
        ("critical", 1, "none", 0),
    ]
    assert [tier.budget_share for tier in TIERS] == sorted(
        (tier.budget_share for tier in TIERS), reverse=True
    )


@given(
    limits=st.dictionaries(st.sampled_from(LIMITS), st.integers(1, 10**9), min_size=1),
    used=st.data(),
)
def test_the_most_restrictive_limit_counts(limits: dict[str, int], used: Any) -> None:
    amounts = {name: used.draw(st.integers(0, 2 * 10**9)) for name in LIMITS}
    found = standing(UsageLimits(**limits), amounts)
    assert found is not None
    least = min(max(0, allowed - amounts[name]) / allowed for name, allowed in limits.items())
    assert found.left == pytest.approx(least, abs=1e-12)
    assert standing(UsageLimits(), amounts) is None


MANNERS = [(name, texts) for name, texts in STYLES.items() if name != "personality"]
PERSONALITIES = (
    "helpful",
    "conversational",
    {"kind": "expert", "domain": " tax\nlaw "},
    {"kind": "custom", "description": " You are a pirate.\nSpeak so. "},
)


def test_instructions_stand_in_the_order_of_the_fields_the_personality_first():
    style = {
        name: True if "true" in texts else next(iter(texts)) for name, texts in reversed(MANNERS)
    }
    settings = ContextSettings(personality=PERSONALITIES[2], response_style=style)
    expert = "You are an expert in tax law. Answer accurately and in depth."
    assert settings.manner == (expert, *(next(iter(texts.values())) for _, texts in MANNERS))
    assert ContextSettings(response_style={}).manner == ()
    assert Personality.of(PERSONALITIES[3]).text == "You are a pirate.\nSpeak so."


def test_a_line_of_a_summary_follows_its_template_where_its_speaker_is_named():
    for form, speaker, line in (
        ({}, "Ada", "Ada: Hi {speaker}."),
        ({"template": "{text} ({speaker})"}, "Ada", "Hi {speaker}. (Ada)"),
        ({"template": "{text}!"}, "Ada", "Hi {speaker}.!"),
        ({"speakers": False}, "Ada", "Hi {speaker}."),
        ({}, "", "Hi {speaker}."),
    ):
        assert HistoryFormat(**form).line(speaker, "Hi {speaker}.") == line
    for wrong in ("{speaker}", "{text}\n"):
        with pytest.raises(InvalidSettingsError):
            HistoryFormat(template=wrong)


def test_a_wrong_value_is_refused_with_the_choices():
    for setting, value, message in (
        ("personality", "rude", "'helpful', 'expert', 'conversational' or 'custom', not 'rude'"),
        ("personality", "expert", "personality.domain must be a non-empty string for 'expert'"),
        (
            "response_style",
            {"style": "rude"},
            "'formal', 'professional', 'casual' or 'friendly', not 'rude'",
        ),
        ("response_style", {"links": 1}, "response_style.links must be a valid boolean, not 1"),
    ):
        with pytest.raises(InvalidSettingsError, match=message):
            ContextSettings(**{setting: value})


ALL = [
    kind
    for _, kind in inspect.getmembers(errors, inspect.isclass)
    if issubclass(kind, CtxBudgetError)
]
FLOORS = {"L0 system prompt": 900, "L7 message": 1_200}
TOO_SMALL = BudgetTooSmallError(1_000, FLOORS, "Raise max_context_tokens.")

WITH_FLOORS = {
    errors.BudgetError: errors.BudgetError(
        "It does not fit into 1,000 tokens:", 1_000, FLOORS, "Shorten it."
    ),
    BudgetTooSmallError: TOO_SMALL,
    errors.SystemPromptTooLargeError: errors.SystemPromptTooLargeError(
        900, 250, "25% of the window", "share"
    ),
    errors.InvalidAllocationError: errors.InvalidAllocationError("mine", 1_000, FLOORS),
}


def example(kind):
    return WITH_FLOORS.get(kind) or kind("what is wrong")


def test_a_budget_error_lists_every_floor_and_the_sum():
    lines = str(TOO_SMALL).splitlines()
    assert lines == [
        "The budget is 1,000 tokens, but what must be sent needs 2,100:",
        "  L0 system prompt       900",
        "  L7 message           1,200",
        "Raise max_context_tokens.",
    ]


def test_every_error_is_one_of_the_package_and_of_langchain_and_survives_pickling():
    for kind in ALL:
        assert issubclass(kind, CtxBudgetError)
        assert issubclass(kind, LangChainException)
        assert issubclass(kind, ValueError) or not issubclass(
            kind, (errors.BudgetError, errors.InputError)
        )
        for error in (pickle.loads(pickle.dumps(example(kind))), copy.deepcopy(example(kind))):
            assert (type(error), str(error)) == (kind, str(example(kind)))
            if kind in WITH_FLOORS:
                assert error.floors
                assert all(
                    name in str(error) and f"{tokens:,}" in str(error)
                    for name, tokens in error.floors.items()
                )
                assert f"{error.budget_tokens:,}" in str(error)


# -- Groups


def test_a_setting_is_given_alone_or_in_its_group_and_read_both_ways() -> None:
    alone = ContextSettings(keep_messages=3, personality="helpful")
    grouped = ContextSettings(
        history=HistorySettings(keep_messages=3), style={"personality": "helpful"}
    )
    assert grouped == alone
    assert grouped.history.keep_messages == grouped.keep_messages == 3
    assert grouped.chosen == {"keep_messages": 3, "personality": Personality()}


def test_every_setting_stands_in_one_group() -> None:
    grouped = [name for group in GROUPS.values() for name in group.model_fields]
    assert sorted(grouped) == sorted(ContextSettings.model_fields)


@pytest.mark.parametrize("name", GROUPS)
def test_type_checkers_know_every_setting_of_a_group(name: str) -> None:
    known = getattr(inputs, GROUPS[name].__name__.replace("Settings", "Inputs")).__annotations__
    assert set(known) == set(GROUPS[name].model_fields)


def test_an_override_changes_one_setting_of_a_group() -> None:
    settings = ContextSettings(keep_messages=3, segment_messages=30)
    changed = settings.override({"history": {"span_messages": 10}})
    assert changed == ContextSettings(keep_messages=3, span_messages=10)
    assert settings.override({"segment_messages": 40}).span_messages == 40


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"keep_messages": 3, "history": {"keep_messages": 4}}, "keep_messages is given twice"),
        ({"history": {"keep_mesages": 3}}, "is 'keep_messages' meant"),
        ({"history": {"keep_messages": -1}}, "history.keep_messages must be"),
        ({"history": 5}, "HistorySettings is made from a mapping of fields, not int"),
    ],
)
def test_what_is_wrong_in_a_group_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidSettingsError, match=message):
        ContextSettings().override(given)


def test_the_signature_shows_groups_and_settings_with_their_defaults() -> None:
    parameters = inspect.signature(ContextSettings).parameters
    assert list(parameters) == [*GROUPS, *ContextSettings.model_fields]
    assert parameters["max_context_tokens"].default == 12_000


def test_a_repr_shows_what_differs_from_the_defaults() -> None:
    assert repr(ContextSettings(max_context_tokens=12_000)) == "ContextSettings()"
    settings = ContextSettings(max_context_tokens=8_000, keep_messages=4)
    assert repr(settings) == (
        "ContextSettings(budget=BudgetSettings(max_context_tokens=8000), "
        "history=HistorySettings(keep_messages=4))"
    )
