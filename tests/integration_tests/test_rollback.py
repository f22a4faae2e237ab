"""What is written today can be read by commit 962b675, where it is what was said and what is known.

`fields.json` has the fields of its records. A field that it does not know makes a record unreadable
there; the page on upgrades tells which kinds of records are deleted before a rollback.
"""

import json
from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_core.messages import HumanMessage
from langgraph.store.base import BaseStore
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import ContextPipeline, KnowledgeBase
from langchain_ctxbudget.stores import from_stored
from tests.earlier_stores import FOLDER
from tests.integration_tests.test_export_and_erase import fill, new_pipeline

FIELDS: dict[str, list[str]] = json.loads((FOLDER / "fields.json").read_text(encoding="utf-8"))
"""The fields that records of each kind had at that commit."""
DELETED = {"cuts", "blocks", "sent", "snapshot", "learning", "reports", "usage", "spent", "ages"}
"""The kinds of records that are deleted before a rollback; see `docs/how-to/upgrade.md`."""
UNKNOWN_THERE = {"knowledge/rules", "shared/threads"}
"""Kinds of records that it does not read."""
SETTINGS_OF_USERS = {"settings"}
"""Plain data, which each version checks."""
ADA: Any = {"user_id": "ada"}
QUESTION = "What was it about?"


@pytest.fixture(scope="module")
def store() -> BaseStore:
    """A store with everything that can be stored of a user."""
    store = InMemoryStore()
    with new_pipeline(store) as pipeline:
        fill(pipeline, "ada", "marmalade")
        pipeline.knowledge.add_fact("Lives in Leeds", **ADA)
        pipeline.knowledge.add_entity("Tom", type="person", **ADA)
        pipeline.knowledge.add_topic("Jams", **ADA)
        pipeline.knowledge.heartbeat(device_id="phone", active_conversation_id="c1", **ADA)
        KnowledgeBase(store, **ADA).add(Document("Jam is sweet.", metadata={"source": "jam"}))
        chat = pipeline.conversation("c1", **ADA)
        chat.add(HumanMessage("From now on, never send anything without asking me."))
        pipeline.sweep({"messages": 90})
        assert pipeline.flush(60)
    return store


def kind_of(namespace: tuple[str, ...]) -> str:
    """Returns the kind of the records in a namespace."""
    _, user, *labels = namespace
    names = [name for name in labels if not name.endswith("~")]
    if user == "shared":
        return f"shared/{names[0]}"
    if names[0] in ("knowledge", "documents"):
        return "/".join(names[:2])
    return names[0]


@pytest.mark.slow
def test_every_kind_of_record_is_told_of(store: BaseStore) -> None:
    kinds = {kind_of(item.namespace) for item in store.search((), limit=10_000)}
    assert kinds <= {*FIELDS, *DELETED, *UNKNOWN_THERE, *SETTINGS_OF_USERS}
    assert {"messages", "knowledge/facts", "documents/parts", "compactions"} <= kinds


@pytest.mark.parametrize("kind", FIELDS)
def test_the_earlier_version_knows_every_field(store: BaseStore, kind: str) -> None:
    items = [item for item in store.search((), limit=10_000) if kind_of(item.namespace) == kind]
    fields = set().union(*(from_stored(item.value) for item in items))
    assert fields - set(FIELDS[kind]) == set()


def test_without_what_is_deleted_before_a_rollback_a_conversation_goes_on(
    store: BaseStore,
) -> None:
    for item in store.search((), limit=10_000):
        if kind_of(item.namespace) in DELETED:
            store.delete(item.namespace, item.key)
    with ContextPipeline({"max_context_tokens": 700}, store=store) as pipeline:
        context = pipeline.assemble(QUESTION, conversation_id="c1", **ADA)
        assert context.report.failures == ()
        assert "Lives in Leeds" in str([message.content for message in context.messages])
