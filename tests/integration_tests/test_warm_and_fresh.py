"""A pipeline that has worked for a while gives what a fresh one gives on the same store (P8)."""

from __future__ import annotations

import random

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import ContextPipeline

SCOPE = {"user_id": "ada", "conversation_id": "c1"}
SETTINGS = {"max_context_tokens": 600, "learn": False}
WORDS = "garden tomato budget Bonn train ticket Monday decided price 42 roof paint Ada Ben lamp".split()


def said(rng: random.Random, number: int) -> BaseMessage:
    kind = rng.choice([HumanMessage, AIMessage])
    text = " ".join(rng.choices(WORDS, k=rng.randint(1, 40))) + "."
    name = rng.choice([None, "Ada", "Ben"]) if kind is HumanMessage else None
    return kind(text, id=f"m{number}", name=name)


@pytest.mark.parametrize("seed", range(12))
def test_after_any_history_of_calls_both_give_the_same_prompt(seed: int) -> None:
    rng = random.Random(seed)
    store = InMemoryStore()
    warm = ContextPipeline(SETTINGS, store=store, writer_id="w")
    state: list[BaseMessage] = []
    made = 0
    for _ in range(25):
        action = rng.choice(["add", "add", "edit", "remove", "assemble", "assemble"])
        if action == "add":
            new = [said(rng, made + i) for i in range(rng.randint(1, 8))]
            made += len(new)
            state += new
            warm.add_messages(new, **SCOPE)
        elif action in ("edit", "remove") and len(state) > (action == "remove"):  # an empty state has lost nothing
            place = rng.randrange(len(state))
            changed = said(rng, made).model_copy(update={"id": state[place].id})
            state[place : place + 1] = [changed] if action == "edit" else []
            warm.sync(state, on_removal=rng.choice(["archive", "forget"]), **SCOPE)
        else:
            question = " ".join(rng.choices(WORDS, k=3)) + "?"
            budget = {"max_context_tokens": rng.choice([300, 600, 1500])}
            context = warm.assemble(question, settings=budget, **SCOPE)
            fresh = ContextPipeline(SETTINGS, store=store, writer_id="w")
            again = fresh.assemble(question, settings=budget, **SCOPE)
            assert again.messages == context.messages
            assert again.report.layers == context.report.layers
            assert again.report.coverage == context.report.coverage
    kept = ContextPipeline(store=store).get_messages(**SCOPE)
    assert [message.text for message in kept] == [message.text for message in state]
