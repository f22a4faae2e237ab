"""Users never see each other.

Random work of many users through every public way in, on every store.
"""

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
    *(
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
    ),
    *("zoexa'; DROP TABLE store; --", "zoexa\U0001f642", "zoexa\0", "zoexa/c1", "zoexa=7E"),
]
CONVERSATIONS = ["c1", "c.1", "%", "*", "c~"]
PERSONAS = [None, "p", "p~"]
DEVICES = ["d1", "d~"]
MARK = re.compile(r"OWNER\d\dX")
SETTINGS = {"max_context_tokens": 700, "span_messages": 4, "keep_messages": 4, "keep_snapshots": 2}
QUESTION = "What did we say about the river and the morning train?"

WITHOUT_SCOPE = {"as_runnable", "observe_usage", "what_if", "flush", "aflush", "close"}
WITHOUT_SCOPE |= {"hand_over", "ahand_over", "shared_conversation"}
"""What is about the pipeline as a whole, about the last prompt that it made, takes its scope from a
run, or is about threads of several users (`test_thread_owners`)."""


def mark(user: str) -> str:
    return f"OWNER{USERS.index(user):02}X"


def spellings(user: str) -> list[str]:
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
    return learned(*marks) if asks_to_learn(prompt) else summary(f"Seen: {' '.join(marks)}.")


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
    for own in spellings(user):
        text = text.replace(own, "") if "zoex" in own else text
    for other in USERS:
        if "zoex" in other and other != user:
            assert not any(form in text for form in spellings(other)), (
                f"{other!r} in what {user!r} got"
            )


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
        # Few conversations that much happens in find more than many that are empty.
        user = self.rng.choice(USERS)
        self.user, self.conversation = (
            user,
            self.rng.choice(CONVERSATIONS[: 1 + USERS.index(user) % 5]),
        )
        self.pipeline = self.rng.choice(self.pipelines)
        name = self.rng.choice(list(OPERATIONS))
        self.done.add(name)
        try:
            returned = OPERATIONS[name](self)
        except (BudgetTooSmallError, InputError) as error:
            returned = (str(error), str(error.__cause__), str(error.__context__))
        require_own(user, returned)

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
        at = self.user, self.conversation
        first, self.sizes[at] = self.sizes[at], self.sizes[at] + 4
        kinds = (HumanMessage, AIMessage)
        return [
            kinds[number % 2](self.text(), id=f"m{number}") for number in range(first, first + 4)
        ]

    def key(self) -> str:
        return f"m{self.rng.randrange(1 + self.sizes[self.user, self.conversation])}"

    def one_of(self, *choices: Any) -> Any:
        return self.rng.choice(choices)

    def other(self, kind: str, own: Sequence[str]) -> str:
        self.foreign[kind] += own
        return self.rng.choice(own if own and self.rng.random() < 0.8 else self.foreign[kind][-40:])

    def item(self) -> str:
        return self.other(
            "item",
            [it.id for kind in ("facts", "topics", "entities") for it in self.know(f"list_{kind}")],
        )

    def state(self) -> dict[str, Any]:
        return {
            "messages": [
                *self.ask("get_messages")[-8:],
                HumanMessage(f"{mark(self.user)} {QUESTION}"),
            ]
        }

    def page(self) -> object:
        bookmark = self.rng.choice([None, *self.foreign["page"][-40:]])
        where = {} if bookmark is None else {"before": bookmark}
        page = self.ask("get_page", limit=self.rng.randint(1, 30), **where)
        self.foreign["page"] += [page.before] if page.before else []
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
        said = (
            {"preferences": [f"Answer {mark(self.user)} shortly."]}
            if self.rng.random() < 0.8
            else {}
        )
        return self.pipeline.save_settings(
            said, user_id=self.user, persona_id=self.one_of(*PERSONAS)
        )

    def recall(self) -> object:
        recall = create_recall_tool(self.pipeline, default_user=self.one_of(None, "zoex"))
        foreign = f"{mark(self.rng.choice(USERS))} river"
        asked = self.one_of(
            {"query": foreign}, {"reference": "1-40"}, {"reference": "m2"}, {"reference": "3@5"}
        )
        return str(recall.invoke(asked, self.config)).replace(foreign, "")

    def record(self) -> object:
        tokens = self.rng.randrange(1, 1_000)
        for conversation in (self.conversation, None):
            self.spent[self.user, conversation] += tokens
        usage = {"input_tokens": tokens, "output_tokens": 0, "total_tokens": tokens}
        return self.pipeline.usage.record(usage, **self.scope)

    def used(self) -> object:
        usage = self.pipeline.usage
        found = usage.of_session(**self.scope), usage.of_month(user_id=self.user)
        assert [one.total_tokens for one in found] == [
            self.spent[self.user, at] for at in (self.conversation, None)
        ]
        assert (
            usage.standing(limits={"month_tokens": 100}, **self.scope).used
            == self.spent[self.user, None]
        )  # type: ignore[union-attr]
        return found

    def snapshots(self) -> object:
        book = self.pipeline.snapshots
        found = book.list(**self.scope)
        one = book.get(self.other("snapshot", [it.id for it in found]), **self.scope)
        assert all(it.report.user_id == self.user for it in (*found, one) if it)
        return found, one


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
    "list_conversations": lambda it: it.pipeline.list_conversations(user_id=it.user),
    "save_settings": World.save_settings,
    "get_settings": lambda it: it.pipeline.get_settings(
        user_id=it.user, persona_id=it.one_of(*PERSONAS)
    ),
    "assemble": World.assemble,
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
    "as_runnable": lambda it: it.pipeline.as_runnable(default_user="zoex").invoke(
        it.one_of(f"{mark(it.user)} {QUESTION}", it.state()), it.config
    ),
    "recall": World.recall,
    "last_report": lambda it: (report := it.ask("last_report")) and report.to_dict(),
    "end_session": lambda it: it.ask("end_session"),
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
    **dict.fromkeys(("usage_of_session", "usage_of_month", "usage_standing"), World.used),
    **dict.fromkeys(("snapshots_list", "snapshots_latest", "snapshots_get"), World.snapshots),
}
BY_OTHER_NAMES = {
    "conversation",
    "observe_usage",
    "flush",
    "close",
    "hand_over",
    "shared_conversation",
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
    known = []
    for world.user in USERS:
        known += [world.know(f"list_{kind}") for kind in ("facts", "topics", "entities", "bundles")]
        require_own(world.user, known[-4:])
        quiet = ContextPipeline(store=store).get_messages(
            user_id=world.user, conversation_id="quiet"
        )
        assert [message.text for message in quiet] == (
            [] if world.user in world.erased else [mark(world.user)]
        )
    assert sum(map(len, known)) > len(USERS)
    assert world.done == set(OPERATIONS)


@pytest.mark.parametrize("steps", [600, pytest.param(2_500, marks=pytest.mark.slow)])
def test_random_operations_show_nothing_of_another_user(steps: int) -> None:
    walk(InMemoryStore(), steps, seed=1)


@pytest.mark.slow
def test_random_operations_on_every_store_show_nothing_of_another_user(store: BaseStore) -> None:
    walk(store, 400, seed=3)


# Without a scope


def arguments(method: Callable[..., Any]) -> dict[str, Any]:
    """Something for every argument that a method needs."""
    given = {
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
    parameters = inspect.signature(method).parameters.values()
    wanted = [
        p.name
        for p in parameters
        if p.default is p.empty and p.kind is not p.VAR_KEYWORD and p.name != "self"
    ]
    return {name: given[name] for name in wanted}


async def finished(method: Callable[..., Any], **given: Any) -> Any:
    returned = method(**given)
    return await returned if inspect.isawaitable(returned) else returned


PARTS = ("user_id", "conversation_id", "new_conversation_id")


def test_every_other_method_wants_a_user_and_has_no_default_for_its_scope() -> None:
    asks = {name: inspect.signature(method).parameters for name, method in methods()}
    assert {
        name for name, parameters in asks.items() if "user_id" not in parameters
    } == WITHOUT_SCOPE
    assert {it[part].default for it in asks.values() for part in PARTS if part in it} == {
        inspect.Parameter.empty
    }


@pytest.mark.parametrize("name", [name for name, _ in methods() if name not in WITHOUT_SCOPE])
async def test_a_missing_scope_is_an_error(name: str) -> None:
    store = InMemoryStore()
    method = attrgetter(name)(ContextPipeline(store=store))
    given = arguments(method)
    for part in (part for part in PARTS if part in inspect.signature(method).parameters):
        all_of_them = (
            name.startswith("snapshots.")
            and name.endswith("analytics")
            and part == "conversation_id"
        )
        for missing in (*([] if all_of_them else [None]), "", 7, b"zoexa", ["zoexa"]):
            with pytest.raises(MissingScopeError, match=part.removeprefix("new_")):
                await finished(method, **{**given, part: missing})
    with pytest.raises(MissingScopeError, match="user_id"):
        await finished(
            method, **{name: value for name, value in given.items() if name != "user_id"}
        )
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


def test_a_run_without_a_scope_is_an_error() -> None:
    store = InMemoryStore()
    pipeline = ContextPipeline(store=store)
    graph = build_context_graph(pipeline)
    recall = create_recall_tool(pipeline)
    for run_of in RUNS:
        with pytest.raises(MissingScopeError):
            graph.invoke({"messages": [("human", "hello")]}, {"configurable": run_of})
    for run_of in (*RUNS, *WITHOUT_A_THREAD):
        with pytest.raises(MissingScopeError):
            recall.invoke({"query": "hello"}, {"configurable": run_of})
    assert store.search(()) == []
