"""The blocking form of every public method gives what its async twin gives.

Other tests use one of the two.
"""

import asyncio
import inspect
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.documents import Document
from langchain_core.language_models.fake_chat_models import FakeListChatModel
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import (
    AssembledContext,
    BudgetedChatMessageHistory,
    BudgetedRetriever,
    ChromaStore,
    ContextPipeline,
    KnowledgeBase,
    LocalEmbeddings,
    build_context_graph,
    create_recall_tool,
)
from langchain_ctxbudget.demo import demo_messages
from langchain_ctxbudget.errors import CtxBudgetError
from langchain_ctxbudget.memory import BudgetedMemory
from langchain_ctxbudget.middleware import ContextBudgetMiddleware
from langchain_ctxbudget.pipeline.chat import Chat
from langchain_ctxbudget.pipeline.snapshots import SnapshotBook
from langchain_ctxbudget.pipeline.usage import UsageBook

USER: dict[str, Any] = {"user_id": "ada"}
IDS: dict[str, Any] = {**USER, "conversation_id": "c1"}
CONFIG: dict[str, Any] = {"configurable": {"thread_id": "c1", "user_id": "ada"}}
USAGE = {"input_tokens": 800, "output_tokens": 20, "total_tokens": 820}
Do = Callable[..., Any]


def doing(prefix: str) -> Do:
    """Calls a method in one form; an error is a result, too."""

    def do(it: Any, name: str, *args: Any, **kwargs: Any) -> Any:
        try:
            if not prefix:
                result = getattr(it, name)(*args, **kwargs)
            else:
                twin = getattr(it, f"a{name}", None) or getattr(it, f"a_{name}")
                result = asyncio.run(twin(*args, **kwargs))
        except CtxBudgetError as error:
            return type(error), str(error)
        if isinstance(result, AssembledContext):
            return result.messages, result.report.to_dict() | {"timings_ms": {}}
        return result

    return do


def conversations(pipeline: ContextPipeline, do: Do, _folder: Path) -> list[Any]:
    said = [
        HumanMessage("My bike is blue.", id="m1"),
        AIMessage("Nice!", id="m2"),
        HumanMessage("Yes.", id="m3"),
    ]
    other = {"user_id": "ada", "conversation_id": "c2"}
    return [
        do(pipeline, "add_messages", said, **other),
        do(pipeline, "add_messages", [HumanMessage("No.", id="m3")], **other),
        do(pipeline, "edit_message", "m1", HumanMessage("My bike is red.", id="m1"), **other),
        do(pipeline, "edit_message", "m9", said[0], **other),
        do(pipeline, "pin", "m2", **other),
        do(pipeline, "fork", "c3", **other),
        do(pipeline, "remove_messages", ["m3"], **other),
        do(pipeline, "get_messages", **other),
        do(pipeline, "sync", [said[0], HumanMessage("Well?", id="m4")], **other),
        do(pipeline, "get_page", limit=2, **other).messages,
        do(pipeline, "save_settings", {"tone": "loud"}, **USER),
        do(pipeline, "save_settings", {"preferences": ["Answers are short."]}, **USER),
        do(pipeline, "get_settings", **USER),
        do(pipeline, "assemble", "Which colour has my bike?", **other),
        do(pipeline, "assemble", "And what do the labels cost?", **IDS),
        do(pipeline, "assemble", "Hello", user_id="", conversation_id="c1"),
        do(pipeline, "coverage", **IDS),
        do(pipeline, "get_compactions", **IDS),
        do(pipeline, "flush"),
        do(pipeline, "end_session", **other),
        do(pipeline, "status", **other),
        do(pipeline, "list_conversations", **USER),
        do(pipeline, "hand_over", "c2", from_user="ada", to_user="bob"),
        do(pipeline, "get_messages", user_id="bob", conversation_id="c2"),
        do(pipeline, "hand_over", "c2", from_user="bob", to_user="ada"),
        do(pipeline, "clear", **other),
        *bound(pipeline, do),
        sum("Nice!" in line for line in do(pipeline, "export_user", **USER)),
        do(pipeline, "erase_user", **USER),
        do(pipeline, "get_messages", **IDS),
    ]


def bound(pipeline: ContextPipeline, do: Do) -> list[Any]:
    """What the methods of a bound conversation give is what those of the pipeline give."""
    chat = pipeline.conversation("c4", user_id="ada")
    ids = {"user_id": "ada", "conversation_id": "c4"}
    context = pipeline.assemble(HumanMessage("My bike is blue.", id="m1"), **ids)
    added = do(chat, "add", context.turn, AIMessage("Nice!", id="m2"))
    assert (
        do(chat, "assemble", "Which colour?")[0]
        == do(pipeline, "assemble", "Which colour?", **ids)[0]
    )
    do(chat, "edit", "m1", HumanMessage("My bike is red.", id="m1"))
    do(chat, "pin", "m1")
    forked = do(chat, "fork", "c5", until="m1")
    assert (
        forked.messages() == chat.messages()[:1] == pipeline.get_page(limit=9, **ids).messages[:1]
    )
    do(forked, "sync", [HumanMessage("Well?", id="m9")])
    do(chat, "remove", "m2")
    results = [
        added,
        do(forked, "messages"),
        do(chat, "page", limit=1).messages,
        do(chat, "end_session"),
    ]
    results += [do(chat, "status")]
    assert (do(chat, "coverage"), do(chat, "compactions")) == (
        pipeline.coverage(**ids),
        pipeline.get_compactions(**ids),
    )
    assert chat.last_report() is pipeline.last_report(**ids)
    do(chat, "clear")
    return [*results, do(pipeline, "get_messages", **ids)]


def knowledge(pipeline: ContextPipeline, do: Do, _folder: Path) -> list[Any]:
    known = pipeline.knowledge
    fact = do(known, "add_fact", "Lives in Lisbon", category="identity", **USER)
    return [
        fact,
        do(known, "edit", fact.id, text="Lives in Porto", **USER),
        do(known, "pin", fact.id, **USER),
        do(known, "why", fact.id, **USER),
        *(
            do(known, f"list_{kind}", **USER)
            for kind in ("facts", "topics", "entities", "bundles", "known")
        ),
        do(known, "heartbeat", device_id="phone", current_page="/labels", **USER),
        do(known, "list_devices", **USER),
        do(known, "add_topic", "Labels", domain="business", **USER),
        do(known, "add_entity", "Clara", type="person", **USER),
        do(known, "describe", **USER),
        do(known, "delete", fact.id, **USER),
        do(known, "delete", fact.id, **USER),
        do(known, "clear", **USER),
        do(known, "describe", **USER),
    ]


def books(pipeline: ContextPipeline, do: Do, _folder: Path) -> list[Any]:
    do(pipeline, "assemble", "And now?", **IDS, settings={"keep_snapshots": 3})
    do(pipeline, "flush")
    [found] = do(pipeline.snapshots, "list", **IDS)
    [latest] = do(pipeline.snapshots, "list", limit=1, **IDS)
    return [
        found.report.total_tokens,
        do(pipeline.snapshots, "get", found.id, **IDS) == latest,
        do(pipeline.snapshots, "analytics", **IDS)
        == do(pipeline.snapshots, "analytics", conversation_id=None, **USER),
        do(pipeline.usage, "record", USAGE, model="gpt-4o", **IDS),
        do(pipeline.usage, "of_session", **IDS),
        do(pipeline.usage, "of_month", **USER),
        do(pipeline.usage, "standing", limits={"session_tokens": 1_000}, **IDS),
    ]


def documents(pipeline: ContextPipeline, do: Do, folder: Path) -> list[Any]:
    knowledge = KnowledgeBase(pipeline.store, user_id="ada")
    (folder / "kettle.txt").write_text("The kettle is descaled with citric acid.")
    given = [Document("The chain needs oil.", metadata={"source": "bike"})]
    return [
        do(knowledge, "add", given),
        do(knowledge, "add", folder / "kettle.txt"),
        do(knowledge, "list"),
        do(knowledge, "get", "bike"),
        do(knowledge, "search", "kettle", k=1),
        do(knowledge, "delete", "bike"),
        do(knowledge, "list"),
    ]


def history(pipeline: ContextPipeline, do: Do, _folder: Path) -> list[Any]:
    chat = BudgetedChatMessageHistory("c1", user_id="ada", pipeline=pipeline)
    given = [HumanMessage("My bike is blue.", id="m")]
    return [
        do(chat, "add_messages", given),
        chat.messages,
        do(chat, "window", 900),
        do(chat, "clear"),
        chat.messages,
    ]


def memory(pipeline: ContextPipeline, do: Do, _folder: Path) -> list[Any]:
    window, whole = (
        BudgetedMemory(pipeline=pipeline, whole_prompt=whole, **IDS) for whole in (False, True)
    )
    return [
        do(window, "save_context", {"input": "My bike is blue."}, {"output": "Nice!"}),
        do(window, "load_memory_variables", {}),
        do(whole, "load_memory_variables", {"input": "Which colour?"}),
        do(window, "clear"),
        do(window, "load_memory_variables", {}),
    ]


def runnables(pipeline: ContextPipeline, do: Do, _folder: Path) -> list[Any]:
    graph = build_context_graph(pipeline)
    state = {"messages": [*demo_messages(), HumanMessage("And now?", id="q")]}
    model = FakeListChatModel(responses=["Fine."])
    agent: Any = create_agent(
        model, middleware=[ContextBudgetMiddleware(pipeline, recall_tool=False, report="texts")]
    )
    return [
        do(pipeline.as_runnable(), "invoke", "Which colour has my bike?", CONFIG),
        do(
            BudgetedRetriever(pipeline=pipeline, user_id="ada"),
            "invoke",
            "What do the labels cost?",
        ),
        do(create_recall_tool(pipeline), "invoke", {"query": "labels"}, CONFIG),
        do(graph, "invoke", state, CONFIG)["llm_input_messages"],
        do(LocalEmbeddings(), "embed_documents", ["The bike is blue."]),
        do(LocalEmbeddings(), "embed_query", "Which colour has it?"),
        do(agent, "invoke", state, CONFIG)["ctxbudget_report"] | {"timings_ms": {}},
        [message.text for message in pipeline.get_messages(**IDS)],
    ]


@pytest.mark.parametrize(
    "use", [conversations, knowledge, books, documents, history, memory, runnables]
)
def test_the_blocking_form_gives_what_the_async_one_gives(
    use: Callable[..., list[Any]], tmp_path: Path
) -> None:
    settings = {"max_context_tokens": 2_000, "learn": False}
    clock = datetime(2026, 11, 23, tzinfo=UTC)
    results = []
    for form in ("", "a"):
        with ContextPipeline(
            settings, store=InMemoryStore(), writer_id="w", clock=lambda: clock
        ) as pipeline:
            pipeline.add_messages(demo_messages(), **IDS)
            results.append(use(pipeline, doing(form), tmp_path))
    for number, (blocking, awaited) in enumerate(zip(*results, strict=True)):
        assert blocking == awaited, f"step {number}"


def test_a_signature_says_what_a_method_returns() -> None:
    assert inspect.signature(ContextPipeline.aassemble).return_annotation is AssembledContext


METHODS = [
    getattr(kind, name)
    for kind in (ContextPipeline, Chat, UsageBook, SnapshotBook)
    for name in vars(kind)
    if not name.startswith("_") and inspect.isfunction(getattr(kind, name))
]


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.__qualname__)
def test_a_method_has_its_own_name_and_a_docstring(method: Any) -> None:
    kind, name = method.__qualname__.split(".")
    assert method.__name__ == name
    assert inspect.getdoc(method)
    assert kind in ("ContextPipeline", "Chat", "UsageBook", "SnapshotBook")


@pytest.mark.parametrize("kind", [ContextPipeline, Chat, UsageBook, SnapshotBook])
def test_both_forms_have_one_signature(kind: type) -> None:
    for name, method in vars(kind).items():
        other = getattr(kind, f"a{name}", None) or getattr(kind, f"a_{name}", None)
        if other is not None:
            assert inspect.signature(method) == inspect.signature(other)


def test_what_a_pipeline_and_a_conversation_are_is_in_their_repr() -> None:
    pipeline = ContextPipeline({"max_context_tokens": 2_000, "learn": False}, model="gpt-4o")
    chat = pipeline.conversation("c1", user_id="ada")
    name = "ContextPipeline(max_context_tokens=2000, model='gpt-4o', store=PrivateStore())"
    assert repr(pipeline) == name
    assert repr(chat) == "Chat('c1', user_id='ada')"
    chat.add(HumanMessage("Hello."))
    assert repr(chat) == "Chat('c1', user_id='ada', messages=1)"
    history = BudgetedChatMessageHistory("c1", user_id="ada", pipeline=pipeline, max_tokens=900)
    assert repr(history) == "BudgetedChatMessageHistory('c1', user_id='ada', max_tokens=900)"


def test_what_a_store_is_is_in_its_repr(tmp_path: Path) -> None:
    with ChromaStore() as store:
        assert repr(store) == "ChromaStore()"
    with ChromaStore(tmp_path) as store:
        assert repr(store) == f"ChromaStore({str(tmp_path.resolve())!r})"


def test_every_twin_is_in_a_story() -> None:
    """Reads the stories, not what was called: tests may run alone, and in several processes."""
    pipeline = ContextPipeline({"learn": False})
    several = [
        pipeline,
        pipeline.knowledge,
        pipeline.usage,
        pipeline.snapshots,
        KnowledgeBase(user_id="ada"),
    ]
    story = Path(__file__).read_text(encoding="utf-8")
    missing = [
        f"{type(one).__name__}.{name}"
        for one in several
        for name in dir(one)
        if not name.startswith("_") and (hasattr(one, f"a{name}") or hasattr(one, f"a_{name}"))
        if f'"{name}"' not in story and f'"{name.removeprefix("list_")}"' not in story
    ]
    assert missing == []
