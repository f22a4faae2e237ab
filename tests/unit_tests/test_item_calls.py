"""A call in any form owns its result: of a computer, a shell, a patch, in a block alone."""

import json
from collections.abc import Callable, Sequence
from itertools import chain
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
from tests.sending import messages_of

pytestmark = pytest.mark.usefixtures("offline_tiktoken")

Item = dict[str, Any]
Way = Callable[[int], list[BaseMessage]]
"""A way out, which returns the messages that are sent with a budget."""

SCOPE: dict[str, Any] = {"user_id": "ada", "conversation_id": "c1"}
RUN = {"configurable": {"user_id": "ada", "thread_id": "c1"}}
RESPONSES = ChatOpenAI(model="gpt-5", api_key="x", use_responses_api=True)
OPENAI = profile_of(RESPONSES)
CLAUDE = ChatAnthropic(model="claude-sonnet-4-5", api_key="x")
PICTURE = "data:image/png;base64,iVBORw0KGgo" + "A" * 400
SCREEN = {"type": "computer_call_output"}


def item_call(kind: str, number: int = 1, **fields: Any) -> AIMessage:
    """A call that is an item, behind the thought that led to it."""
    thought = {"type": "reasoning", "id": f"rs_{number}", "summary": []}
    call = {"type": kind, "id": f"{kind[:2]}_{number}", "call_id": f"call_{number}", **fields}
    return AIMessage([thought, call])


def look(number: int = 1) -> AIMessage:
    """A call of a computer, which answers with its screen."""
    action = {"type": "click", "x": number, "y": 2}
    return item_call("computer_call", number, action=action, pending_safety_checks=[])


def screen(number: int = 1) -> ToolMessage:
    """The screen that a call of a computer is answered with."""
    picture = {"type": "input_image", "image_url": PICTURE}
    return ToolMessage([picture], tool_call_id=f"call_{number}", additional_kwargs=SCREEN)


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
BEFORE = HumanMessage("Look", id="h1")
AFTER = AIMessage("I have looked.", id="a9")


# Pairs, as OpenAI wants them


def items_of(messages: Sequence[BaseMessage]) -> list[Item]:
    """The items of a request to the Responses API, as LangChain's package writes them."""
    payload = RESPONSES._get_request_payload(list(messages))
    items: list[Item] = json.loads(json.dumps(payload["input"]))
    return items


def refused(items: Sequence[Item]) -> list[str]:
    """What OpenAI refuses: calls and results that are no pairs, thoughts that lead nowhere.

    "No tool output found for function call", "No tool call found for function call output",
    "of type 'reasoning' was provided without its required following item" (errors 400).
    """
    unpaired = calls_in(items) ^ answered_calls_in(items)
    problems = [f"alone: {call}" for call in sorted(unpaired)]
    if items[-1]["type"] == "reasoning":
        problems.append("a thought at the end")
    screens = [item for item in items if item["type"] == "computer_call_output"]
    if not all(map(has_picture, screens)):
        problems.append("a screen without a picture")
    return problems


def calls_in(items: Sequence[Item]) -> set[str]:
    """The calls of a request, by type and id."""
    calls = [item for item in items if item["type"].endswith("_call")]
    return {f"{item['type']} {item['call_id']}" for item in calls}


def answered_calls_in(items: Sequence[Item]) -> set[str]:
    """The calls that the results of a request answer, by type and id."""
    results = [item for item in items if item["type"].endswith("_call_output")]
    return {f"{item['type'].removesuffix('_output')} {item['call_id']}" for item in results}


def has_picture(screen_item: Item) -> bool:
    return str(screen_item["output"].get("image_url")).startswith("data:image")


@EVERY_ROUND
def test_openai_is_sent_pairs(messages: list[BaseMessage]) -> None:
    groups, _ = grouped([BEFORE, *messages, AFTER], OPENAI)

    assert refused(items_of(messages_of(groups))) == []


# Every provider


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

    body = CLAUDE._get_request_payload(messages_of(groups))

    [call] = blocks_in(body, "tool_use")
    [answer] = blocks_in(body, "tool_result")
    assert call["id"] == answer["tool_use_id"] == "call_1"


def blocks_in(body: dict[str, Any], kind: str) -> list[Item]:
    """The blocks of a type in a request to Anthropic."""
    blocks: list[Item] = []
    for message in body["messages"]:
        if isinstance(message["content"], list):
            blocks += [block for block in message["content"] if block["type"] == kind]
    return blocks


SOURCE = {"type": "base64", "media_type": "image/png", "data": PICTURE.partition(",")[2]}
RAW_RESULT = {
    "type": "tool_result",
    "tool_use_id": "call_1",
    "content": [{"type": "image", "source": SOURCE}, {"type": "text", "text": "the shed"}],
}


@pytest.mark.parametrize(
    "before",
    [[], ROUNDS["Claude's own form"][:1]],
    ids=["without its call", "behind its call"],
)
def test_a_picture_in_a_raw_result_is_a_picture(before: list[BaseMessage]) -> None:
    groups, _ = grouped([BEFORE, *before, HumanMessage([RAW_RESULT])], COMMON)

    result = messages_of(groups)[-1]
    assert "image" in [block["type"] for block in result.content if isinstance(block, dict)]
    assert "the shed" in result.text
    assert "iVBOR" not in result.text


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


# Every way out

STEPS = list(chain.from_iterable((look(number), screen(number)) for number in range(1, 13)))
BUDGETS = few_are_quick([4_000, 8_000, 32_000, 128_000], quick=2)


def agent_pipeline(budget: int) -> ContextPipeline:
    settings = {"max_context_tokens": budget}
    return ContextPipeline(model=RESPONSES, store=InMemoryStore(), settings=settings)


def in_turn(budget: int) -> list[BaseMessage]:
    return agent_pipeline(budget).assemble([BEFORE, *STEPS], **SCOPE).messages


def in_history(budget: int) -> list[BaseMessage]:
    pipeline = agent_pipeline(budget)
    pipeline.assemble([BEFORE, *STEPS], **SCOPE)
    pipeline.add_messages([BEFORE, *STEPS, AFTER], **SCOPE)
    return pipeline.assemble("And now?", **SCOPE).messages


def in_window(budget: int) -> list[BaseMessage]:
    pipeline = agent_pipeline(budget)
    pipeline.add_messages([BEFORE, *STEPS, AFTER], **SCOPE)
    history = BudgetedChatMessageHistory("c1", user_id="ada", pipeline=pipeline)
    return history.window(budget)


def in_graph(budget: int) -> list[BaseMessage]:
    graph = build_context_graph(agent_pipeline(budget))
    sent: list[BaseMessage] = graph.invoke({"messages": [BEFORE, *STEPS]}, RUN)[
        "llm_input_messages"
    ]
    return sent


@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("way", [in_turn, in_history, in_window, in_graph])
def test_an_agent_that_looks_is_sent_pairs(way: Way, budget: int) -> None:
    """Screens give way where there is no room; their calls go with them."""
    assert refused(items_of(way(budget))) == []


def test_the_newest_screen_is_shown() -> None:
    assert in_turn(4_000)[-1] == STEPS[-1]
