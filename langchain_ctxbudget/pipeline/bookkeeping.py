"""What is written down after a prompt, off the hot path: its report as a snapshot, and what its answer has used."""

from __future__ import annotations

import atexit
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Any, Protocol, TypeAlias
from uuid import uuid4
from weakref import WeakSet

from langgraph.store.base import BaseStore, Op, PutOp

from langchain_ctxbudget.background import BackgroundWorker, Cancelled, beginning_anew, new_mutex
from langchain_ctxbudget.budget.tiers import HEALTHY, Tier, UsageLimits, relaxed, standing, tier_of
from langchain_ctxbudget.errors import BlockedLoopError, InputError
from langchain_ctxbudget.flow import Flow, drive, locked, running_loop
from langchain_ctxbudget.knowledge import known
from langchain_ctxbudget.report.report import ContextReport, UsageState
from langchain_ctxbudget.settings import ContextSettings
from langchain_ctxbudget.stores import snapshots
from langchain_ctxbudget.stores.clock import utc_now
from langchain_ctxbudget.stores.records import Scope
from langchain_ctxbudget.stores.snapshots import ReportRecord
from langchain_ctxbudget.stores.usage_ledger import Ledger, month_of
from langchain_ctxbudget.tokens.prices import Price, Usage, load_prices, usage_of

Prices: TypeAlias = Mapping[str, Price | Mapping[str, Any]]
CLOSING_SECONDS = 5.0
"""The longest that closing waits for what is still to be written."""
QUEUED = 256
"""So many conversations are handed to the worker at a time."""
KEPT_SCOPES = 256
"""Of so many conversations it is known which snapshots there are; of others it is read again."""


class Owner(Protocol):
    """Who makes the prompts."""

    @property
    def store(self) -> BaseStore:
        """Where everything is kept."""


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A snapshot that is still to be written."""

    key: str
    record: ReportRecord
    keep: int
    epoch: int
    """What was erased since is not written."""


class Bookkeeping:
    """One thread that writes snapshots and usage, conversation after conversation."""

    def __init__(
        self,
        owner: Owner,
        clock: Callable[[], datetime] | None = None,
        prices: Prices | None = None,
    ) -> None:
        """Set up; the thread begins with the first thing to write.

        Args:
            owner: who makes the prompts.
            clock: what time it is; default: UTC.
            prices: over those that come with the package.

        Raises:
            InvalidSettingsError: a price that is none.
        """
        self.clock = clock or utc_now
        self.prices = load_prices(prices)
        self.ledger = Ledger()
        self._owner = owner
        self._waiting: dict[Scope, deque[_Waiting]] = {}
        self._unwritten: dict[Scope, None] = {}
        """Conversations of which something is to be written; of more than fit into the worker's queue, too."""
        self._failed: dict[Scope, None] = {}
        """Those that could not be written; they are tried again as soon as another one can."""
        self._kept: OrderedDict[Scope, list[str]] = OrderedDict()
        """The ids of the snapshots of conversations, oldest first; whoever uses them holds the lock of the user."""
        self._also: dict[str, PutOp] = {}
        """What is of no conversation, and is written with the next."""
        self._made = 0
        self._lane = uuid4().hex[:8]
        self._mutex = new_mutex()
        self.worker: BackgroundWorker[Scope] = BackgroundWorker(self._run)
        _all.add(beginning_anew(self))

    def begin_anew(self) -> None:
        """Leave to the parent what it was going to write, and write under another name."""
        self._waiting, self._unwritten, self._failed, self._kept = {}, {}, {}, OrderedDict()
        self._lane = uuid4().hex[:8]
        _busy.discard(self)

    def close(self) -> None:
        """Write what is still to be written, and begin nothing any more; an event loop is not held up."""
        if running_loop() is None:
            with suppress(BlockedLoopError):
                self.finish().flush(CLOSING_SECONDS)
        self.worker.close()
        _busy.discard(self)

    def finish(self) -> BackgroundWorker[Scope]:
        """Have everything written, also what could not be before; the worker that does it."""
        self._go_on(again=True)
        return self.worker

    def note_prompt(self, report: ContextReport, scope: Scope, messages: int, keep: int) -> None:
        """Keep the report of a prompt as a snapshot.

        Args:
            report: of the prompt.
            scope: its conversation.
            messages: how many the conversation has.
            keep: so many of the latest ones stay; 0: nothing is kept.
        """
        if keep < 1:
            return
        now = self.clock()
        with self._mutex:
            self._made += 1
            key = snapshots.key_of(now, self._made, self._lane)
            record = snapshots.record_of(report, now, messages)
            waiting = self._waiting.setdefault(scope, deque())
            waiting.append(_Waiting(key, record, keep, known.epoch_of(self._owner.store, scope.user_id)))
            while len(waiting) > keep:
                waiting.popleft()
        self._ask(scope)

    def note_usage(self, scope: Scope, usage_metadata: Mapping[str, Any], model: str | None) -> Usage:
        """Count what an answer has used; it is written in the background.

        Raises:
            InputError: it is no usage.
        """
        usage = self._count(scope, usage_metadata, model)
        self._ask(scope)
        return usage

    def keep(self, write: PutOp) -> None:
        """Have something written with what is written next; of two writes to one place the later one."""
        with self._mutex:
            self._also[write.key] = write

    def record(self, scope: Scope, usage_metadata: Mapping[str, Any], model: str | None) -> Flow[Usage]:
        """Count what an answer has used, and write it now; where that fails, it is written later.

        Raises:
            InputError: it is no usage.
        """
        usage = self._count(scope, usage_metadata, model)
        try:
            yield from self._write(scope)
        except BaseException:
            with self._mutex:
                self._failed[scope] = None
                self._stay_until_written()
            raise
        return usage

    def _count(self, scope: Scope, usage_metadata: Mapping[str, Any], model: str | None) -> Usage:
        if model is not None and not isinstance(model, str):
            raise InputError(f"model must be the name of a model, not {model!r}")
        usage = usage_of(usage_metadata, model, self.prices)
        self.ledger.note(scope, usage, model, month_of(self.clock()))
        return usage

    def problem(self, scope: Scope) -> str:
        """What went wrong when something was written last; empty where nothing did."""
        return self.worker.failure_of(scope) or ""

    def used(self, scope: Scope) -> Flow[tuple[Usage, Usage]]:
        """What a conversation has used, and its user in this month."""
        return (yield from self.ledger.read(self._owner.store, scope, month_of(self.clock())))

    def of_month(self, user_id: str, month: str | None) -> Flow[Usage]:
        """What a user has used in a month; None: in this one.

        Raises:
            InputError: it is no month.
        """
        return (yield from self.ledger.of_month(self._owner.store, user_id, month or month_of(self.clock())))

    def state(
        self, scope: Scope, settings: ContextSettings, failures: list[str]
    ) -> Flow[tuple[Tier, UsageState | None]]:
        """What the usage limits of a prompt let in.

        Args:
            scope: its conversation.
            settings: that apply.
            failures: what is to be reported; appended to.
        """
        if settings.usage_limits is None:
            return HEALTHY, None
        try:
            used = yield from self.used(scope)
        except Exception as error:  # noqa: BLE001 - what this process has counted stands in
            failures.append(f"usage not read: {type(error).__name__}: {error}")
            used = self.ledger.known(scope, month_of(self.clock()))
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
        """Write nothing more of a conversation."""
        with self._mutex:
            for kept in (self._waiting, self._kept, self._unwritten, self._failed):
                kept.pop(scope, None)
        self.ledger.forget(scope)

    def erase(self, user_id: str) -> None:
        """Write nothing more of a user."""
        with self._mutex:
            for kept in (self._waiting, self._kept, self._unwritten, self._failed):
                for scope in [scope for scope in kept if scope.user_id == user_id]:
                    del kept[scope]
        self.ledger.erase(user_id)

    def _ask(self, scope: Scope) -> None:
        """Have written what there is of a conversation."""
        with self._mutex:
            self._unwritten[scope] = None
            self._stay_until_written()
        self.worker.submit(scope)

    def _stay_until_written(self) -> None:
        """Outlive the pipeline that noted something, to the end of the process if need be; the mutex is held."""
        if self not in _busy:
            _busy.add(self)
            # Again, as what is registered last is called first: before the store closes itself.
            atexit.unregister(_close_all)
            atexit.register(_close_all)

    def _run(self, scope: Scope, _cancelled: Cancelled) -> None:
        with self._mutex:
            self._unwritten.pop(scope, None)
            self._failed.pop(scope, None)
        written = False
        try:
            drive(self._write(scope))
            written = True
        finally:
            if not written:
                with self._mutex:
                    self._failed[scope] = None
            self._go_on(again=written)

    def _go_on(self, *, again: bool) -> None:
        """Queue what is to be written.

        Args:
            again: whether what could not be written is tried once more.
        """
        with self._mutex:
            if again:
                self._unwritten |= self._failed
                self._failed.clear()
            scopes = list(islice(self._unwritten, QUEUED))
            if not scopes and not self._failed:
                _busy.discard(self)
        for scope in scopes:
            self.worker.submit(scope)

    def _write(self, scope: Scope) -> Flow[None]:
        """Write what there is of a conversation; what cannot be written waits for the next time."""
        store = self._owner.store

        def body() -> Flow[None]:
            with self._mutex:
                waiting = list(self._waiting.get(scope, ()))
                also = dict(self._also)
            puts: list[Op] = [*also.values()]
            now = known.epoch_of(store, scope.user_id)
            current = [one for one in waiting if one.epoch == now]
            keys = list(self._kept.get(scope, ()))
            if current:
                if scope not in self._kept:
                    keys = yield from snapshots.read_keys(store, scope)
                for one in current:
                    key = snapshots.key_behind(keys, one.key)
                    puts.append(snapshots.write(scope, key, one.record))
                    keys = sorted({*keys, key})
                keys, gone = keys[-current[-1].keep :], keys[: -current[-1].keep]
                puts += [snapshots.write(scope, key, None) for key in gone]
            yield from self.ledger.write(store, scope, puts)
            with self._mutex:
                self._also = {key: write for key, write in self._also.items() if also.get(key) is not write}
                left = self._waiting.get(scope)
                for one in waiting:
                    if left and left[0] is one:
                        left.popleft()
                if current:
                    self._kept[scope] = keys
                    self._kept.move_to_end(scope)
                    while len(self._kept) > KEPT_SCOPES:
                        self._kept.popitem(last=False)

        # Whoever erases something of the user holds this lock, too.
        yield from locked(known.lock_of(store, scope.user_id), body())


def amounts(session: Usage, month: Usage) -> dict[str, float]:
    """What was used, by the name of the limit."""
    return {
        "session_tokens": session.total_tokens,
        "session_cost": session.cost,
        "month_tokens": month.total_tokens,
        "month_cost": month.cost,
    }


_all: WeakSet[Bookkeeping] = WeakSet()
_busy: set[Bookkeeping] = set()
"""Those with something to write: it is written also where the pipeline that noted it is let go of."""


def _close_all() -> None:
    """What was counted last is not lost with the process, and no thread is in a database while the interpreter ends."""
    for one in list(_all):
        one.close()
