"""`ChatModelSummarizer` with `ChatOpenAI` over HTTP: a good answer is a digest, any other one a `SummaryError`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from langchain_openai import ChatOpenAI

from langchain_ctxbudget import TiktokenCounter
from langchain_ctxbudget.core.digest import Digest, Line
from langchain_ctxbudget.core.importance import Kind
from langchain_ctxbudget.errors import SummaryError
from langchain_ctxbudget.flow import adrive, drive
from langchain_ctxbudget.history.summarizer import ChatModelSummarizer, SummaryRequest
from tests.integration_tests.openai_server import (
    ANOTHER_PAGE,
    CUT,
    ENDS_EARLY,
    GARBAGE,
    HANGS,
    Fault,
    OpenAIServer,
    calls,
    refuses,
    says,
)

pytestmark = pytest.mark.allow_hosts(["127.0.0.1"])

FIELDS = {
    "summary": "Ada plans a greenhouse.\n- Ada chose polycarbonate over glass.\n- [OPEN] Who lays the foundation?",
    "key_decisions": ["The door faces south"],
    "open_questions": ["Who lays the foundation?"],
    "code_artifacts": ["plan.md"],
    "narrative": "Ada plans a greenhouse and has settled its material.",
}
GOOD = json.dumps(FIELDS)
REQUEST = SummaryRequest(
    lines=(Line(position=4, speaker="Ada", date="2024-05-01", text="Polycarbonate, see plan.md", from_user=True),),
    first=4,
    end=5,
    level=1,
    prior="",
    open_questions=(),
    cap_tokens=200,
)

Summarize = Callable[[ChatModelSummarizer], Digest]


@pytest.fixture(params=["sync", "async"])
def summarize(request: pytest.FixtureRequest) -> Summarize:
    """Sums the request up, in a thread or in a task."""

    def run(summarizer: ChatModelSummarizer) -> Digest:
        flow = summarizer.summarize(REQUEST, TiktokenCounter())
        return drive(flow) if request.param == "sync" else asyncio.run(adrive(flow))

    return run


@pytest.fixture
def server() -> Iterator[OpenAIServer]:
    with OpenAIServer(lambda _: says(GOOD)) as server:
        yield server


def summarizer(server: OpenAIServer, *, timeout_seconds: float = 30.0, **kwargs: Any) -> ChatModelSummarizer:
    model = ChatOpenAI(model="gpt-4o-mini", base_url=server.url, api_key="not-used", max_retries=0, **kwargs)
    return ChatModelSummarizer(model, timeout_seconds=timeout_seconds)


@pytest.mark.parametrize("streaming", [False, True])
def test_a_structured_answer_is_a_digest(server: OpenAIServer, summarize: Summarize, *, streaming: bool) -> None:
    digest = summarize(summarizer(server, streaming=streaming))
    assert [(sentence.text, sentence.kind) for sentence in digest.sentences] == [
        ("Ada plans a greenhouse.", Kind.PLAIN),
        ("Ada chose polycarbonate over glass.", Kind.PLAIN),
        ("[OPEN] Who lays the foundation?", Kind.OPEN),
        ("The door faces south", Kind.DECISION),
    ]
    assert digest.narrative == FIELDS["narrative"]
    assert digest.open_questions == ("Who lays the foundation?",)
    assert (digest.artifacts, digest.made_by) == (("plan.md",), "gpt-4o-mini")


def test_the_answer_is_asked_for_by_schema_in_one_request(server: OpenAIServer, summarize: Summarize) -> None:
    summarize(summarizer(server))
    (sent,) = server.received
    assert sent["response_format"]["type"] == "json_schema"
    assert set(sent["response_format"]["json_schema"]["schema"]["required"]) == set(FIELDS)


def test_a_server_that_refuses_schemas_is_asked_in_words(server: OpenAIServer, summarize: Summarize) -> None:
    server.fault_of = lambda body: refuses(400) if "response_format" in body else server.fault
    assert summarize(summarizer(server)).sentences[0].text == "Ada plans a greenhouse."
    assert ["response_format" in body for body in server.received] == [True, False]


def test_prose_from_a_model_with_a_schema_is_the_summary(server: OpenAIServer, summarize: Summarize) -> None:
    server.answer = lambda _: says("Ada plans a greenhouse of polycarbonate.")
    assert [s.text for s in summarize(summarizer(server)).sentences] == ["Ada plans a greenhouse of polycarbonate."]


def test_the_arguments_of_a_tool_call_are_read(server: OpenAIServer, summarize: Summarize) -> None:
    server.answer = lambda _: calls(("call-1", "ConversationDigest", FIELDS))
    assert summarize(summarizer(server)).narrative == FIELDS["narrative"]


@pytest.mark.parametrize(
    ("fault", "streaming", "told"),
    [
        (refuses(429), False, "429"),
        (refuses(500), False, "Error code: 500"),
        (refuses(429), True, "429"),
        (CUT, False, "attempt 2"),
        (CUT, True, "attempt 2"),
        (ENDS_EARLY, False, "attempt 2"),
        (ENDS_EARLY, True, "attempt 2: invalid JSON"),
        (GARBAGE, False, "attempt 2"),
        (GARBAGE, True, "attempt 2"),
        (ANOTHER_PAGE, False, "attempt 2"),
        (ANOTHER_PAGE, True, "attempt 2"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_a_failing_server_is_a_summary_error(
    server: OpenAIServer, summarize: Summarize, fault: Fault, told: str, *, streaming: bool
) -> None:
    server.fault = fault
    with pytest.raises(SummaryError, match=told):
        summarize(summarizer(server, streaming=streaming))
    assert len(server.received) == 2


@pytest.mark.parametrize("reply", ["", "   \n", '{"summary": "Ada pla', "[1, 2]", "```json\n{]\n```"])
def test_an_unusable_answer_is_a_summary_error(server: OpenAIServer, summarize: Summarize, reply: str) -> None:
    server.answer = lambda _: says(reply)
    with pytest.raises(SummaryError, match=r"attempt 2: (an empty reply|invalid JSON|JSON that is not an object)"):
        summarize(summarizer(server))
    assert len(server.received) == 2


def test_a_server_that_hangs_is_a_summary_error(server: OpenAIServer, summarize: Summarize) -> None:
    server.fault = HANGS
    with pytest.raises(SummaryError, match=r"attempt 2: no reply within 0\.2 seconds"):
        summarize(summarizer(server, timeout_seconds=0.2))


def test_forty_thousand_tokens_are_cut_to_the_cap(server: OpenAIServer, summarize: Summarize) -> None:
    facts = (f"Crate {i} holds {i} screws." for i in range(5_500))
    server.answer = lambda _: says(json.dumps({**FIELDS, "summary": "\n".join(f"- {fact}" for fact in facts)}))
    count = TiktokenCounter().count_text
    digest = summarize(summarizer(server))
    assert 0 < sum(count(sentence.text) for sentence in digest.sentences) <= REQUEST.cap_tokens
