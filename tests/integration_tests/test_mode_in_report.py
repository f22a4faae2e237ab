"""A report says whether its prompt extends the last one or was rebuilt, and why."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import ContextPipeline
from langchain_ctxbudget.flow import drive
from langchain_ctxbudget.pipeline import Prompter
from langchain_ctxbudget.prompt import CHANNELS
from langchain_ctxbudget.report import Cause, ContextReport, Mode, Stability
from langchain_ctxbudget.stores import Scope

ADA = {"user_id": "ada", "conversation_id": "c1"}


@tool
def look_up(topic: str) -> str:
    """Looks something up."""
    return topic


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = datetime(2026, 5, 1, 9, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now


def talk(pipeline: ContextPipeline, words: str, **options: Any) -> ContextReport:
    """Makes a prompt for some words, and adds them with an answer."""
    context = pipeline.assemble(words, **ADA, **options)
    pipeline.add_messages([*context.turn, AIMessage("I see.")], **ADA)
    return context.report


def mode_of(report: ContextReport) -> tuple[str, str]:
    return report.stability.mode, report.stability.cause


def test_the_first_prompt_is_rebuilt_as_there_is_none_before() -> None:
    report = talk(ContextPipeline(), "My bike is blue.")

    assert mode_of(report) == ("rebuilt", "first")


def test_the_next_prompt_extends_it() -> None:
    pipeline = ContextPipeline()
    talk(pipeline, "My bike is blue.")

    assert mode_of(talk(pipeline, "My car is red.")) == ("extended", "has_room")


def test_with_other_tools_it_is_rebuilt() -> None:
    pipeline = ContextPipeline()
    talk(pipeline, "My bike is blue.")

    report = talk(pipeline, "My car is red.", tools=[look_up])

    assert mode_of(report) == ("rebuilt", "other_tools")


def test_for_another_model_it_is_rebuilt() -> None:
    pipeline = ContextPipeline(model="gpt-4o")
    talk(pipeline, "My bike is blue.")

    other_model = ChatOpenAI(model="gpt-4o-mini", api_key="not-used")
    prompter = Prompter(pipeline.engine.for_model(other_model), Scope("ada", "c1"))
    report = drive(prompter.assemble("My car is red.")).report

    assert mode_of(report) == ("rebuilt", "other_model")


def test_after_a_pause_it_is_rebuilt() -> None:
    clock = Clock()
    pipeline = ContextPipeline(clock=clock)
    talk(pipeline, "My bike is blue.")

    clock.now += timedelta(hours=1)

    assert mode_of(talk(pipeline, "My car is red.")) == ("rebuilt", "cold")


@pytest.mark.slow
def test_after_an_edit_of_what_is_summarised_it_is_rebuilt() -> None:
    pipeline = ContextPipeline({"max_context_tokens": 800})
    pipeline.add_messages([HumanMessage(f"Note {n} about the shed.") for n in range(200)], **ADA)
    talk(pipeline, "My bike is blue.")
    first = pipeline.get_messages(**ADA)[0]

    pipeline.edit_message(first.id, HumanMessage("My bike is green."), **ADA)

    assert mode_of(talk(pipeline, "My car is red.")) == ("rebuilt", "edited")


def test_with_another_system_prompt_it_is_rebuilt() -> None:
    pipeline = ContextPipeline()
    talk(pipeline, "My bike is blue.")
    step = pipeline.as_runnable()
    run: Any = {"configurable": {"user_id": "ada", "thread_id": "c1"}}
    for instruction in ("Be brief.", "Be kind."):
        step.invoke([SystemMessage(instruction), HumanMessage("Hello")], run)

    report = pipeline.last_report(**ADA)
    assert report is not None
    assert mode_of(report) == ("rebuilt", "other_system_prompt")


def test_a_fact_that_was_changed_by_hand_is_the_reason() -> None:
    pipeline = ContextPipeline({"learn": False})
    fact = pipeline.knowledge.add_fact("Lives in Lisbon", category="identity", user_id="ada")
    talk(pipeline, "My bike is blue.")

    pipeline.knowledge.edit(fact.id, text="Lives in Porto", user_id="ada")

    assert mode_of(talk(pipeline, "My car is red.")) == ("rebuilt", "about_user")


def test_a_saved_setting_is_the_reason() -> None:
    pipeline = ContextPipeline({"learn": False})
    talk(pipeline, "My bike is blue.")

    pipeline.save_settings({"preferences": ["Be brief."]}, user_id="ada")

    assert mode_of(talk(pipeline, "My car is red.")) == ("rebuilt", "about_user")


def test_after_a_restart_with_another_system_prompt_it_is_rebuilt() -> None:
    store = InMemoryStore()
    talk(ContextPipeline(store=store), "My bike is blue.")

    restarted = ContextPipeline(store=store, system_prompt="You help.")

    assert mode_of(talk(restarted, "My car is red.")) == ("rebuilt", "other_beginning")


@pytest.mark.parametrize(
    ("cause", "told"), [("edited", Cause.EDITED), ("a mood", Cause.FIRST), (None, Cause.FIRST)]
)
def test_a_state_of_a_graph_tells_why_it_was_rebuilt(cause: str | None, told: Cause) -> None:
    prompter = Prompter(ContextPipeline().engine, Scope("ada", "c1"))
    plan = drive(prompter.answer([], [HumanMessage("My bike is blue.")])).plan
    channel = CHANNELS["compute_budget"]
    data = {**channel.data_of(plan), "cause": cause}

    assert channel.taken(plan, data).growth.cause is told


def test_without_a_cache_every_prompt_is_chosen_anew() -> None:
    pipeline = ContextPipeline({"cache_lifetime_seconds": 0})
    talk(pipeline, "My bike is blue.")

    assert mode_of(talk(pipeline, "My car is red.")) == ("rebuilt", "not_growing")


def test_the_report_says_it_in_words() -> None:
    pipeline = ContextPipeline()
    talk(pipeline, "My bike is blue.")

    told = talk(pipeline, "My car is red.").to_text()

    assert "Prompt     the last prompt with more at its end, because there is room" in told


STABLE = Stability(
    stable_zone_tokens=50,
    shared_tokens=40,
    stable_zone_share=0.8,
    prompt_share=0.4,
    compaction_step=True,
)


@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("cause", Cause)
def test_every_mode_is_told_with_its_cause(mode: Mode, cause: Cause) -> None:
    report = talk(ContextPipeline(), "My bike is blue.")
    changed = replace(report, stability=replace(STABLE, mode=mode, cause=cause))

    assert f"{mode.meaning}, because {cause.meaning}" in changed.to_line()


def test_an_older_report_tells_no_mode() -> None:
    report = talk(ContextPipeline(), "My bike is blue.")

    assert "Prompt " not in replace(report, stability=STABLE).to_text()


def test_a_report_that_was_stored_before_says_nothing_of_it() -> None:
    stored = talk(ContextPipeline(), "My bike is blue.").to_dict()
    del stored["stability"]["mode"]
    del stored["stability"]["cause"]

    assert mode_of(ContextReport.from_dict(stored)) == ("", "")
