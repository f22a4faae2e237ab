"""The contract of a store on every back end; LangGraph's own keep it, so the contract is right."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.store.base import (
    BaseStore,
    GetOp,
    InvalidNamespaceError,
    ListNamespacesOp,
    MatchCondition,
    PutOp,
    SearchOp,
)
from langgraph.store.postgres import AsyncPostgresStore, PostgresStore

from langchain_ctxbudget import ContextPipeline
from tests.servers import LOOPBACK
from tests.stores import INDEX, NewStore, keys, new_stores

TREE = [
    ("a", "b", "c"),
    ("a", "b", "d", "e"),
    ("a", "b", "d", "i"),
    ("a", "b", "f"),
    ("a", "c", "f"),
    ("b",),
]
LISTINGS: list[tuple[dict[str, Any], list[tuple[str, ...]]]] = [
    ({}, TREE),
    ({"prefix": ("a", "b"), "max_depth": 3}, [("a", "b", "c"), ("a", "b", "d"), ("a", "b", "f")]),
    ({"suffix": ("f",)}, [("a", "b", "f"), ("a", "c", "f")]),
    ({"prefix": ("a", "*", "f")}, [("a", "b", "f"), ("a", "c", "f")]),
    ({"suffix": ("d", "*")}, [("a", "b", "d", "e"), ("a", "b", "d", "i")]),
    ({"prefix": ("a",), "suffix": ("c",)}, [("a", "b", "c")]),
    ({"prefix": ("*",), "max_depth": 1}, [("a",), ("b",)]),
    ({"max_depth": 2, "limit": 1, "offset": 1}, [("a", "c")]),
    ({"limit": 2, "offset": 1}, [("a", "b", "d", "e"), ("a", "b", "d", "i")]),
    ({"prefix": ("z",)}, []),
]
"""What `list_namespaces` is asked for, and its answer."""

SIMILAR_LABELS = [
    ("foo",),
    ("foo", "child"),
    ("foobar",),
    ("u", "x", "alice"),
    ("u", "x", "malice"),
    ("u", "alice\n"),
]

VALUES: dict[str, dict[str, Any]] = {
    "one": {
        "kind": "a",
        "size": 1,
        "deep": {"er": True, "x": 1},
        "active": True,
        "name": "O'Brien's",
    },
    "two": {"kind": "a", "size": 2, "tags": ["x", "y"], "active": False, "name": "Zoë"},
    "three": {"kind": "b", "size": 3, 'it\'s "$" a.b': "'; drop", "none": None, "name": "Ωmega 😀"},
}
FILTERS: list[tuple[dict[str, Any], list[str]]] = [
    ({"kind": "a"}, ["one", "two"]),
    ({"kind": {"$eq": "a"}}, ["one", "two"]),
    ({"kind": {"$ne": "a"}}, ["three"]),
    ({"size": {"$gt": 1}}, ["three", "two"]),
    ({"size": {"$gte": 2}}, ["three", "two"]),
    ({"size": {"$lt": 2}}, ["one"]),
    ({"size": {"$lte": 2.0}}, ["one", "two"]),
    ({"size": {"$gt": 1, "$lt": 3}}, ["two"]),
    ({"kind": "a", "size": 2}, ["two"]),
    ({"tags": ["x", "y"]}, ["two"]),
    ({'it\'s "$" a.b': "'; drop"}, ["three"]),
    ({"size": 2.0}, ["two"]),
    ({"active": True}, ["one"]),
    ({"active": False}, ["two"]),
    ({"name": "O'Brien's"}, ["one"]),
    ({"name": "' OR '1'='1"}, []),
    ({"' OR '1'='1": "x"}, []),
    ({"name": "Ωmega 😀"}, ["three"]),
    ({"size": {"$lt": float("inf")}}, ["one", "three", "two"]),
]
"""What `search` is asked to leave, and the keys that it finds, in order of the alphabet."""

LABELS = [
    "user_1",
    "userX1",
    "a%b",
    "axxb",
    "star*",
    "starX",
    "q?m",
    "qXm",
    "br[ack]et",
    "brXet",
    "{",
    "Foo",
    "foo",
    "alice",
    "alice\n",
    "back\\slash",
    'quo"te',
    "it's",
    "plus+",
    "ü 😀",
]
"""Labels that a store could take for one another, or for a pattern."""

TEXTS = {
    "Chinese": "这是中文",
    "Hindi": "यह हिन्दी है",
    "Russian": "Это 😀",
    "marks without width": "\u202e\ufeff",
    "control characters": "line\r\n\ttab",
    "long": "x" * 2_000_000,
}


class Store:
    """A store whose methods, or whose awaited twins, are called."""

    def __init__(self, store: BaseStore, *, asynchronous: bool) -> None:
        self.store = store
        self.asynchronous = asynchronous

    async def put(self, *arguments: Any, **named: Any) -> Any:
        return await self._call("put", *arguments, **named)

    async def get(self, *arguments: Any, **named: Any) -> Any:
        return await self._call("get", *arguments, **named)

    async def delete(self, *arguments: Any, **named: Any) -> Any:
        return await self._call("delete", *arguments, **named)

    async def search(self, *arguments: Any, **named: Any) -> Any:
        return await self._call("search", *arguments, **named)

    async def list_namespaces(self, **named: Any) -> Any:
        return await self._call("list_namespaces", **named)

    async def batch(self, ops: list[Any]) -> Any:
        return await self._call("batch", ops)

    async def _call(self, method: str, *arguments: Any, **named: Any) -> Any:
        if self.asynchronous:
            return await getattr(self.store, f"a{method}")(*arguments, **named)
        return getattr(self.store, method)(*arguments, **named)


class StoreContract:
    """What every store agrees on, LangGraph's `InMemoryStore` included."""

    kind: str

    @pytest.fixture
    def asynchronous(self) -> bool:
        return False

    @pytest.fixture
    async def new(
        self, request: pytest.FixtureRequest, asynchronous: bool
    ) -> AsyncIterator[NewStore]:
        """Makes stores in the test's event loop: asynchronous ones of Postgres are bound to it."""
        async with new_stores(self.kind, request, asynchronous=asynchronous) as new:
            yield new

    @pytest.fixture
    async def store(self, new: NewStore, asynchronous: bool) -> Store:
        return Store(new(), asynchronous=asynchronous)

    @pytest.fixture
    async def indexed(self, new: NewStore, asynchronous: bool) -> Store:
        return Store(new(INDEX), asynchronous=asynchronous)

    # -- One item

    async def test_what_was_never_put_is_none(self, store: Store) -> None:
        assert await store.get(("users", "ada"), "home") is None

    async def test_what_was_put_is_got(self, store: Store) -> None:
        await store.put(("users", "ada"), "home", {"city": "Paris"})

        item = await store.get(("users", "ada"), "home")

        assert item.namespace == ("users", "ada")
        assert item.key == "home"
        assert item.value == {"city": "Paris"}

    async def test_a_put_replaces_the_whole_value(self, store: Store) -> None:
        await store.put(("users", "ada"), "home", {"city": "Paris"})
        await store.put(("users", "ada"), "home", {"b": 2})

        item = await store.get(("users", "ada"), "home")

        assert item.value == {"b": 2}

    async def test_a_delete_leaves_the_other_keys(self, store: Store) -> None:
        await store.put(("users", "ada"), "home", {"b": 2})
        await store.put(("users", "ada"), "other", {"a": 1})

        await store.delete(("users", "ada"), "home")

        assert keys(await store.search(("users", "ada"))) == ["other"]

    async def test_a_delete_of_nothing_changes_nothing(self, store: Store) -> None:
        await store.put(("users", "ada"), "other", {"a": 1})

        await store.delete(("users", "ada"), "nothing")

        assert keys(await store.search(("users", "ada"))) == ["other"]

    async def test_labels_and_keys_do_not_run_together(self, store: Store) -> None:
        await store.put(("a", "b"), "c", {"v": 0})
        await store.put(("a",), "c", {"v": 1})
        await store.put(("a", "c"), "b", {"v": 2})

        assert (await store.get(("a", "b"), "c")).value == {"v": 0}
        assert (await store.get(("a",), "c")).value == {"v": 1}
        assert (await store.get(("a", "c"), "b")).value == {"v": 2}

    @pytest.mark.parametrize(
        "namespace",
        [(), ("a.b",), ("",), ("langgraph", "x")],
        ids=["empty", "a period", "an empty label", "LangGraph's own"],
    )
    async def test_namespaces_that_langgraph_refuses_are_refused(
        self, store: Store, namespace: tuple[str, ...]
    ) -> None:
        with pytest.raises(InvalidNamespaceError):
            await store.put(namespace, "k", {})

    @pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
    async def test_names_and_values_come_back_as_they_were(self, store: Store, text: str) -> None:
        short = text[:9]
        value = {
            "text": text,
            "list": [None, True, 1, 1.5, {"deep": [short]}],
            "empty": {},
            short: "key",
        }
        await store.put(("n", short), short, value)

        item = await store.get(("n", short), short)

        assert item.namespace == ("n", short)
        assert item.key == short
        assert item.value == value

    # -- Batches

    async def test_reads_of_a_batch_see_the_store_before_it(self, store: Store) -> None:
        await store.put(("n",), "k", {"v": 1})

        results = await store.batch(
            [
                PutOp(("n",), "k", {"v": 2}),
                GetOp(("n",), "k"),
                SearchOp(("n",)),
                PutOp(("n",), "new", {"v": 3}),
                GetOp(("n",), "no"),
                ListNamespacesOp(),
                PutOp(("n",), "k", {"v": 4}),
            ]
        )

        assert results[1].value == {"v": 1}
        assert keys(results[2]) == ["k"]
        assert results[4] is None
        assert results[5] == [("n",)]

    async def test_the_last_put_of_a_key_counts(self, store: Store) -> None:
        await store.batch([PutOp(("n",), "k", {"v": 2}), PutOp(("n",), "k", {"v": 4})])

        assert (await store.get(("n",), "k")).value == {"v": 4}

    async def test_a_put_after_a_delete_counts(self, store: Store) -> None:
        await store.put(("n",), "k", {"v": 4})

        await store.batch([PutOp(("n",), "k", None), PutOp(("n",), "k", {"v": 1})])

        assert (await store.get(("n",), "k")).value == {"v": 1}

    async def test_a_delete_after_a_put_counts(self, store: Store) -> None:
        await store.put(("n",), "k", {"v": 4})

        await store.batch([PutOp(("n",), "k", {"v": 1}), PutOp(("n",), "k", None)])

        assert await store.get(("n",), "k") is None

    @pytest.mark.slow
    async def test_a_batch_may_be_large(self, store: Store) -> None:
        puts = [
            PutOp(("n", str(number % 7)), str(number), {"v": number}) for number in range(2_500)
        ]
        gets = [GetOp(("n", str(number % 7)), str(number)) for number in range(2_500)]

        await store.batch(puts)
        items = await store.batch(gets)

        assert [item.value["v"] for item in items] == list(range(2_500))
        assert len(await store.search(("n",), limit=3_000)) == 2_500

    # -- Searches

    @pytest.mark.parametrize(
        ("prefix", "found"),
        [
            (("a", "b"), ["a-b", "a-b-c"]),
            (("a",), ["a-b", "a-b-c", "a-bc"]),
            ((), ["a-b", "a-b-c", "a-bc", "ab"]),
        ],
        ids=["two labels", "one label", "no label"],
    )
    async def test_a_search_is_limited_to_its_prefix(
        self, store: Store, prefix: tuple[str, ...], found: list[str]
    ) -> None:
        await store.put(("a", "b"), "a-b", {})
        await store.put(("a", "b", "c"), "a-b-c", {})
        await store.put(("a", "bc"), "a-bc", {})
        await store.put(("ab",), "ab", {})

        assert sorted(keys(await store.search(prefix))) == found

    async def test_a_prefix_may_have_many_labels(self, store: Store) -> None:
        deep = ("d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o")
        await store.put((*deep, "p"), "mine", {})
        await store.put((*deep, "other"), "other", {})

        assert keys(await store.search((*deep, "p"))) == ["mine"]

    async def test_a_label_is_found_by_itself_alone(self, store: Store) -> None:
        await store.batch([PutOp((label, "below"), label, {}) for label in LABELS])

        found = {label: keys(await store.search((label,))) for label in LABELS}

        assert found == {label: [label] for label in LABELS}

    async def test_the_beginning_of_a_label_finds_nothing(self, store: Store) -> None:
        await store.put(("Foo", "below"), "Foo", {})

        assert await store.search(("Fo",)) == []

    async def test_the_pages_of_a_search_add_up(self, store: Store) -> None:
        await store.batch([PutOp(("n",), f"k{number}", {}) for number in range(25)])

        first = await store.search(("n",), limit=10, offset=0)
        second = await store.search(("n",), limit=10, offset=10)
        third = await store.search(("n",), limit=10, offset=20)
        behind = await store.search(("n",), limit=10, offset=30)

        assert [len(first), len(second), len(third), len(behind)] == [10, 10, 5, 0]
        assert len(set(keys(first + second + third))) == 25

    async def test_pages_are_made_of_what_a_filter_leaves(self, store: Store) -> None:
        even = [PutOp(("n",), f"even {number}", {"even": True}) for number in range(13)]
        odd = [PutOp(("n",), f"odd {number}", {"even": False}) for number in range(12)]
        await store.batch(even + odd)

        last_page = await store.search(("n",), filter={"even": True}, limit=4, offset=10)

        assert len(last_page) == 3

    @pytest.mark.parametrize(("conditions", "found"), FILTERS, ids=str)
    async def test_a_filter_leaves_what_meets_its_conditions(
        self, store: Store, conditions: dict[str, Any], found: list[str]
    ) -> None:
        await store.batch([PutOp(("n",), key, value) for key, value in VALUES.items()])

        assert sorted(keys(await store.search(("n",), filter=conditions))) == found

    async def test_an_unknown_operator_is_an_error(self, store: Store) -> None:
        await store.put(("n",), "one", VALUES["one"])

        with pytest.raises(ValueError, match="operator"):
            await store.search(("n",), filter={"kind": {"$near": 1}})

    # -- Namespaces

    @pytest.mark.parametrize(("conditions", "listed"), LISTINGS, ids=str)
    async def test_namespaces_are_listed_label_by_label(
        self, store: Store, conditions: dict[str, Any], listed: list[tuple[str, ...]]
    ) -> None:
        await store.batch([PutOp(namespace, "k", {}) for namespace in TREE])

        assert await store.list_namespaces(**conditions) == listed

    async def test_every_condition_of_a_listing_must_hold(self, store: Store) -> None:
        await store.batch([PutOp(namespace, "k", {}) for namespace in TREE])
        conditions = (MatchCondition("prefix", ("a",)), MatchCondition("prefix", ("*", "c")))

        [listed] = await store.batch([ListNamespacesOp(conditions)])

        assert listed == [("a", "c", "f")]

    @pytest.mark.parametrize(
        ("conditions", "listed"),
        [
            ({"prefix": ["foo"]}, [("foo",), ("foo", "child")]),
            ({"suffix": ["alice"]}, [("u", "x", "alice")]),
            ({"prefix": ["u", "alice"]}, []),
        ],
        ids=["a longer label", "an end of a label", "a line break"],
    )
    async def test_a_listing_compares_whole_labels(
        self, store: Store, conditions: dict[str, Any], listed: list[tuple[str, ...]]
    ) -> None:
        await store.batch([PutOp(namespace, "k", {}) for namespace in SIMILAR_LABELS])

        assert await store.list_namespaces(**conditions) == listed

    # -- Similarity

    @pytest.fixture
    async def cat_and_train(self, indexed: Store) -> Store:
        """A store with two texts, one of them about a train."""
        await indexed.put(("n", "x"), "cat", {"text": "a small cat sleeps"})
        await indexed.put(("n",), "train", {"text": "the night train to Lisbon"})
        return indexed

    async def test_the_most_similar_item_comes_first(self, cat_and_train: Store) -> None:
        train, cat = await cat_and_train.search((), query="train to Lisbon")

        assert train.key == "train"
        assert cat.key == "cat"
        assert train.score == pytest.approx(3 / 15**0.5)
        assert train.score > cat.score

    async def test_without_a_query_there_is_no_score(self, cat_and_train: Store) -> None:
        items = await cat_and_train.search(("n",))

        assert [item.score for item in items] == [None, None]

    async def test_an_item_is_found_by_its_new_text_only(self, cat_and_train: Store) -> None:
        await cat_and_train.put(("n",), "train", {"text": "bread"})

        items = await cat_and_train.search(("n",), query="night train")

        assert [item.score for item in items] == pytest.approx([0.0, 0.0])

    @pytest.fixture
    async def longer_and_longer(self, indexed: Store) -> Store:
        """A store with seven texts, each less like `x` than the one before, and one elsewhere."""
        puts = []
        for number in range(7):
            value = {"text": "x" + " y" * number, "n": number}
            puts.append(PutOp(("in", str(number % 2)), f"k{number}", value))
        await indexed.batch(puts)
        await indexed.put(("out",), "other", {"text": "x"})
        return indexed

    async def test_a_query_has_prefix_filter_limit_and_offset(
        self, longer_and_longer: Store
    ) -> None:
        items = await longer_and_longer.search(
            ("in",), query="x", filter={"n": {"$gt": 0}}, limit=2, offset=1
        )

        assert keys(items) == ["k2", "k3"]

    async def test_the_pages_of_a_query_add_up(self, longer_and_longer: Store) -> None:
        first = await longer_and_longer.search(("in",), query="x", limit=3, offset=0)
        second = await longer_and_longer.search(("in",), query="x", limit=3, offset=3)
        third = await longer_and_longer.search(("in",), query="x", limit=3, offset=6)
        behind = await longer_and_longer.search(("in",), query="x", limit=3, offset=9)

        assert keys(first) == ["k0", "k1", "k2"]
        assert keys(second) == ["k3", "k4", "k5"]
        assert keys(third) == ["k6"]
        assert behind == []

    @pytest.fixture
    async def by_title_and_body(self, new: NewStore, asynchronous: bool) -> Store:
        """A store whose items are found by several of their fields, with a train and a ferry."""
        index = {**INDEX, "fields": ["title", "parts[*].body"]}
        store = Store(new(index), asynchronous=asynchronous)
        parts = [{"body": "bread"}, {"body": "night train"}]
        await store.put(("n",), "a", {"title": "cooking", "parts": parts})
        await store.put(("n",), "b", {"title": "night ferry", "parts": []})
        return store

    async def test_the_best_of_several_fields_counts(self, by_title_and_body: Store) -> None:
        best, other = await by_title_and_body.search(("n",), query="night train")

        assert best.key == "a"
        assert best.score == pytest.approx(1.0)
        assert other.key == "b"

    async def test_the_fields_that_a_put_names_win(self, by_title_and_body: Store) -> None:
        value = {"title": "bread", "note": "a night ferry"}
        await by_title_and_body.put(("n",), "a", value, index=["note"])

        items = await by_title_and_body.search(("n",), query="a night ferry")

        assert keys(items) == ["a", "b"]


class SqlStoreContract(StoreContract):
    """What stores agree on that outlive a process."""

    # -- Times

    async def test_an_item_keeps_the_time_of_its_making(self, store: Store) -> None:
        await store.put(("n",), "a", {"text": "a"})
        before = await store.get(("n",), "a")

        await store.put(("n",), "a", {"text": "again"})
        after = await store.get(("n",), "a")

        assert before.created_at == before.updated_at
        assert after.created_at == before.created_at
        assert after.updated_at > before.updated_at

    async def test_times_have_a_zone(self, store: Store) -> None:
        await store.put(("n",), "a", {"text": "a"})

        item = await store.get(("n",), "a")

        assert item.created_at.utcoffset() is not None

    @pytest.fixture
    async def a_put_again(self, store: Store) -> Store:
        """A store with three items, of which the first was put once more."""
        for key in ("a", "b", "c", "a"):
            await store.put(("n",), key, {"text": key})
        return store

    async def test_the_last_update_comes_first(self, a_put_again: Store) -> None:
        assert keys(await a_put_again.search(("n",))) == ["a", "c", "b"]

    async def test_without_an_index_a_query_orders_nothing(self, a_put_again: Store) -> None:
        items = await a_put_again.search(["n"], query="b")

        assert keys(items) == ["a", "c", "b"]
        assert [item.score for item in items] == [None, None, None]

    # -- Fields

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
    async def test_a_path_names_what_an_item_is_found_by(
        self, new: NewStore, asynchronous: bool, path: str, query: str
    ) -> None:
        store = Store(new({**INDEX, "fields": [path]}), asynchronous=asynchronous)
        await store.put(("n",), "other", {"title": "bread", "a": {"b": ["butter", "salt"]}})
        await store.put(("n",), "wanted", {"title": "train", "a": {"b": ["train", "salt"]}})
        await store.put(("n",), "neither", {"c": 1})

        assert keys(await store.search(("n",), query=query)) == ["wanted", "other"]

    async def test_items_without_vectors_answer_no_query(self, indexed: Store) -> None:
        await indexed.put(("n",), "not indexed", {"text": "night train"}, index=False)
        await indexed.put(("n",), "no text", {"other": 1})
        await indexed.put(("n",), "indexed", {"text": "night"})

        assert keys(await indexed.search(("n",), query="night train")) == ["indexed"]

    # -- What is left out

    async def test_a_bad_put_spoils_its_whole_batch(self, store: Store) -> None:
        good = PutOp(("n",), "good", {})
        bad = PutOp(("n",), "bad", {"v": object()})

        with pytest.raises((TypeError, ValueError)):
            await store.batch([good, bad])
        assert await store.search(("n",)) == []

    async def test_an_empty_namespace_is_not_listed(self, store: Store) -> None:
        await store.put(("a", "b"), "k", {})
        await store.delete(("a", "b"), "k")

        assert await store.list_namespaces() == []


class TestInMemoryStore(StoreContract):
    kind = "memory"


class TestChromaInMemory(SqlStoreContract):
    kind = "chroma"


@pytest.mark.slow
class TestChromaFolder(SqlStoreContract):
    kind = "chroma-folder"


@pytest.mark.slow
@LOOPBACK
class TestChromaServer(SqlStoreContract):
    kind = "chroma-server"


@pytest.mark.slow
class TestPostgres(SqlStoreContract):
    kind = "postgres"

    @pytest.fixture(params=[False, True], ids=["sync", "async"])
    def asynchronous(self, request: pytest.FixtureRequest) -> bool:
        return bool(request.param)

    async def test_async_methods_are_those_of_the_async_store(
        self, store: Store, asynchronous: bool
    ) -> None:
        expected = AsyncPostgresStore if asynchronous else PostgresStore
        assert type(store.store) is expected


# -- Either form of the methods


def facts_of(item: Any) -> dict[str, Any]:
    """Returns what an item says, without its times."""
    facts: dict[str, Any] = item.dict()
    del facts["created_at"], facts["updated_at"]
    return facts


async def answers(store: Store) -> dict[str, Any]:
    """Returns what a store answers after some puts and a delete."""
    for number in range(12):
        value = {"text": "x" + " y" * number, "n": number}
        await store.put(("n", str(number % 2)), f"k{number}", value)
        await store.delete(("n", "0"), "k4")
    deleted, kept = await store.batch([GetOp(("n", "0"), "k4"), GetOp(("n", "0"), "k2")])
    filtered = await store.search(("n",), filter={"n": {"$gt": 2}}, limit=5)
    similar = await store.search(("n", "0"), query="y x", limit=4)
    return {
        "an item": facts_of(await store.get(("n", "1"), "k3")),
        "a search": [facts_of(item) for item in filtered],
        "a query": [facts_of(item) for item in similar],
        "a deleted item of a batch": deleted,
        "another item of a batch": facts_of(kept),
        "namespaces": await store.list_namespaces(),
    }


@pytest.mark.parametrize(
    "kind",
    ["memory", "chroma", pytest.param("chroma-server", marks=[LOOPBACK, pytest.mark.slow])],
)
async def test_awaited_methods_give_what_the_others_give(
    kind: str, request: pytest.FixtureRequest
) -> None:
    async with new_stores(kind, request) as new:
        blocking = await answers(Store(new(INDEX), asynchronous=False))
        awaited = await answers(Store(new(INDEX), asynchronous=True))

    assert awaited == blocking
    assert blocking["namespaces"] == [("n", "0"), ("n", "1")]


# Either of LangGraph's Postgres classes under either form of the pipeline.


@pytest.mark.slow
async def test_an_awaited_pipeline_on_the_blocking_postgres_store(
    request: pytest.FixtureRequest,
) -> None:
    scope = {"user_id": "ada", "conversation_id": "c"}
    async with new_stores("postgres", request) as new:
        pipeline = ContextPipeline(store=new())
        exchange = [HumanMessage("My bike is blue."), AIMessage("Nice!")]
        await pipeline.aadd_messages(exchange, **scope)

        context = await pipeline.aassemble("Which colour is my bike?", **scope)

    assert [message.type for message in context.messages] == ["human", "ai", "human"]
