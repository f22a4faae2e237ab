"""Arrays that grow."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_ctxbudget.search.rows import Rows

NUMBERS = st.lists(st.integers(-(2**31), 2**31 - 1), max_size=200)


def filled(*parts, dtype=np.int32):
    rows = Rows(dtype)
    for part in parts:
        rows.extend(part)
    return rows


@given(st.lists(NUMBERS, max_size=6))
def test_what_is_added_in_pieces_is_there_in_order(parts):
    rows = filled(*parts)
    assert rows.values.tolist() == [number for part in parts for number in part]
    assert len(rows) == sum(map(len, parts))


@given(NUMBERS, st.integers(0, 250), NUMBERS)
def test_what_is_added_after_a_truncation_follows_what_was_kept(numbers, length, more):
    rows = filled(numbers)
    rows.truncate(length)
    rows.extend(more)
    assert rows.values.tolist() == [*numbers[:length], *more]


@given(NUMBERS, NUMBERS)
def test_a_copy_grows_by_itself(numbers, more):
    rows = filled(numbers)
    twin = rows.copy()
    twin.extend(more)
    twin.values[:1] = 7
    assert rows.values.tolist() == numbers
    assert twin.values.tolist()[1:] == [*numbers, *more][1:]


def test_vectors_stay_vectors():
    rows = filled([[1.0, 2.0]], np.ones((100, 2)), dtype=np.float32)
    assert rows.values.shape == (101, 2)
    assert rows.values[0].tolist() == [1, 2]


def test_vectors_of_another_width_are_refused():
    rows = filled([[1.0, 2.0]], dtype=np.float32)
    with pytest.raises(ValueError):
        rows.extend([[1.0, 2.0, 3.0]])
    assert len(rows) == 1


def test_vectors_of_different_widths_are_refused():
    with pytest.raises(ValueError):
        Rows(np.float32).extend([[1.0], [1.0, 2.0]])


def test_values_are_the_rows_themselves():
    rows = filled([1, 2, 3])
    rows.values[1] = 9
    assert rows.values.tolist() == [1, 9, 3]


def test_rows_that_were_all_taken_away_may_have_another_width():
    rows = filled([[1.0, 2.0]], dtype=np.float32)
    rows.truncate(0)
    rows.extend([[1.0, 2.0, 3.0]])
    assert rows.values.tolist() == [[1, 2, 3]]


def test_adding_copies_what_is_there_only_now_and_then():
    rows, moves, buffer = Rows(np.int32), 0, None
    for number in range(10_000):
        rows.extend([number])
        moves += rows.values.base is not buffer
        buffer = rows.values.base
    assert moves <= 10
