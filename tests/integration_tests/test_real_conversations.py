"""Real long conversations: evidence recall. The data is not part of this repository."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

EVALUATION = Path(__file__).parents[3] / "shared" / "eval"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not EVALUATION.exists(), reason="the evaluation data is not beside this checkout"),
]


@pytest.fixture(scope="module")
def evaluation() -> ModuleType:
    spec = importlib.util.spec_from_file_location("evidence_recall", EVALUATION / "evidence_recall.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# What must hold is about three points under what these very questions reached when it was written down.


@pytest.mark.parametrize(
    "case",
    [
        *[("locomo", 512, 50, 72, 0), ("locomo", 1_024, 50, 83, 100), ("locomo", 8_192, 50, 96, 100)],
        ("realmem", 2_048, 20, 59, 0),
    ],
)
def test_chats_fit_and_hold_the_evidence_and_with_room_the_newest_messages(
    evaluation: ModuleType, case: tuple[str, int, int, float, float]
) -> None:
    name, budget, limit, recall, recent = case
    path = EVALUATION / "data" / f"{name}.dev.jsonl.gz"
    row = evaluation.run(path, "ctxbudget", budget, limit, {"adversarial"})
    assert row["over"] == 0
    assert row["dated"] == 100
    assert row["recent"] >= recent
    assert row["recall"] >= recall
