"""What is written down after a prompt, off the hot path: its report as a snapshot, and what its answer has used."""

from __future__ import annotations

import atexit
import re
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, TypeAlias
from uuid import uuid4

from langgraph.store.base import BaseStore, Item, Op, PutOp

from langchain_ctxbudget.background import BackgroundWorker, Cancelled, beginning_anew, new_mutex
from langchain_ctxbudget.budget import HEALTHY, Tier, UsageLimits, relaxed, standing, tier_of
from langchain_ctxbudget.errors import BlockedLoopError, InputError, StoreDataError
from langchain_ctxbudget.flow import Flow, drive, locked, running_loop
from langchain_ctxbudget.knowledge import known
from langchain_ctxbudget.report import ContextReport, UsageState
from langchain_ctxbudget.settings import ContextSettings
from langchain_ctxbudget.stores import Ledger, Record, Scope, month_of, read_all, utc, utc_now
from langchain_ctxbudget.tokens import Price, Usage, load_prices, usage_of

Prices: TypeAlias = Mapping[str, Price | Mapping[str, Any]]
CLOSING_SECONDS = 5.0
"""The longest that closing waits for what is still to be written."""
MOST_WAITING = 1_000_000
"""Conversations of which something is still to be written."""
KEPT_SCOPES = 256
"""Of so many conversations it is known which snapshots there are; of others it is read again."""


SNAPSHOTS = "reports"
_KEY = re.compile(r"(?P<moment>[0-9T]+)-(?P<number>[0-9]+)-[^-]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextSnapshot:
    """The report of one prompt, as it was kept (seed 003)."""

    id: str
    """They sort in the order in which they were made."""
    created_at: datetime
    conversation_id: str
    messages: int
    """How many messages the conversation had."""
    report: ContextReport
    """Without previews."""

    @classmethod
    def of_item(cls, scope: Scope, item: Item) -> ContextSnapshot:
        """Reads a snapshot of a conversation."""
        record = ReportRecord.read(item.value, f"the snapshot {item.key!r}")
        ids = {"user_id": scope.user_id, "conversation_id": scope.conversation_id}
        try:
            report = ContextReport.from_dict(record.report | ids)
        except ValueError as error:
            raise StoreDataError(f"the report of the snapshot {item.key!r} cannot be read: {error}") from error
        return cls(
            id=item.key,
            created_at=record.created_at,
            conversation_id=scope.conversation_id,
            messages=record.messages,
            report=report,
        )


class ReportRecord(Record):
    """A snapshot in the store; it quotes nothing, so erasing a message leaves nothing of it there."""

    created_at: datetime
    messages: int
    report: dict[str, Any]
    """Without the user and the conversation: its namespace says whose it is."""


def without_previews(report: ContextReport) -> ContextReport:
    """Returns a report that quotes nothing."""
    layers = tuple(
        replace(layer, items=tuple(replace(item, preview="") for item in layer.items)) for layer in report.layers
    )
    return replace(report, layers=layers)


def read_snapshot_items(store: BaseStore, scope: Scope) -> Flow[list[Item]]:
    """Returns the stored snapshots of a conversation, oldest first."""
    return sorted((yield from read_all(store, scope.namespace(SNAPSHOTS))), key=lambda item: item.key)


def _key_behind(keys: Sequence[str], key: str) -> str:
    """Returns the id of a new snapshot: as it is, or, where the clock was set back, one behind those there are."""
    last = _KEY.fullmatch(keys[-1]) if keys and key not in keys and key < keys[-1] else None
    return f"{last['moment']}-{int(last['number']) + 1:08d}-{key.rpartition('-')[2]}" if last else key


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A snapshot that is still to be written."""

    key: str
    record: ReportRecord
    keep: int
    epoch: int
    """What was erased since is not written."""


class Bookkeeping:
    """One thread that writes snapshots and usage, conversation after conversation.

    With something to write it outlives the pipeline that noted it, to the end of the process if need be.
    """

    def __init__(
        self,
        store: Callable[[], BaseStore],
        clock: Callable[[], datetime] | None = None,
        prices: Prices | None = None,
    ) -> None:
        """Sets up; the thread begins with the first thing to write. `InvalidSettingsError` for a price that is none."""
        self.clock = clock or utc_now
        self.prices = load_prices(prices)
        self.ledger = Ledger()
        self.worker: BackgroundWorker[Scope] = BackgroundWorker(self._run, most_waiting=MOST_WAITING)
        self._store = store
        self._mutex = new_mutex()
        self._made = 0
        self._stays = False
        self._begin()
        beginning_anew(self)

    def _begin(self) -> None:
        self._lane = uuid4().hex[:8]
        self._waiting: dict[Scope, deque[_Waiting]] = {}
        self._unwritten: dict[Scope, None] = {}
        """Conversations of which something is to be written."""
        self._failed: dict[Scope, None] = {}
        """Those of them that could not be written; they are tried again as soon as another one can."""
        self._keys: OrderedDict[Scope, list[str]] = OrderedDict()
        """The ids of the snapshots of conversations, oldest first; whoever uses them holds the lock of the user."""
        self._also: dict[str, PutOp] = {}
        """What is of no conversation, and is written with the next."""

    def begin_anew(self) -> None:
        """Leaves to the parent what it was going to write, and writes under another name."""
        self._begin()
        self._stay(needed=False)

    def close(self) -> None:
        """Writes what is still to be written, and begins nothing any more; an event loop is not held up."""
        if running_loop() is None:
            with suppress(BlockedLoopError):
                self.finish().flush(CLOSING_SECONDS)
        self.worker.close()
        self._stay(needed=False)

    def finish(self) -> BackgroundWorker[Scope]:
        """Has everything written, also what could not be before; returns the worker that does it."""
        with self._mutex:
            failed, self._failed = self._failed, {}
        for scope in failed:
            self.worker.submit(scope)
        return self.worker

    def note_prompt(self, report: ContextReport, scope: Scope, messages: int, keep: int) -> None:
        """Keeps the report of a prompt as one of the latest few snapshots of a conversation of so many messages."""
        if keep < 1:
            return
        now = self.clock()
        with self._mutex:
            self._made += 1
            key = f"{utc(now):%Y%m%dT%H%M%S%f}-{self._made:08d}-{self._lane}"
            said = without_previews(report).to_dict()
            del said["user_id"], said["conversation_id"]
            record = ReportRecord(created_at=now, messages=messages, report=said)
            waiting = self._waiting.setdefault(scope, deque())
            waiting.append(_Waiting(key, record, keep, known.epoch_of(self._store(), scope.user_id)))
            while len(waiting) > keep:
                waiting.popleft()
        self._ask(scope)

    def note_usage(self, scope: Scope, usage_metadata: Mapping[str, Any], model: str | None) -> Usage:
        """Counts what an answer has used; it is written in the background. `InputError` where it is no usage."""
        usage = self._count(scope, usage_metadata, model)
        self._ask(scope)
        return usage

    def record(self, scope: Scope, usage_metadata: Mapping[str, Any], model: str | None) -> Flow[Usage]:
        """Counts what an answer has used, and writes it now; where that fails, it is written later."""
        usage = self._count(scope, usage_metadata, model)
        try:
            yield from self._write(scope)
        except BaseException:
            self._note_failure(scope)
            raise
        return usage

    def _count(self, scope: Scope, usage_metadata: Mapping[str, Any], model: str | None) -> Usage:
        if model is not None and not isinstance(model, str):
            raise InputError(f"model must be the name of a model, not {model!r}")
        usage = usage_of(usage_metadata, model, self.prices)
        self.ledger.note(scope, usage, model, month_of(self.clock()))
        return usage

    def keep(self, write: PutOp) -> None:
        """Has something written with what is written next; of two writes to one place the later one."""
        with self._mutex:
            self._also[write.key] = write

    def used(self, scope: Scope) -> Flow[tuple[Usage, Usage]]:
        """Returns what a conversation has used, and its user in this month."""
        return (yield from self.ledger.read(self._store(), scope, month_of(self.clock())))

    def state(
        self, scope: Scope, settings: ContextSettings, failures: list[str]
    ) -> Flow[tuple[Tier, UsageState | None]]:
        """Returns what the usage limits of a prompt let in; what is to be reported is appended to `failures`."""
        if settings.usage_limits is None:
            return HEALTHY, None
        try:
            used = yield from self.used(scope)
        except Exception as error:  # noqa: BLE001 - what is not written yet stands in
            failures.append(f"usage not read: {type(error).__name__}: {error}")
            used = self.ledger.unwritten(scope, month_of(self.clock()))
        limits = UsageLimits.of(settings.usage_limits)
        found = standing(limits, amounts(*used))
        if found is None:
            return HEALTHY, None
        tier = tier_of(found.left, limits.thresholds)
        forced = tuple(settings.force_include)
        state = UsageState(
            tier=tier.name, left=found.left, limit=found.limit, used=found.used, allowed=found.allowed, forced=forced
        )
        return relaxed(tier, forced), state

    def forget(self, scope: Scope) -> None:
        """Writes nothing more of a conversation."""
        self._drop([scope])
        self.ledger.forget(scope)

    def erase(self, user_id: str) -> None:
        """Writes nothing more of a user."""
        with self._mutex:
            scopes = {*self._waiting, *self._unwritten, *self._keys}
        self._drop([scope for scope in scopes if scope.user_id == user_id])
        self.ledger.erase(user_id)

    def _drop(self, scopes: list[Scope]) -> None:
        with self._mutex:
            for scope in scopes:
                for kept in (self._waiting, self._unwritten, self._failed, self._keys):
                    kept.pop(scope, None)

    def _ask(self, scope: Scope) -> None:
        """Has written what there is of a conversation."""
        with self._mutex:
            self._unwritten[scope] = None
            self._stay(needed=True)
        self.worker.submit(scope)

    def _stay(self, *, needed: bool) -> None:
        """Has this closed at the end of the process, where there is something to write."""
        if needed != self._stays:
            self._stays = needed
            # Registered anew each time, as what is registered last is called first: before the store closes itself.
            (atexit.register if needed else atexit.unregister)(self.close)

    def _run(self, scope: Scope, _cancelled: Cancelled) -> None:
        with self._mutex:
            self._failed.pop(scope, None)
            self._unwritten.pop(scope, None)
        try:
            drive(self._write(scope))
        except BaseException:
            self._note_failure(scope)
            raise
        self.finish()
        with self._mutex:
            if not self._unwritten:
                self._stay(needed=False)

    def _note_failure(self, scope: Scope) -> None:
        with self._mutex:
            self._failed[scope] = self._unwritten[scope] = None
            self._stay(needed=True)

    def _write(self, scope: Scope) -> Flow[None]:
        """Writes what there is of a conversation; what cannot be written waits for the next time."""
        store = self._store()

        def body() -> Flow[None]:
            with self._mutex:
                waiting = list(self._waiting.get(scope, ()))
                also = dict(self._also)
            puts: list[Op] = [*also.values()]
            now = known.epoch_of(store, scope.user_id)
            current = [one for one in waiting if one.epoch == now]
            keys = list(self._keys.get(scope, ()))
            if current:
                if scope not in self._keys:
                    keys = [item.key for item in (yield from read_snapshot_items(store, scope))]
                for one in current:
                    key = _key_behind(keys, one.key)
                    puts.append(PutOp(scope.namespace(SNAPSHOTS), key, one.record.to_value(), index=False))
                    keys = sorted({*keys, key})
                keys, gone = keys[-current[-1].keep :], keys[: -current[-1].keep]
                puts += [PutOp(scope.namespace(SNAPSHOTS), key, None) for key in gone]
            yield from self.ledger.write(store, scope, puts)
            with self._mutex:
                self._also = {key: write for key, write in self._also.items() if also.get(key) is not write}
                left = self._waiting.get(scope)
                for one in waiting:
                    if left and left[0] is one:
                        left.popleft()
                if not left:
                    self._waiting.pop(scope, None)
                if current:
                    self._keys[scope] = keys
                    self._keys.move_to_end(scope)
                    if len(self._keys) > KEPT_SCOPES:
                        self._keys.popitem(last=False)

        # Whoever erases something of the user holds this lock, too.
        yield from locked(known.lock_of(store, scope.user_id), body())


def amounts(session: Usage, month: Usage) -> dict[str, float]:
    """Returns what was used, by the name of the limit."""
    return {
        "session_tokens": session.total_tokens,
        "session_cost": session.cost,
        "month_tokens": month.total_tokens,
        "month_cost": month.cost,
    }
