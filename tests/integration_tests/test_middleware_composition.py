"""`ContextBudgetMiddleware` beside LangChain's middleware, and beside some that change requests."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from langchain.agents import middleware as langchain_middleware
from langchain.agents.middleware import AgentMiddleware
from langchain_anthropic import ChatAnthropic
from langchain_anthropic.middleware import AnthropicPromptCachingMiddleware
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from pydantic import Field, SecretStr

from langchain_ctxbudget.integrations.middleware import NOT_FOLLOWED
from tests.cases import few_are_quick
from tests.doubles.recount import recount
from tests.doubles.server import calls, refuses, says
from tests.doubles.strict_server import StrictServer
from tests.integration_tests import agents

pytestmark = [
    pytest.mark.slow,
    pytest.mark.allow_hosts(["127.0.0.1"]),
    pytest.mark.usefixtures("offline_tiktoken"),
]

OURS_LAST = "ours last"
OURS_FIRST = "ours first"
both_orders = pytest.mark.parametrize("order", few_are_quick([OURS_LAST, OURS_FIRST]))

TypeAndText = tuple[str, str]
"""The type of a message, and its text."""


def in_order(order: str, other: Any, ours: Any) -> list[Any]:
    if order == OURS_LAST:
        return [other, ours]
    return [ours, other]


def types_and_texts(messages: Sequence[BaseMessage]) -> list[TypeAndText]:
    return [(message.type, message.text) for message in messages]


# LangChain's middleware


LANGCHAIN_MIDDLEWARE: dict[str, Callable[[], Any]] = {
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
every_middleware = pytest.mark.parametrize(
    "new_other", LANGCHAIN_MIDDLEWARE.values(), ids=LANGCHAIN_MIDDLEWARE
)

ANSWERS = [
    agents.wants("look_up", "look_up", key="t0-", topic="b@example.org"),
    "Found 0; mail ada@example.org.",
    agents.wants("look_up", "look_up", key="t1-", topic="b@example.org"),
    "Found 1; mail ada@example.org.",
    agents.wants("look_up", "look_up", key="t2-", topic="b@example.org"),
    "Found 2; mail ada@example.org.",
]
"""Two calls at once, for the limit of calls, and addresses, for the redaction."""


def ask_three_times(agent: Any) -> dict[str, Any]:
    for number in range(3):
        state = agents.ask(agent, ("human", f"Mail {number}@example.org of the tree?"))
    return state


def state_after_three_turns(*middleware: Any) -> list[TypeAndText]:
    """Returns the messages of an agent's state after three turns with calls."""
    agent = agents.agent_of(
        agents.scripted(*ANSWERS),
        *middleware,
        tools=[agents.look_up],
        system_prompt="You help.",
    )
    return types_and_texts(ask_three_times(agent)["messages"])


@both_orders
@every_middleware
def test_ours_leaves_the_state_as_the_other_one_makes_it(
    new_other: Callable[[], Any], order: str
) -> None:
    alone = state_after_three_turns(new_other())
    together = state_after_three_turns(*in_order(order, new_other(), agents.budget()))

    assert together == alone


@both_orders
@every_middleware
def test_requests_beside_another_one_are_valid_and_counted(
    new_other: Callable[[], Any], order: str
) -> None:
    def answer_with_calls_first(_: object) -> Mapping[str, Any]:
        number = len(server.received)
        if number % 2 == 0:
            return says("Found.")
        return calls(
            (f"k{number}t", "look_up", {"topic": "tree"}),
            (f"k{number}b", "look_up", {"topic": "b@example.org"}),
        )

    with StrictServer(answer_with_calls_first, max_tokens=agents.BUDGET_TOKENS) as server:
        agent = agents.agent_of(
            agents.openai(server),
            *in_order(order, new_other(), agents.budget()),
            tools=[agents.look_up],
        )
        state = ask_three_times(agent)

    assert server.refused == []
    assert recount(server.received[-1]) <= state["ctxbudget_report"]["total_tokens"]


@pytest.mark.parametrize(
    ("order", "fits", "window_tokens"),
    [
        pytest.param(OURS_LAST, True, 900, id="ours last: the fallback's window"),
        pytest.param(OURS_FIRST, False, 128_000, id="ours first: the first model's window"),
    ],
)
def test_a_prompt_fits_the_fallback_s_window_if_ours_is_last(
    order: str, fits: bool, window_tokens: int
) -> None:
    prompt_tokens = 800

    def refuse_the_first_model(body: Mapping[str, Any]) -> Any:
        if body["model"] == "gpt-4o":
            return refuses(500)
        return server.fault

    with StrictServer() as server:
        server.fault_of = refuse_the_first_model
        profile = {"max_input_tokens": prompt_tokens + 100, "max_output_tokens": 100}
        small_model = agents.openai(server, "gpt-4o-mini", profile=profile)
        fallback = langchain_middleware.ModelFallbackMiddleware(small_model)
        middleware = in_order(order, fallback, agents.budget(3_000))
        agent = agents.agent_of(agents.openai(server), *middleware)
        question = HumanMessage("Who planted the apple tree?")
        state = agents.ask(agent, {"messages": [*agents.long_history(100), question]})

    refused, answered = server.received
    assert recount(refused) > prompt_tokens
    assert (recount(answered) <= prompt_tokens) is fits
    assert state["ctxbudget_report"]["window_tokens"] == window_tokens


# Middleware that changes requests


Change = Callable[[list[Any]], list[Any]]
"""From the messages of a request to those that take their place."""


class ChangingMiddleware(AgentMiddleware):
    """Changes the messages of every request."""

    def __init__(self, change: Change) -> None:
        super().__init__()
        self.change = change

    def wrap_model_call(self, request: Any, handler: Any) -> Any:
        return handler(request.override(messages=self.change(list(request.messages))))

    async def awrap_model_call(self, request: Any, handler: Any) -> Any:
        return await handler(request.override(messages=self.change(list(request.messages))))


FILE = HumanMessage("The file says: 42.")
FILE_TEXT = ("human", "The file says: 42.")
FIRST_TURN = [("human", "One?"), ("ai", "Fine.")]
SECOND_QUESTION = ("human", "Two?")
SECOND_TURN = [SECOND_QUESTION, ("ai", "Fine.")]


def with_other_text(message: BaseMessage, text: str) -> BaseMessage:
    return message.model_copy(update={"content": text})


def with_file_as_dict_at_end(messages: list[Any]) -> list[Any]:
    return [*messages, {"role": "user", "content": "The file says: 42."}]


def with_instructions(messages: list[Any]) -> list[Any]:
    return [SystemMessage("Be brief."), *messages]


def with_other_question(messages: list[Any]) -> list[Any]:
    return [*messages[:-1], with_other_text(messages[-1], "Three?")]


def with_other_history(messages: list[Any]) -> list[Any]:
    return [*(with_other_text(message, "XXX") for message in messages[:-1]), messages[-1]]


class Case(NamedTuple):
    """A change to the messages of a request, and what the model then sees."""

    change: Change
    seen: list[TypeAndText]
    is_followed: bool = True
    """False if the model sees the request as it was, and the report says so."""


REQUEST_CHANGES = {
    "a file behind the turn": Case(
        change=lambda messages: [*messages, FILE],
        seen=[*FIRST_TURN, SECOND_QUESTION, FILE_TEXT],
    ),
    "a file behind the turn, as a dict": Case(
        change=with_file_as_dict_at_end,
        seen=[*FIRST_TURN, SECOND_QUESTION, FILE_TEXT],
    ),
    "a file before the history": Case(
        change=lambda messages: [FILE, *messages],
        seen=[*FIRST_TURN, FILE_TEXT, SECOND_QUESTION],
    ),
    "a file before the turn": Case(
        change=lambda messages: [*messages[:-1], FILE, messages[-1]],
        seen=[*FIRST_TURN, FILE_TEXT, SECOND_QUESTION],
    ),
    "instructions at the beginning": Case(
        change=with_instructions,
        seen=[("system", "Be brief."), *FIRST_TURN, SECOND_QUESTION],
    ),
    "another text of the question": Case(
        change=with_other_question,
        seen=[*FIRST_TURN, ("human", "Three?")],
    ),
    "another question": Case(
        change=lambda messages: [*messages[:-1], HumanMessage("Three?")],
        seen=[*FIRST_TURN, ("human", "Three?")],
    ),
    "no history": Case(
        change=lambda messages: messages[-1:],
        seen=[*FIRST_TURN, SECOND_QUESTION],
        is_followed=False,
    ),
    "a file, without the oldest message": Case(
        change=lambda messages: [*messages[1:], FILE] if messages[1:] else messages,
        seen=[*FIRST_TURN, SECOND_QUESTION, FILE_TEXT],
        is_followed=False,
    ),
    "another history": Case(
        change=with_other_history,
        seen=[*FIRST_TURN, SECOND_QUESTION],
        is_followed=False,
    ),
}


@pytest.mark.parametrize("schema", [None, agents.ListedState], ids=["usual state", "listed state"])
@pytest.mark.parametrize("case", REQUEST_CHANGES.values(), ids=REQUEST_CHANGES)
def test_a_change_before_ours_is_followed_or_reported(case: Case, schema: Any) -> None:
    ours = agents.budget()
    model = agents.scripted()
    agent = agents.agent_of(model, ChangingMiddleware(case.change), ours, state_schema=schema)

    agents.ask(agent, HumanMessage("One?"))
    state = agents.ask(agent, HumanMessage("Two?"))

    assert types_and_texts(model.seen[1]) == case.seen
    is_reported = NOT_FOLLOWED in state["ctxbudget_report"]["failures"]
    assert is_reported is (not case.is_followed)
    assert types_and_texts(state["messages"]) == [*FIRST_TURN, *SECOND_TURN]
    log = ours.pipeline.get_messages(user_id="ada", conversation_id="c1")
    assert types_and_texts(log) == [*FIRST_TURN, *SECOND_TURN]


def test_a_loop_keeps_its_background_beside_an_added_message() -> None:
    model = agents.scripted(agents.wants("look_up", topic="tree"), "Done.")
    adding = ChangingMiddleware(lambda messages: [FILE, *messages])
    ours = agents.budget(settings={"layers": [agents.clock_layer()]})
    agent = agents.agent_of(model, adding, ours, tools=[agents.look_up])

    agents.ask(agent, HumanMessage("Which tree?", id="q"))

    first_request, second_request = model.seen
    assert second_request[:2] == first_request


# The system prompt


class SentSystemPrompt(NamedTuple):
    """The system message that a model was sent, and the failures of the report."""

    message: BaseMessage
    failures: list[str]


def send_system_prompt(*blocks: dict[str, Any]) -> SentSystemPrompt:
    model = agents.scripted()
    system_prompt = SystemMessage(list(blocks))
    agent = agents.agent_of(model, agents.budget(), system_prompt=system_prompt)

    state = agents.ask(agent, ("human", "Hi"))

    message = model.seen[0][0]
    assert isinstance(message, SystemMessage)
    return SentSystemPrompt(message, state["ctxbudget_report"]["failures"])


def text_block(text: str, **marks: Any) -> dict[str, Any]:
    return {"type": "text", "text": text, **marks}


def test_a_blank_system_prompt_is_not_sent() -> None:
    model = agents.scripted()
    agent = agents.agent_of(model, agents.budget(), system_prompt=" ")

    agents.ask(agent, ("human", "Hi"))

    assert types_and_texts(model.seen[0]) == [("human", "Hi")]


def test_a_cache_mark_of_the_system_prompt_stays_at_its_end() -> None:
    mark = {"type": "ephemeral"}
    sent = send_system_prompt(text_block("You help.", cache_control=mark), text_block("Be brief."))

    assert sent.message.content == [text_block("You help.\n\nBe brief.", cache_control=mark)]
    assert not any("cache_control" in failure for failure in sent.failures)


class Claude(ChatAnthropic):
    """A model that keeps what it would send."""

    payloads: list[dict[str, Any]] = Field(default_factory=list)

    def _generate(self, messages: Any, *args: Any, **kwargs: Any) -> ChatResult:
        self.payloads.append(self._get_request_payload(messages, **kwargs))
        return ChatResult(generations=[ChatGeneration(message=AIMessage("Yes."))])

    async def _agenerate(self, messages: Any, *args: Any, **kwargs: Any) -> ChatResult:
        return self._generate(messages, *args, **kwargs)


@pytest.mark.parametrize("markers", ["none", "anthropic"])
def test_the_marks_of_langchains_middleware_in_front_count(markers: str) -> None:
    model = Claude(model="claude-sonnet-4-5", api_key=SecretStr("x"))
    ours = agents.budget(settings={"cache_markers": markers})
    caching = AnthropicPromptCachingMiddleware()
    agent = agents.agent_of(
        model, caching, ours, tools=[agents.look_up], system_prompt=SystemMessage("You help.")
    )
    for number in range(6):
        words = text_block(f"Question {number}", cache_control={"type": "ephemeral"})
        agents.ask(agent, HumanMessage([words]))

    counts = [str(payload).count("cache_control") for payload in model.payloads]
    assert max(counts) == 4
    assert all("cache_control" in str(payload["system"]) for payload in model.payloads)


def test_an_image_in_the_system_prompt_is_left_out_and_reported() -> None:
    image = {"type": "image", "url": "http://x.invalid/a.png"}
    sent = send_system_prompt(text_block("You help."), image)

    assert sent.message.content == "You help."
    assert any("without a block of type 'image'" in failure for failure in sent.failures)
