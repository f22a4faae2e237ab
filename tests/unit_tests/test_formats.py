"""Files of every accepted format become conversations; every other file is refused with its place."""

import gzip
import importlib.util
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
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph

from langchain_ctxbudget.errors import ConversationFormatError
from langchain_ctxbudget.formats import (
    ConversationFile,
    parse_conversations,
    pick_conversation,
    read_conversations,
)

EVALUATION = Path(__file__).parents[3] / "shared" / "eval"


def parse(value: object) -> list[ConversationFile]:
    return parse_conversations(json.dumps(value).encode(), name="f")


def one(value: object) -> ConversationFile:
    (conversation,) = parse(value)
    return conversation


def lines(*values: object) -> bytes:
    return "\n".join(map(json.dumps, values)).encode()


def complaint(data: object) -> str:
    raw = data if isinstance(data, bytes) else json.dumps(data).encode()
    with pytest.raises(ConversationFormatError) as error:
        parse_conversations(raw, name="f")
    return str(error.value)


def call(arguments: object, call_id: str = "c1") -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": "find", "arguments": arguments}}


# --- OpenAI ---------------------------------------------------------------------------------------------------

HELLO = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Good morning"}]


@pytest.mark.parametrize(
    "data",
    [
        json.dumps(HELLO).encode(),
        json.dumps(HELLO, indent=2).encode(),
        lines(*HELLO),
        lines(*HELLO) + b"\n\n",
        json.dumps({"model": "gpt", "messages": HELLO}).encode(),
        b"\xef\xbb\xbf" + json.dumps(HELLO).encode(),
        gzip.compress(lines(*HELLO)),
    ],
    ids=["list", "indented", "jsonl", "jsonl blank lines", "request body", "byte order mark", "gzip"],
)
def test_openai_messages_are_read_from_every_container(data: bytes) -> None:
    (conversation,) = parse_conversations(data, name="f")
    assert conversation.format == "openai"
    assert [(m.type, m.content) for m in conversation.messages] == [("human", "Hello"), ("ai", "Good morning")]


def test_fine_tuning_lines_are_several_conversations() -> None:
    other = [{"role": "user", "content": "Bye"}]
    conversations = parse_conversations(lines({"messages": HELLO}, {"messages": other}), name="f")
    assert [len(c.messages) for c in conversations] == [2, 1]
    assert len({c.conversation_id for c in conversations}) == 2


def test_every_openai_role_has_its_message_class() -> None:
    messages = one(
        [
            {"role": "system", "content": "Be kind"},
            {"role": "developer", "content": "Be brief"},
            {"role": "user", "content": "Find it", "name": "Maya"},
            {"role": "assistant", "content": None, "tool_calls": [call('{"q": "rye"}')]},
            {"role": "tool", "tool_call_id": "c1", "content": "found"},
            {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}},
            {"role": "function", "name": "f", "content": "done"},
        ]
    ).messages
    classes = [SystemMessage, SystemMessage, HumanMessage, AIMessage, ToolMessage, AIMessage, FunctionMessage]
    assert [type(m) for m in messages] == classes
    assert messages[1].additional_kwargs["__openai_role__"] == "developer"
    assert messages[2].name == "Maya"
    assert messages[3].tool_calls == [{"name": "find", "args": {"q": "rye"}, "id": "c1", "type": "tool_call"}]
    assert messages[4].tool_call_id == "c1"
    assert messages[5].additional_kwargs["function_call"] == {"name": "f", "arguments": "{}"}


@pytest.mark.parametrize("arguments", ['{"q": ', "[1]", "none", '"text"'])
def test_tool_call_arguments_that_are_no_object_are_kept_as_an_invalid_call(arguments: str) -> None:
    message = one([{"role": "assistant", "content": "", "tool_calls": [call(arguments)]}]).messages[0]
    assert message.tool_calls == []
    assert [(c["name"], c["args"], c["id"]) for c in message.invalid_tool_calls] == [("find", arguments, "c1")]


@pytest.mark.parametrize("arguments", ["", "{}", None, {}])
def test_tool_calls_without_arguments_are_valid(arguments: object) -> None:
    message = one([{"role": "assistant", "content": "", "tool_calls": [call(arguments)]}]).messages[0]
    assert [c["args"] for c in message.tool_calls] == [{}]


def test_content_parts_stay_as_they_are() -> None:
    parts = [
        {"type": "text", "text": "Look"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}},
        {"type": "input_audio", "input_audio": {"data": "AA", "format": "wav"}},
        {"type": "file", "file": {"file_id": "f1"}},
        {"type": "refusal", "refusal": "No"},
    ]
    assert one([{"role": "user", "content": parts}]).messages[0].content == parts


def test_fields_without_a_place_are_kept_in_additional_kwargs() -> None:
    message = one([{"role": "assistant", "content": None, "refusal": "No", "weight": 1}]).messages[0]
    assert message.additional_kwargs == {"refusal": "No", "weight": 1}


@pytest.mark.parametrize("key", ["created_at", "create_time", "timestamp"])
@pytest.mark.parametrize(
    ("time", "expected"),
    [
        ("2026-08-03T09:12:00+02:00", "2026-08-03T09:12:00+02:00"),
        ("2026-08-03", "2026-08-03"),
        (1_785_748_320, "2026-08-03T09:12:00+00:00"),
        (1_785_748_320.5, "2026-08-03T09:12:00.500000+00:00"),
        (1_785_748_320_000, "2026-08-03T09:12:00+00:00"),
    ],
)
def test_times_become_created_at(key: str, time: object, expected: str) -> None:
    message = one([{"role": "user", "content": "x", key: time}]).messages[0]
    assert message.additional_kwargs == {"created_at": expected}


@pytest.mark.parametrize("time", ["yesterday", True, 1e300, 10**400, [], "2026-13-01"])
def test_a_time_that_is_none_is_refused(time: object) -> None:
    assert "f: messages[0].created_at: expected an ISO 8601 time" in complaint(
        [{"role": "user", "content": "x", "created_at": time}]
    )


# --- LangChain ------------------------------------------------------------------------------------------------

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
    HumanMessage("lc", id="lc", additional_kwargs={"x": {"lc": 1}, "y": {"__lc_escaped__": {"lc": 2}}}),
]


def dumped(message: BaseMessage) -> dict[str, Any]:
    return message.model_dump(mode="json")


@pytest.mark.parametrize("form", [message_to_dict, dumped, dumpd])
@pytest.mark.parametrize("container", ["list", "jsonl", "object"])
def test_langchain_messages_come_back_equal_from_every_form(form: Any, container: str) -> None:
    values = [form(message) for message in LANGCHAIN]
    data = {
        "list": json.dumps(values).encode(),
        "jsonl": lines(*values),
        "object": json.dumps({"messages": values, "id": "thread"}).encode(),
    }[container]
    (conversation,) = parse_conversations(data, name="f")
    assert conversation.format == "langchain"
    assert conversation.messages == LANGCHAIN
    assert [type(m) for m in conversation.messages] == [type(m) for m in LANGCHAIN]


text = st.text(st.characters(exclude_categories=["Cs"]))


@given(
    content=text,
    name=text | st.none(),
    extra=st.dictionaries(text, text | st.integers()),
    args=st.dictionaries(text, text),
)
@settings(deadline=None)
@pytest.mark.parametrize("form", [message_to_dict, dumped, dumpd])
def test_any_langchain_message_comes_back_equal(form: Any, content: str, name: Any, extra: Any, args: Any) -> None:
    tool_calls = [{"name": "f", "args": args, "id": "1", "type": "tool_call"}]
    human = HumanMessage(content, id="h", name=name, additional_kwargs={"extra": extra})
    ai = AIMessage(content, id="a", name=name, response_metadata=extra, tool_calls=tool_calls)
    assert one([form(human), form(ai)]).messages == [human, ai]


@pytest.mark.parametrize("form", [message_to_dict, dumped, dumpd])
def test_chunks_come_back_as_whole_messages(form: Any) -> None:
    chunk = AIMessageChunk("half", id="a", tool_call_chunks=[{"name": "f", "args": '{"x": 1}', "id": "1", "index": 0}])
    assert one([form(chunk)]).messages == [message_chunk_to_message(chunk)]


def test_only_message_classes_are_constructed() -> None:
    prompt = {"lc": 1, "type": "constructor", "id": ["langchain_core", "PromptTemplate"], "kwargs": {"content": ""}}
    assert "f: messages[0].id: expected one of HumanMessage" in complaint([prompt])


def test_remove_messages_are_refused() -> None:
    assert complaint([{"type": "remove", "content": "", "id": "x"}])


# --- ChatGPT --------------------------------------------------------------------------------------------------


def said(key: str, parent: str | None, role: str, *parts: object, time: float | None = None, **more: Any) -> Any:
    content = more.pop("content", {"content_type": "text", "parts": list(parts)})
    author = {"role": role, "name": more.pop("name", None), "metadata": {}}
    message = {"id": key, "author": author, "create_time": time, "content": content, "weight": 1.0, "metadata": {}}
    return {"id": key, "parent": parent, "children": [], "message": message | {"recipient": "all"} | more}


def export(*nodes: dict[str, Any], current: str | None = "last", **more: Any) -> dict[str, Any]:
    root = {"id": "root", "parent": None, "children": [], "message": None}
    mapping = {node["id"]: node for node in [root, *nodes]}
    for node in nodes:
        if node["parent"] in mapping:
            mapping[node["parent"]]["children"].append(node["id"])
    about = {"title": "Bread", "conversation_id": "c1", "id": "c0", "create_time": 1.7e9}
    return about | {"mapping": mapping, "current_node": nodes[-1]["id"] if current == "last" else current} | more


def texts(conversation: ConversationFile) -> list[object]:
    return [m.content for m in conversation.messages]


BRANCHED = (
    said("q", "root", "user", "Rye?", time=1_785_748_320.0),
    said("old", "q", "assistant", "No", time=1_785_748_330.0),
    said("new", "q", "assistant", "Yes", time=1_785_748_340.0),
    said("thanks", "old", "user", "Pity", time=1_785_748_335.0),
)


def test_a_chatgpt_export_keeps_titles_ids_and_times() -> None:
    (conversation,) = parse([export(*BRANCHED[:2])])
    assert (conversation.format, conversation.conversation_id, conversation.title) == ("chatgpt", "c1", "Bread")
    assert conversation.messages == [
        HumanMessage("Rye?", id="q", additional_kwargs={"created_at": "2026-08-03T09:12:00+00:00"}),
        AIMessage("No", id="old", additional_kwargs={"created_at": "2026-08-03T09:12:10+00:00"}),
    ]


@pytest.mark.parametrize(
    ("current", "expected"),
    [
        ("thanks", ["Rye?", "No", "Pity"]),
        ("new", ["Rye?", "Yes"]),
        (None, ["Rye?", "Yes"]),
        ("gone", ["Rye?", "Yes"]),
    ],
)
def test_the_path_goes_to_the_current_node_else_along_the_newest_children(current: Any, expected: list[str]) -> None:
    assert texts(one(export(*BRANCHED, current=current))) == expected


def test_children_without_a_time_count_in_their_order() -> None:
    nodes = (said("q", "root", "user", "Rye?"), said("a", "q", "assistant", "1"), said("b", "q", "assistant", "2"))
    assert texts(one(export(*nodes, current=None))) == ["Rye?", "2"]


def test_hidden_weightless_and_empty_nodes_are_left_out() -> None:
    hidden = {"is_visually_hidden_from_conversation": True}
    conversation = one(
        export(
            said("1", "root", "system", ""),
            said("2", "1", "user", "About me", metadata=hidden),
            said("3", "2", "assistant", "superseded", weight=0),
            said("4", "3", "user", "Hello"),
            said("5", "4", "assistant", "  "),
            said("6", "5", "assistant", content=None),
            said("7", "6", "assistant", "Good morning", metadata=None),
        )
    )
    assert texts(conversation) == ["Hello", "Good morning"]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ({"content_type": "text", "parts": ["a", None, "b"]}, "a\nb"),
        ({"content_type": "code", "language": "python", "text": "x = 1"}, "```python\nx = 1\n```"),
        ({"content_type": "code", "language": "unknown", "text": "{}"}, "```\n{}\n```"),
        ({"content_type": "execution_output", "text": "42"}, "```\n42\n```"),
        ({"content_type": "tether_quote", "title": "T", "url": "u", "text": "q"}, "T\nu\nq"),
        ({"content_type": "tether_browsing_display", "result": "r", "summary": "s"}, "r"),
        ({"content_type": "tether_browsing_display", "result": "", "summary": "s"}, "s"),
        ({"content_type": "system_error", "name": "E", "text": "broken"}, "broken"),
        ({"content_type": "computer_output", "screenshot": {}}, "[computer_output]"),
        (
            {
                "content_type": "multimodal_text",
                "parts": [{"content_type": "image_asset_pointer", "asset_pointer": "file-service://x"}, "What is it?"],
            },
            "[image: file-service://x]\nWhat is it?",
        ),
        (
            {
                "content_type": "multimodal_text",
                "parts": [
                    {"content_type": "audio_transcription", "text": "Hi"},
                    {"content_type": "real_time_user_audio_video_asset_pointer", "audio_asset_pointer": {}},
                ],
            },
            "Hi\n[voice]",
        ),
        ({"content_type": "user_editable_context", "user_profile": "p", "user_instructions": "i"}, "p\ni"),
    ],
)
def test_every_content_type_becomes_text(content: dict[str, Any], expected: str) -> None:
    assert texts(one(export(said("1", "root", "assistant", content=content)))) == [expected]


@pytest.mark.parametrize(
    "content",
    [
        {"content_type": "thoughts", "thoughts": [{"summary": "s", "content": "private"}]},
        {"content_type": "reasoning_recap", "content": "Thought for 5s"},
        {"content_type": "tether_browsing_display", "result": "", "summary": "", "assets": None},
    ],
)
def test_what_was_not_said_is_left_out(content: dict[str, Any]) -> None:
    assert texts(one(export(said("1", "root", "assistant", content=content)))) == []


def test_tool_output_is_on_the_assistants_side() -> None:
    conversation = one(
        export(
            said("1", "root", "assistant", content={"content_type": "code", "text": "1+1"}, recipient="python"),
            said("2", "1", "tool", content={"content_type": "execution_output", "text": "2"}, name="python"),
            said("3", "2", "tool", "a page"),
        )
    )
    assert [(m.type, m.name) for m in conversation.messages] == [("ai", None), ("ai", "python"), ("ai", "tool")]


def test_a_chatgpt_error_names_conversation_node_and_field() -> None:
    bad = export(said("abc", "root", 7, "x"))
    expected = 'f: conversations[1].mapping["abc"].message.author.role: expected a string, saw 7.'
    assert complaint([export(*BRANCHED), bad]).startswith(expected)


def test_a_chatgpt_tree_in_a_circle_is_refused() -> None:
    a, b = said("a", "b", "user", "x"), said("b", "a", "user", "y")
    assert "its own ancestor" in complaint(export(a, b))


# --- LangGraph ------------------------------------------------------------------------------------------------


def test_a_state_snapshot_of_a_real_graph_is_read() -> None:
    def answer(_: MessagesState) -> dict[str, Any]:
        return {"messages": [AIMessage("Yes", id="a", name="bot")]}

    graph = StateGraph(MessagesState).add_node(answer).add_edge(START, "answer").compile(InMemorySaver())
    config = {"configurable": {"thread_id": "t1"}}
    graph.invoke({"messages": [HumanMessage("Rye?", id="h")]}, config)
    snapshot = graph.get_state(config)._asdict()
    dump = json.loads(json.dumps(snapshot, default=lambda o: o.model_dump() if isinstance(o, BaseMessage) else str(o)))
    conversation = one(dump)
    assert (conversation.format, conversation.conversation_id) == ("langgraph", "t1")
    assert conversation.messages == snapshot["values"]["messages"]


@pytest.mark.parametrize(
    "state",
    [
        {"values": {"messages": HELLO}, "metadata": {"thread_id": "t1"}},
        {"values": {"messages": HELLO}, "checkpoint": {"thread_id": "t1", "checkpoint_id": "x"}, "metadata": None},
        {"values": {"messages": HELLO}, "thread_id": "t1"},
        {"channel_values": {"messages": HELLO}, "metadata": {"thread_id": "t1"}},
        {"checkpoint": {"channel_values": {"messages": HELLO}}, "config": {"configurable": {"thread_id": "t1"}}},
    ],
    ids=["metadata", "server answer", "server thread", "checkpoint", "checkpoint tuple"],
)
def test_every_form_of_a_state_is_read(state: dict[str, Any]) -> None:
    conversation = one(state)
    assert (conversation.format, conversation.conversation_id) == ("langgraph", "t1")
    assert texts(conversation) == ["Hello", "Good morning"]


def test_a_state_without_messages_is_refused() -> None:
    assert complaint({"values": {"count": 1}}).startswith(
        "f: values.messages: expected a list of messages, saw nothing"
    )


# --- evaluation -----------------------------------------------------------------------------------------------


def turn(turn_id: str, speaker: str, spoken: str) -> dict[str, str]:
    return {"id": turn_id, "session": "S1", "time": "2026-08-03T09:12:00", "speaker": speaker, "text": spoken}


def test_the_first_speaker_of_an_evaluation_is_the_human() -> None:
    turns = [turn("1", "Ana", "Hi"), turn("2", "Bo", "Hello"), turn("3", "Cy", "Hey"), turn("4", "Ana", "Bye")]
    data = gzip.compress(lines({"id": "x", "turns": turns, "questions": []}, {"id": "y", "turns": []}))
    conversation, empty = parse_conversations(data, name="f")
    assert (conversation.format, conversation.conversation_id) == ("evaluation", "x")
    assert [(m.type, m.name, m.id) for m in conversation.messages] == [
        ("human", "Ana", "1"),
        ("ai", "Bo", "2"),
        ("ai", "Cy", "3"),
        ("human", "Ana", "4"),
    ]
    assert conversation.messages[0].additional_kwargs == {"created_at": "2026-08-03T09:12:00"}
    assert empty.messages == []


def test_an_agent_trace_is_an_evaluation() -> None:
    conversation = one({"id": "trace-1", "messages": HELLO})
    assert (conversation.format, conversation.conversation_id) == ("evaluation", "trace-1")


@pytest.mark.skipif(not EVALUATION.is_dir(), reason="the shared evaluation data is not on this machine")
@pytest.mark.parametrize("name", ["locomo", "realmem"])
def test_evaluation_sets_are_read_as_their_own_script_reads_them(name: str) -> None:
    path = EVALUATION / "data" / f"{name}.dev.jsonl.gz"
    spec = importlib.util.spec_from_file_location("evidence_recall", EVALUATION / "evidence_recall.py")
    assert spec
    assert spec.loader
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    expected = {c["id"]: script.as_messages(c["turns"]) for c in script.conversations(path)}
    assert {c.conversation_id: c.messages for c in read_conversations(path)} == expected


@pytest.mark.skipif(not EVALUATION.is_dir(), reason="the shared evaluation data is not on this machine")
def test_agent_traces_of_an_evaluation_set_are_read() -> None:
    conversations = read_conversations(EVALUATION / "data" / "tau_airline.dev.jsonl.gz")
    assert len(conversations) == 60
    assert {c.format for c in conversations} == {"evaluation"}
    assert any(m.tool_calls for c in conversations for m in c.messages if isinstance(m, AIMessage))


# --- ids ------------------------------------------------------------------------------------------------------


def test_reading_twice_gives_the_same_ids() -> None:
    first, second = one(HELLO), one(HELLO)
    assert first == second
    assert all(m.id for m in first.messages)


def test_a_conversation_without_an_id_keeps_its_id_when_it_goes_on() -> None:
    longer = one([*HELLO, {"role": "user", "content": "More"}])
    shorter = one(HELLO)
    assert longer.conversation_id == shorter.conversation_id
    assert longer.messages[:2] == shorter.messages


def test_a_second_message_with_an_id_gets_a_number_and_nothing_is_dropped() -> None:
    ids = ["a", "a", "a-2", "a", None, 7]
    messages = one([{"role": "user", "content": "x", "id": i} for i in ids]).messages
    assert [m.id for m in messages][:4] == ["a", "a-3", "a-2", "a-4"]
    assert len({m.id for m in messages}) == 6
    assert messages[5].id == "7"


def test_a_second_conversation_with_an_id_gets_a_number() -> None:
    conversations = parse([{"id": "x", "messages": HELLO}, {"id": "x", "messages": HELLO}])
    assert [c.conversation_id for c in conversations] == ["x", "x-2"]


# --- choosing -------------------------------------------------------------------------------------------------

SHELF = parse(
    [export(*BRANCHED, title=t, conversation_id=i) for t, i in [("Rye", "1"), ("Rye bread", "2"), ("Oats", "3")]]
)


@pytest.mark.parametrize(("title", "expected"), [("rye", "1"), ("READ", "2"), ("oats", "3"), ("3", "3")])
def test_a_title_is_matched_exactly_first_then_in_part(title: str, expected: str) -> None:
    assert pick_conversation(SHELF, title=title).conversation_id == expected


def test_a_single_conversation_needs_no_title() -> None:
    assert pick_conversation(SHELF[:1], title=None) is SHELF[0]


@pytest.mark.parametrize("title", [None, "a", "wheat"])
def test_no_or_an_ambiguous_or_unknown_title_lists_the_titles(title: str | None) -> None:
    with pytest.raises(ConversationFormatError) as error:
        pick_conversation(SHELF, title=title)
    assert "Rye bread" in str(error.value)
    assert "Oats" in str(error.value)


def test_nothing_to_choose_from_is_an_error() -> None:
    with pytest.raises(ConversationFormatError, match="no conversation"):
        pick_conversation([], title=None)


# --- refusals -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", "the file is empty"),
        (b"\xef\xbb\xbf \n", "the file is empty"),
        (b"[]", "an empty list"),
        (b"7", "expected a message or a conversation, saw 7"),
        (b'[[{"role": "user"}]]', "conversations[0]: expected a message or a conversation, saw a list of 1"),
        (b'{"a": 1, "b": 2}', 'saw an object with "a", "b"'),
        (b"hello", 'line 1, column 1: not JSON or JSONL (Expecting value), saw "hello"'),
        (b"\x00\x01\x02", "line 1, column 1: not JSON"),
        (b'{"role": "user"}\n\xff\xfe', "line 2: byte 17 (0xff) is not UTF-8"),
        (b"PK\x03\x04zip", "a zip archive"),
        (gzip.compress(b"[]" * 99, mtime=0)[:-9], "the gzip data is cut off"),
        (b"\x1f\x8bjunk that is no gzip", "damaged gzip data"),
        (b"[" * 100_000, "nested too deeply"),
        (b'[{"role": "user", "content": ' + b"9" * 5000 + b"}]", "Exceeds the limit"),
        (b'[{"role": "user", "content": 1e999}]', "the number 1e999 is too large"),
        (b'[{"role": "user"}]', "messages[0].content: expected the content, saw nothing"),
        (b'[{"role": "user", "content": 7}]', "messages[0].content: expected a string, a list of parts or null, saw 7"),
        (b'[{"role": "user", "content": [{}]}]', "messages[0].content[0].type: expected a string"),
        (b'[{"role": "bot", "content": ""}]', "messages[0].role: expected one of system, developer, user, assistant"),
        (b'[{"role": "tool", "content": ""}]', "messages[0]: not a tool message: 'tool_call_id' is missing"),
        (b'[{"role": "user", "content": ""}, 7]', "messages[1]: expected a message with a role"),
        (b'[{"type": "human", "data": {}}]', "messages[0].data.content: expected the content"),
        (b'[{"type": "tool", "content": ""}]', "messages[0]: not a ToolMessage: 'tool_call_id' is missing"),
        (b'{"messages": []}\n{"turns": []}', "line 2: expected a conversation in the form of the first one"),
        (b'{"messages": {}}', "messages: expected a list, saw an empty object"),
    ],
)  # fmt: skip
def test_a_file_that_fits_no_format_is_refused_with_its_place(data: bytes, expected: str) -> None:
    message = complaint(data)
    assert expected in message
    assert "Nothing was imported" in message


def test_a_file_of_another_kind_is_told_what_is_accepted() -> None:
    message = complaint({"conversations": []})
    for name in ("openai", "langchain", "chatgpt", "langgraph", "evaluation"):
        assert name in message


WHOLE = json.dumps([{"role": "user", "content": "Rye \u00e9", "flag": True, "n": None, "x": -1.5}]).encode()


@pytest.mark.parametrize("length", range(1, len(WHOLE)))
def test_a_file_cut_off_anywhere_is_refused_with_where_it_ends(length: int) -> None:
    message = complaint(WHOLE[:length])
    assert "line 1, column" in message
    assert "the file ends here" in message
    assert "Nothing was imported" in message


def test_jsonl_whose_last_line_is_cut_off_is_refused_with_the_line() -> None:
    message = complaint(lines(*HELLO, *HELLO)[:-20])
    assert message.startswith("f: line 4, column")
    assert "the file ends here" in message


def test_jsonl_with_a_broken_line_in_the_middle_names_line_and_column() -> None:
    message = complaint(lines(HELLO[0]) + b'\n{"role": user}\n' + lines(HELLO[1]))
    assert message.startswith("f: line 2, column 10: not JSON")
    assert "ends here" not in message


def test_line_separators_inside_strings_do_not_end_a_line() -> None:
    line = '{"role": "user", "content": "a\u2028b\u0085c"}'
    assert texts(parse_conversations(f"{line}\n{line}".encode(), name="f")[0]) == ["a\u2028b\u0085c"] * 2


def test_a_missing_file_and_a_directory_are_named(tmp_path: Path) -> None:
    for path in (tmp_path / "absent.json", tmp_path, f"{tmp_path}/\0"):
        with pytest.raises(ConversationFormatError) as error:
            read_conversations(path)
        assert str(tmp_path) in str(error.value)


def test_errors_of_a_read_file_carry_its_path(tmp_path: Path) -> None:
    path = tmp_path / "chat.txt"
    path.write_bytes(b"{")
    with pytest.raises(ConversationFormatError, match=r"chat\.txt: line 1"):
        read_conversations(str(path))


def test_a_message_nested_beyond_reason_is_refused() -> None:
    deep: Any = "x"
    for _ in range(300):
        deep = {"k": deep}
    assert "f: messages[0]: nested deeper than 100 levels" in complaint([{"role": "user", "content": "", "k": deep}])


def test_lone_surrogates_and_not_a_number_are_replaced() -> None:
    data = b'[{"role": "user", "content": "a\\ud800b \\ud83e\\udd56", "x": NaN, "\\udc00": [-Infinity]}]'
    message = parse_conversations(data, name="f")[0].messages[0]
    assert message.content == "a\ufffdb \N{BAGUETTE BREAD}"
    assert message.additional_kwargs == {"x": None, "\ufffd": [None]}


# --- properties -----------------------------------------------------------------------------------------------

WORDS = [
    "role", "content", "messages", "type", "data", "lc", "kwargs", "id", "tool_calls", "function", "name",
    "arguments", "args", "mapping", "current_node", "message", "author", "parts", "content_type", "parent",
    "children", "values", "channel_values", "checkpoint", "turns", "speaker", "text", "time", "created_at",
    "additional_kwargs", "response_metadata", "usage_metadata", "invalid_tool_calls", "tool_call_id", "self",
    "content_blocks", "title", "metadata", "weight", "create_time", "function_call", "example", "artifact", "status",
]  # fmt: skip
VALUES = [
    "user", "assistant", "tool", "system", "function", "developer", "human", "ai", "chat", "constructor",
    "AIMessageChunk", "HumanMessage", "root", "text", "thoughts", "multimodal_text", "code", "2026-08-03", "",
]  # fmt: skip
leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4) | st.sampled_from(VALUES)
json_values = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(WORDS) | st.text(max_size=3), inner, max_size=6)
    ),
    max_leaves=12,
)
messages_like = st.fixed_dictionaries(
    {"content": st.text(max_size=3) | json_values},
    optional=dict.fromkeys(WORDS[2:], json_values) | dict.fromkeys(["role", "type"], st.sampled_from(VALUES)),
)
nodes_like = st.dictionaries(
    st.sampled_from(VALUES),
    st.fixed_dictionaries(
        {"message": json_values | st.none()},
        optional={"parent": st.sampled_from(VALUES), "children": st.lists(st.sampled_from(VALUES), max_size=2)},
    ),
    max_size=4,
)
documents = (
    json_values
    | st.lists(messages_like, max_size=3)
    | st.fixed_dictionaries({"mapping": nodes_like}, optional={"current_node": st.sampled_from(VALUES)})
    | st.fixed_dictionaries({"values": st.fixed_dictionaries({"messages": st.lists(messages_like, max_size=2)})})
)


def parses_or_refuses(data: bytes) -> None:
    try:
        conversations = parse_conversations(data, name="f")
    except ConversationFormatError:
        return
    for conversation in conversations:
        ids = [message.id for message in conversation.messages]
        assert all(ids)
        assert len(set(ids)) == len(ids)
        conversation.conversation_id.encode()
        for message in conversation.messages:
            message.model_dump_json().encode()


@given(st.binary(max_size=60) | st.binary(max_size=40).map(lambda b: b"\x1f\x8b\x08" + b))
@settings(deadline=None)
def test_random_bytes_parse_or_are_refused(data: bytes) -> None:
    parses_or_refuses(data)


@given(documents)
@settings(deadline=None, max_examples=300)
def test_random_json_parses_or_is_refused(value: object) -> None:
    parses_or_refuses(json.dumps(value).encode())


@given(st.lists(documents, max_size=3), st.integers(0, 30))
@settings(deadline=None)
def test_random_jsonl_cut_anywhere_parses_or_is_refused(values: list[object], cut: int) -> None:
    data = lines(*values)
    parses_or_refuses(data[: len(data) - cut])


@given(st.lists(st.sampled_from(["a", "a-2", "a-3", "b"]) | st.none(), max_size=12))
@settings(deadline=None)
def test_ids_are_unique_and_first_ones_stay(ids: list[str | None]) -> None:
    messages = one([{"role": "user", "content": "x", "id": i} for i in [*ids, "last"]]).messages
    given_ids = [message.id for message in messages]
    assert len(set(given_ids)) == len(given_ids) == len(ids) + 1
    for wanted in filter(None, ids):
        assert given_ids[ids.index(wanted)] == wanted
