"""What it costs to know a user: finding what a message is about, learning from messages, and prompts that show it.

Three users are generated: one of whom nothing is known, a typical one, and one of whom as much is known as is kept.
Counts are exact; times are those of the processor, so that a busy machine says about the same. Prompts are made in
turn with learning switched on and off, in a conversation that fits whole and in one that is retrieved from.

    python benchmarks/trial_knowledge.py
    python benchmarks/trial_knowledge.py --messages 500 --prompts 100 --json
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import statistics
import time
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langgraph.store.base import BaseStore, GetOp, Op, PutOp, Result
from langgraph.store.memory import InMemoryStore
from rich.console import Console
from rich.table import Table

from langchain_ctxbudget import ContextPipeline, ContextSettings
from langchain_ctxbudget.flow import drive
from langchain_ctxbudget.knowledge import known, learning, rules, subjects
from langchain_ctxbudget.knowledge.known import NOTHING, Knowledge, save
from langchain_ctxbudget.knowledge.learned import Said
from langchain_ctxbudget.knowledge.profiles import Engagement, engaged, entity_id, slug, topic_id
from langchain_ctxbudget.knowledge.records import (
    EntityProfile,
    Fact,
    FactCategory,
    PhraseRecord,
    Source,
    TopicConversation,
    TopicProfile,
)
from langchain_ctxbudget.tokens.estimate import estimate_tokens

Row = dict[str, Any]

NOW = datetime.now(UTC)
"""Nothing that is generated has expired."""
BUDGET = 8_192
CHARACTERS = 300
"""Of a message in which topics and entities are looked for."""
LENGTHS = (40, 400)
"""Messages of a conversation: one that fits whole, and one that is retrieved from."""
CONVERSATIONS = 3
"""In which each topic and entity came up."""
WHO: dict[str, Any] = {"user_id": "ada", "conversation_id": "now"}
PEOPLE = ("Mira", "Jonas", "Aisha", "Tomas", "Elena", "Rafael", "Noor", "Viktor", "Hanna", "Diego")
CATEGORIES: tuple[FactCategory, ...] = ("project", "preference", "identity")
NEW = (
    "I moved to Porto last week and I work as a translator now.",
    "Congratulations on the move!",
    "My sister Greta is planning a pottery workshop with me.",
    "That sounds lovely. When is the pottery workshop?",
    "In June. I prefer short answers, by the way.",
)
"""Five messages that say something new."""
NOTHING_NEW = ("Thanks!", "You are welcome.", "Okay, go on.", "Is that all?", "Yes.")


class Size(NamedTuple):
    """How much is known of a user."""

    name: str
    facts: int
    topics: int
    entities: int


SIZES = (Size("nothing", 0, 0, 0), Size("typical", 150, 100, 100), Size("full", 150, 1_000, 1_000))


class CountingStore(BaseStore):
    """A store that counts what is asked of it."""

    def __init__(self) -> None:
        self.store = InMemoryStore()
        self.counts: Counter[str] = Counter()

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Count, and pass on."""
        todo = list(ops)
        self.counts["batches"] += 1
        for op in todo:
            self.counts["written" if isinstance(op, PutOp) else "got" if isinstance(op, GetOp) else "searched"] += 1
        return self.store.batch(todo)

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Not needed here: everything is synchronous."""
        return self.batch(ops)


class Words:
    """Words, names and messages: the same ones for the same seed."""

    def __init__(self, seed: int = 7) -> None:
        self.random = random.Random(seed)
        self.words = [
            "".join(self.random.choice(("ba", "ke", "li", "mo", "ru", "sta", "ten")) for _ in range(3 + n % 2))
            for n in range(3_000)
        ]

    def some(self, count: int) -> str:
        """So many words."""
        return " ".join(self.random.choices(self.words, k=count))

    def message(self, names: Sequence[str], characters: int = CHARACTERS) -> str:
        """A message of a length, with these names in it."""
        parts = [*names]
        while sum(map(len, parts)) + len(parts) < characters:
            parts.insert(self.random.randrange(len(parts) + 1), self.random.choice(self.words))
        return " ".join(parts)[:characters]


def user(size: Size, words: Words) -> Knowledge:
    """Everything that is known of a user, with every text compiled."""
    topics = [_topic(words, number) for number in range(size.topics)]
    entities = [_entity(words, number) for number in range(size.entities)]
    facts = tuple(_fact(words, number, topics) for number in range(size.facts))
    links = {}
    profiles: list[known.Profile] = [*topics, *entities]
    for profile in profiles:
        for number in range(CONVERSATIONS):
            said = [Engagement(at=NOW - timedelta(days=number, hours=n), tokens=40, from_user=True) for n in range(4)]
            link = TopicConversation(topic_id=profile.id, conversation_id=f"c{number}")
            links[profile.id, f"c{number}"] = engaged(link, said, until=60)
    phrases = tuple(
        PhraseRecord(phrase=phrase, label=phrase, counts=(("c1", 1),), last_at=NOW)
        for phrase in {words.some(2) for _ in range(min(rules.MOST_KEPT, size.topics))}
    )
    state = Knowledge(facts=facts, topics=tuple(topics), entities=tuple(entities), links=links, phrases=phrases)
    state = learning.remeasured(state, Knowledge(), NOW)
    return learning.compiled(InMemoryStore(), WHO["user_id"], state, NOW, estimate_tokens)


def _sources(number: int) -> tuple[Source, ...]:
    return tuple(Source(conversation_id=f"c{n}", message_id=f"m{number}-{n}", digest="d") for n in range(CONVERSATIONS))


def _topic(words: Words, number: int) -> TopicProfile:
    label = f"{words.some(2)} {number}"
    return TopicProfile(
        id=topic_id(slug(label)),
        slug=slug(label),
        label=label,
        aliases=(words.some(2),),
        compiled_context=words.some(12),
        sources=_sources(number),
        created_at=NOW,
    )


def _entity(words: Words, number: int) -> EntityProfile:
    name = f"{PEOPLE[number % len(PEOPLE)]} {words.some(1).capitalize()}{number}"
    return EntityProfile(
        id=entity_id("person", name),
        name=name,
        type="person",
        relationship="colleague",
        aliases=(words.some(1).capitalize() + str(number),),
        attributes=(("email", f"{number}@example.org"), ("title", words.some(2))),
        facts=(words.some(6), words.some(6)),
        sources=_sources(number),
        created_at=NOW,
    )


def _fact(words: Words, number: int, topics: Sequence[TopicProfile]) -> Fact:
    about = topics[number % len(topics)].label if number % 2 else words.some(2)
    return Fact(
        id=f"fact-{number}",
        text=f"Works on {about} and {words.some(4)}",
        category=CATEGORIES[number % len(CATEGORIES)],
        sources=_sources(number),
        created_at=NOW,
        last_seen=NOW,
    )


def saved(state: Knowledge) -> CountingStore:
    """A store in which that is known."""
    store = CountingStore()
    drive(save(store, WHO["user_id"], NOTHING, state))
    return store


def milliseconds(action: Callable[[], object]) -> float:
    """How long something keeps the processor busy."""
    started = time.process_time()
    action()
    return (time.process_time() - started) * 1000


# Finding what a message is about


def detection(size: Size, messages: int) -> Row:
    """How long it takes to find the topics and entities of messages, by name, by terms and from the dialogue before."""
    words = Words()
    state = user(size, words)
    knowledge = known.Knowledge(facts=state.facts, topics=state.topics, entities=state.entities, bundles=state.bundles)
    names = [*(topic.label for topic in state.topics), *(entity.name for entity in state.entities)]
    asked = [words.message(words.random.sample(names, 2)) for _ in range(messages + 6)]
    settings = ContextSettings()

    def detect(at: int) -> object:
        return subjects.detect(asked[at], settings, knowledge, now=NOW, recent=asked[at + 1 : at + 7])

    first = milliseconds(lambda: detect(0))
    taken = [milliseconds(lambda at=at: detect(at)) for at in range(messages)]  # type: ignore[misc]
    return {
        "topics": size.topics,
        "entities": size.entities,
        "ms a message": statistics.median(taken),
        "p95": sorted(taken)[int(len(taken) * 0.95)],
        "first ms": first,
        "MB in memory": megabytes(state),
    }


# Learning


def extraction(messages: int) -> Row:
    """How long the rules take for a message, once they have seen some."""
    said = [Said(id=f"m{n}", digest="d", text=NEW[n % len(NEW)]) for n in range(messages)]
    phrases: Sequence[PhraseRecord] = ()
    taken = []
    for one in said:
        started = time.process_time()
        _, phrases = rules.learn([one], phrases, WHO["conversation_id"])
        taken.append((time.process_time() - started) * 1000)
    return {"messages": messages, "ms a message": statistics.median(taken), "p95": sorted(taken)[int(messages * 0.95)]}


def job(size: Size, said: Sequence[str], what: str, times: int) -> Row:
    """What learning from five messages takes, in a process that has the user in memory."""
    store = saved(user(size, Words()))
    # Nothing is learned by itself, only when a session ends.
    settings = ContextSettings(max_context_tokens=BUDGET, learn_every=1_000)
    taken, counts = [], Counter[str]()
    with ContextPipeline(settings, store=store) as pipeline:
        for number in range(times + 1):
            where = {"user_id": WHO["user_id"], "conversation_id": f"{what}{number}"}
            pipeline.add_messages(_messages(said), **where)
            before = Counter(store.counts)
            started = time.process_time()
            pipeline.end_session(**where)
            pipeline.flush(600)
            taken.append(time.process_time() - started)
            counts = store.counts - before
    return {
        "known": size.name,
        "messages say": what,
        "first ms": taken[0] * 1000,
        "ms": statistics.median(taken[1:]) * 1000,
        **{name: counts[name] for name in ("batches", "got", "searched", "written")},
    }


def _messages(texts: Sequence[str]) -> list[BaseMessage]:
    return [(AIMessage if number % 2 else HumanMessage)(text) for number, text in enumerate(texts)]


# Prompts


def prompts(size: Size, messages: int, times: int) -> Row:
    """What prompts cost with learning switched on, against the same ones with it switched off."""
    words = Words()
    state = user(size, words)
    names = [*(topic.label for topic in state.topics), *(entity.name for entity in state.entities)]
    said = [words.message([], 200) for _ in range(messages)]
    asked = [words.message(words.random.sample(names, min(2, len(names)))) for _ in range(times + 1)]
    stores = {learn: saved(state) for learn in (True, False)}
    made: dict[bool, list[tuple[float, int, Counter[str], int]]] = {True: [], False: []}
    pipelines = {
        learn: ContextPipeline({"max_context_tokens": BUDGET, "learn": learn}, store=store)
        for learn, store in stores.items()
    }
    for pipeline in pipelines.values():
        pipeline.add_messages(_messages(said), **WHO)
        pipeline.flush(600)
    for question in asked:
        for learn, pipeline in pipelines.items():
            before, started = Counter(stores[learn].counts), time.process_time()
            report = pipeline.assemble(question, **WHO).report
            taken = (time.process_time() - started) * 1000
            about = sum(layer.used_tokens for layer in report.layers if layer.layer in ("L1", "L2", "L3"))
            made[learn].append((taken, report.tokenizer_calls, stores[learn].counts - before, about))
    for pipeline in pipelines.values():
        pipeline.close()
    on, off = ([one[0] for one in made[learn][1:]] for learn in (True, False))
    calls_on, calls_off = (statistics.median(one[1] for one in made[learn][1:]) for learn in (True, False))
    counts_on, counts_off = made[True][-1][2], made[False][-1][2]
    return {
        "known": size.name,
        "messages": messages,
        "ms": statistics.median(on),
        "to off": statistics.median(on) / statistics.median(off),
        "first, to off": made[True][0][0] / made[False][0][0],
        "tokenized": calls_on,
        "off": calls_off,
        "batches": counts_on["batches"],
        "off ": counts_off["batches"],
        "read": counts_on["got"] + counts_on["searched"],
        "off  ": counts_off["got"] + counts_off["searched"],
        "written": counts_on["written"],
        "about the user": statistics.median(one[3] for one in made[True]),
    }


def megabytes(state: Knowledge) -> float:
    """What stays in memory of a user, with what finds it in messages, once it was read and asked for."""
    store = saved(state)
    known.erased(store, WHO["user_id"])
    gc.collect()
    tracemalloc.start()
    knowledge = drive(known.read(store, WHO["user_id"]))
    subjects.detect("Hello", ContextSettings(), knowledge, now=NOW)
    kept = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return kept / 1e6


def table(title: str, rows: Sequence[Row]) -> Table:
    """The rows, numbers to the right."""
    drawn = Table(title=title)
    for name, value in rows[0].items():
        drawn.add_column(name, justify="left" if isinstance(value, str) else "right")
    for row in rows:
        drawn.add_row(*(f"{value:,.2f}" if isinstance(value, float) else f"{value}" for value in row.values()))
    return drawn


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=300, help="in which topics and entities are looked for")
    parser.add_argument("--jobs", type=int, default=5, help="of each kind")
    parser.add_argument("--prompts", type=int, default=40, help="of each user")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    options = parser.parse_args()
    said = {"something new": NEW, "nothing new": NOTHING_NEW}
    measured = {
        "Finding what a message of 300 characters is about: milliseconds, what is kept of a user": [
            detection(size, options.messages) for size in SIZES[1:]
        ],
        "What rules find in a message": [extraction(options.messages)],
        "Learning from five messages: milliseconds, store operations": [
            job(size, texts, what, options.jobs) for size in SIZES for what, texts in said.items()
        ],
        f"Prompts of {BUDGET:,} tokens: milliseconds, texts tokenized, operations, against learning switched off": [
            prompts(size, messages, options.prompts) for size in SIZES for messages in LENGTHS
        ],
    }
    if options.json:
        print(json.dumps(measured, indent=2))
        return
    console = Console(width=160)
    for title, rows in measured.items():
        console.print(table(title, rows))


if __name__ == "__main__":
    main()
