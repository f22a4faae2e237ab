"""The usage of models, counted per conversation and per user and month."""

import atexit
import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any, TypeAlias

from langgraph.store.base import BaseStore, GetOp

from langchain_ctxbudget import stores
from langchain_ctxbudget.budget import (
    HEALTHY,
    Standing,
    Tier,
    UsageLimits,
    tier_of,
    tightest_limit,
    without_forced_limits,
)
from langchain_ctxbudget.errors import BlockedLoopError, InputError, checks_names
from langchain_ctxbudget.flow import (
    Flow,
    adrive,
    batch,
    drive,
    locked,
    running_loop,
    with_fallback,
)
from langchain_ctxbudget.knowledge import known
from langchain_ctxbudget.llm import AnsweredCall
from langchain_ctxbudget.prompt import merged_settings
from langchain_ctxbudget.report import UsageState
from langchain_ctxbudget.settings import ContextSettings
from langchain_ctxbudget.tokens import (
    NO_OWN_CALLS,
    NO_USAGE,
    OwnCalls,
    Price,
    Usage,
    load_prices,
    total,
    usage_of,
    with_time,
)
from langchain_ctxbudget.worker import PATIENCE_SECONDS, Worker, new_mutex

Prices: TypeAlias = Mapping[str, Price | Mapping[str, Any]]
Lanes: TypeAlias = tuple[str, ...]
"""A namespace with one item per lane: that of a conversation, or of a user's month."""
_MONTH = re.compile(r"[0-9]{4}-(0[1-9]|1[0-2])")


class UsageRecord(stores.Record):
    """The usage that one lane has counted."""

    used: Usage = NO_USAGE
    own: OwnCalls = NO_OWN_CALLS
    """The part of it that the package's own calls have used."""
    told: OwnCalls = NO_OWN_CALLS
    """The part of that which reports have told."""
    last: int = 0
    """The number of the last note that is in it."""

    def with_note(self, note: "_Note") -> "UsageRecord":
        """Returns the record with one more note."""
        return UsageRecord(
            used=self.used + note.used,
            own=self.own + note.own,
            told=self.told + note.told,
            last=note.number,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Note:
    """What one call has used, or what a report has told of such calls."""

    number: int
    """Notes of one ledger are counted from 1."""
    places: tuple[Lanes, ...]
    used: Usage = NO_USAGE
    own: OwnCalls = NO_OWN_CALLS
    told: OwnCalls = NO_OWN_CALLS


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
    last note that is in it, so that no call counts twice. What was used in a place is the sum of
    its lanes. An erased lane begins anew.
    """

    def __init__(self) -> None:
        self._mutex = new_mutex()
        self._lane = stores.new_token()
        self._noted = 0
        self.unwritten: dict[str, tuple[_Note, ...]] = {}
        """The notes about each user that are not written yet, oldest first."""

    def note(
        self, scope: stores.Scope, used: Usage, month: str, own: OwnCalls = NO_OWN_CALLS
    ) -> None:
        """Counts a call for its conversation and for its user's month (see `month_of`).

        Does no I/O. A call of the package's own is also given as `own`.
        """
        places: tuple[Lanes, ...] = (of_month(scope.user_id, month),)
        if scope.is_kept:
            places = (of_session(scope), *places)
        self._add(scope, partial(_Note, places=places, used=used, own=own))

    def note_told(self, scope: stores.Scope, told: OwnCalls) -> None:
        """Notes which of the package's own calls a report of a conversation has told of.

        Does no I/O.
        """
        self._add(scope, partial(_Note, places=(of_session(scope),), told=told))

    def _add(self, scope: stores.Scope, make: Callable[..., _Note]) -> None:
        with self._mutex:
            self._noted += 1
            note = make(number=self._noted)
            self.unwritten[scope.user_id] = (*self.unwritten.get(scope.user_id, ()), note)

    def read(self, store: BaseStore, user_id: str, place: Lanes) -> Flow[UsageRecord]:
        """Returns what is counted in one place of a user.

        All lanes that are written, and the notes of this process.
        """
        # The memory first: what is written in between is not counted twice.
        notes = self.unwritten.get(user_id, ())
        items = yield from stores.read_all(store, place)
        # By name: an item that is written while pages are read may stand on two of them.
        lanes = {item.key: UsageRecord.of_item(item) for item in items}
        lanes[self._lane] = _with(lanes.get(self._lane), place, notes)
        records = [record for record in lanes.values() if record]
        return UsageRecord(
            used=total(record.used for record in records),
            own=sum((record.own for record in records), NO_OWN_CALLS),
            told=sum((record.told for record in records), NO_OWN_CALLS),
        )

    def write(self, store: BaseStore, user_id: str) -> Flow[None]:
        """Writes the counts of a user; if that fails, they are written the next time."""
        notes = self.unwritten.get(user_id, ())
        if not notes:
            return
        places: dict[Lanes, GetOp] = {}
        for note in notes:
            for place in note.places:
                places[place] = GetOp(place, self._lane)
        items = yield from batch(store, places.values())

        puts = []
        for (place, operation), item in zip(places.items(), items, strict=True):
            record = _with(UsageRecord.of_item(item), place, notes)
            puts.append(stores.put_of(operation, record))
        yield from batch(store, puts)
        last = notes[-1].number
        self._change(user_id, lambda note: None if note.number <= last else note)

    def forget(self, scope: stores.Scope) -> None:
        """Drops the unwritten counts of a conversation for good; its user's month stays."""
        gone = of_session(scope)

        def without(note: _Note) -> _Note:
            return replace(note, places=tuple(place for place in note.places if place != gone))

        self._change(scope.user_id, without)

    def erase(self, user_id: str) -> None:
        """Drops the unwritten counts of a user for good.

        Call it before their records are deleted.
        """
        self._change(user_id, lambda _: None)

    def _change(self, user_id: str, change: Callable[[_Note], _Note | None]) -> None:
        with self._mutex:
            changed = [change(note) for note in self.unwritten.pop(user_id, ())]
            remaining = tuple(note for note in changed if note is not None)
            if remaining:
                self.unwritten[user_id] = remaining


def _with(record: UsageRecord | None, place: Lanes, notes: Sequence[_Note]) -> UsageRecord:
    """Returns the record of a place with those of its notes that were not in it yet."""
    record = record or UsageRecord()
    for note in notes:
        if place in note.places and note.number > record.last:
            record = record.with_note(note)
    return record


class Bookkeeping:
    """Counts usage, and has one thread that writes it, user after user.

    It is written at the latest when the process ends.
    """

    def __init__(
        self, store: Callable[[], BaseStore], clock: stores.Clock, prices: Prices | None
    ) -> None:
        """Sets up; the thread begins with the first thing to write.

        `InvalidSettingsError` for a price that is none.
        """
        self.clock = clock
        self.prices = load_prices(prices)
        self.ledger = Ledger()
        self.store = store
        self.worker: Worker[str] = Worker(lambda user_id, _: drive(self.write(user_id)))
        self._process = os.getpid()

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
        self,
        scope: stores.Scope,
        usage_metadata: Mapping[str, Any],
        model: str | None,
        seconds: float | None = None,
    ) -> Usage:
        """Counts what an answer has used; `finish` has it written.

        Args:
            scope: The conversation.
            usage_metadata: What the provider says of the call.
            model: The model whose price counts.
            seconds: How long the answer took.

        Raises:
            InputError: It is no usage, or no time.
        """
        if model is not None and not isinstance(model, str):
            raise InputError(f"model must be the name of a model, not {model!r}")
        usage = with_time(usage_of(usage_metadata, model, self.prices), seconds)
        self._write_at_exit()
        self.ledger.note(scope, usage, month_of(self.clock()))
        return usage

    def note_own(self, scope: stores.Scope, call: AnsweredCall) -> None:
        """Counts a call that the package has made itself; `finish` has it written.

        `InputError` where its usage is none.
        """
        usage = usage_of(call.usage, call.model_name, self.prices)
        if call.is_estimated:
            usage = replace(usage, estimated_calls=1)
        self._write_at_exit()
        own = OwnCalls({call.purpose: usage})
        self.ledger.note(scope, usage, month_of(self.clock()), own)

    def tell_own(self, scope: stores.Scope) -> Flow[OwnCalls]:
        """Returns what the package's own calls have used since this was last asked.

        Also in another process, as far as it is written. Whoever asks holds the conversation's
        lock.
        """
        counted = yield from self.of_session(scope)
        untold = counted.own.since(counted.told)
        if untold.total.calls:
            self._write_at_exit()
            self.ledger.note_told(scope, untold)
            self.worker.submit(scope.user_id)
        return untold

    def _write_at_exit(self) -> None:
        """Has everything written when the process ends."""
        if not self.ledger.unwritten:
            # Anew each time, as what is registered last is called first: before the store closes
            # itself.
            atexit.unregister(self.close)
            atexit.register(self.close)

    def write(self, user_id: str) -> Flow[None]:
        """Writes the counts of a user."""
        # Whoever erases something of the user holds this lock, too.
        store = self.store()
        yield from locked(known.lock_of(store, user_id), self.ledger.write(store, user_id))
        if not self.ledger.unwritten:
            atexit.unregister(self.close)

    def tightest_limit(self, scope: stores.Scope, limits: UsageLimits) -> Flow[Standing | None]:
        """Returns how much is left of the most restrictive limit; None without any."""
        session = yield from self.of_session(scope)
        month = yield from self.of_month(scope.user_id)
        used = {
            "session_tokens": session.used.total_tokens,
            "session_cost": session.used.cost,
            "month_tokens": month.used.total_tokens,
            "month_cost": month.used.cost,
        }
        return tightest_limit(limits, used)

    def of_session(self, scope: stores.Scope) -> Flow[UsageRecord]:
        """Returns what is counted of a conversation."""
        return self.ledger.read(self.store(), scope.user_id, of_session(scope))

    def of_month(self, user_id: str, month: str | None = None) -> Flow[UsageRecord]:
        """Returns what is counted of a user in a month, this one or such as `2026-11`."""
        place = of_month(user_id, month or month_of(self.clock()))
        return self.ledger.read(self.store(), user_id, place)

    def state(
        self, scope: stores.Scope, settings: ContextSettings, failures: list[str]
    ) -> Flow[tuple[Tier, UsageState | None]]:
        """Returns the tier that applies to a prompt, and the limit behind it.

        Adds what failed to `failures`.
        """
        limits = settings.usage_limits
        if limits is None:
            return HEALTHY, None
        reading = self.tightest_limit(scope, limits)
        current = yield from with_fallback(reading, None, "usage not read", failures)
        if current is None:
            return HEALTHY, None
        tier = tier_of(current.left, limits.thresholds)
        forced = tuple(settings.force_include)
        state = UsageState(
            tier=tier.name,
            left=current.left,
            limit=current.limit,
            used=current.used,
            allowed=current.allowed,
            forced=forced,
        )
        return without_forced_limits(tier, forced), state


@checks_names()
class UsageBook:
    """Usage in tokens and US dollars, and what is left of limits.

    It is counted per conversation, and per user and month (UTC). `ContextUsageHandler`, the
    middleware and `pipeline.observe_usage` feed it, and `record` elsewhere.
    """

    def __init__(
        self, bookkeeping: Bookkeeping, settings: ContextSettings, model: str | None
    ) -> None:
        self._books = bookkeeping
        self._settings = settings
        self._model = model

    def record(
        self,
        usage_metadata: Mapping[str, Any],
        *,
        user_id: str,
        conversation_id: str,
        model: str | None = None,
        seconds: float | None = None,
    ) -> Usage:
        """Counts the usage of an answer, and returns it once it is written.

        Where writing fails, it is written later.

        Args:
            usage_metadata: what the provider says of the call, as LangChain gives it.
            user_id: the user.
            conversation_id: the conversation.
            model: the model whose price counts; default: the pipeline's.
            seconds: how long the answer took, if that is known.
        """
        scope = stores.Scope(user_id, conversation_id)
        return drive(self._record(scope, usage_metadata, model, seconds))

    async def arecord(
        self,
        usage_metadata: Mapping[str, Any],
        *,
        user_id: str,
        conversation_id: str,
        model: str | None = None,
        seconds: float | None = None,
    ) -> Usage:
        """Counts the usage of an answer; the async form of `record`."""
        scope = stores.Scope(user_id, conversation_id)
        return await adrive(self._record(scope, usage_metadata, model, seconds))

    def of_session(self, *, user_id: str, conversation_id: str) -> Usage:
        """Returns the usage of a conversation."""
        return drive(self._books.of_session(stores.Scope(user_id, conversation_id))).used

    async def aof_session(self, *, user_id: str, conversation_id: str) -> Usage:
        """Returns the usage of a conversation; the async form of `of_session`."""
        return (await adrive(self._books.of_session(stores.Scope(user_id, conversation_id)))).used

    def of_month(self, *, user_id: str, month: str | None = None) -> Usage:
        """Returns the usage of a user in a month, in all conversations.

        Args:
            user_id: the user.
            month: a month in UTC, such as `2026-11`; default: this one.
        """
        return drive(self._books.of_month(user_id, month)).used

    async def aof_month(self, *, user_id: str, month: str | None = None) -> Usage:
        """Returns the usage of a user in a month; the async form of `of_month`."""
        return (await adrive(self._books.of_month(user_id, month))).used

    def own_of_session(self, *, user_id: str, conversation_id: str) -> OwnCalls:
        """Returns what the calls that learn and sum up have used for a conversation.

        `of_session` counts them, too.
        """
        return drive(self._books.of_session(stores.Scope(user_id, conversation_id))).own

    async def aown_of_session(self, *, user_id: str, conversation_id: str) -> OwnCalls:
        """Returns what the calls that learn and sum up have used for a conversation.

        The async form of `own_of_session`.
        """
        return (await adrive(self._books.of_session(stores.Scope(user_id, conversation_id)))).own

    def own_of_month(self, *, user_id: str, month: str | None = None) -> OwnCalls:
        """Returns what the calls that learn and sum up have used for a user in a month.

        `of_month` counts them, too.

        Args:
            user_id: the user.
            month: a month in UTC, such as `2026-11`; default: this one.
        """
        return drive(self._books.of_month(user_id, month)).own

    async def aown_of_month(self, *, user_id: str, month: str | None = None) -> OwnCalls:
        """Returns what the calls that learn and sum up have used for a user in a month.

        The async form of `own_of_month`.
        """
        return (await adrive(self._books.of_month(user_id, month))).own

    def standing(
        self,
        *,
        user_id: str,
        conversation_id: str,
        limits: UsageLimits | Mapping[str, Any] | None = None,
    ) -> Standing | None:
        """Returns how much is left of the most restrictive limit; None where there are no limits.

        Args:
            user_id: the user.
            conversation_id: the conversation.
            limits: the limits to look at; default: those of the user's settings.
        """
        return drive(self._standing(stores.Scope(user_id, conversation_id), limits))

    async def astanding(
        self,
        *,
        user_id: str,
        conversation_id: str,
        limits: UsageLimits | Mapping[str, Any] | None = None,
    ) -> Standing | None:
        """Returns how much is left of the most restrictive limit; the async form of `standing`."""
        return await adrive(self._standing(stores.Scope(user_id, conversation_id), limits))

    def _record(
        self,
        scope: stores.Scope,
        usage_metadata: Mapping[str, Any],
        model: str | None,
        seconds: float | None,
    ) -> Flow[Usage]:
        usage = self._books.note(scope, usage_metadata, model or self._model, seconds)
        yield from self._books.write(scope.user_id)
        return usage

    def _standing(
        self, scope: stores.Scope, limits: UsageLimits | Mapping[str, Any] | None
    ) -> Flow[Standing | None]:
        if limits is None:
            place = stores.settings_place(scope.user_id, None)
            saved = yield from stores.read_settings(self._books.store(), place)
            settings, _ = merged_settings(self._settings, {"user": saved}, None, failures=[])
            limits = settings.usage_limits
        if limits is None:
            return None
        return (yield from self._books.tightest_limit(scope, UsageLimits.of(limits)))
