"""What tests of the dashboard's API share: conversations of two users, and a client of the API."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import ContextPipeline, ContextReport
from langchain_ctxbudget.dashboard import create_app

ADA = {"user_id": "ada", "conversation_id": "trip"}
BO = {"user_id": "bo", "conversation_id": "secret plans"}
API = "/api/context"
OF_SESSION = ("status", "snapshots", "snapshots/any", "preview", "messages", "usage", "rules")
"""Paths that are about one session."""


def talk(name: str, turns: int = 20) -> list[BaseMessage]:
    messages: list[BaseMessage] = []
    for turn in range(turns):
        question = f"{name} {turn}: what about day {turn} in Lisbon?"
        answer = f"On day {turn} you see the tower of {name}. " * 4
        messages.append(HumanMessage(question, id=f"{name}-q{turn}"))
        messages.append(AIMessage(answer, id=f"{name}-a{turn}"))
    return messages


def two_users() -> ContextPipeline:
    settings = {"max_context_tokens": 700, "keep_snapshots": 5, "learn": False}
    pipeline = ContextPipeline(settings, system_prompt="You plan trips.", store=InMemoryStore())
    pipeline.add_messages(talk("belem"), **ADA)
    pipeline.add_messages(talk("zanzibar"), **BO)
    return pipeline


def with_snapshot(
    pipeline: ContextPipeline, question: str = "Where to?", scope: dict[str, str] = ADA
) -> ContextReport:
    """Makes a prompt, keeps its snapshot, and returns its report."""
    report = pipeline.assemble(question, **scope).report
    assert pipeline.flush(30)
    return report


def client_of(
    app: Any, address: str = "http://localhost", machine: str = "127.0.0.1"
) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(app, client=(machine, 5))
    return httpx.AsyncClient(transport=transport, base_url=address)


@asynccontextmanager
async def served(
    pipeline: ContextPipeline, user_id: Any = "ada"
) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(create_app(pipeline, user_id=user_id)) as client:
        yield client


async def get(client: httpx.AsyncClient, path: str, status: int = 200, **query: Any) -> Any:
    answer = await client.get(f"{API}/{path}", params=query)
    assert answer.status_code == status, answer.text
    return answer.json()


async def post(client: httpx.AsyncClient, path: str, body: object, status: int = 200) -> Any:
    answer = await client.post(f"{API}/{path}", json=body)
    assert answer.status_code == status, answer.text
    return answer.json()
