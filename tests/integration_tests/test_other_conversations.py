"""What a user said in other conversations.

All of it is found, stands apart with its day, and gives way to this one.
"""

import asyncio
import random
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langgraph.store.base import BaseStore
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import (
    AssembledContext,
    BudgetedRetriever,
    ChromaStore,
    ContextPipeline,
)
from langchain_ctxbudget.budget import Reason
from langchain_ctxbudget.history import elsewhere, other_listing, other_search
from langchain_ctxbudget.stores import TITLE, Scope
from tests.cases import few_are_quick
from tests.conversations import BagOfWords

SETTINGS: dict[str, Any] = {"learn": False, "max_context_tokens": 4_000}
QUESTION = "Which colour is my bike?"
FACT = "The code of my locker at the station is 4711."
LOCKER = "What is the code of my locker?"
WORDS = [
    "Paris",
    "invoice",
    "Alice",
    "Monday",
    "garden",
    "market",
    "server",
    "costs",
    "meeting",
    "alpha",
    "train",
    "lunch",
    "report",
    "window",
    "kitchen",
]


def at(conversation: str, user: str = "ada") -> dict[str, str]:
    return {"user_id": user, "conversation_id": conversation}


def new(store: BaseStore | None = None, **options: Any) -> ContextPipeline:
    return ContextPipeline(SETTINGS, store=store, system_prompt="You are helpful.", **options)


def say(pipeline: ContextPipeline, conversation: str, *texts: str, day: str | None = None) -> None:
    """Adds what the user says, each with an answer."""
    created: dict[str, Any] = {"created_at": f"{day}T09:00:00+00:00"} if day else {}
    for text in texts:
        exchange = [HumanMessage(text, additional_kwargs=created), AIMessage("Noted.")]
        pipeline.add_messages(exchange, **at(conversation))


def last_message(
    pipeline: ContextPipeline, question: str, conversation: str = "now", **settings: Any
) -> str:
    """Returns the last message of a prompt: the background, and the question."""
    context = pipeline.assemble(question, settings=settings or None, **at(conversation))
    assert not context.report.failures
    return context.messages[-1].text


def quote_of(text: str, words: str) -> str | None:
    """Returns the quote that has some words; nothing where none has."""
    for line in text.splitlines():
        if line.startswith("- ") and words in line:
            return line
    return None


def check_superseded(text: str, words: str, mark: str) -> None:
    """What was said before is not quoted, or is marked."""
    quote = quote_of(text, words)
    assert quote is None or mark in quote


def chatter(number: int, seed: int = 0) -> list[BaseMessage]:
    """Returns so many messages about nothing in particular."""
    rng = random.Random(seed)
    messages: list[BaseMessage] = []
    for _ in range(number // 2):
        text = " ".join(rng.choices(WORDS, k=12)) + "."
        messages += [HumanMessage(text), AIMessage("Noted.")]
    return messages


HERE = "(superseded in this conversation: "


# What this conversation says wins


@pytest.mark.parametrize(
    ("before", "now", "question"),
    [
        ("My bike is red.", "My bike is blue.", QUESTION),
        ("My bike is red.", "I painted my bike blue.", QUESTION),
        ("My bike is red.", "By the way, my bike is blue now.", QUESTION),
        ("The colour of my bike is red.", "My bike is dark blue.", QUESTION),
        ("I live in Lisbon.", "I live in Porto.", "Where do I live?"),
        ("I work for Acme.", "I work at Siemens now.", "Where do I work?"),
        ("The deadline is on Monday.", "The deadline is on Friday.", "When is the deadline?"),
        ("My budget is 400 euros.", "My budget is 600 euros.", "How large is my budget?"),
        ("My dog is called Rex.", "My dog is called Bella.", "What is my dog called?"),
    ],
)
def test_what_this_conversation_says_outweighs_another_one(
    before: str, now: str, question: str
) -> None:
    pipeline = new()
    say(pipeline, "old", before)
    say(pipeline, "now", now)

    check_superseded(last_message(pipeline, question), before, HERE)


def test_a_marked_statement_has_its_reason_in_the_report() -> None:
    pipeline = new()
    say(pipeline, "old", "My bike is red.")
    say(pipeline, "now", "My bike is blue.")
    report = pipeline.assemble(QUESTION, **at("now")).report

    [item] = [item for item in report.layer("L5").items if "bike is red" in item.preview]
    assert item.reason is Reason.SUPERSEDED


@pytest.mark.slow
def test_this_conversation_wins_from_far_behind_its_cut() -> None:
    pipeline = new()
    say(pipeline, "old", "My bike is red.")
    say(pipeline, "now", "My bike is blue.")
    pipeline.add_messages(chatter(600), **at("now"))

    text = last_message(pipeline, QUESTION)
    check_superseded(text, "My bike is red.", "superseded in this conversation")


@pytest.mark.slow
def test_this_conversation_wins_over_the_middle_of_a_long_one() -> None:
    pipeline = new()
    messages = chatter(1_000)
    messages[500] = HumanMessage("My bike is red.")
    pipeline.add_messages(messages, **at("old"))
    say(pipeline, "now", "My bike is blue.")

    check_superseded(last_message(pipeline, QUESTION), "My bike is red.", HERE)


def test_a_statement_repeated_here_is_not_marked() -> None:
    pipeline = new()
    say(pipeline, "old", "My bike is red, and it is fast.")
    say(pipeline, "now", "My bike is blue.", "My bike is red.")

    quote = quote_of(last_message(pipeline, "How fast is my bike?"), "it is fast")
    assert quote is None or "superseded" not in quote


@pytest.mark.parametrize(
    ("old_day", "mid_day"),
    [("2026-01-05", "2026-03-05"), (None, None)],
    ids=["by their days", "as stored"],
)
def test_a_newer_conversation_outweighs_an_older_one(
    old_day: str | None, mid_day: str | None
) -> None:
    pipeline = new()
    say(pipeline, "old", "My bike is red.", day=old_day)
    say(pipeline, "mid", "My bike is blue.", day=mid_day)
    say(pipeline, "old", "The train was late.", day=old_day)
    say(pipeline, "now", "Hello.")
    text = last_message(pipeline, QUESTION)

    newer = quote_of(text, "My bike is blue.")
    assert newer is None or "superseded" not in newer
    check_superseded(text, "My bike is red.", "(superseded on ")


@pytest.mark.parametrize(
    ("before", "now", "question"),
    [
        ("My bike is red.", "My car is blue.", QUESTION),
        ("My bike is red.", "My bike is broken.", QUESTION),
        ("My bike is red.", "Is my bike blue?", QUESTION),
        ("My bike is red.", "I wish my bike was blue.", QUESTION),
        ("I live in Lisbon.", "I work at Siemens.", "Where do I live?"),
        ("The meeting is on Monday.", "The deadline is on Friday.", "When is the meeting?"),
    ],
)
def test_what_has_another_subject_is_quoted_unmarked(before: str, now: str, question: str) -> None:
    pipeline = new()
    say(pipeline, "old", before)
    say(pipeline, "now", now)

    assert quote_of(last_message(pipeline, question), before) == f"- user: {before}"


# Days and headings


def test_a_quote_stands_under_the_day_of_its_message() -> None:
    pipeline = new()
    say(pipeline, "old", "My bike is red.", day="2026-01-05")
    say(pipeline, "now", "Hello.")
    assert "[2026-01-05, in another conversation]\n- user: My bike is red." in last_message(
        pipeline, QUESTION
    )


@pytest.mark.parametrize("length", few_are_quick([2, 700]), ids=["from the log", "from a segment"])
def test_a_message_without_a_day_has_the_one_on_which_it_was_stored(
    tmp_path: Path, length: int
) -> None:
    def clock() -> datetime:
        return datetime(2025, 7, 14, 12, tzinfo=UTC)

    with ChromaStore(tmp_path / "store", clock=clock) as store:
        pipeline = new(store)
        say(pipeline, "old", FACT)
        pipeline.add_messages(chatter(length), **at("old"))
        pipeline.assemble("Hello.", **at("old"))
        pipeline.flush()
        say(pipeline, "now", "Hello.", day="2026-01-01")
        assert f"[2025-07-14, in another conversation]\n- user: {FACT}" in last_message(
            pipeline, LOCKER
        )


def test_a_heading_names_the_title_of_a_conversation() -> None:
    store = InMemoryStore()
    pipeline = new(store)
    say(pipeline, "old", "My bike is red.", day="2026-01-05")
    place = Scope("ada", "old").place(TITLE)
    store.put(place.namespace, place.key, {"text": "Bikes [and\nmore]"})
    say(pipeline, "now", "Hello.")
    heading = "[2026-01-05, in another conversation: Bikes (and more)]"
    assert f"{heading}\n- user: My bike is red." in last_message(pipeline, QUESTION)


def test_each_conversation_has_a_heading_of_its_own() -> None:
    pipeline = new()
    say(pipeline, "one", "My bike is at the station.", day="2026-01-05")
    say(pipeline, "two", "My bike has a new bell.", day="2026-01-05")
    say(pipeline, "now", "Hello.")
    text = last_message(pipeline, "What do you know about my bike?")
    headings = [line for line in text.splitlines() if line.startswith("[2026")]
    assert sorted(headings) == [
        "[2026-01-05, in another conversation (2)]",
        "[2026-01-05, in another conversation]",
    ]


# All of it is searched


def fill(pipeline: ContextPipeline, lengths: Sequence[int]) -> None:
    """Makes conversations of these lengths, with a fact at the beginning of the first one."""
    for number, length in enumerate(lengths):
        messages = chatter(length, number)
        if number == 0:
            messages[4] = HumanMessage(FACT)
        pipeline.add_messages(messages, **at(f"c{number}"))
    say(pipeline, "now", "Hello.")


@pytest.fixture(params=["private", "memory", "folder"])
def any_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BaseStore | None]:
    if request.param == "folder":
        with ChromaStore(tmp_path) as store:
            yield store
    elif request.param == "memory":
        yield InMemoryStore()
    else:
        yield None


@pytest.mark.parametrize(
    "lengths",
    [(1_000,), pytest.param((800, 800, 800, 800), marks=pytest.mark.slow)],
    ids=["one", "several"],
)
def test_a_fact_of_long_ago_is_found_in_other_conversations(
    any_store: BaseStore | None, lengths: Sequence[int]
) -> None:
    pipeline = new(any_store)
    fill(pipeline, lengths)

    text = last_message(pipeline, LOCKER)

    assert FACT in text
    assert "Noted." not in text


def test_a_fact_is_found_after_a_restart(tmp_path: Path) -> None:
    with ChromaStore(tmp_path) as store:
        pipeline = new(store)
        fill(pipeline, (1_000, 300))
        before = last_message(pipeline, LOCKER)
        pipeline.flush()
        pipeline.close()
    with ChromaStore(tmp_path) as store:
        assert last_message(new(store), LOCKER) == before


@pytest.mark.slow
def test_a_fact_is_found_by_an_async_prompt() -> None:
    pipeline = new()
    fill(pipeline, (1_000,))
    assert FACT in asyncio.run(pipeline.aassemble(LOCKER, **at("now"))).messages[-1].text


@pytest.mark.slow
def test_a_fact_is_found_by_the_retriever() -> None:
    pipeline = new()
    fill(pipeline, (1_000,))

    documents = BudgetedRetriever(pipeline=pipeline, user_id="ada").invoke(LOCKER)

    assert documents[0].page_content == FACT


def test_no_other_user_is_told() -> None:
    pipeline = new()
    fill(pipeline, (400,))
    prompt = pipeline.assemble(LOCKER, **at("now", "bob"))
    assert "4711" not in prompt.messages[-1].text


@pytest.fixture(scope="module", params=[False, True], ids=["from the log", "from segments"])
def pipeline_with_three(request: pytest.FixtureRequest) -> ContextPipeline:
    """A pipeline with three other conversations, of which segments are written or not yet."""
    pipeline = new(InMemoryStore())
    fill(pipeline, (700, 300, 120))
    if request.param:
        for number in range(3):
            pipeline.assemble("Hello.", **at(f"c{number}"))
        pipeline.flush()
    return pipeline


@pytest.mark.slow
@pytest.mark.parametrize(
    "question",
    [LOCKER, "What did Alice say about the garden?", "When was the meeting with the invoice?"],
    ids=["a fact", "a person", "words"],
)
def test_two_pipelines_make_the_same_prompt(
    pipeline_with_three: ContextPipeline, question: str
) -> None:
    text = last_message(pipeline_with_three, question)

    assert last_message(new(pipeline_with_three.store), question) == text


@pytest.mark.slow
def test_a_prompt_after_the_first_embeds_nothing_again() -> None:
    embeddings = BagOfWords()
    pipeline = new(embeddings=embeddings)
    fill(pipeline, (600,))
    last_message(pipeline, LOCKER)
    embeddings.asked.clear()
    last_message(pipeline, LOCKER)
    assert embeddings.asked == []


def prompt_of_too_many(monkeypatch: pytest.MonkeyPatch, *lengths: int) -> AssembledContext:
    """A prompt where no more than 500 messages of other conversations are searched."""
    monkeypatch.setattr(elsewhere, "MOST_SEARCHED", 500)
    pipeline = new()
    fill(pipeline, lengths)
    return pipeline.assemble(LOCKER, **at("now"))


@pytest.mark.slow
def test_that_there_are_too_many_messages_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    report = prompt_of_too_many(monkeypatch, 400, 400).report

    assert report.failures == (
        "other conversations: 400 messages were searched, and 400 of too long or too old ones not",
    )


@pytest.mark.slow
def test_a_long_conversation_does_not_keep_out_a_short_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The fact is in the first of them."""
    prompt = prompt_of_too_many(monkeypatch, 100, 450, 100)

    assert FACT in prompt.messages[-1].text


@pytest.mark.slow
def test_the_newest_conversation_is_searched_however_long_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    prompt = prompt_of_too_many(monkeypatch, 700)

    assert FACT in prompt.messages[-1].text


@pytest.mark.parametrize("page", [3, 8, 1_024])
def test_of_many_conversations_each_is_listed(monkeypatch: pytest.MonkeyPatch, page: int) -> None:
    monkeypatch.setattr(other_listing, "PAGE", page)
    pipeline = new(InMemoryStore())
    for number in range(10):
        say(pipeline, f"c{number}", f"In week {number} I rested.")
    say(pipeline, "last", FACT)

    assert FACT in last_message(pipeline, LOCKER)


@pytest.mark.slow
def test_what_is_not_embedded_yet_is_found_by_its_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(other_search, "MOST_EMBEDDED", 100)
    pipeline = new()
    fill(pipeline, (900, 900))

    assert FACT in last_message(pipeline, LOCKER)


@pytest.mark.slow
@pytest.mark.parametrize(
    "question",
    few_are_quick(
        ["Who wrote Hamlet?", "ok thanks!", "How do I boil an egg?", "What is 17 times 23?"], 2
    ),
)
def test_nothing_is_quoted_where_nothing_has_to_do_with_the_message(question: str) -> None:
    pipeline = new()
    fill(pipeline, (600, 600))
    assert last_message(pipeline, question) == question


# What is said later


@pytest.mark.slow
def test_what_is_said_elsewhere_meanwhile_is_found() -> None:
    store = InMemoryStore()
    pipeline = new(store)
    other = new(store)
    fill(pipeline, (400,))
    assert "repair shop" not in last_message(pipeline, "Where is my violin?")
    say(other, "c0", "My violin is at the repair shop.")
    assert "repair shop" in last_message(pipeline, "Where is my violin?")


TAKING_BACK: dict[str, Callable[[ContextPipeline], object]] = {
    "edit": lambda pipeline: pipeline.edit_message("violin", HumanMessage("It rains."), **at("c0")),
    "remove": lambda pipeline: pipeline.remove_messages(
        ["violin"], on_removal="forget", **at("c0")
    ),
    "clear": lambda pipeline: pipeline.clear(**at("c0")),
    "pin": lambda pipeline: pipeline.pin(["violin"], preservation="drop", **at("c0")),
}


@pytest.mark.slow
@pytest.mark.parametrize("take_back", few_are_quick(TAKING_BACK.values(), 2), ids=TAKING_BACK)
def test_what_is_taken_back_elsewhere_is_not_quoted(
    take_back: Callable[[ContextPipeline], object],
) -> None:
    pipeline = new()
    fill(pipeline, (400,))
    violin = HumanMessage("My violin is at the repair shop.", id="violin")
    pipeline.add_messages([violin], **at("c0"))
    assert "repair shop" in last_message(pipeline, "Where is my violin?")

    take_back(pipeline)

    assert "repair shop" not in last_message(pipeline, "Where is the violin?")


def test_an_erased_user_leaves_nothing_in_memory() -> None:
    pipeline = new()
    fill(pipeline, (400,))
    last_message(pipeline, LOCKER)
    pipeline.erase_user(user_id="ada")
    assert pipeline.engine.workspace.libraries.of("ada").room == 0


# Off


@pytest.mark.parametrize("sources", [(), ("memories", "documents")])
def test_sources_without_conversations_switch_it_off(sources: Sequence[str]) -> None:
    pipeline = new()
    say(pipeline, "old", "My bike is red.")
    say(pipeline, "now", "Hello.")
    assert "red" in last_message(pipeline, QUESTION)
    assert "red" not in last_message(pipeline, QUESTION, sources=list(sources))


@pytest.mark.slow
@pytest.mark.parametrize("answer", ["Noted.", "Understood!", "Okay, thanks.", "Got it."])
def test_an_answer_that_says_nothing_is_not_quoted(answer: str) -> None:
    pipeline = new()
    for number in range(150):
        question = HumanMessage(f"Item {number}: {WORDS[number % 15]}.")
        pipeline.add_messages([question, AIMessage(answer)], **at(f"c{number % 3}"))
    say(pipeline, "now", "Hello.")
    assert answer not in last_message(pipeline, QUESTION)


def test_a_later_day_than_that_of_this_conversation_does_not_win() -> None:
    pipeline = new()
    today = datetime.now(UTC).date()
    say(pipeline, "now", "My bike is blue.", day=str(today - timedelta(90)))
    say(pipeline, "old", "My bike is red.", day=str(today - timedelta(9)))

    text = last_message(pipeline, QUESTION)
    check_superseded(text, "My bike is red.", "superseded in this conversation")
