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

NAMESPACES = [
    ("a", "b", "c"),
    ("a", "b", "d", "e"),
    ("a", "b", "d", "i"),
    ("a", "b", "f"),
    ("a", "c", "f"),
    ("b",),
]
LISTED: list[tuple[dict[str, Any], list[Any]]] = [
    ({}, NAMESPACES),
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
FILTERED: dict[str, dict[str, Any]] = {
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
FILTERS: list[tuple[dict[str, Any], str]] = [
    ({"kind": "a"}, "one two"),
    ({"kind": {"$eq": "a"}}, "one two"),
    ({"kind": {"$ne": "a"}}, "three"),
    ({"size": {"$gt": 1}}, "three two"),
    ({"size": {"$gte": 2}}, "three two"),
    ({"size": {"$lt": 2}}, "one"),
    ({"size": {"$lte": 2.0}}, "one two"),
    ({"size": {"$gt": 1, "$lt": 3}}, "two"),
    ({"kind": "a", "size": 2}, "two"),
    ({"tags": ["x", "y"]}, "two"),
    ({'it\'s "$" a.b': "'; drop"}, "three"),
    ({"size": 2.0}, "two"),
    ({"active": True}, "one"),
    ({"active": False}, "two"),
    ({"name": "O'Brien's"}, "one"),
    ({"name": "' OR '1'='1"}, ""),
    ({"' OR '1'='1": "x"}, ""),
    ({"name": "Ωmega 😀"}, "three"),
    ({"size": {"$lt": float("inf")}}, "one three two"),
]
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
    "Foo",
    "foo",
]
LABELS += ["alice", "alice\n", "back\\slash", 'quo"te', "it's", "plus+", "ü 😀"]
TEXTS = ["这是中文", "यह हिन्दी है", "Это 😀", "\u202e\ufeff", "line\r\n\ttab", "x" * 2_000_000]


class Store:
    def __init__(self, store: BaseStore, *, asynchronous: bool) -> None:
        self.store = store
        self.asynchronous = asynchronous

    async def __call__(self, method: str, *arguments: Any, **named: Any) -> Any:
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
        """Makes stores in the event loop of the test, to which asynchronous Postgres stores are bound."""
        async with new_stores(self.kind, request, asynchronous=asynchronous) as new:
            yield new

    @pytest.fixture
    async def store(self, new: NewStore, asynchronous: bool) -> Store:
        return Store(new(), asynchronous=asynchronous)

    @pytest.fixture
    async def indexed(self, new: NewStore, asynchronous: bool) -> Store:
        return Store(new(INDEX), asynchronous=asynchronous)

    async def test_put_get_and_delete(self, store: Store) -> None:
        assert await store("get", ("users", "ada"), "home") is None
        await store("put", ("users", "ada"), "home", {"city": "Paris"})
        item = await store("get", ("users", "ada"), "home")
        assert (item.namespace, item.key, item.value) == (
            ("users", "ada"),
            "home",
            {"city": "Paris"},
        )
        await store("put", ("users", "ada"), "home", {"b": 2})
        await store("put", ("users", "ada"), "other", {"a": 1})
        assert (await store("get", ("users", "ada"), "home")).value == {"b": 2}, (
            "a put replaces the whole value"
        )
        await store("delete", ("users", "ada"), "home")
        await store("delete", ("users", "ada"), "nothing")
        assert keys(await store("search", ("users", "ada"))) == ["other"]

    async def test_same_key_in_two_namespaces_is_two_items(self, store: Store) -> None:
        places = [(("a", "b"), "c"), (("a",), "c"), (("a", "c"), "b")]
        for number, place in enumerate(places):
            await store("put", *place, {"v": number})
        assert [(await store("get", *place)).value["v"] for place in places] == [0, 1, 2]

    async def test_reads_of_a_batch_see_the_store_before_it_and_the_last_put_of_a_key_counts(
        self, store: Store
    ) -> None:
        await store("put", ("n",), "k", {"v": 1})
        ops = [
            PutOp(("n",), "k", {"v": 2}),
            GetOp(("n",), "k"),
            SearchOp(("n",)),
            PutOp(("n",), "new", {"v": 3}),
        ]
        ops += [GetOp(("n",), "no"), ListNamespacesOp(), PutOp(("n",), "k", {"v": 4})]
        _, got, found, _, no, namespaces, _ = await store("batch", ops)
        assert (got.value, keys(found), no, namespaces) == ({"v": 1}, ["k"], None, [("n",)])
        assert (await store("get", ("n",), "k")).value == {"v": 4}
        await store("batch", [PutOp(("n",), "k", None), PutOp(("n",), "k", {"v": 1})])
        assert (await store("get", ("n",), "k")).value == {"v": 1}
        await store("batch", [PutOp(("n",), "k", {"v": 1}), PutOp(("n",), "k", None)])
        assert await store("get", ("n",), "k") is None

    async def test_search_is_limited_to_the_prefix_label_by_label(self, store: Store) -> None:
        for namespace in (("a", "b"), ("a", "b", "c"), ("a", "bc"), ("ab",)):
            await store("put", namespace, "-".join(namespace), {})
        assert sorted(keys(await store("search", ("a", "b")))) == ["a-b", "a-b-c"]
        assert len(await store("search", ("a",))) == 3
        assert len(await store("search", ())) == 4
        deep = tuple("defghijklmnop")
        await store("put", deep, "mine", {})
        await store("put", (*deep[:-1], "other"), "other", {})
        assert keys(await store("search", deep)) == ["mine"]
        await store("batch", [PutOp((label, "below"), label, {}) for label in LABELS])
        assert [keys(await store("search", (label,))) for label in LABELS] == [
            [label] for label in LABELS
        ]
        assert await store("search", ("Fo",)) == []

    async def test_pages_of_a_search_add_up_after_its_filter(self, store: Store) -> None:
        await store("batch", [PutOp(("n",), f"k{n}", {"even": n % 2 == 0}) for n in range(25)])
        pages = [
            await store("search", ("n",), limit=10, offset=offset) for offset in (0, 10, 20, 30)
        ]
        assert [len(page) for page in pages] == [10, 10, 5, 0]
        assert len({item.key for page in pages for item in page}) == 25
        assert len(await store("search", ("n",), filter={"even": True}, limit=4, offset=10)) == 3

    async def test_filters(self, store: Store) -> None:
        for key, value in FILTERED.items():
            await store("put", ("n",), key, value)
        found = [
            sorted(keys(await store("search", ("n",), filter=wanted))) for wanted, _ in FILTERS
        ]
        assert found == [expected.split() for _, expected in FILTERS]
        with pytest.raises(ValueError, match="operator"):
            await store("search", ("n",), filter={"kind": {"$near": 1}})

    async def test_namespaces_are_listed_label_by_label(self, store: Store) -> None:
        await store("batch", [PutOp(namespace, "k", {}) for namespace in NAMESPACES])
        assert [await store("list_namespaces", **asked) for asked, _ in LISTED] == [
            expected for _, expected in LISTED
        ]
        conditions = (MatchCondition("prefix", ("a",)), MatchCondition("prefix", ("*", "c")))
        assert await store("batch", [ListNamespacesOp(conditions)]) == [[("a", "c", "f")]]
        names = [
            ("foo",),
            ("foo", "child"),
            ("foobar",),
            ("u", "x", "alice"),
            ("u", "x", "malice"),
            ("u", "alice\n"),
        ]
        await store("batch", [PutOp(namespace, "k", {}) for namespace in names])
        assert await store("list_namespaces", prefix=["foo"]) == [("foo",), ("foo", "child")]
        assert await store("list_namespaces", suffix=["alice"]) == [("u", "x", "alice")]
        assert await store("list_namespaces", prefix=["u", "alice"]) == []

    async def test_namespaces_that_langgraph_refuses(self, store: Store) -> None:
        for namespace in ((), ("a.b",), ("",), ("langgraph", "x")):
            with pytest.raises(InvalidNamespaceError):
                await store("put", namespace, "k", {})

    async def test_values_come_back_as_they_were(self, store: Store) -> None:
        for text in TEXTS:
            value = {
                "text": text,
                "list": [None, True, 1, 1.5, {"deep": [text[:9]]}],
                "empty": {},
                text[:9]: "key",
            }
            await store("put", ("n", text[:9]), text[:9], value)
            item = await store("get", ("n", text[:9]), text[:9])
            assert (item.key, item.namespace, item.value) == (text[:9], ("n", text[:9]), value)

    async def test_large_batches(self, store: Store) -> None:
        await store("batch", [PutOp(("n", str(n % 7)), str(n), {"v": n}) for n in range(2_500)])
        found = await store("batch", [GetOp(("n", str(n % 7)), str(n)) for n in range(2_500)])
        assert [item.value["v"] for item in found] == list(range(2_500))
        assert len(await store("search", ("n",), limit=3_000)) == 2_500

    async def test_most_similar_item_comes_first(self, indexed: Store) -> None:
        await indexed("put", ("n", "x"), "cat", {"text": "a small cat sleeps"})
        await indexed("put", ("n",), "train", {"text": "the night train to Lisbon"})
        found = await indexed("search", (), query="train to Lisbon")
        assert keys(found) == ["train", "cat"]
        assert found[0].score == pytest.approx(3 / 15**0.5)
        assert found[0].score > found[1].score
        assert [item.score for item in await indexed("search", ("n",))] == [None, None]
        await indexed("put", ("n",), "train", {"text": "bread"})
        found = await indexed("search", ("n",), query="night train")
        assert [item.score for item in found] == pytest.approx([0.0, 0.0]), (
            "found by its new text only"
        )

    async def test_query_respects_prefix_filter_limit_and_offset(self, indexed: Store) -> None:
        await indexed(
            "batch",
            [
                PutOp(("in", str(n % 2)), f"k{n}", {"text": "x" + " y" * n, "n": n})
                for n in range(7)
            ],
        )
        await indexed("put", ("out",), "other", {"text": "x"})
        found = await indexed(
            "search", ("in",), query="x", filter={"n": {"$gt": 0}}, limit=2, offset=1
        )
        assert keys(found) == ["k2", "k3"]
        pages = [
            await indexed("search", ("in",), query="x", limit=3, offset=offset)
            for offset in (0, 3, 6, 9)
        ]
        assert [len(page) for page in pages] == [3, 3, 1, 0]
        assert [item.key for page in pages for item in page] == [f"k{n}" for n in range(7)]

    async def test_best_of_several_fields_counts_and_fields_of_a_put_win(
        self, new: NewStore, asynchronous: bool
    ) -> None:
        store = Store(
            new({**INDEX, "fields": ["title", "parts[*].body"]}), asynchronous=asynchronous
        )
        await store(
            "put",
            ("n",),
            "a",
            {"title": "cooking", "parts": [{"body": "bread"}, {"body": "night train"}]},
        )
        await store("put", ("n",), "b", {"title": "night ferry", "parts": []})
        found = await store("search", ("n",), query="night train")
        assert keys(found) == ["a", "b"]
        assert found[0].score == pytest.approx(1.0)
        await store("put", ("n",), "a", {"title": "bread", "note": "a night ferry"}, index=["note"])
        assert keys(await store("search", ("n",), query="a night ferry")) == ["a", "b"]


class SqlStoreContract(StoreContract):
    async def test_times_and_the_order_of_updates(self, store: Store) -> None:
        for key in ("a", "b", "c"):
            await store("put", ("n",), key, {"text": key})
        first = await store("get", ("n",), "a")
        await store("put", ("n",), "a", {"text": "again"})
        second = await store("get", ("n",), "a")
        assert second.created_at == first.created_at == first.updated_at < second.updated_at
        assert first.created_at.utcoffset() is not None
        assert keys(await store("search", ("n",))) == ["a", "c", "b"]
        found = await store("search", ["n"], query="b")
        assert [(item.key, item.score) for item in found] == [
            ("a", None),
            ("c", None),
            ("b", None),
        ], "no index"

    async def test_paths_of_a_field(self, new: NewStore, asynchronous: bool) -> None:
        paths = {"a.b[0]": "train", "a.b[-2]": "train", "a.b[*]": "train", "{title,other}": "train"}
        for path, query in (paths | {"a.*": '["train",', "a": '["train",'}).items():
            store = Store(new({**INDEX, "fields": [path]}), asynchronous=asynchronous)
            await store(
                "put", (path[0],), "other", {"title": "bread", "a": {"b": ["butter", "salt"]}}
            )
            await store(
                "put", (path[0],), "wanted", {"title": "train", "a": {"b": ["train", "salt"]}}
            )
            await store("put", (path[0],), "neither", {"c": 1})
            assert keys(await store("search", (path[0],), query=query)) == ["wanted", "other"]

    async def test_items_without_vectors_are_no_answer_to_a_query(self, indexed: Store) -> None:
        await indexed("put", ("n",), "not indexed", {"text": "night train"}, index=False)
        await indexed("put", ("n",), "no text", {"other": 1})
        await indexed("put", ("n",), "indexed", {"text": "night"})
        assert keys(await indexed("search", ("n",), query="night train")) == ["indexed"]

    async def test_bad_put_spoils_its_whole_batch_and_an_empty_namespace_is_not_listed(
        self, store: Store
    ) -> None:
        with pytest.raises((TypeError, ValueError)):
            await store("batch", [PutOp(("n",), "good", {}), PutOp(("n",), "bad", {"v": object()})])
        assert await store("search", ("n",)) == []
        await store("put", ("a", "b"), "k", {})
        await store("delete", ("a", "b"), "k")
        assert await store("list_namespaces") == []


SCOPE: dict[str, Any] = {"user_id": "ada", "conversation_id": "c"}


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
        assert type(store.store) is (AsyncPostgresStore if asynchronous else PostgresStore)


@pytest.mark.parametrize(
    "kind",
    [
        "memory",
        "chroma",
        *(pytest.param(kind, marks=[LOOPBACK, pytest.mark.slow]) for kind in ["chroma-server"]),
    ],
)
async def test_awaited_methods_give_what_the_others_give(
    kind: str, request: pytest.FixtureRequest
) -> None:
    async with new_stores(kind, request) as new:
        blocking = Store(new(INDEX), asynchronous=False)
        awaited = Store(new(INDEX), asynchronous=True)
        for number in range(12):
            for store in (blocking, awaited):
                await store(
                    "put",
                    ("n", str(number % 2)),
                    f"k{number}",
                    {"text": "x" + " y" * number, "n": number},
                )
                await store("delete", ("n", "0"), "k4")
        for call in (
            lambda store: store("get", ("n", "1"), "k3"),
            lambda store: store("search", ("n",), filter={"n": {"$gt": 2}}, limit=5),
            lambda store: store("search", ("n", "0"), query="y x", limit=4),
            lambda store: store("batch", [GetOp(("n", "0"), "k4"), GetOp(("n", "0"), "k2")]),
        ):
            one, other = [await call(store) for store in (blocking, awaited)]
            assert repr(one).partition("created_at")[0] == repr(other).partition("created_at")[0]
        for store in (blocking, awaited):
            assert await store("list_namespaces") == [("n", "0"), ("n", "1")]


# Either of LangGraph's Postgres classes under either form of the pipeline.


@pytest.mark.slow
async def test_an_awaited_pipeline_on_the_blocking_postgres_store(
    request: pytest.FixtureRequest,
) -> None:
    async with new_stores("postgres", request) as new:
        pipeline = ContextPipeline(store=new())
        await pipeline.aadd_messages(
            [HumanMessage("My bike is blue."), AIMessage("Nice!")], **SCOPE
        )
        context = await pipeline.aassemble("Which colour is my bike?", **SCOPE)
    assert [message.type for message in context.messages] == ["human", "ai", "human"]
