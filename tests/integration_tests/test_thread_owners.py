"""A thread has an owner.

Another user's run shows what its state has, and leaves nothing in that user's store.
"""

import asyncio
import random
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, NotRequired

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.runnables import RunnableLambda
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.prebuilt import ToolNode, create_react_agent
from langgraph.store.base import BaseStore, PutOp
from langgraph.store.memory import InMemoryStore
from typing_extensions import TypedDict

from langchain_ctxbudget import (
    ChromaStore,
    ContextBudgetMiddleware,
    ContextPipeline,
    build_context_graph,
    create_recall_tool,
)
from langchain_ctxbudget.errors import ForeignUserError, InputError, StoreError
from langchain_ctxbudget.integrations.graph import context_nodes
from langchain_ctxbudget.integrations.tools import create_compaction_tool
from langchain_ctxbudget.pipeline import RunContext
from langchain_ctxbudget.report import ContextReport
from langchain_ctxbudget.stores import Scope, SharedThread, label, owners
from tests.integration_tests.agents import scripted

pytestmark = pytest.mark.filterwarnings("ignore:create_react_agent")

SECRET = "My PIN is 4711."
"""What Ada says in her thread."""
THREAD = "c1"


class ChatState(TypedDict):
    """The state of a graph of one's own."""

    messages: Annotated[list[AnyMessage], add_messages]
    llm_input_messages: NotRequired[list[AnyMessage]]
    ctxbudget_turn: NotRequired[dict[str, Any] | None]


class NodeState(ChatState):
    """The same, for the six steps as nodes of one's own graph."""

    detected: NotRequired[Any]
    budget: NotRequired[Any]
    bundles: NotRequired[Any]
    history: NotRequired[Any]
    retrieved: NotRequired[Any]


@dataclass
class Agent:
    """An agent whose threads are in one checkpointer, and the requests that its model got."""

    pipeline: ContextPipeline
    graph: Any
    requests: list[list[BaseMessage]]
    asynchronous: bool = False

    def run(self, user: str, text: str, thread: str = THREAD) -> str:
        """Runs a turn; returns all that its model was sent."""
        given = {"messages": [HumanMessage(text)]}
        config = {"configurable": {"user_id": user, "thread_id": thread}}
        if self.asynchronous:
            asyncio.run(self.graph.ainvoke(given, config))
        else:
            self.graph.invoke(given, config)
        return "\n".join(message.text for message in self.requests[-1])

    def report(self, user: str, thread: str = THREAD) -> ContextReport:
        report = self.pipeline.last_report(user_id=user, conversation_id=thread)
        assert report is not None
        return report

    def messages(self, user: str, thread: str = THREAD) -> list[BaseMessage]:
        return self.pipeline.get_messages(user_id=user, conversation_id=thread)


def answering(requests: list[list[BaseMessage]]) -> Callable[[list[BaseMessage]], AIMessage]:
    def answer(messages: list[BaseMessage]) -> AIMessage:
        requests.append(list(messages))
        return AIMessage("Noted.")

    return answer


def with_middleware(
    pipeline: ContextPipeline, requests: list[list[BaseMessage]], saver: Any
) -> Any:
    model = scripted("Noted.")
    model.seen = requests
    return create_agent(model, middleware=[ContextBudgetMiddleware(pipeline)], checkpointer=saver)


def with_graph(pipeline: ContextPipeline, requests: list[list[BaseMessage]], saver: Any) -> Any:
    answer = answering(requests)
    builder = StateGraph(ChatState)
    builder.add_node("context", build_context_graph(pipeline))
    builder.add_node("model", lambda state: {"messages": [answer(state["llm_input_messages"])]})
    builder.add_edge(START, "context").add_edge("context", "model").add_edge("model", END)
    return builder.compile(checkpointer=saver)


def with_nodes(pipeline: ContextPipeline, requests: list[list[BaseMessage]], saver: Any) -> Any:
    answer = answering(requests)
    builder = StateGraph(NodeState)
    before = START
    for name, node in context_nodes(pipeline).items():
        builder.add_node(name, node)
        builder.add_edge(before, name)
        before = name
    builder.add_node("model", lambda state: {"messages": [answer(state["llm_input_messages"])]})
    builder.add_edge(before, "model").add_edge("model", END)
    return builder.compile(checkpointer=saver)


def with_runnable(pipeline: ContextPipeline, requests: list[list[BaseMessage]], saver: Any) -> Any:
    answer = answering(requests)
    step = pipeline.as_runnable()

    async def amodel(state: ChatState, config: Any) -> dict[str, Any]:
        return {"messages": [answer(await step.ainvoke({"messages": state["messages"]}, config))]}

    def model(state: ChatState, config: Any) -> dict[str, Any]:
        return {"messages": [answer(step.invoke({"messages": state["messages"]}, config))]}

    builder = StateGraph(ChatState)
    builder.add_node("model", RunnableLambda(model, amodel))
    builder.add_edge(START, "model").add_edge("model", END)
    return builder.compile(checkpointer=saver)


def with_hook(pipeline: ContextPipeline, requests: list[list[BaseMessage]], saver: Any) -> Any:
    model = scripted("Noted.")
    model.seen = requests
    return create_react_agent(
        model, [], pre_model_hook=build_context_graph(pipeline), checkpointer=saver
    )


WAYS = {
    "middleware": with_middleware,
    "graph": with_graph,
    "nodes": with_nodes,
    "runnable": with_runnable,
    "hook": with_hook,
}


@pytest.fixture(params=["memory", pytest.param("chroma", marks=pytest.mark.slow)])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BaseStore]:
    if request.param == "memory":
        yield InMemoryStore()
        return
    made = ChromaStore(tmp_path)
    yield made
    made.close()


@dataclass
class World:
    """One way in, over one store and one checkpointer; a new agent is another process on them."""

    way: str
    store: BaseStore
    asynchronous: bool = False
    saver: InMemorySaver = field(default_factory=InMemorySaver)

    def agent(self, **settings: Any) -> Agent:
        chosen = {"max_context_tokens": 2_000, "learn": "rules", "learn_every": 1, **settings}
        pipeline = ContextPipeline(chosen, store=self.store)
        requests: list[list[BaseMessage]] = []
        return Agent(
            pipeline, WAYS[self.way](pipeline, requests, self.saver), requests, self.asynchronous
        )

    def stored(self, user: str) -> str:
        """Returns all that is stored of a user, and under what."""
        items = self.store.search(("ctxbudget", label(user)), limit=10_000)
        return str([(item.namespace, item.key, item.value) for item in items])

    def owner_records(self) -> list[Any]:
        items = self.store.search(
            ("ctxbudget", owners.OUTSIDE_OF_USERS, owners.THREADS), limit=10_000
        )
        return [item.value for item in items if item.key == owners.OWNER]


@pytest.fixture(params=[False, True], ids=["blocking", "async"])
def asynchronous(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture(params=WAYS)
def world(request: pytest.FixtureRequest, store: BaseStore, asynchronous: bool) -> World:
    return World(request.param, store, asynchronous)


@pytest.fixture
def simple() -> World:
    return World("middleware", InMemoryStore())


# Another user's run


def test_another_user_sees_what_the_state_has(world: World) -> None:
    agent = world.agent()
    agent.run("ada", SECRET)
    assert SECRET in agent.run("bob", "What is the PIN?")


def test_nothing_of_the_thread_is_in_the_other_user_s_store(world: World) -> None:
    agent = world.agent()
    agent.run("ada", SECRET)
    agent.run("bob", "What is the PIN?")
    agent.run("bob", "Again?")
    agent.pipeline.flush()
    assert "4711" not in world.stored("bob")
    assert agent.messages("bob") == []
    assert agent.pipeline.list_conversations(user_id="bob") == []
    assert agent.pipeline.knowledge.list_facts(user_id="bob") == []


def test_the_other_user_s_threads_do_not_quote_it(world: World) -> None:
    agent = world.agent()
    agent.run("ada", SECRET)
    agent.run("bob", "What is the PIN?")
    assert "4711" not in agent.run("bob", "What is my PIN?", "c2")


def test_another_process_knows_the_owner(world: World) -> None:
    world.agent().run("ada", SECRET)
    agent = world.agent()
    agent.run("bob", "What is the PIN?")
    agent.pipeline.flush()
    assert "4711" not in world.stored("bob")
    assert any("'c1' is another user's" in failure for failure in agent.report("bob").failures)


def test_the_report_names_the_thread_and_not_its_owner(world: World) -> None:
    agent = world.agent()
    agent.run("ada", SECRET)
    agent.run("bob", "What is the PIN?")
    [line] = [failure for failure in agent.report("bob").failures if "another user's" in failure]
    assert "'c1'" in line
    assert "ada" not in line
    assert not any("another user's" in failure for failure in agent.report("ada").failures)


def test_the_owner_s_thread_is_stored_as_ever(world: World) -> None:
    agent = world.agent()
    agent.run("ada", SECRET)
    agent.run("bob", "What is the PIN?")
    agent.run("ada", "And now?")
    assert agent.messages("ada")[0].text == SECRET


def test_one_warning_is_logged(simple: World, caplog: pytest.LogCaptureFixture) -> None:
    agent = simple.agent()
    agent.run("ada", SECRET)
    agent.run("bob", "One?")
    agent.run("bob", "Two?")
    warnings = [
        record.getMessage() for record in caplog.records if "another user's" in record.getMessage()
    ]
    assert len(warnings) == 1
    assert "ada" not in warnings[0]


def test_what_the_state_no_longer_has_is_not_shown(simple: World) -> None:
    pipeline = ContextPipeline({"max_context_tokens": 2_000}, store=simple.store)
    graph = build_context_graph(pipeline)

    def sent(user: str, *texts: str) -> str:
        turns = [HumanMessage(text, id=text) for text in texts]
        config: Any = {"configurable": {"user_id": user, "thread_id": THREAD}}
        return str(
            [
                message.text
                for message in graph.invoke({"messages": turns}, config)["llm_input_messages"]
            ]
        )

    sent("ada", SECRET)
    assert "4711" in sent("bob", SECRET, "What is the PIN?")
    assert "4711" not in sent("bob", "What is the PIN?", "Is there a PIN?")


def test_nothing_personal_of_the_other_user_goes_into_the_thread(world: World) -> None:
    agent = world.agent()
    agent.run("ada", SECRET)
    agent.pipeline.add_messages(
        [HumanMessage("My bike is blue.")], user_id="bob", conversation_id="c2"
    )
    agent.pipeline.knowledge.add_fact("Bob rides a bike", category="identity", user_id="bob")
    agent.pipeline.save_settings({"memories": ["Bob has a bike in the shed"]}, user_id="bob")
    assert "bike" not in agent.run("bob", "Which colour is it?")


def test_the_block_of_the_owner_s_turn_is_not_shown_to_another(simple: World) -> None:
    pipeline = ContextPipeline({"max_context_tokens": 2_000}, store=simple.store)
    pipeline.add_messages(
        [HumanMessage("The safe's code is 99887.")], user_id="ada", conversation_id="other"
    )
    graph = build_context_graph(pipeline)
    question = HumanMessage("What is the safe's code?", id="1")

    def state(user: str, given: dict[str, Any]) -> dict[str, Any]:
        return graph.invoke(given, {"configurable": {"user_id": user, "thread_id": THREAD}})

    begun = state("ada", {"messages": [question]})
    assert "99887" in str(begun["llm_input_messages"])
    call = AIMessage("", id="2", tool_calls=[{"name": "look", "args": {}, "id": "a"}])
    looped = [question, call, ToolMessage("?", tool_call_id="a", id="3")]
    resumed = state("bob", {"messages": looped, "ctxbudget_turn": begun["ctxbudget_turn"]})
    assert "99887" not in str(resumed["llm_input_messages"])


def test_the_recall_tool_serves_the_state_and_not_the_owner_s_store(simple: World) -> None:
    pipeline = ContextPipeline({"max_context_tokens": 2_000}, store=simple.store)
    pipeline.add_messages(
        [HumanMessage("The safe's code is 99887.", id="old")], user_id="ada", conversation_id=THREAD
    )
    graph = build_context_graph(pipeline)
    recall = create_recall_tool(pipeline)
    node = (
        StateGraph(ChatState)
        .add_node("tools", ToolNode([recall]))
        .add_edge(START, "tools")
        .compile()
    )
    said = [
        HumanMessage(SECRET, id="1"),
        AIMessage("Noted.", id="2"),
        HumanMessage("Which code?", id="3"),
    ]

    def asked(query: str) -> str:
        call = AIMessage(
            "", id="4", tool_calls=[{"name": "recall", "args": {"query": query}, "id": "a"}]
        )
        config: Any = {"configurable": {"user_id": "bob", "thread_id": THREAD}}
        graph.invoke({"messages": said}, config)
        return str(node.invoke({"messages": [*said, call]}, config)["messages"][-1].text)

    graph.invoke({"messages": said[:1]}, {"configurable": {"user_id": "ada", "thread_id": THREAD}})
    assert "4711" in asked("PIN")
    assert "99887" not in asked("code of the safe")


def test_agents_of_one_thread_have_one_owner(simple: World) -> None:
    pipeline = ContextPipeline({"max_context_tokens": 2_000}, store=simple.store)
    first = build_context_graph(pipeline, agent="first")
    second = build_context_graph(pipeline, agent="second")
    said = [
        HumanMessage(SECRET, id="1"),
        AIMessage("Noted.", id="2"),
        HumanMessage("What is it?", id="3"),
    ]
    first.invoke({"messages": said[:1]}, {"configurable": {"user_id": "ada", "thread_id": THREAD}})
    second.invoke({"messages": said}, {"configurable": {"user_id": "bob", "thread_id": THREAD}})
    assert "4711" not in simple.stored("bob")


def test_the_compaction_tool_writes_nothing_for_another_user(simple: World) -> None:
    agent = simple.agent()
    agent.run("ada", SECRET)
    agent.run("bob", "Hello")
    compact = create_compaction_tool(agent.pipeline)
    compact.invoke({}, {"configurable": {"user_id": "bob", "thread_id": THREAD}})
    agent.run("bob", "Again?")
    assert "4711" not in simple.stored("bob")


def test_a_thread_counts_under_whichever_conversation_it_is_kept(simple: World) -> None:
    pipeline = ContextPipeline(store=simple.store)
    graph = build_context_graph(pipeline)
    said = [HumanMessage(SECRET, id="1"), AIMessage("Noted.", id="2"), HumanMessage("?", id="3")]
    config: Any = {"configurable": {"thread_id": THREAD}}
    graph.invoke(
        {"messages": said[:1]}, config, context=RunContext(user_id="ada", conversation_id="notes")
    )
    graph.invoke(
        {"messages": said}, config, context=RunContext(user_id="bob", conversation_id="mine")
    )
    assert "4711" not in simple.stored("bob")
    pipeline.clear(user_id="ada", conversation_id="notes")
    assert simple.owner_records() == []


# What another user says in the owner's thread

BOB_S = "I live in Berlin."


def thread_with_a_guest(world: World, *, in_processes: bool = False) -> Agent:
    """Has Bob speak in Ada's thread before she goes on; each run may be in a process of its own."""
    agent = world.agent()
    for user, text in (
        ("ada", "I work as a nurse."),
        ("bob", BOB_S),
        ("ada", "My dog is called Rex."),
        ("ada", "Yes."),
    ):
        agent.run(user, text)
        agent.pipeline.flush()
        if in_processes:
            agent = world.agent()
    agent.pipeline.conversation(THREAD, user_id="ada").end_session()
    agent.pipeline.flush()
    return agent


def texts_of_facts(agent: Agent, user: str) -> str:
    return str(
        [
            fact.text
            for fact in agent.pipeline.knowledge.list_facts(user_id=user, include_ended=True)
        ]
    )


@pytest.mark.parametrize("in_processes", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_what_a_guest_says_is_not_learned_about_the_owner(world: World, in_processes: bool) -> None:
    agent = thread_with_a_guest(world, in_processes=in_processes)
    assert "Berlin" not in texts_of_facts(agent, "ada")
    assert "nurse" in texts_of_facts(agent, "ada")
    assert "Rex" in texts_of_facts(agent, "ada")


@pytest.mark.parametrize("in_processes", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_what_a_guest_says_is_not_quoted_in_the_owner_s_other_threads(
    world: World, in_processes: bool
) -> None:
    agent = thread_with_a_guest(world, in_processes=in_processes)
    sent = agent.run("ada", "Where do I live? Who is called Rex?", "another")
    assert "My dog is called Rex." in sent
    assert "Berlin" not in sent


def test_the_owner_s_copy_of_the_thread_is_whole(world: World) -> None:
    agent = thread_with_a_guest(world)
    assert BOB_S in [message.text for message in agent.messages("ada")]


def test_a_fork_knows_what_a_guest_has_said(simple: World) -> None:
    agent = thread_with_a_guest(simple)
    agent.pipeline.conversation(THREAD, user_id="ada").fork("copy").end_session()
    agent.pipeline.flush()
    assert "Berlin" not in texts_of_facts(agent, "ada")


def test_a_guest_who_becomes_the_owner_is_learned_about(simple: World) -> None:
    agent = thread_with_a_guest(simple)
    agent.pipeline.hand_over(THREAD, from_user="ada", to_user="bob")
    agent.run("bob", "Thanks.")
    agent.run("bob", "Bye.")
    agent.pipeline.flush()
    assert "Berlin" in texts_of_facts(agent, "bob")


def test_notes_about_guests_are_deleted_with_the_thread(simple: World) -> None:
    agent = thread_with_a_guest(simple)
    agent.pipeline.erase_user(user_id="bob")
    agent.pipeline.erase_user(user_id="ada")
    assert simple.store.search((), limit=10) == []


def test_nobody_looks_for_guests_in_what_the_owner_has_just_said() -> None:
    store = Counting(of=owners.GUESTS)
    agent = World("graph", store).agent(learn=False)
    for text in ("One", "Two", "Three"):
        agent.run("ada", text)
    assert store.asked == 0


class WithoutNotes(InMemoryStore):
    """A store that takes no notes about guests."""

    def batch(self, ops: Any) -> Any:
        todo = list(ops)
        if any(owners.GUESTS in place_of(op) for op in todo if isinstance(op, PutOp)):
            raise ConnectionError("no connection")
        return super().batch(todo)


def test_a_note_that_cannot_be_written_is_told() -> None:
    agent = World("middleware", WithoutNotes()).agent()
    agent.run("ada", SECRET)
    assert SECRET in agent.run("bob", BOB_S)
    assert any(failure.startswith("not noted that") for failure in agent.report("bob").failures)


# Whose a thread becomes


def test_the_record_names_nobody(simple: World) -> None:
    simple.agent().run("ada", SECRET)
    [record] = simple.owner_records()
    assert "ada" not in str(record)
    assert THREAD not in str(record)


def test_a_plain_object_s_conversations_have_no_owner(simple: World) -> None:
    pipeline = ContextPipeline(store=simple.store)
    for user in ("ada", "bob"):
        pipeline.conversation("main", user_id=user).add(HumanMessage(f"I am {user}."))
        pipeline.conversation("main", user_id=user).sync([HumanMessage(f"I am {user}.")])
        pipeline.conversation("main", user_id=user).assemble("Who am I?")
    assert simple.owner_records() == []
    assert [
        message.text for message in pipeline.get_messages(user_id="bob", conversation_id="main")
    ] == ["I am bob."]


def test_a_thread_of_an_older_store_is_that_of_the_first_who_runs_it(simple: World) -> None:
    agent = simple.agent()
    agent.pipeline.add_messages([HumanMessage(SECRET)], user_id="ada", conversation_id=THREAD)
    agent.run("ada", "Hello")
    agent.run("bob", "Hello")
    assert agent.messages("bob") == []


def test_a_cleared_thread_is_free_again(simple: World) -> None:
    agent = simple.agent()
    agent.run("ada", SECRET)
    agent.run("bob", "Hello")
    agent.pipeline.clear(user_id="ada", conversation_id=THREAD)
    simple.saver.delete_thread(THREAD)
    agent.run("bob", "My own.")
    assert [message.text for message in agent.messages("bob")] == ["My own.", "Noted."]


def test_clearing_by_another_user_leaves_the_owner(simple: World) -> None:
    agent = simple.agent()
    agent.run("ada", SECRET)
    agent.pipeline.clear(user_id="bob", conversation_id=THREAD)
    agent.run("bob", "Hello")
    assert agent.messages("bob") == []


def test_clearing_one_agent_s_conversation_keeps_the_owner(simple: World) -> None:
    pipeline = ContextPipeline(store=simple.store)
    config: Any = {"configurable": {"user_id": "ada", "thread_id": THREAD}}
    for agent in ("first", "second"):
        build_context_graph(pipeline, agent=agent).invoke(
            {"messages": [HumanMessage(SECRET)]}, config
        )
    pipeline.clear(user_id="ada", conversation_id=f"{THREAD} (agent first)")
    assert len(simple.owner_records()) == 1
    pipeline.clear(user_id="ada", conversation_id=f"{THREAD} (agent second)")
    assert simple.owner_records() == []


def test_erasing_leaves_no_record_of_an_owner(simple: World) -> None:
    agent = simple.agent()
    for number in range(3):
        agent.run("ada", SECRET, f"a{number}")
    agent.run("bob", "Hello", "b")
    agent.pipeline.erase_user(user_id="ada")
    assert len(simple.owner_records()) == 1
    agent.pipeline.erase_user(user_id="bob")
    assert simple.store.search((), limit=10) == []


def test_erasing_forgets_what_others_runs_have_in_memory(simple: World) -> None:
    agent = simple.agent()
    agent.run("ada", SECRET)
    agent.run("bob", "Hello")
    agent.pipeline.erase_user(user_id="ada")
    assert agent.pipeline.last_report(user_id="bob", conversation_id=THREAD) is None


def test_an_export_tells_of_the_thread_and_can_be_read(simple: World) -> None:
    agent = simple.agent()
    agent.run("ada", SECRET)
    lines = agent.pipeline.export_user(user_id="ada")
    assert any('"kind": "threads", "conversation_id": "c1"' in line for line in lines)


def test_of_users_at_the_same_moment_one_becomes_the_owner() -> None:
    for number in range(20):
        store = InMemoryStore()
        users = [f"u{n}" for n in range(4)]
        found: dict[str, bool | Exception] = {}
        together = threading.Barrier(len(users))

        def run(
            user: str,
            store: BaseStore = store,
            found: Any = found,
            together: Any = together,
            number: int = number,
        ) -> None:
            pipeline = ContextPipeline(store=store)
            together.wait()
            config: Any = {"configurable": {"user_id": user, "thread_id": f"t{number}"}}
            build_context_graph(pipeline).invoke(
                {"messages": [HumanMessage(SECRET), HumanMessage("?")]}, config
            )
            found[user] = bool(pipeline.get_messages(user_id=user, conversation_id=f"t{number}"))

        threads = [threading.Thread(target=run, args=(user,)) for user in users]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sum(found.values()) == 1


def test_a_claim_that_was_cut_off_is_taken_up_by_its_user(simple: World) -> None:
    key = owners.thread_key(THREAD)
    place = (*owners.owner_place(key).namespace, owners.CLAIMS)
    simple.store.put(place, "1", {"owner": owners.owner_mark(key, "ada")})
    agent = simple.agent()
    agent.run("bob", "Hello")
    assert agent.messages("bob") == []
    agent.run("ada", SECRET)
    assert len(simple.owner_records()) == 1
    assert agent.messages("ada")


def test_an_owner_s_record_that_is_lost_makes_nobody_else_the_owner(simple: World) -> None:
    simple.agent().run("ada", SECRET)
    place = owners.owner_place(owners.thread_key(THREAD))
    simple.store.delete(place.namespace, place.key)
    agent = simple.agent()
    agent.run("bob", "Hello")
    assert "4711" not in simple.stored("bob")
    agent.run("ada", "Hello")
    assert len(simple.owner_records()) == 1


@pytest.mark.parametrize("change", ["clear", "erase", "hand over"])
def test_a_process_notices_that_a_thread_without_messages_changed_hands(
    simple: World, change: str
) -> None:
    pipelines = [ContextPipeline(store=simple.store) for _ in range(2)]
    here, elsewhere = [build_context_graph(pipeline) for pipeline in pipelines]
    ada: Any = {"configurable": {"user_id": "ada", "thread_id": THREAD}}
    bob: Any = {"configurable": {"user_id": "bob", "thread_id": THREAD}}
    here.invoke({"messages": [HumanMessage("Hello", id="1")]}, ada)
    if change == "clear":
        pipelines[1].clear(user_id="ada", conversation_id=THREAD)
    elif change == "erase":
        pipelines[1].erase_user(user_id="ada")
    else:
        pipelines[1].hand_over(THREAD, from_user="ada", to_user="bob")
    said = [HumanMessage(SECRET, id="2"), AIMessage("Noted.", id="3"), HumanMessage("And?", id="4")]
    elsewhere.invoke({"messages": said}, bob)
    here.invoke({"messages": said}, ada)
    assert "4711" not in simple.stored("ada")
    assert "4711" in simple.stored("bob")


@pytest.mark.parametrize("change", ["clear", "erase"])
def test_a_damaged_record_of_an_owner_can_be_deleted(simple: World, change: str) -> None:
    agent = simple.agent()
    agent.run("ada", SECRET)
    place = owners.owner_place(owners.thread_key(THREAD))
    simple.store.put(place.namespace, place.key, {"what": "is this"})
    if change == "clear":
        agent.pipeline.clear(user_id="ada", conversation_id=THREAD)
    else:
        agent.pipeline.erase_user(user_id="ada")
    assert simple.store.search(("ctxbudget", owners.OUTSIDE_OF_USERS)) == []
    assert "4711" not in simple.stored("ada")


def test_what_a_new_thread_costs_is_known() -> None:
    store = Counting()
    agent = World("middleware", store).agent()
    agent.run("ada", SECRET)
    assert store.asked == 5  # two looks, a claim, a record, and a look as there are messages


def place_of(operation: Any) -> tuple[str, ...]:
    """Returns the namespace that a store operation has to do with."""
    names = ("namespace", "namespace_prefix")
    return next((getattr(operation, name) for name in names if hasattr(operation, name)), ())


class Unreadable(InMemoryStore):
    """A store whose records of owners cannot be read."""

    def batch(self, ops: Any) -> Any:
        todo = list(ops)
        if any(owners.OUTSIDE_OF_USERS in place_of(op) for op in todo if not isinstance(op, PutOp)):
            raise ConnectionError("no connection")
        return super().batch(todo)


def test_where_the_owner_cannot_be_read_nothing_is_copied() -> None:
    world = World("middleware", Unreadable())
    agent = world.agent()
    agent.run("ada", SECRET)
    assert SECRET in agent.run("ada", "And?")
    assert any(
        failure.startswith("history not copied to the store")
        for failure in agent.report("ada").failures
    )
    assert "4711" not in world.stored("ada")


def test_a_shared_thread_is_copied_where_owners_cannot_be_read() -> None:
    agent = World("middleware", Unreadable()).agent(on_foreign_thread="share")
    agent.run("ada", SECRET)
    assert len(agent.pipeline.shared_conversation(THREAD).messages()) == 2


def test_a_damaged_record_of_an_owner_fails_closed(simple: World) -> None:
    simple.agent().run("ada", SECRET)
    place = owners.owner_place(owners.thread_key(THREAD))
    simple.store.put(place.namespace, place.key, {"what": "is this"})
    agent = simple.agent()
    agent.run("bob", "Hello")
    assert any("OwnerRecord" in failure for failure in agent.report("bob").failures)
    assert "4711" not in simple.stored("bob")


class Counting(InMemoryStore):
    """A store that tells how many batches it was asked for that have to do with owners, or another kind."""

    def __init__(self, of: str = owners.THREADS) -> None:
        super().__init__()
        self.asked = 0
        self.kind = of

    def batch(self, ops: Any) -> Any:
        todo = list(ops)
        self.asked += any(self.kind in place_of(op) for op in todo)
        return super().batch(todo)


def test_a_warm_turn_does_not_read_the_owner() -> None:
    store = Counting()
    agent = World("middleware", store).agent()
    agent.run("ada", SECRET)
    store.asked = 0
    agent.run("ada", "Two")
    agent.run("ada", "Three")
    assert store.asked == 0


def test_opening_a_thread_reads_the_owner_once() -> None:
    store = Counting()
    world = World("middleware", store)
    world.agent().run("ada", SECRET)
    store.asked = 0
    world.agent().run("ada", "Two")
    assert store.asked == 1


# Settings


def test_a_foreign_thread_is_an_error_where_it_is_set(world: World) -> None:
    agent = world.agent(on_foreign_thread="error")
    agent.run("ada", SECRET)
    calls = len(agent.requests)
    with pytest.raises(ForeignUserError, match=r"'c1'.*on_foreign_thread is 'error'"):
        agent.run("bob", "What is the PIN?")
    assert len(agent.requests) == calls
    assert "4711" not in world.stored("bob")


def test_a_shared_thread_is_seen_by_all_in_it_and_nobody_else(world: World) -> None:
    agent = world.agent(on_foreign_thread="share")
    agent.run("ada", SECRET)
    assert SECRET in agent.run("bob", "What is the PIN?")
    agent.run("ada", "Thanks.")
    agent.pipeline.flush()
    for user in ("ada", "bob"):
        assert "4711" not in world.stored(user)
        assert "4711" not in agent.run(user, "What is my PIN?", f"other of {user}")
    assert world.owner_records() == []
    assert SECRET in [
        message.text for message in agent.pipeline.shared_conversation(THREAD).messages()
    ]


def test_nothing_personal_goes_into_a_shared_thread(world: World) -> None:
    agent = world.agent(on_foreign_thread="share")
    agent.pipeline.add_messages(
        [HumanMessage("My bike is blue.")], user_id="bob", conversation_id="c2"
    )
    agent.pipeline.knowledge.add_fact("Bob rides a bike", category="identity", user_id="bob")
    assert "bike" not in agent.run("bob", "Which colour is it?")


def test_a_shared_thread_teaches_nothing(world: World) -> None:
    agent = world.agent(on_foreign_thread="share")
    for text in ("I live in Lisbon.", "I work as a nurse.", "My favourite drink is coffee."):
        agent.run("ada", text)
    agent.pipeline.shared_conversation(THREAD).end_session()
    agent.pipeline.flush()
    for user in ("ada", SharedThread.of(THREAD)):
        assert agent.pipeline.knowledge.list_facts(user_id=user) == []


def test_a_turn_alone_stands_behind_its_user_s_own_conversation() -> None:
    pipeline = ContextPipeline({"on_foreign_thread": "share"})
    pipeline.conversation(THREAD, user_id="ada").add(
        HumanMessage("My bike is blue."), AIMessage("Noted.")
    )
    config: Any = {"configurable": {"user_id": "ada", "thread_id": THREAD}}
    assert "blue" in str(pipeline.as_runnable().invoke("Which colour is my bike?", config))


def test_a_shared_thread_is_cleared(simple: World) -> None:
    agent = simple.agent(on_foreign_thread="share")
    agent.run("ada", SECRET)
    agent.pipeline.shared_conversation(THREAD).clear()
    agent.pipeline.flush()
    assert "4711" not in str(simple.store.search((), limit=1_000))


@pytest.mark.parametrize("call", ["add_messages", "get_messages", "clear"])
def test_no_user_can_have_the_id_of_a_shared_thread(simple: World, call: str) -> None:
    pipeline = ContextPipeline(store=simple.store)
    given = ([HumanMessage("x")],) if call == "add_messages" else ()
    with pytest.raises(ForeignUserError):
        getattr(pipeline, call)(
            *given, user_id=str(SharedThread.of(THREAD)), conversation_id=THREAD
        )


def test_a_run_cannot_name_a_shared_thread_as_its_user(simple: World) -> None:
    agent = simple.agent(on_foreign_thread="share")
    with pytest.raises(ForeignUserError):
        agent.run(str(SharedThread.of(THREAD)), "Hello")


# Handing over


def test_a_thread_is_handed_over_with_all_that_is_stored(world: World) -> None:
    agent = world.agent()
    agent.run("default", SECRET)
    agent.run("default", "Two.")
    ids = [str(message.id) for message in agent.messages("default")]
    agent.pipeline.remove_messages(ids[1], user_id="default", conversation_id=THREAD)
    agent.pipeline.pin(ids[0], user_id="default", conversation_id=THREAD)
    before = agent.messages("default")
    agent.pipeline.hand_over(THREAD, from_user="default", to_user="ada")
    assert agent.messages("ada") == before
    assert agent.messages("default") == []
    assert "4711" not in world.stored("default")
    assert '"keep"' in str(agent.pipeline.export_user(user_id="ada"))
    assert '"archived": true' in str(agent.pipeline.export_user(user_id="ada"))
    agent.run("ada", "Three.")
    assert not any("another user's" in failure for failure in agent.report("ada").failures)


def test_after_a_handover_the_former_owner_is_another_user(simple: World) -> None:
    agent = simple.agent()
    agent.run("default", SECRET)
    agent.pipeline.hand_over(THREAD, from_user="default", to_user="ada")
    agent.run("default", "Hello")
    assert agent.messages("default") == []
    assert any("another user's" in failure for failure in agent.report("default").failures)


async def test_a_thread_is_handed_over_in_async(simple: World) -> None:
    pipeline = ContextPipeline(store=simple.store)
    await pipeline.aadd_messages([HumanMessage(SECRET)], user_id="default", conversation_id=THREAD)
    await pipeline.ahand_over(THREAD, from_user="default", to_user="ada")
    assert [
        message.text
        for message in await pipeline.aget_messages(user_id="ada", conversation_id=THREAD)
    ] == [SECRET]


def test_a_handover_can_be_repeated(simple: World) -> None:
    agent = simple.agent()
    agent.run("default", SECRET)
    for _ in range(2):
        agent.pipeline.hand_over(THREAD, from_user="default", to_user="ada")
    assert len(agent.messages("ada")) == 2


def test_what_was_learned_goes_with_the_thread(simple: World) -> None:
    agent = simple.agent()
    agent.run("default", "I live in Lisbon.")
    agent.pipeline.flush()
    assert agent.pipeline.knowledge.list_facts(user_id="default")
    agent.pipeline.hand_over(THREAD, from_user="default", to_user="ada")
    assert agent.pipeline.knowledge.list_facts(user_id="default") == []
    agent.run("ada", "Hello.")
    agent.pipeline.flush()
    assert [fact.text for fact in agent.pipeline.knowledge.list_facts(user_id="ada")] == [
        "Lives in Lisbon"
    ]


def test_what_prompts_have_shown_of_the_former_owner_stays_behind(simple: World) -> None:
    pipeline = ContextPipeline({"max_context_tokens": 2_000}, store=simple.store)
    pipeline.add_messages(
        [HumanMessage("The safe's code is 99887.")], user_id="default", conversation_id="other"
    )
    graph = build_context_graph(pipeline)

    def turn(user: str, text: str, state: dict[str, Any]) -> dict[str, Any]:
        asked = {"messages": [*state.get("messages", []), HumanMessage(text, id=text)]}
        block = {"ctxbudget_turn": state["ctxbudget_turn"]} if state else {}
        made = graph.invoke(asked | block, {"configurable": {"user_id": user, "thread_id": THREAD}})
        return made | {"messages": [*asked["messages"], AIMessage("Yes.", id=f"to {text}")]}

    state = turn("default", "Good morning, the river is high.", {})
    state = turn("default", "What is the safe's code?", state)
    assert "99887" in str(state["llm_input_messages"])
    pipeline.hand_over(THREAD, from_user="default", to_user="ada")
    for text in ("Hello.", "What did you say of the safe's code?"):
        state = turn("ada", text, state)
        assert "99887" not in str(state["llm_input_messages"])


def test_the_conversations_of_all_agents_are_handed_over(simple: World) -> None:
    pipeline = ContextPipeline(store=simple.store)
    said = [HumanMessage(SECRET, id="1"), AIMessage("Noted.", id="2"), HumanMessage("?", id="3")]
    for agent in ("first", "second"):
        config: Any = {"configurable": {"user_id": "default", "thread_id": THREAD}}
        build_context_graph(pipeline, agent=agent).invoke({"messages": said}, config)
    pipeline.hand_over(THREAD, from_user="default", to_user="ada")
    assert pipeline.list_conversations(user_id="default") == []
    assert len(pipeline.list_conversations(user_id="ada")) == 2


def test_a_thread_is_handed_over_under_whichever_conversation_it_is_kept(simple: World) -> None:
    pipeline = ContextPipeline(store=simple.store)
    graph = build_context_graph(pipeline)
    said = [HumanMessage(SECRET, id="1"), AIMessage("Noted.", id="2"), HumanMessage("?", id="3")]
    config: Any = {"configurable": {"thread_id": THREAD}}
    graph.invoke(
        {"messages": said}, config, context=RunContext(user_id="default", conversation_id="a note")
    )
    pipeline.hand_over(THREAD, from_user="default", to_user="ada")
    assert len(pipeline.get_messages(user_id="ada", conversation_id="a note")) == 2
    assert "4711" not in simple.stored("default")


def test_all_threads_of_a_user_are_handed_over_one_by_one(simple: World) -> None:
    pipeline = ContextPipeline(store=simple.store)
    said = [HumanMessage(SECRET, id="1"), AIMessage("Noted.", id="2"), HumanMessage("?", id="3")]
    for agent in (None, "first", "second"):
        config: Any = {"configurable": {"user_id": "default", "thread_id": THREAD}}
        build_context_graph(pipeline, agent=agent).invoke({"messages": said}, config)
    pipeline.conversation("plain", user_id="default").add(HumanMessage(SECRET))
    before = pipeline.list_conversations(user_id="default")
    for conversation_id in reversed(before):
        pipeline.hand_over(conversation_id, from_user="default", to_user="ada")
    assert pipeline.list_conversations(user_id="ada") == before
    assert "4711" not in simple.stored("default")


@pytest.mark.parametrize("case", ["nobody's", "a third user's"])
def test_a_thread_of_neither_is_not_handed_over(simple: World, case: str) -> None:
    agent = simple.agent()
    if case != "nobody's":
        agent.run("eve", SECRET)
    with pytest.raises(ForeignUserError, match="'c1'"):
        agent.pipeline.hand_over(THREAD, from_user="default", to_user="ada")


def test_two_conversations_of_one_id_are_not_mixed(simple: World) -> None:
    agent = simple.agent()
    agent.run("default", SECRET)
    agent.pipeline.add_messages([HumanMessage("Mine.")], user_id="ada", conversation_id=THREAD)
    with pytest.raises(InputError, match="clear"):
        agent.pipeline.hand_over(THREAD, from_user="default", to_user="ada")
    assert len(agent.messages("default")) == 2
    assert len(agent.messages("ada")) == 1


class Failing(InMemoryStore):
    """A store that fails at one of its batches, as a process that is killed there."""

    left: int | None = None

    def batch(self, ops: Any) -> Any:
        if self.left is not None:
            if self.left == 0:
                raise ConnectionAbortedError("killed")
            self.left -= 1
        return super().batch(ops)


@pytest.mark.parametrize("at", range(0, 60, 2))
def test_a_handover_that_is_cut_off_loses_nothing_and_goes_on(at: int) -> None:
    store = Failing()
    pipeline = ContextPipeline({"learn": False}, store=store)
    graph = build_context_graph(pipeline)
    said = [HumanMessage(SECRET, id="1"), AIMessage("Noted.", id="2"), HumanMessage("?", id="3")]
    graph.invoke({"messages": said}, {"configurable": {"user_id": "default", "thread_id": THREAD}})
    store.left = at
    try:
        pipeline.hand_over(THREAD, from_user="default", to_user="ada")
    except ConnectionAbortedError:
        store.left = None
        found = [
            len(ContextPipeline(store=store).get_messages(user_id=u, conversation_id=THREAD))
            for u in ("default", "ada")
        ]
        assert 2 in found
    store.left = None
    again = ContextPipeline({"learn": False}, store=store)
    again.hand_over(THREAD, from_user="default", to_user="ada")
    assert [
        message.text for message in again.get_messages(user_id="ada", conversation_id=THREAD)
    ] == [SECRET, "Noted."]
    assert again.get_messages(user_id="default", conversation_id=THREAD) == []
    assert not store.search(("ctxbudget", label("default")), limit=10)


def test_a_scope_of_a_shared_thread_is_no_user_s() -> None:
    assert Scope(SharedThread.of("a"), "a").is_shared
    assert not Scope("ada", "a").is_shared


def interleaved(
    store: BaseStore, users: list[str], rng: random.Random, killed: int | None = None
) -> list[bool]:
    """Lets processes of users claim one thread, each store operation at a moment of its own.

    Returns who owns it.

    One of them may be killed before one of its operations.
    """
    flows: dict[int, Any] = {
        at: owners.claim(store, Scope(user, THREAD), THREAD) for at, user in enumerate(users)
    }
    results: dict[int, Any] = {}
    outcomes = [False] * len(users)
    left = rng.randint(0, 4)
    while flows:
        at = rng.choice(sorted(flows))
        if at == killed and left == 0:
            del flows[at]
            continue
        left -= at == killed
        try:
            call = flows[at].send(results.get(at))
            results[at] = call.sync()
        except StopIteration as done:
            outcomes[at] = bool(done.value)
            del flows[at]
        except StoreError:
            del flows[at]
    return outcomes


@pytest.mark.parametrize("seed", range(150))
def test_in_whatever_order_users_claim_a_thread_one_gets_it(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owners, "SECONDS_BETWEEN_LOOKS", 0.0)
    rng = random.Random(seed)
    store = InMemoryStore()
    # Some have two processes.
    users = [f"u{number}" for number in range(rng.randint(2, 4))]
    users += users[: rng.randint(0, 2)]
    killed = rng.choice([None, *range(len(users))])
    owned: set[str] = set()
    for turn in range(4):
        outcomes = interleaved(store, users, rng, None if turn else killed)
        owned.update(user for user, is_owner in zip(users, outcomes, strict=True) if is_owner)
        assert len(owned) <= 1
    assert len(owned) == 1
    key = owners.thread_key(THREAD)
    owner_s = owners.owner_mark(key, owned.pop())
    claims = store.search((*owners.owner_place(key).namespace, owners.CLAIMS))
    assert owner_s in [item.value["owner"] for item in claims]
    assert len([item for item in claims if item.value["owner"] != owner_s]) <= (killed is not None)
