"""Planning a batch, and the index that says what is embedded."""

from __future__ import annotations

import pytest
from langchain_core.embeddings import DeterministicFakeEmbedding
from langgraph.store.base import GetOp, InvalidNamespaceError, ListNamespacesOp, MatchCondition, PutOp, SearchOp
from langgraph.store.base.embed import ensure_embeddings

from langchain_ctxbudget.errors import EmbeddingMismatchError, InputError, StoreError
from langchain_ctxbudget.stores.dense import DenseIndex, identity
from langchain_ctxbudget.stores.matching import item_id
from langchain_ctxbudget.stores.operations import Record, expiry, fixed_prefix, list_namespaces, page, plan


def test_last_put_of_a_key_counts_and_only_it_is_embedded() -> None:
    batch = plan([PutOp(("n",), "k", {"text": "old"}), PutOp(("n",), "k", {"text": "new"})], ["text"])
    assert batch.texts == ["new"]
    assert list(batch.puts) == [item_id(("n",), "k")]


def test_every_text_is_embedded_once() -> None:
    batch = plan([PutOp(("n",), key, {"a": "same", "b": "same"}) for key in "xy"], ["a", "b"])
    assert batch.texts == ["same"]
    assert [list(put.to_embed) for put in batch.puts.values()] == [["same"], ["same"]]


def test_whole_value_is_embedded_by_the_dollar_path() -> None:
    assert plan([PutOp(("n",), "k", {"b": 1, "a": "x"})], ["$"]).texts == ['{"a": "x", "b": 1}']


def test_nothing_is_embedded_without_an_index() -> None:
    batch = plan([PutOp(("n",), "k", {"a": "x"}, index=["a"]), SearchOp((), query="x")], None)
    assert (batch.texts, batch.queries) == ([], [])


def test_each_query_is_embedded_once() -> None:
    ops = [SearchOp(("a",), query="x"), SearchOp(("b",), query="x"), SearchOp(("c",)), SearchOp(("d",), query="")]
    assert plan(ops, ["$"]).queries == ["x"]


def test_value_is_taken_as_it_is_when_put() -> None:
    value = {"list": [1]}
    batch = plan([PutOp(("n",), "k", value)], None)
    value["list"].append(2)
    assert [put.text for put in batch.puts.values()] == ['{"list":[1]}']


@pytest.mark.parametrize("op", [GetOp(("a.b",), "k"), SearchOp(("",)), PutOp(("\0",), "k", {})])
def test_labels_are_checked_in_a_plain_batch_too(op: GetOp) -> None:
    with pytest.raises(InvalidNamespaceError):
        plan([op], None)


@pytest.mark.parametrize("op", ["get", None, PutOp(("n",), "k", ["list"])])  # type: ignore[arg-type]
def test_what_is_no_operation_is_refused(op: object) -> None:
    with pytest.raises(InputError):
        plan([op], None)  # type: ignore[list-item]


def test_record_reads_back_from_its_fields() -> None:
    for record in (Record("[]", "{}", 1, 2, 3), Record("[]", "{}", 1, 2, 3, ttl=1.5, expires=9)):
        assert Record.from_fields(record.id, record.fields()) == record


@pytest.mark.parametrize(
    ("ttl", "expires", "lives"), [(None, None, True), (1.0, 11, True), (1.0, 10, False), (None, 1, True)]
)
def test_record_lives_until_its_end(ttl: float | None, expires: int | None, lives: bool) -> None:
    assert Record("[]", "{}", 0, 0, 0, ttl, expires).lives(10) is lives


@pytest.mark.parametrize(("ttl", "expected"), [(None, None), (0.5, 30_000_010), (1e300, 2**62)])
def test_expiry_is_in_microseconds(ttl: float | None, expected: int | None) -> None:
    assert expiry(ttl, 10) == expected


@pytest.mark.parametrize(("ttl", "expected"), [(None, None), (2, 2.0), (-1, 0.0)])
def test_time_to_live_is_never_negative(ttl: float | None, expected: float | None) -> None:
    assert [put.ttl for put in plan([PutOp(("n",), "k", {}, ttl=ttl)], None).puts.values()] == [expected]


@pytest.mark.parametrize("ttl", [float("nan"), "1", True])
def test_time_to_live_is_a_number(ttl: float) -> None:
    with pytest.raises(InputError, match="minutes"):
        plan([PutOp(("n",), "k", {}, ttl=ttl)], None)


def test_fixed_prefix_ends_at_the_first_wildcard() -> None:
    conditions = [
        MatchCondition("suffix", ("x", "y", "z")),
        MatchCondition("prefix", ("a",)),
        MatchCondition("prefix", ("a", "b", "*", "d")),
    ]
    assert fixed_prefix(conditions) == ("a", "b")
    assert fixed_prefix([]) == ()


def test_namespaces_are_cut_before_they_are_counted() -> None:
    op = ListNamespacesOp(max_depth=1, limit=2)
    assert list_namespaces(op, [("b", "x"), ("a", "x"), ("a", "y"), ("c",)]) == [("a",), ("b",)]


@pytest.mark.parametrize(("limit", "offset", "expected"), [(2, 1, [1, 2]), (0, 0, []), (-1, 0, []), (2, -5, [0, 1])])
def test_page(limit: int, offset: int, expected: list[int]) -> None:
    assert page(range(4), limit, offset) == expected


def test_embeddings_are_known_by_model_function_or_class() -> None:
    class Named(DeterministicFakeEmbedding):
        model: str = "text-embedding-x"

    class NamedOtherwise(DeterministicFakeEmbedding):
        model_name: str = "y"

    def my_function(texts: list[str]) -> list[list[float]]:
        return [[1.0] for _ in texts]

    names = [Named(size=1), NamedOtherwise(size=1), DeterministicFakeEmbedding(size=1), ensure_embeddings(my_function)]
    assert [identity(each) for each in names] == ["text-embedding-x", "y", "DeterministicFakeEmbedding", "my_function"]


def index_giving(*vectors: list[float]) -> DenseIndex:
    return DenseIndex.from_config({"dims": 2, "embed": lambda _texts: list(vectors)})


def test_vectors_get_length_one_and_zero_stays_zero() -> None:
    batch = plan([PutOp(("n",), key, {"k": key}) for key in "ab"], ["k"])
    vectors = index_giving([3.0, 4.0], [0.0, 0.0]).embed(batch).documents
    assert [vector.tolist() for vector in vectors.values()] == [[0.6, 0.8], [0.0, 0.0]]


@pytest.mark.parametrize("vectors", [[[1.0]], [[1.0, 2.0, 3.0]], [], [[1.0, 0.0], [0.0, 1.0]]])
def test_other_lengths_and_counts_are_refused(vectors: list[list[float]]) -> None:
    with pytest.raises(EmbeddingMismatchError, match="dims=2"):
        index_giving(*vectors).embed(plan([PutOp(("n",), "k", {"a": 1})], ["$"]))


def test_vectors_that_are_not_finite_are_refused() -> None:
    with pytest.raises(StoreError, match="not finite"):
        index_giving([float("nan"), 1.0]).embed(plan([PutOp(("n",), "k", {"a": 1})], ["$"]))
