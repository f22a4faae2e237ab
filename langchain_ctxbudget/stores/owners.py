"""Whose a thread is: the user who ran it first, as a record of the thread itself.

The messages of a run are the thread's, whoever runs it. So before they are written into a user's store, the thread must
be that user's. Its record lies outside of all users, under a digest of the thread's id, and has a digest of the user's:
neither id can be read from it. Every owner keeps a list of these digests, by which clearing and erasing find them.

`put` is last-writer-wins on every backend, so two users who run a new thread at the same moment first claim it, each
under a key of their own, and then look: who sees no other claim, and after that no owner, becomes the owner. Of two
who see each other, one withdraws and the other looks again. So at most one of them ever becomes the owner.
"""

import asyncio
import time
from datetime import timedelta

from langgraph.store.base import BaseStore, GetOp, PutOp
from langchain_ctxbudget.errors import StoreError
from langchain_ctxbudget.flow import Call, Flow, batch
from langchain_ctxbudget.messages import digest
from langchain_ctxbudget.stores import bulk
from langchain_ctxbudget.stores.base import ROOT, Record, Scope, label, utc, utc_now, written

THREADS = "threads"
"""The kind of records that list, below a conversation's labels, the threads that it is the copy of."""
OUTSIDE_OF_USERS = "shared"
"""The label of what is no user's, as documents for everybody."""
MOST_LOOKS = 50
"""How often a user who claims a thread looks whether another one withdraws."""
SECONDS_BETWEEN_LOOKS = 0.01
LONGEST_CLAIM = timedelta(minutes=10)
"""A claim that is older is of a process that has ended in the middle of it."""
_OWNER = "owner"
_CLAIMS = "claims"
_DIGEST_BYTES = 16


class OwnerRecord(Record):
    """The owner of a thread."""

    owner: str
    """A digest of thread and user, so that nobody can tell that two threads are of one user."""
    next_owner: str = ""
    """Whom it is being handed over to: the records of its conversations are being copied."""
    last_owner: str = ""
    """Who has just handed it over: their copies are being deleted."""


class ThreadRecord(Record):
    """A thread that a conversation is the copy of."""

    thread: str


def thread_key(thread_id: str) -> str:
    """Returns the digest of a thread's id, under which its record is kept."""
    return digest(thread_id, _DIGEST_BYTES).hex()


def owner_mark(key: str, user_id: str) -> str:
    """Returns what stands for a user in the record of a thread."""
    return digest(f"{key} {label(user_id)}", _DIGEST_BYTES).hex()


def owner_place(key: str) -> GetOp:
    """Returns where the record of a thread is, beside all users: their labels have a `~` at the end."""
    return GetOp((ROOT, OUTSIDE_OF_USERS, THREADS, key), _OWNER)


def read_owner(store: BaseStore, key: str) -> Flow[OwnerRecord | None]:
    """Reads whose a thread is; None where it is nobody's yet."""
    [found] = yield from batch(store, [owner_place(key)])
    return OwnerRecord.found(found)


def belongs_to_another(store: BaseStore, user_id: str, thread_id: str) -> Flow[bool]:
    """Returns whether a thread is another user's; one of nobody stays so."""
    key = thread_key(thread_id)
    record = yield from read_owner(store, key)
    return record is not None and record.owner != owner_mark(key, user_id)


def claim(store: BaseStore, scope: Scope, thread_id: str) -> Flow[bool]:
    """Returns whether a thread is the user's, whose it becomes where it is nobody's yet."""
    key = thread_key(thread_id)
    mark = owner_mark(key, scope.user_id)
    listed_at = GetOp(scope.namespace(THREADS), key)
    found, listed = yield from batch(store, [owner_place(key), listed_at])
    record = OwnerRecord.found(found)
    if record is not None:
        is_owner = record.owner == mark
        if is_owner and listed is None:
            yield from batch(store, [written(listed_at, ThreadRecord(thread=key))])
        return is_owner
    return (yield from _claim_new(store, key, mark, listed_at))


def _claim_new(store: BaseStore, key: str, mark: str, listed_at: GetOp) -> Flow[bool]:
    """Makes a user the owner of a thread that has none, unless another user comes first."""
    claims = (*owner_place(key).namespace, _CLAIMS)
    own_claim = GetOp(claims, mark)
    # Listed first: wherever this ends, an owner's record can be found by its owner's labels.
    yield from batch(store, [written(listed_at, ThreadRecord(thread=key))])
    yield from batch(store, [written(own_claim, ThreadRecord(thread=key))])
    record, others = yield from _look(store, key, claims, mark)
    for _ in range(MOST_LOOKS):
        if record is not None or not others or min(others) < mark:
            break
        yield Call(lambda: time.sleep(SECONDS_BETWEEN_LOOKS), lambda: asyncio.sleep(SECONDS_BETWEEN_LOOKS))
        record, others = yield from _look(store, key, claims, mark)
    if record is None and not others:
        record = OwnerRecord(owner=mark)
        yield from batch(store, [written(owner_place(key), record)])
    undone = [written(own_claim, None)]
    is_owner = record is not None and record.owner == mark
    if not is_owner:
        undone.append(written(listed_at, None))
    yield from batch(store, undone)
    if record is None and min(others) > mark:
        raise StoreError("another user has begun to store this thread, and has not finished; the next turn tries again")
    return is_owner


def _look(store: BaseStore, key: str, claims: tuple[str, ...], mark: str) -> Flow[tuple[OwnerRecord | None, list[str]]]:
    """Returns the owner of a thread, and who else claims it; the claims are read first, as an owner withdraws last."""
    now = utc_now()
    others: list[str] = []
    for item in (yield from bulk.read_all(store, claims)):
        is_alive = now - utc(item.updated_at) < LONGEST_CLAIM
        if item.key != mark and is_alive:
            others.append(item.key)
    record = yield from read_owner(store, key)
    return record, others


def threads_of(store: BaseStore, scope: Scope) -> Flow[list[str]]:
    """Returns the keys of the threads that a conversation is listed to be the copy of."""
    items = yield from bulk.read_all(store, scope.namespace(THREADS))
    return [item.key for item in items]


def release(store: BaseStore, scope: Scope) -> Flow[None]:
    """Makes the threads of a conversation nobody's; those that the user has other conversations of stay."""
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
    """Deletes the records of those threads that are a user's, and what is left of the user's claims."""
    deletions: list[PutOp] = []
    count = 0
    for first in range(0, len(keys), bulk.CHUNK):
        some = keys[first : first + bulk.CHUNK]
        found = yield from batch(store, [owner_place(key) for key in some])
        for key, item in zip(some, found, strict=True):
            mark = owner_mark(key, user_id)
            place = owner_place(key)
            record = OwnerRecord.found(item)
            if record is not None and record.owner == mark:
                deletions.append(written(place, None))
                count += 1
            deletions.append(PutOp((*place.namespace, _CLAIMS), mark, None))
    yield from bulk.write(store, deletions)
    return count
