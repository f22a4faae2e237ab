"""The dashboard looks, and changes nothing by it: not the store, not the next prompt, and no model is asked."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import httpx
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import ContextPipeline
from langchain_ctxbudget.dashboard import create_app
from tests.integration_tests.summary_models import Scripted, exchange, words

ADA = {"user_id": "ada", "conversation_id": "trip"}
EVERYTHING = ("sessions", "status", "snapshots", "messages", "usage", "settings")


class Talk:
    """A pipeline with a conversation of so many exchanges, some of them after a prompt."""

    def __init__(self, before: int = 14, after: int = 0, *, budget: int = 1_500, has_model: bool = False) -> None:
        self.model = Scripted()
        self.pipeline = ContextPipeline(
            {"max_context_tokens": budget, "keep_snapshots": 3, "learn": False},
            store=InMemoryStore(),
            writer_id="tests",
            clock=lambda: datetime(2026, 1, 2, tzinfo=UTC),
            summary_model=self.model if has_model else None,
        )
        self.pipeline.knowledge.add_fact("Lives in Porto", user_id="ada")
        self.says(0, before)
        if after:
            self.asks("Where were we?")
            self.says(before, before + after)

    def says(self, first: int, end: int) -> None:
        self.pipeline.add_messages([said for number in range(first, end) for said in exchange(number)], **ADA)
        assert self.pipeline.flush(30)

    def asks(self, question: str) -> tuple[list[Any], dict[str, Any]]:
        """A prompt, and its report."""
        made = self.pipeline.assemble(question, **ADA)
        assert self.pipeline.flush(30)
        return [(one.type, one.content) for one in made.messages], comparable(made.report.to_dict())

    def gets(self, *asked: tuple[str, dict[str, Any]]) -> list[httpx.Response]:
        """What the dashboard answers."""

        async def get() -> list[httpx.Response]:
            transport = httpx.ASGITransport(create_app(self.pipeline, user_id="ada"))
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost/api/context/") as client:
                return [await client.get(path, params={"session_id": "trip"} | query) for path, query in asked]

        return asyncio.run(get())

    def previews(self, *queries: dict[str, Any]) -> list[dict[str, Any]]:
        answers = self.gets(*(("preview", query) for query in queries))
        return [comparable(answer.json()["current_context"]) for answer in answers]


def comparable(report: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in report.items() if name not in ("timings_ms", "tokenizer_calls")}


@settings(max_examples=8, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(
    before=st.integers(1, 40),
    after=st.integers(0, 6),
    budget=st.sampled_from([900, 1_500, 4_000]),
    has_model=st.booleans(),
    tried=st.lists(st.tuples(st.sampled_from([0, 5, 800]), st.sampled_from([None, 700, 3_000])), max_size=3),
)
def test_looking_writes_nothing_asks_no_model_and_leaves_the_next_prompts_as_they_were(
    before: int, after: int, budget: int, has_model: bool, tried: list[tuple[int, int | None]]
) -> None:
    seen, unseen = (Talk(before, after, budget=budget, has_model=has_model) for _ in range(2))
    stored, asked = sorted(seen.pipeline.export_user(user_id="ada")), len(seen.model.read)
    previews: list[tuple[str, dict[str, Any]]] = [
        ("preview", ({"message": f"{words(size, size)}."} if size else {}) | ({"budget": given} if given else {}))
        for size, given in tried
    ]
    statuses = {answer.status_code for answer in seen.gets(*((path, {}) for path in EVERYTHING), *previews)}
    assert seen.pipeline.flush(30)
    assert statuses <= {200, 409}
    assert (sorted(seen.pipeline.export_user(user_id="ada")), len(seen.model.read)) == (stored, asked)
    for question in ("And now?", "And then?"):
        assert seen.asks(question) == unseen.asks(question)


def test_a_preview_is_the_next_prompt_and_no_step_for_the_next_preview() -> None:
    talk = Talk(after=6)
    shown, _, again = talk.previews({"message": "And now?"}, {"message": words(1, 800)}, {"message": "And now?"})
    _, made = talk.asks("And now?")
    assert shown == again == made
