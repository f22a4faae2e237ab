"""Whatever a message, an id or a name is made of is data: it is kept and given back equal."""

import json
import random
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
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
    "%",
    "_",
    "*",
    ".",
    "~",
    "a~2",
    "$eq",
    " ",
    "{}",
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
    query = {"query": text, encodable(text): [text]}
    call = {"name": "look_up", "args": query, "id": f"call {text}", "type": "tool_call"}
    return AIMessage(text, tool_calls=[call], name=text, response_metadata={encodable(text): text})


def result(text: str) -> BaseMessage:
    return ToolMessage(text, tool_call_id=text, name=text, artifact={encodable(text): text})


def data_of(message: BaseMessage) -> dict[str, Any]:
    data: dict[str, Any] = message_to_dict(message)["data"]
    return data


def all_data_of(messages: Iterable[BaseMessage]) -> list[dict[str, Any]]:
    return [data_of(message) for message in messages]


class Stored:
    """Messages that one pipeline has added, and what they are when they come back."""

    def __init__(
        self,
        store: BaseStore,
        call: Call,
        messages: Sequence[BaseMessage],
        returned: Sequence[BaseMessage],
    ) -> None:
        self.call = call
        self.pipeline = ContextPipeline({"max_context_tokens": 2_000}, store=store)
        self.other = ContextPipeline({"max_context_tokens": 2_000}, store=store)
        self.ids: list[str] = call(self.pipeline, "add_messages", messages, **SCOPE)
        self.named: list[BaseMessage] = []
        for message, key in zip(messages, self.ids, strict=True):
            self.named.append(message.model_copy(update={"id": key}))
        self.expected: list[dict[str, Any]] = []
        for message, key in zip(returned, self.ids, strict=True):
            self.expected.append({**data_of(message), "id": key})

    def read(self, pipeline: ContextPipeline) -> list[dict[str, Any]]:
        return all_data_of(self.call(pipeline, "get_messages", **SCOPE))

    def require_same_in_another_pipeline(self) -> None:
        assert self.read(self.other) == self.expected
        page = self.call(self.other, "get_page", limit=200, **SCOPE)
        assert all_data_of(page.messages) == self.expected

    def require_nothing_new_when_added_again(self) -> None:
        assert self.call(self.other, "add_messages", self.named, **SCOPE) == self.ids
        assert self.call(self.other, "sync", self.named, **SCOPE) == self.ids
        messages = self.call(self.other, "get_messages", **SCOPE)
        assert [message.id for message in messages] == self.ids

    def require_a_prompt(self) -> None:
        report = self.call(self.pipeline, "assemble", "And now?", **SCOPE).report
        assert report.failures == ()
        assert report.total_tokens <= 2_000

    def require_same_after_edits(self) -> None:
        """All are edited and brought back, but the last one, which is edited back by hand."""
        edited = [HumanMessage("Edited.", id=key) for key in self.ids]
        self.call(self.other, "sync", edited, **SCOPE)
        self.call(self.pipeline, "sync", [*self.named[:-1], edited[-1]], **SCOPE)
        self.call(self.other, "edit_message", self.ids[-1], self.named[-1], **SCOPE)
        assert self.read(self.pipeline) == self.expected

    def require_same_in_an_export(self) -> None:
        lines = self.call(self.pipeline, "export_user", user_id="ada")
        exported = {}
        for line in lines:
            value = json.loads(line)["value"]
            if "message" in value:
                data = value["message"]["data"]
                exported[data["id"]] = data
        assert [exported.get(key) for key in self.ids] == self.expected

    def require_nothing_when_forgotten(self) -> None:
        self.call(self.pipeline, "remove_messages", self.ids, on_removal="forget", **SCOPE)
        assert self.call(self.other, "get_messages", **SCOPE) == []

    def require_the_whole_way(self) -> None:
        self.require_same_in_another_pipeline()
        self.require_nothing_new_when_added_again()
        self.require_a_prompt()
        self.require_same_after_edits()
        self.require_same_in_an_export()
        self.require_nothing_when_forgotten()


def messages_with(text: str) -> list[BaseMessage]:
    """Returns messages that have a text everywhere."""
    return [content(text), block(text), arguments(text), result(text)]


@pytest.mark.parametrize("text", TEXTS.values(), ids=list(TEXTS))
def test_a_text_comes_back_as_it_was_given(store: BaseStore, call: Call, text: str) -> None:
    messages = messages_with(text)
    Stored(store, call, messages, messages).require_the_whole_way()


@pytest.mark.slow
def test_texts_of_all_kinds_come_back_from_one_conversation(store: BaseStore, call: Call) -> None:
    messages: list[BaseMessage] = []
    for text in TEXTS.values():
        messages += messages_with(text)
    Stored(store, call, messages, messages).require_the_whole_way()


def messages_of_value(value: object) -> list[BaseMessage]:
    """Returns messages that have a value beside their text and in it."""
    extra = {"data": value}
    beside = HumanMessage("hello", additional_kwargs=extra, response_metadata=extra)
    return [beside, HumanMessage([{"type": "custom", "data": value}])]


@pytest.mark.parametrize(("value", "returned"), VALUES.values(), ids=list(VALUES))
def test_a_value_comes_back_as_json_can_hold_it(
    store: BaseStore, call: Call, value: object, returned: object
) -> None:
    messages = messages_of_value(value)
    Stored(store, call, messages, messages_of_value(returned)).require_the_whole_way()


def test_two_halves_of_a_pair_come_back_as_their_character(store: BaseStore, call: Call) -> None:
    halves = [HumanMessage("\ud83d" + "\ude42")]
    Stored(store, call, halves, [HumanMessage("\U0001f642")]).require_the_whole_way()


def test_values_of_all_kinds_come_back_from_one_conversation(store: BaseStore, call: Call) -> None:
    messages: list[BaseMessage] = []
    expected: list[BaseMessage] = []
    for value, returned in VALUES.values():
        messages += messages_of_value(value)
        expected += messages_of_value(returned)
    Stored(store, call, messages, expected).require_the_whole_way()


# -- Ids and names


@dataclass
class Keyed:
    """A conversation with a message of each id."""

    store: BaseStore
    call: Call
    ids: list[str]

    def pipeline(self) -> ContextPipeline:
        return ContextPipeline(store=self.store)

    def edit_all(self) -> list[BaseMessage]:
        """Pins and edits every message, and returns what they are then."""
        pipeline = self.pipeline()
        edited: list[BaseMessage] = []
        for number, key in enumerate(IDS):
            self.call(pipeline, "pin", key, **SCOPE)
            text = f"edited {number}"
            self.call(pipeline, "edit_message", key, HumanMessage(text), **SCOPE)
            edited.append(HumanMessage(text, id=key))
        return edited


def numbered() -> list[BaseMessage]:
    return [HumanMessage(f"number {number}", id=key) for number, key in enumerate(IDS)]


@pytest.fixture
def keyed(store: BaseStore, call: Call) -> Keyed:
    ids = call(ContextPipeline(store=store), "add_messages", numbered(), **SCOPE)
    return Keyed(store, call, ids)


def test_any_text_is_a_message_id(keyed: Keyed, call: Call) -> None:
    assert keyed.ids == IDS
    assert call(keyed.pipeline(), "get_messages", **SCOPE) == numbered()


def test_a_message_of_any_id_is_pinned_and_edited(keyed: Keyed, call: Call) -> None:
    edited = keyed.edit_all()
    assert call(keyed.pipeline(), "get_messages", **SCOPE) == edited


def test_a_message_of_any_id_is_synced_and_removed(keyed: Keyed, call: Call) -> None:
    half = keyed.edit_all()[::2]
    assert call(keyed.pipeline(), "sync", half, on_removal="forget", **SCOPE) == IDS[::2]
    assert call(keyed.pipeline(), "get_messages", **SCOPE) == half


def test_a_message_of_any_id_is_covered(keyed: Keyed, call: Call) -> None:
    covered = []
    for ids in call(keyed.pipeline(), "coverage", **SCOPE).values():
        covered += ids
    assert sorted(covered) == sorted(IDS)


def test_messages_of_any_ids_make_a_prompt(keyed: Keyed, call: Call) -> None:
    keyed.edit_all()
    assert call(keyed.pipeline(), "assemble", "And now?", **SCOPE).report.failures == ()


class Named:
    """A pipeline with one message for each user, or in each conversation, of any name."""

    def __init__(self, store: BaseStore, call: Call, part: str) -> None:
        self.store = store
        self.call = call
        self.part = part
        # What it learns would come in between.
        self.pipeline = ContextPipeline({"learn": False}, store=store)
        for number, name in enumerate(IDS):
            message = HumanMessage(f"number {number}", id="m")
            call(self.pipeline, "add_messages", [message], **self.scope(name))

    def scope(self, name: str) -> dict[str, str]:
        return {**SCOPE, self.part: name}

    def texts(self) -> list[list[str]]:
        """Returns the texts of the messages under each name, read by another pipeline."""
        texts = []
        for name in IDS:
            other = ContextPipeline(store=self.store)
            messages = self.call(other, "get_messages", **self.scope(name))
            texts.append([message.text for message in messages])
        return texts

    def assemble_all(self) -> None:
        for name in IDS:
            self.call(self.pipeline, "assemble", "And now?", **self.scope(name))


@pytest.mark.parametrize("part", ["user_id", "conversation_id"])
def test_any_text_is_a_user_and_a_conversation(store: BaseStore, call: Call, part: str) -> None:
    named = Named(store, call, part)
    assert named.texts() == [[f"number {number}"] for number in range(20)]


@pytest.mark.parametrize("part", ["user_id", "conversation_id"])
def test_what_is_cleared_under_one_name_stays_under_others(
    store: BaseStore, call: Call, part: str
) -> None:
    named = Named(store, call, part)
    call(named.pipeline, "clear", **named.scope(IDS[0]))
    assert named.texts() == [[], *([f"number {number}"] for number in range(1, 20))]


def test_a_user_of_any_name_is_exported_and_erased(store: BaseStore, call: Call) -> None:
    named = Named(store, call, "user_id")
    call(named.pipeline, "clear", **named.scope(IDS[0]))
    named.assemble_all()
    exported = [len(call(named.pipeline, "export_user", user_id=name)) for name in IDS]
    erased = [call(named.pipeline, "erase_user", user_id=name) for name in IDS]
    assert exported == [0] + [4] * 19
    assert erased == [0] + [4] * 19
    assert call(store, "search", ()) == []


@pytest.mark.slow
def test_a_conversation_of_any_name_is_cleared(store: BaseStore, call: Call) -> None:
    named = Named(store, call, "conversation_id")
    named.assemble_all()
    for name in IDS:
        call(named.pipeline, "clear", **named.scope(name))
    assert call(store, "search", ()) == []


# -- Bad input: a clear error, and nothing lost


def holding_itself() -> dict[str, Any]:
    value: dict[str, Any] = {}
    value["again"] = value
    return value


@pytest.mark.parametrize(
    "value",
    [nested(100_000), 10**5_000, holding_itself()],
    ids=["100,000 deep", "5,000 digits", "holds itself"],
)
def test_what_json_cannot_hold_is_refused_before_anything_is_written(
    call: Call, value: object
) -> None:
    store = InMemoryStore()
    pipeline = ContextPipeline(store=store)
    bad = HumanMessage("hello")
    bad.additional_kwargs["data"] = value
    with pytest.raises(CtxBudgetError):
        call(pipeline, "add_messages", [HumanMessage("good"), bad], **SCOPE)
    assert store.search(()) == []
    assert call(pipeline, "get_messages", **SCOPE) == []


EMPTY = HumanMessage(" ")
RESULT = ToolMessage("x", tool_call_id="a")


@pytest.mark.parametrize(
    "turn",
    [
        "",
        "  \n",
        HumanMessage(""),
        HumanMessage([]),
        EMPTY,
        [],
        [EMPTY],
        [HumanMessage("hi"), EMPTY],
        [RESULT],
    ],
    ids=repr,
)
def test_a_turn_with_nothing_to_answer_is_refused(call: Call, turn: Any) -> None:
    with pytest.raises(EmptyMessageError, match="message"):
        call(ContextPipeline(store=InMemoryStore()), "assemble", turn, **SCOPE)


@pytest.mark.parametrize(
    ("turn", "problem"),
    [
        (42, "message"),
        (None, "message"),
        (b"hello", "message"),
        ({"role": "user"}, "message"),
        ([42], "message"),
        ([RemoveMessage(id="x")], "message"),
        (AIMessage("x"), "not a single AIMessage"),
        (RESULT, "not a single ToolMessage"),
    ],
    ids=repr,
)
def test_a_turn_of_an_unknown_kind_is_refused(call: Call, turn: Any, problem: str) -> None:
    with pytest.raises(UnsupportedContentError, match=problem):
        call(ContextPipeline(store=InMemoryStore()), "assemble", turn, **SCOPE)


def require_refused(call: Call, messages: Any, problem: str) -> None:
    """Adding is refused, and nothing is stored."""
    pipeline = ContextPipeline(store=InMemoryStore())
    with pytest.raises(UnsupportedContentError, match=problem):
        call(pipeline, "add_messages", messages, **SCOPE)
    assert call(pipeline, "get_messages", **SCOPE) == []


@pytest.mark.parametrize(
    "wrong",
    ["hi", b"hi", ("user", "hi"), {"role": "user"}, None, 5, HumanMessage("x"), iter([])],
    ids=lambda wrong: type(wrong).__name__,
)
def test_what_is_no_list_of_messages_is_refused(call: Call, wrong: Any) -> None:
    require_refused(call, wrong, "messages must be a list of messages")


NO_MESSAGES: Mapping[str, Any] = {
    "is None, not a message: give a string, a dict": None,
    "is an int, not a message": 5,
    "is a dict without 'content'; it has 'role', 'text'": {"role": "user", "text": "hi"},
    "is a dict without 'role'; it has 'content'": {"content": "hi"},
    "is a dict without 'role'; it has no keys": {},
    "is a tuple of 3": ("user", "hi", "there"),
    "has the role 'bot': it must be one of 'user', 'assistant', 'system', 'tool'": ("bot", "hi"),
    "has the role 'user', and a wrong kind of value in 'content'": {"role": "user", "content": 5},
    "has the role 'tool', and lacks 'tool_call_id'": {"role": "tool", "content": "hi"},
}


@pytest.mark.parametrize("problem", NO_MESSAGES)
def test_what_is_no_message_is_refused_in_words_of_the_caller(call: Call, problem: str) -> None:
    wrong = NO_MESSAGES[problem]

    require_refused(call, [HumanMessage("x"), wrong], re.escape(f"messages[1] {problem}"))


def test_a_removal_is_refused_with_a_way_out(call: Call) -> None:
    require_refused(call, [RemoveMessage(id="a")], r"messages\[0\] is a RemoveMessage.*sync")


HOLOGRAM = HumanMessage([{"type": "hologram", "data": "x" * 400}])


def test_an_unknown_content_block_is_sent(call: Call) -> None:
    context = call(ContextPipeline(store=InMemoryStore()), "assemble", HOLOGRAM, **SCOPE)
    assert context.messages[0].content == [{"type": "hologram", "data": "x" * 400}]


def test_an_unknown_content_block_is_counted(call: Call) -> None:
    context = call(ContextPipeline(store=InMemoryStore()), "assemble", HOLOGRAM, **SCOPE)
    assert context.report.total_tokens > 40


def test_a_record_that_is_not_one_is_an_error_that_says_where(call: Call) -> None:
    store = InMemoryStore()
    call(ContextPipeline(store=store), "add_messages", [HumanMessage("a")], **SCOPE)
    [namespace] = [name for name in store.list_namespaces() if "messages" in name]
    [item] = store.search(namespace)
    store.put(namespace, item.key, {"id": item.key, "from": "somewhere else"})
    with pytest.raises(StoreDataError, match=item.key):
        call(ContextPipeline(store=store), "get_messages", **SCOPE)


# -- Closed pipelines


@pytest.fixture
def first(call: Call) -> ContextPipeline:
    """A pipeline with a store of its own and a message, whose id is "1"."""
    pipeline = ContextPipeline({"learn": False})
    call(pipeline, "add_messages", [HumanMessage("a", id="1")], **SCOPE)
    return pipeline


@pytest.fixture
def second(first: ContextPipeline) -> ContextPipeline:
    """Another pipeline over the store of the first."""
    return ContextPipeline({"learn": False}, store=first.store)


every_method = pytest.mark.parametrize(
    ("name", "values"), [("assemble", ["Hello"]), ("get_messages", []), ("add_messages", [[]])]
)


@every_method
def test_a_closed_pipeline_says_that_it_is_closed(
    first: ContextPipeline, call: Call, name: str, values: list[Any]
) -> None:
    first.close()
    with pytest.raises(StoreError, match="closed"):
        call(first, name, *values, **SCOPE)


@every_method
def test_a_closed_pipeline_that_shared_a_store_says_that_it_is_closed(
    first: ContextPipeline, second: ContextPipeline, call: Call, name: str, values: list[Any]
) -> None:
    first.close()
    second.close()
    with pytest.raises(StoreError, match="closed"):
        call(second, name, *values, **SCOPE)


def test_a_pipeline_may_be_closed_twice(first: ContextPipeline, second: ContextPipeline) -> None:
    first.close()
    first.close()
    second.close()
    second.close()


def test_pipelines_that_share_a_store_go_on_when_one_is_closed(
    first: ContextPipeline, second: ContextPipeline, call: Call
) -> None:
    first.close()
    messages = call(second, "get_messages", **SCOPE)
    assert [message.id for message in messages] == ["1"]
