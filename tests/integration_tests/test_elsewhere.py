"""Messages of a user's other conversations as candidates: on every store, with an index and without."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from langchain_core.messages import HumanMessage
from langgraph.store.base import BaseStore, IndexConfig
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import ContextPipeline
from langchain_ctxbudget.flow import adrive, drive
from langchain_ctxbudget.history import OtherConversations
from langchain_ctxbudget.history.log import OVERFETCH
from langchain_ctxbudget.search import Candidate
from tests import log_contract
from tests.integration_tests.conftest import Call
from tests.integration_tests.test_isolation import CONVERSATIONS, USERS, mark
from tests.log_contract import Counting, said
from tests.stores import blocking_stores, embed

SETTINGS = {"learn": False}
INDEX: IndexConfig = {"dims": 64, "embed": embed}
QUERY = "violet lantern harbour"
SLOW = pytest.mark.slow
STORES = ("memory", pytest.param("chroma-folder", marks=SLOW), "postgres")
"""One of each kind; Chroma's is for the long suite."""


@pytest.fixture(autouse=True)
def _wrapped_stores_tell_of_their_index(monkeypatch: pytest.MonkeyPatch) -> None:
    told = property(lambda wrapped: getattr(wrapped.store, "index_config", None))
    monkeypatch.setattr(log_contract.Elsewhere, "index_config", told, raising=False)


class Reader:
    def __init__(self, store: BaseStore) -> None:
        self.store = store

    def find(self, query: str = QUERY, **given: Any) -> list[Candidate]:
        return drive(self._flow(query, **given))

    async def afind(self, query: str = QUERY, **given: Any) -> list[Candidate]:
        return await adrive(self._flow(query, **given))

    def _flow(self, query: str, *, user: str = "ada", without: str | None = "open", limit: int = 20) -> Any:
        return OtherConversations().read(self.store, user, query, without_conversation=without, limit=limit)


@pytest.fixture(params=["indexed", "plain"])
def index(request: pytest.FixtureRequest) -> IndexConfig | None:
    return INDEX if request.param == "indexed" else None


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, index: IndexConfig | None) -> Iterator[BaseStore]:
    with blocking_stores(request.param, request) as new:
        yield new(index)


def at(conversation: str, user: str = "ada") -> dict[str, str]:
    return {"user_id": user, "conversation_id": conversation}


def texts(found: Sequence[Candidate]) -> list[str]:
    return [candidate.text for candidate in found]


def test_what_was_taken_out_or_is_not_to_be_quoted_is_no_candidate(store: BaseStore, call: Call) -> None:
    pipeline = ContextPipeline(SETTINGS, store=store)
    given = said(*(f"{QUERY} {word}" for word in ("kept", "archived", "forgotten", "dropped", "pinned")))
    given += [
        HumanMessage(f"{QUERY} {how}", id=how, additional_kwargs={"ctxbudget": how}) for how in ("drop", "summarize")
    ]
    call(pipeline, "add_messages", given, **at("c1"))
    assert len(call(Reader(store), "find")) == 5
    call(pipeline, "remove_messages", f"{QUERY} archived", **at("c1"))
    call(pipeline, "remove_messages", f"{QUERY} forgotten", on_removal="forget", **at("c1"))
    quiet = HumanMessage(f"{QUERY} dropped", additional_kwargs={"ctxbudget": "drop"})
    call(pipeline, "edit_message", f"{QUERY} dropped", quiet, **at("c1"))
    call(pipeline, "pin", f"{QUERY} pinned", preservation="summarize", **at("c1"))
    assert texts(call(Reader(store), "find")) == [f"{QUERY} kept"]


def test_no_user_finds_what_another_has_said(store: BaseStore, call: Call) -> None:
    pipeline = ContextPipeline(SETTINGS, store=store)
    for user in USERS:
        given = [HumanMessage(f"{QUERY} {mark(user)}", id="m")]
        for thread in CONVERSATIONS[:2]:
            call(pipeline, "add_messages", given, **at(thread, user))
    for user in USERS:
        found = call(Reader(store), "find", user=user, without=CONVERSATIONS[0], limit=40)
        assert [(one.title, one.text) for one in found] == [(CONVERSATIONS[1], f"{QUERY} {mark(user)}")]
    for other in ("zoe", "zoexa3", "zoexa.", "z%"):
        assert not call(Reader(store), "find", user=other)


def test_what_is_read_is_bounded_by_what_is_asked_for(store: BaseStore, call: Call) -> None:
    counting = Counting(store)
    pipeline = ContextPipeline(SETTINGS, store=store)
    limit, costs = 8, []
    for size in (50, 200):
        for thread in ("c1", "c2", "open"):
            given = said(*(f"{size} {thread} {number} lantern" for number in range(size)))
            call(pipeline, "add_messages", given, **at(thread))
        counting.reset()
        found = call(Reader(counting), "find", limit=limit)
        assert 1 <= len(found) <= limit
        costs.append((counting.batches, counting.records_read))
    assert max(batches for batches, _ in costs) <= 3
    assert max(read for _, read in costs) <= OVERFETCH * limit + 4 * limit


# -- what an index costs, and what none does


# -- read once


def read(cache: OtherConversations, store: BaseStore, query: str = QUERY, **other: Any) -> list[str]:
    given: dict[str, Any] = {"without_conversation": "open", "limit": 20, **other}
    return texts(drive(cache.read(store, given.pop("user_id", "ada"), query, **given)))


@pytest.mark.parametrize("change", ["another conversation", "a pin", "a removal", "a clear"])
def test_without_an_index_every_change_elsewhere_is_seen(change: str) -> None:
    store = InMemoryStore()
    cache, pipeline = OtherConversations(), ContextPipeline(SETTINGS, store=store)
    pipeline.add_messages(said("lantern", "harbour"), **at("c1"))
    assert sorted(read(cache, store)) == ["harbour", "lantern"]
    match change:
        case "another conversation":
            pipeline.add_messages(said("violet"), **at("c2"))
            assert sorted(read(cache, store)) == ["harbour", "lantern", "violet"]
        case "a pin":
            pipeline.pin(["lantern"], preservation="drop", **at("c1"))
            assert read(cache, store) == ["harbour"]
        case "a removal":
            pipeline.remove_messages(["lantern"], **at("c1"))
            assert read(cache, store) == ["harbour"]
        case "a clear":
            pipeline.clear(**at("c1"))
            assert read(cache, store) == []
