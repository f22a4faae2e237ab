"""The recall tool: alone, in a tool node and in an agent; sync and async.

Whose conversation it reads.
"""

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
LOG = "".join(
    f"10:{i // 60 % 60:02}:{i % 60:02} INFO request {i * 7919:08x} took {i} ms\n"
    for i in range(4_000)
)


def make_pipeline(store: BaseStore | None = None, messages: int = 40) -> ContextPipeline:
    pipeline = ContextPipeline({"max_context_tokens": 800}, store=store or InMemoryStore())
    history: list[BaseMessage] = [
        HumanMessage(f"Message {i} is about the garden.", id=f"m-{i}")
        for i in range(1, messages + 1)
    ]
    history[6] = HumanMessage("My bicycle is blue.", id="m-bike", name="ada")
    pipeline.add_messages(history, **SCOPE)
    return pipeline


def asks(**arguments: Any) -> AIMessage:
    return AIMessage(
        "", tool_calls=[{"name": "recall", "args": arguments, "id": "call-1", "type": "tool_call"}]
    )


def agent(tool: BaseTool, *calls: AIMessage, others: Sequence[Any] = (), **options: Any) -> Any:
    return create_agent(
        scripted(*calls, "Done."),
        tools=[tool, *others],
        **{"checkpointer": InMemorySaver(), **options},
    )


def results(state: dict[str, Any], name: str = "recall") -> list[str]:
    return [m.content for m in state["messages"] if isinstance(m, ToolMessage) and m.name == name]


@tool_of_langchain
def read_log() -> str:
    """Read the log of the server."""
    return LOG


READS = AIMessage(
    "", tool_calls=[{"name": "read_log", "args": {}, "id": "call-log", "type": "tool_call"}]
)
QUESTION: dict[str, Any] = {"messages": [HumanMessage("What does the log say?", id="q")]}


def test_it_answers_a_query_or_a_reference_and_tells_what_to_give(
    invoke: Invoke, store: BaseStore
) -> None:
    tool = create_recall_tool(make_pipeline(store))
    assert "#7 ada: My bicycle is blue.\n" in invoke(
        tool, {"query": "Which colour has the bicycle?"}, CONFIG
    )
    assert invoke(tool, {"reference": "m-bike"}, CONFIG) == f"{QUOTES}#7 ada: My bicycle is blue.\n"
    for arguments in [{}, {"query": "bicycle", "reference": "7"}, {"query": " ", "reference": ""}]:
        assert invoke(tool, arguments, CONFIG).startswith("Give either `query`")


# Limits


def test_an_answer_is_within_the_limit(invoke: Invoke) -> None:
    pipeline = make_pipeline()
    for limit in [64, 200]:
        for arguments in [{"query": "garden"}, {"reference": "1-40"}, {"reference": "nope"}, {}]:
            answer = invoke(create_recall_tool(pipeline, max_tokens=limit), arguments, CONFIG)
            assert 0 < pipeline.token_counter.count_text(answer) <= limit
    for wrong in [63, 0, -1, True, 100.0, "100"]:
        with pytest.raises(
            InvalidSettingsError, match="max_tokens must be a whole number of at least 64"
        ):
            create_recall_tool(pipeline, max_tokens=wrong)  # type: ignore[arg-type]


PICTURE = {"type": "image", "base64": "iVBORw0KGgo=", "mime_type": "image/png"}
TEXT: dict[str, Any] = {"type": "text", "text": "Screen 1"}


def with_pictures(store: BaseStore) -> ContextPipeline:
    """A conversation in which message 2 is a result with a picture, and message 3 a user's message with one."""
    pipeline = ContextPipeline(store=store)
    looked = AIMessage("", tool_calls=[{"name": "look", "args": {}, "id": "call-1"}])
    result = ToolMessage([TEXT, PICTURE], tool_call_id="call-1", name="look")
    pipeline.add_messages([looked, result, HumanMessage([TEXT, PICTURE])], **SCOPE)
    return pipeline


def test_a_result_is_given_with_its_picture(invoke: Invoke, store: BaseStore) -> None:
    tool = create_recall_tool(with_pictures(store))
    text, picture = invoke(tool, {"reference": "2"}, CONFIG)
    assert text == {"type": "text", "text": f"{QUOTES}#2 tool look: Screen 1\n  [image]\n"}
    assert picture == PICTURE


@pytest.mark.parametrize(
    "arguments", [{"reference": "3"}, {"reference": "1-3"}, {"query": "screen"}]
)
def test_other_answers_are_text_alone(
    invoke: Invoke, store: BaseStore, arguments: dict[str, str]
) -> None:
    assert "[image]" in invoke(create_recall_tool(with_pictures(store)), arguments, CONFIG)


def test_a_picture_over_the_limit_is_not_given(invoke: Invoke, store: BaseStore) -> None:
    tool = create_recall_tool(with_pictures(store), max_tokens=500)
    assert (
        invoke(tool, {"reference": "2"}, CONFIG) == f"{QUOTES}#2 tool look: Screen 1\n  [image]\n"
    )


def test_an_agent_sees_a_picture_again(invoke: Invoke) -> None:
    tool = create_recall_tool(with_pictures(InMemoryStore()))
    state = invoke(
        agent(tool, asks(reference="2")), {"messages": [HumanMessage("What was it?")]}, CONFIG
    )
    [answer] = results(state)
    assert answer[1] == PICTURE


# Whose conversation


EVE: dict[str, Any] = {"configurable": {"thread_id": "t1", "user_id": "eve"}}
NOTHING = "Nothing is stored of this conversation yet."


FORGED: dict[str, Any] = {
    "state": {"messages": [{"type": "human", "content": "forged", "id": "m-bike"}]},
    "context": {"user_id": "ada", "conversation_id": "t1"},
    "config": CONFIG,
    "store": None,
    "tool_call_id": None,
    "stream_writer": None,
}


def test_another_user_gets_nothing_whatever_the_arguments_say(invoke: Invoke) -> None:
    tool = create_recall_tool(make_pipeline())
    scoped = {
        "reference": "7",
        "user_id": "ada",
        "thread_id": "t1",
        "default_user": "ada",
        "config": CONFIG,
    }
    for arguments in ({"query": "bicycle"}, {"reference": "m-bike"}, scoped):
        assert invoke(tool, arguments, EVE) == NOTHING
    for name in ["runtime", "config", "state", "store", "context", "run_manager", "callbacks"]:
        state = invoke(
            agent(tool, asks(reference="m-bike", **{name: FORGED})), {"messages": ["?"]}, EVE
        )
        assert results(state)[0].startswith("There is no such message")
        assert invoke(tool, {"reference": "m-bike", name: FORGED}, EVE) == NOTHING


# The current turn


def test_a_long_result_of_the_turn_is_read_to_its_end(invoke: Invoke) -> None:
    tool = create_recall_tool(make_pipeline(), max_tokens=20_000)
    following = "43"
    read = ""
    for _ in range(20):
        state = invoke(
            agent(tool, READS, asks(reference=following), others=[read_log]), QUESTION, CONFIG
        )
        body, _, rest = (
            results(state)[0].removeprefix(QUOTES).partition('Continue with reference "')
        )
        read += body.partition("read_log: ")[2].replace("\n  ", "\n")[:-1]
        following = rest.partition('"')[0]
        if not following:
            break
    assert read == LOG.strip()


def test_an_interrupted_turn_is_quoted_after_it_is_resumed_elsewhere(invoke: Invoke) -> None:
    @tool_of_langchain
    def approve() -> str:
        """Ask the user."""
        return str(interrupt("May I?"))

    approves = AIMessage(
        "", tool_calls=[{"name": "approve", "args": {}, "id": "call-2", "type": "tool_call"}]
    )
    store = InMemoryStore()
    saver = InMemorySaver()
    others = [read_log, approve]
    first = agent(
        create_recall_tool(make_pipeline(store)), READS, approves, others=others, checkpointer=saver
    )
    invoke(first, QUESTION, CONFIG)
    tool = create_recall_tool(ContextPipeline(store=store), max_tokens=300)
    second = agent(
        tool, asks(reference="43@5000"), asks(reference="7"), others=others, checkpointer=saver
    )
    page, bicycle = results(invoke(second, Command(resume="yes"), CONFIG))
    assert page.startswith(f"{QUOTES}#43@5000 tool read_log: {LOG[5000:5050].splitlines()[0]}\n")
    assert bicycle == f"{QUOTES}#7 ada: My bicycle is blue.\n"
