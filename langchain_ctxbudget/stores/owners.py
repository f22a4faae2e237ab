"""Whose a thread is: the user who ran it first, as a record of the thread itself.

The messages of a run are the thread's, whoever runs it. So before they are written into a user's
store, the thread must be that user's. Its record lies outside of all users, under a digest of the
thread's id, and has a digest of the user's: neither id can be read from it. Every owner keeps a
list of these digests, by which clearing and erasing find them.

`put` is last-writer-wins on every backend, so whoever runs a new thread first writes a claim, under
a key that nobody else has, and then looks: who sees no other user's claim and no owner becomes the
owner. Of two who claim it at the same moment, at least one sees the other, and withdraws, or waits
until the other has withdrawn. The owner's claim stays, so that whoever comes later sees it,
whatever else is read at which moment. So at most one user ever becomes the owner.
"""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from langgraph.store.base import BaseStore, GetOp, Item, PutOp, SearchItem, SearchOp

from langchain_ctxbudget.errors import StoreDataError, StoreError
from langchain_ctxbudget.flow import Call, Flow, batch
from langchain_ctxbudget.messages import digest
from langchain_ctxbudget.stores import bulk
from langchain_ctxbudget.stores.base import ROOT, Record, Scope, label, new_token, put_of

THREADS = "threads"
"""The kind of records that list, below a conversation's labels, the threads that it copies."""
OUTSIDE_OF_USERS = "shared"
"""The label of what is no user's, such as documents for everybody."""
OWNER = "owner"
"""The key of the record of a thread's owner."""
CLAIMS = "claims"
"""The label of the claims of a thread."""
GUESTS = "guests"
"""The kind of records that tell which messages of a thread are not its owner's."""
MOST_LOOKS = 50
"""How often a user who claims a thread looks whether another one withdraws."""
SECONDS_BETWEEN_LOOKS = 0.01


class OwnerRecord(Record):
    """The owner of a thread."""

    owner: str
    """A digest of thread and user, so that nobody can tell that two threads are of one user."""
    next_owner: str = ""
    """Whom it is being handed over to: the records of its conversations are being copied."""
    last_owner: str = ""
    """Who has just handed it over: their copies are being deleted."""


class ClaimRecord(Record):
    """That a user wants to be the owner of a thread, or has become it."""

    owner: str
    """The same digest as in the record of an owner."""


class NoteRecord(Record):
    """That a message of a thread was said by another user than the owner."""

    user: str
    """A digest of thread and user, as in the record of an owner."""


class ThreadRecord(Record):
    """A thread that a conversation is the copy of."""

    thread: str
    """The digest of the thread's id."""


# Digests and places


def thread_key(thread_id: str) -> str:
    """Returns the digest of a thread's id, under which its record is kept."""
    return digest(thread_id).hex()


def owner_mark(key: str, user_id: str) -> str:
    """Returns the digest that stands for a user in the record of a thread."""
    return mark_of(key, label(user_id))


def mark_of(key: str, text: str) -> str:
    """Returns the digest that stands for a text, such as a user's label, in records of a thread."""
    return digest(f"{key} {text}").hex()


def owner_place(key: str) -> GetOp:
    """Returns the place of a thread's record, beside all users, whose labels end with a `~`."""
    return GetOp((ROOT, OUTSIDE_OF_USERS, THREADS, key), OWNER)


def notes_of(key: str) -> tuple[str, ...]:
    """Returns the namespace of the notes on which messages of a thread are not its owner's."""
    return (ROOT, OUTSIDE_OF_USERS, GUESTS, key)


def _claims_of(key: str) -> tuple[str, ...]:
    return (*owner_place(key).namespace, CLAIMS)


# Reading


def read_owner(store: BaseStore, key: str) -> Flow[OwnerRecord | None]:
    """Reads whose a thread is; None where it is nobody's yet."""
    [item] = yield from batch(store, [owner_place(key)])
    return OwnerRecord.of_item(item)


def belongs_to_another(store: BaseStore, user_id: str, thread_id: str) -> Flow[bool]:
    """Returns whether a thread is another user's; one of nobody stays so."""
    key = thread_key(thread_id)
    record = yield from read_owner(store, key)
    return record is not None and record.owner != owner_mark(key, user_id)


def threads_of(store: BaseStore, scope: Scope) -> Flow[list[str]]:
    """Returns the keys of the threads that a conversation is listed to be the copy of."""
    items = yield from bulk.read_all(store, scope.namespace(THREADS))
    return [item.key for item in items]


# Claiming


@dataclass(frozen=True)
class _Ownership:
    """What is stored of a thread: its owner, and who claims it."""

    owner: OwnerRecord | None
    claimants: dict[str, str]
    """The mark of the user of each claim, by its key; empty where a claim cannot be read."""

    def is_of(self, mark: str) -> bool:
        """Returns whether a user is the owner."""
        return self.owner is not None and self.owner.owner == mark

    def claims_of_others(self, mark: str) -> list[str]:
        """Returns the keys of the claims of other users."""
        return [key for key, claimant in self.claimants.items() if claimant != mark]

    def has_claim_of(self, mark: str) -> bool:
        """Returns whether a user claims it."""
        return mark in self.claimants.values()


def claim(store: BaseStore, scope: Scope, thread_id: str) -> Flow[bool]:
    """Makes a thread the user's where it is nobody's, and returns whether it is the user's.

    Raises:
        StoreError: another user has begun to claim it, and has not finished.
    """
    key = thread_key(thread_id)
    mark = owner_mark(key, scope.user_id)
    list_place = GetOp(scope.namespace(THREADS), key)
    items, list_item = yield from batch(store, [_search(key), list_place])
    ownership = _ownership(key, items)
    if ownership.is_of(mark):
        if list_item is None:
            yield from batch(store, [put_of(list_place, ThreadRecord(thread=key))])
        return True
    if ownership.owner is not None:
        return False
    if ownership.claims_of_others(mark) and not ownership.has_claim_of(mark):
        return False  # they came first, even if they have not finished
    return (yield from _claim_new(store, key, mark, list_place))


def _claim_new(store: BaseStore, key: str, mark: str, list_place: GetOp) -> Flow[bool]:
    """Claims a thread that has no owner, unless another user claims it at the same moment."""
    claim_place = GetOp(_claims_of(key), new_token())
    # It is listed before it has an owner: wherever this ends, clearing and erasing find the record.
    listing = put_of(list_place, ThreadRecord(thread=key))
    yield from batch(store, [listing, put_of(claim_place, ClaimRecord(owner=mark))])
    ownership = yield from _wait_for_others(store, key, mark, claim_place)

    if ownership.owner is None and not ownership.claims_of_others(mark):
        yield from batch(store, [put_of(owner_place(key), OwnerRecord(owner=mark))])
        return True
    if ownership.is_of(mark):  # by another process of the same user
        yield from batch(store, [put_of(claim_place, None)])
        return True
    yield from batch(store, [put_of(claim_place, None), put_of(list_place, None)])
    if ownership.owner is None:
        raise StoreError(
            "another user has begun to store this thread, and has not finished; the next turn "
            "tries again"
        )
    return False


def _wait_for_others(store: BaseStore, key: str, mark: str, claim_place: GetOp) -> Flow[_Ownership]:
    """Waits until all other users have withdrawn, or until the user's own claim has to be.

    The one with the lowest key waits, the others withdraw.
    """
    ownership = yield from _read_ownership(store, key)
    for _ in range(MOST_LOOKS):
        others = ownership.claims_of_others(mark)
        if ownership.owner is not None or not others or min(others) < claim_place.key:
            break
        yield Call(
            lambda: time.sleep(SECONDS_BETWEEN_LOOKS), lambda: asyncio.sleep(SECONDS_BETWEEN_LOOKS)
        )
        ownership = yield from _read_ownership(store, key)
    return ownership


def _search(key: str) -> SearchOp:
    """Returns the search for all that is stored of a thread's owner."""
    return SearchOp(owner_place(key).namespace, limit=bulk.PAGE)


def _read_ownership(store: BaseStore, key: str) -> Flow[_Ownership]:
    [items] = yield from batch(store, [_search(key)])
    return _ownership(key, items)


def _ownership(key: str, items: object) -> _Ownership:
    """Reads what a search has found of a thread; some stores find more than was asked for."""
    place = owner_place(key)
    owner: Item | None = None
    claimants: dict[str, str] = {}
    for item in cast("list[SearchItem]", items):
        if item.namespace == _claims_of(key):
            claimants[item.key] = _claimant(item)
        elif item.namespace == place.namespace and item.key == place.key:
            owner = item
    return _Ownership(owner=OwnerRecord.of_item(owner), claimants=claimants)


def _claimant(item: Item) -> str:
    """Returns the mark of the user of a claim; empty where the claim cannot be read."""
    try:
        return ClaimRecord.read(item.value, item.key).owner
    except StoreDataError:
        return ""


# Releasing


def release(store: BaseStore, scope: Scope) -> Flow[None]:
    """Makes the threads of a conversation nobody's.

    Those that the user has other conversations of stay.
    """
    keys = yield from threads_of(store, scope)
    if not keys:
        return
    items = yield from bulk.read_below(store, (ROOT, label(scope.user_id), THREADS))
    kept_keys = {item.key for item in items if item.namespace != scope.namespace(THREADS)}
    released_keys = [key for key in keys if key not in kept_keys]
    yield from _delete_owned(store, scope.user_id, released_keys)


def release_all(store: BaseStore, user_id: str) -> Flow[int]:
    """Makes all threads of a user nobody's; returns how many there were."""
    items = yield from bulk.read_below(store, (ROOT, label(user_id), THREADS))
    keys = sorted({item.key for item in items})
    return (yield from _delete_owned(store, user_id, keys))


def _delete_owned(store: BaseStore, user_id: str, keys: Sequence[str]) -> Flow[int]:
    """Deletes the records of those threads that are a user's, with their notes, and all claims.

    Returns how many threads were the user's.
    """
    owned_keys = yield from _owned_keys(store, user_id, keys)
    deletions = [put_of(owner_place(key), None) for key in owned_keys]
    deletions += yield from claim_deletions(store, user_id, keys)
    for key in owned_keys:
        notes = yield from bulk.read_all(store, notes_of(key))
        deletions += bulk.deletions_of(notes)
    yield from bulk.write(store, deletions)
    return len(owned_keys)


def _owned_keys(store: BaseStore, user_id: str, keys: Sequence[str]) -> Flow[list[str]]:
    """Returns the keys of those threads that are a user's, or whose record is damaged."""
    owned_keys: list[str] = []
    for chunk in bulk.chunks(keys):
        items = yield from batch(store, [owner_place(key) for key in chunk])
        for key, item in zip(chunk, items, strict=True):
            if isinstance(item, Item) and _is_deletable(item, owner_mark(key, user_id)):
                owned_keys.append(key)
    return owned_keys


def _is_deletable(item: Item, mark: str) -> bool:
    """Returns whether the record of an owner is a user's.

    A damaged one counts as that of whoever lists it.
    """
    try:
        record = OwnerRecord.of_item(item)
    except StoreDataError:
        return True
    return record is not None and record.owner == mark


def claim_deletions(store: BaseStore, user_id: str, keys: Sequence[str]) -> Flow[list[PutOp]]:
    """Returns the deletions of a user's claims of threads, and of those that cannot be read."""
    deletions: list[PutOp] = []
    for chunk in bulk.chunks(keys):
        searches = [SearchOp(_claims_of(key), limit=bulk.PAGE) for key in chunk]
        results = yield from batch(store, searches)
        for key, items in zip(chunk, results, strict=True):
            mark = owner_mark(key, user_id)
            below = cast("list[SearchItem]", items)  # some stores find more than was asked for
            claims = [item for item in below if item.namespace == _claims_of(key)]
            deletions += bulk.deletions_of(item for item in claims if _claimant(item) in ("", mark))
    return deletions
