"""What a prompt quotes from everything that a user has said, told and given.

Blocking and awaited.
"""

import asyncio
import re
from datetime import UTC, datetime
from itertools import product
from typing import Any

import pytest
from langchain_core.documents import BaseDocumentCompressor, Document
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langgraph.store.base import IndexConfig, PutOp, SearchOp
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import ContextPipeline, ContextReport, KnowledgeBase
from langchain_ctxbudget.budget import Reason, Status
from langchain_ctxbudget.errors import InvalidSettingsError
from tests.integration_tests.conftest import Call
from tests.stores import Failing, embed, place_of

HERE = {"user_id": "ada", "conversation_id": "here"}
THERE = {"user_id": "ada", "conversation_id": "there"}
QUESTION = "Where did we leave the violet lantern?"
TOLD_THERE = "The violet lantern hangs in the harbour office."
GUIDE = "The violet lantern burns for nine hours. Fill it with paraffin."
MEMORIES = [
    f"Owns the violet lantern number {number}, bought at the harbour market."
    for number in range(40)
]
INDEX: IndexConfig = {"dims": 64, "embed": embed}


def talk(exchanges: int) -> list[BaseMessage]:
    messages: list[BaseMessage] = []
    for number in range(exchanges):
        messages.append(
            HumanMessage(f"What about the garden in week {number}, and the fence?", id=f"h{number}")
        )
        messages.append(
            AIMessage(f"In week {number} we water it twice; the fence can wait.", id=f"a{number}")
        )
    messages[4] = HumanMessage("I left the violet lantern beside the well.", id="well")
    return messages


def filled(store: Any, **changes: Any) -> ContextPipeline:
    settings = {
        "max_context_tokens": 1_500,
        "learn": False,
        "memories": MEMORIES,
        **changes.pop("settings", {}),
    }
    pipeline = ContextPipeline(
        settings, system_prompt="You help.", store=store, writer_id="w", **changes
    )
    pipeline.add_messages(talk(100), **HERE)
    pipeline.add_messages([HumanMessage(TOLD_THERE, id="t")], **THERE)
    KnowledgeBase(store, user_id="ada").add(
        [Document(GUIDE, metadata={"source": "lantern.md", "title": "Lanterns"})]
    )
    return pipeline


def ask(
    call: Call, pipeline: ContextPipeline, question: str = QUESTION, **more: Any
) -> tuple[str, ContextReport]:
    context = call(pipeline, "assemble", question, **HERE, **more)
    return context.messages[-1].text, context.report


def shown(report: ContextReport) -> set[str]:
    return {item.id for item in report.layer("L5").items if item.status is not Status.OMITTED}


def sources_of(text: str) -> set[str]:
    marks = {
        "own": "beside the well",
        "conversations": "harbour office",
        "documents": "paraffin",
        "memories": "known about the user",
    }
    return {name for name, mark in marks.items() if mark in text}


@pytest.mark.parametrize("index", [None, INDEX], ids=["plain", "indexed"])
def test_a_prompt_quotes_from_everything_that_a_user_has_blocking_and_awaited(
    index: IndexConfig | None,
) -> None:
    context = filled(InMemoryStore(index=index)).assemble(QUESTION, **HERE)
    assert sources_of(context.messages[-1].text) == {
        "own",
        "conversations",
        "documents",
        "memories",
    }
    assert context.report.failures == ()
    text = "\n".join(message.text for message in context.messages)
    assert all(text.count(memory) <= 1 for memory in MEMORIES)
    awaited = asyncio.run(filled(InMemoryStore(index=index)).aassemble(QUESTION, **HERE))
    assert context.messages == awaited.messages
    assert context.report.layers == awaited.report.layers


# The report


def test_every_candidate_has_its_scores_and_a_message_that_is_quoted_whole_is_retrieved(
    call: Call,
) -> None:
    _, report = ask(call, filled(InMemoryStore()))
    items = report.layer("L5").items
    assert {item.status for item in items} >= {Status.INCLUDED, Status.OMITTED}
    assert all("priority" in item.scores for item in items)
    assert "well" in shown(report)
    assert (
        next(part.state for part in report.coverage if part.first <= 5 <= part.last) == "retrieved"
    )


def test_a_passage_is_shrunk_and_its_message_is_not_retrieved(call: Call) -> None:
    long = "It rained. " * 900 + "The violet lantern is under the bridge. " + "We slept. " * 900
    pipeline = ContextPipeline({"max_context_tokens": 1_500, "sources": ()}, store=InMemoryStore())
    pipeline.add_messages([HumanMessage(long, id="long"), *talk(5)], **HERE)
    text, report = ask(call, pipeline)
    [item] = [item for item in report.layer("L5").items if item.id == "long"]
    assert re.search(r"- #1 user: … .* …\n", text)
    assert "under the bridge" in text
    assert item.status is Status.SHRUNK
    assert report.coverage[0].state != "retrieved"


# Documents that a message names


def test_a_document_that_is_named_stands_first_and_whole_and_is_meant_for_a_few_messages(
    call: Call,
) -> None:
    pipeline = filled(InMemoryStore())
    text, report = ask(call, pipeline, "What does lantern.md say?")
    first = next(item for item in report.layer("L5").items if item.status is not Status.OMITTED)
    assert (first.status, first.reason) == (Status.INCLUDED, Reason.DETECTED)
    assert f"[document: Lanterns]\n- {GUIDE}\n" in text
    assert text.count("paraffin") == 1
    pipeline.add_messages(
        [HumanMessage("Read lantern.md.", id="x"), AIMessage("I have.", id="y")], **HERE
    )
    assert GUIDE in ask(call, pipeline, "And now?")[0]


# What fails


@pytest.mark.parametrize(
    ("index", "broken", "gone", "told"),
    [
        (None, "documents", "documents", "documents not searched: OSError: the disk is gone"),
        (
            INDEX,
            "lanes",
            "conversations",
            "other conversations not searched: OSError: the disk is gone",
        ),
    ],
    ids=["documents", "conversations"],
)
def test_where_a_source_fails_the_prompt_goes_out_without_it(
    call: Call, index: IndexConfig | None, broken: str, gone: str, told: str
) -> None:
    store = Failing(index=index)
    pipeline = filled(store)
    if broken == "lanes":
        store.fails = lambda op: isinstance(op, SearchOp) and broken in place_of(op)
    else:
        store.fails = lambda op: not isinstance(op, PutOp) and broken in place_of(op)
    text, report = ask(call, pipeline)
    assert sources_of(text) == {"own", "conversations", "documents", "memories"} - {gone}
    assert told in report.failures


class Reversing(BaseDocumentCompressor):
    fails: bool = False

    def compress_documents(self, documents: Any, query: str, callbacks: Any = None) -> Any:
        if self.fails:
            raise TimeoutError("too slow")
        return list(documents)[::-1]


def test_a_reranker_has_a_say_in_what_is_quoted_and_one_that_fails_changes_nothing(
    call: Call,
) -> None:
    small = {"max_context_tokens": 400, "memories": []}
    text, plain = ask(call, filled(InMemoryStore(), settings=small))
    _, reranked = ask(call, filled(InMemoryStore(), settings=small, reranker=Reversing()))
    assert shown(plain) != shown(reranked)
    assert reranked.failures == ()
    same, report = ask(
        call, filled(InMemoryStore(), settings=small, reranker=Reversing(fails=True))
    )
    assert same == text
    assert report.failures == ("reranker Reversing: TimeoutError: too slow",)


# Emphasis


def test_the_emphasis_divides_between_history_and_what_is_quoted(call: Call) -> None:
    pipeline = filled(InMemoryStore())
    recall, balanced, cache = (
        ask(call, pipeline, settings={"emphasis": emphasis})[1]
        for emphasis in ("recall", "balanced", "cache")
    )
    history = [report.layer("L6").allocated_tokens for report in (recall, balanced, cache)]
    assert history == sorted(history)
    assert history[0] < history[-1]
    assert recall.layer("L5").used_tokens > cache.layer("L5").used_tokens


# Another budget


def test_limits_and_weights_of_retrieval_change_what_a_prompt_quotes(call: Call) -> None:
    """Settings of seed 004's RAG."""

    def of(**retrieval: Any) -> ContextReport:
        lantern = {"name": "violet lantern", "context": "An old lamp."}
        settings = {"retrieval": retrieval, "entities": [lantern], "memories": ()}
        return ask(call, filled(InMemoryStore(), settings=settings))[1]

    plain = shown(of())
    assert len(plain) > 3
    assert len(shown(of(most_items=2))) == 2
    assert len(shown(of(candidates=3))) <= 3
    assert shown(of(most_items=0)) == set()
    least = [len(shown(of(min_relevance=share))) for share in (0.0, 0.005, 0.02, 0.2, 1.0)]
    assert (least[0], least[-1], least) == (len(plain), 0, sorted(least, reverse=True))
    assert Reason.NO_ROOM not in of(min_relevance=1).layer("L6").more_omitted
    boosts = [
        item.scores["boost"]
        for item in of(entity_weight=1.0).layer("L5").items
        if "boost" in item.scores
    ]
    assert max(boosts) > 0
    with pytest.raises(
        InvalidSettingsError,
        match=r"retrieval.*min_relevance must be less than or equal to 1, not 3",
    ):
        ContextPipeline({"retrieval": {"min_relevance": 3}})


def test_who_asks_for_one_number_is_not_told_of_the_others() -> None:
    pipeline = ContextPipeline({"max_context_tokens": 1_500}, system_prompt="You help.")
    chat = pipeline.conversation("here", user_id="ada")
    for number in range(120):
        chat.add(
            HumanMessage(f"Tell me about item {number}, code W{number * 13}"),
            AIMessage(f"Item {number} is red."),
        )

    def told(question: str) -> set[int]:
        return set(map(int, re.findall(r"Item (\d+)", chat.assemble(question).messages[-1].text)))

    assert told("Is item 12, code W156, red?") == {12}
    assert told("Are items 12 to 20 red?") >= {*range(12, 21)}
    others = "Which items after item 12 are red?", "Name 12 items that are red"
    assert min(len(told(question)) for question in others) > 12


@pytest.mark.parametrize("others", [0, 4_200])
def test_who_asks_for_a_day_or_the_days_between_two_is_told_of_them(others: int) -> None:
    pipeline = ContextPipeline(
        {"max_context_tokens": 700}, clock=lambda: datetime(2026, 3, 18, 9, tzinfo=UTC)
    )
    chat = pipeline.conversation("here", user_id="ada")
    chat.add(*(HumanMessage(f"Then came the train number {number}.") for number in range(others)))
    for day, thing in product(
        range(1, 18), ("the garden", "the roof", "our boat", "the old shed", "the fence")
    ):
        said = f"Today we looked {'very ' * day} closely at {thing}."
        when = f"2026-03-{day:02}T12:00:00Z"
        chat.add(
            HumanMessage(said, additional_kwargs={"created_at": when}), AIMessage("Well done.")
        )
    for question, first, last in (
        ("What did we do on 5 March?", 5, 5),
        ("What did we do from 4 to 6 March?", 4, 6),
        ("What did we do between Monday and Wednesday last week?", 9, 11),
        ("What happened yesterday?", 17, 17),
    ):
        days = re.findall(r"\[2026-03-(\d\d)\]", chat.assemble(question).messages[-1].text)
        assert {*range(first, last + 1)} <= {*map(int, days)}, question


def test_where_one_text_stands_out_the_room_is_not_filled_with_others() -> None:
    pipeline = ContextPipeline({"max_context_tokens": 1_500}, system_prompt="You help.")
    chat = pipeline.conversation("here", user_id="ada")
    chat.add(HumanMessage("The violet lantern stands beside the well."), AIMessage("Noted."))
    chat.add(*talk(100)[10:])
    context = chat.assemble(QUESTION)
    assert "beside the well" in context.messages[-1].text
    assert context.report.layer("L5").used_tokens < 150


def test_who_asks_for_everything_is_told_of_most_parts_of_the_conversation() -> None:
    chat = ContextPipeline({"max_context_tokens": 1_500}, system_prompt="You help.").conversation(
        "c", user_id="ada"
    )
    chat.add(*talk(100))
    text = chat.assemble("Summarise everything we have talked about.").messages[-1].text
    parts = {int(number) // 10 for number in re.findall(r"week (\d+)", text)}
    assert len(parts) >= 8  # of 10
    least = {"retrieval": {"min_relevance": 0.5}}
    assert (
        len(shown(chat.assemble("Summarise all we have talked about.", settings=least).report)) > 10
    )
