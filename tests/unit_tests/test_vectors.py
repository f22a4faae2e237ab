"""Vectors that are compared without what they all have in common."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from langchain_ctxbudget.search.vectors import FEW, GROWTH, CentredVectors, as_query, comparable, units

WIDTH = 6
SIZES = st.integers(0, 3 * FEW)
SEEDS = st.integers(0, 10_000)
OTHERS = st.integers(0, 5)


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
    rows, target = units(np.concatenate((others, vectors))).astype(float), units(query[None])[0].astype(float)
    own = rows[len(others) :]
    mean = own[: in_mean(len(own))].mean(axis=0) if len(own) >= FEW else rows.mean(axis=0)
    centred, aim = rows - mean, target - mean
    return centred @ aim / (np.linalg.norm(centred, axis=1) * np.linalg.norm(aim))


@settings(deadline=None)
@given(SIZES, OTHERS, SEEDS)
def test_similarities_are_cosines_without_the_mean(size, others, seed):
    rows, rest, query = drawn(size, seed), drawn(others, seed + 1), drawn(1, seed + 2)[0]
    if size + others < 2:
        return  # a vector that is the mean has no direction
    found = filled(rows).similarities(query, rest)
    assert found == pytest.approx(plain(rows, query, rest), abs=1e-4)


@settings(deadline=None)
@given(SIZES, st.lists(SIZES, max_size=4), SEEDS)
def test_vectors_that_are_added_in_pieces_compare_as_those_that_are_added_at_once(size, cuts, seed):
    rows, query = drawn(size, seed), drawn(1, seed + 1)[0]
    pieces = CentredVectors()
    for part in np.split(rows, sorted(min(cut, size) for cut in cuts)):
        pieces.extend(part)
        pieces.similarities(query)
    assert len(pieces) == size
    assert pieces.similarities(query) == pytest.approx(filled(rows).similarities(query), abs=1e-5)


@settings(deadline=None)
@given(SIZES, SIZES, SIZES, SEEDS)
def test_truncated_vectors_compare_as_if_the_others_had_never_been(size, length, more, seed):
    rows, rest, query = drawn(size, seed), drawn(more, seed + 1), drawn(1, seed + 2)[0]
    cut = filled(rows)
    cut.similarities(query)
    cut.truncate(length)
    cut.extend(rest)
    fresh = filled(np.concatenate((rows[:length], rest)))
    assert cut.similarities(query) == pytest.approx(fresh.similarities(query), abs=1e-5)


@pytest.mark.parametrize("size", [FEW - 2, 2 * FEW])
def test_a_copy_grows_by_itself(size):
    vectors = filled(drawn(size, 1))
    query = drawn(1, 2)[0]
    before = vectors.similarities(query)
    twin = vectors.copy()
    twin.extend(drawn(40, 3))
    assert twin.similarities(query).shape == (size + 40,)
    assert vectors.similarities(query).tolist() == before.tolist()


@pytest.mark.parametrize("size", [2, 2 * FEW])
@pytest.mark.parametrize("others", [0, 3])
def test_vectors_without_a_length_are_numbers_all_the_same(size, others):
    vectors = filled(np.concatenate((np.zeros((1, WIDTH)), drawn(size, 1))))
    for query in (np.zeros(WIDTH), drawn(1, 2)[0]):
        found = vectors.similarities(query, np.zeros((others, WIDTH), np.float32))
        assert found.shape == (others + size + 1,)
        assert np.isfinite(found).all()


def test_vectors_that_are_all_the_same_are_alike_to_nothing():
    found = filled(np.tile(drawn(1, 1), (2 * FEW, 1))).similarities(drawn(1, 2)[0])
    assert np.isfinite(found).all()


def test_no_vectors_have_no_similarities():
    assert CentredVectors().similarities(np.ones(WIDTH)).shape == (0,)


@pytest.mark.parametrize("size", [3, 2 * FEW])
def test_others_come_first(size):
    query = drawn(1, 2)[0]
    found = filled(drawn(size, 1)).similarities(query, query[None])
    assert found.argmax() == 0


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_no_number_is_refused(value):
    bad = np.full((1, WIDTH), value, np.float32)
    vectors = filled(drawn(2 * FEW, 1))
    with pytest.raises(ValueError, match="not numbers"):
        vectors.extend(bad)
    with pytest.raises(ValueError, match="not numbers"):
        vectors.similarities(bad[0])
    with pytest.raises(ValueError, match="not numbers"):
        vectors.similarities(drawn(1, 2)[0], bad)
    assert len(vectors) == 2 * FEW


def test_vectors_of_another_width_are_refused():
    vectors = filled(drawn(3, 1))
    with pytest.raises(ValueError):
        vectors.extend(np.ones((1, WIDTH + 1)))


def test_of_vectors_that_cannot_be_compared_zeros_are_kept_and_their_numbers():
    given = [[1.0, 2.0], [np.nan, 1.0], [3.0, 4.0], [1.0], [np.inf, 1.0], [[1.0, 2.0]]]
    rows, absent = comparable(given, 2)
    assert rows.tolist() == [[1, 2], [0, 0], [3, 4], [0, 0], [0, 0], [0, 0]]
    assert absent == (1, 3, 4, 5)


@pytest.mark.parametrize("size", [3, 2 * FEW])
def test_what_is_absent_is_similar_to_nothing(size):
    rows = drawn(size, 1)
    rows[1] = 0
    vectors = CentredVectors()
    vectors.extend(rows[:1])
    vectors.extend(rows[1:], [0])
    for kept in (vectors, vectors.copy()):
        found = kept.similarities(-rows[0], rows[:2])
        assert found[3] == 0
        assert np.count_nonzero(found) == size + 1


def test_what_is_absent_is_forgotten_with_the_last_vectors():
    vectors = CentredVectors()
    vectors.extend(np.zeros((3, WIDTH)), [0, 2])
    vectors.truncate(2)
    assert vectors.absent == [0]


def test_a_query_of_another_width_than_the_texts_is_refused():
    with pytest.raises(ValueError, match="2 dimensions, and those of the texts have 3"):
        as_query([1.0, 2.0], 3)


def test_a_new_vector_leaves_the_others_as_similar_as_they_were_until_the_mean_is_renewed():
    rows, query = drawn(2 * FEW, 1), drawn(1, 2)[0]
    vectors = filled(rows[:FEW])
    before = vectors.similarities(query)
    vectors.extend(rows[FEW : FEW + 2])
    assert vectors.similarities(query)[:FEW].tolist() == before.tolist()
    vectors.extend(rows[FEW + 2 :])
    assert vectors.similarities(query)[:FEW].tolist() != before.tolist()


def test_all_vectors_are_kept_with_length_one():
    assert np.linalg.norm(filled(drawn(5, 1) * 40).units, axis=1) == pytest.approx(np.ones(5))
