"""The retriever: what it finds, within which limits, whose; alone, in chains, in agents; sync and async."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain.agents import create_agent
from langchain_core.callbacks import BaseCallbackHandler, Callbacks
from langchain_core.documents import BaseDocumentCompressor, Document
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.prompts import ChatPromptTemplate, PromptTemplate
from langchain_core.runnables import (
    ConfigurableField,
    Runnable,
    RunnableConfig,
    RunnableLambda,
    RunnableParallel,
    RunnablePassthrough,
)
from langchain_core.tools import create_retriever_tool
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import MessagesState
from langgraph.store.base import BaseStore
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import BudgetedRetriever, ContextPipeline, KnowledgeBase, TokenCounter, create_recall_tool
from langchain_ctxbudget.errors import ForeignUserError, InputError, InvalidSettingsError, MissingScopeError
from langchain_ctxbudget.rerankers import LexicalReranker
from langchain_ctxbudget.retrievers import SEPARATOR
from langchain_ctxbudget.runs import RunContext

SAID = (
    "My bicycle is blue and stands in the cellar.",
    "The garden needs water twice a week.",
    "I repaired the bicycle's front wheel.",
    "The bicycle lock has the code 7391.",
    "We had soup for lunch.",
    "A bicycle tour along the river takes two days.",
)
QUERY = "Where is the bicycle?"

Invoke = Callable[..., Any]


@pytest.fixture(params=["sync", "async"])
def invoke(request: pytest.FixtureRequest) -> Invoke:
    """Invokes a retriever, a chain or a graph, in its blocking or its async form."""

    def synchronous(runnable: Any, *args: Any, **kwargs: Any) -> Any:
        return runnable.invoke(*args, **kwargs)

    def asynchronous(runnable: Any, *args: Any, **kwargs: Any) -> Any:
        return asyncio.run(runnable.ainvoke(*args, **kwargs))

    return synchronous if request.param == "sync" else asynchronous


def make_pipeline(
    said: Sequence[str] = SAID, *, user: str = "ada", store: BaseStore | None = None, conversation: str = "c1"
) -> ContextPipeline:
    pipeline = ContextPipeline(store=store or InMemoryStore())
    add(pipeline, said, user=user, conversation=conversation)
    return pipeline


def add(pipeline: ContextPipeline, said: Sequence[str], *, user: str = "ada", conversation: str = "c1") -> None:
    messages = [HumanMessage(text, id=f"m-{number}") for number, text in enumerate(said, 1)]
    pipeline.add_messages(messages, user_id=user, conversation_id=conversation)


def make_retriever(pipeline: ContextPipeline | None = None, **fields: Any) -> BudgetedRetriever:
    user = {} if fields.keys() & {"user_id", "default_user"} else {"user_id": "ada"}
    return BudgetedRetriever(pipeline=pipeline or make_pipeline(), **user, **fields)


def texts(documents: Sequence[Document]) -> list[str]:
    return [document.page_content for document in documents]


def configured(**configurable: Any) -> RunnableConfig:
    return {"configurable": configurable}


# What it finds


def test_it_finds_what_was_said(invoke: Invoke, store: BaseStore) -> None:
    found = invoke(make_retriever(make_pipeline(store=store), k=1), "What is the code of the lock?")
    assert texts(found) == ["The bicycle lock has the code 7391."]


def test_it_finds_what_was_said_in_every_conversation(invoke: Invoke) -> None:
    pipeline = make_pipeline()
    add(pipeline, ["The kayak is green."], conversation="c2")
    assert texts(invoke(make_retriever(pipeline, k=1), "Which colour has the kayak?")) == ["The kayak is green."]


def test_it_finds_what_was_said_in_the_open_conversation_and_elsewhere(invoke: Invoke) -> None:
    pipeline = make_pipeline(["The bicycle is blue."])
    add(pipeline, ["The bicycle is old."], conversation="c2")
    found = invoke(make_retriever(pipeline, conversation_id="c2"), "bicycle")
    assert sorted(texts(found)) == ["The bicycle is blue.", "The bicycle is old."]


def test_what_another_pipeline_has_added_is_found(invoke: Invoke) -> None:
    store = InMemoryStore()
    retriever = make_retriever(make_pipeline(store=store), k=1)
    invoke(retriever, QUERY)
    add(ContextPipeline(store=store), ["The kayak is green."], conversation="c2")
    assert texts(invoke(retriever, "Which kayak?")) == ["The kayak is green."]


def test_the_best_comes_first(invoke: Invoke) -> None:
    scores = [document.metadata["score"] for document in invoke(make_retriever(k=6), QUERY)]
    assert len(scores) > 1
    assert scores == sorted(scores, reverse=True)


def test_a_message_names_where_it_stands(invoke: Invoke) -> None:
    pipeline = ContextPipeline(store=InMemoryStore())
    said = HumanMessage(
        "My kayak is green.", id="m-1", name="ada", additional_kwargs={"created_at": "2026-03-04T10:00:00"}
    )
    pipeline.add_messages([said], user_id="ada", conversation_id="c1")
    [found] = invoke(make_retriever(pipeline), "Which kayak?")
    told = {key: found.metadata[key] for key in ("source", "date", "speaker", "tokens", "conversation_id")}
    assert told == {
        "source": "conversations",
        "date": "2026-03-04",
        "speaker": "ada",
        "tokens": pipeline.token_counter.count_text("My kayak is green."),
        "conversation_id": "c1",
    }
    assert found.id == found.metadata["id"]
    assert "warning" not in found.metadata


@pytest.mark.parametrize("message", ["m-1", "a/b", "c1/m-1"])
@pytest.mark.parametrize("conversation", ["c1", "a/b", "x#1@2"])
def test_the_recall_tool_takes_its_reference(invoke: Invoke, conversation: str, message: str) -> None:
    pipeline = ContextPipeline(store=InMemoryStore())
    said = HumanMessage("The lock has the code 7391.", id=message)
    pipeline.add_messages([said], user_id="ada", conversation_id=conversation)
    [found] = invoke(make_retriever(pipeline), "What is the code of the lock?")
    config = configured(user_id="ada", thread_id=found.metadata["conversation_id"])
    assert "7391" in create_recall_tool(pipeline).invoke({"reference": found.metadata["reference"]}, config)


def everything(store: BaseStore) -> ContextPipeline:
    """A message, a memory and a document, all of them about kayaks."""
    pipeline = ContextPipeline({"memories": ("Ada paddles a kayak.",)}, store=store)
    add(pipeline, ["My kayak is green."])
    document = Document("A kayak is rinsed after use.", metadata={"source": "k.txt", "title": "Care"})
    KnowledgeBase(store, user_id="ada").add(document)
    return pipeline


def test_it_finds_memories_and_documents_too(invoke: Invoke, store: BaseStore) -> None:
    found = invoke(make_retriever(everything(store)), "kayak")
    assert {document.metadata["source"]: document.page_content for document in found} == {
        "conversations": "My kayak is green.",
        "memories": "Ada paddles a kayak.",
        "documents": "A kayak is rinsed after use.",
    }


@pytest.mark.parametrize("source", ["conversations", "memories", "documents"])
def test_it_looks_only_where_it_is_told_to(invoke: Invoke, source: str) -> None:
    found = invoke(make_retriever(everything(InMemoryStore()), sources=[source]), "kayak")
    assert [document.metadata["source"] for document in found] == [source]


def test_a_document_names_its_title(invoke: Invoke) -> None:
    [found] = invoke(make_retriever(everything(InMemoryStore()), sources=["documents"]), "kayak")
    assert found.metadata["title"] == "Care"
    assert not found.metadata.keys() & {"conversation_id", "reference"}


def test_every_document_can_be_formatted_with_its_metadata(invoke: Invoke) -> None:
    prompt = PromptTemplate.from_template("[{date}] {speaker} ({source}, {title}): {page_content}")
    tool = create_retriever_tool(make_retriever(k=1), "search", "Search.", document_prompt=prompt)
    assert invoke(tool, {"query": "lock code"}).endswith("(conversations, c1): The bicycle lock has the code 7391.")


def test_of_nothing_there_is_nothing(invoke: Invoke, store: BaseStore) -> None:
    assert invoke(make_retriever(ContextPipeline(store=store)), QUERY) == []


@pytest.mark.parametrize("query", ["", " \n"])
def test_for_a_blank_query_nothing_is_found(invoke: Invoke, query: str) -> None:
    assert invoke(make_retriever(), query) == []


# How many


@pytest.mark.parametrize("k", [1, 3])
def test_it_gives_k_documents(invoke: Invoke, k: int) -> None:
    assert len(invoke(make_retriever(k=k), QUERY)) == k


@pytest.mark.parametrize("k", [1, 3])
def test_a_call_has_its_own_k(invoke: Invoke, k: int) -> None:
    assert len(invoke(make_retriever(), QUERY, k=k)) == k


def test_k_may_be_more_than_it_looks_at(invoke: Invoke) -> None:
    assert len(invoke(make_retriever(fetch_k=1), QUERY, k=3)) == 3


def test_without_k_it_gives_as_many_as_fit(invoke: Invoke) -> None:
    pipeline = make_pipeline([f"Bicycle number {number}." for number in range(12)])
    assert len(invoke(make_retriever(pipeline, k=None, max_tokens=1_000), "bicycle")) > 4


def test_one_that_does_not_fit_is_not_the_end(invoke: Invoke) -> None:
    long = " ".join(["The kayak, the kayak, my green kayak."] * 40)
    pipeline = make_pipeline([long, "A kayak on the river.", "We had soup."])
    unlimited, limited = (invoke(make_retriever(pipeline, max_tokens=limit), "kayak") for limit in (None, 40))
    assert long in texts(unlimited)
    assert long not in texts(limited)
    assert "A kayak on the river." in texts(limited)


def test_a_call_has_its_own_max_tokens(invoke: Invoke) -> None:
    pipeline = make_pipeline()
    assert len(invoke(make_retriever(pipeline), QUERY)) == 4
    assert len(invoke(make_retriever(pipeline), QUERY, max_tokens=14)) == 1


def test_both_limits_hold(invoke: Invoke) -> None:
    assert len(invoke(make_retriever(max_tokens=1_000, k=2), QUERY)) == 2
    assert len(invoke(make_retriever(max_tokens=25, k=6), QUERY)) == 2


def test_what_fits_exactly_is_given(invoke: Invoke) -> None:
    pipeline = make_pipeline(["My kayak is green", "The kayak is old"])
    limit = pipeline.token_counter.count_text(SEPARATOR.join(["My kayak is green", "The kayak is old"]))
    sizes = [len(invoke(make_retriever(pipeline, max_tokens=tokens), "kayak")) for tokens in (limit, limit - 1)]
    assert sizes == [2, 1]


class Squares(TokenCounter):
    """Texts cost more together than they do alone."""

    name, mode = "squares", "estimated"

    def _count(self, text: str) -> int:
        return len(text) ** 2


def test_what_costs_more_together_is_within_the_limit(invoke: Invoke) -> None:
    counter = Squares()
    pipeline = ContextPipeline(store=InMemoryStore(), token_counter=counter)
    add(pipeline, ["My kayak is green.", "The kayak is old."])
    limit = 3 * counter.count_text("My kayak is green.")
    assert len(invoke(make_retriever(pipeline, max_tokens=limit), "kayak")) == 1


def test_what_the_retriever_tool_answers_is_within_the_limit(invoke: Invoke) -> None:
    pipeline = make_pipeline()
    tool = create_retriever_tool(make_retriever(pipeline, k=None, max_tokens=30), "search", "Search.")
    assert 0 < pipeline.token_counter.count_text(invoke(tool, {"query": QUERY})) <= 30


@given(
    said=st.lists(st.text(max_size=60).map(lambda text: f"bicycle {text}"), min_size=1, max_size=8, unique=True),
    limit=st.integers(1, 60),
    k=st.one_of(st.none(), st.integers(1, 5)),
)
@settings(max_examples=60, deadline=None)
def test_the_limits_are_never_exceeded(said: list[str], limit: int, k: int | None) -> None:
    pipeline = make_pipeline(said)
    found = texts(make_retriever(pipeline, max_tokens=limit, k=k).invoke("bicycle"))
    assert pipeline.token_counter.count_text(SEPARATOR.join(found)) <= limit
    assert len(found) <= (k or len(said))


# Whose


def test_the_run_says_whose_it_is(invoke: Invoke) -> None:
    retriever = BudgetedRetriever(pipeline=make_pipeline(), k=1)
    assert len(invoke(retriever, QUERY, configured(user_id="ada"))) == 1


def test_the_default_user_is_taken_where_the_run_names_none(invoke: Invoke) -> None:
    assert len(invoke(make_retriever(default_user="ada", k=1), QUERY)) == 1


def test_the_default_user_does_not_outweigh_the_run(invoke: Invoke) -> None:
    assert invoke(make_retriever(default_user="ada"), QUERY, configured(user_id="eve")) == []


@pytest.mark.parametrize("config", [None, configured(), configured(thread_id="c1"), configured(user_id=" ")])
def test_without_a_user_it_fails(invoke: Invoke, config: RunnableConfig | None) -> None:
    with pytest.raises(MissingScopeError):
        invoke(BudgetedRetriever(pipeline=make_pipeline()), QUERY, config)


def test_a_run_of_another_user_is_refused(invoke: Invoke) -> None:
    with pytest.raises(ForeignUserError, match=r"'ada'.*'eve'"):
        invoke(make_retriever(), QUERY, configured(user_id="eve"))


def test_a_run_of_the_same_user_is_not_refused(invoke: Invoke) -> None:
    assert len(invoke(make_retriever(k=1), QUERY, configured(user_id="ada"))) == 1


def test_on_a_server_the_signed_in_user_cannot_name_another(invoke: Invoke) -> None:
    config = configured(user_id="ada", assistant_id="a", langgraph_auth_user={"identity": "eve"})
    with pytest.raises(ForeignUserError):
        invoke(BudgetedRetriever(pipeline=make_pipeline()), QUERY, config)


def test_on_a_server_the_signed_in_user_cannot_use_the_retriever_of_another(invoke: Invoke) -> None:
    config = configured(assistant_id="a", langgraph_auth_user={"identity": "eve"})
    with pytest.raises(ForeignUserError):
        invoke(make_retriever(), QUERY, config)


HOSTILE = ("ada", "ada2", "ad", "ADA", "ada/c1", "../ada", "ada~", "a.b", "%", "_", "*", "ada\x00", "Ада", "x" * 600)


@pytest.mark.parametrize("asking", HOSTILE)
def test_each_user_finds_their_own(invoke: Invoke, asking: str) -> None:
    pipeline = ContextPipeline(store=InMemoryStore())
    for user in HOSTILE:
        add(pipeline, [f"The secret of {user!r} is kept."], user=user)
    assert texts(invoke(make_retriever(pipeline, user_id=asking, k=None), "secret")) == [
        f"The secret of {asking!r} is kept."
    ]


def test_a_conversation_of_another_user_is_not_found_by_its_id(invoke: Invoke) -> None:
    assert invoke(make_retriever(user_id="eve", conversation_id="c1"), QUERY) == []


def test_what_was_erased_is_not_found(invoke: Invoke) -> None:
    pipeline = make_pipeline()
    retriever = make_retriever(pipeline)
    assert invoke(retriever, QUERY)
    pipeline.erase_user(user_id="ada")
    assert invoke(retriever, QUERY) == []


# Mistakes


@pytest.mark.parametrize(
    "fields",
    [
        {"k": 0},
        {"k": True},
        {"k": "3"},
        {"max_tokens": 0},
        {"max_tokens": 1.5},
        {"fetch_k": 0},
        {"fetch_k": None},
        {"sources": ["web"]},
        {"sources": []},
        {"reranker": "lexical"},
        {"top_k": 3},
        {"default_user": "bob", "user_id": "ada"},
    ],
)
def test_a_wrong_field_is_an_error_that_names_it(fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidSettingsError, match=next(iter(fields))):
        make_retriever(**fields)


@pytest.mark.parametrize("name", ["user_id", "default_user", "conversation_id"])
@pytest.mark.parametrize("value", ["", 7])
def test_an_id_that_is_none_is_an_error(name: str, value: object) -> None:
    with pytest.raises(MissingScopeError, match=name):
        BudgetedRetriever(pipeline=make_pipeline(), **{name: value})


def test_another_pipeline_is_an_error() -> None:
    with pytest.raises(InvalidSettingsError, match="ContextPipeline"):
        BudgetedRetriever(pipeline=InMemoryStore(), user_id="ada")


def test_it_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="frozen"):
        make_retriever().k = 0


@pytest.mark.parametrize("limits", [{"k": 0}, {"k": True}, {"max_tokens": 0}, {"max_tokens": "100"}])
def test_a_wrong_limit_in_a_call_is_an_error(invoke: Invoke, limits: dict[str, Any]) -> None:
    with pytest.raises(InvalidSettingsError, match=f"{next(iter(limits))} must be a whole number of at least 1"):
        invoke(make_retriever(), QUERY, **limits)


def test_a_query_that_is_no_string_is_an_error(invoke: Invoke) -> None:
    with pytest.raises(InputError, match="must be a string, not dict"):
        invoke(make_retriever(), {"question": QUERY})


# Reranking


class Backwards(BaseDocumentCompressor):
    """The worst first."""

    def compress_documents(
        self, documents: Sequence[Document], query: str, callbacks: Callbacks | None = None
    ) -> Sequence[Document]:
        return list(reversed(documents))


class Longest(BaseDocumentCompressor):
    """The longest first."""

    def compress_documents(
        self, documents: Sequence[Document], query: str, callbacks: Callbacks | None = None
    ) -> Sequence[Document]:
        return sorted(documents, key=lambda document: -len(document.page_content))


class Broken(BaseDocumentCompressor):
    """A model that cannot be reached."""

    def compress_documents(
        self, documents: Sequence[Document], query: str, callbacks: Callbacks | None = None
    ) -> Sequence[Document]:
        raise ConnectionError("no route to the model")


class Asking(BaseDocumentCompressor):
    """Asks a runnable about the documents, as rerankers with a model do."""

    def compress_documents(
        self, documents: Sequence[Document], query: str, callbacks: Callbacks | None = None
    ) -> Sequence[Document]:
        RunnableLambda(len).with_config(run_name="rate").invoke(query, {"callbacks": callbacks})
        return documents


def test_a_reranker_decides_which_come_first(invoke: Invoke) -> None:
    pipeline = make_pipeline()
    plain = invoke(make_retriever(pipeline, k=None), QUERY)
    turned = invoke(make_retriever(pipeline, k=2, reranker=Backwards()), QUERY)
    assert texts(turned) == texts(plain)[::-1][:2]


def test_what_fits_but_for_the_blank_line_makes_room_for_what_fits_with_it(invoke: Invoke) -> None:
    said = ["A kayak is a kayak", "Any kayak", "A long kayak is a fast kayak"]
    pipeline = make_pipeline(said)
    count = pipeline.token_counter.count_text
    retriever = make_retriever(pipeline, reranker=Longest(), max_tokens=count(said[2]) + count(said[0]))
    assert texts(invoke(retriever, "kayak")) == [said[2], said[1]]


def test_the_lexical_reranker_can_be_used(invoke: Invoke) -> None:
    [found] = invoke(make_retriever(k=1, reranker=LexicalReranker()), "code of the lock")
    assert found.page_content == "The bicycle lock has the code 7391."
    assert "reranker" in found.metadata["scores"]


def test_where_a_reranker_fails_the_order_stands_and_it_is_told(
    invoke: Invoke, caplog: pytest.LogCaptureFixture
) -> None:
    pipeline = make_pipeline()
    with caplog.at_level(logging.WARNING, "langchain_ctxbudget"):
        found = invoke(make_retriever(pipeline, reranker=Broken()), QUERY)
    problem = "reranker Broken: ConnectionError: no route to the model"
    assert texts(found) == texts(invoke(make_retriever(pipeline), QUERY))
    assert {document.metadata["warning"] for document in found} == {problem}
    assert caplog.messages == [problem]


# In chains and graphs


def test_in_a_chain_it_feeds_the_prompt(invoke: Invoke) -> None:
    prompt = ChatPromptTemplate([("system", "{context}"), ("human", "{question}")])
    chain: Runnable[Any, Any] = {
        "context": itemgetter("question") | make_retriever(k=1) | (lambda found: texts(found)[0]),
        "question": itemgetter("question"),
    } | prompt
    assert invoke(chain, {"question": "Which code has the lock?"}).messages[0].content == SAID[3]


def test_a_chain_hands_the_user_on(invoke: Invoke) -> None:
    chain: Runnable[Any, Any] = RunnablePassthrough() | BudgetedRetriever(pipeline=make_pipeline()) | texts
    assert [invoke(chain, QUERY, configured(user_id=user, k=1))[:1] != [] for user in ("ada", "eve")] == [True, False]


def test_a_run_in_a_function_hands_the_user_on(invoke: Invoke) -> None:
    retriever = BudgetedRetriever(pipeline=make_pipeline(), k=1)

    async def asynchronous(query: str) -> list[str]:
        return texts(await retriever.ainvoke(query))

    step: Runnable[str, list[str]] = RunnableLambda(lambda query: texts(retriever.invoke(query)), asynchronous)
    assert len(invoke(step, QUERY, configured(user_id="ada"))) == 1


def test_two_beside_each_other_keep_their_limits(invoke: Invoke) -> None:
    pipeline = make_pipeline()
    both = RunnableParallel(few=make_retriever(pipeline, k=1), more=make_retriever(pipeline, k=3))
    assert {name: len(found) for name, found in invoke(both, QUERY).items()} == {"few": 1, "more": 3}


def test_a_bound_limit_holds(invoke: Invoke) -> None:
    assert len(invoke(make_retriever().bind(k=2), QUERY)) == 2


def test_a_configurable_field_is_validated(invoke: Invoke) -> None:
    retriever = make_retriever().configurable_fields(k=ConfigurableField(id="documents"))
    assert len(invoke(retriever, QUERY, configured(documents=2))) == 2
    with pytest.raises(InvalidSettingsError):
        invoke(retriever, QUERY, configured(documents=0))


def test_a_batch_has_a_user_for_each() -> None:
    retriever = BudgetedRetriever(pipeline=make_pipeline(), k=1)
    users = [configured(user_id=user) for user in ("ada", "eve", "ada")]
    assert [len(found) for found in retriever.batch([QUERY] * 3, users)] == [1, 0, 1]
    assert [len(found) for found in asyncio.run(retriever.abatch([QUERY] * 3, users))] == [1, 0, 1]


class Scripted(GenericFakeChatModel):
    """A model that gives answers one after the other, and lets tools be bound."""

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self


@pytest.mark.parametrize(("user", "is_found"), [("ada", True), ("eve", False)])
def test_an_agent_searches_as_its_user(invoke: Invoke, user: str, is_found: bool) -> None:
    tool = create_retriever_tool(BudgetedRetriever(pipeline=make_pipeline(), k=1), "search", "Search.")
    call = AIMessage("", tool_calls=[{"name": "search", "args": {"query": "lock code"}, "id": "call-1"}])
    agent: Any = create_agent(Scripted(messages=iter([call, AIMessage("Done.")])), tools=[tool])
    state = invoke(agent, {"messages": [HumanMessage("The code?")]}, configured(user_id=user, thread_id="t9"))
    [answer] = [message.content for message in state["messages"] if isinstance(message, ToolMessage)]
    assert ("7391" in answer) == is_found


def searching_graph(retriever: BudgetedRetriever, **options: Any) -> Any:
    """A graph with one node, which searches for the last message; its state ends with what was found."""

    async def asearch(state: MessagesState) -> dict[str, Any]:
        return {"messages": [AIMessage("\n".join(texts(await retriever.ainvoke(state["messages"][-1].text))))]}

    def search(state: MessagesState) -> dict[str, Any]:
        return {"messages": [AIMessage("\n".join(texts(retriever.invoke(state["messages"][-1].text))))]}

    graph = StateGraph(MessagesState, options.pop("context_schema", None))
    graph.add_node("search", RunnableLambda(search, asearch))
    graph.add_edge(START, "search")
    graph.add_edge("search", END)
    return graph.compile(**options)


def test_in_a_node_the_run_context_says_whose_it_is(invoke: Invoke) -> None:
    graph = searching_graph(BudgetedRetriever(pipeline=make_pipeline(), k=1), context_schema=RunContext)
    state = invoke(graph, {"messages": ["lock code"]}, context=RunContext(user_id="ada"))
    assert state["messages"][-1].content == SAID[3]


@pytest.mark.parametrize(("runtime_store", "expected"), [(True, "The kayak is green."), (False, "The kayak is red.")])
def test_the_store_of_the_run_takes_precedence(invoke: Invoke, runtime_store: bool, expected: str) -> None:
    theirs = InMemoryStore()
    make_pipeline(["The kayak is green."], store=theirs)
    retriever = make_retriever(make_pipeline(["The kayak is red."]), runtime_store=runtime_store)
    state = invoke(searching_graph(retriever, store=theirs), {"messages": ["kayak"]})
    assert state["messages"][-1].content == expected


# Tracing


class Runs(BaseCallbackHandler):
    """Every run: its name, its tags, and the name of the one that it is part of."""

    def __init__(self) -> None:
        self.names: dict[UUID, str] = {}
        self.tags: dict[str, list[str]] = {}
        self.parents: dict[str, str | None] = {}
        self.errors: list[str] = []

    def _note(self, run_id: UUID, parent_run_id: UUID | None, kwargs: dict[str, Any]) -> None:
        name = self.names[run_id] = kwargs["name"]
        self.tags[name] = kwargs.get("tags") or []
        self.parents[name] = self.names.get(parent_run_id) if parent_run_id else None

    def on_retriever_start(self, *_: Any, run_id: UUID, parent_run_id: UUID | None = None, **kwargs: Any) -> None:
        self._note(run_id, parent_run_id, kwargs)

    def on_chain_start(self, *_: Any, run_id: UUID, parent_run_id: UUID | None = None, **kwargs: Any) -> None:
        self._note(run_id, parent_run_id, kwargs)

    def on_retriever_error(self, error: BaseException, **_: Any) -> None:
        self.errors.append(type(error).__name__)


def test_its_run_has_its_name_and_tags(invoke: Invoke) -> None:
    runs = Runs()
    invoke(make_retriever(tags=["mine"]).with_config(tags=["chain"]), QUERY, {"callbacks": [runs]})
    assert sorted(runs.tags["BudgetedRetriever"]) == ["chain", "ctxbudget", "mine"]


def test_the_runs_of_a_reranker_are_part_of_its_own(invoke: Invoke) -> None:
    runs = Runs()
    found = invoke(make_retriever(reranker=Asking()), QUERY, {"callbacks": [runs]})
    assert "warning" not in found[0].metadata
    assert runs.parents["rate"] == "BudgetedRetriever"


def test_what_is_refused_is_traced(invoke: Invoke) -> None:
    runs = Runs()
    with pytest.raises(ForeignUserError):
        invoke(make_retriever(), QUERY, {"callbacks": [runs], **configured(user_id="eve")})
    assert runs.errors == ["ForeignUserError"]
