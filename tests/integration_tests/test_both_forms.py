"""The blocking form of every public method gives what its async twin gives.

Other tests use one of the two.
"""

import asyncio
import inspect
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest.mock import Mock, create_autospec

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
    build_remember_node,
    create_recall_tool,
)
from langchain_ctxbudget.demo import demo_messages
from langchain_ctxbudget.errors import CtxBudgetError
from langchain_ctxbudget.memory import BudgetedMemory
from langchain_ctxbudget.middleware import ContextBudgetMiddleware
from langchain_ctxbudget.pipeline.chat import Chat
from langchain_ctxbudget.pipeline.snapshots import SnapshotBook
from langchain_ctxbudget.pipeline.usage import UsageBook
from tests.cases import few_are_quick

USER: dict[str, Any] = {"user_id": "ada"}
IDS: dict[str, Any] = {**USER, "conversation_id": "c1"}
CONFIG: dict[str, Any] = {"configurable": {"thread_id": "c1", "user_id": "ada"}}
USAGE = {"input_tokens": 800, "output_tokens": 20, "total_tokens": 820}
Do = Callable[..., Any]
"""Calls a method of an object by its name, in one of both forms."""


def call_blocking(target: Any, name: str, *args: Any, **kwargs: Any) -> Any:
    return result_of(lambda: getattr(target, name)(*args, **kwargs))


def call_async(target: Any, name: str, *args: Any, **kwargs: Any) -> Any:
    twin = getattr(target, f"a{name}", None) or getattr(target, f"a_{name}")
    return result_of(lambda: asyncio.run(twin(*args, **kwargs)))


def result_of(call: Callable[[], Any]) -> Any:
    """What a call gives, as it can be compared; an error is a result, too."""
    try:
        result = call()
    except CtxBudgetError as error:
        return type(error), str(error)
    if isinstance(result, AssembledContext):
        return result.messages, result.report.to_dict() | {"timings_ms": {}}
    return result


# -- stories: what they give step by step


def conversations(pipeline: ContextPipeline, do: Do, _folder: Path) -> list[Any]:
    bike = HumanMessage("My bike is blue.", id="m1")
    messages = [bike, AIMessage("Nice!", id="m2"), HumanMessage("Yes.", id="m3")]
    ids = {"user_id": "ada", "conversation_id": "c2"}
    return [
        do(pipeline, "add_messages", messages, **ids),
        do(pipeline, "add_messages", [HumanMessage("No.", id="m3")], **ids),
        do(pipeline, "edit_message", "m1", HumanMessage("My bike is red.", id="m1"), **ids),
        do(pipeline, "edit_message", "m9", bike, **ids),
        do(pipeline, "pin", "m2", **ids),
        do(pipeline, "fork", "c3", **ids),
        do(pipeline, "remove_messages", ["m3"], **ids),
        do(pipeline, "get_messages", **ids),
        do(pipeline, "sync", [bike, HumanMessage("Well?", id="m4")], **ids),
        do(pipeline, "get_page", limit=2, **ids).messages,
        do(pipeline, "save_settings", {"tone": "loud"}, **USER),
        do(pipeline, "save_settings", {"preferences": ["Answers are short."]}, **USER),
        do(pipeline, "get_settings", **USER),
        do(pipeline, "forecast", "Which colour has my bike?", **ids),
        do(pipeline, "assemble", "Which colour has my bike?", **ids),
        do(pipeline, "assemble", "And what do the labels cost?", **IDS),
        do(pipeline, "assemble", "Hello", user_id="", conversation_id="c1"),
        do(pipeline, "coverage", **IDS),
        do(pipeline, "get_compactions", **IDS),
        do(pipeline, "flush"),
        do(pipeline, "end_session", **ids),
        do(pipeline, "status", **ids),
        do(pipeline, "list_conversations", **USER),
        do(pipeline, "hand_over", "c2", from_user="ada", to_user="bob"),
        do(pipeline, "get_messages", user_id="bob", conversation_id="c2"),
        do(pipeline, "hand_over", "c2", from_user="bob", to_user="ada"),
        do(pipeline, "sweep", {"messages": 90}),
        do(pipeline, "sweep_user", {"messages": 90}, **USER),
        do(pipeline, "clear", **ids),
        sum("Nice!" in line for line in do(pipeline, "export_user", **USER)),
        do(pipeline, "erase_user", **USER),
        do(pipeline, "get_messages", **IDS),
    ]


def bound_conversation(pipeline: ContextPipeline, do: Do, _folder: Path) -> list[Any]:
    chat = pipeline.conversation("c4", user_id="ada")
    context = pipeline.assemble(
        HumanMessage("My bike is blue.", id="m1"), user_id="ada", conversation_id="c4"
    )
    added = do(chat, "add", context.turn, AIMessage("Nice!", id="m2"))
    forecast = do(chat, "forecast", "Which colour?")
    assembled = do(chat, "assemble", "Which colour?")
    do(chat, "edit", "m1", HumanMessage("My bike is red.", id="m1"))
    do(chat, "pin", "m1")
    forked = do(chat, "fork", "c5", until="m1")
    do(forked, "sync", [HumanMessage("Well?", id="m9")])
    do(chat, "remove", "m2")
    return [
        added,
        forecast,
        assembled,
        do(forked, "messages"),
        do(chat, "page", limit=1).messages,
        do(chat, "end_session"),
        do(chat, "status"),
        do(chat, "coverage"),
        do(chat, "compactions"),
        do(chat, "clear"),
        do(pipeline, "get_messages", user_id="ada", conversation_id="c4"),
    ]


def knowledge(pipeline: ContextPipeline, do: Do, _folder: Path) -> list[Any]:
    knowledge = pipeline.knowledge
    fact = do(knowledge, "add_fact", "Lives in Lisbon", category="identity", **USER)
    return [
        fact,
        do(knowledge, "edit", fact.id, text="Lives in Porto", **USER),
        do(knowledge, "pin", fact.id, **USER),
        do(knowledge, "why", fact.id, **USER),
        do(knowledge, "list_facts", **USER),
        do(knowledge, "list_rules", **USER),
        do(knowledge, "list_topics", **USER),
        do(knowledge, "list_entities", **USER),
        do(knowledge, "list_bundles", **USER),
        do(knowledge, "list_known", **USER),
        do(knowledge, "heartbeat", device_id="phone", current_page="/labels", **USER),
        do(knowledge, "list_devices", **USER),
        do(knowledge, "add_topic", "Labels", domain="business", **USER),
        do(knowledge, "add_entity", "Clara", type="person", **USER),
        do(knowledge, "describe", **USER),
        do(knowledge, "delete", fact.id, **USER),
        do(knowledge, "delete", fact.id, **USER),
        do(knowledge, "clear", **USER),
        do(knowledge, "describe", **USER),
    ]


def books(pipeline: ContextPipeline, do: Do, _folder: Path) -> list[Any]:
    do(pipeline, "assemble", "And now?", **IDS, settings={"keep_snapshots": 3})
    do(pipeline, "flush")
    [snapshot] = do(pipeline.snapshots, "list", **IDS)
    [latest] = do(pipeline.snapshots, "list", limit=1, **IDS)
    of_conversation = do(pipeline.snapshots, "analytics", **IDS)
    of_user = do(pipeline.snapshots, "analytics", conversation_id=None, **USER)
    return [
        snapshot.report.total_tokens,
        do(pipeline.snapshots, "get", snapshot.id, **IDS) == latest,
        of_conversation == of_user,
        do(pipeline.usage, "record", USAGE, model="gpt-4o", **IDS),
        do(pipeline.usage, "of_session", **IDS),
        do(pipeline.usage, "of_month", **USER),
        do(pipeline.usage, "own_of_session", **IDS),
        do(pipeline.usage, "own_of_month", **USER),
        do(pipeline.usage, "standing", limits={"session_tokens": 1_000}, **IDS),
    ]


def documents(pipeline: ContextPipeline, do: Do, folder: Path) -> list[Any]:
    knowledge = KnowledgeBase(pipeline.store, user_id="ada")
    (folder / "kettle.txt").write_text("The kettle is descaled with citric acid.")
    bike = Document("The chain needs oil.", metadata={"source": "bike"})
    return [
        do(knowledge, "add", [bike]),
        do(knowledge, "add", folder / "kettle.txt"),
        do(knowledge, "list"),
        do(knowledge, "get", "bike"),
        do(knowledge, "search", "kettle", k=1),
        do(knowledge, "delete", "bike"),
        do(knowledge, "list"),
    ]


def history(pipeline: ContextPipeline, do: Do, _folder: Path) -> list[Any]:
    chat = BudgetedChatMessageHistory("c1", user_id="ada", pipeline=pipeline)
    return [
        do(chat, "add_messages", [HumanMessage("My bike is blue.", id="m")]),
        chat.messages,
        do(chat, "window", 900),
        do(chat, "clear"),
        chat.messages,
    ]


def memory(pipeline: ContextPipeline, do: Do, _folder: Path) -> list[Any]:
    window = BudgetedMemory(pipeline=pipeline, whole_prompt=False, **IDS)
    whole = BudgetedMemory(pipeline=pipeline, whole_prompt=True, **IDS)
    return [
        do(window, "save_context", {"input": "My bike is blue."}, {"output": "Nice!"}),
        do(window, "load_memory_variables", {}),
        do(whole, "load_memory_variables", {"input": "Which colour?"}),
        do(window, "clear"),
        do(window, "load_memory_variables", {}),
    ]


def runnables(pipeline: ContextPipeline, do: Do, _folder: Path) -> list[Any]:
    graph = build_context_graph(pipeline)
    retriever = BudgetedRetriever(pipeline=pipeline, user_id="ada")
    middleware = ContextBudgetMiddleware(pipeline, recall_tool=False, report="texts")
    agent: Any = create_agent(FakeListChatModel(responses=["Fine."]), middleware=[middleware])
    state = {"messages": [*demo_messages(), HumanMessage("And now?", id="q")]}
    answered = {"messages": [*state["messages"], AIMessage("Now.", id="a")]}
    return [
        do(pipeline.as_runnable(), "invoke", "Which colour has my bike?", CONFIG),
        do(retriever, "invoke", "What do the labels cost?"),
        do(create_recall_tool(pipeline), "invoke", {"query": "labels"}, CONFIG),
        do(graph, "invoke", state, CONFIG)["llm_input_messages"],
        do(build_remember_node(pipeline), "invoke", answered, CONFIG),
        [message.text for message in pipeline.get_messages(**IDS)],
        do(LocalEmbeddings(), "embed_documents", ["The bike is blue."]),
        do(LocalEmbeddings(), "embed_query", "Which colour has it?"),
        do(agent, "invoke", state, CONFIG)["ctxbudget_report"] | {"timings_ms": {}},
        [message.text for message in pipeline.get_messages(**IDS)],
    ]


def new_pipeline() -> ContextPipeline:
    """A pipeline whose results are the same every time."""
    return ContextPipeline(
        {"max_context_tokens": 2_000, "learn": False},
        store=InMemoryStore(),
        writer_id="w",
        clock=lambda: datetime(2026, 11, 23, tzinfo=UTC),
    )


def demo_pipeline() -> ContextPipeline:
    """Such a pipeline with the demo's conversation."""
    pipeline = new_pipeline()
    pipeline.add_messages(demo_messages(), **IDS)
    return pipeline


@pytest.mark.slow
@pytest.mark.parametrize(
    "story",
    few_are_quick(
        [
            conversations,
            bound_conversation,
            knowledge,
            books,
            documents,
            history,
            memory,
            runnables,
        ],
        3,
    ),
)
def test_the_blocking_form_gives_what_the_async_one_gives(
    story: Callable[..., list[Any]], tmp_path: Path
) -> None:
    with demo_pipeline() as pipeline:
        blocking = story(pipeline, call_blocking, tmp_path)
    with demo_pipeline() as pipeline:
        awaited = story(pipeline, call_async, tmp_path)

    steps = enumerate(zip(blocking, awaited, strict=True))
    different = {number: results for number, results in steps if results[0] != results[1]}
    assert different == {}


# -- a conversation with its ids


BOUND_IDS: dict[str, Any] = {"user_id": "ada", "conversation_id": "c4"}


@pytest.fixture
def bound_pipeline() -> Iterator[ContextPipeline]:
    with new_pipeline() as pipeline:
        context = pipeline.assemble(HumanMessage("My bike is blue.", id="m1"), **BOUND_IDS)
        pipeline.add_messages([*context.turn, AIMessage("Nice!", id="m2")], **BOUND_IDS)
        yield pipeline


both_forms = pytest.mark.parametrize("do", [call_blocking, call_async], ids=["blocking", "awaited"])


@both_forms
def test_a_bound_conversation_assembles_what_its_pipeline_does(
    bound_pipeline: ContextPipeline, do: Do
) -> None:
    chat = bound_pipeline.conversation("c4", user_id="ada")
    messages, _ = do(chat, "assemble", "Which colour?")
    same_messages, _ = do(bound_pipeline, "assemble", "Which colour?", **BOUND_IDS)
    assert messages == same_messages


@both_forms
def test_a_fork_of_a_bound_conversation_has_its_first_messages(
    bound_pipeline: ContextPipeline, do: Do
) -> None:
    chat = bound_pipeline.conversation("c4", user_id="ada")
    do(chat, "edit", "m1", HumanMessage("My bike is red.", id="m1"))
    forked = do(chat, "fork", "c5", until="m1")

    assert [message.text for message in forked.messages()] == ["My bike is red."]
    assert forked.messages() == chat.messages()[:1]
    assert forked.messages() == bound_pipeline.get_page(limit=9, **BOUND_IDS).messages[:1]


@both_forms
def test_a_bound_conversation_covers_what_its_pipeline_does(
    bound_pipeline: ContextPipeline, do: Do
) -> None:
    chat = bound_pipeline.conversation("c4", user_id="ada")
    do(chat, "assemble", "Which colour?")
    assert do(chat, "coverage") == bound_pipeline.coverage(**BOUND_IDS)
    assert do(chat, "compactions") == bound_pipeline.get_compactions(**BOUND_IDS)


@both_forms
def test_a_bound_conversation_has_the_last_report_of_its_pipeline(
    bound_pipeline: ContextPipeline, do: Do
) -> None:
    chat = bound_pipeline.conversation("c4", user_id="ada")
    do(chat, "assemble", "Which colour?")
    assert chat.last_report() is bound_pipeline.last_report(**BOUND_IDS)


# -- what a pipeline does with one conversation is the conversation's


METHODS_OF_ONE = {
    "assemble": "assemble",
    "forecast": "forecast",
    "sync": "sync",
    "get_messages": "messages",
    "get_page": "page",
    "edit_message": "edit",
    "remove_messages": "remove",
    "pin": "pin",
    "coverage": "coverage",
    "get_compactions": "compactions",
    "end_session": "end_session",
    "status": "status",
    "clear": "clear",
    "last_report": "last_report",
    "aassemble": "aassemble",
    "aforecast": "aforecast",
    "a_sync": "a_sync",
    "aget_messages": "amessages",
    "aget_page": "apage",
    "aedit_message": "aedit",
    "aremove_messages": "aremove",
    "apin": "apin",
    "acoverage": "acoverage",
    "aget_compactions": "acompactions",
    "aend_session": "aend_session",
    "astatus": "astatus",
    "aclear": "aclear",
}
"""The methods of a pipeline with the ids of one conversation, and those of the conversation."""
IN_ANOTHER_FORM = {"fork", "afork", "add_messages", "aadd_messages"}
"""A fork of a pipeline is the ids of its messages, one of a conversation a conversation; a pipeline
takes a list of messages, and a conversation messages one by one."""


def parameters_of(method: Callable[..., Any]) -> list[inspect.Parameter]:
    return [*inspect.signature(method).parameters.values()]


def optional_arguments(name: str) -> dict[str, Any]:
    """A value of its own for each option of a pipeline's method."""
    parameters = parameters_of(getattr(ContextPipeline, name))
    options = [one.name for one in parameters if one.default is not inspect.Parameter.empty]
    return {option: f"the {option}" for option in options}


def required_arguments(name: str) -> list[str]:
    """A value of its own for each argument of a pipeline's method that is given by its place."""
    parameters = parameters_of(getattr(ContextPipeline, name))
    by_place = [one for one in parameters if one.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD]
    return [f"the {one.name}" for one in by_place if one.name != "self"]


@pytest.mark.parametrize("name", METHODS_OF_ONE)
def test_a_pipeline_has_it_done_by_the_conversation(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = new_pipeline()
    chat = create_autospec(Chat, instance=True)
    conversation = Mock(return_value=chat)
    monkeypatch.setattr(pipeline, "conversation", conversation)
    given = required_arguments(name)
    options = optional_arguments(name)

    result = getattr(pipeline, name)(*given, **options, user_id="ada", conversation_id="c1")
    if inspect.iscoroutine(result):
        result = asyncio.run(result)

    conversation.assert_called_once_with("c1", user_id="ada")
    method = getattr(chat, METHODS_OF_ONE[name])
    method.assert_called_once_with(*given, **options)
    returns_nothing = (
        inspect.signature(getattr(Chat, METHODS_OF_ONE[name])).return_annotation is None
    )
    assert result is (None if returns_nothing else method.return_value)


def test_every_method_of_one_conversation_is_the_conversations() -> None:
    of_one = {
        method.__name__
        for method in METHODS
        if method.__qualname__.startswith("ContextPipeline.")
        and "conversation_id" in inspect.signature(method).parameters
    }
    of_several = {"conversation", "shared_conversation", "hand_over", "ahand_over"}
    assert of_one - of_several - IN_ANOTHER_FORM == METHODS_OF_ONE.keys()


# -- signatures, and that no method is forgotten


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
    knowledge_base = KnowledgeBase(user_id="ada")
    several = [pipeline, pipeline.knowledge, pipeline.usage, pipeline.snapshots, knowledge_base]
    stories = Path(__file__).read_text(encoding="utf-8")
    missing: list[str] = []
    for target in several:
        names = [name for name in methods_with_twins(target) if f'"{name}"' not in stories]
        missing += [f"{type(target).__name__}.{name}" for name in names]
    assert missing == []


def methods_with_twins(target: object) -> list[str]:
    public_names = [name for name in dir(target) if not name.startswith("_")]
    return [
        name for name in public_names if hasattr(target, f"a{name}") or hasattr(target, f"a_{name}")
    ]
