"""A pipeline without a store reads and writes in the one that its agent was compiled with."""

from typing import Any

import pytest
from langgraph.store.base import BaseStore
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import ContextPipeline
from langchain_ctxbudget.errors import StoreError
from langchain_ctxbudget.middleware import ContextBudgetMiddleware
from tests.integration_tests.agents import CONFIG, SCOPE, agent_of, scripted

USER = {"user_id": "ada"}


def run_agent(middleware: ContextBudgetMiddleware, store: BaseStore) -> None:
    agent = agent_of(scripted(), middleware, store=store)
    agent.invoke({"messages": [("human", "My bike is green.")]}, CONFIG)


@pytest.fixture
def store() -> InMemoryStore:
    return InMemoryStore()


@pytest.fixture
def pipeline(store: InMemoryStore) -> ContextPipeline:
    """The pipeline of a middleware from settings alone, after a run over a store."""
    middleware = ContextBudgetMiddleware({"max_context_tokens": 4_000})
    run_agent(middleware, store)
    return middleware.pipeline


def texts(pipeline: ContextPipeline) -> list[str]:
    return [message.text for message in pipeline.get_messages(**SCOPE)]


def test_its_messages_are_read(pipeline: ContextPipeline) -> None:
    assert texts(pipeline) == ["My bike is green.", "Fine."]


def test_its_conversations_are_listed(pipeline: ContextPipeline) -> None:
    assert pipeline.list_conversations(**USER) == ["c1"]


def test_its_store_is_told(pipeline: ContextPipeline, store: InMemoryStore) -> None:
    assert pipeline.store is store


def test_its_users_are_exported(pipeline: ContextPipeline) -> None:
    assert any("My bike is green." in line for line in pipeline.export_user(**USER))


def test_what_is_added_by_hand_is_known_to_the_agent(
    pipeline: ContextPipeline, store: InMemoryStore
) -> None:
    pipeline.knowledge.add_fact("Lives in Lisbon", category="identity", **USER)
    facts = ContextPipeline(store=store).knowledge.list_facts(**USER)
    assert [fact.text for fact in facts] == ["Lives in Lisbon"]


def test_settings_saved_by_hand_are_those_of_the_agent(
    pipeline: ContextPipeline, store: InMemoryStore
) -> None:
    pipeline.save_settings({"preferences": ["Be brief."]}, **USER)
    assert ContextPipeline(store=store).get_settings(**USER) == {"preferences": ["Be brief."]}


def test_a_conversation_that_was_taken_before_the_run_is_read(store: InMemoryStore) -> None:
    middleware = ContextBudgetMiddleware({"max_context_tokens": 4_000})
    chat = middleware.pipeline.conversation("c1", user_id="ada")
    assert chat.messages() == []
    run_agent(middleware, store)
    assert [message.text for message in chat.messages()] == ["My bike is green.", "Fine."]


def test_clearing_deletes_it_there(pipeline: ContextPipeline, store: InMemoryStore) -> None:
    pipeline.clear(**SCOPE)
    assert texts(ContextPipeline(store=store)) == []


def test_erasing_deletes_it_there(pipeline: ContextPipeline, store: InMemoryStore) -> None:
    pipeline.erase_user(**USER)
    assert texts(ContextPipeline(store=store)) == []


@pytest.mark.parametrize("own", ["given", "written"])
def test_a_pipeline_with_messages_of_its_own_keeps_to_them(own: str, store: InMemoryStore) -> None:
    given: Any = InMemoryStore() if own == "given" else None
    pipeline = ContextPipeline({"learn": False}, store=given)
    if own == "written":
        pipeline.add_messages([("human", "Mine.")], user_id="ada", conversation_id="c9")
    run_agent(ContextBudgetMiddleware(pipeline), store)
    assert texts(pipeline) == []


def test_it_is_logged_that_it_does_not_read_the_run_s_store(
    store: InMemoryStore, caplog: pytest.LogCaptureFixture
) -> None:
    pipeline = ContextPipeline({"learn": False})
    pipeline.add_messages([("human", "Mine.")], user_id="ada", conversation_id="c9")
    run_agent(ContextBudgetMiddleware(pipeline), store)
    for _ in range(2):
        texts(pipeline)
    assert caplog.text.count("Give it that store") == 1


@pytest.fixture
def between_two(store: InMemoryStore) -> ContextPipeline:
    """A pipeline whose runs were over two stores, of which the first is closed."""
    middleware = ContextBudgetMiddleware({"max_context_tokens": 4_000})
    closed = ClosableStore()
    for each in (closed, store):
        run_agent(middleware, each)
    closed.is_closed = True
    return middleware.pipeline


class ClosableStore(InMemoryStore):
    """A store that can be closed, as one over a connection to a database."""

    is_closed = False

    def batch(self, ops: Any) -> Any:
        if self.is_closed:
            raise ConnectionError("The connection is closed")
        return super().batch(ops)


def test_of_two_stores_neither_is_read(between_two: ContextPipeline) -> None:
    with pytest.raises(StoreError, match=r"brought 2 .*: ContextPipeline\(store=\.\.\.\)"):
        texts(between_two)


def test_of_two_stores_neither_is_written(between_two: ContextPipeline) -> None:
    with pytest.raises(StoreError, match="brought 2"):
        between_two.save_settings({"preferences": ["Be brief."]}, **USER)


def test_it_can_be_printed_over_two_stores(between_two: ContextPipeline) -> None:
    chat = between_two.conversation("c1", user_id="ada")
    assert repr(chat) == "Chat('c1', user_id='ada', messages=2)"
    assert repr(between_two).endswith(" or InMemoryStore())")


def test_a_closed_store_keeps_no_other_from_erasing(
    between_two: ContextPipeline, store: InMemoryStore
) -> None:
    with pytest.raises(ConnectionError):
        between_two.erase_user(**USER)
    assert store.search(("ctxbudget",), limit=1) == []


def test_a_closed_store_keeps_no_other_from_clearing(
    between_two: ContextPipeline, store: InMemoryStore
) -> None:
    with pytest.raises(ConnectionError):
        between_two.clear(**SCOPE)
    assert texts(ContextPipeline(store=store)) == []


def test_an_export_has_what_is_in_every_store(store: InMemoryStore) -> None:
    pipeline = ContextPipeline({"learn": False})
    pipeline.add_messages([("human", "Mine.")], user_id="ada", conversation_id="c9")
    run_agent(ContextBudgetMiddleware(pipeline), store)
    exported = "\n".join(pipeline.export_user(**USER))
    assert exported.count("Mine.") == 1
    assert exported.count("My bike is green.") == 1
