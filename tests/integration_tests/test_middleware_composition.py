"""`ContextBudgetMiddleware` beside other middleware.

LangChain's own in both orders, and what changes a request.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import middleware as langchain_middleware
from langchain_core.messages import BaseMessage, HumanMessage, SystemMessage

from langchain_ctxbudget.integrations.middleware import NOT_FOLLOWED
from tests.integration_tests import agents
from tests.integration_tests.openai_server import calls, refuses, says
from tests.integration_tests.strict_openai_server import StrictOpenAIServer, recount

pytestmark = [pytest.mark.allow_hosts(["127.0.0.1"]), pytest.mark.usefixtures("offline_tiktoken")]

LAST = "ours last"
FIRST = "ours first"
both_orders = pytest.mark.parametrize("order", [LAST, FIRST])

STOCK: dict[str, Callable[[], Any]] = {
    "model call limit": lambda: langchain_middleware.ModelCallLimitMiddleware(run_limit=10),
    "tool call limit": lambda: langchain_middleware.ToolCallLimitMiddleware(run_limit=1),
    "tool retry": lambda: langchain_middleware.ToolRetryMiddleware(initial_delay=0),
    "tool error": lambda: langchain_middleware.ToolErrorMiddleware(on_error=str),
    "model retry": lambda: langchain_middleware.ModelRetryMiddleware(initial_delay=0),
    "model fallback": lambda: langchain_middleware.ModelFallbackMiddleware(agents.scripted()),
    "redaction": lambda: langchain_middleware.PIIMiddleware(
        "email", apply_to_output=True, apply_to_tool_results=True
    ),
    "summarization": lambda: langchain_middleware.SummarizationMiddleware(
        agents.scripted("Much."), trigger=("messages", 6), keep=("messages", 4)
    ),
    "context editing": lambda: langchain_middleware.ContextEditingMiddleware(
        edits=[langchain_middleware.ClearToolUsesEdit(trigger=100, keep=0)]
    ),
    "emulated tools": lambda: langchain_middleware.LLMToolEmulator(
        model=agents.scripted("Made up.")
    ),
    "file search": lambda: langchain_middleware.FilesystemFileSearchMiddleware(
        root_path=str(Path(__file__).parent), use_ripgrep=False
    ),
}


def in_order(order: str, other: Any, ours: Any) -> list[Any]:
    return [other, ours] if order == LAST else [ours, other]


def said(messages: Sequence[BaseMessage]) -> list[tuple[str, str]]:
    return [(message.type, message.text) for message in messages]


# -- LangChain's own


ANSWERS = [
    made
    for n in range(3)
    for made in (
        agents.wants("look_up", "look_up", key=f"t{n}-", topic="b@example.org"),
        f"Found {n}; mail ada@example.org.",
    )
]


@pytest.mark.parametrize("name", STOCK)
def test_beside_another_middleware_the_state_is_what_it_is_without_ours(name: str) -> None:
    for order in (LAST, FIRST):
        kept = []
        for middleware in ([STOCK[name]()], in_order(order, STOCK[name](), agents.budget())):
            agent = agents.agent_of(
                agents.scripted(*ANSWERS),
                *middleware,
                tools=[agents.look_up],
                system_prompt="You help.",
            )
            for n in range(3):
                state = agents.ask(agent, ("human", f"Mail {n}@example.org of the tree?"))
            kept.append(said(state["messages"]))
        assert kept[0] == kept[1]


@pytest.mark.parametrize("name", STOCK)
def test_beside_another_middleware_requests_are_valid_and_counted(name: str) -> None:
    for order in (LAST, FIRST):

        def answer(_: object) -> Mapping[str, Any]:
            number = len(server.received)
            topics = ("tree", "b@example.org")
            return (
                calls(*((f"k{number}{t[0]}", "look_up", {"topic": t}) for t in topics))
                if number % 2
                else says("Found.")
            )

        with StrictOpenAIServer(answer, max_tokens=agents.BUDGET_TOKENS) as server:
            agent = agents.agent_of(
                agents.openai(server),
                *in_order(order, STOCK[name](), agents.budget()),
                tools=[agents.look_up],
            )
            for n in range(3):
                state = agents.ask(agent, ("human", f"Mail {n}@example.org of the tree?"))
        assert server.refused == []
        assert recount(server.received[-1]) <= state["ctxbudget_report"]["total_tokens"]


@both_orders
def test_a_fallback_gets_a_prompt_of_its_own_window_where_ours_is_last(order: str) -> None:
    with StrictOpenAIServer() as server:
        server.fault_of = lambda body: refuses(500) if body["model"] == "gpt-4o" else server.fault
        small = agents.openai(
            server, "gpt-4o-mini", profile={"max_input_tokens": 900, "max_output_tokens": 100}
        )
        agent = agents.agent_of(
            agents.openai(server),
            *in_order(
                order, langchain_middleware.ModelFallbackMiddleware(small), agents.budget(3_000)
            ),
        )
        state = agents.ask(
            agent,
            {"messages": [*agents.long_history(100), HumanMessage("Who planted the apple tree?")]},
        )
    first, second = server.received
    assert recount(first) > 800
    assert (recount(second) <= 800) == (order == LAST)
    assert (state["ctxbudget_report"]["window_tokens"] == 900) == (order == LAST)


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
    "before the history": (
        lambda m: [FILE, *m],
        [*HISTORY, ("human", FILE.text), ("human", "Two?")],
    ),
    "before the turn": (
        lambda m: [*m[:-1], FILE, m[-1]],
        [*HISTORY, ("human", FILE.text), ("human", "Two?")],
    ),
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
def test_what_middleware_before_ours_does_to_a_request_is_seen_or_told(name: str) -> None:
    for schema in [None, agents.ListedState]:
        change, seen = CHANGES[name]
        ours = agents.budget()
        model = agents.scripted()
        agent = agents.agent_of(model, changing(change), ours, state_schema=schema)
        agents.ask(agent, HumanMessage("One?"))
        state = agents.ask(agent, HumanMessage("Two?"))
        assert said(model.seen[1]) == seen
        told = NOT_FOLLOWED in state["ctxbudget_report"]["failures"]
        assert told == (name in ("without the history", "another history"))
        assert said(state["messages"]) == [*HISTORY, ("human", "Two?"), ("ai", "Fine.")]
        assert said(ours.pipeline.get_messages(user_id="ada", conversation_id="c1")) == said(
            state["messages"]
        )


def test_added_messages_do_not_change_the_block_while_an_agent_loops() -> None:
    model = agents.scripted(agents.wants("look_up", topic="tree"), "Done.")
    ours = agents.budget(settings={"layers": [agents.clock_layer()]})
    agents.ask(
        agents.agent_of(model, changing(lambda m: [FILE, *m]), ours, tools=[agents.look_up]),
        HumanMessage("Which tree?", id="q"),
    )
    assert model.seen[1][:2] == model.seen[0]


def system_of(blocks: list[Any], **options: Any) -> tuple[SystemMessage, dict[str, Any]]:
    model = agents.scripted()
    agent = agents.agent_of(model, agents.budget(**options), system_prompt=SystemMessage(blocks))
    state = agents.ask(agent, ("human", "Hi"))
    sent = model.seen[0][0]
    assert isinstance(sent, SystemMessage)
    return sent, state["ctxbudget_report"]


def block(text: str, **marks: Any) -> dict[str, Any]:
    return {"type": "text", "text": text, **marks}


def test_marks_of_the_system_prompt_are_told() -> None:
    sent, report = system_of(
        [block("You help.", cache_control={"type": "ephemeral"}), block("Be brief.")]
    )
    assert sent.text.split() == ["You", "help.", "Be", "brief."]
    assert any("without cache_control" in told for told in report["failures"])


def test_what_is_no_text_in_the_system_prompt_is_left_out_and_told() -> None:
    given = [block("You help."), {"type": "image", "url": "http://x.invalid/a.png"}]
    sent, report = system_of(given)
    assert sent.content == "You help."
    assert any("without a block of type 'image'" in told for told in report["failures"])
