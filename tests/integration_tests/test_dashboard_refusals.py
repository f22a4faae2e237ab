"""What the dashboard's API refuses, to whom it answers, and what it says of faults."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.requests import Request

from langchain_ctxbudget import ContextPipeline
from langchain_ctxbudget.dashboard import create_app
from langchain_ctxbudget.dashboard.app import OPERATIONS
from langchain_ctxbudget.dashboard.service import LONGEST_ID, LONGEST_TEXT
from langchain_ctxbudget.errors import InvalidSettingsError, MissingScopeError
from tests.integration_tests.dashboard import (
    ADA,
    API,
    BO,
    OF_SESSION,
    client_of,
    get,
    post,
    served,
    talk,
    two_users,
    with_snapshot,
)
from tests.stores import Failing

pytestmark = pytest.mark.slow

JSON_TYPE = {"Content-Type": "application/json"}
PIN = {"session_id": "trip", "message_id": "belem-q1", "preservation": "keep"}


@pytest.fixture
def pipeline() -> ContextPipeline:
    return two_users()


@pytest.fixture(scope="module")
def unchanged() -> ContextPipeline:
    """A pipeline for tests that change nothing."""
    return two_users()


# Questions


@pytest.mark.parametrize("path", OF_SESSION)
@pytest.mark.parametrize("query", [{}, {"session_id": ""}], ids=["no session", "empty session"])
async def test_a_question_about_no_session_is_refused(
    unchanged: ContextPipeline, path: str, query: dict[str, str]
) -> None:
    async with served(unchanged) as client:
        answer = await client.get(f"{API}/{path}", params=query)
    assert answer.status_code == 400
    assert list(answer.json()) == ["error"]


@pytest.mark.parametrize(
    ("path", "query"),
    [
        ("status", {"session_id": "t" * (LONGEST_ID + 1)}),
        ("snapshots", {"limit": "abc"}),
        ("snapshots", {"limit": "0"}),
        ("snapshots", {"limit": "1001"}),
        ("preview", {"budget": "0"}),
        ("preview", {"budget": "1.5"}),
        ("preview", {"budget": "9" * 40}),
        ("preview", {"message": ""}),
        ("preview", {"message": " \n"}),
        ("preview", {"message": "w" * 10_001}),
        ("messages", {"first": "0"}),
        ("snapshots/%00", {}),
        ("snapshots/%20", {}),
        ("snapshots/" + "a" * 201, {}),
    ],
    ids=str,
)
async def test_a_question_that_cannot_be_meant_is_refused(
    unchanged: ContextPipeline, path: str, query: dict[str, str]
) -> None:
    async with served(unchanged) as client:
        answer = await client.get(f"{API}/{path}", params={"session_id": "trip", **query})
    assert answer.status_code == 400
    assert list(answer.json()) == ["error"]


@pytest.mark.parametrize("path", OF_SESSION)
async def test_a_session_of_another_user_is_answered_as_an_unknown_one(
    pipeline: ContextPipeline, path: str
) -> None:
    with_snapshot(pipeline, scope=BO)
    async with served(pipeline) as client:
        unknown = await client.get(f"{API}/{path}", params={"session_id": "nowhere"})
        foreign = await client.get(f"{API}/{path}", params={"session_id": "secret plans"})
    assert unknown.status_code == 404
    assert foreign.status_code == 404
    assert foreign.content == unknown.content


async def test_a_snapshot_of_another_user_is_not_found(pipeline: ContextPipeline) -> None:
    with_snapshot(pipeline, scope=BO)
    [snapshot] = pipeline.snapshots.list(**BO)
    async with served(pipeline) as client:
        await get(client, f"snapshots/{snapshot.id}", 404, session_id="trip")


async def test_a_path_that_is_none_is_not_found(unchanged: ContextPipeline) -> None:
    async with served(unchanged) as client:
        assert (await client.get(f"{API}/nothing")).json() == {"error": "Not Found"}


# Changes


def exports(pipeline: ContextPipeline) -> dict[str, list[str]]:
    return {user: pipeline.export_user(user_id=user) for user in ("ada", "bo")}


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("messages", {**PIN, "message_id": "nobody's"}, 404),
        ("messages", {**PIN, "session_id": "secret plans", "message_id": "zanzibar-q1"}, 404),
        ("messages", {**PIN, "preservation": "burn"}, 400),
        ("messages", {**PIN, "user_id": "bo"}, 400),
        ("messages", [], 400),
        ("messages", "trip", 400),
        ("known", {"item_id": "unknown", "pinned": True}, 404),
        ("known", [1, 2], 400),
        ("known", {"item_id": "rule/none", "text": "Push."}, 404),
        ("rules", {"session_id": "secret plans", "text": "Push."}, 404),
        ("rules", {"session_id": "trip", "text": " "}, 400),
        ("rules", {"session_id": "trip", "text": "x" * 2_001}, 400),
        ("rules", {"session_id": "trip", "text": "Push.", "everywhere": 1}, 400),
        ("rules/lift", {"session_id": "trip", "rule_id": "rule/none"}, 404),
        ("rules/lift", {"session_id": "secret plans", "rule_id": "rule/none"}, 404),
    ],
    ids=str,
)
async def test_a_change_that_cannot_be_meant_is_refused(
    unchanged: ContextPipeline, path: str, body: object, status: int
) -> None:
    before = exports(unchanged)
    async with served(unchanged) as client:
        await post(client, path, body, status)
    assert exports(unchanged) == before


@pytest.mark.parametrize("pinned", ["yes", 1])
async def test_a_pin_that_is_neither_true_nor_false_is_refused(
    pipeline: ContextPipeline, pinned: object
) -> None:
    fact = pipeline.knowledge.add_fact("Likes tea", user_id="ada")
    before = exports(pipeline)
    async with served(pipeline) as client:
        await post(client, "known", {"item_id": fact.id, "pinned": pinned}, 400)
    assert exports(pipeline) == before


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"\xff", b"[" * 50_000, b"9" * 5_000],
    ids=["nothing", "half an object", "no text", "too deep", "a large number"],
)
async def test_a_body_that_is_no_json_is_refused(
    unchanged: ContextPipeline, content: bytes
) -> None:
    before = exports(unchanged)
    async with served(unchanged) as client:
        answer = await client.post(f"{API}/messages", content=content, headers=JSON_TYPE)
    assert answer.status_code == 400
    assert exports(unchanged) == before


@pytest.mark.parametrize("kind", ["text/plain", "multipart/form-data", ""])
async def test_a_body_that_does_not_say_it_is_json_is_refused(
    unchanged: ContextPipeline, kind: str
) -> None:
    before = exports(unchanged)
    async with served(unchanged) as client:
        headers = {"Content-Type": kind}
        answer = await client.post(f"{API}/messages", content=json.dumps(PIN), headers=headers)
    assert answer.status_code == 415
    assert exports(unchanged) == before


async def test_another_method_is_refused(unchanged: ContextPipeline) -> None:
    before = exports(unchanged)
    async with served(unchanged) as client:
        assert (await client.delete(f"{API}/status")).status_code == 405
    assert exports(unchanged) == before


# Anything

FIELDS = [
    "session_id",
    "snapshot_id",
    "limit",
    "budget",
    "message",
    "first",
    "last",
    "message_id",
    "preservation",
    "item_id",
    "pinned",
    "text",
    "forgotten",
]
IDS_AND_JUNK = [
    "trip",
    "secret plans",
    "belem-q0",
    "zanzibar-q0",
    "ada",
    "bo",
    "keep",
    "budget",
    "fact",
    "0",
    "1",
    "77777777777777777777777",
    "",
    "\x00",
]
"""Ids of both users, and junk."""
values = st.sampled_from(IDS_AND_JUNK) | st.text(max_size=4) | st.integers().map(str)
queries = st.dictionaries(st.sampled_from(FIELDS), values, max_size=5)
bodies = st.recursive(
    st.none() | st.booleans() | st.integers() | values,
    lambda part: (
        st.lists(part, max_size=2) | st.dictionaries(st.sampled_from(FIELDS), part, max_size=4)
    ),
)


def test_whatever_is_asked_is_answered_without_a_fault_or_anything_of_others() -> None:
    pipeline = two_users()
    with_snapshot(pipeline, scope=BO)
    before = pipeline.export_user(user_id="bo")
    app = create_app(pipeline, user_id="ada")

    async def request(method: str, path: str, **options: Any) -> httpx.Response:
        async with client_of(app) as client:
            return await client.request(method, path, **options)

    @given(st.sampled_from(OPERATIONS), queries, values, bodies)
    @settings(max_examples=150, deadline=None, derandomize=True)
    def ask(operation: Any, query: dict[str, str], name: str, body: object) -> None:
        method, template, _ = operation
        path = template.replace("{snapshot_id}", quote(name, safe=""))
        options: dict[str, Any] = {"params": query}
        if method == "POST":
            options = {"content": json.dumps(body), "headers": JSON_TYPE}

        answer = asyncio.run(request(method, path, **options))

        assert answer.status_code in (200, 400, 404, 409), answer.text
        assert "tower of zanzibar" not in answer.text

    ask()
    assert pipeline.export_user(user_id="bo") == before


# Faults


@pytest.fixture
def broken() -> Failing:
    """A store with a conversation that fails from then on."""
    store = Failing()
    with ContextPipeline({"learn": False}, store=store) as pipeline:
        pipeline.add_messages(talk("belem", 2), **ADA)
    store.fails = lambda _: True
    return store


async def test_a_store_that_fails_is_told_to_the_page(broken: Failing) -> None:
    pipeline = ContextPipeline({"learn": False}, store=broken)
    async with served(pipeline) as client:
        answer = await client.get(f"{API}/status", params={"session_id": "trip"})
    assert answer.status_code == 503
    assert list(answer.json()) == ["error"]


async def test_why_a_store_fails_is_told_to_the_log_alone(
    broken: Failing, caplog: pytest.LogCaptureFixture
) -> None:
    pipeline = ContextPipeline({"learn": False}, store=broken)
    async with served(pipeline) as client:
        answer = await client.get(f"{API}/status", params={"session_id": "trip"})
    assert "the disk is gone" not in answer.text
    assert "the disk is gone" in caplog.text


async def test_a_closed_pipeline_is_told_to_the_page(pipeline: ContextPipeline) -> None:
    pipeline.close()
    async with served(pipeline) as client:
        await get(client, "sessions", 503)


# Bodies


async def in_pieces(size: int) -> AsyncIterator[bytes]:
    """A body without a Content-Length."""
    for _ in range(size // 1_000):
        yield b" " * 1_000


async def test_a_body_that_says_it_is_too_large_is_refused(unchanged: ContextPipeline) -> None:
    async with served(unchanged) as client:
        answer = await client.post(f"{API}/known", content=b" " * 5_000_000, headers=JSON_TYPE)
    assert answer.status_code == 413
    assert answer.json() == {"error": "The body has 5,000,000 bytes; at most 262,144 are read"}


async def test_a_chunked_body_is_read_up_to_the_limit(unchanged: ContextPipeline) -> None:
    async with served(unchanged) as client:
        answer = await client.post(f"{API}/known", content=in_pieces(5_000_000), headers=JSON_TYPE)
    assert answer.status_code == 413
    assert answer.json() == {
        "error": "The body has 263,000 bytes or more; at most 262,144 are read"
    }


async def test_the_longest_text_that_is_taken_fits_the_limit(unchanged: ContextPipeline) -> None:
    escaped = json.dumps({"item_id": "fact/none", "text": "\N{GRINNING FACE}" * LONGEST_TEXT})
    assert len(escaped) > 12 * LONGEST_TEXT
    async with served(unchanged) as client:
        answer = await client.post(f"{API}/known", content=escaped, headers=JSON_TYPE)
    assert answer.status_code == 404


# Machines and sites


@pytest.mark.parametrize("host", ["localhost:8642", "127.0.0.1", "LOCALHOST", "[::1]:80"])
async def test_this_machine_is_answered_by_its_own_names(
    unchanged: ContextPipeline, host: str
) -> None:
    async with served(unchanged) as client:
        answer = await client.get(f"{API}/sessions", headers={"Host": host})
    assert answer.status_code == 200


@pytest.mark.parametrize("path", ["/", f"{API}/sessions"])
@pytest.mark.parametrize(
    "host",
    ["evil.example", "localhost.evil.example", "127.0.0.1.nip.io", "", "[", "a b"],
)
async def test_another_name_of_this_machine_is_refused(
    unchanged: ContextPipeline, host: str, path: str
) -> None:
    async with served(unchanged) as client:
        answer = await client.get(path, headers={"Host": host})
    assert answer.status_code == 421
    assert list(answer.json()) == ["error"]


@pytest.mark.parametrize("path", ["/", f"{API}/sessions"])
async def test_another_machine_is_refused(unchanged: ContextPipeline, path: str) -> None:
    app = create_app(unchanged, user_id="ada")
    async with client_of(app, machine="192.0.2.7") as client:
        assert (await client.get(path)).status_code == 403


OWN_PAGE = {"Origin": "http://localhost", "Sec-Fetch-Site": "same-origin"}
OTHER_SITES: list[dict[str, str]] = [
    {"Origin": "https://evil.example"},
    {"Origin": "null"},
    {"Origin": ""},
    {"Origin": "http://["},
    {"Origin": "localhost"},
    {"Origin": "http://localhost:3000"},
    {"Origin": "http://localhost", "Sec-Fetch-Site": "cross-site"},
    {"Origin": "http://localhost", "Sec-Fetch-Site": "same-site"},
]


@pytest.mark.parametrize("headers", OTHER_SITES, ids=str)
async def test_a_page_of_another_site_reads_nothing(
    unchanged: ContextPipeline, headers: dict[str, str]
) -> None:
    async with served(unchanged) as client:
        assert (await client.get(f"{API}/sessions", headers=headers)).status_code == 403


@pytest.mark.parametrize("headers", OTHER_SITES, ids=str)
async def test_a_page_of_another_site_changes_nothing(
    unchanged: ContextPipeline, headers: dict[str, str]
) -> None:
    async with served(unchanged) as client:
        answer = await client.post(f"{API}/messages", json=PIN, headers=headers)
        messages = (await get(client, "messages", session_id="trip", last=3))["messages"]
    assert answer.status_code == 403
    assert [message["preservation"] for message in messages] == [None, None, None]


async def test_the_own_page_may_change_something(pipeline: ContextPipeline) -> None:
    async with served(pipeline) as client:
        answer = await client.post(f"{API}/messages", json=PIN, headers=OWN_PAGE)
    assert answer.status_code == 200


async def test_a_link_on_another_site_leads_to_the_page(unchanged: ContextPipeline) -> None:
    async with served(unchanged) as client:
        answer = await client.get("/", headers={"Sec-Fetch-Site": "cross-site"})
    assert answer.status_code == 200


# Users


def by_header(request: Request) -> str | None:
    return request.headers.get("x-user")


@pytest.fixture(scope="module")
def same_name() -> ContextPipeline:
    """A pipeline in which both users have a session of the same name."""
    pipeline = two_users()
    pipeline.add_messages(talk("mombasa"), user_id="bo", conversation_id="trip")
    return pipeline


@pytest.mark.parametrize("user", ["ada", "bo"])
async def test_sessions_are_those_of_the_user_whom_the_function_names(
    same_name: ContextPipeline, user: str
) -> None:
    async with served(same_name, by_header) as client:
        answer = await client.get(f"{API}/sessions", headers={"X-User": user})
    assert answer.json()["user_id"] == user


@pytest.mark.parametrize("path", ["status?", "preview?", "messages?", "preview?budget=400&"])
@pytest.mark.parametrize(
    ("user", "own", "foreign"), [("ada", "belem", "mombasa"), ("bo", "mombasa", "belem")]
)
async def test_a_session_is_that_of_the_user_whom_the_function_names(
    same_name: ContextPipeline, path: str, user: str, own: str, foreign: str
) -> None:
    async with served(same_name, by_header) as client:
        answer = await client.get(f"{API}/{path}session_id=trip", headers={"X-User": user})
    assert own in answer.text
    assert foreign not in answer.text


async def test_an_async_function_may_name_the_user(unchanged: ContextPipeline) -> None:
    async def by_header_later(request: Request) -> str | None:
        return by_header(request)

    async with served(unchanged, by_header_later) as client:
        answer = await client.get(f"{API}/sessions", headers={"X-User": "ada"})
    assert answer.status_code == 200
    assert answer.json()["user_id"] == "ada"


@pytest.mark.parametrize("nobody", [None, "", 7])
async def test_an_async_function_that_names_nobody_shows_nothing(
    unchanged: ContextPipeline, nobody: Any
) -> None:
    async def names_nobody(_: Request) -> Any:
        return nobody

    async with served(unchanged, names_nobody) as client:
        await get(client, "sessions", 401)


@pytest.mark.parametrize("nobody", [None, "", 7])
async def test_nobody_is_shown_nothing(unchanged: ContextPipeline, nobody: Any) -> None:
    async with served(unchanged, lambda _: nobody) as client:
        await get(client, "sessions", 401)


@pytest.mark.parametrize("nobody", [None, "", 7])
async def test_nobody_changes_anything(unchanged: ContextPipeline, nobody: Any) -> None:
    async with served(unchanged, lambda _: nobody) as client:
        await post(client, "messages", {}, 401)


async def test_why_a_user_cannot_be_named_is_not_told(unchanged: ContextPipeline) -> None:
    def fails(_: Request) -> str:
        raise LookupError("the identity provider is down")

    async with served(unchanged, fails) as client:
        assert "identity" not in (await get(client, "sessions", 503))["error"]


@pytest.mark.parametrize("user", ["", None])
def test_an_application_for_nobody_is_not_made(unchanged: ContextPipeline, user: Any) -> None:
    with pytest.raises(MissingScopeError):
        create_app(unchanged, user_id=user)


def test_an_application_without_a_pipeline_is_not_made() -> None:
    with pytest.raises(InvalidSettingsError):
        create_app("pipeline", user_id="ada")  # type: ignore[arg-type]


# What every answer tells browsers

every_answer = pytest.mark.parametrize(
    ("method", "path", "headers"),
    [
        ("GET", "/", {}),
        ("GET", "/assets/page.css", {}),
        ("GET", "/assets/nothing.js", {}),
        ("GET", f"{API}/sessions/", {}),
        ("GET", f"{API}/status?session_id=%0d%0aX-Evil:1", {}),
        ("POST", f"{API}/messages", {}),
        ("GET", "/", {"Host": "evil.example"}),
    ],
    ids=["page", "asset", "no asset", "slash", "line break", "no body", "another host"],
)


async def headers_of(
    pipeline: ContextPipeline, method: str, path: str, headers: dict[str, str]
) -> Mapping[str, str]:
    async with served(pipeline) as client:
        return (await client.request(method, path, headers=headers)).headers


@every_answer
async def test_every_answer_has_a_policy_for_its_content(
    unchanged: ContextPipeline, method: str, path: str, headers: dict[str, str]
) -> None:
    answered = await headers_of(unchanged, method, path, headers)
    policy = {}
    for part in answered["content-security-policy"].split(";"):
        name, value = part.strip().split(" ", 1)
        policy[name] = value
    expected = {
        "default-src": "'none'",
        "frame-ancestors": "'none'",
        "base-uri": "'none'",
        "script-src": "'self'",
        "style-src": "'self'",
        "connect-src": "'self'",
    }
    assert {name: policy.get(name) for name in expected} == expected


@every_answer
async def test_no_answer_is_guessed_at_or_kept(
    unchanged: ContextPipeline, method: str, path: str, headers: dict[str, str]
) -> None:
    answered = await headers_of(unchanged, method, path, headers)
    assert answered["x-content-type-options"] == "nosniff"
    assert answered["cache-control"] == "no-store"


@every_answer
async def test_no_answer_repeats_a_request_in_its_headers(
    unchanged: ContextPipeline, method: str, path: str, headers: dict[str, str]
) -> None:
    answered = await headers_of(unchanged, method, path, headers)
    assert "evil" not in str(answered).lower()
