"""Pictures in the results of tools, for providers that take text alone there.

They stand in a message of the user behind the results of their round: an agent still sees.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from langchain_ollama import ChatOllama
from langchain_openai import ChatOpenAI
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import AssembledContext, BudgetedChatMessageHistory, ContextPipeline
from langchain_ctxbudget.integrations.graph import build_context_graph
from langchain_ctxbudget.middleware import ContextBudgetMiddleware
from langchain_ctxbudget.tokens import TokenCounter
from tests.cases import few_are_quick
from tests.doubles.providers import CHAT
from tests.fuzz import samples
from tests.integration_tests.test_pictures import Looking

SCOPE = {"user_id": "ada", "conversation_id": "screen"}
CONFIG: Any = {
    "configurable": {"user_id": "ada", "thread_id": "screen"},
    "recursion_limit": 200,
}
PNG = samples.picture(1_024, 768)
PICTURE = {"type": "image", "base64": PNG, "mime_type": "image/png"}
OF_ANTHROPIC = {
    "type": "image",
    "source": {"type": "base64", "media_type": "image/png", "data": PNG},
}
ROUNDS = {4_000: 12, 8_000: 25, 32_000: 60}


def new_pipeline(budget: int, **changes: Any) -> ContextPipeline:
    return ContextPipeline(
        {"max_context_tokens": budget, "learn": False},
        **{
            "model": CHAT.model,
            "system_prompt": "You operate a screen.",
            "store": InMemoryStore(),
            **changes,
        },
    )


def round_with(number: int, *pictures: Any) -> list[BaseMessage]:
    """Calls of the screen, each with a picture of it."""
    calls = [
        {"name": "look", "args": {"screen": number}, "id": f"call-{number}-{at}"}
        for at in range(len(pictures))
    ]
    results = [
        ToolMessage(
            [{"type": "text", "text": f"Screen {number}"}, picture],
            tool_call_id=call["id"],
            name="look",
        )
        for call, picture in zip(calls, pictures, strict=True)
    ]
    return [AIMessage("", tool_calls=calls), *results]


def kinds_of(messages: Sequence[BaseMessage]) -> list[str]:
    return [message.type for message in messages]


def check(pipeline: ContextPipeline, context: AssembledContext, budget: int) -> None:
    counted = pipeline.token_counter.count_messages(context.messages)
    assert counted == context.report.total_tokens <= budget
    assert CHAT.problems(context.messages) == []


# Where a picture stands


@pytest.mark.parametrize("picture", [PICTURE, OF_ANTHROPIC], ids=["LangChain's", "Anthropic's"])
def test_a_picture_stands_behind_the_results_of_its_round(picture: Any) -> None:
    pipeline = new_pipeline(8_000)
    turn = [HumanMessage("Look."), *round_with(1, "", picture, "")]
    for result in (turn[2], turn[4]):
        result.content = "Nothing."

    context = pipeline.assemble(turn, **SCOPE)

    assert kinds_of(context.messages[2:]) == ["ai", "tool", "tool", "tool", "human"]
    assert context.messages[-1].content[-1] == picture


def test_each_result_has_a_message_of_its_own() -> None:
    context = new_pipeline(8_000).assemble(
        [HumanMessage("Look."), *round_with(1, PICTURE, PICTURE)], **SCOPE
    )
    assert kinds_of(context.messages[2:]) == ["ai", "tool", "tool", "human", "human"]


def test_a_result_says_that_its_picture_follows() -> None:
    context = new_pipeline(8_000).assemble(
        [HumanMessage("Look."), *round_with(1, PICTURE)], **SCOPE
    )
    result, shown = context.messages[-2:]
    assert result.text == "Screen 1[image: in the message behind these results]"
    assert shown.text == "[From the result of look]"


@pytest.mark.parametrize(("name", "shown_name"), [(None, "look"), ("own", "own")])
def test_a_result_without_a_name_has_that_of_its_call(name: str | None, shown_name: str) -> None:
    pipeline = new_pipeline(8_000)
    turn = [HumanMessage("Look."), *round_with(1, PICTURE)]
    turn[-1].name = name

    context = pipeline.assemble(turn, **SCOPE)

    assert context.messages[-1].text == f"[From the result of {shown_name}]"
    check(pipeline, context, 8_000)


def test_it_is_told_in_the_report() -> None:
    context = new_pipeline(8_000).assemble(
        [HumanMessage("Look."), *round_with(1, PICTURE)], **SCOPE
    )
    assert [repair.kind for repair in context.report.repairs] == ["media"]


def test_what_is_stored_has_the_picture_in_its_result() -> None:
    pipeline = new_pipeline(8_000)
    messages = [HumanMessage("Look."), *round_with(1, PICTURE), AIMessage("A form.")]
    pipeline.add_messages(messages, **SCOPE)

    pipeline.assemble("And now?", **SCOPE)

    stored = pipeline.get_messages(**SCOPE)
    assert stored[2].content == messages[2].content


@pytest.mark.parametrize(
    "model",
    [
        "gpt-4o",
        ChatOpenAI(model="qwen", base_url="http://localhost:1/v1", api_key="x"),
        ChatOllama(model="qwen"),
    ],
    ids=["OpenAI", "a compatible server", "Ollama"],
)
def test_who_takes_text_alone_in_results(model: Any) -> None:
    turn = [HumanMessage("Look."), *round_with(1, PICTURE)]
    context = new_pipeline(8_000, model=model).assemble(turn, **SCOPE)
    assert kinds_of(context.messages[-2:]) == ["tool", "human"]


@pytest.mark.parametrize("provider", ["openai-responses", "anthropic", "google", "mistral"])
def test_who_takes_pictures_in_results(provider: str) -> None:
    turn = [HumanMessage("Look."), *round_with(1, PICTURE)]
    context = new_pipeline(8_000, provider=provider).assemble(turn, **SCOPE)
    assert context.messages[-1].type == "tool"


# A loop that looks at a screen


@pytest.fixture(scope="module", params=few_are_quick([8_000, 4_000, 32_000]))
def loop(request: pytest.FixtureRequest) -> tuple[int, ContextPipeline, list[AssembledContext]]:
    budget = request.param
    pipeline = new_pipeline(budget)
    messages: list[BaseMessage] = [HumanMessage("Book the flight.")]
    contexts = []
    for number in range(ROUNDS[budget]):
        messages += round_with(number, PICTURE)
        contexts.append(pipeline.assemble(messages, **SCOPE))
    return budget, pipeline, contexts


Loop = tuple[int, ContextPipeline, list[AssembledContext]]


@pytest.mark.slow
def test_every_round_sees_its_newest_picture(loop: Loop) -> None:
    _, _, contexts = loop
    newest = [context.messages[-1].content[-1] for context in contexts]
    assert newest == [PICTURE] * len(contexts)


@pytest.mark.slow
def test_every_prompt_of_it_fits_and_is_taken(loop: Loop) -> None:
    budget, pipeline, contexts = loop
    for context in contexts:
        check(pipeline, context, budget)


def test_no_prompt_of_it_was_made_twice(loop: Loop) -> None:
    _, _, contexts = loop
    assert [context.report.failures for context in contexts] == [()] * len(contexts)


def test_prompts_go_on_from_the_ones_before(loop: Loop) -> None:
    _, _, contexts = loop
    begins = [
        [it.content for it in new.messages[: len(old.messages)]]
        == [it.content for it in old.messages]
        for old, new in pairwise(contexts)
    ]
    assert begins.count(True) >= len(begins) / 2


# Every way


@tool
def look(number: int) -> list[dict[str, Any]]:
    """Look at the screen."""
    return [{"type": "text", "text": f"Screen {number}"}, PICTURE]


@pytest.mark.slow
def test_an_agent_with_the_middleware_sees() -> None:
    rounds = 25
    calls = [{"name": "look", "args": {"number": at}, "id": f"c{at}"} for at in range(rounds)]
    answers = [*(AIMessage("", tool_calls=[call]) for call in calls), AIMessage("Booked.")]
    model = Looking(messages=iter(answers), seen=[])
    middleware = ContextBudgetMiddleware(new_pipeline(8_000, provider="openai"))
    agent = create_agent(model, [look], middleware=[middleware])

    agent.invoke({"messages": [HumanMessage("Book the flight.")]}, CONFIG)

    newest = [messages[-1].content[-1] for messages in model.seen[1:]]
    assert newest == [PICTURE] * rounds


@pytest.mark.parametrize("budget", few_are_quick([8_000, 4_000, 128_000]))
def test_a_graph_sees(budget: int) -> None:
    graph = build_context_graph(new_pipeline(budget))
    messages = [HumanMessage("Book."), *round_with(1, PICTURE), *round_with(2, PICTURE)]

    state = graph.invoke({"messages": messages}, CONFIG)

    assert state["llm_input_messages"][-1].content[-1] == PICTURE
    assert CHAT.problems(state["llm_input_messages"]) == []


@pytest.mark.parametrize("budget", few_are_quick([8_000, 4_000, 128_000]))
def test_a_window_sees_and_fits(budget: int) -> None:
    pipeline = new_pipeline(budget)
    history = BudgetedChatMessageHistory("screen", user_id="ada", pipeline=pipeline)
    for number in range(20):
        history.add_messages([HumanMessage("And now?"), *round_with(number, PICTURE)])
        history.add_messages([AIMessage("A form.")])

    window = history.window(budget)

    assert pipeline.token_counter.count_messages(window) <= budget
    assert CHAT.problems([SystemMessage("Look."), *window]) == []
    assert window[-2].content[-1] == PICTURE


def test_a_whole_history_sees() -> None:
    history = BudgetedChatMessageHistory("c", user_id="ada", pipeline=new_pipeline(8_000))
    history.add_messages([HumanMessage("Look."), *round_with(1, PICTURE)])
    assert kinds_of(history.messages) == ["human", "ai", "tool", "human"]


# Costs


def test_counts_that_were_corrected_are_exact() -> None:
    pipeline = new_pipeline(8_000)
    first = pipeline.assemble("word " * 900, **SCOPE)
    measured = int(first.report.total_tokens * 1.4)
    usage = {"input_tokens": measured, "output_tokens": 1, "total_tokens": measured + 1}
    assert pipeline.observe_usage(usage, report=first.report) > 1
    turn = [HumanMessage("Look."), *round_with(1, PICTURE, PICTURE)]

    context = pipeline.assemble(turn, **SCOPE)

    assert pipeline.token_counter.count_messages(context.messages) == context.report.total_tokens
    assert context.report.failures == ()


class Characters(TokenCounter):
    name = "characters"
    mode = "estimated"

    def _count(self, text: str) -> int:
        return len(text)


def test_an_own_counter_is_exact() -> None:
    pipeline = new_pipeline(32_000, token_counter=Characters())
    turn = [HumanMessage("Look."), *round_with(1, PICTURE)]
    context = pipeline.assemble(turn, **SCOPE)
    assert pipeline.token_counter.count_messages(context.messages) == context.report.total_tokens


def test_a_stored_conversation_is_counted_once() -> None:
    store = InMemoryStore()
    messages: list[BaseMessage] = []
    for number in range(10):
        messages += [HumanMessage("And now?"), *round_with(number, PICTURE), AIMessage("A form.")]
    new_pipeline(32_000, store=store).add_messages(messages, **SCOPE)

    for provider in ("openai", "openai-responses", "openai"):
        pipeline = new_pipeline(32_000, store=store, provider=provider)
        context = pipeline.assemble("And now?", **SCOPE)
        assert context.report.failures == ()
        counted = pipeline.token_counter.count_messages(context.messages)
        assert counted == context.report.total_tokens
