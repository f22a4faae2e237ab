"""Bookkeeping: the latest reports, snapshots of them, and the usage of models."""

import atexit
import json
import os
import re
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import cache, partial
from itertools import count
from typing import Any, NamedTuple, TypeAlias

from langchain_core.messages import BaseMessage
from langgraph.store.base import BaseStore, GetOp, Item

from langchain_ctxbudget import history, stores
from langchain_ctxbudget.budget import (
    HEALTHY,
    Standing,
    Tier,
    UsageLimits,
    relaxed,
    standing,
    tier_of,
)
from langchain_ctxbudget.errors import (
    BlockedLoopError,
    InputError,
    StoreDataError,
    checks_names,
    require_count,
)
from langchain_ctxbudget.flow import Flow, batch, drive, locked, running_loop, twins, with_fallback
from langchain_ctxbudget.knowledge import known
from langchain_ctxbudget.messages import digest
from langchain_ctxbudget.prompt import Prompt, merged
from langchain_ctxbudget.report import ContextReport, UsageState
from langchain_ctxbudget.settings import ContextSettings
from langchain_ctxbudget.tokens import Price, Usage, load_prices, total, usage_of
from langchain_ctxbudget.worker import PATIENCE_SECONDS, Worker, new_mutex

Prices: TypeAlias = Mapping[str, Price | Mapping[str, Any]]
MOST_REPORTS = 64
Account = Callable[[], ContextReport]
SNAPSHOTS = "reports"
NEARLY_FULL_SHARE = 0.98
"""A prompt that fills more of its budget than this counts as exhausted."""
_numbers = count(1)
_MONTH = re.compile(r"[0-9]{4}-(0[1-9]|1[0-2])")
Lanes: TypeAlias = tuple[str, ...]
"""A namespace with one item per lane: that of a conversation, or of a user's month."""


class _Noted(NamedTuple):
    scope: stores.Scope
    report: Account
    key: Callable[[], bytes]
    books: "Bookkeeping"
    prompt: Prompt | None


class RecentPrompts:
    """The reports of the latest prompts of a pipeline, found again by their words.

    Shared by threads and tasks.

    Only the last one keeps its candidates, which are large.
    """

    def __init__(self) -> None:
        self.last: _Noted | None = None
        self._noted: deque[_Noted] = deque(maxlen=MOST_REPORTS)
        self._mutex = new_mutex()

    def note(
        self, prompt: Prompt, report: Account, scope: stores.Scope, books: "Bookkeeping"
    ) -> None:
        """Remembers a prompt, and the books of its store."""
        noted = _Noted(
            scope, report, cache(partial(_digest, prompt.changes.last.messages)), books, prompt
        )
        with self._mutex:
            self.last = noted
            self._noted.append(noted._replace(prompt=None))

    def find(self, messages: Sequence[BaseMessage]) -> ContextReport | None:
        """Returns the report of a prompt, of several with the same words the latest.

        None where it is forgotten.
        """
        key = _digest(messages)
        return next((noted.report() for noted in self._newest() if noted.key() == key), None)

    def last_of(self, user_id: str, conversation_id: str) -> _Noted | None:
        """Returns the newest prompt of a conversation; None where there is none."""
        ids = user_id, conversation_id
        return next(
            (
                one
                for one in self._newest()
                if (one.scope.user_id, one.scope.conversation_id) == ids
            ),
            None,
        )

    def _newest(self) -> list[_Noted]:
        with self._mutex:
            return [*reversed(self._noted)]

    def forget(self, gone: Callable[[stores.Scope], bool]) -> None:
        """Lets go of the reports of some conversations, which quote them."""
        with self._mutex:
            self._noted = deque(
                (noted for noted in self._noted if not gone(noted.scope)), MOST_REPORTS
            )
            if self.last and gone(self.last.scope):
                self.last = None


def _digest(messages: Sequence[BaseMessage]) -> bytes:
    """Returns a digest of the words of messages, without their ids, images and files."""
    told = ("type", "name", "text", "tool_call_id", "tool_calls")
    said = [[getattr(one, name, None) for name in told] for one in messages]
    return digest(json.dumps(said, default=repr, skipkeys=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextSnapshot:
    """The report of one prompt, as it was kept (seed 003)."""

    id: str
    """They sort in the order in which they were made."""
    created_at: datetime
    conversation_id: str
    messages: int
    report: ContextReport
    """Without previews."""

    @classmethod
    def of_item(cls, scope: stores.Scope, item: Item) -> "ContextSnapshot":
        """Reads a snapshot of a conversation."""
        record = ReportRecord.read(item.value, f"the snapshot {item.key!r}")
        key = scope.conversation_id
        try:
            report = ContextReport.from_dict(
                {**record.report, "user_id": scope.user_id, "conversation_id": key}
            )
        except ValueError as error:
            raise StoreDataError(
                f"the report of the snapshot {item.key!r} cannot be read: {error}"
            ) from error
        return cls(
            id=item.key,
            created_at=record.created_at,
            conversation_id=key,
            messages=record.messages,
            report=report,
        )


class BudgetAnalytics(NamedTuple):
    """How budgets were used over some prompts (seed 002: Token Budget Analytics)."""

    prompts: int
    mean_share: float
    exhausted: int
    """Prompts that left less than a fiftieth of their budget free, or for which something gave way
    as a last resort."""
    saved_tokens: int
    layers: Mapping[str, tuple[float, float]]
    """By layer, the tokens that were used and those that were planned, on average."""


class ReportRecord(stores.Record):
    """A snapshot in the store.

    It quotes nothing, so erasing a message leaves nothing of it there.
    """

    created_at: datetime
    messages: int
    report: dict[str, Any]
    """Without the user and the conversation: its namespace says whose it is."""


def read_snapshot_items(store: BaseStore, scope: stores.Scope) -> Flow[list[Item]]:
    """Returns the stored snapshots of a conversation, oldest first."""
    return sorted(
        (yield from stores.read_all(store, scope.namespace(SNAPSHOTS))), key=lambda item: item.key
    )


def keep_report(
    store: BaseStore,
    conversation: history.OpenConversation,
    report: ContextReport,
    now: datetime,
    keep: int,
) -> Flow[None]:
    """Keeps the report of a prompt as one of the latest few snapshots of its conversation."""
    place = conversation.scope.namespace(SNAPSHOTS)
    data = report.to_dict()
    del data["user_id"], data["conversation_id"]
    for layer in data["layers"]:
        layer["items"] = [{**item, "preview": ""} for item in layer["items"]]
    record = ReportRecord(created_at=now, messages=len(conversation.table), report=data)
    if conversation.snapshots is None:
        conversation.snapshots = [
            item.key for item in (yield from read_snapshot_items(store, conversation.scope))
        ]
    key = f"{stores.utc(now):%Y%m%dT%H%M%S%f}-{next(_numbers):08d}-{stores.new_token()[:8]}"
    before = sorted((*conversation.snapshots, key))
    gone = before[:-keep]
    conversation.snapshots = before[-keep:]
    deleted = (stores.written(GetOp(place, one), None) for one in gone)
    yield from batch(store, [stores.written(GetOp(place, key), record), *deleted])


class UsageRecord(stores.Record):
    """The usage that one lane has counted."""

    used: Usage
    last: int = 0
    """The number of the last call that is in it."""


class _ModelCall(NamedTuple):
    number: int
    places: tuple[Lanes, ...]
    used: Usage


def month_of(now: datetime) -> str:
    """Returns the calendar month of a moment in UTC, such as `2026-11`."""
    return stores.utc(now).date().isoformat()[:7]


def of_session(scope: stores.Scope) -> Lanes:
    """Returns the namespace of a conversation's usage."""
    return scope.namespace("spent")


def of_month(user_id: str, month: str) -> Lanes:
    """Returns the namespace of a user's usage in a month.

    Clearing a conversation called "2026-11" leaves it.
    """
    if not isinstance(month, str) or not _MONTH.fullmatch(month):
        raise InputError(f"month must be a year and a month such as '2026-11', not {month!r}")
    return (stores.ROOT, stores.label(stores.require_id("user_id", user_id)), "usage", month)


class Ledger:
    """Counts the usage of one pipeline's calls over its store, for threads and tasks.

    Each ledger has a lane of its own in every place: a record of what it has counted, and of the
    last call that is in it, so that no call counts twice. What was used in a place is the sum of
    its lanes. An erased lane begins anew.
    """

    def __init__(self) -> None:
        self._mutex = new_mutex()
        self._lane = stores.new_token()
        self._noted = 0
        self.unwritten: dict[str, tuple[_ModelCall, ...]] = {}
        """The calls of each user that are not written yet, oldest first."""

    def note(self, scope: stores.Scope, used: Usage, month: str) -> None:
        """Counts a call for its conversation and for its user's month (see `month_of`).

        Does no I/O.
        """
        places = (*([of_session(scope)] if scope.is_kept else []), of_month(scope.user_id, month))
        with self._mutex:
            self._noted += 1
            call = _ModelCall(self._noted, places, used)
            self.unwritten[scope.user_id] = (*self.unwritten.get(scope.user_id, ()), call)

    def read(self, store: BaseStore, user_id: str, place: Lanes) -> Flow[Usage]:
        """Returns the usage in one place of a user.

        All lanes that are written, and the calls of this process.
        """
        calls = self.unwritten.get(
            user_id, ()
        )  # the memory first: what is written in between is not counted twice
        # By name: an item that is written while pages are read may stand on two of them.
        lanes = {
            item.key: UsageRecord.found(item) for item in (yield from stores.read_all(store, place))
        }
        lanes[self._lane] = _with(lanes.get(self._lane), place, calls)
        return total(record.used for record in lanes.values() if record)

    def write(self, store: BaseStore, user_id: str) -> Flow[None]:
        """Writes the counts of a user; if that fails, they are written the next time."""
        if not (calls := self.unwritten.get(user_id, ())):
            return
        places = list(dict.fromkeys(place for call in calls for place in call.places))
        items = yield from batch(store, [GetOp(place, self._lane) for place in places])
        pairs = zip(places, items, strict=True)
        records = ((place, _with(UsageRecord.found(item), place, calls)) for place, item in pairs)
        yield from batch(
            store, [stores.written(GetOp(place, self._lane), record) for place, record in records]
        )
        self._change(user_id, lambda call: None if call.number <= calls[-1].number else call)

    def forget(self, scope: stores.Scope) -> None:
        """Drops the unwritten counts of a conversation for good; its user's month stays."""
        gone = of_session(scope)
        self._change(
            scope.user_id,
            lambda it: it._replace(places=tuple(one for one in it.places if one != gone)),
        )

    def erase(self, user_id: str) -> None:
        """Drops the unwritten counts of a user for good.

        Call it before their records are deleted.
        """
        self._change(user_id, lambda _: None)

    def _change(self, user_id: str, change: Callable[[_ModelCall], _ModelCall | None]) -> None:
        with self._mutex:
            self.unwritten[user_id] = tuple(
                filter(None, map(change, self.unwritten.pop(user_id, ())))
            )
            if not self.unwritten[user_id]:
                del self.unwritten[user_id]


def _with(record: UsageRecord | None, place: Lanes, calls: Iterable[_ModelCall]) -> UsageRecord:
    """Adds those calls of a place that are not in its record yet."""
    used, last = (record.used, record.last) if record else (Usage(), 0)
    new = [call for call in calls if place in call.places and call.number > last]
    return UsageRecord(
        used=total([used, *(call.used for call in new)]), last=new[-1].number if new else last
    )


class Bookkeeping:
    """Counts usage, and has one thread that writes it, user after user, at the latest when the process ends."""

    def __init__(
        self, store: Callable[[], BaseStore], clock: stores.Clock, prices: Prices | None
    ) -> None:
        """Sets up; the thread begins with the first thing to write.

        `InvalidSettingsError` for a price that is none.
        """
        self.clock, self.prices, self.ledger = clock, load_prices(prices), Ledger()
        self.worker: Worker[str] = Worker(lambda user_id, _: drive(self.write(user_id)))
        self.store, self._process = store, os.getpid()

    def close(self) -> None:
        """Writes everything that is pending and accepts nothing new.

        Does not block an event loop.
        """
        if self._process != os.getpid():  # what there is, the parent writes
            return
        if running_loop() is None:
            with suppress(BlockedLoopError):
                self.finish().flush(PATIENCE_SECONDS)
        self.worker.close()
        atexit.unregister(self.close)

    def finish(self) -> Worker[str]:
        """Has everything written, also what could not be before.

        Returns the worker that does it.
        """
        for user_id in list(self.ledger.unwritten):
            self.worker.submit(user_id)
        return self.worker

    def note(
        self, scope: stores.Scope, usage_metadata: Mapping[str, Any], model: str | None
    ) -> Usage:
        """Counts what an answer has used; `finish` has it written.

        `InputError` where it is no usage.
        """
        if model is not None and not isinstance(model, str):
            raise InputError(f"model must be the name of a model, not {model!r}")
        usage = usage_of(usage_metadata, model, self.prices)
        if not self.ledger.unwritten:
            # Anew each time, as what is registered last is called first: before the store closes
            # itself.
            atexit.unregister(self.close)
            atexit.register(self.close)
        self.ledger.note(scope, usage, month_of(self.clock()))
        return usage

    def write(self, user_id: str) -> Flow[None]:
        """Writes the counts of a user."""
        # Whoever erases something of the user holds this lock, too.
        store = self.store()
        yield from locked(known.lock_of(store, user_id), self.ledger.write(store, user_id))
        if not self.ledger.unwritten:
            atexit.unregister(self.close)

    def standing(self, scope: stores.Scope, limits: UsageLimits) -> Flow[Standing | None]:
        """Returns how much is left of the most restrictive limit; None without any."""
        session = yield from self.ledger.read(self.store(), scope.user_id, of_session(scope))
        month = yield from self.used_in(scope.user_id)
        used = {"session_tokens": session.total_tokens, "session_cost": session.cost}
        return standing(
            limits, {**used, "month_tokens": month.total_tokens, "month_cost": month.cost}
        )

    def used_in(self, user_id: str, month: str | None = None) -> Flow[Usage]:
        """Returns what a user has used in a month, this one or such as `2026-11`, in all conversations."""
        return self.ledger.read(
            self.store(), user_id, of_month(user_id, month or month_of(self.clock()))
        )

    def state(
        self, scope: stores.Scope, settings: ContextSettings, failures: list[str]
    ) -> Flow[tuple[Tier, UsageState | None]]:
        """Returns the tier that applies to a prompt, and the limit behind it.

        Adds what failed to `failures`.
        """
        limits = settings.usage_limits
        if limits is None:
            return HEALTHY, None
        found = yield from with_fallback(
            self.standing(scope, limits), None, "usage not read", failures
        )
        if found is None:
            return HEALTHY, None
        tier = tier_of(found.left, limits.thresholds)
        forced = tuple(settings.force_include)
        state = UsageState(
            tier=tier.name,
            left=found.left,
            limit=found.limit,
            used=found.used,
            allowed=found.allowed,
            forced=forced,
        )
        return relaxed(tier, forced), state


Snapshots: TypeAlias = "list[ContextSnapshot]"


@checks_names()
class UsageBook:
    """Usage in tokens and US dollars, per conversation and per user and month (UTC), and what is left of limits.

    `ContextUsageHandler`, the middleware and `pipeline.observe_usage` feed it, and `record` elsewhere.
    """

    def __init__(
        self, bookkeeping: Bookkeeping, settings: ContextSettings, model: str | None
    ) -> None:
        self._books = bookkeeping
        self._settings = settings
        self._model = model

    def _record(
        self,
        usage_metadata: Mapping[str, Any],
        *,
        user_id: str,
        conversation_id: str,
        model: str | None = None,
    ) -> Flow[Usage]:
        """Counts the usage of an answer, and returns it once it is written.

        Where that fails, it is written later.
        """
        usage = self._books.note(
            stores.Scope(user_id, conversation_id), usage_metadata, model or self._model
        )
        yield from self._books.write(user_id)
        return usage

    def _of_session(self, *, user_id: str, conversation_id: str) -> Flow[Usage]:
        """Returns the usage of a conversation."""
        place = of_session(stores.Scope(user_id, conversation_id))
        return self._books.ledger.read(self._books.store(), user_id, place)

    def _of_month(self, *, user_id: str, month: str | None = None) -> Flow[Usage]:
        """Returns the usage of a user in a month (this one, or such as `2026-11`), in all conversations."""
        return self._books.used_in(user_id, month)

    def _standing(
        self,
        *,
        user_id: str,
        conversation_id: str,
        limits: UsageLimits | Mapping[str, Any] | None = None,
    ) -> Flow[Standing | None]:
        """Returns how much is left of the most restrictive of the given limits, else the user's.

        None without any.
        """
        scope = stores.Scope(user_id, conversation_id)
        if limits is None:
            saved = yield from stores.read_settings(
                self._books.store(), stores.settings_place(user_id, None)
            )
            limits = merged(self._settings, {"user": saved}, None, failures=[])[0].usage_limits
        return (
            (yield from self._books.standing(scope, UsageLimits.of(limits)))
            if limits is not None
            else None
        )

    record, arecord = twins(_record)
    of_session, aof_session = twins(_of_session)
    of_month, aof_month = twins(_of_month)
    standing, astanding = twins(_standing)


@checks_names()
class SnapshotBook:
    """The reports of earlier prompts, where `keep_snapshots` says that they are kept.

    Every method has an async twin, and raises `MissingScopeError` without its scope.
    """

    def __init__(self, store: Callable[[], BaseStore]) -> None:
        self._store = store

    def _get(
        self, snapshot_id: str, *, user_id: str, conversation_id: str
    ) -> Flow[ContextSnapshot | None]:
        """Returns one snapshot; None where the conversation has none of this id."""
        scope = stores.Scope(user_id, conversation_id)
        [found] = yield from batch(self._store(), [GetOp(scope.namespace(SNAPSHOTS), snapshot_id)])
        return ContextSnapshot.of_item(scope, found) if isinstance(found, Item) else None

    def _list(self, *, user_id: str, conversation_id: str, limit: int = 100) -> Flow[Snapshots]:
        """Returns the newest snapshots of a conversation, oldest first, at most `limit`.

        `InputError` for no count.
        """
        scope = stores.Scope(user_id, conversation_id)
        require_count("limit", limit)
        items = yield from read_snapshot_items(self._store(), scope)
        return [ContextSnapshot.of_item(scope, item) for item in items[-limit:]]

    def _analytics(self, *, user_id: str, conversation_id: str | None) -> Flow[BudgetAnalytics]:
        """Adds up the kept reports of a conversation, or with None of all conversations of a user (seed 002)."""
        stores.require_id("user_id", user_id)
        of_user = history.log.read_conversations(self._store(), user_id)
        names = (yield from of_user) if conversation_id is None else [conversation_id]
        found: list[ContextReport] = []
        for name in names:
            scope = stores.Scope(user_id, name)
            items = yield from read_snapshot_items(self._store(), scope)
            found += [ContextSnapshot.of_item(scope, item).report for item in items]
        number = max(1, len(found))
        shares = [one.total_tokens / one.budget_tokens for one in found]
        exhausted = sum(
            bool(one.last_resort) or share > NEARLY_FULL_SHARE
            for one, share in zip(found, shares, strict=True)
        )
        layers: dict[str, tuple[float, float]] = {}
        for layer in (layer for one in found for layer in one.layers):
            used, planned = layers.get(layer.layer, (0.0, 0.0))
            layers[layer.layer] = (
                used + layer.used_tokens / number,
                planned + layer.allocated_tokens / number,
            )
        saved = sum(one.stability.saved_tokens for one in found)
        return BudgetAnalytics(len(found), sum(shares) / number, exhausted, saved, layers)

    get, aget = twins(_get)
    list, alist = twins(_list)
    analytics, aanalytics = twins(_analytics)
