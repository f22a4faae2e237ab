"""800 messages, one exchange at a time, with the emphasis on the cache: model calls, and what stays as it is."""

from __future__ import annotations

import statistics
from pathlib import Path

import pytest
from langchain_core.messages import BaseMessage

from langchain_ctxbudget import ChromaStore, ContextPipeline
from langchain_ctxbudget.history.summarizing import MESSAGES_PER_CALL
from tests.integration_tests.summary_models import USER, Scripted, exchange, summary, words

pytestmark = pytest.mark.slow

EXCHANGES = 400
BUDGET = 8_192
OPEN_NODES = 3
"""One at every level of the tree: what ends after the last early summary of an unfinished one comes on top."""


def test_eight_hundred_messages_one_exchange_at_a_time(tmp_path: Path) -> None:
    model = Scripted(answer=lambda text: summary(f"{words(len(text), 40)}.", narrative=f"{words(len(text), 12)}."))
    shares: list[float] = []
    quiet_calls: list[int] = []
    steps = 0
    zone: list[BaseMessage] = []
    settings = {"max_context_tokens": BUDGET, "emphasis": "cache", "learn": False}
    with (
        ChromaStore(path=tmp_path) as store,
        ContextPipeline(settings, system_prompt="You help.", store=store, summary_model=model) as pipeline,
    ):
        for number in range(EXCHANGES):
            context = pipeline.assemble(f"What of the {words(number, 4)}?", **USER)
            stability = context.report.stability
            assert context.report.total_tokens <= BUDGET
            if stability.compaction_step:
                steps += 1
            else:
                assert [m.content for m in context.messages[: len(zone)]] == [m.content for m in zone]
                quiet_calls.append(context.report.tokenizer_calls)
            zone = context.messages[:-1]
            if stability.stable_zone_share is not None:
                shares.append(stability.stable_zone_share)
            pipeline.add_messages(exchange(number), **USER)
            pipeline.flush(60)
        calls = len(model.read)
        last = pipeline.assemble("And now?", **USER)
        pipeline.flush(60)
        assert len(model.read) == calls
    assert 20 < calls <= 2 * EXCHANGES / MESSAGES_PER_CALL + OPEN_NODES
    assert steps <= EXCHANGES / 10
    assert statistics.fmean(shares[EXCHANGES // 5 :]) >= 0.9
    assert max(quiet_calls) <= 64
    again = Scripted()
    with (
        ChromaStore(path=tmp_path) as store,
        ContextPipeline(settings, system_prompt="You help.", store=store, summary_model=again) as pipeline,
    ):
        assert [m.content for m in pipeline.assemble("And now?", **USER).messages] == [m.content for m in last.messages]
        pipeline.flush(60)
        assert again.read == []
