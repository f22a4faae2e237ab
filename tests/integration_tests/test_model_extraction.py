"""`ChatModelExtractor` with `ChatOpenAI` over HTTP: a good answer is learned from."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from langchain_openai import ChatOpenAI

from langchain_ctxbudget.knowledge import Fact, Knowledge
from langchain_ctxbudget.knowledge.extraction import ChatModelExtractor
from langchain_ctxbudget.knowledge.records import (
    Learned,
    LearnedEntity,
    LearnedFact,
    LearnedTopic,
    Said,
)
from tests.integration_tests.openai_server import OpenAIServer, says

pytestmark = pytest.mark.allow_hosts(["127.0.0.1"])

NOW = datetime(2026, 5, 1, tzinfo=UTC)
SAID = (
    Said(id="m7", digest="d7", text="I moved to Lisbon last week.", speaker="Ada", at=NOW),
    Said(
        id="m8",
        digest="d8",
        text="Sarah, my sister, helps me with the oak chairs.",
        speaker="Ada",
        at=NOW,
    ),
)
KNOWN = Knowledge(
    facts=(Fact(id="a", text="Lives in Porto", category="identity", created_at=NOW, last_seen=NOW),)
)
FIELDS: dict[str, Any] = {
    "facts": [
        {
            "text": "Lives in Lisbon",
            "category": "identity",
            "messages": [1],
            "supersedes": ["F1"],
            "slot": "home",
        }
    ],
    "topics": [{"label": "Oak chairs", "domain": "creative", "messages": [2]}],
    "entities": [{"name": "Sarah", "type": "person", "relationship": "sister", "messages": [2]}],
}
GOOD = json.dumps(FIELDS)
HOME = LearnedFact(
    text="Lives in Lisbon", category="identity", slot="home", message_ids=("m7",), supersedes=("a",)
)
LEARNED = Learned(
    facts=(HOME,),
    topics=(LearnedTopic(label="Oak chairs", domain="creative", message_ids=("m8",)),),
    entities=(
        LearnedEntity(name="Sarah", type="person", relationship="sister", message_ids=("m8",)),
    ),
    made_by="gpt-4o-mini",
)


def test_a_structured_answer_in_one_request_is_learned_from() -> None:
    with OpenAIServer(lambda _: says(GOOD)) as server:
        for streaming in (False, True):
            model = ChatOpenAI(
                model="gpt-4o-mini",
                base_url=server.url,
                api_key="not-used",
                max_retries=0,
                streaming=streaming,
            )
            assert ChatModelExtractor(model).extract(SAID, (), KNOWN) == LEARNED
    sent = server.received[0]
    assert len(server.received) == 2
    assert sent["response_format"]["type"] == "json_schema"
    assert set(sent["response_format"]["json_schema"]["schema"]["required"]) == set(FIELDS)
    assert "- F1 [2026-05-01] (identity): Lives in Porto" in sent["messages"][1]["content"]
