"""`ChatModelExtractor` with `ChatOpenAI` over HTTP: a good answer is learned from, others are an `ExtractionError`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from langchain_openai import ChatOpenAI

from langchain_ctxbudget.errors import ExtractionError
from langchain_ctxbudget.flow import drive
from langchain_ctxbudget.knowledge import Fact, Knowledge
from langchain_ctxbudget.knowledge.extraction import ChatModelExtractor
from langchain_ctxbudget.knowledge.records import Learned, LearnedEntity, LearnedFact, LearnedTopic, Said
from tests.integration_tests.openai_server import (
    ANOTHER_PAGE,
    CUT,
    ENDS_EARLY,
    GARBAGE,
    HANGS,
    Fault,
    OpenAIServer,
    refuses,
    says,
)

pytestmark = pytest.mark.allow_hosts(["127.0.0.1"])

NOW = datetime(2026, 5, 1, tzinfo=UTC)
SAID = (
    Said(id="m7", digest="d7", text="I moved to Lisbon last week.", speaker="Ada", at=NOW),
    Said(id="m8", digest="d8", text="Sarah, my sister, helps me with the oak chairs.", speaker="Ada", at=NOW),
)
KNOWN = Knowledge(facts=(Fact(id="a", text="Lives in Porto", category="identity", created_at=NOW, last_seen=NOW),))
FIELDS: dict[str, Any] = {
    "facts": [
        {"text": "Lives in Lisbon", "category": "identity", "messages": [1], "supersedes": ["F1"], "slot": "home"}
    ],
    "topics": [{"label": "Oak chairs", "domain": "creative", "messages": [2]}],
    "entities": [{"name": "Sarah", "type": "person", "relationship": "sister", "messages": [2]}],
}
GOOD = json.dumps(FIELDS)
HOME = LearnedFact(text="Lives in Lisbon", category="identity", slot="home", message_ids=("m7",), supersedes=("a",))
LEARNED = Learned(
    facts=(HOME,),
    topics=(LearnedTopic(label="Oak chairs", domain="creative", message_ids=("m8",)),),
    entities=(LearnedEntity(name="Sarah", type="person", relationship="sister", message_ids=("m8",)),),
    made_by="gpt-4o-mini",
)

Learn = Callable[[ChatModelExtractor], Learned]


@pytest.fixture
def learn() -> Learn:
    """Learns from the messages."""
    return lambda extractor: drive(extractor.extract(SAID, (), KNOWN))


@pytest.fixture
def server() -> Iterator[OpenAIServer]:
    with OpenAIServer(lambda _: says(GOOD)) as server:
        yield server


def extractor(server: OpenAIServer, *, timeout_seconds: float = 30.0, **kwargs: Any) -> ChatModelExtractor:
    model = ChatOpenAI(model="gpt-4o-mini", base_url=server.url, api_key="not-used", max_retries=0, **kwargs)
    return ChatModelExtractor(model, timeout_seconds=timeout_seconds)


@pytest.mark.parametrize("streaming", [False, True])
def test_a_structured_answer_is_learned_from(server: OpenAIServer, learn: Learn, *, streaming: bool) -> None:
    assert learn(extractor(server, streaming=streaming)) == LEARNED


def test_the_answer_is_asked_for_by_schema_in_one_request(server: OpenAIServer, learn: Learn) -> None:
    learn(extractor(server))
    (sent,) = server.received
    assert sent["response_format"]["type"] == "json_schema"
    assert set(sent["response_format"]["json_schema"]["schema"]["required"]) == set(FIELDS)
    assert "- F1 [2026-05-01] (identity): Lives in Porto" in sent["messages"][1]["content"]


@pytest.mark.parametrize(
    ("fault", "streaming", "told"),
    [
        (refuses(429), False, r"\w+ \(429\)"),
        (refuses(429), True, r"\w+ \(429\)"),
        (CUT, False, ""),
        (CUT, True, ""),
        (ENDS_EARLY, True, "invalid JSON"),
        (GARBAGE, False, ""),
        (ANOTHER_PAGE, False, ""),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_a_failing_server_is_an_extraction_error(
    server: OpenAIServer, learn: Learn, fault: Fault, told: str, *, streaming: bool
) -> None:
    server.fault = fault
    with pytest.raises(ExtractionError, match=f"attempt 2: {told}"):
        learn(extractor(server, streaming=streaming))
    assert len(server.received) == 2


def test_a_server_that_hangs_is_an_extraction_error(server: OpenAIServer, learn: Learn) -> None:
    server.fault = HANGS
    with pytest.raises(ExtractionError, match=r"attempt 2: no reply within 0\.2 seconds"):
        learn(extractor(server, timeout_seconds=0.2))
