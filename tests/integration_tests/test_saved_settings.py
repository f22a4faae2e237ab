"""Settings that a user and their personas have saved, under what a call says and over what the pipeline says."""

from typing import Any

import pytest
from langgraph.store.base import BaseStore, GetOp, Op, PutOp
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import ContextPipeline, ContextSettings
from langchain_ctxbudget.budget import ElasticAllocation
from langchain_ctxbudget.errors import InvalidSettingsError
from langchain_ctxbudget.settings import Topic
from langchain_ctxbudget.stores import settings_place
from tests.integration_tests.test_pipeline import chat
from tests.stores import Failing

USER = "ada@example.org"
SCOPE = {"user_id": USER, "conversation_id": "c1"}


def budget_of(pipeline: ContextPipeline, **rest: Any) -> tuple[int, tuple[str, ...]]:
    report = pipeline.assemble("Hello", **{**SCOPE, **rest}).report
    return report.budget_tokens, report.settings_from


# The order


def test_the_call_wins_over_the_persona_the_user_and_the_pipeline(store: BaseStore) -> None:
    pipeline = ContextPipeline({"max_context_tokens": 1_000}, store=store)
    assert budget_of(pipeline) == (1_000, ("pipeline",))
    pipeline.save_settings({"max_context_tokens": 900}, user_id=USER)
    assert budget_of(pipeline) == (900, ("pipeline", "user"))
    assert budget_of(pipeline, persona_id="coach") == (900, ("pipeline", "user"))
    pipeline.save_settings({"max_context_tokens": 800}, user_id=USER, persona_id="coach")
    assert budget_of(pipeline) == (900, ("pipeline", "user"))
    assert budget_of(pipeline, persona_id="coach") == (800, ("pipeline", "user", "persona"))
    own = {"max_context_tokens": 700}
    sources = ("pipeline", "user", "persona", "call")
    assert budget_of(pipeline, persona_id="coach", settings=own) == (700, sources)
    assert budget_of(pipeline, settings=ContextSettings(max_context_tokens=600)) == (600, ("call",))


# Isolation


STRANGE = [
    *(
        "a.b",
        "a/b",
        "a%2Eb",
        "a b",
        "Zoë",
        "田中",
        "🙂",
        "user",
        "persona x",
        "settings",
        "x" * 300,
        "a\nb",
        "\ud800",
    )
]


def test_every_user_and_persona_has_their_own(store: BaseStore) -> None:
    pipeline = ContextPipeline(store=store)
    people = [(user, persona) for user in STRANGE for persona in (None, "a.b", "user", "田中")]
    for number, (user, persona) in enumerate(people):
        pipeline.save_settings(
            {"max_context_tokens": 1_000 + number}, user_id=user, persona_id=persona
        )
    for number, (user, persona) in enumerate(people):
        saved = pipeline.get_settings(user_id=user, persona_id=persona)
        assert saved == {"max_context_tokens": 1_000 + number}
        assert budget_of(pipeline, user_id=user, persona_id=persona)[0] == 1_000 + number


# What cannot be saved, and what cannot be used


UNSAVABLE: list[tuple[Any, str]] = [
    ({"unknown": 1}, "unknown is no setting"),
    ({"allocation": {"strategy": "ratio", "memory": 0.9}}, "must add up to 1"),
    ({"allocation": ElasticAllocation()}, "plain data"),
    ({"topics": [Topic(label="Billing", context="On the 1st.")]}, "plain data"),
    ({"layers": [{"name": "files", "items": lambda _: [], "ideal_tokens": 50}]}, "plain data"),
    ({"preferences": {"Answer briefly."}}, "preferences"),
    (ContextSettings(), "mapping"),
    (None, "mapping"),
]


def test_what_cannot_be_used_is_not_saved() -> None:
    pipeline = ContextPipeline(store=InMemoryStore())
    pipeline.save_settings({"depth": "deep"}, user_id=USER)
    for settings, message in UNSAVABLE:
        with pytest.raises(InvalidSettingsError, match=message):
            pipeline.save_settings(settings, user_id=USER)
    assert pipeline.get_settings(user_id=USER) == {"depth": "deep"}


def test_everything_that_is_plain_data_can_be_saved(store: BaseStore) -> None:
    topic = {"label": "Billing", "aliases": ["invoice"], "context": "On the 1st."}
    files = {"name": "files", "items": ["main.py"], "ideal_tokens": 50}
    style = {
        "personality": {"kind": "expert", "domain": "tax law"},
        "response_style": {"verbosity": "concise"},
    }
    limits = {"month_tokens": 1_000_000, "thresholds": [0.7, 0.5, 0.2]}
    chosen = {
        "topics": [topic],
        "layers": [files],
        "usage_limits": limits,
        "window_tokens": 8_000,
        "allocation": "ratio",
    }
    everything = {**ContextSettings().model_dump(mode="json"), **style, **chosen}
    pipeline = ContextPipeline(store=store)
    pipeline.save_settings(everything, user_id=USER)
    saved = pipeline.assemble("My invoice?", **SCOPE)
    given = ContextPipeline(everything).assemble("My invoice?", **SCOPE)
    assert saved.messages == given.messages
    assert saved.report.layers == given.report.layers
    assert saved.report.failures == given.report.failures == ()


GARBAGE: list[dict[str, Any]] = [
    {"setting_of_an_older_version": 1},
    {"max_context_tokens": "12000"},
    {"allocation": "an older strategy"},
    {"allocation": {"strategy": "fixed", "unknown": 0.1}},
    {"depth": ["deep"]},
    {"topics": [{"label": "x", "context": "y", "aliases": 5}]},
    {"layers": [{"name": "L6", "items": ["x"], "ideal_tokens": 5}]},
    {"compaction_target": 0.9},
    {"usage_limits": 5},
    {"settings": {"max_context_tokens": 900}},
]


@pytest.mark.parametrize("persona", [None, "coach"])
def test_saved_settings_that_cannot_be_used_are_reported_and_left_out(persona: str | None) -> None:
    store = InMemoryStore()
    pipeline = ContextPipeline({"max_context_tokens": 1_000}, store=store)
    at = settings_place(USER, persona)
    for garbage in GARBAGE:
        store.put(at.namespace, at.key, garbage)
        report = pipeline.assemble("Hello", persona_id=persona, **SCOPE).report
        source = "persona" if persona else "user"
        assert (report.budget_tokens, report.settings_from) == (1_000, ("pipeline",)), garbage
        assert any(
            failure.startswith(f"saved settings of the {source} not used:")
            for failure in report.failures
        )


# Stores that fail


def is_settings(op: Op) -> bool:
    return isinstance(op, GetOp | PutOp) and op.namespace[-1] == "settings"


def test_settings_that_cannot_be_read_are_reported_and_the_turn_goes_on() -> None:
    store = Failing()
    pipeline = ContextPipeline({"max_context_tokens": 1_000}, store=store)
    pipeline.save_settings({"max_context_tokens": 900}, user_id=USER)
    pipeline.add_messages(chat(100), **SCOPE)
    store.fails = is_settings
    for _ in range(2):
        report = pipeline.assemble("What about subject 7?", **SCOPE).report
        assert any("OSError: the disk is gone" in failure for failure in report.failures)
        assert report.settings_from == ("pipeline",)
        assert 200 < report.total_tokens <= report.budget_tokens == 1_000
    store.fails = lambda _: False
    assert budget_of(pipeline) == (900, ("pipeline", "user"))
