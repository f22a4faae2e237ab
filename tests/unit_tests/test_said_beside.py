"""What a message says beside its content, and inside other blocks, is read and sent."""

from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_openai import ChatOpenAI
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import BudgetedChatMessageHistory, ContextPipeline
from langchain_ctxbudget.content import Kind, parts_of, with_parts
from langchain_ctxbudget.messages import clip_message, is_empty, own_words, plain_text
from langchain_ctxbudget.tokens import TiktokenCounter
from tests.cases import few_are_quick

SCOPE = {"user_id": "ada", "conversation_id": "c1"}
DATA = "A" * 4_000
SPOKEN = {"audio": {"id": "audio_1", "data": DATA, "transcript": "The plan is green."}}
REFUSED = {"refusal": "I cannot help with that."}
SAYINGS = [(SPOKEN, "The plan is green."), (REFUSED, "I cannot help with that.")]
MODEL = ChatOpenAI(model="gpt-4o", api_key="x")


@pytest.mark.parametrize(("beside", "words"), SAYINGS, ids=["spoken", "refused"])
def test_an_answer_beside_the_content_says_something(beside: dict[str, Any], words: str) -> None:
    message = AIMessage("", additional_kwargs=beside)

    assert not is_empty(message)
    assert plain_text(message) == words
    assert own_words(message) == words


@pytest.mark.parametrize("budget", few_are_quick([4_000, 16_000, 128_000]))
@pytest.mark.parametrize(("beside", "words"), SAYINGS, ids=["spoken", "refused"])
def test_it_is_sent_as_text(beside: dict[str, Any], words: str, budget: int) -> None:
    pipeline = ContextPipeline(
        model=MODEL, store=InMemoryStore(), settings={"max_context_tokens": budget}
    )
    answer = AIMessage("", additional_kwargs=beside, id="a1")
    pipeline.add_messages([HumanMessage("Tell me", id="h1"), answer], **SCOPE)

    context = pipeline.assemble("And now?", **SCOPE)
    window = BudgetedChatMessageHistory("c1", user_id="ada", pipeline=pipeline).window(budget)

    for messages in (context.messages, window):
        [sent] = [message for message in messages if message.id == "a1"]
        assert sent.content == words
        assert sent.additional_kwargs == {}
    assert [repair.message_id for repair in context.report.repairs] == ["a1"]


def test_words_that_the_content_has_are_sent_once() -> None:
    pipeline = ContextPipeline(store=InMemoryStore())
    answer = AIMessage("The plan is green.", additional_kwargs=SPOKEN)
    pipeline.add_messages([HumanMessage("Tell me"), answer], **SCOPE)

    assert pipeline.assemble("Go on", **SCOPE).messages[-2].content == "The plan is green."


def test_a_sound_without_a_transcript_is_sent_by_its_id() -> None:
    beside = {"audio": {"id": "audio_1", "data": DATA}}
    pipeline = ContextPipeline(model=MODEL, store=InMemoryStore())
    pipeline.add_messages(
        [HumanMessage("Tell me"), AIMessage("", additional_kwargs=beside)], **SCOPE
    )

    assert pipeline.assemble("Go on", **SCOPE).messages[-2].additional_kwargs == beside


@pytest.mark.parametrize("provider", ["anthropic", "google", "openai-responses"])
def test_a_sound_without_a_transcript_is_a_line_for_others(provider: str) -> None:
    beside = {"audio": {"id": "audio_1", "data": DATA}}
    pipeline = ContextPipeline(provider=provider, store=InMemoryStore())
    pipeline.add_messages(
        [HumanMessage("Tell me"), AIMessage("", additional_kwargs=beside)], **SCOPE
    )

    sent = pipeline.assemble("Go on", **SCOPE).messages[-2]

    assert sent.text.startswith("[audio left out")


def test_a_long_transcript_is_clipped() -> None:
    audio = {"id": "audio_1", "data": DATA, "transcript": "The plan is green. " * 400}
    counter = TiktokenCounter()

    message = AIMessage("", additional_kwargs={"audio": audio})
    clipped = clip_message(message, counter.count_message, counter.count_text, 100)

    assert clipped is not None
    assert "tokens left out" in str(clipped.content)
    assert clipped.additional_kwargs == {}


def test_thoughts_beside_the_content_are_read_as_thoughts() -> None:
    [thoughts, text] = sorted(
        parts_of(AIMessage("Yes", additional_kwargs={"reasoning_content": "Hm."})),
        key=lambda part: part.kind is Kind.TEXT,
    )

    assert (thoughts.kind, text.text) == (Kind.REASONING, "Yes")


def test_parts_without_thoughts_make_a_message_without() -> None:
    message = AIMessage("Yes", additional_kwargs={"reasoning_content": "Hm.", "kept": 1})
    said = [part for part in parts_of(message) if part.kind is not Kind.REASONING]

    assert with_parts(message, said).additional_kwargs == {"kept": 1}


CITED: list[tuple[BaseMessage, str]] = [
    (
        AIMessage(
            [
                {
                    "type": "text",
                    "text": "It is.",
                    "annotations": [
                        {"type": "url_citation", "url": "https://x.org", "title": "Our page"}
                    ],
                }
            ]
        ),
        "Our page",
    ),
    (
        AIMessage(
            [
                {
                    "type": "text",
                    "text": "It is.",
                    "citations": [
                        {
                            "type": "web_search_result_location",
                            "cited_text": "The shed is green",
                            "encrypted_index": "Eo8BCioIAhgB",
                        }
                    ],
                }
            ]
        ),
        "The shed is green",
    ),
    (
        HumanMessage([{"type": "file", "base64": DATA, "filename": "budget-2026.pdf"}]),
        "budget-2026.pdf",
    ),
]


@pytest.mark.parametrize(("message", "words"), CITED, ids=["annotations", "citations", "file"])
def test_sources_and_titles_are_read(message: BaseMessage, words: str) -> None:
    read = plain_text(message)

    assert words in read
    assert "Eo8B" not in read
    assert DATA not in read
