"""The deterministic extraction keeps its precision and recall on the labelled chats."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

BENCHMARK = Path(__file__).resolve().parents[2] / "benchmarks" / "extraction_quality.py"


@pytest.fixture(scope="module")
def figures() -> ModuleType:
    spec = importlib.util.spec_from_file_location("extraction_quality", BENCHMARK)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def quality(figures):
    return figures.measure(figures.read())


@pytest.mark.parametrize(("kind", "recall"), [("facts", 0.25), ("entities", 0.6), ("topics", 0.5)])
def test_precision_comes_first_and_recall_holds(quality, kind, recall):
    for part in ("dev", "held"):
        total = quality.total([part], [kind])
        assert total.precision >= 0.95, (part, total)
        assert total.recall >= recall, (part, total)


def test_the_set_is_large_enough_and_half_of_it_yields_nothing(figures):
    chats = figures.read()
    assert len(chats) >= 12
    assert sum(chat.rich for chat in chats) >= 120
    assert sum(chat.empty for chat in chats) >= sum(chat.rich for chat in chats)


def test_what_is_found_twice_or_in_another_message_is_wrong(figures):
    chat = next(chat for chat in figures.read() if chat.id == "cook")
    label = chat.labels["facts"][0]
    found = figures.Found("Is allergic to hazelnuts", messages=frozenset({label.message}))
    once, _ = figures.compared(chat, "facts", [found])
    twice, _ = figures.compared(chat, "facts", [found, found])
    assert (once.right, once.found) == (1, 1)
    assert (twice.right, twice.found) == (1, 2)
    elsewhere, mistakes = figures.compared(chat, "facts", [found._replace(messages=frozenset({"cook/2"}))])
    assert (elsewhere.right, elsewhere.found, mistakes[0].wrong) == (0, 1, True)


def test_a_fact_that_drops_a_negation_is_wrong(figures):
    label = figures.Label(("pork",), negated=True, message="m")
    assert figures.fits_fact(label, figures.Found("Doesn't eat pork", messages=frozenset({"m"})))
    assert not figures.fits_fact(label, figures.Found("Eats pork", messages=frozenset({"m"})))
