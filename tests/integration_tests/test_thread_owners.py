"""A thread belongs to the user who runs it first.

When another user runs it, the model sees the messages of its state, but none of them is stored for
that other user.
"""

import asyncio
import random
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, NotRequired

import pytest
from langchain.agents import create_agent
from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    BaseMessage,
    HumanMessage,
    ToolCall,
    ToolMessage,
)
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
from tests.cases import few_are_quick
from tests.integration_tests.agents import scripted

pytestmark = pytest.mark.filterwarnings("ignore:create_react_agent")

SECRET = "My PIN is 4711."
"""What Ada says in her thread."""
THREAD = "c1"
EXCHANGE: list[AnyMessage] = [HumanMessage(SECRET, id="1"), AIMessage("Noted.", id="2")]
STATE: list[AnyMessage] = [*EXCHANGE, HumanMessage("?", id="3")]
"""Ada's exchange, and the question of whoever runs the thread next."""


def config_of(user: str, thread: str = THREAD) -> Any:
    return {"configurable": {"user_id": user, "thread_id": thread}}


def texts(messages: Iterable[BaseMessage]) -> list[str]:
    return [message.text for message in messages]


class ChatState(TypedDict):
    """The state of an application's graph."""

    messages: Annotated[list[AnyMessage], add_messages]
    llm_input_messages: NotRequired[list[AnyMessage]]
    ctxbudget_turn: NotRequired[dict[str, Any] | None]


class NodeState(ChatState):
    """The same for a graph that has the six steps as nodes."""

    detected: NotRequired[Any]
    budget: NotRequired[Any]
    bundles: NotRequired[Any]
    history: NotRequired[Any]
    retrieved: NotRequired[Any]


@dataclass
class Agent:
    """An agent in one process."""

    pipeline: ContextPipeline
    graph: Any
    requests: list[list[BaseMessage]]
    """The requests that its model got."""
    asynchronous: bool = False

    def run(self, user: str, text: str, thread: str = THREAD) -> str:
        """Runs a turn; returns all that its model was sent."""
        turn = {"messages": [HumanMessage(text)]}
        config = config_of(user, thread)
        if self.asynchronous:
            asyncio.run(self.graph.ainvoke(turn, config))
        else:
            self.graph.invoke(turn, config)
        return "\n".join(texts(self.requests[-1]))

    def report(self, user: str, thread: str = THREAD) -> ContextReport:
        report = self.pipeline.last_report(user_id=user, conversation_id=thread)
        assert report is not None
        return report

    def foreign_thread_failures(self, user: str) -> list[str]:
        """The lines of a user's report that tell of another user's thread."""
        return [line for line in self.report(user).failures if "another user's" in line]

    def facts(self, user: str) -> str:
        """The texts of all facts about a user."""
        facts = self.pipeline.knowledge.list_facts(user_id=user, include_ended=True)
        return str([fact.text for fact in facts])

    def messages(self, user: str, thread: str = THREAD) -> list[BaseMessage]:
        return self.pipeline.get_messages(user_id=user, conversation_id=thread)


def answering(requests: list[list[BaseMessage]]) -> Callable[[list[BaseMessage]], AIMessage]:
    """Returns a model, as a function, that adds each request to `requests`."""

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
    prompt = pipeline.as_runnable()

    def model(state: ChatState, config: Any) -> dict[str, Any]:
        request = prompt.invoke({"messages": state["messages"]}, config)
        return {"messages": [answer(request)]}

    async def amodel(state: ChatState, config: Any) -> dict[str, Any]:
        request = await prompt.ainvoke({"messages": state["messages"]}, config)
        return {"messages": [answer(request)]}

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
"""Ways to use the package in an agent: each builds a graph of a pipeline and a checkpointer."""


STORES = ["memory", pytest.param("chroma", marks=pytest.mark.slow)]


@contextmanager
def new_store(kind: str, folder: Path) -> Iterator[BaseStore]:
    if kind == "memory":
        yield InMemoryStore()
        return
    with ChromaStore(folder) as store:
        yield store


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BaseStore]:
    with new_store(request.param, tmp_path) as store:
        yield store


@dataclass
class World:
    """An application that uses the package in one way, with one store and one checkpointer.

    Each agent of it stands for a process of its own.
    """

    way: str
    store: BaseStore
    asynchronous: bool = False
    saver: InMemorySaver = field(default_factory=InMemorySaver)

    def agent(self, **settings: Any) -> Agent:
        usual = {"max_context_tokens": 2_000, "learn": "rules", "learn_every": 1}
        pipeline = ContextPipeline({**usual, **settings}, store=self.store)
        requests: list[list[BaseMessage]] = []
        graph = WAYS[self.way](pipeline, requests, self.saver)
        return Agent(pipeline, graph, requests, self.asynchronous)

    def stored(self, user: str) -> str:
        """Returns all items of a user in the store, with namespaces and keys, as one text."""
        items = self.store.search(("ctxbudget", label(user)), limit=10_000)
        return str([(item.namespace, item.key, item.value) for item in items])

    def owner_records(self) -> list[Any]:
        items = self.store.search(
            ("ctxbudget", owners.OUTSIDE_OF_USERS, owners.THREADS), limit=10_000
        )
        return [item.value for item in items if item.key == owners.OWNER]


@pytest.fixture(scope="module", params=[False, True], ids=["blocking", "async"])
def asynchronous(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture(params=few_are_quick(WAYS, 2))
def world(request: pytest.FixtureRequest, store: BaseStore, asynchronous: bool) -> World:
    return World(request.param, store, asynchronous)


@pytest.fixture
def simple() -> World:
    """The application of tests for which the way in makes no difference."""
    return World("middleware", InMemoryStore())


# Another user's run


def test_another_user_sees_the_messages_of_the_state(world: World) -> None:
    agent = world.agent()
    agent.run("ada", SECRET)
    assert SECRET in agent.run("bob", "What is the PIN?")


def test_nothing_of_the_thread_is_stored_for_another_user(world: World) -> None:
    agent = world.agent()
    agent.run("ada", SECRET)
    agent.run("bob", "What is the PIN?")
    agent.run("bob", "Again?")
    agent.pipeline.flush()
    assert "4711" not in world.stored("bob")
    assert agent.messages("bob") == []
    assert agent.pipeline.list_conversations(user_id="bob") == []
    assert agent.pipeline.knowledge.list_facts(user_id="bob") == []


def test_another_user_s_own_threads_do_not_quote_the_thread(world: World) -> None:
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
    [failure] = agent.foreign_thread_failures("bob")
    assert "'c1' is another user's" in failure


def test_the_report_names_the_thread_and_not_its_owner(world: World) -> None:
    agent = world.agent()
    agent.run("ada", SECRET)
    agent.run("bob", "What is the PIN?")
    [failure] = agent.foreign_thread_failures("bob")
    assert "'c1'" in failure
    assert "ada" not in failure
    assert agent.foreign_thread_failures("ada") == []


def test_the_owner_s_messages_stay_stored(world: World) -> None:
    agent = world.agent()
    agent.run("ada", SECRET)
    agent.run("bob", "What is the PIN?")
    agent.run("ada", "And now?")
    assert agent.messages("ada")[0].text == SECRET


def test_one_warning_is_logged_that_does_not_name_the_owner(
    simple: World, caplog: pytest.LogCaptureFixture
) -> None:
    agent = simple.agent()
    agent.run("ada", SECRET)
    agent.run("bob", "One?")
    agent.run("bob", "Two?")
    logged = [record.getMessage() for record in caplog.records]
    [warning] = [text for text in logged if "another user's" in text]
    assert "ada" not in warning


def test_messages_that_left_the_state_are_not_shown(simple: World) -> None:
    pipeline = ContextPipeline({"max_context_tokens": 2_000}, store=simple.store)
    graph = build_context_graph(pipeline)

    def run(user: str, *said: str) -> str:
        messages = [HumanMessage(text, id=text) for text in said]
        state = graph.invoke({"messages": messages}, config_of(user))
        return "\n".join(texts(state["llm_input_messages"]))

    run("ada", SECRET)
    assert "4711" in run("bob", SECRET, "What is the PIN?")
    assert "4711" not in run("bob", "What is the PIN?", "Is there a PIN?")


def test_nothing_about_another_user_is_shown_in_the_thread(world: World) -> None:
    agent = world.agent()
    agent.run("ada", SECRET)
    agent.pipeline.add_messages(
        [HumanMessage("My bike is blue.")], user_id="bob", conversation_id="c2"
    )
    agent.pipeline.knowledge.add_fact("Bob rides a bike", category="identity", user_id="bob")
    agent.pipeline.save_settings({"memories": ["Bob has a bike in the shed"]}, user_id="bob")
    assert "bike" not in agent.run("bob", "Which colour is it?")


def test_the_background_of_the_owner_is_not_shown_to_another(simple: World) -> None:
    pipeline = ContextPipeline({"max_context_tokens": 2_000}, store=simple.store)
    pipeline.add_messages(
        [HumanMessage("The safe's code is 99887.")], user_id="ada", conversation_id="other"
    )
    graph = build_context_graph(pipeline)
    question = HumanMessage("What is the safe's code?", id="1")
    call = AIMessage("", id="2", tool_calls=[{"name": "look", "args": {}, "id": "a"}])
    turn = [question, call, ToolMessage("?", tool_call_id="a", id="3")]

    ada_state = graph.invoke({"messages": [question]}, config_of("ada"))
    bob_state = graph.invoke(
        {"messages": turn, "ctxbudget_turn": ada_state["ctxbudget_turn"]}, config_of("bob")
    )

    assert "99887" in str(ada_state["llm_input_messages"])
    assert "99887" not in str(bob_state["llm_input_messages"])


@pytest.mark.slow
def test_the_recall_tool_searches_the_state_alone(simple: World) -> None:
    pipeline = ContextPipeline({"max_context_tokens": 2_000}, store=simple.store)
    pipeline.add_messages(
        [HumanMessage("The safe's code is 99887.", id="old")], user_id="ada", conversation_id=THREAD
    )
    graph = build_context_graph(pipeline)
    builder = StateGraph(ChatState)
    builder.add_node("tools", ToolNode([create_recall_tool(pipeline)]))
    builder.add_edge(START, "tools")
    tools = builder.compile()

    def recalled_for_bob(query: str) -> str:
        call: ToolCall = {"name": "recall", "args": {"query": query}, "id": "a"}
        message_with_call = AIMessage("", id="4", tool_calls=[call])
        graph.invoke({"messages": STATE}, config_of("bob"))
        state = tools.invoke({"messages": [*STATE, message_with_call]}, config_of("bob"))
        return str(state["messages"][-1].text)

    graph.invoke({"messages": STATE[:1]}, config_of("ada"))
    assert "4711" in recalled_for_bob("PIN")
    assert "99887" not in recalled_for_bob("code of the safe")


def test_a_thread_has_one_owner_for_all_its_agents(simple: World) -> None:
    pipeline = ContextPipeline({"max_context_tokens": 2_000}, store=simple.store)
    first = build_context_graph(pipeline, agent="first")
    second = build_context_graph(pipeline, agent="second")

    first.invoke({"messages": STATE[:1]}, config_of("ada"))
    second.invoke({"messages": STATE}, config_of("bob"))

    assert "4711" not in simple.stored("bob")


def test_the_compaction_tool_writes_nothing_for_another_user(simple: World) -> None:
    agent = simple.agent()
    agent.run("ada", SECRET)
    agent.run("bob", "Hello")
    compact = create_compaction_tool(agent.pipeline)
    compact.invoke({}, config_of("bob"))
    agent.run("bob", "Again?")
    assert "4711" not in simple.stored("bob")


@pytest.fixture
def renamed_thread(simple: World) -> ContextPipeline:
    """Ada and Bob run one thread, each as a conversation with an id of its own."""
    pipeline = ContextPipeline(store=simple.store)
    graph = build_context_graph(pipeline)
    config: Any = {"configurable": {"thread_id": THREAD}}
    ada = RunContext(user_id="ada", conversation_id="notes")
    bob = RunContext(user_id="bob", conversation_id="mine")
    graph.invoke({"messages": STATE[:1]}, config, context=ada)
    graph.invoke({"messages": STATE}, config, context=bob)
    return pipeline


@pytest.mark.usefixtures("renamed_thread")
def test_a_thread_has_one_owner_whatever_its_conversation_s_id(simple: World) -> None:
    assert "4711" not in simple.stored("bob")


def test_clearing_the_conversation_of_a_thread_frees_it(
    simple: World, renamed_thread: ContextPipeline
) -> None:
    renamed_thread.clear(user_id="ada", conversation_id="notes")
    assert simple.owner_records() == []


# What another user says in the owner's thread

GUEST_TEXT = "I live in Berlin."
TURNS_WITH_A_GUEST = [
    ("ada", "I work as a nurse."),
    ("bob", GUEST_TEXT),
    ("ada", "My dog is called Rex."),
    ("ada", "Yes."),
]


def thread_with_a_guest(world: World, *, in_processes: bool = False) -> Agent:
    """Runs Ada's thread with a turn of Bob's in it, maybe each turn in a process of its own."""
    agent = world.agent()
    for user, text in TURNS_WITH_A_GUEST:
        agent.run(user, text)
        agent.pipeline.flush()
        if in_processes:
            agent = world.agent()
    agent.pipeline.conversation(THREAD, user_id="ada").end_session()
    agent.pipeline.flush()
    return agent


@pytest.fixture(scope="module", params=STORES)
def shared_store(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BaseStore]:
    with new_store(request.param, tmp_path_factory.mktemp("guest")) as store:
        yield store


@pytest.fixture(scope="module", params=WAYS)
def way(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(
    scope="module",
    params=[False, pytest.param(True, marks=pytest.mark.slow)],
    ids=["one process", "processes"],
)
def host(
    request: pytest.FixtureRequest, shared_store: BaseStore, way: str, asynchronous: bool
) -> Agent:
    """Ada's agent after Bob was a guest in her thread; several tests look at it."""
    world = World(way, shared_store, asynchronous)
    return thread_with_a_guest(world, in_processes=request.param)


def test_what_a_guest_says_is_not_learned_about_the_owner(host: Agent) -> None:
    assert "Berlin" not in host.facts("ada")


def test_what_the_owner_says_beside_a_guest_is_learned(host: Agent) -> None:
    assert "nurse" in host.facts("ada")
    assert "Rex" in host.facts("ada")


def test_what_a_guest_says_is_stored_for_the_owner(host: Agent) -> None:
    assert GUEST_TEXT in texts(host.messages("ada"))


def test_what_a_guest_says_is_not_quoted_in_other_threads(host: Agent) -> None:
    sent = host.run("ada", "Where do I live? Who is called Rex?", "another")

    assert "My dog is called Rex." in sent
    assert "Berlin" not in sent


def test_a_fork_knows_what_a_guest_has_said(simple: World) -> None:
    agent = thread_with_a_guest(simple)
    agent.pipeline.conversation(THREAD, user_id="ada").fork("copy").end_session()
    agent.pipeline.flush()
    assert "Berlin" not in agent.facts("ada")


def test_a_guest_who_becomes_the_owner_is_learned_about(simple: World) -> None:
    agent = thread_with_a_guest(simple)
    agent.pipeline.hand_over(THREAD, from_user="ada", to_user="bob")
    agent.run("bob", "Thanks.")
    agent.run("bob", "Bye.")
    agent.pipeline.flush()
    assert "Berlin" in agent.facts("bob")


def test_notes_about_guests_are_deleted_with_the_thread(simple: World) -> None:
    agent = thread_with_a_guest(simple)
    agent.pipeline.erase_user(user_id="bob")
    agent.pipeline.erase_user(user_id="ada")
    assert simple.store.search((), limit=10) == []


def test_nobody_looks_for_guests_in_what_the_owner_has_just_said() -> None:
    store = Counting(of=owners.GUESTS)
    agent = World("graph", store).agent(learn=False)

    agent.run("ada", "One")
    agent.run("ada", "Two")
    agent.run("ada", "Three")

    assert store.asked == 0


class WithoutNotes(InMemoryStore):
    """A store that takes no notes about guests."""

    def batch(self, ops: Any) -> Any:
        operations = list(ops)
        writes = [op for op in operations if isinstance(op, PutOp)]
        if any(owners.GUESTS in place_of(op) for op in writes):
            raise ConnectionError("no connection")
        return super().batch(operations)


def test_the_report_says_that_a_note_could_not_be_written() -> None:
    agent = World("middleware", WithoutNotes()).agent()
    agent.run("ada", SECRET)

    sent = agent.run("bob", GUEST_TEXT)

    assert SECRET in sent
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
        conversation = pipeline.conversation("main", user_id=user)
        conversation.add(HumanMessage(f"I am {user}."))
        conversation.sync([HumanMessage(f"I am {user}.")])
        conversation.assemble("Who am I?")

    assert simple.owner_records() == []
    assert texts(pipeline.get_messages(user_id="bob", conversation_id="main")) == ["I am bob."]


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
    assert texts(agent.messages("bob")) == ["My own.", "Noted."]


def test_clearing_by_another_user_leaves_the_owner(simple: World) -> None:
    agent = simple.agent()
    agent.run("ada", SECRET)
    agent.pipeline.clear(user_id="bob", conversation_id=THREAD)
    agent.run("bob", "Hello")
    assert agent.messages("bob") == []


@pytest.fixture
def two_agents(simple: World) -> ContextPipeline:
    """Two agents have run in one thread of Ada's."""
    pipeline = ContextPipeline(store=simple.store)
    for agent in ("first", "second"):
        graph = build_context_graph(pipeline, agent=agent)
        graph.invoke({"messages": [HumanMessage(SECRET)]}, config_of("ada"))
    return pipeline


def test_clearing_one_agent_s_conversation_keeps_the_owner(
    simple: World, two_agents: ContextPipeline
) -> None:
    two_agents.clear(user_id="ada", conversation_id="c1 (agent first)")

    assert len(simple.owner_records()) == 1


def test_clearing_the_conversations_of_all_agents_frees_a_thread(
    simple: World, two_agents: ContextPipeline
) -> None:
    two_agents.clear(user_id="ada", conversation_id="c1 (agent first)")
    two_agents.clear(user_id="ada", conversation_id="c1 (agent second)")

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


class Race:
    """Users who run one thread at the same moment, each in a process of their own."""

    def __init__(self, users: list[str]) -> None:
        self.store = InMemoryStore()
        self.users = users
        self.owners: list[str] = []
        self._start = threading.Barrier(len(users))

    def run(self) -> None:
        threads = [threading.Thread(target=self._run, args=(user,)) for user in self.users]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _run(self, user: str) -> None:
        pipeline = ContextPipeline(store=self.store)
        self._start.wait()
        turn = [HumanMessage(SECRET), HumanMessage("?")]
        build_context_graph(pipeline).invoke({"messages": turn}, config_of(user))
        if pipeline.get_messages(user_id=user, conversation_id=THREAD):
            self.owners.append(user)


@pytest.mark.parametrize("attempt", few_are_quick(range(20), 5))
def test_of_users_at_the_same_moment_one_becomes_the_owner(attempt: int) -> None:
    race = Race(["ada", "bob", "eve", "joe"])

    race.run()

    assert len(race.owners) == 1


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


def clear(pipeline: ContextPipeline) -> None:
    pipeline.clear(user_id="ada", conversation_id=THREAD)


def erase(pipeline: ContextPipeline) -> None:
    pipeline.erase_user(user_id="ada")


def hand_over(pipeline: ContextPipeline) -> None:
    pipeline.hand_over(THREAD, from_user="ada", to_user="bob")


@pytest.mark.parametrize("change", [clear, erase, hand_over])
def test_a_process_notices_that_an_empty_thread_changed_hands(
    simple: World, change: Callable[[ContextPipeline], None]
) -> None:
    here = ContextPipeline(store=simple.store)
    elsewhere = ContextPipeline(store=simple.store)
    graph_here = build_context_graph(here)
    graph_here.invoke({"messages": [HumanMessage("Hello", id="0")]}, config_of("ada"))

    change(elsewhere)
    build_context_graph(elsewhere).invoke({"messages": STATE}, config_of("bob"))
    graph_here.invoke({"messages": STATE}, config_of("ada"))

    assert "4711" not in simple.stored("ada")
    assert "4711" in simple.stored("bob")


@pytest.mark.parametrize("change", [clear, erase])
def test_a_damaged_record_of_an_owner_can_be_deleted(
    simple: World, change: Callable[[ContextPipeline], None]
) -> None:
    agent = simple.agent()
    agent.run("ada", SECRET)
    place = owners.owner_place(owners.thread_key(THREAD))
    simple.store.put(place.namespace, place.key, {"what": "is this"})

    change(agent.pipeline)

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
        operations = list(ops)
        reads = [op for op in operations if not isinstance(op, PutOp)]
        if any(owners.OUTSIDE_OF_USERS in place_of(op) for op in reads):
            raise ConnectionError("no connection")
        return super().batch(operations)


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
    """A store that counts the batches about owners, or about another kind of records."""

    def __init__(self, of: str = owners.THREADS) -> None:
        super().__init__()
        self.asked = 0
        self.kind = of

    def batch(self, ops: Any) -> Any:
        operations = list(ops)
        self.asked += any(self.kind in place_of(op) for op in operations)
        return super().batch(operations)


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
    sent_to_bob = agent.run("bob", "What is the PIN?")
    agent.run("ada", "Thanks.")
    agent.pipeline.flush()

    assert SECRET in sent_to_bob
    assert SECRET in texts(agent.pipeline.shared_conversation(THREAD).messages())
    assert "4711" not in world.stored("ada")
    assert "4711" not in world.stored("bob")
    assert "4711" not in agent.run("ada", "What is my PIN?", "other of ada")
    assert "4711" not in agent.run("bob", "What is my PIN?", "other of bob")
    assert world.owner_records() == []


def test_nothing_personal_goes_into_a_shared_thread(world: World) -> None:
    agent = world.agent(on_foreign_thread="share")
    agent.pipeline.add_messages(
        [HumanMessage("My bike is blue.")], user_id="bob", conversation_id="c2"
    )
    agent.pipeline.knowledge.add_fact("Bob rides a bike", category="identity", user_id="bob")
    assert "bike" not in agent.run("bob", "Which colour is it?")


def test_a_shared_thread_teaches_nothing(world: World) -> None:
    agent = world.agent(on_foreign_thread="share")

    agent.run("ada", "I live in Lisbon.")
    agent.run("ada", "I work as a nurse.")
    agent.run("ada", "My favourite drink is coffee.")
    agent.pipeline.shared_conversation(THREAD).end_session()
    agent.pipeline.flush()

    thread_s_user = SharedThread.of(THREAD)
    assert agent.pipeline.knowledge.list_facts(user_id="ada") == []
    assert agent.pipeline.knowledge.list_facts(user_id=thread_s_user) == []


def test_a_turn_alone_stands_behind_its_user_s_own_conversation() -> None:
    pipeline = ContextPipeline({"on_foreign_thread": "share"})
    pipeline.conversation(THREAD, user_id="ada").add(
        HumanMessage("My bike is blue."), AIMessage("Noted.")
    )

    prompt = pipeline.as_runnable().invoke("Which colour is my bike?", config_of("ada"))

    assert "blue" in str(prompt)


def test_a_shared_thread_is_cleared(simple: World) -> None:
    agent = simple.agent(on_foreign_thread="share")
    agent.run("ada", SECRET)
    agent.pipeline.shared_conversation(THREAD).clear()
    agent.pipeline.flush()
    assert "4711" not in str(simple.store.search((), limit=1_000))


def add(pipeline: ContextPipeline, scope: dict[str, str]) -> None:
    pipeline.add_messages([HumanMessage("x")], **scope)


def read(pipeline: ContextPipeline, scope: dict[str, str]) -> None:
    pipeline.get_messages(**scope)


def delete(pipeline: ContextPipeline, scope: dict[str, str]) -> None:
    pipeline.clear(**scope)


@pytest.mark.parametrize("use", [add, read, delete])
def test_no_user_can_have_the_id_of_a_shared_thread(
    simple: World, use: Callable[[ContextPipeline, dict[str, str]], None]
) -> None:
    pipeline = ContextPipeline(store=simple.store)
    scope = {"user_id": str(SharedThread.of(THREAD)), "conversation_id": THREAD}

    with pytest.raises(ForeignUserError):
        use(pipeline, scope)


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

    export = str(agent.pipeline.export_user(user_id="ada"))
    assert agent.messages("ada") == before
    assert agent.messages("default") == []
    assert "4711" not in world.stored("default")
    assert '"keep"' in export
    assert '"archived": true' in export
    agent.run("ada", "Three.")
    assert agent.foreign_thread_failures("ada") == []


def test_after_a_handover_the_former_owner_is_another_user(simple: World) -> None:
    agent = simple.agent()
    agent.run("default", SECRET)
    agent.pipeline.hand_over(THREAD, from_user="default", to_user="ada")
    agent.run("default", "Hello")
    assert agent.messages("default") == []
    assert agent.foreign_thread_failures("default")


async def test_a_thread_is_handed_over_in_async(simple: World) -> None:
    pipeline = ContextPipeline(store=simple.store)
    await pipeline.aadd_messages([HumanMessage(SECRET)], user_id="default", conversation_id=THREAD)
    await pipeline.ahand_over(THREAD, from_user="default", to_user="ada")
    messages = await pipeline.aget_messages(user_id="ada", conversation_id=THREAD)
    assert texts(messages) == [SECRET]


def test_a_handover_can_be_repeated(simple: World) -> None:
    agent = simple.agent()
    agent.run("default", SECRET)

    agent.pipeline.hand_over(THREAD, from_user="default", to_user="ada")
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
    [fact] = agent.pipeline.knowledge.list_facts(user_id="ada")
    assert fact.text == '"I live in Lisbon."'


class ApplicationWithState:
    """An application that keeps the state of a graph from one turn to the next."""

    def __init__(self, graph: Any) -> None:
        self.graph = graph
        self.state: dict[str, Any] = {"messages": []}

    def say(self, user: str, text: str) -> str:
        """Runs a turn; returns what its model is sent."""
        self.state["messages"].append(HumanMessage(text, id=text))
        result = self.graph.invoke(self.state, config_of(user))
        self.state["ctxbudget_turn"] = result["ctxbudget_turn"]
        self.state["messages"].append(AIMessage("Yes.", id=f"to {text}"))
        return str(result["llm_input_messages"])


def test_what_prompts_have_shown_of_the_former_owner_stays_behind(simple: World) -> None:
    pipeline = ContextPipeline({"max_context_tokens": 2_000}, store=simple.store)
    pipeline.add_messages(
        [HumanMessage("The safe's code is 99887.")], user_id="default", conversation_id="other"
    )
    application = ApplicationWithState(build_context_graph(pipeline))

    application.say("default", "Good morning, the river is high.")
    assert "99887" in application.say("default", "What is the safe's code?")
    pipeline.hand_over(THREAD, from_user="default", to_user="ada")

    assert "99887" not in application.say("ada", "Hello.")
    assert "99887" not in application.say("ada", "What did you say of the safe's code?")


def test_the_conversations_of_all_agents_are_handed_over(simple: World) -> None:
    pipeline = ContextPipeline(store=simple.store)
    for agent in ("first", "second"):
        graph = build_context_graph(pipeline, agent=agent)
        graph.invoke({"messages": STATE}, config_of("default"))

    pipeline.hand_over(THREAD, from_user="default", to_user="ada")
    assert pipeline.list_conversations(user_id="default") == []
    assert len(pipeline.list_conversations(user_id="ada")) == 2


def test_a_thread_is_handed_over_under_whichever_name_it_is_kept(simple: World) -> None:
    pipeline = ContextPipeline(store=simple.store)
    graph = build_context_graph(pipeline)
    config: Any = {"configurable": {"thread_id": THREAD}}
    note = RunContext(user_id="default", conversation_id="a note")
    graph.invoke({"messages": STATE}, config, context=note)

    pipeline.hand_over(THREAD, from_user="default", to_user="ada")
    assert len(pipeline.get_messages(user_id="ada", conversation_id="a note")) == 2
    assert "4711" not in simple.stored("default")


def test_all_threads_of_a_user_are_handed_over_one_by_one(simple: World) -> None:
    pipeline = ContextPipeline(store=simple.store)
    for agent in (None, "first", "second"):
        graph = build_context_graph(pipeline, agent=agent)
        graph.invoke({"messages": STATE}, config_of("default"))
    pipeline.conversation("plain", user_id="default").add(HumanMessage(SECRET))
    before = pipeline.list_conversations(user_id="default")
    for conversation_id in reversed(before):
        pipeline.hand_over(conversation_id, from_user="default", to_user="ada")
    assert pipeline.list_conversations(user_id="ada") == before
    assert "4711" not in simple.stored("default")


def test_a_thread_of_nobody_is_not_handed_over(simple: World) -> None:
    agent = simple.agent()

    with pytest.raises(ForeignUserError, match="'c1'"):
        agent.pipeline.hand_over(THREAD, from_user="default", to_user="ada")


def test_a_thread_of_a_third_user_is_not_handed_over(simple: World) -> None:
    agent = simple.agent()
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

    batches_left: int | None = None

    def batch(self, ops: Any) -> Any:
        if self.batches_left is not None:
            if self.batches_left == 0:
                raise ConnectionAbortedError("killed")
            self.batches_left -= 1
        return super().batch(ops)


class CutOffHandover:
    """A handover from the user `default` to Ada that is killed before one of its batches."""

    def __init__(self, batches: int) -> None:
        self.store = Failing()
        pipeline = self.another_process()
        build_context_graph(pipeline).invoke({"messages": STATE}, config_of("default"))
        self.store.batches_left = batches
        with suppress(ConnectionAbortedError):
            pipeline.hand_over(THREAD, from_user="default", to_user="ada")
        self.store.batches_left = None

    def another_process(self) -> ContextPipeline:
        return ContextPipeline({"learn": False}, store=self.store)

    def texts_of(self, user: str) -> list[str]:
        pipeline = self.another_process()
        return texts(pipeline.get_messages(user_id=user, conversation_id=THREAD))


CUT_OFF_ANYWHERE = pytest.mark.parametrize(
    "batches", few_are_quick([4, 20, 36, *sorted({*range(0, 60, 2)} - {4, 20, 36})], 3)
)


@CUT_OFF_ANYWHERE
def test_a_handover_that_is_cut_off_loses_nothing(batches: int) -> None:
    handover = CutOffHandover(batches)

    assert [SECRET, "Noted."] in (handover.texts_of("default"), handover.texts_of("ada"))


@CUT_OFF_ANYWHERE
def test_a_handover_that_is_cut_off_goes_on(batches: int) -> None:
    handover = CutOffHandover(batches)

    again = handover.another_process()
    again.hand_over(THREAD, from_user="default", to_user="ada")

    assert handover.texts_of("ada") == [SECRET, "Noted."]
    assert handover.texts_of("default") == []
    assert not handover.store.search(("ctxbudget", label("default")), limit=10)


def test_a_scope_of_a_shared_thread_is_no_user_s() -> None:
    assert Scope(SharedThread.of("a"), "a").is_shared


def test_a_scope_of_a_user_is_no_shared_thread_s() -> None:
    assert not Scope("ada", "a").is_shared


# Claims of several processes, each store operation at a moment of its own


class Claims:
    """Processes of users that claim one thread.

    Args:
        users: whose the processes are; a user may have several.
        killed: the process that is killed before one of its operations, if any.
    """

    def __init__(
        self, store: BaseStore, users: list[str], rng: random.Random, killed: int | None
    ) -> None:
        self.users = users
        self.killed = killed
        self.rng = rng
        self.operations_before_the_kill = rng.randint(0, 4)
        self.flows: dict[int, Any] = {}
        for number, user in enumerate(users):
            self.flows[number] = owners.claim(store, Scope(user, THREAD), THREAD)
        self.results: dict[int, Any] = {}
        self.owners: set[str] = set()

    def run(self) -> None:
        while self.flows:
            number = self.rng.choice(sorted(self.flows))
            if number != self.killed:
                self._go_on(number)
            elif self.operations_before_the_kill == 0:
                del self.flows[number]
            else:
                self.operations_before_the_kill -= 1
                self._go_on(number)

    def _go_on(self, number: int) -> None:
        try:
            operation = self.flows[number].send(self.results.get(number))
            self.results[number] = operation.sync()
        except StopIteration as end:
            del self.flows[number]
            if end.value:
                self.owners.add(self.users[number])
        except StoreError:
            del self.flows[number]


def owner_after(store: BaseStore, users: list[str], rng: random.Random, killed: int | None) -> str:
    """The owner after four runs of all processes; in the first one, one may be killed."""
    found: set[str] = set()
    for kill in (killed, None, None, None):
        claims = Claims(store, users, rng, kill)
        claims.run()
        found |= claims.owners
    [owner] = found
    return owner


def marks_of_claims(store: BaseStore) -> list[str]:
    place = (*owners.owner_place(owners.thread_key(THREAD)).namespace, owners.CLAIMS)
    return [item.value["owner"] for item in store.search(place)]


@pytest.mark.parametrize("seed", few_are_quick(range(60), 10))
def test_in_whatever_order_users_claim_a_thread_one_gets_it(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owners, "SECONDS_BETWEEN_LOOKS", 0.0)
    rng = random.Random(seed)
    store = InMemoryStore()
    users = [f"u{number}" for number in range(rng.randint(2, 4))]
    users += users[: rng.randint(0, 2)]  # some have two processes
    killed = rng.choice([None, *range(len(users))])

    owner = owner_after(store, users, rng, killed)

    mark = owners.owner_mark(owners.thread_key(THREAD), owner)
    marks = marks_of_claims(store)
    others = [other for other in marks if other != mark]
    assert mark in marks
    assert others == [] or killed is not None
    assert len(others) <= 1
