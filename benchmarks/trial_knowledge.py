"""What it costs to know a user: finding what a message is about, learning from messages, and prompts that show it.

Three users are generated: one of whom nothing is known, a typical one, and one of whom as much is known as is kept.
Counts are exact; times on a shared machine compare within a table, so prompts are a ratio, learning switched on to
switched off, measured in turn.

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
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langgraph.store.base import BaseStore, GetOp, Op, PutOp, Result
from langgraph.store.memory import InMemoryStore
from rich.console import Console
from rich.table import Table

from langchain_ctxbudget import ContextPipeline, ContextSettings
from langchain_ctxbudget.core.estimate import estimate_tokens
from langchain_ctxbudget.flow import drive
from langchain_ctxbudget.knowledge import known, learning, rules, subjects
from langchain_ctxbudget.knowledge.learned import Said
from langchain_ctxbudget.knowledge.learning import State
from langchain_ctxbudget.knowledge.profiles import engaged, entity_id, slug, topic_id
from langchain_ctxbudget.knowledge.profiles import Engagement
from langchain_ctxbudget.knowledge.records import (
    EntityProfile,
    Fact,
    FactCategory,
    KnowledgeMark,
    PhraseRecord,
    Source,
    TopicConversation,
    TopicProfile,
)

Row = dict[str, Any]

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
BUDGET = 8_192
CHARACTERS = 300
"""Of a message in which topics and entities are looked for."""
CONVERSATIONS = 3
"""In which each topic and entity came up."""
WHO = {"user_id": "ada", "conversation_id": "now"}
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
        self.words = ["".join(self.random.choice(("ba", "ke", "li", "mo", "ru", "sta", "ten")) for _ in range(3 + n % 2))
                      for n in range(3_000)]

    def some(self, count: int) -> str:
        """So many words."""
        return " ".join(self.random.choices(self.words, k=count))

    def message(self, names: Sequence[str], characters: int = CHARACTERS) -> str:
        """A message of a length, with these names in it."""
        parts = [*names]
        while sum(map(len, parts)) + len(parts) < characters:
            parts.insert(self.random.randrange(len(parts) + 1), self.random.choice(self.words))
        return " ".join(parts)[:characters]


def user(size: Size, words: Words) -> State:
    """Everything that is known of a user, with every text compiled."""
    topics = [_topic(words, number) for number in range(size.topics)]
    entities = [_entity(words, number) for number in range(size.entities)]
    facts = tuple(_fact(words, number, topics) for number in range(size.facts))
    links = {}
    for profile in (*topics, *entities):
        for number in range(CONVERSATIONS):
            said = [Engagement(at=NOW - timedelta(days=number, hours=n), tokens=40, from_user=True) for n in range(4)]
            link = TopicConversation(topic_id=profile.id, conversation_id=f"c{number}")
            links[profile.id, f"c{number}"] = engaged(link, said, until=60)
    phrases = tuple(
        PhraseRecord(phrase=phrase, label=phrase, counts=(("c1", 1),), last_at=NOW)
        for phrase in {words.some(2) for _ in range(min(rules.MOST_KEPT, size.topics))}
    )
    state = State(facts=facts, topics=tuple(topics), entities=tuple(entities), links=links, phrases=phrases)
    state = learning.remeasured(state, State(), NOW)
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


def saved(state: State) -> CountingStore:
    """A store in which that is known."""
    store = CountingStore()
    drive(learning.save(store, WHO["user_id"], State(), state, KnowledgeMark(mark="")))
    return store


def milliseconds(action: Callable[[], object]) -> float:
    """How long something takes."""
    started = time.perf_counter()
    action()
    return (time.perf_counter() - started) * 1000


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
    with_new_ones = replace(knowledge, topics=knowledge.topics[1:], entities=knowledge.entities[1:])
    gc.collect()
    tracemalloc.start()
    again = known.Knowledge(**{**vars(with_new_ones)})
    subjects.detect(asked[0], settings, again, now=NOW)
    memory = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return {
        "known": f"{size.topics:,} topics, {size.entities:,} entities",
        "ms a message": statistics.median(taken),
        "p95": sorted(taken)[int(len(taken) * 0.95)],
        "ms with detectors to build": first,
        "detectors MB": memory / 1e6,
    }


def main() -> None:
    pass


if __name__ == "__main__":
    main()
