"""Input that is too large for the budget: clipped around a marker, or refused with its floors."""

import base64
import copy
import json
import re
import struct
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_openai import ChatOpenAI
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import AssembledContext, ContextPipeline
from langchain_ctxbudget.budget import Reason, Status
from langchain_ctxbudget.errors import BudgetTooSmallError, SystemPromptTooLargeError
from tests.integration_tests.conftest import Call
from tests.integration_tests.test_promises import SCOPE, SYSTEM_PROMPT, check_adds_up, check_valid

LOG = "FIRST LINE\n" + "2026-11-20T10:00:00 INFO worker 7 has done its part\n" * 2_000 + "LAST LINE"
LONG_JSON = json.dumps([{"id": number, "value": "x" * (number % 7)} for number in range(3_000)])

CHAT = [HumanMessage("My build machine is called Wilma."), AIMessage("Noted.")]


def image(width: int, height: int, detail: str = "auto") -> dict[str, Any]:
    header = b"\x89PNG\r\n\x1a\n" + struct.pack(
        ">I4sIIBBBBB", 13, b"IHDR", width, height, 8, 2, 0, 0, 0
    )
    url = "data:image/png;base64," + base64.b64encode(header + b"\0" * 300).decode()
    return {"type": "image_url", "image_url": {"url": url, "detail": detail}}


def pipeline(budget: int, history: Sequence[BaseMessage] = (), **changes: Any) -> ContextPipeline:
    made = ContextPipeline(
        {"max_context_tokens": budget, "learn": False, **changes},
        system_prompt=SYSTEM_PROMPT,
        store=InMemoryStore(),
        writer_id="w",
    )
    if history:
        made.add_messages(history, **SCOPE)
    return made


def call_of(*ids: str) -> AIMessage:
    return AIMessage(
        "", tool_calls=[{"name": "run", "args": {"command": "make"}, "id": key} for key in ids]
    )


def turn_with(*results: Any, question: Any = "Why does it fail?") -> list[BaseMessage]:
    ids = [f"call-{number}" for number in range(len(results))]
    answers = [
        ToolMessage(result, tool_call_id=key) for key, result in zip(ids, results, strict=True)
    ]
    return [HumanMessage(question), call_of(*ids), *answers]


def results_of(context: AssembledContext) -> list[ToolMessage]:
    return [message for message in context.messages if isinstance(message, ToolMessage)]


def fits(context: AssembledContext, budget: int, chat_openai: ChatOpenAI, turn: Any) -> None:
    counted = chat_openai.get_num_tokens_from_messages(context.messages)
    assert counted == context.report.total_tokens <= budget
    check_adds_up(context)
    check_valid(context, turn)


# Results of tools


@pytest.mark.parametrize(
    "result",
    [LOG, LONG_JSON, "x" * 300_000, "👨‍👩‍👧‍👦" * 20_000],
    ids=["log", "json", "run", "emoji"],
)
def test_a_giant_result_keeps_its_head_and_its_tail(chat_openai: ChatOpenAI, result: str) -> None:
    turn = turn_with(result)
    for budget in (200, 1_000, 8_000):
        context = pipeline(budget).assemble(turn, **SCOPE)
        fits(context, budget, chat_openai, turn)
        [shown] = results_of(context)
        head, tail = re.split(r"\n?\[… [\d,]+ tokens left out[^\]]*…\]", shown.text)
        is_json = result.startswith("[{")  # it is written anew in front of the marker
        assert (head[:10], (head.strip() if is_json else tail)[-2:]) == (result[:10], result[-2:])
        assert context.report.total_tokens > 0.45 * budget, (
            "what there is, is used, but for the room of the next steps"
        )


def test_a_clipped_result_is_in_the_report_the_marker_says_how_much_is_left_out_and_nothing_given_is_changed(
    call: Call, chat_openai: ChatOpenAI
) -> None:
    turn = turn_with(LOG, [{"type": "text", "text": LOG}, image(1024, 1024)])
    before = copy.deepcopy(turn)
    call(pipeline(600), "assemble", turn, **SCOPE)
    assert turn == before
    made = pipeline(1_000, CHAT)
    turn = turn_with(LOG)
    context = call(made, "assemble", turn, **SCOPE)
    assert "Wilma" in str(context.messages), "it leaves room for the conversation"
    question, clipped = context.report.layer("L7").items
    assert (question.status, question.reason) == (Status.INCLUDED, Reason.REQUIRED)
    assert (clipped.status, clipped.reason) == (Status.SHRUNK, Reason.CLIPPED)
    frame = chat_openai.get_num_tokens_from_messages([])
    assert clipped.tokens == chat_openai.get_num_tokens_from_messages(context.messages[-2:]) - frame
    [shown] = results_of(context)
    said = int(shown.text.split("[… ")[1].split(" ")[0].replace(",", ""))
    assert said == pytest.approx(
        chat_openai.get_num_tokens(LOG) - chat_openai.get_num_tokens(shown.text), abs=40
    )
    call(made, "add_messages", turn, **SCOPE)
    call(made, "assemble", "Thanks. What was the last line?", **SCOPE)
    assert call(made, "get_messages", **SCOPE)[-1].content == LOG


def test_an_old_result_of_the_turn_gives_way_before_the_newest(chat_openai: ChatOpenAI) -> None:
    turn: list[BaseMessage] = [HumanMessage("Make it build.")]
    for number in range(40):
        turn += [
            call_of(f"call-{number}"),
            ToolMessage(f"ATTEMPT {number}\n" + LOG, tool_call_id=f"call-{number}"),
        ]
    for budget in (500, 4_000, 12_000):
        context = pipeline(budget).assemble(turn, **SCOPE)
        fits(context, budget, chat_openai, turn)
        shown = results_of(context)
        assert shown[-1].text.startswith("ATTEMPT 39")
        items = context.report.layer("L7")
        listed = sum(item.status is Status.OMITTED for item in items.items) + sum(
            items.more_omitted.values()
        )
        assert listed == 40 - len(shown), "every call that gave way is in the report"


# The user's message


def test_a_giant_message_is_an_error_that_names_floors_and_setting(call: Call) -> None:
    with pytest.raises(BudgetTooSmallError, match='oversized_message="clip"') as caught:
        call(pipeline(1_000), "assemble", LOG, **SCOPE)
    assert caught.value.floors["L7 current message"] > 40_000
    assert caught.value.budget_tokens == 1_000
    assert "max_context_tokens (now 1,000)" in str(caught.value)
    with pytest.raises(BudgetTooSmallError) as caught:
        call(pipeline(20, oversized_message="clip"), "assemble", LOG, **SCOPE)
    assert "oversized_message" not in str(caught.value)
    picture = HumanMessage([{"type": "text", "text": "What is this?"}, image(1_024, 1_024)])
    with pytest.raises(BudgetTooSmallError) as caught:  # an image of the user is never dropped
        call(pipeline(500, oversized_message="clip"), "assemble", picture, **SCOPE)
    assert caught.value.floors["L7 current message"] >= 765


@pytest.mark.parametrize("budget", [150, 1_000, 8_000])
def test_a_giant_message_is_clipped_where_the_settings_say_so(
    chat_openai: ChatOpenAI, budget: int
) -> None:
    context = pipeline(budget, oversized_message="clip").assemble(
        HumanMessage(LOG, id="m1"), **SCOPE
    )
    assert (
        chat_openai.get_num_tokens_from_messages(context.messages)
        == context.report.total_tokens
        <= budget
    )
    check_adds_up(context)
    sent = context.messages[-1]
    assert sent.id == "m1"
    assert (sent.text[:10], sent.text[-9:]) == ("FIRST LINE", "LAST LINE")
    [item] = context.report.layer("L7").items
    assert (item.status, item.reason) == (Status.SHRUNK, Reason.CLIPPED)


pieces = st.sampled_from(
    [
        "word ",
        "2026-11-20 INFO ok\n",
        '{"a": [1, 2]},',
        "北京 ",
        "👩‍🚀",
        "é",
        " ",
        "\n",
        "x",
        "</context>",
        "QUJD",
    ]
)
texts = st.builds(
    lambda piece, times, end: piece * times + end,
    pieces,
    st.integers(1, 3_000),
    st.text(max_size=20),
)
blocks = st.lists(
    texts
    | texts.map(lambda text: {"type": "text", "text": text})
    | st.sampled_from(
        [image(300, 300, "low"), image(600, 600), {"type": "odd", "payload": "p" * 400}]
    ),
    min_size=1,
    max_size=4,
)
contents = texts | blocks


def says_something(content: Any) -> bool:
    said = [block.get("text", "x") if isinstance(block, dict) else block for block in content]
    return any(text.strip() for text in said)


@st.composite
def turns(draw: st.DrawFn) -> list[BaseMessage]:
    turn: list[BaseMessage] = [HumanMessage(draw(contents.filter(says_something)))]
    for round_number in range(draw(st.integers(0, 3))):
        ids = [f"c{round_number}-{n}" for n in range(draw(st.integers(1, 3)))]
        turn.append(call_of(*ids))
        turn += [ToolMessage(draw(contents), tool_call_id=key) for key in ids]
    return turn


@settings(deadline=None, suppress_health_check=list(HealthCheck), max_examples=60)
@given(turn=turns(), budget=st.integers(1, 3_000), oversized=st.sampled_from(["error", "clip"]))
def test_any_turn_fits_or_its_floors_do(
    turn: list[BaseMessage], budget: int, oversized: str
) -> None:
    made = pipeline(budget, oversized_message=oversized)
    try:
        context = made.assemble(turn, **SCOPE)
    except BudgetTooSmallError as error:
        floor = sum(error.floors.values())
        assert floor > budget, "the floors are over the budget"
        again = pipeline(floor, oversized_message=oversized).assemble(turn, **SCOPE)
        assert again.report.total_tokens <= floor, "and enough of a budget"
        return
    assert context.report.total_tokens <= budget
    check_adds_up(context)
    shown = [message for message in context.messages if isinstance(message, ToolMessage)]
    asked = [
        key["id"]
        for message in context.messages
        if isinstance(message, AIMessage)
        for key in message.tool_calls
    ]
    assert [message.tool_call_id for message in shown] == asked
    human = next(message for message in context.messages if isinstance(message, HumanMessage))
    if oversized == "error" and isinstance(turn[0].content, str):
        assert human.text.endswith(turn[0].content), "never cut without being told to"


# The system prompt, and errors


def test_a_system_prompt_over_its_share_of_the_window_is_an_error_that_says_so(call: Call) -> None:
    profile: Any = {"max_input_tokens": 1_000}
    model = ChatOpenAI(model="gpt-4o", api_key="not-used", profile=profile)
    made = ContextPipeline(system_prompt="rule " * 260, model=model, store=InMemoryStore())
    with pytest.raises(
        SystemPromptTooLargeError, match="25% of the model's window of 1,000 tokens"
    ) as caught:
        call(made, "assemble", "Hello", **SCOPE)
    assert caught.value.budget_tokens == 250 < caught.value.floors["L0 system prompt"]
    assert "max_system_share" in str(caught.value)
    made = ContextPipeline(system_prompt="rule " * 249, model=model, store=InMemoryStore())
    assert call(made, "assemble", "Hello", **SCOPE).report.layer("L0").used_tokens == 250
    made = ContextPipeline(
        {"window_tokens": 1_000}, system_prompt="rule " * 260, store=InMemoryStore()
    )
    with pytest.raises(SystemPromptTooLargeError):
        call(made, "assemble", "Hello", **SCOPE)
    assert (
        call(made, "assemble", "Hello", settings={"max_system_share": 0.5}, **SCOPE)
        .messages[0]
        .text
    )
    made = ContextPipeline(
        {"max_context_tokens": 300}, system_prompt="rule " * 260, store=InMemoryStore()
    )
    assert call(made, "assemble", "Hello", **SCOPE).report.total_tokens <= 300  # there is no window
