"""Conversations that are written, edited, pinned, forked and asked about in any order keep every promise on the way.

Every message says `zq<number>z` in each of its sentences and nowhere else, so that its words can be told apart in a
prompt, whoever wrote them there. An edited message has another number.
"""

from __future__ import annotations

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
from langchain_ctxbudget.core.layers import Status
from langchain_ctxbudget.core.preservation import Preservation
from tests.integration_tests.provider_rules import check_anthropic, check_openai
from tests.integration_tests.summary_models import USER, words

SYSTEM_PROMPT = "You help."
MOST_MESSAGES = 120
COUNTER = TiktokenCounter()
KINDS = ("exchange", "long", "tools", "note", "keep", "summarize", "drop")

Kind = Literal["exchange", "long", "tools", "note", "keep", "summarize", "drop"]


# -- what is done to a conversation


@dataclass(frozen=True)
class Add:
    """New messages: so many units of some kinds, with so many words."""

    kinds: tuple[Kind, ...]
    size: int


@dataclass(frozen=True)
class Pin:
    """What is to become of some messages; each place is a share of the conversation in thousandths."""

    places: tuple[int, ...]
    preservation: Preservation | None


@dataclass(frozen=True)
class Edit:
    """Other words in some messages."""

    places: tuple[int, ...]


@dataclass(frozen=True)
class Remove:
    """Whole units gone."""

    places: tuple[int, ...]
    on_removal: Literal["archive", "forget"]


@dataclass(frozen=True)
class Fork:
    """Back to a place, and on from there in another way."""

    place: int


@dataclass(frozen=True)
class Return:
    """The state before the last fork again."""


@dataclass(frozen=True)
class Restart:
    """Another pipeline on the same store."""


@dataclass(frozen=True)
class Budget:
    """Another budget from now on."""

    tokens: int


@dataclass(frozen=True)
class Ask:
    """Nothing but the next question."""

    size: int


Operation = Add | Pin | Edit | Remove | Fork | Return | Restart | Budget | Ask

places = st.lists(st.integers(0, 999), min_size=1, max_size=4).map(tuple)
budgets = st.integers(200, 4_000) | st.sampled_from([200, 256, 400, 600, 1_000, 2_000])
adds = st.builds(
    Add,
    st.lists(st.sampled_from(("exchange",) * 6 + KINDS), min_size=1, max_size=12).map(tuple),
    st.sampled_from([2, 6, 12, 25, 60]),
)
operations: st.SearchStrategy[Operation] = st.one_of(
    adds,
    adds,
    adds,
    st.builds(Pin, places, st.sampled_from(["keep", "summarize", "drop", None])),
    st.builds(Edit, places),
    st.builds(Remove, places, st.sampled_from(["archive", "forget"])),
    st.builds(Fork, st.integers(0, 999)),
    st.just(Return()),
    st.just(Restart()),
    st.builds(Budget, budgets),
    st.builds(Ask, st.sampled_from([1, 6, 60])),
)
stories = st.tuples(budgets, adds, st.lists(operations, min_size=1, max_size=8)).map(lambda made: (made[0], *made[1:]))


# -- a conversation that remembers what it did


def sentences(number: int, size: int) -> str:
    """So many words in sentences, each of which says the number."""
    said = words(number, size).split()
    parts = [" ".join(said[i : i + 12]) for i in range(0, len(said), 12)]
    return " ".join(f"Then zq{number}z was about the {part}." for part in parts)


@dataclass
class World:
    """A pipeline, what its conversation is, and what must no longer be seen of it."""

    budget: int
    store: InMemoryStore = field(default_factory=InMemoryStore)
    state: list[BaseMessage] = field(default_factory=list)
    before_fork: list[BaseMessage] = field(default_factory=list)
    pins: dict[str, Preservation] = field(default_factory=dict)
    made: int = 0
    zone: list[BaseMessage] = field(default_factory=list)
    """The stable zone of the last prompt; empty where something other than an addition came since."""

    def __post_init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        self.pipeline = self.another()

    def another(self) -> ContextPipeline:
        return ContextPipeline(system_prompt=SYSTEM_PROMPT, store=self.store, writer_id="w")

    def number(self) -> int:
        self.made += 1
        return self.made

    def unit(self, kind: Kind, size: int) -> list[BaseMessage]:
        """New messages that belong together."""
        number = self.number()
        if kind == "tools":
            calls = [
                {"name": "look_up", "args": {"page": i}, "id": f"call{number}-{i}", "type": "tool_call"}
                for i in range(1 + number % 2)
            ]
            results = [
                ToolMessage(sentences(self.number(), size * 4), tool_call_id=call["id"], id=f"m{self.made}")
                for call in calls
            ]
            asked = HumanMessage(sentences(number, size), id=f"m{number}")
            calling = AIMessage("", id=f"m{self.number()}", tool_calls=calls)
            return [asked, calling, *results, AIMessage(sentences(self.number(), size), id=f"m{self.made}")]
        if kind == "note":
            return [SystemMessage(sentences(number, size), id=f"m{number}")]
        if kind == "long":
            return [HumanMessage(sentences(number, size * 12), id=f"m{number}")]
        marks = {} if kind == "exchange" else {"ctxbudget": kind}
        dated = {"created_at": f"2024-05-{1 + number % 28:02}T10:00:00"} if number % 3 == 0 else {}
        name = ("Ada", "Zoë Müller", None)[number % 3]
        asked = HumanMessage(sentences(number, size), id=f"m{number}", name=name, additional_kwargs={**marks, **dated})
        return [asked, AIMessage(sentences(self.number(), size * 2), id=f"m{self.made}")]

    def chosen(self, shares: Sequence[int]) -> list[int]:
        return sorted({share * len(self.state) // 1_000 for share in shares}) if self.state else []

    def run(self, operation: Operation) -> int:
        """Do it; how many words the next question has."""
        match operation:
            case Add(kinds, size):
                new = [message for kind in kinds for message in self.unit(kind, size)]
                new = new if len(self.state) + len(new) <= MOST_MESSAGES else []
                self.state += new
                self.pipeline.add_messages(new, **USER)
            case Pin(shares, preservation):
                keys = [str(self.state[place].id) for place in self.chosen(shares)]
                self.pipeline.pin(keys, preservation=preservation, **USER)
                for key in keys:
                    self.pins.pop(key, None)
                    if preservation is not None:
                        self.pins[key] = preservation
            case Edit(shares):
                for place in self.chosen(shares):
                    told = sentences(self.number(), 12)
                    old = self.state[place]
                    self.state[place] = old.model_copy(update={"content": told if old.content else ""})
                self.pipeline.sync(self.state, **USER)
            case Remove(shares, on_removal):
                gone = {place for share in self.chosen(shares) for place in self.whole_unit(share)}
                self.state = [message for place, message in enumerate(self.state) if place not in gone]
                self.pipeline.sync(self.state, on_removal=on_removal, **USER)
            case Fork(share):
                self.before_fork = self.state
                place = min([*self.whole_unit(share * len(self.state) // 1_000), len(self.state)])
                self.state = [*self.state[:place], *self.unit("exchange", 6)]
                self.pipeline.sync(self.state, **USER)
            case Return():
                self.state = list(self.before_fork)
                self.pipeline.sync(self.state, **USER)
            case Restart():
                self.restart()
            case Budget(tokens):
                self.budget = tokens
            case Ask():
                pass
        if not isinstance(operation, Add | Restart | Ask):
            self.zone = []
        known = {str(message.id) for message in self.state}
        self.pins = {key: said for key, said in self.pins.items() if key in known}
        return operation.size if isinstance(operation, Ask) else 4

    def whole_unit(self, place: int) -> list[int]:
        """The places of a message and of the calls and results that it belongs to."""
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
    changes = {"max_context_tokens": world.budget}
    context = world.pipeline.assemble(question, settings=changes, **USER)
    check_fits_and_adds_up(context, world.budget)
    assert check_openai(context.messages) == check_anthropic(context.messages) == []
    check_ledger(world, context)
    check_nothing_is_seen_that_should_not(world, context)
    check_stable(world, context)
    if twice:
        with world.another() as other:
            again = other.assemble(question, settings=changes, **USER)
        assert again.messages == context.messages
        assert again.report.layers == context.report.layers
        assert again.report.coverage == context.report.coverage


def check_fits_and_adds_up(context: AssembledContext, budget: int) -> None:
    report = context.report
    assert COUNTER.count_messages(context.messages) == report.total_tokens <= budget
    for layer in report.layers:
        included = sum(item.tokens for item in layer.items if item.status is not Status.OMITTED)
        assert included + layer.overhead_tokens == layer.used_tokens
    used = sum(layer.used_tokens for layer in report.layers)
    assert used + sum(report.overhead_tokens.values()) == report.total_tokens
    assert report.failures == ()


def check_ledger(world: World, context: AssembledContext) -> None:
    """Every message is in one state, in order, and what is verbatim or retrieved stands in the prompt word for word.

    A verbatim message is found by its id. Above its words may stand one line with a date, a name or both
    (`[2024-05-01 田中]`), and above those of a system message the line that makes it a note; its own name may have been
    sanitised. Apart from that, its text is the same.
    """
    ledger = world.pipeline.coverage(**USER)
    stored = world.pipeline.get_messages(**USER)
    assert stored == world.state
    by_id = {str(message.id): message for message in stored}
    assert sorted(key for keys in ledger.values() for key in keys) == sorted(by_id)
    order = {key: place for place, key in enumerate(by_id)}
    assert all([order[key] for key in keys] == sorted(order[key] for key in keys) for keys in ledger.values())
    assert {state: len(keys) for state, keys in ledger.items()} == context.report.coverage_counts()
    sent = {str(message.id): message.text for message in context.messages}
    for key in ledger["verbatim"]:
        assert key in sent, f"{key} is called verbatim and is not in the prompt"
        assert sent[key].endswith(by_id[key].text), f"{key} is called verbatim and has other words"
        assert re.fullmatch(r"(\[[^\n]*\]\n)?", sent[key].removesuffix(by_id[key].text)), f"{key} has more words"
    block = context.messages[-1].text
    flat = re.sub(r"\s+", " ", block)
    assert all(re.sub(r"\s+", " ", by_id[key].text).strip() in flat for key in ledger["retrieved"])


def numbers(text: str) -> list[int]:
    return [int(number) for number in re.findall(r"zq(\d+)z", text)]


def check_nothing_is_seen_that_should_not(world: World, context: AssembledContext) -> None:
    """What is dropped, removed, edited away or left behind at a fork is nowhere, in whatever words."""
    seen = {number for message in context.messages for number in numbers(message.text)}
    said = {number for message in world.state for number in numbers(message.text)}
    assert seen <= said, "words of a message that is no longer in the conversation"
    dropped = [message for message in world.state if world.preservation(message) == "drop"]
    assert not seen & {number for message in dropped for number in numbers(message.text)}, "words of a dropped one"


def check_stable(world: World, context: AssembledContext) -> None:
    zone = context.messages[:-1]
    if world.zone and not context.report.stability.compaction_step:
        assert [message.content for message in zone[: len(world.zone)]] == [m.content for m in world.zone]
    world.zone = zone


def play(story: tuple[int, Add, list[Operation]], *, always_twice: bool) -> None:
    budget, first, rest = story
    world = World(budget)
    for number, operation in enumerate([first, *rest]):
        check(world, world.run(operation), twice=always_twice or number == len(rest))


common = settings(deadline=None, suppress_health_check=list(HealthCheck))


@settings(common, max_examples=150)
@given(story=stories)
def test_every_promise_holds_after_every_operation(story: Any) -> None:
    play(story, always_twice=False)


@pytest.mark.slow
@settings(common, max_examples=3_000)
@given(story=stories)
def test_every_promise_holds_after_every_operation_of_many_more(story: Any) -> None:
    play(story, always_twice=True)
