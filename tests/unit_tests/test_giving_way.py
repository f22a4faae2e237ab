"""Items give way in order, as far as needed, and no further."""

from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_ctxbudget.prompt.giving_way import Yielding, give_way


class Texts:
    """Texts with sizes in tokens, of which each can shrink to a smallest size."""

    def __init__(self, *sizes: int, smallest: int = 0) -> None:
        self.sizes = list(sizes)
        self.smallest = smallest
        self.touched: list[int] = []

    def shrink(self, number: int, excess_tokens: int) -> int:
        self.touched.append(number)
        before = self.sizes[number]
        self.sizes[number] = max(min(self.smallest, before), before - excess_tokens)
        return before - self.sizes[number]

    def items(self, *priorities: int) -> list[Yielding]:
        return [
            Yielding(priority, partial(self.shrink, number))
            for number, priority in enumerate(priorities)
        ]


def test_the_least_important_gives_way_first() -> None:
    texts = Texts(10, 10, 10)

    give_way(texts.items(3, 1, 2), 15)

    assert texts.sizes == [10, 0, 5]


def test_nothing_gives_way_where_nothing_is_over() -> None:
    texts = Texts(10, 10)

    assert give_way(texts.items(1, 2), 0) == 0
    assert texts.touched == []


def test_what_cannot_be_freed_is_told() -> None:
    texts = Texts(10, 10, smallest=4)

    assert give_way(texts.items(1, 2), 15) == 3


@pytest.mark.parametrize(("excess", "touched"), [(0, [1]), (5, [0, 1])])
def test_what_goes_anyway_goes_however_little_is_over(excess: int, touched: list[int]) -> None:
    texts = Texts(10, 10)
    items = [
        Yielding(1, partial(texts.shrink, 0)),
        Yielding(2, partial(texts.shrink, 1), goes_anyway=True),
    ]

    give_way(items, excess)

    assert texts.touched == touched


SIZES = st.lists(st.integers(0, 50), max_size=12)


@given(SIZES, st.integers(0, 5), st.integers(0, 300))
def test_as_much_is_freed_as_is_asked_for_and_can_be(
    sizes: list[int], smallest: int, excess: int
) -> None:
    texts = Texts(*sizes, smallest=smallest)
    most = sum(max(0, size - smallest) for size in sizes)

    left = give_way(texts.items(*range(len(sizes))), excess)

    assert sum(sizes) - sum(texts.sizes) == min(excess, most)
    assert left == excess - min(excess, most)


@given(SIZES, st.integers(0, 300))
def test_an_item_gives_way_only_once_all_before_it_have(sizes: list[int], excess: int) -> None:
    texts = Texts(*sizes)

    give_way(texts.items(*range(len(sizes))), excess)

    changed = [number for number, size in enumerate(sizes) if texts.sizes[number] != size]
    if changed:
        assert all(texts.sizes[number] == 0 for number in range(changed[-1]))
