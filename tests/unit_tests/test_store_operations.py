"""Ids and filters of `ChromaStore`, puts that make no sense, and the names of embeddings."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langgraph.store.base import GetOp, InvalidNamespaceError, ListNamespacesOp, MatchCondition, PutOp, SearchOp
from langgraph.store.memory import _compare_values

from langchain_ctxbudget import ChromaStore
from langchain_ctxbudget.errors import InputError
from langchain_ctxbudget.stores.chroma import matches

WITHOUT_BOOLEANS = st.recursive(
    st.none() | st.integers(-2, 2) | st.sampled_from(["a", "b"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
    max_leaves=4,
)
NUMBER = st.integers() | st.floats(allow_nan=False)


def test_filters_compare_as_json_does() -> None:
    for value, wanted, expected in (
        (1, True, False),
        (True, True, True),
        (1, 1.0, True),
        ([1], [True], False),
        ({"a": [0]}, {"$eq": {"a": [False]}}, False),
        ({"$gt": 1}, {"$eq": {"$gt": 1}}, True),
        ({"a": 1, "b": 2}, {"a": 1}, True),
        ({"a": 1, "b": 2}, {"$eq": {"a": 1}}, False),
        (None, {"$gt": 1}, False),
        (True, {"$gte": 1}, False),
        ("b", {"$gt": "a"}, True),
        ("5", {"$gt": 4}, False),
        ("x", {"a": 1}, False),
    ):
        assert matches(value, wanted) is expected, (value, wanted)
    for unknown in ({"a": {"$in": [1]}}, {"a": {"b": {"$x": 1}}}, {"a": {"$ne": 1, "b": 2}}):
        with pytest.raises(InputError, match="Unknown operator"):
            matches({"a": {"b": 1}}, unknown)


@given(WITHOUT_BOOLEANS, WITHOUT_BOOLEANS, st.sampled_from(["plain", "$eq", "$ne"]), NUMBER, NUMBER)
def test_comparisons_are_those_of_langgraph(value: object, wanted: object, how: str, one: float, two: float) -> None:
    condition = wanted if how == "plain" else {how: wanted}
    assert matches(value, condition) == _compare_values(value, condition)
    results = [matches(one, {name: two}) for name in ("$lt", "$lte", "$gt", "$gte")]
    assert results == [one < two, one <= two, one > two, one >= two]


def test_an_operation_that_makes_no_sense_spoils_its_batch() -> None:
    wrong: list[Any] = ["get", None, PutOp(("n",), "k", ["list"]), PutOp(("n",), "k", {}, ttl=True)]  # type: ignore[arg-type]
    wrong.append(ListNamespacesOp((MatchCondition("infix", ("n",)),)))  # type: ignore[arg-type]
    with ChromaStore() as store:
        for op in wrong:
            with pytest.raises(InputError):
                store.batch([PutOp(("n",), "good", {}), op])
        for op in (GetOp(("a.b",), "k"), SearchOp(("",)), PutOp(("\0",), "k", {})):
            with pytest.raises(InvalidNamespaceError):
                store.batch([PutOp(("n",), "good", {}), op])
        assert store.search(()) == []
