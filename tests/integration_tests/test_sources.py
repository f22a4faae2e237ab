"""Prompts, retrievers and reading ahead search the places that one method names."""

from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import Mock

import pytest
from langchain_core.messages import HumanMessage

from langchain_ctxbudget import BudgetedRetriever, ContextPipeline
from langchain_ctxbudget.stores import Scope

IDS: dict[str, Any] = {"user_id": "ada", "conversation_id": "c1"}


@pytest.fixture
def pipeline() -> Iterator[ContextPipeline]:
    with ContextPipeline({"learn": False}) as pipeline:
        pipeline.add_messages([HumanMessage("My bike is blue.")], **IDS)
        yield pipeline


def make_prompt(pipeline: ContextPipeline) -> None:
    pipeline.assemble("Which colour has my bike?", **IDS)


def invoke_retriever(pipeline: ContextPipeline) -> None:
    BudgetedRetriever(pipeline=pipeline, **IDS).invoke("Which colour has my bike?")


def read_ahead(pipeline: ContextPipeline) -> None:
    pipeline.engine.workspace.read_ahead(Scope(**IDS), "bike")
    pipeline.flush()


@pytest.mark.parametrize("search", [make_prompt, invoke_retriever, read_ahead])
def test_every_search_looks_where_the_workspace_says(
    search: Callable[[ContextPipeline], None],
    pipeline: ContextPipeline,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    workspace = pipeline.engine.workspace
    sources = Mock(wraps=workspace.sources)
    monkeypatch.setattr(workspace, "sources", sources)

    search(pipeline)

    [call] = sources.call_args_list
    assert call.args[0] == "ada"
    assert call.kwargs["without_conversation"] == "c1"


def test_who_searches_no_conversations_leaves_them_closed(pipeline: ContextPipeline) -> None:
    sources = pipeline.engine.workspace.sources("ada", ["documents"], without_conversation=None)
    assert sources.others.room == 0
    assert sources.others is not pipeline.engine.workspace.libraries.of("ada")
