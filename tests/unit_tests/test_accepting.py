"""Messages are taken in every form that LangChain's chat models take."""

from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage

from langchain_ctxbudget.messages import checked_messages, current_turn, is_one_message

CALL = {"name": "look", "args": {"at": "sky"}, "id": "c1", "type": "tool_call"}
OPENAI_CALL = {
    "id": "c1",
    "type": "function",
    "function": {"name": "look", "arguments": '{"at": "sky"}'},
}
FORMS = [
    ("Hi", HumanMessage("Hi")),
    (("user", "Hi"), HumanMessage("Hi")),
    (("human", "Hi"), HumanMessage("Hi")),
    (("ai", "Hi"), AIMessage("Hi")),
    (["assistant", "Hi"], AIMessage("Hi")),
    ({"role": "user", "content": "Hi", "id": "m1"}, HumanMessage("Hi", id="m1")),
    ({"role": "user", "content": "Hi", "name": "Bob"}, HumanMessage("Hi", name="Bob")),
    ({"role": "system", "content": "Be kind."}, SystemMessage("Be kind.")),
    ({"type": "human", "content": "Hi"}, HumanMessage("Hi")),
    (
        {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
        HumanMessage([{"type": "text", "text": "Hi"}]),
    ),
    (
        {"role": "assistant", "content": None, "tool_calls": [OPENAI_CALL]},
        AIMessage("", tool_calls=[CALL]),
    ),
    (
        {"role": "tool", "content": "blue", "tool_call_id": "c1"},
        ToolMessage("blue", tool_call_id="c1"),
    ),
    (
        {"role": "user", "content": "Hi", "created_at": "2026-01-31T10:00:00Z"},
        HumanMessage("Hi", additional_kwargs={"created_at": "2026-01-31T10:00:00Z"}),
    ),
    (
        {"role": "user", "content": "Hi", "ctxbudget": "keep"},
        HumanMessage("Hi", additional_kwargs={"ctxbudget": "keep"}),
    ),
]


@pytest.mark.parametrize(("given", "message"), FORMS)
def test_a_message_is_taken_in_every_form(given: Any, message: BaseMessage) -> None:
    assert checked_messages([given], "messages") == [message]


@pytest.mark.parametrize(
    "given", ["Hi", ("user", "Hi"), {"role": "user", "content": "Hi"}, [("user", "Hi")], ["Hi"]]
)
def test_a_turn_is_taken_in_every_form(given: Any) -> None:
    assert current_turn(given) == [HumanMessage("Hi")]


@pytest.mark.parametrize(
    ("given", "is_one"),
    [
        ("Hi", True),
        (("user", "Hi"), True),
        ({"role": "user", "content": "Hi"}, True),
        (HumanMessage("Hi"), True),
        (["user", "Hi"], False),
        ((HumanMessage("Hi"), AIMessage("Ho")), False),
        ((), False),
        (None, False),
    ],
)
def test_a_message_is_told_from_several(given: object, is_one: bool) -> None:
    assert is_one_message(given) == is_one
