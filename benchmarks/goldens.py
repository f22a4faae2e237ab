"""Keeps what the package does now, and tells what another state of the code does differently.

    python benchmarks/goldens.py write FOLDER [--data DATA] [--quick] [--only GLOB]
    python benchmarks/goldens.py compare FOLDER [--data DATA] [--quick] [--only GLOB]

A golden is a JSON file with everything that one case gave: the messages that reach the model, the
reports, and every record of the store. The cases are

- `matrix-*`: conversations through every strategy at four budgets;
- `growing-*`: conversations and agent sessions that grow turn by turn over one warm pipeline;
- `learning-*`: what is learned about a user, by rules and by a model;
- `way-*`: every other way in (graph, middleware, history, memory, retriever, tools, command line);
- `change-*`: what applications do with a stored conversation: edit, remove, pin, fork, hand over.

The bundled conversation is always among them. With `--data`, so are real conversations and
sessions of a coding agent (a folder with `locomo.dev.jsonl.gz`, `realmem.dev.jsonl.gz` and
`coding.dev.jsonl.gz`; goldens of these must stay outside the repository).

Only public names are used, so that this file outlives what is inside the package. The package is
the one that Python finds first, so `PYTHONPATH` says which state of the code is looked at.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatch
from itertools import islice
from pathlib import Path
from typing import Any

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    ToolMessage,
    message_to_dict,
)
from langchain_ctxbudget import AssembledContext, ContextPipeline, ContextReport
from langchain_ctxbudget.demo import (
    DEMO_QUESTION,
    DEMO_SETTINGS,
    DEMO_SYSTEM_PROMPT,
    demo_messages,
)
from langchain_ctxbudget.errors import BudgetTooSmallError
from langgraph.store.base import BaseStore, GetOp, Item, Op, PutOp, Result
from langgraph.store.memory import InMemoryStore

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
    "tokenizer_calls": "depends on what this process has counted before",
}
"""Fields of a report that are left out, and why. Of records, only the times at which the store
wrote them are left out, as those are the computer's, too."""

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


# What is compared


def prompt_of(context: AssembledContext) -> dict[str, Any]:
    """Returns a prompt and its report as data."""
    return {"messages": dicts(context.messages), "report": report_of(context.report)}


def dicts(messages: Iterable[BaseMessage]) -> list[dict[str, Any]]:
    return [message_to_dict(message) for message in messages]


def report_of(report: ContextReport) -> dict[str, Any]:
    """Returns a report as data, without what no two runs have in common."""
    data = report.to_dict()
    return {name: value for name, value in data.items() if name not in NOT_COMPARED}


def records_of(store: BaseStore) -> list[dict[str, Any]]:
    """Returns every record of a store, by place and key."""
    items = store.search((), limit=1_000_000)
    items.sort(key=lambda item: (item.namespace, item.key))
    return [
        {"namespace": list(item.namespace), "key": item.key, "value": item.value} for item in items
    ]


def as_text(data: object) -> str:
    """Returns a golden's data as the text of its file."""
    text = json.dumps(data, indent=1, sort_keys=True, ensure_ascii=False, default=plain)
    for kind, pattern in RANDOM_NAMES.items():
        text = with_numbers(text, kind, pattern)
    return text + "\n"


def plain(value: object) -> object:
    """Returns an object that JSON does not know as data."""
    if isinstance(value, BaseMessage):
        return message_to_dict(value)
    if isinstance(value, ContextReport):
        return report_of(value)
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
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
    asked: Sequence[tuple[int, list[BaseMessage]]]


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
        "compactions": list(map(repr, compactions)),
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
        "why": {
            line.id: list(map(repr, knowledge.why(line.id, user_id=user_id))) for line in lines
        },
    }


# All cases


def cases(data: Path | None) -> Iterator[Case]:
    conversations = [demo()]
    if data is not None:
        conversations += real_conversations(data)
    for conversation in conversations:
        yield from matrix_cases(conversation)
    yield from growing_cases({one.name: one for one in conversations})


def matrix_cases(conversation: Conversation) -> Iterator[Case]:
    for strategy in STRATEGIES:
        for budget in BUDGETS:
            is_quick = budget == QUICK_BUDGET and conversation.name == "demo"
            yield Case(
                f"matrix-{conversation.name}-{strategy}-{budget}",
                lambda s=strategy, b=budget: matrix(conversation, s, b),
                is_quick=is_quick,
            )


def growing_cases(conversations: Mapping[str, Conversation]) -> Iterator[Case]:
    told = demo_messages()
    yield Case("growing-demo", lambda: growing(told[:100], DEMO_SETTINGS), is_quick=True)
    yield Case("learning-demo", lambda: learning(told[:120], {}), is_quick=True)
    if "locomo-0" in conversations:
        chat = conversations["locomo-0"].messages
        yield Case("growing-locomo", lambda: growing(chat[:120], {}))
    if "coding-0" in conversations:
        session = conversations["coding-0"].messages
        yield Case("growing-coding", lambda: growing(session[:120], {}), is_quick=True)
    if "realmem-0" in conversations:
        memories = conversations["realmem-0"].messages
        yield Case("learning-realmem", lambda: learning(memories[:120], {}))


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
    print(
        f"{name}: {count} lines differ, first {first_difference(json.loads(before), json.loads(text))}"
    )
    return True


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("mode", choices=("write", "compare"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--data", type=Path, help="a folder with real conversations")
    parser.add_argument("--quick", action="store_true", help="a subset, in some 25 seconds")
    parser.add_argument("--only", metavar="GLOB", default="*", help="cases of these names")
    parser.add_argument("--times", action="store_true", help="tell the seconds of each case")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    count = 0
    differing = 0
    for case in cases(options.data):
        if not fnmatch(case.name, options.only) or (options.quick and not case.is_quick):
            continue
        count += 1
        started = time.perf_counter()
        text = as_text(case.make())
        if options.times:
            print(f"{time.perf_counter() - started:6.2f} s  {case.name}")
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
