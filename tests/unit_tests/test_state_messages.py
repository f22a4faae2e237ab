"""The channel of a context graph adds messages as LangGraph's `add_messages` does."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
)
from langgraph.graph.message import REMOVE_ALL_MESSAGES, add_messages

from langchain_ctxbudget import build_context_graph

GRAPH = build_context_graph(default_user="ada")
IDS = st.sampled_from(["m1", "m2", "m3", "m4", "m5", "m6"])


def added(*updates: object) -> list[BaseMessage]:
    """Returns the messages of a state after some updates, one a step."""
    channel = GRAPH.channels["messages"].copy()
    for update in updates:
        channel.update([update])
    messages: list[BaseMessage] = channel.get()
    return messages


@st.composite
def message(draw: st.DrawFn) -> BaseMessage:
    kind = draw(st.sampled_from([HumanMessage, AIMessage, SystemMessage, AIMessageChunk]))
    return kind(draw(st.text(max_size=3)), id=draw(IDS))


@given(first=st.lists(message(), max_size=6), then=st.lists(message(), max_size=3))
def test_messages_are_added_as_langgraph_adds_them(
    first: Sequence[BaseMessage], then: Sequence[BaseMessage]
) -> None:
    given = [list(first), list(then)]
    assert added(*given) == add_messages(add_messages([], given[0]), given[1])


def test_a_message_without_an_id_gets_one() -> None:
    [message] = added([HumanMessage("Hello")])
    assert message.id


def test_messages_in_other_forms_become_messages() -> None:
    messages = added([("human", "Hello"), {"role": "ai", "content": "Hi"}])
    assert [type(message) for message in messages] == [HumanMessage, AIMessage]


def test_a_single_message_is_a_state() -> None:
    hello = HumanMessage("Hello", id="m1")
    assert added(hello) == [hello]


def test_removed_messages_go() -> None:
    result = ToolMessage("Found.", tool_call_id="t1", id="m2")
    first = [HumanMessage("Hello", id="m1"), result]
    assert added(first, [RemoveMessage("m1")]) == [result]


def test_all_messages_go() -> None:
    first = [HumanMessage("Hello", id="m1"), RemoveMessage(REMOVE_ALL_MESSAGES)]
    assert added(first) == []


def test_a_removal_of_what_is_not_there_is_an_error() -> None:
    with pytest.raises(ValueError, match="doesn't exist"):
        added([RemoveMessage("m1")])


def test_the_list_of_a_caller_is_not_the_state() -> None:
    given = [HumanMessage("Hello", id="m1")]
    assert added(given) is not given
