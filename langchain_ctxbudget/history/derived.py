"""Data that is derived from the messages of a conversation: where it is kept, and when it goes.

What is worked out from messages is kept, so that it is worked out once: segments with words,
vectors and costs; summaries; cuts; backgrounds. Each is a `DerivedKind`, a member of the list in
`derived_kinds.py`. Whatever changes, clears, hands over or erases a conversation asks every member.

A piece is got, put and forgotten at an `Address`. Its key is the digest of what it was made from
with the version of what made it (`key_of`). Where the key is a number instead, a head names the
digest of each piece and the version of all.

What is made again at no cost may be kept anywhere, see `stores/derived_places.py`.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from langgraph.store.base import BaseStore

from langchain_ctxbudget.flow import Flow
from langchain_ctxbudget.stores import Address, DerivedPlace, InStore, Scope, Value, derived_place


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
        return derived_place(store) if self.is_remade else InStore(store)

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
