"""Ids of calls, as each provider takes them, in every form and on every way out."""

import re
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import BudgetedChatMessageHistory, ContextPipeline, build_context_graph
from tests.cases import few_are_quick
from tests.integration_tests.test_foreign_items import MODELS

SCOPE: dict[str, Any] = {"user_id": "ada", "conversation_id": "c1"}
THOUGHT = "call_1__thought__" + "QUJD+/=" * 20
IDS: Mapping[str, str] = {
    "short": "call_1",
    "41 characters": "c" * 41,
    "70 characters": "c" * 70,
    "Kimi's": "functions.tides:0",
    "with a bar": "call_1|fc_2",
    "empty": "",
    "nine": "a1B2c3D4e",
    "with a thought": THOUGHT,
}
TAKES: Mapping[str, str] = {
    "openai": r".{1,40}",
    "openai-responses": r".{1,64}",
    "openai-compatible": r".{1,40}|.+__thought__.+",
    "anthropic": r"[a-zA-Z0-9_-]+",
    "google": r".+",
    "mistral": r"[a-zA-Z0-9]{9}",
    "ollama": r".+",
}
"""Which ids each provider takes."""


def call(call_id: str) -> dict[str, Any]:
    return {"name": "tides", "args": {"place": "Brest"}, "id": call_id, "type": "tool_call"}


def round_of(call_id: str, number: int = 0) -> list[BaseMessage]:
    return [
        HumanMessage("When?", id=f"h{number}"),
        AIMessage("", tool_calls=[call(call_id)], id=f"a{number}"),
        ToolMessage("18:04", tool_call_id=call_id, id=f"t{number}"),
        AIMessage("At 18:04.", id=f"b{number}"),
    ]


def ids_of(messages: Sequence[BaseMessage]) -> list[str]:
    ids: list[str] = []
    for message in messages:
        if isinstance(message, AIMessage):
            ids += [str(one["id"]) for one in message.tool_calls]
    return ids


def results_of(messages: Sequence[BaseMessage]) -> list[str]:
    return [message.tool_call_id for message in messages if isinstance(message, ToolMessage)]


def pipeline_for(target: str) -> ContextPipeline:
    return ContextPipeline(model=MODELS[target], store=InMemoryStore())


def prompt(target: str, messages: Sequence[BaseMessage]) -> list[BaseMessage]:
    pipeline = pipeline_for(target)
    pipeline.add_messages(messages, **SCOPE)
    return pipeline.assemble("And low water?", **SCOPE).messages


def turn(target: str, messages: Sequence[BaseMessage]) -> list[BaseMessage]:
    return pipeline_for(target).assemble(list(messages), **SCOPE).messages


def window(target: str, messages: Sequence[BaseMessage]) -> list[BaseMessage]:
    history = BudgetedChatMessageHistory("c1", user_id="ada", pipeline=pipeline_for(target))
    history.add_messages(messages)
    return history.window(2_000)


def whole_history(target: str, messages: Sequence[BaseMessage]) -> list[BaseMessage]:
    history = BudgetedChatMessageHistory("c1", user_id="ada", pipeline=pipeline_for(target))
    history.add_messages(messages)
    return history.messages


def graph(target: str, messages: Sequence[BaseMessage]) -> list[BaseMessage]:
    sent: list[BaseMessage] = build_context_graph(pipeline_for(target), default_user="ada").invoke(
        {"messages": [*messages, HumanMessage("And low water?")]},
        {"configurable": {"thread_id": "c1"}},
    )["llm_input_messages"]
    return sent


WAYS = (prompt, turn, window, whole_history)
CASES = list(product(WAYS, TAKES, IDS))
QUICK = [case for number, case in enumerate(CASES) if number % 7 == 0]
"""Of every way out, provider and id a few."""
REST = [case for case in CASES if case not in QUICK]


@pytest.mark.parametrize("case", few_are_quick([*QUICK, *REST], len(QUICK)))
def test_a_provider_gets_ids_that_it_takes(case: Any) -> None:
    way_out, target, name = case
    sent = way_out(target, round_of(IDS[name]))

    [sent_id] = ids_of(sent)
    assert re.fullmatch(TAKES[target], sent_id)
    assert results_of(sent) == [sent_id]


@pytest.mark.parametrize("target", TAKES)
def test_a_graph_sends_ids_that_the_provider_takes(target: str) -> None:
    sent = graph(target, round_of(IDS["70 characters"]))

    [sent_id] = ids_of(sent)
    assert re.fullmatch(TAKES[target], sent_id)
    assert results_of(sent) == [sent_id]


@pytest.mark.parametrize("case", few_are_quick(list(product(TAKES, IDS)), 9))
def test_an_id_that_is_used_twice_is_sent_once(case: Any) -> None:
    target, name = case
    call_id = IDS[name]
    sent = prompt(target, [*round_of(call_id), *round_of(call_id, 1)])

    ids = ids_of(sent)
    assert len(set(ids)) == 2
    assert [sent_id for sent_id in ids if not re.fullmatch(TAKES[target], sent_id)] == []
    assert results_of(sent) == ids


@pytest.mark.parametrize("target", ["openai-compatible", "google", "ollama"])
def test_an_id_with_a_thought_stays_where_it_is_read_again(target: str) -> None:
    assert ids_of(prompt(target, round_of(THOUGHT))) == [THOUGHT]


def test_a_thought_stays_whole_in_an_id_that_is_used_twice() -> None:
    sent = prompt("openai-compatible", [*round_of(THOUGHT), *round_of(THOUGHT, 1)])

    thoughts = [call_id.partition("__thought__")[2] for call_id in ids_of(sent)]
    assert thoughts == [THOUGHT.partition("__thought__")[2]] * 2


SIGNATURES = "__gemini_function_call_thought_signatures__"


def test_signatures_of_thoughts_go_with_the_ids_of_their_calls() -> None:
    signed = AIMessage(
        "",
        tool_calls=[call("one"), call("one"), call("two")],
        additional_kwargs={SIGNATURES: {"one": "EqQB", "two": "Eo8B"}},
    )
    sent = prompt("google", [HumanMessage("When?"), signed])

    [answer] = [message for message in sent if ids_of([message])]
    signatures = answer.additional_kwargs[SIGNATURES]
    assert [signatures[call_id] for call_id in ids_of([answer])] == ["EqQB", "EqQB", "Eo8B"]


FORMS: Mapping[str, dict[str, Any]] = {
    "Anthropic's": {"type": "tool_use", "name": "tides", "input": {}},
    "LangChain's": {"type": "tool_call", "name": "tides", "args": {}},
}


@pytest.mark.parametrize("form", FORMS.values(), ids=list(FORMS))
def test_a_block_of_a_call_has_the_id_of_the_call(form: dict[str, Any]) -> None:
    long_id = IDS["41 characters"]
    asked = AIMessage([{**form, "id": long_id}], tool_calls=[call(long_id)])
    sent = prompt("openai", [HumanMessage("When?"), asked, ToolMessage("x", tool_call_id=long_id)])

    [answer] = [message for message in sent if ids_of([message])]
    assert [block["id"] for block in answer.content] == ids_of([answer])


def test_an_id_that_is_replaced_is_told() -> None:
    pipeline = pipeline_for("anthropic")
    pipeline.add_messages(round_of("functions.tides:0"), **SCOPE)

    [repair] = pipeline.assemble("And low water?", **SCOPE).report.repairs

    assert (repair.kind, repair.message_id) == ("call_id", "a0")


@pytest.mark.parametrize("target", TAKES)
def test_a_whole_history_is_known_when_it_is_added_again(target: str) -> None:
    history = BudgetedChatMessageHistory("c1", user_id="ada", pipeline=pipeline_for(target))
    given = [*round_of(IDS["70 characters"]), *round_of(IDS["70 characters"], 1)]
    history.add_messages(given)

    history.add_messages(history.messages)

    assert history.all_messages == given


def test_ids_of_a_tool_that_the_provider_runs_stay() -> None:
    item_id = "ws_" + "0" * 60
    searched = AIMessage(
        [
            {"type": "server_tool_call", "name": "web_search", "id": item_id, "args": {}},
            {"type": "server_tool_result", "tool_call_id": item_id, "status": "success"},
            {"type": "text", "text": "At 18:04."},
        ],
        response_metadata={"model_provider": "openai", "output_version": "v1"},
    )
    pipeline = ContextPipeline(store=InMemoryStore())
    pipeline.add_messages([HumanMessage("When?"), searched], **SCOPE)

    context = pipeline.assemble("And low water?", **SCOPE)

    assert context.messages[-2].content == searched.content
