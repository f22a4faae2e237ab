"""A conversation of 500 messages, five at a time: what is learned of it, at what price, and what prompts show."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import product
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import ContextPipeline
from langchain_ctxbudget.knowledge import repositories as repos
from langchain_ctxbudget.knowledge.facts import HARD_CAP, MAX_PINNED
from langchain_ctxbudget.knowledge.records import Fact
from tests.integration_tests.learning_models import Reader

MESSAGES, EVERY = 500, 5
STATED, CHANGED = 10, 300
"""The positions at which the user says which colour is their favourite."""
HERE: Any = {"user_id": "ada", "conversation_id": "c1"}
ELSEWHERE: Any = {"user_id": "ada", "conversation_id": "c2"}
START = datetime(2026, 1, 1, tzinfo=UTC)
THINGS = ["".join(parts) for parts in product("bdfgk", ["al", "em", "ir", "on", "us"], ["bor", "dit", "fen", "gam"])]
"""A hundred words that nothing is known of."""


def said(position: int) -> BaseMessage:
    """A message: the user's, each with something else that they like; every other is an answer."""
    key, at = f"m{position}", (START + timedelta(minutes=position)).isoformat()
    if position in {STATED, CHANGED}:
        colour = "amber" if position == STATED else "violet"
        return HumanMessage(f"My favourite colour is {colour}.", id=key, additional_kwargs={"created_at": at})
    if position % 5 == 4:
        return AIMessage(f"Noted, {position}. You like xylophones.", id=key, additional_kwargs={"created_at": at})
    thing = THINGS[position % len(THINGS)] + "aeiou"[position // len(THINGS)] + "x"
    return HumanMessage(f"I like {thing}.", id=key, additional_kwargs={"created_at": at})


def new_pipeline(store: InMemoryStore, model: Reader | None) -> ContextPipeline:
    return ContextPipeline(
        {"max_context_tokens": 2_000}, store=store, summary_model=model, clock=lambda: START + timedelta(days=2)
    )


class Counting(InMemoryStore):
    """Keeps how many facts it had after each write, and how many of them were pinned."""

    def __init__(self) -> None:
        super().__init__()
        self.current, self.pinned = [0], [0]

    def batch(self, ops: Any) -> Any:
        result = super().batch(ops)
        facts = self._data.get(repos.FACTS.place("ada", "").namespace, {})
        self.current.append(len(facts))
        self.pinned.append(sum(item.value["pinned"] for item in facts.values()))
        return result


@dataclass(kw_only=True)
class Replay:
    """What came of it."""

    pipeline: ContextPipeline
    store: Counting
    model: Reader | None
    shown: dict[int, str] = field(default_factory=dict)
    """The system message after so many messages."""

    @property
    def facts(self) -> list[Fact]:
        return self.pipeline.knowledge.list_facts(user_id="ada", include_ended=True)

    def fact(self, text: str) -> Fact:
        return next(fact for fact in self.facts if fact.text == text)


def system_message(pipeline: ContextPipeline, where: Any) -> str:
    first = pipeline.assemble("What do you know of me?", **where).messages[0]
    return first.text if isinstance(first, SystemMessage) else ""


def pin_another(pipeline: ContextPipeline, word: str) -> None:
    """Pin a fact, one with a certain word in it, unless as many as can be are pinned."""
    facts = pipeline.knowledge.list_facts(user_id="ada")
    loose = [fact for fact in facts if not fact.pinned and word in fact.text]
    if sum(fact.pinned for fact in facts) < MAX_PINNED:
        pipeline.knowledge.pin(loose[0].id, user_id="ada")


@contextmanager
def replayed(model: Reader | None) -> Iterator[Replay]:
    store = Counting()
    with new_pipeline(store, model) as pipeline:
        replay = Replay(pipeline=pipeline, store=store, model=model)
        for first in range(0, MESSAGES, EVERY):
            pipeline.add_messages([said(position) for position in range(first, first + EVERY)], **HERE)
            assert pipeline.flush(60)
            if first in {STATED, CHANGED}:
                replay.shown[first] = system_message(pipeline, HERE)
            if first % 50 == STATED:
                pin_another(pipeline, "amber" if first == STATED else "")
        yield replay


@pytest.fixture(scope="module", params=["rules", "model"])
def replay(request: pytest.FixtureRequest) -> Iterator[Replay]:
    with replayed(None if request.param == "rules" else Reader()) as replay:
        yield replay


def test_the_model_is_called_once_per_five_messages_at_most(replay: Replay) -> None:
    if replay.model is not None:
        assert MESSAGES // EVERY / 2 < len(replay.model.learned) <= MESSAGES / EVERY + 1


def test_every_source_is_a_message_that_says_it(replay: Replay) -> None:
    for fact in replay.facts:
        assert fact.sources
        for one in replay.pipeline.knowledge.why(fact.id, user_id="ada"):
            assert one.message is not None
            assert not one.changed
            assert isinstance(one.message, HumanMessage)
            assert fact.text.split()[-1] in one.message.text


def test_the_cap_holds_after_every_write(replay: Replay) -> None:
    assert 120 < max(replay.store.current) <= HARD_CAP


def test_no_more_than_ten_are_pinned_at_any_time(replay: Replay) -> None:
    assert max(replay.store.pinned) == MAX_PINNED


@pytest.mark.parametrize("where", [HERE, ELSEWHERE], ids=["in the same conversation", "in another one"])
def test_only_the_new_preference_is_shown(replay: Replay, where: Any) -> None:
    shown = system_message(replay.pipeline, where)
    assert "Favourite colour is violet" in shown
    assert "amber" not in shown
    assert "amber" not in replay.shown[CHANGED]
