"""What is told when a store holds damaged records, its disk is full, or a write fails when nobody waits any more."""

import copy
import json
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage
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
SAID = (
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
NEEDED = ("messages", "lanes")
"""Kinds of records without which there is no conversation; all others are beside it."""


@pytest.fixture(scope="module")
def conversation() -> InMemoryStore:
    """A store with records of every kind."""
    store = InMemoryStore()
    with ContextPipeline(SETTINGS, store=store) as pipeline:
        documents = KnowledgeBase(store, **ADA)
        for number in range(20):
            said = f"{SAID[number % 5]} ({number})"
            answer = "That is good to know, and I will remember it. " * 3
            pipeline.add_messages([HumanMessage(said, id=f"h{number}"), AIMessage(answer)], **SCOPE)
        pipeline.pin(["h0"], **SCOPE)
        pipeline.save_settings({"learn": True}, **ADA)
        documents.add("The home brewing kettle boils at 100 degrees.")
        pipeline.add_messages(
            [HumanMessage("More about home brewing")], **ADA, conversation_id="c2"
        )
        report = pipeline.assemble("How is my home brewing?", **SCOPE).report
        pipeline.observe_usage(
            {"input_tokens": 500, "output_tokens": 10, "total_tokens": 510}, report=report
        )
        assert pipeline.flush(30)
    return store


@pytest.mark.slow
def test_damaged_records_give_typed_errors_or_empty_optional_layers(
    conversation: InMemoryStore,
) -> None:
    kinds = sorted({kind_of(namespace) for namespace, items in conversation._data.items() if items})
    for seed in range(50):
        chance = random.Random(seed)
        store = copy.deepcopy(conversation)
        kind = chance.choice(kinds)
        item = chance.choice(
            [
                one
                for n, items in store._data.items()
                if kind_of(n) == kind
                for one in items.values()
            ]
        )
        item.value = damaged(chance, item.value)
        with ContextPipeline(SETTINGS, store=store) as pipeline:
            for name, use in uses(pipeline):
                try:
                    use()
                except CtxBudgetError as error:
                    if name == "assemble" and kind not in NEEDED:
                        pytest.fail(f"{kind} is needed for a prompt: {error} ({seed=})")
                except Exception as error:  # noqa: BLE001 - told with what made it
                    pytest.fail(
                        f"{name}: {error!r} from {item.namespace} {item.key!r}: {item.value} ({seed=})"
                    )


def kind_of(namespace: tuple[str, ...]) -> str:
    return namespace[2] if len(namespace) > 2 else namespace[1]


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


def damaged(chance: random.Random, value: dict[str, Any]) -> dict[str, Any]:
    """A value that is no record any more, or lacks a part, or has garbage in its place, at any depth."""
    way = chance.randrange(4)
    places = list(parts(value))
    if not way or not places:
        return copy.deepcopy(chance.choice(NO_RECORDS))
    value = copy.deepcopy(value)
    *path, last = chance.choice(places)
    holder: Any = value
    for step in path:
        holder = holder[step]
    garbage = chance.choice(GARBAGE)
    if way == 1:
        del holder[last]
    elif way == 2 or not isinstance(text := holder[last], str):
        holder[last] = garbage
    else:  # a text that may be JSON itself, as that of a message is
        try:
            inner = json.loads(text)
            holder[last] = json.dumps(
                damaged(chance, inner) if isinstance(inner, dict) else garbage
            )
        except ValueError:
            holder[last] = text[: len(text) // 2]
    return value


def parts(value: object, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    inside = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, part in inside:
        yield (*path, key)
        yield from parts(part, (*path, key))
