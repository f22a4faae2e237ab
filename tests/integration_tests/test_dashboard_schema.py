"""The dashboard's API against its own description: random requests are answered as it says, and never with a 5xx."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.store.memory import InMemoryStore
from schemathesis import Case, GenerationMode
from starlette.responses import JSONResponse
from starlette.routing import Route

from langchain_ctxbudget import ContextPipeline, KnowledgeBase
from langchain_ctxbudget.dashboard import create_app
from langchain_ctxbudget.dashboard.app import OPERATIONS, describe

FOREIGN = "xylophone"
"""Stands in everything that the other user has: ids, messages, facts, settings."""
OTHER = f"{FOREIGN} bo"


def filled() -> tuple[ContextPipeline, dict[str, list[str]]]:
    """Two users who have something of every kind, and the ids that ada's requests may name, also of the other user."""
    limits = {"keep_snapshots": 3, "max_context_tokens": 500, "usage_limits": {"session_tokens": 5_000}}
    pipeline = ContextPipeline({**limits, "learn": False}, store=InMemoryStore(), system_prompt="You are helpful.")
    ids: dict[str, list[str]] = {"session_id": [], "message_id": [], "fact_id": [], "snapshot_id": []}
    for user, mark in (("ada", "harp"), (OTHER, FOREIGN)):
        for number in (1, 2):
            name = f"{mark} {number}"
            said = [
                (HumanMessage, AIMessage)[place % 2](f"{mark} {place}: the tuning of strings. ", id=f"{mark}-{place}")
                for place in range(40)
            ]
            pipeline.add_messages(said, user_id=user, conversation_id=name)
            context = pipeline.assemble(f"And the {mark}?", user_id=user, conversation_id=name)
            assert pipeline.flush(30)
            used = {"input_tokens": context.report.total_tokens, "output_tokens": 900, "total_tokens": 0}
            pipeline.usage.record(used, user_id=user, conversation_id=name)
            latest = pipeline.snapshots.latest(user_id=user, conversation_id=name)
            assert latest is not None
            ids["session_id"].append(name)
            ids["message_id"].append(str(said[0].id))
            ids["snapshot_id"].append(latest.id)
        KnowledgeBase(pipeline.store, user_id=user).add(f"How to tune a {mark}.", metadata={"source": mark})
        ids["fact_id"].append(pipeline.knowledge.add_fact(f"Plays the {mark}", user_id=user).id)
        pipeline.save_settings({"preferences": [f"Speak of the {mark}."]}, user_id=user)
    return pipeline, ids


def guided(description: dict[str, Any], ids: dict[str, list[str]]) -> dict[str, Any]:
    """The description with ids that there are: of random ones alone, nothing would ever be found."""
    described: dict[str, Any] = json.loads(json.dumps(description))
    for path in described["paths"].values():
        for operation in path.values():
            for parameter in operation.get("parameters", ()):
                if parameter["name"] in ids:
                    parameter["schema"] = {"anyOf": [{"enum": ids[parameter["name"]]}, parameter["schema"]]}
    for schema in described["components"]["schemas"].values():
        for name, part in schema.get("properties", {}).items():
            if name in ids and schema["title"] in ("MessagePin", "FactPin"):
                schema["properties"][name] = {"anyOf": [{"enum": ids[name]}, part]}
    return described


@pytest.fixture(scope="module")
def api() -> Iterator[Any]:
    pipeline, ids = filled()
    others = pipeline.export_user(user_id=OTHER)
    dashboard = create_app(pipeline, user_id=lambda _: "ada", hosts=["testserver"])
    described = guided(describe(), ids)
    dashboard.router.routes.append(Route("/guided.json", lambda _: JSONResponse(described)))
    yield schemathesis.openapi.from_asgi("/guided.json", dashboard)
    assert pipeline.export_user(user_id=OTHER) == others, "a request of one user changed something of the other"
    pipeline.close()


def answers_as_described(api: Any, kind: GenerationMode, examples: int) -> None:
    for one in OPERATIONS:
        if kind is GenerationMode.NEGATIVE and one.method == "GET" and not one.question.json_schema()["properties"]:
            continue  # nothing can be wrong

        @given(case=api[one.path][one.method].as_strategy(generation_mode=kind))
        @settings(
            max_examples=examples,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            database=None,
            derandomize=True,
        )
        def answered(case: Case) -> None:
            answer = case.call()
            case.validate_response(answer)
            assert answer.status_code < 500
            assert FOREIGN not in answer.text

        answered()


@pytest.mark.parametrize("kind", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
def test_random_requests_are_answered_as_described(api: Any, kind: GenerationMode) -> None:
    answers_as_described(api, kind, examples=4)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
def test_many_random_requests_are_answered_as_described(api: Any, kind: GenerationMode) -> None:
    answers_as_described(api, kind, examples=50)
