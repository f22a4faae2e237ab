"""How old the messages of conversations are, for a sweep that erases old ones.

The store tells when each record was written, and a message may name a time of its own. To read
every message for every sweep would cost too much. So a sweep keeps beside each conversation how far
it has read, and the age of the oldest message; the next one reads what was added since.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from langgraph.store.base import BaseStore, Item

from langchain_ctxbudget import stores
from langchain_ctxbudget.errors import StoreDataError
from langchain_ctxbudget.flow import Flow
from langchain_ctxbudget.history import log
from langchain_ctxbudget.history.derived import Change, DerivedKind
from langchain_ctxbudget.history.log import Heads, News
from langchain_ctxbudget.messages import time_of

AGES = "ages"


class AgesRecord(stores.Record):
    """How far the ages of a conversation's messages were read, and the oldest one."""

    lanes: dict[str, stores.LaneRecord]
    """The heads of the lanes up to which they were read."""
    oldest: datetime | None = None
    """The time of the oldest message, also of one that was archived; None where there is none."""
    written_at: datetime | None = None
    """When somebody wrote to the lanes last, where a sweep has written to them since; None where
    the store tells it."""


class Ages(DerivedKind):
    """The ages of a conversation's messages, in one record."""

    name = AGES

    def forget_changed(self, store: BaseStore, change: Change) -> Flow[None]:
        """Deletes them: the oldest message may be another one."""
        return self.forget(store, change.scope, [AGES])

    def handed_over(self, value: stores.Value) -> None:
        """Returns nothing: they are copies, with lanes of their own."""


_AGES = Ages()


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedConversation:
    """A conversation as a sweep finds it in the store."""

    scope: stores.Scope
    heads: Heads
    ages: AgesRecord | None
    """What the last sweep has noted of it; None where that is nothing."""
    lanes_written_at: datetime
    """When its lanes were written last, by a sweep or by somebody else."""

    @property
    def written_at(self) -> datetime:
        """When somebody wrote to it last, sweeps not counted."""
        ages = self.ages
        if ages is not None and ages.written_at is not None and ages.lanes == self.heads.lanes:
            return stores.utc(ages.written_at)
        return self.lanes_written_at


@dataclass(frozen=True, slots=True)
class Listing:
    """The conversations of a user, as a sweep finds them."""

    conversations: Sequence[ListedConversation] = ()
    """Sorted by id."""
    damaged: Mapping[str, StoreDataError] = field(default_factory=dict)
    """Why others cannot be swept, by their ids."""


def list_conversations(store: BaseStore, user_id: str) -> Flow[Listing]:
    """Lists the conversations of a user.

    One that is being deleted, of which only lanes are left, is not among them.
    """
    path = (stores.ROOT, stores.label(user_id), log.LANES)
    items = yield from stores.bulk.read_below(store, path)
    by_namespace: dict[tuple[str, ...], list[Item]] = {}
    for item in items:
        by_namespace.setdefault(item.namespace, []).append(item)

    heads: dict[stores.Scope, Heads] = {}
    written_at: dict[stores.Scope, datetime] = {}
    damaged: dict[str, StoreDataError] = {}
    for namespace, lane_items in by_namespace.items():
        joined = next((item for item in lane_items if item.key == log.JOINED), None)
        if joined is None:
            continue
        try:
            scope = stores.Scope(user_id, log.conversation_of(joined))
            heads[scope] = log.heads_in(lane_items)
        except StoreDataError as error:
            damaged[stores.unlabelled(namespace[-1])] = error
        else:
            written_at[scope] = max(stores.utc(item.updated_at) for item in lane_items)

    scopes = sorted(heads, key=lambda scope: scope.conversation_id)
    noted = yield from _read_ages(store, scopes)
    conversations = [
        ListedConversation(
            scope=scope, heads=heads[scope], ages=ages, lanes_written_at=written_at[scope]
        )
        for scope, ages in zip(scopes, noted, strict=True)
    ]
    return Listing(conversations, damaged)


def times_of(news: News) -> dict[str, datetime]:
    """Returns the times from which messages count as old, by the keys of their records.

    It is the time that the message names, or the one at which it was stored, if that is earlier.

    Raises:
        StoreDataError: a message cannot be read.
    """
    changed = [record for record in news.changed.values() if record is not None]
    times: dict[str, datetime] = {}
    for record in (*news.messages, *changed):
        key = record.place.key
        said_at = time_of(record.to_message())
        stored_at = news.stored_at[key]
        times[key] = stored_at if said_at is None else min(said_at, stored_at)
    return times


def _read_ages(store: BaseStore, scopes: Sequence[stores.Scope]) -> Flow[list[AgesRecord | None]]:
    """Returns what earlier sweeps have noted of conversations; None where that is nothing."""
    addresses = [_AGES.at(scope, AGES) for scope in scopes]
    values = yield from _AGES.place(store).get(addresses)
    return [None if value is None else _record_in(value) for value in values]


def _record_in(value: stores.Value) -> AgesRecord | None:
    """Returns stored ages; None where they cannot be read: they are read anew."""
    try:
        return AgesRecord.read(value, "the ages")
    except StoreDataError:
        return None


def brought_up_to_date(
    store: BaseStore, scope: stores.Scope, heads: Heads, known: AgesRecord | None
) -> Flow[AgesRecord]:
    """Returns the ages of a conversation's messages; only what was added since is read.

    Args:
        store: The store.
        scope: The conversation.
        heads: The heads of its lanes.
        known: The ages that were known at an earlier time.

    Raises:
        StoreDataError: a message cannot be read.
    """
    before = Heads()
    oldest: datetime | None = None
    if known is not None and heads.goes_on(Heads(None, known.lanes)):
        if known.lanes == heads.lanes:
            return known
        before = Heads(None, known.lanes)
        oldest = known.oldest
    news = yield from log.read_new(store, scope, before, heads)
    return AgesRecord(lanes=dict(heads.lanes), oldest=oldest_of(times_of(news).values(), oldest))


def oldest_of(times: Iterable[datetime], known: datetime | None = None) -> datetime | None:
    """Returns the earliest of some times, and of one that is known; None where there is none."""
    known_times = [] if known is None else [known]
    return min([*known_times, *times], default=None)


def note(store: BaseStore, scope: stores.Scope, ages: AgesRecord) -> Flow[None]:
    """Keeps the ages of a conversation's messages for the next sweep."""
    return _AGES.put(store, scope, {AGES: ages.to_value()})
