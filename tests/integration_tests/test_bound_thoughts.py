"""Claude's thoughts are sent only behind what they were made behind.

The double of Anthropic's API binds each thought to the request that it answers, and refuses it
behind anything else ("Prefix checks on thinking blocks", platform.claude.com).
"""

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import count
from random import Random
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_anthropic import ChatAnthropic
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.store.memory import InMemoryStore
from pydantic import Field

from langchain_ctxbudget import AssembledContext, BudgetedChatMessageHistory, ContextPipeline
from langchain_ctxbudget.integrations.graph import build_context_graph
from langchain_ctxbudget.middleware import ContextBudgetMiddleware
from langchain_ctxbudget.providers import PROFILES, profile_of
from tests.cases import few_are_quick
from tests.doubles.anthropic import read_before
from tests.doubles.issued import signature
from tests.doubles.providers import MESSAGES

pytestmark = pytest.mark.usefixtures("offline_tiktoken")

SCOPE: dict[str, Any] = {"user_id": "ada", "conversation_id": "c1"}
BY_HAND = {"type": "enabled", "budget_tokens": 1_024}


class Claude(ChatAnthropic):
    """A model that thinks before each answer, and notes which requests its API refuses."""

    rounds: int = 0
    """How often it calls a tool in each turn."""
    answered: int = 0
    problems: list[str] = Field(default_factory=list)

    def reply(self, messages: Sequence[BaseMessage], text: str, **options: Any) -> AIMessage:
        """The answer to a request; without a text it calls a tool."""
        payload = self._get_request_payload(list(messages), **options)
        body = json.loads(json.dumps(payload))
        self.problems += MESSAGES.problems_of(body)
        self.answered += 1
        thought = f"Thought {self.answered}. " + "Hm. " * 20
        mark = signature("anthropic", thought, read_before(body))
        content: list[Any] = [{"type": "thinking", "thinking": thought, "signature": mark}]
        calls: list[Any] = []
        if text:
            content.append({"type": "text", "text": text})
        else:
            calls.append({"name": "search", "args": {}, "id": f"call_{self.answered}"})
        metadata = {"model_provider": "anthropic"}
        return AIMessage(
            content, tool_calls=calls, id=f"a{self.answered}", response_metadata=metadata
        )

    def _generate(
        self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **options: Any
    ) -> ChatResult:
        results = 0
        while isinstance(messages[-1 - results], ToolMessage):
            results += 2  # with the call before it
        text = "Answer. " * 30 if results >= 2 * self.rounds else ""
        answer = self.reply(messages, text, **options)
        return ChatResult(generations=[ChatGeneration(message=answer)])


def claude(**options: Any) -> Claude:
    return Claude(model="claude-opus-5-5", api_key="x", **options)


class Talk:
    """A conversation with Claude, which thinks before each answer."""

    def __init__(self, budget: int = 4_000, model: Claude | None = None, **settings: Any) -> None:
        self.settings = {"max_context_tokens": budget, "learn": False, **settings}
        self.model = model or claude()
        self.store = InMemoryStore()
        self.now = datetime(2026, 11, 1, tzinfo=UTC)
        self.system_prompt = "You are a clerk."
        self.tools: list[Any] = []
        self.numbers = count()
        self.restart()

    @property
    def problems(self) -> list[str]:
        """What Claude's API has refused."""
        return self.model.problems

    def restart(self) -> None:
        """Goes on in another process."""
        self.pipeline = ContextPipeline(
            self.settings,
            model=self.model,
            system_prompt=self.system_prompt,
            store=self.store,
            clock=lambda: self.now,
        )

    def prompt(self, turn: Sequence[BaseMessage], **changes: Any) -> AssembledContext:
        self.now += timedelta(seconds=5)
        settings = changes or None
        return self.pipeline.assemble(list(turn), tools=self.tools, settings=settings, **SCOPE)

    def answer(self, prompt: AssembledContext, text: str = "") -> AIMessage:
        """Claude's answer to a prompt, which adds up."""
        report = prompt.report
        parts = sum(layer.used_tokens for layer in report.layers)
        assert report.total_tokens == parts + sum(report.overhead_tokens.values())
        return self.model.reply(prompt.messages, text, tools=self.tools)

    def ask(self, words: int = 30, rounds: int = 0, **changes: Any) -> AssembledContext:
        """A turn of the user, with rounds of calls; returns its last prompt."""
        question = "word " * words
        turn: list[BaseMessage] = [HumanMessage(f"Question {next(self.numbers)}. {question}")]
        for _ in range(rounds):
            called = self.answer(self.prompt(turn, **changes))
            turn.append(called)
            turn.append(ToolMessage("row " * words, tool_call_id=called.tool_calls[0]["id"]))
        prompt = self.prompt(turn, **changes)
        turn.append(self.answer(prompt, "Answer. " * words))
        self.pipeline.add_messages(turn, **SCOPE)
        return prompt


def thoughts(messages: Sequence[BaseMessage]) -> list[str]:
    """The ids of the messages that have thoughts."""
    return [
        str(message.id)
        for message in messages
        if any(isinstance(block, dict) and block["type"] == "thinking" for block in message.content)
    ]


def told(prompt: AssembledContext) -> set[str]:
    return {repair.message_id for repair in prompt.report.repairs if repair.kind == "reasoning"}


def all_thoughts(talk: Talk) -> list[str]:
    return thoughts(talk.pipeline.get_messages(**SCOPE))


# A growing conversation


def test_thoughts_stay_in_a_prompt_that_is_extended() -> None:
    talk = Talk()
    for _ in range(4):
        talk.ask()
    made = all_thoughts(talk)

    assert thoughts(talk.ask().messages) == made
    assert talk.problems == []


def test_a_rebuilt_prompt_has_no_thoughts_of_earlier_ones() -> None:
    talk = Talk()
    for _ in range(4):
        talk.ask()
    made = all_thoughts(talk)
    talk.now += timedelta(hours=1)
    prompt = talk.ask()

    assert thoughts(prompt.messages) == []
    assert told(prompt) == set(made)


def test_what_is_lost_stays_lost() -> None:
    talk = Talk()
    for _ in range(4):
        talk.ask()
    talk.now += timedelta(hours=1)
    rebuilt = talk.ask()
    newest = all_thoughts(talk)[-1]
    prompt = talk.ask()

    assert thoughts(prompt.messages) == [newest]
    sent = [message.content for message in rebuilt.messages]
    assert [message.content for message in prompt.messages[: len(sent)]] == sent
    assert talk.problems == []


def test_what_is_stored_does_not_change() -> None:
    talk = Talk()
    for _ in range(3):
        talk.ask()
    talk.now += timedelta(hours=1)
    talk.ask()

    assert len(all_thoughts(talk)) == 4


def test_a_lost_thought_costs_nothing() -> None:
    talk = Talk()
    talk.ask()
    whole = talk.ask().report
    talk.now += timedelta(hours=1)
    bare = talk.ask().report
    answers = [
        item.tokens
        for report in (whole, bare)
        for layer in report.layers
        for item in layer.items
        if item.id == "a1"
    ]

    assert answers[0] > answers[1]


# Whatever happens to it


def pause(talk: Talk, _random: Random) -> None:
    talk.now += timedelta(hours=1)


def restart(talk: Talk, _random: Random) -> None:
    talk.restart()


def other_system_prompt(talk: Talk, random: Random) -> None:
    talk.system_prompt = f"You are clerk {random.random()}."
    talk.restart()


def other_tools(talk: Talk, random: Random) -> None:
    # Of the same length: they cost the same.
    name = random.choice(["search_a", "search_b"])
    talk.tools = [{"name": name, "description": "Finds.", "input_schema": {"type": "object"}}]


def edit(talk: Talk, random: Random) -> None:
    message = random.choice(talk.pipeline.get_messages(**SCOPE))
    if isinstance(message, HumanMessage):
        edited = HumanMessage(f"Edited {random.random()}", id=message.id)
        talk.pipeline.edit_message(str(message.id), edited, **SCOPE)


def remove(talk: Talk, random: Random) -> None:
    message = random.choice(talk.pipeline.get_messages(**SCOPE))
    talk.pipeline.remove_messages([message.id], **SCOPE)


def pin(talk: Talk, random: Random) -> None:
    message = random.choice(talk.pipeline.get_messages(**SCOPE))
    wish: Any = random.choice(["keep", "summarize", "drop"])
    talk.pipeline.pin(str(message.id), preservation=wish, **SCOPE)


def other_budget(talk: Talk, random: Random) -> None:
    talk.ask(max_context_tokens=random.choice([3_000, 6_000, 20_000]))


def imported(talk: Talk, random: Random) -> None:
    """Messages that Claude has not answered behind a prompt of this pipeline."""
    thought = f"Elsewhere {random.random()}."
    mark = signature("anthropic", thought, "something else")
    block = {"type": "thinking", "thinking": thought, "signature": mark}
    answer = AIMessage([block, {"type": "text", "text": "Yes."}])
    talk.pipeline.add_messages([HumanMessage("And?"), answer], **SCOPE)


def large_message(talk: Talk, _random: Random) -> None:
    talk.ask(words=900)


def long_loop(talk: Talk, random: Random) -> None:
    talk.ask(words=random.choice([40, 300]), rounds=8)


EVENTS = (
    pause,
    restart,
    other_system_prompt,
    other_tools,
    edit,
    remove,
    pin,
    other_budget,
    imported,
    large_message,
    long_loop,
)
SETTINGS: Sequence[dict[str, Any]] = (
    {},
    {"emphasis": "recall"},
    {"emphasis": "cache"},
    {"layout": "system_first"},
    {"cache_markers": "anthropic"},
    {"cache_lifetime_seconds": 0},
)


@pytest.mark.parametrize("is_stored", [True, False])
def test_foreign_thoughts_are_told_as_that(*, is_stored: bool) -> None:
    thought = {"type": "reasoning", "id": "rs_1", "summary": []}
    metadata = {"model_provider": "openai"}
    call = {"name": "search", "args": {}, "id": "c1"}
    answer = AIMessage(
        [thought, {"type": "text", "text": "Hm."}], tool_calls=[call], response_metadata=metadata
    )
    messages = [HumanMessage("Hello."), answer, ToolMessage("Row 1.", tool_call_id="c1")]
    talk = Talk()
    if is_stored:
        talk.pipeline.add_messages(messages, **SCOPE)
        messages = [HumanMessage("And now?")]

    prompt = talk.prompt(messages)

    assert [repair.kind for repair in prompt.report.repairs] == ["foreign_reasoning"]


@pytest.mark.slow
@pytest.mark.parametrize("seed", few_are_quick([*range(1, 20)]))
def test_no_thought_stands_behind_anything_else(seed: int) -> None:
    random = Random(seed)
    budget = random.choice([3_000, 4_000, 8_000, 32_000])
    talk = Talk(budget, **SETTINGS[seed % len(SETTINGS)])
    talk.ask()
    for _ in range(12):
        for _ in range(random.randint(1, 4)):
            talk.ask(words=random.choice([5, 60, 200]), rounds=random.choice([0, 0, 1, 3]))
        random.choice(EVENTS)(talk, random)
        talk.ask()
        assert talk.problems == []


# Loops of calls


def test_a_loop_keeps_its_thoughts() -> None:
    talk = Talk(budget=32_000)
    prompt = talk.ask(rounds=5)

    assert len(thoughts(prompt.messages)) == 5
    assert talk.problems == []


def test_a_rebuild_in_the_middle_of_a_turn_loses_the_thoughts_of_the_turn() -> None:
    talk = Talk(budget=3_000)
    prompts = [talk.ask()]
    turn: list[BaseMessage] = [HumanMessage("Look it up.")]
    for _ in range(8):
        prompts.append(talk.prompt(turn))
        called = talk.answer(prompts[-1])
        turn += [called, ToolMessage("row " * 250, tool_call_id=called.tool_calls[0]["id"])]
    rebuilt = [prompt for prompt in prompts[2:] if prompt.report.stability.mode == "rebuilt"]

    assert rebuilt
    assert [thoughts(prompt.messages) for prompt in rebuilt] == [[]] * len(rebuilt)
    assert talk.problems == []


@pytest.mark.slow
@pytest.mark.parametrize("words", [40, 250])
def test_thinking_by_hand_keeps_the_thoughts_of_the_loop(words: int) -> None:
    by_hand = Claude(model="claude-sonnet-4-5", api_key="x", thinking=BY_HAND)
    talk = Talk(budget=3_000, model=by_hand)
    for _ in range(3):
        talk.ask(words, rounds=6)

    assert talk.problems == []


# Other ways


def search() -> str:
    """Searches."""
    return "row " * 60


def agent_of(model: Claude, pipeline: ContextPipeline, memory: InMemorySaver) -> Any:
    middleware = ContextBudgetMiddleware(pipeline, recall_tool=False)
    return create_agent(model, [search], middleware=[middleware], checkpointer=memory)


CONFIG: Any = {"configurable": {"thread_id": "c1", "user_id": "ada"}}


@pytest.mark.slow
@pytest.mark.parametrize("budget", few_are_quick([2_000, 8_000, 32_000]))
@pytest.mark.parametrize("restarts", [False, True])
def test_agents_with_the_middleware(budget: int, restarts: bool) -> None:
    model = claude(rounds=4)
    memory = InMemorySaver()
    store = InMemoryStore()
    agent: Any = None
    for number in range(6):
        if agent is None or restarts:
            settings = {"max_context_tokens": budget, "learn": False}
            pipeline = ContextPipeline(settings, model=model, store=store)
            agent = agent_of(model, pipeline, memory)
        agent.invoke({"messages": [HumanMessage(f"Question {number}")]}, CONFIG)

    assert model.answered == 30
    assert model.problems == []


def test_an_agent_keeps_its_thoughts() -> None:
    model = claude(rounds=2)
    sent: list[int] = []
    pipeline = ContextPipeline({"max_context_tokens": 32_000, "learn": False}, model=model)
    agent = agent_of(model, pipeline, InMemorySaver())
    for number in range(3):
        agent.invoke({"messages": [HumanMessage(f"Question {number}")]}, CONFIG)
        report = pipeline.engine.recent.last.report()
        sent.append(len([repair for repair in report.repairs if repair.kind == "reasoning"]))

    assert sent == [0, 0, 0]


@pytest.mark.slow
@pytest.mark.parametrize("budget", [2_000, 32_000])
def test_a_graph(budget: int) -> None:
    model = claude()
    settings = {"max_context_tokens": budget, "learn": False}
    graph = build_context_graph(ContextPipeline(settings, model=model))
    state: dict[str, Any] = {"messages": []}
    kept: list[int] = []
    for number in range(20):
        state["messages"] = [
            *state["messages"],
            HumanMessage(f"Question {number}. " * 10, id=f"h{number}"),
        ]
        output = graph.invoke(state, CONFIG)
        kept.append(len(thoughts(output["llm_input_messages"])))
        answer = model.reply(output["llm_input_messages"], "Answer. " * 30)
        messages = [*state["messages"], answer]
        state = {"messages": messages, "ctxbudget_turn": output["ctxbudget_turn"]}

    assert kept[:4] == [0, 1, 2, 3]
    assert model.problems == []


@pytest.mark.slow
@pytest.mark.parametrize("most", [600, 2_000, 32_000])
def test_windows_of_a_history(most: int) -> None:
    model = claude()
    pipeline = ContextPipeline({"learn": False}, model=model)
    history = BudgetedChatMessageHistory("c1", user_id="ada", pipeline=pipeline, max_tokens=most)
    kept: list[int] = []
    for number in range(20):
        question = HumanMessage(f"Question {number}. " * 10)
        sent = [SystemMessage("You are a clerk."), *history.messages, question]
        kept.append(len(thoughts(sent)))
        history.add_messages([question, model.reply(sent, "Answer. " * 30)])

    assert kept[:2] == [0, 1]
    assert kept[-1] == (19 if most == 32_000 else 0)
    assert model.problems == []


# Whose models bind them


class ChatBedrock:
    """As far as a class of `langchain_aws` tells of its model."""

    model_id = "anthropic.claude-sonnet-4-5"

    def __init__(self, **options: Any) -> None:
        vars(self).update(options)


@pytest.mark.parametrize(
    ("model", "binds"),
    [
        (claude(), True),
        (claude(thinking={"type": "adaptive"}), True),
        (claude(thinking=BY_HAND), False),
        (ChatBedrock(model_kwargs={"thinking": BY_HAND}), False),
        (ChatBedrock(model_kwargs={"temperature": 1}), True),
        (claude().bind(thinking=BY_HAND), False),
        (claude(thinking=BY_HAND).bind(stop=["x"]), False),
        ("claude-opus-5-5", True),
        ("gemini-3-pro", False),
        ("gpt-6", False),
    ],
)
def test_a_model_tells_whether_its_thoughts_are_bound(model: Any, binds: bool) -> None:
    assert profile_of(model).binds_thoughts is binds


def test_a_model_tells_it_where_the_application_names_the_provider() -> None:
    by_hand = claude(thinking=BY_HAND)
    pipeline = ContextPipeline(model=by_hand, provider="anthropic")

    assert not pipeline.engine.target.profile.binds_thoughts


@pytest.mark.parametrize("name", ["anthropic-vertex", "bedrock", "bedrock-converse"])
def test_claude_binds_them_everywhere(name: str) -> None:
    assert PROFILES[name].binds_thoughts
