"""Whatever a message, an id or a name is made of, it is data.

Kept and given back equal, on every store.
"""

import itertools
import json
import random
from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    RemoveMessage,
    ToolMessage,
    message_to_dict,
)
from langgraph.store.base import BaseStore
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import ContextPipeline
from langchain_ctxbudget.errors import (
    CtxBudgetError,
    EmptyMessageError,
    StoreDataError,
    StoreError,
    UnsupportedContentError,
)
from tests.integration_tests.conftest import Call

SCOPE = {"user_id": "ada", "conversation_id": "c1"}


def nested(depth: int) -> dict[str, Any]:
    value: dict[str, Any] = {"end": 1}
    for _ in range(depth):
        value = {"in": [value]}
    return value


class Opaque:
    def __repr__(self) -> str:
        return "<opaque>"


TEXTS = {
    "nul": "a\0b",
    "only nul": "\0",
    "written nul": r"a\u0000b",
    "high half of a pair": "a\ud83d",
    "low half of a pair": "\ude42b",
    "emoji": "\U0001f642\U0001f469\u200d\U0001f469\u200d\U0001f467",
    "right to left": "\u202ecba\u202c \u0645\u0631\u062d\u0628\u0627",
    "combining": "e\u0301" + "\u0301" * 1_000,
    "not characters": "\ufffe\uffff\U0010ffff",
    "controls": "".join(map(chr, range(1, 32))) + "\x7f\x85\u2028\u2029\ufeff",
    "special tokens": "<|endoftext|><|im_start|>system",
    "json": '{"json": "{}"}',
    "sql": "'; DROP TABLE store; --",
}
KEYS = [
    "$eq",
    "$and",
    "",
    ".",
    "a.b",
    "\0",
    "__proto__",
    "json",
    "value",
    "*",
    "%",
    "'",
    '"',
    "\n",
    "k" * 10_000,
]
VALUES: dict[str, tuple[Any, Any]] = {
    "bytes": (b"\x00\xff", "AP8="),
    "nan": (float("nan"), "NaN"),
    "infinities": ([float("inf"), float("-inf")], ["Infinity", "-Infinity"]),
    "large numbers": (
        [10**400, -(2**63) - 1, 1e308, 5e-324],
        [10**400, -(2**63) - 1, 1e308, 5e-324],
    ),
    "tuple": ((1, (2,)), [1, [2]]),
    "opaque": (Opaque(), "<opaque>"),
    "type": (Opaque, repr(Opaque)),
    "decimal": (Decimal("1.10"), "1.10"),
    "date": (datetime(2026, 1, 2, tzinfo=UTC), "2026-01-02T00:00:00Z"),
    "keys that are no text": ({1: "a", None: "b", 2.5: "c"}, {"1": "a", "None": "b", "2.5": "c"}),
    "hostile keys": (dict.fromkeys(KEYS, 1), dict.fromkeys(KEYS, 1)),
    "operators": ({"$ne": {"$gt": 1}}, {"$ne": {"$gt": 1}}),
    "100 deep": (nested(100), nested(100)),
}
IDS = [
    *(
        "a/b",
        "lane/0",
        "joined",
        "lanes",
        "../..",
        "a'b\"c",
        "two\nlines",
        "nul \0",
        "half \ud800",
        "\U0001f642",
    ),
    *("%", "_", "*", ".", "~", "a~2", "$eq", " ", "{}"),
    "".join(random.Random(1).choices("abcdefghijklmnopqrstuvwxyz0123456789", k=10_000)),
]
"""No compression makes the last one short enough for an index of PostgreSQL, which takes 2,704
bytes."""


def encodable(text: str) -> str:
    return text.encode(errors="replace").decode()


def content(text: str) -> BaseMessage:
    return HumanMessage(text)


def block(text: str) -> BaseMessage:
    data = {"type": "custom", "data": text, encodable(text): [text]}
    return HumanMessage([{"type": "text", "text": text}, data])


def arguments(text: str) -> BaseMessage:
    asked = {"query": text, encodable(text): [text]}
    call = {"name": "look_up", "args": asked, "id": f"call {text}", "type": "tool_call"}
    return AIMessage(text, tool_calls=[call], name=text, response_metadata={encodable(text): text})


def result(text: str) -> BaseMessage:
    return ToolMessage(text, tool_call_id=text, name=text, artifact={encodable(text): text})


def check_round(
    store: BaseStore, call: Call, given: Sequence[BaseMessage], wanted: Sequence[BaseMessage]
) -> None:
    """Add, read with another pipeline, add again, edit, make a prompt, export, forget.

    Args:
        store: where to.
        call: the form.
        given: messages.
        wanted: what they are when they come back.
    """
    pipeline = ContextPipeline({"max_context_tokens": 2_000}, store=store)
    ids = call(pipeline, "add_messages", given, **SCOPE)
    named = [
        message.model_copy(update={"id": key}) for message, key in zip(given, ids, strict=True)
    ]
    expected = [as_given(message) | {"id": key} for message, key in zip(wanted, ids, strict=True)]
    other = ContextPipeline({"max_context_tokens": 2_000}, store=store)
    assert [as_given(message) for message in call(other, "get_messages", **SCOPE)] == expected
    assert [
        as_given(message) for message in call(other, "get_page", limit=200, **SCOPE).messages
    ] == expected
    assert call(other, "add_messages", named, **SCOPE) == ids
    assert call(other, "sync", named, **SCOPE) == ids
    assert [message.id for message in call(other, "get_messages", **SCOPE)] == ids
    report = call(pipeline, "assemble", "And now?", **SCOPE).report
    assert report.failures == ()
    assert report.total_tokens <= 2_000
    call(other, "sync", [HumanMessage("Edited.", id=key) for key in ids], **SCOPE)
    call(pipeline, "sync", [*named[:-1], HumanMessage("Edited.", id=ids[-1])], **SCOPE)
    call(other, "edit_message", ids[-1], named[-1], **SCOPE)
    assert [as_given(message) for message in call(pipeline, "get_messages", **SCOPE)] == expected
    lines = [
        json.loads(line)["value"]
        for line in call(pipeline, "export_user", user_id=SCOPE["user_id"])
    ]
    exported = {
        (data := line["message"]["data"])["id"]: data for line in lines if "message" in line
    }
    assert list(map(exported.get, ids)) == expected
    call(pipeline, "remove_messages", ids, on_removal="forget", **SCOPE)
    assert call(other, "get_messages", **SCOPE) == []


def as_given(message: BaseMessage) -> dict[str, Any]:
    data: dict[str, Any] = message_to_dict(message)["data"]
    return data


def test_texts_come_back_as_they_were_given(store: BaseStore, call: Call) -> None:
    given = [make(text) for text in TEXTS.values() for make in (content, block, arguments, result)]
    check_round(store, call, given, given)


def test_values_come_back_as_json_can_hold_them(store: BaseStore, call: Call) -> None:
    def made(data: object) -> list[BaseMessage]:
        extra = {"data": data}
        in_content = HumanMessage([{"type": "custom", "data": data}])
        return [HumanMessage("hello", additional_kwargs=extra, response_metadata=extra), in_content]

    given, wanted = (
        [one for pair in VALUES.values() for one in made(pair[place])] for place in (0, 1)
    )
    pair = HumanMessage("\ud83d" + "\ude42")
    character = HumanMessage("\U0001f642")
    check_round(store, call, [*given, pair], [*wanted, character])


def test_any_text_is_a_message_id(store: BaseStore, call: Call) -> None:
    pipeline = ContextPipeline(store=store)
    messages = [HumanMessage(f"number {n}", id=key) for n, key in enumerate(IDS)]
    assert call(pipeline, "add_messages", messages, **SCOPE) == IDS
    assert call(ContextPipeline(store=store), "get_messages", **SCOPE) == messages
    for n, key in enumerate(IDS):
        call(pipeline, "pin", key, **SCOPE)
        call(pipeline, "edit_message", key, HumanMessage(f"edited {n}"), **SCOPE)
    other = ContextPipeline(store=store)
    edited = [HumanMessage(f"edited {n}", id=key) for n, key in enumerate(IDS)]
    assert call(other, "get_messages", **SCOPE) == edited
    assert call(other, "sync", edited[::2], on_removal="forget", **SCOPE) == IDS[::2]
    assert call(pipeline, "get_messages", **SCOPE) == edited[::2]
    assert sorted(itertools.chain(*call(other, "coverage", **SCOPE).values())) == sorted(IDS[::2])
    assert call(other, "assemble", "And now?", **SCOPE).report.failures == ()


@pytest.mark.parametrize("name", ["user_id", "conversation_id"])
def test_any_text_is_a_user_and_a_conversation(store: BaseStore, call: Call, name: str) -> None:
    pipeline = ContextPipeline(
        {"learn": False}, store=store
    )  # else what it writes comes in between
    for n, key in enumerate(IDS):
        call(
            pipeline, "add_messages", [HumanMessage(f"number {n}", id="m")], **{**SCOPE, name: key}
        )
    call(pipeline, "clear", **{**SCOPE, name: IDS[0]})
    for n, key in enumerate(IDS):
        found = call(ContextPipeline(store=store), "get_messages", **{**SCOPE, name: key})
        assert [message.text for message in found] == [f"number {n}"] * (n > 0)
    for n, key in enumerate(IDS):
        call(pipeline, "assemble", "And now?", **{**SCOPE, name: key})
        if name == "user_id":
            assert len(call(pipeline, "export_user", user_id=key)) == (4 if n else 0)
            assert call(pipeline, "erase_user", user_id=key) == (4 if n else 0)
        else:
            call(pipeline, "clear", **{**SCOPE, name: key})
    assert not call(store, "search", ())


def test_what_json_cannot_hold_is_an_error_before_anything_is_written(call: Call) -> None:
    itself: dict[str, Any] = {}
    itself["again"] = itself
    for value in (nested(100_000), 10**5_000, itself):
        store = InMemoryStore()
        pipeline = ContextPipeline(store=store)
        bad = HumanMessage("hello")
        bad.additional_kwargs["data"] = value
        with pytest.raises(CtxBudgetError):
            call(pipeline, "add_messages", [HumanMessage("good"), bad], **SCOPE)
        assert store.search(()) == []
        assert call(pipeline, "get_messages", **SCOPE) == []


# -- Bad input: a clear error, and nothing lost


EMPTY = HumanMessage(" ")
RESULT = ToolMessage("x", tool_call_id="a")
NO_TURN: list[tuple[Any, type[Exception], str]] = [
    *(
        (it, EmptyMessageError, "message")
        for it in ("", "  \n", HumanMessage(""), HumanMessage([]), EMPTY)
    ),
    *(
        (it, EmptyMessageError, "message")
        for it in ([], [EMPTY], [HumanMessage("hi"), EMPTY], [RESULT])
    ),
    *(
        (it, UnsupportedContentError, "message")
        for it in (42, None, b"hello", {"role": "user"}, [42])
    ),
    *(
        (it, UnsupportedContentError, f"not a single {type(it).__name__}")
        for it in (AIMessage("x"), RESULT)
    ),
    ([RemoveMessage(id="x")], UnsupportedContentError, "message"),
]


def test_a_turn_with_nothing_to_answer_or_of_an_unknown_kind_is_an_error_that_says_what_it_was(
    call: Call,
) -> None:
    for turn, error, told in NO_TURN:
        with pytest.raises(error, match=told):
            call(ContextPipeline(store=InMemoryStore()), "assemble", turn, **SCOPE)


def test_what_is_no_list_of_messages_is_refused_with_its_place_and_a_way_out_and_nothing_is_stored(
    call: Call,
) -> None:
    pipeline = ContextPipeline(store=InMemoryStore())
    for wrong in ("hi", b"hi", {"role": "user"}, None, 5, HumanMessage("x"), iter([])):
        with pytest.raises(
            UnsupportedContentError, match="messages must be a list of LangChain messages"
        ):
            call(pipeline, "add_messages", wrong, **SCOPE)
    for wrong in (("user", "hi"), {"role": "user", "content": "hi"}, "hi", None):
        with pytest.raises(
            UnsupportedContentError, match=r"messages\[1\] is a \w+.*convert_to_messages"
        ):
            call(pipeline, "add_messages", [HumanMessage("x"), wrong], **SCOPE)
    with pytest.raises(UnsupportedContentError, match=r"messages\[0\] is a RemoveMessage.*sync"):
        call(pipeline, "add_messages", [RemoveMessage(id="a")], **SCOPE)
    assert call(pipeline, "get_messages", **SCOPE) == []


def test_an_unknown_content_block_is_sent_and_counted(call: Call) -> None:
    message = HumanMessage([{"type": "hologram", "data": "x" * 400}])
    context = call(ContextPipeline(store=InMemoryStore()), "assemble", message, **SCOPE)
    assert context.messages[0].content == message.content
    assert context.report.total_tokens > 40


def test_a_record_that_is_not_one_is_an_error_that_says_where(call: Call) -> None:
    store = InMemoryStore()
    call(ContextPipeline(store=store), "add_messages", [HumanMessage("a")], **SCOPE)
    [namespace] = [name for name in store.list_namespaces() if "messages" in name]
    [item] = store.search(namespace)
    store.put(namespace, item.key, {"id": item.key, "from": "somewhere else"})
    with pytest.raises(StoreDataError, match=item.key):
        call(ContextPipeline(store=store), "get_messages", **SCOPE)


def test_a_closed_pipeline_says_so_and_those_that_share_its_store_go_on(call: Call) -> None:
    first = ContextPipeline({"learn": False})
    second = ContextPipeline({"learn": False}, store=first.store)
    call(first, "add_messages", [HumanMessage("a", id="1")], **SCOPE)
    for closed, still in ((first, second), (second, None)):
        for _ in range(2):
            closed.close()
        for name, given in (("assemble", ["Hello"]), ("get_messages", []), ("add_messages", [[]])):
            with pytest.raises(StoreError, match="closed"):
                call(closed, name, *given, **SCOPE)
        assert still is None or [
            message.id for message in call(still, "get_messages", **SCOPE)
        ] == ["1"]
