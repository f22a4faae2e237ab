"""Filling a budget."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from langchain_ctxbudget.search import pack, shrink_to


@settings(deadline=None)
@given(st.lists(st.integers(1, 30)), st.integers(-5, 100), st.randoms(use_true_random=False))
def test_packing_takes_what_fits_at_its_turn_and_asks_each_price_once(costs, budget, random):
    order, asked, left = random.sample(range(len(costs)), len(costs)), [], budget
    taken = pack(order, lambda i: asked.append(i) or costs[i], budget, 1)
    assert taken == [i for i in order if i in taken]
    assert len(asked) == len(set(asked))
    for number in order:
        assert (number in taken) == (costs[number] <= left)
        left -= costs[number] if number in taken else 0


def words(text):
    return len(text.split())


@pytest.mark.parametrize(
    ("text", "budget", "shrunk"),
    [
        ("One two.  Three.", 3, "One two.  Three."),
        ("One two. Three four. Five.", 3, "One two. …"),
        *[("One two. Three four.", budget, None) for budget in (-1, 0, 2)],
    ],
)
def test_a_text_shrinks_to_its_first_sentences_that_fit(text, budget, shrunk):
    assert shrink_to(text, words, budget) == shrunk


@settings(deadline=None)
@given(st.lists(st.sampled_from(["One.", "Two two.", "Three three.\n", "字。"]), max_size=200), st.integers(0, 40))
def test_a_shrunk_text_fits_and_is_counted_a_logarithmic_number_of_times(parts, budget):
    counted = []
    shrunk = shrink_to(" ".join(parts), lambda text: counted.append(text) or len(text), budget)
    assert shrunk is None or len(shrunk) <= budget
    assert len(counted) <= (10 if budget else 0)
