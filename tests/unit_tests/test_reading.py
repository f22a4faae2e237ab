"""Tests which files are read, what is skipped by name, and what is refused with its place."""

import contextlib
import json
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from langchain_ctxbudget.errors import ConversationFormatError
from langchain_ctxbudget.readers import (
    READERS,
    ReadConversation,
    parse_conversations,
    pick_conversation,
    read_conversations,
)


def lines(*values: object) -> bytes:
    return "\n".join(map(json.dumps, values)).encode()


def complaint_about(data: bytes) -> str:
    with pytest.raises(ConversationFormatError) as error:
        parse_conversations(data)
    return str(error.value)


def talk(key: str, *texts: str) -> dict[str, Any]:
    """A conversation of the user alone."""
    return {"id": key, "messages": [{"role": "user", "content": text} for text in texts]}


# Files, archives and folders

SHARDS = {
    "export/conversations-000.json": [talk("a", "Rye?")],
    "export/conversations-001.json": [talk("b", "Oats?"), talk("c")],
    "export/user.json": {"email": "ada@example.com"},
    "export/other.json": {"email": "ada@example.com"},
}


def in_folder(folder: Path, files: Mapping[str, object]) -> Path:
    for name, value in files.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(value), encoding="utf-8")
    (folder / "loaf.png").write_bytes(b"\x89PNG and so on")
    return folder


def in_archive(folder: Path, files: Mapping[str, object]) -> Path:
    path = folder / "download.dat"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("loaf.png", b"\x89PNG and so on")
        for name, value in files.items():
            archive.writestr(name, json.dumps(value))
    return path


@pytest.mark.parametrize("put", [in_folder, in_archive])
def test_shards_are_read_and_what_is_not_is_named(put: Any, tmp_path: Path) -> None:
    result = read_conversations(put(tmp_path, SHARDS))

    assert [one.conversation_id for one in result.conversations] == ["a", "b"]
    assert {(one.name, one.reason) for one in result.skipped} == {
        ("c", "has no messages"),
        ("export/other.json", "neither a message nor a conversation"),
    }


def test_a_folder_without_json_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConversationFormatError, match="there is no JSON in it"):
        read_conversations(in_folder(tmp_path, {}))


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-32"])
@pytest.mark.parametrize("alone", [True, False], ids=["a file", "a folder"])
def test_other_encodings_are_read(encoding: str, alone: bool, tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    file.write_bytes(json.dumps([talk("a", "Größe?")], ensure_ascii=False).encode(encoding))

    [conversation] = read_conversations(file if alone else tmp_path).conversations

    assert conversation.messages[0].text == "Größe?"


def test_an_archive_in_a_folder_is_read(tmp_path: Path) -> None:
    in_archive(tmp_path, SHARDS)

    assert len(read_conversations(tmp_path).conversations) == 2


@pytest.mark.parametrize(
    ("second", "expected"),
    [
        pytest.param(talk("a", "Rye?", "Or oats?"), [("a", 2)], id="it has grown"),
        pytest.param(talk("a", "Rye?"), [("a", 1)], id="it is the same"),
        pytest.param(talk("a", "Wheat?"), [("a", 1), ("a-2", 1)], id="it differs"),
    ],
)
def test_a_conversation_in_two_exports_is_one(
    second: dict[str, Any], expected: list[tuple[str, int]]
) -> None:
    result = parse_conversations(lines(talk("a", "Rye?"), second))

    assert [(one.conversation_id, len(one.messages)) for one in result.conversations] == expected


@pytest.mark.parametrize("key", ["conversations", "data", "runs"])
def test_conversations_under_one_key_are_read(key: str) -> None:
    data = json.dumps({key: [talk("a", "Rye?"), talk("b", "Oats?")], "meta": {"page": 1}}).encode()

    assert len(parse_conversations(data).conversations) == 2


# What is skipped


@pytest.mark.parametrize(
    ("broken", "expected"),
    [
        pytest.param(b"{broken", "line 2: is no JSON: Expecting", id="a line that is no JSON"),
        pytest.param(b"7", "line 2: is no JSON object", id="a number"),
        pytest.param(
            b'{"title": "Lost", "messages": [{}]}',
            "Lost: message 1: 'type' is missing",
            id="a conversation with a title",
        ),
        pytest.param(b'{"messages": [{}]}', "conversation 2: message 1", id="one without"),
    ],
)
def test_what_cannot_be_read_is_skipped_by_name(broken: bytes, expected: str) -> None:
    result = parse_conversations(lines(talk("a", "Rye?")) + b"\n" + broken)

    assert [one.conversation_id for one in result.conversations] == ["a"]
    [skipped] = result.skipped
    assert str(skipped).startswith(expected)


# Which conversation is meant


RYE = ReadConversation(conversation_id="1", title="Rye", messages=[])
SHELF = [
    RYE,
    ReadConversation(conversation_id="2", title="Rye bread", messages=[]),
    ReadConversation(conversation_id="3", title="Oats", messages=[]),
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


# What is refused


def test_an_archive_in_an_archive_is_named(tmp_path: Path) -> None:
    inner = in_archive(tmp_path, SHARDS).read_bytes()
    outer = tmp_path / "outer.zip"
    with zipfile.ZipFile(outer, "w") as archive:
        archive.writestr("inner.zip", inner)
        archive.writestr("shard.json", json.dumps(next(iter(SHARDS.values()))))

    skipped = {one.name: one.reason for one in read_conversations(outer).skipped}

    assert skipped["inner.zip"] == "is an archive in an archive: unpack it first"


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        pytest.param(b"", "the file: is no JSON", id="empty"),
        pytest.param(b"[]", "the file: has no messages", id="no messages"),
        pytest.param(b"hello", "the file: is no JSON: Expecting value: line 1", id="prose"),
        pytest.param(
            b'{"role": "user", "content": ""}\n{"role": user}\n{}',
            "line 2: is no JSON: Expecting value",
            id="a line that is no JSON",
        ),
        pytest.param(
            b'{"role": "user"}\n\xff\xfe',
            "the file: is no text in UTF-8 (see byte 17)",
            id="another encoding",
        ),
        pytest.param(b"PK\x03\x04zip\xff", "the archive cannot be read", id="half an archive"),
        pytest.param(b"[" * 100_000, "the file: is nested too deeply", id="too deep"),
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


@pytest.mark.parametrize("name", [reader.name for reader in READERS])
def test_the_complaint_names_every_format(name: str) -> None:
    assert name in complaint_about(b"{}")


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
        assert all(
            conversation.conversation_id for conversation in parse_conversations(data).conversations
        )
