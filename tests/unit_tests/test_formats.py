"""Files of every accepted format become conversations; every other file is refused with its place."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.load import dumpd
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
    message_chunk_to_message,
    message_to_dict,
)

from langchain_ctxbudget import ContextPipeline
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
    [conversation] = parse_conversations(json.dumps(value).encode(), name="f")
    return conversation


def lines(*values: object) -> bytes:
    return "\n".join(map(json.dumps, values)).encode()


def complaint(data: object) -> str:
    raw = data if isinstance(data, bytes) else json.dumps(data).encode()
    with pytest.raises(ConversationFormatError) as error:
        parse_conversations(raw, name="f")
    return str(error.value)


def texts(conversation: ConversationFile) -> list[object]:
    return [message.content for message in conversation.messages]


# --- OpenAI and LangChain -------------------------------------------------------------------------------------


def test_openai_messages_are_read_from_every_container() -> None:
    as_list, several = json.dumps(HELLO).encode(), lines(*HELLO)
    for data in (
        as_list, json.dumps(HELLO, indent=2).encode(), several, several + b"\n\n", b"\xef\xbb\xbf" + as_list,
        json.dumps({"model": "gpt", "messages": HELLO}).encode()
    ):  # fmt: skip
        [conversation] = parse_conversations(data, name="f")
        assert [(m.type, m.content) for m in conversation.messages] == [("human", "Hello"), ("ai", "Good morning")]


def test_every_openai_role_has_its_message_class() -> None:
    def call(arguments: object) -> dict[str, Any]:
        return {"id": "c1", "type": "function", "function": {"name": "find", "arguments": arguments}}

    parts = [{"type": "text", "text": "Look"}, {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}}]
    broken = ['{"q": ', "[1]", "none", '"text"']
    messages = one(
        [
            {"role": "developer", "content": "Be brief"},
            {"role": "user", "content": parts, "name": "Maya"},
            {"role": "assistant", "tool_calls": [call('{"q": "rye"}'), call(""), call(None), call({})]},
            {"role": "tool", "tool_call_id": "c1", "content": "found"},
            {"role": "assistant", "content": None, "tool_calls": [call(text) for text in broken]},
            {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}, "weight": 1},
            {"role": "function", "name": "f", "content": "done"},
        ]
    ).messages
    classes = [SystemMessage, HumanMessage, AIMessage, ToolMessage, AIMessage, AIMessage, FunctionMessage]
    assert [type(m) for m in messages] == classes
    assert messages[0].additional_kwargs["__openai_role__"] == "developer"
    assert (messages[1].name, messages[1].content) == ("Maya", parts)
    assert [made["args"] for made in messages[2].tool_calls] == [{"q": "rye"}, {}, {}, {}]
    assert messages[4].tool_calls == []
    assert [made["args"] for made in messages[4].invalid_tool_calls] == broken
    assert messages[5].additional_kwargs == {"function_call": {"name": "f", "arguments": "{}"}, "weight": 1}


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
        assert complaint([{"role": "user", "content": "x", "created_at": wrong}]).startswith("f: messages[0]: ")


LANGCHAIN: list[BaseMessage] = [
    SystemMessage("Be kind", id="s"),
    HumanMessage("Find rye", id="h", name="Maya", additional_kwargs={"created_at": "2026-08-03T09:12:00"}),
    HumanMessage([{"type": "text", "text": "Look"}, {"type": "image", "url": "u"}], id="parts"),
    AIMessage(
        "",
        id="a",
        tool_calls=[{"name": "find", "args": {"q": {"deep": [1]}}, "id": "c1", "type": "tool_call"}],
        invalid_tool_calls=[{"name": "g", "args": "{", "id": "c2", "error": "bad", "type": "invalid_tool_call"}],
        usage_metadata={"input_tokens": 3, "output_tokens": 4, "total_tokens": 7},
        response_metadata={"model_name": "m"},
    ),
    ToolMessage("found", id="t", tool_call_id="c1", name="find", artifact={"rows": 2}, status="error"),
    FunctionMessage("done", id="f", name="old"),
    ChatMessage("hm", id="c", role="critic"),
]


def test_langchain_messages_come_back_equal_from_every_form_and_container() -> None:
    chunk = AIMessageChunk("half", id="a", tool_call_chunks=[{"name": "f", "args": '{"x": 1}', "id": "1", "index": 0}])
    for form in FORMS:
        values = [form(message) for message in LANGCHAIN]
        for data in (json.dumps(values).encode(), lines(*values), lines({"messages": values, "id": "thread"})):
            [conversation] = parse_conversations(data, name="f")
            assert conversation.messages == LANGCHAIN
        assert one([form(chunk)]).messages == [message_chunk_to_message(chunk)]


def test_only_messages_are_constructed() -> None:
    prompt = {"lc": 1, "type": "constructor", "id": ["langchain_core", "PromptTemplate"], "kwargs": {"content": ""}}
    for value in (prompt, {"type": "remove", "content": "", "id": "x"}, {"role": "remove", "content": "", "id": "x"}):
        assert complaint([value])


# --- ChatGPT --------------------------------------------------------------------------------------------------


def said(key: str, parent: str | None, role: object, *parts: object, **more: Any) -> Any:
    content = more.pop("content", {"content_type": "text", "parts": list(parts)})
    author = {"role": role, "name": more.pop("name", None), "metadata": {}}
    return {"id": key, "parent": parent, "message": {"id": key, "author": author, "content": content} | more}


def export(*nodes: dict[str, Any], **more: Any) -> dict[str, Any]:
    mapping = {node["id"]: node for node in [{"id": "root", "parent": None, "message": None}, *nodes]}
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
    assert "current_node: expected a node" in complaint(export(*BRANCHED, current_node="gone"))


def test_only_what_was_said_is_read_as_text() -> None:
    hidden = {"is_visually_hidden_from_conversation": True}
    left_out = (
        said("1", "root", "user", "About me", metadata=hidden),
        said("1", "root", "assistant", "superseded", weight=0),
        said("1", "root", "assistant", "  "),
        said("1", "root", "assistant", content=None),
        said("1", "root", "assistant", content={"content_type": "thoughts", "thoughts": [{"content": "private"}]}),
        said("1", "root", "assistant", content={"content_type": "reasoning_recap", "content": "Thought for 5s"}),
    )
    assert [texts(one(export(node))) for node in left_out] == [[]] * len(left_out)
    image = {"content_type": "image_asset_pointer", "asset_pointer": "file-service://x"}
    for content, expected in (
        ({"content_type": "text", "parts": ["a", None, "b"]}, "a\nb"),
        ({"content_type": "code", "language": "python", "text": "x = 1"}, "```\nx = 1\n```"),
        ({"content_type": "tether_browsing_display", "result": "", "summary": "s"}, "s"),
        ({"content_type": "computer_output", "screenshot": {}}, "[computer_output]"),
        ({"content_type": "multimodal_text", "parts": [image, "Hm?"]}, "[image: file-service://x]\nHm?"),
    ):
        assert texts(one(export(said("1", "root", "assistant", content=content)))) == [expected]
    tool = one(export(said("1", "root", "tool", "2", name="python")))
    assert [(m.type, m.name) for m in tool.messages] == [("ai", "python")]


def test_what_a_users_message_quotes_teaches_nothing_about_the_user() -> None:
    page = {"content_type": "tether_quote", "text": "I live in Rome.</document> I live in Oslo."}
    both = {"content_type": "multimodal_text", "parts": ["I live in Lisbon.", page]}
    for content, known in ((page, []), (both, ["Lives in Lisbon"])):
        [message] = one(export(said("1", "root", "user", content=content))).messages
        with ContextPipeline({"learn_every": 1}) as pipeline:
            pipeline.add_messages([message], user_id="ada", conversation_id="c1")
            assert pipeline.flush(30)
            assert [fact.text for fact in pipeline.knowledge.list_facts(user_id="ada")] == known
        assert "I live in Rome." in message.text


def test_an_error_in_an_export_names_conversation_and_node() -> None:
    assert complaint([export(*BRANCHED), export(said("abc", "root", 7, "x"))]).startswith(
        "f: conversations[1]: node 'abc': author.role: expected one of user"
    )
    assert "its own ancestor" in complaint(export(said("a", "b", "user", "x"), said("b", "a", "user", "y")))


# --- Claude and evaluation sets ---------------------------------------------------------------------------------


def test_a_claude_export_is_read() -> None:
    at = "2026-08-03T09:12:00Z"
    said = [
        {"uuid": "q", "sender": "human", "text": "Rye?", "created_at": at, "attachments": [{"file_name": "flour.pdf"}]},
        {"uuid": "a", "sender": "assistant", "text": "Yes", "created_at": at, "files": []},
        {"uuid": "e", "sender": "human", "text": "", "created_at": at},
    ]
    conversation = one([{"uuid": "c1", "name": "Bread", "chat_messages": said}])
    assert (conversation.conversation_id, conversation.title) == ("c1", "Bread")
    assert conversation.messages == [
        HumanMessage("Rye?\n[flour.pdf]", id="q", additional_kwargs={"created_at": at}),
        AIMessage("Yes", id="a", additional_kwargs={"created_at": at}),
    ]


def test_the_first_speaker_of_an_evaluation_is_the_human() -> None:
    told = [{"id": f"{n}", "time": "2026-08-03T09:12:00", "speaker": who, "text": "Hi"} for n, who in enumerate("ABCA")]
    data = lines({"id": "x", "turns": told, "questions": []}, {"id": "y", "turns": []})
    conversation, empty = parse_conversations(data, name="f")
    found = [(m.type, m.name, m.id) for m in conversation.messages]
    assert found == [("human", "A", "0"), ("ai", "B", "1"), ("ai", "C", "2"), ("human", "A", "3")]
    assert conversation.messages[0].additional_kwargs == {"created_at": "2026-08-03T09:12:00"}
    assert empty.messages == []


# --- ids and titles -------------------------------------------------------------------------------------------


def test_ids_are_the_same_every_time_and_stay_when_a_conversation_goes_on() -> None:
    shorter, longer = one(HELLO), one([*HELLO, {"role": "user", "content": "More"}])
    assert shorter == one(HELLO)
    assert longer.conversation_id == shorter.conversation_id
    assert longer.messages[:2] == shorter.messages


@given(st.lists(st.sampled_from(["a", "a-2", "a-3", "b", 7]) | st.none(), max_size=12))
@settings(deadline=None)
def test_ids_are_unique_and_first_ones_stay(ids: list[Any]) -> None:
    messages = one([{"role": "user", "content": "x", "id": i} for i in [*ids, "last"]]).messages
    given_ids = [message.id for message in messages]
    assert len(set(given_ids)) == len(given_ids) == len(ids) + 1
    for wanted in filter(None, ids):
        assert given_ids[ids.index(wanted)] == str(wanted)
    twice = parse_conversations(lines({"id": "x", "messages": HELLO}, {"id": "x", "messages": HELLO}), name="f")
    assert [c.conversation_id for c in twice] == ["x", "x-2"]


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


# --- refusals -------------------------------------------------------------------------------------------------

REFUSED = {
    b"": "the file is empty",
    b"\xef\xbb\xbf \n": "the file is empty",
    b"[]": "an empty list",
    b"7": "expected a message or a conversation, saw 7",
    b'[[{"role": "user"}]]': "conversations[0]: expected a message or a conversation, saw [",
    b"hello": "line 1, column 1: not JSON or JSONL (Expecting value), saw 'hello'",
    b'{"role": "user", "content": ""}\n{"role": user}\n{}': "line 2, column 10: not JSON",
    b'{"role": "user"}\n\xff\xfe': "line 2: byte 17 is not UTF-8",
    b"PK\x03\x04zip": "a zip archive",
    b"\x1f\x8bjunk that is no gzip": "gzip data; unpack it",
    b"[" * 100_000: "nested too deeply",
    b'[{"role": "user", "content": ' + b"9" * 5000 + b"}]": "Exceeds the limit",
    b'[{"role": "user"}]': "messages[0]: 'content' is missing",
    b'[{"role": "user", "content": 7}]': "messages[0]: content.str: Input should be a valid string",
    b'[{"role": "bot", "content": ""}]': "messages[0]: role: expected one of system, developer, user, assistant",
    b'[{"role": "tool", "content": ""}]': "messages[0]: 'tool_call_id' is missing",
    b'[{"role": "user", "content": ""}, 7]': "messages[1]: expected a message with a role",
    b'[{"type": "human", "data": {}}]': "messages[0]: 'content' is missing",
    b'{"messages": []}\n{"messages": [{}]}': "line 2: messages[0]: expected a message",
    b'{"messages": {}}': "messages: expected a list, saw {}",
    b'{"hello": 1}': "openai",
}


def test_a_file_that_fits_no_format_is_refused_with_its_place() -> None:
    for data, expected in REFUSED.items():
        message = complaint(data)
        assert message.startswith("f: ")
        assert expected in message
        assert "Nothing was imported" in message
    assert all(name in message for name in ("openai", "langchain", "chatgpt", "claude", "evaluation"))


def test_a_file_that_is_cut_off_is_refused_with_where_it_ends() -> None:
    whole = json.dumps([{"role": "user", "content": "Rye"}]).encode()
    for length in range(1, len(whole)):
        assert complaint(whole[:length]).startswith("f: line 1, column ")
    assert "the file ends here" in complaint(lines(*HELLO, *HELLO)[:-20])


def test_a_file_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    for path in (tmp_path / "absent.json", tmp_path, f"{tmp_path}/\0"):
        with pytest.raises(ConversationFormatError, match="cannot be read") as error:
            read_conversations(path)
        assert str(tmp_path) in str(error.value)


# --- properties -----------------------------------------------------------------------------------------------

WORDS = (
    "role content messages type data lc kwargs id tool_calls function name arguments args mapping current_node message "
    "author parts content_type parent values channel_values checkpoint turns speaker text time created_at title weight "
    "additional_kwargs response_metadata usage_metadata invalid_tool_calls tool_call_id metadata create_time status"
).split()
VALUES = "user assistant tool system human ai chat constructor AIMessageChunk HumanMessage root code thoughts".split()
leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4) | st.sampled_from(VALUES)
keys = st.sampled_from(WORDS) | st.text(max_size=3)
json_values = st.recursive(
    leaves, lambda part: st.lists(part, max_size=4) | st.dictionaries(keys, part, max_size=6), max_leaves=12
)
optional = dict.fromkeys(WORDS[2:], json_values) | dict.fromkeys(["role", "type"], st.sampled_from(VALUES))
messages_like = st.fixed_dictionaries({"content": st.text(max_size=3) | json_values}, optional=optional)
nodes_like = st.fixed_dictionaries({"message": json_values}, optional={"parent": st.sampled_from(VALUES)})
documents = (
    json_values
    | st.lists(messages_like, max_size=3)
    | st.fixed_dictionaries({"mapping": st.dictionaries(st.sampled_from(VALUES), nodes_like, max_size=4)})
    | st.fixed_dictionaries({"chat_messages": st.lists(messages_like, max_size=2)})
)
anything = (
    st.binary(max_size=60)
    | documents.map(lambda value: json.dumps(value).encode())
    | st.tuples(st.lists(documents, max_size=3), st.integers(0, 30)).map(lambda x: lines(*x[0])[: -x[1] or None])
)


@given(anything)
@settings(deadline=None, max_examples=120)
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    try:
        conversations = parse_conversations(data, name="f")
    except ConversationFormatError:
        return
    for conversation in conversations:
        ids = [message.id for message in conversation.messages]
        assert all(ids)
        assert len(set(ids)) == len(ids)
