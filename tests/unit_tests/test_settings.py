"""Settings are checked when they are made, and errors say what is wrong with numbers."""

import copy
import inspect
import pickle
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.exceptions import LangChainException

from langchain_ctxbudget import errors
from langchain_ctxbudget.budget import TIERS, UsageLimits, tier_of, tightest_limit
from langchain_ctxbudget.budget.parameters import LIMITS
from langchain_ctxbudget.errors import BudgetTooSmallError, CtxBudgetError, InvalidSettingsError
from langchain_ctxbudget.settings import STYLES, ContextSettings, HistoryFormat, Personality

TOPIC = {"label": "Billing", "context": "Invoices go out on the 1st."}
FILES = {"name": "files", "items": ["a.py"], "ideal_tokens": 10}
REFUSED: dict[str, dict[str, Any]] = {
    "max_context_tokens must be greater than or equal to 1, not 0": {"max_context_tokens": 0},
    "max_context_tokens must be a whole number, not True": {"max_context_tokens": True},
    "max_context_tokens must be a whole number, such as 8_000, not '8k'": {
        "max_context_tokens": "8k"
    },
    r"keep_messages is no setting of the group 'budget', but of 'history': pass {'history'": {
        "budget": {"keep_messages": 3}
    },
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
    "max_tokens is no setting of ContextSettings .is 'max_context_tokens' meant..$": {
        "max_tokens": 5
    },
    "zzz is no setting of ContextSettings; known are .*window_tokens": {"zzz": 5},
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_is_no_setting_is_refused_with_field_limit_and_value(message: str) -> None:
    with pytest.raises(InvalidSettingsError, match=message):
        ContextSettings().override(REFUSED[message])


@pytest.mark.parametrize(
    ("setting", "value", "message"),
    [
        (
            "personality",
            "rude",
            "'helpful', 'expert', 'conversational' or 'custom', not 'rude'",
        ),
        (
            "personality",
            "expert",
            "personality.domain must be a non-empty string for 'expert'",
        ),
        (
            "response_style",
            {"style": "rude"},
            "'formal', 'professional', 'casual' or 'friendly', not 'rude'",
        ),
        ("response_style", {"links": 1}, "response_style.links must be a valid boolean, not 1"),
    ],
)
def test_a_wrong_value_is_refused_with_the_choices(setting: str, value: Any, message: str) -> None:
    with pytest.raises(InvalidSettingsError, match=message):
        ContextSettings(**{setting: value})


# Overriding


THREE_MESSAGES = ContextSettings(keep_messages=3)


def test_an_override_changes_what_it_names() -> None:
    deep = THREE_MESSAGES.override({"depth": "deep"})

    assert deep == ContextSettings(keep_messages=3, depth="deep")


def test_an_override_by_settings_takes_their_place() -> None:
    assert THREE_MESSAGES.override(ContextSettings()) == ContextSettings()


def test_an_override_by_nothing_changes_nothing() -> None:
    assert THREE_MESSAGES.override(None) is THREE_MESSAGES


# Limits of usage


@pytest.mark.parametrize(
    ("left", "tier"),
    [
        (1, "healthy"),
        (0.8, "healthy"),
        (0.79, "caution"),
        (0.6, "caution"),
        (0.59, "warning"),
        (0.4, "warning"),
        (0.39, "critical"),
        (0, "critical"),
    ],
)
def test_the_tier_is_that_of_what_is_left(left: float, tier: str) -> None:
    assert tier_of(left).name == tier


@pytest.mark.parametrize(
    ("left", "tier"), [(0.5, "healthy"), (0.4, "caution"), (0.2, "warning"), (0.05, "critical")]
)
def test_an_application_may_set_other_thresholds(left: float, tier: str) -> None:
    assert tier_of(left, (0.5, 0.3, 0.1)).name == tier


def test_there_are_four_tiers() -> None:
    assert [tier.name for tier in TIERS] == ["healthy", "caution", "warning", "critical"]


def test_a_worse_tier_has_fewer_items_of_knowledge() -> None:
    assert [tier.knowledge_items for tier in TIERS] == [None, None, 3, 1]


def test_a_worse_tier_has_less_of_documents() -> None:
    assert [tier.documents for tier in TIERS] == ["full", "full", "summary", "none"]


def test_a_worse_tier_has_fewer_messages_of_the_history() -> None:
    assert [tier.history_messages for tier in TIERS] == [None, 5, 2, 0]


def test_a_worse_tier_has_no_larger_budget() -> None:
    shares = [tier.budget_share for tier in TIERS]

    assert shares == sorted(shares, reverse=True)


@given(
    allowed=st.dictionaries(st.sampled_from(LIMITS), st.integers(1, 10**9), min_size=1),
    amounts=st.fixed_dictionaries(dict.fromkeys(LIMITS, st.integers(0, 2 * 10**9))),
)
def test_the_most_restrictive_limit_counts(
    allowed: dict[str, int], amounts: dict[str, int]
) -> None:
    shares_left = [max(0, most - amounts[name]) / most for name, most in allowed.items()]

    state = tightest_limit(UsageLimits(**allowed), amounts)

    assert state is not None
    assert state.left == pytest.approx(min(shares_left), abs=1e-12)


def test_without_limits_there_is_nothing_to_stand_at() -> None:
    amounts = dict.fromkeys(LIMITS, 2 * 10**9)

    assert tightest_limit(UsageLimits(), amounts) is None


# Style


EXPERT = {"kind": "expert", "domain": " tax\nlaw "}
PIRATE = {"kind": "custom", "description": " You are a pirate.\nSpeak so. "}


def first_choices() -> dict[str, Any]:
    """The first choice of every part of a style, the last part first."""
    style: dict[str, Any] = {}
    for name, texts in reversed(STYLES.items()):
        if name != "personality":
            style[name] = True if "true" in texts else next(iter(texts))
    return style


def test_instructions_stand_in_the_order_of_the_fields() -> None:
    settings = ContextSettings(personality=EXPERT, response_style=first_choices())

    personality, *manners = settings.manner

    assert personality == "You are an expert in tax law. Answer accurately and in depth."
    first_texts = {name: next(iter(texts.values())) for name, texts in STYLES.items()}
    first_texts.pop("personality")
    assert manners == list(first_texts.values())


def test_a_style_without_a_choice_has_no_instructions() -> None:
    assert ContextSettings(response_style={}).manner == ()


def test_a_personality_may_be_described_in_words_of_its_own() -> None:
    assert Personality.of(PIRATE).text == "You are a pirate.\nSpeak so."


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ({}, "Ada: Hi {speaker}."),
        ({"template": "{text} ({speaker})"}, "Hi {speaker}. (Ada)"),
        ({"template": "{text}!"}, "Hi {speaker}.!"),
        ({"speakers": False}, "Hi {speaker}."),
    ],
    ids=["default", "speaker behind", "no speaker in it", "no speakers"],
)
def test_a_line_of_a_summary_follows_its_template(fields: dict[str, Any], line: str) -> None:
    assert HistoryFormat(**fields).line("Ada", "Hi {speaker}.") == line


def test_a_line_without_a_speaker_is_its_text() -> None:
    assert HistoryFormat().line("", "Hi {speaker}.") == "Hi {speaker}."


@pytest.mark.parametrize("template", ["{speaker}", "{text}\n"], ids=["no text", "two lines"])
def test_a_template_is_one_line_with_the_text(template: str) -> None:
    with pytest.raises(InvalidSettingsError):
        HistoryFormat(template=template)


# Errors


FLOORS = {"system prompt": 900, "message": 1_200}
TOO_SMALL = BudgetTooSmallError(1_000, FLOORS, "Raise max_context_tokens.")
ERRORS_WITH_FLOORS: list[errors.BudgetError] = [
    errors.BudgetError("It does not fit into 1,000 tokens:", 1_000, FLOORS, "Shorten it."),
    TOO_SMALL,
    errors.SystemPromptTooLargeError(900, 250, "25% of the window", "share"),
    errors.InvalidAllocationError("mine", 1_000, FLOORS),
]


def all_errors() -> list[CtxBudgetError]:
    """An example of every error of the package."""
    examples: list[CtxBudgetError] = [*ERRORS_WITH_FLOORS]
    kinds_with_floors = list(map(type, ERRORS_WITH_FLOORS))
    for _, kind in inspect.getmembers(errors, inspect.isclass):
        if issubclass(kind, CtxBudgetError) and kind not in kinds_with_floors:
            examples.append(kind("what is wrong"))
    return examples


def name_of_kind(value: object) -> str:
    return type(value).__name__


EVERY_ERROR = pytest.mark.parametrize("error", all_errors(), ids=name_of_kind)
EVERY_ERROR_WITH_FLOORS = pytest.mark.parametrize("error", ERRORS_WITH_FLOORS, ids=name_of_kind)


def test_a_budget_error_lists_every_floor_and_the_sum() -> None:
    assert str(TOO_SMALL).splitlines() == [
        "The budget is 1,000 tokens, but what must be sent needs 2,100:",
        "  system prompt       900",
        "  message           1,200",
        "Raise max_context_tokens.",
    ]


@pytest.mark.parametrize(
    ("emphasis", "quotes_anew"), [("recall", True), ("balanced", False), ("cache", False)]
)
def test_only_for_recall_each_message_has_quotes_of_its_own(
    emphasis: Literal["recall", "balanced", "cache"], *, quotes_anew: bool
) -> None:
    assert ContextSettings(emphasis=emphasis).quotes_anew is quotes_anew


def test_no_setting_is_called_quotes_anew() -> None:
    assert "quotes_anew" not in ContextSettings(emphasis="recall").chosen


@EVERY_ERROR_WITH_FLOORS
def test_an_error_about_floors_names_them_and_the_budget(error: errors.BudgetError) -> None:
    assert error.floors
    for name, tokens in error.floors.items():
        assert name in str(error)
        assert f"{tokens:,}" in str(error)
    assert f"{error.budget_tokens:,}" in str(error)


@EVERY_ERROR
def test_every_error_is_one_of_the_package_and_of_langchain(error: CtxBudgetError) -> None:
    assert isinstance(error, CtxBudgetError)
    assert isinstance(error, LangChainException)


@EVERY_ERROR
def test_an_error_about_a_budget_or_an_input_is_a_value_error(error: CtxBudgetError) -> None:
    if isinstance(error, (errors.BudgetError, errors.InputError)):
        assert isinstance(error, ValueError)


def pickled_and_read(error: CtxBudgetError) -> CtxBudgetError:
    copied: CtxBudgetError = pickle.loads(pickle.dumps(error))
    return copied


@pytest.mark.parametrize("copy_of", [pickled_and_read, copy.deepcopy], ids=["pickled", "copied"])
@EVERY_ERROR
def test_an_error_survives_being_copied(error: CtxBudgetError, copy_of: Any) -> None:
    copied = copy_of(error)

    assert type(copied) is type(error)
    assert str(copied) == str(error)
    assert getattr(copied, "floors", None) == getattr(error, "floors", None)
