"""Holds files to conversations of every accepted format, and refuses others with their place."""

import contextlib
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.load import dumpd
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    ChatMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.messages.base import message_to_dict
from langchain_core.messages.function import FunctionMessage

from langchain_ctxbudget.cli.formats import (
    ConversationFile,
    parse_conversations,
    pick_conversation,
    read_conversations,
)
from langchain_ctxbudget.errors import ConversationFormatError

HELLO = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Good morning"}]


def only(value: object) -> ConversationFile:
    """The only conversation of a file with this JSON."""
    [conversation] = parse_conversations(json.dumps(value).encode())
    return conversation


def lines(*values: object) -> bytes:
    return "\n".join(map(json.dumps, values)).encode()


def complaint_about(data: bytes) -> str:
    with pytest.raises(ConversationFormatError) as error:
        parse_conversations(data)
    return str(error.value)


def complaint(value: object) -> str:
    return complaint_about(json.dumps(value).encode())


def texts(conversation: ConversationFile) -> list[object]:
    return [message.content for message in conversation.messages]


AS_LIST = json.dumps(HELLO).encode()
AS_LINES = lines(*HELLO)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(AS_LIST, id="a list"),
        pytest.param(json.dumps(HELLO, indent=2).encode(), id="an indented list"),
        pytest.param(AS_LINES, id="lines"),
        pytest.param(AS_LINES + b"\n\n", id="lines and empty ones"),
        pytest.param(b"\xef\xbb\xbf" + AS_LIST, id="a byte order mark"),
        pytest.param(json.dumps({"model": "gpt", "messages": HELLO}).encode(), id="a request"),
    ],
)
def test_openai_messages_are_read_from_every_container(data: bytes) -> None:
    [conversation] = parse_conversations(data)

    assert [(message.type, message.content) for message in conversation.messages] == [
        ("human", "Hello"),
        ("ai", "Good morning"),
    ]


def openai_call(arguments: object) -> dict[str, Any]:
    """An assistant's message with one call."""
    function = {"name": "find", "arguments": arguments}
    calls = [{"id": "c1", "type": "function", "function": function}]
    return {"role": "assistant", "content": None, "tool_calls": calls}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [('{"q": "rye"}', {"q": "rye"}), ("", {}), (None, {}), ({}, {})],
)
def test_calls_of_openai_are_read(arguments: object, expected: dict[str, str]) -> None:
    [message] = only([openai_call(arguments)]).messages

    assert isinstance(message, AIMessage)
    [call] = message.tool_calls
    assert call["args"] == expected


def test_a_call_of_openai_that_breaks_off_is_refused_with_its_message() -> None:
    assert "message 1: " in complaint([openai_call('{"q": ')])


@pytest.mark.parametrize("key", ["created_at", "create_time", "timestamp"])
@pytest.mark.parametrize(
    ("time", "expected"),
    [
        ("2026-08-03T09:12:00+02:00", "2026-08-03T09:12:00+02:00"),
        (1_785_748_320, "2026-08-03T09:12:00+00:00"),
        (1_785_748_320_000, "2026-08-03T09:12:00+00:00"),
    ],
    ids=["text", "seconds", "milliseconds"],
)
def test_times_become_created_at(key: str, time: object, expected: str) -> None:
    [message] = only([{"role": "user", "content": "x", key: time}]).messages

    assert message.additional_kwargs == {"created_at": expected}


@pytest.mark.parametrize(
    "wrong",
    ["yesterday", 1e300, 10**400, [1], "2026-13-01"],
    ids=["a word", "a large float", "a large number", "a list", "no such month"],
)
def test_what_is_no_time_is_refused_with_its_message(wrong: object) -> None:
    assert "message 1: " in complaint([{"role": "user", "content": "x", "created_at": wrong}])


LANGCHAIN: list[BaseMessage] = [
    SystemMessage("Be kind", id="s"),
    HumanMessage(
        "Find rye", id="h", name="Maya", additional_kwargs={"created_at": "2026-08-03T09:12:00"}
    ),
    HumanMessage([{"type": "text", "text": "Look"}, {"type": "image", "url": "u"}], id="parts"),
    AIMessage(
        "",
        id="a",
        tool_calls=[
            {"name": "find", "args": {"q": {"deep": [1]}}, "id": "c1", "type": "tool_call"}
        ],
    ),
    ToolMessage(
        "found", id="t", tool_call_id="c1", name="find", artifact={"rows": 2}, status="error"
    ),
    FunctionMessage("done", id="f", name="old"),
    ChatMessage("hm", id="c", role="critic"),
]


def dumped(message: BaseMessage) -> dict[str, Any]:
    return message.model_dump(mode="json")


@pytest.mark.parametrize("form", [message_to_dict, dumped, dumpd])
def test_langchain_messages_come_back_equal(form: Callable[[BaseMessage], Any]) -> None:
    values = [form(message) for message in LANGCHAIN]

    [from_list] = parse_conversations(json.dumps(values).encode())
    [from_lines] = parse_conversations(lines(*values))
    [from_thread] = parse_conversations(lines({"messages": values, "id": "thread"}))

    assert from_list.messages == LANGCHAIN
    assert from_lines.messages == LANGCHAIN
    assert from_thread.messages == LANGCHAIN


def test_only_messages_are_constructed() -> None:
    template = ["langchain_core", "PromptTemplate"]

    assert complaint([{"lc": 1, "type": "constructor", "id": template, "kwargs": {}}])


def node(key: str, parent: str | None, role: object, *parts: object, **more: Any) -> Any:
    """A message of a ChatGPT export, with more fields of it."""
    message = {
        "id": key,
        "author": {"role": role, "name": None, "metadata": {}},
        "content": {"content_type": "text", "parts": list(parts)},
    }
    return {"id": key, "parent": parent, "message": message | more}


ROOT = {"id": "root", "parent": None, "message": None}


def export(*nodes: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A conversation of a ChatGPT export, with more fields of it."""
    conversation = {
        "title": "Bread",
        "conversation_id": "c1",
        "current_node": nodes[-1]["id"],
        "mapping": {node["id"]: node for node in [ROOT, *nodes]},
    }
    return conversation | more


BRANCHED = (
    node("q", "root", "user", "Rye?", create_time=1_785_748_320.0),
    node("old", "q", "assistant", "No", create_time=1_785_748_330.0),
    node("new", "q", "assistant", "Yes", create_time=1_785_748_340.0),
    node("thanks", "old", "user", "Pity", create_time=1_785_748_335.0),
)


def test_a_chatgpt_export_keeps_titles_ids_and_times() -> None:
    conversation = only([export(*BRANCHED[:2])])

    assert conversation.conversation_id == "c1"
    assert conversation.title == "Bread"
    assert conversation.messages == [
        HumanMessage("Rye?", id="q", additional_kwargs={"created_at": "2026-08-03T09:12:00+00:00"}),
        AIMessage("No", id="old", additional_kwargs={"created_at": "2026-08-03T09:12:10+00:00"}),
    ]


@pytest.mark.parametrize(
    ("current", "expected"),
    [("thanks", ["Rye?", "No", "Pity"]), ("new", ["Rye?", "Yes"])],
)
def test_the_path_goes_to_the_current_node(current: str, expected: list[object]) -> None:
    assert texts(only(export(*BRANCHED, current_node=current))) == expected


def test_a_missing_current_node_is_named() -> None:
    assert "'gone' is missing" in complaint(export(*BRANCHED, current_node="gone"))


PAGE = {"content_type": "tether_quote", "text": "I live in Rome."}
THOUGHTS = {"content_type": "thoughts", "thoughts": [{"content": "private"}]}
HIDDEN = {"is_visually_hidden_from_conversation": True}


@pytest.mark.parametrize(
    "message",
    [
        pytest.param(node("1", "root", "user", "About me", metadata=HIDDEN), id="hidden"),
        pytest.param(node("1", "root", "user", content=PAGE), id="a page"),
        pytest.param(node("1", "root", "assistant", "superseded", weight=0), id="superseded"),
        pytest.param(node("1", "root", "assistant", "  "), id="blank"),
        pytest.param(node("1", "root", "assistant", content=None), id="empty"),
        pytest.param(node("1", "root", "assistant", content=THOUGHTS), id="thoughts"),
    ],
)
def test_what_nobody_said_is_not_read(message: dict[str, Any]) -> None:
    assert texts(only(export(message))) == []


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        pytest.param({"content_type": "text", "parts": ["a", None, "b"]}, "a\nb", id="text"),
        pytest.param(
            {"content_type": "code", "language": "python", "text": "x = 1"}, "x = 1", id="code"
        ),
        pytest.param(
            {
                "content_type": "multimodal_text",
                "parts": [{"asset_pointer": "file-service://x"}, PAGE, "Hm?"],
            },
            "Hm?",
            id="words beside an image",
        ),
    ],
)
def test_what_was_said_is_read(content: dict[str, Any], expected: str) -> None:
    assert texts(only(export(node("1", "root", "assistant", content=content)))) == [expected]


def test_what_a_tool_printed_is_the_assistants() -> None:
    author = {"role": "tool", "name": "python", "metadata": {}}

    [message] = only(export(node("1", "root", "tool", "2", author=author))).messages

    assert message.type == "ai"


def test_a_claude_export_is_read() -> None:
    at = "2026-08-03T09:12:00Z"
    messages = [
        {"uuid": "q", "sender": "human", "text": "Rye?", "created_at": at},
        {"uuid": "a", "sender": "assistant", "text": "Yes", "created_at": at, "files": []},
        {"uuid": "e", "sender": "human", "text": "", "created_at": at},
    ]

    conversation = only([{"uuid": "c1", "name": "Bread", "chat_messages": messages}])

    assert conversation.conversation_id == "c1"
    assert conversation.title == "Bread"
    assert conversation.messages == [
        HumanMessage("Rye?", id="q", additional_kwargs={"created_at": at}),
        AIMessage("Yes", id="a", additional_kwargs={"created_at": at}),
    ]


def test_a_conversation_without_an_id_keeps_its_name_when_it_goes_on() -> None:
    shorter = only(HELLO)
    longer = only([*HELLO, {"role": "user", "content": "More"}])

    assert shorter == only(HELLO)
    assert longer.conversation_id == shorter.conversation_id
    assert longer.messages[:2] == shorter.messages


RYE = only(export(*BRANCHED, title="Rye", conversation_id="1"))
SHELF = [
    RYE,
    only(export(*BRANCHED, title="Rye bread", conversation_id="2")),
    only(export(*BRANCHED, title="Oats", conversation_id="3")),
]


@pytest.mark.parametrize(
    ("title", "conversation_id"),
    [
        pytest.param("rye", "1", id="all of it"),
        pytest.param("READ", "2", id="a part"),
        pytest.param("oats", "3", id="in another case"),
        pytest.param("3", "3", id="the id"),
    ],
)
def test_a_title_is_matched_exactly_first_then_in_part(title: str, conversation_id: str) -> None:
    assert pick_conversation(SHELF, title=title).conversation_id == conversation_id


def test_the_only_conversation_needs_no_title() -> None:
    assert pick_conversation([RYE]) is RYE


@pytest.mark.parametrize("title", [None, "a", "wheat"])
def test_a_title_of_none_or_several_is_refused_with_all_titles(title: str | None) -> None:
    with pytest.raises(ConversationFormatError, match=r"(?s)Rye bread.*Oats"):
        pick_conversation(SHELF, title=title)


def test_of_no_conversations_none_is_picked() -> None:
    with pytest.raises(ConversationFormatError, match="0 conversations"):
        pick_conversation([])


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        pytest.param(b"", "the file: Expecting value", id="empty"),
        pytest.param(b"[]", "the file: has no messages", id="no messages"),
        pytest.param(b"hello", "the file: Expecting value: line 1 column 1", id="prose"),
        pytest.param(
            b'{"role": "user", "content": ""}\n{"role": user}\n{}',
            "line 2: Expecting value",
            id="a line that is no JSON",
        ),
        pytest.param(
            b'{"role": "user"}\n\xff\xfe',
            "the file: 'utf-8' codec can't decode byte 0xff in position 17",
            id="another encoding",
        ),
        pytest.param(b"PK\x03\x04zip\xff", "the file: 'utf-8' codec", id="an archive"),
        pytest.param(b"[" * 100_000, "the file: maximum recursion depth", id="too deep"),
        pytest.param(
            b'[{"role": "user"}]', "message 1: Message dict must contain", id="no content"
        ),
        pytest.param(
            b'[{"role": "bot", "content": ""}]',
            "message 1: Unexpected message type: 'bot'",
            id="unknown role",
        ),
        pytest.param(
            b'[{"role": "tool", "content": ""}]',
            "message 1: 'tool_call_id' is missing",
            id="a result of no call",
        ),
        pytest.param(
            b'{"messages": []}\n{"messages": [{}]}',
            "conversation 2: message 1: ",
            id="the second conversation",
        ),
        pytest.param(b'{"hello": 1}', "openai", id="other JSON"),
    ],
)
def test_a_file_that_fits_no_format_is_refused_with_its_place(data: bytes, expected: str) -> None:
    assert expected in complaint_about(data)


@pytest.mark.parametrize("name", ["openai", "langchain", "chatgpt", "claude"])
def test_the_complaint_names_every_format(name: str) -> None:
    assert name in complaint({})


@pytest.mark.parametrize("name", ["absent.json", "."], ids=["absent", "a folder"])
def test_a_file_that_cannot_be_opened_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConversationFormatError, match=re.escape(str(tmp_path))):
        read_conversations(tmp_path / name)


def test_a_path_that_cannot_be_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConversationFormatError, match=re.escape(str(tmp_path))):
        read_conversations(f"{tmp_path}/\0")


WORDS = (
    "role content messages type data kwargs id tool_calls function arguments mapping "
    "current_node message author parts parent text time created_at additional_kwargs "
    "invalid_tool_calls tool_call_id chat_messages sender"
).split()
VALUES = (
    "user assistant tool system human ai chat constructor HumanMessage root code thoughts".split()
)
leaves = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=4)
    | st.sampled_from(VALUES)
)
json_values = st.recursive(
    leaves,
    lambda part: (
        st.lists(part, max_size=4) | st.dictionaries(st.sampled_from(WORDS), part, max_size=6)
    ),
    max_leaves=12,
)
optional = dict.fromkeys(WORDS[2:], json_values) | dict.fromkeys(
    ["role", "type"], st.sampled_from(VALUES)
)
messages_like = st.fixed_dictionaries(
    {"content": st.text(max_size=3) | json_values}, optional=optional
)
documents = json_values | st.lists(messages_like, max_size=3)
anything = st.binary(max_size=60) | st.lists(documents, max_size=3).map(
    lambda values: lines(*values)
)


@pytest.mark.slow
@given(anything)
@settings(max_examples=120)
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    with contextlib.suppress(ConversationFormatError):
        assert all(conversation.conversation_id for conversation in parse_conversations(data))
