"""The place where data is kept that is derived from the messages of conversations.

A store keeps such data itself, beside the log. If it has an attribute `derived`, what can be made
again at no cost is kept at that `DerivedPlace` instead. `history/derived.py` says what is derived,
and when it is deleted.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

from langgraph.store.base import BaseStore, GetOp, Item, PutOp, Result

from langchain_ctxbudget.flow import Flow, batch
from langchain_ctxbudget.stores import bulk
from langchain_ctxbudget.stores.base import ROOT, Scope, label

Value: TypeAlias = dict[str, Any]
"""A piece of derived data as plain JSON, in a form that every store can hold."""


class Address(NamedTuple):
    """Where a piece of derived data is kept."""

    scope: Scope
    kind: str
    """The name of the kind."""
    key: str


class DerivedPlace(Protocol):
    """A place where derived data is kept.

    Everything in it can be made again: a piece that is lost or damaged costs time, never words. Who
    erases must open the store with the same place: nothing stored says that there is one.
    """

    def get(self, addresses: Sequence[Address]) -> Flow[list[Value | None]]:
        """Returns the pieces at some addresses; None where there is none.

        A damaged piece is there: it is given as it is, or as an empty one, so that it is deleted.
        """

    def put(self, pieces: Mapping[Address, Value]) -> Flow[None]:
        """Keeps pieces, in place of those that are there."""

    def forget(self, addresses: Collection[Address]) -> Flow[None]:
        """Deletes pieces; what is not there stays so."""

    def keys(self, scope: Scope, kind: str) -> Flow[list[str]]:
        """Returns the keys of all pieces of a kind that a conversation has."""

    def erase(self, user_id: str, kind: str) -> Flow[int]:
        """Deletes all pieces of a kind that a user has, and returns how many there were."""


class InStore:
    """Keeps derived data in a store, beside the log of each conversation."""

    def __init__(self, store: BaseStore) -> None:
        self._store = store

    def get(self, addresses: Sequence[Address]) -> Flow[list[Value | None]]:
        """Returns the pieces at some addresses; None where there is none."""
        values: list[Value | None] = []
        for chunk in bulk.chunks(addresses):
            requests = [_place_of(address) for address in chunk]
            results = yield from batch(self._store, requests)
            values += [_value_in(result) for result in results]
        return values

    def put(self, pieces: Mapping[Address, Value]) -> Flow[None]:
        """Keeps pieces, in place of those that are there."""
        puts = [_put_of(address, value) for address, value in pieces.items()]
        yield from bulk.write(self._store, puts)

    def forget(self, addresses: Collection[Address]) -> Flow[None]:
        """Deletes pieces; what is not there stays so."""
        deletions = [_put_of(address, None) for address in addresses]
        yield from bulk.write(self._store, deletions)

    def keys(self, scope: Scope, kind: str) -> Flow[list[str]]:
        """Returns the keys of all pieces of a kind that a conversation has."""
        namespace = scope.namespace(kind)
        items = yield from bulk.read_all(self._store, namespace)
        return [item.key for item in items]

    def erase(self, user_id: str, kind: str) -> Flow[int]:
        """Deletes all pieces of a kind that a user has, and returns how many there were."""
        path = (ROOT, label(user_id), kind)
        items = yield from bulk.read_below(self._store, path)
        yield from bulk.write(self._store, bulk.deletions_of(items))
        return len(items)


def _value_in(result: Result) -> Value | None:
    """Returns the piece that a store has found; None where it has found none."""
    if isinstance(result, Item):
        return result.value
    return None


def _place_of(address: Address) -> GetOp:
    """Returns the request that reads the piece at an address."""
    namespace = address.scope.namespace(address.kind)
    return GetOp(namespace, address.key)


def _put_of(address: Address, value: Value | None) -> PutOp:
    """Returns the request that keeps a piece at an address; without a value, one that deletes it.

    Nobody searches for derived data, so it is not indexed.
    """
    namespace = address.scope.namespace(address.kind)
    return PutOp(namespace, address.key, value, index=False)


def derived_place(store: BaseStore) -> DerivedPlace:
    """Returns the place for derived data of the conversations in a store."""
    place: DerivedPlace | None = getattr(store, "derived", None)
    if place is None:
        return InStore(store)
    return place
