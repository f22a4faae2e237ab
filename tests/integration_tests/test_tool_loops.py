"""While an agent loops over tools.

What stands before the turn's steps stays, every prompt fits, any process agrees.
"""

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from itertools import count, pairwise, takewhile
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_openai import ChatOpenAI
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import ContextPipeline, ContextReport, ContextSettings, TiktokenCounter
from langchain_ctxbudget.budget import Layer
from langchain_ctxbudget.errors import BudgetTooSmallError
from langchain_ctxbudget.flow import drive
from langchain_ctxbudget.pipeline import Session
from langchain_ctxbudget.prompt import Request
from langchain_ctxbudget.prompt.assembly import NO_FIRST_QUESTION
from langchain_ctxbudget.stores import Scope
from tests.integration_tests.provider_rules import check_anthropic, check_openai

SCOPE = Scope("ada", "c1")
WORDS = (
    "the plan budget Ada Bonn 2026-08-03 42,50 € we decided agreed [OPEN] question? error() `main.py` 北京 русский "
    "roof garden ticket Monday price lamp </context> ## A/B /path \n . !"
).split(" ")
LOOK_UP = {
    "type": "function",
    "function": {
        "name": "look_up",
        "description": "Looks something up.",
        "parameters": {"type": "object", "properties": {"page": {"type": "integer"}}},
    },
}
STRATEGIES: tuple[Any, ...] = (
    "elastic",
    {"strategy": "elastic", "profile": "seed"},
    {"strategy": "ratio", "memory": 0.3, "history": 0.4, "reserve": 0.3, "max_system_share": 1.0},
    "fixed",
    "dynamic",
    "prioritized",
)
LONGEST_RESULT_TOKENS = 30_000
USUAL_RESERVE = 0.25
SMALL_BUDGET = 1_000


@cache
def counter() -> TiktokenCounter:
    return TiktokenCounter()


@cache
def _long_text(kind: int) -> str:
    rng = random.Random(kind)
    if kind == 1:
        return "".join(f'{{"row": {n}, "value": {rng.random()}}}\n' for n in range(2_000))
    if kind == 2:
        return "".join(rng.choices("abcdef0123456789", k=120_000))
    return " ".join(rng.choices(WORDS, k=40_000))


def text_of(tokens: int, kind: int = 0, start: int = 0) -> str:
    begin = start * 97 % 1_000
    return _long_text(kind)[begin : begin + tokens * (2 if kind else 4)]


# -- Loops


@dataclass(frozen=True, kw_only=True)
class Step:
    sizes: tuple[int, ...]
    kind: int = 0
    words: int = 0

    def messages(self, number: int, *, ids: bool) -> list[BaseMessage]:
        calls = [
            {"name": "look_up", "args": {"page": n}, "id": f"t{number}-{n}"}
            for n in range(len(self.sizes))
        ]
        said = AIMessage(
            text_of(self.words, 0, number), tool_calls=calls, id=f"a{number}" if ids else None
        )
        return [
            said,
            *(
                ToolMessage(
                    text_of(size, self.kind, number + n),
                    tool_call_id=f"t{number}-{n}",
                    id=f"r{number}-{n}" if ids else None,
                    status="error" if size % 7 == 3 else "success",
                )
                for n, size in enumerate(self.sizes)
            ),
        ]


@dataclass(frozen=True, kw_only=True)
class Loop:
    """A conversation, and one turn of an agent that calls tools."""

    history: int = 0
    opening: tuple[str, ...] = ("human",)
    human_tokens: int = 10
    steps: tuple[Step, ...] = ()
    ids: bool = True
    options: Mapping[str, Any] = field(default_factory=dict)
    tools: bool = True

    @property
    def settings(self) -> ContextSettings:
        return ContextSettings(learn=False).override(self.options)

    def before(self) -> list[BaseMessage]:
        return list(_history(self.history))

    def turns(self) -> Iterator[list[BaseMessage]]:
        """The turn as it is at every call of the model."""
        numbers = count()
        turn: list[BaseMessage] = []
        for kind in self.opening:
            number = next(numbers)
            if kind == "step":
                turn += Step(sizes=(40,), words=5).messages(number, ids=self.ids)
            else:
                turn.append(self._human(kind, number))
        yield turn
        for step in self.steps:
            turn = [*turn, *step.messages(next(numbers), ids=self.ids)]
            yield turn

    def _human(self, kind: str, number: int) -> HumanMessage:
        words = (
            f"What did we decide about the plan in Bonn? {text_of(self.human_tokens, 0, number)}"
        )
        key = f"h{number}" if self.ids else None
        if kind == "human":
            return HumanMessage(words, id=key)
        image = {
            "type": "image_url",
            "image_url": {"url": "https://example.org/a.png", "detail": "low"},
        }
        return HumanMessage([{"type": "text", "text": words}, image], id=key)

    def request(self, block: object = None) -> Request:
        return Request(tools=[LOOK_UP] if self.tools else (), background=block)


@cache
def _history(length: int) -> tuple[BaseMessage, ...]:
    rng = random.Random(1)
    messages: list[BaseMessage] = []
    while len(messages) < length:
        number = len(messages)
        words = " ".join(rng.choices(WORDS, k=rng.randint(3, 60)))
        if number % 9 == 5:
            call = {"name": "look_up", "args": {}, "id": f"old{number}"}
            messages.append(AIMessage("", tool_calls=[call], id=f"m{number}"))
            messages.append(
                ToolMessage(
                    words * rng.choice([1, 20]), tool_call_id=f"old{number}", id=f"m{number + 1}"
                )
            )
        else:
            kind = (HumanMessage, AIMessage)[number % 2]
            messages.append(kind(words, id=f"m{number}"))
    return tuple(messages[:length])


sizes = st.sampled_from([0, 1, 10, 60, 300, 300, 900, 3_000, LONGEST_RESULT_TOKENS])
steps = st.builds(
    Step,
    sizes=st.lists(sizes, min_size=1, max_size=3).map(tuple),
    kind=st.integers(0, 2),
    words=st.sampled_from([0, 0, 12, 120]),
)
openings = st.sampled_from(
    [("human",)] * 5
    + [("image",), ("human", "human"), ("human", "step", "human"), ("step",), ("step", "human")]
)
options = st.fixed_dictionaries(
    {
        "allocation": st.sampled_from(STRATEGIES),
        "tool_reserve": st.sampled_from([0.25, 0.25, 0.25, 0, 0.1, 0.6, 1.0]),
        "oversized_message": st.sampled_from(["error", "clip"]),
        "layout": st.sampled_from(["cache_first", "cache_first", "system_first"]),
        "keep_messages": st.sampled_from([6, 6, 0, 12]),
        "preferences": st.sampled_from([(), ("Answer briefly.", "Use metric units.")]),
        "memories": st.sampled_from([(), ("Ada lives in Bonn.", "The plan is from May. " * 10)]),
        "topics": st.sampled_from(
            [(), ({"label": "plan", "context": "The plan covers the roof. " * 12},)]
        ),
        "entities": st.sampled_from([(), ({"name": "Bonn", "context": "Bonn is a city. " * 3},)]),
        "layers": st.sampled_from(
            [
                (),
                (
                    {
                        "name": "files",
                        "items": ["main.py: print(1)", "a.py: pass " * 60],
                        "ideal_tokens": 120,
                    },
                ),
            ]
        ),
    }
)


@st.composite
def loops(draw: st.DrawFn, *, most_history: int, most_steps: int) -> Loop:
    """Loops of some length."""
    budget = draw(st.one_of(st.integers(300, 2_000), st.integers(300, 16_000)))
    return Loop(
        history=draw(st.one_of(st.just(0), st.integers(0, 40), st.integers(0, most_history))),
        opening=draw(openings),
        human_tokens=draw(st.sampled_from([0, 10, 10, 100, budget // 3, budget])),
        steps=tuple(draw(st.lists(steps, min_size=1, max_size=most_steps))),
        ids=draw(st.booleans()),
        options={**draw(options), "max_context_tokens": budget},
        tools=draw(st.sampled_from([True, True, True, False])),
    )


# -- What a loop is judged by


NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


class Process:
    def __init__(
        self,
        loop: Loop,
        store: InMemoryStore | None = None,
        settings: ContextSettings | None = None,
    ) -> None:
        self.loop = loop
        self.store = store or InMemoryStore()
        self.pipeline = ContextPipeline(
            settings or loop.settings,
            system_prompt="You are a careful assistant.",
            store=self.store,
            token_counter=counter(),
            writer_id="w",
            clock=lambda: NOON,
        )

    def answer(self, turn: Sequence[BaseMessage], block: object = None) -> Session:
        return drive(
            self.pipeline.engine.answer(SCOPE, self.loop.before(), turn, self.loop.request(block))
        )


def saved(session: Session) -> Any:
    return (
        json.loads(json.dumps(session.plan.background.to_dict()))
        if session.plan.background
        else None
    )


def sent(session: Session) -> list[BaseMessage]:
    assert session.context is not None
    return session.context.messages


def report_of(session: Session) -> ContextReport:
    assert session.context is not None
    return session.context.report


def head(session: Session) -> list[Any]:
    """What stands before the turn, and its first human message, without the note on steps that are left out."""
    messages = sent(session)
    turn = [message for part in session.plan.turn.groups for message in part.messages]
    start = len(messages) - len(turn)
    before = [(m.type, m.content) for m in messages[:start] if m.text != NO_FIRST_QUESTION]
    human = next(
        (message for message in messages[start:] if isinstance(message, HumanMessage)), None
    )
    if human is None:
        return before
    blocks = [human.content] if isinstance(human.content, str) else human.content
    texts = [block if isinstance(block, str) else str(block.get("text", block)) for block in blocks]
    return [
        *before,
        [text for text in (text.replace(session.plan.turn.note, "") for text in texts) if text],
    ]


def check_prompt(session: Session, chat_openai: ChatOpenAI) -> None:
    report = report_of(session)
    messages = sent(session)
    recount = chat_openai.get_num_tokens_from_messages(messages) + sum(session.plan.extras.values())
    assert recount == report.total_tokens <= report.budget_tokens
    assert ContextReport.from_dict(report.to_dict()) == report  # which checks that it adds up
    assert check_openai(messages) == []
    assert check_anthropic(messages) == []
    assert [part.last for part in report.coverage][-1:] == [len(session.plan.conversation.entries)][
        : len(report.coverage)
    ]
    listed = [key for item in report.layer(Layer.MESSAGE).items for key in item.id.split(" + ")]
    assert sorted(listed) == sorted(
        message.id or message.type for message in session.plan.request.turn
    ), "each of the turn once"


def check_same(one: Session, other: Session) -> None:
    assert sent(one) == sent(other)
    first = report_of(one)
    second = report_of(other)
    assert first.layers == second.layers
    assert first.coverage == second.coverage
    assert first.overhead_tokens == second.overhead_tokens
    assert first.failures == second.failures
    assert one.plan.background == other.plan.background


def has_block(session: Session) -> bool:
    return session.plan.fixed is not None or not session.plan.turn.stage


def check_head_stays(calls: Sequence[Session]) -> None:
    """What stands before the steps changes once, when the turn outgrows what is kept free for it.

    A turn whose words and newest calls alone need more than the room that is planned for it takes
    it from the others.
    """
    for before, now in pairwise(calls):
        assert before.plan.turn.stage <= now.plan.turn.stage, "a long turn stays one"
        as_planned = (
            before.plan.turn.free_tokens
            and now.plan.turn.free_tokens
            and has_block(before) == has_block(now)
        )
        if as_planned and before.plan.turn.stage == now.plan.turn.stage:
            assert head(before) == head(now)


def run(loop: Loop) -> list[Session]:
    process = Process(loop)
    calls = []
    for turn in loop.turns():
        try:
            calls.append(process.answer(turn))
        except BudgetTooSmallError:
            break
    return calls


def check_every_process_agrees(loop: Loop) -> None:
    """A process that goes on shows what one shows that takes the turn up, with or without the agent's state."""
    process = Process(loop)
    block = None
    as_planned = True
    for turn in loop.turns():
        try:
            session = process.answer(turn)
        except BudgetTooSmallError:
            with pytest.raises(BudgetTooSmallError):
                Process(loop, process.store).answer(turn)
            return
        check_same(session, Process(loop, process.store).answer(turn))
        if block is not None:
            check_same(session, Process(loop, process.store).answer(turn, block))
        as_planned = as_planned and not session.plan.turn.stage
        if (
            as_planned
        ):  # else steps that were made for earlier calls of the turn are not in another store
            check_same(session, Process(loop).answer(turn))
        block = saved(session)


common = settings(deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
quick = settings(common, max_examples=12)
long = settings(common, max_examples=60)
short_loops = loops(most_history=60, most_steps=6)


def check_loop(loop: Loop, chat_openai: ChatOpenAI) -> None:
    calls = run(loop)
    for session in calls:
        check_prompt(session, chat_openai)
    if loop.options["max_context_tokens"] >= SMALL_BUDGET:
        check_head_stays(calls)


@quick
@given(loop=short_loops.filter(lambda loop: loop.options["tool_reserve"] <= USUAL_RESERVE))
def test_every_call_fits_is_valid_and_adds_up_and_what_stands_before_the_steps_changes_once(
    chat_openai: ChatOpenAI, loop: Loop
) -> None:
    check_loop(loop, chat_openai)


@settings(quick, max_examples=8)
@given(loop=short_loops)
def test_every_process_shows_the_same(loop: Loop) -> None:
    check_every_process_agrees(loop)


@pytest.mark.slow
@long
@given(loop=loops(most_history=300, most_steps=40))
def test_every_call_of_long_loops_is_judged_by_the_same(
    chat_openai: ChatOpenAI, loop: Loop
) -> None:
    check_loop(loop, chat_openai)


# -- Scripted loops


def looking(history: int = 60, steps: int = 12, size: int = 150, **options: Any) -> Loop:
    return Loop(
        history=history,
        steps=(Step(sizes=(size,), words=10),) * steps,
        options={"max_context_tokens": 4_000, **options},
    )


def test_an_earlier_message_that_is_taken_out_is_not_quoted_from_the_state() -> None:
    loop = looking(max_context_tokens=1_500, size=10)
    first, turn, *_ = loop.turns()
    process = Process(loop)
    session = process.answer(first)
    assert session.plan.background is not None
    quoted = {
        part.id: part.text
        for part in session.plan.background.fragments
        if part.layer == Layer.RETRIEVAL
    }
    assert quoted
    left = [message for message in loop.before() if message.id not in quoted]
    engine = process.pipeline.engine
    after = drive(engine.answer(SCOPE, left, turn, loop.request(saved(session))))
    prompt = "\n".join(message.text for message in sent(after))
    assert after.plan.background is not None
    assert not quoted.keys() & {part.id for part in after.plan.background.fragments}
    assert not [text for text in quoted.values() if text in prompt and "[called" not in text]


@pytest.mark.parametrize("budget", [4_000, 8_000])
def test_the_calls_behind_a_prompt_in_the_middle_of_a_turn_only_add_to_it(budget: int) -> None:
    loop = looking(steps=44, size=budget // 20, max_context_tokens=budget)
    process = Process(loop)
    turns = [*loop.turns()][-4:]
    prompts = [sent(process.answer(turn)) for turn in turns]
    assert all(now[: len(before)] == before for before, now in pairwise(prompts))


@pytest.mark.parametrize("budget", [1_200, 4_000])
def test_a_process_that_takes_up_a_turn_goes_on_with_the_block_of_a_prompt_written_anew_in_it(
    budget: int,
) -> None:
    loop = looking(history=40, steps=6, size=300, max_context_tokens=budget)
    process = Process(loop)
    before = loop.before()
    drive(process.pipeline.engine.answer(SCOPE, before[:-2], before[-2:-1], loop.request()))
    for turn in loop.turns():
        check_same(process.answer(turn), Process(loop, process.store).answer(turn))


@pytest.mark.parametrize("budget", [2_000, 8_000, 16_000])
def test_a_long_turn_costs_less_than_sending_everything(budget: int) -> None:
    steps = tuple(Step(sizes=(size,), words=10) for size in (60, 300, 900, 10, 3_000, 300) * 8)
    loop = Loop(history=60, steps=steps, options={"max_context_tokens": budget})
    process = Process(loop)
    told = 0.0
    whole = 0.0
    of_each = counter().count_message
    previous = list[BaseMessage]()
    said = list[BaseMessage]()
    for turn in loop.turns():
        prompt = sent(process.answer(turn))
        everything = [*loop.before(), *turn]
        shared = len(
            [*takewhile(lambda pair: pair[0] == pair[1], zip(previous, prompt, strict=False))]
        )
        told += sum(map(of_each, prompt)) - 0.9 * sum(map(of_each, prompt[:shared]))
        whole += sum(map(of_each, everything)) - 0.9 * sum(map(of_each, said))
        assert shared == len(previous) or sum(map(of_each, everything)) > 0.9 * budget, (
            "what fits is not written anew"
        )
        previous = prompt
        said = everything
    assert told <= 0.7 * whole
