"""While an agent loops over tools.

What stands before the turn's rounds stays, every prompt fits, any process agrees.
"""

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from itertools import pairwise, takewhile
from typing import Any, Literal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolCall, ToolMessage
from langchain_openai import ChatOpenAI
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import ContextPipeline, ContextReport, ContextSettings, TiktokenCounter
from langchain_ctxbudget.budget import Layer
from langchain_ctxbudget.errors import BudgetTooSmallError
from langchain_ctxbudget.flow import drive
from langchain_ctxbudget.pipeline import Prompter, Session
from langchain_ctxbudget.prompt import Request
from langchain_ctxbudget.providers import NO_FIRST_QUESTION
from langchain_ctxbudget.stores import Scope
from tests.doubles.providers import check_anthropic, check_openai

SCOPE = Scope("ada", "c1")
WORDS = (
    "the plan budget Ada Bonn 2026-08-03 42,50 € we decided agreed [OPEN] question? error() "
    "`main.py` 北京 русский roof garden ticket Monday price lamp </context> ## A/B /path \n . !"
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


Kind = Literal["words", "rows", "digits"]


@cache
def _long_text(kind: Kind) -> str:
    rng = random.Random(kind)
    if kind == "rows":
        rows = [f'{{"row": {number}, "value": {rng.random()}}}\n' for number in range(2_000)]
        return "".join(rows)
    if kind == "digits":
        return "".join(rng.choices("abcdef0123456789", k=120_000))
    return " ".join(rng.choices(WORDS, k=40_000))


CHARACTERS_OF_A_TOKEN: Mapping[Kind, int] = {"words": 4, "rows": 2, "digits": 2}


def text_of(tokens: int, kind: Kind = "words", number: int = 0) -> str:
    """A text of about so many tokens; those of several numbers differ."""
    start = number * 97 % 1_000
    return _long_text(kind)[start : start + tokens * CHARACTERS_OF_A_TOKEN[kind]]


# -- Loops


@dataclass(frozen=True, kw_only=True)
class Round:
    """An assistant's message with calls, and their results of some sizes in tokens."""

    sizes: tuple[int, ...]
    kind: Kind = "words"
    words: int = 0
    """Tokens of the assistant's own words."""

    def messages(self, number: int, *, ids: bool) -> list[BaseMessage]:
        assistant = AIMessage(
            text_of(self.words, number=number),
            tool_calls=[self._call(number, place) for place in range(len(self.sizes))],
            id=f"a{number}" if ids else None,
        )
        results = [self._result(number, place, ids=ids) for place in range(len(self.sizes))]
        return [assistant, *results]

    def _call(self, number: int, place: int) -> ToolCall:
        return ToolCall(name="look_up", args={"page": place}, id=f"t{number}-{place}")

    def _result(self, number: int, place: int, *, ids: bool) -> ToolMessage:
        size = self.sizes[place]
        return ToolMessage(
            text_of(size, self.kind, number + place),
            tool_call_id=f"t{number}-{place}",
            id=f"r{number}-{place}" if ids else None,
            status="error" if size % 7 == 3 else "success",
        )


IMAGE = {"type": "image_url", "image_url": {"url": "https://example.org/a.png", "detail": "low"}}


@dataclass(frozen=True, kw_only=True)
class Loop:
    """A conversation, and one turn of an agent that calls tools."""

    history: int = 0
    opening: tuple[str, ...] = ("human",)
    """What the turn has at its first call of the model: messages of the user, rounds."""
    human_tokens: int = 10
    rounds: tuple[Round, ...] = ()
    ids: bool = True
    options: Mapping[str, Any] = field(default_factory=dict)
    tools: bool = True

    @property
    def settings(self) -> ContextSettings:
        return ContextSettings(learn=False).override(self.options)

    def before(self) -> list[BaseMessage]:
        """The messages of the conversation before the turn."""
        return list(_history(self.history))

    def turns(self) -> Iterator[list[BaseMessage]]:
        """The turn as it is at every call of the model."""
        turn: list[BaseMessage] = []
        for number, kind in enumerate(self.opening):
            turn += self._opening_messages(kind, number)
        yield turn
        for number, each in enumerate(self.rounds, start=len(self.opening)):
            turn = [*turn, *each.messages(number, ids=self.ids)]
            yield turn

    def _opening_messages(self, kind: str, number: int) -> list[BaseMessage]:
        if kind == "round":
            return Round(sizes=(40,), words=5).messages(number, ids=self.ids)
        padding = text_of(self.human_tokens, number=number)
        question = f"What did we decide about the plan in Bonn? {padding}"
        key = f"h{number}" if self.ids else None
        if kind == "image":
            return [HumanMessage([{"type": "text", "text": question}, IMAGE], id=key)]
        return [HumanMessage(question, id=key)]

    def request(self, background: object = None) -> Request:
        """What the model is asked with, the background of the agent's state included."""
        return Request(tools=[LOOK_UP] if self.tools else (), background=background)


@cache
def _history(length: int) -> tuple[BaseMessage, ...]:
    rng = random.Random(1)
    messages: list[BaseMessage] = []
    while len(messages) < length:
        number = len(messages)
        text = " ".join(rng.choices(WORDS, k=rng.randint(3, 60)))
        if number % 9 == 5:
            messages += _old_round(number, text * rng.choice([1, 20]))
        elif number % 2 == 0:
            messages.append(HumanMessage(text, id=f"m{number}"))
        else:
            messages.append(AIMessage(text, id=f"m{number}"))
    return tuple(messages[:length])


def _old_round(number: int, text: str) -> list[BaseMessage]:
    call = ToolCall(name="look_up", args={}, id=f"old{number}")
    return [
        AIMessage("", tool_calls=[call], id=f"m{number}"),
        ToolMessage(text, tool_call_id=f"old{number}", id=f"m{number + 1}"),
    ]


sizes = st.sampled_from([0, 1, 10, 60, 300, 300, 900, 3_000, LONGEST_RESULT_TOKENS])
rounds = st.builds(
    Round,
    sizes=st.lists(sizes, min_size=1, max_size=3).map(tuple),
    kind=st.sampled_from(["words", "rows", "digits"]),
    words=st.sampled_from([0, 0, 12, 120]),
)
openings = st.sampled_from(
    [
        *5 * [("human",)],
        ("image",),
        ("human", "human"),
        ("human", "round", "human"),
        ("round",),
        ("round", "human"),
    ]
)
options = st.fixed_dictionaries(
    {
        "allocation": st.sampled_from(STRATEGIES),
        "emphasis": st.sampled_from(["balanced", "balanced", "recall", "cache"]),
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
def loops(draw: st.DrawFn, *, most_history: int, most_rounds: int) -> Loop:
    """Loops of some length."""
    budget = draw(st.one_of(st.integers(300, 2_000), st.integers(300, 16_000)))
    return Loop(
        history=draw(st.one_of(st.just(0), st.integers(0, 40), st.integers(0, most_history))),
        opening=draw(openings),
        human_tokens=draw(st.sampled_from([0, 10, 10, 100, budget // 3, budget])),
        rounds=tuple(draw(st.lists(rounds, min_size=1, max_size=most_rounds))),
        ids=draw(st.booleans()),
        options={**draw(options), "max_context_tokens": budget},
        tools=draw(st.sampled_from([True, True, True, False])),
    )


# -- What a loop is judged by


NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


class Process:
    """A process that answers calls of a loop; several may have one store."""

    def __init__(self, loop: Loop, store: InMemoryStore | None = None) -> None:
        self.loop = loop
        self.store = store or InMemoryStore()
        self.pipeline = ContextPipeline(
            loop.settings,
            system_prompt="You are a careful assistant.",
            store=self.store,
            token_counter=counter(),
            writer_id="w",
            clock=lambda: NOON,
        )

    def answer(
        self,
        turn: Sequence[BaseMessage],
        *,
        before: Sequence[BaseMessage] | None = None,
        background: object = None,
    ) -> Session:
        """Answers a call of the model.

        Args:
            turn: the turn as it is.
            before: the messages before it, if not those of the loop.
            background: what the agent's state has kept of an earlier call.
        """
        history = self.loop.before() if before is None else list(before)
        request = self.loop.request(background)
        prompter = Prompter(self.pipeline.engine, SCOPE)
        return drive(prompter.answer(history, turn, request))


def background_in_state(session: Session) -> Any:
    """The background of a prompt as an agent's state keeps it; None where there is none."""
    if session.plan.background is None:
        return None
    return json.loads(json.dumps(session.plan.background.to_dict()))


def messages_of(session: Session) -> list[BaseMessage]:
    assert session.context is not None
    return session.context.messages


def report_of(session: Session) -> ContextReport:
    assert session.context is not None
    return session.context.report


def texts_of(message: BaseMessage) -> list[str]:
    if isinstance(message.content, str):
        return [message.content]
    return list(map(text_of_block, message.content))


def text_of_block(block: str | dict[str, Any]) -> str:
    if isinstance(block, str):
        return block
    return str(block.get("text", block))


def head(session: Session) -> list[Any]:
    """What stands before the turn, and its first human message.

    Without the notes on rounds that are left out.
    """
    messages = messages_of(session)
    turn_length = sum(len(group.messages) for group in session.plan.turn.groups)
    start = len(messages) - turn_length
    before = [
        (message.type, message.content)
        for message in messages[:start]
        if message.text != NO_FIRST_QUESTION
    ]
    for message in messages[start:]:
        if isinstance(message, HumanMessage):
            texts = [text.replace(session.plan.turn.note, "") for text in texts_of(message)]
            return [*before, list(filter(None, texts))]
    return before


def check_tokens(session: Session, chat_openai: ChatOpenAI) -> None:
    """The prompt fits, and OpenAI's own way of counting finds what the report says."""
    report = report_of(session)
    recount = chat_openai.get_num_tokens_from_messages(messages_of(session))
    assert recount + sum(session.plan.extras.values()) == report.total_tokens
    assert report.total_tokens <= report.budget_tokens
    assert ContextReport.from_dict(report.to_dict()) == report  # which checks that it adds up


def check_providers_accept(session: Session) -> None:
    assert check_openai(messages_of(session)) == []
    assert check_anthropic(messages_of(session)) == []


def check_report_tells_of_every_message(session: Session) -> None:
    report = report_of(session)
    if report.coverage:
        assert report.coverage[-1].last == len(session.plan.conversation.entries)
    listed: list[str] = []
    for item in report.layer(Layer.MESSAGE).items:
        listed += item.id.split(" + ")
    turn = [message.id or message.type for message in session.plan.request.turn]
    assert sorted(listed) == sorted(turn), "each message of the turn once"


def check_same(first: Session, second: Session) -> None:
    assert messages_of(first) == messages_of(second)
    assert report_of(first).layers == report_of(second).layers
    assert report_of(first).coverage == report_of(second).coverage
    assert report_of(first).overhead_tokens == report_of(second).overhead_tokens
    assert report_of(first).failures == report_of(second).failures
    assert first.plan.background == second.plan.background


def has_room_as_planned(session: Session) -> bool:
    """Whether the turn's words and newest calls leave the others the room that is planned."""
    return session.plan.turn.free_tokens > 0


def has_background(session: Session) -> bool:
    return session.plan.fixed is not None or not session.plan.turn.stage


def check_head_stays(calls: Sequence[Session]) -> None:
    """What stands before the rounds changes once, when the turn outgrows what is kept free for it.

    A turn whose words and newest calls alone need more than the room that is planned for it takes
    it from the others.
    """
    for before, now in pairwise(calls):
        assert before.plan.turn.stage <= now.plan.turn.stage, "a long turn stays one"
        as_planned = has_room_as_planned(before) and has_room_as_planned(now)
        same_stage = before.plan.turn.stage == now.plan.turn.stage
        same_background = has_background(before) == has_background(now)
        if as_planned and same_stage and same_background:
            assert head(before) == head(now)


def answers_to(loop: Loop) -> list[Session]:
    """The answers to all calls of a loop, until the budget is too small."""
    process = Process(loop)
    answers = []
    for turn in loop.turns():
        try:
            answers.append(process.answer(turn))
        except BudgetTooSmallError:
            break
    return answers


def check_loop(loop: Loop, chat_openai: ChatOpenAI) -> None:
    answers = answers_to(loop)
    for session in answers:
        check_tokens(session, chat_openai)
        check_providers_accept(session)
        check_report_tells_of_every_message(session)
    if loop.options["max_context_tokens"] >= SMALL_BUDGET:
        check_head_stays(answers)


def check_every_process_agrees(loop: Loop) -> None:
    """A process that goes on shows what another one shows that takes the turn up.

    With the agent's state or without it. One on an empty store does so while the turn is no long
    one: what was chosen for earlier calls of a long turn is not in that store.
    """
    process = Process(loop)
    background = None
    is_short = True
    for turn in loop.turns():
        try:
            session = process.answer(turn)
        except BudgetTooSmallError:
            with pytest.raises(BudgetTooSmallError):
                Process(loop, process.store).answer(turn)
            return
        check_same(session, Process(loop, process.store).answer(turn))
        if background is not None:
            other = Process(loop, process.store)
            check_same(session, other.answer(turn, background=background))
        is_short = is_short and not session.plan.turn.stage
        if is_short:
            check_same(session, Process(loop).answer(turn))
        background = background_in_state(session)


common = settings(deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
quick = settings(common, max_examples=5)
long = settings(common, max_examples=30)
short_loops = loops(most_history=60, most_rounds=6)


@pytest.mark.slow
@quick
@given(loop=short_loops.filter(lambda loop: loop.options["tool_reserve"] <= USUAL_RESERVE))
def test_every_call_of_a_loop_fits_is_valid_and_keeps_the_head(
    chat_openai: ChatOpenAI, loop: Loop
) -> None:
    check_loop(loop, chat_openai)


@pytest.mark.slow
@settings(quick)
@given(loop=short_loops)
def test_every_process_shows_the_same(loop: Loop) -> None:
    check_every_process_agrees(loop)


@pytest.mark.slow
@long
@given(loop=loops(most_history=300, most_rounds=40))
def test_every_call_of_a_long_loop_fits_is_valid_and_keeps_the_head(
    chat_openai: ChatOpenAI, loop: Loop
) -> None:
    check_loop(loop, chat_openai)


# -- Scripted loops


def looking(history: int = 60, rounds: int = 12, size: int = 150, **options: Any) -> Loop:
    """A loop of rounds that are all of one size."""
    return Loop(
        history=history,
        rounds=(Round(sizes=(size,), words=10),) * rounds,
        options={"max_context_tokens": 4_000, **options},
    )


@dataclass(frozen=True)
class Removal:
    """A call after which every quoted message was taken out, and what the call before quoted."""

    quotes: Mapping[str, str]
    session: Session


@pytest.fixture(scope="module")
def removal() -> Removal:
    loop = looking(max_context_tokens=1_500, size=10)
    process = Process(loop)
    first, turn, *_ = loop.turns()
    session = process.answer(first)
    assert session.plan.background is not None
    quotes = {
        fragment.id: fragment.text
        for fragment in session.plan.background.fragments
        if fragment.layer == Layer.RETRIEVAL
    }
    assert quotes
    left = [message for message in loop.before() if message.id not in quotes]
    background = background_in_state(session)
    return Removal(quotes, process.answer(turn, before=left, background=background))


def test_a_message_that_is_taken_out_leaves_the_background(removal: Removal) -> None:
    background = removal.session.plan.background

    assert background is not None
    ids = {fragment.id for fragment in background.fragments}
    assert removal.quotes.keys() & ids == set()


def test_a_message_that_is_taken_out_is_not_quoted_from_the_state(removal: Removal) -> None:
    prompt = "\n".join(message.text for message in messages_of(removal.session))

    quoted = [text for text in removal.quotes.values() if text in prompt]

    assert [text for text in quoted if "[called" not in text] == []


@pytest.mark.parametrize("budget", [4_000, 8_000])
def test_late_calls_of_a_turn_only_add_to_the_prompt(budget: int) -> None:
    loop = looking(rounds=44, size=budget // 20, max_context_tokens=budget)
    process = Process(loop)
    last_turns = list(loop.turns())[-4:]

    prompts = [messages_of(process.answer(turn)) for turn in last_turns]

    assert prompts[1][: len(prompts[0])] == prompts[0]
    assert prompts[2][: len(prompts[1])] == prompts[1]
    assert prompts[3][: len(prompts[2])] == prompts[2]


@pytest.mark.slow
@pytest.mark.parametrize("budget", [1_200, 4_000])
def test_another_process_goes_on_with_a_background_chosen_in_a_turn(budget: int) -> None:
    loop = looking(history=40, rounds=6, size=300, max_context_tokens=budget)
    process = Process(loop)
    *earlier, question, _ = loop.before()
    process.answer([question], before=earlier)

    for turn in loop.turns():
        check_same(process.answer(turn), Process(loop, process.store).answer(turn))


# -- What a long turn costs


@dataclass(frozen=True)
class LongTurn:
    """The prompts of a long turn, and all messages that there were at each call."""

    budget: int
    prompts: list[list[BaseMessage]]
    transcripts: list[list[BaseMessage]]


@pytest.fixture(scope="module", params=[2_000, 8_000, 16_000])
def long_turn(request: pytest.FixtureRequest) -> LongTurn:
    sizes = (60, 300, 900, 10, 3_000, 300) * 8
    rounds = tuple(Round(sizes=(size,), words=10) for size in sizes)
    loop = Loop(history=60, rounds=rounds, options={"max_context_tokens": request.param})
    process = Process(loop)
    turns = list(loop.turns())
    prompts = [messages_of(process.answer(turn)) for turn in turns]
    transcripts = [[*loop.before(), *turn] for turn in turns]
    return LongTurn(request.param, prompts, transcripts)


def tokens_of(messages: Sequence[BaseMessage]) -> int:
    return sum(map(counter().count_message, messages))


def shared_start(first: Sequence[BaseMessage], second: Sequence[BaseMessage]) -> int:
    """The number of messages with which both begin."""
    pairs = zip(first, second, strict=False)
    return len(list(takewhile(lambda pair: pair[0] == pair[1], pairs)))


def price(requests: Sequence[Sequence[BaseMessage]]) -> float:
    """What requests cost in tokens, where a provider reads its cache for a tenth."""
    price = float(tokens_of(requests[0]))
    for before, now in pairwise(requests):
        cached = now[: shared_start(before, now)]
        price += tokens_of(now) - 0.9 * tokens_of(cached)
    return price


@pytest.mark.slow
def test_a_long_turn_costs_less_than_sending_everything(long_turn: LongTurn) -> None:
    assert price(long_turn.prompts) <= 0.7 * price(long_turn.transcripts)


@pytest.mark.slow
def test_a_prompt_is_written_anew_only_where_all_does_not_fit(long_turn: LongTurn) -> None:
    sizes_when_rewritten = [
        tokens_of(transcript)
        for (before, now), transcript in zip(
            pairwise(long_turn.prompts), long_turn.transcripts[1:], strict=True
        )
        if shared_start(before, now) < len(before)
    ]

    assert sizes_when_rewritten
    assert min(sizes_when_rewritten) > 0.9 * long_turn.budget
