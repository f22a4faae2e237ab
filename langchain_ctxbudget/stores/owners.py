"""Whose a thread is: the user who ran it first, as a record of the thread itself.

The messages of a run are the thread's, whoever runs it. So before they are written into a user's
store, the thread must be that user's. Its record lies outside of all users, under a digest of the
thread's id, and has a digest of the user's: neither id can be read from it. Every owner keeps a
list of these digests, by which clearing and erasing find them.

`put` is last-writer-wins on every backend, so whoever runs a new thread first writes a claim, under a key that nobody
else has, and then looks: who sees no other user's claim and no owner becomes the owner. Of two who claim it at the same
moment, at least one sees the other, and withdraws, or waits until the other has withdrawn. The owner's claim stays, so
that whoever comes later sees it, whatever else is read at which moment. So at most one user ever becomes the owner.
"""

import asyncio
import time
from collections.abc import Sequence
from typing import NamedTuple, cast

from langgraph.store.base import BaseStore, GetOp, Item, PutOp, SearchItem, SearchOp

from langchain_ctxbudget.errors import StoreDataError, StoreError
from langchain_ctxbudget.flow import Call, Flow, batch
from langchain_ctxbudget.messages import digest
from langchain_ctxbudget.stores import bulk
from langchain_ctxbudget.stores.base import ROOT, Record, Scope, label, new_token, written

THREADS = "threads"
"""The kind of records that list, below a conversation's labels, the threads that it is the copy
of."""
OUTSIDE_OF_USERS = "shared"
"""The label of what is no user's, as documents for everybody."""
MOST_LOOKS = 50
"""How often a user who claims a thread looks whether another one withdraws."""
SECONDS_BETWEEN_LOOKS = 0.01
OWNER = "owner"
"""The key of the record of a thread's owner."""
CLAIMS = "claims"
GUESTS = "guests"
"""The kind of records that tell which messages of a thread are not its owner's."""


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


def thread_key(thread_id: str) -> str:
    """Returns the digest of a thread's id, under which its record is kept."""
    return digest(thread_id).hex()


def owner_mark(key: str, user_id: str) -> str:
    """Returns what stands for a user in the record of a thread."""
    return mark_of(key, label(user_id))


def mark_of(key: str, text: str) -> str:
    """Returns what stands for a user's label, or for the id of a message, in records of a thread."""
    return digest(f"{key} {text}").hex()


def notes_of(key: str) -> tuple[str, ...]:
    """Returns where it is noted which messages of a thread are not its owner's."""
    return (ROOT, OUTSIDE_OF_USERS, GUESTS, key)


def owner_place(key: str) -> GetOp:
    """Returns where the record of a thread is, beside all users.

    Their labels have a `~` at the end.
    """
    return GetOp((ROOT, OUTSIDE_OF_USERS, THREADS, key), OWNER)


def read_owner(store: BaseStore, key: str) -> Flow[OwnerRecord | None]:
    """Reads whose a thread is; None where it is nobody's yet."""
    [found] = yield from batch(store, [owner_place(key)])
    return OwnerRecord.found(found)


def belongs_to_another(store: BaseStore, user_id: str, thread_id: str) -> Flow[bool]:
    """Returns whether a thread is another user's; one of nobody stays so."""
    key = thread_key(thread_id)
    record = yield from read_owner(store, key)
    return record is not None and record.owner != owner_mark(key, user_id)


class Seen(NamedTuple):
    """What is stored of a thread: its owner, and who claims it."""

    owner: OwnerRecord | None
    claims: list[tuple[str, str]]
    """The key of each claim, and the mark of its user; that is empty where a claim cannot be
    read."""

    def others(self, mark: str) -> list[str]:
        """Returns the keys of the claims of other users."""
        return [key for key, owner in self.claims if owner != mark]

    def has_claim_of(self, mark: str) -> bool:
        """Returns whether a user claims it."""
        return any(owner == mark for _, owner in self.claims)


def claim(store: BaseStore, scope: Scope, thread_id: str) -> Flow[bool]:
    """Returns whether a thread is the user's, whose it becomes where it is nobody's yet."""
    key = thread_key(thread_id)
    mark = owner_mark(key, scope.user_id)
    listed_at = GetOp(scope.namespace(THREADS), key)
    found, listed = yield from batch(store, [_search(key), listed_at])
    seen = _seen(key, found)
    if seen.owner is not None:
        is_owner = seen.owner.owner == mark
        if is_owner and listed is None:
            yield from batch(store, [written(listed_at, ThreadRecord(thread=key))])
        return is_owner
    if seen.others(mark) and not seen.has_claim_of(
        mark
    ):  # they came first, even if they have not finished
        return False
    return (yield from _claim_new(store, key, mark, listed_at))


def _claim_new(store: BaseStore, key: str, mark: str, listed_at: GetOp) -> Flow[bool]:
    """Makes a user the owner of a thread that has none, unless another user claims it at the same moment."""
    own = GetOp(_claims_of(key), new_token())
    # It is listed before it has an owner: wherever this ends, clearing and erasing find the record.
    yield from batch(
        store, [written(listed_at, ThreadRecord(thread=key)), written(own, ClaimRecord(owner=mark))]
    )
    seen = yield from _look(store, key)
    for _ in range(MOST_LOOKS):
        others = seen.others(mark)
        if seen.owner is not None or not others or min(others) < own.key:
            break
        yield Call(
            lambda: time.sleep(SECONDS_BETWEEN_LOOKS), lambda: asyncio.sleep(SECONDS_BETWEEN_LOOKS)
        )
        seen = yield from _look(store, key)
    if seen.owner is None and not seen.others(mark):
        yield from batch(store, [written(owner_place(key), OwnerRecord(owner=mark))])
        return True
    if seen.owner is not None and seen.owner.owner == mark:  # by another process of the same user
        yield from batch(store, [written(own, None)])
        return True
    yield from batch(store, [written(own, None), written(listed_at, None)])
    if seen.owner is None:
        raise StoreError(
            "another user has begun to store this thread, and has not finished; the next turn tries again"
        )
    return False


def _claims_of(key: str) -> tuple[str, ...]:
    return (*owner_place(key).namespace, CLAIMS)


def _search(key: str) -> SearchOp:
    """Returns the search for all that is stored of a thread's owner."""
    return SearchOp(owner_place(key).namespace, limit=bulk.PAGE)


def _look(store: BaseStore, key: str) -> Flow[Seen]:
    [found] = yield from batch(store, [_search(key)])
    return _seen(key, found)


def _seen(key: str, found: object) -> Seen:
    """Reads what was found of a thread; some stores find more than was asked for."""
    place = owner_place(key)
    owner: Item | None = None
    claims: list[tuple[str, str]] = []
    for item in cast("list[SearchItem]", found):
        if item.namespace == _claims_of(key):
            claims.append((item.key, _claimant(item)))
        elif item.namespace == place.namespace and item.key == place.key:
            owner = item
    return Seen(OwnerRecord.found(owner), claims)


def _claimant(item: Item) -> str:
    try:
        return ClaimRecord.read(item.value, item.key).owner
    except StoreDataError:  # whose it is cannot be known
        return ""


def threads_of(store: BaseStore, scope: Scope) -> Flow[list[str]]:
    """Returns the keys of the threads that a conversation is listed to be the copy of."""
    items = yield from bulk.read_all(store, scope.namespace(THREADS))
    return [item.key for item in items]


def release(store: BaseStore, scope: Scope) -> Flow[None]:
    """Makes the threads of a conversation nobody's.

    Those that the user has other conversations of stay.
    """
    keys = yield from threads_of(store, scope)
    if not keys:
        return
    listed = yield from bulk.read_below(store, (ROOT, label(scope.user_id), THREADS))
    of_others = {item.key for item in listed if item.namespace != scope.namespace(THREADS)}
    yield from _delete_owned(store, scope.user_id, [key for key in keys if key not in of_others])


def release_all(store: BaseStore, user_id: str) -> Flow[int]:
    """Makes all threads of a user nobody's; returns how many there were."""
    listed = yield from bulk.read_below(store, (ROOT, label(user_id), THREADS))
    return (yield from _delete_owned(store, user_id, sorted({item.key for item in listed})))


def _delete_owned(store: BaseStore, user_id: str, keys: list[str]) -> Flow[int]:
    """Deletes the records of those threads that are a user's, and the user's claims."""
    deletions: list[PutOp] = []
    owned: list[str] = []
    for first in range(0, len(keys), bulk.CHUNK):
        some = keys[first : first + bulk.CHUNK]
        found = yield from batch(store, [owner_place(key) for key in some])
        for key, item in zip(some, found, strict=True):
            if isinstance(item, Item) and _is_deletable(item, owner_mark(key, user_id)):
                deletions.append(written(owner_place(key), None))
                owned.append(key)
    deletions += yield from claim_deletions(store, user_id, keys)
    for key in owned:
        notes = yield from bulk.read_all(store, notes_of(key))
        deletions += [PutOp(item.namespace, item.key, None) for item in notes]
    yield from bulk.write(store, deletions)
    return len(owned)


def _is_deletable(item: Item, mark: str) -> bool:
    """Returns whether the record of an owner is a user's.

    A damaged one counts as that of whoever lists it.
    """
    try:
        record = OwnerRecord.found(item)
    except StoreDataError:
        return True
    return record is not None and record.owner == mark


def claim_deletions(store: BaseStore, user_id: str, keys: Sequence[str]) -> Flow[list[PutOp]]:
    """Returns the deletions of a user's claims of some threads, and of those that cannot be read."""
    deletions: list[PutOp] = []
    for first in range(0, len(keys), bulk.CHUNK):
        some = keys[first : first + bulk.CHUNK]
        found = yield from batch(
            store, [SearchOp(_claims_of(key), limit=bulk.PAGE) for key in some]
        )
        for key, items in zip(some, found, strict=True):
            own = ("", owner_mark(key, user_id))
            claims = [
                item
                for item in cast("list[SearchItem]", items)
                if item.namespace == _claims_of(key)
            ]
            deletions += [
                PutOp(item.namespace, item.key, None) for item in claims if _claimant(item) in own
            ]
    return deletions
