"""The items of a Chroma: the form in which they are stored, and reading and writing many at once.

An item is one record: its value as JSON, its times and its vectors in base64 are one text in the
metadata, so that no writer that is killed leaves one without the other.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from typing import Any, Self, TypeAlias

import numpy as np
from cachetools import LRUCache
from chromadb.api.client import Client
from chromadb.api.collection_configuration import CreateCollectionConfiguration
from chromadb.api.models.Collection import Collection
from chromadb.errors import NotFoundError
from langgraph.store.base import Item, SearchItem
from numpy.typing import NDArray
from pybase64 import b64decode
from pydantic_core import from_json

from langchain_ctxbudget.stores.bulk import Namespace

Vectors: TypeAlias = NDArray[np.float32]
"""The vectors of an item, each of length 1, one after the other."""
BUCKETS = 16
"""Collections, chosen by a namespace's first two labels: one takes 2.6 MB, and the fuller it is the
longer a scan."""
READ_SIZE = 2_000
"""Items per request that reads: SQLite takes 32,766 variables in a statement."""
WRITE_SIZE = 500
"""Items per request that writes: a server takes 40 MB."""


@dataclass(frozen=True)
class MemoryPolicy:
    """What stays in memory of a Chroma that no other process writes."""

    items: int
    """Items that were read or written last."""
    item_characters: int
    """Characters of the largest item that stays."""
    vectors: int
    """Items below searched prefixes whose ids and vectors stay."""


MEMORY = MemoryPolicy(items=1_024, item_characters=16_384, vectors=50_000)
"""About 16 MB of items, and 100 MB of vectors with 512 dimensions."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)

# The smallest graph that Chroma builds, because nothing searches it: ef 400 and M 32 make writes 7
# times as slow. Every write reads the log since the last sync, so Chroma's 1,000 between two of
# them is too many.
_CONFIGURATION: CreateCollectionConfiguration = {
    "hnsw": {"space": "l2", "max_neighbors": 2, "ef_construction": 2, "sync_threshold": 100}
}


@dataclass(frozen=True, slots=True)
class StoredItem:
    """An item as it is stored."""

    created: int
    """When it was first written, in microseconds since 1970."""
    updated: int
    """When it was last written, in microseconds since 1970."""
    vectors: str
    """The vectors of its texts, as 32-bit numbers in base64."""
    value: str
    """Its value as JSON text."""

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, Any]) -> Self:
        """Reads an item from the metadata of its record."""
        packed = str(metadata["value"])
        if packed.startswith("{"):  # older records have each field by its name
            return cls(
                created=metadata["created"],
                updated=metadata["updated"],
                vectors=metadata["vectors"],
                value=packed,
            )
        created, updated, vectors, value = packed.split(" ", 3)
        return cls(created=int(created), updated=int(updated), vectors=vectors, value=value)

    @property
    def packed(self) -> str:
        """The item in one text, because Chroma writes several rows for every field of metadata."""
        return f"{self.created} {self.updated} {self.vectors} {self.value}"

    @property
    def characters(self) -> int:
        """The characters of its value and its vectors."""
        return len(self.value) + len(self.vectors)

    @property
    def flat_vectors(self) -> Vectors:
        """Its vectors, one after the other."""
        return np.frombuffer(b64decode(self.vectors), np.dtype("<f4"))

    def to_item(self, item_id: str) -> Item:
        """Returns it as LangGraph's item."""
        return Item(**self._fields(item_id))

    def to_search_item(self, item_id: str, score: float | None) -> SearchItem:
        """Returns it as LangGraph's result of a search."""
        return SearchItem(**self._fields(item_id), score=score)

    def _fields(self, item_id: str) -> dict[str, Any]:
        *labels, key = json.loads(item_id)
        return {
            "namespace": tuple(labels),
            "key": key,
            "value": _parsed(self.value),
            "created_at": _EPOCH + self.created * _MICROSECOND,
            "updated_at": _EPOCH + self.updated * _MICROSECOND,
        }


def microseconds_of(time: datetime) -> int:
    """Returns the microseconds from 1970 to a time."""
    return (time - _EPOCH) // _MICROSECOND


def _parsed(value: str) -> Any:  # noqa: ANN401 - a value is any JSON
    try:
        # Without its cache of strings, long ones take a third of the time.
        return from_json(value, cache_strings=False)
    except ValueError:  # half of a surrogate pair
        return json.loads(value)


# Ids


def item_id(namespace: Namespace, key: str) -> str:
    """Returns the id of an item: its labels and key as a JSON list, so that no two share one."""
    return json.dumps([*namespace, key])


def namespace_of(id_: str) -> Namespace:
    """Returns the namespace of an item."""
    return tuple(json.loads(id_)[:-1])


def _fingerprint(namespace: Namespace) -> int:
    """Returns a signed 64-bit hash of a namespace that is the same in every process."""
    digest = blake2b(json.dumps(namespace).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)


def _bucket_of(namespace: Namespace) -> int:
    return _fingerprint(namespace[:2]) % BUCKETS


def _buckets_below(prefix: Namespace) -> Iterable[int]:
    """Returns the buckets that may hold items below a prefix."""
    if len(prefix) > 1:
        return [_bucket_of(prefix)]
    return range(BUCKETS)


def _requests(ids: Iterable[str], most_items: int) -> Iterator[tuple[int, list[str]]]:
    """Yields a bucket and some ids of its items, for requests of at most so many items."""
    ids_by_bucket: dict[int, list[str]] = defaultdict(list)
    for id_ in ids:
        ids_by_bucket[_bucket_of(namespace_of(id_))].append(id_)
    for bucket, bucket_ids in ids_by_bucket.items():
        for first in range(0, len(bucket_ids), most_items):
            yield bucket, bucket_ids[first : first + most_items]


def _metadata_of(id_: str, item: StoredItem) -> dict[str, Any]:
    """Returns an item's metadata: itself, and a fingerprint of each prefix that it is below."""
    namespace = namespace_of(id_)
    metadata: dict[str, Any] = {"value": item.packed}
    for length in range(1, len(namespace) + 1):
        metadata[f"p{length}"] = _fingerprint(namespace[:length])
    return metadata


class Records:
    """The items of one Chroma, by their ids.

    Of a Chroma that no other process writes, items, ids and vectors stay in memory, within the
    limits of `MEMORY`.
    """

    def __init__(
        self, client: Client, *, is_private: bool, note_writes: Callable[[int], None]
    ) -> None:
        """Makes an empty view of a Chroma's items.

        Args:
            client: the Chroma.
            is_private: True where no other process can write it.
            note_writes: is called with the number of records that Chroma has confirmed to have
                written or deleted.
        """
        self._client = client
        self._is_private = is_private
        self._note_writes = note_writes
        self._collections: dict[str, Collection] = {}
        self._recent: LRUCache[str, StoredItem | None] = LRUCache(MEMORY.items)
        """Items that were read or written last; None for one that is not there."""
        self._below: dict[Namespace, dict[str, Vectors | None]] = {}
        """The ids below the prefixes that were searched, with their vectors once these are read."""

    def use(self, client: Client) -> None:
        """Goes on with another client of the same data."""
        self._client = client
        self._collections = {}

    def forget(self) -> None:
        """Forgets what is in memory, so that it is read again."""
        self._recent.clear()
        self._below = {}

    # Reading

    def ids_below(self, prefix: Namespace) -> list[str]:
        """Returns the ids of the items whose namespaces begin with a prefix."""
        if prefix in self._below:
            return list(self._below[prefix])

        condition: dict[str, Any] | None = None
        beginning = "["
        if prefix:
            condition = {f"p{len(prefix)}": _fingerprint(prefix)}
            beginning = json.dumps(prefix)[:-1] + ", "
        ids: list[str] = []
        for bucket in _buckets_below(prefix):
            collection = self._collection(bucket)
            if collection is not None:
                candidates = collection.get(where=condition, include=[])["ids"]
                # Two prefixes may have the same fingerprint.
                ids += [id_ for id_ in candidates if id_.startswith(beginning)]
        self._remember_ids(prefix, ids)
        return ids

    def vectors_below(self, prefix: Namespace) -> Mapping[str, Vectors]:
        """Returns the vectors of the items below a prefix that have some, by item id."""
        vectors: dict[str, Vectors | None] = dict.fromkeys(self.ids_below(prefix))
        vectors.update(self._below.get(prefix, {}))
        unread = [id_ for id_, flat in vectors.items() if flat is None]
        for id_, item in self.read(unread).items():
            vectors[id_] = item.flat_vectors
        if prefix in self._below:
            self._below[prefix] = vectors
        return {id_: flat for id_, flat in vectors.items() if flat is not None and len(flat)}

    def read(self, ids: Iterable[str]) -> dict[str, StoredItem]:
        """Returns the items with these ids, by id, without those that are not there."""
        items: dict[str, StoredItem | None] = {}
        unread: list[str] = []
        for id_ in dict.fromkeys(ids):
            if id_ in self._recent:
                items[id_] = self._recent[id_]
            else:
                unread.append(id_)
        fetched = self._fetch(unread)
        self._remember_items(fetched)
        items |= fetched
        return {id_: item for id_, item in items.items() if item is not None}

    def _fetch(self, ids: list[str]) -> dict[str, StoredItem | None]:
        """Reads items from Chroma; None stands for one that is not there."""
        items: dict[str, StoredItem | None] = dict.fromkeys(ids)
        for bucket, some_ids in _requests(ids, READ_SIZE):
            collection = self._collection(bucket)
            if collection is None:
                continue
            records = collection.get(ids=some_ids, include=["metadatas"])
            metadatas = records["metadatas"] or []
            for id_, metadata in zip(records["ids"], metadatas, strict=True):
                items[id_] = StoredItem.from_metadata(metadata)
        return items

    # Writing

    def write(self, items: Mapping[str, StoredItem | None]) -> None:
        """Writes items by id over those that are there; None deletes one."""
        deletions = [id_ for id_, item in items.items() if item is None]
        puts = {id_: item for id_, item in items.items() if item is not None}
        try:
            self._delete(deletions)
            self._put(puts)
        except BaseException:  # nobody knows how far it came
            self.forget()
            raise
        self._remember_items(items)
        self._update_below(items)

    def _delete(self, ids: list[str]) -> None:
        for bucket, some_ids in _requests(ids, READ_SIZE):
            collection = self._collection(bucket)
            if collection is not None:
                collection.delete(ids=some_ids)
                self._note_writes(len(some_ids))

    def _put(self, items: Mapping[str, StoredItem]) -> None:
        for bucket, ids in _requests(items, WRITE_SIZE):
            collection = self._collection(bucket)
            if collection is None:
                collection = self._new_collection(bucket)
            collection.upsert(
                ids=ids,
                # Chroma wants vectors; nobody searches these.
                embeddings=np.ones((len(ids), 1), np.float32),
                metadatas=[_metadata_of(id_, items[id_]) for id_ in ids],
            )
            self._note_writes(len(ids))

    def _collection(self, bucket: int) -> Collection | None:
        """Returns a bucket's collection; None where nothing was ever written to it."""
        name = _collection_name(bucket)
        if name not in self._collections:
            try:
                collection = self._client.get_collection(name, embedding_function=None)
            except NotFoundError:
                return None
            self._collections[name] = collection
        return self._collections[name]

    def _new_collection(self, bucket: int) -> Collection:
        name = _collection_name(bucket)
        collection = self._client.create_collection(
            name, configuration=_CONFIGURATION, embedding_function=None, get_or_create=True
        )
        self._collections[name] = collection
        return collection

    # What stays in memory

    def _remember_items(self, items: Mapping[str, StoredItem | None]) -> None:
        if not self._is_private:
            return
        for id_, item in items.items():
            if item is None or item.characters <= MEMORY.item_characters:
                self._recent[id_] = item
            else:
                self._recent.pop(id_, None)

    def _remember_ids(self, prefix: Namespace, ids: list[str]) -> None:
        """Remembers the ids below a prefix, as Chroma looks at every item to find them."""
        room = MEMORY.vectors - len(ids)
        if not self._is_private or room <= 0:
            return
        remembered = sum(1 + len(below) for below in self._below.values())
        if remembered >= room:
            self._below = {}
        self._below[prefix] = dict.fromkeys(ids)

    def _update_below(self, items: Mapping[str, StoredItem | None]) -> None:
        """Keeps the ids and vectors below the searched prefixes in step with a write."""
        if not self._below:
            return
        for id_, item in items.items():
            namespace = namespace_of(id_)
            for length in range(len(namespace) + 1):
                below = self._below.get(namespace[:length])
                if below is None:
                    continue
                below.pop(id_, None)
                if item is not None:
                    below[id_] = item.flat_vectors


def _collection_name(bucket: int) -> str:
    return f"ctxbudget-items-{bucket:02}"
