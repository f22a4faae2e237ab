"""Keeps what the package does now, and tells what another state of the code does differently.

    python benchmarks/goldens.py write FOLDER [--data DATA] [--quick] [--only GLOB ...]
    python benchmarks/goldens.py compare FOLDER [--data DATA] [--quick] [--only GLOB ...]

A golden is a JSON file with everything that one case gave: the messages that reach the model, the
reports, and every record of the store. The cases are

- `matrix-*`: conversations through every strategy at four budgets;
- `growing-*`: conversations and agent sessions that grow turn by turn over one warm pipeline;
- `learning-*`: what is learned about a user, by rules and by a model;
- `way-*`: every other way in (graph, middleware, history, memory, retriever, tools, command line);
- `change-*`: what applications do with a stored conversation: edit, remove, pin, fork, hand over.

The bundled conversation is always among them. With `--data`, so are real conversations and
sessions of a coding agent (a folder with `locomo.dev.jsonl.gz`, `realmem.dev.jsonl.gz`,
`coding.dev.jsonl.gz` and `rules.dev.jsonl`; goldens of these must stay outside the repository).

Only public names are used, so that this file outlives what is inside the package. The package is
the one that Python finds first, so `PYTHONPATH` says which state of the code is looked at.
"""

# ruff: noqa: ANN401, ARG001, ARG002 - other people's interfaces
# ruff: noqa: PLC0415 - what only one case needs is loaded by it
from __future__ import annotations

import argparse
import asyncio
import base64
import contextlib
import gzip
import io
import json
import os
import re
import runpy
import sys
import tempfile
import threading
import time
import warnings
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatch
from functools import partial
from itertools import islice, pairwise
from pathlib import Path
from typing import Annotated, Any, Self

from langchain_core.documents import BaseDocumentCompressor, Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.language_models import BaseChatModel, FakeListChatModel
from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolCall,
    ToolMessage,
    message_to_dict,
)
from langchain_core.messages.ai import UsageMetadata
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import tool
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.prebuilt.tool_node import ToolCallRequest
from langgraph.store.base import BaseStore, GetOp, Item, Op, PutOp, Result
from langgraph.store.memory import InMemoryStore
from pydantic import BaseModel, Field, SecretStr
from typing_extensions import TypedDict

from langchain_ctxbudget import (
    AssembledContext,
    BudgetedChatMessageHistory,
    BudgetedRetriever,
    ChromaStore,
    ContextPipeline,
    ContextReport,
    EstimatingCounter,
    HuggingFaceCounter,
    KnowledgeBase,
    ModelCounter,
    TiktokenCounter,
    TokenCounter,
    build_context_graph,
    create_recall_tool,
)
from langchain_ctxbudget.demo import (
    DEMO_FACTS,
    DEMO_QUESTION,
    DEMO_SETTINGS,
    DEMO_SYSTEM_PROMPT,
    demo_messages,
)
from langchain_ctxbudget.errors import BudgetTooSmallError, CtxBudgetError

STRATEGIES = ("elastic", "ratio", "fixed", "dynamic", "prioritized")
BUDGETS = (1_024, 2_048, 4_096, 8_192)
QUICK_BUDGET = 2_048
"""The budget of the bundled conversation in a quick run, with every strategy."""
GROWING_BUDGET = 4_096

MOST_MESSAGES = 400
"""Messages of a real conversation that the matrix reads."""
QUESTIONS = 6
"""Questions that the matrix asks about each real conversation."""
AGENT_STEPS = 4
"""Prompts that the matrix makes in each session of an agent."""
MESSAGES_BETWEEN_STEPS = 20
MOST_RULES = 120
"""Sentences with standing instructions that are learned from."""

USER = "golden"
CONVERSATION = "c1"
SCOPE: dict[str, Any] = {"user_id": USER, "conversation_id": CONVERSATION}

NEW_YEAR = datetime(2027, 1, 1, tzinfo=UTC)
TURN_TIME = timedelta(seconds=40)
"""The time between two turns of a growing conversation."""
PAUSE = timedelta(minutes=20)
"""A time after which no provider's cache holds the last prompt."""

NOT_COMPARED = {
    "timings_ms": "measured with the computer's clock",
    "made_in_ms": "measured with the computer's clock",
    "seconds": "measured with the computer's clock",
    "tokenizer_calls": "depends on what this process has counted before",
}
"""Fields of reports and records that are left out, stored reports included, and why. Nothing else is left out;
where there is another clock or a random name, see `ClockedStore` and `RANDOM_NAMES`."""

RANDOM_NAMES = {
    "unique": re.compile(r"\b[0-9a-f]{12}4[0-9a-f]{3}[89ab][0-9a-f]{15}\b"),
    "uuid": re.compile(
        r"\b[0-9a-f]{8}-[0-9a-f]{4}-[47][0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}\b"
    ),
    "snapshot": re.compile(r"(?<=\d{8}T\d{12}-)\d{8}-[0-9a-f]{8}\b"),
}
"""What is random (UUIDs of version 4 and 7, with and without hyphens) or counts through the whole
process (the end of a snapshot's key). Each is replaced by its kind and a number, the same for the
same one, in the order in which they come up; so it is compared where else a random name stands,
but not what it is."""


@dataclass(frozen=True)
class Case:
    """One golden: its name, and the function that returns its data."""

    name: str
    make: Callable[[], object]
    is_quick: bool = False


class Clock:
    """A clock that only moves when it is told to."""

    def __init__(self, begin: datetime = NEW_YEAR) -> None:
        self.now = begin

    def __call__(self) -> datetime:
        return self.now

    def forward(self, duration: timedelta = TURN_TIME) -> None:
        self.now += duration


class ClockedStore(InMemoryStore):
    """A store in memory whose records have the times of a clock.

    A message that tells no time has that of its record, so the computer's clock would get into
    prompts, into the order of conversations, and into records.
    """

    def __init__(self, clock: Clock, **options: Any) -> None:
        super().__init__(**options)
        self.clock = clock
        self._lock = threading.Lock()

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        ops = list(ops)
        with self._lock:
            results = super().batch(ops)
            self._set_times(ops)
        return results

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        ops = list(ops)
        results = await super().abatch(ops)
        with self._lock:
            self._set_times(ops)
        return results

    def _set_times(self, ops: Sequence[Op]) -> None:
        written = [op for op in ops if isinstance(op, PutOp) and op.value is not None]
        places = [GetOp(op.namespace, op.key) for op in written]
        for item in super().batch(places):
            if isinstance(item, Item):
                item.created_at = self.clock()
                item.updated_at = self.clock()


class ScriptedModel(BaseChatModel):
    """A chat model that answers from a function, and keeps the messages that it was given."""

    reply: Callable[[int, Sequence[BaseMessage]], AIMessage]
    """Returns the answer to some messages; told how many answers there were before."""
    given: list[list[BaseMessage]] = Field(default_factory=list)
    tools: list[list[str]] = Field(default_factory=list)
    """The names of the tools of each call that binds some."""

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Sequence[Any], **_options: Any) -> Self:
        self.tools.append([convert_to_openai_tool(tool)["function"]["name"] for tool in tools])
        return self

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: object = None,
        **_options: Any,
    ) -> ChatResult:
        answer = self.reply(len(self.given), messages)
        self.given.append([message.model_copy(deep=True) for message in messages])
        return ChatResult(generations=[ChatGeneration(message=answer)])


def with_result_id(request: ToolCallRequest, handler: Callable[[ToolCallRequest], Any]) -> Any:
    """Runs a tool, and gives its result the id of its call; else LangGraph makes a random one."""
    result = handler(request)
    result.id = f"result-{request.tool_call['id']}"
    return result


async def with_result_id_async(
    request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[Any]]
) -> Any:
    result = await handler(request)
    result.id = f"result-{request.tool_call['id']}"
    return result


def short_answer(number: int, messages: Sequence[BaseMessage]) -> AIMessage:
    """Answers with how much was sent."""
    usage = UsageMetadata(
        input_tokens=100 * len(messages),
        output_tokens=10,
        total_tokens=100 * len(messages) + 10,
    )
    text = f"Answer {number}: I read {len(messages)} messages."
    return AIMessage(text, id=f"answer-{number}", usage_metadata=usage)


STATIONS = ("Lyon", "Turin", "Milan", "Verona", "Bolzano", "Innsbruck", "Munich", "Salzburg")


@tool
def trains(start: str, end: str) -> str:
    """The trains of a day."""
    return "\n".join(
        f"{hour:02}:{7 * hour % 60:02} {start} - {end}, {20 + hour} euros, {hour % 3} changes"
        for hour in range(5, 23)
    )


@tool
def weather(place: str) -> str:
    """The weather of tomorrow."""
    return f"{place}: {'rain' if len(place) % 2 else 'sun'}, {14 + len(place)} degrees."


JOURNEY = [
    "We are four, and Ines cannot walk far. Please keep that in mind.",
    *(
        f"How do we get from {start} to {end}, and how will the weather be?"
        for start, end in pairwise(STATIONS * 2)
    ),
    "Recall: who of us cannot walk far?",
]


def travel_agent(number: int, messages: Sequence[BaseMessage]) -> AIMessage:
    """Looks up trains and weather for every way that is asked for, or what was said before."""
    key = f"answer-{number}"
    last = messages[-1]
    if isinstance(last, ToolMessage):
        return AIMessage(f"I found this: {last.text.splitlines()[-1][:200]}", id=key)
    way = re.search(r"from (\w+) to (\w+), and how", last.text)
    if way:
        calls = [
            ToolCall(name="trains", args={"start": way[1], "end": way[2]}, id=f"{key}-trains"),
            ToolCall(name="weather", args={"place": way[2]}, id=f"{key}-weather"),
        ]
        return AIMessage("I look it up.", tool_calls=calls, id=key)
    if "Recall:" in last.text:
        call = ToolCall(name="recall", args={"query": "who cannot walk far"}, id=f"{key}-recall")
        return AIMessage("", tool_calls=[call], id=key)
    return AIMessage("I will.", id=key)


FILES = {
    f"src/part{number}.py": "\n".join(
        f"def part_{number}_{line}(value: int) -> int:  # line {line}\n    return value + {line}"
        for line in range(60)
    )
    for number in range(4)
}


@tool
def read_file(path: str) -> str:
    """Reads a file."""
    return FILES[path]


@tool
def edit_file(path: str, old: str, new: str) -> str:
    """Replaces a text in a file."""
    return f"Replaced {len(old)} characters by {len(new)} in {path}."


@tool
def run_command(command: str) -> str:
    """Runs a command."""
    lines = [f"tests/test_part.py::test_{number} PASSED" for number in range(40)]
    return "\n".join([f"$ {command}", *lines, "FAILED tests/test_part.py - assert 3 == 4"])


LOOP_STEPS = 24
"""Calls of the coding agent in one turn."""


def coding_agent(number: int, messages: Sequence[BaseMessage]) -> AIMessage:
    """Reads a file, edits it and runs the tests, over and over in one turn."""
    key = f"answer-{number}"
    path = f"src/part{number // 3 % 4}.py"
    if number % (LOOP_STEPS + 1) == LOOP_STEPS:
        return AIMessage("All parts are done.", id=key)
    if number % 3 == 0:
        call = ToolCall(name="read_file", args={"path": path}, id=f"{key}-read")
    elif number % 3 == 1:
        line = f"return value + {number}"
        change = {"path": path, "old": line, "new": f"{line} + 1"}
        call = ToolCall(name="edit_file", args=change, id=f"{key}-edit")
    else:
        call = ToolCall(name="run_command", args={"command": f"pytest {path}"}, id=f"{key}-run")
    return AIMessage(f"Step {number}.", tool_calls=[call], id=key)


def writing_model(number: int, messages: Sequence[BaseMessage]) -> AIMessage:
    """Answers requests for summaries and for what is to be learned alike, out of their last words.

    What it answers depends on nothing but what it was asked: it is asked in threads.
    """
    lines = [line for line in messages[-1].text.splitlines() if line.strip()]
    names = sorted(set(re.findall(r"\b[A-Z][a-z]{4,}\b", messages[-1].text)))
    questions = [line.strip()[:150] for line in lines if line.strip().endswith("?")]
    reply = {
        "summary": f"They say {len(lines)} things.\n" + "\n".join(f"- {one}" for one in lines[::9]),
        "key_decisions": [f"They agree on this: {lines[-2][:100]}"],
        "open_questions": questions[:3],
        "code_artifacts": names[:4],
        "facts": [
            {
                "messages": [1],
                "text": f"Talks about {' and '.join(names[-2:])}",
                "category": "preference",
                "confidence": 0.9,
                "updates": "",
                "supersedes": [],
                "slot": "",
            }
        ],
        "topics": [{"messages": [1], "label": name, "aliases": []} for name in names[:1]],
        "entities": [{"messages": [1], "name": name, "type": "person"} for name in names[1:3]],
    }
    return AIMessage(json.dumps(reply), id=f"written-{number}")


# What is compared


def prompt_of(context: AssembledContext) -> dict[str, Any]:
    """Returns a prompt and its report as data."""
    return {"messages": dicts(context.messages), "report": context.report.to_dict()}


def dicts(messages: Iterable[BaseMessage]) -> list[dict[str, Any]]:
    return [message_to_dict(message) for message in messages]


def records_of(store: BaseStore) -> list[dict[str, Any]]:
    """Returns every record of a store, by place and key."""
    items = store.search((), limit=1_000_000)
    items.sort(key=lambda item: (item.namespace, item.key))
    return [
        {"namespace": list(item.namespace), "key": item.key, "value": item.value} for item in items
    ]


def as_text(data: object) -> str:
    """Returns a golden's data as the text of its file."""
    data = without_measures(json.loads(json.dumps(data, default=plain)))
    text = json.dumps(data, indent=1, sort_keys=True, ensure_ascii=False)
    for kind, pattern in RANDOM_NAMES.items():
        text = with_numbers(text, kind, pattern)
    halves_escaped = text.encode("utf-8", "backslashreplace").decode("utf-8")
    return halves_escaped + "\n"


def without_measures(data: Any) -> Any:
    """Returns data without the fields that are not compared, wherever they stand in it."""
    if isinstance(data, dict):
        return {
            name: without_measures(value)
            for name, value in data.items()
            if name not in NOT_COMPARED
        }
    if isinstance(data, list):
        return [without_measures(item) for item in data]
    return data


def plain(value: object) -> object:
    """Returns an object that JSON does not know as data."""
    if isinstance(value, BaseMessage):
        return message_to_dict(value)
    if isinstance(value, ContextReport):
        return value.to_dict()
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if isinstance(value, datetime):
        return value.isoformat()
    if is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    raise TypeError(f"a golden cannot have a {type(value).__name__}: {value!r}")


def with_numbers(text: str, kind: str, pattern: re.Pattern[str]) -> str:
    """Replaces every name that matches by its kind and a number."""
    numbers: dict[str, int] = {}

    def numbered(found: re.Match[str]) -> str:
        number = numbers.setdefault(found[0], len(numbers) + 1)
        return f"<{kind} {number}>"

    return pattern.sub(numbered, text)


# Conversations


@dataclass(frozen=True)
class Conversation:
    """Messages, and the turns that are asked after so many of them."""

    name: str
    messages: Sequence[BaseMessage]
    asked: Sequence[tuple[int, Sequence[BaseMessage]]]


def demo() -> Conversation:
    messages = demo_messages()
    questions = [DEMO_QUESTION, "Good morning.", "What did we decide about the labels?"]
    asked = [
        (count, [HumanMessage(question)])
        for count in (40, 150, len(messages))
        for question in questions
    ]
    return Conversation("demo", messages, asked)


def lines_of(path: Path) -> Iterator[dict[str, Any]]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        for line in file:
            yield json.loads(line)


def chat_of(name: str, row: Mapping[str, Any]) -> Conversation:
    """Reads a conversation of two people; the first to speak is the user."""
    user = row["turns"][0]["speaker"]
    messages: list[BaseMessage] = []
    for turn in row["turns"][:MOST_MESSAGES]:
        kind = HumanMessage if turn["speaker"] == user else AIMessage
        about = {"created_at": turn["time"]} if turn["time"] else {}
        message = kind(turn["text"], name=turn["speaker"], id=turn["id"], additional_kwargs=about)
        messages.append(message)
    questions = sorted(row["questions"], key=lambda question: question["history"])
    within = [question for question in questions if question["history"] <= len(messages)]
    if not within:
        within = questions[:QUESTIONS]
    every = max(1, len(within) // QUESTIONS)
    asked = [
        (min(question["history"], len(messages)), [HumanMessage(question["question"])])
        for question in within[::every][:QUESTIONS]
    ]
    return Conversation(name, messages, asked)


def session_of(name: str, row: Mapping[str, Any]) -> Conversation:
    """Reads a session of a coding agent, with its calls and their results."""
    messages: list[BaseMessage] = []
    known_calls: set[str] = set()
    for place, line in enumerate(row["messages"]):
        key = f"m{place}"
        text = line["text"] or "."
        if line["role"] == "user":
            messages.append(HumanMessage(text, id=key))
        elif line["role"] == "tool" and line["id"] in known_calls:
            messages.append(ToolMessage(text, tool_call_id=line["id"], id=key))
        elif line["role"] == "assistant":
            calls = [
                {"name": call["name"], "args": call["args"], "id": call["id"]}
                for call in line["calls"]
            ]
            known_calls |= {call["id"] for call in calls}
            messages.append(AIMessage(line["text"] or "", tool_calls=calls, id=key))
    results = [place for place, message in enumerate(messages) if isinstance(message, ToolMessage)]
    asked = []
    for end in results[-AGENT_STEPS * MESSAGES_BETWEEN_STEPS :: MESSAGES_BETWEEN_STEPS]:
        begin = turn_begin(messages, end)
        asked.append((begin, messages[begin : end + 1]))
    return Conversation(name, messages, asked)


def turn_begin(messages: Sequence[BaseMessage], position: int) -> int:
    """Returns the position of the user's message that a message belongs to."""
    for place in reversed(range(position)):
        if isinstance(messages[place], HumanMessage):
            return place
    return 0


def real_conversations(data: Path) -> Iterator[Conversation]:
    for number, row in enumerate(islice(lines_of(data / "locomo.dev.jsonl.gz"), 2)):
        yield chat_of(f"locomo-{number}", row)
    yield chat_of("realmem-0", next(lines_of(data / "realmem.dev.jsonl.gz")))
    for number, row in enumerate(islice(lines_of(data / "coding.dev.jsonl.gz"), 2)):
        yield session_of(f"coding-{number}", row)


def turns_of(messages: Sequence[BaseMessage]) -> list[list[BaseMessage]]:
    """Splits messages into turns, each from a message of the user up to the next."""
    turns: list[list[BaseMessage]] = []
    for message in messages:
        if isinstance(message, HumanMessage) or not turns:
            turns.append([])
        turns[-1].append(message)
    return turns


# Cases


def pipeline_over(
    store: ClockedStore, settings: Mapping[str, Any], **options: Any
) -> ContextPipeline:
    """Returns a pipeline whose writer and clock are known."""
    options.setdefault("system_prompt", DEMO_SYSTEM_PROMPT)
    return ContextPipeline(settings, store=store, writer_id=USER, clock=store.clock, **options)


def assembled(pipeline: ContextPipeline, turn: Any, **options: Any) -> dict[str, Any]:
    """Returns a prompt as data, or why there is none."""
    try:
        context = pipeline.assemble(turn, **{**SCOPE, **options})
    except BudgetTooSmallError as error:
        return {"refused": str(error)}
    return prompt_of(context)


def matrix(conversation: Conversation, strategy: str, budget: int) -> dict[str, Any]:
    """Asks about a conversation, with one strategy and one budget."""
    settings = {"max_context_tokens": budget, "allocation": strategy, "learn": False}
    store = ClockedStore(Clock())
    prompts = []
    with pipeline_over(store, settings) as pipeline:
        stored = 0
        for count, turn in sorted(conversation.asked, key=lambda asked: asked[0]):
            if count > stored:
                pipeline.add_messages(conversation.messages[stored:count], **SCOPE)
                stored = count
            prompts.append(assembled(pipeline, turn))
        pipeline.flush()
    return {"prompts": prompts, "records": records_of(store)}


def growing(
    messages: Sequence[BaseMessage], settings: Mapping[str, Any], *, pause_every: int = 12
) -> dict[str, Any]:
    """Makes the prompt of every turn of a conversation, over one warm pipeline.

    In a turn of an agent there is a prompt before each of its answers. After every so many turns
    there is a pause in which the provider's cache forgets.
    """
    clock = Clock()
    store = ClockedStore(clock)
    settings = {"max_context_tokens": GROWING_BUDGET, "learn": False, **settings}
    prompts = []
    with pipeline_over(store, settings) as pipeline:
        for number, turn in enumerate(turns_of(messages), 1):
            for place, message in enumerate(turn):
                if place and isinstance(message, AIMessage):
                    prompts.append(assembled(pipeline, turn[:place]))
                    clock.forward()
            pipeline.add_messages(turn, **SCOPE)
            pipeline.flush()
            clock.forward(PAUSE if number % pause_every == 0 else TURN_TIME)
        coverage = pipeline.coverage(**SCOPE)
        compactions = pipeline.get_compactions(**SCOPE)
    return {
        "prompts": prompts,
        "coverage": coverage,
        "compactions": compactions,
        "records": records_of(store),
    }


def learning(messages: Sequence[BaseMessage], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Learns from a conversation while it goes on, and shows what is known in later prompts."""
    clock = Clock()
    store = ClockedStore(clock)
    settings = {"max_context_tokens": GROWING_BUDGET, **settings}
    prompts = []
    with pipeline_over(store, settings) as pipeline:
        for number, turn in enumerate(turns_of(messages), 1):
            pipeline.add_messages(turn, **SCOPE)
            clock.forward()
            pipeline.flush()
            if number % 10 == 0:
                pipeline.end_session(**SCOPE)
                pipeline.flush()
                clock.forward(PAUSE)
                prompts.append(assembled(pipeline, DEMO_QUESTION))
                prompts.append(
                    assembled(pipeline, "What do you know about me?", conversation_id="c2")
                )
                pipeline.flush()
        known = known_of(pipeline, USER)
        pipeline.flush()
    return {"prompts": prompts, "known": known, "records": records_of(store)}


def known_of(pipeline: ContextPipeline, user_id: str) -> dict[str, Any]:
    """Returns everything that is known of a user, and where it comes from."""
    knowledge = pipeline.knowledge
    lines = knowledge.list_known(user_id=user_id)
    return {
        "facts": knowledge.list_facts(user_id=user_id, include_ended=True),
        "topics": knowledge.list_topics(user_id=user_id),
        "entities": knowledge.list_entities(user_id=user_id),
        "bundles": knowledge.list_bundles(user_id=user_id),
        "lines": lines,
        "text": knowledge.describe(user_id=user_id),
        "why": {line.id: knowledge.why(line.id, user_id=user_id) for line in lines},
    }


# Ways in. Each returns what reached a model or a user.

CHAT_QUESTIONS = (
    "What did we decide about the labels?",
    "And who makes them?",
    DEMO_QUESTION,
)
RUN: RunnableConfig = {"configurable": {"user_id": USER, "thread_id": CONVERSATION}}
SMALL: dict[str, Any] = {"max_context_tokens": 2_048, "learn": False}


def way_chat() -> dict[str, Any]:
    """A conversation of a pipeline, with all that can be read of it."""
    store = ClockedStore(Clock())
    told = demo_messages()
    with pipeline_over(store, SMALL | {"keep_snapshots": 3}) as pipeline:
        chat = pipeline.conversation(CONVERSATION, user_id=USER)
        ids = chat.add(told[:60], told[60])
        contexts = [chat.assemble(question) for question in CHAT_QUESTIONS]
        pipeline.flush()
        page = chat.page(limit=5)
        older = chat.page(limit=5, before=page.before)
        report = chat.last_report()
        scope: dict[str, Any] = SCOPE
        told_of = {
            "ids": ids,
            "prompts": list(map(prompt_of, contexts)),
            "turns": [dicts(context.turn) for context in contexts],
            "page": page,
            "older": older,
            "messages": chat.messages(),
            "coverage": chat.coverage(),
            "compactions": chat.compactions(),
            "status": chat.status(),
            "last_report": report,
            "snapshots": pipeline.snapshots.list(**scope),
            "analytics": pipeline.snapshots.analytics(**scope),
            "what_if": pipeline.what_if([1_024, 4_096]),
        }
    return {**told_of, "records": records_of(store)}


def way_async() -> dict[str, Any]:
    """The same by the methods that are awaited, and by the pipeline's own names."""
    store = ClockedStore(Clock())
    told = demo_messages()

    async def talk() -> dict[str, Any]:
        async with pipeline_over(store, SMALL) as pipeline:
            chat = pipeline.conversation(CONVERSATION, user_id=USER)
            await pipeline.aadd_messages(told[:60], **SCOPE)
            contexts = [await chat.aassemble(question) for question in CHAT_QUESTIONS]
            contexts.append(await pipeline.aassemble("And the lease?", **SCOPE))
            await chat.aadd(contexts[0].turn, AIMessage("In May.", id="said"))
            await chat.apin(["demo-003"])
            await chat.aedit("demo-004", AIMessage("Edited: it costs 40 pounds.", id="demo-004"))
            await chat.aremove(["demo-005"])
            fork = await chat.afork("c2", until="demo-020")
            contexts.append(await fork.aassemble("Where were we?"))
            await pipeline.aflush()
            return {
                "prompts": list(map(prompt_of, contexts)),
                "page": await chat.apage(limit=3),
                "coverage": await chat.acoverage(),
                "status": await chat.astatus(),
                "conversations": await pipeline.alist_conversations(user_id=USER),
                "known": await pipeline.knowledge.alist_known(user_id=USER),
            }

    return {**asyncio.run(talk()), "records": records_of(store)}


def way_history() -> dict[str, Any]:
    """LangChain's chat message history, alone and in `RunnableWithMessageHistory`."""
    from langchain_core.runnables.history import RunnableWithMessageHistory

    store = ClockedStore(Clock())
    model = ScriptedModel(reply=short_answer)
    with pipeline_over(store, SMALL) as pipeline:

        def history_of(session_id: str, max_tokens: int | None = 1_500) -> Any:
            return BudgetedChatMessageHistory(
                session_id, user_id=USER, pipeline=pipeline, max_tokens=max_tokens
            )

        history = history_of(CONVERSATION)
        history.add_messages(demo_messages()[:90])
        windows = {tokens: history.window(tokens) for tokens in (200, 800, 3_000, 50_000)}
        prompt = ChatPromptTemplate(
            [("system", "Be brief."), MessagesPlaceholder("history"), ("human", "{question}")]
        )
        with warnings.catch_warnings(action="ignore"):  # LangChain has deprecated it
            chain = RunnableWithMessageHistory(
                prompt | model,
                history_of,
                input_messages_key="question",
                history_messages_key="history",
            )
        for question in CHAT_QUESTIONS * 2:
            chain.invoke({"question": question}, {"configurable": {"session_id": CONVERSATION}})
        window = history.messages
        whole = history_of(CONVERSATION, max_tokens=None).messages
        history_of("other").add_user_message("Hello")
        history_of("other").clear()
        pipeline.flush()
    return {
        "windows": {str(tokens): dicts(window) for tokens, window in windows.items()},
        "given": list(map(dicts, model.given)),
        "messages": dicts(window),
        "whole": dicts(whole),
        "records": records_of(store),
    }


def way_memory() -> dict[str, Any]:
    """The memory of LangChain's old chains, as a window and as the whole prompt."""
    from langchain_classic.chains import LLMChain

    from langchain_ctxbudget.memory import BudgetedMemory

    store = ClockedStore(Clock())
    model = ScriptedModel(reply=short_answer)
    loaded = []
    with pipeline_over(store, SMALL) as pipeline:
        pipeline.add_messages(demo_messages()[:50], **SCOPE)
        for is_whole in (False, True):
            memory = BudgetedMemory(
                pipeline=pipeline,
                user_id=USER,
                conversation_id=CONVERSATION,
                whole_prompt=is_whole,
                max_tokens=1_500,
            )
            loaded.append(memory.load_memory_variables({"input": DEMO_QUESTION})["history"])
            prompt = ChatPromptTemplate(
                [MessagesPlaceholder("history"), *([] if is_whole else [("human", "{input}")])]
            )
            with warnings.catch_warnings(action="ignore"):  # LangChain has deprecated it
                chain = LLMChain(llm=model, prompt=prompt, memory=memory)
            for question in CHAT_QUESTIONS:
                chain.invoke({"input": question})
        pipeline.flush()
    return {
        "loaded": list(map(dicts, loaded)),
        "given": list(map(dicts, model.given)),
        "records": records_of(store),
    }


class GraphState(TypedDict):
    """The state of an application's graph around the context graph."""

    messages: Annotated[list[AnyMessage], add_messages]
    llm_input_messages: list[AnyMessage]
    ctxbudget_turn: dict[str, Any] | None
    context_report: dict[str, Any] | None


def way_graph(*, is_async: bool = False) -> dict[str, Any]:
    """The context graph as a node before a model that calls tools."""
    store = ClockedStore(Clock())
    model = ScriptedModel(reply=travel_agent)
    reports = []
    with pipeline_over(store, SMALL) as pipeline:
        tools = [trains, weather, create_recall_tool(pipeline)]
        node = build_context_graph(
            pipeline, prompt="You plan journeys.", tools=tools, report="texts"
        )
        bound = model.bind_tools(tools)

        def answer(state: GraphState) -> dict[str, Any]:
            reports.append(state["context_report"])
            return {"messages": [bound.invoke(state["llm_input_messages"])]}

        graph = StateGraph(GraphState)
        graph.add_node("context", node)
        graph.add_node("model", answer)
        graph.add_node(
            "tools",
            ToolNode(tools, wrap_tool_call=with_result_id, awrap_tool_call=with_result_id_async),
        )
        graph.add_edge(START, "context")
        graph.add_edge("context", "model")
        graph.add_conditional_edges("model", tools_condition)
        graph.add_edge("tools", "context")
        agent: Any = graph.compile(checkpointer=InMemorySaver())
        for number, question in enumerate(JOURNEY):
            given = {"messages": [HumanMessage(question, id=f"question-{number}")]}
            if is_async:
                asyncio.run(agent.ainvoke(given, RUN))
            else:
                agent.invoke(given, RUN)
            store.clock.forward()
        state = agent.get_state(RUN).values
        pipeline.flush()
    return {
        "given": list(map(dicts, model.given)),
        "reports": reports,
        "state": {"messages": state["messages"], "turn": state["ctxbudget_turn"]},
        "records": records_of(store),
    }


def way_graph_nodes() -> dict[str, Any]:
    """The context graph alone: what each step writes, and steps of the application's own."""
    store = ClockedStore(Clock())
    told = demo_messages()
    given = {"messages": [*told[:70], HumanMessage(DEMO_QUESTION, id="asked")]}

    def from_wiki(_state: dict[str, Any]) -> dict[str, Any]:
        return {"retrieved": [{"text": "The kitchen closes at ten.", "id": "wiki/kitchen"}]}

    with pipeline_over(store, SMALL | DEMO_SETTINGS) as pipeline:
        graph: Any = build_context_graph(pipeline, default_user=USER, report="numbers")
        steps = list(graph.stream(given, RUN, stream_mode="updates"))
        own: Any = build_context_graph(pipeline, nodes={"retrieve": from_wiki}, default_user=USER)
        answered = own.invoke(given, RUN)
        alone: Any = build_context_graph(pipeline, default_user=USER)
        unnamed = alone.invoke(given)
        pipeline.flush()
    return {
        "steps": steps,
        "own": answered["llm_input_messages"],
        "without_thread": unnamed["llm_input_messages"],
        "records": records_of(store),
    }


def way_agent(
    settings: Mapping[str, Any],
    reply: Callable[[int, Sequence[BaseMessage]], AIMessage],
    tools: Sequence[Any],
    questions: Sequence[str],
    *,
    is_async: bool = False,
    users: Sequence[str] = (USER,),
    **options: Any,
) -> dict[str, Any]:
    """An agent of LangChain with the middleware; users take turns in one thread."""
    from langchain.agents import create_agent
    from langchain.agents.middleware import AgentMiddleware

    from langchain_ctxbudget.middleware import ContextBudgetMiddleware

    class ResultIds(AgentMiddleware[Any, Any, Any]):
        """Gives results of tools ids that are the same in every run."""

        def wrap_tool_call(self, request: ToolCallRequest, handler: Any) -> Any:
            return with_result_id(request, handler)

        async def awrap_tool_call(self, request: ToolCallRequest, handler: Any) -> Any:
            return await with_result_id_async(request, handler)

    store = ClockedStore(Clock())
    model = ScriptedModel(reply=reply)
    reports = []
    with pipeline_over(store, settings) as pipeline:
        agent: Any = create_agent(
            model,
            list(tools),
            system_prompt="You look things up before you answer.",
            middleware=[ResultIds(), ContextBudgetMiddleware(pipeline, report="texts", **options)],
            checkpointer=InMemorySaver(),
        )
        for number, question in enumerate(questions):
            user = users[number % len(users)]
            run: RunnableConfig = {
                "configurable": {"user_id": user, "thread_id": CONVERSATION},
                "recursion_limit": 100,
            }
            given = {"messages": [HumanMessage(question, id=f"question-{number}")]}
            state = asyncio.run(agent.ainvoke(given, run)) if is_async else agent.invoke(given, run)
            reports.append(state["ctxbudget_report"])
            store.clock.forward(PAUSE if number % 5 == 4 else TURN_TIME)
        pipeline.flush()
    return {
        "given": list(map(dicts, model.given)),
        "tools": model.tools,
        "reports": reports,
        "state": state["messages"],
        "records": records_of(store),
    }


def travelling(settings: Mapping[str, Any], **options: Any) -> dict[str, Any]:
    return way_agent({**SMALL, **settings}, travel_agent, [trains, weather], JOURNEY, **options)


def coding(settings: Mapping[str, Any], **options: Any) -> dict[str, Any]:
    questions = ["Please repair all parts.", "Now do it once more, with tests.", "Thank you."]
    tools = [read_file, edit_file, run_command]
    settings = {**SMALL, "max_context_tokens": GROWING_BUDGET, **settings}
    return way_agent(settings, coding_agent, tools, questions, **options)


def way_retriever() -> dict[str, Any]:
    """The retriever over conversations, memories and documents, with and without limits."""
    store = ClockedStore(Clock())
    found = {}
    with pipeline_over(store, SMALL | {"learn": "rules"}) as pipeline:
        fill(pipeline)
        options: dict[str, dict[str, Any]] = {
            "plain": {"user_id": USER},
            "many": {"user_id": USER, "k": None, "max_tokens": 600},
            "open": {"user_id": USER, "conversation_id": CONVERSATION, "k": 8},
            "memories": {"user_id": USER, "sources": ("memories",)},
            "documents": {"default_user": USER, "sources": ("documents",), "k": 2},
        }
        for name, given in options.items():
            retriever = BudgetedRetriever(pipeline=pipeline, **given)
            for question in (*CHAT_QUESTIONS, "How high is the fine per day?"):
                found[f"{name}: {question}"] = retriever.invoke(question)
            found[f"{name}: one"] = asyncio.run(retriever.ainvoke(DEMO_QUESTION, k=1))
        pipeline.flush()
    return {"found": found, "records": records_of(store)}


HOUSE_RULES = """# Opening hours

Tuesday to Saturday, from ten to six. In August the library is closed on Saturdays.

# Fines

One pound a day for each tool, ten pounds at most. Whoever cannot pay may help for an hour.

## Exceptions

No fine is due for tools that came back broken and were reported on the same day.
"""


def fill(pipeline: ContextPipeline) -> None:
    """Gives a user three conversations, facts and documents."""
    told = demo_messages()
    documents = KnowledgeBase(pipeline.store, user_id=USER, chunk_tokens=64, chunk_overlap_tokens=8)
    documents.add(HOUSE_RULES, metadata={"source": "rules.md", "title": "House rules"})
    shared = KnowledgeBase(pipeline.store, shared=True)
    shared.add("The lease of the fire station ends on 30 June 2027.", metadata={"source": "lease"})
    for number, begin in enumerate((0, 90, 180), 1):
        chat = pipeline.conversation(f"c{number}", user_id=USER)
        chat.add(told[begin : begin + 90])
        chat.end_session()
        pipeline.flush()
        pipeline_clock(pipeline).forward(timedelta(days=1))
    pipeline.knowledge.add_fact("Lives in Lisbon", user_id=USER, category="identity", slot="home")


def pipeline_clock(pipeline: ContextPipeline) -> Clock:
    """Returns the clock of a pipeline's store."""
    store = pipeline.store
    assert isinstance(store, ClockedStore)
    return store.clock


def way_tools() -> dict[str, Any]:
    """The recall tool outside an agent, by words and by reference."""
    store = ClockedStore(Clock())
    answers = []
    with pipeline_over(store, SMALL) as pipeline:
        fill(pipeline)
        pipeline.assemble(DEMO_QUESTION, **SCOPE)
        recall = create_recall_tool(pipeline, max_tokens=500)
        for given in (
            {"query": "labels"},
            {"query": "who lends the tools, and for how long?"},
            {"reference": "1"},
            {"reference": "17"},
            {"reference": "20-24"},
            {"reference": "900"},
            {"query": "x", "reference": "1"},
            {},
        ):
            answers.append(recall.invoke(given, RUN))
            answers.append(asyncio.run(recall.ainvoke(given, RUN)))
    return {"answers": answers, "schema": convert_to_openai_tool(recall)}


def way_runnable() -> dict[str, Any]:
    """The pipeline as a step of a chain, with every kind of input."""
    store = ClockedStore(Clock())
    model = ScriptedModel(reply=short_answer)
    told = demo_messages()
    template = ChatPromptTemplate([("system", "Answer in {language}."), ("human", "{question}")])
    with pipeline_over(store, SMALL) as pipeline:
        pipeline.add_messages(told[:60], **SCOPE)
        step = pipeline.as_runnable(default_user=USER, tools=[trains])
        asked: list[Any] = [
            DEMO_QUESTION,
            HumanMessage(DEMO_QUESTION, id="asked"),
            [HumanMessage("A list of one.", id="one")],
            template.invoke({"language": "English", "question": DEMO_QUESTION}),
            {"messages": [*told[:64], HumanMessage("From a state.", id="state")]},
        ]
        chain = step | model
        for given in asked:
            chain.invoke(given, RUN)
            asyncio.run(chain.ainvoke(given, RUN))
        pipeline.flush()
    return {"given": list(map(dicts, model.given)), "records": records_of(store)}


def way_documents() -> dict[str, Any]:
    """Documents: added, replaced, deleted, searched, and quoted in prompts."""
    store = ClockedStore(Clock())
    found: dict[str, Any] = {}
    prompts = []
    with pipeline_over(store, SMALL) as pipeline, tempfile.TemporaryDirectory() as folder:
        options: dict[str, Any] = {"chunk_tokens": 48, "chunk_overlap_tokens": 8}
        own = KnowledgeBase(store, user_id=USER, **options)
        shared = KnowledgeBase(store, shared=True)
        manual = Path(folder, "manual.txt")
        manual.write_text("\n\n".join(message.text for message in demo_messages()[:30]))
        about = {"source": "rules.md", "title": "House rules", "date": "2026-01-05", "version": 3}
        pages = [
            Document(
                f"Page {number} tells of tool {number}.", metadata={"source": "b", "page": number}
            )
            for number in range(5)
        ]
        found["added"] = [
            own.add(HOUSE_RULES, metadata=about),
            own.add(manual, metadata={"source": "manual.txt", "summary": "How tools are lent."}),
            own.add(pages),
            own.add(text="rules.md", metadata={"source": "odd"}),
            shared.add("The lease ends on 30 June 2027.", metadata={"source": "lease.txt"}),
            own.add(HOUSE_RULES, metadata=about),
            own.add(HOUSE_RULES + "\n# Keys\n\nMaya has them.\n", metadata=about),
            asyncio.run(own.aadd("Read me twice.", metadata={"source": "async"})),
        ]
        found["deleted"] = [own.delete("odd"), own.delete("never there")]
        found["list"] = own.list()
        found["whole"] = own.get("rules.md")
        for query in ("How high is the fine?", "Who has the keys?", "tool 3", "when is it closed"):
            found[f"search {query}"] = own.search(query, k=3)
            prompts.append(assembled(pipeline, query))
        prompts.append(assembled(pipeline, "What does the manual say? Please sum up manual.txt."))
        prompts.append(assembled(pipeline, "Read the House rules to me."))
        pipeline.flush()
    return {"found": found, "prompts": prompts, "records": records_of(store)}


def way_replay() -> dict[str, Any]:
    """A replay of a conversation with several strategies."""
    from langchain_ctxbudget.replay import replay

    told = demo_messages()[:60]
    result = replay(
        told,
        ["elastic", "recency@1024", "ratio", "full", "recall", {"keep_messages": 2}],
        budget=2_048,
        system_prompt=DEMO_SYSTEM_PROMPT,
        tools=[trains],
        evidence={20: ["demo-003"], 25: ["demo-009", "demo-017"]},
    )
    return {"data": result.to_dict(), "text": result.to_text()}


def way_command_line() -> dict[str, Any]:
    """The command line: what it prints for files and stores."""
    told = demo_messages()
    printed = {}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "chat.json")
        store = Path(folder, "store")
        lines = [
            {
                "role": "user" if isinstance(message, HumanMessage) else "assistant",
                "content": message.text,
                "id": message.id,
                "created_at": message.additional_kwargs["created_at"],
            }
            for message in told[:60]
        ]
        file.write_text(json.dumps(lines))
        commands = (
            ["demo", "--budget", "2k"],
            ["demo", "--message", "Who is Ines?", "--allocation", "ratio"],
            ["assemble", "--conversation", str(file), "--message", "Hello?", "--budget", "900"],
            ["replay", str(file), "--compare", "elastic,recency@1k", "--budget", "2k"],
            ["import", str(file), "--store", str(store), "--user", "maya"],
            ["import", str(file), "--store", str(store), "--user", "maya"],
            ["inspect", "--store", str(store), "--user", "maya"],
            ["inspect", "--store", str(store), "--user", "maya", "--text"],
            ["inspect", "facts", "--store", str(store), "--user", "nobody"],
            ["inspect", "--store", str(Path(folder, "nowhere")), "--user", "maya"],
            ["assemble", "--conversation", str(file), "--message", "Hello?", "--budget", "0"],
        )
        for number, command in enumerate(commands, 1):
            text = run_command_line(command).replace(folder, "FOLDER")
            printed[f"{number} {' '.join(command)}".replace(folder, "FOLDER")] = text
    return printed


def run_command_line(arguments: Sequence[str]) -> str:
    """Runs a command in this process, and returns what it prints, without times."""
    output = io.StringIO()
    before = sys.argv
    os.environ["COLUMNS"] = "100"
    sys.argv = ["ctxbudget", *arguments]
    code: object = 0
    try:
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
            runpy.run_module("langchain_ctxbudget.cli", run_name="__main__", alter_sys=False)
    except SystemExit as ending:
        code = ending.code
    finally:
        sys.argv = before
    text = re.sub(r".*━.*\n", "", output.getvalue())  # a bar of progress
    text = re.sub(r"[\d.,]+ ms", "some ms", text)
    text = re.sub(r'"timings_ms": \{.*?\}', '"timings_ms": {}', text, flags=re.DOTALL)
    text = re.sub(r'"tokenizer_calls": \d+', '"tokenizer_calls": 0', text)
    text = re.sub(r"Time .*?\n\n", "Time\n\n", text, flags=re.DOTALL)
    text = re.sub(r"[\d,]+ new texts?", "some new texts", text)
    return f"{text}\nexit: {code}"


def way_dashboard() -> dict[str, Any]:
    """The dashboard's answers, without a server."""
    import httpx

    from langchain_ctxbudget.dashboard import create_app

    store = ClockedStore(Clock())
    answers: dict[str, Any] = {}
    about = f"session_id={CONVERSATION}"
    questions = [
        "sessions",
        f"status?{about}",
        f"snapshots?{about}",
        "snapshots?session_id=c2",
        f"preview?{about}&budget=1500&message=Who%20makes%20the%20labels%3F",
        f"messages?{about}&first=3&last=6",
        f"usage?{about}",
        "known",
        "status?session_id=nowhere",
    ]

    async def ask(pipeline: ContextPipeline) -> None:
        app = create_app(pipeline, user_id=USER)
        transport = httpx.ASGITransport(app, client=("127.0.0.1", 5))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            for question in questions:
                answer = await client.get(f"/api/context/{question}")
                answers[question] = {"status": answer.status_code, "data": answer.json()}
            item = answers["known"]["data"]["known"][0]["id"]
            changes: list[tuple[str, dict[str, Any]]] = [
                ("known", {"item_id": item, "pinned": True}),
                ("known", {"item_id": item, "text": "Lives in Porto"}),
                (
                    "messages",
                    {"session_id": CONVERSATION, "message_id": "demo-003", "preservation": "keep"},
                ),
                ("known/forget", {}),
            ]
            for number, (path, body) in enumerate(changes):
                answer = await client.post(f"/api/context/{path}", json=body)
                answers[f"{number} {path}"] = {"status": answer.status_code, "data": answer.json()}
            page = await client.get("/")
            headers = dict(page.headers)
            del headers["etag"], headers["last-modified"]  # of the file, wherever it was copied
            answers["page"] = {"status": page.status_code, "headers": headers}

    with pipeline_over(store, SMALL | DEMO_SETTINGS | {"keep_snapshots": 5}) as pipeline:
        fill(pipeline)
        for question in CHAT_QUESTIONS:
            pipeline.assemble(question, **SCOPE)
            store.clock.forward()
        pipeline.flush()
        asyncio.run(ask(pipeline))
        pipeline.flush()
    for question, answer in answers.items():
        if question.startswith("preview"):  # it is of now, by the computer's clock
            del answer["data"]["last_updated"]
        if question == "snapshots?session_id=c2":  # they are made by a replay of now
            for snapshot in answer["data"]["snapshots"]:
                del snapshot["created_at"], snapshot["id"]
    return {"answers": answers, "records": records_of(store)}


def way_usage() -> dict[str, Any]:
    """Usage that is counted, corrects the counts, and makes prompts smaller."""
    from langchain_ctxbudget.integrations.callbacks import ContextUsageHandler

    store = ClockedStore(Clock())
    model = ScriptedModel(reply=short_answer)
    prompts = []
    standings = []
    limits = {"session_tokens": 12_000, "month_cost": 0.5}
    settings = SMALL | {"usage_limits": limits}
    with pipeline_over(store, settings, model="gpt-4o") as pipeline:
        handler = ContextUsageHandler(pipeline)
        pipeline.add_messages(demo_messages()[:80], **SCOPE)
        for question in CHAT_QUESTIONS * 3:
            context = pipeline.assemble(question, **SCOPE)
            prompts.append(prompt_of(context))
            model.invoke(context.messages, {"callbacks": [handler]})
            pipeline.usage.record(
                UsageMetadata(input_tokens=900, output_tokens=100, total_tokens=1_000), **SCOPE
            )
            pipeline.flush()
            standings.append(pipeline.usage.standing(**SCOPE))
            store.clock.forward()
        tokens = context.report.total_tokens * 6 // 5
        measured = {"input_tokens": tokens, "output_tokens": 5, "total_tokens": tokens + 5}
        factors = [pipeline.observe_usage(measured) for _ in range(4)]
        prompts.append(assembled(pipeline, "What now?"))
        used = [pipeline.usage.of_session(**SCOPE), pipeline.usage.of_month(user_id=USER)]
        pipeline.flush()
    return {
        "prompts": prompts,
        "observed": handler.observed,
        "standings": standings,
        "factors": factors,
        "used": used,
        "records": records_of(store),
    }


def way_settings() -> dict[str, Any]:
    """Settings of the pipeline, a user, a persona and a call; layers of the application's own."""
    from langchain_ctxbudget.settings import CustomLayer, LayerRequest

    store = ClockedStore(Clock())
    prompts = []

    def ticket(request: LayerRequest) -> list[str]:
        return [f"The ticket of {request.user_id} is about {request.query}", "It is open. " * 20]

    def failing(request: LayerRequest) -> list[str]:
        raise RuntimeError(f"no weather for {request.user_id}")

    layers = [
        CustomLayer(name="ticket", items=ticket, ideal_tokens=200, priority=80),
        CustomLayer(name="weather", items=failing, ideal_tokens=100),
        {"name": "open files", "items": ["main.py: print('hi')"], "ideal_tokens": 50},
    ]
    settings = SMALL | DEMO_SETTINGS | {"layers": layers, "memories": list(DEMO_FACTS)}
    with pipeline_over(store, settings) as pipeline:
        pipeline.add_messages(demo_messages()[:100], **SCOPE)
        prompts.append(assembled(pipeline, DEMO_QUESTION))
        saved = {
            "personality": {"kind": "expert", "domain": "rail travel"},
            "response_style": {"verbosity": "concise", "bullets": True, "links": False},
            "preferences": ["Prices in euros."],
        }
        pipeline.save_settings(saved, user_id=USER)
        pipeline.save_settings({"emphasis": "recall"}, user_id=USER, persona_id="guide")
        prompts.append(assembled(pipeline, DEMO_QUESTION, persona_id="guide"))
        calls: list[dict[str, Any]] = [
            {
                "max_context_tokens": 3_000,
                "history_format": {"timestamps": False, "speakers": False},
            },
            {"history_format": {"template": "{text} ({speaker})", "summary_tokens": 200}},
            {"retrieval": {"most_items": 3, "recency_weight": 0.5, "entity_weight": 0.5}},
            {"retrieval": {"memory_weights": (0.4, 0.3, 0.2, 0.1), "min_relevance": 0.05}},
            {"sources": ["memories"], "include_entities": False},
            {"entity_context": {"most_entities": 1, "relationships": False}},
            {"depth": "deep", "prioritize_history": False},
            {"depth": "minimal", "keep_messages": 2},
            {"allocation": {"strategy": "elastic", "profile": "seed"}},
            {"allocation": {"strategy": "ratio", "memory": 0.35, "history": 0.35, "reserve": 0.3}},
            {"allocation": {"strategy": "prioritized", "order": ["retrieval", "history"]}},
            {"oversized_message": "clip"},
        ]
        for number, call in enumerate(calls):
            question = CHAT_QUESTIONS[number % len(CHAT_QUESTIONS)]
            if "oversized_message" in call:
                question = "\n".join(message.text for message in demo_messages()[:120])
            prompts.append(assembled(pipeline, question, settings=call))
        kept = [
            pipeline.get_settings(user_id=USER),
            pipeline.get_settings(user_id=USER, persona_id="guide"),
        ]
        pipeline.flush()
    return {"prompts": prompts, "kept": kept, "records": records_of(store)}


PICTURE = base64.b64encode(bytes(range(250)) * 36).decode()


def media_forms() -> list[dict[str, Any]]:
    """Pictures, papers and films in the forms of several providers."""
    address = "https://example.org/tools.png"
    data = f"data:image/png;base64,{PICTURE}"
    source = {"type": "base64", "media_type": "image/png", "data": PICTURE}
    paper = {"type": "base64", "media_type": "application/pdf", "data": PICTURE}
    return [
        {"type": "image", "source_type": "base64", "data": PICTURE, "mime_type": "image/png"},
        {"type": "image", "source": source},
        {"type": "image", "url": address},
        {"type": "image_url", "image_url": data},
        {"type": "input_image", "image_url": data},
        {"type": "document", "source": paper},
        {"type": "file", "file": {"file_data": data, "filename": "a.png"}},
        {"type": "file", "file_id": "file-1"},
        {"type": "video", "base64": PICTURE, "mime_type": "video/mp4"},
        {"type": "input_audio", "input_audio": {"data": PICTURE, "format": "wav"}},
        {"type": "text-plain", "text": "A plain text.", "mime_type": "text/plain"},
        {"type": "reasoning", "reasoning": "I thought about it."},
        {"type": "of no provider", "value": 3},
    ]


def media_messages() -> list[BaseMessage]:
    """Messages with pictures, files, sounds, and things that a provider would refuse."""
    picture = {"type": "image", "base64": PICTURE, "mime_type": "image/png"}
    address = {"type": "image_url", "image_url": {"url": "https://example.org/tools.png"}}
    paper = {"type": "file", "base64": PICTURE, "mime_type": "application/pdf", "filename": "a.pdf"}
    sound = {"type": "audio", "base64": PICTURE, "mime_type": "audio/wav"}
    call = ToolCall(name="camera", args={"place": "yard"}, id="call-1")
    odd_call = ToolCall(name="what is this?", args={}, id="x" * 60)
    said = {"type": "text", "text": "What is on this picture?"}
    return [
        SystemMessage("You see pictures.", id="system"),
        HumanMessage([said, picture], id="picture"),
        AIMessage("A hammer.", id="hammer"),
        HumanMessage([{"type": "text", "text": "And here?"}, address, paper], id="paper"),
        AIMessage("", tool_calls=[call], id="calls"),
        ToolMessage(
            [{"type": "text", "text": "Taken."}, picture], tool_call_id="call-1", id="shot"
        ),
        AIMessage("The yard is empty.", id="yard"),
        HumanMessage([sound], id="sound"),
        HumanMessage([{"type": "text", "text": "Many forms."}, *media_forms()], id="forms"),
        AIMessage("", id="nothing"),
        HumanMessage("", id="empty"),
        AIMessage("I call it.", tool_calls=[odd_call], id="odd"),
        HumanMessage("No result came.", id="no-result"),
        ToolMessage("An orphan.", tool_call_id="unknown", id="orphan"),
        SystemMessage("Be careful from now on.", id="late-system"),
        HumanMessage("Half a character: \ud83d.", id="half"),
        AIMessage("I see.", id="see", name="a name with spaces"),
        AIMessage("Twice.", id="twice"),
    ]


class Answer(BaseModel):
    """The answer to a question."""

    text: str
    pictures: list[str]


def way_media(model: str | None) -> dict[str, Any]:
    """Pictures, files and calls, for models of different providers, with tools and a format."""
    store = ClockedStore(Clock())
    prompts = []
    messages = [message for message in media_messages() if message.id != "system"]
    settings = SMALL | {"cache_markers": "anthropic"}
    with pipeline_over(store, settings, model=model) as pipeline:
        pipeline.add_messages(messages, **SCOPE)
        picture = media_messages()[1]
        turn = [*media_messages()[3:6]]
        request: dict[str, Any] = {"tools": [trains, weather], "response_format": Answer}
        for asked in ("What did you see?", picture, turn):
            prompts.append(assembled(pipeline, asked))
            prompts.append(assembled(pipeline, asked, **request))
            prompts.append(assembled(pipeline, asked, settings={"max_context_tokens": 700}))
        pipeline.add_messages(demo_messages()[:80], **SCOPE)
        prompts.append(assembled(pipeline, "What was on the picture of the hammer?"))
        recall = create_recall_tool(pipeline)
        answers = [recall.invoke({"reference": str(number)}, RUN) for number in (1, 5, 8, 12)]
        pipeline.flush()
    return {"prompts": prompts, "recalled": answers, "records": records_of(store)}


def way_report() -> dict[str, Any]:
    """Reports as people see them: a chart, a card, explanations."""
    store = ClockedStore(Clock())
    views = []
    with pipeline_over(store, SMALL | DEMO_SETTINGS | {"learn": "rules"}) as pipeline:
        fill(pipeline)
        for question in (*CHAT_QUESTIONS, "Good morning."):
            views.append(view_of(pipeline.assemble(question, **SCOPE).report))
            store.clock.forward()
        views += [view_of(report) for report in pipeline.what_if([1_000, 8_000])]
        pipeline.flush()
    return {"views": views}


def view_of(report: ContextReport) -> dict[str, Any]:
    """Returns a report as it is drawn and told, without what no two runs have in common."""
    report = ContextReport.from_dict(report.to_dict() | {"timings_ms": {}, "tokenizer_calls": 0})
    items = [item.id for layer in report.layers for item in layer.items]
    return {
        "text": str(report),
        "wide": report.to_text(120),
        "card": report._repr_html_(),  # what a notebook shows
        "explained": {item: report.explain(item) for item in items},
        "places": {place: report.explain(place) for place in range(1, 91, 9)},
        "counts": report.coverage_counts(),
        "numbers": report.to_dict(texts=False),
    }


def way_plots() -> dict[str, Any]:
    """The words and the sizes of what is plotted."""
    from matplotlib.patches import Rectangle
    from matplotlib.text import Text

    from langchain_ctxbudget.replay import replay
    from langchain_ctxbudget.report.plots import plot_replay, plot_turns, plot_what_if

    told = demo_messages()[:40]
    store = ClockedStore(Clock())
    with pipeline_over(store, SMALL) as pipeline:
        pipeline.add_messages(told, **SCOPE)
        reports = [pipeline.assemble(question, **SCOPE).report for question in CHAT_QUESTIONS]
        figures = [
            plot_what_if(pipeline.what_if([500, 1_000, 4_000])),
            plot_turns(reports),
            plot_replay(replay(told, ["elastic", "recency"], budget=1_024)),
        ]
    words = [[text.get_text() for text in figure.findobj(Text)] for figure in figures]
    bars = [
        [[round(side, 4) for side in bar.get_bbox().bounds] for bar in figure.findobj(Rectangle)]
        for figure in figures
    ]
    return {"words": words, "bars": bars}


class Characters(TokenCounter):
    """A counter of an application's own."""

    name = "characters"
    mode = "exact"

    def _count(self, text: str) -> int:
        return len(text)


def way_counters() -> dict[str, Any]:
    """Counters: what they count, and the prompts that follow."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = Tokenizer(models.WordLevel({"?": 0, "the": 1, "tools": 2}, unk_token="?"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    counters = {
        "tiktoken": TiktokenCounter(),
        "estimate": EstimatingCounter(),
        "words": HuggingFaceCounter(words),
        "model": ModelCounter(
            FakeListChatModel(
                responses=["x"], custom_get_token_ids=lambda text: list(map(ord, text[::4]))
            )
        ),
        "characters": Characters(),
    }
    told = demo_messages()[:60]
    found = {}
    for name, counter in counters.items():
        store = ClockedStore(Clock())
        with pipeline_over(store, SMALL, token_counter=counter) as pipeline:
            pipeline.add_messages(told, **SCOPE)
            found[name] = {
                "messages": [counter.count_message(message) for message in media_messages() + told],
                "tools": counter.count_tools([trains, weather]),
                "prompt": assembled(pipeline, DEMO_QUESTION, tools=[trains]),
                "records": records_of(store),
            }
    return found


def way_chroma() -> dict[str, Any]:
    """The store on disk; its records have the computer's times, so only their places are kept."""
    told = demo_messages()
    prompts = []
    with tempfile.TemporaryDirectory() as folder:
        for begin in (0, 60):
            options: dict[str, Any] = {"writer_id": USER, "clock": Clock()}
            with (
                ChromaStore(Path(folder, "store")) as store,
                ContextPipeline(SMALL | {"learn": "rules"}, store=store, **options) as pipeline,
            ):
                pipeline.add_messages(told[begin : begin + 60], **SCOPE)
                pipeline.flush()
                prompts += [assembled(pipeline, question) for question in CHAT_QUESTIONS]
                pipeline.add_messages(told[120:140], user_id=USER, conversation_id=f"other {begin}")
                prompts.append(assembled(pipeline, "What about the volunteers?"))
                pipeline.remove_messages([str(told[begin + 2].id)], **SCOPE)
                pipeline.flush()
                places = [[record["namespace"], record["key"]] for record in records_of(store)]
                known = pipeline.knowledge.list_known(user_id=USER)
        with ChromaStore(Path(folder, "store")) as store:
            store.vacuum()
            left = [[record["namespace"], record["key"]] for record in records_of(store)]
    return {"prompts": prompts, "places": places, "known": known, "left": left}


def way_indexed_store() -> dict[str, Any]:
    """A store that searches by meaning itself, and embeddings of the application's own."""
    clock = Clock()
    embeddings = DeterministicFakeEmbedding(size=32)
    store = ClockedStore(clock, index={"dims": 32, "embed": embeddings, "fields": ["text"]})
    prompts = []
    with pipeline_over(store, SMALL, embeddings=embeddings) as pipeline:
        fill(pipeline)
        for question in (*CHAT_QUESTIONS, "How high is the fine per day?"):
            prompts.append(assembled(pipeline, question))
            prompts.append(assembled(pipeline, question, conversation_id="new"))
        pipeline.flush()
    return {"prompts": prompts, "records": records_of(store)}


def way_private_store() -> dict[str, Any]:
    """The store that a pipeline makes for itself; only what it gives can be seen."""
    told = demo_messages()
    prompts = []
    options: dict[str, Any] = {"writer_id": USER, "clock": Clock()}
    with ContextPipeline(SMALL | {"learn": "rules"}, **options) as pipeline:
        pipeline.add_messages(told[:80], **SCOPE)
        pipeline.add_messages(told[80:160], user_id=USER, conversation_id="c2")
        pipeline.flush()
        for question in CHAT_QUESTIONS:
            prompts.append(assembled(pipeline, question))
            prompts.append(assembled(pipeline, question, conversation_id="new"))
        exported = [json.loads(line) for line in pipeline.export_user(user_id=USER)]
    places = [[line["kind"], line.get("conversation_id")] for line in exported]
    return {"prompts": prompts, "exported": places}


class Longest(BaseDocumentCompressor):
    """A reranker that likes long texts."""

    def compress_documents(
        self, documents: Sequence[Document], query: str, callbacks: object = None
    ) -> Sequence[Document]:
        return sorted(documents, key=lambda document: -len(document.page_content))[:5]


def way_reranker() -> dict[str, Any]:
    store = ClockedStore(Clock())
    with pipeline_over(store, SMALL, reranker=Longest()) as pipeline:
        fill(pipeline)
        prompts = [assembled(pipeline, question) for question in CHAT_QUESTIONS]
    return {"prompts": prompts}


def way_summaries(messages: Sequence[BaseMessage], settings: Mapping[str, Any]) -> dict[str, Any]:
    """A model writes summaries and learns about the user, in the background."""
    store = ClockedStore(Clock())
    model = ScriptedModel(reply=writing_model)
    settings = {**SMALL, "learn": True, **settings}
    prompts = []
    with pipeline_over(store, settings, summary_model=model) as pipeline:
        for number, turn in enumerate(turns_of(messages), 1):
            pipeline.add_messages(turn, **SCOPE)
            store.clock.forward()
            pipeline.flush()
            if number % 8 == 0:
                prompts.append(assembled(pipeline, CHAT_QUESTIONS[number // 8 % 3]))
                pipeline.end_session(**SCOPE)
                pipeline.flush()
                prompts.append(assembled(pipeline, "Where were we?"))
                pipeline.flush()
                store.clock.forward(PAUSE)
        known = known_of(pipeline, USER)
        compactions = pipeline.get_compactions(**SCOPE)
        pipeline.flush()
    asked = sorted(as_text(dicts(given)) for given in model.given)
    return {
        "prompts": prompts,
        "asked": asked,
        "known": known,
        "compactions": compactions,
        "records": records_of(store),
    }


def way_graph_channels() -> dict[str, Any]:
    """Nodes of the application's own in the place of each step, and a run that stops in between."""
    store = ClockedStore(Clock())
    told = demo_messages()
    given = {"messages": [*told[:90], HumanMessage(DEMO_QUESTION, id="asked")]}
    own_nodes: dict[str, dict[str, Any]] = {
        "detect_topics": {"detected": {"topics": {"label suppliers": 0.9}, "entities": {}}},
        "compute_budget": {"budget": {"layers": {"L3": 300, "L5": 200}, "keep_messages": 2}},
        "fetch_bundles": {"bundles": [{"text": "Two topics.\nAnd more of it.", "layer": "L3"}]},
        "compact_history": {
            "history": {
                "position": 60,
                "summary": [{"text": "They talk about cards."}, {"text": "And money.", "end": 20}],
                "arc": [{"text": "Decided: no cards.", "heading": "Decisions"}],
            }
        },
        "retrieve": {"retrieved": [{"text": "The kitchen closes at ten.", "value": 2.0}]},
    }
    found: dict[str, Any] = {}
    with pipeline_over(store, SMALL | DEMO_SETTINGS) as pipeline:
        options: dict[str, Any] = {"default_user": USER, "report": "texts"}
        for name, written in own_nodes.items():
            graph = build_context_graph(pipeline, nodes={name: always(written)}, **options)
            found[name] = result_or_error(partial(graph.invoke, given, thread("own " + name)))
        wrong = build_context_graph(
            pipeline, nodes={"retrieve": always({"retrieved": [{"layer": "L9"}]})}, **options
        )
        found["wrong"] = result_or_error(partial(wrong.invoke, given, thread("wrong")))
        stopping: Any = build_context_graph(pipeline, checkpointer=InMemorySaver(), **options)
        for name in ("compute_budget", "compact_history", "retrieve"):
            run = thread("stopped behind " + name)
            stopping.invoke(given, run, interrupt_after=[name])
            found[f"resumed after {name}"] = stopping.invoke(None, run)
        pipeline.flush()
    return {"found": found, "records": records_of(store)}


def always(update: dict[str, Any]) -> Callable[[Any], dict[str, Any]]:
    """Returns a node that writes the same whatever the state is."""
    return lambda _state: json.loads(json.dumps(update))


def thread(name: str) -> RunnableConfig:
    return {"configurable": {"user_id": USER, "thread_id": name}}


def result_or_error(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except CtxBudgetError as error:
        return f"{type(error).__name__}: {error}"


def way_agent_neighbours() -> dict[str, Any]:
    """An agent among other middleware, with a format for its answer and a runtime context."""
    from langchain.agents import create_agent
    from langchain.agents.middleware import AgentMiddleware, ModelRequest
    from langchain.agents.structured_output import ProviderStrategy, ToolStrategy

    from langchain_ctxbudget.middleware import ContextBudgetMiddleware, RunContext

    class Changing(AgentMiddleware[Any, Any, Any]):
        """Adds to a request, and changes it, as other middleware does."""

        def wrap_model_call(self, request: ModelRequest[Any], handler: Any) -> Any:
            messages = [*request.messages]
            if len(messages) > 6:
                del messages[1]
                messages[0] = HumanMessage("Changed in the request.", id=messages[0].id)
            note = SystemMessage("Added by somebody else.")
            stand_in = HumanMessage("One more thing: be quick.")
            system = SystemMessage("You answer in one line.")
            changed = [note, *messages, stand_in]
            return handler(request.override(messages=changed, system_message=system))

    def answer(number: int, messages: Sequence[BaseMessage]) -> AIMessage:
        call = ToolCall(name="Answer", args={"text": "Yes.", "pictures": []}, id=f"call-{number}")
        return AIMessage("", tool_calls=[call], id=f"answer-{number}")

    def plain_answer(number: int, messages: Sequence[BaseMessage]) -> AIMessage:
        return AIMessage('{"text": "Yes.", "pictures": []}', id=f"answer-{number}")

    found: dict[str, Any] = {}
    formats: dict[str, tuple[Any, Any]] = {
        "none": (None, short_answer),
        "tool": (ToolStrategy(Answer), answer),
        "provider": (ProviderStrategy(Answer), plain_answer),
        "schema": (Answer, answer),
    }
    for name, (response_format, reply) in formats.items():
        store = ClockedStore(Clock())
        model = ScriptedModel(reply=reply)
        with pipeline_over(store, SMALL) as pipeline:
            budget = ContextBudgetMiddleware(pipeline, report="texts")
            agent: Any = create_agent(
                model,
                [trains],
                middleware=[Changing(), budget],
                response_format=response_format,
                context_schema=RunContext,
            )
            context = RunContext(
                user_id=USER, conversation_id="own", settings={"max_context_tokens": 1_500}
            )
            messages = [
                *demo_messages()[:40],
                AIMessage(
                    "",
                    id="unreadable",
                    invalid_tool_calls=[
                        {
                            "name": "trains",
                            "args": "{",
                            "id": "bad",
                            "error": "cut",
                            "type": "invalid_tool_call",
                        }
                    ],
                ),
            ]
            reports = []
            for number, question in enumerate(CHAT_QUESTIONS):
                messages.append(HumanMessage(question, id=f"question-{number}"))
                state = agent.invoke({"messages": messages}, context=context)
                messages = [message for message in state["messages"] if message.id]
                reports.append(state["ctxbudget_report"])
            pipeline.flush()
        found[name] = {
            "given": list(map(dicts, model.given)),
            "tools": model.tools,
            "reports": reports,
            "records": records_of(store),
        }
    return found


def way_models() -> dict[str, Any]:
    """Model objects and names: whose they are, how they count, and what their windows are."""
    from langchain_anthropic import ChatAnthropic
    from langchain_openai import AzureChatOpenAI, ChatOpenAI

    key = SecretStr("no key")
    gpt = ChatOpenAI(model="gpt-4o", api_key=key)
    claude = ChatAnthropic(model="claude-sonnet-4-5", api_key=key, timeout=1, stop=None)
    azure = AzureChatOpenAI(
        model="gpt-4o", api_key=key, api_version="2024-10-21", azure_endpoint="https://x.azure.com"
    )
    scripted = ScriptedModel(reply=short_answer, profile={"max_input_tokens": 3_000})
    models: dict[str, Any] = {
        "gpt": gpt,
        "claude": claude,
        "azure": azure,
        "fallback": claude.with_fallbacks([gpt]),
        "bound": gpt.bind_tools([trains]),
        "small window": scripted,
        "named": "openai:gpt-4.1",
        "through a gateway": "openrouter/openai/o3",
        "unknown": "llama-of-our-own",
    }
    call = ToolCall(name="trains", args={"start": "A", "end": "B"}, id="call-" + "x" * 60)
    messages = [
        HumanMessage("Which trains?", id="asked"),
        AIMessage("", tool_calls=[call], id="called"),
        ToolMessage("None.", tool_call_id=str(call["id"]), id="none"),
        AIMessage("There are none.", id="said"),
        *demo_messages()[:40],
    ]
    found = {}
    for name, model in models.items():
        store = ClockedStore(Clock())
        with pipeline_over(store, {"learn": False}, model=model) as pipeline:
            pipeline.add_messages(messages, **SCOPE)
            history = BudgetedChatMessageHistory(CONVERSATION, user_id=USER, pipeline=pipeline)
            found[name] = {
                "prompt": assembled(pipeline, DEMO_QUESTION),
                "history": dicts(history.messages[:4]),
            }
    return found


ABOUT_ME = """
I live in Lisbon and I work as a nurse.
My favourite drink is coffee. I am allergic to peanuts.
My sister Ines is an accountant and lives in Faro.
Always include version numbers when I ask about software dependencies.
I use Postgres for our project Heron, and my colleague Tomasz maintains it.
My birthday is on 14 March. I have two dogs, Rex and Bella.
Please never use emojis in your answers.
The budget of the project is 500 euros.
I moved to Porto last week.
Remember that our deploys are on Thursdays.
Pretend you are a pirate.
I am a captain and my name is Blackbeard.
Ok, stop playing. Back to work.
I no longer drink coffee, I drink tea now.
I started a new job as a teacher.
The budget of the project is now 700 euros.
I prefer short answers. I don't like long lists.
Our team uses Python 3.12 and Flask. We decided to use Redis for the queue.
I'm planning to visit Japan in May.
I speak Portuguese and English.
My goal is to finish the thesis by June.
Don't touch the files under db/migrations.
""".strip().splitlines()
"""What a user says about themselves, some of it no longer true later on."""


def learning_by_rules(sentences: Sequence[str]) -> dict[str, Any]:
    """Learns from sentences in several conversations, and asks about them in others."""
    store = ClockedStore(Clock())
    prompts = []
    with pipeline_over(store, SMALL | {"learn": "rules"}) as pipeline:
        for number, sentence in enumerate(sentences):
            chat = pipeline.conversation(f"c{number // 6}", user_id=USER)
            day = store.clock.now.isoformat()
            asked = HumanMessage(
                sentence, id=f"said-{number}", additional_kwargs={"created_at": day}
            )
            chat.add(asked, AIMessage("I see.", id=f"seen-{number}"))
            store.clock.forward(timedelta(hours=1))
            pipeline.flush()
            if number % 6 == 5:
                chat.end_session()
                pipeline.flush()
                status = chat.status()
                for conversation in ("c0", "new"):
                    where = {"conversation_id": conversation}
                    prompts.append(assembled(pipeline, "Where do I live now?", **where))
                    prompts.append(assembled(pipeline, "What is our budget now?", **where))
                pipeline.flush()
                prompts.append({"status": status})
        known = known_of(pipeline, USER)
        pipeline.flush()
    return {"prompts": prompts, "known": known, "records": records_of(store)}


def rules_of(data: Path) -> list[str]:
    lines = (data / "rules.dev.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line)["message"] for line in lines[:MOST_RULES]]


def way_exports() -> dict[str, Any]:
    """The command line over exports of other services, and changes to what it has learned."""
    spoken = [("user", sentence) for sentence in ABOUT_ME]
    spoken = [
        line for pair in zip(spoken, [("assistant", "I see.")] * 99, strict=False) for line in pair
    ]
    nodes: dict[str, Any] = {"root": {"parent": None, "message": None}}
    before = "root"
    for number, (role, text) in enumerate(spoken):
        message = {
            "id": f"node-{number}",
            "author": {"role": role},
            "create_time": 1_750_000_000 + 60 * number,
            "content": {"content_type": "text", "parts": [text]},
        }
        nodes[f"node-{number}"] = {"parent": before, "message": message}
        before = f"node-{number}"
    chatgpt = [{"title": "About me", "id": "g1", "mapping": nodes, "current_node": before}]
    claude = [
        {
            "uuid": "claude-1",
            "name": "From Claude",
            "chat_messages": [
                {
                    "uuid": f"line-{number}",
                    "text": text,
                    "sender": "human" if role == "user" else "assistant",
                    "created_at": f"2026-05-01T10:{number:02}:00Z",
                }
                for number, (role, text) in enumerate(spoken)
            ],
        }
    ]
    printed = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, content in (("chatgpt", chatgpt), ("claude", claude), ("broken", [{"x": 1}])):
            Path(folder, f"{name}.json").write_text(json.dumps(content))
        lines = [json.dumps({"role": role, "content": text}) for role, text in spoken]
        Path(folder, "lines.jsonl").write_text("\n".join(lines))
        Path(folder, "settings.toml").write_text("keep_messages = 2\n")
        store = ["--store", str(Path(folder, "store")), "--user", "ada"]
        lines_file = f"{folder}/lines.jsonl"
        asked = ["--message", "Where do I live?", "--budget", "600", "--system", "Be brief."]
        compared = ["--compare", "elastic,cache", "--settings", f"{folder}/settings.toml"]
        compared += ["--price", "gpt-4o"]
        commands = (
            ["import", f"{folder}/chatgpt.json", *store],
            ["import", f"{folder}/claude.json", *store, "--no-learn"],
            ["import", f"{folder}/broken.json", *store],
            ["import", f"{folder}/chatgpt.json", *store, "--title", "nowhere"],
            ["import", f"{folder}/chatgpt.json", *store, "--replace"],
            ["inspect", *store],
            ["inspect", "facts", *store, "--why", "fact/1"],
            ["inspect", *store, "--text"],
            ["inspect", *store, "--delete", "all"],
            ["inspect", *store],
            ["assemble", "--conversation", lines_file, *asked, "--model", "gpt-4o"],
            ["replay", f"{folder}/claude.json", "--title", "From Claude", *compared],
            ["replay", lines_file, "--compare", "recency", "--budget", "500", "--json"],
            ["demo", "--budget", "1k", "--json"],
            ["--help"],
            ["--completion", "bash"],
            ["inspect"],
        )
        for number, command in enumerate(commands, 1):
            text = run_command_line(command).replace(folder, "FOLDER")
            printed[f"{number} {' '.join(command)}".replace(folder, "FOLDER")] = text
    return printed


# Changes


def change_messages() -> dict[str, Any]:
    """Messages that are edited, removed, pinned and made equal to a state, with prompts between."""
    store = ClockedStore(Clock())
    told = demo_messages()
    prompts = []
    with pipeline_over(store, SMALL | {"learn": "rules"}) as pipeline:
        chat = pipeline.conversation(CONVERSATION, user_id=USER)
        chat.add(told[:100])
        pipeline.flush()

        def look() -> None:
            prompts.append(assembled(pipeline, DEMO_QUESTION))
            pipeline.flush()
            store.clock.forward()

        look()
        chat.edit("demo-017", HumanMessage("The labels cost 99 pounds.", id="demo-017"))
        look()
        chat.remove("demo-019")
        look()
        chat.remove(["demo-021", "demo-022"], on_removal="forget")
        look()
        chat.pin(["demo-005", "demo-006"])
        chat.pin("demo-030", preservation="summarize")
        chat.pin("demo-095", preservation="drop")
        look()
        chat.pin("demo-005", preservation=None)
        look()
        chat.sync([*told[:40], HumanMessage("A new end.", id="new-end")])
        look()
        chat.sync(told[40:90], on_removal="forget")
        look()
        fork = chat.fork("c2", until="demo-060")
        prompts.append(prompt_of(fork.assemble("Where were we?")))
        marked = HumanMessage(
            "Never show this.", id="dropped", additional_kwargs={"ctxbudget": "drop"}
        )
        fork.add(marked, AIMessage("I will not.", id="dropped-answer"))
        prompts.append(prompt_of(fork.assemble("What shall you never show?")))
        known = known_of(pipeline, USER)
        pipeline.flush()
        before = records_of(store)
        chat.clear()
        after = records_of(store)
    return {"prompts": prompts, "known": known, "before": before, "after": after}


def change_users() -> dict[str, Any]:
    """A thread that is handed over, an export, and everything of a user erased."""
    store = ClockedStore(Clock())
    prompts = []
    with pipeline_over(store, SMALL | {"learn": "rules", "keep_snapshots": 2}) as pipeline:
        fill(pipeline)
        for conversation in ("c1", "c2", "c3", "new"):
            for question in CHAT_QUESTIONS:
                prompts.append(assembled(pipeline, question, conversation_id=conversation))
                store.clock.forward()
        pipeline.flush()
        pipeline.hand_over("c2", from_user=USER, to_user="silver")
        pipeline.flush()
        asked = {"user_id": "silver", "conversation_id": "c2"}
        prompts.append(assembled(pipeline, DEMO_QUESTION, **asked))
        exported = [json.loads(line) for line in pipeline.export_user(user_id=USER)]
        conversations = [pipeline.list_conversations(user_id=user) for user in (USER, "silver")]
        pipeline.flush()
        before = records_of(store)
        erased = pipeline.erase_user(user_id=USER)
        pipeline.flush()
        after = records_of(store)
    return {
        "prompts": prompts,
        "exported": exported,
        "conversations": conversations,
        "before": before,
        "erased": erased,
        "after": after,
    }


def change_knowledge() -> dict[str, Any]:
    """Facts, topics and entities by hand, and what is open on devices."""
    store = ClockedStore(Clock())
    prompts = []
    user: dict[str, Any] = {"user_id": USER}
    with pipeline_over(store, SMALL | {"learn": "rules"}) as pipeline:
        fill(pipeline)
        knowledge = pipeline.knowledge

        def look(**options: Any) -> None:
            prompts.append(assembled(pipeline, "Where do Ines and I live?", **options))
            pipeline.flush()
            store.clock.forward()

        home = knowledge.add_fact("Lives in Porto", slot="home", category="identity", **user)
        diet = knowledge.add_fact("Vegetarian", memory_type="core", confidence=0.9, **user)
        topic = knowledge.add_topic("Label printing", aliases=["labels"], domain="business", **user)
        entity = knowledge.add_entity(
            "Ines", type="person", relationship="sister", facts=["Ines lives in Faro."], **user
        )
        look()
        knowledge.edit(home.id, text="Lives in Porto, near the river", **user)
        knowledge.edit(topic.id, text="Printing of labels", **user)
        knowledge.edit(entity.id, attributes=[("role", "accountant")], **user)
        knowledge.pin(diet.id, **user)
        knowledge.pin(entity.id, **user)
        look()
        heartbeat: dict[str, Any] = {
            "device_id": "phone",
            "active_conversation_id": CONVERSATION,
            "visible_conversation_ids": ["c1", "c2"],
            "path": "/tools/labels",
            "local_time": datetime(2027, 1, 5, 9, tzinfo=UTC),
        }
        devices = [knowledge.heartbeat(**heartbeat, **user)]
        pipeline.flush()
        look(device_id="phone")
        devices.append(knowledge.heartbeat(**heartbeat | {"idle": True}, **user))
        pipeline.flush()
        devices += knowledge.list_devices(**user)
        known = known_of(pipeline, USER)
        knowledge.pin(diet.id, pinned=False, **user)
        knowledge.delete(home.id, **user)
        look()
        pipeline.flush()
        before = records_of(store)
        knowledge.clear(**user)
        look()
        after = records_of(store)
    return {
        "prompts": prompts,
        "known": known,
        "devices": devices,
        "before": before,
        "after": after,
    }


def change_errors() -> dict[str, str]:
    """What is refused, and in which words."""
    store = ClockedStore(Clock())
    told = demo_messages()
    with pipeline_over(store, SMALL, model="gpt-4o") as pipeline:
        chat = pipeline.conversation(CONVERSATION, user_id=USER)
        chat.add(told[:10])
        scope: dict[str, Any] = SCOPE
        knowledge = pipeline.knowledge
        refused: dict[str, Callable[[], object]] = {
            "no user": lambda: pipeline.assemble("Hi", user_id="", conversation_id="c"),
            "no conversation": lambda: pipeline.add_messages([], user_id="a", conversation_id=""),
            "empty message": lambda: chat.assemble(" "),
            "no message": lambda: chat.assemble(7),  # type: ignore[arg-type]
            "small budget": lambda: chat.assemble("Hi", settings={"max_context_tokens": 20}),
            "long message": lambda: chat.assemble("word " * 9_000),
            "unknown setting": lambda: ContextPipeline({"max_tokens": 3}),
            "wrong setting": lambda: ContextPipeline({"keep_important": 3}),
            "wrong order": lambda: ContextPipeline(
                {"compaction_target": 0.9, "compaction_trigger": 0.5}
            ),
            "wrong strategy": lambda: ContextPipeline({"allocation": "clever"}),
            "wrong strategy field": lambda: ContextPipeline(
                {"allocation": {"strategy": "ratio", "memory": 2}}
            ),
            "unknown argument": lambda: chat.assemble("Hi", toolz=[]),  # type: ignore[call-arg]
            "no store": lambda: ContextPipeline(store={}),  # type: ignore[arg-type]
            "long system prompt": lambda: ContextPipeline(
                system_prompt="word " * 90_000, model="gpt-4o"
            ).assemble("Hi", **scope),
            "changed message": lambda: chat.add(HumanMessage("Other words.", id="demo-001")),
            "unknown message": lambda: chat.pin("nowhere"),
            "unknown fork": lambda: pipeline.fork("c9", user_id=USER, conversation_id="nowhere"),
            "unknown page": lambda: chat.page(before="nowhere"),
            "no page": lambda: chat.page(limit=0),
            "unknown fact": lambda: knowledge.edit("fact/1", user_id=USER, text="x"),
            "wrong fact": lambda: knowledge.add_fact("x", user_id=USER, confidence=3),
            "no fact": lambda: knowledge.add_fact("", user_id=USER),
            "wrong usage": lambda: pipeline.observe_usage({"input_tokens": "many"}),
            "wrong month": lambda: pipeline.usage.of_month(user_id=USER, month="May"),
            "wrong node": lambda: build_context_graph(pipeline, nodes={"think": print}),
            "run without user": lambda: pipeline.as_runnable().invoke("Hi"),
            "retriever without pipeline": lambda: retriever_with(pipeline=None),
            "wrong retriever": lambda: retriever_with(pipeline=pipeline, kk=3),
            "documents of nobody": lambda: KnowledgeBase(store),
            "a path as a text": lambda: KnowledgeBase(store, user_id=USER).add("docs/rules.md"),
            "hand over to oneself": lambda: pipeline.hand_over("c", from_user="a", to_user="a"),
            "a closed pipeline": lambda: closed(pipeline).assemble("Hi", **scope),
        }
        return {name: error_of(call) for name, call in refused.items()}


def retriever_with(**options: Any) -> BudgetedRetriever:
    return BudgetedRetriever(**options)


def closed(pipeline: ContextPipeline) -> ContextPipeline:
    pipeline.close()
    return pipeline


def error_of(call: Callable[[], object]) -> str:
    """Returns what a call raises, in the order of its classes."""
    try:
        given = call()
    except (CtxBudgetError, TypeError, ValueError) as error:
        return f"{type(error).__name__}: {error}".replace(str(Path.cwd()), "FOLDER")
    return f"nothing is raised: {type(given).__name__}"


# All cases


GROWING_SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "plain": DEMO_SETTINGS,
    "recall": {"emphasis": "recall"},
    "cache": {"emphasis": "cache"},
    "system-first": {"layout": "system_first"},
    "marked": {"cache_markers": "anthropic", "keep_important": 0.1},
    "no-cache": {"cache_lifetime_seconds": 0},
    "small": {"max_context_tokens": 1_024, "keep_messages": 2},
    "ratio": {"allocation": "ratio"},
    "dynamic": {"allocation": "dynamic"},
}
"""Settings under which the bundled conversation grows."""


def cases(data: Path | None) -> Iterator[Case]:
    conversations = {"demo": demo()}
    if data is not None:
        conversations |= {one.name: one for one in real_conversations(data)}
    for conversation in conversations.values():
        yield from matrix_cases(conversation)
    yield from demo_cases()
    if data is not None:
        yield from data_cases(data, conversations)
    yield from way_cases()


def matrix_cases(conversation: Conversation) -> Iterator[Case]:
    for strategy in STRATEGIES:
        for budget in BUDGETS:
            yield Case(
                f"matrix-{conversation.name}-{strategy}-{budget}",
                partial(matrix, conversation, strategy, budget),
                is_quick=budget == QUICK_BUDGET and conversation.name == "demo",
            )


def demo_cases() -> Iterator[Case]:
    told = demo_messages()
    for name, settings in GROWING_SETTINGS.items():
        is_quick = name in ("plain", "small")
        yield Case(f"growing-demo-{name}", partial(growing, told[:100], settings), is_quick)
    yield Case("learning-demo", partial(learning, told[:120], {}))
    yield Case("learning-rules", partial(learning_by_rules, ABOUT_ME), is_quick=True)
    yield Case("learning-demo-model", partial(way_summaries, told[:120], {}), is_quick=True)
    yield Case("learning-demo-summaries", partial(way_summaries, told, {"learn": False}))


def data_cases(data: Path, conversations: Mapping[str, Conversation]) -> Iterator[Case]:
    rules = rules_of(data)
    chat = conversations["locomo-0"].messages
    session = conversations["coding-0"].messages
    memories = conversations["realmem-0"].messages
    yield Case("growing-locomo", partial(growing, chat[:120], {}))
    yield Case("growing-coding", partial(growing, session[:120], {}), is_quick=True)
    yield Case("growing-coding-recall", partial(growing, session[:120], {"emphasis": "recall"}))
    yield Case("learning-realmem", partial(learning, memories[:160], {}))
    yield Case("learning-rules-data", partial(learning_by_rules, rules))
    yield Case("learning-locomo", partial(learning, chat[:160], {}))


def way_cases() -> Iterator[Case]:
    yield Case("way-chat", way_chat, is_quick=True)
    yield Case("way-async", way_async, is_quick=True)
    yield Case("way-history", way_history, is_quick=True)
    yield Case("way-memory", way_memory, is_quick=True)
    yield Case("way-graph", way_graph, is_quick=True)
    yield Case("way-graph-async", partial(way_graph, is_async=True))
    yield Case("way-graph-nodes", way_graph_nodes, is_quick=True)
    yield Case("way-graph-channels", way_graph_channels, is_quick=True)
    yield Case("way-agent", partial(travelling, {}), is_quick=True)
    yield Case("way-agent-async", partial(travelling, {"emphasis": "cache"}, is_async=True))
    yield Case("way-agent-loop", partial(coding, {}), is_quick=True)
    yield Case("way-agent-loop-recall", partial(coding, {"emphasis": "recall"}, agent="coder"))
    yield Case("way-agent-neighbours", way_agent_neighbours)
    yield Case("way-agent-compaction", partial(travelling, {}, compaction_tool=True))
    for treatment in ("show", "share"):
        settings = {"on_foreign_thread": treatment}
        agent = partial(travelling, settings, users=(USER, "silver"))
        yield Case(f"way-agent-foreign-{treatment}", agent)
    yield Case("way-retriever", way_retriever, is_quick=True)
    yield Case("way-tools", way_tools, is_quick=True)
    yield Case("way-runnable", way_runnable, is_quick=True)
    yield Case("way-documents", way_documents, is_quick=True)
    yield Case("way-replay", way_replay, is_quick=True)
    yield Case("way-command-line", way_command_line)
    yield Case("way-exports", way_exports)
    yield Case("way-dashboard", way_dashboard, is_quick=True)
    yield Case("way-usage", way_usage, is_quick=True)
    yield Case("way-settings", way_settings, is_quick=True)
    for model in (None, "gpt-4o", "claude-sonnet-4-5", "gemini-2.5-pro"):
        yield Case(f"way-media-{model}", partial(way_media, model), is_quick=model == "gpt-4o")
    yield Case("way-models", way_models, is_quick=True)
    yield Case("way-report", way_report, is_quick=True)
    yield Case("way-plots", way_plots)
    yield Case("way-counters", way_counters)
    yield Case("way-chroma", way_chroma)
    yield Case("way-indexed-store", way_indexed_store)
    yield Case("way-private-store", way_private_store, is_quick=True)
    yield Case("way-reranker", way_reranker)
    yield Case("change-messages", change_messages, is_quick=True)
    yield Case("change-users", change_users, is_quick=True)
    yield Case("change-knowledge", change_knowledge, is_quick=True)
    yield Case("change-errors", change_errors, is_quick=True)


# Writing and comparing


def first_difference(before: object, after: object, path: str = "") -> str:
    """Returns the path of the first thing in which two pieces of data differ, and both values."""
    if isinstance(before, dict) and isinstance(after, dict):
        for name in sorted({*before, *after}):
            if name not in before or name not in after:
                return f"{path}/{name}: only {'after' if name in after else 'before'}"
            if before[name] != after[name]:
                return first_difference(before[name], after[name], f"{path}/{name}")
    if isinstance(before, list) and isinstance(after, list):
        for place, (old, new) in enumerate(zip(before, after, strict=False)):
            if old != new:
                return first_difference(old, new, f"{path}/{place}")
        return f"{path}: {len(before)} items before, {len(after)} after"
    if isinstance(before, str) and isinstance(after, str):
        return f"{path}: {text_difference(before, after)}"
    return f"{path}: {before!r} before, {after!r} after"


def text_difference(before: str, after: str) -> str:
    """Returns where two texts differ, with a few characters around it."""
    pairs = zip(before, after, strict=False)
    at = next((place for place, (old, new) in enumerate(pairs) if old != new), None)
    if at is None:
        at = min(len(before), len(after))
    begin = max(0, at - 30)
    return (
        f"at character {at}: {before[begin : at + 50]!r} before, {after[begin : at + 50]!r} after"
    )


def differing_lines(before: str, after: str) -> int:
    """Returns how many lines only one of two texts has."""
    old = Counter(before.splitlines())
    new = Counter(after.splitlines())
    return (old - new).total() + (new - old).total()


def compare(name: str, path: Path, text: str) -> bool:
    """Tells how a golden differs from its file; returns whether it does."""
    if not path.is_file():
        print(f"{name}: there is no golden of this name; write them again")
        return True
    before = path.read_text(encoding="utf-8")
    if before == text:
        return False
    count = differing_lines(before, text)
    first = first_difference(json.loads(before), json.loads(text))
    print(f"{name}: {count} lines differ, first {first}")
    return True


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("mode", choices=("write", "compare"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--data", type=Path, help="a folder with real conversations")
    parser.add_argument("--quick", action="store_true", help="a subset, in some 25 seconds")
    parser.add_argument("--only", metavar="GLOB", nargs="+", default=["*"], help="by their names")
    parser.add_argument("--times", action="store_true", help="tell the CPU seconds of each case")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    count = 0
    differing = 0
    for case in cases(options.data):
        is_named = any(fnmatch(case.name, pattern) for pattern in options.only)
        if not is_named or (options.quick and not case.is_quick):
            continue
        count += 1
        started = time.process_time()
        try:
            text = as_text(case.make())
        except Exception as error:
            if options.mode == "write":
                raise
            print(f"{case.name}: {type(error).__name__}: {error}")
            differing += 1
            continue
        if options.times:
            print(f"{time.process_time() - started:6.2f} s  {case.name}")
        path = options.folder / f"{case.name}.json"
        if options.mode == "write":
            path.write_text(text, encoding="utf-8")
        else:
            differing += compare(case.name, path, text)
    if options.mode == "write":
        print(f"{count} goldens written")
    else:
        print(f"{count} goldens, {differing} differ")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
