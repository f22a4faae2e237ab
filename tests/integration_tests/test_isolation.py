"""Users never see each other, whatever they do through any public way in, on any store."""

import inspect
import json
import random
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langgraph.store.base import BaseStore
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import (
    BudgetedChatMessageHistory,
    ContextPipeline,
    build_context_graph,
    build_remember_node,
    create_recall_tool,
)
from langchain_ctxbudget.errors import BudgetTooSmallError, InputError, MissingScopeError
from langchain_ctxbudget.knowledge import UserKnowledge
from langchain_ctxbudget.pipeline.snapshots import SnapshotBook
from langchain_ctxbudget.pipeline.usage import UsageBook
from langchain_ctxbudget.prompt import AssembledContext
from langchain_ctxbudget.stores import label
from tests.integration_tests.learning_models import asks_to_learn
from tests.integration_tests.summary_models import Scripted, learned, summary, words

USERS = [
    "zoexa",
    "zoexa2",
    "zoex",
    "zoexa.b",
    "zoexa~",
    "zoexa%",
    "zoexa_",
    "zoexa*",
    "%",
    "_",
    "*",
    "~",
    "'zoexa\"",
    "zoexa'; DROP TABLE store; --",
    "zoexa\U0001f642",
    "zoexa\0",
    "zoexa/c1",
    "zoexa=7E",
]
CONVERSATIONS = ["c1", "c.1", "%", "*", "c~"]
PERSONAS = [None, "p", "p~"]
DEVICES = ["d1", "d~"]
MARK = re.compile(r"OWNER\d\dX")
SETTINGS = {"max_context_tokens": 700, "span_messages": 4, "keep_messages": 4, "keep_snapshots": 2}
QUESTION = "What did we say about the river and the morning train?"

WITHOUT_SCOPE = {
    "as_runnable",
    "observe_usage",
    "what_if",
    "flush",
    "aflush",
    "close",
    "hand_over",
    "ahand_over",
    "shared_conversation",
    "sweep",
    "asweep",
}
"""What is about the pipeline as a whole, about the last prompt that it made, takes its scope from a
run, or is about threads of several users (`test_thread_owners`), or all (`test_retention`)."""


def mark(user: str) -> str:
    return f"OWNER{USERS.index(user):02}X"


def spellings(user: str) -> list[str]:
    """Returns the ways in which a user's name may be written, the longest first."""
    forms = {
        user,
        label(user),
        repr(user)[1:-1],
        json.dumps(user)[1:-1],
        json.dumps(label(user))[1:-1],
    }
    return sorted(forms, key=len, reverse=True)


def answer(prompt: str) -> str:
    marks = sorted(set(MARK.findall(prompt)))
    if asks_to_learn(prompt):
        return learned(*marks)
    return summary(f"Seen: {' '.join(marks)}.")


def require_own(user: str, returned: object) -> None:
    """Nothing in what was returned is another's, by mark or by name."""
    if isinstance(returned, AssembledContext):
        returned = (
            returned.messages,
            returned.report.to_dict(),
            returned.report.to_text(),
            str(returned.report),
        )
    text = repr(returned)
    assert set(MARK.findall(text)) <= {mark(user)}
    if "zoex" in user:
        for spelling in spellings(user):
            text = text.replace(spelling, "")
    assert [name for name in USERS if name != user and is_named(name, text)] == []


def is_named(user: str, text: str) -> bool:
    """Whether a text has the name of a user; names like "%" stand in any text."""
    return "zoex" in user and any(spelling in text for spelling in spellings(user))


@dataclass
class World:
    """A store that many users work on through two pipelines."""

    store: BaseStore
    rng: random.Random
    sizes: Counter[tuple[str, str]] = field(default_factory=Counter)
    erased: set[str] = field(default_factory=set)
    spent: Counter[tuple[str, str | None]] = field(default_factory=Counter)
    foreign: dict[str, list[str]] = field(default_factory=lambda: defaultdict(lambda: ["none"]))
    number: int = 0
    done: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        model = Scripted(answer=answer)
        self.pipelines = [
            ContextPipeline(SETTINGS, store=self.store, summary_model=model) for _ in range(2)
        ]
        for user in USERS:
            self.pipelines[0].add_messages(
                [HumanMessage(mark(user), id="m0")], user_id=user, conversation_id="quiet"
            )

    def step(self) -> None:
        """One random thing, by a random user; what it returns or raises is looked at."""
        self.user = self.rng.choice(USERS)
        # Few conversations that much happens in find more than many that are empty.
        conversations = CONVERSATIONS[: 1 + USERS.index(self.user) % 5]
        self.conversation = self.rng.choice(conversations)
        self.pipeline = self.rng.choice(self.pipelines)
        name = self.rng.choice(list(OPERATIONS))
        self.done.add(name)
        try:
            returned = OPERATIONS[name](self)
        except (BudgetTooSmallError, InputError) as error:
            returned = (str(error), str(error.__cause__), str(error.__context__))
        require_own(self.user, returned)

    @property
    def scope(self) -> dict[str, str]:
        return {"user_id": self.user, "conversation_id": self.conversation}

    @property
    def config(self) -> Any:
        return {"configurable": {"user_id": self.user, "thread_id": self.conversation}}

    def ask(self, name: str, **arguments: Any) -> Any:
        return getattr(self.pipeline, name)(**self.scope, **arguments)

    def know(self, name: str, /, *given: Any, **arguments: Any) -> Any:
        return getattr(self.pipeline.knowledge, name)(*given, user_id=self.user, **arguments)

    def text(self) -> str:
        self.number += 1
        return f"{mark(self.user)} {self.number}: {words(self.number, 12)}"

    def new(self) -> list[BaseMessage]:
        first = self.sizes[self.user, self.conversation]
        self.sizes[self.user, self.conversation] += 4
        return [
            HumanMessage(self.text(), id=f"m{first}"),
            AIMessage(self.text(), id=f"m{first + 1}"),
            HumanMessage(self.text(), id=f"m{first + 2}"),
            AIMessage(self.text(), id=f"m{first + 3}"),
        ]

    def key(self) -> str:
        return f"m{self.rng.randrange(1 + self.sizes[self.user, self.conversation])}"

    def one_of(self, *choices: Any) -> Any:
        return self.rng.choice(choices)

    def other(self, kind: str, own: Sequence[str]) -> str:
        """Returns an id of one's own, or now and then one that anybody has seen."""
        self.foreign[kind] += own
        if own and self.rng.random() < 0.8:
            return self.rng.choice(own)
        return self.rng.choice(self.foreign[kind][-40:])

    def item(self) -> str:
        own = [*self.know("list_facts"), *self.know("list_topics"), *self.know("list_entities")]
        return self.other("item", [item.id for item in own])

    def state(self) -> dict[str, Any]:
        question = HumanMessage(f"{mark(self.user)} {QUESTION}")
        return {"messages": [*self.ask("get_messages")[-8:], question]}

    def page(self) -> object:
        bookmark = self.rng.choice([None, *self.foreign["page"][-40:]])
        where = {"limit": self.rng.randint(1, 30)}
        if bookmark is not None:
            where["before"] = bookmark
        page = self.ask("get_page", **where)
        if page.before:
            self.foreign["page"].append(page.before)
        return page.messages

    def clear(self) -> object:
        self.spent[self.user, self.conversation] = 0
        return self.ask("clear")

    def export(self) -> object:
        return self.pipeline.export_user(user_id=self.user)

    def erase(self) -> object:
        if self.rng.random() < 0.8:
            return self.export()
        self.erased.add(self.user)
        self.spent = Counter(
            {at: tokens for at, tokens in self.spent.items() if at[0] != self.user}
        )
        count = self.pipeline.erase_user(user_id=self.user)
        assert self.pipeline.export_user(user_id=self.user) == []
        return count

    def assemble(self) -> AssembledContext:
        where = {"persona_id": self.one_of(*PERSONAS), "device_id": self.one_of(None, *DEVICES)}
        context = self.ask("assemble", message=QUESTION, **where)
        assert context.report.failures == ()
        return context

    def save_settings(self) -> object:
        settings = {}
        if self.rng.random() < 0.8:
            settings = {"preferences": [f"Answer {mark(self.user)} shortly."]}
        return self.pipeline.save_settings(
            settings, user_id=self.user, persona_id=self.one_of(*PERSONAS)
        )

    def remember(self) -> object:
        node = build_remember_node(self.pipeline, default_user=self.one_of(None, "zoex"))
        state = self.state()
        state["messages"].append(AIMessage(f"{mark(self.user)} answered."))
        return node.invoke(state, self.config)

    def recall(self) -> object:
        recall = create_recall_tool(self.pipeline, default_user=self.one_of(None, "zoex"))
        foreign = f"{mark(self.rng.choice(USERS))} river"
        arguments = self.one_of(
            {"query": foreign}, {"reference": "1-40"}, {"reference": "m2"}, {"reference": "3@5"}
        )
        return str(recall.invoke(arguments, self.config)).replace(foreign, "")

    def last_report(self) -> object:
        report = self.ask("last_report")
        return None if report is None else report.to_dict()

    def record(self) -> object:
        tokens = self.rng.randrange(1, 1_000)
        for conversation in (self.conversation, None):
            self.spent[self.user, conversation] += tokens
        # As cached, which no call of the model that learns and sums up tells.
        cached = {"cache_read": tokens}
        usage = {"input_tokens": tokens, "output_tokens": 0, "input_token_details": cached}
        return self.pipeline.usage.record(usage, **self.scope)

    def used(self) -> object:
        usage = self.pipeline.usage
        # First, as more may be counted in the background.
        own = usage.own_of_session(**self.scope)
        own_month = usage.own_of_month(user_id=self.user)
        session = usage.of_session(**self.scope)
        month = usage.of_month(user_id=self.user)
        standing = usage.standing(limits={"month_tokens": 100}, **self.scope)
        assert session.cached_tokens == self.spent[self.user, self.conversation]
        assert month.cached_tokens == self.spent[self.user, None]
        assert standing is not None
        assert standing.used >= month.total_tokens
        assert own.total.calls <= session.calls
        assert own_month.total.calls <= month.calls
        return session, month, own, own_month

    def snapshots(self) -> object:
        book = self.pipeline.snapshots
        snapshots = book.list(**self.scope)
        ids = [snapshot.id for snapshot in snapshots]
        snapshot = book.get(self.other("snapshot", ids), **self.scope)
        seen = snapshots if snapshot is None else [*snapshots, snapshot]
        assert {each.report.user_id for each in seen} <= {self.user}
        return snapshots, snapshot


Way = Callable[[World], object]
OPERATIONS: dict[str, Way] = {
    "add_messages": lambda it: it.ask("add_messages", messages=it.new()),
    "sync": lambda it: it.ask(
        "sync",
        messages=[*it.ask("get_messages")[::2][-20:], *it.new()],
        on_removal=it.one_of("archive", "forget"),
    ),
    "get_messages": lambda it: it.ask("get_messages"),
    "get_page": World.page,
    "edit_message": lambda it: it.ask(
        "edit_message", message_id=it.key(), message=HumanMessage(it.text())
    ),
    "remove_messages": lambda it: it.ask(
        "remove_messages", message_ids=it.key(), on_removal=it.one_of("archive", "forget")
    ),
    "fork": lambda it: it.ask("fork", new_conversation_id=it.one_of(*CONVERSATIONS)),
    "clear": lambda it: it.one_of(it.clear, it.assemble, it.page)(),
    "pin": lambda it: it.ask(
        "pin", message_ids=it.key(), preservation=it.one_of("keep", "drop", None)
    ),
    "coverage": lambda it: it.ask("coverage"),
    "get_compactions": lambda it: it.ask("get_compactions"),
    "export_user": World.export,
    "erase_user": World.erase,
    "sweep_user": lambda it: it.pipeline.sweep_user({"messages": 1, "facts": 1}, user_id=it.user),
    "list_conversations": lambda it: it.pipeline.list_conversations(user_id=it.user),
    "save_settings": World.save_settings,
    "get_settings": lambda it: it.pipeline.get_settings(
        user_id=it.user, persona_id=it.one_of(*PERSONAS)
    ),
    "assemble": World.assemble,
    "forecast": lambda it: it.ask("forecast", message=QUESTION),
    "what_if": lambda it: (
        it.assemble(),
        [report.to_dict() for report in it.pipeline.what_if([600, 900])],
    ),
    "history": lambda it: BudgetedChatMessageHistory(
        it.conversation, user_id=it.user, pipeline=it.pipeline
    ).window(600),
    "graph": lambda it: build_context_graph(it.pipeline, default_user="zoex").invoke(
        it.state(), it.config
    ),
    "remember": World.remember,
    "as_runnable": lambda it: it.pipeline.as_runnable(default_user="zoex").invoke(
        it.one_of(f"{mark(it.user)} {QUESTION}", it.state()), it.config
    ),
    "recall": World.recall,
    "last_report": World.last_report,
    "end_session": lambda it: it.ask("end_session"),
    "knowledge_list_rules": lambda it: it.know("list_rules"),
    "knowledge_list_facts": lambda it: it.know("list_facts", include_ended=it.one_of(True, False)),
    "knowledge_list_topics": lambda it: it.know("list_topics"),
    "knowledge_list_entities": lambda it: it.know("list_entities"),
    "knowledge_list_bundles": lambda it: it.know("list_bundles"),
    "knowledge_list_devices": lambda it: it.know("list_devices"),
    "knowledge_list_known": lambda it: it.know("list_known"),
    "knowledge_add_fact": lambda it: it.know("add_fact", f"Likes {it.text()}"),
    "knowledge_edit": lambda it: it.know(
        "edit", it.item(), **{it.one_of("text", "label", "name"): it.text()}
    ),
    "knowledge_delete": lambda it: it.know("delete", it.item()),
    "knowledge_pin": lambda it: it.know("pin", it.item(), pinned=it.one_of(True, False)),
    "knowledge_why": lambda it: it.know("why", it.item()),
    "knowledge_heartbeat": lambda it: it.know(
        "heartbeat",
        device_id=it.one_of(*DEVICES),
        active_conversation_id=it.conversation,
        path=f"/{mark(it.user)}",
    ),
    "knowledge_add_topic": lambda it: it.know("add_topic", it.text(), compiled_context=it.text()),
    "knowledge_add_entity": lambda it: it.know(
        "add_entity", it.text(), type="person", relationship=it.text()
    ),
    "knowledge_describe": lambda it: it.know("describe"),
    "knowledge_clear": lambda it: it.know("clear"),
    "status": lambda it: it.ask("status"),
    "snapshots_analytics": lambda it: it.pipeline.snapshots.analytics(
        user_id=it.user, conversation_id=it.one_of(None, it.conversation)
    ),
    "usage_record": World.record,
    **dict.fromkeys(
        (
            "usage_of_session",
            "usage_of_month",
            "usage_own_of_session",
            "usage_own_of_month",
            "usage_standing",
        ),
        World.used,
    ),
    **dict.fromkeys(("snapshots_list", "snapshots_latest", "snapshots_get"), World.snapshots),
}
BY_OTHER_NAMES = {
    "conversation",
    "observe_usage",
    "flush",
    "close",
    "hand_over",
    "shared_conversation",
    "sweep",
}
"""Public methods that return nothing of a conversation (numbers, whether something is done), or are
of several."""


def methods() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Every public method of a pipeline, by how it is reached."""
    for prefix, kind in (
        ("", ContextPipeline),
        ("knowledge.", UserKnowledge),
        ("usage.", UsageBook),
        ("snapshots.", SnapshotBook),
    ):
        for name, method in inspect.getmembers(kind, callable):
            if not name.startswith("_"):
                yield prefix + name, method


def test_every_public_method_is_among_the_operations() -> None:
    blocking = {
        name.replace(".", "_")
        for name, method in methods()
        if not inspect.iscoroutinefunction(method)
    }
    assert blocking - set(OPERATIONS) == BY_OTHER_NAMES


def walk(store: BaseStore, steps: int, seed: int) -> None:
    world = World(store, random.Random(seed))
    for _ in range(steps):
        world.step()
    assert all(pipeline.flush(60) for pipeline in world.pipelines)
    items = 0
    for user in USERS:
        world.user = user
        known = [world.know(f"list_{kind}") for kind in ("facts", "topics", "entities", "bundles")]
        require_own(user, known)
        items += sum(len(each) for each in known)
        require_quiet_conversation(world, user)
    assert items > len(USERS)
    assert world.done == set(OPERATIONS)


def require_quiet_conversation(world: World, user: str) -> None:
    """The conversation that nobody worked on is as it was, unless its user was erased."""
    pipeline = ContextPipeline(store=world.store)
    messages = pipeline.get_messages(user_id=user, conversation_id="quiet")
    expected = [] if user in world.erased else [mark(user)]
    assert [message.text for message in messages] == expected


@pytest.mark.parametrize("steps", [400, pytest.param(2_500, marks=pytest.mark.slow)])
def test_random_operations_show_nothing_of_another_user(steps: int) -> None:
    walk(InMemoryStore(), steps, seed=1)


@pytest.mark.slow
def test_random_operations_on_every_store_show_nothing_of_another_user(store: BaseStore) -> None:
    walk(store, 400, seed=3)


# Without a scope


ARGUMENTS = {
    "messages": [HumanMessage("hello")],
    "message": HumanMessage("hello"),
    "message_ids": ["m"],
    "message_id": "m",
    "new_conversation_id": "new",
    "settings": {"keep_messages": 4},
    "user_id": "zoexa",
    "conversation_id": "c1",
    "text": "Likes trains",
    "label": "Trains",
    "name": "Zoe",
    "item_id": "f1",
    "device_id": "d1",
    "usage_metadata": {"input_tokens": 5, "output_tokens": 1, "total_tokens": 6},
    "snapshot_id": "s1",
}
"""Something for every argument that a method needs."""
PARTS = ("user_id", "conversation_id", "new_conversation_id")


def is_needed(parameter: inspect.Parameter) -> bool:
    has_no_default = parameter.default is parameter.empty
    return has_no_default and parameter.kind is not parameter.VAR_KEYWORD


def arguments(method: Callable[..., Any]) -> dict[str, Any]:
    parameters = inspect.signature(method).parameters.values()
    return {each.name: ARGUMENTS[each.name] for each in parameters if is_needed(each)}


async def finished(method: Callable[..., Any], **given: Any) -> Any:
    returned = method(**given)
    return await returned if inspect.isawaitable(returned) else returned


def test_every_other_method_wants_a_user() -> None:
    without_user = set()
    for name, method in methods():
        if "user_id" not in inspect.signature(method).parameters:
            without_user.add(name)
    assert without_user == WITHOUT_SCOPE


def parts_of_scopes() -> list[tuple[str, str]]:
    """Returns each part of the scope of each method that has one, after the method's name."""
    parts = []
    for name, method in methods():
        if name not in WITHOUT_SCOPE:
            parameters = inspect.signature(method).parameters
            parts += [(name, part) for part in PARTS if part in parameters]
    return parts


@pytest.mark.parametrize("part", PARTS)
def test_no_part_of_a_scope_has_a_default(part: str) -> None:
    parameters = [inspect.signature(method).parameters for _, method in methods()]
    defaults = [each[part].default for each in parameters if part in each]
    assert set(defaults) == {inspect.Parameter.empty}


async def is_refused(method: Callable[..., Any], part: str, value: object) -> bool:
    """Whether a value in a part of the scope is refused, in words that name the part."""
    try:
        await finished(method, **{**arguments(method), part: value})
    except MissingScopeError as error:
        return part.removeprefix("new_") in str(error)
    return False


@pytest.mark.parametrize(("name", "part"), parts_of_scopes())
async def test_a_wrong_part_of_a_scope_is_an_error(name: str, part: str) -> None:
    store = InMemoryStore()
    method = attrgetter(name)(ContextPipeline(store=store))
    wrong = [None, "", 7, b"zoexa", ["zoexa"]]
    if name in ("snapshots.analytics", "snapshots.aanalytics") and part == "conversation_id":
        wrong.remove(None)  # all conversations
    accepted = [value for value in wrong if not await is_refused(method, part, value)]
    assert accepted == []
    assert store.search(()) == []


@pytest.mark.parametrize("name", [name for name, _ in methods() if name not in WITHOUT_SCOPE])
async def test_a_missing_user_is_an_error(name: str) -> None:
    store = InMemoryStore()
    method = attrgetter(name)(ContextPipeline(store=store))
    without_user = arguments(method)
    del without_user["user_id"]
    with pytest.raises(MissingScopeError, match="user_id"):
        await finished(method, **without_user)
    assert store.search(()) == []


RUNS: Sequence[dict[str, Any]] = [
    {},
    {"thread_id": "c1"},
    {"thread_id": "c1", "user_id": ""},
    {"thread_id": "c1", "user_id": None},
    {"thread_id": "c1", "langgraph_auth_user": {}},
]
WITHOUT_A_THREAD: Sequence[dict[str, Any]] = [
    {"user_id": "zoexa"},
    {"thread_id": "", "user_id": "zoexa"},
]
"""A graph's run is a conversation of its own then; a tool that is called outside of a state has
none to read."""


@pytest.mark.parametrize("configurable", RUNS, ids=str)
def test_a_graph_in_a_run_without_a_user_is_an_error(configurable: dict[str, Any]) -> None:
    store = InMemoryStore()
    graph = build_context_graph(ContextPipeline(store=store))
    with pytest.raises(MissingScopeError):
        graph.invoke({"messages": [("human", "hello")]}, {"configurable": configurable})
    assert store.search(()) == []


@pytest.mark.parametrize("configurable", RUNS, ids=str)
def test_nothing_is_remembered_of_a_run_without_a_user(configurable: dict[str, Any]) -> None:
    store = InMemoryStore()
    node = build_remember_node(ContextPipeline(store=store))
    with pytest.raises(MissingScopeError):
        node.invoke({"messages": [HumanMessage("hello")]}, {"configurable": configurable})
    assert store.search(()) == []


@pytest.mark.parametrize("configurable", [*RUNS, *WITHOUT_A_THREAD], ids=str)
def test_a_tool_in_a_run_without_a_scope_is_an_error(configurable: dict[str, Any]) -> None:
    store = InMemoryStore()
    recall = create_recall_tool(ContextPipeline(store=store))
    with pytest.raises(MissingScopeError):
        recall.invoke({"query": "hello"}, {"configurable": configurable})
    assert store.search(()) == []
