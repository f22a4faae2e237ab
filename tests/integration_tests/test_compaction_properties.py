"""Conversations that are written, edited, pinned, forked and asked about in any order keep every promise on the way."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import AssembledContext, ContextPipeline, TiktokenCounter
from langchain_ctxbudget.messages import Preservation
from tests.integration_tests.provider_rules import check_anthropic, check_openai
from tests.integration_tests.summary_models import USER, words
from tests.integration_tests.test_promises import check_adds_up

SYSTEM_PROMPT = "You help."
MOST_MESSAGES = 120
COUNTER = TiktokenCounter()
KINDS = ("exchange", "long", "tools", "note", "keep", "summarize", "drop")

Kind = Literal["exchange", "long", "tools", "note", "keep", "summarize", "drop"]


# -- what is done to a conversation: a method of the world, and its arguments

Operation = tuple[Any, ...]

places = st.lists(st.integers(0, 999), min_size=1, max_size=4).map(tuple)
budgets = st.integers(200, 4_000) | st.sampled_from([200, 256, 400, 600, 1_000, 2_000])
kinds = st.sampled_from(("exchange",) * 6 + KINDS)
sizes = st.sampled_from([2, 6, 12, 25])


def operation(name: str, *arguments: st.SearchStrategy[Any]) -> st.SearchStrategy[Operation]:
    return st.tuples(st.just(name), *arguments)


adds = operation(
    "add", st.lists(kinds, min_size=1, max_size=4).map(tuple), st.integers(1, 3), sizes
)
beginnings = operation(
    "add", st.lists(kinds, min_size=1, max_size=6).map(tuple), st.integers(1, 12), sizes
)
operations: st.SearchStrategy[Operation] = st.one_of(
    adds,
    adds,
    adds,
    operation("pin", places, st.sampled_from(["keep", "summarize", "drop", None])),
    operation("edit", places),
    operation("remove", places, st.sampled_from(["archive", "forget"])),
    operation("fork", st.integers(0, 999)),
    operation("go_back"),
    operation("restart"),
    operation("set_budget", budgets),
    operation("ask_at_length", st.sampled_from([1, 6, 60])),
)
SEED = {"strategy": "elastic", "profile": "seed"}
ALL_HISTORY = {"strategy": "ratio", "memory": 0.0, "history": 0.95, "reserve": 0.0}
allocations = st.sampled_from(
    (*("elastic",) * 4, SEED, "ratio", ALL_HISTORY, "fixed", "dynamic", "prioritized")
)
stories = st.tuples(allocations, budgets, beginnings, st.lists(operations, min_size=1, max_size=6))


# -- a conversation that remembers what it did


def sentences(number: int, size: int) -> str:
    said = words(number, size).split()
    parts = [" ".join(said[i : i + 12]) for i in range(0, len(said), 12)]
    return " ".join(f"Then zq{number}z was about the {part}." for part in parts)


@dataclass
class World:
    """A pipeline, what its conversation is, and what must no longer be seen of it."""

    allocation: Any
    budget: int
    store: InMemoryStore = field(default_factory=InMemoryStore)
    state: list[BaseMessage] = field(default_factory=list)
    before_fork: list[BaseMessage] = field(default_factory=list)
    pins: dict[str, Preservation] = field(default_factory=dict)
    made: int = 0
    zone: list[BaseMessage] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.pipeline = self.another(self.store)

    def another(self, store: InMemoryStore) -> ContextPipeline:
        return ContextPipeline(
            {"learn": False}, system_prompt=SYSTEM_PROMPT, store=store, writer_id="w"
        )

    def ask(self, pipeline: ContextPipeline, question: str) -> AssembledContext:
        changes = {"max_context_tokens": self.budget, "allocation": self.allocation}
        return pipeline.assemble(question, settings=changes, **USER)

    def number(self) -> int:
        self.made += 1
        return self.made

    def unit(self, kind: Kind, size: int) -> list[BaseMessage]:
        """New messages that belong together."""
        number = self.number()
        if kind == "tools":
            calls = [
                {
                    "name": "look_up",
                    "args": {"page": i},
                    "id": f"call{number}-{i}",
                    "type": "tool_call",
                }
                for i in range(1 + number % 2)
            ]
            results = [
                ToolMessage(
                    sentences(self.number(), size * 4), tool_call_id=call["id"], id=f"m{self.made}"
                )
                for call in calls
            ]
            asked = HumanMessage(sentences(number, size), id=f"m{number}")
            calling = AIMessage("", id=f"m{self.number()}", tool_calls=calls)
            return [
                asked,
                calling,
                *results,
                AIMessage(sentences(self.number(), size), id=f"m{self.made}"),
            ]
        if kind == "note":
            return [SystemMessage(sentences(number, size), id=f"m{number}")]
        if kind == "long":
            return [HumanMessage(sentences(number, size * 12), id=f"m{number}")]
        marks = {} if kind == "exchange" else {"ctxbudget": kind}
        dated = {"created_at": f"2024-05-{1 + number % 28:02}T10:00:00"} if number % 3 == 0 else {}
        name = ("Ada", "Zoë Müller", None)[number % 3]
        asked = HumanMessage(
            sentences(number, size),
            id=f"m{number}",
            name=name,
            additional_kwargs={**marks, **dated},
        )
        return [asked, AIMessage(sentences(self.number(), size * 2), id=f"m{self.made}")]

    def chosen(self, shares: Sequence[int]) -> list[int]:
        return sorted({share * len(self.state) // 1_000 for share in shares}) if self.state else []

    def run(self, operation: Operation) -> int:
        name, *arguments = operation
        words = getattr(self, name)(*arguments)
        if name not in (
            "add",
            "ask_at_length",
        ):  # another process does not know what was left out for one long turn
            self.zone = []
        known = {str(message.id) for message in self.state}
        self.pins = {key: said for key, said in self.pins.items() if key in known}
        return words or 4

    def add(self, kinds: Sequence[Kind], times: int, size: int) -> None:
        new: list[BaseMessage] = []
        for kind in tuple(kinds) * times:
            if len(self.state) + len(new) < MOST_MESSAGES:
                new += self.unit(kind, size)
        self.state += new
        self.pipeline.add_messages(new, **USER)

    def pin(self, places: Sequence[int], preservation: Preservation | None) -> None:
        keys = [str(self.state[place].id) for place in self.chosen(places)]
        self.pipeline.pin(keys, preservation=preservation, **USER)
        self.pins = {key: said for key, said in self.pins.items() if key not in keys}
        if preservation is not None:
            self.pins |= dict.fromkeys(keys, preservation)

    def edit(self, places: Sequence[int]) -> None:
        for place in self.chosen(places):
            told = sentences(self.number(), 12) if self.state[place].content else ""
            self.state[place] = self.state[place].model_copy(update={"content": told})
        self.sync()

    def remove(self, places: Sequence[int], on_removal: Literal["archive", "forget"]) -> None:
        gone = {place for chosen in self.chosen(places) for place in self.together_with(chosen)}
        self.state = [message for place, message in enumerate(self.state) if place not in gone]
        self.sync(on_removal)

    def fork(self, share: int) -> None:
        self.before_fork = self.state
        place = min(self.together_with(share * len(self.state) // 1_000), default=0)
        self.state = [*self.state[:place], *self.unit("exchange", 6)]
        self.sync()

    def go_back(self) -> None:
        self.state = list(self.before_fork)
        self.sync()

    def restart(self) -> None:
        self.pipeline = self.another(self.store)

    def set_budget(self, tokens: int) -> None:
        self.budget = tokens

    def ask_at_length(self, words: int) -> int:
        return words

    def sync(self, on_removal: Literal["archive", "forget"] = "archive") -> None:
        stored = self.pipeline.get_messages(**USER)
        if not {message.id for message in stored} & {message.id for message in self.state}:
            self.state = [
                *stored,
                *self.state,
            ]  # nothing of what is stored: the conversation goes on from there
        self.pipeline.sync(self.state, on_removal=on_removal, **USER)

    def together_with(self, place: int) -> list[int]:
        if place >= len(self.state):
            return []
        first = last = place
        while isinstance(self.state[first], ToolMessage):
            first -= 1
        while last + 1 < len(self.state) and isinstance(self.state[last + 1], ToolMessage):
            last += 1
        return list(range(first, last + 1))

    def preservation(self, message: BaseMessage) -> str | None:
        return self.pins.get(str(message.id)) or message.additional_kwargs.get("ctxbudget")


# -- what holds after every operation


def check(world: World, asked: int, *, twice: bool) -> None:
    question = words(world.made, asked) + "?"
    before = copy_of(world.store) if twice else None
    context = world.ask(world.pipeline, question)
    check_fits_and_adds_up(context, world.budget)
    assert check_openai(context.messages) == check_anthropic(context.messages) == []
    check_ledger(world, context)
    check_nothing_is_seen_that_should_not(world, context)
    check_stable(world, context)
    if before is not None:
        with world.another(before) as restarted:
            check_same(world.ask(restarted, question), context)
        with world.another(world.store) as other:
            check_same(world.ask(other, question), context)
        again = world.ask(world.pipeline, question)
        check_same(again, context)
        assert not again.report.stability.compaction_step, "a step although nothing is new"


def check_same(second: AssembledContext, first: AssembledContext) -> None:
    assert second.messages == first.messages
    assert second.report.layers == first.report.layers
    assert second.report.coverage == first.report.coverage


def copy_of(store: InMemoryStore) -> InMemoryStore:
    copied = InMemoryStore()
    for item in store.search((), limit=100_000):
        copied.put(item.namespace, item.key, item.value)
    return copied


def check_fits_and_adds_up(context: AssembledContext, budget: int) -> None:
    assert COUNTER.count_messages(context.messages) == context.report.total_tokens <= budget
    check_adds_up(context)
    assert context.report.failures == ()


def check_ledger(world: World, context: AssembledContext) -> None:
    """Every message is in one state, in order, and what is verbatim or retrieved stands in the prompt word for word.

    A verbatim message is found by its id. Above its words may stand one line with a date, a name or
    both (`[2024-05-01 田中]`), one that tells what is left out, and of a system message the line that
    makes it a note; its own name may have been sanitised. Apart from that, its text is the same.
    """
    ledger = world.pipeline.coverage(**USER)
    stored = world.pipeline.get_messages(**USER)
    assert stored == world.state
    by_id = {str(message.id): message for message in stored}
    assert sorted(key for keys in ledger.values() for key in keys) == sorted(by_id)
    order = {key: place for place, key in enumerate(by_id)}
    assert all(
        [order[key] for key in keys] == sorted(order[key] for key in keys)
        for keys in ledger.values()
    )
    assert {state: len(keys) for state, keys in ledger.items()} == context.report.coverage_counts()
    sent = {str(message.id): message.text for message in context.messages}
    for key in ledger["verbatim"]:
        assert key in sent, f"{key} is called verbatim and is not in the prompt"
        assert sent[key].endswith(by_id[key].text), f"{key} is called verbatim and has other words"
        assert re.fullmatch(r"(\[[^\n]*\]\n){0,2}", sent[key].removesuffix(by_id[key].text)), (
            f"{key} has more words"
        )
    flat = re.sub(r"\s+", " ", context.messages[-1].text)
    assert all(re.sub(r"\s+", " ", by_id[key].text).strip() in flat for key in ledger["retrieved"])


def numbers(text: str) -> list[int]:
    return [int(number) for number in re.findall(r"zq(\d+)z", text)]


def check_nothing_is_seen_that_should_not(world: World, context: AssembledContext) -> None:
    seen = {number for message in context.messages for number in numbers(message.text)}
    said = {number for message in world.state for number in numbers(message.text)}
    assert seen <= said, "words of a message that is no longer in the conversation"
    dropped = [message for message in world.state if world.preservation(message) == "drop"]
    assert not seen & {number for message in dropped for number in numbers(message.text)}, (
        "words of a dropped one"
    )


def check_stable(world: World, context: AssembledContext) -> None:
    zone = context.messages[:-1]
    if world.zone and not context.report.stability.compaction_step:
        same = [message.content for message in zone[: len(world.zone)]] == [
            m.content for m in world.zone
        ]
        assert same, "the stable zone has changed without a step"
    world.zone = zone


def play(story: Any) -> None:
    allocation, budget, first, rest = story
    world = World(allocation, budget)
    for number, operation in enumerate([first, *rest]):
        check(world, world.run(operation), twice=number == len(rest))


FOUND = {
    "dropped behind the cut": (
        "elastic",
        317,
        ("add", ("exchange",), 4, 12),
        [("pin", (0,), "drop")],
    ),
    "clipped without a step": (
        "elastic",
        380,
        ("add", ("exchange", "long"), 1, 12),
        [("add", ("exchange",), 1, 2)],
    ),
    "kept behind the cut": ("elastic", 200, ("add", ("keep",), 13, 12), [("set_budget", 583)]),
    "no room for the newest": (
        SEED,
        200,
        ("add", ("exchange",), 1, 25),
        [("add", ("exchange",), 1, 2)],
    ),
    "clipped as a last resort": (
        ALL_HISTORY,
        327,
        ("add", ("exchange", "tools", "long", "tools"), 4, 12),
        [("pin", (592, 960), "keep")],
    ),
    "goes on after a summary of everything": (
        "elastic",
        292,
        ("add", ("exchange",) * 2, 1, 25),
        [("add", ("exchange",), 1, 2)],
    ),
}
"""Stories that broke a promise once."""


@pytest.mark.parametrize("story", FOUND.values(), ids=FOUND)
def test_what_broke_a_promise_once_holds(story: Any) -> None:
    play(story)


common = settings(deadline=None, suppress_health_check=list(HealthCheck))


@pytest.mark.parametrize("examples", [40, pytest.param(80, marks=pytest.mark.slow)])
def test_every_promise_holds_after_every_operation(examples: int) -> None:
    settings(common, max_examples=examples)(given(story=stories)(play))()
