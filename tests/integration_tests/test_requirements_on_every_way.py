"""A new requirement of a provider is one function: every way out runs it, and reports tell it."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import BudgetedChatMessageHistory, BudgetedMemory, ContextPipeline
from langchain_ctxbudget.providers import Change, Profile, Requirement, Stage, each, requirements
from langchain_ctxbudget.replay import replay
from tests.integration_tests.scripted_agent import TOOLS, Script
from tests.integration_tests.ways_in import WITH_TOOLS, Agent, Outcome, outcome_of

pytestmark = pytest.mark.allow_hosts(["127.0.0.1"])

SIGNED = " (signed)"
SCOPE: dict[str, Any] = {"user_id": "ada", "conversation_id": "c1"}
QUESTION = HumanMessage("How wide?", id="h2")
every_stage = pytest.mark.parametrize("stage", Stage, ids=lambda stage: stage.name.lower())


def signed(message: BaseMessage, profile: Profile) -> tuple[BaseMessage, Sequence[Change]]:
    """What some provider might require: a user's words end with a signature."""
    if not isinstance(message, HumanMessage) or message.text.endswith(SIGNED):
        return message, ()
    content = message.text + SIGNED
    change = Change("signature", f"signed for {profile.name}")
    return message.model_copy(update={"content": content}), [change]


def add_requirement(monkeypatch: pytest.MonkeyPatch) -> None:
    requirement = Requirement(each(signed))
    monkeypatch.setattr(requirements, "REQUIREMENTS", (*requirements.REQUIREMENTS, requirement))


@pytest.fixture
def with_signatures(monkeypatch: pytest.MonkeyPatch) -> None:
    add_requirement(monkeypatch)


# Agents


def last_question(body: Mapping[str, Any]) -> str:
    questions = [message for message in body["messages"] if message["role"] == "user"]
    return str(questions[-1]["content"])


def outcome(way: type[Agent]) -> Outcome:
    return outcome_of(way, Script(3), budget_tokens=5_000, tools=TOOLS, durability="exit")


@pytest.mark.usefixtures("with_signatures")
@pytest.mark.parametrize("name", WITH_TOOLS)
def test_every_request_of_an_agent_meets_it_and_every_report_tells(name: str) -> None:
    """One test for one run, which takes seconds."""
    agent = outcome(WITH_TOOLS[name])

    assert agent.refused == []
    unsigned = [body for body in agent.received if not last_question(body).endswith(SIGNED)]
    assert unsigned == []
    told = [{repair.kind for repair in report.repairs} for report in agent.reports]
    assert all("signature" in kinds for kinds in told)


# Histories, memory, replay


def stored_pipeline() -> ContextPipeline:
    pipeline = ContextPipeline(model="gpt-4o", store=InMemoryStore())
    pipeline.add_messages([HumanMessage("How long?", id="h1")], **SCOPE)
    return pipeline


def history() -> BudgetedChatMessageHistory:
    return BudgetedChatMessageHistory("c1", user_id="ada", pipeline=stored_pipeline())


def whole_history() -> Sequence[BaseMessage]:
    return history().messages


def window() -> Sequence[BaseMessage]:
    return history().window(1_000)


def remembered(*, whole_prompt: bool) -> Sequence[BaseMessage]:
    memory = BudgetedMemory(pipeline=stored_pipeline(), whole_prompt=whole_prompt, **SCOPE)
    messages: list[BaseMessage] = memory.load_memory_variables({"input": "How wide?"})["history"]
    return messages


def memory_of_a_window() -> Sequence[BaseMessage]:
    return remembered(whole_prompt=False)


def memory_of_a_prompt() -> Sequence[BaseMessage]:
    return remembered(whole_prompt=True)


def prompt() -> Sequence[BaseMessage]:
    return stored_pipeline().assemble(QUESTION, **SCOPE).messages


WAYS = [prompt, window, whole_history, memory_of_a_window, memory_of_a_prompt]


@pytest.mark.usefixtures("with_signatures")
@pytest.mark.parametrize("way_out", WAYS)
def test_every_message_of_the_user_meets_it(way_out: Callable[[], Sequence[BaseMessage]]) -> None:
    words = [message.text for message in way_out() if isinstance(message, HumanMessage)]

    assert words
    assert all(text.endswith(SIGNED) for text in words)


@every_stage
@pytest.mark.parametrize("way_out", WAYS)
def test_every_way_out_runs_both_stages_for_the_models_provider(
    way_out: Callable[[], Sequence[BaseMessage]], stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    profiles: list[str] = []

    def watched(message: BaseMessage, profile: Profile) -> tuple[BaseMessage, Sequence[Change]]:
        profiles.append(profile.name)
        return message, ()

    requirement = Requirement(each(watched), stage)
    monkeypatch.setattr(requirements, "REQUIREMENTS", (requirement,))
    way_out()

    assert set(profiles) == {"openai"}


def tokens_of_a_replay() -> int:
    messages = [HumanMessage("How long?"), AIMessage("5 m.")]
    [track] = replay(messages, ["elastic"], budget=2_000).tracks
    return track.turns[0].tokens


def test_a_replay_counts_what_is_added(monkeypatch: pytest.MonkeyPatch) -> None:
    plain_tokens = tokens_of_a_replay()
    add_requirement(monkeypatch)

    assert tokens_of_a_replay() > plain_tokens


@pytest.mark.usefixtures("with_signatures")
def test_the_total_of_a_report_counts_what_is_added() -> None:
    pipeline = stored_pipeline()
    context = pipeline.assemble(QUESTION, **SCOPE)

    counted = pipeline.engine.target.counter.count_messages(context.messages)
    assert context.report.total_tokens == counted
