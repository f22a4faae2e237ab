"""What every store must hold under the message log.

Conversations that several pipelines append to and change.
"""

import json
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import copy_context
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langgraph.store.base import BaseStore, Op, PutOp, Result, SearchOp

from langchain_ctxbudget import ContextPipeline, TiktokenCounter
from langchain_ctxbudget.errors import InputError, MessageConflictError
from langchain_ctxbudget.flow import Call as Step
from langchain_ctxbudget.flow import Flow
from langchain_ctxbudget.stores import Scope
from tests.integration_tests.summary_models import conversation

Call = Callable[..., Any]
ADA: dict[str, Any] = {"user_id": "ada", "conversation_id": "c1"}
ADAS = Scope("ada", "c1")
COUNTER = TiktokenCounter()
"""One for thousands of pipelines: what they say is counted once."""
FEW = settings(
    max_examples=5,
    deadline=None,
    # Every store has its own fixtures, and pytest a new instance of the class for each.
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.differing_executors],
)


class Elsewhere(BaseStore):
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

    def _check(self, ops: Iterable[Op]) -> list[Op]:
        todo = list(ops)
        if self.writes_left is not None and any(isinstance(op, PutOp) for op in todo):
            if not self.writes_left:
                raise OSError("the disk is gone")
            self.writes_left -= 1
        return todo

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        return super().batch(self._check(ops))

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        return await super().abatch(self._check(ops))


class Counting(Elsewhere):
    """A store that counts what it is asked for."""

    def __init__(self, store: BaseStore) -> None:
        super().__init__(store)
        self.reset()

    def reset(self) -> None:
        self.batches = self.operations = self.searches = self.records_read = self.bytes_read = (
            self.bytes_written
        ) = 0

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        todo = list(ops)
        return self._counted(todo, super().batch(todo))

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        todo = list(ops)
        return self._counted(todo, await super().abatch(todo))

    def _counted(self, ops: Sequence[Op], results: list[Result]) -> list[Result]:
        self.batches += 1
        self.operations += len(ops)
        self.searches += sum(isinstance(op, SearchOp) for op in ops)
        self.bytes_written += sum(len(json.dumps(op.value)) for op in ops if isinstance(op, PutOp))
        for result in results:
            for item in result if isinstance(result, list) else [result]:
                if item is not None and not isinstance(item, tuple):
                    self.records_read += 1
                    self.bytes_read += len(json.dumps(item.value))
        return results


class ByHand:
    """A flow that is taken on one store operation at a time."""

    def __init__(self, flow: Flow[Any]) -> None:
        self._flow = flow
        self._context = copy_context()  # its own, as a thread's
        self.done = False
        self.value: Any = None
        self._call: Step = self._context.run(next, flow)
        self.step()  # its lock, which is no store operation

    def step(self) -> None:
        """Do one operation, where any is left."""
        if not self.done:
            self._context.run(self._step)

    def _step(self) -> None:
        try:
            try:
                result = self._call.sync()
            except Exception as error:  # noqa: BLE001 - the flow decides what an error means
                self._call = self._flow.throw(error)
            else:
                self._call = self._flow.send(result)
        except StopIteration as end:
            self.done = True
            self.value = end.value
        except InputError as error:  # another has taken away what it was to work on
            self.done = True
            self.value = error


def said(*texts: str) -> list[BaseMessage]:
    return [HumanMessage(text, id=text) for text in texts]


def shown(messages: Iterable[BaseMessage]) -> list[tuple[str, str]]:
    return [(str(message.id), message.text) for message in messages]


def texts(messages: Iterable[BaseMessage]) -> list[str]:
    return [message.text for message in messages]


@contextmanager
def pipelines(
    store: BaseStore, count: int, settings: Mapping[str, Any] | None = None, **given: Any
) -> Iterator[list[ContextPipeline]]:
    """Pipelines as so many processes have them, by name in the order of their lanes.

    They learn nothing.
    """
    changes = {"learn": False, **(settings or {})}
    given = {"token_counter": COUNTER, **given}
    made = [
        ContextPipeline(changes, store=Elsewhere(store), writer_id=f"{number:04}", **given)
        for number in range(count)
    ]
    yield made
    for pipeline in made:
        pipeline.close()


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


class LogContract:
    """The contract; a subclass is found by pytest. Its fixtures are `store` and `call`."""

    # -- appending

    def test_a_known_id_with_other_content_is_a_conflict_that_writes_nothing(
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

    def test_a_failed_append_leaves_nothing_visible_and_can_be_repeated(
        self, store: BaseStore, call: Call
    ) -> None:
        faulty = Faulty(store)
        with pipelines(store, 1) as [reader]:
            writer = ContextPipeline(store=faulty)
            call(writer, "add_messages", said("one"), **ADA)
            call(reader, "get_messages", **ADA)
            faulty.writes_left = 0
            with pytest.raises(OSError, match="the disk is gone"):
                call(writer, "add_messages", [*said("two"), HumanMessage("yes")], **ADA)
            faulty.writes_left = None
            for pipeline in (reader, writer):
                assert texts(call(pipeline, "get_messages", **ADA)) == ["one"]
            call(writer, "add_messages", [*said("two"), HumanMessage("yes")], **ADA)
            for pipeline in (reader, writer):
                assert texts(call(pipeline, "get_messages", **ADA)) == ["one", "two", "yes"]

    # -- pages

    def test_a_page_is_before_a_message_and_its_version_is_another_one_after_every_change(
        self, store: BaseStore, call: Call
    ) -> None:
        with pipelines(store, 3) as (first, second, reader):
            page = call(reader, "get_page", **ADA)
            assert (page.messages, page.before) == ([], None)
            versions = [page.version]
            for writer, change in (
                (first, lambda it: call(it, "add_messages", said("one", "two"), **ADA)),
                (second, lambda it: call(it, "add_messages", said("three", "four"), **ADA)),
                (first, lambda it: call(it, "edit_message", "two", HumanMessage("2"), **ADA)),
                (second, lambda it: call(it, "remove_messages", "four", **ADA)),
            ):
                change(writer)
                versions.append(call(reader, "get_page", **ADA).version)
            assert len({*versions}) == len(versions)
            newest = call(reader, "get_page", limit=1, **ADA)
            assert (texts(newest.messages), newest.before) == (["three"], "three")
            assert newest.version == versions[-1]
            assert texts(call(reader, "get_page", before="three", **ADA).messages) == ["one", "2"]
            with pytest.raises(InputError, match="no messages"):
                call(reader, "get_page", before="four", **ADA)

    # -- changes

    def test_what_was_archived_can_be_forgotten(self, store: BaseStore, call: Call) -> None:
        with pipelines(store, 3) as (writer, other, new):
            call(writer, "add_messages", said("one", "a secret"), **ADA)
            call(other, "get_messages", **ADA)
            call(writer, "remove_messages", "a secret", **ADA)
            assert '"a secret"' in "\n".join(call(new, "export_user", user_id="ada"))
            call(other, "remove_messages", "a secret", on_removal="forget", **ADA)
            for pipeline in (writer, other, new):
                assert texts(call(pipeline, "get_messages", **ADA)) == ["one"]
                with pytest.raises(InputError):
                    call(pipeline, "remove_messages", "a secret", on_removal="forget", **ADA)
            assert '"a secret"' not in "\n".join(call(new, "export_user", user_id="ada"))

    # -- clearing

    def test_clearing_deletes_one_conversation_and_nothing_else(
        self, store: BaseStore, call: Call
    ) -> None:
        scopes = [
            {"user_id": u, "conversation_id": c}
            for u in ("ada", "ada2", "a_a")
            for c in ("c1", "c11", "c_", "*")
        ]
        with pipelines(store, 2) as (writer, other):
            for scope in scopes:
                call(writer, "add_messages", said("one", "two"), **scope)
                call(writer, "pin", "one", **scope)
                call(other, "get_messages", **scope)
            call(writer, "save_settings", {"depth": "deep"}, user_id="ada", persona_id="c1")
            before = {
                user: set(call(writer, "export_user", user_id=user))
                for user in ("ada", "ada2", "a_a")
            }
            call(writer, "clear", **ADA)
            for scope in scopes:
                expected = [] if scope == ADA else ["one", "two"]
                assert texts(call(other, "get_messages", **scope)) == expected
            after = {
                user: set(call(writer, "export_user", user_id=user))
                for user in ("ada", "ada2", "a_a")
            }
            assert all(after[user] <= before[user] for user in after)
            gone = {
                user: [json.loads(line) for line in before[user] - after[user]] for user in before
            }
            assert {(user, line["conversation_id"]) for user in gone for line in gone[user]} == {
                ("ada", "c1")
            }

    # -- what is made again

    def test_an_edit_behind_the_cut_by_a_new_pipeline_leaves_the_cut(
        self, store: BaseStore, call: Call
    ) -> None:
        with pipelines(store, 4, settings={"max_context_tokens": 2_000}) as (
            writer,
            reader,
            editor,
            new,
        ):
            call(writer, "add_messages", conversation(120), **ADA)
            call(writer, "assemble", "Hello", **ADA)
            covered = call(reader, "coverage", **ADA)
            assert "a119" in covered["verbatim"]
            call(editor, "edit_message", "a119", AIMessage("Yes."), **ADA)
            assert call(new, "coverage", **ADA) == covered

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
        "add",
        "add",
        "add",
        "add",
        "again",
        "edit",
        "archive",
        "forget",
        "sync",
        "fork",
        "clear",
    )

    def __init__(self, known: Sequence[ContextPipeline], call: Call, seed: int) -> None:
        self.known, self._call, self.rng = known, call, random.Random(seed)
        self.begin()

    def begin(self) -> None:
        self.scope = {"user_id": "ada", "conversation_id": uuid4().hex}
        self.model: list[tuple[str, str]] = []
        self.archived: list[str] = []

    def call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        return self._call(self.rng.choice(self.known), name, *args, **kwargs)

    def turn(self, number: int) -> None:
        self.number = number
        action = self.rng.choice(self.ACTIONS)
        if self.model or action == "add":
            getattr(self, action)()
        for pipeline in self.rng.sample(self.known, 2):  # one is left behind
            self.check(pipeline, action)

    def check(self, pipeline: ContextPipeline, after: str) -> None:
        seen = shown(self._call(pipeline, "get_messages", **self.scope))
        assert seen == self.model, f"{after} in turn {self.number}: {seen}, not {self.model}"

    def add(self) -> None:
        new: list[BaseMessage] = [
            HumanMessage(self.rng.choice(["yes", "no"]))
            if self.rng.random() < 0.4
            else HumanMessage(f"text {n}", id=f"{self.number}.{n}")
            for n in range(self.rng.randint(1, 4))
        ]
        ids = self.call("add_messages", new, **self.scope)
        self.model += [(key, message.text) for key, message in zip(ids, new, strict=True)]

    def again(self) -> None:
        key, text = self.rng.choice(self.model)
        assert self.call("add_messages", [HumanMessage(text, id=key)], **self.scope) == [key]

    def edit(self) -> None:
        place = self.rng.randrange(len(self.model))
        self.model[place] = self.model[place][0], f"edited {self.number}"
        self.call(
            "edit_message", self.model[place][0], HumanMessage(self.model[place][1]), **self.scope
        )

    def archive(self) -> None:
        key, _ = self.model.pop(self.rng.randrange(len(self.model)))
        self.call("remove_messages", key, **self.scope)
        self.archived.append(key)

    def forget(self) -> None:
        key, _ = self.rng.choice(self.model)
        keys = {key, *self.archived[-1:]}
        self.call("remove_messages", sorted(keys), on_removal="forget", **self.scope)
        self.model = [(key, text) for key, text in self.model if key not in keys]
        self.archived = [key for key in self.archived if key not in keys]

    def sync(self) -> None:
        before = {key for key, _ in self.model}
        kept = [pair for pair in self.model if self.rng.random() < 0.9]
        if not kept:  # such a state has forgotten what is stored, which stays
            self.call("sync", [], on_removal="forget", **self.scope)
            return
        self.model = kept
        gone = before - {key for key, _ in self.model}
        self.archived = [key for key in self.archived if key not in gone]
        if self.rng.random() < 0.5:
            self.rng.shuffle(self.model)
        self.model = [
            (k, f"synced {self.number}" if self.rng.random() < 0.1 else text)
            for k, text in self.model
        ]
        state = [HumanMessage(text, id=key) for key, text in self.model]
        self.call("sync", state, on_removal="forget", **self.scope)

    def fork(self) -> None:
        before = self.scope
        model = self.model[: self.rng.randint(1, len(self.model))]
        self.begin()
        self.model = model
        self.call("fork", self.scope["conversation_id"], until=model[-1][0], **before)

    def clear(self) -> None:
        self.call("clear", **self.scope)
        self.model = []
        self.archived = []


def play(store: BaseStore, call: Call, seed: int, turns: int) -> None:
    with pipelines(store, 4) as (*known, new):
        story = Story(known, call, seed)
        for number in range(turns):
            story.turn(number)
        for pipeline in (*known, new):
            story.check(pipeline, "the end")
            assert shown(all_pages(call, pipeline, [3] * 100, **story.scope)) == story.model
