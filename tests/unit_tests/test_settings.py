"""Settings are checked when they are made, and laid over each other."""

import dataclasses
import json
import math

import pytest

from langchain_ctxbudget.errors import InvalidSettingsError
from langchain_ctxbudget.settings import ContextSettings, Entity, Topic


@pytest.mark.parametrize("setting", ["max_context_tokens", "output_reserve_tokens", "keep_messages"])
@pytest.mark.parametrize("value", [-1, 1.5, "12", True, math.nan, [1]])
def test_a_count_outside_its_range_is_refused_with_the_range(setting, value):
    with pytest.raises(InvalidSettingsError, match=rf"^{setting} must be a whole number of at least \d, not "):
        ContextSettings(**{setting: value})


@pytest.mark.parametrize("setting", ["max_context_tokens", "keep_messages"])
def test_a_count_that_is_missing_is_refused(setting):
    with pytest.raises(InvalidSettingsError, match=setting):
        ContextSettings(**{setting: None})


def test_a_budget_of_nothing_is_refused():
    with pytest.raises(InvalidSettingsError, match="max_context_tokens must be a whole number of at least 1, not 0"):
        ContextSettings(max_context_tokens=0)


@pytest.mark.parametrize("setting", ["output_reserve_tokens", "keep_messages"])
def test_a_count_may_be_zero(setting):
    assert getattr(ContextSettings(**{setting: 0}), setting) == 0


@pytest.mark.parametrize("setting", ["max_system_share", "compaction_trigger", "compaction_target"])
@pytest.mark.parametrize("value", [0, -0.1, 1.01, math.nan, math.inf, "0.5", True, None])
def test_a_share_outside_its_range_is_refused_with_the_range(setting, value):
    with pytest.raises(InvalidSettingsError, match=f"^{setting} must be a share above 0 and up to 1, not "):
        ContextSettings(**{setting: value})


@pytest.mark.parametrize("setting", ["max_system_share", "compaction_trigger"])
def test_a_share_may_be_one(setting):
    assert getattr(ContextSettings(**{setting: 1}), setting) == 1


@pytest.mark.parametrize("target", [0.8, 0.9])
def test_a_target_that_is_not_below_the_trigger_is_refused(target):
    with pytest.raises(InvalidSettingsError, match=r"compaction_target .* below compaction_trigger \(0.8\)"):
        ContextSettings(compaction_target=target)


@pytest.mark.parametrize("setting", ["prioritize_history", "include_entities"])
@pytest.mark.parametrize("value", ["no", 0, 1, None])
def test_a_switch_that_is_neither_true_nor_false_is_refused(setting, value):
    with pytest.raises(InvalidSettingsError, match=f"^{setting} must be True or False, not "):
        ContextSettings(**{setting: value})


@pytest.mark.parametrize("value", ["shallow", "", None, ["deep"]])
def test_a_depth_that_does_not_exist_is_refused_with_those_that_do(value):
    with pytest.raises(InvalidSettingsError, match="depth must be 'minimal', 'standard' or 'deep', not "):
        ContextSettings(depth=value)


@pytest.mark.parametrize("value", ["history", "", None, 1, ["cache"]])
def test_an_emphasis_that_does_not_exist_is_refused_with_those_that_do(value):
    with pytest.raises(InvalidSettingsError, match=r"^emphasis must be 'recall', 'balanced' or 'cache', not "):
        ContextSettings(emphasis=value)


@pytest.mark.parametrize("value", [["web"], ["memories", "Documents"], ["conversation"]])
def test_a_source_that_does_not_exist_is_refused_with_those_that_do(value):
    known = r"^sources must be 'conversations', 'memories' or 'documents', not "
    with pytest.raises(InvalidSettingsError, match=known):
        ContextSettings(sources=value)


@pytest.mark.parametrize("value", ["memories", b"memories", None, 5, {"memories": True}])
def test_sources_that_are_no_list_are_refused(value):
    with pytest.raises(InvalidSettingsError, match=r"^sources must be a list of strings, not "):
        ContextSettings(sources=value)


@pytest.mark.parametrize("value", ["", " ", 5, None])
def test_a_source_that_is_no_text_is_refused_with_its_place(value):
    with pytest.raises(InvalidSettingsError, match=r"^sources\[1\] must be a non-empty string, not "):
        ContextSettings(sources=["memories", value])


def test_there_may_be_no_sources():
    assert ContextSettings(sources=[]).sources == ()


@pytest.mark.parametrize("value", ["Answer briefly.", b"x", None, 5, {"a": "b"}])
def test_preferences_that_are_no_list_are_refused(value):
    with pytest.raises(InvalidSettingsError, match="preferences must be a list of strings, not "):
        ContextSettings(preferences=value)


@pytest.mark.parametrize("value", ["", " ", 5, None])
def test_a_preference_that_is_no_text_is_refused_with_its_place(value):
    with pytest.raises(InvalidSettingsError, match=r"preferences\[1\] must be a non-empty string, not "):
        ContextSettings(preferences=["Be brief.", value])


@pytest.mark.parametrize(("setting", "kind"), [("topics", "Topic"), ("entities", "Entity")])
@pytest.mark.parametrize("value", ["Billing", None, 5, {"label": "Billing", "context": "x"}])
def test_declarations_that_are_no_list_are_refused(setting, kind, value):
    with pytest.raises(InvalidSettingsError, match=f"{setting} must be a list of {kind}, not "):
        ContextSettings(**{setting: value})


@pytest.mark.parametrize(("setting", "kind"), [("topics", "Topic"), ("entities", "Entity")])
def test_a_declaration_of_another_kind_is_refused_with_its_place(setting, kind):
    with pytest.raises(InvalidSettingsError, match=rf"{setting}\[0\] must be a {kind} or a mapping .* not str"):
        ContextSettings(**{setting: ["Billing"]})


@pytest.mark.parametrize("value", [{"label": "Billing"}, {"label": "B", "context": "x", "colour": "red"}, {}])
def test_a_declaration_with_other_fields_is_refused_with_its_place(value):
    with pytest.raises(InvalidSettingsError, match=r"topics\[0\]: .*(missing|unexpected)"):
        ContextSettings(topics=[value])


@pytest.mark.parametrize("field", ["label", "context"])
@pytest.mark.parametrize("value", ["", " ", None, 5])
def test_a_topic_needs_its_texts(field, value):
    with pytest.raises(InvalidSettingsError, match=rf"Topic\.{field} must be a non-empty string, not "):
        Topic(**{"label": "Billing", "context": "x", field: value})


@pytest.mark.parametrize("field", ["name", "context", "type"])
@pytest.mark.parametrize("value", ["", " ", None, 5])
def test_an_entity_needs_its_texts(field, value):
    with pytest.raises(InvalidSettingsError, match=rf"Entity\.{field} must be a non-empty string, not "):
        Entity(**{"name": "Ada", "context": "x", field: value})


@pytest.mark.parametrize("aliases", ["invoice", None, 5])
def test_aliases_that_are_no_list_are_refused(aliases):
    with pytest.raises(InvalidSettingsError, match=r"Topic\.aliases must be a list of strings"):
        Topic(label="Billing", context="x", aliases=aliases)


def test_an_alias_that_is_blank_is_refused():
    with pytest.raises(InvalidSettingsError, match=r"Entity\.aliases\[0\] must be a non-empty string"):
        Entity(name="Ada", context="x", aliases=[" "])


def test_names_are_the_first_name_and_the_aliases():
    assert Entity(name="Ada", context="x", aliases=["Countess"]).names == ("Ada", "Countess")


def test_settings_can_come_from_json():
    data = {"topics": [{"label": "B", "context": "x", "aliases": ["i"]}], "entities": [{"name": "A", "context": "y"}]}
    assert ContextSettings(**json.loads(json.dumps(data))) == ContextSettings(
        topics=(Topic(label="B", context="x", aliases=("i",)),), entities=(Entity(name="A", context="y"),)
    )


def test_settings_are_hashable():
    assert len({ContextSettings(), ContextSettings(preferences=["x"]), ContextSettings()}) == 2


def test_settings_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        ContextSettings().depth = "deep"


def test_an_override_changes_what_it_names():
    assert ContextSettings(keep_messages=3).override({"depth": "deep"}) == ContextSettings(
        keep_messages=3, depth="deep"
    )


def test_whole_settings_override_all():
    assert ContextSettings(keep_messages=3).override(ContextSettings()) == ContextSettings()


def test_no_override_changes_nothing():
    settings = ContextSettings(keep_messages=3)
    assert settings.override(None) is settings


def test_an_override_is_checked():
    with pytest.raises(InvalidSettingsError, match="depth"):
        ContextSettings().override({"depth": "shallow"})


@pytest.mark.parametrize("changes", [{"max_tokens": 5}, {5: 5}])
def test_an_unknown_setting_is_refused_with_those_that_are_known(changes):
    with pytest.raises(InvalidSettingsError, match=r"Unknown settings (max_tokens|5); known are .*max_context_tokens"):
        ContextSettings().override(changes)


@pytest.mark.parametrize("changes", ["deep", 5, ["depth"]])
def test_an_override_that_is_no_mapping_is_refused(changes):
    with pytest.raises(InvalidSettingsError, match="must be a ContextSettings or a mapping"):
        ContextSettings().override(changes)
