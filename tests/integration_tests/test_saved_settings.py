"""Settings that a user and their personas have saved.

They stand under what a call says, and over what the pipeline says.
"""

from itertools import count, product
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


Origin = tuple[int, tuple[str, ...]]
"""The budget of a prompt, and whose settings it follows."""


def budget_of(pipeline: ContextPipeline, **options: Any) -> Origin:
    report = pipeline.assemble("Hello", **{**SCOPE, **options}).report
    return report.budget_tokens, report.settings_from


# -- The order


@pytest.fixture
def pipeline(store: BaseStore) -> ContextPipeline:
    """A pipeline with a budget of its own."""
    return ContextPipeline({"max_context_tokens": 1_000}, store=store)


@pytest.fixture
def with_user(pipeline: ContextPipeline) -> ContextPipeline:
    """The pipeline, for which the user has saved a budget."""
    pipeline.save_settings({"max_context_tokens": 900}, user_id=USER)
    return pipeline


@pytest.fixture
def with_persona(with_user: ContextPipeline) -> ContextPipeline:
    """The same, where a persona of the user has a budget too."""
    settings = {"max_context_tokens": 800}
    with_user.save_settings(settings, user_id=USER, persona_id="coach")
    return with_user


def test_without_saved_settings_those_of_the_pipeline_count(pipeline: ContextPipeline) -> None:
    assert budget_of(pipeline) == (1_000, ("pipeline",))


def test_the_user_wins_over_the_pipeline(with_user: ContextPipeline) -> None:
    assert budget_of(with_user) == (900, ("pipeline", "user"))


def test_a_persona_without_settings_has_the_user_s(with_user: ContextPipeline) -> None:
    assert budget_of(with_user, persona_id="coach") == (900, ("pipeline", "user"))


def test_a_persona_wins_over_the_user(with_persona: ContextPipeline) -> None:
    origin = budget_of(with_persona, persona_id="coach")
    assert origin == (800, ("pipeline", "user", "persona"))


def test_a_persona_s_settings_are_for_it_alone(with_persona: ContextPipeline) -> None:
    assert budget_of(with_persona) == (900, ("pipeline", "user"))


def test_the_call_wins_over_the_persona(with_persona: ContextPipeline) -> None:
    settings = {"max_context_tokens": 700}
    origin = budget_of(with_persona, persona_id="coach", settings=settings)
    assert origin == (700, ("pipeline", "user", "persona", "call"))


def test_whole_settings_of_a_call_stand_alone(with_persona: ContextPipeline) -> None:
    settings = ContextSettings(max_context_tokens=600)
    assert budget_of(with_persona, settings=settings) == (600, ("call",))


# -- Isolation


STRANGE_NAMES = [
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
]
PERSONAS = [None, "a.b", "user", "田中"]


def test_every_user_and_persona_has_their_own(store: BaseStore) -> None:
    pipeline = ContextPipeline(store=store)
    budgets = dict(zip(product(STRANGE_NAMES, PERSONAS), count(1_000)))
    for (user, persona), budget in budgets.items():
        settings = {"max_context_tokens": budget}
        pipeline.save_settings(settings, user_id=user, persona_id=persona)

    saved: dict[Any, Any] = {}
    used: dict[Any, int] = {}
    for user, persona in budgets:
        settings = pipeline.get_settings(user_id=user, persona_id=persona)
        saved[user, persona] = settings["max_context_tokens"]
        used[user, persona], _ = budget_of(pipeline, user_id=user, persona_id=persona)

    assert saved == budgets
    assert used == budgets


# -- What cannot be saved, and what cannot be used


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


@pytest.mark.parametrize(("settings", "message"), UNSAVABLE)
def test_what_cannot_be_used_is_not_saved(settings: Any, message: str) -> None:
    pipeline = ContextPipeline(store=InMemoryStore())
    pipeline.save_settings({"depth": "deep"}, user_id=USER)

    with pytest.raises(InvalidSettingsError, match=message):
        pipeline.save_settings(settings, user_id=USER)

    assert pipeline.get_settings(user_id=USER) == {"depth": "deep"}


EVERY_SETTING = {
    **ContextSettings().model_dump(mode="json"),
    "personality": {"kind": "expert", "domain": "tax law"},
    "response_style": {"verbosity": "concise"},
    "topics": [{"label": "Billing", "aliases": ["invoice"], "context": "On the 1st."}],
    "layers": [{"name": "files", "items": ["main.py"], "ideal_tokens": 50}],
    "usage_limits": {"month_tokens": 1_000_000, "thresholds": [0.7, 0.5, 0.2]},
    "window_tokens": 8_000,
    "allocation": "ratio",
}


def test_everything_that_is_plain_data_can_be_saved(store: BaseStore) -> None:
    pipeline = ContextPipeline(store=store)
    pipeline.save_settings(EVERY_SETTING, user_id=USER)

    from_saved = pipeline.assemble("My invoice?", **SCOPE)

    from_own = ContextPipeline(EVERY_SETTING).assemble("My invoice?", **SCOPE)
    assert from_saved.messages == from_own.messages
    assert from_saved.report.layers == from_own.report.layers
    assert from_saved.report.failures == ()
    assert from_own.report.failures == ()


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


@pytest.mark.parametrize("garbage", GARBAGE)
@pytest.mark.parametrize(("persona", "source"), [(None, "user"), ("coach", "persona")])
def test_saved_settings_that_cannot_be_used_are_left_out(
    persona: str | None, source: str, garbage: dict[str, Any]
) -> None:
    store = InMemoryStore()
    pipeline = ContextPipeline({"max_context_tokens": 1_000}, store=store)
    place = settings_place(USER, persona)
    store.put(place.namespace, place.key, garbage)

    report = pipeline.assemble("Hello", persona_id=persona, **SCOPE).report

    assert report.budget_tokens == 1_000
    assert report.settings_from == ("pipeline",)
    assert f"saved settings of the {source} not used:" in "\n".join(report.failures)


# -- Stores that fail


def is_settings(op: Op) -> bool:
    return isinstance(op, GetOp | PutOp) and op.namespace[-1] == "settings"


def nothing(op: Op) -> bool:
    return False


@pytest.fixture
def failing_store() -> Failing:
    return Failing()


@pytest.fixture
def pipeline_without_settings(failing_store: Failing) -> ContextPipeline:
    """A pipeline with a conversation whose store does not give the saved settings any more."""
    pipeline = ContextPipeline({"max_context_tokens": 1_000}, store=failing_store)
    pipeline.save_settings({"max_context_tokens": 900}, user_id=USER)
    pipeline.add_messages(chat(100), **SCOPE)
    failing_store.fails = is_settings
    return pipeline


def test_the_turn_goes_on_without_settings_that_cannot_be_read(
    pipeline_without_settings: ContextPipeline,
) -> None:
    for _ in range(2):
        report = pipeline_without_settings.assemble("What about subject 7?", **SCOPE).report

        assert "OSError: the disk is gone" in "\n".join(report.failures)
        assert report.settings_from == ("pipeline",)
        assert report.budget_tokens == 1_000
        assert 200 < report.total_tokens <= 1_000


def test_settings_count_again_once_they_can_be_read(
    pipeline_without_settings: ContextPipeline, failing_store: Failing
) -> None:
    pipeline_without_settings.assemble("What about subject 7?", **SCOPE)

    failing_store.fails = nothing

    assert budget_of(pipeline_without_settings) == (900, ("pipeline", "user"))
