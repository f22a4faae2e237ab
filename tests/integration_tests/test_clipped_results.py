"""A result that is a block of a user's message is the result of its call in short, too."""

from collections.abc import Sequence
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_openai import ChatOpenAI
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import BudgetedChatMessageHistory, ContextPipeline, build_context_graph
from langchain_ctxbudget.middleware import ContextBudgetMiddleware
from tests.cases import few_are_quick
from tests.integration_tests.test_pictures import Looking, look, png

SCOPE: dict[str, Any] = {"user_id": "ada", "conversation_id": "c1"}
RUN: Any = {"configurable": {"user_id": "ada", "thread_id": "c1"}}
RESPONSES = ChatOpenAI(model="gpt-4o", api_key="x", use_responses_api=True)  # type: ignore[arg-type]
MODELS: dict[str, Any] = {
    "OpenAI chat": "gpt-4o",
    "Responses": RESPONSES,
    "Anthropic": "claude-sonnet-4-5",
    "Google": "gemini-2.5-pro",
}
LISTING = "\n".join(f"file {number} of the shed" for number in range(3_000))
SCREEN = {
    "type": "computer_screenshot",
    "image_url": f"data:image/png;base64,{png(2_560, 1_408)}",
}


def item_call(kind: str, **fields: Any) -> AIMessage:
    return AIMessage(
        [{"type": kind, "id": "i_1", "call_id": "c1", "status": "completed", **fields}]
    )


def calling(**fields: Any) -> AIMessage:
    return AIMessage("", tool_calls=[{"name": "look", "args": {}, "id": "c1"}], **fields)


def answered(kind: str, **fields: Any) -> HumanMessage:
    return HumanMessage([{"type": kind, "call_id": "c1", **fields}])


ROUNDS: dict[str, list[BaseMessage]] = {
    "tool_result": [
        AIMessage([{"type": "tool_use", "id": "c1", "name": "look", "input": {}}]),
        HumanMessage([{"type": "tool_result", "tool_use_id": "c1", "content": LISTING}]),
    ],
    "tool_result with blocks": [
        calling(),
        HumanMessage(
            [
                {
                    "type": "tool_result",
                    "tool_use_id": "c1",
                    "content": [{"type": "text", "text": LISTING}],
                }
            ]
        ),
    ],
    "function_call_output": [calling(), answered("function_call_output", output=LISTING)],
    "shell_call_output": [
        item_call("shell_call", action={"commands": ["ls"]}),
        answered("shell_call_output", output=[{"stdout": LISTING, "stderr": ""}]),
    ],
    "local_shell_call_output": [
        item_call("local_shell_call", action={"command": ["ls"]}),
        answered("local_shell_call_output", output=LISTING),
    ],
    "apply_patch_call_output": [
        item_call("apply_patch_call", operation={"type": "delete_file", "path": "a"}),
        answered("apply_patch_call_output", status="completed", output=LISTING),
    ],
}
SCREENS: list[BaseMessage] = [
    item_call("computer_call", action={"type": "screenshot"}),
    answered("computer_call_output", output=SCREEN),
]


def is_answered(messages: Sequence[BaseMessage], text: str) -> bool:
    """Whether the one call has one result, with a text, and the user does not say it."""
    results = [message for message in messages if isinstance(message, ToolMessage)]
    users = [message.text for message in messages if isinstance(message, HumanMessage)]
    return (
        [result.tool_call_id for result in results] == ["c1"]
        and text in results[0].text
        and not any(text in said for said in users)
    )


def are_items(messages: Sequence[BaseMessage], round_: Sequence[BaseMessage]) -> bool:
    """Whether the call and its result stand whole, as the items that the provider reads."""
    return [message.content for message in messages[1:3]] == [it.content for it in round_]


def new_pipeline(budget: int, model: Any = RESPONSES) -> ContextPipeline:
    settings = {"max_context_tokens": budget, "learn": False}
    return ContextPipeline(settings, model=model, store=InMemoryStore())


def in_history(pipeline: ContextPipeline, round_: Sequence[BaseMessage]) -> list[BaseMessage]:
    messages = [HumanMessage("Look."), *round_, AIMessage("I see.")]
    pipeline.add_messages(messages, **SCOPE)
    return pipeline.assemble("And now?", **SCOPE).messages


def in_turn(pipeline: ContextPipeline, round_: Sequence[BaseMessage]) -> list[BaseMessage]:
    return pipeline.assemble([HumanMessage("Look."), *round_], **SCOPE).messages


@pytest.mark.parametrize("budget", few_are_quick([4_000, 16_000, 64_000, 128_000]))
@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
@pytest.mark.parametrize("round_", few_are_quick(ROUNDS.values(), 4), ids=ROUNDS)
def test_it_is_in_the_history(round_: list[BaseMessage], model: Any, budget: int) -> None:
    messages = in_history(new_pipeline(budget, model), round_)

    # Where a result has room as a whole, it stays an item for the API that reads such items.
    is_patch = round_ is ROUNDS["apply_patch_call_output"]
    if model is RESPONSES and is_patch and budget >= 64_000:
        assert are_items(messages, round_)
    else:
        assert is_answered(messages, "file 0 of the shed")


@pytest.mark.parametrize("budget", few_are_quick([4_000, 16_000]))
@pytest.mark.parametrize("round_", few_are_quick(ROUNDS.values(), 6), ids=ROUNDS)
def test_it_is_in_the_turn(round_: list[BaseMessage], budget: int) -> None:
    assert is_answered(in_turn(new_pipeline(budget), round_), "file 0 of the shed")


@pytest.mark.parametrize("place", [in_history, in_turn])
def test_a_screen_that_is_left_out_is_a_line_in_the_result(place: Any) -> None:
    messages = place(new_pipeline(1_000), SCREENS)

    assert is_answered(messages, "[image left out: image/png")


def test_the_users_words_beside_it_stay_the_users() -> None:
    call, result = ROUNDS["tool_result"]
    spoken = HumanMessage([*result.content, {"type": "text", "text": "Go on, please."}])

    messages = in_history(new_pipeline(4_000), [call, spoken])

    assert is_answered(messages, "file 0 of the shed")
    assert any(it.text == "Go on, please." for it in messages if isinstance(it, HumanMessage))


def test_of_two_results_the_small_one_stays_whole() -> None:
    blocks = [{"type": "tool_use", "id": f"c{n}", "name": "look", "input": {}} for n in (1, 2)]
    results = [
        {"type": "tool_result", "tool_use_id": "c1", "content": LISTING},
        {"type": "tool_result", "tool_use_id": "c2", "content": "Nothing.", "is_error": True},
    ]

    messages = in_history(new_pipeline(4_000), [AIMessage(blocks), HumanMessage(results)])

    _, second = [message for message in messages if isinstance(message, ToolMessage)]
    assert (second.tool_call_id, second.text, second.status) == ("c2", "Nothing.", "error")


@pytest.mark.parametrize("round_", few_are_quick(ROUNDS.values(), 1), ids=ROUNDS)
def test_it_is_in_the_window_of_a_history(round_: list[BaseMessage]) -> None:
    pipeline = new_pipeline(4_000)
    history = BudgetedChatMessageHistory("c1", user_id="ada", pipeline=pipeline)
    history.add_messages([HumanMessage("Look."), *round_, AIMessage("I see.")])

    assert is_answered(history.window(4_000), "file 0 of the shed")


@pytest.mark.parametrize("round_", few_are_quick(ROUNDS.values(), 1), ids=ROUNDS)
def test_it_is_in_the_graph(round_: list[BaseMessage]) -> None:
    graph = build_context_graph(new_pipeline(4_000))
    messages = [HumanMessage("Look."), *round_, AIMessage("I see."), HumanMessage("And now?")]

    state = graph.invoke({"messages": messages}, RUN)

    assert is_answered(state["llm_input_messages"], "file 0 of the shed")


@pytest.mark.parametrize("round_", few_are_quick(ROUNDS.values(), 1), ids=ROUNDS)
def test_it_is_what_an_agent_sees(round_: list[BaseMessage]) -> None:
    model = Looking(messages=iter([AIMessage("Done.")]), seen=[])
    agent = create_agent(model, [look], middleware=[ContextBudgetMiddleware(new_pipeline(4_000))])
    messages = [HumanMessage("Look."), *round_, AIMessage("I see."), HumanMessage("And now?")]

    agent.invoke({"messages": messages}, RUN)

    assert is_answered(model.seen[0], "file 0 of the shed")
