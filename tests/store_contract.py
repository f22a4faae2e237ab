"""What every LangGraph store has to do, as test classes to inherit.

A subclass provides the fixture `store_factory`: a function from an index configuration (or `None`) to a new,
empty store. Every test runs through the synchronous and the asynchronous methods.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import pytest
from langgraph.store.base import (
    BaseStore,
    GetOp,
    IndexConfig,
    InvalidNamespaceError,
    ListNamespacesOp,
    MatchCondition,
    PutOp,
    SearchOp,
)

StoreFactory = Callable[[IndexConfig | None], BaseStore]


def embed(texts: list[str]) -> list[list[float]]:
    """A bag of words: texts that share words are similar, and it is the same in every process."""
    vectors = []
    for text in texts:
        vector = [0.0] * 64
        for word in text.lower().split():
            vector[hashlib.sha256(word.encode()).digest()[0] % 64] += 1.0
        vectors.append(vector)
    return vectors


INDEX: IndexConfig = {"dims": 64, "embed": embed, "fields": ["text"]}


class Store:
    """The methods of a store, by one name whether they are awaited or not."""

    def __init__(self, store: BaseStore, *, asynchronous: bool) -> None:
        self.store, self.asynchronous = store, asynchronous

    async def __call__(self, method: str, *arguments: Any, **named: Any) -> Any:
        if self.asynchronous:
            return await getattr(self.store, f"a{method}")(*arguments, **named)
        return getattr(self.store, method)(*arguments, **named)


def keys(items: list[Any]) -> list[str]:
    return [item.key for item in items]


class StoreContract:
    """What every store agrees on, LangGraph's `InMemoryStore` included."""

    @pytest.fixture(params=[False, True], ids=["sync", "async"])
    def asynchronous(self, request: pytest.FixtureRequest) -> bool:
        return bool(request.param)

    @pytest.fixture
    def store(self, store_factory: StoreFactory, asynchronous: bool) -> Store:
        return Store(store_factory(None), asynchronous=asynchronous)

    @pytest.fixture
    def indexed(self, store_factory: StoreFactory, asynchronous: bool) -> Store:
        return Store(store_factory(INDEX), asynchronous=asynchronous)

    async def test_get_returns_what_was_put(self, store: Store) -> None:
        await store("put", ("users", "ada"), "home", {"city": "Paris"})
        item = await store("get", ("users", "ada"), "home")
        assert (item.namespace, item.key, item.value) == (("users", "ada"), "home", {"city": "Paris"})

    async def test_get_of_nothing_is_none(self, store: Store) -> None:
        assert await store("get", ("users", "ada"), "home") is None

    async def test_put_replaces_the_whole_value(self, store: Store) -> None:
        await store("put", ("n",), "k", {"a": 1})
        await store("put", ("n",), "k", {"b": 2})
        assert (await store("get", ("n",), "k")).value == {"b": 2}

    async def test_delete_removes_one_item(self, store: Store) -> None:
        await store("put", ("n",), "k", {"a": 1})
        await store("put", ("n",), "other", {"a": 1})
        await store("delete", ("n",), "k")
        assert keys(await store("search", ("n",))) == ["other"]

    async def test_delete_of_nothing_is_silent(self, store: Store) -> None:
        await store("delete", ("n",), "k")
        assert await store("get", ("n",), "k") is None

    async def test_same_key_in_two_namespaces_is_two_items(self, store: Store) -> None:
        await store("put", ("a", "b"), "c", {"v": 1})
        await store("put", ("a",), "c", {"v": 2})
        await store("put", ("a", "c"), "b", {"v": 3})
        found = [await store("get", ns, key) for ns, key in ((("a", "b"), "c"), (("a",), "c"), (("a", "c"), "b"))]
        assert [item.value["v"] for item in found] == [1, 2, 3]

    async def test_reads_of_a_batch_see_the_store_before_it(self, store: Store) -> None:
        await store("put", ("n",), "k", {"v": 1})
        ops = [PutOp(("n",), "k", {"v": 2}), GetOp(("n",), "k"), SearchOp(("n",)), PutOp(("n",), "new", {"v": 3})]
        _, got, found, _ = await store("batch", ops)
        assert (got.value, keys(found)) == ({"v": 1}, ["k"])
        assert (await store("get", ("n",), "k")).value == {"v": 2}

    async def test_last_put_of_a_key_in_a_batch_counts(self, store: Store) -> None:
        await store("batch", [PutOp(("n",), "k", {"v": n}) for n in range(3)])
        assert (await store("get", ("n",), "k")).value == {"v": 2}

    async def test_put_after_delete_in_a_batch_counts(self, store: Store) -> None:
        await store("batch", [PutOp(("n",), "k", None), PutOp(("n",), "k", {"v": 1})])
        assert (await store("get", ("n",), "k")).value == {"v": 1}

    async def test_delete_after_put_in_a_batch_counts(self, store: Store) -> None:
        await store("batch", [PutOp(("n",), "k", {"v": 1}), PutOp(("n",), "k", None)])
        assert await store("get", ("n",), "k") is None

    async def test_batch_answers_in_the_order_of_its_operations(self, store: Store) -> None:
        await store("put", ("a",), "k", {"v": 1})
        ops = [GetOp(("a",), "no"), ListNamespacesOp(), GetOp(("a",), "k"), PutOp(("b",), "k", {}), GetOp(("a",), "k")]
        no, namespaces, first, put, second = await store("batch", ops)
        assert (no, namespaces, put, first) == (None, [("a",)], None, second)

    async def test_search_is_limited_to_the_prefix(self, store: Store) -> None:
        for namespace in (("a", "b"), ("a", "b", "c"), ("a", "bc"), ("ab",)):
            await store("put", namespace, "-".join(namespace), {})
        assert sorted(keys(await store("search", ("a", "b")))) == ["a-b", "a-b-c"]
        assert len(await store("search", ("a",))) == 3
        assert len(await store("search", ())) == 4

    async def test_search_below_a_deep_prefix(self, store: Store) -> None:
        deep = tuple("abcdefghijkl")
        await store("put", deep, "mine", {})
        await store("put", (*deep[:-1], "other"), "other", {})
        assert keys(await store("search", deep)) == ["mine"]

    async def test_pages_of_a_search_add_up(self, store: Store) -> None:
        await store("batch", [PutOp(("n",), f"k{n}", {"v": n}) for n in range(25)])
        pages = [await store("search", ("n",), limit=10, offset=offset) for offset in (0, 10, 20, 30)]
        assert [len(page) for page in pages] == [10, 10, 5, 0]
        assert len({item.key for page in pages for item in page}) == 25

    @pytest.mark.parametrize(
        ("wanted", "expected"),
        [
            ({"kind": "a"}, ["one", "two"]),
            ({"kind": {"$eq": "a"}}, ["one", "two"]),
            ({"kind": {"$ne": "a"}}, ["three"]),
            ({"size": {"$gt": 1}}, ["three", "two"]),
            ({"size": {"$gte": 2}}, ["three", "two"]),
            ({"size": {"$lt": 2}}, ["one"]),
            ({"size": {"$lte": 2.0}}, ["one", "two"]),
            ({"size": {"$gt": 1, "$lt": 3}}, ["two"]),
            ({"kind": "a", "size": 2}, ["two"]),
            ({"deep": {"er": True}}, ["one"]),
            ({"tags": ["x", "y"]}, ["two"]),
            ({"none": None}, ["one", "three", "two"]),
            ({'it\'s "$" a.b': "'; drop"}, ["three"]),
        ],
        ids=str,
    )
    async def test_filter(self, store: Store, wanted: dict[str, Any], expected: list[str]) -> None:
        await store("put", ("n",), "one", {"kind": "a", "size": 1, "deep": {"er": True, "x": 1}})
        await store("put", ("n",), "two", {"kind": "a", "size": 2, "tags": ["x", "y"]})
        await store("put", ("n",), "three", {"kind": "b", "size": 3, 'it\'s "$" a.b': "'; drop", "none": None})
        assert sorted(keys(await store("search", ("n",), filter=wanted))) == expected

    async def test_filter_counts_before_limit_and_offset(self, store: Store) -> None:
        await store("batch", [PutOp(("n",), f"k{n}", {"even": n % 2 == 0}) for n in range(20)])
        found = await store("search", ("n",), filter={"even": True}, limit=4, offset=8)
        assert len(found) == 2

    async def test_unknown_operator_is_an_error(self, store: Store) -> None:
        await store("put", ("n",), "k", {"a": 1})
        with pytest.raises(ValueError, match="operator"):
            await store("search", ("n",), filter={"a": {"$near": 1}})

    NAMESPACES = (("a", "b", "c"), ("a", "b", "d", "e"), ("a", "b", "d", "i"), ("a", "b", "f"), ("a", "c", "f"), ("b",))

    @pytest.mark.parametrize(
        ("arguments", "expected"),
        [
            ({}, list(NAMESPACES)),
            ({"prefix": ("a", "b"), "max_depth": 3}, [("a", "b", "c"), ("a", "b", "d"), ("a", "b", "f")]),
            ({"suffix": ("f",)}, [("a", "b", "f"), ("a", "c", "f")]),
            ({"prefix": ("a", "*", "f")}, [("a", "b", "f"), ("a", "c", "f")]),
            ({"suffix": ("d", "*")}, [("a", "b", "d", "e"), ("a", "b", "d", "i")]),
            ({"prefix": ("a",), "suffix": ("c",)}, [("a", "b", "c")]),
            ({"prefix": ("*",), "max_depth": 1}, [("a",), ("b",)]),
            ({"limit": 2, "offset": 1}, [("a", "b", "d", "e"), ("a", "b", "d", "i")]),
            ({"prefix": ("z",)}, []),
        ],
        ids=str,
    )
    async def test_list_namespaces(self, store: Store, arguments: dict[str, Any], expected: list[Any]) -> None:
        await store("batch", [PutOp(namespace, "k", {}) for namespace in self.NAMESPACES])
        assert await store("list_namespaces", **arguments) == expected

    async def test_list_namespaces_meets_all_conditions(self, store: Store) -> None:
        await store("batch", [PutOp(namespace, "k", {}) for namespace in self.NAMESPACES])
        conditions = (MatchCondition("prefix", ("a",)), MatchCondition("prefix", ("*", "c")))
        assert await store("batch", [ListNamespacesOp(conditions)]) == [[("a", "c", "f")]]

    @pytest.mark.parametrize("namespace", [(), ("a.b",), ("",), ("langgraph", "x")])
    async def test_namespaces_that_langgraph_refuses(self, store: Store, namespace: tuple[str, ...]) -> None:
        with pytest.raises(InvalidNamespaceError):
            await store("put", namespace, "k", {})

    async def test_most_similar_item_comes_first(self, indexed: Store) -> None:
        await indexed("put", ("n",), "cat", {"text": "a small cat sleeps"})
        await indexed("put", ("n",), "train", {"text": "the night train to Lisbon"})
        found = await indexed("search", ("n",), query="train to Lisbon")
        assert keys(found) == ["train", "cat"]
        assert found[0].score == pytest.approx(3 / 15**0.5)
        assert found[0].score > found[1].score

    async def test_query_respects_prefix_filter_limit_and_offset(self, indexed: Store) -> None:
        for n, words in enumerate(["x", "x y", "x y z", "x y z w", "x y z w v"]):
            await indexed("put", ("in", str(n % 2)), f"k{n}", {"text": words, "n": n})
        await indexed("put", ("out",), "other", {"text": "x"})
        found = await indexed("search", ("in",), query="x", filter={"n": {"$gt": 0}}, limit=2, offset=1)
        assert keys(found) == ["k2", "k3"]

    async def test_best_of_several_fields_counts(self, store_factory: StoreFactory, asynchronous: bool) -> None:
        index: IndexConfig = {"dims": 64, "embed": embed, "fields": ["title", "parts[*].body"]}
        store = Store(store_factory(index), asynchronous=asynchronous)
        await store("put", ("n",), "a", {"title": "cooking", "parts": [{"body": "bread"}, {"body": "night train"}]})
        await store("put", ("n",), "b", {"title": "night ferry", "parts": []})
        found = await store("search", ("n",), query="night train")
        assert keys(found) == ["a", "b"]
        assert found[0].score == pytest.approx(1.0)

    async def test_fields_of_a_put_win(self, indexed: Store) -> None:
        await indexed("put", ("n",), "a", {"text": "bread", "note": "night train"}, index=["note"])
        await indexed("put", ("n",), "b", {"text": "night bread"})
        assert keys(await indexed("search", ("n",), query="night train")) == ["a", "b"]

    async def test_new_value_is_found_by_its_new_text_only(self, indexed: Store) -> None:
        await indexed("put", ("n",), "k", {"text": "night train"})
        await indexed("put", ("n",), "k", {"text": "bread"})
        [found] = await indexed("search", ("n",), query="night train")
        assert found.score == pytest.approx(0.0)

    async def test_search_without_query_has_no_scores(self, indexed: Store) -> None:
        await indexed("put", ("n",), "k", {"text": "night train"})
        assert [item.score for item in await indexed("search", ("n",))] == [None]


class SqlStoreContract(StoreContract):
    """What LangGraph's SQL stores do, and `InMemoryStore` does otherwise."""

    async def test_update_keeps_created_and_renews_updated(self, store: Store) -> None:
        await store("put", ("n",), "k", {"v": 1})
        first = await store("get", ("n",), "k")
        await store("put", ("n",), "k", {"v": 2})
        second = await store("get", ("n",), "k")
        assert second.created_at == first.created_at == first.updated_at
        assert second.updated_at > first.updated_at

    async def test_times_know_their_zone(self, store: Store) -> None:
        await store("put", ("n",), "k", {})
        assert (await store("get", ("n",), "k")).created_at.utcoffset() is not None

    async def test_most_recently_updated_comes_first(self, store: Store) -> None:
        for key in ("a", "b", "c", "a"):
            await store("put", ("n",), key, {"text": key})
        assert keys(await store("search", ("n",))) == ["a", "c", "b"]

    async def test_store_without_index_ignores_the_query(self, store: Store) -> None:
        for key in ("a", "b"):
            await store("put", ("n",), key, {"text": key})
        found = await store("search", ("n",), query="a")
        assert [(item.key, item.score) for item in found] == [("b", None), ("a", None)]

    async def test_items_without_vectors_are_no_answer_to_a_query(self, indexed: Store) -> None:
        await indexed("put", ("n",), "not indexed", {"text": "night train"}, index=False)
        await indexed("put", ("n",), "no text", {"other": 1})
        await indexed("put", ("n",), "indexed", {"text": "night"})
        assert keys(await indexed("search", ("n",), query="night train")) == ["indexed"]

    async def test_equal_texts_are_equally_similar(self, indexed: Store) -> None:
        await indexed("batch", [PutOp(("n",), f"k{n}", {"text": "thanks"}) for n in range(30)])
        found = await indexed("search", ("n",), query="thanks", limit=30)
        assert len(found) == 30
        assert {item.score for item in found} == {found[0].score}

    async def test_empty_namespace_is_not_listed(self, store: Store) -> None:
        await store("put", ("a", "b"), "k", {})
        await store("delete", ("a", "b"), "k")
        assert await store("list_namespaces") == []

    async def test_missing_and_other_kinds_are_not_in_order(self, store: Store) -> None:
        await store("put", ("n",), "number", {"v": 2})
        await store("put", ("n",), "text", {"v": "2020-05-01"})
        await store("put", ("n",), "missing", {})
        assert keys(await store("search", ("n",), filter={"v": {"$gt": 1}})) == ["number"]
        assert keys(await store("search", ("n",), filter={"v": {"$gt": "2020"}})) == ["text"]

    async def test_bad_put_spoils_its_whole_batch(self, store: Store) -> None:
        with pytest.raises((TypeError, ValueError)):
            await store("batch", [PutOp(("n",), "good", {}), PutOp(("n",), "bad", {"v": object()})])
        assert await store("search", ("n",)) == []
