"""What the dashboard's API answers: sessions, prompts, previews, what is known, and changes."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import AssembledContext, ContextPipeline, ContextReport
from langchain_ctxbudget.budget import Reason
from langchain_ctxbudget.middleware import ContextBudgetMiddleware
from tests.integration_tests.agents import agent_of, scripted
from tests.integration_tests.dashboard import (
    ADA,
    BO,
    get,
    post,
    served,
    talk,
    two_users,
    with_snapshot,
)
from tests.integration_tests.learning_models import Reader
from tests.integration_tests.summary_models import Scripted


@pytest.fixture
def pipeline() -> ContextPipeline:
    return two_users()


def as_written(time: datetime) -> str:
    return time.isoformat().replace("+00:00", "Z")


def text_of(message: dict[str, Any]) -> str:
    return "".join(part["text"] for part in message["parts"])


def items_shown(prompt: list[dict[str, Any]]) -> set[tuple[str, str]]:
    """Returns the layers and ids of the items that a shown prompt has parts of."""
    items = set()
    for message in prompt:
        items |= {(part["layer"], part["item"]) for part in message["parts"] if part["item"]}
    return items


def items_sent(report: dict[str, Any]) -> set[tuple[str, str]]:
    """Returns the layers and ids of the items that were sent, as a report says."""
    items = set()
    for layer in report["layers"]:
        sent = [item["id"] for item in layer["items"] if item["status"] != "omitted"]
        items |= {(layer["layer"], key) for key in sent}
    return items


def items_of(report: dict[str, Any], layer: str) -> list[dict[str, Any]]:
    [items] = [part["items"] for part in report["layers"] if part["layer"] == layer]
    return list(items)


# Sessions


async def sessions_of_ada(pipeline: ContextPipeline) -> list[dict[str, Any]]:
    async with served(pipeline) as client:
        return list((await get(client, "sessions"))["sessions"])


async def test_a_session_has_the_numbers_of_its_newest_snapshot(
    pipeline: ContextPipeline,
) -> None:
    with_snapshot(pipeline)
    report = with_snapshot(pipeline)
    [newest] = pipeline.snapshots.list(**ADA, limit=1)

    assert await sessions_of_ada(pipeline) == [
        {
            "session_id": "trip",
            "title": "belem 0: what about day 0 in Lisbon?",
            "messages": 40,
            "last_updated": as_written(newest.created_at),
            "total_tokens": report.total_tokens,
            "budget_tokens": 700,
            "tier": None,
        }
    ]


async def test_a_session_without_snapshots_stands_last_without_numbers(
    pipeline: ContextPipeline,
) -> None:
    hi = HumanMessage("Hi", additional_kwargs={"created_at": "2020-01-01"})
    pipeline.add_messages([hi], user_id="ada", conversation_id="old")
    with_snapshot(pipeline)

    sessions = await sessions_of_ada(pipeline)

    assert len(sessions) == 2
    assert sessions[1] == {
        "session_id": "old",
        "title": "Hi",
        "messages": 1,
        "last_updated": "2020-01-01T00:00:00Z",
        "total_tokens": None,
        "budget_tokens": None,
        "tier": None,
    }


async def test_sessions_name_their_user(pipeline: ContextPipeline) -> None:
    async with served(pipeline) as client:
        assert (await get(client, "sessions"))["user_id"] == "ada"


async def test_sessions_come_with_the_words_for_every_reason(pipeline: ContextPipeline) -> None:
    async with served(pipeline) as client:
        words = (await get(client, "sessions"))["words"]
    assert words["reasons"] == {str(reason): reason.meaning for reason in Reason}


async def test_a_message_that_is_added_is_counted(pipeline: ContextPipeline) -> None:
    with_snapshot(pipeline)
    pipeline.add_messages([HumanMessage("One more")], **ADA)
    assert (await sessions_of_ada(pipeline))[0]["messages"] == 41


async def test_messages_that_are_removed_are_not_counted(pipeline: ContextPipeline) -> None:
    with_snapshot(pipeline)
    pipeline.remove_messages(["belem-q0"], **ADA)
    assert (await sessions_of_ada(pipeline))[0]["messages"] == 39


# Snapshots


@dataclass
class Snapshots:
    """A pipeline that has kept two snapshots of a session, and their reports."""

    pipeline: ContextPipeline
    older: ContextReport
    newer: ContextReport

    async def get(self, path: str, status: int = 200, **query: Any) -> Any:
        async with served(self.pipeline) as client:
            return await get(client, path, status, session_id="trip", **query)


@pytest.fixture
def snapshots(pipeline: ContextPipeline) -> Snapshots:
    long = "A much longer question, about everything that there is to see?"
    older = with_snapshot(pipeline, long)
    return Snapshots(pipeline, older, with_snapshot(pipeline, "And then?"))


async def test_the_status_is_that_of_the_newest_snapshot(snapshots: Snapshots) -> None:
    status = await snapshots.get("status")
    assert status["source"] == "snapshot"
    assert {**status["current_context"], "layers": 0} == {**snapshots.newer.to_dict(), "layers": 0}


async def test_the_status_has_the_share_of_the_budget(snapshots: Snapshots) -> None:
    percent = round(100 * snapshots.newer.total_tokens / 700, 1)
    assert (await snapshots.get("status"))["budget_percent"] == percent


async def test_the_status_has_the_strategy_of_pruning(snapshots: Snapshots) -> None:
    assert (await snapshots.get("status"))["pruning_strategy"] == {
        "budget_range": ">80%",
        "tier1_messages": 1,
        "tier2_items": "all",
        "tier3_mode": "full",
        "tier4_messages": "as budgeted",
    }


async def test_an_earlier_snapshot_is_shown(snapshots: Snapshots) -> None:
    [older, _] = snapshots.pipeline.snapshots.list(**ADA)
    shown = await snapshots.get(f"snapshots/{older.id}")
    assert shown["current_context"]["total_tokens"] == snapshots.older.total_tokens
    assert shown["last_updated"] == as_written(older.created_at)


async def test_a_snapshot_of_an_unknown_id_is_not_found(snapshots: Snapshots) -> None:
    await snapshots.get("snapshots/unknown", 404)


@pytest.fixture
async def newest_line(snapshots: Snapshots) -> dict[str, Any]:
    """The line of the newest snapshot in the list of snapshots."""
    [line] = (await snapshots.get("snapshots", limit=1))["snapshots"]
    return dict(line)


async def test_the_line_of_a_snapshot_adds_up(
    snapshots: Snapshots, newest_line: dict[str, Any]
) -> None:
    parts = sum(newest_line["layers"].values()) + newest_line["overhead_tokens"]
    assert parts == newest_line["total_tokens"]
    assert newest_line["total_tokens"] == snapshots.newer.total_tokens


async def test_the_line_of_a_snapshot_has_its_messages_and_budget(
    newest_line: dict[str, Any],
) -> None:
    assert newest_line["messages"] == 40
    assert newest_line["budget_tokens"] == 700


async def test_the_line_of_a_snapshot_has_its_effective_tokens(
    snapshots: Snapshots, newest_line: dict[str, Any]
) -> None:
    assert newest_line["effective_tokens"] == snapshots.newer.stability.effective_tokens


@pytest.fixture
async def behind_a_call_that_learns() -> AsyncIterator[httpx.AsyncClient]:
    """A client of a conversation whose kept prompt stands behind a call that learns."""
    settings = {"max_context_tokens": 900, "keep_snapshots": 3}
    with ContextPipeline(settings, store=InMemoryStore(), summary_model=Reader()) as pipeline:
        pipeline.add_messages([HumanMessage("I like tea.")], **ADA)
        pipeline.end_session(**ADA)
        assert pipeline.flush(30)
        with_snapshot(pipeline)
        async with served(pipeline) as client:
            yield client


async def test_the_line_of_a_snapshot_has_the_cost_of_own_calls(
    behind_a_call_that_learns: httpx.AsyncClient,
) -> None:
    [line] = (await get(behind_a_call_that_learns, "snapshots", session_id="trip"))["snapshots"]
    assert line["own_effective_tokens"] > 500


async def test_usage_tells_own_calls_apart(behind_a_call_that_learns: httpx.AsyncClient) -> None:
    usage = await get(behind_a_call_that_learns, "usage", session_id="trip")
    assert usage["own"]["session"]["calls"] == usage["own"]["month"]["calls"] == 1


# Prompts


@dataclass
class Previewed:
    """A prompt as a preview shows it, as it was then sent, and the prompt before it."""

    shown: dict[str, Any]
    sent: AssembledContext
    before: AssembledContext

    @property
    def prompt(self) -> list[dict[str, Any]]:
        return list(self.shown["prompt"])


async def previewed_in(layout: str) -> Previewed:
    settings = {
        "max_context_tokens": 900,
        "layout": layout,
        "preferences": ["Be brief."],
        "topics": [{"label": "Lisbon", "context": "A city by the river."}],
    }
    store = InMemoryStore()
    with ContextPipeline(settings, system_prompt="You plan trips.", store=store) as pipeline:
        pipeline.add_messages(talk("belem"), **ADA)
        question = "What about day 3 in Lisbon?"
        before = pipeline.assemble(question, **ADA)
        pipeline.add_messages([HumanMessage(question), AIMessage("A tower.")], **ADA)
        async with served(pipeline) as client:
            shown = await get(client, "preview", session_id="trip", message="And what about day 5?")
        sent = pipeline.assemble("And what about day 5?", **ADA)
    return Previewed(shown, sent, before)


@pytest.fixture(scope="module", params=["cache_first", "system_first"])
def previewed(request: pytest.FixtureRequest) -> Previewed:
    return asyncio.run(previewed_in(request.param))


def test_the_next_prompt_is_shown_word_for_word(previewed: Previewed) -> None:
    shown = [(message["role"], text_of(message)) for message in previewed.prompt]
    assert shown == [(message.type, message.text.strip()) for message in previewed.sent.messages]


def test_the_next_prompt_is_shown_in_parts_of_its_items(previewed: Previewed) -> None:
    assert items_shown(previewed.prompt) == items_sent(previewed.shown["current_context"])


def test_the_items_of_a_preview_are_those_that_are_sent(previewed: Previewed) -> None:
    assert items_shown(previewed.prompt) == items_sent(previewed.sent.report.to_dict())


def test_tokens_of_the_shown_messages_add_up(previewed: Previewed) -> None:
    """Three more frame the request."""
    tokens = [message["tokens"] for message in previewed.prompt]
    assert sum(tokens) + 3 == previewed.sent.report.total_tokens


def test_what_is_as_in_the_last_prompt_is_shown_as_cached(previewed: Previewed) -> None:
    cached = 0
    for message in previewed.prompt:
        cached += sum(len(part["text"]) for part in message["parts"] if part["cached"])
    before = joined(previewed.before.messages)
    now = joined(previewed.sent.messages)
    assert cached == same_characters(before, now)


def joined(messages: list[BaseMessage]) -> str:
    return "".join(message.text.strip() for message in messages)


def same_characters(before: str, now: str) -> int:
    """Returns how many characters two texts share at their beginning."""
    count = 0
    for old, new in zip(before, now, strict=False):
        if old != new:
            break
        count += 1
    return count


@pytest.fixture
async def earlier(pipeline: ContextPipeline) -> dict[str, Any]:
    """The status of a session that has gone on since its prompt was made."""
    with_snapshot(pipeline, "Where to?")
    pipeline.add_messages([HumanMessage("Where to?"), AIMessage("To Porto.")], **ADA)
    async with served(pipeline) as client:
        return dict(await get(client, "status", session_id="trip"))


async def test_an_earlier_prompt_is_shown_in_parts_of_its_items(earlier: dict[str, Any]) -> None:
    assert items_shown(earlier["prompt"]) == items_sent(earlier["current_context"])


async def test_an_earlier_prompt_begins_with_the_system_prompt(earlier: dict[str, Any]) -> None:
    first = earlier["prompt"][0]
    assert first["role"] == "system"
    assert text_of(first) == "You plan trips."


async def test_an_earlier_prompt_ends_with_its_question(earlier: dict[str, Any]) -> None:
    assert text_of(earlier["prompt"][-1]).endswith("Where to?")


async def test_an_earlier_prompt_has_the_answer_before_it(earlier: dict[str, Any]) -> None:
    answers = [text_of(message) for message in earlier["prompt"] if message["role"] == "ai"]
    assert answers[-1] == talk("belem")[-1].text.strip()


@dataclass
class Replayed:
    """What is shown of a session that has no snapshots, and later of one that has."""

    snapshots: dict[str, Any]
    again: dict[str, Any]
    last: dict[str, Any]
    export_before: list[str]
    export_after: list[str]
    longer: dict[str, Any]
    kept: list[Any]
    own: dict[str, Any]


async def replay_of(pipeline: ContextPipeline) -> Replayed:
    export_before = pipeline.export_user(user_id="ada")
    async with served(pipeline) as client:
        snapshots = await get(client, "snapshots", session_id="trip")
        newest = snapshots["snapshots"][-1]["id"]
        last = await get(client, f"snapshots/{newest}", session_id="trip")
        again = await get(client, "snapshots", session_id="trip")
        export_after = pipeline.export_user(user_id="ada")
        tram = [HumanMessage("And the tram?", id="new"), AIMessage("Line 28.")]
        pipeline.add_messages(tram, **ADA)
        longer = await get(client, "snapshots", session_id="trip")
        kept = list(pipeline.snapshots.list(**ADA))
        with_snapshot(pipeline)
        own = await get(client, "snapshots", session_id="trip")
    return Replayed(snapshots, again, last, export_before, export_after, longer, kept, own)


@pytest.fixture(scope="module")
def replayed() -> Replayed:
    return asyncio.run(replay_of(two_users()))


def test_without_snapshots_the_turns_are_replayed(replayed: Replayed) -> None:
    assert replayed.snapshots["replayed"] is True
    messages = [line["messages"] for line in replayed.snapshots["snapshots"]]
    assert messages == [0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30, 32, 34, 36, 38]


def test_a_replay_gives_the_same_again(replayed: Replayed) -> None:
    assert replayed.again == replayed.snapshots


def test_a_replay_stores_nothing(replayed: Replayed) -> None:
    assert replayed.export_after == replayed.export_before
    assert replayed.kept == []


def test_a_replay_has_the_turns_that_were_added(replayed: Replayed) -> None:
    assert replayed.longer["snapshots"][-1]["messages"] == 40


def test_a_replayed_prompt_ends_with_its_question(replayed: Replayed) -> None:
    question = "belem 19: what about day 19 in Lisbon?"
    assert text_of(replayed.last["prompt"][-1]).endswith(question)


def test_a_replayed_prompt_shares_tokens_with_the_one_before(replayed: Replayed) -> None:
    assert replayed.last["current_context"]["stability"]["shared_tokens"] > 0


def test_with_a_snapshot_nothing_is_replayed(replayed: Replayed) -> None:
    assert replayed.own["replayed"] is False
    assert len(replayed.own["snapshots"]) == 1


# Previews


async def test_a_budget_that_is_too_small_is_a_conflict_that_names_the_floors(
    pipeline: ContextPipeline,
) -> None:
    async with served(pipeline) as client:
        problem = await get(client, "preview", 409, session_id="trip", budget=5)
    assert sum(problem["floors"].values()) > 5
    assert "5 tokens" in problem["error"]


async def test_a_saved_budget_that_is_too_small_is_a_conflict(pipeline: ContextPipeline) -> None:
    pipeline.save_settings({"max_context_tokens": 5}, user_id="ada")
    async with served(pipeline) as client:
        await get(client, "status", 409, session_id="trip")


async def test_a_preview_may_have_another_budget_than_is_saved(pipeline: ContextPipeline) -> None:
    pipeline.save_settings({"max_context_tokens": 5}, user_id="ada")
    async with served(pipeline) as client:
        shown = await get(client, "preview", session_id="trip", budget=600)
    assert 5 < shown["current_context"]["total_tokens"] <= 600


@dataclass
class Looked:
    """What is stored, asked and sent where somebody has looked, and where nobody has."""

    stored_before: list[str]
    stored_after: list[str]
    asked_before: int
    asked_after: int
    previews: list[dict[str, Any]]
    seen: list[AssembledContext]
    unseen: list[AssembledContext]


def pipeline_at_noon(model: Scripted | None) -> ContextPipeline:
    noon = datetime(2026, 1, 2, 12, tzinfo=UTC)
    pipeline = ContextPipeline(
        {"max_context_tokens": 900, "keep_snapshots": 3, "learn": False},
        store=InMemoryStore(),
        writer_id="w",
        clock=lambda: noon,
        summary_model=model,
    )
    pipeline.add_messages(talk("belem"), **ADA)
    with_snapshot(pipeline, "Where were we?")
    pipeline.add_messages(talk("alfama", 3), **ADA)
    return pipeline


async def previews_of(client: httpx.AsyncClient) -> list[dict[str, Any]]:
    """Returns reports of previews of one question, the first and the last of the same budget."""
    trip = {"session_id": "trip", "message": "And now?"}
    queries: list[dict[str, Any]] = [
        trip,
        {**trip, "message": "word " * 300},
        {**trip, "budget": 3_000},
        trip,
    ]
    return [(await get(client, "preview", **query))["current_context"] for query in queries]


def looked_at(*, has_model: bool) -> Looked:
    model = Scripted()
    seen = pipeline_at_noon(model if has_model else None)
    unseen = pipeline_at_noon(model if has_model else None)
    stored_before = sorted(seen.export_user(user_id="ada"))
    asked_before = len(model.read)

    async def look() -> list[dict[str, Any]]:
        async with served(seen) as client:
            for path in ("sessions", "status", "snapshots", "messages", "usage", "known"):
                await get(client, path, session_id="trip")
            return await previews_of(client)

    previews = asyncio.run(look())
    assert seen.flush(30)
    stored_after = sorted(seen.export_user(user_id="ada"))
    asked_after = len(model.read)
    questions = ["And now?", "And then?"]
    return Looked(
        stored_before,
        stored_after,
        asked_before,
        asked_after,
        previews,
        seen=[seen.assemble(question, **ADA) for question in questions],
        unseen=[unseen.assemble(question, **ADA) for question in questions],
    )


@pytest.fixture(scope="module", params=[False, True], ids=["no model", "model"])
def looked(request: pytest.FixtureRequest) -> Looked:
    return looked_at(has_model=request.param)


def without_measurements(report: dict[str, Any]) -> dict[str, Any]:
    """Returns what a report says, but for the time and the work that it took."""
    measurements = ("timings_ms", "tokenizer_calls", "own_calls", "own_effective_tokens")
    return {name: value for name, value in report.items() if name not in measurements}


def test_looking_writes_nothing(looked: Looked) -> None:
    assert looked.stored_after == looked.stored_before


def test_looking_asks_no_model(looked: Looked) -> None:
    assert looked.asked_after == looked.asked_before


def test_a_preview_leaves_the_next_preview_as_it_was(looked: Looked) -> None:
    first = looked.previews[0]
    last = looked.previews[-1]
    assert without_measurements(last) == without_measurements(first)


def test_looking_leaves_the_next_prompts_as_they_were(looked: Looked) -> None:
    seen = [context.messages for context in looked.seen]
    assert seen == [context.messages for context in looked.unseen]


def test_a_preview_has_the_report_of_the_prompt_that_follows(looked: Looked) -> None:
    report = json.loads(json.dumps(looked.seen[0].report.to_dict()))
    assert without_measurements(looked.previews[0]) == without_measurements(report)


# What items quote


@pytest.mark.parametrize("text", ["Lives in Porto", "belem 19"], ids=["fact", "message"])
async def test_what_was_deleted_is_not_quoted_again(pipeline: ContextPipeline, text: str) -> None:
    fact = pipeline.knowledge.add_fact("Lives in Porto", user_id="ada")
    pipeline.save_settings({"learn": True}, user_id="ada")
    with_snapshot(pipeline)

    async with served(pipeline) as client:
        before = json.dumps(await get(client, "status", session_id="trip"))
        pipeline.knowledge.delete(fact.id, user_id="ada")
        pipeline.remove_messages("belem-q19", on_removal="forget", **ADA)
        after = json.dumps(await get(client, "status", session_id="trip"))

    assert text in before
    assert text not in after


# Pins

PIN = {"session_id": "trip", "message_id": "belem-q0", "preservation": "keep"}


async def first_message(client: httpx.AsyncClient) -> dict[str, Any]:
    [message] = (await get(client, "messages", session_id="trip", first=1, last=1))["messages"]
    return dict(message)


async def test_a_pin_is_answered_with_what_was_pinned(pipeline: ContextPipeline) -> None:
    async with served(pipeline) as client:
        assert await post(client, "messages", PIN) == PIN


async def test_a_pin_is_shown_at_its_message(pipeline: ContextPipeline) -> None:
    async with served(pipeline) as client:
        await post(client, "messages", PIN)
        assert (await first_message(client))["preservation"] == "keep"


async def test_a_pin_is_taken_back(pipeline: ContextPipeline) -> None:
    async with served(pipeline) as client:
        await post(client, "messages", PIN)
        await post(client, "messages", {**PIN, "preservation": None})
        assert (await first_message(client))["preservation"] is None


async def test_a_pin_changes_the_next_preview(pipeline: ContextPipeline) -> None:
    query = {"session_id": "trip", "message": "And?", "budget": 690}
    async with served(pipeline) as client:
        await get(client, "preview", **query)
        await post(client, "messages", PIN)
        report = (await get(client, "preview", **query))["current_context"]

    history = items_of(report, "L6")
    assert "pinned" in [item["reason"] for item in history if item["id"] == "belem-q0"]


# What is known


@dataclass
class Known:
    """Something that is known about ada, how it is shown, and how it is corrected."""

    pipeline: ContextPipeline
    id: str
    text: str
    words: str
    better: str

    async def listed(self) -> list[dict[str, Any]]:
        async with served(self.pipeline) as client:
            return list((await get(client, "known"))["known"])

    async def change(self, **changes: Any) -> None:
        async with served(self.pipeline) as client:
            await post(client, "known", {"item_id": self.id, **changes})


@pytest.fixture(params=["fact", "topic", "entity"])
def known(request: pytest.FixtureRequest, pipeline: ContextPipeline) -> Known:
    knowledge = pipeline.knowledge
    match request.param:
        case "fact":
            key = knowledge.add_fact("Lives in Porto", user_id="ada").id
            return Known(pipeline, key, "Lives in Porto", "Lives in Porto", "Lives in Lisbon")
        case "topic":
            key = knowledge.add_topic("Trams", compiled_context="On rails.", user_id="ada").id
            return Known(pipeline, key, "Trams; On rails.", "Trams", "Trains")
        case _:
            rui = {"type": "person", "relationship": "uncle"}
            key = knowledge.add_entity("Rui", **rui, user_id="ada").id
            return Known(pipeline, key, "Rui (person); uncle", "Rui", "Rui C")


async def test_what_is_known_is_listed(known: Known) -> None:
    [listed] = await known.listed()
    assert listed["id"] == known.id
    assert listed["text"] == known.text
    assert listed["words"] == known.words
    assert listed["pinned"] is False
    assert listed["origin"] == "by hand"


async def test_what_was_added_by_hand_has_no_sources(known: Known) -> None:
    async with served(known.pipeline) as client:
        assert await get(client, "known/why", item_id=known.id) == {"sources": []}


async def test_what_is_known_is_corrected(known: Known) -> None:
    await known.change(pinned=True, text=known.better)
    [listed] = await known.listed()
    assert listed["words"] == known.better


async def test_what_is_known_is_pinned(known: Known) -> None:
    await known.change(pinned=True, text=known.better)
    [listed] = await known.listed()
    assert listed["pinned"] is True
    assert listed["origin"] == "pinned, by hand"


async def test_what_is_known_is_no_longer_pinned(known: Known) -> None:
    await known.change(pinned=True)
    await known.change(pinned=False)
    [listed] = await known.listed()
    assert listed["pinned"] is False


async def test_what_is_known_is_forgotten(known: Known) -> None:
    await known.change(forgotten=True)
    assert await known.listed() == []


@pytest.fixture(params=["another user's", "unknown"])
def foreign_id(request: pytest.FixtureRequest, pipeline: ContextPipeline) -> str:
    if request.param == "unknown":
        return "fact/none"
    return pipeline.knowledge.add_fact("Lives in Zanzibar", user_id="bo").id


async def test_what_is_not_known_about_a_user_is_not_explained(
    pipeline: ContextPipeline, foreign_id: str
) -> None:
    async with served(pipeline) as client:
        await get(client, "known/why", 404, item_id=foreign_id)


async def test_what_is_not_known_about_a_user_is_not_forgotten(
    pipeline: ContextPipeline, foreign_id: str
) -> None:
    async with served(pipeline) as client:
        await post(client, "known", {"item_id": foreign_id, "forgotten": True}, 404)


async def test_what_is_known_is_written_as_a_text(pipeline: ContextPipeline) -> None:
    pipeline.knowledge.add_fact("Lives in Porto", user_id="ada")
    async with served(pipeline) as client:
        assert "- Lives in Porto (by hand, " in (await get(client, "known"))["text"]


async def test_all_that_is_known_is_forgotten(pipeline: ContextPipeline) -> None:
    pipeline.knowledge.add_fact("Lives in Porto", user_id="ada")
    async with served(pipeline) as client:
        assert (await post(client, "known/forget", {}))["known"] == []
    assert pipeline.knowledge.list_facts(user_id="ada") == []


async def test_conversations_stay_when_all_is_forgotten(pipeline: ContextPipeline) -> None:
    pipeline.knowledge.add_fact("Lives in Porto", user_id="ada")
    async with served(pipeline) as client:
        await post(client, "known/forget", {})
    assert len(pipeline.get_messages(**ADA)) == 40


async def test_what_is_known_about_others_stays(pipeline: ContextPipeline) -> None:
    pipeline.knowledge.add_fact("Lives in Zanzibar", user_id="bo")
    async with served(pipeline) as client:
        await post(client, "known/forget", {})
    facts = pipeline.knowledge.list_facts(user_id="bo")
    assert [fact.text for fact in facts] == ["Lives in Zanzibar"]
    assert len(pipeline.get_messages(**BO)) == 40


# Standing rules


RULE = {"session_id": "trip", "text": "Never book without asking."}


async def rules_of(client: httpx.AsyncClient, session: str = "trip") -> list[dict[str, Any]]:
    return list((await get(client, "rules", session_id=session))["rules"])


async def test_a_rule_is_added_and_listed(pipeline: ContextPipeline) -> None:
    async with served(pipeline) as client:
        await post(client, "rules", RULE)
        [rule] = await rules_of(client)
    assert rule["text"] == RULE["text"]
    assert rule["made_by"] == "user"
    assert rule["holds_everywhere"] is False


async def test_a_rule_that_was_said_names_its_message(pipeline: ContextPipeline) -> None:
    said = HumanMessage("Don't ever book anything without asking me first.", id="rule")
    pipeline.add_messages([said], **ADA)
    async with served(pipeline) as client:
        [rule] = await rules_of(client)
    assert rule["message_id"] == "rule"
    assert rule["position"] == 41


async def test_a_rule_is_lifted(pipeline: ContextPipeline) -> None:
    async with served(pipeline) as client:
        await post(client, "rules", RULE)
        [rule] = await rules_of(client)
        await post(client, "rules/lift", {"session_id": "trip", "rule_id": rule["id"]})
        assert await rules_of(client) == []


async def test_a_rule_for_all_sessions_is_known_of_the_user(pipeline: ContextPipeline) -> None:
    async with served(pipeline) as client:
        await post(client, "rules", {**RULE, "everywhere": True})
        [known] = (await get(client, "known"))["known"]
    assert known["heading"] == "Standing rules"
    assert known["text"] == RULE["text"]


async def test_a_rule_is_in_the_next_prompt(pipeline: ContextPipeline) -> None:
    async with served(pipeline) as client:
        await post(client, "rules", RULE)
        shown = await get(client, "preview", session_id="trip")
    items = items_of(shown["current_context"], "L1")
    assert [item["reason"] for item in items] == ["standing_rule"]


async def test_a_rule_of_the_application_is_not_lifted() -> None:
    with ContextPipeline({"rules": ["Never name a price."], "learn": False}) as pipeline:
        pipeline.add_messages([HumanMessage("Hello.")], **ADA)
        async with served(pipeline) as client:
            [rule] = await rules_of(client)
            await post(client, "rules/lift", {"session_id": "trip", "rule_id": rule["id"]}, 409)
            assert await rules_of(client) == [rule]


# Answers


async def test_an_earlier_prompt_comes_with_its_answer(earlier: dict[str, Any]) -> None:
    assert (earlier["answer"]["text"], earlier["answer"]["position"]) == ("To Porto.", 42)


async def test_an_earlier_prompt_that_was_not_answered_has_no_answer(
    pipeline: ContextPipeline,
) -> None:
    with_snapshot(pipeline, "Where to?")
    pipeline.add_messages([HumanMessage("Where to?"), HumanMessage("Well?")], **ADA)
    pipeline.add_messages([AIMessage("To Porto.")], **ADA)
    async with served(pipeline) as client:
        status = await get(client, "status", session_id="trip")
    assert status["answer"] is None


async def test_a_preview_has_no_answer(pipeline: ContextPipeline) -> None:
    async with served(pipeline) as client:
        assert (await get(client, "preview", session_id="trip"))["answer"] is None


# The system prompt and the tools of an agent

DESK = "You are the desk of a station."
TRAINS = {
    "name": "find_trains",
    "description": "The trains between two towns.",
    "parameters": {"type": "object", "properties": {"to": {"type": "string"}}},
}


@dataclass(frozen=True)
class OfAgent:
    """The next prompt of an agent's session, for the process that ran it and for another one."""

    here: dict[str, Any]
    elsewhere: dict[str, Any]
    stored: str


async def shown_of_agent(keep_snapshots: int) -> OfAgent:
    settings = {"max_context_tokens": 1_000, "learn": False}
    store = InMemoryStore()
    pipeline = ContextPipeline({**settings, "keep_snapshots": keep_snapshots}, store=store)
    middleware = ContextBudgetMiddleware(pipeline, default_user="ada")
    agent = agent_of(scripted("At nine."), middleware, tools=[TRAINS], system_prompt=DESK)
    config: Any = {"configurable": {"thread_id": "trip"}}
    await agent.ainvoke({"messages": [HumanMessage("When is the next train?")]}, config)
    assert pipeline.flush(30)
    previews = []
    for each in (pipeline, ContextPipeline(settings, store=store)):
        async with served(each) as client:
            previews.append(await get(client, "preview", session_id="trip"))
    return OfAgent(*previews, stored=str(store.search(())))


@pytest.fixture(scope="module")
def of_agent() -> OfAgent:
    return asyncio.run(shown_of_agent(keep_snapshots=5))


@pytest.mark.parametrize("process", ["here", "elsewhere"])
def test_the_next_prompt_of_an_agent_has_its_tools(of_agent: OfAgent, process: str) -> None:
    prompt = getattr(of_agent, process)["prompt"]
    assert prompt[0]["role"] == "tools"
    assert "find_trains" in [part["item"] for part in prompt[0]["parts"]]


@pytest.mark.parametrize("process", ["here", "elsewhere"])
def test_the_next_prompt_of_an_agent_has_its_system_prompt(of_agent: OfAgent, process: str) -> None:
    assert text_of(getattr(of_agent, process)["prompt"][1]).startswith(DESK)


def test_the_next_prompt_of_an_agent_costs_the_same_in_both_processes(of_agent: OfAgent) -> None:
    reports = [shown["current_context"] for shown in (of_agent.here, of_agent.elsewhere)]
    assert reports[0]["total_tokens"] == reports[1]["total_tokens"]


def test_tokens_of_the_shown_tools_add_up(of_agent: OfAgent) -> None:
    tokens = [message["tokens"] for message in of_agent.here["prompt"]]
    assert sum(tokens) + 3 == of_agent.here["current_context"]["total_tokens"]


async def test_without_snapshots_no_system_prompt_is_stored() -> None:
    assert DESK not in (await shown_of_agent(keep_snapshots=0)).stored


# Tools


TOOLS = [
    {"name": f"tool_{number}", "description": f"Does {number}.", "parameters": {}}
    for number in range(30)
]


async def with_tools() -> dict[str, Any]:
    """The status of a session whose last prompt chose some of many tools."""
    pipeline = two_users()
    settings = {"max_context_tokens": 1_500, "tool_tokens": 300}
    pipeline.assemble("Do 7.", **ADA, tools=TOOLS, settings=settings)
    assert pipeline.flush(30)
    async with served(pipeline) as client:
        return dict(await get(client, "status", session_id="trip"))


async def test_tools_stand_in_front_of_the_messages() -> None:
    first = (await with_tools())["prompt"][0]
    assert (first["role"], first["parts"][0]["layer"]) == ("tools", "L8")
    assert "tool_7" in [part["text"] for part in first["parts"]]


async def test_tools_that_are_not_bound_are_listed_with_their_reason() -> None:
    report = (await with_tools())["current_context"]
    [layer] = [each for each in report["layers"] if each["layer"] == "L8"]
    assert {item["reason"] for item in layer["items"] if item["status"] == "omitted"} == {
        "to_be_found"
    }


async def test_tools_count_as_always_sent() -> None:
    status = await with_tools()
    [layer] = [each for each in status["current_context"]["layers"] if each["layer"] == "L8"]
    assert status["tier_breakdown"]["tier1"]["tokens"] >= layer["used_tokens"]
