"""A report is plain data for whoever keeps it; the candidates of `reallocate` stay beside it."""

from __future__ import annotations

import copy
import pickle

import pytest
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import ContextPipeline, ContextReport
from langchain_ctxbudget.errors import InputError
from tests.integration_tests.test_pipeline import chat

SCOPE = {"user_id": "ada", "conversation_id": "c1"}


@pytest.fixture(name="report")
def report_of_a_prompt() -> ContextReport:
    pipeline = ContextPipeline({"max_context_tokens": 600}, store=InMemoryStore())
    pipeline.add_messages(chat(60), **SCOPE)
    return pipeline.assemble("Which plan?", **SCOPE).report


def test_a_report_can_be_checkpointed(report: ContextReport) -> None:
    serde = JsonPlusSerializer(allowed_msgpack_modules=True)
    kind, data = serde.dumps_typed(report)
    assert kind == "msgpack"
    assert len(data) < 100_000


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda report: pickle.loads(pickle.dumps(report))])
def test_a_copy_of_a_report_is_equal_and_has_no_candidates(report: ContextReport, copied: object) -> None:
    assert callable(copied)
    twin = copied(report)
    assert twin == report
    with pytest.raises(InputError, match="read from data"):
        twin.reallocate(500)
