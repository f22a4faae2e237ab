"""The dashboard looks, and changes nothing by it: not the store, not the next prompt, and no model is asked."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import httpx
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from langchain_core.messages import HumanMessage
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import ContextPipeline
from langchain_ctxbudget.dashboard import create_app
from tests.integration_tests.summary_models import Scripted, exchange, words

ADA = {"user_id": "ada", "conversation_id": "trip"}
WORKED_OUT_ANEW = ("timings_ms", "tokenizer_calls")
"""What differs between two prompts that are the same."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """A conversation, what is asked in it before and after somebody looks, and what they try while looking."""

    before: int = 14
    """Exchanges."""
    after: int = 0
    budget: int = 1_500
    asked_before: bool = False
    """Whether there was a prompt before anybody looked."""
    tried: tuple[tuple[int, int | None], ...] = ((800, None),)
    """Words of the messages that are tried, each with a budget."""
    in_background: bool = True
    has_model: bool = False


cases = st.builds(
    Case,
    before=st.integers(1, 40),
    after=st.integers(0, 6),
    budget=st.sampled_from([900, 1_500, 4_000]),
    asked_before=st.booleans(),
    tried=st.lists(
        st.tuples(st.sampled_from([0, 5, 300, 800]), st.sampled_from([None, 700, 3_000])), min_size=1, max_size=3
    ).map(tuple),
    in_background=st.booleans(),
    has_model=st.booleans(),
)


class Talk:
    """One of two pipelines that are told the same."""

    def __init__(self, case: Case) -> None:
        self.model = Scripted()
        self.pipeline = ContextPipeline(
            {
                "max_context_tokens": case.budget,
                "keep_snapshots": 3,
                "summarize_in_background": case.in_background,
                "learn": False,
            },
            store=InMemoryStore(),
            writer_id="tests",
            clock=lambda: datetime(2026, 1, 2, tzinfo=UTC),
            summary_model=self.model if case.has_model else None,
        )
        self.pipeline.knowledge.add_fact("Lives in Porto", user_id="ada")
        self.says(0, case.before)
        if case.asked_before:
            self.asks("Where were we?")
        self.says(case.before, case.before + case.after)

    def says(self, first: int, end: int) -> None:
        self.pipeline.add_messages([said for number in range(first, end) for said in exchange(number)], **ADA)
        assert self.pipeline.flush(30)

    def asks(self, question: str) -> tuple[list[Any], dict[str, Any]]:
        """A prompt, and its report."""
        made = self.pipeline.assemble(question, **ADA)
        assert self.pipeline.flush(30)
        return [(one.type, one.content) for one in made.messages], comparable(made.report.to_dict())

    def stored(self) -> list[str]:
        return sorted(self.pipeline.export_user(user_id="ada"))

    def is_looked_at(self, case: Case) -> list[int]:
        """Everything that can be read, and the previews; how they were answered."""
        return asyncio.run(self._looks(case))

    async def _looks(self, case: Case) -> list[int]:
        app = create_app(self.pipeline, user_id="ada")
        paths = ["sessions", "status", "snapshots", "messages", "usage", "settings"]
        asked = [(path, {"session_id": "trip"}) for path in paths]
        for number, (size, budget) in enumerate(case.tried):
            message = {"message": f"{words(number, size)}."} if size else {}
            tried = {} if budget is None else {"budget": str(budget)}
            asked.append(("preview", {"session_id": "trip", **message, **tried}))
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
            return [(await client.get(f"/api/context/{path}", params=query)).status_code for path, query in asked]


def comparable(report: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in report.items() if name not in WORKED_OUT_ANEW}


few = settings(max_examples=6, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))


@few
@given(case=cases)
@example(case=Case())
@example(case=Case(has_model=True))
@example(case=Case(has_model=True, in_background=False))
@example(case=Case(has_model=True, asked_before=True, after=6))
def test_looking_writes_nothing_and_asks_no_model(case: Case) -> None:
    talk = Talk(case)
    before, asked = talk.stored(), len(talk.model.read)
    statuses = talk.is_looked_at(case)
    assert talk.pipeline.flush(30)
    assert set(statuses) <= {200, 409}
    assert talk.stored() == before
    assert len(talk.model.read) == asked


@few
@given(case=cases)
@example(case=Case())
@example(case=Case(asked_before=True, after=6))
@example(case=Case(has_model=True, in_background=False))
def test_the_next_prompts_are_those_of_a_conversation_that_nobody_looked_at(case: Case) -> None:
    seen, unseen = Talk(case), Talk(case)
    seen.is_looked_at(case)
    for question in ("And now?", "And then?"):
        assert seen.asks(question) == unseen.asks(question)


def previews(talk: Talk, *queries: dict[str, str]) -> list[dict[str, Any]]:
    async def ask() -> list[dict[str, Any]]:
        app = create_app(talk.pipeline, user_id="ada")
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
            asked = [{"session_id": "trip", **query} for query in queries]
            answers = [await client.get("/api/context/preview", params=query) for query in asked]
        return [comparable(answer.json()["current_context"]) for answer in answers]

    return asyncio.run(ask())


def test_a_preview_is_the_next_prompt_and_no_step_for_the_next_preview() -> None:
    talk = Talk(Case(asked_before=True, after=6))
    shown, _, again = previews(talk, {"message": "And now?"}, {"message": words(1, 800)}, {"message": "And now?"})
    _, made = talk.asks("And now?")
    assert shown == again == made


def test_a_budget_is_tried_on_what_is_said_now() -> None:
    talk = Talk(Case())
    for change, wanted in (
        (lambda: None, 28),
        (lambda: talk.pipeline.add_messages([HumanMessage("One more", id="more")], **ADA), 29),
        (lambda: talk.pipeline.remove_messages("q3", **ADA), 28),
        (lambda: talk.pipeline.clear(**ADA) or talk.says(0, 14), 28),
    ):
        change()
        [shown] = previews(talk, {"message": "And?", "budget": "700"})
        assert shown["coverage"][-1]["last"] == wanted
