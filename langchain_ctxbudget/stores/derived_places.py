"""Where data is kept that is derived from the messages of conversations.

A store keeps it itself, beside the log, unless it has an attribute `derived`: then what can be made
again at no cost is kept at that `DerivedPlace`. What is derived, and when it goes, is said in
`history/derived.py`.
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

    Everything in it can be made again: a piece that is lost or damaged costs time, never words.
    """

    def get(self, addresses: Sequence[Address]) -> Flow[list[Value | None]]:
        """Returns the pieces at some addresses; None where there is none."""

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
            items = yield from batch(self._store, [_place(address) for address in chunk])
            values += map(_value_of, items)
        return values

    def put(self, pieces: Mapping[Address, Value]) -> Flow[None]:
        """Keeps pieces, in place of those that are there."""
        yield from bulk.write(
            self._store, [_put(address, value) for address, value in pieces.items()]
        )

    def forget(self, addresses: Collection[Address]) -> Flow[None]:
        """Deletes pieces; what is not there stays so."""
        yield from bulk.write(self._store, [_put(address, None) for address in addresses])

    def keys(self, scope: Scope, kind: str) -> Flow[list[str]]:
        """Returns the keys of all pieces of a kind that a conversation has."""
        items = yield from bulk.read_all(self._store, scope.namespace(kind))
        return [item.key for item in items]

    def erase(self, user_id: str, kind: str) -> Flow[int]:
        """Deletes all pieces of a kind that a user has, and returns how many there were."""
        items = yield from bulk.read_below(self._store, (ROOT, label(user_id), kind))
        yield from bulk.write(self._store, bulk.deletions_of(items))
        return len(items)


def _value_of(item: Result) -> Value | None:
    return item.value if isinstance(item, Item) else None


def _place(address: Address) -> GetOp:
    return GetOp(address.scope.namespace(address.kind), address.key)


def _put(address: Address, value: Value | None) -> PutOp:
    return PutOp(address.scope.namespace(address.kind), address.key, value, index=False)


def derived_place(store: BaseStore) -> DerivedPlace:
    """Returns where the derived data is kept of the conversations in a store."""
    place: DerivedPlace | None = getattr(store, "derived", None)
    return InStore(store) if place is None else place
