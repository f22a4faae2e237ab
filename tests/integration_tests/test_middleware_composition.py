"""`ContextBudgetMiddleware` beside other middleware: LangChain's own in both orders, and what changes a request."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from langchain.agents.middleware import (
    ClearToolUsesEdit,
    ContextEditingMiddleware,
    FilesystemFileSearchMiddleware,
    HumanInTheLoopMiddleware,
    LLMToolEmulator,
    LLMToolSelectorMiddleware,
    ModelCallLimitMiddleware,
    ModelFallbackMiddleware,
    ModelRetryMiddleware,
    PIIMiddleware,
    SummarizationMiddleware,
    TodoListMiddleware,
    ToolCallLimitMiddleware,
    ToolErrorMiddleware,
    ToolRetryMiddleware,
    dynamic_prompt,
    wrap_model_call,
)
from langchain_anthropic import ChatAnthropic
from langchain_anthropic.middleware import AnthropicPromptCachingMiddleware
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.types import Command
from pydantic import SecretStr

from langchain_ctxbudget import EstimatingCounter, TiktokenCounter
from langchain_ctxbudget.errors import EmptyMessageError
from langchain_ctxbudget.middleware import NOT_FOLLOWED
from tests.integration_tests.openai_server import calls, refuses, says
from tests.integration_tests.strict_openai_server import StrictOpenAIServer, recount
from tests.integration_tests.test_middleware import (
    BUDGET_TOKENS,
    Ask,
    Scripted,
    agent_of,
    ask,
    budget,
    clock_layer,
    in_two_ways,
    long_history,
    look_up,
    openai,
    run_agent,
    scripted,
    wants,
)

__all__ = ["ask"]
pytestmark = [pytest.mark.allow_hosts(["127.0.0.1"]), pytest.mark.usefixtures("offline_tiktoken")]

LAST, FIRST = "ours last", "ours first"
both_orders = pytest.mark.parametrize("order", [LAST, FIRST])

STOCK: dict[str, Callable[[], Any]] = {
    "model call limit": lambda: ModelCallLimitMiddleware(run_limit=10),
    "tool call limit": lambda: ToolCallLimitMiddleware(run_limit=1),
    "tool retry": lambda: ToolRetryMiddleware(initial_delay=0),
    "tool error": lambda: ToolErrorMiddleware(on_error=str),
    "model retry": lambda: ModelRetryMiddleware(initial_delay=0),
    "model fallback": lambda: ModelFallbackMiddleware(scripted()),
    "redaction": lambda: PIIMiddleware("email", apply_to_output=True, apply_to_tool_results=True),
    "summarization": lambda: SummarizationMiddleware(scripted("Much."), trigger=("messages", 6), keep=("messages", 4)),
    "context editing": lambda: ContextEditingMiddleware(edits=[ClearToolUsesEdit(trigger=100, keep=0)]),
    "emulated tools": lambda: LLMToolEmulator(model=scripted("Made up.")),
    "file search": lambda: FilesystemFileSearchMiddleware(root_path=str(Path(__file__).parent), use_ripgrep=False),
}


def in_order(order: str, other: Any, ours: Any) -> list[Any]:
    return [other, ours] if order == LAST else [ours, other]


def said(messages: Sequence[BaseMessage]) -> list[tuple[str, str]]:
    return [(message.type, message.text) for message in messages]


# -- LangChain's own


ANSWERS = [
    made
    for n in range(3)
    for made in (wants("look_up", "look_up", key=f"t{n}-", topic="b@example.org"), f"Found {n}; mail ada@example.org.")
]


@in_two_ways
@both_orders
@pytest.mark.parametrize("name", STOCK)
def test_beside_another_middleware_the_state_is_what_it_is_without_ours(ask: Ask, name: str, order: str) -> None:
    kept = []
    for middleware in ([STOCK[name]()], in_order(order, STOCK[name](), budget())):
        agent = agent_of(scripted(*ANSWERS), *middleware, tools=[look_up], system_prompt="You help.")
        for n in range(3):
            state = ask(agent, ("human", f"Mail {n}@example.org of the tree?"))
        kept.append(said(state["messages"]))
    assert kept[0] == kept[1]


@both_orders
@pytest.mark.parametrize("name", STOCK)
def test_beside_another_middleware_requests_are_valid_and_counted(name: str, order: str) -> None:
    def answer(_: object) -> Mapping[str, Any]:
        number = len(server.received)
        topics = ("tree", "b@example.org")
        return calls(*((f"k{number}{t[0]}", "look_up", {"topic": t}) for t in topics)) if number % 2 else says("Found.")

    with StrictOpenAIServer(answer, max_tokens=BUDGET_TOKENS) as server:
        agent = agent_of(openai(server), *in_order(order, STOCK[name](), budget()), tools=[look_up])
        for n in range(3):
            state = run_agent("invoke", agent, ("human", f"Mail {n}@example.org of the tree?"))
    assert server.refused == []
    assert recount(server.received[-1]) <= state["ctxbudget_report"]["total_tokens"]


@both_orders
def test_what_a_middleware_adds_to_the_system_prompt_is_counted_where_ours_is_last(order: str) -> None:
    with StrictOpenAIServer() as server:
        agent = agent_of(openai(server), *in_order(order, TodoListMiddleware(), budget()))
        state = run_agent("invoke", agent, ("human", "Hi"))
    [sent] = server.received
    assert (recount(sent) <= state["ctxbudget_report"]["total_tokens"]) == (order == LAST)


@both_orders
def test_the_tools_that_a_middleware_selects_are_those_that_are_counted_where_ours_is_last(order: str) -> None:
    chooses = StrictOpenAIServer(lambda _: says('{"tools": ["look_up"]}'))
    with StrictOpenAIServer() as server, chooses:
        selector = LLMToolSelectorMiddleware(model=openai(chooses))
        agent = agent_of(openai(server), *in_order(order, selector, budget(recall_tool=True)), tools=[look_up])
        state = run_agent("invoke", agent, ("human", "Hi"))
    [sent] = server.received
    counted = state["ctxbudget_report"]["total_tokens"]
    assert [made["function"]["name"] for made in sent["tools"]] == ["look_up"]
    assert recount(sent) <= counted
    assert (counted < recount(sent) + 40) == (order == LAST)


@both_orders
def test_a_call_is_approved_and_the_same_prompt_goes_on(ask: Ask, order: str) -> None:
    model = scripted(wants("look_up", topic="tree"), "Done.")
    ours = budget(settings={"layers": [clock_layer()]})
    agent = agent_of(model, *in_order(order, HumanInTheLoopMiddleware({"look_up": True}), ours), tools=[look_up])
    assert "__interrupt__" in ask(agent, HumanMessage("Which tree?", id="q"))
    state = ask(agent, Command(resume={"decisions": [{"type": "approve"}]}))
    assert state["messages"][-1].text == "Done."
    assert model.seen[1][0] == model.seen[0][0]


class Flaky(Scripted):
    """A model whose first call fails."""

    def _generate(self, messages: Any, *args: Any, **kwargs: Any) -> Any:
        result = super()._generate(messages, *args, **kwargs)
        if len(self.seen) == 1:
            raise TimeoutError("too slow")
        return result


@both_orders
def test_a_call_that_fails_is_repeated_with_the_same_prompt(ask: Ask, order: str) -> None:
    model = Flaky(responses=[AIMessage("Fine.")])
    ours = budget(settings={"layers": [clock_layer()]} if order == FIRST else {})
    agent = agent_of(model, *in_order(order, ModelRetryMiddleware(initial_delay=0), ours))
    state = ask(agent, {"messages": [*long_history(), HumanMessage("And now?")]})
    assert state["messages"][-1].text == "Fine."
    assert model.seen[0] == model.seen[1]
    assert state["ctxbudget_report"]["total_tokens"] > 0


@both_orders
def test_a_fallback_gets_a_prompt_of_its_own_window_where_ours_is_last(order: str) -> None:
    with StrictOpenAIServer() as server:
        server.fault_of = lambda body: refuses(500) if body["model"] == "gpt-4o" else server.fault
        small = openai(server, "gpt-4o-mini", profile={"max_input_tokens": 900, "max_output_tokens": 100})
        agent = agent_of(openai(server), *in_order(order, ModelFallbackMiddleware(small), budget(3_000)))
        state = run_agent("invoke", agent, {"messages": [*long_history(100), HumanMessage("And now?")]})
    first, second = server.received
    assert recount(first) > 900
    assert (recount(second) <= 800) == (order == LAST)
    assert (state["ctxbudget_report"]["window_tokens"] == 900) == (order == LAST)


@both_orders
def test_cache_markers_of_the_system_message_and_of_tools_stay(order: str) -> None:
    seen: list[list[BaseMessage]] = []
    told: list[Mapping[str, Any]] = []

    class Claude(ChatAnthropic):
        def _generate(self, messages: Any, *args: Any, **kwargs: Any) -> ChatResult:
            seen.append(messages)
            told.append(kwargs)
            return ChatResult(generations=[ChatGeneration(message=AIMessage("Fine."))])

    caching = AnthropicPromptCachingMiddleware()
    model = Claude(model_name="claude-sonnet-4-5", api_key=SecretStr("x"), timeout=1, stop=None)
    agent = agent_of(model, *in_order(order, caching, budget()), tools=[look_up], system_prompt="You help.")
    state = run_agent("invoke", agent, ("human", "Hi"))
    assert state["ctxbudget_report"]["count_mode"] == "estimated"
    assert "cache_control" in told[0]
    assert "cache_control" in told[0]["tools"][-1]
    assert "cache_control" in str(seen[0][0].content)


# -- Another model than the pipeline's


def with_model(model: Any) -> Any:
    @wrap_model_call
    async def choose(request: Any, handler: Any) -> Any:
        return await handler(request.override(model=model))

    return choose


def test_a_model_that_middleware_chooses_is_the_one_that_is_counted_for() -> None:
    with StrictOpenAIServer() as server:
        chosen = openai(server, "gpt-4o-mini", profile={"max_input_tokens": 900, "max_output_tokens": 100})
        agent = agent_of(openai(server), with_model(chosen), budget(3_000))
        state = run_agent("ainvoke", agent, {"messages": [*long_history(100), HumanMessage("And now?")]})
    assert state["ctxbudget_report"]["window_tokens"] == 900
    assert recount(server.received[0]) <= 800


def test_a_token_counter_that_was_given_counts_for_every_model() -> None:
    counter = EstimatingCounter()
    with StrictOpenAIServer() as server:
        agent = agent_of(openai(server), with_model(openai(server, "gpt-4.1")), budget(token_counter=counter))
        report = run_agent("ainvoke", agent, ("human", "Hi"))["ctxbudget_report"]
    assert report["tokenizer"] == counter.name != TiktokenCounter().name


def test_a_model_without_a_name_still_has_its_window(ask: Ask) -> None:
    model = Scripted(responses=[AIMessage("Fine.")], profile={"max_input_tokens": 900, "max_output_tokens": 100})
    state = ask(agent_of(model, budget(3_000)), {"messages": [*long_history(100), HumanMessage("And now?")]})
    assert state["ctxbudget_report"]["total_tokens"] <= 800


@pytest.mark.parametrize(("model", "mode"), [("gpt-4o", "exact"), ("claude-opus-4-1", "estimated")])
@pytest.mark.parametrize("measured", [0.5, 1.5])
def test_what_a_provider_reports_corrects_the_counts_and_never_lowers_exact_ones(
    ask: Ask, model: str, mode: str, measured: float
) -> None:
    totals = []
    with StrictOpenAIServer(measure=lambda body: int(recount(body) * measured)) as server:
        agent = agent_of(openai(server, model), budget(4_000, settings={"sources": ()}))
        for n in range(2):
            config = {"configurable": {"thread_id": f"c{n}", "user_id": "ada"}}
            report = ask(agent, {"messages": [*long_history(10), HumanMessage("And now?")]}, config)["ctxbudget_report"]
            totals.append(report["total_tokens"])
    before, after = totals
    assert report["count_mode"] == mode
    if measured > 1:
        assert after > before or after >= int(recount(server.received[-1]) * measured)
    else:
        assert (after == before) if mode == "exact" else (after < before)


# -- What changes a request


def changing(change: Callable[[list[Any]], list[Any]]) -> Any:
    from langchain.agents.middleware import AgentMiddleware  # noqa: PLC0415

    class Changing(AgentMiddleware):
        def wrap_model_call(self, request: Any, handler: Any) -> Any:
            return handler(request.override(messages=change(list(request.messages))))

        async def awrap_model_call(self, request: Any, handler: Any) -> Any:
            return await handler(request.override(messages=change(list(request.messages))))

    return Changing()


FILE = HumanMessage("The file says: 42.")
HISTORY = [("human", "One?"), ("ai", "Fine.")]
CHANGES: dict[str, tuple[Callable[[list[Any]], list[Any]], list[tuple[str, str]]]] = {
    "behind the turn": (lambda m: [*m, FILE], [*HISTORY, ("human", "Two?"), ("human", FILE.text)]),
    "behind the turn, a dict": (
        lambda m: [*m, {"role": "user", "content": FILE.text}],
        [*HISTORY, ("human", "Two?"), ("human", FILE.text)],
    ),
    "before the history": (lambda m: [FILE, *m], [*HISTORY, ("human", FILE.text), ("human", "Two?")]),
    "before the turn": (lambda m: [*m[:-1], FILE, m[-1]], [*HISTORY, ("human", FILE.text), ("human", "Two?")]),
    "instructions": (
        lambda m: [SystemMessage("Be brief."), *m],
        [("system", "Be brief."), *HISTORY, ("human", "Two?")],
    ),
    "the turn's words": (
        lambda m: [*m[:-1], m[-1].model_copy(update={"content": "Three?"})],
        [*HISTORY, ("human", "Three?")],
    ),
    "another turn": (lambda m: [*m[:-1], HumanMessage("Three?")], [*HISTORY, ("human", "Three?")]),
    "without the history": (lambda m: m[-1:], [*HISTORY, ("human", "Two?")]),
    "another history": (
        lambda m: [message.model_copy(update={"content": "XXX"}) for message in m[:-1]] + m[-1:],
        [*HISTORY, ("human", "Two?")],
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_middleware_before_ours_does_to_a_request_is_seen_or_told(ask: Ask, name: str) -> None:
    change, seen = CHANGES[name]
    ours, model = budget(), scripted()
    agent = agent_of(model, changing(change), ours)
    ask(agent, ("human", "One?"))
    state = ask(agent, ("human", "Two?"))
    assert said(model.seen[1]) == seen
    assert (NOT_FOLLOWED in state["ctxbudget_report"]["failures"]) == (
        name in ("without the history", "another history")
    )
    assert said(state["messages"]) == [*HISTORY, ("human", "Two?"), ("ai", "Fine.")]
    assert ours.pipeline.get_messages(user_id="ada", conversation_id="c1") == state["messages"]


def test_middleware_that_leaves_nothing_to_answer_is_told_so(ask: Ask) -> None:
    with pytest.raises(EmptyMessageError):
        ask(agent_of(scripted(), changing(lambda _: []), budget()), ("human", "Hi"))


def test_what_is_added_to_a_long_request_is_counted() -> None:
    added = HumanMessage("The file says a lot. " * 60)
    with StrictOpenAIServer(max_tokens=BUDGET_TOKENS) as server:
        agent = agent_of(openai(server), changing(lambda m: [added, *m]), budget())
        state = run_agent("invoke", agent, {"messages": [*long_history(), HumanMessage("And now?")]})
    assert server.refused == []
    assert recount(server.received[0]) <= state["ctxbudget_report"]["total_tokens"] <= BUDGET_TOKENS


def test_added_messages_do_not_change_the_block_while_an_agent_loops(ask: Ask) -> None:
    model = scripted(wants("look_up", topic="tree"), "Done.")
    ours = budget(settings={"layers": [clock_layer()]})
    ask(agent_of(model, changing(lambda m: [FILE, *m]), ours, tools=[look_up]), HumanMessage("Which tree?", id="q"))
    assert model.seen[1][:2] == model.seen[0]


def test_a_call_that_could_not_be_read_is_answered_once(ask: Ask) -> None:
    broken = AIMessage(
        "",
        id="a1",
        invalid_tool_calls=[{"name": "look_up", "args": "{", "id": "k1", "error": "cut", "type": "invalid_tool_call"}],
    )
    given = [HumanMessage("One?", id="h1"), broken, HumanMessage("Two?", id="h2")]
    with StrictOpenAIServer() as server:
        state = ask(agent_of(openai(server), budget(), tools=[look_up]), {"messages": given})
    [sent] = server.received
    assert [message["role"] for message in sent["messages"]].count("tool") <= 1
    assert sent["messages"][-1]["content"] == "Two?"
    assert "orphan_result" not in str(state["ctxbudget_report"]["repairs"])
    kept = [message for message in state["messages"] if not isinstance(message, ToolMessage)]  # newer agents answer it
    assert [message.id for message in kept[:3]] == ["h1", "a1", "h2"]


def test_a_dynamic_prompt_is_the_system_prompt(ask: Ask) -> None:
    @dynamic_prompt
    def prompt(request: Any) -> str:
        return f"You have {len(request.messages)} messages."

    model = scripted()
    ask(agent_of(model, prompt, budget(system_prompt="You help."), system_prompt="Never shown."), ("human", "Hi"))
    assert said(model.seen[0])[0] == ("system", "You help.\n\nYou have 1 messages.")


def system_of(blocks: list[Any], **options: Any) -> tuple[SystemMessage, dict[str, Any]]:
    """What is sent of a system prompt in blocks, and the report on it."""
    model = scripted()
    agent = agent_of(model, budget(**options), system_prompt=SystemMessage(blocks))
    state = run_agent("invoke", agent, ("human", "Hi"))
    sent = model.seen[0][0]
    assert isinstance(sent, SystemMessage)
    return sent, state["ctxbudget_report"]


def block(text: str, **marks: Any) -> dict[str, Any]:
    return {"type": "text", "text": text, **marks}


MARK = {"cache_control": {"type": "ephemeral"}}


def test_blocks_of_the_system_prompt_are_paragraphs() -> None:
    assert system_of([block("You help."), block("Be brief.")])[0].content == "You help.\n\nBe brief."


def test_a_blank_between_blocks_of_the_system_prompt_is_enough() -> None:
    assert system_of([block("You help."), block("\nBe brief.")])[0].content == "You help.\nBe brief."


def test_blocks_of_the_system_prompt_that_are_marked_stay_blocks() -> None:
    given = [block("You help.", **MARK), block("Be brief.")]
    sent, report = system_of(given)
    assert sent.content == given
    assert not [told for told in report["failures"] if "system message" in told]


def test_what_the_pipeline_says_stands_around_marked_blocks() -> None:
    given = [block("You help.", **MARK), block("Be brief.")]
    sent, _ = system_of(given, system_prompt="Your name is Bo.", settings={"preferences": ["Say du."]})
    first, *own, last = sent.content
    assert (first, own) == (block("Your name is Bo."), given)
    assert "Say du." in last["text"]  # type: ignore[index]


def test_a_marker_of_the_pipeline_stands_behind_marked_blocks() -> None:
    given = [block("You help.", **MARK), "Be brief."]
    assert system_of(given, settings={"cache_markers": "anthropic"})[0].content == [
        given[0],
        block("Be brief.", **MARK),
    ]


def test_what_is_no_text_in_the_system_prompt_is_left_out_and_told() -> None:
    given = [block("You help."), {"type": "image", "url": "http://x.invalid/a.png"}]
    sent, report = system_of(given)
    assert sent.content == "You help."
    assert any("without a block of type 'image'" in told for told in report["failures"])
