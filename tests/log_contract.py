"""What every store must hold under the message log.

Conversations that several pipelines append to and change.
"""

import json
import random
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import copy_context
from itertools import product
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langgraph.store.base import BaseStore, Op, PutOp, Result, SearchOp

from langchain_ctxbudget import ContextPipeline, TiktokenCounter
from langchain_ctxbudget.errors import InputError, MessageConflictError
from langchain_ctxbudget.flow import Call as Operation
from langchain_ctxbudget.flow import Flow
from langchain_ctxbudget.stores import Scope
from tests.integration_tests.summary_models import conversation

Call = Callable[..., Any]
ADA: dict[str, Any] = {"user_id": "ada", "conversation_id": "c1"}
ADAS = Scope("ada", "c1")
COUNTER = TiktokenCounter()
"""One for thousands of pipelines: each text is counted once."""
FEW = settings(
    max_examples=5,
    deadline=None,
    # Every store has its own fixtures, and pytest a new instance of the class for each.
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.differing_executors],
)


class Elsewhere(BaseStore):
    """A store that asks another one, as each of several processes does."""

    def __init__(self, store: BaseStore) -> None:
        self.store = store

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        return self.store.batch(ops)

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        return await self.store.abatch(ops)


class Faulty(Elsewhere):
    """A store whose writes fail from the nth on."""

    def __init__(self, store: BaseStore) -> None:
        super().__init__(store)
        self.writes_left: int | None = None

    def _check(self, ops: Sequence[Op]) -> None:
        is_write = any(isinstance(op, PutOp) for op in ops)
        if self.writes_left is None or not is_write:
            return
        if self.writes_left == 0:
            raise OSError("the disk is gone")
        self.writes_left -= 1

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        operations = list(ops)
        self._check(operations)
        return super().batch(operations)

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        operations = list(ops)
        self._check(operations)
        return await super().abatch(operations)


class Counting(Elsewhere):
    """A store that counts what it is asked for."""

    def __init__(self, store: BaseStore) -> None:
        super().__init__(store)
        self.reset()

    def reset(self) -> None:
        self.batches = 0
        self.operations = 0
        self.searches = 0
        self.records_read = 0
        self.bytes_read = 0
        self.bytes_written = 0

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        operations = list(ops)
        results = super().batch(operations)
        self._count(operations, results)
        return results

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        operations = list(ops)
        results = await super().abatch(operations)
        self._count(operations, results)
        return results

    def _count(self, ops: Sequence[Op], results: Sequence[Result]) -> None:
        self.batches += 1
        self.operations += len(ops)
        for op in ops:
            if isinstance(op, SearchOp):
                self.searches += 1
            if isinstance(op, PutOp):
                self.bytes_written += len(json.dumps(op.value))
        for result in results:
            self._count_records(result)

    def _count_records(self, result: Result) -> None:
        items = result if isinstance(result, list) else [result]
        for item in items:
            if item is None or isinstance(item, tuple):  # nothing was found, or it is a namespace
                continue
            self.records_read += 1
            self.bytes_read += len(json.dumps(item.value))


class ByHand:
    """A flow that is taken on one store operation at a time."""

    def __init__(self, flow: Flow[Any]) -> None:
        self._flow = flow
        self._context = copy_context()  # its own, as a thread's
        self.done = False
        self.value: Any = None
        self._operation: Operation = self._context.run(next, flow)
        self.step()  # its lock, which is no store operation

    def step(self) -> None:
        """Do one operation, where any is left."""
        if not self.done:
            self._context.run(self._step)

    def _step(self) -> None:
        try:
            self._operation = self._next_operation()
        except StopIteration as end:
            self.done = True
            self.value = end.value
        except InputError as error:  # another has taken away what it was to work on
            self.done = True
            self.value = error

    def _next_operation(self) -> Operation:
        try:
            result = self._operation.sync()
        except Exception as error:  # noqa: BLE001 - the flow decides what an error means
            return self._flow.throw(error)
        return self._flow.send(result)


def said(*texts: str) -> list[BaseMessage]:
    """Messages of a user, each with its text as its id."""
    return [HumanMessage(text, id=text) for text in texts]


def shown(messages: Iterable[BaseMessage]) -> list[tuple[str, str]]:
    """The ids and texts of messages."""
    return [(str(message.id), message.text) for message in messages]


def texts(messages: Iterable[BaseMessage]) -> list[str]:
    return [message.text for message in messages]


@contextmanager
def pipelines(
    store: BaseStore, count: int, settings: Mapping[str, Any] | None = None
) -> Iterator[list[ContextPipeline]]:
    """Pipelines as so many processes have them, by name in the order of their lanes.

    They learn nothing.
    """
    settings = {"learn": False, **(settings or {})}
    processes = []
    for number in range(count):
        process = ContextPipeline(
            settings,
            store=Elsewhere(store),
            writer_id=f"{number:04}",
            token_counter=COUNTER,
        )
        processes.append(process)
    yield processes
    for process in processes:
        process.close()


def all_pages(
    call: Call, pipeline: ContextPipeline, limits: Iterable[int], **scope: str
) -> list[BaseMessage]:
    """A conversation, read from its end to its beginning in pages."""
    messages: list[BaseMessage] = []
    before: str | None = None
    for limit in limits:
        page = call(pipeline, "get_page", limit=limit, before=before, **scope)
        assert len(page.messages) <= limit
        messages = [*page.messages, *messages]
        before = page.before
        if before is None:
            break
    return messages


@contextmanager
def failed_append(
    store: BaseStore, call: Call
) -> Iterator[tuple[ContextPipeline, ContextPipeline]]:
    """A reader, and a writer on a store that failed while the second message was appended."""
    faulty = Faulty(store)
    with pipelines(store, 1) as [reader]:
        writer = ContextPipeline(store=faulty)
        call(writer, "add_messages", said("one"), **ADA)
        call(reader, "get_messages", **ADA)
        faulty.writes_left = 0
        with pytest.raises(OSError, match="the disk is gone"):
            call(writer, "add_messages", [*said("two"), HumanMessage("yes")], **ADA)
        faulty.writes_left = None
        yield reader, writer


def is_in_export(text: str, call: Call, pipeline: ContextPipeline) -> bool:
    return f'"{text}"' in "\n".join(call(pipeline, "export_user", user_id="ada"))


NEIGHBOURS = ("ada", "ada2", "a_a")
"""Users whose names a store could mix up."""
NEIGHBOURING_SCOPES = [
    {"user_id": user, "conversation_id": conversation_id}
    for user, conversation_id in product(NEIGHBOURS, ("c1", "c11", "c_", "*"))
]
"""Conversations whose names a store could mix up; the first one is `ADA`."""


def exports(call: Call, pipeline: ContextPipeline) -> dict[str, set[str]]:
    """The lines of each neighbour's export."""
    return {user: set(call(pipeline, "export_user", user_id=user)) for user in NEIGHBOURS}


def conversations_of(lines: Iterable[str]) -> set[str]:
    """The ids of the conversations that lines of an export are about."""
    return {json.loads(line)["conversation_id"] for line in lines}


class LogContract:
    """The contract; a subclass is found by pytest. Its fixtures are `store` and `call`."""

    # -- appending

    def test_another_text_under_a_known_id_writes_nothing(
        self, store: BaseStore, call: Call
    ) -> None:
        counting = Counting(store)
        with pipelines(counting, 2) as (first, second):
            call(first, "add_messages", said("one"), **ADA)
            counting.reset()

            with pytest.raises(MessageConflictError, match=r"'one'.*edit_message"):
                call(second, "add_messages", [*said("two"), HumanMessage("other", id="one")], **ADA)

            assert counting.bytes_written == 0
            assert texts(call(second, "get_messages", **ADA)) == ["one"]

    def test_a_failed_append_leaves_nothing_visible(self, store: BaseStore, call: Call) -> None:
        with failed_append(store, call) as (reader, writer):
            assert texts(call(reader, "get_messages", **ADA)) == ["one"]
            assert texts(call(writer, "get_messages", **ADA)) == ["one"]

    def test_a_failed_append_can_be_repeated(self, store: BaseStore, call: Call) -> None:
        with failed_append(store, call) as (reader, writer):
            call(writer, "add_messages", [*said("two"), HumanMessage("yes")], **ADA)

            assert texts(call(reader, "get_messages", **ADA)) == ["one", "two", "yes"]
            assert texts(call(writer, "get_messages", **ADA)) == ["one", "two", "yes"]

    # -- pages

    def test_the_page_of_no_conversation_is_empty(self, store: BaseStore, call: Call) -> None:
        with pipelines(store, 1) as [reader]:
            page = call(reader, "get_page", **ADA)

            assert page.messages == []
            assert page.before is None

    def test_a_page_ends_before_a_message(self, store: BaseStore, call: Call) -> None:
        with pipelines(store, 2) as (writer, reader):
            call(writer, "add_messages", said("one", "two", "three"), **ADA)

            newest = call(reader, "get_page", limit=1, **ADA)
            earlier = call(reader, "get_page", before="three", **ADA)

            assert texts(newest.messages) == ["three"]
            assert newest.before == "three"
            assert newest.version == call(reader, "get_page", **ADA).version
            assert texts(earlier.messages) == ["one", "two"]

    def test_a_page_has_another_version_after_every_change(
        self, store: BaseStore, call: Call
    ) -> None:
        with pipelines(store, 3) as (first, second, reader):
            versions = [call(reader, "get_page", **ADA).version]
            call(first, "add_messages", said("one", "two"), **ADA)
            versions.append(call(reader, "get_page", **ADA).version)
            call(second, "add_messages", said("three", "four"), **ADA)
            versions.append(call(reader, "get_page", **ADA).version)
            call(first, "edit_message", "two", HumanMessage("2"), **ADA)
            versions.append(call(reader, "get_page", **ADA).version)
            call(second, "remove_messages", "four", **ADA)
            newest = call(reader, "get_page", limit=1, **ADA)
            versions.append(call(reader, "get_page", **ADA).version)

            assert len(set(versions)) == 5
            assert newest.version == versions[4]
            assert texts(newest.messages) == ["three"]
            assert newest.before == "three"
            assert texts(call(reader, "get_page", before="three", **ADA).messages) == ["one", "2"]

    def test_no_page_ends_before_an_archived_message(self, store: BaseStore, call: Call) -> None:
        with pipelines(store, 2) as (writer, reader):
            call(writer, "add_messages", said("one", "two"), **ADA)
            call(reader, "get_page", **ADA)
            call(writer, "remove_messages", "two", **ADA)

            with pytest.raises(InputError, match="no messages"):
                call(reader, "get_page", before="two", **ADA)

    # -- changes

    def test_an_archived_message_is_exported(self, store: BaseStore, call: Call) -> None:
        with pipelines(store, 2) as (writer, new):
            call(writer, "add_messages", said("one", "a secret"), **ADA)
            call(writer, "remove_messages", "a secret", **ADA)

            assert is_in_export("a secret", call, new)

    def test_an_archived_message_can_be_forgotten(self, store: BaseStore, call: Call) -> None:
        with pipelines(store, 3) as (writer, other, new):
            call(writer, "add_messages", said("one", "a secret"), **ADA)
            call(other, "get_messages", **ADA)
            call(writer, "remove_messages", "a secret", **ADA)

            call(other, "remove_messages", "a secret", on_removal="forget", **ADA)

            for pipeline in (writer, other, new):
                assert texts(call(pipeline, "get_messages", **ADA)) == ["one"]
                with pytest.raises(InputError):
                    call(pipeline, "remove_messages", "a secret", on_removal="forget", **ADA)
            assert not is_in_export("a secret", call, new)

    # -- clearing

    def test_clearing_deletes_one_conversation_and_nothing_else(
        self, store: BaseStore, call: Call
    ) -> None:
        with pipelines(store, 2) as (writer, other):
            for scope in NEIGHBOURING_SCOPES:
                call(writer, "add_messages", said("one", "two"), **scope)
                call(writer, "pin", "one", **scope)
                call(other, "get_messages", **scope)
            call(writer, "save_settings", {"depth": "deep"}, user_id="ada", persona_id="c1")
            before = exports(call, writer)

            call(writer, "clear", **ADA)

            after = exports(call, writer)
            first, *others = [
                texts(call(other, "get_messages", **scope)) for scope in NEIGHBOURING_SCOPES
            ]
            assert first == []
            assert others == [["one", "two"]] * 11
            assert after["ada"] < before["ada"]
            assert after["ada2"] == before["ada2"]
            assert after["a_a"] == before["a_a"]
            assert conversations_of(before["ada"] - after["ada"]) == {"c1"}

    # -- what is summarised

    def test_an_edit_behind_the_cut_leaves_the_cut(self, store: BaseStore, call: Call) -> None:
        with pipelines(store, 4, {"max_context_tokens": 2_000}) as (writer, reader, editor, new):
            call(writer, "add_messages", conversation(120), **ADA)
            call(writer, "assemble", "Hello", **ADA)
            coverage = call(reader, "coverage", **ADA)
            assert "a119" in coverage["verbatim"]

            call(editor, "edit_message", "a119", AIMessage("Yes."), **ADA)

            assert call(new, "coverage", **ADA) == coverage

    # -- everything at once

    @FEW
    @given(seed=st.integers(0, 10**6))
    def test_three_pipelines_show_what_a_list_would(
        self, store: BaseStore, call: Call, seed: int
    ) -> None:
        play(store, call, seed, turns=12)


class Story:
    """A random story of three pipelines on one conversation, told by a plain list as well."""

    ACTIONS = (
        *4 * ("add",),
        "again",
        "edit",
        "archive",
        "forget",
        "sync",
        "fork",
        "clear",
    )

    def __init__(self, pipelines: Sequence[ContextPipeline], call: Call, seed: int) -> None:
        self.pipelines = pipelines
        self._call = call
        self.rng = random.Random(seed)
        self.number = 0
        self.begin([])

    def begin(self, model: list[tuple[str, str]]) -> None:
        """Goes on with a conversation that has these messages."""
        self.scope = {"user_id": "ada", "conversation_id": uuid4().hex}
        self.model = model
        self.archived: list[str] = []

    def call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """Calls a method of one of the pipelines."""
        return self._call(self.rng.choice(self.pipelines), name, *args, **kwargs)

    def turn(self, number: int) -> None:
        self.number = number
        action = self.rng.choice(self.ACTIONS)
        if self.model or action == "add":
            getattr(self, action)()
        for pipeline in self.rng.sample(self.pipelines, 2):  # the third is left behind
            self.check(pipeline, action)

    def check(self, pipeline: ContextPipeline, action: str) -> None:
        messages = shown(self._call(pipeline, "get_messages", **self.scope))
        problem = f"{action} in turn {self.number}: {messages}, not {self.model}"
        assert messages == self.model, problem

    def add(self) -> None:
        messages = [self._new_message(place) for place in range(self.rng.randint(1, 4))]
        ids = self.call("add_messages", messages, **self.scope)
        for key, message in zip(ids, messages, strict=True):
            self.model.append((key, message.text))

    def _new_message(self, place: int) -> HumanMessage:
        if self.rng.random() < 0.4:
            return HumanMessage(self.rng.choice(["yes", "no"]))
        return HumanMessage(f"text {place}", id=f"{self.number}.{place}")

    def again(self) -> None:
        key, text = self.rng.choice(self.model)
        assert self.call("add_messages", [HumanMessage(text, id=key)], **self.scope) == [key]

    def edit(self) -> None:
        place = self.rng.randrange(len(self.model))
        key, _ = self.model[place]
        text = f"edited {self.number}"
        self.call("edit_message", key, HumanMessage(text), **self.scope)
        self.model[place] = (key, text)

    def archive(self) -> None:
        key, _ = self.model.pop(self.rng.randrange(len(self.model)))
        self.call("remove_messages", key, **self.scope)
        self.archived.append(key)

    def forget(self) -> None:
        key, _ = self.rng.choice(self.model)
        keys = {key, *self.archived[-1:]}
        self.call("remove_messages", sorted(keys), on_removal="forget", **self.scope)
        self._drop(keys)

    def sync(self) -> None:
        kept = [pair for pair in self.model if self.rng.random() < 0.9]
        if not kept:  # such a state has forgotten what is stored, which stays
            self.call("sync", [], on_removal="forget", **self.scope)
            return
        self._drop({key for key, _ in self.model} - {key for key, _ in kept})
        if self.rng.random() < 0.5:
            self.rng.shuffle(self.model)
        self._rewrite_some()
        state = [HumanMessage(text, id=key) for key, text in self.model]
        self.call("sync", state, on_removal="forget", **self.scope)

    def _rewrite_some(self) -> None:
        for place, (key, _) in enumerate(self.model):
            if self.rng.random() < 0.1:
                self.model[place] = (key, f"synced {self.number}")

    def _drop(self, keys: Collection[str]) -> None:
        self.model = [(key, text) for key, text in self.model if key not in keys]
        self.archived = [key for key in self.archived if key not in keys]

    def fork(self) -> None:
        scope = self.scope
        messages = self.model[: self.rng.randint(1, len(self.model))]
        last_key, _ = messages[-1]
        self.begin(messages)
        self.call("fork", self.scope["conversation_id"], until=last_key, **scope)

    def clear(self) -> None:
        self.call("clear", **self.scope)
        self.model = []
        self.archived = []


def play(store: BaseStore, call: Call, seed: int, turns: int) -> None:
    with pipelines(store, 4) as (*players, new):
        story = Story(players, call, seed)
        for number in range(turns):
            story.turn(number)
        for pipeline in (*players, new):
            story.check(pipeline, "the end")
            pages = all_pages(call, pipeline, [3] * 100, **story.scope)
            assert shown(pages) == story.model
