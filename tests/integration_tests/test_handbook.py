"""Documents in prompts and searches: twenty questions about a handbook of ten pages."""

from collections import Counter

import pytest
from langchain_core.documents import Document
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import BudgetedRetriever, ContextPipeline, KnowledgeBase
from langchain_ctxbudget.budget import Status
from tests.handbook import PAGES, QUESTIONS

ASKED = [question for question, _ in QUESTIONS]


@pytest.fixture(scope="module")
def pipeline() -> ContextPipeline:
    """A pipeline whose user has the handbook."""
    pipeline = ContextPipeline({"max_context_tokens": 4_000, "learn": False}, store=InMemoryStore())
    knowledge = KnowledgeBase(pipeline.store, user_id="ada")
    for source, text in PAGES.items():
        knowledge.add(Document(text, metadata={"source": source}))
    return pipeline


def found(pipeline: ContextPipeline, question: str) -> list[Document]:
    """The chunks that a retriever finds, best first."""
    return BudgetedRetriever(pipeline=pipeline, user_id="ada", k=None).invoke(question)


def quoted(pipeline: ContextPipeline, question: str, most: int) -> set[str]:
    """The ids of the chunks of which a prompt quotes so many at most."""
    settings = {"retrieval": {"most_items": most}}
    context = pipeline.assemble(question, user_id="ada", conversation_id="c1", settings=settings)
    items = context.report.layer("L5").items
    return {item.id for item in items if item.status is not Status.OMITTED}


# Ranking


@pytest.mark.parametrize("most", [1, 3])
@pytest.mark.parametrize("question", ASKED)
def test_a_prompt_takes_what_a_retriever_finds_first(
    pipeline: ContextPipeline, question: str, most: int
) -> None:
    ids = quoted(pipeline, question, most)

    assert ids == {document.id for document in found(pipeline, question)[: len(ids)]}


def test_a_prompt_quotes_something_for_every_question(pipeline: ContextPipeline) -> None:
    assert [question for question in ASKED if not quoted(pipeline, question, 1)] == []


def test_the_chunk_that_answers_is_found_first_for_seventeen_of_twenty(
    pipeline: ContextPipeline,
) -> None:
    places = Counter[int]()
    for question, phrase in QUESTIONS:
        texts = [document.page_content for document in found(pipeline, question)]
        places[next(place for place, text in enumerate(texts, 1) if phrase in text)] += 1

    assert places == {1: 17, 2: 2, 5: 1}
