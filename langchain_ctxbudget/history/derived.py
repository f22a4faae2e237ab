"""Data that is derived from the messages of a conversation: where it is kept, and when it goes.

What is worked out from messages is kept, so that it is worked out once: segments with words,
vectors and costs; summaries; cuts; backgrounds. Each is a `DerivedKind`, a member of the list in
`derived_kinds.py`. Whatever changes, clears, hands over or erases a conversation asks every member.

A piece is got, put and forgotten at an `Address`. Its key is the digest of what it was made from
with the version of what made it (`key_of`). Where the key is a number instead, a head names the
digest of each piece and the version of all.

What is made again at no cost may be kept anywhere: a store that has an attribute `derived` keeps it
at that `DerivedPlace`, any other store keeps it itself, beside the log.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol, TypeAlias, runtime_checkable

from langgraph.store.base import BaseStore, GetOp, Item, PutOp, Result

from langchain_ctxbudget.flow import Flow, batch
from langchain_ctxbudget.stores import ROOT, Scope, bulk, label, read_all

Value: TypeAlias = dict[str, Any]
"""A piece of derived data as plain JSON, in a form that every store can hold."""


class Address(NamedTuple):
    """Where a piece of derived data is kept."""

    scope: Scope
    kind: str
    """The name of the kind."""
    key: str


def key_of(digest: str, version: str) -> str:
    """Returns the key of a piece.

    Args:
        digest: That of all that the piece was made from; it has no hyphen.
        version: That of what made it: another one finds nothing, and makes its own.
    """
    return f"{digest}-{version}"


def digest_in(key: str) -> str:
    """Returns the digest in a key that `key_of` has made."""
    return key.partition("-")[0]


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
        items = yield from read_all(self._store, scope.namespace(kind))
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


@runtime_checkable
class KeepsDerivedElsewhere(Protocol):
    """A store that has another place for what is derived from the messages in it."""

    @property
    def derived(self) -> DerivedPlace:
        """The place."""


def place_of(store: BaseStore) -> DerivedPlace:
    """Returns where the derived data is kept of the conversations in a store."""
    if isinstance(store, KeepsDerivedElsewhere):
        return store.derived
    return InStore(store)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A change of stored messages: an edit, a removal, a move."""

    scope: Scope
    first: int
    """The position of the first message that changes."""
    records: Collection[str]
    """The keys of the records that change."""
    is_forgotten: bool
    """True if nothing may tell of the messages any more."""
    intact_spans: Collection[str]
    """Digests of the contents of the spans that end before the first message that changes."""


class DerivedKind(ABC):
    """One kind of data that is derived from the messages of a conversation.

    Example:
        >>> class Counts(DerivedKind):
        ...     name = "counts"
        ...
        ...     def forget_changed(self, store, change):
        ...         return self.clear(store, change.scope)
    """

    name: ClassVar[str]
    """The name of the kind, a label of its namespaces; none of the stored kinds has the same."""
    is_remade: ClassVar[bool] = True
    """True if what is missing is made again at no cost. Then it may be kept at another place than
    the store, is not exported, and does not count among the records of a user."""

    def place(self, store: BaseStore) -> DerivedPlace:
        """Returns where it is kept."""
        return place_of(store) if self.is_remade else InStore(store)

    def at(self, scope: Scope, key: str) -> Address:
        """Returns the address of a piece."""
        return Address(scope, self.name, key)

    def get(self, store: BaseStore, scope: Scope, keys: Sequence[str]) -> Flow[list[Value | None]]:
        """Returns the pieces with some keys; None where there is none."""
        return self.place(store).get([self.at(scope, key) for key in keys])

    def put(self, store: BaseStore, scope: Scope, pieces: Mapping[str, Value]) -> Flow[None]:
        """Keeps pieces, by their keys."""
        return self.place(store).put({self.at(scope, key): pieces[key] for key in pieces})

    def forget(self, store: BaseStore, scope: Scope, keys: Collection[str]) -> Flow[None]:
        """Deletes the pieces with some keys."""
        return self.place(store).forget([self.at(scope, key) for key in keys])

    def keys(self, store: BaseStore, scope: Scope) -> Flow[list[str]]:
        """Returns the keys of all pieces of a conversation."""
        return self.place(store).keys(scope, self.name)

    @abstractmethod
    def forget_changed(self, store: BaseStore, change: Change) -> Flow[None]:
        """Deletes the pieces that no longer hold once some messages have changed."""

    def handed_over(self, value: Value) -> Value | None:
        """Returns what the next owner of a conversation gets of a piece; None for nothing."""
        return value

    def clear(self, store: BaseStore, scope: Scope) -> Flow[None]:
        """Deletes all pieces of a conversation."""
        keys = yield from self.keys(store, scope)
        yield from self.forget(store, scope, keys)

    def hand_over(self, store: BaseStore, old: Scope, new: Scope) -> Flow[None]:
        """Makes the pieces of the next owner equal to those of the last one, which stay."""
        keys = yield from self.keys(store, old)
        values = yield from self.get(store, old, keys)
        handed: dict[str, Value] = {}
        for key, value in zip(keys, values, strict=True):
            next_value = None if value is None else self.handed_over(value)
            if next_value is not None:
                handed[key] = next_value

        left_over = yield from self.keys(store, new)
        yield from self.forget(store, new, [key for key in left_over if key not in handed])
        yield from self.put(store, new, handed)
