"""Users never see each other: random work of many users through every public way in, on every store.

Every text that a user stores carries a mark of its owner, and the model that summarizes and learns repeats every mark
that it reads, so that whatever crosses over shows. Conversations, messages and devices have the same ids with every
user.
"""

from __future__ import annotations

import inspect
import json
import random
import re
from collections import defaultdict
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
from langchain_ctxbudget.errors import BudgetTooSmallError, InputError, MessageConflictError, MissingScopeError
from langchain_ctxbudget.pipeline.books import SnapshotBook, UsageBook, UserKnowledge
from langchain_ctxbudget.prompt.plan import AssembledContext
from langchain_ctxbudget.stores.records import label
from tests.integration_tests.learning_models import asks_to_learn
from tests.integration_tests.summary_models import Scripted, learned, summary, words

USERS = [
    *("zoexa", "zoexa2", "zoex", "zoexa.b", "zoexa~", "zoexa%", "zoexa_", "zoexa*", "%", "_", "*", "~", "'zoexa\""),
    *("zoexa'; DROP TABLE store; --", "zoexa\U0001f642", "zoexa\0", "zoexa/c1", "zoexa=7E"),
]
CONVERSATIONS = ["c1", "c.1", "%", "*", "c~"]
PERSONAS = [None, "p", "p~"]
DEVICES = ["d1", "d~"]
MARK = re.compile(r"OWNER\d\dX")
SETTINGS = {
    "max_context_tokens": 700,
    "segment_messages": 4,
    "keep_messages": 4,
    "keep_snapshots": 2,
    "summarize_in_background": False,
}
QUESTION = "What did we say about the river and the morning train?"

WITHOUT_SCOPE = {"as_runnable", "with_model", "observe_usage", "what_if", "flush", "aflush", "close"}
"""What is about the pipeline as a whole, about the last prompt that it made, or takes its scope from a run."""


def mark(user: str) -> str:
    return f"OWNER{USERS.index(user):02}X"


def spellings(user: str) -> list[str]:
    """How an id may stand in what is returned, the longest first."""
    forms = {user, label(user), repr(user)[1:-1], json.dumps(user)[1:-1], json.dumps(label(user))[1:-1]}
    return sorted(forms, key=len, reverse=True)


def answer(prompt: str) -> str:
    """A summary, or what there is to learn: everything that was read, by its marks."""
    marks = sorted(set(MARK.findall(prompt)))
    return learned(*marks) if asks_to_learn(prompt) else summary(f"Seen: {' '.join(marks)}.")


def require_own(user: str, returned: object) -> None:
    """Nothing in what was returned is another's, by mark or by name."""
    if isinstance(returned, AssembledContext):
        returned = (returned.messages, returned.report.to_dict(), returned.report.to_text(), str(returned.report))
    text = repr(returned)
    assert set(MARK.findall(text)) <= {mark(user)}
    for own in spellings(user):
        text = text.replace(own, "") if "zoex" in own else text
    for other in USERS:
        if "zoex" in other and other != user:
            assert not any(form in text for form in spellings(other)), f"{other!r} in what {user!r} got"


@dataclass
class World:
    """A store that many users work on through two pipelines, and what each of them should find."""

    store: BaseStore
    rng: random.Random
    expected: dict[tuple[str, str], dict[str, str]] = field(default_factory=lambda: defaultdict(dict))
    archived: set[tuple[str, str]] = field(default_factory=set)
    """Conversations that have messages kept aside."""
    settings: dict[tuple[str, str | None], dict[str, Any]] = field(default_factory=dict)
    bookmarks: list[str] = field(default_factory=list)
    items: list[str] = field(default_factory=list)
    """Ids of what is known about anybody."""
    spent: dict[tuple[str, str | None], int] = field(default_factory=lambda: defaultdict(int))
    """Tokens by user and conversation; without one, of the month."""
    snapshots: list[str] = field(default_factory=list)
    """Ids of anybody's."""
    number: int = 0
    done: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        model = Scripted(answer=answer)
        self.pipelines = [ContextPipeline(SETTINGS, store=self.store, summary_model=model) for _ in range(2)]

    def step(self) -> None:
        """One random thing, by a random user; what it returns or raises is looked at."""
        # Few conversations that much happens in find more than many that are empty.
        user = self.rng.choice(USERS)
        self.user, self.conversation = user, self.rng.choice(CONVERSATIONS[: 1 + USERS.index(user) % 5])
        self.pipeline = self.rng.choice(self.pipelines)
        name = self.rng.choice(OPERATIONS)
        self.done.add(name)
        try:
            returned = getattr(self, f"do_{name}")() if hasattr(self, f"do_{name}") else SIMPLE[name](self)
        except (BudgetTooSmallError, InputError) as error:
            returned = (str(error), str(error.__cause__), str(error.__context__))
        require_own(user, returned)

    @property
    def scope(self) -> dict[str, str]:
        return {"user_id": self.user, "conversation_id": self.conversation}

    @property
    def config(self) -> Any:
        return {"configurable": {"user_id": self.user, "thread_id": self.conversation}}

    @property
    def mine(self) -> dict[str, str]:
        """What the conversation should be: texts by message id."""
        return self.expected[self.user, self.conversation]

    def ask(self, name: str, **arguments: Any) -> Any:
        return getattr(self.pipeline, name)(**self.scope, **arguments)

    def message(self, key: str) -> BaseMessage:
        self.number += 1
        text = f"{mark(self.user)} {self.number}: {words(self.number, 12)}"
        return AIMessage(text, id=key) if int(key[1:]) % 2 else HumanMessage(text, id=key)

    def key(self) -> str:
        """The id of a message that is probably there."""
        return self.rng.choice([*self.mine, "m0"])

    def new(self) -> list[BaseMessage]:
        first = max((int(key[1:]) for key in self.mine), default=-1) + 1
        first += first % 2
        return [self.message(f"m{first + n}") for n in range(4)]

    def do_add_messages(self) -> object:
        new = self.new()
        try:
            ids = self.ask("add_messages", messages=new)
        except MessageConflictError:
            # An id may stand for an archived message, which is known no more.
            raise AssertionError(new) from None
        self.mine.update((str(message.id), message.text) for message in new)
        return ids

    def do_sync(self) -> object:
        stay = [key for key in self.mine if self.rng.random() < 0.8][-20:]
        wanted = [HumanMessage(self.mine[key], id=key) for key in stay if int(key[1:]) % 2 == 0]
        how = self.rng.choice(["archive", "forget"])
        ids = self.ask("sync", messages=[*wanted, self.message("m1000")], on_removal=how)
        return ids, self._become(how)

    def _become(self, how: str = "archive") -> object:
        """Take over what there is after something that has its own tests; it is looked at all the same."""
        found = self.ask("get_messages")
        self.expected[self.user, self.conversation] = {str(message.id): message.text for message in found}
        if how == "archive":
            self.archived.add((self.user, self.conversation))
        return found

    def do_get_messages(self) -> object:
        found = self.ask("get_messages")
        assert [(message.id, message.text) for message in found] == list(self.mine.items())
        return found

    def do_get_page(self) -> object:
        """Also with bookmarks of others."""
        foreign = self.rng.choice([None, *self.bookmarks[-40:]])
        where = {} if foreign is None else {self.rng.choice(["before", "after"]): foreign}
        page = self.ask("get_page", limit=self.rng.randint(1, 30), **where)
        self.bookmarks += [bookmark for bookmark in (page.before, page.after) if bookmark]
        assert {message.text for message in page.messages} <= set(self.mine.values())
        return page.messages

    def do_edit_message(self) -> object:
        message = self.message(key := self.key())
        result = self.pipeline.edit_message(key, message, **self.scope)
        self.mine[key] = message.text
        return result

    def do_remove_messages(self) -> object:
        key, how = self.key(), self.rng.choice(["archive", "forget"])
        self.ask("remove_messages", message_ids=key, on_removal=how)
        return self._become(how)

    def do_fork(self) -> object:
        to = self.rng.choice(CONVERSATIONS)
        known = dict(self.mine)
        ids = self.ask("fork", new_conversation_id=to)
        self.expected[self.user, to] = known
        return ids

    def do_clear(self) -> object:
        if self.rng.random() < 0.7:
            return self.do_add_messages()
        self.mine.clear()
        self.spent[self.user, self.conversation] = 0
        return self.ask("clear")

    def do_coverage(self) -> object:
        states = self.ask("coverage")
        assert sorted(key for keys in states.values() for key in keys) == sorted(self.mine)
        return states

    def do_export_user(self) -> object:
        lines = self.pipeline.export_user(user_id=self.user)
        assert {json.loads(line)["namespace"][1] for line in lines} <= {label(self.user)}
        texts = {text for (user, _), texts in self.expected.items() if user == self.user for text in texts.values()}
        assert all(any(text in line for line in lines) for text in texts)
        return lines

    def do_list_conversations(self) -> object:
        found = self.pipeline.list_conversations(user_id=self.user)
        told = {conversation for user, conversation in self.expected if user == self.user}
        assert {one for one in told if self.expected[self.user, one]} <= set(found)
        return found

    def do_erase_user(self) -> object:
        if self.rng.random() < 0.8:
            return self.do_export_user()
        count = self.pipeline.erase_user(user_id=self.user)
        for user, conversation in list(self.expected):
            if user == self.user:
                self.expected[user, conversation] = {}
        self.settings = {at: said for at, said in self.settings.items() if at[0] != self.user}
        self.spent = defaultdict(int, {at: tokens for at, tokens in self.spent.items() if at[0] != self.user})
        assert self.pipeline.export_user(user_id=self.user) == []
        return count

    def do_save_settings(self) -> object:
        persona = self.rng.choice(PERSONAS)
        said = {"preferences": [f"Answer {mark(self.user)} shortly."]} if self.rng.random() < 0.8 else {}
        self.settings[self.user, persona] = said
        return self.pipeline.save_settings(said, user_id=self.user, persona_id=persona)

    def do_get_settings(self) -> object:
        persona = self.rng.choice(PERSONAS)
        found = self.pipeline.get_settings(user_id=self.user, persona_id=persona)
        assert found == self.settings.get((self.user, persona), {})
        return found

    def do_assemble(self) -> object:
        where = {"persona_id": self.rng.choice(PERSONAS), "device_id": self.rng.choice([None, *DEVICES])}
        context = self.ask("assemble", message=QUESTION, **where)
        assert context.report.failures == ()
        return context

    def do_what_if(self) -> object:
        context = self.do_assemble()
        return context, [report.to_dict() for report in self.pipeline.what_if([600, 900])]

    def do_with_model(self) -> object:
        twin = self.pipeline.with_model("gpt-4o-mini")
        return twin.assemble(QUESTION, **self.scope), twin.get_messages(**self.scope)

    def do_history(self) -> object:
        history = BudgetedChatMessageHistory(self.conversation, user_id=self.user, pipeline=self.pipeline)
        return history.messages, history.window(600)

    def do_graph(self) -> object:
        graph = build_context_graph(self.pipeline, default_user=self.rng.choice([None, "zoex"]))
        state = [*self.ask("get_messages")[-8:], HumanMessage(f"{mark(self.user)} {QUESTION}")]
        output = graph.invoke({"messages": state}, self.config)
        return output, self._become()

    def do_as_runnable(self) -> object:
        step = self.pipeline.as_runnable(default_user=self.rng.choice([None, "zoex"]))
        if self.rng.random() < 0.5:
            return step.invoke(f"{mark(self.user)} {QUESTION}", self.config)
        state = [*self.ask("get_messages")[-8:], HumanMessage(f"{mark(self.user)} {QUESTION}")]
        output = step.invoke({"messages": state}, self.config)
        return output, self._become()

    def do_recall(self) -> object:
        recall = create_recall_tool(self.pipeline, default_user=self.rng.choice([None, "zoex"]))
        if self.rng.random() < 0.3:
            foreign = mark(self.rng.choice(USERS))
            answer = recall.invoke({"query": f"{foreign} river"}, self.config)
            return str(answer).replace(f"{foreign} river", "")
        return recall.invoke({"reference": self.rng.choice(["1-40", "m2", "3@5"])}, self.config)

    def know(self, name: str, /, *given: Any, **arguments: Any) -> Any:
        return getattr(self.pipeline.knowledge, name)(*given, user_id=self.user, **arguments)

    def item(self) -> str:
        """The id of something that is probably known, at times of something of another user."""
        own = [item.id for kind in ("facts", "topics", "entities") for item in self.know(f"list_{kind}")]
        self.items += own
        return self.rng.choice(own if own and self.rng.random() < 0.8 else ["none", *self.items[-40:]])

    def do_knowledge_add_fact(self) -> object:
        self.number += 1
        return self.know("add_fact", f"Likes {mark(self.user)} {self.number}", pinned=self.rng.random() < 0.5)

    def do_knowledge_edit(self) -> object:
        self.number += 1
        changed = {self.rng.choice(["text", "label", "name"]): f"Changed {mark(self.user)} {self.number}"}
        return self.know("edit", self.item(), **changed)

    def do_knowledge_why(self) -> object:
        sources = self.know("why", self.item())
        own = {conversation for user, conversation in self.expected if user == self.user}
        assert {source.conversation_id for source in sources} <= own
        return sources

    def do_knowledge_heartbeat(self) -> object:
        where = {"active_conversation_id": self.conversation, "path": f"/{mark(self.user)}"}
        return self.know("heartbeat", device_id=self.rng.choice(DEVICES), **where)

    def do_usage_record(self) -> object:
        tokens = self.rng.randrange(1, 1_000)
        usage = {"input_tokens": tokens, "output_tokens": 0, "total_tokens": tokens}
        for conversation in (self.conversation, None):
            self.spent[self.user, conversation] += tokens
        return self.pipeline.usage.record(usage, **self.scope)

    def do_usage_of_session(self) -> object:
        found = self.pipeline.usage.of_session(**self.scope)
        assert found.total_tokens == self.spent[self.user, self.conversation]
        return found

    def do_usage_of_month(self) -> object:
        found = self.pipeline.usage.of_month(user_id=self.user)
        assert found.total_tokens == self.spent[self.user, None]
        return found

    def do_usage_standing(self) -> object:
        found = self.pipeline.usage.standing(limits={"month_tokens": 100}, **self.scope)
        assert found.used == self.spent[self.user, None]
        return found

    def do_snapshots_list(self) -> object:
        found = self.pipeline.snapshots.list(**self.scope)
        self.snapshots += [one.id for one in found]
        assert all((one.report.user_id, one.conversation_id) == tuple(self.scope.values()) for one in found)
        return found

    def do_snapshots_get(self) -> object:
        wanted = self.rng.choice(["none", *self.snapshots[-20:]])
        found = self.pipeline.snapshots.get(wanted, **self.scope)
        assert found is None or found.report.user_id == self.user
        return found

    def check_all(self) -> None:
        for (user, conversation), texts in self.expected.items():
            for pipeline in (*self.pipelines, ContextPipeline(store=self.store)):
                found = pipeline.get_messages(user_id=user, conversation_id=conversation)
                assert [(message.id, message.text) for message in found] == list(texts.items())


SIMPLE: dict[str, Callable[[World], object]] = {
    "pin": lambda it: it.ask("pin", message_ids=it.key(), preservation=it.rng.choice(["keep", "drop", None])),
    "get_compactions": lambda it: it.ask("get_compactions"),
    "end_session": lambda it: it.ask("end_session"),
    "last_report": lambda it: (report := it.ask("last_report")) and report.to_dict(),
    "knowledge_list_facts": lambda it: it.know("list_facts", include_ended=it.rng.random() < 0.5),
    "knowledge_list_topics": lambda it: it.know("list_topics"),
    "knowledge_list_entities": lambda it: it.know("list_entities"),
    "knowledge_list_bundles": lambda it: it.know("list_bundles"),
    "knowledge_list_devices": lambda it: it.know("list_devices"),
    "knowledge_delete": lambda it: it.know("delete", it.item()),
    "knowledge_pin": lambda it: it.know("pin", it.item(), pinned=it.rng.random() < 0.5),
    "knowledge_prewarm": lambda it: it.know("prewarm"),
    "snapshots_latest": lambda it: it.pipeline.snapshots.latest(**it.scope),
}
OPERATIONS = [*(name.removeprefix("do_") for name in vars(World) if name.startswith("do_")), *SIMPLE]
BY_OTHER_NAMES = {"observe_usage", "flush", "close"}
"""Public methods that return nothing of a conversation: numbers, and whether something is done."""


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
    blocking = {name.replace(".", "_") for name, method in methods() if not inspect.iscoroutinefunction(method)}
    assert blocking - set(OPERATIONS) == BY_OTHER_NAMES


def walk(store: BaseStore, steps: int, seed: int) -> None:
    world = World(store, random.Random(seed))
    for _ in range(steps):
        world.step()
    world.check_all()
    assert all(pipeline.flush(60) for pipeline in world.pipelines)
    known = []
    for world.user in USERS:
        known += [world.know(f"list_{kind}") for kind in ("facts", "topics", "entities", "bundles")]
        require_own(world.user, known[-4:])
    assert sum(map(len, known)) > len(USERS)
    assert world.done == set(OPERATIONS)
    assert any(world.expected.values())


def test_random_operations_show_nothing_of_another_user() -> None:
    walk(InMemoryStore(), 500, seed=1)


@pytest.mark.slow
def test_thousands_of_random_operations_show_nothing_of_another_user() -> None:
    walk(InMemoryStore(), 2_500, seed=2)


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
        "item_id": "f1",
        "device_id": "d1",
        "usage_metadata": {"input_tokens": 5, "output_tokens": 1, "total_tokens": 6},
        "snapshot_id": "s1",
    }
    parameters = inspect.signature(method).parameters.values()
    wanted = [p.name for p in parameters if p.default is p.empty and p.kind is not p.VAR_KEYWORD and p.name != "self"]
    return {name: given[name] for name in wanted}


async def finished(method: Callable[..., Any], **given: Any) -> Any:
    returned = method(**given)
    return await returned if inspect.isawaitable(returned) else returned


PARTS = ("user_id", "conversation_id", "new_conversation_id")


def test_every_other_method_wants_a_user_and_has_no_default_for_its_scope() -> None:
    asks = {name: inspect.signature(method).parameters for name, method in methods()}
    assert {name for name, parameters in asks.items() if "user_id" not in parameters} == WITHOUT_SCOPE
    assert {it[part].default for it in asks.values() for part in PARTS if part in it} == {inspect.Parameter.empty}


@pytest.mark.parametrize("name", [name for name, _ in methods() if name not in WITHOUT_SCOPE])
async def test_a_missing_scope_is_an_error(name: str) -> None:
    store = InMemoryStore()
    method = attrgetter(name)(ContextPipeline(store=store))
    given = arguments(method)
    for part in (part for part in PARTS if part in inspect.signature(method).parameters):
        for missing in (None, "", 7, b"zoexa", ["zoexa"]):
            with pytest.raises(MissingScopeError, match=part.removeprefix("new_")):
                await finished(method, **{**given, part: missing})
    assert store.search(()) == []


RUNS: Sequence[dict[str, Any]] = [
    {},
    {"thread_id": "c1"},
    {"thread_id": "c1", "user_id": ""},
    {"thread_id": "c1", "user_id": None},
    {"thread_id": "c1", "langgraph_auth_user": {}},
]
WITHOUT_A_THREAD: Sequence[dict[str, Any]] = [{"user_id": "zoexa"}, {"thread_id": "", "user_id": "zoexa"}]
"""A graph's run is a conversation of its own then; a tool that is called outside of a state has none to read."""


def test_a_run_without_a_scope_is_an_error() -> None:
    store = InMemoryStore()
    pipeline = ContextPipeline(store=store)
    graph, recall = build_context_graph(pipeline), create_recall_tool(pipeline)
    for run_of in RUNS:
        with pytest.raises(MissingScopeError):
            graph.invoke({"messages": [("human", "hello")]}, {"configurable": run_of})
    for run_of in (*RUNS, *WITHOUT_A_THREAD):
        with pytest.raises(MissingScopeError):
            recall.invoke({"query": "hello"}, {"configurable": run_of})
    assert store.search(()) == []


@pytest.mark.parametrize(("user", "conversation"), [("", "c1"), ("zoexa", ""), (None, "c1"), ("zoexa", None)])
def test_a_history_without_a_scope_is_an_error(user: Any, conversation: Any) -> None:
    with pytest.raises(MissingScopeError):
        BudgetedChatMessageHistory(conversation, user_id=user, pipeline=ContextPipeline(store=InMemoryStore()))


def test_what_a_model_gives_to_the_recall_tool_names_no_user() -> None:
    pipeline = ContextPipeline(store=InMemoryStore())
    for user in ("zoexa", "zoexa2"):
        pipeline.add_messages([HumanMessage(mark(user), id="m0")], user_id=user, conversation_id="c1")
    recall = create_recall_tool(pipeline)
    asked = {
        "reference": "m0",
        "user_id": "zoexa2",
        "config": {"configurable": {"user_id": "zoexa2", "thread_id": "c1"}},
    }
    answer = recall.invoke(asked, {"configurable": {"user_id": "zoexa", "thread_id": "c1"}})
    require_own("zoexa", answer)
    assert mark("zoexa") in answer
