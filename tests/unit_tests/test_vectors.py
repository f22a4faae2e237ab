"""Vectors that are compared without what they have in common, and the arrays they grow in."""

from copy import deepcopy

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_ctxbudget.search import CentredVectors, as_query, units
from langchain_ctxbudget.search.vectors import FEW, GROWTH

WIDTH = 6
SIZES = st.integers(0, 3 * FEW)
SEEDS = st.integers(0, 10_000)


def drawn(size, seed):
    """Vectors that have much in common, as those of one conversation do."""
    rng = np.random.default_rng(seed)
    return (rng.normal(size=(size, WIDTH)) + 2).astype(np.float32)


def filled(rows):
    vectors = CentredVectors()
    vectors.extend(rows)
    return vectors


def count_in_mean(size):
    """How many of so many vectors are in the mean: the last of the steps that it is renewed at."""
    step = FEW
    following = int(step * GROWTH)
    while following <= size:
        step = following
        following = int(step * GROWTH)
    return step


def mean_of(rows, others):
    if len(rows) < FEW:
        return np.concatenate((others, rows)).mean(axis=0)
    return rows[: count_in_mean(len(rows))].mean(axis=0)


def cosines_of(rows, query, others):
    """The cosines, as they are written down in a book."""
    own = units(rows).astype(float)
    rest = units(others).astype(float)
    target = units(query[None])[0].astype(float)

    mean = mean_of(own, rest)
    centred = np.concatenate((rest, own)) - mean
    aim = target - mean
    return centred @ aim / (np.linalg.norm(centred, axis=1) * np.linalg.norm(aim))


@given(SIZES, st.integers(0, 5), SEEDS)
def test_similarities_are_cosines_without_the_mean(size, others, seed):
    rows = drawn(size, seed)
    rest = drawn(others, seed + 1)
    query = drawn(1, seed + 2)[0]

    similarities = filled(rows).compared(rest).cosines(query)

    assert similarities.shape == (others + size,)
    if size + others >= 2:  # a vector that is the mean has no direction
        assert similarities == pytest.approx(cosines_of(rows, query, rest), abs=3e-2)


@given(SIZES, SIZES, SIZES, SEEDS)
def test_vectors_compare_by_what_is_there_and_not_by_what_was(size, length, more, seed):
    rows = drawn(size, seed)
    added = drawn(more, seed + 1)
    query = drawn(1, seed + 2)[0]
    grown = CentredVectors()
    for part in np.split(rows, [size // 3, size // 2]):
        grown.extend(part)
        grown.compared().cosines(query)
    before = grown.compared().cosines(query)

    copied = deepcopy(grown)
    copied.truncate(length)
    copied.extend(added)

    fresh = filled(np.concatenate((rows[:length], added))).compared().cosines(query)
    assert copied.compared().cosines(query) == pytest.approx(fresh, abs=1e-5)
    assert grown.compared().cosines(query).tolist() == before.tolist()


# What cannot be compared


NOT_NUMBERS = np.full((1, WIDTH), np.nan, np.float32)


@pytest.fixture
def vectors():
    return filled(drawn(2 * FEW, 1))


def test_vectors_that_are_no_numbers_are_refused(vectors):
    with pytest.raises(ValueError, match="not numbers"):
        vectors.extend(NOT_NUMBERS)


def test_nothing_is_compared_with_what_is_no_number(vectors):
    comparison = vectors.compared()
    with pytest.raises(ValueError, match="not numbers"):
        comparison.cosines(NOT_NUMBERS[0])


def test_a_query_that_is_no_number_is_refused():
    with pytest.raises(ValueError, match="not numbers"):
        as_query(NOT_NUMBERS[0])


def test_a_query_of_another_width_is_refused():
    with pytest.raises(ValueError, match="2 dimensions, and those of the texts have 3"):
        as_query([1.0, 2.0], 3)


@pytest.mark.parametrize("is_copied", [False, True], ids=["as they grew", "a copy"])
@pytest.mark.parametrize("size", [3, 2 * FEW])
def test_what_is_absent_is_similar_to_nothing(size, is_copied):
    rows = drawn(size, 1)
    rows[1] = 0
    vectors = filled(rows[:1])
    vectors.extend(rows[1:])
    if is_copied:
        vectors = deepcopy(vectors)

    similarities = vectors.compared(rows[:2]).cosines(-rows[0])

    assert similarities[3] == 0
    assert np.count_nonzero(similarities) == size, "and one of the two others is absent, too"
