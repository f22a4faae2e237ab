"""What a prompt quotes from everything that a user has said and given, and what it tells of it."""

import asyncio
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest
from langchain_core.documents import BaseDocumentCompressor, Document
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langgraph.store.base import IndexConfig, PutOp, SearchOp
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import AssembledContext, ContextPipeline, ContextReport, KnowledgeBase
from langchain_ctxbudget.budget import Reason, Status
from langchain_ctxbudget.errors import InvalidSettingsError
from tests.stores import Failing, embed, place_of

HERE = {"user_id": "ada", "conversation_id": "here"}
THERE = {"user_id": "ada", "conversation_id": "there"}
QUESTION = "Where did we leave the violet lantern?"
GUIDE = "The violet lantern burns for nine hours. Fill it with paraffin."
MEMORIES = [
    f"Owns the violet lantern number {number}, bought at the harbour market."
    for number in range(40)
]
INDEX: IndexConfig = {"dims": 64, "embed": embed}


def talk(exchanges: int) -> list[BaseMessage]:
    messages: list[BaseMessage] = []
    for number in range(exchanges):
        question = f"What about the garden in week {number}, and the fence?"
        answer = f"In week {number} we water it twice; the fence can wait."
        messages.append(HumanMessage(question, id=f"h{number}"))
        messages.append(AIMessage(answer, id=f"a{number}"))
    messages[4] = HumanMessage("I left the violet lantern beside the well.", id="well")
    return messages


def filled(
    store: Any, settings: dict[str, Any] | None = None, reranker: Any = None
) -> ContextPipeline:
    """Returns a pipeline whose user has two conversations, memories and a document."""
    usual = {"max_context_tokens": 1_500, "learn": False, "memories": MEMORIES}
    pipeline = ContextPipeline(
        {**usual, **(settings or {})},
        system_prompt="You help.",
        store=store,
        writer_id="w",
        reranker=reranker,
    )
    pipeline.add_messages(talk(100), **HERE)
    there = HumanMessage("The violet lantern hangs in the harbour office.", id="t")
    pipeline.add_messages([there], **THERE)
    guide = Document(GUIDE, metadata={"source": "lantern.md", "title": "Lanterns"})
    KnowledgeBase(store, user_id="ada").add([guide])
    return pipeline


def background_of(context: AssembledContext) -> str:
    return context.messages[-1].text


def shown(report: ContextReport) -> set[str]:
    """Returns the ids of the quotes that stand in the prompt."""
    return {item.id for item in report.layer("L5").items if item.status is not Status.OMITTED}


def sources_of(text: str) -> set[str]:
    marks = {
        "own": "beside the well",
        "conversations": "harbour office",
        "documents": "paraffin",
        "memories": "known about the user",
    }
    return {name for name, mark in marks.items() if mark in text}


# The prompt


@dataclass
class BothForms:
    """The same prompt, blocking and awaited."""

    blocking: AssembledContext
    awaited: AssembledContext


@pytest.fixture(scope="module", params=[None, INDEX], ids=["plain", "indexed"])
def both(request: pytest.FixtureRequest) -> BothForms:
    blocking = filled(InMemoryStore(index=request.param))
    awaited = filled(InMemoryStore(index=request.param))
    return BothForms(
        blocking.assemble(QUESTION, **HERE),
        asyncio.run(awaited.aassemble(QUESTION, **HERE)),
    )


@pytest.mark.slow
def test_a_prompt_quotes_from_everything_that_a_user_has(both: BothForms) -> None:
    sources = sources_of(background_of(both.blocking))
    assert sources == {"own", "conversations", "documents", "memories"}


@pytest.mark.slow
def test_a_prompt_with_all_sources_tells_of_no_failure(both: BothForms) -> None:
    assert both.blocking.report.failures == ()


def test_a_prompt_has_no_memory_twice(both: BothForms) -> None:
    text = "\n".join(message.text for message in both.blocking.messages)
    assert [memory for memory in MEMORIES if text.count(memory) > 1] == []


def test_an_awaited_prompt_has_the_same_messages(both: BothForms) -> None:
    assert both.awaited.messages == both.blocking.messages


def test_an_awaited_prompt_has_the_same_layers(both: BothForms) -> None:
    assert both.awaited.report.layers == both.blocking.report.layers


# The report


@pytest.fixture(scope="module")
def plain_report() -> ContextReport:
    return filled(InMemoryStore()).assemble(QUESTION, **HERE).report


def test_candidates_that_are_quoted_and_others_are_reported(plain_report: ContextReport) -> None:
    statuses = {item.status for item in plain_report.layer("L5").items}
    assert statuses >= {Status.INCLUDED, Status.OMITTED}


def test_every_candidate_has_its_scores(plain_report: ContextReport) -> None:
    items = plain_report.layer("L5").items
    assert [item.id for item in items if "priority" not in item.scores] == []


def test_a_message_that_is_quoted_whole_is_retrieved(plain_report: ContextReport) -> None:
    assert "well" in shown(plain_report)
    [part, *_] = [part for part in plain_report.coverage if part.first <= 5 <= part.last]
    assert part.state == "retrieved"


@pytest.fixture(scope="module")
def passage() -> AssembledContext:
    """A prompt with a passage of a long message, which is the first one."""
    long = "It rained. " * 900 + "The violet lantern is under the bridge. " + "We slept. " * 900
    pipeline = ContextPipeline({"max_context_tokens": 1_500, "sources": ()}, store=InMemoryStore())
    pipeline.add_messages([HumanMessage(long, id="long"), *talk(5)], **HERE)
    return pipeline.assemble(QUESTION, **HERE)


def test_a_passage_stands_between_dots(passage: AssembledContext) -> None:
    assert re.search(r"- #1 user: … .* …\n", background_of(passage))
    assert "under the bridge" in background_of(passage)


def test_a_passage_is_reported_as_shrunk(passage: AssembledContext) -> None:
    [item] = [item for item in passage.report.layer("L5").items if item.id == "long"]
    assert item.status is Status.SHRUNK


def test_the_message_of_a_passage_is_not_retrieved(passage: AssembledContext) -> None:
    assert passage.report.coverage[0].state != "retrieved"


# Identifiers that a message names


def lookups(identifier: str) -> list[BaseMessage]:
    """Returns exchanges in which an agent looked things up; each result has forty lines."""
    messages: list[BaseMessage] = []
    for number in range(16):
        name = identifier.format(number + 10)
        rest = "".join(f"slot_{line}: {number * line * 613 % 10_000}\n" for line in range(40))
        result = f"shelf: {7_000 + number}\nname: {name}\n{rest}"
        call = {"name": "look_up", "args": {"name": name}, "id": f"call-{number}"}
        messages += [
            HumanMessage(f"Is everything all right with {name}?"),
            AIMessage("", tool_calls=[call]),
            ToolMessage(result, tool_call_id=call["id"]),
            AIMessage(f"{name} is all right."),
        ]
    return messages


@pytest.mark.parametrize("identifier", ["service-{}", "ORD-44{}", "parts/bolt{}.json"])
def test_a_growing_prompt_gets_the_passage_about_an_identifier(identifier: str) -> None:
    """A whole result has no room behind a prompt that a cache holds."""
    said = lookups(identifier)
    pipeline = ContextPipeline({"max_context_tokens": 2_000}, store=InMemoryStore())
    pipeline.add_messages(said[:-4], **HERE)
    pipeline.assemble(said[-4:-3], **HERE)
    pipeline.add_messages(said[-4:], **HERE)

    question = f"Write down the shelf and the name of {identifier.format(13)}."
    prompt = pipeline.assemble(question, **HERE)

    assert prompt.report.stability.mode == "extended"
    assert "shelf: 7003" in "\n".join(message.text for message in prompt.messages)


def test_an_identifier_of_forty_messages_still_has_its_passage() -> None:
    said = lookups("service-{}")
    asked = "Is service-13 all right? Only the number of its restarts this time, the {}."
    for number in range(18):
        said += [HumanMessage(asked.format(number)), AIMessage(f"service-13: {number} restarts.")]
    pipeline = ContextPipeline({"max_context_tokens": 2_000}, store=InMemoryStore())
    pipeline.add_messages(said[:-2], **HERE)
    pipeline.assemble(said[-2:-1], **HERE)
    pipeline.add_messages(said[-2:], **HERE)

    prompt = pipeline.assemble("Write down the shelf and the name of service-13.", **HERE)

    assert "shelf: 7003" in "\n".join(message.text for message in prompt.messages)


# Documents that a message names


@dataclass
class NamedDocument:
    """A prompt for a question that names a document, and the prompt for a question after it."""

    prompt: AssembledContext
    later: AssembledContext


@pytest.fixture(scope="module")
def named() -> NamedDocument:
    pipeline = filled(InMemoryStore())
    prompt = pipeline.assemble("What does lantern.md say?", **HERE)
    read = [HumanMessage("Read lantern.md.", id="x"), AIMessage("I have.", id="y")]
    pipeline.add_messages(read, **HERE)
    return NamedDocument(prompt, pipeline.assemble("And now?", **HERE))


def test_a_document_that_is_named_stands_first(named: NamedDocument) -> None:
    items = named.prompt.report.layer("L5").items
    [first, *_] = [item for item in items if item.status is not Status.OMITTED]
    assert first.status is Status.INCLUDED
    assert first.reason is Reason.DETECTED


def test_a_document_that_is_named_stands_whole_and_once(named: NamedDocument) -> None:
    text = background_of(named.prompt)
    assert f"[document: Lanterns, lantern.md]\n- {GUIDE}\n" in text
    assert text.count("paraffin") == 1


def test_a_document_that_is_named_is_meant_for_a_few_messages(named: NamedDocument) -> None:
    assert GUIDE in background_of(named.later)


# What fails


def prompt_without_documents() -> AssembledContext:
    store = Failing()
    pipeline = filled(store)
    store.fails = lambda op: not isinstance(op, PutOp) and "documents" in place_of(op)
    return pipeline.assemble(QUESTION, **HERE)


def prompt_without_other_conversations() -> AssembledContext:
    store = Failing(index=INDEX)
    pipeline = filled(store)
    store.fails = lambda op: isinstance(op, SearchOp) and "lanes" in place_of(op)
    return pipeline.assemble(QUESTION, **HERE)


def test_where_documents_fail_the_prompt_goes_out_without_them() -> None:
    prompt = prompt_without_documents()
    assert sources_of(background_of(prompt)) == {"own", "conversations", "memories"}
    assert "documents not searched: OSError: the disk is gone" in prompt.report.failures


def test_where_other_conversations_fail_the_prompt_goes_out_without_them() -> None:
    prompt = prompt_without_other_conversations()
    assert sources_of(background_of(prompt)) == {"own", "documents", "memories"}
    failure = "other conversations not searched: OSError: the disk is gone"
    assert failure in prompt.report.failures


class Reversing(BaseDocumentCompressor):
    """A reranker that turns the order round, or fails."""

    fails: bool = False

    def compress_documents(self, documents: Any, query: str, callbacks: Any = None) -> Any:
        if self.fails:
            raise TimeoutError("too slow")
        return list(documents)[::-1]


def reranked(reranker: Reversing | None) -> AssembledContext:
    small = {"max_context_tokens": 400, "memories": []}
    return filled(InMemoryStore(), small, reranker).assemble(QUESTION, **HERE)


@pytest.fixture(scope="module")
def not_reranked() -> AssembledContext:
    return reranked(None)


@pytest.mark.slow
def test_a_reranker_has_a_say_in_what_is_quoted(not_reranked: AssembledContext) -> None:
    prompt = reranked(Reversing())
    assert shown(prompt.report) != shown(not_reranked.report)
    assert prompt.report.failures == ()


def test_a_reranker_that_fails_changes_nothing(not_reranked: AssembledContext) -> None:
    prompt = reranked(Reversing(fails=True))
    assert background_of(prompt) == background_of(not_reranked)
    assert prompt.report.failures == ("reranker Reversing: TimeoutError: too slow",)


# Emphasis


@pytest.fixture(scope="module")
def reports_by_emphasis() -> dict[str, ContextReport]:
    pipeline = filled(InMemoryStore())
    reports = {}
    for emphasis in ("recall", "balanced", "cache"):
        context = pipeline.assemble(QUESTION, settings={"emphasis": emphasis}, **HERE)
        reports[emphasis] = context.report
    return reports


def test_emphasis_on_the_cache_gives_the_history_more(
    reports_by_emphasis: dict[str, ContextReport],
) -> None:
    recall = reports_by_emphasis["recall"].layer("L6").allocated_tokens
    balanced = reports_by_emphasis["balanced"].layer("L6").allocated_tokens
    cache = reports_by_emphasis["cache"].layer("L6").allocated_tokens
    assert recall <= balanced <= cache
    assert recall < cache


def test_emphasis_on_recall_quotes_more(reports_by_emphasis: dict[str, ContextReport]) -> None:
    recall = reports_by_emphasis["recall"].layer("L5").used_tokens
    assert recall > reports_by_emphasis["cache"].layer("L5").used_tokens


# Limits and weights of retrieval


def report_with(**retrieval: Any) -> ContextReport:
    lantern = {"name": "violet lantern", "context": "An old lamp."}
    settings = {"retrieval": retrieval, "entities": [lantern], "memories": ()}
    return filled(InMemoryStore(), settings).assemble(QUESTION, **HERE).report


@pytest.fixture(scope="module")
def quotes_by_relevance() -> dict[float, int]:
    """How many texts are quoted, by the least relevance that they must have."""
    return {
        share: len(shown(report_with(min_relevance=share)))
        for share in (0.0, 0.005, 0.02, 0.2, 1.0)
    }


@pytest.mark.slow
def test_without_limits_more_than_three_texts_are_quoted(
    quotes_by_relevance: dict[float, int],
) -> None:
    assert len(shown(report_with())) == quotes_by_relevance[0.0]
    assert quotes_by_relevance[0.0] > 3


@pytest.mark.parametrize("most", [0, 2])
def test_no_more_items_are_quoted_than_are_allowed(most: int) -> None:
    assert len(shown(report_with(most_items=most))) == most


def test_of_three_candidates_at_most_three_are_quoted() -> None:
    assert len(shown(report_with(candidates=3))) <= 3


@pytest.mark.slow
def test_the_more_relevant_a_quote_must_be_the_fewer_there_are(
    quotes_by_relevance: dict[float, int],
) -> None:
    counts = list(quotes_by_relevance.values())
    assert counts == sorted(counts, reverse=True)
    assert counts[-1] == 0


def test_what_is_not_relevant_enough_leaves_room_for_the_history() -> None:
    assert Reason.NO_ROOM not in report_with(min_relevance=1).layer("L6").more_omitted


def test_a_weight_of_entities_boosts_what_names_one() -> None:
    items = report_with(entity_weight=1.0).layer("L5").items
    assert max(item.scores.get("boost", 0) for item in items) > 0


def test_a_relevance_over_one_is_refused() -> None:
    problem = r"retrieval.*min_relevance must be less than or equal to 1, not 3"
    with pytest.raises(InvalidSettingsError, match=problem):
        ContextPipeline({"retrieval": {"min_relevance": 3}})


# Questions about numbers, days and everything


@pytest.fixture(scope="module")
def items_chat() -> Any:
    """A conversation about 120 items, each of which has a code."""
    pipeline = ContextPipeline({"max_context_tokens": 1_500}, system_prompt="You help.")
    chat = pipeline.conversation("here", user_id="ada")
    for number in range(120):
        question = HumanMessage(f"Tell me about item {number}, code W{number * 13}")
        chat.add(question, AIMessage(f"Item {number} is red."))
    return chat


def items_shown(chat: Any, question: str) -> set[int]:
    numbers = re.findall(r"Item (\d+)", background_of(chat.assemble(question)))
    return {int(number) for number in numbers}


@pytest.mark.slow
def test_who_asks_for_one_number_is_not_shown_others(items_chat: Any) -> None:
    assert items_shown(items_chat, "Is item 12, code W156, red?") == {12}


@pytest.mark.slow
def test_who_asks_for_a_range_of_numbers_is_shown_all_of_it(items_chat: Any) -> None:
    numbers = items_shown(items_chat, "Are items 12 to 20 red?")
    assert numbers >= {12, 13, 14, 15, 16, 17, 18, 19, 20}


@pytest.mark.parametrize(
    "question", ["Which items after item 12 are red?", "Tell me 12 of my red items"]
)
def test_a_number_that_is_no_name_narrows_nothing(items_chat: Any, question: str) -> None:
    assert len(items_shown(items_chat, question)) > 12


THINGS = ("the garden", "the roof", "our boat", "the old shed", "the fence")


@pytest.fixture(
    scope="module", params=[0, pytest.param(4_200, marks=pytest.mark.slow)], ids=["short", "long"]
)
def diary(request: pytest.FixtureRequest) -> Any:
    """A conversation from 1 to 17 March, on the 18th, after so many other messages."""
    now = datetime(2026, 3, 18, 9, tzinfo=UTC)
    pipeline = ContextPipeline({"max_context_tokens": 700}, clock=lambda: now)
    chat = pipeline.conversation("here", user_id="ada")
    trains = [HumanMessage(f"Then came the train number {n}.") for n in range(request.param)]
    chat.add(*trains)
    for day in range(1, 18):
        about = {"created_at": f"2026-03-{day:02}T12:00:00Z"}
        for thing in THINGS:
            text = f"Today we looked {'very ' * day} closely at {thing}."
            chat.add(HumanMessage(text, additional_kwargs=about), AIMessage("Well done."))
    return chat


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("What did we do on 5 March?", {"05"}),
        ("What did we do from 4 to 6 March?", {"04", "05", "06"}),
        ("What did we do between Monday and Wednesday last week?", {"09", "10", "11"}),
        ("What happened yesterday?", {"17"}),
    ],
)
def test_who_asks_for_days_is_shown_them(diary: Any, question: str, expected: set[str]) -> None:
    days = re.findall(r"\[2026-03-(\d\d)\]", background_of(diary.assemble(question)))
    assert set(days) >= expected


@pytest.fixture(scope="module")
def about_the_well() -> AssembledContext:
    """A prompt for a question that one text answers, of a conversation about something else."""
    pipeline = ContextPipeline({"max_context_tokens": 1_500}, system_prompt="You help.")
    chat = pipeline.conversation("here", user_id="ada")
    well = HumanMessage("The violet lantern stands beside the well.")
    chat.add(well, AIMessage("Noted."))
    chat.add(*talk(100)[10:])
    return chat.assemble(QUESTION)


def test_a_text_that_stands_out_is_quoted(about_the_well: AssembledContext) -> None:
    assert "beside the well" in background_of(about_the_well)


def test_beside_a_text_that_stands_out_there_are_no_others(
    about_the_well: AssembledContext,
) -> None:
    assert about_the_well.report.layer("L5").used_tokens < 150


@pytest.fixture(scope="module")
def hundred_weeks() -> Any:
    pipeline = ContextPipeline({"max_context_tokens": 1_500}, system_prompt="You help.")
    chat = pipeline.conversation("c", user_id="ada")
    chat.add(*talk(100))
    return chat


def test_who_asks_for_everything_is_shown_most_parts_of_it(hundred_weeks: Any) -> None:
    context = hundred_weeks.assemble("Summarise everything we have talked about.")
    weeks = re.findall(r"week (\d+)", background_of(context))
    assert len({int(week) // 10 for week in weeks}) >= 8  # of 10


def test_a_least_relevance_does_not_hide_everything_from_such_a_question(
    hundred_weeks: Any,
) -> None:
    context = hundred_weeks.assemble(
        "Summarise all we have talked about.", settings={"retrieval": {"min_relevance": 0.5}}
    )
    assert len(shown(context.report)) > 10
