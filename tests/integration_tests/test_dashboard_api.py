"""The dashboard's API: what it answers, to whom, and what it refuses."""

import asyncio
import json
import re
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langgraph.store.memory import InMemoryStore
from starlette.requests import Request

from langchain_ctxbudget import ChromaStore, ContextPipeline, ContextReport
from langchain_ctxbudget.budget import Reason
from langchain_ctxbudget.cli.__main__ import main
from langchain_ctxbudget.dashboard import create_app
from langchain_ctxbudget.dashboard.app import OPERATIONS
from langchain_ctxbudget.dashboard.service import LONGEST_ID, LONGEST_TEXT
from langchain_ctxbudget.errors import InvalidSettingsError, MissingScopeError
from tests.integration_tests.summary_models import Scripted
from tests.servers import LOOPBACK
from tests.stores import Failing

ADA = {"user_id": "ada", "conversation_id": "trip"}
BO = {"user_id": "bo", "conversation_id": "secret plans"}
API = "/api/context"
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
]
FIELDS += ["item_id", "pinned", "text", "forgotten"]
OF_SESSION = ("status", "snapshots", "snapshots/any", "preview", "messages", "usage")


def talk(name: str, turns: int = 20) -> list[BaseMessage]:
    said: list[BaseMessage] = []
    for turn in range(turns):
        said.append(
            HumanMessage(f"{name} {turn}: what about day {turn} in Lisbon?", id=f"{name}-q{turn}")
        )
        said.append(
            AIMessage(f"On day {turn} you see the tower of {name}. " * 4, id=f"{name}-a{turn}")
        )
    return said


def two_users() -> ContextPipeline:
    settings = {"max_context_tokens": 700, "keep_snapshots": 5, "learn": False}
    made = ContextPipeline(settings, system_prompt="You plan trips.", store=InMemoryStore())
    made.add_messages(talk("belem"), **ADA)
    made.add_messages(talk("zanzibar"), **BO)
    return made


@pytest.fixture
def pipeline() -> ContextPipeline:
    return two_users()


def kept(pipeline: ContextPipeline, question: str = "Where to?", **scope: str) -> ContextReport:
    report = pipeline.assemble(question, **(scope or ADA)).report
    assert pipeline.flush(30)
    return report


@asynccontextmanager
async def served(pipeline: ContextPipeline, **options: Any) -> AsyncIterator[httpx.AsyncClient]:
    app = create_app(pipeline, **{"user_id": "ada"} | options)
    async with client_of(app) as client:
        yield client


def client_of(
    app: Any, address: str = "http://localhost", machine: str = "127.0.0.1"
) -> httpx.AsyncClient:
    return httpx.AsyncClient(
        transport=httpx.ASGITransport(app, client=(machine, 5)), base_url=address
    )


async def get(client: httpx.AsyncClient, path: str, status: int = 200, **query: Any) -> Any:
    answer = await client.get(f"{API}/{path}", params=query)
    assert answer.status_code == status, answer.text
    return answer.json()


async def post(client: httpx.AsyncClient, path: str, body: object, status: int = 200) -> Any:
    answer = await client.post(f"{API}/{path}", json=body)
    assert answer.status_code == status, answer.text
    return answer.json()


def items_of(report: dict[str, Any], layer: str) -> list[dict[str, Any]]:
    return next(part["items"] for part in report["layers"] if part["layer"] == layer)


# What is answered


async def test_sessions_are_listed_with_the_numbers_of_their_newest_snapshot(
    pipeline: ContextPipeline,
) -> None:
    old = HumanMessage("Hi", additional_kwargs={"created_at": "2020-01-01"})
    pipeline.add_messages([old], user_id="ada", conversation_id="old")
    kept(pipeline)
    report = kept(pipeline)
    async with served(pipeline) as client:
        found = await get(client, "sessions")
        pipeline.add_messages([HumanMessage("One more")], **ADA)
        more = (await get(client, "sessions"))["sessions"][0]["messages"]
        pipeline.remove_messages(["belem-q0", "belem-a0"], **ADA)
        fewer = (await get(client, "sessions"))["sessions"][0]["messages"]
    [newest] = pipeline.snapshots.list(**ADA, limit=1)
    trip = {
        "session_id": "trip",
        "title": "belem 0: what about day 0 in Lisbon?",
        "messages": 40,
        "last_updated": newest.created_at.isoformat().replace("+00:00", "Z"),
        "total_tokens": report.total_tokens,
        "budget_tokens": 700,
        "tier": None,
    }
    nothing = dict.fromkeys(("total_tokens", "budget_tokens", "tier"))
    other = {
        "session_id": "old",
        "title": "Hi",
        "messages": 1,
        "last_updated": "2020-01-01T00:00:00Z",
        **nothing,
    }
    assert (found["user_id"], found["sessions"]) == ("ada", [trip, other])
    assert found["words"]["reasons"] == {str(reason): reason.meaning for reason in Reason}
    assert (more, fewer) == (41, 39)


async def test_the_status_is_that_of_the_newest_snapshot(pipeline: ContextPipeline) -> None:
    first = kept(pipeline, "A much longer question, about everything that there is to see?")
    report = kept(pipeline, "And then?")
    [older, _] = pipeline.snapshots.list(**ADA)
    async with served(pipeline) as client:
        status = await get(client, "status", session_id="trip")
        before = await get(client, f"snapshots/{older.id}", session_id="trip")
        await get(client, "snapshots/unknown", 404, session_id="trip")
        [line] = (await get(client, "snapshots", session_id="trip", limit=1))["snapshots"]
    assert status["source"] == "snapshot"
    assert {**status["current_context"], "layers": 0} == {**report.to_dict(), "layers": 0}
    assert status["budget_percent"] == round(100 * report.total_tokens / 700, 1)
    assert status["pruning_strategy"] == {
        "budget_range": ">80%",
        "tier1_messages": 1,
        "tier2_items": "all",
        "tier3_mode": "full",
        "tier4_messages": "as budgeted",
    }
    assert before["current_context"]["total_tokens"] == first.total_tokens
    assert before["last_updated"] == older.created_at.isoformat().replace("+00:00", "Z")
    assert (
        sum(line["layers"].values()) + line["overhead_tokens"]
        == line["total_tokens"]
        == report.total_tokens
    )
    assert (line["messages"], line["budget_tokens"]) == (40, 700)
    assert line["effective_tokens"] == report.stability.effective_tokens


# Prompts


def text_of(message: dict[str, Any]) -> str:
    return "".join(part["text"] for part in message["parts"])


def items_shown(prompt: list[dict[str, Any]]) -> set[tuple[str, str]]:
    return {
        (part["layer"], part["item"])
        for message in prompt
        for part in message["parts"]
        if part["item"]
    }


def items_sent(report: dict[str, Any]) -> set[tuple[str, str]]:
    layers = report["layers"]
    return {
        (one["layer"], item["id"])
        for one in layers
        for item in one["items"]
        if item["status"] != "omitted"
    }


@pytest.mark.parametrize("layout", ["cache_first", "system_first"])
async def test_the_next_prompt_is_shown_word_for_word_in_parts_of_its_items(layout: str) -> None:
    settings = {
        "max_context_tokens": 900,
        "layout": layout,
        "preferences": ["Be brief."],
        "topics": [{"label": "Lisbon", "context": "A city by the river."}],
    }
    with ContextPipeline(
        settings, system_prompt="You plan trips.", store=InMemoryStore()
    ) as pipeline:
        pipeline.add_messages(talk("belem"), **ADA)
        first = pipeline.assemble("What about day 3 in Lisbon?", **ADA)
        pipeline.add_messages(
            [HumanMessage("What about day 3 in Lisbon?"), AIMessage("A tower.")], **ADA
        )
        async with served(pipeline) as client:
            shown = await get(client, "preview", session_id="trip", message="And what about day 5?")
        sent = pipeline.assemble("And what about day 5?", **ADA)
    assert [(one["role"], text_of(one)) for one in shown["prompt"]] == [
        (m.type, m.text.strip()) for m in sent.messages
    ]
    assert (
        items_shown(shown["prompt"])
        == items_sent(shown["current_context"])
        == items_sent(sent.report.to_dict())
    )
    assert sum(one["tokens"] for one in shown["prompt"]) + 3 == sent.report.total_tokens
    cached = "".join(
        part["text"] for one in shown["prompt"] for part in one["parts"] if part["cached"]
    )
    before, now = ("".join(m.text.strip() for m in one.messages) for one in (first, sent))
    differ = (at for at, (one, other) in enumerate(zip(before, now, strict=False)) if one != other)
    alike = next(differ, len(before))
    assert len(cached) == alike


async def test_an_earlier_prompt_is_shown_with_what_is_kept_of_its_texts(
    pipeline: ContextPipeline,
) -> None:
    kept(pipeline, "Where to?")
    pipeline.add_messages([HumanMessage("Where to?"), AIMessage("To Porto.")], **ADA)
    async with served(pipeline) as client:
        status = await get(client, "status", session_id="trip")
    prompt = status["prompt"]
    assert items_shown(prompt) == items_sent(status["current_context"])
    assert (prompt[0]["role"], text_of(prompt[0])) == ("system", "You plan trips.")
    assert text_of(prompt[-1]).endswith("Where to?")
    newest = [text_of(one) for one in prompt if one["role"] == "ai"][-1]
    assert newest == talk("belem")[-1].text.strip()


async def test_without_snapshots_the_last_turns_are_replayed_in_memory(
    pipeline: ContextPipeline,
) -> None:
    before = pipeline.export_user(user_id="ada")
    async with served(pipeline) as client:
        found = await get(client, "snapshots", session_id="trip")
        last = found["snapshots"][-1]
        status = await get(client, f"snapshots/{last['id']}", session_id="trip")
        assert (await get(client, "snapshots", session_id="trip")) == found
        assert pipeline.export_user(user_id="ada") == before
        pipeline.add_messages(
            [HumanMessage("And the tram?", id="new"), AIMessage("Line 28.")], **ADA
        )
        longer = (await get(client, "snapshots", session_id="trip"))["snapshots"]
        assert pipeline.snapshots.list(**ADA) == []
        kept(pipeline)
        own = await get(client, "snapshots", session_id="trip")
    assert (found["replayed"], own["replayed"], len(own["snapshots"])) == (True, False, 1)
    assert [one["messages"] for one in found["snapshots"]] == list(range(0, 40, 2))
    assert longer[-1]["messages"] == 40
    assert text_of(status["prompt"][-1]).endswith(talk("belem")[-2].text)
    assert status["current_context"]["stability"]["shared_tokens"] > 0


# Previews


async def test_a_budget_that_is_too_small_is_a_conflict_that_names_the_floors(
    pipeline: ContextPipeline,
) -> None:
    async with served(pipeline) as client:
        problem = await get(client, "preview", 409, session_id="trip", budget=5)
        pipeline.save_settings({"max_context_tokens": 5}, user_id="ada")
        await get(client, "status", 409, session_id="trip")
        shown = await get(client, "preview", session_id="trip", budget=600)
    assert sum(problem["floors"].values()) > 5
    assert "5 tokens" in problem["error"]
    assert 5 < shown["current_context"]["total_tokens"] <= 600


@pytest.mark.parametrize("has_model", [False, True])
async def test_looking_writes_nothing_asks_no_model_and_leaves_the_next_prompts_as_they_were(
    has_model: bool,
) -> None:
    model = Scripted()
    noon = datetime(2026, 1, 2, 12, tzinfo=UTC)

    def made() -> ContextPipeline:
        about: dict[str, Any] = {
            "writer_id": "w",
            "clock": lambda: noon,
            "summary_model": model if has_model else None,
        }
        settings = {"max_context_tokens": 900, "keep_snapshots": 3, "learn": False}
        it = ContextPipeline(settings, store=InMemoryStore(), **about)
        it.add_messages(talk("belem"), **ADA)
        kept(it, "Where were we?")
        it.add_messages(talk("alfama", 3), **ADA)
        return it

    def comparable(report: dict[str, Any]) -> dict[str, Any]:
        return {
            name: value
            for name, value in report.items()
            if name not in ("timings_ms", "tokenizer_calls")
        }

    seen = made()
    unseen = made()
    stored = sorted(seen.export_user(user_id="ada"))
    asked = len(model.read)
    async with served(seen) as client:
        for path in ("sessions", "status", "snapshots", "messages", "usage", "known"):
            await get(client, path, session_id="trip")
        tried: list[dict[str, Any]] = [{}, {"message": "word " * 300}, {"budget": 3_000}, {}]
        shown = [
            await get(client, "preview", **{"session_id": "trip", "message": "And now?"} | one)
            for one in tried
        ]
    assert seen.flush(30)
    assert (sorted(seen.export_user(user_id="ada")), len(model.read)) == (stored, asked)
    first, *_, last = [comparable(one["current_context"]) for one in shown]
    for number, question in enumerate(("And now?", "And then?")):
        one, other = (it.assemble(question, **ADA) for it in (seen, unseen))
        assert one.messages == other.messages
        assert number or first == last == comparable(json.loads(json.dumps(one.report.to_dict())))


# What items quote


async def test_what_was_deleted_is_not_quoted_again(pipeline: ContextPipeline) -> None:
    fact = pipeline.knowledge.add_fact("Lives in Porto", user_id="ada")
    pipeline.save_settings({"learn": True}, user_id="ada")
    kept(pipeline)
    async with served(pipeline) as client:
        before = json.dumps(await get(client, "status", session_id="trip"))
        pipeline.knowledge.delete(fact.id, user_id="ada")
        pipeline.remove_messages("belem-q19", on_removal="forget", **ADA)
        after = json.dumps(await get(client, "status", session_id="trip"))
    for text in ("Lives in Porto", "belem 19"):
        assert (text in before, text in after) == (True, False)


# Changes


async def test_a_pin_is_shown_and_changes_the_next_preview(pipeline: ContextPipeline) -> None:
    pin = {"session_id": "trip", "message_id": "belem-q0", "preservation": "keep"}
    async with served(pipeline) as client:
        await get(client, "preview", session_id="trip", message="And?", budget=690)
        assert await post(client, "messages", pin) == pin
        [first] = (await get(client, "messages", session_id="trip", first=1, last=1))["messages"]
        shown = (await get(client, "preview", session_id="trip", message="And?", budget=690))[
            "current_context"
        ]
        await post(client, "messages", {**pin, "preservation": None})
        [taken_back] = (await get(client, "messages", session_id="trip", first=1, last=1))[
            "messages"
        ]
    assert (first["preservation"], taken_back["preservation"]) == ("keep", None)
    assert "pinned" in {
        item["reason"] for item in items_of(shown, "L6") if item["id"] == "belem-q0"
    }


async def test_what_is_known_is_explained_pinned_corrected_and_forgotten(
    pipeline: ContextPipeline,
) -> None:
    knowledge = pipeline.knowledge
    ada = {"user_id": "ada"}
    others = knowledge.add_fact("Lives in Zanzibar", user_id="bo")
    rui = {"type": "person", "relationship": "uncle"}
    for add, shown, words, better in (
        (
            lambda: knowledge.add_fact("Lives in Porto", **ada),
            "Lives in Porto",
            "Lives in Porto",
            "Lives in Lisbon",
        ),
        (
            lambda: knowledge.add_topic("Trams", compiled_context="On rails.", **ada),
            "Trams; On rails.",
            "Trams",
            "Trains",
        ),
        (lambda: knowledge.add_entity("Rui", **rui, **ada), "Rui (person); uncle", "Rui", "Rui C"),
    ):
        item: Any = add()
        async with served(pipeline) as client:
            [listed] = (await get(client, "known"))["known"]
            told = (item.id, shown, words, False, "by hand")
            assert (
                tuple(listed[name] for name in ("id", "text", "words", "pinned", "origin")) == told
            )
            assert await get(client, "known/why", item_id=item.id) == {"sources": []}
            await post(client, "known", {"item_id": item.id, "pinned": True, "text": better})
            [changed] = (await get(client, "known"))["known"]
            assert (changed["words"], changed["pinned"], changed["origin"]) == (
                better,
                True,
                "pinned, by hand",
            )
            await post(client, "known", {"item_id": item.id, "pinned": False})
            assert [one["pinned"] for one in (await get(client, "known"))["known"]] == [False]
            await post(client, "known", {"item_id": item.id, "forgotten": True})
            assert (await get(client, "known"))["known"] == []
            for foreign in (others.id, "fact/none"):
                await get(client, "known/why", 404, item_id=foreign)
                await post(client, "known", {"item_id": foreign, "forgotten": True}, 404)
    item = knowledge.add_fact("Lives in Porto", **ada)
    async with served(pipeline) as client:
        assert "- Lives in Porto (by hand, " in (await get(client, "known"))["text"]
        assert (await post(client, "known/forget", {}))["known"] == []
    assert (knowledge.list_facts(**ada), len(pipeline.get_messages(**ADA)) > 0) == ([], True)
    assert [one.text for one in knowledge.list_facts(user_id="bo")] == ["Lives in Zanzibar"]


# What is refused


async def test_a_question_that_cannot_be_meant_is_refused(pipeline: ContextPipeline) -> None:
    wrong: list[tuple[str, Any]] = [
        *((path, query) for path in OF_SESSION for query in ({}, {"session_id": ""})),
        ("status", {"session_id": "t" * (LONGEST_ID + 1)}),
        *(("snapshots", {"session_id": "trip", "limit": limit}) for limit in ("abc", "0", "1001")),
        *(
            ("preview", {"session_id": "trip", "budget": budget})
            for budget in ("0", "1.5", "9" * 40)
        ),
        *(
            ("preview", {"session_id": "trip", "message": text})
            for text in ("", " \n", "w" * 10_001)
        ),
        ("messages", {"session_id": "trip", "first": "0"}),
        *((f"snapshots/{name}", {"session_id": "trip"}) for name in ("%00", "%20", "a" * 201)),
    ]
    async with served(pipeline) as client:
        for path, query in wrong:
            answer = await client.get(f"{API}/{path}", params=query)
            assert (answer.status_code, set(answer.json())) == (400, {"error"}), (path, query)


async def test_an_unknown_session_and_that_of_another_user_are_answered_alike(
    pipeline: ContextPipeline,
) -> None:
    kept(pipeline, **BO)
    [snapshot] = pipeline.snapshots.list(**BO)
    async with served(pipeline) as client:
        for path in OF_SESSION:
            unknown, foreign = [
                await client.get(f"{API}/{path}", params={"session_id": name})
                for name in ("nowhere", "secret plans")
            ]
            assert unknown.status_code == 404
            assert (unknown.status_code, unknown.content) == (foreign.status_code, foreign.content)
        await get(client, f"snapshots/{snapshot.id}", 404, session_id="trip")


async def test_a_change_that_cannot_be_meant_is_refused(pipeline: ContextPipeline) -> None:
    pin = {"session_id": "trip", "message_id": "belem-q1", "preservation": "keep"}
    fact = pipeline.knowledge.add_fact("Likes tea", user_id="ada")
    wrong: list[tuple[str, object, int]] = [
        ("messages", {**pin, "message_id": "nobody's"}, 404),
        ("messages", {**pin, "session_id": "secret plans", "message_id": "zanzibar-q1"}, 404),
        ("known", {"item_id": "unknown", "pinned": True}, 404),
        *(
            ("known", body, 400)
            for body in ([[1, 2]], *({"item_id": fact.id, "pinned": it} for it in ("yes", 1)))
        ),
        *(
            ("messages", body, 400)
            for body in ({**pin, "preservation": "burn"}, {**pin, "user_id": "bo"}, [], "trip")
        ),
    ]
    before = pipeline.export_user(user_id="ada"), pipeline.export_user(user_id="bo")
    async with served(pipeline) as client:
        for path, body, status in wrong:
            await post(client, path, body, status)
        for content, kind, status in [
            *(
                (content, "application/json", 400)
                for content in (b"", b"{", b"\xff", b"[" * 50_000, b"9" * 5_000)
            ),
            *(
                (json.dumps(pin).encode(), kind, 415)
                for kind in ("text/plain", "multipart/form-data", "")
            ),
        ]:
            answer = await client.post(
                f"{API}/messages", content=content, headers={"Content-Type": kind}
            )
            assert answer.status_code == status
        assert (await client.delete(f"{API}/status")).status_code == 405
        assert (await client.get(f"{API}/nothing")).json() == {"error": "Not Found"}
    assert (pipeline.export_user(user_id="ada"), pipeline.export_user(user_id="bo")) == before


NAMED = "trip;secret plans;belem-q0;zanzibar-q0;ada;bo;keep;budget;fact;0;1;77777777777777777777777;;\x00".split(
    ";"
)
"""Ids of both users, and junk."""
values = st.sampled_from(NAMED) | st.text(max_size=4) | st.integers().map(str)
bodies = st.recursive(
    st.none() | st.booleans() | st.integers() | values,
    lambda part: (
        st.lists(part, max_size=2) | st.dictionaries(st.sampled_from(FIELDS), part, max_size=4)
    ),
)


def test_whatever_is_asked_is_answered_without_a_fault_and_without_anything_of_others() -> None:
    pipeline = two_users()
    kept(pipeline, **BO)
    before = pipeline.export_user(user_id="bo")
    app = create_app(pipeline, user_id="ada")

    @given(
        st.sampled_from(OPERATIONS),
        st.dictionaries(st.sampled_from(FIELDS), values, max_size=5),
        values,
        bodies,
    )
    @settings(max_examples=150, deadline=None, derandomize=True)
    def asked(operation: Any, query: dict[str, str], name: str, body: object) -> None:
        method, path, _ = operation

        async def ask() -> httpx.Response:
            async with client_of(app) as client:
                sent = {
                    "content": json.dumps(body),
                    "headers": {"Content-Type": "application/json"},
                }
                given: dict[str, Any] = sent if method == "POST" else {"params": query}
                return await client.request(
                    method, path.replace("{snapshot_id}", quote(name, safe="")), **given
                )

        answer = asyncio.run(ask())
        assert answer.status_code in (200, 400, 404, 409), answer.text
        assert "tower of zanzibar" not in answer.text

    asked()
    assert pipeline.export_user(user_id="bo") == before


# Faults


async def test_a_store_that_fails_is_told_plainly(caplog: pytest.LogCaptureFixture) -> None:
    store = Failing()
    pipeline = ContextPipeline({"learn": False}, store=store)
    pipeline.add_messages(talk("belem", 2), **ADA)
    store.fails = lambda _: True
    async with served(pipeline) as client:
        answer = await client.get(f"{API}/status", params={"session_id": "trip"})
        assert (answer.status_code, set(answer.json())) == (503, {"error"})
        assert "the disk is gone" not in answer.text
        assert "the disk is gone" in caplog.text
        store.fails = lambda _: False
        pipeline.close()
        await get(client, "sessions", 503)


# Bodies


async def in_pieces(size: int) -> AsyncIterator[bytes]:
    """A body without a Content-Length."""
    for _ in range(size // 1_000):
        yield b" " * 1_000


JSON_TYPE = {"Content-Type": "application/json"}


async def test_a_body_that_says_it_is_too_large_is_refused(pipeline: ContextPipeline) -> None:
    async with served(pipeline) as client:
        answer = await client.post(f"{API}/known", content=b" " * 5_000_000, headers=JSON_TYPE)
    assert answer.status_code == 413
    assert answer.json() == {"error": "The body has 5,000,000 bytes; at most 262,144 are read"}


async def test_a_chunked_body_is_read_up_to_the_limit(pipeline: ContextPipeline) -> None:
    async with served(pipeline) as client:
        answer = await client.post(f"{API}/known", content=in_pieces(5_000_000), headers=JSON_TYPE)
    assert answer.status_code == 413
    assert answer.json() == {
        "error": "The body has 263,000 bytes or more; at most 262,144 are read"
    }


async def test_the_longest_text_that_is_taken_fits_the_limit(pipeline: ContextPipeline) -> None:
    escaped = json.dumps({"item_id": "fact/none", "text": "\N{GRINNING FACE}" * LONGEST_TEXT})
    assert len(escaped) > 12 * LONGEST_TEXT
    async with served(pipeline) as client:
        answer = await client.post(f"{API}/known", content=escaped, headers=JSON_TYPE)
    assert answer.status_code == 404


# Who is let in


async def test_only_this_machine_by_its_own_names_is_answered(pipeline: ContextPipeline) -> None:
    async with served(pipeline) as client:
        for host in ("localhost:8642", "127.0.0.1", "LOCALHOST", "[::1]:80"):
            assert (await client.get(f"{API}/sessions", headers={"Host": host})).status_code == 200
        for host in ("evil.example", "localhost.evil.example", "127.0.0.1.nip.io", "", "[", "a b"):
            for path in ("/", f"{API}/sessions"):
                answer = await client.get(path, headers={"Host": host})
                assert (answer.status_code, set(answer.json())) == (421, {"error"})
    async with client_of(create_app(pipeline, user_id="ada"), machine="192.0.2.7") as client:
        await get(client, "sessions", 403)
        assert (await client.get("/")).status_code == 403


async def test_pages_of_other_sites_are_refused(pipeline: ContextPipeline) -> None:
    origins = ("https://evil.example", "null", "", "http://[", "localhost", "http://localhost:3000")
    own = {"Origin": "http://localhost", "Sec-Fetch-Site": "same-origin"}
    pin = {"session_id": "trip", "message_id": "belem-q0", "preservation": "keep"}
    async with served(pipeline) as client:
        for headers in (
            *({"Origin": origin} for origin in origins),
            *({**own, "Sec-Fetch-Site": site} for site in ("cross-site", "same-site")),
        ):
            changed = await client.post(f"{API}/messages", json=pin, headers=headers)
            read = await client.get(f"{API}/sessions", headers=headers)
            assert (changed.status_code, read.status_code) == (403, 403)
        [first] = (await get(client, "messages", session_id="trip", last=1))["messages"]
        assert first["preservation"] is None
        assert (await client.post(f"{API}/messages", json=pin, headers=own)).status_code == 200
        assert (
            await client.get("/", headers={"Sec-Fetch-Site": "cross-site"})
        ).status_code == 200  # a link


def by_header(request: Request) -> str | None:
    return request.headers.get("x-user")


async def test_every_request_is_for_the_user_whom_the_function_names(
    pipeline: ContextPipeline,
) -> None:
    pipeline.add_messages(talk("mombasa"), user_id="bo", conversation_id="trip")
    async with served(pipeline, user_id=by_header) as client:
        for user, own, foreign in (("ada", "belem", "mombasa"), ("bo", "mombasa", "belem")):
            listed = await client.get(f"{API}/sessions", headers={"X-User": user})
            assert listed.json()["user_id"] == user
            for path in ("status?", "preview?", "messages?", "preview?budget=400&"):
                answer = await client.get(f"{API}/{path}session_id=trip", headers={"X-User": user})
                assert (own in answer.text, foreign in answer.text) == (True, False)


async def test_an_async_function_may_name_the_user(pipeline: ContextPipeline) -> None:
    async def by_header_later(request: Request) -> str | None:
        return by_header(request)

    async with served(pipeline, user_id=by_header_later) as client:
        answer = await client.get(f"{API}/sessions", headers={"X-User": "ada"})
        assert (answer.status_code, answer.json()["user_id"]) == (200, "ada")


@pytest.mark.parametrize("nobody", [None, "", 7])
async def test_an_async_function_that_names_nobody_shows_nothing(
    pipeline: ContextPipeline, nobody: Any
) -> None:
    async def names_nobody(_: Request) -> Any:
        return nobody

    async with served(pipeline, user_id=names_nobody) as client:
        await get(client, "sessions", 401)


async def test_nobody_is_shown_nothing(pipeline: ContextPipeline) -> None:
    for nobody in (None, "", 7):
        async with served(pipeline, user_id=lambda _, nobody=nobody: nobody) as client:
            await get(client, "sessions", 401)
            await post(client, "messages", {}, 401)

    def fails(_: Request) -> str:
        raise LookupError("the identity provider is down")

    async with served(pipeline, user_id=fails) as client:
        assert "identity" not in (await get(client, "sessions", 503))["error"]


async def test_every_answer_tells_browsers_to_be_careful(pipeline: ContextPipeline) -> None:
    asked: list[tuple[str, str, dict[str, str]]] = [
        *(
            ("GET", path, {})
            for path in ("/", "/assets/page.css", "/assets/nothing.js", f"{API}/sessions/")
        ),
        ("GET", f"{API}/status?session_id=%0d%0aX-Evil:1", {}),
        ("POST", f"{API}/messages", {}),
        ("GET", "/", {"Host": "evil.example"}),
    ]
    async with served(pipeline) as client:
        for method, path, headers in asked:
            answer = await client.request(method, path, headers=headers)
            policy = dict(
                part.strip().split(" ", 1)
                for part in answer.headers["content-security-policy"].split(";")
            )
            assert (
                policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"] == "'none'"
            )
            assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert answer.headers["cache-control"] == "no-store"
            assert "evil" not in str(answer.headers).lower()


def test_an_application_that_would_let_anybody_in_is_not_made(pipeline: ContextPipeline) -> None:
    for user in ("", None):
        with pytest.raises(MissingScopeError):
            create_app(pipeline, user_id=user)
    with pytest.raises(InvalidSettingsError):
        create_app("pipeline", user_id="ada")  # type: ignore[arg-type]


# The command


def refused(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    assert main(["dashboard", *map(str, arguments)]) == 1
    return capsys.readouterr().err


@LOOPBACK
def test_the_command_says_why_it_does_not_begin(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "--store FOLDER, or --demo" in refused(capsys)
    assert "--store FOLDER, or --demo" in refused(capsys, "--demo", "--store", tmp_path)
    assert "StoreError: There is no store" in refused(capsys, "--store", tmp_path / "nothing")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "chroma.sqlite3").touch()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        problem = refused(capsys, "--store", tmp_path, "--port", taken.getsockname()[1])
    assert "InvalidSettingsError: --port" in problem
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert "pip install 'langchain-ctxbudget[dashboard]'" in refused(capsys, "--store", tmp_path)


@LOOPBACK
@pytest.mark.parametrize("shows", ["a store", "the demo"])
def test_the_command_serves_until_it_is_interrupted(tmp_path: Path, shows: str) -> None:
    with (
        ChromaStore(tmp_path) as store,
        ContextPipeline({"keep_snapshots": 3}, store=store) as pipeline,
    ):
        pipeline.add_messages(talk("belem", 3), user_id="me", conversation_id="trip")
        pipeline.assemble("Where to?", user_id="me", conversation_id="trip")
        assert pipeline.flush(30)
    command = [
        sys.executable,
        "-W",
        "error",
        "-m",
        "langchain_ctxbudget.cli",
        "dashboard",
        "--port",
        "0",
    ]
    session, more = (
        ("trip", ["--store", str(tmp_path)]) if shows == "a store" else ("tool-library", ["--demo"])
    )
    server = subprocess.Popen(
        [*command, *more], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert server.stdout is not None
        line = server.stdout.readline()
        address = re.search(r"http://127\.0\.0\.1:\d+/", line)
        assert address is not None
        assert (f"#session={session}&message=" in line) == (shows == "the demo")
        with httpx.Client(base_url=address[0], timeout=60, trust_env=False) as client:
            status = client.get("api/context/status", params={"session_id": session})
            page = client.get("")
        assert (status.status_code, status.json()["source"]) == (200, "snapshot")
        assert "<!doctype html>" in page.text
    finally:
        server.send_signal(signal.SIGINT)
        _, problems = server.communicate(timeout=60)
    assert (server.returncode, problems) == (0, "")
