"""A store that commit 962b675 wrote opens, and nothing in it is made again that need not be."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_core.messages import BaseMessage, ToolMessage
from langgraph.store.base import BaseStore

from langchain_ctxbudget import AssembledContext, ContextPipeline, KnowledgeBase
from langchain_ctxbudget.settings import ContextSettings
from tests.data.store_962b675.write import LOANS, STATED, loans
from tests.earlier_stores import Embedded, Recording, in_folder, in_memory, pipeline_over

MAYA: dict[str, Any] = {"user_id": "maya"}
LIBRARY: dict[str, Any] = {**MAYA, "conversation_id": "library"}
WORKSHOP: dict[str, Any] = {**MAYA, "conversation_id": "workshop"}
QUESTION = "What did we decide about the labels?"
SEALED = 512
"""Messages of the library that were in a segment."""


@dataclass(frozen=True)
class Opened:
    """A store that was opened anew, and the first prompt that was made from it."""

    store: Recording
    pipeline: ContextPipeline
    prompt: AssembledContext


@pytest.fixture(params=["memory", "chroma-folder"], scope="module")
def opened(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Opened]:
    with ExitStack() as open_until_end:
        written: BaseStore = in_memory()
        if request.param == "chroma-folder":
            folder = in_folder(tmp_path_factory.mktemp("earlier"))
            written = open_until_end.enter_context(folder)
        store = Recording(written)
        pipeline = open_until_end.enter_context(pipeline_over(store))
        yield Opened(store, pipeline, ask(pipeline))


@pytest.fixture
def pipeline(opened: Opened) -> ContextPipeline:
    """For tests that only read."""
    return opened.pipeline


@pytest.fixture
def store() -> Recording:
    """One that is not opened yet."""
    return Recording(in_memory())


@pytest.fixture
def first(store: Recording) -> Iterator[ContextPipeline]:
    """For tests that change something, or that come before the first prompt."""
    with closing(pipeline_over(store)) as opened:
        yield opened


def ask(pipeline: ContextPipeline) -> AssembledContext:
    context = pipeline.assemble(QUESTION, **LIBRARY)
    assert pipeline.flush(60)
    return context


def texts(messages: Sequence[BaseMessage]) -> list[str]:
    return [message.text for message in messages]


def test_every_message_is_there(pipeline: ContextPipeline) -> None:
    assert pipeline.get_messages(**LIBRARY) == [*loans()]


def test_every_conversation_is_listed(pipeline: ContextPipeline) -> None:
    assert pipeline.list_conversations(**MAYA) == ["library", "workshop", "workshop-again"]


def test_edited_and_removed_messages_are_as_they_were(pipeline: ContextPipeline) -> None:
    messages = pipeline.get_messages(**WORKSHOP)
    assert [message.id for message in messages] == [f"repair-{number}" for number in range(5)]
    assert messages[-1].text == "Order it after Whitsun."


def test_results_of_tools_keep_their_calls(pipeline: ContextPipeline) -> None:
    fork = pipeline.get_messages(user_id="maya", conversation_id="workshop-again")
    assert [message.type for message in fork] == ["human", "ai", "tool", "ai"]
    assert isinstance(fork[2], ToolMessage)
    assert fork[2].tool_call_id == "call-1"


def test_a_prompt_has_what_was_decided_long_ago(opened: Opened) -> None:
    prompt = texts(opened.prompt.messages)
    assert "We decided to buy the labels from Brightfix for 84 pounds." in prompt
    assert prompt[-1].endswith(QUESTION)


def test_a_prompt_shows_what_is_known_of_the_user(opened: Opened) -> None:
    system = opened.prompt.messages[0].text
    assert "Prices in pounds." in system
    assert "Lives in Leeds" in system
    assert "Opens the library on Saturdays" in system


def test_a_prompt_stands_in_its_budget_without_a_failure(opened: Opened) -> None:
    assert opened.prompt.report.total_tokens <= 1_500
    assert opened.prompt.report.failures == ()


def test_sealed_messages_are_not_embedded_again(opened: Opened) -> None:
    assert isinstance(opened.pipeline.embeddings, Embedded)
    sealed = [text for text in texts([*loans()][:SEALED]) if "drawer" in text]
    assert set(sealed).isdisjoint(opened.pipeline.embeddings.texts)


def segments_written(store: Recording) -> int:
    """Returns how many parts of the library's segments were written, the head among them."""
    return sum(place[2] == "blocks" for place in store.written if place[-1] == "library~")


def test_of_sealed_segments_only_what_sentences_are_is_written(opened: Opened) -> None:
    assert segments_written(opened.store) == 2, "one part of the one segment, and the head"


@pytest.mark.slow
def test_sealed_segments_are_written_once_more_and_not_again(store: Recording) -> None:
    with closing(pipeline_over(store)) as first:
        ask(first)
    store.written.clear()
    with closing(pipeline_over(store)) as second:
        ask(second)

    assert segments_written(store) == 0


def test_only_what_is_new_is_written_for_a_prompt(opened: Opened) -> None:
    # Segments of the conversations that were searched, which had none; spans behind the old cut.
    # Their model's calls are counted as usage.
    told = {"cuts", "snapshot", "reports", "call", "blocks", "compactions", "spent", "usage"}
    assert opened.store.kinds() == told


def test_reading_writes_nothing(first: ContextPipeline, store: Recording) -> None:
    first.get_messages(**LIBRARY)
    assert first.flush(60)
    assert store.written == []


def test_the_cut_and_its_summaries_are_there(first: ContextPipeline) -> None:
    summaries = first.get_compactions(**LIBRARY)
    makers = [summary.made_by for summary in summaries]
    assert makers.count("Summaries") == 7
    assert makers.count("extraction") == 2


def test_facts_and_topics_are_there(pipeline: ContextPipeline) -> None:
    facts = [fact.text for fact in pipeline.knowledge.list_facts(**MAYA)]
    topics = [topic.label for topic in pipeline.knowledge.list_topics(**MAYA)]
    assert {"Name is Maya", "Lives in Leeds", "Opens the library on Saturdays"} <= set(facts)
    assert "Tool labels" in topics


def test_a_fact_knows_the_message_that_it_comes_from(pipeline: ContextPipeline) -> None:
    facts = pipeline.knowledge.list_facts(**MAYA)
    [home] = [fact for fact in facts if fact.text == "Lives in Leeds"]
    [source] = pipeline.knowledge.why(home.id, **MAYA)
    assert source.message is not None
    assert source.message.text == STATED[0][0]


@pytest.mark.parametrize(
    ("owner", "question", "answer"),
    [
        (MAYA, "How long is a loan?", "A loan lasts seven days. Late fees are 50 pence."),
        ({"shared": True}, "When does it open?", "The library opens at ten."),
    ],
    ids=["own", "shared"],
)
def test_documents_are_found(
    opened: Opened, owner: dict[str, Any], question: str, answer: str
) -> None:
    documents = KnowledgeBase(opened.store, **owner, embeddings=Embedded())
    assert texts_of(documents.search(question, k=1)) == [answer]


def texts_of(documents: Sequence[Document]) -> list[str]:
    return [document.page_content for document in documents]


def test_saved_settings_are_there(pipeline: ContextPipeline) -> None:
    assert pipeline.get_settings(**MAYA) == {"preferences": ["Prices in pounds."]}


def test_usage_is_there(pipeline: ContextPipeline) -> None:
    month = pipeline.usage.of_month(**MAYA, month="2026-03")
    session = pipeline.usage.of_session(**LIBRARY)
    assert month.calls - month.unpriced_calls == session.calls - session.unpriced_calls == 10
    assert month.input_tokens == session.input_tokens >= 10 * 1_200


def test_kept_reports_are_there(pipeline: ContextPipeline) -> None:
    assert len(pipeline.snapshots.list(**LIBRARY)) == 2


def test_an_export_has_every_message(pipeline: ContextPipeline) -> None:
    export = "".join(pipeline.export_user(**MAYA))
    assert f"from drawer {100 + LOANS - 1}." in export
    assert "The door code is 4711." not in export


def test_erasing_one_user_leaves_the_other(first: ContextPipeline, store: Recording) -> None:
    first.erase_user(**MAYA)
    left = {item.namespace[1] for item in store.search((), limit=10_000)}
    assert left == {"tom~", "shared"}


def test_a_conversation_goes_on(first: ContextPipeline) -> None:
    first.add_messages(ask(first).turn, **LIBRARY)
    assert texts(first.get_messages(**LIBRARY))[-1] == QUESTION


def test_the_old_name_of_a_setting_is_accepted() -> None:
    assert ContextSettings().override({"segment_messages": 80}).span_messages == 80
