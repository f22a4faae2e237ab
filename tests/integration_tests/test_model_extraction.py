"""`ChatModelExtractor` with `ChatOpenAI` over HTTP: a good answer is learned from, others are an `ExtractionError`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from langchain_core.messages import HumanMessage
from langchain_openai import ChatOpenAI
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import ContextPipeline
from langchain_ctxbudget.errors import ExtractionError
from langchain_ctxbudget.knowledge import Fact, Knowledge
from langchain_ctxbudget.knowledge.extraction import ChatModelExtractor
from langchain_ctxbudget.knowledge.records import Learned, LearnedEntity, LearnedFact, LearnedTopic, Said
from tests.integration_tests.learning_models import asks_to_learn, read
from tests.integration_tests.openai_server import CUT, ENDS_EARLY, GARBAGE, HANGS, OpenAIServer, refuses, says
from tests.integration_tests.summary_models import USER, conversation

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


def learn(extractor: ChatModelExtractor) -> Learned:
    return extractor.extract(SAID, (), KNOWN)


@pytest.fixture
def server() -> Iterator[OpenAIServer]:
    with OpenAIServer(lambda _: says(GOOD)) as server:
        yield server


def extractor(server: OpenAIServer, *, timeout_seconds: float = 30.0, **kwargs: Any) -> ChatModelExtractor:
    model = ChatOpenAI(model="gpt-4o-mini", base_url=server.url, api_key="not-used", max_retries=0, **kwargs)
    return ChatModelExtractor(model, timeout_seconds=timeout_seconds)


def test_a_structured_answer_in_one_request_is_learned_from(server: OpenAIServer) -> None:
    for streaming in (False, True):
        assert learn(extractor(server, streaming=streaming)) == LEARNED
    sent = server.received[0]
    assert len(server.received) == 2
    assert sent["response_format"]["type"] == "json_schema"
    assert set(sent["response_format"]["json_schema"]["schema"]["required"]) == set(FIELDS)
    assert "- F1 [2026-05-01] (identity): Lives in Porto" in sent["messages"][1]["content"]


def test_a_server_that_fails_or_hangs_is_an_extraction_error(server: OpenAIServer) -> None:
    for fault, told, options in (
        (refuses(429), r"\w+ \(429\)", {}),
        (CUT, "", {}),
        (ENDS_EARLY, "invalid JSON", {"streaming": True}),
        (GARBAGE, "", {}),
        (HANGS, r"no reply within 0\.2 seconds", {"timeout_seconds": 0.2}),
    ):
        server.fault = fault
        with pytest.raises(ExtractionError, match=f"attempt 2: {told}"):
            learn(extractor(server, **options))


def test_one_model_learns_and_summarises_in_few_requests_and_never_twice(server: OpenAIServer) -> None:
    said = [*conversation(100)]
    for at, text in ((20, "I like tea."), (22, "My favourite colour is red."), (150, "My favourite colour is blue.")):
        said[at] = HumanMessage(text, id=f"told {at}")

    def prompt_of(body: Any) -> str:
        return "\n".join(message["content"] for message in body["messages"])

    server.answer = lambda body: says(read(prompt_of(body)))
    model, store = ChatOpenAI(model="gpt-4o-mini", base_url=server.url, api_key="not-used"), InMemoryStore()
    settings = {"max_context_tokens": 1_000, "emphasis": "cache", "cache_lifetime_seconds": 0}
    for _restart in range(2):
        with ContextPipeline(settings, summary_model=model, store=store) as pipeline:
            pipeline.add_messages(said, **USER)
            for _ in range(2):
                prompt = pipeline.assemble("And now?", **USER)
                assert pipeline.flush(60)
            asked = [asks_to_learn(prompt_of(body)) for body in server.received]
            assert (len(asked), sum(asked)) == (17, 7)  # 200 messages, 30 at a time; ten spans
            assert "- Favourite colour is blue\n- Likes tea\n" in prompt.messages[0].text
            assert "They talked." in str(prompt.messages)
            assert prompt.report.failures == ()
