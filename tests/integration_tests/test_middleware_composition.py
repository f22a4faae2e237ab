"""`ContextBudgetMiddleware` beside other middleware: LangChain's, and what changes requests."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from langchain.agents import middleware as langchain_middleware
from langchain.agents.middleware import AgentMiddleware
from langchain_core.messages import BaseMessage, HumanMessage, SystemMessage

from langchain_ctxbudget.integrations.middleware import NOT_FOLLOWED
from tests.integration_tests import agents
from tests.integration_tests.openai_server import calls, refuses, says
from tests.integration_tests.strict_openai_server import StrictOpenAIServer, recount

pytestmark = [pytest.mark.allow_hosts(["127.0.0.1"]), pytest.mark.usefixtures("offline_tiktoken")]

LAST = "ours last"
FIRST = "ours first"
both_orders = pytest.mark.parametrize("order", [LAST, FIRST])

Words = tuple[str, str]
"""The type of a message, and its text."""


def in_order(order: str, other: Any, ours: Any) -> list[Any]:
    if order == LAST:
        return [other, ours]
    return [ours, other]


def words_of(messages: Sequence[BaseMessage]) -> list[Words]:
    return [(message.type, message.text) for message in messages]


# -- LangChain's own


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
every_stock = pytest.mark.parametrize("new_stock", STOCK.values(), ids=STOCK)

ANSWERS = [
    agents.wants("look_up", "look_up", key="t0-", topic="b@example.org"),
    "Found 0; mail ada@example.org.",
    agents.wants("look_up", "look_up", key="t1-", topic="b@example.org"),
    "Found 1; mail ada@example.org.",
    agents.wants("look_up", "look_up", key="t2-", topic="b@example.org"),
    "Found 2; mail ada@example.org.",
]


def ask_three_times(agent: Any) -> dict[str, Any]:
    for number in range(3):
        state = agents.ask(agent, ("human", f"Mail {number}@example.org of the tree?"))
    return state


def words_after_three_turns(*middleware: Any) -> list[Words]:
    agent = agents.agent_of(
        agents.scripted(*ANSWERS),
        *middleware,
        tools=[agents.look_up],
        system_prompt="You help.",
    )
    return words_of(ask_three_times(agent)["messages"])


@both_orders
@every_stock
def test_beside_another_middleware_the_state_is_as_without_ours(
    new_stock: Callable[[], Any], order: str
) -> None:
    alone = words_after_three_turns(new_stock())
    together = words_after_three_turns(*in_order(order, new_stock(), agents.budget()))

    assert together == alone


@both_orders
@every_stock
def test_beside_another_middleware_requests_are_valid_and_counted(
    new_stock: Callable[[], Any], order: str
) -> None:
    def answer(_: object) -> Mapping[str, Any]:
        number = len(server.received)
        if number % 2 == 0:
            return says("Found.")
        return calls(
            (f"k{number}t", "look_up", {"topic": "tree"}),
            (f"k{number}b", "look_up", {"topic": "b@example.org"}),
        )

    with StrictOpenAIServer(answer, max_tokens=agents.BUDGET_TOKENS) as server:
        agent = agents.agent_of(
            agents.openai(server),
            *in_order(order, new_stock(), agents.budget()),
            tools=[agents.look_up],
        )
        state = ask_three_times(agent)

    assert server.refused == []
    assert recount(server.received[-1]) <= state["ctxbudget_report"]["total_tokens"]


@pytest.mark.parametrize(
    ("order", "fits", "window_tokens"),
    [
        pytest.param(LAST, True, 900, id="ours last: its own"),
        pytest.param(FIRST, False, 128_000, id="ours first: that of the first model"),
    ],
)
def test_a_fallback_gets_a_prompt_of_its_window_where_ours_is_last(
    order: str, fits: bool, window_tokens: int
) -> None:
    def fault_of(body: Mapping[str, Any]) -> Any:
        if body["model"] == "gpt-4o":
            return refuses(500)
        return server.fault

    with StrictOpenAIServer() as server:
        server.fault_of = fault_of
        small = agents.openai(
            server, "gpt-4o-mini", profile={"max_input_tokens": 900, "max_output_tokens": 100}
        )
        fallback = langchain_middleware.ModelFallbackMiddleware(small)
        middleware = in_order(order, fallback, agents.budget(3_000))
        agent = agents.agent_of(agents.openai(server), *middleware)
        question = HumanMessage("Who planted the apple tree?")
        state = agents.ask(agent, {"messages": [*agents.long_history(100), question]})

    first, second = server.received
    assert recount(first) > 800
    assert (recount(second) <= 800) is fits
    assert state["ctxbudget_report"]["window_tokens"] == window_tokens


# -- What changes a request


class Changing(AgentMiddleware):
    """Changes the messages of every request."""

    def __init__(self, change: Callable[[list[Any]], list[Any]]) -> None:
        super().__init__()
        self.change = change

    def wrap_model_call(self, request: Any, handler: Any) -> Any:
        return handler(request.override(messages=self.change(list(request.messages))))

    async def awrap_model_call(self, request: Any, handler: Any) -> Any:
        return await handler(request.override(messages=self.change(list(request.messages))))


FILE = HumanMessage("The file says: 42.")
HISTORY = [("human", "One?"), ("ai", "Fine.")]
FILE_WORDS = ("human", "The file says: 42.")
SECOND_TURN = ("human", "Two?")


def with_other_text(message: BaseMessage, text: str) -> BaseMessage:
    return message.model_copy(update={"content": text})


def with_file_as_dict(messages: list[Any]) -> list[Any]:
    return [*messages, {"role": "user", "content": "The file says: 42."}]


def with_instructions(messages: list[Any]) -> list[Any]:
    return [SystemMessage("Be brief."), *messages]


def with_other_words(messages: list[Any]) -> list[Any]:
    return [*messages[:-1], with_other_text(messages[-1], "Three?")]


def with_other_history(messages: list[Any]) -> list[Any]:
    return [*(with_other_text(message, "XXX") for message in messages[:-1]), messages[-1]]


class Case(NamedTuple):
    """What a middleware does to the messages of a request, and what the model sees then."""

    change: Callable[[list[Any]], list[Any]]
    seen: list[Words]
    followed: bool = True


REQUEST_CHANGES = {
    "behind the turn": Case(
        change=lambda messages: [*messages, FILE],
        seen=[*HISTORY, SECOND_TURN, FILE_WORDS],
    ),
    "behind the turn, a dict": Case(
        change=with_file_as_dict,
        seen=[*HISTORY, SECOND_TURN, FILE_WORDS],
    ),
    "before the history": Case(
        change=lambda messages: [FILE, *messages],
        seen=[*HISTORY, FILE_WORDS, SECOND_TURN],
    ),
    "before the turn": Case(
        change=lambda messages: [*messages[:-1], FILE, messages[-1]],
        seen=[*HISTORY, FILE_WORDS, SECOND_TURN],
    ),
    "instructions": Case(
        change=with_instructions,
        seen=[("system", "Be brief."), *HISTORY, SECOND_TURN],
    ),
    "the turn's words": Case(
        change=with_other_words,
        seen=[*HISTORY, ("human", "Three?")],
    ),
    "another turn": Case(
        change=lambda messages: [*messages[:-1], HumanMessage("Three?")],
        seen=[*HISTORY, ("human", "Three?")],
    ),
    "without the history": Case(
        change=lambda messages: messages[-1:],
        seen=[*HISTORY, SECOND_TURN],
        followed=False,
    ),
    "another history": Case(
        change=with_other_history,
        seen=[*HISTORY, SECOND_TURN],
        followed=False,
    ),
}


@pytest.mark.parametrize("schema", [None, agents.ListedState], ids=["usual state", "listed state"])
@pytest.mark.parametrize("case", REQUEST_CHANGES.values(), ids=REQUEST_CHANGES)
def test_what_middleware_before_ours_does_is_seen_or_told(case: Case, schema: Any) -> None:
    ours = agents.budget()
    model = agents.scripted()
    agent = agents.agent_of(model, Changing(case.change), ours, state_schema=schema)

    agents.ask(agent, HumanMessage("One?"))
    state = agents.ask(agent, HumanMessage("Two?"))

    assert words_of(model.seen[1]) == case.seen
    assert (NOT_FOLLOWED in state["ctxbudget_report"]["failures"]) is not case.followed
    assert words_of(state["messages"]) == [*HISTORY, SECOND_TURN, ("ai", "Fine.")]
    log = ours.pipeline.get_messages(user_id="ada", conversation_id="c1")
    assert words_of(log) == [*HISTORY, SECOND_TURN, ("ai", "Fine.")]


def test_added_messages_leave_the_background_of_a_looping_agent() -> None:
    model = agents.scripted(agents.wants("look_up", topic="tree"), "Done.")
    adding = Changing(lambda messages: [FILE, *messages])
    ours = agents.budget(settings={"layers": [agents.clock_layer()]})
    agent = agents.agent_of(model, adding, ours, tools=[agents.look_up])

    agents.ask(agent, HumanMessage("Which tree?", id="q"))

    first, second = model.seen
    assert second[:2] == first


# -- The system prompt


class Asked(NamedTuple):
    """The system message that a model was sent, and the failures of the report."""

    system: BaseMessage
    failures: list[str]


def ask_with_system_prompt(*content: dict[str, Any]) -> Asked:
    model = agents.scripted()
    system_prompt = SystemMessage(list(content))
    agent = agents.agent_of(model, agents.budget(), system_prompt=system_prompt)

    state = agents.ask(agent, ("human", "Hi"))

    system = model.seen[0][0]
    assert isinstance(system, SystemMessage)
    return Asked(system, state["ctxbudget_report"]["failures"])


def text(words: str, **marks: Any) -> dict[str, Any]:
    return {"type": "text", "text": words, **marks}


def test_marks_of_the_system_prompt_are_told() -> None:
    asked = ask_with_system_prompt(
        text("You help.", cache_control={"type": "ephemeral"}), text("Be brief.")
    )

    assert asked.system.text.split() == ["You", "help.", "Be", "brief."]
    assert any("without cache_control" in failure for failure in asked.failures)


def test_what_is_no_text_in_the_system_prompt_is_left_out_and_told() -> None:
    asked = ask_with_system_prompt(
        text("You help."), {"type": "image", "url": "http://x.invalid/a.png"}
    )

    assert asked.system.content == "You help."
    assert any("without a block of type 'image'" in failure for failure in asked.failures)
