"""Calls of the model that learns and sums up count as usage of their conversation and user."""

import json
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import ContextPipeline
from langchain_ctxbudget.tokens import Usage
from tests.integration_tests.learning_models import Reader, asks_to_learn
from tests.integration_tests.summary_models import USER, conversation, summary

ADA: Any = {"user_id": "ada"}
USED = {"input_tokens": 700, "output_tokens": 30, "total_tokens": 730}
PRICES = {"scripted": {"input": 1, "output": 10}}


class Counting(Reader):
    """Tells its usage with every answer."""

    model_name: str = "scripted"

    def _generate(self, *arguments: Any, **kwargs: Any) -> ChatResult:
        result = super()._generate(*arguments, **kwargs)
        answer = AIMessage(result.generations[0].message.text, usage_metadata=USED)
        return ChatResult(generations=[ChatGeneration(message=answer)])


def used_in_learning(model: Reader, pipeline: ContextPipeline) -> Usage:
    pipeline.add_messages([HumanMessage("I like tea.")], **USER)
    pipeline.end_session(**USER)
    assert pipeline.flush(30)
    assert len(model.learned) > 0
    return pipeline.usage.of_session(**USER)


def opened(model: Reader, **fields: Any) -> ContextPipeline:
    return ContextPipeline(summary_model=model, prices=PRICES, **fields)


def test_a_call_that_learns_counts_for_its_conversation() -> None:
    model = Counting()
    with opened(model) as pipeline:
        used = used_in_learning(model, pipeline)

    assert used == Usage(calls=1, input_tokens=700, output_tokens=30, cost=0.001)


def test_a_call_that_learns_counts_for_the_month() -> None:
    model = Counting()
    with opened(model) as pipeline:
        used_in_learning(model, pipeline)

        assert pipeline.usage.of_month(**ADA).calls == 1


def test_what_was_used_is_estimated_where_the_model_does_not_tell() -> None:
    model = Reader()
    with opened(model) as pipeline:
        used = used_in_learning(model, pipeline)

    assert used.calls == 1
    assert used.input_tokens > 500
    assert used.output_tokens > 5


def test_replies_of_no_use_count() -> None:
    model = Counting(answer=lambda _: '{"facts": ')
    with opened(model) as pipeline:
        assert used_in_learning(model, pipeline).calls == 2


def test_calls_that_were_refused_do_not_count() -> None:
    def refuse(_: str) -> str:
        raise ConnectionError

    model = Counting(answer=refuse)
    with opened(model) as pipeline:
        assert used_in_learning(model, pipeline).calls == 0


def test_a_call_that_sums_up_counts() -> None:
    model = Counting(answer=lambda _: summary("They talked."))
    settings = {"max_context_tokens": 1_500, "learn": False}
    with ContextPipeline(settings, summary_model=model, prices=PRICES) as pipeline:
        pipeline.add_messages(conversation(40), **USER)
        pipeline.assemble("What now?", **USER)
        assert pipeline.flush(30)

        assert len(model.read) > 0
        assert pipeline.usage.of_session(**USER).calls == len(model.read)


def test_what_is_used_is_stored_when_the_pipeline_is_closed() -> None:
    store = InMemoryStore()
    model = Counting()
    with opened(model, store=store) as pipeline:
        pipeline.add_messages([HumanMessage("I like tea.")], **USER)
        pipeline.end_session(**USER)

    with ContextPipeline(store=store) as later:
        assert later.usage.of_session(**USER).calls == len(model.learned)


def test_nothing_is_counted_for_a_user_who_was_erased_meanwhile() -> None:
    store = InMemoryStore()
    with ContextPipeline(store=store) as other:

        def erase_first(prompt: str) -> str:
            assert asks_to_learn(prompt)
            pipeline.erase_user(**ADA)
            return json.dumps({"facts": [], "topics": [], "entities": []})

        model = Counting(answer=erase_first)
        with opened(model, store=store) as pipeline:
            pipeline.add_messages([HumanMessage("I like tea.")], **USER)
            pipeline.end_session(**USER)
            assert pipeline.flush(30)

        assert len(model.learned) == 1
        assert other.usage.of_month(**ADA) == Usage()


def test_usage_limits_see_them() -> None:
    model = Counting()
    with opened(model) as pipeline:
        used_in_learning(model, pipeline)
        standing = pipeline.usage.standing(**USER, limits={"session_tokens": 1_460})

    assert standing is not None
    assert standing.left == pytest.approx(0.5)
