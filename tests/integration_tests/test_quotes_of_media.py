"""A quote says what does not stand in the prompt yet; a lost medium is no reason for one."""

from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_openai import ChatOpenAI
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import ContextPipeline
from langchain_ctxbudget.messages import is_only_media
from tests.fuzz import samples

SCOPE: dict[str, Any] = {"user_id": "ada", "conversation_id": "c1"}
LEASE = "Here is the scan of the lease for Mill Lane; the rent is 900 francs."
PICTURE = {"type": "image", "base64": samples.picture(1_024, 768), "mime_type": "image/png"}
SCAN = {
    "type": "file",
    "base64": samples.document(60),
    "mime_type": "application/pdf",
    "filename": "scan.pdf",
}


def shown(history: list[BaseMessage], question: str) -> str:
    """Returns the texts of a prompt of 4,000 tokens."""
    pipeline = ContextPipeline(
        {"max_context_tokens": 4_000, "learn": False},
        model=ChatOpenAI(model="gpt-4o", api_key="x"),
        store=InMemoryStore(),
    )
    pipeline.add_messages(history, **SCOPE)
    context = pipeline.assemble(question, **SCOPE)
    return "\n".join(message.text for message in context.messages)


@pytest.mark.parametrize("media", [[SCAN], [PICTURE] * 12], ids=["a file", "pictures"])
def test_words_that_stand_in_the_history_are_not_quoted(media: list[Any]) -> None:
    history = [HumanMessage([{"type": "text", "text": LEASE}, *media]), AIMessage("I see.")]

    text = shown(history, "What is the rent in the lease for Mill Lane?")

    assert text.count(LEASE) == 1
    assert "left out: " in text


def test_words_that_are_clipped_are_quoted() -> None:
    words = "word " * 4_000 + LEASE + " word" * 4_000
    history = [HumanMessage([{"type": "text", "text": words}, PICTURE]), AIMessage("I see.")]

    assert "## Said earlier" in shown(history, "What is the rent in the lease for Mill Lane?")


@pytest.mark.parametrize(
    ("content", "is_mute"),
    [
        ([PICTURE] * 12, True),
        ([{"type": "text", "text": " "}, PICTURE], True),
        ([SCAN], False),
        ([{"type": "text", "text": "Look."}, PICTURE], False),
        ("Look.", False),
    ],
    ids=["pictures", "a picture and white space", "a file with a name", "words", "a text"],
)
def test_media_without_a_name_are_no_words(content: Any, is_mute: bool) -> None:
    assert is_only_media(HumanMessage(content)) == is_mute


def test_media_without_words_are_not_quoted() -> None:
    rest = [AIMessage("I see the roof. " * 40), HumanMessage("Thanks. " * 40)] * 40
    text = shown([HumanMessage([PICTURE] * 3), *rest], "What was in the images?")

    assert "[image" not in text
