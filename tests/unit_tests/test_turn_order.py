"""What a provider wants of the order of turns, and of arguments that cannot be read."""

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_mistralai import ChatMistralAI
from langgraph.store.memory import InMemoryStore
from pydantic import SecretStr

from langchain_ctxbudget import ContextPipeline
from langchain_ctxbudget.providers import PROFILES, grouped
from tests.doubles.providers import APIS
from tests.sending import sent_with

# Calls behind an answer, for Gemini


def two_agents() -> list[BaseMessage]:
    call = {"name": "look", "args": {}, "id": "call_1"}
    return [
        HumanMessage("Look.", id="0"),
        AIMessage("The second agent looks.", id="1"),
        AIMessage("", tool_calls=[call], id="2"),
        ToolMessage("Nobody.", tool_call_id="call_1", id="3"),
    ]


def test_gemini_gets_a_turn_between_an_answer_and_calls() -> None:
    sent, repairs = sent_with(two_agents(), PROFILES["google"])
    assert APIS["gemini"].problems(sent) == []
    assert [repair.kind for repair in repairs] == ["turn_order"]


def test_what_stands_between_belongs_to_the_answer() -> None:
    groups, _ = grouped(two_agents(), PROFILES["google"])
    assert [group.positions for group in groups] == [(0,), (1,), (2, 3)]


def test_others_get_an_answer_and_calls_as_they_are() -> None:
    messages = two_agents()
    sent, _ = sent_with(messages, PROFILES["openai"])
    assert sent == messages


# A user's message behind results, for Mistral


def interrupted() -> list[BaseMessage]:
    call = {"name": "look", "args": {}, "id": "callnumb1"}
    return [
        HumanMessage("Look.", id="0"),
        AIMessage("", tool_calls=[call], id="1"),
        ToolMessage("Nobody.", tool_call_id="callnumb1", id="2"),
        HumanMessage("Stop!", id="3"),
    ]


LINE = AIMessage("[The conversation goes on.]")


def test_mistral_gets_an_answer_between_results_and_the_user() -> None:
    sent, repairs = sent_with(interrupted(), PROFILES["mistral"])
    assert sent == [*interrupted()[:3], LINE, interrupted()[3]]
    assert [(repair.kind, repair.message_id) for repair in repairs] == [("turn_order", "3")]


def test_results_that_are_the_last_need_no_answer() -> None:
    sent, _ = sent_with(interrupted()[:3], PROFILES["mistral"])
    assert sent == interrupted()[:3]


def test_others_get_results_and_the_user_as_they_are() -> None:
    sent, _ = sent_with(interrupted(), PROFILES["openai"])
    assert sent == interrupted()


@pytest.mark.parametrize("stored", range(4))
@pytest.mark.parametrize("budget", [4_000, 128_000])
def test_a_history_that_ends_with_results_is_answered(stored: int, budget: int) -> None:
    model = ChatMistralAI(model_name="mistral-large-latest", api_key=SecretStr("x"))
    settings = {"max_context_tokens": budget}
    pipeline = ContextPipeline(settings, model=model, store=InMemoryStore())
    pipeline.add_messages(interrupted()[:stored], user_id="ada", conversation_id="c1")

    context = pipeline.assemble(interrupted()[stored:], user_id="ada", conversation_id="c1")

    types = [message.type for message in context.messages]
    assert types == ["human", "ai", "tool", "ai", "human"]
    assert [repair.kind for repair in context.report.repairs] == ["turn_order"]


# Broken arguments, for Responses


def test_broken_arguments_do_not_stand_in_the_content() -> None:
    call = {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "look"}
    broken = AIMessage(
        [
            {"type": "reasoning", "id": "rs_1", "summary": []},
            {**call, "arguments": '{"page": '},
        ],
        invalid_tool_calls=[{"id": "c1", "name": "look", "args": '{"page": ', "error": None}],
        response_metadata={"model_provider": "openai"},
    )
    messages = [HumanMessage("Look."), broken, ToolMessage("Error.", tool_call_id="c1")]

    sent, _ = sent_with(messages, PROFILES["openai-responses"])

    assert APIS["responses"].problems(sent) == []


def test_an_agent_that_goes_on_behind_its_answer_has_a_turn_between() -> None:
    pipeline = ContextPipeline({"learn": False}, model=APIS["gemini"].model, store=InMemoryStore())
    scope = {"user_id": "ada", "conversation_id": "c"}
    messages = two_agents()
    pipeline.assemble(messages[:2], **scope)

    context = pipeline.assemble(messages, **scope)

    assert APIS["gemini"].problems(context.messages) == []
    counted = pipeline.token_counter.count_messages(context.messages)
    assert counted == context.report.total_tokens
