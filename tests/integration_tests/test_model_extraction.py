"""`ChatModelExtractor` with `ChatOpenAI` over HTTP: a good answer is learned from."""

import json
from datetime import UTC, datetime
from typing import Any, NamedTuple

import pytest
from langchain_openai import ChatOpenAI

from langchain_ctxbudget.knowledge import Fact, Knowledge
from langchain_ctxbudget.knowledge.extraction import ChatModelExtractor
from langchain_ctxbudget.knowledge.records import (
    Learned,
    LearnedEntity,
    LearnedFact,
    LearnedTopic,
    ReadMessage,
)
from tests.doubles.server import OpenAIServer, says

pytestmark = pytest.mark.allow_hosts(["127.0.0.1"])

NOW = datetime(2026, 5, 1, tzinfo=UTC)
MESSAGES = (
    ReadMessage(id="m7", digest="d7", text="I moved to Lisbon last week.", speaker="Ada", at=NOW),
    ReadMessage(
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


class Answer(NamedTuple):
    """What was learned from an answer, and the requests for it."""

    learned: Learned
    requests: list[Any]


@pytest.fixture(scope="module", params=[False, True], ids=["whole", "streamed"])
def answer(request: pytest.FixtureRequest) -> Answer:
    with OpenAIServer(lambda _: says(GOOD)) as server:
        model = ChatOpenAI(
            model="gpt-4o-mini",
            base_url=server.url,
            api_key="not-used",
            max_retries=0,
            streaming=request.param,
        )
        learned = ChatModelExtractor(model).extract(MESSAGES, (), KNOWN)
        return Answer(learned, server.received)


def test_a_structured_answer_is_learned_from(answer: Answer) -> None:
    assert answer.learned == LEARNED


def test_one_request_is_enough(answer: Answer) -> None:
    assert len(answer.requests) == 1


def test_the_request_wants_the_fields_of_an_answer(answer: Answer) -> None:
    response_format = answer.requests[0]["response_format"]

    assert response_format["type"] == "json_schema"
    required = response_format["json_schema"]["schema"]["required"]
    assert set(required) == {"facts", "topics", "entities"}


def test_the_request_shows_what_is_known(answer: Answer) -> None:
    prompt = answer.requests[0]["messages"][1]["content"]

    assert "- F1 [2026-05-01] (identity): Lives in Porto" in prompt
