"""A medium for which there is no room takes neither the other steps of its turn nor the history."""

import base64
from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import AssembledContext, ContextPipeline, build_context_graph
from langchain_ctxbudget.budget import Reason, Status
from langchain_ctxbudget.errors import BudgetTooSmallError
from langchain_ctxbudget.middleware import ContextBudgetMiddleware
from tests.cases import few_are_quick
from tests.integration_tests.test_pictures import Looking, png
from tests.integration_tests.test_pictures import new_pipeline as any_form

SCOPE = {"user_id": "ada", "conversation_id": "files"}
STEPS = 6
BUDGETS = few_are_quick([4_000, 8_000, 16_000, 32_000, 64_000, 128_000], quick=2)


@cache
def zeros(size: int) -> str:
    return base64.b64encode(b"%PDF-1.7\n" + bytes(size)).decode()


def pdf(tokens: int) -> dict[str, Any]:
    """A PDF that costs about so many tokens; a page of 27 KB counts as 3,000."""
    return {"type": "file", "base64": zeros(tokens * 9), "mime_type": "application/pdf"}


PICTURE = {"type": "image", "base64": png(), "mime_type": "image/png"}


def new_pipeline(budget: int, **settings: Any) -> ContextPipeline:
    return ContextPipeline(
        {"max_context_tokens": budget, "learn": False, **settings},
        model="gpt-4o",
        store=InMemoryStore(),
    )


def step(number: int, *blocks: Any) -> list[BaseMessage]:
    call = {"name": "read", "args": {"number": number}, "id": f"call-{number}"}
    content = [{"type": "text", "text": f"Result {number}."}, *blocks]
    return [AIMessage("", tool_calls=[call]), ToolMessage(content, tool_call_id=f"call-{number}")]


def turn(blocks: dict[int, Any], steps: int = STEPS) -> list[BaseMessage]:
    """A turn whose steps have short texts, and some of them a block."""
    messages: list[BaseMessage] = [HumanMessage("Read the files.")]
    for number in range(steps):
        messages += step(number, *([blocks[number]] if number in blocks else []))
    return messages


def prompts(
    pipeline: ContextPipeline, messages: Sequence[BaseMessage]
) -> list[tuple[int, AssembledContext]]:
    """The prompts of a turn, each behind the number of its steps."""
    ends = range(3, len(messages) + 1, 2)
    return [
        (number, pipeline.assemble(messages[:end], **SCOPE))
        for number, end in enumerate(ends, start=1)
    ]


def steps_in(messages: Sequence[BaseMessage], steps: int = STEPS) -> list[int]:
    text = "\n".join(message.text for message in messages)
    return [number for number in range(steps) if f"Result {number}." in text]


@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("numbers", [[2], list(range(STEPS))], ids=["one", "all"])
def test_a_pdf_over_the_budget_takes_no_other_step(budget: int, numbers: list[int]) -> None:
    messages = turn({number: pdf(2 * budget) for number in numbers})

    for count, context in prompts(new_pipeline(budget), messages):
        assert steps_in(context.messages) == list(range(count))


def test_a_line_tells_of_it_in_its_own_result() -> None:
    context = new_pipeline(4_000).assemble(turn({2: pdf(9_000)}), **SCOPE)

    results = [message for message in context.messages if isinstance(message, ToolMessage)]
    assert ["left out: application/pdf" in result.text for result in results] == [
        number == 2 for number in range(STEPS)
    ]


def test_the_report_tells_of_it() -> None:
    report = new_pipeline(4_000).assemble(turn({2: pdf(9_000)}), **SCOPE).report

    shrunk = [item.reason for item in report.layer("L7").items if item.status is Status.SHRUNK]
    assert shrunk == [Reason.CLIPPED]


def test_later_prompts_go_on_where_the_one_before_ended() -> None:
    contexts = [
        context for _, context in prompts(new_pipeline(4_000), turn({1: pdf(9_000)}, steps=8))
    ]

    for before, after in pairwise(contexts[1:]):
        assert after.messages[: len(before.messages)] == before.messages


@pytest.mark.parametrize("budget", BUDGETS)
def test_steps_left_out_for_a_medium_come_back_when_it_gives_way(budget: int) -> None:
    """The PDF fits alone, but not beside the other steps."""
    messages = turn({10: pdf(budget - 150)}, steps=16)

    contexts = dict(prompts(new_pipeline(budget), messages))

    assert steps_in(contexts[16].messages, 16) == list(range(16))


def test_a_medium_over_the_budget_leaves_the_history() -> None:
    pipeline = new_pipeline(4_000)
    said = [HumanMessage(f"Note {number}: " + "word " * 150) for number in range(15)]
    pipeline.add_messages(said, **SCOPE)

    context = pipeline.assemble(turn({2: pdf(9_000)}), **SCOPE)

    shown = [message.content for message in context.messages[: len(said)]]
    assert shown == [message.content for message in said]


def test_a_medium_over_the_budget_leaves_those_beside_it() -> None:
    messages = [HumanMessage("Look."), *step(0, PICTURE, pdf(9_000), PICTURE)]

    context = any_form(4_000).assemble(messages, **SCOPE)

    content = context.messages[-1].content
    assert [block["type"] for block in content] == ["text", "image", "text", "image"]


def test_in_the_history_too() -> None:
    pipeline = any_form(8_000)
    round_ = step(0, PICTURE, pdf(20_000))
    pipeline.add_messages([HumanMessage("Look."), *round_, AIMessage("I see.")], **SCOPE)

    context = pipeline.assemble("And now?", **SCOPE)

    [result] = [message for message in context.messages if isinstance(message, ToolMessage)]
    assert PICTURE in result.content


def test_older_pictures_of_the_user_do_not_take_the_steps() -> None:
    question = HumanMessage([{"type": "text", "text": "Compare."}, *[PICTURE] * 12])
    messages = [question, *turn({})[1:]]

    for count, context in prompts(new_pipeline(4_000), messages):
        assert steps_in(context.messages) == list(range(count))
        assert PICTURE in context.messages[0].content


@tool
def read(number: int) -> list[dict[str, Any]]:
    """Read a file."""
    return [{"type": "text", "text": f"Result {number}."}, pdf(9_000)]


def test_an_agent_with_the_middleware_keeps_all_its_steps() -> None:
    answers = [step(number)[0] for number in range(STEPS)]
    model = Looking(messages=iter([*answers, AIMessage("Done.")]), seen=[])
    agent = create_agent(model, [read], middleware=[ContextBudgetMiddleware(new_pipeline(4_000))])

    agent.invoke(
        {"messages": [HumanMessage("Read.")]},
        {"configurable": {"user_id": "ada", "thread_id": "files"}, "recursion_limit": 200},
    )

    assert [len(steps_in(messages)) for messages in model.seen] == list(range(STEPS + 1))


def test_a_graph_keeps_all_steps() -> None:
    pipeline = ContextPipeline({"max_context_tokens": 4_000}, model="gpt-4o")
    messages = turn({number: pdf(9_000) for number in range(STEPS)})

    state = build_context_graph(pipeline).invoke(
        {"messages": messages},
        {"configurable": {"user_id": "ada", "conversation_id": "files", "thread_id": "files"}},
    )

    assert steps_in(state["llm_input_messages"]) == list(range(STEPS))


# In an earlier message of the user


def asked_later(*behind: BaseMessage) -> list[BaseMessage]:
    """A turn with a file in its first message, and a question at its end."""
    file = HumanMessage([{"type": "text", "text": "Read it."}, pdf(6_000)])
    return [file, *behind, HumanMessage("And?")]


@pytest.mark.parametrize(
    "behind", few_are_quick([[AIMessage("I have.")], [], step(1), [*step(1), *step(2)]], 2)
)
@pytest.mark.parametrize("oversized", few_are_quick(["error", "clip"]))
def test_a_file_of_an_earlier_message_gives_way_to_a_line(
    behind: list[BaseMessage], oversized: str
) -> None:
    pipeline = new_pipeline(4_000, oversized_message=oversized)

    messages = pipeline.assemble(asked_later(*behind), **SCOPE).messages

    assert messages[0].text.startswith("Read it.")
    assert "[file left out: application/pdf, " in messages[0].text
    assert messages[-1].text == "And?"


def test_a_file_of_an_earlier_message_stays_where_it_has_room() -> None:
    messages = new_pipeline(32_000).assemble(asked_later(AIMessage("I have.")), **SCOPE).messages

    assert messages[0].content[1] == pdf(6_000)


def test_the_only_file_of_the_newest_message_is_refused() -> None:
    question = HumanMessage([{"type": "text", "text": "And?"}, pdf(6_000)])

    with pytest.raises(BudgetTooSmallError, match="current message"):
        new_pipeline(4_000).assemble([*asked_later(), AIMessage("Yes?"), question], **SCOPE)
