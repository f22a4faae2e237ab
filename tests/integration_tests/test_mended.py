"""What is misspelt, of another kind, damaged, or written by two at one moment."""

from collections.abc import Iterable
from datetime import UTC, datetime
from functools import partial
from inspect import isfunction, signature
from typing import Any, cast

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.store.base import Op, PutOp, Result
from langgraph.store.memory import InMemoryStore
from pydantic import AliasChoices, Field

import langchain_ctxbudget
from langchain_ctxbudget import ContextPipeline, ContextSettings, KnowledgeBase
from langchain_ctxbudget.errors import InputError, InvalidSettingsError
from langchain_ctxbudget.middleware import ContextBudgetMiddleware
from langchain_ctxbudget.pipeline import RunContext

ADA: dict[str, Any] = {"user_id": "ada", "conversation_id": "c"}


def test_of_two_writers_that_take_one_id_at_one_moment_each_is_told_the_id_of_its_own_message() -> (
    None
):
    class Hooked(InMemoryStore):
        done = True

        def batch(self, ops: Iterable[Op]) -> list[Result]:
            ops = list(ops)
            if not self.done and any(
                isinstance(op, PutOp) and "messages" in op.namespace for op in ops
            ):
                self.done = True
                first.add_messages([HumanMessage("from A", id="m1")], **ADA)
            return super().batch(ops)

    hooked = Hooked()
    store = InMemoryStore()
    hooked._data = store._data
    first, second = (
        ContextPipeline({"learn": False}, store=one, writer_id=name)
        for one, name in ((store, "a"), (hooked, "b"))
    )
    first.add_messages([HumanMessage("start")], **ADA)
    second.add_messages([AIMessage("ok")], **ADA)
    first.add_messages([HumanMessage("more")], **ADA)
    hooked.done = False
    [own] = second.add_messages([HumanMessage("from B", id="m1")], **ADA)
    assert {message.id: message.content for message in second.get_messages(**ADA)}[own] == "from B"
    second.remove_messages(own, **ADA)
    assert "from A" in [message.content for message in second.get_messages(**ADA)]


def test_messages_are_removed_where_the_record_of_the_cuts_is_damaged() -> None:
    store = InMemoryStore()
    pipeline = ContextPipeline(
        {"learn": False, "max_context_tokens": 1_500, "keep_messages": 2}, store=store
    )
    ids = pipeline.add_messages(
        [HumanMessage(f"number {n} " + "word " * 40) for n in range(60)], **ADA
    )
    pipeline.assemble("Which number?", **ADA)
    [cuts] = [place for place in store.list_namespaces() if "cuts" in place]
    store.put(cuts, store.search(cuts)[0].key, {"broken": 1})
    pipeline.remove_messages(ids[3], **ADA)
    assert ids[3] not in [message.id for message in pipeline.get_messages(**ADA)]


def test_what_is_misspelt_or_of_another_kind_is_refused_by_name() -> None:
    pipeline: Any = ContextPipeline({"learn": False})
    kinds: list[Any] = [
        RunContext,
        ContextSettings,
        ContextPipeline,
        ContextBudgetMiddleware,
        KnowledgeBase,
    ]
    context, settings, pipelines, middleware, documents = kinds
    for call, message in {
        lambda: context(userId="ada"): r"'userId' \(is 'user_id' meant\?\)",
        lambda: settings(max_context_token=1): "is 'max_context_tokens' meant",
        lambda: pipelines(max_context_tokens=4000): r"pass settings=\{'max_context_tokens': 4000\}",
        lambda: pipelines(modle="x"): "'modle' .is 'model' meant",
        lambda: pipeline.assemble(
            "x", usr_id="ada", conversation_id="c"
        ): "'usr_id' .is 'user_id' meant",
        lambda: middleware(
            max_context_tokens=4000
        ): r"pass pipeline=\{'max_context_tokens': 4000\}",
        lambda: pipelines(clock=datetime.now(UTC)): "clock must be a function",
        lambda: documents(user="ada"): "KnowledgeBase has no argument 'user' .is 'user_id' meant",
        lambda: pipeline.clear(user_id="ada", thread_id="c"): "is 'conversation_id' meant",
        lambda: documents(
            shared=True, chunk_tokens=100.5
        ): "a whole number of at least 16, not 100.5",
    }.items():
        with pytest.raises(InvalidSettingsError, match=message):
            call()
    known = pipeline.knowledge
    for call, message in {
        lambda: known.edit(5, text="x", user_id="ada"): "Nothing with the id 5 is known",
        lambda: known.add_topic(5, user_id="ada"): "label cannot be 5",
        lambda: known.add_entity(5, user_id="ada"): "name cannot be 5",
    }.items():
        with pytest.raises(InputError, match=message):
            call()


def test_a_field_of_a_subclass_is_given_by_its_aliases() -> None:
    class Own(langchain_ctxbudget.BudgetedRetriever):
        more: int = Field(default=0, alias="mehr")
        less: int = Field(default=0, validation_alias=AliasChoices("weniger", "moins"))

    given: dict[str, Any] = {"mehr": 3, "moins": 2}
    own = Own(pipeline=ContextPipeline({"learn": False}), user_id="ada", **given)
    assert (own.more, own.less) == (3, 2)


async def test_every_public_method_names_an_argument_that_it_does_not_have() -> None:
    pipeline = ContextPipeline({"learn": False})
    chat = pipeline.conversation("c1", user_id="ada")
    history = langchain_ctxbudget.BudgetedChatMessageHistory
    parts = [
        pipeline,
        chat,
        pipeline.knowledge,
        pipeline.usage,
        pipeline.snapshots,
        KnowledgeBase(shared=True),
    ]
    parts += [
        history("c1", user_id="ada", pipeline=pipeline),
        (await chat.aassemble("Hello")).report,
    ]
    others = {
        "AssembledContext",
        "ContextSettings",
        "LocalEmbeddings",
        "TokenCounter",
        "__version__",
    }
    calls = [getattr(langchain_ctxbudget, name) for name in {*langchain_ctxbudget.__all__} - others]
    for part in parts:
        own = [
            name
            for name, method in vars(type(part)).items()
            if name[0] != "_" and isfunction(method)
        ]
        calls += [
            call for call in map(partial(getattr, part), own) if "**" not in str(signature(call))
        ]
    assert len(calls) > 100
    for call in calls:
        with pytest.raises(InvalidSettingsError, match=r"has no argument 'nonsense'.*; it has "):
            await cast("Any", call(nonsense=1))
