"""Files of every accepted format become conversations.

Every other file is refused with its place.
"""

import contextlib
import json
import re
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
FORMS = (message_to_dict, lambda message: message.model_dump(mode="json"), dumpd)


def one(value: object) -> ConversationFile:
    [conversation] = parse_conversations(json.dumps(value).encode())
    return conversation


def lines(*values: object) -> bytes:
    return "\n".join(map(json.dumps, values)).encode()


def complaint(data: object) -> str:
    raw = data if isinstance(data, bytes) else json.dumps(data).encode()
    with pytest.raises(ConversationFormatError) as error:
        parse_conversations(raw)
    return str(error.value)


def texts(conversation: ConversationFile) -> list[object]:
    return [message.content for message in conversation.messages]


def test_openai_messages_are_read_from_every_container() -> None:
    as_list = json.dumps(HELLO).encode()
    several = lines(*HELLO)
    for data in (
        as_list, json.dumps(HELLO, indent=2).encode(), several, several + b"\n\n", b"\xef\xbb\xbf" + as_list,
        json.dumps({"model": "gpt", "messages": HELLO}).encode()
    ):  # fmt: skip
        [conversation] = parse_conversations(data)
        assert [(m.type, m.content) for m in conversation.messages] == [
            ("human", "Hello"),
            ("ai", "Good morning"),
        ]


def test_calls_of_openai_are_read() -> None:
    def call(arguments: object) -> dict[str, Any]:
        return {
            "id": "c1",
            "type": "function",
            "function": {"name": "find", "arguments": arguments},
        }

    [message] = one(
        [
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [call(one) for one in ('{"q": "rye"}', "", None, {})],
            }
        ]
    ).messages
    assert isinstance(message, AIMessage)
    assert [made["args"] for made in message.tool_calls] == [{"q": "rye"}, {}, {}, {}]
    assert "message 1: " in complaint([{"role": "assistant", "tool_calls": [call('{"q": ')]}])


def test_times_become_created_at() -> None:
    for time, expected in (
        ("2026-08-03T09:12:00+02:00", "2026-08-03T09:12:00+02:00"),
        (1_785_748_320, "2026-08-03T09:12:00+00:00"),
        (1_785_748_320_000, "2026-08-03T09:12:00+00:00"),
    ):
        for key in ("created_at", "create_time", "timestamp"):
            [message] = one([{"role": "user", "content": "x", key: time}]).messages
            assert message.additional_kwargs == {"created_at": expected}
    for wrong in ("yesterday", 1e300, 10**400, [1], "2026-13-01"):
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


def test_langchain_messages_come_back_equal_from_every_form_and_container() -> None:
    for form in FORMS:
        values = [form(message) for message in LANGCHAIN]
        for data in (
            json.dumps(values).encode(),
            lines(*values),
            lines({"messages": values, "id": "thread"}),
        ):
            [conversation] = parse_conversations(data)
            assert conversation.messages == LANGCHAIN


def test_only_messages_are_constructed() -> None:
    assert complaint(
        [{"lc": 1, "type": "constructor", "id": ["langchain_core", "PromptTemplate"], "kwargs": {}}]
    )


def said(key: str, parent: str | None, role: object, *parts: object, **more: Any) -> Any:
    content = more.pop("content", {"content_type": "text", "parts": list(parts)})
    author = {"role": role, "name": more.pop("name", None), "metadata": {}}
    return {
        "id": key,
        "parent": parent,
        "message": {"id": key, "author": author, "content": content} | more,
    }


def export(*nodes: dict[str, Any], **more: Any) -> dict[str, Any]:
    mapping = {
        node["id"]: node for node in [{"id": "root", "parent": None, "message": None}, *nodes]
    }
    about = {"title": "Bread", "conversation_id": "c1", "current_node": nodes[-1]["id"]}
    return about | {"mapping": mapping} | more


BRANCHED = (
    said("q", "root", "user", "Rye?", create_time=1_785_748_320.0),
    said("old", "q", "assistant", "No", create_time=1_785_748_330.0),
    said("new", "q", "assistant", "Yes", create_time=1_785_748_340.0),
    said("thanks", "old", "user", "Pity", create_time=1_785_748_335.0),
)


def test_a_chatgpt_export_keeps_titles_ids_and_times() -> None:
    conversation = one([export(*BRANCHED[:2])])
    assert (conversation.conversation_id, conversation.title) == ("c1", "Bread")
    assert conversation.messages == [
        HumanMessage("Rye?", id="q", additional_kwargs={"created_at": "2026-08-03T09:12:00+00:00"}),
        AIMessage("No", id="old", additional_kwargs={"created_at": "2026-08-03T09:12:10+00:00"}),
    ]


def test_the_path_goes_to_the_current_node() -> None:
    for current, expected in (("thanks", ["Rye?", "No", "Pity"]), ("new", ["Rye?", "Yes"])):
        assert texts(one(export(*BRANCHED, current_node=current))) == expected
    assert "'gone' is missing" in complaint(export(*BRANCHED, current_node="gone"))


def test_only_what_was_said_is_read() -> None:
    hidden = {"is_visually_hidden_from_conversation": True}
    page = {"content_type": "tether_quote", "text": "I live in Rome."}
    left_out = (
        said("1", "root", "user", "About me", metadata=hidden),
        said("1", "root", "user", content=page),
        said("1", "root", "assistant", "superseded", weight=0),
        said("1", "root", "assistant", "  "),
        said("1", "root", "assistant", content=None),
        said(
            "1",
            "root",
            "assistant",
            content={"content_type": "thoughts", "thoughts": [{"content": "private"}]},
        ),
    )
    assert [texts(one(export(node))) for node in left_out] == [[]] * len(left_out)
    for content, expected in (
        ({"content_type": "text", "parts": ["a", None, "b"]}, "a\nb"),
        ({"content_type": "code", "language": "python", "text": "x = 1"}, "x = 1"),
        (
            {
                "content_type": "multimodal_text",
                "parts": [{"asset_pointer": "file-service://x"}, page, "Hm?"],
            },
            "Hm?",
        ),
    ):
        assert texts(one(export(said("1", "root", "assistant", content=content)))) == [expected]
    assert [
        m.type for m in one(export(said("1", "root", "tool", "2", name="python"))).messages
    ] == ["ai"]


def test_a_claude_export_is_read() -> None:
    at = "2026-08-03T09:12:00Z"
    said = [
        {"uuid": "q", "sender": "human", "text": "Rye?", "created_at": at},
        {"uuid": "a", "sender": "assistant", "text": "Yes", "created_at": at, "files": []},
        {"uuid": "e", "sender": "human", "text": "", "created_at": at},
    ]
    conversation = one([{"uuid": "c1", "name": "Bread", "chat_messages": said}])
    assert (conversation.conversation_id, conversation.title) == ("c1", "Bread")
    assert conversation.messages == [
        HumanMessage("Rye?", id="q", additional_kwargs={"created_at": at}),
        AIMessage("Yes", id="a", additional_kwargs={"created_at": at}),
    ]


def test_a_conversation_without_an_id_keeps_its_name_when_it_goes_on() -> None:
    shorter = one(HELLO)
    longer = one([*HELLO, {"role": "user", "content": "More"}])
    assert shorter == one(HELLO)
    assert longer.conversation_id == shorter.conversation_id
    assert longer.messages[:2] == shorter.messages


def test_a_title_is_matched_exactly_first_then_in_part() -> None:
    titles = [("Rye", "1"), ("Rye bread", "2"), ("Oats", "3")]
    shelf = [one(export(*BRANCHED, title=title, conversation_id=key)) for title, key in titles]
    for title, expected in (("rye", "1"), ("READ", "2"), ("oats", "3"), ("3", "3")):
        assert pick_conversation(shelf, title=title).conversation_id == expected
    assert pick_conversation(shelf[:1]) is shelf[0]
    for missing in (None, "a", "wheat"):
        with pytest.raises(ConversationFormatError, match=r"(?s)Rye bread.*Oats"):
            pick_conversation(shelf, title=missing)
    with pytest.raises(ConversationFormatError, match="0 conversations"):
        pick_conversation([])


REFUSED = {
    b"": "the file: Expecting value",
    b"[]": "the file: has no messages",
    b"hello": "the file: Expecting value: line 1 column 1",
    b'{"role": "user", "content": ""}\n{"role": user}\n{}': "line 2: Expecting value",
    b'{"role": "user"}\n\xff\xfe': "the file: 'utf-8' codec can't decode byte 0xff in position 17",
    b"PK\x03\x04zip\xff": "the file: 'utf-8' codec",
    b"[" * 100_000: "the file: maximum recursion depth",
    b'[{"role": "user"}]': "message 1: Message dict must contain",
    b'[{"role": "bot", "content": ""}]': "message 1: Unexpected message type: 'bot'",
    b'[{"role": "tool", "content": ""}]': "message 1: 'tool_call_id' is missing",
    b'{"messages": []}\n{"messages": [{}]}': "conversation 2: message 1: ",
    b'{"hello": 1}': "openai",
}


def test_a_file_that_fits_no_format_is_refused_with_its_place() -> None:
    for data, expected in REFUSED.items():
        assert expected in complaint(data), data
    assert all(name in complaint({}) for name in ("openai", "langchain", "chatgpt", "claude"))


def test_a_file_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    for path in (tmp_path / "absent.json", tmp_path, f"{tmp_path}/\0"):
        with pytest.raises(ConversationFormatError, match=re.escape(str(tmp_path))):
            read_conversations(path)


WORDS = (
    "role content messages type data kwargs id tool_calls function arguments mapping current_node message author parts "
    "parent text time created_at additional_kwargs invalid_tool_calls tool_call_id chat_messages sender"
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


@given(anything)
@settings(max_examples=120)
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    with contextlib.suppress(ConversationFormatError):
        assert all(conversation.conversation_id for conversation in parse_conversations(data))
