"""A call in any form owns its result: of a computer, a shell, a patch, in a block alone."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from langchain_anthropic import ChatAnthropic
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_openai import ChatOpenAI
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import BudgetedChatMessageHistory, ContextPipeline, build_context_graph
from langchain_ctxbudget.messages import is_user
from langchain_ctxbudget.providers import ANTHROPIC, COMMON, Profile, grouped, profile_of
from tests.cases import few_are_quick

pytestmark = pytest.mark.usefixtures("offline_tiktoken")

SCOPE: dict[str, Any] = {"user_id": "ada", "conversation_id": "c1"}
RUN = {"configurable": {"user_id": "ada", "thread_id": "c1"}}
RESPONSES = ChatOpenAI(model="gpt-5", api_key="x", use_responses_api=True)
OPENAI = profile_of(RESPONSES)
CLAUDE = ChatAnthropic(model="claude-sonnet-4-5", api_key="x")
PICTURE = "data:image/png;base64,iVBORw0KGgo" + "A" * 400
SCREEN = {"type": "computer_call_output"}


def item_call(kind: str, number: int = 1, **fields: Any) -> AIMessage:
    block = {"type": kind, "id": f"{kind[:2]}_{number}", "call_id": f"call_{number}", **fields}
    return AIMessage([{"type": "reasoning", "id": f"rs_{number}", "summary": []}, block])


def look(number: int = 1) -> AIMessage:
    action = {"type": "click", "x": number, "y": 2}
    return item_call("computer_call", number, action=action, pending_safety_checks=[])


def screen(number: int = 1, picture: str = PICTURE) -> ToolMessage:
    shown = [{"type": "input_image", "image_url": picture}]
    return ToolMessage(shown, tool_call_id=f"call_{number}", additional_kwargs=SCREEN)


PATCH = item_call("apply_patch_call", operation={"type": "delete_file", "path": "a.txt"})
PATCHED = {"type": "apply_patch_call_output", "call_id": "call_1", "status": "completed"}
SHELL = item_call("shell_call", action={"commands": ["ls"]})
LISTING = {"stdout": "a.txt", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}
LISTED = {"type": "shell_call_output", "call_id": "call_1", "output": [LISTING]}


def result(text: str, **beside: Any) -> ToolMessage:
    return ToolMessage(text, tool_call_id="call_1", additional_kwargs=beside)


ROUNDS: dict[str, list[BaseMessage]] = {
    "screen": [look(), screen()],
    "screen as a text": [look(), result(PICTURE, **SCREEN)],
    "picture of any tool": [
        look(),
        ToolMessage([{"type": "image_url", "image_url": {"url": PICTURE}}], tool_call_id="call_1"),
    ],
    "screen without a picture": [look(), result("It did not work.")],
    "patch": [PATCH, result("Done.")],
    "patch, told so": [PATCH, result("Done.", type="apply_patch_call_output")],
    "patch in a user's message": [PATCH, HumanMessage([PATCHED])],
    "shell": [SHELL, result("a.txt")],
    "shell in a user's message": [SHELL, HumanMessage([LISTED])],
    "local shell": [item_call("local_shell_call", action={"command": ["ls"]}), result("a.txt")],
    "no result": [SHELL],
    "Claude's own form": [
        AIMessage([{"type": "tool_use", "id": "call_1", "name": "look", "input": {"x": 1}}]),
        HumanMessage([{"type": "tool_result", "tool_use_id": "call_1", "content": "a.txt"}]),
    ],
}
EVERY_ROUND = pytest.mark.parametrize("messages", ROUNDS.values(), ids=list(ROUNDS))
BEFORE, AFTER = HumanMessage("Look", id="h1"), AIMessage("I have looked.", id="a9")


def items_of(messages: Sequence[BaseMessage]) -> list[dict[str, Any]]:
    payload = RESPONSES._get_request_payload(list(messages))
    items: list[dict[str, Any]] = json.loads(json.dumps(payload["input"]))
    return items


def unpaired(items: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Items that OpenAI refuses: calls and results that are not pairs, thoughts that lead nowhere.

    "No tool output found for function call", "No tool call found for function call output",
    "of type 'reasoning' was provided without its required following item" (errors 400).
    """
    calls = {(item["type"], item["call_id"]) for item in items if "call" in item["type"][-4:]}
    results = {
        (item["type"].removesuffix("_output"), item["call_id"])
        for item in items
        if item["type"].endswith("_call_output")
    }
    alone = [{"type": kind, "call_id": call_id} for kind, call_id in calls ^ results]
    thoughts = [item for item in items if item["type"] == "reasoning"]
    led_nowhere = [item for item in thoughts if items.index(item) == len(items) - 1]
    no_picture = [
        item
        for item in items
        if item["type"] == "computer_call_output"
        and not str(item["output"].get("image_url")).startswith("data:image")
    ]
    return [*alone, *led_nowhere, *no_picture]


@EVERY_ROUND
def test_openai_is_sent_pairs(messages: list[BaseMessage]) -> None:
    groups, _ = grouped([BEFORE, *messages, AFTER], OPENAI)

    assert unpaired(items_of([it for group in groups for it in group.messages])) == []


@EVERY_ROUND
@pytest.mark.parametrize("profile", [ANTHROPIC, COMMON, OPENAI], ids=lambda it: it.name)
def test_a_call_and_its_result_are_one_group(messages: list[BaseMessage], profile: Profile) -> None:
    groups, repairs = grouped([BEFORE, *messages, AFTER], profile)

    assert [len(group.messages) for group in groups] == [1, 2, 1]
    assert "orphan_result" not in [repair.kind for repair in repairs]


def test_a_screen_stays_with_its_call_as_it_is() -> None:
    groups, repairs = grouped([BEFORE, *ROUNDS["screen"]], OPENAI)

    assert list(groups[1].messages) == ROUNDS["screen"]
    assert repairs == []


@EVERY_ROUND
def test_another_provider_reads_a_call_and_a_result(messages: list[BaseMessage]) -> None:
    groups, _ = grouped([BEFORE, *messages, AFTER], ANTHROPIC)
    sent = [it for group in groups for it in group.messages]

    body = CLAUDE._get_request_payload(sent)
    blocks = [
        block
        for message in body["messages"]
        if isinstance(message["content"], list)
        for block in message["content"]
    ]
    [call] = [block for block in blocks if block["type"] == "tool_use"]
    [answer] = [block for block in blocks if block["type"] == "tool_result"]
    assert call["id"] == answer["tool_use_id"] == "call_1"


def test_a_picture_in_a_raw_result_is_a_picture() -> None:
    source = {"type": "base64", "media_type": "image/png", "data": PICTURE.partition(",")[2]}
    raw = {
        "type": "tool_result",
        "tool_use_id": "call_1",
        "content": [{"type": "image", "source": source}, {"type": "text", "text": "the shed"}],
    }
    [_, alone], _ = grouped([BEFORE, HumanMessage([raw])], COMMON)
    [_, owned], _ = grouped([BEFORE, ROUNDS["Claude's own form"][0], HumanMessage([raw])], COMMON)

    for message in (alone.messages[0], owned.messages[1]):
        assert "image" in [block["type"] for block in message.content if isinstance(block, dict)]
        assert "the shed" in message.text
        assert "iVBOR" not in message.text


def test_results_in_the_users_name_are_not_the_users() -> None:
    assert not is_user(HumanMessage([PATCHED]))
    assert is_user(HumanMessage([PATCHED, {"type": "text", "text": "Go on"}]))


def test_an_approval_stays_behind_its_request() -> None:
    request = {"type": "mcp_approval_request", "id": "mcpr_1", "name": "buy", "arguments": "{}"}
    approval = {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": True}
    messages = [BEFORE, AIMessage([request]), HumanMessage([approval])]

    groups, repairs = grouped(messages, OPENAI)

    assert [list(group.messages) for group in groups] == [messages[:1], messages[1:]]
    assert repairs == []


STEPS = [message for number in range(1, 13) for message in (look(number), screen(number))]


@pytest.mark.parametrize("budget", few_are_quick([4_000, 8_000, 32_000, 128_000], quick=2))
def test_an_agent_that_looks_is_sent_pairs_on_every_way(budget: int) -> None:
    """Screens give way where there is no room; their calls go with them."""
    settings = {"max_context_tokens": budget}
    pipeline = ContextPipeline(model=RESPONSES, store=InMemoryStore(), settings=settings)
    in_turn = pipeline.assemble([BEFORE, *STEPS], **SCOPE)
    pipeline.add_messages([BEFORE, *STEPS, AFTER], **SCOPE)
    in_history = pipeline.assemble("And now?", **SCOPE)
    history = BudgetedChatMessageHistory("c1", user_id="ada", pipeline=pipeline)
    graph = build_context_graph(ContextPipeline(model=RESPONSES, settings=settings))
    state = graph.invoke({"messages": [BEFORE, *STEPS]}, RUN)

    for messages in (
        in_turn.messages,
        in_history.messages,
        history.window(budget),
        state["llm_input_messages"],
    ):
        assert unpaired(items_of(messages)) == []


def test_the_newest_screen_is_shown() -> None:
    pipeline = ContextPipeline(
        model=RESPONSES, store=InMemoryStore(), settings={"max_context_tokens": 4_000}
    )

    context = pipeline.assemble([BEFORE, *STEPS], **SCOPE)

    assert context.messages[-1] == STEPS[-1]
