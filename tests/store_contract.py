"""What every LangGraph store has to do, as test classes to inherit.

A subclass of `StoreContract` or `SqlStoreContract` provides the fixture `store_factory`: a function from an index
configuration (or `None`) to a new, empty store. One of `TtlStoreContract` provides `ttl_store_factory`, from a TTL
configuration, and `wait`. Every test runs through the synchronous and the asynchronous methods.
"""

from __future__ import annotations

import hashlib
import inspect
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
    TTLConfig,
)

StoreFactory = Callable[[IndexConfig | None], BaseStore]
TtlStoreFactory = Callable[[TTLConfig | None], BaseStore]


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


class _BothForms:
    @pytest.fixture(params=[False, True], ids=["sync", "async"])
    def asynchronous(self, request: pytest.FixtureRequest) -> bool:
        return bool(request.param)


class StoreContract(_BothForms):
    """What every store agrees on, LangGraph's `InMemoryStore` included."""

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

    async def test_search_takes_labels_literally(self, store: Store) -> None:
        labels = ["user_1", "userX1", "a%b", "axxb", "star*", "starX", "q?m", "qXm", "br[ack]et", "brXet", "Foo", "foo"]
        labels += ["alice", "alice\n", "back\\slash", 'quo"te', "it's", "plus+", "ü 😀"]
        await store("batch", [PutOp((label, "below"), label, {}) for label in labels])
        assert [keys(await store("search", (label,))) for label in labels] == [[label] for label in labels]

    async def test_search_finds_nothing_below_half_a_label(self, store: Store) -> None:
        await store("put", ("foobar",), "k", {})
        assert await store("search", ("foo",)) == []

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

    @pytest.mark.parametrize(
        ("wanted", "expected"),
        [
            ({"price": 10.0}, ["b"]),
            ({"active": True}, ["a"]),
            ({"active": False}, ["b"]),
            ({"access-level": "public"}, ["a"]),
            ({"123abc": "ok"}, ["b"]),
            ({"name": "O'Brien's"}, ["a"]),
            ({"name": "' OR '1'='1"}, []),
            ({"name": "O'Brien's'; --"}, []),
            ({"' OR '1'='1": "x"}, []),
            ({"name": "Ωmega 😀"}, ["c"]),
        ],
        ids=str,
    )
    async def test_filter_compares_values_by_kind(
        self, store: Store, wanted: dict[str, Any], expected: list[str]
    ) -> None:
        await store("put", ("n",), "a", {"price": 9.5, "active": True, "access-level": "public", "name": "O'Brien's"})
        await store("put", ("n",), "b", {"price": 10, "active": False, "123abc": "ok", "name": "Zoë"})
        await store("put", ("n",), "c", {"price": -10, "name": "Ωmega 😀"})
        assert sorted(keys(await store("search", ("n",), filter=wanted))) == expected

    @pytest.mark.parametrize(
        ("wanted", "expected"),
        [
            ({"$gte": 9.5}, [9.5, 10, 1e30]),
            ({"$gt": 9}, [9.5, 10, 1e30]),
            ({"$lt": 9.5}, [-10, 2]),
            ({"$gt": float("-inf"), "$lte": 10**29}, [-10, 2, 9.5, 10]),
            ({"$gte": -10, "$lt": 10}, [-10, 2, 9.5]),
        ],
        ids=str,
    )
    async def test_numbers_are_ordered_as_numbers(
        self, store: Store, wanted: dict[str, Any], expected: list[float]
    ) -> None:
        for number in (2, 9.5, 10, -10, 1e30):
            await store("put", ("n",), str(number), {"price": number})
        found = await store("search", ("n",), filter={"price": wanted})
        assert sorted(item.value["price"] for item in found) == expected

    async def test_numbers_beyond_all_bounds(self, store: Store) -> None:
        await store("put", ("n",), "k", {"price": 1})
        assert keys(await store("search", ("n",), filter={"price": {"$lt": float("inf")}})) == ["k"]

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

    async def test_namespaces_are_listed_label_by_label(self, store: Store) -> None:
        namespaces = [
            ("foo",),
            ("foo", "child"),
            ("foobar",),
            ("u", "x", "alice"),
            ("u", "x", "malice"),
            ("u", "alice\n"),
        ]
        await store("batch", [PutOp(namespace, "k", {}) for namespace in namespaces])
        assert await store("list_namespaces", prefix=["foo"]) == [("foo",), ("foo", "child")]
        assert await store("list_namespaces", suffix=["alice"]) == [("u", "x", "alice")]
        assert await store("list_namespaces", prefix=["u", "*", "alice"]) == [("u", "x", "alice")]
        assert await store("list_namespaces", prefix=["u", "alice"]) == []

    async def test_namespaces_of_a_depth_are_listed_once(self, store: Store) -> None:
        await store("batch", [PutOp(("a", f"b{n % 2}", f"c{n}"), "k", {}) for n in range(6)])
        assert await store("list_namespaces", max_depth=2) == [("a", "b0"), ("a", "b1")]
        assert await store("list_namespaces", max_depth=2, limit=1, offset=1) == [("a", "b1")]

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

    async def test_queries_go_across_namespaces(self, indexed: Store) -> None:
        await indexed("put", ("a", "x"), "far", {"text": "night ferry"})
        await indexed("put", ("b",), "near", {"text": "night train"})
        assert keys(await indexed("search", (), query="night train")) == ["near", "far"]

    async def test_pages_of_a_query_add_up_in_order(self, indexed: Store) -> None:
        await indexed("batch", [PutOp(("n",), f"k{n}", {"text": " ".join(["x"] + ["y"] * n)}) for n in range(7)])
        pages = [await indexed("search", ("n",), query="x", limit=3, offset=offset) for offset in (0, 3, 6, 9)]
        found = [item for page in pages for item in page]
        assert [len(page) for page in pages] == [3, 3, 1, 0]
        assert keys(found) == [f"k{n}" for n in range(7)]
        assert [item.score for item in found] == sorted((item.score for item in found), reverse=True)

    @pytest.mark.parametrize("query", ["", None])
    async def test_empty_query_is_no_query(self, indexed: Store, query: str | None) -> None:
        await indexed("put", ("n",), "k", {"text": "x"}, index=False)
        assert keys(await indexed("search", ("n",), query=query)) == ["k"]

    @pytest.mark.parametrize("query", ["x " * 5_000, "x!@#$%^&*()'\"; --", "这是中文 😀"])
    async def test_any_text_is_a_query(self, indexed: Store, query: str) -> None:
        await indexed("put", ("n",), "k", {"text": query})
        assert keys(await indexed("search", ("n",), query=query)) == ["k"]

    @pytest.mark.parametrize(
        "text", ["这是中文", "यह हिन्दी है", "Это 😀", "\u202e\ufeff", "line\r\n\ttab", "x" * 2_000_000]
    )
    async def test_values_come_back_as_they_were(self, store: Store, text: str) -> None:
        value = {"text": text, "list": [None, True, 1, 1.5, {"deep": [text[:9]]}], "empty": {}, text[:9]: "key"}
        await store("put", ("n", text[:9]), text[:9], value)
        item = await store("get", ("n", text[:9]), text[:9])
        assert (item.key, item.namespace, item.value) == (text[:9], ("n", text[:9]), value)

    async def test_large_batches(self, store: Store) -> None:
        await store("batch", [PutOp(("n", str(n % 7)), str(n), {"v": n}) for n in range(2_500)])
        found = await store("batch", [GetOp(("n", str(n % 7)), str(n)) for n in range(2_500)])
        assert [item.value["v"] for item in found] == list(range(2_500))
        assert len(await store("search", ("n",), limit=3_000)) == 2_500

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

    async def test_search_takes_a_list_for_a_prefix(self, store: Store) -> None:
        await store("put", ("a", "b"), "k", {})
        assert keys(await store("search", ["a"])) == ["k"]

    async def test_texts_are_ordered(self, store: Store) -> None:
        for name in ("O'Brien", "Zoë", "Ωmega 😀"):
            await store("put", ("n",), name, {"name": name})
        assert sorted(keys(await store("search", ("n",), filter={"name": {"$gt": "P"}}))) == ["Zoë", "Ωmega 😀"]
        assert keys(await store("search", ("n",), filter={"name": {"$lte": "O'Brien"}})) == ["O'Brien"]

    @pytest.mark.parametrize(
        ("path", "query"),
        [
            ("a.b[0]", "train"),
            ("a.b[-2]", "train"),
            ("a.b[*]", "train"),
            ("{title,other}", "train"),
            ("a.*", '["train",'),
            ("a", '["train",'),
        ],
    )
    async def test_paths_of_a_field(
        self, store_factory: StoreFactory, asynchronous: bool, path: str, query: str
    ) -> None:
        index: IndexConfig = {"dims": 64, "embed": embed, "fields": [path]}
        store = Store(store_factory(index), asynchronous=asynchronous)
        await store("put", ("n",), "other", {"title": "bread", "a": {"b": ["butter", "salt"]}})
        await store("put", ("n",), "wanted", {"title": "train", "a": {"b": ["train", "salt"]}})
        await store("put", ("n",), "neither", {"c": 1})
        assert keys(await store("search", ("n",), query=query)) == ["wanted", "other"]

    @pytest.mark.parametrize("fields", [["$"], None])
    async def test_whole_value_is_embedded(
        self, store_factory: StoreFactory, asynchronous: bool, fields: list[str] | None
    ) -> None:
        index: IndexConfig = {"dims": 64, "embed": embed}
        store = Store(store_factory(index | {"fields": fields} if fields else index), asynchronous=asynchronous)
        await store("put", ("n",), "k", {"b": "night", "a": "train"})
        [found] = await store("search", ("n",), query='{"a": "train", "b": "night"}')
        assert found.score == pytest.approx(1.0)

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


class TtlStoreContract(_BothForms):
    """Items that end, as in LangGraph's SQL stores. They know no clock but the real one, so the unit of time is set."""

    unit: float = 1.0
    """Minutes."""

    @pytest.fixture
    def make(self, ttl_store_factory: TtlStoreFactory, asynchronous: bool) -> Callable[..., Store]:
        def make(**config: Any) -> Store:
            ttl = TTLConfig(**config, omit_expired=True) if config else None
            return Store(ttl_store_factory(ttl), asynchronous=asynchronous)

        return make

    @pytest.fixture
    def wait(self) -> Callable[[float], None]:
        """Let some units of time go by."""
        raise NotImplementedError

    async def test_item_ends_after_its_time(self, make: Callable[..., Store], wait: Callable[[float], None]) -> None:
        store = make(default_ttl=self.unit)
        await store("put", ("n",), "k", {"v": 1})
        assert (await store("get", ("n",), "k")).value == {"v": 1}
        wait(1.1)
        assert await store("get", ("n",), "k") is None
        assert await store("search", ("n",)) == []
        assert await store("list_namespaces") == []

    async def test_put_may_say_otherwise(self, make: Callable[..., Store], wait: Callable[[float], None]) -> None:
        store = make(default_ttl=self.unit)
        await store("put", ("n",), "long", {}, ttl=10 * self.unit)
        await store("put", ("n",), "for ever", {}, ttl=None)
        await store("put", ("n",), "default", {})
        wait(1.1)
        assert sorted(keys(await store("search", ("n",)))) == ["for ever", "long"]

    @pytest.mark.parametrize("method", ["get", "search"])
    async def test_reading_puts_off_the_end(
        self, make: Callable[..., Store], wait: Callable[[float], None], method: str
    ) -> None:
        store = make(default_ttl=self.unit, refresh_on_read=True)
        await store("put", ("n",), "k", {})
        for _ in range(3):
            wait(0.6)
            assert await (store("get", ("n",), "k") if method == "get" else store("search", ("n",)))
        assert await sweep(store) == 0

    async def test_reading_may_leave_the_end_where_it_is(
        self, make: Callable[..., Store], wait: Callable[[float], None]
    ) -> None:
        store = make(default_ttl=self.unit, refresh_on_read=True)
        await store("put", ("n",), "k", {})
        wait(0.6)
        assert await store("get", ("n",), "k", refresh_ttl=False)
        assert await store("search", ("n",), refresh_ttl=False)
        wait(0.6)
        assert await store("get", ("n",), "k") is None

    async def test_configuration_says_whether_reading_counts(
        self, make: Callable[..., Store], wait: Callable[[float], None]
    ) -> None:
        store = make(default_ttl=self.unit, refresh_on_read=False)
        await store("put", ("n",), "k", {})
        wait(0.6)
        assert await store("get", ("n",), "k")
        wait(0.6)
        assert await store("get", ("n",), "k") is None

    async def test_reading_does_not_revive(self, make: Callable[..., Store], wait: Callable[[float], None]) -> None:
        store = make(default_ttl=self.unit, refresh_on_read=True)
        await store("put", ("n",), "k", {})
        wait(1.1)
        assert await store("get", ("n",), "k") is None
        assert await store("get", ("n",), "k") is None
        assert await sweep(store) == 1

    async def test_sweep_deletes_what_has_ended(
        self, make: Callable[..., Store], wait: Callable[[float], None]
    ) -> None:
        store = make(default_ttl=self.unit)
        await store("batch", [PutOp(("n",), f"k{n}", {}, ttl=self.unit) for n in range(5)])
        await store("put", ("n",), "stays", {}, ttl=None)
        wait(1.1)
        assert await sweep(store) == 5
        assert await sweep(store) == 0
        assert keys(await store("search", ("n",))) == ["stays"]

    async def test_a_put_without_a_time_lasts(self, make: Callable[..., Store], wait: Callable[[float], None]) -> None:
        store = make(refresh_on_read=True)
        await store("put", ("n",), "k", {"v": 1}, ttl=self.unit)
        await store("put", ("n",), "k", {"v": 2})
        wait(1.1)
        assert await sweep(store) == 0
        assert (await store("get", ("n",), "k")).value == {"v": 2}

    async def test_what_has_ended_takes_no_place_on_a_page(
        self, make: Callable[..., Store], wait: Callable[[float], None]
    ) -> None:
        store = make(refresh_on_read=False)
        for key, ttl in (("c", None), ("b", None), ("gone", self.unit), ("a", None)):
            await store("put", ("n",), key, {}, ttl=ttl)
        wait(1.1)
        assert keys(await store("search", ("n",), limit=2)) == ["a", "b"]
        assert keys(await store("search", ("n",), limit=2, offset=2)) == ["c"]


async def sweep(store: Store) -> int:
    """Delete what has ended; LangGraph's async store has the method under the name of the blocking one."""
    name = "asweep_ttl" if store.asynchronous and hasattr(store.store, "asweep_ttl") else "sweep_ttl"
    swept = getattr(store.store, name)()
    return int(await swept if inspect.isawaitable(swept) else swept)
