"""`ChromaStore` under random operations: it is a dict, and its memory changes no answer."""

import json
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langgraph.store.base import GetOp, IndexConfig, PutOp, SearchOp
from langgraph.store.memory import _compare_values

from langchain_ctxbudget import ChromaStore
from langchain_ctxbudget.stores.chroma_search import matches
from tests.stores import INDEX

PARTS: IndexConfig = {**INDEX, "fields": ["parts[*]"]}
Namespace = tuple[str, ...]

labels = st.sampled_from(["a", "b", "it's", "ü 😀", "x" * 300])
namespaces = st.lists(labels, min_size=1, max_size=3).map(tuple)
strange_keys = st.sampled_from(["k", 'quote"', "$ne", "a.b", "nul\0", "n/1", "n/2", ""])
keys = strange_keys | st.text(max_size=5)
leaves = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
)
json_values = st.recursive(
    leaves, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=8
)
fields = st.sampled_from(["v", "w"]) | st.text(max_size=3)
values = st.dictionaries(fields, json_values, max_size=3)
puts = st.tuples(namespaces, keys, st.none() | values)

common = settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])


class PlainStore:
    """What a store is by the contract: the values, and in which batch each was put last."""

    def __init__(self) -> None:
        self.values: dict[tuple[Namespace, str], dict[str, Any]] = {}
        self.batches: dict[tuple[Namespace, str], int] = {}

    def put(self, batch: int, namespace: Namespace, key: str, value: dict[str, Any] | None) -> None:
        place = (namespace, key)
        self.values.pop(place, None)
        self.batches.pop(place, None)
        if value is not None:
            self.values[place] = value
            self.batches[place] = batch

    def put_all(self, number: int, batch: Iterable[tuple[Any, str, Any]]) -> None:
        for namespace, key, value in batch:
            self.put(number, namespace, key, value)

    def places_below(self, prefix: Namespace) -> set[tuple[Namespace, str]]:
        return {place for place in self.values if place[0][: len(prefix)] == prefix}

    def namespaces(self) -> list[Namespace]:
        return sorted({namespace for namespace, _ in self.values})


def values_of(plain: PlainStore) -> list[str]:
    """The values of a store by the contract, as JSON: it tells 1 from 1.0 and from True."""
    return [json.dumps(value) for value in plain.values.values()]


def values_in(store: ChromaStore, places: Iterable[tuple[Namespace, str]]) -> list[str]:
    """The values at some places of a store, as JSON."""
    items = [store.get(namespace, key) for namespace, key in places]
    return [json.dumps(item.value) for item in items]


@common
@given(st.lists(st.lists(puts, min_size=1, max_size=5), max_size=8), namespaces)
def test_a_store_behaves_like_a_dict(
    batches: list[list[tuple[Any, str, Any]]], prefix: Namespace
) -> None:
    plain = PlainStore()
    begin = datetime(2026, 1, 1, tzinfo=UTC)
    seconds = count()
    with ChromaStore(clock=lambda: begin + timedelta(seconds=next(seconds))) as store:
        for number, batch in enumerate(batches):
            store.batch([PutOp(*put) for put in batch])
            plain.put_all(number, batch)
            assert values_in(store, plain.values) == values_of(plain)

        items = store.search(prefix, limit=1000)
        all_namespaces = store.list_namespaces(limit=1000)

    places = [(item.namespace, item.key) for item in items]
    assert set(places) == plain.places_below(prefix)
    newest_first = [plain.batches[place] for place in places]
    assert newest_first == sorted(newest_first, reverse=True)
    assert all_namespaces == plain.namespaces()


PLACES: list[Namespace] = [("a",), ("a", "x"), ("a", "x", "deep"), ("b", "x"), ("b",)]
PREFIXES: list[Namespace] = [(), ("a",), ("a", "x"), ("b",), ("c",)]

words = st.lists(st.sampled_from(["one", "two", "one two", "three", ""]), max_size=3)
puts_of_words = st.tuples(st.sampled_from(PLACES), st.sampled_from("klm"), st.none() | words)


def put_of_words(namespace: Namespace, key: str, parts: list[str] | None) -> PutOp:
    value = None if parts is None else {"parts": parts}
    return PutOp(namespace, key, value)


def answers(store: ChromaStore) -> list[str]:
    """What a store answers to searches everywhere, and to gets."""
    searches = [SearchOp(prefix, query="one three", limit=50) for prefix in PREFIXES]
    gets = [GetOp(place, "k") for place in PLACES]
    other_gets = [GetOp(place, "l") for place in PLACES]
    return [repr(result) for result in store.batch([*searches, *gets, *other_gets])]


def forget(store: ChromaStore) -> None:
    """Empties what a store remembers of its collection."""
    store._chroma.listed = {}
    store._chroma.recent = {}


@common
@given(st.lists(st.lists(puts_of_words, max_size=4), max_size=8))
def test_memory_changes_no_answer(batches: Iterable[Iterable[tuple[Any, str, Any]]]) -> None:
    with ChromaStore(index=PARTS) as store:
        for batch in batches:
            store.batch([put_of_words(*put) for put in batch])
            from_memory = answers(store)
            forget(store)
            assert from_memory == answers(store)


# -- comparisons in filters

simple_values = (
    st.none()
    | st.integers(-2, 2)
    | st.sampled_from(["a", "b"])
    | st.lists(st.integers(0, 1), max_size=2)
)
numbers = st.integers() | st.floats(allow_nan=False)


@given(simple_values, simple_values)
def test_a_plain_condition_compares_as_langgraph_does(value: object, condition: object) -> None:
    assert matches(value, condition) == _compare_values(value, condition)


@given(simple_values, simple_values, st.sampled_from(["$eq", "$ne"]))
def test_equality_compares_as_langgraph_does(value: object, operand: object, name: str) -> None:
    condition = {name: operand}
    assert matches(value, condition) == _compare_values(value, condition)


@given(numbers, numbers)
def test_numbers_are_ordered_as_numbers(value: float, operand: float) -> None:
    assert matches(value, {"$lt": operand}) == (value < operand)
    assert matches(value, {"$lte": operand}) == (value <= operand)
    assert matches(value, {"$gt": operand}) == (value > operand)
    assert matches(value, {"$gte": operand}) == (value >= operand)
