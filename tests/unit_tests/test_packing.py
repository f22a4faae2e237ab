"""Filling a budget."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from langchain_ctxbudget.search.packing import pack, shrink_to


def test_an_item_that_does_not_fit_is_skipped():
    assert pack([0, 1, 2], [5, 20, 4].__getitem__, 10, 1) == [0, 2]


def test_packing_ends_when_not_even_the_smallest_is_left():
    asked = []
    pack(range(1000), lambda i: asked.append(i) or 4, 10, 4)
    assert asked == [0, 1]


@settings(deadline=None)
@given(st.lists(st.integers(1, 30)), st.integers(-5, 100))
def test_packed_items_fit_together(costs, budget):
    assert sum(costs[i] for i in pack(range(len(costs)), costs.__getitem__, budget, 1)) <= max(0, budget)


@settings(deadline=None)
@given(st.lists(st.integers(1, 30)), st.integers(0, 100), st.randoms(use_true_random=False))
def test_packed_items_are_best_first(costs, budget, random):
    order = random.sample(range(len(costs)), len(costs))
    taken = pack(order, costs.__getitem__, budget, 1)
    assert taken == [i for i in order if i in taken]


@settings(deadline=None)
@given(st.lists(st.integers(1, 30)), st.integers(0, 100))
def test_no_item_left_out_would_have_fitted_at_its_turn(costs, budget):
    taken = pack(range(len(costs)), costs.__getitem__, budget, 1)
    assert all(sum(costs[j] for j in taken if j < i) + costs[i] > budget for i in range(len(costs)) if i not in taken)


@settings(deadline=None)
@given(st.lists(st.integers(1, 30)), st.integers(0, 100))
def test_the_price_of_an_item_is_asked_once(costs, budget):
    asked = []
    pack(range(len(costs)), lambda i: asked.append(i) or costs[i], budget, 1)
    assert len(asked) == len(set(asked))


def words(text):
    return len(text.split())


def test_a_text_that_fits_stays_whole():
    assert shrink_to("One two.  Three.", words, 3) == "One two.  Three."


def test_a_text_shrinks_to_its_first_sentences():
    assert shrink_to("One two. Three four. Five.", words, 3) == "One two. …"


@pytest.mark.parametrize("budget", [-1, 0, 2])
def test_a_text_of_which_no_sentence_fits_is_none(budget):
    assert shrink_to("One two. Three four.", words, budget) is None


def test_without_a_budget_nothing_is_tokenized():
    counted = []
    shrink_to("One two.", lambda text: counted.append(text) or 1, 0)
    assert counted == []


@settings(deadline=None)
@given(st.text(alphabet="ab .!\n。", max_size=200), st.integers(0, 40))
def test_a_shrunk_text_fits(text, budget):
    shrunk = shrink_to(text, len, budget)
    assert shrunk is None or len(shrunk) <= budget


@settings(deadline=None)
@given(st.lists(st.sampled_from(["One.", "Two two.", "Three three three."]), max_size=200), st.integers(1, 40))
def test_a_text_is_counted_a_logarithmic_number_of_times(parts, budget):
    counted = []
    shrink_to(" ".join(parts), lambda text: counted.append(text) or words(text), budget)
    assert len(counted) <= 10
