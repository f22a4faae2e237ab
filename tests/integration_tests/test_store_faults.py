"""A damaged record of a store is a typed error, or the absence of an optional layer.

Whatever is damaged, nothing but errors of this package comes out of it.
"""

import copy
import json
import random
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.store.base import Item
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import ContextPipeline, KnowledgeBase
from langchain_ctxbudget.errors import CtxBudgetError

ADA: Any = {"user_id": "ada"}
SCOPE: Any = {**ADA, "conversation_id": "c1"}
SETTINGS = {
    "learn_every": 1,
    "max_context_tokens": 700,
    "keep_snapshots": 3,
    "span_messages": 4,
    "usage_limits": {"session_tokens": 1_000_000},
}
SENTENCES = (
    "I am learning home brewing. The home brewing kettle is new.",
    "Sarah likes my home brewing.",
    "Today the home brewing went well.",
    "My favourite colour is amber.",
    "Sarah, my sister, works at Acme.",
)
GARBAGE = (None, 5, -1, 10**12, "x", "", [], {}, [1], {"a": 1}, True, 1.5, "9999-99-99")
NO_RECORDS: tuple[dict[str, Any], ...] = (
    {},
    {"x": 1},
    {"json": "{"},
    {"json": 5},
    {"json": "[]"},
    {"json": "null"},
)
NEEDED_KINDS = ("messages", "lanes")
"""Kinds of records without which there is no conversation; all others are beside it."""


@pytest.fixture(scope="module")
def conversation() -> InMemoryStore:
    """A store with records of every kind."""
    store = InMemoryStore()
    with ContextPipeline(SETTINGS, store=store) as pipeline:
        for number in range(20):
            sentence = SENTENCES[number % 5]
            question = HumanMessage(f"{sentence} ({number})", id=f"h{number}")
            answer = AIMessage("That is good to know, and I will remember it. " * 3)
            pipeline.add_messages([question, answer], **SCOPE)
        pipeline.pin(["h0"], **SCOPE)
        pipeline.save_settings({"learn": True}, **ADA)
        documents = KnowledgeBase(store, **ADA)
        documents.add("The home brewing kettle boils at 100 degrees.")
        pipeline.add_messages(
            [HumanMessage("More about home brewing")], **ADA, conversation_id="c2"
        )
        report = pipeline.assemble("How is my home brewing?", **SCOPE).report
        usage = {"input_tokens": 500, "output_tokens": 10, "total_tokens": 510}
        pipeline.observe_usage(usage, report=report)
        assert pipeline.flush(30)
    return store


@dataclass(frozen=True)
class Damage:
    """A store, and the record in it that is damaged."""

    store: InMemoryStore
    record: Item


def kind_of(namespace: tuple[str, ...]) -> str:
    return namespace[2] if len(namespace) > 2 else namespace[1]


def damaged_copy(conversation: InMemoryStore, seed: int) -> Damage:
    """A copy of a store with one damaged record; every kind of record is as likely."""
    rng = random.Random(seed)
    store = copy.deepcopy(conversation)
    records_by_kind: dict[str, list[Item]] = defaultdict(list)
    for namespace, items in store._data.items():
        records_by_kind[kind_of(namespace)] += items.values()
    kinds = sorted(kind for kind, records in records_by_kind.items() if records)
    record = rng.choice(records_by_kind[rng.choice(kinds)])
    record.value = damaged(rng, record.value)
    return Damage(store, record)


@dataclass(frozen=True)
class Aftermath:
    """What came out of everything that reads records, where one of them is damaged."""

    record: Item
    errors: list[tuple[str, Exception]]

    @property
    def kind(self) -> str:
        return kind_of(self.record.namespace)

    def __str__(self) -> str:
        return f"{self.record.namespace} {self.record.key!r}: {self.record.value}"


@pytest.fixture(scope="module", params=range(20))
def aftermath(request: pytest.FixtureRequest, conversation: InMemoryStore) -> Aftermath:
    damage = damaged_copy(conversation, request.param)
    errors = []
    with ContextPipeline(SETTINGS, store=damage.store) as pipeline:
        for name, use in uses(pipeline):
            try:
                use()
            except Exception as error:  # noqa: BLE001 - the tests judge it
                errors.append((name, error))
    return Aftermath(damage.record, errors)


@pytest.mark.slow
def test_damaged_records_give_errors_of_this_package(aftermath: Aftermath) -> None:
    foreign_errors = [
        f"{name}: {error!r}"
        for name, error in aftermath.errors
        if not isinstance(error, CtxBudgetError)
    ]

    assert foreign_errors == [], str(aftermath)


@pytest.mark.slow
def test_a_prompt_needs_only_messages_and_lanes(aftermath: Aftermath) -> None:
    failed_prompts = [str(error) for name, error in aftermath.errors if name == "assemble"]

    assert failed_prompts == [] or aftermath.kind in NEEDED_KINDS, str(aftermath)


def uses(pipeline: ContextPipeline) -> Iterator[tuple[str, Callable[[], object]]]:
    """Everything that reads records; of them, prompts come first, and once more at the end."""
    documents = KnowledgeBase(pipeline.store, **ADA)
    yield "assemble", lambda: pipeline.assemble("How is my home brewing?", **SCOPE)
    yield "get_messages", lambda: pipeline.get_messages(**SCOPE)
    yield "get_page", lambda: pipeline.get_page(**SCOPE)
    yield "add_messages", lambda: pipeline.add_messages([HumanMessage("new")], **SCOPE)
    yield "list_conversations", lambda: pipeline.list_conversations(**ADA)
    yield "coverage", lambda: pipeline.coverage(**SCOPE)
    yield "get_compactions", lambda: pipeline.get_compactions(**SCOPE)
    yield "list_facts", lambda: pipeline.knowledge.list_facts(**ADA, include_ended=True)
    yield "list_topics", lambda: pipeline.knowledge.list_topics(**ADA)
    yield "list_entities", lambda: pipeline.knowledge.list_entities(**ADA)
    yield "list_bundles", lambda: pipeline.knowledge.list_bundles(**ADA)
    yield "snapshots", lambda: pipeline.snapshots.list(**SCOPE)
    yield "of_session", lambda: pipeline.usage.of_session(**SCOPE)
    yield "of_month", lambda: pipeline.usage.of_month(**ADA)
    yield "get_settings", lambda: pipeline.get_settings(**ADA)
    yield "export_user", lambda: pipeline.export_user(**ADA)
    yield "documents", lambda: (documents.list(), documents.search("kettle"))
    yield "elsewhere", lambda: pipeline.assemble("kettle", **ADA, conversation_id="c2")
    yield "remove_messages", lambda: pipeline.remove_messages(["h3"], on_removal="forget", **SCOPE)
    yield "assemble", lambda: pipeline.assemble("Which kettle?", **SCOPE)


def damaged(rng: random.Random, record: dict[str, Any]) -> dict[str, Any]:
    """No record any more, or one that lacks a part or has garbage in its place, at any depth."""
    way = rng.choice(["no record", "missing part", "garbage", "broken text"])
    paths = list(paths_of_parts(record))
    if way == "no record" or not paths:
        return copy.deepcopy(rng.choice(NO_RECORDS))
    record = copy.deepcopy(record)
    *path, last = rng.choice(paths)
    holder: Any = record
    for key in path:
        holder = holder[key]
    if way == "missing part":
        del holder[last]
    elif way == "broken text" and isinstance(holder[last], str):
        holder[last] = broken(rng, holder[last])
    else:
        holder[last] = rng.choice(GARBAGE)
    return record


def broken(rng: random.Random, text: str) -> str:
    """Half of a text; or a damaged value, where the text is JSON as that of a message is."""
    try:
        value = json.loads(text)
    except ValueError:
        return text[: len(text) // 2]
    if isinstance(value, dict):
        return json.dumps(damaged(rng, value))
    return json.dumps(rng.choice(GARBAGE))


def paths_of_parts(value: object, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The keys that lead to each part of a value, at any depth."""
    if isinstance(value, dict):
        parts: list[tuple[Any, object]] = list(value.items())
    elif isinstance(value, list):
        parts = list(enumerate(value))
    else:
        parts = []
    for key, part in parts:
        yield (*path, key)
        yield from paths_of_parts(part, (*path, key))
