"""The dashboard's API: what it answers, to whom, and what it refuses."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langgraph.store.memory import InMemoryStore
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.routing import Mount

from langchain_ctxbudget import ChromaStore, ContextPipeline, ContextReport, KnowledgeBase
from langchain_ctxbudget.bookkeeping import Bookkeeping
from langchain_ctxbudget.cli import main
from langchain_ctxbudget.core.report import preview
from langchain_ctxbudget.dashboard import create_app
from langchain_ctxbudget.dashboard.questions import LONGEST_ID, MOST_MESSAGES
from langchain_ctxbudget.demo import demo_messages
from langchain_ctxbudget.engine import Engine
from langchain_ctxbudget.errors import InputError, InvalidSettingsError, MissingScopeError
from langchain_ctxbudget.stores.records import Scope
from langchain_ctxbudget.stores.snapshots import SNAPSHOTS
from tests.servers import LOOPBACK

ADA = {"user_id": "ada", "conversation_id": "trip"}
BO = {"user_id": "bo", "conversation_id": "secret plans"}
API = "/api/context"
OF_SESSION = ("status", "snapshots", "snapshots/any", "preview", "messages", "usage")
TOKEN = "a token that is long enough"


def talk(name: str, turns: int = 20) -> list[BaseMessage]:
    said: list[BaseMessage] = []
    for turn in range(turns):
        said.append(HumanMessage(f"{name} {turn}: what about day {turn} in Lisbon?", id=f"{name}-q{turn}"))
        said.append(AIMessage(f"On day {turn} you see the tower of {name}. " * 4, id=f"{name}-a{turn}"))
    return said


@pytest.fixture
def pipeline() -> ContextPipeline:
    """Two users with a long conversation each; nothing is learned, so that nothing happens meanwhile."""
    settings = {"max_context_tokens": 700, "keep_snapshots": 5, "learn": False}
    made = ContextPipeline(settings, system_prompt="You plan trips.", store=InMemoryStore())
    made.add_messages(talk("belem"), **ADA)
    made.add_messages(talk("zanzibar"), **BO)
    return made


def kept(pipeline: ContextPipeline, question: str = "Where to?", **scope: str) -> ContextReport:
    """The report of a prompt that is kept as a snapshot."""
    report = pipeline.assemble(question, **(scope or ADA)).report
    assert pipeline.flush(30)
    return report


@asynccontextmanager
async def served(pipeline: ContextPipeline, **options: Any) -> AsyncIterator[httpx.AsyncClient]:
    app = create_app(pipeline, **{"user_id": "ada"} | options)
    async with client_of(app) as client:
        yield client


def client_of(app: Any, address: str = "http://localhost", machine: str = "127.0.0.1") -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app, client=(machine, 5)), base_url=address)


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


async def test_sessions_are_listed_with_the_numbers_of_their_newest_snapshot(pipeline: ContextPipeline) -> None:
    pipeline.add_messages(
        [HumanMessage("Hi", additional_kwargs={"created_at": "2020-01-01"})], user_id="ada", conversation_id="old"
    )
    kept(pipeline)
    report = kept(pipeline)
    async with served(pipeline) as client:
        found = await get(client, "sessions")
    [newest] = pipeline.snapshots.list(**ADA, limit=1)
    assert found == {
        "user_id": "ada",
        "sessions": [
            {
                "session_id": "trip",
                "messages": 40,
                "last_updated": newest.created_at.isoformat().replace("+00:00", "Z"),
                "snapshots": 2,
                "total_tokens": report.total_tokens,
                "budget_tokens": 700,
                "budget_percent": round(100 * report.total_tokens / 700, 1),
                "tier": None,
            },
            {
                "session_id": "old",
                "messages": 1,
                "last_updated": "2020-01-01T00:00:00Z",
                "snapshots": 0,
                "total_tokens": None,
                "budget_tokens": None,
                "budget_percent": None,
                "tier": None,
            },
        ],
    }


async def test_the_list_of_sessions_follows_what_is_added_and_removed(pipeline: ContextPipeline) -> None:
    async with served(pipeline) as client:
        before = (await get(client, "sessions"))["sessions"][0]["messages"]
        pipeline.add_messages([HumanMessage("One more")], **ADA)
        more = (await get(client, "sessions"))["sessions"][0]["messages"]
        pipeline.remove_messages(["belem-q0", "belem-a0"], **ADA)
        fewer = (await get(client, "sessions"))["sessions"][0]["messages"]
    assert (before, more, fewer) == (40, 41, 39)


async def test_the_status_is_that_of_the_newest_snapshot(pipeline: ContextPipeline) -> None:
    kept(pipeline, "Where to?")
    report = kept(pipeline, "And then?")
    async with served(pipeline) as client:
        status = await get(client, "status", session_id="trip")
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


async def test_without_a_snapshot_the_status_is_the_prompt_for_the_last_question(pipeline: ContextPipeline) -> None:
    async with served(pipeline) as client:
        status = await get(client, "status", session_id="trip")
    report = pipeline.assemble("belem 19: what about day 19 in Lisbon?", **ADA).report
    assert status["source"] == "preview"
    assert [part["used_tokens"] for part in status["current_context"]["layers"]] == [
        part.used_tokens for part in report.layers
    ]


async def test_a_session_whose_user_has_said_nothing_has_a_status(pipeline: ContextPipeline) -> None:
    pipeline.add_messages([AIMessage("Welcome!")], user_id="ada", conversation_id="new")
    pipeline.add_messages([AIMessage("Welcome!", id="w")], user_id="ada", conversation_id="emptied")
    pipeline.remove_messages("w", user_id="ada", conversation_id="emptied")
    async with served(pipeline) as client:
        for name in ("new", "emptied"):
            assert (await get(client, "status", session_id=name))["source"] == "preview"


async def test_the_tiers_are_made_of_what_the_seed_says(pipeline: ContextPipeline) -> None:
    documents = KnowledgeBase(pipeline.store, user_id="ada")
    documents.add("The tower of Belem in Lisbon opens at nine.", metadata={"source": "guide.txt"})
    settings = {
        "preferences": ["Be brief."],
        "memories": ["Lives in Porto."],
        "topics": [{"label": "Lisbon", "context": "The capital."}],
        "max_context_tokens": 1_200,
    }
    pipeline.save_settings(settings, user_id="ada")
    report = kept(pipeline, "When does the tower of Belem in Lisbon open, and what about day 3?")
    async with served(pipeline) as client:
        status = await get(client, "status", session_id="trip")
    tiers = status["tier_breakdown"]
    used = {layer.layer: layer.used_tokens for layer in report.layers}
    found = {
        source: sum(
            item.tokens for item in report.layer("L5").items if item.source in names and item.status != "omitted"
        )
        for source, names in (
            ("memories", {"memories"}),
            ("documents", {"documents"}),
            ("said", {"messages", "conversations"}),
        )
    }
    known = sum(item.tokens for item in report.layer("L1").items if item.id.startswith("memory"))
    assert found["documents"] > 0
    assert found["said"] > 0
    assert known > 0
    assert tiers["tier2"]["tokens"] == used["L2"] + used["L3"] + known + found["memories"]
    assert tiers["tier3"]["tokens"] == found["documents"]
    assert tiers["tier4"]["tokens"] == used["L4"] + used["L6"] + found["said"]
    assert tiers["total"] == report.total_tokens == sum(tiers[f"tier{n}"]["tokens"] for n in (1, 2, 3, 4))
    included = sum(item.status != "omitted" for layer in report.layers for item in layer.items)
    assert sum(tiers[f"tier{n}"]["items"] for n in (1, 2, 3, 4)) == included


async def test_little_that_is_left_of_a_limit_shows_as_the_seeds_strategy(pipeline: ContextPipeline) -> None:
    limits = {"session_tokens": 1_000, "thresholds": (0.9, 0.6, 0.25)}
    pipeline.save_settings({"usage_limits": limits}, user_id="ada")
    pipeline.usage.record({"input_tokens": 600, "output_tokens": 50}, **ADA)
    kept(pipeline)
    async with served(pipeline) as client:
        status = await get(client, "status", session_id="trip")
        usage = await get(client, "usage", session_id="trip")
        listed = await get(client, "sessions")
    assert status["pruning_strategy"] == {
        "budget_range": "25-60%",
        "tier1_messages": 1,
        "tier2_items": 3,
        "tier3_mode": "summary",
        "tier4_messages": 2,
    }
    assert usage["standing"] == {"limit": "session_tokens", "used": 650, "allowed": 1_000, "left": pytest.approx(0.35)}
    assert usage["tier"] == listed["sessions"][0]["tier"] == "warning"


async def test_usage_is_that_of_the_session_and_of_the_month(pipeline: ContextPipeline) -> None:
    pipeline.usage.record({"input_tokens": 100, "output_tokens": 10}, **ADA, model="gpt-4o")
    pipeline.usage.record({"input_tokens": 7, "output_tokens": 1}, user_id="ada", conversation_id="other")
    async with served(pipeline) as client:
        usage = await get(client, "usage", session_id="trip")
    assert usage["session"] == {
        "calls": 1,
        "input_tokens": 100,
        "cached_tokens": 0,
        "output_tokens": 10,
        "total_tokens": 110,
        "cost": pytest.approx(0.00035),
        "unpriced_calls": 0,
    }
    assert (usage["month"]["total_tokens"], usage["month"]["unpriced_calls"]) == (118, 1)
    assert (usage["standing"], usage["tier"]) == (None, None)


async def test_the_numbers_of_one_answer_about_usage_are_of_one_moment(pipeline: ContextPipeline) -> None:
    pipeline.save_settings({"usage_limits": {"session_tokens": 1_000}}, user_id="ada")
    read = Bookkeeping.used

    def used(self: Bookkeeping, scope: Scope) -> Any:
        """Whoever reads a second time finds another number."""
        found = yield from read(self, scope)
        self.note_usage(scope, {"input_tokens": 100, "output_tokens": 0}, "gpt-4o")
        return found

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Bookkeeping, "used", used)
        async with served(pipeline) as client:
            usage = await get(client, "usage", session_id="trip")
    assert usage["session"]["total_tokens"] == usage["month"]["total_tokens"] == usage["standing"]["used"] == 0


async def test_snapshots_are_listed_oldest_first_in_numbers(pipeline: ContextPipeline) -> None:
    reports = [kept(pipeline, f"Question {number}?") for number in range(3)]
    async with served(pipeline) as client:
        found = await get(client, "snapshots", session_id="trip", limit=2)
    assert found["session_id"] == "trip"
    assert [one["total_tokens"] for one in found["snapshots"]] == [report.total_tokens for report in reports[1:]]
    newest = found["snapshots"][-1]
    assert sum(newest["layers"].values()) + newest["overhead_tokens"] == newest["total_tokens"]
    assert newest["created_at"] >= found["snapshots"][0]["created_at"]
    assert {name: newest[name] for name in ("messages", "budget_tokens", "tier", "allocation_strategy")} == {
        "messages": 40,
        "budget_tokens": 700,
        "tier": None,
        "allocation_strategy": "elastic",
    }
    stability = reports[-1].stability
    assert newest["compaction_step"] == stability.compaction_step
    assert newest["stable_zone_share"] == stability.stable_zone_share
    assert newest["history_strategy"] == reports[-1].history_strategy


async def test_a_snapshot_is_shown_as_a_status(pipeline: ContextPipeline) -> None:
    first = kept(pipeline, "First question?")
    kept(pipeline, "A second and much longer question, about everything that there is to see?")
    [one, _] = pipeline.snapshots.list(**ADA)
    async with served(pipeline) as client:
        status = await get(client, f"snapshots/{one.id}", session_id="trip")
        await get(client, "snapshots/unknown", 404, session_id="trip")
    assert status["current_context"]["total_tokens"] == first.total_tokens
    assert status["last_updated"] == one.created_at.isoformat().replace("+00:00", "Z")


async def test_messages_are_given_by_their_positions(pipeline: ContextPipeline) -> None:
    said = HumanMessage(
        "x" * 20_000, id="long", name="Ada", additional_kwargs={"created_at": "2026-01-02", "ctxbudget": "drop"}
    )
    pipeline.add_messages([said], **ADA)
    async with served(pipeline) as client:
        some = (await get(client, "messages", session_id="trip", first=3, last=4))["messages"]
        [last] = (await get(client, "messages", session_id="trip", first=41))["messages"]
        none = (await get(client, "messages", session_id="trip", first=42, last=50))["messages"]
    assert [(one["position"], one["id"], one["role"]) for one in some] == [
        (3, "belem-q1", "human"),
        (4, "belem-a1", "ai"),
    ]
    assert last == {
        "position": 41,
        "id": "long",
        "role": "human",
        "name": "Ada",
        "text": "x" * 9_999 + "…",
        "created_at": "2026-01-02",
        "preservation": "drop",
    }
    assert none == []


async def test_no_more_messages_are_given_than_200(pipeline: ContextPipeline) -> None:
    pipeline.add_messages(talk("many", 120), **ADA)
    async with served(pipeline) as client:
        for query in ({}, {"first": 1, "last": 280}):
            assert len((await get(client, "messages", session_id="trip", **query))["messages"]) == MOST_MESSAGES


async def test_text_that_utf_8_cannot_hold_is_shown(pipeline: ContextPipeline) -> None:
    pipeline.add_messages(
        [HumanMessage("half \ud83d, and \x00", id="odd")], user_id="ada", conversation_id="odd \ud83d"
    )
    pipeline.add_messages([HumanMessage("half \ud83d", id="odd")], user_id="ada", conversation_id="odd")
    async with served(pipeline) as client:
        assert "odd \ud83d" in {one["session_id"] for one in (await get(client, "sessions"))["sessions"]}
        assert (await get(client, "messages", session_id="odd"))["messages"][0]["text"] == "half \ud83d"
        await get(client, "status", session_id="odd")


# Previews


async def test_a_preview_at_another_budget_is_what_reallocate_gives(pipeline: ContextPipeline) -> None:
    async with served(pipeline) as client:
        given = await get(client, "preview", session_id="trip", message="What about day 3?")
        other = await get(client, "preview", session_id="trip", message="What about day 3?", budget=400)
    report = pipeline.assemble("What about day 3?", **ADA).report
    for answer, expected in ((given, report), (other, report.reallocate(400))):
        shown = answer["current_context"]
        assert (shown["budget_tokens"], shown["total_tokens"]) == (expected.budget_tokens, expected.total_tokens)
        assert shown["forecast"] == expected.forecast
        assert {part["layer"]: part["used_tokens"] for part in shown["layers"]} == {
            part.layer: part.used_tokens for part in expected.layers
        }


async def test_a_budget_is_tried_in_another_thread_than_the_loops(
    pipeline: ContextPipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = []
    reallocate = ContextReport.reallocate

    def noted(report: ContextReport, budget: int) -> ContextReport:
        threads.append(threading.get_ident())
        return reallocate(report, budget)

    monkeypatch.setattr(ContextReport, "reallocate", noted)
    async with served(pipeline) as client:
        await get(client, "preview", session_id="trip", budget=400)
        await get(client, "preview", session_id="trip", budget=500)
    assert len(threads) == 2
    assert threading.get_ident() not in threads


async def test_trying_a_budget_assembles_nothing_again(
    pipeline: ContextPipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    forecast = Engine.forecast

    def noted(self: Engine, scope: Scope, message: str, *options: Any) -> Any:
        asked.append(message)
        return forecast(self, scope, message, *options)

    monkeypatch.setattr(Engine, "forecast", noted)
    async with served(pipeline) as client:
        for budget in (300, 400, 500):
            await get(client, "preview", session_id="trip", message="Day 3?", budget=budget)
        assert asked == ["Day 3?"]
        await get(client, "preview", session_id="trip", message="Day 3?")
        assert asked == ["Day 3?"] * 2
        pipeline.add_messages([HumanMessage("More")], **ADA)
        await get(client, "preview", session_id="trip", message="Day 3?", budget=400)
        assert asked == ["Day 3?"] * 3


async def test_a_preview_stores_nothing_that_is_said_and_leaves_no_trace_in_the_pipeline(
    pipeline: ContextPipeline,
) -> None:
    async with served(pipeline) as client:
        await get(client, "preview", session_id="trip", message="Is xyzzy a word?")
        await get(client, "preview", session_id="trip", message="Is xyzzy a word?", budget=300)
    assert pipeline.flush(30)
    assert not any("xyzzy" in line for line in pipeline.export_user(user_id="ada"))
    assert pipeline.snapshots.list(**ADA) == []
    with pytest.raises(InputError, match="Nothing was assembled"):
        pipeline.what_if([300])


async def test_a_budget_that_is_too_small_is_a_conflict_that_names_the_floors(pipeline: ContextPipeline) -> None:
    async with served(pipeline) as client:
        problem = await get(client, "preview", 409, session_id="trip", budget=5)
    assert sum(problem["floors"].values()) > 5
    assert "5 tokens" in problem["error"]


async def test_a_larger_budget_can_be_tried_where_that_of_the_settings_is_too_small(pipeline: ContextPipeline) -> None:
    pipeline.save_settings({"max_context_tokens": 5}, user_id="ada")
    async with served(pipeline) as client:
        await get(client, "status", 409, session_id="trip")
        shown = await get(client, "preview", session_id="trip", budget=600)
    assert 5 < shown["current_context"]["total_tokens"] <= 600


# What items quote


async def test_the_items_of_a_snapshot_quote_what_they_stand_for(pipeline: ContextPipeline) -> None:
    KnowledgeBase(pipeline.store, user_id="ada").add(
        "The tower of Belem opens at nine.", metadata={"source": "guide.txt", "title": "Guide"}
    )
    pipeline.add_messages(
        [HumanMessage("The tower of Belem was full.", id="m1")], user_id="ada", conversation_id="50%/a"
    )
    question = "When does the tower of Belem open on day 3?"
    live = kept(pipeline, question).to_dict()
    async with served(pipeline) as client:
        shown = (await get(client, "status", session_id="trip"))["current_context"]
    quoted = {item["id"]: item["preview"] for layer in shown["layers"] for item in layer["items"]}
    assert quoted["belem-a19"].startswith("On day 19 you see the tower")
    assert quoted["50%25%2Fa/m1"] == "The tower of Belem was full."
    assert "Guide" in {item["preview"] for item in items_of(shown, "L5") if item["source"] == "documents"}
    assert [item["id"] for item in items_of(live, "L5")] == [item["id"] for item in items_of(shown, "L5")]


async def test_a_line_of_a_summary_quotes_the_message_that_it_comes_from(pipeline: ContextPipeline) -> None:
    said = demo_messages()
    pipeline.add_messages(said, user_id="ada", conversation_id="demo")
    pipeline.save_settings({"max_context_tokens": 3_000}, user_id="ada")
    kept(pipeline, user_id="ada", conversation_id="demo")
    async with served(pipeline) as client:
        shown = (await get(client, "status", session_id="demo"))["current_context"]
    lines = [item for layer in ("L4", "L6") for item in items_of(shown, layer) if item["id"].startswith("message ")]
    assert lines
    for item in lines:
        assert item["preview"] == preview(said[int(item["id"].removeprefix("message ")) - 1].text)


def lines_of(report: dict[str, Any]) -> dict[int, str]:
    """What the lines of summary and arc quote, by the position that they go by."""
    items = [item for layer in ("L4", "L6") for item in items_of(report, layer)]
    mark = "message "
    return {int(item["id"].removeprefix(mark)): item["preview"] for item in items if item["id"].startswith(mark)}


@pytest.fixture
def summed_up(pipeline: ContextPipeline) -> ContextPipeline:
    """With a conversation of which a snapshot has lines of a summary."""
    pipeline.add_messages(demo_messages(), user_id="ada", conversation_id="demo")
    pipeline.save_settings({"max_context_tokens": 3_000}, user_id="ada")
    kept(pipeline, user_id="ada", conversation_id="demo")
    return pipeline


async def test_a_line_of_a_summary_quotes_nothing_where_its_message_has_moved(summed_up: ContextPipeline) -> None:
    first = demo_messages()[0].id
    async with served(summed_up) as client:
        before = await get(client, "status", session_id="demo")
        summed_up.remove_messages(str(first), user_id="ada", conversation_id="demo")
        after = await get(client, "status", session_id="demo")
    assert all(lines_of(before["current_context"]).values())
    assert before["steady_messages"] == len(demo_messages())
    assert set(lines_of(after["current_context"]).values()) == {""}
    assert after["steady_messages"] == 0


async def test_what_was_said_since_moves_no_message(summed_up: ContextPipeline) -> None:
    async with served(summed_up) as client:
        before = await get(client, "status", session_id="demo")
        summed_up.add_messages([HumanMessage("One more")], user_id="ada", conversation_id="demo")
        after = await get(client, "status", session_id="demo")
    assert after["current_context"] == before["current_context"]
    assert after["steady_messages"] == before["steady_messages"] == len(demo_messages())


async def test_messages_before_one_that_was_removed_are_where_they_were(summed_up: ContextPipeline) -> None:
    gone = len(demo_messages()) - 2
    async with served(summed_up) as client:
        before = await get(client, "status", session_id="demo")
        summed_up.remove_messages(str(demo_messages()[gone - 1].id), user_id="ada", conversation_id="demo")
        after = await get(client, "status", session_id="demo")
    assert lines_of(after["current_context"]) == lines_of(before["current_context"])
    assert after["steady_messages"] == gone - 1


async def test_in_a_preview_every_message_is_where_it_is(pipeline: ContextPipeline) -> None:
    async with served(pipeline) as client:
        shown = await get(client, "preview", session_id="trip")
    assert shown["steady_messages"] == 40


async def test_what_is_known_of_the_user_is_quoted_as_long_as_it_is_known(pipeline: ContextPipeline) -> None:
    fact = pipeline.knowledge.add_fact("Lives in Porto", user_id="ada")
    pipeline.save_settings({"learn": True}, user_id="ada")
    kept(pipeline)
    async with served(pipeline) as client:
        shown = (await get(client, "status", session_id="trip"))["current_context"]
        assert {item["id"]: item["preview"] for item in items_of(shown, "L1")}[fact.id] == "Lives in Porto"
        pipeline.knowledge.delete(fact.id, user_id="ada")
        shown = (await get(client, "status", session_id="trip"))["current_context"]
        assert {item["id"]: item["preview"] for item in items_of(shown, "L1")}[fact.id] == ""


async def test_a_message_that_was_forgotten_is_not_quoted_again(pipeline: ContextPipeline) -> None:
    kept(pipeline)
    async with served(pipeline) as client:
        before = await get(client, "status", session_id="trip")
        pipeline.remove_messages("belem-q19", on_removal="forget", **ADA)
        after = await get(client, "status", session_id="trip")
    assert "belem 19" in json.dumps(before)
    assert "belem 19" not in json.dumps(after)


# Changes


async def test_a_pin_is_shown_and_changes_the_next_preview(pipeline: ContextPipeline) -> None:
    pin = {"session_id": "trip", "message_id": "belem-q0", "preservation": "keep"}
    async with served(pipeline) as client:
        await get(client, "preview", session_id="trip", message="And?", budget=690)
        assert await post(client, "pins", pin) == pin
        [first] = (await get(client, "messages", session_id="trip", first=1, last=1))["messages"]
        shown = (await get(client, "preview", session_id="trip", message="And?", budget=690))["current_context"]
        await post(client, "pins", {**pin, "preservation": None})
        [taken_back] = (await get(client, "messages", session_id="trip", first=1, last=1))["messages"]
    assert first["preservation"] == "keep"
    assert "pinned" in {item["reason"] for item in items_of(shown, "L6") if item["id"] == "belem-q0"}
    assert taken_back["preservation"] is None


async def test_a_fact_is_pinned(pipeline: ContextPipeline) -> None:
    facts = [pipeline.knowledge.add_fact(f"Has been to place {number}", user_id="ada") for number in range(11)]
    async with served(pipeline) as client:
        for fact in facts[:10]:
            assert await post(client, "pins", {"fact_id": fact.id, "pinned": True}) == {
                "fact_id": fact.id,
                "pinned": True,
            }
        problem = await post(client, "pins", {"fact_id": facts[10].id, "pinned": True}, 409)
        await post(client, "pins", {"fact_id": facts[0].id, "pinned": False})
    assert "10" in problem["error"]
    pinned = {fact.id for fact in pipeline.knowledge.list_facts(user_id="ada") if fact.pinned}
    assert pinned == {fact.id for fact in facts[1:10]}


async def test_what_is_forced_joins_the_users_settings(pipeline: ContextPipeline) -> None:
    pipeline.save_settings({"preferences": ["Be brief."], "max_context_tokens": 900}, user_id="ada")
    async with served(pipeline) as client:
        answer = await post(client, "force", {"force_include": ["documents", "budget", "documents"]})
        assert answer == await get(client, "settings")
    assert answer == {"force_include": ["documents", "budget"], "usage_limits": None, "max_context_tokens": 900}
    saved = {"preferences": ["Be brief."], "max_context_tokens": 900, "force_include": ["documents", "budget"]}
    assert pipeline.get_settings(user_id="ada") == saved


async def test_the_limits_that_apply_are_shown(pipeline: ContextPipeline) -> None:
    pipeline.save_settings({"usage_limits": {"month_cost": 2.5}}, user_id="ada")
    async with served(pipeline) as client:
        shown = (await get(client, "settings"))["usage_limits"]
    assert shown == {
        "session_tokens": None,
        "session_cost": None,
        "month_tokens": None,
        "month_cost": 2.5,
        "thresholds": [0.8, 0.6, 0.4],
    }


async def test_saved_settings_that_cannot_be_used_are_left_out(pipeline: ContextPipeline) -> None:
    store = pipeline.store
    pipeline.save_settings({"max_context_tokens": 900}, user_id="ada")
    [item] = [
        found for found in store.search(("ctxbudget",), limit=1_000) if found.value == {"max_context_tokens": 900}
    ]
    store.put(item.namespace, item.key, {"max_context_tokens": -1})
    async with served(pipeline) as client:
        assert (await get(client, "settings"))["max_context_tokens"] == 700


# What is refused


@pytest.mark.parametrize(
    ("path", "query"),
    [
        *((path, {}) for path in OF_SESSION),
        *((path, {"session_id": ""}) for path in OF_SESSION),
        *((path, [("session_id", "trip"), ("session_id", "trip")]) for path in OF_SESSION),
        *((path, {"session_id": "t" * (LONGEST_ID + 1)}) for path in OF_SESSION),
        *(
            ("snapshots", {"session_id": "trip", "limit": limit})
            for limit in ("abc", "0", "-1", "1001", "1e9", "9" * 40, "")
        ),
        *(
            ("preview", {"session_id": "trip", "budget": budget})
            for budget in ("abc", "0", "-1", "1.5", "9" * 40, "null")
        ),
        *(("preview", {"session_id": "trip", "message": text}) for text in ("", " \n", "w" * 10_001)),
        *(("messages", {"session_id": "trip", place: "0"}) for place in ("first", "last")),
        ("messages", {"session_id": "trip", "first": "9" * 40}),
    ],
)
async def test_a_question_that_cannot_be_meant_is_refused(pipeline: ContextPipeline, path: str, query: Any) -> None:
    async with served(pipeline) as client:
        answer = await client.get(f"{API}/{path}", params=query)
    assert answer.status_code == 400
    assert set(answer.json()) == {"error"}


@pytest.mark.parametrize("path", OF_SESSION)
async def test_an_unknown_session_and_that_of_another_user_are_answered_alike(
    pipeline: ContextPipeline, path: str
) -> None:
    kept(pipeline, **BO)
    async with served(pipeline) as client:
        unknown, foreign = [
            await client.get(f"{API}/{path}", params={"session_id": name}) for name in ("nowhere", "secret plans")
        ]
    assert unknown.status_code == 404
    assert (unknown.status_code, unknown.content) == (foreign.status_code, foreign.content)


@pytest.mark.parametrize("name", ["%00", "a%00b", "%20", "%ED%A0%BD", "%C3%A9", "a" * 201])
async def test_an_id_that_no_snapshot_can_have_is_refused(pipeline: ContextPipeline, name: str) -> None:
    async with served(pipeline) as client:
        await get(client, f"snapshots/{name}", 400, session_id="trip")


async def test_a_snapshot_of_another_conversation_is_not_found(pipeline: ContextPipeline) -> None:
    kept(pipeline, **BO)
    [snapshot] = pipeline.snapshots.list(**BO)
    async with served(pipeline) as client:
        await get(client, f"snapshots/{snapshot.id}", 404, session_id="trip")


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("pins", {"session_id": "trip", "message_id": "nobody's", "preservation": "keep"}, 404),
        ("pins", {"session_id": "secret plans", "message_id": "zanzibar-q1", "preservation": "keep"}, 404),
        ("pins", {"session_id": "trip", "message_id": "belem-q1", "preservation": "burn"}, 400),
        ("pins", {"session_id": "trip", "message_id": "belem-q1"}, 400),
        ("pins", {"session_id": "trip", "message_id": "belem-q1", "preservation": "keep", "user_id": "bo"}, 400),
        ("pins", {"fact_id": "unknown", "pinned": True}, 404),
        ("pins", {"fact_id": "unknown", "pinned": 1}, 400),
        ("pins", [], 400),
        ("pins", "trip", 400),
        ("force", {"force_include": ["everything"]}, 400),
        ("force", {"force_include": "budget"}, 400),
        ("force", {"force_include": ["budget"] * 17}, 400),
        ("force", {}, 400),
    ],
)
async def test_a_change_that_cannot_be_meant_is_refused(
    pipeline: ContextPipeline, path: str, body: object, status: int
) -> None:
    before = pipeline.export_user(user_id="ada"), pipeline.export_user(user_id="bo")
    async with served(pipeline) as client:
        await post(client, path, body, status)
    assert (pipeline.export_user(user_id="ada"), pipeline.export_user(user_id="bo")) == before


@pytest.mark.parametrize(
    "content", [b"", b"{", b"\xff", b"[" * 50_000, b'{"force_include": ["\\ud800"]}', b"9" * 5_000]
)
async def test_a_body_that_is_no_json_is_refused(pipeline: ContextPipeline, content: bytes) -> None:
    async with served(pipeline) as client:
        answer = await client.post(f"{API}/force", content=content, headers={"Content-Type": "application/json"})
    assert answer.status_code == 400


async def test_a_body_that_is_too_large_is_refused(pipeline: ContextPipeline) -> None:
    async with served(pipeline) as client:
        answer = await client.post(f"{API}/force", json={"force_include": "x" * 100_000})
    assert answer.status_code == 413


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=a", ""]
)
async def test_a_body_of_a_kind_that_a_form_can_send_is_refused(pipeline: ContextPipeline, kind: str) -> None:
    async with served(pipeline) as client:
        answer = await client.post(
            f"{API}/force", content=b'{"force_include": ["budget"]}', headers={"Content-Type": kind}
        )
    assert answer.status_code == 415
    assert pipeline.get_settings(user_id="ada") == {}


async def test_a_method_that_there_is_not_is_refused_as_json(pipeline: ContextPipeline) -> None:
    async with served(pipeline) as client:
        wrong = await client.delete(f"{API}/status")
        unknown = await client.get(f"{API}/nothing")
    assert (wrong.status_code, set(wrong.headers["allow"].split(", "))) == (405, {"GET", "HEAD"})
    assert (unknown.status_code, unknown.json()) == (404, {"error": "Not Found"})


# Faults


class BrokenStore(InMemoryStore):
    """A store that stops working."""

    broken = False

    async def abatch(self, ops: Any) -> Any:
        if self.broken:
            raise ConnectionError("password=hunter2 refused by 10.0.0.1")
        return await super().abatch(ops)


async def test_a_store_that_fails_is_told_plainly(caplog: pytest.LogCaptureFixture) -> None:
    store = BrokenStore()
    pipeline = ContextPipeline({"learn": False}, store=store)
    pipeline.add_messages(talk("belem", 2), **ADA)
    store.broken = True
    async with served(pipeline) as client:
        answer = await client.get(f"{API}/status", params={"session_id": "trip"})
    assert answer.status_code == 503
    assert set(answer.json()) == {"error"}
    assert "hunter2" not in answer.text
    assert "hunter2" in caplog.text


async def test_a_damaged_snapshot_hides_nothing_else(pipeline: ContextPipeline) -> None:
    pipeline.add_messages(talk("sintra"), user_id="ada", conversation_id="other")
    kept(pipeline)
    place = Scope("ada", "trip").namespace(SNAPSHOTS)
    pipeline.store.put(place, "9", {"created_at": "never"}, index=False)
    async with served(pipeline) as client:
        sessions = (await get(client, "sessions"))["sessions"]
        assert {one["session_id"]: one["total_tokens"] for one in sessions} == {"trip": None, "other": None}
        assert (await get(client, "status", session_id="trip"))["source"] == "preview"


async def test_a_closed_pipeline_is_told_plainly(pipeline: ContextPipeline) -> None:
    pipeline.close()
    async with served(pipeline) as client:
        await get(client, "sessions", 503)


# Who is let in


@pytest.mark.parametrize("host", ["localhost:8642", "127.0.0.1", "LOCALHOST", "[::1]:80"])
async def test_the_dashboard_goes_by_the_names_of_this_machine(pipeline: ContextPipeline, host: str) -> None:
    async with served(pipeline) as client:
        assert (await client.get(f"{API}/settings", headers={"Host": host})).status_code == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "localhost.evil.example", "evil.example:8642", "127.0.0.1.nip.io", "", "[", "a b"]
)
async def test_another_name_is_refused(pipeline: ContextPipeline, host: str) -> None:
    async with served(pipeline) as client:
        for path in ("/", "/openapi.json", f"{API}/sessions"):
            answer = await client.get(path, headers={"Host": host})
            assert (answer.status_code, set(answer.json())) == (421, {"error"})


async def test_another_machine_is_refused_where_there_is_no_token(pipeline: ContextPipeline) -> None:
    async with client_of(create_app(pipeline, user_id="ada"), machine="192.0.2.7") as client:
        await get(client, "sessions", 403)
        assert (await client.get("/")).status_code == 403


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": "Bearer wrong"},
        {"Authorization": "Bearer "},
        {"Authorization": f"Basic {TOKEN}"},
        {"Authorization": f"Bearer {TOKEN}x"},
        {"Authorization": "Bearer \xe9"},
        {"Cookie": f"ctxbudget_dashboard={TOKEN}"},
        {"Cookie": "ctxbudget_dashboard="},
    ],
)
async def test_without_the_token_nothing_is_shown(pipeline: ContextPipeline, headers: dict[str, str]) -> None:
    encoded = {name: value.encode("latin-1") for name, value in headers.items()}
    async with served(pipeline, token=TOKEN) as client:
        for path in ("/", "/openapi.json", "/assets/page.js", f"{API}/sessions", f"{API}/sessions?token={TOKEN}"):
            answer = await client.get(path, headers=encoded)
            assert (answer.status_code, answer.json()) == (401, {"error": "The token is missing or wrong"})


async def test_the_token_lets_other_machines_in(pipeline: ContextPipeline) -> None:
    app = create_app(pipeline, user_id="ada", token=TOKEN, hosts=["*"])
    async with client_of(app, "http://box.example:8642", "192.0.2.7") as client:
        client.headers["Authorization"] = f"Bearer {TOKEN}"
        assert (await get(client, "sessions"))["user_id"] == "ada"


async def test_a_browser_gets_a_cookie_for_the_token_which_does_not_tell_it(pipeline: ContextPipeline) -> None:
    async with served(pipeline, token=TOKEN) as client:
        answer = await client.get("/", params={"token": TOKEN})
        cookie = answer.headers["set-cookie"]
        assert (answer.status_code, answer.headers["location"]) == (303, "./")
        assert {"HttpOnly", "SameSite=strict", "Path=/"} <= set(cookie.split("; "))
        assert "Secure" not in cookie
        assert "token" not in cookie
        assert (await get(client, "sessions"))["user_id"] == "ada"
        assert (await client.get("/")).status_code == 200


async def test_the_cookie_is_for_encrypted_connections_where_there_is_one(pipeline: ContextPipeline) -> None:
    async with client_of(create_app(pipeline, user_id="ada", token=TOKEN), "https://localhost") as client:
        assert "; Secure" in (await client.get("/", params={"token": TOKEN})).headers["set-cookie"]


@pytest.mark.parametrize("given", [["wrong"], [""], [TOKEN, TOKEN], [TOKEN, "wrong"]])
async def test_a_wrong_token_in_the_address_gives_no_cookie(pipeline: ContextPipeline, given: list[str]) -> None:
    async with served(pipeline, token=TOKEN) as client:
        answer = await client.get("/", params={"token": given})
    assert answer.status_code == 401
    assert "set-cookie" not in answer.headers


FOREIGN_PAGES = [
    {"Origin": "https://evil.example"},
    {"Origin": "null"},
    {"Origin": ""},
    {"Origin": "http://["},
    {"Origin": "localhost"},
    {"Origin": "http://localhost:3000"},
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},
    {"Sec-Fetch-Site": "cross-site", "Origin": "http://localhost"},
]


@pytest.mark.parametrize("headers", FOREIGN_PAGES)
async def test_pages_of_other_sites_are_refused(pipeline: ContextPipeline, headers: dict[str, str]) -> None:
    async with served(pipeline) as client:
        changed = await client.post(f"{API}/force", json={"force_include": ["budget"]}, headers=headers)
        read = await client.get(f"{API}/sessions", headers=headers)
    assert (changed.status_code, read.status_code) == (403, 403)
    assert pipeline.get_settings(user_id="ada") == {}


async def test_the_page_itself_may_change_things(pipeline: ContextPipeline) -> None:
    headers = {"Origin": "http://localhost", "Sec-Fetch-Site": "same-origin"}
    async with served(pipeline) as client:
        changed = await client.post(f"{API}/force", json={"force_include": ["budget"]}, headers=headers)
    assert changed.status_code == 200


async def test_other_sites_may_link_to_the_page(pipeline: ContextPipeline) -> None:
    async with served(pipeline) as client:
        assert (await client.get("/", headers={"Sec-Fetch-Site": "cross-site"})).status_code == 200


def by_header(request: Request) -> str | None:
    return request.headers.get("x-user")


async def test_every_request_is_for_the_user_whom_the_function_names(pipeline: ContextPipeline) -> None:
    async with served(pipeline, user_id=by_header) as client:
        for user, name in (("ada", "trip"), ("bo", "secret plans")):
            answer = await client.get(f"{API}/sessions", headers={"X-User": user})
            found = answer.json()
            assert found["user_id"] == user
            assert [one["session_id"] for one in found["sessions"]] == [name]


@pytest.mark.parametrize("user_of", [lambda _: None, lambda _: "", lambda _: 7])
async def test_nobody_is_shown_nothing(pipeline: ContextPipeline, user_of: Callable[[Request], Any]) -> None:
    async with served(pipeline, user_id=user_of) as client:
        await get(client, "sessions", 401)
        await get(client, "status", 401, session_id="trip")
        await post(client, "force", {"force_include": []}, 401)


async def test_a_function_that_fails_lets_nobody_in(pipeline: ContextPipeline) -> None:
    def fails(_: Request) -> str:
        raise LookupError("the identity provider is down")

    async with served(pipeline, user_id=fails) as client:
        problem = await get(client, "sessions", 503)
    assert "identity" not in problem["error"]


async def test_what_one_user_was_shown_is_not_shown_to_another(pipeline: ContextPipeline) -> None:
    pipeline.add_messages(talk("mombasa"), user_id="bo", conversation_id="trip")
    async with served(pipeline, user_id=by_header) as client:
        for path in ("status", "preview", "messages", "preview?budget=400"):
            for user, own, foreign in (("ada", "belem", "mombasa"), ("bo", "mombasa", "belem")):
                answer = await client.get(
                    f"{API}/{path}&session_id=trip" if "?" in path else f"{API}/{path}?session_id=trip",
                    headers={"X-User": user},
                )
                assert own in answer.text
                assert foreign not in answer.text


@pytest.mark.parametrize(
    ("method", "path", "headers"),
    [
        ("GET", "/", {}),
        ("GET", "/assets/page.css", {}),
        ("GET", "/assets/nothing.js", {}),
        ("GET", "/openapi.json", {}),
        ("GET", f"{API}/sessions", {}),
        ("GET", f"{API}/status", {}),
        ("GET", f"{API}/status?session_id=%0d%0aX-Evil:1", {}),
        ("GET", "/nothing%0d%0aX-Evil:1", {}),
        ("GET", f"{API}/sessions/", {}),
        ("DELETE", f"{API}/sessions", {}),
        ("POST", f"{API}/force", {}),
        ("GET", "/", {"Host": "evil.example"}),
        ("GET", f"{API}/sessions", {"Sec-Fetch-Site": "cross-site"}),
    ],
)
async def test_every_answer_tells_browsers_to_be_careful(
    pipeline: ContextPipeline, method: str, path: str, headers: dict[str, str]
) -> None:
    async with served(pipeline) as client:
        answer = await client.request(method, path, headers=headers)
    policy = dict(part.strip().split(" ", 1) for part in answer.headers["content-security-policy"].split(";"))
    assert policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cache-control"] == "no-store"
    assert "evil" not in str(answer.headers).lower()
    assert "location" not in answer.headers


# The application


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"user_id": ""}, MissingScopeError),
        ({"user_id": None}, MissingScopeError),
        ({"user_id": "ada", "hosts": ["box.example"]}, InvalidSettingsError),
        ({"user_id": "ada", "hosts": ["*"]}, InvalidSettingsError),
        ({"user_id": "ada", "hosts": "localhost"}, InvalidSettingsError),
        ({"user_id": "ada", "token": ""}, InvalidSettingsError),
        ({"user_id": "ada", "token": "x"}, InvalidSettingsError),
        ({"user_id": "ada", "token": "x" * 15, "hosts": ["*"]}, InvalidSettingsError),
        ({"user_id": "ada", "token": " " * 20}, InvalidSettingsError),
        ({"user_id": "ada", "token": " "}, InvalidSettingsError),
        ({"user_id": "ada", "token": "é"}, InvalidSettingsError),
        ({"user_id": "ada", "token": "a\nb"}, InvalidSettingsError),
    ],
)
def test_an_application_that_would_let_anybody_in_is_not_made(
    pipeline: ContextPipeline, options: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        create_app(pipeline, **options)


async def test_it_works_mounted_in_another_application(pipeline: ContextPipeline) -> None:
    dashboard = create_app(pipeline, user_id="ada", token=TOKEN)
    async with client_of(Starlette(routes=[Mount("/context", dashboard)])) as client:
        answer = await client.get("/context/", params={"token": TOKEN})
        assert (answer.status_code, answer.headers["location"]) == (303, "./")
        page = await client.get("/context/")
        assert page.headers["content-type"] == "text/html; charset=utf-8"
        for path in re.findall(r'(?:src|href)="(assets/[^"]+)"', page.text):
            assert (await client.get(f"/context/{path}")).status_code == 200, path
        assert (await client.get(f"/context{API}/sessions")).json()["user_id"] == "ada"
        assert (await client.get("/context/openapi.json")).json()["servers"] == [{"url": "/context"}]


async def test_only_the_files_of_the_page_are_served(pipeline: ContextPipeline) -> None:
    async with served(pipeline) as client:
        script = await client.get("/assets/page.js")
        assert script.headers["content-type"] == "text/javascript; charset=utf-8"
        for path in ("page.html", "../app.py", "..%2Fapp.py", "%2e%2e/app.py", "nothing.js", "", "%00"):
            assert (await client.get(f"/assets/{path}")).status_code == 404, path


# The command


def stored(folder: Path) -> Path:
    with ChromaStore(folder) as store, ContextPipeline({"keep_snapshots": 3}, store=store) as pipeline:
        pipeline.add_messages(talk("belem", 3), user_id="me", conversation_id="trip")
        pipeline.assemble("Where to?", user_id="me", conversation_id="trip")
        assert pipeline.flush(30)
    return folder


def refused(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    assert main(["dashboard", *map(str, arguments)]) == 1
    return capsys.readouterr().err


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.7", "box.example"])
def test_the_command_lets_no_other_machine_in_without_a_token(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, host: str
) -> None:
    assert "InvalidSettingsError" in refused(capsys, "--store", tmp_path, "--host", host)


@pytest.mark.parametrize("host", ["0.0.0.0", "127.0.0.1"])
def test_the_command_takes_no_token_that_can_be_guessed(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, host: str
) -> None:
    problem = refused(capsys, "--store", tmp_path, "--host", host, "--token", "x" * 15)
    assert "InvalidSettingsError" in problem
    assert "at least 16" in problem


def test_the_command_needs_a_store(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert "StoreError: There is no store" in refused(capsys, "--store", tmp_path / "nothing")
    assert list(tmp_path.iterdir()) == []


def test_the_command_says_what_is_not_installed(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert "pip install 'langchain-ctxbudget[dashboard]'" in refused(capsys, "--store", tmp_path)


@LOOPBACK
def test_the_command_says_that_a_port_is_taken(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "chroma.sqlite3").touch()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        problem = refused(capsys, "--store", tmp_path, "--port", taken.getsockname()[1])
    assert "InvalidSettingsError: Cannot listen on 127.0.0.1" in problem
    assert "--port must be" in refused(capsys, "--store", tmp_path, "--port", 70_000)


@LOOPBACK
@pytest.mark.parametrize("token", [None, TOKEN])
def test_the_command_serves_a_store_until_it_is_interrupted(tmp_path: Path, token: str | None) -> None:
    command = [sys.executable, "-W", "error", "-m", "langchain_ctxbudget.cli", "dashboard", "--port", "0"]
    environment = {**os.environ, **({"CTXBUDGET_DASHBOARD_TOKEN": token} if token else {})}
    server = subprocess.Popen(
        [*command, "--store", str(stored(tmp_path / "store"))],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )
    try:
        assert server.stdout is not None
        address = re.search(r"http://127\.0\.0\.1:\d+/", server.stdout.readline())
        assert address is not None
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        with httpx.Client(base_url=address[0], timeout=60, trust_env=False) as client:
            status = client.get("api/context/status", params={"session_id": "trip"}, headers=headers)
            page = client.get("", headers=headers)
            assert client.get("api/context/sessions").status_code == (401 if token else 200)
        assert (status.status_code, status.json()["source"]) == (200, "snapshot")
        assert "<!doctype html>" in page.text
    finally:
        server.send_signal(signal.SIGINT)
        _, problems = server.communicate(timeout=60)
    assert (server.returncode, problems) == (0, "")
