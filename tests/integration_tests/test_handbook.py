"""Documents in prompts and searches: twenty questions about a handbook of ten pages."""

from collections import Counter
from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_core.messages import AIMessage
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import (
    AssembledContext,
    BudgetedRetriever,
    ContextPipeline,
    ContextReport,
    KnowledgeBase,
)
from langchain_ctxbudget.budget import Status
from langchain_ctxbudget.report import ReportItem
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


def quotes(context: AssembledContext) -> list[ReportItem]:
    """The items of a prompt's report that stand in it."""
    items = context.report.layer("L5").items
    return [item for item in items if item.status is not Status.OMITTED]


def found(pipeline: ContextPipeline, question: str) -> list[Document]:
    """The chunks that a retriever finds, best first."""
    return BudgetedRetriever(pipeline=pipeline, user_id="ada", k=None).invoke(question)


def quoted(pipeline: ContextPipeline, question: str, most: int) -> set[str]:
    """The ids of the chunks of which a prompt quotes so many at most."""
    settings = {"retrieval": {"most_items": most}}
    context = pipeline.assemble(question, user_id="ada", conversation_id="c1", settings=settings)
    ids: set[str] = set()
    for item in quotes(context):
        ids.update(item.id.split(" + "))
    return ids


# Ranking


@pytest.mark.parametrize("most", [1, 3])
@pytest.mark.parametrize("question", ASKED)
def test_a_prompt_takes_what_a_retriever_finds_first(
    pipeline: ContextPipeline, question: str, most: int
) -> None:
    ids = quoted(pipeline, question, most)

    assert ids == {document.id for document in found(pipeline, question)[: len(ids)]}


@pytest.mark.slow
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


# Passages


LOCK = "The lock on the river is worked by hand."
LOCK_STEPS = [
    "First the lower gate is closed, and two people push it.",
    "Then the sluice of the lock is opened, a quarter at a time.",
    "When the lock is full, the upper gate opens by itself.",
    "The keeper of the lock writes down name and hour.",
]
LOCK_TEXT = " ".join([LOCK, *LOCK_STEPS])


def about_the_lock(text: str = LOCK_TEXT, source: str = "lock.md", **sizes: Any) -> ContextPipeline:
    """A pipeline with a page about a lock, in chunks of a sentence or two."""
    pipeline = ContextPipeline({"max_context_tokens": 2_000, "learn": False}, store=InMemoryStore())
    usual = {"chunk_tokens": 32, "chunk_overlap_tokens": 14}
    knowledge = KnowledgeBase(pipeline.store, user_id="ada", **{**usual, **sizes})
    page = {"source": source, "title": "River guide", "date": "2026-02-03"}
    knowledge.add(Document(text, metadata=page))
    others = "Soup is cooked on Mondays, bread is baked on Fridays. " * 4
    knowledge.add(Document(others, metadata={"source": "kitchen.md"}))
    return pipeline


def asked(pipeline: ContextPipeline, question: str, **settings: Any) -> AssembledContext:
    return pipeline.assemble(question, user_id="ada", conversation_id="c1", settings=settings)


QUESTION = "How do we work the gate, the sluice and the lock?"


@pytest.fixture(scope="module")
def passage() -> AssembledContext:
    """A prompt that quotes the whole page, which is in several chunks."""
    return asked(about_the_lock(), QUESTION)


def test_neighbouring_chunks_are_one_passage(passage: AssembledContext) -> None:
    [item] = quotes(passage)

    assert len(item.id.split(" + ")) > 2


@pytest.mark.parametrize("sentence", [LOCK, *LOCK_STEPS])
def test_what_chunks_repeat_stands_once_in_a_passage(
    passage: AssembledContext, sentence: str
) -> None:
    assert passage.messages[-1].text.count(sentence) == 1


def test_a_passage_reads_as_the_document_does(passage: AssembledContext) -> None:
    assert f"\n- {LOCK_TEXT}\n" in passage.messages[-1].text


def test_chunks_that_repeat_nothing_are_one_passage_too() -> None:
    text = asked(about_the_lock(chunk_overlap_tokens=0), QUESTION).messages[-1].text

    assert " ".join(text.split()).count(LOCK_TEXT) == 1


def test_a_passage_costs_less_than_its_chunks() -> None:
    pipeline = about_the_lock()
    chunks = BudgetedRetriever(pipeline=pipeline, user_id="ada", k=None).invoke(QUESTION)
    tokens = sum(chunk.metadata["tokens"] for chunk in chunks)

    [item] = quotes(asked(pipeline, QUESTION))

    assert item.tokens < tokens


def test_tokens_of_a_prompt_with_a_passage_add_up(passage: AssembledContext) -> None:
    report = passage.report
    used = sum(layer.used_tokens for layer in report.layers)

    assert used + sum(report.overhead_tokens.values()) == report.total_tokens


def test_chunks_of_a_passage_are_not_listed_as_left_out(passage: AssembledContext) -> None:
    counts = Counter[str]()
    for item in passage.report.layer("L5").items:
        counts.update(item.id.split(" + "))

    assert set(counts.values()) == {1}


def test_a_passage_is_not_quoted_again_in_the_next_prompt() -> None:
    pipeline = about_the_lock()
    first = asked(pipeline, QUESTION)
    pipeline.add_messages([*first.turn, AIMessage("Push it.")], user_id="ada", conversation_id="c1")

    second = asked(pipeline, "And who writes the name at the lock?")

    texts = "\n".join(message.text for message in second.messages)
    assert texts.count(LOCK_STEPS[3]) == 1


def test_chunks_with_others_between_them_are_two_passages() -> None:
    between = "Nobody knows why. " * 30
    pipeline = about_the_lock(f"{LOCK_STEPS[0]}\n\n{between}\n\n{LOCK_STEPS[1]}")

    context = asked(pipeline, QUESTION, retrieval={"most_items": 2})

    assert len(quotes(context)) == 2


# Code


def test_code_in_a_passage_stands_between_its_borders() -> None:
    code = "```python\nlock.open_sluice(quarter=1)\n\nlock.wait()\n```"
    pipeline = about_the_lock(f"{LOCK} {LOCK_STEPS[1]}\n\n{code}\n\n{LOCK_STEPS[2]}")

    text = asked(pipeline, "Which code opens the sluice of the lock?").messages[-1].text

    assert code.replace("\n", "\n ").replace("\n \n", "\n\n") in text


# Citing


def test_a_heading_has_title_source_number_and_date() -> None:
    pipeline = about_the_lock()

    context = asked(pipeline, QUESTION, retrieval={"most_items": 1})

    [item] = quotes(context)
    number = int(item.id.split("#")[1]) + 1
    heading = f"[document: River guide, lock.md #{number}, 2026-02-03]\n- "
    assert heading in context.messages[-1].text


def test_the_heading_of_a_passage_has_its_first_and_last_number(
    passage: AssembledContext,
) -> None:
    [item] = quotes(passage)
    last = len(item.id.split(" + "))

    assert f"[document: River guide, lock.md #1-{last}, 2026-02-03]\n" in passage.messages[-1].text


@pytest.mark.parametrize("field", ["title", "source", "number"])
def test_an_item_of_a_report_can_be_cited(passage: AssembledContext, field: str) -> None:
    [item] = quotes(passage)
    last = len(item.id.split(" + "))
    expected = {"title": "River guide", "source": "lock.md", "number": f"1-{last}"}

    assert getattr(item.citation, field) == expected[field]


def test_an_item_that_was_left_out_can_be_cited() -> None:
    context = asked(about_the_lock(), QUESTION, retrieval={"most_items": 1})

    items = context.report.layer("L5").items
    omitted = [item for item in items if item.status is Status.OMITTED]
    assert omitted[0].citation is not None
    assert omitted[0].citation.source == "lock.md"


def test_a_citation_outlives_the_report_as_json(passage: AssembledContext) -> None:
    report = ContextReport.from_dict(passage.report.to_dict())

    assert report.layer("L5").items == passage.report.layer("L5").items


def test_an_item_is_explained_with_its_citation(passage: AssembledContext) -> None:
    [item] = quotes(passage)

    assert "from River guide (lock.md) #1-" in passage.report.explain(item.id)


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("/home/ada/notes/lock.md", "River guide, lock.md"),
        ("C:\\notes\\lock.md", "River guide, lock.md"),
        ("https://river.example/lock", "River guide, https://river.example/lock"),
        ("River guide.txt", "River guide.txt"),
        ("lock [old].md", "River guide, lock (old).md"),
    ],
    ids=["path", "path of Windows", "address", "named as its title", "brackets"],
)
def test_a_source_stands_short_in_a_heading(source: str, names: str) -> None:
    context = asked(about_the_lock(source=source), QUESTION, retrieval={"most_items": 1})

    assert f"[document: {names} #" in context.messages[-1].text


def test_a_text_without_a_source_has_title_and_number() -> None:
    pipeline = ContextPipeline(store=InMemoryStore())
    KnowledgeBase(pipeline.store, user_id="ada").add(LOCK)

    text = asked(pipeline, "How is the lock worked?").messages[-1].text

    assert f"[document: {LOCK} #1]\n" in text


def test_a_chunk_of_a_page_has_its_page() -> None:
    pipeline = ContextPipeline(store=InMemoryStore())
    page = Document(LOCK, metadata={"source": "river.pdf", "title": "River", "page": 7})
    KnowledgeBase(pipeline.store, user_id="ada").add([page])

    text = asked(pipeline, "How is the lock worked?").messages[-1].text

    assert "[document: river.pdf #1, page 7]\n" in text
