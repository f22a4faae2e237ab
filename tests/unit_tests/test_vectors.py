"""Vectors that are compared without what they all have in common, and the arrays that they grow in."""

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
    return (np.random.default_rng(seed).normal(size=(size, WIDTH)) + 2).astype(np.float32)


def filled(vectors):
    made = CentredVectors()
    made.extend(vectors)
    return made


def in_mean(size):
    """How many of so many vectors are in the mean."""
    steps = [FEW]
    while steps[-1] <= size:
        steps.append(int(steps[-1] * GROWTH))
    return steps[-2]


def plain(vectors, query, others):
    """The cosines, as one would write them down."""
    rows = units(np.concatenate((others, vectors))).astype(float)
    target = units(query[None])[0].astype(float)
    own = rows[len(others) :]
    mean = own[: in_mean(len(own))].mean(axis=0) if len(own) >= FEW else rows.mean(axis=0)
    centred = rows - mean
    aim = target - mean
    return centred @ aim / (np.linalg.norm(centred, axis=1) * np.linalg.norm(aim))


@given(SIZES, st.integers(0, 5), SEEDS)
def test_similarities_are_cosines_without_the_mean(size, others, seed):
    rows = drawn(size, seed)
    rest = drawn(others, seed + 1)
    query = drawn(1, seed + 2)[0]
    found = filled(rows).compared(rest).cosines(query)
    assert found.shape == (others + size,)
    if size + others >= 2:  # a vector that is the mean has no direction
        assert found == pytest.approx(plain(rows, query, rest), abs=2e-2)


@given(SIZES, SIZES, SIZES, SEEDS)
def test_vectors_compare_by_what_is_there_whatever_was_added_taken_away_and_asked_before(
    size, length, more, seed
):
    rows = drawn(size, seed)
    rest = drawn(more, seed + 1)
    query = drawn(1, seed + 2)[0]
    grown = CentredVectors()
    for part in np.split(rows, [size // 3, size // 2]):
        grown.extend(part)
        grown.compared().cosines(query)
    before = grown.compared().cosines(query)
    twin = deepcopy(grown)
    twin.truncate(length)
    twin.extend(rest)
    fresh = filled(np.concatenate((rows[:length], rest)))
    assert twin.compared().cosines(query) == pytest.approx(
        fresh.compared().cosines(query), abs=1e-5
    )
    assert grown.compared().cosines(query).tolist() == before.tolist()


def test_what_is_no_number_or_of_another_width_is_refused():
    bad = np.full((1, WIDTH), np.nan, np.float32)
    vectors = filled(drawn(2 * FEW, 1))
    for refused in (
        lambda: vectors.extend(bad),
        lambda: vectors.compared().cosines(bad[0]),
        lambda: as_query(bad[0]),
    ):
        with pytest.raises(ValueError, match="not numbers"):
            refused()
    with pytest.raises(ValueError, match="2 dimensions, and those of the texts have 3"):
        as_query([1.0, 2.0], 3)


@pytest.mark.parametrize("size", [3, 2 * FEW])
def test_what_is_absent_is_similar_to_nothing(size):
    rows = drawn(size, 1)
    rows[1] = 0
    vectors = filled(rows[:1])
    vectors.extend(rows[1:])
    for kept in (vectors, deepcopy(vectors)):
        found = kept.compared(rows[:2]).cosines(-rows[0])
        assert found[3] == 0
        assert (
            np.count_nonzero(found) == size
        )  # of those that it is compared with, one is absent, too
