"""What is learned without a model is right on the labelled chats; how much it finds is only reported."""

import importlib.util
from pathlib import Path

BENCHMARK = Path(__file__).resolve().parents[2] / "benchmarks" / "extraction_quality.py"


def test_what_is_learned_without_a_model_is_right_and_half_of_what_is_said_teaches_nothing():
    spec = importlib.util.spec_from_file_location("extraction_quality", BENCHMARK)
    figures = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(figures)
    chats = figures.read()
    quality = figures.measure(chats)
    for part in figures.PARTS:
        for kind in figures.KINDS:
            total = quality.total([part], [kind])
            assert total.precision >= 0.95, (part, kind, total)
            assert total.recall >= 0.2, (part, kind, total)  # or it would be silent
    assert sum(chat.empty for chat in chats) >= sum(chat.rich for chat in chats) >= 120
