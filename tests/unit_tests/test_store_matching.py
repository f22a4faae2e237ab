"""The pure rules of a store: ids, prefixes, JSON text, filters, namespaces."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langgraph.store.base import MatchCondition
from langgraph.store.memory import _compare_values, _does_match

from langchain_ctxbudget.errors import InputError
from langchain_ctxbudget.stores.matching import (
    INDEXED_DEPTH,
    bucket_of,
    buckets_below,
    check_filter,
    fingerprint,
    from_microseconds,
    id_prefix,
    item_id,
    matches,
    namespace_matches,
    parse_item_id,
    prefix_fields,
    prefix_query,
    to_json,
    to_microseconds,
)

LABEL = st.text(min_size=1, max_size=4) | st.sampled_from(['"', '", "', "\\", "]", "*"])
NAMESPACE = st.lists(LABEL, max_size=10).map(tuple)
LEAF = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
JSON = st.recursive(LEAF, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=10)


@given(NAMESPACE, st.text())
def test_id_gives_back_namespace_and_key(namespace: tuple[str, ...], key: str) -> None:
    assert parse_item_id(item_id(namespace, key)) == (namespace, key)
    assert item_id(namespace, key).isascii()


@given(NAMESPACE, NAMESPACE, st.text(max_size=3))
def test_id_prefix_is_the_namespace_prefix(prefix: tuple[str, ...], namespace: tuple[str, ...], key: str) -> None:
    for place in (namespace, prefix + namespace):
        assert item_id(place, key).startswith(id_prefix(prefix)) == (place[: len(prefix)] == prefix)


@given(NAMESPACE, NAMESPACE)
def test_prefix_query_finds_what_is_below(prefix: tuple[str, ...], rest: tuple[str, ...]) -> None:
    query = prefix_query(prefix) or {}
    assert query.items() <= prefix_fields(prefix + rest).items()
    assert len(query) == (1 if prefix else 0)


@given(NAMESPACE, NAMESPACE)
def test_bucket_of_a_namespace_is_among_those_below_its_prefixes(
    prefix: tuple[str, ...], rest: tuple[str, ...]
) -> None:
    assert bucket_of(prefix + rest, 16) in buckets_below(prefix, 16)


def test_users_spread_over_the_buckets() -> None:
    counts = [0] * 16
    for n in range(1600):
        counts[bucket_of(("root", f"user{n}", "messages"), 16)] += 1
    assert min(counts) > 50


def test_prefixes_are_indexed_to_a_fixed_depth() -> None:
    assert len(prefix_fields(("x",) * 100)) == INDEXED_DEPTH


def test_fingerprint_is_the_same_in_another_process() -> None:
    code = "from langchain_ctxbudget.stores.matching import fingerprint; print(fingerprint('text'))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) == fingerprint("text")


@given(st.datetimes(timezones=st.sampled_from([UTC, timezone(timedelta(hours=5, minutes=30))])))
def test_moments_keep_their_microseconds(moment: datetime) -> None:
    assert from_microseconds(to_microseconds(moment)) == moment


@given(st.dictionaries(st.text(), JSON))
def test_json_text_reads_back_the_same(value: dict[str, Any]) -> None:
    assert json.dumps(json.loads(to_json(value))) == json.dumps(value)


def test_json_text_keeps_unicode_readable() -> None:
    assert "Straße 😀" in to_json({"v": "Straße 😀"})


def test_half_of_a_surrogate_pair_is_text_too() -> None:
    assert json.loads(to_json({"v": "\ud83d"})) == {"v": "\ud83d"}


def test_what_is_not_json_is_named_with_its_place() -> None:
    with pytest.raises(InputError, match=r"value\['a'\]\[1\] is a set"):
        to_json({"a": [1, {2}]})
    with pytest.raises(InputError, match=r"value\['a'\] has the key 1"):
        to_json({"a": {1: "x"}})


def test_value_that_contains_itself_is_refused() -> None:
    value: dict[str, Any] = {}
    value["self"] = value
    with pytest.raises(InputError, match="contains itself"):
        to_json(value)


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
def test_numbers_that_json_lacks_are_refused(number: float) -> None:
    with pytest.raises(InputError, match="not JSON"):
        to_json({"v": number})


@pytest.mark.parametrize(
    ("value", "wanted", "expected"),
    [
        (1, True, False),
        (True, True, True),
        (1, 1.0, True),
        ([1], [True], False),
        ({"a": [0]}, {"$eq": {"a": [False]}}, False),
        ({"$gt": 1}, {"$eq": {"$gt": 1}}, True),
        ({"a": 1, "b": 2}, {"a": 1}, True),
        ({"a": 1, "b": 2}, {"$eq": {"a": 1}}, False),
        (None, {"$ne": 1}, True),
        (None, {"$gt": 1}, False),
        (True, {"$gte": 1}, False),
        ("b", {"$gt": "a"}, True),
        ("5", {"$gt": 4}, False),
        (5, {"$gte": 5, "$lt": 6}, True),
        ("x", {"a": 1}, False),
    ],
    ids=str,
)
def test_filter_compares_as_json_does(value: object, wanted: object, expected: bool) -> None:
    assert matches(value, wanted) is expected


WITHOUT_BOOLEANS = st.recursive(
    st.none() | st.integers(-2, 2) | st.sampled_from(["a", "b"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
    max_leaves=4,
)


@settings(max_examples=500)
@given(WITHOUT_BOOLEANS, WITHOUT_BOOLEANS, st.sampled_from(["plain", "$eq", "$ne"]))
def test_equality_is_that_of_langgraph(value: object, wanted: object, how: str) -> None:
    condition = wanted if how == "plain" else {how: wanted}
    assert matches(value, condition) == _compare_values(value, condition)


@given(st.integers() | st.floats(allow_nan=False), st.integers() | st.floats(allow_nan=False))
def test_order_of_numbers(value: float, bound: float) -> None:
    results = [matches(value, {name: bound}) for name in ("$lt", "$lte", "$gt", "$gte")]
    assert results == [value < bound, value <= bound, value > bound, value >= bound]


@pytest.mark.parametrize("wanted", [{"a": {"$in": [1]}}, {"a": {"b": {"$x": 1}}}, {"a": {"$gt": 1, "b": 2}}])
def test_unknown_operator_is_refused_before_any_value_is_seen(wanted: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="Unknown operator"):
        check_filter(wanted)


def test_operand_of_eq_may_look_like_an_operator() -> None:
    check_filter({"a": {"$eq": {"$anything": 1}}})


PATTERN = st.lists(st.sampled_from(["a", "b", "*"]), max_size=4).map(tuple)


@settings(max_examples=300)
@given(
    st.lists(st.sampled_from(["a", "b", "c"]), max_size=4).map(tuple), PATTERN, st.sampled_from(["prefix", "suffix"])
)
def test_namespace_patterns_match_as_in_langgraph(namespace: tuple[str, ...], path: tuple[str, ...], how: Any) -> None:
    condition = MatchCondition(how, path)
    assert namespace_matches(namespace, condition) == _does_match(condition, namespace)


def test_unknown_match_type_is_refused() -> None:
    with pytest.raises(InputError, match="infix"):
        namespace_matches(("a",), MatchCondition("infix", ("a",)))  # type: ignore[arg-type]
