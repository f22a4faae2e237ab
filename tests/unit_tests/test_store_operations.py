"""The rules of a store without a database: ids, prefixes, JSON text, filters, namespaces, checked batches."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.embeddings import DeterministicFakeEmbedding
from langgraph.store.base import GetOp, InvalidNamespaceError, MatchCondition, PutOp, SearchOp
from langgraph.store.base.embed import ensure_embeddings
from langgraph.store.memory import _compare_values, _does_match

from langchain_ctxbudget.errors import InputError
from langchain_ctxbudget.stores import embeddings_name
from langchain_ctxbudget.stores.operations import (
    checked_puts,
    fingerprint,
    id_prefix,
    item_id,
    matches,
    namespace_matches,
    parse_item_id,
    prefix_fields,
    to_json,
)

LABEL = st.text(min_size=1, max_size=4) | st.sampled_from(['"', '", "', "\\", "]", "*"])
NAMESPACE = st.lists(LABEL, max_size=10).map(tuple)
LEAF = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
JSON = st.recursive(LEAF, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=10)
WITHOUT_BOOLEANS = st.recursive(
    st.none() | st.integers(-2, 2) | st.sampled_from(["a", "b"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
    max_leaves=4,
)
NUMBER = st.integers() | st.floats(allow_nan=False)
PATH = st.lists(st.sampled_from(["a", "b", "*"]), max_size=4).map(tuple)


@given(NAMESPACE, NAMESPACE, st.text())
def test_ids_and_prefixes(prefix: tuple[str, ...], namespace: tuple[str, ...], key: str) -> None:
    for place in (namespace, prefix + namespace):
        assert parse_item_id(item_id(place, key)) == (place, key)
        assert item_id(place, key).startswith(id_prefix(prefix)) == (place[: len(prefix)] == prefix)
    assert prefix_fields(prefix).items() <= prefix_fields(prefix + namespace).items()


def test_a_fingerprint_is_that_of_stores_which_exist() -> None:
    assert fingerprint("text") == -2_885_857_786_150_249_956


@given(st.dictionaries(st.text(), JSON))
def test_json_text_reads_back_the_same(value: dict[str, Any]) -> None:
    assert json.dumps(json.loads(to_json(value))) == json.dumps(value)


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
    for unknown in ({"a": {"$in": [1]}}, {"a": {"b": {"$x": 1}}}, {"a": {"$gt": 1, "b": 2}}):
        with pytest.raises(InputError, match="Unknown operator"):
            matches({"a": {"b": 1}}, unknown)


@given(WITHOUT_BOOLEANS, WITHOUT_BOOLEANS, st.sampled_from(["plain", "$eq", "$ne"]), NUMBER, NUMBER)
def test_comparisons_are_those_of_langgraph(value: object, wanted: object, how: str, one: float, two: float) -> None:
    condition = wanted if how == "plain" else {how: wanted}
    assert matches(value, condition) == _compare_values(value, condition)
    results = [matches(one, {name: two}) for name in ("$lt", "$lte", "$gt", "$gte")]
    assert results == [one < two, one <= two, one > two, one >= two]


@given(st.lists(st.sampled_from("abc"), max_size=4).map(tuple), PATH, st.sampled_from(["prefix", "suffix"]))
def test_namespace_patterns_match_as_in_langgraph(namespace: tuple[str, ...], path: tuple[str, ...], how: Any) -> None:
    condition = MatchCondition(how, path)
    assert namespace_matches(namespace, condition) == _does_match(condition, namespace)
    with pytest.raises(InputError, match="infix"):
        namespace_matches(namespace, MatchCondition("infix", path))  # type: ignore[arg-type]


def test_a_batch_is_checked_before_anything_is_read() -> None:
    value = {"list": [1], "a": "same", "b": "same"}
    puts = checked_puts([PutOp(("n",), "k", {"a": "old"}), PutOp(("n",), "k", value)], ["a", "b"])
    value["list"].append(2)  # type: ignore[attr-defined]
    assert [(put.value, put.to_embed) for put in puts.values()] == [('{"list":[1],"a":"same","b":"same"}', ["same"])]
    for fields, index, expected in ((["$"], None, ['{"a": "x"}']), (["$"], False, []), (None, ["a"], [])):
        [put] = checked_puts([PutOp(("n",), "k", {"a": "x"}, index=index)], fields).values()  # type: ignore[arg-type]
        assert put.to_embed == expected
    for op in (GetOp(("a.b",), "k"), SearchOp(("",)), PutOp(("\0",), "k", {})):
        with pytest.raises(InvalidNamespaceError):
            checked_puts([op], None)
    wrong: list[Any] = ["get", None, PutOp(("n",), "k", ["list"]), PutOp(("n",), "k", {}, ttl=True)]  # type: ignore[arg-type]
    for op in wrong:
        with pytest.raises(InputError):
            checked_puts([op], None)


def test_embeddings_are_known_by_model_function_or_class() -> None:
    class Named(DeterministicFakeEmbedding):
        model: str = "text-embedding-x"

    def my_function(texts: list[str]) -> list[list[float]]:
        return [[1.0] for _ in texts]

    given = (Named(size=1), DeterministicFakeEmbedding(size=1), ensure_embeddings(my_function))
    assert [embeddings_name(it) for it in given] == ["text-embedding-x", "DeterministicFakeEmbedding", "my_function"]
