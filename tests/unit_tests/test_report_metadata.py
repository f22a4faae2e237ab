"""The metadata of a report: flat, few keys, true, and nothing that is anybody's."""

from __future__ import annotations

import json
from dataclasses import replace

from langchain_ctxbudget.budget.layers import Reason, Status
from langchain_ctxbudget.messages.turns import Repair
from langchain_ctxbudget.report.report import LayerReport, ReportItem, Stability
from tests.unit_tests.test_report import example


def test_it_says_what_the_report_says() -> None:
    report = example(
        window_tokens=8_000,
        output_reserve_tokens=400,
        stability=Stability(
            stable_zone_tokens=5, shared_tokens=4, stable_zone_share=0.8, prompt_share=0.5, compaction_step=True
        ),
        repairs=(Repair("orphan_result", "m1", "left out"),),
        failures=("embeddings: none", "summaries: none"),
        timings_ms={"open": 1.5, "assemble": 2.25049},
    )
    assert report.to_metadata() == {
        "ctxbudget_total_tokens": 15,
        "ctxbudget_budget_tokens": 1_000,
        "ctxbudget_window_tokens": 8_000,
        "ctxbudget_output_reserve_tokens": 400,
        "ctxbudget_count_mode": "exact",
        "ctxbudget_tokenizer": "o200k_base",
        "ctxbudget_allocation_strategy": "elastic",
        "ctxbudget_history_strategy": "full",
        **dict.fromkeys([f"ctxbudget_tokens_L{n}" for n in (0, 1, 2, 3, 4, 5, 7)], 0),
        "ctxbudget_tokens_L6": 5,
        "ctxbudget_stable_zone_share": 0.8,
        "ctxbudget_compaction_step": True,
        "ctxbudget_messages_verbatim": 0,
        "ctxbudget_messages_summarized": 39,
        "ctxbudget_messages_retrieved": 1,
        "ctxbudget_messages_omitted": 0,
        "ctxbudget_repairs": 1,
        "ctxbudget_failures": 2,
        "ctxbudget_total_ms": 3.75,
    }


def test_it_has_no_words_of_a_user_and_no_ids() -> None:
    item = ReportItem(
        id="SECRET-1", tokens=5, status=Status.INCLUDED, reason=Reason.RECENT, preview="SECRET words of a user"
    )
    own = LayerReport(
        layer="SECRET layer", title="SECRET", allocated_tokens=9, items=(item,), overhead_tokens=0, used_tokens=5
    )
    report = example(
        user_id="SECRET-ada",
        conversation_id="SECRET-c1",
        repairs=(Repair("orphan_result", "SECRET-m1", "SECRET"),),
        failures=("SECRET: at SECRET",),
        window_detail="http://SECRET",
        summary_lines={"SECRET model": 1},
    )
    secretive = replace(report, layers=(*(replace(part, items=(item,)) for part in report.layers), own))
    assert "SECRET" not in json.dumps(secretive.to_metadata())
