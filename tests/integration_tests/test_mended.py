"""What is misspelt, of another kind, damaged, or written by two at one moment."""

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
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


class TestTwoWritersOfOneId:
    """Both add a message of the id at one moment; the first is done while the second writes."""

    class Hooked(InMemoryStore):
        """Lets another writer write first, once, when messages are written."""

        write_first: Callable[[], object] | None = None

        def batch(self, ops: Iterable[Op]) -> list[Result]:
            operations = list(ops)
            if self.write_first and any(map(writes_messages, operations)):
                write_first = self.write_first
                self.write_first = None
                write_first()
            return super().batch(operations)

    @pytest.fixture
    def second(self) -> ContextPipeline:
        """The second writer, before it adds its message."""
        store = InMemoryStore()
        hooked = self.Hooked()
        hooked._data = store._data
        first = ContextPipeline({"learn": False}, store=store, writer_id="a")
        second = ContextPipeline({"learn": False}, store=hooked, writer_id="b")
        first.add_messages([HumanMessage("start")], **ADA)
        second.add_messages([AIMessage("ok")], **ADA)
        first.add_messages([HumanMessage("more")], **ADA)
        message = HumanMessage("from A", id="m1")
        hooked.write_first = lambda: first.add_messages([message], **ADA)
        return second

    def test_each_is_told_the_id_of_its_own_message(self, second: ContextPipeline) -> None:
        [own] = second.add_messages([HumanMessage("from B", id="m1")], **ADA)

        texts = {message.id: message.content for message in second.get_messages(**ADA)}
        assert texts[own] == "from B"

    def test_by_that_id_only_its_own_message_is_removed(self, second: ContextPipeline) -> None:
        [own] = second.add_messages([HumanMessage("from B", id="m1")], **ADA)

        second.remove_messages(own, **ADA)

        assert "from A" in [message.content for message in second.get_messages(**ADA)]


def writes_messages(op: Op) -> bool:
    return isinstance(op, PutOp) and "messages" in op.namespace


def test_messages_are_removed_where_the_record_of_the_cuts_is_damaged() -> None:
    store = InMemoryStore()
    settings = {"learn": False, "max_context_tokens": 1_500, "keep_messages": 2}
    pipeline = ContextPipeline(settings, store=store)
    messages = [HumanMessage(f"number {number} " + "word " * 40) for number in range(60)]
    ids = pipeline.add_messages(messages, **ADA)
    pipeline.assemble("Which number?", **ADA)
    [cuts] = [place for place in store.list_namespaces() if "cuts" in place]
    store.put(cuts, store.search(cuts)[0].key, {"broken": 1})

    pipeline.remove_messages(ids[3], **ADA)

    assert ids[3] not in [message.id for message in pipeline.get_messages(**ADA)]


# What is misspelt or of another kind


@pytest.fixture(scope="module")
def pipeline() -> ContextPipeline:
    return ContextPipeline({"learn": False})


@pytest.mark.parametrize(
    ("make", "arguments", "message"),
    [
        (RunContext, {"userId": "ada"}, r"'userId' \(is 'user_id' meant\?\)"),
        (ContextSettings, {"max_context_token": 1}, "is 'max_context_tokens' meant"),
        (
            ContextPipeline,
            {"max_context_tokens": 4000},
            r"pass settings=\{'max_context_tokens': 4000\}",
        ),
        (ContextPipeline, {"modle": "x"}, "'modle' .is 'model' meant"),
        (
            ContextBudgetMiddleware,
            {"max_context_tokens": 4000},
            r"pass pipeline=\{'max_context_tokens': 4000\}",
        ),
        (
            ContextBudgetMiddleware,
            {"max_tokens": 4000},
            r"\(is it the setting pipeline=\{'max_context_tokens': ...\}\?\)",
        ),
        (ContextPipeline, {"clock": datetime.now(UTC)}, "clock must be a function"),
        (
            KnowledgeBase,
            {"user": "ada"},
            "KnowledgeBase has no argument 'user' .is 'user_id' meant",
        ),
        (
            KnowledgeBase,
            {"shared": True, "chunk_tokens": 100.5},
            "a whole number of at least 16, not 100.5",
        ),
    ],
    ids=[
        "scope",
        "setting",
        "setting of a pipeline",
        "argument of a pipeline",
        "setting of a middleware",
        "misspelt setting of a middleware",
        "a time as a clock",
        "argument of documents",
        "size of chunks",
    ],
)
def test_an_argument_of_a_class_is_refused_by_its_name(
    make: Any, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidSettingsError, match=message):
        make(**arguments)


def test_a_misspelt_scope_of_a_prompt_is_refused_by_its_name(pipeline: Any) -> None:
    with pytest.raises(InvalidSettingsError, match=r"'usr_id' .is 'user_id' meant"):
        pipeline.assemble("x", usr_id="ada", conversation_id="c")


def test_a_thread_is_refused_as_a_conversation(pipeline: Any) -> None:
    with pytest.raises(InvalidSettingsError, match="is 'conversation_id' meant"):
        pipeline.clear(user_id="ada", thread_id="c")


def test_an_id_of_another_kind_is_not_known(pipeline: Any) -> None:
    with pytest.raises(InputError, match="Nothing with the id 5 is known"):
        pipeline.knowledge.edit(5, text="x", user_id="ada")


def test_the_label_of_a_topic_is_a_text(pipeline: Any) -> None:
    with pytest.raises(InputError, match="label cannot be 5"):
        pipeline.knowledge.add_topic(5, user_id="ada")


def test_the_name_of_an_entity_is_a_text(pipeline: Any) -> None:
    with pytest.raises(InputError, match="name cannot be 5"):
        pipeline.knowledge.add_entity(5, user_id="ada")


def test_a_field_of_a_subclass_is_given_by_its_aliases() -> None:
    class Own(langchain_ctxbudget.BudgetedRetriever):
        more: int = Field(default=0, alias="mehr")
        less: int = Field(default=0, validation_alias=AliasChoices("weniger", "moins"))

    by_alias: dict[str, Any] = {"mehr": 3, "moins": 2}
    own = Own(pipeline=ContextPipeline({"learn": False}), user_id="ada", **by_alias)

    assert own.more == 3
    assert own.less == 2


NO_CALLS = {
    "AssembledContext",
    "ContextSettings",
    "LocalEmbeddings",
    "RetentionPolicy",
    "TokenCounter",
    "__version__",
}
"""Public names that are not called, take any argument, or are settings, whose errors name these."""


def methods_of(part: object) -> list[Callable[..., Any]]:
    """The public methods of an object's class that name all their arguments."""
    names = [name for name, method in vars(type(part)).items() if isfunction(method)]
    methods = [getattr(part, name) for name in names if not name.startswith("_")]
    return [method for method in methods if "**" not in str(signature(method))]


async def public_calls() -> list[Callable[..., Any]]:
    pipeline = ContextPipeline({"learn": False})
    conversation = pipeline.conversation("c1", user_id="ada")
    context = await conversation.aassemble("Hello")
    parts = [
        pipeline,
        conversation,
        pipeline.knowledge,
        pipeline.usage,
        pipeline.snapshots,
        KnowledgeBase(shared=True),
        langchain_ctxbudget.BudgetedChatMessageHistory("c1", user_id="ada", pipeline=pipeline),
        context.report,
    ]

    names = set(langchain_ctxbudget.__all__) - NO_CALLS
    calls = [getattr(langchain_ctxbudget, name) for name in sorted(names)]
    for part in parts:
        calls += methods_of(part)
    return calls


async def test_every_public_call_names_an_argument_that_it_does_not_have() -> None:
    calls = await public_calls()

    assert len(calls) > 100
    for call in calls:
        with pytest.raises(InvalidSettingsError, match=r"has no argument 'nonsense'.*; it has "):
            await cast("Any", call(nonsense=1))
