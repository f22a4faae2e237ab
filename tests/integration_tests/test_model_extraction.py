"""`ChatModelExtractor` with `ChatOpenAI` over HTTP: a good answer is learned from."""

import json
from datetime import UTC, datetime
from typing import Any, NamedTuple

import pytest
from langchain_anthropic import ChatAnthropic
from langchain_google_genai import ChatGoogleGenerativeAI
from langchain_openai import ChatOpenAI

from langchain_ctxbudget.knowledge import Fact, Knowledge
from langchain_ctxbudget.knowledge.extraction import EXTRACTION, ChatModelExtractor
from langchain_ctxbudget.knowledge.records import (
    Learned,
    LearnedEntity,
    LearnedFact,
    LearnedTopic,
    ReadMessage,
)
from tests.doubles.server import Fault, OpenAIServer, refuses, says
from tests.doubles.strict_server import StrictServer

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


@pytest.mark.slow
def test_a_structured_answer_is_learned_from(answer: Answer) -> None:
    assert answer.learned == LEARNED


@pytest.mark.slow
def test_one_request_is_enough(answer: Answer) -> None:
    assert len(answer.requests) == 1


def test_the_request_wants_the_fields_of_an_answer(answer: Answer) -> None:
    response_format = answer.requests[0]["response_format"]

    assert response_format["type"] == "json_schema"
    required = response_format["json_schema"]["schema"]["required"]
    assert set(required) == {"facts", "topics", "entities"}


def test_the_request_holds_the_answer_to_the_schema(answer: Answer) -> None:
    assert answer.requests[0]["response_format"]["json_schema"]["strict"] is True


def test_the_request_limits_the_answer(answer: Answer) -> None:
    assert answer.requests[0]["max_completion_tokens"] == EXTRACTION.reply_tokens


def test_the_request_shows_what_is_known(answer: Answer) -> None:
    prompt = answer.requests[0]["messages"][1]["content"]

    assert "- F1 [2026-05-01] (identity): Lives in Porto" in prompt


def test_a_server_that_refuses_strict_schemas_is_learned_with() -> None:
    """Servers that speak as OpenAI does do not all know `strict`."""

    def fault_of(body: Any) -> Fault:
        is_strict = body.get("response_format", {}).get("json_schema", {}).get("strict")
        return refuses(400) if is_strict else Fault()

    with OpenAIServer(lambda _: says(GOOD)) as server:
        server.fault_of = fault_of
        model = ChatOpenAI(
            model="gpt-4o-mini", base_url=server.url, api_key="not-used", max_retries=0
        )
        extractor = ChatModelExtractor(model)
        learned = [extractor.extract(MESSAGES, (), KNOWN) for _ in range(2)]

    assert learned == [LEARNED, LEARNED]
    assert "response_format" not in server.received[-2], "in words, once the schema was refused"
    assert not server.received[-1]["response_format"]["json_schema"]["strict"]


ANSWERS_OF_OTHERS = (
    (
        lambda url: ChatAnthropic(
            model="claude-opus-4-7", api_key="x", base_url=url, max_retries=0
        ),
        lambda body: (body["max_tokens"], body["output_config"]["format"]["type"]),
        (EXTRACTION.reply_tokens, "json_schema"),
    ),
    (
        lambda url: ChatGoogleGenerativeAI(
            model="gemini-2.0-flash", api_key="x", base_url=url, max_retries=1
        ),
        lambda body: (
            body["generationConfig"]["maxOutputTokens"],
            body["generationConfig"]["responseMimeType"],
        ),
        (EXTRACTION.reply_tokens, "application/json"),
    ),
)


@pytest.mark.parametrize(
    ("model_at", "asked_for", "expected"), ANSWERS_OF_OTHERS, ids=["Anthropic", "Google"]
)
def test_other_providers_get_the_schema_and_the_limit(
    model_at: Any, asked_for: Any, expected: Any
) -> None:
    with StrictServer(lambda _: says(GOOD)) as server:
        model = model_at(server.url.removesuffix("/v1"))
        learned = ChatModelExtractor(model).extract(MESSAGES, (), KNOWN)

    assert learned.facts == (HOME,)
    assert [asked_for(body) for body in server.received] == [expected]
