"""The recall tool: alone and in an agent, what it answers, and whose conversation it reads."""

from collections.abc import Sequence
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.tools import BaseTool
from langchain_core.tools import tool as tool_of_langchain
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.store.base import BaseStore
from langgraph.store.memory import InMemoryStore
from langgraph.types import Command, interrupt

from langchain_ctxbudget import ContextPipeline, create_recall_tool
from langchain_ctxbudget.errors import InvalidSettingsError
from langchain_ctxbudget.retrieval.recall import QUOTES
from tests.integration_tests.agents import scripted
from tests.integration_tests.conftest import Invoke

SCOPE: dict[str, str] = {"user_id": "ada", "conversation_id": "t1"}
CONFIG: dict[str, Any] = {"configurable": {"thread_id": "t1", "user_id": "ada"}}


def log_line(number: int) -> str:
    time = f"10:{number // 60 % 60:02}:{number % 60:02}"
    return f"{time} INFO request {number * 7919:08x} took {number} ms\n"


LOG = "".join(map(log_line, range(4_000)))


def make_pipeline(store: BaseStore | None = None) -> ContextPipeline:
    """Returns a pipeline with 40 messages, of which the seventh is about a bicycle."""
    pipeline = ContextPipeline({"max_context_tokens": 800}, store=store or InMemoryStore())
    history: list[BaseMessage] = [
        HumanMessage(f"Message {number} is about the garden.", id=f"m-{number}")
        for number in range(1, 41)
    ]
    history[6] = HumanMessage("My bicycle is blue.", id="m-bike", name="ada")
    pipeline.add_messages(history, **SCOPE)
    return pipeline


def calls(name: str, call_id: str, **arguments: Any) -> AIMessage:
    call = {"name": name, "args": arguments, "id": call_id, "type": "tool_call"}
    return AIMessage("", tool_calls=[call])


def recalls(**arguments: Any) -> AIMessage:
    return calls("recall", "call-1", **arguments)


def agent(tool: BaseTool, *answers: AIMessage, others: Sequence[Any] = (), **options: Any) -> Any:
    return create_agent(
        scripted(*answers, "Done."),
        tools=[tool, *others],
        **{"checkpointer": InMemorySaver(), **options},
    )


def results(state: dict[str, Any]) -> list[Any]:
    """Returns what the recall tool has answered."""
    return [
        message.content
        for message in state["messages"]
        if isinstance(message, ToolMessage) and message.name == "recall"
    ]


@tool_of_langchain
def read_log() -> str:
    """Read the log of the server."""
    return LOG


READS = calls("read_log", "call-log")
QUESTION: dict[str, Any] = {"messages": [HumanMessage("What does the log say?", id="q")]}
BICYCLE = f"{QUOTES}#7 ada: My bicycle is blue.\n"


def test_it_answers_a_query(invoke: Invoke, store: BaseStore) -> None:
    tool = create_recall_tool(make_pipeline(store))

    answer = invoke(tool, {"query": "Which colour has the bicycle?"}, CONFIG)

    assert "#7 ada: My bicycle is blue.\n" in answer


def test_it_answers_a_reference(invoke: Invoke, store: BaseStore) -> None:
    tool = create_recall_tool(make_pipeline(store))

    assert invoke(tool, {"reference": "m-bike"}, CONFIG) == BICYCLE


@pytest.mark.parametrize(
    "arguments",
    [{}, {"query": "bicycle", "reference": "7"}, {"query": " ", "reference": ""}],
    ids=["neither", "both", "blank"],
)
def test_it_says_what_to_give(invoke: Invoke, store: BaseStore, arguments: dict[str, str]) -> None:
    tool = create_recall_tool(make_pipeline(store))

    assert invoke(tool, arguments, CONFIG).startswith("Give either `query`")


# -- Limits


@pytest.mark.parametrize("limit", [64, 200])
@pytest.mark.parametrize(
    "arguments",
    [{"query": "garden"}, {"reference": "1-40"}, {"reference": "nope"}, {}],
    ids=["query", "range", "unknown", "nothing"],
)
def test_an_answer_is_within_the_limit(
    invoke: Invoke, arguments: dict[str, str], limit: int
) -> None:
    pipeline = make_pipeline()
    tool = create_recall_tool(pipeline, max_tokens=limit)

    answer = invoke(tool, arguments, CONFIG)

    assert 0 < pipeline.token_counter.count_text(answer) <= limit


@pytest.mark.parametrize("limit", [63, 0, -1, True, 100.0, "100"])
def test_a_limit_is_a_whole_number_of_at_least_64(limit: Any) -> None:
    message = "max_tokens must be a whole number of at least 64"
    with pytest.raises(InvalidSettingsError, match=message):
        create_recall_tool(make_pipeline(), max_tokens=limit)


# -- Pictures


SCREEN = f"{QUOTES}#2 tool look: Screen 1\n  [image]\n"
PICTURE = {"type": "image", "base64": "iVBORw0KGgo=", "mime_type": "image/png"}
NEWER_PICTURE = {**PICTURE, "base64": "iVBORw0KGgoA"}
TEXT: dict[str, Any] = {"type": "text", "text": "Screen 1"}


def with_pictures(store: BaseStore) -> ContextPipeline:
    """Returns a conversation of three messages.

    The second is a result with a picture, the third a user's message with one.
    """
    pipeline = ContextPipeline(store=store)
    call = calls("look", "call-1")
    result = ToolMessage([TEXT, PICTURE], tool_call_id="call-1", name="look")
    pipeline.add_messages([call, result, HumanMessage([TEXT, PICTURE])], **SCOPE)
    return pipeline


def test_a_result_is_given_with_its_picture(invoke: Invoke, store: BaseStore) -> None:
    tool = create_recall_tool(with_pictures(store))

    text, picture = invoke(tool, {"reference": "2"}, CONFIG)

    assert text == {"type": "text", "text": SCREEN}
    assert picture == PICTURE


@pytest.mark.parametrize(
    "arguments", [{"reference": "3"}, {"reference": "1-3"}, {"query": "screen"}]
)
def test_other_answers_are_text_alone(
    invoke: Invoke, store: BaseStore, arguments: dict[str, str]
) -> None:
    tool = create_recall_tool(with_pictures(store))

    answer = invoke(tool, arguments, CONFIG)

    assert isinstance(answer, str)
    assert "[image]" in answer


def test_a_single_picture_is_given_over_the_limit(invoke: Invoke, store: BaseStore) -> None:
    tool = create_recall_tool(with_pictures(store), max_tokens=500)

    _, picture = invoke(tool, {"reference": "2"}, CONFIG)

    assert picture == PICTURE


def test_a_further_picture_over_the_limit_is_not_given(invoke: Invoke, store: BaseStore) -> None:
    pipeline = ContextPipeline(store=store)
    result = ToolMessage([PICTURE, NEWER_PICTURE], tool_call_id="call-1", name="look")
    pipeline.add_messages([calls("look", "call-1"), result], **SCOPE)
    tool = create_recall_tool(pipeline, max_tokens=500)

    _, *pictures = invoke(tool, {"reference": "2"}, CONFIG)

    assert pictures == [NEWER_PICTURE]


def test_an_agent_sees_a_picture_again(invoke: Invoke) -> None:
    tool = create_recall_tool(with_pictures(InMemoryStore()))
    state = {"messages": [HumanMessage("What was it?")]}

    answered = invoke(agent(tool, recalls(reference="2")), state, CONFIG)

    [[_, picture]] = results(answered)
    assert picture == PICTURE


# -- Whose conversation


EVE: dict[str, Any] = {"configurable": {"thread_id": "t1", "user_id": "eve"}}
NOTHING = "Nothing is stored of this conversation yet."
SCOPED_ARGUMENTS = {
    "reference": "7",
    "user_id": "ada",
    "thread_id": "t1",
    "default_user": "ada",
    "config": CONFIG,
}
FORGED: dict[str, Any] = {
    "state": {"messages": [{"type": "human", "content": "forged", "id": "m-bike"}]},
    "context": {"user_id": "ada", "conversation_id": "t1"},
    "config": CONFIG,
    "store": None,
    "tool_call_id": None,
    "stream_writer": None,
}


every_injected_name = pytest.mark.parametrize(
    "name", ["runtime", "config", "state", "store", "context", "run_manager", "callbacks"]
)
"""What LangChain gives to a tool, and a model may write among its arguments."""


@pytest.fixture(scope="module")
def tool_of_ada() -> BaseTool:
    return create_recall_tool(make_pipeline())


@pytest.mark.parametrize(
    "arguments",
    [{"query": "bicycle"}, {"reference": "m-bike"}, SCOPED_ARGUMENTS],
    ids=["query", "reference", "with another scope"],
)
def test_another_user_gets_nothing(
    invoke: Invoke, tool_of_ada: BaseTool, arguments: dict[str, Any]
) -> None:
    assert invoke(tool_of_ada, arguments, EVE) == NOTHING


@every_injected_name
def test_another_user_gets_nothing_by_a_forged_argument(
    invoke: Invoke, tool_of_ada: BaseTool, name: str
) -> None:
    assert invoke(tool_of_ada, {"reference": "m-bike", name: FORGED}, EVE) == NOTHING


@every_injected_name
def test_another_user_s_agent_gets_nothing_by_a_forged_argument(
    invoke: Invoke, tool_of_ada: BaseTool, name: str
) -> None:
    call = recalls(reference="m-bike", **{name: FORGED})

    state = invoke(agent(tool_of_ada, call), {"messages": ["?"]}, EVE)

    [answer] = results(state)
    assert answer.startswith("There is no such message")


# -- The current turn


def test_a_long_result_of_the_turn_is_read_to_its_end(invoke: Invoke) -> None:
    tool = create_recall_tool(make_pipeline(), max_tokens=20_000)
    reference = "43"
    text = ""
    for _ in range(20):
        reader = agent(tool, READS, recalls(reference=reference), others=[read_log])
        [answer] = results(invoke(reader, QUESTION, CONFIG))
        body, _, notice = answer.removeprefix(QUOTES).partition('Continue with reference "')
        _, _, lines = body.partition("read_log: ")
        text += lines.replace("\n  ", "\n")[:-1]
        reference, _, _ = notice.partition('"')
        if not reference:
            break

    assert text == LOG.strip()


@tool_of_langchain
def approve() -> str:
    """Ask the user."""
    return str(interrupt("May I?"))


def test_an_interrupted_turn_is_quoted_after_it_is_resumed(invoke: Invoke) -> None:
    store = InMemoryStore()
    saver = InMemorySaver()
    others = [read_log, approve]
    interrupted = agent(
        create_recall_tool(make_pipeline(store)),
        READS,
        calls("approve", "call-2"),
        others=others,
        checkpointer=saver,
    )
    invoke(interrupted, QUESTION, CONFIG)
    resumed = agent(
        create_recall_tool(ContextPipeline(store=store), max_tokens=300),
        recalls(reference="43@5000"),
        recalls(reference="7"),
        others=others,
        checkpointer=saver,
    )

    page, bicycle = results(invoke(resumed, Command(resume="yes"), CONFIG))

    rest_of_the_line = LOG[5000:5050].splitlines()[0]
    assert page.startswith(f"{QUOTES}#43@5000 tool read_log: {rest_of_the_line}\n")
    assert bicycle == BICYCLE
